"""The side of a tie that a kernel keeps to: where a is b, `min`, `max`, `clamp` and `abs` take the slopes of one side.

A smooth function may be built of them: max(x, 0) + min(x, 0) is x. Its slope at 0 is that of either side, if all of its
parts keep to the same. A comparison decides which, as a < b leads where it does not hold; else the first `min`, `max`
or `clamp` of the two numbers, which gives a tie to its first operand. The side of a - b and 0 is that of a and b.
"""

from __future__ import annotations

from ..ir import Stmt, Value, root
from ..ops import control as c, memory as mem, scalar
from ..row import Row
from ..types import is_float
from .simplify import constant_of, is_zero

_Pair = tuple[object, object]
_Order = tuple[Value, Value | None, bool]  # (a, b or None for 0, does a count as above b)
_ABOVE = {scalar.LT: True, scalar.GE: True, scalar.GT: False, scalar.LE: False}


class Sides:
    """The sides of the pairs of numbers that a kernel compares. `above`: does the first count as above the second."""

    def __init__(self, stmts: list[Stmt]):
        stmts = [s for s in stmts if s.role != "tangent"]  # a rule's own comparisons decide nothing
        self.same: dict[Value, Value] = {}  # names of what a loop carries or a cell holds, which is one number here
        self._follow_cells(stmts)
        for *names, out in [names for s in stmts if s.row in (c.FOR, c.WHILE) for names in c.flows(s)]:
            for v in names:
                if constant_of(v) is None and self._first(v) is not self._first(out):
                    self.same[self._first(v)] = self._first(out)
        self.signed = any(s.row in (scalar.SIGN, scalar.COPYSIGN) for s in stmts)
        self.by_bit = {self._first(s.args[-1]) for s in stmts if s.row is scalar.COPYSIGN}
        self.above: dict[_Pair, bool | None] = {}
        for order in [order for s in stmts for order in _decided(s)]:
            pair, side = self._pair(*order)
            self._enter(pair, side if self.above.get(pair, side) is side else None)
        self.above = {pair: side for pair, side in self.above.items() if side is not None}  # else both are asked for
        for order in [order for s in stmts for order in _kept(s)]:
            pair, side = self._pair(*order)
            self._enter(pair, self.above.get(pair, side))

    def rule(self, stmt: Stmt) -> Row:
        """The row by whose rule a statement keeps to the side."""
        if stmt.row is scalar.ABS:
            side, by_bit = self._is_above(stmt.args[0], None), self._first(stmt.args[0]) in self.by_bit
            if side is None or by_bit:
                return scalar.SIGNED if side is None and by_bit else scalar.JUMPING if self.signed else scalar.ABS
            return scalar.ABOVE if side else scalar.BELOW
        other = [self._is_above(a, b) is (not above) for a, b, above in _kept(stmt)]
        return scalar.OTHER_SIDE.get((stmt.row, *other), stmt.row)

    def _follow_cells(self, stmts: list[Stmt]) -> None:
        """As `simplify.forward` does, so that a program with all of its loads keeps to the same sides."""
        cells: dict[tuple, Value] = {}
        for s in stmts:
            if s.row is not mem.LOAD and not s.row.writes:
                continue
            array, *indices = s.args if s.row is mem.LOAD else s.args[:-1]
            cell = root(array).name, array.stmt is None, *map(self._name, indices)
            if s.row is mem.LOAD:
                if (known := cells.setdefault(cell, s.outs[0])) is not s.outs[0]:
                    self.same[s.outs[0]] = self._first(known)
                continue
            cells = {other: v for other, v in cells.items() if other[0] != cell[0]}
            if s.row is mem.STORE:
                cells[cell] = s.args[-1]

    def _first(self, v: Value) -> Value:
        while v in self.same:
            v = self.same[v]
        return v

    def _enter(self, pair: _Pair, side: bool | None) -> None:
        a, b = pair
        self.above[a, b], self.above[b, a] = side, None if side is None else not side

    def _is_above(self, a: Value, b: Value | None) -> bool | None:
        """True if a counts as above b where they are equal; None if nothing has decided that."""
        pair, above = self._pair(a, b, True)
        side = self.above.get(pair)
        return None if side is None else side is above

    def _pair(self, a: Value, b: Value | None, above: bool) -> tuple[_Pair, bool]:
        """(two numbers, for x - y and 0 those two, is the first above the second) where that is said of a and b."""
        a, b = self._first(a), b and self._first(b)
        if b is not None and not is_zero(b):
            return self._pair(b, None, not above) if is_zero(a) else ((self._name(a), self._name(b)), above)
        row, args = (None, [a, a]) if a.stmt is None else (a.stmt.row, [*a.stmt.args])
        if row is scalar.NEG:
            return self._pair(args[0], None, not above)
        if row is scalar.SUB:
            return self._pair(args[0], args[1], above)
        for x, k in (args, args[::-1])[: (row is scalar.DIV) + 2 * (row is scalar.MUL)]:
            if constant_of(k):
                return self._pair(x, None, above == (constant_of(k) > 0))
        return (self._name(a), 0.0), above

    def _name(self, v: Value) -> object:
        v = self._first(v)
        return v if constant_of(v) is None else constant_of(v)


def _decided(stmt: Stmt) -> list[_Order]:
    """The order of numbers to which a statement leads at a tie."""
    if stmt.row in (scalar.SIGN, scalar.STEP):
        return [(stmt.args[0], None, True)]
    ordered = stmt.row in _ABOVE and is_float(stmt.args[0].type)
    return [(stmt.args[0], stmt.args[1], _ABOVE[stmt.row])] if ordered else []


def _kept(stmt: Stmt) -> list[_Order]:
    """The orders of numbers to which the rule of a statement keeps at ties."""
    if stmt.row not in (scalar.MIN, scalar.MAX, scalar.CLAMP) or not is_float(stmt.args[0].type):
        return []
    return [(stmt.args[0], b, k == 0 and stmt.row is not scalar.MIN) for k, b in enumerate(stmt.args[1:])]
