"""Host functions that programs written for NVIDIA Warp call: streams, timers, modules, graphs, old spellings.

The one idea: each of these names does here what it must for the program to compute the same, and no more. Work of a
device runs in one order, so a stream has nothing to reorder; every kernel is compiled by itself, so a module is a
name. Imports from `tapes` downwards. To add a name: a function here, its line in `.docs/warp.rst`.
"""
