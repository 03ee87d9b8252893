"""Plans: everything about a launch that depends only on layouts, grid and the numbers that indices use.

Bounds are checked, races that are certain are refused, the touched ranges, the variant of the text and the number of
workers are chosen. The second launch of the same form looks its plan up and costs a few microseconds.
"""

from __future__ import annotations

import ctypes
import logging
import math
import operator
from collections.abc import Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import capture_log
from ..arrays.array import array
from ..arrays.span import Span
from ..arrays.workspace import mark_view, mirrored_values, moved_values, moved_view, private_copies
from ..config import config
from ..device import Device, catch_up, get_device, let_follow, on_host, xp
from ..errors import BoundsError, GradientError, LaunchError, WorkbenchError
from ..kernels.analysis import launch_ranges
from ..kernels.analysis import work as cost
from ..kernels.analysis.accesses import accesses_by_array
from ..kernels.analysis.thread_conflicts import private, write_race
from ..kernels.compile import c_compiler
from ..kernels.emit.body import BOUNDS, STATUS_WORDS, Signature, Variant, access_table, needs_scratch
from ..kernels.interpreter import run
from ..kernels.ir import Function, root, walk
from ..kernels.ops import memory as rows
from ..kernels.ops.row import Effect
from ..kernels.passes import race_finder as racing
from ..kernels.passes import simplify
from ..kernels.passes import stencil_adjoint as gathering
from ..kernels.passes.adjoint import Reverse
from ..kernels.program import Groups, Program
from ..kernels.types import Array, is_float
from .arguments import views
from .private_sums import Shares, shares

log = logging.getLogger("workbench")

PARALLEL_FROM = 40_000  # statements of a launch below which one worker is faster than two that are awake
WAKE_FROM = 150_000  # below which it is faster than waking others
LONG_FROM = 2_000_000  # statements of a launch from which workers that are through help the others
SPLIT_FROM = 16_384  # threads below which two functions over memory in between cost more than they save


PULL_FROM = 2048  # threads below which a second function costs more than it saves


SCRATCH_BYTES = 256 << 20  # for the loop values of the threads that run at once on a GPU


SCRATCH_THREADS = 1 << 16


@dataclass(eq=False)
class Executable:
    """One function, ready to run for one variant on one backend."""

    function: Function
    backend: str
    variant: Variant
    workers: int
    contested: frozenset[str] = frozenset()  # where threads meet; not looked for in launches of a few threads
    shares: Shares | None = None
    box: tuple[int, ...] = ()  # first and one-past-last thread per dimension that `variant.inner` runs
    alone: bool = False  # on a GPU, one thread takes all cells
    pieces: int = 1  # in which each worker takes its share; others may take some of them
    signature: Signature = field(init=False)
    team: int = field(init=False)  # what the pool is told
    call: Any = field(init=False, default=None)
    direct: Any = field(init=False, default=None)  # the bare function, where nothing is to be done around it

    def __post_init__(self) -> None:
        self.signature = Signature(self.function, boxed=bool(self.box))
        self.team = c_compiler.team(self.workers, self.pieces)

    def run(
        self, program: Program, dims: tuple[int, ...], values: list, views: Any, rows: tuple[int, int] | None = None
    ) -> None:
        """`values`: flat, as `Signature.pack` takes them; `views()`: NumPy views, for the interpreter.

        `rows`: only these of the first launch dimension; on the C backend alone.
        """
        if 0 in dims:
            return
        if self.direct is not None and rows is None and capture_log.opened is None:
            self.direct(self.signature.pack(dims, values), 0, dims[0])
            return
        noted = capture_log.opened is not None and capture_log.check()
        if self.backend == "numpy":
            arrays = views()
            capture_log.do(lambda: run.run(self.function, dims, arrays))
            return
        if self.call is None:
            made = self.call = program.executable(self.function, self.backend, self.variant, _compiled)
            around = self.box or self.can_fail or self.shares or self.team != 1
            if isinstance(made, c_compiler.Compiled) and not around:
                self.direct = made.call
        if self.backend == "cuda":
            self._run_cuda(dims, values)
            return
        begin, end = rows or (0, dims[0])
        if self.box:
            values = [*values, *self.box]
        status = _status() if self.can_fail else None
        record = 0 if status is None else ctypes.addressof(status)
        if self.shares is not None:
            self.shares.run(self, dims, values, record, (begin, end))
        elif noted:
            capture_log.native(self.call.address, self.signature.pack(dims, values, record), begin, end, self.team)
        else:
            self.call(self.signature.pack(dims, values, record), begin, end, self.team)
        if noted and status is not None:
            self._watch(status)
        if status is not None and status[0]:
            self.fail(list(status))

    def _watch(self, status: Any) -> None:
        """After a replay: has the launch failed."""

        def look() -> WorkbenchError | None:
            record = on_host(status)
            if not record[0]:
                return None
            record, status[0] = [int(n) for n in record], 0
            try:
                self.fail(record)
            except WorkbenchError as error:
                return error
            return None

        capture_log.keep(status)
        capture_log.noting().checks.append(look)  # type: ignore[union-attr]

    def _run_cuda(self, dims: tuple[int, ...], values: list) -> None:
        """Queued on CuPy's current stream, in order with torch's; waits only where it can fail on the device.

        All but the launch itself is done once, also for a capture; what failed in a replay is looked for after it.
        """
        device = get_device("cuda")
        cupy, notes = xp(device), capture_log.noting()
        status = cupy.zeros(STATUS_WORDS, np.int64) if self.can_fail else None
        scratch = _scratch(cupy, notes) if needs_scratch(self.function) else None
        packed = self.signature.pack(
            dims, values, 0 if status is None else int(status.data.ptr),
            0 if scratch is None else int(scratch.data.ptr), 0 if scratch is None else SCRATCH_BYTES,
        )  # fmt: skip
        size = {"most_threads": 2**31 if scratch is None else SCRATCH_THREADS}
        if self.alone:
            size = {"most_threads": 1, "block": 1}

        def launch() -> None:
            if notes is not None and status is not None:
                status.fill(0)
            self.call.launch(packed, math.prod(dims), cupy.cuda.get_current_stream().ptr, **size)

        catch_up(device)
        capture_log.do(launch, device.ordinal)
        let_follow(device)
        if notes is not None and status is not None:
            self._watch(status)
        if status is not None and int(status[0]):
            self.fail([int(n) for n in status])

    @cached_property
    def can_fail(self) -> bool:
        """Can the code itself find that something is wrong."""
        return self.variant.check_bounds or needs_scratch(self.function)

    def fail(self, status: list[int]) -> None:
        """The device wrote an error record: code, access, thread, number of indices, indices, extents."""
        code, access, thread, n = status[:4]
        where, name, row = access_table(self.function)[access]
        if code == BOUNDS:
            raise BoundsError(
                f"Kernel {self.function.name!r}: `{row}` outside array {name!r}: thread {thread} uses index"
                f" {tuple(status[4 : 4 + n])} of shape {tuple(status[10 : 10 + n])}.",
                slug="bounds", where=where, instead="check the index with `if 0 <= index < array.shape[0]:`",
            )  # fmt: skip
        raise memory_exhausted(self.function.name, where)


