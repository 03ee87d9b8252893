"""A rule about adjoints that grow from launch to launch, going back, while what the launches compute does not.

One idea: an exponential keeps its rate. Sums of many seeds and free flight grow too, but slower and slower; so what
counts is the half of the series that lies farther from the seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .finding import Finding
from .rule import Case
from .walk_record import Step

STEPS = 8
ALL = 1e6  # over all steps, whatever the state does: an unstable simulation grows by as much as its adjoint
MUCH = 100.0  # over all steps, where the state does not grow
HALF = 10.0  # in the second half of them: a cubic grows by 8 there
STRAIGHT = 0.9  # the correlation of the logarithm of its size with the number of the step
FASTER = 1.5  # than the state, in powers


@dataclass
class Series:
    """Launches of one line, the one nearest to the seed first, with the size of the adjoint that came into each."""

    steps: list[Step]
    sizes: np.ndarray

    @property
    def rate(self) -> float:
        return float((self.sizes[-1] / self.sizes[0]) ** (1 / (len(self.sizes) - 1)))

    @property
    def explodes(self) -> bool:
        """True if it grows as an exponential does."""
        if np.corrcoef(np.log(self.sizes), np.arange(len(self.sizes)))[0, 1] <= STRAIGHT:
            return False
        total, half = self.sizes[-1] / self.sizes[0], self.sizes[-1] / self.sizes[len(self.sizes) // 2]
        if total > ALL:
            return True
        state = self.state_rate
        return total > MUCH and half > HALF and state is not None and np.log(self.rate) > FASTER * np.log(max(state, 1))

    @property
    def state_rate(self) -> float | None:
        """By what factor a launch the values that were written grow; None where they are not known."""
        sizes = [(n, sum(s.wrote.values())) for n, s in enumerate(reversed(self.steps)) if s.wrote]
        known = [(n, size) for n, size in sizes if size > 0 and np.isfinite(size)]
        if len(known) < 2:
            return None
        (first, least), (last, most) = known[0], max(known[1:], key=lambda k: k[1])
        return float((most / least) ** (1 / (last - first)))


def growing(case: Case) -> Iterator[Finding]:
    """A launch that is repeated, and whose incoming adjoint grows by a factor at every step back."""
    if not case.seeded:
        return
    found = [s for s in _series(case) if s.explodes]
    if found:
        worst = max(found, key=lambda s: s.rate)
        first, last, state, sizes = worst.steps[0], worst.steps[-1], worst.state_rate, worst.sizes
        beside = "" if state is None else f"a factor of {state:.3g} a step" if state > 1.005 else "no factor at all"
        yield Finding(
            "growing", "warning", first.title, first.event.where,
            f"going back through {len(sizes)} launches of {first.event.label!r}, from {first.title} to {last.title},"
            f" the adjoint grows from {sizes[0]:.3g} to {sizes[-1]:.3g}, by a factor of {worst.rate:.3g} a step"
            + (f"; what they compute grows by {beside}." if beside else "."),
            "a smaller time step, damping, or fewer steps between seed and leaf",
            tuple(dict.fromkeys(x.name for x in first.came)),
            brief=f"the adjoint explodes {{at}} and before: from {sizes[0]:.3g} to {sizes[-1]:.3g} at {last.title},"
            f" by a factor of {worst.rate:.3g} a step",
        )  # fmt: skip


def _series(case: Case) -> Iterator[Series]:
    """The repeated launches of each line, from where their adjoint is smallest."""
    lines: dict[tuple, list[Step]] = {}
    for step in reversed(case.trail.steps):
        if step.event.command is not None and step.flowing > 0 and np.isfinite(step.flowing):
            lines.setdefault((step.event.label, step.event.line), []).append(step)
    for steps in lines.values():
        sizes = np.array([s.flowing for s in steps])
        begin = int(sizes.argmin())
        if len(steps) - begin >= STEPS and sizes[begin] < sizes[-1]:
            yield Series(steps[begin:], sizes[begin:])
