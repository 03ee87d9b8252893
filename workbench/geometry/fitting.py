"""Kernels that fit the boxes of a tree, and what winding numbers need, to where the items are.

They are launches like a user's: a tape records them and a capture repeats them. Leaves first, each on its own; then
subtrees below `roots` nodes, each by one thread; then what is above them, by one. Nothing here has a derivative.
Of `min(low, x)` and `max(high, x)` a NaN in x is left out.
"""

from __future__ import annotations

from typing import Any

from ..arrays.array import array
from ..kernels import kernel
from ..kernels.program import Kernel
from ..kernels.reading.declare import tid
from ..kernels.reading.library import library
from ..kernels.types import Array, float32, int32, vector
from ..launches.launch import launch, through
from .language import wb

vec3i = vector(3, int32)
INF = float("inf")
ROOTS = 128  # subtrees at most


@kernel
def fit_faces(
    points: Array(wb.vec3),
    corners: Array(vec3i),
    leaves: int,
    size: int,
    boxes: Array(wb.vec3),
    bounds: Array(wb.vec3),
    lengths: Array(float32),
):
    j = tid()
    low, high, total = wb.vec3(INF, INF, INF), wb.vec3(-INF, -INF, -INF), 0.0
    for k in range(j * size, wb.min((j + 1) * size, corners.shape[0])):
        i = corners[k]
        a, b, c = wb.detach(points[i[0]]), wb.detach(points[i[1]]), wb.detach(points[i[2]])
        least = wb.min(wb.min(wb.min(wb.vec3(INF, INF, INF), a), b), c)
        most = wb.max(wb.max(wb.max(wb.vec3(-INF, -INF, -INF), a), b), c)
        bounds[2 * k] = least
        bounds[2 * k + 1] = most
        low, high = wb.min(low, least), wb.max(high, most)
        d = wb.sqrt(wb.dot(b - a, b - a))
        total += wb.where(d < 1.0e37, d, 0.0)
    boxes[2 * (leaves + j)] = low
    boxes[2 * (leaves + j) + 1] = high
    lengths[1 + j] = total


@kernel
def fit_boxes(
    lowers: Array(wb.vec3),
    uppers: Array(wb.vec3),
    items: Array(int32),
    leaves: int,
    size: int,
    boxes: Array(wb.vec3),
    bounds: Array(wb.vec3),
):
    j = tid()
    low, high = wb.vec3(INF, INF, INF), wb.vec3(-INF, -INF, -INF)
    for k in range(j * size, wb.min((j + 1) * size, items.shape[0])):
        i = items[k]
        least, most = wb.detach(lowers[i]), wb.detach(uppers[i])
        bounds[2 * k] = least
        bounds[2 * k + 1] = most
        low, high = wb.min(low, least), wb.max(high, most)
    boxes[2 * (leaves + j)] = low
    boxes[2 * (leaves + j) + 1] = high


@library()
def joined(boxes: Array(wb.vec3), node: int):
    boxes[2 * node] = wb.min(boxes[4 * node], boxes[4 * node + 2])
    boxes[2 * node + 1] = wb.max(boxes[4 * node + 1], boxes[4 * node + 3])


@kernel
def join_below(boxes: Array(wb.vec3), roots: int, levels: int):
    s = tid()
    for up in range(levels):
        first = (roots + s) << (levels - 1 - up)
        for k in range(1 << (levels - 1 - up)):
            joined(boxes, first + k)


@kernel
def join_above(boxes: Array(wb.vec3), roots: int, count: int, lengths: Array(float32)):
    """Join the top nodes. Node 0 gets the margin of boxes, for rays that run along a side; `lengths[0]` the mean."""
    for k in range(roots - 1):
        joined(boxes, roots - 1 - k)
    most = 0.0
    for k in range(3):
        most = wb.max(most, wb.max(wb.min(wb.abs(boxes[2][k]), 1.0e30), wb.min(wb.abs(boxes[3][k]), 1.0e30)))
    margin = 2.4e-7 * most
    boxes[0] = wb.vec3(margin, margin, margin)
    boxes[1] = wb.vec3(margin, margin, margin)
    total = 0.0
    for k in range(lengths.shape[0] - 1):
        total += lengths[1 + k]
    lengths[0] = total / float(count)


@library()
def end(x: float, margin: float, none: float):
    """A bound moved outwards; an empty box becomes a point further away than any search goes."""
    return wb.where(x == none, 3.0e38, x + margin)


