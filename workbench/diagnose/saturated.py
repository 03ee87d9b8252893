"""A rule about `clamp`, `min` and `max` that hold a value at its bound from some launch of a series on, or everywhere.

One idea: a bound that is reached in passing is ordinary, and so is one whose value is 0 (no contact, a resting neuron).
A value other than 0 that comes out in every later launch of the line, and did not before, is one that lost its gradient
on the way. The last launch runs again in the interpreter, and in the others the threads that it found at their bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..arrays.workspace import Workspace
from ..kernels import ir
from ..kernels.analysis.activity import varied
from ..kernels.interpreter import run
from ..kernels.ops import scalar
from ..kernels.types import Composite, is_float
from ..launches.plan import Plan
from ..tapes.events import Event
from ..tapes.rerun import run_adjoint, run_primal, small
from .finding import Finding
from .kinks import where_of

if TYPE_CHECKING:
    from .rule import Case
    from .walk_record import Step

TURNS = 4  # launches of a line that are a series
TAIL = 3  # of them at the bound, at least
THREADS = 64  # of the last launch, evenly spread
FOLLOWED = 8  # threads that are followed through the others
LOOKED = 300  # launches of a line
STATEMENTS = 100_000  # of one diagnosis: a fraction of a second
LIMITS = (scalar.CLAMP, scalar.MIN, scalar.MAX)

Place = tuple  # (statement, thread, component)


@dataclass
class _Line:
    """The launches of one line, in program order, and which of its places were at a bound in which of them."""

    steps: list[Step]
    limits: dict[Plan, dict[ir.Stmt, list[bool]]] = field(default_factory=dict)  # which operands have a derivative
    held: dict[Place, dict[Event, bool]] = field(default_factory=dict)
    last: Event | None = None
    everywhere: set[ir.Stmt] = field(default_factory=set)  # at a bound in every place of the last launch


class Bounds:
    """What was seen of the bounds of a tape, by line. The walk shows every launch of a series as it passes."""

    def __init__(self) -> None:
        self.lines: list[_Line] = []
        self.of: dict[Event, _Line] = {}
        self.left = STATEMENTS

    def choose(self, steps: Sequence[Step]) -> None:
        """Decide which launches will be looked at."""
        series: dict[tuple, list[Step]] = {}
        for step in steps:
            if step.event.reverse is not None and small(step.event):
                series.setdefault((step.event.label, step.event.line), []).append(step)
        for found in series.values():
            line = _Line(found[-LOOKED:])
            for step in line.steps:
                plan = step.event.command.plan
                if plan not in line.limits:
                    line.limits[plan] = _limits(plan.forward.function, step.event.reverse.reverse.active)
            if any(line.limits.values()):
                self.lines.append(line)
                self.of.update((s.event, line) for s in line.steps)

    def look(self, step: Step, space: Workspace) -> None:
        """Look at one launch, with memory as it found it and the adjoint of what it left."""
        line = self.of.get(step.event)
        if line is not None and self.left > 0 and (line.last is not None or step.flowing > 0):
            self.left -= _look(line, step.event, space)


def saturated(case: Case) -> Iterator[Finding]:
    """Bounds that are reached in a series of launches and never left."""
    for line in case.trail.bounds.lines if case.seeded and case.trail.final is not None else ():
        found = _reached(line)
        if found is not None:
            yield _told(line, *found)


def _limits(function: ir.Function, active: frozenset[str]) -> dict[ir.Stmt, list[bool]]:
    """The bounds of a kernel that apply to something with a derivative, with which of their operands have one."""
    stmts = list(ir.walk(function.body))
    depends = varied(function, active, stmts)
    found = {s: [a in depends for a in s.args] for s in stmts
             if s.row in LIMITS and is_float(s.outs[0].type) and not _smooth(s)}  # fmt: skip
    return {s: flags for s, flags in found.items() if any(flags) and not all(flags)}


def _smooth(stmt: ir.Stmt) -> bool:
    """True for the bounds of a smoothstep, where it is flat: there is no corner."""
    return stmt.where is not None and "smoothstep" in stmt.where.text


def _look(line: _Line, event: Event, space: Workspace) -> int:
    """Note which places are at their bound in this launch. Returns the number of statements that ran."""
    plan = event.command.plan
    limits = line.limits[plan]
    first = line.last is None
    dims = plan.form.dims
    ran = 0
    if first:
        number = math.prod(dims)
        picked = np.unique(np.linspace(0, number - 1, min(number, THREADS)).astype(int))
        threads = [tuple(map(int, np.unravel_index(n, dims))) for n in picked]
    else:
        threads = list(dict.fromkeys(thread for _, thread, _ in line.held))
        if not threads:
            return 0

    def trace(thread: tuple[int, ...], stmt: ir.Stmt, values: run.Values) -> None:
        nonlocal ran
        ran += 1
        if stmt not in limits:
            return
        for k, held in enumerate(_held(stmt, limits[stmt], values)):
            place = stmt, thread, k
            if first or place in line.held:
                known = line.held.setdefault(place, {})
                known[event] = known.get(event, True) and bool(held)  # of several turns, all

    if not run_primal(event, trace, threads):  # too long a loop
        line.held.clear()
    if first:
        line.last = event
        _keep_reached(line, event, space)
    return ran


def _keep_reached(line: _Line, event: Event, space: Workspace) -> None:
    """Forget the places that no adjoint reaches, and all but a few of the others."""
    places = [p for p, launches in line.held.items() if launches.get(event)]
    line.everywhere = {p[0] for p in line.held} - {p[0] for p in line.held if not line.held[p].get(event)}
    wanted, came = {stmt.where for stmt, _, _ in places}, set()

    def trace(thread: tuple[int, ...], stmt: ir.Stmt, values: run.Values) -> None:
        of = stmt.of
        limit = of is not None and of.row in LIMITS and of.where in wanted and stmt.role == "adjoint"
        if limit and any(_brings(a, stmt, values) for a in stmt.args):
            came.add((of.where, thread))  # type: ignore[union-attr]

    run_adjoint(event, space, trace, list(dict.fromkeys(thread for _, thread, _ in places)))
    reached = [p for p in places if (p[0].where, p[1]) in came]
    line.held = {p: line.held[p] for p in reached[:FOLLOWED]}


def _brings(value: ir.Value, stmt: ir.Stmt, values: run.Values) -> bool:
    made = value.stmt
    if made is None or made.role != "adjoint" or made.of is stmt.of or not is_float(value.type):
        return False
    return bool(np.any(values[value] != 0))


def _held(stmt: ir.Stmt, depends: list[bool], values: run.Values) -> np.ndarray:
    """By component, whether a bound without a derivative came out, and is not 0."""
    out = np.atleast_1d(np.asarray(values[stmt.outs[0]])).ravel()
    given = [np.broadcast_to(np.asarray(values[a]).ravel(), out.shape) for a in stmt.args]
    if stmt.row is scalar.CLAMP:
        x, lo, hi = given
        chosen = np.where((hi < lo) | (hi < x), 2, np.where(x < lo, 1, 0))
    else:
        a, b = given
        chosen = np.where(b < a if stmt.row is scalar.MIN else a < b, 1, 0)
    return ~np.array(depends)[chosen] & (out != 0)


def _reached(line: _Line) -> tuple[Place, int, int] | None:
    """The place that is at its bound for longest, from which launch of the line on; None if there is none.

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
        if (always or later) and (best is None or begin < best[1]):
            best = place, begin, end
    return best


