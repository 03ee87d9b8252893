"""`BsrMatrix`: offsets of rows, columns, and the array of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from operator import is_not
from typing import Any

import numpy as np

from ..arrays import capture_log
from ..arrays.array import array, read_values
from ..arrays.creation import zeros
from ..arrays.dtypes import DTypeLike, dtype_of
from ..arrays.scalar import scalar
from ..device import DeviceLike
from ..errors import LaunchError
from ..kernels.types import Matrix, Scalar, Vector

Factor = float | np.number | scalar  # the alpha and beta of sums and products


class BsrMatrix:
    """A sparse matrix of `nrow` x `ncol` blocks; `values[offsets[i]:offsets[i + 1]]` are those of row i.

    `columns` has the column of each block. Blocks are scalars or matrices; `values` is an ordinary array, so
    `A.values.requires_grad = True` asks for gradients by them. `A @ x`, `A @ B`, `A + B`, `2.0 * A` are functions
    of `wb.sparse`.

    >>> A = wb.sparse.bsr_from_triplets(2, 2, wb.array([0, 1]), wb.array([1, 0]), wb.array([2.0, 3.0]))
    >>> A.shape, A.nnz, (A @ wb.array([1.0, 10.0])).numpy()
    ((2, 2), 2, array([20.,  3.], dtype=float32))
    """

    def __init__(self, nrow: int, ncol: int, dtype: DTypeLike, device: DeviceLike = None):
        self.nrow, self.ncol, self.dtype = int(nrow), int(ncol), block_type(dtype)
        self.offsets, self.columns = zeros(self.nrow + 1, int, device), zeros(0, int, device)
        self.values: array = zeros(0, self.dtype, device)
        self._made = capture_log.active_capture()
        self._keep(np.zeros(self.nrow + 1, np.int32), np.zeros(0, np.int32))

    @property
    def structure(self) -> tuple[np.ndarray, np.ndarray]:
        """Offsets and columns on the host, read anew where the arrays have changed.

        Raises LaunchError [structure] for offsets and columns that are no matrix of this size.
        """
        self.used()
        exposed = self.offsets.allocation.exposed or self.columns.allocation.exposed
        if self._at != self._now() or (exposed and capture_log.active_capture() is None):
            self._read()
        return self._structure

    def _now(self) -> tuple:
        return tuple((a.span, a.allocation.version) for a in (self.offsets, self.columns))

    def _keep(self, offsets: np.ndarray, columns: np.ndarray) -> None:
        self._structure, self._at = (offsets, columns), self._now()

    def _read(self) -> None:
        offsets = numbers(self.offsets)
        n = offsets[-1] if len(offsets) else -1
        columns = numbers(self.columns)[: max(n, 0)]
        sorted_ = len(offsets) == self.nrow + 1 and offsets[0] == 0 and bool((np.diff(offsets) >= 0).all())
        fits = len(columns) == n <= len(self.values) and bool(((columns >= 0) & (columns < self.ncol)).all())
        if not (sorted_ and fits):
            text = f"offsets and columns are no places of {self.nrow} x {self.ncol} blocks, {len(self.values)} of them"
            why = "offsets has nrow + 1 numbers from 0 that do not fall; columns are below ncol."
            instead = "wb.sparse.bsr_set_from_triplets(A, rows, columns, values)"
            raise LaunchError(f"{text} in values.", slug="structure", why=why, instead=instead)
        if not all(map(np.array_equal, self._structure, (offsets, columns))):
            self._structure = offsets, columns
        self._at = self._now()

    def used(self) -> None:
        """Tell an open capture that it works on the arrays of this matrix, unless it made the matrix."""
        notes = None if capture_log.opened is None else capture_log.active_capture()
        if notes is not None and notes is not self._made:
            look = partial(_same, self, self._structure, (self.offsets, self.columns, self.values))
            notes.unchanged.setdefault(self, look)

    def take(self, other: BsrMatrix) -> None:
        """Take over the places and arrays of another matrix."""
        self.offsets, self.columns, self.values = other.offsets, other.columns, other.values
        self._keep(*other._structure)

    def place(self, offsets: np.ndarray, columns: np.ndarray) -> None:
        """Set these places, with blocks of zeros in new memory."""
        device = self.device
        self.offsets, self.columns = array(offsets, int, device=device), array(columns, int, device=device)
        self.values = zeros(len(columns), self.dtype, device)
        self._keep(offsets, columns)
        self.used()

    def __repr__(self) -> str:
        return f"<{self.nrow} x {self.ncol} blocks of {self.dtype}, {self.nnz} stored>"

    @property
    def device(self) -> Any:
        return self.offsets.device

    @property
    def nnz(self) -> int:
        """The number of stored blocks."""
        return len(self.structure[1])

    @nnz.setter
    def nnz(self, count: int) -> None:
        """Check the number against the offsets, which determine it. Raises LaunchError [structure]."""
        there = int(numbers(self.offsets)[-1])
        if count != there:
            text = f"nnz = {count}, while the last of the offsets is {there}"
            why = "Offsets say how many blocks each row has."
            raise LaunchError(text, slug="structure", why=why, instead="A.offsets = ..., then A.nnz_sync()")

    @property
    def row_counts(self) -> None:
        """Always None: rows are full, without spare room between them."""
        return None

    @row_counts.setter
    def row_counts(self, counts: object) -> None:
        """Raise LaunchError [topology] for anything but None."""
        if counts is not None:
            text = "a matrix with room between its rows (`row_counts`) is not here."
            why = "Each row has as many blocks as its offsets say."
            raise LaunchError(text, slug="topology", why=why, instead="A.row_counts = None")

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
        """(rows, columns) in numbers, not blocks."""
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
        """Return `nnz`; there is nothing to wait for."""
        return self.nnz

    def notify_nnz_changed(self, nnz: int | None = None, nnz_capacity: int | None = None) -> None:
        """After new `offsets`: where `columns` and `values` are too short for them, new ones of zeros.

        Raises LaunchError [structure] where `nnz` is not what the offsets say.
        """
        there = int(numbers(self.offsets)[-1])
        self.nnz = there if nnz is None else nnz
        room = max(there, nnz_capacity or 0)
        if len(self.columns) < room:
            self.columns = zeros(room, int, self.device)
        if len(self.values) < room:
            self.values = zeros(room, self.dtype, self.device, self.requires_grad)

    copy_nnz_async = nnz_sync
    transpose: Any  # `bsr_transposed`, set where the operators are

    def uncompress_rows(self, out: array | None = None) -> array:
        """The row of every stored block."""
        rows = rows_of(self.structure[0])
        return array(rows, int, device=self.device) if out is None else out.assign(rows)


def _same(A: BsrMatrix, structure: tuple, arrays: tuple[array, ...]) -> None:
    """Raise LaunchError [capture] if a matrix has other places or arrays than these, which a replay would use."""
    if A.structure is not structure or any(map(is_not, (A.offsets, A.columns, A.values), arrays)):
        text = f"a sparse matrix, {A}, has changed its places or arrays since the capture."
        instead = "with wb.capture() as graph: ...   once more; in a capture, z = x + y in place of y += x"
        raise LaunchError(text, slug="capture", why="A replay works on those that it had.", instead=instead)


def block_type(dtype: DTypeLike) -> Any:
    """The element type of `values`: a float scalar, or a matrix of them (1 x 1 is the scalar)."""
    made = dtype_of(dtype)
    if isinstance(made, Matrix) and made.shape == (1, 1):
        made = made.scalar
    if not isinstance(made, Scalar | Matrix) or made.scalar.kind != "f":
        text = f"blocks are numbers or matrices, not {made}"
        raise LaunchError(text, slug="dtype", instead="block_type=wb.mat33, or float")
    return made


@lru_cache(None)
def bsr_matrix_t(dtype: object) -> type:
    """The class itself, for annotations of host functions."""
    return BsrMatrix


def factor(value: Factor, dtype: Scalar) -> Any:
    """A number as the kernels for this scalar type take it; a declared scalar stays one."""
    return value if isinstance(value, scalar) else dtype.numpy.type(value)


def vector_of(a: array, size: int, dtype: Scalar) -> array:
    """A vector as blocks of `size` numbers: another view of its memory where it is one of scalars."""
    if size == 1 or a.dtype != dtype:
        return a
    kind = Vector(size, dtype)
    return a.view(kind) if a.ndim == 1 and a.size % size == 0 else a


# ---- structure, as integers on the host


Whole = array | Sequence[int] | np.ndarray  # rows, columns or counts, as users give them


def compressed(rows: np.ndarray, columns: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """(offsets, columns) of the distinct places, row by row, and for each given place its index there; all int32."""
    keys, place = np.unique(rows.astype(np.int64) * max(size[1], 1) + columns, return_inverse=True)
    found, at = np.divmod(keys, max(size[1], 1))
    offsets = np.searchsorted(found, np.arange(size[0] + 1))
    return offsets.astype(np.int32), at.astype(np.int32), place.reshape(-1).astype(np.int32)


def rows_of(offsets: np.ndarray) -> np.ndarray:
    """The row of every block, int32."""
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))


def numbers(a: Whole) -> np.ndarray:
    """The integers of an array as a NumPy array."""
    return np.array(read_values(a) if isinstance(a, array) else a, np.int32).reshape(-1)


def pairs(left_columns: np.ndarray, right_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of blocks to multiply in a product: each of the left with all of the right's row with its column number."""
    counts = np.diff(right_offsets)[left_columns] if len(left_columns) else np.zeros(0, int)
    left = np.repeat(np.arange(len(left_columns)), counts)
    first = np.repeat(right_offsets[left_columns] if len(left_columns) else counts, counts)
    within = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    return left.astype(np.int32), (first + within).astype(np.int32)
