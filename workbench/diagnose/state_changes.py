"""The changes that the last launches of a line made to the state that each hands on to the next.

One idea: a state is what a launch writes and the next launch of the line reads, in place or in a second buffer. Both
values are looked at while the walk passes, where both are known.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..arrays.array import array
from ..arrays.span import Span
from ..device import on_host
from ..tapes.events import Event
from .walk_step import EventAccess, WalkStep

SERIES = 4  # launches of a line
LOOKED = 6  # of them, the last

Known = Callable[[Span], bool]


class Change(NamedTuple):
    """The change of a state by one launch: in its units, and relative to its norm."""

    state: EventAccess
    size: float
    relative: float


class StateChanges:
    """`lines`: repeated launches by line, in program order. `changes`: by event, of the states that are known."""

    def __init__(self, lines: dict[tuple, list[WalkStep]]):
        self.lines = {key: found for key, found in lines.items() if len(found) >= SERIES}
        self.changes: dict[Event, list[Change]] = {}
        self._states: dict[Event, list[tuple[EventAccess, array]]] = {}
        self._after: list[tuple[EventAccess, array, np.ndarray]] = []
        for found in self.lines.values():
            for before, step in list(itertools.pairwise(found))[-LOOKED:]:
                self._states[step.event] = _states(before, step)

    def observe_after(self, step: WalkStep, known: Known) -> None:
        """Called with memory as this event left it."""
        states = self._states.get(step.event, ())
        self._after = [(x, old, on_host(x.array.data).copy()) for x, old in states if known(x.array.span)]

    def observe_before(self, step: WalkStep, known: Known) -> None:
        """Called with memory as this event found it."""
        for state, old, now in self._after:
            if known(old.span):
                size, change = np.linalg.norm(now), np.linalg.norm(now.astype(np.float64) - on_host(old.data))
                if size > 0 and np.isfinite([size, change]).all():
                    found = Change(state, float(change), float(change / size))
                    self.changes.setdefault(step.event, []).append(found)
        self._after = []


def _states(before: WalkStep, step: WalkStep) -> list[tuple[EventAccess, array]]:
    """Pairs (write of `step`, the array of the launch before that it replaces), for states that `step` reads."""
    new, earlier = ([x for x in one.accesses if x.writes] for one in (step, before))
    read = {r.array.span for r in step.accesses if not r.writes}
    pairs = ((x, y.array) for x, y in zip(new, earlier, strict=False) if x.plain and x.scalar is not None)
    alike = ((x, old) for x, old in pairs if (old.shape, old.dtype) == (x.array.shape, x.array.dtype))
    return [(x, old) for x, old in alike if old.span in read]
