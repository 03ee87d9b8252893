"""Statements that touch memory or tiles, run with bounds checks on every index; the rollback of a thread's log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import BoundsError, outside
from .. import ir
from ..ops import control, memory as rows, tiles, vectors
from ..row import Row
from ..types import Array, Tile
from .arithmetic import by_meaning
from .closures import LOG, THREAD, BoundArray, Closures, Step, converter


def array_shape(c: Closures, stmt: ir.Stmt) -> None:
    c.fixed(stmt, c.arrays[id(stmt.args[0])].shape[stmt.attr])


def _components(c: Closures, stmt: ir.Stmt) -> None:
    memory = c.arrays[id(stmt.args[0])]
    c.arrays[id(stmt.outs[0])] = BoundArray(memory.data, memory.name, memory.data.ndim)


def _as_written(index: ir.Value) -> ir.Value:
    """An index before it was counted from the end: what the user knows it by."""
    stmt = index.stmt
    return stmt.args[0] if stmt is not None and stmt.row is rows.WRAP else index


def _address(c: Closures, stmt: ir.Stmt) -> tuple[np.ndarray, Callable[[list], Any], int]:
    """The array's data, a closure that gives the checked index, and how many arguments the address takes."""
    memory = c.arrays[id(stmt.args[0])]
    indices, shape = c.at(stmt.args[1 : 1 + memory.ndim]), memory.shape
    written = c.at([_as_written(i) for i in stmt.args[1 : 1 + memory.ndim]])

    def fail(s: list) -> BoundsError:
        return outside(c.kernel, memory.name, s[THREAD], tuple(int(s[i]) for i in written), shape, stmt.where)

    if memory.ndim == 1:
        (at,), (extent,) = indices, shape

        def one(s: list) -> int:
            i = int(s[at])
            if 0 <= i < extent:
                return i
            raise fail(s)

        return memory.data, one, 2

    def many(s: list) -> tuple[int, ...]:
        index = tuple([int(s[i]) for i in indices])
        for i, n in zip(index, shape, strict=True):
            if not 0 <= i < n:
                raise fail(s)
        return index

    return memory.data, many, 1 + memory.ndim


def _element(stmt: ir.Stmt) -> Callable[[Any], Any]:
    """Reading a cell: a scalar is a copy by itself, a composite must be copied out of the array."""
    return converter(ir.type_as(stmt.args[0], Array).dtype)


def _load(c: Closures, stmt: ir.Stmt) -> Step:
    data, address, _ = _address(c, stmt)
    out, copy = c.new(stmt.outs[0]), _element(stmt)

    def step(s: list) -> None:
        s[out] = copy(data[address(s)])

    return step


def _store(c: Closures, stmt: ir.Stmt) -> Step:
    data, address, used = _address(c, stmt)
    (value,) = c.at(stmt.args[used:])

    def step(s: list) -> None:
        data[address(s)] = s[value]

    return step


def combined(row: Row) -> Callable[..., Any]:
    """The function that makes the new contents of a cell, of the old ones and the operands."""
    combine = row.update
    assert combine is not None
    return combine.meaning or combine if isinstance(combine, Row) else combine


def _update(c: Closures, stmt: ir.Stmt) -> Step:
    """Read, combine, write; the old value is the result where the row has one."""
    data, address, used = _address(c, stmt)
    operands, copy = c.at(stmt.args[used:]), _element(stmt)
    out = c.new(stmt.outs[0]) if stmt.outs else c.scratch()
    combine = combined(stmt.row)

    def step(s: list) -> None:
        i = address(s)
        s[out] = old = copy(data[i])
        data[i] = combine(old, *[s[v] for v in operands])

    return step


# --- the private copy of a replay


def _log_store(c: Closures, stmt: ir.Stmt) -> Step:
    data, address, used = _address(c, stmt)
    (value,), copy = c.at(stmt.args[used:]), _element(stmt)

    def step(s: list) -> None:
        i = address(s)
        s[LOG].append((data, i, copy(data[i])))
        data[i] = s[value]

    return step


def _mark(c: Closures, stmt: ir.Stmt) -> Step:
    out = c.new(stmt.outs[0])

    def step(s: list) -> None:
        s[out] = np.int64(len(s[LOG]))

    return step


def _rollback(c: Closures, stmt: ir.Stmt) -> Step:
    (mark,) = c.at(stmt.args)

    def step(s: list) -> None:
        log = s[LOG]
        while len(log) > s[mark]:
            data, i, old = log.pop()
            data[i] = old

    return step


# --- components at run-time indices


def _component_at(c: Closures, stmt: ir.Stmt) -> Step:
    """extract_at(v, *i) and insert_at(v, *i, new): the index is known only now, and may count from the end."""
    v, *rest = c.at(stmt.args)
    extracts = stmt.row is vectors.EXTRACT_AT
    indices, new = (rest, v) if extracts else (rest[:-1], rest[-1])
    shape, name = ir.numeric(stmt.args[0]).shape, stmt.args[0].name or str(stmt.args[0].type)
    out, convert = c.new(stmt.outs[0]), converter(stmt.outs[0].type)

    def step(s: list) -> None:
        index = tuple([int(s[i]) for i in indices])
        for i, n in zip(index, shape, strict=False):
            if not -n <= i < n:
                raise outside(c.kernel, name, s[THREAD], index, shape, stmt.where)
        if extracts:
            s[out] = convert(s[v][index])
        else:
            s[out] = made = convert(s[v])
            made[index] = s[new]

    return step


# --- tiles: `each` visits every index


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
    ends = [(-n, n - 1) for n in type.dims]
    if stmt.row is tiles.VIEW or stmt.row is tiles.ASSIGN:
        part = stmt.attr if stmt.row is tiles.VIEW else ir.type_as(stmt.args[-1], Tile)
        ends = [(0, n - m) for n, m in zip(type.dims, part.dims, strict=True)]

    def step(s: list) -> None:
        index = tuple(int(s[i]) for i in indices)
        if any(not low <= i <= high for i, (low, high) in zip(index, ends, strict=True)):
            raise outside(c.kernel, stmt.args[0].name or "a tile", s[THREAD], index, type.dims, stmt.where)
        compute(s)

    return step


STEPS = {
    rows.LOAD: _load,
    rows.STORE: _store,
    rows.COMPONENTS: _components,
    rows.SHAPE: array_shape,
    rows.ACCUMULATE: _update,
    **dict.fromkeys(rows.ATOMICS, _update),
    rows.LOG_STORE: _log_store,
    rows.MARK: _mark,
    rows.ROLLBACK: _rollback,
    vectors.EXTRACT_AT: _component_at,
    vectors.INSERT_AT: _component_at,
    control.EACH: _each,
    **dict.fromkeys((tiles.GET, tiles.SET, tiles.ADD_AT, tiles.VIEW, tiles.ASSIGN), _indexed),
}
