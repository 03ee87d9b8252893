"""Rules about places without a derivative: slopes that are conventions, and comparisons that rounding could decide.

The adjoint repeats every comparison that the gradient depends on; running it again shows the operands. A difference is
measured against what it was subtracted from, so that `min(x - wall, 0)` is close where x is at the wall. Of a
convention the walk notes the statement (`tapes.conventions`); its launch runs again in the interpreter for the thread.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays.workspace import Workspace
from ..errors import Where
from ..kernels import ir
from ..kernels.emit.signature import conventions as claims
from ..kernels.interpreter import run
from ..kernels.ops import scalar
from ..tapes.events import Event
from ..tapes.rerun import Enough, is_number, run_adjoint, sample, small, watched_costs
from .finding import Finding
from .walk_record import RuleInput
from .walk_step import WalkObserver, WalkStep

ULPS = 4
MOST = 120_000  # statements of one diagnosis: a fraction of a second
LAUNCHES = 32  # looked at, spread evenly over the tape
MANY = 256  # the same where all of their threads have room
_PICKS = (scalar.PICK_LT, scalar.PICK_LE)
_COMPARISONS = (scalar.LT, scalar.LE, scalar.GT, scalar.GE, *_PICKS)


@dataclass
class Kinks(WalkObserver):
    """An observer of comparisons during a walk: how many, the close ones by statement, in how many launches.

    `chosen`: the launches to look at; `run`: how many statements that took. `tied`: by line a statement that chooses
    between two slopes whose operands are equal, where that makes a difference to the adjoint.
    """

    chosen: frozenset[Event] = frozenset()
    compared: int = 0
    close: Counter[ir.Stmt] = field(default_factory=Counter)
    first: dict[ir.Stmt, tuple[Event, Any]] = field(default_factory=dict)
    tied: dict[Where | None, tuple[ir.Stmt, Event, Any]] = field(default_factory=dict)
    launches: int = 0
    run: int = 0

    def choose(self, steps: Sequence[WalkStep]) -> None:
        """Choose launches to look at, within a budget that does not grow with the tape."""
        events = [step.event for step in steps]
        able = [e for e in events if e.reverse is not None and small(e) and not e.reverse.extremal and _costs(e)]
        whole = sum(sum(_costs(e).values()) * math.prod(e.command.plan.form.dims) for e in able)
        most = min(max(MOST * len(able) // max(whole, 1), LAUNCHES), MANY)
        picked = np.linspace(0, len(able) - 1, min(len(able), most)).round().astype(int)
        self.chosen = frozenset(able[k] for k in picked)

    def observe(self, step: WalkStep, space: Workspace) -> None:
        """Look at some threads of one launch, if it was chosen."""
        event = step.event
        if event not in self.chosen:
            return
        self.launches += 1
        costs, left = _costs(event), MOST // len(self.chosen)
        dims = event.command.plan.form.dims
        number = min(math.prod(dims), left)
        order = np.random.default_rng(0).permutation(math.prod(dims))[:number]
        threads = list(zip(*(axis.tolist() for axis in np.unravel_index(order, dims)), strict=True))

        def trace(thread: tuple[int, ...], stmt: ir.Stmt, values: run.LiveValues) -> None:
            nonlocal left
            left -= costs[stmt]
            self.run += costs[stmt]
            if left < 0:
                raise Enough
            if _decides(stmt):
                self.compared += 1
                of, at = stmt.of or stmt, thread[0] if len(thread) == 1 else thread
                if stmt.row in _PICKS and is_tied(stmt, values):
                    self.tied.setdefault(where_of(of), (of, event, at))
                elif _close(values, *stmt.args[:2]):
                    self.close[of] += 1
                    self.first.setdefault(of, (event, at))

        sample(event, space, trace, costs, threads)


def where_of(stmt: ir.Stmt) -> Where | None:
    return stmt.where or (stmt.of.where if stmt.of is not None else None)


def _costs(event: Event) -> dict[ir.Stmt, int]:
    """The statements to look at, with their costs; empty if the launch compares nothing."""
    return event.command.program.once(_costs_of, event.reverse.reverse.function)


def _costs_of(function: ir.Function) -> dict[ir.Stmt, int]:
    wanted = [s for s in ir.walk(function.body) if _decides(s)]
    return watched_costs(function, wanted) if wanted else {}


def _decides(stmt: ir.Stmt) -> bool:
    return stmt.row in _COMPARISONS and is_number(stmt.args[0]) and stmt.args[0] is not stmt.args[1]


def is_tied(stmt: ir.Stmt, values: run.LiveValues) -> bool:
    """True if a choice between two slopes has equal operands, and the adjoint depends on it."""
    a, b, x, y = (values[v] for v in stmt.args)
    return bool(np.any((a == b) & (x != y)))


def _close(values: run.LiveValues, a: ir.Value, b: ir.Value) -> bool:
    x, y = values[a], values[b]
    scale = np.maximum(_scale(values, a, x), _scale(values, b, y))
    eps = np.finfo(a.type.scalar.numpy).eps  # type: ignore[attr-defined]
    return bool(np.any((np.abs(x - y) <= ULPS * eps * scale) & (scale > 0)))


def _scale(values: run.LiveValues, value: ir.Value, number: float | np.ndarray) -> Any:
    """The magnitude that the rounding error of a value is relative to: that of the terms it is the sum of."""
    stmt = value.stmt
    if stmt is None or stmt.row not in (scalar.ADD, scalar.SUB):
        return np.abs(number)
    try:
        return np.maximum(np.abs(values[stmt.args[0]]), np.abs(values[stmt.args[1]]))
    except (KeyError, TypeError):  # made in a region that this thread has left
        return np.abs(number)


RERUN = 16  # that run again for one statement


def conventions(case: RuleInput) -> Iterator[Finding]:
    """Finds slopes that are conventions on the way of an adjoint."""
    launches = [e for e in case.tape.events if e.reverse is not None]
    for claim in list(case.tape.conventions):
        events = [e for e in launches if claim in claims(ir.walk(e.reverse.executable.function.body))]
        event, thread = _first(case, claim, events)
        step = case.trail.of[event]
        text = f"{claim.attr.text}, and the gradient goes through it."
        yield step.finding("convention", "warning", text, claim.attr.instead, step.written, claim.where, thread)


def _first(case: RuleInput, claim: ir.Stmt, events: list[Event]) -> tuple[Event, int | tuple[int, ...] | None]:
    """The last of the launches that meets the convention, with a thread; any, and None, where that is not found."""
    found: list[tuple[Event, int | tuple[int, ...]]] = []
    chosen = events[-RERUN:]

    def look(event: Event, space: Workspace) -> None:
        def trace(thread: tuple[int, ...], stmt: ir.Stmt, values: run.LiveValues) -> None:
            if stmt.attr == claim.attr and stmt.where == claim.where and not values[stmt.args[0]]:
                found.append((event, thread[0] if len(thread) == 1 else thread))
                raise Enough

        if event in chosen:
            run_adjoint(event, space, trace)
        if found:
            raise Enough

    case.visit(look)
    return found[0] if found else (events[-1], None)
