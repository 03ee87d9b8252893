"""Launches of a capture that follow each other on one grid, run tile by tile: several steps of a stencil in the cache.

The one idea is split tiling (Grosser et al., "Split tiling for GPUs", GPGPU 2013; trapezoids: Frigo and Strumpen, ICS
2005). The rows of the grid are cut into tiles. A tile runs its rows of the first launch, then those of the second that
need nothing from outside, and so on, narrower and narrower; when all tiles are through, the wedges around the cuts
between them follow. Each thread of each launch computes what it would, from the same bytes, so no bit changes.
Threads wait for each other twice in a whole run of launches.
"""

from __future__ import annotations

import ctypes
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..arrays.capture_log import NativeCall
from ..config import config
from ..kernels.analysis import work as cost
from ..kernels.compile import thread_pool
from ..launches import thresholds
from ..launches.row_footprint import Reach, reaches

CACHE = 384 << 10  # bytes of a tile: what stays in the second cache of a processor beside other things
DEPTH = 64  # launches that run together at most
SLACK = 8  # the wedges of a run are at most this part of its rows


class Stage(ctypes.Structure):
    """A launch of a run, for the thread pool; tiles leave `left` and `right` rows to the wedges beside them."""

    _fields_ = [("kernel", ctypes.c_void_p), ("args", ctypes.c_void_p)] + [
        (name, ctypes.c_int64) for name in ("begin", "end", "left", "right")
    ]


class Tiling(ctypes.Structure):
    """A run of launches, for the thread pool."""

    _fields_ = [("stages", ctypes.c_void_p)] + [(name, ctypes.c_int64) for name in ("count", "rows", "tiles", "wedges")]


class TileStep(NamedTuple):
    """A launch of a run: its call, row footprints, work, and the rows that its tiles leave to the wedges."""

    call: NativeCall
    reaches: tuple[Reach, ...]
    work: float
    left: int
    right: int


class Touched:
    """Footprint of the launches of a run: disjoint stretches of memory, sorted by address.

    Per reach, the most rows that launches with this reach leave to the wedges on the left and right.
    """

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.stretches: list[tuple[int, dict[Reach, tuple[int, int]]]] = []  # (end, what there is)

    def _at(self, reach: Reach) -> slice:
        """The slice of the stretches that a reach overlaps."""
        low = bisect_right(self.begins, reach.begin)
        if low and self.stretches[low - 1][0] > reach.begin:
            low -= 1
        return slice(low, max(bisect_left(self.begins, reach.end), low))

    def near(self, reach: Reach) -> list[tuple[Reach, tuple[int, int]]]:
        """[(earlier reach, (left, right))] of all that may overlap a reach."""
        return [entry for _, known in self.stretches[self._at(reach)] for entry in known.items()]

    def add(self, reach: Reach, left: int, right: int) -> None:
        at = self._at(reach)
        begin, end = min([reach.begin, *self.begins[at]]), max([reach.end, *(e for e, _ in self.stretches[at])])
        known = dict(self.near(reach))
        before = known.get(reach, (0, 0))
        known[reach] = max(left, before[0]), max(right, before[1])
        self.begins[at], self.stretches[at] = [begin], [(end, known)]


class TileRun:
    """Consecutive launches that may be tiled together."""

    def __init__(self) -> None:
        self.steps: list[TileStep] = []
        self.left = self.right = self.apart = 0
        self.memory = Touched()

    def add(self, call: NativeCall, found: tuple[Reach, ...], work: float) -> bool:
        """Append a launch. False, and unchanged, if that would change results or not pay."""
        if self.steps and (call.end != self.steps[0].call.end or len(self.steps) == DEPTH):
            return False
        left = right = apart = 0
        for reach in found:
            for earlier, (left_before, right_before) in self.memory.near(reach):
                met = reach.meets(earlier)
                if met is not None:
                    left, right = max(left, left_before - met[0]), max(right, right_before + met[1])
                    apart = max(apart, -met[0], met[1])
        left_of_all, right_of_all, apart_of_all = max(self.left, left), max(self.right, right), max(self.apart, apart)
        if (left_of_all + right_of_all + apart_of_all) * SLACK > call.end * 2:
            return False
        self.left, self.right, self.apart = left_of_all, right_of_all, apart_of_all
        for reach in found:
            self.memory.add(reach, left, right)
        self.steps.append(TileStep(call, found, work, left, right))
        return True

    def calls(self, kept: list[Any]) -> list[NativeCall]:
        """The native calls that run the launches: tiles, then wedges. Objects they point into are added to `kept`."""
        rows, own = self.steps[0].call.end, [s.call for s in self.steps]
        work = sum(s.work for s in self.steps)
        threads = config.threads if work >= thresholds.PARALLEL_FROM else 1
        tiles = self._tiles(rows, threads, work >= thresholds.LONG_FROM)
        if len(own) < 2 or tiles < 2:
            return own
        stages = (Stage * len(own))(
            *[Stage(s.call.kernel, s.call.args, s.call.begin, s.call.end, s.left, s.right) for s in self.steps]
        )
        kept += [stages, own]
        pieces = thread_pool.PIECES if work >= thresholds.LONG_FROM else int(work >= thresholds.WAKE_FROM)
        found = []
        for wedges in (0, 1):
            tiling = Tiling(ctypes.addressof(stages), len(own), rows, tiles, wedges)
            kept.append(tiling)
            team = thread_pool.team(threads if tiles - wedges > 1 else 1, pieces)
            found.append(
                NativeCall(thread_pool.kernel_address("wb_tiles"), ctypes.addressof(tiling), 0, tiles - wedges, team)
            )
        return found

    def _tiles(self, rows: int, threads: int, long: bool) -> int:
        """The number of tiles: enough that one fits the cache and each thread has several; 1 if tiling does not pay."""
        touched = {r.first: abs(r.stride) for s in self.steps[:2] for r in s.reaches}
        least = 2 * (self.left + self.right + self.apart)
        fitting = math.ceil(rows * sum(touched.values()) / CACHE)
        wanted = max(fitting, threads * (thread_pool.PIECES if long and threads > 1 else 1))
        tiles = min(wanted, max(rows // max(least, 1), 1))
        return tiles // threads * threads if tiles > threads else tiles


def tiled(calls: Sequence[NativeCall], kept: list[Any]) -> list[NativeCall]:
    """The calls, with runs of launches replaced by tiled ones. Objects they point into are added to `kept`."""
    if not config.tile_captures:
        return list(calls)
    found: list[NativeCall] = []
    run = TileRun()
    for call in calls:
        seen = _seen(call)
        if seen is not None and run.add(call, *seen):
            continue
        if run.steps:
            found += run.calls(kept)
        run = TileRun()
        if seen is None or not run.add(call, *seen):
            found.append(call)
    return found + (run.calls(kept) if run.steps else [])


def _seen(call: NativeCall) -> tuple[tuple[Reach, ...], float] | None:
    """(row footprints, work) of a launch; None for other calls, unknown footprints, or rows that may conflict."""
    if call.launch is None or call.begin:
        return None
    made, values = call.launch
    found = reaches(made, values, call.begin, call.end)
    return None if found is None else (found, math.prod(made.form.dims) * cost.work(made.function, made.form))
