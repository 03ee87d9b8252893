"""Statements over tiles, as closures of the interpreter: `each` visits every index; indices are checked."""

from __future__ import annotations

import numpy as np

from ...errors import outside
from .. import ir
from ..ops import control, tiles
from ..types import Tile
from .arithmetic import by_meaning
from .closures import THREAD, Closures, Step, converter


def _each(c: Closures, stmt: ir.Stmt) -> Step:
    (region,), shape = stmt.regions, stmt.attr.shape
    backward = stmt.attr.order < 0
    given, params = c.at(stmt.args), [c.new(p) for p in region.params]
    axes, elements = params[: len(shape)], params[len(shape) :]
    body, results = c.region(region), c.at(region.results)
    outs = [(c.new(o), o.type, converter(o.type)) for o in stmt.outs]

    def step(s: list) -> None:
        sources = [s[a] for a in given]
        made = [np.empty(shape, ir.numeric(type).numpy) for _, type, _ in outs]
        for index in reversed(list(np.ndindex(shape))) if backward else np.ndindex(shape):
            for axis, i in zip(axes, index, strict=True):
                s[axis] = np.int32(i)
            for element, tile in zip(elements, sources, strict=True):
                s[element] = tile.dtype.type(tile[index])
            for inner in body:
                inner(s)
            for tile, result in zip(made, results, strict=True):
                tile[index] = s[result]
        for (out, _, convert), tile in zip(outs, made, strict=True):
            s[out] = convert(tile)

    return step


def _indexed(c: Closures, stmt: ir.Stmt) -> Step:
    """A row that takes indices of its first operand, each of which must name an element."""
    compute = by_meaning(c, stmt)
    type = stmt.args[0].type
    assert isinstance(type, Tile)
    indices = c.at(stmt.args[1 : 1 + len(type.dims)])
    part = (
        stmt.attr if stmt.row is tiles.VIEW else ir.type_as(stmt.args[-1], Tile) if stmt.row is tiles.ASSIGN else None
    )
    room = [n - m for n, m in zip(type.dims, part.dims, strict=True)] if part is not None else None

    def step(s: list) -> None:
        index = tuple(int(s[i]) for i in indices)
        bad = (
            any(not 0 <= i <= r for i, r in zip(index, room, strict=True))
            if room is not None
            else any(not -n <= i < n for i, n in zip(index, type.dims, strict=True))
        )
        if bad:
            raise outside(c.kernel, stmt.args[0].name or "a tile", s[THREAD], index, type.dims, stmt.where)
        compute(s)

    return step


STEPS = {control.EACH: _each, **dict.fromkeys((tiles.GET, tiles.SET, tiles.ADD_AT, tiles.VIEW, tiles.ASSIGN), _indexed)}
