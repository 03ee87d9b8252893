"""The derivative through `normalize` at a zero vector, and through `sqrt` at 0, where what is made of them is smooth.

Where a direction n = v / |v| is multiplied by what vanishes with the length, as in -k |v| n, in the rotation by |v| dt
about n, or in friction that grows from rest, the adjoint of n is 0 at v = 0 and 1 / |v| infinite. Their product has a
limit: the derivative of the adjoint of n by the length (l'Hôpital). It is worked out by tangent rules, statement by
statement, of what the adjoint of n was computed from. So it is for a root r of x, as in r * r, by r.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir import Builder, Region, Stmt, Value, walk
from ..ops import control as c
from ..ops.composite import all_zero
from ..ops.row import ROWS, like, zero
from ..ops.scalar import SQRT
from ..ops.vectors import LENGTH, NORMALIZE
from ..row import Row

LIMITS = (NORMALIZE, SQRT)


def slope_beside_zero(builder: Builder, row: Row, g: Value, y: Value, v: Value, regular: Value) -> tuple[Value, bool]:
    """(the adjoint of v where g is that of y = row(v): `regular`, but its limit where both are 0, is it known)."""
    if row is SQRT:
        slope = _VanishingSlope(builder, _same(y), lambda stmt: False, cheap=True)
    else:
        names = _same(v)
        slope = _VanishingSlope(builder, set(), lambda stmt: _length_of(stmt) in names)
    limit = slope.of(g)
    if row is SQRT:
        limit = limit * 0.5 if limit is not None and slope.known else None
    if limit is not None:
        beside = ROWS["logical_and"](all_zero(y if row is SQRT else LENGTH(v)), all_zero(g))
        regular = ROWS["where"](beside, limit, regular)
    return regular, slope.known or row is SQRT


def _length_of(stmt: Stmt) -> Value | None:
    """The vector whose length a statement computes, also as sqrt(length_sq(v)) or sqrt(dot(v, v)); None for others."""
    stmt = (stmt.row.fused(stmt) if stmt.row.fused is not None else None) or stmt
    return stmt.args[0] if stmt.row is LENGTH else None


class _VanishingSlope:
    """The derivative of values of an adjoint by a variable: one of `names`, or what a statement that `is_it` computes.

    `known`: False if that goes through a loop; if `cheap`, also through an operation that costs more than a product.
    """

    def __init__(self, builder: Builder, names: set[Value], is_it: Callable[[Stmt], bool], cheap: bool = False):
        self.builder, self.names, self.is_it, self.cheap = builder, names, is_it, cheap
        self.known = True
        self.dependent: dict[Value, bool] = {}
        self.made: dict[tuple[Region, Value], Value | None] = {}

    def depends(self, value: Value) -> bool:
        """True if a value is computed from the variable."""
        if value not in self.dependent:
            self.dependent[value] = False  # a loop asks again
            stmt = value.stmt
            self.dependent[value] = value in self.names or (
                stmt is not None and (self.is_it(stmt) or any(self.depends(a) for a in _sources(value, stmt)))
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
        if value in self.names or self.is_it(stmt):
            return like(value, value.type, 1)
        if stmt.row is c.IF:
            return self._branch(value, stmt)
        if stmt.regions or (self.cheap and stmt.row.cost > 1):
            self.known = False
            return None
        ts = [self.of(a) for a in stmt.args]
        if stmt.row.tangent is None or all(t is None for t in ts):
            return None
        return stmt.row.tangent(ts, value, *stmt.args, **stmt.row.extra(stmt.attr))

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
