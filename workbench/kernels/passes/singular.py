"""The derivative through `normalize` at a zero vector, and through `sqrt` at 0, where what is made of them is smooth.

Where a direction n = v / |v| is multiplied by what vanishes with the length, as in -k |v| n, in the rotation by |v| dt
about n, or in friction that grows from rest, the adjoint of n is 0 at v = 0 and 1 / |v| infinite. Their product has a
limit: the derivative of the adjoint of n by the length (l'Hôpital). It is worked out by tangent rules, statement by
statement, of what the adjoint of n was computed from. So it is for a root r of x, as in r * r, by r.

Elsewhere an adjoint of 0 that comes to such a place may hide a slope: it vanishes there together with what the result
was multiplied by. `hidden_slope` tells that from an adjoint that is 0 all around.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from ..ir import Builder, Region, Role, Stmt, Value, root, walk
from ..ops import control as c, memory as mem
from ..ops.composite import all_zero
from ..ops.row import ROWS, like, zero
from ..ops.scalar import ATAN2, CBRT, SQRT
from ..ops.vectors import LENGTH, NORMALIZE
from ..row import Row
from ..types import is_float

LIMITS = (NORMALIZE, SQRT)
NEAREST = 16  # statements that are looked at for a hidden slope


def slope_beside_zero(builder: Builder, row: Row, g: Value, y: Value, v: Value, regular: Value) -> tuple[Value, bool]:
    """(the adjoint of v where g is that of y = row(v): `regular`, but its limit where both are 0, is it known)."""
    slope = _by_size(builder, row, y, v)
    limit = slope.of(g)
    if row is SQRT:
        limit = limit * 0.5 if limit is not None and slope.known else None
    if limit is not None:
        beside = ROWS["logical_and"](all_zero(y if row is SQRT else LENGTH(v)), all_zero(g))
        regular = ROWS["where"](beside, limit, regular)
    return regular, slope.known or row is SQRT


def _by_size(builder: Builder, row: Row, y: Value, v: Value) -> _VanishingSlope:
    if row is SQRT:
        return _VanishingSlope(builder, _same(y), lambda stmt: False, cheap=True)
    names = _same(v)
    return _VanishingSlope(builder, set(), lambda stmt: _length_of(stmt) in names)


def hidden_slope(builder: Builder, row: Row, g: Value, y: Value, v: Value, active: frozenset[str]) -> tuple:
    """(is an adjoint g of y = row(v) that is 0 not so all around, is that sure); (None, True) where it is not 0 so.

    It is not sure where that depends on what later launches make of the result.
    """
    if row is LENGTH:  # it has a bounded slope: times what vanishes that is 0
        return None, True
    by_y = _VanishingSlope(builder, _same(y), lambda stmt: False)
    apart = _by_size(builder, row, y, v) if row in LIMITS else None
    if row is SQRT and apart and (apart.of(g) is None or not apart.known):
        apart = None
    slope = _AnySlope(builder, set() if row is SQRT and apart else by_y.names, apart, active)
    found = [slope.of(g)]
    if row in (CBRT, NORMALIZE) and (first := by_y.of(g)) is not None:  # the cube of a root, twice a direction
        slope.left = NEAREST
        found.append((by_y if row is CBRT else slope).of(first))
    if not any(found):
        return None, True
    hidden = reduce(ROWS["logical_or"], [ROWS["logical_not"](all_zero(t)) for t in found if t is not None])
    moved = None if row in (NORMALIZE, ATAN2) else _AnySlope(builder, set(), None, active, False).of(v)
    if moved is not None:  # else y grows no faster than its arguments, as the root of a sum of squares
        hidden = ROWS["logical_and"](hidden, ROWS["logical_not"](all_zero(moved)))
    return hidden, slope.sure


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
            return self._unit(value, stmt)
        if stmt.row is c.IF:
            return self._branch(value, stmt)
        if stmt.regions or (self.cheap and stmt.row.cost > 1):
            self.known = False
            return None
        ts = [self.of(a) for a in stmt.args]
        if stmt.row.tangent is None or all(t is None for t in ts):
            return None
        return stmt.row.tangent(ts, value, *stmt.args, **stmt.row.extra(stmt.attr))

    def _unit(self, value: Value, stmt: Stmt) -> Value:
        return like(value, value.type, 1)

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


class _AnySlope(_VanishingSlope):
    """The derivative by `names`, by what active arrays and shadows held, and by what has no derivative where it is.

    Each moves by numbers of its own. So does what is more than `NEAREST` away. `apart` finds what does not move.
    `sure`: False if only `shadows` move.
    """

    def __init__(
        self, builder: Builder, names: set[Value], apart: _VanishingSlope | None, active: frozenset[str], shadows=True
    ):
        super().__init__(builder, names, self._moves)
        self.apart, self.active, self.shadows = apart, active, shadows
        self.left, self.sure = NEAREST, False
        self.others = _AnySlope(builder, names, apart, active, False) if shadows else self

    def _moves(self, stmt: Stmt) -> bool:
        if stmt.row is mem.LOAD:
            a = root(stmt.args[0])
            return a.name in self.active if a.companion is None else self.shadows and _is_shadow(stmt)
        return stmt.row.singular is not None and not stmt.row.singular.refused

    def depends(self, value: Value) -> bool:
        apart, stmt = self.apart, value.stmt
        if apart is not None and stmt is not None and (value in apart.names or apart.is_it(stmt)):
            return False
        return super().depends(value)

    def _made(self, value: Value, stmt: Stmt) -> Any:
        self.left -= 1
        if self.left < 0 and is_float(value.type):
            return self._unit(value, stmt)
        if stmt.regions and stmt.row is not c.IF and is_float(value.type):
            return self._of_loop(value, stmt)
        return super()._made(value, stmt)

    def _of_loop(self, value: Value, stmt: Stmt) -> Any:
        """Of a result of a loop: it moves if something does that is read for it from outside."""
        read = [a for a in _read_for(value, stmt) if is_float(a.type) and self.others.depends(a)]
        moved = [ROWS["logical_not"](all_zero(t)) for a in read if (t := self.others.of(a)) is not None]
        if read and not moved:
            return None
        sure, unit = self.sure or bool(moved), self._unit(value, stmt)
        self.sure = sure
        if not moved:
            return unit
        moves = reduce(ROWS["logical_or"], moved)
        if stmt.role == "adjoint" and not any(_is_shadow(s) for r in stmt.regions for s in walk(r)):
            came = [ROWS["logical_not"](all_zero(a)) for a in stmt.args if is_float(a.type)]
            moves = ROWS["logical_and"](moves, reduce(ROWS["logical_or"], came))
        return ROWS["where"](moves, unit, zero(value))

    def _unit(self, value: Value, stmt: Stmt) -> Any:
        k = 1.0 + len(self.made)
        unit = like(value, value.type, [1 / (k + 0.37 * j) for j in range(getattr(value.type, "size", 1))])
        if value not in self.names and stmt.row.singular is not None:
            unit = ROWS["where"](stmt.row.singular.met(None, value, *stmt.args), unit, zero(value))
        self.sure |= self.others.depends(value)
        return unit


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


def _is_shadow(stmt: Stmt) -> bool:
    """True for a load of adjoints."""
    a = root(stmt.args[0]) if stmt.row is mem.LOAD else None
    return a is not None and a.companion is not None and a.companion.role is Role.SHADOW


def _read_for(value: Value, loop: Stmt) -> list[Value]:
    """The values from outside of a loop from which a result of it is computed."""
    body, fixed, skip = loop.regions[-1], int(loop.row is c.FOR), int(loop.attr.breaks)
    inside = {o for r in loop.regions for s in walk(r) for o in (*s.outs, *(p for q in s.regions for p in q.params))}
    todo, seen, found = [body.results[skip + loop.outs.index(value)]], set(), []
    while todo:
        a = todo.pop()
        if a in seen:
            continue
        seen.add(a)
        if a in body.params[fixed:]:
            todo.append(body.results[skip + body.params.index(a) - fixed])
        elif a in inside and a.stmt is not None:
            todo += _sources(a, a.stmt)
        elif a not in inside:
            found.append(a)
    return found
