"""What is known about a kernel without running it.

`affine`, `accesses`, `hulls`, `launch_ranges` and `thread_conflicts`: which elements a launch touches, and whether two
threads can meet; `rounding`: whether all backends take the same branches; `work`: how much a thread does.
Imports the IR and its rows; looks only, and rewrites nothing. To add a question: a file that takes a `Function`, and
keeps its answers with it, as functions do not change.
"""
