"""Writes by the host: copies, assignments and fills of arrays, each announced to the tapes or recorded by one."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..device import XpArray, movable, on_host, xp
from ..errors import LaunchError
from . import capture_log
from .allocation import host_write, recorder
from .dtypes import casting
from .strided import StridedArray


def check_same(dst: StridedArray, src: StridedArray, what: str) -> None:
    """Raises LaunchError [dtype], [shape] if one cannot be copied to the other as it is."""
    if dst.dtype != src.dtype:
        text = f"{what} from {src.label} ({src.dtype}) to {dst.label} ({dst.dtype}): the dtypes differ"
        raise LaunchError(text, slug="dtype", instead=casting(src.dtype, dst.dtype))
    if dst.shape != src.shape:
        raise LaunchError(
            f"{what} from {src.label} of shape {src.shape} to {dst.label} of shape {dst.shape}", slug="shape"
        )


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
