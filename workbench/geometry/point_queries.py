"""The closest and the furthest point of a mesh. The search gives a face; from there on all is differentiable."""

from __future__ import annotations

from ..kernels.reading.declare import struct
from ..kernels.reading.library import library
from ..kernels.types import uint32
from .language import in_names, wb
from .mesh import MESH, best_item, corner, item_corners
from .signs import sign_by_normal, sign_by_parity, sign_by_rays, winding_number
from .tree import TREE, box_distance_sq, node_box
from .triangles import closest, distance_sq, furthest


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
