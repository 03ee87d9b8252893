"""Functions of whole arrays, with their derivatives: sums and sorting, Fourier transforms, dense systems, grids.

What adds up or moves numbers is a launch. What NumPy and SciPy compute, on the host, is a custom op, whose rules are
ops and launches again: first and second derivatives are exact. Results are new arrays; on a GPU, what an op takes and
gives travels. Captures and `jit` call the ops again in each replay; pickles refuse them: only `scan`, `interpolate` and
sums go into these. Arguments that do not fit raise LaunchError [numerics], [axis].
"""

# The types of the kernel language are values, not types of Python.
# pyright: reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from ..arrays import allocation as memory
from ..arrays.array import array
from ..arrays.creation import copy, zeros
from ..arrays.dtypes import inner_shape, scalar_in
from ..errors import LaunchError
from ..kernels import kernel, ops
from ..kernels.reading.declare import tid
from ..kernels.types import Scalar, float32, float64, int32, is_float, vector
from ..launches.array_tools import flat, gathered, scan_rows
from ..launches.launch import launch, through
from ..launches.sums import array_sum
from ..tapes.custom_op import CustomOp

__all__ = ["cholesky", "fft", "ifft", "interpolate", "inverse", "irfft", "lower_bound", "reduce", "rfft", "scan"]
__all__ += ["solve", "sort"]
__dir__ = __all__.copy
numbers, rows_of = array(dtype=Any), array(dtype=Any, ndim=2)
below, least, most = ops.BUILTINS["floor"], ops.BUILTINS["min"], ops.BUILTINS["max"]
detach = ops.BUILTINS["detach"]
# weights of the points around, as polynomials of the place between two
LINEAR = [[1, -1, 0, 0], [0, 1, 0, 0]]
CUBIC = [[0, -0.5, 1, -0.5], [1, 0, -2.5, 1.5], [0, 0.5, 2, -1.5], [0, 0, -0.5, 0.5]]


def _check(name: str, fits: bool, takes: str, *given: object) -> None:
    if not fits:
        got = " and ".join(f"{a.dtype} of shape {a.shape}" if isinstance(a, array) else repr(a) for a in given)
        raise LaunchError(f"{name}() of {got}.", slug="numerics", where=memory.caller_where(), why=f"It takes {takes}.")


def _floats(a: object, ndim: int = 1) -> bool:
    """True for an array of what NumPy's FFTs and LAPACK compute with."""
    return isinstance(a, array) and a.dtype in (float32, float64) and a.ndim >= ndim and a.size > 0


def _axis(name: str, axis: int, ndim: int) -> int:
    """The axis, counted from the first one."""
    if not -ndim <= axis < ndim:
        text = f"{name}(axis={axis}) of {ndim} axes"
        raise LaunchError(text, slug="axis", where=memory.caller_where(), instead=f"axis={ndim - 1}")
    return axis % ndim


# ---- along an axis


def _rows(name: str, a: array, axis: int, real: bool) -> tuple[array, Callable[[array], array]]:
    """(the array as rows along its axis, what turns rows back to its shape)."""
    fits = isinstance(a, array) and a.size > 0 and (isinstance(a.dtype, Scalar) or not real)
    _check(name, fits, "an array of numbers, with elements", a)
    axis = _axis(name, axis, a.ndim)
    order = [*(k for k in range(a.ndim) if k != axis), axis]
    turned, back = a.transpose(order).contiguous(), [order.index(k) for k in range(a.ndim)]
    return turned.reshape((-1, a.shape[axis])), lambda r: r.reshape(turned.shape).transpose(back).contiguous()


def _gathered(rows: array, places: array) -> array:
    out = zeros(places.shape, rows.dtype, rows.device)
    launch(gathered, out.size, [rows.flatten(), places.flatten()], [out.flatten()])
    return out


def _found(rows: np.ndarray, find: Callable[..., np.ndarray], **how: Any) -> np.ndarray:
    """The indices that `find` gives for each row, as places in the memory of all rows."""
    starts = np.arange(len(rows))[:, None] * rows.shape[1]
    return (find(rows, axis=1, **how).reshape(len(rows), -1) + starts).astype(np.int32)


# Indices have no derivative: these need no rules.
_order = CustomOp(lambda rows: _found(rows, np.argsort, kind="stable"), "sort")
_extreme = CustomOp(lambda rows, op: _found(rows, np.argmin if op == "min" else np.argmax), "reduce")
_searched = CustomOp(lambda a, values: np.searchsorted(a, values).astype(np.int32), "lower_bound")


