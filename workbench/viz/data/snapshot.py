"""An array as it was at a moment of the reverse pass: its value then, where that is still known, and its adjoint.

The moment `cursor` is that before event `cursor` ran, which is after its reverse step. Values come from bytes that the
tape kept; what was overwritten and not kept is never filled with present memory. Adjoints come from one walk.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...arrays.grouping import grouped
from ...arrays.span import Span, byte_entries
from ...arrays.workspace import Shadow, Workspace, add_seed, gradient_dtype, shadow_view
from ...device import on_host
from ...errors import GradientError
from ...kernels.types import is_float
from ...tapes.events import Event, checksum_of
from ...tapes.seeds import check_seed
from ...tapes.tape import Tape

Retrace = Callable[..., Workspace]  # of (observe, before), as `Tape.retrace`
SeedBytes = Mapping[Allocation, np.ndarray]
HeatPicture = tuple[dict[str, Any], np.ndarray]  # as `picture`

SIDE = 128  # cells of a heat-map, each way
STRIP = 96  # numbers of a row that is not broken
PICTURES = 1 << 25  # bytes of the pictures of one walk
TAKEN = 2000  # pictures of other arrays that one walk takes beside those that are asked for
FRAMES = 8  # windows into arrays whose pictures are held


@dataclass(frozen=True)
class DrawnSlice:
    """The part of an array that is drawn: two axes of its shape with components (one for a row), the others fixed.

    `window` is (row, column, rows, columns) of the cells that are drawn; `wrap`: cells of a row of a long line.
    """

    full: tuple[int, ...]
    axes: tuple[int, ...]
    fixed: tuple[int, ...]
    wrap: int
    window: tuple[int, int, int, int]

    @property
    def block(self) -> tuple[int, int]:
        """The numbers that one cell stands for, (down, across)."""
        return math.ceil(self.window[2] / SIDE) or 1, math.ceil(self.window[3] / SIDE) or 1

    def plane(self, values: np.ndarray, rest: float) -> np.ndarray:
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
        return {**vars(self), "block": self.block}


def full_shape(a: array) -> tuple[int, ...]:
    return (*a.shape, *getattr(a.dtype, "shape", ()))


def frame_of(full: tuple[int, ...], fixed: Sequence[int] = (), window: Sequence[int] = ()) -> DrawnSlice:
    """The frame of a shape: a vector is wrapped to rows, few components are stacked, further axes are fixed."""
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
    return DrawnSlice(full, axes, held, wrap, (row, column, rows, columns))


def reduced(values: np.ndarray, block: tuple[int, int]) -> np.ndarray:
    """The plane reduced by blocks, float32: per block the number largest in size, signed; NaN wins."""
    v = np.asarray(values, np.float64)
    if block == (1, 1):
        return v.astype(np.float32)
    rows, columns = (-(-n // b) for n, b in zip(v.shape, block, strict=True))
    padded = np.zeros((rows * block[0], columns * block[1]))
    padded[: v.shape[0], : v.shape[1]] = v
    cells = padded.reshape(rows, block[0], columns, block[1]).transpose(0, 2, 1, 3).reshape(rows, columns, -1)
    most, least = cells.max(-1), cells.min(-1)  # NaN goes through both
    return np.where(most >= -least, most, np.where(np.isnan(most), most, least)).astype(np.float32)


def picture(plane: np.ndarray, frame: DrawnSlice, known: np.ndarray | None = None) -> HeatPicture:
    """A plane for the page: statistics of all `known` numbers, not of what pads a row, and the cells.

    The least and the most are those of the finite ones; zeros where there are none.
    """
    own = frame.plane(np.broadcast_to(True, frame.full), False)
    numbers = plane[own if known is None else own & known]
    finite, cells = numbers[np.isfinite(numbers)], reduced(plane, frame.block)
    said = {
        "rows": cells.shape[0],
        "columns": cells.shape[1],
        "least": float(finite.min()) if finite.size else 0.0,
        "most": float(finite.max()) if finite.size else 0.0,
        "nan": int(np.isnan(numbers).sum()),
        "inf": int(np.isinf(numbers).sum()),
        "zero": int((numbers == 0).sum()),
    }
    return said, cells


def known_picture(numbers: np.ndarray, known: np.ndarray, frame: DrawnSlice) -> tuple[dict[str, Any], list[bytes]]:
    """The picture of the known numbers and the mask of the known cells, as plain data and bytes."""
    mask = frame.plane(known, True)
    plane = frame.plane(numbers, 0)
    if plane.dtype.kind == "b":
        plane = plane.astype(np.int8)
    held = np.where(mask, plane, 0)
    found, drawn = picture(held, frame, mask)
    some, every = bool(known.any()), bool(known.all())
    said = {**found, "state": "known" if every else "partly" if some else "not kept"}
    sure_cells = reduced(~mask, frame.block) == 0
    return said, [drawn.tobytes(), sure_cells.astype(np.uint8).tobytes()]


class TapeMoments:
    """Values and adjoints of the arrays of one tape at any moment. The caller holds the lock."""

    def __init__(self, tape: Tape, retrace: Retrace | None = None, seeds: SeedBytes | None = None):
        self.tape = tape
        self.events = list(tape.events)  # later ones are of no moment
        self.retrace = retrace or tape.retrace
        self.seeds = seeds
        self.refused: GradientError | None = None  # what a walk raised: another one would raise it too
        self.walked: dict[tuple[int, DrawnSlice], dict[int, HeatPicture]] = {}
        self.values: tuple[Allocation, int, np.ndarray, np.ndarray, str] | None = None
        self.masks: dict[Allocation, tuple[int, np.ndarray, np.ndarray]] = {}
        self.held: dict[Allocation, tuple[np.ndarray, np.ndarray, str]] = {}
        self.beside: Sequence[array] = ()  # arrays whose adjoints are taken in the same walk as that of another

    @cached_property
    def touching(self) -> dict[Allocation, list[int]]:
        """By memory the positions of the events that touch it."""
        memories = (dict.fromkeys(s.allocation for s in (*event.reads, *event.writes)) for event in self.events)
        return grouped((a, n) for n, touched in enumerate(memories) for a in touched)

    @property
    def walked_from(self) -> SeedBytes:
        """The seeds of its walks."""
        return self.tape.last_seeds if self.seeds is None else self.seeds

    @cached_property
    def rewinds(self) -> bool:
        """True if a reverse walk of this tape restores old contents on its way (and puts them back at the end)."""
        return any(event.kept or event.loop is not None for event in self.events)

    def hold(self, arrays: Iterable[array]) -> None:
        """Copy present memory, as far as there is room: it may be reused later."""
        room = PICTURES
        for a in dict.fromkeys(x.allocation for x in arrays):
            room -= a.nbytes
            if room >= 0:
                data, known, note = present(self.tape, a)
                self.held[a] = data.copy(), known, note

    # ---- values

    def value(self, a: array, cursor: int) -> tuple[np.ndarray, np.ndarray, str]:
        """(numbers, mask of the known ones, a remark), in the shape of the array with its components."""
        data, known, note = self._bytes(a.allocation, cursor)
        whole = a.data
        numbers = np.ndarray(whole.shape, np.dtype(whole.dtype), data, a.span.offset, whole.strides)
        mask = np.ndarray(whole.shape, bool, known, a.span.offset, whole.strides)  # the first byte speaks for a number
        return numbers, mask, note

    def _bytes(self, a: Allocation, cursor: int) -> tuple[np.ndarray, np.ndarray, str]:
        if self.values is None or self.values[0] is not a or self.values[1] < cursor:
            data, known, note = self.held.get(a) or present(self.tape, a)
            self.values = a, len(self.events), data.copy(), known.copy(), note
        _, at, data, known, note = self.values
        for event in (self.events[n] for n in self._back(a, cursor, at)):
            _mark(known, a, event.writes, False)
            for span, kept in _restored(event, a):
                raw = np.ascontiguousarray(on_host(kept)).view(np.uint8)
                byte_entries(span, data)[...] = raw.reshape(*span.shape, span.itemsize)
                byte_entries(span, known)[...] = True
        self.values = a, cursor, data, known, note
        return data, known, note

    def _back(self, a: Allocation, cursor: int, at: int) -> Sequence[int]:
        """The events from `at` down to `cursor` that touch a memory."""
        touching = self.touching.get(a, [])
        return touching[bisect_left(touching, cursor) : bisect_left(touching, at)][::-1]

    def status(self, a: Allocation, cursor: int) -> tuple[np.ndarray, np.ndarray]:
        """(known, certain): masks of a memory's bytes before event `cursor`; known but uncertain: as they are now."""
        at, known, certain = self.masks.get(a, (-1, None, None))
        if at < cursor or known is None or certain is None:
            at, known, certain = len(self.events), present(self.tape, a)[1], _watched(self.tape, a)
        elif self._back(a, cursor, at):
            known, certain = known.copy(), certain.copy()  # who asked before has the others
        for n in self._back(a, cursor, at):
            event = self.events[n]
            _mark(known, a, event.writes, False)
            for span, _ in _restored(event, a):
                byte_entries(span, known)[...] = byte_entries(span, certain)[...] = True
        self.masks[a] = cursor, known, certain
        return known, certain

    # ---- adjoints

    def adjoint(self, a: array, cursor: int, frame: DrawnSlice) -> HeatPicture | None:
        """The picture of the adjoint; None before any backward, or where no walk can be repeated."""
        if not self.walked_from or not is_float(a.dtype):
            return None
        touching = self.touching.get(a.allocation, [])
        place = bisect_left(touching, cursor)
        moment = touching[place] if place < len(touching) else len(self.events)
        key = (id(a), frame)
        if moment not in self.walked.get(key, ()):
            half = max(PICTURES // size_of(frame), 8) // 2  # of the moments nearest to this one that there is room for
            wanted = {*touching[max(place - half, 0) : place + half], moment, len(self.events)}
            self.take([(a, frame, wanted), *self._others(a, frame)])
        return self.walked[key][moment]

    def _others(self, a: array, frame: DrawnSlice) -> list[tuple[array, DrawnSlice, set[int]]]:
        """Other arrays, whole, whose adjoints the same walk has time and room for."""
        if frame != frame_of(full_shape(a)) or self.walked:
            return []
        found, count, room = [], TAKEN, PICTURES
        for other in self.beside:
            touching, shown = self.touching.get(other.allocation, []), frame_of(full_shape(other))
            if other is a or not is_float(other.dtype) or len(touching) + 1 > count:
                continue
            count, room = count - len(touching) - 1, room - size_of(shown) * (len(touching) + 1)
            if room < 0:
                break
            found.append((other, shown, {*touching, len(self.events)}))
        return found

    def take(self, wanted: Sequence[tuple[array, DrawnSlice, Collection[int]]]) -> None:
        """Snapshots of the adjoints of several arrays, each at several moments, from one walk. See `adjoint`."""
        if self.refused is not None:
            raise self.refused
        seeds = self.walked_from
        at = grouped((n, (a, frame)) for a, frame, moments in wanted for n in moments)
        found: dict[tuple[int, DrawnSlice], dict[int, HeatPicture]] = {}
        blank: dict[tuple[int, DrawnSlice], HeatPicture] = {}
        places = {event: n for n, event in enumerate(self.events) if n in at}

        def take(position: int, space: Workspace) -> None:
            for a, frame in at.get(position, ()):
                key = id(a), frame
                if a.allocation in space:
                    made = picture(frame.plane(on_host(shadow_view(a, space[a.allocation])), 0), frame)
                else:
                    if key not in blank:
                        blank[key] = picture(frame.plane(np.zeros(full_shape(a), gradient_dtype(a)), 0), frame)
                    made = blank[key]
                found.setdefault(key, {})[position] = made

        started = {a.allocation for a, _, _ in wanted if a.allocation in seeds}
        take(len(self.events), Workspace({a: Shadow(a, start=seeds[a]) for a in started}))
        try:
            if places:
                self.retrace(lambda event, space: take(places.get(event, -1), space), None)
        except GradientError as error:
            self.refused = error
            raise
        for key, pictures in found.items():
            self.walked[key] = self.walked.pop(key, {}) | pictures
        while len(self.walked) > len(found) + FRAMES:
            self.walked.pop(next(iter(self.walked)))


def seed_bytes(
    tape: Tape, grads: Mapping[Any, Any], minus: Mapping[Any, Any] | None = None, start: SeedBytes | None = None
) -> dict[Allocation, Any]:
    """The bytes for `Tape.retrace` of seeds {array: seed}, those of `minus` taken away, on top of the ones in `start`.

    Raises GradientError for a seed that does not fit.
    """
    space = Workspace({a: Shadow(a, start=data) for a, data in (start or {}).items()})
    taken = ((a, array(seed.numpy() * -1, dtype=seed.dtype)) for a, seed in (minus or {}).items())
    for a, seed in (*grads.items(), *taken):
        check_seed(tape, a)
        add_seed(space, a, seed)
    return {a: shadow.data.copy() for a, shadow in space.items()}


def size_of(frame: DrawnSlice) -> int:
    """Bytes of a picture."""
    return (4 * SIDE * SIDE if max(frame.block) > 1 else 4 * math.prod(frame.window[2:])) + 400


def present(tape: Tape, a: Allocation) -> tuple[np.ndarray, np.ndarray, str]:
    """(a memory's present bytes, mask of those unchanged since the last event, a remark)."""
    data = on_host(a.bytes)
    known = np.ones(len(data), bool)
    notes = tape.needed.of(a)
    if not notes.watched:
        return data, known, "as it is now: the tape does not watch this memory"
    others = (span for span, checksum in notes.left.items() if a.exposed and checksum != checksum_of(span))
    _mark(known, a, (*notes.changed, *others), False)
    return data, known, ""


def _mark(mask: np.ndarray, a: Allocation, spans: Iterable[Span], value: bool) -> None:
    """Set the bytes of those spans that lie on a memory."""
    for span in spans:
        if span.allocation is a:
            byte_entries(span, mask)[...] = value


def _restored(event: Event, a: Allocation) -> Iterator[tuple[Span, Any]]:
    """Yields (span, data) kept from before an event; for a checkpointed loop also its initial state."""
    for kept in reversed(event.kept):
        if kept.span.allocation is a:
            yield kept.span, kept.data
    if event.loop is not None and event.kind.own:
        for x, data in zip(event.loop.state, event.loop.kept[0], strict=True):
            if x.allocation is a:
                yield x.span, data


def _watched(tape: Tape, a: Allocation) -> np.ndarray:
    """A mask of the bytes whose version the tape checks: a foreign write to them would be noticed."""
    notes = tape.needed.of(a)
    if notes.followed or (notes.met is not None and not a.exposed):
        return np.ones(a.nbytes, bool)
    found = np.zeros(a.nbytes, bool)
    _mark(found, a, (need.span for need in notes), True)
    return found
