"""Intervals of integers that are not affine: what `%`, `min`, `clamp` and choices leave of their arguments' intervals.

They prove that an index stays inside its array, so that no test of it is needed at run time. Never too small.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from ..ops import Row, control, memory, scalar
from .affine import Affine

Interval = tuple[int, int]


DEEPEST = 32  # operations on operations that are followed: indices have few, and hashes many


@dataclass(frozen=True, eq=False)
class Bounded:
    """An integer: an affine form, or what `row` makes of its arguments, or (of neither) anything of its type."""

    limits: Interval  # of its type
    form: Affine | None = None
    row: Row | None = None
    args: tuple[Bounded, ...] = ()
    depth: int = 0


def computed(row: Row, args: tuple[Bounded, ...], limits: Interval) -> Bounded:
    """The integer that a row makes of these; anything of its type beyond `DEEPEST`."""
    depth = 1 + max(a.depth for a in args)
    return Bounded(limits, None, row, args, depth) if depth <= DEEPEST else Bounded(limits)


def interval(value: Bounded, of_form: Callable[[Affine], Interval | None]) -> Interval:
    """The smallest and the largest value, where affine forms have the intervals `of_form`, or None."""
    known: dict[Bounded, Interval] = {}
    for part in _parts(value):
        found = of_form(part.form) if part.form is not None else None
        if part.row is not None:
            found = _RULES[part.row](*[known[a] for a in part.args])
        inside = found is not None and part.limits[0] <= found[0] and found[1] <= part.limits[1]
        known[part] = found if found is not None and inside else part.limits
    return known[value]


def forms_in(value: Bounded) -> list[Affine]:
    """The affine forms that its interval depends on."""
    return [part.form for part in _parts(value) if part.form is not None]


def _parts(value: Bounded) -> dict[Bounded, None]:
    """The value and all it is computed from, each once, arguments first."""
    found: dict[Bounded, None] = {}

    def see(part: Bounded) -> None:
        if part not in found:
            for a in part.args:
                see(a)
            found[part] = None

    see(value)
    return found


def _corners(f: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval]:
    """The rule of a function that is largest and smallest at ends of its arguments."""

    def rule(a: Interval, b: Interval) -> Interval:
        found = list(itertools.starmap(f, itertools.product(a, b)))
        return min(found), max(found)

    return rule


def _union(*parts: Interval) -> Interval:
    return min(p[0] for p in parts), max(p[1] for p in parts)


def _floordiv(a: Interval, b: Interval) -> Interval | None:
    return _corners(lambda x, y: x // y)(a, b) if b[0] > 0 else None


def _pymod(a: Interval, b: Interval) -> Interval | None:
    if b[0] <= 0:
        return None
    return a if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)


def _mod(a: Interval, b: Interval) -> Interval | None:
    """The remainder with the sign of `a`, as in C."""
    return None if b[0] <= 0 else (0 if a[0] >= 0 else 1 - b[1], 0 if a[1] <= 0 else b[1] - 1)


def _wrap(a: Interval, n: Interval) -> Interval | None:
    """A negative index counts from the end."""
    return (min(a[0] + n[0], max(a[0], 0)), max(a[1], n[1] - 1)) if a[0] < 0 else a


def _clamp(x: Interval, low: Interval, high: Interval) -> Interval:
    return min(max(x[0], low[0]), high[0]), min(max(x[1], low[1]), high[1])


_RULES: dict[Row, Callable[..., Interval | None]] = {
    scalar.ADD: _corners(lambda x, y: x + y),
    scalar.SUB: _corners(lambda x, y: x - y),
    scalar.MUL: _corners(lambda x, y: x * y),
    scalar.MIN: _corners(min),
    scalar.MAX: _corners(max),
    scalar.CLAMP: _clamp,
    scalar.FLOORDIV: _floordiv,
    scalar.PYMOD: _pymod,
    scalar.MOD: _mod,
    scalar.CAST: lambda a: a,
    scalar.WHERE: lambda c, a, b: _union(a, b),
    control.IF: _union,
    memory.WRAP: _wrap,
}


def has_rule(row: Row) -> bool:
    """True for the rows whose results have intervals."""
    return row in _RULES
