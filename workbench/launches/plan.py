"""Plans: everything about a launch that depends only on layouts, grid and the numbers that indices use.

Bounds are checked, races that are certain are refused, the touched ranges, the variant of the text and the number of
workers are chosen. The second launch of the same form looks its plan up and costs a few microseconds. Where numbers in
indices do nothing but move what is touched, the plan of the first number is moved (`analysis.motion`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import allocation as memory
from ..arrays.array import array, layout_number, pack_values
from ..arrays.dtypes import inner_shape, scalar_in
from ..config import config
from ..device import Device, get_device
from ..errors import LaunchError, caution
from ..kernels.analysis import launch_ranges
from ..kernels.analysis.accesses import Access, Grouped, accesses_by_array, accesses_of
from ..kernels.analysis.hulls import exact_in
from ..kernels.analysis.launch_form import Groups, LaunchForm, Line
from ..kernels.analysis.motion import Distances, Motion, motion
from ..kernels.analysis.thread_conflicts import write_race
from ..kernels.compile import c_compiler
from ..kernels.ir import Function, used, walk
from ..kernels.ops import memory as rows
from ..kernels.ops.memory import STORE
from ..kernels.program import Program
from ..kernels.recursion import recursive
from ..kernels.types import Array, is_float
from .arguments import views
from .executable import Executable, executable_for, root_name

LONGEST = 2**31 - 1  # elements along an axis: thread indices and extents are int32
MOST_THREADS = {"numpy": 2**32, "c": 2**40, "cuda": 2**42}  # hours of work even where a thread does nothing


@dataclass(eq=False)
class Plan:
    """The decisions that all launches of one form share. Positions are those of flat parameters."""

    program: Program
    form: LaunchForm
    forward: Executable
    reads: tuple[tuple[int, Any], ...]  # (position, box or None for the whole array)
    writes: tuple[tuple[int, Any], ...]
    accumulates_only: frozenset[int]
    float_reads: frozenset[int]
    float_writes: frozenset[int]
    floats: dict[int, Any]  # position -> scalar type
    plain: frozenset[int]  # of `floats`: contiguous arrays of 32 or 64 bits per number
    derived: dict[Any, Any] = field(default_factory=dict)  # adjoints, race finder, tangents
    moved_from: tuple[Plan, Distances] | None = None  # another plan, and how far this one lies from it

    @cached_property
    def motion(self) -> Motion | None:
        """The motion of what it touches by other numbers in its indices."""
        found = motion(self.program.function, self.form)
        self.form.hulls.clear()
        if found is None or any(
            box is None and any(map(any, found.axes[self.name(k)])) for k, box in (*self.reads, *self.writes)
        ):
            return None
        return found

    def name(self, k: int) -> str:
        """The name of the flat parameter at a position."""
        return self.program.leaves[k].name

    def moved(self, boxes: tuple[tuple[int, Any], ...], by: Distances) -> tuple[tuple[int, Any], ...]:
        """Boxes of arrays, moved as far as other numbers move them."""
        assert self.motion is not None
        move = self.motion.moved
        return tuple([(k, box and move(self.name(k), box, by)) for k, box in boxes])

    @cached_property
    def bits(self) -> tuple[int, ...]:
        """Positions of the arrays that are written and hold no floats."""
        return tuple(k for k, _ in self.writes if k not in self.floats)

    @cached_property
    def all_floats(self) -> tuple[int, ...]:
        """Positions of the arrays of floats."""
        return tuple(self.floats)

    @cached_property
    def rereads(self) -> bool:
        """True if the launch may read memory that it writes."""
        read = {k for k, _ in self.reads}
        return bool(self.form.groups) or any(k in read for k, _ in self.writes)

    @cached_property
    def written(self) -> frozenset[str]:
        """Names of the array parameters that the launch writes."""
        return frozenset(self.program.leaves[k].name for k, _ in self.writes)

    @cached_property
    def stores(self) -> tuple[tuple[int, Any], ...]:
        """(position, box or None for the whole array) of which every element is surely stored to."""
        position = {self.program.leaves[k].name: k for k, _ in self.writes}
        return tuple((position[n], box) for n, box in stored_boxes(self.program.function, self.form))

    @cached_property
    def covered(self) -> frozenset[int]:
        """Positions of the arrays whose written box is surely stored to in every element."""
        return frozenset(k for k, _ in {*self.stores} & {*self.writes})

    @cached_property
    def changing(self) -> Groups:
        """Sets of names of written array parameters that alias each other, or whose own elements overlap in memory."""
        alone = tuple(frozenset((n,)) for n in sorted(self.form.overlapping))
        return tuple(g for g in (*self.form.groups, *alone) if g & self.written)


class PlannedLaunch:
    """A plan with the arguments of one launch: what its adjoint, its tangents and its race check read of it.

    declared   positions of declared scalars. places: like `flat`, but with the memory behind them.
    """

    program: Program
    plan: Plan
    flat: Sequence[Any]
    places: Sequence[Any]
    declared: tuple[int, ...]

    @property
    def values(self) -> list[Any]:
        """The arguments as `Executable.run` takes them."""
        return pack_values(self.flat)

    def views(self) -> list:
        """The arguments for the interpreter."""
        return views(self.program.function, self.flat)


GridLike = int | Sequence[int] | np.ndarray  # the `dim` of a launch


def grid(kernel: str, dim: Any) -> tuple[int, ...]:
    """The launch grid as a tuple. Raises LaunchError."""
    if dim.__class__ is int and 0 <= dim < 2**31:
        return (dim,)
    dims = (dim,) if isinstance(dim, int | np.integer) else dim
    try:
        dims = tuple([operator.index(d) for d in dims])
    except (TypeError, ValueError):
        instead = "dim=x.shape, of an array x" if hasattr(dim, "shape") and np.ndim(dim) else "dim=n or dim=(n, m)"
        shown = type(dim).__name__ if hasattr(dim, "shape") else repr(dim)
        raise LaunchError(f"Kernel {kernel!r}: dim={shown} is not a grid.", slug="dim", instead=instead) from None
    if not 1 <= len(dims) <= 4 or min(dims) < 0 or max(dims) >= 2**31:
        raise LaunchError(f"Kernel {kernel!r}: dim={dim!r} must be 1 to 4 extents from 0 to 2**31 - 1.", slug="dim")
    return dims


def plan(
    program: Program, dims: tuple[int, ...], flat: list[Any], device: Device | None, bounds: bool | str | None = None
) -> Plan:
    """The plan for launches of this form: looked up, or made for the first one. `bounds`: see `tests_indices`."""
    if len(dims) != program.function.rank and not program.asks_thread:  # it runs on a grid of any rank
        dims = (math.prod(dims),)
    positions = program.array_positions
    arrays = [flat[k] for k in positions] if program.takes_numbers else flat
    apart = len({a.allocation for a in arrays}) == len(arrays)
    groups = () if apart else _groups(program, positions, flat)
    twins = _twins(program, positions, flat) if groups else ()
    numbers = tuple([flat[k] for k in program.index_positions]) if program.index_positions else ()
    rest = (groups, twins, switches(bounds), device and device.ordinal, *map(layout_number, arrays))
    key = (dims, numbers, *rest)
    found = program.plans.find(key)
    if found is None:
        still = tuple([flat[k] if k not in program.moving_positions else None for k in program.index_positions])
        alike = (dims, still, *rest)  # the key of the first plan of those that differ in moving numbers alone
        first = program.plans.find(alike) if program.moving_positions else None
        found = _moved(first, flat) if first is not None else None
        if found is None:
            if config.verbose:
                import logging

                logging.getLogger("workbench").info("kernel %s: a new plan for dim=%s", program.name, dims)
            found = _make(program, dims, flat, positions, groups, twins, device, tests_indices(bounds))
            if program.moving_positions and first is None:
                program.plans.enter(alike, found)
        program.plans.enter(key, found)
    return found


def switches(bounds: bool | str | None = None) -> int:
    """The number that stands for the switches as they are for a launch made now. `bounds`: see `tests_indices`."""
    if bounds is None:
        bounds = config.check_bounds
    return 2 * config.switches + (bounds is True or (bounds is False and memory.recorder() is not None))


def tests_indices(bounds: bool | str | None = None) -> bool:
    """True if a launch made now tests indices that depend on data. `bounds`: its own `check_bounds`, or None."""
    return switches(bounds) % 2 == 1


def _moved(plan: Plan, flat: list[Any]) -> Plan | None:
    """The plan for other numbers in indices, from one for the same layouts; None where it has to be made."""
    motion, before, leaves = plan.motion, plan.form.scalars, plan.program.leaves
    if motion is None:
        return None
    scalars = {leaf.name: a for leaf, a in zip(leaves, flat, strict=True) if a.__class__ is not array}
    by = motion.by([scalars[n] - before[n] for n in motion.names])
    if by is None:
        return None
    form = replace(plan.form, scalars=scalars)
    reads, writes = plan.moved(plan.reads, by), plan.moved(plan.writes, by)
    return replace(plan, form=form, reads=reads, writes=writes, derived={}, moved_from=(plan, by))


def _twins(program: Program, positions: tuple[int, ...], flat: list[Any]) -> tuple[tuple[str, str], ...]:
    """Pairs of names of parameters with identical spans."""
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
    groups = [[positions[n] for n in g] for g in sharing([flat[k] for k in positions]) if len(g) > 1]
    return tuple(sorted((frozenset(program.leaves[k].name for k in g) for g in groups), key=sorted))


def sharing(arrays: Sequence[array]) -> list[set[int]]:
    """The positions of arrays, those together that may share bytes with one another."""
    groups: list[set[int]] = []
    for n, a in enumerate(arrays):
        near = [g for g in groups if any(arrays[j].span.overlaps(a.span) is not False for j in g)]
        groups = [g for g in groups if g not in near] + [{n}.union(*near)]
    return groups


def backend_for(arrays: Sequence[array], device: Device | None, kernel: str) -> str:
    """The backend on which the launch runs. Raises LaunchError if arrays live on different devices."""
    devices = {a.device for a in arrays}
    if len(devices) > 1 or (device is not None and devices and devices != {device}):
        listed = ", ".join(sorted(str(d) for d in devices))
        text = f"Kernel {kernel!r}: arrays on {listed}" + (f", launch on {device}" if device else "") + "."
        raise LaunchError(text, slug="device", instead='a.to("cpu") or a.to("cuda:0")')
    where = devices.pop() if devices else device or get_device(None)
    if where.is_cuda:
        return "cuda"
    if config.backend in ("c", "numpy"):
        return config.backend
    return "c" if c_compiler.available() else "numpy"


@recursive
def _make(
    program: Program,
    dims: tuple[int, ...],
    flat: list[Any],
    positions: tuple[int, ...],
    groups: Groups,
    twins: tuple[tuple[str, str], ...],
    device: Device | None,
    checked: bool,
) -> Plan:
    function, kernel = program.function, program.name
    if function.rank != len(dims):
        text = f"Kernel {kernel!r} takes {function.rank} thread indices from tid(), dim={dims} has {len(dims)}."
        instead = f"dim=({', '.join('nmkl'[: function.rank])})"
        raise LaunchError(text, slug="dim-rank", where=function.where, instead=instead)
    names = {k: program.leaves[k].name for k in positions}
    arrays = {names[k]: flat[k] for k in positions}
    index32 = math.prod(dims) < 2**31 and all(a.size * getattr(a.dtype, "size", 1) < 2**31 for a in arrays.values())
    form = LaunchForm(
        dims,
        {leaf.name: a for leaf, a in zip(program.leaves, flat, strict=True) if not isinstance(a, array)},
        {n: a.shape for n, a in arrays.items()},
        backend_for(list(arrays.values()), device, kernel),
        frozenset(n for n, a in arrays.items() if a.is_contiguous),
        frozenset(n for n, a in arrays.items() if a.span.self_overlapping),
        groups,
        twins,
        index32,
        checked,
    )
    refuse_size(kernel, function, form)
    launch_ranges.check(function, form)
    tell_of_negatives(function, form)
    refuse_race(kernel, function, form)
    accesses = accesses_by_array(function)
    reads, writes = (_touched(names, accesses, how, form) for how in ("reads", "writes"))
    types = {k: program.leaves[k].type for k in positions}
    floats = {k: scalar_in(t.dtype) for k, t in types.items() if isinstance(t, Array) and is_float(t)}
    stored = {root_name(s) for s in walk(function.body) if s.row is rows.STORE}
    atomics = [s for s in walk(function.body) if s.row in rows.ATOMICS]
    recalled = {root_name(s) for s in atomics if s.outs[0] in used(function.body)}
    read, written = dict(reads), dict(writes)
    made = Plan(
        program,
        form,
        executable_for(program, function, form),
        reads,
        writes,
        accumulates_only=frozenset(k for k in written if names[k] not in stored),
        float_reads=frozenset(k for k in floats if k in read or names[k] in recalled),
        float_writes=frozenset(k for k in written if k in floats),
        floats=floats,
        plain=frozenset(k for k, type in floats.items() if flat[k].is_contiguous and type.bits > 16),
    )
    form.lines.clear()  # a third of the memory of a plan, and hardly looked at again
    form.hulls.clear()
    return made


def _touched(
    names: dict[int, str], accesses: dict[str, Grouped], how: str, form: LaunchForm
) -> tuple[tuple[int, Any], ...]:
    """The positions of the arrays that a launch reads (or writes), each with the box that it touches."""
    by_position = {k: getattr(accesses[n], how) for k, n in names.items() if n in accesses}
    return tuple((k, _box(found, form)) for k, found in by_position.items() if found)


def _box(accesses: Sequence[Access], form: LaunchForm) -> Any:
    """The hull of what these accesses touch; None for the whole array."""
    hull: list[tuple[int, int]] | None = None
    shape = form.shapes[accesses[0].name]
    for access in accesses:
        found = launch_ranges.box(access, form)
        if found is None:
            return None
        if found == launch_ranges.EMPTY:
            continue
        hull = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(hull or found, found, strict=True)]
    if hull is None:
        return tuple((0, 0) for _ in shape)
    ends = tuple((lo, hi + 1) for lo, hi in hull)
    return None if ends == tuple((0, n) for n in shape) else ends


# ---- full stores: boxes of elements that a launch surely overwrites, whatever the data


def stored_boxes(function: Function, form: LaunchForm) -> Iterator[tuple[str, Any]]:
    """Yield (parameter, box) of stores that reach every element of the box; box None: the whole array."""
    for access in accesses_of(function):
        if access.stmt.row is STORE and access.certain:
            box = _stored_box(access, form)
            if box is not None:
                yield access.name, None if box == tuple((0, n) for n in form.shapes[access.name]) else box


def _stored_box(access: Access, launch: LaunchForm) -> tuple[tuple[int, int], ...] | None:
    """The box of cells of which an access surely visits every one; None if threads or loop turns may skip some."""
    variables: Any = {("tid", k): (0, n - 1) for k, n in enumerate(launch.dims)}
    limits = [launch.line(g.form) if g.op == "ge" else None for g in access.guards]
    for turn in access.loops:
        ends = [line.constant // -line.terms[turn] for line in limits if line is not None and _ends(line, turn)]
        if not ends or min(ends) < 0:
            return None
        variables[turn] = (0, min(ends))
    indices = [form.within_type() if form is not None else None for form in access.indices]
    found = [launch.line(i) if i is not None and exact_in(i, launch, variables) else None for i in indices]
    lines = [line for line in found if line is not None and _dense(line, variables)]
    assert isinstance(access.array.type, Array)
    if not len(lines) == len(found) == access.array.type.ndim:
        return None
    used = [v for line in lines for v in line.terms]
    box = [line.hull(variables) for line in lines]
    for guard, limit in zip(access.guards, limits, strict=True):
        if limit is None or not exact_in(guard.form, launch, variables):
            return None
        if any(_ends(limit, turn) for turn in access.loops):
            continue
        # A bound from above keeps a leading part of the cells without gaps, one from below a trailing part.
        falling = {v: -c for v, c in limit.terms.items()}
        cut = next((k for k, line in enumerate(lines) if line.terms and line.terms == falling), None)
        begun = next((k for k, line in enumerate(lines) if line.terms and line.terms == limit.terms), None)
        if cut is not None:
            box[cut] = box[cut][0], min(box[cut][1], limit.constant + lines[cut].constant)
        elif begun is not None:
            box[begun] = max(box[begun][0], lines[begun].constant - limit.constant), box[begun][1]
        elif limit.terms or limit.constant < 0:
            return None
    sure = len(used) == len(set(used)) and all(0 <= lo <= hi for lo, hi in box)
    return tuple((lo, hi + 1) for lo, hi in box) if sure else None


def _ends(limit: Line, turn: Any) -> bool:
    """True for a guard that bounds one loop variable from above by a constant: it gives the trip count."""
    return limit.terms.keys() == {turn} and limit.terms[turn] < 0


def _dense(index: Line, variables: Mapping[Any, tuple[int, int]]) -> bool:
    """True if an index takes every value between its least and largest, as 4 i + k does with k from 0 to 3."""
    span = 0
    for v, c in sorted(index.terms.items(), key=lambda term: abs(term[1])):
        if v not in variables or abs(c) > span + 1:
            return False
        lo, hi = variables[v]
        span += abs(c) * (hi - lo)
    return True


# ---- limits of every launch: its number of threads, what an int32 index can count, one store per element


def refuse_size(kernel: str, function: Function, form: LaunchForm) -> None:
    """Raise LaunchError [dim] for a grid that nobody could finish, [extent] for an axis that int32 cannot count."""
    threads, most = math.prod(form.dims), MOST_THREADS[form.backend]
    if threads > most or (len(form.dims) == 1 and threads > LONGEST):
        text = f"Kernel {kernel!r}: dim={form.dims} are {threads:,} threads."
        why = f"A launch on {form.backend!r} has at most {most:,}, and {LONGEST:,} along one axis."
        instead = "for start in range(0, n, m): wb.launch(kernel, dim=m, inputs=[start, ...])"
        raise LaunchError(text, slug="dim", where=function.where, why=why, instead=instead)
    for name, shape in form.shapes.items():
        for axis, n in enumerate(shape):
            if n > LONGEST:
                where = next((p.where for p in function.params if p.name == name), function.where)
                text = f"Kernel {kernel!r}, argument {name!r}: axis {axis} has {n:,} elements."
                why = f"An index in a kernel is an int32, which counts to {LONGEST:,}."
                instead = f"{name}.reshape((n, -1)), or {name}[:{LONGEST}]"
                raise LaunchError(text, slug="extent", where=where, why=why, instead=instead)


def tell_of_negatives(function: Function, form: LaunchForm) -> None:
    """Warn of indices that are computed and below 0 in some threads only: they count from the end there."""
    for access, axis, thread, index in launch_ranges.partly_negative(function, form):
        if access.where is None:
            continue
        n = f"{access.name}.shape[{axis}]"
        caution(
            f"Kernel {function.name!r}: thread {thread} uses index {index} of {access.name!r}, which counts from the"
            f" end, as in Python. Write `(index) % {n}` if that is meant, else `if index >= 0:` around it."
            " [negative-index]",
            access.where,
        )


def refuse_race(kernel: str, function: Function, form: LaunchForm) -> None:
    """Raises LaunchError [race] where two threads certainly store to one element."""
    race = write_race(function, form)
    if race is not None:
        stmt, name = race.stmt, root_name(race.stmt)
        lines = f"line {race.stmt.where.line if race.stmt.where else '?'}"
        if race.other_stmt is not stmt:
            lines += f" and line {race.other_stmt.where.line if race.other_stmt.where else '?'}"
        place = element_text(function, name, race.element, form.shapes[name])
        store = f"threads {race.thread} and {race.other} both store to one element of {name!r}, {place}, in {lines}."
        why = "Threads have no order, so the result, and its gradient, would be a matter of luck."
        instead = f"wb.atomic_add({name}, ..., value), or an index that differs between threads"
        raise LaunchError(f"Kernel {kernel!r}: {store}", slug="race", where=stmt.where, why=why, instead=instead)


def element_text(function: Function, name: str, words: Sequence[int], shape: tuple[int, ...]) -> str:
    """`y[3]`, or `y[3][1]` for a component. Negative indices count from the end."""
    type = next(p.type for p in function.arrays if p.name == name)
    inner = inner_shape(type.dtype) if isinstance(type, Array) else ()
    index = [i % n for i, n in zip(words, (*shape, *inner), strict=False)]
    parts = index[: len(shape)], index[len(shape) :]
    return name + "".join(str(part) for part in parts if part)
