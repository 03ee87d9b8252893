"""The strip above a tape view: the findings of `tape.diagnose()` as plain data, the most important first.

A tape longer than the caller has time for is only glanced at: what its arrays and gradients hold in the end, without a
walk; the note says what was not looked for. Every text is safe to be shown as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...arrays import allocation as memory
from ...arrays.array import array
from ...arrays.workspace import Workspace
from ...diagnose import Finding, diagnose
from ...diagnose.against import TapeRun, against as compared
from ...diagnose.finite import glance
from ...diagnose.walk_step import accesses, shadow_view
from ...errors import GradientError, KernelError, Where, shown_file
from ...kernels import ir
from ...tapes.events import Event
from ...tapes.tape import Tape
from .snapshot import TapeMoments
from .text import clean, clean_lines
from .trace import Trace

AT_ONCE = 2000  # events up to which a static picture waits for all findings
PATIENT = 10_000  # the same for the live view and its pages
SOON = 200  # events up to which it is told unasked how far the gradient can be followed
NO_PROBLEM = "no problem found"
SIGNS = {"error": "✕", "warning": "▲", "info": "•"}
ORDINARY = ("overwritten-kept", "unread", "unsettled", "sum-not-mean", "detached")  # infos that most programs have
ADJOINTS = (  # findings about the reverse pass
    "died adjoint-not-finite convention growing vanishing custom-rule cut saturated kink cancel detached not-on-path"
).split()
SPREADS = ("growing", "vanishing")  # findings about many launches at once


@dataclass(frozen=True)
class Said:
    """One finding. `position` of its launch, -1 for none; `thread` or None; `lanes`: ids of the memory it is about.

    place    the statement to open the microscope at, `phase` the direction it is read in there: forward or reverse.
    known    False where the launch used numbers that were overwritten and not kept.
    """

    slug: str
    severity: str
    headline: str
    sentence: str
    fix: str
    mended: str
    line: str
    more: str
    position: int
    thread: tuple[int, ...] | None
    arrays: tuple[str, ...]
    lanes: tuple[str, ...]
    place: dict[str, Any] | None
    phase: str
    known: bool = True

    @property
    def ordinary(self) -> bool:
        """True for an `info` that most programs have, hidden at first."""
        return self.severity == "info" and self.slug in ORDINARY

    @property
    def title(self) -> str:
        """The headline with a sign for its severity, which is never told by colour alone."""
        return " ".join(filter(None, (SIGNS[self.severity], self.headline, self.more)))


@dataclass(frozen=True)
class Verdict:
    """All findings; `note`: what was not checked; `partial`: True if a full check may find more."""

    rows: tuple[Said, ...]
    note: str = ""
    partial: bool = False

    @property
    def calm(self) -> bool:
        """True if nothing is wrong: there are only findings that are good to know, or none."""
        return all(row.severity == "info" for row in self.rows)

    def text(self, quiet: str = "") -> str:
        """Every finding with its line and its fix, as plain text."""
        lines = [self.calmly(quiet)] if self.calmly(quiet) else []
        for row in self.rows:
            fix = f"Fix: {row.fix}" if row.fix else ""
            lines += [row.title, *(f"    {text}" for text in (row.line, fix, row.mended) if text)]
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def calmly(self, quiet: str) -> str:
        """`no problem found` and what else there is to say, if all was looked at and nothing is wrong; else ""."""
        calm = self.calm and not self.partial and not self.note
        return ", ".join(filter(None, (NO_PROBLEM, quiet))) if calm else ""

    def to_json(self) -> dict[str, Any]:
        rows = [{**asdict(row), "ordinary": row.ordinary, "spreads": row.slug in SPREADS} for row in self.rows]
        return {"rows": rows, "note": self.note, "partial": self.partial, "calm": self.calm}


def verdict(
    tape: Tape,
    against: Tape | None = None,
    limit: int | None = None,
    runs: tuple[TapeRun, TapeRun] | None = None,
    first: Sequence[Finding] = (),
) -> Verdict:
    """The findings about a tape, or its first difference from another one. Never raises: the note says what went wrong.

    limit   events above which only the ends are looked at.
    runs    of both tapes, where they have been run again already.
    first   findings of somebody else, which come before the others.
    """
    partial = limit is not None and len(tape.events) > limit and against is None
    try:
        with memory.LOCK:
            found = compared(tape, against, runs) if against is not None else (glance if partial else diagnose)(tape)
        moments = TapeMoments(tape) if tape.keep != "all" and not partial else None
        with memory.LOCK, memory.unrecorded():
            known = {(f.slug, f.where) for f in first}
            others = (f for f in found if (f.slug, f.where) not in known)
            rows = tuple(_said(tape, f, moments) for f in (*first, *others))
    except Exception as error:  # a picture is shown, whatever becomes of its findings
        return Verdict((), clean_lines(f"What is wrong could not be looked for: {error or type(error).__name__}"))
    return Verdict(rows, clean_lines(found.note), partial)


def followed(tape: Tape, found: Any) -> Said | None:
    """The `Trust` of the seeded loss, `found`, as a finding, which leads to what ends the prediction."""
    if found is None:
        return None
    text, _, remedy = found.sentence.partition(" What helps: ")
    made = Finding("trust", "info", found.launch or "", found.line, text, remedy, thread=found.thread, brief=text)
    return _said(tape, made, None)


def adjoint_range(trace: Trace) -> str:
    """`adjoints from 0.02 to 5.5`: the smallest and the largest size other than zero; empty where there is none."""
    sizes = [level.max_abs for event in trace.events for level in event.adjoint if level.state == "value"]
    sizes += [s.level.max_abs for s in trace.seeds if s.level is not None and s.level.state == "value"]
    return f"adjoints from {min(sizes):.3g} to {max(sizes):.3g}" if sizes else ""


# ---- one finding


def _said(tape: Tape, f: Finding, moments: TapeMoments | None) -> Said:
    found = re.match(r"#(\d+)", f.launch)
    n = int(found[1]) if found else -1  # of the whole tape
    event = tape.events[n] if 0 <= n < len(tape.events) else None
    touched = accesses(tape, event) if event is not None else []
    about = [x for x in touched if x.name in f.arrays] or [x for x in touched if x.writes]
    if event is not None and f.slug in SPREADS:
        about += [x for e in tape.events if e.label == event.label for x in accesses(tape, e) if x.writes]
    spans = [x.span for x in about] or (event.writes if event is not None else ())
    lanes = dict.fromkeys(str(span.allocation) for span in spans)
    known, place = True, _place(tape, event, f)
    if event is not None and event.command is not None and moments is not None and f.severity != "info":
        used = dict.fromkeys(x.span.allocation for x in touched)
        known = all(moments.status(a, n)[0].all() for a in used)
    lines = "\n".join(dict.fromkeys(f"{w}: {w.text.strip()}" for w in (f.where, place) if w is not None))
    texts = clean(f.headline), clean(f.sentence), clean(f.fix), clean_lines(f.mended), clean_lines(lines), f.more
    thread, arrays = (f.thread,) if isinstance(f.thread, int) else f.thread, tuple(map(clean, f.arrays))
    at = None if place is None else {"file": shown_file(place.file), "line": place.line}
    phase = "reverse" if f.slug in ADJOINTS else "forward"
    return Said(f.slug, f.severity, *texts, n, thread, arrays, tuple(lanes), at, phase, known)


def telling_threads(tape: Tape, positions: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """By position of a launch the thread with the largest adjoint, NaN first, of what it wrote, else read."""
    wanted = {tape.events[n]: n for n in positions}
    found: dict[int, tuple[int, ...]] = {}

    def look(event: Event, space: Workspace, writes: bool) -> None:
        n = wanted.get(event, -1)
        if n < 0 or n in found or event.command is None:
            return
        for x in accesses(tape, event):
            data = shadow_view(space, x) if x.writes == writes else None
            if data is not None and x.span.shape == tuple(event.command.plan.form.dims):
                sizes = np.abs(data.reshape(*x.span.shape, -1)).max(-1)
                most = int(np.where(np.isfinite(sizes), sizes, np.inf).argmax())
                found[n] = tuple(map(int, np.unravel_index(most, x.span.shape)))
                return

    with suppress(GradientError, KernelError):
        if wanted and tape.last_seeds and not any(event.kind.calls_back for event in tape.events):
            tape.retrace(lambda e, s: look(e, s, False), lambda e, s: look(e, s, True))
    return found


def _place(tape: Tape, event: Event | None, f: Finding) -> Where | None:
    """A finding's place in its kernel: its own statement, else one that writes, or reads, its arrays; None without."""
    if event is None or event.command is None:
        return None
    program = event.command.program
    stmts = [s for s in ir.walk(program.function.body) if s.where is not None]
    lines = {(w.file, w.line) for s in stmts for w in _calls(s.where)}
    for where in (f.inside, f.where):
        if where is not None and (where.file, where.line) in lines:
            return where
    pairs = event.arguments
    about = {leaf.name for leaf, a in pairs if isinstance(a, array) and tape.names.of(a, leaf.name) in f.arrays}
    touching = [s for s in stmts if s.args and not ir.is_value(s.args[0].type) and ir.root(s.args[0]).name in about]
    return next((s.where for s in (*(s for s in touching if s.row.writes), *touching)), None)


def _calls(where: Where | None) -> Iterator[Where]:
    """Yields a place, then its call sites outwards."""
    while where is not None:
        yield where
        where = where.caller
