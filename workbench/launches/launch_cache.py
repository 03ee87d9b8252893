"""The launch cache: everything that follows from the grid and the arguments of a launch is worked out once.

The key of an entry has the serial numbers of the arrays, those in structs included. No two arrays ever have the same
one, and an array never gets another memory, layout or dtype: equal serials mean equal layouts, aliases and bounds.
The rest is a guard, compared at each launch: the kernel's source, the switches, the device that was asked for, and the
numbers that indices use. Other numbers and vectors (dt, the number of a frame) may differ from launch to launch.
Nothing here keeps an array alive. `config.remember_launches = False` turns it off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ..arrays.array import layout_numbers
from ..arrays.host_reads import sources_of
from ..device import DeviceLike
from ..kernels.lru import RecentlyUsed
from ..kernels.parameter_types import IndexedArray
from ..kernels.program import MOST_PLANS, Kernel, Program
from ..kernels.types import Array, Composite, Scalar, Small
from .arguments import exact_ints, held, is_one
from .plan import GridLike, Plan, PlannedLaunch

MOST = 1 << 14  # launches that a kernel remembers: some hundred bytes each, and its plan where indices use numbers
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
            return now.item()
        if now.__class__ is float:
            return now if self.type.kind == "f" and held(now, self.type) else None
        if now.__class__ is int and now in exact_ints(self.type):
            return now if self.type.kind in "iu" else float(now)
        return None


@dataclass(eq=False, slots=True)
class CachedLaunch:
    """A cached launch: plan and packed arguments for one key (grid and arrays).

    numbers   (position, argument, number passed on) of the value arguments that must be equal again: a guard.
    free      those that may differ. bare: True if there is neither.
    values    as `Signature.pack` takes them, with the numbers of the cached launch.
    packed    the block of arguments made of `values`.
    """

    switches: int
    device: DeviceLike
    numbers: tuple
    free: tuple[VaryingArgument, ...]
    plan: Plan
    values: list
    packed: bytes | None = None
    bare: bool = field(init=False)

    def __post_init__(self) -> None:
        self.bare = not (self.numbers or self.free)

    def fits(self, flat: Sequence[Any]) -> bool:
        """True if the guarded numbers equal those of the cached launch."""
        return all(flat[k] is then or _equal(flat[k], then) for k, then, _ in self.numbers)

    def take(self, flat: list) -> bool | None:
        """Put converted numbers into `flat`. True if any differs from the cached launch; None if one needs checking."""
        for k, _, number in self.numbers:
            flat[k] = number
        changed = False
        for free in self.free:
            now = flat[free.position]
            if now is free.then and now is not None:
                flat[free.position] = free.number
                continue
            taken = free.taken(now)
            if taken is None:
                return None
            flat[free.position] = taken
            changed = True
        return changed


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
        self.fixed = tuple([k for k in range(len(program.leaves)) if not (k in self.arrays or self._is_free(k))])
        self.cached = RecentlyUsed(MOST_PLANS if self.fixed else MOST)  # key -> CachedLaunch
        self.layouts = RecentlyUsed(MOST_PLANS)  # for arrays that are new: one launch of each form, with its plan
        self.seen_once: set[int] = set()  # hashes of launches made once: of arrays new each time nothing more is kept

    def _is_free(self, k: int) -> bool:
        type: Any = self.program.leaves[k].type
        return k not in self.program.index_positions and not (type.__class__ is Scalar and type.kind == "b")

    def key(self, dim: Any, flat: Sequence[Any]) -> tuple:
        """The cache key of a launch. Raises TypeError or AttributeError for arguments of other kinds."""
        grid = dim if dim.__class__ is int else tuple(map(index, dim))
        return (grid, *[flat[k].serial for k in self.arrays], *[flat[k] for k in self.fixed])

    def find(
        self, dim: GridLike, args: tuple, device: DeviceLike, switches: int
    ) -> tuple[Plan, Sequence[Any], CachedLaunch | None, bool] | None:
        """(plan, flat arguments, cache entry, True if numbers differ from the entry's); None on a cache miss."""
        if len(args) != self.count:
            return None
        try:
            given = args if self.structless else flat_of(self.program, args)
            simple = self.all_arrays and dim.__class__ is int
            key = (dim, *[a.serial for a in given]) if simple else self.key(dim, given)
            known = self.cached.get(key)
            if known is None:
                return self._alike(key, given, device, switches)
            self.cached.move_to_end(key)
        except (TypeError, AttributeError, KeyError):  # KeyError: another thread has removed it by now
            return None
        if known.device is not device or known.switches != switches:
            return None
        if not self.kernel.reads(self.program) or not (known.bare or known.fits(given)):
            return None
        if known.bare:
            return known.plan, given, known, False
        flat = [*given]
        changed = known.take(flat)
        return None if changed is None else (known.plan, flat, known, changed)

    def _alike(
        self, key: tuple, given: Sequence[Any], device: DeviceLike, switches: int
    ) -> tuple[Plan, Sequence[Any], None, bool] | None:
        """As `find`, for new arrays: by an entry for others of the same layouts, none aliased. Returns no entry."""
        number = hash(key)
        known = None
        if number not in self.seen_once:
            known = self.layouts.find(self._layout(key, given, device, switches))
        if known is None or not self.kernel.reads(self.program) or not (known.bare or known.fits(given)):
            return None
        flat = given if known.bare else [*given]
        if not known.bare and known.take(flat) is None:
            return None
        self._note_once(number)
        return known.plan, flat, None, True

    def _layout(self, key: tuple, given: Sequence[Any], device: DeviceLike, switches: int) -> tuple | None:
        """The key of everything a plan depends on; None if two arrays share an allocation. Raises AttributeError."""
        arrays = given if self.all_arrays else [given[k] for k in self.arrays]
        if len({a.allocation for a in arrays}) < len(arrays):
            return None
        return (key[0], switches, device, *layout_numbers(arrays), *key[1 + len(arrays) :])

    def _note_once(self, number: int) -> None:
        if len(self.seen_once) >= MOST:
            self.seen_once.clear()
        self.seen_once.add(number)

    def remember(
        self, dim: GridLike, args: tuple, device: DeviceLike, switches: int, command: PlannedLaunch
    ) -> CachedLaunch | None:
        """Enter a checked launch the second time, and return the entry. For its layouts it is entered at once."""
        try:
            given = flat_of(self.program, args)
            if any(given[k] is not command.flat[k] for k in self.arrays):
                return None
            key = self.key(dim, given)
            layout = self._layout(key, given, device, switches)
            first = hash(key) not in self.seen_once
        except (TypeError, AttributeError):  # a number of another kind
            return None
        if first:
            self._note_once(hash(key))
            if layout is None or layout in self.layouts:
                return None
        if any(given[k].__class__ not in _NUMBERS for k in self.fixed):
            return None
        numbers = tuple([(k, given[k], command.flat[k]) for k in self.fixed])
        free = self._free(given, command)
        if any(f.taken(given[f.position]) is None for f in free):
            return None
        made = CachedLaunch(switches, device, numbers, free, command.plan, command.values)
        if first:
            self.layouts.enter(layout, made)
            return None
        self.cached.enter(key, made)
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
