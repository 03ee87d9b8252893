"""`BsrMatrix`: offsets of rows, columns, and the array of blocks."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..arrays.array import array
from ..arrays.creation import zeros
from ..arrays.dtypes import dtype_of
from ..arrays.scalar import scalar
from ..errors import LaunchError
from ..kernels.types import Matrix, Scalar, Vector
from .structure import rows_of


class BsrMatrix:
    """A sparse matrix of `nrow` x `ncol` blocks; `values[offsets[i]:offsets[i + 1]]` are those of row i.

    `columns` has the column of each block. Blocks are scalars or matrices; `values` is an ordinary array, so
    `A.values.requires_grad = True` asks for gradients by them. `A @ x`, `A @ B`, `A + B`, `2.0 * A` are functions
    of `wb.sparse`.

    >>> A = wb.sparse.bsr_from_triplets(2, 2, wb.array([0, 1]), wb.array([1, 0]), wb.array([2.0, 3.0]))
    >>> A.shape, A.nnz, (A @ wb.array([1.0, 10.0])).numpy()
    ((2, 2), 2, array([20.,  3.], dtype=float32))
    """

    def __init__(self, nrow: int, ncol: int, dtype: Any, device: Any = None):
        self.nrow, self.ncol, self.dtype = int(nrow), int(ncol), block_type(dtype)
        self.offsets, self.columns = zeros(self.nrow + 1, int, device), zeros(0, int, device)
        self.values: array = zeros(0, self.dtype, device)
        self.structure = np.zeros(self.nrow + 1, np.int32), np.zeros(0, np.int32)

    def place(self, offsets: np.ndarray, columns: np.ndarray) -> None:
        """Have these places, with blocks of zeros in new memory."""
        device = self.device
        self.structure = offsets, columns
        self.offsets, self.columns = array(offsets, int, device=device), array(columns, int, device=device)
        self.values = zeros(len(columns), self.dtype, device)

    def __repr__(self) -> str:
        return f"<{self.nrow} x {self.ncol} blocks of {self.dtype}, {self.nnz} stored>"

    @property
    def device(self) -> Any:
        return self.offsets.device

    @property
    def nnz(self) -> int:
        """How many blocks are stored."""
        return len(self.structure[1])

    @property
    def scalar_type(self) -> Scalar:
        return self.dtype.scalar

    @property
    def block_shape(self) -> tuple[int, int]:
        return (self.dtype.rows, self.dtype.cols) if isinstance(self.dtype, Matrix) else (1, 1)

    @property
    def block_size(self) -> int:
        return self.dtype.size

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of numbers."""
        return self.nrow * self.block_shape[0], self.ncol * self.block_shape[1]

    @property
    def requires_grad(self) -> bool:
        return self.values.requires_grad

    @requires_grad.setter
    def requires_grad(self, on: bool) -> None:
        self.values.requires_grad = on

    @property
    def scalar_values(self) -> array:
        """The numbers of all blocks, shape (nnz, rows, columns) for matrix blocks."""
        return self.values if isinstance(self.dtype, Scalar) else self.values.view(self.scalar_type)

    def nnz_sync(self) -> int:
        """`nnz`: nothing is waited for."""
        return self.nnz

    copy_nnz_async = notify_nnz_changed = nnz_sync
    transpose: Any  # `bsr_transposed`, set where the operators are

    def uncompress_rows(self, out: array | None = None) -> array:
        """The row of every block."""
        rows = rows_of(self.structure[0])
        if out is None:
            return array(rows, int, device=self.device)
        return out.assign(rows)


def block_type(dtype: Any) -> Any:
    """The element type of `values`: a float scalar, or a matrix of them (1 x 1 is the scalar)."""
    made = dtype_of(dtype)
    if isinstance(made, Matrix) and made.shape == (1, 1):
        made = made.scalar
    if not isinstance(made, Scalar | Matrix) or made.scalar.kind != "f":
        raise LaunchError(
            f"blocks are numbers or matrices, not {made}", slug="dtype", instead="block_type=wb.mat33, or float"
        )
    return made


@lru_cache(None)
def bsr_matrix_t(dtype: Any) -> type:
    """For annotations of host functions: the class."""
    return BsrMatrix


def factor(value: Any, dtype: Scalar) -> Any:
    """A number as the kernels for this scalar type take it; a declared scalar stays one."""
    return value if isinstance(value, scalar) else dtype.numpy.type(value)


def vector_of(a: array, size: int, dtype: Scalar) -> array:
    """A vector as blocks of `size` numbers: another view of its memory where it is one of scalars."""
    if size == 1 or a.dtype != dtype:
        return a
    kind = Vector(size, dtype)
    return a.view(kind) if a.ndim == 1 and a.size % size == 0 else a
