"""One `wp.Tape.backward` beside the exact gradient: Warp's seeds, the same events, a row per array.

The exact gradient is the derivative of what the tape's last event left, by what its arrays held when its first event
met them. Warp's gradient buffers are looked at after every adjoint launch too: a row says where it went wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...arrays.span import Span
from ...arrays.workspace import Workspace, gradient_dtype, is_float_memory, shadow_view
from ...errors import GradientError
from ...tapes.events import Event
from ...tapes.naming import name_of
from ...tapes.reverse import opaque_meets, reverse, walk
from .causes import NOTEBOOKS, explain
from .compare import NOISY, ROUNDED, SLIGHT, SMALL, Row, Verdict, accuracy, is_near
from .events import HOST_WRITE, RACE, Step
from .memory import Untranslated, arrays_in, root_of
from .moments import Moments, digest
from .once_more import Cut, OtherSlopes, Rounded, RoundedWithin, floats, is_choosing

if TYPE_CHECKING:
    from .watch import Watch

Act = Callable[[Any, Event, Workspace, dict], None]
HOST = ("assign", "fill_", "zero_", "foreign")
SCALES = (1.0, 1.37, 0.811, 2.93)  # of the seeds: each rounds differently, which tells how far rounding goes
MUCH = 1 << 26  # bytes of Warp's gradient buffers that are kept of one backward, for its picture
NO_SEED = "this backward starts from no seed: no loss=, no grads=, and nothing in .grad of what launches have written"
TRIALS = 3  # walks in which everything is moved by a rounding


class _Enough(Exception):
    """The walk has come to where the pass begins."""


@dataclass(eq=False)
class Published:
    """An array of Warp with a gradient, its twin, and what its gradient held before the pass."""

    theirs: Any
    twin: array
    before: np.ndarray
    written: bool = False  # by an event of the pass that is no host write
    at: Event | None = None  # the event whose reversal leaves the exact gradient; None: there is none to compare
    after: np.ndarray | None = None  # what Warp has published


@dataclass(eq=False)
class Left:
    """What backward number `number` left in a gradient, and a digest of what its array held then."""

    number: int
    gradient: np.ndarray
    at: bytes
    computed: bool  # by an event of that backward's pass


@dataclass(eq=False)
class Glimpse:
    """What Warp's gradient buffers held after the adjoint of one launch."""

    step: Step
    values: list[tuple[array, np.ndarray]]


