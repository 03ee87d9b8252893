"""The adjoint of one launch without a tape, as in Warp: `launch(..., adjoint=True, adj_inputs=, adj_outputs=)`.

It runs on the memory as it is now. What the launch itself overwrites and its adjoint would read is therefore refused,
as is whatever needs the contents before and after: those are a tape's business.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ..arrays import allocation as memory
from ..arrays.allocation import caller_where
from ..arrays.array import array
from ..arrays.workspace import Workspace, add_into, gradient_dtype, is_float_memory, shadow_view
from ..errors import GradientError, LaunchError
from ..kernels.program import Program
from .adjoint_arguments import AdjointArguments
from .adjoint_plan import Backward, adjoint_of
from .arguments import shown
from .plan import Plan, PlannedLaunch


def pull_back(command: PlannedLaunch, given: Sequence[Any]) -> None:
    """Run the adjoint of a launch: each of `given` receives the derivative by the contents of its argument before it.

    `given`: one per argument of the kernel, an array like the argument, or None for the argument's own `.grad`, or for
    nothing where it has none. Those of arrays that are only read accumulate; those of arrays that the kernel stores to
    are the seeds, and read 0 afterwards. Raises LaunchError for what does not fit, GradientError for what would not be
    exact.
    """
    program, plan, flat = command.program, command.plan, command.flat
    adjoints = _adjoints(program, flat, given)
    if not adjoints:
        text = f"launch({program.name}, adjoint=True): no argument has an adjoint."
        instead = "adj_inputs=[wb.zeros_like(x)], adj_outputs=[seed]"
        raise LaunchError(text, slug="adjoint-count", why="Nothing would be computed.", instead=instead)
    tape = memory.recorder()
    read = [*(flat[k] for k in plan.floats), *adjoints.values()]
    if tape is None or not tape.follows(read):
        _run(command, adjoints)
        return
    reason = "the adjoint of a single launch has no second derivative."
    written = list(adjoints.values())
    tape.opaque_event(
        f"adjoint of {program.name}", read, written, lambda: _run(command, adjoints, tape), reason, caller_where()
    )


def _run(command: PlannedLaunch, adjoints: dict[int, array], by: memory.Recorder | None = None) -> None:
    program, plan, flat = command.program, command.plan, command.flat
    with memory.LOCK, memory.unrecorded():
        back = adjoint_of(plan, tuple(plan.floats), alone=True)
        _refuse(plan, back, adjoints)
        if back.races is not None:
            back.races.check(command)
        space = Workspace()
        for k, adjoint in adjoints.items():
            add_into(shadow_view(flat[k], space[flat[k].allocation]), adjoint.data, flat[k].span)
        shadows = [(k, space[flat[k].allocation]) for k in back.shadows]
        back.run(AdjointArguments(command, back.private, shadows))
        for k, adjoint in adjoints.items():
            adjoint.allocation.about_to_write(adjoint.span, program.name, None, by)
            adjoint.data[...] = shadow_view(flat[k], space[flat[k].allocation])
        space.release()


def _adjoints(program: Program, flat: Sequence[Any], given: Sequence[Any]) -> dict[int, array]:
    """Position of a float array -> the array that holds its adjoint."""
    if len(given) != len(program.params):
        text = f"Kernel {program.name!r} takes {len(program.params)} arguments, got {len(given)} adjoints."
        instead = "adj_inputs=[wb.zeros_like(a) for a in inputs], adj_outputs=[wb.ones_like(a) for a in outputs]"
        raise LaunchError(text, slug="adjoint-count", instead=instead)
    found: dict[int, array] = {}
    for k, leaf in enumerate(program.leaves):
        a, adjoint = flat[k], given[leaf.arg]
        if not isinstance(a, array) or not is_float_memory(a):
            continue
        if adjoint is None or leaf.path:
            adjoint = a.grad if adjoint is None else _part(adjoint, leaf.path)
        if adjoint is None:
            continue
        fits = isinstance(adjoint, array) and adjoint.shape == a.shape and adjoint.data.shape == a.data.shape
        if not fits or adjoint.data.dtype != gradient_dtype(a):
            raise LaunchError(
                f"Kernel {program.name!r}: the adjoint of {leaf.name!r} is {shown(adjoint)}; it must be an array of"
                f" {a.dtype}, shape {a.shape}.",
                slug="adjoint-argument",
                instead="wb.zeros_like(a)",
            )
        found[k] = adjoint
    return found


def _part(struct: object, path: Sequence[str]) -> Any:
    for k, name in enumerate(path):
        if isinstance(struct, array):  # of structs
            return struct.field(".".join(path[k:]))
        struct = getattr(struct, name)
    return struct


def _refuse(plan: Plan, back: Backward, adjoints: dict[int, array]) -> None:
    name, written = plan.program.name, {k for k, _ in plan.writes}
    lost = [plan.program.leaves[k].name for k in back.needs if k in written]
    reason = (
        f"it overwrites {lost[0]!r}, which its adjoint reads"
        if lost
        else "two of its arguments share memory"
        if plan.form.shared
        else "it uses atomic_min or atomic_max"
        if back.extremal
        else "it uses what an atomic returned"
        if back.reverse.ordered
        else "two of the adjoints share memory"
        if any(a.span.overlaps(b.span) is not False for a, b in itertools.combinations(adjoints.values(), 2))
        else ""
    )
    if reason:
        text = f"launch({name}, adjoint=True): {reason}."
        why = "Without a tape nobody knows what its memory held before and after."
        instead = "with wb.Tape() as tape: wb.launch(...), then tape.backward(grads={y: seed})"
        raise GradientError(text, slug="adjoint-launch", where=plan.program.function.where, why=why, instead=instead)
