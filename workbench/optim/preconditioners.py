"""Approximate inverses of matrices, inverted in NumPy, for solvers of linear systems."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.array import array
from ..arrays.creation import zeros
from ..arrays.dtypes import scalar_in
from ..errors import LaunchError
from ..kernels.types import Scalar
from ..sparse import BsrMatrix, bsr_get_diag
from .operators import LinearOperator, aslinearoperator

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
