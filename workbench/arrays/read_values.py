"""Values read while a tape records, and the rule by which plain values count as coming from there.

The rule: a plain value that is written (one of Python or NumPy, without `sources`) counts as coming from what was read
if it is the same object, which is certain, or has the same bytes, as a whole or in each element, which is supposed.
Numbers of three digits at most, and those that a launch took before the reading, are the user's own. A `HostRead` is
one reading while tapes record; the `sources` of a value are the readings that it was computed from.
"""

from __future__ import annotations

import math
import weakref
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..device import on_host
from ..errors import Where
from ..kernels.ops.functions import is_meant
from .allocation import caller_where, recorders
from .span import Span

MOST = 16  # sources that a value remembers


@dataclass(frozen=True)
class HostRead:
    """A reading of memory: its bytes, the line, and the number of events of each open tape at that time."""

    span: Span
    name: Any = field(compare=False)  # or the array, whose name is looked for when a message needs it: that takes long
    moment: int
    where: Where | None = field(compare=False)
    tapes: tuple[tuple[weakref.ref, int], ...] = field(compare=False)

    @property
    def label(self) -> str:
        return getattr(self.name, "label", self.name)

    def at(self, tape: object) -> int | None:
        """The number of events that this tape had at the reading; None if it was not open."""
        return next((at for ref, at in self.tapes if ref() is tape), None)


def source_of(span: Span, name: object) -> HostRead | None:
    """A `HostRead` for reading these bytes, of an array or with a name, now; None if no tape records."""
    open_tapes = recorders()
    if not open_tapes:
        return None
    tapes = tuple((weakref.ref(tape), len(tape.events)) for tape in open_tapes)
    return HostRead(span, name, tapes[-1][1], caller_where(), tapes)


def united(groups: Iterable[tuple[HostRead, ...]], most: int | None = MOST) -> tuple[HostRead, ...]:
    """The distinct sources in order, at most `most`; None: all."""
    return tuple(dict.fromkeys(s for group in groups for s in group))[:most]


COUNTED = 1 << 16  # numbers, and arrays, that a tape remembers having given away
FEW = 64  # elements of a list or array that count as numbers too
READINGS = 16  # arrays, the last that were read, whose memory is looked at
WHOLE = 1 << 15  # bytes of an array whose checksum is taken when it is read


class ReadValues:
    """Numbers and arrays that were read while a tape recorded: the objects (`held`), and their bytes."""

    def __init__(self, tape: object) -> None:
        self._tape: weakref.ref[Any] = weakref.ref(tape)
        self.any = False  # True once a value has been remembered
        self.held: dict[int, tuple[Any, tuple[HostRead, ...], Any]] = {}
        self.numbers: dict[float, tuple[HostRead, ...]] = {}
        self.constants: set[float] = set()  # numbers that a launch took before they were read
        self.contents: dict[tuple[int, int], tuple[HostRead, ...]] = {}  # by checksum and size
        self.readings: dict[HostRead, None] = {}

    def add(self, value: Any, sources: tuple[HostRead, ...], cell: object) -> None:
        """Remember this very object, a number or the components for a launch; `cell`: the array element it is."""
        self.any = True
        _put(self.held, id(value), (value, sources, cell))
        if value.__class__ is float:
            self.note(value, sources)

    def note(self, number: float, sources: tuple[HostRead, ...]) -> None:
        """Remember a number that was read, or computed from what was."""
        self.any = True
        _put(self.numbers, float(number), sources)

    def made(self, digits: int, nbytes: int, sources: tuple[HostRead, ...]) -> None:
        """Remember the checksum and size of an array that was read, or computed from what was."""
        _put(self.contents, (digits, nbytes), sources)

    def read(self, values: np.ndarray) -> None:
        """Remember an array that was read; one without sources is ignored."""
        for source in getattr(values, "sources", ()):
            self.any = True
            self.readings.pop(source, None)
            _put(self.readings, source, None, READINGS)
            if values.dtype == np.float64 and values.size <= FEW:
                for v in np.asarray(values).ravel().tolist():
                    self.note(v, (source,))
            if values.nbytes <= WHOLE:
                self.made(checksum(np.asarray(values)), values.nbytes, (source,))

    def of(self, value: object) -> tuple[HostRead, ...]:
        """The sources of this very object; () for any other, also of the same value."""
        return self.held.get(id(value), (None, (), None))[1]

    def cell(self, value: object) -> Any:
        """The array element that this very object was read from, or None."""
        return self.held.get(id(value), (None, (), None))[2]

    def supposed(self, value: object) -> tuple[HostRead, ...]:
        """The readings with the same bytes as a value, an element of a list, or an array that is viewed; else ()."""
        if is_meant(value):
            return ()
        if isinstance(value, np.floating | float):
            return self._number(float(value))
        if isinstance(value, list | tuple):
            if any(map(is_meant, value[:FEW])):
                return ()
            return united(map(self.supposed, value[:FEW]), None) or self._array(value)
        if not isinstance(value, np.ndarray):
            return ()
        return self._array(value) or (self.supposed(value.base) if isinstance(value.base, np.ndarray) else ())

    def _number(self, number: float) -> tuple[HostRead, ...]:
        sources = self.numbers.get(number, ())
        if not sources or number in self.constants or trivial(number):
            return ()
        if self._taken(number, sources):
            self.constants.add(number)
            return ()
        return sources

    def _taken(self, number: float, sources: tuple[HostRead, ...]) -> bool:
        """True if a launch before these readings took an equal plain number: then it is a constant of the user's."""
        tape: Any = self._tape()
        before = max((s.at(tape) or 0 for s in sources), default=0)
        for command in (e.command for e in tape.events[:before] if e.command is not None):
            flat = enumerate(command.flat)
            if number in command.program.constants:
                return True
            if any(v.__class__ is float and v == number and k not in command.declared for k, v in flat):
                return True
        return False

    def _array(self, value: object) -> tuple[HostRead, ...]:
        few = isinstance(value, np.ndarray) and value.size <= FEW and bool(self.numbers)
        if not (few or self.readings or self.contents):
            return ()
        try:
            raw = np.asarray(value)
        except ValueError:  # of rows that are not equally long
            return ()
        given = floats_of(raw)
        told = () if given is None else [v for v in sample(given).tolist() if not trivial(v)]
        if given is None or not told:
            return ()
        known = self.contents.get((checksum(raw), raw.nbytes)) or tuple(s for s in self.readings if _holds(s, raw))
        elements = () if known or given.size > FEW else [self._number(v) for v in told]
        return known or (united(elements, None) if all(elements) else ())


def _put(table: dict, key: object, value: object, most: int = COUNTED) -> None:
    table[key] = value
    if len(table) > most:
        del table[next(iter(table))]


def _holds(source: HostRead, given: np.ndarray) -> bool:
    """True if the memory that was read now holds the bytes of `given`."""
    span = source.span
    if span.size * span.itemsize != given.nbytes or given.dtype.names or span.itemsize % given.itemsize:
        return False
    return on_host(span.view(given.dtype)).tobytes() == given.tobytes()


def floats_of(values: np.ndarray) -> np.ndarray | None:
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


def trivial(value: float) -> bool:
    """True for inf, NaN or at most three significant digits (in float64 or float32): equality then says nothing."""
    if not math.isfinite(value):
        return True
    short = float(f"{value:.3g}")
    return short == value or float(np.float32(short)) == value


def checksum(values: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(values).view(np.uint8).data) if values.size else 0
