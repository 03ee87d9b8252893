"""`numpy()` of a gradient: numbers that a later backward pass does not overwrite.

The rule. Before anything was published (or after `tape.zero()`) it is the gradient's memory itself, as for any array.
Else it is a `GradientView`: a copy with write-back. What is written into it is copied to the gradient when that is next
used (by backward, a launch, another reading), until something else writes the gradient; from then on the view is a
plain copy, and the next backward warns if it was written to all the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from .allocation import LOCK, GradientMemory, clock
from .span import AddressedMemory
from .strided import StridedArray

open_views: dict[int, weakref.ref[GradientMemory]] = {}  # gradients with a view, by id


class GradientView:
    """A copy of a gradient's bytes that NumPy views share (`given`), and the bytes at the last write-back (`base`)."""

    __slots__ = ("given", "base", "holder")

    def __init__(self, memory: GradientMemory):
        self.given = memory.bytes.copy()
        self.base = self.given.copy()
        self.holder: Any = lambda: None

    def root(self) -> np.ndarray:
        """The uint8 array that is the base of all NumPy views of the copy, alive as long as one of them is."""
        root = self.holder()
        if root is None:
            at = self.given.__array_interface__["data"][0]
            root = np.asarray(AddressedMemory(at, self.given.shape, None, 1, self.given))
            self.holder = weakref.ref(root)
        return root

    @property
    def touched(self) -> bool:
        """True if a view of it is alive and it was written to since the last write-back."""
        return self.holder() is not None and not np.array_equal(self.given, self.base)

    def pull(self, memory: GradientMemory) -> None:
        """Copy the bytes that were written to the view into the gradient."""
        changed = self.given != self.base
        if changed.any():
            memory.about_to_change_by_hand(changed)
            memory.bytes[changed] = self.given[changed]
            self.base[changed] = self.given[changed]

    def close(self, memory: GradientMemory) -> None:
        """Write back for the last time, as the gradient is about to change."""
        memory.gradient_view = None
        open_views.pop(memory.id, None)
        self.pull(memory)
        memory.previous_view = self if self.holder() is not None else None


def open_view(a: StridedArray, memory: GradientMemory) -> np.ndarray:
    """A NumPy view of the gradient `a`, on the CPU: of a copy, or of `memory` if nothing is published yet."""
    with LOCK:
        memory.read_at = next(clock)
        if memory.gradient_view is not None:
            memory.gradient_view.pull(memory)
            if not np.array_equal(memory.gradient_view.base, memory.bytes):
                memory.gradient_view.close(memory)
        if memory.gradient_view is None:
            if not memory.publisher[0]:
                memory.expose()
                return a.data[...]
            memory.gradient_view = GradientView(memory)
            open_views[memory.id] = weakref.ref(memory)
        data = a.data
        return np.ndarray(data.shape, data.dtype, memory.gradient_view.root(), a.span.offset, data.strides)


def sync_views(arrays: Iterable[Any] | None = None) -> None:
    """Write back all views (those of `arrays`), before native code reads gradients. Call under LOCK."""
    needed = None if arrays is None else {id(getattr(a, "allocation", None)) for a in arrays}
    for key, ref in list(open_views.items()):
        memory = ref()
        if memory is None:
            del open_views[key]
        elif (view := memory.gradient_view) is not None:
            if view.holder() is None:  # no NumPy array of it is alive
                view.close(memory)
            elif needed is None or id(memory) in needed:
                view.pull(memory)
