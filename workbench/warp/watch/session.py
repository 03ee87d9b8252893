"""The record of one watched program, which the parts of a watch share.

A call of Warp's is a `WarpStep` in it, with our event and how its result differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np
from warp._src import context

from ...arrays.array import array
from ...arrays.dtypes import itemsize_of
from ...errors import GradientError, Where
from ...tapes.events import Event
from ...tapes.tape import Tape
from .hooks import call_of_program, is_installed
from .memory import TwinBuffer, Twins
from .rebind import programs
from .snapshots import GradientSnapshots

RACE = "race: "  # what the reason of a step begins with whose threads store to one place
HOST_WRITE = "host write"  # the label of events that the program did without a call of Warp
FAR = 1e-3  # of the largest number in memory: what no order of summation explains


@dataclass(frozen=True)
class ForwardDifference:
    """The largest difference between an event's result and Warp's: the index in its memory, both values, the distance.

    ulps   in units in the last place; for integers their difference.
    share  as a share of the largest number in that memory.
    whole  True for integers.
    """

    region: TwinBuffer
    number: int
    ours: float
    theirs: float
    ulps: float
    share: float
    whole: bool = False

    @property
    def far(self) -> bool:
        return not self.share <= FAR


@dataclass(eq=False)
class WarpStep:
    """One call of Warp's that changed memory.

    number       of its event on the tape (of the next one, if it has none); `#3` in messages and pictures.
    kind         launch, adjoint (a launch of one), copy, fill_, zero_, assign, opaque, host (bytes that the host wrote
                 between two calls).
    label        the kernel, or the kind.
    event        ours on the tape; None for a write to memory that nothing had read.
    recorded_by  the `wp.Tape` that recorded it too, as the number of the watch for it; None without.
    kernel       of a launch: Warp's kernel.
    reason       why it is opaque; "" where it is not.
    difference   from Warp's result, the largest; None where the bits are the same.
    chosen       it asks a mesh, and only whole numbers are apart: as where several faces are as close.
    """

    number: int
    kind: str
    label: str
    event: Event | None
    recorded_by: int | None = None
    kernel: Any = None
    reason: str = ""
    difference: ForwardDifference | None = None
    chosen: bool = False

    @property
    def where(self) -> Where | None:
        """The user's line."""
        return None if self.event is None else self.event.where

    @property
    def doubtful(self) -> bool:
        """True if the result is too far from Warp's for our event to stand for the call."""
        return self.difference is not None and self.difference.far and not self.chosen

    def __repr__(self) -> str:
        return f"#{self.number} {self.label}"


def asks_mesh(event: Event | None) -> bool:
    """True if a launch queries a mesh, where several faces may be equally close."""
    if event is None or event.command is None:
        return False
    return any(leaf.opened is not None and leaf.opened.name == "Mesh" for leaf in event.command.program.leaves)


def difference_of(twins: Twins, region: TwinBuffer) -> ForwardDifference | None:
    """The largest difference between a twin and Warp's buffer; None if there is none. NaN equals NaN, 0 equals -0."""
    flat = twins.flat(region)
    n, numpy = flat.size * itemsize_of(flat.dtype), flat.dtype.numpy  # type: ignore[attr-defined]
    ours, theirs = region.allocation.bytes[:n].view(numpy), region.live[:n].view(numpy)
    found = [d for one, two in _numbers(ours, theirs) if (d := _difference(region, one, two)) is not None]
    return max(found, key=lambda d: d.share, default=None)


