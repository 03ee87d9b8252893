"""Host values computed from memory on an active path: followed as far as the tape can, else refused.

A write of such values is an event with `sources`. It makes what it wrote active, so that the walk knows its adjoint; if
that is not zero when the walk reaches the write, a gradient would silently end there, and the walk is refused.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.allocation import Allocation, caller_where, recorders
from ..arrays.array import array, array_on, exact, new_array
from ..arrays.host_reads import HostRead, Supposed
from ..arrays.host_writes import write_values
from ..arrays.read_values import sample
from ..arrays.span import Span
from ..arrays.workspace import Workspace, float_parts, gradient_dtype, is_float_memory
from ..errors import GradientError, Where
from ..kernels.types import Composite, Scalar, is_float, scalar_of
from .events import Event, clock
from .kinds import FOREIGN
from .naming import called

if TYPE_CHECKING:
    from .recording import Recording


def live(tape: Recording, sources: tuple[HostRead, ...], dst: Span | None = None) -> tuple[HostRead, ...]:
    """The sources whose memory depended on something with `requires_grad` when it was read.

    `dst`: one that the tape has not touched becomes a new leaf: untouched sources that overlap it are left out.
    """
    found = tuple(s for s in sources if _active(tape, s))
    if dst is None or tape.has_touched(dst):
        return found
    return tuple(s for s in found if s.span.overlaps(dst) is False or tape.has_touched(s.span))


def behind(tape: Recording, dst: array, sources: tuple[HostRead, ...]) -> tuple[HostRead, ...]:
    """The `live` sources of values about to be written to `dst`; () if no gradient can pass there."""
    if not sources or tape.muted or not is_followed(dst):
        return ()
    found = live(tape, sources, dst.span)
    return Supposed(found) if isinstance(sources, Supposed) else found


def _active(tape: Recording, source: HostRead) -> bool:
    memory, span, at = source.span.allocation, source.span, source.at(tape)
    if at is None:  # read before a step of a checkpointed loop, which has a tape of its own
        return tape.around is not None and (memory in tape.inherited or _active(tape.around, source))
    if memory.is_gradient or not (memory.asked or memory in tape.active):
        return False
    for event in reversed(tape.events[:at]):
        hit = [s for s in event.writes if s.overlaps(span) is not False]
        if hit and _writes_active(tape, event):
            return True
        if event.command is None and event.kind.own and any(s.contains(span) for s in hit):
            return False
    if memory in tape.inherited:
        return True
    return memory.required.touch(span) or memory.retained.touch(span)


def _writes_active(tape: Recording, event: Event) -> bool:
    if event.command is not None:
        return event.reverse is not None
    if event.kind.active or event.sources:
        return True
    return len(event.arrays) == 2 and event.followed


def written(
    tape: Recording,
    memory: Allocation,
    offset: int,
    values: np.ndarray,
    sources: tuple[HostRead, ...],
    where: Where | None,
) -> None:
    """Note that NumPy wrote `values`, which lie at `offset` in this memory, from these sources, by its raw address."""
    if values.dtype.names:
        for name, (_, at, *_) in values.dtype.fields.items():  # type: ignore[union-attr]
            written(tape, memory, offset + at, values[name], sources, where)
        return
    if values.dtype.kind != "f" or tape.muted:
        return
    dst = array_on(memory, scalar_of(values.dtype), values.shape or (1,), values.strides or (values.itemsize,), offset)
    while tape.events and tape.events[-1].noted and dst.span.contains(tape.events[-1].writes[0]):
        tape.events.pop()  # nobody has met what this overwrites
    tell_around(tape, [dst], sources, where)
    found = behind(tape, dst, sources) if sources else ()
    if found or (dst.allocation in tape.active and tape.has_touched(dst.span)):
        _note(tape, dst, found, where)


def _note(tape: Recording, dst: array, sources: tuple[HostRead, ...], where: Where | None, by: str = "numpy()") -> None:
    """Record an event for a write of values from these sources that the tape did not see."""
    event = Event(next(clock), FOREIGN, by, where, (), (dst.span,), arrays=(dst,))
    event.sources, event.noted = sources, True
    tape.arrays[id(dst)] = dst
    if sources:
        follow(tape, dst)
    tape.events.append(event)


# ---- tapes inside one another

INSIDE = "a tape inside this one"


def tell_around(tape: Recording, written: Iterable[array], sources: tuple[HostRead, ...], where: Where | None) -> None:
    """Tell the tapes around this one that values with these sources are about to be written."""
    around = [t for t in recorders() if t is not tape] if sources else ()
    for other in around:
        for dst in written:
            if found := behind(other, dst, sources):
                _note(other, dst, found, where)


def note_inside(tape: Recording, inner: Recording, events: Sequence[Event]) -> None:
    """Note events of a tape inside this one that read memory on an active path of this one: that gradient is lost."""
    if tape is inner or tape.muted or inner.apart:
        return
    for event in events:
        kind = event.kind
        if event.reverse is not None or kind.active or kind.cuts or not kind.own or not event.reads:
            continue
        if event.command is None and event.arrays[-1].allocation in inner.active and event.followed:
            continue
        here = ((weakref.ref(tape), len(tape.events)),)
        read = (HostRead(s, repr(s.allocation), len(tape.events), event.where, here) for s in event.reads)
        sources = live(tape, tuple(read))
        for dst in _written_by(event) if sources else ():
            if is_followed(dst):
                _note(tape, dst, sources, event.where, INSIDE)


def _written_by(event: Event) -> list[array]:
    if event.command is None:
        return [event.arrays[0]]
    return [event.command.flat[k] for k in dict.fromkeys(k for k, _ in event.command.plan.writes)]


def look(tape: Recording, command: Any) -> None:
    """Compare exposed memory that this launch is about to read with earlier readings; note it if it seems derived."""
    for k in sorted({k for k, _ in command.plan.reads}):
        a = command.flat[k]
        memory = a.allocation
        if memory.exposed and memory not in tape.active and a.is_contiguous and a.device.is_cpu and is_followed(a):
            some = sample(a.data.ravel()).tobytes()
            if tape.glimpsed.get(a.span) != some:
                tape.glimpsed[a.span] = some
                if not tape.has_touched(a.span) or tape.last_writer(a.span) is None:
                    found = live(tape, tape.numbers.supposed(a.data))
                    found = tuple(s for s in found if s.span.overlaps(a.span) is False)
                    if found:
                        _note(tape, a, Supposed(found), caller_where())


def follow(tape: Recording, dst: array) -> None:
    """Put this memory on an active path."""
    tape.active[dst.allocation] = None
    tape.check_scalar(dst, "a value of the host")


def declared(tape: Recording, command: Any) -> Any:
    """The command, with numbers that were read from memory on an active path replaced by declared scalars."""
    places = list(command.places)
    found = list(command.declared)
    for k, leaf in enumerate(command.program.leaves):
        value = command.flat[k]
        if k in found or not is_float(leaf.type) or isinstance(value, array):
            continue
        sources = live(tape, tape.numbers.of(value))
        supposed = live(tape, tape.numbers.supposed(value)) if not sources else ()
        if sources or supposed:
            places[k] = _standing_for(f"{leaf.name} of {command.program.name}", leaf.type, value, supposed)
            found.append(k)
        known = tape.numbers.of(value) or Supposed(tape.numbers.supposed(value))
        if known:
            tell_around(tape, [command.flat[j] for j in command.plan.float_writes], known, caller_where())
    return command if len(found) == len(command.declared) else command.declaring(places, tuple(sorted(found)))


def _standing_for(name: str, type: Scalar | Composite, value: Any, supposed: tuple[HostRead, ...]) -> array:
    """A new array of one element with this value, which a recorded event writes."""
    made = new_array(1, type)
    made.name = name
    made.data[...] = value
    if supposed:
        write_values(made, made.data.copy(), Supposed(supposed))
    else:
        exact.trace(made, value)
    return made


def refuse(event: Event, space: Workspace, tape: Recording) -> None:
    """Raises GradientError [host-values] if an event wrote values of the host and their adjoint is not zero.

    What NumPy wrote that came from nowhere is a constant: there is no adjoint before it. If it is only supposed that
    values came from active memory, the event is entered in the tape's `suspects`.
    """
    dst = event.arrays[0]
    if dst.allocation not in space:
        return
    for part in float_parts(dst).values():
        adjoint = space[dst.allocation].view(part.span, gradient_dtype(part))
        if not event.sources:
            adjoint[...] = 0
        elif adjoint.any():
            if not isinstance(event.sources, Supposed):
                raise lost(event, tape)
            tape.suspects[event] = None


def warn(tape: Recording) -> None:
    """Warn, at the user's lines, of writes where a gradient may silently have ended."""
    said = dict.fromkeys((suspicion(e, tape), e.where.file, e.where.line) for e in tape.suspects if e.where is not None)
    for text, file, line in said:
        warnings.warn_explicit(f"{text} [host-number]", UserWarning, file, line)


