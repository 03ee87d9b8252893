"""The checks of gradients: `gradcheck` against finite differences, `check_rule` against forward mode.

Everything runs on private copies, in float64 unless asked otherwise: the programs are the user's, widened, so that
differences tell ten digits. A derivative that differences cannot measure (a kink, a branch that flips, noise) is
reported as such and never counted as right (`differences`). A check that compared nothing, or zeros only, is an error,
not a success.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays import allocation as memory
from ..arrays.array import array, on_device, read_values
from ..arrays.names import names_in
from ..arrays.span import ShapeLike, Span
from ..arrays.workspace import add_into, is_float_memory
from ..display import ProgressBar
from ..errors import GradientError
from ..kernels import ir
from ..kernels.program import Kernel
from ..kernels.types import is_float
from ..launches.launch import launch
from ..tapes.call_arguments import arrays_in, with_arrays
from ..tapes.events import Event
from ..tapes.jvp import passing
from ..tapes.private_copies import CopiedArrays, LaunchCase, Rerun, case_of_launch, leaves
from ..tapes.tape import Tape
from .differences import KINK, UNSURE, WRONG, Judgement, slope, verdict
from .func_grad_check import check_rule as check_rule, has_rule, wrong_call
from .report import GradcheckRow, Report, refuse_vacuous
from .sweep import spread

__all__ = ["GradcheckRow", "Report", "check_rule", "gradcheck"]
__dir__ = __all__.copy
BLIND = 100  # a derivative below this many times `atol` is lost in the noise of the outputs
ELEMENTS = 256  # elements looked at one by one where a direction alone does not tell


@dataclass(frozen=True)
class _Rules:
    """The settings of a check: steps, tolerances, and how many directions."""

    full: bool
    directions: int
    eps: float
    rtol: float
    atol: float
    widened: bool
    seconds: float


# ---- gradcheck


def gradcheck(
    what: object,
    dim: ShapeLike | None = None,
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    *,
    full: bool = False,
    directions: int = 2,
    eps: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    dtype: Any = np.float64,
    raise_exception: bool = True,
    executor: Executor | None = None,
    seconds: float = 30.0,
) -> Report:
    """Compare gradients with differences of the program itself, launch by launch and end to end.

    what       a kernel (with `dim`, `inputs`, `outputs` as for `launch`), a function of arrays that launches kernels
               (with `inputs`, its arguments), or a `Tape(keep="all")` that has recorded.
    full       compare every element of every input; by default `directions` random directions per input and launch,
               and single elements (up to 256) of an input only where a direction disagrees or cannot be measured.
    dtype      float64 checks the programs widened to float64; None checks them in their own types, less closely.
    eps        step of the differences, relative to the input. By default 1e-5 (2e-3 for dtype=None).
    executor   its workers check the launches, each of them one at a time (see `sweep`).
    seconds    about how long it may take; of a longer tape, launches spread evenly are checked, and it says how many.
    rtol, atol allowed error, relative to the derivative and to the outputs. By default 1e-6, 1e-9 (3e-2, 1e-5).

    Inputs are copied; nothing of the user is changed. Every float of `inputs` and `outputs` is an input, every float
    that a launch writes is an output. Returns a `Report`; with `raise_exception` a gradient that is wrong or not finite
    raises GradientError [gradcheck] that names launch, input and element. A check that compares nothing, or only zeros,
    always raises. Where differences cannot decide (rounding, or a kink at the input itself, which a note names) the
    verdict is `not measurable`, which is not a pass: the report is then false, though `report.wrong` is empty.

    Use it in the tests of a simulation, and first when a gradient looks odd: it names the launch that is wrong.

    >>> @wb.kernel
    ... def cube(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = x[i] * x[i] * x[i]
    >>> report = wb.gradcheck(cube, dim=3, inputs=[wb.array([1.0, 2.0, 3.0])], outputs=[wb.zeros(3)])
    >>> bool(report), report.wrong
    (True, [])
    """
    widened = dtype is not None
    if widened and np.dtype(getattr(dtype, "name", dtype)) != np.float64:
        raise ValueError("dtype is float64, or None for the program's own types")
    picks = (1e-5, 1e-6, 1e-9) if widened else (2e-3, 3e-2, 1e-5)
    eps, rtol, atol = [p if given is None else given for given, p in zip((eps, rtol, atol), picks, strict=True)]
    rules = _Rules(full, directions, eps, rtol, atol, widened, seconds)
    report = Report()
    tape, results = _recorded(what, dim, (*inputs, *outputs))
    _check_tape(tape, results, report, rules, executor)
    report.notes += dict.fromkeys(note for row in report.rows for note in (row.cause, row.note, row.kink) if note)
    refuse_vacuous(report)
    if raise_exception and report.wrong:
        raise _disagreement(report)
    if raise_exception and any(r.not_finite for r in report.rows):
        raise _not_finite(report)
    return report


def _not_finite(report: Report) -> GradientError:
    r = next(r for r in report.rows if r.not_finite)
    text = (
        f"the gradient is not finite in {r.launch}, input {r.input!r}: {r.not_finite} elements are inf or NaN, and"
        " differences cannot tell what they should be."
    )
    instead = "other inputs, or raise_exception=False and the rows of the report"
    return GradientError(text, slug="gradcheck", where=r.where, why=str(report), instead=instead)


def _disagreement(report: Report) -> GradientError:
    """The GradientError about the first wrong row: a launch by itself if one is wrong, else the whole."""
    r = report.wrong[0]
    element = "" if r.worst is None else f", element {r.worst}"
    text = (
        f"the gradient is wrong in {r.launch}, input {r.input!r}{element}: the adjoint gives {r.adjoint:.8g},"
        f" differences give {r.measured:.8g}."
    )
    if r.cause:
        text = f"{r.cause}\n{text[0].upper()}{text[1:]}"
    instead = r.fix or "wb.gradcheck(..., full=True), which compares every element, and shows the wrong ones' places"
    table = replace(report, notes=[n for n in report.notes if n != r.cause])
    return GradientError(text, slug="gradcheck", where=r.where, why=str(table), instead=instead)


def _recorded(what: Any, dim: ShapeLike | None, args: tuple) -> tuple[Tape, list[array] | None]:
    """The tape that is checked, and what the function returned, if it is one. Raises TypeError."""
    with memory.LOCK, memory.unrecorded():
        if isinstance(what, Tape):
            return what, None
        if isinstance(what, Kernel):
            if dim is None:
                text = "gradcheck of a kernel takes the launch dimensions: gradcheck(kernel, dim, inputs, outputs)"
                raise TypeError(text)
            tape, _ = _called(lambda *given: launch(what, dim, list(given)), args)
            tape.events[-1].place = tape.events[-1].command.program.function.where
            return tape, None
        if callable(what):
            return _called(what, args)
    raise TypeError(f"gradcheck takes a kernel, a function or a tape, not {what!r}")


def _called(fn: Callable, args: Sequence[Any]) -> tuple[Tape, list[array] | None]:
    """(the tape of a call of `fn` on copies of its arguments, the arrays that it returned or None)."""
    twins = CopiedArrays(list(arrays_in(list(args))), False)
    tape = Tape(keep="all")
    made = with_arrays(list(args), twins.whole)
    for a in filter(is_float_memory, arrays_in(made)):
        a.requires_grad = True
    with tape:
        result = fn(*made)
    names = list(inspect.signature(fn).parameters) + [f"argument {k}" for k in range(len(args))]
    for name, value in zip(names, made, strict=False):
        for label, a in names_in({name: value}, array):
            tape.names.noted.setdefault(id(a), label)
    return tape, list(arrays_in(result)) or None


END = -1  # stands for the whole tape where launches are numbered


def _check_tape(
    tape: Tape, results: list[array] | None, report: Report, rules: _Rules, executor: Executor | None
) -> None:
    if tape.keep != "all":
        text = "gradcheck of a tape that keeps only what adjoints read."
        why = "Its launches cannot be run again from what they started from."
        raise GradientError(text, slug="not-kept", why=why, instead='wb.Tape(keep="all")')
    launches = [n for n, e in enumerate(tape.events) if e.reverse is not None and 0 not in e.command.plan.form.dims]
    opaque = [e for e in tape.events if not e.kind.repeatable]
    bodies = {n: tape.events[n].command.program.function.body for n in launches}
    cuts = {n: next((s for s in ir.walk(body) if s.row.cut), None) for n, body in bodies.items()}
    held = {n: cut for n, cut in cuts.items() if cut is not None}
    for cut in dict.fromkeys(held.values()):
        report.notes.append(f"not compared: wb.detach at {cut.where} holds a value that differences move")
    launches = [n for n in launches if n not in held]
    several = sum(e.reverse is not None for e in tape.events) > 1 or any(e.command is None for e in tape.events)
    whole = several and not opaque and not held
    if opaque:
        report.notes.append(f"not checked end to end: {opaque[0].label} is not a program of ours")
    parts = [*launches, *([END] if whole else [])]
    shared = tape, results, rules
    alone = [[n] for n in parts]
    found = [_rows(shared, parts)] if executor is None else spread(_rows, shared, alone, executor, "gradcheck")
    report.rows += [row for rows, _ in found for row in rows]
    checked, left = sum(n for _, n in found), sum(row.left for row in report.rows)
    if checked < len(launches):
        ways = "each element" if rules.full else f"{rules.directions} random directions"
        report.sampled = f"; {checked} of {len(launches)} launches were checked in {rules.seconds:g} s, along {ways}"
    if left:
        report.sampled += f"; {left} elements were looked at in sums only (full=True looks at each)"


def _rows(shared: tuple[Tape, list[array] | None, _Rules], parts: list[int]) -> tuple[list[GradcheckRow], int]:
    """(the rows of these launches, checked in one pass over the tape, and of the whole of it if END is among them; how
    many launches that were). A launch waits its turn: by the n-th of m, n/m of the time may have passed.
    """
    tape, results, rules = shared
    found: list[GradcheckRow] = []
    rerun = Rerun(tape, rules.widened) if END in parts else None
    numbers = {event: n for n, event in enumerate(tape.events)}
    turn = {n: k for k, n in enumerate(parts)}
    begin, checked = time.monotonic(), 0

    def before(event: Event, _: object) -> None:
        if rerun is not None:
            rerun.before(event)
        nonlocal checked
        number = numbers[event]
        if number in turn:
            bar.update()
        if number in turn and time.monotonic() - begin <= rules.seconds * (turn[number] + 1) / len(parts):
            checked += 1
            rows = _check_case(case_of_launch(event, number, rules.widened), rules, np.random.default_rng(number))
            wrong = [row for row in rows if row.wrong]
            call = wrong_call(event) if wrong else None
            for row in wrong:
                if call is not None:
                    row.cause, row.fix, row.where = call.sentence, call.fix, call.rule
                elif any(map(has_rule, ir.walk(event.command.program.function.body))):
                    row.fix = "wb.verify.check_rule(f) for each func with a func_grad that it calls"
            found.extend(rows)

    with memory.LOCK, memory.unrecorded(), ProgressBar(len(parts), "gradcheck") as bar:
        passing(tape, before, rerun.behind if rerun is not None else None)
        if rerun is not None:
            found += _check_case(rerun.case(*_ends(tape, results)), rules, np.random.default_rng(len(tape.events)))
    return found, checked


def _ends(tape: Tape, results: list[array] | None) -> tuple[dict[str, array], dict[str, array]]:
    """(the float inputs, the float outputs) of a tape by name; equal names are told apart by a number."""
    known: dict[Span, tuple[str, array]] = {}
    taken: Counter[str] = Counter()
    for whole in [*(results or []), *tape.arrays.values()]:
        label = whole.name or tape.names.of(whole)
        for a in leaves(whole):
            if is_float(a.dtype) and a.span not in known:
                name = label if a is whole else f"{label}+{a.span.offset}"
                taken[name] += 1
                known[a.span] = (name if taken[name] == 1 else f"{name} ({taken[name]})", a)
    tape.log.tally()
    inputs = {n: a for n, a in known.values() if a.requires_grad and a.allocation in tape.active}
    written = [(n, a) for n, a in known.values() if (m := tape.log.written.get(a.allocation)) and m.touch(a.span)]
    wanted = {a.span for whole in results or () for a in leaves(whole)}
    return inputs, {n: a for n, a in written if a.allocation in tape.active and (not wanted or a.span in wanted)}


# ---- one case


class _Measure:
    """Derivatives of one case along a random combination u of its outputs, by its adjoint and by differences."""

    def __init__(self, case: LaunchCase, rules: _Rules, rng: np.random.Generator):
        self.case, self.rules = case, rules
        self.values = case.run()
        case.restore()
        self.seeds = {n: rng.uniform(0.5, 1.0, y.shape) * rng.choice([-1, 1], y.shape) for n, y in self.values.items()}
        if not rules.widened:  # so that seeds are the same numbers in float32
            self.seeds = {n: np.round(u * 64) / 64 for n, u in self.seeds.items()}
        self.size = sum(float(np.sum(np.abs(u * self.values[n]))) for n, u in self.seeds.items())
        tape, self.gradients = case.pull_back(self.seeds)
        self.met = "; ".join(dict.fromkeys(f"{s.where}: {s.attr.text}" for s in tape.conventions))
        case.restore()

    def loss(self, name: str, move: np.ndarray) -> float:
        """<u, outputs> after `move` is added to an input, minus its value without."""
        a = self.case.inputs[name]
        add_into(a.data, on_device(a, move.astype(a.data.dtype)), a.span)
        made = self.case.run()
        self.case.restore()
        with np.errstate(invalid="ignore"):
            return float(sum(np.sum(u * (made[n] - self.values[n])) for n, u in self.seeds.items()))

    def slope(self, name: str, v: np.ndarray) -> tuple[float, bool]:
        """The derivative in direction v, and whether the differences agree among themselves."""
        h = self.step(name, v)
        one, half, two, half_two = (self.loss(name, v * s) for s in (h, h / 2, -h, -h / 2))
        found = slope((one, half, two, half_two), h, self.noise)
        rough = not found.bar <= 1e-3 * abs(found.low) + 2 * self.noise / h + 1e-300
        return (found.low + found.high) / 2, found.low == found.high and not rough

    def step(self, name: str, v: np.ndarray) -> float:
        """The length of the first step in direction v: relative to the largest number that is moved."""
        moved = np.abs(read_values(self.case.inputs[name]).astype(np.float64)[v != 0])
        moved = moved[np.isfinite(moved)]
        return self.rules.eps * (float(moved.max()) if moved.size and moved.max() > 0 else 1.0)

    @property
    def noise(self) -> float:
        """The rounding noise of `loss`, estimated from the outputs."""
        return 8 * (1e-15 if self.rules.widened else 1e-6) * self.size

    def verdict(self, name: str, v: np.ndarray, got: float) -> Judgement:
        """The verdict of differences on `got` as the derivative in direction v."""
        return verdict(lambda t: self.loss(name, v * t), got, self.step(name, v), self.noise, self.rules.rtol)


def _check_case(case: LaunchCase, rules: _Rules, rng: np.random.Generator) -> list[GradcheckRow]:
    if not case.inputs or not case.outputs:
        return []
    rows = {name: GradcheckRow(case.label, case.where, name) for name in case.inputs}
    for _ in range(1 if rules.full else max(1, rules.directions)):
        measure = _Measure(case, rules, rng)
        for name, row in rows.items():
            row.note = measure.met
            if case.inputs[name].size:
                _check_input(measure, name, row, rng)
    return [row for row in rows.values() if row.compared or row.skipped]


def _check_input(measure: _Measure, name: str, row: GradcheckRow, rng: np.random.Generator) -> None:
    g = measure.gradients[name]
    bad = np.argwhere(~np.isfinite(g))
    row.not_finite = max(row.not_finite, len(bad))
    if not measure.rules.full:
        v = rng.uniform(0.5, 1.0, g.shape) * rng.choice([-1, 1], g.shape)
        if _compare(measure, name, row, v, None):
            return
    suspects = _suspects(measure, name)
    row.left = max(row.left, g.size - len(suspects))
    for index in dict.fromkeys([*(tuple(map(int, b)) for b in bad[:1]), *suspects]):
        one = np.zeros(g.shape)
        one[index] = 1
        if not _compare(measure, name, row, one, index):
            row.skipped += 1


def _compare(measure: _Measure, name: str, row: GradcheckRow, v: np.ndarray, index: tuple[int, ...] | None) -> bool:
    """Compare in one direction. False if it decides nothing, or (without an index) not enough."""
    g = measure.gradients[name]
    with np.errstate(invalid="ignore"):
        got = float(np.sum(g[v != 0] * v[v != 0]))
    want, sure = measure.slope(name, v)
    noise, size = measure.rules.atol * measure.size, max(abs(got), abs(want))
    wrong = not abs(got - want) <= measure.rules.rtol * size + noise
    blind = not wrong and 0 < size < BLIND * noise  # agreement that close is no news
    if not sure or blind or wrong:
        if index is None:
            return False
        said, want, other = measure.verdict(name, v, got)
        if said == KINK:
            apart = 100 * abs(want - other) / max(abs(want), abs(other))
            at = f"{row.launch}: {name}{list(index)}"
            row.kink = row.kink or f"{at} is at a kink: the slopes to its two sides differ by {apart:.3g} %"
        if said in (UNSURE, KINK):
            return False
        wrong = said == WRONG
    row.add(got, want, wrong, index)
    return True


def _suspects(measure: _Measure, name: str) -> list[tuple[int, ...]]:
    """The elements to check one by one: all if few or asked for, else those in the halves that disagree most."""
    shape = measure.gradients[name].shape
    picked = np.arange(int(np.prod(shape)))
    while len(picked) > ELEMENTS and not measure.rules.full:
        halves = np.array_split(picked, 2)
        picked = max(halves, key=lambda part: _error(measure, name, part))
    return [tuple(int(i) for i in np.unravel_index(k, shape)) for k in picked]


def _error(measure: _Measure, name: str, part: np.ndarray) -> float:
    g = measure.gradients[name]
    v = np.zeros(g.size)
    v[part] = 1 + np.arange(len(part)) % 7 / 16
    want, _ = measure.slope(name, v.reshape(g.shape))
    error = abs(float(np.sum(g.reshape(-1)[part] * v[part])) - want)
    return error if np.isfinite(error) else float("inf")
