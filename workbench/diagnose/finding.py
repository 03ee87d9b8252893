"""What a diagnosis says: `Finding`, the printable list `Findings`, and the tables they are shown in.

One idea: a finding is plain text and plain data, so that a test, a screen reader and a notebook get the same facts.
Invariant: the worst comes first, and nothing is said by colour alone.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import Where

SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """One thing that a user should know about a tape.

    slug      its stable name.
    severity  `error`: there is no correct gradient; `warning`: it is probably not what was meant; `info`: good to know.
    launch    the event, as `#3 integrate` (its place in `tape.events`), or "" if it is about the whole tape.
    where     the line: of the statement if it is known, else of the launch.
    sentence  what was found. `fix`: what to do about it.
    arrays    the names of the arrays that it is about.
    """

    slug: str
    severity: str
    launch: str
    where: Where | None
    sentence: str
    fix: str = ""
    arrays: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"a severity is one of {SEVERITIES}, not {self.severity!r}")

    def __str__(self) -> str:
        place = " ".join(filter(None, (self.launch, f"({self.where})" if self.where else "")))
        lines = [f"{self.severity} [{self.slug}] {place}".rstrip(), f"    {self.sentence}"]
        if self.where is not None and self.where.text.strip():
            lines.append(f"      > {self.where.text.strip()}")
        if self.fix:
            lines.append(f"    Fix: {self.fix}")
        return "\n".join(lines)


HEAD = ("finding", "launch", "line", "what was found", "what to do")


class Findings(Sequence[Finding]):
    """The findings of one diagnosis, the worst first. `note` says what could not be looked at."""

    def __init__(self, found: Iterable[Finding], events: int = 0, note: str = ""):
        self._found = tuple(sorted(found, key=lambda f: SEVERITIES.index(f.severity)))
        self.events, self.note = events, note

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, index: Any) -> Any:
        return self._found[index]

    def named(self, slug: str) -> list[Finding]:
        """The findings with this slug."""
        return [f for f in self._found if f.slug == slug]

    @property
    def problems(self) -> list[Finding]:
        """Without those that are only good to know."""
        return [f for f in self._found if f.severity != "info"]

    @property
    def title(self) -> str:
        """`3 findings in 12 events: 1 error, 2 infos`."""
        where = f"{self.events} event{'' if self.events == 1 else 's'}"
        if not self._found:
            return f"No findings in {where}."
        counts = {s: sum(f.severity == s for f in self._found) for s in SEVERITIES}
        parts = ", ".join(f"{n} {s}{'' if n == 1 else 's'}" for s, n in counts.items() if n)
        return f"{len(self)} finding{'' if len(self) == 1 else 's'} in {where}: {parts}"

    @property
    def text(self) -> str:
        """All of it as plain text."""
        return "\n".join(filter(None, (self.title, self.note, *map(str, self._found))))

    @property
    def html(self) -> str:
        """A table with a caption and header cells."""
        rows = []
        for f in self._found:
            line = f"{f.where}\n{f.where.text.strip()}".strip() if f.where else ""
            rows.append((f"{f.severity}: {f.slug}", f.launch, line, f.sentence, f.fix))
        return html_table(" ".join(filter(None, (self.title, self.note))), HEAD, rows)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def html_table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = -1) -> str:
    """A table that a screen reader can follow: the first cell of a row is its header. `numbers`: a column set right."""
    sides = [f'style="text-align:{_side(k, numbers)}"' for k in range(len(head))]
    top = "".join(f'<th scope="col" {side}>{_quoted(h)}</th>' for side, h in zip(sides, head, strict=True))
    body = "".join(f"<tr>{''.join(_cell(k, text, numbers) for k, text in enumerate(row))}</tr>" for row in rows)
    table = f"<table><caption>{_quoted(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow-x:auto">{table}</div>'


def _side(k: int, numbers: int) -> str:
    return "right" if k == numbers else "left"


def _cell(k: int, text: str, numbers: int) -> str:
    inner = "<br>".join(_quoted(line) for line in text.split("\n"))
    style = f'style="text-align:{_side(k, numbers)};vertical-align:top"'
    return f'<th scope="row" {style}>{inner}</th>' if k == 0 else f"<td {style}>{inner}</td>"


def _quoted(text: str) -> str:
    return html.escape(text, quote=True)


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = -1) -> str:
    """Aligned columns, two spaces apart."""
    widths = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head))]
    lines = [head, ["-" * w for w in widths], *rows]
    return "\n".join(
        "  ".join(c.rjust(w) if k == numbers else c.ljust(w) for k, (c, w) in enumerate(zip(line, widths, strict=True)))
        .rstrip()
        for line in lines
    )  # fmt: skip


def bytes_text(n: int) -> str:
    """`384 B`, `1.5 KiB`, `20 MiB`."""
    size, unit = float(n), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.4g} {unit}"
