"""An adjoint that takes the other slope where `min`, `max`, `abs` and `clamp` have two: at equal operands, at 0.

There every number between the slopes of the two sides is a subgradient. Two programs that choose differently are both
right, and a comparison of their gradients has to know it.
"""

from __future__ import annotations

from ..ir import Function, Stmt, walk
from ..ops import scalar
from . import simplify
from .named import named_pass

SLOPES = (scalar.MIN, scalar.MAX, scalar.ABS, scalar.CLAMP)


@named_pass("other slope")
def other_slope(function: Function) -> Function:
    """An adjoint where ties of min and max go to b, those of clamp to its bounds, and abs has the slope 1 at 0; the
    function itself where nothing of that kind is differentiated.
    """
    made = simplify.rewrite(function) if choices(function) else function
    for s in choices(made):
        a, b, less, other = s.args
        s.args = b, a, other, less
    return made


def choices(function: Function) -> list[Stmt]:
    """The comparisons of an adjoint that choose between two slopes: their first two arguments are equal at a tie."""
    own = [s for s in walk(function.body) if s.role == "adjoint" and s.of is not None and s.of.row in SLOPES]
    picks = [s for s in own if s.row in (scalar.PICK_LT, scalar.PICK_LE)]
    made = {s.outs[0] for s in picks}  # abs has two: the one inside tells x = 0 from x > 0
    return [s for s in picks if s.of and (s.of.row is not scalar.ABS or made.isdisjoint(s.args[2:]))]
