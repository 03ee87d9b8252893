"""The adjoint of a kernel, IR -> IR: replay what the thread did, then walk its statements backwards.

Forward sweep: the primal statements again, without side effects. A branch hands the values made inside it to the
outside, so its reverse finds them; a loop pushes the values it carries at the start of every turn.
Reverse sweep: every row's adjoint rule, last statement first. A reversed loop pops the carried values, replays one
turn and reverses it; adjoints of outer values are carried through regions, so there is no mutable state but memory.

Memory: the replay reads what the launch read. Where a thread reads memory that it also wrote (and the value is not
known from the store itself) the parameter is `private`: the replay repeats its stores on a copy that the tape lends,
with an undo log when there are loops. Everything built here is then pruned: `simplify` keeps what a gradient needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ...errors import KernelError
from ..ir import Builder, Function, Region, Stmt, Value, is_value, root, walk
from ..ops import control as c
from ..ops import memory as mem
from ..ops.row import NO_GRADIENT, ROWS, Effect
from ..types import (
    Array,
    Composite,
    Matrix,
    Quat,
    Scalar,
    Stack,
    Type,
    Vector,
    bool_,
    float16,
    float32,
    int32,
    int64,
    is_float,
    matrix,
    quaternion,
)
from ..types import vector as vector_type
from . import simplify


@dataclass(frozen=True)
class Reverse:
    """An adjoint and what it asks of the tape.

    `needs`: array parameters whose contents at the launch the replay reads. `private`: those it also writes, to be
    lent as copies. `ordered`: the result of an atomic is reused, so threads must run one after the other, in order.
    `returned`: the atomic whose result carries a derivative; that is exact for one thread only.
    `extremal`: arrays under atomic_min or atomic_max. For each, `function` takes two more parameters: `after_<name>`,
    what it held after the launch, and `ties_<name>`, among how many contributors a cell's adjoint is shared; `count`
    adds up the threads' part of the latter.
    """

    function: Function
    active: frozenset[str]
    needs: frozenset[str]
    private: frozenset[str]
    ordered: bool
    extremal: tuple[str, ...] = ()
    count: Function | None = None
    returned: Stmt | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """In words: what is computed again, what is recorded, what is read again, and why."""
        stmts = list(walk(self.function.body))
        out = []
        if any(s.role == "replay" for s in stmts):
            out.append("Replayed (~): computed again by the same code, so to the last bit what the launch had.")
        for s in stmts:
            if s.row is c.PUSH and s.args[1].name:
                line = f" in line {s.where.line}" if s.where else ""
                out.append(f"Recorded: {s.args[1].name!r}, which the loop{line} carries from turn to turn.")
        for name in sorted(self.needs):
            out.append(f"Read again: {name!r} as it was at the launch; the tape keeps it if it is overwritten.")
        for name in sorted(self.private):
            out.append(f"Private: the thread reads {name!r} after writing it, so its stores are repeated on a copy.")
        for name in self.extremal:
            out.append(f"Compared: {name!r} as it was after the launch, to find whose value it took.")
        if self.ordered:
            out.append("In order: the result of an atomic is used, so threads run one after the other.")
        return tuple(dict.fromkeys(out))


def shadow_type(type: Type) -> Type:
    """The type of an adjoint: the value's own, but float32 for float16."""
    if isinstance(type, Array):
        return Array(shadow_type(type.dtype), type.ndim)
    if isinstance(type, Scalar):
        return float32 if type is float16 else type
    if isinstance(type, Composite) and type.scalar is float16:
        if isinstance(type, Vector):
            return vector_type(type.length, float32)
        if isinstance(type, Matrix):
            return matrix(type.shape, float32)
        assert isinstance(type, Quat)
        return quaternion(float32)
    return type


def adjoint(function: Function, active: frozenset[str], groups: tuple[frozenset[str], ...] = ()) -> Reverse:
    """The adjoint of `function` for the parameters named in `active`.

    `groups` are sets of array parameters that share memory at this launch; all others are taken as disjoint.
    Raises KernelError where an operation on an active path has no derivative.
    """
    _refuse_taken_names(function, active)
    forwarded = simplify.forward(function, groups)
    made = _Adjoint(forwarded, active, groups)
    reverse = made.build()
    return replace(reverse, count=_Count(forwarded, active, groups).build_count()) if made.extremal else reverse


def _refuse_taken_names(function: Function, active: frozenset[str]) -> None:
    """An adjoint names its own parameters after the kernel's: `d_x` belongs to `x`."""
    names = {p.name for p in function.params}
    for p in (q for q in function.params if isinstance(q.type, Array) or q.name in active):
        for taken in names & {f"d_{p.name}", f"after_{p.name}", f"ties_{p.name}"}:
            raise KernelError(
                f"parameter {taken!r} has the name that the adjoint of this kernel gives to "
                f"the companion of {p.name!r}.",
                slug="taken-name", where=next(q.where for q in function.params if q.name == taken) or function.where,
                instead=f"another name for {taken!r}",
            )  # fmt: skip


