"""Allocations: whole buffers, which of them an address belongs to, and who is told before bytes change.

A known range of addresses has exactly one live allocation, so two arrays share memory if and only if they share an
Allocation and their Spans overlap. Gradients mirror memory: an allocation has at most one gradient allocation, laid out
element for element like it. Every write goes through `Allocation.about_to_write` before the bytes change.
"""

from __future__ import annotations

import itertools
import linecache
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, Protocol, TypeVar

import numpy as np

from ..device import Device, XpArray, catch_up, cpu, get_device, let_follow, xp
from ..display import bytes_text
from ..errors import LaunchError, Where
from . import capture_log
from .interval_index import NO_SPANS, SpanIndex, WeakSpanSet
from .span import AddressedMemory, AddressRanges, Span, byte_entries

LOCK = threading.RLock()
"""Held while a launch, a host write, a recording or a reverse walk touches memory."""
if hasattr(os, "register_at_fork"):  # a forked child has no thread that would ever let go of it
    os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)

LARGE_FROM, LARGE_PAGE = 1 << 22, 1 << 21  # bytes: from where NumPy asks for large pages, and of one of them

_ids = itertools.count()
clock = itertools.count(1)  # orders recordings, publications and readings of all tapes
asks = 0  # how often `required` or `retained` of any allocation has changed


# ---- allocations


class Placed(Protocol):
    """An array, as far as it is known here: where it lies."""

    allocation: Allocation
    device: Device

    @property
    def label(self) -> str: ...
    @property
    def span(self) -> Span: ...


class Recorder(Protocol):
    """A tape that is recording: it gets every host write as an event (`host_event`)."""

    alone: Sequence[weakref.ref[Any]]  # the `watchers` of memory that no other tape watches

    def crossed(self, span: Span, run: Any) -> None:
        """Called before this tape overwrites bytes of `span`, which another tape wrote during `run`."""


class Watcher(Protocol):
    """Interface of a tape that is told before the bytes of an allocation change: one of its `watchers`."""

    def foreign_write(self, span: Span, what: str, where: Where | None) -> None:
        """Called before bytes of `span` are changed by something that this tape does not record.

        `where`: the line that does it; None: ask `caller_where()`, which takes longer than many a launch.
        """

    @property
    def deaf(self) -> bool:
        """True if `foreign_write` would do nothing now."""
        ...

    def exposing(self, allocation: Allocation) -> None:
        """Called before the raw address of the allocation is first given to foreign code."""


