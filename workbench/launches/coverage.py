"""Which elements a launch surely stores to, whatever the data: for all who must know that nothing old is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..kernels.analysis.accesses import Access, accesses_of
from ..kernels.analysis.hulls import exact_in
from ..kernels.analysis.launch_form import LaunchForm
from ..kernels.ir import Function
from ..kernels.ops.memory import STORE


def stored_boxes(function: Function, form: LaunchForm) -> Iterator[tuple[str, Any]]:
    """(parameter, box) of stores that reach every element of the box; the box is None for the whole array."""
    for access in accesses_of(function):
        if access.stmt.row is STORE and access.certain and not access.guards and not access.loops:
            box = _box(access, form)
            if box is not None:
                yield access.name, None if box == tuple((0, n) for n in form.shapes[access.name]) else box


def _box(access: Access, launch: LaunchForm) -> tuple[tuple[int, int], ...] | None:
    """The box of cells that an access surely visits, if each axis is constant or moves with one tid; else None."""
    threads: Any = {("tid", k): (0, n - 1) for k, n in enumerate(launch.dims)}
    box, used = [], []
    for form in access.indices:
        form = form.settled() if form is not None else None
        line = launch.line(form) if form is not None and exact_in(form, launch, threads) else None
        if line is None or len(line.terms) > 1 or any(s not in threads or abs(c) != 1 for s, c in line.terms.items()):
            return None
        lo, hi = line.hull(threads)
        box.append((lo, hi + 1))
        used += list(line.terms)
    whole = len(box) == access.array.type.ndim  # type: ignore[attr-defined]
    return tuple(box) if whole and len(used) == len(set(used)) and all(0 <= lo < hi for lo, hi in box) else None
