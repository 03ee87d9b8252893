"""Captures: on a CPU Warp records calls and runs them when the graph is launched; here they are recorded too."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from warp._src import context

from ...arrays.array import array
from .hooks import Hooks, Original, caller
from .recorder import WarpCall
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
_BEGIN = tuple(inspect.signature(context.capture_begin).parameters)


class Captures:
    """Records the calls of captures.

    calls   those of the open capture, None outside of captures.
    graphs  the calls of each graph.
    """

    def __init__(self, session: Session):
        self.session = session
        self.calls: list[Captured] | None = None
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

    def begin(self, original: Original, *args: object, **kwargs: object) -> Any:
        result = self.session.quietly(lambda: original(*args, **kwargs))
        self.calls = []
        given = dict(zip(_BEGIN, args, strict=False)) | kwargs
        self.saved = SAVED if given.get("apic") else ""
        return result

    def end(self, original: Original, *args: object, **kwargs: object) -> Any:
        graph = self.session.quietly(lambda: original(*args, **kwargs))
        if self.calls is not None:
            self.graphs[graph], self.calls = self.calls, None
        return graph

    def pause(self, original: Original, *args: object, **kwargs: object) -> Any:
        if self.session.inside:
            return original(*args, **kwargs)
        graph = self.session.quietly(lambda: original(*args, **kwargs))
        self.paused[graph], self.calls = self.calls or [], None
        return graph

    def resume(self, original: Original, graph: Any, *args: object, **kwargs: object) -> Any:
        if self.session.inside:
            return original(graph, *args, **kwargs)
        result = self.session.quietly(lambda: original(graph, *args, **kwargs))
        self.calls = self.paused.pop(graph, [])
        return result

    def record(
        self, kind: str, label: str, arrays: list[Any], ours: Callable[[], Any], theirs: Any, kernel: Any = None
    ) -> Any:
        """Record a call in the open capture, for Warp and for us. Returns what Warp's call returns."""
        assert self.calls is not None
        place = self.session.place_of(caller())
        result, tape, entries = self.session.run(theirs)
        self.calls.append(WarpCall(kind, label, ours, place, kernel, arrays, tape, entries))
        return result

    def record_backward(self, theirs: Callable[[], Any], tape: Any, loss: Any, grads: Any) -> Any:
        """Record a backward in the open capture, with graph copies of the gradients before and after it."""
        assert self.calls is not None
        others = list(touched(self.calls))
        self.session.backward = back = ReplayedSnapshots(self.session.twins, tape, loss, grads, others)
        back.place = self.session.place_of(caller())
        try:
            back.refused = self.saved
            result = self.session.quietly(lambda: back.capture(theirs))
        finally:
            self.session.backward = None
        self.calls.append(back)
        return result

    def loop(self, original: Original, condition: Any, while_body: Any, *args: object, **kwargs: object) -> Any:
        """Record the body of a captured loop, which runs once here; the trip count is known at the graph's launch."""
        if self.session.inside or self.calls is None:
            return original(condition, while_body, *args, **kwargs)
        parts: list[list[Any]] = []
        original(condition, self.part_of(while_body, parts), *args, **kwargs)
        for call in inner([call for part in parts for call in part]):
            if isinstance(call, ReplayedSnapshots):
                call.refused = call.refused or IN_LOOP
        self.calls.append(CapturedLoop(condition, parts, True))

    def branch(
        self,
        original: Original,
        condition: Any,
        on_true: Any = None,
        on_false: Any = None,
        *args: object,
        **kwargs: object,
    ) -> Any:
        if self.session.inside or self.calls is None:
            return original(condition, on_true, on_false, *args, **kwargs)
        yes: list[list[Any]] = []
        no: list[list[Any]] = []
        original(condition, self.part_of(on_true, yes), self.part_of(on_false, no), *args, **kwargs)
        self.calls.append(CapturedLoop(condition, [*(yes or [[]]), *no], False))

    def part_of(self, body: Any, parts: list[list[Any]]) -> Any:
        """`body`, wrapped so that its calls are recorded in a list of their own, appended to `parts`."""
        if not callable(body):
            return body

        def heard(**kwargs: object) -> None:
            outer, self.calls = self.calls, []
            try:
                body(**kwargs)
                parts.append(self.calls)
            finally:
                self.calls = outer

        return heard


def inner(calls: list[Captured]) -> Iterator[WarpCall | ReplayedSnapshots]:
    """All calls of a graph, those of its loops and branches too."""
    for call in calls:
        if isinstance(call, CapturedLoop):
            for part in call.parts:
                yield from inner(part)
        else:
            yield call


def touched(calls: list[Captured]) -> Iterator[Any]:
    """Yields the Warp arrays that the calls of a graph may read or write; backwards touch none beside those."""
    for call in calls:
        if isinstance(call, WarpCall):
            yield from call.arrays
        elif isinstance(call, CapturedLoop):
            yield call.condition
            for part in call.parts:
                yield from touched(part)
