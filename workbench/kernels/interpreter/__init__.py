"""The reference semantics of a program: NumPy runs it thread by thread, statement by statement.

Needs no compiler, is the reference for the other backends, and serves whoever wants to see single values (microscope,
findings). Launches run by `lanes`: many threads at once, on NumPy vectors, with the same bits; conflicts between
threads are detected, and such launches run thread by thread. Imports the IR and its rows. To add a row with an effect
or with regions: its step beside those of its kind, here and in `lanes` or `lane_memory`; rows that only compute need
nothing, as their meaning is in the row.
"""
