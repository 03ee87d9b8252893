"""Rules about the objective: an iteration that has not converged, sums that run on, and one that is meant as a mean."""

from __future__ import annotations

import itertools
import linecache
import re
from collections.abc import Iterator

from ..tapes.events import Event
from .finding import Finding
from .rule import RuleInput
from .walk_step import WalkStep

FEW_PER_CENT = 0.03
SHRINKING = 0.98  # by how much each change is smaller than the one before it, in an iteration that converges
SHRUNK = 3  # changes
SUMS = 3  # launches that add
_SOLVES = re.compile(
    r"jacobi|gauss|seidel|sor(?![a-z])|relax|solv|iterat|fixed|newton|picard|sinkhorn|sweep|converg|project", re.I
)
_TIME = re.compile(r"(?:^|_)(?:dt|h|t|tau|time|step|timestep)(?:$|_)")


def unsettled(case: RuleInput) -> Iterator[Finding]:
    """Finds launches that seem to iterate to a fixed point, and still change it in the last turn."""
    for steps in case.trail.turns.lines.values():
        last = steps[-1]
        changes = case.trail.turns.changes.get(last.event, [])
        outputs = [x for x in last.accesses if x.writes]
        flows = any(step.flowing > 0 for step in steps[-2:])
        if len(outputs) != 1 or len(changes) != 1 or not flows or _in_time(last.event):
            continue
        ((state, _, change),) = changes
        if change <= FEW_PER_CENT or not _same_problem(steps):
            continue
        if _SOLVES.search(last.event.label) or _shrinks(case, steps):
            text = (
                f"the last of {len(steps)} launches of {last.event.label!r} on this line still changes {state.name} by"
                f" {change:.0%}: if they iterate towards a solution, this is the gradient of {len(steps)} turns, not"
                " that of the solution."
            )
            fix = "more turns, until what changes is small; in a time loop there is nothing to do"
            yield last.finding("unsettled", "info", text, fix, (state.name,))


def _in_time(event: Event) -> bool:
    """True if a number argument is named like a time or a time step."""
    leaves = event.command.program.leaves
    numbers = set(range(len(leaves))) - set(event.command.program.array_positions)
    return any(_TIME.search(leaves[k].name) for k in numbers)


def _same_problem(steps: list[WalkStep]) -> bool:
    """True if the last two turns read the same arrays, apart from the state itself."""
    inputs = []
    for step in steps[-2:]:
        states = {x.array.span for s in steps[-3:] for x in s.accesses if x.writes}
        inputs.append({x.array.span for x in step.accesses if not x.writes} - states)
    return inputs[0] == inputs[1]


def _shrinks(case: RuleInput, steps: list[WalkStep]) -> bool:
    """True if each of the last turns changed the state less than the one before, faster than by mere decay."""
    changes = [c for s in steps for c in case.trail.turns.changes.get(s.event, ())]
    smaller = all(b.size < SHRINKING * a.size for a, b in itertools.pairwise(changes))
    return len(changes) >= SHRUNK and smaller and changes[-1].relative < SHRINKING * changes[0].relative


def running_sums(case: RuleInput) -> Iterator[Finding]:
    """Finds memory that every step adds to and reads, and nothing starts anew: a force where it is no state."""
    for a, touching in case.trail.touching.items():
        steps = [case.trail.steps[n] for n in touching]
        adds = [(s, x) for s in steps for x in s.accesses if x.writes and x.span.allocation is a]
        if len(adds) < SUMS or a.asked or any(x.plain or x.scalar is None for _, x in adds):
            continue
        writers = [s for s, _ in adds]
        between = steps[steps.index(writers[0]) + 1 : steps.index(writers[-1])]
        if not any(s not in writers for s in between):
            continue
        step, x = adds[1]
        text = f"{x.name} keeps the sum of all steps: {len(adds)} launches add to it, and nothing sets it to zero."
        fix, where = f"{x.name}.zero_() before it, if {x.name} is that of one step", step.event.where
        mended = f"{x.name}.zero_()\n{where.text.strip()}" if where is not None else ""
        yield step.finding("running-sum", "info", text, fix, (x.name,), mended=mended)


def seed_of_ones(case: RuleInput) -> Iterator[Finding]:
    """Finds a seed of several ones, which gives the gradient of a sum, in a program that takes a mean."""
    for a, number in case.trail.ones.items():
        writers = [(s, x) for s in case.trail.steps for x in s.accesses if x.writes and x.span.allocation is a]
        for step, x in writers[-1:]:
            name = x.name
            if _says_mean(name, step):
                text = (
                    f"the seed of {name} is {number} ones: this is the gradient of the sum of {name}, {number} times"
                    " that of its mean."
                )
                fix = f"a seed of 1 / {number} in each element, if the mean is meant"
                yield step.finding("sum-not-mean", "info", text, fix, (name,))


_MEAN = re.compile(r"(?<![a-z])(?:mean|mse|rmse|avg|average)(?![a-z])", re.I)


def _says_mean(name: str, step: WalkStep) -> bool:
    """True if a name, or a line of the user's file, takes the mean of this array."""
    if _MEAN.search(name) or _MEAN.search(step.event.label):
        return True
    where = step.event.where
    last = re.escape(name.rpartition(".")[2])
    taken = re.compile(rf"(?:mean|average)\([^)]*\b{last}\b|\b{last}\b(?:\.numpy\(\))?\.mean\(|\b{last}\b.*/ *len\(")
    return where is not None and any(taken.search(line) for line in linecache.getlines(where.file))
