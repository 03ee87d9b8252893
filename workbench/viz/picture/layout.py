"""Where everything goes: one pass from left to right for values, one from right to left for adjoints.

There is nothing to solve: events are totally ordered (x is given), bytes are disjoint intervals (y is given).
Each allocation is cut at the ends of the ranges that *shown* events name; hidden events of a long tape only
update these pieces, so the time is linear in the number of events and the state right of the gap is true.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..data.trace import MIXED, AdjointLevel, AllocationTrack, EventColumn, TouchMark, Trace, join_levels

MARK_BUDGET = 2000
LANE_BUDGET = 48
WIDTH_CAP = 3200
LEFT, RIGHT, MARGIN = 280.0, 30.0, 16.0
PITCH, PITCH_MAX, PITCH_MIN = 128.0, 190.0, 36.0
GAP_WIDTH = 176.0
BAND, BAND_MIN, TRACK_MAX = 15.0, 14.0, 72.0
NAME_BUDGET = 6
_Cell = TypeVar("_Cell")


@dataclass(frozen=True, slots=True)
class Version:
    """The bytes of a piece between two writes. `mixed`: hidden events gave parts of it different versions."""

    number: int
    x0: float
    strided: bool = False
    mixed: bool = False
    event: EventColumn | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One version of bytes [lo, hi) on the value track, from x0 to x1."""

    allocation: str
    lo: int
    hi: int
    version: Version
    x0: float
    x1: float


@dataclass(frozen=True, slots=True)
class Bar:
    """One adjoint level of bytes [lo, hi) on the adjoint track; None where no adjoint has arrived.

    `event` is the event whose reverse step gave it; None for a seed or where nothing arrived."""

    allocation: str
    lo: int
    hi: int
    level: AdjointLevel | None
    x0: float
    x1: float
    event: EventColumn | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """The adjoint of what a touch wrote (`after` the event) or read (`before` it), for one shown event."""

    before: AdjointLevel | None
    after: AdjointLevel | None


@dataclass(frozen=True, slots=True)
class Lane:
    """One allocation's row: the value track, the adjoint track, and `cuts`, the byte ends of its pieces."""

    track: AllocationTrack
    top: float
    height: float
    value_top: float
    value_height: float
    adjoint_top: float
    adjoint_height: float
    cuts: tuple[int, ...]

    def value_span(self, lo: int, hi: int) -> tuple[float, float]:
        return self._span(lo, hi, self.value_top, self.value_height)

    def adjoint_span(self, lo: int, hi: int) -> tuple[float, float]:
        return self._span(lo, hi, self.adjoint_top, self.adjoint_height)

    def _span(self, lo: int, hi: int, top: float, height: float) -> tuple[float, float]:
        """Top and height of bytes [lo, hi); never thinner than 2, so that nothing vanishes."""
        size = max(self.track.nbytes, 1)
        lo, hi = max(0, min(lo, size)), max(0, min(hi, size))
        tall = max((hi - lo) / size * height, 2.0)
        return min(top + lo / size * height, top + height - tall), tall


@dataclass(frozen=True, slots=True)
class Column:
    """One shown event and the x of its moment."""

    event: EventColumn
    position: int
    x: float


@dataclass(frozen=True, slots=True)
class Gap:
    """The events that are not drawn, and the strip that says so."""

    events: Sequence[EventColumn]
    x0: float
    x1: float


@dataclass(frozen=True)
class Layout:
    trace: Trace
    columns: tuple[Column, ...]
    gap: Gap | None
    lanes: dict[str, Lane]
    hidden_lanes: int
    pitch: float
    header: float
    top: float
    bottom: float
    right: float
    width: float
    height: float
    blocks: list[Block] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    flows: dict[tuple[int, int], Flow] = field(default_factory=dict)


