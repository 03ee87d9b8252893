"""Captures: on a processor Warp notes calls, and runs them when the graph is launched; the twins repeat them then.

How many turns a captured loop takes, and which branch, is known only then: the twin of its condition says it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.array import array
from ...errors import WorkbenchError
from ...tapes.tape import Tape
from .events import Step
from .memory import Region, Twins, Untranslated
from .programs import caller, said


@dataclass(eq=False)
class Call:
    """A call of Warp in a capture, to be repeated when its graph is launched."""

    kind: str
    label: str
    arrays: list[Any]
    ours: Callable[[], None]
    kernel: Any = None

    def touched(self) -> list[Any]:
        """The arrays of Warp that it may touch."""
        return self.arrays


@dataclass(eq=False)
class Turns:
    """A loop or a branch in a capture: the parts that its condition decides on."""

    condition: Any
    parts: list[list[Any]]
    loops: bool

    def touched(self) -> list[Any]:
        return [self.condition, *(a for part in self.parts for call in part for a in call.touched())]

    def next(self, condition: array) -> list[Any] | None:
        """The part that comes now; None for none."""
        holds = bool(np.ravel(condition.data)[0])
        if holds:
            return self.parts[0]
        return None if self.loops or len(self.parts) < 2 else self.parts[1]


TURNS = 100_000  # of a captured loop


class Captures:
    """What a `Watch` hears of captures."""

    tape: Tape
    twins: Twins
    steps: list[Step]
    inside: bool
    captured: list[Call | Turns] | None
    graphs: weakref.WeakKeyDictionary[Any, list[Call | Turns]]
    quietly: Callable[[Callable[[], Any]], Any]
    recorded_by_us: Callable[[Callable[[], Any]], None]
    undo: Callable[[int], None]
    host_writes: Callable[[list[Region], Any], None]
    settle: Callable[[Step, list[Region]], None]
    opaque: Callable[[Step, list[Any], list[Region], Any], Any]
    named: Callable[[Step], None]

    def _capture_begin(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        result = self.quietly(lambda: original(*args, **kwargs))
        self.captured = []
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
        frame = caller()
        arrays = list({id(a): a for call in calls for a in call.touched()}.values())
        refused, regions = "", []
        try:
            regions = self.twins.regions(arrays)
            self.host_writes(regions, frame)
        except (Untranslated, WorkbenchError) as error:
            refused = said(error)
        result = self.quietly(lambda: original(graph, stream))
        first = len(self.tape.events)
        steps = list(self.replays(calls)) if not refused else []
        self.steps += steps
        if refused or any(step.reason for step in steps) or not steps:
            self.undo_replay(steps, first, arrays, regions, refused, frame)
        else:
            self.settle(steps[-1], regions)
        return result

    def _capture_while(self, original: Any, condition: Any, while_body: Any, *args: Any, **kwargs: Any) -> Any:
        """In a capture the body is called once, to be noted; how many turns it takes is known at the launch."""
        if self.inside or self.captured is None:
            return original(condition, while_body, *args, **kwargs)
        parts: list[list[Any]] = []
        original(condition, self.noted(while_body, parts), *args, **kwargs)
        self.captured.append(Turns(condition, parts, True))

    def _capture_if(
        self, original: Any, condition: Any, on_true: Any = None, on_false: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        if self.inside or self.captured is None:
            return original(condition, on_true, on_false, *args, **kwargs)
        yes: list[list[Any]] = []
        no: list[list[Any]] = []
        original(condition, self.noted(on_true, yes), self.noted(on_false, no), *args, **kwargs)
        self.captured.append(Turns(condition, [*(yes or [[]]), *no], False))

    def noted(self, body: Any, parts: list[list[Any]]) -> Any:
        """A function that notes the calls of a body apart from those around it."""
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

    def replays(self, calls: list[Call | Turns]) -> Iterator[Step]:
        """The calls of a graph as they happened, those of a loop turn by turn, until one has no twin."""
        for call in calls:
            if isinstance(call, Call):
                step = self.replayed(call)
                yield step
                if step.reason:
                    return
                continue
            turns = 0
            while (part := call.next(self.twins.array(call.condition))) is not None:
                yield from self.replays(part)
                turns += 1
                if not call.loops:
                    break
                if turns > TURNS:
                    step = Step(len(self.tape.events), "opaque", "capture_while", None)
                    step.reason = f"its condition still holds after {TURNS} turns here"
                    yield step
                    return

    def replayed(self, call: Call) -> Step:
        """One call of a graph that Warp has run as a whole."""
        step = Step(len(self.tape.events), call.kind, call.label, None, None, call.kernel)
        count = len(self.tape.events)
        try:
            self.recorded_by_us(call.ours)
            if len(self.tape.events) > count:
                self.named(step)
        except Exception as error:  # noqa: BLE001  the graph becomes one opaque event
            step.reason = said(error)
        return step

    def undo_replay(
        self, steps: list[Step], first: int, arrays: list[Any], regions: list[Region], refused: str, frame: Any
    ) -> None:
        """In place of the calls of a graph, one of which has no twin: one opaque event, as only its end can be seen."""
        reason = refused or next((f"{s.label}: {s.reason}" for s in steps if s.reason), "")
        del self.steps[len(self.steps) - len(steps) :]
        self.undo(first)
        step = Step(len(self.tape.events), "opaque", "capture_launch", None, None, None, reason)
        step.event = self.opaque(step, arrays, regions, frame)
        self.steps.append(step)
