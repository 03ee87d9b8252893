"""Small Warp programs whose gradients are known: some that Warp gets right, some that it gets wrong, and why.

Each is written as a user of Warp writes it, and says what `test_programs.py` measures: whether the gradients that it
reads are those of the number that it computes.
"""
