"""The tape: events in order, what must be kept to walk them backwards, and the walk itself.

An event owns what it needs: its program, its arrays (strong references), its numbers by value. Before an event
overwrites bytes that an adjoint will read, the tape keeps them; the walk puts them back as it passes and the final
contents at the end. The walk is a function from (events, seeds) to a private workspace of shadows, one per allocation;
`backward` then publishes the workspace into `.grad`. What changed behind the tape's back is refused.
"""

from __future__ import annotations

import itertools
import linecache
import math
import sys
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import launch as launching
from . import memory
from .array import array
from .device import xp
from .errors import GradientError, Where
from .kernels import races as racing
from .kernels.declare import Instance
from .kernels.types import Scalar, Struct, is_float
from .memory import Allocation, Marks, Span

SUMMED = 4096  # threads whose contributions to a declared scalar are added up before they join the others

_ids = itertools.count()
_clock = itertools.count(1)  # orders recordings and publications of all tapes


# ---- events


@dataclass(eq=False, slots=True)
class Kept:
    """Bytes saved before an event overwrote them."""

    span: Span
    data: Any
    reason: str


@dataclass(eq=False, slots=True)
class Event:
    """One thing that happened to memory. `reads` and `writes` are the spans it touched."""

    id: int
    kind: str  # launch | copy | assign | fill_ | zero_ | func | foreign
    label: str
    place: Any  # Where, or (code, line) until somebody asks
    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()
    kept: list[Kept] = field(default_factory=list)
    command: Any = None
    reverse: Any = None  # launching.Backward where the event is on an active path
    callback: Callable[[], None] | None = None
    arrays: tuple[array, ...] = ()
    stamp: int = field(default_factory=_clock.__next__)
    checked: bool = False  # for races
    followed: bool = True  # False: a copy whose source was not on an active path

    @property
    def where(self) -> Where | None:
        """The user's line that made this event."""
        if isinstance(self.place, tuple):
            code, line = self.place
            text = linecache.getline(code.co_filename, line).rstrip("\n")
            self.place = Where(code.co_filename, line, text=text, function=code.co_name)
        return self.place

    def __repr__(self) -> str:
        return f"<L{self.id} {self.label}>"


@dataclass(eq=False, slots=True)
class Need:
    """Bytes that the adjoint of an event will read, with a checksum if somebody else can change them unseen."""

    span: Span
    event: Event
    name: str
    checksum: int | None = None
    stamp: Any = None

    def verify(self) -> bool:
        return self.checksum is None or self.checksum == _checksum(self.span)

    def culprit(self) -> str:
        """Who can have changed the bytes."""
        if self.stamp is not None and self.stamp != _stamp(self.span.allocation):
            return "an in-place operation of torch"
        return "a write through its raw memory (numpy(), ptr, another library)"


def _stamp(a: Allocation) -> Any:
    """How often another library says that it has changed this memory; None if none knows it."""
    return next((found for stamper in stampers if (found := stamper(a)) is not None), None)


def _checksum(span: Span) -> int:
    data = span.words()
    data = data.get() if span.allocation.device.is_cuda else data
    return zlib.crc32(np.ascontiguousarray(data))


# ---- the workspace of one walk


class Shadow:
    """The adjoint of one allocation: zeros to begin with, indexed like the memory. `scale`: bytes per byte of it."""

    __slots__ = ("data", "address", "scale", "allocation", "owner")

    def __init__(self, allocation: Allocation, copy: Any = None):
        self.allocation, self.scale = allocation, (allocation.grad_scale or 1) if copy is None else 1
        self.data = _zeros(allocation, allocation.nbytes * self.scale) if copy is None else copy
        on_gpu = allocation.device.is_cuda
        self.address = int(self.data.data.ptr) if on_gpu else self.data.__array_interface__["data"][0]

    def view(self, span: Span, dtype: Any) -> Any:
        """The adjoint of a span as an array of `dtype`."""
        k = self.scale
        count = span.itemsize * k // np.dtype(dtype).itemsize
        shape, strides = span.shape, tuple(s * k for s in span.strides)
        if count != 1:
            shape, strides = (*shape, count), (*strides, np.dtype(dtype).itemsize)
        if self.allocation.device.is_cuda:
            return type(self.data)(shape, dtype, self.data.data + span.offset * k, strides)
        return np.ndarray(shape, dtype, self.data, span.offset * k, strides)


class Workspace(dict):
    """Shadows by allocation, made when first asked for."""

    def __missing__(self, allocation: Allocation) -> Shadow:
        made = self[allocation] = Shadow(allocation)
        return made

    def release(self) -> None:
        """The walk is over: its buffers serve the next one (fresh pages from the system cost more than the walk)."""
        _spare.clear()
        for shadow in self.values():
            _spare.setdefault((shadow.allocation.device, len(shadow.data)), []).append(shadow.data)
        self.clear()


Observer = Callable[[Event, Workspace], None]
_spare: dict[tuple[Any, int], list[Any]] = {}


def _zeros(allocation: Allocation, n: int) -> Any:
    spare = _spare.get((allocation.device, n))
    if spare:
        data = spare.pop()
        data[...] = 0
        return data
    return xp(allocation.device).zeros(n, np.uint8)


# ---- the tape


