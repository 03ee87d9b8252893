"""Recording: the events that a tape notes while it is open, and its checks for writes that are not its own.

Before an event overwrites bytes that an adjoint will read, the recording keeps them. Exposed memory is compared by
checksums. If needed bytes were changed behind the tape's back, the walk is refused.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, Self

from ..arrays import allocation as memory
from ..arrays import capture_log
from ..arrays.allocation import Allocation
from ..arrays.array import array, spans_of
from ..arrays.host_reads import HostRead
from ..arrays.interval_index import SpanSet
from ..arrays.read_values import ReadValues
from ..arrays.span import Span
from ..arrays.workspace import is_float_memory
from ..config import config
from ..errors import GradientError, LaunchError, Where
from ..kernels.types import Scalar, Struct
from . import host_sources, kinds, overwrites
from .constants import Constants
from .cross_tape import ForeignLeaf, RecordingId, update_borders
from .earlier_gradients import EarlierGradient
from .events import Event, Need, Needs, Scope, checksum_of, clock
from .naming import note_near_names
from .touched_bytes import tally


class Recording:
    """The record of a tape: events in order, the bytes that their adjoints will read, and copies of those overwritten.

    It is told of every write to its memory; those it does not record itself are compared with its needs.
    """

    apart = False  # a tape that records one step of another tape's event: it has no border of its own
    around: Recording | None = None  # the tape of a checkpointed loop, if this is one of its steps
    inherited: frozenset[Allocation] = frozenset()  # what was active when this tape began
    refuses_late = True  # a walk for memory that got requires_grad after a launch had met it

    def __init__(self, keep: str = "needed"):
        if keep not in ("needed", "all"):
            raise LaunchError(
                f"Tape(keep={keep!r}): keep is 'needed' or 'all'.", slug="tape-keyword", instead='wb.Tape(keep="all")'
            )
        self.keep = keep
        self.muted = False  # while a checkpointed loop runs, which is one event
        self.events: list[Event] = []
        self.arrays: dict[int, array] = {}
        self.names: dict[int, str] = {}  # by the id of arrays: what the user calls them
        self.guessed: set[int] = set()  # those that no variable was seen to be
        self.wholes: dict[Allocation, dict[Span, tuple[str, array]]] = {}  # what has a name in their memories
        self.entered: list[int] = []  # for each time that it is open: how many events it had when it was entered
        self._clear()

    def _clear(self) -> None:
        if (notes := capture_log.active_capture()) is not None:
            notes.begun.add(self)
        self.run = RecordingId(self)
        self.borders: dict[
            Allocation, dict[tuple[Span, RecordingId], None]
        ] = {}  # what other tapes wrote, met by this one
        self.crossings: list[ForeignLeaf] = []  # those at which the last backward stopped
        self.piled: dict[Allocation, EarlierGradient] = {}  # leaves whose gradient the last backward added to another
        self.read_early: dict[Allocation, None] = {}  # leaves whose gradient was read before the backward
        self.constants = Constants()
        self.noted_events = 0  # so many events are in `borders` and in the origins of memory
        self.events.clear()
        self.arrays.clear()
        self.names.clear()
        self.guessed.clear()
        self.wholes.clear()
        self.last_seeds: dict[Allocation, Any] = {}
        self.within: frozenset[Event] | None = None  # the events that these are walked through; None: all
        self.active: dict[Allocation, None] = {}
        self.needs: dict[Allocation, Needs] = {}
        self.written: dict[Allocation, SpanSet] = {}
        self.touched: dict[Allocation, SpanSet] = {}
        self.begun: dict[Allocation, None] = {}  # written by an event
        self.cut: dict[Allocation, None] = {}  # made by a cut: a leaf if it is given requires_grad
        self.scalars: dict[Allocation, Any] = {}
        self.stored: dict[Allocation, dict[Span, None]] = {}
        self.first: dict[Allocation, Event] = {}  # that touched it
        self.stamps: dict[Allocation, int] = {}
        self.tallied = 0
        self.numbers = ReadValues(self)
        self.glimpsed: dict[Span, bytes] = {}  # exposed memory off active paths: some of what it held when it was read
        self.suspects: dict[Event, None] = {}  # that wrote numbers of the host, supposed to come from active memory
        self.bits: dict[Span, tuple[array, Event]] = {}  # what was written as whole numbers
        self.failure: tuple[Event, BaseException] | None = None
        self.scopes: list[Scope] = []
        self.conflicts: list[tuple[Need, str, Where | None] | GradientError] = []
        self.walked = False  # has a backward been: from then on what others overwrite is kept instead of refused
        self.captured = False  # a replay runs these events again: what is kept between two would be old
        self.guarded = False  # is there anything in the two below to compare with
        self.changed: dict[Allocation, dict[Span, None]] = {}  # written since by somebody else
        self.left: dict[Allocation, dict[Span, int]] = {}  # touched on active paths: span -> checksum, once exposed
        # keep="all", every memory: how many events there were when it was met or exposed, and its checksum if exposed
        self.met: dict[Allocation, tuple[int, int | None]] = {}

    def __enter__(self) -> Self:
        if (notes := capture_log.active_capture()) is not None:
            self.captured = True
            if not self.events:
                notes.tapes[self] = None
        around = memory.recorder()
        if around is not None and around is not self:
            note_near_names(around, sys._getframe(1))
            with memory.LOCK:
                update_borders(around)
            if not self.events and not self.run.around(around.run):
                self.run.outer = around.run
            if not self.events:
                self.numbers = around.numbers
        self.entered.append(len(self.events))
        memory.push_recorder(self)
        return self

    def __exit__(self, *exc: object) -> None:
        memory.pop_recorder(self)
        note_near_names(self, sys._getframe(1))
        with memory.LOCK:
            update_borders(self)
            inside = self.events[self.entered.pop() :]
            for around in memory.recorders():
                host_sources.note_inside(around, self, inside)

    def meet(self, read: Span) -> None:
        """Note borders in the bytes that this tape is about to read: parts that other tapes wrote."""
        for span, run in read.allocation.origins.met(read) if read.allocation.origins else ():
            self.crossed(span, run)

    def crossed(self, span: Span, run: RecordingId) -> None:
        """Note that another tape, during `run`, wrote bytes that this one meets."""
        if run is not self.run:
            tape = self.run.outer.tape() if self.apart and self.run.outer is not None else self
            if tape is not None and run is not tape.run:
                tape.borders.setdefault(span.allocation, {})[span, run] = None

    def all_borders(self) -> Iterator[tuple[Span, RecordingId]]:
        """All (span, writer's run) that other tapes wrote and this one read."""
        return (border for found in self.borders.values() for border in found)

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Give the events recorded inside a common name, under which pictures fold them. Scopes nest."""
        opened = Scope(name, len(self.events))
        self.scopes.append(opened)
        try:
            yield
        finally:
            opened.last = len(self.events)

    def before_launch(self, command: Any, frame: Any) -> Event:
        """Called under LOCK before a launch runs: keep what it overwrites, note what its adjoint needs."""
        if self.numbers.any:  # something was read
            host_sources.look(self, command)
            command = host_sources.declared(self, command)
        plan, flat = command.plan, command.flat
        event = Event(
            next(clock),
            kinds.LAUNCH,
            plan.program.name,
            (frame.f_code, frame.f_lasti),
            spans_of(flat, plan.reads),
            spans_of(flat, plan.writes),
            command,
        )
        mask = self._activate(plan, flat) if not command.declared else self._activate_declared(event, command)
        if not plan.float_writes.isdisjoint(mask):
            back = plan.reverses.get(mask)
            if back is None:
                self._differentiable(plan)
                back = plan.backward(mask)
            event.reverse = back
            for k, box in back.needs:
                a = flat[k]
                span = a.span if box is None else a.span.part(box)
                known = self.needs.get(a.allocation)
                if not known or known[-1].span is not span:
                    overwrites.need(self, span, event, k)
        for span in event.reads:
            if span.allocation.origins:
                self.meet(span)
        begun, arrays = self.begun, self.arrays
        for (k, _), span in zip(plan.writes, event.writes):
            a = flat[k]
            if a.allocation not in begun:
                begun[a.allocation] = None
                if plan.rereads or id(a) in arrays:
                    overwrites.keep_start(self, event, a, span)
            if a.allocation.origins and k in plan.covered:
                a.allocation.forget_origins(span)
        for k in plan.program.array_positions:
            a = flat[k]
            arrays[id(a)] = a
        if self.guarded:
            overwrites.check_left(self, event)
        if self.keep == "all":
            overwrites.keep_before(self, event)
        else:
            for span in event.writes:
                if needs := self.needs.get(span.allocation):
                    overwrites.keep(self, span, event, needs)
        return event

    def _activate(self, plan: Any, flat: list) -> tuple[int, ...]:
        """Mark memory as active that depends on something with `requires_grad`. Returns positions of active arrays."""
        active, scalars = self.active, self.scalars  # who is in `scalars` is active
        for k, type in plan.floats.items():
            if scalars.get(flat[k].allocation) is not type:
                break
        else:
            return plan.all_floats
        following = False
        while True:
            then, mask, left_out = (len(active), following), [], False
            for k, type in plan.floats.items():
                a = flat[k].allocation
                if scalars.get(a) is not type:
                    if not (a.asked or a in active or (following and k in plan.float_writes)):
                        left_out = True
                        continue
                    active[a] = None
                    if a in scalars or k not in plan.plain or flat[k].span.offset:
                        self.check_scalar(flat[k], plan.program.name)
                    else:
                        scalars[a] = type
                mask.append(k)
                following = following or k in plan.float_reads
            if not left_out or then == (len(active), following):
                return tuple(mask)

    def _activate_declared(self, event: Event, command: Any) -> tuple[int, ...]:
        """`_activate` for a launch with declared scalars: it reads their memory, and its results depend on them."""
        plan, flat = command.plan, command.flat
        for k in command.declared:
            a = command.places[k]
            self.active[a.allocation] = None
            self.arrays[id(a)] = a
            self.check_scalar(a, plan.program.name)
            if a.allocation not in self.left:  # a change between two launches that take it must be an event
                self.left[a.allocation] = {}
                a.allocation.watch(self)
            for j in plan.float_writes:
                self.active[flat[j].allocation] = None
        event.reads += tuple([command.places[k].span for k in command.declared])
        return tuple(sorted((*self._activate(plan, flat), *command.declared)))

    def _differentiable(self, plan: Any) -> None:
        if not plan.program.enable_backward and not config.all_adjoints:
            raise GradientError(
                f"Kernel {plan.program.name!r} has enable_backward=False, and it lies between an array with"
                " requires_grad and what is computed from it.",
                slug="no-backward",
                where=plan.program.function.where,
                why="Its gradient would be lost in silence.",
                instead="@wb.kernel, without enable_backward=False; or wb.config.all_adjoints = True",
            )

    def after_launch(self, event: Event) -> None:
        """Called under LOCK when a launch has run."""
        self.events.append(event)
        back = event.reverse
        if back is not None:
            for k in back.extremal:
                a = event.command.flat[k]
                overwrites.need(self, a.span, event, k)
            left, active = self.left, self.active
            for span in (*event.writes, *event.reads):
                a = span.allocation
                if a.exposed or (a not in left and (a in active or span in event.writes)):
                    overwrites.remember_left(self, event)
                    break

    def after_failure(self, event: Event, failure: BaseException) -> None:
        """Called under LOCK when a launch broke off: its writes are unknown, so the walk will be refused."""
        event.kind, event.reverse = kinds.FOREIGN, None
        self.events.append(event)
        self.failure = self.failure or (event, failure)

    def host_event(
        self,
        kind: str,
        dst: array,
        src: array | None,
        value: Any,
        perform: Callable[[], None],
        where: Where | None,
        sources: tuple[HostRead, ...] = (),
    ) -> None:
        """A host write while this tape records: an event, unless it starts a leaf that the tape has not touched."""
        target, row = dst.allocation, kinds.KINDS[kind]
        followed = src is not None and not row.cuts and is_float_memory(src) and self._follows(src.allocation)
        host_sources.tell_around(self, [dst], sources, where)
        sources = host_sources.behind(self, dst, sources)
        starts_leaf = row is kinds.ASSIGN and not (followed or sources or self.has_touched(dst.span))
        starts_leaf = starts_leaf and bool(target.required)
        reads = () if src is None else (src.span,)
        event = Event(next(clock), row, kind, where, reads, (dst.span,), arrays=(dst,) if src is None else (dst, src))
        event.followed, event.sources = followed or src is None, sources
        if not starts_leaf and not target.is_gradient:
            if src is not None and followed:
                self._refuse_crowd(dst, event)
                self.active[src.allocation] = self.active[target] = None
                self.check_scalar(src, kind)
            elif row.cuts and src is not None and is_float_memory(src) and self._follows(src.allocation):
                self.active[src.allocation] = None  # it may be seeded itself
                self.check_scalar(src, kind)
            if is_float_memory(dst) and (target.asked or sources):
                self.active[target] = None
            if target in self.active:
                self.check_scalar(dst, kind)
            for span in reads:
                self.meet(span)
            if target not in self.begun:
                self.begun[target] = None
                overwrites.keep_start(self, event, dst, dst.span)
            for a in event.arrays:
                self.arrays[id(a)] = a
            if self.guarded:
                overwrites.check_left(self, event)
            overwrites.keep_before(self, event)
            self.events.append(event)
        if target.origins and not dst.span.self_overlapping:
            target.forget_origins(dst.span)  # all of these bytes are written
        target.about_to_write(dst.span, kind, where, self)
        perform()
        if row.cuts:
            self.cut[target] = None
        if self.events and self.events[-1] is event and (row.cuts or target in self.active):
            overwrites.remember_left(self, event)

    def opaque_event(
        self,
        label: str,
        arrays: Sequence[array],
        written: Sequence[array],
        perform: Callable[[], None],
        reason: str,
        place: Any,
    ) -> Event:
        """Record a step `perform` without known adjoint that may read `arrays` and writes those in `written`.

        A walk whose adjoint arrives there is refused with the `reason`; gradients that do not pass there are exact.
        """
        reads, writes = tuple(a.span for a in arrays), tuple(a.span for a in written)
        event = Event(next(clock), kinds.OPAQUE, label, place, reads, writes, arrays=tuple(arrays))
        event.reason = reason
        with memory.LOCK:
            for a in arrays:
                self.arrays[id(a)] = a
                if is_float_memory(a):
                    kind: Any = a.dtype
                    self.scalars.setdefault(a.allocation, kind if isinstance(kind, Struct) else kind.scalar)
                    if a.allocation.asked:
                        self.active[a.allocation] = None
            for a in written:
                self.begun[a.allocation] = None
                if is_float_memory(a):
                    self.active[a.allocation] = None
            overwrites.keep_before(self, event)
            for a in written:
                a.allocation.about_to_write(a.span, label, None, self)
            perform()
            self.events.append(event)
        return event

    def values_written(
        self, target: Allocation, offset: int, values: Any, sources: tuple[HostRead, ...], where: Where | None
    ) -> None:
        """Called when NumPy has written values to memory of an array, by its raw address, while this tape records."""
        host_sources.written(self, target, offset, values, sources, where)

    def _refuse_crowd(self, dst: array, event: Event) -> None:
        if dst.span.self_overlapping:
            raise GradientError(
                f"{event.kind} to {dst.label}, of which several elements are one number in memory.",
                slug="race",
                where=event.where,
                why="Which of the values stays is a matter of luck, and so is its gradient.",
                instead="y = wb.zeros(x.shape, dtype=x.dtype); wb.copy(y, values)",
            )

    def _follows(self, a: Allocation) -> bool:
        return a.asked or a in self.active

    def record_func(
        self,
        backward: Callable[[], None],
        arrays: Sequence[array],
        *,
        only_read: Sequence[array] = (),
        forward: Callable[[], None] | None = None,
    ) -> None:
        """Record a function of yours at this place: `backward()` is called when the walk passes it.

        Inside it `a.grad` of each of `arrays` is the live adjoint, with or without `requires_grad`: on entry the
        derivative by what `a` held after your step, on return it must be that by what `a` held before. What your code
        changed in `arrays` since the last event counts as written here: all of them, but for those also in
        `only_read`, which your step left as they were. Of what was written, publishing replaces gradients; to leaves
        that were only read it adds, at each `backward` (in Warp to all).

        Use it for a step that no kernel can do: a library's solver, with the adjoint that you know. Do the step, then
        call this with every array that it read or wrote. `backward()` must do three things: read the gradient of what
        the step wrote, add (`+=`) to the gradient of what it read, and then set to zero the gradient of what it
        overwrote. Nothing is zeroed for you. What `.grad` held outside is not seen here and is back afterwards;
        publishing then adds to leaves and replaces the rest, as for any tape. An array of whole numbers has no
        gradient here either.

        In a function for `value_and_grad` the tape is that of the result: `f = wb.value_and_grad(loss)`, and `loss`
        calls `f.tape.record_func(...)`. In a capture your step must be a function, `forward`: it is called here, and
        with `backward` again by each replay. `jvp`, `hvp`, `replay` and `executor=` refuse such tapes.
        Raises LaunchError [record-func] for a `backward` that takes arguments and for what are no arrays.

        >>> x, y = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2)
        >>> with wb.Tape() as tape:
        ...     y.numpy()[:] = np.sin(x.numpy())
        ...     def pull_back():
        ...         x.grad.numpy()[:] += np.cos(x.numpy()) * y.grad.numpy()
        ...         y.grad.zero_()
        ...     tape.record_func(pull_back, [x, y])
        >>> tape.backward(grads={y: wb.ones(2)})
        >>> x.grad.numpy().round(4)
        array([ 0.5403, -0.4161], dtype=float32)
        """
        if forward is None:
            capture_log.refuse("record_func() of a step that is over", f"{_CALL[:-1]}, forward=step)   which does it")
        _check_callback(backward, arrays, only_read)
        with memory.LOCK:
            if forward is not None:
                _do(forward, [a.allocation for a in arrays])
            event = Event(next(clock), kinds.FUNC, getattr(backward, "__name__", "func"), memory.caller_where())
            event.callback, event.arrays = backward, tuple(arrays)
            for a in arrays:
                self.arrays[id(a)] = a
                if is_float_memory(a):
                    self.active[a.allocation] = None
                    self.check_scalar(a, "record_func")
            kept = {id(a) for a in only_read}
            event.reads = tuple(a.span for a in arrays if id(a) in kept)
            event.writes = tuple(a.span for a in arrays if id(a) not in kept)
            for earlier in takewhile(lambda e: e.noted, reversed(self.events)):
                if any(s.overlaps(earlier.writes[0]) is not False for s in event.writes):
                    earlier.sources = ()  # it belongs to the step whose adjoint the callback is
            self.events.append(event)
            overwrites.remember_left(self, event)

    def check_scalar(self, a: array, what: str) -> None:
        """Note the scalar type of memory on an active path. Raises GradientError [two-types] at a second one."""
        dtype, memory = a.dtype, a.allocation
        if not isinstance(dtype, Struct):
            dtype = dtype.scalar  # type: ignore[attr-defined]
            self._check_place(a, dtype)
        known = self.scalars.setdefault(memory, dtype)
        if known is dtype or isinstance(known, Struct):
            return
        if not isinstance(dtype, Struct):
            raise GradientError(
                f"{a.label} is used as {dtype} and as {known}, both with gradients.",
                slug="two-types",
                why="Memory has one gradient, of one scalar type.",
                instead="wb.zeros(n, dtype=wb.float64)   for the other type, and a kernel that converts",
            )
        self.scalars[memory] = dtype

    def _check_place(self, a: array, dtype: Scalar) -> None:
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
            raise GradientError(
                f"the elements of {a.label} do not lie at multiples of {word} bytes of their memory.",
                slug="unaligned",
                why="Gradients of one memory are added up number by number.",
                instead="wb.array(x), which copies",
            )

    def has_touched(self, span: Span) -> bool:
        """True if an event of this tape has read or written one of these bytes, or may have."""
        if self.events and span in (last := self.events[-1]).writes and (last.kind.own or last.noted):
            return True  # as of most losses, which the last launch writes
        tally(self)
        marks = self.touched.get(span.allocation)
        return marks is not None and marks.touch(span)

    def last_writer(self, span: Span) -> Event | None:
        """The last event that wrote one of these bytes; changes by others are not the program's."""
        for event in reversed(self.events):
            if event.kind.own and any(s.overlaps(span) is not False for s in event.writes):
                return event
        return None

    @property
    def deaf(self) -> bool:
        """True if writes need not be reported: the walk is refused already, or the tape is muted."""
        return self.muted or (bool(self.conflicts) and self.keep == "needed")

    def foreign_write(self, span: Span, what: str, where: Where | None) -> None:
        """Called before bytes change that this tape does not record: note the conflict, or keep them.

        They are kept with keep="all", and once a backward has been: an optimizer may then change the parameters, and
        the tape can still be walked and looked at.
        """
        if self.deaf:
            return
        needs = self.needs.get(span.allocation)
        if self.keep == "all" or (self.walked and needs and needs.meeting(span)):
            event = Event(next(clock), kinds.FOREIGN, what, where or memory.caller_where(), (), (span,))
            overwrites.keep(self, span, event, needs)
            self.events.append(event)
            needs = None
        if needs and (hit := needs.meeting(span)):
            where = where or memory.caller_where()
            self.conflicts += [(need, what, where) for need in hit]
            self.needs[span.allocation] = needs.without(hit)  # once is enough to refuse the walk
        a = span.allocation
        if a in self.left and (a not in self.cut or self._follows(a)):
            self.changed.setdefault(span.allocation, {})[span] = None
            self.guarded = True

    def spoil(self, event: Event) -> None:
        """A replay of a capture ran the events up to this one again, not those behind it: refuse to walk this tape."""
        if any(isinstance(c, GradientError) and c.slug == "replayed" for c in self.conflicts):
            return
        error = GradientError(
            f"this tape went on after a capture of its first events, and a replay ran them ({event.label!r} and on)"
            " again.",
            slug="replayed",
            where=event.where,
            why="What was recorded behind them still belongs to the run before.",
            instead="tape.reset() before recording outside the capture",
        )
        self.conflicts.append(error)

    def exposing(self, allocation: Allocation) -> None:
        """Called when the address of memory leaves our hands: take checksums, by which later changes are found."""
        if allocation in self.met:
            self.met[allocation] = len(self.events), checksum_of(allocation.span())
        for need in self.needs.get(allocation, ()):
            need.checksum = checksum_of(need.span)
        if (left := self.left.get(allocation)) is not None:
            touched = (span for event in self.events for span in (*event.writes, *event.reads))
            spans = (span for span in touched if span.allocation is allocation)
            left.update((span, checksum_of(span)) for span in dict.fromkeys(spans))
            self.guarded = True


