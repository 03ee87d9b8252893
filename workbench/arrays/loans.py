"""What `numpy()` of a gradient gives: numbers that stay, and that a later backward pass does not write over.

The rule. Before anything was published (or after `tape.zero()`), it is the gradient's memory itself, as of any array:
there is nothing yet to keep. Else it is a loan: numbers of its own. What is written into a loan is taken over into the
gradient when that is next used (by backward, a launch, another reading), until something else writes the gradient; from
then on the loan is its holder's own. Who writes to it all the same is warned by the next backward.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .allocation import LOCK, Allocation, clock
from .span import AddressedMemory

if TYPE_CHECKING:
    from .array import array

lent: dict[int, weakref.ref[Allocation]] = {}  # gradients with a loan, by id


class Loan:
    """The bytes of a gradient as they were `given` to NumPy, beside those that they were compared with last."""

    __slots__ = ("given", "base", "holder")

    def __init__(self, memory: Allocation):
        self.given = memory.bytes.copy()
        self.base = self.given.copy()
        self.holder: Any = lambda: None

    def root(self) -> np.ndarray:
        """The array whose memory all views of the loan share: alive as long as one of them is."""
        root = self.holder()
        if root is None:
            at = self.given.__array_interface__["data"][0]
            root = np.asarray(AddressedMemory(at, self.given.shape, None, 1, self.given))
            self.holder = weakref.ref(root)
        return root

    @property
    def touched(self) -> bool:
        """Has somebody who still holds it written to it."""
        return self.holder() is not None and not np.array_equal(self.given, self.base)

    def pull(self, memory: Allocation) -> None:
        """Take over into the gradient what was written to the loan."""
        changed = self.given != self.base
        if changed.any():
            memory.about_to_change_by_hand(changed)
            memory.bytes[changed] = self.given[changed]
            self.base[changed] = self.given[changed]

    def close(self, memory: Allocation) -> None:
        """The same for the last time: the gradient is about to change."""
        memory.loan = None
        lent.pop(memory.id, None)
        self.pull(memory)
        memory.former = self if self.holder() is not None else None


def lend(a: array) -> np.ndarray:
    """The numbers of a gradient on the CPU, for NumPy."""
    with LOCK:
        memory = a.allocation
        memory.read_at = next(clock)
        if memory.loan is not None:
            memory.loan.pull(memory)
            if not np.array_equal(memory.loan.base, memory.bytes):
                memory.loan.close(memory)
        if memory.loan is None:
            if not memory.publisher[0]:
                memory.expose()
                return a.data[...]
            memory.loan = Loan(memory)
            lent[memory.id] = weakref.ref(memory)
        data = a.data
        return np.ndarray(data.shape, data.dtype, memory.loan.root(), a.span.offset, data.strides)


def recall(arrays: Iterable[Any] | None = None) -> None:
    """Take over what was written to any loan. Call under LOCK before native code reads arrays that may be gradients.

    `arrays`: only to loans of the memory of these; what is no array is passed by.
    """
    needed = None if arrays is None else {id(getattr(a, "allocation", None)) for a in arrays}
    for key, ref in list(lent.items()):
        memory = ref()
        if memory is None:
            del lent[key]
        elif memory.loan is not None and (needed is None or id(memory) in needed or memory.loan.holder() is None):
            _take_back(memory)


def _take_back(memory: Allocation) -> None:
    """Take over what was written to a loan; for the last time if nobody holds it any more."""
    if memory.loan.holder() is None:
        memory.loan.close(memory)
    else:
        memory.loan.pull(memory)