class Allocation:
    """One owner's whole buffer. Identity is owner and address; compare with `is`.

    owner        keeps the memory alive; None for a bare pointer.
    version      goes up before every write.
    exposed      foreign code has the raw address: bytes may change without a call of ours.
    watchers     tapes to tell before bytes change.
    required     spans the user asked gradients of (`requires_grad`); `retained`: those to keep (`retain_grad`);
                 `asked`: True if there is any of either.
    grad         the published gradient memory, laid out element for element like this one, or None so far.
    names        labels for pictures: name -> span.
    grad_notes   span -> a warning, given once when the gradient of these bytes is read and is zero.
    blank        the version at which it was all zeros, if it is known; else -1.
    origins      (span, run of a tape): the spans that a tape wrote last, from something with `requires_grad`.
    awaited      borders (`tapes.cross_tape`) that may make the gradient incomplete: its next reader is warned of each.
    grad_scale   bytes of gradient per byte here: 2 for float16 (its gradient is float32), else 1; None: not fixed yet.
    """

    is_gradient = False
    gradient_view: Any = None  # only gradient memory has one
    rows: Any = None  # of memory that stands for a row in `vmap`: where the rows are
    version, blank, asked = 0, -1, False
    required: WeakSpanSet = NO_SPANS
    retained: WeakSpanSet = NO_SPANS
    watchers: Sequence[weakref.ref[Any]] = ()
    grad: GradientMemory | None = None
    grad_scale: int | None = None
    origins: SpanIndex[tuple[Span, Any]] | None = None
    awaited: Sequence[Any] = ()
    _bytes: Any = None

    def __init__(self, owner: object, address: int, nbytes: int, device: Device, exposed: bool):
        self.id = next(_ids)
        self.owner, self.address, self.nbytes, self.device = owner, address, nbytes, device
        self.exposed = exposed
        self.names: dict[str, Span] = {}
        self.grad_notes: dict[Span, str] = {}

    def __repr__(self) -> str:
        return f"m{self.id}"

    def span(self) -> Span:
        """A span of all bytes of the allocation, one byte an element."""
        return Span(self, 0, (self.nbytes,), (1,), 1)

    # ---- bytes

    @property
    def bytes(self) -> Any:
        """All bytes, as a one-dimensional uint8 array of the device's array module."""
        if self._bytes is None:
            self._bytes = self._map()
        return self._bytes

    def _map(self) -> Any:
        if self.device.is_cuda:
            cupy = xp(self.device)
            memory = cupy.cuda.UnownedMemory(self.address, self.nbytes, self.owner, self.device.ordinal)
            return cupy.ndarray((self.nbytes,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))
        if self.nbytes == 0:
            return np.zeros(0, np.uint8)
        return np.asarray(AddressedMemory(self.address, (self.nbytes,), None, 1, self.owner))

    def window(self, dtype: np.dtype, shape: tuple[int, ...], offset: int, strides: tuple[int, ...]) -> Any:
        """A strided NumPy (CuPy) view of the bytes; `offset` and `strides` in bytes."""
        if self.device.is_cuda:
            raw = self.bytes
            catch_up(self.device)
            return xp(self.device).ndarray(shape, dtype, raw.data + offset, strides)
        return np.ndarray(shape, dtype, self.bytes, offset, strides)

    def expose(self) -> None:
        """Call before giving the raw address away: tells watching tapes, once. Raises LaunchError [capture], [vmap]."""
        capture_log.refuse("Memory is shown to others")
        self.refuse_rows()
        if self.exposed:
            return
        with LOCK:
            for ref in self.watchers:
                if (tape := ref()) is not None:
                    tape.exposing(self)
            self.exposed = True

    def refuse_rows(self) -> None:
        """Raises LaunchError [vmap] if this memory stands for a row in the function that runs: it has no values."""
        if self.rows is not None and self.rows.batch.open:
            text, instead = "the host looks at an array that stands for a row.", "the same line on what vmap returns"
            raise self.rows.batch.refusal(text, "The function is called once for all rows: it has no values.", instead)

    # ---- writes

    def watch(self, tape: Watcher) -> None:
        """Add a tape to those that are told before bytes change."""
        own = weakref.ref(tape)
        if not self.watchers:
            self.watchers = [own]
        elif own not in self.watchers:
            self.watchers = [*[ref for ref in self.watchers if ref() is not None], own]

    def about_to_write(self, span: Span, what: str, where: Where | None = None, by: Recorder | None = None) -> None:
        """Call under LOCK before bytes of `span` change. `by` is the tape that records this write, if one does.

        Every other watching tape is told (it may keep the old bytes, or raise to refuse the write).
        """
        if (script := capture_log.told.script) is not None:
            script.about_to_write(self, what)
        if capture_log.opened is not None:
            self.about_to_be_noted()
        for ref in self.watchers:
            tape = ref()
            if tape is not by and tape is not None and not _silence:
                tape.foreign_write(span, what, where)
        self.version += 1
        if self.origins:
            self.forget_origins(span, by)
        if capture_log.opened is not None and (notes := capture_log.active_capture()) is not None:
            notes.written.setdefault(self, {})[span] = what

    def about_to_be_noted(self) -> None:
        """Snapshot this memory for an open capture that will undo its block; call before its bytes change."""
        notes = capture_log.opened
        if notes is not None and notes.before is not None and notes.thread == threading.get_ident():
            notes.remember(self)

    def remembered(self) -> tuple:
        """A snapshot for `put_back`: the bytes, whether they are all zeros, origins and notes."""
        return self.bytes.copy(), self.blank == self.version, self._origins_now(), dict(self.grad_notes)

    def put_back(self, state: tuple) -> None:
        """Restore a snapshot that `remembered` returned; it can be restored again."""
        kept, blank, self.origins, self.grad_notes = state
        self.bytes[...] = kept
        self.version += 1
        if blank:
            self.blank = self.version
        self.origins = self._origins_now()  # `state` may be put back again

    def forget_origins(self, span: Span, by: Recorder | None = None) -> None:
        """Drop `origins` in these bytes, which are overwritten; calls `by.crossed` first for each that may overlap."""
        assert self.origins is not None
        if len(self.origins.ends) == 1:  # nearly always, and all of it
            ((part, run),) = self.origins.ends
            if span.contains(part):
                if by is not None:
                    by.crossed(part, run)
                self.origins = None
                return
        for part, run in self.origins.met(span):
            if by is not None:
                by.crossed(part, run)
            rest = part.without(span)
            if rest != [part]:
                self.origins.remove((part, run))
                for one in map(Span.weak, rest):
                    self.origins.put((one, run), one)

    def note_origin(self, span: Span, run: object, live: bool) -> None:
        """Make `run` the origin of these bytes, written last by its tape; live=False (no gradient): they have none."""
        if self.origins is None:
            self.origins = SpanIndex.alone((span.weak(), run), span.weak()) if live else None
            return
        for origin in self.origins.near(span):
            if span.contains(origin[0]):
                self.origins.remove(origin)
        if live:
            self.origins.put((span.weak(), run), span.weak())

    def _origins_now(self) -> SpanIndex[tuple[Span, Any]] | None:
        return self.origins.copy() if self.origins else None

    # ---- gradients

    def mark(self, kind: str, spans: Iterable[Span]) -> None:
        """Ask for the gradients of spans: as "required", or as "retained"."""
        if getattr(self, kind) is NO_SPANS:
            setattr(self, kind, WeakSpanSet())
        for span in spans:
            getattr(self, kind).add(span)
        self.note_asked()

    def note_asked(self) -> None:
        """Update `asked`; call when `required` or `retained` has changed."""
        global asks
        asks += 1
        self.asked = bool(self.required.ends or self.retained.ends)

    def gradient(self) -> GradientMemory:
        """The gradient's allocation, created as zeros on first call."""
        self.refuse_rows()
        if self.grad is None:
            if self.grad_scale is None:
                self.grad_scale = 1
            notes = capture_log.active_capture()
            lasting = notes is None or self not in notes.made
            self.grad = _allocated(GradientMemory, self.nbytes * self.grad_scale, self.device, True, lasting)
            self.grad._of = weakref.ref(self)
        return self.grad

    def gradient_span(self, span: Span) -> Span:
        """The span of the gradient memory that holds the gradient of `span`."""
        memory = self.gradient()
        k = self.grad_scale or 1
        return Span(memory, span.offset * k, span.shape, tuple(s * k for s in span.strides), span.itemsize * k)


