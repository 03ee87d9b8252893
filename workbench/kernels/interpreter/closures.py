"""Regions as closures: every statement becomes a function of one list of slots, a slot per value.

The work of looking things up is done once, so that a statement costs about a microsecond when threads run.
Invariants: values are never changed in place; a scalar is a NumPy scalar of its type and a composite a `Small` of its
type, whatever a row's meaning returns (as an assignment converts in C).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import ir
from ..row import Row
from ..types import Array, Composite, Scalar, Small, Stack, Type

Step = Callable[[list], None]
THREAD, LOG = 0, 1  # the slots of the thread index and of what this thread's `log_store`s overwrote


class LiveValues:
    """The values a trace sees: `values[v]` is the present number of IR value `v` (live ndarray for arrays)."""

    def __init__(self, closures: Closures):
        self._closures = closures

    def __getitem__(self, value: ir.Value) -> Any:
        if id(value) in self._closures.arrays:
            return self._closures.arrays[id(value)].data
        return self._closures.slots[self._closures.slot_of[id(value)]]

    def __setitem__(self, value: ir.Value, number: object) -> None:
        """Give a number or a composite another value, for the statements that follow."""
        self._closures.slots[self._closures.slot_of[id(value)]] = number


class BoundArray:
    """An array argument: its data (axes of the array, then of the component), the user's name, the indexed axes."""

    def __init__(self, data: np.ndarray, name: str, ndim: int):
        self.data, self.name, self.ndim = data, name, ndim
        self.shape = data.shape[:ndim]


class ThreadStack:
    """The stack of a running thread."""

    def __init__(self, type: Stack):
        self.capacity, self.held = type.capacity, []

    def push(self, thread: tuple[int, ...], value: object, stmt: ir.Stmt) -> None:
        if len(self.held) == self.capacity:
            raise RuntimeError(f"internal error: a stack of capacity {self.capacity} overflows ({stmt.where})")
        self.held.append(value)

    def pop(self, thread: tuple[int, ...], stmt: ir.Stmt) -> Any:
        if not self.held:
            raise RuntimeError(f"internal error: an empty stack is popped ({stmt.where})")
        return self.held.pop()


class Closures:
    """Makes the closures of one launch.

    `steps`: how statements of a row are compiled; `otherwise`: those of all other rows. They return None where nothing
    is left to do while threads run.
    """

    def __init__(
        self,
        dims: Sequence[int],
        steps: Steps,
        otherwise: Maker,
        trace: Callable | None,
        kernel: str = "",
        watched: Container[ir.Stmt] | None = None,
    ):
        self.kernel, self.steps, self.otherwise = kernel, steps, otherwise
        self.dims = tuple(int(d) for d in dims)
        self.trace, self.watched = trace, watched
        self.slots: list[Any] = [None, None]
        self.slot_of: dict[int, int] = {}
        self.arrays: dict[int, BoundArray] = {}
        self.noted: set[ir.Stmt] = set()  # conventions that were met
        self.kept: list[Any] = []  # values made here must live as long as their ids are keys

    # --- slots

    def bind(self, params: list[ir.Value], args: Sequence[Any]) -> None:
        if len(params) != len(args):
            raise ValueError(f"{len(params)} parameters, {len(args)} arguments")
        for param, arg in zip(params, args, strict=True):
            if isinstance(param.type, Array):
                self.arrays[id(param)] = memory(param, arg)
            else:
                self.slots[self.new(param)] = converter(param.type)(arg)

    def scratch(self) -> int:
        self.slots.append(None)
        return len(self.slots) - 1

    def new(self, value: ir.Value) -> int:
        self.slot_of[id(value)] = self.scratch()
        return self.slot_of[id(value)]

    def at(self, values: Sequence[ir.Value]) -> list[int]:
        return [self.slot_of[id(v)] for v in values]

    # --- stacks and claims

    def stack(self, type: Stack) -> Any:
        """A new stack, empty."""
        return ThreadStack(type)

    def failure(self, stmt: ir.Stmt, thread: tuple[int, ...]) -> Exception:
        """The error of a claim that does not hold."""
        return stmt.attr.error(self.kernel, stmt.where, thread if len(thread) != 1 else thread[0])

    # --- composites

    def scalars(self, composite: Any) -> Sequence[Any]:
        """The components of a value, one after the other."""
        return composite.ravel()

    def joined(self, type: Type) -> Callable[[list], Any]:
        """The function that makes a value of a list of its components (one for a scalar)."""
        convert = converter(type)
        return convert if isinstance(type, Composite) else lambda parts: convert(parts[0])

    # --- regions and statements

    def region(self, region: ir.Region) -> list[Step]:
        return [step for stmt in region.body for step in self.statement(stmt)]

    def inner(self, region: ir.Region) -> tuple[list[Step], list[int]]:
        """The steps of a region, and the slots from around it of which lanes take their own; one thread has none."""
        return self.region(region), []

    def compile(self, stmt: ir.Stmt) -> Step | None:
        return self.steps.get(stmt.row, self.otherwise)(self, stmt)

    def statement(self, stmt: ir.Stmt) -> list[Step]:
        made = self.compile(stmt)
        steps = [made] if made is not None else []
        if self.trace is not None and (self.watched is None or stmt in self.watched):
            steps.append(partial(_traced, self.trace, stmt, LiveValues(self)))
        return steps

    def fixed(self, stmt: ir.Stmt, value: object) -> None:
        """A result that is known before any thread runs costs nothing while they do."""
        self.slots[self.new(stmt.outs[0])] = converter(stmt.outs[0].type)(value)


def _traced(trace: Callable, stmt: ir.Stmt, values: LiveValues, s: list) -> None:
    trace(s[THREAD], stmt, values)


def memory(param: ir.Value, data: np.ndarray | None) -> BoundArray:
    assert isinstance(param.type, Array)
    element, ndim = param.type.dtype, param.type.ndim
    assert isinstance(element, (Scalar, Composite))
    if data is None:
        data = np.empty((0,) * ndim + element.shape, element.numpy)
    if data.ndim != ndim + len(element.shape) or data.shape[ndim:] != element.shape or data.dtype != element.numpy:
        raise ValueError(f"{param.name}: {param.type} cannot be shape {data.shape} of {data.dtype}")
    return BoundArray(data, param.name, ndim)


def converter(type: Type) -> Callable[[Any], Any]:
    """Any representation of a value of `type` -> the one the interpreter holds."""
    if isinstance(type, Scalar):
        return type.numpy.type
    assert isinstance(type, Composite)

    def convert(value: object) -> Small:
        data = np.array(value, type.numpy)
        data = np.full(type.shape, data) if data.ndim == 0 else data.reshape(type.shape)
        small = data.view(Small)
        small.type = type
        return small

    return convert


Maker = Callable[[Closures, ir.Stmt], Step | None]
Steps = Mapping[Row, Maker]
