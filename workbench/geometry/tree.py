"""A tree of boxes without pointers: complete and binary, node `k` over nodes `2 k` and `2 k + 1`, node 1 at the top.

Node `leaves + j` is leaf `j`, with `leaf_size` items of the order in `items`; only the last leaves have fewer or none.
Node `k` has the box from `boxes[2 k]` to `boxes[2 k + 1]`, item number `j` of the order that from `bounds[2 j]` to
`bounds[2 j + 1]`. Every split is at the median of the centres along the longest axis of their box, so the depth is
log2 of the leaves, and a walk needs no stack: where to go next is arithmetic, and what is left to visit, one bit for
each level (Hapala et al., Efficient Stack-less BVH Traversal for Ray Tracing, 2011, is the idea with pointers).
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ..arrays.array import array, new_array
from ..device import XpArray
from ..kernels.program import Kernel
from ..kernels.reading.library import library
from ..kernels.types import Handle, float32, int32, uint32
from ..launches.launch import through
from .building import module, room, stored
from .fitting import fit, fit_faces
from .language import INTS, POINTS, fields, wb
from .search import between

EVERYWHERE = NOWHERE = 3.0e38  # how far searches go, and the place of a box of nothing


class Tree:
    """A tree over boxes `lowers[i]` to `uppers[i]`: their order, and the boxes of nodes, which `fitted` computes."""

    def __init__(self, lowers: XpArray, uppers: XpArray, like: array, leaf_size: int, groups: XpArray | None):
        self.count = n = len(lowers)
        self.leaves = 1 << max(round(np.log2(max(n, 1) / leaf_size)), 0)
        self.leaf_size = -(-n // self.leaves)
        xp = module(lowers)
        names, ranks = xp.unique(xp.zeros(n, dtype=np.int32) if groups is None else groups, return_inverse=True)
        self.order = _order(lowers, uppers, ranks, self.leaves, self.leaf_size)
        self.items = stored(self.order, int32, like)
        self.names, self.ranks = stored(names, int32, like), stored(ranks[self.order], int32, like)
        self.spans = stored(self._spans(ranks[self.order]), int32, like)
        self.boxes = stored([] if n else np.full((4 * self.leaves, 3), NOWHERE), wb.vec3, like)
        self.bounds = new_array(0, wb.vec3, like.device)
        self.lengths = new_array(0 if n else 1, float32, like.device)

    def _spans(self, ranks: XpArray) -> Any:
        """The least and the largest group rank in each node k, at `2 k` and `2 k + 1`."""
        xp = module(ranks)
        spans = xp.empty((2 * self.leaves, 2), dtype=np.int32)
        spans[:, 0], spans[:, 1] = 2**31 - 1, -1
        for k in range(self.leaf_size):
            for end, best in ((0, xp.minimum), (1, xp.maximum)):
                some = ranks[k :: self.leaf_size]
                leaf = spans[self.leaves : self.leaves + len(some), end]
                leaf[...] = best(leaf, some)
        first = self.leaves // 2
        while first:
            below = spans[2 * first : 4 * first]
            spans[first : 2 * first, 0] = xp.minimum(below[0::2, 0], below[1::2, 0])
            spans[first : 2 * first, 1] = xp.maximum(below[0::2, 1], below[1::2, 1])
            first //= 2
        return spans.reshape(-1)

    def move_into(self, other: Tree) -> None:
        """Move into the memory of another tree over as many items. Raises LaunchError [capture]."""
        for name in ("items", "names", "ranks", "spans"):
            mine, theirs = getattr(self, name), getattr(other, name)
            room(theirs, len(mine), int32, mine, True).assign(mine)
            setattr(self, name, theirs)
        self.boxes, self.bounds, self.lengths = other.boxes, other.bounds, other.lengths

    @property
    def built_arrays(self) -> tuple[array, ...]:
        """The arrays that `fitted` writes."""
        return self.boxes, self.bounds, self.lengths

    @through
    def fitted(self, leaf: Kernel, arguments: list, fixed: bool) -> Tree:
        """The tree, with its boxes fitted to the present items; their order stays. See `fitting.fit`."""
        if not self.count:
            return self
        made, like = copy.copy(self), self.items
        made.boxes = room(self.boxes, 4 * self.leaves, wb.vec3, like, fixed)
        made.bounds = room(self.bounds, 2 * self.count, wb.vec3, like, fixed)
        made.lengths = room(self.lengths, 1 + (self.leaves if leaf is fit_faces else 0), float32, like, fixed)
        fit(leaf, arguments, made, self.count, made.boxes, made.bounds, made.lengths)
        return made


def _order(lowers: XpArray, uppers: XpArray, ranks: XpArray, leaves: int, leaf_size: int) -> Any:
    """The items such that every node has consecutive ones: halves by the median, level by level.

    Groups are parted first: their rank is an axis longer than all others, where there are several. What fills the last
    leaves up has centres beyond all others, so it stays last.
    """
    xp = module(lowers)
    n = len(lowers)
    several = n > 0 and int(ranks.max()) > 0
    axes = 4 if several else 3
    centres = xp.full((axes, leaves * leaf_size), 3e38, dtype=np.float32)
    size = 1e28 if several else 1e38
    centres[:3, :n] = xp.clip(xp.nan_to_num(0.5 * lowers + 0.5 * uppers), -size, size).T
    if several:
        centres[3, :n] = ranks.astype(np.float32) * np.float32(1e29)
    order = xp.arange(leaves * leaf_size)
    groups = 1
    while groups < leaves:
        inside, size = centres.reshape(axes, groups, -1), len(order) // groups
        axis = xp.argmax(inside.max(axis=2) - inside.min(axis=2), axis=0)
        halves = xp.argpartition(inside[axis, xp.arange(groups)], size // 2, axis=1)
        halves += size * xp.arange(groups)[:, None]
        order = order.take(halves.reshape(-1))
        centres = centres.take(halves.reshape(-1), axis=1)
        groups *= 2
    # in a leaf by number, and what only fills it up, last
    return xp.sort(order.reshape(leaves, leaf_size), axis=1).reshape(-1)[:n]


TREE = Handle(
    "Bvh",
    fields(boxes=POINTS, bounds=POINTS, items=INTS, leaves=int32, leaf_size=int32, count=int32)
    + fields(names=INTS, ranks=INTS, spans=INTS),
)


@library()
def skipped(node: uint32):
    """The next node of a walk in order after this subtree; 0 at the end."""
    node += uint32(1)
    while node % uint32(2) == uint32(0):
        node = node >> uint32(1)
    return wb.where(node == uint32(1), uint32(0), node)


@library()
def climbed(node: uint32, left: uint32):
    """(next node to visit, 0 for none; `left` without it): climbs up from a node that is done.

    `left` has a bit for each level up from that of `node`, the lowest: 1 if the sibling is still to be visited.
    """
    if left == uint32(0):
        node = uint32(0)
    while left != uint32(0) and left % uint32(2) == uint32(0):
        left = left >> uint32(1)
        node = node >> uint32(1)
    if left != uint32(0):
        left -= uint32(1)
        node = node ^ uint32(1)
    return node, left


@library()
def leaf_items(tree: TREE, node: uint32):
    """The first item of a leaf in the order of leaves, and the one after its last."""
    first = wb.max(int32(node - uint32(tree.leaves)) * tree.leaf_size, 0)
    return first, wb.min(first + tree.leaf_size, tree.count)


@library()
def node_box(tree: TREE, node: uint32):
    return wb.detach(tree.boxes[uint32(2) * node]), wb.detach(tree.boxes[uint32(2) * node + uint32(1)])


@library()
def box_distance_sq(tree: TREE, node: uint32, p: wb.vec3):
    """The square of the distance of a point to the box of a node, very large for an empty one."""
    low, high = node_box(tree, node)
    d = wb.max(wb.max(low - p, p - high), wb.vec3())
    return wb.dot(d, d)


@library()
def inverse(x: float):
    """1 / x for the planes of boxes: large where x is 0, and no infinity, which would make NaN of 0."""
    return wb.where(wb.abs(x) > 1.0e-30, 1.0 / x, 1.0e30)


@library()
def inverses(dir: wb.vec3):
    return wb.vec3(inverse(dir[0]), inverse(dir[1]), inverse(dir[2]))


@library()
def box_entry(low: wb.vec3, high: wb.vec3, start: wb.vec3, inv: wb.vec3):
    """The parameter t at which a ray from `start` enters a box, 0 from inside; 3.4e38 if it misses.

    The exit is moved out by more than its rounding error (Ize, Robust BVH Ray Traversal, 2013).
    """
    x0, x1 = (low[0] - start[0]) * inv[0], (high[0] - start[0]) * inv[0]
    y0, y1 = (low[1] - start[1]) * inv[1], (high[1] - start[1]) * inv[1]
    z0, z1 = (low[2] - start[2]) * inv[2], (high[2] - start[2]) * inv[2]
    enter = wb.max(wb.max(wb.min(x0, x1), wb.min(y0, y1)), wb.max(wb.min(z0, z1), 0.0))
    leave = wb.min(wb.min(wb.max(x0, x1), wb.max(y0, y1)), wb.max(z0, z1)) * 1.0000005
    return wb.where(enter <= leave, enter, 3.4e38)


@library()
def slab(low: float, high: float, start: float, inv: float):
    """(enter, leave): parameters of a ray between two parallel planes, also for a ray parallel to them."""
    x0, x1 = (low - start) * inv, (high - start) * inv
    enter, leave = wb.min(x0, x1), wb.max(x0, x1)
    if inv == 1.0e30:  # no motion across
        within = low <= start and start <= high
        enter, leave = wb.where(within, -3.4e38, 3.4e38), wb.where(within, 3.4e38, -3.4e38)
    return enter, leave


@library()
def exact_entry(low: wb.vec3, high: wb.vec3, start: wb.vec3, inv: wb.vec3):
    """As `box_entry`, for boxes without a margin."""
    x0, x1 = slab(low[0], high[0], start[0], inv[0])
    y0, y1 = slab(low[1], high[1], start[1], inv[1])
    z0, z1 = slab(low[2], high[2], start[2], inv[2])
    enter, leave = wb.max(wb.max(x0, y0), wb.max(z0, 0.0)), wb.min(wb.min(x1, y1), z1)
    return wb.where(enter <= leave * 1.0000005, enter, 3.4e38)


@library()
def node_entry(tree: TREE, node: uint32, start: wb.vec3, inv: wb.vec3, root: int):
    """As `box_entry`, of the box of a node; a node without items of the query's group `root` is missed."""
    low, high = node_box(tree, node)
    return wb.where(left_out(tree, node, root), 3.4e38, box_entry(low, high, start, inv))


# ---- groups


@library()
def group_root(tree: TREE, group: int):
    """The rank of a group, the `root` of queries; -2, the rank of no item, for an empty group."""
    rank = -2
    if tree.count > 0:
        at = between(tree.names, 0, tree.names.shape[0], group)
        rank = wb.where(tree.names[at] == group, at, -2)
    return rank


@library()
def left_out(tree: TREE, node: uint32, root: int):
    """True if a node has no item of the query's group `root` (-1: all groups)."""
    out = False
    if root != -1:
        out = root < tree.spans[uint32(2) * node] or root > tree.spans[uint32(2) * node + uint32(1)]
    return out


@library()
def is_other(tree: TREE, item: int, root: int):
    """True if an item is not in the query's group `root` (-1: all groups)."""
    other = False
    if root != -1:
        other = tree.ranks[item] != root
    return other
