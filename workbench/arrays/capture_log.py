"""The log of a capture: what changes memory is done at once and, while a capture is open, noted for its replays.

The one idea: all that a capture may contain changes bytes through `native`, `move`, `add` or `do`, on buffers that are
there from then on; a replay repeats those calls and no others. What reads memory on the host, or runs compiled code
outside a launch and a `backward`, is refused while a capture is open: a replay could not repeat Python code.
"""

from __future__ import annotations

import array
import struct
import threading
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ..config import config
from ..device import XpArray
from ..errors import LaunchError
from ..kernels.compile import c_compiler, thread_pool
from ..kernels.compile.platform import ctypes

LARGE = 1 << 16  # bytes from which several threads move them faster than one
_PAIR, _CALL = struct.Struct("=QQ"), struct.Struct("=QQqqq")


NativeCall = namedtuple("NativeCall", "kernel args begin end team")
"""One native call, as the thread pool takes it: kernel(args, begin, end), both addresses, for `team` threads."""


def block_of(packed: bytes) -> tuple[array.array, int]:
    """Memory of its own that holds the bytes `packed`, the arguments of a call, and its address."""
    block = array.array("B", packed)
    return block, block.buffer_info()[0]


def row_of(calls: Iterable[NativeCall]) -> tuple[array.array, int]:
    """Native calls one behind the other in memory, as `thread_pool.replay` takes them, and its address."""
    return block_of(b"".join(_CALL.pack(*call) for call in calls))


class Queued:
    """A step that only queues work on one GPU and reads nothing on the host, so a CUDA graph may include it."""

    def __init__(self, call: Callable[[], Any], gpu: int):
        self.call, self.gpu = call, gpu

    def __call__(self) -> None:
        self.call()


def gpu_of(*data: XpArray) -> int | None:
    """The ordinal of the GPU on which all these arrays are; None for the CPU, for several, or if no capture is open."""
    if opened is None:
        return None
    found = {getattr(d.device, "id", None) for d in data}
    return found.pop() if len(found) == 1 else None


def step(call: Callable[[], Any], gpu: int | None) -> Any:
    """A call as a step of a capture."""
    return call if gpu is None else Queued(call, gpu)


