"""The rules: what a tape, its IR and one reverse walk tell about a gradient that is not what its user expects.

One idea: a rule is a function of a `Case` that yields findings; it computes no derivative. Severity `info` is for facts
that are right but worth knowing, so that a healthy program has no `warning` and no `error`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..errors import GradientError, KernelError, Where
from ..kernels.types import Scalar
from ..memory import Allocation, Marks, Span
from ..tape import Event, Tape, Workspace
from .birth import Birth, first_not_finite, first_not_finite_adjoint
from .custom import Disagreement, disagreement, has_rules
from .death import Death, first_death
from .finding import Finding, bytes_text
from .trail import Access, Step, Trail, leaf_accesses, name_of, norm_of, title_of

GROWTH = 1e6  # over all steps; a physical state grows by a few powers of ten, an unstable one without end
STEPS = 8
DIGITS = 1e3  # a sum of which fewer than three digits are left
KEPT_MUCH = 1 << 30
MANY_NAMES = 16  # rows of a trajectory are not aliases

View = Callable[[Event, Workspace], object]


@dataclass
class Case:
    """What the rules look at. `inspect(event, look)` walks once more and calls `look` as the walk reaches the event."""

    tape: Tape
    trail: Trail
    seeded: bool
    inspect: Callable[[Event, View], object]

    def step(self, event: Event) -> Step:
        return self.trail.of[event]


def refused(error: Exception, event: Event | None = None) -> Finding:
    """An error of the tape as a finding."""
    assert isinstance(error, GradientError | KernelError)
    sentence = " ".join(filter(None, (error.what, error.why)))
    return Finding(error.slug, "error", title_of(event) if event else "", error.where, sentence, error.instead)


# ---- before any number is looked at


def aliased(case: Case) -> Iterator[Finding]:
    """Several names of one memory: in one launch that writes it, or anywhere in a tape that writes it."""
    seen: set = set()
    for step in case.trail.steps:
        command = step.event.command
        for group in command.plan.groups if command is not None else ():
            names = _names(case.tape, step.event, group)
            written = {id(a.array) for a in step.accesses if a.writes}
            key = step.event.label, step.event.where, tuple(names)
            if key not in seen and written & {id(a) for a in names.values()}:
                seen.add(key)
                yield _shared(
                    title_of(step.event), step.event.where, tuple(names),
                    f"the arguments {', '.join(names)} share memory, and the launch writes it.",
                )  # fmt: skip
    for names, step in _shared_names(case).items():
        yield _shared(
            title_of(step.event), step.event.where, names,
            f"{', '.join(names)} are names of the same memory, and it is written here: a change of one is a change of all.",
        )  # fmt: skip


def _shared(launch: str, where: Where | None, names: tuple[str, ...], sentence: str) -> Finding:
    return Finding(
        "aliased", "info", launch, where, sentence,
        "separate arrays if this is not meant; the gradient is that of the shared memory either way", names,
    )  # fmt: skip


def _shared_names(case: Case) -> dict[tuple[str, ...], Step]:
    """Overlapping arrays with names of their own, with the first event that writes where they overlap."""
    spans: dict[Allocation, dict[str, Span]] = {}
    found: dict[tuple[str, ...], Step] = {}
    for step in case.trail.steps:
        for x in step.accesses:
            spans.setdefault(x.span.allocation, {}).setdefault(x.name, x.array.span)
    for step in case.trail.steps:
        for x in step.accesses if step.event.kind != "func" else ():
            known = spans[x.span.allocation]
            if x.writes and 1 < len(known) <= MANY_NAMES:
                names = tuple(sorted(n for n, s in known.items() if s.overlaps(x.span) is not False))
                if len(names) > 1:
                    found.setdefault(names, step)
    return found


def _names(tape: Tape, event: Event, group: frozenset[str]) -> dict:
    pairs = zip(event.command.program.leaves, event.command.flat, strict=True)
    return {f"{p.name}={name_of(tape, a)}": a for p, a in pairs if p.name in group}


def kept(case: Case) -> Iterator[Finding]:
    """What is overwritten although an adjoint needs it, per line, with the bytes it costs."""
    found: dict[tuple, list] = {}
    for step in case.trail.steps:
        for k in step.event.kept:
            names = [a.name for a in step.accesses if a.span.allocation is k.span.allocation]
            key = step.event.label, step.event.where, names[0] if names else str(k.span.allocation), k.reason
            found.setdefault(key, []).append((step.event, k))
    for (_, where, name, reason), items in found.items():
        nbytes = sum(k.span.nbytes for _, k in items)
        times = f", in {len(items)} events" if len(items) > 1 else ""
        yield Finding(
            "overwritten-kept", "warning" if nbytes > KEPT_MUCH else "info", title_of(items[0][0]), where,
            f"overwrites {name}, which is needed later ({reason}): the tape keeps {bytes_text(nbytes)}{times}.",
            "a fresh array, if the memory matters; the gradient is exact either way", (name,),
        )  # fmt: skip


def read_too_early(case: Case) -> Iterator[Finding]:
    """A `.grad` that somebody asked for although no backward has run."""
    if case.tape.last_seeds or not case.tape.events:
        return
    for a in dict.fromkeys(x.allocation for x in case.tape.arrays.values()):
        grad = a.grad
        if a.required and grad is not None and not grad.version and grad.user_written_mask(grad.span()) is None:
            name = _any_name(case.tape, a)
            yield Finding(
                "read-before-backward", "warning", "", None,
                f"{name}.grad was read, but this tape has not run backward yet: it is zero.",
                "tape.backward(loss) first", (name,),
            )  # fmt: skip


def no_leaf(case: Case) -> Iterator[Finding]:
    """Nothing that the tape read asks for a gradient."""
    tape = case.tape
    if tape.events and not any(a.allocation.required or a.allocation.retained for a in tape.arrays.values()):
        names = tuple(dict.fromkeys(name_of(tape, a) for a in tape.arrays.values()))
        yield Finding(
            "no-leaf", "warning", "", tape.events[0].where,
            "no array of this tape has requires_grad, so there is nothing to take a derivative by.",
            "requires_grad=True on the arrays to differentiate by, before the tape records", names,
        )  # fmt: skip


def refusals(case: Case) -> Iterator[Finding]:
    """What the walk refused, races among it."""
    found = [] if case.trail.error is None else [refused(case.trail.error, case.trail.failed)]
    found += [refused(error, event) for error, event in case.trail.races]
    yield from dict.fromkeys(found)


# ---- numbers that are not finite


def forward_not_finite(case: Case) -> Iterator[Finding]:
    """The first event that wrote a NaN or infinity."""
    earlier: list[str] = []
    for step in case.trail.steps:
        if step.not_finite:
            yield from _forward(case, step, earlier)
            return
        earlier += step.unknown


def _forward(case: Case, step: Step, earlier: list[str]) -> Iterator[Finding]:
    names, title = tuple(step.not_finite), title_of(step.event)
    doubt = ""
    if earlier:
        doubt = f" What was written before to {', '.join(dict.fromkeys(earlier))} was not kept, so it may be older."
    if step.inherited:
        sources = ", ".join(dict.fromkeys(step.inherited))
        yield Finding(
            "not-finite", "warning", title, step.event.where,
            f"{', '.join(names)} holds NaN or infinity, which came in with {sources}.{doubt}",
            f"look at {sources} before the tape" + (', or wb.Tape(keep="all")' if earlier else ""), names,
        )  # fmt: skip
        return
    birth = case.inspect(step.event, lambda event, space: first_not_finite(event)) if step.event.command else None
    assert birth is None or isinstance(birth, Birth)
    yield _born(birth, step, f"the first NaN or infinity, in {', '.join(names)}, is born here", doubt, names)


def backward_not_finite(case: Case) -> Iterator[Finding]:
    """The first event of the reverse pass whose adjoint is not finite although what came in was."""
    bad = [a for a, finite in case.trail.seeded.items() if not finite]
    if bad:
        names = tuple(_any_name(case.tape, a) for a in bad)
        yield Finding("adjoint-not-finite", "warning", "", None, f"the seed of {', '.join(names)} is not finite.",
                      "a finite seed", names)  # fmt: skip
        return
    for step in reversed(case.trail.steps):
        if step.bad_after and not step.bad_before:
            names = tuple(dict.fromkeys(a.name for a in step.accesses if not a.writes and a.scalar is not None))
            birth = case.inspect(step.event, first_not_finite_adjoint) if step.event.command else None
            assert birth is None or isinstance(birth, Birth)
            text = f"the first NaN or infinity of the reverse pass, in the adjoint of {', '.join(names)}, is born here"
            yield replace(_born(birth, step, text, "", names), slug="adjoint-not-finite")
            return


_REMEDIES = {
    "sqrt": "sqrt(x + eps), or a branch around zero: the slope of sqrt at 0 is infinite",
    "length": "sqrt(dot(v, v) + eps): the length of a zero vector has no direction",
    "normalize": "v / (length(v) + eps)",
    "div": "keep the divisor away from zero", "unscale": "keep the divisor away from zero",
    "log": "log(x + eps), for x >= 0", "pow": "keep the base above zero, or write the power as a product",
    "acos": "clamp the argument to just inside -1 and 1", "asin": "clamp the argument to just inside -1 and 1",
    "exp": "a smaller argument, or float64",
}  # fmt: skip


def _born(birth: Birth | None, step: Step, text: str, doubt: str, names: tuple[str, ...]) -> Finding:
    title = title_of(step.event)
    if birth is None:
        sentence = f"{text}.{doubt} The launch is too large, or of a kind, to be looked at statement by statement."
        return Finding("not-finite", "warning", title, step.event.where, sentence, "", names)
    sentence = f"{text}: in thread {birth.thread}, {birth.text}, in `{birth.row}`.{doubt}"
    return Finding("not-finite", "warning", title, birth.where or step.event.where, sentence,
                   _REMEDIES.get(birth.row, "look at the operands of this line"), names)  # fmt: skip


# ---- gradients that end


def died(case: Case) -> Iterator[Finding]:
    """Leaves whose whole gradient is zero although they lie on the way to the seed: where it ended, and why."""
    if case.trail.final is None or not case.seeded:
        return
    told: set = set()
    for found in leaf_accesses(case.trail).values():
        name = found[0].name
        if any(norm_of(case.trail.final, x) for x in found):
            continue
        cone, reached = _cone(case, found)
        ends = [s for s in reversed(case.trail.steps) if s.event in cone and _ends(s, cone[s.event])]
        if not reached or not ends:
            yield _not_on_path(name, next(iter(cone), None))
        elif (ends[0].event, name) not in told:
            told.add((ends[0].event, name))
            yield _died(case, ends[0], cone[ends[0].event], name)


def _not_on_path(name: str, event: Event | None) -> Finding:
    return Finding(
        "not-on-path", "info", title_of(event) if event else "", event.where if event else None,
        f"the gradient of {name} is zero: what is seeded does not depend on it.",
        "seed something that is computed from it", (name,),
    )  # fmt: skip


def _cone(case: Case, found: list[Access]) -> tuple[dict[Event, list[Access]], bool]:
    """Events that read what depends on these bytes, with those reads; does any adjoint come in there."""
    reach = {found[0].span.allocation: Marks()}
    for x in found:
        reach[x.span.allocation].add(x.span)
    cone: dict[Event, list[Access]] = {}
    reached = False
    for step in case.trail.steps:
        reads = [x for x in step.accesses if not x.writes and x.span.nbytes
                 and x.span.allocation in reach and reach[x.span.allocation].touch(x.span)]  # fmt: skip
        if reads:
            cone[step.event] = reads
            reached |= step.flowing > 0
            for x in step.accesses:
                if x.writes:
                    reach.setdefault(x.span.allocation, Marks()).add(x.span)
    return cone, reached


def _ends(step: Step, reads: list[Access]) -> bool:
    return step.flowing > 0 and not any(step.gave.get(x, 0.0) for x in reads)


def _died(case: Case, step: Step, reads: list[Access], name: str) -> Finding:
    event = step.event
    whole = [x for x in reads if x.scalar is None]
    death: Death | None = None
    if event.command is not None:
        spans = {x.span for x in reads}
        plan = event.command.plan
        targets = frozenset(plan.program.leaves[k].name for (k, _), s in zip(plan.reads, event.reads, strict=True) if s in spans)
        found = case.inspect(event, lambda e, space: first_death(e, space, targets))
        assert found is None or isinstance(found, Death)
        death = found
    if death is None and len(whole) == len(reads) and whole:
        death = Death(event.where, f"what depends on {name} is the integer array {whole[0].name}", "keep it a float")
    if death is None:
        death = Death(event.where, "an adjoint comes in, and exactly zero goes out")
    if death.kind == "apart":
        return _not_on_path(name, event)
    cancelled = death.kind == "cancelled"
    return Finding(
        "cancel" if cancelled else "died", "info" if cancelled else "warning", title_of(event), death.where or event.where,
        f"the gradient of {name} is zero everywhere: it ends here, because {death.reason}.", death.fix, (name,),
    )  # fmt: skip


def custom_rules(case: Case) -> Iterator[Finding]:
    """A `func_grad` that is not the derivative of its func, looked for in the first launch of each kernel."""
    looked: set = set()
    for step in reversed(case.trail.steps if case.seeded and case.trail.final is not None else []):
        event = step.event
        if event.command is None or event.command.program in looked or not has_rules(event):
            continue
        looked.add(event.command.program)
        found = case.inspect(event, disagreement)
        if isinstance(found, Disagreement):
            yield Finding(
                "custom-rule", "warning", title_of(event), found.where or event.where,
                f"the func_grad of {found.func!r} is not the derivative of its func: it gives {found.parameter} a"
                f" gradient of norm {found.given:.4g}, the func's own derivative one of {found.expected:.4g}.",
                "every argument that matters must get its part in the func_grad; if it differs on purpose, ignore this",
                (found.parameter,),
            )  # fmt: skip


def cancelling(case: Case) -> Iterator[Finding]:
    """Leaves in whose gradient large contributions of several launches leave little."""
    final = case.trail.final
    if final is None or not case.seeded:
        return
    for a, found in leaf_accesses(case.trail).items():
        scalar = case.tape.scalars.get(a)
        rest = max((norm_of(final, x) for x in found), default=0.0)
        given = [n for s in case.trail.steps for x, n in s.gave.items() if n and any(x is f for f in found)]
        gross = sum(given)
        if isinstance(scalar, Scalar) and np.isfinite([rest, gross]).all() and len(given) > 1:
            eps = float(np.finfo(scalar.numpy).eps if scalar.bits > 16 else np.finfo(np.float32).eps)
            if 0 < gross and rest < DIGITS * eps * gross:
                name = found[0].name
                yield Finding(
                    "cancel", "warning" if rest else "info", "", None,
                    f"contributions to the gradient of {name} sum up to {gross:.3g} in size and leave {rest:.3g}:"
                    " what is left is mostly rounding.",
                    "float64, or a formulation without the large terms", (name,),
                )  # fmt: skip


def growing(case: Case) -> Iterator[Finding]:
    """A launch that is repeated, and whose incoming adjoint grows by a factor at every step back."""
    if not case.seeded:
        return
    series: dict[tuple, list[Step]] = {}
    for step in reversed(case.trail.steps):
        if step.event.command is not None and step.flowing > 0 and np.isfinite(step.flowing):
            series.setdefault((step.event.label, step.event.where), []).append(step)
    worst: tuple[float, tuple, list[Step]] | None = None
    for key, steps in series.items():
        sizes = np.array([s.flowing for s in steps])
        if len(sizes) >= STEPS and sizes[-1] > GROWTH * sizes[0]:
            ratio = float((sizes[-1] / sizes[0]) ** (1 / (len(sizes) - 1)))
            if (sizes[1:] > sizes[:-1]).mean() > 0.7 and (worst is None or ratio > worst[0]):
                worst = ratio, key, steps
    if worst is not None:
        ratio, (label, where), steps = worst
        yield Finding(
            "growing", "warning", title_of(steps[-1].event), where,
            f"going back through {len(steps)} launches of {label!r} the adjoint grows from {steps[0].flowing:.3g} to"
            f" {steps[-1].flowing:.3g}, by a factor of {ratio:.3g} a step.",
            "a smaller time step, damping, or fewer steps between seed and leaf",
        )  # fmt: skip


def _any_name(tape: Tape, a: Allocation) -> str:
    names = [name_of(tape, x) for x in tape.arrays.values() if x.allocation is a]
    return next((n for n in names if n != str(a)), str(a))


STATIC = (refusals, no_leaf, read_too_early, aliased, kept)
WALKED = (forward_not_finite, backward_not_finite, died, custom_rules, cancelling, growing)