class Pass:
    """A backward of Warp's. `rows` say what came of it.

    steps    what Warp's tape has recorded, in order.
    seeds    (twin, values): what the walk starts from.
    exact    by the id of a twin: the exact gradient.
    reached  the opaque or doubtful events that an adjoint came to.
    past     the steps before it, of Warp's tape or not.
    """

    def __init__(self, seen: Watch, number: int, moment: Moments):
        self.seen, self.number, self.moment = seen, number, moment
        self.past = seen.steps[: moment.steps]
        known = seen.recorded.get(moment.tape, {})
        self.entries = moment.entries
        self.complete = all(id(e) in known for e in self.entries)
        self.by_entry = [known.get(id(e)) for e in self.entries]
        self.steps = [s for s in self.by_entry if s is not None]
        self.glimpses: list[Glimpse] = []
        self.rows: list[Row] = []
        self.reached: list[Event] = []
        self.exact: dict[int, np.ndarray] = {}
        self.noise: dict[int, np.ndarray] = {}
        self.moved: dict[int, np.ndarray] = {}
        self.slopes: OtherSlopes | None = None
        self.within: dict[Event, dict[int, np.ndarray]] = {}  # of an event, see `moved_within`; empty if too large
        self.cuts: dict[int, dict[int, np.ndarray]] = {}  # by the id of memory that lets no adjoint pass
        self.other: dict[int, np.ndarray] = {}  # the exact gradients with the other slope at kinks
        loss, grads = moment.loss, moment.grads
        escaped = seen.escaped.get(moment.tape, [])
        self.events = self._window([a for a in (loss, *(grads or ())) if a is not None], escaped)
        self.meeting: dict[Allocation, list[Event]] = {}  # the events that touch a memory
        for event in self.events:
            for memory in {span.allocation for span in (*event.reads, *event.writes)}:
                self.meeting.setdefault(memory, []).append(event)
        self.published = self._with_gradients()
        self.seeds = self._seeds(loss, grads)
        self.again = [] if loss is not None or grads else self._left_again()

    def _window(self, seeded: list[Any], escaped: list[Step]) -> list[Event]:
        """Our events from the first to the last that Warp's tape has recorded, with all that happened between.

        The first may be one that the tape should have recorded, for it was open. Where no recorded event writes what
        is seeded, those that do, unrecorded, belong to the program too.
        """
        events, own = (
            self.seen.tape.events[: self.moment.events],
            {id(s.event) for s in self.steps if s.event is not None},
        )
        places = [n for n, e in enumerate(events) if id(e) in own]
        if not places:
            return []
        missed = {id(s.event) for s in escaped if s.kind not in HOST}
        first = next((n for n, e in enumerate(events[: places[0]]) if id(e) in missed), places[0])
        last = places[-1]
        for twin in (found[0] for a in seeded if (found := self.seen.twins.behind(a))):
            writers = [n for n, e in enumerate(events) if not _is_host(e) and _touches(e.writes, twin.span)]
            if writers and not own.intersection(id(events[n]) for n in writers):
                last = max(last, writers[-1])
        return events[first : last + 1]

    # ---- before

    def _with_gradients(self) -> list[Published]:
        """The arrays that publish a gradient, the largest of each memory."""
        found: dict[int, Any] = {}
        for entry in self.entries:
            if isinstance(entry, list):
                given = self.seen.twins.arrays_of([*entry[3], *entry[4]])
                found.update((id(a), a) for a in given if a.grad is not None)
        found.update((id(a), a) for a in arrays_in(self.moment.gradients) if a.grad is not None)
        found.update((id(a), a) for a in self._beside())
        found = {key: a for key, a in found.items() if self.moment.knows(a)}
        kept: list[Published] = []
        spans: list[tuple[int, int, int]] = []
        for a in sorted(found.values(), key=lambda a: -a.size):
            root, low = id(root_of(a.grad)), a.grad.ptr or 0
            high = low + a.grad.size
            if any(r == root and lo <= low and high <= hi for r, lo, hi in spans) or not a.size:
                continue
            try:
                twin = self.seen.twins.array(a)
            except Untranslated:
                continue
            spans.append((root, low, high))
            kept.append(Published(a, twin, self.moment.before(a)))
        for one in kept:
            self._place(one)
        return kept

    def _beside(self) -> Iterator[Any]:
        """The arrays with a gradient that launches of the pass read which Warp's tape has not recorded."""
        own = {id(s.event) for s in self.steps if s.event is not None}
        missed = [e for e in self.events if id(e) not in own and not _is_host(e) and e.kind != "opaque"]
        for known in list(self.seen.twins.made.values()) if missed else ():
            a, span = known.ref(), known.twin.span
            read = a is not None and a.grad is not None and any(_touches(e.reads, span) for e in missed)
            if read and not any(_touches(e.writes, span) for e in self.events):
                yield a

    def _place(self, one: Published) -> None:
        """Find where the gradient of an array has its meaning: at the first event that reads what came from outside."""
        started = False
        for event in self.meeting.get(one.twin.allocation, ()):
            writes, reads = _touches(event.writes, one.twin.span), _reads(event, one.twin.span)
            if not (writes or reads):
                continue
            if _is_host(event):
                started = started or one.at is None
                continue
            one.written = one.written or writes
            if one.at is None and reads:
                one.at = event
            elif one.at is None:
                one.written = True
                return
        if started and one.written:
            one.at = None

    def _seeds(self, loss: Any, grads: Any) -> list[tuple[array, np.ndarray]]:
        """What Warp's pass starts from: `loss`, `grads`, and what the program has put into `.grad` of results.

        What an earlier pass has left there is no seed of the program's, if this one names its own.
        """
        found: list[tuple[array, np.ndarray]] = []
        given = {} if grads is None else {id(a): g for a, g in grads.items()}
        listed = {id(p.theirs) for p in self.published}
        extra = [a for a in (loss, *(grads or ())) if a is not None and id(a) not in listed]
        for one in [*self.published, *(e for e in map(self._unlisted, extra) if e is not None)]:
            a = one.theirs
            if a is loss:
                found.append((one.twin, np.ones_like(one.before)))
            elif id(a) in given:
                found.append((one.twin, self.moment.seed(given[id(a)])))
            elif one.written and one.before.dtype.names is None:
                left = self.seen.left.get(a.grad) if loss is not None or grads else None
                values = one.before
                if left is not None and left.gradient.shape == values.shape:
                    values = np.where(values == left.gradient, 0, values)
                if np.any(values):
                    found.append((one.twin, values))
        return found

    def _left_again(self) -> list[Published]:
        """Arrays that events of the pass compute and read, and whose seed is no more than what an earlier pass left."""
        return [
            one for one in self.published
            if any(twin is one.twin for twin, _ in self.seeds)
            and (left := self.seen.left.get(one.theirs.grad)) is not None and left.computed
            and np.array_equal(left.gradient, one.before) and any(_reads(e, one.twin.span) for e in self.events)
        ]  # fmt: skip

    def _unlisted(self, a: Any) -> Published | None:
        try:
            twin = self.seen.twins.array(a)
        except Untranslated:
            return None
        return Published(a, twin, np.zeros(twin.data.shape, twin.data.dtype), True)

    # ---- after

    def judge(self, error: str = "") -> None:
        """Compute the exact gradient, and make the rows. `error`: why nothing can be said."""
        for n, noted in self.moment.glimpses if not error else ():
            step = self.by_entry[n]
            if step is not None:
                values = [(self.seen.twins.behind(a), values) for a, values in noted]
                self.glimpses.append(Glimpse(step, [(found[0], values) for found, values in values if found]))
        wrong_at: dict[int, Step] = {}
        if self.events and self.complete and not error:
            try:
                self.exact, wrong_at = self._walk(SCALES[0])
            except (GradientError, Untranslated) as refused:
                error = str(refused).splitlines()[0]
        for one in self.published:
            self.rows.append(self._row(one, error, wrong_at))
        for one in self.published:
            after, held = self.moment.after(one.theirs), digest(self.moment.held(one.theirs))
            one.after, self.seen.left[one.theirs.grad] = after, Left(self.number, after, held, one.written)
        if sum(values.nbytes for g in self.glimpses for _, values in g.values) > MUCH:
            self.glimpses.clear()

    def row_of(self, one: Published) -> Row | None:
        """The row about an array."""
        return next((row for p, row in zip(self.published, self.rows, strict=False) if p is one), None)

    def show(self) -> None:
        """From now on the tools of our tape are about this pass: its seeds, and the events that it goes through."""
        space = Workspace()
        for twin, values in self.seeds:
            view = shadow_view(twin, space[twin.allocation])
            view += values.reshape(view.shape).astype(view.dtype)
        tape = self.seen.tape
        tape.last_seeds = {a: shadow.data.copy() for a, shadow in space.items()}
        tape.within = frozenset(self.events)

    def _row(self, one: Published, error: str, wrong_at: dict[int, Step]) -> Row:
        theirs = self.moment.after(one.theirs)
        row = Row(name_of(self.seen.tape, one.twin), "not asked", backward=self.number, theirs=theirs)
        if theirs.dtype.names is not None or (one.at is None and not error):
            row.cause = "launches overwrite it, so that its gradient has no one meaning"
            return row
        if not self.complete or error:
            row.verdict, row.cause = "unverified", error or "Warp's tape has events from before the watch"
            return row
        exact = self.exact.get(id(one.twin))
        if exact is None:
            exact = np.zeros_like(theirs)
        row.exact = whole = exact if one.written else exact + one.before
        row.theirs = theirs
        if self.reached and np.isnan(exact).any():
            row.verdict, row.cause = "unverified", "; ".join(dict.fromkeys(self._doubt(e) for e in self.reached))
            row.step = self._step_behind(self.reached[0])
            if row.cause.startswith(RACE):
                row.remedy = f"a cell for each thread, or wp.atomic_add (notebooks/{NOTEBOOKS['race']})"
            return row
        row.verdict, row.difference = self._judged(one, row, whole)
        added = not one.written
        if row.verdict == "wrong" and one.written and np.any(one.before):
            verdict, difference = self._judged(one, row, exact + one.before)
            if verdict == "agrees":
                added, row.verdict, row.difference, row.exact = True, verdict, difference, exact + one.before
        if row.verdict == "agrees" and not self.seeds:
            row.verdict, row.cause = "not asked", NO_SEED
        elif row.verdict == "agrees" and self.again and self._rests_on_left(one, exact):
            name = name_of(self.seen.tape, self.again[0].twin)
            row.verdict = "unverified"
            row.cause = f"leaked seed: `{name}.grad` holds what an earlier backward has left, and is a seed once more"
            row.remedy = f"tape.zero(), or `{name}.grad.zero_()`, before the new seeds; or tape.backward(grads={{...}})"
        elif row.verdict == "agrees" and added and np.any(one.before):
            self._accumulated(one, row, exact)
        elif row.verdict == "wrong" and not self._excused(one, row, wrong_at):
            step = wrong_at.get(id(one.twin))
            first = max(wrong_at.values(), key=lambda s: s.number, default=None)
            row.step = first or step or (self._step_behind(one.at) if one.at is not None else None)
            row.cause, row.remedy = explain(self.seen, self, row)
        return row

    def _excused(self, one: Published, row: Row, wrong_at: dict[int, Step]) -> bool:
        """May a wrong row be right as well: then it is not known to be wrong."""
        return (
            self._not_finite(one, row)
            or self._kink(one, row, wrong_at)
            or self._is_rounding(one, row)
            or self._is_slight(row)
            or self._chosen(row)
        )

    def _not_finite(self, one: Published, row: Row) -> bool:
        """Is the exact gradient infinite or NaN somewhere, and Warp's right elsewhere."""
        assert row.exact is not None and row.theirs is not None
        odd = ~np.isfinite(row.exact)
        if not odd.any():
            return False
        rest = replace(row, theirs=np.where(odd, row.exact, row.theirs))
        if self._judged(one, rest, row.exact)[0] == "wrong":
            return False
        event = self._first_not_finite()
        row.verdict, row.step = "unverified", None if event is None else self._step_behind(event)
        row.cause = f"not finite: {odd.sum()} of {odd.size} numbers of the exact gradient are infinite or NaN"
        if row.step is not None:
            row.cause += f"; {row.step!r} is the first to meet such numbers in memory"
        row.remedy = (
            "values where slopes are finite; wp.zeros, not wp.empty, for what is read before all of it is written"
        )
        return True

    def _first_not_finite(self) -> Event | None:
        """The first event of the pass that has to do with memory that is not finite."""
        found: list[Event] = []

        def look(tape: Any, event: Event, space: Workspace, after: dict) -> None:
            if any(not np.isfinite(part.data).all() for part in floats(event)):
                found.append(event)
            reverse(tape, event, space, after)

        self._walk(SCALES[0], look)
        return found[-1] if found else None

    def _chosen(self, row: Row) -> bool:
        """Has a query taken another face than Warp's, which is as close and may have another slope."""
        step = next((s for s in self.steps if s.chosen and s.difference is not None and s.difference.far), None)
        if step is None or (np.any(row.exact) and not np.any(row.theirs)):  # nothing at all is no slope
            return False
        row.verdict, row.step = "unverified", step
        row.cause = f"kink: {step!r} has several faces that are as close, and Warp's query takes another of them"
        row.remedy = "values a little off the edge between them"
        return True

    def _judged(self, one: Published, row: Row, exact: np.ndarray) -> tuple[Verdict, float]:
        """The verdict on a gradient, and how far it is from the exact one: it agrees if rounding explains that."""
        assert row.theirs is not None
        found = accuracy(row.theirs, exact, None)
        fine = (
            found.fine
            or (found.close and accuracy(row.theirs, exact, self.noise_of(one)).fine)
            or (found.difference <= SMALL and accuracy(row.theirs, exact, self._rounding_of(one), 1).fine)
        )
        return ("agrees" if fine else "wrong"), found.difference

    def _is_rounding(self, one: Published, row: Row) -> bool:
        """Does rounding move a gradient as far as a wrong row is away: then it is not known to be wrong.

        Not asked of a gradient at a kink: there the least movement counts for the whole difference of its slopes.
        """
        assert row.theirs is not None and row.exact is not None
        exact = self.exact.get(id(one.twin))
        if exact is None or not np.array_equal(exact, self.other.get(id(one.twin), exact), equal_nan=True):
            return False
        if not accuracy(row.theirs, row.exact, self._rounding_of(one), 1).fine:
            return False
        row.verdict = "unverified"
        row.cause = "precision: numbers cancel, or a comparison is so close, that rounding alone moves it as far"
        row.remedy = "wp.float64, or a formula without the large terms"
        return True

    def _is_slight(self, row: Row) -> bool:
        """Is every number so little off that a slope rounded in another way may be all there is."""
        assert row.theirs is not None and row.exact is not None
        exact = row.exact.reshape(row.theirs.shape).astype(np.float64)
        with np.errstate(all="ignore"):
            if not (np.abs(row.theirs - exact) <= SLIGHT * np.abs(exact)).all():
                return False
        row.verdict = "unverified"
        row.cause = "precision: off by more than the sums in it are rounded, and by less than single slopes may be"
        row.remedy = "wp.float64, or a formula without large terms that cancel"
        return True

    def _rests_on_left(self, one: Published, exact: np.ndarray) -> bool:
        """Would this gradient be another without the seeds that an earlier pass has left."""
        new = [seed for seed in self.seeds if all(seed[0] is not left.twin for left in self.again)]
        return not np.array_equal(self.with_seeds(new).get(id(one.twin), np.zeros_like(exact)), exact)

    def _accumulated(self, one: Published, row: Row, exact: np.ndarray) -> None:
        """What was in a gradient before has been added to: as is meant, unless it is of other values of the array."""
        assert row.theirs is not None
        row.cause = "with what it held before this backward, which has been added to"
        earlier = self.seen.left.get(one.theirs.grad)
        if earlier is None or not np.array_equal(earlier.gradient, one.before):
            return
        if earlier.at == digest(self.moment.held(one.theirs)):
            return
        found = accuracy(row.theirs, exact, None)
        if found.fine:
            return
        row.verdict, row.difference, row.exact = "wrong", found.difference, exact
        row.step = next((s for s in self.steps if s.event is one.at), None)
        row.cause = (
            f"leaked seed: `{row.array}.grad` still held what backward {earlier.number} had left, the gradient at"
            f" values that `{row.array}` no longer has, and was added to"
        )
        row.remedy = (
            f"tape.zero(), or `{row.array}.grad.zero_()`, once `{row.array}` has been changed"
            f" (notebooks/{NOTEBOOKS['leaked seed']})"
        )

    def _kink(self, one: Published, row: Row, wrong_at: dict[int, Step]) -> bool:
        """Is a wrong row right with the other slope where two are right: then it is not known to be wrong.

        Otherwise `wrong_at` becomes what it is beside that gradient, if there is a kink at all.
        """
        if not any(is_choosing(e) for e in self.events):
            return False
        if self.slopes is None:
            self.slopes = OtherSlopes()
            self.other, steps = self._walk(SCALES[0], self.slopes)
            if any(not np.array_equal(v, self.exact[k], equal_nan=True) for k, v in self.other.items()):
                wrong_at.clear()
                wrong_at.update(steps)
                self.slopes = OtherSlopes(looks=True)
                self._walk(SCALES[0], self.slopes)
        other = self.other.get(id(one.twin))
        if other is None or row.exact is None:
            return False
        verdict, _ = self._judged(one, row, other if one.written else other + one.before)
        if verdict == "wrong":
            return False
        row.verdict = "unverified"
        row.step = next((s for s in self.steps if self.slopes.tie and s.event is self.slopes.tie[1]), None)
        row.cause = f"{self.slopes.sentence()}, where two slopes are right: Warp's gradient has the other one"
        row.remedy = "values a little off the kink, or a smooth formula"
        return True

    def _measure_noise(self) -> None:
        """How far rounding moves each number of the gradients: the walk with scaled seeds, scaled back."""
        for scale in SCALES[1:]:
            _note(self.noise, self._walk(scale)[0], self.exact, scale)

    def noise_of(self, one: Published) -> np.ndarray | None:
        """How far rounding moves each number of this gradient, by the walk with scaled seeds."""
        if not self.noise:
            self._measure_noise()
        return self.noise.get(id(one.twin))

    def _moved_of(self, one: Published) -> np.ndarray | None:
        """How far each number of this gradient moves where all that is summed in it moves by a rounding."""
        if not self.moved:
            for seed in range(TRIALS):
                _note(self.moved, self._walk(SCALES[0], Rounded(seed))[0], self.exact)
        return self.moved.get(id(one.twin))

    def _rounding_of(self, one: Published) -> np.ndarray | None:
        """How far each number of this gradient may be off by rounding, by the one measure or the other."""
        noise, moved = self.noise_of(one), self._moved_of(one)
        return None if noise is None or moved is None else np.maximum(NOISY * noise, ROUNDED * moved)

    def moved_within(self, one: Published, event: Event) -> np.ndarray | None:
        """How far this gradient moves where every operation of one launch's adjoint is rounded otherwise.

        None where that launch is too large to be interpreted.
        """
        if event not in self.within:
            self.within[event] = self._moves_within(event)
        return self.within[event].get(id(one.twin))

    def _moves_within(self, event: Event) -> dict[int, np.ndarray]:
        moved: dict[int, np.ndarray] = {}
        for seed in range(TRIALS):
            act = RoundedWithin(event, seed)
            _note(moved, self._walk(SCALES[0], act)[0], self.exact)
            if not act.ran:
                return {}
        return moved

    def with_seeds(self, seeds: list[tuple[array, np.ndarray]]) -> dict[int, np.ndarray]:
        """The exact gradients of the pass for other seeds, by the id of twins."""
        kept, self.seeds = self.seeds, seeds
        try:
            return self._walk(SCALES[0])[0]
        finally:
            self.seeds = kept

    def without(self, twin: array) -> dict[int, np.ndarray]:
        """The gradients of the pass if no adjoint could pass through this array, by the id of twins."""
        if id(twin.allocation) not in self.cuts:
            self.cuts[id(twin.allocation)] = self._walk(SCALES[0], Cut(twin))[0]
        return self.cuts[id(twin.allocation)]

    def _step_behind(self, event: Event) -> Step | None:
        return next((s for s in reversed(self.seen.steps) if s.event is event), None)

    def _doubt(self, event: Event) -> str:
        step = self._step_behind(event)
        if step is not None and not step.reason and step.difference is not None:
            return f"the result of {step!r} is not Warp's{_may_choose(event)}"
        if event.reason.startswith(RACE):
            return event.reason
        return f"{event.label} is opaque: {event.reason}"

    def _walk(self, scale: float, act: Act = reverse) -> tuple[dict[int, np.ndarray], dict[int, Step]]:
        """The exact gradients by the id of twins, and where Warp's buffers first left them.

        `act` reverses an event.
        """
        tape, first, last = self.seen.tape, self.events[0], self.events[-1]
        wanted: dict[int, list[Published]] = {}
        for one in self.published:
            if one.at is not None:
                wanted.setdefault(id(one.at), []).append(one)
        glimpses = {id(g.step.event): g for g in self.glimpses} if scale == 1.0 else {}
        doubtful = {id(s.event): s for s in self.steps if s.doubtful}
        exact: dict[int, np.ndarray] = {}
        wrong: dict[int, Step] = {}
        inside = False

        def before(event: Event, space: Workspace) -> None:
            nonlocal inside
            if event is last:
                inside = True
                for twin, values in self.seeds:
                    view = shadow_view(twin, space[twin.allocation])
                    view += (values.reshape(view.shape) * scale).astype(view.dtype)

        def step(tape: Any, event: Event, space: Workspace, after: dict) -> None:
            if not inside:
                return
            if event.kind == "opaque" or id(event) in doubtful:
                if _meets(event, space):
                    self.reached.append(event)
                    _spoil(event, space)
                return
            act(tape, event, space, after)

        def observe(event: Event, space: Workspace) -> None:
            for one in wanted.get(id(event), ()):
                exact[id(one.twin)] = _read(one.twin, space)
            if (glimpse := glimpses.get(id(event))) is not None:
                self._look(glimpse, space, wrong)
            if event is first:
                raise _Enough

        with self.seen.unrecorded():
            try:
                walk(tape, Workspace(), observe, before, step=step)
            except _Enough:
                pass
        return exact, wrong

    def _look(self, glimpse: Glimpse, space: Workspace, wrong: dict[int, Step]) -> None:
        """Compare Warp's buffers after one adjoint launch with the adjoints of the walk."""
        for twin, theirs in glimpse.values:
            if id(twin) in wrong or theirs.dtype.names is not None:
                continue
            base = next((p.before for p in self.published if p.twin is twin and not p.written), None)
            exact = _read(twin, space)
            if base is not None:
                exact = exact + base
            if exact.shape == theirs.shape and not is_near(theirs, exact) and not np.isnan(exact).any():
                found = accuracy(theirs, exact, None)
                if not found.fine and found.difference > SMALL:
                    wrong[id(twin)] = glimpse.step


