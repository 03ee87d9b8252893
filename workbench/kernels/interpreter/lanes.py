"""Threads together: every statement runs once for a block of threads, on NumPy vectors with one number per thread.

A lane is one thread of the block, and the lanes that a statement runs for are those that came there: a branch works on
the values of its own lanes alone. What comes out has the very bits that `run` gives, thread by thread: a value is made
by the same rows; programs in which one thread may see what another did, and blocks with an error, are run by `run`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from .. import ir
from ..ops import control as rows
from ..types import Array, Composite, Stack, Type
from . import lane_memory
from .arithmetic import linear
from .closures import Step, converter
from .control import FLOW
from .lane_memory import LANES, LaneBlock, LanesDiverge, LaneValue, Undo
from .lane_values import empty, put, taken
from .run import run

BLOCK = 8192  # lanes: their values stay in the processor's cache
BLOCK_OF_STACKS = 1024  # where loops keep values for the way back
FEW = 8  # threads that are not worth it


class LaneProgram:
    """A function, compiled to run the threads of a grid together; `uses` says how they use the arrays they change.

    None: they run one after the other.
    """

    def __init__(self, function: ir.Function, dims: Sequence[int], uses: Mapping[str, str] | None):
        self.function, self.dims, self.uses = function, dims, uses
        self.lanes: LaneClosures | None = None
        self.apart = uses is None or math.prod(dims) <= FEW

    def run(self, args: Sequence[Any]) -> set[ir.Stmt]:
        """Run the grid on `args` as `run.run` does, with the same results and errors."""
        first, count, noted = 0, math.prod(self.dims), set()
        if not self.apart:
            if self.lanes is None:
                self.lanes = LaneClosures(self.function, self.dims, self.uses or {})
            self.lanes.noted.clear()
            first, noted = self.lanes.run(args), set(self.lanes.noted)
        if first < count:
            threads: Any = itertools.islice(itertools.product(*map(range, self.dims)), first, None)
            noted |= run(self.function, self.dims, args, threads=threads)
            self.apart = True  # an error would have been raised
        return noted


class LaneClosures(LaneBlock):
    """The closures of a function over lanes. The slot LANES holds the numbers of the threads at work."""

    def __init__(self, function: ir.Function, dims: Sequence[int], uses: Mapping[str, str]):
        super().__init__(dims, STEPS, _by_meaning, None, function.name)
        self.function = function
        self.count = math.prod(dims)
        stacks = any(s.row is rows.STACK for s in ir.walk(function.body))
        self.block = BLOCK_OF_STACKS if stacks else BLOCK
        self.undo = Undo()
        self.uses = uses
        self.bound: list[lane_memory.LaneArray] = []
        self.steps_of_all: list[Step] | None = None

    def run(self, args: Sequence[Any]) -> int:
        """Run block after block; returns how many threads ran: not all if a block had an error and was undone."""
        with np.errstate(all="ignore"):
            self._bind(args)
            slots, first = list(self.slots), 0
            while first < self.count:
                slots[LANES] = np.arange(first, min(first + self.block, self.count))
                self.undo.begin(first, len(slots[LANES]))
                try:
                    for step in self.steps_of_all or ():
                        step(slots)
                    self.undo.commit()
                except LanesDiverge:
                    self.undo.back()
                    break
                first += len(slots[LANES])
            self.undo.begin(0, 0)
            return first

    def _bind(self, args: Sequence[Any]) -> None:
        if self.steps_of_all is None:
            for param, arg in zip(self.function.params, args, strict=True):
                if isinstance(param.type, Array):
                    self.arrays[id(param)] = memory = lane_memory.LaneArray(param, arg, self.uses.get(param.name))
                    self.bound.append(memory)
                else:
                    self.new(param)
            self.steps_of_all = self.region(self.function.body)
        memories = iter(self.bound)
        for param, arg in zip(self.function.params, args, strict=True):
            if isinstance(param.type, Array):
                next(memories).bind(arg)
            else:
                self.slots[self.slot_of[id(param)]] = _uniform(param.type, arg)

    def stack(self, type: Stack) -> Any:
        return _Heap(type.dtype, self.undo)

    def failure(self, stmt: ir.Stmt, thread: object) -> Exception:
        """The signal to run the block one by one, which finds whose thread it is, and what ran before it."""
        return LanesDiverge()

    def fixed(self, stmt: ir.Stmt, value: Any) -> None:
        """A result that all lanes share."""
        self.slots[self.new(stmt.outs[0])] = _uniform(stmt.outs[0].type, value)

    def scalars(self, composite: tuple) -> tuple:
        return composite

    def joined(self, type: Type) -> Callable[[list], Any]:
        return tuple if isinstance(type, Composite) else itemgetter(0)

    def inner(self, region: ir.Region) -> tuple[list[Step], list[int]]:
        """The steps of a region, and the slots from around it that they use: of these a branch takes its own lanes."""
        known = set(self.slot_of.values())
        steps = self.region(region)
        used = {self.slot_of.get(id(v)) for v in ir.used(region) if not isinstance(v.type, Stack)}
        return steps, [LANES, *sorted(known & used)]


def _uniform(type: Type, value: LaneValue) -> Any:
    """A value that all lanes share, as lanes hold it."""
    made = converter(type)(value)
    return tuple(made.ravel()) if isinstance(type, Composite) else made


# --- values


def _by_meaning(c: Any, stmt: ir.Stmt) -> Step:
    row = stmt.row.on(stmt.args[0].type) if stmt.args else stmt.row
    if row.expand is not None:
        return linear(c, stmt, row)
    assert row.meaning is not None, f"{row.name} has no meaning"
    alone, (out,) = partial(row.meaning, **row.extra(stmt.attr)), stmt.outs
    together = alone if row.vectorised else _each_lane(alone, ir.numeric(out).scalar.numpy.type)
    chosen = _chosen(alone, together, out.type, row.exact)
    args, made = c.at(stmt.args), c.new(out)
    if isinstance(out.type, Composite):
        return _componentwise(chosen, args, made, out.type.size)

    def step(s: list) -> None:
        s[made] = chosen(*[s[k] for k in args])

    return step


def has_lanes(stmt: ir.Stmt) -> bool:
    """False for a row that takes composites as a whole, in a way of its own: factors of matrices, for one."""
    row = stmt.row
    if row in STEPS or row.whole is not None or row.expand is not None or row.elementwise:
        return True
    return len(stmt.outs) == 1 and not any(isinstance(v.type, Composite) for v in (*stmt.args, *stmt.outs))


def _chosen(alone: Callable, together: Callable, type: Type, exact: bool) -> Callable[..., Any]:
    """A meaning on numbers and vectors; the result has the type's dtype."""
    kind = ir.numeric(type).scalar.numpy.type

    def compute(*args: Any) -> Any:
        vectors = [len(a) for a in args if a.__class__ is np.ndarray]
        if not vectors:
            made = alone(*args)
            return made if made.__class__ is kind else kind(made)
        if not exact and len(vectors) < len(args):  # a loop over a constant may round in another way
            args = tuple([a if a.__class__ is np.ndarray else np.full(vectors[0], a) for a in args])
        made = together(*args)
        return made if made.dtype.type is kind else made.astype(kind)

    return compute


