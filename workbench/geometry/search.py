"""Binary search in sorted arrays, and sampling by it."""

from __future__ import annotations

from ..kernels.reading.library import library
from .language import wb


@library(like={"value": "arr"})
def between(arr: wb.array(dtype=wb.Scalar), arr_begin: int, arr_end: int, value: wb.Scalar):
    low, high = arr_begin, arr_end - 1
    while low < high:
        middle = low + (high - low) // 2
        if arr[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


between.fn.__name__ = "lower_bound"  # as which it is called


@library(other=between, like={"value": "arr"})
def lower_bound(arr: wb.array(dtype=wb.Scalar), value: wb.Scalar):
    """lower_bound(arr: array[T], [begin: int, end: int,] value: T) -> int: the first index with arr[i] >= value.

    `arr` is sorted (upwards); with `begin` and `end` only from begin up to end is looked at. As in Warp the answer is
    end - 1 where all are smaller, and begin where there is nothing to look at. It has no derivative.

    >>> @wb.kernel
    ... def search(x: wb.array[float], y: wb.array[float], n: wb.array[int]):
    ...     i = wb.tid()
    ...     n[i] = wb.lower_bound(x, y[i])
    >>> n = wb.zeros(3, dtype=int)
    >>> wb.launch(search, 3, [wb.array([1.0, 2.0, 4.0]), wb.array([0.0, 2.0, 9.0]), n])
    >>> n
    array([0, 1, 2], dtype=int32, shape=(3,))
    """
    return between(arr, 0, arr.shape[0], value)


@library("state")
def sample_cdf(state: wb.uint32, cdf: wb.array(dtype=float)):
    """sample_cdf(state: uint32, cdf: array[float]) -> int: an index, drawn by the sums of the probabilities.

    `cdf` rises to 1. `state` is a local variable, which is bound to the next state. The index has no derivative.

    >>> @wb.kernel
    ... def draw(cdf: wb.array[float], n: wb.array[int]):
    ...     i = wb.tid()
    ...     state = wb.rand_init(42, i)
    ...     n[i] = wb.sample_cdf(state, cdf)
    >>> n = wb.zeros(1000, dtype=int)
    >>> wb.launch(draw, 1000, [wb.array([0.1, 0.1, 1.0]), n])
    >>> counts = np.bincount(n.numpy())
    >>> bool(counts[1] == 0 and abs(counts[0] - 100) < 40)
    True
    """
    u = wb.randf(state)
    return between(cdf, 0, cdf.shape[0], u), state
