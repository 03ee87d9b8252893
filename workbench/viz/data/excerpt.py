"""A very long tape shortened for a still picture: its first and last events, and few that stand for the others.

Those at which the adjoint of some memory is largest, smallest, exactly 0, NaN or infinite stay; the others are counted
by kind and flags. One column has the adjoints that came out of them all, one the versions that they made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TypeVar

from .event_kinds import UniqueEvents
from .trace import AdjointLevel, EventColumn, TouchMark, Trace, ValueLevel, event_flags, within_memory

LANES = 48  # allocations
RANGES = 16  # of each, whose largest and smallest adjoints stay
Events = Sequence[EventColumn]
_Mark = TypeVar("_Mark", AdjointLevel, TouchMark)


def excerpt(trace: Trace, ends: int) -> Trace:
    """The trace with its first and last `ends` events whole. Its summary and counts are those of the whole tape."""
    count = len(trace.events)
    if count <= 2 * ends:
        return trace
    first, middle, last = trace.events[:ends], trace.events[ends : count - ends], trace.events[count - ends :]
    tracks = trace.allocations
    if len(tracks) > LANES:
        shown = {touch.allocation for event in (*first, *last) for touch in event.touches}
        tracks = [track for track in tracks if track.id in shown][:LANES]
    keys = {track.id for track in tracks}
    ill: dict[str, ValueLevel] = {}  # per memory the first value between the ends with a NaN or an infinity
    for value in sorted(trace.values, key=lambda value: value.moment):
        if value.allocation in keys and ends <= value.moment < count - ends:
            ill.setdefault(value.allocation, value)
    alike = middle if isinstance(middle, UniqueEvents) else None  # which has no adjoints: equal events are met once
    stays = set() if alike else _extremes(middle, keys)
    for value in ill.values():  # a value ends at the event that overwrites it
        stays |= {value.moment - ends, *_writer(middle, value, ends)}
    order, tally = sorted(stays), Counter[tuple]()
    for event, number in alike.kinds() if alike else ((event, 1) for n, event in enumerate(middle) if n not in stays):
        tally[event.kind, event_flags(event)] += number
    kinds = [EventColumn("", -1, kind, kind, flags=flags, count=n) for (kind, flags), n in tally.items()]
    between = [_adjoints(() if alike else middle, keys), *(middle[n] for n in order), *kinds]
    between.append(_versions(alike.lasts() if alike else middle, keys))
    events = [*first, *between, *last]
    shift = len(events) - count
    values = [value for value in trace.values if value.moment < ends and value.allocation in keys]
    values += [value.at(ends + 1 + order.index(value.moment - ends)) for value in ill.values()]
    later = (value for value in trace.values if value.moment >= count - ends and value.allocation in keys)
    values += [value.at(value.moment + shift) for value in later]
    events = [within_memory(event, keys) for event in events]
    return replace(trace, allocations=tracks, events=events, said=trace.summary, values=values, folds=())


def _writer(events: Events, value: ValueLevel, first: int) -> list[int]:
    """The index of the last of these events that wrote a value, as a list; [] for none."""
    key, lo, hi, moment, *_ = value
    wrote = ((n, t) for n in range(moment - first - 1, -1, -1) for t in events[n].touches if t.how != "read")
    return [n for n, touch in wrote if touch.allocation == key and touch.lo < hi and lo < touch.hi][:1]


def _extremes(events: Events, keys: set[str]) -> set[int]:
    """The events with the largest and smallest adjoint of each memory, and the first of each other state."""
    found: dict[tuple, tuple[float, int]] = {}
    ranges: dict[str, set[tuple[int, int]]] = {key: set() for key in keys}
    for n, event in enumerate(events):
        for level in event.adjoint:
            known = ranges.get(level.allocation)
            if known is None or ((level.lo, level.hi) not in known and len(known) >= RANGES):
                continue
            known.add((level.lo, level.hi))
            key = level.allocation, level.lo, level.hi
            if level.state != "value":
                found.setdefault((*key, level.state, level.nan and level.inf), (0.0, n))
            else:
                for end, sign in (("most", 1), ("least", -1)):
                    size = sign * level.max_abs, n
                    found[*key, end] = max(found.get((*key, end), size), size, key=itemgetter(0))
    return {n for _, n in found.values()}


def _adjoints(events: Events, keys: set[str]) -> EventColumn:
    """The adjoints that came out of these events."""
    levels = (level for event in reversed(events) for level in event.adjoint if level.allocation in keys)
    last = _last(((level.allocation, level.lo, level.hi), level) for level in levels)
    return EventColumn("", -1, "launch", "", adjoint=last, count=0)


def _versions(events: Events, keys: set[str]) -> EventColumn:
    """The last access of these events to each range, and the version it made."""
    touches = (touch for event in events for touch in event.touches if touch.allocation in keys)
    last = _last(((touch.allocation, touch.lo, touch.hi, touch.how == "read"), touch) for touch in touches)
    return EventColumn("", -1, "launch", "", touches=last, arrows=(), count=0)


def _last(pairs: Iterable[tuple[tuple, _Mark]]) -> list[_Mark]:
    """The last mark of each key, in the order of these."""
    found: dict[tuple, _Mark] = {}
    for key, mark in pairs:
        found.pop(key, None)
        found[key] = mark
    return list(found.values())