class CaptureRecorder:
    """Record of an open capture: its steps, and what they read, wrote and made."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.steps: list[Any] = []  # NativeCall, Queued or another function without arguments, in order
        self.kept: list[Any] = []  # what the calls point into
        self.arrays: dict[Any, None] = {}  # that they read, and write
        self.checks: list[Callable[[], Any]] = []  # after a replay: the error of a launch, or None
        self.unchanged: dict[Any, Callable[[], None]] = {}  # raise before a replay if what was taken then is outdated
        self.fixed: dict[Any, str] = {}  # arrays whose values decide about races -> in which kernel
        self.written: dict[Any, dict[Any, str]] = {}  # allocation -> span -> by what
        self.published: dict[Any, Any] = {}  # gradient memory -> the tape that published it
        self.made: set[Any] = set()  # allocations
        self.cleared: set[Any] = set()  # gradient memories
        self.first: dict[Any, str] = {}  # memory -> what the block did to it first: "read" it or wrote it "whole"
        self.tapes: dict[Any, dict[Any, list]] = {}  # tape -> what the block had written before: memory -> spans
        self.runs: set[Any] = set()  # of these tapes
        self.begun: set[Any] = set()  # tapes that were made or reset
        self.zeroed: dict[Any, list[int]] = {}  # tapes that were not, but zeroed -> behind how many steps
        self.expected_cleared: dict[Any, Any] = {}  # gradient memory that such a tape will have cleared -> the tape
        self.asked: dict[Any, None] = {}  # allocations of the tapes that were walked back
        self.scratch: Any = None  # of a GPU, for all launches: they follow each other and leave nothing in it
        self.before: dict[Any, Any] | None = None  # memory -> what it was before the block; None: not to be put back
        self.late = False  # from here on launches are done by the replays only, see `may_wait`
        self.allowed = False
        self.asleep = False

    def remember(self, memory: Any) -> None:
        """Snapshot memory that is about to change, once, where the block is undone at its end (`before`)."""
        if self.before is not None and memory not in self.before and memory not in self.made:
            self.before[memory] = memory.remembered()

    def use(self, memory: object, how: str) -> None:
        """Note the first use of a memory: `how` is "read" or "whole" (written whole, but not by `Tape.zero`)."""
        self.first.setdefault(memory, how)


opened: CaptureRecorder | None = None  # in whatever thread; `active_capture()` tells whether in this one


class _Told(threading.local):
    """By thread the `tapes.CallScript` or `tapes.vmap.Batch` that is told of its launches and writes; mostly None."""

    script: Any = None


told = _Told()


@contextmanager
def following(script: object) -> Iterator[None]:
    """Context in which a script is told of what this thread launches and writes; None: nobody is."""
    before, told.script = told.script, script
    try:
        yield
    finally:
        told.script = before


written_list: Any = None
"""The `tapes.backward_cache.CallList` that is being written, under `allocation.LOCK`; None as a rule."""


def active_capture() -> CaptureRecorder | None:
    """The capture that is open in this thread and not paused by `paused`; else None."""
    if opened is None or opened.asleep or opened.thread != threading.get_ident():
        return None
    return opened


def may_wait() -> bool:
    """True if a launch can be deferred to the replays: the block is undone anyway, and no tape was used in it."""
    notes = active_capture()
    return notes is not None and notes.before is not None and not notes.tapes and not notes.begun


def wait(call: Callable[[], Any]) -> None:
    """Defer this launch, and all later ones of the block, to the replays, where it runs as if outside of a capture."""
    notes = active_capture()
    assert notes is not None
    notes.late = True
    notes.steps.append(call)


def start() -> CaptureRecorder:
    """Open a capture. Raises LaunchError [capture] in an open one."""
    global opened
    if opened is not None:
        raise LaunchError(
            "a capture inside a capture", slug="capture", instead="with wb.capture() as graph: ...   once, around both"
        )
    opened = CaptureRecorder()
    return opened


def stop() -> None:
    """Close the capture."""
    global opened
    opened = None


def refuse(what: str, instead: str = "the same line after the `with wb.capture()` block") -> None:
    """Raises LaunchError [capture] if a capture is open in this thread."""
    if active_capture() is not None:
        jit = getattr(told.script, "name", None)
        text = f"{what} inside {'wb.capture()' if jit is None else f'@wb.jit {jit}'}."
        if jit is not None and "wb.capture()" in instead:
            instead = "the same line outside of the function, or @wb.jit(off=True)"
        why = "A replay repeats launches, host writes and backward(), not what Python does between them."
        raise LaunchError(text, slug="capture", why=why, instead=instead)


def refuse_mapped(what: str) -> None:
    """Raises LaunchError [vmap] in a function that `vmap` calls once for all rows."""
    if (refusal := getattr(told.script, "refusal", None)) is not None:
        raise refusal(what, "The function is called once for all rows.", "that step around vmap")


@contextmanager
def _set(switch: str) -> Iterator[None]:
    notes = active_capture()
    if notes is None:
        yield
        return
    before = getattr(notes, switch)
    setattr(notes, switch, True)
    try:
        yield
    finally:
        setattr(notes, switch, before)


allowed = partial(_set, "allowed")
"""Context in which compiled code may run although a capture is open: it is noted."""
paused = partial(_set, "asleep")
"""Context in which the open capture notes nothing."""


@contextmanager
def interrupted() -> Iterator[None]:
    """Context in which no capture is open, so that another can be opened."""
    global opened
    around, opened = opened, None
    try:
        yield
    finally:
        opened = around


def check() -> bool:
    """True if an open capture notes what is about to run. Raises LaunchError [capture] where that may not run."""
    notes = active_capture()
    if notes is not None and not notes.allowed:
        refuse("Something that is neither launch() nor backward()")
    return notes is not None


def keep(*owners: object) -> None:
    """Keep these objects alive as long as the open capture, whose calls point into their memory."""
    if (notes := active_capture()) is not None:
        notes.kept += owners


def reads(*arrays: Any) -> None:
    """Note that an open capture meets these arrays, and keep them alive as long as it."""
    if (notes := active_capture()) is not None:
        notes.arrays.update(dict.fromkeys(arrays))
        for a in arrays:
            notes.use(a.allocation, "read")


def do(call: Callable[[], Any], gpu: int | None = None) -> None:
    """Call a function that changes memory, now and in each replay; `gpu`: of the GPU on which it only queues work."""
    notes = active_capture()
    if notes is None:
        call()
        return
    with paused():
        call()
    notes.steps.append(step(call, gpu))


def native(kernel: int, args: bytes, begin: int, end: int, team: int) -> None:
    """Run compiled code `kernel(args, begin, end)`; `team`: the number of threads, see `thread_pool.team`."""
    thread_pool.parallel()(kernel, args, begin, end, team)
    thread_pool.after_call()
    if (notes := active_capture()) is not None:
        block, at = block_of(args)
        notes.kept.append(block)
        notes.steps.append(NativeCall(kernel, at, begin, end, team))
    elif written_list is not None:
        written_list.native(kernel, args, begin, end, team)


def _team(size: int) -> int:
    """The team for moving `size` bytes, encoded by `thread_pool.team`; 1 below LARGE."""
    return thread_pool.team(config.threads, thread_pool.PIECES if size >= 64 * LARGE else 1) if size >= LARGE else 1


def move(to: XpArray, source: XpArray | None = None) -> None:
    """Copy bytes, or clear them: `to` and `source` are one-dimensional arrays of bytes."""
    if opened is None and len(to) < LARGE:
        _move(to, source)
    elif not (isinstance(to, np.ndarray) and compiles()):
        do(lambda: _move(to, source), gpu_of(to) if source is None else gpu_of(to, source))
    else:
        keep(to, source)
        args = _PAIR.pack(address(to), 0 if source is None else address(source))
        native(thread_pool.kernel_address("wb_move"), args, 0, len(to), _team(len(to)))


def _move(to: XpArray, source: XpArray | None) -> None:
    to[...] = 0 if source is None else source


def clear(view: XpArray) -> None:
    """Set a view of floats to zero."""
    if opened is not None and isinstance(view, np.ndarray) and view.flags.c_contiguous:
        return move(view.reshape(-1).view(np.uint8))
    do(lambda: view.__setitem__(..., 0), gpu_of(view))
    if written_list is not None:
        written_list.clear(view)


def clearing(data: XpArray) -> Any:
    """A step that clears these bytes in each replay; nothing is cleared now."""
    if not (isinstance(data, np.ndarray) and compiles()):
        return step(lambda: _move(data, None), gpu_of(data))
    block, at = block_of(_PAIR.pack(address(data), 0))
    keep(data, block)
    return NativeCall(thread_pool.kernel_address("wb_move"), at, 0, len(data), _team(len(data)))


def add(to: XpArray, values: XpArray) -> None:
    """to += values: one-dimensional arrays of floats of one dtype."""
    if opened is None and to.nbytes < LARGE:
        to += values
    elif not (isinstance(to, np.ndarray) and compiles() and to.itemsize in (4, 8)):
        do(lambda: to.__iadd__(values), gpu_of(to, values))
    else:
        keep(to, values)
        kernel = thread_pool.kernel_address("wb_add32" if to.itemsize == 4 else "wb_add64")
        native(kernel, _PAIR.pack(address(to), address(values)), 0, len(to), _team(to.nbytes))


def merge(at: int, dtype: np.dtype, values: XpArray) -> None:
    """Add the bytes `values`, floats of `dtype`, to as many at an address on the CPU, and clear them."""
    if opened is not None:
        keep(values)
    kernel = thread_pool.kernel_address("wb_merge32" if dtype.itemsize == 4 else "wb_merge64")
    native(kernel, _PAIR.pack(at, address(values)), 0, len(values) // dtype.itemsize, _team(len(values)))


def copy(values: XpArray) -> Any:
    """A copy of an array; each replay of an open capture copies into the same array again."""
    made = values.copy()
    if opened is not None and (notes := active_capture()) is not None:
        notes.steps.append(step(lambda: made.__setitem__(..., values), gpu_of(made, values)))
    return made


def compiles() -> bool:
    """True where memory on the CPU is moved by compiled code."""
    return config.backend != "numpy" and c_compiler.available()


def address(data: XpArray) -> int:
    """Address of the first byte of a NumPy or CuPy array."""
    if not isinstance(data, np.ndarray):
        return int(data.data.ptr)
    try:
        first: Any = data  # an eighth of the time of what follows
        return ctypes.addressof(ctypes.c_char.from_buffer(first))
    except (TypeError, ValueError, AttributeError):  # read-only, empty, or with gaps; no ctypes
        return data.__array_interface__["data"][0]
