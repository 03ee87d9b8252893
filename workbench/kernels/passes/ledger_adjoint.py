"""The adjoint with a log of what it adds to one watched cell of its shadows: the rows of the ledger.

Wherever it adds to a shadow, or stores to one, the address is compared with the watched one; a hit appends (site,
thread, value). A store empties the log: what it overwrote no longer counts. So in the end the log holds exactly the
contributions that add up to the cell. One worker, so entries are in order of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import Where
from ..ir import Builder, Function, Region, Role, Stmt, Value, companion, constant, numeric, root, type_as
from ..lru import once_for_each
from ..ops import control as c, memory as mem
from ..ops.row import ROWS
from ..ops.vectors import components
from ..types import Array, Composite, float64, int32, int64
from .named import named_pass

ENTRIES = 4096  # contributions of one launch that are logged one by one; the others are summed by site
COUNT, CONSUMED = 0, 1  # words of `log_state`


@dataclass(frozen=True)
class Watched:
    """The watched adjoint. Its parameters are those of the adjoint, then for the shadow of each of `active` (parameters
    of the kernel) `<name>_gap`, int64: bytes from its first element to the watched byte, and `<name>_step<k>`, int64:
    its strides; then the log: `log_site` int32[ENTRIES], `log_thread` int32[ENTRIES, rank], `log_value`
    float64[ENTRIES], `log_state` int64[2], `log_sum` float64[sites], `log_many` int64[sites].
    """

    function: Function
    active: tuple[str, ...]
    sites: tuple[tuple[Where | None, str], ...]  # the user's line, and the parameter whose shadow the statement changes


@once_for_each
@named_pass("ledger adjoint")
def ledger_adjoint(function: Function) -> Watched:
    """The watched form of an adjoint; made once for each."""
    return _Watch(function).build()


class _Watch:
    """`gap`, `steps`: by the name of the parameter whose shadow they are about."""

    def __init__(self, function: Function):
        self.source = function
        self.builder = Builder()
        self.sites: list[tuple[Where | None, str]] = []
        self.gap: dict[str, Value] = {}
        self.steps: dict[str, list[Value]] = {}

    def build(self) -> Watched:
        known = {p: p.copied() for p in self.source.params}
        params = self.builder.region.params
        params += known.values()
        for p in (q for q in self.source.params if q.role is Role.SHADOW):
            of = p.belongs_to
            self.gap[of] = companion(params, Role.GAP, of, int64, name=f"{p.name}_gap")
            self.steps[of] = [
                companion(params, Role.STEP, of, int64, name=f"{p.name}_step{k}") for k in range(type_as(p, Array).ndim)
            ]
        types = {
            "site": Array(int32, 1),
            "thread": Array(int32, 2),
            "value": Array(float64, 1),
            "state": Array(int64, 1),
            "sum": Array(float64, 1),
            "many": Array(int64, 1),
        }
        self.log = {name: companion(params, Role.LOG, "", t, name=f"log_{name}") for name, t in types.items()}
        with self.builder.open():
            self.builder.role = "adjoint"
            self.region(self.source.body, known)
        s = self.source
        made = s.with_body(self.builder.region, f"{s.name}_watched")
        return Watched(made, tuple(self.gap), tuple(self.sites))

    def region(self, region: Region, known: dict[Value, Value]) -> None:
        """Copy a region's statements here, each followed by its log where it changes a watched shadow."""
        for stmt in region.body:
            inner = tuple([self.builder.like(r, known, self.region)[0] for r in stmt.regions])
            self.builder.role = stmt.role
            with self.builder.at(stmt.where, stmt.of):
                made = self.builder.repeat(stmt, [known[a] for a in stmt.args], known, inner)
                if stmt.row in mem.CHANGES and root(stmt.args[0]).role is Role.SHADOW:
                    self.watch(stmt, made)

    def watch(self, stmt: Stmt, made: Stmt) -> None:
        """Emit a test: if `made` hits the watched address, log its contribution; an overwrite empties the log first."""
        array, value = made.args[0], made.args[-1]
        ndim = type_as(array, Array).ndim
        indices = made.args[1 : 1 + ndim]
        site = len(self.sites)
        where = stmt.where or (stmt.of.where if stmt.of is not None else None)
        self.sites.append((where, root(stmt.args[0]).belongs_to))
        gap = self.distance(array, indices)
        size = numeric(type_as(array, Array).dtype).itemsize
        hit = ROWS["logical_and"](ROWS["ge"](gap, self.int64(0)), ROWS["lt"](gap, self.int64(size)))
        inside = Region()
        with self.builder.inside(inside):
            part = self.component(value, gap)
            if made.row is mem.ATOMIC_SUB:
                part = ROWS["neg"](part)
            if made.row is mem.STORE:
                self.forget()
                differs, some = ROWS["ne"](part, constant(float64, 0.0)), Region()
                with self.builder.inside(some):
                    self.append(site, part)
                self.builder.append(c.IF, (differs,), (), (some, Region()))
            else:
                self.append(site, part)
        self.builder.append(c.IF, (hit,), (), (inside, Region()))

    def distance(self, array: Value, indices: tuple[Value, ...]) -> Value:
        """Bytes from the element at these indices to the watched one."""
        name = root(array).belongs_to
        steps: list[Value] = list(self.steps[name])
        if array.stmt is not None:  # components: behind the axes of the array those of one element, without gaps
            shape = numeric(type_as(array.stmt.args[0], Array).dtype).shape
            size = numeric(type_as(array, Array).dtype).itemsize
            sizes = [size]
            for n in reversed(shape[1:]):
                sizes.insert(0, sizes[0] * n)
            steps += [self.int64(s) for s in sizes]
        gap = self.gap[name]
        for i, step in zip(indices, steps, strict=True):
            wide = i if i.type == int64 else ROWS["cast"](i, attr=int64)
            gap = ROWS["sub"](gap, ROWS["mul"](wide, step))
        return gap

    def component(self, value: Value, gap: Value) -> Value:
        """The number at the watched byte of a value, as float64."""
        type = value.type
        if isinstance(type, Composite):
            value, *others = components(value)
            for k, part in enumerate(others, 1):
                here = ROWS["eq"](gap, self.int64(k * type.scalar.itemsize))
                value = ROWS["where"](here, part, value)
        return value if value.type == float64 else ROWS["cast"](value, attr=float64)

    # ---- the log

    def append(self, site: int, value: Value) -> None:
        emit = self.builder.emit
        count = self.int64(COUNT)
        slot = emit(mem.LOAD, self.log["state"], count)
        number = constant(int32, site)
        room, full = Region(), Region()
        with self.builder.inside(room):
            emit(mem.STORE, self.log["site"], slot, number)
            emit(mem.STORE, self.log["value"], slot, value)
            for k in range(self.source.rank):
                emit(mem.STORE, self.log["thread"], slot, self.int64(k), emit(c.TID, attr=c.Tid(k)))
            emit(mem.STORE, self.log["state"], count, ROWS["add"](slot, self.int64(1)))
        with self.builder.inside(full):
            total = emit(mem.LOAD, self.log["sum"], number)
            emit(mem.STORE, self.log["sum"], number, ROWS["add"](total, value))
            many = emit(mem.LOAD, self.log["many"], number)
            emit(mem.STORE, self.log["many"], number, ROWS["add"](many, self.int64(1)))
        self.builder.append(c.IF, (ROWS["lt"](slot, self.int64(ENTRIES)),), (), (room, full))

    def forget(self) -> None:
        """Emit code that empties the log and marks the cell's value from before the launch as consumed."""
        emit = self.builder.emit
        emit(mem.STORE, self.log["state"], self.int64(COUNT), self.int64(0))
        emit(mem.STORE, self.log["state"], self.int64(CONSUMED), self.int64(1))
        body = Region([Value(int32, "site")])
        with self.builder.inside(body):
            emit(mem.STORE, self.log["sum"], body.params[0], constant(float64, 0.0))
            emit(mem.STORE, self.log["many"], body.params[0], self.int64(0))
        sites = self.builder.emit(mem.SHAPE, self.log["sum"], attr=0)
        bounds = (constant(int32, 0), sites, constant(int32, 1))
        self.builder.append(c.FOR, bounds, (), (body,), attr=c.Loop())

    def int64(self, value: int) -> Value:
        return constant(int64, value)
