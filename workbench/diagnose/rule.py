"""The input of the rules, `RuleInput`, and how they name events.

A rule is a function of a `RuleInput` that yields findings; it computes no derivative. Severity `info` is for facts that
are right but worth knowing, so that a healthy program has no `warning` and no `error`.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.workspace import Shadow, Workspace
from ..device import on_host
from ..errors import GradientError, KernelError
from ..tapes.events import Event
from ..tapes.rerun import Enough
from ..tapes.reverse import Observer, walk
from ..tapes.tape import Tape
from .finding import Finding
from .walk_record import WalkRecord

Seen = TypeVar("Seen")


@dataclass
class RuleInput:
    """The input of a rule; `seeds` makes those of its walk anew, which went through `only` some events.

    `loss`: the array of one element that is seeded, if it is one.
    """

    tape: Tape
    trail: WalkRecord
    seeded: bool
    seeds: Callable[[], Workspace]
    only: Container[Event] | None = None
    loss: array | None = None

    def visit(self, look: Observer) -> None:
        """Walk once more, calling `look` before each event is reversed, until it raises Enough. Memory is restored."""
        with suppress(Enough, GradientError), np.errstate(all="ignore"):
            walk(self.tape, self.seeds(), None, look, only=self.only)

    def inspect(self, event: Event, look: Callable[[Event, Workspace], Seen]) -> Seen | None:
        """Call `look` at one event, with memory and adjoints as its reversal finds them. Returns its result."""
        found: list[Seen] = []

        def at(passed: Event, space: Workspace) -> None:
            if passed is event:
                found.append(look(event, space))
                raise Enough

        self.visit(at)
        return found[0] if found else None


def title(case: RuleInput, event: Event | None) -> str:
    return case.trail.of[event].title if event is not None else ""


def refused(error: Exception, launch: str = "") -> Finding:
    """An error of the tape as a finding."""
    assert isinstance(error, GradientError | KernelError)
    sentence = " ".join(filter(None, (error.what, error.why)))
    return Finding(error.slug, "error", launch, error.where, sentence, error.instead, brief=f"{{at}}: {error.what}")


def last_seeds(tape: Tape) -> Workspace:
    """A workspace with the seeds of the last `backward`."""
    return Workspace({a: Shadow(a, start=data) for a, data in tape.last_seeds.items()})


def seeded_number(tape: Tape) -> array | None:
    """The array of one element that the last backward was seeded by; None if it was seeded by more."""
    seeded = {a: np.flatnonzero(on_host(data)) for a, data in tape.last_seeds.items() if data.any()}
    for a in tape.arrays.values():
        if len(seeded) == 1 and a.data.size == 1 and a.allocation in seeded:
            low, high = a.allocation.gradient_span(a.span).hull()
            if low <= seeded[a.allocation].min() and seeded[a.allocation].max() < high:
                return a
    return None


def any_name(tape: Tape, a: Allocation) -> str:
    names = [tape.names.of(x) for x in tape.arrays.values() if x.allocation is a]
    return next((n for n in names if n != str(a)), str(a))
