"""`pack`: several arrays, or parts of them, as one flat vector, for optimizers, Jacobians and SciPy."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..errors import LaunchError
from ..kernels.types import Composite, Scalar
from .array import array, array_on
from .creation import copy, zeros
from .dtypes import scalar_in


class Pack:
    """Arrays as one flat vector: what `pack` returns.

    size     how many numbers; `dtype`: their scalar type.
    vector   a new flat array of the present values, with `requires_grad`.

    >>> p = wb.pack({"k": wb.array([1.0, 2.0])})
    >>> p.vector.list(), p.views(wb.ones(2))["k"].list()
    ([1.0, 2.0], [1.0, 1.0])
    """

    def __init__(self, arrays: Mapping[str, array]):
        self.arrays = dict(arrays)
        self._places: dict[str, tuple[int, int]] = {}
        given = {n: a.dtype if isinstance(a, array) else type(a).__name__ for n, a in self.arrays.items()}
        kinds = {scalar_in(t) for t in given.values() if isinstance(t, Scalar | Composite)}
        if len(kinds) != 1 or not all(isinstance(t, Scalar | Composite) for t in given.values()):
            text = f"pack of {', '.join(f'{n}: {t}' for n, t in given.items()) or 'nothing'}."
            raise LaunchError(text, slug="pack", why="A vector has one type of numbers.", instead="arrays of floats")
        (self.dtype,) = kinds
        self.size = 0
        for name, a in self.arrays.items():
            count = math.prod(a.data.shape)
            self._places[name] = self.size, count
            self.size += count

    def __repr__(self) -> str:
        parts = ", ".join(f"{n}[{count}]" for n, (_, count) in self._places.items())
        return f"<pack of {self.size} numbers: {parts}>"

    @property
    def vector(self) -> array:
        device = next(iter(self.arrays.values())).device
        made = zeros(self.size, self.dtype, device, requires_grad=True)
        for name, view in self.views(made).items():
            copy(view, self.arrays[name])
        return made

    def views(self, vector: array) -> dict[str, array]:
        """The parts of a flat vector as arrays of the packed shapes and dtypes, on its memory: gradients are shared."""
        self._check(vector)
        found, size = {}, self.dtype.itemsize
        for name, (first, _) in self._places.items():
            a = self.arrays[name]
            strides = np.empty(a.data.shape, self.dtype.numpy).strides[: len(a.shape)]
            found[name] = array_on(vector.allocation, a.dtype, a.shape, strides, vector.span.offset + first * size)
        return found

    def assign(self, vector: array) -> None:
        """Write a flat vector to the packed arrays: under a tape as copies, through which gradients come back."""
        for name, view in self.views(vector).items():
            copy(self.arrays[name], view)

    def named(self, k: int) -> str:
        """The name of a number of the vector: "rest[2, 0]"."""
        name, (first, _) = next((n, p) for n, p in self._places.items() if p[0] <= k < p[0] + p[1])
        at = np.unravel_index(k - first, self.arrays[name].data.shape)
        return f"{name}[{', '.join(str(int(i)) for i in at)}]"

    def _check(self, vector: object) -> None:
        fits = isinstance(vector, array) and vector.dtype == self.dtype and vector.shape == (self.size,)
        if not (fits and isinstance(vector, array) and vector.is_contiguous):
            got = f"{vector.dtype} of shape {vector.shape}" if isinstance(vector, array) else type(vector).__name__
            text = f"the vector of {self!r} is {got}."
            raise LaunchError(text, slug="pack", instead=f"an array of {self.dtype}, shape ({self.size},)")


def pack(arrays: Mapping[str, array]) -> Pack:
    """Several arrays as one flat vector: for SciPy, `value_and_grad`, `jacobian`, `hessian`, `descend`.

    arrays   {name: array}; views choose components (`{"rest": rest[3:9]}`). One scalar type, vectors and matrices too.
    Raises LaunchError [pack].

    Use `views` in a loss that takes the vector, or `assign` before a program that knows the arrays by other ways.

    >>> x, mass = wb.zeros(2, dtype=wb.vec3), wb.ones(4)
    >>> p = wb.pack({"x": x, "mass": mass[1:3]})
    >>> p, p.named(5), p.named(7)
    (<pack of 8 numbers: x[6], mass[2]>, 'x[1, 2]', 'mass[1]')
    >>> v = wb.array([float(k) for k in range(8)])
    >>> p.assign(v)
    >>> mass.list()
    [1.0, 6.0, 7.0, 1.0]
    """
    return Pack(arrays)
