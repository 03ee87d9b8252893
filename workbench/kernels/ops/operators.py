"""Python's operators between values of a kernel, as rows; `ir.Value` gets them here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import ir
from ..ir import Components, constant, kind
from ..row import Operand, type_of, weak_type
from ..types import Composite, Matrix, Quat, Scalar, Transform, Type, Vector, is_int
from . import scalar
from .conversions import truth
from .matrices import MATMUL, MATVEC, TRANSPOSE
from .quaternions import QUAT_MUL
from .row import ROWS, overload, stop
from .scalar import CAST
from .transforms import transform_multiply
from .vectors import CONSTRUCT, SCALE, UNSCALE


def multiply(a: Operand, b: Operand) -> Any:
    """mul(a: T, b: T) -> T: a * b of scalars, scalar and composite, matrix and vector, matrices, quaternions."""
    ta, tb = kind(a), kind(b)
    if isinstance(ta, Scalar) and isinstance(tb, Scalar):
        return scalar.MUL(a, b)
    if isinstance(tb, Scalar):
        return SCALE(a, b)
    if isinstance(ta, Scalar):
        return SCALE(b, a)
    if isinstance(ta, Matrix):
        return MATMUL(a, b) if isinstance(tb, Matrix) else MATVEC(a, b)
    if isinstance(ta, Quat) and isinstance(tb, Quat):
        return QUAT_MUL(a, b)
    if isinstance(ta, Transform) and isinstance(tb, Transform):
        return transform_multiply(a, b)
    if isinstance(ta, Vector) and isinstance(tb, Matrix):
        return MATVEC(TRANSPOSE(b), a)
    known = {Quat: "quat_rotate(q, v)", Transform: "transform_point(t, x)"}
    hint = known.get(type(ta)) or "cw_mul(a, b) for components, dot(a, b) for their sum"
    raise stop((a, b), f"`*` between {ta} and {tb} has no one meaning", slug="product", instead=hint)


def divide(a: Operand, b: Operand) -> Any:
    """div(a: T, b: T) -> T: a / b of floats, of a composite and a scalar, or of a scalar and each component."""
    ta, tb = kind(a), kind(b)
    if isinstance(ta, Composite) and isinstance(tb, Scalar):
        return UNSCALE(a, b)
    if isinstance(tb, Composite) and isinstance(ta, Scalar):
        return scalar.DIV(CONSTRUCT(*[a] * tb.size, attr=tb), b)
    if isinstance(tb, Composite):
        hint = "cw_div(a, b)" if isinstance(ta, Composite) else ""
        raise stop((a, b), f"`/` between {ta} and {tb} has no one meaning", slug="quotient", instead=hint)
    return scalar.DIV(a, b)


def power(a: Operand, b: Operand) -> Any:
    """pow(a: F, b: F) -> F: a ** b; an integer exponent is converted to the type of the base."""
    ta, tb = kind(a), kind(b)
    if isinstance(ta, Scalar) and ta.kind == "f" and is_int(tb):
        b = CAST(b, attr=ta)
    return scalar.POW(a, b)


def matrix_multiply(a: Operand, b: Operand) -> Any:
    """a @ b: matrices, matrix and vector."""
    if not (isinstance(kind(a), Matrix) or isinstance(kind(b), Matrix)):
        raise stop((a, b), f"`@` multiplies matrices, not {kind(a)} and {kind(b)}", slug="product", instead="dot(a, b)")
    return multiply(a, b)


_BITS = (scalar.LSHIFT, scalar.RSHIFT, scalar.BIT_AND, scalar.BIT_OR, scalar.BIT_XOR)
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    **{row.sign: row for row in (scalar.ADD, scalar.SUB, scalar.FLOORDIV, scalar.PYMOD, *_BITS)},
    "*": multiply,
    "/": divide,
    "**": power,
    "@": matrix_multiply,
}
_COMPARE = {row.sign: row for row in (scalar.LT, scalar.LE, scalar.GT, scalar.GE, scalar.EQ, scalar.NE)}


def binary(op: str, a: Operand, b: Operand) -> Any:
    """The value of `a op b` for a Python operator."""
    return _BINARY[op](a, b)


def compare(op: str, a: Operand, b: Operand) -> Any:
    """The value of the Python comparison `a op b`: a bool (of composites: all components equal)."""
    return _COMPARE[op](a, b)


def unary(op: str, a: Operand) -> Any:
    """The value of `-a`, `+a`, `~a` or `not a`."""
    if op == "not":
        return scalar.LOGICAL_NOT(truth(a))
    return {"-": scalar.NEG, "+": scalar.POS, "~": scalar.INVERT}[op](a)


# ---- of IR values


def _constant(type: Type, value: Components) -> ir.Value:
    """A constant beside a value of `type`: a Python number takes its scalar type, so that `2.0 * v` scales a vector."""
    if isinstance(value, (np.generic, np.ndarray)):
        return constant(type_of(value), value)
    return constant(weak_type(value, [type]), value)


def _operator(name: str) -> Callable[..., Any]:
    function = {"mul": multiply, "div": divide}.get(name, ROWS[name])

    def operator(*operands: ir.Value | Components) -> Any:
        type = next(o.type for o in operands if isinstance(o, ir.Value))
        return function(*[o if isinstance(o, ir.Value) else _constant(type, o) for o in operands])

    return operator


overload(ir.Value, _operator)
