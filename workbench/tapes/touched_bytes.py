"""Bytes that the events of a tape touched, wrote and stored to, and their types: collected on demand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..arrays.array import array
from ..arrays.interval_index import SpanSet
from ..arrays.workspace import is_float_memory
from ..errors import GradientError
from ..kernels.types import Struct, is_float
from .events import Event

if TYPE_CHECKING:
    from .recording import Recording


def tally(tape: Recording) -> None:
    """Bring `touched`, `first`, `written`, `stored`, `stamps` and `bits` of a tape up to its last event.

    Called on demand, so that recording is not slowed down.
    """
    for event in tape.events[tape.tallied :]:
        if not event.kind.own and not event.noted:
            continue
        for span in (*event.reads, *event.writes):
            marks = tape.touched.get(span.allocation)
            if marks is None:
                marks = tape.touched[span.allocation] = SpanSet()
                tape.first[span.allocation] = event
            marks.add(span)
        for a in _written_as_integers(event):
            tape.bits.setdefault(a.span, (a, event))
        plain = event.command.plan.accumulates_only if event.command is not None else ()
        for k, span in enumerate(event.writes if not event.kind.cuts else ()):  # what a cut makes is a leaf
            if event.command is None or event.command.plan.writes[k][0] not in plain:
                tape.stored.setdefault(span.allocation, {})[span] = None
            marks = tape.written.get(span.allocation)
            if marks is None:
                marks = tape.written[span.allocation] = SpanSet()
            marks.add(span)
            tape.stamps[span.allocation] = event.stamp
    tape.tallied = len(tape.events)


def refuse_bits(tape: Recording) -> None:
    """Refuse memory on an active path that is written or read as integers: no adjoint clears or passes on that."""
    tally(tape)
    for span, (a, event) in tape.bits.items():
        if span.allocation not in tape.active and not _reads_bits(tape, event):
            continue
        for b in tape.arrays.values():
            if is_float(b.dtype) and not isinstance(b.dtype, Struct) and b.span.overlaps(span) is not False:
                raise GradientError(
                    f"{event.label!r} writes {a.dtype} into the memory of {b.label}, which is used as {b.dtype},"
                    " with gradients.",
                    slug="two-types",
                    where=event.where,
                    why="Memory has one gradient, of one scalar type.",
                    instead="bits = wb.zeros(n, dtype=int)   of its own, and a kernel that converts",
                )


def _reads_bits(tape: Recording, event: Event) -> bool:
    """True if the event reads, as integers, memory that holds floats with a gradient."""
    if event.command is None:
        return False
    plan, flat = event.command.plan, event.command.flat
    read = [flat[k].span for k, _ in plan.reads if k not in plan.floats]
    floats = [b.span for b in tape.arrays.values() if is_float(b.dtype) and b.allocation in tape.active]
    return any(r.allocation.required.touch(r) or any(b.overlaps(r) is not False for b in floats) for r in read)


def _written_as_integers(event: Event) -> Iterator[array]:
    if event.command is not None:
        yield from (event.command.flat[k] for k in event.command.plan.bits)
    elif event.kind.passes:
        yield from (a for a in event.arrays if a.span in event.writes and not is_float_memory(a))
