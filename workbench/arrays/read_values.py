"""Guesses of provenance: host values equal to numbers and arrays that were read while a tape recorded.

Values that NumPy or Python made plain (`np.array(y.numpy())`, `np.asarray(y)`, `float(y[0])`) say nothing about where
they came from. When they are written back, they are compared with what was read: as they are, in any order, and after
the simplest arithmetic. What agrees in all its digits is supposed to come from there: a guess.
"""

from __future__ import annotations

import math
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..kernels.ops.functions import is_meant
from .provenance import HostRead

COUNTED = 1 << 16  # numbers that a tape remembers having given away
FEW = 64  # elements of a list or array that are compared one by one
LEAST = 8  # elements of an array in float64 that are compared as numbers too
READINGS = 16  # arrays, the last that were read, with which others are compared
WHOLE = 4096  # elements of an array that are remembered all


class ReadValues:
    """Numbers and arrays that were read while a tape recorded.

    The objects themselves are kept, so that their provenance is certain. For another number or array that equals one
    of them, or a simple function of one, it is a guess (`supposed`); numbers of few digits, and those that a launch
    took before the reading, are not guessed about.
    """

    def __init__(self, tape: Any) -> None:
        self._tape = weakref.ref(tape)
        self.held: dict[int, tuple[Any, tuple[HostRead, ...], Any]] = {}
        self.like: dict[float, _Like] = {}
        self.recent: deque[_Like] = deque(maxlen=COUNTED)  # that `like` does not have yet
        self.last: deque[_Like] = deque(maxlen=256)
        self.passed: dict[float, None] = {}  # written, and like nothing that had been read by then
        self.arrays: dict[HostRead, _Read] = {}
        self.contents: dict[tuple[int, int], tuple[HostRead, ...]] = {}  # checksum and size of what NumPy made of them

    def add(self, value: Any, sources: tuple[HostRead, ...], cell: Any) -> None:
        if len(self.held) >= COUNTED:
            del self.held[next(iter(self.held))]
        self.held[id(value)] = value, sources, cell
        if value.__class__ is float:
            self.note(value, sources)

    def note(self, number: float, sources: tuple[HostRead, ...], certain: bool = True) -> None:
        """Remember a number that was read. `certain`: it was read by itself: values derived from it are guessed too."""
        self.recent.append(_Like(float(number), sources, certain))

    def read(self, values: Any, plain: bool = False) -> None:
        """Remember an array that was read. `plain`: as a plain `np.ndarray`, which does not carry its sources."""
        for source in getattr(values, "sources", ()):
            known = self.arrays.pop(source, None)
            self.arrays[source] = read = _Read(values, plain or (known is not None and known.plain))
            if known is None and read.sample.dtype == np.float64 and not evenly_spaced(read.sample):
                for v in set(read.sample[:LEAST].tolist()):
                    self.note(v, (source,), plain)
            for v in read.reductions() if plain else ():
                self.note(v, (source,))
        while len(self.arrays) > READINGS:
            del self.arrays[next(iter(self.arrays))]

    @property
    def any(self) -> bool:
        """True if any value has been remembered."""
        return bool(self.recent or self.like or self.arrays or self.held)

    def of(self, value: Any) -> tuple[HostRead, ...]:
        """The sources of this very object; () for any other, also of the same value."""
        found = self.held.get(id(value))
        return () if found is None else found[1]

    def cell(self, value: Any) -> Any:
        """The array element that this very object was read from, or None."""
        found = self.held.get(id(value))
        return None if found is None else found[2]

    def supposed(self, value: Any) -> tuple[HostRead, ...]:
        """The readings that a value of unknown provenance may come from: a guess by its digits; () if there is none."""
        if is_meant(value):
            return ()
        if isinstance(value, np.floating | float):
            return self._number(float(value))
        if isinstance(value, list | tuple):
            if any(map(is_meant, value[:FEW])):
                return ()
            return _united(map(self.supposed, value[:FEW])) or self._array(value)
        if not isinstance(value, np.ndarray):
            return ()
        few = value.ravel().tolist() if value.size <= FEW and value.dtype.kind == "f" else ()
        found = _united(map(self.supposed, few)) or self._array(value)
        return found or (self.supposed(value.base) if isinstance(value.base, np.ndarray) else ())

    @property
    def tape(self) -> Any:
        return self._tape()

    # ---- numbers

    def _number(self, number: float) -> tuple[HostRead, ...]:
        while self.recent:
            read = self.recent.popleft()
            if not trivial(read.number):
                self.last.append(read)
                for known in _kin(read.number):
                    if read.certain or known not in self.like:
                        self.like[known] = read
        for table in (self.like, self.passed):
            while len(table) > 2 * COUNTED:
                del table[next(iter(table))]
        if number in self.passed or trivial(number):
            return ()
        read = self.like.get(number)
        if read is None or not (read.number == number or self._tells(read)):
            read = self._shifted(number)
        if read is None or self._taken(number, read.sources):
            self.passed[number] = None
            return ()
        return read.sources

    def _shifted(self, number: float) -> _Like | None:
        """A remembered number that one of `_FORMS`, with a constant of three digits, maps to this one; else None."""
        digits = float(f"{number:.6g}") != number and float(np.float32(number)) != number
        if not self.last or not digits or _nearly_short(np.array([1 / number])).any():  # too few digits to be sure
            return None
        read = np.array([one.number for one in self.last])
        with np.errstate(all="ignore"):
            parts = np.array([found(number, read) for _, found in _FORMS])
            near = np.argwhere(_nearly_short(parts))
        for which, k in near.tolist():
            form = _FORMS[which][0]
            if form(float(f"{parts[which, k]:.3g}"), float(read[k])) == number and self._tells(self.last[k]):
                return self.last[k]
        return None

    def _tells(self, read: _Like) -> bool:
        """True if values derived from the number are guessed too; not if an unwritten leaf was only read as a whole."""
        return read.certain or any(map(self._computed, read.sources))

    def _computed(self, source: HostRead) -> bool:
        """True if an event had written to `source` before it was read."""
        for tape, at in ((ref(), at) for ref, at in source.tapes):
            if tape is None:
                continue
            if tape.apart or any(s.overlaps(source.span) is not False for e in tape.events[:at] for s in e.writes):
                return True
        return False

    def _taken(self, number: float, sources: tuple[HostRead, ...]) -> bool:
        """True if a launch before these readings took an equal plain number: then it is a constant of the user's."""
        before = max((s.at(self.tape) or 0 for s in sources), default=0)
        for command in (e.command for e in self.tape.events[:before]):
            flat = () if command is None else enumerate(command.flat)
            if any(v.__class__ is float and v == number and k not in command.declared for k, v in flat):
                return True
        return False

    # ---- arrays

    def _array(self, value: Any) -> tuple[HostRead, ...]:
        """The readings of arrays that equal the value bit for bit, else those that it may be derived from; else ()."""
        try:
            raw = np.asarray(value)
        except ValueError:  # of rows that are not equally long
            return ()
        given = None if not (self.arrays or self.contents) else floats_of(raw)
        if given is None or not given.size:
            return ()
        told = [v for v in sample(given).tolist() if not trivial(v)]
        if not told:
            return ()
        if (known := self.contents.get((checksum(raw), raw.nbytes))) is not None:
            return known
        found = tuple(s for s in self.arrays if _holds(s, raw))
        return found or self._made_from(given, raw.shape, sorted(set(told)))

    def _made_from(self, given: np.ndarray, shape: tuple[int, ...], told: list[float]) -> tuple[HostRead, ...]:
        """Sources of arrays with these numbers in any order, or that a simple function maps to them elementwise."""
        if evenly_spaced(np.array(told)):
            return ()
        turned = [given.reshape(shape).T.ravel()] if len(shape) > 1 and given.size == math.prod(shape) else []
        samples = [_Sample(order) for order in (given, given[::-1], *turned)]
        found = []
        for source, read in self.arrays.items():
            if any(_members(told, among, given.dtype) for among in read.held(source)) or (
                read.size == given.size and (read.plain or self._computed(source)) and any(map(read.maps_to, samples))
            ):
                found.append(source)
        return tuple(found)


