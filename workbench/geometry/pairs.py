"""Pairs of edges and triangles: closest points, and intersection."""

from __future__ import annotations

from typing import Any

from ..kernels.reading.library import library
from .language import wb


@library()
def fraction(x: Any):
    """x clamped to [0, 1]."""
    return wb.clamp(x, type(x)(0.0), type(x)(1.0))


@library()
def closest_point_edge_edge(p1: Any, q1: Any, p2: Any, q2: Any, epsilon: Any):
    """closest_point_edge_edge(p1: vec3, q1: vec3, p2: vec3, q2: vec3, epsilon: scalar) -> vec3 (s, t, distance).

    p1 + s (q1 - p1) and p2 + t (q2 - p2) are the closest points of the two edges (Ericson, Real-Time Collision
    Detection, 2005, section 5.1.9). An edge whose squared length is at most epsilon is its first point. Derivatives are
    those of the case at hand; of parallel edges one of many pairs is taken, as if s were 0.

    >>> @wb.kernel
    ... def near(x: wb.array[wb.vec3], y: wb.array[wb.vec3]):
    ...     y[0] = wb.closest_point_edge_edge(x[0], x[1], x[2], x[3], 1e-6)
    >>> x = wb.array([[0, 0, 0], [4, 0, 0], [1, -1, 2], [1, 3, 2]], dtype=wb.vec3)
    >>> y = wb.zeros(1, dtype=wb.vec3)
    >>> wb.launch(near, 1, [x, y])
    >>> y.numpy().tolist()
    [[0.25, 0.25, 2.0]]
    """
    one, two, r = q1 - p1, q2 - p2, p1 - p2
    a, b, e = wb.dot(one, one), wb.dot(one, two), wb.dot(two, two)
    c, f = wb.dot(one, r), wb.dot(two, r)
    s = a * type(a)(0.0)
    t = s
    if a > epsilon and e > epsilon:
        across = a * e - b * b
        if across != type(a)(0.0):
            s = fraction((b * f - c * e) / across)
        t = (b * s + f) / e
        if t < type(a)(0.0):
            t = type(a)(0.0)
            s = fraction(-c / a)
        elif t > type(a)(1.0):
            t = type(a)(1.0)
            s = fraction((b - c) / a)
    elif a > epsilon:
        s = fraction(-c / a)
    elif e > epsilon:
        t = fraction(f / e)
    return type(p1)(s, t, wb.length(p2 + two * t - (p1 + one * s)))


@library()
def apart_along(axis: Any, a: Any, b: Any, c: Any, u: Any, v: Any, w: Any):
    """True if a plane perpendicular to the axis separates the triangles a b c and u v w."""
    x, y, z = wb.dot(axis, a), wb.dot(axis, b), wb.dot(axis, c)
    p, q, r = wb.dot(axis, u), wb.dot(axis, v), wb.dot(axis, w)
    return wb.max(wb.max(x, y), z) < wb.min(wb.min(p, q), r) or wb.max(wb.max(p, q), r) < wb.min(wb.min(x, y), z)


@library()
def parted(a: Any, b: Any, c: Any, u: Any, v: Any, w: Any, normal: Any):
    """True if an axis perpendicular to edge a b separates the triangles: in the plane, or across an edge of u v w."""
    edge = b - a
    plane = apart_along(wb.cross(normal, edge), a, b, c, u, v, w)
    first = apart_along(wb.cross(edge, v - u), a, b, c, u, v, w)
    second = apart_along(wb.cross(edge, w - v), a, b, c, u, v, w)
    return plane or first or second or apart_along(wb.cross(edge, u - w), a, b, c, u, v, w)


@library()
def intersect_tri_tri(v0: Any, v1: Any, v2: Any, u0: Any, u1: Any, u2: Any):
    """intersect_tri_tri(v0: vec3, v1: vec3, v2: vec3, u0: vec3, u1: vec3, u2: vec3) -> int: 1 where they meet, else 0.

    Triangles that touch meet. Found by separating axes (Gottschalk, Lin and Manocha, OBBTree, 1996); no derivative.

    >>> @wb.kernel
    ... def meet(x: wb.array[wb.vec3], y: wb.array[int]):
    ...     y[0] = wb.intersect_tri_tri(x[0], x[1], x[2], x[3], x[4], x[5])
    >>> x = wb.array([[0, 0, 0], [4, 0, 0], [0, 4, 0], [1, 1, -1], [1, 1, 1], [2, 1, 1]], dtype=wb.vec3)
    >>> y = wb.zeros(1, dtype=int)
    >>> wb.launch(meet, 1, [x, y])
    >>> y.list()
    [1]
    """
    a, b, c = wb.detach(v0), wb.detach(v1), wb.detach(v2)
    u, v, w = wb.detach(u0), wb.detach(u1), wb.detach(u2)
    n, m = wb.cross(b - a, c - a), wb.cross(v - u, w - u)
    apart = apart_along(n, a, b, c, u, v, w) or apart_along(m, a, b, c, u, v, w)
    if not apart:
        apart = parted(a, b, c, u, v, w, n) or parted(b, c, a, u, v, w, n) or parted(c, a, b, u, v, w, n)
    if not apart:
        edges = apart_along(wb.cross(m, v - u), a, b, c, u, v, w) or apart_along(wb.cross(m, w - v), a, b, c, u, v, w)
        apart = edges or apart_along(wb.cross(m, u - w), a, b, c, u, v, w)
    return wb.where(apart, 0, 1)
