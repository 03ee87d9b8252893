"""Constants, thread indices, stacks, printing and control flow, as closures of the interpreter.

`FLOW` also serves threads that run together (`lanes`): what is a vector there is one number here.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...errors import GradientError
from .. import ir
from ..ops import control as rows
from ..row import Row
from ..types import Array, Stack
from .closures import THREAD, Closures, Maker, Step
from .lane_values import Chosen, Turns, empty, is_vector, put


def _tid(c: Closures, stmt: ir.Stmt) -> Step | None:
    axis, out = stmt.attr.axis, c.new(stmt.outs[0])
    if axis >= len(c.dims):
        return c.fixed(stmt, 0)

    def step(s: list) -> None:
        s[out] = np.int32(s[THREAD][axis])

    return step


# --- stacks and printing


def _stack(c: Closures, stmt: ir.Stmt) -> Step:
    out, type = c.new(stmt.outs[0]), ir.type_as(stmt.outs[0], Stack)

    def step(s: list) -> None:
        s[out] = c.stack(type)

    return step


def _push(c: Closures, stmt: ir.Stmt) -> Step:
    stack, value = c.at(stmt.args)

    def step(s: list) -> None:
        s[stack].push(s[THREAD], s[value], stmt)

    return step


def _pop(c: Closures, stmt: ir.Stmt) -> Step:
    (stack,), out = c.at(stmt.args), c.new(stmt.outs[0])

    def step(s: list) -> None:
        s[out] = s[stack].pop(s[THREAD], stmt)

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
        if s[holds].all():
            return
        if not isinstance(stmt.attr, rows.Convention):
            raise c.failure(stmt, s[THREAD])
        c.noted.add(stmt)

    return step


# --- control flow, of one thread and of lanes


def branch(c: Closures, stmt: ir.Stmt) -> Step:
    """An `if`; where lanes part, each side works on the values of its own."""
    (condition,) = c.at(stmt.args)
    sides = [(*c.inner(region), c.at(region.results)) for region in stmt.regions]
    outs, types = [c.new(o) for o in stmt.outs], [o.type for o in stmt.outs]

    def step(s: list) -> None:
        holds = s[condition]
        if holds.__class__ is np.ndarray:
            if holds.any() and not holds.all():
                return part(s, holds)
            holds = holds[0]
        body, _, results = sides[0] if holds else sides[1]
        for inner in body:
            inner(s)
        for out, result in zip(outs, results, strict=True):
            s[out] = s[result]

    def part(s: list, holds: np.ndarray) -> None:
        merged = [empty(t, len(holds)) for t in types]
        for (body, slots, results), where in zip(sides, (holds, ~holds), strict=True):
            chosen, around = np.flatnonzero(where), Chosen(s, slots)
            around.narrow(chosen)
            for inner in body:
                inner(s)
            for target, result in zip(merged, results, strict=True):
                put(target, chosen, s[result])
            around.restore()
        for out, value in zip(outs, merged, strict=True):
            s[out] = value

    return step


def _turn(c: Closures, region: ir.Region, breaks: bool) -> tuple[Callable[[list, list], tuple[Any, list]], list[int]]:
    """One turn of a loop (carried values in; go on?, carried values out), and the slots from around that it uses."""
    params = [c.new(p) for p in region.params]
    (body, slots), results = c.inner(region), c.at(region.results)

    def turn(s: list, carried: list) -> tuple[Any, list]:
        for param, value in zip(params, carried, strict=True):
            s[param] = value
        for inner in body:
            inner(s)
        found = [s[r] for r in results]
        return (found[0], found[1:]) if breaks else (True, found)

    return turn, [k for k in slots if k not in params]


def count(c: Closures, stmt: ir.Stmt) -> Step:
    """A `for`."""
    bounds, init = c.at(stmt.args[:3]), c.at(stmt.args[3:])
    kind = ir.numeric(stmt.args[0]).numpy.type
    turn, slots = _turn(c, stmt.regions[0], stmt.attr.breaks)
    outs, types = [c.new(o) for o in stmt.outs], [o.type for o in stmt.outs]

    def step(s: list) -> None:
        turns = Turns(s, slots, [s[i] for i in init], types)
        for i in _counters([s[b] for b in bounds], kind, turns):
            go, turns.carried = turn(s, [i, *turns.carried])
            if not turns.go_on(go):
                break
        turns.end(outs)

    return step


def _counters(bounds: list, kind: type[np.generic], turns: Turns) -> Iterator[Any]:
    """The loop variable of each turn; lanes with bounds of their own leave where theirs end, as in Python's `range`."""
    if not any(map(is_vector, bounds)):
        first, last, by = map(int, bounds)
        yield from map(kind, range(first, last, by) if by else ())
        return
    first, last, by = (np.broadcast_to(np.asarray(b).astype(np.int64), len(turns.at)) for b in bounds)
    ahead = np.where(by > 0, last - first, first - last)
    trips = np.where(by == 0, 0, np.maximum(0, -(-ahead // np.maximum(1, np.abs(by)))))
    for n in itertools.count():
        if not turns.go_on(n < trips[turns.at]):
            return
        yield (first[turns.at] + n * by[turns.at]).astype(kind)


def repeat(c: Closures, stmt: ir.Stmt) -> Step:
    """A `while`."""
    init = c.at(stmt.args)
    test, asked = _turn(c, stmt.regions[0], breaks=True)
    turn, used = _turn(c, stmt.regions[1], stmt.attr.breaks)
    outs, types = [c.new(o) for o in stmt.outs], [o.type for o in stmt.outs]
    slots = sorted({*asked, *used})

    def step(s: list) -> None:
        turns, go = Turns(s, slots, [s[i] for i in init], types), True
        while turns.go_on(go) and turns.go_on(test(s, turns.carried)[0]):
            go, turns.carried = turn(s, turns.carried)
        turns.end(outs)

    return step


def call(c: Closures, stmt: ir.Stmt) -> Step:
    """A func with its own adjoint means its body; its parameters are the arguments under other names."""
    body, results = _of_arguments(c, stmt.regions[0], stmt)
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


def _of_arguments(c: Closures, region: ir.Region, stmt: ir.Stmt) -> tuple[list[Step], list[int]]:
    """The steps of a region whose parameters are the arguments of a statement, and the slots of its results."""
    for param, arg in zip(region.params, stmt.args, strict=True):
        names: dict = c.arrays if isinstance(arg.type, Array) else c.slot_of
        names[id(param)] = names[id(arg)]
    return c.region(region), c.at(region.results)


def _replayed(c: Closures, stmt: ir.Stmt, results: list[int]) -> Step | None:
    """A step that raises GradientError if the func_replay returns something else; None without one, or if it writes."""
    custom = stmt.attr
    if custom is None or custom.replay is None or any(s.row.writes for s in ir.walk(custom.replay)):
        return None
    trace, c.trace = c.trace, None  # these are no statements of the kernel
    body, again = _of_arguments(c, custom.replay, stmt)
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


FLOW: dict[Row, Maker] = {
    rows.CONST: lambda c, stmt: c.fixed(stmt, stmt.attr),
    rows.DIM: lambda c, stmt: c.fixed(stmt, c.dims[stmt.attr.axis] if stmt.attr.axis < len(c.dims) else 1),
    rows.IF: branch,
    rows.FOR: count,
    rows.WHILE: repeat,
    rows.CALL: call,
    rows.STACK: _stack,
    rows.PUSH: _push,
    rows.POP: _pop,
    rows.ASSERT: _assert,
}
STEPS: dict[Row, Maker] = {rows.TID: _tid, **FLOW, rows.PRINTF: _printf}
