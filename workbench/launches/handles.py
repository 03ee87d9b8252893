"""Handles: uint64 numbers of living meshes, trees and grids, and the objects that they stand for at a launch."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.array import array, new_array, on_device
from ..arrays.dtypes import ElementType, dtype_of
from ..errors import LaunchError
from ..kernels.program import Program
from ..kernels.types import Array, Handle, Struct, Type

Owner = TypeVar("Owner")
_numbers = itertools.count(0x5B_0000_0000_0001)  # far from the numbers that programs have for other things
_living: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


class NotBuilt(LookupError):
    """Raised for a grid that a capture reads before it was ever built."""


def numbered(thing: object) -> int:
    """A new number for `thing`, valid while it lives and never used again."""
    number = next(_numbers)
    _living[number] = thing
    return number


def number_as(thing: Any, number: int) -> Any:
    """Give `thing` this foreign number instead of its own; `thing` None frees the number. Returns `thing`."""
    if thing is None:
        _living.pop(number, None)
        return None
    if _living.get(thing.id) is thing:
        del _living[thing.id]
    thing.id = number
    _living[number] = thing
    return thing


def living() -> list[Any]:
    """A list of all living meshes, trees and grids, which keeps them alive."""
    return list(_living.values())


def held(thing: Any) -> bool:
    """True if `thing` is in use, to be rebuilt in the same memory. Raises LaunchError [capture] if one chose it."""
    chosen = getattr(thing, "chosen", ())
    if len(chosen):
        text = f"a {thing.handle.name} is built or fitted that a capture has chosen by a number from an array."
        why = "The capture has a copy of it."
        raise LaunchError(text, slug="capture", why=why, instead="a parameter for its number in that kernel")
    already = len(getattr(thing, "held", ())) > 0
    if (notes := capture_log.active_capture()) is not None:
        _mark(thing, "held", notes)
        _mark(thing, "fitted_in", notes)
    return already


def hold(program: Program, args: Sequence[Any], owner: Owner) -> Owner:
    """Note that `owner` (a graph or command) keeps a launch with these arguments, see `held`; returns it."""
    for leaf in program.leaves:
        if leaf.opened is None:
            continue
        if leaf.opened.every:
            for thing in living():
                if thing.handle.name == leaf.opened.name:
                    _mark(thing, "chosen", owner)
            continue
        number = args[leaf.arg]
        for name in leaf.path[:-1]:
            number = getattr(number, name)
        if (thing := _living.get(int(number))) is not None:
            _mark(thing, "held", owner)
    return owner


def rebuilt_in_place(thing: object, arrays: Iterable[array | None]) -> tuple[array, ...]:
    """The arrays that are not empty; from now on `thing` is rebuilt in their memory."""
    _mark(thing, "held", thing)
    return tuple(a for a in arrays if a is not None and a.size)


def owner_of(memory: memory.Allocation) -> str:
    """The kind ("HashGrid", ...) of the living object whose builds write into an allocation; "" for none."""
    for thing in living():
        if any(a.allocation is memory for a in thing.built_arrays()):
            return thing.handle.name
    return ""


def _mark(thing: object, kind: str, owner: object) -> None:
    thing.__dict__.setdefault(kind, weakref.WeakSet()).add(owner)


def part_of(handle: Handle, number: SupportsIndex, field: str) -> Any:
    """A field (`tree.boxes`) of the object with this number; 0: an empty one. Raises LookupError(text, way out)."""
    if handle.every:
        return _every(handle, field)
    own = f"{handle.name.lower()}.id"
    try:
        number = int(number)
    except (TypeError, ValueError):
        raise LookupError(f"takes the number of a {handle.name}, got {type(number).__name__}", own) from None
    thing = _nothing(handle) if number == 0 else _living.get(number)
    if thing is None:
        why = "it is gone: keep it in a variable for as long as its number is used"
        raise LookupError(f"{number} is the number of no {handle.name} ({why})", f"{own} of one that is kept")
    if thing.handle != handle:
        raise LookupError(f"takes a {handle.name}, got the number of a {thing.handle.name}", own)
    built = number == 0 or getattr(thing, "built", True)
    if capture_log.opened is not None and (notes := capture_log.active_capture()) is not None:
        if not built:
            raise NotBuilt(
                f"takes a {handle.name} that was not built before this capture, whose replays use the memory of now",
                "grid.build(points, radius)   before the capture, or in it above this line",
            )
        _mark(thing, "held", notes)
    elif not built:
        raise LookupError(f"takes a {handle.name} that was never built", "grid.build(points, radius)   before it, or 0")
    return attrgetter(field)(thing)


@cache
def _nothing(handle: Handle) -> Any:
    with capture_log.paused():
        return handle.empty()


# ---- numbers that a kernel chooses


def _every(handle: Handle, field: str) -> array:
    """One field of all living objects of a kind as rows, the empty one first; "numbers": their numbers, sorted.

    For arrays that users may change in place: a snapshot from the last build or fit (`still`).
    Raises LookupError if a gradient by such an array would be lost.
    """
    nothing = _nothing(handle)
    of_kind = (p for p in sorted(_living.items()) if p[1].handle.name == handle.name and p[1] is not nothing)
    things = {n: t for n, t in of_kind if getattr(t, "built", True)}
    if field == "numbers":
        return _together(handle, field, [tuple(things)], lambda: [np.array(list(things), np.uint64)])
    if (notes := capture_log.active_capture()) is not None:
        for thing in things.values():
            if notes in getattr(thing, "fitted_in", ()):
                text = "the kernel chooses one, and one was fitted in this capture"
                raise LookupError(text, "the fit before the capture, or a parameter for the number")
            _mark(thing, "chosen", notes)
    tape = memory.recorder()
    parts = []
    for thing in (nothing, *things.values()):
        own = getattr(thing, "still", {}).get(field)
        if own is not None and len(own) and tape is not None and tape.log.follows(getattr(thing, field).allocation):
            raise LookupError(
                f"the kernel chooses one, and the {field} of one are to have a gradient. Numbers chosen in a kernel "
                f"stand for what was there when it was built or fitted, without gradient",
                f"a parameter for the number of that {handle.name}",
            )
        parts.append(attrgetter(field)(thing) if own is None else own)
    return _together(handle, field, parts, lambda: parts)


def _type_of(handle: Handle, field: str) -> ElementType:
    """The type of the elements of a field of all living objects."""
    found: Type = handle
    for name in field.split("."):
        assert isinstance(found, Struct)
        found = dict(found.fields)[name]
    assert isinstance(found, Array)
    return dtype_of(found.dtype)


def _together(handle: Handle, field: str, key: list, make: Callable[[], list]) -> array:
    """Arrays (or numbers) as the zero-padded rows of one array; cached until the objects or their versions change."""
    kind, type = handle.name, _type_of(handle, field)
    key = [(id(a), a.allocation.version) if isinstance(a, array) else a for a in key]
    before, made, _ = _rows.get((kind, field), ([], None, None))
    if made is not None and before == key:
        return made
    parts = make()
    rows = [*parts, parts[0]]  # the empty one again, past the end: launches that test no index may come there
    if field == "numbers":
        made = new_array(len(parts[0]), type)
        made.data[...] = on_device(made, parts[0])
    elif not isinstance(parts[0], array):
        made = new_array(len(rows), type)
        made.data[...] = on_device(made, rows)
    else:
        made = new_array((len(rows), max(max(len(p) for p in parts), 1)), parts[0].dtype)
        for row, part in zip(made.data, rows, strict=True):
            row[: len(part)] = part.data
    made = made if field == "numbers" else made[:-1]
    _rows[kind, field] = key, made, parts  # parts: their ids stay theirs
    return made


_rows: dict[tuple[str, str], tuple[list, array, Any]] = {}
