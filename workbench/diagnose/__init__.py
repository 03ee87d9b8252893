"""`tape.diagnose()`: findings about a tape, and `tape.memory()`: the bytes it holds.

Rules (`record`, `finite`, `flow`) look at the tape, at the IR of its kernels and at one real walk (`walk_record`); for
a statement the launch runs once more in the interpreter, on copies (`finite`, `zero_adjoint`, `flow`, `kinks`).
Causes have files of their own: derivatives cut by a statement (`flow`), results that nobody uses (`unused_results`),
adjoints that grow and iterations (`series`), bounds that are never left (`saturated`), both in a loop of one kernel
(`loop_turns`), several tapes (`record`), places without a derivative (`kinks`).
No gradient changes. Imports `tapes` and below. To add a finding: a rule in one of these files, entered in the
file's list, with a slug, a sentence, a way out, and a test in which it fires and one in which it must not.
"""

from __future__ import annotations

from functools import partial

from ..arrays import allocation
from ..arrays.array import array
from ..errors import GradientError
from ..tapes import conventions as met
from ..tapes.seeds import seeds_of
from ..tapes.tape import Tape
from .finding import Finding as Finding, Findings as Findings, folded
from .finite import not_finite
from .flow import FLOW, WALKED, unmoved
from .kinks import Kinks, conventions
from .loop_turns import Loops
from .memory_held import Holdings as Holdings
from .record import ACROSS, RECORD
from .saturated import Bounds
from .walk_record import RuleInput, WalkRecord, last_seeds, refused, seeded_number

__all__ = ["Finding", "Findings", "Holdings", "Trust", "diagnose"]
__dir__ = __all__.copy


def __getattr__(name: str) -> type:
    """`Trust`, imported when first asked for: no picture needs it."""
    if name != "Trust":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .trust import Trust

    return Trust


def diagnose(tape: Tape, loss: array | None = None, grads: dict[array, array] | None = None) -> Findings:
    """The findings about a tape's gradients, mistakes and facts worth knowing, the worst first.

    Adjoints are those of `loss` or `grads`, given as to `backward`; by default those of the last `backward`. Nothing is
    published. Without any of them only what needs no adjoint is looked at, and the note says so.
    """
    given = loss is not None or grads is not None
    again = partial(seeds_of, tape, loss, grads) if given else partial(last_seeds, tape)
    with allocation.LOCK, allocation.unrecorded():
        met.clear(tape)
        try:
            seeds = again()
        except GradientError as error:
            return Findings([refused(error)], len(tape.events))
        seeded = any(s.data.any() for s in seeds.values())
        only = None if given else tape.within
        trail = WalkRecord(tape, seeds, only, (Kinks(), Bounds(), Loops()))
        end = loss if given else seeded_number(tape)
        case = RuleInput(tape, trail, seeded, again, only, end)
        walked = WALKED if seeded and trail.final is not None else ()
        found = [f for rule in (*RECORD, *ACROSS, not_finite, conventions, *walked, *FLOW) for f in rule(case)]
        if all(f.severity == "info" for f in found):  # else the cause is known
            found += unmoved(case)
    born = {f.where for f in found if f.slug == "adjoint-not-finite"}  # an infinite slope is said once
    found = [f for f in found if f.slug != "convention" or f.where not in born]
    if not seeded and (given or tape.last_seeds):
        text = "every seed is zero, and so is every gradient."
        found.insert(0, Finding("zero-seed", "warning", "", None, text, "a seed of ones"))
    return Findings(folded(found), len(tape.events), _note(tape, given))


def _note(tape: Tape, given: bool) -> str:
    if any(event.kind.calls_back for event in tape.events):
        return "Adjoints and values were not looked at: that would call the functions of record_func again."
    if given or tape.last_seeds or not tape.events:
        return ""
    return "No backward has run: adjoints were not looked at. tape.diagnose(loss=...) does that without publishing."
