"""Memory known to hold NaN or infinity: in the bytes that the tape kept, and in its final contents."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...arrays.allocation import Allocation
from ...arrays.grouping import grouped
from ...device import on_host
from ...kernels.types import is_float
from ...tapes.tape import Tape
from .snapshot import present
from .trace import ValueLevel

_Part = tuple[Allocation, int, int, int, np.ndarray]  # memory, its bytes, a moment, and the numbers there


def non_finite_values(tape: Tape) -> list[ValueLevel]:
    """The ranges known to hold NaN or infinity, each with the moment before which they did."""
    found = []
    for a, low, high, moment, numbers in _parts(tape):
        if not np.isfinite(numbers).all():
            nan, inf = np.isnan(numbers), np.isinf(numbers)
            share = float((nan | inf).mean())
            found.append(ValueLevel(str(a), low, high, moment, bool(nan.any()), bool(inf.any()), share))
    return found


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
    types = ((x.allocation, x.dtype) for x in tape.arrays.values())
    found = grouped((a, getattr(dtype, "scalar", None) if is_float(dtype) else None) for a, dtype in types)
    return {a: np.dtype(first.numpy) for a, (first, *more) in found.items() if first is not None and {*more} <= {first}}
