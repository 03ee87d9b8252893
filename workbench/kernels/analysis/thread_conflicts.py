"""Conflicts between threads: proofs that an address is private to a thread, and certain write races.

An index tells threads apart if their coordinates are digits of a number in a mixed radix (strides sorted, each larger
than all that the smaller ones can sum to). A race is a concrete pair of threads, verified by evaluation.

How threads use the arrays they change decides how the interpreter batches them. OWN: no two threads touch one cell.
LATER: all of them add to it, and none reads it. IN_TURN: one statement changes it, once in every thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from .. import ir
from ..interpreter.lane_memory import IN_TURN, LATER, OWN
from ..interpreter.lanes import has_lanes
from ..ops import control, memory
from ..types import Tile, uint64
from .accesses import accesses_of
from .affine import Point, Symbol, union
from .hulls import Hull
from .launch_form import LaunchForm, Line

_ALONE = (control.EACH, control.GRAD, control.PRINTF, memory.LOG_STORE, memory.MARK, memory.ROLLBACK)


def private(function: ir.Function, name: str, launch: LaunchForm) -> bool:
    """True if every address of array parameter `name` is used by at most one thread of this launch.

    Then a plain `+=` is as good as an atomic one. Only the accesses through this parameter are looked at: that no
    other one shares its memory, and that its elements do not overlap, is for the launch to know. False where that is
    not proven.
    """
    hulls = [h for h in (Hull(a, launch) for a in accesses_of(function) if a.name == name) if not h.empty]
    axes = {("tid", k) for k in range(len(launch.dims))}
    spread = {v: union(*[h.box[v] for h in hulls]) for v in axes} if hulls else {}
    open_ = {v for v, (lo, hi) in spread.items() if hi > lo}
    positions = list(range(min((len(h.access.indices) for h in hulls), default=0)))
    while open_:
        # equal addresses imply equal indices at each position, hence equal thread indices that one tells apart
        told = set().union(*[_told(hulls, p, open_, spread) for p in positions], set())
        if not told:
            return False
        open_ -= told
    return True


def _told(hulls: list[Hull], axis: int, open_: set[Symbol], spread: dict[Symbol, tuple[int, int]]) -> set[Symbol]:
    """The thread axes that the index on `axis` determines (digits in a mixed radix), `open_` ones unknown."""
    first: dict[Symbol, int] | None = None
    rests = []
    for hull in hulls:
        raw, touched = hull.range(axis), hull.touched(axis)
        if raw is None or touched is None:
            return set()
        line = hull.line(axis)
        assert line is not None  # it has a range
        factors = {v: c for v, c in line.terms.items() if v in spread}
        if first is not None and factors != first:
            return set()
        first = factors
        rest = Line({v: c for v, c in line.terms.items() if v not in spread}, line.constant + touched[0] - raw[0])
        rests.append(rest.hull(hull.box))
    lo, hi = union(*rests)
    digits, width = [], hi - lo
    for v, c in sorted((first or {}).items(), key=lambda term: abs(term[1])):
        if v in open_:
            digits.append((v, abs(c) > width))
            width += abs(c) * (spread[v][1] - spread[v][0])
    told = set()
    for v, larger in reversed(digits):  # a digit is told apart once all larger ones are
        if not larger:
            break
        told.add(v)
    return told


PAIRS = 20_000  # of stores that a launch looks at, for races that are certain


class Race(NamedTuple):
    """Two statements that store to one element of a parameter, each with its thread."""

    stmt: ir.Stmt
    thread: tuple[int, ...]
    other: tuple[int, ...]
    other_stmt: ir.Stmt
    element: tuple[int, ...]


def write_race(function: ir.Function, launch: LaunchForm) -> Race | None:
    """Two threads that certainly store to one address of one parameter; None: none was found.

    Stores to one place under the same conditions are looked at once. Of very many, pairs far apart are left out.
    """
    stores = [a for a in accesses_of(function) if a.stmt.row is memory.STORE and a.certain and None not in a.indices]
    places = {
        (a.param, a.indices, a.wraps, tuple(i.needs for i in a.indices if i), a.guards, a.loops): a
        for a in reversed(stores)
    }
    hulls = [h for h in (Hull(a, launch) for a in reversed(places.values())) if not h.empty]
    near = max(PAIRS // max(len(hulls), 1), 2)
    for k, one in enumerate(hulls):
        for other in hulls[k : k + near]:
            if one.access.param == other.access.param and len(one.access.indices) == len(other.access.indices):
                met = _meeting(one, other)
                if met is not None:
                    thread, there, element = met
                    return Race(one.access.stmt, thread, there, other.access.stmt, element)
    return None


def _meeting(one: Hull, other: Hull) -> tuple[tuple[int, ...], ...] | None:
    """(thread, other thread, element) of a verified conflict among a few likely pairs; None if there is none."""
    lines = [[line for k in range(len(h.access.indices)) if (line := h.line(k))] for h in (one, other)]
    if any(len(part) < len(one.access.indices) for part in lines):
        return None
    shared = [v for v in one.box if v in other.box and one.box[v][1] > one.box[v][0]]
    for step in _steps(lines[0], lines[1], shared):
        a = {v: (hi if step.get(v, 0) < 0 else lo) for v, (lo, hi) in one.box.items()}
        b = {v: a.get(v, lo) + step.get(v, 0) for v, (lo, _) in other.box.items()}
        if one.thread(a) == other.thread(b) or not (one.runs(a) and other.runs(b)):
            continue
        element = _address(one, a)
        if element is not None and element == _address(other, b):
            return one.thread(a), other.thread(b), element
    return None


def _steps(one: list[Line], other: list[Line], variables: list[Symbol]) -> Iterator[Point]:
    """Candidate differences of two threads with equal addresses: along one variable, or two that cancel."""
    gaps = [a.constant - b.constant for a, b in zip(one, other, strict=True)]
    for v in variables:
        factors = [line.terms.get(v, 0) for line in other]
        p = next((p for p, c in enumerate(factors) if c), None)
        if p is None:
            yield {v: 1}
        elif gaps[p] and gaps[p] % factors[p] == 0:
            yield {v: gaps[p] // factors[p]}
    for v, w in combinations(variables, 2):
        p = next((p for p, line in enumerate(other) if line.terms.get(v) and line.terms.get(w)), None)
        if p is not None:
            c, d = other[p].terms[v], other[p].terms[w]
            g = math.gcd(c, d)
            yield {v: d // g, w: -c // g}
            yield {v: -d // g, w: c // g}


def _address(hull: Hull, point: Point) -> tuple[int, ...] | None:
    """The indices after wrapping; None where one is not certain or out of range."""
    out = []
    for axis in range(len(hull.access.indices)):
        index, n, back = hull.index(axis, point), hull.extent(axis), hull.wrap(axis)
        if index is None or back is None:
            return None
        index = index + back if index < 0 else index
        if index < 0 or (n is not None and index >= n):
            return None
        out.append(index)
    return tuple(out)


def uses(function: ir.Function, form: LaunchForm) -> dict[str, str] | None:
    """The use of each array that changes. None where one has none of these uses, or is reached by two names, and where
    threads print, work on tiles or undo what they stored.
    """
    statements = list(ir.walk(function.body))
    touching: dict[str, list[ir.Stmt]] = {}
    for access in accesses_of(function):
        touching.setdefault(access.name, []).append(access.stmt)
    changed = {name for name, found in touching.items() if any(s.row.writes for s in found)}
    if changed & form.shared or any(map(_alone, statements)):
        return None
    loops = [s for s in statements if s.row in (control.FOR, control.WHILE)]
    looped = {s for loop in loops for region in loop.regions for s in ir.walk(region)}
    read = ir.used(function.body)
    found = {n: _use(function, form, n, touching[n], looped, read) for n in changed}
    known = {n: use for n, use in found.items() if use is not None}
    return known if len(known) == len(found) else None


def _alone(stmt: ir.Stmt) -> bool:
    """True if threads must run this statement one after the other (I/O, tiles, replays, uint64 loops ...)."""
    return (
        stmt.row in _ALONE
        or not has_lanes(stmt)
        or (stmt.row is control.CALL and stmt.attr is not None and stmt.attr.replay is not None)
        or (stmt.row is control.FOR and stmt.args[0].type is uint64)
        or any(isinstance(v.type, Tile) for v in (*stmt.args, *stmt.outs))
    )


def _use(
    function: ir.Function, form: LaunchForm, name: str, found: list[ir.Stmt], looped: set[ir.Stmt], read: set[ir.Value]
) -> str | None:
    if private(function, name, form):
        return OWN
    updates = {s.row.update for s in found}
    if len(updates) == 1 and None not in updates and not any(out in read for s in found for out in s.outs):
        return LATER
    return IN_TURN if len(found) == 1 and None not in updates and found[0] not in looped else None
