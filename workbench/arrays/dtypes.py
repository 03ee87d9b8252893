"""Element types of arrays: the type that a user's dtype stands for, its size, components and gradient."""

from __future__ import annotations

import numpy as np

from ..errors import LaunchError
from ..kernels import types
from ..kernels.types import Composite, Scalar, Struct, Type

DTypeLike = Type | type | np.dtype | str | None  # how users name a dtype; None where there is a default
ElementType = Scalar | Composite | Struct  # the dtypes that arrays have


def dtype_of(dtype: DTypeLike) -> ElementType:
    """The element type that a user's name stands for. Raises LaunchError [dtype], [struct-array]."""
    if isinstance(dtype, Struct):
        _check_layout(dtype, dtype, "")
        return dtype
    if isinstance(dtype, (Scalar, Composite)):
        return dtype
    if isinstance(dtype, types.Array):
        raise LaunchError(f"{dtype} cannot be the dtype of an array", slug="dtype", instead=f"dtype={dtype.dtype}")
    try:
        return types.scalar_of(dtype)
    except TypeError:
        why = "A dtype is a scalar (float32, int32 ...), a vector, matrix, quaternion, transform or struct type."
        raise LaunchError(f"{dtype!r} is not a dtype", slug="dtype", why=why) from None


def _check_layout(whole: Struct, part: Struct, path: str) -> None:
    """Raises LaunchError [struct-array] for a struct with an array in it, which has no bytes to lie in an array."""
    for name, field in part.fields:
        if isinstance(field, Struct):
            _check_layout(whole, field, f"{path}{name}.")
        elif isinstance(field, types.Array):
            raise LaunchError(
                f"an array of {whole}: its field {path}{name} is an array.",
                slug="struct-array",
                why="An element would hold an address, and no tape sees which memory an address stands for.",
                instead=f"one array of {path}{name} for all elements, one behind the other, and a field with the place"
                f" where each begins; or a launch for each {whole}",
            )


def itemsize_of(dtype: ElementType) -> int:
    """Bytes of one element."""
    return dtype.numpy.itemsize if isinstance(dtype, Struct) else dtype.itemsize


def scalar_in(dtype: Type) -> Scalar:
    """The scalar type of a dtype that is known to be a scalar or to have components of one."""
    assert isinstance(dtype, (Scalar, Composite))
    return dtype.scalar


def differentiable(dtype: Type) -> bool:
    """True for types with a float in them: their memory can have a gradient."""
    if isinstance(dtype, Struct):
        return any(differentiable(t) for _, t in dtype.fields)
    return types.is_float(dtype)


def is_half(dtype: Type) -> bool:
    """True for float16 and composites of it, whose gradients are float32."""
    return getattr(dtype, "scalar", None) is types.float16


def inner_shape(dtype: Type) -> tuple[int, ...]:
    """The component axes of one element: () for numbers and structs, (3,) for vec3, (2, 2) for mat22."""
    return getattr(dtype, "shape", ())


def casting(have: Type, want: Type) -> str:
    """The line of code, for a message, that converts an array to another dtype as an event of a tape."""
    if isinstance(have, Scalar) and isinstance(want, Scalar):
        return f"wb.map(f, x), with def f(v: wb.{have}): return wb.{want}(v)"
    return "y[i] = ...   in a kernel, which casts each component"


def dtype_from_numpy(numpy_dtype: np.dtype | type | str) -> Scalar:
    """The scalar type of a dtype of NumPy. Raises LaunchError [dtype] where there is none.

    >>> wb.dtype_from_numpy(np.float64)
    float64
    """
    try:
        return types.scalar_of(np.dtype(numpy_dtype))
    except TypeError:
        raise LaunchError(f"{numpy_dtype} is not a dtype of numbers", slug="dtype", instead="np.float32") from None


def dtype_to_numpy(warp_dtype: DTypeLike) -> np.dtype:
    """The dtype of NumPy of a scalar type, of the components of a vector or matrix, or of the elements of a struct.

    >>> wb.dtype_to_numpy(wb.vec3)
    dtype('float32')
    """
    return dtype_of(warp_dtype).numpy
