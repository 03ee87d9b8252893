"""Functions of whole arrays, with their derivatives: sums and sorting, Fourier transforms, dense systems, grids.

What adds up or moves numbers is a launch. What NumPy and SciPy compute, on the host, is a custom op, whose rules are ops
and launches again: first and second derivatives are exact. Results are new arrays; on a GPU what an op takes and gives
travels. Captures, `jit` and pickles refuse the ops: only `scan`, `interpolate` and sums go into them.
"""

# The types of the kernel language are values, not types of Python.
# pyright: reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import allocation as memory
from ..arrays.array import array
from ..arrays.creation import zeros
from ..arrays.dtypes import inner_shape, scalar_in
from ..errors import LaunchError
from ..kernels import kernel, ops
from ..kernels.reading.declare import tid
from ..kernels.types import Scalar, int32, is_float, vector
from ..launches.array_tools import array_scan, flat, gathered
from ..launches.launch import launch, through
from ..launches.sums import array_sum
from ..tapes.custom_op import CustomOp, custom_op, with_rules

numbers, table = array(dtype=Any), array(dtype=Any, ndim=2)
below, least, most = ops.BUILTINS["floor"], ops.BUILTINS["min"], ops.BUILTINS["max"]
detach = ops.BUILTINS["detach"]
LINEAR = [[1, -1, 0, 0], [0, 1, 0, 0]]  # weights of the points around as polynomials of the place between two
CUBIC = [[0, -0.5, 1, -0.5], [1, 0, -2.5, 1.5], [0, 0.5, 2, -1.5], [0, 0, -0.5, 0.5]]


def _refuse(name: str, takes: str, got: object, instead: str) -> LaunchError:
    shown = f"{got.dtype} of shape {got.shape}" if isinstance(got, array) else type(got).__name__
    text = f"{name}() takes {takes}, not {shown}."
    return LaunchError(text, slug="numerics", where=memory.caller_where(), instead=instead)


# ---- along an axis


@kernel
def row_scan(a: table, inclusive: bool, out: table):
    i = tid()
    total = type(a[i, 0])(0)
    for j in range(a.shape[1]):
        before = total
        total += a[i, j]
        out[i, j] = total if inclusive else before


def _rows(name: str, a: array, axis: int, real: bool) -> tuple[array, Callable[[array], array]]:
    """(the array as rows along its axis, what turns rows back to its shape)."""
    if not isinstance(a, array) or (real and not isinstance(a.dtype, Scalar)) or a.size == 0:
        raise _refuse(name, "an array of numbers, with elements", a, f"wb.numerics.{name}(wb.array(data))")
    if not -a.ndim <= axis < a.ndim:
        raise LaunchError(f"{name}(axis={axis}) of {a.ndim} axes", slug="axis", instead=f"axis={a.ndim - 1}")
    order = [k for k in range(a.ndim) if k != axis % a.ndim] + [axis % a.ndim]
    turned = a.transpose(order).contiguous()
    back = [order.index(k) for k in range(a.ndim)]
    return turned.reshape((-1, a.shape[axis])), lambda r: r.reshape(turned.shape).transpose(back).contiguous()


def _gathered(rows: array, places: array) -> array:
    out = zeros(places.shape, rows.dtype, rows.device)
    launch(gathered, out.size, [rows.flatten(), places.flatten()], [out.flatten()])
    return out


@custom_op
def _order(rows: np.ndarray) -> np.ndarray:
    offsets = np.arange(len(rows), dtype=np.int32)[:, None] * rows.shape[1]
    return (np.argsort(rows, axis=1, kind="stable") + offsets).astype(np.int32)


@custom_op
def _extreme(rows: np.ndarray, op: str) -> np.ndarray:
    found = (np.argmin if op == "min" else np.argmax)(rows, axis=1)
    return (found + np.arange(len(rows)) * rows.shape[1]).astype(np.int32)


