"""Rules about the flow of adjoints: where they end, cancel, grow, follow a wrong rule, or depend on rounding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.interval_index import SpanSet
from ..arrays.span import Span
from ..arrays.workspace import Workspace
from ..derivatives.func_grad_check import has_rule, wrong_call
from ..device import on_host
from ..errors import GradientError, KernelError, LaunchError
from ..kernels import ir
from ..kernels.passes import simplify
from ..kernels.passes.adjoint import adjoint
from ..kernels.types import Scalar, Struct
from ..tapes.events import Event
from ..tapes.rerun import Copies, run_copies, small
from ..tapes.tape import Tape
from .cuts import cut_derivatives, dead_end
from .finding import Finding
from .kinks import Kinks, where_of
from .loop_turns import growing_turns, saturated_turns
from .saturated import saturated
from .series import growing, running_sums, seed_of_ones, unsettled
from .unused_results import unused_results
from .walk_record import RuleInput, leaf_accesses, norm_of, title
from .walk_step import EventAccess, WalkStep, positions
from .zero_adjoint import DETACHED, ZeroedAt, first_death

SHORT = 200  # events of a tape that is run sixty times where its gradient seems to be lost
TRIED = 4  # places where a gradient may have died, until one is sure
DIGITS = 1e3  # a sum of which fewer than three digits are left
TOLERANCE = 1e-3  # far above rounding in float32, far below a wrong factor


def zero_gradients(case: RuleInput) -> Iterator[Finding]:
    """Finds leaves with an all-zero gradient that lie on a path to the seed: where it ended, and why."""
    final, told = case.trail.final, set[tuple[Event, str]]()
    assert final is not None
    apart: list[Finding] = []
    leaves = leaf_accesses(case.trail).values()
    for found in leaves:
        name = found[0].name
        if any(norm_of(final, x) for x in found):
            continue
        cone, reached = _cone(case, found)
        if reached and not _cone(case, found, False)[1]:
            at = next(e for e in cone if e.kind.cuts)
            if not at.kind.pinned:
                yield _zero_finding(case.trail.of[at], ZeroedAt(at.where, DETACHED, kind="meant"), name)
            continue
        steps = [s for e in reversed(cone) if (s := case.trail.of[e]).flowing > 0]
        ends = [s for s in steps if not any(s.gave.get(x, 0.0) for x in cone[s.event])]
        if not reached or not ends:
            apart.append(_not_on_path(case, name, list(cone)))
            continue
        deaths = ((s, _death(case, s, cone[s.event], name)) for s in ends[:TRIED])
        step, death = next(((s, d) for s, d in deaths if d.kind != "apart"), (ends[0], None))
        if death is None:
            apart.append(_not_on_path(case, name, [step.event]))
        elif (step.event, name) not in told:
            told.add((step.event, name))
            yield _zero_finding(step, death, name)
    for finding in apart:  # of no leaf at all: then the seed is on the wrong array
        yield replace(finding, severity="warning") if len(apart) == len(leaves) else finding


def gradient_ends(case: RuleInput) -> Iterator[Finding]:
    """Finds where gradients end: of whole leaves, and on single paths beside others that live. Each place once."""
    cuts, told = list(cut_derivatives(case)), set()
    for death in zero_gradients(case):
        cause = next((c for c in cuts if death.slug == "died" and set(death.arrays) & set(c.arrays[1:])), None)
        if cause is not None:  # the line of a statement without a derivative says more than the launch behind it
            cuts.remove(cause)
            death = replace(death, launch=cause.launch, where=cause.where, fix=cause.fix)
        told.add(death.where)
        yield death
    yield from cuts
    for found in (*saturated(case), *saturated_turns(case)):
        if found.where not in told:
            told.add(found.where)
            yield found


def _not_on_path(case: RuleInput, name: str, cone: list[Event]) -> Finding:
    """The finding about a leaf on which no seed depends; `cone`: the events that depend on it, in order."""
    event, made = next(iter(cone), None), ", ".join(case.trail.of[cone[-1]].written) if cone else ""
    ends = f"; what is computed from it ends in {made}, in {title(case, cone[-1])}" if made else ""
    text = f"the gradient of {name} is zero: what is seeded does not depend on it{ends}."
    fix = f"seed {made}, or pass it to what computes the seed" if made else "seed something that is computed from it"
    return Finding("not-on-path", "info", title(case, event), event.where if event else None, text, fix, (name,))


def _cone(case: RuleInput, found: list[EventAccess], cuts: bool = True) -> tuple[dict[Event, list[EventAccess]], bool]:
    """({event that depends on these bytes: its reads}, True if an adjoint reaches one). cuts=False: not past cuts."""
    reach: dict[Allocation, SpanSet] = {}
    ahead = bytearray(len(case.trail.steps))  # steps that touch memory that is reached

    def follow(span: Span) -> None:
        a = span.allocation
        if a not in reach:
            reach[a] = SpanSet()
            for n in case.trail.touching.get(a, ()):
                ahead[n] = 1
        reach[a].add(span)

    for x in found:
        follow(x.span)
    cone: dict[Event, list[EventAccess]] = {}
    reached, n = False, ahead.find(1)
    while n >= 0:
        step = case.trail.steps[n]
        known = [x for x in step.accesses if not x.writes and x.span.nbytes and x.span.allocation in reach]
        reads = [x for x in known if reach[x.span.allocation].touch(x.span)]
        if reads and (cuts or not step.event.kind.cuts):
            cone[step.event] = reads
            reached |= step.flowing > 0
            for x in step.accesses:
                if x.writes:
                    follow(x.span)
        n = ahead.find(1, n + 1)
    return cone, reached


def _death(case: RuleInput, step: WalkStep, reads: list[EventAccess], name: str) -> ZeroedAt:
    event = step.event
    if all(x.scalar is None and not isinstance(x.array.dtype, Struct) for x in reads):
        text = f"what depends on {name} is read there as the integer array {reads[0].name}"
        return ZeroedAt(event.where, text, "an array of floats")
    if event.command is not None:
        spans = {x.span for x in reads}
        taken = [k for k, s in zip(positions(event, "reads"), event.reads, strict=True) if s in spans]
        targets = frozenset(event.command.program.leaves[k].name for k in taken)
        found = dead_end(event.command.plan.forward.function, targets)
        found = found or case.inspect(event, lambda e, space: first_death(e, space, targets))
        if isinstance(found, ZeroedAt):
            return found
    return ZeroedAt(event.where, "an adjoint comes in, and exactly zero goes out")


def _zero_finding(step: WalkStep, death: ZeroedAt, name: str) -> Finding:
    ordinary = {"cancelled": ("cancel", "info", "cancels"), "meant": ("detached", "info", "is meant to end")}
    slug, severity, dies = ordinary.get(death.kind, ("died", "warning", "dies"))
    text = f"the gradient of {name} is zero everywhere: it ends here, because {death.reason}."
    brief = f"the adjoint of {{arrays}} {dies} {{at}}: {death.reason}"
    return step.finding(slug, severity, text, death.fix, (name,), death.where, brief=brief)


def custom_rules(case: RuleInput) -> Iterator[Finding]:
    """Finds `func_grad`s that are not the derivative of their func, in the first launch of each kernel."""
    looked: set = set()
    for step in reversed(case.trail.steps):
        event = step.event
        if event.command is None or event.command.program in looked or not has_rules(event):
            continue
        looked.add(event.command.program)
        found = case.inspect(event, lambda _, space, step=step: disagreement(step, space))
        if found is not None:
            yield found


def cancelling(case: RuleInput) -> Iterator[Finding]:
    """Finds leaves in whose gradient large contributions of several launches cancel."""
    final = case.trail.final
    assert final is not None
    for a, found in leaf_accesses(case.trail).items():
        scalar = case.tape.scalars.get(a)
        rest = max((norm_of(final, x) for x in found), default=0.0)
        steps = [case.trail.steps[n] for n in case.trail.touching.get(a, ())]
        own = {id(x) for x in found}
        given = [n for s in steps for x, n in s.gave.items() if n and id(x) in own]
        gross = sum(given)
        if isinstance(scalar, Scalar) and np.isfinite([rest, gross]).all() and len(given) > 1:
            eps = float(np.finfo(scalar.numpy).eps if scalar.bits > 16 else np.finfo(np.float32).eps)
            if gross > 0 and rest < DIGITS * eps * gross:
                name = found[0].name
                text = (
                    f"contributions to the gradient of {name} sum up to {gross:.3g} in size and leave {rest:.3g}:"
                    " what is left is mostly rounding."
                )
                fix = "float64, or a formulation without the large terms"
                yield Finding("cancel", "warning" if rest else "info", "", None, text, fix, (name,))


def trusted(tape: Tape, loss: array | None) -> Any:
    """The `Trust` of a loss; None where there is no loss, or it cannot be said."""
    from .trust import trust  # of few pictures and rules

    with suppress(GradientError, KernelError, LaunchError):
        return None if loss is None else trust(tape, loss, progress=False)
    return None


def unmoved(case: RuleInput) -> Iterator[Finding]:
    """Finds a loss that does not change along its own gradient: `trust` looks where the slope is below rounding."""
    final, loss = case.trail.final, case.loss
    if final is None or loss is None or len(case.tape.events) > SHORT:
        return
    leaves = leaf_accesses(case.trail).values()
    slope = np.linalg.norm([max(norm_of(final, x) for x in found) for found in leaves])
    size = np.linalg.norm([max(_size(x) for x in found) for found in leaves])
    if not 0 < slope * max(size, 1.0) < np.finfo(loss.data.dtype).eps * abs(float(on_host(loss.data).ravel()[0])):
        return
    found = trusted(case.tape, loss)
    if found is not None and found.kind == "flat":
        text, _, fix = found.sentence.partition(": ")[2].partition(" What helps: ")
        text = f"the loss does not change along its own gradient, of length {found.slope:.2g}: {text}"
        yield Finding("unmoved", "warning", found.launch or "", found.line, text, fix, thread=found.thread)


def _size(x: EventAccess) -> float:
    assert x.scalar is not None
    return float(np.linalg.norm(on_host(x.span.view(x.scalar.numpy)).astype(np.float64)))


def kinks(case: RuleInput) -> Iterator[Finding]:
    """Finds ties that an adjoint goes through, and comparisons that rounding may decide otherwise elsewhere."""
    seen = case.trail.observer(Kinks)
    for stmt, event, thread in seen.tied.values():
        step = case.trail.of[event]
        text = f"`{stmt.row.name}` is at a tie in thread {thread}: the gradient through it is that of one side."
        brief = f"`{stmt.row.name}` behind {{arrays}} is at its corner {{at}}: the gradient is that of one side"
        fix = "nothing, if either slope will do; else a smooth transition"
        yield step.finding("kink", "info", text, fix, step.written, where_of(stmt), thread, brief=brief)
    for stmt, number in seen.close.most_common(1):
        event, thread = seen.first[stmt]
        step = case.trail.of[event]
        text = (
            f"{number} of {seen.compared} comparisons in {seen.launches} launches are decided by rounding, in"
            f" `{stmt.row.name}` (for one, in thread {thread}): another backend or precision may decide otherwise,"
            " and the gradient jumps there."
        )
        fix = "compare gradients between backends where none is close, or use a smooth transition"
        brief = f"`{stmt.row.name}` behind {{arrays}} is at its corner {{at}}: rounding decides which way it goes"
        yield step.finding("kink", "info", text, fix, step.written, where_of(stmt), thread, brief=brief)


OBJECTIVES = (unsettled, running_sums, seed_of_ones)
WALKED = (gradient_ends, unused_results, custom_rules, cancelling, kinks)  # of a whole walk from a seed
FLOW = (growing, growing_turns, *OBJECTIVES)


# ---- rules of the user's
# A call of numbers and vectors is compared alone (`func_grad_check`). For one that takes arrays the same kernel without
# the user's rule has an adjoint too, made from the func's body. Where that is finite, the two must agree to rounding;
# where it is not, a rule of one's own is what a `func_grad` is for.


def has_rules(event: Event) -> bool:
    """True if this launch uses a `func_grad` on an active path."""
    return event.reverse is not None and any(has_rule(s) for s in ir.walk(event.command.program.function.body))


def disagreement(step: WalkStep, space: Workspace) -> Finding | None:
    """The finding that a rule differs on what the launch found; None if both agree, or cannot be compared."""
    event, back, ignore = step.event, step.event.reverse, "if it differs on purpose, ignore this"
    if (wrong := wrong_call(event)) is not None:
        rule = f"; the func_grad is at line {wrong.rule.line}" if wrong.rule is not None else ""
        brief, fix = f"{wrong.sentence.rstrip('.')}, called {{at}}{rule}", f"{wrong.fix}; {ignore}"
        return step.finding("custom-rule", "warning", wrong.sentence, fix, (wrong.argument,), wrong.where, brief=brief)
    if back is None or back.extremal or not small(event):
        return None
    function, plan = event.command.plan.forward.function, event.command.plan
    without_rules = simplify.rewrite(function)
    for call in filter(has_rule, ir.walk(without_rules.body)):
        call.attr = replace(call.attr, grad=None, replay=None)
    try:
        bare = adjoint(without_rules, back.reverse.active, plan.changing)
    except KernelError:
        return None
    theirs, ours = Copies(event, space), Copies(event, space)
    if not (run_copies(back.reverse.function, event, theirs) and run_copies(bare.function, event, ours)):
        return None
    call = next(s for s in ir.walk(function.body) if has_rule(s))
    for k in back.shadows:
        a = event.command.places[k]
        both = theirs.shadow(a), ours.shadow(a)
        fine = np.isfinite(both[0]) & np.isfinite(both[1])
        given, expected = (found[fine].astype(np.float64) for found in both)
        sizes = np.linalg.norm(given), np.linalg.norm(expected)
        if np.linalg.norm(given - expected) > TOLERANCE * max(sizes):
            name, func = plan.program.leaves[k].name, call.attr.func.key
            text = (
                f"the func_grad of {func!r} is not the derivative of its func: it gives {name} a gradient of norm"
                f" {sizes[0]:.4g}, the func's own derivative one of {sizes[1]:.4g}."
            )
            fix = f"every argument that matters must get its part in the func_grad; {ignore}"
            return step.finding("custom-rule", "warning", text, fix, (name,), call.where)
    return None
