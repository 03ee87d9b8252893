"""The pictures of a watched program: the verdict, the exact adjoints of one backward, and Warp's laid over them.

Nothing is computed: after the adjoint of each launch stands the snapshot of Warp's buffers, at the start Warp's seeds,
at the end the gradients it published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...arrays.grouping import grouped
from ...arrays.workspace import Shadow, Workspace, is_float_memory, shadow_view
from ...diagnose.finding import Finding
from ...tapes.events import Event, Scope
from ...tapes.kinds import COPY, OPAQUE
from ...tapes.late_imports import ask
from .compare import VerdictRow, VerdictTable
from .passes import Backwards, WarpBackward
from .session import Session, WarpStep

Observer = Callable[[Event, Workspace], object]
MOST = 8  # names in a sentence
MOVED = (COPY, OPAQUE)  # kinds of events after whose reversal Warp's buffers were not looked at


class PublishedBackward:
    """One backward of Warp's, launch by launch: `tape.show(against=...)` takes it.

    Values that a leaf's gradient held before are subtracted, as the exact pass does not add to them.
    """

    title, brief = "Warp's gradient", "Warp"

    def __init__(self, one: WarpBackward):
        self.one, self.tape = one, one.session.tape
        space = Workspace()  # the gradients when Warp's walk began, with its seeds
        held = [(p.twin, p.before) for p in one.published if p.written and p.before.dtype.names is None]
        for twin, values in [*held, *one.seeds]:
            _put(space, twin, values)
        self.seeds: Mapping[Allocation, Any] = {a: s.data.copy() for a, s in space.items()}

    def retrace(self, observe: Observer, before: Observer | None = None, step: object = None) -> Workspace:
        """Replay the pass backwards; `before` and `observe` see Warp's buffers before and after each event.

        `step` is ignored: nothing is computed.
        """
        space = Workspace({a: Shadow(a, start=data) for a, data in self.seeds.items()})
        glimpses = {id(g.step.event): g for g in self.one.glimpses}
        final = grouped((id(p.at), p) for p in self.one.published if p.at is not None)
        for event in reversed(self.one.events):
            known = [(twin, values - self._base(twin)) for twin, values in _numbers(glimpses.get(id(event)))]
            known += [(p.twin, p.after - self._base(p.twin)) for p in final.get(id(event), ()) if p.after is not None]
            if event.kind in MOVED and not known:
                continue
            if before is not None:
                before(event, space)
            for twin, values in known:
                _put(space, twin, values)
            moved = event.kind in MOVED
            observe(event, Workspace({a.allocation: space[a.allocation] for a, _ in known}) if moved else space)
        return space

    def _base(self, twin: array) -> Any:
        """The former contents of a leaf's gradient, to be subtracted; 0 if the exact gradient does not include them."""
        for row in self.one.rows:
            p = row.subject
            if p.twin is twin and not p.written and not row.cause.startswith("leaked seed"):
                return p.before
        return 0


def _numbers(glimpse: Any) -> Iterator[tuple[array, np.ndarray]]:
    for twin, values in glimpse.values if glimpse is not None else ():
        if values.dtype.names is None and is_float_memory(twin):
            yield twin, values


def _put(space: Workspace, twin: array, values: np.ndarray) -> None:
    if is_float_memory(twin):
        view = shadow_view(twin, space[twin.allocation])
        view[...] = np.reshape(values, view.shape)


# ---- the verdict as findings


def findings(session: Session, one: WarpBackward | None) -> list[Finding]:
    """The verdicts of a backward and the opaque calls as findings about our tape, the wrong gradients first."""
    rows = [] if one is None else one.rows
    found = [_wrong(session, row) for row in rows if row.verdict == "wrong"]
    found += _unverified(session, [row for row in rows if row.verdict == "unverified"])
    for step in (s for s in session.steps if s.reason):
        text = f"{step.reason}. Gradients that depend on it are unverified, and not drawn."
        place, brief = _place(session, step), f"{{at}} is opaque: {text}"
        found.append(Finding("opaque", "warning", place, step.where, text, brief=brief))
    agreeing = list(dict.fromkeys(row.array for row in rows if row.verdict == "agrees"))
    if agreeing:
        text = f"Warp's gradient by {_listed(agreeing)} is the exact one"
        found.append(Finding("agrees", "info", "", None, f"{text}.", arrays=tuple(agreeing), brief=text))
    return found


