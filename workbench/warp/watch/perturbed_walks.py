"""Perturbed walks over the tape: memory moved by a rounding, the other slope at a kink, an array's adjoint cut out.

The first measures how far two right computations of a gradient may be apart. The second gives the gradient of a program
that chose the other of two right slopes, the third that of one whose adjoint ends at an array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...arrays.workspace import Workspace, float_parts, gradient_dtype
from ...errors import Where
from ...kernels import ir
from ...kernels.interpreter import run
from ...kernels.ops.scalar import ABS
from ...kernels.passes.other_slope import choices, other_slope
from ...launches.executable import executable_for
from ...tapes.events import Event
from ...tapes.rerun import Copies, Enough, is_number, run_copies, sample_adjoint, small
from ...tapes.reverse import reverse

THREADS = 512  # of a launch, looked at for operands that are equal


def floats(event: Event) -> Iterator[array]:
    """Yields the float arrays that an event touches; of struct arrays each float field."""
    yield from (part for a in event.places if isinstance(a, array) for part in float_parts(a).values())


class Rounded:
    """A step of the walk that moves memory and adjoints by up to two units in the last place."""

    def __init__(self, seed: int):
        self.numbers = np.random.default_rng(seed)

    def __call__(self, tape: Any, event: Event, space: Workspace, after: dict) -> None:
        parts = list(floats(event))
        kept = {}
        if event.reverse is not None and not event.reverse.extremal:  # those look for the very number that they stored
            kept = {part.allocation: part.allocation.bytes.copy() for part in parts}
            for part in parts:
                self.move(part.data)
        try:
            reverse(tape, event, space, after)
        finally:
            for allocation, values in kept.items():
                allocation.bytes[...] = values
        for part in parts:
            if part.allocation in space:
                self.move(space[part.allocation].view(part.span, gradient_dtype(part)))

    def move(self, values: np.ndarray) -> None:
        eps = np.finfo(values.dtype).eps
        values[...] = values * (1 + 2 * eps * self.numbers.uniform(-1, 1, values.shape))


class ZeroedStep:
    """A step of the walk that zeroes the adjoint of some memory, so that nothing flows through it."""

    def __init__(self, lost: Iterable[Allocation]):
        self.lost = list(lost)

    def __call__(self, tape: Any, event: Event, space: Workspace, after: dict) -> None:
        reverse(tape, event, space, after)
        for allocation in self.lost:
            if allocation in space:
                space[allocation].data[...] = 0


class RoundedWithin:
    """A step of the walk that perturbs every operation in one launch's adjoint by a rounding.

    `ran`: that launch was small enough for the interpreter.
    """

    def __init__(self, event: Event, seed: int):
        self.event, self.numbers, self.ran = event, np.random.default_rng(seed), False

    def __call__(self, tape: Any, event: Event, space: Workspace, after: dict) -> None:
        if event is not self.event or event.reverse is None or event.reverse.extremal or not small(event):
            reverse(tape, event, space, after)
            return
        copies = Copies(event, space)
        self.ran = run_copies(event.reverse.reverse.function, event, copies, self.round)
        if not self.ran:
            reverse(tape, event, space, after)
            return
        for allocation, values in copies.shadows.items():
            space[allocation].data[...] = values

    def round(self, thread: tuple[int, ...], stmt: ir.Stmt, values: run.LiveValues) -> None:
        if stmt.row.moves or not stmt.args:
            return
        for out in stmt.outs:
            if is_number(out):
                now = np.asarray(values[out])
                moved = now * (1 + np.finfo(now.dtype).eps * self.numbers.uniform(-1, 1, now.shape))
                values[out] = moved.astype(now.dtype)[()]


@dataclass(eq=False)
class OtherSlopes:
    """A step of the walk that takes the other slope at ties.

    looks  True: also find the first tie (slow if there is none) and its event, as `tie`.
    """

    looks: bool = False
    tie: tuple[ir.Stmt, Event] | None = None
    made: dict[int, Any] = field(default_factory=dict)  # by the id of an adjoint: it and the other one

    def __call__(self, tape: Any, event: Event, space: Workspace, after: dict) -> None:
        other = self.other(event) if is_choosing(event) else None
        if other is None:
            reverse(tape, event, space, after)
            return
        if self.looks and self.tie is None:
            self.look(event, space)
        own, event.reverse = event.reverse, other
        try:
            reverse(tape, event, space, after)
        finally:
            event.reverse = own

    def other(self, event: Event) -> Any:
        """The adjoint of a launch with the other slope at ties, as one function without a gather."""
        back = event.reverse
        if id(back) not in self.made:
            program, form = event.command.program, event.command.plan.form
            function = program.once(other_slope, back.reverse.function)
            executable = executable_for(program, function, form.beside(function), back.reverse.ordered)
            self.made[id(back)] = back, replace(back, executable=executable, pull=None)
        return self.made[id(back)][1]

    def look(self, event: Event, space: Workspace) -> None:
        """Find a tie that a non-zero adjoint passes, among up to THREADS threads of a launch; sets `tie`."""
        wanted = frozenset(s for s in choices(event.reverse.reverse.function) if is_number(s.args[0]))
        dims = event.command.plan.form.dims
        size = int(np.prod(dims))
        numbers = np.unique(np.linspace(0, size - 1, min(size, THREADS)).round().astype(int))
        threads = list(zip(*(axis.tolist() for axis in np.unravel_index(numbers, dims)), strict=True))

        def trace(thread: tuple[int, ...], stmt: ir.Stmt, values: run.LiveValues) -> None:
            nonlocal silent
            tied = np.asarray(values[stmt.args[0]] == values[stmt.args[1]])
            moved = [np.asarray(values[a] != 0) for a in stmt.args[2:]]
            if not moved and np.any(tied):  # which adjoint it sends on stands elsewhere
                silent = silent or stmt
            elif moved and np.any(tied & np.any(moved, axis=0)):
                self.tie = stmt.of or stmt, event
                raise Enough

        silent: ir.Stmt | None = None
        sample_adjoint(event, space, trace, wanted, threads)
        if self.tie is None and silent is not None:
            self.tie = silent.of or silent, event

    @property
    def where(self) -> Where | None:
        return None if self.tie is None else self.tie[0].where

    def sentence(self) -> str:
        """The location of the kink as text, as far as it was found."""
        if self.tie is None:
            return "kink: a `min`, `max`, `abs` or `clamp` on the way has both operands equal"
        stmt, where = self.tie[0], self.where
        place = f" in line {where.line}" if where is not None else ""
        at = "is at 0" if stmt.row is ABS else "has both operands equal"
        return f"kink: `{stmt.row.name}`{place} {at}"


def is_choosing(event: Event) -> bool:
    """True if the adjoint of an event chooses between two slopes somewhere."""
    back = event.reverse
    if back is None or event.command is None:
        return False
    return bool(event.command.program.once(choices, back.reverse.function))
