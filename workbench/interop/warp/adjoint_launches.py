"""`wp.launch(..., adjoint=True)` of the watched program: an event, and its result compared with the exact adjoint.

Such a launch reverses an earlier launch, at the memory of that time. The data flow tells which one: a seed that another
adjoint launch has written belongs to a launch before the one that it reversed. If the program never made the launch,
the adjoint is taken at the present memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from warp._src import context
from warp._src import types as warp_types

from ...arrays.array import array
from ...arrays.span import Span
from ...arrays.workspace import Workspace, gradient_dtype, is_float_memory, shadow_view
from ...errors import GradientError, WorkbenchError
from ...launches.adjoint_plan import adjoint_of
from ...launches.command import Command
from ...tapes.events import Event
from ...tapes.kinds import LAUNCH
from ...tapes.reverse import extremal_memory, put_back, reverse, rewind
from .causes import needed
from .compare import VerdictRow
from .deferred import Deferring
from .events import WarpStep
from .memory import TwinBuffer, Twins, Untranslated, arrays_in, hull, root_of
from .programs import said
from .verdicts import SCALES, Act, PublishedGradient, Verdicts

if TYPE_CHECKING:
    from .watch import Watch

TWICE = "it ran the adjoint of a launch, so that its own derivative is a second derivative"
GRADIENT = "it computed gradients, so that its own derivative is a second derivative"
IN_CAPTURE = "an adjoint that the program launches itself, in a capture"
Pair = tuple[Any, Any]  # an array of Warp among the arguments of a launch, and the one that holds its adjoint


@dataclass
class Noted:
    """Snapshot of the adjoint arrays before and after an adjoint launch, by array id; stands in for `Moments`."""

    first: dict[int, np.ndarray]
    last: dict[int, np.ndarray]
    changed: frozenset[TwinBuffer] = frozenset()

    def before(self, a: Any) -> np.ndarray:
        return self.first[id(a)]

    def after(self, a: Any) -> np.ndarray:
        return self.last[id(a)]


class AdjointLaunch(Verdicts):
    """One adjoint launch of the program's, beside the exact adjoint of the launch that it reverses.

    step    its own; `given`: the spans that it adds to.
    event   the launch that it reverses. `chained`: an adjoint launch before it says which; `recorded`: it has happened.
    """

    def __init__(self, seen: Watch, step: WarpStep, command: Command, pairs: list[Pair], noted: Noted):
        super().__init__(seen, -1, noted, seen.steps, [])
        self.step, self.command = step, command
        self.glimpses, self.again, self.by_entry = [], [], []
        self.event, self.chained = self._reversed(pairs)
        self.recorded = self.event is not None
        if self.event is None:
            self.event = _as_now(command)
        self.events = [self.event]
        self.steps = [s for s in reversed(seen.steps) if s.event is self.event][:1]
        self.published, self.seeds, self.given = [], [], []
        for a, g in pairs:
            one = PublishedGradient(a, seen.twins.array(a), noted.before(a))
            if not is_float_memory(one.twin):
                continue
            one.written = _meets(one.twin.span, self.event.writes)
            one.at = self.event if _reads(self.event, one.twin.span) else None
            if one.written:
                self.seeds.append((one.twin, one.before))
            if one.at is not None:
                self.published.append(one)
                self.given.append(seen.twins.array(g).span)
        self.complete, self.reason = True, self._unknown(pairs)

    def _reversed(self, pairs: list[Pair]) -> tuple[Event | None, bool]:
        """(the recorded launch that this one reverses or None, True if another adjoint launch narrowed the search)."""
        events = self.seen.tape.events
        limit, chained = len(events), False
        backs = {id(back.step.event): back for back in self.seen.launched_back}
        for a, g in pairs:
            if not _meets(self.seen.twins.array(a).span, _writes(self.command)):
                continue
            seed = self.seen.twins.array(g).span
            for event in reversed(events):
                if not _meets(seed, event.writes):
                    continue
                back = backs.get(id(event))
                if back is None:
                    break
                if back.event is not None and back.recorded and _meets(seed, back.given):
                    limit, chained = min(limit, events.index(back.event)), True
        found = (e for e in reversed(events[:limit]) if same(e.command, self.command))
        return next(found, None), chained

    def _unknown(self, pairs: list[Pair]) -> str:
        """The reason why the adjoint cannot be checked; "" if it can."""
        event, twins = self.event, self.seen.twins
        assert event is not None
        label = event.label
        if event.reverse is None:
            return f"nothing that `{label}` computes has a gradient"
        if any(a.shape != g.shape or not is_float_memory(twins.array(g)) for a, g in pairs):
            return f"an adjoint of another shape than its array of `{label}`"
        adjoints = list({id(g): twins.array(g).span for _, g in pairs}.values())
        if any(_meets(span, adjoints[:n]) for n, span in enumerate(adjoints)):
            return f"two adjoints of `{label}` share memory"
        lost = any(_meets(event.command.flat[k].span, event.writes) for k, _ in event.reverse.needs)
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
        if self.chained or not self.recorded or self._overwrites_its_own():
            return
        now = self._walk(SCALES[0], rewinds=False)[0].get(id(one.twin))
        if now is None or self._judged(one, row, now if one.written else now + one.before)[0] == "wrong":
            return
        row.verdict = "unverified"
        row.cause = f"{row.cause}: right for what memory holds now, wrong for what {self.steps[0]!r} had read"

    def _overwrites_its_own(self) -> bool:
        """True if the launch overwrites what its adjoint reads: an adjoint at present memory is then never right."""
        assert self.event is not None
        return any(
            need.span.overlaps(kept.span) is not False for need in needed(self.event) for kept in self.event.kept
        )

    def _step_behind(self, event: Event) -> WarpStep:
        return self.steps[0] if self.steps else self.step

    def _accumulated(self, one: PublishedGradient, row: VerdictRow, exact: np.ndarray) -> None:
        """Accept the row: an adjoint launch is meant to add to what its gradients held."""

    def _walk(
        self, scale: float, act: Act = reverse, rewinds: bool = True
    ) -> tuple[dict[int, np.ndarray], dict[int, WarpStep]]:
        tape, event = self.seen.tape, self.event
        assert event is not None
        space = Workspace()
        for twin, values in self.seeds:
            view = shadow_view(twin, space[twin.allocation])
            view += (values.reshape(view.shape) * scale).astype(view.dtype)
        with self.seen.unrecorded(), _memory_of(tape, event, rewinds and self.recorded) as after:
            act(tape, event, space, after)
        return {id(one.twin): _read(one.twin, space) for one in self.published}, {}


class AdjointLaunches(Deferring):
    """The mixin of `Watch` that handles adjoint launches."""

    twins: Twins
    check: str | None
    captured: list[Any] | None
    launched_back: list[AdjointLaunch]
    computed: dict[int, Any]  # by address: gradients that a backward has computed, and the twins of its arrays
    noted: Callable[..., Any]
    event: Callable[..., Any]
    host_writes: Callable[[list[TwinBuffer], Any], None]
    note_names: Callable[[Any], dict[int, str]]
    quietly: Callable[[Callable[[], Any]], Any]
    step: Callable[..., WarpStep]
    opaque: Callable[..., Any]
    note_entries: Callable[[Any, list[Any], WarpStep | None], None]
    twin_command: Callable[..., Command]

    def adjoint_launched(
        self, kernel: Any, dim: Any, values: list[Any], adjoints: list[Any], theirs: Callable[[], Any], frame: Any
    ) -> Any:
        """One launch with `adjoint=True`. Returns what Warp's call returns."""
        label = f"adjoint of {kernel.func.__name__}"
        pairs = list({(id(a), id(g)): (a, g) for a, g in _pairs(values, adjoints)}.values())
        arrays = [*self.twins.arrays_of(values), *(g for _, g in pairs)]
        if self.captured is not None:
            return self.noted("opaque", label, arrays, _in_capture, theirs, kernel)
        self.catch_up()
        reason, regions = "", []
        try:
            regions = self.twins.regions(arrays)
            self.host_writes(regions, frame)
        except (Untranslated, WorkbenchError) as error:
            reason = said(error)
        if any(id(twin) not in self._tape.names.noted for a, _ in pairs for twin in self.twins.behind(a)):
            self.note_names(frame)
        first = {id(a): np.array(g.numpy()) for a, g in pairs}
        tape = context.runtime.tape
        before = 0 if tape is None else len(tape.launches)
        result = self.quietly(theirs)
        entries = [] if tape is None else tape.launches[before:]
        step = self.step("adjoint", label, tape, entries, kernel, reason)
        back = None
        if not reason:
            noted = Noted(first, {id(a): np.array(g.numpy()) for a, g in pairs})
            back = self._back(step, kernel, dim, values, pairs, noted, frame)
        changed = None if step.reason else [region for region in regions if region.changed()]
        step.event = self.opaque(step, arrays, regions, frame, changed)
        if back is not None:
            self.launched_back.append(back)
        self._steps.append(step)
        self.note_entries(tape, entries, step)
        return result

    # ---- gradients that launches read

    def gone_back(self, arrays: list[Any]) -> None:
        """Remember that Warp's backward has computed these arrays' gradients: reading one is a second derivative."""
        twins = [twin for a in arrays for twin in self.twins.behind(a)]
        for a in arrays:
            root = root_of(a.grad)
            if root.ptr:
                self.computed[hull(root)[0]] = weakref.ref(root), twins

    def computed_by_warp(self, region: TwinBuffer, frame: Any) -> bool:
        """True if Warp's backward has computed this buffer since the last check; then records an event for that."""
        root, twins = self.computed.pop(region.low, (None, []))
        if root is None or root() is None or root() is not region.keeper():
            return False
        self.after_backward(self.twins.flat(region), twins, lambda: region.accept(False), frame)
        return True

    def after_backward(self, gradient: array, twins: list[array], perform: Callable[[], None], frame: Any) -> None:
        """Record an opaque event for a gradient that Warp's backward has computed from arrays with these twins."""
        step = WarpStep(len(self._tape.events), "adjoint", "Tape.backward", None)
        place = frame.f_code, frame.f_lasti
        step.event = self._tape.opaque_event(step.label, [*twins, gradient], [gradient], perform, GRADIENT, place)
        self._steps.append(step)

    def _back(
        self: Any, step: WarpStep, kernel: Any, dim: Any, values: list[Any], pairs: list[Pair], noted: Noted, frame: Any
    ) -> AdjointLaunch | None:
        """The judged `AdjointLaunch`; None if gradients are not checked, or it failed (then `step.reason` says why)."""
        if self.check != "gradient":
            return None
        try:
            back = AdjointLaunch(self, step, self.twin_command(kernel, dim, values), pairs, noted)
            back.judge()
        except Exception as error:  # noqa: BLE001  whatever ours cannot do is opaque, and the program goes on
            step.reason, step.kind = said(error), "opaque"
            return None
        return back


