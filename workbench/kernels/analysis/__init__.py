"""Static analyses: facts about a kernel that hold without running it.

`affine`, `accesses`, `hulls`, `launch_ranges` and `thread_conflicts`: which elements a launch touches, and whether two
threads can meet; `rounding`: whether all backends take the same branches; `launch_form`: how much a thread does.
Imports the IR and its rows; rewrites nothing. To add an analysis: a file that takes a `Function`, and
caches its results with it, as functions do not change.
"""