def _compiled(coming: Future) -> Any:
    """What is being compiled, with a progress bar where that takes long."""
    try:
        return coming.result(timeout=PATIENCE_S)
    except TimeoutError:
        pass
    from tqdm.auto import tqdm

    compiling = c_compiler.coming()
    with tqdm(total=len(compiling), desc="compiling kernels", leave=False) as bar:
        for _ in as_completed(compiling):
            bar.update()
    return coming.result()


def memory_exhausted(name: str, where: Any) -> GradientError:
    return GradientError(
        f"Kernel {name!r} ran out of the memory in which its reverse pass keeps loop values.", slug="stack-full",
        where=where, why="A gradient from what is left would be wrong.", instead="fewer turns per launch",
    )  # fmt: skip


def _scratch(cupy: Any, notes: Any) -> Any:
    """Memory of a GPU for the loop values of one launch, or of all launches of a capture."""
    if notes is None:
        return cupy.empty(SCRATCH_BYTES, np.uint8)
    if notes.scratch is None:
        notes.scratch = cupy.empty(SCRATCH_BYTES, np.uint8)
    return notes.scratch


def _status() -> Any:
    return (ctypes.c_int64 * STATUS_WORDS)()


PATIENCE_S = 1.0  # for a compiler, without a word


UNKNOWN = object()


@dataclass(eq=False)
class Plan:
    """What all launches of one form share. Positions are those of flat parameters."""

    program: Program
    dims: tuple[int, ...]
    backend: str
    groups: Groups
    twins: tuple[tuple[str, str], ...]  # (name, other): the same elements of the same memory
    contiguous: frozenset[str]
    index32: bool
    forward: Executable
    reads: tuple[tuple[int, Any], ...]  # (position, box or None for the whole array)
    writes: tuple[tuple[int, Any], ...]
    accumulates_only: frozenset[int]
    float_reads: frozenset[int]
    float_writes: frozenset[int]
    floats: dict[int, Any]  # position -> scalar type
    plain: frozenset[int]  # of `floats`: rows without gaps of numbers of 32 or 64 bits
    overlapping: frozenset[str]  # arrays whose own elements share bytes
    scalars: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    reverses: dict[tuple[int, ...], Backward] = field(default_factory=dict)
    _races: Any = UNKNOWN

    @cached_property
    def bits(self) -> tuple[int, ...]:
        """The arrays that are written and hold no floats."""
        return tuple(k for k, _ in self.writes if k not in self.floats)

    def races(self) -> Races | None:
        """The race finder of these launches; None where no two threads can touch one element."""
        if self._races is UNKNOWN:
            self._races = _races(self)
        return self._races

    def backward(self, active: tuple[int, ...]) -> Backward:
        """The adjoint for these active positions, with how to run it."""
        found = self.reverses.get(active)
        if found is None:
            names = frozenset(self.program.leaves[k].name for k in active)
            found = self.reverses[active] = _backward(self, names)
        return found


