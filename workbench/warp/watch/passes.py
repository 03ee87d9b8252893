"""One `wp.Tape.backward` beside the exact gradient: Warp's seeds, the same events, a row per array.

The exact gradient is the derivative of the results of the tape's last event with respect to the contents of its arrays
at its first. Warp's gradient buffers are compared after every adjoint launch too, so a row says where it went wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import warp

from ...arrays import allocation as memory
from ...arrays.array import array
from ...arrays.grouping import grouped
from ...arrays.workspace import Workspace, float_parts, gradient_dtype
from ...errors import GradientError
from ...tapes import conventions
from ...tapes.events import Event
from ...tapes.rerun import Enough
from ...tapes.reverse import meets as holds_adjoint, reverse, walk
from .adjoint_launches import same
from .captures import Captures
from .compare import SMALL, accuracy, is_near
from .hooks import Hooks, Theirs, caller, first_line
from .memory import Untranslated, arrays_in, root_of
from .recorder import EventRecorder
from .session import HOST_WRITE, RACE, LeftGradient, Session, WarpStep
from .snapshots import GradientSnapshots, LiveSnapshots, digest, shares_gradient
from .verdicts import Verdicts
from .walks import SCALES, Act, PublishedGradient, add_seeds, floats, gradient_in, is_seed, meets, reads

MUCH = 1 << 26  # bytes of Warp's gradient buffers that are kept of one backward, for its picture
FUNC = "record_func: what was done between has its adjoint in a function of the program"


@dataclass(eq=False)
class Glimpse:
    """A snapshot of Warp's gradient buffers after the adjoint of one launch."""

    step: WarpStep
    values: list[tuple[array, np.ndarray]]


