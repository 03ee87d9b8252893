"""Functions of whole arrays that programs for Warp use: running sums, sorting by keys, runs, casts.

Target indices are found on the host or in integers; the values are moved by launches, so gradients pass.
"""

# The types of the kernel language are values, not types of Python.
# pyright: reportInvalidTypeForm=false

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import capture_log
from ..arrays.array import array, clone
from ..arrays.creation import zeros
from ..arrays.dtypes import inner_shape
from ..errors import LaunchError
from ..kernels import kernel, ops
from ..kernels.reading.declare import tid
from ..kernels.types import Composite, Scalar, Struct, is_int
from .launch import launch

BLOCK = 256  # elements that one thread adds up
numbers, indices, rows = array(dtype=Any), array(dtype=int), array(dtype=Any, ndim=2)
least = ops.BUILTINS["min"]


@kernel
def block_sums(a: rows, block: int, sums: rows):
    r, b = tid()
    total = type(a[r, 0])(0)
    for i in range(b * block, least((b + 1) * block, a.shape[1])):
        total += a[r, i]
    sums[r, b] = total


@kernel
def scan_sums(sums: rows, before: rows):
    r = tid()
    total = type(sums[r, 0])(0)
    for b in range(sums.shape[1]):
        before[r, b] = total
        total += sums[r, b]


@kernel
def scan_block(a: rows, before: rows, block: int, inclusive: bool, out: rows):
    r, b = tid()
    total = before[r, b]
    for i in range(b * block, least((b + 1) * block, a.shape[1])):
        if inclusive:
            total += a[r, i]
            out[r, i] = total
        else:
            out[r, i] = total
            total += a[r, i]


@kernel
def gathered(a: numbers, order: indices, out: numbers):
    i = tid()
    out[i] = a[order[i]]


@kernel
def converted(a: numbers, out: numbers):
    i = tid()
    out[i] = type(out[i])(a[i])


def _refuse(what: str, why: str, instead: str) -> LaunchError:
    return LaunchError(f"{what}: {why}", slug="array-tool", instead=instead)


def array_scan(in_array: array, out_array: array, inclusive: bool = True) -> None:
    """out[i] = in[0] + ... + in[i], without in[i] if not `inclusive`; one axis, of numbers. Differentiable.

    >>> out = wb.zeros(3, dtype=int)
    >>> wb.utils.array_scan(wb.array([1, 2, 3]), out, inclusive=False)
    >>> out.list()
    [0, 1, 3]
    """
    for a in (in_array, out_array):
        if not isinstance(a, array) or a.ndim != 1 or not isinstance(a.dtype, Scalar):
            raise _refuse("array_scan", "takes arrays of numbers, of one axis.", "wb.zeros(n, dtype=int)")
    if in_array.dtype != out_array.dtype or in_array.shape != out_array.shape:
        raise _refuse("array_scan", "in and out differ in dtype or shape.", "out = wb.zeros_like(in)")
    if in_array.span.overlaps(out_array.span) is not False:
        in_array = clone(in_array)
    scan_rows(in_array.reshape((1, -1)), out_array.reshape((1, -1)), inclusive)


