"""Slopes that are conventions, met by a walk: at a zero vector `length` has no derivative, and 0 stands for it.

The adjoint of a kernel notes where one was used and an adjoint other than 0 came to it (`ops.control.Convention`); a
backward says so, once for each line.
"""

from __future__ import annotations

import warnings

from ..arrays.allocation import Allocation
from ..errors import compose
from ..kernels.ir import Stmt
from ..launches.executable import Executable
from .recording import Recording


def collect(tape: Recording) -> None:
    """Enter in `tape.conventions` what the launches of its last walk met."""
    ran = {(e.command.plan.forward, e.reverse.executable): None for e in tape.events if e.reverse is not None}
    for executable in dict.fromkeys(code for both in ran for code in both):
        met = executable.met()
        if not all(s.attr.sure for s in met) and not multiplied(tape, executable):
            met = [s for s in met if s.attr.sure]
        tape.conventions.update(dict.fromkeys(met))


def multiplied(tape: Recording, executable: Executable) -> bool:
    """True if an adjoint that comes to these launches may vanish by active values of later ones, or of other tapes."""
    made: set[Allocation] = set()
    for e in tape.events:
        if any(span.allocation in made for span in e.reads):
            needs = None if e.reverse is None else [e.command.flat[k].allocation for k in e.reverse.needs]
            if e.kind.step != "write" if needs is None else any(a in tape.active for a in needs):
                return True
            made.update(span.allocation for span in e.writes)
        if e.reverse is not None and e.reverse.executable is executable:
            made.update(span.allocation for span in e.writes)
    chained = tape.border.run.chained or any(a.asked and a in made for a in tape.last_seeds)
    return chained or tape.border.log is not tape.log  # a step of a loop


def clear(tape: Recording) -> None:
    """Forget what other walks over the same kernels met."""
    collect(tape)
    tape.conventions.clear()


def warn(tape: Recording) -> None:
    """Warn of the conventions that were met, at the lines of their statements; each line is told once."""
    met, tape.conventions = tape.conventions, {}
    for text, file, line in dict.fromkeys(told(stmt) for stmt in met):
        warnings.warn_explicit(text, UserWarning, file, line)


def told(stmt: Stmt) -> tuple[str, str, int]:
    """(what a warning says about a claim of a convention, the file, the line)."""
    where, claim = stmt.where, stmt.attr
    text = f"{claim.text}, and the gradient goes through it. tape.diagnose() names the thread."
    said = compose(text[0].upper() + text[1:], where, "", claim.instead, "convention")
    return said, where.file if where else "", where.line if where else 0
