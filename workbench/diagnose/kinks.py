"""Comparisons that a gradient depends on and that rounding could decide otherwise: their operands are almost equal.

One idea: the adjoint repeats every comparison that the gradient depends on; running it again shows the operands. A
difference is measured against what it was subtracted from, so that `min(x - wall, 0)` is close where x is at the wall.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays.workspace import Workspace
from ..errors import Where
from ..kernels import ir
from ..kernels.interpreter import run
from ..kernels.ops import scalar
from ..tapes.events import Event
from ..tapes.rerun import Enough, is_number, run_adjoint, small

ULPS = 4
MOST = 200_000  # comparisons and other statements of one diagnosis: well below a second
_COMPARISONS = (scalar.LT, scalar.LE, scalar.GT, scalar.GE, scalar.PICK_LT)


@dataclass
class Kinks:
    """What was seen so far: comparisons, close ones by statement of the kernel, launches."""

    compared: int = 0
    close: dict[ir.Stmt, int] = field(default_factory=dict)
    first: dict[ir.Stmt, tuple[Event, Any]] = field(default_factory=dict)
    launches: int = 0
    left: int = MOST

    def look(self, event: Event, space: Workspace) -> None:
        """Look at one launch; raises Enough when enough was looked at."""
        if event.reverse is None or not small(event):
            return
        statements = list(ir.walk(event.reverse.reverse.function.body))
        if not any(map(_decides, statements)):
            return
        self.left -= math.prod(event.command.plan.form.dims) * len(statements)
        if self.left < 0:
            raise Enough

        def trace(thread: tuple[int, ...], stmt: ir.Stmt, values: run.Values) -> None:
            if _decides(stmt):
                self.compared += 1
                if _close(values, *stmt.args[:2]):
                    of = stmt.of or stmt
                    self.close[of] = self.close.get(of, 0) + 1
                    self.first.setdefault(of, (event, thread[0] if len(thread) == 1 else thread))

        self.launches += run_adjoint(event, space, trace)

    def worst(self) -> tuple[ir.Stmt, int, Event, Any] | None:
        """The statement with most close calls: how many, and one event and thread of them."""
        if not self.close:
            return None
        stmt = max(self.close, key=lambda s: self.close[s])
        return (stmt, self.close[stmt], *self.first[stmt])


def where_of(stmt: ir.Stmt) -> Where | None:
    return stmt.where or (stmt.of.where if stmt.of is not None else None)


def _decides(stmt: ir.Stmt) -> bool:
    return stmt.row in _COMPARISONS and is_number(stmt.args[0])


def _close(values: run.Values, a: ir.Value, b: ir.Value) -> bool:
    x, y = values[a], values[b]
    scale = np.maximum(_scale(values, a, x), _scale(values, b, y))
    eps = np.finfo(a.type.scalar.numpy).eps  # type: ignore[attr-defined]
    return bool(np.any((np.abs(x - y) <= ULPS * eps * scale) & (scale > 0)))


def _scale(values: run.Values, value: ir.Value, number: Any) -> Any:
    """The magnitude that the rounding error of a value is relative to: that of the terms it is the sum of."""
    stmt = value.stmt
    if stmt is None or stmt.row not in (scalar.ADD, scalar.SUB):
        return np.abs(number)
    try:
        return np.maximum(np.abs(values[stmt.args[0]]), np.abs(values[stmt.args[1]]))
    except (KeyError, TypeError):  # made in a region that this thread has left
        return np.abs(number)
