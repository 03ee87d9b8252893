"""Where everything of the static picture goes: its columns, and the x of what lies on the lanes.

Allocations are cut at the ends of the ranges that *shown* events name; hidden events of a long tape only update these
pieces, so the state right of the gap is true.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..data.against import Comparison
from ..data.envelope import ALL, Scale, ill_blocks, scale_of, sizes_of
from ..data.lanes import Adjoints, Bar, Block, Flow, Lane, cut_memory, rows_of, versions_of
from ..data.marks import MOMENT
from ..data.trace import AllocationTrack, EventColumn, Trace

MARK_BUDGET = 2000
LANE_BUDGET = 48
WIDTH_CAP = 3200
LEFT, RIGHT, MARGIN = 280.0, 30.0, 16.0
PITCH, PITCH_MAX, PITCH_MIN = 128.0, 190.0, 36.0
GAP_WIDTH = 176.0


@dataclass(frozen=True, slots=True)
class PlacedBlock(Block):
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
    blocks: list[PlacedBlock] = field(default_factory=list)
    bars: list[PlacedBar] = field(default_factory=list)
    flows: dict[tuple[int, int], Flow] = field(default_factory=dict)
    scale: Scale = ALL
    against: Comparison | None = None  # the other pass, with its bars and flows
    others: list[PlacedBar] = field(default_factory=list)
    other_flows: dict[tuple[int, int], Flow] = field(default_factory=dict)


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


def arrange(
    trace: Trace,
    shown: list[tuple[int, EventColumn]],
    label_width: float = 0.0,
    header: float = 86.0,
    lane_budget: int = LANE_BUDGET,
    against: Comparison | None = None,
) -> Layout:
    """Positions of everything, for the events in `shown` (see `both_ends`).

    `label_width` is the width of the widest event label, `header` the height above the lanes."""
    columns, gap, pitch, right = place_columns(trace, shown, label_width)
    events = [event for _, event in shown]
    tracks = _shown_tracks(trace, events, lane_budget)
    cuts = cut_memory(trace, events)
    cuts = {track.id: cuts[track.id] for track in tracks}
    lanes = rows_of(trace, tracks, events, cuts, header)
    bottom = max((lane.top + lane.height for lane in lanes.values()), default=header)
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
        scale=_scale(trace, against),
        against=against,
    )
    levels = [event.adjoint for event in trace.events]
    blocks = versions_of(trace, cuts)
    for n, state in ill_blocks(blocks, trace.values).items():
        blocks[n] = replace(blocks[n], state=state)
    found = Adjoints(trace, cuts, levels, trace.seeds, {position for position, _ in shown})
    layout.blocks.extend(_place(layout, PlacedBlock, blocks))
    layout.bars.extend(_place(layout, PlacedBar, found.bars))
    layout.flows.update(found.flows)
    if against is not None:
        other = Adjoints(trace, cuts, against.other.events, against.other.seeds, {position for position, _ in shown})
        layout.others.extend(_place(layout, PlacedBar, other.bars))
        layout.other_flows.update(other.flows)
    return layout


def _scale(trace: Trace, against: Comparison | None) -> Scale:
    """The scale of thickness that fits every adjoint of the trace, drawn or not, and those of another pass."""
    levels = [level for event in trace.events for level in event.adjoint]
    seeds = list(trace.seeds)
    if against is not None:
        levels += [level for some in against.other.events for level in some]
        seeds += against.other.seeds
    return scale_of(sizes_of([*levels, *(seed.level for seed in seeds if seed.level is not None)]))


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


def _place(layout: Layout, kind: Any, found: Sequence[Any]) -> Iterator[Any]:
    """What is seen of blocks and bars. What begins and ends at events that are not drawn has no width."""
    x = {column.position: column.x for column in layout.columns}
    gap, count = layout.gap, len(layout.trace.events)
    for one in found:
        x0 = LEFT if one.e0 < 0 else x[one.e0] + MOMENT if one.e0 in x else gap.x1  # type: ignore[union-attr]
        x1 = layout.right if one.e1 == count else x[one.e1] - MOMENT if one.e1 in x else gap.x0  # type: ignore[union-attr]
        if x0 < x1:
            yield kind(*(getattr(one, item.name) for item in fields(one)), x0, x1)
