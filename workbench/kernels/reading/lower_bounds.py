"""Lower bounds of integers, from how a value is made and from the conditions that guard a place.

One question is answered: is this index certainly not negative? If so, no `wrap` is needed. In doubt the answer is no.
Expressions are compared by structure, so `i - 1` in a condition and `i - 1` in an index are the same fact.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from .. import ir
from ..ops import Row, control, memory, scalar
from ..types import Scalar, is_int

# Computed alike, these give the same: their values are compared by structure.
_STRUCTURAL = (scalar.ADD, scalar.SUB, scalar.MUL, scalar.NEG, control.TID, memory.SHAPE, scalar.FLOORDIV, scalar.PYMOD)


def static_int(v: object) -> int | None:
    """The Python integer that a literal or a constant value holds."""
    if isinstance(v, int) and not isinstance(v, bool):
        return v
    if isinstance(v, ir.Value) and v.stmt is not None and v.stmt.row is control.CONST and is_int(v.type):
        return v.stmt.attr
    return None


def key(v: ir.Value) -> Hashable:
    """Equal for values that are computed alike."""
    s = v.stmt
    if s is None:
        return id(v)
    if s.row is control.CONST:
        return (s.row, str(v.type), s.attr)
    if s.row in _STRUCTURAL:
        return (s.row, str(s.attr), *[key(a) for a in s.args])
    return id(v)


class Facts:
    """Lower bounds of integers, in a stack of assumptions."""

    def __init__(self) -> None:
        self.bounds: list[dict[Hashable, int]] = [{}]
        self.kept: list[ir.Value] = []  # keys are ids: what they name must stay alive

    @contextmanager
    def assuming(self, condition: object, truth: bool) -> Iterator[None]:
        """Inside, `condition` is known to be `truth`."""
        self.bounds.append({})
        if isinstance(condition, ir.Value):
            self._assume(condition, truth)
        try:
            yield
        finally:
            self.bounds.pop()

    def set(self, v: ir.Value, low: int) -> None:
        """Note v >= low, in the innermost assumption."""
        k = key(v)
        self.kept.append(v)
        self.bounds[-1][k] = max(low, self.bounds[-1].get(k, low))

    def known(self, v: ir.Value) -> int | None:
        found = [b[k] for b in self.bounds for k in [key(v)] if k in b]
        return max(found, default=None)

    def lower(self, v: ir.Value) -> int | None:
        """The best known k with v >= k, or None."""
        if not is_int(v.type):
            return None
        found = [b for b in (self.known(v), self._made(v)) if b is not None]
        return max(found, default=None)

    def non_negative(self, v: ir.Value) -> bool:
        low = self.lower(v)
        return low is not None and low >= 0

    def _made(self, v: ir.Value) -> int | None:
        if ir.type_as(v, Scalar).kind == "u":
            return 0
        s = v.stmt
        if s is None:
            return None
        if s.row is control.CONST:
            return s.attr
        if s.row in (control.TID, control.DIM, memory.SHAPE):
            return 0
        if s.row is scalar.CAST:
            return self._cast(s.args[0], v)
        if s.row not in _RULES:
            return None
        rule, taken = _RULES[s.row]
        operands = [r.results[s.outs.index(v)] for r in s.regions] if s.row is control.IF else s.args
        bounds = [self.lower(a) for a in operands[taken]]
        if s.row is scalar.SUB:
            bounds.append(static_int(operands[1]))
        if s.row is scalar.MAX:
            bounds = [b for b in bounds if b is not None]
        return None if None in bounds or not bounds else rule(*bounds)

    def _cast(self, source: ir.Value, v: ir.Value) -> int | None:
        new, old = ir.type_as(v, Scalar), source.type
        if not isinstance(old, Scalar) or not is_int(old) or old.bits > new.bits:
            return None
        return self.lower(source) if old.kind == new.kind or new.bits > old.bits else None

    # ---- conditions

    def _assume(self, c: ir.Value, truth: bool) -> None:
        s = c.stmt
        if s is None:
            return
        if s.row in scalar.NEGATED:
            self._assume_order(s.row if truth else scalar.NEGATED[s.row], *s.args)
        elif s.row is scalar.LOGICAL_NOT:
            self._assume(s.args[0], not truth)
        elif s.row is control.IF:
            self._assume_chain(c, s, truth)

    def _assume_chain(self, c: ir.Value, s: ir.Stmt, truth: bool) -> None:
        ends = [region.results[s.outs.index(c)] for region in s.regions]
        for side, (end, other) in ((True, ends), (False, ends[::-1])):
            made = end.stmt
            # The other side cannot have given this outcome.
            if made is not None and made.row is control.CONST and made.attr is (not truth):
                self._assume(s.args[0], not side)
                self._assume(other, truth)

    def _assume_order(self, row: Row, a: ir.Value, b: ir.Value) -> None:
        if is_int(a.type) and is_int(b.type):
            self._bound(a, row, self.lower(b), static_int(b))
            self._bound(b, scalar.SWAPPED[row], self.lower(a), static_int(a))

    def _bound(self, v: ir.Value, row: Row, low: int | None, exact: int | None) -> None:
        if low is not None and row in (scalar.GT, scalar.GE, scalar.EQ):
            self.set(v, low + (row is scalar.GT))
        elif row is scalar.NE and exact is not None and self.lower(v) == exact:
            self.set(v, exact + 1)


_EVERY, _FIRST, _SECOND = slice(None), slice(1), slice(1, 2)
# The lower bound of a result by those of its operands (of `-` the second one itself), and which of these it takes.
_RULES: dict[Row, tuple[Callable[..., int | None], slice]] = {
    scalar.ADD: (lambda a, b: a + b, _EVERY),
    scalar.SUB: (lambda a, b: a - b, _FIRST),
    scalar.MUL: (lambda a, b: 0 if a >= 0 and b >= 0 else None, _EVERY),
    scalar.MIN: (min, _EVERY),
    scalar.MAX: (lambda *known: max(known), _EVERY),
    scalar.FLOORDIV: (lambda a, b: 0 if a >= 0 and b > 0 else None, _EVERY),
    scalar.PYMOD: (lambda b: 0 if b > 0 else None, _SECOND),
    memory.WRAP: (lambda i: i if i >= 0 else None, _FIRST),
    control.IF: (min, _EVERY),
}
