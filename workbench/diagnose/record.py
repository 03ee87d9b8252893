"""Rules about the recording: refusals, aliases, kept values, missing leaves, late requests. No adjoint is looked at."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.span import Span
from ..arrays.workspace import Workspace
from ..device import on_host
from ..display import bytes_text
from ..errors import GradientError, KernelError
from ..tapes.cross_tape import CrossTapeSearch
from ..tapes.events import Event
from ..tapes.needed_bytes import START
from ..tapes.tape import Tape
from .finding import Finding
from .walk_record import RuleInput, last_seeds, refused, title
from .walk_step import WalkStep, numbers_of_memory

KEPT_MUCH = 1 << 30
REPEATED = 100  # tapes alike from which recording them anew is worth a word
MANY_NAMES = 16  # rows of a trajectory are not aliases
MUCH = 64  # units in the last place


def aliased(case: RuleInput) -> Iterator[Finding]:
    """Finds memory with several names: in one launch that writes it, or anywhere in a tape that does."""
    seen: set = set()
    for step in case.trail.steps:
        command = step.event.command
        for group in command.plan.form.groups if command is not None else ():
            pairs = zip(step.event.command.program.leaves, step.event.command.flat, strict=True)
            names = {f"{p.name}={case.tape.names.of(a)}": a for p, a in pairs if p.name in group}
            written = {id(a.array) for a in step.accesses if a.writes}
            key = step.event.label, step.event.where, tuple(names)
            if key not in seen and written & {id(a) for a in names.values()}:
                seen.add(key)
                arrays = tuple(dict.fromkeys(case.tape.names.of(a) for a in names.values()))
                yield _shared(step, arrays, f"the arguments {', '.join(names)} share memory, and the launch writes it.")
    for names, step in _shared_names(case).items():
        yield _shared(step, names, f"{', '.join(names)} are names of the same memory, which is written here.")


def _shared(step: WalkStep, names: tuple[str, ...], sentence: str) -> Finding:
    fix = "separate arrays if this is not meant; the gradient is that of the shared memory either way"
    brief = "{arrays} share memory, which is written {at}"
    return step.finding("aliased", "info", sentence, fix, names, brief=brief)


def _shared_names(case: RuleInput) -> dict[tuple[str, ...], WalkStep]:
    """Overlapping arrays with names of their own, with the first event that writes the overlap.

    Several variables that are one array, and views that no variable is, are no names of their own.
    """
    spans: dict[Allocation, dict[str, Span]] = {}
    found: dict[tuple[str, ...], WalkStep] = {}
    for step in case.trail.steps:
        for x in step.accesses:
            if case.tape.names.own(x.array):
                spans.setdefault(x.span.allocation, {}).setdefault(x.name, x.array.span)
    for step in case.trail.steps:
        for x in step.accesses if not step.event.kind.calls_back else ():
            known = spans.get(x.span.allocation, {})
            if x.writes and 1 < len(known) <= MANY_NAMES:
                names = tuple(sorted(n for n, s in known.items() if s.overlaps(x.span) is not False))
                if len(names) > 1:
                    found.setdefault(names, step)
    return found


def kept(case: RuleInput) -> Iterator[Finding]:
    """Finds values that are overwritten although an adjoint needs them, per line, with the bytes kept for that."""
    found: dict[tuple, list] = {}
    for step in case.trail.steps:
        for k in step.event.kept:
            if k.said == START or not step.event.kind.own or not (k.said or k.needs):  # kept by keep="all" alone
                continue
            names = [a.name for a in step.accesses if a.span.allocation is k.span.allocation]
            name = names[0] if names else str(k.span.allocation)
            key = step.event.label, step.event.where, name, case.tape.names.reason_of(k)
            found.setdefault(key, []).append((step.event, k))
    for (_, where, name, reason), items in found.items():
        nbytes, count, at = sum(k.span.nbytes for _, k in items), len(items), title(case, items[0][0])
        held, times = bytes_text(nbytes), f", in {count} events" if count > 1 else ""
        text = f"overwrites {name}, which is needed later ({reason}): the tape keeps {held}{times}."
        fix = "a fresh array, if the memory matters; the gradient is exact either way"
        brief = f"{name} is overwritten {{at}}, and {held} are kept because they are needed ({reason})"
        severity = "warning" if nbytes > KEPT_MUCH else "info"
        yield Finding("overwritten-kept", severity, at, where, text, fix, (name,), count=count, brief=brief)


def no_leaf(case: RuleInput) -> Iterator[Finding]:
    """Finds a tape that read no array with requires_grad."""
    tape = case.tape
    if tape.events and not any(a.allocation.asked for a in tape.arrays.values()):
        names = tuple(dict.fromkeys(tape.names.of(a) for a in tape.arrays.values()))
        text = "no array of this tape has requires_grad, so there is nothing to take a derivative by."
        fix = "requires_grad=True on the arrays to differentiate by, before the tape records"
        yield Finding("no-leaf", "warning", "", tape.events[0].where, text, fix, names)


def supposed(case: RuleInput) -> Iterator[Finding]:
    """Finds host numbers equal to values read from active memory, at places where a gradient arrives."""
    for event in case.tape.host.suspects:
        sentence, _, meant = case.tape.host.suspicion(event).rpartition(". ")
        fix = f"a kernel or wb.map in place of it, or tape.record_func; {meant}"
        names = (case.tape.names.of(event.arrays[0]),)
        yield Finding("host-number", "warning", title(case, event), event.where, sentence + ".", fix, names)


def refusals(case: RuleInput) -> Iterator[Finding]:
    """Finds what the walk refused, races included."""
    found = [] if case.trail.error is None else [_refused(case, case.trail.error, case.trail.failed)]
    found += [_refused(case, error, event) for error, event in case.trail.races]
    yield from dict.fromkeys(found)


def _refused(case: RuleInput, error: GradientError | KernelError, event: Event | None) -> Finding:
    """An error as a finding, with its arrays and thread."""
    found = refused(error, title(case, event))
    said = set(re.findall(r"'([^']+)'", found.sentence))
    pairs = event.arguments if event is not None else ()
    called = ((leaf.name, case.tape.names.of(a, leaf.name)) for leaf, a in pairs if isinstance(a, array))
    names = tuple(dict.fromkeys(name for leaf, name in called if {leaf, name} & said))
    thread = re.search(r"\bthreads? (\d+|\([\d, ]+\))", found.sentence)
    return replace(found, arrays=names, thread=literal_eval(thread[1]) if thread else None)


def repeated(case: RuleInput) -> Iterator[Finding]:
    """Finds that many tapes alike were recorded, each for one walk."""
    if case.tape.alike >= REPEATED:
        text = f"{case.tape.alike} tapes of the same launches were recorded and walked before this one."
        fix = "@wb.jit above the function that records and walks it: a launch in a replay costs a hundredth of one here"
        yield Finding("repeated", "info", "", None, text, fix)


RECORD = (refusals, supposed, no_leaf, aliased, kept, repeated)


# ---- several tapes


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
