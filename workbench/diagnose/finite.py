"""Rules about numbers that are not finite: the event, and if it can be found the statement, that made the first one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..kernels.ops import Row, memory, scalar, vectors
from .finding import Finding
from .first_nan import Birth, first_not_finite, first_not_finite_adjoint
from .rule import Case, any_name
from .walk_record import Step

UNSEEN = "in a launch that is too large, or of a kind (atomic_min, atomic_max), to be run again statement by statement"


def forward_not_finite(case: Case) -> Iterator[Finding]:
    """The first event that wrote a NaN or infinity."""
    earlier: list[str] = []
    for step in case.trail.steps:
        if step.not_finite:
            yield from _forward(case, step, earlier)
            return
        earlier += step.unknown


def _forward(case: Case, step: Step, earlier: list[str]) -> Iterator[Finding]:
    names, title = tuple(dict.fromkeys(step.not_finite)), step.title
    written, doubt = ", ".join(names), ""
    if earlier:
        doubt = f" What was written before to {', '.join(dict.fromkeys(earlier))} was not kept, so it may be older."
    if step.inherited or step.clouded:
        sources = ", ".join(dict.fromkeys([*step.inherited, *step.clouded]))
        came = f"which came in with {sources}" if step.inherited else f"and what {sources} held was not kept"
        look = f"look at {sources} before the tape" if step.inherited else ""
        yield Finding(
            "not-finite", "warning", title, step.event.where, f"{written} holds NaN or infinity, {came}.{doubt}",
            " or ".join(filter(None, (look, 'wb.Tape(keep="all")' if doubt or step.clouded else ""))), names,
        )  # fmt: skip
        return
    birth = case.inspect(step.event, lambda event, space: first_not_finite(event)) if step.event.command else None
    assert birth is None or isinstance(birth, Birth)
    yield _born(birth, step, f"the first NaN or infinity, in {', '.join(names)}, is born here", doubt, names)


def backward_not_finite(case: Case) -> Iterator[Finding]:
    """The first event of the reverse pass whose adjoint is not finite although what came in was."""
    bad = [a for a, finite in case.trail.seeded.items() if not finite]
    if bad:
        names = tuple(any_name(case.tape, a) for a in bad)
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


_REMEDIES: dict[Row, str] = {
    scalar.SQRT: "sqrt(x + eps), or a branch around zero: the slope of sqrt at 0 is infinite",
    vectors.LENGTH: "sqrt(dot(v, v) + eps): the length of a zero vector has no direction",
    vectors.NORMALIZE: "v / (length(v) + eps)",
    scalar.DIV: "keep the divisor away from zero", vectors.UNSCALE: "keep the divisor away from zero",
    scalar.LOG: "log(x + eps), for x >= 0", scalar.POW: "keep the base above zero, or write the power as a product",
    scalar.ACOS: "clamp the argument to just inside -1 and 1",
    scalar.ASIN: "clamp the argument to just inside -1 and 1",
    scalar.EXP: "a smaller argument, or float64",
    memory.LOAD: "the value itself is not finite: look for its origin in the forward pass",
}  # fmt: skip


def _born(birth: Birth | None, step: Step, text: str, doubt: str, names: tuple[str, ...]) -> Finding:
    title = step.title
    if birth is None:
        why = f"by `{step.event.label}`" if step.event.command is None else UNSEEN
        sentence = f"{text}, {why}.{doubt}"
        return Finding("not-finite", "warning", title, step.event.where, sentence, "", names)
    sentence = f"{text}: in thread {birth.thread}, {birth.text}, in `{birth.row.name}`.{doubt}"
    return Finding("not-finite", "warning", title, birth.where or step.event.where, sentence,
                   _REMEDIES.get(birth.row, "look at the operands of this line"), names, birth.thread)  # fmt: skip


FINITE = (forward_not_finite, backward_not_finite)
