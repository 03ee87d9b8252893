"""Sparse matrices of blocks (BSR), under Warp's names: `wb.sparse.bsr_from_triplets(...)`, `bsr_mv`, `bsr_mm`.

The one idea: the structure (places of blocks) is computed on the host, in integers; values are computed by kernels, as
sums of products of blocks. So values are differentiated exactly, and places have no derivative. Imports from `tapes`
downwards. To add an operation: find the places (`matrix.compressed`), launch a kernel of `kernels.py`.
"""

from ..kernels.reading.declare import Refused
from .kernels import bsr_block_index, bsr_row_index
from .matrix import BsrMatrix, bsr_matrix_t
from .operations import (
    bsr_assign,
    bsr_axpy,
    bsr_compress,
    bsr_copy,
    bsr_diag,
    bsr_from_triplets,
    bsr_get_diag,
    bsr_identity,
    bsr_scale,
    bsr_set_diag,
    bsr_set_from_triplets,
    bsr_set_identity,
    bsr_set_transpose,
    bsr_set_zero,
    bsr_transposed,
    bsr_zeros,
)
from .products import bsr_axpy_work_arrays, bsr_mm, bsr_mm_work_arrays, bsr_mv

BsrTripletMap = Refused("sparse.BsrTripletMap", "bsr_set_from_triplets each time: it finds the places anew.")
bsr_set_from_mapped_values = Refused("sparse.bsr_set_from_mapped_values", "bsr_set_from_triplets each time.")
BSR_STATUS_SUCCESS, BSR_STATUS_ROW_CAPACITY_EXCEEDED = 0, 1

__all__ = [n for n, made in globals().items() if n[:3] in ("Bsr", "bsr") and not isinstance(made, Refused)]  # noqa: PLE0605
__dir__ = __all__.copy