def _pairs(values: list[Any], adjoints: list[Any]) -> Iterator[Pair]:
    """The arrays among the arguments, those in structs too, each with the array that holds its adjoint.

    Without one of its own Warp takes the array's gradient, and always of an array in a struct.
    """
    for value, adjoint in zip(values, adjoints, strict=False):
        own = warp_types.is_array(value) and warp_types.is_array(adjoint) and adjoint.ptr
        for a in arrays_in([value]):
            held = adjoint if own else a.grad
            if held is not None:
                yield a, held


def _in_capture() -> None:
    raise Untranslated(IN_CAPTURE)


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


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, array) and isinstance(b, array):
        return a.span == b.span and a.dtype is b.dtype
    return isinstance(a, array) is isinstance(b, array) and np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True)


def _writes(command: Command) -> list[Span]:
    return [command.flat[k].span for k, _ in command.plan.writes]


def _reads(event: Event, span: Span) -> bool:
    """True if a launch reads these bytes other than to accumulate into them."""
    plan, flat = event.command.plan, event.command.flat
    return _meets(span, [flat[k].span for k, _ in plan.reads if k not in plan.accumulates_only])


def _meets(span: Span, spans: Any) -> bool:
    return any(s.allocation is span.allocation and s.overlaps(span) is not False for s in spans)


def _read(twin: array, space: Workspace) -> np.ndarray:
    if twin.allocation not in space:
        return np.zeros(twin.data.shape, gradient_dtype(twin))
    return np.array(shadow_view(twin, space[twin.allocation]))
