"""Captures: on a CPU Warp records calls and runs them when the graph is launched; the twins replay them then.

The trip count of a captured loop, and the branch taken, are known only then: they are read from the condition's twin.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from warp._src import context

from ...arrays.array import array
from ...errors import WorkbenchError
from .changed_bytes import PackedBuffers, StoredBytes
from .deferred import AsOfCall, CallSite, DeferredCall, Deferring, Repeated, no_twin
from .events import WarpStep
from .memory import TwinBuffer, Twins, Untranslated, hull
from .passes import WarpBackward
from .programs import caller, said
from .snapshots import GraphSnapshots, ReplayedSnapshots


@dataclass(eq=False)
class CapturedCall:
    """A call of Warp in a capture, to be repeated when its graph is launched."""

    kind: str
    label: str
    arrays: list[Any]
    ours: Callable[[], Any]
    place: CallSite
    kernel: Any = None
    known: Repeated | None = None  # a launch, once it has been repeated
    tape: Any = None  # of Warp, if one was open
    entries: list[Any] = field(default_factory=list)  # what it has recorded of this call

    def touched(self) -> list[Any]:
        """The Warp arrays that the call may read or write."""
        return self.arrays

    def repeat(self) -> None:
        """Replay the call on the twins; a launch is compiled once and then repeated."""
        if self.known is not None:
            self.known.command.launch(True, self.known.place)
        elif self.kind == "launch":
            self.known = self.ours()
        else:
            self.ours()


@dataclass(eq=False)
class CapturedLoop:
    """A loop or a branch in a capture: the parts that its condition decides on."""

    condition: Any
    parts: list[list[Any]]
    loops: bool

    def touched(self) -> list[Any]:
        return [self.condition, *(a for part in self.parts for call in part for a in call.touched())]

    def next(self, condition: array) -> list[Any] | None:
        """The part to run next for this value of the condition; None to leave."""
        holds = bool(np.ravel(condition.data)[0])
        if holds:
            return self.parts[0]
        return None if self.loops or len(self.parts) < 2 else self.parts[1]


class Ready(NamedTuple):
    """A graph whose launches are deferred: its buffers, the snapshots taken of them, and its backwards."""

    regions: list[TwinBuffer]
    look: PackedBuffers
    backs: list[ReplayedSnapshots]


TURNS = 100_000  # of a captured loop
APART = 0.1  # of the largest number: a wrong gradient that is nearer is not sure, if a graph has other results here
FROM_HOST = "assign of numbers of the host"
SAVED = "in a capture that may be saved: nothing can be noted in its graph"
IN_LOOP = "in a loop of a capture: what its graph notes is of the last turn"
PART = "its graph is repeated here as a whole, with results up to {:.3g} units in the last place from Warp's"
Noted = CapturedCall | CapturedLoop | ReplayedSnapshots


class Captures(Deferring):
    """The mixin of `Watch` that handles captures and graph launches."""

    twins: Twins
    inside: bool
    captured: list[Noted] | None
    saved: str  # why nothing can be noted in the graph of the open capture
    graphs: weakref.WeakKeyDictionary[Any, list[Noted]]
    paused: weakref.WeakKeyDictionary[Any, list[Noted]]
    ready: weakref.WeakKeyDictionary[Any, Ready]
    store: StoredBytes
    taken: dict[int, GraphSnapshots]
    ran: list[GraphSnapshots]  # of the graph that is being launched
    check: str | None
    current: Any
    tapes: weakref.WeakKeyDictionary[Any, int]
    recorded: weakref.WeakKeyDictionary[Any, dict[int, WarpStep | None]]
    escaped: weakref.WeakKeyDictionary[Any, list[WarpStep]]
    quietly: Callable[[Callable[[], Any]], Any]
    recorded_by_us: Callable[[Callable[[], Any]], None]
    undo: Callable[[int], None]
    host_writes: Callable[[list[TwinBuffer], Any], None]
    accept: Callable[[WarpStep, list[TwinBuffer]], None]
    opaque: Callable[[WarpStep, list[Any], list[TwinBuffer], Any], Any]
    named: Callable[[WarpStep], None]
    place: Callable[[int, Any], None]
    gone_back: Callable[[list[Any]], None]
    after_backward: Callable[[array, list[array], Callable[[], None], Any], None]
    forget_glimpses: Callable[[], None]
    note_names: Callable[[Any], dict[int, str]]

    def _capture_begin(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        result = self.quietly(lambda: original(*args, **kwargs))
        self.captured = []
        given = dict(zip(_BEGIN, args, strict=False)) | kwargs
        self.saved = SAVED if given.get("apic") else ""
        return result

    def _capture_end(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        graph = self.quietly(lambda: original(*args, **kwargs))
        if self.captured is not None:
            self.graphs[graph], self.captured = self.captured, None
        return graph

    def _capture_launch(self, original: Any, graph: Any, stream: Any = None) -> Any:
        calls = self.graphs.get(graph)
        if self.inside or calls is None:
            return original(graph, stream)
        frame, ready = caller(), self.ready.get(graph)
        backs = _backs(calls) if ready is None else ready.backs
        taken: list[GraphSnapshots] = []

        def theirs() -> Any:
            result = original(graph, stream)
            taken.extend(map(GraphSnapshots, backs))
            return result

        names = self.note_names(frame) if backs and self.check == "gradient" else {}
        if ready is not None:
            call = DeferredCall("graph", "capture_launch", ready.regions, _ran, self.place_of(frame))
            return self.postponed(call, ready.look, theirs, lambda call: self.follow_graph(call, calls, taken, names))
        self.catch_up()
        refused, regions = "", []
        try:
            regions = self.twins.regions(_touched(calls))
            self.host_writes(regions, frame)
        except (Untranslated, WorkbenchError) as error:
            refused = said(error)
        result = self.quietly(theirs)
        refused = self.repeated(calls, regions, refused, frame, taken, names)
        if not refused and all(_is_ready(call) for call in _inner(calls)):
            self.ready[graph] = Ready(regions, PackedBuffers(regions, self.written(calls, regions), self.store), backs)
        return result

    def written(self, calls: list[Noted], regions: list[TwinBuffer]) -> list[TwinBuffer]:
        """The buffers among `regions` that a graph may write."""
        read = {region for region in regions if region.size}
        for call in _inner(calls):
            if isinstance(call, CapturedCall):
                read.difference_update(self.twins.regions(call.arrays) if call.known is None else call.known.written)
            else:
                read.difference_update(*(self.twins.meeting(*hull(g)) for g in call.buffers.values() if g.size))
        return [region for region in regions if region not in read]

    def follow_graph(
        self: Any, call: DeferredCall, calls: list[Noted], taken: list[GraphSnapshots], names: dict[int, str]
    ) -> None:
        """Replay a deferred graph launch on the twins, at Warp's bytes from before and after it."""
        with AsOfCall(call):
            refused = self.reached(call)
            if call.ours is no_twin:
                return
            self.repeated(calls, call.regions, refused, call.place, taken, names)

    def repeated(
        self,
        calls: list[Noted],
        regions: list[TwinBuffer],
        refused: str,
        frame: Any,
        taken: list[GraphSnapshots],
        names: dict[int, str],
    ) -> str:
        """Replay the calls of a graph that has run. Returns why they became one opaque event instead, or ""."""
        first, before = len(self.tape.events), len(self.steps)
        for tape in {id(call.tape): call.tape for call in _inner(calls) if call.tape is not None}.values():
            self.escaped.pop(tape, None)
        self.ran, self.taken = [], {id(one.back): one for one in taken}
        if not refused:
            self.repeat(calls, regions)
        steps = self.steps[before:]
        if refused or any(step.reason for step in steps) or not steps:
            refused = self.undo_replay(steps, first, _touched(calls), regions, refused, frame)
            for call in _inner(calls):
                if isinstance(call, CapturedCall) and call.entries:
                    self.recorded.setdefault(call.tape, {}).update((id(e), self.steps[-1]) for e in call.entries)
            self.ran = taken
        else:
            self.accept(steps[-1], regions)
        for one in taken:
            self.gone_back(list(one.arrays.values()))
        if self.ran and self.check == "gradient":
            self.tape.names.noted.update(names if isinstance(frame, CallSite) else self.note_names(frame))
            self.judged(self.ran, steps, refused)
        return refused

    def _capture_pause(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self.inside:
            return original(*args, **kwargs)
        graph = self.quietly(lambda: original(*args, **kwargs))
        self.paused[graph], self.captured = self.captured or [], None
        return graph

    def _capture_resume(self, original: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        if self.inside:
            return original(graph, *args, **kwargs)
        result = self.quietly(lambda: original(graph, *args, **kwargs))
        self.captured = self.paused.pop(graph, [])
        return result

    def noted(
        self, kind: str, label: str, arrays: list[Any], ours: Callable[[], Any], theirs: Any, kernel: Any = None
    ) -> Any:
        """Record a call in the open capture, for Warp and for us. Returns what Warp's call returns."""
        assert self.captured is not None
        tape = context.runtime.tape
        before = 0 if tape is None else len(tape.launches)
        frame = caller()
        place = self.place_of(frame)
        result = self.quietly(theirs)
        entries = [] if tape is None else tape.launches[before:]
        self.captured.append(CapturedCall(kind, label, arrays, ours, place, kernel, None, tape, entries))
        return result

    # ---- backwards in captures

    def noted_backward(self, theirs: Callable[[], Any], tape: Any, loss: Any, grads: Any) -> Any:
        """Record a backward in the open capture, with graph copies of the gradients before and after it."""
        assert self.captured is not None
        others = [a for call in self.captured for a in call.touched()]
        self.current = back = ReplayedSnapshots(self.twins, tape, loss, grads, others)
        frame = caller()
        back.place = self.place_of(frame)
        try:
            back.refused = self.saved
            result = self.quietly(lambda: back.capture(theirs))
        finally:
            self.current = None
        self.captured.append(back)
        return result

    def went_back(self, back: ReplayedSnapshots, regions: list[TwinBuffer]) -> None:
        """Record an event for each gradient that a backward of the graph has written: later calls may read it."""
        self.ran.append(taken := self.taken[id(back)])
        taken.events, taken.steps = len(self.tape.events), len(self.steps)
        twins = [twin for a in taken.arrays.values() for twin in self.twins.behind(a)]
        for key, grad in taken.buffers.items():
            if not grad.size or not any(r in regions for r in self.twins.meeting(*hull(grad))):
                continue
            twin, values = self.twins.array(grad), taken.last[key]

            def perform(twin: array = twin, values: np.ndarray = values) -> None:
                twin.data[...] = values.reshape(twin.data.shape)

            self.after_backward(twin, twins, perform, back.place)

    def judged(self: Any, backs: list[GraphSnapshots], steps: list[WarpStep], refused: str) -> None:
        """Compare the gradients of the graph's backwards with the exact ones, after the whole graph was replayed."""
        apart = max((s.difference for s in steps if s.difference is not None), key=lambda d: d.share, default=None)
        if not refused and apart is not None and apart.far:
            refused = "in a graph whose results are not Warp's when it is repeated here"
        for back in backs:
            one = WarpBackward(self, len(self.passes), back)
            one.judge(refused)
            for row in one.rows:
                if row.verdict == "wrong" and apart is not None and row.difference < APART:
                    row.verdict, row.cause = "unverified", PART.format(apart.ulps)
                    row.remedy = "the same without the capture, where the watch compares each launch"
            self.passes.append(one)
            self.forget_glimpses()

    def _capture_while(self, original: Any, condition: Any, while_body: Any, *args: Any, **kwargs: Any) -> Any:
        """Record the body of a captured loop, which runs once here; the trip count is known at the graph's launch."""
        if self.inside or self.captured is None:
            return original(condition, while_body, *args, **kwargs)
        parts: list[list[Any]] = []
        original(condition, self.apart(while_body, parts), *args, **kwargs)
        for call in _inner([call for part in parts for call in part]):
            if isinstance(call, ReplayedSnapshots):
                call.refused = call.refused or IN_LOOP
        self.captured.append(CapturedLoop(condition, parts, True))

    def _capture_if(
        self, original: Any, condition: Any, on_true: Any = None, on_false: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        if self.inside or self.captured is None:
            return original(condition, on_true, on_false, *args, **kwargs)
        yes: list[list[Any]] = []
        no: list[list[Any]] = []
        original(condition, self.apart(on_true, yes), self.apart(on_false, no), *args, **kwargs)
        self.captured.append(CapturedLoop(condition, [*(yes or [[]]), *no], False))

    def apart(self, body: Any, parts: list[list[Any]]) -> Any:
        """`body`, wrapped so that its calls are recorded in a list of their own, appended to `parts`."""
        if not callable(body):
            return body

        def heard(**kwargs: Any) -> None:
            outer, self.captured = self.captured, []
            try:
                body(**kwargs)
                parts.append(self.captured)
            finally:
                self.captured = outer

        return heard

    def repeat(self, calls: list[Noted], regions: list[TwinBuffer]) -> bool:
        """Replay the calls of a graph, loops turn by turn. False as soon as one has no twin."""
        for call in calls:
            if isinstance(call, ReplayedSnapshots):
                if call.refused:
                    self.steps.append(WarpStep(len(self.tape.events), "opaque", call.label, None, reason=call.refused))
                    return False
                self.went_back(call, regions)
            elif isinstance(call, CapturedLoop):
                if not self.repeat_turns(call, regions):
                    return False
            else:
                self.steps.append(self.replayed(call))
                if self.steps[-1].reason:
                    return False
        return True

    def repeat_turns(self, loop: CapturedLoop, regions: list[TwinBuffer]) -> bool:
        """Replay the turns of a loop, or one branch. False if a call has no twin or the loop exceeds `TURNS`."""
        turns = 0
        while (part := loop.next(self.twins.array(loop.condition))) is not None:
            if not self.repeat(part, regions):
                return False
            turns += 1
            if not loop.loops:
                break
            if turns > TURNS:
                step = WarpStep(len(self.tape.events), "opaque", "capture_while", None)
                step.reason = f"its condition still holds after {TURNS} turns here"
                self.steps.append(step)
                return False
        return True

    def replayed(self, call: CapturedCall) -> WarpStep:
        """Replay one call of a graph on the twins. Returns its step, with the reason if it failed."""
        number = self.tapes.setdefault(call.tape, len(self.tapes)) if call.entries else None
        step = WarpStep(len(self.tape.events), call.kind, call.label, None, number, call.kernel)
        if call.entries:
            self.recorded.setdefault(call.tape, {}).update((id(e), step) for e in call.entries)
        elif call.tape is not None:
            self.escaped.setdefault(call.tape, []).append(step)
        count = len(self.tape.events)
        try:
            self.recorded_by_us(call.repeat)
            if len(self.tape.events) > count:
                self.named(step)
                self.place(count, call.place)
        except Exception as error:  # noqa: BLE001  the graph becomes one opaque event
            step.reason = said(error)
        return step

    def undo_replay(
        self, steps: list[WarpStep], first: int, arrays: list[Any], regions: list[TwinBuffer], refused: str, frame: Any
    ) -> str:
        """Replace the replayed calls of a graph by one opaque event, because one of them has no twin.

        Returns the reason.
        """
        reason = refused or next((f"{s.label}: {s.reason}" for s in steps if s.reason), "")
        del self.steps[len(self.steps) - len(steps) :]
        self.undo(first)
        step = WarpStep(len(self.tape.events), "opaque", "capture_launch", None, None, None, reason)
        step.event = self.opaque(step, arrays, regions, frame)
        self.steps.append(step)
        return reason


_BEGIN = tuple(inspect.signature(context.capture_begin).parameters)


def _touched(calls: list[Noted]) -> list[Any]:
    """The Warp arrays that the calls of a graph may read or write, each once."""
    return list({id(a): a for call in calls for a in call.touched()}.values())


def _backs(calls: list[Noted]) -> list[ReplayedSnapshots]:
    """The backwards in a graph."""
    return [call for call in _inner(calls) if isinstance(call, ReplayedSnapshots)]


def _is_ready(call: CapturedCall | ReplayedSnapshots) -> bool:
    """True if a call of a graph can be replayed later, after Warp's arrays have changed."""
    if isinstance(call, ReplayedSnapshots):
        return not call.refused
    return call.known is not None or (call.kind in ("copy", "fill_", "zero_", "assign") and call.label != FROM_HOST)


def _ran() -> None:
    """The twin of a graph launch, which does nothing: its calls are replayed one by one."""


def _inner(calls: list[Noted]) -> Iterator[CapturedCall | ReplayedSnapshots]:
    """All calls of a graph, those of its loops and branches too."""
    for call in calls:
        if isinstance(call, CapturedLoop):
            for part in call.parts:
                yield from _inner(part)
        else:
            yield call
