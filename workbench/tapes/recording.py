"""Recording: the events that a tape notes while it is open, and its checks for writes that are not its own.

Before an event overwrites bytes that an adjoint will read, the recording keeps them. Exposed memory is compared by
checksums. If needed bytes were changed behind the tape's back, the walk is refused.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from types import FrameType
from typing import Any, Self

from ..arrays import allocation as memory, capture_log
from ..arrays.allocation import Allocation, GradientMemory, caller_where
from ..arrays.array import array, memory_of, span_of, spans_of, whole_memory
from ..arrays.read_values import HostRead, ReadValues
from ..arrays.span import Span
from ..arrays.workspace import is_float_memory
from ..config import config
from ..device import XpArray
from ..errors import GradientError, LaunchError, Where
from ..kernels.ir import Stmt
from ..kernels.types import Struct
from ..launches.adjoint_plan import adjoint_of
from ..launches.plan import Plan, PlannedLaunch
from . import kinds
from .cross_tape import Border, RecordingId
from .event_log import EventLog
from .events import Event, Scope, clock, place_of
from .host_sources import HostSources
from .naming import TapeNames
from .needed_bytes import NeededBytes


class Recording:
    """The record of a tape: events in order, the bytes that their adjoints will read, and copies of those overwritten.

    It is told of every write to its memory; those it does not record itself are compared with its needs. Its parts:
    `log`, the events and their memory, of which `events`, `arrays`, `active` and `scalars` are short for the most used;
    `names` of arrays, `needed` bytes, the `border` to other tapes, values of the `host`, and `earlier` gradients.
    """

    apart = False  # a tape that records one step of another tape's event
    refuses_late = True  # a walk for memory that got requires_grad after a launch had met it

    def __init__(self, keep: str = "needed"):
        if keep not in ("needed", "all"):
            text = f"Tape(keep={keep!r}): keep is 'needed' or 'all'."
            raise LaunchError(text, slug="tape-keyword", instead='wb.Tape(keep="all")')
        self.keep = keep
        self.muted = False  # while a checkpointed loop runs, which is one event
        self.local = capture_log.active_capture() is not None  # made in a capture
        self.entered: list[int] = []  # for each time that it is open: how many events it had when it was entered
        self.log, own = EventLog(), weakref.ref(self)
        self.events, self.arrays = self.log.events, self.log.arrays
        self.active, self.scalars = self.log.active, self.log.scalars
        self.names = TapeNames(self.log)
        self.alone: Sequence[weakref.ref[Any]] = [own]
        self.needed = NeededBytes(keep, self.log, self.names, self.alone)
        self.border = Border(self.log, self.names)
        self.host = HostSources(self.log, self.names, own)
        self.earlier = EarlierGradients(self.events, own)
        self._begin()

    def _begin(self) -> None:
        if (notes := capture_log.active_capture()) is not None:
            notes.begun.add(self)
        self.last_seeds: dict[Allocation, Any] = {}
        self.conventions: dict[Stmt, None] = {}  # claims of slopes that are conventions, which the last walk met
        self.within: frozenset[Event] | None = None  # the events that these are walked through; None: all
        self.alike = 0  # walks of other tapes of the same launches before this one
        self.numbers = ReadValues(self)
        self.scopes: list[Scope] = []
        self.captured = False  # a replay runs these events again: what is kept between two would be old

    def _clear(self) -> None:
        for part in (self.log, self.names, self.needed, self.border, self.host, self.earlier):
            part.clear()
        self._begin()

    def __enter__(self) -> Self:
        capture_log.refuse_mapped("a tape is opened.")
        if (notes := capture_log.active_capture()) is not None:
            self.captured = True
            if not self.events:
                notes.tapes[self] = {a: [*spans] for a, spans in notes.written.items()}
                notes.runs.add(self.border.run)
        around = memory.recorder()
        if around is not None and around is not self:
            around.names.note_near(sys._getframe(1))
            with memory.LOCK:
                around.border.update()
            if not self.events:
                if not self.border.run.around(around.border.run):
                    self.border.run.outer = around.border.run
                self.numbers = around.numbers
        self.entered.append(len(self.events))
        memory.push_recorder(self)
        memory.open_tapes[self] = memory.open_tapes.get(self, 0) + 1
        return self

    def __exit__(self, *exc: object) -> None:
        self._close(memory.pop_recorder(self))
        self.names.note_near(sys._getframe(1))
        with memory.LOCK:
            inside = self.events[self.entered.pop() :]
            if self.apart:
                return
            self.border.update()
            for around in memory.recorders():
                if around is not self and not around.muted:
                    around.host.note_inside(inside, self.active)

    def _close(self, still: list[Recording] | None) -> None:
        """Count the tape as closed. `still`: those opened inside it that are open yet; None: it is not open here."""
        if still is None:
            text = "a tape is closed where it was not opened: in another thread or task, or once too often."
            why = "What was recorded in between belongs to the place where it was opened."
            instead = "with wb.Tape() as tape: ...   in one function"
            raise LaunchError(text, slug="tape-closed", why=why, instead=instead)
        if memory.open_tapes[self] == 1:
            del memory.open_tapes[self]
        else:
            memory.open_tapes[self] -= 1
        for other in still:
            for tape in (self, other):
                tape.needed.conflicts.append(_crossed(tape))

    def crossed(self, span: Span, run: RecordingId) -> None:
        """Note that another tape, during `run`, wrote bytes that this one overwrites."""
        self.border.crossed(span, run)

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Give the events recorded inside a common name, under which pictures fold them. Scopes nest."""
        opened = Scope(name, len(self.events))
        self.scopes.append(opened)
        try:
            yield
        finally:
            opened.last = len(self.events)

    def before_launch(self, command: PlannedLaunch, frame: FrameType) -> Event:
        """Called under LOCK before a launch runs: keep what it overwrites, note what its adjoint needs."""
        constants = ()
        if self.numbers.any:  # something was read
            self.host.look(command, self.numbers)
            command = self.host.declared(command, self.numbers)
            written = [command.flat[k] for k in command.plan.float_writes]
            constants = self.host.of_constants(command.program.lookups.values(), written)
        plan, flat, needed, arrays = command.plan, command.flat, self.needed, self.arrays
        writes, followed = spans_of(flat, plan.writes), needed.followed
        place = frame.f_code, frame.f_lasti
        event = Event(next(clock), kinds.LAUNCH, plan.program.name, place, None, writes, command)
        if constants:
            event.constants = constants
        late = [k for k in plan.floats if id(flat[k]) not in followed]
        if command.declared:
            mask = self._activate_declared(event, command)
        else:
            mask = self._activate(event, plan, flat, late) if late else plan.all_floats
        memories, back = needed.memories, None
        if not plan.float_writes.isdisjoint(mask):
            back = event.reverse = plan.derived.get(mask) or self._adjoint(plan, mask)
            needed.pending.append(event)
            needed.marked.update(map(memory_of, map(flat.__getitem__, back.needs)))
        for k, box in plan.reads:
            if flat[k].allocation.origins is not None:
                self.border.meet(span_of(flat[k], box))
        if needed.guarded:
            needed.check_left(event)
        for (k, _), span in zip(plan.writes, writes):
            memory = span.allocation
            known = memories.get(memory)
            if known is None or not (known.followed or back is None):
                known = needed.notes(memory, watch=False) if back is None else needed.follow(memory)
            if not known.begun:
                known.begun = True
                if plan.rereads or id(flat[k]) in arrays:
                    needed.keep_start(event, flat[k], span)
            if memory.origins is not None and k in plan.covered:
                memory.forget_origins(span)
            if (known.count or memory in needed.marked) and not needed.keeps_all:
                needed.keep(span, event, known)
        for k in late if plan.all_floats == plan.program.array_positions else plan.program.array_positions:
            a = flat[k]
            arrays[id(a)] = a
            memory = a.allocation
            if back is not None and memory in self.active:
                if (known := memories.get(memory)) is None or not known.followed:
                    needed.follow(memory)
                if self.scalars.get(memory) is plan.floats.get(k, self):
                    followed[id(a)] = None
            elif back is not None and k in back.needs:
                needed.notes(memory)
        if needed.exposed:
            needed.settle()
        if needed.keeps_all:
            needed.keep_before(event)
        return event

    def _activate(self, event: Event, plan: Plan, flat: Sequence[Any], late: list[int]) -> tuple[int, ...]:
        """Mark memory as active that depends on something with `requires_grad`. Returns positions of active arrays.

        late   positions of those that are not known to be active yet.
        """
        active, scalars = self.active, self.scalars
        following = not plan.float_reads.issubset(late)
        while True:
            left_out = []
            for k in late:
                a, type = flat[k].allocation, plan.floats[k]
                known = a.asked or a in active or (following and k in plan.float_writes)
                if not known and not (a.is_gradient and self.meets_gradient(flat[k], event.place)):
                    left_out.append(k)
                    continue
                active[a] = None
                if a in scalars or k not in plan.plain or flat[k].span.offset:
                    self.log.check_scalar(flat[k], plan.program.name)
                else:
                    scalars[a] = type
                following = following or k in plan.float_reads
            if not left_out:
                return plan.all_floats
            if len(left_out) == len(late):
                return tuple([k for k in plan.floats if k not in left_out])
            late = left_out

    def meets_gradient(self, a: array, place: object) -> bool:
        """Follow memory with a gradient that a tape published, so that a walk which comes to it is refused.

        Returns False where nobody published it, or its bytes were written since.
        """
        grad = a.allocation
        if not isinstance(grad, GradientMemory) or grad.publisher[1] is None or grad in self.active:
            return False
        if any(span.contains(a.span) for span in grad.written):
            return False
        whole, tape = whole_memory(a), grad.publisher[1]()
        met = Event(next(clock), kinds.GRADIENT, "gradient", place, (whole.span,), arrays=(whole,))
        met.reason = "published by backward()" + (f" at {place_of(tape.walked_at)}" if tape is not None else "")
        self.log.activate(a, "a gradient")
        self.events.append(met)
        return True

    def _activate_declared(self, event: Event, command: PlannedLaunch) -> tuple[int, ...]:
        """`_activate` for a launch with declared scalars: it reads their memory, and its results depend on them."""
        plan, flat = command.plan, command.flat
        for k in command.declared:
            a = command.places[k]
            self.log.activate(a, plan.program.name)
            self.needed.follow(a.allocation)  # a change between two launches that take it must be an event
            for j in plan.float_writes:
                self.active[flat[j].allocation] = None
        event.reads += tuple([command.places[k].span for k in command.declared])
        mask = self._activate(event, plan, flat, list(plan.floats))
        return tuple(sorted((*mask, *command.declared)))

    def _adjoint(self, plan: Plan, mask: tuple[int, ...]) -> Any:
        """The adjoint of a plan for these active positions. Raises GradientError [no-backward]."""
        if not plan.program.enable_backward and not config.all_adjoints:
            where, why = plan.program.function.where, "Its gradient would be lost in silence."
            lies = "and it lies between an array with requires_grad and what is computed from it."
            text = f"Kernel {plan.program.name!r} has enable_backward=False, {lies}"
            instead = "@wb.kernel, without enable_backward=False; or wb.config.all_adjoints = True"
            raise GradientError(text, slug="no-backward", where=where, why=why, instead=instead)
        return adjoint_of(plan, mask)

    def after_launch(self, event: Event) -> None:
        """Called under LOCK when a launch has run."""
        self.events.append(event)
        if event.constants:
            self.host.note_constants(event, [event.command.flat[k] for k in sorted(event.command.plan.float_writes)])
        back = event.reverse
        if back is not None:
            for k in back.extremal:
                self.needed.need(event.command.flat[k].span, event, k)
            if self.needed.exposed or event.command.declared:
                self.needed.remember_left(event)

    def after_failure(self, event: Event, failure: BaseException) -> None:
        """Called under LOCK when a launch broke off: its writes are unknown, so the walk will be refused."""
        event.kind, event.reverse = kinds.FOREIGN, None
        self.events.append(event)
        self.needed.failure = self.needed.failure or (event, failure)

    def host_event(
        self,
        kind: str,
        dst: array,
        src: array | None,
        value: object,
        perform: Callable[[], None],
        where: Where | None,
        sources: tuple[HostRead, ...] = (),
    ) -> None:
        """A host write while this tape records: an event, unless it starts a leaf that the tape has not touched.

        Called under LOCK. Values are those of `src`, else `value`, made from the readings `sources`; `perform` writes.
        """
        target, log, needed, row = dst.allocation, self.log, self.needed, kinds.KINDS[kind]
        followed = False
        if src is not None and not row.cuts and is_float_memory(src):
            followed = log.follows(src.allocation) or (src.is_gradient and self.meets_gradient(src, where))
        self.host.tell_around([dst], sources, where)
        sources = self.host.behind(dst, sources) if not self.muted else ()
        starts_leaf = row is kinds.ASSIGN and not (followed or sources or log.has_touched(dst.span))
        starts_leaf = starts_leaf and bool(target.required)
        reads = () if src is None else (src.span,)
        event = Event(next(clock), row, kind, where, reads, (dst.span,), arrays=(dst,) if src is None else (dst, src))
        event.followed, event.sources = followed or src is None, sources
        if row.fills and not isinstance(dst.dtype, Struct):
            event.value = 0 if row is kinds.ZERO else value
        if not starts_leaf and (not target.is_gradient or target in self.active):
            if src is not None and followed:
                _refuse_crowd(dst, event)
                self.active[src.allocation] = self.active[target] = None
                log.check_scalar(src, kind)
            elif row.cuts and src is not None and is_float_memory(src) and log.follows(src.allocation):
                self.active[src.allocation] = None  # it may be seeded itself
                log.check_scalar(src, kind)
            if is_float_memory(dst) and (target.asked or sources):
                self.active[target] = None
            if target in self.active:
                log.check_scalar(dst, kind)
            for span in reads:
                self.border.meet(span)
            known = needed.notes(target, watch=False)
            if not known.begun:
                known.begun = True
                needed.keep_start(event, dst, dst.span)
            for a in event.arrays:
                self.arrays[id(a)] = a
            if needed.guarded:
                needed.check_left(event)
            needed.keep_before(event)
            self.events.append(event)
        if target.origins and not dst.span.self_overlapping:
            target.forget_origins(dst.span)  # all of these bytes are written
        target.about_to_write(dst.span, kind, where, self)
        perform()
        if row.cuts:
            needed.notes(target, watch=False).cut = True
        if self.events and self.events[-1] is event and (row.cuts or target in self.active):
            needed.remember_left(event)

    def cleared(self, grad: Allocation) -> None:
        """Record that `tape.zero()`, of whatever tape, clears a gradient that this tape follows."""
        dst = next(whole_memory(a) for a in self.arrays.values() if a.allocation is grad)
        self.host_event("zero_", dst, None, 0, lambda: None, memory.caller_where())

    def follows(self, arrays: Iterable[array]) -> bool:
        """True if any of this memory is on an active path, or has asked for a gradient."""
        return not self.muted and any(self.log.follows(a.allocation) for a in arrays)

    def opaque_event(
        self,
        label: str,
        arrays: Sequence[array],
        written: Sequence[array],
        perform: Callable[[], None],
        reason: str,
        place: object,
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
                self.needed.notes(a.allocation, watch=False).begun = True
                if is_float_memory(a):
                    self.active[a.allocation] = None
            self.needed.keep_before(event)
            for a in written:
                a.allocation.about_to_write(a.span, label, None, self)
            perform()
            self.events.append(event)
        return event

    def values_written(
        self, target: Allocation, offset: int, values: XpArray, sources: tuple[HostRead, ...], where: Where | None
    ) -> None:
        """Called when NumPy has written values to memory of an array, by its raw address, while this tape records."""
        if not self.muted:
            self.host.written(target, offset, values, sources, where)

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
                    self.log.activate(a, "record_func")
            kept = {id(a) for a in only_read}
            event.reads = tuple(a.span for a in arrays if id(a) in kept)
            event.writes = tuple(a.span for a in arrays if id(a) not in kept)
            for earlier in takewhile(lambda e: e.noted, reversed(self.events)):
                if any(s.overlaps(earlier.writes[0]) is not False for s in event.writes):
                    earlier.sources = ()  # it belongs to the step whose adjoint the callback is
            self.events.append(event)
            self.needed.remember_left(event)

    # ---- as a watcher of memory

    @property
    def deaf(self) -> bool:
        """True if writes need not be reported: the walk is refused already, or the tape is muted."""
        return self.muted or (bool(self.needed.conflicts) and self.keep == "needed")

    def foreign_write(self, span: Span, what: str, where: Where | None) -> None:
        """Called before bytes change that this tape does not record."""
        if not self.deaf:
            self.needed.foreign_write(span, what, where)

    def exposing(self, allocation: Allocation) -> None:
        """Called when the address of memory leaves our hands."""
        self.needed.exposing(allocation)


def _refuse_crowd(dst: array, event: Event) -> None:
    if dst.span.self_overlapping:
        text = f"{event.kind} to {dst.label}, of which several elements are one number in memory."
        why = "Which of the values stays is a matter of luck, and so is its gradient."
        instead = "y = wb.zeros(x.shape, dtype=x.dtype); wb.copy(y, values)"
        raise GradientError(text, slug="race", where=event.where, why=why, instead=instead)


def _crossed(tape: Recording) -> GradientError:
    text = "this tape and another were open at once, and the one that was opened first was closed first."
    where = tape.events[-1].where if tape.events else None
    why = "Each launch went to the tape that was opened last, whosever it was."
    instead = "with wb.Tape() as tape:   closed before the other is opened; tasks of asyncio have their own"
    return GradientError(text, slug="tapes-crossed", where=where, why=why, instead=instead)


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
    """Raise LaunchError [record-func] for a callback that would fail in the walk, [vmap] in a mapped function."""
    capture_log.refuse_mapped("record_func() is called.")
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


@dataclass(frozen=True)
class EarlierGradient:
    """A gradient added to an earlier one: of this tape (`again`), of a leaf that `moved`, or of a `chained` tape.

    where   the line of the backward that added to it.
    """

    again: bool
    moved: bool
    chained: bool
    where: Where | None


class EarlierGradients:
    """Leaves of a tape whose gradient the last backward added to another (`piled`), or that was `read_early`."""

    def __init__(self, events: list[Event], tape: weakref.ref[Any]) -> None:
        self.events, self._tape = events, tape
        self.clear()

    def clear(self) -> None:
        """Forget all leaves."""
        self.piled: dict[Allocation, EarlierGradient] = {}
        self.read_early: dict[Allocation, None] = {}

    def note(self, a: Allocation, blank: bool, chained: bool) -> None:
        """Note the state of a leaf's gradient before its adjoint is added. `blank`: the gradient is all zeros."""
        grad = a.gradient()
        if self.read_too_early(a):
            self.read_early[a] = None
        self.piled.pop(a, None)
        when, by = grad.publisher
        if when and not blank:
            self.piled[a] = EarlierGradient(by is self._tape, grad.stood_at != a.version, chained, caller_where())
        grad.stood_at = a.version

    def read_too_early(self, a: Allocation) -> bool:
        """True if this gradient was read after the tape's last event although no backward had published since."""
        grad = a.grad
        if grad is None or not grad.publisher[0] < self.events[-1].id < grad.read_at:
            return False
        return grad.user_written_mask(grad.span()) is None

    def is_piled(self, a: Allocation) -> bool:
        """True if the gradient of `a` is a sum that this tape published, not written by the user since."""
        grad = a.grad
        if a not in self.piled or grad is None or grad.publisher[1] is not self._tape:
            return False
        return grad.user_written_mask(grad.span()) is None
