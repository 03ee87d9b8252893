"""Triangle meshes: the object on the host, its fields in kernels by its number, and funcs over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.array import array, new_array
from ..errors import LaunchError
from ..kernels import kernel
from ..kernels.reading.declare import tid
from ..kernels.reading.library import library
from ..kernels.types import Array, Handle, float32, int32, uint32
from ..launches.handles import held, numbered, rebuilt_in_place
from ..launches.launch import launch, through
from .building import check, check_groups, check_order, contents, module, room, same_device, stored
from .fitting import fit_dipoles, fit_faces, vec3i
from .language import FLOATS, INTS, POINTS, fields, wb
from .tree import TREE, Tree, climbed, group_root, leaf_items


@kernel
def copied(a: Array(wb.vec3), out: Array(wb.vec3)):
    out[tid()] = wb.detach(a[tid()])


MESH = Handle(
    "Mesh",
    fields(points=POINTS, indices=INTS, velocities=POINTS, corners=Array(vec3i), tree=TREE)
    + fields(edge=FLOATS, dipoles=POINTS, reach=FLOATS),
    # without faces: what the number 0 stands for
    empty=lambda: Mesh(new_array(0, wb.vec3), new_array(0, int32), support_winding_number=True),
)


class Mesh:
    """Triangles for queries in kernels, which get `mesh.id`: the closest point, what a ray hits, what lies in a box.

    `points` are vec3, `indices` int, three for each face; both stay the user's arrays. With `points.requires_grad`,
    gradients arrive in `points.grad`. After points have moved, `refit()`; queries before that may miss faces.
    `velocities`, vec3 for each point, are for `mesh_eval_velocity`. What a tape needs of the tree of before is kept for
    it. `refit` may stand in a capture, building not: the order of faces is found on the host.

    A number that a kernel chooses, as `ids[i]`, stands for points and velocities as they were when the mesh was built
    or fitted last; a gradient by these is refused there. Such a number of no mesh is one of a mesh without faces.

    >>> points = wb.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=wb.vec3)
    >>> mesh = wb.Mesh(points, wb.array([0, 1, 2], dtype=int))
    >>> mesh.points is points
    True
    """

    handle = MESH

    @through
    def __init__(
        self,
        points: array,
        indices: array,
        velocities: array | None = None,
        support_winding_number: bool = False,
        bvh_constructor: str | None = None,
        bvh_leaf_size: int | None = None,
        groups: array | None = None,
    ):
        self._points = check("Mesh", "points", points, wb.vec3)
        self.indices = check("Mesh", "indices", indices, int32)
        self._velocities = None if velocities is None else check("Mesh", "velocities", velocities, wb.vec3)
        self.groups = None if groups is None else check_groups("Mesh", groups, len(indices) // 3)
        same_device("Mesh", points, indices, velocities, groups)
        if len(indices) % 3:
            text, why = f"a Mesh of {len(indices)} indices", "A face has three."
            raise LaunchError(text, slug="shape", why=why, instead="indices.flatten()")
        self.device = points.device
        self._leaf_size = check_order("Mesh", bvh_constructor, bvh_leaf_size or None)
        self.support_winding_number = support_winding_number
        self.tree: Any = None
        nothing = new_array(0, wb.vec3, self.device)
        self._dipoles = nothing, new_array(0, float32, self.device)
        self.still = {"points": nothing, "velocities": nothing}
        self.rebuild()
        self.id = numbered(self)

    @property
    def points(self) -> array:
        """The user's array. Another of the same length may be assigned, which refits."""
        return self._points

    @points.setter
    @through
    def points(self, new: array) -> None:
        check("Mesh", "points", new, wb.vec3)
        if new.shape != self._points.shape:
            text = f"{len(new)} points for a Mesh of {len(self._points)}"
            raise LaunchError(text, slug="shape", instead="wb.Mesh(points, indices)")
        same_device("Mesh", new, self.indices)
        self._stay("points", new)
        self._points = new
        self.refit()

    @property
    def velocities(self) -> array:
        """The user's array. Raises LaunchError [velocities] if there is none."""
        if self._velocities is None:
            instead = "wb.Mesh(points, indices, velocities=...)"
            raise LaunchError("This Mesh has no velocities.", slug="velocities", instead=instead)
        return self._velocities

    @velocities.setter
    def velocities(self, new: array | None) -> None:
        self._stay("velocities", new)
        self._velocities = None if new is None else check("Mesh", "velocities", new, wb.vec3)

    def _stay(self, name: str, new: array | None) -> None:
        """Raise LaunchError [capture] if another array is assigned while a graph or command uses the present one."""
        if held(self) and new is not getattr(self, f"_{name}"):
            text = f"other {name} for a Mesh that a capture has read or built."
            why = "Its replays use the same memory."
            raise LaunchError(text, slug="capture", why=why, instead=f"mesh.{name}.assign(new), and mesh.refit()")

    @through
    def rebuild(self, constructor: str | None = None) -> None:
        """Build the tree anew for where the points are now. Raises LaunchError [capture] in a capture."""
        faces = contents(self.indices, "A Mesh is built", BEFORE).reshape(-1, 3)
        if len(faces) and (int(faces.min()) < 0 or int(faces.max()) >= len(self._points)):
            worst = faces.max() if faces.min() >= 0 else faces.min()
            text = f"a face of a Mesh names point {worst} of {len(self._points)}"
            raise LaunchError(text, slug="bounds", instead="indices from 0 to len(points) - 1")
        groups = None if self.groups is None else contents(self.groups, "A Mesh is built", BEFORE)
        points = contents(self._points, "A Mesh is built", BEFORE)
        a, b, c = (points.take(faces[:, k], axis=0) for k in range(3))
        xp = module(a)
        like, before = self._points, self.tree
        self.tree = Tree(xp.fmin(xp.fmin(a, b), c), xp.fmax(xp.fmax(a, b), c), like, self._leaf_size, groups)
        corners = stored(faces[self.tree.order], vec3i, like)
        flat = stored(faces.reshape(-1), int32, like)
        if before is not None and held(self):
            self.tree.move_into(before)
            self.corners.assign(corners)
            self.still["indices"].assign(flat)
        else:
            self.corners, self.still["indices"] = corners, flat
        self.refit()

    @through
    def refit(self) -> None:
        """Fit the tree to where the points are now, by launches: a tape records them, a capture repeats them."""
        fixed = held(self)
        self.tree = self.tree.fitted(fit_faces, [self._points, self.corners], fixed)
        if self.support_winding_number:
            nodes, (middles, reach) = 2 * self.tree.leaves, self._dipoles
            like = self._points
            self._dipoles = room(middles, 2 * nodes, wb.vec3, like, fixed), room(reach, nodes, float32, like, fixed)
            if self.tree.count:
                fit_dipoles(like, self.corners, self.tree, *self._dipoles)
        for name, a in (("points", self._points), ("velocities", self._velocities)):
            # what numbers that a kernel chooses stand for
            self.still[name] = room(self.still[name], 0 if a is None else len(a), wb.vec3, self._points, fixed)
            if a is not None and len(a):
                launch(copied, len(a), [a], [self.still[name]])

    def built_arrays(self) -> tuple[array, ...]:
        """The arrays that `refit` writes."""
        return *self.tree.built_arrays, *self._dipoles, self.still["points"], self.still["velocities"]

    @property
    def state(self) -> tuple[array, ...]:
        """The arrays that `refit` writes, fixed from now on: part of the state of a checkpointed loop that refits."""
        return rebuilt_in_place(self, self.built_arrays())

    @property
    def edge(self) -> array:
        """The mean length of an edge, where the tree was fitted."""
        return self.tree.lengths

    @property
    def dipoles(self) -> array:
        """For winding numbers, of node `k`: the middle of its faces at `2 k`, then the sum of their area normals."""
        return self._winding()[0]

    @property
    def reach(self) -> array:
        """For winding numbers, of each node: how far its faces reach from their middle."""
        return self._winding()[1]

    def _winding(self) -> tuple[array, array]:
        if not self.support_winding_number:
            instead = "wb.Mesh(points, indices, support_winding_number=True)"
            raise LaunchError("This Mesh was not built for winding numbers.", slug="winding-number", instead=instead)
        return self._dipoles


