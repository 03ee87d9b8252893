"""A list of native calls, written down while they run and run again as one: what a repeated reverse pass consists of.

Unlike a capture it refuses nothing: `whole` says whether all that happened is in the list.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cached_property
from typing import Any

from ..kernels.compile import thread_pool
from ..kernels.types import Scalar
from .capture_log import Call

_PAIR = struct.Struct("=QQ")


class CallList:
    """Native calls in order, with the blocks and buffers that they point into."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.kept: list[Any] = []
        self.whole = True
        self.numbers: list[tuple[int, int, str, int]] = []  # event, position there, how it is written, address
        self.vectors: list[tuple[int, int, int, int]] = []  # event, position, address, how many bytes
        self.shared: dict[Any, None] = {}  # what copies of sums per thread its calls use, and leave empty
        self.blocks: dict[int, list[int]] = {}  # by the number of a call that is one per worker: their arguments

    def native(self, kernel: int, packed: bytes, begin: int, end: int, team: int) -> None:
        """Note a call `kernel(packed, begin, end)`."""
        block = ctypes.create_string_buffer(packed, len(packed))
        self.kept.append(block)
        self.calls.append(Call(kernel, ctypes.addressof(block), begin, end, team))

    def share(self, shares: Any, blocks: list[Any], room: Any) -> None:
        """Note that the next call runs a launch as one call per worker, with these arguments and this memory."""
        self.kept += [blocks, room]
        self.shared[shares] = None
        self.blocks[len(self.calls)] = [ctypes.addressof(block) for block in blocks]

    def buffer(self, data: Any, address: int, clear: bool) -> None:
        """Note that these bytes are used from here on, and set them to zero if `clear`."""
        self.kept.append(data)
        if clear:
            data[...] = 0
            self._clear(address, len(data))

    def clear(self, view: Any) -> None:
        """Note that this view of a buffer is set to zero."""
        self.whole = self.whole and view.flags.c_contiguous
        self._clear(view.__array_interface__["data"][0], view.nbytes)

    def _clear(self, address: int, nbytes: int) -> None:
        self.native(thread_pool.kernel_address("wb_move"), _PAIR.pack(address, 0), 0, nbytes, 1)

    def number(self, event: int, free: Any, block: int) -> None:
        """Note that this block of arguments holds what may change of an event: see `launches.seen.Free`."""
        if free.type.__class__ is Scalar:
            self.numbers.append((event, free.position, free.code, block + free.offset))
        else:
            self.vectors.append((event, free.position, block + free.offset, free.type.itemsize))

    def fill(self, arguments: list) -> None:
        """Write the numbers of these events into the blocks. `arguments`: theirs, flat."""
        for event, k, address, size in self.vectors:
            ctypes.memmove(address, arguments[event][k].tobytes(), size)
        for event, k, code, address in self.numbers:
            data = struct.pack("=" + code, arguments[event][k])
            ctypes.memmove(address, data, len(data))

    @cached_property
    def row(self) -> Any:
        """All calls, as the pool takes them."""
        return (Call * len(self.calls))(*self.calls)

    def run(self) -> None:
        """Do all of it again. Raises what a handler of a signal raised meanwhile."""
        for sums in self.shared:
            sums.begin()
        thread_pool.replay()(ctypes.addressof(self.row), len(self.row))
        thread_pool.after_call()
        for sums in self.shared:
            sums.broken = False
