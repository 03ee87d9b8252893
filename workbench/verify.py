"""Are the gradients right: `gradcheck` against differences, `check_rule` against forward mode.

Everything runs on private copies, in float64 unless asked otherwise: the programs are the user's, widened, so that
differences tell ten digits. A derivative that differences cannot measure (a kink, a branch that flips, noise) is
reported as such and never counted as right. A check that compared nothing, or zeros only, is an error, not a success.
"""

from __future__ import annotations

import html
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import memory
from .array import array
from .errors import GradientError, Where
from .forward import _components, jvp, passing, value_of
from .kernels import declare
from .kernels.declare import Func
from .kernels.elementwise import elementwise
from .kernels.kernel import Kernel
from .kernels.kernel import program as program_of
from .kernels.types import Array, Scalar, Type, is_float
from .kernels.widen import wide
from .launch import Command, flatten, grid, plan
from .tape import Event, Tape, Workspace, _shadow_view
from .twin import Case, Launch, Rerun, Twins, case_of_launch, leaves, program

ELEMENTS = 256  # elements looked at one by one where a direction alone does not tell


# ---- what is reported


@dataclass
class Row:
    """One input of one launch (or of the whole): how far adjoint and differences are apart.

    `compared` derivatives were compared, `skipped` could not be measured. `worst`: index of the largest error, with the
    two values; None where only directions were compared.
    """

    launch: str
    where: Where | None
    input: str
    compared: int = 0
    skipped: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    largest: float = 0.0  # of the derivatives themselves
    worst: tuple[int, ...] | None = None
    adjoint: float = 0.0
    measured: float = 0.0
    wrong: bool = False

    def add(self, got: float, want: float, wrong: bool, index: tuple[int, ...] | None) -> None:
        """One comparison. What is not finite on both sides is wrong."""
        error = abs(got - want)
        first = not self.compared
        self.compared += 1
        self.largest = max(self.largest, abs(got), abs(want))
        if wrong > self.wrong or (wrong == self.wrong and (first or error > self.max_abs)):
            self.worst, self.adjoint, self.measured = index, got, want
        self.wrong = self.wrong or wrong
        self.max_abs = max(self.max_abs, error) if np.isfinite(error) else float("inf")
        scale = max(abs(got), abs(want))
        self.max_rel = max(self.max_rel, error / scale if scale and np.isfinite(error) else float(wrong))


