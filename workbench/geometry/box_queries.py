"""Trees of boxes, and queries that run over all boxes, or faces of a mesh, that overlap something.

A query walks the tree in order. Its state is a node and the number of items of that leaf that were returned already, so
a `for` over it carries two numbers.
"""

from __future__ import annotations

from typing import Any

from ..arrays import capture_log
from ..arrays.array import array, new_array
from ..errors import LaunchError
from ..kernels.reading.library import library
from ..kernels.types import Array, Query, Struct, bool_, float32, int32, uint32
from ..launches.handles import held, numbered, rebuilt_in_place
from ..launches.launch import through
from .building import check, check_groups, check_order, contents, same_device
from .fitting import fit_boxes
from .language import fields, wb
from .mesh import BEFORE, MESH, item_corners
from .tree import EVERYWHERE, TREE, Tree, exact_entry, group_root, inverses, is_other, leaf_items, left_out, skipped
from .triangles import distance_sq

BOX, RAY, SPHERE = 0, 1, 2


class Bvh:
    """A tree over boxes from `lowers[i]` to `uppers[i]`, arrays of vec3, for queries in kernels, which get `bvh.id`.

    After boxes have moved, `refit()`, or `rebuild()` when they have moved far; queries before that find those of
    before. What a tape needs of the tree of before is kept for it. `groups`, an int for each box, are
    for queries of one group, see `bvh_get_group_root`.

    >>> bvh = wb.Bvh(wb.zeros(4, dtype=wb.vec3), wb.ones(4, dtype=wb.vec3))
    >>> bvh.refit()
    """

    handle = TREE

    @through
    def __init__(
        self,
        lowers: array,
        uppers: array,
        constructor: str | None = None,
        groups: array | None = None,
        leaf_size: int | None = None,
    ):
        self.lowers = check("Bvh", "lowers", lowers, wb.vec3)
        self.uppers = check("Bvh", "uppers", uppers, wb.vec3)
        self.groups = None if groups is None else check_groups("Bvh", groups, len(lowers))
        same_device("Bvh", lowers, uppers, groups)
        if lowers.shape != uppers.shape:
            text = f"a Bvh of {len(lowers)} lower and {len(uppers)} upper corners"
            raise LaunchError(text, slug="shape", instead="one of each")
        self.device = lowers.device
        self._leaf_size = check_order("Bvh", constructor, leaf_size)
        self.tree: Tree | None = None
        self.rebuild()
        self.id = numbered(self)

    @through
    def rebuild(self, constructor: str | None = None) -> None:
        """Build the tree anew for the boxes as they are now; in a capture it is fitted to them, and finds the same.

        Raises LaunchError [capture] for a tree with groups there.
        """
        if self.tree is not None and self.groups is None and capture_log.active_capture() is not None:
            self.refit()
            return
        what = "A Bvh is built"
        groups = None if self.groups is None else contents(self.groups, what, BEFORE)
        lowers, uppers = contents(self.lowers, what, BEFORE), contents(self.uppers, what, BEFORE)
        fixed, before = held(self), self.tree
        self.tree = Tree(lowers, uppers, self.lowers, self._leaf_size, groups)
        if before is not None and fixed:
            self.tree.move_into(before)
        self.refit()

    @through
    def refit(self) -> None:
        """Fit the tree to the boxes as they are now, by launches: a tape records them, a capture repeats them."""
        assert self.tree is not None
        self.tree = self.tree.fitted(fit_boxes, [self.lowers, self.uppers, self.tree.items], held(self))

    def built_arrays(self) -> tuple[array, ...]:
        """The arrays that `refit` writes."""
        assert self.tree is not None
        return self.tree.built_arrays

    @property
    def state(self) -> tuple[array, ...]:
        """The arrays that `refit` writes, fixed from now on: part of the state of a checkpointed loop that refits."""
        return rebuilt_in_place(self, self.built_arrays())

    def __getattr__(self, name: str) -> Any:
        """The fields that kernels read, from `tree`, which every build replaces. Raises AttributeError for others."""
        if name in dict(TREE.fields):
            return getattr(self.tree, name)
        raise AttributeError(f"a Bvh has no {name!r}")


# over no boxes: what the number 0 stands for
object.__setattr__(TREE, "empty", lambda: Bvh(new_array(0, wb.vec3), new_array(0, wb.vec3)))


