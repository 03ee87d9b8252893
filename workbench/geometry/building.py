"""Helpers of all builders: contents as NumPy or CuPy arrays, new arrays from these, and checks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..arrays import allocation as memory, capture_log
from ..arrays.array import array, new_array, on_device
from ..arrays.dtypes import ElementType
from ..arrays.gradient_views import open_views, sync_views
from ..device import XpArray
from ..errors import LaunchError
from ..kernels.types import Type, int32


def contents(a: array, what: str, instead: str) -> Any:
    """The present elements, `(n, *components)`, to build from. Raises LaunchError [capture] inside a capture."""
    capture_log.refuse(what, instead)
    with memory.LOCK:
        if open_views:
            sync_views()
        data = a.data
    return data.reshape((-1, *data.shape[a.ndim :]))


def module(data: XpArray) -> Any:
    """NumPy, or CuPy for memory of a GPU."""
    return sys.modules[type(data).__module__.partition(".")[0]]


def stored(values: XpArray | Sequence[int], dtype: ElementType, like: array) -> array:
    """A new array of one axis with these elements, on the device of `like`."""
    made = new_array(len(values), dtype, like.device)
    if len(values):
        made.data[...] = on_device(made, values)
    return made


def room(old: array, size: int, dtype: ElementType, like: array, fixed: bool) -> array:
    """The array for a builder to write to: `old` if it has the size and no tape watches its memory, else a new one.

    `fixed`: always `old`, as a graph reads it at each replay. Raises LaunchError [capture] for another size.
    """
    if len(old) == size and (fixed or not any(ref() is not None for ref in old.allocation.watchers)):
        return old
    if fixed:
        text = f"a size that changes, from {len(old)} to {size}, of what a capture has read or built."
        why = "Its replays use the same memory."
        raise LaunchError(text, slug="capture", why=why, instead="one that is built to this size before the capture")
    return new_array(size, dtype, like.device)


def check(what: str, name: str, a: object, dtype: Type, ndim: int | None = 1) -> array:
    """An argument of a builder. Raises LaunchError [argument-type] for anything but an array of `dtype`."""
    if isinstance(a, array) and a.dtype == dtype and ndim in (None, a.ndim):
        return a
    got = f"an array of {a.dtype} with {a.ndim} axes" if isinstance(a, array) else type(a).__name__
    text = f"{what} takes an array of {dtype} as {name}, not {got}"
    raise LaunchError(text, slug="argument-type", instead=f"wb.array(..., dtype=wb.{dtype})")


def check_order(what: str, constructor: str | None, leaf_size: int | None) -> int:
    """Items of a leaf, 4 unless said. Raises LaunchError for what is no constructor, or fewer than one item.

    The constructor is one name for all: the order of items is found in one way, and what queries find is the same.
    """
    if constructor is not None and str(constructor).lower() not in ("sah", "median", "lbvh", "cubql"):
        text, why = f"a {what} by {constructor!r}", "It is sah, median, lbvh or cubql, all the same."
        raise LaunchError(text, slug="argument-type", why=why, instead="no constructor")
    size = 4 if leaf_size is None else int(leaf_size)
    if size < 1:
        raise LaunchError(f"a {what} with {size} items of a leaf", slug="argument-type", instead="leaf_size=4")
    return size


def check_groups(what: str, groups: array, count: int) -> array:
    """An int for each box or face. Raises LaunchError."""
    if len(check(what, "groups", groups, int32)) != count:
        raise LaunchError(f"{len(groups)} groups for {count} items of a {what}", slug="shape", instead="one for each")
    return groups


def same_device(what: str, *arrays: array | None) -> None:
    """Raise LaunchError [device] for arrays on two devices."""
    devices = {a.device for a in arrays if a is not None}
    if len(devices) > 1:
        text = f"{what} takes arrays on one device, not on {' and '.join(sorted(map(str, devices)))}"
        raise LaunchError(text, slug="device", instead="wb.array(..., device=...)")
