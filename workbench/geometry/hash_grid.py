"""Points in the cells of a periodic grid, to find those that may be near: as for SPH and other particle methods.

The points of a cell lie side by side in `items`, in the order of their numbers: cell `c` has those from `starts[c]`
to `starts[c + 1]`. Cells of one row follow each other, so a query runs over rows: one stretch of `items` each, or two
where the row goes over the edge of the grid and comes in again on the other side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.array import array, new_array
from ..arrays.dtypes import DTypeLike
from ..device import DeviceLike, get_device
from ..errors import LaunchError
from ..kernels import kernel
from ..kernels.reading.declare import tid
from ..kernels.reading.library import library
from ..kernels.types import Array, Handle, Query, bool_, float16, float32, float64, int32, vector
from ..launches.handles import held, numbered, rebuilt_in_place
from ..launches.launch import launch, through
from .building import check, room, same_device
from .language import INTS, fields, wb

FAR = 1.0e9  # cells beyond this are one: their numbers would not fit int32


@library()
def cell_of(x: Any, inverse_width: float64):
    """The cell of a coordinate, not wrapped; in float64, so that no float32 is on the wrong side of an edge."""
    return int(wb.clamp(wb.floor(float64(x) * inverse_width), float64(-FAR), float64(FAR)))


@library()
def wrapped(cell: int, size: int):
    """The cell of a grid of `size` cells that stands for this one."""
    r = cell % size
    return wb.where(r < 0, r + size, r)


@library()
def around(grid: HASH_GRID, point: Any, max_dist: Any, grouped: bool, group: int):  # noqa: F821  read where it is used
    p, r, inverse = wb.detach(point), float64(wb.detach(max_dist)), grid.inverse_width
    px, py, pz = float64(p[0]), float64(p[1]), float64(p[2])
    x, y, z = cell_of(px - r, inverse), cell_of(py - r, inverse), cell_of(pz - r, inverse)
    nx = wb.clamp(cell_of(px + r, inverse) - x + 1, 0, grid.nx)
    ny = wb.clamp(cell_of(py + r, inverse) - y + 1, 0, grid.ny)
    nz = wb.clamp(cell_of(pz + r, inverse) - z + 1, 0, grid.nz)
    first = wrapped(x, grid.nx)
    parts = wb.where(first + nx > grid.nx, 2, 1)
    count = wb.where(nx > 0, ny * nz * parts, 0)
    y, z = wrapped(y, grid.ny), wrapped(z, grid.nz)
    return HashGridQuery(grid, first, y, z, nx, ny, parts, count, 0, 0, 0, grouped, group)


@library()
def hash_grid_query_of_group(grid: HASH_GRID, point: Any, max_dist: Any, group: int):  # noqa: F821
    return around(grid, point, max_dist, grid.groups.shape[0] > 0, group)


@library(other=hash_grid_query_of_group)
def hash_grid_query(grid: HASH_GRID, point: Any, max_dist: Any):  # noqa: F821
    """hash_grid_query(grid: uint64, point: vec3, max_dist: float) -> HashGridQuery: the points that may be near.

    `grid` is `HashGrid.id`; `point` and `max_dist` are of float16, float32 or float64. The query gives each point
    whose cell overlaps the cube of `2 * max_dist` around `point`, once, also where the cube is larger than the grid;
    some are further away, so the kernel compares distances itself. A fourth argument `group`, an int, restricts it to
    the points of one group, where the grid was built with groups. Which points come has no derivative; what is
    computed from them has.

    >>> @wb.kernel
    ... def count(grid: wb.uint64, x: wb.array[wb.vec3], r: float, n: wb.array[int]):
    ...     i = wb.tid()
    ...     for j in wb.hash_grid_query(grid, x[i], r):
    ...         if wb.length(x[i] - x[j]) < r:
    ...             n[i] += 1
    >>> x = wb.array([[0, 0, 0], [1, 0, 0], [5, 0, 0]], dtype=wb.vec3)
    >>> grid = wb.HashGrid(8, 8, 8)
    >>> grid.build(x, 2.0)
    >>> n = wb.zeros(3, dtype=int)
    >>> wb.launch(count, 3, [grid.id, x, 2.0, n])
    >>> n
    array([2, 2, 1], dtype=int32, shape=(3,))
    """
    return around(grid, point, max_dist, False, 0)


@library()
def advance_any(query: HashGridQuery):  # noqa: F821
    """(query moved on to its next point, number of that point or -1)."""
    grid = query.grid
    stretch, item, end = query.stretch, query.item, query.end
    while item >= end and stretch < query.count:
        row = stretch // query.parts
        y, z = (query.y + row % query.ny) % grid.ny, (query.z + row // query.ny) % grid.nz
        cells = (z * grid.ny + y) * grid.nx
        over = query.first + query.nx - grid.nx  # cells on the other side
        again = stretch % query.parts == 1
        item = grid.starts[cells + wb.where(again, 0, query.first)]
        end = grid.starts[cells + wb.where(again, over, wb.where(over > 0, grid.nx, query.first + query.nx))]
        stretch += 1
    index = -1
    if item < end:
        index = grid.items[item]
        item += 1
    query.stretch = stretch
    query.item = item
    query.end = end
    return query, index


@library()
def advance(query: HashGridQuery):  # noqa: F821
    query, index = advance_any(query)
    if query.grouped:
        while index >= 0 and query.grid.groups[index] != query.group:
            query, index = advance_any(query)
    return query, index


@library("query", "index")
def hash_grid_query_next(query: HashGridQuery, index: int):  # noqa: F821
    """hash_grid_query_next(query, index: int) -> bool: is there another point; `index` becomes its number.

    For `while` loops; `for index in query` does the same.
    """
    query, found = advance(query)
    return found >= 0, query, wb.where(found >= 0, found, index)


@library()
def hash_grid_point_id(grid: HASH_GRID, index: int):  # noqa: F821
    """hash_grid_point_id(grid: uint64, index: int) -> int: the number of a point from its place in the order of cells.

    Threads that take points in this order have neighbours in common.
    """
    return grid.items[index]


HASH_GRID = Handle(
    "HashGrid",
    fields(starts=INTS, items=INTS, groups=INTS, inverse_width=float64, nx=int32, ny=int32, nz=int32),
    empty=lambda: HashGrid(1, 1, 1),  # without points: what the number 0 stands for
)
_STATE = "first y z nx ny parts count stretch item end".split()


class PointQuery(Query):
    """Type of the result of `hash_grid_query`: `for` runs over it. `HashGridQuery[wb.float64]` is the same."""

    def __getitem__(self, dtype: object) -> PointQuery:
        return self


HashGridQuery = PointQuery(
    "HashGridQuery",
    (("grid", HASH_GRID), *((name, int32) for name in _STATE), ("grouped", bool_), ("group", int32)),
    next=advance,
)


@kernel
def find_cells(points: array(dtype=Any), inverse: float64, nx: int, ny: int, nz: int, cells: Array(int32)):
    i = tid()
    p = wb.detach(points[i])
    x, y, z = cell_of(p[0], inverse), cell_of(p[1], inverse), cell_of(p[2], inverse)
    cells[i] = (wrapped(z, nz) * ny + wrapped(y, ny)) * nx + wrapped(x, nx)


@kernel
def sort_by_cells(cells: Array(int32), starts: Array(int32), items: Array(int32)):
    """Stable counting sort in one thread, which is faster here than several that have to synchronise."""
    n = cells.shape[0]
    for c in range(starts.shape[0]):
        starts[c] = 0
    for i in range(n):
        starts[cells[i]] += 1
    end = 0
    for c in range(starts.shape[0]):
        end += starts[c]
        starts[c] = end
    for k in range(n):
        i = n - 1 - k
        c = cells[i]
        starts[c] -= 1
        items[starts[c]] = i


class HashGrid:
    """Points sorted into the cells of a grid, for `hash_grid_query` in kernels, which get `grid.id`.

    The grid is periodic: points of any coordinates find a place, and those that lie a whole grid apart share a cell.
    `dtype` is that of the points: float16, float32 or float64. `build(points, radius)` after the points have moved;
    queries before that find those of the last build. What a tape needs of that is kept for it.

    >>> grid = wb.HashGrid(16, 16, 16)
    >>> grid.build(wb.zeros(10, dtype=wb.vec3), radius=0.1)
    >>> grid.items.shape
    (10,)
    """

    handle = HASH_GRID

    def __init__(self, dim_x: int, dim_y: int, dim_z: int, device: DeviceLike = None, dtype: DTypeLike = None):
        kind = float32 if dtype in (None, float) else dtype
        if kind not in (float16, float32, float64):
            raise LaunchError(f"a HashGrid of {dtype} points", slug="dtype", instead="dtype=wb.float32")
        sizes = [int(n) for n in (dim_x, dim_y, dim_z)]
        if min(sizes) < 1 or np.prod(sizes, dtype=float) >= 2**31:
            text = f"a HashGrid of {dim_x} x {dim_y} x {dim_z} cells"
            why = "There is at least one cell along every axis, and fewer than 2^31 in all."
            raise LaunchError(text, slug="shape", why=why, instead="wb.HashGrid(128, 128, 128)")
        self.dtype, self._point = kind, vector(3, kind)
        self.nx, self.ny, self.nz = sizes
        self.inverse_width = 1.0
        self.built = False  # a capture wants to know
        self.device = get_device(device)
        self.starts = new_array(int(np.prod(sizes)) + 1, int32, self.device)
        self.items, self.groups, self._cells = (new_array(0, int32, self.device) for _ in range(3))
        self.id = numbered(self)

    @through
    def build(self, points: array, radius: float, groups: array | None = None) -> None:
        """Sort `points`, an array of vec3, into cells of width `radius`: about the distance that queries ask for.

        `groups`, an int for each point, are for queries of one group. Done by launches: a tape records them, a capture
        repeats them. Raises LaunchError for anything else, and [capture] where a living capture has read or built the
        grid for another number of points or another radius.
        """
        points = check("HashGrid.build", "points", points, self._point, None).contiguous().flatten()
        if groups is not None:
            groups = check("HashGrid.build", "groups", groups, int32, None).contiguous().flatten()
            if len(groups) != len(points):
                text = f"{len(groups)} groups for {len(points)} points of a HashGrid"
                raise LaunchError(text, slug="shape", instead="one for each")
        same_device("HashGrid.build", points, groups, self.starts)
        width = float(radius)
        if not 0.0 < width < np.inf:
            raise LaunchError(f"cells of width {radius}", slug="argument-type", instead="a radius above 0")
        fixed, n, inverse = held(self), len(points), min(1.0 / width, 1e300)
        if fixed and inverse != self.inverse_width:
            text = f"cells of another width, {radius}, in a HashGrid that a capture has read or built."
            why = "Its replays use the width of then."
            raise LaunchError(text, slug="capture", why=why, instead="wb.HashGrid(...), one for each width")
        self.starts = room(self.starts, len(self.starts), int32, self.starts, fixed)
        self.items = room(self.items, n, int32, self.starts, fixed)
        self.groups = room(self.groups, 0 if groups is None else n, int32, self.starts, fixed)
        self._cells = room(self._cells, n, int32, self.starts, fixed)
        self.inverse_width, self.built = inverse, True
        if n:
            launch(find_cells, n, [points, inverse, self.nx, self.ny, self.nz], [self._cells])
        launch(sort_by_cells, 1, [self._cells], [self.starts, self.items], device=self.device)
        if groups is not None and n:
            self.groups.assign(groups)

    def built_arrays(self) -> tuple[array, ...]:
        """The arrays that `build` writes."""
        return self.starts, self.items, self.groups, self._cells

    @property
    def state(self) -> tuple[array, ...]:
        """The arrays that `build` writes, fixed from now on: part of the state of a checkpointed loop that builds.

        Build the grid once before, for as many points.
        """
        return rebuilt_in_place(self, self.built_arrays())

    def reserve(self, num_points: int, with_groups: bool = False) -> None:
        """As in Warp; memory is taken when it is needed, so this does nothing."""


@library()
def minimum_image(d: Any, box: Any):
    """minimum_image(d: vec, box: vec) -> vec: the shortest of the differences `d` + whole multiples of the box's sides.

    Each component lies from -side/2 to side/2; a side of 0 does not repeat. Its derivative by `d` is the identity, by a
    side minus the number of sides taken off; exact but where a component is half a side, at which it jumps.

    >>> @wb.kernel
    ... def nearest(x: wb.array[wb.vec2], box: wb.vec2, d: wb.array[wb.vec2]):
    ...     d[0] = wb.minimum_image(x[1] - x[0], box)
    >>> d = wb.zeros(1, dtype=wb.vec2)
    >>> wb.launch(nearest, 1, [wb.array([[1.0, 1.0], [9.0, 4.0]], dtype=wb.vec2), wb.vec2(10.0, 0.0), d])
    >>> d.numpy().tolist()
    [[-2.0, 3.0]]
    """
    image = d
    for k in range(len(d)):
        if box[k] != type(box[k])(0):
            image[k] = d[k] - box[k] * wb.round(d[k] / box[k])
    return image
