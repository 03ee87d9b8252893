"""The operators of Python on sparse matrices: `A @ x`, `A @ B`, `A + B`, `A - B`, `2.0 * A`, `A / 2.0`, `-A`."""

from __future__ import annotations

from typing import Any

from ..arrays.array import array
from .matrix import BsrMatrix
from .operations import bsr_axpy, bsr_copy, bsr_scale, bsr_transposed
from .products import bsr_mm, bsr_mv


def _times(a: BsrMatrix, other: object) -> Any:
    if isinstance(other, BsrMatrix):
        return bsr_mm(a, other)
    return bsr_mv(a, other) if isinstance(other, array) else NotImplemented


def _plus(a: BsrMatrix, b: BsrMatrix) -> BsrMatrix:
    return bsr_axpy(b, bsr_copy(a))


def _minus(a: BsrMatrix, b: BsrMatrix) -> BsrMatrix:
    return bsr_axpy(b, bsr_copy(a), alpha=-1.0)


def _scaled(a: BsrMatrix, factor: float) -> BsrMatrix:
    return bsr_scale(bsr_copy(a), factor)


for _name, _made in {
    "__matmul__": _times,
    "__add__": _plus,
    "__sub__": _minus,
    "__mul__": _scaled,
    "__rmul__": _scaled,
    "__truediv__": lambda a, factor: _scaled(a, 1.0 / factor),
    "__neg__": lambda a: _scaled(a, -1.0),
}.items():
    setattr(BsrMatrix, _name, _made)
BsrMatrix.transpose = bsr_transposed
