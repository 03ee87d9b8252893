"""The tape as a table: the same facts as the picture, for terminals, screen readers and tests.

One row per event, then one row per allocation. A cell holds several lines where several things are true of it.
A long tape is cut in the middle, and the table says how much was left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ... import display
from ...arrays.grouping import grouped
from ..data.columns import PIECES
from ..data.envelope import Bars, envelope_text, envelopes, stretches
from ..data.lanes import Adjoints, Flows, cut_memory
from ..data.text import clean, clean_lines, level_text, moment_text, text_width, versions
from ..data.trace import AllocationTrack, NameRange, TouchMark, Trace, event_flags, events_text, fold_flags
from .window import TimeColumn, group_name, within

if TYPE_CHECKING:
    from ..data.against import PassComparison

ROW_LIMIT = 200
EVENT_HEAD = ("event", "line", "reads", "writes", "kept", "adjoint after", "adjoint before", "flags")
AGAINST_HEAD = ("adjoint before, other", "difference")
MEMORY_HEAD = ("memory", "bytes", "type", "names")
Row = tuple[tuple[str, ...], ...]


def table(
    trace: Trace, rows: Sequence[Row], limit: int, against: PassComparison | None, verdict: str, said: Sequence[str]
) -> str:
    """The whole tape as aligned plain text, with these rows of events and at most `limit` of allocations.

    `against`: the two passes that they are about, `said`: sentences about both; `verdict` is the text of the findings.
    """
    head = f"{clean(trace.title)}  {trace.summary}"
    if trace.seeds:
        head += f"    seed  {clean(trace.seed_text)}"
    texts = [text for text in (verdict, "\n".join(map(clean, said))) if text]
    parts = [head, *texts, _aligned(_head(against), rows), _aligned(MEMORY_HEAD, memory_rows(trace, limit))]
    return "\n\n".join(parts)


def html_table(trace: Trace, rows: Sequence[Row], limit: int, against: PassComparison | None) -> str:
    """The same rows as two HTML tables with captions and header cells."""
    events = _html("Events in the order they ran", _head(against), rows)
    return events + _html("Memory and its names", MEMORY_HEAD, memory_rows(trace, limit))


def _head(against: PassComparison | None) -> tuple[str, ...]:
    return EVENT_HEAD if against is None else (*EVENT_HEAD[:-1], *AGAINST_HEAD, EVENT_HEAD[-1])


def event_rows(trace: Trace, limit: int = ROW_LIMIT, against: PassComparison | None = None) -> list[Row]:
    """One row per event: each cell is a tuple of lines. `against`: with the other pass, and what differs.

    Of a long tape the first and the last events, and a row for those between.
    """
    total, head, tail = len(trace.events), (limit + 1) // 2, limit // 2
    if total <= head + tail:
        return _EventRows(trace, range(total), against).rows
    made = _EventRows(trace, [*range(head), *range(total - tail, total)], against)
    gap = made.gap(head, total - tail)
    return [*made.rows[:head], gap if against is None else (*gap[:-1], (), (), gap[-1]), *made.rows[head:]]


class _EventRows:
    """The rows of these events; memory is cut at the ends of what they access."""

    def __init__(self, trace: Trace, shown: Sequence[int], against: PassComparison | None):
        self.trace, self.against = trace, against
        self.tracks = {track.id: track for track in trace.allocations}
        cuts = cut_memory(trace, [trace.events[n] for n in shown])
        self.flows = Adjoints(trace, cuts, [event.adjoint for event in trace.events], trace.seeds, set(shown)).flows
        self.other_flows: Flows = {}
        if against is not None:
            self.other_flows = Adjoints(trace, cuts, against.other.events, against.other.seeds, set(shown)).flows
        self.rows = [self._row(n) for n in shown]

    def gap(self, a: int, b: int) -> Row:
        """The row of events [a, b), which have none of their own."""
        events = self.trace.events[a:b]
        kinds = events_text(events)
        noun = kinds[0].split(" ", 1)[-1] if len(kinds) == 1 else "events"
        flags = tuple(f"{flag} ×{number}" for flag, number in fold_flags(events).items())
        number, column = sum(event.count for event in events), TimeColumn(a, b, 0, 0)
        name = group_name(self.trace, column)
        return ((f"… {number} more {noun}", name), (), (), (), (), (), self._inside(column), flags)

    def _inside(self, column: TimeColumn) -> tuple[str, ...]:
        """The adjoint of each memory in many events."""
        trace, found = self.trace, []
        cuts, levels = cut_memory(trace, trace.events, PIECES), [event.adjoint for event in trace.events]
        bars = grouped((bar.allocation, bar) for bar in Adjoints(trace, cuts, levels, trace.seeds, ()).bars)
        for key, track in self.tracks.items():
            one = envelopes(Bars.of(bars.get(key, [])), stretches(column.a, column.b, 1)).at(0)
            if one.state != "absent":
                name = clean(track.names[0].name if track.names else key)
                found.append(f"{name} {envelope_text(one, partial(moment_text, trace), within(trace, column))}")
        return tuple(found)

    def _row(self, n: int) -> Row:
        event, tracks = self.trace.events[n], self.tracks
        heading = clean(event.heading) if event.facts.step == "launch" else f"{clean(event.heading)} ({event.kind})"
        reads = tuple(_touch(tracks[touch.allocation], touch) for touch in event.touches if touch.how == "read")
        writes = tuple(_touch(tracks[touch.allocation], touch) for touch in event.touches if touch.how != "read")
        kept = tuple(f"{display.bytes_text(k.nbytes, 1000)}: {clean(k.reason)}".rstrip(": ") for k in event.kept)
        flags = tuple(sorted(event_flags(event) - {"kept"}))
        after, before = self._adjoints(n, self.flows, True), self._adjoints(n, self.flows)
        second = () if self.against is None else (self._other(n), tuple(self.against.differences(n)))
        return ((heading,), (clean(event.where),), reads, writes, kept, after, before, *second, flags)

    def _other(self, n: int) -> tuple[str, ...]:
        """The adjoint of the other pass as lines: of what both touched, or of what only the other did."""
        assert self.against is not None
        if self.trace.events[n].touches:
            return self._adjoints(n, self.other_flows)
        levels = self.against.other.events[n]
        return tuple(f"{clean(self.tracks[x.allocation].names[0].name)} {level_text(x)}" for x in levels)

    def _adjoints(self, n: int, flows: Flows, after: bool = False) -> tuple[str, ...]:
        """The adjoint of every range that the event touched, each range once."""
        found: dict[tuple[str, int, int], str] = {}
        for k, touch in enumerate(self.trace.events[n].touches):
            text = level_text(flows[n, k].after if after else flows[n, k].before)
            name = _named(self.tracks[touch.allocation], touch)
            found.setdefault((touch.allocation, touch.lo, touch.hi), f"{name} {text}")
        return tuple(found.values())


def _touch(track: AllocationTrack, touch: TouchMark) -> str:
    extra = " accumulate" if touch.how == "accumulate" else ""
    return f"{_named(track, touch)} {versions(touch)}{extra}"


def _named(track: AllocationTrack, touch: TouchMark | NameRange) -> str:
    where = f" {track.range_text(touch.lo, touch.hi)}" if track.partial(touch.lo, touch.hi) else ""
    return f"{clean(touch.name)}{where}{' strided' if touch.strided else ''}"


def memory_rows(trace: Trace, limit: int) -> list[Row]:
    """One row per allocation with every name and its range."""
    rows: list[Row] = []
    for track in trace.allocations[:limit]:
        names = [_named(track, name) for name in track.names]
        names += [f"({len(names)} names, one memory)"] if track.aliased else []
        rows.append(((clean(track.id),), (str(track.nbytes),), (clean(track.text),), tuple(names)))
    rest = len(trace.allocations) - len(rows)
    return [*rows, ((f"… {rest} more",), (), (), ())] if rest else rows


def _aligned(head: Sequence[str], rows: Sequence[Row]) -> str:
    """Lines of columns two spaces apart; empty columns are left out."""
    used = _used(head, rows)
    lines = [[head[n] for n in used]]
    for row in rows:
        tall = max(1, *(len(row[n]) for n in used))
        lines += [[row[n][k] if k < len(row[n]) else "" for n in used] for k in range(tall)]
    columns = lambda text: round(text_width(text, 1 / 0.56))  # noqa: E731  of a terminal
    return "\n".join(display.aligned(lines, rule="─", width=columns))


def _used(head: Sequence[str], rows: Sequence[Row]) -> list[int]:
    return [n for n in range(len(head)) if n == 0 or any(any(row[n]) for row in rows)]


def _html(caption: str, head: Sequence[str], rows: Sequence[Row]) -> str:
    used = _used(head, rows)
    cells = [["\n".join(map(clean_lines, row[n])) for n in used] for row in rows]
    return display.html_table(caption, [head[n] for n in used], cells, style=";vertical-align:top;white-space:nowrap")
