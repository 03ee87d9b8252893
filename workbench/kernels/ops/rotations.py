"""Rotations as quaternions: from and to matrices, axes and angles, between vectors, by interpolation; twists.

Compositions of rows. Each says what it gives, and which derivative, where a rotation has no one axis or angle.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import ir
from ..ir import kind, numeric
from ..row import Operand
from ..types import Matrix, Quat, Type, Vector, quaternion, vector
from . import control
from .conversions import Whole, here, static_number
from .quaternions import QUAT_INVERSE, QUAT_MUL, imaginary, joined, real
from .row import stop
from .scalar import ABS, ADD, ASIN, ATAN2, CLAMP, COS, DIV, EQ, GE, GT, LT, NEG, SIN, SQRT, WHERE
from .signatures import called_by_users
from .vectors import CONSTRUCT, CROSS, DOT, EXTRACT, LENGTH, LENGTH_SQ, NORMALIZE, SCALE, components


def wanted(name: str, what: str, right: bool, *values: Operand) -> None:
    """Raise unless the values are right."""
    if not right:
        got = " and ".join(str(kind(v)) for v in values)
        raise stop(values, f"`{name}` takes {what}, not {got}", slug="operand-type")


def _is_point(t: Type) -> bool:
    return isinstance(t, Vector) and t.length == 3


def _one_quat(name: str, q: Operand) -> None:
    wanted(name, "a quaternion", isinstance(kind(q), Quat), q)


def quat_from_matrix(m: Operand) -> Any:
    """quat_from_matrix(m: mat33 or mat44) -> quaternion that turns as the rotation matrix m, its upper left 3x3, does.

    Of the two that do, w is positive where the trace is not negative, else that of x, y, z whose diagonal element is
    largest (Shepperd, Quaternion from rotation matrix, 1978).
    """
    t = kind(m)
    wanted("quat_from_matrix", "a mat33 or mat44", isinstance(t, Matrix) and t.shape in ((3, 3), (4, 4)), m)
    a = [[EXTRACT(m, attr=(i, j)) for j in range(3)] for i in range(3)]
    x, y, z = a[0][0], a[1][1], a[2][2]
    less = [a[2][1] - a[1][2], a[0][2] - a[2][0], a[1][0] - a[0][1]]
    xy, yz, zx = a[0][1] + a[1][0], a[1][2] + a[2][1], a[2][0] + a[0][2]
    rows = [  # four times q, times one of x, y, z, w
        [1.0 + (x - (y + z)), xy, zx, less[0]],
        [xy, 1.0 + (y - (z + x)), yz, less[1]],
        [zx, yz, 1.0 + (z - (x + y)), less[2]],
        [*less, 1.0 + (x + y + z)],
    ]
    by_x, by_y, by_z, by_w = (CONSTRUCT(*r, attr=quaternion(numeric(m).scalar)) for r in rows)
    first = WHERE(GT(y, x), WHERE(GT(z, y), by_z, by_y), WHERE(GT(z, x), by_z, by_x))
    return NORMALIZE(WHERE(GE(x + y + z, 0.0), by_w, first))


def quat_to_axis_angle(q: Operand) -> tuple[Any, Any]:
    """quat_to_axis_angle(q: quaternion) -> (axis: vec3, angle: scalar in [0, pi]).

    In a kernel also quat_to_axis_angle(q, axis, angle), which assigns them to two variables.

    At the identity the axis is (0, 0, 0) and the angle 0, both with derivative 0: no direction is better than another.
    Their product is smooth there: quat_to_rotation_vector(q).
    At half a turn the axis jumps to its opposite, and the angle has slope 0.
    """
    _one_quat("quat_to_axis_angle", q)
    u, w = imaginary(q), real(q)
    axis = NORMALIZE(u)
    return WHERE(LT(w, 0.0), NEG(axis), axis), 2.0 * ATAN2(LENGTH(u), ABS(w))


def _series(x: Operand, *terms: float) -> Any:
    """The polynomial in x with these coefficients, that of 1 first."""
    total: Any = terms[-1]
    for term in terms[-2::-1]:
        total = total * x + term
    return total


def quat_from_rotation_vector(w: Operand) -> Any:
    """quat_from_rotation_vector(w: vec3) -> quaternion: turn about w by length(w), with its derivative at 0 too.

    It is quat_from_axis_angle(normalize(w), length(w)), the exponential of w / 2: a turn by an angular velocity w in a
    time dt is quat_from_rotation_vector(w * dt).
    """
    wanted("quat_from_rotation_vector", "a vec3", _is_point(kind(w)), w)
    x = 0.25 * LENGTH_SQ(w)
    near = LT(x, 2e-3)
    half = SQRT(WHERE(near, here(kind(x), 1), x))
    sine = WHERE(near, _series(x, 1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0, 1.0 / 362880.0), DIV(SIN(half), half))
    cosine = WHERE(near, _series(x, 1.0, -0.5, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40320.0), COS(half))
    return joined(SCALE(w, 0.5 * sine), cosine)


def quat_to_rotation_vector(q: Operand) -> Any:
    """quat_to_rotation_vector(q: quaternion) -> vec3: the axis of its turn times the angle, which is at most pi.

    Its derivative is exact at the identity too, where quat_to_axis_angle has none. At half a turn it jumps.
    """
    _one_quat("quat_to_rotation_vector", q)
    q = WHERE(LT(real(q), 0.0), NEG(q), q)
    u, w = imaginary(q), real(q)
    square = LENGTH_SQ(u)
    near = LT(square, 1e-3 * (w * w))
    x = WHERE(near, square, here(kind(w), 0)) / WHERE(near, w * w, here(kind(w), 1))
    s = SQRT(WHERE(near, here(kind(w), 1), square))
    by_series = _series(x, 1.0, -1.0 / 3.0, 0.2, -1.0 / 7.0, 1.0 / 9.0) / WHERE(near, w, here(kind(w), 1))
    return SCALE(u, 2.0 * WHERE(near, by_series, ATAN2(s, w) / s))


def quat_slerp(a: Operand, b: Operand, t: Operand) -> Any:
    """quat_slerp(a: quaternion, b: quaternion, t: scalar) -> quaternion: from a, t = 0, to b, t = 1, at constant speed.

    It goes the shorter way round.

    Equal rotations have the derivative of the limit, which exists. Where the way is half a turn both ways are as short:
    one of them is taken.
    """
    right = isinstance(kind(a), Quat) and kind(a) == kind(b) and kind(t) == numeric(a).scalar
    wanted("quat_slerp", "two quaternions and a scalar, all over one type", right, a, b, t)
    way = quat_to_rotation_vector(QUAT_MUL(QUAT_INVERSE(a), b))
    return QUAT_MUL(a, quat_from_rotation_vector(SCALE(way, t)))


def quat_between_vectors(a: Operand, b: Operand) -> Any:
    """quat_between_vectors(a: vec3, b: vec3) -> quaternion that turns the direction of a to that of b the shortest way.

    Of opposite vectors it is half a turn about an axis across a, with the derivative of that choice: the rotation jumps
    there. (Warp gives the identity, which turns nothing.)
    """
    wanted("quat_between_vectors", "two vec3", _is_point(kind(a)) and kind(a) == kind(b), a, b)
    a, b = NORMALIZE(a), NORMALIZE(b)
    both = ADD(a, b)  # next to opposite vectors it is exact, as cross(a, b) and 1 + dot(a, b) are not
    c, half = CROSS(a, both), 0.5 * LENGTH_SQ(both)
    x, y, z = components(a)
    flat = LT(ABS(x), 0.6)
    zero = here(numeric(a).scalar, 0)
    across = NORMALIZE(CONSTRUCT(WHERE(flat, zero, z), WHERE(flat, z, zero), NEG(WHERE(flat, y, x)), attr=kind(a)))
    opposite = LT(half, 8.0 * float(np.finfo(numeric(a).scalar.numpy).eps) ** 2)  # then all of `both` is rounding
    turned = joined(across, zero)
    return WHERE(opposite, turned, NORMALIZE(joined(c, half)))


def quat_twist(axis: Operand, q: Operand) -> Any:
    """quat_twist(axis: vec3 of length 1, q: quaternion) -> quaternion: the part of q that is about the axis.

    What remains, q * inverse(twist), turns about an axis across it. If q is half a turn across the axis no twist is
    better than another: it gives the identity, with derivative 0.
    """
    _about("quat_twist", axis, q)
    made = joined(SCALE(axis, DOT(imaginary(q), axis)), real(q))
    nothing = EQ(LENGTH_SQ(made), 0.0)
    return WHERE(nothing, here(kind(q), (0, 0, 0, 1)), NORMALIZE(made))


def _about(name: str, axis: Operand, q: Operand) -> None:
    right = _is_point(kind(axis)) and isinstance(kind(q), Quat) and numeric(axis).scalar == numeric(q).scalar
    wanted(name, "an axis of length 1, a vec3, and a quaternion over the same type", right, axis, q)


def quat_twist_angle(axis: Operand, q: Operand) -> Any:
    """quat_twist_angle(axis: vec3 of length 1, q: quaternion) -> scalar: how far q turns about the axis, without sign.

    In [0, 2 pi]; where q does not turn about the axis its slope is 0.
    """
    _about("quat_twist_angle", axis, q)
    return 2.0 * ATAN2(ABS(DOT(axis, imaginary(q))), real(q))


def quat_twist_angle_signed(axis: Operand, q: Operand) -> Any:
    """quat_twist_angle_signed(axis: vec3 of length 1, q: quaternion) -> scalar: how far q turns about the axis.

    In [-2 pi, 2 pi]: q and -q differ by a whole turn.
    """
    _about("quat_twist_angle_signed", axis, q)
    return 2.0 * ATAN2(DOT(axis, imaginary(q)), real(q))


# ---- angles


def quat_rpy(roll: Operand, pitch: Operand, yaw: Operand) -> Any:
    """quat_rpy(roll: F, pitch: F, yaw: F) -> quaternion: turn about x by roll, then y by pitch, then z by yaw."""
    (sr, cr), (sp, cp), (sy, cy) = [(SIN(0.5 * a), COS(0.5 * a)) for a in (roll, pitch, yaw)]
    x = sr * cp * cy - cr * sp * sy
    y = cr * sp * cy + sr * cp * sy
    z = cr * cp * sy - sr * sp * cy
    return CONSTRUCT(x, y, z, cr * cp * cy + sr * sp * sy, attr=quaternion(numeric(roll).scalar))


def quat_to_rpy(q: Operand) -> Any:
    """quat_to_rpy(q: quaternion of length 1) -> vec3: (roll, pitch, yaw) of which quat_rpy makes this rotation.

    Where pitch is a quarter turn, roll and yaw turn about one axis: neither has a derivative there, and none is finite.
    """
    _one_quat("quat_to_rpy", q)
    x, y, z, w = components(q)
    roll = ATAN2(2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y))
    pitch = ASIN(CLAMP(2.0 * (w * y - z * x), here(numeric(q).scalar, -1), here(numeric(q).scalar, 1)))
    yaw = ATAN2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
    return CONSTRUCT(roll, pitch, yaw, attr=vector(3, numeric(q).scalar))


def _axes(name: str, axes: tuple[Whole, ...]) -> tuple[int, int, int]:
    i, j, k = (static_number(a) for a in axes)
    if not {i, j, k} <= {0, 1, 2} or i == j or j == k:
        text = f"`{name}` takes three axes 0 to 2, no two neighbours equal, got {i}, {j}, {k}"
        raise stop(tuple(axes), text, slug="arguments", instead=f"{name}(..., 0, 1, 2)")
    return i, j, k


def quat_from_euler(angles: Operand, i: Whole, j: Whole, k: Whole) -> Any:
    """quat_from_euler(angles: vec3, i: int, j: int, k: int) -> quaternion.

    It turns about the fixed axis i by angles[i], then about j by angles[j], then about k by angles[k]. Where the axes
    are no constants, a turn about none of 0, 1 and 2 is no turn.
    """
    wanted("quat_from_euler", "a vec3 and three axes", _is_point(kind(angles)), angles)
    axes = (i, j, k)
    variables = [a for a in axes if isinstance(a, ir.Value) and (a.stmt is None or a.stmt.row is not control.CONST)]
    turn = _turn_chosen if variables else _turn
    first, second, third = axes if turn is _turn_chosen else _axes("quat_from_euler", axes)
    return QUAT_MUL(turn(angles, third), QUAT_MUL(turn(angles, second), turn(angles, first)))


def _turn(angles: Operand, axis: Whole) -> Any:
    """The quaternion of a turn about an axis by its angle."""
    zero, half = here(numeric(angles).scalar, 0), 0.5 * EXTRACT(angles, attr=(axis,))
    parts = [SIN(half) if n == axis else zero for n in range(3)]
    return CONSTRUCT(*parts, COS(half), attr=quaternion(numeric(angles).scalar))


def _turn_chosen(angles: Operand, axis: Operand) -> Any:
    """The same where the axis is known only when the kernel runs."""
    zero = here(numeric(angles).scalar, 0)
    halves = [WHERE(EQ(axis, here(kind(axis), n)), 0.5 * EXTRACT(angles, attr=(n,)), zero) for n in range(3)]
    parts = [SIN(half) for half in halves]
    return CONSTRUCT(*parts, COS(ADD(ADD(halves[0], halves[1]), halves[2])), attr=quaternion(numeric(angles).scalar))


def _outer(inner: Operand, from_end: float, plus: Operand, minus: Operand) -> tuple[Any, Any]:
    """The outer angles of half their sum and difference; where both are about one axis the first is 0."""
    low, high = LT(inner, 1e-6 - from_end), GT(inner, math.pi - 1e-6 - from_end)
    none = here(kind(inner), 0)
    first = WHERE(low, none, WHERE(high, none, plus - minus))
    return first, WHERE(low, 2.0 * plus, WHERE(high, 2.0 * minus, plus + minus))


def quat_to_euler(q: Operand, i: Whole, j: Whole, k: Whole) -> Any:
    """quat_to_euler(q: quaternion, i, j, k: constants 0 to 2) -> vec3 of the angles about the fixed axes i, j and k.

    The angle about an axis stands at its place, so that quat_from_euler makes the rotation of them again; for k = i
    the last one stands at the place of the third axis. (Bernardes and Viollet, Quaternion to Euler angles, 2022.)
    Where two axes fall together the first angle is 0: the derivative there is that of this choice.
    """
    _one_quat("quat_to_euler", q)
    i, j, k = _axes("quat_to_euler", (i, j, k))
    third = 3 - i - j
    sign = 1.0 if (i, j, third) in ((0, 1, 2), (1, 2, 0), (2, 0, 1)) else -1.0
    part, w = components(q)[:3], real(q)
    a, b, c, d = w, part[i], part[j], part[third] * sign
    if k != i:
        a, b, c, d = a - c, b + d, c + a, d - b
    two = vector(2, numeric(q).scalar)
    up, along = (LENGTH(CONSTRUCT(*pair, attr=two)) for pair in ((c, d), (a, b)))
    inner = 2.0 * (ATAN2(up, along) if k == i else ATAN2(up - along, up + along))
    first, last = _outer(inner, 0.0 if k == i else 0.5 * math.pi, ATAN2(b, a), ATAN2(d, c))
    if k != i:
        last = last * sign
    found = {i: first, j: inner, third: last}
    return CONSTRUCT(*[found[n] for n in range(3)], attr=vector(3, numeric(q).scalar))


ROTATIONS = called_by_users(__name__)
