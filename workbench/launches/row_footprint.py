"""Row footprints: the bytes that each row of a launch touches. They decide how rows of launches may be reordered.

A row is one index of the first launch dimension. The one idea: where every index is affine, the bytes that row r
touches through a parameter lie in [first + r * stride + low, first + r * stride + high), so that two launches meet in
rows whose distance is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..kernels.analysis.accesses import Access, accesses_of, relevant_scalars
from ..kernels.analysis.hulls import Hull
from ..kernels.analysis.launch_form import LaunchForm, Line
from ..kernels.emit.tiles import has_tiles
from ..kernels.ir import Function, walk
from ..kernels.ops import control, memory as rows
from ..kernels.row import Effect
from ..kernels.types import Array, Composite, Scalar

if TYPE_CHECKING:
    from .executable import Executable

_ROW = ("tid", 0)
_TOUCHING = (rows.LOAD, rows.STORE, rows.ACCUMULATE, *rows.ATOMICS)
ANYWHERE = (-(1 << 62), 1 << 62)


class Reach(NamedTuple):
    """Footprint of the rows of a launch in one array, by addresses: a superset of the bytes touched.

    Row r touches bytes of [first + r * stride + low, first + r * stride + high), the launch of [begin, end).
    """

    begin: int
    end: int
    first: int
    stride: int
    low: int
    high: int
    writes: bool

    def meets(self, earlier: Reach) -> tuple[int, int] | None:
        """(low, high) if row r of this launch may touch what rows r + low to r + high of an earlier one touch.

        None: they never meet, or only read. `ANYWHERE`: in rows that are not a bounded distance apart.
        """
        if not (self.writes or earlier.writes) or self.end <= earlier.begin or earlier.end <= self.begin:
            return None
        if self.stride != earlier.stride or self.stride <= 0:
            return ANYWHERE
        apart = self.first - earlier.first
        low = (apart + self.low - earlier.high) // self.stride + 1
        high = -((earlier.low - apart - self.high) // self.stride) - 1
        return (low, high) if low <= high else None


def reaches(made: Executable, values: Sequence[int], begin: int, end: int) -> tuple[Reach, ...] | None:
    """The reaches of rows [begin, end) of a launch, one per array parameter and kind of access; None if unknown.

    `values`: flat, as `Executable.run` takes them. Also None if two rows of the launch itself may conflict.
    """
    places, numbers = _places(made.function, values)
    key = begin, end, tuple([tuple(strides) for _, strides in places.values()]), tuple(numbers.values())
    if key not in made.touched:
        form = replace(made.form, scalars={**made.form.scalars, **numbers})
        made.touched[key] = _relative(made, form, {k: strides for k, (_, strides) in places.items()}, begin, end)
    relative = made.touched[key]
    if relative is None:
        return None
    found = []
    for param, (low_end, high_end, _, stride, low, high, writes) in relative:
        first = places[param][0]
        found.append(Reach(first + low_end, first + high_end, first, stride, low, high, writes))
    for k, one in enumerate(found):
        for other in found[k:]:
            if one.meets(other) not in (None, (0, 0)):
                return None
    return tuple(found)


def _relative(
    made: Executable, form: LaunchForm, strides: dict[int, Sequence[int]], begin: int, end: int
) -> tuple[tuple[int, Reach], ...] | None:
    """((parameter, reach), ...) with addresses relative to the first element of each array; None if unknown."""
    if not _plain(made.function):
        return None
    found: dict[tuple, Reach] = {}
    for access in accesses_of(made.function):
        hull = Hull(access, form)
        if hull.empty:
            continue
        one = _reach(access, hull, strides[access.param], begin, end)
        if one is None:
            return None
        if one.begin == one.end:
            continue
        key = access.param, one.stride, one.writes
        found[key] = _both(found[key], one) if key in found else one
    return tuple((key[0], reach) for key, reach in found.items())


def _plain(function: Function) -> bool:
    """True if a function only computes, loads and stores, without tiles: then its accesses show all it touches."""
    stmts = list(walk(function.body))
    known = all(s.row.effect is Effect.PURE or s.row in _TOUCHING or s.row is control.ASSERT for s in stmts)
    return known and not has_tiles(stmts)


def _places(function: Function, values: Sequence[int]) -> tuple[dict[int, tuple[int, Sequence[int]]], dict[str, int]]:
    """{array parameter: (address of its first element, byte strides)}, and the numbers that indices use, by name."""
    found, numbers, at, used = {}, {}, 0, relevant_scalars(function)
    for k, p in enumerate(function.params):
        if isinstance(p.type, Array):
            n = p.type.ndim
            found[k] = values[at], values[at + 1 + n : at + 1 + 2 * n]
            at += 1 + 2 * n
        else:
            assert isinstance(p.type, Scalar | Composite)
            if p.name in used:
                numbers[p.name] = values[at]
            at += p.type.size
    return found, numbers


def _reach(access: Access, hull: Hull, strides: Sequence[int], begin: int, end: int) -> Reach | None:
    """The reach of one access, relative to the array's first element; None if its shape is unknown."""
    stride = low = high = 0
    for axis, step in enumerate(strides):
        span = _index(access, hull, axis)
        if span is None:
            return None
        per_row, least, most = span
        stride += per_row * step
        low += min(least * step, most * step)
        high += max(least * step, most * step)
    kind = access.array.type
    assert isinstance(kind, Array) and isinstance(kind.dtype, Scalar | Composite)
    high += kind.dtype.itemsize
    top, last = max(begin, hull.box[_ROW][0]), min(end - 1, hull.box[_ROW][1])
    if top > last:
        return Reach(0, 0, 0, stride, low, high, False)
    ends = stride * top, stride * last
    return Reach(min(ends) + low, max(ends) + high, 0, stride, low, high, access.effect is not Effect.READS)


def _index(access: Access, hull: Hull, axis: int) -> tuple[int, int, int] | None:
    """(c, low, high): the index along an axis is c * row plus a number in [low, high]. None: unknown."""
    n = hull.extent(axis)
    if n is None:
        return None
    line, touched, raw = hull.line(axis), hull.touched(axis), hull.range(axis)
    if line is None or touched is None or raw is None:
        return 0, 0, n - 1
    factor = line.terms.get(_ROW, 0)
    if not factor:
        return 0, max(touched[0], 0), min(touched[1], n - 1)
    rest = Line({v: c for v, c in line.terms.items() if v != _ROW}, line.constant + touched[0] - raw[0])
    low, high = rest.hull(hull.box)
    return (factor, low, high) if high - low < 2 * n else (0, 0, n - 1)


def _both(a: Reach, b: Reach) -> Reach:
    """The union (as one reach) of two reaches of one parameter."""
    low, high = min(a.low, b.low), max(a.high, b.high)
    return Reach(min(a.begin, b.begin), max(a.end, b.end), a.first, a.stride, low, high, a.writes)