@dataclass
class Report:
    """What `gradcheck` found: true if everything compared agrees. Prints as a table, also in a notebook."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    HEAD = ("launch", "input", "compared", "skipped", "max abs", "max rel", "worst", "adjoint", "differences", "")

    def __bool__(self) -> bool:
        return not self.wrong and any(r.compared for r in self.rows)

    @property
    def wrong(self) -> list[Row]:
        """The rows that disagree."""
        return [r for r in self.rows if r.wrong]

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                r.launch, r.input, str(r.compared), str(r.skipped), f"{r.max_abs:.2e}", f"{r.max_rel:.2e}",
                "" if r.worst is None else str(r.worst), f"{r.adjoint:.8g}", f"{r.measured:.8g}",
                "WRONG" if r.wrong else "ok" if r.compared else "not measurable",
            )
            for r in self.rows
        ]  # fmt: skip

    def __str__(self) -> str:
        lines = [self.HEAD, *self._cells()]
        widths = [max(len(line[k]) for line in lines) for k in range(len(self.HEAD))]
        text = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        return "\n".join([*text, *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(h)}</th>" for h in self.HEAD)
        body = "".join(
            f"<tr{' style="color:#b00020;font-weight:bold"' if r.wrong else ''}>"
            + "".join(f"<td>{html.escape(c)}</td>" for c in cells) + "</tr>"
            for r, cells in zip(self.rows, self._cells(), strict=True)
        )  # fmt: skip
        notes = "".join(f"<p>{html.escape(n)}</p>" for n in self.notes)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


@dataclass(frozen=True)
class _Rules:
    """How closely to look."""

    full: bool
    directions: int
    eps: float
    rtol: float
    atol: float
    widened: bool


# ---- gradcheck


def gradcheck(
    what: Any, dim: Any = None, inputs: Sequence[Any] = (), outputs: Sequence[Any] = (), *, full: bool = False,
    directions: int = 2, eps: float | None = None, rtol: float | None = None, atol: float | None = None,
    dtype: Any = np.float64, raise_exception: bool = True,
) -> Report:  # fmt: skip
    """Compare gradients with differences of the program itself, launch by launch and end to end.

    what       a kernel (with `dim`, `inputs`, `outputs` as for `launch`), a function of arrays that launches kernels
               (with `inputs`, its arguments), or a `Tape(keep="all")` that has recorded.
    full       compare every element of every input; by default `directions` random directions per input and launch,
               and single elements (up to 256) of an input only where a direction disagrees or cannot be measured.
    dtype      float64 checks the programs widened to float64; None checks them in their own types, less closely.
    eps        step of the differences, relative to the input. By default 1e-5 (2e-3 for dtype=None).
    rtol, atol allowed error, relative to the derivative and to the outputs. By default 1e-6, 1e-8 (3e-2, 1e-4).

    Inputs are copied; nothing of the user is changed. Every float of `inputs` and `outputs` is an input, every float
    that a launch writes is an output. Returns a `Report`; with `raise_exception` a wrong gradient raises GradientError
    [gradcheck] that names launch, input and element. A check that compares nothing, or only zeros, always raises.
    """
    widened = dtype is not None
    if widened and np.dtype(getattr(dtype, "name", dtype)) != np.float64:
        raise ValueError("dtype is float64, or None for the program's own types")
    picks = (1e-5, 1e-6, 1e-8) if widened else (2e-3, 3e-2, 1e-4)
    eps, rtol, atol = [p if given is None else given for given, p in zip((eps, rtol, atol), picks, strict=True)]
    rules = _Rules(full, directions, eps, rtol, atol, widened)
    with memory.LOCK, memory.unrecorded():
        report = Report()
        if isinstance(what, Tape):
            _check_tape(what, None, report, rules)
        elif isinstance(what, Kernel):
            _check_tape(_launched(what, dim, (*inputs, *outputs)), None, report, rules)
        elif callable(what):
            _check_tape(*_called(what, (*inputs, *outputs)), report, rules)
        else:
            raise TypeError(f"gradcheck takes a kernel, a function or a tape, not {what!r}")
    _refuse_vacuous(report)
    if raise_exception and report.wrong:
        raise _disagreement(report)
    return report


def _disagreement(report: Report) -> GradientError:
    """The first launch that is wrong by itself, else the whole."""
    r = report.wrong[0]
    element = "" if r.worst is None else f", element {r.worst}"
    return GradientError(
        f"the gradient is wrong in {r.launch}, input {r.input!r}{element}: the adjoint gives {r.adjoint:.8g},"
        f" differences give {r.measured:.8g}.",
        slug="gradcheck", where=r.where, why=str(report),
        instead="wb.verify.check_rule(f) for each func with a func_grad that it calls",
    )  # fmt: skip


def _refuse_vacuous(report: Report) -> None:
    compared = sum(r.compared for r in report.rows)
    if compared and any(r.largest > 0 or r.wrong for r in report.rows):
        return
    if not report.rows:
        why = "No launch has a float that depends on a float: there is no gradient."
    elif not compared:
        why = "No derivative could be measured: the inputs lie on kinks, or the differences are all noise."
    else:
        why = "Every derivative is zero, by the adjoint and by differences: a broken adjoint would look the same."
    raise GradientError(
        "gradcheck has checked nothing.", slug="gradcheck-vacuous", why="\n".join([why, str(report)]),
        instead="other inputs, or the arrays that are to be differentiated among them",
    )  # fmt: skip


def _copies(args: Iterable[Any]) -> tuple[list[Any], list[array]]:
    """Arguments with copies in place of arrays of numbers, which then require gradients; and these copies."""
    args = list(args)
    twins = Twins([a for a in args if isinstance(a, array)], False)
    made = [twins.whole(a) if isinstance(a, array) else a for a in args]
    copies = [a for a in made if isinstance(a, array)]
    for a in copies:
        if a._differentiable:
            a.requires_grad = True
    return made, copies


def _launched(kernel: Kernel, dim: Any, args: Sequence[Any]) -> Tape:
    if dim is None:
        raise TypeError("gradcheck of a kernel takes the launch dimensions: gradcheck(kernel, dim, inputs, outputs)")
    made, _ = _copies(args)
    prog, tape = kernel.program(), Tape(keep="all")
    flat = flatten(prog.name, prog, made)
    for a in flat:  # also in structs
        if isinstance(a, array) and a._differentiable:
            a.requires_grad = a.requires_grad or a in made
    with tape:
        Command(prog, plan(prog.name, prog, grid(prog.name, dim), flat, None), flat).launch(True)
    return tape


def _called(fn: Callable, args: Sequence[Any]) -> tuple[Tape, list[array] | None]:
    made, copies = _copies(args)
    tape = Tape(keep="all")
    with tape:
        result = fn(*made)
    results = [a for a in (result if isinstance(result, tuple | list) else [result]) if isinstance(a, array)]
    return tape, results or None


def _check_tape(tape: Tape, results: list[array] | None, report: Report, rules: _Rules) -> None:
    if tape.keep != "all":
        raise GradientError(
            "gradcheck of a tape that keeps only what adjoints read.", slug="not-kept",
            why="Its launches cannot be run again from what they started from.", instead='wb.Tape(keep="all")',
        )  # fmt: skip
    rng = np.random.default_rng(0)
    opaque = [e for e in tape.events if e.kind in ("func", "foreign")]
    rerun = None if opaque else Rerun(tape, rules.widened)

    def before(event: Event, _: Any) -> None:
        if rerun is not None:
            rerun.before(event)
        if event.reverse is not None and 0 not in event.command.plan.dims:
            _check_case(case_of_launch(event, rules.widened), report, rules, rng)

    passing(tape, before, rerun.behind if rerun is not None else None)
    if opaque:
        report.notes.append(f"not checked end to end: {opaque[0].label} is not a program of ours")
    elif len([e for e in tape.events if e.reverse is not None]) > 1 or any(e.command is None for e in tape.events):
        _check_case(rerun.case(*_ends(tape, results)), report, rules, rng)  # type: ignore[union-attr]


def _ends(tape: Tape, results: list[array] | None) -> tuple[dict[str, array], dict[str, array]]:
    """What goes in and what comes out of a tape, by name."""
    known: dict[memory.Span, tuple[str, array]] = {}
    for whole in [*(results or []), *tape.arrays.values()]:
        label = whole.name or tape.names.get(id(whole)) or whole.label
        for a in leaves(whole):
            if is_float(a.dtype):
                known.setdefault(a.span, (label if a is whole else f"{label}+{a._offset}", a))
    tape._tally()
    inputs = {n: a for n, a in known.values() if a.requires_grad and a.allocation in tape.active}
    written = [(n, a) for n, a in known.values() if (m := tape.written.get(a.allocation)) and m.touch(a.span)]
    wanted = {a.span for whole in results or () for a in leaves(whole)}
    return inputs, {n: a for n, a in written if a.allocation in tape.active and (not wanted or a.span in wanted)}


# ---- one case


class _Measure:
    """Derivatives of one case along one random combination u of its outputs: by its adjoint, and by differences."""

    def __init__(self, case: Case, rules: _Rules, rng: np.random.Generator):
        self.case, self.rules = case, rules
        self.values = case.run()
        case.restore()
        self.seeds = {n: rng.uniform(0.5, 1.0, y.shape) * rng.choice([-1, 1], y.shape) for n, y in self.values.items()}
        if not rules.widened:  # so that seeds are the same numbers in float32
            self.seeds = {n: np.round(u * 64) / 64 for n, u in self.seeds.items()}
        self.size = sum(float(np.sum(np.abs(u * self.values[n]))) for n, u in self.seeds.items())
        self.gradients = self._adjoint()
        case.restore()

    def _adjoint(self) -> dict[str, np.ndarray]:
        tape, space = self.case.record(), Workspace()
        for name, a in self.case.outputs.items():
            view = _shadow_view(a, space[a.allocation])
            view[...] += _on_device(a, self.seeds[name].astype(view.dtype))
        tape._walk(space)
        return {n: value_of(a, space).astype(np.float64) for n, a in self.case.inputs.items()}

    def loss(self, name: str, move: np.ndarray) -> float:
        """<u, outputs> after `move` is added to an input, counted from the outputs as they are."""
        a = self.case.inputs[name]
        a.data[...] += _on_device(a, move.astype(a.data.dtype))
        made = self.case.run()
        self.case.restore()
        with np.errstate(invalid="ignore"):
            return float(sum(np.sum(u * (made[n] - self.values[n])) for n, u in self.seeds.items()))

    def slope(self, name: str, v: np.ndarray) -> tuple[float, bool]:
        """The derivative in direction v, and whether the differences agree among themselves."""
        x = self.case.inputs[name]._host().astype(np.float64)
        moved = np.abs(x[v != 0])
        moved = moved[np.isfinite(moved)]
        h = self.rules.eps * (float(moved.max()) if moved.size and moved.max() > 0 else 1.0)
        one, two, half, half_two = (self.loss(name, v * s) for s in (h, -h, h / 2, -h / 2))
        wide_, narrow = (one - two) / (2 * h), (half - half_two) / h
        best = (4 * narrow - wide_) / 3
        bend, half_bend = abs(one + two) / h, abs(half + half_two) / (h / 2)  # halves where smooth, stays at a kink
        scale = max(abs(best), abs(wide_)) + 1e-300
        noise = 1e-15 if self.rules.widened else 1e-6
        kink = half_bend > 0.75 * bend and half_bend > 1e-4 * scale + 8 * noise * self.size / h
        rough = abs(wide_ - narrow) > 1e-3 * scale + 8 * noise * self.size / h
        return best, np.isfinite(best) and not kink and not rough

    def tolerance(self, got: float, want: float) -> float:
        return self.rules.rtol * max(abs(got), abs(want)) + self.rules.atol * self.size


def _on_device(a: array, values: np.ndarray) -> Any:
    if not a.device.is_cuda:
        return values
    from .device import xp

    return xp(a.device).asarray(values)


def _check_case(case: Case, report: Report, rules: _Rules, rng: np.random.Generator) -> None:
    for a in case.outputs.values():
        a.requires_grad = True
    if not case.inputs or not case.outputs:
        return
    rows = {name: Row(case.label, case.where, name) for name in case.inputs}
    for _ in range(1 if rules.full else max(1, rules.directions)):
        measure = _Measure(case, rules, rng)
        for name, row in rows.items():
            if case.inputs[name].size:
                _check_input(measure, name, row, rng)
    report.rows += [row for row in rows.values() if row.compared or row.skipped]


def _check_input(measure: _Measure, name: str, row: Row, rng: np.random.Generator) -> None:
    g = measure.gradients[name]
    if not measure.rules.full:
        v = rng.uniform(0.5, 1.0, g.shape) * rng.choice([-1, 1], g.shape)
        if _compare(measure, name, row, v, None):
            return
    for index in _suspects(measure, name):
        one = np.zeros(g.shape)
        one[index] = 1
        if not _compare(measure, name, row, one, index):
            row.skipped += 1


def _compare(measure: _Measure, name: str, row: Row, v: np.ndarray, index: tuple[int, ...] | None) -> bool:
    """Compare in one direction. False where it says nothing, or (without an index) not enough."""
    g = measure.gradients[name]
    with np.errstate(invalid="ignore"):
        got = float(np.sum(g[v != 0] * v[v != 0]))
    want, sure = measure.slope(name, v)
    wrong = not abs(got - want) <= measure.tolerance(got, want)
    if not sure or (index is None and wrong):
        return False
    row.add(got, want, wrong, index)
    return True


def _suspects(measure: _Measure, name: str) -> list[tuple[int, ...]]:
    """The elements to look at one by one: all if they are few or all are asked for; else where halves disagree most."""
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


# ---- one rule


def check_rule(f: Func, *types: Any, samples: int = 64, low: float = 0.25, high: float = 1.75, rtol: float = 1e-9,
               raise_exception: bool = True) -> Report:  # fmt: skip
    """Compare the func_grad of `f` with forward mode of `f` itself: every result by every argument, at random points.

    types    the types of its parameters; by default those annotated. Numbers, vectors and matrices, no arrays.
    low, high  arguments (their components) are drawn from here: choose what `f` is made for.
    Computed in float64, with no differences and no step: the two agree to rounding or the func_grad is wrong.
    Returns a `Report`; raises GradientError [check-rule] that names argument, result and the point.
    """
    if not isinstance(f, Func) or f.grad is None:
        raise TypeError(f"check_rule takes a func with a func_grad, not {f!r}")
    made = _elementwise(f, types)
    rng = np.random.default_rng(0)
    with memory.LOCK, memory.unrecorded():
        flat = [_sample(p.type, samples, low, high, rng) for p in made.function.params]
        names = [p.name for p in made.function.params]
        ins = {n: a for n, a in zip(names, flat, strict=True) if not n.startswith("out") and a._differentiable}
        outs = {n: a for n, a in zip(names, flat, strict=True) if n.startswith("out") and a._differentiable}
        for a in ins.values():
            a.requires_grad = True
        tape = Tape(keep="all")
        with tape:
            Launch(made, (samples,), flat).run(True)
        report = Report()
        for name, x in ins.items():
            _check_argument(tape, f, name, x, outs, rtol, report)
    _refuse_vacuous(report)
    if raise_exception and report.wrong:
        raise _wrong_rule(f, report, ins)
    return report


def _elementwise(f: Func, types: Sequence[Any]) -> Any:
    """A float64 program that calls `f` once per thread."""
    given = [declare.type_from(t) for t in types] or _annotated(f)
    if any(isinstance(t, Array) for t in given):
        raise TypeError(f"check_rule of {f.key}: arrays as parameters; check a kernel that calls it with gradcheck")
    mapped = elementwise(f, [Array(t, 1) for t in given], 1)
    return program(program_of(mapped.reading, f.__name__), True)


def _annotated(f: Func) -> list[Type]:
    known = f.fn.__annotations__
    try:
        return [declare.type_from(known[p]) for p in inspect.signature(f.fn).parameters]
    except (KeyError, TypeError):
        raise TypeError(f"check_rule({f.key}) needs the types of the parameters: check_rule(f, wb.float64, ...)") from None


def _sample(type: Type, n: int, low: float, high: float, rng: np.random.Generator) -> array:
    assert isinstance(type, Array)
    dtype = wide(type.dtype)
    values = rng.uniform(low, high, (n, *dtype.shape))  # type: ignore[attr-defined]
    if dtype.scalar.kind != "f":  # type: ignore[attr-defined]
        values = np.round(values * 4)
    return array(values.astype(dtype.numpy), dtype=dtype)  # type: ignore[attr-defined]


def _check_argument(tape: Tape, f: Func, name: str, x: array, outs: dict[str, array], rtol: float, report: Report) -> None:
    """Threads share nothing: one walk gives a column of the Jacobian at every point, or a row."""
    columns = {j: jvp(tape, {x: _unit(x, j)}) for j in np.ndindex(_components(x))}
    for label, y in outs.items():
        row = Row(f"func {f.key}", None, name if len(outs) == 1 else f"{name} -> {label}")
        for i in np.ndindex(_components(y)):
            space = Workspace()
            _shadow_view(y, space[y.allocation])[...] = _unit(y, i)
            tape._walk(space)
            rows = value_of(x, space)
            for j, column in columns.items():
                _compare_points(row, rows[(slice(None), *j)], column[y][(slice(None), *i)], j, rtol)
        report.rows.append(row)


def _unit(a: array, component: tuple[int, ...]) -> np.ndarray:
    out = np.zeros((*a.shape, *_components(a)))
    out[(slice(None), *component)] = 1
    return out


def _compare_points(row: Row, got: np.ndarray, want: np.ndarray, component: tuple[int, ...], rtol: float) -> None:
    scale = rtol * (1 + max(float(np.max(np.abs(want), initial=0)), float(np.max(np.abs(got), initial=0))))
    for point, (a, b) in enumerate(zip(got, want, strict=True)):
        row.add(float(a), float(b), not abs(a - b) <= scale, (point, *component))


def _wrong_rule(f: Func, report: Report, ins: dict[str, array]) -> GradientError:
    r = report.wrong[0]
    assert r.worst is not None
    point = ", ".join(f"{n}={a._host()[r.worst[0]]}" for n, a in ins.items())
    return GradientError(
        f"the func_grad of {f.key} is wrong for {r.input!r}: at {point} it gives {r.adjoint:.8g},"
        f" the derivative is {r.measured:.8g}.",
        slug="check-rule", why=str(report),
        instead=f"adjoint[{r.input.split(' ')[0]}] += ... with the derivative of what {f.key} returns",
    )  # fmt: skip


