"""The workspace of one walk: a shadow per allocation, indexed like the memory, and the views that adjoints work on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ..device import XpArray, on_host, xp
from ..errors import GradientError
from ..kernels.types import Scalar, Struct, is_float
from . import capture_log
from .allocation import Allocation
from .array import array, on_device
from .capture_log import address, move
from .dtypes import ElementType, differentiable, scalar_in
from .span import Span, row_strides, strided_view

SUMMED = 4096  # threads whose contributions to a declared scalar are added up before they join the others


class Shadow:
    """The adjoint of one allocation: as many numbers as the memory holds, indexed like it.

    It starts as zeros, or as a copy of `start`. With `copy` it holds these bytes instead (values, not adjoints).
    `scale`: its bytes per byte of the memory; `last`: the array that was asked for last, and its view.
    """

    __slots__ = ("data", "address", "scale", "allocation", "last")
    last: tuple[Any, Any]

    def __init__(
        self, allocation: Allocation, copy: XpArray | None = None, start: XpArray | None = None, clear: bool = True
    ):
        self.allocation, self.scale, self.last = allocation, 1, (None, None)
        if copy is None:
            self.scale = allocation.grad_scale or 1
            self.data, self.address = _buffer(allocation, allocation.nbytes * self.scale, start, clear)
        else:
            self.data, self.address = copy, address(copy)
        if capture_log.opened is not None:
            capture_log.keep(self.data)

    def view(self, span: Span, dtype: np.typing.DTypeLike) -> Any:
        """The adjoint of a span as an array of `dtype`."""
        k = self.scale
        count = span.itemsize * k // np.dtype(dtype).itemsize
        shape, strides = span.shape, tuple(s * k for s in span.strides)
        if count != 1:
            shape, strides = (*shape, count), (*strides, np.dtype(dtype).itemsize)
        return strided_view(self.data, shape, dtype, span.offset * k, strides)


class Workspace(dict):
    """Shadows by allocation, made when first asked for; `dropping`: the walk releases those that are not read again.

    `unreached`: ids of allocations that its tape wrote and no adjoint came to.
    """

    dropping, unreached = False, frozenset[int]()

    def __missing__(self, allocation: Allocation) -> Shadow:
        made = self[allocation] = Shadow(allocation)
        return made

    def fresh(self, arrays: list[array]) -> list[array]:
        """Make shadows of undefined contents for the arrays that are a whole memory without one; returns those."""
        found = [a for a in arrays if a.allocation not in self and a.span.dense and a.nbytes == a.allocation.nbytes]
        for a in found:
            self[a.allocation] = Shadow(a.allocation, clear=False)
        return found

    def release(self) -> None:
        """Return all buffers to the pool at the end of a walk: fresh pages would cost the next more than its work."""
        global _walks
        for a in list(self):
            self.drop(a)
        for key, buffers in _spare.items():
            _spare[key] = [b for b in buffers if b[2] == _walks]
        _walks += 1

    def drop(self, a: Allocation) -> None:
        """Remove one shadow and return its buffer to the pool."""
        shadow = self.pop(a)
        _spare.setdefault((a.device.ordinal, len(shadow.data)), []).append((shadow.data, shadow.address, _walks))


_walks = 0  # that were released
_spare: dict[tuple[int, int], list[tuple[Any, int, int]]] = {}  # by GPU and size: bytes, address, its last walk


def _buffer(allocation: Allocation, n: int, start: XpArray | None = None, clear: bool = True) -> tuple[Any, int]:
    """`n` bytes of zeros, or a copy of `start`, and their address. clear=False: with undefined contents."""
    spare = _spare.get((allocation.device.ordinal, n))
    if spare:
        data, at, _ = spare.pop()
        if capture_log.written_list is not None:
            capture_log.written_list.buffer(data, at, clear)
        elif clear:
            move(data, start)
        return data, at
    if start is None:
        data = xp(allocation.device).zeros(n, np.uint8)
        if clear and capture_log.active_capture() is not None:  # a replay finds what the last one left
            move(data)
    else:
        data = capture_log.copy(start)
    at = address(data)
    if capture_log.written_list is not None:
        capture_log.written_list.buffer(data, at, clear)
    return data, at


@contextmanager
def own_buffers() -> Iterator[None]:
    """Context in which workspaces use a pool of their own: their buffers are never reused by others."""
    global _spare
    before, _spare = _spare, {}
    try:
        yield
    finally:
        _spare = before


def is_float_memory(a: array) -> bool:
    """True if the dtype of the array has a float in it."""
    return differentiable(a.dtype)


def gradient_dtype(a: array) -> np.dtype:
    """The NumPy type of an array's gradient: float32 for float16, else its own scalar type."""
    scalar = scalar_in(a.dtype)
    return np.dtype(np.float32) if scalar.bits == 16 else scalar.numpy


def leaves(a: array) -> Iterator[array]:
    """The array itself, or for an array of structs its fields, nested ones too."""
    return (part for _, part in _parts(a, ""))


def float_parts(a: array) -> dict[str, array]:
    """The float arrays an array consists of: {"": itself}, or {path: field} for the float fields of its structs."""
    return {path: part for path, part in _parts(a, "") if is_float(part.dtype)}