def visible(trace: Trace, budget: int = MARK_BUDGET) -> tuple[int, int]:
    """How many events are drawn from the start and from the end: all of them, or what the mark budget allows."""
    total = len(trace.events)
    room = budget - 14 * min(len(trace.allocations), LANE_BUDGET) - 40
    most = int((WIDTH_CAP - LEFT - RIGHT) / PITCH_MIN)
    head, tail = 0, 0
    while head + tail < min(total, most + 1) and room > 0:
        event = trace.events[head] if head <= tail else trace.events[total - 1 - tail]
        room -= _weight(event)
        head, tail = (head + 1, tail) if head <= tail else (head, tail + 1)
    if head + tail >= total and room > 0:
        return total, 0
    most -= int(GAP_WIDTH / PITCH_MIN) + 1
    head, tail = min(head, (most + 1) // 2), min(tail, most // 2)
    return max(head, 1), max(tail, 1)


def _weight(event: EventColumn) -> int:
    """A generous guess at the marks that one event costs."""
    return 6 + 4 * len(event.touches) + 2 * len(event.kept) + 3 * len(event.adjoint) + len(event.arrows or ())


def shown_events(trace: Trace, budget: int = MARK_BUDGET) -> list[tuple[int, EventColumn]]:
    """The drawn events with their positions."""
    return both_ends(trace, *visible(trace, budget))


def both_ends(trace: Trace, head: int, tail: int) -> list[tuple[int, EventColumn]]:
    """The first and the last events with their positions; all of them if that is all there are."""
    total = len(trace.events)
    if head + tail >= total:
        return list(enumerate(trace.events))
    return [(n, trace.events[n]) for n in (*range(head), *range(total - tail, total))]


def cut_memory(trace: Trace, events: Sequence[EventColumn]) -> dict[str, tuple[int, ...]]:
    """For each allocation the sorted byte ends of every range that its names and the given events mention."""
    ends: dict[str, set[int]] = {track.id: {0, max(track.nbytes, 1)} for track in trace.allocations}
    for track in trace.allocations:
        for name in track.names:
            ends[track.id].update((name.lo, name.hi))
    levels = [seed.level for seed in trace.seeds if seed.level is not None]
    for part in (levels, *((*event.touches, *event.kept, *event.adjoint) for event in events)):
        for item in part:
            if item.allocation in ends:
                ends[item.allocation].update((item.lo, item.hi))
    size = {track.id: max(track.nbytes, 1) for track in trace.allocations}
    return {key: tuple(sorted(end for end in found if 0 <= end <= size[key])) for key, found in ends.items()}


def pieces(cuts: Sequence[int], lo: int, hi: int) -> tuple[int, int]:
    """The half-open run of pieces that bytes [lo, hi) meet."""
    most = len(cuts) - 1
    if most == 1:
        return 0, 1
    first = min(max(bisect_right(cuts, lo) - 1, 0), most - 1)
    return first, max(min(bisect_left(cuts, hi), most), first + 1)


def runs(cells: Sequence[_Cell], first: int, last: int) -> Iterator[tuple[int, int, _Cell]]:
    """Neighbouring pieces that hold the very same object."""
    start = first
    for n in range(first + 1, last + 1):
        if n == last or cells[n] is not cells[start]:
            yield start, n, cells[start]
            start = n


def arrange(
    trace: Trace,
    shown: list[tuple[int, EventColumn]],
    label_width: float = 0.0,
    header: float = 86.0,
    lane_budget: int = LANE_BUDGET,
) -> Layout:
    """Positions of everything, for the events in `shown` (see `both_ends`).

    `label_width` is the width of the widest event label, `header` the height above the lanes."""
    columns, gap, pitch, right = place_columns(trace, shown, label_width)
    events = [event for _, event in shown]
    tracks = _shown_tracks(trace, events, lane_budget)
    lanes, bottom = _lanes(tracks, cut_memory(trace, events), _smallest_ranges(trace, events), header)
    layout = Layout(
        trace,
        columns,
        gap,
        lanes,
        len(trace.allocations) - len(tracks),
        pitch,
        header,
        header,
        bottom,
        right,
        right + RIGHT,
        bottom,
    )
    _walk_values(layout)
    _walk_adjoints(layout)
    return layout


def place_columns(
    trace: Trace, shown: list[tuple[int, EventColumn]], label_width: float
) -> tuple[tuple[Column, ...], Gap | None, float, float]:
    """The columns, the gap, the distance between columns and the right end of the tracks."""
    hidden = len(trace.events) - len(shown)
    room = WIDTH_CAP - LEFT - RIGHT - (GAP_WIDTH if hidden else 0.0)
    natural = min(max(label_width + 28.0, PITCH), PITCH_MAX)
    pitch = max(PITCH_MIN, min(natural, room / max(len(shown), 1)))
    columns, x, gap = [], LEFT + 0.54 * pitch, None
    for place, (position, event) in enumerate(shown):
        if hidden and position != place and gap is None:
            start = x - 0.46 * pitch
            gap = Gap(trace.events[place:position], start, start + GAP_WIDTH)
            x += GAP_WIDTH
        columns.append(Column(event, position, x))
        x += pitch
    right = max(x - 0.46 * pitch, LEFT + 3.5 * PITCH)
    return tuple(columns), gap, pitch, right


def _shown_tracks(trace: Trace, events: Sequence[EventColumn], budget: int) -> list[AllocationTrack]:
    """All allocations, or, if they are too many, the first ones that a shown event touches."""
    if len(trace.allocations) <= budget:
        return list(trace.allocations)
    touched = {touch.allocation for event in events for touch in event.touches}
    return [track for track in trace.allocations if track.id in touched][:budget]


def _lanes(
    tracks: Sequence[AllocationTrack], cuts: dict[str, tuple[int, ...]], smallest: dict[str, int], top: float
) -> tuple[dict[str, Lane], float]:
    lanes = {}
    for track in tracks:
        ends = cuts[track.id]
        value = adjoint = _track_height(ends, smallest.get(track.id, ends[-1]))
        height = max(value + adjoint + 32.0, 30.0 + 24.0 * chip_rows(track))
        lanes[track.id] = Lane(track, top, height, top + 10, value, top + 20 + value, adjoint, ends)
        top += height
    return lanes, top


def chip_rows(track: AllocationTrack) -> int:
    """Rows that the name labels need: whole names share rows in pairs, names with a range stand alone."""
    names = track.names[:NAME_BUDGET]
    wide = sum(track.partial(name.lo, name.hi) or len(name.name) > 9 for name in names)
    return wide + (len(names) - wide + 1) // 2 + (len(track.names) > NAME_BUDGET)


def _smallest_ranges(trace: Trace, events: Sequence[EventColumn]) -> dict[str, int]:
    """Per allocation the bytes of the shortest range that a name, an access or a level has."""
    found = {track.id: [name.hi - name.lo for name in track.names] for track in trace.allocations}
    for event in events:
        for item in (*event.touches, *event.adjoint):
            found.setdefault(item.allocation, []).append(item.hi - item.lo)
    return {key: max(min(sizes), 1) for key, sizes in found.items() if sizes}


def _track_height(ends: tuple[int, ...], smallest: int) -> float:
    """Tall enough that the shortest range can carry a label, within bounds."""
    if len(ends) == 2:
        return BAND
    return min(max(BAND_MIN * ends[-1] / smallest, 2 * BAND), TRACK_MAX)


def _moments(layout: Layout) -> Iterator[tuple[EventColumn, int | None, float, float]]:
    """Every event in order with its column (None if hidden) and where blocks end and begin at its moment."""
    if layout.gap is None:
        cut, skip = len(layout.columns), 0
    else:
        cut = next(n for n, column in enumerate(layout.columns) if column.position != n)
        skip = len(layout.gap.events)
    for n, event in enumerate(layout.trace.events):
        if n < cut or n >= cut + skip:
            place = n if n < cut else n - skip
            x = layout.columns[place].x
            yield event, place, x - 3, x + 3
        else:
            yield event, None, layout.gap.x0, layout.gap.x1


def _walk_values(layout: Layout) -> None:
    first = _first_versions(layout.trace)
    cells = {key: [Version(first.get(key, 0), LEFT)] * (len(lane.cuts) - 1) for key, lane in layout.lanes.items()}
    used = {key: [False] * len(held) for key, held in cells.items()}
    for event, _, end, begin in _moments(layout):
        for touch in event.touches:
            if touch.allocation in cells and touch.how != "write":
                i, j = pieces(layout.lanes[touch.allocation].cuts, touch.lo, touch.hi)
                used[touch.allocation][i:j] = [True] * (j - i)
        for touch in event.touches:
            if touch.allocation in cells and touch.how != "read":
                _write(layout, cells[touch.allocation], used[touch.allocation], event, touch, end, begin)
    for key, held in cells.items():
        _close(layout, key, held, used[key], 0, len(held), layout.right)


def _first_versions(trace: Trace) -> dict[str, int]:
    first: dict[str, int] = {}
    for event in trace.events:
        for touch in event.touches:
            first.setdefault(touch.allocation, touch.version_before)
    return first


def _write(
    layout: Layout,
    held: list[Version],
    used: list[bool],
    event: EventColumn,
    touch: TouchMark,
    end: float,
    begin: float,
) -> None:
    cuts = layout.lanes[touch.allocation].cuts
    i, j = pieces(cuts, touch.lo, touch.hi)
    _close(layout, touch.allocation, held, used, i, j, end)
    partly = touch.lo > cuts[i] or touch.hi < cuts[j]
    held[i:j] = [Version(touch.version_after or 0, begin, touch.strided, partly, event)] * (j - i)


def _close(layout: Layout, key: str, held: list[Version], used: list[bool], first: int, last: int, end: float) -> None:
    """Write down the blocks that end here. What nobody read before it was overwritten is no version worth a block."""
    cuts = layout.lanes[key].cuts
    shown = [cell if used[n] or cell.event is not None else None for n, cell in enumerate(held[first:last], first)]
    for i, j, version in runs(shown, 0, last - first):
        if version is not None and version.x0 < end:
            layout.blocks.append(Block(key, cuts[first + i], cuts[first + j], version, version.x0, end))


@dataclass(frozen=True, slots=True)
class _Level:
    """A level on a piece, with the x where its bar ends on the right and the event that put it there."""

    level: AdjointLevel | None
    x1: float
    event: EventColumn | None


def _walk_adjoints(layout: Layout) -> None:
    nothing = _Level(None, layout.right, None)
    cells = {key: [nothing] * (len(lane.cuts) - 1) for key, lane in layout.lanes.items()}
    for seed in layout.trace.seeds:
        if seed.level is not None and seed.level.allocation in cells:
            _put(layout, cells, seed.level, None, layout.right, layout.right)
    for event, place, end, begin in reversed(list(_moments(layout))):
        after = [] if place is None else [_look(layout, cells, touch) for touch in event.touches]
        touched = {touch.allocation for touch in event.touches}
        for level in event.adjoint:
            if level.allocation in cells:
                _put(layout, cells, level, event if level.allocation in touched else None, begin, end)
        if place is not None:
            for n, touch in enumerate(event.touches):
                layout.flows[place, n] = Flow(_look(layout, cells, touch), after[n])
    for key, held in cells.items():
        _bars(layout, key, held, 0, len(held), LEFT)


def _look(layout: Layout, cells: dict[str, list[_Level]], touch: TouchMark) -> AdjointLevel | None:
    if touch.allocation not in cells:
        return None
    i, j = pieces(layout.lanes[touch.allocation].cuts, touch.lo, touch.hi)
    found = [cell.level for _, _, cell in runs(cells[touch.allocation], i, j)]
    return join_levels([level for level in found if level is not None])


def _put(
    layout: Layout,
    cells: dict[str, list[_Level]],
    level: AdjointLevel,
    event: EventColumn | None,
    begin: float,
    end: float,
) -> None:
    held, cuts = cells[level.allocation], layout.lanes[level.allocation].cuts
    i, j = pieces(cuts, level.lo, level.hi)
    if event is None and all(cell.level == level for cell in held[i:j]):
        return
    if level.lo > cuts[i] or level.hi < cuts[j]:
        # A hidden event changed a part of a piece: the piece shows the worst of what its parts hold.
        old = [cell.level for _, _, cell in runs(held, i, j) if cell.level is not None]
        level = _mixed(old, level)
    _bars(layout, level.allocation, held, i, j, begin)
    held[i:j] = [_Level(level, end, event)] * (j - i)


def _mixed(old: list[AdjointLevel], level: AdjointLevel) -> AdjointLevel:
    """An upper bound for a piece that changed in parts; -1 for its L2 norm, which is unknown, says so."""
    levels = [*old, level]
    return AdjointLevel(
        level.allocation,
        level.lo,
        level.hi,
        max(item.max_abs for item in levels),
        MIXED,
        any(item.nan for item in levels),
        any(item.inf for item in levels),
        all(item.zero for item in levels),
    )


def _bars(layout: Layout, key: str, held: list[_Level], first: int, last: int, begin: float) -> None:
    """Write down the bars whose left end is here."""
    cuts = layout.lanes[key].cuts
    for i, j, cell in runs(held, first, last):
        if begin < cell.x1:
            layout.bars.append(Bar(key, cuts[i], cuts[j], cell.level, begin, cell.x1, cell.event))
