"""The batched kernel, IR -> IR: one more axis of the grid, in front, along which chosen arrays have a row per index.

`x[i, j]` of a batched array becomes `x[b, i, j]`, `tid()` and the shapes that the kernel asks for are those of before.
The result is an ordinary kernel, to be differentiated, tested and emitted like any other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...errors import KernelError
from ..ir import Builder, Function, Region, Stmt, Value, enter
from ..ops import control as c, memory as mem
from ..types import Array, int32
from . import simplify
from .named import named_pass

MOST_AXES = 4  # of a grid


@named_pass("batch")
def batched(function: Function, names: frozenset[str]) -> Function:
    """`function` over a grid with one axis more, where the array parameters in `names` have one axis more."""
    made = function.with_body(Region(), rank=function.rank + 1)
    builder = Builder(made.body)
    with builder.open():
        rows = [p.name in names for p in function.params]
        _region(builder, function.body, made.body, {}, rows)
    return simplify.primal(made)


def _region(builder: Builder, region: Region, new: Region, known: dict[Value, Value], rows: list[bool]) -> Region:
    """Write `region` into `new`. `rows`: which of its parameters are arrays with one axis more."""
    for p, more in zip(region.params, rows, strict=True):
        known[p] = p.copied()
        if more and isinstance(p.type, Array):
            known[p].type = Array(p.type.dtype, p.type.ndim + 1)
        new.params.append(known[p])
    with builder.inside(new):
        for stmt in region.body:
            with builder.at(stmt.where, stmt.of):
                _stmt(builder, stmt, known)
    new.results = tuple(known[r] for r in region.results)
    return new


def _stmt(builder: Builder, stmt: Stmt, known: dict[Value, Value]) -> None:
    args, attr = [known[a] for a in stmt.args], stmt.attr
    more = [_has_rows(a, known) for a in stmt.args]
    if stmt.row is c.CALL:
        regions = (_region(builder, stmt.regions[0], Region(), dict(known), more),)
        made = builder.append(stmt.row, args, [o.type for o in stmt.outs], regions, _custom(builder, attr, more))
    elif stmt.regions:
        regions = tuple(_region(builder, r, Region(), dict(known), [False] * len(r.params)) for r in stmt.regions)
        builder.repeat(stmt, args, known, regions)
        return
    elif stmt.row is c.TID or stmt.row is c.DIM:
        axis = attr.axis if isinstance(attr, c.Tid) else attr
        made = builder.append(
            stmt.row, args, [int32], (), replace(attr, axis=axis + 1) if axis is not attr else axis + 1
        )
    elif not any(more):
        builder.repeat(stmt, args, known)
        return
    elif stmt.row is mem.SHAPE:
        made = builder.append(stmt.row, args, [int32], (), attr + 1)
    elif stmt.row is mem.COMPONENTS:
        made = builder.append(stmt.row, args, [mem.COMPONENTS.type(args[0].type)])
    elif isinstance(stmt.args[0].type, Array) and len(stmt.args) > 1:
        row = builder.append(c.TID, (), (int32,), attr=c.Tid(0)).outs[0]
        made = builder.append(stmt.row, [args[0], row, *args[1:]], [o.type for o in stmt.outs], (), attr)
    else:
        text = f"`{stmt.row.name}` takes an array as a whole, so it cannot run for many rows at once."
        raise KernelError(text, slug="vmap", where=stmt.where, instead="a loop over the rows")
    enter(known, stmt.outs, made.outs)


def _has_rows(a: Value, known: dict[Value, Value]) -> bool:
    return isinstance(a.type, Array) and known[a].type != a.type


def _custom(builder: Builder, attr: Any, rows: list[bool]) -> Any:
    """The adjoint and the replay that a func brings, over arrays of which some have rows."""
    if attr is None:
        return None
    own = {n: r for n in ("grad", "replay") if (r := getattr(attr, n)) is not None}
    made = {}
    for name, region in own.items():
        shadows = [rows[k] for k in attr.arrays] if name == "grad" else []
        more = [*rows, *shadows, *[False] * (len(region.params) - len(rows) - len(shadows))]
        made[name] = _region(builder, region, Region(), {}, more)
    return replace(attr, **made)
