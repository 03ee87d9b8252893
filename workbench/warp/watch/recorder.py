"""Each call of Warp as an event of our tape: the host's writes before it, its twin, and how the results differ."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...arrays import allocation as memory
from ...arrays.array import array
from ...errors import WorkbenchError
from .builtin_calls import host_write
from .hooks import caller, first_line
from .memory import TwinBuffer, Untranslated, hull, root_of
from .session import HOST_WRITE, RACE, CallSite, Session, WarpStep, asks_mesh, difference_of

LARGE = 1 << 16  # bytes: comparing less takes no time
TWICE = "it ran the adjoint of a launch, so that its own derivative is a second derivative"
GRADIENT = "it computed gradients, so that its own derivative is a second derivative"


@dataclass(eq=False, slots=True)
class WarpCall:
    """A call of Warp that has run, or that a graph runs.

    arrays   of Warp that it touches, or their twins.
    ours     what the twins do.
    tape     Warp's open tape; `entries`: what that has recorded of the call.
    refused  why there is no twin, or "".
    """

    kind: str
    label: str
    ours: Callable[[], Any] | None
    place: CallSite
    kernel: Any = None
    arrays: Sequence[Any] = ()
    tape: Any = None
    entries: Sequence[Any] = ()
    refused: str = ""


class EventRecorder:
    """Records calls of Warp on the session's tape, each as a step.

    captured   the calls of the open capture so far, in place of steps; None outside of captures.
    """

    def __init__(self, session: Session):
        self.session, self.twins = session, session.twins
        self.captured: list[Any] | None = None
        self.computed: dict[int, Any] = {}  # by address: gradients of a backward, and the twins of its arrays

    # ---- a call and its twin

    def event(
        self,
        kind: str,
        label: str,
        arrays: Sequence[Any],
        theirs: Callable[[], Any],
        ours: Callable[[], Any] | None = None,
        kernel: object = None,
        refused: str = "",
        values: Sequence[Any] = (),
    ) -> Any:
        """Run one call of Warp's and its twin; in a capture only note it, for the launches of its graph.

        `refused`: why there is no twin; `values`: the arguments. Returns what Warp's call returns, and raises what it
        raises.
        """
        place = self.session.place_of(caller())
        regions, reason = self.reach(arrays, place) if self.captured is None else ([], "")
        result, tape, entries = self.session.run(theirs)
        call = WarpCall(kind, label, ours, place, kernel, arrays, tape, entries, refused)
        if self.captured is not None:
            self.captured.append(call)
        else:
            self.session.quietly(lambda: self.record(call, regions, refused or reason, values))
        return result

    def reach(self, arrays: Iterable[Any], place: CallSite) -> tuple[list[TwinBuffer], str]:
        """Record the host's changes before a call, or those of a call that is not hooked, since its buffers were seen.

        Returns (the buffers of its arrays, why it has no twin or "").
        """
        regions: list[TwinBuffer] = []
        try:
            regions = self.twins.regions(arrays)
            for region in regions:
                if not (self.computed and self.computed_by_warp(region, place)) and region.changed():
                    self.host_write(region, place)
        except (Untranslated, WorkbenchError) as error:
            return regions, first_line(error)
        return regions, ""

    def record(self, call: WarpCall, regions: list[TwinBuffer], reason: str, values: Sequence[Any]) -> None:
        """Run the twin of a call that Warp has run, compare the results, and copy Warp's bytes to the twins."""
        count = len(self.session.tape.events)
        step = self.replay(call, reason)
        if step.reason:
            step.kind = "opaque"
            step.event = self.opaque(step, call.arrays, regions, call.place, values=values)
        else:
            self.accept(step, self.changed_by(count, regions))

    def replay(self, call: WarpCall, reason: str = "") -> WarpStep:
        """Run the twin of a call. Returns its step, with the reason if it failed."""
        events = self.session.tape.events
        count = len(events)
        step = self.step(call.kind, call.label, call.tape, call.entries, call.kernel, reason)
        if not reason and call.ours is not None:
            try:
                with memory.recorded_by(self.session.tape):
                    call.ours()
                if len(events) > count:
                    step.event, step.number = events[-1], len(events) - 1
                    if step.kind == "native":  # a native function of Warp's may have taken several
                        step.event.label = step.label
                    for event in events[count:]:
                        event.place = call.place
            except Exception as error:  # noqa: BLE001  whatever ours cannot do is opaque, and the program goes on
                step.reason = (RACE if getattr(error, "slug", "") == "race" else "") + first_line(error)
                self.undo(count)
        self.session.steps.append(step)
        self.note_entries(call.tape, call.entries, step)
        return step

    def step(
        self, kind: str, label: str, tape: object, entries: Sequence[Any], kernel: object = None, reason: str = ""
    ) -> WarpStep:
        """A new step for a call, of which Warp's open tape has recorded these entries."""
        session = self.session
        number = session.tapes.setdefault(tape, len(session.tapes)) if entries else None
        step = WarpStep(len(session.tape.events), kind, label, None, number, kernel, reason)
        if tape is not None and not entries:
            session.escaped.setdefault(tape, []).append(step)
        return step

    def note_entries(self, tape: object, entries: Sequence[Any], step: WarpStep | None) -> None:
        """Record which entries of Warp's tape this step has made."""
        if tape is not None:
            self.session.recorded.setdefault(tape, {}).update((id(entry), step) for entry in entries)

    # ---- our events

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
        place: CallSite,
        changed: list[TwinBuffer] | None = None,
        values: Sequence[Any] = (),
    ) -> Any:
        """The event of a call without a twin: Warp's bytes are copied.

        `changed`: the buffers it wrote, if known; `values`: the arguments of a launch.
        """
        twins, untouched = [], self.twins.read_only(step.kernel, values)
        written, changes = [], None if changed is None else {region.allocation for region in changed}
        for a in arrays:
            with suppress(Untranslated):
                twins.append(a if isinstance(a, array) else self.twins.array(a))
                if id(a) not in untouched and (changes is None or twins[-1].allocation in changes):
                    written.append(twins[-1])

        def perform() -> None:
            for region in regions:
                region.accept(False)

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
                continue
            if self.session.check is not None and (found := difference_of(self.twins, region)) is not None:
                differences.append(found)
            region.accept(apart)
        step.difference = max(differences, key=lambda d: d.share, default=None)
        step.chosen = asks_mesh(step.event) and all(d.whole or not d.far for d in differences)

    def host_write(self, region: TwinBuffer, place: CallSite) -> None:
        """Record events for the changes to a buffer since it was last seen."""
        events = self.session.tape.events
        count = len(events)
        pieces = self.twins.written_behind(region)
        with memory.recorded_by(self.session.tape):
            for piece in pieces:
                host_write(piece)
        for event in events[count:]:
            event.place, event.label = place, HOST_WRITE
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

    def computed_by_warp(self, region: TwinBuffer, place: CallSite) -> bool:
        """True if Warp's backward has computed this buffer since the last check; then records an event for that."""
        root, twins = self.computed.pop(region.low, (None, []))
        if root is None or root() is None or root() is not region.keeper():
            return False
        self.after_backward(self.twins.flat(region), twins, lambda: region.accept(False), place)
        return True

    def after_backward(self, gradient: array, twins: list[array], perform: Callable[[], None], place: CallSite) -> None:
        """Record an opaque event for a gradient that Warp's backward has computed from arrays with these twins."""
        tape = self.session.tape
        step = WarpStep(len(tape.events), "adjoint", "Tape.backward", None)
        step.event = tape.opaque_event(step.label, [*twins, gradient], [gradient], perform, GRADIENT, place)
        self.session.steps.append(step)
