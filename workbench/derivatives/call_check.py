"""Checks a func_grad at a call of it in a launch: at that call's arguments, with nothing around it.

The call becomes a program of its own, one thread per sample, in float64; `func_grad_check` compares its adjoint with
forward mode of its body, to rounding. A factor shows as that factor, whatever the kernel does with the result.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.array import array
from ..errors import Where
from ..kernels import ir
from ..kernels.ops import control
from ..kernels.ops.memory import LOAD, STORE
from ..kernels.program import Leaf, Program
from ..kernels.types import Array, Composite, Scalar
from ..tapes.events import Event
from ..tapes.private_copies import program
from ..tapes.rerun import Enough, run_primal
from .func_grad_check import Sample, compared, zeros_like_type

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


def _place(grad: object) -> Where | None:
    code = getattr(grad, "__code__", None)
    if code is None:
        return None
    lines = range(code.co_firstlineno, code.co_firstlineno + 3)  # decorators come first
    texts = {n: linecache.getline(code.co_filename, n).rstrip("\n") for n in lines}
    line = next((n for n, text in texts.items() if text.lstrip().startswith("def ")), code.co_firstlineno)
    return Where(code.co_filename, line, text=texts[line], function=code.co_name)


def _compared(call: ir.Stmt, taken: list[tuple]) -> WrongCall | None:
    made = program(_alone(call), True)
    count = len(call.args)
    flat = [
        array(np.array([t[k] for t in taken]).astype(p.type.dtype.numpy), dtype=p.type.dtype)  # type: ignore[attr-defined]
        for k, p in enumerate(made.function.params[:count])
    ]
    flat += [zeros_like_type(p.type, len(taken)) for p in made.function.params[count:]]
    samples = list(compared(made, flat, count))
    size = max((abs(s.expected) for s in samples), default=0.0)
    off = [s for s in samples if abs(s.given - s.expected) > RTOL * (size + abs(s.given))]
    if not off:
        return None
    worst = max(off, key=lambda s: abs(s.given - s.expected))
    same = [s for s in samples if s.argument == worst.argument]
    f = call.attr.func
    numbers = worst.argument, worst.point, worst.given, worst.expected
    return WrongCall(f.key, call.where, _place(f.grad) or call.where, *numbers, _ratio(same))


def _ratio(samples: list[Sample]) -> float | None:
    """The quotient given / expected, if it is the same at every sample; None otherwise."""
    pairs = [(s.given, s.expected) for s in samples if s.expected or s.given]
    if not all(expected for _, expected in pairs):
        return None
    ratios = [given / expected for given, expected in pairs]
    return ratios[0] if np.ptp(ratios) <= RTOL * max(1.0, abs(ratios[0])) else None


def _alone(call: ir.Stmt) -> Program:
    """A program that does this call once per thread."""
    f = call.attr.func
    known = list(inspect.signature(f.fn).parameters)
    names = known if len(known) == len(call.args) else [f"argument {k}" for k in range(len(call.args))]
    params = [ir.Value(Array(a.type, 1), n) for n, a in zip(names, call.args, strict=True)]
    params += [ir.Value(Array(o.type, 1), f"result {k}") for k, o in enumerate(call.outs)]
    builder = ir.Builder(ir.Region(params))
    with builder.open(), builder.at(call.where):
        i = builder.emit(control.TID, attr=control.Tid(0))
        loaded = [builder.emit(LOAD, p, i) for p in params[: len(names)]]
        made = builder.append(control.CALL, loaded, [o.type for o in call.outs], call.regions, call.attr)
        for p, value in zip(params[len(names) :], made.outs, strict=True):
            builder.emit(STORE, p, i, value)
    function = ir.Function(f.__name__, builder.region, 1, call.where)
    leaves = tuple(Leaf(p.name, p.type, k, ()) for k, p in enumerate(params))
    return Program(f.__name__, function, tuple((p.name, p.type) for p in params), leaves)
