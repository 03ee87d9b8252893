"""The interpreter: what a kernel means. Threads run one after another in C order, each statement by statement.

It needs no compiler and checks every access, so it is the oracle for compiled code; and as the rows say what they mean
themselves, they stay the only place that knows an operation. `trace` sees every statement with its values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from .. import ir
from . import access, control
from .arithmetic import by_meaning
from .closures import LOG, THREAD, Closures, LiveValues

__all__ = ["LiveValues", "run"]

_STEPS = {**control.STEPS, **access.STEPS}


def run(
    function: ir.Function,
    dims: Sequence[int],
    args: Sequence[Any],
    *,
    trace: Callable[[tuple[int, ...], ir.Stmt, LiveValues], None] | None = None,
    watched: Container[ir.Stmt] | None = None,
    threads: Sequence[tuple[int, ...]] | None = None,
) -> set[ir.Stmt]:
    """Run every thread of the grid `dims` (or these alone) on `args`, one per parameter; stores go to the arrays.

    An array parameter takes an ndarray of shape (*array shape, *component shape) with the scalar dtype of its element,
    strided as it may be, or None for an array of no elements. A value parameter takes a number or an ndarray.
    `trace(thread, stmt, values)` is called after every statement, or after those in `watched` alone. Raises BoundsError
    for an index outside its array or component. Returns the claims of conventions (`control.Convention`) that failed.
    """
    with np.errstate(all="ignore"):
        closures = Closures(dims, _STEPS, by_meaning, trace, function.name, watched)
        closures.bind(function.params, args)
        steps, slots = closures.region(function.body), closures.slots
        for thread in itertools.product(*map(range, dims)) if threads is None else threads:
            slots[THREAD], slots[LOG] = thread, []
            for step in steps:
                step(slots)
        return closures.noted
