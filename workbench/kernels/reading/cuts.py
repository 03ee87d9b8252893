"""Rows and slices: where in an array the elements of its part lie.

A slice is no value of the program. `s = a[1:n]` notes where s lies in a, and `s[k]` is read as `a[1 + k]`: memory has
one name in the program, so that all who look at programs know what a slice shares with its array. Slices mean what they
mean in Python, for steps and ends of any sign; a step of 0 and an index outside of the slice are claims that fail.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from typing import Any

from ...records import replace
from .. import ir, ops
from ..ops import memory, scalar
from ..ops.control import Claim
from ..types import Scalar, int32, int64, uint32
from .lower_bounds import static_int
from .scope import ArrayView, Choice, Entry, Fields, Int, Local, SlicedAxis, Turn, free, is_array, placed_at, places


class Cuts:
    """Mixin of `Reader`: rows, slices and elements of arrays."""

    # ---- axes

    def turn(self, base: ArrayView | Local | Choice, axis: int) -> Turn | None:
        """The `Turn` (step, length) of a free axis; None if no slice applies to it."""
        if isinstance(base, Local):
            return base.cut.turns[axis]
        if isinstance(base, Choice):
            cut = any(self.turn(option, axis) is not None for option in base.options)
            return Turn(1, self.extent(base, axis)) if cut else None
        for entry in base.prefix:
            if axis < free(entry):
                return entry.turns[axis] if isinstance(entry, SlicedAxis) else None
            axis -= free(entry)
        return None

    def extent(self, base: ArrayView | Local | Choice, axis: int) -> ir.Value:
        """The number of elements along a free axis, as an IR value."""
        if isinstance(base, Choice):
            return self.value(self.each_option(base, lambda option: self.extent_as(option, axis, base)))
        turn = self.turn(base, axis)
        if turn is not None:
            return self.value(turn.length)
        assert isinstance(base, ArrayView)
        for k, entry in enumerate(base.prefix):
            if axis < free(entry):
                return self.builder.emit(memory.SHAPE, base.root, attr=k)
            axis -= free(entry)
        return self.builder.emit(memory.SHAPE, base.root, attr=len(base.prefix) + axis)

    def extent_as(self, option: ArrayView | Local, axis: int, base: Choice) -> ir.Value:
        """The extent of one option of a `Choice`, in the integer type common to all options."""
        n = self.extent(option, axis)
        wide = any(isinstance(v, ir.Value) and v.type == int64 for o in base.options for v in places(o))
        return self.of_type(n, int64) if wide else n

    # ---- parts

    def narrowed(self, base: Any, picks: list[Any]) -> Any:
        """The part of an array at these picks along its first axes: an index, a cut, or None for all of the axis."""
        if isinstance(base, Fields | Choice):
            return base.each(lambda part: self.narrowed(part, picks))
        rest = iter(picks)
        if isinstance(base, Local):
            return replace(base, cut=self.cut_again(base.cut, rest))
        prefix = [self.entry(e, rest) for e in base.prefix] + [self.entry(None, iter((p,))) for p in rest]
        while prefix and prefix[-1] is None:
            prefix.pop()
        return ArrayView(base.root, tuple(prefix))

    def entry(self, entry: Entry, picks: Iterator[Any]) -> Entry:
        if entry is None:
            return next(picks, None)
        if not isinstance(entry, SlicedAxis):
            return entry
        made = self.cut_again(entry, picks)
        return made if made.turns else self.value(made.start)

    def cut_again(self, cut: SlicedAxis, picks: Iterator[Any]) -> SlicedAxis:
        """The cut of a cut: a row or slice of an axis that is already sliced."""
        start, turns = cut.start, []
        for turn in cut.turns:
            pick = next(picks, None)
            if isinstance(pick, SlicedAxis):
                (inner,) = pick.turns
                turns.append(Turn(self.times(inner.step, turn.step), inner.length, inner.safe))
            elif pick is None:
                turns.append(turn)
            if pick is not None:
                start = self.plus(start, self.times(pick.start if isinstance(pick, SlicedAxis) else pick, turn.step))
        return SlicedAxis(start, tuple(turns))

    def movable(self, x: Any) -> Any:
        """A view with every place as an IR value, so that a loop can carry it."""
        if isinstance(x, Fields):
            return x.each(self.movable)
        return placed_at(x, [self.value(n) for n in places(x)]) if is_array(x) else x

    def spot(self, base: ArrayView, indices: list[ir.Value]) -> tuple[ir.Value, ...]:
        """The indices of memory for an element of a view."""
        return self.narrowed(base, indices).prefix if base.prefix else tuple(indices)

    # ---- indices and slices

    def picked_along(self, base: ArrayView | Local | Choice, axis: int, node: ast.expr) -> Any:
        """The wrapped index, or the `SlicedAxis` of a slice, along a free axis; None for `:`."""
        if not isinstance(node, ast.Slice):
            return self.wrapped(base, axis, node)
        if node.lower is None and node.upper is None and node.step is None:
            return None
        with self.at(node):
            return self.slice_cut(base, axis, node)

    def wrapped(self, base: ArrayView | Local | Choice, axis: int, node: ast.expr) -> ir.Value:
        """An index as memory takes it: counted from the end where it is negative."""
        i, turn = self.index(node), self.turn(base, axis)
        i = i if turn is None else self.wide(i)
        sure = self.facts.non_negative(i)
        if sure and turn is None:
            return i
        with self.at(node):
            k, size = static_int(i), None if turn is None else static_int(turn.length)
            if k is not None and size is not None:
                return self.value(self.component_within(k, size, node))
            n = self.extent(base, axis)
            if n.type != i.type:
                n = self.builder.emit(scalar.CAST, n, attr=i.type)
            found = i if sure else ops.binary("+", n, i) if k is not None else self.builder.emit(memory.WRAP, i, n)
            if turn is not None and not (sure and (turn.safe == math.inf or (k is not None and k < turn.safe))):
                self.claim_within(found, n, sure, node)
            return found

    def claim_within(self, i: ir.Value, n: ir.Value, sure: bool, node: ast.expr) -> None:
        """Under `check_bounds`: an index that leaves a slice may be inside of the array still."""
        held = ops.compare("<", i, n)
        if not sure:
            held = self.builder.emit(scalar.LOGICAL_AND, ops.compare(">=", i, self.typed(0, i.type)), held)
        text = f"the index {ast.unparse(node)} lies outside of this slice or local array."
        self.claim(held, Claim(text, "bounds", "Its elements have the indices from 0 on, or from -1 down."))

    def slice_cut(self, base: ArrayView | Local | Choice, axis: int, node: ast.Slice) -> SlicedAxis:
        """The `SlicedAxis` (start, step, length) of a slice along an axis. Raises KernelError for step 0."""
        ends = [None if e is None else self.end(e) for e in (node.lower, node.upper, node.step)]
        lower, upper, step = ends[0], ends[1], 1 if ends[2] is None else ends[2]
        turn = self.turn(base, axis)
        size = None if turn is None else static_int(turn.length)
        if step == 0:
            raise self.error("the step of a slice is not 0", "slice", node.step, "", "a[::2]")
        if size is not None and all(e is None or isinstance(e, int) for e in ends):
            found = range(*slice(*ends).indices(size))
            return SlicedAxis(found.start, (Turn(found.step, len(found), len(found)),))
        n = self.extent(base, axis)
        if isinstance(step, ir.Value) and (self.facts.lower(step) or 0) < 1:
            return self.of_either_sign(lower, upper, step, n, node)
        up = isinstance(step, ir.Value) or step > 0
        start, stop = self.ends(lower, upper, up, n)
        return SlicedAxis(start, (Turn(step, self.elements(start, stop, step), safe(turn, lower, upper, step)),))

    def of_either_sign(self, lower: Any, upper: Any, step: ir.Value, n: ir.Value, node: ast.Slice) -> SlicedAxis:
        claim = Claim("the step of this slice is 0.", "slice", instead="a step that is not 0")
        self.claim(ops.compare("!=", step, self.value(0)), claim)
        up, sides = ops.compare(">", step, self.value(0)), []
        for ascending in (True, False):
            sides.append([self.value(e) for e in self.ends(lower, upper, ascending, n)])
        start, stop = (self.builder.emit(scalar.WHERE, up, a, b) for a, b in zip(*sides, strict=True))
        return SlicedAxis(start, (Turn(step, self.elements(start, stop, step)),))

    def ends(self, lower: Any, upper: Any, up: bool, n: ir.Value) -> tuple[Int, Int]:
        """Start and stop as `range` takes them. A start beyond the last element is left where nothing else can come."""
        if up:
            start = 0 if lower is None else lower if self.counts_up(lower) else self.clamped(lower, 0, None, n)
            return start, n if upper is None else self.clamped(upper, 0, n, n)
        last = self.plus(n, -1)
        start = last if lower is None else self.clamped(lower, -1, last, n)
        return start, -1 if upper is None else upper if self.counts_up(upper) else self.clamped(upper, -1, None, n)

    def clamped(self, end: Int, low: int, high: Int | None, n: ir.Value) -> ir.Value:
        """A given end, counted from the end of the axis where it is negative, and not outside of [low, high]."""
        found = self.value(end)
        if isinstance(end, int) and end < 0:
            return self.builder.emit(scalar.MAX, ops.binary("+", n, found), self.value(low))
        if not self.counts_up(end):
            found = self.builder.emit(scalar.MAX, self.builder.emit(memory.WRAP, found, n), self.value(low))
        return found if high is None else self.builder.emit(scalar.MIN, found, self.value(high))

    def counts_up(self, end: Int) -> bool:
        return end >= 0 if isinstance(end, int) else self.facts.non_negative(end)

    def elements(self, start: Int, stop: Int, step: Int) -> Int:
        if step == 1 and start == 0:
            return stop
        start, stop = self.value(start), self.value(stop)
        if step == 1:
            return self.builder.emit(scalar.MAX, ops.binary("-", stop, start), self.value(0))
        return self.builder.emit(memory.TRIPS, start, stop, self.value(step))

    def end(self, node: ast.expr) -> Int:
        """An end or step of a slice: a Python int where it is known, else an int32."""
        v = self.wide(self.index(node))
        if (k := static_int(v)) is not None:
            return k
        if v.type == int64:
            edge = 2**31 - 1
            v = self.builder.emit(scalar.CLAMP, v, self.typed(-edge, int64), self.typed(edge, int64))
            v = self.builder.emit(scalar.CAST, v, attr=int32)
        return v

    # ---- integers

    def wide(self, i: ir.Value) -> ir.Value:
        """An index of int32 or int64, which hold what is computed with it."""
        assert isinstance(i.type, Scalar)
        if i.type in (int32, int64):
            return i
        k, type = static_int(i), int64 if i.type.bits == 64 or i.type is uint32 else int32
        return self.typed(k, type) if k is not None else self.builder.emit(scalar.CAST, i, attr=type)

    def plus(self, a: Int, b: Int) -> Int:
        return self.combined("+", a, b, 0)

    def times(self, a: Int, b: Int) -> Int:
        return 0 if 0 in (static_int(a), static_int(b)) else self.combined("*", a, b, 1)

    def combined(self, sign: str, a: Int, b: Int, neutral: int) -> Int:
        if static_int(a) == neutral:
            return b
        if static_int(b) == neutral:
            return a
        if isinstance(a, int) and isinstance(b, int):
            return a + b if sign == "+" else a * b
        types = [x.type for x in (a, b) if isinstance(x, ir.Value)]
        type = int64 if int64 in types else int32
        a, b = (self.typed(x, type) if isinstance(x, int) else self.of_type(x, type) for x in (a, b))
        return ops.binary(sign, a, b)

    def of_type(self, x: ir.Value, type: Scalar) -> ir.Value:
        return x if x.type == type else self.builder.emit(scalar.CAST, x, attr=type)


def safe(turn: Turn | None, lower: Any, upper: Any, step: Any) -> float:
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
