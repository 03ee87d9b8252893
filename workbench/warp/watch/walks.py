"""The exact gradients of the events that a backward of Warp's reverses, by walks over our tape.

Perturbed walks measure rounding and test causes: other seeds, memory moved by a rounding (how far two right
computations may be apart), the other of two right slopes at a kink, the adjoint of an array cut out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import warp

from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...arrays.span import Span
from ...arrays.workspace import Workspace, float_parts, gradient_dtype, is_float_memory, shadow_view
from ...diagnose.kinks import is_tied
from ...diagnose.saturated import spread_threads
from ...kernels import ir
from ...kernels.interpreter import run
from ...kernels.ir import Stmt
from ...kernels.ops.scalar import ABS
from ...kernels.passes.other_slope import choices, other_slope
from ...launches.adjoint_plan import Backward
from ...launches.command import Command
from ...launches.executable import executable_for
from ...launches.plan import Plan
from ...tapes.events import Event
from ...tapes.rerun import Copies, Enough, is_number, run_copies, sample, small
from ...tapes.reverse import reverse
from .compare import NOISY, ROUNDED, VerdictRow
from .memory import Twins, Untranslated
from .session import Session, WarpStep

THREADS = 512  # of a launch, looked at for operands that are equal


def floats(event: Event) -> Iterator[array]:
    """Yields the float arrays that an event touches; of struct arrays each float field."""
    yield from (part for a in event.places if isinstance(a, array) for part in float_parts(a).values())


# ---- steps of a walk: with what is told first they are an `Act`

Act = Callable[[Any, Event, Workspace, dict], None]  # reverses an event


def moved(values: np.ndarray, numbers: np.random.Generator, units: int = 1) -> np.ndarray:
    """Values, each moved by up to so many units in the last place."""
    return values * (1 + units * np.finfo(values.dtype).eps * numbers.uniform(-1, 1, values.shape))


def rounded(numbers: np.random.Generator, tape: Any, event: Event, space: Workspace, after: dict) -> None:
    """Moves memory and adjoints by up to two units in the last place."""
    parts = list(floats(event))
    kept = {}
    if event.reverse is not None and not event.reverse.extremal:  # those look for the very number that they stored
        kept = {part.allocation: part.allocation.bytes.copy() for part in parts}
        for part in parts:
            part.data[...] = moved(part.data, numbers, 2)
    try:
        reverse(tape, event, space, after)
    finally:
        for allocation, values in kept.items():
            allocation.bytes[...] = values
    for part in parts:
        if part.allocation in space:
            view = space[part.allocation].view(part.span, gradient_dtype(part))
            view[...] = moved(view, numbers, 2)


def with_numbers(numbers: dict[Event, dict[int, Any]], tape: Any, event: Event, space: Workspace, after: dict) -> None:
    """Reverses some launches with other numbers as arguments, given by event and parameter."""
    command = event.command
    if event in numbers and command is not None:
        flat = [numbers[event].get(k, given) for k, given in enumerate(command.flat)]
        event.command = Command(command.program, command.plan, flat)
    try:
        reverse(tape, event, space, after)
    finally:
        event.command = command


def zeroed(lost: Iterable[Allocation], tape: Any, event: Event, space: Workspace, after: dict) -> None:
    """Zeroes the adjoint of some memory, so that nothing flows through it."""
    reverse(tape, event, space, after)
    for allocation in lost:
        if allocation in space:
            space[allocation].data[...] = 0


def rounded_within(
    launch: Event, numbers: np.random.Generator, tape: Any, event: Event, space: Workspace, after: dict
) -> None:
    """Perturbs every operation in one launch's adjoint by a rounding."""

    def move(thread: tuple[int, ...], stmt: ir.Stmt, values: run.LiveValues) -> None:
        for out in () if stmt.row.moves or not stmt.args else stmt.outs:
            if is_number(out):
                now = np.asarray(values[out])
                values[out] = moved(now, numbers).astype(now.dtype)[()]

    back = event.reverse
    if event is launch and back is not None and not back.extremal and small(event):
        copies = Copies(event, space)
        if run_copies(back.reverse.function, event, copies, move):
            for allocation, values in copies.shadows.items():
                space[allocation].data[...] = values
            return
    reverse(tape, event, space, after)


@dataclass(eq=False)
class OtherSlopes:
    """A step of the walk that takes the other slope at ties.

    looks  True: also find the first tie (slow if there is none) and its event, as `tie`.
    """

    looks: bool = False
    tie: tuple[ir.Stmt, Event] | None = None

    def __call__(self, tape: Any, event: Event, space: Workspace, after: dict) -> None:
        if not is_choosing(event):
            reverse(tape, event, space, after)
            return
        if self.looks and self.tie is None:
            self.look(event, space)
        own, plan = event.reverse, event.command.plan
        event.reverse = plan.program.once(_with_other_slopes, plan, own)
        try:
            reverse(tape, event, space, after)
        finally:
            event.reverse = own

    def look(self, event: Event, space: Workspace) -> None:
        """Find a tie that a non-zero adjoint passes, among up to THREADS threads of a launch; sets `tie`."""
        wanted = frozenset(s for s in choices(event.reverse.reverse.function) if is_number(s.args[0]))

        def trace(thread: tuple[int, ...], stmt: ir.Stmt, values: run.LiveValues) -> None:
            if is_tied(stmt, values):
                self.tie = stmt.of or stmt, event
                raise Enough

        sample(event, space, trace, wanted, spread_threads(event.command.plan.form.dims, THREADS))

    def sentence(self) -> str:
        """The location of the kink as text, as far as it was found."""
        if self.tie is None:
            return "kink: a `min`, `max`, `abs` or `clamp` on the way has both operands equal"
        stmt = self.tie[0]
        place = f" in line {stmt.where.line}" if stmt.where is not None else ""
        at = "is at 0" if stmt.row is ABS else "has both operands equal"
        return f"kink: `{stmt.row.name}`{place} {at}"


