"""A rule about `clamp`, `min` and `max` that hold a value at its bound from some launch of a series on, or everywhere.

One idea: a bound reached in passing is ordinary, and so is a `min` or `max` of 0 (no contact, a resting neuron).
Another value that comes out in every later launch of the line, and did not before, is one that lost its gradient on the
way; a clamp that gives 0 is good to know, as it may be a contact that ended. The last launch runs again in the
interpreter, and in the others the threads that it found at their bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..arrays.grouping import grouped
from ..arrays.workspace import Workspace
from ..kernels import ir
from ..kernels.analysis.activity import varied
from ..kernels.interpreter import run
from ..kernels.ops import scalar
from ..kernels.types import Composite, Scalar, is_float
from ..tapes.events import Event
from ..tapes.rerun import run_adjoint, run_primal, sample, small
from .finding import Finding
from .kinks import where_of
from .walk_record import RuleInput
from .walk_step import WalkObserver, WalkStep

TURNS = 4  # launches of a line that are a series
TAIL = 3  # of them at the bound, at least
THREADS = 64  # of the last launch, evenly spread
FOLLOWED = 8  # threads that are followed through the others
LOOKED = 300  # launches of a line
STATEMENTS = 100_000  # of one diagnosis: a fraction of a second
WIDER = "wider bounds, or a smooth limit such as tanh"
LIMITS = (scalar.CLAMP, scalar.MIN, scalar.MAX)

Place = tuple  # (statement, thread, component)
LAUNCHES, EACH = 64, 4  # looked at for slopes, spread evenly: launches, and threads of each
DEAD = 1e-2  # a slope below this
_CURVED = (scalar.TANH, scalar.EXP, scalar.ERF, scalar.ERFC, scalar.ATAN, scalar.DIV, scalar.CLAMP)
_STEPS = (scalar.FLOOR, scalar.CEIL, scalar.TRUNC, scalar.ROUND, scalar.RINT, scalar.SIGN, scalar.STEP)


@dataclass
class _BoundLine:
    """The launches of one line in program order, and by place the launches in which it was at its bound."""

    steps: list[WalkStep]
    held: dict[Place, dict[Event, bool]] = field(default_factory=dict)
    last: Event | None = None
    everywhere: set[ir.Stmt] = field(default_factory=set)  # at a bound in every place of the last launch
    zero: set[Place] = field(default_factory=set)  # that bound is 0


class Bounds(WalkObserver):
    """An observer of `clamp`, `min` and `max`, by line. A walk shows it the launches of a series."""

    def __init__(self) -> None:
        self.lines: list[_BoundLine] = []
        self.of: dict[Event, _BoundLine] = {}
        self.left = STATEMENTS

    def choose(self, steps: Sequence[WalkStep]) -> None:
        """Choose the launches to look at."""
        able = [s for s in steps if s.event.reverse is not None and small(s.event)]
        for found in grouped(((s.event.label, s.event.line), s) for s in able).values():
            line = _BoundLine(found[-LOOKED:])
            if any(_limits(step.event) for step in line.steps):
                self.lines.append(line)
                self.of.update((s.event, line) for s in line.steps)

    def observe(self, step: WalkStep, space: Workspace) -> None:
        """Look at one launch, with memory as it found it and the adjoint of its results."""
        line = self.of.get(step.event)
        if line is not None and self.left > 0 and (line.last is not None or step.flowing > 0):
            self.left -= _record_bounds(line, step.event, space)


def saturated(case: RuleInput) -> Iterator[Finding]:
    """Finds bounds that are reached in a series of launches and never left."""
    for line in case.trail.observer(Bounds).lines:
        if (found := _reached(line)) is None:
            continue
        ((stmt, thread, component), begin, end), zero = found, found[0] in line.zero
        step, many = line.steps[begin], len(line.steps)
        if begin:
            since = f"from {step.title} (launch {begin + 1} of {many} on this line)"
            yield saturation(stmt, thread, component, zero, step, since, f"{end - begin + 1} launches")
            continue
        severity = "warning" if stmt.row is scalar.CLAMP and not zero else "info"  # `min(dt, limit)` may be meant so
        text = (
            f"`{stmt.row.name}` holds its bound in every thread, in all {many} launches of this line: its derivative is"
            " zero there, and no gradient goes through it."
        )
        yield step.finding("saturated", severity, text, WIDER, step.written, where_of(stmt))


def _limits(event: Event) -> dict[ir.Stmt, list[bool]]:
    """The bounds of a launch: which operands have a derivative. The first of a series may start from constants."""
    command = event.command
    return command.program.once(limits_of, command.plan.forward.function, event.reverse.reverse.active)


def limits_of(function: ir.Function, active: frozenset[str]) -> dict[ir.Stmt, list[bool]]:
    """The bounds of a kernel with a flag per operand, True if it has a derivative; some have one, some have none."""
    stmts = list(ir.walk(function.body))
    depends = varied(function, active, stmts)
    found = {
        s: [a in depends for a in s.args]
        for s in stmts
        if s.row in LIMITS and is_float(s.outs[0].type) and "smoothstep" not in (s.where.text if s.where else "")
    }  # not the bounds of a smoothstep: its slope is 0 on both sides
    return {s: flags for s, flags in found.items() if any(flags) and not all(flags)}


def _record_bounds(line: _BoundLine, event: Event, space: Workspace) -> int:
    """Record the places at their bound in this launch. Returns the number of statements that ran."""
    limits, first = _limits(event), line.last is None
    ran, dims = 0, event.command.plan.form.dims
    threads = spread_threads(dims, THREADS) if first else list(dict.fromkeys(thread for _, thread, _ in line.held))
    if not threads:
        return 0

    def trace(thread: tuple[int, ...], stmt: ir.Stmt, values: run.LiveValues) -> None:
        nonlocal ran
        ran += 1
        if stmt not in limits:
            return
        for k, (held, zero) in enumerate(zip(*held_at_bound(stmt, limits[stmt], values), strict=True)):
            place = stmt, thread, k
            if held and zero:
                line.zero.add(place)
            if first or place in line.held:
                known = line.held.setdefault(place, {})
                known[event] = known.get(event, True) and bool(held)  # of several turns, all

    if not run_primal(event, trace, threads):  # too long a loop
        line.held.clear()
    if first:
        line.last = event
        _keep_reached(line, event, space)
    return ran


def spread_threads(dims: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """At most so many threads of a grid, evenly spread."""
    number = math.prod(dims)
    picked = np.unique(np.linspace(0, number - 1, min(number, most)).astype(int))
    return [tuple(map(int, np.unravel_index(n, dims))) for n in picked]


def _keep_reached(line: _BoundLine, event: Event, space: Workspace) -> None:
    """Keep only places that an adjoint reaches, and FOLLOWED of them at most."""
    places = [p for p, launches in line.held.items() if launches.get(event)]
    line.everywhere = {p[0] for p in line.held} - {p[0] for p in line.held if not line.held[p].get(event)}
    wanted, came = {stmt.where for stmt, _, _ in places}, set()

    def trace(thread: tuple[int, ...], stmt: ir.Stmt, values: run.LiveValues) -> None:
        of = stmt.of
        limit = of is not None and of.row in LIMITS and of.where in wanted and stmt.role == "adjoint"
        if limit and any(carries_adjoint(a, stmt, values) for a in stmt.args):
            came.add((of.where, thread))  # type: ignore[union-attr]

    run_adjoint(event, space, trace, list(dict.fromkeys(thread for _, thread, _ in places)))
    reached = sorted((p for p in places if (p[0].where, p[1]) in came), key=lambda p: p in line.zero)
    line.held = {p: line.held[p] for p in reached[:FOLLOWED]}


def carries_adjoint(value: ir.Value, stmt: ir.Stmt, values: run.LiveValues) -> bool:
    """True if `value`, an operand of an adjoint statement, is a non-zero adjoint of another primal statement."""
    made = value.stmt
    if made is None or made.role != "adjoint" or made.of is stmt.of or not is_float(value.type):
        return False
    return bool(np.any(values[value] != 0))


def held_at_bound(stmt: ir.Stmt, depends: list[bool], values: run.LiveValues) -> tuple[np.ndarray, np.ndarray]:
    """(at a bound without a derivative, result is 0), bool arrays by component. A 0 of `min`, `max` is no bound."""
    out = np.atleast_1d(np.asarray(values[stmt.outs[0]])).ravel()
    given = [np.asarray(values[a]).ravel() for a in stmt.args]  # a scalar bound serves every component
    if stmt.row is scalar.CLAMP:
        x, lo, hi = given
        chosen = np.where((hi < lo) | (hi < x), 2, np.where(x < lo, 1, 0))
        return ~np.array(depends)[chosen], out == 0
    a, b = given
    chosen = np.where(b < a if stmt.row is scalar.MIN else a < b, 1, 0)
    return ~np.array(depends)[chosen] & (out != 0), out == 0


def _reached(line: _BoundLine) -> tuple[Place, int, int] | None:
    """The place that stays at its bound longest, with its first and last launch; None if there is none.

    From the first launch on counts only if no thread is anywhere else: else it may be what the bound is for.
    """
    best: tuple[Place, int, int] | None = None
    for place, launches in line.held.items():
        known = [launches.get(s.event) for s in line.steps]
        end = max((n for n, held in enumerate(known) if held is not None), default=-1)
        begin = end
        while begin > 0 and known[begin - 1]:
            begin -= 1
        always = begin == 0 and place[0] in line.everywhere
        later = begin > 0 and known[begin - 1] is False and len(line.steps) >= TURNS and end - begin + 1 >= TAIL
        if (always or later) and (best is None or (place in line.zero, begin) < (best[0] in line.zero, best[1])):
            best = place, begin, end
    return best


def saturation(
    stmt: ir.Stmt, thread: tuple[int, ...], component: int, zero: bool, step: WalkStep, since: str, lost: str
) -> Finding:
    """The finding about a bound that one thread reached and never left. `zero`: the bound is 0."""
    part = f" component {component}," if isinstance(stmt.outs[0].type, Composite) else ""
    number: int | tuple[int, ...] = thread[0] if len(thread) == 1 else thread
    text = (
        f"`{stmt.row.name}` holds its bound in thread {number},{part} {since} to the last one, and did not before: its"
        f" derivative is zero there, and what goes into it gets no gradient from these {lost}."
    )
    return step.finding("saturated", "info" if zero else "warning", text, WIDER, step.written, where_of(stmt), number)


# ---- the statement at which a gradient dies: slopes of functions that saturate


@dataclass(frozen=True)
class DeadSlope:
    """A statement whose derivative by its argument is `slope` for a thread of a launch."""

    step: WalkStep
    stmt: ir.Stmt
    thread: tuple[int, ...]
    slope: float

    @property
    def rank(self) -> tuple[bool, float]:
        """Its place among others: a quotient, whose slope has units, comes after what saturates."""
        return self.stmt.row is scalar.DIV, self.slope


class DeadSlopes(WalkObserver):
    """An observer of a walk: `flattest`, the statement with the smallest slope among those an adjoint comes to."""

    def __init__(self) -> None:
        self.flattest: DeadSlope | None = None
        self.chosen: list[WalkStep] = []

    def choose(self, steps: Sequence[WalkStep]) -> None:
        """Choose launches to look at."""
        able = [s for s in steps if s.event.reverse is not None and _watched(s)]
        picked = np.linspace(0, len(able) - 1, min(len(able), LAUNCHES)).round().astype(int)
        self.chosen = [able[k] for k in picked]

    def observe(self, step: WalkStep, space: Workspace) -> None:
        """Look at some threads of one launch, if it was chosen and an adjoint comes to it."""
        if not step.flowing or not any(step is s for s in self.chosen):
            return

        def trace(thread: tuple[int, ...], stmt: ir.Stmt, values: run.LiveValues) -> None:
            x, y = values[stmt.args[0]], values[stmt.outs[0]]
            rule = stmt.row.adjoint
            partial = None if rule is None else rule(type(x)(1), y, x, *[values[a] for a in stmt.args[1:]])
            many = 2 if stmt.row is scalar.DIV else 1  # a bound is no argument
            slopes = [abs(float(p)) for p in partial[:many] if p is not None] if isinstance(partial, tuple) else []
            found = DeadSlope(step, stmt, thread, max(slopes, default=0.0))
            if found.slope < DEAD and (self.flattest is None or found.rank < self.flattest.rank):
                self.flattest = found

        threads = spread_threads(step.event.command.plan.form.dims, EACH)
        with np.errstate(all="ignore"):
            sample(step.event, None, trace, _watched(step), threads)


def _watched(step: WalkStep) -> set[ir.Stmt]:
    stmts = ir.walk(step.event.command.plan.forward.function.body)
    found = {s: s.args[0].type for s in stmts if s.row in (*_CURVED, *_STEPS)}
    return {s for s, kind in found.items() if isinstance(kind, Scalar) and is_float(kind)}