@dataclass(eq=False)
class Backward:
    """An adjoint and its executable. `shadows`: positions of the active parameters, in order."""

    reverse: Reverse
    executable: Executable
    shadows: tuple[int, ...]
    needs: tuple[tuple[int, Any], ...]
    private: tuple[int, ...]
    extremal: tuple[int, ...] = ()
    count: Executable | None = None
    gather: Gather | None = None
    races: Races | None = None
    pull: Pull | None = None

    def run(
        self, plan: Plan, packed: list, flat: list, space: Any, views: Any, fresh: tuple[int, ...] = (),
        rest: bool = True,
    ) -> None:  # fmt: skip
        """Run the adjoint in the form chosen for this launch, on the shadows of `space`.

        `packed`, `views`: as `Executable.run` takes them. `fresh`: targets of `pull` that hold nothing yet. rest=False
        leaves out what comes behind `pull`.
        """
        if self.gather is not None:
            self.executable.run(plan.program, plan.dims, packed + self.gather.part_values, None)
            shadows = [(k, space[flat[k].allocation]) for k in self.gather.targets]
            self.gather.run(plan.program, mirrored_values(flat, shadows))
            return
        if self.pull is not None:
            self.pull.run(plan.program, packed, fresh)
        if rest:
            self.executable.run(plan.program, plan.dims, packed, views)


@dataclass(eq=False)
class Pull:
    """What runs before an adjoint from which contributions to other cells were taken out (`kernels.gather.pull`)."""

    ready: Any  # the executable that stores to some targets, as they are fresh, and adds to the others
    dims: tuple[int, ...]
    grid: tuple[int, ...]
    targets: tuple[int, ...]  # positions
    covers: bool  # does it touch every cell of its targets
    cleared: tuple[int, ...] | None  # the shadows that the rest only clears; None: it does more than that
    made: dict[tuple[int, ...], Executable] = field(default_factory=dict)

    def run(self, program: Program, values: list, fresh: tuple[int, ...]) -> None:
        """`fresh`: the targets that hold nothing yet."""
        if fresh not in self.made:
            self.made[fresh] = self.ready(fresh)
        self.made[fresh].run(program, self.dims, [*values, *self.grid], None)


@dataclass(eq=False)
class Races:
    """The race finder of a launch whose stores are not proven apart. `checked`, `private`: positions of parameters."""

    guard: racing.Guard
    executable: Executable
    checked: tuple[int, ...]
    private: tuple[int, ...]

    def check(self, plan: Plan, flat: list, values: list) -> None:
        """Run the race finder twice over the present memory, which is what the launch sees. Raises GradientError."""
        with capture_log.unnoted():
            self._check(plan, flat, values)

    def _check(self, plan: Plan, flat: list, values: list) -> None:
        module = xp(flat[self.checked[0]].device)
        memories = {flat[k].allocation for k in self.checked}
        bases = {a: [module.zeros(a.nbytes, np.int32) for _ in racing.MARKS] for a in memories}
        marks = [mark_view(flat[k], base) for k in self.checked for base in bases[flat[k].allocation]]
        marks.append(module.zeros(racing.FOUND, np.int32))
        for _ in range(2):
            copies = private_copies(self.private, flat)
            packed = moved_values(flat, copies) if copies else list(values)
            for data in marks:
                packed.append(int(data.data.ptr) if hasattr(data, "get") else data.__array_interface__["data"][0])
                packed += data.shape
                packed += data.strides

            def seen(copies: dict = copies) -> list:
                arrays = views(plan.program.function, flat)
                for k, (data, first) in copies.items():
                    arrays[k] = moved_view(flat[k], data, first)
                return arrays + marks

            self.executable.run(plan.program, plan.dims, packed, seen)
        found = [int(n) for n in marks[-1]]
        if found[0]:
            raise self.refuse(plan, found)

    def fix(self, plan: Plan, flat: list) -> None:
        """A replay does not look again, so what decides who meets whom must be then as it is now."""
        notes = capture_log.noting()
        if notes is not None:
            names = {k: plan.program.leaves[k].name for k in plan.program.array_positions}
            needed = [flat[k].allocation for k, name in names.items() if name in self.guard.needs]
            notes.fixed.update(dict.fromkeys(needed, plan.program.name))

    def refuse(self, plan: Plan, found: Sequence[int]) -> GradientError:
        """What the record says: two threads, two lines, one array."""
        where, name, row = self.guard.table[found[0] - 1]
        there, _, other_row = self.guard.table[found[3] - 1]
        one, other = (_thread(n, plan.dims) for n in (found[1], found[2]))
        lines = f"line {where.line if where else '?'} ({row}) and line {there.line if there else '?'} ({other_row})"
        place = _element(plan.program.function, name, found[racing.PLACE :], plan.shapes[name])
        return GradientError(
            f"Kernel {plan.program.name!r}: threads {one} and {other} touch one element of {name!r}, {place},"
            f" in {lines}.",
            slug="race", where=where,
            why="Threads have no order, so the result, and its gradient, are a matter of luck.",
            instead=f"wb.atomic_add({name}, ..., value), or another array for the results",
        )  # fmt: skip


