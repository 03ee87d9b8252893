"""The backward cache: the reverse pass over the same launches is compiled to one list of native calls.

Where a tape has the same launches as an earlier one (`launch_cache`), its walk does the same, if the same memories are
seeded and ask for gradients, and no bytes had to be kept. The second walk notes its native calls, on private shadows;
later ones copy their seeds and the numbers of their launches there and run the list. All checks that refuse a walk are
made each time. Nothing here keeps an array alive.
"""

from __future__ import annotations

import struct
import weakref
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import capture_log, ports
from ..arrays.allocation import Allocation
from ..arrays.capture_log import NativeCall, block_of, row_of
from ..arrays.interval_index import SpanSet
from ..arrays.span import Span
from ..arrays.workspace import Shadow, Workspace, own_buffers
from ..config import config
from ..device import XpArray
from ..kernels.compile import thread_pool
from ..kernels.compile.platform import ctypes
from ..kernels.lru import RecentlyUsed
from ..kernels.types import Scalar, is_float
from .events import Event
from .needed_bytes import START
from .publish import publish
from .recording import Recording
from .reverse import walk

_PAIR = struct.Struct("=QQ")


class CallList:
    """Native calls in order, with the blocks and buffers that they point into, noted while they run, to run as one.

    Unlike a capture it refuses nothing: `whole` is False if something happened that is not in the list.
    """

    def __init__(self) -> None:
        self.calls: list[NativeCall] = []
        self.kept: list[Any] = []
        self.whole = True
        self.numbers: list[tuple[int, int, str, int]] = []  # event, position there, format ("": as it is), address
        self.shared: dict[Any, None] = {}  # what copies of sums per thread its calls use, and leave empty
        self.blocks: dict[int, list[int]] = {}  # by the number of a call that is one per worker: their arguments

    def native(self, kernel: int, packed: bytes, begin: int, end: int, team: int) -> None:
        """Note a call `kernel(packed, begin, end)`."""
        block, at = block_of(packed)
        self.kept.append(block)
        self.calls.append(NativeCall(kernel, at, begin, end, team))

    def share(self, shares: object, blocks: list[Any], room: object) -> None:
        """Note that the next call is a launch run as one call per worker, with these arguments and private sums."""
        self.kept += [blocks, room]
        self.shared[shares] = None
        self.blocks[len(self.calls)] = [at for _, at in blocks]

    def buffer(self, data: XpArray, address: int, clear: bool) -> None:
        """Keep this buffer alive for the list; with `clear`, zero it now and in each run."""
        self.kept.append(data)
        if clear:
            data[...] = 0
            self._clear(address, len(data))

    def clear(self, view: XpArray) -> None:
        """Note that this view of a buffer is set to zero; a view that is not contiguous makes the list incomplete."""
        self.whole = self.whole and view.flags.c_contiguous
        self._clear(view.__array_interface__["data"][0], view.nbytes)

    def _clear(self, address: int, nbytes: int) -> None:
        self.native(thread_pool.kernel_address("wb_move"), _PAIR.pack(address, 0), 0, nbytes, 1)

    def number(self, event: int, free: Any, block: int) -> None:
        """Note where a block of arguments holds a `VaryingArgument` of an event."""
        code = free.code if free.type.__class__ is Scalar else ""
        self.numbers.append((event, free.position, code, block + free.offset))

    def fill(self, arguments: list) -> None:
        """Write new numbers into the blocks. `arguments`: per event its flat arguments."""
        for event, k, code, at in self.numbers:
            value = arguments[event][k]
            data = struct.pack("=" + code, value) if code else value.tobytes()
            ctypes.memmove(at, data, len(data))

    @cached_property
    def row(self) -> tuple[Any, int]:
        """All calls, as the thread pool takes them, and the address."""
        return row_of(self.calls)

    def run(self) -> None:
        """Run all calls again. Raises what a signal handler raised meanwhile."""
        for sums in self.shared:
            sums.begin()
        thread_pool.replay()(self.row[1], len(self.calls))
        thread_pool.after_call()
        for sums in self.shared:
            sums.broken = False


MOST = 8  # lists, and signatures of which there is none yet, that are remembered
BYTES = 16 << 20  # of the shadows of one list: above, a walk takes longer than what a list saves

_known = RecentlyUsed(MOST)  # CompiledBackward, by the signatures of their walks


