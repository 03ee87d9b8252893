"""State of a leaf's gradient before a tape published into it: read too early, or holding an earlier gradient."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from ..arrays.allocation import Allocation, caller_where
from ..errors import Where
from .events import Event


@dataclass(frozen=True)
class EarlierGradient:
    """A gradient added to an earlier one: of this tape (`again`), of a leaf that `moved`, or of a `chained` tape.

    where   the line of the backward that added to it.
    """

    again: bool
    moved: bool
    chained: bool
    where: Where | None


class EarlierGradients:
    """Leaves of a tape whose gradient the last backward added to another (`piled`), or that was `read_early`."""

    def __init__(self, events: list[Event], tape: weakref.ref[Any]) -> None:
        self.events, self._tape = events, tape
        self.clear()

    def clear(self) -> None:
        """Forget all leaves."""
        self.piled: dict[Allocation, EarlierGradient] = {}
        self.read_early: dict[Allocation, None] = {}

    def note(self, a: Allocation, blank: bool, chained: bool) -> None:
        """Note the state of a leaf's gradient before its adjoint is added. `blank`: the gradient is all zeros."""
        grad = a.gradient()
        if self.read_too_early(a):
            self.read_early[a] = None
        self.piled.pop(a, None)
        when, by = grad.publisher
        if when and not blank:
            self.piled[a] = EarlierGradient(by is self._tape, grad.stood_at != a.version, chained, caller_where())
        grad.stood_at = a.version

    def read_too_early(self, a: Allocation) -> bool:
        """True if this gradient was read after the tape's last event although no backward had published since."""
        grad = a.grad
        if grad is None or not grad.publisher[0] < self.events[-1].id < grad.read_at:
            return False
        return grad.user_written_mask(grad.span()) is None

    def is_piled(self, a: Allocation) -> bool:
        """True if the gradient of `a` is a sum that this tape published, not written by the user since."""
        grad = a.grad
        if a not in self.piled or grad is None or grad.publisher[1] is not self._tape:
            return False
        return grad.user_written_mask(grad.span()) is None
