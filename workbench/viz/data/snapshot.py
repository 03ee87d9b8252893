"""An array as it was at a moment of the reverse pass: its value then, where that is still known, and its adjoint.

The moment `cursor` is that before event `cursor` ran, which is after its reverse step. Values come from bytes that the
tape kept, put into a copy; what was overwritten and not kept is not known, and is never filled with present memory.
Adjoints come from one walk that takes pictures of the array; they are shown at most `SIDE` cells a side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...arrays.span import Span, byte_entries
from ...arrays.workspace import Shadow, Workspace, gradient_dtype, shadow_view
from ...device import on_host
from ...kernels.types import Struct, is_float
from ...tapes.events import Event, checksum_of
from ...tapes.tape import Tape

SIDE = 128  # cells of a heat-map, each way
STRIP = 96  # numbers of a row that is not broken
PICTURES = 1 << 25  # bytes of the pictures of one walk


@dataclass(frozen=True)
class Frame:
    """What of an array is drawn: two axes of its shape with components (one for a row), the others fixed.

    `window` is (row, column, rows, columns) of the cells that are drawn; `wrap`: cells of a row of a long line.
    """

    full: tuple[int, ...]
    axes: tuple[int, ...]
    fixed: tuple[int, ...]
    wrap: int
    window: tuple[int, int, int, int]

    @property
    def block(self) -> tuple[int, int]:
        """How many numbers one cell stands for, each way."""
        return math.ceil(self.window[2] / SIDE) or 1, math.ceil(self.window[3] / SIDE) or 1

    def plane(self, values: np.ndarray, rest: Any) -> np.ndarray:
        """The window of an array of the full shape as rows and columns; `rest` fills the end of a last row."""
        index: list[Any] = list(self.fixed)
        for axis in self.axes:
            index[axis] = slice(None)
        found = values[tuple(index)]
        if self.wrap:
            rows = math.ceil(max(found.size, 1) / self.wrap)
            padded = np.full(rows * self.wrap, rest, found.dtype)
            padded[: found.size] = found.reshape(-1)
            found = padded.reshape(rows, self.wrap)
        elif len(self.axes) == 2 and self.axes[0] > self.axes[1]:
            found = found.T
        row, column, rows, columns = self.window
        return found[row : row + rows, column : column + columns]

    def to_json(self) -> dict[str, Any]:
        return {
            "full": self.full, "axes": self.axes, "fixed": self.fixed, "wrap": self.wrap, "window": self.window,
            "block": self.block,
        }  # fmt: skip


def full_shape(a: array) -> tuple[int, ...]:
    return (*a.shape, *getattr(a.dtype, "shape", ()))


def frame_of(full: tuple[int, ...], fixed: Sequence[int] = (), window: Sequence[int] = ()) -> Frame:
    """The frame of a shape: a line is broken into rows, few components stand above each other, the rest is fixed."""
    axes: tuple[int, ...]
    if len(full) <= 1:
        axes = (0,) if full else ()
    elif len(full) == 2:
        axes = (1, 0) if full[1] <= 4 < full[0] else (0, 1)
    else:
        axes = (len(full) - 3, len(full) - 2) if full[-1] <= 4 else (len(full) - 2, len(full) - 1)
    held = tuple(min(max(int(i), 0), max(n - 1, 0)) for i, n in zip((*fixed, *([0] * len(full))), full, strict=False))
    count = math.prod(full[axis] for axis in axes)
    wrap = 0
    if len(axes) < 2:
        wrap = max(count if count <= STRIP else min(math.ceil(math.sqrt(3 * count)), 4096), 1)
        shape = math.ceil(max(count, 1) / wrap), wrap
    else:
        shape = full[axes[0]], full[axes[1]]
    given = [int(n) for n in window] if len(window) == 4 else [0, 0, *shape]
    row, column = (min(max(given[k], 0), max(shape[k] - 1, 0)) for k in (0, 1))
    rows, columns = (max(min(given[k + 2], shape[k] - at), 1) for k, at in ((0, row), (1, column)))
    return Frame(full, axes, held, wrap, (row, column, rows, columns))


def reduced(values: np.ndarray, block: tuple[int, int]) -> np.ndarray:
    """Per block the number of the largest size, with its sign; NaN wins. float32."""
    v = np.asarray(values, np.float64)
    if block == (1, 1):
        return v.astype(np.float32)
    rows, columns = (-(-n // b) for n, b in zip(v.shape, block, strict=True))
    padded = np.zeros((rows * block[0], columns * block[1]))
    padded[: v.shape[0], : v.shape[1]] = v
    cells = padded.reshape(rows, block[0], columns, block[1]).transpose(0, 2, 1, 3).reshape(rows, columns, -1)
    most, least = cells.max(-1), cells.min(-1)  # NaN goes through both
    return np.where(most >= -least, most, np.where(np.isnan(most), most, least)).astype(np.float32)


def picture(plane: np.ndarray, frame: Frame) -> dict[str, Any]:
    """A plane as what the page draws: cells, and what is true of all numbers behind them."""
    finite = plane[np.isfinite(plane)] if plane.dtype.kind == "f" else plane
    return {
        "cells": reduced(plane, frame.block),
        "least": float(finite.min()) if finite.size else 0.0, "most": float(finite.max()) if finite.size else 0.0,
        "nan": int(np.isnan(plane).sum()) if plane.dtype.kind == "f" else 0,
        "inf": int(np.isinf(plane).sum()) if plane.dtype.kind == "f" else 0,
        "zero": int((plane == 0).sum()),
    }  # fmt: skip


class Moments:
    """Values and adjoints of the arrays of one tape at any moment. The caller holds the lock."""

    def __init__(self, tape: Tape, retrace: Callable[..., Any] | None = None, seeds: Any = None):
        self.tape = tape
        self.retrace = retrace or tape.retrace
        self.seeds = seeds
        self.touching: dict[Allocation, list[int]] = {}
        for n, event in enumerate(tape.events):
            for a in dict.fromkeys(span.allocation for span in (*event.reads, *event.writes)):
                self.touching.setdefault(a, []).append(n)
        self.walked: tuple[Any, dict[int, dict[str, Any]]] | None = None
        self.values: tuple[Allocation, int, np.ndarray, np.ndarray, str] | None = None

    @property
    def rewinds(self) -> bool:
        """True if a reverse walk of this tape restores old contents on its way (and puts them back at the end)."""
        return any(event.kept or event.loop is not None for event in self.tape.events)

    # ---- values

    def value(self, a: array, cursor: int) -> tuple[np.ndarray, np.ndarray, str]:
        """(numbers, is each known, a remark), of the shape of the array with its components."""
        data, known, note = self._bytes(a.allocation, cursor)
        whole = a.data
        numbers = np.ndarray(whole.shape, np.dtype(whole.dtype), data, a.span.offset, whole.strides)
        mask = np.ndarray(whole.shape, bool, known, a.span.offset, whole.strides)  # the first byte speaks for a number
        return numbers, mask, note

    def _bytes(self, a: Allocation, cursor: int) -> tuple[np.ndarray, np.ndarray, str]:
        if self.values is None or self.values[0] is not a or self.values[1] < cursor:
            self.values = (a, len(self.tape.events), *_copied(present(self.tape, a)))
        _, at, data, known, note = self.values
        for n in reversed([n for n in self.touching.get(a, ()) if cursor <= n < at]):
            _unwind(self.tape.events[n], a, data, known)
        self.values = a, cursor, data, known, note
        return data, known, note

    def status(self, a: Allocation, cursor: int) -> tuple[np.ndarray, np.ndarray]:
        """Masks of a memory's bytes before event `cursor`: known; and certain, not only taken as they are now."""
        known, certain = present(self.tape, a)[1], _watched(self.tape, a)
        for n in reversed([n for n in self.touching.get(a, ()) if n >= cursor]):
            event = self.tape.events[n]
            _forget(event, a, known)
            for span, _ in _restored(event, a):
                byte_entries(span, known)[...] = byte_entries(span, certain)[...] = True
        return known, certain

    # ---- adjoints

    def adjoint(self, a: array, cursor: int, frame: Frame) -> dict[str, Any] | None:
        """The picture of the adjoint; None before any backward, or where no walk can be repeated."""
        seeds = self.tape.last_seeds if self.seeds is None else self.seeds
        if not seeds or not is_float(a.dtype):
            return None
        touching = self.touching.get(a.allocation, [])
        moment = next((n for n in touching if n >= cursor), len(self.tape.events))
        key = (id(a), frame)
        if self.walked is None or self.walked[0] != key or moment not in self.walked[1]:
            self.walked = key, self._walk(a, frame, seeds, self._wanted(touching, moment, frame))
        return self.walked[1][moment]

    def _wanted(self, touching: Sequence[int], moment: int, frame: Frame) -> set[int]:
        """The moments at which the walk takes pictures: all, or those nearest to this one within the memory budget."""
        room = max(PICTURES // (4 * SIDE * SIDE if max(frame.block) > 1 else 4 * math.prod(frame.window[2:]) + 400), 8)
        end = len(self.tape.events)
        at = next((k for k, n in enumerate(touching) if n >= moment), len(touching))
        return {*touching[max(at - room // 2, 0) : at + room // 2], moment, end}

    def _walk(self, a: array, frame: Frame, seeds: Any, wanted: set[int]) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        positions = {event: n for n, event in enumerate(self.tape.events) if n in wanted}
        blank = None

        def take(space: Workspace) -> dict[str, Any]:
            nonlocal blank
            if a.allocation not in space:
                if blank is None:
                    blank = picture(frame.plane(np.zeros(full_shape(a), gradient_dtype(a)), 0), frame)
                return blank
            return picture(frame.plane(on_host(shadow_view(a, space[a.allocation])), 0), frame)

        def observe(event: Event, space: Workspace) -> None:
            n = positions.get(event)
            if n is not None:
                found[n] = take(space)

        space = Workspace()
        if a.allocation in seeds:
            space[a.allocation] = Shadow(a.allocation, start=seeds[a.allocation])
        found[len(self.tape.events)] = take(space)
        if positions:
            self.retrace(observe, None)
        return found


def present(tape: Tape, a: Allocation) -> tuple[np.ndarray, np.ndarray, str]:
    """The bytes of a memory as they are now, a mask of those that still hold what the last event left, and a remark."""
    data = on_host(a.bytes)
    known = np.ones(len(data), bool)
    left = tape.left.get(a)
    if left is None and a not in tape.needs:
        return data, known, "as it is now: the tape does not watch this memory"
    for span in tape.changed.get(a, ()):
        byte_entries(span, known)[...] = False
    for span, checksum in (left or {}).items():
        if a.exposed and checksum != checksum_of(span):
            byte_entries(span, known)[...] = False
    return data, known, ""


def _copied(found: tuple[np.ndarray, np.ndarray, str]) -> tuple[np.ndarray, np.ndarray, str]:
    return np.array(found[0], copy=True), *found[1:]


def _unwind(event: Event, a: Allocation, data: np.ndarray, known: np.ndarray) -> None:
    """Step the masks back over an event: bytes that it wrote become unknown, except where the tape kept them."""
    _forget(event, a, known)
    for span, kept in _restored(event, a):
        raw = np.ascontiguousarray(on_host(kept)).view(np.uint8)
        byte_entries(span, data)[...] = raw.reshape(*span.shape, span.itemsize)
        byte_entries(span, known)[...] = True


def _forget(event: Event, a: Allocation, known: np.ndarray) -> None:
    for span in event.writes:
        if span.allocation is a:
            byte_entries(span, known)[...] = False


def _restored(event: Event, a: Allocation) -> Iterator[tuple[Span, Any]]:
    """What there is of this memory from before an event; a checkpointed loop has the state that it began with."""
    for kept in reversed(event.kept):
        if kept.span.allocation is a:
            yield kept.span, kept.data
    if event.loop is not None and event.kind == "loop":
        for x, data in zip(event.loop.state, event.loop.kept[0], strict=True):
            if x.allocation is a:
                yield x.span, data


def _watched(tape: Tape, a: Allocation) -> np.ndarray:
    """A mask of the bytes whose versions the tape checks, so that a foreign write would be noticed."""
    if a in tape.left or (a in tape.met and not a.exposed):
        return np.ones(a.nbytes, bool)
    found = np.zeros(a.nbytes, bool)
    for need in tape.needs.get(a, ()):
        byte_entries(need.span, found)[...] = True
    return found


def is_viewable(a: array) -> bool:
    return not isinstance(a.dtype, Struct) and a.size > 0
