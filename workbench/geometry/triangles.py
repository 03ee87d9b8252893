"""One triangle and pairs of edges and triangles: closest points, and intersections.

A point of a triangle is `u a + v b + (1 - u - v) c`, as in Warp. All of this is differentiable; where a closest point
sits on an edge or a vertex, the derivative is that of sliding along the edge, or none.
"""

from __future__ import annotations

from typing import Any

from ..kernels.reading.library import library
from ..kernels.types import float64
from .language import wb

TINY = 1.0e-37  # below any square of a length that a mesh may have


@library()
def along(a: wb.vec3, ab: wb.vec3, p: wb.vec3):
    """The parameter, in [0, 1], of the point of the edge from a to a + ab closest to p; 0 for an edge of no length."""
    return wb.clamp(wb.dot(p - a, ab) / wb.max(wb.dot(ab, ab), TINY), 0.0, 1.0)


@library()
def edge_distance_sq(a: wb.vec3, ab: wb.vec3, p: wb.vec3):
    d = p - a - along(a, ab, p) * ab
    return wb.dot(d, d)


@library()
def distance_sq(a: wb.vec3, b: wb.vec3, c: wb.vec3, p: wb.vec3):
    """The square of the distance of a point to a triangle, which may be a segment or a point."""
    ab, ac, ap = b - a, c - a, p - a
    n = wb.cross(ab, ac)
    nn = wb.dot(n, n)
    v, w = wb.dot(wb.cross(ap, ac), n), wb.dot(wb.cross(ab, ap), n)
    s = wb.dot(ap, n)
    d = s * s / wb.max(nn, TINY)
    if not (v >= 0.0 and w >= 0.0 and v + w <= nn and nn > 0.0):
        d = wb.min(edge_distance_sq(a, ab, p), wb.min(edge_distance_sq(a, ac, p), edge_distance_sq(b, c - b, p)))
    return d


@library()
def closest(a: wb.vec3, b: wb.vec3, c: wb.vec3, p: wb.vec3):
    """u and v of the point of a triangle that is closest to p."""
    ab, ac, bc, ap = b - a, c - a, c - b, p - a
    n = wb.cross(ab, ac)
    nn = wb.dot(n, n)
    v, w = wb.dot(wb.cross(ap, ac), n), wb.dot(wb.cross(ab, ap), n)
    if v >= 0.0 and w >= 0.0 and v + w <= nn and nn > 0.0:
        return 1.0 - (v + w) / nn, v / nn
    to_ab, to_ac, to_bc = edge_distance_sq(a, ab, p), edge_distance_sq(a, ac, p), edge_distance_sq(b, bc, p)
    if to_ab <= to_ac and to_ab <= to_bc:
        t = along(a, ab, p)
        return 1.0 - t, t
    if to_ac <= to_bc:
        return 1.0 - along(a, ac, p), 0.0
    return 0.0, 1.0 - along(b, bc, p)


@library()
def furthest(a: wb.vec3, b: wb.vec3, c: wb.vec3, p: wb.vec3):
    """u and v of the point of a triangle that is furthest from p: a vertex."""
    to_a, to_b, to_c = wb.length_sq(a - p), wb.length_sq(b - p), wb.length_sq(c - p)
    is_a = to_a >= to_b and to_a >= to_c
    is_b = not is_a and to_b >= to_c
    return wb.where(is_a, 1.0, 0.0), wb.where(is_b, 1.0, 0.0)


@library()
def across(dir: wb.vec3):
    """Two vectors perpendicular to a third and to each other (Duff et al., Building an Orthonormal Basis, 2017)."""
    n = wb.normalize(dir)
    s = wb.where(n[2] < 0.0, -1.0, 1.0)
    a = -1.0 / (s + n[2])
    b = n[0] * n[1] * a
    return wb.vec3(1.0 + s * n[0] * n[0] * a, s * b, -s * n[0]), wb.vec3(b, s + n[1] * n[1] * a, -n[1])


@library()
def side(ax: float, ay: float, bx: float, by: float):
    """The side of the line from a to b, in a plane, on which 0 lies, as a number with an exact sign."""
    return float64(ax) * float64(by) - float64(ay) * float64(bx)


@library()
def ray_distance(a: wb.vec3, b: wb.vec3, c: wb.vec3, start: wb.vec3, dir: wb.vec3, right: wb.vec3, up: wb.vec3):
    """t where a ray's line meets a triangle, edges included; -1 where it does not, or lies in its plane.

    Seen along the ray, corners become points of a plane, the same for all of their triangles, and 0 is inside of one or
    not. So no ray slips through between two (Woop et al., Watertight Ray/Triangle Intersection, 2013).
    """
    pa, pb, pc = a - start, b - start, c - start
    ax, ay, bx, by = wb.dot(pa, right), wb.dot(pa, up), wb.dot(pb, right), wb.dot(pb, up)
    cx, cy = wb.dot(pc, right), wb.dot(pc, up)
    x, y, z = side(bx, by, cx, cy), side(cx, cy, ax, ay), side(ax, ay, bx, by)
    t = -1.0
    if wb.min(x, wb.min(y, z)) >= float64(0.0) or wb.max(x, wb.max(y, z)) <= float64(0.0):
        n = wb.cross(b - a, c - a)
        slope = wb.dot(n, dir)
        if slope != 0.0 and wb.dot(n, n) > TINY:
            t = wb.dot(pa, n) / slope
    return t


@library()
def ray_hit(a: wb.vec3, b: wb.vec3, c: wb.vec3, start: wb.vec3, dir: wb.vec3):
    """t, u and v where a ray's line meets a triangle that it does meet."""
    n = wb.cross(b - a, c - a)
    t = wb.dot(a - start, n) / wb.dot(n, dir)
    p = start + t * dir - a
    nn = wb.dot(n, n)
    v, w = wb.dot(wb.cross(p, c - a), n) / nn, wb.dot(wb.cross(b - a, p), n) / nn
    return t, 1.0 - v - w, v


# ---- pairs


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
def parted(across: Any, a: Any, b: Any, c: Any, u: Any, v: Any, w: Any):
    """True if an axis perpendicular to `across` and to an edge of u v w separates the triangles a b c and u v w."""
    apart = False
    for edge in (v - u, w - v, u - w):
        apart = apart or apart_along(wb.cross(across, edge), a, b, c, u, v, w)
    return apart


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
    apart = apart or parted(n, u, v, w, a, b, c) or parted(m, a, b, c, u, v, w)
    for edge in (b - a, c - b, a - c):
        apart = apart or parted(edge, a, b, c, u, v, w)
    return wb.where(apart, 0, 1)
