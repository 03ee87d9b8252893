"""Constants, thread indices, stacks, printing and control flow, as closures of the interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import GradientError
from .. import ir
from ..ops import control as rows
from ..types import Array, Stack
from .closures import THREAD, Closures, Step


def const(c: Closures, stmt: ir.Stmt) -> None:
    c.fixed(stmt, stmt.attr)


def _tid(c: Closures, stmt: ir.Stmt) -> Step | None:
    axis, out = stmt.attr.axis, c.new(stmt.outs[0])
    if axis >= len(c.dims):
        return c.fixed(stmt, 0)

    def step(s: list) -> None:
        s[out] = np.int32(s[THREAD][axis])

    return step


def dim(c: Closures, stmt: ir.Stmt) -> None:
    c.fixed(stmt, c.dims[stmt.attr.axis] if stmt.attr.axis < len(c.dims) else 1)


# --- stacks and printing


def _stack(c: Closures, stmt: ir.Stmt) -> Step:
    out = c.new(stmt.outs[0])

    def step(s: list) -> None:
        s[out] = []

    return step


def _push(c: Closures, stmt: ir.Stmt) -> Step:
    stack, value = c.at(stmt.args)
    capacity = ir.type_as(stmt.args[0], Stack).capacity

    def step(s: list) -> None:
        if len(s[stack]) == capacity:
            raise RuntimeError(f"internal error: a stack of capacity {capacity} overflows ({stmt.where})")
        s[stack].append(s[value])

    return step


def _pop(c: Closures, stmt: ir.Stmt) -> Step:
    (stack,), out = c.at(stmt.args), c.new(stmt.outs[0])

    def step(s: list) -> None:
        if not s[stack]:
            raise RuntimeError(f"internal error: an empty stack is popped ({stmt.where})")
        s[out] = s[stack].pop()

    return step


_PRINTED = {"d": int, "u": lambda x: int(x) % 2**64, "f": float, "c": int}


def _printf(c: Closures, stmt: ir.Stmt) -> Step:
    format, kinds = rows.printed(stmt.attr[0], lambda flags, kind: f"%{flags}{kind}")
    args = c.at(stmt.args)

    def step(s: list) -> None:
        numbers = [x for a in args for x in np.ravel(s[a]).tolist()]
        sys.stdout.write(format % tuple(_PRINTED[k](x) for k, x in zip(kinds, numbers, strict=True)))

    return step


def _assert(c: Closures, stmt: ir.Stmt) -> Step:
    (holds,) = c.at(stmt.args)

    def step(s: list) -> None:
        if not s[holds] and isinstance(stmt.attr, rows.Convention):
            c.noted.add(stmt)
        elif not s[holds]:
            thread = s[THREAD]
            raise stmt.attr.error(c.kernel, stmt.where, thread if len(thread) != 1 else thread[0])

    return step


# --- control flow


def _if(c: Closures, stmt: ir.Stmt) -> Step:
    (condition,) = c.at(stmt.args)
    bodies = [c.region(r) for r in stmt.regions]
    results = [c.at(r.results) for r in stmt.regions]
    outs = [c.new(o) for o in stmt.outs]
    taken = [(body, list(zip(outs, found, strict=True))) for body, found in zip(bodies, results, strict=True)]

    def step(s: list) -> None:
        body, moves = taken[0] if s[condition] else taken[1]
        for inner in body:
            inner(s)
        for out, result in moves:
            s[out] = s[result]

    return step


def _turn(c: Closures, region: ir.Region, breaks: bool) -> Callable[[list, list], tuple[Any, list]]:
    """One turn of a loop: carried values in, (go on?, carried values out)."""
    params = [c.new(p) for p in region.params]
    body, results = c.region(region), c.at(region.results)

    def turn(s: list, carried: list) -> tuple[Any, list]:
        for param, value in zip(params, carried, strict=True):
            s[param] = value
        for inner in body:
            inner(s)
        found = [s[r] for r in results]
        return (found[0], found[1:]) if breaks else (True, found)

    return turn


def _for(c: Closures, stmt: ir.Stmt) -> Step:
    start, stop, stride, *init = c.at(stmt.args)
    kind = ir.numeric(stmt.args[0]).numpy.type
    turn = _turn(c, stmt.regions[0], stmt.attr.breaks)
    outs = [c.new(o) for o in stmt.outs]

    def step(s: list) -> None:
        first, last, by = int(s[start]), int(s[stop]), int(s[stride])
        carried = [s[i] for i in init]
        for i in range(first, last, by) if by else ():
            go, carried = turn(s, [kind(i), *carried])
            if not go:
                break
        for out, value in zip(outs, carried, strict=True):
            s[out] = value

    return step


def _while(c: Closures, stmt: ir.Stmt) -> Step:
    init = c.at(stmt.args)
    test = _turn(c, stmt.regions[0], breaks=True)
    turn = _turn(c, stmt.regions[1], stmt.attr.breaks)
    outs = [c.new(o) for o in stmt.outs]

    def step(s: list) -> None:
        carried, go = [s[i] for i in init], True
        while go and test(s, carried)[0]:
            go, carried = turn(s, carried)
        for out, value in zip(outs, carried, strict=True):
            s[out] = value

    return step


def call(c: Closures, stmt: ir.Stmt) -> Step:
    """A func with its own adjoint means its body; its parameters are the arguments under other names."""
    (region,) = stmt.regions
    for param, arg in zip(region.params, stmt.args, strict=True):
        names: dict = c.arrays if isinstance(arg.type, Array) else c.slot_of
        names[id(param)] = names[id(arg)]
    body, results = c.region(region), c.at(region.results)
    outs = [c.new(o) for o in stmt.outs]
    compare = _replayed(c, stmt, results)

    def step(s: list) -> None:
        for inner in body:
            inner(s)
        if compare is not None:
            compare(s)
        for out, result in zip(outs, results, strict=True):
            s[out] = s[result]

    return step


def _replayed(c: Closures, stmt: ir.Stmt, results: list[int]) -> Step | None:
    """A step that raises GradientError if the func_replay returns something else; None without one, or if it writes."""
    custom = stmt.attr
    if custom is None or custom.replay is None or any(s.row.writes for s in ir.walk(custom.replay)):
        return None
    for param, arg in zip(custom.replay.params, stmt.args, strict=True):
        names: dict = c.arrays if isinstance(arg.type, Array) else c.slot_of
        names[id(param)] = names[id(arg)]
    trace, c.trace = c.trace, None  # these are no statements of the kernel
    body, again = c.region(custom.replay), c.at(custom.replay.results)
    c.trace = trace

    def step(s: list) -> None:
        for inner in body:
            inner(s)
        for one, other in zip(results, again, strict=True):
            if np.asarray(s[one]).tobytes() != np.asarray(s[other]).tobytes():
                text = f"the func_replay of `{custom.func.key}` returned {s[other]}, the func {s[one]}."
                why = "The reverse pass would differentiate at another value than the launch had."
                raise GradientError(text, slug="replay-differs", where=stmt.where, why=why)

    return step


STEPS = {
    rows.CONST: const,
    rows.TID: _tid,
    rows.DIM: dim,
    rows.IF: _if,
    rows.FOR: _for,
    rows.WHILE: _while,
    rows.CALL: call,
    rows.STACK: _stack,
    rows.PUSH: _push,
    rows.POP: _pop,
    rows.PRINTF: _printf,
    rows.ASSERT: _assert,
}
