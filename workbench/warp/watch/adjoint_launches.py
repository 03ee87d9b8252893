"""`wp.launch(..., adjoint=True)` of the watched program: an event, and its result compared with the exact adjoint.

Such a launch reverses an earlier launch, at the memory of that time. The data flow tells which one: a seed that another
adjoint launch has written belongs to a launch before the one that it reversed. If the program never made the launch,
the adjoint is taken at the present memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...arrays import allocation as memory
from ...arrays.array import array
from ...arrays.span import Span
from ...arrays.workspace import Workspace, is_float_memory
from ...errors import GradientError
from ...launches.adjoint_plan import adjoint_of
from ...launches.command import Command
from ...tapes.events import Event
from ...tapes.kinds import LAUNCH
from ...tapes.reverse import extremal_memory, put_back, reverse, rewind
from .causes import needed
from .compare import VerdictRow
from .memory import Untranslated
from .session import Session, WarpStep
from .snapshots import Snapshots
from .verdicts import Verdicts
from .walks import SCALES, Act, PublishedGradient, add_seeds, gradient_in, meets, reads

Pair = tuple[Any, Any]  # an array of Warp among the arguments of a launch, and the one that holds its adjoint


class AdjointLaunch(Verdicts):
    """One adjoint launch of the program's, beside the exact adjoint of the launch that it reverses.

    step    its own; `given`: the spans that it adds to.
    event   the launch that it reverses. `chained`: an adjoint launch before it says which; `recorded`: it has happened.
    """

    def __init__(
        self,
        session: Session,
        step: WarpStep,
        command: Command,
        pairs: list[Pair],
        moment: Snapshots,
        earlier: list[AdjointLaunch],
    ):
        super().__init__(session, -1, moment, session.steps, [])
        self.step, self.command = step, command
        self.glimpses, self.again, self.by_entry = [], [], []
        self.event, self.chained = self._reversed(pairs, earlier)
        self.recorded = self.event is not None
        if self.event is None:
            self.event = _as_now(command)
        self.events = [self.event]
        self.steps = [s for s in reversed(session.steps) if s.event is self.event][:1]
        self.published, self.seeds, self.given = [], [], []
        for a, g in pairs:
            one = PublishedGradient(a, session.twins.array(a), moment.before(a))
            if not is_float_memory(one.twin):
                continue
            one.written = meets(one.twin.span, self.event.writes)
            one.at = self.event if reads(self.event, one.twin.span) else None
            if one.written:
                self.seeds.append((one.twin, one.before))
            if one.at is not None:
                self.published.append(one)
                self.given.append(session.twins.array(g).span)
        self.complete, self.reason = True, self._unknown(pairs)

    def _reversed(self, pairs: list[Pair], earlier: list[AdjointLaunch]) -> tuple[Event | None, bool]:
        """(the recorded launch that this one reverses or None, True if another adjoint launch narrowed the search)."""
        events = self.session.tape.events
        limit, chained = len(events), False
        backs = {id(back.step.event): back for back in earlier}
        writes = [self.command.flat[k].span for k, _ in self.command.plan.writes]
        for a, g in pairs:
            if not meets(self.session.twins.array(a).span, writes):
                continue
            seed = self.session.twins.array(g).span
            for event in reversed(events):
                if not meets(seed, event.writes):
                    continue
                back = backs.get(id(event))
                if back is None:
                    break
                if back.event is not None and back.recorded and meets(seed, back.given):
                    limit, chained = min(limit, events.index(back.event)), True
        found = (e for e in reversed(events[:limit]) if same(e.command, self.command))
        return next(found, None), chained

    def _unknown(self, pairs: list[Pair]) -> str:
        """The reason why the adjoint cannot be checked; "" if it can."""
        event, twins = self.event, self.session.twins
        assert event is not None
        label = event.label
        if event.reverse is None:
            return f"nothing that `{label}` computes has a gradient"
        if any(a.shape != g.shape or not is_float_memory(twins.array(g)) for a, g in pairs):
            return f"an adjoint of another shape than its array of `{label}`"
        adjoints = list({id(g): twins.array(g).span for _, g in pairs}.values())
        if any(meets(span, adjoints[:n]) for n, span in enumerate(adjoints)):
            return f"two adjoints of `{label}` share memory"
        lost = any(meets(event.command.flat[k].span, event.writes) for k in event.reverse.needs)
        if not self.recorded and (lost or event.reverse.extremal):
            return f"`{label}` overwrites what its adjoint reads, and no such launch was seen before its adjoint"
        return ""

    def judge(self) -> None:
        """Compute the exact adjoint, and make the rows."""
        error = self.reason
        if not error:
            try:
                self.exact, _ = self._walk(SCALES[0])
            except (GradientError, Untranslated) as refused:
                error = str(refused).splitlines()[0]
        self.rows += [self._row(one, error, {}) for one in self.published]
        self._explain({})
        for row in self.rows:
            if row.verdict == "wrong":
                self._may_be_meant(row.subject, row)
            row.step = self.step
            row.remedy = row.remedy.replace("tape.backward(...)", repr(self.step))

    def _may_be_meant(self, one: PublishedGradient, row: VerdictRow) -> None:
        """Make a wrong row "unverified" if it is right at present memory and no adjoint launch contradicts that."""
        assert self.event is not None
        pairs = ((need.span, kept.span) for need in needed(self.event) for kept in self.event.kept)
        if self.chained or not self.recorded or any(a.overlaps(b) is not False for a, b in pairs):
            return  # what overwrites the memory that its adjoint reads is never right at present memory
        now = self._walk(SCALES[0], rewinds=False)[0].get(id(one.twin))
        if now is None or self._judged(one, row, one.whole(now))[0] == "wrong":
            return
        row.verdict = "unverified"
        row.cause = f"{row.cause}: right for what memory holds now, wrong for what {self.steps[0]!r} had read"

    def _step_behind(self, event: Event) -> WarpStep:
        return self.steps[0] if self.steps else self.step

    def _accumulated(self, one: PublishedGradient, row: VerdictRow, exact: np.ndarray) -> None:
        """Accept the row: an adjoint launch is meant to add to what its gradients held."""

    def _walk(
        self, scale: float, act: Act = reverse, rewinds: bool = True
    ) -> tuple[dict[int, np.ndarray], dict[int, WarpStep]]:
        tape, event = self.session.tape, self.event
        assert event is not None
        space = Workspace()
        add_seeds(space, self.seeds, scale)
        with memory.LOCK, memory.unrecorded(), _memory_of(tape, event, rewinds and self.recorded) as after:
            act(tape, event, space, after)
        return {id(one.twin): gradient_in(space, one.twin) for one in self.published}, {}


@contextmanager
def _memory_of(tape: Any, event: Event, rewinds: bool) -> Iterator[dict]:
    """Restore memory to what `event` saw, while the context is open. Yields what its extremal arrays held after it."""
    undone: dict[Span, Any] = {}
    try:
        for later in reversed(tape.events) if rewinds else ():
            if later is event:
                break
            rewind(later, undone)
        after = extremal_memory(event)
        if rewinds:
            rewind(event, undone)
        yield after
    finally:
        put_back(undone)


def _as_now(command: Command) -> Event:
    """An event of no tape for a launch that was never made, at the present memory."""
    plan, flat = command.plan, command.flat
    reads, writes = (tuple(flat[k].span for k, _ in spans) for spans in (plan.reads, plan.writes))
    event = Event(0, LAUNCH, plan.program.name, None, reads, writes, command)
    event.reverse = adjoint_of(plan, tuple(plan.floats))
    return event


def same(one: Command | None, other: Command) -> bool:
    """True if two launches have the same kernel, grid and arguments."""
    if one is None or one.program is not other.program or one.plan.form.dims != other.plan.form.dims:
        return False
    return all(_alike(a, b) for a, b in zip(one.flat, other.flat, strict=True))


def _alike(a: object, b: object) -> bool:
    if isinstance(a, array) and isinstance(b, array):
        return a.span == b.span and a.dtype is b.dtype
    return isinstance(a, array) is isinstance(b, array) and np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True)
