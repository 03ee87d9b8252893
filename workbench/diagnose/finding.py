"""What a diagnosis says: `Finding`, the printable list `Findings`, and the tables they are shown in.

One idea: a finding is plain text and plain data, so that a test, a screen reader and a notebook get the same facts.
Invariant: the worst comes first, and nothing is said by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import Where
from ..tables import html_table

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
        return html_table(" ".join(filter(None, (self.title, self.note))), HEAD, rows, style=";vertical-align:top")

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html