def _numbers(ours: np.ndarray, theirs: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields pairs of flat numeric arrays; of struct arrays one pair per field, without padding."""
    for name in ours.dtype.names or ():
        yield from _numbers(ours[name], theirs[name])
    if ours.dtype.names is None:
        yield ours.reshape(-1), theirs.reshape(-1)


def _difference(region: TwinBuffer, ours: np.ndarray, theirs: np.ndarray) -> ForwardDifference | None:
    numpy = ours.dtype
    differ = ours != theirs
    if not differ.any():
        return None
    places = np.flatnonzero(differ)
    with np.errstate(all="ignore"):  # memory that nobody has filled may hold any bits
        mine, other = ours[places].astype(np.float64), theirs[places].astype(np.float64)
        gap = np.where(np.isnan(mine) & np.isnan(other), 0.0, np.abs(other - mine))
        gap[~np.isfinite(gap)] = np.inf
        if not gap.any():
            return None
        most = int(np.argmax(gap))
        worst, far = int(places[most]), float(gap[most])
        size = float(np.max(np.abs(theirs[np.isfinite(theirs)]), initial=0)) if numpy.kind == "f" else 0.0
        unit = float(np.spacing(np.abs(theirs[worst]))) if numpy.kind == "f" else 1.0
        share = far / size if size else np.inf
    numbers = float(ours[worst]), float(theirs[worst])
    return ForwardDifference(region, worst, *numbers, far / unit, share, numpy.kind != "f")


class CallSite(NamedTuple):
    """A call site: the part of a frame that events need."""

    f_code: CodeType
    f_lasti: int


@dataclass(eq=False)
class LeftGradient:
    """The gradient that backward `number` left in a `.grad`, with a digest of its array's contents then."""

    number: int
    gradient: np.ndarray
    at: bytes
    computed: bool  # by an event of that backward's pass
    seed: np.ndarray | None = None  # what the program had put there, if that backward has used it up
    source: array | None = None  # the twin of the array from whose `.grad` a copy has brought it along
    shared: bool = False  # with a tensor of torch, as its `grad`


class Session:
    """A watched program: its twins, our tape, and a step for each of Warp's calls.

    check      "gradient", "forward" or None: what is compared.
    inside     True in a call of Warp: what that calls is part of it.
    backward   the snapshots of the backward that is running or being captured, or None.
    tapes      Warp's tapes, each with its number.
    recorded   of a tape of Warp: the step of each entry, by its id; None for a launch of no threads.
    escaped    of a tape of Warp: the steps while it was open that it has not recorded.
    left       of a `.grad`: what a backward left in it.
    views      of a `.grad`: the arrays that its `numpy()` has given, each with the number of the backward before.
    cuts       clones with requires_grad=False: gradients are meant to end there.
    seeded     True once the program's own gradient was asked for.
    """

    def __init__(self, keep: str, check: str | None):
        self.check = check
        self.tape = Tape(keep=keep)
        self.steps: list[WarpStep] = []
        self.programs = programs()
        self.twins = Twins(self.programs)
        self.inside = self.seeded = False
        self.backward: GradientSnapshots | None = None
        self.calls: dict[tuple[str, int], Where] = {}  # of a line of an installed library: the program's call behind it
        self.tapes: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self.recorded: WeakKeyDictionary[Any, dict[int, WarpStep | None]] = WeakKeyDictionary()
        self.escaped: WeakKeyDictionary[Any, list[WarpStep]] = WeakKeyDictionary()
        self.left: WeakKeyDictionary[Any, LeftGradient] = WeakKeyDictionary()
        self.views: WeakKeyDictionary[Any, list[tuple[int, ref[np.ndarray]]]] = WeakKeyDictionary()
        self.cuts: WeakKeyDictionary[Any, None] = WeakKeyDictionary()

    # ---- calls of Warp

    def quietly(self, theirs: Callable[[], Any]) -> Any:
        """Run a call of Warp's, of which nothing is recorded. Returns what it returns."""
        self.inside = True
        try:
            return theirs()
        finally:
            self.inside = False

    def run(self, theirs: Callable[[], Any]) -> tuple[Any, Any, list[Any]]:
        """Run a call of Warp's. Returns (its result, Warp's open tape or None, what that tape recorded of it)."""
        tape = context.runtime.tape
        before = 0 if tape is None else len(tape.launches)
        result = self.quietly(theirs)
        return result, tape, [] if tape is None else tape.launches[before:]

    def place_of(self, frame: FrameType) -> CallSite:
        """The call site of a frame; of an installed library the program's call behind it is noted too."""
        if is_installed(file := frame.f_code.co_filename) and (file, frame.f_lineno) not in self.calls:
            self.calls[file, frame.f_lineno] = call_of_program(frame)
        return CallSite(frame.f_code, frame.f_lasti)

    # ---- names and twins

    def twin_of(self, a: object) -> array:
        """Our twin of an array of Warp. Raises GradientError [watch-unknown]."""
        found = self.twins.behind(a)
        if not found or self.twins.made[id(a)].region is None:
            text = "an array that the watched program has not touched"
            instead = "an array of Warp that a launch inside the watch reads or writes"
            raise GradientError(text, slug="watch-unknown", instead=instead)
        return found[0]
