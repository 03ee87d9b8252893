"""Statements that compute values, run by the meaning of their row, or by its `expand`, written out once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from .. import ir
from ..ir import constant
from ..row import Row, on_components
from ..types import Composite, Scalar, Type
from .closures import Closures, Step, converter


def by_meaning(c: Closures, stmt: ir.Stmt) -> Step:
    row = stmt.row.on(stmt.args[0].type) if stmt.args else stmt.row
    if row.expand is not None:
        return linear(c, stmt, row)
    compute = row.meaning
    assert compute is not None, f"{row.name} has no meaning"
    if row.typed_by_attr:
        compute = partial(compute, attr=stmt.attr)
    if not isinstance(row.meaning, np.ufunc) and sum(isinstance(a.type, Composite) for a in stmt.args) > 1:
        compute = partial(on_components, compute)
    args = c.at(stmt.args)
    if len(stmt.outs) != 1:
        return _several(compute, args, [c.new(o) for o in stmt.outs], [converter(o.type) for o in stmt.outs])
    (result,) = stmt.outs
    out, type = c.new(result), result.type
    if isinstance(type, Scalar):
        return _scalar(compute, args, out, type.numpy.type)
    convert = converter(type)

    def step(s: list) -> None:
        s[out] = convert(compute(*[s[a] for a in args]))

    return step


def linear(c: Closures, stmt: ir.Stmt, row: Row) -> Step:
    """A row written over components is written out once, as scalar statements, which then run like any others."""
    apart = [(a, a.type) for a in stmt.args]
    operands = [[ir.Value(t.scalar) for _ in range(t.size)] if isinstance(t, Composite) else a for a, t in apart]
    slots = zip(c.at(stmt.args), operands, strict=True)
    opened = [(slot, [c.new(v) for v in parts]) for slot, parts in slots if isinstance(parts, list)]
    body, results = written_out(stmt, row, operands)
    c.kept.append((operands, body))
    inner = [made for s in body.body if (made := c.compile(s)) is not None]
    closed = [(c.new(out), c.at(parts), c.joined(out.type)) for out, parts in zip(stmt.outs, results, strict=True)]

    def step(s: list) -> None:
        for slot, parts in opened:
            s[parts[0] : parts[-1] + 1] = c.scalars(s[slot])
        for inside in inner:
            inside(s)
        for out, parts, join in closed:
            s[out] = join([s[p] for p in parts])

    return step


def written_out(stmt: ir.Stmt, row: Row, operands: list) -> tuple[ir.Region, list[list[ir.Value]]]:
    """The scalar statements of a row over components, and the components of its results."""
    outs = [o.type for o in stmt.outs]
    body, types = ir.Region(), [a.type for a in stmt.args]
    with ir.Builder(body).open():
        assert row.expand is not None
        made = row.expand(
            *operands, types=types, out=outs[0] if len(outs) == 1 else tuple(outs), **row.extra(stmt.attr)
        )
        results = [_components_of(r, t) for r, t in zip([made] if len(outs) == 1 else made, outs, strict=True)]
    return body, results


def _components_of(made: ir.Value | float | list | tuple, type: Type) -> list[ir.Value]:
    """The results of `expand` as IR values; numbers among them become constants."""
    parts = made if isinstance(made, (list, tuple)) else [made]
    return [p if isinstance(p, ir.Value) else constant(ir.numeric(type).scalar, p) for p in parts]


def _scalar(compute: Callable, args: list[int], out: int, kind: type) -> Step:
    if len(args) == 1:
        (a,) = args

        def unary(s: list) -> None:
            r = compute(s[a])
            s[out] = r if r.__class__ is kind else kind(r)

        return unary
    if len(args) == 2:
        a, b = args

        def binary(s: list) -> None:
            r = compute(s[a], s[b])
            s[out] = r if r.__class__ is kind else kind(r)

        return binary

    def step(s: list) -> None:
        r = compute(*[s[k] for k in args])
        s[out] = r if r.__class__ is kind else kind(r)

    return step


def _several(compute: Callable, args: list[int], outs: list[int], converts: list[Callable]) -> Step:
    def step(s: list) -> None:
        results = compute(*[s[a] for a in args])
        for out, convert, result in zip(outs, converts, results if outs else (), strict=True):
            s[out] = convert(result)

    return step
