"""The columns of a long tape, deduplicated: one description for all equal events, columns made on demand.

Launches of a loop differ in nothing but the versions of what they touch, and versions are counts: a tape of 100,000
launches is a few hundred columns (`firsts`), the number of one of them per event (`which`), and the versions.

For a still picture it is shortened (`excerpt`): the first and last events stay, and those at which the adjoint of some
memory is largest, smallest, exactly 0, NaN or infinite; the others are counted by kind and flags. One column has the
adjoints that came out of them all, one the versions that they made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple, TypeVar, overload

import numpy as np

from .lanes import PieceValues, VersionBlock
from .trace import AdjointLevel, EventColumn, TouchMark, Trace, ValueLevel, event_flags, within_memory

Array = np.ndarray
LANES = 48  # allocations
RANGES = 16  # of each, whose largest and smallest adjoints stay
Events = Sequence[EventColumn]
_Mark = TypeVar("_Mark", AdjointLevel, TouchMark)


def spread(counts: Array, which: Array) -> tuple[Array, Array]:
    """(start of each event's rows, for each row the same row of the first equal event), int64 arrays."""
    many = counts[which]
    starts = np.cumsum(many) - many
    rows = np.arange(int(many.sum())) - np.repeat(starts - (np.cumsum(counts) - counts)[which], many)
    return starts, rows


class Accesses(NamedTuple):
    """All accesses of the tape in order, as arrays: event, memory number, True for a write, the version seen."""

    starts: Array
    rows: Array
    event: Array
    memory: Array
    wrote: Array
    before: Array
    keys: list[str]

    @staticmethod
    def of(firsts: Sequence[EventColumn], which: Array) -> Accesses:
        touches = [touch for event in firsts for touch in event.touches]
        counts = np.array([len(event.touches) for event in firsts], np.int64)
        starts, rows = spread(counts, which)
        numbers: dict[str, int] = {}
        memory = np.array([numbers.setdefault(touch.allocation, len(numbers)) for touch in touches], np.int64)[rows]
        wrote = np.array([touch.how != "read" for touch in touches], bool)[rows]
        order = np.argsort(memory, kind="stable")
        there, done = memory[order], wrote[order].astype(np.int64)
        sums = np.cumsum(done) - done
        new = np.flatnonzero(np.r_[True, there[1:] != there[:-1]])[: len(there)]
        before = np.empty(len(rows), np.int64)
        before[order] = sums - np.repeat(sums[new], np.diff(np.r_[new, len(there)]))
        event = np.repeat(np.arange(len(which)), counts[which])
        return Accesses(starts, rows, event, memory, wrote, before, list(numbers))


class UniqueEvents(Sequence[EventColumn]):
    """A lazy sequence of the columns of a tape, which are made when asked for; slices are lazy too."""

    def __init__(
        self,
        firsts: Sequence[EventColumn],
        which: Array,
        ids: Sequence[str],
        accesses: Accesses | None = None,
        part: range | None = None,
    ):
        """firsts: a column per kind of equal events, in order of appearance; which: the number of each event's kind."""
        self.firsts, self.which, self.ids = firsts, which, ids
        self.accesses = Accesses.of(firsts, which) if accesses is None else accesses
        self.part = range(len(which)) if part is None else part

    def __len__(self) -> int:
        return len(self.part)

    @overload
    def __getitem__(self, k: int) -> EventColumn: ...
    @overload
    def __getitem__(self, k: slice) -> UniqueEvents: ...
    def __getitem__(self, k: int | slice) -> EventColumn | UniqueEvents:
        if isinstance(k, slice):
            return UniqueEvents(self.firsts, self.which, self.ids, self.accesses, self.part[k])
        return self._made(self.part[k])

    def __iter__(self) -> Iterator[EventColumn]:
        return map(self._made, self.part)

    def _made(self, n: int) -> EventColumn:
        first, start = self.firsts[self.which[n]], int(self.accesses.starts[n])
        before = self.accesses.before[start : start + len(first.touches)].tolist()
        touches = tuple(
            TouchMark(t.allocation, t.name, t.lo, t.hi, t.how, v, v + (t.how != "read"), t.strided)
            for t, v in zip(first.touches, before, strict=True)
        )
        return first.changed(id=self.ids[n], index=n, touches=touches)

    def kinds(self) -> list[tuple[EventColumn, int]]:
        """(first column, count) of each kind of equal events in this part, in order of appearance."""
        found, first, many = np.unique(self.which[self.part], return_index=True, return_counts=True)
        order = np.argsort(first)
        return [(self.firsts[int(found[k])], int(many[k])) for k in order]

    def lasts(self) -> list[EventColumn]:
        """The last event of each kind in this part, in order."""
        _, back = np.unique(self.which[self.part][::-1], return_index=True)
        return [self[int(k)] for k in np.sort(len(self) - 1 - back).tolist()]


class Versions(NamedTuple):
    """All versions of the tape as column arrays, in the order of `lanes.versions_of`."""

    lane: Array
    lo: Array
    hi: Array
    number: Array
    strided: Array
    mixed: Array
    e0: Array
    e1: Array

    @staticmethod
    def of(blocks: Sequence[VersionBlock], lanes: Mapping[str, int]) -> Versions:
        """These versions; `lanes`: the number of each memory."""
        pairs = ((b, b.version) for b in blocks)
        found = [(lanes[b.allocation], b.lo, b.hi, v.number, v.strided, v.mixed, b.e0, b.e1) for b, v in pairs]
        return Versions(*np.array(found, np.int64).reshape(-1, 8).T)


def versions_at_once(events: UniqueEvents, cuts: Mapping[str, tuple[int, ...]]) -> Versions:
    """The result of `versions_of`, vectorised: memory in one piece all at once, other memory write by write."""
    lanes = {key: n for n, key in enumerate(cuts)}
    whole = np.array([len(cuts[key]) == 2 for key in cuts], bool)
    of = np.array([lanes.get(key, -1) for key in events.accesses.keys], np.int64)
    lane = of[events.accesses.memory]
    single = _whole(events, lane, whole, np.array([cuts[key][1] for key in cuts]))
    pieces = _in_pieces(events, cuts, lane, whole)
    rows = np.concatenate([single, pieces])
    rows = rows[np.lexsort((rows[:, -1], rows[:, -2]))]
    return Versions(*rows[:, :-2].T)


def _whole(events: UniqueEvents, lane: Array, whole: Array, size: Array) -> Array:
    """The versions of undivided memory, an array with a row each; its last two columns are the sort keys."""
    event, wrote, before = events.accesses.event, events.accesses.wrote, events.accesses.before
    end = len(events)
    strided = np.array([t.strided for first in events.firsts for t in first.touches], bool)[events.accesses.rows]
    used = np.full(len(whole), end + 1)  # when somebody first used what was there
    there = lane >= 0
    looks = there & np.array([t.how != "write" for e in events.firsts for t in e.touches], bool)[events.accesses.rows]
    np.minimum.at(used, lane[looks], event[looks])
    at = np.flatnonzero(there & wrote & whole[lane])
    at = at[np.argsort(lane[at], kind="stable")]
    first = np.r_[True, lane[at][1:] != lane[at][:-1]][: len(at)]
    last = np.r_[first[1:], True][: len(at)]
    # a write ends the version before it: that of the write before, or what was there at the start
    e0 = np.where(first, -1, np.r_[-1, event[at][:-1]][: len(at)])
    number = np.where(first, 0, np.r_[0, before[at][:-1] + 1][: len(at)])
    hatched = ~first & np.r_[False, strided[at][:-1]][: len(at)]
    ended = _rows(lane[at], size, number, hatched, e0, event[at], at, np.zeros(len(at)))
    ended = ended[(e0 < event[at]) & ((e0 >= 0) | (used[lane[at]] <= event[at]))]
    tail = at[last]
    until, behind = np.full(len(tail), end), np.full(len(tail), len(lane))
    left = _rows(lane[tail], size, before[tail] + 1, strided[tail], event[tail], until, behind, lane[tail])
    never = np.setdiff1d(np.flatnonzero(whole & (used <= end)), lane[at])
    zero = np.zeros(len(never))
    kept = _rows(never, size, zero, zero, zero - 1, zero + end, zero + len(lane), never)
    return np.concatenate([ended, left, kept])


def _rows(
    lane: Array, size: Array, number: Array, strided: Array, e0: Array, e1: Array, at: Array, then: Array
) -> Array:
    zero = np.zeros(len(lane))
    return np.stack([lane, zero, size[lane], number, strided, zero, e0, e1, at, then], 1).astype(np.int64)


def _in_pieces(events: UniqueEvents, cuts: Mapping[str, tuple[int, ...]], lane: Array, whole: Array) -> Array:
    """The versions of memory in several pieces, found write by write, as an array like that of `_whole`."""
    lanes = {key: n for n, key in enumerate(cuts)}
    several = {key: ends for key, ends in cuts.items() if len(ends) != 2}
    there = np.flatnonzero((lane >= 0) & ~whole[lane])
    walk, keys = PieceValues((), several), []
    for n in np.unique(events.accesses.event[there]).tolist():
        start = int(events.accesses.starts[n])
        touches = events[n].touches
        walk.use(touches)
        for k, touch in enumerate(touches):
            if touch.allocation in several and touch.how != "read":
                walk.write(touch, n)
            keys += [(start + k, 0)] * (len(walk.blocks) - len(keys))
    for key, held in walk.held.items():
        walk.close(key, 0, len(held), len(events))
        keys += [(len(lane), lanes[key])] * (len(walk.blocks) - len(keys))
    found = np.stack(Versions.of(walk.blocks, lanes), 1)
    return np.concatenate([found, np.array(keys, np.int64).reshape(-1, 2)], 1)


# ---- a part of a tape


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
