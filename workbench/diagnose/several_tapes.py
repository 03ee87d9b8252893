"""Rules about several tapes: gradients that stop at a tape's border, accumulate over passes, or were read too early."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..arrays.allocation import Allocation
from ..arrays.workspace import Workspace
from ..device import on_host
from ..errors import GradientError
from ..tapes.cross_tape import CrossTapeSearch
from ..tapes.tape import Tape
from .finding import Finding
from .rule import RuleInput, last_seeds
from .walk_step import numbers_of_memory

MUCH = 64  # units in the last place


def earlier_tapes(case: RuleInput) -> Iterator[Finding]:
    """Finds results of another tape that this one starts from, if their gradient was not passed back to it."""
    tape = case.tape
    if case.trail.final is None or not case.seeded or not tape.border.met:
        return
    crossing = CrossTapeSearch(tape.border, last_seeds(tape))
    if crossing.before is not None:
        case.visit(crossing.before)
    for b in crossing.found(case.trail.final):
        b = next((c for c in tape.border.crossings if c.run is b.run and c.same(b)), b)
        if b.stops:
            yield Finding("earlier-tape", "warning", "", b.where, f"{b.told}.", b.ways_out, (b.name, *b.run.names))


def not_handed_on(case: RuleInput) -> Iterator[Finding]:
    """Finds gradients that later tapes computed for results of this one, if this one was not seeded with them."""
    for b in [*case.tape.border.run.lost, *case.tape.border.run.waiting]:
        if b.stops:
            text = (
                f"a later tape started from {b.name}, which this one computed, and its gradient by {b.name} was not"
                f" handed on: {', '.join(b.run.names)} lack it."
            )
            fix = f"backward(grads={{..., {b.name}: {b.name}.grad}}), with all that the later tape started from at once"
            yield Finding("not-handed-on", "warning", "", b.where, text, fix, (b.name, *b.run.names))


def piled_up(case: RuleInput) -> Iterator[Finding]:
    """Finds leaf gradients that still hold what earlier backward passes left there."""
    tape = case.tape
    piled = [a for a, pile in tape.earlier.piled.items() if not pile.chained and tape.earlier.is_piled(a)]
    try:
        space = tape.retrace(None) if piled and case.trail.final is not None else Workspace()
    except GradientError:
        return
    for a in (a for a in piled if a in space and _holds_more(tape, a, space)):
        name, pile = tape.names.of_memory(a), tape.earlier.piled[a]
        why = " It has changed since, so they are gradients at other values." if pile.moved else ""
        why += " This tape was walked before." if pile.again else ""
        text = f"{name}.grad is the sum of this backward() and of earlier ones: nobody set it to zero in between.{why}"
        fix = f"tape.zero() or {name}.grad.zero_() before each backward(); if the sum is meant, ignore this"
        severity, mended = "warning" if pile.moved or pile.again else "info", f"{name}.grad.zero_()"
        if pile.where is not None:
            mended += f"\n{pile.where.text.strip()}"
        yield Finding("piled-up", severity, "", pile.where, text, fix, (name,), mended=mended)


def _holds_more(tape: Tape, a: Allocation, space: Workspace) -> bool:
    assert a.grad is not None
    now, mine = (numbers_of_memory(tape, a, data) for data in (a.grad.bytes, space[a].data))
    if now is None or mine is None:
        return not np.array_equal(on_host(a.grad.bytes), on_host(space[a].data))
    with np.errstate(all="ignore"):
        return bool((np.abs(now - mine) > MUCH * np.finfo(now.dtype).eps * (np.abs(now) + np.abs(mine))).any())


def read_too_early(case: RuleInput) -> Iterator[Finding]:
    """Finds leaf gradients that were read before this tape's backward."""
    tape = case.tape
    if not tape.events:
        return
    for a in dict.fromkeys(x.allocation for x in tape.arrays.values()):
        text = ""
        if a in tape.earlier.read_early:
            text = "was read before this tape's backward(): it held zeros, or what others had left there."
        elif not tape.last_seeds and a.required and a.grad is not None and a not in tape.log.written:
            untouched = not a.grad.version and a.grad.user_written_mask(a.grad.span()) is None
            if untouched or tape.earlier.read_too_early(a):
                text = "was read, but this tape has not run backward yet."
        if text:
            name = tape.names.of_memory(a)
            way_out = "tape.backward(loss) first"
            yield Finding("read-before-backward", "warning", "", None, f"{name}.grad {text}", way_out, (name,))


ACROSS = (earlier_tapes, not_handed_on, piled_up, read_too_early)
