"""Quaternions (x, y, z, w): products and rotations. Rotations take one of length 1, and do not check it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..ir import numeric
from ..row import Operand, Row, refuse
from ..types import Quat, Scalar, Type, Vector, matrix, quaternion, vector
from .composite import curved, floating, multilinear, one_type, passed, passing, scalars_agree, wants
from .matrices import AXIAL, MATVEC, TRACE, TRANSPOSE
from .parts import JOIN, PART
from .row import ROWS
from .scalar import ADD, COS, SIN, TIMES
from .vectors import CROSS, DOT, EXTRACT, SCALE, cross_product, sum_of_products


def _quats(name: str, result: Callable[[Quat], Type]) -> Callable[..., Type]:
    return one_type(name, Quat, "a quaternion", result)


def _quat_mul(a, b, types=None, out=None):
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    return [
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    ]


QUAT_MUL = multilinear(
    "quat_mul",
    2,
    type=_quats("*", lambda t: t),
    expand=_quat_mul,
    adjoint=lambda g, y, a, b: (passed(QUAT_MUL, 0)(g, QUAT_INVERSE(b)), passed(QUAT_MUL, 1)(QUAT_INVERSE(a), g)),
)
QUAT_INVERSE = multilinear(
    "quat_inverse",
    1,
    type=_quats("quat_inverse", lambda t: t),
    adjoint=lambda g, y, q: (QUAT_INVERSE(g),),
    expand=lambda q, types, out: [-q[0], -q[1], -q[2], q[3]],
)


def _rotate_type(name: str, q: Type, v: Type) -> Type:
    q = wants(name, q, Quat, "a quaternion and a vec3")
    if not isinstance(v, Vector) or v.length != 3:
        raise refuse(f"`{name}` takes a quaternion and a vec3, not {v}", slug="operand-type")
    scalars_agree(name, q, v)
    return v


def _rotate(q, v, sign: float) -> list:
    """(2 w^2 - 1) v + 2 w u x v + 2 u (u . v) with q = (u, w); sign -1: by the conjugate."""
    u, w = q[:3], q[3]
    plain, along, turned = 2.0 * w * w - 1.0, 2.0 * sum_of_products(u, v), cross_product(u, v)
    turn = 2.0 * w if sign > 0 else -2.0 * w
    return [v[i] * plain + turned[i] * turn + u[i] * along for i in range(3)]


def imaginary(q: Operand) -> Any:
    """(x, y, z) of a quaternion."""
    return PART(q, attr=(0, vector(3, numeric(q).scalar)))


def real(q: Operand) -> Any:
    """w of a quaternion."""
    return EXTRACT(q, attr=(3,))


def joined(u: Operand, w: Operand) -> Any:
    """The quaternion of these."""
    return JOIN(u, w, attr=quaternion(numeric(u).scalar))


def _with(g: Operand, v: Operand) -> Any:
    """The scalar product of an adjoint and a vector."""
    return passed(DOT, 0)(g, v)


def _adjoint_rotate(g: Operand, q: Operand, v: Operand, sign: float) -> Any:
    u, w = imaginary(q), real(q)
    turn = passed(CROSS, 1)(v, g)
    dw = TIMES(_with(g, v), 4.0 * w) + sign * 2.0 * _with(turn, u)
    du = ADD(TIMES(turn, sign * 2.0 * w), SCALE(ADD(TIMES(g, DOT(u, v)), TIMES(_with(g, u), v)), 2.0))
    return joined(du, dw)


def _rotating(name: str, sign: float, back: str) -> Row:
    made = curved(
        name,
        type=partial(_rotate_type, name),
        expand=lambda q, v, types, out: _rotate(q, v, sign),
        adjoint=lambda g, y, q, v: (_adjoint_rotate(g, q, v, sign), ROWS[f"{back}_1"](q, g)),
        exact=True,
    )
    passing(made, 1)
    return made


QUAT_ROTATE = _rotating("quat_rotate", 1.0, "quat_rotate_inv")
QUAT_ROTATE_INV = _rotating("quat_rotate_inv", -1.0, "quat_rotate")


def _quat_matrix(q, types, out):
    x, y, z, w = q
    plain = 2.0 * w * w - 1.0
    two = [2.0 * x, 2.0 * y, 2.0 * z]
    return [
        plain + two[0] * x,
        two[0] * y - two[2] * w,
        two[0] * z + two[1] * w,
        two[0] * y + two[2] * w,
        plain + two[1] * y,
        two[1] * z - two[0] * w,
        two[0] * z - two[1] * w,
        two[1] * z + two[0] * w,
        plain + two[2] * z,
    ]


def _adjoint_quat_matrix(g, y, q):
    u, w = imaginary(q), real(q)
    axial = AXIAL(g)
    du = ADD(TIMES(axial, 2.0 * w), SCALE(passed(MATVEC, 0)(ADD(g, TRANSPOSE(g)), u), 2.0))
    return (joined(du, TIMES(TRACE(g), 4.0 * w) + 2.0 * _with(axial, u)),)


QUAT_TO_MATRIX = curved(
    "quat_to_matrix",
    type=_quats("quat_to_matrix", lambda t: matrix((3, 3), t.scalar)),
    expand=_quat_matrix,
    adjoint=_adjoint_quat_matrix,
    exact=True,
)


def _axis_angle_type(axis: Type, angle: Type) -> Type:
    if not isinstance(axis, Vector) or axis.length != 3 or not isinstance(angle, Scalar):
        raise refuse(f"`quat_from_axis_angle` takes a vec3 and a scalar, not {axis} and {angle}", slug="operand-type")
    scalars_agree("quat_from_axis_angle", axis, angle)
    return quaternion(axis.scalar)


def _axis_angle(axis, angle, types, out):
    s = SIN(0.5 * angle)
    return [axis[0] * s, axis[1] * s, axis[2] * s, COS(0.5 * angle)]


def _adjoint_axis_angle(g, y, axis, angle):
    u, w = imaginary(g), real(g)
    s, c = SIN(0.5 * angle), COS(0.5 * angle)
    return TIMES(u, s), 0.5 * (TIMES(_with(u, axis), c) - TIMES(w, s))


QUAT_FROM_AXIS_ANGLE = curved(
    "quat_from_axis_angle",
    type=floating("quat_from_axis_angle", _axis_angle_type),
    expand=_axis_angle,
    adjoint=_adjoint_axis_angle,
)
