"""The microscope: one thread of one launch, down through its statements and back up through their adjoints.

The thread runs again in the interpreter, on copies of the memory as the walk found it: first the kernel, then its
adjoint with every statement left in (`passes.unpruned_adjoint`). What is shown is what ran: nothing is computed here.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays import allocation as memory
from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...arrays.workspace import Shadow, Workspace, shadow_view
from ...errors import GradientError, LaunchError
from ...tapes.events import Event
from ...tapes.replay import keep_all
from ...tapes.rerun import Copies, Enough
from ...tapes.reverse import extremal_memory, ties
from ...tapes.tape import Tape
from ..data.snapshot import TapeMoments
from .thread import Microscope, ThreadRun

EventLike = Event | int | str  # an event, its position in `tape.events`, or its label
ThreadIndex = int | Sequence[int]


def microscope(tape: Tape, event: EventLike, thread: ThreadIndex) -> Microscope:
    """One thread of one launch, statement by statement: values on the way down, adjoints on the way back.

    event    an event of the tape, its position in `tape.events`, or its label where only one launch has it.
    thread   an int, or a tuple of as many as the launch has dimensions.
    The adjoints are those of the seeds of the last `backward`; before any, all are zero. At most 5,000 steps. A value
    that rests on memory which was overwritten and not kept is "not kept": `wb.Tape(keep="all")` keeps everything.
    Raises LaunchError for an event or a thread that does not exist, GradientError on a tape with `record_func`.
    """
    return microscopes(tape, [(event, thread)])[0]


def microscopes(tape: Tape, wanted: Sequence[tuple[EventLike, ThreadIndex]]) -> list[Microscope]:
    """`microscope` of several (event, thread), all in one walk."""
    places = {event: k for k, event in enumerate(tape.events)}
    chosen = [(found, thread_of(found, thread)) for found, thread in ((event_of(tape, e), t) for e, t in wanted)]
    first = min((places[event] for event, _ in chosen), default=0)
    after: dict[Allocation, Shadow] = {}
    threads: dict[Event, list[ThreadRun]] = {}

    def before(event: Event, space: Workspace) -> None:
        for seen in threads.get(event, ()):
            seen.down(Copies(event))
            seen.up(Copies(event, space), space, helpers_of(tape, event, after))
        if event is tape.events[first]:
            raise Enough

    def ready(position: int) -> None:
        """Save the extremal arrays of the event at this position, if it is wanted, while memory is as it left it."""
        after.clear()
        if position >= 0 and tape.events[position] in threads:
            after.update(extremal_memory(tape.events[position]))

    with memory.LOCK:
        moments, made = TapeMoments(tape), []
        for event, index in sorted(chosen, key=lambda one: -places[one[0]]):  # from the right: masks are stepped back
            used = dict.fromkeys(x.allocation for x in event.command.places if isinstance(x, array))
            seen = ThreadRun(event, index, {a: moments.status(a, places[event]) for a in used})
            threads.setdefault(event, []).append(seen)
        ready(len(tape.events) - 1)
        with contextlib.suppress(Enough):
            tape.retrace(lambda event, _: ready(places[event] - 1), before)
        for event, index in chosen:
            seen = next(one for one in threads[event] if one.thread == index)
            name, loops = f"#{places[event]} {event.label}", tuple(loop.where for loop in seen.loops)
            made.append(Microscope(places[event], name, index, tuple(seen.steps), seen.notes(), loops))
    return made


def helpers_of(tape: Tape, event: Event, after: dict[Allocation, Shadow]) -> list:
    """The extra arguments of an adjoint of atomic_min and atomic_max. Raises GradientError [microscope-gpu]."""
    back = event.reverse
    if back is None or not back.extremal:
        return []
    if event.command.plan.form.backend == "cuda":
        text = f"{event.label!r} has atomic_min or atomic_max: the microscope shows it on the CPU only."
        raise GradientError(text, slug="microscope-gpu", where=event.where, instead="device='cpu'")
    return [shadow_view(event.command.flat[k], s) for k, s in ties(event, after)]


def event_of(tape: Tape, event: EventLike) -> Event:
    """The launch that an argument means. Raises LaunchError naming the candidates."""
    if isinstance(event, bool) or not isinstance(event, Event | int | np.integer | str):
        raise _no_event(tape, f"an event is given as itself, its position or its label, not as {event!r}.")
    if isinstance(event, str):
        named = [(k, e) for k, e in enumerate(tape.events) if event in (e.label, f"#{k} {e.label}")]
        if len(named) > 1:
            some = ", ".join(str(k) for k, _ in named[:8]) + (", ..." if len(named) > 8 else "")
            raise _no_event(tape, f"{len(named)} events are called {event!r}.", f"one of {some}")
        if not named:
            raise _no_event(tape, f"no event is called {event!r}.")
        found = named[0][1]
    elif isinstance(event, Event):
        if not any(e is event for e in tape.events):
            raise _no_event(tape, f"{event!r} is not on this tape.")
        found = event
    else:
        if not -len(tape.events) <= event < len(tape.events):
            raise _no_event(tape, f"there is no event {event}.")
        found = tape.events[int(event)]
    if found.command is None:
        raise _no_event(tape, f"{found.label!r} is a {found.kind.rstrip('_')}: it has no threads.")
    return found


def _no_event(tape: Tape, what: str, instead: str = "") -> LaunchError:
    launches = [f"#{k} {e.label}" for k, e in enumerate(tape.events) if e.command is not None]
    some = ", ".join(launches[:8]) + (f", and {len(launches) - 8} more" if len(launches) > 8 else "")
    why = f"This tape has {len(tape.events)} events; its launches: {some or 'none'}."
    instead = instead or "tape.microscope(tape.launches[0], 0)"
    return LaunchError(f"microscope: {what}", slug="microscope-event", why=why, instead=instead)


def thread_of(event: Event, thread: ThreadIndex) -> tuple[int, ...]:
    """The thread as an index of the grid. Raises LaunchError naming the grid."""
    dims = event.command.plan.form.dims
    index: tuple[Any, ...] = tuple(thread) if isinstance(thread, tuple | list) else (thread,)
    whole = all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in index)
    if not whole or len(index) != len(dims) or any(not 0 <= i < n for i, n in zip(index, dims, strict=False)):
        last = tuple(n - 1 for n in dims)
        text = f"microscope: {event.label!r} has no thread {thread!r}; its grid is {dims}."
        instead = f"{0 if len(dims) == 1 else tuple(0 for _ in dims)} to {last[0] if len(dims) == 1 else last}"
        raise LaunchError(text, slug="microscope-thread", where=event.where, instead=instead)
    return tuple(int(i) for i in index)


class KeptRun:
    """Values and threads of the rerun at any moment, by the tape's event numbers. The caller holds the lock.

    Raises what `tapes.replay.keep_all` raises where a program cannot be run again.
    """

    def __init__(self, tape: Tape):
        self.tape, self.again = tape, keep_all(tape)
        self.moments = TapeMoments(self.again)
        self.starts = list(self.again.positions.values())  # of each event of the second run: its number on the tape
        copies = {a.allocation: self.again.of(a).allocation for a in tape.arrays.values()}
        self.again.last_seeds = {copies[a]: data for a, data in tape.last_seeds.items() if a in copies}
        if tape.within is not None:
            pairs = self.again.positions.items()
            self.again.within = frozenset(event for event, n in pairs if tape.events[n] in tape.within)

    def value(self, a: array, cursor: int) -> tuple[np.ndarray, np.ndarray, str]:
        """As `TapeMoments.value`."""
        numbers, known, note = self.moments.value(self.again.of(a), bisect_left(self.starts, cursor))
        return numbers, known, "" if known.all() else note

    def microscope(self, tape: Tape, event: EventLike, thread: ThreadIndex) -> Microscope:
        """As `microscope` of the tape, with every value known."""
        n = tape.events.index(event_of(tape, event))
        if n not in self.starts:
            raise LaunchError("that launch was not run again.", slug="event")
        found = microscope(self.again, self.starts.index(n), thread)
        return replace(found, event=n, heading=f"#{n} {tape.events[n].label}")
