"""Products of sparse matrices with vectors and with each other."""

from __future__ import annotations

from typing import Any

from ..arrays.array import array
from ..arrays.creation import zeros
from ..errors import LaunchError
from ..kernels.types import Scalar, matrix, vector
from ..launches.launch import launch
from . import kernels
from .matrix import BsrMatrix, Factor, compressed, factor, pairs, rows_of, vector_of
from .operations import bsr_axpy, bsr_copy, bsr_scale, bsr_transposed, bsr_zeros, check_topology, combined


def bsr_mv(
    A: BsrMatrix,
    x: array,
    y: array | None = None,
    alpha: Factor = 1.0,
    beta: Factor = 0.0,
    transpose: bool = False,
    work_buffer: array | None = None,
    tile_size: int = 0,
) -> array:
    """y = alpha * A x + beta * y (A transposed, with `transpose`); y is made where none is given. Returns y.

    Differentiable by the blocks, x, y, and by alpha and beta if they are declared scalars. With beta = 0 the old
    contents of y are not read. Vectors are arrays of blocks or of numbers; x may be y.
    Raises LaunchError [shape], [dtype].

    >>> A = wb.sparse.bsr_diag(wb.array([2.0, 5.0]))
    >>> wb.sparse.bsr_mv(A, wb.array([1.0, 10.0])).numpy()
    array([ 2., 50.], dtype=float32)
    """
    rows, cols = A.block_shape[:: -1 if transpose else 1]
    _ = A.structure  # as it is now
    height, width = (A.ncol, A.nrow) if transpose else (A.nrow, A.ncol)
    scalar = A.scalar_type
    if y is None:
        y = zeros(height, scalar if rows == 1 else vector(rows, scalar), A.device)
        beta = 0.0
    source, target = vector_of(x, cols, scalar), vector_of(y, rows, scalar)
    for name, a, n, size in (("x", source, width, cols), ("y", target, height, rows)):
        want = scalar if size == 1 else vector(size, scalar)
        if a.dtype != want or a.shape != (n,):
            text = f"bsr_mv takes {n} of {want} as {name}, not {a.dtype} of shape {a.shape}"
            instead = f"wb.zeros({n}, dtype=wb.{want})"
            raise LaunchError(text, slug="shape" if a.dtype == want else "dtype", instead=instead)
    if source.span.overlaps(target.span) is not False:
        source = array(source)
    alpha, zero = factor(alpha, scalar), not hasattr(beta, "requires_grad") and beta == 0
    beta = factor(beta, scalar)
    if zero:
        target.zero_()
    if not transpose:
        launch(kernels.rows_times, A.nrow, [A.offsets, A.columns, A.values, source, alpha, beta], [target])
        return y
    if not zero:
        launch(kernels.scaled, height, [target, beta])
    turn = kernels.columns_times if isinstance(A.dtype, Scalar) else kernels.turned_columns_times
    launch(turn, A.nnz, [A.uncompress_rows(), A.columns, A.values, source, alpha], [target])
    return y


def bsr_mm(
    x: BsrMatrix,
    y: BsrMatrix,
    z: BsrMatrix | None = None,
    alpha: Factor = 1.0,
    beta: Factor = 0.0,
    work_arrays: object = None,
    reuse_topology: bool = False,
    tile_size: int = 0,
    max_new_nnz: int | None = None,
    topology: str | None = None,
) -> BsrMatrix:
    """z = alpha * x y + beta * z; z is made where none is given. Returns z. Differentiable by all blocks.

    Raises LaunchError [shape], [dtype]; [topology] for another topology than "compact".

    >>> A = wb.sparse.bsr_diag(wb.array([2.0, 5.0]))
    >>> wb.sparse.bsr_mm(A, A).values.numpy()
    array([ 4., 25.], dtype=float32)
    """
    check_topology(topology)
    if x.ncol != y.nrow or x.block_shape[1] != y.block_shape[0] or x.scalar_type != y.scalar_type:
        raise LaunchError(f"bsr_mm of {x} and {y}", slug="shape", instead="x.ncol == y.nrow, and blocks that fit")
    rows, cols, scalar = x.block_shape[0], y.block_shape[1], x.scalar_type
    if z is None:
        z = bsr_zeros(x.nrow, y.ncol, matrix((rows, cols), scalar), x.device)
        beta = 0.0
    left, right = pairs(x.structure[1], y.structure[0])
    found = rows_of(x.structure[0])[left], y.structure[1][right]
    offsets, columns, place = compressed(*found, (x.nrow, y.ncol))
    product = BsrMatrix(x.nrow, y.ncol, z.dtype, x.device)
    product.place(offsets, columns)
    at = [array(n, int, device=x.device) for n in (left, right, place)]
    launch(kernels.multiplied, len(left), [*at, x.values, y.values, factor(alpha, scalar)], [product.values])
    return combined(z, [(product, 1.0)], beta)


class bsr_mm_work_arrays:
    """Scratch memory that Warp reuses between products. There is nothing to keep here."""


class bsr_axpy_work_arrays:
    """Scratch memory that Warp reuses between sums. There is nothing to keep here."""


# ---- Python's operators


def _times(a: BsrMatrix, other: object) -> Any:
    if isinstance(other, BsrMatrix):
        return bsr_mm(a, other)
    return bsr_mv(a, other) if isinstance(other, array) else NotImplemented


def _scaled(a: BsrMatrix, factor: float) -> BsrMatrix:
    return bsr_scale(bsr_copy(a), factor)


for _name, _made in {
    "__matmul__": _times,
    "__add__": lambda a, b: bsr_axpy(b, bsr_copy(a)),
    "__sub__": lambda a, b: bsr_axpy(b, bsr_copy(a), alpha=-1.0),
    "__mul__": _scaled,
    "__rmul__": _scaled,
    "__truediv__": lambda a, factor: _scaled(a, 1.0 / factor),
    "__neg__": lambda a: _scaled(a, -1.0),
}.items():
    setattr(BsrMatrix, _name, _made)
BsrMatrix.transpose = bsr_transposed
