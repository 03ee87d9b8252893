"""A list of native calls, noted while they run and run again as one: a repeated reverse pass is such a list.

Unlike a capture it refuses nothing: `whole` is False if something happened that is not in the list.
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import Any

from ..device import XpArray
from ..kernels.compile import thread_pool
from ..kernels.compile.platform import ctypes
from ..kernels.types import Scalar
from .capture_log import NativeCall, block_of, row_of

_PAIR = struct.Struct("=QQ")


class CallList:
    """Native calls in order, with the blocks and buffers that they point into."""

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
