"""Affine forms of the integers in a kernel: what an index or a condition is, in thread indices and loop turns.

The one idea: an index is an integer combination of thread indices, loop turns and numbers that the launch knows. A loop
variable is `start + step * turn`, so that a loop is one more variable and one more guard. Machine arithmetic wraps
around: a form is the machine's value only where its `needs` hold, and whoever uses a form checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ops import Row, memory, scalar
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


def _trips(start: int, stop: int, step: int) -> int:
    return 0 if step == 0 else max(0, -((start - stop) // step))


HOST_FUNCTIONS: dict[Row, Callable[..., int]] = {
    scalar.MUL: lambda a, b: a * b,
    scalar.FLOORDIV: lambda a, b: a // b,
    scalar.PYMOD: lambda a, b: a % b,
    scalar.MIN: min,
    scalar.MAX: max,
    memory.TRIPS: _trips,
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
