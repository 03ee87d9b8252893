"""The same program with fewer branches, for compilers that vectorise: if-conversion of conditions that cost little."""

from __future__ import annotations

from ..ir import Function, Region, Stmt, Value, walk
from ..ops import control as c
from ..ops.row import ROWS
from ..types import Scalar, bool_
from .named import named_pass
from .simplify import Rewrite, ValueFacts, constant_of

EAGER = 16  # statements that are worked out in vain


@named_pass("fewer branches")
def fewer_branches(function: Function) -> Function:
    """The same function, where `a and b` evaluates b in any case if that costs little and can do no harm, and an `if`
    that is all there is inside another one is merged with it; the function itself where there is nothing of that kind.
    """
    if not any(s.row is c.IF and (_chained(s) or _nested(s)) for s in walk(function.body)):
        return function
    return _FewerBranches(None).function(function)


class _FewerBranches(Rewrite):
    def regions(self, stmt: Stmt, args: tuple[Value, ...], scope: ValueFacts) -> None:
        chained = _chained(stmt) if stmt.row is c.IF else None
        inner = _nested(stmt) if stmt.row is c.IF else None
        role = self.builder.role
        if chained is not None:
            region, name = chained
            self.region(region, scope)
            self.builder.role = role
            parts = [args[0], scope.values[region.results[0]]]
            scope.values[stmt.outs[0]] = self.builder.append(ROWS[name], parts, [bool_]).outs[0]
        elif inner is not None:
            then = stmt.regions[0]
            self.region(Region(body=then.body[:-1]), scope)
            self.builder.role = role
            both = self.builder.append(ROWS["logical_and"], [args[0], scope.values[inner.args[0]]], [bool_]).outs[0]
            self.regions(inner, (both,), scope)
            found = [scope.values[r] for r in then.results]
            scope.values.update(zip(stmt.outs, found, strict=True))
        else:
            super().regions(stmt, args, scope)


def _chained(stmt: Stmt) -> tuple[Region, str] | None:
    """Of `a and b` or `a or b`: the region that works out b, and the row that joins them."""
    if len(stmt.outs) != 1 or stmt.outs[0].type != bool_:
        return None
    then, otherwise = stmt.regions
    for region, other, value, name in ((then, otherwise, False, "logical_and"), (otherwise, then, True, "logical_or")):
        idle = all(s.row is c.CONST for s in other.body)
        if idle and constant_of(other.results[0]) is value and not _dear(region):
            return region, name
    return None


def _nested(stmt: Stmt) -> Stmt | None:
    """The `if` that is all of this one's first branch, beside conditions; else, both leave the same constants."""
    then, otherwise = stmt.regions
    inner = then.body[-1] if then.body else None
    if inner is None or inner.row is not c.IF or _chained(inner) or _dear(Region(body=then.body[:-1])):
        return None
    pairs = list(zip(then.results, otherwise.results, strict=True))
    for value, other in pairs:
        if value not in inner.outs or not _same(inner.regions[1].results[inner.outs.index(value)], other):
            return None
    idle = all(s.row is c.CONST for region in (otherwise, inner.regions[1]) for s in region.body)
    return inner if idle else None


def _same(value: Value, other: Value) -> bool:
    made, again = value.stmt, other.stmt
    if made is None or again is None or made.row is not c.CONST or again.row is not c.CONST:
        return False
    return value.type == other.type and repr(made.attr) == repr(again.attr)


def _dear(region: Region) -> bool:
    """True if a region may not be speculated: it is costly, unsafe or has an effect."""
    stmts = list(walk(region))
    for s in stmts:
        if s.row is c.IF:
            if not _chained(s):
                return True
        elif not s.row.eager or not all(isinstance(o.type, Scalar) for o in s.outs):
            return True
    return len(stmts) > EAGER
