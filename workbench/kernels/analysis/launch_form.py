"""The form of a launch: its grid, the numbers and shapes of its arguments, and which of them may share memory.

All that code and analysis depend on, and nothing of the memory itself: launches of one form share one plan. An affine
form is evaluated with these numbers (`line`), so that only thread indices and turns of loops are left in it. `work` is
a rough count of additions per thread, by which launches choose their workers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import ir
from ..ir import Function
from ..lru import once_for_each
from ..ops import control, memory, scalar
from ..row import Effect
from ..types import Array, is_float
from .affine import HOST_FUNCTIONS, Affine, AffineGuard, Symbol

Groups = tuple[frozenset[str], ...]
TURNS = 16  # of an unknown loop, as a rule
"""Sets of array parameters that may share bytes."""

Intervals = dict[Symbol, tuple[int, int]]


class Unknown(Exception):
    """A number that the launch did not give, or that does not exist (n // 0)."""


@dataclass
class Line:
    """An affine form with the launch's numbers put in: only variables are left."""

    terms: dict[Symbol, int]
    constant: int

    def at(self, point: Mapping[Symbol, int]) -> int:
        return self.constant + sum(c * point[v] for v, c in self.terms.items())

    def hull(self, box: Intervals) -> tuple[int, int]:
        lo = hi = self.constant
        for v, c in self.terms.items():
            a, b = box[v]
            lo += c * (a if c > 0 else b)
            hi += c * (b if c > 0 else a)
        return lo, hi


@dataclass(frozen=True, eq=False)
class LaunchForm:
    """The facts shared by all launches of one form. Names are those of the function's parameters."""

    dims: tuple[int, ...]
    scalars: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # in elements
    backend: str = "numpy"
    contiguous: frozenset[str] = frozenset()  # arrays without gaps, row by row
    overlapping: frozenset[str] = frozenset()  # arrays whose own elements share bytes
    groups: Groups = ()
    twins: tuple[tuple[str, str], ...] = ()  # (name, other): the same elements of the same memory
    index32: bool = False  # do all indices and offsets fit 32 bits
    checked: bool = True  # are indices that depend on data tested when it runs, and asserts
    lines: dict[int, tuple[Affine, Line | None]] = field(default_factory=dict, init=False, repr=False)
    hulls: dict[int, tuple[tuple[AffineGuard, ...], Intervals, bool]] = field(
        default_factory=dict, init=False, repr=False
    )
    # both by the identity of what they were worked out from, which they keep alive

    @property
    def shared(self) -> frozenset[str]:
        """The arrays of which two elements, or two arrays, may be one place in memory."""
        return self.overlapping.union(*self.groups)

    def beside(self, function: Function) -> LaunchForm:
        """The form of a function that a pass made: each companion parameter aliases as its owner does.

        Those that mirror it are laid out like it; what mirrors a number is an array of one element.
        """
        companions = {p.name: p.belongs_to for p in function.arrays if p.companion is not None}
        like = {p.name: p.belongs_to for p in function.arrays if p.role is not None and p.role.mirrors}

        def widened(names: frozenset[str], by: dict[str, str]) -> frozenset[str]:
            return names.union(m for m, n in by.items() if n in names)

        return replace(
            self,
            shapes={**self.shapes, **{m: self.shapes.get(n, (1,)) for m, n in like.items()}},
            contiguous=widened(self.contiguous, like),
            overlapping=widened(self.overlapping, companions),
            groups=tuple(widened(g, companions) for g in self.groups),
        )

    def number(self, symbol: Symbol) -> int:
        """The value of a symbol that is no variable. Raises Unknown."""
        kind = symbol[0]
        try:
            if kind == "dim":
                return self.dims[symbol[1]] if symbol[1] < len(self.dims) else 1
            if kind == "param":
                return int(self.scalars[symbol[1]])
            if kind == "shape":
                return int(self.shapes[symbol[1]][symbol[2]])
            return HOST_FUNCTIONS[symbol[1]](*[self.constant(f) for f in symbol[2:]])
        except (KeyError, IndexError, ZeroDivisionError):
            raise Unknown from None

    def constant(self, form: Affine) -> int:
        """The value of a form without variables. Raises Unknown."""
        return form.constant + sum(c * self.number(s) for s, c in form.terms)

    def line(self, form: Affine) -> Line | None:
        """The form in variables only; None where a number is missing."""
        kept = self.lines.get(id(form))
        if kept is None:
            kept = self.lines[id(form)] = form, self._line(form)
        return kept[1]

    def _line(self, form: Affine) -> Line | None:
        terms: dict[Symbol, int] = {}
        constant = form.constant
        try:
            for symbol, c in form.terms:
                while symbol[0] == "scaled":
                    c *= self.constant(symbol[2])
                    symbol = symbol[1]
                if symbol[0] == "tid" or symbol[0] == "loop":
                    terms[symbol] = terms.get(symbol, 0) + c
                else:
                    constant += c * self.number(symbol)
        except Unknown:
            return None
        return Line({v: c for v, c in terms.items() if c}, constant)


@dataclass(frozen=True)
class _Work:
    """Statements outside loops, and the loops."""

    own: float
    loops: tuple[tuple[ir.Stmt, _Work], ...]

    def count(self, launch: LaunchForm, unknown: float) -> float:
        return self.own + sum(_turns(s, launch, unknown) * inner.count(launch, unknown) for s, inner in self.loops)


def work(function: ir.Function, launch: LaunchForm, unknown: float = TURNS) -> float:
    """The cost of one thread: that of its rows, branches counted in full and loops by their turns.

    `unknown`: the turns of loops that nobody knows anything of.
    """
    return _whole(function).count(launch, unknown)


@once_for_each
def _whole(function: ir.Function) -> _Work:
    return _region(function.body)


def _region(region: ir.Region) -> _Work:
    own, loops = 0.0, []
    for s in region.body:
        for r in s.regions:
            inner = _region(r)
            if s.row in (control.FOR, control.WHILE, control.EACH):
                loops.append((s, inner))
            else:
                own += inner.own
                loops += inner.loops
        own += _weight(s) * max([getattr(v.type, "size", 1) for v in (*s.args, *s.outs)], default=1)
    return _Work(own, tuple(loops))


def _weight(s: ir.Stmt) -> float:
    counting = s.outs and not isinstance(s.outs[0].type, Array) and not is_float(s.outs[0].type)
    return 0.25 if counting and s.row.cost == 1 and s.row.effect is Effect.PURE else s.row.cost


def _turns(stmt: ir.Stmt, launch: LaunchForm, unknown: float) -> float:
    if stmt.row is control.EACH:
        return math.prod(stmt.attr.shape)
    if stmt.attr is not None and stmt.attr.trips is not None:
        return stmt.attr.trips
    if stmt.row is control.WHILE:
        return unknown
    start, stop, step = (_number(v, launch) for v in stmt.args[:3])
    if start is None or stop is None or not step:
        return unknown
    return max(0, -((start - stop) // step))


def _number(value: ir.Value, launch: LaunchForm) -> int | None:
    """The value of an integer, if the numbers of the launch determine it."""
    s = value.stmt
    if s is None:
        found = launch.scalars.get(value.name)
    elif s.row is control.CONST:
        found = s.attr
    elif s.row is memory.SHAPE:
        found = launch.shapes.get(ir.root(s.args[0]).name, (None,) * 4)[s.attr]
    elif s.row in (memory.TRIPS, scalar.ADD, scalar.SUB):
        numbers = [n for a in s.args if (n := _number(a, launch)) is not None]
        found = int(s.row.compute(*map(np.int64, numbers))) if len(numbers) == len(s.args) else None
    else:
        found = None
    return found if isinstance(found, int) else None
