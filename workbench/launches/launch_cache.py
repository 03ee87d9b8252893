"""The launch cache: everything that follows from the grid and the forms of the arguments is worked out once.

The key of an entry has the layouts of the arrays, those in structs included, and how they share memory: equal keys mean
equal aliases and bounds, also of arrays that are new. The rest is a guard, compared at each launch: the kernel's
source, and the numbers that indices use. Other numbers and vectors (dt, the number of a frame) may differ from launch
to launch. Nothing here keeps an array alive. `config.remember_launches = False` turns it off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ..arrays.array import layout_number, memory_of
from ..arrays.host_reads import sources_of
from ..device import DeviceLike
from ..kernels.lru import RecentlyUsed
from ..kernels.ops.functions import is_meant, mean
from ..kernels.parameter_types import IndexedArray
from ..kernels.program import MOST_PLANS, Kernel, Program
from ..kernels.types import Array, Composite, Scalar, Small, bool_
from .arguments import exact_ints, held, is_one
from .command import Command
from .plan import GridLike, Plan, PlannedLaunch

_NUMBERS = {int, float, bool, *[np.dtype(code).type for code in "?bhilqBHILQfd"]}  # which cannot change


class VaryingArgument(NamedTuple):
    """A value argument (number, vector or matrix) on which no plan depends, so it may differ from launch to launch.

    code, offset   `struct` format of it (or of each component), and its offset in the block of arguments.
    then, number   the argument of the cached launch (None for a vector, which is mutable), and the number passed on.
    """

    position: int
    type: Any
    code: str
    offset: int
    then: Any
    number: Any

    def taken(self, now: Any) -> Any:
        """The number in the parameter's type, or a copy of the vector; None if the full path has to check it."""
        if self.type.__class__ is not Scalar:
            right = now.__class__ is Small and is_one(now, self.type) and not sources_of(now)
            return now.view(np.ndarray).copy() if right else None
        if now.__class__ is self.type.numpy.type:
            return mean(now.item()) if is_meant(now) else now.item()
        if now.__class__ is float:
            return now if self.type.kind == "f" and held(now, self.type) else None
        if now.__class__ is int and now in exact_ints(self.type):
            return now if self.type.kind in "iu" else float(now)
        return None


@dataclass(eq=False, slots=True)
class CachedLaunch:
    """A cached launch: the plan for one key.

    numbers   (position, argument, number passed on) of the value arguments that must be equal again: a guard.
    free      those that may differ. bare: True if there is neither.
    """

    numbers: tuple
    free: tuple[VaryingArgument, ...]
    plan: Plan
    bare: bool = field(init=False)

    def __post_init__(self) -> None:
        self.bare = not (self.numbers or self.free)

    def fits(self, flat: Sequence[Any]) -> bool:
        """True if the guarded numbers equal those of the cached launch."""
        return all(flat[k] is then or _equal(flat[k], then) for k, then, _ in self.numbers)

    def take(self, flat: list) -> bool:
        """Put converted numbers into `flat`. False if one needs checking."""
        for k, _, number in self.numbers:
            flat[k] = number
        for free in self.free:
            now = flat[free.position]
            taken = free.number if now is free.then and now is not None else free.taken(now)
            if taken is None:
                return False
            flat[free.position] = taken
        return True


def flat_of(program: Program, args: tuple) -> Any:
    """The arguments, with structs replaced by their fields. Raises AttributeError for objects without these fields."""
    if program.structless:
        return args
    return tuple([args[leaf.arg] if take is None else take(args[leaf.arg]) for leaf, take, _ in program.sources])


