"""Launches of graphs: the captured calls are replayed on the twins, and the backwards among them judged.

The trip count of a captured loop, and the branch taken, are known only then: they are read from the condition's twin.
"""

from __future__ import annotations

from functools import partial
from types import FrameType
from typing import Any

import numpy as np
from warp._src import context

from .captures import Captured, CapturedLoop, Captures, inner, touched
from .hooks import Hooks, Theirs, caller
from .memory import TwinBuffer, hull
from .passes import Backwards
from .recorder import EventRecorder, WarpCall
from .session import RACE, Session, WarpStep
from .snapshots import GraphSnapshots, ReplayedSnapshots

TURNS = 100_000  # of a captured loop
APART = 0.1  # of the largest number: a wrong gradient that is nearer is not sure, if a graph has other results here
PART = "its graph is repeated here as a whole, with results up to {:.3g} units in the last place from Warp's"


class GraphLaunches:
    """Handles launches of captured graphs. `ran`: the backwards of the graph that is being replayed."""

    def __init__(self, session: Session, recorder: EventRecorder, captures: Captures, backwards: Backwards):
        self.session, self.twins, self.recorder = session, session.twins, recorder
        self.captures, self.backwards = captures, backwards
        self.ran: list[GraphSnapshots] = []
        self.taken: dict[int, GraphSnapshots] = {}

    def install(self, hooks: Hooks) -> None:
        hooks.put(context.capture_launch, self.launch)

    def launch(self, theirs: Theirs, graph: object, *_: object, **__: object) -> Any:
        calls = self.captures.graphs.get(graph)
        if calls is None:
            return theirs()
        frame = caller()
        regions, refused = self.recorder.reach(touched(calls), self.session.place_of(frame))
        result = self.session.quietly(theirs)
        taken = [GraphSnapshots(call) for call in inner(calls) if isinstance(call, ReplayedSnapshots)]
        self.session.quietly(lambda: self.repeated(calls, regions, refused, frame, taken))
        return result

    def repeated(
        self,
        calls: list[Captured],
        regions: list[TwinBuffer],
        refused: str,
        frame: FrameType,
        taken: list[GraphSnapshots],
    ) -> None:
        """Replay the calls of a graph that has run, or record one opaque event for all."""
        first, before = len(self.session.tape.events), len(self.session.steps)
        for call in inner(calls):
            if not isinstance(call, CapturedLoop) and call.tape is not None:
                self.session.escaped.pop(call.tape, None)
        self.ran, self.taken = [], {id(one.back): one for one in taken}
        if not refused:
            self.repeat(calls, regions)
        steps = self.session.steps[before:]
        if refused or any(step.reason for step in steps) or not steps:
            refused = refused or next((f"{s.label}: {s.reason.removeprefix(RACE)}" for s in steps if s.reason), "")
            del self.session.steps[before:]
            self.recorder.undo(first)
            step = self.stop("capture_launch", refused)
            arrays = list({id(a): a for a in touched(calls)}.values())
            step.event = self.recorder.opaque(step, arrays, regions, self.session.place_of(frame))
            for call in inner(calls):
                if isinstance(call, WarpCall) and call.entries:
                    self.recorder.note_entries(call.tape, call.entries, step)
            self.ran = taken
        else:
            self.recorder.accept(steps[-1], regions)
        for one in taken:
            self.recorder.gone_back(list(one.arrays.values()))
        if self.ran and self.session.check == "gradient":
            self.session.tape.names.note(frame)
            self.judged(self.ran, steps, refused)

    def went_back(self, back: ReplayedSnapshots, regions: list[TwinBuffer]) -> None:
        """Record an event for each gradient that a backward of the graph has written: later calls may read it."""
        self.ran.append(taken := self.taken[id(back)])
        taken.events, taken.steps = len(self.session.tape.events), len(self.session.steps)
        twins = [twin for a in taken.arrays.values() for twin in self.twins.behind(a)]
        for key, grad in taken.buffers.items():
            if not grad.size or not any(r in regions for r in self.twins.meeting(*hull(grad))):
                continue
            twin = self.twins.array(grad)
            perform = partial(np.copyto, twin.data, taken.last[key].reshape(twin.data.shape))
            self.recorder.after_backward(twin, twins, perform, back.place)

    def judged(self, backs: list[GraphSnapshots], steps: list[WarpStep], refused: str) -> None:
        """Compare the gradients of the graph's backwards with the exact ones, after the whole graph was replayed."""
        apart = max((s.difference for s in steps if s.difference is not None), key=lambda d: d.share, default=None)
        if not refused and apart is not None and apart.far:
            refused = "in a graph whose results are not Warp's when it is repeated here"
        for back in backs:
            for row in self.backwards.judge(back, refused).rows:
                if row.verdict == "wrong" and apart is not None and row.difference < APART:
                    row.verdict, row.cause = "unverified", PART.format(apart.ulps)
                    row.remedy = "the same without the capture, where the watch compares each launch"
            self.backwards.forget_glimpses()

    def repeat(self, calls: list[Captured], regions: list[TwinBuffer]) -> bool:
        """Replay the calls of a graph, loops turn by turn. False as soon as one has no twin."""
        for call in calls:
            if isinstance(call, ReplayedSnapshots):
                if call.refused:
                    self.stop(call.label, call.refused)
                    return False
                self.went_back(call, regions)
            elif isinstance(call, CapturedLoop):
                if not self.repeat_turns(call, regions):
                    return False
            elif self.recorder.replay(call, call.refused).reason:
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
                self.stop("capture_while", f"its condition still holds after {TURNS} turns here")
                return False
        return True

    def stop(self, label: str, reason: str) -> WarpStep:
        """Record an opaque step for a graph, or a call of it, that cannot be replayed. Returns the step."""
        step = WarpStep(len(self.session.tape.events), "opaque", label, None, reason=reason)
        self.session.steps.append(step)
        return step
