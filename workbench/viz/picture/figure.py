"""`TapeFigure`, what `tape.show()` returns: a static picture with its table, which survives wherever a notebook goes.

The HTML is an `<img>` with the SVG as a data URI: inline SVG is stripped from untrusted notebooks, widgets need
a kernel, files need a place. Invariant: showing never raises; a failure to draw is shown inside the frame.

The table has the same facts as the picture, for terminals, screen readers and tests: one row per event, then one per
allocation. A cell holds several lines where several things are true of it. A long tape is cut in the middle, and the
table says how much was left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from ... import display
from ...arrays.grouping import grouped
from ..data.columns import PIECES
from ..data.envelope import Bars, envelope_text, envelopes, stretches
from ..data.gather import no_collector
from ..data.headline import Verdict, adjoint_range
from ..data.lanes import Adjoints, Flows, cut_memory
from ..data.marks import LIGHT
from ..data.text import clean, clean_lines, level_text, moment_text, sentence, text_width, versions
from ..data.trace import AllocationTrack, NameRange, TouchMark, Trace, event_flags, events_text, fold_flags
from .scene import Picture
from .svg import THEMES, Scene, data_uri, quoted, render
from .window import MARK_BUDGET, TimeColumn, group_name, within

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
    events = _shown_table("Events in the order they ran", _head(against), rows)
    return events + _shown_table("Memory and its names", MEMORY_HEAD, memory_rows(trace, limit))


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


def _shown_table(caption: str, head: Sequence[str], rows: Sequence[Row]) -> str:
    used = _used(head, rows)
    cells = [["\n".join(map(clean_lines, row[n])) for n in used] for row in rows]
    return display.html_table(caption, [head[n] for n in used], cells, style=";vertical-align:top;white-space:nowrap")


PAGE = Path(__file__).with_name("page.html").read_text("utf-8")


class TapeFigure:
    """The static tape view of a trace. `theme` is `auto`, `light` or `dark`; another name is a ValueError.

    against  two passes over each other: then `trace` is that of the comparison.
    verdict  the findings, for the strip above the picture; None for none.
    """

    def __init__(
        self, trace: Trace, theme: str = "auto", against: PassComparison | None = None, verdict: Verdict | None = None
    ):
        if theme not in THEMES:
            raise ValueError(f"a theme is one of {THEMES}, not {theme!r}")
        self.trace, self.theme, self.against, self.verdict = trace, theme, against, verdict

    @cached_property
    def svg(self) -> str:
        """The picture as SVG text. Unlike the notebook display it raises what goes wrong."""
        return self._drawn(MARK_BUDGET)

    @property
    def text(self) -> str:
        """The same facts as an aligned plain-text table."""
        return self._table(self._event_rows)

    @property
    def html(self) -> str:
        """Every finding, the picture as an image, and the table folded behind it."""
        return self._page(self.svg, html_table(self.trace, self._event_rows, ROW_LIMIT, self.against))

    def within(self, most: int) -> tuple[str, str]:
        """Text and HTML that take at most `most` bytes in a notebook: fewer columns and rows, no ids.

        Showing never raises: what goes wrong is shown in the frame.
        """
        said, marks, rows = sentence(self.trace), MARK_BUDGET, 48
        try:
            while True:
                few = event_rows(self.trace, rows, against=self.against)
                text = self._table(few, rows)
                html = self._page(self._drawn(marks, False), html_table(self.trace, few, rows, self.against))
                if len(json.dumps([text, html])) <= most or marks < 50:
                    break
                marks, rows = marks // 2, rows // 2
        except Exception as error:
            text, html = said, _failure(reason(error), self.theme)
        text = text if len(text) <= most // 8 else said[:1000]
        return text, html if len(html) <= most else f"<p>{quoted(said[:1000])}</p>"

    def _drawn(self, marks: int, ids: bool = True) -> str:
        return render(Picture(self.trace, marks, self.against).drawn(), self.theme, ids)

    def _sentences(self) -> list[str]:
        """The sentences about two passes, besides the findings."""
        rows = () if self.verdict is None else self.verdict.rows
        return [] if self.against is None else self.against.beside(rows)

    def _table(self, rows: list[Row], limit: int = ROW_LIMIT) -> str:
        verdict = "" if self.verdict is None else self.verdict.text(adjoint_range(self.trace))
        return table(self.trace, rows, limit, self.against, verdict, self._sentences())

    def _page(self, svg: str, tables: str) -> str:
        said = " ".join(["", *self.against.said]) if self.against is not None else ""
        findings = "" if self.verdict is None else _findings(self.verdict, adjoint_range(self.trace))
        findings += "".join(f"<p><strong>{quoted(text)}</strong></p>" for text in self._sentences())
        return _html(svg, sentence(self.trace) + said, tables, findings)

    @cached_property
    def _event_rows(self) -> list[Row]:
        return event_rows(self.trace, against=self.against)

    def save(self, path: str | Path) -> Path:
        """Write `.svg` or a stand-alone `.html`; another ending is a ValueError. Returns the path."""
        path = Path(path)
        if path.suffix == ".svg":
            content = self.svg
        elif path.suffix in (".html", ".htm"):
            scheme = "light dark" if self.theme == "auto" else self.theme
            content = PAGE.format(title=quoted(self.trace.title), scheme=scheme, body=self.html)
        else:
            raise ValueError(f"a tape view is saved as .svg or .html, not {path.suffix or path.name!r}")
        path.write_text(content, encoding="utf-8")
        return path

    def beside(self, *others: TapeFigure) -> TapeViews:
        """This view and others side by side, where there is room; else one below the other."""
        return TapeViews((self, *others))

    def __repr__(self) -> str:
        try:
            return self.text
        except Exception as error:  # a repr that raises would take the cell's own result with it
            return f"tape view: the table could not be made: {reason(error)}"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        with no_collector():
            try:
                html = self.html
            except Exception as error:  # shown in the frame: the tape itself is fine
                html = _failure(reason(error), self.theme)
            return {"text/plain": repr(self), "text/html": html}


class TapeViews:
    """Several tape views in one output."""

    def __init__(self, figures: tuple[TapeFigure, ...]):
        self.figures = figures

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self.figures))

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        pages = [figure._repr_mimebundle_()["text/html"] for figure in self.figures]
        parts = "".join(f'<div style="min-width:0">{page}</div>' for page in pages)
        columns = "repeat(auto-fit,minmax(min(240px,100%),1fr))"
        html = f'<div style="display:grid;grid-template-columns:{columns};gap:16px">{parts}</div>'
        return {"text/plain": repr(self), "text/html": html}


def _findings(verdict: Verdict, quiet: str) -> str:
    """The HTML strip above the picture: what was found, the line, what to do; what most programs have folded."""
    calm, items, folded = verdict.calmly(quiet), [], []
    for row in verdict.rows:
        line = f"<br><code>{quoted(row.line)}</code>" if row.line else ""
        fix = f"<br><em>Fix: {quoted(row.fix)}</em>" if row.fix else ""
        mended = f'<br><code style="white-space:pre-wrap">{quoted(row.mended)}</code>' if row.mended else ""
        said = f"<li><strong>{quoted(row.title)}</strong>{line}{fix}{mended}</li>"
        (folded if row.ordinary else items).append(said)
    listed = f'<ul style="list-style:none;margin:2px 0;padding-left:0">{"".join(items)}</ul>' if items else ""
    notes = f"<details><summary>notes</summary><ul>{''.join(folded)}</ul></details>" if folded else ""
    parts = [f"<div>{quoted(text)}</div>" for text in (calm, verdict.note) if text]
    edge = LIGHT["muted" if verdict.calm else "bad"]
    style = f"font-size:12px;margin:4px 0;padding:2px 8px;border-left:5px solid {edge}"
    return f'<div class="wb-findings" style="{style}">{"".join(parts)}{listed}{notes}</div>'


def _html(svg: str, alt: str, tables: str, findings: str = "") -> str:
    image = f'<img alt="{quoted(alt)}" style="max-width:100%;height:auto" src="{data_uri(svg)}">'
    folded = f"<details><summary>The same as a table</summary>{tables}</details>" if tables else ""
    return f'<div class="wb-tape-view">{findings}{image}{folded}</div>'


def reason(error: Exception) -> str:
    """Type and message of an error, even of one whose message cannot be made."""
    try:
        message = str(error)
    except Exception:  # the message itself may be what is broken
        message = ""
    return clean_lines(f"{type(error).__name__}: {message}" if message else type(error).__name__)


def _failure(reason: str, theme: str) -> str:
    """The HTML of a frame of the usual look with the reason in place of the picture."""
    text = "The tape view could not be drawn. The tape and its gradients are not affected."
    lines = [text, *reason[:300].split("\n")]
    scene = Scene(max(text_width(line, 12, True) for line in lines) + 40, 24 + 20 * len(lines), " ".join(lines))
    scene.add("rect", "ground", "ground", 0, 0, scene.width, scene.height, radius=8)
    for n, line in enumerate(lines):
        scene.label(f"line-{n}", "name" if n else "muted", 16, 27 + 20 * n, line, 12, mono=n > 0)
    return _html(render(scene, theme), scene.sentence, "")
