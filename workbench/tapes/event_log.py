"""Event log: the events of a tape, the arrays in them, and what the events did to memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..arrays.allocation import Allocation
from ..arrays.array import array, memory_of, span_of
from ..arrays.interval_index import SpanSet
from ..arrays.span import Span
from ..arrays.workspace import is_float_memory
from ..errors import GradientError
from ..kernels.types import Scalar, Struct, is_float
from .events import Event


class EventLog:
    """Events in order, `arrays` by their ids, and what is known of their memory. A tape and its parts share one.

    active    memory that depends on something with `requires_grad`; `scalars`: its scalar type, or a struct.
    What follows is brought up to the last event by `tally`, on demand, so that recording is not slowed down:
    first     the event that met the memory first; `begins`: the memories that an event was the first to meet.
    written   bytes that an event has written. touched: or read, by `has_touched`.
    stored    spans surely stored to. stamps: the stamp of the last event that wrote the memory.
    bits      what was written as whole numbers, by the span and what that event read.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.arrays: dict[int, array] = {}
        self.active: dict[Allocation, None] = {}
        self.scalars: dict[Allocation, Any] = {}
        self.clear()

    def clear(self) -> None:
        """Forget all events."""
        self.events.clear()
        self.arrays.clear()
        self.active.clear()
        self.scalars.clear()
        self.touched: dict[Allocation, SpanSet] = defaultdict(SpanSet)
        self.first: dict[Allocation, Event] = {}
        self.begins: dict[Event, list[Allocation]] = defaultdict(list)
        self.written: dict[Allocation, SpanSet] = defaultdict(SpanSet)
        self.stored: dict[Allocation, dict[Span, None]] = {}
        self.stamps: dict[Allocation, int] = {}
        self.bits: dict[tuple[Span, tuple[Span, ...]], tuple[array, Event]] = {}
        self._tallied = self._looked_at = 0

    def tally(self) -> None:
        """Bring all but the first four attributes up to the last event."""
        first, stored = self.first, self.stored
        for event in self.events[self._tallied :]:
            if (command := event.command) is not None:
                plan, flat = command.plan, command.places
                met = map(memory_of, map(flat.__getitem__, (*plan.program.array_positions, *command.declared)))
            elif _touches(event):
                plan, met = None, [span.allocation for span in (*event.reads, *event.writes)]
            else:
                continue
            for a in met:
                if a not in first:
                    first[a] = event
                    self.begins[event].append(a)
            if plan is None or plan.bits:
                for a in _written_as_integers(event):
                    self.bits.setdefault((a.span, event.reads), (a, event))
            if event.kind.cuts or event.theirs:  # what it wrote is a leaf
                continue
            for k, span in enumerate(event.writes):
                a = span.allocation
                if plan is None or plan.writes[k][0] not in plan.accumulates_only:
                    stored.setdefault(a, {})[span] = None
                self.written[a].add(span)
                self.stamps[a] = event.id
        self._tallied = len(self.events)

    def has_touched(self, span: Span) -> bool:
        """True if an event of this tape has read or written one of these bytes, or may have."""
        if self.events and span in (last := self.events[-1]).writes and (last.kind.own or last.noted):
            return True  # as of most losses, which the last launch writes
        for event in filter(_touches, self.events[self._looked_at :]):
            for met in (*event.reads, *event.writes):
                self.touched[met.allocation].add(met)
        self._looked_at = len(self.events)
        marks = self.touched.get(span.allocation)
        return marks is not None and marks.touch(span)

    def last_writer(self, span: Span) -> Event | None:
        """The last event that wrote one of these bytes; changes by others are not the program's."""
        for event in reversed(self.events):
            if event.kind.own and any(s.overlaps(span) is not False for s in event.writes):
                return event
        return None

    # ---- memory on active paths, which has one gradient

    def follows(self, a: Allocation) -> bool:
        """True if this memory is on an active path, or has asked for a gradient."""
        return a.asked or a in self.active

    def activate(self, a: array, what: str) -> None:
        """Enter an array whose memory is on an active path from now on; `what` and errors as for `check_scalar`."""
        self.arrays[id(a)] = a
        self.active[a.allocation] = None
        self.check_scalar(a, what)

    def check_scalar(self, a: array, what: str) -> None:
        """Note the scalar type of memory on an active path. Raises GradientError [two-types] at a second one."""
        dtype, memory = a.dtype, a.allocation
        if not isinstance(dtype, Struct):
            dtype = dtype.scalar  # type: ignore[attr-defined]
            _check_place(a, dtype)
        known = self.scalars.setdefault(memory, dtype)
        if known is dtype or isinstance(known, Struct):
            return
        if not isinstance(dtype, Struct):
            text = f"{a.label} is used as {dtype} and as {known}, both with gradients."
            why = "Memory has one gradient, of one scalar type."
            instead = "wb.zeros(n, dtype=wb.float64)   for the other type, and a kernel that converts"
            raise GradientError(text, slug="two-types", why=why, instead=instead)
        self.scalars[memory] = dtype

    def refuse_bits(self) -> None:
        """Refuse memory on an active path that is written or read as integers: no adjoint clears or passes on that."""
        self.tally()
        moved = self._moved_bits()
        for (span, _), (a, event) in self.bits.items():
            if span.allocation not in self.active and span not in moved:
                continue
            for b in self.arrays.values():
                if is_float(b.dtype) and not isinstance(b.dtype, Struct) and b.span.overlaps(span) is not False:
                    used = f"the memory of {b.label}, which is used as {b.dtype}, with gradients."
                    text = f"{event.label!r} writes {a.dtype} into {used}"
                    why = "Memory has one gradient, of one scalar type."
                    instead = "bits = wb.zeros(n, dtype=int)   of its own, and a kernel that converts"
                    raise GradientError(text, slug="two-types", where=event.where, why=why, instead=instead)

    def _moved_bits(self) -> dict[Span, None]:
        """Returns the bytes that came, as integers, from memory of floats with a gradient, or from such integers."""
        moved: dict[Span, None] = {}
        if not self.bits:
            return moved
        floats = [b.span for b in self.arrays.values() if is_float(b.dtype) and b.allocation in self.active]
        memories, before = {*self.active}, -1

        def is_moved(r: Span) -> bool:
            met = r.allocation in memories and any(s.overlaps(r) is not False for s in (*floats, *moved))
            return met or r.allocation.required.touch(r)

        while before < len(moved):
            before = len(moved)
            for (span, _), (_, event) in self.bits.items():
                if span not in moved and any(map(is_moved, _read_as_integers(event))):
                    moved[span] = None
                    memories.add(span.allocation)
        return moved


