"""Full stores: boxes of elements that a launch surely overwrites, whatever the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..kernels.analysis.accesses import Access, accesses_of
from ..kernels.analysis.hulls import exact_in
from ..kernels.analysis.launch_form import LaunchForm, Line
from ..kernels.ir import Function
from ..kernels.ops.memory import STORE
from ..kernels.types import Array


def stored_boxes(function: Function, form: LaunchForm) -> Iterator[tuple[str, Any]]:
    """Yield (parameter, box) of stores that reach every element of the box; box None: the whole array."""
    for access in accesses_of(function):
        if access.stmt.row is STORE and access.certain:
            box = _box(access, form)
            if box is not None:
                yield access.name, None if box == tuple((0, n) for n in form.shapes[access.name]) else box


def _box(access: Access, launch: LaunchForm) -> tuple[tuple[int, int], ...] | None:
    """The box of cells of which an access surely visits every one; None if threads or loop turns may skip some."""
    variables: Any = {("tid", k): (0, n - 1) for k, n in enumerate(launch.dims)}
    limits = [launch.line(g.form) if g.op == "ge" else None for g in access.guards]
    for turn in access.loops:
        ends = [line.constant // -line.terms[turn] for line in limits if line is not None and _ends(line, turn)]
        if not ends or min(ends) < 0:
            return None
        variables[turn] = (0, min(ends))
    indices = [form.within_type() if form is not None else None for form in access.indices]
    found = [launch.line(i) if i is not None and exact_in(i, launch, variables) else None for i in indices]
    lines = [line for line in found if line is not None and _dense(line, variables)]
    assert isinstance(access.array.type, Array)
    if not len(lines) == len(found) == access.array.type.ndim:
        return None
    used = [v for line in lines for v in line.terms]
    box = [line.hull(variables) for line in lines]
    for guard, limit in zip(access.guards, limits, strict=True):
        if limit is None or not exact_in(guard.form, launch, variables):
            return None
        if any(_ends(limit, turn) for turn in access.loops):
            continue
        # A bound from above keeps a leading part of the cells without gaps, one from below a trailing part.
        falling = {v: -c for v, c in limit.terms.items()}
        cut = next((k for k, line in enumerate(lines) if line.terms and line.terms == falling), None)
        begun = next((k for k, line in enumerate(lines) if line.terms and line.terms == limit.terms), None)
        if cut is not None:
            box[cut] = box[cut][0], min(box[cut][1], limit.constant + lines[cut].constant)
        elif begun is not None:
            box[begun] = max(box[begun][0], lines[begun].constant - limit.constant), box[begun][1]
        elif limit.terms or limit.constant < 0:
            return None
    sure = len(used) == len(set(used)) and all(0 <= lo <= hi for lo, hi in box)
    return tuple((lo, hi + 1) for lo, hi in box) if sure else None


def _ends(limit: Line, turn: Any) -> bool:
    """True for a guard that bounds one loop variable from above by a constant: it gives the trip count."""
    return limit.terms.keys() == {turn} and limit.terms[turn] < 0


def _dense(index: Line, variables: Mapping[Any, tuple[int, int]]) -> bool:
    """True if an index takes every value between its least and largest, as 4 i + k does with k from 0 to 3."""
    span = 0
    for v, c in sorted(index.terms.items(), key=lambda term: abs(term[1])):
        if v not in variables or abs(c) > span + 1:
            return False
        lo, hi = variables[v]
        span += abs(c) * (hi - lo)
    return True
