"""`tape.diagnose()`: findings about a tape, and `tape.memory()`: the bytes it holds.

One idea: rules (`rules`) look at the tape, at the IR of its kernels and at one real walk (`trail`); for questions about
a statement the launch runs once more in the interpreter, on copies (`again`, `birth`, `death`). No gradient changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import memory
from ..array import array
from ..errors import GradientError
from ..tape import Event, Tape, Workspace, pictures
from .again import Enough
from .finding import Finding as Finding
from .finding import Findings as Findings
from .holdings import Holdings as Holdings
from .holdings import holdings
from .rules import STATIC, WALKED, Case, View, refused
from .trail import Trail

__all__ = ["Finding", "Findings", "Holdings", "diagnose"]


def diagnose(tape: Tape, loss: array | None = None, grads: dict[array, array] | None = None) -> Findings:
    """What is wrong with the gradients of a tape, or worth knowing about them, the worst first.

    Adjoints are those of `loss` or `grads`, given as to `backward`; by default those of the last `backward`. Nothing is
    published. Without any of them only what needs no adjoint is looked at, and the note says so.
    """
    given = loss is not None or grads is not None
    with memory.LOCK, memory.unrecorded():
        try:
            seeds = _seeds(tape, loss, grads)
        except GradientError as error:
            return Findings([refused(error)], len(tape.events))
        seeded = any(s.data.any() for s in seeds.values())
        trail = Trail(tape, seeds)

        def inspect(event: Event, look: View) -> Any:
            return _inspect(tape, _seeds(tape, loss, grads), event, look)

        case = Case(tape, trail, seeded, inspect)
        found = [f for rule in (*STATIC, *WALKED) for f in rule(case)]
    return Findings(dict.fromkeys([*_zero_seed(tape, seeded, given), *found]), len(tape.events), _note(tape, given))


def _seeds(tape: Tape, loss: array | None, grads: dict[array, array] | None) -> Workspace:
    if loss is not None or grads is not None:
        return tape._seeds(loss, grads)
    space = Workspace()
    for a, data in tape.last_seeds.items():
        space[a].data[...] = data
    return space


def _inspect(tape: Tape, space: Workspace, event: Event, look: View) -> Any:
    """Walk again until an event is reached, and look there."""
    found: list[Any] = []

    def before(passed: Event, space: Workspace) -> None:
        if passed is event:
            found.append(look(event, space))
            raise Enough

    try:
        with np.errstate(all="ignore"):
            tape._walk(space, None, before)
    except (Enough, GradientError):
        pass
    return found[0] if found else None


def _zero_seed(tape: Tape, seeded: bool, given: bool) -> list[Finding]:
    if seeded or not (given or tape.last_seeds):
        return []
    return [Finding("zero-seed", "warning", "", None, "every seed is zero, and so is every gradient.", "a seed of ones")]


def _note(tape: Tape, given: bool) -> str:
    if given or tape.last_seeds or not tape.events:
        return ""
    return "No backward has run: adjoints were not looked at. tape.diagnose(loss=...) does that without publishing."


pictures["diagnose"] = diagnose
pictures["memory"] = holdings
