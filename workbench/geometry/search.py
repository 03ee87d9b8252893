"""Binary search in sorted arrays, and random numbers that take a search or a loop to draw."""

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


@library()
def log_factorial(k: float):
    """log(k!) by Stirling's series, from k + 8 down."""
    x = k + 8.0
    square = 1.0 / (x * x)
    series = 0.083333333 - square * (0.0027777778 - square * (0.00079365079 - square * 0.00059523810))
    product = (k + 1.0) * (k + 2.0) * (k + 3.0) * (k + 4.0)
    rest = (k + 5.0) * (k + 6.0) * (k + 7.0)
    return (x - 0.5) * wb.log(x) - x + 0.9189385 + series / x - wb.log(product) - wb.log(rest)


@library("state")
def poisson(state: wb.uint32, lam: float):
    """poisson(state: uint32, lam: float) -> uint32: how many events there are where lam are expected.

    `state` is a local variable, which is bound to the next state. Up to lam = 10 by products of uniform numbers
    (Knuth), above by transformed rejection (Hörmann, The transformed rejection method for generating Poisson random
    variables, 1993). The number drawn has no derivative.

    >>> @wb.kernel
    ... def draw(n: wb.array[wb.uint32]):
    ...     i = wb.tid()
    ...     state = wb.rand_init(42, i)
    ...     n[i] = wb.poisson(state, 3.0)
    >>> n = wb.zeros(1000, dtype=wb.uint32)
    >>> wb.launch(draw, 1000, [n])
    >>> bool(abs(n.numpy().mean() - 3.0) < 0.3)
    True
    """
    lam = wb.detach(lam)
    found = 0.0
    if lam >= 10.0:
        root = wb.sqrt(lam)
        b = 0.931 + 2.53 * root
        a = -0.059 + 0.02483 * b
        inverse = 1.1239 + 1.1328 / (b - 3.4)
        sure = 0.9277 - 3.6224 / (b - 2.0)
        going = True
        while going:
            u = wb.randf(state) - 0.5
            v = wb.randf(state)
            side = 0.5 - wb.abs(u)
            found = wb.floor((2.0 * a / side + b) * u + lam + 0.43)
            if side >= 0.07 and v <= sure:
                going = False
            elif found >= 0.0 and (side >= 0.013 or v <= side):
                bound = found * wb.log(lam) - lam - log_factorial(found)
                going = wb.log(v) + wb.log(inverse) - wb.log(a / (side * side) + b) > bound
    elif lam > 0.0:
        least = wb.exp(-lam)
        product = wb.randf(state)
        while product > least:
            product = product * wb.randf(state)
            found += 1.0
    return wb.uint32(found), state