A = TypeVar("A", bound=Allocation)


class GradientMemory(Allocation):
    """The gradient of an allocation, made by `Allocation.gradient`.

    written        spans written through this API since `mark_published`.
    publisher      when a tape last published it, and which (a weak reference).
    gradient_view  the copy that `numpy()` returned; `previous_view`: the one before.
    read_at        clock of the last read; `stood_at`: the primal's version when last published.
    borders        weak references to those (`tapes.cross_tape`) for which it waits to be handed on.
    """

    is_gradient = True
    publisher: tuple[int, Any] = (0, None)
    previous_view: Any = None
    read_at = stood_at = 0
    borders: Sequence[weakref.ref[Any]] = ()
    _of: weakref.ref[Allocation] | None = None
    _published: Any = None
    _by_hand: np.ndarray | None = None

    def __init__(self, owner: object, address: int, nbytes: int, device: Device, exposed: bool):
        super().__init__(owner, address, nbytes, device, exposed)
        self.written: dict[Span, None] = {}

    @property
    def of(self) -> Allocation | None:
        """The allocation it is the gradient of; None once that is gone."""
        return None if self._of is None else self._of()

    def expose(self) -> None:
        """As `Allocation.expose`; what is published by then is kept, to find later writes."""
        capture_log.refuse("Memory is shown to others")
        if self.exposed:
            return
        self.close_view()
        with LOCK:
            super().expose()
            self._published = self.bytes.copy()

    def about_to_write(self, span: Span, what: str, where: Where | None = None, by: Recorder | None = None) -> None:
        """As `Allocation.about_to_write`; the bytes count as written by the user until `mark_published`."""
        super().about_to_write(span, what, where, by)
        self.close_view()
        self.written[span] = None
        if (primal := self.of) is not None:
            primal.grad_notes.clear()

    def close_view(self) -> None:
        """Write back the copy that `numpy()` returned, for the last time."""
        if self.gradient_view is not None:
            self.gradient_view.close(self)

    def remembered(self) -> tuple:
        """As `Allocation.remembered`, and what was published and written since."""
        return super().remembered(), (dict(self.written), self._by_hand, self.publisher, self.read_at)

    def put_back(self, state: tuple) -> None:
        """As `Allocation.put_back`."""
        memory, marks = state
        super().put_back(memory)
        self.mark_published()
        self.written, self._by_hand, self.publisher, self.read_at = marks

    def about_to_change_by_hand(self, changed: np.ndarray) -> None:
        """Call before bytes (mask `changed`) become what the user wrote into a NumPy copy."""
        for ref in self.watchers:
            if (tape := ref()) is not None and not _silence:
                tape.foreign_write(self.span(), "a write through numpy()", None)
        self.version += 1
        self._by_hand = changed if self._by_hand is None else self._by_hand | changed
        if (primal := self.of) is not None:
            primal.grad_notes.clear()

    def mark_published(self, written: Iterable[Span] = ()) -> None:
        """The bytes now count as published by a tape, not written by the user, except `written`."""
        self.written = dict.fromkeys(written)
        self._by_hand = None
        if self.exposed and self._published is not None:
            self._published[...] = self.bytes  # a new buffer would cost more in fresh pages than the copy
        elif self.exposed:
            self._published = self.bytes.copy()

    def forget_written(self, span: Span) -> None:
        """The bytes of `span` no longer count as written by the user (they were cleared)."""
        rest = self.user_written_mask(self.span()) if self.written or self._by_hand is not None else None
        self.written.clear()
        self._by_hand = None
        if rest is not None:
            byte_entries(span, rest)[...] = False
            self.written.update((s, None) for s in _runs(self, rest))
        if self._published is not None:
            byte_entries(span, self._published)[...] = byte_entries(span, self.bytes)

    def user_written_mask(self, span: Span) -> np.ndarray | None:
        """Mask of the elements of `span` with a byte that the user wrote since `mark_published`.

        A bool array of the span's shape on the host, or None if nowhere. Writes through our API count whatever they
        wrote; writes through a raw view (`numpy()`, `ptr`) count where the bits now differ from what was published.
        """
        mask = np.zeros(self.nbytes, bool)
        if self.gradient_view is not None:
            self.gradient_view.pull(self)
        if self._by_hand is not None:
            mask |= self._by_hand
        for written in self.written:
            if written.overlaps(span) is not False:
                byte_entries(written, mask)[...] = True
        if self._published is not None:
            changed = self._published != self.bytes
            mask |= changed.get() if self.device.is_cuda else changed
        touched = byte_entries(span, mask).any(axis=-1)
        return touched if touched.any() else None


