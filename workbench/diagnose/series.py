"""Rules about launches of one line as a series: adjoints that grow or vanish, unfinished iterations, running sums.

An exponential keeps its rate. Sums of many seeds and free flight grow too, but slower and slower; so what counts is
the half of the series that lies farther from the seed.
"""

from __future__ import annotations

import itertools
import linecache
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..tapes.events import Event
from .finding import Finding
from .walk_record import RuleInput, WalkRecord, leaf_accesses, norm_of
from .walk_step import WalkStep

STEPS = 8
ALL = 1e6  # over all steps, whatever the state does: an unstable simulation grows by as much as its adjoint
MUCH = 100.0  # over all steps, where the state does not grow
HALF = 10.0  # in the second half of them: a cubic grows by 8 there
STRAIGHT = 0.9  # the correlation of the logarithm of its size with the number of the step
FASTER = 1.5  # than the state, in powers
NOTHING = 1e-12  # of an adjoint of size 1: less than a parameter ever feels
FEW = 4  # steps in which it may have vanished
STEADY = "functions that do not saturate, other scales of inputs and weights, or fewer steps between seed and leaf"
WAY_OUT = "a smaller time step, damping, or fewer steps between seed and leaf"


@dataclass
class Series:
    """The norms of a repeated step, nearest to the seed first: of the incoming adjoint, and of the computed state.

    The norm of a state is None where it is not known. `every`: the steps from one norm to the next.
    """

    sizes: np.ndarray
    states: Sequence[float | None]
    every: int = 1

    @property
    def rate(self) -> float:
        return float((self.sizes[-1] / self.sizes[0]) ** (1 / (self.every * (len(self.sizes) - 1))))

    @property
    def explodes(self) -> bool:
        """True if the adjoint grows exponentially."""
        total, half = self.sizes[-1] / self.sizes[0], self.sizes[-1] / self.sizes[len(self.sizes) // 2]
        much = total > ALL or (total > MUCH and half > HALF and self.outgrows)
        return much and bool(np.corrcoef(np.log(self.sizes), np.arange(len(self.sizes)))[0, 1] > STRAIGHT)

    @property
    def outgrows(self) -> bool:
        """True if the adjoint is known to grow faster than the state."""
        state = self.state_rate
        return state is not None and bool(np.log(self.rate) > FASTER * np.log(max(state, 1)))

    @property
    def state_rate(self) -> float | None:
        """The largest growth factor per step of the computed state; None if that is unknown."""
        known = [(n, s) for n, s in enumerate(reversed(self.states)) if s is not None and s > 0 and np.isfinite(s)]
        if len(known) < 2:
            return None
        most = max(size for _, size in known[1:])
        return float((most / known[0][1]) ** (1 / (self.every * (known[-1][0] - known[0][0]))))

    @property
    def factor(self) -> str:
        """The rate, with as many digits as tell it from 1."""
        return f"{self.rate:.3g}" if self.rate > 1.05 else f"{1 + float(f'{self.rate - 1:.2g}'):.12g}"

    def text(self, unit: str, computed: str) -> str:
        """The growth as text: from what to what, and the state's beside it."""
        state = self.state_rate
        beside = "" if state is None else f"a factor of {state:.3g} a {unit}" if state > 1.005 else "no factor at all"
        text = f"the norm of the adjoint grows from {self.sizes[0]:.3g} to {self.sizes[-1]:.3g}, by a factor of"
        return f"{text} {self.factor} a {unit}" + (f"; what {computed} grows by {beside}." if beside else ".")


def growing(case: RuleInput) -> Iterator[Finding]:
    """Finds a repeated launch whose incoming adjoint grows by a factor at every step back."""
    found = [(steps, s) for steps, s in _series(case) if s.explodes]
    yield from _vanishing(case)
    if found:
        steps, worst = max(found, key=lambda f: f[1].rate)
        first, last, number = steps[0], steps[-1], (len(steps) - 1) * case.trail.every + 1
        text = f"going back through {number} launches of {first.event.label!r}, from {first.title} to {last.title}, "
        brief = (
            f"the adjoint of {{arrays}} explodes {{at}} and before: its norm from {worst.sizes[0]:.3g}"
            f" to {worst.sizes[-1]:.3g} at {last.title}, by a factor of {worst.factor} a step"
        )
        names, text = tuple(dict.fromkeys(x.name for x in first.came)), text + worst.text("step", "they compute")
        yield first.finding("growing", "warning", text, WAY_OUT, names, brief=brief)


def _vanishing(case: RuleInput) -> Iterator[Finding]:
    """Finds the repeated launch through which next to nothing of an adjoint comes back, at the step that passes least.

    A warning if a leaf gets no more than that, else an info: what lies far back may well not matter any more.
    """
    final = case.trail.final
    for steps in lines_reached(case.trail) if final is not None else ():
        sizes = np.array([s.flowing for s in steps])
        begin = int(sizes.argmax())
        if len(steps) - begin < FEW or not sizes[-1] < NOTHING * sizes[begin]:
            continue
        assert final is not None
        least = begin + int((sizes[begin + 1 :] / sizes[begin:-1]).argmin())
        at = steps[least]
        norms = [norm_of(final, x) for found in leaf_accesses(case.trail).values() for x in found]
        severity = "warning" if any(n < NOTHING * sizes[begin] for n in norms) else "info"
        names, passes = tuple(dict.fromkeys(x.name for x in at.came)), sizes[least + 1] / sizes[least]
        here = "here" if case.trail.every == 1 else f"from here back through {case.trail.every} launches"
        text = (
            f"the gradient vanishes: only {passes:.3g} of the adjoint of {', '.join(names)} passes {here}, and its norm"
            f" falls from {sizes[begin]:.3g} in {steps[begin].title} to {sizes[-1]:.3g} in {steps[-1].title}."
        )
        yield at.finding("vanishing", severity, text, STEADY, names)


def lines_reached(trail: WalkRecord) -> list[list[WalkStep]]:
    """The repeated launches of each line into which an adjoint comes, nearest to the seed first."""
    found = ([s for s in reversed(steps) if 0 < s.flowing < np.inf] for steps in trail.lines.values())
    return sorted(filter(None, found), key=lambda steps: trail.order[steps[0].event], reverse=True)


def _series(case: RuleInput) -> Iterator[tuple[list[WalkStep], Series]]:
    """The series of repeated launches per line, nearest to the seed first, from the smallest adjoint on."""
    for steps in lines_reached(case.trail):
        sizes = np.array([s.flowing for s in steps])
        begin = int(sizes.argmin())
        if len(steps) - begin >= STEPS and sizes[begin] < sizes[-1]:
            states = [sum(s.wrote.values()) if s.wrote else None for s in steps[begin:]]
            yield steps[begin:], Series(sizes[begin:], states, case.trail.every)


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
                text = f"the seed of {name} is {number} ones: this is the gradient of the sum of {name}, {number} times"
                fix = f"a seed of 1 / {number} in each element, if the mean is meant"
                yield step.finding("sum-not-mean", "info", f"{text} that of its mean.", fix, (name,))


_MEAN = re.compile(r"(?<![a-z])(?:mean|mse|rmse|avg|average)(?![a-z])", re.I)


def _says_mean(name: str, step: WalkStep) -> bool:
    """True if a name, or a line of the user's file, takes the mean of this array."""
    if _MEAN.search(name) or _MEAN.search(step.event.label):
        return True
    where = step.event.where
    last = re.escape(name.rpartition(".")[2])
    taken = re.compile(rf"(?:mean|average)\([^)]*\b{last}\b|\b{last}\b(?:\.numpy\(\))?\.mean\(|\b{last}\b.*/ *len\(")
    return where is not None and any(taken.search(line) for line in linecache.getlines(where.file))