@through
def scan(a: array, inclusive: bool = True, axis: int = -1) -> array:
    """Running sums along an axis: of all up to an element, or without `inclusive` of those before it.

    a   numbers or vectors, of any shape. Returns an array like it.

    >>> wb.numerics.scan(wb.array([1.0, 2.0, 3.0]), inclusive=False).list() == [0, 1, 3]
    True
    """
    rows, back = _rows("scan", a, axis, False)
    out = zeros(rows.shape, a.dtype, a.device)
    scan_rows(rows, out, inclusive)
    return back(out)


@through
def sort(a: array, axis: int = -1) -> array:
    """The numbers of each line along an axis, rising; equal ones keep their order, NaN comes last.

    The gradient of an element goes to where it came from: exact, but it jumps where two change places.

    >>> x = wb.array([3.0, 1.0, 2.0], requires_grad=True)
    >>> with wb.Tape() as tape:
    ...     y = wb.numerics.sort(x)
    >>> tape.backward(grads={y: wb.array([10.0, 20.0, 30.0])})
    >>> y.list() == [1, 2, 3], x.grad.list() == [30, 10, 20]
    (True, True)
    """
    rows, back = _rows("sort", a, axis, True)
    return back(_gathered(rows, _order(rows)))


@through
def reduce(a: array, op: str = "sum", axis: int | None = None) -> array:
    """The "sum", "mean", "min" or "max" of all elements, an array of one, or of each line along an axis, which goes.

    a   numbers; of sums and means vectors too. The gradient of an extreme goes to the first element that is one (NaN
        is one). Of one axis the result has one element. Raises LaunchError [int-division] for means of whole numbers.

    >>> wb.numerics.reduce(wb.array([[1.0, 4.0], [3.0, 2.0]]), "max", axis=1).list() == [4, 3]
    True
    """
    _check("reduce", op in ("sum", "mean", "min", "max"), '"sum", "mean", "min" or "max"', op)
    given = a if axis is not None or not isinstance(a, array) else a.contiguous().flatten()
    rows, _ = _rows("reduce", given, axis or 0, op in ("min", "max"))
    shape = (1,) if given.ndim == 1 else tuple(np.delete(a.shape, axis or 0).tolist())
    if op in ("min", "max"):
        return _gathered(rows, _extreme(rows, op)).reshape(shape)
    total = (
        array_sum(rows, axis=1).reshape(shape) if len(rows) > 1 else array_sum(rows, out=zeros(1, a.dtype, a.device))
    )
    return total / float(rows.shape[1]) if op == "mean" else total


@through
def lower_bound(a: array, values: array) -> array:
    """For each of `values` the first index with a[i] >= value, as whole numbers; the length of `a` if there is none.

    `a` rises, along one axis; both are numbers. An index has no derivative. `wb.lower_bound` is the one in kernels.

    >>> wb.numerics.lower_bound(wb.array([1.0, 2.0, 4.0]), wb.array([0.0, 2.0, 9.0])).list() == [0, 1, 3]
    True
    """
    fits = all(isinstance(x, array) and isinstance(x.dtype, Scalar) for x in (a, values)) and a.ndim == 1
    _check("lower_bound", fits, "numbers that rise along one axis, and numbers", a, values)
    return _searched(a, values)


# ---- Fourier transforms, by SciPy


def _fft(pairs: np.ndarray, axis: int, inverse: bool, norm: str = "backward") -> np.ndarray:
    from scipy import fft  # when it is called: it takes a while to load

    z = pairs[..., 0] + 1j * pairs[..., 1]
    found: Any = (fft.ifft if inverse else fft.fft)(z, axis=axis, norm=norm)
    return np.stack((found.real, found.imag), -1)


_fourier = CustomOp(
    _fft,
    "fft",
    lambda z, axis, inverse, y, g: _fft(g, axis, not inverse, "forward"),
    lambda z, axis, inverse, y, dz: _fourier(dz, axis, inverse),
)


def _transformed(name: str, z: array, axis: int, inverse: bool) -> array:
    _check_pairs(name, z)
    return _fourier(z, _axis(name, axis, z.ndim - 1), inverse)


def _check_pairs(name: str, z: array) -> None:
    _check(name, _floats(z, 2) and z.shape[-1] == 2, "pairs of float32 or float64 along the last axis, at least one", z)


def _part(axis: int, start: int, end: int) -> tuple[slice, ...]:
    return *[slice(None)] * axis, slice(start, end)


@through
def fft(z: array, axis: int = -1) -> array:
    """The discrete Fourier transform along an axis, as `scipy.fft.fft`; of several axes, one after the other.

    z   complex numbers: floats in pairs (real, imaginary) along a last axis of 2, which `axis` does not count; the
        result is like it. `.view(wb.vec2)` makes vectors of it.

    >>> wb.numerics.fft(wb.array([[1.0, 0.0], [0.0, 1.0]])).numpy().tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    return _transformed("fft", z, axis, False)


@through
def ifft(z: array, axis: int = -1) -> array:
    """The inverse of `fft`, with its arguments.

    >>> wb.numerics.ifft(wb.numerics.fft(wb.array([[1.0, 0.0], [0.0, 1.0]]))).numpy().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return _transformed("ifft", z, axis, True)


