"""Numbers of living meshes, trees and grids: what a kernel's uint64 stands for at a launch."""

from __future__ import annotations

import itertools
import weakref
from operator import attrgetter
from typing import Any

from ..kernels.types import Handle

# Far from the numbers that programs have for other things.
_numbers = itertools.count(0x5B_0000_0000_0001)
_living: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_empty: dict[Handle, Any] = {}


def numbered(thing: Any) -> int:
    """A number for `thing`, for as long as it lives; no other gets it afterwards."""
    number = next(_numbers)
    _living[number] = thing
    return number


def part_of(handle: Handle, number: Any, field: str) -> Any:
    """A field (`points`, `tree.boxes`) of what a number stands for; 0 stands for one that is empty.

    Raises LookupError(text, way out) for a number of nothing, or of something else.
    """
    own = f"{handle.name.lower()}.id"
    try:
        number = int(number)
    except (TypeError, ValueError):
        raise LookupError(f"takes the number of a {handle.name}, got {type(number).__name__}", own) from None
    thing = _living.get(number)
    if number == 0:
        thing = _empty.get(handle) or _empty.setdefault(handle, handle.empty())
    if thing is None:
        why = "it is gone: keep it in a variable for as long as its number is used"
        raise LookupError(f"{number} is the number of no {handle.name} ({why})", f"{own} of one that is kept")
    if thing.handle != handle:
        raise LookupError(f"takes a {handle.name}, got the number of a {thing.handle.name}", own)
    return attrgetter(field)(thing)
