"""The statement at which a gradient dies: an observer of the slopes of functions that saturate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays.workspace import Workspace
from ..kernels import ir
from ..kernels.interpreter import run
from ..kernels.ops import scalar
from ..kernels.types import Scalar, is_float
from ..tapes.rerun import sample
from .saturated import spread_threads
from .walk_step import WalkObserver, WalkStep

LAUNCHES, THREADS = 64, 4  # looked at, spread evenly
DEAD = 1e-2  # a slope below this
_CURVED = (scalar.TANH, scalar.EXP, scalar.ERF, scalar.ERFC, scalar.ATAN, scalar.DIV, scalar.CLAMP)
_STEPS = (scalar.FLOOR, scalar.CEIL, scalar.TRUNC, scalar.ROUND, scalar.RINT, scalar.SIGN, scalar.STEP)


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

        threads = spread_threads(step.event.command.plan.form.dims, THREADS)
        with np.errstate(all="ignore"):
            sample(step.event, None, trace, _watched(step), threads)


def _watched(step: WalkStep) -> set[ir.Stmt]:
    stmts = ir.walk(step.event.command.plan.forward.function.body)
    found = {s: s.args[0].type for s in stmts if s.row in (*_CURVED, *_STEPS)}
    return {s for s, kind in found.items() if isinstance(kind, Scalar) and is_float(kind)}
