"""Functions of `wp.utils` that Warp computes in C++, as launches of ours on the twins: the same bits, with a gradient.

Sums are added up in Warp's order, first to last. The permutation of a sort is found on the host, launches apply it.
"""

# The types of the kernel language are values, not types of Python.
# pyright: reportInvalidTypeForm=false

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...arrays.array import array, clone
from ...arrays.creation import zeros
from ...kernels import kernel
from ...kernels.reading.declare import tid
from ...kernels.types import Composite
from ...launches import array_tools
from ...launches.launch import launch
from ...launches.sums import array_inner, array_sum
from .memory import HostWrite, Twins, Untranslated

numbers = array(dtype=Any)
Given = Mapping[str, Any]


@kernel
def scattered(values: numbers, places: array(dtype=int), out: numbers):
    i = tid()
    out[places[i]] = values[i]


def host_write(write: HostWrite) -> None:
    """Apply a host write to a twin."""
    twin, values, places = write
    if places is None:
        twin.assign(values)
    else:
        launch(scattered, places.size, [array(values, dtype=twin.dtype), array(places, dtype=int)], [twin])


def _scan(twins: Twins, g: Given) -> None:
    a, out = _row(twins.array(g["in_array"])), _row(twins.array(g["out_array"]))
    if a.span.overlaps(out.span) is not False:
        a = clone(a)
    if a.size:
        rows = [v.reshape((1, -1)) for v in (a, zeros(1, dtype=a.dtype), out)]
        launch(array_tools.scan_block, (1, 1), [*rows[:2], a.size, bool(g["inclusive"])], rows[2:])


def _sum(twins: Twins, g: Given) -> None:
    rows, out = _rows(twins.array(g["values"]), twins.array(g["out"]), g["axis"], g["value_count"])
    array_sum(rows, out, axis=1)


def _inner(twins: Twins, g: Given) -> None:
    a, b, out = (twins.array(g[name]) for name in ("a", "b", "out"))
    one, made = _rows(a, out, g["axis"], g["count"])
    two, _ = _rows(b, out, g["axis"], g["count"])
    if isinstance(a.dtype, Composite):
        if len(a.dtype.shape) > 1:
            raise Untranslated(f"array_inner of {a.dtype}")
        one, two = (rows.contiguous().view(a.dtype.scalar).reshape((len(rows), -1)) for rows in (one, two))
    array_inner(one, two, made, axis=1)


def _sort(twins: Twins, g: Given) -> None:
    keys, values, count = twins.array(g["keys"]), twins.array(g["values"]), g["count"]
    array_tools.radix_sort_pairs(keys, values, count, g["begin_bit"], g["end_bit"])
    _scratch(g, keys, values, count)


def _sort_segments(twins: Twins, g: Given) -> None:
    keys, values, starts = (twins.array(g[name]) for name in ("keys", "values", "segment_start_indices"))
    ends = g["segment_end_indices"]
    array_tools.segmented_sort_pairs(keys, values, g["count"], starts, None if ends is None else twins.array(ends))
    _scratch(g, keys, values, g["count"])


def _scratch(g: Given, keys: array, values: array, count: int) -> None:
    """Copy Warp's scratch data behind the sorted elements to the twins, as a host write."""
    for name, twin in (("keys", keys), ("values", values)):
        rest = np.array(g[name].numpy()[count : 2 * count])
        if len(rest) and not np.array_equal(rest, twin[count : 2 * count].numpy()):
            twin[count : 2 * count].assign(rest)


def _encode(twins: Twins, g: Given) -> None:
    values, runs, lengths = (twins.array(g[name]) for name in ("values", "run_values", "run_lengths"))
    count = None if g["run_count"] is None else twins.array(g["run_count"])[:1]
    array_tools.runlength_encode(values, runs, lengths, count, g["value_count"])


def _row(a: array) -> array:
    return a if a.ndim == 1 else a.flatten()


def _rows(a: array, out: array, axis: int | None, count: int | None) -> tuple[array, array]:
    """(`a` as rows of what is to be added up, shape (rows, count), `out` as (rows, 1)).

    Raises Untranslated if an array is not contiguous, or there is nothing to reduce.
    """
    whole = a.size if axis is None else a.shape[axis]
    count = whole if count is None else count
    if not (a.is_contiguous and out.is_contiguous) or not 0 < count <= whole:
        raise Untranslated("a reduction of an array that does not lie in one piece, or of nothing")
    if axis is not None and a.ndim > 1:
        a = a.transpose([*(k for k in range(a.ndim) if k != axis % a.ndim), axis % a.ndim]).contiguous()
    rows = a.flatten().reshape((-1, whole))[:, :count]
    return rows, out.flatten()[: len(rows)].reshape((len(rows), 1))


NATIVE: dict[str, Callable[[Twins, Given], None]] = {
    "array_scan": _scan,
    "array_sum": _sum,
    "array_inner": _inner,
    "radix_sort_pairs": _sort,
    "segmented_sort_pairs": _sort_segments,
    "runlength_encode": _encode,
    "array_cast": lambda twins, g: array_tools.array_cast(
        twins.array(g["in_array"]), twins.array(g["out_array"]), g["count"]
    ),
}


def given_to(function: Callable[..., Any], args: tuple, kwargs: dict) -> dict[str, Any]:
    """The arguments of a call by name, those with defaults too. Raises TypeError where they do not fit."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)
