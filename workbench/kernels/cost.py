"""How much one thread of a function has to do: a rough count of statements, by which launches choose their workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import ir
from .emit import MATH1, MATH2
from .ops import control, memory

TURNS = 16  # of a loop that nobody knows anything of
_FREE = {control.CONST, control.TID, control.DIM, memory.SHAPE, memory.COMPONENTS}
_DEAR = {*MATH1, *MATH2, "div", "length", "normalize", "inverse"}


def work(function: ir.Function, scalars: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> float:
    """Statements that a thread runs, branches counted in full and loops by their turns; dear ones count more."""
    return _region(function.body, scalars, shapes)


def _region(region: ir.Region, scalars: Mapping, shapes: Mapping) -> float:
    total = 0.0
    for s in region.body:
        inner = sum(_region(r, scalars, shapes) for r in s.regions)
        total += _turns(s, scalars, shapes) * inner
        if s.row not in _FREE:
            total += (8.0 if s.row.name in _DEAR else 1.0) * max((_size(v) for v in (*s.args, *s.outs)), default=1)
    return total


def _size(value: ir.Value) -> int:
    return getattr(value.type, "size", 1)


def _turns(stmt: ir.Stmt, scalars: Mapping, shapes: Mapping) -> float:
    if stmt.row not in (control.FOR, control.WHILE):
        return 1
    if stmt.attr is not None and stmt.attr.trips is not None:
        return stmt.attr.trips
    if stmt.row is control.WHILE:
        return TURNS
    start, stop, step = (_number(v, scalars, shapes) for v in stmt.args[:3])
    if start is None or stop is None or not step:
        return TURNS
    return max(0, -((start - stop) // step))


def _number(value: ir.Value, scalars: Mapping, shapes: Mapping) -> int | None:
    """A whole number that the launch knows."""
    s = value.stmt
    if s is None:
        found = scalars.get(value.name)
    elif s.row is control.CONST:
        found = s.attr
    elif s.row is memory.SHAPE:
        found = shapes.get(ir.root(s.args[0]).name, (None,) * 4)[s.attr]
    else:
        found = None
    return found if isinstance(found, int) else None
