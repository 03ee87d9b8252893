"""The part of `warp.fem` that kernels use: its constants, and symmetric and skew tensors as vectors of their parts.

Spaces, fields and integrands are not in the language; `wb.sparse` and `wb.optim.linear` are what they are solved with.
A tensor t has half the Frobenius norm, (t : t) / 2, and the vector of its parts has the same squared length.
"""

# Numbers and parameters of any type.
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportCallIssue=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..kernels.ops import BUILTINS
from ..kernels.program import kernel
from ..kernels.reading.declare import Func, Refused, func
from ..kernels.reading.library import library
from ..kernels.types import matrix, vector

__all__ = [
    "NULL_ELEMENT_INDEX",
    "NULL_NODE_INDEX",
    "NULL_QP_INDEX",
    "OUTSIDE",
    "SkewSymmetricTensorMapper",
    "SymmetricTensorMapper",
    "cache",
    "skew",
]
__dir__ = __all__.copy
__path__: list[str] = []  # names below it are looked for, and are refused where they are used
NULL_ELEMENT_INDEX = NULL_QP_INDEX = -1
NULL_NODE_INDEX = 2**31 - 1
OUTSIDE = -1.0e8

_ROOT, _HALF_ROOT, _THIRD, _TWO_THIRDS = math.sqrt(2), math.sqrt(0.5), math.sqrt(1 / 3), math.sqrt(2 / 3)
_SIXTH = math.sqrt(1 / 6)
skew = BUILTINS["skew"]


class SymmetricTensorMapper:
    """Symmetric tensors as vectors: sums and differences of the diagonal first, or (voigt) the diagonal as it is.

    In 3 dimensions the parts behind the diagonal are those of (z, y), (x, z) and (y, x). A matrix that is not
    symmetric counts as its symmetric part.

    >>> @wb.kernel
    ... def there_and_back(t: wb.array[wb.mat22], out: wb.array[wb.mat22]):
    ...     parts = wb.fem.SymmetricTensorMapper.value_to_dof_2d(t[0])
    ...     out[0] = wb.fem.SymmetricTensorMapper.dof_to_value_2d(parts)
    >>> t, out = wb.array([[[1.0, 2.0], [4.0, 5.0]]], dtype=wb.mat22), wb.zeros(1, dtype=wb.mat22)
    >>> wb.launch(there_and_back, dim=1, inputs=[t, out])
    >>> out.numpy()[0].tolist()
    [[1.0, 3.0], [3.0, 5.0]]
    """

    @library()
    def dof_to_value_2d(dof: Any):
        return matrix(dof[0] + dof[1], dof[2], dof[2], dof[0] - dof[1], shape=(2, 2))

    @library()
    def value_to_dof_2d(val: Any):
        return 0.5 * vector(val[0, 0] + val[1, 1], val[0, 0] - val[1, 1], val[0, 1] + val[1, 0])

    @library()
    def dof_to_value_2d_voigt(dof: Any):
        return matrix(_ROOT * dof[0], dof[2], dof[2], _ROOT * dof[1], shape=(2, 2))

    @library()
    def value_to_dof_2d_voigt(val: Any):
        return vector(_HALF_ROOT * val[0, 0], _HALF_ROOT * val[1, 1], 0.5 * (val[0, 1] + val[1, 0]))

    @library()
    def dof_to_value_3d(dof: Any):
        a, b, c = _TWO_THIRDS * dof[0], dof[1], _THIRD * dof[2]
        zy, xz, yx = dof[3], dof[4], dof[5]
        return matrix(a + b - c, yx, xz, yx, a - b - c, zy, xz, zy, a + 2.0 * c, shape=(3, 3))

    @library()
    def value_to_dof_3d(val: Any):
        across, b = val[0, 0] + val[1, 1], 0.5 * (val[0, 0] - val[1, 1])
        a, c = _SIXTH * (across + val[2, 2]), _SIXTH * _HALF_ROOT * (2.0 * val[2, 2] - across)
        zy, xz, yx = 0.5 * (val[2, 1] + val[1, 2]), 0.5 * (val[0, 2] + val[2, 0]), 0.5 * (val[1, 0] + val[0, 1])
        return vector(a, b, c, zy, xz, yx)

    @library()
    def dof_to_value_3d_voigt(dof: Any):
        zy, xz, yx = dof[3], dof[4], dof[5]
        return matrix(_ROOT * dof[0], yx, xz, yx, _ROOT * dof[1], zy, xz, zy, _ROOT * dof[2], shape=(3, 3))

    @library()
    def value_to_dof_3d_voigt(val: Any):
        zy, xz, yx = 0.5 * (val[2, 1] + val[1, 2]), 0.5 * (val[0, 2] + val[2, 0]), 0.5 * (val[1, 0] + val[0, 1])
        return vector(_HALF_ROOT * val[0, 0], _HALF_ROOT * val[1, 1], _HALF_ROOT * val[2, 2], zy, xz, yx)


class SkewSymmetricTensorMapper:
    """Skew tensors as the number (in 2 dimensions) or the axis (in 3) about which they turn.

    >>> @wb.kernel
    ... def spin(t: wb.array[wb.mat33], out: wb.array[wb.vec3]):
    ...     out[0] = wb.fem.SkewSymmetricTensorMapper.value_to_dof_3d(t[0])
    >>> t, out = wb.array([[[0, -3, 2], [3, 0, -1], [-2, 1, 0]]], dtype=wb.mat33), wb.zeros(1, dtype=wb.vec3)
    >>> wb.launch(spin, dim=1, inputs=[t, out])
    >>> out.numpy()[0].tolist()
    [1.0, 2.0, 3.0]
    """

    @library()
    def dof_to_value_2d(dof: Any):
        return matrix(0.0 * dof, -dof, dof, 0.0 * dof, shape=(2, 2))

    @library()
    def value_to_dof_2d(val: Any):
        return 0.5 * (val[1, 0] - val[0, 1])

    @library()
    def dof_to_value_3d(dof: Any):
        return skew(dof)

    @library()
    def value_to_dof_3d(val: Any):
        return 0.5 * vector(val[2, 1] - val[1, 2], val[0, 2] - val[2, 0], val[1, 0] - val[0, 1])


class cache:  # noqa: N801  a module of Warp's
    """Cache of funcs made in functions; empty here, as every kernel tracks itself what it was made of."""

    @staticmethod
    def dynamic_func(suffix: Any = "", **_: object) -> Callable[[Any], Func]:
        """Decorator: `func`."""
        return func

    @staticmethod
    def dynamic_kernel(suffix: Any = "", *, kernel_options: dict[str, Any] | None = None, **_: object) -> Any:
        """Decorator: `kernel`, with these options."""
        return kernel(**(kernel_options or {}))


def __getattr__(name: str) -> Refused:
    if name.startswith("__"):
        raise AttributeError(name)
    return Refused(f"fem.{name}", "Finite-element spaces and integrands are not in the language: write kernels.")