class CompiledBackward:
    """A compiled walk: its native calls, and the private shadows that hold its results. Memories are held weakly.

    calls     None for a walk that cannot be compiled, or was made once so far; `tried`: False of the latter.
    seeds     the uint8 arrays of the shadows that are seeded.
    results   (reference to a memory, its shadow's bytes, their address, scale).
    unreached as `Workspace.unreached`.
    writes    id of a memory in `results` -> [(number of the event, number of the write)] of all writes to it.
    """

    def __init__(self) -> None:
        self.calls: CallList | None = None
        self.tried = False
        self.runs = 0
        self.seeds: list[Any] = []
        self.results: list[tuple] = []
        self.unreached: frozenset[int] = frozenset()
        self.writes: dict[int, list[tuple[int, int]]] = {}

    def run(self, seeds: Workspace, tape: Recording) -> None:
        """Run the calls with these seeds and the numbers of this tape. The adjoints are in the shadows of `results`."""
        assert self.calls is not None
        self.runs += 1
        tape.alike = self.runs
        if self.calls.numbers:
            self.calls.fill([() if e.command is None else e.command.flat for e in tape.events])
        for data, shadow in zip(self.seeds, seeds.values(), strict=True):
            data[...] = shadow.data
        self.calls.run()

    def publish(self, tape: Recording) -> None:
        """Publish the adjoints in `results` into `.grad`, of the memories that the signature guards."""
        space = Workspace()
        space.unreached = self.unreached
        for ref, data, address, scale in self.results:
            a = ref()
            space[a] = shadow = object.__new__(Shadow)
            shadow.allocation, shadow.data, shadow.address, shadow.scale = a, data, address, scale
        publish(tape, space, {}, self.wrote)

    def wrote(self, tape: Recording, a: Allocation) -> tuple[SpanSet | None, dict[Span, None]]:
        """`publish.counted` of one memory in `results`, without the tally of the tape."""
        if a.id not in self.writes:
            return None, {}
        marks, stored = SpanSet(), {}
        for e, k in self.writes[a.id]:
            event = tape.events[e]
            plan = None if event.command is None else event.command.plan
            marks.add(event.writes[k])
            if plan is None or plan.writes[k][0] not in plan.accumulates_only:
                stored[event.writes[k]] = None
        return marks, stored


def forget() -> None:
    """Clear the cache."""
    _known.clear()


def signature(tape: Recording, seeds: Workspace) -> tuple | None:
    """The cache key of the walk of a tape; None unless it consists of cached launches and fills."""
    if not config.remember_launches or capture_log.opened is not None or tape.border.met:
        return None
    steps = []
    for event in tape.events:
        command = event.command
        if not all(kept.said == START and not kept.needs for kept in event.kept):  # an adjoint reads what was kept
            return None
        if command is None:
            if not event.kind.fills or event.sources or len(event.arrays) != 1:
                return None
            steps.append(event.arrays[0].serial)
        elif command.cached is not None:
            steps += (command.cached, event.reverse, *[command.flat[k].serial for k in command.program.array_positions])
        else:
            return None
    memories = dict.fromkeys([a.allocation for a in tape.arrays.values()])
    marks = [(a.id, a.asked, not a.required.spans, a.exposed) for a in memories]
    asks = bool(ports.gradient_takers)  # exposed memory may be a tensor's, whose library asks
    if any(a.retained.spans or (a.exposed and asks) for a in memories):
        return None
    return tuple(steps), tuple(marks), tuple([a.id for a in seeds])


def compiled_backward(tape: Recording, seeds: Workspace) -> CompiledBackward | None:
    """The compiled walk of a tape, compiled at the second walk; None at the first, and if it cannot be compiled."""
    key = signature(tape, seeds)
    if key is None:
        return None
    if (found := _known.find(key)) is None:
        _known.enter(key, CompiledBackward())
        return None
    if not found.tried:
        found.tried = True
        if all(_plain(event) for event in tape.events):
            _write_down(found, tape, seeds)
    return None if found.calls is None else found


def _plain(event: Event) -> bool:
    """True if the adjoint of an event does nothing but call compiled code on the event's arrays and their shadows."""
    back, command = event.reverse, event.command
    if command is None:
        return is_float(event.arrays[0].dtype)
    if command.plan.bits or command.declared:
        return False
    if back is None:
        return True
    return not (back.private or back.extremal or back.races or back.executable.form.backend != "c")


def _write_down(made: CompiledBackward, tape: Recording, seeds: Workspace) -> None:
    """Walk once, noting native calls and results in `made`; too large or incomplete ones are dropped."""
    calls = CallList()
    begun: list[tuple[Event, int]] = []
    with own_buffers():
        space = Workspace()
        for a, shadow in seeds.items():
            space[a].data[...] = shadow.data
        made.seeds = [shadow.data for shadow in space.values()]
        capture_log.written_list = calls
        try:
            walk(tape, space, drop=True, before=lambda event, _: begun.append((event, len(calls.calls))))
        finally:
            capture_log.written_list = None
    size = sum({id(data): len(data) for data in calls.kept if isinstance(data, np.ndarray)}.values())
    if not calls.whole or not calls.calls or size > BYTES:
        return
    made.unreached = space.unreached
    made.results = [(weakref.ref(a), shadow.data, shadow.address, shadow.scale) for a, shadow in space.items()]
    for e, event in enumerate(tape.events):
        for k, span in enumerate(event.writes):
            if span.allocation in space:
                made.writes.setdefault(span.allocation.id, []).append((e, k))
    _note_numbers(tape, calls, begun)
    made.calls = calls


def _note_numbers(tape: Recording, calls: CallList, begun: list[tuple[Event, int]]) -> None:
    """Note where the blocks of arguments hold the numbers of launches. `begun`: (event, number of its first call),
    from the last event on."""
    position = {event: number for number, event in enumerate(tape.events)}
    ends = [first for _, first in begun[1:]] + [len(calls.calls)]
    for (event, first), end in zip(begun, ends, strict=True):
        back = event.reverse
        if back is None or not event.command.cached.free or first == end:
            continue
        parts = [back.executable, *(back.pull.made.values() if back.pull is not None else ())]
        own = {part.call.address for part in parts if part.call is not None}
        for n in range(first, end):
            call = calls.calls[n]
            for block in calls.blocks.get(n, [call.args] if call.kernel in own else []):
                for free in event.command.cached.free:
                    calls.number(position[event], free, block)