def _element(function: Function, name: str, words: Sequence[int], shape: tuple[int, ...]) -> str:
    """`y[3]`, or `y[3][1]` for a component. Negative indices count from the end."""
    inner = next(getattr(p.type.dtype, "shape", ()) for p in function.arrays if p.name == name)  # type: ignore[attr-defined]
    index = [i % n for i, n in zip(words, (*shape, *inner), strict=False)]
    parts = index[: len(shape)], index[len(shape) :]
    return name + "".join(str(part) for part in parts if part)


def _thread(number: int, dims: tuple[int, ...]) -> Any:
    """The index of thread `number` (from 1); -1 stands for several."""
    if number < 1:
        return "others"
    index = tuple(int(i) for i in np.unravel_index(number - 1, dims))
    return index[0] if len(index) == 1 else index


@dataclass(eq=False)
class Gather:
    """The second half of an adjoint that was split into a map and a gather (`kernels.gather`), with room for its parts.

    Parts keep their rim of zeros and are used by one walk at a time, so they are made once.
    """

    executable: Executable
    targets: tuple[int, ...]
    dims: tuple[int, ...]
    parts: tuple[Any, ...]

    @property
    def part_values(self) -> list:
        values: list = []
        for data in self.parts:
            values.append(data.__array_interface__["data"][0])
            values += data.shape[: len(self.dims)]
            values += data.strides[: len(self.dims)]
        return values

    def run(self, program: Program, shadow_values: list) -> None:
        self.executable.run(program, self.dims, shadow_values + self.part_values, None)


def grid(kernel: str, dim: Any) -> tuple[int, ...]:
    """The launch grid as a tuple. Raises LaunchError."""
    if dim.__class__ is int and 0 <= dim < 2**31:
        return (dim,)
    dims = (dim,) if isinstance(dim, int | np.integer) else dim
    try:
        dims = tuple([operator.index(d) for d in dims])
    except (TypeError, ValueError):
        raise LaunchError(
            f"Kernel {kernel!r}: dim={dim!r} is not a grid.", slug="dim", instead="dim=n or dim=(n, m)"
        ) from None
    if not 1 <= len(dims) <= 4 or min(dims) < 0 or max(dims) >= 2**31:
        raise LaunchError(f"Kernel {kernel!r}: dim={dim!r} must be 1 to 4 extents from 0 to 2**31 - 1.", slug="dim")
    return dims


def _dims(program: Program, dims: tuple[int, ...]) -> tuple[int, ...]:
    """A kernel that never asks which thread it is runs on any grid."""
    return dims if program.asks_thread else (math.prod(dims),)


def plan(kernel: str, program: Program, dims: tuple[int, ...], flat: list[Any], device: Device | None) -> Plan:
    """The plan of this form, made when it is new."""
    if len(dims) != program.function.rank:
        dims = _dims(program, dims)
    positions = program.array_positions
    arrays = [flat[k] for k in positions] if program.takes_numbers else flat
    apart = len({a.allocation for a in arrays}) == len(arrays)
    groups = () if apart else _groups(program, positions, flat)
    twins = _twins(program, positions, flat) if groups else ()
    numbers = tuple([flat[k] for k in program.index_positions]) if program.index_positions else ()
    key = (dims, numbers, groups, twins, config.switches, device and device.ordinal, *[a._layout for a in arrays])
    found = program.plans.get(key)
    if found is None:
        if config.verbose:
            log.info("kernel %s: a new plan for dim=%s", kernel, dims)
        found = program.plans[key] = _make(kernel, program, dims, flat, positions, groups, twins, device)
    return found


