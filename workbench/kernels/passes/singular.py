"""The derivative through `normalize` at a zero vector, where what is made of it may be smooth although it is not.

Where a direction n = v / |v| is multiplied by what vanishes with the length, as in -k |v| n, in the rotation by |v| dt
about n, or in friction that grows from rest, the adjoint of n is 0 at v = 0 and 1 / |v| infinite. Their product has a
limit: the derivative of the adjoint of n by the length (l'Hôpital). It is worked out by tangent rules, statement by
statement, of what the adjoint of n was computed from.
"""

from __future__ import annotations

from typing import Any

from ..ir import Builder, Region, Stmt, Value, walk
from ..ops import control as c
from ..ops.composite import all_zero
from ..ops.row import ROWS, like, zero
from ..ops.vectors import LENGTH


def slope_beside_zero(builder: Builder, g: Value, v: Value, regular: Value) -> tuple[Value, bool]:
    """(the adjoint of v where g is that of normalize(v): `regular`, but its limit where both are 0, is it known)."""
    slope = _Slope(builder, v)
    limit = slope.of(g)
    if limit is not None:
        beside = ROWS["logical_and"](all_zero(LENGTH(v)), all_zero(g))
        regular = ROWS["where"](beside, limit, regular)
    return regular, slope.known


class _Slope:
    """The derivative of values of an adjoint by the length of v, at v = 0. `known`: False if it goes through a loop."""

    def __init__(self, builder: Builder, v: Value):
        self.builder, self.known = builder, True
        self.names = _same(v)
        self.dependent: dict[Value, bool] = {}
        self.made: dict[tuple[Region, Value], Value | None] = {}

    def is_length(self, stmt: Stmt) -> bool:
        """True for length(v), also as sqrt(length_sq(v)) or sqrt(dot(v, v))."""
        stmt = (stmt.row.fused(stmt) if stmt.row.fused is not None else None) or stmt
        return stmt.row is LENGTH and stmt.args[0] in self.names

    def depends(self, value: Value) -> bool:
        """True if a value is computed from the length of v."""
        if value not in self.dependent:
            self.dependent[value] = False  # a loop asks again
            stmt = value.stmt
            self.dependent[value] = stmt is not None and (
                self.is_length(stmt) or any(self.depends(a) for a in _sources(value, stmt))
            )
        return self.dependent[value]

    def of(self, value: Value) -> Value | None:
        """The derivative of a value, None for 0; written behind what there is of the open region."""
        if value.stmt is None or not self.depends(value):
            return None
        key = self.builder.region, value
        if key not in self.made:
            self.made[key] = self._made(value, value.stmt)
        return self.made[key]

    def _made(self, value: Value, stmt: Stmt) -> Any:
        if self.is_length(stmt):
            return like(value, value.type, 1)
        if stmt.row is c.IF:
            return self._branch(value, stmt)
        if stmt.regions:
            self.known = False
            return None
        ts = [self.of(a) for a in stmt.args]
        if stmt.row.tangent is None or all(t is None for t in ts):
            return None
        extra = {"attr": stmt.attr} if stmt.row.typed_by_attr else {}
        return stmt.row.tangent(ts, value, *stmt.args, **extra)

    def _branch(self, value: Value, stmt: Stmt) -> Value | None:
        """Of a result of a branch, as one more result of it."""
        k, found = stmt.outs.index(value), []
        for region in stmt.regions:
            with self.builder.inside(region):
                found.append(self.of(region.results[k]))
        if all(t is None for t in found):
            return None
        for region, t in zip(stmt.regions, found, strict=True):
            with self.builder.inside(region):
                region.results = (*region.results, zero(value) if t is None else t)
        out = Value(value.type, "", stmt.where, stmt)
        stmt.outs = (*stmt.outs, out)
        return out


def _same(v: Value) -> set[Value]:
    """The value, and those that a branch hands out as it."""
    found, todo = set(), [v]
    while todo:
        value = todo.pop()
        found.add(value)
        stmt = value.stmt
        if stmt is not None and stmt.row is c.IF:
            todo += [r.results[stmt.outs.index(value)] for r in stmt.regions]
    return found


def _sources(value: Value, stmt: Stmt) -> list[Value]:
    """The values that a value is computed from; of a loop all that it reads."""
    if stmt.row is c.IF:
        return [r.results[stmt.outs.index(value)] for r in stmt.regions]
    return [*stmt.args, *(a for r in stmt.regions for s in walk(r) for a in s.args)]
