"""`copy.copy` and `copy.deepcopy` of arrays: values in new memory, never a gradient cut in silence.

Under a tape both are clones, which are events. Elsewhere a deep copy takes the memory as a whole, with its gradient and
what asked for one, so that arrays on one memory that are copied together are again on one.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ..device import XpArray
from ..errors import LaunchError
from .allocation import LOCK, Allocation, Placed, allocate

P = TypeVar("P", bound=Placed)
_MEMORY = "workbench memory"


def parted(a: P, memo: dict[Any, Any]) -> P:
    """Return `a`. Raises LaunchError [deepcopy] if it shares memory with another array copied with the same `memo`:
    their clones would not."""
    others = memo.setdefault(_MEMORY, [])
    shared = next((o for o in others if o.span.overlaps(a.span) is not False), None)
    if shared is not None:
        text = f"copy.deepcopy of {shared.label} and {a.label} under a tape: they share memory, their copies would not."
        why = "What is written to one of them is seen by the other."
        instead = "y = wb.clone(x), and slices of that; or the copy before the tape"
        raise LaunchError(text, slug="deepcopy", why=why, instead=instead)
    others.append(a)
    return a


def duplicate(a: Allocation, memo: dict[Any, Any]) -> Allocation:
    """A copy of an allocation with its bytes, marks and gradient; one copy for each `memo`."""
    a.refuse_rows()
    key = _MEMORY, id(a)
    if key not in memo:
        with LOCK:
            made = memo[key] = allocate(a.nbytes, a.device, zeroed=False)
            made.bytes[...] = a.bytes
            ask_alike(made, a)
            if a.grad is not None:
                set_gradient(made, a.grad.bytes)
    return memo[key]


def ask_alike(made: Allocation, a: Allocation) -> None:
    """Ask for the gradients that are asked of another memory, of which this one is a copy."""
    made.grad_scale = a.grad_scale
    made.mark("required", [span.on(made) for span in a.required])
    made.mark("retained", [span.on(made) for span in a.retained])


def set_gradient(a: Allocation, data: XpArray) -> None:
    """Set the gradient of new memory to these bytes, as published ones: `backward` does not take them for seeds."""
    grad = a.gradient()
    grad.bytes[...] = data
    grad.version += 1
    grad.mark_published()
