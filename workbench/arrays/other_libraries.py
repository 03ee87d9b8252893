"""The protocols of NumPy, CuPy and DLPack for arrays. `Foreign` is the base of `array`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..device import on_host
from ..display import Listed
from ..kernels.types import Array
from . import capture_log
from .allocation import GradientMemory, clock, heard, recorder
from .gradient_views import open_view
from .host_reads import carrying
from .ports import array_operators
from .read_values import source_of
from .strided import StridedArray


class _Kind(Listed):
    """Metaclass for which an array annotation is an instance of `array`: Warp's programs test fields in this way."""

    def __instancecheck__(cls, value: object) -> bool:
        return super().__instancecheck__(value) or (value.__class__ is Array and cls.__name__ == "array")


class Foreign(StridedArray, metaclass=_Kind):
    """The protocols by which other libraries read an array. The memory is exposed where they can write to it."""

    @property
    def capacity(self) -> int:
        """Bytes of memory from the first element on."""
        return self.allocation.nbytes - self._offset

    def numpy(self) -> np.ndarray:
        """The values with shape `(*shape, *components)`; a structured array for structs.

        On the CPU this is the memory itself, not a copy (so the memory is exposed from now on); from a GPU, a copy.
        Of a gradient that holds published numbers it is numbers of its own: later backward passes and `tape.zero()`
        leave them alone, so rows of a Jacobian can be kept. What you write into it goes to the gradient, until that
        is published or written otherwise: then take `x.grad.numpy()` again.
        Under a tape the values know where they came from: if they are written back, changed by NumPy, a gradient
        that would have to pass there is refused.
        """
        capture_log.refuse("Values are read")
        if isinstance(memory := self.allocation, GradientMemory):
            self._say_notes(memory)
            if self.device.is_cpu:
                return self.carrying(open_view(self, memory))
            memory.read_at = next(clock)
        if self.device.is_cpu:
            self.allocation.expose()
        values = on_host(self.data) if self.device.is_cuda else self.data[...]
        if (tape := recorder()) is None:
            if (found := heard.get()) is not None:
                found.append(self)
            return values
        values = self.carrying(values)
        tape.numbers.read(values)
        return values

    def _say_notes(self, memory: GradientMemory) -> None:
        """On a gradient: give the warning noted for it (`grad_notes`), once, if it is zero."""
        if (primal := memory.of) is None:
            return
        for span, note in list(primal.grad_notes.items()):
            used_up = primal.gradient_span(span)
            if used_up.overlaps(self.span) is not False and not self.span.words().any() and not used_up.words().any():
                primal.grad_notes.clear()
                warnings.warn(note, stacklevel=3)
                return

    def carrying(self, value: object, cell: Foreign | None = None) -> Any:
        """A value read from this array while a tape records, carrying its source if it has a derivative."""
        unpublished = isinstance(memory := self.allocation, GradientMemory) and memory.publisher[1] is None
        if not self._differentiable or unpublished:
            return value
        source = source_of((self if cell is None else cell).span, self)
        return value if source is None else carrying(value, (source,), cell)

    def __array__(self, dtype: np.typing.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        values = self.numpy()
        return np.array(values, dtype=dtype, subok=True) if copy or dtype is not None else values

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **choices: object) -> Any:
        """Apply the array operator that a ufunc stands for, if there is one; any other ufunc to NumPy arrays."""
        if method == "__call__" and not choices and ufunc.__name__ in array_operators:
            made = array_operators[ufunc.__name__](*inputs)
            if made is not NotImplemented:
                return made
        return getattr(ufunc, method)(*map(_as_numpy, inputs), **{k: _as_numpy(v) for k, v in choices.items()})

    def __array_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: tuple, choices: dict[str, Any]
    ) -> Any:
        if function in (np.shape, np.ndim, np.size) and len(args) == 1 and args[0] is self:
            return getattr(self, function.__name__)
        return function(*_as_numpy(args), **{k: _as_numpy(v) for k, v in choices.items()})

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.device.is_cuda or self.is_gradient:  # of a gradient NumPy takes `__array__`, which is kept alive
            raise AttributeError("__array_interface__ of an array on a GPU, or of a gradient")
        return self.numpy().__array_interface__

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.device.is_cpu:
            raise AttributeError("__cuda_array_interface__ of an array on the CPU")
        self.allocation.expose()
        return self.data.__cuda_array_interface__

    def __dlpack__(self, **options: object) -> Any:
        """DLPack: another library takes this memory as it is. The memory is exposed from now on."""
        self.allocation.expose()
        if self.device.is_cpu and (tape := recorder()) is not None:
            tape.numbers.read(self.carrying(self.data))
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.data.__dlpack_device__()


def _as_numpy(value: Any) -> Any:
    """The value with NumPy arrays in place of ours, in lists and tuples too."""
    if isinstance(value, Foreign):
        return value.numpy()
    return value.__class__(map(_as_numpy, value)) if value.__class__ in (list, tuple) else value