def _twins(program: Program, positions: tuple[int, ...], flat: list[Any]) -> tuple[tuple[str, str], ...]:
    """Parameters that got one array twice."""
    first: dict[tuple, str] = {}
    pairs = []
    for k in positions:
        name = program.leaves[k].name
        kept = first.setdefault((flat[k].span, flat[k].dtype), name)
        if kept != name:
            pairs.append((kept, name))
    return tuple(pairs)


def _groups(program: Program, positions: tuple[int, ...], flat: list[Any]) -> Groups:
    """Sets of array parameters that may share bytes."""
    groups: list[set[int]] = []
    for n, k in enumerate(positions):
        for j in positions[:n]:
            if flat[j].span.overlaps(flat[k].span) is not False:
                joined = [g for g in groups if j in g or k in g]
                groups = [g for g in groups if g not in joined] + [{j, k}.union(*joined)]
    return tuple(sorted((frozenset(program.leaves[k].name for k in g) for g in groups), key=sorted))


def backend_for(arrays: Sequence[array], device: Device | None, kernel: str) -> str:
    """Where the launch runs. Raises LaunchError if arrays live on different devices."""
    devices = {a.device for a in arrays}
    if len(devices) > 1 or (device is not None and devices and devices != {device}):
        listed = ", ".join(sorted(str(d) for d in devices))
        raise LaunchError(
            f"Kernel {kernel!r}: arrays on {listed}" + (f", launch on {device}" if device else "") + ".",
            slug="device", instead='a.to("cpu") or a.to("cuda:0")',
        )  # fmt: skip
    where = devices.pop() if devices else device or get_device(None)
    if where.is_cuda:
        return "cuda"
    if config.backend in ("c", "numpy"):
        return config.backend
    return "c" if c_compiler.available() else "numpy"


def _make(
    kernel: str, program: Program, dims: tuple[int, ...], flat: list[Any], positions: tuple[int, ...],
    groups: Groups, twins: tuple[tuple[str, str], ...], device: Device | None,
) -> Plan:  # fmt: skip
    function = program.function
    if function.rank != len(dims):
        raise LaunchError(
            f"Kernel {kernel!r} takes {function.rank} thread indices from tid(), dim={dims} has {len(dims)}.",
            slug="dim-rank", where=function.where, instead=f"dim=({', '.join('nmkl'[: function.rank])})",
        )  # fmt: skip
    backend = backend_for([flat[k] for k in positions], device, kernel)
    shapes = {program.leaves[k].name: flat[k].shape for k in positions}
    scalars = {leaf.name: a for leaf, a in zip(program.leaves, flat, strict=True) if not isinstance(a, array)}
    launch_ranges.check(function, dims, scalars, shapes)
    _refuse_race(kernel, function, dims, scalars, shapes)
    boxes = accesses_by_array(function)
    touched = {
        how: tuple((k, _box(getattr(boxes[program.leaves[k].name], how), dims, scalars, flat[k].shape, shapes))
                   for k in positions if getattr(boxes.get(program.leaves[k].name), how, ()))
        for how in ("reads", "writes")
    }  # fmt: skip
    contiguous = frozenset(program.leaves[k].name for k in positions if flat[k].is_contiguous)
    overlapping = frozenset(program.leaves[k].name for k in positions if flat[k].span.self_overlapping)
    index32 = math.prod(dims) < 2**31
    index32 = index32 and all(flat[k].size * getattr(flat[k].dtype, "size", 1) < 2**31 for k in positions)
    types = {k: program.leaves[k].type for k in positions}
    floats = {k: type.dtype.scalar for k, type in types.items() if is_float(type)}  # type: ignore[union-attr]
    plain = {root_name(s) for s in walk(function.body) if s.row is rows.STORE}
    atomics = [s for s in walk(function.body) if s.row in rows.ATOMICS]
    recalled = {root_name(s) for s in atomics if _is_used(function, s.outs[0])}
    return Plan(
        program, dims, backend, groups, twins, contiguous, index32,
        forward=executable_for(
            program, function, backend, dims, scalars, shapes, contiguous, (*groups, overlapping), index32
        ),
        reads=touched["reads"], writes=touched["writes"],
        accumulates_only=frozenset(k for k, _ in touched["writes"] if program.leaves[k].name not in plain),
        float_reads=frozenset(k for k in floats if k in dict(touched["reads"]) or program.leaves[k].name in recalled),
        float_writes=frozenset(k for k, _ in touched["writes"] if k in floats), floats=floats,
        plain=frozenset(k for k, type in floats.items() if flat[k].is_contiguous and type.bits > 16),
        overlapping=overlapping, scalars=scalars, shapes=shapes,
    )  # fmt: skip


