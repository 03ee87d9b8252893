"""Cost model: a rough count of additions per thread, by which launches choose their workers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .. import ir
from ..lru import once_for_each
from ..ops import control, memory, scalar
from ..row import Effect
from ..types import Array, is_float
from .launch_form import LaunchForm

TURNS = 16  # of an unknown loop, as a rule


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
