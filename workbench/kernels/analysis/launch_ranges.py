"""The footprint of a launch, from affine indices, on the host before anything runs; and its bounds errors.

Boxes come from interval arithmetic and are never too small; a refusal names a concrete thread, verified by evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...errors import BoundsError
from .. import ir
from ..ops import memory
from ..row import Effect
from .accesses import Access, accesses_of, component_axes, components_of, decisions
from .affine import Point, Symbol, interval, symbols_in
from .hulls import Hull, exact_in
from .launch_form import LaunchForm, Line

Box = tuple[tuple[int, int], ...]

EMPTY: Box = ()  # the launch touches nothing


def box(access: Access, launch: LaunchForm) -> Box | None:
    """The inclusive range (lo, hi) of every axis of the array that the launch touches, never too small.

    Component axes are left out. An axis whose index is not affine is whole. `EMPTY` where nothing is touched, None
    where not even the shape is known. Indices out of range are clipped: those are `check`'s.
    """
    hull = Hull(access, launch)
    if hull.empty:
        return EMPTY
    if access.name not in launch.shapes:
        return None
    out = []
    for axis, n in enumerate(launch.shapes[access.name]):
        lo, hi = hull.touched(axis) or (0, n - 1)
        lo, hi = max(lo, 0), min(hi, n - 1)
        if lo > hi:
            return EMPTY
        out.append((lo, hi))
    return tuple(out)


def check(function: ir.Function, launch: LaunchForm, names: Mapping[str, str] | None = None) -> None:
    """Raise BoundsError [bounds] for the first access that certainly runs and certainly leaves its array.

    `names`: what the message calls array parameters.
    """
    seen = set()
    for access in accesses_of(function):
        key = access.param, access.indices, access.wraps, access.guards
        if not access.certain or access.name not in launch.shapes or key in seen:
            continue
        seen.add(key)
        hull = Hull(access, launch)
        if hull.empty:
            continue
        for axis in range(len(access.indices)):
            point = _outside(hull, axis)
            if point is not None:
                raise _refusal(function, hull, axis, point, (names or {}).get(access.name, access.name))


def inside(function: ir.Function, launch: LaunchForm | None) -> set[ir.Stmt]:
    """The accesses, to arrays and to components, that certainly stay inside; without a launch, all that are affine."""
    proven: dict[ir.Stmt, bool] = {}
    for access in (*accesses_of(function), *components_of(function)):
        forms = [p.form or (p.args[0].form if p.row is memory.WRAP else None) for p in access.places]
        stays = None not in forms if launch is None else _stays(access, launch)
        proven[access.stmt] = proven.get(access.stmt, True) and stays
    return {stmt for stmt, stays in proven.items() if stays}


def _stays(access: Access, launch: LaunchForm) -> bool:
    outer = launch.shapes.get(access.name, ()) if access.param >= 0 else ()
    extents = (*outer, *component_axes(access.array))
    hull = Hull(access, launch)
    if hull.empty:
        return True
    ranges = [interval(place, hull.interval) for place in access.places]
    return len(ranges) <= len(extents) and all(lo >= 0 and hi < n for (lo, hi), n in zip(ranges, extents, strict=False))


def partly_negative(function: ir.Function, launch: LaunchForm) -> Iterator[tuple[Access, int, int | tuple, int]]:
    """(access, axis, a thread, its index) where an affine index is below 0 in some threads, and not in all."""
    seen = set()
    for access in accesses_of(function):
        hull = Hull(access, launch) if access.certain else None
        if hull is None or hull.empty or (access.where, access.name) in seen:
            continue
        for axis, wrap in enumerate(access.wraps):
            line = hull.line(axis) if wrap is not None else None
            if line is None or not line.terms:
                continue
            point = hull.extreme(line, -1)[1]
            index = hull.index(axis, point)
            if index is not None and index < 0 <= line.hull(hull.box)[1] and hull.runs(point):
                seen.add((access.where, access.name))
                thread = hull.thread(point)
                yield access, axis, thread[0] if len(thread) == 1 else thread, index


def _outside(hull: Hull, axis: int) -> Point | None:
    """A thread that runs and whose index leaves the axis."""
    form = hull.access.indices[axis]
    n = hull.extent(axis)
    line = None if form is None else hull.launch.line(form)
    back = hull.wrap(axis)
    if line is None or n is None or back is None:
        return None
    lo, hi = line.hull(hull.box)
    for sign, beyond, limit in ((1, hi >= n, n), (-1, lo < -back, back + 1)):
        for point in (*_corners(hull, line, sign), *_nearest(hull, line, sign, limit)) if beyond else ():
            index = hull.index(axis, point)
            if index is None or not hull.runs(point):
                continue
            if not 0 <= (index + back if index < 0 else index) < n:
                return point
    return None


def _corners(hull: Hull, line: Line, sign: int) -> Iterator[Point]:
    yield hull.extreme(line, sign)[1]
    for other in (-1, 1):  # variables that the index does not name: their first value, then their last
        yield {v: hi if (sign * line.terms.get(v, 0) or other) > 0 else lo for v, (lo, hi) in hull.box.items()}


def _nearest(hull: Hull, line: Line, sign: int, limit: int) -> Iterator[Point]:
    """Corner threads, and threads moved from them to where sign * index just reaches `limit` (no overflow yet)."""
    for start in _corners(hull, line, -sign):
        yield start
        for v, c in line.terms.items():
            steps = -((sign * line.at(start) - limit) // abs(c))
            lo, hi = hull.box[v]
            moved = start[v] + (steps if sign * c > 0 else -steps)
            if lo <= moved <= hi:
                yield {**start, v: moved}


def _refusal(function: ir.Function, hull: Hull, axis: int, point: Point, name: str) -> BoundsError:
    access, thread = hull.access, hull.thread(point)
    shape = tuple(int(n) for n in hull.launch.shapes[access.name])
    verb = {Effect.READS: "reads", Effect.WRITES: "writes"}.get(access.effect, "adds to")
    index = hull.index(axis, point)
    n = hull.extent(axis)
    who = thread[0] if len(thread) == 1 else thread
    uses = f"thread {who} uses index {index} on axis {axis}, which has {n} elements."
    text = f"Kernel {function.name!r} {verb} array {name!r} outside its shape {shape}: {uses}"
    why = f"The launch has dim={hull.launch.dims[0] if len(thread) == 1 else hull.launch.dims}."
    instead = f"if <index> < {name}.shape[{axis}]: ...   or a smaller dim"
    return BoundsError(text, slug="bounds", where=access.where, why=why, instead=instead)


class Interior(NamedTuple):
    """Threads [lo, hi) per axis that take the first branch of all `taken`. `whole`: others have no effect."""

    taken: frozenset[ir.Stmt]
    box: Box
    whole: bool


_QUIET = (Effect.PURE, Effect.READS)


def interior(function: ir.Function, launch: LaunchForm, numbers: set[str]) -> Interior | None:
    """A box of threads in which the first branch of some `if`s is always taken: most of the grid.

    Only integer parameters in `numbers` may decide. None where there is nothing to gain.
    """
    every = {("tid", k): (0, d - 1) for k, d in enumerate(launch.dims)}
    box, taken, alone = dict(every), [], {}
    for stmt, guards in decisions(function):
        inside, here = dict(box), dict(every)
        for guard in guards:
            used = {s[1] for s in symbols_in(guard.form) if s[0] == "param"}
            line = launch.line(guard.form)
            if guard.op != "ge" or line is None or not used <= numbers or not exact_in(guard.form, launch, every):
                break
            if not (_cut(line, inside) and _cut(line, here)):
                break
        else:
            if _volume(inside) * 2 > _volume(every):
                box = inside
                taken.append(stmt)
                alone[stmt] = here
    if not taken:
        return None
    doing = [s for s in taken if alone[s] == box]  # all that happens in these happens in the box, and nowhere else
    there = {s for stmt in doing for s in ir.walk(stmt.regions[0]) if s.row.effect not in _QUIET}
    whole = all(s in there for s in ir.walk(function.body) if s.row.effect not in _QUIET)
    return Interior(frozenset(taken), tuple((lo, hi + 1) for lo, hi in box.values()), whole)


def _cut(line: Line, box: dict[Symbol, tuple[int, int]]) -> bool:
    """Intersect `box`, in place, with line >= 0. False if the result is empty or not a box."""
    if not line.terms:
        return line.constant >= 0
    if len(line.terms) > 1:
        return False
    ((v, c),) = line.terms.items()
    if v not in box:
        return False
    lo, hi = box[v]
    box[v] = (max(lo, -(line.constant // c)), hi) if c > 0 else (lo, min(hi, line.constant // -c))
    return box[v][0] <= box[v][1]


def _volume(box: dict[Symbol, tuple[int, int]]) -> int:
    return math.prod(hi - lo + 1 for lo, hi in box.values())