@kernel
def grow(boxes: Array(wb.vec3)):
    node = tid() + 1
    low, high, m = boxes[2 * node], boxes[2 * node + 1], boxes[0][0]
    boxes[2 * node] = wb.vec3(end(low[0], -m, INF), end(low[1], -m, INF), end(low[2], -m, INF))
    boxes[2 * node + 1] = wb.vec3(end(high[0], m, -INF), end(high[1], m, -INF), end(high[2], m, -INF))


# ---- for winding numbers: sums over the faces of each node, then what they look like from afar


@kernel
def sum_faces(
    points: Array(wb.vec3), corners: Array(vec3i), leaves: int, size: int, sums: Array(wb.vec3), areas: Array(float32)
):
    j = tid()
    normal, middle, area = wb.vec3(), wb.vec3(), 0.0
    for k in range(j * size, wb.min((j + 1) * size, corners.shape[0])):
        i = corners[k]
        a, b, c = wb.detach(points[i[0]]), wb.detach(points[i[1]]), wb.detach(points[i[2]])
        n = 0.5 * wb.cross(b - a, c - a)
        here = wb.length(n)
        normal += n
        middle += here * ((a + b + c) / 3.0)
        area += here
    sums[2 * (leaves + j)] = middle
    sums[2 * (leaves + j) + 1] = normal
    areas[leaves + j] = area


@library()
def added(sums: Array(wb.vec3), areas: Array(float32), node: int):
    sums[2 * node] = sums[4 * node] + sums[4 * node + 2]
    sums[2 * node + 1] = sums[4 * node + 1] + sums[4 * node + 3]
    areas[node] = areas[2 * node] + areas[2 * node + 1]


@kernel
def add_below(sums: Array(wb.vec3), areas: Array(float32), roots: int, levels: int):
    s = tid()
    for up in range(levels):
        first = (roots + s) << (levels - 1 - up)
        for k in range(1 << (levels - 1 - up)):
            added(sums, areas, first + k)


@kernel
def add_above(sums: Array(wb.vec3), areas: Array(float32), roots: int):
    for k in range(roots - 1):
        added(sums, areas, roots - 1 - k)


@kernel
def reach_of(boxes: Array(wb.vec3), dipoles: Array(wb.vec3), reach: Array(float32)):
    node = tid() + 1
    low, high, area = boxes[2 * node], boxes[2 * node + 1], reach[node]
    middle = 0.5 * low + 0.5 * high
    if area > 0.0:
        middle = dipoles[2 * node] / area
    far = wb.max(wb.abs(low - middle), wb.abs(high - middle))
    dipoles[2 * node] = middle
    reach[node] = wb.min(wb.length(far), 3.0e38)


# ---- launches


@through
def fit(leaf: Kernel, arguments: list, tree: Any, count: int, boxes: array, bounds: array, lengths: array) -> None:
    """Fit `boxes`, `bounds` and, of faces, the mean of the `lengths` of edges, by a kernel for leaves."""
    roots = min(tree.leaves, ROOTS)
    more = [lengths] if leaf is fit_faces else []
    launch(leaf, tree.leaves, [*arguments, tree.leaves, tree.leaf_size], [boxes, bounds, *more], device=boxes.device)
    if tree.leaves > roots:
        levels = (tree.leaves // roots).bit_length() - 1
        launch(join_below, roots, [boxes, roots, levels], device=boxes.device)
    launch(join_above, 1, [boxes, roots, count, lengths], device=boxes.device)
    launch(grow, 2 * tree.leaves - 1, [boxes], device=boxes.device)


@through
def fit_dipoles(points: array, corners: array, tree: Any, dipoles: array, reach: array) -> None:
    """Fill `dipoles` and `reach` of each node, its faces as seen from afar: see `Mesh.dipoles` and `Mesh.reach`."""
    roots, device = min(tree.leaves, ROOTS), points.device
    launch(sum_faces, tree.leaves, [points, corners, tree.leaves, tree.leaf_size], [dipoles, reach], device=device)
    if tree.leaves > roots:
        levels = (tree.leaves // roots).bit_length() - 1
        launch(add_below, roots, [dipoles, reach, roots, levels], device=device)
    launch(add_above, 1, [dipoles, reach, roots], device=device)
    launch(reach_of, 2 * tree.leaves - 1, [tree.boxes], [dipoles, reach], device=device)
