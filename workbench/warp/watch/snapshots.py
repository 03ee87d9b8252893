"""Snapshots of gradients when a backward begins, after each of its adjoint launches, and when it ends.

A backward in a capture runs when its graph is launched, with all that is around it: there the copies are made by the
graph itself, unseen by the program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import warp
from warp._src import codegen, context

from .hooks import Theirs
from .memory import TwinBuffer, Twins, arrays_in

MUCH = 1 << 26  # bytes that are noted after the adjoint launches of one graph
MOST = 1 << 28  # of one backward


@dataclass(eq=False)
class Snapshots:
    """Gradients `first` (before) and `last` (after), by the id of their array; `changed`: buffers, by the host."""

    first: dict[int, Any]
    last: dict[int, Any]
    changed: frozenset[TwinBuffer] = frozenset()

    def before(self, a: Any) -> np.ndarray:
        """The gradient of an array before; the present one if there is no snapshot."""
        return _held(self.first, a, a.grad)

    def after(self, a: Any) -> np.ndarray:
        """The gradient of an array after; the present one if there is no snapshot."""
        return _held(self.last, a, a.grad)


def _held(known: dict[int, Any], a: object, now: Any) -> np.ndarray:
    found = known.get(id(a))
    return np.array(now.numpy()) if found is None else found


class GradientSnapshots(Snapshots):
    """One backward, with snapshots of the gradients.

    entries    the launches on Warp's tape; `gradients`: the arrays that it had gradients of.
    arguments  of each entry when the backward began, see `as_now`.
    arrays     those with a gradient, by id: the keys of `first` (before), `last` (after) and `values` (the array).
    glimpses   after adjoint launches: the number of the entry, and [(array, its gradient)].
    events, steps  how many there were of each when the watch came to it.
    in_torch       True if a backward of torch has called it.
    """

    kind, label, kernel, most = "backward", "Tape.backward", None, MOST

    def __init__(self, twins: Twins, tape: Any, loss: Any, grads: Any, others: Iterable[Any]):
        self.twins, self.tape, self.loss, self.grads = twins, tape, loss, grads
        self.entries, self.gradients = list(tape.launches), list(tape.gradients)
        self.events = self.steps = self.noted = 0
        torch = sys.modules.get("torch")  # whose backward carries on what a function of the program returns
        self.refused, self.in_torch = "", torch is not None and torch._C._current_graph_task_id() != -1
        self.next = len(self.entries)
        self.glimpses: list[tuple[int, list[tuple[Any, Any]]]] = []
        super().__init__({}, {})
        given = [*arrays_in([*(a for a in (loss, *(grads or ())) if a is not None), *self.gradients]), *others]
        self.arguments: list[list[Any]] = []
        for entry in self.entries:
            values = [*entry[3], *entry[4]] if isinstance(entry, list) else []
            self.arguments.append(list(map(as_now, values)))
            given += twins.arrays_of(values)
        self.arrays = {key: a for key, a in {id(a): a for a in given}.items() if a.grad is not None}
        self.buffers: dict[int, Any] = {}
        self.values: dict[int, Any] = {}
        self.seeds: dict[int, Any] = {}

    # ---- while it runs

    def copy(self, a: object) -> Any:
        """A snapshot of a Warp array."""
        raise NotImplementedError

    def begin(self) -> None:
        self.buffers = {key: a.grad for key, a in self.arrays.items()}
        self.first = {key: self.copy(g) for key, g in self.buffers.items()}
        self.seeds = {id(g): self.copy(g) for g in (self.grads or {}).values()}

    def end(self) -> None:
        self.last = {key: self.copy(a.grad) for key, a in self.arrays.items()}

    def adjoint_launch(self, theirs: Theirs, kwargs: dict) -> Any:
        """Run one adjoint launch of Warp's, and snapshot the gradients that it may have changed."""
        result = theirs()
        n = entry_of(self.entries, self.next, kwargs.get("kernel"), kwargs.get("inputs"))
        if n is not None and not self.refused:
            self.next = n
            given = arrays_in([*kwargs["inputs"], *kwargs["outputs"]])
            pairs = [(a, g) for a in given if (g := a.grad) is not None]
            self.noted += sum([g.capacity for _, g in pairs])
            if self.noted > self.most:
                self.glimpses.clear()
            else:
                self.glimpse(n, pairs)
        return result

    def glimpse(self, n: int, pairs: list[tuple[Any, Any]]) -> None:
        self.glimpses.append((n, [(a, self.copy(g)) for a, g in pairs]))

    # ---- afterwards

    def knows(self, a: object) -> bool:
        return id(a) in self.last or bool(self.refused)

    def seed(self, g: object) -> np.ndarray:
        return _held(self.seeds, g, g)

    def held(self, a: object) -> np.ndarray:
        """The contents of an array at the backward."""
        return self.values[id(a)] if id(a) in self.values else self.twins.array(a).data


