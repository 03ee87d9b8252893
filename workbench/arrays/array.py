"""Arrays: a dtype, a span of an allocation, and the gradient that this memory has.

Views (slices, reshape, transpose, view, field) are arrays on the same allocation. Whether memory requires a gradient,
and the gradient itself, belong to the memory and not to one of its names: `x[2:5].grad` is `x.grad[2:5]`.
Every write by the host goes through `allocation.host_write`, so that tapes see it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, get_args

import numpy as np

from ..device import Device, DeviceLike, get_device, on_host, xp
from ..display import offers
from ..errors import LaunchError
from ..kernels import types
from ..kernels.reading.declare import Refused
from ..kernels.types import Composite, Type
from . import capture_log
from .allocation import LOCK, GradientMemory, allocate, allocation_at, allocation_of, clock, heard, recorder
from .copying import duplicate, parted
from .dtypes import (
    DTypeLike,
    ElementType,
    casting,
    differentiable,
    dtype_of,
    inner_shape,
    is_half,
    itemsize_of,
    scalar_in,
)
from .host_copies import HostCopies, check_same, put, write_array, write_gradient, write_value, write_values
from .host_reads import origin_of, received, stripped
from .host_values import components_error, converted_values, element_value, filled, inferred, is_element, shape_of
from .indexed import indexedarray
from .missing_methods import check_is_array, install
from .names import variable_of
from .other_libraries import Foreign
from .ports import array_operators
from .span import ShapeLike, Span, row_strides
from .strided import Key, indexed, placed


def _annotation(dtype: Any, ndim: int | None) -> Any:
    made = dtype if isinstance(dtype, Type | Refused) or dtype is Any else dtype_of(dtype)
    return made if isinstance(made, Refused) else types.Array(made, 1 if ndim is None else ndim)


@offers(
    "T assign capacity contiguous detach device dtype field fill_ flatten grad is_contiguous item label list name "
    "nbytes ndim numpy ptr requires_grad reshape retain_grad shape size strides to transpose view zero_"
)
class array(Foreign):
    """Memory of one dtype, or (without data) the annotation of a kernel's array parameter.

    data           nested lists, NumPy arrays (trailing axes are the components of vec/mat/quat), a list of struct
                   instances, or another array. Python floats make float32, ints int32; NumPy arrays keep their type.
    dtype          element type; values are converted to it.
    shape          reshape `data` to this shape of elements; alone: new memory of zeros.
    copy           False: share the memory of `data` (which must fit as it is) instead of copying.
    ptr            wrap this address (with `shape`, `dtype`, optional `strides` in bytes). Inside known memory it joins.
    requires_grad  ask for gradients of this memory. [grad-of-int] on dtypes without floats.
    retain_grad    keep the full adjoint of an intermediate.
    grad           copied into the gradient.
    name           label in messages and pictures.

    Raises LaunchError [dtype], [components], [shape], [ndim], [layout], [read-only], [partial-overlap], [convert].

    Use it wherever a kernel's parameter is an array, and to hand values of Python or NumPy to kernels.

    >>> x = wb.array([1.0, 2.0, 3.0], requires_grad=True)
    >>> x.shape, x.dtype
    ((3,), float32)
    >>> points = wb.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]], dtype=wb.vec3)
    >>> points.shape, points.numpy().shape
    ((2,), (2, 3))
    >>> wb.array([1.5], dtype=wb.int32, requires_grad=True)
    Traceback (most recent call last):
    ...
    workbench.errors.LaunchError: ...
    """

    _fixed_ndim: int | None = None
    _address: int
    _layout: int
    _steps: tuple[int, ...]
    _offset: int

    def __new__(
        cls,
        data: object = None,
        dtype: Any = None,
        shape: ShapeLike | None = None,
        device: DeviceLike = None,
        requires_grad: bool = False,
        copy: bool = True,
        *,
        ndim: int | None = None,
        ptr: int | None = None,
        strides: Sequence[int] | None = None,
        capacity: int | None = None,
        grad: array | None = None,
        name: str | None = None,
        retain_grad: bool = False,
    ) -> Any:
        ndim = cls._fixed_ndim if ndim is None else ndim
        dtype = None if dtype is Any and data is not None else dtype
        if data is None and ptr is None and shape is None:
            if dtype is None:
                raise LaunchError("array() needs data, a shape or a dtype", slug="dtype", instead="wb.array(data)")
            return _annotation(dtype, ndim)
        if ptr is not None:
            made = _from_pointer(ptr, dtype, shape, strides, capacity, device)
        elif data is None and shape is not None:
            made = new_array(shape, dtype_of(float if dtype is None else dtype), device)
        else:
            made = _from_data(data, dtype, shape, device, copy)
        if ndim is not None and made.ndim != ndim:
            text = f"array{ndim}d takes {ndim} axes, the data has shape {made.shape}"
            raise LaunchError(text, slug="ndim", instead=f"array(data, dtype={made.dtype})")
        return finished(made, requires_grad, retain_grad, grad, name)

    def __class_getitem__(cls, item: object) -> Any:
        """The annotation `array[vec3]`, `array[float32, 2]`."""
        dtype, *rest = item if isinstance(item, tuple) else (item,)
        ndim = (get_args(rest[0]) or (rest[0],))[0] if rest else cls._fixed_ndim
        return _annotation(dtype, ndim)

    # ---- what it is

    @property
    def ptr(self) -> int:
        """Address of the first element. Reading it exposes the memory: writes through it are checked for."""
        self.allocation.expose()
        return self._address

    @property
    def name(self) -> str | None:
        return self._name

    @name.setter
    def name(self, name: str | None) -> None:
        if self._name is not None and self.allocation.names.get(self._name) == self.span:
            del self.allocation.names[self._name]
        self._name = name
        if name is not None:
            self.allocation.names[name] = self.span

    @property
    def label(self) -> str:
        """The name used in messages: its `name`, else the user's variable or attribute, else the id of its memory."""
        return self._name or variable_of(self) or super().label

    def __len__(self) -> int:
        return self.shape[0]

    def __str__(self) -> str:
        return str(read_values(self))

    def __repr__(self) -> str:
        shown = np.array2string(read_values(self), threshold=20, edgeitems=3, precision=6, separator=", ")
        extra = "" if self._name is None else f", name={self._name!r}"
        extra += ", requires_grad=True" if self.requires_grad else ""
        extra += f", device={self.device.name!r}" if self.device.is_cuda else ""
        return f"array({shown}, dtype={self.dtype}, shape={self.shape}{extra})"

    # ---- gradients

    @property
    def requires_grad(self) -> bool:
        """True if gradients of this memory are asked for, through this array or any other on it."""
        return bool(marks := self.allocation.required) and self._differentiable and marks.touch(self.span)

    @requires_grad.setter
    def requires_grad(self, on: bool) -> None:
        self._mark("required", on, "requires_grad")

    @property
    def retain_grad(self) -> bool:
        """Publish the adjoint by the final contents, also where the tape overwrote this memory."""
        return bool(marks := self.allocation.retained) and self._differentiable and marks.touch(self.span)

    @retain_grad.setter
    def retain_grad(self, on: bool) -> None:
        self._mark("retained", on, "retain_grad")

    def _mark(self, kind: str, on: bool, what: str) -> None:
        marks = getattr(self.allocation, kind)
        if not on:
            marks.drop(self.span)
            self.allocation.note_asked()
            if self._differentiable and marks.touch(self.span):
                text = f"{what} = False on a part of {self.label}: the memory was marked as a whole"
                raise LaunchError(text, slug="grad-of-part", instead=f"x.{what} = False on the array that was marked")
            return
        if not self._differentiable:
            text = f"{what} on an array of {self.dtype}: there is no derivative by whole numbers"
            raise LaunchError(text, slug="grad-of-int", instead="array(data, dtype=float32, requires_grad=True)")
        self._check_gradient_type()
        self.allocation.mark(kind, (self.span,))

    def _check_gradient_type(self) -> None:
        """Raise LaunchError [two-types] for another float type on float16 memory, whose gradients are float32."""
        if self.allocation.grad_scale == 2 and not is_half(self.dtype):
            text = f"gradients of {self.label} as {self.dtype}, but this memory has them as float16"
            why = "Memory has one gradient, of one scalar type."
            instead = f"wb.zeros(..., dtype=wb.{self.dtype})   in memory of its own"
            raise LaunchError(text, slug="two-types", why=why, instead=instead)

    @property
    def grad(self) -> array | None:
        """The gradient: an array of the same shape (float32 for float16), the same object at every reading.

        None unless `requires_grad` or `retain_grad`. Assigning copies values and asks for gradients from then on, as in
        Warp; assigning None clears to zeros.
        """
        if not (self.requires_grad or self.retain_grad):
            return None
        with LOCK:
            if self._grad is None:
                self._grad = self._gradient()
        if self.allocation.awaited:
            awaited, self.allocation.awaited = self.allocation.awaited, ()
            for one in awaited:
                one.warn()
        return self._grad

    def _gradient(self) -> array:
        self._check_gradient_type()
        span = self.allocation.gradient_span(self.span)
        dtype = self.dtype
        if self.allocation.grad_scale == 2 and not isinstance(dtype, types.Struct):
            dtype = dtype.over(types.float32)
        made = array_on(span.allocation, dtype, span.shape, span.strides, span.offset)
        if self._name is not None:
            made.name = f"{self._name}.grad"
        return made

    @grad.setter
    def grad(self, value: array | None) -> None:
        if value is None:
            memory = self.allocation.grad
            if memory is not None and (mine := self.grad) is not None:
                write_value("zero_", mine, None)
                memory.forget_written(mine.span)
            return
        if self.grad is None:
            self.requires_grad = True
        mine = self.grad
        assert mine is not None
        write_gradient(mine, value, self.label)

    # ---- reading

    def list(self) -> list:
        """The elements in row-major order: numbers, small arrays, or struct records."""
        flat = read_values(self).reshape((-1, *inner_shape(self.dtype)))
        if recorder() is None:
            return [self._element(v) for v in flat] if flat.dtype.names or flat.ndim > 1 else flat.tolist()
        places = zip(flat, np.ndindex(self.shape), strict=True)
        return [self.carrying(self._element(v), self._cell(at)) for v, at in places]

    def item(self) -> Any:
        """The value of an array of one element."""
        if self.size != 1:
            raise LaunchError(f"{self.label} has {self.size} elements, not one", slug="shape", instead="x[i]")
        return self[(0,) * self.ndim]

    def _element(self, value: object) -> Any:
        if isinstance(self.dtype, Composite):
            return self.dtype(np.array(value))
        return np.array(value).view(np.recarray)[()] if isinstance(value, np.void) else value

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(self.shape[0]))

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __copy__(self) -> array:
        return clone(self)

    def __deepcopy__(self, memo: dict) -> array:
        if recorder() is not None:
            return clone(parted(self, memo))
        made = array_on(duplicate(self.allocation, memo), self.dtype, self.shape, self.strides, self._offset)
        return finished(made, False, False, None, self._name)

    # ---- elements

    def __getitem__(self, key: Key) -> Any:
        """Slices and partial indices give views of the same memory; an index for every axis gives the value.

        A list or array of indices gives an `indexedarray` of these along the first axis.
        """
        if isinstance(key, list | array):
            return indexedarray(self, [key])
        picked, stays = indexed(self, key)
        if any(stays):
            return self._boxed(picked, stays)
        capture_log.refuse("Values are read")
        place = tuple(r.start for r in picked)
        value = self.data[place]
        value = self._element(on_host(value)[()] if self.device.is_cuda else value)
        if recorder() is not None:
            return self.carrying(value, self._cell(place))
        if (found := heard.get()) is not None:
            found.append(self)
        return value

    def __setitem__(self, key: Key, value: object) -> None:
        """Write values: a number or small array everywhere, or an array of exactly the indexed shape."""
        picked, stays = indexed(self, key)
        whole = not any(stays)
        target = self._boxed(picked, [True] * self.ndim if whole else stays)
        if isinstance(value, array):
            source = value.reshape(target.shape) if whole and value.size == 1 else value
            if source.span != target.span or source.dtype != target.dtype:  # `x[1:3] *= y` ends with x[1:3] = x[1:3]
                target.assign(source)
        elif whole or is_element(value, self.dtype):
            target.fill_(value)
        else:
            target.assign(value)

    # ---- writing

    def fill_(self, value: object) -> array:
        """Set every element to `value`: a number, or for composites and structs also one value of the dtype."""
        if not exact.fill(self, value):
            value = value.item() if isinstance(value, array) else value
            write_value("fill_", self, element_value(value, self.dtype), origin_of(value))
        return self

    def zero_(self) -> array:
        """Set every byte to zero."""
        write_value("zero_", self, None)
        return self

    def assign(self, source: Any) -> array:
        """Copy an array of this shape and dtype, or values: NumPy's or a nested list of this shape, or all in a row."""
        if isinstance(source, array):
            check_same(self, source, "assign")
            write_array("assign", self, source)
            return self
        if (memory := exact.memory(source, self.dtype)) is not None:
            return self.assign(memory)
        values = filled(converted_values(source, self.dtype)[0], source, self.shape + inner_shape(self.dtype))
        if values.shape != self.shape + inner_shape(self.dtype):
            text = f"assign to {self.label} of shape {self.shape} ({self.dtype}): the values are {np.shape(source)}"
            raise LaunchError(text, slug="shape")
        if isinstance(source, list | tuple) and recorder() is not None:
            parts = new_array(self.shape, self.dtype, self.device, zeroed=False)
            put(parts, values)
            if exact.trace(parts, source):
                write_array("assign", self, parts)
                return self
        write_values(self, values, origin_of(source))
        return self

    def detach(self) -> array:
        """A copy in new memory, cut off on purpose: no gradient passes to this array. See `detach`."""
        return clone(self, requires_grad=False)

    def contiguous(self) -> array:
        """This array if it is contiguous, else a contiguous clone."""
        return self if self.is_contiguous else clone(self)

    def to(self, device: str | Device, requires_grad: bool | None = None) -> array:
        """This array if it lives there, else a copy on that device; `requires_grad` is of the copy."""
        return self if get_device(device) is self.device else clone(self, device, requires_grad)


