"""Warp's tapes in a watched program: each `wp.Tape.backward` is noted while it runs, and judged after it."""

from __future__ import annotations

from typing import Any

import warp

from .captures import Captures
from .hooks import Hooks, Theirs, caller
from .memory import Untranslated, arrays_in
from .passes import WarpBackward
from .recorder import EventRecorder
from .session import Session
from .snapshots import GradientSnapshots, LiveSnapshots

FUNC = "record_func: what was done between has its adjoint in a function of the program"


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