@library()
def overlaps(query: BvhQuery, boxes: Array(wb.vec3), at: uint32):  # noqa: F821  defined below
    """True if a box touches the query's shape: a box from a to b, a thick ray from a, a ball around a."""
    low, high = wb.detach(boxes[uint32(2) * at]), wb.detach(boxes[uint32(2) * at + uint32(1)])
    a, b = query.a, query.b
    found = False
    if query.kind == BOX:
        found = (
            low[0] <= b[0]
            and low[1] <= b[1]
            and low[2] <= b[2]
            and high[0] >= a[0]
            and high[1] >= a[1]
            and high[2] >= a[2]
        )
    elif query.kind == RAY:
        grown = wb.vec3(query.size, query.size, query.size)
        found = exact_entry(low - grown, high + grown, a, b) <= query.reach
    else:
        d = wb.max(wb.max(low - a, a - high), wb.vec3())
        found = wb.dot(d, d) <= query.size
    return found


@library()
def advance(query: BvhQuery):  # noqa: F821  defined below
    """(query moved on to its next item, number of that item or -1)."""
    tree = query.tree
    node, item, index = query.node, query.item, -1
    while node != uint32(0) and index < 0:
        if left_out(tree, node, query.root) or (item == 0 and not overlaps(query, tree.boxes, node)):
            node = skipped(node)
        elif node < uint32(tree.leaves):
            node = uint32(2) * node
        else:
            first, end = leaf_items(tree, node)
            k = first + item
            while k < end and index < 0:
                if not is_other(tree, k, query.root) and overlaps(query, tree.bounds, uint32(k)):
                    index = k
                k += 1
            item = k - first
            if k >= end:
                node = skipped(node)
                item = 0
    query.node = node
    query.item = item
    return query, index


@library()
def advance_boxes(query: BvhQuery):  # noqa: F821
    query, found = advance(query)
    if found >= 0:
        found = query.tree.items[found]
    return query, found


@library()
def advance_faces(query: MeshQueryAABB):  # noqa: F821
    """As `advance`, over faces: a ball must touch the face itself, not only its box."""
    boxes, found = advance(query.boxes)
    if boxes.kind == SPHERE:
        inside = False
        while found >= 0 and not inside:
            a, b, c = item_corners(query.mesh, found)
            inside = distance_sq(a, b, c, boxes.a) <= boxes.size
            if not inside:
                boxes, found = advance(boxes)
    query.boxes = boxes
    if found >= 0:
        found = query.mesh.tree.items[found]
    return query, found


BvhQuery = Query(
    "BvhQuery",
    fields(
        tree=TREE, kind=int32, a=wb.vec3, b=wb.vec3, size=float32, reach=float32, node=uint32, item=int32, root=int32
    ),
    next=advance_boxes,
)
MeshQuery = MeshQueryAABB = Query("MeshQueryAABB", (("mesh", MESH), ("boxes", BvhQuery)), next=advance_faces)


# ---- queries of a tree


@library()
def bvh_get_group_root(bvh: TREE, group: int):
    """bvh_get_group_root(bvh: uint64, group: int) -> int: what queries take as `root` to find boxes of a group alone.

    Of a group without boxes it is -2, with which a query finds nothing.
    """
    return group_root(bvh, group)


@library()
def bvh_query_aabb(bvh: TREE, low: wb.vec3, high: wb.vec3, root: int = -1):
    """bvh_query_aabb(bvh: uint64, low: vec3, high: vec3) -> BvhQuery: the boxes that touch the one from low to high.

    A fourth argument `root` restricts it to one group, here and in the other queries: see `bvh_get_group_root`.
    """
    return BvhQuery(bvh, BOX, wb.detach(low), wb.detach(high), 0.0, 0.0, uint32(1), 0, root)


@library()
def bvh_query_ray(bvh: TREE, start: wb.vec3, dir: wb.vec3, root: int = -1):
    """bvh_query_ray(bvh: uint64, start: vec3, dir: vec3) -> BvhQuery: boxes that a ray meets, in no certain order."""
    return BvhQuery(bvh, RAY, wb.detach(start), inverses(wb.detach(dir)), 0.0, EVERYWHERE, uint32(1), 0, root)


@library()
def bvh_query_capsule(bvh: TREE, start: wb.vec3, dir: wb.vec3, radius: float, root: int = -1):
    """bvh_query_capsule(bvh: uint64, start: vec3, dir: vec3, radius: float) -> BvhQuery: as of a ray that is thick.

    It gives every box that a ball of this radius meets on its way, and may give some that it just misses.
    """
    r = wb.max(wb.detach(radius), 0.0)
    return BvhQuery(bvh, RAY, wb.detach(start), inverses(wb.detach(dir)), r, EVERYWHERE, uint32(1), 0, root)