class WarpBackward(Verdicts):
    """A backward of Warp's. `rows` say what came of it.

    own      the events of its steps, which Warp's tape has recorded, by id.
    missed   the events while that tape was open which it has not recorded.
    bases    by the id of a twin that no event writes: what its gradient held before.
    """

    def __init__(
        self, session: Session, number: int, moment: GradientSnapshots, known: dict[int, WarpStep | None] | None = None
    ):
        """`known`: the step of each entry of Warp's tape, by entry id; None: as recorded."""
        super().__init__(session, number, moment, session.steps[: moment.steps], moment.entries)
        known = session.recorded.get(moment.tape, {}) if known is None else known
        self.complete = all(id(e) in known for e in self.entries)
        self.by_entry = [known.get(id(e)) for e in self.entries]
        self.steps = [s for s in self.by_entry if s is not None]
        self.own = {id(s.event): s.event for s in self.steps if s.event is not None}
        self.glimpses: list[Glimpse] = []
        loss, grads = moment.loss, moment.grads
        heard = (s.event for s in session.escaped.get(moment.tape, ()) if s.event is not None and s.kind != "adjoint")
        self.missed = [event for event in heard if not _is_host(event)]
        self.seeded = [a for a in (loss, *(grads or ())) if a is not None] or self._seeded_by_hand()
        self.events = self._window(self.seeded)
        touched = ((event, {span.allocation for span in (*event.reads, *event.writes)}) for event in self.events)
        self.meeting = grouped((place, event) for event, places in touched for place in places)
        self.published = self._with_gradients()
        self.seeds = self._seeds(loss, grads)
        self.bases = {id(p.twin): p.before for p in reversed(self.published) if not p.written}
        self.again = [] if loss is not None or grads else self._left_again()

    def _window(self, seeded: list[Any]) -> list[Event]:
        """Our events between the first and last that Warp's tape has recorded, unrecorded ones between them too.

        It begins earlier at an event that the open tape should have recorded, and ends later at the writers of a seeded
        array that no recorded event writes.
        """
        events, own = self.session.tape.events[: self.moment.events], self.own
        places = [n for n, e in enumerate(events) if id(e) in own]
        if not places:
            return []
        missed = {id(event) for event in self.missed}
        first = next((n for n, e in enumerate(events[: places[0]]) if id(e) in missed), places[0])
        last = places[-1]
        for twin in (found[0] for a in seeded if (found := self.session.twins.behind(a))):
            writers = [n for n, e in enumerate(events) if not _is_host(e) and meets(twin.span, e.writes)]
            if writers and not any(id(events[n]) in own for n in writers):
                last = max(last, writers[-1])
        return events[first : last + 1]

    # ---- before

    def _seeded_by_hand(self) -> list[Any]:
        """Arrays with a seed in their gradient that steps which Warp's tape has not recorded have written."""
        missed = [*self.missed, *self._going_on()]
        found = []
        for known in list(self.session.twins.made.values()) if missed else ():
            a = known.ref()
            if a is None or a.grad is None or not self.moment.knows(a) or not is_seed(self.moment.before(a)):
                continue
            if self.session.left.get(a.grad) is None and any(meets(known.twin.span, e.writes) for e in missed):
                found.append(a)
        return found

    def _going_on(self) -> list[Event]:
        """Events that read results of the recorded ones but are not on Warp's tape."""
        events = self.session.tape.events[: self.moment.events]
        results = [span for event in self.own.values() for span in event.writes]
        begun = next((n for n, e in enumerate(events) if id(e) in self.own), len(events))
        return [e for e in self._unrecorded(events[begun:]) if any(meets(span, results) for span in e.reads)]

    def _unrecorded(self, events: list[Event]) -> list[Event]:
        """Those of our events that Warp's tape does not hold, and that the host or an opaque call has not made."""
        return [e for e in events if id(e) not in self.own and not _is_host(e) and not e.kind.opaque]

    def _with_gradients(self) -> list[PublishedGradient]:
        """The arrays that publish a gradient; of overlapping gradients the largest."""
        launches = (e for e in self.entries if isinstance(e, list))
        given = [a for e in launches for a in self.session.twins.arrays_of([*e[3], *e[4]])]
        given += [*arrays_in(self.moment.gradients), *self._beside()]
        found = {id(a): a for a in given if a.grad is not None and self.moment.knows(a)}
        kept: list[PublishedGradient] = []
        spans: list[tuple[int, int, int]] = []
        for a in sorted(found.values(), key=lambda a: -a.size):
            root, low = id(root_of(a.grad)), a.grad.ptr or 0
            high = low + a.grad.size
            if any(r == root and lo <= low and high <= hi for r, lo, hi in spans) or not a.size:
                continue
            with suppress(Untranslated):
                kept.append(PublishedGradient(a, self.session.twins.array(a), self.moment.before(a)))
                spans.append((root, low, high))
        for one in kept:
            self._place(one)
        return kept

    def _beside(self) -> Iterator[Any]:
        """Yields arrays with a gradient that the pass only reads, in launches that Warp's tape does not hold too."""
        missed = self._unrecorded(self.events)
        taken = {id(a) for e in self.events if e.command is not None for a in e.command.flat}
        for known in list(self.session.twins.made.values()):
            a, span = known.ref(), known.twin.span
            if a is None or a.grad is None:
                continue
            read = id(known.twin) in taken or any(meets(span, e.reads) for e in missed)
            if read and not any(meets(span, e.writes) for e in self.meeting.get(span.allocation, ())):
                yield a

    def _place(self, one: PublishedGradient) -> None:
        """Set `at` to the first event that reads the array's outside contents: the gradient is by these."""
        started = False
        for event in self.meeting.get(one.twin.allocation, ()):
            written, read = meets(one.twin.span, event.writes), reads(event, one.twin.span)
            if not (written or read):
                continue
            if _is_host(event):
                started = started or one.at is None
                continue
            one.written = one.written or written
            if one.at is None and read:
                one.at = event
            elif one.at is None:
                one.written = True
                return
        if started and one.written:
            one.at = None

    def _seeds(self, loss: Any, grads: Any) -> list[tuple[array, np.ndarray]]:
        """The seeds of Warp's pass: `loss`, `grads`, and the program's values in `.grad` of results.

        If this pass names its seeds, values that an earlier pass has left in `.grad` are not seeds.
        """
        found: list[tuple[array, np.ndarray]] = []
        given = {} if grads is None else {id(a): g for a, g in grads.items()}
        listed = {id(p.theirs) for p in self.published}
        extra = [a for a in self.seeded if id(a) not in listed]
        for one in [*self.published, *(e for e in map(self._unlisted, extra) if e is not None)]:
            a, left = one.theirs, None
            named = a is loss or id(a) in given
            if a is loss:
                values = np.ones_like(one.before)
            elif named:
                values = _over(one.before, self.moment.seed(given[id(a)]))
            elif one.written:
                values, left = one.before, self.session.left.get(a.grad) if loss is not None or grads else None
            else:
                continue
            known = left is not None and left.gradient.shape == values.shape
            old = list(_fields(one.twin, left.gradient)) if left is not None and known else []
            for n, (part, numbers) in enumerate(_fields(one.twin, values)):
                new = np.where(numbers == old[n][1], 0, numbers) if known else numbers
                if named or np.any(new):
                    found.append((part, new))
            if named:  # it has taken the place of what was there
                one.before = np.zeros_like(one.before)
        return found

    def _left_again(self) -> list[PublishedGradient]:
        """Arrays computed and read in the pass whose seed is just what an earlier pass left in their gradient."""
        return [
            one
            for one in self.published
            if any(twin is one.twin for twin, _ in self.seeds)
            and (left := self.session.left.get(one.theirs.grad)) is not None
            and left.computed
            and np.array_equal(left.gradient, one.before)
            and any(reads(e, one.twin.span) for e in self.events)
        ]

    def _unlisted(self, a: Any) -> PublishedGradient | None:
        try:
            twin = self.session.twins.array(a)
        except Untranslated:
            return None
        zeros = np.zeros(twin.data.shape, twin.data.dtype)
        before = self.moment.before(a) if self.moment.knows(a) and a.grad is not None else zeros
        return PublishedGradient(a, twin, before, True)

    # ---- after

    def judge(self, error: str = "") -> None:
        """Compute the exact gradient, and make the rows. `error`: why nothing can be said."""
        try:
            self._judge(error)
        except Exception as failure:  # noqa: BLE001  the program goes on, and its rows say what went wrong here
            self.rows.clear()
            self._judge(error or first_line(failure))
        if any(row.verdict == "wrong" for row in self.rows) and (known := self._repeated()) is not None:
            self._may_be_of(WarpBackward(self.session, self.number, self.moment, known))

    def _judge(self, error: str) -> None:
        for n, noted in self.moment.glimpses if not error else ():
            step = self.by_entry[n]
            if step is not None:
                known = [(twin, values) for a, values in noted for twin in self.session.twins.behind(a)]
                self.glimpses.append(Glimpse(step, known))
        wrong_at: dict[int, WarpStep] = {}
        if self.events and self.complete and not error:
            try:
                conventions.clear(self.session.tape)
                self.exact, wrong_at = self._walk(SCALES[0])
                conventions.collect(self.session.tape)
                self.met = list(self.session.tape.conventions)
            except (GradientError, Untranslated) as refused:
                error = (RACE if getattr(refused, "slug", "") == "race" else "") + str(refused).splitlines()[0]
        for one in self.published:
            self.rows.append(self._row(one, error, wrong_at))
        self._explain(wrong_at)
        for one in self.published:
            after, held = self.moment.after(one.theirs), digest(self.moment.held(one.theirs))
            one.after = after
            spent = one.before if one.written and one.holds and not np.any(after) else None
            left = LeftGradient(self.number, after, held, one.written, spent, shared=shares_gradient(one.theirs))
            self.session.left[one.theirs.grad] = left
        if sum(values.nbytes for g in self.glimpses for _, values in g.values) > MUCH:
            self.glimpses.clear()

    def _repeated(self) -> dict[int, WarpStep | None] | None:
        """The later steps that repeat, in order, all launches on Warp's tape, by entry id; None if one has none."""
        last = max((s.number for s in self.steps), default=-1)
        later = [s for s in self.past if s.number > last and s.event is not None and s.event.command is not None]
        found: dict[int, WarpStep | None] = {}
        for entry, step in reversed(list(zip(self.entries, self.by_entry, strict=True))):
            if step is not None and step.event is not None and step.event.command is not None:
                while later and not same(later[-1].event.command, step.event.command):  # type: ignore[union-attr]
                    later.pop()
                if not later:
                    return None
                step = later.pop()
            found[id(entry)] = step
        return found or None

    def _may_be_of(self, other: WarpBackward) -> None:
        """Make a wrong row "unverified" if `other`, the pass over the repeated launches, finds it right."""
        other.judge()
        right = {id(row.subject.theirs): row for row in other.rows if row.verdict in ("agrees", "unverified")}
        cause = ": right for the launches as they were repeated since, wrong for those that it has recorded"
        for row in self.rows:
            if row.verdict == "wrong" and id(row.subject.theirs) in right:
                row.verdict = "unverified"
                row.cause += cause
                row.remedy = "tape.reset(), and the launches once more inside `with tape:`"

    def show(self) -> None:
        """Point the tools of our tape at this pass: its seeds and its events."""
        space = Workspace()
        add_seeds(space, self.seeds)
        tape = self.session.tape
        tape.last_seeds = {a: shadow.data.copy() for a, shadow in space.items()}
        tape.within = frozenset(self.events)

    def _walk(self, scale: float, act: Act = reverse) -> tuple[dict[int, np.ndarray], dict[int, WarpStep]]:
        """(exact gradients by twin id, the step where Warp's buffer of each array first differs).

        `act` reverses an event.
        """
        tape, first, last = self.session.tape, self.events[0], self.events[-1]
        wanted = grouped((id(one.at), one) for one in self.published if one.at is not None)
        glimpses = {id(g.step.event): g for g in self.glimpses} if scale == 1.0 else {}
        doubtful = {id(s.event): s for s in self.steps if s.doubtful}
        exact: dict[int, np.ndarray] = {}
        wrong: dict[int, WarpStep] = {}
        inside = False

        def before(event: Event, space: Workspace) -> None:
            nonlocal inside
            if event is last:
                inside = True
                add_seeds(space, self.seeds, scale)

        def step(tape: object, event: Event, space: Workspace, after: dict) -> None:
            if not inside:
                return
            if event.kind.opaque or id(event) in doubtful:
                if holds_adjoint((part for part in floats(event) if meets(part.span, event.writes)), space):
                    self.reached.append(event)
                    for part in floats(event):  # NaN in all that it may have read taints the rest of the walk
                        space[part.allocation].view(part.span, gradient_dtype(part))[...] = np.nan
                return
            try:
                act(tape, event, space, after)
            except GradientError:
                self.stopped = event
                raise

        def observe(event: Event, space: Workspace) -> None:
            for one in wanted.get(id(event), ()):
                exact[id(one.twin)] = gradient_in(space, one.twin)
            if (glimpse := glimpses.get(id(event))) is not None:
                self._look(glimpse, space, wrong)
            if event is first:
                raise Enough

        with memory.LOCK, memory.unrecorded(), suppress(Enough):
            walk(tape, Workspace(), observe, before, step=step)
        return exact, wrong

    def _look(self, glimpse: Glimpse, space: Workspace, wrong: dict[int, WarpStep]) -> None:
        """Compare Warp's buffers after one adjoint launch with the adjoints of the walk."""
        for twin, theirs in glimpse.values:
            for part, values, base in self._parts(twin, theirs) if id(twin) not in wrong else ():
                exact = gradient_in(space, part)
                if base is not None:
                    exact = exact + base
                if exact.shape == values.shape and not is_near(values, exact) and not np.isnan(exact).any():
                    found = accuracy(values, exact, None)
                    if not found.fine and found.difference > SMALL:
                        wrong[id(twin)] = glimpse.step

    def _parts(self, twin: array, theirs: np.ndarray) -> Iterator[tuple[array, np.ndarray, np.ndarray | None]]:
        """Yields (array, Warp's gradient, its former value or None if an event writes it); of structs each field."""
        base = self.bases.get(id(twin))
        before = (None for _ in float_parts(twin)) if base is None else (held for _, held in _fields(twin, base))
        yield from ((*field, held) for field, held in zip(_fields(twin, theirs), before, strict=True))


