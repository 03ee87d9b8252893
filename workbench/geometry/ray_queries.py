"""Ray queries of a mesh. The search gives a face; from there on all is differentiable."""

from __future__ import annotations

from ..kernels.reading.declare import struct
from ..kernels.reading.library import library
from ..kernels.types import uint32
from .language import in_names, wb
from .mesh import MESH, best_item, corner, item_corners, mesh_eval_face_normal
from .tree import EVERYWHERE, inverses, is_other, leaf_items, node_entry, skipped
from .triangles import across, ray_distance, ray_hit

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