class LaunchCache:
    """The launch cache of one program of a kernel."""

    def __init__(self, kernel: Kernel, program: Program):
        self.kernel, self.program = kernel, program
        self.count = len(program.params)
        self.arrays = program.array_positions
        self.all_arrays, self.structless = len(program.leaves) == len(self.arrays), program.structless
        bools = {k for k, leaf in enumerate(program.leaves) if leaf.type is bool_}
        self.fixed = tuple(sorted(bools.union(program.index_positions).difference(self.arrays)))
        self.known = RecentlyUsed(MOST_PLANS)  # key -> CachedLaunch
        self.latest: CachedLaunch | None = None

    def key(self, dim: Any, given: Sequence[Any], device: DeviceLike, switches: int) -> tuple:
        """The key of everything a plan depends on. Raises TypeError or AttributeError for arguments of other kinds."""
        arrays = given if self.all_arrays else [given[k] for k in self.arrays]
        aliases = None
        if len({*map(memory_of, arrays)}) < len(arrays):
            memories = list(map(memory_of, arrays))
            aliases = tuple([(memories.index(a.allocation), a.span.offset) for a in arrays])
        grid = dim if dim.__class__ is int else tuple(map(index, dim))
        return (grid, switches, device, aliases, *map(layout_number, arrays), *map(given.__getitem__, self.fixed))

    def find(self, dim: GridLike, args: tuple, device: DeviceLike, switches: int) -> Command | None:
        """The launch with its plan; None on a cache miss."""
        if len(args) != self.count:
            return None
        try:
            given = args if self.structless else flat_of(self.program, args)
            key = self.key(dim, given, device, switches)
            known = self.known.get(key)
            if known is not self.latest:
                self.known.move_to_end(key)
                self.latest = known
        except (TypeError, AttributeError, KeyError):  # KeyError: there is none, or another thread has removed it
            return None
        if known is None or not self.kernel.reads(self.program):
            return None
        if known.bare:
            return Command(self.program, known.plan, given, known)
        flat = [*given]
        fits = not known.numbers or known.fits(given)
        return Command(self.program, known.plan, flat, known) if fits and known.take(flat) else None

    def remember(
        self, dim: GridLike, args: tuple, device: DeviceLike, switches: int, command: PlannedLaunch
    ) -> CachedLaunch | None:
        """Enter a checked launch, and return the entry; None where its arguments do not determine it."""
        try:
            given = flat_of(self.program, args)
            if any(given[k] is not command.flat[k] for k in self.arrays):
                return None
            key = self.key(dim, given, device, switches)
            hash(key)
        except (TypeError, AttributeError):  # a number of another kind
            return None
        if any(given[k].__class__ not in _NUMBERS for k in self.fixed):
            return None
        free = self._free(given, command)
        if any(f.taken(given[f.position]) is None for f in free):
            return None
        made = CachedLaunch(tuple([(k, given[k], command.flat[k]) for k in self.fixed]), free, command.plan)
        self.known.enter(key, made)
        return made

    def _free(self, given: Sequence[Any], command: PlannedLaunch) -> tuple[VaryingArgument, ...]:
        found, fields = [], command.plan.forward.signature.fields_of_numbers
        for k, (code, offset) in fields.items():
            if k not in self.fixed:
                then = given[k] if given[k].__class__ in _NUMBERS else None
                found.append(VaryingArgument(k, self.program.leaves[k].type, code, offset, then, command.flat[k]))
        return tuple(found)


def _equal(now: object, then: object) -> bool:
    """True for an equal number of the same type; False for float zeros, which may differ in sign."""
    if now.__class__ is not then.__class__:
        return False
    if now.__class__ is float:
        return now == then != 0.0
    return (now.__class__ is int or issubclass(now.__class__, np.integer)) and now == then


def launches_of(kernel: Kernel, program: Program) -> LaunchCache | None:
    """A launch cache for this program; None if its arguments do not determine the launch (handles, omitted arrays)."""
    if kernel.reads_presence or program.presence_tests or program.handles or not program.array_positions:
        return None
    plain = all(
        leaf.opened is None
        and leaf.structs is None
        and (leaf.type.__class__ in (Array, Scalar) or isinstance(leaf.type, Composite))
        and not isinstance(program.params[leaf.arg][1], IndexedArray)
        and not (k in program.index_positions and isinstance(leaf.type, Composite))
        for k, leaf in enumerate(program.leaves)
    )
    return LaunchCache(kernel, program) if plain else None
