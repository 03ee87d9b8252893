"""Memory accesses of threads that run together, as is proven beforehand that they may (`analysis.thread_conflicts`).

Sums into arrays that nobody reads are kept until the block is over, and added thread by thread. Where an index leaves
its array `LanesDiverge` is raised: the block is undone, and run thread by thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from typing import Any, TypeAlias

import numpy as np

from .. import ir
from ..ops import memory as rows, vectors
from ..row import Row
from ..types import Array, Composite
from .access import array_shape, combined
from .closures import THREAD, Closures, Step, memory as memory_of

# One number for each thread, or one for all of them; of a composite those of each component.
LaneValue: TypeAlias = np.ndarray | np.generic | tuple[np.ndarray | np.generic, ...]
LANES = THREAD  # the slot of the numbers of the threads at work takes the place of that of one thread


class LanesDiverge(Exception):
    """The threads of this block cannot run together."""


# How the threads of a launch use an array that they change: see `analysis.thread_conflicts`.
OWN, LATER, IN_TURN = "own", "later", "in turn"


class LaneArray:
    """An array argument as lanes see it: bound anew for every launch."""

    def __init__(self, param: ir.Value, data: np.ndarray | None, use: str | None):
        self.param, self.use = param, use
        type = ir.type_as(param, Array)
        self.name, self.ndim = param.name, type.ndim
        self.inner: tuple[int, ...] = getattr(type.dtype, "shape", ())
        self.views: list[LaneArray] = []  # of its components
        self.bind(data)

    def bind(self, data: np.ndarray | None) -> None:
        """Work on this memory from now on."""
        self.data = memory_of(self.param, data).data
        self.shape = self.data.shape[: self.ndim]
        for view in self.views:
            self.seen_by(view)

    def components(self) -> LaneArray:
        """The same memory as an array of scalars."""
        view = copy(self)
        view.views, view.ndim, view.inner = [], self.ndim + len(self.inner), ()
        self.views.append(view)
        self.seen_by(view)
        return view

    def seen_by(self, view: LaneArray) -> None:
        view.data, view.shape = self.data, self.data.shape


class Undo:
    """Undo log of a block of threads, and its deferred additions."""

    def __init__(self) -> None:
        self.begin(0, 0)

    def begin(self, first: int, count: int) -> None:
        """Begin a block of `count` threads, from thread number `first`."""
        self.first, self.count = first, count
        self.stored: list[tuple[np.ndarray, tuple, np.ndarray]] = []  # the old contents of cells
        self.sums: dict[int, tuple[LaneArray, Row, list[tuple[np.ndarray, tuple, Any]]]] = {}

    def back(self) -> None:
        """Roll the block back."""
        for data, index, old in reversed(self.stored):
            data[index] = old

    def later(self, memory: LaneArray, row: Row, lanes: np.ndarray, index: tuple, value: LaneValue) -> None:
        """Defer an addition until the block is over (`commit`)."""
        self.sums.setdefault(id(memory), (memory, row, []))[2].append((lanes, index, value))

    def commit(self) -> None:
        """End the block: make the deferred additions, thread by thread, each in its order."""
        for memory, row, entries in self.sums.values():
            lanes = np.concatenate([lanes for lanes, _, _ in entries])
            index = [np.concatenate(axis) for axis in zip(*[i for _, i, _ in entries], strict=True)]
            value = np.concatenate([v for _, _, v in entries])
            if len(entries) > 1:
                order = np.argsort(lanes, kind="stable")
                index, value = [i[order] for i in index], value[order]
            _add(memory.data, tuple(index), value, row)


def _add(data: np.ndarray, index: tuple, value: np.ndarray, row: Row) -> None:
    """Update cells in this order."""
    if row.adds:
        if data.flags.c_contiguous:
            inner = math.prod(value.shape[1:])
            flat = np.asarray(np.ravel_multi_index(index, data.shape[: len(index)]))
            index = ((flat[:, None] * inner + np.arange(inner)).ravel(),)
            data, value = data.reshape(-1), value.ravel()
        (np.subtract if row is rows.ATOMIC_SUB else np.add).at(data, index, value)
        return
    combine = combined(row)
    for k in range(len(value)):
        at = tuple([i[k] for i in index])
        data[at] = combine(data[at].copy(), value[k])


# --- statements


class LaneBlock(Closures):
    """Base of `lanes.LaneClosures`: closures over arrays of lanes, with what undoes them."""

    arrays: dict[int, Any]  # of `LaneArray`
    undo: Undo


def _components(c: LaneBlock, stmt: ir.Stmt) -> None:
    c.arrays[id(stmt.outs[0])] = c.arrays[id(stmt.args[0])].components()


def _inside(i: Any, extent: int) -> bool:
    if i.__class__ is not np.ndarray:
        return 0 <= i < extent
    return i.min() >= 0 and i.max() < extent


def _address(c: LaneBlock, stmt: ir.Stmt) -> tuple[LaneArray, Callable[[list], tuple], int]:
    """The array, a closure that gives the checked index, and how many arguments the address takes."""
    memory = c.arrays[id(stmt.args[0])]
    indices = c.at(stmt.args[1 : 1 + memory.ndim])

    def address(s: list) -> tuple:
        index = tuple([s[i] for i in indices])
        for i, n in zip(index, memory.shape, strict=True):
            if not _inside(i, n):
                raise LanesDiverge
        return index

    return memory, address, 1 + memory.ndim


def _spread(index: tuple, count: int) -> tuple:
    """An index for every lane."""
    return tuple([i if i.__class__ is np.ndarray else np.full(count, i) for i in index])


def _cells(value: Any, count: int, inner: tuple[int, ...]) -> Any:
    """A value as cells of memory hold it."""
    if value.__class__ is tuple:
        return np.stack(_spread(value, count), -1).reshape(count, *inner)
    return value if value.__class__ is np.ndarray else np.full(count, value)


def _opened(cells: Any, inner: tuple[int, ...]) -> Any:
    """Cells of memory as lanes hold their value."""
    if not inner:
        return cells
    return tuple(np.ascontiguousarray(cells.reshape(len(cells), -1).T))


def _load(c: LaneBlock, stmt: ir.Stmt) -> Step:
    memory, address, _ = _address(c, stmt)
    out, inner = c.new(stmt.outs[0]), memory.inner

    def step(s: list) -> None:
        index = address(s)
        found = memory.data[index]
        if any(i.__class__ is np.ndarray for i in index):
            s[out] = _opened(found, inner)
        else:
            s[out] = tuple(found.copy().ravel()) if inner else found

    return step


def _changing(c: LaneBlock, stmt: ir.Stmt) -> tuple[LaneArray, Callable[[list], tuple], list[int]]:
    """The array; a closure that logs the cells that change, and gives how many, index and contents; the operands."""
    memory, address, used = _address(c, stmt)

    def cells(s: list) -> tuple[int, tuple, np.ndarray]:
        count = len(s[LANES])
        index = _spread(address(s), count)
        old = memory.data[index]
        c.undo.stored.append((memory.data, index, old))
        return count, index, old

    return memory, cells, c.at(stmt.args[used:])


def _store(c: LaneBlock, stmt: ir.Stmt) -> Step:
    memory, cells, (value,) = _changing(c, stmt)

    def step(s: list) -> None:
        count, index, _ = cells(s)
        memory.data[index] = _cells(s[value], count, memory.inner)

    return step


def _update(c: LaneBlock, stmt: ir.Stmt) -> Step:
    """Read, combine, write; the old value is the result where the row has one."""
    memory, cells, operands = _changing(c, stmt)
    out = c.new(stmt.outs[0]) if stmt.outs else c.scratch()
    combine, address = combined(stmt.row), _address(c, stmt)[1]

    def later(s: list) -> None:
        lanes = s[LANES]
        index = _spread(address(s), len(lanes))
        c.undo.later(memory, stmt.row, lanes, index, _cells(s[operands[0]], len(lanes), memory.inner))

    def in_turn(s: list) -> None:
        count, index, before = cells(s)
        old = np.empty_like(before)  # several lanes may change one cell
        given = [_cells(s[k], count, memory.inner) for k in operands]
        for k in range(count):
            at = tuple([i[k] for i in index])
            old[k] = memory.data[at]
            memory.data[at] = combine(old[k], *[g[k] for g in given])
        s[out] = _opened(old, memory.inner)

    def apart(s: list) -> None:
        count, index, old = cells(s)
        memory.data[index] = combine(old, *[_cells(s[k], count, memory.inner) for k in operands])
        s[out] = _opened(old, memory.inner)

    if memory.use == LATER:
        return later
    return apart if stmt.row.adds and memory.use == OWN else in_turn


# --- components at run-time indices


def _component_at(c: LaneBlock, stmt: ir.Stmt) -> Step:
    """extract_at(v, *i) and insert_at(v, *i, new): the index is known only now, and may count from the end."""
    v, *rest = c.at(stmt.args)
    extracts = stmt.row is vectors.EXTRACT_AT
    indices, new = (rest, v) if extracts else (rest[:-1], rest[-1])
    shape = ir.type_as(stmt.args[0], Composite).shape
    out = c.new(stmt.outs[0])
    below = math.prod(shape[len(indices) :])  # components behind one index: those of a row

    def step(s: list) -> None:
        count = len(s[LANES])
        place = np.zeros(count, np.int64)
        for i, n in zip((s[k] for k in indices), shape, strict=False):
            i = np.asarray(i).astype(np.int64)
            if not (i.min() >= -n and i.max() < n):
                raise LanesDiverge
            place = place * n + np.where(i < 0, i + n, i)
        parts = list(_spread(s[v], count))
        if extracts:
            every, lane = np.stack(parts), np.arange(count)
            found = [every[place * below + k, lane] for k in range(below)]
            s[out] = tuple(found) if isinstance(stmt.outs[0].type, Composite) else found[0]
        else:
            given = s[new] if s[new].__class__ is tuple else (s[new],) * below
            for k in range(len(parts)):
                parts[k] = np.where(place == k // below, given[k % below], parts[k])
            s[out] = tuple(parts)

    return step


STEPS: Any = {
    rows.LOAD: _load,
    rows.STORE: _store,
    rows.COMPONENTS: _components,
    rows.SHAPE: array_shape,
    rows.ACCUMULATE: _update,
    **dict.fromkeys(rows.ATOMICS, _update),
    vectors.EXTRACT_AT: _component_at,
    vectors.INSERT_AT: _component_at,
}
