"""Events of a tape: one thing that happened to memory, what it kept, and what its adjoint needs."""

from __future__ import annotations

import linecache
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from types import CodeType
from typing import Any

import numpy as np

from ..arrays.allocation import Allocation, clock as clock
from ..arrays.array import array, spans_of
from ..arrays.ports import version_counters
from ..arrays.span import Span
from ..device import on_host
from ..display import offers
from ..errors import Where
from ..kernels.program import Leaf
from .kinds import Kind


@dataclass(eq=False, slots=True)
class KeptBytes:
    """Bytes saved before an event overwrote them."""

    span: Span
    data: Any
    needs: Sequence[Need] = ()  # those that this settles; none with keep="all"
    said: str = ""  # why, where no need of this process says it


@offers("arrays id kept kind label line reads reason source where writes")
class Event:
    """One thing that happened to memory, which it `reads` and `writes`. What few have is an attribute of the class."""

    kept: Sequence[KeptBytes] = ()
    reverse: Any = None  # plan.Backward, where the event is on an active path
    callback: Callable[[], None] | None = None
    arrays: tuple[array, ...] = ()
    loop: Any = None  # what a checkpointed loop needs to run again
    inner: Any = None  # the InnerBackward of a backward of another tape
    op: Any = None  # the OpCall of a custom op
    checked: bool = False  # for races
    sources: tuple[Any, ...] = ()  # readings of active memory that the host made the written values from
    constants: tuple[Any, ...] = ()  # such readings that constants of its kernel, or of its op, were made from
    theirs: bool = False  # noted, of memory that the tape knew: what it started from stays a leaf
    noted: bool = False  # a write through NumPy, of which only the sources are known
    reason: str = ""  # of an opaque event: why its adjoint is not known
    value: Any = None  # of a fill, where it is known
    said: str = ""  # of one event of a solve: how its residual went down
    guess: array | None = None  # of the first event of a solve: the array that it began at, which it has read
    followed: bool = True  # False: a copy whose source was not on an active path

    def __init__(
        self,
        id: int,
        kind: Kind,
        label: str,
        place: Any,
        reads: tuple[Span, ...] | None = (),
        writes: tuple[Span, ...] = (),
        command: Any = None,
        arrays: tuple[array, ...] = (),
    ):
        self.id = id  # the clock at recording: one counts events and publications of all tapes
        self.kind, self.label = kind, label
        self.place = place  # Where, or (code, its present instruction) until somebody asks
        self.writes, self.command = writes, command
        if reads is not None:
            self.reads = reads
        if arrays:
            self.arrays = arrays

    def __getattr__(self, name: str) -> Any:
        """`reads`, where they were given as None: those of the launch, worked out when first asked for."""
        if name != "reads" or self.__dict__.get("command") is None:
            raise AttributeError(name)
        self.reads: tuple[Span, ...] = spans_of(self.command.flat, self.command.plan.reads)
        return self.reads

    @property
    def source(self) -> array | None:
        """The array that a copy reads, which gets its adjoint; None for other kinds, `cut` too."""
        return self.arrays[1] if len(self.arrays) == 2 and not (self.kind.cuts or self.inner or self.op) else None

    @property
    def places(self) -> Sequence[Any]:
        """The arguments of a launch, one for each leaf of its kernel's parameters; of other events the arrays."""
        return self.arrays if self.command is None else self.command.places

    @property
    def arguments(self) -> Iterable[tuple[Leaf, Any]]:
        """Pairs of a leaf of the kernel's parameters and what a launch took for it; none for other events."""
        return () if self.command is None else zip(self.command.program.leaves, self.places, strict=True)

    @property
    def line(self) -> int:
        """The number of the user's line that made this event; 0 where it is not known."""
        return _line(*self.place) if isinstance(self.place, tuple) else getattr(self.place, "line", 0)

    @property
    def where(self) -> Where | None:
        """The user's line that made this event."""
        if isinstance(self.place, tuple):
            self.place = place_of(self.place)
        return self.place

    def __repr__(self) -> str:
        return f"<L{self.id} {self.label}>"


@dataclass(eq=False, slots=True)
class Need:
    """Bytes that the adjoint of an event will read, with a checksum if foreign code can change them unseen."""

    span: Span
    event: Event
    position: int  # of the array among the flat arguments, or among the event's arrays
    checksum: int | None = None
    stamp: Any = None

    @property
    def array(self) -> array:
        return self.event.places[self.position]

    @property
    def name(self) -> str:
        """The kernel's parameter name of the array, or its label for other events."""
        command = self.event.command
        return command.program.leaves[self.position].name if command else self.event.arrays[self.position].label

    def verify(self) -> bool:
        return self.checksum is None or self.checksum == checksum_of(self.span)

    def culprit(self) -> str:
        """The likely cause of a change of the bytes, as text for the error."""
        if self.stamp is not None and self.stamp != stamp_of(self.span.allocation):
            return "an in-place operation of torch"
        return "a write through its raw memory (numpy(), ptr, another library)"


@dataclass(eq=False, slots=True)
class Scope:
    """Events [first, last) of a tape under one name; `last` is None while it is open."""

    name: str
    first: int
    last: int | None = None


def place_of(place: tuple[Any, int]) -> Where:
    """The line of a piece of code and its present instruction."""
    code, instruction = place
    line = _line(code, instruction)
    text = linecache.getline(code.co_filename, line).rstrip("\n")
    return Where(code.co_filename, line, *_columns(code, instruction), text, code.co_name)


@lru_cache(4096)
def _line(code: CodeType, instruction: int) -> int:
    """The line of an instruction, cached, as `f_lineno` searches the code each time."""
    return next((n for begin, end, n in code.co_lines() if begin <= instruction < end and n), code.co_firstlineno)


@lru_cache(4096)
def _columns(code: CodeType, instruction: int) -> tuple[int, int]:
    """(start, end) column of the call of this instruction, in its first and last line."""
    _, _, start, end = next(islice(code.co_positions(), instruction // 2, None), (0, 0, 0, 0))
    return start or 0, end or 0


def stamp_of(a: Allocation) -> Any:
    """The count of changes that another library keeps of this memory (torch's versions); None if none does."""
    return next((found for counter in version_counters if (found := counter(a)) is not None), None)


def checksum_of(span: Span) -> int:
    return zlib.crc32(np.ascontiguousarray(on_host(span.words())).data)