def _parts(a: array, path: str) -> Iterator[tuple[str, array]]:
    if not isinstance(a.dtype, Struct):
        yield path, a
        return
    for name, _ in a.dtype.fields:
        yield from _parts(a.field(name), f"{path}.{name}" if path else name)


def same_part(a: array, path: str) -> array:
    """The part of an array at a path that `float_parts` returned; "" is the array."""
    return a.field(path) if path else a


def add_seed(space: Workspace, a: array, seed: object) -> None:
    """Add a seed to the adjoint of `a`. Raises GradientError if it has not the shape and dtype of the gradient."""
    if not isinstance(seed, array):
        number = isinstance(seed, int | float | np.number)
        text = f"the seed of {a.label} is a {type(seed).__name__}, it must be an array."
        instead = f"wb.full_like({a.label}, {seed})" if number else f"wb.array(seed, dtype=wb.{a.dtype})"
        raise GradientError(text, slug="seed-type", instead=instead)
    want = a.dtype if isinstance(a.dtype, Struct) else None
    same_components = getattr(seed.dtype, "shape", ()) == getattr(a.dtype, "shape", ())
    same_scalars = want is None and seed.data.dtype == gradient_dtype(a)
    dtype_fits = seed.dtype == a.dtype or (same_scalars and same_components)
    if seed.shape != a.shape or not dtype_fits:
        text = f"the seed of {a.label} is {seed.dtype} of shape {seed.shape}; it must be {a.dtype} of shape {a.shape}."
        raise GradientError(text, slug="seed-shape" if dtype_fits else "seed-dtype", instead=f"wb.ones_like({a.label})")
    for path, part in float_parts(a).items():
        if scalar_in(part.dtype).bits == 16 and a.allocation.grad_scale != 2:
            text = f"the seed of {a.label} has float16 fields, whose gradients would be float32 and have no room there."
            raise GradientError(text, slug="struct-float16", instead="wb.float32 for the field")
        values = same_part(seed, path).data
        if seed.device is not a.device:
            values = on_device(a, on_host(values))
        view = space[a.allocation].view(part.span, gradient_dtype(part))
        capture_log.reads(seed)
        add_into(view, values, part.span)


def add_into(view: XpArray, values: XpArray, span: Span) -> None:
    """view += values, also where elements of the view, which lies on `span`, share memory."""
    if capture_log.opened is None:
        return _add_into(view, values.reshape(view.shape), span)
    capture_log.do(lambda: _add_into(view, values.reshape(view.shape), span), capture_log.gpu_of(view, values))


def _add_into(view: XpArray, values: XpArray, span: Span) -> None:
    if not span.self_overlapping:
        view += values
    elif 0 in span.strides:  # what is seen again and again along an axis gets a sum
        k, axes = span.strides.index(0), (slice(None),) * span.strides.index(0)
        shape, strides = ((*t[:k], one, *t[k + 1 :]) for t, one in ((span.shape, 1), (span.strides, 1)))
        once = Span(span.allocation, span.offset, shape, strides, span.itemsize)
        _add_into(view[(*axes, slice(0, 1))], values.sum(k, keepdims=True), once)
    else:
        for at in np.ndindex(span.shape):
            view[at] += values[at]


def accumulate(grad: Allocation, shadow: Shadow, dtype: ElementType) -> None:
    """grad += shadow, in the memory's floating-point type."""
    if isinstance(dtype, Scalar):
        wide = np.float32 if dtype.bits == 16 else dtype.numpy
        mine, theirs = grad.bytes.view(wide), shadow.data.view(wide)
        capture_log.add(mine, theirs)
    elif isinstance(dtype, Struct):
        record, n = dtype.numpy, grad.nbytes // dtype.numpy.itemsize
        for kind, inner, at in _float_fields(record):  # one by one: CuPy has no records
            layout = (n, *inner), kind, at, (record.itemsize, *row_strides(inner, kind.itemsize))
            mine, theirs = (strided_view(data, *layout) for data in (grad.bytes, shadow.data))
            capture_log.do(partial(mine.__iadd__, theirs), capture_log.gpu_of(mine, theirs))


def _float_fields(record: np.dtype, at: int = 0) -> Iterator[tuple[np.dtype, tuple[int, ...], int]]:
    for part, offset, *_ in (record.fields or {}).values():
        if part.base.kind == "f":
            yield part.base, part.shape, at + offset
        yield from _float_fields(part, at + offset)


def mark_view(a: array, base: XpArray) -> Any:
    """An int32 view with one mark per element of `a`; `base` has one int32 per byte of the allocation."""
    data = a.data
    strides = tuple(n * 4 for n in data.strides)
    return strided_view(base, data.shape, np.int32, a.span.offset * 4, strides)


def shadow_view(a: array, shadow: Shadow) -> Any:
    """The adjoint of an array: a view of its allocation's shadow, of shape (*a.shape, *components)."""
    if shadow.last[0] is not a:
        s = shadow.scale
        dtype = a.data.dtype if s == 1 else gradient_dtype(a)
        strides = tuple([n * s for n in a.data.strides])
        shadow.last = a, strided_view(shadow.data, a.data.shape, dtype, a.span.offset * s, strides)
    return shadow.last[1]
