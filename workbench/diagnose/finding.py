"""The result types of a diagnosis: `Finding`, the printable list `Findings`, and their tables.

One idea: a finding is plain text and plain data, so that a test, a screen reader and a notebook get the same facts.
Invariant: the worst comes first, and nothing is said by colour alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..arrays.grouping import grouped
from ..display import html_table
from ..errors import Where

ENDS = ("died", "not-on-path", "detached")  # one place may end the gradients of several leaves
SHOWN = 6  # arrays of one finding
SEVERITIES = ("error", "warning", "info")
ORDER = [  # of one severity: causes before what may follow from them, all others (""), and what is ordinary last
    *"parted race not-finite adjoint-not-finite convention custom-rule unwritten-read stale-buffer wiped".split(),
    *"overwritten-unread died cut saturated growing vanishing".split(),
    "",
    *"aliased kink not-on-path unread overwritten-kept".split(),
]
OVERFLOW = "it has grown beyond the largest number"


@dataclass(frozen=True)
class Finding:
    """One thing that a user should know about a tape.

    slug      its stable name.
    severity  `error`: there is no correct gradient; `warning`: it is probably not what was meant; `info`: good to know.
    launch    the event, as `#3 integrate` (its place in `tape.events`), or "" if it is about the whole tape.
              `tape.microscope(f.launch, f.thread)` shows it.
    where     the place in the source: of the statement if it is known, else of the launch. `line` is its number.
    sentence  what was found. `fix`: what to do about it.
    arrays    the names of the arrays that it is about.
    thread    the index of the thread, a tuple on a grid of several axes; None if it is about all of them.
    count     in how many launches it was found: `launch` is the first of them.
    brief     the same in a few words, `{at}` for the place and `{arrays}` for the names; `headline` fills them in.
    inside    the statement of the kernel that it is about, if `where` is the place of its launch.
    mended    the code to write instead of the line, where that is known.
    """

    slug: str
    severity: str
    launch: str
    where: Where | None
    sentence: str
    fix: str = ""
    arrays: tuple[str, ...] = ()
    thread: int | tuple[int, ...] | None = None
    count: int = 1
    brief: str = ""
    inside: Where | None = None
    mended: str = ""

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"a severity is one of {SEVERITIES}, not {self.severity!r}")

    @property
    def line(self) -> int | None:
        """The number of the line that `where` names."""
        return self.where.line if self.where is not None else None

    @property
    def more(self) -> str:
        """`and in 199 more launches`, or ""."""
        rest = self.count - 1
        return f"and in {rest} more launch{'' if rest == 1 else 'es'}" if rest else ""

    @property
    def headline(self) -> str:
        """One line: what was found, launch, thread and number of the line."""
        line = f"line {self.line}" if self.line is not None else ""
        at = ", ".join(filter(None, (self.launch, self._thread, line)))
        said = _FILE.sub(r"(line \1)", self.brief or (f"{{at}}: {self.sentence}" if at else self.sentence))
        filled = {"at": f"in {at}" if self.launch and not said.startswith("{at}") else at, "arrays": self.listed}
        return " ".join(_BLANK.sub(lambda m: filled[m[1]], said).removeprefix(": ").split())

    def __repr__(self) -> str:
        place = ", ".join(filter(None, (self.launch, self._thread, self.more)))
        place = " ".join(filter(None, (place, f"({self.where})" if self.where else "")))
        arrays = f": {self.listed}" if self.arrays else ""
        lines = [f"{self.severity} [{self.slug}] {place}".rstrip() + arrays, f"    {self.sentence}"]
        if self.where is not None and self.where.text.strip():
            lines.append(f"      > {self.where.text.strip()}")
        if self.fix:
            lines.append(f"    Fix: {self.fix}")
        lines += [f"      < {text}" for text in self.mended.splitlines()]
        return "\n".join(lines)

    @property
    def _thread(self) -> str:
        return f"thread {self.thread}" if self.thread is not None else ""

    @property
    def listed(self) -> str:
        """The names of the arrays, the first few of many."""
        rest = len(self.arrays) - SHOWN
        return ", ".join(self.arrays[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")

    def row(self) -> tuple[str, ...]:
        """The cells of the finding in the table under `HEAD`."""
        line = f"{self.where}\n{self.where.text.strip()}".strip() if self.where else ""
        launch = "\n".join(filter(None, (self.launch, self.more)))
        thread = "" if self.thread is None else str(self.thread)
        return (f"{self.severity}: {self.slug}", launch, thread, line, self.listed, self.sentence, self.fix)


_FILE = re.compile(r"\([^()\s]*[/\\][^()\s]*:(\d+)\)")  # a place in the middle of a sentence
_BLANK = re.compile(r"\{(at|arrays)\}")
_NUMBER = re.compile(r"-?\d[\d.]*(?:e[+-]?\d+)?")


def folded(found: Iterable[Finding]) -> list[Finding]:
    """Findings merged if they differ only in launch and numbers: the first, with a count and all arrays."""
    each = dict.fromkeys(found)
    kinds = grouped(((f.slug, f.severity, f.where, _NUMBER.sub("#", f.sentence), f.fix), f) for f in each)
    ends: dict[tuple, list[Finding]] = {}
    for same in kinds.values():
        arrays = tuple(dict.fromkeys(name for f in same for name in f.arrays))
        launches = {f.launch: f.count for f in same}
        f = replace(same[0], arrays=arrays, count=sum(launches.values()))
        rest = _named(f).sub("@", f.sentence) if f.slug in ENDS and len(f.arrays) == 1 else f.sentence
        ends.setdefault((f.slug, f.severity, f.launch, f.where, rest), []).append(f)
    return [_all_of(same) for same in ends.values()]


def _named(f: Finding) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.]){re.escape(f.arrays[0])}(?![\w.\[])")


def _all_of(same: list[Finding]) -> Finding:
    """Findings on leaves whose gradients ended at one place, merged into one with all their names."""
    if len(same) == 1:
        return same[0]
    arrays = tuple(name for f in same for name in f.arrays)
    whole = replace(same[0], arrays=arrays)
    return replace(whole, sentence=_named(whole).sub(lambda _: whole.listed, whole.sentence, 1))


def _rank(f: Finding) -> tuple[int, float]:
    slug = f.slug if f.slug in ORDER else ""
    overflow = slug == "adjoint-not-finite" and OVERFLOW in f.sentence
    return SEVERITIES.index(f.severity), ORDER.index("growing") + 0.5 if overflow else ORDER.index(slug)


HEAD = ("finding", "launch", "thread", "line", "arrays", "what was found", "what to do")


class Findings(Sequence[Finding]):
    """The findings of one diagnosis, the worst first. `note` says what was not checked."""

    def __init__(self, found: Iterable[Finding], events: int = 0, note: str = ""):
        self._found = tuple(sorted(found, key=_rank))
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
        """The findings other than `info`."""
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
        rows = [f.row() for f in self._found]
        return html_table(" ".join(filter(None, (self.title, self.note))), HEAD, rows, style=";vertical-align:top")

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html
