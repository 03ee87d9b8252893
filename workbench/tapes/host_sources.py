"""Host values computed from memory on an active path: followed as far as the tape can, else refused.

A write of such values is an event with `sources`. It makes what it wrote active, so that the walk knows its adjoint; if
that is not zero when the walk reaches the write, a gradient would silently end there, and the walk is refused.
"""

from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np

from ..arrays.allocation import Allocation, caller_where, recorders
from ..arrays.array import array, array_on, exact, new_array, on_device
from ..arrays.host_copies import write_values
from ..arrays.host_reads import Supposed, origin_of_any
from ..arrays.read_values import FEW, HostRead, ReadValues, sample
from ..arrays.span import Span
from ..arrays.workspace import Workspace, float_parts, gradient_dtype, is_float_memory
from ..device import on_host
from ..errors import GradientError, Where
from ..kernels.types import Composite, Scalar, is_float, scalar_of
from ..launches.plan import PlannedLaunch
from .event_log import EventLog
from .events import Event, clock
from .kinds import FOREIGN
from .naming import TapeNames

INSIDE = "a tape inside this one"
OUTSIDE = "another thread"
_TOLD = 3  # sources that a message names
CONSTANT = "a constant of a kernel"


class HostSources:
    """Values that the host has read and written while a tape recorded, and events that wrote such.

    glimpsed    exposed memory off active paths: some of what it held when a launch read it.
    suspects    events that wrote numbers of the host, supposed to come from active memory.
    around      the host values of the tape around a checkpointed loop, if this is one of its steps.
    inherited   what was active when this tape began.
    """

    around: HostSources | None = None
    inherited: frozenset[Allocation] = frozenset()

    def __init__(self, log: EventLog, names: TapeNames, tape: weakref.ref[Any]) -> None:
        self.log, self.names, self._tape = log, names, tape
        self.clear()

    def clear(self) -> None:
        """Forget all values."""
        self.glimpsed: dict[Span, bytes] = {}
        self.suspects: dict[Event, None] = {}

    def live(self, sources: tuple[HostRead, ...], dst: Span | None = None) -> tuple[HostRead, ...]:
        """The sources whose memory depended on something with `requires_grad` when it was read.

        `dst`: one that the tape has not touched becomes a new leaf: untouched sources that overlap it are left out.
        """
        found = tuple(s for s in sources if self._active(s))
        if dst is None or self.log.has_touched(dst):
            return found
        return tuple(s for s in found if s.span.overlaps(dst) is False or self.log.has_touched(s.span))

    def behind(self, dst: array, sources: tuple[HostRead, ...]) -> tuple[HostRead, ...]:
        """The `live` sources of values about to be written to `dst`; () if no gradient can pass there."""
        if not sources or not is_followed(dst):
            return ()
        found = self.live(sources, dst.span)
        return Supposed(found) if isinstance(sources, Supposed) else found

    def _active(self, source: HostRead) -> bool:
        memory, span, at = source.span.allocation, source.span, source.at(self._tape())
        if at is None:  # read before a step of a checkpointed loop, which has a tape of its own
            return self.around is not None and (memory in self.inherited or self.around._active(source))
        if memory.is_gradient:  # that a tape had published when it was read
            return True
        if not (memory.asked or memory in self.log.active):  # then a tape inside this one may have written it
            tape: Any = self._tape()
            met = memory.origins.met(span) if memory.origins else ()
            return any(run is not tape.border.run and tape.border.run.around(run) for _, run in met)
        for event in reversed(self.log.events[:at]):
            hit = [s for s in event.writes if s.overlaps(span) is not False]
            if hit and _writes_active(event):
                return True
            if event.command is None and event.kind.own and any(s.contains(span) for s in hit):
                return False
        if memory in self.inherited:
            return True
        return memory.required.touch(span) or memory.retained.touch(span)

    def written(
        self, memory: Allocation, offset: int, values: np.ndarray, sources: tuple[HostRead, ...], where: Where | None
    ) -> None:
        """Note that NumPy wrote `values`, which lie at `offset` in this memory, from these sources, by its address."""
        if values.dtype.names:
            for name, (_, at, *_) in values.dtype.fields.items():  # type: ignore[union-attr]
                self.written(memory, offset + at, values[name], sources, where)
            return
        if values.dtype.kind != "f":
            return
        shape, strides, events = values.shape or (1,), values.strides or (values.itemsize,), self.log.events
        dst = array_on(memory, scalar_of(values.dtype), shape, strides, offset)
        while events and events[-1].noted and dst.span.contains(events[-1].writes[0]):
            events.pop()  # nobody has met what this overwrites
        self.tell_around([dst], sources, where)
        found = self.behind(dst, sources) if sources else ()
        if found or (dst.allocation in self.log.active and self.log.has_touched(dst.span)):
            self.note(dst, found, where)

    def note(self, dst: array, sources: tuple[HostRead, ...], where: Where | None, by: str = "numpy()") -> Event:
        """Record an event for a write of values from these sources that the tape did not see."""
        event = Event(next(clock), FOREIGN, by, where, (), (dst.span,), arrays=(dst,))
        event.sources, event.noted = sources, True
        self.log.arrays[id(dst)] = dst
        if sources:
            self.log.active[dst.allocation] = None
            self.log.check_scalar(dst, "a value of the host")
        self.log.events.append(event)
        return event

    # ---- tapes inside one another

    def tell_around(self, written: Iterable[array], sources: tuple[HostRead, ...], where: Where | None) -> None:
        """Tell the tapes around this one that values with these sources are about to be written."""
        around = [t for t in recorders() if t.host is not self and not t.muted] if sources else ()
        for tape in around:
            for dst in written:
                if found := tape.host.behind(dst, sources):
                    tape.host.note(dst, found, where)

    def note_inside(self, events: Sequence[Event], active: Container[Allocation]) -> None:
        """Note events of a tape inside this one, of `active` memory: gradients that are lost to this one.

        Those that read what is active here without following it, and those that write to it.
        """
        for event in events:
            kind, follows = event.kind, event.reverse is not None or (event.kind.active and event.followed)
            if event.command is None and event.kind.passes and event.source is not None:
                follows = follows or (event.source.allocation in active and event.followed)
            read = () if kind.cuts or not kind.own or follows else self._readings(event.reads, event.where)
            sources = self.live(read)
            for dst in _written_by(event) if kind.own and not event.sources else ():  # of sources it was told before
                self._note_lost(dst, sources, event.where, INSIDE)

    def note_outside(self, reads: Iterable[array], writes: Iterable[array], where: Where | None) -> None:
        """Note a launch or a write of another thread, where no tape is open, that meets active memory of this one."""
        sources = self.live(self._readings([a.span for a in reads], where))
        for dst in writes:
            self._note_lost(dst, sources, where, OUTSIDE)

    def _note_lost(self, dst: array, sources: tuple[HostRead, ...], where: Where | None, by: str) -> None:
        """Note a write that this tape did not record, if it is made from `sources` or goes over active memory."""
        if any(e.noted and e.place == where and e.writes[0] == dst.span for e in self.log.events[-FEW:]):
            return  # it was told of the values that the host had made
        over = dst.allocation in self.log.active and self.log.has_touched(dst.span)
        sources = sources or (self._readings((dst.span,), where) if over else ())
        if sources and is_followed(dst):
            self.note(dst, sources, where, by).theirs = over

    def _readings(self, spans: Iterable[Span], where: Where | None) -> tuple[HostRead, ...]:
        """Readings of these bytes, now."""
        here = ((self._tape, len(self.log.events)),)
        return tuple(HostRead(s, repr(s.allocation), len(self.log.events), where, here) for s in spans)

    def look(self, command: PlannedLaunch, numbers: ReadValues) -> None:
        """Compare exposed memory that this launch will read with earlier readings; note it if they are the same."""
        for k in sorted({k for k, _ in command.plan.reads}):
            a = command.flat[k]
            if not a.allocation.exposed or a.allocation in self.log.active:
                continue
            if a.is_contiguous and a.device.is_cpu and is_followed(a):
                some = sample(a.data.ravel()).tobytes()
                if self.glimpsed.get(a.span) != some:
                    self.glimpsed[a.span] = some
                    if not self.log.has_touched(a.span) or self.log.last_writer(a.span) is None:
                        found = self.live(numbers.supposed(a.data))
                        if found := tuple(s for s in found if s.span.overlaps(a.span) is False):
                            self.note(a, Supposed(found), caller_where())

    def declared(self, command: Any, numbers: ReadValues) -> Any:
        """The command, with numbers that were read from memory on an active path replaced by declared scalars."""
        places = list(command.places)
        found = list(command.declared)
        for k, leaf in enumerate(command.program.leaves):
            value = command.flat[k]
            if k in found or not is_float(leaf.type) or isinstance(value, array):
                continue
            sources = self.live(numbers.of(value))
            supposed = self.live(numbers.supposed(value)) if not sources else ()
            if sources or supposed:
                places[k] = _standing_for(f"{leaf.name} of {command.program.name}", leaf.type, value, supposed)
                found.append(k)
            known = numbers.of(value) or Supposed(numbers.supposed(value))
            if known:
                self.tell_around([command.flat[j] for j in command.plan.float_writes], known, caller_where())
        return command if len(found) == len(command.declared) else command.declaring(places, tuple(sorted(found)))

    def of_constants(self, values: Iterable[object], written: Sequence[array]) -> tuple[HostRead, ...]:
        """The `live` sources of values that an event has taken from Python, beside arrays, to write these."""
        found = origin_of_any(values)
        if found:
            self.tell_around(written, found, caller_where())
        live = self.live(found)
        return Supposed(live) if isinstance(found, Supposed) else live

    def note_constants(self, event: Event, written: Iterable[array]) -> None:
        """Note behind an event that what it wrote depends on its constants, which have no adjoint."""
        for a in written:
            if is_followed(a):
                self.note(a, event.constants, event.where, event.label if event.command is None else CONSTANT)

    def refuse(self, event: Event, space: Workspace) -> None:
        """Raise GradientError [host-values] if an event wrote values of the host and their adjoint is not zero.

        What NumPy wrote that came from nowhere is a constant: there is no adjoint before it. If it is only supposed
        that values came from active memory, the event is entered in `suspects`.
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
                    raise self.lost(event)
                self.suspects[event] = None

    def warn(self) -> None:
        """Warn, at the user's lines, of writes where a gradient may silently have ended."""
        said = dict.fromkeys((self.suspicion(e), e.where.file, e.where.line) for e in self.suspects if e.where)
        for text, file, line in said:
            warnings.warn_explicit(f"{text} [host-number]", UserWarning, file, line)

    def suspicion(self, event: Event) -> str:
        """The warning text for a write that may end a gradient."""
        assert isinstance(event.sources, Supposed)
        text = f"{self.names.called(event.arrays[0])} {event.sources.text} {self._told(event)}."
        return text + " If they came from there, the gradient ends here. wb.detach(value) says that it is meant."

    def lost(self, event: Event) -> GradientError:
        """The GradientError [host-values] or [nested-tape] for a write that ends a gradient."""
        name, told, slug = self.names.called(event.arrays[0]), self._told(event), "host-values"
        if event.label == INSIDE:
            slug, by = (
                "nested-tape",
                "by a tape inside this one; a tape records nothing while another is open inside it",
            )
            by, why = f"{by}, so this gradient stops there", f"It was computed from {told}."
            instead = f"with wb.Tape() as tape:   around both, without the inner one; wb.detach({name}) if it is meant"
        elif event.label == OUTSIDE:
            slug, by = "tape-thread", "by another thread, or task, while this tape was open"
            why = "A tape records the thread that opened it: what was done there is not on it."
            instead = "with tape:   inside the function that the other thread runs"
        elif event.label == CONSTANT:
            by = f"by a kernel that has a constant from {told}"
            why = "A constant of a kernel has no adjoint: the gradient would end here in silence."
            instead = "c: float   among the parameters of the kernel, and the value among the launch's arguments;"
            instead += " wb.detach(value) if it is meant"
        else:
            by = f"with values that the host made from {told}"
            why = "The tape does not see what NumPy or Python did in between: the gradient would end here in silence."
            instead = self._element(event) + "y * 2, wb.map(f, y), wb.copy(z, y) or a kernel in its place;"
            instead += (
                " tape.record_func(backward, [y, z]) if only the host can do it; wb.detach(values) if it is meant"
            )
        return GradientError(f"{name} was written {by}.", slug=slug, where=event.where, why=why, instead=instead)

    def _element(self, event: Event) -> str:
        """The element to write for one that was taken from a copy: `u[t]` for `u.numpy()[t]`."""
        texts = (source.where.text for source in event.sources if source.where)
        found = next((m for text in texts if (m := re.search(r"(\w+)\.numpy\(\)(\[[^]]*\])", text))), None)
        return f"{found[1]}{found[2]} in place of {found[0]}; or " if found else ""

    def _told(self, event: Event) -> str:
        """Text of the sources of an event: names, and lines of reading."""
        lines: dict[str, None] = {}
        for source in event.sources:
            at = f", read at {source.where}: {source.where.text.strip()}" if source.where else ""
            near = self.names.near(source.span)
            lines[f"{self.names.called(near[0]) if near else source.label}{at}"] = None
        more = f"; and {len(lines) - _TOLD} more" if len(lines) > _TOLD else ""
        return "; ".join([*lines][:_TOLD]) + more


def _writes_active(event: Event) -> bool:
    if event.command is not None:
        return event.reverse is not None
    if (event.kind.active and event.followed) or event.sources:
        return True
    return len(event.arrays) == 2 and event.followed


def _written_by(event: Event) -> list[array]:
    if event.command is None:
        return [a for a in event.arrays if a.span in event.writes]
    return [event.command.flat[k] for k in dict.fromkeys(k for k, _ in event.command.plan.writes)]


def _standing_for(name: str, type: Scalar | Composite, value: object, supposed: tuple[HostRead, ...]) -> array:
    """A new array of one element with this value, which a recorded event writes."""
    made = new_array(1, type)
    made.name = name
    made.data[...] = on_device(made, value)
    if supposed:
        write_values(made, on_host(made.data), Supposed(supposed))
    else:
        exact.trace(made, value)
    return made


def is_followed(dst: array) -> bool:
    """True if `dst` can carry a gradient: float memory that is no gradient itself."""
    return is_float_memory(dst) and not dst.is_gradient
