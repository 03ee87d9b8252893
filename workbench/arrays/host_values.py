"""Values of the host as elements of an array: Python numbers, nested lists, NumPy arrays, struct instances."""

from __future__ import annotations

import math
from contextlib import suppress
from operator import index
from typing import Any

import numpy as np

from ..errors import LaunchError
from ..kernels import types
from ..kernels.types import Array, Struct
from . import ports
from .dtypes import ElementType, inner_shape


def shape_of(shape: Any, size: int | None = None) -> tuple[int, ...]:
    """A shape as a tuple of ints; one -1 is worked out from `size`. Raises LaunchError [shape]."""
    if shape.__class__ is int and shape >= 0:
        return (shape,)
    try:
        new = tuple(map(index, shape)) if isinstance(shape, (tuple, list, np.ndarray)) else (index(shape),)
    except (TypeError, ValueError):
        raise LaunchError(f"{shape!r} is not a shape", slug="shape", instead="shape=(n, m)") from None
    if size is not None and new.count(-1) == 1:
        rest = math.prod(n for n in new if n != -1)
        new = tuple((size // rest if rest else 0) if n == -1 else n for n in new)
    if not new or any(n < 0 for n in new):
        raise LaunchError(f"{shape!r} is not a shape", slug="shape", why="Arrays have one axis or more.")
    return new


def components_error(shape: tuple[int, ...], dtype: ElementType) -> LaunchError:
    """The LaunchError [components] for data whose last axes are not the components of the dtype."""
    inner = inner_shape(dtype)
    if not inner:
        text = f"one value of {dtype} is wanted, the data has shape {tuple(shape)}"
        return LaunchError(text, slug="components", instead="x.assign(values), for one value per element")
    text = f"data of shape {tuple(shape)} does not hold elements of {dtype}"
    why = f"The last {len(inner)} axes of the data are the components: they must be {inner}."
    return LaunchError(text, slug="components", why=why, instead=f"data.reshape(-1, {', '.join(map(str, inner))})")


def converted_values(data: object, dtype: ElementType | None) -> tuple[np.ndarray, ElementType]:
    """Host values as a NumPy array `(*shape, *components)` of the dtype, and the dtype (inferred where None)."""
    if isinstance(dtype, Struct):
        values = _records(data, dtype)
    else:
        dtype, raw = inferred(data, dtype)
        values = _composed(_converted(raw, dtype), dtype)
    inner = inner_shape(dtype)
    if values.ndim == len(inner):
        values = values.reshape((1, *inner))
    return values, dtype


def filled(values: np.ndarray, source: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Converted values in this shape, if `source` has all of them on one axis; else as they are."""
    return values.reshape(shape) if np.ndim(source) == 1 and values.size == math.prod(shape) else values


def inferred(data: Any, dtype: ElementType | None) -> tuple[ElementType, np.ndarray]:
    if hasattr(data, "get") and hasattr(data, "__cuda_array_interface__"):
        data = data.get()
    if dtype is None and isinstance(data, (list, tuple)) and data and isinstance(data[0], types.Small):
        dtype = data[0].type
    try:
        raw = np.asarray(data)
    except ValueError as error:
        raise LaunchError(f"the data is not a regular array: {error}", slug="shape") from None
    except TypeError:
        for wrap in ports.wrappers:  # its library knows of a dtype that NumPy has not
            wrap(data, Array(types.float32))
        raise
    if dtype is not None and dtype.numpy.kind in "iu" and isinstance(data, list | tuple) and raw.dtype == np.float64:
        with suppress(TypeError, ValueError, OverflowError):  # NumPy has made floats of what may have more digits
            whole = np.array(data, object).reshape(raw.shape)
            raw = made if np.array_equal((made := whole.astype(dtype.numpy)).astype(object), whole) else raw
    if raw.dtype.kind not in "fiub":
        raise LaunchError(f"data of NumPy type {raw.dtype} has no dtype in the kernel language", slug="dtype")
    if dtype is None:
        python = not hasattr(data, "dtype")
        dtype = types.scalar_of({"f": float, "i": int}.get(raw.dtype.kind, raw.dtype) if python else raw.dtype)
    return dtype, raw


def _converted(raw: np.ndarray, dtype: ElementType) -> np.ndarray:
    target = dtype.numpy
    if raw.dtype == target:
        return raw
    with np.errstate(all="ignore"):
        values = raw.astype(target)
    if target.kind in "iu" and raw.size and not np.array_equal(values.astype(raw.dtype), raw):
        text = f"values of NumPy type {raw.dtype} do not fit {dtype}"
        why = "They would be cut off or wrap around."
        raise LaunchError(text, slug="convert", why=why, instead="data.astype(...) first, or a wider dtype")
    return values


def _composed(values: np.ndarray, dtype: ElementType) -> np.ndarray:
    """Reshape to `(*shape, *components)`, as Warp does: the last axis may hold components of one element or several."""
    inner = inner_shape(dtype)
    if not inner or values.shape[-len(inner) :] == inner:
        return values
    outer, size = list(values.shape), math.prod(inner)
    while len(outer) > 1 and outer[-1] == 1:
        outer.pop()
    if outer and outer[-1] % size == 0:
        outer[-1] //= size
        return values.reshape((*(outer if outer[-1] != 1 else outer[:-1]), *inner))
    raise components_error(values.shape, dtype)


def _records(data: object, dtype: Struct) -> np.ndarray:
    """A structured NumPy array from struct instances (read with getattr), records, or a structured array."""
    if isinstance(data, np.ndarray) and data.dtype.names:
        if data.dtype.names != dtype.numpy.names:
            raise LaunchError(f"the record has fields {data.dtype.names}, {dtype} {dtype.numpy.names}", slug="field")
        return data.astype(dtype.numpy)
    if isinstance(data, (list, tuple, np.ndarray)):
        parts = [_records(d, dtype) for d in data]
        return np.stack(parts) if parts else np.zeros(0, dtype.numpy)
    return np.array(_record(data, dtype), dtype.numpy)


def _record(instance: object, dtype: Struct) -> Any:
    if isinstance(instance, np.void):
        return tuple(instance[name] for name, _ in dtype.fields)
    values = []
    for name, kind in dtype.fields:
        if not hasattr(instance, name):
            raise LaunchError(f"{type(instance).__name__} is no {dtype}: it has no field {name!r}", slug="field")
        value = getattr(instance, name)
        values.append(_record(value, kind) if isinstance(kind, Struct) else value)
    return tuple(values)


def is_element(value: Any, dtype: ElementType) -> bool:
    """True for one value that is meant for every element, False for one value for each."""
    if isinstance(dtype, Struct):
        return not isinstance(value, (list, tuple, np.ndarray)) or isinstance(value, np.void)
    if np.ndim(value) == 0:
        return True
    return isinstance(value, types.Small) and value.shape == inner_shape(dtype)


def element_value(value: Any, dtype: ElementType) -> Any:
    """One element as NumPy has it: a scalar, components, or a record. A number is broadcast to all components."""
    if isinstance(dtype, Struct):
        if np.ndim(value) == 0 and not isinstance(value, np.void) and isinstance(value, (int, float, np.number)):
            if value != 0:
                raise LaunchError(f"fill of {dtype} with the number {value}", slug="dtype", instead=f"a {dtype}()")
            return np.zeros((), dtype.numpy)
        return _records(value, dtype)
    _, raw = inferred(value, dtype)
    if raw.ndim and raw.size != math.prod(inner_shape(dtype)):
        raise components_error(raw.shape, dtype)
    raw = raw.reshape(inner_shape(dtype)) if raw.ndim else np.broadcast_to(raw, inner_shape(dtype))
    return _converted(raw, dtype)
