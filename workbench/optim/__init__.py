"""Optimizers and linear solvers on arrays, under Warp's names, and `wb.numerics`: functions of whole arrays.

The one idea: a step is a few launches of ordinary kernels on ordinary arrays, its own state included, so it can be
captured, looked at, and differentiated like any program. The gradient of a linear solve is another solve. Imports from
`sparse` downwards.
"""

from ..arrays.packing import Pack
from . import linear
from .descend import Descent
from .steps import SGD, Adam

__all__ = ["SGD", "Adam", "Descent", "Pack", "linear"]
__dir__ = __all__.copy