def _runs(memory: Allocation, mask: np.ndarray) -> list[Span]:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.view(np.int8), [0]))))
    return [Span(memory, int(a), (int(b - a),), (1,), 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _on_large_pages(make: Callable[..., np.ndarray], nbytes: int) -> np.ndarray:
    """A uint8 array of `nbytes`; from LARGE_FROM on it begins at a large page: stencils are a tenth faster."""
    if nbytes < LARGE_FROM:
        return make(nbytes, np.uint8)
    whole = make(nbytes + LARGE_PAGE, np.uint8)
    address = whole.__array_interface__["data"][0]
    return np.asarray(AddressedMemory(address + -address % LARGE_PAGE, (nbytes,), None, 1, whole))


def next_id() -> int:
    """A number that is larger than the `id` of all allocations made so far, and smaller than those to come."""
    return next(_ids)


def allocate(nbytes: int, device: Device | str | None = None, zeroed: bool = True) -> Allocation:
    """A new allocation. In an open capture each replay clears `zeroed` memory again."""
    return _allocated(Allocation, nbytes, device, zeroed, False)


def _allocated(kind: type[A], nbytes: int, device: Device | str | None, zeroed: bool, lasting: bool) -> A:
    """`allocate` for a class of allocations; with `lasting`, replays do not clear it."""
    where = get_device(device)
    try:
        if where.is_cuda:
            cupy = xp(where)
            with cupy.cuda.Device(where.ordinal):
                raw = (cupy.zeros if zeroed else cupy.empty)(nbytes, np.uint8)
            owner = raw.data.mem
        else:
            owner = raw = _on_large_pages(np.zeros if zeroed else np.empty, nbytes)
    except (MemoryError, ValueError, OverflowError):
        text = f"{bytes_text(nbytes)} of memory cannot be had on {where}."
        why = "It is the product of the shape and the bytes of one element."
        raise LaunchError(text, slug="memory", why=why, instead="a smaller shape") from None
    made = kind(owner, capture_log.address(raw), nbytes, where, exposed=False)
    made._bytes = raw
    made.blank = 0 if zeroed else -1
    _register(made)
    if (notes := capture_log.active_capture()) is not None and not lasting:
        notes.made.add(made)
        notes.cleared.add(made)
        if zeroed:
            notes.steps.append(capture_log.clearing(raw))
    return made


# ---- which allocation is it


_ranges: dict[int, AddressRanges[Allocation]] = {}  # by the ordinal of the device


def _register(new: Allocation) -> None:
    if new.nbytes:
        with LOCK:
            _ranges.setdefault(new.device.ordinal, AddressRanges()).add(new)


def allocation_at(address: int, nbytes: int, device: Device, owner: object = None) -> Allocation:
    """The allocation of these bytes, known or new and exposed. Raises LaunchError [partial-overlap] at its border."""
    with LOCK:
        ranges = _ranges.setdefault(device.ordinal, AddressRanges())
        known = ranges.meeting(address, address + nbytes) if nbytes else []
        for other in known:
            same = owner is not None and other.owner is owner and other.address == address
            if same or (other.address <= address and address + nbytes <= other.address + other.nbytes):
                if other.owner is None and owner is not None:
                    other.owner = owner
                other.expose()
                return other
        if known:
            raise LaunchError(
                f"{nbytes} bytes at {address:#x} partly overlap {known[0]}, "
                f"which is {known[0].nbytes} bytes at {known[0].address:#x}.",
                slug="partial-overlap",
                why="Only one buffer that holds both would keep their gradients together.",
                instead="whole = wb.from_numpy(buffer), then slices of that array",
            )
        new = Allocation(owner, address, nbytes, device, exposed=True)
        _register(new)
        return new


def allocation_of(data: XpArray) -> tuple[Allocation, int]:
    """The allocation that a NumPy, CuPy or torch-backed array lies in, and the byte offset of its first element."""
    if isinstance(data, np.ndarray):
        owner, address, nbytes = _numpy_buffer(data)
        first = data.__array_interface__["data"][0]
        memory = allocation_at(address, nbytes, cpu, owner)
        return memory, (first - memory.address if data.size else 0)
    pointer = data.data  # CuPy
    device = get_device(f"cuda:{data.device.id}")
    memory = allocation_at(int(pointer.mem.ptr), int(pointer.mem.size), device, pointer.mem)
    return memory, int(pointer.ptr) - memory.address


def known_memory(data: np.ndarray) -> tuple[Allocation, int] | None:
    """(the CPU's allocation in which a NumPy array lies as a whole, its byte offset); None if no array is on it."""
    if not data.size or cpu.ordinal not in _ranges:
        return None
    low, high = np.lib.array_utils.byte_bounds(data)
    with LOCK:
        found = _ranges[cpu.ordinal].meeting(int(low), int(high))
    if len(found) != 1 or low < found[0].address or high > found[0].address + found[0].nbytes:
        return None
    return found[0], data.__array_interface__["data"][0] - found[0].address


def _numpy_buffer(data: np.ndarray) -> tuple[Any, int, int]:
    """Owner, address and size of the buffer behind a NumPy array: the root of its `.base` chain, or what that wraps."""
    root = data
    while isinstance(root.base, np.ndarray):
        root = root.base
    low, high = np.lib.array_utils.byte_bounds(root)
    if root.size == 0:
        low = high = root.__array_interface__["data"][0]
    for owner, address, nbytes in _behind(root.base):
        if address <= low and high <= address + nbytes:
            return owner, address, nbytes
    return root, int(low), int(high - low)


def _behind(base: Any) -> Iterable[tuple[Any, int, int]]:
    """The buffer that a NumPy array was made from: a torch tensor's storage, or anything with the buffer protocol."""
    if hasattr(base, "untyped_storage"):
        storage = base.untyped_storage()
        yield base, storage.data_ptr(), storage.nbytes()
    elif base is not None:
        try:
            whole = np.frombuffer(base, np.uint8)
        except (TypeError, ValueError, BufferError, AttributeError):
            return
        yield base, whole.__array_interface__["data"][0], whole.nbytes


# ---- who records


_stack: ContextVar[tuple[Any, ...]] = ContextVar("recorders", default=())  # of a thread, or a task of asyncio
heard: ContextVar[list[Any] | None] = ContextVar("heard", default=None)  # arrays that are read while nothing records
open_tapes: dict[Any, int] = {}
"""The tapes that are open, in whatever thread or task, and how often each."""


def push_recorder(tape: Recorder | None) -> None:
    """Make this the tape that records host writes and launches of this thread or task; None: nothing is recorded."""
    _stack.set((*_stack.get(), tape))


def pop_recorder(tape: Recorder | None) -> list[Any] | None:
    """Undo `push_recorder(tape)`. Returns the tapes opened since that are still open; None if this one is not, here."""
    stack = _stack.get()
    for i in range(len(stack) - 1, -1, -1):
        if stack[i] is tape:
            _stack.set((*stack[:i], *stack[i + 1 :]))
            return [t for t in stack[i + 1 :] if t is not None and t is not tape]
    return None


def recorder() -> Any:
    """The tape that records now in this thread or task, or None."""
    stack = _stack.get()
    return stack[-1] if stack else None


def recorders() -> list[Any]:
    """The open tapes of this thread or task that are not shut out by `unrecorded`, the innermost last."""
    stack = _stack.get()
    last = max((i for i, tape in enumerate(stack) if tape is None), default=-1)
    return list(stack[last + 1 :])


def tell_others(reads: Iterable[Any], writes: Iterable[Any]) -> None:
    """Tell the tapes of other threads and tasks of arrays read and written here, where no tape is open."""
    if (found := heard.get()) is not None:
        found += reads
    if open_tapes and not _stack.get():
        for tape in tuple(open_tapes):
            tape.host.note_outside(reads, writes, caller_where())


_silence: list[None] = []


@contextmanager
def silent() -> Iterator[None]:
    """Context in which no tape is told of writes: for code that restores all bytes. Needs LOCK."""
    _silence.append(None)
    try:
        yield
    finally:
        _silence.pop()


@contextmanager
def recorded_by(tape: Recorder | None) -> Iterator[None]:
    """Context in which this tape records, see `push_recorder`."""
    push_recorder(tape)
    try:
        yield
    finally:
        pop_recorder(tape)


def unrecorded() -> AbstractContextManager[None]:
    """Context in which nothing is recorded in this thread (watching tapes are still told of writes)."""
    return recorded_by(None)


def host_write(
    kind: str, dst: Placed, src: Placed | None, value: object, perform: Callable[[], None], sources: tuple = ()
) -> None:
    """Write to the array `dst` from the host: as an event of the recording tape, else announced to watching tapes."""
    if (script := capture_log.told.script) is not None and script.host_write(kind, dst, src, value, sources):
        return
    with LOCK:
        if capture_log.opened is not None:
            capture_log.reads(*((dst,) if src is None else (dst, src)))
        tape = recorder()
        if tape is not None:
            tape.host_event(kind, dst, src, value, perform, caller_where(), sources)
        else:
            dst.allocation.about_to_write(dst.span, kind)
            perform()
            tell_others(() if src is None else (src,), (dst,))
        let_follow(dst.device)


def about_to_write(spans: Iterable[Span], what: str, by: Recorder | None) -> None:
    """Call `Allocation.about_to_write` for the spans that a launch is about to change."""
    alone = None if by is None else by.alone
    for span in spans:
        a = span.allocation
        told = a.watchers and a.watchers is not alone
        if told or a.origins is not None or a.is_gradient or capture_log.opened is not None:
            a.about_to_write(span, what, None, by)
        else:
            a.version += 1


_PACKAGE = __name__.partition(".")[0]
between = {_PACKAGE, "contextlib"}
"""Packages whose frames lie between the user's program and us."""


def caller_where() -> Where | None:
    """The line of the user's program that called us."""
    frame = caller_frame()
    if frame is None:
        return None
    code = frame.f_code
    text = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals)
    return Where(code.co_filename, frame.f_lineno, text=text.rstrip("\n"), function=code.co_name)


def caller_frame() -> FrameType | None:
    """The innermost frame of the user's program: outside this package, and of what lies `between`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_globals.get("__name__") or "").partition(".")[0] in between:
        frame = frame.f_back
    return frame
