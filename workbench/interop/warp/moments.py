"""What gradients hold when a backward begins and when it has ended.

Of a backward that runs now, they are read. One in a capture runs when its graph is launched, together with what comes
before and behind it: there the graph is given copies to make, which the program does not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
import warp
from warp._src import context

from .memory import arrays_in

MUCH = 1 << 26  # bytes of Warp's gradient buffers that are noted after the adjoint launches of one graph


class Now:
    """Of a backward that runs now."""

    def knows(self, a: Any) -> bool:
        return True

    def before(self, a: Any) -> np.ndarray:
        """The gradient of an array when the backward begins."""
        return np.array(a.grad.numpy())

    after = before

    def seed(self, g: Any) -> np.ndarray:
        return np.array(g.numpy())

    def held(self, a: Any) -> np.ndarray:
        """What an array itself holds."""
        return a.numpy()


class Back:
    """A backward in a capture, as one of the calls of its graph.

    entries, gradients  what Warp's tape held when it was captured.
    events, steps       how many there were of each when the launch of the graph that is repeated came to it.
    refused             why the copies that the graph makes say nothing; "" where they do.
    """

    kind, label, kernel = "backward", "Tape.backward", None

    def __init__(self, tape: Any, loss: Any, grads: Any, entries: list[Any], arrays: Iterable[Any]):
        self.tape, self.loss, self.grads, self.entries = tape, loss, grads, entries
        self.gradients = list(tape.gradients)
        self.events = self.steps = 0
        self.refused = ""
        self.next, self.noted = len(entries), 0
        self.glimpses: list[tuple[int, list[tuple[Any, Any]]]] = []
        seeded = [a for a in (loss, *(grads or ())) if a is not None]
        recorded = [v for e in entries if isinstance(e, list) for v in (*e[3], *e[4])]
        given = [*arrays_in([*seeded, *self.gradients, *recorded]), *arrays]
        self.arrays = {id(a): a for a in given if a.grad is not None}
        self.first: dict[int, Any] = {}
        self.last: dict[int, Any] = {}
        self.values: dict[int, Any] = {}
        self.seeds: dict[int, Any] = {}

    def touched(self) -> list[Any]:
        """What the other calls of the graph do not touch needs no twin."""
        return []

    # ---- while it is captured

    def capture(self, act: Callable[[], Any]) -> Any:
        """Let Warp note its backward, and around it the copies. Returns what Warp's call returns."""
        if context.runtime._apic_graph is not None and context.runtime._apic_graph.apic:
            self.refused = "in a capture that may be saved: nothing can be noted in its graph"
        else:
            self.copies(self._begin)
        result = act()
        if not self.refused:
            self.copies(self._end)
        return result

    def copies(self, note: Callable[[], None]) -> None:
        tape, context.runtime.tape = context.runtime.tape, None
        try:
            note()
        except Exception as error:  # noqa: BLE001  Warp refuses to note some copy: the program goes on without
            self.refused = f"in a capture, in whose graph its gradients cannot be noted ({error})"
        finally:
            context.runtime.tape = tape

    def _begin(self) -> None:
        self.first = {key: _noted(a.grad) for key, a in self.arrays.items()}
        self.values = {key: _noted(a) for key, a in self.arrays.items()}
        self.seeds = {id(g): _noted(g) for g in (self.grads or {}).values()}

    def _end(self) -> None:
        self.last = {key: _noted(a.grad) for key, a in self.arrays.items()}

    def adjoint_launch(self, original: Any, args: tuple, kwargs: dict) -> Any:
        """One adjoint launch of Warp's: behind it the graph notes the gradients that it may have changed."""
        result = original(*args, **kwargs)
        n = entry_of(self.entries, self.next, kwargs.get("kernel"), kwargs.get("inputs"))
        if n is None or self.refused:
            return result
        self.next = n
        arrays = [a for a in arrays_in([*kwargs["inputs"], *kwargs["outputs"]]) if a.grad is not None]
        self.noted += sum(a.grad.capacity for a in arrays)
        if self.noted > MUCH:
            self.glimpses.clear()
        else:
            self.copies(lambda: self.glimpses.append((n, [(a, _noted(a.grad)) for a in arrays])))
        return result

    # ---- once its graph has run

    def knows(self, a: Any) -> bool:
        return id(a) in self.last or bool(self.refused)

    def before(self, a: Any) -> np.ndarray:
        """The gradient of an array when the backward began (now, where the graph could not note it)."""
        return np.array(self.first.get(id(a), a.grad).numpy())

    def after(self, a: Any) -> np.ndarray:
        """The gradient of an array when the backward had ended."""
        return np.array(self.last.get(id(a), a.grad).numpy())

    def seed(self, g: Any) -> np.ndarray:
        return np.array(self.seeds.get(id(g), g).numpy())

    def held(self, a: Any) -> np.ndarray:
        """What an array itself held."""
        return self.values.get(id(a), a).numpy()

    def seen(self) -> list[tuple[int, list[tuple[Any, np.ndarray]]]]:
        """The entries of Warp's tape, and (array, its gradient) behind the adjoint of each."""
        return [(n, [(a, np.array(copy.numpy())) for a, copy in noted]) for n, noted in self.glimpses]


def entry_of(entries: list[Any], before: int, kernel: Any, inputs: Any) -> int | None:
    """The number of the entry of Warp's tape, the last one before `before`, that launches this kernel with these."""
    for n in range(before - 1, -1, -1):
        entry = entries[n]
        if isinstance(entry, list) and entry[0] is kernel and entry[3] is inputs:
            return n
    return None


def digest(values: np.ndarray) -> bytes:
    """A digest of what an array of Warp holds."""
    return blake2b(np.ascontiguousarray(values).tobytes(), digest_size=16).digest()


def _noted(a: Any) -> Any:
    """An array of its own, into which the open capture copies this one when its graph is launched."""
    made = warp.empty(a.shape, dtype=a.dtype, device=a.device)
    if a.size:
        warp.copy(made, a)
    return made
