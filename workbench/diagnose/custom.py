"""The check that a `func_grad` is the derivative of its func: at the call itself, else by both adjoints of the launch.

A call of numbers and vectors is compared alone (`func_grad_check`). For one that takes arrays the same kernel without
the user's rule has an adjoint too, made from the func's body. Where that is finite, the two must agree to rounding;
where it is not, a rule of one's own is what a `func_grad` is for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays.workspace import Workspace
from ..derivatives.func_grad_check import has_rule, wrong_call
from ..errors import KernelError
from ..kernels import ir
from ..kernels.passes import simplify
from ..kernels.passes.adjoint import adjoint
from ..tapes.events import Event
from ..tapes.rerun import Copies, run_copies, small
from .finding import Finding
from .walk_step import WalkStep

TOLERANCE = 1e-3  # far above rounding in float32, far below a wrong factor


def has_rules(event: Event) -> bool:
    """True if this launch uses a `func_grad` on an active path."""
    return event.reverse is not None and any(has_rule(s) for s in ir.walk(event.command.program.function.body))


def disagreement(step: WalkStep, space: Workspace) -> Finding | None:
    """The finding that a rule differs on what the launch found; None if both agree, or cannot be compared."""
    event, back, ignore = step.event, step.event.reverse, "if it differs on purpose, ignore this"
    if (wrong := wrong_call(event)) is not None:
        rule = f"; the func_grad is at line {wrong.rule.line}" if wrong.rule is not None else ""
        brief, fix = f"{wrong.sentence.rstrip('.')}, called {{at}}{rule}", f"{wrong.fix}; {ignore}"
        return step.finding("custom-rule", "warning", wrong.sentence, fix, (wrong.argument,), wrong.where, brief=brief)
    if back is None or back.extremal or not small(event):
        return None
    function, plan = event.command.plan.forward.function, event.command.plan
    without_rules = simplify.rewrite(function)
    for call in filter(has_rule, ir.walk(without_rules.body)):
        call.attr = replace(call.attr, grad=None, replay=None)
    try:
        bare = adjoint(without_rules, back.reverse.active, plan.changing)
    except KernelError:
        return None
    theirs, ours = Copies(event, space), Copies(event, space)
    if not (run_copies(back.reverse.function, event, theirs) and run_copies(bare.function, event, ours)):
        return None
    call = next(s for s in ir.walk(function.body) if has_rule(s))
    for k in back.shadows:
        a = event.command.places[k]
        both = theirs.shadow(a), ours.shadow(a)
        fine = np.isfinite(both[0]) & np.isfinite(both[1])
        given, expected = (found[fine].astype(np.float64) for found in both)
        sizes = np.linalg.norm(given), np.linalg.norm(expected)
        if np.linalg.norm(given - expected) > TOLERANCE * max(sizes):
            name, func = plan.program.leaves[k].name, call.attr.func.key
            text = (
                f"the func_grad of {func!r} is not the derivative of its func: it gives {name} a gradient of norm"
                f" {sizes[0]:.4g}, the func's own derivative one of {sizes[1]:.4g}."
            )
            fix = f"every argument that matters must get its part in the func_grad; {ignore}"
            return step.finding("custom-rule", "warning", text, fix, (name,), call.where)
    return None
