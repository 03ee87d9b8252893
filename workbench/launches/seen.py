"""Launches seen before: what follows from the grid and the arguments of a launch is worked out once.

A kernel remembers it under the serial numbers of the arrays. No two arrays ever have the same one, and an array never
gets another memory, layout or dtype: equal numbers mean equal layouts, aliases and bounds. What may change otherwise
is compared at each launch: the kernel's reading, the switches, the device that was asked for, and the other arguments,
which must be the very objects of then (of types that cannot change), or floats that no index depends on. Nothing here
keeps an array alive. `config.remember_launches = False` turns it off.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

from ..arrays import allocation, capture_log
from ..arrays.array import pack_values
from ..arrays.host_reads import sources_of
from ..arrays.loans import lent
from ..config import config
from ..kernels.compile import steps
from ..kernels.program import Kernel, Program
from ..kernels.types import Array, Composite, Scalar, Small
from .plan import Plan

if TYPE_CHECKING:
    from .launch import Command

MOST = 1 << 14  # launches that a kernel remembers: some hundred bytes each
OFTEN = 16  # launches found, until compiled code is to look for them
_NUMBERS = {int, float, bool}
_COMPONENTS = object()  # stands for a vector or matrix of the host, which may change: what it held is compared


class Seen:
    """What follows from the arrays of one launch and its grid.

    grid      as it is remembered: an int, or a tuple.
    numbers   (position, the argument, the number that the kernel gets) of all that is no array.
    packed    the block of arguments, where every launch passes the same.
    lasting   False: of this one launch, whose numbers were never passed before.
    """

    __slots__ = ("switches", "grid", "device", "numbers", "plan", "values", "packed")

    def __init__(self, grid: Any, device: Any, numbers: tuple, plan: Plan, values: list):
        self.switches, self.grid, self.device, self.numbers = config.switches, grid, device, numbers
        self.plan, self.values = plan, values
        self.packed: bytes | None = None

    @property
    def lasting(self) -> bool:
        return self.switches >= 0


class Launches:
    """The launches of one program of a kernel that were seen before."""

    def __init__(self, kernel: Kernel, program: Program):
        self.kernel, self.program = kernel, program
        self.count = len(program.leaves)
        self.arrays = program.array_positions
        self.all_arrays = self.count == len(self.arrays)
        self.free = frozenset(range(self.count)) - {*program.index_positions}
        self.seen: dict[tuple, Seen] = {}
        self.quick: dict[tuple, tuple | None] = {}  # the same for `steps.c`
        self.found = 0
        self.once: set[int] = (
            set()
        )  # hashes of launches made once: of arrays that are new each time nothing more is kept

    def key(self, dim: Any, args: tuple) -> tuple:
        """What a launch is remembered by. Raises TypeError or AttributeError for arguments of other kinds."""
        grid = dim if dim.__class__ is int else tuple(map(index, dim))
        if self.all_arrays:
            return (grid, *[a.serial for a in args])
        return (grid, *[args[k].serial for k in self.arrays])

    def find(self, dim: Any, args: tuple, device: Any) -> tuple[Seen, list] | None:
        """What is known of this launch, and its flat arguments; None if it must be looked at."""
        if len(args) != self.count:
            return None
        try:
            key = self.key(dim, args)
            known = self.seen.get(key)
        except (TypeError, AttributeError):
            return None
        if known is None or known.device is not device or known.switches != config.switches:
            return None
        if not self.kernel.reads(self.program):
            return None
        flat = [*args]
        changed = False
        for k, then, number in known.numbers:
            now = args[k]
            if now is then or _equal(now, then, number):
                flat[k] = number
            elif now.__class__ is float and then.__class__ is float and k in self.free:
                changed = True
            else:
                return None
        if changed:
            made = object.__new__(Seen)
            made.plan, made.values, made.packed, made.switches = known.plan, pack_values(flat), None, -1
            return made, flat
        self.found += 1
        if self.found > OFTEN and key not in self.quick:
            self._hasten(key, known, args)
        return known, flat

    def _hasten(self, key: tuple, known: Seen, args: tuple) -> None:
        """Let compiled code find this launch from now on, where it is there and can."""
        functions = steps.ready()
        if functions is None or any(args[k].allocation.is_gradient for k, _ in known.plan.writes):
            return
        serials = tuple([n for k in self.arrays for n in (k, args[k].serial)])
        writes = tuple([n for k, _ in known.plan.writes for n in (k, 0)])
        self.quick[key] = steps.described(self.kernel, known, (None, None), serials, writes)
        Idle.begin(functions[1])

    def remember(self, dim: Any, args: tuple, device: Any, command: Command) -> None:
        """Note a launch that was found to be right, and the second time what it shares with those to come."""
        for k in self.arrays:
            if args[k] is not command.flat[k]:
                return
        key = self.key(dim, args)
        if hash(key) not in self.once:
            if len(self.once) >= MOST:
                self.once.clear()
            self.once.add(hash(key))
            return
        numbers: tuple = ()
        if not self.all_arrays:
            given = [(k, args[k], command.flat[k]) for k in range(self.count) if k not in self.arrays]
            if any(a.__class__ not in _NUMBERS and a.__class__ is not Small for _, a, _ in given):
                return
            numbers = tuple([(k, _COMPONENTS if a.__class__ is Small else a, n) for k, a, n in given])
        if len(self.seen) >= MOST:
            self.seen.clear()
            self.quick.clear()
        self.quick.pop(key, None)
        self.seen[key] = command.seen = Seen(key[0], device, numbers, command.plan, command.values)


class Idle:
    """Stands where a tape would that follows a track (`tapes.followed.Following`), while there is none."""

    fast: Any = ()
    quick: Any = None

    def step(self, *given: Any) -> bool:
        """Never the next step of a tape."""
        return False

    @staticmethod
    def begin(quick: Any) -> None:
        """From now on launches outside of tapes are looked for by compiled code first."""
        global idle, ahead
        if idle is not None:
            return
        before, idle = idle, Idle()
        lock = allocation.LOCK
        idle.fast = (
            allocation.tapes_of_threads, lent, vars(capture_log), vars(config), lock.acquire, lock.release, False
        )  # fmt: skip
        idle.quick = quick
        if ahead is before:
            ahead = idle


idle: Idle | None = None
ahead: Any = None  # what is asked first at a launch: `idle`, or what an open tape expects next


def same_numbers(known: Seen, args: tuple) -> bool:
    """Are all arguments that are no arrays those of then."""
    return all(args[k] is then or _equal(args[k], then, number) for k, then, number in known.numbers)


def _equal(now: Any, then: Any, number: Any) -> bool:
    """True for a number of the same type and bits, and for a vector or matrix of the host that holds `number` now."""
    if then is _COMPONENTS:
        same = now.__class__ is Small and now.shape == number.shape and now.dtype == number.dtype
        return same and now.tobytes() == number.tobytes() and not sources_of(now)
    if now.__class__ is float and then.__class__ is float:
        return now == then != 0.0
    return now.__class__ is int and then.__class__ is int and now == then


def launches_of(kernel: Kernel, program: Program) -> Launches | None:
    """What `kernel` remembers of its launches; None for a kernel whose arguments say too little.

    Structs and handles have arrays that may be exchanged, and an array that may be left out changes the program.
    """
    if kernel.asks or program.asked or program.handles or not program.array_positions:
        return None
    plain = all(
        leaf.arg == k and not leaf.path and leaf.opened is None and leaf.structs is None
        and (leaf.type.__class__ in (Array, Scalar) or isinstance(leaf.type, Composite))
        for k, leaf in enumerate(program.leaves)
    )  # fmt: skip
    return Launches(kernel, program) if plain and len(program.params) == len(program.leaves) else None
