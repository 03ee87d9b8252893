"""`checkpoint(steps, budget)`: a long time loop as one event of a tape, with a few copies of its state, not all.

Where to keep a copy, and what to run again, is the optimal schedule of Griewank and Walther (Algorithm 799, ACM TOMS
26, 2000), from the library `checkpoint-schedules`. In the walk each step runs again under a tape of its own, which is
walked into the same workspace. A step is taken to be a function of its number and of memory: that it did the same
launches on the same arrays as the first time is checked, and so is that nothing else changed the memory it reads.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.span import Span
from ..arrays.workspace import Workspace
from ..display import ProgressBar
from ..errors import GradientError, LaunchError, Where
from ..launches.handles import owner_of
from .events import Event, checksum_of, clock
from .kinds import FUNC, LOOP
from .recording import Recording
from .reverse import verify, walk
from .tape import Tape

State = list[Any]  # the bytes of each state array, packed


def checkpoint(steps: int, budget: int, progress: bool = True) -> Callable[[Callable[..., None]], Checkpointed]:
    """Decorate `step(k, *state)`, which launches what one step of a simulation does to the arrays `state`.

    steps    how often a call of the decorated function runs it, for k = 0 ... steps - 1.
    budget   how many copies of the state may exist at once for the reverse pass, one at least.
    progress a bar after a second.

    Without a tape the loop just runs. `state` must list every array that a step writes, but for those that it makes for
    itself; other arrays may be read, and have gradients too; steps may call `root` and custom ops. Each walk runs steps
    again, as few as the budget allows. Needs the library `checkpoint-schedules`. Raises LaunchError [checkpoint],
    [checkpoint-state]; in the walk GradientError [checkpoint-step] where a step did something else than the first time.

    Use it when a tape of a long time loop does not fit into memory.

    >>> @wb.kernel
    ... def advance(x: wb.array[float]):
    ...     i = wb.tid()
    ...     x[i] = x[i] - 0.1 * x[i] * x[i]
    >>> @wb.checkpoint(steps=20, budget=4)
    ... def simulate(k, x):
    ...     wb.launch(advance, dim=2, inputs=[x])
    >>> start, x = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2)
    >>> with wb.Tape() as tape:
    ...     wb.copy(x, start)
    ...     simulate(x)
    >>> tape.backward(grads={x: wb.ones(2)})
    >>> start.grad.shape
    (2,)
    """
    for name, n in (("steps", steps), ("budget", budget)):
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise LaunchError(f"checkpoint({name}={n!r}): a whole number from 1 on", slug="checkpoint")
    return lambda step: Checkpointed(step, steps, budget, progress)


class Checkpointed:
    """A time loop: call it with its state arrays. `recomputed` counts the steps that the last walk ran again."""

    def __init__(self, step: Callable[..., None], steps: int, budget: int, progress: bool = True):
        self.step, self.steps, self.budget, self.progress = step, steps, budget, progress
        self.recomputed = 0
        self.__name__, self.__doc__ = getattr(step, "__name__", "step"), step.__doc__

    def __call__(self, *state: array) -> None:
        with memory.LOCK:
            tape = memory.recorder()
            if tape is None:
                self.run(state)
            else:
                self._check(state)
                capture_log.refuse("A checkpointed loop under a tape", f"{self.__name__}.run([...])   recorded")
                _Loop(self, tape, state).record(memory.caller_where())

    def run(self, state: Sequence[array]) -> None:
        """Run the steps as they stand: recorded one by one, where a tape is open."""
        self._check(state)
        with self.bar() as done:
            for k in range(self.steps):
                self.step(k, *state)
                done.update()

    def bar(self, more: str = "") -> ProgressBar:
        """A bar of this loop's progress; without `progress` one that shows nothing."""
        return ProgressBar(self.steps, self.__name__ + more, self.progress)

    def _check(self, state: Sequence[array]) -> None:
        for n, a in enumerate(state):
            if not isinstance(a, array):
                text = f"{self.__name__}(...): state {n} is a {type(a).__name__}, not an array."
                why = "What a step carries over lies in arrays."
                instead = f"{self.__name__}(x, v)   with arrays alone; the step takes other values by their names"
                raise LaunchError(text, slug="checkpoint-state", why=why, instead=instead)
            if any(a.span.overlaps(b.span) is not False for b in state[:n]):
                text = f"{self.__name__}(...): two state arrays share memory."
                raise LaunchError(text, slug="checkpoint-state", instead="x = wb.clone(x)   for one of the two")


def _schedule(steps: int, budget: int) -> Iterator[Any]:
    try:
        library = importlib.import_module("checkpoint_schedules")
    except ImportError:
        text = "checkpoint() needs the library checkpoint-schedules."
        raise LaunchError(text, slug="checkpoint", instead="pip install 'workbench[checkpoint]'") from None
    return iter(library.MultistageCheckpointSchedule(steps, max(1, min(budget, steps - 1)), 0))


