"""The layout of the static picture: its columns, and the x of what lies on the lanes.

Allocations are cut at the ends of the ranges that *shown* events name; hidden events of a long tape only update these
pieces, so the state right of the gap is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from ..data.against import PassComparison
from ..data.envelope import ALL, Bars, Scale, ill_blocks, scale_of, sizes_of, version_bars
from ..data.families import families
from ..data.lanes import (
    Adjoints,
    Bar,
    FamilyLane,
    Lane,
    TouchAdjoint,
    VersionBlock,
    by_lane,
    cut_memory,
    rows_of,
    versions_of,
)
from ..data.marks import MOMENT, PASSES
from ..data.text import clean
from ..data.trace import AllocationTrack, EventColumn, Fold, Trace

MARK_BUDGET = 2000
LANE_BUDGET = 48
FEW_LANES = 12  # up to which none of them fold
WIDTH_CAP = 3200
LEFT, RIGHT, MARGIN = 280.0, 30.0, 16.0
PITCH, PITCH_MAX, PITCH_MIN = 128.0, 190.0, 36.0
GAP_WIDTH, GROUP_WIDTH, GROUPS_WIDTH = 176.0, 620.0, 1500.0  # of a group at least, at most; of all at most
OPEN = 60  # events up to which nothing is folded
FOLDS = 8  # columns of folds
PIECES = 64  # of a lane, from which its envelopes are of equal parts
_Part = TypeVar("_Part", Bar, VersionBlock)


@dataclass(frozen=True, slots=True)
class PlacedBlock(VersionBlock):
    """One version on the value track, from x0 to x1."""

    x0: float = 0.0
    x1: float = 0.0


@dataclass(frozen=True, slots=True)
class PlacedBar(Bar):
    """One adjoint level on the adjoint track, from x0 to x1."""

    x0: float = 0.0
    x1: float = 0.0


@dataclass(frozen=True, slots=True)
class Column:
    """One shown event and the x of its moment."""

    event: EventColumn
    position: int
    x: float


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """Events from `first` on that share one column: a fold, or the middle of a long tape. `within`: those inside."""

    events: Sequence[EventColumn]
    first: int
    within: str
    x0: float
    x1: float
    fold: Fold | None = None

    @property
    def last(self) -> int:
        return self.first + len(self.events)

    @property
    def name(self) -> str:
        """`step ×200`, or `springs #3-#40`."""
        if self.fold is not None:
            return self.fold.name
        names = list(dict.fromkeys(event.label for event in self.events if event.index >= 0))
        return f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''} {self.within.replace('..', '-')}"

    def columns(self, room: int) -> int:
        """The number of thin columns it gets of `room`: whole turns of a loop, if all of them fit."""
        if any(event.count != 1 for event in self.events):  # some stand for others, out of order
            return 1
        turns = self.fold.count if self.fold is not None else 1
        return turns * (room // turns) if turns <= room < len(self.events) else room

    def x(self, position: int) -> float:
        """The x of an event inside the group."""
        return self.x0 + (self.x1 - self.x0) * (position + 0.5 - self.first) / len(self.events)


@dataclass(frozen=True)
class Layout:
    trace: Trace
    columns: tuple[Column, ...]
    groups: tuple[ColumnGroup, ...]
    lanes: dict[str, Lane]
    hidden_lanes: int
    pitch: float
    header: float
    top: float
    bottom: float
    right: float
    width: float
    height: float
    blocks: list[PlacedBlock] = field(default_factory=list)
    bars: list[PlacedBar] = field(default_factory=list)
    flows: dict[tuple[int, int], TouchAdjoint] = field(default_factory=dict)
    scale: Scale = ALL
    against: PassComparison | None = None  # the other pass, with its bars and flows
    others: dict[str, list[PlacedBar]] = field(default_factory=dict)
    other_flows: dict[tuple[int, int], TouchAdjoint] = field(default_factory=dict)
    group_bars: dict[str, Bars] = field(
        default_factory=dict
    )  # of every lane, drawn or not; only where there are groups
    other_bars: dict[str, Bars] = field(default_factory=dict)  # the same of the other pass
    version_bars: dict[str, Bars] = field(default_factory=dict)
    folded: dict[str, Lane] = field(default_factory=dict)  # of every allocation in a family the row of that

    def passes(self, row: str, tall: float) -> list[tuple[Bars, float, float, str]]:
        """The passes drawn as strips in a row: each with its offset from the middle, largest thickness and look."""
        if self.against is None:
            return [(self.group_bars[row], 0.0, tall, "")]
        return [(bars[row], *look) for bars, look in zip((self.group_bars, self.other_bars), PASSES, strict=True)]

    @property
    def places(self) -> dict[str, Lane]:
        """The lane of each allocation, its own or its family's."""
        return self.lanes | self.folded

    def place(self, position: int) -> float:
        """The x of an event, wherever it is drawn; the right end for the moment after the last one."""
        for column in self.columns:
            if column.position == position:
                return column.x
        return next((g.x(position) for g in self.groups if g.first <= position < g.last), self.right)

    def moment(self, position: int) -> str:
        """The name of the event that the reverse pass came from at a moment."""
        events = self.trace.events
        return clean(events[position].heading) if position < len(events) else "the seed"