class _Sample:
    """A sample of numbers to be written. `told`: mask of those not `trivial`; `different`: count of distinct ones."""

    def __init__(self, given: np.ndarray):
        self.values = sample(given)
        self.told = np.array([not trivial(v) for v in self.values.tolist()])
        self.different = len(set(self.values[self.told].tolist()))


class _Like(NamedTuple):
    number: float
    sources: tuple[HostRead, ...]
    certain: bool


class _Read:
    """An array as it was read: a sample of its floats, and all of them (`values`) up to WHOLE elements."""

    def __init__(self, values: Any, plain: bool):
        plain_values = np.asarray(values)
        own = floats_of(plain_values)
        own = np.zeros(0) if own is None else own
        self.plain, self.size = plain, own.size
        self.dtype = plain_values.dtype if plain_values.dtype.names is None else None
        self.sample = sample(own).copy()
        self.values = own.copy() if own.size <= WHOLE else None
        self.made: np.ndarray | None = None  # what simple functions make of the sample

    def reductions(self) -> list[float]:
        """The common reductions of the array (sum, mean, norm, ...); [] for a large one."""
        if self.values is None or self.size < 2:
            return []
        with np.errstate(all="ignore"):
            return [float(f(self.values)) for f in _REDUCED]

    def held(self, source: HostRead) -> Iterator[np.ndarray]:
        """Yield the floats the array held when read, and those its memory holds now; none of a large one."""
        if self.values is not None:
            yield self.values
        now = floats_of(source.span.view(self.dtype)) if source.span.size <= WHOLE and self.dtype is not None else None
        if now is not None:
            yield now

    def maps_to(self, given: _Sample) -> bool:
        """True if a sample of an array of this size is a simple elementwise function (`_MADE`, affine) of this one."""
        told, values = given.told, given.values
        if given.different < (2 if _bits(values, self.sample) > 30 else 3):
            return False
        if self.made is None:
            with np.errstate(all="ignore"):
                self.made = np.array([f(self.sample) for f in _MADE])
        narrow = min(values.dtype, self.sample.dtype, key=lambda t: t.itemsize)
        wanted = values[told].astype(narrow)
        same = self.made[:, told].astype(narrow) == wanted
        return bool(same.all(axis=1).any()) or _affine(self.sample, values)