def _may_choose(event: Event) -> str:
    """Why the result of a launch may differ that asks a mesh or a tree: what queries promise leaves a choice."""
    opened = () if event.command is None else {leaf.opened.name for leaf in event.command.program.leaves if leaf.opened}
    if "Mesh" in opened:
        return ": of faces that are as close, or in what order they come, its query may choose otherwise"
    if "Bvh" in opened:
        return ": its query gives boxes in another order, of which none is promised"
    return ""


def _note(noise: dict[int, np.ndarray], others: dict[int, np.ndarray], exact: dict, scale: float = 1.0) -> None:
    """Note how far other gradients, `scale` times as large, are from the exact ones, if that is farther than before."""
    for key, values in others.items():
        with np.errstate(all="ignore"):
            apart = np.abs(values.astype(np.float64) / scale - exact[key].astype(np.float64))
        noise[key] = np.maximum(noise.get(key, 0.0), apart)


def _is_host(event: Event) -> bool:
    return event.kind in HOST or event.label == HOST_WRITE


def _touches(spans: Any, span: Span) -> bool:
    return any(s.allocation is span.allocation and s.overlaps(span) is not False for s in spans)


def _reads(event: Event, span: Span) -> bool:
    """Does an event read these bytes otherwise than to add to them."""
    if event.command is None:
        return _touches(event.reads, span)
    plan = event.command.plan
    added = plan.accumulates_only
    return any(
        s.allocation is span.allocation and s.overlaps(span) is not False
        for (k, _), s in zip(plan.reads, event.reads, strict=False)
        if k not in added
    )


def _read(twin: array, space: Workspace) -> np.ndarray:
    if twin.allocation not in space or not is_float_memory(twin):
        return np.zeros(twin.data.shape, np.float32)
    return np.array(shadow_view(twin, space[twin.allocation]))


def _meets(event: Event, space: Workspace) -> bool:
    if event.command is None:
        return opaque_meets(event, space)
    return any(
        part.allocation in space and np.any(space[part.allocation].view(part.span, gradient_dtype(part)))
        for part in floats(event)
        if _touches(event.writes, part.span)
    )


def _spoil(event: Event, space: Workspace) -> None:
    """What an opaque event may have read has an unknown gradient from here on: NaN, which marks all that follows."""
    for part in floats(event):
        space[part.allocation].view(part.span, gradient_dtype(part))[...] = np.nan
