"""The script of a call of a jit function: its launches and writes, compared with those of an earlier call.

A replay repeats launches with the numbers they had. Numbers from a clock, a random generator, or anything else that
changes between two calls with the same arguments would be stale in it: so two calls are compared before any replay.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.allocation import Allocation, caller_where
from ..arrays.array import array
from ..device import XpArray, on_host
from ..errors import LaunchError, Where
from ..launches.plan import PlannedLaunch
from .call_arguments import CallArguments
from .python_state import exact


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
    return LaunchError(f"@wb.jit {name}: {text}", slug="jit", where=where, why=why, instead=instead)