def suspicion(event: Event, tape: Recording) -> str:
    """The warning text for a write that may end a gradient."""
    agree = "agree in all digits, as they are or after simple arithmetic, with what was read from"
    text = f"{called(tape, event.arrays[0])} got values that {agree} {_readings(event, tape)}."
    return text + " If they came from there, the gradient ends here. wb.detach(value) says that it is meant."


def lost(event: Event, tape: Recording) -> GradientError:
    """The GradientError [host-values] or [nested-tape] for a write that ends a gradient."""
    dst = event.arrays[0]
    if event.label == INSIDE:
        return GradientError(
            f"{called(tape, dst)} was written by a tape inside this one; a tape records nothing while another is open"
            " inside it, so this gradient stops there.",
            slug="nested-tape",
            where=event.where,
            why=f"It was computed from {_readings(event, tape)}.",
            instead="with wb.Tape() as tape:   around both, without the inner one;"
            f" wb.detach({called(tape, dst)}) if it is meant",
        )
    return GradientError(
        f"{called(tape, dst)} was written with values that the host made from {_readings(event, tape)}.",
        slug="host-values",
        where=event.where,
        why="The tape does not see what NumPy or Python did in between: the gradient would end here in silence.",
        instead="y * 2, wb.map(f, y), wb.copy(z, y) or a kernel in its place; tape.record_func(backward, [y, z]) if"
        " only the host can do it; wb.detach(values) if it is meant",
    )


def _readings(event: Event, tape: Recording) -> str:
    """Text of the sources of an event: names, and lines of reading."""
    lines = []
    for source in event.sources:
        at = f", read at {source.where}: {source.where.text.strip()}" if source.where else ""
        lines.append(f"{_named(tape, source)}{at}")
    return "; ".join(lines)


def _named(tape: Recording, source: HostRead) -> str:
    """The user's name of the memory that was read."""
    near = [a for a in tape.arrays.values() if a.span.overlaps(source.span) is not False]
    near.sort(key=lambda a: a.span != source.span)
    return called(tape, near[0]) if near else source.label


def is_followed(dst: array) -> bool:
    """True if `dst` can carry a gradient: float memory that is no gradient itself."""
    return is_float_memory(dst) and not dst.is_gradient
