"""How a Warp program of the collection says what is known about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

CAUSES = (
    "overwritten memory",
    "local re-assignment in the kernel",
    "dynamic loop in the kernel",
    "component write",
    "alias",
    "missing requires_grad in a struct",
    "missing requires_grad",
    "leaked seed",
    "used-up seed",
    "adjoint of the kernel",
    "host write",
    "race",
    "custom adjoint",
    "adjoint switched off",
    "no adjoint",
    "not on the tape",
    "precision",
)


class Outcome(NamedTuple):
    """What a program ends with: the number it differentiates, and the arrays whose `.grad` it reads by their names."""

    value: Any
    arrays: dict[str, Any]


@dataclass(frozen=True)
class Program:
    """One program: `run(**given)` returns an Outcome. `launch` is the kernel whose adjoint goes wrong first."""

    run: Callable[..., Outcome]
    given: dict[str, list]
    wrong: tuple[str, ...]
    cause: str | None
    launch: str | None
    exact: dict[str, list] | None
    why: str
    seen: str | None = None  # what a watch says, where that is less than the truth

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def verdict(self) -> str:
        return "wrong" if self.cause else "agrees"


def agrees(
    exact: dict[str, list] | None = None, seen: str | None = None, **given: list
) -> Callable[[Callable[..., Outcome]], Program]:
    """A program whose gradients are right in Warp. `exact`: in closed form, where float64 is out of reach."""
    return lambda run: Program(run, given, (), None, None, exact, run.__doc__ or "", seen)


def wrong(
    cause: str,
    launch: str | None = None,
    exact: dict[str, list] | None = None,
    of: str = "",
    seen: str | None = None,
    **given: list,
) -> Callable[[Callable[..., Outcome]], Program]:
    """A program with a wrong gradient `of` these inputs (all, if none is named), for this cause."""
    assert cause in CAUSES, cause
    return lambda run: Program(run, given, tuple(of.split() or given), cause, launch, exact, run.__doc__ or "", seen)


def programs_of(module: Any) -> dict[str, Program]:
    return {p.name: p for p in vars(module).values() if isinstance(p, Program)}
