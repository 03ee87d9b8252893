"""One thing in full: `ledger`, every contribution to a gradient cell; `microscope`, one thread of one launch.

Both run the recorded program again, on copies, and show what it did. Imports `viz.picture` and below.
"""
