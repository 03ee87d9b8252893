"""Conversions between NumPy dtypes and scalar types, under Warp's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.dtypes import dtype_of
from ...errors import LaunchError
from ...kernels.types import Scalar, scalar_of


def dtype_from_numpy(numpy_dtype: Any) -> Scalar:
    """The scalar type of a dtype of NumPy. Raises LaunchError [dtype] where there is none.

    >>> wb.dtype_from_numpy(np.float64)
    float64
    """
    try:
        return scalar_of(np.dtype(numpy_dtype))
    except TypeError:
        raise LaunchError(f"{numpy_dtype} is not a dtype of numbers", slug="dtype", instead="np.float32") from None


def dtype_to_numpy(warp_dtype: object) -> Any:
    """The dtype of NumPy of a scalar type, of the components of a vector or matrix, or of the elements of a struct.

    >>> wb.dtype_to_numpy(wb.vec3)
    dtype('float32')
    """
    return dtype_of(warp_dtype).numpy  # type: ignore[attr-defined]
