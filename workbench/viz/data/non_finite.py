"""Memory known to hold NaN or infinity: in the bytes that the tape kept, and in its final contents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...arrays.allocation import Allocation
from ...device import on_host
from ...kernels.types import Scalar, is_float
from ...tapes.tape import Tape
from .snapshot import present
from .trace import ValueLevel

AT_ONCE = 1 << 20  # numbers that are looked at together
_Part = tuple[Allocation, int, int, int, np.ndarray]  # memory, its bytes, a moment, and the numbers there


def non_finite_values(tape: Tape) -> list[ValueLevel]:
    """The ranges known to hold NaN or infinity, each with the moment before which they did."""
    found: list[ValueLevel] = []
    batches: dict[Any, list[_Part]] = {}
    sizes: dict[Any, int] = {}
    for part in _parts(tape):
        dtype = part[4].dtype
        batches.setdefault(dtype, []).append(part)
        sizes[dtype] = sizes.get(dtype, 0) + part[4].size
        if sizes[dtype] >= AT_ONCE:
            found += _ill(batches.pop(dtype))
            sizes[dtype] = 0
    for batch in batches.values():
        found += _ill(batch)
    return found


def _ill(parts: list[_Part]) -> Iterator[ValueLevel]:
    whole = np.concatenate([part[4] for part in parts]) if len(parts) > 1 else parts[0][4]
    if np.isfinite(whole).all():
        return
    starts = np.cumsum([0, *(part[4].size for part in parts[:-1])])
    nan, inf = (np.logical_or.reduceat(there, starts) for there in (np.isnan(whole), np.isinf(whole)))
    for k in np.flatnonzero(nan | inf):
        a, low, high, moment, numbers = parts[k]
        yield ValueLevel(str(a), low, high, moment, bool(nan[k]), bool(inf[k]), float((~np.isfinite(numbers)).mean()))


def _parts(tape: Tape) -> Iterator[_Part]:
    dtypes = _dtypes(tape)
    for n, event in enumerate(tape.events):
        for kept in event.kept:
            dtype = dtypes.get(kept.span.allocation)
            if dtype is not None:
                data = np.ascontiguousarray(on_host(kept.data)).view(np.uint8).reshape(-1)
                if data.size and data.size % dtype.itemsize == 0:
                    yield kept.span.allocation, *kept.span.hull(), n, data.view(dtype)
    for a, dtype in dtypes.items():
        data, known, _ = present(tape, a)
        size = len(data) // dtype.itemsize * dtype.itemsize
        if size and known.all():
            yield a, 0, size, len(tape.events), data[:size].view(dtype)


def _dtypes(tape: Tape) -> dict[Allocation, np.dtype]:
    """The dtype of each memory that holds floats only."""
    found: dict[Allocation, set[Scalar | None]] = {}
    for x in tape.arrays.values():
        scalar = getattr(x.dtype, "scalar", None) if is_float(x.dtype) else None
        found.setdefault(x.allocation, set()).add(scalar)
    single = {a: next(iter(scalars)) for a, scalars in found.items() if len(scalars) == 1}
    return {a: np.dtype(scalar.numpy) for a, scalar in single.items() if scalar is not None}