class LiveSnapshots(GradientSnapshots):
    """A backward that runs at once; its snapshots are NumPy copies."""

    def __init__(self, twins: Twins, tape: Any, loss: Any, grads: Any):
        others = [a for known in list(twins.made.values()) if (a := known.ref()) is not None and a.size]
        super().__init__(twins, tape, loss, grads, others)

    def copy(self, a: Any) -> np.ndarray:
        return np.array(a.numpy())

    def end(self) -> None:
        super().end()
        self.changed = frozenset(r for r in self.twins.buffers if r.changed())


class GraphSnapshots(GradientSnapshots):
    """A backward inside a graph, as it was in one launch of that graph."""

    def __init__(self, back: ReplayedSnapshots):
        self.__dict__.update(back.__dict__)
        self.back = back
        for name in ("first", "last", "values", "seeds"):
            setattr(self, name, {key: np.array(made.numpy()) for key, made in getattr(back, name).items()})
        self.glimpses = [(n, [(a, np.array(made.numpy())) for a, made in noted]) for n, noted in back.glimpses]


class ReplayedSnapshots(GradientSnapshots):
    """A backward in a capture, whose snapshots are copies in the graph. `refused`: why there are none, or ""."""

    most = MUCH
    place: Any = None  # the line of the program

    def capture(self, act: Callable[[], Any]) -> Any:
        """Let Warp record its backward, between the copies. Returns what Warp's call returns."""
        if not self.refused:
            self.noting(self.begin)
        result = act()
        if not self.refused:
            self.noting(self.end)
        return result

    def begin(self) -> None:
        super().begin()
        self.values = {key: self.copy(a) for key, a in self.arrays.items()}

    def glimpse(self, n: int, pairs: list[tuple[Any, Any]]) -> None:
        self.noting(lambda: super(ReplayedSnapshots, self).glimpse(n, pairs))

    def noting(self, act: Callable[[], None]) -> None:
        """Run `act` with copies recorded in the open capture but not on Warp's tape."""
        tape, context.runtime.tape = context.runtime.tape, None
        try:
            act()
        except Exception as error:  # noqa: BLE001  Warp refuses some copy: the program goes on without
            self.refused = f"in a capture, in whose graph its gradients cannot be noted ({error})"
        finally:
            context.runtime.tape = tape

    def copy(self, a: Any) -> Any:
        """A new array, into which the open capture copies `a` whenever its graph is launched."""
        made = warp.empty(a.shape, dtype=a.dtype, device=a.device)
        if a.size:
            warp.copy(made, a)
        return made


def as_now(v: object) -> Any:
    """Snapshot of a launch argument: mutable values (structs, vectors) are copied, all others returned as they are."""
    kind = type(v)
    if kind is warp.array or kind is int or kind is float:
        return v
    if isinstance(v, codegen.StructInstance):
        return {name: as_now(getattr(v, name)) for name in kind._cls.vars}  # type: ignore[attr-defined]
    return kind.from_buffer_copy(v) if hasattr(kind, "_wp_scalar_type_") else v  # type: ignore[attr-defined]


def entry_of(entries: list[Any], before: int, kernel: object, inputs: object) -> int | None:
    """The index of the last entry before `before` that launches this kernel with these inputs; None if none does."""
    launches = (n for n in reversed(range(before)) if isinstance(entries[n], list))
    return next((n for n in launches if entries[n][0] is kernel and entries[n][3] is inputs), None)


def digest(values: np.ndarray) -> bytes:
    """A 16-byte digest of an array's contents."""
    return blake2b(np.ascontiguousarray(values).tobytes(), digest_size=16).digest()


# ---- tensors of torch behind arrays of `wp.from_torch`: their gradient and history, which Warp does not see


def shares_gradient(a: Any) -> bool:
    """True if the tensor behind an array has the same memory as its gradient; no longer after `tensor.grad = None`."""
    tensor = getattr(a, "_tensor", None)
    return tensor is not None and tensor.is_leaf and tensor.grad is not None and tensor.grad.data_ptr() == a.grad.ptr


def leaves_behind(a: object) -> list[Any]:
    """The leaves of torch from which the tensor behind an array was computed; none behind a leaf."""
    found, seen = [], set()
    waiting = [getattr(getattr(a, "_tensor", None), "grad_fn", None)]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            found += [node.variable] if hasattr(node, "variable") else []
            waiting += [before for before, _ in node.next_functions]
    return found
