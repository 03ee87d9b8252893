"""Host values that are views or unchanged elements of arrays: writing them is recorded as a copy between arrays.

`y.numpy()` and its slices lie in y's memory; `y[1]` is one element of it, as long as nobody has written there since.
Lists of arrays and elements are taken apart. What is left are values that NumPy made, with their `sources`. Every write
by the host is announced to the tapes, or recorded by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar, cast

import numpy as np

from ..device import XpArray, movable, on_host, xp
from ..errors import LaunchError
from ..kernels.reading.declare import Instance
from ..kernels.types import Composite, Struct
from . import capture_log
from .allocation import host_write, known_memory, recorder
from .dtypes import ElementType, casting, differentiable, inner_shape
from .host_reads import origin_of, sources_of, stripped
from .read_values import HostRead
from .span import row_strides
from .strided import StridedArray


def check_same(dst: StridedArray, src: StridedArray, what: str) -> None:
    """Raises LaunchError [dtype], [shape] if one cannot be copied to the other as it is."""
    if dst.dtype != src.dtype:
        text = f"{what} from {src.label} ({src.dtype}) to {dst.label} ({dst.dtype}): the dtypes differ"
        raise LaunchError(text, slug="dtype", instead=casting(src.dtype, dst.dtype))
    if dst.shape != src.shape:
        raise LaunchError(f"{what}: {src.label} of shape {src.shape}, {dst.label} of shape {dst.shape}", slug="shape")


def put(dst: StridedArray, values: XpArray) -> None:
    """Write values to all of `dst`. In a capture each replay writes them again, so the caller must not change them."""
    if (script := capture_log.told.script) is not None:
        script.write(dst, values)
    to, given = _ready(dst, values)
    capture_log.do(lambda: to.__setitem__(..., given), capture_log.gpu_of(to, given) if dst.device.is_cuda else None)


def _ready(dst: StridedArray, values: XpArray) -> tuple[XpArray, XpArray]:
    """The memory of `dst` and values on its device that it can be set to."""
    to = movable(dst.data)
    if dst.device.is_cpu:
        return to, values
    if to.dtype != dst.data.dtype and isinstance(values, np.ndarray):
        values = np.ascontiguousarray(np.broadcast_to(values, dst.shape)).view(to.dtype).reshape(to.shape)
    return to, movable(xp(dst.device).asarray(values))


def write_array(kind: str, dst: StridedArray, src: StridedArray) -> None:
    """dst = src between arrays, recorded as an event of this `kind` (copy, assign or cut) or announced."""
    host_write(kind, dst, src, None, lambda: _copy(dst, src))


def _copy(dst: StridedArray, src: StridedArray) -> None:
    if dst.device is not src.device:
        capture_log.do(lambda: _move(dst, src))
        return
    to, source = movable(dst.data), movable(src.data)
    if src.span.overlaps(dst.span) is False:
        capture_log.do(lambda: to.__setitem__(..., source), capture_log.gpu_of(to, source))
    else:  # NumPy is wrong about a[0:5:2] = a[0:3], and CuPy about more
        capture_log.do(lambda: to.__setitem__(..., source.copy()), capture_log.gpu_of(to, source))


def _move(dst: StridedArray, src: StridedArray) -> None:
    to, given = _ready(dst, on_host(src.data))
    to[...] = given


def write_values(dst: StridedArray, values: np.ndarray, sources: tuple = ()) -> None:
    """dst = host values of shape `(*shape, *components)`. `sources`: the readings they were made from."""
    # an event keeps them, and the caller may go on writing to his array, which may be this very memory
    noted = recorder() is not None or capture_log.active_capture() is not None
    if noted or (dst.device.is_cpu and np.may_share_memory(values, dst.allocation.bytes)):
        values = values.copy()

    host_write("assign", dst, None, values, lambda: put(dst, values), sources)


def write_value(kind: str, dst: StridedArray, value: object, sources: tuple = ()) -> None:
    """Set every element to one value (`fill_`), or every byte to zero (`zero_`)."""
    values = None if value is None else np.array(value)

    def perform() -> None:
        if values is not None:
            put(dst, values)
        elif dst.span.dense:
            low, high = dst.span.hull()
            capture_log.move(dst.allocation.bytes[low:high])
        else:
            words = dst.span.words()
            capture_log.do(partial(words.__setitem__, ..., 0), capture_log.gpu_of(words))

    host_write(kind, dst, None, values, perform, sources)


def write_gradient(mine: StridedArray, value: object, label: str) -> None:
    """Copy `value` to the gradient of the array `label`. Raises LaunchError [grad-dtype], [grad-shape]."""
    if not isinstance(value, StridedArray):
        text = f"{label}.grad = {type(value).__name__}: a gradient is given as an array"
        raise LaunchError(text, slug="grad-dtype", instead=f"{label}.grad = array(values, dtype={mine.dtype})")
    if value.dtype != mine.dtype or value.shape != mine.shape:
        raise LaunchError(
            f"{label}.grad is {mine.dtype} of shape {mine.shape}, "
            f"the value {value.label} is {value.dtype} of shape {value.shape}",
            slug="grad-shape" if value.dtype == mine.dtype else "grad-dtype",
        )
    if value.span != mine.span:
        write_array("assign", mine, value)


A = TypeVar("A", bound=StridedArray)
PIECES = 1024  # copies that one list may become; a longer one is values


class HostCopies(Generic[A]):
    """Recognises host values as parts of arrays, under a tape. `on(memory, dtype, shape, strides, offset)` is one."""

    def __init__(self, on: Callable[..., A]):
        self.on = on

    def memory(self, values: object, dtype: ElementType | None) -> A | None:
        """The array of this dtype that a NumPy array is a view of; None if it is none, or for dtype None."""
        if recorder() is None or not isinstance(values, np.ndarray) or not values.ndim:
            return None
        inner = () if dtype is None else inner_shape(dtype)
        outer = values.ndim - len(inner)
        if dtype is None or outer < 1 or values.shape[outer:] != inner:
            return None
        if values.dtype != dtype.numpy or values.strides[outer:] != row_strides(inner, values.itemsize):
            return None
        found = known_memory(values)
        if found is None or found[0].is_gradient:
            return None
        return self.on(found[0], dtype, values.shape[:outer], values.strides[:outer], found[1])

    def cell(self, value: object) -> A | None:
        """The array element that a value was read from and still equals; an array of one element itself; else None."""
        tape = recorder()
        if tape is None:
            return None
        if isinstance(value, StridedArray):
            return cast("A", value) if value.size == 1 else None
        cell = tape.numbers.cell(value) if value.__class__ in (float, np.ndarray) else getattr(value, "cell", None)
        if cell is None or not _unwritten(tape, sources_of(value)[0]):
            return None
        now = on_host(cell.data.reshape(-1))
        return cell if now.tobytes() == np.asarray(stripped(value), now.dtype).tobytes() else None

    def fill(self, dst: A, value: object) -> bool:
        """Fill `dst` by a recorded copy if `value` is an element of an array (see `cell`). True if so."""
        cell = self.cell(value)
        if cell is None:
            return False
        if cell.dtype != dst.dtype:
            if not isinstance(dst.dtype, Composite) or cell.dtype is not dst.dtype.scalar:
                return False
            dst = self.numbers(dst)
        write_array("copy", dst, self.on(cell.allocation, dst.dtype, dst.shape, (0,) * dst.ndim, cell.span.offset))
        return True

    def numbers(self, a: A) -> A:
        """A view of an array of vectors or matrices as one of scalars, components as last axes, for any strides."""
        if not isinstance(a.dtype, Composite):
            return a
        inner, scalar = a.dtype.shape, a.dtype.scalar
        strides = (*a.strides, *row_strides(inner, scalar.itemsize))
        return self.on(a.allocation, scalar, (*a.shape, *inner), strides, a.span.offset)

    # ---- lists

    def trace(self, dst: A, data: object) -> bool:
        """Record the provenance of the parts of new memory `dst`, filled from `data` already. True if any has one."""
        if recorder() is None or not differentiable(dst.dtype):
            return False
        if not isinstance(data, list | tuple | Instance):
            return self._piece(dst, data)
        found = []
        for part, value in self._parts(dst, data):
            found.append((part, value))
            if len(found) > PIECES or part is None:
                write_values(dst, on_host(dst.data), sources_of(data))
                return True
        done = [self._piece(part, value) for part, value in found]
        if not any(done) and (origin := origin_of(data)):
            write_values(dst, on_host(dst.data), origin)
            return True
        return any(done)

    def _piece(self, part: A, value: object) -> bool:
        part = part if part.ndim else part.reshape((1,))
        if isinstance(value, StridedArray) and value.shape == part.shape and value.dtype == part.dtype:
            write_array("copy", part, value)
            return True
        cell = self.cell(value)
        if cell is not None and cell.dtype != part.dtype and isinstance(cell.dtype, Composite):
            numbers = self.numbers(cell)
            if numbers.dtype == part.dtype and numbers.size == part.size:
                write_array("copy", part, numbers.reshape(part.shape))
                return True
        if self.fill(part, value):
            return True
        if (source := self.memory(value, part.dtype)) is not None and source.shape == part.shape:
            write_array("copy", part, source)
            return True
        origin = origin_of(value)
        if origin:
            write_values(part, on_host(part.data), origin)
        return bool(origin)

    def _parts(self, dst: A, data: object) -> Iterator[tuple[Any, Any]]:
        """(part of `dst`, value) for values in nested lists that may have provenance; part None: shapes do not fit."""
        if isinstance(data, Instance):
            assert isinstance(dst.dtype, Struct)
            for name, _ in dst.dtype.fields:
                yield from self._parts(dst.field(name), getattr(data, name))
        elif isinstance(data, list | tuple) and not isinstance(dst.dtype, Struct) and not dst.ndim:
            yield None, data
        elif isinstance(data, list | tuple):
            whole = self.numbers(dst)
            if whole.shape[:1] != (len(data),):
                yield None, data
                return
            for i, item in enumerate(data):
                yield from self._parts(self._row(whole, i), item)
        elif isinstance(data, np.ndarray) or hasattr(data, "sources") or isinstance(data, StridedArray):
            plain = not isinstance(data, StridedArray) or isinstance(data.dtype, Struct)
            yield dst, data if plain else self.numbers(cast("A", data))
        elif isinstance(data, float | np.floating) and origin_of(data):
            yield dst, data

    def _row(self, a: A, i: int) -> A:
        return self.on(a.allocation, a.dtype, a.shape[1:], a.strides[1:], a.span.offset + i * a.strides[0])


def _unwritten(tape: Any, source: HostRead) -> bool:
    """True if `tape` was open at the reading and no event since has written to what was read."""
    at = source.at(tape)
    if at is None:
        return False
    return not any(s.overlaps(source.span) is not False for e in tape.events[at:] for s in e.writes)
