"""The program with a record of what it decides by floats: comparisons, picks, steps and conversions to whole numbers.

Each thread has a number of its own, into which every decision is mixed in order. Two runs with the same numbers have
taken the same branches and turns, rounded to the same integers, and picked the same operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import Function, Stmt, Value, constant, walk
from ..ops import control as c, memory as mem, scalar
from ..ops.row import ROWS
from ..ops.vectors import components
from ..row import Operand, Row
from ..types import Array, Composite, Scalar, int64, is_float, uint64
from .named import named_pass
from .simplify import Rewrite, ValueFacts

NAME = "decisions"  # of the added parameter: uint64, one number for each thread of the grid in row-major order
_COMPARISONS = (scalar.LT, scalar.LE, scalar.GT, scalar.GE, scalar.EQ, scalar.NE)
_PICKS = (scalar.MIN, scalar.MAX)
_SIGNS = (scalar.ABS, scalar.SIGN, scalar.STEP)
_STEPS = (scalar.FLOOR, scalar.CEIL, scalar.TRUNC, scalar.ROUND, scalar.RINT, scalar.FLOORDIV)
_REMAINDERS = (scalar.MOD, scalar.PYMOD)
_MIX = 1_000_003


def decides(stmt: Stmt) -> bool:
    """True for a statement that decides something by the value of a float."""
    if not stmt.args or not is_float(stmt.args[0].type):
        return False
    if stmt.row is scalar.CAST:
        return not is_float(stmt.outs[0].type)
    return stmt.row in (*_COMPARISONS, *_PICKS, *_SIGNS, *_STEPS, *_REMAINDERS, scalar.CLAMP, scalar.FRAC)


def decisions(row: Row, args: Sequence[Operand], out: Operand) -> list[Any]:
    """The decisions of a statement, for IR values or numbers: booleans, whole numbers, and floats that are whole."""
    if row is scalar.CAST or row in _COMPARISONS:
        return [out]
    found: list[Any] = []
    for part in zip(*(_parts(a, len(_parts(args[0], 1))) for a in (*args, out)), strict=True):
        a, b = part[0], part[1]
        if row in _PICKS:
            found.append(ROWS["lt"](a, b))
        elif row is scalar.CLAMP:
            found += [ROWS["lt"](a, b), ROWS["gt"](a, part[2])]
        elif row in _SIGNS:
            found.append(ROWS["lt"](a, constant(a.type, 0.0) if isinstance(a, Value) else np.float64(0)))
        elif row in _STEPS:
            found.append(part[-1])
        else:
            found.append(ROWS["floor"](ROWS["div"](a, b) if row in _REMAINDERS else a))
    return found


def _parts(value: object, many: int) -> list[Any]:
    """The components of a vector or matrix; a scalar as often as there are."""
    if isinstance(value, Value):
        return components(value) if isinstance(value.type, Composite) else [value] * many
    return [*value.ravel()] if isinstance(value, np.ndarray) else [value] * many


@named_pass("decisions")
def with_decisions(function: Function) -> Function:
    """The function with one more parameter, `NAME`; the function itself where it decides nothing."""
    return _Recorded().function(function) if any(map(decides, walk(function.body))) else function


class _Recorded(Rewrite):
    def __init__(self) -> None:
        super().__init__(None)
        self.record = Value(Array(uint64, 1), NAME)

    def function(self, function: Function) -> Function:
        scope = self.begun(function)
        self.builder.region.params.append(self.record)
        with self.builder.open():
            self.cell = c.thread_number(function.rank)
            self.region(function.body, scope)
        return function.with_body(self.builder.region, f"{function.name}_decisions")

    def stmt(self, stmt: Stmt, scope: ValueFacts) -> None:
        super().stmt(stmt, scope)
        if decides(stmt):
            args = [scope.values[a] for a in stmt.args]
            for made in decisions(stmt.row, args, scope.values[stmt.outs[0]]):
                self._mix(made)

    def _mix(self, made: Value) -> None:
        emit = self.builder.emit
        if isinstance(made.type, Scalar) and made.type.kind == "b":
            made = ROWS["where"](made, constant(uint64, 1), constant(uint64, 2))
        elif is_float(made.type):
            made = ROWS["cast"](ROWS["cast"](made, attr=int64), attr=uint64)
        elif made.type != uint64:
            made = ROWS["cast"](made, attr=uint64)
        before = emit(mem.LOAD, self.record, self.cell)
        mixed = ROWS["add"](ROWS["mul"](before, constant(uint64, _MIX)), made)
        emit(mem.STORE, self.record, self.cell, mixed)
