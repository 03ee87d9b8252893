"""The adjoint of a launch: one function, or a pull before the rest; chosen, compiled and run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ..config import config
from ..errors import GradientError
from ..kernels.analysis.launch_form import Groups, LaunchForm
from ..kernels.analysis.motion import may_move
from ..kernels.ir import Function, Role, root, walk
from ..kernels.ops import memory as rows
from ..kernels.passes import simplify, stencil_adjoint as gathering
from ..kernels.passes.adjoint import Reverse
from ..kernels.recursion import recursive
from ..kernels.row import Effect
from . import thresholds
from .adjoint_arguments import AdjointArguments
from .executable import Executable, executable_for
from .plan import Plan
from .race_check import Races, races_of


@dataclass(eq=False)
class Backward:
    """An adjoint and how to run it. All positions are those of flat parameters.

    shadows   the active parameters, in order. `private`: those whose memory it writes to as it reruns the launch.
    needs     position -> box of what it reads, and the tape must keep.
    extremal  arrays under atomic_min or atomic_max; `count` counts the tied threads that share a cell's adjoint.
    pull      runs before `executable`: per cell, it adds up what other threads would have scattered to it.
    races     the race finder to run once before.
    live      for each write of the launch: True if it depends on an active parameter.
    """

    reverse: Reverse
    executable: Executable
    shadows: tuple[int, ...]
    needs: dict[int, Any]
    private: tuple[int, ...]
    extremal: tuple[int, ...] = ()
    count: Executable | None = None
    races: Races | None = None
    pull: PullPlan | None = None
    live: tuple[bool, ...] = ()

    def run(self, arguments: AdjointArguments, fresh: tuple[int, ...] = (), rest: bool = True) -> None:
        """Run the adjoint in the form chosen for this launch.

        `arguments`: those of the launch, then the shadows, then two helpers per extremal array. `fresh`: targets of
        `pull` whose contents are undefined so far. rest=False runs nothing after `pull`.
        """
        if self.pull is not None:
            self.pull.run(arguments.values, fresh)
        if rest:
            self.executable.run(arguments.values, arguments.views)


@dataclass(eq=False)
class PullPlan:
    """The half of an adjoint that runs first: per cell it gathers what other threads add (`stencil_adjoint.pull`)."""

    ready: Any  # fresh targets -> the executable that stores to those and adds to the others
    grid: tuple[int, ...]
    targets: tuple[int, ...]  # positions
    covers: bool  # it touches every cell of its targets
    cleared: tuple[int, ...] | None  # the shadows that the rest only clears; None: it does more than that
    made: dict[tuple[int, ...], Executable] = field(default_factory=dict)

    def run(self, values: list, fresh: tuple[int, ...]) -> None:
        """`fresh`: the targets whose contents are undefined so far."""
        if fresh not in self.made:
            self.made[fresh] = self.ready(fresh)
        self.made[fresh].run([*values, *self.grid], None)


def adjoint_of(plan: Plan, active: tuple[int, ...], alone: bool = False) -> Backward:
    """The adjoint of a plan for these active positions; `alone`: of a launch that has not run, with indices tested."""
    key = ("alone", *active) if alone else active
    found = plan.derived.get(key)
    if found is None:
        names = frozenset(plan.program.leaves[k].name for k in active)
        found = plan.derived[key] = _moved(plan, active, alone) or recursive(plan_adjoint)(plan, names, alone)
    return found


def _moved(plan: Plan, active: tuple[int, ...], alone: bool) -> Backward | None:
    """The adjoint of a moved plan, from that of the plan it was moved from; None where it has to be made."""
    if plan.moved_from is None:
        return None
    first, by = plan.moved_from
    back, names = adjoint_of(first, active, alone), first.motion.names if first.motion is not None else ()
    if back.pull or back.count or not may_move(back.executable.function, names):
        return None
    return replace(back, needs=dict(first.moved(tuple(back.needs.items()), by)))


def plan_adjoint(plan: Plan, active: frozenset[str], alone: bool = False) -> Backward:
    """The adjoint for these active parameters, in the fastest form that this launch allows."""
    program = plan.program
    reverse = program.reverse(active, plan.changing)
    if reverse.returned is not None and math.prod(plan.form.dims) > 1:
        returned = f"what `{reverse.returned.row.name}` returned, on the way to a gradient."
        text, where = f"Kernel {program.name!r} computes with {returned}", reverse.returned.where
        why = "Which value a thread gets depends on the order of threads."
        instead = "dim=1 and a loop over the elements"
        raise GradientError(text, slug="atomic-order", where=where, why=why, instead=instead)
    function, apart = _merged(plan, reverse)
    position = {leaf.name: k for k, leaf in enumerate(program.leaves)}
    shadows = tuple(position[p.name] for p in program.function.params if p.name in active)
    needed = dict(plan.reads)
    form = replace(plan.form, groups=apart, checked=alone)

    def ready(function: Function, form: LaunchForm = form) -> Executable:
        return executable_for(program, function, form.beside(function), reverse.ordered)

    main, pull = _divided(plan, ready(function), form, position, ready)
    if pull is None:
        program.prepare(main.function, form.backend, main.variant, main.hurry)
    races = races_of(plan) if config.race_guard else None
    needs = reverse.needs | (races.guard.needs if races else frozenset())
    carries = any(k in plan.float_reads or k in plan.accumulates_only for k in shadows)
    return Backward(
        reverse,
        main,
        shadows,
        {position[n]: needed.get(position[n]) for n in sorted(needs)},
        tuple(position[n] for n in sorted(reverse.private)),
        tuple(position[n] for n in reverse.extremal),
        ready(reverse.count) if reverse.count else None,
        races,
        pull,
        tuple([carries and k in shadows for k, _ in plan.writes]),
    )


def _divided(
    plan: Plan, main: Executable, form: LaunchForm, position: dict[str, int], ready: Callable[..., Executable]
) -> tuple[Executable, PullPlan | None]:
    """`main`, or the rest of it beside a pull where that pays, so that no two threads add to one cell."""
    function = main.function
    of = {p.name: p.belongs_to for p in function.params}
    targets = {form.shapes.get(of[n]) for n in main.contested}  # one gather runs over the cells of all
    alike = len(targets) == 1 and None not in targets and len(form.dims) == function.rank
    if not alike or form.backend == "numpy" or not thresholds.large(math.prod(form.dims)) or form.groups:
        return main, None
    shape = targets.pop()
    beside = frozenset(n for a, n in _shadows(function).items() if form.shapes.get(a) == shape)
    pulled = plan.program.once(gathering.pull, function, main.contested, beside)
    if pulled is None:
        return main, None
    return ready(pulled.rest), _pull(plan, pulled, position, form, ready)


def _shadows(function: Function) -> dict[str, str]:
    """{the kernel's parameter: its shadow parameter}."""
    return {p.belongs_to: p.name for p in function.params if p.role is Role.SHADOW}


def _merged(plan: Plan, reverse: Reverse) -> tuple[Function, Groups]:
    """The adjoint with aliased read-only parameters merged into one, and the alias groups that remain."""
    changed = set().union(*(g for g in plan.form.groups if g & plan.written))
    twins = tuple(pair for pair in plan.form.twins if not changed & set(pair) and reverse.count is None)
    if not twins:
        return reverse.function, plan.form.groups
    shadow = _shadows(reverse.function)
    same = (*twins, *((shadow[a], shadow[b]) for a, b in twins if {a, b} <= shadow.keys()))
    left = (g - {b for _, b in twins} for g in plan.form.groups)
    return plan.program.once(simplify.merged, reverse.function, same), tuple(g for g in left if len(g) > 1)


def _pull(
    plan: Plan,
    pulled: gathering.PullAdjoint,
    position: dict[str, int],
    form: LaunchForm,
    ready: Callable[..., Executable],
) -> PullPlan:
    of, shadow = {p.name: p.belongs_to for p in pulled.pull.params}, _shadows(pulled.pull)
    shape = form.shapes[of[pulled.targets[0]]]
    dims = tuple(min(n, d + h) for n, d, h in zip(shape, form.dims, pulled.high, strict=True))
    grid = dict(zip(pulled.grid, form.dims, strict=True))
    cells = replace(form, dims=dims, scalars={**form.scalars, **grid})

    def make(fresh: tuple[int, ...]) -> Executable:
        names = frozenset(shadow[plan.program.leaves[k].name] for k in fresh)
        function = plan.program.once(gathering.storing, pulled.pull, names) if names else pulled.pull
        return ready(function, cells)

    targets = tuple(position[of[n]] for n in pulled.targets)
    return PullPlan(make, form.dims, targets, dims == shape, _cleared(pulled.rest, position))


def _cleared(rest: Function, position: dict[str, int]) -> tuple[int, ...] | None:
    """Positions of the shadows that `rest` zeroes, if it does nothing else; None if it does."""
    found = set()
    for s in walk(rest.body):
        if s.row.effect is Effect.PURE or s.row is rows.LOAD or s.regions:
            continue
        if s.row is not rows.STORE or root(s.args[0]).role is not Role.SHADOW:
            return None
        found.add(position[root(s.args[0]).belongs_to])
    return tuple(found)
