"""Rerun of one launch, or its adjoint, in the interpreter, on copies of the memory as the walk left it.

A trace function is called for every statement. Large launches are given up on: no statement is reported for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress

import numpy as np

from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.workspace import Shadow, Workspace
from ..device import XpArray, on_host
from ..errors import BoundsError
from ..kernels import ir
from ..kernels.interpreter import run
from ..kernels.ir import is_value
from ..kernels.types import is_float
from ..launches.arguments import views
from .events import Event

BUDGET = 500_000  # statements: about a second
SAMPLE = 30_000  # the same where a few threads are run
THREADS = 50_000

Trace = Callable[[tuple[int, ...], ir.Stmt, run.LiveValues], None]
Threads = Sequence[tuple[int, ...]] | None


class Enough(Exception):
    """Raised by a trace function to end the rerun, having found what it looked for."""


class Copies:
    """Host copies of the memory, and of the shadows, that a launch uses."""

    def __init__(self, event: Event, space: Workspace | None = None):
        self.event = event
        self.memory: dict[Allocation, np.ndarray] = {}
        self.shadows: dict[Allocation, np.ndarray] = {}
        for a in (x.allocation for x in event.command.places if isinstance(x, array)):
            if a not in self.memory:
                self.memory[a] = on_host(a.bytes).copy()
                if space is not None:
                    self.shadows[a] = on_host(space[a].data).copy() if a in space else on_host(Shadow(a).data)

    def primal(self) -> list:
        flat = self.event.command.flat
        args = views(self.event.command.program.function, flat)
        return [self.moved(a, v) if isinstance(a, array) else v for a, v in zip(flat, args, strict=True)]

    def moved(self, a: array, view: XpArray) -> np.ndarray:
        return np.ndarray(view.shape, view.dtype, self.memory[a.allocation], a.span.offset, view.strides)

    def beside(self) -> list[np.ndarray]:
        """The copied shadows of the active arguments, behind which an adjoint takes them."""
        return [self.shadow(self.event.command.places[k]) for k in self.event.reverse.shadows]

    def shadow(self, a: array) -> np.ndarray:
        """The copied shadow as a NumPy view, laid out like the array."""
        k = a.allocation.grad_scale or 1
        like = a.data
        dtype = like.dtype if k == 1 else np.dtype(np.float32)
        strides = tuple(s * k for s in like.strides)
        return np.ndarray(like.shape, dtype, self.shadows[a.allocation], a.span.offset * k, strides)


def small(event: Event) -> bool:
    return event.command is not None and 0 < math.prod(event.command.plan.form.dims) <= THREADS


def run_primal(event: Event, trace: Trace, threads: Threads = None) -> bool:
    """Rerun the launch, or some of its threads. False if it was given up on."""
    if threads is None and not small(event):
        return False
    return _run(event.command.plan.forward.function, event, Copies(event).primal(), trace, threads)


def run_adjoint(event: Event, space: Workspace, trace: Trace, threads: Threads = None) -> bool:
    """Rerun its adjoint, or some of its threads. False if it was given up on."""
    back = event.reverse
    if back is None or back.extremal or (threads is None and not small(event)):
        return False
    return run_copies(back.reverse.function, event, Copies(event, space), trace, threads)


def run_copies(
    function: ir.Function, event: Event, copies: Copies, trace: Trace | None = None, threads: Threads = None
) -> bool:
    """Run an adjoint of this launch on these copies, which it changes."""
    return _run(function, event, copies.primal() + copies.beside(), trace or (lambda *_: None), threads)


def _run(function: ir.Function, event: Event, args: list, trace: Trace, threads: Threads) -> bool:
    left = BUDGET if threads is None else SAMPLE

    def counted(thread: tuple[int, ...], stmt: ir.Stmt, values: run.LiveValues) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise TimeoutError
        trace(thread, stmt, values)

    try:
        run.run(function, event.command.plan.form.dims, args, trace=counted, threads=threads)
    except Enough:
        return True
    except (TimeoutError, BoundsError):
        return False
    return True


def sample(
    event: Event, space: Workspace | None, trace: Trace, watched: Container[ir.Stmt], threads: Sequence[tuple[int, ...]]
) -> None:
    """Rerun some threads of the launch (of its adjoint, in a workspace) until the trace raises Enough.

    The trace is called for the statements in `watched`.
    """
    copies, back = Copies(event, space), event.reverse
    function, args = event.command.plan.forward.function, copies.primal()
    if space is not None:
        function, args = back.reverse.function, [*args, *copies.beside()]
    with suppress(Enough, BoundsError):
        run.run(function, event.command.plan.form.dims, args, trace=trace, watched=watched, threads=threads)


def watched_costs(function: ir.Function, wanted: Iterable[ir.Stmt]) -> dict[ir.Stmt, int]:
    """Statements to be shown to a trace, with how many others run beside each: by them it can count what it costs.

    Others are counted at the first statement of their region, so that few have to be shown beside the `wanted` ones.
    """
    costs = dict.fromkeys(wanted, 1)
    for region in [function.body, *(r for s in ir.walk(function.body) for r in s.regions)]:
        if region.body:
            costs[region.body[0]] = costs.get(region.body[0], 0) + len(region.body)
    return costs


def is_number(value: ir.Value) -> bool:
    """True for a float, or a composite of floats."""
    return is_value(value.type) and is_float(value.type)
