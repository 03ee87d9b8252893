"""`indexedarray`: elements of an array chosen by indices. They share its memory and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device import on_host
from ..errors import LaunchError
from ..kernels.parameter_types import IndexedArray, indexed_type
from ..kernels.types import Array, Composite, Scalar, int32, is_open
from . import capture_log
from .dtypes import DTypeLike, dtype_of
from .other_libraries import Foreign


class indexedarray:  # noqa: N801  as Warp spells it
    """Elements of an array, chosen by one array of indices for each axis (None: all along that axis).

    data     the array. It is not copied: kernels read and write its elements, and gradients are those of `data`.
    indices  int32 arrays or lists, one for each axis; one alone may be given as it is. They are looked at here once:
             each must be one of the axis.

    As annotation `indexedarray(dtype=float)` or `indexedarray[float, 2]`. A kernel's parameter of that type takes a
    plain array too. Raises LaunchError [indices].

    >>> @wb.kernel
    ... def double(x: wb.indexedarray[float]):
    ...     i = wb.tid()
    ...     x[i] = 2.0 * x[i]
    >>> x = wb.array([1.0, 2.0, 3.0, 4.0])
    >>> some = wb.indexedarray(x, [[0, 2]])
    >>> wb.launch(double, some.shape, [some])
    >>> x.list() == [2, 2, 6, 4], some.numpy().tolist()
    (True, [2.0, 6.0])
    """

    _fixed_ndim: int | None = None
    data: Any  # an `array`, whose class lies above

    def __new__(
        cls, data: object = None, indices: object = None, dtype: DTypeLike = None, ndim: int | None = None, **_: object
    ) -> Any:
        if data is None:
            return cls[dtype, ndim or cls._fixed_ndim or 1]
        return super().__new__(cls)

    def __init__(self, data: object = None, indices: object = None, dtype: DTypeLike = None, ndim: int | None = None):
        if not isinstance(data, Foreign) or not isinstance(data.dtype, Scalar | Composite):
            what = f"one of {data.dtype}" if isinstance(data, Foreign) else type(data).__name__
            text = f"indexedarray takes an array of numbers or vectors, not {what}"
            raise LaunchError(text, slug="indices", instead="wb.array(...)")
        given = _listed(indices, data.ndim)
        if len(given) > data.ndim:
            raise LaunchError(f"{len(given)} lists of indices for an array of {data.ndim} axes", slug="indices")
        given += [None] * (data.ndim - len(given))
        self.data, self.dtype, self.ndim, self.device = data, data.dtype, data.ndim, data.device
        self.indices = [_checked(data, axis, chosen) for axis, chosen in enumerate(given)]
        self.shape = tuple(len(chosen) for chosen in self.indices)
        self.type = indexed_type(data.dtype, data.ndim)

    def __class_getitem__(cls, item: Any) -> IndexedArray:
        dtype, *rest = item if isinstance(item, tuple) else (item,)
        dtype = dtype if is_open(dtype) else dtype_of(dtype)
        return indexed_type(dtype, rest[0] if rest else cls._fixed_ndim or 1)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("indices") and name[7:].isdigit():
            return self.indices[int(name[7:])]
        raise AttributeError(f"an indexedarray has no attribute {name!r}")

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """The number of chosen elements."""
        return int(np.prod(self.shape))

    @property
    def requires_grad(self) -> bool:
        """True if `data` has `requires_grad`."""
        return self.data.requires_grad

    @property
    def grad(self) -> indexedarray | None:
        """The gradients of the chosen elements, in the gradient of `data`. None if there is none."""
        return None if self.data.grad is None else indexedarray(self.data.grad, self.indices)

    def numpy(self) -> np.ndarray:
        """The chosen elements, copied."""
        return self.data.numpy()[np.ix_(*[_numbers(chosen) for chosen in self.indices])]

    def contiguous(self) -> Any:
        """A new array of the chosen elements, without gradient."""
        make: Any = type(self.data)
        return make(self.numpy(), dtype=self.dtype, device=self.device)

    def list(self) -> list:
        """The chosen elements, in one list."""
        return self.contiguous().list()

    def __repr__(self) -> str:
        return f"indexedarray(shape={self.shape}, dtype={self.dtype})"


def _listed(indices: Any, ndim: int) -> list:
    first = indices[0] if isinstance(indices, Sequence) and indices else None
    if isinstance(indices, Foreign | np.ndarray) or (
        isinstance(first, int | np.integer) and not isinstance(first, bool)
    ):
        return [indices]
    return list(indices or ())


def _numbers(chosen: Foreign) -> np.ndarray:
    """The values of an array of indices, as NumPy's. Raises LaunchError [capture] in an open capture."""
    capture_log.refuse("Values are read")
    return on_host(chosen.data)


def _checked(data: Foreign, axis: int, chosen: Any) -> Any:
    """The indices along one axis as an array. Raises LaunchError [indices]."""
    size = data.shape[axis]
    if chosen is None:
        chosen = np.arange(size, dtype=np.int32)
    if not isinstance(chosen, Foreign):
        numbers = np.asarray(chosen)
        if numbers.size and numbers.dtype.kind not in "iu":
            raise LaunchError(f"indices are whole numbers, not {numbers.dtype}", slug="indices", instead="[0, 2]")
        make: Any = type(data)
        chosen = make(numbers.astype(np.int32), dtype=int32, device=data.device)
    if chosen.dtype != int32 or chosen.ndim != 1:
        raise LaunchError(
            f"indices along an axis are an array of int32, not {Array(chosen.dtype, chosen.ndim)}", slug="indices"
        )
    numbers = _numbers(chosen)
    wrong = np.flatnonzero((numbers < 0) | (numbers >= size))
    if wrong.size:
        text = f"index {int(numbers[wrong[0]])} is outside of the {size} elements along axis {axis} of {data.label}"
        raise LaunchError(text, slug="indices", instead=f"indices from 0 to {size - 1}")
    return chosen


def of_axes(count: int) -> type[indexedarray]:
    """The class whose annotation has this many axes: `indexedarray2d(dtype=float)`."""
    return type(
        f"indexedarray{count}d", (indexedarray,), {"_fixed_ndim": count, "__doc__": f"An indexedarray of {count} axes."}
    )


def as_indexed(arg: object) -> Any:
    """A plain array as an indexedarray of all of its elements; anything else as it is."""
    return indexedarray(arg) if isinstance(arg, Foreign) else arg
