"""The forward sweep: what a thread did, again, without side effects. Adjoint, tangent, ties and races stand on it.

Its statements are written once more, so every value that the thread computed is known. Memory: the replay reads what
the launch read. Where a thread reads memory that it also wrote (and the value is not known from the store itself), the
parameter is `private`: the stores are repeated on a copy that the tape lends, with an undo log when there are loops.

What a reverse sweep will ask for is recorded on the way: a branch hands the values made inside it to the outside; a
loop pushes the values it carries at the start of every turn and counts its turns, so that each can be entered again,
last first (Griewank & Walther, Evaluating Derivatives, 2nd ed. 2008, chapter 12: a checkpoint at every turn).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from ..ir import Builder, Function, Region, Stmt, Value, constant, enter, is_value, numeric, root, type_as, used, walk
from ..ops import control as c, memory as mem
from ..ops.row import ROWS
from ..types import Array, Stack, Tile, Type, bool_, int32, int64

Key = object  # a primal Value, or (stmt, "trips") for the number of turns a loop made
Groups = tuple[frozenset[str], ...]


class Replay:
    """A thread of `primal` again, emitted by `builder`: the base of adjoint, tangent and others.

    `groups`: sets of array parameters that share memory at this launch; all others are taken as disjoint. `private`:
    parameters that a thread both reads and writes. `logging`: stores to those are logged, for rollback turn by turn.
    `reused`: the atomics whose results the thread uses.
    """

    own_replays = True  # a call is repeated by its func_replay; else the func that ran is
    walks_back = True  # turns of loops are undone, last first

    def __init__(self, primal: Function, groups: Groups = ()):
        self.primal, self.groups = primal, groups
        self.builder = Builder()
        self.stacks: dict[object, Value] = {}
        self.quiet = False  # inside an `each` that is reversed: what it stores has been stored again already
        stmts = list(walk(primal.body))
        self.written = {root(s.args[0]).name for s in stmts if s.row.writes}
        wanted = used(primal.body)
        self.reused = [s for s in stmts if s.row in mem.ATOMICS and s.outs[0] in wanted]
        read = {root(s.args[0]).name for s in [*self.reused, *(s for s in stmts if s.row is mem.LOAD)]}
        self.private = frozenset(n for n in self.written if self.group(n) & read)
        self.logging = self.walks_back and bool(self.private) and any(s.row in (c.FOR, c.WHILE) for s in stmts)

    def parameters(self) -> dict[Key, Value]:
        """The kernel's own parameters, as the first of the function that is written."""
        known: dict[Key, Value] = {p: Value(p.type, p.name, p.where) for p in self.primal.params}
        self.builder.region.params += known.values()
        return known

    def named(self, suffix: str) -> Function:
        """The function of all statements emitted so far, named with `suffix`."""
        return self.primal.with_body(self.builder.region, f"{self.primal.name}_{suffix}")

    def asks(self, made: Function) -> tuple[frozenset[str], frozenset[str]]:
        """(arrays that `made` reads as they were at the launch, arrays of which it needs a private copy)."""
        names = {p.name for p in self.primal.params}
        stmts = list(walk(made.body))
        loads = {root(s.args[0]).name for s in stmts if s.row is mem.LOAD} & names
        written = {root(s.args[0]).name for s in stmts if s.role == "replay" and s.row in (mem.STORE, mem.LOG_STORE)}
        return frozenset(loads), frozenset(written)

    # ---- small pieces

    def group(self, name: str) -> frozenset[str]:
        """The parameters that share memory with this one, and itself."""
        return next((g for g in self.groups if name in g), frozenset((name,)))

    def zero(self, type: Type) -> Value:
        return constant(type, False if type is bool_ else 0)

    def array(self, primal: Value, known: dict) -> Value:
        """The replayed array value; `components` views are made where they are used."""
        if primal in known:
            return known[primal]
        assert primal.stmt is not None and primal.stmt.row is mem.COMPONENTS
        return self.builder.emit(mem.COMPONENTS, self.array(primal.stmt.args[0], known))

    def operands(self, stmt: Stmt, known: dict) -> list[Value]:
        """The replayed arguments of a statement."""
        return [self.array(a, known) if isinstance(a.type, Array) else known[a] for a in stmt.args]

    def indices(self, stmt: Stmt, known: dict) -> list[Value]:
        """The replayed indices of an access."""
        ndim = type_as(stmt.args[0], Array).ndim
        return [known[a] for a in stmt.args[1 : 1 + ndim]]

    # ---- statements

    def replay(self, region: Region, known: dict, record: bool) -> None:
        """Emit the statements again. With `record`, keep the values that the reverse sweep needs."""
        for stmt in region.body:
            with self.builder.at(stmt.where, stmt):
                getattr(self, _REPLAY.get(stmt.row, "replay_value"))(stmt, known, record)

    def replay_value(self, stmt: Stmt, known: dict, record: bool) -> None:
        if stmt.row is mem.COMPONENTS:
            return
        self.builder.repeat(stmt, self.operands(stmt, known), known)

    def replay_nothing(self, stmt: Stmt, known: dict, record: bool) -> None:
        """Output to the user is not repeated."""

    def replay_store(self, stmt: Stmt, known: dict, record: bool) -> None:
        if root(stmt.args[0]).name in self.private and not self.quiet:
            self.replay_write(self.array(stmt.args[0], known), [known[a] for a in stmt.args[1:]])

    def replay_write(self, array: Value, rest: list[Value]) -> None:
        self.builder.emit(mem.LOG_STORE if self.logging else mem.STORE, array, *rest)

    def replay_atomic(self, stmt: Stmt, known: dict, record: bool) -> None:
        """Repeat an atomic as load, update and store on the private copy; nothing if the array is not private."""
        if root(stmt.args[0]).name not in self.private or self.quiet:
            return
        array, indices = self.array(stmt.args[0], known), self.indices(stmt, known)
        operands = [known[a] for a in stmt.args[1 + len(indices) :]]
        assert stmt.row.update is not None
        old = self.builder.emit(mem.LOAD, array, *indices)
        self.replay_write(array, [*indices, stmt.row.update(old, *operands)])
        known[stmt.outs[0]] = old

    def replay_if(self, stmt: Stmt, known: dict, record: bool) -> None:
        before = len(known)
        made = [self.builder.like(r, known, lambda r, scope: self.replay(r, scope, record)) for r in stmt.regions]
        regions, inner = [new for new, _ in made], [scope for _, scope in made]
        sides = list(zip(inner, stmt.regions, strict=True))
        columns = [tuple(scope[r.results[j]] for scope, r in sides) for j in range(len(stmt.outs))]
        keys: list[Key] = list(stmt.outs)
        if record:
            for side in (0, 1):
                zeros: dict[Type, Value] = {}
                for key, value in itertools.islice(inner[side].items(), before, None):
                    if value.stmt is not None and value.stmt.row is c.CONST and key not in known:
                        known[key] = constant(value.type, value.stmt.attr)
                    elif key not in known and is_value(value.type):
                        other = zeros.get(value.type)
                        if other is None:
                            with self.builder.inside(regions[1 - side]):
                                other = zeros[value.type] = self.zero(value.type)
                        columns.append((value, other) if side == 0 else (other, value))
                        keys.append(key)
        for side in (0, 1):
            regions[side].results = tuple(column[side] for column in columns)
        types = [column[0].type for column in columns]
        outs = self.builder.append(c.IF, (known[stmt.args[0]],), types, tuple(regions)).outs
        for key, out in zip(keys, outs, strict=True):
            out.name = key.name if isinstance(key, Value) else "trips"
            known[key] = out

    def replay_loop(self, stmt: Stmt, known: dict, record: bool) -> None:
        """Emit a loop again; with `record` it pushes its carried values and counts turns that are not known."""
        counted = record and (stmt.row is c.WHILE or stmt.attr.breaks)
        fixed = 3 if stmt.row is c.FOR else 0
        args = [known[a] for a in stmt.args]
        regions = []

        def turn(region: Region, scope: dict) -> None:
            for stack, p in self.carried(stmt) if record and region is stmt.regions[-1] else ():
                self.builder.emit(c.PUSH, stack, self.builder.emit(mem.MARK) if p is None else scope[p])
            self.replay(region, scope, False)

        for region in stmt.regions:
            new, _ = self.builder.like(region, known, turn)
            if counted:
                turns = Value(int32, "turns")
                new.params.append(turns)
                if region is stmt.regions[-1]:
                    with self.builder.inside(new):
                        new.results += (ROWS["add"](turns, constant(int32, 1)),)
            regions.append(new)
        if counted:
            args.append(constant(int32, 0))
        types = [a.type for a in args[fixed:]]
        made = self.builder.append(stmt.row, args, types, tuple(regions), attr=stmt.attr)
        enter(known, stmt.outs, made.outs)
        if record:
            known[(stmt, "trips")] = made.outs[-1] if counted else self.builder.emit(mem.TRIPS, *args[:3])

    def replay_each(self, stmt: Stmt, known: dict, record: bool) -> None:
        """All elements again; what is made for one of them is made once more when it is reversed."""
        made = self.each(stmt, known, [], lambda region, scope: self.replay(region, scope, False))
        enter(known, stmt.outs, made.outs)

    def each(
        self,
        stmt: Stmt,
        known: dict,
        more: list[tuple[object, Value]],
        write: Callable[[Region, dict], list | None],
        attr: c.Each | None = None,
    ) -> Stmt:
        """An `each` over the same indices. `more`: (key, tile) of further tiles whose elements `write` finds in its
        scope; it returns the results, or None for those of the primal.
        """
        (region,) = stmt.regions
        scope = dict(known)
        new = Region([Value(p.type, p.name, p.where) for p in region.params])
        scope.update(zip(region.params, new.params, strict=True))
        for key, tile in more:
            scope[key] = Value(numeric(tile).scalar, tile.name)
            new.params.append(scope[key])
        with self.builder.inside(new):
            results = write(region, scope)
            new.results = tuple([scope[r] for r in region.results] if results is None else results)
        args = [*(known[a] for a in stmt.args), *(tile for _, tile in more)]
        types: list[Type] = [Tile(stmt.attr.shape, numeric(r).scalar) for r in new.results]
        return self.builder.append(c.EACH, args, types, (new,), attr=attr or stmt.attr)

    def carried(self, stmt: Stmt) -> list[tuple[Value, Value | None]]:
        """The stacks of a loop with what goes on each: its carried values, and the height of the undo log (None)."""
        body = stmt.regions[-1]
        params: list[Value | None] = [*body.params[1:]] if stmt.row is c.FOR else [*body.params]
        if self.logging:
            params.insert(0, None)
        out = []
        for k, p in enumerate(params):
            key = (stmt, k)
            if key not in self.stacks:
                large = p is not None and isinstance(p.type, Tile)
                type = Stack(int64 if p is None else p.type, None if large else stmt.attr.trips)
                with self.builder.inside(Region()):
                    self.stacks[key] = self.builder.append(c.STACK, (), (type,), attr=type).outs[0]
            out.append((self.stacks[key], p))
        return out

    def reenter(self, stmt: Stmt, known: dict, turn: Value) -> dict:
        """The scope of one turn of a recorded loop: the loop variable, and the carried values it started from."""
        scope = dict(known)
        role, self.builder.role = self.builder.role, "replay"
        body = stmt.regions[-1]
        if stmt.row is c.FOR:
            start, step = known[stmt.args[0]], known[stmt.args[2]]
            i = body.params[0]
            if turn.type != i.type:
                turn = ROWS["cast"](turn, attr=i.type)
            scope[i] = ROWS["add"](start, ROWS["mul"](turn, step))
            scope[i].name = i.name
        for stack, p in reversed(self.carried(stmt)):
            value = self.builder.emit(c.POP, stack, name="" if p is None else p.name)
            if p is None:
                self.builder.emit(mem.ROLLBACK, value)
            scope[(stmt, "mark") if p is None else p] = value
        self.builder.role = role
        return scope

    # ---- funcs with an adjoint or a replay of their own

    def replay_call(self, stmt: Stmt, known: dict, record: bool) -> None:
        """Emit the func's body, or its func_replay (`again`)."""
        region = self.again(stmt)
        known.update(zip(region.params, self.operands(stmt, known), strict=True))
        self.replay(region, known, record)
        known.update((out, known[result]) for out, result in zip(stmt.outs, region.results, strict=True))

    def again(self, stmt: Stmt) -> Region:
        """The region that repeats a call: its func_replay, unless that reads memory that it or the kernel writes.

        The replay runs on memory as it was before the launch. The func itself is repeated exactly, so nothing is lost.
        """
        replay = stmt.attr.replay if self.own_replays else None
        stmts = list(walk(replay)) if replay is not None else []
        written = self.written | {root(s.args[0]).name for s in stmts if s.row.writes}
        reads = [root(s.args[0]).name for s in stmts if s.row is mem.LOAD or s.row in mem.ATOMICS]
        return stmt.regions[0] if replay is None or any(self.group(n) & written for n in reads) else replay

    def repeated(self, region: Region) -> Iterator[Stmt]:
        """Iterate over every statement, also those of the replays of calls."""
        for stmt in walk(region):
            yield stmt
            if stmt.row is c.CALL and self.again(stmt) is not stmt.regions[0]:
                yield from self.repeated(self.again(stmt))


_REPLAY = {
    c.IF: "replay_if",
    c.FOR: "replay_loop",
    c.WHILE: "replay_loop",
    c.CALL: "replay_call",
    c.EACH: "replay_each",
    c.PRINTF: "replay_nothing",
    c.ASSERT: "replay_nothing",
    mem.STORE: "replay_store",
    **dict.fromkeys(mem.ATOMICS, "replay_atomic"),
}
