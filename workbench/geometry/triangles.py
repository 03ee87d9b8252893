"""One triangle: its closest point to another point, and its intersection with a ray.

A point of a triangle is `u a + v b + (1 - u - v) c`, as in Warp. All of this is differentiable; where a closest point
sits on an edge or a vertex, the derivative is that of sliding along the edge, or none.
"""

from __future__ import annotations

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
