"""The tape as a table: the same facts as the picture, for terminals, screen readers and tests.

One row per event, then one row per allocation. A cell holds several lines where several things are true of it.
A long tape is cut in the middle, and the table says how much was left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ... import tables
from ..data.against import PassComparison
from ..data.lanes import TouchAdjoint
from ..data.text import clean, clean_lines, level_text, text_width, versions
from ..data.trace import AllocationTrack, TouchMark, Trace, event_flags, events_text, fold_flags
from .groups import group_texts
from .layout import Column, ColumnGroup, Layout, arrange, both_ends

ROW_LIMIT = 200
EVENT_HEAD = ("event", "line", "reads", "writes", "kept", "adjoint after", "adjoint before", "flags")
AGAINST_HEAD = ("adjoint before, other", "difference")
MEMORY_HEAD = ("memory", "bytes", "type", "names")
Row = tuple[tuple[str, ...], ...]


def table(
    trace: Trace,
    limit: int = ROW_LIMIT,
    rows: Sequence[Row] | None = None,
    against: PassComparison | None = None,
    verdict: str = "",
    said: Sequence[str] = (),
) -> str:
    """The whole tape as aligned plain text. At most `limit` events and allocations have a row of their own.

    `rows` are the event rows, if the caller has them already; `against`: the two passes that they are about, `said`:
    sentences about both; `verdict` is the text of the findings.
    """
    rows = event_rows(trace, limit, against) if rows is None else rows
    head = f"{clean(trace.title)}  {trace.summary}"
    if trace.seeds:
        head += f"    seed  {clean(trace.seed_text)}"
    texts = [text for text in (verdict, "\n".join(map(clean, said))) if text]
    parts = [head, *texts, _aligned(_head(against), rows), _aligned(MEMORY_HEAD, memory_rows(trace, limit))]
    return "\n\n".join(parts)


def html_table(
    trace: Trace, limit: int = ROW_LIMIT, rows: Sequence[Row] | None = None, against: PassComparison | None = None
) -> str:
    """The same rows as two HTML tables with captions and header cells."""
    rows = event_rows(trace, limit, against) if rows is None else rows
    events = _html("Events in the order they ran", _head(against), rows)
    return events + _html("Memory and its names", MEMORY_HEAD, memory_rows(trace, limit))


def _head(against: PassComparison | None) -> tuple[str, ...]:
    return EVENT_HEAD if against is None else (*EVENT_HEAD[:-1], *AGAINST_HEAD, EVENT_HEAD[-1])


def event_rows(trace: Trace, limit: int = ROW_LIMIT, against: PassComparison | None = None) -> list[Row]:
    """One row per event: each cell is a tuple of lines. `against`: with the other pass, and what differs."""
    shown = both_ends(trace, (limit + 1) // 2, limit // 2)
    layout = arrange(trace, shown, lane_budget=len(trace.allocations), against=against, fold=False)
    rows = []
    for place, column in enumerate(layout.columns):
        if layout.groups and column.position != place and len(rows) == place:
            gap = _gap_row(layout, layout.groups[0])
            rows.append(gap if against is None else (*gap[:-1], (), (), gap[-1]))
        rows.append(_event_row(layout, column))
    return rows


def _gap_row(layout: Layout, group: ColumnGroup) -> Row:
    events = group.events
    kinds = events_text(events)
    noun = kinds[0].split(" ", 1)[-1] if len(kinds) == 1 else "events"
    flags = tuple(f"{flag} ×{number}" for flag, number in fold_flags(events).items())
    return (
        (f"… {sum(event.count for event in events)} more {noun}", clean(group.name)),
        (),
        (),
        (),
        (),
        (),
        group_texts(layout, group),
        flags,
    )


def _event_row(layout: Layout, column: Column) -> Row:
    event, lanes = column.event, layout.lanes
    heading = clean(event.heading) if event.facts.step == "launch" else f"{clean(event.heading)} ({event.kind})"
    reads = tuple(_touch(lanes[touch.allocation].track, touch) for touch in event.touches if touch.how == "read")
    writes = tuple(_touch(lanes[touch.allocation].track, touch) for touch in event.touches if touch.how != "read")
    kept = tuple(f"{tables.bytes_text(kept.nbytes, 1000)}: {clean(kept.reason)}".rstrip(": ") for kept in event.kept)
    flags = tuple(sorted(event_flags(event) - {"kept"}))
    after, before = _adjoints(layout, column, layout.flows, True), _adjoints(layout, column, layout.flows)
    made = layout.against
    second = () if made is None else (_other(layout, column), tuple(made.differences(column.position)))
    return ((heading,), (clean(event.where),), reads, writes, kept, after, before, *second, flags)


def _other(layout: Layout, column: Column) -> tuple[str, ...]:
    """The adjoint of the other pass as lines: of what both touched, or of what only the other did."""
    assert layout.against is not None
    if column.event.touches:
        return _adjoints(layout, column, layout.other_flows)
    levels = layout.against.other.events[column.position]
    return tuple(f"{clean(layout.lanes[x.allocation].track.names[0].name)} {level_text(x)}" for x in levels)


def _touch(track: AllocationTrack, touch: TouchMark) -> str:
    extra = " accumulate" if touch.how == "accumulate" else ""
    return f"{_named(track, touch)} {versions(touch)}{extra}"


def _named(track: AllocationTrack, touch: TouchMark) -> str:
    where = f" {track.range_text(touch.lo, touch.hi)}" if track.partial(touch.lo, touch.hi) else ""
    return f"{clean(touch.name)}{where}{' strided' if touch.strided else ''}"


def _adjoints(
    layout: Layout, column: Column, flows: Mapping[tuple[int, int], TouchAdjoint], after: bool = False
) -> tuple[str, ...]:
    """The adjoint of every range that the event touched, each range once."""
    found: dict[tuple[str, int, int], str] = {}
    for n, touch in enumerate(column.event.touches):
        flow = flows[column.position, n]
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
    """Lines of columns two spaces apart; empty columns are left out."""
    used = _used(head, rows)
    lines = [[head[n] for n in used]]
    for row in rows:
        tall = max(1, *(len(row[n]) for n in used))
        lines += [[row[n][k] if k < len(row[n]) else "" for n in used] for k in range(tall)]
    return "\n".join(tables.aligned(lines, rule="─", width=_cells))


def _used(head: Sequence[str], rows: Sequence[Row]) -> list[int]:
    return [n for n in range(len(head)) if n == 0 or any(any(row[n]) for row in rows)]


def _cells(text: str) -> int:
    """The number of terminal columns that a text takes."""
    return round(text_width(text, 1 / 0.56))


def _html(caption: str, head: Sequence[str], rows: Sequence[Row]) -> str:
    used = _used(head, rows)
    cells = [["\n".join(map(clean_lines, row[n])) for n in used] for row in rows]
    return tables.html_table(caption, [head[n] for n in used], cells, style=";vertical-align:top;white-space:nowrap")