BEFORE = "the same line before the `with wb.capture()` block"


# ---- in kernels


@library()
def corner(mesh: MESH, face: int, k: int):
    return mesh.points[mesh.indices[3 * face + k]]


@library()
def item_corners(mesh: MESH, item: int):
    """The corners of a triangle, by its place in the order of leaves, detached: for searches."""
    i = mesh.corners[item]
    a, b, c = mesh.points[uint32(i[0])], mesh.points[uint32(i[1])], mesh.points[uint32(i[2])]
    return wb.detach(a), wb.detach(b), wb.detach(c)


@library()
def best_item(mesh: MESH, best: float, of_node: Callable, node_args: Any, of_item: Callable, item_args: Any):
    """Place, in the order of leaves, of the triangle with the least `of_item` below `best`; -1 if there is none.

    `of_node` is a bound from below of those of its items. Of two children the one with the lower bound is visited
    first, the other later if its bound is still below the best so far.
    """
    tree = mesh.tree
    found = -1
    node, left = uint32(1), uint32(0)
    while node != uint32(0):
        if node < uint32(tree.leaves):
            first = uint32(2) * node
            d0, d1 = of_node(tree, first, *node_args), of_node(tree, first + uint32(1), *node_args)
            if wb.min(d0, d1) < best:
                node = wb.where(d1 < d0, first + uint32(1), first)
                left = uint32(2) * left + wb.where(wb.max(d0, d1) < best, uint32(1), uint32(0))
            else:
                node, left = climbed(node, left)
        else:
            if of_node(tree, node, *node_args) < best:
                first, end = leaf_items(tree, node)
                for k in range(first, end):
                    d = of_item(mesh, k, *item_args)
                    if d < best:
                        best = d
                        found = k
            node, left = climbed(node, left)
    return found


