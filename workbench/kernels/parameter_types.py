"""Types that parameters alone have: the caller's own variable, and an array with lists of indices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .types import Array, Struct, Type, int32, scalar_of


@dataclass(frozen=True, repr=False)
class Ref(Type):
    """Annotation of a func's parameter that is the caller's own variable: `ref[float]`. What it is set to, that is."""

    type: Type

    def __str__(self) -> str:
        return f"ref[{self.type}]"


class Reference:
    """`ref[float]`, or `ref(float)`: a func's parameter that is the caller's own variable.

    >>> @wb.func
    ... def grow(x: wb.ref[float], by: float):
    ...     x = x * by
    >>> @wb.kernel
    ... def run(out: wb.array[float]):
    ...     a = float(3.0)
    ...     grow(a, 2.0)
    ...     out[0] = a
    >>> out = wb.zeros(1)
    >>> wb.launch(run, 1, [out])
    >>> out
    array([6.], dtype=float32, shape=(1,))
    """

    def __getitem__(self, type: object) -> Ref:
        return Ref(type if isinstance(type, Type) else scalar_of(type))

    __call__ = __getitem__

    def __repr__(self) -> str:
        return "ref"


@dataclass(frozen=True, repr=False)
class IndexedArray(Struct):
    """An array and a list of indices for each of its axes, as a struct: `data`, `indices0`, `indices1` ..."""

    dtype: Any = None
    ndim: int = 1

    def path(self, name: str, field: str) -> str:
        """The array behind it has its name, in messages and pictures."""
        return name if field == "data" else super().path(name, field)


@lru_cache(None)
def indexed_type(dtype: Type, ndim: int = 1) -> IndexedArray:
    """The type of an indexedarray of this many axes."""
    fields = [("data", Array(dtype, ndim)), *((f"indices{k}", Array(int32)) for k in range(ndim))]
    return IndexedArray(
        f"indexedarray{'' if ndim == 1 else f'{ndim}d'}(dtype={dtype})", tuple(fields), None, dtype, ndim
    )
