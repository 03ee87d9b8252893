"""The derivative through `normalize` at a zero vector, and through `sqrt` at 0, where what is made of them is smooth.

Where a direction n = v / |v| is multiplied by what vanishes with the length, as in -k |v| n, in the rotation by |v| dt
about n, or in friction that grows from rest, the adjoint of n is 0 at v = 0 and 1 / |v| infinite. Their product has a
limit: the derivative of the adjoint of n by the length (l'Hôpital). It is worked out by tangent rules, statement by
statement, of what the adjoint of n was computed from. So it is for a root r of x, as in r * r, by r.

Elsewhere an adjoint of 0 that comes to such a place may hide a slope: it vanishes there together with what the result
was multiplied by. `hidden_slopes` tells that from an adjoint that is 0 all around; `LoopSlopes` does from turn to turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

from ..ir import Builder, Region, Role, Stmt, Value, root, walk
from ..ops import control as c, memory as mem
from ..ops.composite import all_zero
from ..ops.row import ROWS, like, zero
from ..ops.scalar import ATAN2, CBRT, JUMPING, POW, SQRT
from ..ops.vectors import LENGTH, NORMALIZE, components
from ..row import Row
from ..types import is_float

LIMITS = (NORMALIZE, SQRT)
NEAREST = 16  # statements that are looked at for a hidden slope
FURTHER = 256  # for the slope of a slope


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


def hidden_slopes(turns: LoopSlopes, row: Row, g: Value, y: Value, args: Sequence[Value]) -> tuple[Any, Any]:
    """Tests of an adjoint g of y = row(*args) that is 0: True if it surely is not so all around, and if it is not where
    later launches multiplied; None in place of a test that would be False.
    """
    if row in (LENGTH, JUMPING):  # it has a bounded slope: times what vanishes that is 0
        return None, None
    found, sure, turned = _hidden(turns, row, g, y, args, True)
    if turned:
        return _hidden(turns, row, g, y, args, False)[0], found
    return (found, None) if sure else (None, found)


def _hidden(
    turns: LoopSlopes, row: Row, g: Value, y: Value, args: Sequence[Value], shadows: bool
) -> tuple[Any, bool, bool]:
    """(the test that an adjoint moves, True if it does without shadows, True if a loop carries it)."""
    v, *rest = args
    by_y = _VanishingSlope(turns.builder, _same(y), lambda stmt: False)
    apart = _by_size(turns.builder, row, y, v) if row in LIMITS else None
    if row is SQRT and apart and (apart.of(g) is None or not apart.known):
        apart = None
    slope = _AnySlope(turns, set() if row is SQRT and apart else by_y.names, apart, shadows)
    found = [slope.of(g)]
    if row is NORMALIZE and apart:
        found += _by_direction(turns, y, g, slope, apart)
    elif row in (CBRT, POW) or (row is SQRT and _through_another(turns, g, y)):
        found += _by_power(row, rest, g, slope if slope.turned else by_y)
    if not any(found):
        return None, True, slope.turned
    hidden = reduce(ROWS["logical_or"], [ROWS["logical_not"](all_zero(t)) for t in found if t is not None])
    moved = None if row in (NORMALIZE, ATAN2) else _AnySlope(turns, set(), None, False).of(v)
    if moved is not None:  # else y grows no faster than its arguments, as the root of a sum of squares
        hidden = ROWS["logical_and"](hidden, ROWS["logical_not"](all_zero(moved)))
    return hidden, slope.sure, slope.turned


def _through_another(turns: LoopSlopes, g: Value, y: Value) -> bool:
    """True if an adjoint g of y comes through another singular function: g of a root of whose root a power is taken."""
    own = _same(y)
    by_others = _VanishingSlope(turns.builder, set(), lambda s: s.row.singular is not None and s.outs[0] not in own)
    return by_others.depends(g)


def _by_direction(
    turns: LoopSlopes, y: Value, g: Value, slope: _AnySlope, apart: _VanishingSlope
) -> list[Value | None]:
    """The slopes of an adjoint that has directions as factors, which are 0 here only, once or twice."""
    by_n, found = turns.by_directions(y), []
    for t, last in ((g, slope.of), (apart.of(g), lambda t: t)):
        for _ in range(2):
            t, slope.left = None if t is None else by_n.of(t), FURTHER
            found.append(None if t is None else last(t))
    return found


def _by_power(row: Row, power: Sequence[Value], g: Value, slope: _VanishingSlope) -> list[Value | None]:
    """Further slopes of an adjoint, as of the cube of a third root: those that a root of this `power` outgrows.

    Of a square root they are asked for where it is one of a root: three times, as of the fourth power of that.
    """
    found = []
    for order in range(1, {CBRT: 3, SQRT: 4}.get(row, 5)):
        if (t := slope.of(g)) is None:
            break
        if order > 1:
            found += [ROWS["where"](ROWS["le"](p * float(order), 1.0 + 1e-6), t, zero(t)) for p in power] or [t]
        g, slope.left = t, FURTHER
    return found


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
        self.known, self.left = True, NEAREST
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
        return self._by_rule(value, stmt)

    def _by_rule(self, value: Value, stmt: Stmt) -> Any:
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


class _CarriedSlope(_VanishingSlope):
    """The same, also of what loops of the adjoint carry; `turned` if one does. `kind`: which slope of theirs."""

    def __init__(self, turns: LoopSlopes, names: set[Value], is_it: Callable[[Stmt], bool], kind: Value | bool | None):
        super().__init__(turns.builder, names, is_it)
        self.turns, self.kind, self.turned = turns, kind, False

    def depends(self, value: Value) -> bool:
        return value in self.turns.loops or super().depends(value)

    def of(self, value: Value) -> Value | None:
        if value in self.turns.loops:
            self.turned = True
            return self.turns.of(value, self.kind)
        return super().of(value)


class _AnySlope(_CarriedSlope):
    """The derivative by `names`, by what active arrays and shadows held, and by what has no derivative where it is.

    Each moves by numbers of its own. So does what is more than `NEAREST` away, or comes from a loop that carries no
    slopes. `apart` finds what does not move. `sure`: False if only `shadows` move.
    """

    def __init__(self, turns: LoopSlopes, names: set[Value], apart: _VanishingSlope | None, shadows: bool):
        super().__init__(turns, names, self._moves, shadows)
        self.apart, self.shadows, self.sure = apart, shadows, False
        self.others = _AnySlope(turns, names, apart, False) if shadows else self

    def _moves(self, stmt: Stmt) -> bool:
        if stmt.row is mem.LOAD:
            a = root(stmt.args[0])
            return (
                a.name in self.turns.active if a.companion is None else self.shadows and a.companion.role is Role.SHADOW
            )
        return stmt.outs[0] in self.turns.popped or (stmt.row.singular is not None and not stmt.row.singular.refused)

    def depends(self, value: Value) -> bool:
        apart, stmt = self.apart, value.stmt
        if apart is not None and stmt is not None and (value in apart.names or apart.is_it(stmt)):
            return False
        return super().depends(value)

    def _made(self, value: Value, stmt: Stmt) -> Any:
        self.left -= 1
        far = self.left < 0 or (stmt.regions and stmt.row is not c.IF)  # or behind a loop
        if far and is_float(value.type):
            return self._unit(value, stmt)
        return super()._made(value, stmt)

    def _unit(self, value: Value, stmt: Stmt) -> Any:
        k = 1.0 + len(self.made)
        unit = like(value, value.type, [1 / (k + 0.37 * j) for j in range(getattr(value.type, "size", 1))])
        if value not in self.names and stmt.row.singular is not None and not stmt.row.singular.refused:
            beside = self._by_rule(value, stmt)
            met = stmt.row.singular.met(None, value, *stmt.args)
            unit = ROWS["where"](met, unit, zero(value) if beside is None else beside)
        self.sure |= self.others.depends(value)
        return unit


class LoopSlopes:
    """The slopes of what the loops of an adjoint carry from turn to turn, carried beside it where they are asked for.

    `popped`: what a turn of the kernel began with, where that moves; `directions`: those that are one. `loops`: what a
    loop of the adjoint carries, in a turn and in the end -> its body. `written`: the bodies of finished loops -> (the
    loop, the region that it is in).
    """

    def __init__(self, builder: Builder, active: frozenset[str]):
        self.builder, self.active = builder, active
        self.popped: set[Value] = set()
        self.directions: set[Value] = set()
        self.loops: dict[Value, Region] = {}
        self.written: dict[Region, tuple[Stmt, Region]] = {}
        self.slopes: dict[tuple[Value, Value | bool | None], Value] = {}
        self.due: list[tuple[Value, Value | bool | None]] = []

    def begin(self, popped: Value, result: Value) -> None:
        """Note what a turn of the kernel began with, and what such a turn makes for the next."""
        self.popped.add(popped)
        if any(v.stmt is not None and v.stmt.row is NORMALIZE for v in _same(result)):
            self.directions.add(popped)

    def of(self, value: Value, kind: Value | bool | None) -> Value:
        """The slope of a carried value: as `_AnySlope` has it, with shadows or without; or `by_directions`."""
        body = self.loops[value]
        key = value, kind if isinstance(kind, bool) or body in self.written else None  # else y is another each turn
        if key not in self.slopes:
            self._slope(*key)
            self.due.append(key)
            self._carry_due(body)
        return self.slopes[key]

    def by_directions(self, y: Value | None) -> _CarriedSlope:
        """The derivative by directions that turns began with, and by y."""
        return _CarriedSlope(self, self.directions | (_same(y) if y else set()), lambda stmt: False, y)

    def _slope(self, value: Value, kind: Value | bool | None) -> Value:
        if (value, kind) not in self.slopes:
            self.slopes[value, kind] = slope = Value(value.type, "", value.where)
            self.loops[slope] = self.loops[value]
        return self.slopes[value, kind]

    def close(self, loop: Stmt, region: Region) -> None:
        """Enter a loop that has been written into a region, and carry the slopes that its turns ask for."""
        (body,) = loop.regions
        self.written[body] = loop, region
        self.loops.update((v, body) for v in (*body.params[1:], *loop.outs))
        self._carry_due(body)

    def _carry_due(self, body: Region) -> None:
        """Let a loop, if it is finished, carry what was asked for: slopes of slopes once it carries those."""
        while body in self.written:
            there = *body.params, *self.written[body][0].outs
            key = next((key for key in self.due if key[0] in there), None)
            if key is None:
                break
            self.due.remove(key)
            self._carry(*key)

    def _carry(self, value: Value, kind: Value | bool | None) -> None:
        """Let a finished loop carry one more slope; what it begins with is written before the loop."""
        body, start = self.loops[value], Region()
        slope = _AnySlope(self, set(), None, kind) if isinstance(kind, bool) else self.by_directions(kind)
        slope.left = FURTHER if value in self.slopes.values() else NEAREST
        loop, region = self.written[body]
        k = loop.outs.index(value) if value.stmt is loop else body.params.index(value) - 1
        param, out = self._slope(body.params[k + 1], kind), self._slope(loop.outs[k], kind)
        if param in body.params:
            return
        made = []
        for where, v in ((start, loop.args[k + 3]), (body, body.results[k])):
            with self.builder.inside(where):  # an adjoint that is not 0 hides nothing
                any_zero = reduce(ROWS["logical_or"], [ROWS["eq"](p, zero(p)) for p in components(v)])
                made += in_branch(self.builder, any_zero, lambda v=v: [slope.of(v)]) or [zero(v)]
        at = region.body.index(loop)
        region.body[at:at] = start.body
        out.stmt, loop.args, loop.outs = loop, (*loop.args, made[0]), (*loop.outs, out)
        body.params.append(param)
        body.results = (*body.results, made[1])


def in_branch(builder: Builder, needed: Value, write: Callable[[], Iterable[Value | None]]) -> list[Value]:
    """The values that `write` makes, without None, written in a branch for where they are needed; elsewhere zeros."""
    regions = Region(), Region()
    with builder.inside(regions[0]):
        made = [v for v in write() if v is not None]
    with builder.inside(regions[1]):
        zeros = [zero(v) for v in made]
    regions[0].results, regions[1].results = tuple(made), tuple(zeros)
    return list(builder.append(c.IF, (needed,), [v.type for v in made], regions).outs)


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
