"""Races of a launch: certain ones are refused before it runs, possible ones are looked for by running a race finder."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays import capture_log
from ..arrays.workspace import mark_view
from ..device import xp
from ..errors import GradientError
from ..kernels.analysis.thread_conflicts import private
from ..kernels.ir import Function, walk
from ..kernels.ops import Row, memory as rows
from ..kernels.passes import race_finder as racing
from ..kernels.types import Array, is_int
from .adjoint_arguments import AdjointArguments
from .executable import Executable, executable_for, root_name
from .plan import Plan, PlannedLaunch, element_text


@dataclass(eq=False)
class Races:
    """The race finder of a launch whose stores are not proven apart. `checked`, `private`: positions of parameters."""

    guard: racing.RaceReplay
    executable: Executable
    checked: tuple[int, ...]
    private: tuple[int, ...]

    @capture_log.paused()
    def check(self, command: PlannedLaunch) -> None:
        """Run the race finder twice over the present memory, which is what the launch sees. Raises GradientError."""
        flat = command.flat
        module = xp(flat[self.checked[0]].device)
        memories = {flat[k].allocation for k in self.checked}
        bases = {a: [module.zeros(a.nbytes, np.int32) for _ in racing.MARKS] for a in memories}
        marks = [mark_view(flat[k], base) for k in self.checked for base in bases[flat[k].allocation]]
        marks.append(module.zeros(racing.FOUND, np.int32))
        for _ in range(2):
            arguments = AdjointArguments(command, self.private, [], marks)
            self.executable.run(arguments.values, arguments.views)
        found = [int(n) for n in marks[-1]]
        if found[0]:
            raise self.refuse(command.plan, found)

    def fix(self, command: PlannedLaunch) -> None:
        """In a capture: note the arrays whose values decide on races: they must not change, as replays do not check."""
        notes = capture_log.active_capture()
        if notes is not None:
            program = command.program
            names = {k: program.leaves[k].name for k in program.array_positions}
            needed = [command.flat[k].allocation for k, name in names.items() if name in self.guard.needs]
            notes.fixed.update(dict.fromkeys(needed, program.name))

    def refuse(self, plan: Plan, found: Sequence[int]) -> GradientError:
        """The error for what the finder recorded: two threads, two lines, one element of an array."""
        where, name, row = self.guard.table[found[0] - 1]
        there, _, other_row = self.guard.table[found[3] - 1]
        one, other = (_thread(n, plan.form.dims) for n in (found[1], found[2]))
        lines = f"line {where.line if where else '?'} ({row}) and line {there.line if there else '?'} ({other_row})"
        place = element_text(plan.program.function, name, found[racing.PLACE :], plan.form.shapes[name])
        touch = f"threads {one} and {other} touch one element of {name!r}, {place}, in {lines}."
        why = "Threads have no order, so the result, and its gradient, are a matter of luck."
        instead = f"wb.{self.atomic_for(name)}({name}, ..., value), or another array for the results"
        text = f"Kernel {plan.program.name!r}: {touch}"
        return GradientError(text, slug="race", where=where, why=why, instead=instead)

    def atomic_for(self, name: str) -> str:
        """The atomic to write: that of `if d < best[0]: best[0] = d` is `atomic_min`."""
        for where in [w for w, n, _ in self.guard.table if n == name]:
            compared = re.search(r"if (.*?)([<>])=?\s*(.*)", where.text if where else "")
            if compared and f"{name}[" in compared[1] + compared[3]:
                return "atomic_min" if (compared[2] == "<") == (f"{name}[" in compared[3]) else "atomic_max"
        return "atomic_add"


def races_of(plan: Plan) -> Races | None:
    """The race finder of the launches of a plan; None where no two threads can touch one element."""
    if "races" not in plan.derived:
        plan.derived["races"] = find_races(plan) if plan.moved_from is None else races_of(plan.moved_from[0])
    return plan.derived["races"]


def find_races(plan: Plan, counts: bool = True) -> Races | None:
    """The finder for stores that may clash, or None. `counts`: False ignores integers only read and added to."""
    function, form = plan.program.function, plan.form
    if math.prod(form.dims) < 2:
        return None
    kinds: dict[str, set[Row]] = {}
    for s in walk(function.body):
        if s.row.touches:
            kinds.setdefault(root_name(s), set()).add(s.row)
    grouped = {n: g for g in form.groups for n in g}
    names: set[str] = set()
    for n in kinds:
        family = grouped.get(n, frozenset((n,)))
        together = set().union(*(kinds.get(m, set()) for m in family))
        alike = all(r.adds for r in together) or (len(together) == 1 and rows.STORE not in together)
        if not alike and (counts or not _counts(function, n, together)):
            alone = len(family) == 1 and n not in form.overlapping
            if not (alone and private(function, n, form)):
                names.add(n)
    if not names:
        return None
    guard = plan.program.once(racing.guard, function, frozenset(names), form.groups)
    executable = executable_for(
        plan.program, guard.function, replace(form, checked=True).beside(guard.function), ordered=True
    )
    if guard.private:  # it repeats atomics as plain updates of one copy
        executable.one_thread, executable.variant = True, replace(executable.variant, atomic=frozenset())
    position = {leaf.name: k for k, leaf in enumerate(plan.program.leaves)}
    checked = tuple(position[n] for n in guard.checked)
    return Races(guard, executable, checked, tuple(position[n] for n in sorted(guard.private)))


def _counts(function: Function, name: str, kinds: set[Row]) -> bool:
    """True for an array of integers that is only read and added to, never stored to."""
    integers = any(p.name == name and isinstance(p.type, Array) and is_int(p.type.dtype) for p in function.params)
    return integers and all(r.adds or r is rows.LOAD for r in kinds)


def _thread(number: int, dims: tuple[int, ...]) -> Any:
    """Text of the index of thread `number` (from 1); -1 stands for several."""
    if number < 1:
        return "others"
    index = tuple(int(i) for i in np.unravel_index(number - 1, dims))
    return index[0] if len(index) == 1 else index
