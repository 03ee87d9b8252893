"""Matrices as the solvers take them, known by their products, and approximate inverses of them (inverted in NumPy)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.array import array
from ..arrays.creation import copy, zeros
from ..arrays.dtypes import DTypeLike, dtype_of, scalar_in
from ..device import DeviceLike
from ..errors import LaunchError
from ..kernels import kernel
from ..kernels.reading.declare import tid
from ..kernels.types import Composite, Scalar
from ..launches.array_tools import flat
from ..launches.launch import launch
from ..sparse import BsrMatrix, bsr_get_diag, bsr_mv

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


SINGULAR = {16: 1e-3, 32: 1e-6, 64: 1e-12}  # a block whose condition is worse than this one over it stays as it is
BLOCKS = ("block_jacobi_direct", "block_jacobi_sequential", "block_jacobi_tile")
KINDS = ("diag", "diag_abs", *BLOCKS, "id")


def preconditioner(A: array | BsrMatrix, ptype: str = "diag") -> LinearOperator | None:
    """An approximate inverse of a dense, diagonal or sparse matrix, for `M=` of the solvers; None for "id".

    "diag": one over the diagonal (0 counts as 1); "diag_abs": over its size; "block_jacobi_direct", "_sequential" and
    "_tile", which are one here: the inverses of the square blocks on the diagonal of a sparse matrix, the identity
    where a block has none. Computed now, from the present entries; inside a capture, anew with each replay.
    Raises LaunchError [linear].

    >>> M = wb.optim.linear.preconditioner(wb.sparse.bsr_diag(wb.mat22(2.0, 1.0, 0.0, 4.0), 3), "block_jacobi_direct")
    >>> wb.optim.linear.preconditioner(wb.array([2.0, 4.0]), "id") is None
    True
    """
    if ptype == "id":
        return None
    if ptype not in KINDS:
        raise LaunchError(f"there is no preconditioner {ptype!r} here", slug="linear", instead=" or ".join(KINDS))
    if ptype in BLOCKS and not (isinstance(A, BsrMatrix) and A.nrow == A.ncol and len(set(A.block_shape)) == 1):
        what = A if isinstance(A, BsrMatrix) else type(A).__name__
        raise LaunchError(f"{ptype} of {what}: it takes square blocks in a square", slug="linear", instead='"diag"')
    if not isinstance(A, BsrMatrix) and not (isinstance(A, array) and isinstance(A.dtype, Scalar)):
        raise LaunchError(
            f"a preconditioner of {type(A).__name__}", slug="linear", instead="a dense or a sparse matrix"
        )

    if ptype in BLOCKS and isinstance(A, BsrMatrix) and not isinstance(A.dtype, Scalar):
        blocks = BsrMatrix(A.nrow, A.nrow, A.dtype, A.device)
        blocks.place(np.arange(A.nrow + 1, dtype=np.int32), np.arange(A.nrow, dtype=np.int32))
        _fill(blocks.values, lambda: _inverses(bsr_get_diag(A).numpy()))
        return aslinearoperator(blocks)

    def diagonal() -> np.ndarray:
        if isinstance(A, BsrMatrix):
            found = bsr_get_diag(A).numpy()
            return np.einsum("nii->ni", found.reshape(-1, *A.block_shape)).reshape(-1)
        return A.numpy() if A.ndim == 1 else np.diagonal(A.numpy())

    made = zeros(min(A.shape), scalar_in(A.dtype), A.device)
    _fill(made, lambda: _inverse(diagonal(), ptype))
    return aslinearoperator(made)


def _fill(made: array, values: Callable[[], np.ndarray]) -> None:
    """Assign values now and in every replay of an open capture. Unrecorded: they have no derivative."""

    def fill() -> None:
        with memory.unrecorded():
            made.assign(array(values(), dtype=made.dtype, device=made.device))

    made.allocation.about_to_write(made.span, "preconditioner()")
    capture_log.do(fill)


def _inverse(d: np.ndarray, ptype: str) -> np.ndarray:
    return 1 / np.where(d == 0, 1, np.abs(d) if ptype == "diag_abs" else d)


def _inverses(blocks: np.ndarray) -> np.ndarray:
    """The inverse of each block, and the identity in place of one that has none."""
    wide, one = blocks.astype(np.float64), np.eye(blocks.shape[-1])
    sizes = np.linalg.svd(np.where(np.isfinite(wide), wide, 0), compute_uv=False)
    good = (sizes[:, -1] > SINGULAR[8 * blocks.itemsize] * sizes[:, 0]) & np.isfinite(wide).all(axis=(1, 2))
    return np.linalg.inv(np.where(good[:, None, None], wide, one))
