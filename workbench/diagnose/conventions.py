"""A rule about slopes that are conventions: where an adjoint other than 0 came to a place without a derivative.

The walk notes the statement (`tapes.conventions`); its launch runs again in the interpreter for the thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..arrays.workspace import Workspace
from ..kernels import ir
from ..kernels.emit.signature import conventions as claims
from ..kernels.interpreter import run
from ..tapes.events import Event
from ..tapes.rerun import Enough, run_adjoint
from .finding import Finding
from .rule import RuleInput

LAUNCHES = 16  # that run again for one statement


def conventions(case: RuleInput) -> Iterator[Finding]:
    """Finds slopes that are conventions on the way of an adjoint."""
    for claim in list(case.tape.conventions):
        events = [e for e in case.tape.events if e.reverse is not None and claim in _claims(e)]
        event, thread = _first(case, claim, events)
        step = case.step(event)
        text = f"{claim.attr.text}, and an adjoint other than 0 comes to it."
        yield step.finding("convention", "warning", text, claim.attr.instead, step.written, claim.where, thread)


def _claims(event: Event) -> list[ir.Stmt]:
    return claims(ir.walk(event.reverse.executable.function.body))


def _first(case: RuleInput, claim: ir.Stmt, events: list[Event]) -> tuple[Event, int | tuple[int, ...] | None]:
    """The last of the launches that meets the convention, with a thread; any, and None, where that is not found."""
    found: list[tuple[Event, int | tuple[int, ...]]] = []
    chosen = events[-LAUNCHES:]

    def look(event: Event, space: Workspace) -> None:
        def trace(thread: tuple[int, ...], stmt: ir.Stmt, values: run.LiveValues) -> None:
            if stmt.attr == claim.attr and stmt.where == claim.where and not values[stmt.args[0]]:
                found.append((event, thread[0] if len(thread) == 1 else thread))
                raise Enough

        if event in chosen:
            run_adjoint(event, space, trace)
        if found:
            raise Enough

    case.visit(look)
    return found[0] if found else (events[-1], None)