@dataclass(eq=False)
class _Loop:
    """One run of a loop under a tape: its checkpoints, and the fingerprints that the reverse pass compares with."""

    loop: Checkpointed
    tape: Recording
    state: Sequence[array]
    kept: dict[int, State] = field(default_factory=dict)
    steps: list[tuple[int, tuple]] = field(default_factory=list)  # a hash of its events, checksums of what it left
    actions: Iterator[Any] | None = None
    ready: Tape | None = None  # the step that the next action reverses, recorded
    active: dict[Allocation, None] = field(default_factory=dict)
    scalars: dict[Allocation, Any] = field(default_factory=dict)
    begun: int = field(default_factory=memory.next_id)
    fresh: int = 0  # memory with a larger id was made by the last step that ran: scratch of its own

    # ---- the first time

    def record(self, where: Where | None) -> None:
        """Run the loop as one event of the tape."""
        tape, event = self.tape, Event(next(clock), LOOP, self.loop.__name__, where)
        event.arrays, event.loop = tuple(self.state), self
        event.writes = tuple(a.span for a in self.state)
        event.reads = event.writes
        self.active, self.scalars = dict(tape.active), dict(tape.scalars)
        if tape.needed.guarded:
            tape.needed.check_left(event)
        tape.needed.keep_before(event)
        for span in event.writes:
            tape.border.meet(span)
            span.allocation.about_to_write(span, self.loop.__name__, where, tape)
        reads: dict[Span, array] = {}
        try:
            tape.muted = True
            self._forward(reads)
        except BaseException as failure:
            tape.after_failure(event, failure)
            raise
        finally:
            tape.muted = False
        event.reads = (*event.reads, *reads)
        event.arrays = (*self.state, *reads.values())
        tape.active.update(self.active)
        tape.scalars.update(self.scalars)
        for n, (span, a) in enumerate([*[(a.span, a) for a in self.state], *reads.items()]):
            tape.arrays[id(a)] = a
            tape.needed.need(span, event, n)
        tape.events.append(event)
        tape.needed.remember_left(event)

    def _forward(self, reads: dict[Span, array]) -> None:
        self.kept = {0: self._copies()}
        with self.loop.bar() as done:
            for ready in self._steps():
                self._check_writes(ready)
                self._note_reads(ready, reads)
                done.update()

    def _steps(self) -> Iterator[Tape]:
        """Run the loop from its start, and yield each step; `actions` are left at its end."""
        self.actions = _schedule(self.loop.steps, self.loop.budget)
        for action in takewhile(lambda action: type(action).__name__ != "EndForward", self.actions):
            yield from self._advance(action)

    def _run(self, k: int) -> Tape:
        """One step, recorded on a tape of its own that follows what the loop has been found to depend on."""
        inner = Tape()
        inner.apart = True
        inner.active.update(self.active)
        inner.scalars.update(self.scalars)
        inner.host.around, inner.host.inherited = self.tape.host, frozenset(self.active)
        inner.border, inner.numbers = self.tape.border, self.tape.numbers
        spans = [a.span for a in self.state]
        for span in spans:
            inner.log.touched[span.allocation].add(span)  # no step starts a leaf
            inner.needed.follow(span.allocation)
            if span.allocation.exposed:
                inner.needed.note_left(span)
        self.fresh = memory.next_id()
        with inner:
            self.loop.step(k, *self.state)
        end = Event(next(clock), FUNC, "the end of the step", None, tuple(spans), ())
        inner.needed.check_left(end)
        if inner.needed.conflicts:
            verify(inner)
        self.active.update((a, None) for a in inner.active if a.id < self.fresh)
        self.scalars.update((a, kind) for a, kind in inner.scalars.items() if a.id < self.fresh)
        self._compare(k, inner)
        inner.muted = True  # what comes later overwrites what it needs; the tape around it puts that back
        return inner

    def _compare(self, k: int, inner: Tape) -> None:
        given = any(e.command is None and (len(e.arrays) == 1 or e.op) for e in inner.events)  # numbers of the host
        spans = [a.span for a in self.state if given or a.allocation.exposed]
        did, left = _signature(inner, self.fresh), tuple(checksum_of(s) for s in spans)
        if k == len(self.steps):
            self.steps.append((did, left))
            return
        then, left_then = self.steps[k]
        if did != then or (len(left) == len(left_then) and left != left_then):
            text = f"step {k} of {self.loop.__name__!r} was run again, and did something else than the first time."
            where = inner.events[0].where if inner.events else None
            why = "The gradient would be that of another program."
            instead = "def step(k, x, v): ...   using k and the arrays only, no list or counter that a step changes"
            raise GradientError(text, slug="checkpoint-step", where=where, why=why, instead=instead)

    def _check_writes(self, inner: Tape) -> None:
        own = {a.allocation: a.span for a in self.state}
        for event in inner.events:
            if not (event.kind.repeatable or event.kind.recurs):
                text = f"a step of {self.loop.__name__!r} holds {event.label!r}, which cannot be run again."
                instead = "wb.launch(...), wb.copy(...), x.fill_(...) in its place"
                raise LaunchError(text, slug="checkpoint-step", where=event.where, instead=instead)
            for span in event.reads:
                if self.begun < span.allocation.id < self.fresh:
                    name = _label(inner, event, span)
                    text = f"a step of {self.loop.__name__!r} reads {name}, which an earlier step made."
                    why = "Steps run again make memory of their own: this one would find what another run left."
                    instead = f"{self.loop.__name__}(..., x)   with x made before the loop, as state"
                    raise LaunchError(text, slug="checkpoint-state", where=event.where, why=why, instead=instead)
            for span in event.writes:
                a = span.allocation
                if a.id > self.fresh and not event.sources:
                    continue
                if a not in own or not (own[a].contains(span) or own[a] == span):
                    name, why = _label(inner, event, span), "A step that runs again finds there what the last one left."
                    text = f"a step of {self.loop.__name__!r} writes {name}, which is not among its state."
                    instead, slug = self._way_out(event, name), "checkpoint-state"
                    raise LaunchError(text, slug=slug, where=event.where, why=why, instead=instead)

    def _way_out(self, event: Event, name: str) -> str:
        if owner := next((o for s in event.writes if (o := owner_of(s.allocation))), ""):
            return (
                f"{self.loop.__name__}(..., *{owner.lower()}.state)   and `*built` last in `def step(k, ..., *built)`"
            )
        if name.isidentifier() and event.command is not None:
            return f"{self.loop.__name__}(..., {name})"
        return "a kernel that reads the element itself: x: wb.array[float] among its parameters, x[0] in its body"

    def _note_reads(self, inner: Tape, reads: dict[Span, array]) -> None:
        own = {a.allocation for a in self.state}
        for event in inner.events:
            named = [a for a in event.places if isinstance(a, array)]
            for span in event.reads:
                if span.allocation not in own and span not in reads and span.allocation.id < self.fresh:
                    reads[span] = next(a for a in named if a.allocation is span.allocation)

    # ---- the reverse pass

    def reverse(self, space: Workspace) -> None:
        """Reverse all steps. The state is what it was before the loop when this returns."""
        if self.actions is None:  # a walk before this one has used up the checkpoints
            with memory.silent():
                self._put(self.kept[0])
                deque(self._steps(), 0)
        assert self.actions is not None
        self.loop.recomputed, first = 0, dict(self.kept)
        try:
            with memory.silent(), self.loop.bar(", reversed") as done:
                for action in self.actions:
                    self._perform(action, space, done)
        finally:
            self.actions, self.ready = None, None
            self.kept = {0: first[0]}
        self._put(first[0])

    def _perform(self, action: Any, space: Workspace, done: Any) -> None:
        kind = type(action).__name__
        if kind == "Forward":
            self.loop.recomputed += action.n1 - action.n0
            deque(self._advance(action), 0)
        elif kind in ("Copy", "Move"):
            self._put(self.kept[action.n] if kind == "Copy" or action.n == 0 else self.kept.pop(action.n))
        elif kind == "Reverse":
            assert action.n1 - action.n0 == 1 and self.ready is not None
            walk(self.ready, space)
            for scratch in [a for a in space if a.id > self.fresh]:
                space.drop(scratch)
            self.tape.host.suspects.update(self.ready.host.suspects)
            self.tape.conventions.update(self.ready.conventions)
            self.ready = None
            done.update()

    def _advance(self, action: Any) -> Iterator[Tape]:
        if action.write_ics and action.n0 not in self.kept:
            self.kept[action.n0] = self._copies()
        for k in range(action.n0, min(action.n1, self.loop.steps)):
            self.ready = self._run(k)
            yield self.ready

    def _copies(self) -> State:
        return [a.span.copy_out() for a in self.state]

    def _put(self, state: State) -> None:
        for a, data in zip(self.state, state, strict=True):
            a.span.copy_in(data)

    @property
    def nbytes(self) -> int:
        """Bytes that the checkpoints hold."""
        return sum(data.nbytes for state in self.kept.values() for data in state)


def _label(tape: Tape, event: Event, span: Span) -> str:
    """The user's name of memory that an event writes."""
    places = enumerate(event.places)
    position = next(k for k, a in places if isinstance(a, array) and a.allocation is span.allocation)
    return tape.names.called_by(event, position)


def _signature(inner: Tape, fresh: int) -> int:
    """A hash of the events of a step: kernels, grids, arrays, numbers. Memory with an id above `fresh` is numbered."""
    parts: list[Any] = []
    numbered: dict[Allocation, int] = {}

    def key(s: Span) -> Any:
        if s.allocation.id < fresh:
            return s
        return numbered.setdefault(s.allocation, len(numbered)), s.offset, s.shape, s.strides, s.itemsize

    for e in inner.events:
        given = [] if e.command is None else [a for a in e.command.flat if not isinstance(a, array)]
        numbers = [a if isinstance(a, bool | int | float) else np.asarray(a).tobytes() for a in given]
        which = (id(e.command.program), e.command.plan.form.dims) if e.command is not None else ()
        parts.append((e.kind, which, tuple(map(key, e.reads)), tuple(map(key, e.writes)), *numbers))
    return hash(tuple(parts))
