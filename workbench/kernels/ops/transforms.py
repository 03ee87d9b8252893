"""Rigid transforms and spatial vectors: short compositions of rows, so values, C and derivatives follow from these.

A transform t turns by t.q, which should have length 1, and moves by t.p: t(x) = rotate(t.q, x) + t.p. A spatial
vector is (angular, linear): of a twist the angular velocity and the velocity of the point at the origin, of a wrench
the torque about the origin and the force (Featherstone, Rigid Body Dynamics Algorithms, 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import Components, kind, numeric, type_as
from ..row import Operand
from ..types import Matrix, Quat, Transform, Vector, transformation, vector
from .conversions import here
from .matrices import MATRIX_FROM_ROWS, MATVEC
from .parts import JOIN, PART, replaced
from .quaternions import QUAT_INVERSE, QUAT_MUL, QUAT_ROTATE, QUAT_TO_MATRIX
from .rotations import quat_from_matrix, wanted
from .scalar import ADD, DIV, EQ, MUL, NEG, WHERE
from .signatures import called_by_users
from .vectors import CONSTRUCT, CROSS, DOT, EXTRACT, LENGTH

Rule = Callable[[Any], bool]


def is_transform(t: object) -> bool:
    return isinstance(t, Transform)


def _vector(length: int) -> Rule:
    return lambda t: isinstance(t, Vector) and t.length == length


def _matrix(rows: int) -> Rule:
    return lambda t: isinstance(t, Matrix) and t.shape == (rows, rows)


_POINT, _SPATIAL, _FRAME = _vector(3), _vector(6), _matrix(4)


def demand(name: str, what: str, *pairs: tuple[Any, Rule]) -> None:
    """Raise unless every value is of the type that its rule asks for."""
    wanted(name, what, all(rule(kind(value)) for value, rule in pairs), *(value for value, _ in pairs))


def position(t: Operand) -> Any:
    """p of a transform."""
    return PART(t, attr=type_as(t, Transform).parts["p"])


def rotation(t: Operand) -> Any:
    """q of a transform."""
    return PART(t, attr=type_as(t, Transform).parts["q"])


def transform_of(p: Operand, q: Operand) -> Any:
    """The transform of a position and a quaternion."""
    return JOIN(p, q, attr=transformation(numeric(q).scalar))


def _vec(v: Operand, length: int) -> Any:
    return vector(length, numeric(v).scalar)


# ---- transforms


def transform_identity(dtype: object = float) -> Any:
    """transform_identity(dtype = float32) -> transform that moves and turns nothing."""
    return here(transformation(dtype), (0, 0, 0, 0, 0, 0, 1))


def transform_get_translation(t: Operand) -> Any:
    """transform_get_translation(t: transform) -> vec3: its position, `t.p`."""
    demand("transform_get_translation", "a transform", (t, is_transform))
    return position(t)


def transform_get_rotation(t: Operand) -> Any:
    """transform_get_rotation(t: transform) -> quaternion: its rotation, `t.q`."""
    demand("transform_get_rotation", "a transform", (t, is_transform))
    return rotation(t)


def transform_set_translation(t: Operand, p: Operand) -> Any:
    """transform_set_translation(t: transform, p: vec3): in a kernel `t.p = p`, also for an element of an array.

    On the host it gives the new transform and leaves `t` as it is.
    """
    demand("transform_set_translation", "a transform and a vec3", (t, is_transform), (p, _POINT))
    return replaced(t, 0, p)


def transform_set_rotation(t: Operand, q: Operand) -> Any:
    """transform_set_rotation(t: transform, q: quaternion): in a kernel `t.q = q`, also for an element of an array.

    On the host it gives the new transform and leaves `t` as it is.
    """
    what = "a transform and a quaternion"
    demand("transform_set_rotation", what, (t, is_transform), (q, lambda k: isinstance(k, Quat)))
    return replaced(t, 3, q)


def transform_multiply(a: Operand, b: Operand) -> Any:
    """transform_multiply(a: transform, b: transform) -> transform: b, then a; the same as `a * b`."""
    demand("transform_multiply", "two transforms", (a, is_transform), (b, is_transform))
    q = rotation(a)
    return transform_of(ADD(QUAT_ROTATE(q, position(b)), position(a)), QUAT_MUL(q, rotation(b)))


def transform_inverse(t: Operand) -> Any:
    """transform_inverse(t: transform) -> transform that undoes t, whose rotation has length 1."""
    demand("transform_inverse", "a transform", (t, is_transform))
    back = QUAT_INVERSE(rotation(t))
    return transform_of(NEG(QUAT_ROTATE(back, position(t))), back)


def transform_point(t: Operand, x: Operand) -> Any:
    """transform_point(t: transform or mat44, x: vec3) -> vec3: x turned and moved; by a matrix the first three rows
    of t (x, 1).
    """
    if is_transform(kind(t)) and _POINT(kind(x)):
        return ADD(QUAT_ROTATE(rotation(t), x), position(t))
    return _by_matrix("transform_point", t, x, 1.0)


def transform_vector(t: Operand, x: Operand) -> Any:
    """transform_vector(t: transform or mat44, x: vec3) -> vec3: x turned; by a matrix, three rows of t (x, 0)."""
    if is_transform(kind(t)) and _POINT(kind(x)):
        return QUAT_ROTATE(rotation(t), x)
    return _by_matrix("transform_vector", t, x, 0.0)


def _by_matrix(name: str, m: Operand, x: Operand, last: float) -> Any:
    demand(name, "a transform or mat44, and a vec3", (m, _FRAME), (x, _POINT))
    full = JOIN(x, here(numeric(x).scalar, last), attr=_vec(x, 4))
    return PART(MATVEC(m, full), attr=(0, kind(x)))


def _frame(rows: list[Any], p: Operand) -> Any:
    """The mat44 of three rows and a position."""
    four, scalar = _vec(p, 4), numeric(p).scalar
    made = [JOIN(row, EXTRACT(p, attr=(i,)), attr=four) for i, row in enumerate(rows)]
    return MATRIX_FROM_ROWS(*made, here(vector(4, scalar), (0, 0, 0, 1)))


def transform_to_matrix(t: Operand) -> Any:
    """transform_to_matrix(t: transform) -> mat44 that does to (x, 1) what t does to x."""
    demand("transform_to_matrix", "a transform", (t, is_transform))
    m = QUAT_TO_MATRIX(rotation(t))
    return _frame([EXTRACT(m, attr=(i,)) for i in range(3)], position(t))


def _column(m: Operand, j: int) -> Any:
    return CONSTRUCT(*[EXTRACT(m, attr=(i, j)) for i in range(3)], attr=_vec(m, 3))


def transform_from_matrix(m: Operand) -> Any:
    """transform_from_matrix(m: mat44) -> transform: of a rotation matrix and a position."""
    demand("transform_from_matrix", "a mat44", (m, _FRAME))
    return transform_of(_column(m, 3), quat_from_matrix(m))


def transform_compose(p: Operand, q: Operand, scale: Operand) -> Any:
    """transform_compose(p: vec3, q: quaternion, scale: vec3) -> mat44: scaled along the axes, turned, then moved."""
    what = "a vec3, a quaternion and a vec3"
    demand("transform_compose", what, (p, _POINT), (q, lambda k: isinstance(k, Quat)), (scale, _POINT))
    m = QUAT_TO_MATRIX(q)
    return _frame([MUL(EXTRACT(m, attr=(i,)), scale) for i in range(3)], p)


def transform_decompose(m: Operand) -> tuple[Any, Any, Any]:
    """transform_decompose(m: mat44) -> (vec3, quaternion, vec3): position, rotation and scale.

    The scale is the lengths of the columns, never negative; a column of zeros stays zero.
    """
    demand("transform_decompose", "a mat44", (m, _FRAME))
    columns = [_column(m, j) for j in range(3)]
    scale = CONSTRUCT(*[LENGTH(c) for c in columns], attr=_vec(m, 3))
    one = here(numeric(m).scalar, 1)
    sizes = [EXTRACT(scale, attr=(j,)) for j in range(3)]
    divisor = CONSTRUCT(*[WHERE(EQ(s, 0.0), one, s) for s in sizes], attr=_vec(m, 3))
    turned = [DIV(CONSTRUCT(*[EXTRACT(c, attr=(i,)) for c in columns], attr=_vec(m, 3)), divisor) for i in range(3)]
    return _column(m, 3), quat_from_matrix(MATRIX_FROM_ROWS(*turned)), scale


def transform_expand(values: Components) -> Any:
    """transform_expand(values) -> transform of seven numbers, on the host."""
    return transformation(float)(*np.ravel(values))


# ---- spatial vectors


def _halves(name: str, *vectors: Operand) -> list[Any]:
    what = "a spatial vector" if len(vectors) == 1 else "two spatial vectors"
    demand(name, what, *[(v, _SPATIAL) for v in vectors])
    return [PART(v, attr=(start, _vec(v, 3))) for v in vectors for start in (0, 3)]


def _spatial(angular: Operand, linear: Operand) -> Any:
    return JOIN(angular, linear, attr=_vec(angular, 6))


def spatial_top(s: Operand) -> Any:
    """spatial_top(s: spatial_vector) -> vec3: its first half, the angular one."""
    return _halves("spatial_top", s)[0]


def spatial_bottom(s: Operand) -> Any:
    """spatial_bottom(s: spatial_vector) -> vec3: its second half, the linear one."""
    return _halves("spatial_bottom", s)[1]


def spatial_dot(a: Operand, b: Operand) -> Any:
    """spatial_dot(a: spatial_vector, b: spatial_vector) -> scalar: the power of a wrench along a twist."""
    demand("spatial_dot", "two spatial vectors", (a, _SPATIAL), (b, _SPATIAL))
    return DOT(a, b)


def spatial_cross(a: Operand, b: Operand) -> Any:
    """spatial_cross(a: spatial_vector, b: spatial_vector) -> spatial_vector: of two twists.

    That is (wa x wb, va x wb + wa x vb).
    """
    wa, va, wb, vb = _halves("spatial_cross", a, b)
    return _spatial(CROSS(wa, wb), ADD(CROSS(va, wb), CROSS(wa, vb)))


def spatial_cross_dual(a: Operand, b: Operand) -> Any:
    """spatial_cross_dual(a: spatial_vector, b: spatial_vector) -> spatial_vector: of a twist and a wrench.

    That is (wa x tb + va x fb, wa x fb).
    """
    wa, va, tb, fb = _halves("spatial_cross_dual", a, b)
    return _spatial(ADD(CROSS(wa, tb), CROSS(va, fb)), CROSS(wa, fb))


def spatial_adjoint(r: Operand, s: Operand) -> Any:
    """spatial_adjoint(r: mat33, s: mat33) -> spatial_matrix: the blocks r, 0 above s, r."""
    demand("spatial_adjoint", "two mat33", (r, _matrix(3)), (s, _matrix(3)))
    six, nothing = _vec(r, 6), here(_vec(r, 3), 0)
    rows = [EXTRACT(r, attr=(i,)) for i in range(3)]
    above = [JOIN(row, nothing, attr=six) for row in rows]
    below = [JOIN(EXTRACT(s, attr=(i,)), row, attr=six) for i, row in enumerate(rows)]
    return MATRIX_FROM_ROWS(*above, *below)


def transform_twist(t: Operand, x: Operand) -> Any:
    """transform_twist(t: transform, x: spatial_vector) -> spatial_vector: a twist in the frame that t leads to."""
    demand("transform_twist", "a transform and a spatial vector", (t, is_transform), (x, _SPATIAL))
    w, v = (QUAT_ROTATE(rotation(t), half) for half in _halves("transform_twist", x))
    return _spatial(w, ADD(v, CROSS(position(t), w)))


def transform_wrench(t: Operand, x: Operand) -> Any:
    """transform_wrench(t: transform, x: spatial_vector) -> spatial_vector: a wrench in the frame that t leads to."""
    demand("transform_wrench", "a transform and a spatial vector", (t, is_transform), (x, _SPATIAL))
    torque, force = (QUAT_ROTATE(rotation(t), half) for half in _halves("transform_wrench", x))
    return _spatial(ADD(torque, CROSS(position(t), force)), force)


def velocity_at_point(twist: Operand, r: Operand) -> Any:
    """velocity_at_point(twist: spatial_vector, r: vec3) -> vec3: the velocity v + w x r of the point r of a body."""
    demand("velocity_at_point", "a spatial vector and a vec3", (twist, _SPATIAL), (r, _POINT))
    w, v = _halves("velocity_at_point", twist)
    return ADD(v, CROSS(w, r))


TRANSFORMS = called_by_users(__name__)
