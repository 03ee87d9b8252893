"""Rules about numbers that are not finite: the event, and if it can be found the statement, that made the first one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from ..arrays.workspace import Workspace
from ..errors import KernelError, Where, WorkbenchError
from ..kernels.ops import Row, memory, scalar, vectors
from ..tables import bytes_text
from ..tapes.replay import ReplayedTape, keep_all
from .finding import OVERFLOW, Finding
from .first_nan import Birth, first_not_finite, first_not_finite_adjoint
from .rule import RuleInput, any_name, walk_again
from .walk_record import WalkRecord
from .walk_step import WalkStep

UNSEEN = "in a launch that is too large, or of a kind (atomic_min, atomic_max), to be run again statement by statement"
VALUES = "{arrays}"  # what holds the first number that is not finite
MUCH = 1 << 31  # bytes that a tape run again to be looked at may keep


def not_finite(case: RuleInput) -> Iterator[Finding]:
    """Finds the first event that wrote NaN or infinity, and the first non-finite adjoint that this does not explain."""
    first, seen, why = _first(case), case, ""
    if first is not None and (first.clouded or _earlier(case, first)):
        seen, why = _again(case)
        first = _first(seen)
    position = len(case.trail.steps)
    if first is not None:
        positions = seen.tape.positions if isinstance(seen.tape, ReplayedTape) else case.trail.order
        position = positions[first.event]
        for finding in _forward(seen, first, _earlier(seen, first), why):
            yield replace(finding, launch=case.trail.steps[position].title)
    yield from backward_not_finite(case, position)


def _first(case: RuleInput) -> WalkStep | None:
    return next((step for step in case.trail.steps if step.not_finite), None)


def _earlier(case: RuleInput, first: WalkStep) -> list[str]:
    """The names of arrays written before `first` whose contents are unknown, as nobody kept them."""
    before = case.trail.steps[: case.trail.order[first.event]]
    return list(dict.fromkeys(name for step in before for name in step.unknown))


def _again(case: RuleInput) -> tuple[RuleInput, str]:
    """The case of the program run again with everything kept; or `case` itself and why it could not be run."""
    if sum(span.nbytes for event in case.tape.events for span in event.writes) > MUCH:
        return case, f"to keep all of it would take more than {bytes_text(MUCH)}"
    try:
        again = keep_all(case.tape)
    except (WorkbenchError, KernelError) as error:
        return case, error.what.rstrip(".")
    record = WalkRecord(again, Workspace())
    return RuleInput(again, record, False, lambda look: walk_again(again, Workspace(), look)), ""


def _forward(case: RuleInput, step: WalkStep, earlier: list[str], why: str) -> Iterator[Finding]:
    names = tuple(dict.fromkeys(step.not_finite))
    written, doubt = ", ".join(names), ""
    if earlier:
        doubt = f" What was written before to {', '.join(earlier)} was not kept, so it may be older"
        doubt += f"; and the program could not be run again to see it: {why}." if why else "."
    if step.inherited or step.clouded:
        sources = ", ".join(dict.fromkeys([*step.inherited, *step.clouded]))
        came = f"which came in with {sources}" if step.inherited else f"and what {sources} held was not kept"
        before = f"look at {sources} before the tape" if step.inherited else ""
        yield step.finding(
            "not-finite",
            "warning",
            f"{written} holds NaN or infinity, {came}.{doubt}",
            " or ".join(filter(None, (before, 'wb.Tape(keep="all")' if doubt or step.clouded else ""))),
            names,
            brief=f"{written} holds NaN or infinity {{at}}, {came}",
        )
        return
    birth = None
    if step.event.command is not None:
        birth = case.inspect(step.event, lambda event, _: first_not_finite(case.tape, event, step.bad_written))
    text = f"the first NaN or infinity, in {', '.join(names)}, is born here"
    yield _born(birth, step, text, doubt, names, VALUES)


def backward_not_finite(case: RuleInput, position: int) -> Iterator[Finding]:
    """Finds the first event of the reverse pass that made a finite adjoint non-finite, or a non-finite seed.

    From event number `position` on the values are not finite, which explains the adjoints there.
    """
    bad = [a for a, finite in case.trail.seeded.items() if not finite]
    if bad:
        names = tuple(any_name(case.tape, a) for a in bad)
        text = f"the seed of {', '.join(names)} is not finite."
        yield Finding("adjoint-not-finite", "warning", "", None, text, "a finite seed", names)
        return
    step = next((s for s in reversed(case.trail.steps) if s.bad_adjoints and not s.bad_before), None)
    if step is None or case.trail.order[step.event] >= position:
        return
    given, birth = step.bad_given, None
    if step.event.command is not None:
        birth = case.inspect(step.event, lambda e, space: first_not_finite_adjoint(case.tape, e, space, given))
    names = tuple(dict.fromkeys(step.bad_adjoints))
    text = f"the first NaN or infinity of the reverse pass, in the adjoint of {', '.join(names)}, is born here"
    yield replace(_born(birth, step, text, "", names, "the adjoint of {arrays}"), slug="adjoint-not-finite")


_NO_DIRECTION, _ZERO = "a zero vector has no direction", "a division by zero"
_WHY: dict[Row, tuple[str, str]] = {  # why a value, and why a slope, is no finite number
    scalar.SQRT: ("the square root of a negative number", "the slope of sqrt at 0 is infinite"),
    vectors.LENGTH: ("", _NO_DIRECTION),
    vectors.NORMALIZE: (_NO_DIRECTION, _NO_DIRECTION),
    scalar.DIV: (_ZERO, _ZERO),
    vectors.UNSCALE: (_ZERO, _ZERO),
    scalar.LOG: ("the logarithm of a number that is not above 0", "the slope of log at 0 is infinite"),
    scalar.POW: ("a power of a base that is not above 0", "the slope of a power at 0 is infinite"),
    scalar.ACOS: ("the argument lies outside -1 and 1", "the slope of acos at -1 and 1 is infinite"),
    scalar.ASIN: ("the argument lies outside -1 and 1", "the slope of asin at -1 and 1 is infinite"),
}
_ARC, _DIVISOR = "clamp the argument to just inside -1 and 1", "keep the divisor away from zero"
_REMEDIES: dict[
    Row, tuple[str, str]
] = {  # what to do, and the call mended: {0}: its argument, {wb}: what is before names
    scalar.SQRT: ("keep what is under the root above 0", "{wb}sqrt({wb}max({0}, 1e-12))"),
    vectors.LENGTH: ("sqrt(dot(v, v) + eps)", "{wb}sqrt({wb}dot({0}, {0}) + 1e-12)"),
    vectors.NORMALIZE: ("v / (length(v) + eps)", "{0} / ({wb}length({0}) + 1e-12)"),
    scalar.DIV: (_DIVISOR, ""),
    vectors.UNSCALE: (_DIVISOR, ""),
    scalar.LOG: ("keep the argument above 0", "{wb}log({wb}max({0}, 1e-12))"),
    scalar.POW: ("keep the base above zero, or write the power as a product", ""),
    scalar.ACOS: (_ARC, "{wb}acos({wb}clamp({0}, -0.999999, 0.999999))"),
    scalar.ASIN: (_ARC, "{wb}asin({wb}clamp({0}, -0.999999, 0.999999))"),
    scalar.EXP: ("a smaller argument, or float64", ""),
    memory.LOAD: ("the value itself is not finite: look for its origin in the forward pass", ""),
}


def _mended(where: Where | None, template: str) -> str:
    """The line with the call in it mended; "" where what stands there is no call of one argument."""
    if where is None or not template:
        return ""
    try:
        node = ast.parse(where.text[where.col : where.end_col].strip(), mode="eval").body
    except SyntaxError:
        return ""
    if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
        return ""
    before = ast.unparse(node.func).rpartition(".")
    made = template.format(ast.unparse(node.args[0]), wb=before[0] + before[1])
    return (where.text[: where.col] + made + where.text[where.end_col :]).strip()


def _born(birth: Birth | None, step: WalkStep, text: str, doubt: str, names: tuple[str, ...], held: str) -> Finding:
    if birth is None:
        why = f"by `{step.event.label}`" if step.event.command is None else UNSEEN
        brief = f"NaN or infinity born {{at}}, in {held}"
        return step.finding("not-finite", "warning", f"{text}, {why}.{doubt}", "", names, brief=brief)
    advice, mended = _REMEDIES.get(birth.row, ("look at the operands of this line", ""))
    why = OVERFLOW if birth.overflow else _WHY.get(birth.row, ("", ""))[held != VALUES]
    because = f": {why}" if why else ""
    return step.finding(
        "not-finite",
        "warning",
        f"{text}: in thread {birth.thread}, {birth.text}, in `{birth.row.name}`{because}.{doubt}",
        advice,
        names,
        birth.where,
        birth.thread,
        brief=f"{birth.what} born {{at}}: {birth.text} in {held}{because}",
        mended=_mended(birth.where, mended),
    )


FINITE = (not_finite,)
