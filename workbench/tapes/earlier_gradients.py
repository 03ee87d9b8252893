"""State of a leaf's gradient before a tape published into it: read too early, or holding an earlier gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..arrays.allocation import Allocation
from ..records import record

if TYPE_CHECKING:
    from .recording import Recording


@record(frozen=True)
class EarlierGradient:
    """A gradient that was added to what an earlier backward had left there.

    again    that was of this tape. moved: the leaf has changed since. chained: this tape was seeded by a later one.
    """

    again: bool
    moved: bool
    chained: bool


def note_before(tape: Recording, a: Allocation, blank: bool) -> None:
    """Note the state of a leaf's gradient before its adjoint is added. `blank`: the gradient is all zeros."""
    grad = a.gradient()
    if read_too_early(tape, a):
        tape.read_early[a] = None
    tape.piled.pop(a, None)
    when, by = grad.publisher
    if when and not blank:
        tape.piled[a] = EarlierGradient(by is not None and by() is tape, grad.stood_at != a.version, tape.run.chained)
    grad.stood_at = a.version


def read_too_early(tape: Recording, a: Allocation) -> bool:
    """True if this gradient was read after the tape's last event although no backward had published since."""
    grad = a.grad
    if grad is None or not grad.publisher[0] < tape.events[-1].stamp < grad.read_at:
        return False
    return grad.user_written_mask(grad.span()) is None


def is_piled(tape: Recording, a: Allocation) -> bool:
    """True if the gradient of `a` is a sum that this tape published, not written by the user since."""
    grad = a.grad
    if a not in tape.piled or grad is None or grad.publisher[1] is None or grad.publisher[1]() is not tape:
        return False
    return grad.user_written_mask(grad.span()) is None