@library()
def mesh_get(mesh: MESH):
    """mesh_get(mesh: uint64) -> the mesh: its `points`, `indices` and `velocities` as arrays of the kernel."""
    return mesh


@library()
def mesh_get_bvh(mesh: MESH):
    """mesh_get_bvh(mesh: uint64) -> the tree of the mesh, whose items are its faces, for `bvh_query_aabb`, say."""
    return mesh.tree


@library()
def mesh_get_group_root(mesh: MESH, group: int):
    """mesh_get_group_root(mesh: uint64, group: int) -> int: what rays take as `root` to hit faces of a group alone.

    As `bvh_get_group_root`, for a mesh made with `groups`, an int for each face.
    """
    return group_root(mesh.tree, group)


@library()
def mesh_get_index(mesh: MESH, index: int):
    """mesh_get_index(mesh: uint64, index: int) -> int: the point of a corner; those of face f are 3 f to 3 f + 2."""
    return mesh.indices[index]


@library()
def mesh_get_point(mesh: MESH, index: int):
    """mesh_get_point(mesh: uint64, index: int) -> vec3: where a corner is; those of face f are 3 f to 3 f + 2."""
    return mesh.points[mesh.indices[index]]


@library()
def mesh_get_velocity(mesh: MESH, index: int):
    """mesh_get_velocity(mesh: uint64, index: int) -> vec3: how fast a corner moves; of face f, 3 f to 3 f + 2."""
    return mesh.velocities[mesh.indices[index]]


@library()
def mesh_eval_position(mesh: MESH, face: int, bary_u: float, bary_v: float):
    """mesh_eval_position(mesh: uint64, face: int, bary_u: float, bary_v: float) -> vec3: a point of a face.

    It is u a + v b + (1 - u - v) c of the corners a, b, c; differentiable by u, v and the points of the mesh.
    """
    w = 1.0 - bary_u - bary_v
    return bary_u * corner(mesh, face, 0) + bary_v * corner(mesh, face, 1) + w * corner(mesh, face, 2)


@library()
def mesh_eval_velocity(mesh: MESH, face: int, bary_u: float, bary_v: float):
    """mesh_eval_velocity(mesh: uint64, face: int, bary_u: float, bary_v: float) -> vec3: how fast it moves.

    As `mesh_eval_position`, of the velocities of the mesh, which it must have.
    """
    a, b = mesh_get_velocity(mesh, 3 * face), mesh_get_velocity(mesh, 3 * face + 1)
    return bary_u * a + bary_v * b + (1.0 - bary_u - bary_v) * mesh_get_velocity(mesh, 3 * face + 2)


@library()
def mesh_eval_face_normal(mesh: MESH, face: int):
    """mesh_eval_face_normal(mesh: uint64, face: int) -> vec3: of length 1; corners turn counter-clockwise around it.

    0 for a face without area.
    """
    a = corner(mesh, face, 0)
    return wb.normalize(wb.cross(corner(mesh, face, 1) - a, corner(mesh, face, 2) - a))