_CALL = "tape.record_func(backward, [x, y])"


def _do(forward: Callable[[], None], touched: list[Allocation]) -> None:
    """Call a function now, unrecorded, and in the replays of an open capture."""

    def step() -> None:
        with memory.unrecorded():
            forward()

    if (notes := capture_log.active_capture()) is not None:
        for a in touched:
            notes.remember(a)
            notes.use(a, "read")
            notes.written.setdefault(a, {})[a.span()] = "record_func()"
    capture_log.do(step)


def _check_callback(backward: Any, arrays: Any, only_read: Any) -> None:
    """Raise LaunchError [record-func] for a callback that would fail in the walk."""
    instead, odd = _CALL, ""
    if not callable(backward):
        odd = f"takes a function first, not {type(backward).__name__}"
    elif isinstance(arrays, array) or not isinstance(arrays, list | tuple):
        odd = f"takes a list of arrays, not {type(arrays).__name__}"
    elif wrong := [type(a).__name__ for a in arrays if not isinstance(a, array)]:
        odd = f"takes arrays, not {wrong[0]}"
    elif any(all(a is not b for b in arrays) for a in only_read):
        odd, instead = "has an array in only_read that is not one of its arrays", "[x, y], only_read=[x]"
    else:
        try:
            inspect.signature(backward).bind()
        except TypeError as error:
            odd, instead = f"calls its function without arguments: {error}", "def backward(): ...   which reads a.grad"
        except ValueError:  # of a builtin nobody knows
            pass
    if odd:
        raise LaunchError(f"record_func {odd}.", slug="record-func", instead=instead)
