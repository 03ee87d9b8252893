"""Declared scalars: a number or vector for a value parameter of a kernel, with a gradient.

Behind a scalar stands memory of one element: requiring, publishing and clearing a gradient are those of an array.
A launch takes the value at that moment, as it takes any number; nobody but `value` writes to the memory.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ..device import DeviceLike
from ..errors import LaunchError
from ..kernels.types import Struct
from . import ports
from .allocation import recorder, unrecorded
from .array import array
from .creation import full
from .dtypes import DTypeLike


class scalar:
    """A number, vector, matrix or quaternion that launches take for a value parameter, and that can have a gradient.

        a = wb.scalar(3.0, requires_grad=True)
        with wb.Tape() as tape:
            wb.launch(k, n, inputs=[a, x], outputs=[y])
        tape.backward(grads={y: seed})
        a.grad.item()

    value          a Python float makes float32, an int int32; NumPy numbers and `vec3(...)` keep their type.
    dtype          the type of the parameters it is passed for: exactly that, nothing is converted.
    requires_grad  fixed from the start. [grad-of-int] on whole numbers.
    device         where the launches run that it is passed to.

    Raises LaunchError [dtype], [components], [convert].

    Use it for a parameter of a simulation (a stiffness, a step) that is to be optimized: as an argument, or as the
    field of a struct (`model.mu = wb.scalar(0.08, requires_grad=True)`, then `model.mu.grad`).

    >>> @wb.kernel
    ... def scale(a: float, x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = a * x[i]
    >>> a, y = wb.scalar(3.0, requires_grad=True), wb.zeros(2)
    >>> with wb.Tape() as tape:
    ...     wb.launch(scale, dim=2, inputs=[a, wb.array([1.0, 2.0])], outputs=[y])
    >>> tape.backward(grads={y: wb.ones(2)})
    >>> a.grad.item()
    np.float32(3.0)
    """

    __slots__ = ("memory", "_value", "__weakref__")

    def __init__(
        self,
        value: object,
        dtype: DTypeLike = None,
        requires_grad: bool = False,
        device: DeviceLike = None,
        *,
        name: str | None = None,
    ):
        if isinstance(dtype, Struct):
            instead = "wb.scalar(s.k)   for each number of it, or wb.array([s], dtype=...)"
            raise LaunchError(f"a scalar of {dtype}", slug="dtype", instead=instead)
        self.memory = full(1, value, dtype, device, requires_grad, name=name)
        self._value = self._read()

    def _read(self) -> Any:
        with unrecorded():
            return self.memory[0]

    @property
    def value(self) -> Any:
        """The value that later launches take. Launches already made keep theirs.

        Under a tape, assigning is an event like writing to an array: `grad` is the derivative by the value before it.
        """
        return self._value.copy() if recorder() is None else self.memory[0]

    @value.setter
    def value(self, value: object) -> None:
        self.memory.assign([value])
        self._value = self._read()

    def detach(self) -> Any:
        """`value`, which is a constant to every gradient."""
        return self._value.copy()

    def __copy__(self) -> scalar:
        return deepcopy(self)

    @property
    def dtype(self) -> Any:
        return self.memory.dtype

    @property
    def requires_grad(self) -> bool:
        return self.memory.requires_grad

    @property
    def grad(self) -> array | None:
        """The gradient, an array of one element (float32 for float16); None without `requires_grad`."""
        return self.memory.grad

    @grad.setter
    def grad(self, value: array | None) -> None:
        self.memory.grad = value

    @property
    def label(self) -> str:
        """The name used in messages."""
        return self.memory.label

    def __repr__(self) -> str:
        extra = ", requires_grad=True" if self.requires_grad else ""
        return f"scalar({self._value}, dtype={self.dtype}{extra})"


def scalar_on(memory: array, value: object) -> scalar:
    """The scalar on an array of one element that holds this value already."""
    made = object.__new__(scalar)
    made.memory, made._value = memory, value
    return made


ports.arrays_behind.append(lambda value: (value.memory,) if isinstance(value, scalar) else ())
