"""`TapeFigure`, what `tape.show()` returns: a static picture with its table, which survives wherever a notebook goes.

The HTML is an `<img>` with the SVG as a data URI: inline SVG is stripped from untrusted notebooks, widgets need
a kernel, files need a place. Invariant: showing never raises; a failure to draw is shown inside the frame.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.gather import no_collector
from ..data.headline import Verdict, adjoint_range
from ..data.marks import LIGHT
from ..data.text import clean_lines, sentence, text_width
from ..data.trace import Trace
from .scene import Picture
from .svg import THEMES, Scene, data_uri, quoted, render
from .table import ROW_LIMIT, Row, event_rows, html_table, table
from .window import MARK_BUDGET

if TYPE_CHECKING:
    from ..data.against import PassComparison

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
    listed = f'<ul style="margin:2px 0;padding-left:20px">{"".join(items)}</ul>' if items else ""
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
