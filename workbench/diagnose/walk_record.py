"""The record of one reverse walk: norms of adjoints at every event, and where numbers become non-finite.

One idea: two observers of a real walk read the shadows and the rewound memory; nothing is computed but sizes, norms
and differences of numbers that the walk left there. Forward values are looked at only where they are known: bytes that
somebody overwrote and nobody kept are `lost`, and whoever asks is told so.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import allocation as memory
from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.interval_index import SpanIndex, SpanSet
from ..arrays.span import Span
from ..arrays.workspace import Workspace
from ..device import on_host
from ..errors import GradientError, KernelError
from ..kernels.types import Scalar, Struct, is_float
from ..tapes.events import Event
from ..tapes.naming import name_of
from ..tapes.reverse import check_races, walk
from ..tapes.tape import Tape
from .kinks import Kinks
from .loop_turns import Loops
from .saturated import Bounds
from .state_changes import StateChanges

PART = 1 << 16  # numbers whose norm is taken at once: what that needs beside them stays small
SOME = 4  # cells that are remembered of what is not finite


@dataclass(frozen=True, eq=False)
class EventAccess:
    """One read or write of an event. `plain`: a write that stores, not only accumulates."""

    array: array
    span: Span
    name: str
    writes: bool
    plain: bool = True

    @cached_property
    def scalar(self) -> Scalar | None:
        """Its floating-point type; None for integers and for structs."""
        dtype = self.array.dtype
        return dtype.scalar if not isinstance(dtype, Struct) and is_float(dtype) else None  # type: ignore[attr-defined]


def accesses(tape: Tape, event: Event) -> list[EventAccess]:
    """All accesses of an event, reads first."""
    if not event.kind.own:
        return []
    if event.command is None:
        if event.loop is not None:
            state = event.arrays[: len(event.writes)]
            reads = [EventAccess(a, a.span, name_of(tape, a), False) for a in event.arrays]
            return [*reads, *[EventAccess(a, a.span, name_of(tape, a), True) for a in state]]
        if event.kind.closed:
            return [EventAccess(a, a.span, name_of(tape, a), a.span in event.writes, False) for a in event.arrays]
        return [EventAccess(a, a.span, name_of(tape, a), k == 0) for k, a in reversed(list(enumerate(event.arrays)))]
    plan, places = event.command.plan, event.command.places
    found = []
    for how, spans in (("reads", event.reads), ("writes", event.writes)):
        for k, span in zip(positions(event, how), spans, strict=True):
            name = name_of(tape, places[k], plan.program.leaves[k].name)
            found.append(EventAccess(places[k], span, name, how == "writes", k not in plan.accumulates_only))
    return found


def positions(event: Event, how: str) -> list[int]:
    """The parameter positions in the kernel of the spans in `event.reads` or `event.writes` (`how`)."""
    found = [k for k, _ in getattr(event.command.plan, how)]
    return [*found, *event.command.declared] if how == "reads" else found


def shadow_of(space: Workspace, access: EventAccess) -> np.ndarray | None:
    """A host copy of the adjoint of an access; None if it has none."""
    found = _shadow_now(space, access)
    return None if found is None else found.copy()


def _shadow_now(space: Workspace, access: EventAccess) -> np.ndarray | None:
    """The adjoint of an access (on a CPU a view, which the walk changes later); None if it has none."""
    if access.scalar is None or access.span.allocation not in space or not access.span.nbytes:
        return None
    dtype = np.dtype(np.float32) if access.scalar.bits == 16 else access.scalar.numpy
    return on_host(space[access.span.allocation].view(access.span, dtype))


@dataclass
class WalkStep:
    """One event of the walk, with norms of adjoints: `came` in on its writes, `gave` to its reads."""

    event: Event
    accesses: list[EventAccess]
    title: str  # as in the picture
    came: dict[EventAccess, float] = field(default_factory=dict)
    gave: dict[EventAccess, float] = field(default_factory=dict)
    wrote: dict[EventAccess, float] = field(default_factory=dict)  # sizes of the values it left, where they are known
    bad_before: bool = False  # something not finite in the adjoints it starts from
    bad_after: bool = False
    not_finite: list[str] = field(default_factory=list)  # forward: what it wrote
    inherited: list[str] = field(default_factory=list)  # forward: what it read
    clouded: list[str] = field(default_factory=list)  # forward: read, and not known any more
    unknown: list[str] = field(default_factory=list)  # forward: written, not looked at
    bad_written: list[tuple[int, ...]] = field(default_factory=list)  # some cells it wrote that are not finite
    bad_given: list[tuple[int, ...]] = field(default_factory=list)  # some cells whose adjoint is not finite

    @property
    def flowing(self) -> float:
        """The norm of all incoming adjoints."""
        return math.sqrt(sum(n * n for n in self.came.values()))


class WalkRecord:
    """The record of a walk (of `only` some events). `steps` in program order; `error`: the refusal, if any."""

    def __init__(self, tape: Tape, seeds: Workspace, only: Container[Event] | None = None):
        self.tape = tape
        self.error: GradientError | KernelError | None = None
        self.steps = [WalkStep(e, accesses(tape, e), f"#{n} {e.label}") for n, e in enumerate(tape.events)]
        self.of = {s.event: s for s in self.steps}
        self.order = {e: n for n, e in enumerate(tape.events)}
        self.lost: dict[Allocation, SpanIndex[Span]] = {}
        for span in (span for spans in tape.changed.values() for span in spans):
            self._lose(span)
        self.turns = StateChanges(self.steps)
        self.present: dict[EventAccess, np.ndarray] = {}
        self.races: list[tuple[GradientError, Event]] = []
        self.final: Workspace | None = None
        self.failed: Event | None = None
        self._here: Event | None = None
        self.kinks = Kinks()
        self.bounds = Bounds()
        self.loops = Loops()
        with memory.LOCK, memory.unrecorded(), np.errstate(all="ignore"):
            self.seeded = {a: _finite(tape, a, s.data) for a, s in seeds.items()}
            self.ones = {a: n for a, s in seeds.items() if (n := _ones(tape, a, s.data)) > 1}
            if any(e.kind.calls_back for e in tape.events):  # a walk would call what the user recorded
                return
            if self.steps:
                self._written(self.steps[-1])
            if any(s.data.any() for s in seeds.values()):
                self.kinks.choose(tape.events)
                self.bounds.choose(self.steps)
                self.loops.choose(self.steps)
            try:
                self.final = walk(tape, seeds, self.observe, self.before, only=only)[0]
            except (GradientError, KernelError) as error:
                self.error, self.failed = error, self._here

    @cached_property
    def touching(self) -> dict[Allocation, list[int]]:
        """By allocation the positions of the steps that read or write it."""
        found: dict[Allocation, list[int]] = {}
        for n, step in enumerate(self.steps):
            for a in dict.fromkeys(x.span.allocation for x in step.accesses):
                found.setdefault(a, []).append(n)
        return found

    # ---- the two observers

    def before(self, event: Event, space: Workspace) -> None:
        """Observe an event before its reversal: memory as it found it, the adjoint of its results."""
        step, self._here = self.of[event], event
        self._rewound(event)
        self._race(event)
        self.turns.found(step, self.known)
        self._read(step)
        self.kinks.look(event, space)
        self.present = {}
        for access in step.accesses:
            data = _shadow_now(space, access)
            if data is not None:
                step.bad_before |= not np.isfinite(data).all()
                if access.writes:
                    step.came[access] = _norm(data)
                else:
                    self.present[access] = data.copy()
        self.bounds.look(step, space)
        self.loops.look(step, space)

    def observe(self, event: Event, space: Workspace) -> None:
        """Observe an event after its reversal: memory as its predecessor left it, the adjoint of what it read."""
        step = self.of[event]
        written = [a.span for a in step.accesses if a.writes and a.plain]
        for access in step.accesses:
            data = _shadow_now(space, access)
            if data is None:
                continue
            fine = np.isfinite(data)
            if not fine.all():
                step.bad_after = True
                step.bad_given += _cells(access, ~fine)
            if not access.writes:
                old = self.present.pop(access, None)
                consumed = any(s.overlaps(access.span) is not False for s in written)
                given = data if old is None or consumed else np.subtract(data, old, out=old)
                step.gave[access] = _norm(given)
        n = self.order[event]
        if n:
            self._written(self.steps[n - 1])

    def _race(self, event: Event) -> None:
        try:
            check_races(event)
        except GradientError as error:
            self.races.append((error, event))

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

    def _lose(self, span: Span) -> None:
        self.lost.setdefault(span.allocation, SpanIndex()).put(span, span)

    def known(self, span: Span) -> bool:
        return span.allocation not in self.lost or not self.lost[span.allocation].met(span)

    def _written(self, step: WalkStep) -> None:
        self.turns.left(step, self.known)
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
                elif access.scalar is not None and not _all_finite(access):
                    step.inherited.append(access.name)


def _all_finite(access: EventAccess) -> bool:
    assert access.scalar is not None
    return bool(np.isfinite(on_host(access.span.view(access.scalar.numpy))).all())


def _cells(access: EventAccess, bad: np.ndarray) -> list[tuple[int, ...]]:
    """The indices, in the array of an access, of the first few bad elements of its span."""
    rest, first = access.span.offset - access.array.span.offset, []
    for stride in access.array.strides:
        at, rest = divmod(rest, stride) if stride > 0 else (0, rest)
        first.append(at)
    found = zip(*(axis[:SOME].tolist() for axis in np.nonzero(bad)[: len(first)]), strict=True)
    return [tuple(a + b for a, b in zip(cell, first, strict=True)) for cell in found]


def _finite(tape: Tape, a: Allocation, data: Any) -> bool:
    scalar = tape.scalars.get(a)
    if not isinstance(scalar, Scalar):
        return True
    return bool(np.isfinite(on_host(data).view(np.float32 if scalar.bits == 16 else scalar.numpy)).all())


def _ones(tape: Tape, a: Allocation, data: Any) -> int:
    """The number of ones in a seed that holds nothing else but zeros; 0 for others."""
    scalar = tape.scalars.get(a)
    if not isinstance(scalar, Scalar):
        return 0
    numbers = on_host(data).view(np.float32 if scalar.bits == 16 else scalar.numpy)
    given = numbers[numbers != 0]
    return len(given) if (given == 1).all() else 0


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
    data = shadow_of(space, access)
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
