"""Affine forms of the integers in a kernel: what an index or a condition is, in thread indices and loop turns.

The one idea: an index is an integer combination of thread indices, loop turns and numbers that the launch knows. A loop
variable is `start + step * turn`, so that a loop is one more variable and one more guard. Machine arithmetic wraps
around: a form is the machine's value only where its `needs` hold, and whoever uses a form checks them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..ops import Row, control, memory, scalar
from ..types import Scalar, Type

Symbol = tuple  # ('tid', k) ('loop', id): variables; ('dim', k) ('param', n) ('shape', n, k) ('host', row, *forms);
#                 ('scaled', symbol, form): a variable times a number that the launch knows
Point = dict[Symbol, int]


@dataclass(frozen=True)
class Affine:
    """sum(coefficient * symbol) + constant, equal to the machine's value where every need (form, lo, hi) holds.

    `limits` is the range of the machine type until `within_type` has been asked for; None when it cannot overflow.
    """

    terms: tuple[tuple[Symbol, int], ...] = ()
    constant: int = 0
    needs: tuple[tuple[Affine, int, int], ...] = field(default=(), compare=False)
    limits: tuple[int, int] | None = field(default=None, compare=False)

    @property
    def host(self) -> bool:
        """True if it is uniform over a launch: no thread index, no loop turn."""
        return all(s[0] not in ("tid", "loop", "scaled") for s, _ in self.terms)

    def within_type(self) -> Affine:
        """This form with one more need: its value fits the machine type (no wraparound)."""
        if self.limits is None:
            return self
        lo, hi = self.limits
        if not self.terms and lo <= self.constant <= hi:
            return Affine((), self.constant, self.needs)
        core = Affine(self.terms, self.constant)
        return Affine(self.terms, self.constant, (*self.needs, (core, lo, hi)))


@dataclass(frozen=True)
class AffineGuard:
    """An affine condition: `form` >= 0 (op "ge"), == 0 ("eq") or != 0 ("ne")."""

    form: Affine
    op: str = "ge"


def limits_of(type: Type) -> tuple[int, int]:
    assert isinstance(type, Scalar)
    if type.kind == "i":
        return -(1 << (type.bits - 1)), (1 << (type.bits - 1)) - 1
    return 0, (1 << type.bits) - 1


def weighted_sum(parts: Sequence[tuple[Affine, int]], limits: tuple[int, int] | None = None) -> Affine:
    """sum(factor * form)."""
    terms: dict[Symbol, int] = {}
    constant, needs = 0, {}
    for form, factor in parts:
        constant += factor * form.constant
        needs.update(dict.fromkeys(form.needs))
        for symbol, c in form.terms:
            terms[symbol] = terms.get(symbol, 0) + factor * c
    kept = tuple(sorted(((s, c) for s, c in terms.items() if c), key=repr))
    return Affine(kept, constant, tuple(needs), limits)


def form_of(*symbol: object) -> Affine:
    return Affine(((symbol, 1),))


def product(a: Affine, b: Affine, limits: tuple[int, int]) -> Affine | None:
    """a * b where one of them is known to the launch."""
    if b.terms and not a.terms:
        a, b = b, a
    if not b.terms:
        return weighted_sum([(a, b.constant), (Affine((), 0, b.needs), 1)], limits)
    if not b.host:
        a, b = b, a
    if not b.host:
        return None
    b = b.within_type()
    bare = Affine(b.terms, b.constant)
    parts = [(bare, a.constant), (Affine((), 0, (*a.needs, *b.needs)), 1)]
    for symbol, c in a.terms:
        if symbol[0] in ("tid", "loop", "scaled"):
            parts.append((form_of("scaled", symbol, bare), c))
        else:
            parts.append((form_of("host", scalar.MUL, form_of(*symbol), bare), c))
    return weighted_sum(parts, limits)


HOST_FUNCTIONS: dict[Row, Callable[..., int]] = {
    scalar.MUL: lambda a, b: a * b,
    scalar.FLOORDIV: lambda a, b: a // b,
    scalar.PYMOD: lambda a, b: a % b,
    scalar.MIN: min,
    scalar.MAX: max,
    memory.TRIPS: lambda start, stop, step: 0 if step == 0 else max(0, -((start - stop) // step)),
}

# comparison -> (op, factor of the left side, factor of the right side, constant)
COMPARISONS = {
    scalar.LT: ("ge", -1, 1, -1),
    scalar.LE: ("ge", -1, 1, 0),
    scalar.GT: ("ge", 1, -1, -1),
    scalar.GE: ("ge", 1, -1, 0),
    scalar.EQ: ("eq", 1, -1, 0),
    scalar.NE: ("ne", 1, -1, 0),
}


def symbols_in(form: Affine) -> Iterator[Symbol]:
    stack: list[Any] = [form, *[need[0] for need in form.needs]]
    while stack:
        item = stack.pop()
        if isinstance(item, Affine):
            stack.extend(symbol for symbol, _ in item.terms)
        elif isinstance(item, tuple):
            yield item
            if item[0] in ("host", "scaled"):
                stack.extend(item[1:])


# ---- intervals of integers that are not affine: what `%`, `min`, `clamp` and choices leave of those of their arguments
# They prove that an index stays inside its array, so that no test of it is needed at run time. Never too small.

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
            found = RULES[part.row](*[known[a] for a in part.args])
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


def _corners(f: Callable[[int, int], int], a: Interval, b: Interval) -> Interval:
    """The rule of a function that is largest and smallest at ends of its arguments."""
    found = list(itertools.starmap(f, itertools.product(a, b)))
    return min(found), max(found)


def union(*parts: Interval) -> Interval:
    """The smallest interval that holds these."""
    return min(p[0] for p in parts), max(p[1] for p in parts)


def _pymod(a: Interval, b: Interval) -> Interval | None:
    if b[0] <= 0:
        return None
    return a if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)


RULES: dict[Row, Callable[..., Interval | None]] = {  # of the rows whose results have intervals
    scalar.ADD: partial(_corners, lambda x, y: x + y),
    scalar.SUB: partial(_corners, lambda x, y: x - y),
    scalar.MUL: partial(_corners, lambda x, y: x * y),
    scalar.MIN: partial(_corners, min),
    scalar.MAX: partial(_corners, max),
    scalar.CLAMP: lambda x, low, high: (min(max(x[0], low[0]), high[0]), min(max(x[1], low[1]), high[1])),
    scalar.FLOORDIV: lambda a, b: _corners(lambda x, y: x // y, a, b) if b[0] > 0 else None,
    scalar.PYMOD: _pymod,
    # As in C it has the sign of `a`.
    scalar.MOD: lambda a, b: None if b[0] <= 0 else (0 if a[0] >= 0 else 1 - b[1], 0 if a[1] <= 0 else b[1] - 1),
    scalar.CAST: lambda a: a,
    scalar.WHERE: lambda c, a, b: union(a, b),
    control.IF: union,
    # A negative index counts from the end.
    memory.WRAP: lambda a, n: (min(a[0] + n[0], max(a[0], 0)), max(a[1], n[1] - 1)) if a[0] < 0 else a,
}
