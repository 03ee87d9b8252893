"""Twins of hash grids, which kernels get as a number: an address in Warp, which becomes the number of the twin.

A twin is built by the calls of `HashGrid.build` that the watch hears; our tape keeps what each launch found in it.
A launch with a grid that was last built before the watch, or in a way that ours cannot follow, is opaque.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from ...geometry.hash_grid import HashGrid


class Grids:
    """The twins of grids, by Warp's number. Warp's own are kept too, so that none of these numbers is used twice."""

    def __init__(self, twins: Any):
        self.twins = twins
        self.made: dict[int, tuple[Any, HashGrid]] = {}

    def build(self, grid: Any, points: Any, radius: float, groups: Any) -> None:
        """The twin of a build. Raises Untranslated where points or groups have no twin."""
        known = self.made.pop(grid.id, None)  # while it fails there is none
        given = self.twins.array(points), None if groups is None else self.twins.array(groups)
        sizes = attrgetter("_dim_x", "_dim_y", "_dim_z")(grid)
        twin = known[1] if known else HashGrid(*sizes, dtype=self.twins.type(grid.dtype))
        twin.build(given[0], radius, given[1])
        self.made[grid.id] = grid, twin

    def number(self, value: Any) -> Any:
        """The twin's number for the number of a grid, anything else as it is."""
        return self.made[value][1].id if type(value) is int and value in self.made else value