_MEMORY_WRITES = (mem.STORE, *mem.ATOMICS)
_MEMORY_READS = (mem.LOAD, *mem.ATOMICS)
Key = object  # a primal Value, or (stmt, "trips") for the number of turns a loop made


@dataclass
class _Adjoint:
    primal: Function
    active: frozenset[str]
    groups: tuple[frozenset[str], ...]
    builder: Builder = field(default_factory=Builder)
    shadows: dict[str, Value] = field(default_factory=dict)
    stacks: dict[object, Value] = field(default_factory=dict)
    after: dict[str, Value] = field(default_factory=dict)
    ties: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.written = {root(s.args[0]).name for s in walk(self.primal.body) if s.row in _MEMORY_WRITES}
        stmts = list(self.repeated(self.primal.body))
        self.varied = _varied(self.primal, self.active, stmts)
        self.risky = _risky(stmts)
        self.extremal = self._extremal()
        self.private = self._private()
        self.logging = bool(self.private) and any(s.row in (c.FOR, c.WHILE) for s in walk(self.primal.body))
        used = {v for s in walk(self.primal.body) for v in (*s.args, *(r for g in s.regions for r in g.results))}
        self.reused = [s for s in walk(self.primal.body) if s.row in mem.ATOMICS and s.outs[0] in used]

    def parameters(self, shadows: bool) -> dict[Key, Value]:
        """The parameters: the primal's, a shadow for each active one, two helpers for each extremal one."""
        known: dict[Key, Value] = {}
        body = self.builder.region
        for p in self.primal.params:
            known[p] = Value(p.type, p.name, p.where)
            body.params.append(known[p])
        for p in self.primal.params if shadows else ():
            if p.name in self.active:
                type = shadow_type(p.type) if isinstance(p.type, Array) else Array(shadow_type(p.type), 1)
                self.shadows[p.name] = Value(type, f"d_{p.name}", p.where)
                body.params.append(self.shadows[p.name])
        for p in self.primal.params:
            if p.name in self.extremal:
                self.after[p.name] = Value(p.type, f"after_{p.name}", p.where)
                self.ties[p.name] = Value(shadow_type(p.type), f"ties_{p.name}", p.where)
                body.params += [self.after[p.name], self.ties[p.name]]
        return known

    def build(self) -> Reverse:
        known = self.parameters(True)
        body = self.builder.region
        with self.builder.open():
            self.builder.role = "replay"
            again, start = dict(known), self.builder.emit(mem.MARK) if self.reused and self.logging else None
            self.replay(self.primal.body, known, True)
            self.builder.role = "adjoint"
            adjoints: dict[Value, Value] = {}
            self.reverse(self.primal.body, known, adjoints)
            if start is not None:  # the next thread's atomics go on from where this one's ended
                self.builder.role = "replay"
                self.builder.emit(mem.ROLLBACK, start)
                self.replay(self.primal.body, again, False)
                self.builder.role = "adjoint"
            for p, g in adjoints.items():
                if p.name in self.shadows:
                    self.builder.emit(mem.ACCUMULATE, self.shadows[p.name], self.number(int32, 0), g)
        body.body[:0] = [v.stmt for v in self.stacks.values() if v.stmt]
        return self._describe(simplify.adjoint(self.named("adjoint"), self.groups))

    def named(self, suffix: str) -> Function:
        source, body = self.primal, self.builder.region
        name = f"{source.name}_{suffix}"
        return Function(name, body, source.rank, source.where, source.source, source.first_line, source.file)

    def _describe(self, made: Function) -> Reverse:
        names = {p.name for p in self.primal.params}
        loads = {root(s.args[0]).name for s in walk(made.body) if s.row is mem.LOAD} & names
        written = {root(s.args[0]).name for s in walk(made.body) if s.role == "replay" and s.row in _REPLAYED_STORES}
        returned = next((s for s in self.reused if s.outs[0] in self.varied), None)
        needs = frozenset(loads) | frozenset(self.extremal)
        return Reverse(
            made, self.active, needs, frozenset(written), bool(self.reused), self.extremal, returned=returned
        )

    # ---- what shares memory

    def group(self, name: str) -> frozenset[str]:
        for g in self.groups:
            if name in g:
                return g
        return frozenset((name,))

    def _private(self) -> frozenset[str]:
        """Parameters that are both read and written by a thread, directly or under another name."""
        stmts = list(walk(self.primal.body))
        written = {root(s.args[0]).name for s in stmts if s.row in _MEMORY_WRITES}
        read = {root(s.args[0]).name for s in stmts if s.row is mem.LOAD}
        read |= {root(s.args[0]).name for s in stmts if s.row in mem.ATOMICS and _used(s.outs[0], self.primal)}
        return frozenset(n for n in written if self.group(n) & read)

    def _extremal(self) -> tuple[str, ...]:
        """Active arrays under atomic_min or atomic_max. Whatever else a kernel does with them is refused."""
        stmts = [s for s in walk(self.primal.body) if s.args and isinstance(s.args[0].type, Array)]
        found = {root(s.args[0]).name: s for s in stmts if s.row in _EXTREMAL and self.is_active(s.args[0])}
        for s in stmts:
            name = root(s.args[0]).name
            shared = [n for n in found if n in self.group(name)]
            if not shared or s.row in (mem.COMPONENTS, mem.SHAPE):
                continue
            if s.row is not found[shared[0]].row or name != shared[0] or _used(s.outs[0], self.primal):
                raise KernelError(
                    f"`{found[shared[0]].row.name}` on {shared[0]!r} and another use of the same memory in one kernel"
                    " cannot be differentiated.",
                    slug="atomic-mixed", where=s.where, why="Who wins depends on what happened between the two.",
                    instead="two kernels: one with the atomic alone",
                )  # fmt: skip
        return tuple(p.name for p in self.primal.params if p.name in found)

    # ---- small pieces

    def number(self, type: Type, value: object) -> Value:
        return self.builder.append(c.CONST, (), (type,), attr=value).outs[0]

    def zero(self, type: Type) -> Value:
        return self.number(type, False if type is bool_ else 0)

    def array(self, primal: Value, known: dict) -> Value:
        """The replayed array value; `components` views are made where they are used."""
        if primal in known:
            return known[primal]
        assert primal.stmt is not None and primal.stmt.row is mem.COMPONENTS
        return self.builder.emit(mem.COMPONENTS, self.array(primal.stmt.args[0], known))

    def shadow(self, primal: Value) -> Value:
        if primal.stmt is None:
            return self.shadows[primal.name]
        return self.builder.emit(mem.COMPONENTS, self.shadow(primal.stmt.args[0]))

    def is_active(self, array: Value) -> bool:
        return root(array).name in self.active

    def add(self, adjoints: dict, value: Value, g: Value | None) -> None:
        """Add a contribution to the adjoint of a primal value, if it has one."""
        if g is None or value not in self.varied:
            return
        adjoints[value] = g if value not in adjoints else ROWS["add"](adjoints[value], g)

    # ---- forward sweep

    def replay(self, region: Region, known: dict, record: bool) -> None:
        """Write the statements again. With `record`, what the reverse sweep will ask for is kept."""
        for stmt in region.body:
            with self.builder.at(stmt.where, stmt):
                method = _REPLAY.get(stmt.row.name, "replay_value")
                getattr(self, method)(stmt, known, record)

    def replay_value(self, stmt: Stmt, known: dict, record: bool) -> None:
        if stmt.row is mem.COMPONENTS:
            return
        args = [self.array(a, known) if isinstance(a.type, Array) else known[a] for a in stmt.args]
        types = [o.type for o in stmt.outs]
        made = self.builder.append(stmt.row, args, types, attr=stmt.attr)
        for out, new in zip(stmt.outs, made.outs, strict=True):
            new.name = out.name
            known[out] = new

    def replay_nothing(self, stmt: Stmt, known: dict, record: bool) -> None:
        """Output to the user is not repeated."""

    def replay_store(self, stmt: Stmt, known: dict, record: bool) -> None:
        if root(stmt.args[0]).name in self.private:
            self.replay_write(self.array(stmt.args[0], known), [known[a] for a in stmt.args[1:]])

    def replay_write(self, array: Value, rest: list[Value]) -> None:
        self.builder.emit(mem.LOG_STORE if self.logging else mem.STORE, array, *rest)

    def replay_atomic(self, stmt: Stmt, known: dict, record: bool) -> None:
        """On the private copy; only a thread that has the cell to itself can tell the difference."""
        if root(stmt.args[0]).name not in self.private:
            return
        array = self.array(stmt.args[0], known)
        ndim = array.type.ndim  # type: ignore[attr-defined]
        indices = [known[a] for a in stmt.args[1 : 1 + ndim]]
        operands = [known[a] for a in stmt.args[1 + ndim :]]
        old = self.builder.emit(mem.LOAD, array, *indices)
        self.replay_write(array, [*indices, _atomic_result(stmt.row.name, old, operands)])
        known[stmt.outs[0]] = old

    def replay_if(self, stmt: Stmt, known: dict, record: bool) -> None:
        regions, inner = [], []
        for region in stmt.regions:
            new, scope = Region(), dict(known)
            with self.builder.inside(new):
                self.replay(region, scope, record)
            regions.append(new)
            inner.append(scope)
        columns = [tuple(scope[r.results[j]] for scope, r in zip(inner, stmt.regions, strict=True))
                   for j in range(len(stmt.outs))]  # fmt: skip
        keys: list[Key] = list(stmt.outs)
        if record:
            for side in (0, 1):
                for key, value in inner[side].items():
                    if value.stmt is not None and value.stmt.row is c.CONST and key not in known:
                        known[key] = self.number(value.type, value.stmt.attr)
                    elif key not in known and is_value(value.type):
                        with self.builder.inside(regions[1 - side]):
                            other = self.zero(value.type)
                        columns.append((value, other) if side == 0 else (other, value))
                        keys.append(key)
        for side in (0, 1):
            regions[side].results = tuple(column[side] for column in columns)
        types = [column[0].type for column in columns]
        made = self.builder.append(c.IF, (known[stmt.args[0]],), types, tuple(regions))
        for key, out in zip(keys, made.outs, strict=True):
            out.name = key.name if isinstance(key, Value) else "trips"
            known[key] = out

    def replay_loop(self, stmt: Stmt, known: dict, record: bool) -> None:
        """A loop again; with `record` it pushes what it carries and counts its turns where they are not known."""
        counted = record and (stmt.row is c.WHILE or stmt.attr.breaks)
        fixed = 3 if stmt.row is c.FOR else 0
        args = [known[a] for a in stmt.args]
        regions = []
        for region in stmt.regions:
            is_body = region is stmt.regions[-1]
            new, scope = Region(), dict(known)
            for p in region.params:
                scope[p] = Value(p.type, p.name, p.where)
                new.params.append(scope[p])
            with self.builder.inside(new):
                if is_body and record:
                    for stack, p in self.carried(stmt):
                        self.builder.emit(c.PUSH, stack, self.builder.emit(mem.MARK) if p is None else scope[p])
                self.replay(region, scope, False)
                results = [scope[r] for r in region.results]
                if counted:
                    turns = Value(int32, "turns")
                    new.params.append(turns)
                    if is_body:
                        results.append(ROWS["add"](turns, self.number(int32, 1)))
            new.results = tuple(results)
            regions.append(new)
        if counted:
            args.append(self.number(int32, 0))
        types = [a.type for a in args[fixed:]]
        made = self.builder.append(stmt.row, args, types, tuple(regions), attr=stmt.attr)
        for out, new_out in zip(stmt.outs, made.outs, strict=False):
            new_out.name = out.name
            known[out] = new_out
        if record:
            known[(stmt, "trips")] = made.outs[-1] if counted else self.builder.emit(mem.TRIPS, *args[:3])

    def replay_call(self, stmt: Stmt, known: dict, record: bool) -> None:
        """A func with its own adjoint or replay: its body, or the replay in its place."""
        region = self.again(stmt)
        for p, a in zip(region.params, stmt.args, strict=True):
            known[p] = self.array(a, known) if isinstance(a.type, Array) else known[a]
        self.replay(region, known, record)
        for out, result in zip(stmt.outs, region.results, strict=True):
            known[out] = known[result]

    def again(self, stmt: Stmt) -> Region:
        """What a call repeats: its func_replay, unless that reads memory that the kernel or itself writes.

        The replay runs on the memory that the launch found. The func itself is repeated exactly, so nothing is lost.
        """
        replay = stmt.attr.replay
        stmts = list(walk(replay)) if replay is not None else []
        written = self.written | {root(s.args[0]).name for s in stmts if s.row in _MEMORY_WRITES}
        reads = [root(s.args[0]).name for s in stmts if s.row in _MEMORY_READS]
        return stmt.regions[0] if replay is None or any(self.group(n) & written for n in reads) else replay

    def repeated(self, region: Region) -> Iterator[Stmt]:
        """Every statement, also those of the replays of calls."""
        for stmt in walk(region):
            yield stmt
            if stmt.row is c.CALL and self.again(stmt) is not stmt.regions[0]:
                yield from self.repeated(self.again(stmt))

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
                type = Stack(int64 if p is None else p.type, stmt.attr.trips)
                with self.builder.inside(Region()):
                    self.stacks[key] = self.builder.append(c.STACK, (), (type,), attr=type).outs[0]
            out.append((self.stacks[key], p))
        return out

    # ---- reverse sweep

    def reverse(self, region: Region, known: dict, adjoints: dict) -> None:
        for stmt in reversed(region.body):
            with self.builder.at(stmt.where, stmt):
                _REVERSE.get(stmt.row.name, _Adjoint.reverse_value)(self, stmt, known, adjoints)

    def reverse_value(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        if not stmt.outs or stmt.outs[0] not in adjoints:
            return
        y = stmt.outs[0]
        g = adjoints.pop(y)
        row = stmt.row
        if row.adjoint is NO_GRADIENT:
            raise KernelError(
                f"`{row.name}` has no derivative, and its result reaches an array whose gradient is asked for.",
                slug="no-derivative", where=stmt.where,
                why="A wrong or zero gradient would be silent; so this is refused.",
                instead="a differentiable expression, or keep the value out of arrays that need a gradient",
            )  # fmt: skip
        if row.adjoint is None:
            return
        product = _root_in_product(stmt)
        if product is not None:
            x, root_x = product
            d = ROWS["mul"](g, ROWS["mul"](self.widened(known[root_x]), 1.5))
            self.add(adjoints, x, self.gate(row, g, d))
            return
        square = _square_under_root(stmt)
        if square is not None:
            row, stmt = square
        operands = [self.widened(known[a]) for a in stmt.args]
        extra = {"attr": stmt.attr} if row.typed_by_attr else {}
        grads = row.adjoint(g, self.widened(known[y]), *operands, **extra)
        for k, (a, d) in enumerate(zip(stmt.args, grads, strict=True)):
            if d is not None and a in self.varied:
                beside = [b for j, b in enumerate(stmt.args) if j != k or row.name not in _BILINEAR]
                guard = row.unbounded or any(b in self.risky for b in beside)
                self.add(adjoints, a, self.gate(row, g, d) if guard and row.name not in _LINEAR else d)

    def widened(self, value: Value) -> Value:
        """Adjoint rules compute in the type of the adjoint."""
        if is_float(value.type) and shadow_type(value.type) != value.type:
            wide = shadow_type(value.type)
            return ROWS["cast"](value, attr=wide.scalar)  # type: ignore[attr-defined]
        return value

    def gate(self, row, g: Value, d: Value) -> Value:
        """A possibly infinite partial does not count where the incoming adjoint is exactly zero."""
        if row.elementwise and g.type == d.type:
            return ROWS["gate"](g, d)
        return ROWS["where"](ROWS["eq"](g, self.zero(g.type)), self.zero(d.type), d)

    def reverse_nothing(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        """Nothing flows through this statement."""

    def indices(self, stmt: Stmt, known: dict) -> list[Value]:
        ndim = stmt.args[0].type.ndim  # type: ignore[attr-defined]
        return [known[a] for a in stmt.args[1 : 1 + ndim]]

    def reverse_load(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        g = adjoints.pop(stmt.outs[0], None)
        if g is not None:
            self.builder.emit(mem.ACCUMULATE, self.shadow(stmt.args[0]), *self.indices(stmt, known), g)

    def reverse_store(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        """A store consumes the adjoint of what it overwrote: read it, and clear it."""
        if not self.is_active(stmt.args[0]):
            self.assert_inactive(stmt, stmt.args[-1])
            return
        shadow, indices = self.shadow(stmt.args[0]), self.indices(stmt, known)
        g = self.builder.emit(mem.LOAD, shadow, *indices)
        self.builder.emit(mem.STORE, shadow, *indices, self.zero(g.type))
        self.add(adjoints, stmt.args[-1], g)

    def reverse_atomic_add(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        if not self.is_active(stmt.args[0]):
            self.assert_inactive(stmt, stmt.args[-1])
            return
        shadow, indices = self.shadow(stmt.args[0]), self.indices(stmt, known)
        if stmt.args[-1] in self.varied:
            g = self.builder.emit(mem.LOAD, shadow, *indices)
            self.add(adjoints, stmt.args[-1], ROWS["neg"](g) if stmt.row is mem.ATOMIC_SUB else g)
        old = adjoints.pop(stmt.outs[0], None)
        if old is not None:
            self.builder.emit(mem.ACCUMULATE, shadow, *indices, old)

    def beside(self, array: Value, values: dict[str, Value]) -> Value:
        """The helper parameter that belongs to an array value."""
        if array.stmt is None:
            return values[array.name]
        return self.builder.emit(mem.COMPONENTS, self.beside(array.stmt.args[0], values))

    def reverse_atomic_extreme(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        """The adjoint goes to those whose value the cell held after the launch, in equal shares."""
        if not self.is_active(stmt.args[0]):
            self.assert_inactive(stmt, stmt.args[-1])
            return
        indices = self.indices(stmt, known)
        g = self.builder.emit(mem.LOAD, self.shadow(stmt.args[0]), *indices)
        final = self.builder.emit(mem.LOAD, self.beside(stmt.args[0], self.after), *indices)
        ties = self.builder.emit(mem.LOAD, self.beside(stmt.args[0], self.ties), *indices)
        hit = ROWS["eq"](known[stmt.args[-1]], final)
        self.add(adjoints, stmt.args[-1], ROWS["where"](hit, ROWS["div"](g, ties), self.zero(g.type)))

    def reverse_atomic_other(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        if self.is_active(stmt.args[0]):
            raise KernelError(
                f"`{stmt.row.name}` on an array whose gradient is asked for has no derivative.",
                slug="atomic-gradient", where=stmt.where,
                instead="atomic_add, or a kernel in which one thread visits the elements in a loop",
            )  # fmt: skip

    def assert_inactive(self, stmt: Stmt, value: Value) -> None:
        assert value not in self.varied, f"an active value is stored into inactive {root(stmt.args[0]).name}"

    def has_effect(self, stmt: Stmt) -> bool:
        """Does reversing this statement touch a shadow even if no result of it has an adjoint."""
        return any(s.row in _MEMORY_WRITES and self.is_active(s.args[0]) for r in stmt.regions for s in walk(r))

    def reverse_if(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        gs = [adjoints.pop(o, None) for o in stmt.outs]
        if not any(gs) and not self.has_effect(stmt):
            return
        regions, found = [], []
        for region in stmt.regions:
            new, inner = Region(), {}
            with self.builder.inside(new):
                for r, g in zip(region.results, gs, strict=True):
                    self.add(inner, r, g)
                self.reverse(region, known, inner)
            regions.append(new)
            found.append(inner)
        outer = list(dict.fromkeys([*found[0], *found[1]]))
        for new, inner in zip(regions, found, strict=True):
            with self.builder.inside(new):
                new.results = tuple(inner[v] if v in inner else self.zero(shadow_type(v.type)) for v in outer)
        made = self.builder.append(c.IF, (known[stmt.args[0]],), [shadow_type(v.type) for v in outer], tuple(regions))
        for v, out in zip(outer, made.outs, strict=True):
            out.name = f"d_{v.name}" if v.name else ""
            self.add(adjoints, v, out)

    def reverse_call(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        """The user's adjoint in place of the whole call; without one, the adjoint of what was replayed."""
        custom = stmt.attr
        gs = [adjoints.pop(o, None) for o in stmt.outs]
        if custom.grad is None:
            self.reverse_replayed(stmt, known, adjoints, gs)
            return
        if not any(gs) and not any(self.is_active(stmt.args[k]) for k in custom.arrays):
            return
        self.refuse_overwritten(stmt, custom.grad)
        env: dict[Value, Value | None] = {}
        shadows = [self.shadow(stmt.args[k]) if self.is_active(stmt.args[k]) else None for k in custom.arrays]
        seeds = [self.narrowed(gs[k], stmt.outs[k].type) for k in custom.outs]
        args = [self.array(a, known) if isinstance(a.type, Array) else known[a] for a in stmt.args]
        env.update(zip(custom.grad.params, [*args, *shadows, *seeds], strict=True))
        self.inline(custom.grad, env)
        for k, result in zip(custom.values, custom.grad.results, strict=True):
            found = env[result]
            assert found is not None
            self.add(adjoints, stmt.args[k], self.widened(found))

    def narrowed(self, g: Value | None, type: Type) -> Value:
        """An adjoint as a func_grad takes it, which the user wrote in the type of the value."""
        if g is None:
            return self.zero(type)
        return g if g.type == type else ROWS["cast"](g, attr=type.scalar)  # type: ignore[attr-defined]

    def refuse_overwritten(self, stmt: Stmt, grad: Region) -> None:
        """A func_grad runs when all is over: it must not read memory that the kernel changes."""
        for s in walk(grad):
            name = root(s.args[0]).name if s.row is mem.LOAD else ""
            if name and not name.startswith("d_") and self.group(name) & self.written:
                raise KernelError(
                    f"the func_grad of `{stmt.attr.func.key}` reads {name!r}, which this kernel also writes.",
                    slug="grad-reads-written", where=s.where, why="It would read what was written later.",
                    instead="pass the value as an argument of the func",
                )  # fmt: skip

    def reverse_replayed(self, stmt: Stmt, known: dict, adjoints: dict, gs: list) -> None:
        region = self.again(stmt)
        if region is stmt.attr.replay and self.has_effect(stmt):
            raise KernelError(
                f"`{stmt.attr.func.key}` writes to arrays with gradients; its func_replay does not tell their adjoint.",
                slug="replay-effect", where=stmt.where, instead="a func_grad for it too",
            )  # fmt: skip
        for result, g in zip(region.results, gs, strict=True):
            self.add(adjoints, result, g)
        self.reverse(region, known, adjoints)
        for p, a in zip(region.params, stmt.args, strict=True):
            self.add(adjoints, a, adjoints.pop(p, None))

    def inline(self, region: Region, env: dict) -> None:
        """Copy a region's statements here, effects included; what concerns an array without a shadow is left out."""
        for stmt in region.body:
            args = [env[a] for a in stmt.args]
            if None in args:
                env.update((o, None if isinstance(o.type, Array) else self.zero(o.type)) for o in stmt.outs)
                continue
            inner = []
            for r in stmt.regions:
                new = Region([Value(p.type, p.name, p.where) for p in r.params])
                scope = {**env, **dict(zip(r.params, new.params, strict=True))}
                with self.builder.inside(new):
                    self.inline(r, scope)
                new.results = tuple(scope[v] for v in r.results)
                inner.append(new)
            with self.builder.at(stmt.where, self.builder.of):
                made = self.builder.append(stmt.row, args, [o.type for o in stmt.outs], tuple(inner), stmt.attr)
            env.update(zip(stmt.outs, made.outs, strict=True))

    def reverse_loop(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        """Turn by turn, last first: pop what the turn started from, replay it, reverse it."""
        gs = [adjoints.pop(o, None) for o in stmt.outs]
        if not any(gs) and not self.has_effect(stmt):
            return
        self.refuse_effect_in_test(stmt)
        body = stmt.regions[-1]
        fixed = 3 if stmt.row is c.FOR else 0
        params = body.params[1:] if fixed else body.params
        results = body.results[1:] if stmt.attr.breaks else body.results
        carried = [j for j, p in enumerate(params) if p in self.varied]
        new = Region([Value(int32, "turn")])
        new.params += [Value(shadow_type(params[j].type), f"d_{params[j].name}") for j in carried]
        init = [gs[j] if gs[j] is not None else self.zero(shadow_type(params[j].type)) for j in carried]
        inner: dict[Value, Value] = {}
        with self.builder.inside(new):
            scope = self.reenter(stmt, known, new.params[0])
            mark = scope.get((stmt, "mark"))
            self.builder.role = "replay"
            self.replay(body, scope, True)
            self.builder.role = "adjoint"
            for j, g in zip(carried, new.params[1:], strict=True):
                self.add(inner, results[j], g)
            self.reverse(body, scope, inner)
            if mark is not None:
                self.builder.emit(mem.ROLLBACK, mark)
            after = [inner.pop(params[j], None) or self.zero(shadow_type(params[j].type)) for j in carried]
            outer = list(inner)
            sums = [Value(shadow_type(v.type), f"d_{v.name}") for v in outer]
            after += [ROWS["add"](s, inner[v]) for s, v in zip(sums, outer, strict=True)]
        new.params += sums
        new.results = tuple(after)
        init += [self.zero(s.type) for s in sums]
        last = ROWS["sub"](known[(stmt, "trips")], self.number(int32, 1))
        bounds = [last, self.number(int32, -1), self.number(int32, -1)]
        types = [v.type for v in init]
        loop = c.Loop(breaks=False, trips=None if stmt.attr.breaks else stmt.attr.trips)
        made = self.builder.append(c.FOR, [*bounds, *init], types, (new,), attr=loop)
        for v, out in zip([*(stmt.args[fixed + j] for j in carried), *outer], made.outs, strict=True):
            self.add(adjoints, v, out)

    def refuse_effect_in_test(self, stmt: Stmt) -> None:
        """Only bodies are reversed, turn by turn: a condition must leave memory with gradients alone."""
        for s in walk(stmt.regions[0]) if stmt.row is c.WHILE else ():
            if s.row in _MEMORY_WRITES and self.is_active(s.args[0]):
                raise KernelError(
                    f"the condition of `while` writes to {root(s.args[0]).name!r}, whose gradient is asked for.",
                    slug="while-effect", where=s.where, why="The reverse pass repeats the body of a loop only.",
                    instead="while True: ..., with the write in the body and a `break`",
                )  # fmt: skip

    def reenter(self, stmt: Stmt, known: dict, turn: Value) -> dict:
        """The scope of one turn: the loop variable, and the carried values it started from."""
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


_EXTREMAL = (mem.ATOMIC_MIN, mem.ATOMIC_MAX)
_LINEAR = {"add", "sub", "neg", "pos", "where", "cast", "extract", "insert", "construct", "transpose"}
_BILINEAR = {"mul", "scale", "dot"}  # a partial derivative is made of the other operand alone
_REPLAYED_STORES = (mem.STORE, mem.LOG_STORE)


def _square_under_root(stmt: Stmt) -> tuple | None:
    """sqrt(a * a) is |a| and sqrt(dot(v, v)) is a length: their rules also hold at zero, where 0 * inf would not."""
    if stmt.row.name != "sqrt" or stmt.args[0].stmt is None:
        return None
    square = stmt.args[0].stmt
    name = square.row.name
    if name == "length_sq" or (name in ("mul", "dot") and square.args[0] is square.args[1]):
        row = ROWS["abs" if name == "mul" else "length"]
        return row, Stmt(row, square.args[:1], stmt.outs, where=stmt.where)
    return None


def _root_in_product(stmt: Stmt) -> tuple[Value, Value] | None:
    """x and sqrt(x) where they are multiplied: the derivative is 3/2 sqrt(x), without a quotient, and 0 at zero.

    A root with a name of its own has an adjoint of its own, which people look at.
    """
    if stmt.row.name != "mul":
        return None
    for x, y in (stmt.args, stmt.args[::-1]):
        if y.stmt is not None and y.stmt.row.name == "sqrt" and y.stmt.args[0] is x and not y.name:
            return x, y
    return None


def _used(value: Value, function: Function) -> bool:
    for stmt in walk(function.body):
        if value in stmt.args or any(value in r.results for r in stmt.regions):
            return True
    return False


def _atomic_result(name: str, old: Value, operands: list[Value]) -> Value:
    """What the cell holds after an atomic."""
    if name == "atomic_cas":
        return ROWS["where"](ROWS["eq"](old, operands[0]), operands[1], old)
    if name == "atomic_exch":
        return operands[0]
    return ROWS[name.removeprefix("atomic_")](old, operands[0])


def _varied(function: Function, active: frozenset[str], stmts: list[Stmt]) -> set[Value]:
    """The values with a derivative: those that depend, through rows with a derivative, on active memory."""
    varied = {p for p in function.params if p.name in active and not isinstance(p.type, Array)}
    size = -1
    while size != len(varied):
        size = len(varied)
        for stmt in stmts:
            varied.update(_varied_by(stmt, varied, active))
    return varied


def _varied_by(stmt: Stmt, varied: set[Value], active: frozenset[str]) -> list[Value]:
    row = stmt.row
    if row is mem.LOAD or row in mem.ATOMICS:
        return [o for o in stmt.outs if is_float(o.type) and root(stmt.args[0]).name in active]
    if row is c.IF:
        pairs = zip(stmt.outs, *(r.results for r in stmt.regions), strict=True)
        return [out for out, *results in pairs if is_float(out.type) and any(r in varied for r in results)]
    if row in (c.FOR, c.WHILE):
        body = stmt.regions[-1]
        init = stmt.args[3:] if row is c.FOR else stmt.args
        params = body.params[1:] if row is c.FOR else body.params
        results = body.results[1:] if stmt.attr.breaks else body.results
        made = []
        for group in zip(stmt.outs, init, params, results, strict=True):
            if is_float(group[0].type) and any(v in varied for v in group[1:]):
                made += [group[0], group[2]]
        return made
    if row is c.CALL:
        return _varied_by_call(stmt, varied, active)
    if row.adjoint is None or row.effect is not Effect.PURE:
        return []
    return [o for o in stmt.outs if is_float(o.type) and any(a in varied for a in stmt.args)]


def _varied_by_call(stmt: Stmt, varied: set[Value], active: frozenset[str]) -> list[Value]:
    """Through a user's own adjoint everything may depend on everything."""
    found = []
    for region in (stmt.regions[0], stmt.attr.replay):
        if region is not None:
            found += [p for p, a in zip(region.params, stmt.args, strict=True) if a in varied]
            found += [o for o, r in zip(stmt.outs, region.results, strict=True) if r in varied]
    if stmt.attr.grad is not None:
        inputs = [a in varied if not isinstance(a.type, Array) else root(a).name in active for a in stmt.args]
        found += [o for o in stmt.outs if is_float(o.type) and any(inputs)]
    return found


def _risky(stmts: list[Stmt]) -> set[Value]:
    """Values that may be infinite or NaN although the memory they come from is not."""
    risky: set[Value] = set()
    size = -1
    while size != len(risky):
        size = len(risky)
        for stmt in stmts:
            sources = [*stmt.args, *(v for r in stmt.regions for v in r.results)]
            if (stmt.row.unbounded and is_float(stmt.outs[0].type)) or any(s in risky for s in sources):
                risky.update(o for o in stmt.outs if is_float(o.type))
                risky.update(p for r in stmt.regions for p in r.params if is_float(p.type))
    return risky


_REPLAY = {
    "if": "replay_if",
    "for": "replay_loop",
    "while": "replay_loop",
    "store": "replay_store",
    "call": "replay_call",
    "printf": "replay_nothing",
    **{r.name: "replay_atomic" for r in mem.ATOMICS},
}
_REVERSE = {
    "if": _Adjoint.reverse_if,
    "for": _Adjoint.reverse_loop,
    "while": _Adjoint.reverse_loop,
    "call": _Adjoint.reverse_call,
    "load": _Adjoint.reverse_load,
    "store": _Adjoint.reverse_store,
    "printf": _Adjoint.reverse_nothing,
    **{r.name: _Adjoint.reverse_atomic_other for r in mem.ATOMICS},
    "atomic_add": _Adjoint.reverse_atomic_add,
    "atomic_sub": _Adjoint.reverse_atomic_add,
    "atomic_min": _Adjoint.reverse_atomic_extreme,
    "atomic_max": _Adjoint.reverse_atomic_extreme,
}


class _Count(_Adjoint):
    """The forward sweep alone: every thread adds one to the ties of each cell whose extreme it holds."""

    def build_count(self) -> Function:
        known = self.parameters(False)
        with self.builder.open():
            self.replay(self.primal.body, known, False)
        return simplify.primal(self.named("ties"))

    def again(self, stmt: Stmt) -> Region:
        return stmt.regions[0]

    def replay_atomic(self, stmt: Stmt, known: dict, record: bool) -> None:
        if root(stmt.args[0]).name not in self.extremal:
            super().replay_atomic(stmt, known, record)
            return
        indices = self.indices(stmt, known)
        final = self.builder.emit(mem.LOAD, self.beside(stmt.args[0], self.after), *indices)
        hit = ROWS["eq"](known[stmt.args[-1]], final)
        ties = self.beside(stmt.args[0], self.ties)
        dtype = ties.type.dtype  # type: ignore[attr-defined]
        share = ROWS["where"](hit, self.number(dtype, 1), self.number(dtype, 0))
        self.builder.emit(mem.ACCUMULATE, ties, *indices, share)
