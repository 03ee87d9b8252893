"""The compiler: a Python function in; IR, its adjoint and machine code out. It knows no array and no launch.

The route of a kernel, and the folder or file of each stage (`Kernel.steps` shows them all for one kernel):

    read      reading/    the function's syntax tree -> IR (`ir`), typed by the rows of `ops/`, or a refusal
    analyse   analysis/   facts about a program: what its indices touch, what is active, what it costs
    passes    passes/     IR -> IR: `PASSES` below
    emit      emit/       IR -> C or CUDA text            interpreter/ runs the IR itself, with NumPy: the definition
    compile   compile/    text -> machine code, kept on disk

`program` holds it together. To add a pass: a function in a file of its own under `named_pass`, and a line below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .passes import (
    adjoint,
    batch,
    decisions,
    gradients,
    index_tests,
    ledger_adjoint,
    other_slope,
    race_finder,
    simplify,
    stencil_adjoint,
    tangent,
    ties,
    to_float64,
    unpruned_adjoint,
)
from .program import Kernel, Program, kernel, overload

__all__ = ["PASSES", "Kernel", "Pass", "Program", "kernel", "overload"]


class Pass(NamedTuple):
    """A rewriting of the program, and what it does in one sentence."""

    function: Callable[..., Any]
    does: str

    @property
    def name(self) -> str:
        return self.function.pass_name  # type: ignore[attr-defined]


PASSES = (
    Pass(gradients.expanded, "Derivatives that a kernel asks for with `grad`, as statements."),
    Pass(simplify.primal, "Equal statements become one, integer constants are folded, what nobody needs is dropped."),
    Pass(simplify.forward, "A load that follows the thread's own store takes the stored value."),
    Pass(adjoint.adjoint, "The program that carries adjoints from what a kernel wrote to what it read."),
    Pass(simplify.adjoint, "What no gradient needs is dropped from an adjoint or a tangent."),
    Pass(ties.ties, "Counts the threads that gave the extreme of a cell, among whom its adjoint is shared."),
    Pass(tangent.tangent, "The program that carries tangents from what a kernel reads to what it writes."),
    Pass(tangent.joint, "The kernel and its tangent in one program, to be differentiated again."),
    Pass(stencil_adjoint.pull, "The adjoint of a stencil with a thread for each cell that gathers what it is due."),
    Pass(stencil_adjoint.storing, "The same for arrays that hold nothing yet: stores in place of additions."),
    Pass(race_finder.guard, "The thread again, leaving its number on every cell: it meets those of other threads."),
    Pass(ledger_adjoint.ledger_adjoint, "An adjoint that also writes down every contribution to a gradient cell."),
    Pass(unpruned_adjoint.working, "The adjoint with every statement left in, for the microscope."),
    Pass(decisions.with_decisions, "A program that also records what each thread decides by floats."),
    Pass(to_float64.widen, "The same program over float64, against which rounding is measured."),
    Pass(simplify.assume, "For a box of threads that takes the first branch of some conditions: without asking them."),
    Pass(simplify.merged, "Parameters that are one array at a launch become one."),
    Pass(simplify.unrolled, "Short loops of known turns, written out."),
    Pass(index_tests.index_tests, "Whether an index leaves its array, told of many threads before they run untested."),
    Pass(other_slope.other_slope, "An adjoint that takes the other slope at ties of `min`, `max`, `abs` and `clamp`."),
    Pass(batch.batched, "The kernel over one more axis of its grid, along which chosen arrays have a row per index."),
)
