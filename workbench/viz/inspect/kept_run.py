"""A rerun of a tape's program on copies, with everything kept: it knows values that the tape does not keep."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

import numpy as np

from ...arrays.array import array
from ...errors import LaunchError
from ...tapes.replay import keep_all
from ...tapes.tape import Tape
from ..data.snapshot import TapeMoments
from .microscope import EventLike, ThreadIndex, event_of, microscope
from .steps import Microscope


class KeptRun:
    """Values and threads of the rerun at any moment, by the tape's event numbers. The caller holds the lock.

    Raises what `tapes.replay.keep_all` raises where a program cannot be run again.
    """

    def __init__(self, tape: Tape):
        self.tape, self.again = tape, keep_all(tape)
        self.moments = TapeMoments(self.again)
        self.starts = list(self.again.positions.values())  # of each event of the second run: its number on the tape
        copies = {a.allocation: self.again.of(a).allocation for a in tape.arrays.values()}
        self.again.last_seeds = {copies[a]: data for a, data in tape.last_seeds.items() if a in copies}
        if tape.within is not None:
            pairs = self.again.positions.items()
            self.again.within = frozenset(event for event, n in pairs if tape.events[n] in tape.within)

    def value(self, a: array, cursor: int) -> tuple[np.ndarray, np.ndarray, str]:
        """As `TapeMoments.value`."""
        numbers, known, note = self.moments.value(self.again.of(a), bisect_left(self.starts, cursor))
        return numbers, known, "" if known.all() else note

    def microscope(self, tape: Tape, event: EventLike, thread: ThreadIndex) -> Microscope:
        """As `microscope` of the tape, with every value known."""
        n = tape.events.index(event_of(tape, event))
        if n not in self.starts:
            raise LaunchError("that launch was not run again.", slug="event")
        found = microscope(self.again, self.starts.index(n), thread)
        return replace(found, event=n, heading=f"#{n} {tape.events[n].label}")
