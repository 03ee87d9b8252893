"""Each call of Warp as an event of our tape: the host's writes before it, its twin, and how the results differ.

`event` does so right after the call. `postponed` takes snapshots and leaves the rest to `follow`, which does on them
what `event` does on memory; the result is the same. For a call that ran before with the same arguments the buffers are
known: its twin needs only the host's changes before it and the bytes that it left.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

from warp._src import context

from ...arrays import allocation as memory
from ...arrays.array import array
from ...errors import WorkbenchError
from .builtin_calls import host_write
from .changed_bytes import EachBuffer, PackedBuffers
from .events import HOST_WRITE, RACE, WarpStep, asks_mesh, difference_of
from .memory import Snapshot, TwinBuffer, Untranslated, hull, root_of
from .programs import first_line
from .session import Session

LARGE = 1 << 16  # bytes: comparing less takes no time
TWICE = "it ran the adjoint of a launch, so that its own derivative is a second derivative"
GRADIENT = "it computed gradients, so that its own derivative is a second derivative"


@dataclass(eq=False)
class Repeated:
    """A compiled launch of ours, ready to run again: its arrays, their buffers, and those that it writes."""

    command: Any
    place: Any
    twins: tuple[array, ...]
    regions: list[TwinBuffer]
    written: list[TwinBuffer]
    look: EachBuffer


@dataclass(eq=False, slots=True)
class WarpCall:
    """A call of Warp, whose twin runs right after it or later.

    arrays   of Warp that it touches, or their twins.
    regions  their buffers; `host`: snapshots of those that the host changed before; `after`: of its results.
    ours     what the twins do; a `Repeated` if the launch ran before.
    tape     Warp's open tape; `entries`: what that has recorded of the call.
    """

    kind: str
    label: str
    regions: list[TwinBuffer]
    ours: Callable[[], Any] | Repeated
    place: Any
    kernel: Any = None
    arrays: Sequence[Any] = ()
    tape: Any = None
    entries: Sequence[Any] = ()
    host: Sequence[tuple[TwinBuffer, Snapshot]] = ()
    after: Iterable[tuple[TwinBuffer, Snapshot]] = ()
    follow: Callable[[WarpCall], None] | None = None  # replays it

    def __call__(self) -> None:
        assert self.follow is not None
        self.follow(self)

    def run(self) -> None:
        """Run the twin. A launch is compiled once, and repeated where the call runs again."""
        if isinstance(self.ours, Repeated):
            self.ours.command.launch(True, self.place)
        elif isinstance(made := self.ours(), Repeated):
            self.ours = made


@contextmanager
def as_of_call(call: WarpCall) -> Iterator[None]:
    """Context in which the buffers' current bytes are those before a deferred call; on exit the live ones again."""
    for region in call.regions:
        region.theirs = region.seen
    for region, snapshot in call.host:
        region.back_to(snapshot)
    try:
        yield
    finally:
        for region, snapshot in (*call.host, *call.after):
            if region.latest is snapshot:
                region.latest = None
        for region in call.regions:
            region.theirs = region.live


