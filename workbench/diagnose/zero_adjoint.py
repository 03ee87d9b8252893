"""The statement at which the adjoint became zero inside one launch, and why nothing passed it.

One idea: adjoint statements remember the primal statement they stem from. One that some thread reaches with a nonzero
adjoint, and no thread leaves with one, is where it ended; before any run, data flow alone may tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays.array import array
from ..arrays.workspace import Workspace
from ..errors import Where
from ..kernels import ir
from ..kernels.analysis.activity import useful, varied
from ..kernels.interpreter import run
from ..kernels.ops import Row, control, memory, scalar
from ..kernels.types import bool_
from ..tapes.events import Event
from ..tapes.rerun import is_number, run_adjoint


class _Flows:
    """The adjoint flow by primal statement: those whose reversal adjoints `came` into, and `passed` out of."""

    def __init__(self, function: ir.Function, shadows: frozenset[str], targets: frozenset[str]):
        self.targets, self.added = targets, False  # did any thread add something to their gradient
        self.came: set[ir.Stmt] = set()
        self.passed: set[ir.Stmt] = set()
        self.stopped: dict[ir.Stmt, bool] = {}  # adjoint statements: did every thread end here
        self.ran: set[ir.Stmt] = set()
        self.order: dict[ir.Stmt, None] = {}
        self.adjoints = varied(function, shadows, list(ir.walk(function.body)))
        self.toward = useful(function, targets)
        self.escaping: set[ir.Value] = set()
        self.taken: dict[ir.Stmt, list[ir.Value]] = {}
        self.around: dict[ir.Stmt, list[ir.Stmt | None]] = {}
        for stmt in ir.walk(function.body):
            primal = stmt.of
            self.escaping.update(a for a in stmt.operands if a.stmt is not None and a.stmt.of is not primal)
            if stmt.row is memory.ACCUMULATE:
                self.escaping.add(stmt.args[-1])
            inner = [s for r in stmt.regions for s in ir.walk(r)]
            made = {o for s in inner for o in s.outs}
            used = (*stmt.args, *(a for s in inner for a in s.args), *(v for r in stmt.regions for v in r.results))
            outer = (a for a in used if a not in made and a in self.adjoints)
            self.taken[stmt] = [a for a in outer if a.stmt and a.stmt.of is not primal]
            for s in inner:
                self.around.setdefault(s, []).append(primal)

    def trace(self, thread: tuple[int, ...], stmt: ir.Stmt, values: run.LiveValues) -> None:
        self.ran.add(stmt)
        if stmt.role != "adjoint" or stmt.of is None:
            return
        leads = any(o in self.toward for o in stmt.outs)
        if leads:
            self.order.setdefault(stmt.of)
            if any(a in self.adjoints and _nonzero(values, a) for a in stmt.args):
                lives = any(is_number(o) and _nonzero(values, o) for o in stmt.outs)
                self.stopped[stmt] = self.stopped.get(stmt, True) and not lives
        if stmt.row is memory.LOAD and stmt.outs[0] in self.toward:
            comes = _nonzero(values, stmt.outs[0])
        else:
            comes = any(_nonzero(values, a) for a in self.taken[stmt])
        if comes:
            self.came.add(stmt.of)
        if any(o in self.escaping and is_number(o) and _nonzero(values, o) for o in stmt.outs):
            self.passed.add(stmt.of)
        if stmt.row is memory.ACCUMULATE and _nonzero(values, stmt.args[-1]):
            self.passed.update(s for s in (stmt.of, *self.around.get(stmt, ())) if s is not None)
            self.added |= ir.root(stmt.args[0]).name in self.targets


def _nonzero(values: run.LiveValues, value: ir.Value) -> bool:
    try:
        return bool(np.any(values[value] != 0))
    except KeyError:
        return False


@dataclass(frozen=True)
class ZeroedAt:
    """The end of an adjoint: the primal statement, the reason, and a remedy.

    `kind`: `died`; `cancelled`, if contributions of threads sum to zero; `apart`, if nothing that carries an adjoint
    was computed from the leaf; `meant`, at a detach.
    """

    where: Where | None
    reason: str
    fix: str = ""
    kind: str = "died"


def first_death(event: Event, space: Workspace, targets: frozenset[str]) -> ZeroedAt | None:
    """The first statement of the reverse pass at which an adjoint came in and none went out to `targets`, or None."""
    if event.reverse is None:
        return None
    function = event.reverse.reverse.function
    companions = frozenset(p.name for p in function.arrays if p.companion is not None)
    shadows = frozenset(p.name for p in function.arrays if p.role is ir.Role.SHADOW and p.belongs_to in targets)
    flow = _Flows(function, companions, shadows)
    if not run_adjoint(event, space, flow.trace):
        return None
    if flow.added:
        return ZeroedAt(None, "the contributions of its threads cancel exactly", kind="cancelled")
    for primal in flow.order:
        if primal in flow.came and primal not in flow.passed:
            return _explained(primal, event)
    missed = _not_run(function, flow, event)
    if missed is not None:
        return missed
    ended = next((s.of for s, all_of_them in flow.stopped.items() if all_of_them), None)
    return ZeroedAt(None, "", kind="apart") if ended is None else _explained(ended, event)


DETACHED = "wb.detach lets no gradient through, as it is meant"
FLAT = "inputs or weights of another size: at these the function is flat"
_CHOICES: dict[Row, tuple[str, str]] = {
    control.IF: (
        "no thread took the branch through which the gradient would flow",
        "inputs for which the branch is taken",
    ),
    scalar.CLAMP: (
        "the value lies outside the bounds of `clamp` in every thread, where its derivative is zero",
        "wider bounds, or a smooth limit such as tanh",
    ),
    scalar.MIN: ("`min` took the other operand in every thread", "a smooth minimum, or inputs on this side"),
    scalar.MAX: ("`max` took the other operand in every thread", "a smooth maximum, or inputs on this side"),
    scalar.WHERE: ("`where` chose the other side in every thread", "inputs for which this side is chosen"),
    scalar.MUL: ("the other factor is zero in every thread", "a factor that is not zero"),
    control.FOR: ("the loop lets nothing through", ""),
    control.WHILE: ("the loop lets nothing through", ""),
}


def _explained(stmt: ir.Stmt, event: Event) -> ZeroedAt:
    if stmt.row.cut:
        return flat(stmt)
    for one, two in filter(None, (_same_memory(a.stmt, event) for a in stmt.args)) if stmt.row is scalar.MUL else ():
        reason, fix = f"{one} and {two} are one memory", f"{two} = wb.clone({one}), before {one} changes"
        return ZeroedAt(stmt.where, f"{reason}, and their difference is zero", fix)
    reason, fix = _CHOICES.get(stmt.row, (f"the derivative of `{stmt.row.name}` is zero at these values", FLAT))
    return ZeroedAt(stmt.where, reason, fix)


def _same_memory(stmt: ir.Stmt | None, event: Event) -> list[str]:
    """The two parameters whose elements a statement subtracts, if they are one and the same; else nothing."""
    loads = [a.stmt for a in stmt.args if a.stmt is not None] if stmt is not None and stmt.row is scalar.SUB else []
    if len(loads) != 2 or any(s.row is not memory.LOAD for s in loads) or loads[0].args[1:] != loads[1].args[1:]:
        return []
    spans = {leaf.name: a.span for leaf, a in event.arguments if isinstance(a, array)}
    names = [ir.root(s.args[0]).name for s in loads]
    return names if len(set(names)) == 2 and spans.get(names[0]) == spans.get(names[1]) else []


def _not_run(function: ir.Function, flow: _Flows, event: Event) -> ZeroedAt | None:
    """The end at a branch or loop of the adjoint that never ran but would have moved adjoints; None if none."""
    for stmt in ir.walk(function.body):
        for region in stmt.regions:
            touching = [s for s in ir.walk(region) if s.role == "adjoint" and s.row in (memory.LOAD, memory.ACCUMULATE)]
            if touching and not any(s in flow.ran for s in touching):
                if stmt.row is control.IF:
                    return _explained(stmt, event)
                return ZeroedAt(stmt.where, "the loop made no turn")
    return None


# ---- what has no derivative at all

_ROUNDING = (scalar.RINT, scalar.FLOOR, scalar.CEIL)


def flat(stmt: ir.Stmt) -> ZeroedAt:
    """The end of an adjoint at a statement whose derivative is zero everywhere."""
    if stmt.row.cut:
        return ZeroedAt(stmt.where, DETACHED, kind="meant")
    if stmt.row is scalar.CAST:
        return ZeroedAt(stmt.where, f"a cast to {stmt.outs[0].type} has derivative zero", "keep the value a float")
    if stmt.outs[0].type == bool_:
        return ZeroedAt(stmt.where, "only a comparison depends on it, and that has derivative zero", "a smooth weight")
    what = "rounding" if stmt.row in _ROUNDING else f"`{stmt.row.name}`"
    return ZeroedAt(stmt.where, f"the derivative of {what} is zero everywhere", "a smooth approximation")
