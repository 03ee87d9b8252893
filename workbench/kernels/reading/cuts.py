"""Rows and slices: where in an array the elements of its part lie.

A slice is no value of the program. `s = a[1:n]` notes where s lies in a, and `s[k]` is read as `a[1 + k]`: memory has
one name in the program, so that all who look at programs know what a slice shares with its array. Slices mean what they
mean in Python, for steps and ends of any sign; a step of 0 and an index outside of the slice are claims that fail.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from .. import ir, ops
from ..ops import memory, scalar
from ..ops.control import Claim
from ..types import Scalar, int32, int64, uint32
from .base import Meaning, ReaderBase
from .chosen_arrays import conformed, each_option
from .lower_bounds import static_int
from .scope import ArrayView, Choice, Entry, Fields, Int, Local, Part, SlicedAxis, Turn, free, mapped, placed_at, places

# ---- axes


def turn_of(reader: ReaderBase, base: Part, axis: int) -> Turn | None:
    """The `Turn` (step, length) of a free axis; None if no slice applies to it."""
    if isinstance(base, Local):
        return base.cut.turns[axis]
    if isinstance(base, Choice):
        cut = any(turn_of(reader, option, axis) is not None for option in base.options)
        return Turn(1, extent(reader, base, axis)) if cut else None
    _, entry, k = located(base, axis)
    return entry.turns[k] if isinstance(entry, SlicedAxis) else None


def located(base: ArrayView, axis: int) -> tuple[int, Entry, int]:
    """The axis of the whole array that a free axis is of, the entry of the prefix there, and which of its turns."""
    for k, entry in enumerate(base.prefix):
        if axis < free(entry):
            return k, entry, axis
        axis -= free(entry)
    return len(base.prefix) + axis, None, 0


def extent(reader: ReaderBase, base: Part, axis: int) -> ir.Value:
    """The number of elements along a free axis, as an IR value."""
    if isinstance(base, Choice):
        return reader.value(each_option(reader, base, lambda option: extent_as(reader, option, axis, base)))
    turn = turn_of(reader, base, axis)
    if turn is not None:
        return reader.value(turn.length)
    assert isinstance(base, ArrayView)
    return reader.builder.emit(memory.SHAPE, base.root, attr=located(base, axis)[0])


def extent_as(reader: ReaderBase, option: ArrayView | Local, axis: int, base: Choice) -> ir.Value:
    """The extent of one option of a `Choice`, in the integer type common to all options."""
    n = extent(reader, option, axis)
    wide = any(isinstance(v, ir.Value) and v.type == int64 for o in base.options for v in places(o))
    return of_type(reader, n, int64) if wide else n


# ---- parts


def narrowed(reader: ReaderBase, base: Part | Fields, picks: list[Any] | list[ir.Value]) -> Any:
    """The part of an array at these picks along its first axes: an index, a cut, or None for all of the axis."""
    if isinstance(base, Fields | Choice):
        return base.each(lambda part: narrowed(reader, part, picks))
    rest = iter(picks)
    if isinstance(base, Local):
        return replace(base, cut=cut_again(reader, base.cut, rest))
    prefix = [entry(reader, e, rest) for e in base.prefix] + [entry(reader, None, iter((p,))) for p in rest]
    while prefix and prefix[-1] is None:
        prefix.pop()
    return ArrayView(base.root, tuple(prefix))


def entry(reader: ReaderBase, entry: Entry, picks: Iterator[Any]) -> Entry:
    if entry is None:
        return next(picks, None)
    if not isinstance(entry, SlicedAxis):
        return entry
    made = cut_again(reader, entry, picks)
    return made if made.turns else reader.value(made.start)


def cut_again(reader: ReaderBase, cut: SlicedAxis, picks: Iterator[Any]) -> SlicedAxis:
    """The cut of a cut: a row or slice of an axis that is already sliced."""
    start, turns = cut.start, []
    for turn in cut.turns:
        pick = next(picks, None)
        if isinstance(pick, SlicedAxis):
            (inner,) = pick.turns
            turns.append(Turn(times(reader, inner.step, turn.step), inner.length, inner.safe))
        elif pick is None:
            turns.append(turn)
        if pick is not None:
            start = plus(reader, start, times(reader, pick.start if isinstance(pick, SlicedAxis) else pick, turn.step))
    return SlicedAxis(start, tuple(turns))


def movable(reader: ReaderBase, x: Meaning) -> Any:
    """A view with every place as an IR value, so that a loop can carry it."""
    if isinstance(x, Fields):
        return x.each(partial(movable, reader))
    return placed_at(x, [reader.value(n) for n in places(x)]) if isinstance(x, Part) else x


# ---- indices and slices


def picked_along(reader: ReaderBase, base: Part, axis: int, node: ast.expr) -> Any:
    """The wrapped index, or the `SlicedAxis` of a slice, along a free axis; None for `:`."""
    if not isinstance(node, ast.Slice):
        return wrapped(reader, base, axis, node)
    if node.lower is None and node.upper is None and node.step is None:
        return None
    with reader.at(node):
        return slice_cut(reader, base, axis, node)


def wrapped(reader: ReaderBase, base: Part, axis: int, node: ast.expr) -> ir.Value:
    """An index as memory takes it: counted from the end where it is negative."""
    i, turn = reader.index(node), turn_of(reader, base, axis)
    i = i if turn is None else wide(reader, i)
    sure = reader.facts.non_negative(i)
    if sure and turn is None:
        return i
    with reader.at(node):
        k, size = static_int(i), None if turn is None else static_int(turn.length)
        if k is not None and size is not None:
            return reader.value(reader.component_within(k, size, node))
        n = extent(reader, base, axis)
        if n.type != i.type:
            n = reader.builder.emit(scalar.CAST, n, attr=i.type)
        found = i if sure else ops.binary("+", n, i) if k is not None else reader.builder.emit(memory.WRAP, i, n)
        if turn is not None and not (sure and (turn.safe == math.inf or (k is not None and k < turn.safe))):
            claim_within(reader, found, n, sure, node)
        return found


def claim_within(reader: ReaderBase, i: ir.Value, n: ir.Value, sure: bool, node: ast.expr) -> None:
    """Claim, tested where indices are: an index that leaves a slice may be inside of the array still."""
    held = ops.compare("<", i, n)
    if not sure:
        held = reader.builder.emit(scalar.LOGICAL_AND, ops.compare(">=", i, reader.typed(0, i.type)), held)
    text = f"the index {ast.unparse(node)} lies outside of this slice or local array."
    reader.claim(held, Claim(text, "bounds", "Its elements have the indices from 0 on, or from -1 down."))


def slice_cut(reader: ReaderBase, base: Part, axis: int, node: ast.Slice) -> SlicedAxis:
    """The `SlicedAxis` (start, step, length) of a slice along an axis. Raises KernelError for step 0."""
    ends = [None if e is None else end(reader, e) for e in (node.lower, node.upper, node.step)]
    lower, upper, step = ends[0], ends[1], 1 if ends[2] is None else ends[2]
    turn = turn_of(reader, base, axis)
    size = None if turn is None else static_int(turn.length)
    if step == 0:
        raise reader.error("the step of a slice is not 0", "slice", node.step, "", "a[::2]")
    if size is not None and all(e is None or isinstance(e, int) for e in ends):
        found = range(*slice(*ends).indices(size))
        return SlicedAxis(found.start, (Turn(found.step, len(found), len(found)),))
    n = extent(reader, base, axis)
    if isinstance(step, ir.Value) and (reader.facts.lower(step) or 0) < 1:
        return of_either_sign(reader, lower, upper, step, n)
    up = isinstance(step, ir.Value) or step > 0
    start, stop = ends_of(reader, lower, upper, up, n)
    return SlicedAxis(start, (Turn(step, elements(reader, start, stop, step), safe(turn, lower, upper, step)),))


def of_either_sign(reader: ReaderBase, lower: Int | None, upper: Int | None, step: ir.Value, n: ir.Value) -> SlicedAxis:
    claim = Claim("the step of this slice is 0.", "slice", instead="a step that is not 0")
    reader.claim(ops.compare("!=", step, reader.value(0)), claim)
    up, sides = ops.compare(">", step, reader.value(0)), []
    for ascending in (True, False):
        sides.append([reader.value(e) for e in ends_of(reader, lower, upper, ascending, n)])
    start, stop = (reader.builder.emit(scalar.WHERE, up, a, b) for a, b in zip(*sides, strict=True))
    return SlicedAxis(start, (Turn(step, elements(reader, start, stop, step)),))


def ends_of(reader: ReaderBase, lower: Int | None, upper: Int | None, up: bool, n: ir.Value) -> tuple[Int, Int]:
    """Start and stop as `range` takes them. A start beyond the last element is left where nothing else can come."""
    if up:
        start = 0 if lower is None else lower if counts_up(reader, lower) else clamped(reader, lower, 0, None, n)
        return start, n if upper is None else clamped(reader, upper, 0, n, n)
    last = plus(reader, n, -1)
    start = last if lower is None else clamped(reader, lower, -1, last, n)
    return start, -1 if upper is None else upper if counts_up(reader, upper) else clamped(reader, upper, -1, None, n)


def clamped(reader: ReaderBase, end: Int, low: int, high: Int | None, n: ir.Value) -> ir.Value:
    """A given end, counted from the end of the axis where it is negative, and not outside of [low, high]."""
    found = reader.value(end)
    if isinstance(end, int) and end < 0:
        return reader.builder.emit(scalar.MAX, ops.binary("+", n, found), reader.value(low))
    if not counts_up(reader, end):
        found = reader.builder.emit(scalar.MAX, reader.builder.emit(memory.WRAP, found, n), reader.value(low))
    return found if high is None else reader.builder.emit(scalar.MIN, found, reader.value(high))


def counts_up(reader: ReaderBase, end: Int) -> bool:
    return end >= 0 if isinstance(end, int) else reader.facts.non_negative(end)


def elements(reader: ReaderBase, start: Int, stop: Int, step: Int) -> Int:
    if step == 1 and start == 0:
        return stop
    start, stop = reader.value(start), reader.value(stop)
    if step == 1:
        return reader.builder.emit(scalar.MAX, ops.binary("-", stop, start), reader.value(0))
    return reader.builder.emit(memory.TRIPS, start, stop, reader.value(step))


def end(reader: ReaderBase, node: ast.expr) -> Int:
    """An end or step of a slice: a Python int where it is known, else an int32."""
    v = wide(reader, reader.index(node))
    if (k := static_int(v)) is not None:
        return k
    if v.type == int64:
        edge = 2**31 - 1
        v = reader.builder.emit(scalar.CLAMP, v, reader.typed(-edge, int64), reader.typed(edge, int64))
        v = reader.builder.emit(scalar.CAST, v, attr=int32)
    return v


# ---- integers


def wide(reader: ReaderBase, i: ir.Value) -> ir.Value:
    """An index of int32 or int64, which hold what is computed with it."""
    assert isinstance(i.type, Scalar)
    if i.type in (int32, int64):
        return i
    k, type = static_int(i), int64 if i.type.bits == 64 or i.type is uint32 else int32
    return reader.typed(k, type) if k is not None else reader.builder.emit(scalar.CAST, i, attr=type)


def plus(reader: ReaderBase, a: Int, b: Int) -> Int:
    return combined(reader, "+", a, b, 0)


def times(reader: ReaderBase, a: Int, b: Int) -> Int:
    return 0 if 0 in (static_int(a), static_int(b)) else combined(reader, "*", a, b, 1)


def combined(reader: ReaderBase, sign: str, a: Int, b: Int, neutral: int) -> Int:
    if static_int(a) == neutral:
        return b
    if static_int(b) == neutral:
        return a
    if isinstance(a, int) and isinstance(b, int):
        return a + b if sign == "+" else a * b
    types = [x.type for x in (a, b) if isinstance(x, ir.Value)]
    type = int64 if int64 in types else int32
    a, b = (reader.typed(x, type) if isinstance(x, int) else of_type(reader, x, type) for x in (a, b))
    return ops.binary(sign, a, b)


def of_type(reader: ReaderBase, x: ir.Value, type: Scalar) -> ir.Value:
    return x if x.type == type else reader.builder.emit(scalar.CAST, x, attr=type)


def safe(turn: Turn | None, lower: Int | None, upper: Int | None, step: Int) -> float:
    """The bound below which an index leaves the slice only by leaving the array too, so needs no claim."""
    around = math.inf if turn is None else turn.safe
    if isinstance(step, ir.Value):
        return 0
    if step < 0:
        return math.inf if turn is None and upper is None else 0
    if upper is None and around == math.inf:
        return math.inf
    known = [0 if lower is None else lower, around if upper is None else upper]
    if any(isinstance(e, ir.Value) or e < 0 for e in known):
        return 0
    return max(0, math.ceil((min(known[1], around) - known[0]) / step))


# ---- loops


def as_carried(reader: ReaderBase, x: Meaning, pattern: Meaning) -> Any:
    """`conformed`, with every place and flag as an IR value, so that a loop can carry it."""
    made = conformed(reader, x, pattern)
    return None if made is None else mapped(made, Part, partial(movable, reader))
