"""The same program in float64: every float of a kernel, in memory too, becomes a double.

For checks by differences: in float64 they are good to ten digits, in float32 to three. Constants take the value that
was written (`0.1` is the double nearest to 0.1); casts between floats stay, and do nothing any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..ir import Builder, Function, Region, Stmt, Value, numeric, with_types
from ..ops import control as c
from ..ops.bits import SAME_BITS
from ..ops.row import ROWS
from ..types import Array, Composite, Scalar, Type, float64
from .named import named_pass


def wide(type: Type) -> Type:
    """The type with float64 in place of every float."""
    if isinstance(type, Array):
        return Array(wide(type.dtype), type.ndim)
    if not isinstance(type, (Scalar, Composite)) or type.scalar.kind != "f":
        return type
    return type.over(float64)


@named_pass("to float64")
def widen(function: Function) -> Function:
    """`function` over float64, with parameters of the same names."""
    made = function.with_body(Region())
    builder = Builder(made.body)
    with builder.open():
        known: dict[Value, Value] = {}
        _params(function.body, made.body, known)
        _body(builder, function.body, known)
    return made


def _params(region: Region, new: Region, known: dict[Value, Value]) -> None:
    """New parameters; a call's region may have arrays of the outside among its own."""
    for p in region.params:
        if p not in known:
            known[p] = Value(wide(p.type), p.name, p.where, None, p.companion)
        new.params.append(known[p])


def _body(builder: Builder, region: Region, known: dict[Value, Value]) -> None:
    for stmt in region.body:
        with builder.at(stmt.where, stmt.of):
            _stmt(builder, stmt, known)


def _region(builder: Builder, region: Region, known: dict[Value, Value]) -> Region:
    new = Region()
    _params(region, new, known)
    with builder.inside(new):
        _body(builder, region, known)
    new.results = tuple(known[r] for r in region.results)
    return new


def _stmt(builder: Builder, stmt: Stmt, known: dict[Value, Value]) -> None:
    args = [known[a] for a in stmt.args]
    wanted = [wide(o.type) for o in stmt.outs]
    attr: Any = with_types(stmt.attr, wide)
    types = wanted
    if stmt.regions:
        regions = tuple(_region(builder, r, known) for r in stmt.regions)
        if stmt.row is c.CALL:
            own = {n: r for n in ("grad", "replay") if (r := getattr(attr, n)) is not None}
            attr = replace(attr, **{n: _region(builder, r, dict(known)) for n, r in own.items()})
        made = builder.append(stmt.row, args, wanted, regions, attr)
    elif stmt.row is SAME_BITS:  # of what the number was
        given = [
            ROWS["cast"](a, attr=old.type) if a.type != old.type else a for a, old in zip(args, stmt.args, strict=True)
        ]
        made = builder.append(stmt.row, given, [o.type for o in stmt.outs], (), stmt.attr)
    else:
        if stmt.row is not c.CONST and stmt.outs:
            found = stmt.row.type(*[a.type for a in args], **stmt.row.extra(attr))
            types = list(found) if isinstance(found, tuple) else [found]
        made = builder.append(stmt.row, args, types, (), attr)
    for old, new, want in zip(stmt.outs, made.outs, wanted, strict=True):
        new.name = old.name
        # a random number is float32 whatever is around it
        known[old] = new if new.type == want else ROWS["cast"](new, attr=numeric(want).scalar)
