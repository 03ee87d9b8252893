"""The tape as a table: the same facts as the picture, for terminals, screen readers and tests.

One row per event, then one row per allocation. A cell holds several lines where several things are true of it.
A long tape is cut in the middle, and the table says how much was left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import tables
from ..data.text import clean, clean_lines, level_text, text_width, versions
from ..data.trace import AllocationTrack, EventColumn, TouchMark, Trace, event_flags, events_text, fold_flags
from .layout import Column, Layout, arrange, both_ends

ROW_LIMIT = 200
EVENT_HEAD = ("event", "line", "reads", "writes", "kept", "adjoint after", "adjoint before", "flags")
MEMORY_HEAD = ("memory", "bytes", "type", "names")
Row = tuple[tuple[str, ...], ...]


def table(trace: Trace, limit: int = ROW_LIMIT, rows: Sequence[Row] | None = None) -> str:
    """The whole tape as aligned plain text. At most `limit` events and allocations have a row of their own.

    `rows` are the event rows, if the caller has them already."""
    rows = event_rows(trace, limit) if rows is None else rows
    head = f"{clean(trace.title)}  {trace.summary}"
    if trace.seeds:
        head += f"    seed  {clean(trace.seed_text)}"
    parts = [head, _aligned(EVENT_HEAD, rows), _aligned(MEMORY_HEAD, memory_rows(trace, limit))]
    return "\n\n".join(parts)


def html_table(trace: Trace, limit: int = ROW_LIMIT, rows: Sequence[Row] | None = None) -> str:
    """The same rows as two HTML tables with captions and header cells."""
    rows = event_rows(trace, limit) if rows is None else rows
    events = _html("Events in the order they ran", EVENT_HEAD, rows)
    return events + _html("Memory and its names", MEMORY_HEAD, memory_rows(trace, limit))


def event_rows(trace: Trace, limit: int = ROW_LIMIT) -> list[Row]:
    """One row per event: each cell is a tuple of lines."""
    layout = arrange(trace, both_ends(trace, (limit + 1) // 2, limit // 2), lane_budget=len(trace.allocations))
    rows = []
    for place, column in enumerate(layout.columns):
        if layout.gap and column.position != place and len(rows) == place:
            rows.append(_gap_row(layout.gap.events))
        rows.append(_event_row(layout, column))
    return rows


def _gap_row(events: Sequence[EventColumn]) -> Row:
    kinds = events_text(events)
    noun = kinds[0].split(" ", 1)[-1] if len(kinds) == 1 else "events"
    flags = tuple(f"{flag} ×{number}" for flag, number in fold_flags(events).items())
    return ((f"… {len(events)} more {noun}",), (), (), (), (), (), (), flags)


def _event_row(layout: Layout, column: Column) -> Row:
    event, lanes = column.event, layout.lanes
    heading = clean(event.heading) if event.kind == "launch" else f"{clean(event.heading)} ({event.kind})"
    reads = tuple(_touch(lanes[touch.allocation].track, touch) for touch in event.touches if touch.how == "read")
    writes = tuple(_touch(lanes[touch.allocation].track, touch) for touch in event.touches if touch.how != "read")
    kept = tuple(f"{tables.bytes_text(kept.nbytes, 1000)}: {clean(kept.reason)}".rstrip(": ") for kept in event.kept)
    flags = tuple(sorted(event_flags(event) - {"kept"}))
    after, before = _adjoints(layout, column, True), _adjoints(layout, column, False)
    return ((heading,), (clean(event.where),), reads, writes, kept, after, before, flags)


def _touch(track: AllocationTrack, touch: TouchMark) -> str:
    extra = " accumulate" if touch.how == "accumulate" else ""
    return f"{_named(track, touch)} {versions(touch)}{extra}"


def _named(track: AllocationTrack, touch: TouchMark) -> str:
    where = f" {track.range_text(touch.lo, touch.hi)}" if track.partial(touch.lo, touch.hi) else ""
    return f"{clean(touch.name)}{where}{' strided' if touch.strided else ''}"


def _adjoints(layout: Layout, column: Column, after: bool) -> tuple[str, ...]:
    """The adjoint of every range that the event touched, each range once."""
    found: dict[tuple[str, int, int], str] = {}
    for n, touch in enumerate(column.event.touches):
        flow = layout.flows[column.position, n]
        text = level_text(flow.after if after else flow.before)
        name = _named(layout.lanes[touch.allocation].track, touch)
        found.setdefault((touch.allocation, touch.lo, touch.hi), f"{name} {text}")
    return tuple(found.values())


def memory_rows(trace: Trace, limit: int = ROW_LIMIT) -> list[Row]:
    """One row per allocation with every name and its range."""
    rows = [_memory_row(track) for track in trace.allocations[:limit]]
    rest = len(trace.allocations) - len(rows)
    return [*rows, ((f"… {rest} more",), (), (), ())] if rest else rows


def _memory_row(track: AllocationTrack) -> Row:
    names = []
    for name in track.names:
        where = f" {track.range_text(name.lo, name.hi)}" if track.partial(name.lo, name.hi) else ""
        names.append(f"{clean(name.name)}{where}{' strided' if name.strided else ''}")
    if track.aliased:
        names.append(f"({len(names)} names, one memory)")
    return ((clean(track.id),), (str(track.nbytes),), (clean(track.text),), tuple(names))


def _aligned(head: Sequence[str], rows: Sequence[Row]) -> str:
    """Columns two spaces apart; empty columns are left out."""
    used = _used(head, rows)
    lines = [[head[n] for n in used]]
    for row in rows:
        tall = max(1, *(len(row[n]) for n in used))
        lines += [[row[n][k] if k < len(row[n]) else "" for n in used] for k in range(tall)]
    return "\n".join(tables.aligned(lines, rule="─", width=_cells))


def _used(head: Sequence[str], rows: Sequence[Row]) -> list[int]:
    return [n for n in range(len(head)) if n == 0 or any(any(row[n]) for row in rows)]


def _cells(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return round(text_width(text, 1 / 0.56))


def _html(caption: str, head: Sequence[str], rows: Sequence[Row]) -> str:
    used = _used(head, rows)
    cells = [["\n".join(map(clean_lines, row[n])) for n in used] for row in rows]
    return tables.html_table(caption, [head[n] for n in used], cells, style=";vertical-align:top;white-space:nowrap")
