"""Commands: a launch with its arguments, planned and ready to run, once or many times."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypeVar

from ..arrays import allocation as memory, capture_log
from ..arrays.array import array, spans_of
from ..arrays.gradient_views import open_views, sync_views
from ..arrays.scalar import scalar
from ..config import config
from ..errors import LaunchError
from ..kernels.program import Program
from .handles import part_of
from .plan import Plan, PlannedLaunch
from .race_check import races_of

_THROUGH: set[Any] = set()
Function = TypeVar("Function", bound=Callable[..., Any])


def through(function: Function) -> Function:
    """Decorator: launches made in `function` are located at its caller."""
    _THROUGH.add(function.__code__)  # pyright: ignore[reportFunctionMemberAccess]
    return function


def _caller() -> Any:
    """The frame that called `Command.launch`, past functions marked by `through`."""
    frame: Any = sys._getframe(2)
    while frame.f_code in _THROUGH:
        frame = frame.f_back
    return frame


class Command(PlannedLaunch):
    """A launch with its arguments, planned and ready to run; `RecordedLaunch` is the one that users hold."""

    declared: tuple[int, ...] = ()
    held = False  # looked at again before each launch: see `kept`

    def __init__(self, program: Program, plan: Plan, flat: Sequence[Any], cached: Any = None):
        self.program, self.plan, self.flat, self.places = program, plan, flat, flat
        self.cached = cached  # its entry in the launch cache, if it has one

    def declare(self, args: Sequence[Any], kept: bool) -> None:
        """Note which of `args`, one for each flat parameter, are scalars with a gradient.

        Raises LaunchError if the command is `kept` for later.
        """
        name, self.places = self.program.name, list(self.flat)
        for k, (leaf, given) in enumerate(zip(self.program.leaves, args, strict=True)):
            if not isinstance(given, scalar) or leaf.opened is not None:
                continue
            if not kept:
                capture_log.refuse("The declared scalar of a launch", "a number, or an array of one element")
            if not given.requires_grad:
                continue
            if kept:
                text = f"Kernel {name!r}: a command with the declared scalar {leaf.name!r}."
                why = "It would be launched with the value of now, and the scalar may have changed by then."
                instead = "wb.launch(...) each time, or an array of one element"
                raise LaunchError(text, slug="command-scalar", why=why, instead=instead)
            others = {a.device for a in self.flat if isinstance(a, array)} - {given.memory.device}
            if others:
                text = f"Kernel {name!r}: the scalar {leaf.name!r} on {given.memory.device}, arrays on {others.pop()}."
                raise LaunchError(text, slug="device", instead="wb.scalar(..., device=...)")
            self.places[k] = given.memory
            self.declared += (k,)

    def kept(self) -> Command:
        """Return this command, marked as launched later: each launch checks that its meshes and grids are the same."""
        self.held = bool(self.program.handles)
        return self

    def declaring(self, places: list[Any], declared: tuple[int, ...]) -> Command:
        """The same launch with arrays for declared scalars: `places` are its arguments where derivatives are taken."""
        made = copy(self)
        made.cached, made.places, made.declared = None, places, declared
        return made

    def launch(self, record_tape: bool = True, frame: object = None) -> None:
        """Run it, recorded if a tape is open."""
        plan, flat = self.plan, self.flat
        script = capture_log.told.script
        if script is not None and script.launch(self, record_tape, frame or _caller()):
            return
        notes = None if capture_log.opened is None else capture_log.active_capture()
        if notes is not None and notes.late:
            return self._wait()
        if self.held:
            self.check_handles()
        with memory.LOCK:
            if open_views:
                sync_views(flat)
            tape = memory.recorder() if record_tape else None
            if tape is None:
                event, writes = None, spans_of(flat, plan.writes)
            else:
                event = tape.before_launch(self, frame or _caller())
                writes = event.writes
            memory.about_to_write(writes, self.program.name, tape)
            try:
                if config.check_races and (finder := races_of(plan)) is not None:
                    finder.check(self)
                    finder.fix(self)
                if notes is not None:
                    self._note(notes)
                elif (forward := plan.forward).native_call is not None and capture_log.opened is None:
                    packed = forward.packed(self.values) if self.program.takes_numbers else forward.joined(flat)
                    forward.native_call(packed, 0, plan.form.dims[0])
                else:
                    plan.forward.run(self.values, self.views)
            except BaseException as failure:
                if tape is not None:
                    tape.after_failure(event, failure)
                raise
            if tape is not None:
                tape.after_launch(event)
            elif memory.open_tapes and record_tape:
                memory.tell_others(*([flat[k] for k, _ in spans] for spans in (plan.reads, plan.writes)))

    def _wait(self) -> None:
        """Defer this launch to the replays, as an earlier launch of the block was. Raises LaunchError [capture]."""
        if memory.recorder() is not None or self.declared:
            capture_log.refuse("A tape or a declared scalar behind a launch with a grid that is built later")
        self.held = bool(self.program.handles)
        capture_log.wait(self.launch)

    def _note(self, notes: capture_log.CaptureRecorder) -> None:
        """Run it and note it for the replays. Raises LaunchError [capture] for a declared scalar."""
        if self.declared:
            capture_log.refuse("The declared scalar of a launch", "an array of one element")
        capture_log.keep(self)
        if self.program.handles:
            notes.unchanged[self] = self.check_handles
        capture_log.reads(*[a for a in self.flat if isinstance(a, array)])
        with capture_log.allowed():
            self.plan.forward.run(self.values, self.views)

    def check_handles(self) -> None:
        """Raises LaunchError [handle] if a mesh, tree or grid has other arrays by now than this launch was given."""
        for number, k, handle, field in self.program.handles:
            try:
                now = part_of(handle, self.flat[number], field)
            except LookupError:
                now = None
            if not (now is self.flat[k] or (not isinstance(now, array) and now == self.flat[k])):
                raise LaunchError(
                    f"Kernel {self.program.name!r}: the {field} of a {handle.name} are others now than when this launch"
                    " was made.",
                    slug="handle",
                    why="It was built anew, or given other arrays, and would be seen as it was.",
                    instead="wb.launch(...) each time; a capture once more after it is built",
                )
