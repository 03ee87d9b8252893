"""Layouts: one number for equal ones, and those of views (`a[key]`, `a.view(dtype)`, `a.field(path)`)."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..errors import BoundsError, LaunchError
from ..kernels.types import Struct, Type
from .dtypes import inner_shape, itemsize_of
from .span import row_strides

if TYPE_CHECKING:
    from .array import array


serials = itertools.count()  # one number per array, never the same again
_numbers: dict[tuple, int] = {}
_next = itertools.count()  # not the length of the dict: two threads may add to it at once


def layout_number(dtype: Type, shape: tuple[int, ...], strides: tuple[int, ...], ordinal: int) -> int:
    """An id of (dtype, shape, byte strides, GPU ordinal): equal for equal layouts. It decides the code that runs."""
    return _numbers.setdefault((dtype, shape, strides, ordinal), next(_next))


def indexed(owner: array, key: Any) -> tuple[list[range], list[bool]]:
    """Per axis the indices taken, and whether the axis stays. Raises LaunchError [index], BoundsError [bounds]."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if Ellipsis in [k for k in keys if k is Ellipsis]:
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        keys[at : at + 1] = [slice(None)] * (owner.ndim - len(keys) + 1)
    if len(keys) > owner.ndim:
        raise BoundsError(f"{len(keys)} indices for {owner.label} of shape {owner.shape}", slug="bounds")
    keys += [slice(None)] * (owner.ndim - len(keys))
    picked = [_picked(k, n, owner) for k, n in zip(keys, owner.shape, strict=True)]
    return picked, [isinstance(k, slice) for k in keys]


def _picked(key: Any, n: int, owner: array) -> range:
    if isinstance(key, slice):
        try:
            return range(*key.indices(n))
        except (TypeError, ValueError) as error:
            raise LaunchError(f"slice of {owner.label}: {error}", slug="index") from None
    try:
        i = key.__index__() if not isinstance(key, (bool, np.bool_)) else None
    except (AttributeError, TypeError):
        i = None
    if i is None:
        raise LaunchError(
            f"{owner.label} is indexed by integers and slices, not by {type(key).__name__}",
            slug="index",
            instead="x.numpy()[...] on the host, or a kernel with an index array",
        )
    if not -n <= i < n:
        raise BoundsError(f"index {i} of {owner.label} with shape {owner.shape}", slug="bounds")
    i %= n
    return range(i, i + 1)


def viewed(owner: array, new: Type) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of the same bytes as elements of `new`. Raises LaunchError [components]."""
    old_size, new_size = itemsize_of(owner.dtype), itemsize_of(new)
    if old_size == new_size:
        return owner.shape, owner.strides
    if new_size < old_size and old_size % new_size == 0:
        inner = inner_shape(owner.dtype)
        split = inner if new_size * math.prod(inner) == old_size else ()
        split = split or (old_size // new_size,)
        return owner.shape + split, owner.strides + row_strides(split, new_size)
    return _joined(owner, new, old_size, new_size)


def _joined(owner: array, new: Type, old_size: int, new_size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    parts, left = divmod(new_size, old_size)
    inner = inner_shape(new)
    if left or not owner.ndim:
        raise LaunchError(f"cannot view {owner.dtype} of shape {owner.shape} as {new}", slug="components")
    n = len(inner)
    if owner.ndim > n >= 1 and owner.shape[-n:] == inner and owner.strides[-n:] == row_strides(inner, old_size):
        return owner.shape[:-n], owner.strides[:-n]
    if owner.shape[-1] % parts or (owner.strides[-1] != old_size and owner.shape[-1] > 1):
        raise LaunchError(
            f"cannot view {owner.dtype} of shape {owner.shape} as {new}: the last axis must be contiguous "
            f"and a multiple of {parts}",
            slug="components",
            instead="x.contiguous().view(...)",
        )
    return (*owner.shape[:-1], owner.shape[-1] // parts), (*owner.strides[:-1], new_size)


def field_of(dtype: Type, path: str) -> tuple[Type, int]:
    """Type and byte offset, within one element, of a field (`"q"`, `"inner.a"`). Raises LaunchError [field]."""
    kind: Any = dtype
    offset = 0
    for name in path.split("."):
        if not isinstance(kind, Struct) or name not in dict(kind.fields):
            raise LaunchError(f"{dtype} has no field {path!r}", slug="field")
        offset += cast(Any, kind.numpy.fields)[name][1]
        kind = dict(kind.fields)[name]
    return kind, offset
