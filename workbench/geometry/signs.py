"""Inside tests of points: by rays, by the normal at the closest point, by winding numbers. No derivatives."""

from __future__ import annotations

from ..kernels.reading.library import library
from ..kernels.types import uint32
from .language import wb
from .mesh import MESH, item_corners
from .ray_queries import hit_item, hits
from .tree import EVERYWHERE, box_distance_sq, leaf_items, skipped
from .triangles import closest

PI = 3.14159265358979


@library()
def enters_from_behind(mesh: MESH, p: wb.vec3, dir: wb.vec3):
    """1 if the first face that a ray hits is hit from behind, else 0."""
    found = hit_item(mesh, p, dir, EVERYWHERE)
    behind = 0
    if found >= 0:
        a, b, c = item_corners(mesh, found)
        behind = wb.where(wb.dot(wb.cross(b - a, c - a), dir) > 0.0, 1, 0)
    return behind


@library()
def sign_by_rays(mesh: MESH, p: wb.vec3):
    votes = enters_from_behind(mesh, p, wb.vec3(1.0, 0.0, 0.0)) + enters_from_behind(mesh, p, wb.vec3(0.0, 1.0, 0.0))
    if votes == 1:
        votes += enters_from_behind(mesh, p, wb.vec3(0.0, 0.0, 1.0))
    return wb.where(votes >= 2, -1.0, 1.0)


@library()
def sign_by_parity(mesh: MESH, p: wb.vec3, samples: int, scale: float):
    state = wb.rand_init(0)
    odd = 0
    for _k in range(samples):
        x, y, z = wb.randf(state), wb.randf(state), wb.randf(state)
        dir = wb.vec3(1.0, 1.0, 1.0) + scale * (2.0 * wb.vec3(x, y, z) - wb.vec3(1.0, 1.0, 1.0))
        odd += hits(mesh, p, dir, EVERYWHERE, 2147483647) % 2
    return wb.where(2 * odd >= samples, -1.0, 1.0)


@library()
def angle(a: wb.vec3, b: wb.vec3):
    return wb.atan2(wb.length(wb.cross(a, b)), wb.dot(a, b))


@library()
def weight_at(a: wb.vec3, b: wb.vec3, c: wb.vec3, u: float, v: float, epsilon: float):
    """The weight of a face at its point (u, v): the angle it spans there, full, half, or that of a corner."""
    w = 1.0 - u - v
    no_a, no_b, no_c = u <= epsilon, v <= epsilon, w <= epsilon
    weight = 2.0 * PI
    if no_a and no_b:
        weight = angle(a - c, b - c)
    elif no_b and no_c:
        weight = angle(b - a, c - a)
    elif no_a and no_c:
        weight = angle(a - b, c - b)
    elif no_a or no_b or no_c:
        weight = PI
    return weight


@library()
def sign_by_normal(mesh: MESH, p: wb.vec3, found: int, epsilon: float):
    """The sign of the side of the surface, by the normals of all faces that share the closest point."""
    tree = mesh.tree
    a, b, c = item_corners(mesh, found)
    u, v = closest(a, b, c, p)
    there = u * a + v * b + (1.0 - u - v) * c
    near = wb.max(epsilon * mesh.edge[0], 1.0e-6 * wb.length(there - p))
    total = wb.vec3()
    node = uint32(1)
    while node != uint32(0):
        if box_distance_sq(tree, node, there) > near * near:
            node = skipped(node)
        elif node < uint32(tree.leaves):
            node = uint32(2) * node
        else:
            first, end = leaf_items(tree, node)
            for k in range(first, end):
                a, b, c = item_corners(mesh, k)
                u, v = closest(a, b, c, there)
                if wb.length(u * a + v * b + (1.0 - u - v) * c - there) <= near:
                    weight = weight_at(a, b, c, u, v, wb.min(epsilon, 0.1))
                    total += weight * wb.normalize(wb.cross(b - a, c - a))
            node = skipped(node)
    return wb.where(wb.dot(total, p - there) < 0.0, -1.0, 1.0)


@library()
def solid_angle(a: wb.vec3, b: wb.vec3, c: wb.vec3, p: wb.vec3):
    """The signed solid angle of a triangle seen from p, as a part of 4 pi (Van Oosterom and Strackee, 1983)."""
    x, y, z = a - p, b - p, c - p
    r, s, t = wb.length(x), wb.length(y), wb.length(z)
    below = r * s * t + wb.dot(x, y) * t + wb.dot(y, z) * r + wb.dot(z, x) * s
    return wb.atan2(wb.dot(x, wb.cross(y, z)), below) / (2.0 * PI)


@library()
def winding_number(mesh: MESH, p: wb.vec3, accuracy: float):
    tree = mesh.tree
    total = 0.0
    node = uint32(1)
    while node != uint32(0):
        middle, normal = mesh.dipoles[uint32(2) * node], mesh.dipoles[uint32(2) * node + uint32(1)]
        d = middle - p
        far = wb.length(d)
        if far > accuracy * mesh.reach[node]:
            total += wb.dot(normal, d) / wb.max(4.0 * PI * far * far * far, 1.0e-37)
            node = skipped(node)
        elif node < uint32(tree.leaves):
            node = uint32(2) * node
        else:
            first, end = leaf_items(tree, node)
            for k in range(first, end):
                a, b, c = item_corners(mesh, k)
                total += solid_angle(a, b, c, p)
            node = skipped(node)
    return total
