"""Functions that make arrays in new memory, like another array or on the memory of NumPy, and copies between arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..device import DeviceLike, get_device, on_host
from ..errors import BoundsError, LaunchError
from ..kernels import types
from ..kernels.reading import declare
from .array import array, exact, finished, new_array
from .dtypes import DTypeLike, differentiable, dtype_of
from .host_copies import check_same, put, write_array, write_values
from .host_reads import origin_of
from .host_values import element_value, inferred
from .missing_methods import check_is_array
from .span import ShapeLike


def _size(shape: ShapeLike | None, n: int | None) -> Any:
    """The shape; `n` is its old spelling for one axis. (`pinned` says nothing here: memory is NumPy's or CuPy's.)"""
    if (shape is None) == (n is None):
        raise LaunchError("a new array takes a shape", slug="shape", instead="wb.zeros(shape, dtype=...)")
    return n if shape is None else shape


def empty(
    shape: ShapeLike | None = None,
    dtype: DTypeLike = float,
    device: DeviceLike = None,
    requires_grad: bool = False,
    *,
    name: str | None = None,
    retain_grad: bool = False,
    n: int | None = None,
    pinned: bool = False,
) -> array:
    """New memory with unspecified contents.

    Use it for memory that a kernel fills before anybody reads it.

    >>> wb.empty((4, 4), dtype=wb.float64).shape
    (4, 4)
    """
    made = new_array(_size(shape, n), dtype_of(dtype), device, zeroed=False)
    return finished(made, requires_grad, retain_grad, None, name)


def zeros(
    shape: ShapeLike | None = None,
    dtype: DTypeLike = float,
    device: DeviceLike = None,
    requires_grad: bool = False,
    *,
    name: str | None = None,
    retain_grad: bool = False,
    n: int | None = None,
    pinned: bool = False,
) -> array:
    """New memory of zeros.

    >>> wb.zeros((2, 3)).shape
    (2, 3)
    >>> wb.zeros(2, dtype=wb.vec3, requires_grad=True).grad
    array([[0., 0., 0.],
           [0., 0., 0.]], dtype=vec3, shape=(2,))
    """
    return finished(new_array(_size(shape, n), dtype_of(dtype), device), requires_grad, retain_grad, None, name)


def full(
    shape: ShapeLike | None = None,
    value: object = 0,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    *,
    name: str | None = None,
    retain_grad: bool = False,
    n: int | None = None,
    pinned: bool = False,
) -> array:
    """New memory with `value` everywhere; the dtype is that of the value unless given.

    >>> wb.full((2,), 7)
    array([7, 7], dtype=int32, shape=(2,))
    """
    if dtype is None:
        typed = isinstance(value, types.Small)
        dtype = value.type if typed else value.dtype if isinstance(value, array) else inferred(value, None)[0]
    made = new_array(_size(shape, n), dtype_of(dtype), device, zeroed=False)
    if exact.fill(made, value):
        return finished(made, requires_grad, retain_grad, None, name)
    value = value.item() if isinstance(value, array) else value
    put(made, element_value(value, made.dtype))
    if sources := origin_of(value):
        write_values(made, on_host(made.data), sources)
    return finished(made, requires_grad, retain_grad, None, name)


def ones(
    shape: ShapeLike | None = None,
    dtype: DTypeLike = float,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **rest: Any,
) -> array:
    """New memory of ones (every component of composites).

    >>> wb.ones(3, dtype=wb.float64)
    array([1., 1., 1.], dtype=float64, shape=(3,))
    """
    return full(shape, 1, dtype, device, requires_grad, **rest)


def _like(
    make: Callable[..., array], src: array, args: tuple, device: DeviceLike, requires_grad: bool | None, rest: dict
) -> array:
    check_is_array(f"{make.__name__}_like", src, array, f"wb.{make.__name__}(data.shape, ...)")
    dtype = dtype_of(rest.pop("dtype", None) or src.dtype)
    wanted = (src.requires_grad and differentiable(dtype)) if requires_grad is None else requires_grad
    return make(src.shape, *args, dtype=dtype, device=device or src.device, requires_grad=wanted, **rest)


def empty_like(src: array, device: DeviceLike = None, requires_grad: bool | None = None, **rest: object) -> array:
    """`empty` with shape, dtype, device and `requires_grad` of `src`.

    >>> wb.empty_like(wb.zeros((2, 5))).shape
    (2, 5)
    """
    return _like(empty, src, (), device, requires_grad, rest)


def zeros_like(src: array, device: DeviceLike = None, requires_grad: bool | None = None, **rest: object) -> array:
    """`zeros` with shape, dtype, device and `requires_grad` of `src`.

    >>> wb.zeros_like(wb.array([1.0, 2.0]))
    array([0., 0.], dtype=float32, shape=(2,))
    """
    return _like(zeros, src, (), device, requires_grad, rest)


def ones_like(src: array, device: DeviceLike = None, requires_grad: bool | None = None, **rest: object) -> array:
    """`ones` with shape, dtype, device and `requires_grad` of `src`.

    >>> wb.ones_like(wb.array([5, 6]))
    array([1, 1], dtype=int32, shape=(2,))
    """
    return _like(ones, src, (), device, requires_grad, rest)


def full_like(
    src: array, value: object, device: DeviceLike = None, requires_grad: bool | None = None, **rest: object
) -> array:
    """`full` with shape, dtype, device and `requires_grad` of `src`.

    >>> wb.full_like(wb.zeros(2), 3.0)
    array([3., 3.], dtype=float32, shape=(2,))
    """
    return _like(full, src, (value,), device, requires_grad, rest)


def copy(
    dest: array, src: array, dest_offset: int = 0, src_offset: int = 0, count: int = 0, stream: object = None
) -> None:
    """Copy `src` into `dest`: all of it for equal shapes, or `count` elements (0: all of `src` from its offset on).

    Offsets and count are in elements of the flattened arrays, which must then be contiguous or have one axis.
    Raises LaunchError [dtype], [layout]; BoundsError [bounds] if the range does not fit.

    Use it to move results between arrays inside a tape: unlike NumPy's assignment, gradients pass through it.

    >>> x, y = wb.array([1.0, 2.0, 3.0]), wb.zeros(3)
    >>> wb.copy(y, x, dest_offset=1, count=2)
    >>> y.list()
    [0.0, 1.0, 2.0]
    """
    check_is_array("copy(dest, ...)", dest, array, "wb.from_numpy(data) around it")
    check_is_array("copy(..., src)", src, array, "dest.assign(values)")
    if dest_offset or src_offset or count or dest.shape != src.shape:
        n = int(count) if count else src.size - src_offset
        if min(dest_offset, src_offset, n) < 0 or dest_offset + n > dest.size or src_offset + n > src.size:
            raise BoundsError(
                f"copy of {n} elements from {src.label}[{src_offset}:] (of {src.size}) "
                f"to {dest.label}[{dest_offset}:] (of {dest.size})",
                slug="bounds",
            )
        dest, src = (a if a.ndim == 1 else a.flatten() for a in (dest, src))
        dest, src = dest[dest_offset : dest_offset + n], src[src_offset : src_offset + n]
    check_same(dest, src, "copy")
    if dest.size:
        write_array("copy", dest, src)


def from_numpy(
    arr: np.ndarray,
    dtype: DTypeLike = None,
    shape: ShapeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **rest: Any,
) -> array:
    """An array on the memory of a NumPy array: writes on either side are seen on both (the memory is exposed).

    Where that cannot be (another dtype is asked for, the data is read-only, the device is a GPU) it is a copy.

    Use it to work on NumPy's memory in place; `wb.array(data)` makes a copy instead.

    >>> data = np.zeros(3, np.float32)
    >>> x = wb.from_numpy(data)
    >>> _ = x.fill_(2.0)
    >>> data
    array([2., 2., 2.], dtype=float32)
    """
    check_is_array("from_numpy", arr, np.ndarray, "wb.array(data)")
    element = dtype_of(arr.dtype if dtype is None else dtype)
    fits = arr.dtype == element.numpy and arr.flags.writeable and get_device(device).is_cpu
    return array(arr, element, shape, device, requires_grad, copy=not fits, **rest)


declare.LOCAL_ZEROS.add(zeros)
