"""An adjoint that takes the other slope where `min`, `max`, `abs` and `clamp` have two: at equal operands, at 0.

There every number between the slopes of the two sides is a subgradient. Two programs that choose differently are both
right, and a comparison of their gradients has to know it.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import Function, Stmt, walk
from ..ops import scalar
from .named import named_pass
from .simplify import Rewrite, ValueFacts

SLOPES = (scalar.MIN, scalar.MAX, scalar.ABS, scalar.CLAMP)


@named_pass("other slope")
def other_slope(function: Function) -> Function:
    """An adjoint where ties of min and max go to b, those of clamp to its upper bound, and abs has the slope 1 at 0;
    the function itself where nothing of that kind is differentiated.
    """
    found = frozenset(choices(function))
    return _Other(found).function(function) if found else function


def choices(function: Function) -> list[Stmt]:
    """The comparisons of an adjoint that choose between two slopes: their first two arguments are equal at a tie."""
    own = [s for s in walk(function.body) if s.role == "adjoint" and s.of is not None and s.of.row in SLOPES]
    picks = [s for s in own if s.row is scalar.PICK_LT]
    inner = {(s.of, a) for s in picks for a in s.args[2:]}  # abs has two: the one inside tells x = 0 from x > 0
    chosen = [s for s in picks if (s.of, s.outs[0]) in inner or (s.of is not None and s.of.row is not scalar.ABS)]
    below = [s for s in own if s.row is scalar.LT]
    low = {(s.of, s.args[0]) for s in below}  # x < lo of clamp, whose tie goes to x on either side
    return chosen + [s for s in below if (s.of, s.args[1]) in low]


class _Other(Rewrite):
    def __init__(self, chosen: frozenset[Stmt]):
        super().__init__(None)
        self.chosen = chosen

    def stmt(self, stmt: Stmt, scope: ValueFacts) -> None:
        if stmt in self.chosen and stmt.row is scalar.PICK_LT:
            a, b, less, other = stmt.args
            stmt = replace(stmt, args=(b, a, other, less))
        elif stmt in self.chosen:
            stmt = replace(stmt, row=scalar.LE)
        super().stmt(stmt, scope)
