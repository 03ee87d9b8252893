"""The closest and the furthest point of a mesh, and its rays. The search gives a face; the rest is differentiable.

Inside tests of points go by rays, by the normal at the closest point, or by winding numbers, without derivatives.
"""

from __future__ import annotations

from ..kernels.reading.declare import struct
from ..kernels.reading.library import library
from ..kernels.types import uint32
from .language import in_names, wb
from .mesh import MESH, best_item, corner, item_corners, mesh_eval_face_normal
from .tree import EVERYWHERE, TREE, box_distance_sq, inverses, is_other, leaf_items, node_box, node_entry, skipped
from .triangles import across, closest, distance_sq, furthest, ray_distance, ray_hit

INF = float("inf")


@struct
class MeshQueryRay:
    """Result of `mesh_query_ray`.

    `result`: True if there is a hit, else all is 0. `face`, and `u`, `v` of the hit as for `mesh_eval_position`; `t`,
    its distance in lengths of the direction; `normal` of the face, of length 1; `sign`: 1 from before, -1 from behind.

    >>> [name for name, _ in wb.MeshQueryRay.fields]
    ['result', 'sign', 'face', 't', 'u', 'v', 'normal']
    """

    result: bool
    sign: float
    face: int
    t: float
    u: float
    v: float
    normal: wb.vec3


@library()
def item_hit(mesh: MESH, item: int, start: wb.vec3, dir: wb.vec3, right: wb.vec3, up: wb.vec3, root: int):
    """t where a ray hits a triangle of the group; infinite where it does not."""
    a, b, c = item_corners(mesh, item)
    t = ray_distance(a, b, c, start, dir, right, up)
    return wb.where(t < 0.0 or is_other(mesh.tree, item, root), INF, t)


@library()
def hit_item(mesh: MESH, start: wb.vec3, dir: wb.vec3, max_t: float, root: int = -1):
    """Place, in the order of leaves, of the triangle that a ray hits first; -1 if none before `max_t`."""
    right, up = across(dir)
    return best_item(mesh, max_t, node_entry, (start, inverses(dir), root), item_hit, (start, dir, right, up, root))


@library()
def hits(mesh: MESH, start: wb.vec3, dir: wb.vec3, max_t: float, enough: int, root: int = -1):
    """The number of triangles that a ray meets before `max_t`, counted up to `enough`."""
    tree = mesh.tree
    inv = inverses(dir)
    right, up = across(dir)
    count = 0
    node = uint32(1)
    while node != uint32(0) and count < enough:
        if node_entry(tree, node, start, inv, root) > max_t:
            node = skipped(node)
        elif node < uint32(tree.leaves):
            node = uint32(2) * node
        else:
            first, end = leaf_items(tree, node)
            for k in range(first, end):
                if item_hit(mesh, k, start, dir, right, up, root) < max_t:
                    count += 1
            node = skipped(node)
    return count


@in_names(t="t", bary_u="u", bary_v="v", sign="sign", normal="normal", face="face")
@library()
def mesh_query_ray(mesh: MESH, start: wb.vec3, dir: wb.vec3, max_t: float, root: int = -1):
    """mesh_query_ray(mesh: uint64, start: vec3, dir: vec3, max_t: float) -> MeshQueryRay: what a ray hits first.

    `max_t` and the distance `t` are in lengths of `dir`; a fifth argument `root` restricts it to one group, see
    `mesh_get_group_root`. Faces are hit from both sides, and on their edges. `t`, `u`, `v` and `normal` have
    derivatives by `start`, `dir` and the points of the mesh; which face it is has none. As in Warp, six more names may
    be given before `root`, which then get t, u, v, sign, normal and face of a hit; the call then gives a bool.
    """
    query = MeshQueryRay()
    found = hit_item(mesh, wb.detach(start), wb.detach(dir), wb.detach(max_t), root)
    if found >= 0:
        face = mesh.tree.items[found]
        a, b, c = corner(mesh, face, 0), corner(mesh, face, 1), corner(mesh, face, 2)
        t, u, v = ray_hit(a, b, c, start, dir)
        normal = mesh_eval_face_normal(mesh, face)
        sign = wb.where(wb.dot(wb.detach(normal), wb.detach(dir)) > 0.0, -1.0, 1.0)
        query = MeshQueryRay(True, sign, face, t, u, v, normal)
    return query


