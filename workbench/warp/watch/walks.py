"""The exact gradients of the events that a backward of Warp's reverses, by walks over our tape.

Further walks, with other seeds, other numbers in memory or an adjoint cut out, measure rounding and test causes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...arrays.span import Span
from ...arrays.workspace import Workspace, gradient_dtype, is_float_memory, shadow_view
from ...kernels.ir import Stmt
from ...tapes.events import Event
from ...tapes.reverse import reverse
from .compare import NOISY, ROUNDED, VerdictRow
from .events import WarpStep
from .perturbed_walks import OtherSlopes, Rounded, RoundedWithin, ZeroedStep
from .session import Session

Act = Callable[[Any, Event, Workspace, dict], None]
SCALES = (1.0, 1.37, 0.811, 2.93)  # of the seeds: each rounds differently, which tells how far rounding goes
TRIALS = 3  # walks in which everything is moved by a rounding


@dataclass(eq=False)
class PublishedGradient:
    """An array of Warp with a gradient, its twin, and what its gradient held before the pass."""

    theirs: Any
    twin: array
    before: np.ndarray
    written: bool = False  # by an event of the pass that is no host write
    at: Event | None = None  # the event whose reversal leaves the exact gradient; None: there is none to compare
    after: np.ndarray | None = None  # what Warp has published

    @property
    def holds(self) -> bool:
        """True if its gradient was non-zero before the pass. False for structs."""
        return self.before.dtype.names is None and bool(np.any(self.before))


class GradientWalks:
    """Exact gradients of some events. `rows`: the verdicts on Warp's, as far as there are any.

    steps      what has been walked back, in order; `past`: all steps before, `events`: ours.
    seeds      (twin, values): what the walk starts from.
    published  the arrays whose gradients are looked at.
    exact      by the id of a twin: the exact gradient.
    reached    the opaque or doubtful events that an adjoint came to.
    """

    published: list[PublishedGradient]
    seeds: list[tuple[array, np.ndarray]]
    again: list[PublishedGradient]
    events: list[Event]
    steps: list[WarpStep]
    by_entry: list[WarpStep | None]
    complete: bool

    def __init__(self, session: Session, number: int, moment: Any, past: list[WarpStep], entries: list[Any]):
        self.session, self.number, self.moment, self.past, self.entries = session, number, moment, past, entries
        self.rows: list[VerdictRow] = []
        self.reached: list[Event] = []
        self.stopped: Event | None = None  # at which a walk broke off
        self.exact: dict[int, np.ndarray] = {}
        self.met: list[Stmt] = []  # claims of places without a derivative that the walk to `exact` came to
        self.noise: dict[int, np.ndarray] = {}
        self.moved: dict[int, np.ndarray] = {}
        self.slopes: OtherSlopes | None = None
        self.within: dict[Event, dict[int, np.ndarray]] = {}  # of an event, see `moved_within`; empty if too large
        self.cuts: dict[frozenset[Allocation], dict[int, np.ndarray]] = {}  # by the memory that lets no adjoint pass
        self.answers: dict[Any, Any] = {}  # what rules have said of a launch, see `explain`
        self.other: dict[int, np.ndarray] = {}  # the exact gradients with the other slope at kinks

    def _walk(self, scale: float, act: Act = reverse) -> tuple[dict[int, np.ndarray], dict[int, WarpStep]]:
        """(exact gradients by twin id, the step where Warp's buffer of each array first differs).

        `act` reverses an event; the seeds are `scale` times as large.
        """
        raise NotImplementedError

    def row_of(self, one: PublishedGradient) -> VerdictRow | None:
        """The row about an array."""
        return next((row for p, row in zip(self.published, self.rows, strict=False) if p is one), None)

    def noise_of(self, one: PublishedGradient) -> np.ndarray | None:
        """The rounding noise of each number of this gradient, measured by scaled seeds; None if unknown."""
        for scale in SCALES[1:] if not self.noise else ():
            _note(self.noise, self._walk(scale)[0], self.exact, scale)
        return self.noise.get(id(one.twin))

    def _moved_of(self, one: PublishedGradient) -> np.ndarray | None:
        """The movement of each number of this gradient when all memory and adjoints are perturbed by a rounding."""
        for seed in range(TRIALS) if not self.moved else ():
            _note(self.moved, self._walk(SCALES[0], Rounded(seed))[0], self.exact)
        return self.moved.get(id(one.twin))

    def _rounding_of(self, one: PublishedGradient) -> np.ndarray | None:
        """A bound on the rounding error of each number of this gradient, the larger of both measures, or None."""
        noise, moved = self.noise_of(one), self._moved_of(one)
        return None if noise is None or moved is None else np.maximum(NOISY * noise, ROUNDED * moved)

    def moved_within(self, one: PublishedGradient, event: Event) -> np.ndarray | None:
        """The movement of this gradient when every operation of one launch's adjoint is perturbed by a rounding.

        None where that launch is too large to be interpreted.
        """
        if event not in self.within:
            moved: dict[int, np.ndarray] = {}
            for seed in range(TRIALS):
                act = RoundedWithin(event, seed)
                _note(moved, self._walk(SCALES[0], act)[0], self.exact)
                if not act.ran:
                    moved.clear()
                    break
            self.within[event] = moved
        return self.within[event].get(id(one.twin))

    def with_step(self, act: Act) -> dict[int, np.ndarray]:
        """The gradients of the pass with `act` reversing its events, by twin id."""
        return self._walk(SCALES[0], act)[0]

    def with_seeds(self, seeds: list[tuple[array, np.ndarray]]) -> dict[int, np.ndarray]:
        """The exact gradients of the pass for other seeds, by twin id."""
        kept, self.seeds = self.seeds, seeds
        try:
            return self._walk(SCALES[0])[0]
        finally:
            self.seeds = kept

    def without(self, *twins: array) -> dict[int, np.ndarray]:
        """The gradients of the pass with the adjoints of these arrays cut, by twin id."""
        lost = frozenset(twin.allocation for twin in twins)
        if lost not in self.cuts:
            self.cuts[lost] = self._walk(SCALES[0], ZeroedStep(lost))[0]
        return self.cuts[lost]


def _note(noise: dict[int, np.ndarray], others: dict[int, np.ndarray], exact: dict, scale: float = 1.0) -> None:
    """Keep, per number, the larger of the noise so far and the deviation of `others` / `scale` from `exact`."""
    for key, values in others.items():
        with np.errstate(all="ignore"):
            apart = np.abs(values.astype(np.float64) / scale - exact[key].astype(np.float64))
        noise[key] = np.maximum(noise.get(key, 0.0), apart)


def meets(span: Span, spans: Iterable[Span]) -> bool:
    """True if one of `spans` shares a byte with `span`, or may."""
    return any(s.allocation is span.allocation and s.overlaps(span) is not False for s in spans)


def add_seeds(space: Workspace, seeds: Iterable[tuple[array, np.ndarray]], scale: float = 1.0) -> None:
    """Add seeds, `scale` times as large, to the adjoints of a walk."""
    for twin, values in seeds:
        view = shadow_view(twin, space[twin.allocation])
        view += (values.reshape(view.shape) * scale).astype(view.dtype)


def reads(event: Event, span: Span) -> bool:
    """True if an event reads these bytes other than to accumulate into them."""
    if event.command is None:
        return meets(span, event.reads)
    plan = event.command.plan
    pairs = zip(plan.reads, event.reads, strict=False)
    return meets(span, (s for (k, _), s in pairs if k not in plan.accumulates_only))


def gradient_in(space: Workspace, twin: array) -> np.ndarray:
    """A copy of the adjoint of an array, zeros where the walk has none."""
    if not is_float_memory(twin):
        return np.zeros(twin.data.shape, np.float32)
    if twin.allocation not in space:
        return np.zeros(twin.data.shape, gradient_dtype(twin))
    return np.array(shadow_view(twin, space[twin.allocation]))