@custom_op
def _searched(a: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.searchsorted(a, values).astype(np.int32)


@through
def scan(a: array, inclusive: bool = True, axis: int = -1) -> array:
    """Running sums along an axis: of all up to an element, or without `inclusive` of those before it.

    a   numbers or vectors, of any shape. Returns an array like it. Raises LaunchError [numerics], [axis].

    >>> wb.numerics.scan(wb.array([1.0, 2.0, 3.0]), inclusive=False).list() == [0, 1, 3]
    True
    """
    rows, back = _rows("scan", a, axis, False)
    out = zeros(rows.shape, a.dtype, a.device)
    if len(rows) == 1 and isinstance(a.dtype, Scalar):
        array_scan(rows[0], out[0], inclusive)
    else:
        launch(row_scan, rows.shape[0], [rows, inclusive], [out])
    return back(out)


@through
def sort(a: array, axis: int = -1) -> array:
    """The numbers of each line along an axis, rising; of equal ones the order stays, NaN comes last.

    The gradient of an element goes to where it came from: exact, but where two change places it jumps. Raises
    LaunchError [numerics], [axis], [capture].

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

    a   numbers; of sums and means vectors too. The gradient of an extreme goes to the first element that is one, and
        NaN is one. Of one axis the result has one element. Raises LaunchError [numerics], [axis]; [capture] for
        extremes; [int-division] for means of whole numbers.

    >>> wb.numerics.reduce(wb.array([[1.0, 4.0], [3.0, 2.0]]), "max", axis=1).list() == [4, 3]
    True
    """
    if op not in ("sum", "mean", "min", "max"):
        text = f"reduce(op={op!r}): there is none of this name."
        raise LaunchError(text, slug="numerics", instead='"sum", "mean", "min" or "max"')
    shape = (1,) if axis is None or a.ndim == 1 else tuple(np.delete(a.shape, axis).tolist())
    rows, _ = _rows("reduce", a if axis is not None else a.contiguous().flatten(), axis or 0, op in ("min", "max"))
    if op in ("min", "max"):
        return _gathered(rows, _extreme(rows, op)).reshape(shape)
    if axis is None:
        total = array_sum(a, out=zeros(1, a.dtype, a.device))
    else:
        total = array_sum(rows, axis=1).reshape(shape)
    return total / float(rows.shape[1]) if op == "mean" else total


@through
def lower_bound(a: array, values: array) -> array:
    """For each of `values` the first index with a[i] >= value, as whole numbers; as many as there are if there is none.

    `a` rises, along one axis; both are numbers. An index has no derivative. `wb.lower_bound` is the one in kernels.
    Raises LaunchError [numerics], [capture].

    >>> wb.numerics.lower_bound(wb.array([1.0, 2.0, 4.0]), wb.array([0.0, 2.0, 9.0])).list() == [0, 1, 3]
    True
    """
    for given in (a, values):
        if not isinstance(given, array) or not isinstance(given.dtype, Scalar) or a.ndim != 1:
            raise _refuse("lower_bound", "an array of one axis, and numbers", given, "wb.array([1.0, 2.0, 4.0])")
    return _searched(a, values)


# ---- linear transforms, by SciPy


def _linear(name: str, forward: Callable[..., np.ndarray], back: Callable[..., np.ndarray]) -> CustomOp:
    """A linear function of its first argument as an op; `back(adjoint, shape of the argument, ...)` is its transpose."""
    op = with_rules(
        name, forward, lambda a, *rest: back(rest[-1], a.shape, *rest[:-2]), lambda a, *rest: op(rest[-1], *rest[:-2])
    )
    return op


def _complex(pairs: np.ndarray) -> np.ndarray:
    return pairs[..., 0] + 1j * pairs[..., 1]


def _pairs(z: np.ndarray) -> np.ndarray:
    return np.stack((z.real, z.imag), -1)


def _fft(pairs: np.ndarray, axis: int, inverse: bool, norm: str = "backward") -> np.ndarray:
    from scipy import fft  # when it is called: it takes a while to load

    return _pairs((fft.ifft if inverse else fft.fft)(_complex(pairs), axis=axis, norm=norm))


def _rfft(a: np.ndarray, axis: int) -> np.ndarray:
    from scipy import fft

    return _pairs(fft.rfft(a, axis=axis))


def _rfft_back(adjoint: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    from scipy import fft

    return fft.ifft(_complex(adjoint), shape[axis], axis, norm="forward").real


def _irfft(pairs: np.ndarray, axis: int, n: int) -> np.ndarray:
    from scipy import fft

    return fft.irfft(_complex(pairs), n, axis)


def _irfft_back(adjoint: np.ndarray, shape: tuple[int, ...], axis: int, n: int) -> np.ndarray:
    found = _complex(_rfft(adjoint, axis) / n)
    inner = np.moveaxis(found, axis, 0)[1 : (n + 1) // 2]
    inner *= 2  # each stands for its conjugate too
    return _pairs(found)


_fourier = _linear("fft", _fft, lambda g, shape, axis, inverse: _fft(g, axis, not inverse, "forward"))
_real = _linear("rfft", _rfft, _rfft_back)
_back_to_real = _linear("irfft", _irfft, _irfft_back)


def _check_floats(name: str, a: array, axis: int, pairs: bool) -> int:
    """The axis, counted from the first one. Raises LaunchError [numerics], [axis]."""
    shape = (*a.shape, *inner_shape(a.dtype)) if isinstance(a, array) and is_float(a.dtype) else ()
    if not shape or 0 in shape or (pairs and (len(shape) < 2 or shape[-1] != 2)):
        takes = "pairs of floats along the last axis, or vec2" if pairs else "an array of floats"
        raise _refuse(name, takes, a, "wb.numerics.rfft(x)")
    ndim = len(shape) - pairs
    if not -ndim <= axis < ndim:
        raise LaunchError(f"{name}(axis={axis}) of {ndim} axes", slug="axis", instead=f"axis={ndim - 1}")
    return axis % ndim


@through
def fft(z: array, axis: int = -1) -> array:
    """The discrete Fourier transform along an axis, as `scipy.fft.fft`.

    z   complex numbers: pairs (real, imaginary) along a last axis of 2, or `vec2`; `axis` does not count that one. The
        result has the last axis of 2, and `.view(wb.vec2)` makes vectors of it. Of a real array take `rfft`; of several
        axes one after the other. Raises LaunchError [numerics], [axis], [capture].

    >>> wb.numerics.fft(wb.array([[1.0, 0.0], [0.0, 1.0]])).numpy().tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    return _fourier(z, _check_floats("fft", z, axis, True), False)


@through
def ifft(z: array, axis: int = -1) -> array:
    """The inverse of `fft`, with its arguments.

    >>> wb.numerics.ifft(wb.numerics.fft(wb.array([[1.0, 0.0], [0.0, 1.0]]))).numpy().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return _fourier(z, _check_floats("ifft", z, axis, True), True)


@through
def rfft(a: array, axis: int = -1) -> array:
    """The Fourier transform of a real array, for the n // 2 + 1 frequencies from 0 on: pairs, as of `fft`.

    >>> wb.numerics.rfft(wb.array([1.0, 2.0, 3.0, 2.0])).numpy().tolist()
    [[8.0, 0.0], [-2.0, 0.0], [0.0, 0.0]]
    """
    return _real(a, _check_floats("rfft", a, axis, False))


@through
def irfft(z: array, n: int | None = None, axis: int = -1) -> array:
    """The inverse of `rfft`: n real numbers along the axis, of n // 2 + 1 pairs; by default an even number.

    >>> wb.numerics.irfft(wb.numerics.rfft(wb.array([1.0, 2.0, 4.0])), n=3).numpy().round(6).tolist()
    [1.0, 2.0, 4.0]
    """
    axis = _check_floats("irfft", z, axis, True)
    n = 2 * (z.shape[axis] - 1) if n is None else n
    if n < 1 or n // 2 + 1 != z.shape[axis]:
        text = f"irfft(n={n}) of {z.shape[axis]} pairs: of n numbers there are n // 2 + 1."
        raise LaunchError(text, slug="numerics", instead=f"n={max(2 * z.shape[axis] - 1, 1)}, or one less")
    return _back_to_real(z, axis, n)


# ---- dense systems, by LAPACK


def _turned(a: Any) -> Any:
    """The transposed matrices, of NumPy or ours, as a view."""
    return a.transpose([*range(a.ndim - 2), a.ndim - 1, a.ndim - 2])


def _lapack(name: str, f: Callable[..., np.ndarray], *matrices: np.ndarray) -> np.ndarray:
    try:
        return f(*matrices)
    except np.linalg.LinAlgError as e:
        raise LaunchError(f"{name}(): {e}.", slug="numerics", where=memory.caller_where()) from None


def _solve_back(A: np.ndarray, _: np.ndarray, x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left = np.linalg.solve(_turned(A), g)
    return -left @ _turned(x), left


def _factor(A: np.ndarray) -> np.ndarray:
    return _lapack("cholesky", np.linalg.cholesky, (A + _turned(A)) / 2)


def _lower_half(a: np.ndarray) -> np.ndarray:
    """The lower triangle, with half of the diagonal."""
    return np.tril(a) * (1 - np.eye(a.shape[-1], dtype=a.dtype) / 2)


def _factor_back(A: np.ndarray, L: np.ndarray, g: np.ndarray) -> np.ndarray:
    right = _turned(np.linalg.solve(_turned(L), _lower_half(_turned(L) @ np.tril(g))))
    found = np.linalg.solve(_turned(L), right)
    return (found + _turned(found)) / 2


def _factor_along(A: array, L: array, dA: array) -> array:
    left = _solved(L, (dA + _turned(dA)) * 0.5)
    return _product(L, _lower(_solved(L, _turned(left))))


_product = with_rules(
    "product",
    lambda a, b: a @ b,
    lambda a, b, y, g: (g @ _turned(b), _turned(a) @ g),
    lambda a, b, y, da, db: _product(da, b) + _product(a, db),
)
_solved = with_rules(
    "solve",
    lambda A, b: _lapack("solve", np.linalg.solve, A, b),
    _solve_back,
    lambda A, b, x, dA, db: _solved(A, db - _product(dA, x)),
)
_lower = _linear("lower half", _lower_half, lambda g, shape: _lower_half(g))
_factored = with_rules("cholesky", _factor, _factor_back, _factor_along)


def _check_square(name: str, A: array) -> None:
    if not isinstance(A, array) or not isinstance(A.dtype, Scalar) or not is_float(A.dtype) or A.ndim < 2:
        raise _refuse(name, "floats of shape (..., n, n)", A, "wb.array([[2.0, 1.0], [1.0, 3.0]])")
    if A.shape[-1] != A.shape[-2] or A.size == 0:
        raise _refuse(name, "floats of shape (..., n, n)", A, "wb.array([[2.0, 1.0], [1.0, 3.0]])")


@through
def solve(A: array, b: array) -> array:
    """The x of A x = b, of shape and dtype of b: dense systems by LU, any number at once.

    A   floats of shape (..., n, n); b of shape (..., n), or (..., n, m) with m right sides for each system. For one
    large or sparse system there are `wb.optim.linear.lu` and `cg`. Raises LaunchError [numerics], also for a singular
    matrix, and [capture].

    >>> A = wb.array([[2.0, 0.0], [0.0, 4.0]], requires_grad=True)
    >>> with wb.Tape() as tape:
    ...     x = wb.numerics.solve(A, wb.array([2.0, 2.0]))
    >>> tape.backward(grads={x: wb.array([1.0, 1.0])})
    >>> x.list(), A.grad.numpy().tolist()  # -A^-T g x^T
    ([1.0, 0.5], [[-0.5, -0.25], [-0.25, -0.125]])
    """
    _check_square("solve", A)
    if not isinstance(b, array) or b.dtype != A.dtype or b.shape not in (A.shape[:-1], (*A.shape[:-1], *b.shape[-1:])):
        raise _refuse("solve", f"{A.dtype} of shape {A.shape[:-1]}, or with an axis more, as b", b, "b of A's dtype")
    return _solved(A, b) if b.ndim == A.ndim else _solved(A, b.contiguous().reshape((*b.shape, 1))).reshape(b.shape)


@through
def inverse(A: array) -> array:
    """The inverses of floats of shape (..., n, n). Raises what `solve` raises, which is the better way to A^-1 b.

    >>> wb.numerics.inverse(wb.array([[2.0, 0.0], [0.0, 4.0]])).numpy().tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    _check_square("inverse", A)
    with memory.unrecorded():
        one = array(np.broadcast_to(np.eye(A.shape[-1]), A.shape), dtype=A.dtype, device=A.device)
    return _solved(A, one)


@through
def cholesky(A: array) -> array:
    """The lower triangles L with L L^T = (A + A^T) / 2, for floats of shape (..., n, n): positive definite matrices.

    So both halves of A count, and have the same gradient (Murray, "Differentiation of the Cholesky decomposition",
    2016). Raises LaunchError [numerics], also for a matrix that is not positive definite, and [capture].

    >>> wb.numerics.cholesky(wb.array([[4.0, 2.0], [2.0, 5.0]])).numpy().tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    _check_square("cholesky", A)
    return _factored(A)


# ---- grids


@kernel
def interpolated(values: numbers, sizes: Any, x: numbers, table: table, out: numbers):
    """out[i] = the values around place i, weighted by polynomials of where it lies between them."""
    i = tid()
    taps, d = table.shape[0], len(sizes)
    count = 1
    for _ in range(d):
        count *= taps
    total = type(values[0])(0)
    for k in range(count):
        weight, at, rest = type(x[0])(1), 0, k
        for j in range(d):
            place = least(most(x[i * d + j], type(x[0])(0)), type(x[0])(sizes[j] - 1))
            cell = most(least(int(below(detach(place))), sizes[j] - 2), 0)
            s = place - type(place)(cell)
            tap = rest % taps
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
    Returns n values. Launches alone: it goes into captures. Raises LaunchError [numerics].

    >>> wb.numerics.interpolate(wb.array([0.0, 10.0, 40.0]), wb.array([0.5, 1.5])).list()
    [5.0, 25.0]
    """
    if order not in (1, 3):
        raise LaunchError(f"interpolate(order={order})", slug="numerics", instead="order=1, or order=3")
    if not isinstance(values, array) or not is_float(values.dtype) or not 0 < values.ndim < 4 or not values.size:
        raise _refuse("interpolate", "a grid of 1 to 3 axes", values, "wb.zeros((8, 8))")
    shape = (*positions.shape, *inner_shape(positions.dtype)) if isinstance(positions, array) else ()
    real, d = scalar_in(values.dtype), values.ndim
    if not shape or scalar_in(positions.dtype) is not real or shape[1:] not in (((d,), ()) if d == 1 else ((d,),)):
        raise _refuse("interpolate", f"{real} of shape (n, {d}) as positions", positions, f"wb.zeros((n, {d}))")
    with memory.unrecorded():
        weights = array(LINEAR if order == 1 else CUBIC, dtype=real, device=values.device)
        out = zeros(shape[0], values.dtype, values.device)
    sizes = vector(d, int32)(*values.shape)
    launch(interpolated, shape[0], [values.contiguous().flatten(), sizes, flat(positions.contiguous()), weights], [out])
    return out
