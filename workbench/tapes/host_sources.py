"""Values of the host that came from memory on an active path: followed as far as the tape can, else refused.

A write of such values is an event with `sources`. It makes what it wrote active, so that the walk knows its adjoint; if
that is not zero when the walk reaches the write, a gradient would end there unseen, and the walk is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.allocation import Allocation
from ..arrays.array import array, array_on, exact, new_array
from ..arrays.host_reads import Source
from ..arrays.span import Span
from ..arrays.workspace import Workspace, float_parts, gradient_dtype, is_float_memory
from ..errors import GradientError, Where
from ..kernels.types import Composite, Scalar, is_float, scalar_of
from .events import Event, clock
from .naming import called

if TYPE_CHECKING:
    from .recording import Recording


def live(tape: Recording, sources: tuple[Source, ...], dst: Span | None = None) -> tuple[Source, ...]:
    """Those sources that held, when they were read, what depends on something with requires_grad.

    `dst`: a leaf that the tape has not touched starts anew with what is assigned, also if that was made from itself.
    """
    found = tuple(s for s in sources if s.tape() is tape and _active(tape, s))
    if dst is None or tape.has_touched(dst):
        return found
    return tuple(s for s in found if s.span.overlaps(dst) is False or tape.has_touched(s.span))


def _active(tape: Recording, source: Source) -> bool:
    memory, span = source.span.allocation, source.span
    if memory.is_gradient or not (memory.asked or memory in tape.active):
        return False
    for event in reversed(tape.events[: source.at]):
        hit = [s for s in event.writes if s.overlaps(span) is not False]
        if hit and _writes_active(tape, event):
            return True
        if event.command is None and event.kind != "foreign" and any(s.contains(span) for s in hit):
            return False
    return memory.required.touch(span) or memory.retained.touch(span)


def _writes_active(tape: Recording, event: Event) -> bool:
    if event.command is not None:
        return event.reverse is not None
    if event.kind in ("func", "loop") or event.sources:
        return True
    return len(event.arrays) == 2 and event.followed


def written(
    tape: Recording,
    memory: Allocation,
    offset: int,
    values: np.ndarray,
    sources: tuple[Source, ...],
    where: Where | None,
) -> None:
    """NumPy has written `values`, which lie in this memory, through its raw address, from these sources."""
    if values.dtype.names:
        for name, (_, at, *_) in values.dtype.fields.items():  # type: ignore[union-attr]
            written(tape, memory, offset + at, values[name], sources, where)
        return
    if values.dtype.kind != "f" or tape.muted:
        return
    dst = array_on(memory, scalar_of(values.dtype), values.shape or (1,), values.strides or (values.itemsize,), offset)
    while tape.events and tape.events[-1].noted and dst.span.contains(tape.events[-1].writes[0]):
        tape.events.pop()  # nobody has met what this overwrites
    found = live(tape, sources)
    if found:
        event = Event(next(clock), "foreign", "numpy()", where, (), (dst.span,), arrays=(dst,))
        event.sources, event.noted = found, True
        tape.arrays[id(dst)] = dst
        follow(tape, dst)
        tape.events.append(event)


def follow(tape: Recording, dst: array) -> None:
    """From now on this memory is on an active path."""
    tape.active[dst.allocation] = None
    tape.check_scalar(dst, "a value of the host")


def declared(tape: Recording, command: Any) -> Any:
    """The command, with those of its numbers as declared scalars that were read from memory on an active path."""
    places = list(command.places)
    found = list(command.declared)
    for k, leaf in enumerate(command.program.leaves):
        sources = () if k in found else tape.numbers.of(command.flat[k])
        if sources and is_float(leaf.type) and live(tape, sources):
            places[k] = _standing_for(f"{leaf.name} of {command.program.name}", leaf.type, command.flat[k])
            found.append(k)
    return command if len(found) == len(command.declared) else command.declaring(places, tuple(sorted(found)))


def _standing_for(name: str, type: Scalar | Composite, value: Any) -> array:
    """A new array of one element with this value, written as an event."""
    made = new_array(1, type)
    made.name = name
    made.data[...] = value
    exact.trace(made, value)
    return made


def refuse(event: Event, space: Workspace, tape: Recording) -> None:
    """Raises GradientError [host-values] if an event wrote values of the host and their adjoint is not zero."""
    dst = event.arrays[0]
    if not event.sources or dst.allocation not in space:
        return
    for part in float_parts(dst).values():
        if space[dst.allocation].view(part.span, gradient_dtype(part)).any():
            raise lost(event, tape)


def lost(event: Event, tape: Recording) -> GradientError:
    """What to say of a write that ends a gradient."""
    lines = []
    for source in event.sources:
        at = f", read at {source.where}: {source.where.text.strip()}" if source.where else ""
        lines.append(f"{_named(tape, source)}{at}")
    dst = event.arrays[0]
    return GradientError(
        f"{called(tape, dst)} was written with values that the host made from {'; '.join(lines)}.",
        slug="host-values", where=event.where,
        why="The tape does not see what NumPy or Python did in between: the gradient would end here in silence.",
        instead="a kernel, an array operator or wb.copy in its place; wb.detach(values) if it is meant to end here",
    )  # fmt: skip


def _named(tape: Recording, source: Source) -> str:
    """What the user calls the memory that was read."""
    near = [a for a in tape.arrays.values() if a.span.overlaps(source.span) is not False]
    near.sort(key=lambda a: a.span != source.span)
    return called(tape, near[0]) if near else source.label


def is_followed(dst: array) -> bool:
    """Can there be a gradient by what is written here."""
    return is_float_memory(dst) and not dst.is_gradient
