"""A rule about derivatives that end at a statement: a cast to whole numbers, a rounding or a comparison.

It needs no dead leaf: the adjoint that arrives at what the kernel writes is not zero, what it was computed from lies on
an active path, and between the two stands a statement whose derivative is zero everywhere (`cut_values`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..arrays.allocation import Allocation
from ..kernels.types import is_float
from .cut_values import CutWrite, cuts_of
from .finding import Finding
from .rule import RuleInput
from .walk_step import WalkStep
from .zero_adjoint import flat


@dataclass(frozen=True)
class _Origin:
    """The cut through which an integer array lost its derivative: the launch, the statement, the source arrays."""

    step: WalkStep
    cut: CutWrite
    sources: dict[Allocation, str]


def cut_derivatives(case: RuleInput) -> Iterator[Finding]:
    """Finds floats that are used later and depend on an active array only through a statement without a derivative."""
    if not case.seeded or case.trail.final is None:
        return
    known: dict[tuple, list[CutWrite]] = {}
    whole: dict[Allocation, _Origin] = {}
    told: set = set()
    makers: dict[Allocation, set] = {}  # the lines that wrote each memory
    for step in case.trail.steps:
        if step.event.command is None:
            continue
        for cut in _cuts(case, step, known):
            found = _origin(case, step, cut, whole)
            if found is None:
                continue
            target = _allocation(step, cut.into)
            if not is_float(step.event.command.program.leaves[_position(step, cut.into)].type):
                whole[target] = found
            elif any(size > 0 for x, size in step.came.items() if x.span.allocation is target):
                others = makers.get(target, set()) - {(step.event.label, step.event.line)}
                soft = cut.compares and (cut.alive or (cut.decides and (bool(others) or target.asked)))
                finding = _cut_finding(step, cut, found, case, soft)
                if (finding.where, finding.arrays) not in told:
                    told.add((finding.where, finding.arrays))
                    yield finding
        for x in step.accesses:
            if x.writes:
                makers.setdefault(x.span.allocation, set()).add((step.event.label, step.event.line))


def _cuts(case: RuleInput, step: WalkStep, known: dict[tuple, list[CutWrite]]) -> list[CutWrite]:
    command = step.event.command
    program = command.program
    places = {*program.array_positions, *command.declared}
    active = frozenset(program.leaves[k].name for k in places if command.places[k].allocation in case.tape.active)
    key = command.plan, active
    if key not in known:
        known[key] = cuts_of(command.plan.forward.function, active)
    return known[key]


def _origin(case: RuleInput, step: WalkStep, cut: CutWrite, whole: dict[Allocation, _Origin]) -> _Origin | None:
    """The cut that ended a derivative; None if the integers that are read depend on no active array."""
    if cut.stmt is not None:
        return _Origin(step, cut, {_allocation(step, n): _name(case, step, n) for n in sorted(cut.sources)})
    found = whole.get(_allocation(step, cut.via))
    others = {_allocation(step, n) for n in cut.others}
    return None if found is None or others & set(found.sources) else found


def _position(step: WalkStep, parameter: str) -> int:
    return next(k for k, p in enumerate(step.event.command.program.leaves) if p.name == parameter)


def _allocation(step: WalkStep, parameter: str) -> Allocation:
    return step.event.command.places[_position(step, parameter)].allocation


def _name(case: RuleInput, step: WalkStep, parameter: str) -> str:
    k = _position(step, parameter)
    return case.tape.names.of(step.event.command.places[k], parameter)


def _cut_finding(step: WalkStep, cut: CutWrite, found: _Origin, case: RuleInput, soft: bool) -> Finding:
    assert found.cut.stmt is not None
    death = flat(found.cut.stmt)
    sources, into = tuple(found.sources.values()), _name(case, step, cut.into)
    text = (
        f"what {into} takes from {' and '.join(sources)} by this line has no derivative, because {death.reason}: the"
        f" gradient that arrives at {into} does not reach {' and '.join(sources)} through it."
    )
    return found.step.finding(
        "cut", "info" if soft else "warning", text, death.fix, (into, *sources), death.where or step.event.where
    )