def _with_other_slopes(plan: Plan, back: Backward) -> Backward:
    """The adjoint of a launch with the other slope at ties, as one function without a gather."""
    function = other_slope(back.reverse.function)
    executable = executable_for(plan.program, function, plan.form.beside(function), back.reverse.ordered)
    return replace(back, executable=executable, pull=None)


def is_choosing(event: Event) -> bool:
    """True if the adjoint of an event chooses between two slopes somewhere."""
    back = event.reverse
    if back is None or event.command is None:
        return False
    return bool(event.command.program.once(choices, back.reverse.function))


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

    def whole(self, exact: np.ndarray) -> np.ndarray:
        """The exact gradient of a pass, with what was there before it where the pass adds to that."""
        return exact if self.written else exact + self.before

    @property
    def holds(self) -> bool:
        """True if its gradient was non-zero before the pass. False for structs."""
        return is_seed(self.before)


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
        self.measured: dict[Any, dict[int, np.ndarray]] = {}  # how far perturbed walks lead away, see `_deviation`
        self.slopes: OtherSlopes | None = None
        self.cuts: dict[frozenset[Allocation], dict[int, np.ndarray]] = {}  # by the memory that lets no adjoint pass
        self.answers: dict[Any, Any] = {}  # what rules have said of a launch, see `explain`
        self.other: dict[int, np.ndarray] = {}  # the exact gradients with the other slope at kinks

    def _walk(self, scale: float, act: Act = reverse) -> tuple[dict[int, np.ndarray], dict[int, WarpStep]]:
        """(exact gradients by twin id, the step where Warp's buffer of each array first differs).

        `act` reverses an event; the seeds are `scale` times as large.
        """
        raise NotImplementedError

    def noise_of(self, one: PublishedGradient) -> np.ndarray | None:
        """The rounding noise of each number of this gradient, measured by scaled seeds; None if unknown."""
        return self._deviation("scaled", ((reverse, scale) for scale in SCALES[1:]), one)

    def _rounding_of(self, one: PublishedGradient) -> np.ndarray | None:
        """A bound on the rounding error of each number of this gradient, the larger of both measures, or None."""
        noise = self.noise_of(one)
        trials = (partial(rounded, np.random.default_rng(seed)) for seed in range(TRIALS))
        apart = self._deviation("rounded", ((trial, 1.0) for trial in trials), one)
        return None if noise is None or apart is None else np.maximum(NOISY * noise, ROUNDED * apart)

    def moved_within(self, one: PublishedGradient, event: Event) -> np.ndarray | None:
        """The movement of this gradient when every operation of one launch's adjoint is perturbed by a rounding.

        None where that launch is too large to be interpreted.
        """
        trials = (np.random.default_rng(seed) for seed in range(TRIALS if small(event) else 0))
        return self._deviation(event, ((partial(rounded_within, event, trial), 1.0) for trial in trials), one)

    def _deviation(self, key: object, walks: Iterable[tuple[Act, float]], one: PublishedGradient) -> np.ndarray | None:
        """The largest distance of each number from the exact one in some walks (step, scale of the seeds), kept by key.

        None of a gradient that they do not come to.
        """
        if key not in self.measured:
            found = self.measured[key] = {}
            for act, scale in walks:
                for twin, values in self._walk(scale, act)[0].items():
                    with np.errstate(all="ignore"):
                        apart = np.abs(values.astype(np.float64) / scale - self.exact[twin].astype(np.float64))
                    found[twin] = np.maximum(found.get(twin, 0.0), apart)
        return self.measured[key].get(id(one.twin))

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
            self.cuts[lost] = self._walk(SCALES[0], partial(zeroed, lost))[0]
        return self.cuts[lost]


def is_seed(gradient: np.ndarray) -> bool:
    """True if a gradient is not zero. False for structs."""
    return gradient.dtype.names is None and bool(np.any(gradient))


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


Changed = tuple[int, Any, Any]  # the number of a parameter, what it was, and what it is (an array of Warp, or a number)


def changed(twins: Twins, command: Command, values: list[Any]) -> Iterator[Changed]:
    """Yields the parameters of our launch `command` that differ among `values`, Warp's present arguments."""
    for k, (leaf, then) in enumerate(zip(command.program.leaves, command.flat, strict=True)):
        if not 0 <= leaf.arg < len(values) or leaf.opened is not None:
            continue
        now = values[leaf.arg]
        for name in leaf.path:
            now = now[name] if isinstance(now, dict) else now
        if isinstance(then, array) and isinstance(now, warp.array):
            twin = next(iter(twins.behind(now)), None)
            if twin is None or twin.allocation is not then.allocation or twin.shape != then.shape:
                yield k, then, now
        elif not isinstance(then, array) and not warp.types.is_array(now) and not isinstance(now, dict):
            try:
                number = np.asarray(twins.value(now), np.asarray(then).dtype)
            except (Untranslated, TypeError, ValueError):
                continue
            if not np.array_equal(np.ravel(then), np.ravel(number), equal_nan=number.dtype.kind == "f"):
                yield k, then, number if isinstance(then, np.ndarray) else number.item()
