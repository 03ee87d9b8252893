"""The check of a func_grad: its adjoint against forward mode of the func itself, to rounding, without differences.

`check_rule` takes random points, `wrong_call` the arguments of the calls in a launch, each alone in a program of one
thread per sample: a factor shows as that factor, whatever the kernel does with the result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..arrays import allocation
from ..arrays.array import array, on_device, read_values
from ..arrays.creation import zeros
from ..arrays.workspace import Workspace, is_float_memory
from ..errors import GradientError, Where
from ..kernels import ir
from ..kernels.ops import control
from ..kernels.passes.to_float64 import wide
from ..kernels.program import Program, program as program_of
from ..kernels.reading import declare
from ..kernels.reading.declare import Func
from ..kernels.reading.elementwise import elementwise
from ..kernels.reading.source import source
from ..kernels.types import Array, Composite, Scalar, Type
from ..tapes.custom_op import CustomOp, listed
from ..tapes.events import Event
from ..tapes.jvp import components, jvp, shadow_of, value_of
from ..tapes.private_copies import Launch, in_float64
from ..tapes.rerun import Enough, run_primal
from ..tapes.reverse import walk
from ..tapes.tape import Tape
from .differences import RIGHT, WRONG, verdict
from .report import GradcheckRow, Report, refuse_vacuous

STEP, CLOSE = 1e-5, 1e-6  # as of `gradcheck`: the first step, relative to a number; the error of a right derivative


def check_rule(
    f: Func | CustomOp,
    *types: object,
    samples: int = 64,
    low: float = 0.25,
    high: float = 1.75,
    rtol: float = 1e-9,
    raise_exception: bool = True,
) -> Report:
    """Compare the func_grad of `f` with forward mode of `f` itself: every result by every argument, at random points.

    types    the types of its parameters; by default those annotated. Numbers, vectors and matrices, no arrays.
    low, high  arguments (their components) are drawn from here: choose what `f` is made for.
    Computed in float64, with no differences and no step: the two agree to rounding or the func_grad is wrong.
    Returns a `Report`; raises GradientError [check-rule] that names argument, result and the point.

    Of a custom op `types` are arguments instead, arrays of NumPy or ours, at which up to `samples` elements of each are
    compared with differences of its function, in float64.
    """
    if isinstance(f, CustomOp):
        return check_op(f, types, samples, raise_exception)
    if not isinstance(f, Func) or f.grad is None:
        raise TypeError(f"check_rule takes a func with a func_grad, not {f!r}")
    made = _elementwise(f, types)
    rng = np.random.default_rng(0)
    report = Report()
    with allocation.LOCK, allocation.unrecorded():
        flat = [_sample(p.type, samples, low, high, rng) for p in made.function.params]
        count = len(inspect.signature(f.fn).parameters)
        rows: dict[tuple[str, str], GradcheckRow] = {}
        points = list(compared(made, flat, count))
    several = len({s.result for s in points}) > 1
    for s in points:
        key = s.argument, s.result
        if key not in rows:
            label = f"{s.argument} -> {s.result}" if several else s.argument
            rows[key] = GradcheckRow(f"func {f.key}", None, label)
        rows[key].add(s.given, s.expected, not abs(s.given - s.expected) <= rtol * s.size, s.index, s.point)
    report.rows += rows.values()
    refuse_vacuous(report)
    if raise_exception and report.wrong:
        r, why = report.wrong[0], str(report)
        text = f"the func_grad of {f.key} is wrong for {r.input!r}: at {r.point} it gives {r.adjoint:.8g},"
        instead = f"adjoint[{r.input.split(' ')[0]}] += ... with the derivative of what {f.key} returns"
        raise GradientError(f"{text} the derivative is {r.measured:.8g}.", slug="check-rule", why=why, instead=instead)
    return report


def _elementwise(f: Func, types: Sequence[Any]) -> Program:
    """A float64 program that calls `f` once per thread."""
    given = [declare.type_from(t) for t in types] or _annotated(f)
    if any(isinstance(t, Array) for t in given):
        raise TypeError(f"check_rule of {f.key}: arrays as parameters; check a kernel that calls it with gradcheck")
    mapped = elementwise(f, [Array(t, 1) for t in given], 1)
    return in_float64(program_of(mapped.reading, f.__name__))


def _annotated(f: Func) -> list[Type]:
    known = f.fn.__annotations__
    try:
        return [declare.type_from(known[p]) for p in inspect.signature(f.fn).parameters]
    except (KeyError, TypeError):
        raise TypeError(f"check_rule({f.key}) needs the types of the parameters: check_rule(f, wb.float64)") from None


def _sample(type: Type, n: int, low: float, high: float, rng: np.random.Generator) -> array:
    assert isinstance(type, Array)
    dtype = wide(type.dtype)
    values = rng.uniform(low, high, (n, *dtype.shape))  # type: ignore[attr-defined]
    if dtype.scalar.kind != "f":  # type: ignore[attr-defined]
        values = np.round(values * 4)
    return array(values.astype(dtype.numpy), dtype=dtype)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Sample:
    """One entry of a Jacobian at one point: of `result` by `argument`; `index` is (thread, component)."""

    argument: str
    result: str
    index: tuple[int, ...]
    given: float
    expected: float
    size: float  # 1 + the largest entry of this kind at any point
    point: str


def compared(made: Program, flat: list[array], count: int) -> Iterator[Sample]:
    """Yields every entry of the Jacobian of each thread, by adjoint and by forward mode. Needs LOCK, unrecorded.

    The first `count` of `flat` are arguments, the others results; threads share nothing, so that one walk gives a
    column, or a row, at every point. Entries that forward mode cannot give as a number are left out.
    """
    names = [p.name for p in made.function.params]
    ins = [(n, a) for n, a in zip(names[:count], flat[:count], strict=True) if is_float_memory(a)]
    outs = [(n, a) for n, a in zip(names[count:], flat[count:], strict=True) if is_float_memory(a)]
    for _, a in ins:
        a.requires_grad = True
    tape = Tape(keep="all")
    with tape:
        Launch(made, (flat[0].shape[0],), flat).run(True)
    shown = [(n, read_values(a).copy()) for n, a in zip(names[:count], flat[:count], strict=True)]
    points = [
        ", ".join(f"{n}={v[k]:.6g}" if np.ndim(v[k]) == 0 else f"{n}={v[k]}" for n, v in shown)
        for k in range(flat[0].shape[0])
    ]
    for name, x in ins:
        columns = {j: jvp(tape, {x: _unit(x, j)}) for j in np.ndindex(components(x))}
        for label, y in outs:
            for i in np.ndindex(components(y)):
                space = Workspace()
                shadow_of(y, space)[...] = on_device(y, _unit(y, i))
                walk(tape, space)
                rows = value_of(x, space)
                for j, column in columns.items():
                    given, expected = rows[(slice(None), *j)], column[y][(slice(None), *i)]
                    fine = np.isfinite(expected)
                    size = 1 + max(float(np.max(np.abs(v[fine]), initial=0)) for v in (expected, np.nan_to_num(given)))
                    for k in np.flatnonzero(fine):
                        index = (int(k), *j)
                        yield Sample(name, label, index, float(given[k]), float(expected[k]), size, points[k])


def _unit(a: array, component: tuple[int, ...]) -> np.ndarray:
    out = np.zeros((*a.shape, *components(a)))
    out[(slice(None), *component)] = 1
    return out


SAMPLES = 64  # calls of one func that are looked at
RTOL = 1e-6


@dataclass(frozen=True)
class WrongCall:
    """One call whose func_grad is not the derivative of its func, with the value given at one point and the right one.

    where   the call. `rule`: the func_grad.
    ratio   given by expected where that is the same at every sample; None otherwise.
    """

    func: str
    where: Where | None
    rule: Where | None
    argument: str
    point: str
    given: float
    expected: float
    ratio: float | None

    @property
    def sentence(self) -> str:
        times = "" if self.ratio is None else f" given is {self.ratio:.3f} times the exact;"
        return (
            f"the func_grad of {self.func!r} is wrong for {self.argument!r}:{times} at {self.point} it gives"
            f" {self.given:.8g}, the derivative is {self.expected:.8g}."
        )

    @property
    def fix(self) -> str:
        return f"adjoint[{self.argument}] += ..., with the derivative of what {self.func} returns"


def wrong_call(event: Event) -> WrongCall | None:
    """The first call of a launch with a wrong func_grad, on the memory that the launch found; None if none is known.

    Calls that take arrays are not looked at, nor launches too large for the interpreter.
    """
    function = event.command.plan.forward.function
    rules = filter(has_rule, ir.walk(function.body))
    calls = [s for s in rules if all(isinstance(v.type, Scalar | Composite) for v in (*s.args, *s.outs))]
    for call, taken in _arguments(event, calls).items():
        if taken and (found := _compared(call, taken)) is not None:
            return found
    return None


def has_rule(stmt: ir.Stmt) -> bool:
    """True for a call of a func with a func_grad."""
    return stmt.row is control.CALL and stmt.attr.grad is not None


def _arguments(event: Event, calls: Sequence[ir.Stmt]) -> dict[ir.Stmt, list[tuple]]:
    """The arguments of each call as the interpreter sees them: at most SAMPLES per call, all finite."""
    found: dict[ir.Stmt, list[tuple]] = {call: [] for call in calls}

    def look(_: object, stmt: ir.Stmt, values: Any) -> None:
        if (taken := found.get(stmt)) is not None and len(taken) < SAMPLES:
            given = tuple(np.array(values[a]) for a in stmt.args)
            if all(np.isfinite(g).all() for g in given):
                taken.append(given)
            if all(len(t) == SAMPLES for t in found.values()):
                raise Enough

    if calls:
        run_primal(event, look)
    return found


def _compared(call: ir.Stmt, taken: list[tuple]) -> WrongCall | None:
    f, count = call.attr.func, len(call.args)
    made = _elementwise(f, [a.type for a in call.args])
    flat = [
        array(np.array([t[k] for t in taken]).astype(p.type.dtype.numpy), dtype=p.type.dtype)  # type: ignore[attr-defined]
        for k, p in enumerate(made.function.params[:count])
    ]
    flat += [zeros(len(taken), dtype=p.type.dtype) for p in made.function.params[count:]]  # type: ignore[attr-defined]
    samples = list(compared(made, flat, count))
    size = max((abs(s.expected) for s in samples), default=0.0)
    off = [s for s in samples if abs(s.given - s.expected) > RTOL * (size + abs(s.given))]
    if not off:
        return None
    worst = max(off, key=lambda s: abs(s.given - s.expected))
    same = [s for s in samples if s.argument == worst.argument]
    numbers, rule = (worst.argument, worst.point, worst.given, worst.expected), source(f.grad)
    return WrongCall(f.key, call.where, rule.where(rule.tree), *numbers, _ratio(same))


def _ratio(samples: list[Sample]) -> float | None:
    """The quotient given / expected, if it is the same at every sample; None otherwise."""
    pairs = [(s.given, s.expected) for s in samples if s.expected or s.given]
    if not all(expected for _, expected in pairs):
        return None
    ratios = [given / expected for given, expected in pairs]
    return ratios[0] if np.ptp(ratios) <= RTOL * max(1.0, abs(ratios[0])) else None


# ---- the check of a custom op: its rules beside differences of its forward function


def check_op(op: CustomOp, args: Sequence[object], samples: int, raise_exception: bool) -> Report:
    """`check_rule` of a custom op at these arguments: `samples` elements of each float array, in float64."""
    if op.pull is None:
        raise TypeError(f"check_rule takes an op with a vjp: @{op.__name__}.vjp above its rule")
    rng, report = np.random.default_rng(0), Report()
    with allocation.LOCK, allocation.unrecorded():
        given: list[Any] = [np.array(read_values(a)) if isinstance(a, array) else a for a in args]
        given = [a.astype(np.float64) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in given]
        arrays = [k for k, a in enumerate(given) if isinstance(a, np.ndarray)]
        results = _results(op, given)
        seeds = [rng.uniform(0.5, 1.5, y.shape) if y.dtype.kind == "f" else None for y in results]
        wider = [wide(a.dtype) if isinstance(a, array) else None for a in args]
        push = op.push_rule([*wider, *[None] * len(results), *[wider[k] for k in arrays]])
        noise = 8e-15 * _seeded([None if u is None else np.abs(u) for u in seeds], [np.abs(y) for y in results])
        for k, g in zip(arrays, listed(op.pull(*_copies([*given, *results, *seeds]))), strict=True):
            if (x := given[k]).dtype.kind != "f":
                continue
            g = np.zeros(x.shape) if g is None else np.asarray(g, np.float64)
            label = f"custom op {op.__name__}"
            rows = [GradcheckRow(label, None, f"argument {k}"), GradcheckRow(label, None, f"argument {k}, by the jvp")]
            for i in rng.permutation(x.size)[:samples]:
                index = tuple(map(int, np.unravel_index(i, x.shape)))

                @cache  # both rules ask for the same
                def change(by: float, k: int = k, index: tuple[int, ...] = index) -> float:
                    values = _copies(given)
                    values[k][index] += by
                    return _seeded(seeds, [now - y for now, y in zip(_results(op, values), results, strict=True)])

                step = STEP * max(1.0, abs(float(x[index])))
                _compare(rows[0], float(g[index]), index, change, step, noise)
                if push is not None:
                    tangents = [np.zeros(np.shape(given[j])) for j in arrays]
                    tangents[arrays.index(k)][index] = 1.0
                    got = _seeded(seeds, listed(push(*_copies([*given, *results]), *tangents)))
                    _compare(rows[1], got, index, change, step, noise)
            report.rows += rows[: 1 if push is None else 2]
    refuse_vacuous(report)
    if raise_exception and report.wrong:
        r = report.wrong[0]
        text = f"the rule of {op.__name__} is wrong for {r.input} at {r.worst}: {r.adjoint:.8g}, not {r.measured:.8g}."
        raise GradientError(text, slug="check-rule", why=str(report), instead="the derivative of what it returns")
    return report


def _compare(
    row: GradcheckRow, got: float, index: tuple[int, ...], change: Callable[[float], float], step: float, noise: float
) -> None:
    """Enter in a row what differences say of a derivative."""
    said, slope, _ = verdict(change, got, step, noise, CLOSE)
    if said in (RIGHT, WRONG):
        row.add(got, slope, said == WRONG, index)
    else:
        row.skipped += 1


def _seeded(seeds: Sequence[Any], values: Sequence[Any]) -> float:
    return sum(float(np.sum(u * v)) for u, v in zip(seeds, values, strict=True) if u is not None and v is not None)


def _results(op: CustomOp, given: Sequence[Any]) -> list[np.ndarray]:
    return [np.atleast_1d(y) for y in listed(op.forward(*_copies(given)))]


def _copies(values: Sequence[Any]) -> list[Any]:
    return [v.copy() if isinstance(v, np.ndarray) else v for v in values]
