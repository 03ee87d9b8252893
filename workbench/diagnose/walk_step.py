"""The events of a walk as the rules see them: `WalkStep`, with its reads and writes, and who is shown them.

One idea: an access is a span with its name and its array; what a walk measures is kept beside it, in the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.span import Span
from ..arrays.workspace import Workspace
from ..device import XpArray, on_host
from ..errors import Where
from ..kernels.types import Scalar, Struct, is_float
from ..tapes.events import Event
from ..tapes.tape import Tape
from .finding import Finding


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
    found, a = _accesses(tape, event), event.guess
    return found if a is None else [EventAccess(a, a.span, tape.names.of(a), False), *found]


def _accesses(tape: Tape, event: Event) -> list[EventAccess]:
    if not event.kind.own:
        return []
    if event.command is None:
        if event.loop is not None:
            state = event.arrays[: len(event.writes)]
            reads = [EventAccess(a, a.span, tape.names.of(a), False) for a in event.arrays]
            return [*reads, *[EventAccess(a, a.span, tape.names.of(a), True) for a in state]]
        if event.kind.closed:
            return [EventAccess(a, a.span, tape.names.of(a), a.span in event.writes, False) for a in event.arrays]
        return [EventAccess(a, a.span, tape.names.of(a), k == 0) for k, a in reversed(list(enumerate(event.arrays)))]
    plan, places = event.command.plan, event.command.places
    found = []
    for how, spans in (("reads", event.reads), ("writes", event.writes)):
        for k, span in zip(positions(event, how), spans, strict=True):
            name = tape.names.of(places[k], plan.program.leaves[k].name)
            found.append(EventAccess(places[k], span, name, how == "writes", k not in plan.accumulates_only))
    return found


def written_names(found: Sequence[EventAccess]) -> tuple[str, ...]:
    """The names of what is written, each once."""
    return tuple(dict.fromkeys(x.name for x in found if x.writes))


def positions(event: Event, how: str) -> list[int]:
    """The parameter positions in the kernel of the spans in `event.reads` or `event.writes` (`how`)."""
    found = [k for k, _ in getattr(event.command.plan, how)]
    return [*found, *event.command.declared] if how == "reads" else found


def shadow_view(space: Workspace, access: EventAccess) -> np.ndarray | None:
    """The adjoint of an access (on a CPU a view, which the walk changes later); None if it has none."""
    if access.scalar is None or access.span.allocation not in space or not access.span.nbytes:
        return None
    dtype = np.dtype(np.float32) if access.scalar.bits == 16 else access.scalar.numpy
    return on_host(space[access.span.allocation].view(access.span, dtype))


def numbers_of_memory(tape: Tape, a: Allocation, data: XpArray | None) -> np.ndarray | None:
    """An adjoint of a whole memory as flat numbers; None without one, or for memory not of floats of one type."""
    scalar = tape.scalars.get(a)
    if data is None or not isinstance(scalar, Scalar):
        return None
    return on_host(data).reshape(-1).view(np.float32 if scalar.bits == 16 else scalar.numpy)


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
    not_finite: list[str] = field(default_factory=list)  # forward: what it wrote
    inherited: list[str] = field(default_factory=list)  # forward: what it read
    clouded: list[str] = field(default_factory=list)  # forward: read, and not known any more
    unknown: list[str] = field(default_factory=list)  # forward: written, not looked at
    bad_written: list[tuple[int, ...]] = field(default_factory=list)  # some cells it wrote that are not finite
    bad_given: list[tuple[int, ...]] = field(default_factory=list)  # some cells whose adjoint is not finite
    bad_adjoints: list[str] = field(default_factory=list)  # the names of their arrays

    @property
    def flowing(self) -> float:
        """The norm of all incoming adjoints."""
        return math.sqrt(sum(n * n for n in self.came.values()))

    @property
    def written(self) -> tuple[str, ...]:
        return written_names(self.accesses)

    def finding(
        self,
        slug: str,
        severity: str,
        sentence: str,
        fix: str,
        arrays: tuple[str, ...],
        where: Where | None = None,
        thread: int | tuple[int, ...] | None = None,
        brief: str = "",
        mended: str = "",
    ) -> Finding:
        """A finding about this event; `where`: the statement, if it is known."""
        place = where or self.event.where
        return Finding(slug, severity, self.title, place, sentence, fix, arrays, thread, brief=brief, mended=mended)


class WalkObserver:
    """An observer of a walk: it sees steps with memory as the event found it and the adjoint of its results."""

    def choose(self, steps: Sequence[WalkStep]) -> None:
        """Choose the launches to look at, before the walk."""
        raise NotImplementedError

    def observe(self, step: WalkStep, space: Workspace) -> None:
        """Look at a step, if it was chosen."""
        raise NotImplementedError
