"""A program that finds races: the thread again, leaving its number on every cell it touches.

For launches whose stores are not proven apart. Run twice over the memory that the launch saw: in the second run every
cell already carries a number, so a thread that reads or writes a cell of another one meets it, whatever the order
(shadow memory: Nethercote & Seward, VEE 2007; here it holds the last writer and the last atomic of every cell).
Cells are single components, so threads may write different components of one vector.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from ...errors import Where
from ..ir import Function, Region, Role, Stmt, Value, companion, constant, numeric, root, type_as
from ..ops import control as c, memory as mem
from ..ops.row import ROWS
from ..types import Array, Composite, int32
from . import simplify
from .named import named_pass
from .prune import prune
from .replay import Groups, Replay

PLACE = 4  # words of the record before the index: statement + 1, this thread, the other thread, its statement + 1
FOUND = PLACE + 6  # four axes and those of a matrix


@dataclass(frozen=True)
class RaceReplay:
    """The program and what it asks for.

    Parameters: the kernel's; then per checked array the MARKS (who stored here, in which statement, who updated it
    atomically, in which statement), int32 with component axes; last the record of those who met, int32[FOUND].
    `table` gives place, array and row of each statement number.
    """

    function: Function
    checked: tuple[str, ...]
    needs: frozenset[str]
    private: frozenset[str]
    table: tuple[tuple[Where | None, str, str], ...]


MARKS = (Role.OWNER, Role.BY, Role.ADDER, Role.KIND)


@named_pass("race finder")
def guard(function: Function, names: frozenset[str], groups: Groups = ()) -> RaceReplay:
    """The race finder of a kernel for the array parameters `names`. `groups`: those that share memory."""
    return _Guard(function, names, groups).guard()


class _Guard(Replay):
    own_replays = False

    def __init__(self, primal: Function, names: frozenset[str], groups: Groups):
        super().__init__(primal, groups)
        self.checked = tuple(p.name for p in primal.arrays if p.name in names)
        self.accesses: list[Stmt] = []
        self.marks: dict[tuple[Role, str], Value] = {}

    def guard(self) -> RaceReplay:
        known = self.parameters()
        params = self.builder.region.params
        for p in self.primal.arrays:
            for mark in MARKS if p.name in self.checked else ():
                dtype = type_as(p, Array).dtype
                axes = type_as(p, Array).ndim + len(getattr(dtype, "shape", ()))
                self.marks[mark, p.name] = companion(params, mark, p.name, Array(int32, axes))
        self.found = companion(params, Role.FOUND, "", Array(int32, 1))
        with self.builder.open():
            self.me = ROWS["add"](c.thread_number(self.primal.rank), constant(int32, 1))  # 0: nobody
            self.replay(self.primal.body, known, False)
        made = prune(simplify.rewrite(self.named("races")), self.groups)
        needs, private = self.asks(made)
        table = tuple((s.where, root(s.args[0]).name, s.row.name) for s in self.accesses)
        return RaceReplay(made, self.checked, needs, private, table)

    # ---- every access leaves and meets numbers

    def replay_value(self, stmt: Stmt, known: dict, record: bool) -> None:
        super().replay_value(stmt, known, record)
        if stmt.row is mem.LOAD:
            self.touch(stmt, known, False)

    def replay_store(self, stmt: Stmt, known: dict, record: bool) -> None:
        self.touch(stmt, known, True)
        super().replay_store(stmt, known, record)

    def replay_atomic(self, stmt: Stmt, known: dict, record: bool) -> None:
        name = root(stmt.args[0]).name
        if name in self.checked:
            number = self.number_of(stmt)
            for cell in self.cells(stmt, known):
                self.update(stmt, name, cell, number)
        super().replay_atomic(stmt, known, record)
        for out in stmt.outs:
            if out not in known:
                known[out] = self.zero(out.type)

    def replay_write(self, array: Value, rest: list[Value]) -> None:
        """Left out later where nothing that decides about a cell is read from it."""
        role, self.builder.role = self.builder.role, "replay"
        super().replay_write(array, rest)
        self.builder.role = role

    def number_of(self, stmt: Stmt) -> int:
        self.accesses.append(stmt)
        return len(self.accesses)

    def cells(self, stmt: Stmt, known: dict) -> list[list[Value]]:
        """The cells of an access, component by component."""
        indices = self.indices(stmt, known)
        array = stmt.args[0]
        if array.stmt is not None or not isinstance(type_as(array, Array).dtype, Composite):
            return [indices]
        axes = [range(n) for n in numeric(type_as(array, Array).dtype).shape]
        return [[*indices, *(constant(int32, i) for i in at)] for at in itertools.product(*axes)]

    def touch(self, stmt: Stmt, known: dict, writes: bool) -> None:
        name = root(stmt.args[0]).name
        if name not in self.checked:
            return
        number = self.number_of(stmt)
        for cell in self.cells(stmt, known):
            adder, kind = self.meet_owner(name, cell, number)
            self.meet(self.other(adder), number, adder, kind, cell)
            if writes:
                self.leave(Role.OWNER, name, cell, self.me)
                self.leave(Role.BY, name, cell, constant(int32, number))

    def update(self, stmt: Stmt, name: str, cell: list[Value], number: int) -> None:
        """An atomic may meet atomics of its own kind; -1 stands for several threads."""
        adder, kind = self.meet_owner(name, cell, number)
        clash = self.other(adder)
        for k, before in enumerate(self.accesses, 1):
            # Atomics of one kind come to the same in whatever order threads do them.
            alike = before.row is stmt.row or (before.row.adds and stmt.row.adds)
            if alike and root(before.args[0]).name == name:
                clash = ROWS["logical_and"](clash, ROWS["ne"](kind, constant(int32, k)))
        self.meet(clash, number, adder, kind, cell)
        several = ROWS["where"](self.other(adder), constant(int32, -1), self.me)
        self.leave(Role.ADDER, name, cell, several)
        self.leave(Role.KIND, name, cell, constant(int32, number))

    def meet_owner(self, name: str, cell: list[Value], number: int) -> tuple[Value, Value]:
        """Meet who stored to a cell; returns who updated it atomically, and in which statement."""
        owner, by = self.at(Role.OWNER, name, cell), self.at(Role.BY, name, cell)
        self.meet(self.other(owner), number, owner, by, cell)
        return self.at(Role.ADDER, name, cell), self.at(Role.KIND, name, cell)

    def at(self, mark: Role, name: str, cell: list[Value]) -> Value:
        return self.builder.emit(mem.LOAD, self.marks[mark, name], *cell)

    def leave(self, mark: Role, name: str, cell: list[Value], value: Value) -> None:
        role, self.builder.role = self.builder.role, "adjoint"
        self.builder.emit(mem.STORE, self.marks[mark, name], *cell, value)
        self.builder.role = role

    def other(self, owner: Value) -> Value:
        """True (an IR value) where the cell carries the number of another thread."""
        zero = constant(int32, 0)
        return ROWS["logical_and"](ROWS["ne"](owner, zero), ROWS["ne"](owner, self.me))

    def meet(self, clash: Value, number: int, other: Value, by: Value, cell: list[Value]) -> None:
        region = Region()
        with self.builder.inside(region):
            place = [i if i.type == int32 else ROWS["cast"](i, attr=int32) for i in cell]
            for k, value in enumerate((constant(int32, number), self.me, other, by, *place)):
                self.builder.emit(mem.STORE, self.found, constant(int32, k), value)
        self.builder.append(c.IF, (clash,), (), (region, Region()))