class Tape:
    """Records launches and writes while it is open (`with wb.Tape() as tape:`), and walks them backwards.

    keep="all" keeps every version of all memory the tape touched: gradients stay exact whatever is overwritten later,
    at the price of memory. By default only what an adjoint reads is kept, and changes made behind the tape's back
    are refused with a GradientError.
    """

    def __init__(self, keep: str = "needed"):
        if keep not in ("needed", "all"):
            raise ValueError('keep is "needed" or "all"')
        self.keep = keep
        self.events: list[Event] = []
        self.arrays: dict[int, array] = {}
        self.names: dict[int, str] = {}
        self._clear()

    def _clear(self) -> None:
        self.events.clear()
        self.arrays.clear()
        self.names.clear()
        self.last_seeds: dict[Allocation, Any] = {}
        self.active: dict[Allocation, None] = {}
        self.needs: dict[Allocation, list[Need]] = {}
        self.written: dict[Allocation, Marks] = {}
        self.touched: dict[Allocation, Marks] = {}
        self.scalars: dict[Allocation, Any] = {}
        self.stored: dict[Allocation, dict[Span, None]] = {}
        self.stamps: dict[Allocation, int] = {}
        self.tallied = 0
        self.failure: tuple[Event, BaseException] | None = None
        self.conflicts: list[tuple[Need, str, Where | None] | GradientError] = []
        self.guarded = False  # is there anything in the two below to compare with
        self.changed: dict[Allocation, dict[Span, None]] = {}  # written since by somebody else
        self.left: dict[Allocation, dict[Span, int]] = {}  # touched on active paths: span -> checksum, once exposed

    # ---- recording

    def __enter__(self) -> Tape:
        memory.push_recorder(self)
        return self

    def __exit__(self, *exc: object) -> None:
        memory.pop_recorder(self)
        self._name_arrays(sys._getframe(1))

    def _name_arrays(self, frame: Any) -> None:
        """What the user's variables call the arrays of this tape: for pictures only."""
        scope = {**frame.f_globals, **frame.f_locals}
        for name, value in scope.items():
            if not name.startswith("_"):
                for label, a in _named(name, value):
                    if id(a) in self.arrays:
                        self.names.setdefault(id(a), label)

    def before_launch(self, command: Any, frame: Any) -> Event:
        """Called under LOCK before a launch runs: keep what it overwrites, note what its adjoint needs."""
        plan, flat = command.plan, command.flat
        spans = [flat[k].span if box is None else flat[k].span.box(box) for k, box in plan.touched]
        event = Event(
            next(_ids), "launch", command.program.name, (frame.f_code, frame.f_lineno),
            tuple(spans[: plan.split]), tuple(spans[plan.split :]), command=command,
        )  # fmt: skip
        mask = self._activate(plan, flat) if not command.declared else self._activate_declared(event, command)
        if mask and any([flat[j].allocation in self.active for j in plan.float_writes]):
            back = plan.reverses.get(mask)
            if back is None:
                self._differentiable(plan)
                back = plan.backward(mask)
            event.reverse = back
            for k, box in back.needs:
                a = flat[k]
                self._need(a.span if box is None else a.span.box(box), event, plan.program.leaves[k].name)
        arrays = self.arrays
        for a in flat:
            if a.__class__ is array:
                arrays[id(a)] = a
        self._before_writes(event)
        return event

    def _activate(self, plan: Any, flat: list) -> tuple[int, ...]:
        """What depends on something with requires_grad; the positions of the launch's arrays that do."""
        active = self.active
        memories = [flat[k].allocation for k in plan.floats]
        for k in plan.float_reads:
            a = flat[k].allocation
            if a in active or a.required or a.retained:
                active[a] = None
                for j in plan.float_writes:
                    active[flat[j].allocation] = None
        mask = []
        for k, a in zip(plan.floats, memories, strict=True):
            if a in active or a.required or a.retained:
                active[a] = None
                if self.scalars.get(a) is not plan.scalar_types[k]:
                    self._scalar(flat[k], plan.program.name)
                mask.append(k)
        return tuple(mask)

    def _activate_declared(self, event: Event, command: Any) -> tuple[int, ...]:
        """The same for a launch with declared scalars: it reads their memory, and what it writes depends on them."""
        plan, flat = command.plan, command.flat
        for k in command.declared:
            a = command.places[k]
            self.active[a.allocation] = None
            self.arrays[id(a)] = a
            self._scalar(a, plan.program.name)
            if a.allocation not in self.left:  # a change between two launches that take it must be an event
                self.left[a.allocation] = {}
                a.allocation.watch(self)
            for j in plan.float_writes:
                self.active[flat[j].allocation] = None
        event.reads += tuple([command.places[k].span for k in command.declared])
        return tuple(sorted((*self._activate(plan, flat), *command.declared)))

    def _differentiable(self, plan: Any) -> None:
        if not plan.program.enable_backward:
            raise GradientError(
                f"Kernel {plan.program.name!r} has enable_backward=False, and it lies between an array with"
                " requires_grad and what is computed from it.",
                slug="no-backward", where=plan.program.function.where,
                why="Its gradient would be lost in silence.", instead="@wb.kernel, or launch it outside the tape",
            )  # fmt: skip

    def after_launch(self, event: Event) -> None:
        """Called under LOCK when a launch has run."""
        self.events.append(event)
        if event.reverse is not None:
            for k in event.reverse.extremal:
                a = event.command.flat[k]
                self._need(a.span, event, event.command.program.leaves[k].name)
            self._leave(event)

    def after_failure(self, event: Event, failure: BaseException) -> None:
        """Called under LOCK when a launch broke off: what it has written by then nobody knows."""
        event.kind, event.reverse = "foreign", None
        self.events.append(event)
        self.failure = self.failure or (event, failure)

    def host_event(
        self, kind: str, dst: array, src: array | None, value: Any, perform: Callable[[], None], where: Where | None
    ) -> None:
        """A host write while this tape records: an event, unless it starts a leaf that the tape has not touched."""
        target = dst.allocation
        followed = src is not None and is_float_memory(src) and self._follows(src.allocation)
        starts_leaf = kind == "assign" and not followed and not self._touched(dst.span) and bool(target.required)
        reads = () if src is None else (src.span,)
        event = Event(next(_ids), kind, kind, where, reads, (dst.span,), arrays=(dst,) if src is None else (dst, src))
        event.followed = followed or src is None
        if not starts_leaf and not target.is_gradient:
            if src is not None and followed:
                self._refuse_crowd(dst, event)
                self.active[src.allocation] = self.active[target] = None
                self._scalar(src, kind)
            if is_float_memory(dst) and (target.required or target.retained):
                self.active[target] = None
            if target in self.active:
                self._scalar(dst, kind)
            for a in event.arrays:
                self.arrays[id(a)] = a
            self._before_writes(event)
            self.events.append(event)
        target.about_to_write(dst.span, kind, where, self)
        perform()
        if self.events and self.events[-1] is event and target in self.active:
            self._leave(event)

    def _refuse_crowd(self, dst: array, event: Event) -> None:
        if dst.span.self_overlapping:
            raise GradientError(
                f"{event.kind} to {dst.label}, of which several elements are one number in memory.", slug="race",
                where=event.where, why="Which of the values stays is a matter of luck, and so is its gradient.",
                instead="copy to an array whose elements lie apart",
            )  # fmt: skip

    def _follows(self, a: Allocation) -> bool:
        return a in self.active or bool(a.required or a.retained)

    def record_func(self, backward: Callable[[], None], arrays: Sequence[array]) -> None:
        """Record a function of yours at this place: `backward()` is called when the walk passes it.

        Inside it `a.grad` of each of `arrays` is the live adjoint. What your code changed in `arrays` since the last
        event counts as written here.
        """
        with memory.LOCK:
            event = Event(next(_ids), "func", getattr(backward, "__name__", "func"), memory.caller_where())
            event.callback, event.arrays = backward, tuple(arrays)
            for a in arrays:
                self.arrays[id(a)] = a
                self.active[a.allocation] = None
                self._scalar(a, "record_func")
            event.writes = tuple(a.span for a in arrays)
            self.events.append(event)
            self._leave(event)

    def _scalar(self, a: array, what: str) -> None:
        """Memory on an active path has one floating-point type."""
        dtype = a.dtype if isinstance(a.dtype, Struct) else a.dtype.scalar  # type: ignore[attr-defined]
        if not isinstance(dtype, Struct) and dtype.bits == 16 and a.allocation.grad_scale != 2:
            raise GradientError(
                f"{a.label} is float16 in the memory of a struct or of another type; its gradient is float32 and has no"
                " room there.",
                slug="struct-float16", instead="float32 fields, or an array of float16 beside the structs",
            )  # fmt: skip
        if not isinstance(dtype, Struct):
            word = dtype.numpy.itemsize
            if any(n % word for n in (a._offset, *a.strides)):
                raise GradientError(
                    f"the elements of {a.label} do not lie at multiples of {word} bytes of their memory.", slug="unaligned",
                    why="Gradients of one memory are added up number by number.", instead="wb.array(x), which copies",
                )  # fmt: skip
        known = self.scalars.setdefault(a.allocation, dtype)
        if known is dtype or isinstance(known, Struct):
            return
        if isinstance(dtype, Struct):
            self.scalars[a.allocation] = dtype
            return
        raise GradientError(
            f"{a.label} is used as {dtype} and as {known}, both with gradients.", slug="two-types",
            why="Memory has one gradient, of one scalar type.", instead="two arrays, and a kernel that converts",
        )  # fmt: skip

    def _touched(self, span: Span) -> bool:
        self._tally()
        marks = self.touched.get(span.allocation)
        return marks is not None and marks.touch(span)

    def _tally(self) -> None:
        """Bring `touched`, `written` and `stamps` up to the last event: recording does not pay for them."""
        for event in self.events[self.tallied :]:
            if event.kind == "foreign":
                continue
            for span in (*event.reads, *event.writes):
                marks = self.touched.get(span.allocation)
                if marks is None:
                    marks = self.touched[span.allocation] = Marks()
                marks.add(span)
            plain = event.command.plan.accumulates_only if event.command is not None else ()
            for k, span in enumerate(event.writes if event.kind != "foreign" else ()):
                if event.command is None or event.command.plan.writes[k][0] not in plain:
                    self.stored.setdefault(span.allocation, {})[span] = None
                marks = self.written.get(span.allocation)
                if marks is None:
                    marks = self.written[span.allocation] = Marks()
                marks.add(span)
                self.stamps[span.allocation] = event.stamp
        self.tallied = len(self.events)

    def _need(self, span: Span, event: Event, name: str) -> None:
        a = span.allocation
        known = self.needs.get(a)
        if known is None:
            known = self.needs[a] = []
            a.watch(self)
        if known and known[-1].span is span:
            return
        known.append(Need(span, event, name, _checksum(span) if a.exposed else None, _stamp(a) if a.exposed else None))

    def _leave(self, event: Event) -> None:
        """Remember what an event met and left in exposed memory: only events may change it before the next one."""
        for span in event.writes:
            a = span.allocation
            left = self.left.get(a)
            if left is None:
                left = self.left[a] = {}
                a.watch(self)
            if a.exposed:
                for old in [s for s in left if s.overlaps(span) is not False]:
                    del left[old]
                    if not span.contains(old):
                        left[old] = _checksum(old)
                left[span] = _checksum(span)
                self.guarded = True
        for span in event.reads:  # a leaf that changes between two readings is two leaves
            a = span.allocation
            if a in self.active:
                left = self.left.get(a)
                if left is None:
                    left = self.left[a] = {}
                    a.watch(self)
                if a.exposed and span not in left:
                    left[span] = _checksum(span)
                    self.guarded = True

    def _meet(self, event: Event) -> None:
        """Is what earlier events left still there, in the bytes that this one touches."""
        for span in dict.fromkeys((*event.reads, *event.writes)):
            for old in [s for s in self.changed.get(span.allocation, ()) if s.overlaps(span) is not False]:
                anew = event.command is None and event.kind != "func" and span in event.writes and span.contains(old)
                if not anew:
                    self.conflicts.append(self._unrecorded(old, event))
                del self.changed[span.allocation][old]
            left = self.left.get(span.allocation)
            for old in [s for s in left if s.overlaps(span) is not False] if left else ():
                if left and left[old] != _checksum(old):
                    del left[old]
                    self.conflicts.append(self._unrecorded(old, event))

    def _unrecorded(self, span: Span, event: Event) -> GradientError:
        name = ""
        if event.command is not None:
            pairs = zip(event.command.program.leaves, event.command.places, strict=True)
            name = next((p.name for p, a in pairs if getattr(a, "allocation", None) is span.allocation), "")
        return GradientError(
            f"{name or str(span.allocation)!r} was changed between two events of this tape, before {event.label!r}"
            " met it, and the tape could not see how.",
            slug="overwritten", where=event.where,
            why="What was computed before does not flow through that change, so the gradient would be wrong.",
            instead="a kernel, wb.copy, a.fill_() or a.assign() in its place, or tape.record_func(...) after it",
        )  # fmt: skip

    def _before_writes(self, event: Event) -> None:
        """Keep what this event is about to overwrite, if an adjoint needs it."""
        if self.guarded:
            self._meet(event)
        for span in event.writes:
            needs = self.needs.get(span.allocation)
            if needs or self.keep == "all":
                self._keep(span, event, needs or [])

    def _keep(self, span: Span, event: Event, needs: list[Need]) -> None:
        hit = [n for n in needs if n.span.overlaps(span) is not False]
        if not hit and self.keep != "all":
            return
        for need in hit:
            if not need.verify():
                self.conflicts.append((need, need.culprit(), None))
        reason = ", ".join(sorted({f"adjoint of {n.event.label} reads {n.name}" for n in hit})) or 'keep="all"'
        # A checksum speaks for all of its span: when a part is overwritten, all of it is kept and needs no checksum more.
        partly = {n: n.span for n in hit if n.checksum is not None and not span.contains(n.span)}
        wholes = dict.fromkeys(partly.values())
        for whole in [*wholes, *([] if any(w.contains(span) for w in wholes) else [span])]:
            event.kept.append(Kept(whole, whole.copy_out(), reason))
        needs[:] = [n for n in needs if n not in partly and not span.contains(n.span)]

    # ---- told by memory

    def foreign_write(self, span: Span, what: str, where: Where | None) -> None:
        """Something that this tape does not record is about to change bytes."""
        needs = self.needs.get(span.allocation, [])
        if self.keep == "all":
            event = Event(next(_ids), "foreign", what, where, (), (span,))
            self._keep(span, event, needs)
            self.events.append(event)
            needs = []
        for need in needs:
            if need.span.overlaps(span) is not False:
                self.conflicts.append((need, what, where))
        if span.allocation in self.left:
            self.changed.setdefault(span.allocation, {})[span] = None
            self.guarded = True

    def exposing(self, allocation: Allocation) -> None:
        """From now on bytes may change unseen: take checksums of what is needed."""
        for need in self.needs.get(allocation, ()):
            need.checksum = _checksum(need.span)
        if (left := self.left.get(allocation)) is not None:
            touched = (span for event in self.events for span in (*event.writes, *event.reads))
            spans = (span for span in touched if span.allocation is allocation)
            left.update((span, _checksum(span)) for span in dict.fromkeys(spans))
            self.guarded = True

    def _verify(self) -> None:
        if self.failure is not None:
            event, error = self.failure
            raise GradientError(
                f"{event.label!r} broke off while this tape recorded it: {error}", slug="failed-launch",
                where=event.where, why="What it had written by then is not known.", instead="a new Tape",
            ) from error  # fmt: skip
        for needs in self.needs.values():
            for need in needs:
                if not need.verify():
                    self.conflicts.append((need, need.culprit(), None))
                    need.checksum = None
        if self.conflicts:
            first = self.conflicts[0]
            if isinstance(first, GradientError):
                raise first
            need, what, where = first
            line = f" at {where}: {where.text.strip()}" if where else ""
            raise GradientError(
                f"{need.name!r} was changed by {what}{line}, after {need.event.label!r} had read it.",
                slug="overwritten", where=need.event.where,
                why=f"The adjoint of {need.event.label!r} needs the value it read, and that is gone.",
                instead='wb.Tape(keep="all"), or make the change inside the tape or after backward()'
                if where else "make the change after backward(), or give the launch a copy",
            )  # fmt: skip

    # ---- backward

    def backward(self, loss: array | None = None, grads: dict[array, array] | None = None) -> None:
        """Publish the gradient of the seeds with respect to what the tape started from.

        loss    an array of one element: its seed is one.
        grads   {array: seed}, seeds of the same shape and dtype (float32 for float16). They are copied.
        Without either, the seeds are the `.grad` bytes written since they were last published.
        Raises GradientError where the gradient would not be exact, or a seed does not fit.
        """
        with memory.LOCK, memory.unrecorded():
            space = self._seeds(loss, grads)
            self.last_seeds = {a: shadow.data.copy() for a, shadow in space.items()}
            self._publish(*self._walk(space))
            space.release()

    def replay(self, observe: Observer, before: Observer | None = None) -> Workspace:
        """Walk with the seeds of the last `backward`, publishing nothing.

        `before(event, space)` is called before, `observe(event, space)` after every step. Raises GradientError on a
        tape with `record_func`: to look must not call a function of the user's again.
        """
        for event in self.events:
            if event.kind == "func":
                raise GradientError(
                    f"a tape with record_func({event.label}) cannot be walked again to look at it.", slug="func-replay",
                    where=event.where, instead="backward(), which calls the function",
                )  # fmt: skip
        with memory.LOCK, memory.unrecorded():
            space = Workspace()
            for a, data in self.last_seeds.items():
                space[a].data[...] = data
            return self._walk(space, observe, before)[0]

    def _seeds(self, loss: array | None, grads: dict[array, array] | None) -> Workspace:
        space = Workspace()
        if loss is None and grads is None:
            self._written_seeds(space)
            if not space:
                raise GradientError(
                    "backward() found no seed: no `.grad` of what this tape computed was written.", slug="no-seed",
                    why="Every gradient would be zero.", instead="backward(loss), or backward(grads={y: seed})",
                )  # fmt: skip
            return space
        if loss is not None:
            self._check_seed(loss)
            if loss.size != 1 or loss.dtype.size != 1:  # type: ignore[attr-defined]
                raise GradientError(
                    f"backward(loss) takes an array of one element, {loss.label} is {loss.dtype} of shape {loss.shape}.",
                    slug="loss-shape", instead=f"backward(grads={{{loss.label}: seed}})",
                )  # fmt: skip
            space[loss.allocation].view(loss.span, _gradient_dtype(loss))[...] += 1
        for a, seed in (grads or {}).items():
            self._check_seed(a)
            _add_seed(space, a, seed)
        return space

    def _check_seed(self, a: Any) -> None:
        if not isinstance(a, array):
            raise GradientError(f"a seed belongs to an array, not to {type(a).__name__}", slug="seed-type")
        if not self._touched(a.span):
            raise GradientError(
                f"{a.label} was neither read nor written while this tape recorded.", slug="seed-untouched",
                why="A seed must lie on memory that the tape has seen.",
                instead="a seed of an output of one of its launches",
            )  # fmt: skip

    def _written_seeds(self, space: Workspace) -> None:
        """The gradient bytes that the user, or a later tape, wrote into what this tape computed."""
        self._tally()
        for a, marks in self.written.items():
            grad = a.grad
            if grad is None or a not in self.active:
                continue
            mask = grad.user_written_mask(grad.span())
            when, by = _published.get(grad, (0, None))
            later = when > self.stamps.get(a, 0) and by != id(self.events)
            if mask is None and not later:
                continue
            k = a.grad_scale or 1
            chosen = np.ones(grad.nbytes, bool) if later else mask.reshape(-1)
            inside = np.zeros(grad.nbytes, bool)
            for span in marks:
                memory._bits(Span(grad, span.offset * k, span.shape, tuple(s * k for s in span.strides),
                                  span.itemsize * k), inside)[...] = True  # fmt: skip
            picked = np.flatnonzero(chosen & inside)
            if len(picked):
                picked = xp(a.device).asarray(picked)
                space[a].data[picked] = grad.bytes[picked]

    def _walk(
        self, space: Workspace, observe: Observer | None = None, before: Observer | None = None
    ) -> tuple[Workspace, dict]:
        """Reverse every event on an active path. Memory is as it was when this returns."""
        self._verify()
        self._tally()
        undone: list[tuple[Span, Any]] = []
        retained: dict[Span, Any] = {}
        try:
            for event in reversed(self.events):
                after = _extremal_memory(event)
                self._rewind(event, undone)
                self._retain(event, space, retained)
                if before is not None:
                    before(event, space)
                _REVERSE[event.kind](self, event, space, after)
                if observe is not None:
                    observe(event, space)
        finally:
            for span, data in reversed(undone):
                span.copy_in(data)
        return space, retained

    def _rewind(self, event: Event, undone: list) -> None:
        for kept in reversed(event.kept):
            undone.append((kept.span, kept.span.copy_out()))
            kept.span.copy_in(kept.data)

    def _retain(self, event: Event, space: Workspace, retained: dict) -> None:
        """The full adjoint by the final contents: as it stands before the last write is reversed."""
        for span in event.writes:
            a = span.allocation
            if a.retained and a in space:
                for wanted in a.retained:
                    if wanted not in retained and wanted.overlaps(span) is not False:
                        retained[wanted] = space[a].view(wanted, a.gradient_span(wanted).words().dtype).copy()

    def _reverse_launch(self, event: Event, space: Workspace, after: dict) -> None:
        command, back = event.command, event.reverse
        plan, flat, places = command.plan, command.flat, command.places
        if back is None or command.declared or len(back.shadows) != len(plan.floats):
            self._refuse_late(event, plan, flat, back)
        if back is None or not any(places[k].allocation in space for k in back.shadows):
            return
        if back.reverse.ordered and plan.backend == "cuda" and np.prod(plan.dims) > 1:
            raise GradientError(
                f"Kernel {event.label!r} uses what an atomic returned, which on a GPU depends on the order of threads.",
                slug="atomic-order", where=event.where, instead="device='cpu' for this launch",
            )  # fmt: skip
        if back.races is not None and not event.checked:
            self._check_races(event)
            event.checked = True
        copies = _private_copies(back.private, flat)
        values = list(command.values)
        shadows = [space[places[k].allocation] for k in back.shadows]
        if copies:
            values = _moved_values(flat, copies)
        extras = [(k, shadow) for k, shadow in zip(back.shadows, shadows, strict=True)]
        helpers = self._ties(event, after) if back.extremal else []

        def views(extras: list) -> list:
            arrays = launching.views(plan.program.function, flat)
            for k, (data, first) in copies.items():
                arrays[k] = _moved_view(flat[k], data, first)
            return arrays + [_shadow_view(places[k], shadow) for k, shadow in extras]

        extras += helpers
        packed = values + _mirrored_values(places, extras)
        if command.declared and plan.backend == "c" and back.gather is None:
            self._reverse_in_blocks(command, back, packed, len(values), extras)
        elif back.gather is None:
            back.executable.run(plan.program, plan.dims, packed, lambda: views(extras))
        else:
            back.executable.run(plan.program, plan.dims, packed + back.gather.part_values, None)
            back.gather.run(plan.program, _mirrored_values(flat, [(k, space[flat[k].allocation]) for k in back.gather.targets]))
        for k in back.extremal:
            self._consume_extreme(flat[k], space, dict(helpers[1::2])[k], after)

    def _reverse_in_blocks(self, command: Any, back: Any, packed: list, at: int, extras: list) -> None:
        """All threads add to the gradient of a declared scalar: block by block, so that a long sum keeps its digits.

        `at`: where in `packed` the values of `extras` begin.
        """
        dims = command.plan.dims
        step = max(1, SUMMED // max(math.prod(dims[1:]), 1))
        sums = []
        for k, shadow in extras:
            if k in command.declared:
                target = _shadow_view(command.places[k], shadow)
                sums.append((at, target, np.zeros_like(target), np.zeros(target.shape)))
            at += 1 + 2 * command.places[k].ndim
        for place, _, part, _ in sums:
            packed[place] = part.__array_interface__["data"][0]
        for row in range(0, dims[0], step):
            back.executable.run(command.program, dims, packed, None, (row, min(row + step, dims[0])))
            for _, _, part, total in sums:
                total += part
                part[...] = 0
        for _, target, _, total in sums:
            target += total.astype(target.dtype)

    def _check_races(self, event: Event) -> None:
        """Run the race finder twice over the memory that the launch saw. Raises GradientError [race]."""
        command, finder = event.command, event.reverse.races
        plan, flat = command.plan, command.flat
        module = xp(flat[finder.checked[0]].device)
        bases = {flat[k].allocation: [module.zeros(flat[k].allocation.nbytes, np.int32) for _ in racing.MARKS] for k in finder.checked}
        marks = [_mark_view(flat[k], base) for k in finder.checked for base in bases[flat[k].allocation]]
        marks.append(module.zeros(racing.FOUND, np.int32))
        for _ in range(2):
            copies = _private_copies(finder.private, flat)
            values = _moved_values(flat, copies) if copies else list(command.values)
            for data in marks:
                values.append(int(data.data.ptr) if hasattr(data, "get") else data.__array_interface__["data"][0])
                values += data.shape
                values += data.strides

            def views(copies: dict = copies) -> list:
                arrays = launching.views(plan.program.function, flat)
                for k, (data, first) in copies.items():
                    arrays[k] = _moved_view(flat[k], data, first)
                return arrays + marks

            finder.executable.run(plan.program, plan.dims, values, views)
        found = [int(n) for n in marks[-1]]
        if found[0]:
            raise finder.refuse(plan, found)

    def _ties(self, event: Event, after: dict) -> list:
        """Per extremal array: what it held after the launch, and how many share each cell's adjoint."""
        command, back = event.command, event.reverse
        flat, helpers = command.flat, []
        for k in back.extremal:
            ties = Shadow(flat[k].allocation)
            helpers += [(k, after[flat[k].allocation]), (k, ties)]

        def views() -> list:
            return launching.views(command.program.function, flat) + [_shadow_view(flat[k], s) for k, s in helpers]

        values = command.values + _mirrored_values(flat, helpers)
        back.count.run(command.program, command.plan.dims, values, views)
        for k, ties in helpers[1::2]:
            a = flat[k]
            _shadow_view(a, ties)[...] += a.data == _shadow_view(a, after[a.allocation])
        return helpers

    def _consume_extreme(self, a: array, space: Workspace, ties: Shadow, after: dict) -> None:
        """What was there before the launch keeps its share; elsewhere the adjoint is used up."""
        g = _shadow_view(a, space[a.allocation])
        kept = a.data == _shadow_view(a, after[a.allocation])
        share = g / _shadow_view(a, ties).clip(1)
        g[...] = np.where(kept, share, 0) if isinstance(g, np.ndarray) else share * kept

    def _refuse_late(self, event: Event, plan: Any, flat: list, back: Any) -> None:
        for k in (*plan.float_reads, *plan.float_writes) if plan.float_writes else ():
            if (back is None or k not in back.shadows) and flat[k].allocation.required:
                raise self._late(plan.program.leaves[k].name, event)

    def _late(self, name: str, event: Event) -> GradientError:
        return GradientError(
            f"{name!r} got requires_grad after {event.label!r} had been recorded.", slug="late-grad",
            where=event.where, why="What its adjoint needs was not kept.",
            instead="set requires_grad=True before the tape records",
        )  # fmt: skip

    def _reverse_host(self, event: Event, space: Workspace, after: dict) -> None:
        """copy: the source gets the adjoint of the target; every host write clears what it overwrote."""
        dst = event.arrays[0]
        if not event.followed and event.arrays[1].allocation.required:
            raise self._late(event.arrays[1].label, event)
        if dst.allocation not in space:
            return
        for part in _float_parts(dst):
            g = space[dst.allocation].view(part.span, _gradient_dtype(part))
            if len(event.arrays) == 2 and event.arrays[1].allocation in self.active:
                src = event.arrays[1] if part is dst else event.arrays[1].field(part._name)
                got = g.copy()
                g[...] = 0
                _add(space[src.allocation].view(src.span, _gradient_dtype(src)), got, src.span)
            else:
                g[...] = 0

    def _reverse_func(self, event: Event, space: Workspace, after: dict) -> None:
        """The callback sees the live adjoint as `.grad`."""
        allocations = list(dict.fromkeys(a.allocation for a in event.arrays))
        before = [a.gradient().bytes.copy() for a in allocations]
        for a in allocations:
            a.grad_notes.clear()
        for a in allocations:
            a.gradient().bytes[...] = space[a].data
            a.grad_notes.clear()
        try:
            assert event.callback is not None
            event.callback()
            for a in allocations:
                space[a].data[...] = a.gradient().bytes
        finally:
            for a, data in zip(allocations, before, strict=True):
                a.gradient().bytes[...] = data

    def _reverse_nothing(self, event: Event, space: Workspace, after: dict) -> None:
        """Not ours: only rewound."""

    # ---- publishing

    def _publish(self, space: Workspace, retained: dict[Span, Any]) -> None:
        for a in list(space):
            if a.required or a.retained:
                self._publish_one(a, space[a], retained)
        for port in ports:
            port(self, space)

    def _publish_one(self, a: Allocation, shadow: Shadow, retained: dict[Span, Any]) -> None:
        """Leaves accumulate; what an event wrote is replaced."""
        grad, k = a.gradient(), a.grad_scale or 1
        dtype = self.scalars.get(a)
        written = self.written.get(a)
        _accumulate(grad, shadow, dtype)
        for span in written or ():
            at = Span(grad, span.offset * k, span.shape, tuple(s * k for s in span.strides), span.itemsize * k)
            words = at.words()
            words[...] = shadow.view(span, words.dtype)
        for wanted, data in retained.items():
            if wanted.allocation is a:
                a.gradient_span(wanted).words()[...] = data
        self._note_consumed(a, shadow)
        grad.version += 1
        grad.mark_published()
        _published[grad] = next(_clock), id(self.events)

    def _note_consumed(self, a: Allocation, shadow: Shadow) -> None:
        """Whoever reads a gradient that stores have used up is told so, once."""
        a.grad_notes.clear()
        for span in self.stored.get(a, ()):
            if not a.retained.touch(span) and not shadow.view(span, f"u{_word(span.itemsize * shadow.scale)}").any():
                a.grad_notes[span] = (
                    "this gradient is zero because the tape overwrote the array: .grad is the derivative by what the"
                    " array held when the tape started. tape.adjoint(a) gives the derivative by its final contents;"
                    " retain_grad=True publishes that instead."
                )

    def adjoint(self, a: array, at: Event | None = None) -> np.ndarray:
        """The adjoint of an array's memory during the reverse pass with the seeds of the last `backward`.

        at=None: the derivative by its final contents. at=event: by its contents just before that event.
        Returns a new NumPy array of shape (*a.shape, *components). Raises GradientError before any `backward`.
        """
        if not self.last_seeds:
            raise GradientError("adjoint() before any backward(): there is no seed.", slug="no-seed",
                                instead="tape.backward(loss), then tape.adjoint(a)")  # fmt: skip
        writers = [e for e in self.events if any(s.overlaps(a.span) is not False for s in e.writes)]
        place = at or (writers[-1] if writers else None)
        found: list[np.ndarray] = []

        def take(space: Workspace) -> None:
            g = _shadow_view(a, space[a.allocation])
            found.append(g.get() if a.device.is_cuda else g.copy())

        space = self.replay(
            lambda event, space: take(space) if at is not None and event is at else None,
            lambda event, space: take(space) if at is None and event is place else None,
        )
        if not found:
            take(space)
        return found[0]

    @property
    def gradients(self) -> dict[array, array]:
        """{array: its gradient} for every array of the tape that has one."""
        return {a: a.grad for a in self.arrays.values() if a.grad is not None}

    @property
    def launches(self) -> list[Event]:
        """The recorded launches, in order."""
        return [e for e in self.events if e.kind == "launch"]

    def zero(self) -> None:
        """Set the gradients of every array of this tape to zero."""
        with memory.LOCK, memory.unrecorded():
            for allocation in {a.allocation: None for a in self.arrays.values()}:
                grad = allocation.grad
                if grad is not None:
                    grad.bytes[...] = 0
                    grad.version += 1
                    grad.mark_published()
                    _published.pop(grad, None)

    def reset(self) -> None:
        """Forget every event and zero the gradients."""
        self.zero()
        self._clear()

    def __len__(self) -> int:
        return len(self.events)

    def __bool__(self) -> bool:
        return True

    def show(self) -> Any:
        """The static picture of the tape: lanes of memory by launches, with a table beside it."""
        return pictures["show"](self)

    def diagnose(self, loss: array | None = None, grads: dict[array, array] | None = None) -> Any:
        """Findings about this tape and its gradients: slug, severity, launch, line, sentence and fix. Publishes nothing.

        The adjoints looked at are those of `loss` or `grads`, else of the last `backward`.
        """
        return pictures["diagnose"](self, loss, grads)

    def memory(self) -> Any:
        """The bytes this tape holds, by whom and why."""
        return pictures["memory"](self)


_REVERSE: dict[str, Callable[[Tape, Event, Workspace, dict], None]] = {
    "launch": Tape._reverse_launch,
    "copy": Tape._reverse_host,
    "assign": Tape._reverse_host,
    "fill_": Tape._reverse_host,
    "zero_": Tape._reverse_host,
    "func": Tape._reverse_func,
    "foreign": Tape._reverse_nothing,
}

# filled by `diagnose` and `viz`, which lie above: name -> function of a tape
pictures: dict[str, Callable[..., Any]] = {}

# called after every publishing with (tape, workspace): output ports of other libraries
ports: list[Callable[[Tape, Workspace], None]] = []

# functions of an allocation: a number that grows whenever the library that owns it changes it, None if it is not theirs
stampers: list[Callable[[Allocation], Any]] = []

_published: Any = weakref.WeakKeyDictionary()  # gradient memory -> when a tape last published it, and which


# ---- pieces


def _named(name: str, value: Any) -> Iterator[tuple[str, array]]:
    """The arrays that a variable holds: itself, a few items of a list, the fields of a struct."""
    if isinstance(value, array):
        yield name, value
    elif isinstance(value, list | tuple):
        for k, item in enumerate(value[:1000]):
            if isinstance(item, array):
                yield f"{name}[{k}]", item
    elif isinstance(value, Instance):
        for key, item in vars(value).items():
            yield from _named(f"{name}.{key}", item)
    else:
        yield from ((name, a) for known in launching.known for a in known(value))


def is_float_memory(a: array) -> bool:
    """Has this array any float in it."""
    return a._differentiable


def _word(itemsize: int) -> int:
    return next(w for w in (8, 4, 2, 1) if itemsize % w == 0)


def _gradient_dtype(a: array) -> np.dtype:
    scalar = a.dtype.scalar  # type: ignore[attr-defined]
    return np.dtype(np.float32) if scalar.bits == 16 else scalar.numpy


def _float_parts(a: array) -> list[array]:
    """The float arrays that an array consists of: itself, or the float fields of its structs."""
    if not isinstance(a.dtype, Struct):
        return [a] if is_float(a.dtype) else []
    return list(_float_fields(a, a.dtype, ""))


def _float_fields(a: array, dtype: Struct, path: str) -> Iterator[array]:
    for name, type in dtype.fields:
        inner = f"{path}{name}"
        if isinstance(type, Struct):
            yield from _float_fields(a, type, inner + ".")
        elif is_float(type):
            part = a.field(inner)
            part._name = inner
            yield part


def _add_seed(space: Workspace, a: array, seed: Any) -> None:
    if not isinstance(seed, array):
        raise GradientError(
            f"the seed of {a.label} is a {type(seed).__name__}, it must be an array.", slug="seed-type",
            instead=f"wb.array(seed, dtype=wb.{a.dtype})",
        )  # fmt: skip
    want = a.dtype if isinstance(a.dtype, Struct) else None
    same_components = getattr(seed.dtype, "shape", ()) == getattr(a.dtype, "shape", ())
    same_scalars = want is None and seed.data.dtype == _gradient_dtype(a)
    dtype_fits = seed.dtype == a.dtype or (same_scalars and same_components)
    if seed.shape != a.shape or not dtype_fits:
        raise GradientError(
            f"the seed of {a.label} is {seed.dtype} of shape {seed.shape}; it must be {a.dtype} of shape {a.shape}.",
            slug="seed-shape" if dtype_fits else "seed-dtype", instead=f"wb.ones_like({a.label})",
        )  # fmt: skip
    for part in _float_parts(a):
        if part.dtype.scalar.bits == 16 and a.allocation.grad_scale != 2:  # type: ignore[attr-defined]
            raise GradientError(
                f"the seed of {a.label} has float16 fields, whose gradients would be float32 and have no room there.",
                slug="struct-float16", instead="float32 fields",
            )  # fmt: skip
        values = seed.data if part is a else seed.field(part._name).data
        view = space[a.allocation].view(part.span, _gradient_dtype(part))
        _add(view, values.reshape(view.shape), part.span)


def _add(view: Any, values: Any, span: Span) -> None:
    """view += values, also where several elements of the view are one number in memory."""
    if not span.self_overlapping:
        view += values
        return
    for at in np.ndindex(span.shape):
        view[at] += values[at]


def _accumulate(grad: Allocation, shadow: Shadow, dtype: Any) -> None:
    """grad += shadow, in the memory's floating-point type."""
    if isinstance(dtype, Scalar):
        wide = np.float32 if dtype.bits == 16 else dtype.numpy
        mine, theirs = grad.bytes.view(wide), shadow.data.view(wide)
        mine += theirs
    elif isinstance(dtype, Struct):
        n = grad.nbytes // dtype.numpy.itemsize * dtype.numpy.itemsize
        _add_records(grad.bytes[:n].view(dtype.numpy), shadow.data[:n].view(dtype.numpy))


def _add_records(mine: Any, theirs: Any) -> None:
    for name in mine.dtype.names:
        if mine.dtype[name].names:
            _add_records(mine[name], theirs[name])
        elif mine.dtype[name].base.kind == "f":
            mine[name] += theirs[name]


def _private_copies(private: tuple[int, ...], flat: list) -> dict[int, tuple[Any, int]]:
    """Copies of the memory that a replay writes to: position -> (bytes, offset of the first one)."""
    copies: dict[int, tuple[Any, int]] = {}
    if not private:
        return copies
    made: dict[Allocation, tuple[Any, int]] = {}
    touched = {flat[k].allocation for k in private}
    for k, a in enumerate(flat):
        if isinstance(a, array) and a.allocation in touched:
            if a.allocation not in made:
                hulls = [b.span.hull() for b in flat if isinstance(b, array) and b.allocation is a.allocation]
                low, high = min(h[0] for h in hulls), max(h[1] for h in hulls)
                made[a.allocation] = (a.allocation.bytes[low:high].copy(), low)
            copies[k] = made[a.allocation]
    return copies


def _extremal_memory(event: Event) -> dict[Allocation, Shadow]:
    """A copy of what the arrays under atomic_min and atomic_max hold after an event."""
    if event.reverse is None or not event.reverse.extremal:
        return {}
    found = {}
    for k in event.reverse.extremal:
        a = event.command.flat[k].allocation
        found[a] = Shadow(a, a.bytes.copy())
    return found


def _mirrored_values(flat: list, mirrors: list) -> list:
    """Pointer, shape and strides of shadows and their like, for `Signature.pack`."""
    values: list = []
    for k, shadow in mirrors:
        a, s = flat[k], shadow.scale
        values.append(shadow.address + a._offset * s)
        values += a.shape
        values += a.strides if s == 1 else [n * s for n in a.strides]
    return values


def _moved_values(flat: list, copies: dict[int, tuple[Any, int]]) -> list:
    values: list = []
    for k, a in enumerate(flat):
        packed = launching.pack_values((a,))
        if k in copies:
            data, first = copies[k]
            start = int(data.data.ptr) if a.device.is_cuda else data.__array_interface__["data"][0]
            packed[0] = start + a._offset - first
        values += packed
    return values


def _moved_view(a: array, data: Any, first: int) -> Any:
    whole = a.data
    return np.ndarray(whole.shape, whole.dtype, data, a._offset - first, whole.strides)


def _mark_view(a: array, base: Any) -> Any:
    """One int32 per component of an array, at a place that every name of that memory agrees on."""
    data = a.data
    strides = tuple(n * 4 for n in data.strides)
    if a.device.is_cuda:
        return type(base)(data.shape, np.int32, base.data + a._offset * 4, strides)
    return np.ndarray(data.shape, np.int32, base, a._offset * 4, strides)


def _shadow_view(a: array, shadow: Shadow) -> Any:
    s = shadow.scale
    dtype = a.data.dtype if s == 1 else _gradient_dtype(a)
    inner = a.data.shape[a.ndim :]
    strides = tuple(n * s for n in a.data.strides)
    return np.ndarray((*a.shape, *inner), dtype, shadow.data, a._offset * s, strides)
