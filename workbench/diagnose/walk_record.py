"""The record of one reverse walk: norms of adjoints at every event, and where numbers become non-finite.

One idea: `before` and `after` read the shadows and the rewound memory of a real walk; nothing is computed but sizes,
norms and differences of numbers that it left there. Forward values are looked at only where they are known: bytes that
somebody overwrote and nobody kept are `lost`, and whoever asks is told so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from ..arrays import allocation as memory
from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.grouping import grouped
from ..arrays.interval_index import SpanIndex, SpanSet
from ..arrays.span import Span
from ..arrays.workspace import Shadow, Workspace
from ..device import on_host
from ..errors import GradientError, KernelError
from ..tapes.events import Event
from ..tapes.rerun import Enough
from ..tapes.reverse import Observer, check_races, walk
from ..tapes.tape import Tape
from .finding import Finding
from .walk_step import EventAccess, WalkObserver, WalkStep, accesses, numbers_of_memory, shadow_view

PART = 1 << 16  # numbers whose norm is taken at once: what that needs beside them stays small
SOME = 4  # cells that are remembered of what is not finite

Looker = TypeVar("Looker", bound=WalkObserver)
SERIES = 4  # launches of a line
LOOKED = 6  # of them, the last

Known = Callable[[Span], bool]
Seen = TypeVar("Seen")


class WalkRecord:
    """The record of a walk (of `only` some events). `steps` in program order; `error`: the refusal, if any.

    `observers` are shown the walk, unless every seed is zero. `chosen`: the positions of the events that have a step;
    `every`: of how many launches of a line one has.
    """

    def __init__(
        self,
        tape: Tape,
        seeds: Workspace,
        only: Container[Event] | None = None,
        observers: Sequence[WalkObserver] = (),
        chosen: Sequence[int] | None = None,
        every: int = 1,
    ):
        self.tape, self.observers = tape, observers
        self.error: GradientError | KernelError | None = None
        events, self.every = tape.events, every
        chosen = range(len(events)) if chosen is None else chosen
        self.steps = [WalkStep(events[n], accesses(tape, events[n]), f"#{n} {events[n].label}") for n in chosen]
        self.of = {s.event: s for s in self.steps}
        self.order = {s.event: n for n, s in enumerate(self.steps)}
        self.next = {events[n + 1]: s for n, s in zip(chosen, self.steps, strict=True) if n + 1 < len(events)}
        self._rewinds = self._last_needed(chosen[-1]) if len(chosen) < len(events) and chosen else None
        self.lost: dict[Allocation, SpanIndex[Span]] = {}
        for span in (span for known in tape.needed.memories.values() for span in known.changed):
            self._lose(span)
        self.turns = StateChanges(self.lines)
        self.present: dict[EventAccess, np.ndarray] = {}
        self.races: list[tuple[GradientError, Event]] = []
        self.final: Workspace | None = None
        self.failed: Event | None = None
        self._here: Event | None = None
        with memory.LOCK, memory.unrecorded(), np.errstate(all="ignore"):
            numbers = {a: numbers_of_memory(tape, a, s.data) for a, s in seeds.items()}
            self.seeded = {a: x is None or bool(np.isfinite(x).all()) for a, x in numbers.items()}
            given = {a: x[x != 0] for a, x in numbers.items() if x is not None}
            self.ones = {a: len(x) for a, x in given.items() if len(x) > 1 and (x == 1).all()}
            if any(e.kind.calls_back for e in tape.events):  # a walk would call what the user recorded
                return
            if self.steps and self.steps[-1].event is events[-1]:
                self._written(self.steps[-1])
            if any(s.data.any() for s in seeds.values()):
                for observer in observers:
                    observer.choose(self.steps)
            try:
                self.final = walk(tape, seeds, self.after, self.before, only=only)[0]
            except (GradientError, KernelError) as error:
                self.error, self.failed = error, self._here

    @cached_property
    def lines(self) -> dict[tuple, list[WalkStep]]:
        """The launches by (label, line), in program order."""
        launches = (step for step in self.steps if step.event.command is not None)
        return grouped(((step.event.label, step.event.line), step) for step in launches)

    @cached_property
    def touching(self) -> dict[Allocation, list[int]]:
        """By allocation the positions of the steps that read or write it."""
        memories = (dict.fromkeys(x.span.allocation for x in step.accesses) for step in self.steps)
        return grouped((a, n) for n, touched in enumerate(memories) for a in touched)

    def observer(self, kind: type[Looker]) -> Looker:
        """The observer of this class that the walk was shown to."""
        return next(o for o in self.observers if isinstance(o, kind))

    # ---- what the walk calls

    def before(self, event: Event, space: Workspace) -> None:
        """Observe an event before its reversal: memory as it found it, the adjoint of its results."""
        step, self._here = self.of.get(event), event
        if self._rewinds is None or event is self._rewinds:
            self._rewinds = None
            self._rewound(event)
        if step is None:
            return
        try:
            check_races(event)
        except GradientError as error:
            self.races.append((error, event))
        self.turns.observe_before(step, self.known)
        self._read(step)
        self.present = {}
        for access in step.accesses:
            data = shadow_view(space, access)
            if data is not None:
                step.bad_before |= not np.isfinite(data).all()
                if access.writes:
                    step.came[access] = _norm(data)
                else:
                    self.present[access] = data.copy()
        for observer in self.observers:
            observer.observe(step, space)

    def after(self, event: Event, space: Workspace) -> None:
        """Observe an event after its reversal: memory as its predecessor left it, the adjoint of what it read."""
        if event in self.next:
            self._written(self.next[event])
        if (step := self.of.get(event)) is None:
            return
        written = [a.span for a in step.accesses if a.writes and a.plain]
        for access in step.accesses:
            data = shadow_view(space, access)
            if data is None:
                continue
            fine = np.isfinite(data)
            if not fine.all():
                step.bad_adjoints.append(access.name)
                step.bad_given += _cells(access, ~fine)
            if not access.writes:
                old = self.present.pop(access, None)
                consumed = any(s.overlaps(access.span) is not False for s in written)
                given = data if old is None or consumed else np.subtract(data, old, out=old)
                step.gave[access] = _norm(given)

    # ---- forward values

    def _rewound(self, event: Event) -> None:
        """Update `lost` for a rewound event: what it overwrote is lost, unless kept, and kept bytes are known again."""
        kept = [k.span for k in event.kept]
        for span in event.writes:
            here = [k for k in kept if k.allocation is span.allocation]
            for k in here if span.allocation in self.lost else ():
                for back in self.lost[span.allocation].near(k):
                    if k.contains(back):
                        self.lost[span.allocation].remove(back)
            if not any(k.contains(span) for k in here):
                self._lose(span)

    def _last_needed(self, last: int) -> Event:
        """The event by which all that the steps access is written behind them: later ones tell nothing about them."""
        left: dict[Allocation, set[Span]] = {}
        for x in (x for step in self.steps for x in step.accesses):
            left.setdefault(x.span.allocation, set()).add(x.span)
        found = self.tape.events[last]
        for event in self.tape.events[last + 1 :] if left else ():
            for span in (span for span in event.writes if span.allocation in left):
                found = event
                left[span.allocation] = {s for s in left[span.allocation] if not span.contains(s)}
                if not left[span.allocation]:
                    del left[span.allocation]
        return found

    def _lose(self, span: Span) -> None:
        self.lost.setdefault(span.allocation, SpanIndex()).put(span, span)

    def known(self, span: Span) -> bool:
        return span.allocation not in self.lost or not self.lost[span.allocation].met(span)

    def _written(self, step: WalkStep) -> None:
        self.turns.observe_after(step, self.known)
        for access in step.accesses:
            if access.writes and access.scalar is not None and access.span.nbytes:
                if not self.known(access.span):
                    step.unknown.append(access.name)
                    continue
                data = on_host(access.span.view(access.scalar.numpy))
                step.wrote[access] = _norm(data)
                if not np.isfinite(step.wrote[access]):
                    step.not_finite.append(access.name)
                    step.bad_written += _cells(access, ~np.isfinite(data))

    def _read(self, step: WalkStep) -> None:
        if step.not_finite:
            for access in step.accesses:
                if not access.span.nbytes or (access.writes and access.plain):
                    continue
                if not self.known(access.span):
                    step.clouded.append(access.name)
                elif (kind := access.scalar) and not np.isfinite(on_host(access.span.view(kind.numpy))).all():
                    step.inherited.append(access.name)


def _cells(access: EventAccess, bad: np.ndarray) -> list[tuple[int, ...]]:
    """The indices, in the array of an access, of the first few bad elements of its span."""
    rest, first = access.span.offset - access.array.span.offset, []
    for stride in access.array.strides:
        at, rest = divmod(rest, stride) if stride > 0 else (0, rest)
        first.append(at)
    found = zip(*(axis[:SOME].tolist() for axis in np.nonzero(bad)[: len(first)]), strict=True)
    return [tuple(a + b for a, b in zip(cell, first, strict=True)) for cell in found]


def _norm(data: np.ndarray) -> float:
    """The Euclidean norm, without overflow; infinity if anything is not finite."""
    parts = [data] if data.size <= PART else np.array_split(data.reshape(-1), -(-data.size // PART))
    if data.dtype == np.float32:  # whose squares neither overflow nor vanish in float64
        squares = sum(float(np.square(part, dtype=np.float64).sum()) for part in parts)
        return math.sqrt(squares) if math.isfinite(squares) else float("inf")
    if not all(np.isfinite(part).all() for part in parts):
        return float("inf")
    most = max(float(np.abs(part).max(initial=0.0)) for part in parts)
    if not most:
        return 0.0
    # not `dot`: BLAS shares it among threads that spin, and takes many times as long where others compute
    return most * math.sqrt(sum(float(np.square((part / most).astype(np.float64)).sum()) for part in parts))


def norm_of(space: Workspace, access: EventAccess) -> float:
    """The norm of the adjoint of an access in a workspace."""
    data = shadow_view(space, access)
    return 0.0 if data is None else _norm(data)


def leaf_accesses(trail: WalkRecord) -> dict[Allocation, list[EventAccess]]:
    """The leaves of the tape: by memory the reads of arrays with requires_grad that were not written before.

    What a launch both reads and stores to may be scratch memory, whose contents nobody meant: it is left out.
    """
    written: dict[Allocation, SpanSet] = {}
    found: dict[Allocation, list[EventAccess]] = {}
    for step in trail.steps:
        stored = [x.span for x in step.accesses if x.writes and x.plain]
        for x in step.accesses:
            a = x.span.allocation
            if any(s.overlaps(x.span) is not False for s in stored):
                continue
            marked = not x.writes and x.scalar is not None and x.span.nbytes and a.required.touch(x.span)
            if marked and not (a in written and written[a].touch(x.span)):
                found.setdefault(a, []).append(x)
        for x in step.accesses:
            if x.writes:
                written.setdefault(x.span.allocation, SpanSet()).add(x.span)
    return found


# ---- states: what a launch writes and the next launch of its line reads, in place or in a second buffer


class Change(NamedTuple):
    """The change of a state by one launch: in its units, and relative to its norm."""

    state: EventAccess
    size: float
    relative: float


class StateChanges:
    """`lines`: repeated launches by line, in program order. `changes`: by event, of the states that are known."""

    def __init__(self, lines: dict[tuple, list[WalkStep]]):
        self.lines = {key: found for key, found in lines.items() if len(found) >= SERIES}
        self.changes: dict[Event, list[Change]] = {}
        self._states: dict[Event, list[tuple[EventAccess, array]]] = {}
        self._after: list[tuple[EventAccess, array, np.ndarray]] = []
        for found in self.lines.values():
            for before, step in list(itertools.pairwise(found))[-LOOKED:]:
                self._states[step.event] = _states(before, step)

    def observe_after(self, step: WalkStep, known: Known) -> None:
        """Called with memory as this event left it."""
        states = self._states.get(step.event, ())
        self._after = [(x, old, on_host(x.array.data).copy()) for x, old in states if known(x.array.span)]

    def observe_before(self, step: WalkStep, known: Known) -> None:
        """Called with memory as this event found it."""
        for state, old, now in self._after:
            if known(old.span):
                size, change = (float(np.linalg.norm(v)) for v in (now, now.astype(np.float64) - on_host(old.data)))
                if size > 0 and math.isfinite(size) and math.isfinite(change):
                    found = Change(state, change, change / size)
                    self.changes.setdefault(step.event, []).append(found)
        self._after = []


def _states(before: WalkStep, step: WalkStep) -> list[tuple[EventAccess, array]]:
    """Pairs (write of `step`, the array of the launch before that it replaces), for states that `step` reads."""
    new, earlier = ([x for x in one.accesses if x.writes] for one in (step, before))
    read = {r.array.span for r in step.accesses if not r.writes}
    pairs = ((x, y.array) for x, y in zip(new, earlier, strict=False) if x.plain and x.scalar is not None)
    alike = ((x, old) for x, old in pairs if (old.shape, old.dtype) == (x.array.shape, x.array.dtype))
    return [(x, old) for x, old in alike if old.span in read]


# ---- the input of the rules, and how they name events
# A rule is a function of a `RuleInput` that yields findings; it computes no derivative. Severity `info` is for facts
# that are right but worth knowing, so that a healthy program has no `warning` and no `error`.


@dataclass
class RuleInput:
    """The input of a rule; `seeds` makes those of its walk anew, which went through `only` some events.

    `loss`: the array of one element that is seeded, if it is one.
    """

    tape: Tape
    trail: WalkRecord
    seeded: bool
    seeds: Callable[[], Workspace]
    only: Container[Event] | None = None
    loss: array | None = None

    def visit(self, look: Observer) -> None:
        """Walk once more, calling `look` before each event is reversed, until it raises Enough. Memory is restored."""
        with suppress(Enough, GradientError), np.errstate(all="ignore"):
            walk(self.tape, self.seeds(), None, look, only=self.only)

    def inspect(self, event: Event, look: Callable[[Event, Workspace], Seen]) -> Seen | None:
        """Call `look` at one event, with memory and adjoints as its reversal finds them. Returns its result."""
        found: list[Seen] = []

        def at(passed: Event, space: Workspace) -> None:
            if passed is event:
                found.append(look(event, space))
                raise Enough

        self.visit(at)
        return found[0] if found else None


def title(case: RuleInput, event: Event | None) -> str:
    return case.trail.of[event].title if event is not None else ""


def refused(error: Exception, launch: str = "") -> Finding:
    """An error of the tape as a finding."""
    assert isinstance(error, GradientError | KernelError)
    sentence = " ".join(filter(None, (error.what, error.why)))
    return Finding(error.slug, "error", launch, error.where, sentence, error.instead, brief=f"{{at}}: {error.what}")


def last_seeds(tape: Tape) -> Workspace:
    """A workspace with the seeds of the last `backward`."""
    return Workspace({a: Shadow(a, start=data) for a, data in tape.last_seeds.items()})


def seeded_number(tape: Tape) -> array | None:
    """The array of one element that the last backward was seeded by; None if it was seeded by more."""
    seeded = {a: np.flatnonzero(on_host(data)) for a, data in tape.last_seeds.items() if data.any()}
    for a in tape.arrays.values():
        if len(seeded) == 1 and a.data.size == 1 and a.allocation in seeded:
            low, high = a.allocation.gradient_span(a.span).hull()
            if low <= seeded[a.allocation].min() and seeded[a.allocation].max() < high:
                return a
    return None


def any_name(tape: Tape, a: Allocation) -> str:
    names = [tape.names.of(x) for x in tape.arrays.values() if x.allocation is a]
    return next((n for n in names if n != str(a)), str(a))
