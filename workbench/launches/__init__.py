"""One launch: its arguments, its plan, and running the kernel or its adjoint once.

`arguments` takes the user's values apart; `plan` decides once for every form of launch what runs and what it touches;
`adjoint_plan` does so for the reverse; `executable` runs. Imports the compiler and `arrays`; knows no tape but the
recorder that `arrays.allocation` names. To add a form of adjoint: `adjoint_plan`, with a test that it is chosen.
"""
