"""The contents of the lanes: per allocation a row with the versions of its bytes, and the adjoint below them.

Each allocation is cut at the ends of the ranges that events name; one pass from left to right gives the versions, one
from right to left the adjoints. Moments are positions of events: -1 is the start of the tape, their count its end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import TypeVar

from .trace import MIXED, AdjointLevel, AllocationTrack, EventColumn, Seed, TouchMark, Trace, join_levels

BAND, BAND_MIN, TRACK_MAX = 15.0, 14.0, 72.0
_Cell = TypeVar("_Cell")


@dataclass(frozen=True, slots=True)
class Version:
    """The bytes of a piece between two writes. `mixed`: an event gave only a part of the piece this version."""

    number: int
    since: int
    strided: bool = False
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class VersionBlock:
    """One version of bytes [lo, hi), from after event `e0` to event `e1`."""

    allocation: str
    lo: int
    hi: int
    version: Version
    e0: int
    e1: int


@dataclass(frozen=True, slots=True)
class Bar:
    """The adjoint of bytes [lo, hi) from after event `e0` to before event `e1`; None where none has arrived.

    `given`: True if the reversal of `e1` wrote it; not for a seed, or where an event named no access to the bytes.
    """

    allocation: str
    lo: int
    hi: int
    level: AdjointLevel | None
    e0: int
    e1: int
    given: bool = False


@dataclass(frozen=True, slots=True)
class TouchAdjoint:
    """The adjoint of what a touch wrote (`after` the event) or read (`before` it)."""

    before: AdjointLevel | None
    after: AdjointLevel | None


Flows = Mapping[tuple[int, int], TouchAdjoint]  # by event and touch


@dataclass(frozen=True, slots=True)
class Lane:
    """One allocation's row: the value track, the adjoint track below it, and `cuts`, the byte ends of its pieces.

    y is measured from the top of the row."""

    track: AllocationTrack
    track_height: float
    cuts: tuple[int, ...]

    @property
    def value_top(self) -> float:
        return 10.0

    @property
    def adjoint_top(self) -> float:
        return 20.0 + self.track_height

    def value_span(self, lo: int, hi: int) -> tuple[float, float]:
        return self._span(lo, hi, self.value_top)

    def adjoint_span(self, lo: int, hi: int) -> tuple[float, float]:
        return self._span(lo, hi, self.adjoint_top)

    def _span(self, lo: int, hi: int, top: float) -> tuple[float, float]:
        """Top and height of bytes [lo, hi); never thinner than 2, so that nothing vanishes."""
        size, height = max(self.track.nbytes, 1), self.track_height
        lo, hi = max(0, min(lo, size)), max(0, min(hi, size))
        tall = max((hi - lo) / size * height, 2.0)
        return min(top + lo / size * height, top + height - tall), tall


# ---- tracks


def cut_memory(trace: Trace, events: Sequence[EventColumn], most: int | None = None) -> dict[str, tuple[int, ...]]:
    """For each allocation the sorted byte ends of every range that its names and the given events mention.

    Memory with more than `most` of them is cut evenly."""
    ends: dict[str, set[int]] = {track.id: {0, max(track.nbytes, 1)} for track in trace.allocations}
    for track in trace.allocations:
        for name in track.names:
            ends[track.id].update((name.lo, name.hi))
    levels = [seed.level for seed in trace.seeds if seed.level is not None]
    for part in (levels, *((*event.touches, *event.kept, *event.adjoint) for event in events)):
        for item in part:
            if item.allocation in ends:
                ends[item.allocation].update((item.lo, item.hi))
    return {track.id: _sorted(ends[track.id], max(track.nbytes, 1), most) for track in trace.allocations}


def _sorted(ends: Collection[int], size: int, most: int | None) -> tuple[int, ...]:
    if most is not None and len(ends) > most:
        ends = {round(k * size / (most // 2)) for k in range(most // 2 + 1)}
    return tuple(sorted(end for end in ends if 0 <= end <= size))


def lanes_of(trace: Trace, events: Sequence[EventColumn], cuts: Mapping[str, tuple[int, ...]]) -> dict[str, Lane]:
    """The lane of each allocation, with tracks as high as what these events access needs."""
    sizes = {track.id: {name.hi - name.lo for name in track.names} for track in trace.allocations}
    for event in events:
        for item in (*event.touches, *event.adjoint):
            sizes.setdefault(item.allocation, set()).add(item.hi - item.lo)
    heights = {key: _track_height(ends, max(min(sizes.get(key) or ends[-1:]), 1)) for key, ends in cuts.items()}
    return {track.id: Lane(track, heights[track.id], cuts[track.id]) for track in trace.allocations}


def _track_height(ends: tuple[int, ...], smallest: int) -> float:
    """Tall enough that the shortest range can carry a label, within bounds."""
    if len(ends) == 2:
        return BAND
    return min(max(BAND_MIN * ends[-1] / smallest, 2 * BAND), TRACK_MAX)


def pieces(cuts: Sequence[int], lo: int, hi: int) -> tuple[int, int]:
    """The half-open run of pieces that bytes [lo, hi) meet."""
    most = len(cuts) - 1
    if most == 1:
        return 0, 1
    first = min(max(bisect_right(cuts, lo) - 1, 0), most - 1)
    return first, max(min(bisect_left(cuts, hi), most), first + 1)


def runs(
    cells: Sequence[_Cell], first: int, last: int, same: Callable[[_Cell, _Cell], bool] = is_
) -> Iterator[tuple[int, int, _Cell]]:
    """Runs of neighbours, as of pieces that hold the identical object."""
    start = first
    for n in range(first + 1, last + 1):
        if n == last or not same(cells[n], cells[start]):
            yield start, n, cells[start]
            start = n


# ---- versions, from left to right


def versions_of(trace: Trace, cuts: Mapping[str, tuple[int, ...]]) -> list[VersionBlock]:
    """Every version of every piece, except initial contents that nobody read."""
    walk = PieceValues(trace.events, cuts)
    for position, event in enumerate(trace.events):
        walk.use(event.touches)
        for touch in event.touches:
            if touch.allocation in walk.held and touch.how != "read":
                walk.write(touch, position)
    for key, held in walk.held.items():
        walk.close(key, 0, len(held), len(trace.events))
    return walk.blocks


class PieceValues:
    """The version that each piece holds while events run. `used`: True if it has been read."""

    def __init__(self, events: Sequence[EventColumn], cuts: Mapping[str, tuple[int, ...]]):
        first: dict[str, int] = {}
        for event in events:
            for touch in event.touches:
                first.setdefault(touch.allocation, touch.version_before)
        self.cuts = cuts
        self.held = {key: [Version(first.get(key, 0), -1)] * (len(ends) - 1) for key, ends in cuts.items()}
        self.used = {key: [False] * len(held) for key, held in self.held.items()}
        self.blocks: list[VersionBlock] = []

    def use(self, touches: Sequence[TouchMark]) -> None:
        """Mark what an event reads or adds to as used."""
        for touch in touches:
            used = self.used.get(touch.allocation) if touch.how != "write" else None
            if used is not None:
                i, j = (0, 1) if len(used) == 1 else pieces(self.cuts[touch.allocation], touch.lo, touch.hi)
                used[i:j] = [True] * (j - i)

    def write(self, touch: TouchMark, position: int) -> None:
        cuts = self.cuts[touch.allocation]
        i, j = pieces(cuts, touch.lo, touch.hi)
        self.close(touch.allocation, i, j, position)
        partly = touch.lo > cuts[i] or touch.hi < cuts[j]
        version = Version(touch.version_after or 0, position, touch.strided, partly)
        self.held[touch.allocation][i:j] = [version] * (j - i)

    def close(self, key: str, first: int, last: int, position: int) -> None:
        cuts, held, used = self.cuts[key], self.held[key], self.used[key]
        if len(held) == 1:  # most memory is one piece, and a tape may have very many events
            version = held[0]
            if version.since < position and (used[0] or version.since >= 0):
                self.blocks.append(VersionBlock(key, 0, cuts[1], version, version.since, position))
            return
        shown = [held[n] if used[n] or held[n].since >= 0 else None for n in range(first, last)]
        for i, j, version in runs(shown, 0, last - first):
            if version is not None and version.since < position:
                ends = cuts[first + i], cuts[first + j]
                self.blocks.append(VersionBlock(key, *ends, version, version.since, position))


# ---- adjoints, from right to left


@dataclass(frozen=True, slots=True)
class _Level:
    """A level on a piece, with the moment before which it holds."""

    level: AdjointLevel | None
    until: int
    given: bool = False


class Adjoints:
    """The bars of one reverse pass, and per (event, touch) the `TouchAdjoint`; `watched`: events to record flows of."""

    def __init__(
        self,
        trace: Trace,
        cuts: Mapping[str, tuple[int, ...]],
        levels: Sequence[Sequence[AdjointLevel]],
        seeds: Sequence[Seed],
        watched: Collection[int],
    ):
        self.cuts = cuts
        self.bars: list[Bar] = []
        self.flows: dict[tuple[int, int], TouchAdjoint] = {}
        count = len(trace.events)
        nothing = _Level(None, count)
        self.held = {key: [nothing] * (len(ends) - 1) for key, ends in cuts.items()}
        for seed in seeds:
            if seed.level is not None and seed.level.allocation in self.held:
                self._put(seed.level, count, False)
        for position in range(count - 1, -1, -1):
            self._step(position, trace.events[position], levels[position], position in watched)
        for key, held in self.held.items():
            self._close(key, 0, len(held), -1)

    def _step(self, position: int, event: EventColumn, levels: Sequence[AdjointLevel], watched: bool) -> None:
        after = [self._present_level(touch) for touch in event.touches] if watched else []
        touched = {touch.allocation for touch in event.touches} if levels else ()
        for level in levels:
            if level.allocation in self.held:
                self._put(level, position, level.allocation in touched)
        for n, came in enumerate(after):
            self.flows[position, n] = TouchAdjoint(self._present_level(event.touches[n]), came)

    def _present_level(self, touch: TouchMark) -> AdjointLevel | None:
        if touch.allocation not in self.held:
            return None
        held = self.held[touch.allocation]
        if len(held) == 1:
            return held[0].level
        i, j = pieces(self.cuts[touch.allocation], touch.lo, touch.hi)
        found = [cell.level for _, _, cell in runs(held, i, j)]
        return join_levels([level for level in found if level is not None])

    def _put(self, level: AdjointLevel, position: int, given: bool) -> None:
        held, cuts = self.held[level.allocation], self.cuts[level.allocation]
        i, j = pieces(cuts, level.lo, level.hi)
        if not given and all(cell.level == level for cell in held[i:j]):
            return
        if level.lo > cuts[i] or level.hi < cuts[j]:
            # An event changed a part of a piece: the piece shows the worst of what its parts hold.
            old = [cell.level for _, _, cell in runs(held, i, j) if cell.level is not None]
            joined = join_levels([*old, level]) or level  # an upper bound, of an unknown l2
            level = replace(joined, lo=level.lo, hi=level.hi, l2=MIXED, contributions=0, unknown=level.unknown)
        self._close(level.allocation, i, j, position)
        held[i:j] = [_Level(None if level.unknown else level, position, given)] * (j - i)

    def _close(self, key: str, first: int, last: int, position: int) -> None:
        cuts = self.cuts[key]
        for i, j, cell in runs(self.held[key], first, last):
            if position < cell.until:
                self.bars.append(Bar(key, cuts[i], cuts[j], cell.level, position, cell.until, cell.given))
