"""Spans: the bytes that a strided array occupies in an allocation, and whether two of them share any.

Overlap is decided on bytes, not on hulls: `x[:, 0]` and `x[:, 1]` do not overlap. Where the search for a common byte
would take too long the answer is "undecided", which everybody treats as "may overlap".
"""

from __future__ import annotations

import bisect
import math
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from ..device import XpArray
from . import capture_log

_WORK = 20_000  # candidate solutions tried by the exact overlap solver before it answers "undecided"
_WORDS = {width: np.dtype(f"u{width}") for width in (1, 2, 4, 8)}
ShapeLike = int | Sequence[int] | np.ndarray
PARTS = 64  # boxes that a span remembers
FEW = 1 << 10  # new ones, of which the dead are not looked for


class Memory(Protocol):
    """Interface of what a span lies in: a whole buffer."""

    id: int
    address: int
    nbytes: int

    def window(self, dtype: np.dtype, shape: tuple[int, ...], offset: int, strides: tuple[int, ...]) -> Any:
        """A strided view of the bytes; `offset` and `strides` in bytes."""


M = TypeVar("M", bound=Memory)


class Span(Generic[M]):
    """The bytes of one array: `shape` elements of `itemsize` bytes, `strides` in bytes, from `offset` on. Immutable."""

    __slots__ = (
        "allocation",
        "offset",
        "shape",
        "strides",
        "itemsize",
        "_key",
        "_hash",
        "_hull",
        "_parts",
        "_words",
        "_weak",
    )

    def __init__(self, allocation: M, offset: int, shape: tuple, strides: tuple, itemsize: int):
        self.allocation, self.offset, self.itemsize = allocation, offset, itemsize
        self.shape, self.strides = shape, strides
        self._key = (allocation.id, offset, shape, strides, itemsize)
        self._hash = hash(self._key)
        low, high = _reach(shape, strides, itemsize)
        self._hull = (offset + low, offset + high)
        self._parts: dict[tuple, Span] | None = None
        self._words: tuple | None = None  # dtype, shape, offset and strides of `words()`
        self._weak: Span | None = None

    def weak(self) -> Span:
        """An equal span that does not keep the memory alive, for references that the memory itself holds."""
        if self._weak is not None:
            return self._weak
        made = self._weak = object.__new__(WeakSpan)
        made.of, made._parts, made._words = weakref.ref(self.allocation), None, None
        made.offset, made.shape, made.strides, made.itemsize = self.offset, self.shape, self.strides, self.itemsize
        made._key, made._hash, made._hull = self._key, self._hash, self._hull
        return made

    def on(self, memory: M, by: int = 0) -> Span:
        """The same bytes of another memory, `by` bytes further on."""
        return Span(memory, self.offset + by, self.shape, self.strides, self.itemsize)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Span) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{self.allocation}[{self.offset}:] {self.shape} by {self.strides}, {self.itemsize} bytes each"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def hull(self) -> tuple[int, int]:
        """First byte and the byte after the last, within the allocation. Empty spans have equal ends."""
        return self._hull

    @property
    def contiguous(self) -> bool:
        """True for row-major elements without gaps."""
        return self.strides == row_strides(self.shape, self.itemsize) or _contiguous(
            self.shape, self.strides, self.itemsize
        )

    @property
    def dense(self) -> bool:
        """True if every byte of the hull belongs to exactly one element, in any order of axes."""
        return _dense(self.shape, self.strides, self.itemsize)

    @property
    def self_overlapping(self) -> bool:
        """True if two elements share a byte (a zero stride, overlapping windows), or if that is undecided."""
        return _self_overlapping(self.shape, self.strides, self.itemsize)

    def overlaps(self, other: Span) -> bool | None:
        """True if the two spans share a byte, decided on bytes, not on hulls. None: undecided, treat as "may"."""
        if self.allocation is not other.allocation:
            return False
        (low, high), (other_low, other_high) = self._hull, other._hull
        if high <= other_low or other_high <= low or low == high or other_low == other_high:
            return False
        if self._key == other._key:
            return True
        mine, theirs = (self.shape, self.strides, self.itemsize), (other.shape, other.strides, other.itemsize)
        return _overlap(other.offset - self.offset, *mine, *theirs)

    def contains(self, other: Span) -> bool:
        """True if every byte of `other` is in this span. False also where that is not cheap to decide."""
        if self._key == other._key:
            return True
        if self.allocation is not other.allocation:
            return False
        if other._hull[0] == other._hull[1]:
            return True
        return self.dense and self._hull[0] <= other._hull[0] and other._hull[1] <= self._hull[1]

    def without(self, other: Span) -> list[Span]:
        """Spans of the elements that are not in `other`; the whole span where that is not cheap to decide."""
        (low, high), (start, end), size = self._hull, other._hull, self.itemsize
        if other.contains(self):
            return []
        if not (self.contiguous and other.dense) or high <= start or end <= low or (start - low) % size:
            return [self]
        kept = [(low, max(start, low)), (min(low - (low - end) // size * size, high), high)]
        return [Span(self.allocation, a, ((b - a) // size,), (size,), size) for a, b in kept if a < b]

    def box(self, ranges: Sequence[range | tuple[int, int]]) -> Span:
        """The sub-span of these indices: per axis a `range` with a positive step, or (first, one past the last)."""
        offset, shape, strides = self.offset, [], []
        for picked, stride in zip(ranges, self.strides, strict=True):
            r = picked if isinstance(picked, range) else range(*picked)
            offset += (r.start if len(r) else 0) * stride
            shape.append(len(r))
            strides.append(stride * r.step)
        return Span(self.allocation, offset, tuple(shape), tuple(strides), self.itemsize)

    def part(self, ends: tuple[tuple[int, int], ...]) -> Span:
        """`box(ends)`, cached: the same box is the same object (the cache of PARTS boxes is cleared when full)."""
        if self._parts is None:
            self._parts = {}
        found = self._parts.get(ends)
        if found is None:
            if len(self._parts) >= PARTS:
                self._parts.clear()
            found = self._parts[ends] = self.box(ends)
        return found

    def view(self, dtype: np.typing.DTypeLike, inner: tuple[int, ...] | None = None) -> Any:
        """The bytes as a writable NumPy array (CuPy on a GPU) of shape `(*shape, *inner)`.

        `inner` are the axes inside one element; by default one axis if an element holds several of `dtype`.
        """
        dtype = np.dtype(dtype)
        if inner is None:
            inner = () if self.itemsize == dtype.itemsize else (self.itemsize // dtype.itemsize,)
        strides = self.strides + row_strides(inner, dtype.itemsize)
        return self.allocation.window(dtype, self.shape + inner, self.offset, strides)

    def words(self) -> Any:
        """The bytes as unsigned integers, as wide as their alignment allows: a view to move or compare bits with."""
        if self._words is None:
            steps = math.gcd(self.itemsize, self.allocation.address + self.offset, *self.strides)
            width = math.gcd(steps, 8)
            inner = () if self.itemsize == width else (self.itemsize // width,)
            layout = self.shape + inner, self.offset, self.strides + row_strides(inner, width)
            self._words = (_WORDS[width], *layout)
        return self.allocation.window(*self._words)

    def copy_out(self) -> Any:
        """The present bytes, as a packed array of unsigned integers on the same device. `copy_in` puts them back."""
        return capture_log.copy(self.words())

    def copy_in(self, kept: XpArray) -> None:
        """Put back what `copy_out` gave. No watching tape is told: for rewinding only."""
        words = self.words()
        capture_log.do(lambda: words.__setitem__(..., kept), capture_log.gpu_of(words, kept))


class WeakSpan(Span):
    """A span with a weak reference to its allocation; beyond equality and hash, use it only while the memory lives."""

    __slots__ = ("of",)

    @property
    def allocation(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.of()

    def weak(self) -> Span:
        return self

    def __reduce__(self) -> Any:
        return Span, (self.allocation, self.offset, self.shape, self.strides, self.itemsize)


@lru_cache(4096)
def row_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Byte strides of a row-major layout."""
    strides = []
    for n in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(n, 1)
    return tuple(reversed(strides))


@lru_cache(4096)
def _reach(shape: tuple, strides: tuple, itemsize: int) -> tuple[int, int]:
    """The first byte and the byte after the last, seen from the first element."""
    if 0 in shape:
        return 0, 0
    steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return sum(s for s in steps if s < 0), sum(s for s in steps if s > 0) + itemsize


@lru_cache(4096)
def _contiguous(shape: tuple, strides: tuple, itemsize: int) -> bool:
    if 0 in shape:
        return True
    return all(n == 1 or s == r for n, s, r in zip(shape, strides, row_strides(shape, itemsize), strict=True))


@lru_cache(4096)
def _dense(shape: tuple, strides: tuple, itemsize: int) -> bool:
    run = itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if stride != run:
            return False
        run *= n
    return True


@lru_cache(4096)
def _self_overlapping(shape: tuple, strides: tuple, itemsize: int) -> bool:
    """Byte offsets are numbers in a mixed radix whose digits are the indices (Knuth, TAOCP 2, section 4.1).

    They are distinct, and elements disjoint, if each stride is at least the extent of all smaller axes together;
    otherwise small arrays are decided by listing all offsets.
    """
    if math.prod(shape) < 2:
        return False
    axes = sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1)
    if axes[0][0] == 0:
        return True
    extent, nested = itemsize, True
    for stride, n in axes:
        nested = nested and stride >= extent
        extent += stride * (n - 1)
    if nested:
        return False
    if math.prod(shape) > 1 << 20:
        return True
    starts = np.zeros(1, np.int64)
    for stride, n in axes:
        starts = (starts[:, None] + stride * np.arange(n)).reshape(-1)
    return bool(np.diff(np.sort(starts)).min() < itemsize)


@lru_cache(1 << 14)
def _overlap(gap: int, shape: tuple, strides: tuple, size: int, shape2: tuple, strides2: tuple, size2: int):
    """`Span.overlaps` for two sets whose first elements are `gap` bytes apart and whose hulls overlap.

    Two sets without gaps overlap. Otherwise the gcd test of dependence analysis (Banerjee 1988) may prove that they do
    not: modulo the gcd of all strides every element lies at one place. What is left goes to the exact solver.
    """
    if _dense(shape, strides, size) and _dense(shape2, strides2, size2):
        return True
    moving = [abs(s) for s, n in zip(strides + strides2, shape + shape2, strict=True) if n > 1]
    lattice = math.gcd(*moving) if moving else 0
    if lattice:
        beside = gap % lattice
        if beside >= size and lattice - beside >= size2:
            return False
    return _solve(gap, shape, strides, size, shape2, strides2, size2)


def _solve(gap: int, shape: tuple, strides: tuple, size: int, shape2: tuple, strides2: tuple, size2: int):
    """The bounded Diophantine equation of `numpy.shares_memory`, solved by NumPy. None: given up after _WORK tries."""
    middle = 1 << 50
    a = np.asarray(AddressedMemory(middle, shape, strides, size))
    b = np.asarray(AddressedMemory(middle + gap, shape2, strides2, size2))
    try:
        return bool(np.shares_memory(a, b, max_work=_WORK))  # type: ignore[arg-type]  # its stub knows 0 and -1 only
    except np.exceptions.TooHardError:
        return None


class AddressedMemory:
    """Memory given by its address: what NumPy's array interface asks for. `owner` is kept alive."""

    def __init__(self, address: int, shape: tuple, strides: tuple | None, itemsize: int, owner: object = None):
        self.owner = owner
        kind, at = "|u1" if itemsize == 1 else f"|V{itemsize}", (address, False)
        self.__array_interface__ = {"data": at, "shape": shape, "strides": strides, "typestr": kind, "version": 3}


def byte_entries(span: Span, flat: XpArray) -> Any:
    """The entries of a per-byte array of an allocation that belong to a span: shape (*shape, itemsize)."""
    return strided_view(flat, span.shape + (span.itemsize,), flat.dtype, span.offset, span.strides + (1,))


def strided_view(
    base: XpArray, shape: tuple[int, ...], dtype: np.typing.DTypeLike, offset: int, strides: tuple[int, ...]
) -> Any:
    """A view of a buffer, on its device; `offset` and `strides` in bytes."""
    if isinstance(base, np.ndarray):
        return np.ndarray(shape, dtype, base, offset, strides)
    return type(base)(shape, dtype, base.data + offset, strides)


class AddressRanges(Generic[M]):
    """Sorted index of the live memories of one device by address; its methods are called under `LOCK`.

    What is new enters it once somebody asks: most memory is gone by then.
    """

    def __init__(self) -> None:
        self.recent: list[weakref.ref[M]] = []
        self.starts: list[int] = []
        self.entries: dict[int, weakref.ref[M]] = {}
        self.sweep_at, self.sweep_recent_at = 256, FEW

    def add(self, new: M) -> None:
        self.recent.append(weakref.ref(new))
        if len(self.recent) > self.sweep_recent_at:
            self.recent = [ref for ref in self.recent if ref() is not None]
            self.sweep_recent_at = 2 * len(self.recent) + FEW

    def _enter_recent(self) -> None:
        recent, self.recent = self.recent, []
        for new in [m for ref in recent if (m := ref()) is not None]:
            for stale in self.meeting(new.address, new.address + new.nbytes):  # a bare pointer that outlived its memory
                del self.entries[stale.address]
                self.starts.remove(stale.address)
            if new.address not in self.entries:
                bisect.insort(self.starts, new.address)
            self.entries[new.address] = weakref.ref(new)
        if len(self.starts) > self.sweep_at:
            self.entries = {a: ref for a, ref in self.entries.items() if ref() is not None}
            self.starts = sorted(self.entries)
            self.sweep_at = 2 * len(self.starts) + 256

    def meeting(self, low: int, high: int) -> list[M]:
        """The live memories that share a byte with [low, high), by address; dead ones that it meets are forgotten."""
        self._enter_recent()
        start = end = bisect.bisect_right(self.starts, low)
        found = []
        while start > 0:  # live ones never overlap: the first live one below decides
            if (below := self.entries[self.starts[start - 1]]()) is not None:
                found += [below] if below.address + below.nbytes > low else []
                break
            start -= 1
        stale = self.starts[start:end]
        while end < len(self.starts) and self.starts[end] < high:
            if (above := self.entries[self.starts[end]]()) is not None:
                found.append(above)
            else:
                stale.append(self.starts[end])
            end += 1
        if stale:
            self.starts[start:end] = [m.address for m in found if m.address > low]
            for address in stale:
                del self.entries[address]
        return found