def _fields(twin: array, values: np.ndarray) -> Iterator[tuple[array, np.ndarray]]:
    """Yields (array, gradient); of structs one pair per float field."""
    for path, part in float_parts(twin).items():
        numbers = values
        for name in path.split(".") if path else ():
            numbers = numbers[name]
        yield part, numbers


def _over(before: np.ndarray, given: np.ndarray) -> np.ndarray:
    """A gradient buffer after a seed is copied into it: where the seed is shorter, the rest stays."""
    if given.shape == before.shape:
        return given
    made = before.reshape(-1).copy()
    flat = given.reshape(-1)[: made.size]
    made[: flat.size] = flat
    return made.reshape(before.shape)


def _is_host(event: Event) -> bool:
    return event.kind.from_host or event.label == HOST_WRITE


class Backwards:
    """Handles calls of Warp's tapes. `passes`: the backwards so far, each with its rows."""

    def __init__(self, session: Session, recorder: EventRecorder, captures: Captures):
        self.session, self.recorder, self.captures = session, recorder, captures
        self.passes: list[WarpBackward] = []

    def install(self, hooks: Hooks) -> None:
        hooks.put(warp.Tape.backward, self.backward)
        hooks.put(warp.Tape.reset, self.reset, always=True)
        hooks.put(warp.Tape.record_func, self.record_func)

    @property
    def shown(self) -> WarpBackward | None:
        """The backward that pictures are about: the first with a wrong gradient, else the last; None without any."""
        wrong = (one for one in self.passes if any(row.verdict == "wrong" for row in one.rows))
        return next(wrong, self.passes[-1] if self.passes else None)

    def backward(self, theirs: Theirs, tape: Any, loss: Any = None, grads: Any = None) -> Any:
        if self.recorder.captured is not None:
            return self.captures.record_backward(theirs, tape, loss, grads)
        if self.session.check == "gradient":
            result = self.with_snapshots(theirs, tape, loss, grads)
        else:
            result = self.session.quietly(theirs)
        self.recorder.gone_back([a for a in arrays_in(tape.gradients) if a.grad is not None])
        return result

    def with_snapshots(self, theirs: Theirs, tape: object, loss: object, grads: object) -> Any:
        """Run a backward between snapshots of the gradients, and judge it. Returns what Warp's call returns."""
        session = self.session
        session.tape.names.note(caller())
        session.backward = moment = LiveSnapshots(session.twins, tape, loss, grads)
        try:
            moment.begin()
            result = session.quietly(theirs)
            moment.end()
        finally:
            session.backward = None
        moment.events, moment.steps = len(session.tape.events), len(session.steps)
        session.quietly(lambda: self.judge(moment))
        self.forget_glimpses()
        return result

    def judge(self, moment: GradientSnapshots, error: str = "") -> WarpBackward:
        """Compare the gradients of a backward with the exact ones. `error`: why nothing can be said."""
        one = WarpBackward(self.session, len(self.passes), moment)
        one.judge(error)
        self.passes.append(one)
        return one

    def forget_glimpses(self) -> None:
        """Drop the snapshots of all backwards but the one shown, and point the tape's tools at it."""
        shown = self.shown
        for one in self.passes:
            if one is not shown:
                one.glimpses.clear()
        if shown is not None and self.passes[-1] is shown:
            shown.show()

    def reset(self, theirs: Theirs, tape: object) -> Any:
        self.session.recorded.pop(tape, None)
        self.session.escaped.pop(tape, None)
        return theirs() if self.session.inside else self.session.quietly(theirs)

    def record_func(self, theirs: Theirs, tape: Any, backward: Any, arrays: Any) -> Any:
        session = self.session
        found, label = list(arrays_in(arrays)), getattr(backward, "__name__", "record_func")
        if self.recorder.captured is not None:
            return self.recorder.event("opaque", label, found, theirs, refused=FUNC)
        before = len(tape.launches)
        result = session.quietly(theirs)
        entries = tape.launches[before:]
        step = self.recorder.step("opaque", label, tape, entries, reason=FUNC)
        try:
            regions = session.twins.regions(found)
        except Untranslated:
            regions = []
        step.event = self.recorder.opaque(step, found, regions, session.place_of(caller()))
        session.steps.append(step)
        self.recorder.note_entries(tape, entries, step)
        return result