@library()
def mesh_query_ray_anyhit(mesh: MESH, start: wb.vec3, dir: wb.vec3, max_t: float, root: int = -1):
    """mesh_query_ray_anyhit(mesh: uint64, start: vec3, dir: vec3, max_t: float) -> bool: does a ray hit anything."""
    return hits(mesh, wb.detach(start), wb.detach(dir), wb.detach(max_t), 1, root) > 0


@library()
def mesh_query_ray_count_intersections(mesh: MESH, start: wb.vec3, dir: wb.vec3, root: int = -1):
    """mesh_query_ray_count_intersections(mesh: uint64, start: vec3, dir: vec3) -> int: how many faces a ray meets.

    A ray through an edge or a vertex meets each face that has it.
    """
    return hits(mesh, wb.detach(start), wb.detach(dir), EVERYWHERE, 2147483647, root)


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


@struct
class MeshQueryPoint:
    """Result of `mesh_query_point` and its variants.

    `result`: True if a face was found, else all is 0. `face`, and `u`, `v` of its point as for `mesh_eval_position`;
    `sign`: -1 inside of the mesh, 1 outside, 0 where it was not asked for.

    >>> [name for name, _ in wb.MeshQueryPoint.fields]
    ['result', 'sign', 'face', 'u', 'v']
    """

    result: bool
    sign: float
    face: int
    u: float
    v: float


@library()
def item_distance_sq(mesh: MESH, item: int, p: wb.vec3):
    a, b, c = item_corners(mesh, item)
    return distance_sq(a, b, c, p)


@library()
def closest_item(mesh: MESH, p: wb.vec3, max_dist: float):
    """Place, in the order of leaves, of the closest triangle; -1 if none is closer than `max_dist`."""
    return best_item(mesh, max_dist * max_dist, box_distance_sq, (p,), item_distance_sq, (p,))


@library()
def nearness_of_box(tree: TREE, node: uint32, p: wb.vec3):
    """Minus the square of the distance of the furthest point of a box; 1 for an empty one."""
    low, high = node_box(tree, node)
    d = wb.max(wb.abs(low - p), wb.abs(high - p))
    return wb.where(low[0] > 2.9e38, 1.0, -wb.dot(d, d))


@library()
def nearness_of_item(mesh: MESH, item: int, p: wb.vec3):
    a, b, c = item_corners(mesh, item)
    return -wb.max(wb.length_sq(a - p), wb.max(wb.length_sq(b - p), wb.length_sq(c - p)))


@library()
def furthest_item(mesh: MESH, p: wb.vec3, min_dist: float):
    """Place, in the order of leaves, of the triangle with the point furthest from p; -1 if none exceeds `min_dist`."""
    return best_item(mesh, -min_dist * wb.abs(min_dist), nearness_of_box, (p,), nearness_of_item, (p,))


@library()
def answer(mesh: MESH, point: wb.vec3, found: int):
    """The closest point of the triangle found, without a sign."""
    query = MeshQueryPoint()
    if found >= 0:
        face = mesh.tree.items[found]
        u, v = closest(corner(mesh, face, 0), corner(mesh, face, 1), corner(mesh, face, 2), point)
        query = MeshQueryPoint(True, 0.0, face, u, v)
    return query


# ---- the queries

PLACE = {"face": "face", "bary_u": "u", "bary_v": "v"}


@in_names(inside="sign", **PLACE)
@library()
def mesh_query_point(mesh: MESH, point: wb.vec3, max_dist: float):
    """mesh_query_point(mesh: uint64, point: vec3, max_dist: float) -> MeshQueryPoint: the closest point of a mesh.

    Of all faces closer than `max_dist`. `sign` is -1 inside of the mesh: where of three rays, along x, y and z, two
    hit a face from behind first. `u` and `v` have derivatives by `point` and the points of the mesh; on an edge or a
    vertex of the face those of staying there. Faces without area count as the edges that they are (Warp skips them).
    As in Warp, four more names may be given, which then get sign, face, u and v where there is a
    face, and stay as they are where there is none; the call then gives a bool.

    >>> @wb.kernel
    ... def distance(mesh: wb.uint64, x: wb.array[wb.vec3], out: wb.array[float]):
    ...     i = wb.tid()
    ...     q = wb.mesh_query_point(mesh, x[i], 10.0)
    ...     if q.result:
    ...         out[i] = wb.length(x[i] - wb.mesh_eval_position(mesh, q.face, q.u, q.v))
    >>> points = wb.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=wb.vec3)
    >>> mesh = wb.Mesh(points, wb.array([0, 1, 2], dtype=int))
    >>> x, out = wb.array([[0.2, 0.2, 3.0]], dtype=wb.vec3, requires_grad=True), wb.zeros(1)
    >>> with wb.Tape() as tape:
    ...     wb.launch(distance, 1, [mesh.id, x, out])
    >>> out.list()
    [3.0]
    >>> tape.backward(out)
    >>> x.grad.numpy().round(3).tolist()
    [[0.0, 0.0, 1.0]]
    """
    p = wb.detach(point)
    query = answer(mesh, point, closest_item(mesh, p, wb.detach(max_dist)))
    if query.result:
        query.sign = sign_by_rays(mesh, p)
    return query