@through
def rfft(a: array, axis: int = -1) -> array:
    """The Fourier transform of a real array, for the n // 2 + 1 frequencies from 0 on: pairs, as of `fft`.

    >>> wb.numerics.rfft(wb.array([1.0, 2.0, 3.0, 2.0])).numpy().tolist()
    [[8.0, 0.0], [-2.0, 0.0], [0.0, 0.0]]
    """
    _check("rfft", _floats(a), "an array of float32 or float64, with elements", a)
    axis, z = _axis("rfft", axis, a.ndim), zeros((*a.shape, 2), a.dtype, a.device).zero_()  # recorded, as no leaf
    copy(z[..., 0], a)
    return _transformed("rfft", z, axis, False)[_part(axis, 0, a.shape[axis] // 2 + 1)].contiguous()


@through
def irfft(z: array, n: int | None = None, axis: int = -1) -> array:
    """The inverse of `rfft`: n real numbers along the axis, of n // 2 + 1 pairs; by default an even number.

    >>> wb.numerics.irfft(wb.numerics.rfft(wb.array([1.0, 2.0, 4.0])), n=3).numpy().round(6).tolist()
    [1.0, 2.0, 4.0]
    """
    _check_pairs("irfft", z)
    axis = _axis("irfft", axis, z.ndim - 1)
    n = 2 * (z.shape[axis] - 1) if n is None else n
    _check("irfft", n > 0 and n // 2 + 1 == z.shape[axis], f"n // 2 + 1 pairs for n = {n} numbers", z)
    whole = zeros((*z.shape[:axis], n, *z.shape[axis + 1 :]), z.dtype, z.device).zero_()
    copy(whole[_part(axis, 0, z.shape[axis])], z)
    inner = whole[_part(axis, 1, (n + 1) // 2)]
    inner *= 2.0  # each stands for its conjugate too: what is real of the transform is the same
    return _transformed("irfft", whole, axis, True)[..., 0].contiguous()


# ---- dense systems, by LAPACK


def _turned(a: Any) -> Any:
    """The transposed matrices, of NumPy or ours, as a view."""
    return a.transpose([*range(a.ndim - 2), a.ndim - 1, a.ndim - 2])


def _lower_half(A: Any) -> np.ndarray:
    """Factors that leave of matrices like A the lower triangle, with half of the diagonal."""
    n = A.shape[-1]
    return np.broadcast_to(np.tril(np.ones((n, n))) - np.eye(n) / 2, A.shape)


def _solve_back(A: np.ndarray, _: np.ndarray, x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left = np.linalg.solve(_turned(A), g)
    return -left @ _turned(x), left


def _cholesky_back(A: np.ndarray, L: np.ndarray, g: np.ndarray) -> np.ndarray:
    back = _turned(L)
    found = np.linalg.solve(back, _turned(np.linalg.solve(back, back @ np.tril(g) * _lower_half(g))))
    return (found + _turned(found)) / 2


def _cholesky_along(A: array, L: array, dA: array) -> array:
    both = _solved(L, _turned(_solved(L, (dA + _turned(dA)) * 0.5)))
    return _product(L, both * _lower_half(L))


_product = CustomOp(
    lambda a, b: a @ b,
    "product",
    lambda a, b, y, g: (g @ _turned(b), _turned(a) @ g),
    lambda a, b, y, da, db: _product(da, b) + _product(a, db),
)
_solved = CustomOp(np.linalg.solve, "solve", _solve_back, lambda A, b, x, dA, db: _solved(A, db - _product(dA, x)))
_factored = CustomOp(lambda A: np.linalg.cholesky((A + _turned(A)) / 2), "cholesky", _cholesky_back, _cholesky_along)


def _check_square(name: str, A: array) -> None:
    _check(name, _floats(A, 2) and A.shape[-1] == A.shape[-2], "float32 or float64 of shape (..., n, n), not empty", A)


def _dense(name: str, op: CustomOp, A: array, *b: array) -> array:
    """The op of square matrices. Raises LaunchError [numerics]."""
    try:
        return op(A, *b)
    except LinAlgError as e:
        raise LaunchError(f"{name}(): {e}.", slug="numerics", where=memory.caller_where()) from None


@through
def solve(A: array, b: array) -> array:
    """The x of A x = b, of shape and dtype of b: dense systems by LU, any number at once.

    A   floats of shape (..., n, n); b of shape (..., n), or (..., n, m) with m right sides for each system. For one
    large or sparse system there are `wb.optim.linear.lu` and `cg`. A singular matrix raises LaunchError [numerics].

    >>> A = wb.array([[2.0, 0.0], [0.0, 4.0]], requires_grad=True)
    >>> with wb.Tape() as tape:
    ...     x = wb.numerics.solve(A, wb.array([2.0, 2.0]))
    >>> tape.backward(grads={x: wb.array([1.0, 1.0])})
    >>> x.list(), A.grad.numpy().tolist()  # -A^-T g x^T
    ([1.0, 0.5], [[-0.5, -0.25], [-0.25, -0.125]])
    """
    _check_square("solve", A)
    fits = isinstance(b, array) and b.dtype == A.dtype and A.shape[:-1] in (b.shape, b.shape[:-1])
    _check("solve", fits, "floats of shape (..., n, n), and of (..., n) or (..., n, m)", A, b)
    columns = b if b.ndim == A.ndim else b.contiguous().reshape((*b.shape, 1))
    return _dense("solve", _solved, A, columns).reshape(b.shape)


@through
def inverse(A: array) -> array:
    """The inverses of floats of shape (..., n, n). To A^-1 b `solve` is the better way.

    >>> wb.numerics.inverse(wb.array([[2.0, 0.0], [0.0, 4.0]])).numpy().tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    _check_square("inverse", A)
    with memory.unrecorded():
        one = array(np.broadcast_to(np.eye(A.shape[-1]), A.shape), dtype=A.dtype, device=A.device)
    return _dense("inverse", _solved, A, one)


@through
def cholesky(A: array) -> array:
    """The lower triangles L with L L^T = (A + A^T) / 2, for floats of shape (..., n, n): positive definite matrices.

    So both halves of A count, and have the same gradient (Murray, "Differentiation of the Cholesky decomposition",
    2016). A matrix that is not positive definite raises LaunchError [numerics].

    >>> wb.numerics.cholesky(wb.array([[4.0, 2.0], [2.0, 5.0]])).numpy().tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    _check_square("cholesky", A)
    return _dense("cholesky", _factored, A)


# ---- grids


@kernel
def interpolated(values: numbers, sizes: Any, x: numbers, table: rows_of, out: numbers):
    """out[i] = the values around place i, weighted by polynomials of where it lies between them."""
    i = tid()
    taps, d, count = table.shape[0], len(sizes), 1
    for _ in range(d):
        count *= taps
    total = type(values[0])(0)
    for k in range(count):
        weight, at, rest = type(x[0])(1), 0, k
        for j in range(d):
            place = least(most(x[i * d + j], type(x[0])(0)), type(x[0])(sizes[j] - 1))
            cell = most(least(int(below(detach(place))), sizes[j] - 2), 0)
            s, tap = place - type(place)(cell), rest % taps
            rest = rest // taps
            weight *= ((table[tap, 3] * s + table[tap, 2]) * s + table[tap, 1]) * s + table[tap, 0]
            at = at * sizes[j] + most(least(cell + tap + 1 - taps // 2, sizes[j] - 1), 0)
        total += values[at] * weight
    out[i] = total


@through
def interpolate(values: array, positions: array, order: int = 1) -> array:
    """Values on a regular grid of 1 to 3 axes between its points, with gradients by the values and by the positions.

    values      floats or vectors, one for each point of the grid.
    positions   in steps of the grid, from 0 to size - 1 along each axis, and moved there if outside: floats of shape
                (n,) for one axis; (n, d), or n vectors of d, for d axes; of the scalar type of the values.
    order       1: linear along each axis, as `scipy.ndimage.map_coordinates(order=1, mode="nearest")`; its slope jumps
                at the points, where that to the right counts. 3: cubic convolution, with a continuous slope (Keys 1981,
                a = -1/2); values outside of the grid are those of its edge.
    Returns n values.

    >>> wb.numerics.interpolate(wb.array([0.0, 10.0, 40.0]), wb.array([0.5, 1.5])).list()
    [5.0, 25.0]
    """
    grid = isinstance(values, array) and is_float(values.dtype) and 0 < values.ndim < 4 and values.size > 0
    _check("interpolate", grid and order in (1, 3), "floats on a grid of 1 to 3 axes, and order=1 or 3", values, order)
    real, d = scalar_in(values.dtype), values.ndim
    shape: list[int] = [*positions.shape, *inner_shape(positions.dtype)] if isinstance(positions, array) else []
    fits = (shape[1:] == [d] or (d == 1 and len(shape) == 1)) and scalar_in(positions.dtype) is real
    _check("interpolate", fits, f"{real} of shape (n, {d}) as positions", positions)
    with memory.unrecorded():
        weights = array(LINEAR if order == 1 else CUBIC, dtype=real, device=values.device)
        out = zeros(shape[0], values.dtype, values.device)
    sizes, places = vector(d, int32)(*values.shape), flat(positions.contiguous())
    launch(interpolated, shape[0], [values.contiguous().flatten(), sizes, places, weights], [out])
    return out
