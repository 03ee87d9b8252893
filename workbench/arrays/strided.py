"""Strided arrays: memory seen with a dtype, a shape and strides. What every array is, its bytes, and its views.

`StridedArray` has the fields of `array` and what needs nothing but them; reading, writing and gradients lie above.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, Self, TypeVar, cast

import numpy as np

from ..device import Device
from ..errors import BoundsError, LaunchError
from ..kernels.types import Struct
from .allocation import Allocation
from .dtypes import DTypeLike, ElementType, differentiable, dtype_of, inner_shape, is_half, itemsize_of
from .host_values import shape_of
from .span import ShapeLike, Span, row_strides

_serials = itertools.count()  # one number per array, never the same again
MOST_LAYOUTS = 1 << 14  # that are told by a number at once
Key = int | np.integer | slice | EllipsisType | Sequence[Any]  # what arrays are indexed by
_layouts = itertools.count()


@functools.lru_cache(MOST_LAYOUTS)  # no number is given twice, so what is known of forgotten ones stays true
def _layout(dtype: ElementType, shape: tuple[int, ...], strides: tuple[int, ...], ordinal: int) -> tuple[Any, ...]:
    """The facts of dtype, shape, byte strides and GPU: a number, equal for equal ones, which decides what runs; size,
    itemsize, `grad_scale` or 0, shape and strides in one, `struct` of address and these."""
    pack = struct.Struct(f"=Q{2 * len(shape)}q").pack
    scale = (2 if is_half(dtype) else 1) if differentiable(dtype) else 0
    return next(_layouts), math.prod(shape), itemsize_of(dtype), scale, (*shape, *strides), pack


S = TypeVar("S", bound="StridedArray")


class StridedArray:
    """A dtype, a shape and byte strides on an allocation, from `_offset` on. The base of `array`, which alone is made.

    _address    of the first element.
    _layout     number of the layout: equal for equal ones.
    _steps      shape and strides in one; `_block`: address, shape and strides as the block of arguments has them.
    span       its bytes within the allocation.
    _data, _grad   made when first asked for.
    serial      one number per object, never the same again.
    """

    dtype: ElementType
    ndim: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    size: int
    allocation: Allocation
    device: Device
    serial: int
    _address: int
    _offset: int
    _layout: int
    _steps: tuple[int, ...]
    _block: bytes
    span: Span
    _data: Any = None
    _grad: Any = None
    _name: str | None = None
    _differentiable: bool

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FIXED:
            text = f"{self.label}.{name} = ... : an array keeps its memory and its layout."
            raise LaunchError(text, slug="layout", why="Launches and tapes remember both.", instead=_FIXED[name])
        object.__setattr__(self, name, value)

    @property
    def data(self) -> Any:
        """The bytes as a strided NumPy (CuPy) array of shape `(*shape, *components)`. For internal reading."""
        memory = self.allocation
        if memory.gradient_view is not None:
            memory.gradient_view.pull(memory)
        if memory.rows is not None:
            memory.refuse_rows()
        if self._data is None:
            self._data = self.span.view(self.dtype.numpy, inner_shape(self.dtype))
        return self._data

    @property
    def is_contiguous(self) -> bool:
        return self.span.contiguous

    @property
    def nbytes(self) -> int:
        return self.span.nbytes

    @property
    def label(self) -> str:
        """The name used in messages."""
        return self._name or f"{self.allocation}"

    @property
    def is_gradient(self) -> bool:
        """True if this array is the gradient of another."""
        return self.allocation.is_gradient

    # ---- views

    def _view(self, dtype: ElementType, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Self:
        return placed(type(self), self.allocation, dtype, shape, strides, offset)

    def _boxed(self, picked: list[range], stays: list[bool]) -> Self:
        box = self.span.box(picked)
        kept = [i for i, stay in enumerate(stays) if stay]
        shape, strides = tuple(box.shape[i] for i in kept), tuple(box.strides[i] for i in kept)
        return self._view(self.dtype, shape, strides, box.offset)

    def _cell(self, place: Sequence[int]) -> Self:
        offset = self._offset + sum(i * s for i, s in zip(place, self.strides, strict=True))
        return self._view(self.dtype, (1,), (itemsize_of(self.dtype),), offset)

    def reshape(self, shape: ShapeLike, *more: int) -> Self:
        """The same elements in another shape (one axis may be -1). Needs contiguous memory [layout]."""
        new = shape_of((shape, *more) if more else shape, self.size)
        if math.prod(new) != self.size:
            raise LaunchError(f"cannot reshape {self.label} of shape {self.shape} to {new}", slug="shape")
        if not self.is_contiguous:
            text = f"reshape of {self.label}: shape {self.shape} with strides {self.strides} is not contiguous"
            why = "It would have to copy, and a copy has its own gradient."
            raise LaunchError(text, slug="layout", why=why, instead="x.contiguous().reshape(...)")
        return self._view(self.dtype, new, row_strides(new, itemsize_of(self.dtype)), self._offset)

    def flatten(self) -> Self:
        """The same elements as one axis. Needs contiguous memory [layout]."""
        return self.reshape((self.size,))

    def transpose(self, axes: Sequence[int] | None = None) -> Self:
        """The same memory with its axes in another order, by default reversed."""
        order = tuple(reversed(range(self.ndim))) if axes is None else tuple(int(a) % self.ndim for a in axes)
        if sorted(order) != list(range(self.ndim)):
            raise LaunchError(f"transpose{tuple(axes or ())} of {self.ndim} axes", slug="shape")
        shape, strides = tuple(self.shape[a] for a in order), tuple(self.strides[a] for a in order)
        return self._view(self.dtype, shape, strides, self._offset)

    @property
    def T(self) -> Self:
        return self.transpose()

    def view(self, dtype: DTypeLike) -> Self:
        """The same bytes as another dtype. Views of one float scalar type share their gradient.

        Equal element size: any layout. Otherwise the last axis must be contiguous: `(n, 3)` floats are `(n,)` vec3,
        `(6,)` floats are `(2,)` vec3, and `(n,)` vec3 are `(n, 3)` floats.
        """
        new = dtype_of(dtype)
        shape, strides = _viewed(self, new)
        return self._view(new, shape, strides, self._offset)

    def field(self, path: str) -> Self:
        """One field (`"q"`, `"inner.a"`) of an array of structs: a strided array on the same memory."""
        dtype, offset = _field_of(self.dtype, path)
        return self._view(dtype, self.shape, self.strides, self._offset + offset)


_FIXED = dict.fromkeys(("shape", "ndim", "size", "strides"), "y = x.reshape(shape)") | {
    "dtype": "y = x.view(dtype)",
    "device": "y = x.to(device)",
    "allocation": "x.assign(y)",
    "serial": "",
    "span": "",
}


class _Unplaced(StridedArray):
    """The fields that `placed` fills in, before it becomes an array."""

    __setattr__ = object.__setattr__  # type: ignore[assignment]


def placed(kind: type[S], memory: Allocation, dtype: ElementType, shape: tuple, strides: tuple, offset: int) -> S:
    """A new array of this class and layout (byte strides, byte offset) on `memory`. All arrays are made here."""
    made: Any = object.__new__(_Unplaced)
    made.dtype, made.shape, made.strides, made.ndim = dtype, shape, strides, len(shape)
    made.allocation, made.device = memory, memory.device
    made._offset, made._address = offset, memory.address + offset
    layout = _layout(dtype, shape, strides, memory.device.ordinal)
    made._layout, made.size, itemsize, scale, made._steps, pack = layout
    made._differentiable = scale > 0
    made.span = Span(memory, offset, shape, strides, itemsize)
    made._block = pack(made._address, *made._steps)
    made.serial = next(_serials)
    if memory.grad_scale is None and scale:  # the first float array on the memory decides
        memory.grad_scale = scale
    made.__class__ = kind
    return made


def indexed(owner: StridedArray, key: Key) -> tuple[list[range], list[bool]]:
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


def _picked(key: Any, n: int, owner: StridedArray) -> range:
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
        text = f"{owner.label} is indexed by integers and slices, not by {type(key).__name__}"
        raise LaunchError(text, slug="index", instead="x.numpy()[...] on the host, or a kernel with an index array")
    if not -n <= i < n:
        raise BoundsError(f"index {i} of {owner.label} with shape {owner.shape}", slug="bounds")
    i %= n
    return range(i, i + 1)


def _viewed(owner: StridedArray, new: ElementType) -> tuple[tuple[int, ...], tuple[int, ...]]:
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


def _joined(
    owner: StridedArray, new: ElementType, old_size: int, new_size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
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


def _field_of(dtype: ElementType, path: str) -> tuple[ElementType, int]:
    """Type and byte offset, within one element, of a field (`"q"`, `"inner.a"`). Raises LaunchError [field]."""
    kind: Any = dtype
    offset = 0
    for name in path.split("."):
        if not isinstance(kind, Struct) or name not in dict(kind.fields):
            raise LaunchError(f"{dtype} has no field {path!r}", slug="field")
        offset += cast(Any, kind.numpy.fields)[name][1]
        kind = dict(kind.fields)[name]
    return kind, offset
