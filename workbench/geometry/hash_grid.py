"""Points in the cells of a periodic grid, to find those that may be near: as for SPH and other particle methods.

The points of a cell lie side by side in `items`, in the order of their numbers: cell `c` has those from `starts[c]`
to `starts[c + 1]`. Cells of one row follow each other, so a query runs over rows: one stretch of `items` each, or two
where the row goes over the edge of the grid and comes in again on the other side.
"""

# The types of the kernel language are values, not types of Python.
# pyright: reportInvalidTypeForm=false

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.array import array, new_array
from ..device import get_device
from ..errors import LaunchError
from ..kernels.reading.library import library
from ..kernels.types import Array, Handle, Query, float32, int32
from ..launches.handles import numbered
from .building import check, contents, module, segments, stored
from .language import wb

FAR = 1.0e9  # cells beyond this are one: their numbers would not fit int32


@library()
def cell_of(x: float, inverse_width: float):
    """The cell of a coordinate, not wrapped."""
    return int(wb.clamp(wb.floor(x * inverse_width), -FAR, FAR))


@library()
def wrapped(cell: int, size: int):
    """The cell of a grid of `size` cells that stands for this one."""
    r = cell % size
    return wb.where(r < 0, r + size, r)


@library()
def hash_grid_query(grid: HASH_GRID, point: wb.vec3, max_dist: float):  # noqa: F821  read where it is used
    """hash_grid_query(grid: uint64, point: vec3, max_dist: float) -> HashGridQuery: the points that may be near.

    `grid` is `HashGrid.id`. The query gives each point whose cell overlaps the cube of `2 * max_dist` around `point`,
    once, also where the cube is larger than the grid; some are further away, so the kernel compares distances itself.
    Which points come has no derivative; what is computed from them has.

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
    p, r, inverse = wb.detach(point), wb.detach(max_dist), grid.inverse_width
    x, y, z = cell_of(p[0] - r, inverse), cell_of(p[1] - r, inverse), cell_of(p[2] - r, inverse)
    nx = wb.clamp(cell_of(p[0] + r, inverse) - x + 1, 0, grid.nx)
    ny = wb.clamp(cell_of(p[1] + r, inverse) - y + 1, 0, grid.ny)
    nz = wb.clamp(cell_of(p[2] + r, inverse) - z + 1, 0, grid.nz)
    first = wrapped(x, grid.nx)
    parts = wb.where(first + nx > grid.nx, 2, 1)
    count = wb.where(nx > 0, ny * nz * parts, 0)
    return HashGridQuery(grid, first, wrapped(y, grid.ny), wrapped(z, grid.nz), nx, ny, parts, count, 0, 0, 0)


@library()
def advance(query: HashGridQuery):  # noqa: F821
    """The query moved on to its next point, and the number of that, or -1."""
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


@library("query", "index")
def hash_grid_query_next(query: HashGridQuery, index: int):  # noqa: F821
    """hash_grid_query_next(query, index: int) -> bool: is there another point; `index` becomes its number.

    For `while` loops; `for index in query` does the same.

    >>> @wb.kernel
    ... def first(grid: wb.uint64, p: wb.vec3, found: wb.array[int]):
    ...     query = wb.hash_grid_query(grid, p, 0.5)
    ...     index = int(-1)
    ...     while wb.hash_grid_query_next(query, index):
    ...         found[wb.tid()] = index
    >>> grid = wb.HashGrid(8, 8, 8)
    >>> grid.build(wb.array([[0, 0, 0], [3, 0, 0]], dtype=wb.vec3), 1.0)
    >>> found = wb.zeros(1, dtype=int)
    >>> wb.launch(first, 1, [grid.id, wb.vec3(3.2, 0.0, 0.0), found])
    >>> found.list()
    [np.int32(1)]
    """
    query, found = advance(query)
    return found >= 0, query, wb.where(found >= 0, found, index)


@library()
def hash_grid_point_id(grid: HASH_GRID, index: int):  # noqa: F821
    """hash_grid_point_id(grid: uint64, index: int) -> int: the number of a point from its place in the order of cells.

    Threads that take points in this order have neighbours in common.

    >>> @wb.kernel
    ... def order(grid: wb.uint64, out: wb.array[int]):
    ...     i = wb.tid()
    ...     out[i] = wb.hash_grid_point_id(grid, i)
    >>> grid = wb.HashGrid(8, 8, 8)
    >>> grid.build(wb.array([[3, 0, 0], [0, 0, 0]], dtype=wb.vec3), 1.0)
    >>> out = wb.zeros(2, dtype=int)
    >>> wb.launch(order, 2, [grid.id, out])
    >>> out.list()
    [np.int32(1), np.int32(0)]
    """
    return grid.items[index]


def empty_grid() -> HashGrid:
    """What the number 0 stands for: a grid without points."""
    return HashGrid(1, 1, 1)


HASH_GRID = Handle(
    "HashGrid",
    (("starts", Array(int32)), ("items", Array(int32)), ("inverse_width", float32), ("nx", int32), ("ny", int32),
     ("nz", int32)),
    empty=empty_grid,
)  # fmt: skip
_STATE = "first y z nx ny parts count stretch item end".split()
HashGridQuery = Query("HashGridQuery", (("grid", HASH_GRID), *((name, int32) for name in _STATE)), next=advance)


class HashGrid:
    """Points sorted into the cells of a grid, for `hash_grid_query` in kernels, which get `grid.id`.

    The grid is periodic: points of any coordinates find a place, and those that lie a whole grid apart share a cell.
    `build(points, radius)` after the points have moved; queries before that find those of the last build. Each build
    makes new arrays, so that launches on a tape keep the neighbours they had.

    >>> grid = wb.HashGrid(16, 16, 16)
    >>> grid.build(wb.zeros(10, dtype=wb.vec3), radius=0.1)
    >>> grid.items.shape
    (10,)
    """

    handle = HASH_GRID

    def __init__(self, dim_x: int, dim_y: int, dim_z: int, device: Any = None, dtype: Any = None):
        if dtype not in (None, float, float32):
            raise LaunchError(f"a HashGrid of {dtype} points", slug="dtype", instead="vec3 points, of float32")
        sizes = [int(n) for n in (dim_x, dim_y, dim_z)]
        if min(sizes) < 1 or np.prod(sizes, dtype=float) >= 2**31:
            raise LaunchError(
                f"a HashGrid of {dim_x} x {dim_y} x {dim_z} cells", slug="shape",
                why="There is at least one cell along every axis, and fewer than 2^31 in all.",
                instead="wb.HashGrid(128, 128, 128)",
            )  # fmt: skip
        self.nx, self.ny, self.nz = sizes
        self.inverse_width = 1.0
        self.device = get_device(device)
        self.starts = new_array(int(np.prod(sizes)) + 1, int32, self.device)
        self.items = new_array(0, int32, self.device)
        self.id = numbered(self)

    def build(self, points: array, radius: float, groups: Any = None) -> None:
        """Sort `points`, an array of vec3, into cells of width `radius`: about the distance that queries ask for.

        Raises LaunchError for anything else, and [capture] inside `wb.capture()`.
        """
        check("HashGrid.build", "points", points, wb.vec3, None)
        if groups is not None:
            raise LaunchError(
                "HashGrid.build(..., groups=) is not supported.", slug="launch-keyword",
                instead="compare the groups of two points in the kernel, or one grid for each group",
            )  # fmt: skip
        width = float(radius)
        if not 0.0 < width < np.inf:
            raise LaunchError(f"cells of width {radius}", slug="argument-type", instead="a radius above 0")
        x = contents(points, "A HashGrid is built", "grid.build(...) before the `with wb.capture()` block")
        xp = module(x)
        inverse = np.float32(1.0) / np.float32(width)
        # as `cell_of` does it, so that a point on the edge of a cell is looked for where it is
        cells = xp.nan_to_num(xp.clip(xp.floor(x * inverse), np.float32(-FAR), np.float32(FAR))).astype(np.int32)
        cells %= xp.asarray([self.nx, self.ny, self.nz], dtype=np.int32)
        flat = (cells[:, 2] * self.ny + cells[:, 1]) * self.nx + cells[:, 0]
        counts = xp.bincount(flat, minlength=self.nx * self.ny * self.nz)
        self.starts = stored(segments(counts), int32, points)
        self.items = stored(xp.argsort(flat, kind="stable"), int32, points)
        self.inverse_width = float(inverse)

    def reserve(self, num_points: int, with_groups: bool = False) -> None:
        """As in Warp; memory is taken when it is needed, so this does nothing."""
