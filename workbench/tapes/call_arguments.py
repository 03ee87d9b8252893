"""One call of a jit function: its arguments, the key of a recording, copies on other memory, and what it launches.

A replay repeats launches with the numbers they had. Numbers from a clock, a random generator, or anything else that
changes between two calls with the same arguments would be stale in it: so two calls are compared before any replay, by
their launches and writes (`CallScript`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

import numpy as np

from ..arrays.allocation import Allocation, allocate, caller_where
from ..arrays.array import array, array_on, layout_number
from ..arrays.gradient_views import sync_views
from ..config import config
from ..device import XpArray, get_device, on_host
from ..errors import LaunchError, Where
from ..kernels.reading.declare import Instance, struct_of
from ..launches.plan import PlannedLaunch, sharing
from .cross_tape import waiting
from .python_state import PLAIN, exact

_VALUES = (bool, int, float, complex, str, bytes, type(None), np.generic, np.ndarray, range)


class CallArguments:
    """The arguments of one call.

    arrays   those in them, in tuples, lists, dicts and structs too, in order.
    held     these tuples, lists, dicts and structs, and NumPy arrays, in order.
    objects  (name, object) of everything that is no number, array or container, and of classes of containers.
    form     what a recording depends on: structure, numbers by value, arrays by layout, marks and aliasing.
    """

    def __init__(self, args: tuple, kwargs: dict[str, Any]):
        self.args, self.kwargs = args, kwargs
        self.arrays: list[array] = []
        self.held: list[object] = []
        self.objects: list[tuple[str, object]] = []
        self.parts: dict[str, Any] = {}
        for path, value in (*enumerate(args), *sorted(kwargs.items())):
            self._take(f"{path}", value)
        settings = config.switches, config.check_bounds, config.check_races, get_device(None).name
        marks = [(a.requires_grad, a.retain_grad) if a.allocation.asked else None for a in self.arrays]
        layouts = zip(map(layout_number, self.arrays), marks, self._aliases(), strict=True)
        self.form = (*self.parts.items(), settings, *layouts)
        self.serials = tuple([a.serial for a in self.arrays])

    def _take(self, path: str, value: object) -> None:
        if isinstance(value, array):
            self.arrays.append(value)
            self.parts[path] = array
        elif isinstance(value, _VALUES) and not getattr(getattr(value, "dtype", None), "hasobject", False):
            self.parts[path] = exact(value)
            self.held += [value] if isinstance(value, np.ndarray) else []
        elif _plain(value) and (items := _items(value)) is not None:
            self.parts[path] = type(value), len(items)
            self.objects.append((path, type(value)))
            self.held.append(value)
            for name, item in items:
                self._take(f"{path}.{name}", item)
        else:
            self.objects.append((path, value))
            self.parts[path] = "object", id(value)

    def changed(self, call: CallArguments) -> bool:
        """True if what they hold, their marks or a setting changed, or marks of copies of `call` for a while."""
        now, copied = CallArguments(self.args, self.kwargs), [] if self is call else self.arrays
        stray = any(a.allocation.grad is not None and not a.allocation.asked for a in copied)
        return stray or (now.form, now.serials) != (self.form, self.serials)

    def _aliases(self) -> list[Any]:
        """For each array the earlier ones that may share bytes with it, with the distance between their beginnings."""
        if len({a.allocation for a in self.arrays}) == len(self.arrays):
            return [()] * len(self.arrays)
        before = ((a.span, [b.span for b in self.arrays[:k]]) for k, a in enumerate(self.arrays))
        return [
            tuple([(j, s.offset - b.offset) for j, b in enumerate(known) if s.overlaps(b) is not False])
            for s, known in before
        ]


def _items(value: object) -> list[tuple[str, Any]] | None:
    """The named items of a tuple, list, dict or struct; None for anything else."""
    if isinstance(value, Instance):
        return [(name, getattr(value, name)) for name, _ in struct_of(value).fields]
    if isinstance(value, tuple | list):
        return [(str(k), item) for k, item in enumerate(value)]
    if isinstance(value, dict):
        return [(f"[{k!r}]", item) for k, item in value.items()]
    return None


def _plain(value: object) -> bool:
    """True for a struct, and for what has no other attributes than items and no keys but numbers and texts."""
    odd = isinstance(value, dict) and any(type(k) not in PLAIN for k in value)
    return isinstance(value, Instance) or not (odd or getattr(value, "__dict__", None))


def with_arrays(value: object, swap: Callable[[array], array], others: dict[int, Any] | None = None) -> Any:
    """A value with other arrays in its tuples, lists, dicts and structs; `others`: id -> what stands for one."""
    if isinstance(value, array):
        return swap(value)
    if others is not None and (id(value) in others or isinstance(value, np.ndarray)):
        return others.get(id(value), copy(value))
    if _items(value) is None:
        return value
    if isinstance(value, tuple):
        items = [with_arrays(item, swap, others) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    made = copy(value)
    if isinstance(made, list):
        made[:] = [with_arrays(item, swap, others) for item in made]
    else:
        fields = made if isinstance(made, dict) else vars(made)
        dict.update(fields, {k: with_arrays(item, swap, others) for k, item in fields.items()})
    return made


def arrays_in(value: object) -> Iterator[array]:
    """The arrays in tuples, lists, dicts and structs, in order."""
    if isinstance(value, array):
        yield value
    for _, item in _items(value) or ():
        yield from arrays_in(item)


def stand_ins(call: CallArguments, own: set[Allocation]) -> CallArguments | None:
    """A call of the same form on new memory; None where copies would not be the same thing.

    That is for `bound` arrays, and for those whose gradients the user has written to.
    """
    sync_views()
    if any(bound(a, own) or _written(a) for a in call.arrays):
        return None
    made: dict[int, array] = {}
    for numbers in sharing(call.arrays):
        group = [call.arrays[k] for k in sorted(numbers)]
        low = min(a.span.hull()[0] for a in group)
        shift = low % 64  # addresses as well aligned as they were
        new = allocate(max(a.span.hull()[1] for a in group) - low + shift, group[0].device)
        new.grad_scale = group[0].allocation.grad_scale
        for a in group:
            s = made[a.serial] = array_on(new, a.dtype, a.shape, a.strides, a.span.offset - low + shift)
            pass_origins(a, s)
            for mark in ("requires_grad", "retain_grad"):
                if getattr(a, mark):
                    setattr(s, mark, True)
    kept = {id(o): o for o in (*(o for _, o in call.objects), *(n for n in call.held if isinstance(n, np.ndarray)))}
    return CallArguments(*with_arrays((call.args, call.kwargs), lambda a: made[a.serial], kept))


def pass_origins(source: array, to: array) -> None:
    """Note for a copy which tapes wrote what it copies."""
    for span, run in source.allocation.origins.met(source.span) if source.allocation.origins else ():
        part = span if source.span.contains(span) else source.span
        to.allocation.note_origin(part.on(to.allocation, to.span.offset - source.span.offset), run, True)


def bound(a: array, own: set[Allocation]) -> bool:
    """True for an array that a copy cannot stand for.

    It is gradient memory, in `own`, which the function also reaches itself, or another living tape has to do with it:
    one wrote it, or its gradient waits to be handed on to one.
    """
    memory, grad = a.allocation, a.allocation.grad
    waits = grad is not None and bool(grad in own or waiting(grad))
    return memory.is_gradient or memory in own or waits or any(run.alive for _, run in memory.origins or ())


def _written(a: array) -> bool:
    memory, grad = a.allocation, a.allocation.grad
    asked = grad is not None and (a.requires_grad or a.retain_grad)
    return asked and grad.user_written_mask(memory.gradient_span(a.span)) is not None  # type: ignore[union-attr]


class CallScript:
    """The launches of a call and the values it writes from the host, in order, compared with those of an earlier call.

    own        allocations that the function reaches without its arguments.
    programs   of the launches.
    """

    def __init__(self, name: str, call: CallArguments, own: set[Allocation], expected: CallScript | None = None):
        self.name, self.call, self.own, self.expected = name, call, own, expected
        self.lines: list[tuple] = []
        self.programs: dict[Any, None] = {}
        self._numbers: dict[int, int] = {}  # id of an allocation that the call makes -> in which order

    def launch(self, command: PlannedLaunch, *_: object) -> None:
        """Note a launch that is about to be made. Raises LaunchError [jit] if an earlier call did something else."""
        program = command.program
        self.programs[program] = None
        names = ["dim", *[leaf.name for leaf in program.leaves]]
        self._follow(f"a launch of {program.name}", names, [command.plan.form.dims, *command.flat])

    def host_write(self, *_: object) -> None:
        """Leave a write of the host as it is."""

    about_to_write = host_write

    def write(self, dst: object, values: XpArray) -> None:
        """Note values of the host that are about to be written, as `launch` does."""
        values = on_host(values)
        self._follow("a write of values", ["the array", "the value"], [dst, values[()]])

    def complete(self) -> None:
        """Raises LaunchError [jit] if the earlier call did more."""
        if self.expected is not None and len(self.lines) < len(self.expected.lines):
            missing = self.expected.lines[len(self.lines)][0]
            raise refusal(self.name, f"{missing} is missing, which the first call made.")

    def _follow(self, what: str, names: list[str], given: list[Any]) -> None:
        line = (what, *[(n, self._exact(v)) for n, v in zip(names, given, strict=True)])
        self.lines.append(line)
        if self.expected is not None:
            self._compare(line, self.expected.lines, len(self.lines) - 1)

    def _exact(self, value: object) -> tuple:
        if isinstance(value, array):
            return array, self._place(value), value.shape, value.strides
        return exact(value)

    def _place(self, a: array) -> tuple:
        """The place of an array, in terms that hold for other arguments of the same form too."""
        offset = a.span.offset
        if a.allocation in self.own:
            return "own", a.allocation.id, offset
        low, high = a.span.hull()
        for k, b in enumerate(self.call.arrays):
            if a.allocation is b.allocation and b.span.hull()[0] <= low and high <= b.span.hull()[1]:
                return "argument", k, offset - b.span.offset
        return "made", self._numbers.setdefault(a.allocation.id, len(self._numbers)), offset

    def _compare(self, line: tuple, lines: list[tuple], k: int) -> None:
        if k < len(lines) and lines[k] == line:
            return
        if k >= len(lines):
            text = f"{line[0]} follows, where the first call was over."
        elif lines[k][0] != line[0] or len(lines[k]) != len(line):
            text = f"{line[0]} follows, where the first call made {lines[k][0].removeprefix('a ')}."
        else:
            name, now, then = next((n, a, b) for (n, a), (_, b) in zip(line[1:], lines[k][1:], strict=True) if a != b)
            numbers = len(now) == len(then) == 2
            differs = f"is {_shown(now)}, and was {_shown(then)}" if numbers else "is not what it was"
            text = f"{line[0]}: {name} {differs} in the first call."
        raise refusal(self.name, text, caller_where())


def _shown(number: tuple) -> str:
    kind, value = number
    return f"{float.fromhex(value):.6g}" if issubclass(kind, float | np.floating) else str(value)


_INSTEAD = "an argument for what differs (an array of one element for a number), or @wb.jit(off=True)"


def refusal(name: str, text: str, where: Where | None = None, instead: str = _INSTEAD) -> LaunchError:
    """The error [jit] for a function that does not do the same in each call."""
    why = "Its arguments are alike, so a replay would do what the first call did."
    return LaunchError(f"@wb.jit {name}: {text}", slug="jit", where=where or caller_where(), why=why, instead=instead)
