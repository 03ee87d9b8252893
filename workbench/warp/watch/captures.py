"""Captures: on a CPU Warp records calls and runs them when the graph is launched; here they are recorded too."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from warp._src import context

from ...arrays.array import array
from .builtin_calls import given_to
from .hooks import Hooks, Theirs, caller
from .recorder import EventRecorder, WarpCall
from .session import Session
from .snapshots import ReplayedSnapshots

FROM_HOST = "assign of numbers of the host"
SAVED = "in a capture that may be saved: nothing can be noted in its graph"
IN_LOOP = "in a loop of a capture: what its graph notes is of the last turn"


@dataclass(eq=False)
class CapturedLoop:
    """A loop or a branch in a capture: the parts that its condition decides on."""

    condition: Any
    parts: list[list[Any]]
    loops: bool

    def next(self, condition: array) -> list[Any] | None:
        """The part to run next for this value of the condition; None to leave."""
        holds = bool(np.ravel(condition.data)[0])
        if holds:
            return self.parts[0]
        return None if self.loops or len(self.parts) < 2 else self.parts[1]


Captured = WarpCall | CapturedLoop | ReplayedSnapshots


class Captures:
    """Records the calls of captures, as `recorder.captured`. `graphs`: the calls of each graph."""

    def __init__(self, session: Session, recorder: EventRecorder):
        self.session, self.recorder = session, recorder
        self.graphs: weakref.WeakKeyDictionary[Any, list[Captured]] = weakref.WeakKeyDictionary()
        self.paused: weakref.WeakKeyDictionary[Any, list[Captured]] = weakref.WeakKeyDictionary()
        self.saved = ""  # why nothing can be noted in the graph of the open capture

    def install(self, hooks: Hooks) -> None:
        hooks.put(context.capture_begin, self.begin)
        hooks.put(context.capture_end, self.end)
        hooks.put(context.capture_pause, self.pause)
        hooks.put(context.capture_resume, self.resume)
        hooks.put(context.capture_while, self.loop)
        hooks.put(context.capture_if, self.branch)

    def begin(self, theirs: Theirs, *args: object, **kwargs: object) -> Any:
        result = self.session.quietly(theirs)
        self.recorder.captured = []
        self.saved = SAVED if given_to(theirs.func, args, kwargs)["apic"] else ""
        return result

    def end(self, theirs: Theirs, *args: object, **kwargs: object) -> Any:
        graph, recorder = self.session.quietly(theirs), self.recorder
        if recorder.captured is not None:
            self.graphs[graph], recorder.captured = recorder.captured, None
        return graph

    def pause(self, theirs: Theirs, *args: object, **kwargs: object) -> Any:
        graph, recorder = self.session.quietly(theirs), self.recorder
        self.paused[graph], recorder.captured = recorder.captured or [], None
        return graph

    def resume(self, theirs: Theirs, graph: object, *args: object, **kwargs: object) -> Any:
        result = self.session.quietly(theirs)
        self.recorder.captured = self.paused.pop(graph, [])
        return result

    def record_backward(self, theirs: Callable[[], Any], tape: object, loss: object, grads: object) -> Any:
        """Record a backward in the open capture, with graph copies of the gradients before and after it."""
        assert self.recorder.captured is not None
        others = list(touched(self.recorder.captured))
        self.session.backward = back = ReplayedSnapshots(self.session.twins, tape, loss, grads, others)
        back.place = self.session.place_of(caller())
        try:
            back.refused = self.saved
            result = self.session.quietly(lambda: back.capture(theirs))
        finally:
            self.session.backward = None
        self.recorder.captured.append(back)
        return result

    def loop(self, theirs: Theirs, condition: object, while_body: object, *args: object, **kwargs: object) -> Any:
        """Record the body of a captured loop, which runs once here; the trip count is known at the graph's launch."""
        if self.recorder.captured is None:
            return theirs()
        parts: list[list[Any]] = []
        theirs.func(condition, self.part_of(while_body, parts), *args, **kwargs)
        for call in inner([call for part in parts for call in part]):
            if isinstance(call, ReplayedSnapshots):
                call.refused = call.refused or IN_LOOP
        self.recorder.captured.append(CapturedLoop(condition, parts, True))

    def branch(
        self, theirs: Theirs, condition: Any, on_true: Any = None, on_false: Any = None, *args: object, **kwargs: object
    ) -> Any:
        if self.recorder.captured is None:
            return theirs()
        yes: list[list[Any]] = []
        no: list[list[Any]] = []
        theirs.func(condition, self.part_of(on_true, yes), self.part_of(on_false, no), *args, **kwargs)
        self.recorder.captured.append(CapturedLoop(condition, [*(yes or [[]]), *no], False))

    def part_of(self, body: object, parts: list[list[Any]]) -> Any:
        """`body`, wrapped so that its calls are recorded in a list of their own, appended to `parts`."""
        if not callable(body):
            return body

        def heard(**kwargs: object) -> None:
            recorder = self.recorder
            outer, recorder.captured = recorder.captured, []
            try:
                body(**kwargs)
                parts.append(recorder.captured)
            finally:
                recorder.captured = outer

        return heard


def inner(calls: list[Captured]) -> Iterator[Captured]:
    """All calls of a graph, those in its loops and branches too."""
    for call in calls:
        yield call
        for part in call.parts if isinstance(call, CapturedLoop) else ():
            yield from inner(part)


def touched(calls: list[Captured]) -> Iterator[Any]:
    """Yields the Warp arrays that the calls of a graph may read or write; backwards touch none beside those."""
    for call in inner(calls):
        if isinstance(call, WarpCall):
            yield from call.arrays
        elif isinstance(call, CapturedLoop):
            yield call.condition
