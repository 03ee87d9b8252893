"""For programs of NVIDIA Warp: its names, and its programs watched while they run.

`names` are its host functions; `fem` and `autograd` what is here of these modules, public as `wb.fem`, `wb.autograd`;
`watch` is public as `wb.interop.warp`.
"""
