"""The compiler: a Python function in; IR, its adjoint and machine code out. It knows no array and no launch."""