def _wrong(session: Session, row: VerdictRow) -> Finding:
    far = row.difference
    share = f"{far:.1%}" if far < 0.1 else f"{far:.0%}" if far < MOST else "more than it is large"
    text = f"Warp's gradient by `{row.array}` is wrong by {share}"
    why = f": {row.cause}" if row.cause else ""
    where, launch = (None, "") if row.step is None else (row.step.where, _place(session, row.step))
    begins = f" It begins at {launch}, {where}{why}." if launch else why
    brief = f"{text}; it begins {{at}}{why}" if launch else f"{text}{why}"
    return Finding("warp-gradient", "error", launch, where, f"{text}.{begins}", row.remedy, (row.array,), brief=brief)


def _unverified(session: Session, rows: list[VerdictRow]) -> list[Finding]:
    """One finding per cause of unverified rows."""
    found = []
    for cause, same in grouped((row.cause, row) for row in rows).items():
        step, names = same[0].step, tuple(dict.fromkeys(row.array for row in same))
        text = f"Warp's gradient by {_listed(names)} is unverified: {cause}"
        where, launch = (None, "") if step is None else (step.where, _place(session, step))
        found.append(Finding("unverified", "warning", launch, where, f"{text}.", same[0].remedy, names, brief=text))
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:MOST]) + (", …" if len(names) > MOST else "")


def _place(session: Session, step: Any) -> str:
    """The event of a step as findings name it."""
    n = next((n for n, event in enumerate(session.tape.events) if event is step.event), -1)
    return f"#{n} {step.label}" if n >= 0 else ""


SHORTEST = 2  # events that make a block


def picture(backwards: Backwards, question: str, *args: object) -> Any:
    """The answer of a tool of our tape about the shown backward: "show", "explore" or "to_html"."""
    one, session, tape = backwards.shown, backwards.session, backwards.session.tape
    before = tape.last_seeds, tape.within
    tape.names.guess()
    if one is not None and one.seeds:
        one.show()
    try:
        over = PublishedBackward(one) if one is not None and any(r.verdict == "wrong" for r in one.rows) else None
        return ask(question, tape, *args, against=over, findings=findings(session, one))
    finally:
        if question != "explore" and session.seeded:
            tape.last_seeds, tape.within = before


def write_page(backwards: Backwards, path: object, table: VerdictTable) -> Path:
    """Write the verdict and the live picture as one file. Returns the path."""
    written = Path(picture(backwards, "to_html", path))
    text = written.read_text("utf-8")
    head, body, rest = text.partition("<body")
    start, close, after = rest.partition(">")
    shown = f'<div style="font:13px/1.45 system-ui,sans-serif;margin:12px">{table.html(asked=True)}</div>'
    written.write_text(f"{head}{body}{start}{close}{shown}{after}" if body else text, "utf-8")
    return written


def by_module(steps: list[WarpStep], events: list[Event]) -> Iterator[Scope]:
    """Blocks of consecutive events whose kernels are defined in one module of a package, named after the module.

    Copies and fills belong to the launch before them if they are called in the same folder. Kernels of a script or a
    notebook have no block.
    """
    homes = {id(step.event): _home(step.kernel) for step in steps if step.kernel is not None}
    home, folder, found = "", Path(), []
    for event in events:
        here, folder = folder, Path(event.where.file).parent if event.where else folder
        home = homes.get(id(event), home if here == folder else "")
        found.append(home)
    first = 0
    for name, run in groupby(found):
        count = len(list(run))
        if name and count >= SHORTEST:
            yield Scope(name, first, first + count)
        first += count


def _home(kernel: Any) -> str:
    """The last part of a kernel's module name; "" outside of packages."""
    package, _, name = (kernel.func.__module__ or "").rpartition(".")
    return name if package else ""
