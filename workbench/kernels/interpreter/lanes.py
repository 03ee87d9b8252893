"""Threads together: every statement runs once for a block of threads, on NumPy vectors with one number per thread.

A lane is one thread of the block, and the lanes that a statement runs for are those that came there: a branch works on
the values of its own lanes alone. What comes out has the very bits that `run` gives, thread by thread: a value is made
by the same rows, and a block in which one thread could see what another did is taken back and run by `run`.

A value of one scalar is a vector, or a NumPy scalar where all lanes have the same; a composite is a tuple of those, one
per component.
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
from ..row import on_components
from ..types import Array, Composite, Scalar, Stack, Type
from . import lane_memory
from .arithmetic import linear
from .closures import Closures, Step, converter
from .control import call, const, dim
from .lane_memory import LANES, LanesDiverge, LaneValue, Undo
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


class LaneClosures(Closures):
    """The closures of a function over lanes. The slot LANES holds the numbers of the threads at work."""

    def __init__(self, function: ir.Function, dims: Sequence[int], uses: Mapping[str, str]):
        super().__init__(dims, STEPS, _by_meaning, None, function.name)
        self.function = function
        self.arrays: dict[int, Any] = {}
        self.count = math.prod(dims)
        stacks = any(s.row is rows.STACK for s in ir.walk(function.body))
        self.block = BLOCK_OF_STACKS if stacks else BLOCK
        self.undo = Undo()
        self.uses = uses
        self.bound: list[lane_memory.LaneArray] = []
        self.steps_of_all: list[Step] | None = None

    def run(self, args: Sequence[Any]) -> int:
        """Run block after block; returns how many threads ran, fewer than all if a block conflicted and was undone."""
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
        used = {self.slot_of[id(v)] for v in ir.used(region) if id(v) in self.slot_of}
        stacks = {self.slot_of[id(v)] for v in ir.used(region) if isinstance(v.type, Stack) and id(v) in self.slot_of}
        return steps, [LANES, *sorted(used & known - stacks)]


def _uniform(type: Type, value: LaneValue) -> Any:
    """A value that all lanes share, as lanes hold it."""
    made = converter(type)(value)
    return tuple(made.ravel()) if isinstance(type, Composite) else made


# --- vectors


def is_vector(value: Any) -> bool:
    """True if lanes may hold different values in it."""
    return value.__class__ is np.ndarray or (value.__class__ is tuple and any(v.__class__ is np.ndarray for v in value))


def taken(value: Any, chosen: np.ndarray) -> Any:
    """The value of these lanes: positions among those that have it."""
    if value.__class__ is np.ndarray:
        return value[chosen]
    return tuple([taken(v, chosen) for v in value]) if value.__class__ is tuple else value


def _empty(type: Type, count: int) -> Any:
    if isinstance(type, Composite):
        return tuple([np.empty(count, type.numpy) for _ in range(type.size)])
    return np.empty(count, ir.numeric(type).numpy)


def _put(target: Any, chosen: np.ndarray, value: Any) -> None:
    if target.__class__ is tuple:
        for part, given in zip(target, value, strict=True):
            part[chosen] = given
    else:
        target[chosen] = value


class _Chosen:
    """`with`: the slots that a region uses hold the values of these lanes alone."""

    __slots__ = ("s", "slots", "before")

    def __init__(self, s: list, slots: list[int]):
        self.s, self.slots = s, slots
        self.before = [s[k] for k in slots]

    def narrow(self, chosen: np.ndarray) -> None:
        for k, value in zip(self.slots, self.before, strict=True):
            self.s[k] = taken(value, chosen)

    def restore(self) -> None:
        for k, value in zip(self.slots, self.before, strict=True):
            self.s[k] = value


# --- values


def _by_meaning(c: Any, stmt: ir.Stmt) -> Step:
    row = stmt.row
    if row.whole is not None and isinstance(stmt.args[0].type, Composite):
        row = row.whole
    if row.expand is not None:
        return linear(c, stmt, row)
    extra = {"attr": stmt.attr} if row.typed_by_attr else {}
    assert row.meaning is not None, f"{row.name} has no meaning"
    alone, together = partial(row.meaning, **extra), row.vectorised and partial(row.vectorised, **extra)
    args, types = c.at(stmt.args), [a.type for a in stmt.args]
    if len(stmt.outs) == 1 and (row.elementwise or not any(isinstance(t, Composite) for t in types)):
        (out,) = stmt.outs
        compute = _each_lane(alone, ir.numeric(out).scalar.numpy.type) if together is None else together
        if isinstance(out.type, Composite):
            return _componentwise(_chosen(alone, compute, out.type, row.exact), args, c.new(out), out.type.size)
        if isinstance(out.type, Scalar):
            return _scalar(_chosen(alone, compute, out.type, row.exact), args, c.new(out))
    return _one_by_one(partial(on_components, alone), args, types, [c.new(o) for o in stmt.outs], stmt.outs)


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


def _scalar(compute: Callable, args: list[int], out: int) -> Step:
    if len(args) == 2:
        a, b = args

        def binary(s: list) -> None:
            s[out] = compute(s[a], s[b])

        return binary

    def step(s: list) -> None:
        s[out] = compute(*[s[k] for k in args])

    return step


def _componentwise(compute: Callable, args: list[int], out: int, size: int) -> Step:
    def step(s: list) -> None:
        parts = [v if v.__class__ is tuple else (v,) * size for v in [s[k] for k in args]]
        s[out] = tuple([compute(*given) for given in zip(*parts, strict=True)])

    return step


def _one_by_one(
    compute: Callable, args: list[int], types: list[Type], outs: list[int], made: Sequence[ir.Value]
) -> Step:
    """A step of a row whose meaning takes and returns whole composites: called lane by lane."""
    into = [converter(t) for t in types]
    out_types = [o.type for o in made]

    def results(lane: list) -> list[Any]:
        found = compute(*[convert(v) for convert, v in zip(into, lane, strict=True)])
        return [
            _uniform(t, f) for t, f in zip(out_types, [found] if len(outs) == 1 else found if outs else [], strict=True)
        ]

    def step(s: list) -> None:
        given = [s[k] for k in args]
        if not any(map(is_vector, given)):
            for out, value in zip(outs, results(given), strict=True):
                s[out] = value
            return
        count = len(s[LANES])
        columns = [_empty(t, count) for t in out_types]
        for lane in range(count):
            for column, value in zip(columns, results([_one(v, lane) for v in given]), strict=True):
                _put(column, lane, value)  # type: ignore[arg-type]
        for out, column in zip(outs, columns, strict=True):
            s[out] = column

    return step


def _one(value: Any, lane: int) -> Any:
    if value.__class__ is tuple:
        return [_one(v, lane) for v in value]
    return value[lane] if value.__class__ is np.ndarray else value


# --- constants, thread indices, stacks and claims


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

    def push(self, lanes: np.ndarray, value: LaneValue) -> None:
        at = lanes - self.first
        heights = self.heights[at]
        self.heights[at] = heights + 1
        for height, chosen in _equal(heights):
            if height == len(self.layers):
                self.layers.append(_empty(self.type, len(self.heights)))
            own = at if chosen is None else at[chosen]
            _put(self.layers[height], own, value if chosen is None else taken(value, chosen))

    def pop(self, lanes: np.ndarray) -> Any:
        at = lanes - self.first
        heights = self.heights[at] - 1
        self.heights[at] = heights
        found = list(_equal(heights))
        if found[0][1] is None:
            return taken(self.layers[found[0][0]], at)
        made = _empty(self.type, len(at))
        for height, chosen in found:
            _put(made, chosen, taken(self.layers[height], at[chosen]))
        return made


def _equal(numbers: np.ndarray) -> Iterable[tuple[int, Any]]:
    """Pairs (number, positions that hold it); the positions are None if all do."""
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), None
        return
    for number in np.unique(numbers):
        yield int(number), np.flatnonzero(numbers == number)


def _stack(c: LaneClosures, stmt: ir.Stmt) -> Step:
    out, type = c.new(stmt.outs[0]), ir.type_as(stmt.outs[0], Stack).dtype

    def step(s: list) -> None:
        s[out] = _Heap(type, c.undo)

    return step


def _push(c: LaneClosures, stmt: ir.Stmt) -> Step:
    stack, value = c.at(stmt.args)

    def step(s: list) -> None:
        s[stack].push(s[LANES], s[value])

    return step


def _pop(c: LaneClosures, stmt: ir.Stmt) -> Step:
    (stack,), out = c.at(stmt.args), c.new(stmt.outs[0])

    def step(s: list) -> None:
        s[out] = s[stack].pop(s[LANES])

    return step


def _assert(c: LaneClosures, stmt: ir.Stmt) -> Step:
    (holds,) = c.at(stmt.args)

    def step(s: list) -> None:
        if np.all(s[holds]):
            return
        if isinstance(stmt.attr, rows.Convention):
            c.noted.add(stmt)
        else:
            raise LanesDiverge  # whose thread it is, and what ran before it, is found one by one

    return step


# --- control flow


def _if(c: LaneClosures, stmt: ir.Stmt) -> Step:
    (condition,) = c.at(stmt.args)
    branches = []
    for region in stmt.regions:
        steps, slots = c.inner(region)
        branches.append((steps, slots, c.at(region.results)))
    outs, types = [c.new(o) for o in stmt.outs], [o.type for o in stmt.outs]

    def step(s: list) -> None:
        holds = s[condition]
        if holds.__class__ is np.ndarray and not (holds.all() or not holds.any()):
            merged = [_empty(t, len(holds)) for t in types]
            for (steps, slots, results), where in zip(branches, (holds, ~holds), strict=True):
                chosen, around = np.flatnonzero(where), _Chosen(s, slots)
                around.narrow(chosen)
                for inner in steps:
                    inner(s)
                for target, result in zip(merged, results, strict=True):
                    _put(target, chosen, s[result])
                around.restore()
        else:
            steps, _, results = branches[0 if np.all(holds) else 1]
            for inner in steps:
                inner(s)
            merged = [s[r] for r in results]
        for out, value in zip(outs, merged, strict=True):
            s[out] = value

    return step


class _LaneTurns:
    """A running loop: the active lanes, and the final values of lanes that have left."""

    def __init__(self, s: list, slots: list[int], carried: list, types: list[Type]):
        self.around, self.carried, self.types = _Chosen(s, slots), carried, types
        self.left: list[Any] | None = None  # once some lanes left before others
        self.count = len(s[LANES])
        self.at = np.arange(self.count)  # the positions of those that turn
        self.over = False

    def stay(self, go: Any) -> None:
        """Deactivate the lanes where `go` is false; `over` is True once none is left."""
        if np.all(go):
            return
        if not np.any(go):
            self.over = True
            return
        self.leave(~go)
        kept = np.flatnonzero(go)
        self.carried = [taken(v, kept) for v in self.carried]
        self.at = self.at[kept]
        self.around.narrow(self.at)

    def leave(self, which: Any) -> None:
        if self.left is None:
            self.left = [_empty(t, self.count) for t in self.types]
        for target, value in zip(self.left, self.carried, strict=True):
            _put(target, self.at[which], taken(value, which))

    def end(self, s: list, outs: list[int]) -> None:
        if self.left is not None:
            self.leave(slice(None))
        self.around.restore()
        for out, value in zip(outs, self.carried if self.left is None else self.left, strict=True):
            s[out] = value


def _turn(c: LaneClosures, region: ir.Region) -> tuple[Callable[[list, list], list], list[int]]:
    """One turn: what goes in -> what comes out."""
    params = [c.new(p) for p in region.params]
    steps, slots = c.inner(region)
    results = c.at(region.results)

    def turn(s: list, given: list) -> list:
        for param, value in zip(params, given, strict=True):
            s[param] = value
        for inner in steps:
            inner(s)
        return [s[r] for r in results]

    own = set(params)
    return turn, [k for k in slots if k not in own]


def _for(c: LaneClosures, stmt: ir.Stmt) -> Step:
    start, stop, stride, *init = c.at(stmt.args)
    kind = ir.numeric(stmt.args[0]).numpy.type
    (turn, slots), breaks = _turn(c, stmt.regions[0]), stmt.attr.breaks
    outs, types = [c.new(o) for o in stmt.outs], [o.type for o in stmt.outs]

    def step(s: list) -> None:
        bounds = s[start], s[stop], s[stride]
        turns = _LaneTurns(s, slots, [s[i] for i in init], types)
        if not any(map(is_vector, bounds)):
            first, last, by = map(int, bounds)
            for i in range(first, last, by) if by else ():
                found = turn(s, [kind(i), *turns.carried])
                turns.carried = found[1:] if breaks else found
                if breaks:
                    turns.stay(found[0])
                    if turns.over:
                        break
        else:
            every = [np.broadcast_to(np.asarray(b).astype(np.int64), turns.count) for b in bounds]
            first, by, trips = every[0], every[2], _trips(*every)
            for n in itertools.count():
                turns.stay(n < trips[turns.at])
                if turns.over:
                    break
                i = (first[turns.at] + n * by[turns.at]).astype(kind)
                found = turn(s, [i, *turns.carried])
                turns.carried = found[1:] if breaks else found
                if breaks:
                    turns.stay(found[0])
                    if turns.over:
                        break
        turns.end(s, outs)

    return step


def _trips(first: np.ndarray, last: np.ndarray, by: np.ndarray) -> np.ndarray:
    """The number of turns of each lane, as in Python's `range`; 0 for a step of 0."""
    ahead = np.where(by > 0, last - first, first - last)
    return np.where(by == 0, 0, np.maximum(0, -(-ahead // np.maximum(1, np.abs(by)))))


def _while(c: LaneClosures, stmt: ir.Stmt) -> Step:
    init = c.at(stmt.args)
    test, asked = _turn(c, stmt.regions[0])
    (turn, slots), breaks = _turn(c, stmt.regions[1]), stmt.attr.breaks
    outs, types = [c.new(o) for o in stmt.outs], [o.type for o in stmt.outs]
    slots = sorted({*slots, *asked})

    def step(s: list) -> None:
        turns = _LaneTurns(s, slots, [s[i] for i in init], types)
        while True:
            turns.stay(test(s, turns.carried)[0])
            if turns.over:
                break
            found = turn(s, turns.carried)
            turns.carried = found[1:] if breaks else found
            if breaks:
                turns.stay(found[0])
                if turns.over:
                    break
        turns.end(s, outs)

    return step


STEPS: Any = {
    rows.CONST: const,
    rows.TID: _tid,
    rows.DIM: dim,
    rows.IF: _if,
    rows.FOR: _for,
    rows.WHILE: _while,
    rows.CALL: call,
    rows.STACK: _stack,
    rows.PUSH: _push,
    rows.POP: _pop,
    rows.ASSERT: _assert,
    **lane_memory.STEPS,
}
