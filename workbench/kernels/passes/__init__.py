"""Rewritings of the program: a `Function` in, another one out, in the same IR.

`simplify` and `prune` keep the meaning to the last bit; `adjoint`, `tangent` and their relatives make derivatives, all
on the thread's `replay`. Imports the IR, its rows and `analysis`; knows no backend.
To add a pass: a function in a file of its own, and its line in the list of `workbench.kernels`, which runs the checker
after it.
"""
