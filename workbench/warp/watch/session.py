"""The record of one watched program, which the parts of a watch share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np
from warp._src import context

from ...arrays.array import array
from ...errors import GradientError, Where
from ...tapes.tape import Tape
from .events import WarpStep
from .hooks import call_of_program, is_installed
from .memory import Twins
from .rebind import programs
from .snapshots import GradientSnapshots


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
