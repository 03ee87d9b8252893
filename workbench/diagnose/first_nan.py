"""The origin of the first NaN or infinity of a launch, or of its adjoint: statement, thread and operands.

One idea: the first number that is not finite and reaches memory is followed back through its operands, to a statement
that was given finite numbers only. What a `where` or a guard threw away is thereby left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..arrays.array import array
from ..arrays.workspace import Workspace
from ..errors import Where
from ..kernels import ir
from ..kernels.interpreter import run
from ..kernels.ops import Row, control, memory, scalar
from ..kernels.types import Array
from ..tapes.events import Event
from ..tapes.rerun import Enough, is_number, run_adjoint, run_primal
from ..tapes.tape import Tape

LARGE = 1e30  # an operand like this, and infinity: an overflow
Threads = list[tuple[int, ...]]


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
        todo = _direct(value, self.pushes)
        while todo:
            v = todo.pop(0)
            if v not in self.inits:
                found.append(v)
            elif v not in passed:
                passed.add(v)
                todo += self.inits[v]
        return found


def _direct(value: ir.Value, pushes: dict[ir.Value, list[ir.Value]]) -> list[ir.Value]:
    stmt = value.stmt
    if stmt is None:
        return []
    if stmt.row is control.POP:
        return list(pushes.get(stmt.args[0], ()))
    return [*stmt.args, *(v for r in stmt.regions for v in r.results)]


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


def first_not_finite(tape: Tape, event: Event, cells: Threads) -> Birth | None:
    """The `Birth` of the first non-finite number of a launch, on memory as the launch found it; None if not found.

    `cells` are some that are not finite: the threads beside them are tried where the launch is too large to be run as
    a whole.
    """
    function = event.command.plan.forward.function
    targets = frozenset(p.name for p in function.arrays)
    return _first_birth(tape, event, cells, function, targets, partial(run_primal, event))


def first_not_finite_adjoint(tape: Tape, event: Event, space: Workspace, cells: Threads) -> Birth | None:
    """The `Birth` in the adjoint of a launch, with the shadows as they were before it ran; None if not found."""
    if event.reverse is None:
        return None
    function = event.reverse.reverse.function
    names = {p.name for p in event.command.program.function.params}
    targets = frozenset(p.name for p in function.arrays if p.name not in names)
    return _first_birth(tape, event, cells, function, targets, partial(run_adjoint, event, space))


def _first_birth(
    tape: Tape, event: Event, cells: Threads, function: ir.Function, targets: frozenset[str], again: Callable[..., bool]
) -> Birth | None:
    for threads in (None, _beside(event, cells)):
        births = _Births(function, targets, _called(tape, event, function))
        again(births.trace, threads)
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