_MADE: tuple[Callable[[Any], Any], ...] = (
    np.sin,
    np.cos,
    np.tan,
    np.exp,
    np.log,
    np.sqrt,
    np.square,
    np.reciprocal,
    np.tanh,
    np.abs,
)

_REDUCED: tuple[Callable[[Any], Any], ...] = (
    np.sum,
    np.mean,
    np.linalg.norm,
    np.std,
    np.var,
    lambda v: v @ v,
    lambda v: np.mean(v * v),
    np.max,
    np.min,
)
_SHIFTS = [0.0, *(sign * k * unit for unit in (1.0, 0.1) for k in range(1, 11) for sign in (1, -1))]

# number = form(part, read), with part = found(number, read)
_FORMS: list[tuple[Callable[[float, float], float], Callable[[float, Any], Any]]] = [
    (lambda c, v: c + v, lambda w, v: w - v),
    (lambda c, v: c - v, lambda w, v: w + v),
    (lambda c, v: v / c, lambda w, v: v / w),
    (lambda c, v: c / v, lambda w, v: w * v),
    *((lambda c, v, b=float(f"{b:.3g}"): c * v + b, lambda w, v, b=b: (w - b) / v) for b in _SHIFTS),
]


def _affine(read: np.ndarray, given: np.ndarray) -> bool:
    """True if given = a * read + b to rounding; False for evenly spaced numbers, which prove nothing."""
    x, y = read.astype(float), given.astype(float)
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or evenly_spaced(x):
        return False
    rounding = 16 * max(np.finfo(read.dtype).eps, np.finfo(given.dtype).eps)
    if np.ptp(y) <= 1e-2 * np.abs(y).max():
        return False
    different = len(set(x.tolist()))
    most, low, high = np.argmax(np.abs(x)), np.argmin(x), np.argmax(x)
    factors = [(y[most] / x[most], 0.0)] if different >= 3 else []  # each number more is a coincidence less
    if different >= (3 if rounding < 1e-12 else 4):
        a = (y[high] - y[low]) / (x[high] - x[low])
        factors.append((a, y[low] - a * x[low]))
    return any((np.abs(a * x + b - y) <= rounding * (np.abs(a * x).max() + abs(b))).all() for a, b in factors if a)