def root_name(stmt: Any) -> str:
    """The parameter that a memory statement touches."""
    return root(stmt.args[0]).name


def _box(accesses: Sequence, dims: tuple, scalars: dict, shape: tuple, shapes: dict) -> Any:
    """The hull of what these accesses touch; None for the whole array."""
    hull: list[tuple[int, int]] | None = None
    for access in accesses:
        found = launch_ranges.box(access, dims, scalars, shapes)
        if found is None:
            return None
        if found == launch_ranges.EMPTY:
            continue
        hull = (
            list(found)
            if hull is None
            else [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(hull, found, strict=True)]
        )
    if hull is None:
        return tuple((0, 0) for _ in shape)
    ends = tuple((lo, hi + 1) for lo, hi in hull)
    return None if ends == tuple((0, n) for n in shape) else ends


def _refuse_race(kernel: str, function: Function, dims: tuple, scalars: dict, shapes: dict) -> None:
    race = write_race(function, dims, scalars, shapes)
    if race is not None:
        stmt, name = race.stmt, root_name(race.stmt)
        lines = f"line {race.stmt.where.line if race.stmt.where else '?'}"
        if race.other_stmt is not stmt:
            lines += f" and line {race.other_stmt.where.line if race.other_stmt.where else '?'}"
        place = _element(function, name, race.element, shapes[name])
        raise LaunchError(
            f"Kernel {kernel!r}: threads {race.thread} and {race.other} both store to one element of {name!r},"
            f" {place}, in {lines}.",
            slug="race", where=stmt.where,
            why="Threads have no order, so the result, and its gradient, would be a matter of luck.",
            instead=f"wb.atomic_add({name}, ..., value), or an index that differs between threads",
        )  # fmt: skip


def executable_for(
    program: Program, function: Function, backend: str, dims: tuple, scalars: dict, shapes: dict,
    contiguous: frozenset[str], groups: Groups, index32: bool, ordered: bool = False,
) -> Executable:  # fmt: skip
    """Choose the text and the workers: in parallel only if no two threads update one address.

    `ordered`: threads run one after the other, in their order, whatever the function shows.
    """
    stmts = list(walk(function.body))
    ordered = ordered or any(s.row in rows.ATOMICS and _is_used(function, s.outs[0]) for s in stmts)
    cells = math.prod(dims)
    work = cells * cost.work(function, scalars, shapes) if backend == "c" and not ordered else 0
    wide = work >= PARALLEL_FROM and config.threads > 1
    asked = backend == "cuda" or (backend == "c" and (wide or cells >= min(PULL_FROM, SPLIT_FROM)))
    contested = _contested(function, dims, scalars, shapes, groups) if asked else frozenset()
    changed = {mirrors(root_name(s)) for s in stmts if s.row.effect in (Effect.WRITES, Effect.ACCUMULATES)}
    mixed = bool(changed & set().union(*groups))  # does it write to memory that goes by several names here
    cut = None
    if wide and contested:
        if work >= WAKE_FROM and not (mixed or config.deterministic):
            cut = shares(function, contested, shapes, contiguous, config.threads, work)
        wide = False
    variant = Variant(
        contiguous=contiguous, restrict=not mixed, check_bounds=config.check_bounds,
        atomic=contested if backend == "cuda" else frozenset(), index32=index32,
    )  # fmt: skip
    pieces = c_compiler.PIECES if work >= LONG_FROM else int(work >= WAKE_FROM)
    made = Executable(function, backend, variant, config.threads if wide else 1, contested, cut, pieces=pieces)
    return made if ordered else _without_tests(program, made, dims, scalars, shapes)


def _without_tests(program: Program, made: Executable, dims: tuple, scalars: dict, shapes: dict) -> Executable:
    """Most threads pass the tests for the border of a grid: for those the tests are left out."""
    if made.backend != "c" or made.can_fail or made.contested or math.prod(dims) < min(PULL_FROM, SPLIT_FROM):
        return made
    names = {leaf.name for leaf in program.leaves}
    numbers = {*(program.leaves[k].name for k in program.index_positions), *(n for n in scalars if n not in names)}
    found = launch_ranges.interior(made.function, dims, scalars, shapes, numbers)
    if found is None:
        return made
    inner = program.once(simplify.assume, made.function, found.taken)
    variant = replace(made.variant, inner=inner, alone=found.whole)
    ends = tuple(e for pair in found.box for e in pair)
    return Executable(made.function, made.backend, variant, made.workers, box=ends, pieces=made.pieces)


def _is_used(function: Function, value: Any) -> bool:
    return any(value in s.args or any(value in r.results for r in s.regions) for s in walk(function.body))