@in_names(**PLACE)
@library()
def mesh_query_point_no_sign(mesh: MESH, point: wb.vec3, max_dist: float):
    """mesh_query_point_no_sign(mesh: uint64, point: vec3, max_dist: float) -> MeshQueryPoint, its `sign` 0.

    As `mesh_query_point`, for those who need not know whether the point is inside: several times faster.
    """
    return answer(mesh, point, closest_item(mesh, wb.detach(point), wb.detach(max_dist)))


@in_names(**PLACE)
@library()
def mesh_query_furthest_point_no_sign(mesh: MESH, point: wb.vec3, min_dist: float):
    """mesh_query_furthest_point_no_sign(mesh: uint64, point: vec3, min_dist: float) -> MeshQueryPoint.

    The point of the mesh that is furthest away, of faces further than `min_dist`. It is a vertex, so `u` and `v` are 0
    or 1 and have no derivative.
    """
    p = wb.detach(point)
    query = MeshQueryPoint()
    found = furthest_item(mesh, p, wb.detach(min_dist))
    if found >= 0:
        a, b, c = item_corners(mesh, found)
        u, v = furthest(a, b, c, p)
        query = MeshQueryPoint(True, 0.0, mesh.tree.items[found], u, v)
    return query


@in_names(inside="sign", **PLACE)
@library()
def mesh_query_point_sign_normal(mesh: MESH, point: wb.vec3, max_dist: float, epsilon: float = 1.0e-3):
    """mesh_query_point_sign_normal(mesh: uint64, point: vec3, max_dist: float, epsilon: float) -> MeshQueryPoint.

    As `mesh_query_point`, with `sign` from the side of the surface the point is on: of the normal there, or on an edge
    or vertex of the sum of those of its faces, weighted by their angles (Baerentzen and Aanaes, 2005). Faces meet there
    that come within `epsilon` times the mean length of an edge. Right for closed meshes that do not cross themselves.
    """
    p = wb.detach(point)
    found = closest_item(mesh, p, wb.detach(max_dist))
    query = answer(mesh, point, found)
    if query.result:
        query.sign = sign_by_normal(mesh, p, found, wb.detach(epsilon))
    return query


@in_names(inside="sign", **PLACE)
@library()
def mesh_query_point_sign_winding_number(
    mesh: MESH, point: wb.vec3, max_dist: float, accuracy: float = 2.0, threshold: float = 0.5
):
    """mesh_query_point_sign_winding_number(mesh, point, max_dist, accuracy, threshold) -> MeshQueryPoint.

    As `mesh_query_point`, with `sign` -1 where the mesh winds around the point more than `threshold` times: right also
    for meshes with holes and crossings. Faces further away than `accuracy` times their extent are taken together
    (Barill et al., Fast Winding Numbers for Soups and Clouds, 2018). The mesh is made with
    `support_winding_number=True`, else the launch is refused (Warp takes another sign in silence).
    """
    p = wb.detach(point)
    query = answer(mesh, point, closest_item(mesh, p, wb.detach(max_dist)))
    if query.result:
        query.sign = wb.where(winding_number(mesh, p, wb.detach(accuracy)) > wb.detach(threshold), -1.0, 1.0)
    return query


@in_names(inside="sign", **PLACE)
@library()
def mesh_query_point_sign_parity(
    mesh: MESH, point: wb.vec3, max_dist: float, n_sample: int = 1, perturbation_scale: float = 0.1
):
    """mesh_query_point_sign_parity(mesh, point, max_dist, n_sample, perturbation_scale) -> MeshQueryPoint.

    As `mesh_query_point`, with `sign` -1 where at least half of `n_sample` rays around the direction (1, 1, 1), the
    same at every call, meet an odd number of faces. Which ones is not as in Warp.
    """
    p = wb.detach(point)
    query = answer(mesh, point, closest_item(mesh, p, wb.detach(max_dist)))
    if query.result:
        query.sign = sign_by_parity(mesh, p, n_sample, wb.detach(perturbation_scale))
    return query
