"""Classification of how threads use the arrays they change: it decides how the interpreter batches threads.

OWN: no two threads touch one cell. LATER: all of them add to it, and none reads it. IN_TURN: one statement changes it,
once in every thread.
"""

from __future__ import annotations

from .. import ir
from ..interpreter.lane_memory import IN_TURN, LATER, OWN
from ..interpreter.lanes import has_lanes
from ..ops import control, memory
from ..types import Tile, uint64
from .accesses import accesses_of
from .launch_form import LaunchForm
from .thread_conflicts import private

_ALONE = (control.EACH, control.GRAD, control.PRINTF, memory.LOG_STORE, memory.MARK, memory.ROLLBACK)


def uses(function: ir.Function, form: LaunchForm) -> dict[str, str] | None:
    """The use of each array that changes. None where one has none of these uses, or is reached by two names, and where
    threads print, work on tiles or undo what they stored.
    """
    statements = list(ir.walk(function.body))
    touching: dict[str, list[ir.Stmt]] = {}
    for access in accesses_of(function):
        touching.setdefault(access.name, []).append(access.stmt)
    changed = {name for name, found in touching.items() if any(s.row.writes for s in found)}
    if changed & form.shared or any(map(_alone, statements)):
        return None
    loops = [s for s in statements if s.row in (control.FOR, control.WHILE)]
    looped = {s for loop in loops for region in loop.regions for s in ir.walk(region)}
    read = ir.used(function.body)
    found = {n: _use(function, form, n, touching[n], looped, read) for n in changed}
    known = {n: use for n, use in found.items() if use is not None}
    return known if len(known) == len(found) else None


def _alone(stmt: ir.Stmt) -> bool:
    """True if threads must run this statement one after the other (I/O, tiles, replays, uint64 loops ...)."""
    return (
        stmt.row in _ALONE
        or not has_lanes(stmt)
        or (stmt.row is control.CALL and stmt.attr is not None and stmt.attr.replay is not None)
        or (stmt.row is control.FOR and stmt.args[0].type is uint64)
        or any(isinstance(v.type, Tile) for v in (*stmt.args, *stmt.outs))
    )


def _use(
    function: ir.Function, form: LaunchForm, name: str, found: list[ir.Stmt], looped: set[ir.Stmt], read: set[ir.Value]
) -> str | None:
    if private(function, name, form):
        return OWN
    updates = {s.row.update for s in found}
    if len(updates) == 1 and None not in updates and not any(out in read for s in found for out in s.outs):
        return LATER
    return IN_TURN if len(found) == 1 and None not in updates and found[0] not in looped else None