def _told(line: _Line, place: Place, begin: int, end: int) -> Finding:
    (stmt, thread, component), step = place, line.steps[begin]
    names = tuple(dict.fromkeys(x.name for x in step.accesses if x.writes))
    fix = "wider bounds, or a smooth limit such as tanh"
    if begin == 0:  # `min(dt, limit)` may be meant so, a clamp less likely
        severity = "warning" if stmt.row is scalar.CLAMP else "info"
        return Finding(
            "saturated", severity, step.title, where_of(stmt) or step.event.where,
            f"`{stmt.row.name}` holds its bound in every thread, in all {len(line.steps)} launches of this line: its"
            " derivative is zero there, and no gradient goes through it.",
            fix, names,
        )  # fmt: skip
    part = f" component {component}," if isinstance(stmt.outs[0].type, Composite) else ""
    number: int | tuple[int, ...] = thread[0] if len(thread) == 1 else thread
    return Finding(
        "saturated", "warning", step.title, where_of(stmt) or step.event.where,
        f"`{stmt.row.name}` holds its bound in thread {number},{part} from {step.title} (launch {begin + 1} of"
        f" {len(line.steps)} on this line) to the last one, and did not before: its derivative is zero there, and what"
        f" goes into it gets no gradient from these {end - begin + 1} launches.",
        fix, names, number,
    )  # fmt: skip
