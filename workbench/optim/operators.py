"""Matrices known by their products, for the solvers: dense, diagonal, sparse, or a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.array import array
from ..arrays.creation import copy
from ..arrays.dtypes import DTypeLike, dtype_of, scalar_in
from ..device import DeviceLike
from ..errors import LaunchError
from ..kernels import kernel
from ..kernels.reading.declare import tid
from ..kernels.types import Composite, Scalar
from ..launches.launch import launch
from ..sparse import BsrMatrix, bsr_mv
from .steps import flat

numbers, table = array(dtype=Any), array(dtype=Any, ndim=2)


@kernel
def dense_times(A: table, x: numbers, a: Any, b: Any, y: numbers, out: numbers):
    """out = a * A x + b * y."""
    i = tid()
    total = b * y[i]
    for j in range(A.shape[1]):
        total += a * A[i, j] * x[j]
    out[i] = total


@kernel
def diagonal_times(d: numbers, x: numbers, a: Any, b: Any, y: numbers, out: numbers):
    """out = a * d x + b * y."""
    i = tid()
    out[i] = a * d[i] * x[i] + b * y[i]


class LinearOperator:
    """A matrix known by its products: `matvec(x, y, z, alpha, beta)` does z = alpha * A x + beta * y.

    >>> def twice(x, y, z, alpha, beta):
    ...     z.assign(wb.array(2.0 * alpha * x.numpy() + beta * y.numpy()))
    >>> A = wb.optim.linear.LinearOperator((2, 2), wb.float32, "cpu", twice)
    >>> x = wb.zeros(2)
    >>> _ = wb.optim.linear.cg(A, wb.array([2.0, 4.0]), x)
    >>> x.list()
    [1.0, 2.0]
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: DTypeLike,
        device: DeviceLike,
        matvec: Callable,
        batch_offsets: object = None,
        max_batch_length: int | None = None,
        transposed: Callable | None = None,
        source: array | BsrMatrix | None = None,
    ):
        if batch_offsets is not None:
            raise LaunchError("batches of systems are not here.", slug="linear", instead="one call for each system")
        self.shape, self.dtype, self.device, self.matvec = shape, dtype, device, matvec
        self.transposed, self.source = transposed, source
        self.batch_offsets, self.batch_count, self.max_batch_length = None, 1, None

    @property
    def scalar_type(self) -> Scalar:
        """The scalar type of its entries."""
        return scalar_in(dtype_of(self.dtype))


MatrixLike = LinearOperator | BsrMatrix | array  # dense or a diagonal, sparse, or known by its products


def aslinearoperator(A: MatrixLike | None, batch_offsets: object = None, max_batch_length: int | None = None) -> Any:
    """A dense matrix (two axes), a diagonal (one axis, of numbers or vectors) or a sparse matrix as a LinearOperator.

    A LinearOperator, or None, stays what it is. Raises LaunchError [linear] for anything else.

    >>> wb.optim.linear.aslinearoperator(wb.ones(3)).shape
    (3, 3)
    """
    if A is None or isinstance(A, LinearOperator):
        return A
    if isinstance(A, BsrMatrix):

        def sparse(x: array, y: array, z: array, alpha: float, beta: float, transpose: bool = False) -> None:
            if z is not y:
                copy(z, y)
            bsr_mv(A, x, z, alpha, beta, transpose)

        return LinearOperator(A.shape, A.dtype, A.device, sparse, batch_offsets, None, _turned(sparse), A)
    if isinstance(A, array) and A.ndim == 1 and isinstance(A.dtype, Composite):
        A = flat(A)
    if isinstance(A, array) and isinstance(A.dtype, Scalar) and A.ndim in (1, 2):
        shape = (A.shape[0], A.shape[-1])
        turned = A if A.ndim == 1 else A.transpose()
        times, back = _array_product(A), _array_product(turned)
        return LinearOperator(shape, A.dtype, A.device, times, batch_offsets, None, back, A)
    got = f"an array of {A.dtype} with {A.ndim} axes" if isinstance(A, array) else type(A).__name__
    raise LaunchError(f"a matrix is dense, a diagonal, sparse or a LinearOperator, not {got}", slug="linear")


def _turned(product: Callable) -> Callable:
    return lambda x, y, z, alpha, beta: product(x, y, z, alpha, beta, True)


def _array_product(A: array) -> Callable:
    times, kind = (dense_times if A.ndim == 2 else diagonal_times), A.dtype.numpy.type

    def product(x: array, y: array, z: array, alpha: float, beta: float) -> None:
        launch(times, A.shape[0], [A, x, kind(alpha), kind(beta), y], [z])

    return product