array1d, array2d, array3d, array4d = (
    type(f"array{n}d", (array,), {"_fixed_ndim": n, "__doc__": f"`array` with {n} axes."}) for n in (1, 2, 3, 4)
)


install(array, array_operators)


# ---- making arrays


def read_values(a: array) -> np.ndarray:
    """The values for reading: the memory itself, from a GPU a copy. Refused while a capture is open."""
    capture_log.refuse("Values are read")
    if isinstance(memory := a.allocation, GradientMemory):
        memory.read_at = next(clock)
    return on_host(a.data)


def on_device(a: array, values: object) -> Any:
    """Numbers as an array of the array module of the device of `a`."""
    return xp(a.device).asarray(values)


memory_of, layout_number, block_of = map(attrgetter, ("allocation", "_layout", "_block"))
"""The allocation; one number per array, equal for arrays of one dtype, shape, strides and device; what stands for an
array in the block of arguments of a launch: address, shape and byte strides."""


Box = tuple[tuple[int, int], ...]  # per axis the first index and the one past the last


def span_of(a: array, box: Box | None) -> Span:
    """The bytes of a box of an array; None: of all of it."""
    return a.span if box is None else a.span.part(box)


def spans_of(flat: Sequence[Any], boxes: Iterable[tuple[int, Any]]) -> tuple[Span, ...]:
    """`span_of` for each (position in `flat`, box)."""
    return tuple([flat[k].span if box is None else flat[k].span.part(box) for k, box in boxes])