def _contested(function: Function, dims: tuple, scalars: dict, shapes: dict, groups: Groups) -> frozenset[str]:
    """Arrays whose accumulations may meet in one element."""
    names = {root_name(s) for s in walk(function.body) if s.row is rows.ACCUMULATE or s.row in rows.ATOMICS}
    shared = set().union(*groups) if groups else set()
    return frozenset(n for n in names if {n, mirrors(n)} & shared or not private(function, n, dims, scalars, shapes))


def _backward(plan: Plan, active: frozenset[str]) -> Backward:
    program = plan.program
    reverse = program.reverse(active, changing(plan))
    if reverse.returned is not None and int(np.prod(plan.dims)) > 1:
        raise GradientError(
            f"Kernel {program.name!r} computes with what `{reverse.returned.row.name}` returned,"
            " on the way to a gradient.",
            slug="atomic-order", where=reverse.returned.where,
            why="Which value a thread gets depends on the order of threads.",
            instead="dim=1 and a loop over the elements",
        )  # fmt: skip
    function, apart = _merged(plan, reverse)
    position = {leaf.name: k for k, leaf in enumerate(program.leaves)}
    shadows = tuple(position[p.name] for p in program.function.params if p.name in active)
    needed = dict(plan.reads)
    mirrored = {f"{prefix}{n}": n for prefix in ("d_", "after_", "ties_", "") for n in plan.shapes}
    contiguous = frozenset(m for m, n in mirrored.items() if n in plan.contiguous)
    shapes = {m: plan.shapes[n] for m, n in mirrored.items()}
    shapes |= {f"d_{n}": (1,) for n in active if n not in plan.shapes}  # of declared scalars

    def ready(function: Function, dims: tuple[int, ...] = plan.dims, grid: Any = ()) -> Executable:
        return executable_for(  # in order where it repeats atomics as plain updates of one copy
            program, function, plan.backend, dims, plan.scalars | dict(grid), shapes, contiguous,
            (*apart, plan.overlapping), plan.index32, reverse.ordered,
        )  # fmt: skip

    main = ready(function)
    gather = pull = None
    targets = {plan.shapes.get(mirrors(n)) for n in main.contested}  # one gather runs over the cells of all of them
    alike = len(targets) == 1 and None not in targets
    alike = alike and len(plan.dims) == function.rank
    size = math.prod(plan.dims)
    if alike and plan.backend == "c" and size >= min(PULL_FROM, SPLIT_FROM) and not apart:
        shape = targets.pop()
        beside = frozenset(f"d_{n}" for n in active if plan.shapes.get(n) == shape)
        pulled = program.once(gathering.pull, function, main.contested, beside)
        big = pulled is None and size >= SPLIT_FROM
        halves = program.once(gathering.split, function, main.contested) if big else None
        if pulled is not None:
            main, pull = ready(pulled.rest), _pull(plan, pulled, position, ready)
        elif halves is not None:
            parts = {part.name for part in halves.parts}
            contiguous, shapes = contiguous | parts, shapes | dict.fromkeys(parts, plan.dims)
            main, gather = ready(halves.map), _gather(plan, halves, position, ready)
    if pull is None:
        for part in (main, gather.executable if gather else None):
            if part is not None:
                program.prepare(part.function, part.backend, part.variant)
    races = plan.races() if config.race_guard else None
    needs = reverse.needs | (races.guard.needs if races else frozenset())
    return Backward(
        reverse, main, shadows,
        tuple((position[n], needed.get(position[n])) for n in sorted(needs)),
        tuple(position[n] for n in sorted(reverse.private)),
        tuple(position[n] for n in reverse.extremal), ready(reverse.count) if reverse.count else None,
        gather, races, pull,
    )  # fmt: skip


def _merged(plan: Plan, reverse: Reverse) -> tuple[Function, Groups]:
    """The adjoint with one name for an array that was only read under two, and the groups that are left then."""
    changed = set().union(*(g for g in plan.groups if g & written_names(plan)))
    twins = tuple(pair for pair in plan.twins if not changed & set(pair) and reverse.count is None)
    if not twins:
        return reverse.function, plan.groups
    known = {p.name for p in reverse.function.params}
    same = tuple((f"{p}{a}", f"{p}{b}") for p in ("", "d_") for a, b in twins if {f"{p}{a}", f"{p}{b}"} <= known)
    left = (g - {b for _, b in twins} for g in plan.groups)
    return plan.program.once(simplify.merged, reverse.function, same), tuple(g for g in left if len(g) > 1)


