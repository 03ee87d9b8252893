"""Values of a wanted type: conversions, constructors, constants."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from .. import ir
from ..ir import Components, constant, kind
from ..row import Operand
from ..types import Composite, Matrix, Transform, Type, Vector, bool_, float32, matrix, quaternion, scalar_of
from . import control
from .parts import JOIN
from .row import hosted, stop
from .scalar import CAST
from .vectors import CONSTRUCT

Whole: TypeAlias = "ir.Value | int | np.integer"  # a whole number, of the kernel or known


def truth(x: Operand) -> Any:
    """bool(x: scalar) -> bool: is x not zero."""
    return convert(bool_, x)


def convert(type: object, x: Operand) -> Any:
    """type(x): a scalar of another type, or the same composite over another scalar type."""
    type = scalar_of(type)
    if isinstance(x, (bool, int, float)) and not isinstance(x, np.generic):
        x = np.float64(x) if isinstance(x, float) else np.int64(x) if abs(x) < 2**63 else np.uint64(x)
    return x if kind(x) == type else CAST(x, attr=type)


def here(type: Type, value: Components) -> Any:
    """A constant in the kernel being read, else on the host."""
    try:
        ir.current()
    except RuntimeError:
        return hosted(type, value)
    return constant(type, value)


def construct(type: Composite, *args: Operand) -> Any:
    """type(...): zeros, one scalar for all components, all components, another composite of that shape, or parts.

    Parts are numbers and vectors one behind the other: vec3 and w of a quaternion, two vec3 of a spatial vector, p and
    q of a transform, which turns nothing where q is not given.
    """
    kinds = [kind(a) for a in args]
    if not args:
        return here(type, 0)
    if isinstance(type, Transform) and [k.size for k in kinds if isinstance(k, Vector)] == [3] and len(args) == 1:
        return JOIN(args[0], here(quaternion(type.scalar), (0, 0, 0, 1)), attr=type)
    if len(args) == 1 and isinstance(kinds[0], Composite):
        return _copied(type, args[0], kinds[0])
    if len(args) == 1:
        return CONSTRUCT(*args * type.size, attr=type)
    if isinstance(type, Matrix) and all(isinstance(k, Vector) for k in kinds):
        raise stop(
            args,
            f"{type} from vectors may mean rows or columns",
            slug="matrix-from-vectors",
            instead="matrix_from_rows(...) or matrix_from_cols(...)",
        )
    whole = any(isinstance(k, Composite) for k in kinds)
    return (JOIN if whole else CONSTRUCT)(*args, attr=type)


def _copied(type: Composite, value: Operand, source: Composite) -> Any:
    if source.over(type.scalar) != type:
        raise stop((value,), f"{source} cannot become {type}", slug="shape")
    return convert(type.scalar, value) if source != type else value


def static_number(x: Whole) -> int:
    """The value of a number that must be known when the kernel is read."""
    if not isinstance(x, ir.Value):
        return int(x)
    if x.stmt is None or x.stmt.row is not control.CONST:
        raise stop((x,), "this must be constant", slug="static", instead="a literal, or a constant outside the kernel")
    return int(x.stmt.attr)


def identity(n: Whole, dtype: object = float32) -> Any:
    """identity(n: constant int, dtype: scalar type = float32) -> matrix: the n by n unit matrix."""
    size = static_number(n)
    type = matrix((size, size), scalar_of(dtype))
    return here(type, np.eye(size, dtype=type.numpy))


def quat_identity(dtype: object = float32) -> Any:
    """quat_identity(dtype = float32) -> quaternion: (0, 0, 0, 1), which turns nothing."""
    return here(quaternion(scalar_of(dtype)), (0, 0, 0, 1))