class EventRecorder:
    """Records calls of Warp on the session's tape, each as a step."""

    def __init__(self, session: Session):
        self.session, self.twins = session, session.twins
        self.computed: dict[int, Any] = {}  # by address: gradients of a backward, and the twins of its arrays

    # ---- a call and its twin

    def event(
        self,
        kind: str,
        label: str,
        arrays: list[Any],
        theirs: Callable[[], Any],
        ours: Callable[[], Any],
        frame: FrameType,
        kernel: Any = None,
        refused: str = "",
        values: Sequence[Any] = (),
    ) -> Any:
        """Run one call of Warp's and its twin. Returns what Warp's call returns, and raises what it raises."""
        self.session.catch_up()
        regions, reason = self.reach(arrays, frame)
        result, tape, entries = self.session.run(theirs)
        call = WarpCall(kind, label, regions, ours, frame, kernel, arrays, tape, entries)
        self.record(call, refused or reason, values)
        return result

    def postponed(self, call: WarpCall, look: EachBuffer | PackedBuffers, theirs: Callable[[], Any]) -> Any:
        """Run a call of Warp's, and let `look` take the snapshots for its replay. Returns what Warp's call returns."""
        session = self.session
        call.follow = call.follow or self.follow
        call.tape = tape = context.runtime.tape
        before, size = 0 if tape is None else len(tape.launches), 0
        if moved := look.moved_on():
            call.host = [(region, region.snapshot()) for region in moved]
            size = sum([region.size for region in moved])
        session.inside = True
        try:
            result = theirs()
        except BaseException:
            call.ours, call.kind = no_twin, "host"
            raise
        finally:
            session.inside = False
            if call.kind != "host":
                call.after, more = look.snapshots()
                size += more
            if tape is not None:
                call.entries = tape.launches[before:]
            session.postpone(call, call.arrays, size)
        return result

    def follow(self, call: WarpCall) -> None:
        """Replay one deferred call on the twins, at Warp's bytes from before and after it."""
        with as_of_call(call):
            reason = self.reached(call)
            if call.ours is not no_twin:
                self.record(call, reason)

    def reach(self, arrays: Iterable[Any], frame: FrameType) -> tuple[list[TwinBuffer], str]:
        """Record the host writes before a call. Returns (the buffers of its arrays, why it has no twin or "")."""
        regions: list[TwinBuffer] = []
        try:
            regions = self.twins.regions(arrays)
            self.host_writes(regions, frame)
        except (Untranslated, WorkbenchError) as error:
            return regions, first_line(error)
        return regions, ""

    def reached(self, call: WarpCall) -> str:
        """Record the host writes before a call, then make its result snapshots current. Returns why not, or ""."""
        reason = ""
        try:
            self.host_writes(call.regions, call.place)
        except (Untranslated, WorkbenchError) as error:
            reason = first_line(error)
        for region, snapshot in call.after if call.ours is not no_twin else ():
            region.back_to(snapshot)
        return reason

    def record(self, call: WarpCall, reason: str, values: Sequence[Any] = ()) -> None:
        """Run the twin of a call that Warp has run, compare the results, and copy Warp's bytes to the twins.

        `reason`: why there is no twin; `values`: the arguments.
        """
        count = len(self.session.tape.events)
        step = self.replay(call, reason)
        if step.reason:
            step.kind = "opaque"
            step.event = self.opaque(step, call.arrays, call.regions, call.place, values=values)
        else:
            self.accept(step, self.changed_by(count, call.regions))

    def replay(self, call: WarpCall, reason: str = "") -> WarpStep:
        """Run the twin of a call. Returns its step, with the reason if it failed."""
        events = self.session.tape.events
        count = len(events)
        step = self.step(call.kind, call.label, call.tape, call.entries, call.kernel, reason)
        if not reason:
            try:
                self.on_our_tape(call.run)
                if len(events) > count:
                    self.named(step)
                    self.place(count, call.place)
            except Exception as error:  # noqa: BLE001  whatever ours cannot do is opaque, and the program goes on
                step.reason = (RACE if getattr(error, "slug", "") == "race" else "") + first_line(error)
                self.undo(count)
        self.session.steps.append(step)
        self.note_entries(call.tape, call.entries, step)
        return step

    def step(
        self, kind: str, label: str, tape: Any, entries: Sequence[Any], kernel: Any = None, reason: str = ""
    ) -> WarpStep:
        """A new step for a call, of which Warp's open tape has recorded these entries."""
        session = self.session
        number = session.tapes.setdefault(tape, len(session.tapes)) if entries else None
        step = WarpStep(len(session.tape.events), kind, label, None, number, kernel, reason)
        if tape is not None and not entries:
            session.escaped.setdefault(tape, []).append(step)
        return step

    def note_entries(self, tape: Any, entries: Sequence[Any], step: WarpStep | None) -> None:
        """Record which entries of Warp's tape this step has made."""
        if tape is not None:
            self.session.recorded.setdefault(tape, {}).update((id(entry), step) for entry in entries)

    # ---- our events

    def on_our_tape(self, act: Callable[[], Any]) -> None:
        """Run `act` with our tape recording."""
        tape = self.session.tape
        memory.push_recorder(tape)
        try:
            act()
        finally:
            memory.pop_recorder(tape)

    def place(self, count: int, frame: FrameType) -> None:
        """Set the line of the events from number `count` on to that of the program's call."""
        for event in self.session.tape.events[count:]:
            event.place = frame.f_code, frame.f_lasti

    def named(self, step: WarpStep) -> None:
        """Assign the last event to this step; a native function of Warp's may have taken several."""
        events = self.session.tape.events
        step.event, step.number = events[-1], len(events) - 1
        if step.kind == "native":
            step.event.label = step.label

    def undo(self, count: int) -> None:
        """Drop our events from number `count` on after a failure: an opaque one takes their place."""
        tape = self.session.tape
        tape.needed.failure = None
        del tape.events[count:]

    def opaque(
        self,
        step: WarpStep,
        arrays: Sequence[Any],
        regions: list[TwinBuffer],
        frame: FrameType,
        changed: list[TwinBuffer] | None = None,
        values: Sequence[Any] = (),
    ) -> Any:
        """The event of a call without a twin: Warp's bytes are copied.

        `changed`: the buffers it wrote, if known; `values`: the arguments of a launch.
        """
        twins, untouched = [], self.twins.read_only(step.kernel, values)
        written, changes = [], None if changed is None else {region.allocation for region in changed}
        for a in arrays:
            try:
                twins.append(a if isinstance(a, array) else self.twins.array(a))
            except Untranslated:
                continue
            if id(a) not in untouched and (changes is None or twins[-1].allocation in changes):
                written.append(twins[-1])

        def perform() -> None:
            for region in regions:
                region.accept(False)

        place = frame.f_code, frame.f_lasti
        return self.session.tape.opaque_event(step.label, twins, written, perform, step.reason or TWICE, place)

    # ---- results

    def changed_by(self, count: int, regions: list[TwinBuffer]) -> list[TwinBuffer]:
        """The buffers to compare after our events from number `count` on.

        Of those that none of them has written the large ones are left out: the next call looks at them before it runs.
        """
        written = {span.allocation for event in self.session.tape.events[count:] for span in event.writes}
        if not written:
            return regions
        return [r for r in regions if r.allocation in written or r.apart is not None or r.size < LARGE]

    def accept(self, step: WarpStep, regions: list[TwinBuffer]) -> None:
        """Compare the results of a step with Warp's, and copy Warp's bytes to the twins."""
        apart = bool(step.event is not None and step.event.reverse is not None and step.event.reverse.extremal)
        differences = []
        for region in regions:
            if region.apart is None and not region.changed():
                region.followed()
                continue
            if self.session.check is not None and (found := difference_of(self.twins, region)) is not None:
                differences.append(found)
            region.accept(apart)
        step.difference = max(differences, key=lambda d: d.share, default=None)
        step.chosen = asks_mesh(step.event) and all(d.whole or not d.far for d in differences)

    def host_writes(self, regions: list[TwinBuffer], frame: FrameType) -> None:
        """Record events for changes to these buffers by the host, or by a call that is not hooked, since last seen."""
        for region in regions:
            if (self.computed and self.computed_by_warp(region, frame)) or not region.changed():
                continue
            events = self.session.tape.events
            count = len(events)
            pieces = self.twins.written_behind(region)
            for piece in pieces:
                self.on_our_tape(partial(host_write, piece))
            self.place(count, frame)
            for event in events[count:]:
                event.label = HOST_WRITE
            region.accept(False)
            event = events[-1] if pieces else None
            self.session.steps.append(WarpStep(len(events) - len(pieces), "host", HOST_WRITE, event))

    # ---- gradients that launches read

    def gone_back(self, arrays: list[Any]) -> None:
        """Remember that Warp's backward has computed these arrays' gradients: reading one is a second derivative."""
        twins = [twin for a in arrays for twin in self.twins.behind(a)]
        for a in arrays:
            root = root_of(a.grad)
            if root.ptr:
                self.computed[hull(root)[0]] = weakref.ref(root), twins

    def computed_by_warp(self, region: TwinBuffer, frame: FrameType) -> bool:
        """True if Warp's backward has computed this buffer since the last check; then records an event for that."""
        root, twins = self.computed.pop(region.low, (None, []))
        if root is None or root() is None or root() is not region.keeper():
            return False
        self.after_backward(self.twins.flat(region), twins, lambda: region.accept(False), frame)
        return True

    def after_backward(
        self, gradient: array, twins: list[array], perform: Callable[[], None], frame: FrameType
    ) -> None:
        """Record an opaque event for a gradient that Warp's backward has computed from arrays with these twins."""
        tape = self.session.recorded_tape
        step = WarpStep(len(tape.events), "adjoint", "Tape.backward", None)
        place = frame.f_code, frame.f_lasti
        step.event = tape.opaque_event(step.label, [*twins, gradient], [gradient], perform, GRADIENT, place)
        self.session.recorded_steps.append(step)


def no_twin() -> None:
    """The twin of a call that raised in Warp, or is opaque: it does nothing."""


def repeated(command: Any, place: Any, regions: list[TwinBuffer]) -> Repeated:
    """A `Repeated` of our launch `command` on these buffers."""
    places = {command.flat[k].allocation for k, _ in command.plan.writes}
    twins = tuple(a for a in command.flat if isinstance(a, array))
    written = [r for r in regions if r.allocation in places]
    return Repeated(command, place, twins, regions, written, EachBuffer(regions, written))
