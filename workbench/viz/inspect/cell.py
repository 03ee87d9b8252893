"""One element of a shadow: its address, its name, and its value during a walk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...arrays.scalar import scalar
from ...arrays.span import Span
from ...arrays.workspace import Workspace, gradient_dtype
from ...errors import GradientError
from ...kernels.types import Struct, is_float
from ...tapes.tape import Tape
from ..data.snapshot import full_shape

CellIndex = int | str | Sequence[int | str]  # of an element, a component, a field by its name


@dataclass(frozen=True)
class Cell:
    """One element of a shadow: `offset` in its memory; `k` bytes of shadow stand for one byte of memory."""

    allocation: Allocation
    offset: int
    dtype: np.dtype
    k: int
    label: str
    index: tuple[Any, ...]
    of: array

    def inside(self, span: Span) -> bool:
        """True if the cell may lie in this span, by its hull: a launch that does not touch it in fact adds nothing."""
        low, high = span.hull()
        return span.allocation is self.allocation and low <= self.offset < high

    def value(self, data: np.ndarray) -> float:
        """The value of the cell in the bytes of a shadow."""
        at = self.offset * self.k
        found = data[at : at + self.dtype.itemsize].view(self.dtype)
        return float(found[0])

    def read(self, space: Workspace) -> float:
        return self.value(space[self.allocation].data) if self.allocation in space else 0.0


def cell_of(tape: Tape, a: array | scalar, index: CellIndex) -> Cell:
    """The cell of an index: fields by name, the axes of the array, those of the component. Raises GradientError."""
    given: tuple[Any, ...] = tuple(index) if isinstance(index, tuple | list) else (index,)
    if isinstance(a, scalar):
        a, given = a.memory, (0, *given)
    if not isinstance(a, array):
        text = f"a ledger is of an array, not of {type(a).__name__}"
        raise GradientError(text, slug="ledger-type", instead="tape.ledger(x, index)")
    part, label = a, tape.names.given(a)
    for name in (n for n in given if isinstance(n, str)):
        part, label = part.field(name), label and f"{label}.{name}"
    pairs = ((leaf.name, x) for event in tape.events for leaf, x in event.arguments if isinstance(x, array))
    label = label or next((name for name, x in pairs if x.span == part.span), "") or a.label
    numbers = [n for n in given if not isinstance(n, str)]
    if isinstance(part.dtype, Struct) or not is_float(part.dtype):
        what = f"one field: {', '.join(n for n, _ in part.dtype.fields)}" if isinstance(part.dtype, Struct) else ""
        text = f"{label} is {part.dtype}: its ledger is that of one number."
        instead = f"tape.ledger({label}, (index, 'field')), with {what}" if what else "an array of floats"
        raise GradientError(text, slug="ledger-type", instead=instead)
    shape = full_shape(part)
    offset, strides = part.span.offset, part.data.strides
    if len(numbers) != len(shape) or any(not isinstance(n, int | np.integer) for n in numbers):
        text = f"{label} has shape {shape} with its components; an index of a cell is {len(shape)} whole numbers,"
        instead = f"tape.ledger({label}, {tuple(0 for _ in shape)})"
        raise GradientError(f"{text} not {index!r}.", slug="ledger-index", instead=instead)
    for axis, (i, n) in enumerate(zip(numbers, shape, strict=True)):
        if not -n <= i < n:
            text = f"index {i} is outside axis {axis} of {label}, whose extent is {n}."
            raise GradientError(text, slug="ledger-index", instead=f"an index from 0 to {n - 1}")
    exact = tuple(int(i) % n for i, n in zip(numbers, shape, strict=True))
    offset += sum(i * s for i, s in zip(exact, strides, strict=True))
    return Cell(part.allocation, offset, gradient_dtype(part), part.allocation.grad_scale or 1, label, exact, part)
