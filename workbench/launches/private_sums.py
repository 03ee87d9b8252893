"""Private sums: launches whose threads add to the same cells, cut among workers that add to memory of their own.

The one idea: worker 0 adds to the array itself, every other one to a copy that holds zeros between launches; the copies
are added up at the end, in order, and cleared. The cut is fixed, so a run is repeated bit for bit as long as the number
of workers stays.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays import capture_log
from ..kernels.analysis.launch_form import LaunchForm
from ..kernels.compile import thread_pool
from ..kernels.ir import Function, root, walk
from ..kernels.ops import memory as rows
from ..kernels.types import Array, Composite, Scalar

WORTH = 0.5  # the most that clearing and adding up copies may cost, as a part of the work of the launch
_SLICE, _ADDRESS = struct.Struct("=QQqq"), struct.Struct("=Q")
_ALIGNED = 64


@dataclass(frozen=True)
class Target:
    """An array that several workers add to. `parameter`: which of the function's; `offset`: in a worker's memory."""

    parameter: int
    offset: int
    count: int
    dtype: Any


@dataclass(eq=False)
class Shares:
    """Division of a launch among workers: targets, bytes of a private copy, and copies (`room`), made on first use."""

    targets: tuple[Target, ...]
    nbytes: int
    workers: int
    room: list[np.ndarray] = field(default_factory=list)
    broken: bool = False  # a launch was interrupted before its copies were cleared

    def run(self, executable: Any, packed: bytes, rows: tuple) -> None:
        """Run `executable` on the rows [first, last) of the first launch dimension; `packed`: its arguments."""
        while len(self.room) < self.workers - 1:
            self.room.append(np.zeros(self.nbytes, np.uint8))
        self.begin()
        places = [executable.signature.offsets[t.parameter] for t in self.targets]
        blocks, slices = [], b""
        first, last = rows
        for k in range(self.workers):
            block, at = capture_log.block_of(packed)
            for t, place in zip(self.targets, places, strict=True) if k else ():
                _ADDRESS.pack_into(block, place, capture_log.address(self.room[k - 1]) + t.offset)
            blocks.append((block, at))
            begin, end = (first + (last - first) * n // self.workers for n in (k, k + 1))
            slices += _SLICE.pack(executable.call.address, at, begin, end)
        if capture_log.opened is not None:
            capture_log.keep(blocks, self.room)
        if capture_log.written_list is not None:
            capture_log.written_list.share(self, blocks, self.room)
        try:
            capture_log.native(
                thread_pool.kernel_address("wb_slices"), slices, 0, self.workers, thread_pool.team(self.workers)
            )
            for t, place in zip(self.targets, places, strict=True):
                (to,) = _ADDRESS.unpack_from(packed, place)
                for mine in self.room:
                    end = t.offset + t.count * t.dtype.itemsize
                    capture_log.merge(to, t.dtype, mine[t.offset : end])
            self.broken = False
        finally:
            if self.broken:
                self._clear()  # now, as a capture that uses this memory too does not look

    def begin(self) -> None:
        """Call before using the copies: zeroes them if the last run broke off. Set `broken` to False when added up."""
        if self.broken:
            self._clear()
        self.broken = True

    def _clear(self) -> None:
        for mine in self.room:
            mine.fill(0)


def shares(function: Function, contested: frozenset[str], form: LaunchForm, workers: int, work: float) -> Shares | None:
    """The cut of a launch whose sums are contiguous, float32 or float64 and only added to; None if it does not pay."""
    if not contested <= form.contiguous or not _only_added(function, contested):
        return None
    targets, at = [], 0
    for k, p in enumerate(function.params):
        type = p.type
        if isinstance(type, Array) and p.name in contested:
            if not isinstance(type.dtype, Scalar | Composite):
                return None
            scalar = type.dtype.scalar
            if scalar.kind != "f" or scalar.bits == 16:
                return None
            count = int(np.prod(form.shapes[p.name])) * type.dtype.size
            targets.append(Target(k, at, count, scalar.numpy))
            at += -(-count * scalar.numpy.itemsize // _ALIGNED) * _ALIGNED
    copied = 2 * (workers - 1) * sum(t.count for t in targets)  # read and added, where there is anything
    if len(targets) != len(contested) or copied > WORTH * work:
        return None
    return Shares(tuple(targets), at, workers)


def _only_added(function: Function, names: frozenset[str]) -> bool:
    for s in walk(function.body):
        touched = [a for a in s.args if isinstance(a.type, Array) and root(a).name in names]
        if touched and s.row not in (rows.ACCUMULATE, rows.ATOMIC_ADD, rows.ATOMIC_SUB, rows.COMPONENTS, rows.SHAPE):
            return False
    return True
