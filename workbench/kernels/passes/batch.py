"""The batched kernel, IR -> IR: one more axis of the grid, in front, along which chosen arrays have a row per index.

`x[i, j]` of a batched array becomes `x[b, i, j]`, `tid()` and the shapes that the kernel asks for are those of before.
The result is an ordinary kernel, to be differentiated, tested and emitted like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...errors import KernelError
from ..ir import Function, Stmt, Value
from ..ops import control as c, memory as mem
from ..types import Array, Type, int32
from . import simplify
from .named import named_pass
from .retyped import Retyped

MOST_AXES = 4  # of a grid


@named_pass("batch")
def batched(function: Function, names: frozenset[str]) -> Function:
    """`function` over a grid with one axis more, where the array parameters in `names` have one axis more."""
    made = _Batched({p for p in function.params if p.name in names}).function(function, function.rank + 1)
    return simplify.primal(made)


class _Batched(Retyped):
    """`rows`: the arrays of the original that have one axis more."""

    def __init__(self, rows: set[Value]):
        super().__init__()
        self.rows = rows

    def type_of(self, value: Value) -> Type:
        type = value.type
        return Array(type.dtype, type.ndim + 1) if isinstance(type, Array) and value in self.rows else type

    def bind(self, params: Sequence[Value], args: Sequence[Value]) -> None:
        self.rows |= {p for p, a in zip(params, args, strict=False) if a in self.rows}

    def plain(self, stmt: Stmt, args: list[Value], attr: Any) -> Sequence[Value]:
        types = [o.type for o in stmt.outs]
        if stmt.row is c.TID or stmt.row is c.DIM:
            attr = replace(attr, axis=attr.axis + 1)
        elif self.rows.isdisjoint(stmt.args):
            pass
        elif stmt.row is mem.SHAPE:
            attr += 1
        elif stmt.row is mem.COMPONENTS:
            self.rows.update(stmt.outs)
            types = [mem.COMPONENTS.type(args[0].type)]
        elif stmt.row is mem.LOAD or stmt.row.writes:
            args.insert(1, self.builder.append(c.TID, (), (int32,), attr=c.Tid(0)).outs[0])
        else:
            text = f"`{stmt.row.name}` takes an array as a whole, so it cannot run for many rows at once."
            raise KernelError(text, slug="vmap", where=stmt.where, instead="a loop over the rows")
        return self.builder.append(stmt.row, args, types, (), attr).outs