def _races(plan: Plan) -> Races | None:
    """Stores of which `ranges` cannot tell that no other thread touches their element."""
    function = plan.program.function
    if math.prod(plan.dims) < 2:
        return None
    kinds: dict[str, set[str]] = {}
    for s in walk(function.body):
        if s.args and isinstance(s.args[0].type, Array) and s.row is not rows.COMPONENTS and s.row is not rows.SHAPE:
            kinds.setdefault(root_name(s), set()).add(s.row.name)
    grouped = {n: g for g in plan.groups for n in g}
    names: set[str] = set()
    for n in kinds:
        family = grouped.get(n, frozenset((n,)))
        if _may_clash(set().union(*(kinds.get(m, set()) for m in family))):
            alone = len(family) == 1 and n not in plan.overlapping
            if not (alone and private(function, n, plan.dims, plan.scalars, plan.shapes)):
                names.add(n)
    if not names:
        return None
    guard = plan.program.once(racing.guard, function, frozenset(names), plan.groups)
    executable = executable_for(
        plan.program, guard.function, plan.backend, plan.dims, plan.scalars, plan.shapes, plan.contiguous,
        (*plan.groups, plan.overlapping), plan.index32, ordered=True,
    )  # fmt: skip
    if guard.private:  # it repeats atomics as plain updates of one copy
        executable.alone, executable.variant = True, replace(executable.variant, atomic=frozenset())
    position = {leaf.name: k for k, leaf in enumerate(plan.program.leaves)}
    checked = tuple(position[n] for n in guard.checked)
    return Races(guard, executable, checked, tuple(position[n] for n in sorted(guard.private)))


def _may_clash(kinds: set[str]) -> bool:
    """Loads alone, or atomics of one kind alone, never race."""
    adds = {"atomic_add", "atomic_sub"}
    return kinds != {"load"} and not kinds <= adds and (len(kinds) > 1 or kinds == {"store"})


def _pull(plan: Plan, pulled: gathering.Pull, position: dict[str, int], ready: Any) -> Pull:
    shape = plan.shapes[mirrors(pulled.targets[0])]
    dims = tuple(min(n, d + h) for n, d, h in zip(shape, plan.dims, pulled.high, strict=True))
    grid = dict(zip(pulled.grid, plan.dims, strict=True))

    def make(fresh: tuple[int, ...]) -> Executable:
        names = frozenset(f"d_{plan.program.leaves[k].name}" for k in fresh)
        function = plan.program.once(gathering.storing, pulled.pull, names) if names else pulled.pull
        return ready(function, dims, grid)

    targets = tuple(position[mirrors(n)] for n in pulled.targets)
    return Pull(make, dims, plan.dims, targets, dims == shape, _cleared(pulled.rest, position))


def _cleared(rest: Function, position: dict[str, int]) -> tuple[int, ...] | None:
    """The shadows to which `rest` stores zeros, if that is all it does."""
    found = set()
    for s in walk(rest.body):
        if s.row.effect is Effect.PURE or s.row is rows.LOAD or s.regions:
            continue
        name = root_name(s) if s.args else ""
        if s.row is not rows.STORE or mirrors(name) == name:
            return None
        found.add(position[mirrors(name)])
    return tuple(found)


def _gather(plan: Plan, halves: gathering.Split, position: dict[str, int], ready: Any) -> Gather:
    """Room for the parts, and the cells that can get something."""
    rim = halves.rim
    parts = []
    for part in halves.parts:
        shape = tuple(n + 2 * r for n, r in zip(plan.dims, rim, strict=True))
        parts.append(np.zeros((*shape, *part.type.dtype.shape), part.type.dtype.numpy))  # type: ignore[attr-defined]
    targets = tuple(position[mirrors(t)] for t in halves.targets)
    shape = plan.shapes[mirrors(halves.targets[0])]
    dims = tuple(min(n, d + h) for n, d, h in zip(shape, plan.dims, halves.high, strict=True))
    return Gather(ready(halves.gather, dims), targets, dims, tuple(parts))


def mirrors(name: str) -> str:
    """The array that a parameter of an adjoint is laid out like."""
    for prefix in ("d_", "after_", "ties_"):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def written_names(plan: Plan) -> set[str]:
    return {plan.program.leaves[k].name for k, _ in plan.writes}


def changing(plan: Plan) -> Groups:
    """Sets of array parameters that the launch writes and of which several elements are one number in memory."""
    alone = tuple(frozenset((n,)) for n in sorted(plan.overlapping))
    return tuple(g for g in (*plan.groups, *alone) if g & written_names(plan))


def span_of(a: array, box: Any) -> Span:
    """The bytes of a box of an array."""
    return a.span if box is None else a.span.part(box)


def spans_of(flat: list, boxes: Sequence[tuple[int, Any]]) -> tuple[Span, ...]:
    """The same of several (position, box)."""
    return tuple([flat[k]._span or flat[k].span if box is None else flat[k].span.part(box) for k, box in boxes])
