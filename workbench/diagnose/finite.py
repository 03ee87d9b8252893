"""Rules about numbers that are not finite: the event, and if it can be found the statement, that made the first one.

The first number that is not finite and reaches memory is followed back through its operands, to a statement that was
given finite numbers only. What a `where` or a guard threw away is thereby left out.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.grouping import grouped
from ..arrays.workspace import Workspace, gradient_dtype
from ..device import on_host
from ..display import bytes_text
from ..errors import KernelError, Where, WorkbenchError
from ..kernels import ir
from ..kernels.interpreter import run
from ..kernels.ops import Row, control, memory, scalar, vectors
from ..kernels.types import Array, Scalar, Struct, is_float
from ..tapes.events import Event
from ..tapes.replay import ReplayedTape, keep_all
from ..tapes.rerun import Enough, is_number, run_adjoint, run_primal
from ..tapes.tape import Tape
from .finding import OVERFLOW, Finding, Findings
from .series import growing
from .walk_record import RuleInput, WalkRecord, any_name, last_seeds, norm_of, refused
from .walk_step import WalkStep

LARGE = 1e30  # an operand like this, and infinity: an overflow
Threads = list[tuple[int, ...]]
SAMPLES, LOOKED = 1000, 1 << 31  # launches; bytes that are looked at in all of them
ILL = ("not-finite", "adjoint-not-finite")
FIX = "tape.diagnose(), which walks through all of it"


@dataclass(frozen=True)
class Birth:
    """The statement and thread where a non-finite number arose; `text`: the operation with numbers; `row`: its primal.

    `what`: NaN or infinity. `overflow`: infinity, made of finite numbers that were too large.
    """

    where: Where | None
    thread: Any
    text: str
    row: Row
    what: str
    overflow: bool


class _Births:
    """A trace that follows, per thread, statements with non-finite results until one reaches memory."""

    def __init__(self, function: ir.Function, targets: frozenset[str], called: dict[str, str]):
        self.targets, self.birth, self.called = targets, None, called
        self.thread: Any = None
        self.bad: dict[ir.Value, tuple[ir.Stmt, str, str, bool]] = {}
        self.pushes: dict[ir.Value, list[ir.Value]] = {}
        self.inits: dict[ir.Value, tuple[ir.Value, ...]] = {}
        for stmt in ir.walk(function.body):
            if stmt.row is control.PUSH:
                self.pushes.setdefault(stmt.args[0], []).append(stmt.args[1])
            if stmt.row in (control.FOR, control.WHILE):
                params = [p for r in stmt.regions for p in r.params if is_number(p)]
                made = tuple(v for r in stmt.regions for v in r.results) + stmt.args
                self.inits.update((p, made) for p in params)

    def trace(self, thread: tuple[int, ...], stmt: ir.Stmt, values: run.LiveValues) -> None:
        if thread != self.thread:
            self.thread, self.bad = thread, {}
        for out in stmt.outs:
            if is_number(out) and out not in self.bad and not np.isfinite(values[out]).all():
                what = "NaN" if np.isnan(values[out]).any() else "infinity"
                large = what != "NaN" and any(is_number(a) and np.abs(values[a]).max() > LARGE for a in stmt.args)
                self.bad[out] = stmt, _shown(stmt, values, self.called), what, large  # in a loop: its first turn
        if stmt.row.writes and ir.root(stmt.args[0]).name in self.targets:
            value = stmt.args[-1]
            if value in self.bad and not np.isfinite(values[value]).all():
                self.birth = self.origin(value)
                raise Enough

    def origin(self, value: ir.Value) -> Birth:
        """The statement behind `value` that made a non-finite number from finite operands; None if there is none."""
        seen: set[ir.Value] = set()
        last = self.bad[value]
        while value not in seen:
            seen.add(value)
            last = self.bad.get(value, last)
            value = next((v for v in self.sources(value) if v in self.bad and v not in seen), value)
        stmt, text, what, large = last
        primal = stmt.of or stmt
        thread = self.thread[0] if len(self.thread) == 1 else self.thread
        return Birth(stmt.where or primal.where, thread, text, primal.row.shown or primal.row, what, large)

    def sources(self, value: ir.Value) -> list[ir.Value]:
        """The values that `value` was computed from; for a loop-carried one, its initial value and its updates."""
        found: list[ir.Value] = []
        passed: set[ir.Value] = set()
        if (stmt := value.stmt) is None:
            return []
        todo = list(self.pushes.get(stmt.args[0], ()) if stmt.row is control.POP else stmt.operands)
        while todo:
            v = todo.pop(0)
            if v not in self.inits:
                found.append(v)
            elif v not in passed:
                passed.add(v)
                todo += self.inits[v]
        return found


_ARITHMETIC = (scalar.ADD, scalar.SUB, scalar.MUL, scalar.DIV)


def _shown(stmt: ir.Stmt, values: run.LiveValues, called: dict[str, str]) -> str:
    numbers = [_number(values[a]) for a in stmt.args if not isinstance(a.type, Array) and stmt.row is not control.POP]
    result = " = " + ", ".join(_number(values[o]) for o in stmt.outs)
    row = stmt.row.shown or stmt.row
    if row in _ARITHMETIC and len(numbers) == 2:
        return f"{numbers[0]} {row.sign} {numbers[1]}{result}"
    if row is memory.LOAD:
        name = ir.root(stmt.args[0]).name
        return f"{called.get(name, name)}[{', '.join(numbers)}]{result}"
    return f"{row.name}({', '.join(numbers)}){result}"


def _number(value: object) -> str:
    if isinstance(value, np.ndarray) and value.size > 1:
        return "(" + ", ".join(f"{x:.6g}" for x in value.ravel()) + ")"
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def first_birth(tape: Tape, event: Event, space: Workspace | None, cells: Threads) -> Birth | None:
    """The `Birth` of the first non-finite number of a launch, on memory as the launch found it; None if not found.

    `space`: that of its adjoint, with these shadows as they were before it ran. `cells` are some that are not finite:
    the threads beside them are tried where the launch is too large to be run as a whole.
    """
    if space is not None and event.reverse is None:
        return None
    function = event.command.plan.forward.function if space is None else event.reverse.reverse.function
    known = set() if space is None else {p.name for p in event.command.program.function.params}
    targets = frozenset(p.name for p in function.arrays if p.name not in known)
    for threads in (None, _beside(event, cells)):
        births = _Births(function, targets, _called(tape, event, function))
        if space is None:
            run_primal(event, births.trace, threads)
        else:
            run_adjoint(event, space, births.trace, threads)
        if births.birth is not None:
            return births.birth
    return None


def _beside(event: Event, cells: Threads) -> Threads:
    """The threads with the index of these cells, and their neighbours."""
    dims = event.command.plan.form.dims
    found: dict[tuple[int, ...], None] = {}
    for cell in cells:
        for k in range(len(dims)):
            for step in (0, -1, 1):
                found[(*cell[:k], cell[k] + step if k < len(cell) else 0, *cell[k + 1 : len(dims)])] = None
    return [t for t in found if len(t) == len(dims) and all(0 <= i < n for i, n in zip(t, dims, strict=True))]


def _called(tape: Tape, event: Event, function: ir.Function) -> dict[str, str]:
    """The user's names for the arrays behind a program's parameters, and `adjoint of ...` for their shadows."""
    pairs = event.arguments
    found = {leaf.name: tape.names.of(a, leaf.name) for leaf, a in pairs if isinstance(a, array)}
    beside = {p.name: p.belongs_to for p in function.arrays if p.role is ir.Role.SHADOW}
    return found | {name: f"adjoint of {found[of]}" for name, of in beside.items() if of in found}


UNSEEN = "in a launch that is too large, or of a kind (atomic_min, atomic_max), to be run again statement by statement"
VALUES = "{arrays}"  # what holds the first number that is not finite
MUCH = 1 << 31  # bytes that a tape run again to be looked at may keep


def not_finite(case: RuleInput, rerun: bool = True) -> Iterator[Finding]:
    """Finds the first event that wrote NaN or infinity, and the first non-finite adjoint that this does not explain.

    rerun   whether the program may be run again for what was not kept.
    """
    first, seen, why = _first(case), case, ""
    if rerun and first is not None and (first.clouded or _earlier(case, first)):
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
    return RuleInput(again, WalkRecord(again, Workspace()), False, Workspace), ""


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
        fix = " or ".join(filter(None, (before, 'wb.Tape(keep="all")' if doubt or step.clouded else "")))
        text, brief = (f"{written} holds NaN or infinity{at}, {came}" for at in ("", " {at}"))
        yield step.finding("not-finite", "warning", f"{text}.{doubt}", fix, names, brief=brief)
        return
    birth = None
    if step.event.command is not None:
        birth = case.inspect(step.event, lambda event, _: first_birth(case.tape, event, None, step.bad_written))
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
        birth = case.inspect(step.event, lambda e, space: first_birth(case.tape, e, space, given))
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
# what to do, and the call mended: {0}: its argument, {wb}: what is before names
_REMEDIES: dict[Row, tuple[str, str]] = {
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
    if birth.overflow:
        advice, mended = "other units, a smaller time step or damping: what makes these numbers grow", ""
    why = OVERFLOW if birth.overflow else _WHY.get(birth.row, ("", ""))[held != VALUES]
    because = f": {why}" if why else ""
    text += f": in thread {birth.thread}, {birth.text}, in `{birth.row.name}`{because}.{doubt}"
    brief = f"{birth.what} born {{at}}: {birth.text} in {held}{because}"
    place, mended = (birth.where, birth.thread), _mended(birth.where, mended)
    return step.finding("not-finite", "warning", text, advice, names, *place, brief=brief, mended=mended)


# ---- a glance at a long tape: what its arrays and gradients hold in the end, and samples of the way there
# One walk samples the adjoints of every so many launches of each line, and the values kept there. Where they stop being
# finite, or an adjoint ends, the launches between two samples are walked through once more as `diagnose` does.


def glance(tape: Tape) -> Findings:
    """Findings on non-finite numbers, zero, exploding and vanishing gradients; `note`: what is left out.

    The gradients looked at are those that the last `backward` published. The caller holds the lock.
    """
    found, samples, reached = list[Finding](), 0, set[Allocation]()
    if tape.last_seeds and not any(event.kind.calls_back for event in tape.events):
        seen = _Samples(tape)
        found, samples = list(seen.findings()), len(seen.steps)
        reached = {x.span.allocation for step in seen.steps for x, n in step.came.items() if n}
        reached -= tape.last_seeds.keys()
    explained = any(f.slug in ILL for f in found)
    found += [f for f in _ends(tape, reached) if not (explained and f.slug in ILL)]
    well = "" if found else ": no problem found there"
    note = f"Of {len(tape.events)} events only the ends and {samples} launches between them were looked at{well}."
    return Findings(found, len(tape.events), f"{note} tape.diagnose() looks at all of them.")


def _ends(tape: Tape, reached: Container[Allocation]) -> Iterator[Finding]:
    """Findings on what is left in the end; a gradient is zero by mistake if an adjoint has `reached` the memory."""
    floats = (a for a in tape.arrays.values() if not isinstance(a.dtype, Struct) and is_float(a.dtype) and a.size)
    for a in {a.allocation: a for a in floats}.values():
        name = tape.names.of(a)
        if not np.isfinite(on_host(a.data)).all():
            yield _end("not-finite", f"{name} holds NaN or infinity in the end.", name)
        grad = a.allocation.grad if tape.last_seeds and a.allocation.asked else None
        numbers = np.zeros(1) if grad is None else on_host(grad.bytes).view(gradient_dtype(a))
        if not np.isfinite(numbers).all():
            yield _end("adjoint-not-finite", f"the gradient of {name} is not finite.", name)
        elif grad is not None and not numbers.any() and a.allocation in reached:
            yield _end("died", f"the gradient of {name} is zero everywhere.", name)


def _end(slug: str, sentence: str, name: str) -> Finding:
    return Finding(slug, "warning", "", None, sentence, FIX, (name,))


class _Samples(WalkRecord):
    """The record of some launches of each line: only of the adjoints that came, and whether kept values are finite."""

    def __init__(self, tape: Tape):
        lines = grouped([((e.label, e.line), n) for n, e in enumerate(tape.events) if e.command is not None])
        size = sum({x.allocation: x.allocation.nbytes for x in tape.arrays.values()}.values())
        every = max(len(tape.events) // max(min(SAMPLES, LOOKED // max(size, 1)), 1), 1)
        self.positions = sorted({n for places in lines.values() for n in (*places[::-every], places[0])})
        super().__init__(tape, last_seeds(tape), tape.within, chosen=self.positions, every=every)

    def before(self, event: Event, space: Workspace) -> None:
        if (step := self.of.get(event)) is not None:
            norms = {x: norm_of(space, x) for x in step.accesses}
            step.came = {x: n for x, n in norms.items() if x.writes}
            step.bad_before = math.inf in norms.values()
            types = ((k.span, self.tape.scalars.get(k.span.allocation)) for k in event.kept)
            kept = (on_host(span.view(scalar.numpy)) for span, scalar in types if isinstance(scalar, Scalar))
            step.not_finite = [] if all(np.isfinite(numbers).all() for numbers in kept) else ["kept"]

    def after(self, event: Event, space: Workspace) -> None:
        if (step := self.of.get(event)) is not None:
            step.bad_adjoints = [x.name for x in step.accesses if math.isinf(norm_of(space, x))]

    def findings(self) -> Iterator[Finding]:
        """Findings on where numbers stop being finite, and on adjoints that explode or vanish."""
        if self.error is not None:
            yield refused(self.error)
            return
        values = next((k for k, step in enumerate(self.steps) if step.not_finite), len(self.steps))
        bad = [k for k, step in enumerate(self.steps) if step.bad_before or step.bad_adjoints]
        adjoints = bad[-1] if bad else len(self.steps)
        if values < len(self.steps):
            yield from not_finite(self._walked(self._beside(values, -1), values), rerun=False)
        if adjoints < values:  # which would explain them
            yield from not_finite(self._walked(adjoints, self._beside(adjoints, 1)), rerun=False)
        yield from growing(RuleInput(self.tape, self, True, Workspace))

    def _beside(self, k: int, by: int) -> int:
        """The number of the next sample of the same line in a direction; of the first or last one if there is none."""
        event, ends = self.steps[k].event, range(k + by, len(self.steps) if by > 0 else -1, by)
        same = (n for n in ends if self.steps[n].event.line == event.line and self.steps[n].event.label == event.label)
        return next(same, len(self.steps) - 1 if by > 0 else 0)

    def _walked(self, first: int, last: int) -> RuleInput:
        """All launches from one sample to another, walked through as a whole."""
        end = self.positions[last] + 1 if last < len(self.steps) - 1 else len(self.tape.events)
        chosen = range(self.positions[first] if first else 0, end)
        trail = WalkRecord(self.tape, last_seeds(self.tape), self.tape.within, chosen=chosen)
        return RuleInput(self.tape, trail, True, partial(last_seeds, self.tape), self.tape.within)