@library()
def bvh_query_sphere(bvh: TREE, center: wb.vec3, radius: float, root: int = -1):
    """bvh_query_sphere(bvh: uint64, center: vec3, radius: float) -> BvhQuery: the boxes that a ball touches."""
    r, c = wb.max(wb.detach(radius), 0.0), wb.detach(center)
    return BvhQuery(bvh, SPHERE, c, c, r * r, 0.0, uint32(1), 0, root)


@library("query", "index")
def bvh_query_next(query: BvhQuery, index: int, max_dist: float = EVERYWHERE):
    """bvh_query_next(query: BvhQuery, index: int, max_dist: float) -> bool: is there another; `index` is its number.

    For `while` loops; `for index in query` does the same. `max_dist`, for rays and capsules, is how far to look, in
    lengths of the direction; it may become smaller from one call to the next.
    """
    query.reach = wb.detach(max_dist)
    query, found = advance_boxes(query)
    return found >= 0, query, wb.where(found >= 0, found, index)


# ---- queries of a mesh


@library()
def mesh_query_aabb(mesh: MESH, low: wb.vec3, high: wb.vec3):
    """mesh_query_aabb(mesh: uint64, low: vec3, high: vec3) -> MeshQueryAABB: the faces whose boxes touch this one."""
    return MeshQueryAABB(mesh, bvh_query_aabb(mesh.tree, low, high))


@library()
def mesh_query_sphere(mesh: MESH, center: wb.vec3, radius: float):
    """mesh_query_sphere(mesh: uint64, center: vec3, radius: float) -> MeshQueryAABB: the faces that a ball touches."""
    return MeshQueryAABB(mesh, bvh_query_sphere(mesh.tree, center, radius))


@library("query", "index")
def mesh_query_next(query: MeshQueryAABB, index: int):
    """mesh_query_next(query: MeshQueryAABB, index: int) -> bool: is there another face; `index` becomes its number.

    For `while` loops; `for index in query` does the same.
    """
    query, found = advance_faces(query)
    return found >= 0, query, wb.where(found >= 0, found, index)


mesh_query_aabb_next = mesh_query_next  # its older name


# ---- by blocks: the next results are a tile, of one element as a block is one thread


BvhQueryTiled = Struct("BvhQueryTiled", (("query", BvhQuery), ("more", bool_)))
MeshQueryAABBTiled = Struct("MeshQueryAABBTiled", (("query", MeshQueryAABB), ("more", bool_)))


@library()
def tile_bvh_query_aabb(bvh: TREE, low: wb.vec3, high: wb.vec3):
    """tile_bvh_query_aabb(bvh: uint64, low: vec3, high: vec3) -> query: `bvh_query_aabb` for `tile_bvh_query_next`."""
    return BvhQueryTiled(bvh_query_aabb(bvh, low, high), True)


@library()
def tile_bvh_query_ray(bvh: TREE, start: wb.vec3, dir: wb.vec3):
    """tile_bvh_query_ray(bvh: uint64, start: vec3, dir: vec3) -> query: `bvh_query_ray` for `tile_bvh_query_next`."""
    return BvhQueryTiled(bvh_query_ray(bvh, start, dir), True)


@library("query")
def tile_bvh_query_next(query: BvhQueryTiled):
    """tile_bvh_query_next(query) -> a tile of one int: the number of the next box, -1 behind the last."""
    moved, found = advance_boxes(query.query)
    query.query = moved
    query.more = found >= 0
    return wb.tile(found), query


@library()
def tile_mesh_query_aabb(mesh: MESH, low: wb.vec3, high: wb.vec3):
    """tile_mesh_query_aabb(mesh: uint64, low: vec3, high: vec3) -> query: `mesh_query_aabb` for the next name."""
    return MeshQueryAABBTiled(mesh_query_aabb(mesh, low, high), True)


@library("query")
def tile_mesh_query_aabb_next(query: MeshQueryAABBTiled):
    """tile_mesh_query_aabb_next(query) -> a tile of one int: the number of the next face, -1 behind the last."""
    moved, found = advance_faces(query.query)
    query.query = moved
    query.more = found >= 0
    return wb.tile(found), query


@library()
def tile_query_valid(query):
    """tile_query_valid(query) -> bool: True if the last results had one, and before the first."""
    return query.more


# Their older names.
bvh_query_aabb_tiled, bvh_query_ray_tiled = tile_bvh_query_aabb, tile_bvh_query_ray
bvh_query_next_tiled = tile_bvh_query_next
mesh_query_aabb_tiled, mesh_query_aabb_next_tiled = tile_mesh_query_aabb, tile_mesh_query_aabb_next
