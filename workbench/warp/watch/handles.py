"""Twins of hash grids, meshes and trees of boxes, which kernels get as a number: an address in Warp.

The twin gets that very number, so numbers in arrays and structs mean it too. A grid is built by the calls of
`HashGrid.build` that the watch hears: one that was built before, or in a way that ours cannot follow, makes launches
opaque. A mesh or a tree is made when a launch first comes to its number, from the arrays that it was made of.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from warp._src import codegen, types as warp_types

from ...arrays import allocation as memory
from ...geometry.box_queries import Bvh
from ...geometry.hash_grid import HashGrid
from ...geometry.mesh import Mesh
from ...launches.handles import number_as

PARTS = {  # the arrays that each kind is made of
    warp_types.Mesh: ("points", "velocities", "indices", "groups"),
    warp_types.Bvh: ("lowers", "uppers", "groups"),
}
NUMBERS = (int, np.uint64, warp_types.uint64)


class TwinHandles:
    """The twins of meshes, BVHs and grids by Warp's ids. Warp's objects are kept alive, so that no id is reused."""

    def __init__(self, twins: Any):
        self.twins = twins
        self.made: dict[int, tuple[Any, Any]] = {}

    def close(self) -> None:
        """Unregister the twins: no id refers to one of ours any more."""
        for number in self.made:
            number_as(None, number)

    # ---- what launches take

    def things(self, values: Iterable[Any]) -> list[Any]:
        """Warp's meshes and trees whose numbers are among these arguments, in structs and arrays too."""
        given = [v for v in values if _may_hold(v)]
        if not given or not self.living:
            return []
        numbers = dict.fromkeys(n for v in given for n in self.numbers(v))
        found = (self.living.get(n) for n in numbers)
        return [thing for thing in found if thing is not None and thing.device.is_cpu]

    def numbers(self, value: Any) -> Iterator[int]:
        if type(value) in NUMBERS:
            yield int(getattr(value, "value", value))
        elif isinstance(value, warp_types.array):
            if value.dtype is warp_types.uint64 and value.ptr and value.device is not None and value.device.is_cpu:
                yield from (int(n) for n in np.unique(value.numpy()))
        elif isinstance(value, codegen.StructInstance):
            kind: Any = type(value)
            for name in kind._cls.vars:
                yield from self.numbers(getattr(value, name))

    @cached_property
    def living(self) -> weakref.WeakValueDictionary[int, Any]:
        """Warp's live meshes and BVHs by id: those older than the watch are searched for once, new ones added."""
        things = (thing for thing in gc.get_objects() if type(thing) in PARTS)
        return weakref.WeakValueDictionary({thing.id: thing for thing in things if thing.id})

    def arrays(self, thing: object) -> list[Any]:
        """The arrays of Warp that a mesh or tree is made of."""
        parts = (_part(thing, name) for name in PARTS[type(thing)])
        return [a for a in parts if a is not None and a.ptr]

    # ---- twins

    def build(self, grid: Any, points: Any, radius: float, groups: Any) -> None:
        """Build a grid's twin as Warp built the grid. Raises Untranslated if points or groups have no twin."""
        known = self.made.get(grid.id)
        given = self.twins.array(points), None if groups is None else self.twins.array(groups)
        sizes = attrgetter("_dim_x", "_dim_y", "_dim_z")(grid)
        twin = known[1] if known else HashGrid(*sizes, dtype=self.twins.type(grid.dtype))
        twin.build(given[0], radius, given[1])
        self.made[grid.id] = grid, number_as(twin, grid.id)

    def forget(self, thing: Any) -> None:
        """Drop the twin of a mesh, BVH or grid: launches with its id rebuild it or become opaque."""
        self.made.pop(thing.id, None)
        number_as(None, thing.id)

    def prepare(self, values: Iterable[Any]) -> None:
        """Make the twins that a launch needs and that are not there. Raises Untranslated."""
        for thing in self.things(values):
            if self.twin(thing) is None:
                self.make(thing)
        for thing in self.things(v for v in values if isinstance(v, warp_types.array)):
            self.as_copy(thing)

    def make(self, thing: Any) -> None:
        """Make a twin from the present arrays, in memory of its own. Raises Untranslated if an array has no twin."""
        given = {name: self.twins.array(a) for name in PARTS[type(thing)] if (a := _part(thing, name)) is not None}
        with memory.unrecorded():
            if isinstance(thing, warp_types.Mesh):
                twin: Any = Mesh(**given, support_winding_number=bool(thing.support_winding_number))
            else:
                twin = Bvh(**given)
        self.made[thing.id] = thing, number_as(twin, thing.id)

    def twin(self, thing: Any) -> Any:
        """The twin of a mesh or tree of Warp's, None if it has none."""
        known = self.made.get(thing.id)
        return known[1] if known is not None and known[0] is thing else None

    def as_copy(self, thing: object) -> None:
        """Check a mesh or BVH whose id stands in an array: there it means a copy from its last fit, without a gradient.

        Arrays that want no gradient in Warp's program are taken off the leaves. Raises LookupError if its arrays have
        changed since the fit.
        """
        tape = memory.recorder()
        for name, copy in getattr(self.twin(thing), "still", {}).items():
            a = _part(thing, name)
            if a is None:
                continue
            twin = self.twins.array(a)
            floats = copy.data.dtype.kind == "f"
            if len(copy) and not np.array_equal(copy.data.ravel(), twin.data.ravel(), equal_nan=floats):
                raise LookupError(f"the {name} of a mesh have moved since it was fitted, and an array has its number")
            if name != "indices" and not a.requires_grad and tape is not None and twin.allocation not in tape.active:
                twin.requires_grad = False


def _may_hold(value: Any) -> bool:
    """True if an argument may contain the id of a mesh or BVH."""
    if type(value) in NUMBERS:
        return int(getattr(value, "value", value)) > 0xFFFF
    is_numbers = isinstance(value, warp_types.array) and value.dtype is warp_types.uint64
    return is_numbers or isinstance(value, codegen.StructInstance)


def _part(thing: object, name: str) -> Any:
    return getattr(thing, f"_{name}", None) if name in ("points", "velocities") else getattr(thing, name)