def visible(events: Sequence[EventColumn], lanes: int, budget: int) -> tuple[int, int]:
    """(head, tail): the numbers of events drawn from the start and from the end, all or within the mark budget."""
    total = len(events)
    room = budget - 22 * min(lanes, LANE_BUDGET) - 40
    most = int((WIDTH_CAP - LEFT - RIGHT) / PITCH_MIN)
    head, tail = 0, 0
    while head + tail < min(total, most + 1) and room > 0:
        event = events[head] if head <= tail else events[total - 1 - tail]
        room -= _weight(event)
        head, tail = (head + 1, tail) if head <= tail else (head, tail + 1)
    if head + tail >= total and room > 0:
        return total, 0
    most -= int(GAP_WIDTH / PITCH_MIN) + 1
    head, tail = min(head, (most + 1) // 2), min(tail, most // 2)
    return max(head, 1), max(tail, 1)


def _weight(event: EventColumn) -> int:
    """An upper estimate of the marks that one event costs."""
    return 6 + 4 * len(event.touches) + 2 * len(event.kept) + 3 * len(event.adjoint) + len(event.arrows or ())


def shown_events(trace: Trace, budget: int = MARK_BUDGET) -> list[tuple[int, EventColumn]]:
    """The events that are drawn one by one, with their positions: of a long tape those outside of its folds."""
    shut = shut_folds(trace)
    singles = [(n, event) for n, event in enumerate(trace.events) if not any(f.first <= n < f.last for f in shut)]
    head, tail = visible([event for _, event in singles], len(trace.allocations), budget - 60 * len(shut))
    return singles if head + tail >= len(singles) else [*singles[:head], *singles[len(singles) - tail :]]


def shut_folds(trace: Trace) -> list[Fold]:
    """The outermost folds of a long tape: each is one column. None where they are too many."""
    found = [fold for fold in trace.folds if fold.parent == -1 and fold.last - fold.first > 1]
    return found if len(trace.events) > OPEN and len(found) <= FOLDS else []


def both_ends(trace: Trace, head: int, tail: int) -> list[tuple[int, EventColumn]]:
    """The first and the last events with their positions; all of them if that is all there are."""
    total = len(trace.events)
    if head + tail >= total:
        return list(enumerate(trace.events))
    return [(n, trace.events[n]) for n in (*range(head), *range(total - tail, total))]


def arrange(
    trace: Trace,
    shown: list[tuple[int, EventColumn]],
    label_width: float = 0.0,
    header: float = 86.0,
    lane_budget: int = LANE_BUDGET,
    against: PassComparison | None = None,
    fold: bool = True,
) -> Layout:
    """The layout for the events in `shown` (see `both_ends`).

    `label_width` is the width of the widest event label, `header` the height above the lanes; `fold`: True if many
    lanes of one kind may share a row.
    """
    columns, groups, pitch, right = place_columns(trace, shown, label_width)
    events = [event for _, event in shown]
    rows = _rows(trace, fold)
    tracks = _shown_tracks(rows, trace.events if any(g.fold for g in groups) else events, lane_budget)
    inside = {row.id: members for row, members in rows if row in tracks and members}
    cuts = cut_memory(trace, events) | dict.fromkeys(inside, (0, 1))
    lanes = rows_of(trace, tracks, events, {track.id: cuts[track.id] for track in tracks}, header)
    folded: dict[str, Lane] = {}
    for key, members in inside.items():
        lanes[key] = FamilyLane(*(getattr(lanes[key], item.name) for item in fields(Lane)))
        folded.update((member.id, lanes[key]) for member in members)
    cuts = {key: cuts[key] for key in [*lanes, *folded] if key not in inside}
    bottom = max((lane.top + lane.height for lane in lanes.values()), default=header)
    layout = Layout(
        trace,
        columns,
        groups,
        lanes,
        len(trace.allocations) - len(cuts),
        pitch,
        header,
        header,
        bottom,
        right,
        right + RIGHT,
        bottom,
        scale=_scale(trace, against),
        against=against,
        folded=folded,
    )
    levels = [event.adjoint for event in trace.events]
    blocks = versions_of(trace, cuts)
    for n, state in ill_blocks(blocks, trace.values).items():
        blocks[n] = replace(blocks[n], state=state)
    found = Adjoints(trace, cuts, levels, trace.seeds, {position for position, _ in shown})
    layout.blocks.extend(_place(layout, PlacedBlock, [block for block in blocks if block.allocation in lanes]))
    layout.bars.extend(_place(layout, PlacedBar, [bar for bar in found.bars if bar.allocation in lanes]))
    layout.flows.update(found.flows)
    if against is not None:
        other = Adjoints(trace, cuts, against.other.events, against.other.seeds, {position for position, _ in shown})
        layout.others.update(by_lane(_place(layout, PlacedBar, other.bars)))
        layout.other_flows.update(other.flows)
    if groups or folded:
        _group_bars(layout, blocks, found, cuts)
    return layout


def _group_bars(
    layout: Layout, blocks: Sequence[VersionBlock], found: Adjoints, cuts: dict[str, tuple[int, ...]]
) -> None:
    """The blocks and bars of all lanes, exact for events that are not drawn too."""
    trace, against = layout.trace, layout.against
    whole = cut_memory(trace, trace.events, PIECES)
    row_of = {key: key for key in layout.lanes} | {key: lane.track.id for key, lane in layout.folded.items()}
    whole = {key: whole[key] for key in row_of if key in whole}
    if whole != cuts:
        found = Adjoints(trace, whole, [event.adjoint for event in trace.events], trace.seeds, ())
    layout.group_bars.update((key, Bars.of(some)) for key, some in _by_row(layout, row_of, found.bars).items())
    versions = _by_row(layout, row_of, blocks)
    layout.version_bars.update((key, version_bars(some)) for key, some in versions.items())
    if against is not None:
        bars = Adjoints(trace, whole, against.other.events, against.other.seeds, ()).bars
        layout.other_bars.update((key, Bars.of(some)) for key, some in _by_row(layout, row_of, bars).items())


def _by_row(layout: Layout, row_of: dict[str, str], found: Iterable[_Part]) -> dict[str, list[_Part]]:
    rows: dict[str, list[_Part]] = {key: [] for key in layout.lanes}
    for one in found:
        rows[row_of[one.allocation]].append(one)
    return rows


def _scale(trace: Trace, against: PassComparison | None) -> Scale:
    """The scale of thickness that fits every adjoint of the trace, drawn or not, and those of another pass."""
    levels = [level for event in trace.events for level in event.adjoint]
    seeds = list(trace.seeds)
    if against is not None:
        levels += [level for some in against.other.events for level in some]
        seeds += against.other.seeds
    return scale_of(sizes_of([*levels, *(seed.level for seed in seeds if seed.level is not None)]))


def place_columns(
    trace: Trace, shown: list[tuple[int, EventColumn]], label_width: float
) -> tuple[tuple[Column, ...], tuple[ColumnGroup, ...], float, float]:
    """The columns, the groups of the other events, the distance between columns and the right end of the tracks."""
    hidden = _hidden(trace, shown)
    widths = [_group_width(last - first, fold) for first, last, fold in hidden]
    shrink = min(GROUPS_WIDTH / max(sum(widths), 1), 1)
    room = WIDTH_CAP - LEFT - RIGHT - shrink * sum(widths)
    natural = min(max(label_width + 28.0, PITCH), PITCH_MAX)
    pitch = max(PITCH_MIN, min(natural, room / max(len(shown), 1)))
    columns, groups, x = [], [], LEFT + 0.08 * pitch
    starting = {first: (last, fold, shrink * wide) for (first, last, fold), wide in zip(hidden, widths, strict=True)}
    for position in sorted([*starting, *(position for position, _ in shown)]):
        if position in starting:
            last, fold, wide = starting[position]
            groups.append(_group(trace, position, last, (x, x + wide), fold))
        else:
            wide = pitch
            columns.append(Column(trace.events[position], position, x + 0.46 * pitch))
        x += wide
    return tuple(columns), tuple(groups), pitch, max(x, LEFT + 3.5 * PITCH)


def _group(trace: Trace, first: int, last: int, ends: tuple[float, float], fold: Fold | None) -> ColumnGroup:
    events = trace.events
    low = events[first - 1].index + 1 if first else events[0].index
    high = events[last].index - 1 if last < len(events) else events[-1].index
    return ColumnGroup(events[first:last], first, f"#{low}..#{high}", *ends, fold)


def _hidden(trace: Trace, shown: list[tuple[int, EventColumn]]) -> list[tuple[int, int, Fold | None]]:
    """Runs of events that are not in `shown`, those of a shut fold on their own, as (first, last, fold)."""
    there = {position for position, _ in shown}
    shut = {fold.first: fold for fold in shut_folds(trace) if not there & set(range(fold.first, fold.last))}
    found, n, total = [], 0, len(trace.events)
    while n < total:
        fold = shut.get(n)
        last = n + 1 if fold is None else fold.last
        if fold is None and n not in there:
            while last < total and last not in there and last not in shut:
                last += 1
        if fold is not None or n not in there:
            found.append((n, last, fold))
        n = last
    return found


def _group_width(events: int, fold: Fold | None) -> float:
    return GAP_WIDTH if fold is None else min(max(GAP_WIDTH, 3.0 * fold.count, 1.5 * events), GROUP_WIDTH)


def _rows(trace: Trace, fold: bool) -> list[tuple[AllocationTrack, list[AllocationTrack]]]:
    """(track, members) of each row: allocations, or of many the families that they form."""
    tracks = list(trace.allocations)
    found = families(tracks) if fold and len(tracks) > FEW_LANES else []
    of = {number: n for n, family in enumerate(found) for number in family.members}
    rows = [(family.track(f"family-{n}"), [tracks[k] for k in family.members]) for n, family in enumerate(found)]
    first = {min(family.members): n for n, family in enumerate(found)}
    return [
        rows[first[k]] if k in first else (track, []) for k, track in enumerate(tracks) if k in first or k not in of
    ]


def _shown_tracks(
    rows: Sequence[tuple[AllocationTrack, list[AllocationTrack]]], events: Sequence[EventColumn], budget: int
) -> list[AllocationTrack]:
    """All rows, or, if they are too many, the first ones that a shown event touches."""
    if len(rows) <= budget:
        return [track for track, _ in rows]
    touched = {touch.allocation for event in events for touch in event.touches}
    return [track for track, members in rows if touched & {track.id, *(member.id for member in members)}][:budget]


def _place(layout: Layout, kind: Any, found: Sequence[Any]) -> Iterator[Any]:
    """Yields blocks or bars with their x; those between events that are not drawn have no width and are left out."""
    x = {column.position: (column.x + MOMENT, column.x - MOMENT) for column in layout.columns}
    for group in layout.groups:
        x.update(dict.fromkeys(range(group.first, group.last), (group.x1, group.x0)))
    x[-1], x[len(layout.trace.events)] = (LEFT, LEFT), (layout.right, layout.right)
    for one in found:
        x0, x1 = x[one.e0][0], x[one.e1][1]
        if x0 < x1:
            yield kind(*(getattr(one, item.name) for item in fields(one)), x0, x1)
