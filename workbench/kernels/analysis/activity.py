"""Activity analysis: which values of a kernel have a derivative, and which reach active memory.

(Griewank & Walther, Evaluating Derivatives, 2nd ed. 2008, section 6.2: a value is active if it is both varied, that is
depends on an active input, and useful, that is influences an active output.)
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir import Function, Stmt, Value, root, walk
from ..ops import control as c, memory as mem
from ..row import Effect
from ..types import Array, is_float


def varied(function: Function, active: frozenset[str], stmts: list[Stmt]) -> set[Value]:
    """The values with a derivative: those that depend, through rows with a derivative, on active memory.

    `stmts`: all statements of the function, with those that stand in for a call.
    """
    found = {p for p in function.params if p.name in active and not isinstance(p.type, Array)}
    size = -1
    while size != len(found):
        size = len(found)
        for stmt in stmts:
            found.update(_varied_by(stmt, found, active))
    return found


def _varied_by(stmt: Stmt, varied: set[Value], active: frozenset[str]) -> Iterable[Value]:
    row = stmt.row
    if row is mem.LOAD or row in mem.ATOMICS:
        return [o for o in stmt.outs if is_float(o.type) and root(stmt.args[0]).name in active]
    if row in (c.FOR, c.WHILE):
        moved = [x for x in c.carried(stmt) if is_float(x.out.type) and not varied.isdisjoint(x[1:])]
        return [v for x in moved for v in (x.out, x.param)]
    if row is c.CALL:
        return _varied_by_call(stmt, varied, active)
    if row in (c.IF, c.EACH):
        return [out for source, out in c.flows(stmt) if source in varied and is_float(out.type)]
    if row.adjoint is None or row.effect is not Effect.PURE:
        return []
    return [o for o in stmt.outs if is_float(o.type) and any(a in varied for a in stmt.args)]


def _varied_by_call(stmt: Stmt, varied: set[Value], active: frozenset[str]) -> list[Value]:
    """Through a user's own adjoint everything may depend on everything."""
    found = []
    for region in (stmt.regions[0], stmt.attr.replay):
        if region is not None:
            found += [p for p, a in zip(region.params, stmt.args, strict=True) if a in varied]
            found += [o for o, r in zip(stmt.outs, region.results, strict=True) if r in varied]
    if stmt.attr.grad is not None:
        inputs = [a in varied if not isinstance(a.type, Array) else root(a).name in active for a in stmt.args]
        found += [o for o in stmt.outs if is_float(o.type) and any(inputs)]
    return found


def useful(function: Function, active: frozenset[str]) -> set[Value]:
    """The values that reach active memory."""
    found = {s.args[-1] for s in walk(function.body) if s.row.writes and root(s.args[0]).name in active}
    size = -1
    while size != len(found):
        size = len(found)
        for stmt in walk(function.body):
            inner = [v for r in stmt.regions for v in r.params]
            if not found.isdisjoint(stmt.outs) or not found.isdisjoint(inner):
                found.update(stmt.operands)
    return found