def is_read(later: Iterable[Event], span: Span) -> bool:
    """True if these bytes are read, or left, before an event surely writes all of them."""
    for event in later:
        sure = sure_writes(event)
        if any(s.overlaps(span) is not False for s in (*event.reads, *(s for s in event.writes if s not in sure))):
            return True
        if any(s.contains(span) for s in sure):
            return False
    return True


def sure_writes(event: Event) -> list[Span]:
    """The written spans of which every byte is surely written, whatever the values are."""
    if event.command is None:
        known = event.kind.own and not (event.kind.calls_back or event.kind.opaque)
        return list(event.writes) if known else []
    plan, flat = event.command.plan, event.command.flat
    return [span_of(flat[k], box) for k, box in plan.stores]


def _touches(event: Event) -> bool:
    """True for what counts as a reading or a write of the program."""
    return event.kind.own or event.noted or bool(event.reads)


def _check_place(a: array, dtype: Scalar) -> None:
    """Refuse an array whose elements do not lie where gradients of its memory can: at multiples of a word."""
    if dtype.bits == 16 and a.allocation.grad_scale != 2:
        raise GradientError(
            f"{a.label} is float16 in the memory of a struct or of another type; its gradient is float32 and has no"
            " room there.",
            slug="struct-float16",
            instead="wb.array[wb.float16] beside the structs, or float32 for the field",
        )
    if a.span.offset == 0 and a.span.contiguous:
        return
    word = dtype.itemsize
    if any(n % word for n in (a.span.offset, *a.strides)):
        text = f"the elements of {a.label} do not lie at multiples of {word} bytes of their memory."
        why = "Gradients of one memory are added up number by number."
        raise GradientError(text, slug="unaligned", why=why, instead="wb.array(x), which copies")


def _read_as_integers(event: Event) -> Sequence[Span]:
    """The spans of integers that an event which wrote integers has read: a copy has read such."""
    if event.command is None:
        return event.reads
    plan, flat = event.command.plan, event.command.flat
    return [flat[k].span for k, _ in plan.reads if k not in plan.floats]


def _written_as_integers(event: Event) -> Iterator[array]:
    if event.command is not None:
        yield from (event.command.flat[k] for k in event.command.plan.bits)
    elif event.kind.passes:
        yield from (a for a in event.arrays if a.span in event.writes and not is_float_memory(a))