def _each_lane(alone: Callable, kind: type) -> Callable[..., Any]:
    """A function over lanes of a meaning that takes numbers alone: called lane by lane."""

    def compute(*args: Any) -> np.ndarray:
        count = next(len(a) for a in args if a.__class__ is np.ndarray)
        columns = [a if a.__class__ is np.ndarray else itertools.repeat(a, count) for a in args]
        return np.array([alone(*lane) for lane in zip(*columns, strict=True)], kind)

    return compute


def _componentwise(compute: Callable, args: list[int], out: int, size: int) -> Step:
    def step(s: list) -> None:
        parts = [v if v.__class__ is tuple else (v,) * size for v in [s[k] for k in args]]
        s[out] = tuple([compute(*given) for given in zip(*parts, strict=True)])

    return step


# --- thread indices and stacks


def _tid(c: LaneClosures, stmt: ir.Stmt) -> Step | None:
    axis, out = stmt.attr.axis, c.new(stmt.outs[0])
    if axis >= len(c.dims):
        return c.fixed(stmt, 0)
    below, extent = math.prod(c.dims[axis + 1 :]), c.dims[axis]

    def step(s: list) -> None:
        s[out] = (s[LANES] // below % extent).astype(np.int32)

    return step


class _Heap:
    """The stacks of all lanes of a block: one layer per height."""

    def __init__(self, type: Type, undo: Undo):
        self.type, self.first = type, undo.first
        self.heights = np.zeros(undo.count, np.int64)
        self.layers: list[Any] = []

    def push(self, lanes: np.ndarray, value: LaneValue, stmt: ir.Stmt) -> None:
        at = lanes - self.first
        heights = self.heights[at]
        self.heights[at] = heights + 1
        for height, chosen in _equal(heights):
            if height == len(self.layers):
                self.layers.append(empty(self.type, len(self.heights)))
            own = at if chosen is None else at[chosen]
            put(self.layers[height], own, value if chosen is None else taken(value, chosen))

    def pop(self, lanes: np.ndarray, stmt: ir.Stmt) -> Any:
        at = lanes - self.first
        heights = self.heights[at] - 1
        self.heights[at] = heights
        found = list(_equal(heights))
        if found[0][1] is None:
            return taken(self.layers[found[0][0]], at)
        made = empty(self.type, len(at))
        for height, chosen in found:
            put(made, chosen, taken(self.layers[height], at[chosen]))
        return made


def _equal(numbers: np.ndarray) -> Iterable[tuple[int, Any]]:
    """Pairs (number, positions that hold it); the positions are None if all do."""
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), None
        return
    for number in np.unique(numbers):
        yield int(number), np.flatnonzero(numbers == number)


STEPS: Any = {**FLOW, rows.TID: _tid, **lane_memory.STEPS}