def pack_values(flat: Sequence[Any]) -> list:
    """Flat arguments as the numbers of `Signature.pack`: pointer, shape, byte strides of arrays; components."""
    values: list = []
    for a in flat:
        if a.__class__ is array:
            values += (a._address, *a._steps)
        elif a.__class__ is np.ndarray:
            values += a.ravel().tolist()
        else:
            values.append(a)
    return values


def pack_companions(places: Sequence[Any], beside: Iterable[tuple[int, Any]]) -> list:
    """As `pack_values`, for (position, shadow) pairs, each shadow laid out like the array `places[position]`."""
    values: list = []
    for k, shadow in beside:
        a, scale = places[k], shadow.scale
        layout = a._steps if scale == 1 else (*a.shape, *[n * scale for n in a.strides])
        values += (shadow.address + a._offset * scale, *layout)
    return values


array_on: Callable[..., array] = partial(placed, array)
"""`placed` for `array`: memory, dtype, shape, byte strides, byte offset."""


def whole_memory(a: array) -> array:
    """All of the memory of an array, as one axis of its elements, or of their numbers where they do not fill it."""
    dtype = a.dtype if a.allocation.nbytes % itemsize_of(a.dtype) == 0 else scalar_in(a.dtype)
    size = itemsize_of(dtype)
    return array_on(a.allocation, dtype, (a.allocation.nbytes // size,), (size,), 0)


exact: HostCopies[array] = HostCopies(array_on)
"""What a tape can record as copies of memory although it comes from the host."""


def finished(made: array, requires_grad: bool, retain_grad: bool, grad: array | None, name: str | None) -> array:
    """`made`, with name, `requires_grad`, `retain_grad` and gradient set as asked."""
    if name is not None:
        made.name = name
    if requires_grad:
        made._mark("required", True, "requires_grad")
    if retain_grad:
        made._mark("retained", True, "retain_grad")
    if grad is not None:
        made.grad = grad
    return made


def new_array(shape: ShapeLike, dtype: ElementType, device: DeviceLike = None, zeroed: bool = True) -> array:
    """A contiguous array in new memory."""
    shape = shape_of(shape)
    size = itemsize_of(dtype)
    memory = allocate(math.prod(shape) * size, device, zeroed)
    return array_on(memory, dtype, shape, row_strides(shape, size), 0)


def _from_pointer(
    ptr: int,
    dtype: DTypeLike,
    shape: ShapeLike | None,
    strides: Sequence[int] | None,
    capacity: int | None,
    device: DeviceLike,
) -> array:
    if shape is None or dtype is None:
        raise LaunchError("array(ptr=...) needs a shape and a dtype", slug="shape")
    element, shape = dtype_of(dtype), shape_of(shape)
    size = itemsize_of(element)
    steps = row_strides(shape, size) if strides is None else tuple(int(s) for s in strides)
    if len(steps) != len(shape):
        raise LaunchError(f"{len(steps)} strides for shape {shape}", slug="shape")
    if 0 in shape:
        return new_array(shape, element, device)
    low = int(ptr) + sum(min(0, (n - 1) * s) for n, s in zip(shape, steps, strict=True))
    high = int(ptr) + sum(max(0, (n - 1) * s) for n, s in zip(shape, steps, strict=True)) + size
    memory = allocation_at(low, max(high - low, capacity or 0), get_device(device))
    return array_on(memory, element, shape, steps, int(ptr) - memory.address)


def _from_data(data: object, dtype: DTypeLike, shape: ShapeLike | None, device: DeviceLike, copy: bool) -> array:
    if isinstance(data, array):
        return _from_array(data, dtype, shape, device, copy)
    if not copy:
        return _shared(data, dtype, shape, device)
    element = None if dtype is None else dtype_of(dtype)
    if (memory := exact.memory(data, element or inferred(data, None)[0])) is not None:
        return _from_array(memory, None, shape, device, True)
    values, element = converted_values(data, element)
    made = new_array(values.shape[: values.ndim - len(inner_shape(element))], element, device, zeroed=False)
    if capture_log.active_capture() is not None:
        values = values.copy()  # a replay writes them again
    put(made, values)
    exact.trace(made, data)
    return made if shape is None else made.reshape(shape)


def _from_array(data: array, dtype: DTypeLike, shape: ShapeLike | None, device: DeviceLike, copy: bool) -> array:
    element = data.dtype if dtype is None else dtype_of(dtype)
    if element != data.dtype:
        if recorder() is not None and differentiable(data.dtype):
            text = f"array({data.label}, dtype={element}) converts values under a tape"
            why = "The conversion would not be recorded, and the gradient would end here."
            raise LaunchError(text, slug="convert", why=why, instead=casting(data.dtype, element))
        return _from_data(read_values(data), element, shape, device, copy)
    made = copied(data, device) if copy else data[...]
    return made if shape is None else made.reshape(shape)


def _shared(data: Any, dtype: DTypeLike, shape: ShapeLike | None, device: DeviceLike) -> array:
    """An array on the memory of a NumPy or CuPy array, which must fit as it is."""
    if not hasattr(data, "strides") or not hasattr(data, "dtype"):
        raise LaunchError(f"copy=False needs a NumPy array, not {type(data).__name__}", slug="layout")
    element = types.scalar_of(data.dtype) if dtype is None else dtype_of(dtype)
    if data.dtype != element.numpy:
        text = f"copy=False of NumPy {data.dtype} as {element}: converting needs a copy"
        raise LaunchError(text, slug="dtype", instead=f"array(data, dtype={element})")
    if isinstance(data, np.ndarray) and not data.flags.writeable:
        raise LaunchError("a read-only NumPy array cannot be shared", slug="read-only", instead="wb.array(data)")
    inner = inner_shape(element)
    outer = data.ndim - len(inner)
    strides = tuple(int(s) for s in data.strides)
    if data.shape[outer:] != inner or outer < 0:
        raise components_error(data.shape, element)
    if strides[outer:] != row_strides(inner, data.dtype.itemsize) and data.size:
        raise LaunchError("the components of one element are not side by side", slug="layout", instead="wb.array(data)")
    if outer == 0:
        shape_, strides = (1,), (itemsize_of(element),)
    else:
        shape_, strides = tuple(data.shape[:outer]), strides[:outer]
    origin = origin_of(data)  # before it is known memory
    memory, offset = allocation_of(data)
    if device is not None and get_device(device) is not memory.device:
        text = f"the data is on {memory.device}, not on {device}"
        raise LaunchError(text, slug="device", instead="wb.array(data, device=...)   which copies")
    made = array_on(memory, element, shape_, strides, offset)
    if origin:
        received(stripped(data), origin)
    return made if shape is None else made.reshape(shape)


def clone(
    src: array,
    device: DeviceLike = None,
    requires_grad: bool | None = None,
    pinned: bool | None = None,
    retain_grad: bool = False,
    *,
    name: str | None = None,
) -> array:
    """A contiguous copy in new memory; under a tape the copy is an event, so gradients pass through it.

    requires_grad  of the copy; by default that of `src`. With False no gradient passes, as `detach` says.

    >>> x = wb.array([1.0, 2.0])
    >>> y = wb.clone(x)
    >>> y.fill_(0.0) is y, x.list()
    (True, [1.0, 2.0])
    """
    check_is_array("clone", src, array, "wb.array(data)")
    wanted = src.requires_grad if requires_grad is None else requires_grad
    made = copied(src, device, wanted, name, "cut" if requires_grad is False else "copy")
    made.retain_grad = retain_grad or made.retain_grad
    return made


def copied(
    src: array, device: DeviceLike = None, requires_grad: bool = False, name: str | None = None, kind: str = "copy"
) -> array:
    """A contiguous copy in new memory; `kind` of event under a tape: `copy` passes gradients, `cut` does not."""
    made = new_array(src.shape, src.dtype, device or src.device, zeroed=False)
    finished(made, requires_grad, False, None, name)
    write_array(kind, made, src)
    return made
