"""`watch` of a program of NVIDIA Warp, under its public name: see `workbench.warp.watch`."""

from ..warp.watch import TESTED, Comparison, Row, Watch, watch

__all__ = ["TESTED", "Comparison", "Row", "Watch", "watch"]
__dir__ = __all__.copy
