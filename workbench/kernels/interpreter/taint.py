"""Dynamic taint analysis: the values of a run that depend on unknown bytes (memory overwritten and not kept).

It sees every statement that `run.run` traces, and follows doubt the way values go: through arithmetic, memory, stacks
and control flow. Behind a condition or an index in doubt, all that the other way could have changed is in doubt too.
Invariant: what is not in doubt would be the same whatever the unknown bytes held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..ir import Function, Region, Stmt, Value, type_as, walk
from ..ops import control as c, memory as mem
from ..types import Array
from .run import LiveValues

_OVERWRITES = (mem.STORE, mem.LOG_STORE, mem.ATOMIC_EXCH)
_LOOPS = (c.FOR, c.WHILE)


class Taint:
    """The taint state of a running function: "in doubt" means tainted.

    `starts`: a marker statement at the start of every region of every loop -> (the loop, the region).
    `memory`: pairs of bytes that the run works on and a mask of them: is this byte known. The masks are changed.
    """

    def __init__(
        self,
        function: Function,
        starts: dict[Stmt, tuple[Stmt, Region]],
        memory: Iterable[tuple[np.ndarray, np.ndarray]],
    ):
        self.starts = starts
        self.memory = [(data.__array_interface__["data"][0], known) for data, known in memory]
        self.values: set[Value] = set()
        self.unknown_trips: set[Stmt] = set()  # running loops of which nobody knows how often they turn
        self.missed: set[Stmt] = set()  # control flow that is over, of which nobody knows which way it went
        self.turns: dict[Stmt, int] = {}
        self.stacks: dict[Value, list[bool]] = {}
        self.broken: set[Value] = set()  # stacks of which nobody knows how high they are
        self.undo: list[tuple[np.ndarray, np.ndarray]] = []
        self.thread: tuple[int, ...] = ()
        self.around: dict[Stmt, tuple[Stmt, ...]] = {}
        self.argument: dict[Value, Value] = {}  # the parameters of calls are names
        self._place(function.body, ())

    def _place(self, region: Region, around: tuple[Stmt, ...]) -> None:
        for stmt in region.body:
            self.around[stmt] = around
            if stmt.row is c.CALL:
                self.argument.update(zip(stmt.regions[0].params, stmt.args, strict=True))
            if stmt.row is c.EACH:
                self.argument.update(zip(stmt.regions[0].params[len(stmt.attr.shape) :], stmt.args, strict=True))
            inner = (*around, stmt) if stmt.row in (c.IF, *_LOOPS) else around
            for r in stmt.regions:
                self._place(r, inner)

    def __contains__(self, value: Value) -> bool:
        while value in self.argument:
            value = self.argument[value]
        return value in self.values

    def control_tainted(self, stmt: Stmt) -> bool:
        """True if it is unknown whether this statement ran: a condition or loop around it is in doubt."""
        return any(s.args[0] in self if s.row is c.IF else s in self.unknown_trips for s in self.around[stmt])

    def indexed(self, stmt: Stmt) -> bool:
        """True if the index of this access is in doubt."""
        return self.any(stmt.args[1 : 1 + type_as(stmt.args[0], Array).ndim])

    def any(self, values: Sequence[Value]) -> bool:
        return any(v in self for v in values)

    def mark(self, values: Sequence[Value], doubts: Sequence[bool]) -> None:
        for value, doubt in zip(values, doubts, strict=True):
            (self.values.add if doubt else self.values.discard)(value)

    # ---- one statement has run

    def see(self, thread: tuple[int, ...], stmt: Stmt, values: LiveValues) -> None:
        if thread != self.thread:
            self.thread = thread
            for held in (self.undo, self.unknown_trips, self.turns):
                held.clear()
        row = stmt.row
        if stmt in self.starts:
            self.begin(*self.starts[stmt])
        elif row is c.IF:
            taken = stmt.regions[0 if values[stmt.args[0]] else 1]
            self.over(stmt, stmt.args[0] in self, taken.results, values)
        elif row in _LOOPS:
            self.leave(stmt, values)
        elif row is c.CALL:
            self.mark(stmt.outs, [v in self for v in stmt.regions[0].results])
        elif row is c.EACH:
            self.elements(stmt, values)
        elif row.touches:
            self.access(stmt, values)
        elif row is mem.ROLLBACK:
            while len(self.undo) > int(values[stmt.args[0]]):
                known, before = self.undo.pop()
                known[...] = before
        elif row in (c.STACK, c.PUSH, c.POP):
            self.stack(stmt)
        else:
            self.mark(stmt.outs, [self.any(stmt.args) or self.control_tainted(stmt)] * len(stmt.outs))

    def elements(self, stmt: Stmt, values: LiveValues) -> None:
        """A tile made element by element: in doubt as a whole if any array that it reads is."""
        read = {s.args[0] for s in walk(stmt.regions[0]) if s.row.touches}
        doubt = self.any(stmt.args) or self.control_tainted(stmt) or not all(self.whole(a, values).all() for a in read)
        self.mark(stmt.outs, [doubt] * len(stmt.outs))

    # ---- memory

    def access(self, stmt: Stmt, values: LiveValues) -> None:
        row, ndim = stmt.row, type_as(stmt.args[0], Array).ndim
        lost = self.indexed(stmt)
        known = self.whole(stmt.args[0], values) if lost else self.cell(stmt, values)
        before = not lost and bool(known.all())
        dark = self.control_tainted(stmt)
        if row is mem.LOG_STORE:
            self.undo.append((known, known.copy()))
        if row is not mem.LOAD:
            sure = not (lost or dark or self.any(stmt.args[1 + ndim :]))
            known[...] = sure and (before or row in _OVERWRITES)
        self.mark(stmt.outs, [dark or not before] * len(stmt.outs))

    def cell(self, stmt: Stmt, values: LiveValues) -> np.ndarray:
        _, address, size = cell_of(stmt, values)
        return self.span(address, (size,), (1,))

    def whole(self, array: Value, values: LiveValues) -> np.ndarray:
        data = values[array]
        return self.span(data.__array_interface__["data"][0], (*data.shape, data.itemsize), (*data.strides, 1))

    def span(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
        """The mask of these bytes, True where known; untracked memory counts as known."""
        for start, known in self.memory:
            if start <= address < start + len(known):
                return np.ndarray(shape, bool, known, address - start, strides)
        return np.ones(shape, bool)

    def forget(self, regions: Sequence[Region], values: LiveValues) -> None:
        """Taint everything these regions may change, as it is unknown if they ran."""
        for stmt in (s for r in regions for s in walk(r)):
            if stmt.row.writes:
                self.whole(stmt.args[0], values)[...] = False
            elif stmt.row in (c.PUSH, c.POP):
                self.broken.add(stmt.args[0])

    def stack(self, stmt: Stmt) -> None:
        if stmt.row is c.STACK:
            self.stacks[stmt.outs[0]] = []
            self.broken.discard(stmt.outs[0])
        elif stmt.row is c.PUSH:
            self.stacks[stmt.args[0]].append(stmt.args[1] in self or self.control_tainted(stmt))
        else:
            popped = self.stacks[stmt.args[0]].pop()
            self.mark(stmt.outs, [popped or stmt.args[0] in self.broken or self.control_tainted(stmt)])

    # ---- control flow

    def over(self, stmt: Stmt, lost: bool, results: Sequence[Value], values: LiveValues) -> None:
        unsure = lost or self.control_tainted(stmt)
        self.mark(stmt.outs, [unsure or v in self for v in results])
        (self.missed.add if lost else self.missed.discard)(stmt)
        if lost:
            self.forget(stmt.regions, values)

    def begin(self, loop: Stmt, region: Region) -> None:
        """At the start of a loop region: propagate taint from the incoming carried values to its parameters."""
        body, n = loop.regions[-1], self.turns.get(loop, 0)
        counts = loop.row is c.FOR
        come: Sequence[Value] = carried(loop, n)
        control: Sequence[Value] = body.results[:1] if n and loop.attr.breaks else ()
        if counts:
            control = (*control, *loop.args[:3])
        elif region is body:
            control, come = loop.regions[0].results, loop.regions[0].params
        if self.any(control):
            self.unknown_trips.add(loop)
        lost = loop in self.unknown_trips
        doubts = [lost or v in self for v in come]
        self.mark(region.params, [lost, *doubts] if counts else doubts)
        if region is body:
            self.turns[loop] = n + 1

    def leave(self, loop: Stmt, values: LiveValues) -> None:
        n = self.turns.pop(loop, 0)
        test = loop.args[:3] if loop.row is c.FOR else loop.regions[0].results
        stop = loop.regions[-1].results[:1] if n and loop.attr.breaks else ()
        lost = loop in self.unknown_trips or self.any((*test, *stop))
        self.unknown_trips.discard(loop)
        self.over(loop, lost, carried(loop, n), values)


def carried(loop: Stmt, turns: int) -> tuple[Value, ...]:
    """The carried values that leave a loop after `turns` turns: to its next turn, or past its end."""
    if not turns:
        return loop.args[3:] if loop.row is c.FOR else loop.args
    return loop.regions[-1].results[1 if loop.attr.breaks else 0 :]


def cell_of(stmt: Stmt, values: LiveValues) -> tuple[tuple[int, ...], int, int]:
    """(index, address, size in bytes) of the memory cell that a statement has touched."""
    array = stmt.args[0]
    index = tuple(int(values[a]) for a in stmt.args[1 : 1 + type_as(array, Array).ndim])
    data = values[array]
    start = data.__array_interface__["data"][0]
    return index, start + sum(i * s for i, s in zip(index, data.strides, strict=False)), data[index].nbytes