def scan_rows(a: array, out: array, inclusive: bool) -> None:
    """`array_scan` of each row."""
    if not a.size:
        return
    many = a.shape[0], -(-a.shape[1] // BLOCK)
    sums, before = (zeros(many, a.dtype, a.device) for _ in range(2))
    launch(block_sums, many, [a, BLOCK], [sums])
    launch(scan_sums, many[0], [sums], [before])
    launch(scan_block, many, [a, before, BLOCK, bool(inclusive)], [out])


def _permuted(order: np.ndarray, *arrays: array) -> None:
    for a in arrays:
        part = a[: len(order)]
        launch(gathered, len(order), [clone(part), array(order, int, device=a.device)], [part])


def _pairs(what: str, keys: array, values: array, count: int) -> np.ndarray:
    capture_log.refuse(f"{what}()", "sorting outside of the capture, between two captures")
    for a in (keys, values):
        if not isinstance(a, array) or a.ndim != 1 or a.size < count:
            raise _refuse(what, f"takes arrays of one axis, at least {count} elements.", "wb.zeros(2 * n, dtype=int)")
    return np.array(keys[:count].list(), keys.dtype.numpy)


def radix_sort_pairs(keys: array, values: array, count: int, begin_bit: int = 0, end_bit: int | None = None) -> None:
    """Sort the first `count` keys, and move the values with them; equal keys keep their order.

    Keys are whole numbers or floats. The order has no derivative, what is moved has. Arrays of twice the length, as
    Warp wants them, are taken; the second half is left alone. Raises LaunchError [array-tool], [capture].

    >>> keys, values = wb.array([3, 1, 2]), wb.array([30.0, 10.0, 20.0])
    >>> wb.utils.radix_sort_pairs(keys, values, 3)
    >>> values.numpy()
    array([10., 20., 30.], dtype=float32)
    """
    found = _pairs("radix_sort_pairs", keys, values, count)
    bits = found.dtype.itemsize * 8
    if begin_bit or (end_bit or bits) != bits:
        if found.dtype.kind not in "iu":
            raise _refuse("radix_sort_pairs", "bits of floats are not sorted by.", "begin_bit=0, end_bit=None")
        mask = np.uint64((1 << ((end_bit or bits) - begin_bit)) - 1)
        found = (found.astype(np.uint64) >> np.uint64(begin_bit)) & mask
    _permuted(np.argsort(found, kind="stable").astype(np.int32), keys, values)


def segmented_sort_pairs(
    keys: array, values: array, count: int, segment_start_indices: array, segment_end_indices: array | None = None
) -> None:
    """`radix_sort_pairs` within each segment [start, end); without ends a segment ends where the next starts.

    >>> keys, values = wb.array([2, 1, 9, 3]), wb.array([0, 1, 2, 3])
    >>> wb.utils.segmented_sort_pairs(keys, values, 4, wb.array([0, 2, 4]))
    >>> keys.list()
    [1, 2, 3, 9]
    """
    found = _pairs("segmented_sort_pairs", keys, values, count)
    starts = np.array(segment_start_indices.list(), np.int64)
    ends = starts[1:] if segment_end_indices is None else np.array(segment_end_indices.list(), np.int64)
    order = np.arange(count, dtype=np.int32)
    for a, b in zip(starts, ends, strict=False):
        order[a:b] = a + np.argsort(found[a:b], kind="stable")
    _permuted(order, keys, values)


def runlength_encode(
    values: array, run_values: array, run_lengths: array, run_count: array | None = None, value_count: int | None = None
) -> Any:
    """The value and the length of every run of equal whole numbers. Returns how many runs, or `run_count` with that.

    >>> runs, lengths = wb.zeros(4, dtype=int), wb.zeros(4, dtype=int)
    >>> wb.utils.runlength_encode(wb.array([5, 5, 7, 5]), runs, lengths)
    3
    """
    capture_log.refuse("runlength_encode()", "the same line outside of the capture")
    for a in (values, run_values, run_lengths):
        if not is_int(a.dtype):  # floats would be cut, and their gradient be zero
            raise _refuse("runlength_encode", f"{a.dtype}: runs are of whole numbers.", "arrays of dtype=int")
    n = values.size if value_count is None else value_count
    found = np.array(values[:n].list(), np.int64)
    first = np.flatnonzero(np.diff(found, prepend=found[:1] - 1)) if n else np.zeros(0, int)
    if run_values.size < len(first) or run_lengths.size < len(first):
        raise _refuse("runlength_encode", f"{len(first)} runs do not fit.", f"wb.zeros({n}, dtype=int)")
    if len(first):
        run_values[: len(first)].assign(found[first].astype(run_values.dtype.numpy))
        run_lengths[: len(first)].assign(np.diff(first, append=n).astype(run_lengths.dtype.numpy))
    if run_count is None:
        return len(first)
    return run_count.assign(np.array([len(first)], run_count.dtype.numpy))


def array_cast(in_array: array, out_array: array, count: int | None = None) -> None:
    """out = in, converted to the dtype of out: numbers, or vectors and matrices of one shape. Differentiable.

    >>> out = wb.zeros(2, dtype=wb.float64)
    >>> wb.utils.array_cast(wb.array([1, 2]), out)
    >>> out.list()
    [1.0, 2.0]
    """
    structs = isinstance(in_array.dtype, Struct) or isinstance(out_array.dtype, Struct)
    if structs or inner_shape(in_array.dtype) != inner_shape(out_array.dtype):
        raise _refuse("array_cast", f"{in_array.dtype} to {out_array.dtype}.", "dtypes of one shape")
    if count is None and in_array.shape != out_array.shape:
        raise _refuse("array_cast", f"shape {in_array.shape} to {out_array.shape}.", "arrays of one shape")
    source, target = ((a if count is None else a.flatten()[:count]) for a in (in_array, out_array))
    if source.span.overlaps(target.span) is not False:
        source = clone(source)
    plain, out = flat(source), flat(target)
    if out.size:
        launch(converted, out.size, [plain], [out])


def flat(a: array) -> array:
    """The numbers of an array as one axis, on its own memory. Raises LaunchError for what is not contiguous."""
    made = a.flatten()
    return made.view(made.dtype.scalar).flatten() if isinstance(made.dtype, Composite) else made
