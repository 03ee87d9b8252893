"""Values of threads that run together: a vector with a number per lane, or a NumPy scalar where all have the same.

A composite is a tuple of those, one per component. What only some lanes do works on the values of those alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ir
from ..types import Composite, Type
from .closures import THREAD


def is_vector(value: Any) -> bool:
    """True if lanes may hold different values in it."""
    return value.__class__ is np.ndarray or (value.__class__ is tuple and any(v.__class__ is np.ndarray for v in value))


def taken(value: Any, chosen: np.ndarray | slice) -> Any:
    """The value of these lanes: positions among those that have it."""
    if value.__class__ is np.ndarray:
        return value[chosen]
    return tuple([taken(v, chosen) for v in value]) if value.__class__ is tuple else value


def empty(type: Type, count: int) -> Any:
    """A value of so many lanes, to be filled by `put`."""
    if isinstance(type, Composite):
        return tuple([np.empty(count, type.numpy) for _ in range(type.size)])
    return np.empty(count, ir.numeric(type).numpy)


def put(target: Any, chosen: np.ndarray | int, value: Any) -> None:
    """Set the value of these lanes."""
    if target.__class__ is tuple:
        for part, given in zip(target, value, strict=True):
            part[chosen] = given
    else:
        target[chosen] = value


class Chosen:
    """The slots that a region uses, which hold the values of some lanes alone until `restore`."""

    __slots__ = ("before", "s", "slots")

    def __init__(self, s: list, slots: list[int]):
        self.s, self.slots = s, slots
        self.before = [s[k] for k in slots]

    def narrow(self, chosen: np.ndarray) -> None:
        for k, value in zip(self.slots, self.before, strict=True):
            self.s[k] = taken(value, chosen)

    def restore(self) -> None:
        for k, value in zip(self.slots, self.before, strict=True):
            self.s[k] = value


class Turns:
    """A running loop: what it carries, and the final values of lanes that have left it before others."""

    __slots__ = ("around", "carried", "here", "left", "s", "types")

    def __init__(self, s: list, slots: list[int], carried: list, types: list[Type]):
        self.s, self.carried, self.types = s, carried, types
        self.around = Chosen(s, slots)
        self.left: list[Any] = []  # once some lanes left
        self.here: np.ndarray | None = None  # the positions of those that turn, where it is asked

    @property
    def at(self) -> np.ndarray:
        """The positions of the lanes that turn, among those that came to the loop."""
        if self.here is None:
            self.here = np.arange(len(self.s[THREAD]))
        return self.here

    def go_on(self, go: Any) -> bool:
        """Returns whether anybody goes on. Lanes that do not, leave with what the loop carries now."""
        if go.__class__ is not np.ndarray:
            return bool(go)
        if go.all() or not go.any():
            return bool(go[0])
        if not self.left:
            self.left = [empty(t, len(self.at)) for t in self.types]
        self.leave(~go)
        kept = np.flatnonzero(go)
        self.carried = [taken(v, kept) for v in self.carried]
        self.here = self.at[kept]
        self.around.narrow(self.here)
        return True

    def leave(self, which: np.ndarray | slice) -> None:
        for target, value in zip(self.left, self.carried, strict=True):
            put(target, self.at[which], taken(value, which))

    def end(self, outs: list[int]) -> None:
        if self.left:
            self.leave(slice(None))
        self.around.restore()
        for out, value in zip(outs, self.left or self.carried, strict=True):
            self.s[out] = value