def _members(told: list[float], among: np.ndarray, dtype: np.dtype) -> bool:
    """True if at least half of `told` are in `among`, and too many digits agree for chance."""
    narrow = min(dtype, among.dtype, key=lambda t: t.itemsize)
    known = np.isin(np.array(told).astype(narrow), among.astype(narrow)).sum()
    bits = (50 if narrow.itemsize == 8 else 21 if narrow.itemsize == 4 else 8) - math.log2(max(among.size, 1))
    return 2 * known >= len(told) and known * bits >= 30


def _bits(a: np.ndarray, b: np.ndarray) -> int:
    return min(np.finfo(a.dtype).nmant, np.finfo(b.dtype).nmant)


def _holds(source: HostRead, given: np.ndarray) -> bool:
    """True if the memory that was read now holds the bytes of `given`."""
    span = source.span
    if span.size * span.itemsize != given.nbytes or given.dtype.names or span.itemsize % given.itemsize:
        return False
    return np.asarray(span.view(given.dtype)).tobytes() == given.tobytes()


def floats_of(values: Any) -> np.ndarray | None:
    """The floats of an array, or of the fields of records, as one axis; None if there are none."""
    if values.dtype.names:
        parts = [p for p in (floats_of(values[name]) for name in values.dtype.names) if p is not None]
        return np.concatenate(parts) if parts else None
    return np.asarray(values).ravel() if values.dtype.kind == "f" else None


def sample(values: np.ndarray) -> np.ndarray:
    """At most `FEW` elements of a 1-D array, at places that depend on its size alone."""
    if values.size <= FEW:
        return values
    return values[np.linspace(0, values.size - 1, FEW).astype(int)]


def evenly_spaced(values: np.ndarray) -> bool:
    """True for three numbers or more in arithmetic progression, such as those of `linspace`."""
    if values.size < 3:
        return False
    line = np.linspace(values[0], values[-1], values.size)
    return bool(np.abs(values - line).max() <= 1e-6 * np.abs(values).max())


def trivial(value: float) -> bool:
    """True for inf, NaN or at most three significant digits (in float64 or float32): equality then says nothing."""
    if not math.isfinite(value):
        return True
    short = float(f"{value:.3g}")
    return short == value or float(np.float32(short)) == value


def _nearly_short(values: np.ndarray) -> np.ndarray:
    """Mask of the numbers that have, to 1e-9, at most three significant digits."""
    unit = 10.0 ** (np.floor(np.log10(np.abs(values))) - 2)
    scaled = values / unit
    return np.abs(scaled - np.rint(scaled)) <= 1e-9


def _kin(value: float) -> Iterator[float]:
    """Yield the number and its most common images: negative, inverse, root, square, double, half, sine, ..."""
    yield from (value, -value, 2 * value, value / 2, value * value)
    yield from (math.sin(value), math.cos(value), math.tan(value), math.tanh(value))
    if value:
        yield 1 / value
    if value > 0:
        yield from (math.sqrt(value), math.log(value))
    if abs(value) < 700:
        yield math.exp(value)
        yield math.exp(-value)


def checksum(values: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(values).view(np.uint8).data) if values.size else 0


def _united(groups: Iterable[tuple[HostRead, ...]]) -> tuple[HostRead, ...]:
    return tuple(dict.fromkeys(s for group in groups for s in group))
