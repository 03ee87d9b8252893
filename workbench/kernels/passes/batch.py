"""The batched kernel, IR -> IR: one more axis of the grid, in front, along which chosen arrays have a row per index.

`x[i, j]` of a batched array becomes `x[b, i, j]`, `tid()` and the shapes that the kernel asks for are those of before.
The result is an ordinary kernel, to be differentiated, tested and emitted like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ...errors import KernelError
from ..ir import Function, Region, Stmt, Value, type_as
from ..ops import control as c, memory as mem
from ..types import Array, int32
from .named import named_pass
from .prune import prune
from .simplify import Rewrite, ValueFacts

MOST_AXES = 4  # of a grid


@named_pass("batch")
def batched(function: Function, names: frozenset[str]) -> Function:
    """`function` over a grid with one axis more, where the array parameters in `names` have one axis more."""
    made = _Batched(p for p in function.params if p.name in names).function(function)
    return prune(replace(made, rank=function.rank + 1))


class _Batched(Rewrite):
    """`rows`: the arrays of the original that have one axis more."""

    def __init__(self, rows: Iterable[Value]):
        super().__init__(None)
        self.rows = set(rows)

    def begun(self, function: Function) -> ValueFacts:
        scope = super().begun(function)
        for p in self.rows:
            scope.values[p].type = replace(type_as(p, Array), ndim=type_as(p, Array).ndim + 1)
        return scope

    def stmt(self, stmt: Stmt, scope: ValueFacts) -> None:
        made = stmt
        if stmt.row is c.TID or stmt.row is c.DIM:
            made = replace(stmt, attr=replace(stmt.attr, axis=stmt.attr.axis + 1))
        elif stmt.row is c.CALL and stmt.attr is not None:
            made = replace(stmt, attr=self.custom(stmt, stmt.attr))
        elif not self.rows.isdisjoint(stmt.args):
            made = self.of_rows(stmt, scope)
        super().stmt(made, scope)
        scope.values.update((old, scope.values[new]) for old, new in zip(stmt.outs, made.outs, strict=True))

    def of_rows(self, stmt: Stmt, scope: ValueFacts) -> Stmt:
        """The statement in terms of the original, but for a thread index more."""
        if stmt.row is mem.SHAPE:
            return replace(stmt, attr=stmt.attr + 1)
        if stmt.row is mem.COMPONENTS:
            self.rows.update(stmt.outs)
            return replace(stmt, outs=(Value(mem.COMPONENTS.type(scope.values[stmt.args[0]].type)),))
        if stmt.row is mem.LOAD or stmt.row.writes:
            row = Value(int32)
            super().stmt(Stmt(c.TID, (), (row,), attr=c.Tid(0)), scope)
            return replace(stmt, args=(stmt.args[0], row, *stmt.args[1:]))
        text = f"`{stmt.row.name}` takes an array as a whole, so it cannot run for many rows at once."
        raise KernelError(text, slug="vmap", where=stmt.where, instead="a loop over the rows")

    def custom(self, stmt: Stmt, attr: Any) -> Any:
        """The adjoint and the replay of a func, whose parameters are its arguments, then shadows of its arrays."""
        given = [*stmt.args, *(stmt.args[k] for k in attr.arrays)]

        def one(region: Region) -> Region:
            rows = (p for p, a in zip(region.params, given, strict=False) if a in self.rows)
            return _Batched(rows).function(Function("", region)).body

        return replace(attr, **{n: one(r) for n in ("grad", "replay") if (r := getattr(attr, n)) is not None})
