"""IR as text: one C subset that is also CUDA C++, and what C and CUDA put around it.

`body` writes the statements of a thread, `signature` the block of arguments, `c` the loop nest around it, `blocks` the
form in which C compilers vectorise it, `cuda` the thread index and atomics. Imports IR, rows, `analysis`, `passes`.
To add a backend: a file beside `c` and `cuda` that puts a thread's statements into its own frame.
"""
