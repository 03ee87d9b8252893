"""Making, copying, adding and transposing sparse matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import capture_log
from ..arrays.allocation import recorder
from ..arrays.array import array
from ..arrays.creation import full, zeros
from ..arrays.dtypes import DTypeLike, scalar_in
from ..device import DeviceLike
from ..errors import LaunchError
from ..kernels.program import Kernel
from ..kernels.types import Matrix, Scalar, Small, matrix
from ..launches.launch import launch
from . import kernels
from .matrix import BsrMatrix, Factor, Whole, compressed, factor, numbers, rows_of


def check_topology(topology: str | None) -> None:
    """Raises LaunchError [topology] for what is not built."""
    if topology not in (None, "compact"):
        raise LaunchError(f"topology={topology!r} is not here.", slug="topology", instead='topology="compact"')


def _add(
    values: array, source: np.ndarray, target: np.ndarray, out: array, alpha: Factor = 1.0, how: Kernel = kernels.added
) -> None:
    """Add `alpha` times the blocks `source` of `values` to the blocks `target` of `out`, of the same type."""
    if len(source):
        places = [array(np.ascontiguousarray(a, np.int32), int, device=out.device) for a in (source, target)]
        launch(how, len(source), [*places, values, factor(alpha, scalar_in(out.dtype))], [out])


def combined(dest: BsrMatrix, terms: list[tuple[BsrMatrix, Any]], beta: Factor) -> BsrMatrix:
    """dest = sum of alpha * term + beta * dest, at the places of all. Without beta the old blocks are not read."""
    old = BsrMatrix(dest.nrow, dest.ncol, dest.dtype, dest.device)  # `dest` may be a term too
    old.take(dest)
    terms = [(old if term is dest else term, alpha) for term, alpha in terms]
    if not (isinstance(beta, (int, float)) and beta == 0):
        terms = [(old, beta), *terms]
    if any(term is old for term, _ in terms):
        _ = dest.structure  # a capture notes that it is read
    for term, _ in terms:
        if (term.nrow, term.ncol, term.dtype) != (dest.nrow, dest.ncol, dest.dtype):
            raise LaunchError(f"a sum of {term} and {dest}", slug="shape", instead="matrices of one shape and block")
    rows = np.concatenate([rows_of(t.structure[0]) for t, _ in terms])
    columns = np.concatenate([t.structure[1] for t, _ in terms])
    offsets, found, place = compressed(rows, columns, (dest.nrow, dest.ncol))
    dest.place(offsets, found)
    at = 0
    for term, alpha in terms:
        n = term.nnz
        _add(term.values, np.arange(n), place[at : at + n], dest.values, alpha)
        at += n
    return dest


def bsr_zeros(
    rows_of_blocks: int,
    cols_of_blocks: int,
    block_type: DTypeLike,
    device: DeviceLike = None,
    *,
    topology: str | None = None,
    row_capacity: object = None,
    nnz_capacity: int | None = None,
) -> BsrMatrix:
    """A matrix of `rows_of_blocks` x `cols_of_blocks` blocks, none of them stored.

    >>> wb.sparse.bsr_zeros(2, 3, wb.mat33).shape
    (6, 9)
    """
    check_topology(topology)
    return BsrMatrix(rows_of_blocks, cols_of_blocks, block_type, device)


def bsr_set_zero(
    bsr: BsrMatrix,
    rows_of_blocks: int | None = None,
    cols_of_blocks: int | None = None,
    *,
    topology: str = "compact",
    row_capacity: object = None,
    nnz_capacity: int | None = None,
) -> None:
    """Store no block any more; optionally of another size.

    >>> wb.sparse.bsr_set_zero(wb.sparse.bsr_identity(2, float))
    """
    check_topology(topology)
    bsr.nrow = bsr.nrow if rows_of_blocks is None else int(rows_of_blocks)
    bsr.ncol = bsr.ncol if cols_of_blocks is None else int(cols_of_blocks)
    bsr.place(np.zeros(bsr.nrow + 1, np.int32), np.zeros(0, np.int32))


def bsr_set_from_triplets(
    dest: BsrMatrix,
    rows: Whole,
    columns: Whole,
    values: array | None = None,
    count: int | array | None = None,
    prune_numerical_zeros: bool = True,
    topology: str | None = None,
    build_mapping: object = None,
) -> None:
    """Let `dest` be the sum of blocks at (row, column); places that come twice are added. Differentiable by `values`.

    Negative rows or columns, and those outside, are left out, as in Warp. Blocks of zeros are left out too, but not
    under an open tape, where they have a derivative. Without `values` the places get blocks of zeros.
    Raises LaunchError [shape], [dtype].

    >>> A = wb.sparse.bsr_zeros(2, 2, float)
    >>> wb.sparse.bsr_set_from_triplets(A, wb.array([1, 1]), wb.array([0, 0]), wb.array([2.0, 3.0]))
    >>> A.values.list()
    [5.0]
    """
    check_topology(topology)
    if build_mapping:
        raise LaunchError("build_mapping is not here.", slug="topology", instead="bsr_set_from_triplets each time")
    capture_log.refuse(
        "The places of a sparse matrix are made on the host,",
        "the matrix before the block, and in it a kernel that writes its `values`",
    )
    r, c = numbers(rows), numbers(columns)
    n = len(r) if count is None else int(count[0] if isinstance(count, array) else count)
    values = None if values is None else _as_blocks(values, dest)
    if len(c) != len(r) or (values is not None and len(values) != len(r)):
        raise LaunchError("rows, columns and values differ in length.", slug="shape", instead="one of each per block")
    kept = (r >= 0) & (r < dest.nrow) & (c >= 0) & (c < dest.ncol) & (np.arange(len(r)) < n)
    if values is not None and prune_numerical_zeros and recorder() is None:
        kept &= values.numpy().reshape(len(r), int(np.prod(dest.block_shape))).any(axis=1)
    which = np.flatnonzero(kept)
    offsets, found, place = compressed(r[which], c[which], (dest.nrow, dest.ncol))
    dest.place(offsets, found)
    if values is not None:
        _add(values, which, place, dest.values)


def _as_blocks(values: array, dest: BsrMatrix) -> array:
    if values.dtype == dest.scalar_type and values.ndim == 3 and isinstance(dest.dtype, Matrix):
        values = values.view(matrix(values.shape[1:], dest.scalar_type)) if values.is_contiguous else values
        values = values.reshape((-1,)) if values.ndim > 1 else values
    if values.dtype != dest.dtype:
        text = f"blocks of {dest.dtype} from values of {values.dtype}"
        raise LaunchError(text, slug="dtype", instead=f"wb.array(..., dtype=wb.{dest.dtype})")
    return values


def bsr_from_triplets(
    rows_of_blocks: int,
    cols_of_blocks: int,
    rows: array,
    columns: array,
    values: array,
    prune_numerical_zeros: bool = True,
) -> BsrMatrix:
    """A new matrix from blocks at (row, column): see `bsr_set_from_triplets`.

    >>> at = wb.array([0, 1]), wb.array([1, 0])
    >>> wb.sparse.bsr_from_triplets(2, 2, *at, wb.array([2.0, 3.0])).columns.list()
    [1, 0]
    """
    dtype = matrix(values.shape[1:], values.dtype) if values.ndim == 3 else values.dtype
    made = BsrMatrix(rows_of_blocks, cols_of_blocks, dtype, values.device)
    bsr_set_from_triplets(made, rows, columns, values, prune_numerical_zeros=prune_numerical_zeros)
    return made


def bsr_axpy(
    x: BsrMatrix,
    y: BsrMatrix | None = None,
    alpha: Factor = 1.0,
    beta: Factor = 1.0,
    work_arrays: object = None,
    topology: str | None = None,
) -> BsrMatrix:
    """y = alpha * x + beta * y; y is made where none is given. Returns y. Differentiable by all blocks.

    >>> eye = wb.sparse.bsr_identity(2, float)
    >>> wb.sparse.bsr_axpy(eye, eye, alpha=2.0, beta=3.0).values.list()
    [5.0, 5.0]
    """
    check_topology(topology)
    if y is None:
        y, beta = BsrMatrix(x.nrow, x.ncol, x.dtype, x.device), 0.0
    return combined(y, [(x, alpha)], beta)


def bsr_copy(
    A: BsrMatrix,
    scalar_type: Scalar | None = None,
    block_shape: tuple[int, int] | None = None,
    structure_only: bool = False,
    topology: str = "compact",
) -> BsrMatrix:
    """A copy in new memory. Raises LaunchError [dtype] for another scalar type or block shape.

    >>> wb.sparse.bsr_copy(wb.sparse.bsr_identity(2, float)).nnz
    2
    """
    check_topology(topology)
    if scalar_type not in (None, A.scalar_type) or block_shape not in (None, A.block_shape):
        text, instead = "bsr_copy to other blocks is not here.", "bsr_from_triplets with values of that type"
        raise LaunchError(text, slug="dtype", instead=instead)
    made = BsrMatrix(A.nrow, A.ncol, A.dtype, A.device)
    bsr_assign(made, A, structure_only)
    return made


def bsr_assign(dest: BsrMatrix, src: BsrMatrix, structure_only: bool = False, topology: str | None = None) -> None:
    """dest = src: places and blocks.

    >>> A = wb.sparse.bsr_zeros(2, 2, float)
    >>> wb.sparse.bsr_assign(A, wb.sparse.bsr_identity(2, float))
    """
    check_topology(topology)
    if not structure_only:
        combined(dest, [(src, 1.0)], 0)
        return
    dest.nrow, dest.ncol = src.nrow, src.ncol
    dest.place(*src.structure)


def bsr_compress(
    src: BsrMatrix,
    prune_numerical_zeros: bool = True,
    inplace: bool = False,
    topology: str | None = None,
    structure_only: bool = False,
) -> BsrMatrix:
    """The matrix without blocks of zeros (with them, under an open tape).

    >>> wb.sparse.bsr_compress(wb.sparse.bsr_identity(2, float)).nnz
    2
    """
    check_topology(topology)
    made = src if inplace else BsrMatrix(src.nrow, src.ncol, src.dtype, src.device)
    rows, columns, values = rows_of(src.structure[0]), src.structure[1], src.values
    bsr_set_from_triplets(made, rows, columns, values, prune_numerical_zeros=prune_numerical_zeros)
    return made


def bsr_set_transpose(dest: BsrMatrix, src: BsrMatrix, topology: str | None = None) -> None:
    """dest = src transposed.

    >>> A = wb.sparse.bsr_zeros(3, 2, float)
    >>> wb.sparse.bsr_set_transpose(A, wb.sparse.bsr_zeros(2, 3, float))
    """
    check_topology(topology)
    rows, columns, values = rows_of(src.structure[0]), src.structure[1], src.values
    dest.nrow, dest.ncol = src.ncol, src.nrow
    offsets, found, place = compressed(columns, rows, (dest.nrow, dest.ncol))
    dest.place(offsets, found)
    turn = kernels.added if isinstance(src.dtype, Scalar) else kernels.turned
    _add(values, np.arange(src.nnz), place, dest.values, how=turn)


def bsr_transposed(A: BsrMatrix) -> BsrMatrix:
    """A new matrix, `A` transposed, blocks too. Differentiable by the blocks.

    >>> wb.sparse.bsr_transposed(wb.sparse.bsr_zeros(2, 3, float)).shape
    (3, 2)
    """
    dtype = A.dtype if isinstance(A.dtype, Scalar) else matrix(A.block_shape[::-1], A.scalar_type)
    made = BsrMatrix(A.ncol, A.nrow, dtype, A.device)
    bsr_set_transpose(made, A)
    return made


def bsr_scale(x: BsrMatrix, alpha: Factor) -> BsrMatrix:
    """x *= alpha. Returns x.

    >>> wb.sparse.bsr_scale(wb.sparse.bsr_identity(1, float), 3.0).values.list()
    [3.0]
    """
    if x.nnz:
        launch(kernels.scaled, x.nnz, [x.values, factor(alpha, x.scalar_type)])
    return x


def bsr_get_diag(A: BsrMatrix, out: array | None = None) -> array:
    """The blocks of the diagonal, zeros where none is stored. Differentiable by the blocks.

    >>> wb.sparse.bsr_get_diag(wb.sparse.bsr_diag(wb.array([2.0, 5.0]))).list()
    [2.0, 5.0]
    """
    n = min(A.nrow, A.ncol)
    if out is None:
        out = zeros(n, A.dtype, A.device)
    else:
        out.zero_()
    which = np.flatnonzero(rows_of(A.structure[0]) == A.structure[1])
    _add(A.values, which, A.structure[1][which], out)
    return out


def bsr_set_diag(A: BsrMatrix, diag: Any, rows_of_blocks: int | None = None, cols_of_blocks: int | None = None) -> None:
    """Let `A` have these blocks on its diagonal (an array, or one value for all) and no others.

    >>> A = wb.sparse.bsr_zeros(2, 2, float)
    >>> wb.sparse.bsr_set_diag(A, 4.0)
    """
    A.nrow = A.nrow if rows_of_blocks is None else int(rows_of_blocks)
    A.ncol = A.ncol if cols_of_blocks is None else int(cols_of_blocks)
    n = len(diag) if isinstance(diag, array) else min(A.nrow, A.ncol)
    values = diag if isinstance(diag, array) else full(n, diag, A.dtype, A.device)
    bsr_set_from_triplets(A, np.arange(n), np.arange(n), values, prune_numerical_zeros=False)


def bsr_diag(
    diag: Any = None,
    rows_of_blocks: int | None = None,
    cols_of_blocks: int | None = None,
    block_type: DTypeLike = None,
    device: DeviceLike = None,
) -> BsrMatrix:
    """A new matrix with these blocks on its diagonal: an array, or one value for `rows_of_blocks` of them.

    >>> wb.sparse.bsr_diag(wb.array([2.0, 5.0])).shape
    (2, 2)
    """
    if isinstance(diag, array):
        n, dtype, device = len(diag), diag.dtype, diag.device
    else:
        n = rows_of_blocks or cols_of_blocks or 0
        dtype = block_type or (diag.type if isinstance(diag, Small) else float)
    made = BsrMatrix(rows_of_blocks or cols_of_blocks or n, cols_of_blocks or rows_of_blocks or n, dtype, device)
    bsr_set_diag(made, 0.0 if diag is None else diag)
    return made


def bsr_set_identity(A: BsrMatrix, rows_of_blocks: int | None = None) -> None:
    """Let `A` be the identity.

    >>> wb.sparse.bsr_set_identity(wb.sparse.bsr_zeros(2, 2, wb.mat22))
    """
    one = np.eye(A.block_shape[0]) if isinstance(A.dtype, Matrix) else 1.0
    bsr_set_diag(A, A.dtype(one), rows_of_blocks, rows_of_blocks)


def bsr_identity(rows_of_blocks: int, block_type: DTypeLike, device: DeviceLike = None) -> BsrMatrix:
    """A new identity matrix.

    >>> wb.sparse.bsr_identity(2, wb.mat22).nnz
    2
    """
    made = BsrMatrix(rows_of_blocks, rows_of_blocks, block_type, device)
    bsr_set_identity(made)
    return made
