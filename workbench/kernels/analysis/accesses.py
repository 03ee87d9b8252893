"""The memory accesses of a function, each with its indices as affine forms and the conditions under which it runs.

A function must not change after the first question about it: its accesses are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...errors import Where
from .. import ir
from ..lru import once_for_each
from ..ops import Row, control, memory, scalar, vectors
from ..row import Effect
from ..types import Array, Composite, Scalar, is_int
from .affine import (
    COMPARISONS,
    HOST_FUNCTIONS,
    RULES,
    Affine,
    AffineGuard,
    Bounded,
    Symbol,
    computed,
    form_of,
    forms_in,
    limits_of,
    product,
    symbols_in,
    weighted_sum,
)

_NEVER = AffineGuard(Affine((), -1))
_ANY = (-(1 << 64), 1 << 64)


@dataclass(frozen=True, eq=False)
class Access:
    """One statement that touches memory.

    `array` is the root parameter, `param` its position, `indices` one form per axis (component axes last; None: not
    affine), `wraps` the extent that a negative index counts back from (None: the index is never negative).
    `guards` hold whenever it runs; `certain`: and whenever they hold, it runs. `loops` are the enclosing turns.
    `places`: the indices after negative ones were counted from the end, for their intervals.
    """

    stmt: ir.Stmt
    array: ir.Value
    param: int
    effect: Effect
    indices: tuple[Affine | None, ...]
    wraps: tuple[Affine | None, ...]
    guards: tuple[AffineGuard, ...]
    certain: bool
    loops: tuple[Symbol, ...]
    where: Where | None
    places: tuple[Bounded, ...]

    @property
    def name(self) -> str:
        return self.array.name


@dataclass
class Grouped:
    """The accesses to one parameter. `writes` is all that changes memory, `accumulates` too; an exchange also reads."""

    reads: list[Access] = field(default_factory=list)
    writes: list[Access] = field(default_factory=list)
    accumulates: list[Access] = field(default_factory=list)

    @property
    def all(self) -> list[Access]:
        return list(dict.fromkeys([*self.reads, *self.writes]))


class _AccessReader:
    """Walks a function once; knows the form of every integer value in sight and the guards around the statement."""

    def __init__(self, function: ir.Function):
        self.found: list[Access] = []
        self.components: list[Access] = []
        self.decisions: list[tuple[ir.Stmt, tuple[AffineGuard, ...]]] = []  # an `if` outside loops, and all it takes
        self.forms: dict[ir.Value, Affine] = {}
        self.wrapped: dict[ir.Value, tuple[Affine, Affine]] = {}
        self.bounded: dict[ir.Value, Bounded] = {}  # those without a form
        self.alias: dict[ir.Value, ir.Value] = {}
        self.guards: tuple[AffineGuard, ...] = ()  # one object per region, so that a launch works out each box once
        self.loops: tuple[Symbol, ...] = ()
        self.branches: dict[ir.Value, list[ir.Stmt]] = {}
        self.certain = True
        self.turns = 0
        self.params = {p: i for i, p in enumerate(function.params)}
        for p in function.params:
            if is_int(p.type):
                self.forms[p] = form_of("param", p.name)
        self.region(function.body)

    def resolve(self, value: ir.Value) -> ir.Value:
        while value in self.alias:
            value = self.alias[value]
        return value

    def form(self, value: ir.Value) -> Affine | None:
        return self.forms.get(self.resolve(value))

    def root(self, value: ir.Value) -> ir.Value:
        value = self.resolve(value)
        while value.stmt is not None and value.stmt.row is memory.COMPONENTS:
            value = self.resolve(value.stmt.args[0])
        return value

    @property
    def around(self) -> tuple[tuple[AffineGuard, ...], bool, tuple[Symbol, ...]]:
        return self.guards, self.certain, self.loops

    def region(self, region: ir.Region) -> None:
        for stmt in region.body:
            self.statement(stmt)

    def guarded(
        self, region: ir.Region, guards: Sequence[AffineGuard], certain: bool, loop: Symbol | None = None
    ) -> None:
        """Read a region that runs only where `guards` hold; `certain`: it runs wherever they do."""
        outer = self.around
        self.guards = (*self.guards, *guards) if guards else self.guards
        self.certain = self.certain and certain
        self.loops = (*self.loops, loop) if loop else self.loops
        self.region(region)
        self.guards, self.certain, self.loops = outer

    def statement(self, stmt: ir.Stmt) -> None:
        if stmt.row is control.IF:
            self.branch(stmt)
        elif stmt.row is control.FOR:
            self.loop(stmt)
        elif stmt.row is control.CALL:
            self.call(stmt)
        elif stmt.row is control.EACH:
            self.each(stmt)
        elif stmt.regions:
            for region in stmt.regions:
                self.guarded(region, (), certain=False)
        elif stmt.row.touches:
            self.access(stmt)
        elif stmt.row in vectors.AT_RUN_TIME:
            self.component(stmt)
        elif len(stmt.outs) == 1 and is_int(stmt.outs[0].type):
            self.integer(stmt, stmt.outs[0])

    # -- values --

    def interval(self, value: ir.Value) -> Bounded:
        """Returns what is known of the interval of an integer."""
        form, value = self.form(value), self.resolve(value)
        if form is not None:
            return Bounded(limits_of(value.type), form.within_type())
        return self.bounded.get(value) or Bounded(limits_of(value.type) if is_int(value.type) else _ANY)

    def integer(self, stmt: ir.Stmt, out: ir.Value) -> None:
        if stmt.row in RULES:
            self.bounded[out] = computed(stmt.row, tuple(map(self.interval, stmt.args)), limits_of(out.type))
        if stmt.row is memory.WRAP:
            index, extent = (self.form(a) for a in stmt.args)
            if index is not None and extent is not None and extent.host:
                self.wrapped[out] = index.within_type(), extent.within_type()
            return
        form = self.leaf(stmt) or self.arithmetic(stmt, out)
        if form is not None:
            self.forms[out] = form

    def leaf(self, stmt: ir.Stmt) -> Affine | None:
        if stmt.row is control.CONST:
            return Affine((), int(stmt.attr))
        if stmt.row is control.TID or stmt.row is control.DIM:
            return form_of("tid" if stmt.row is control.TID else "dim", getattr(stmt.attr, "axis", stmt.attr))
        if stmt.row is not memory.SHAPE:
            return None
        root = self.root(stmt.args[0])
        assert isinstance(root.type, Array)
        if stmt.attr >= root.type.ndim:
            return Affine((), component_axes(root)[stmt.attr - root.type.ndim])
        return form_of("shape", root.name, stmt.attr)

    def arithmetic(self, stmt: ir.Stmt, out: ir.Value) -> Affine | None:
        args = [form for a in stmt.args if (form := self.form(a)) is not None]
        if not args or len(args) < len(stmt.args):
            return None
        row, a, limits = stmt.row, args[0], limits_of(out.type)
        if row is scalar.ADD or row is scalar.SUB:
            return weighted_sum([(a, 1), (args[1], 1 if row is scalar.ADD else -1)], limits)
        if row is scalar.NEG:
            return weighted_sum([(a, -1)], limits)
        if row is scalar.MUL:
            return product(a, args[1], limits)
        if row is scalar.CAST:
            return self.cast(a, ir.type_as(stmt.args[0], Scalar), ir.type_as(out, Scalar))
        if row in HOST_FUNCTIONS and all(x.host for x in args):
            return self.on_host(row, [x.within_type() for x in args], limits)
        if row is memory.TRIPS and not args[2].terms and abs(args[2].constant) == 1:
            step = args[2].constant
            turns = weighted_sum([(args[1].within_type(), step), (args[0].within_type(), -step)])
            return Affine(turns.terms, turns.constant, (*turns.needs, (turns, 0, limits[1])))
        return None

    def on_host(self, row: Row, args: list[Affine], limits: tuple[int, int]) -> Affine:
        needs = tuple(n for a in args for n in a.needs)
        made = form_of("host", row, *[Affine(a.terms, a.constant) for a in args])
        return Affine(made.terms, 0, needs, limits)

    def cast(self, form: Affine, old: Scalar, new: Scalar) -> Affine:
        # reducing modulo 2^bits commutes with + - *, so only a widening asks for the exact value before it
        lo, hi = limits_of(new)
        if new.bits > old.bits:
            form = form.within_type()
        source = limits_of(old)
        exact = form.limits is None and lo <= source[0] and source[1] <= hi
        return Affine(form.terms, form.constant, form.needs, None if exact else (lo, hi))

    # -- conditions --

    def condition(self, value: ir.Value, truth: bool, out: list[AffineGuard]) -> bool:
        """Append what follows from `value == truth`; True where that is all it takes."""
        value = self.resolve(value)
        stmt = value.stmt
        if stmt is None:
            return False
        row = stmt.row
        if row is control.CONST:
            if bool(stmt.attr) != truth:
                out.append(_NEVER)
            return True
        if row in COMPARISONS:
            return self.comparison(stmt, row if truth else scalar.NEGATED[row], out)
        if row is scalar.LOGICAL_NOT:
            return self.condition(stmt.args[0], not truth, out)
        if row is (scalar.LOGICAL_AND if truth else scalar.LOGICAL_OR):
            parts = [self.condition(a, truth, out) for a in stmt.args]
            return all(parts)
        if row is control.IF:
            return self.short_circuit(stmt, stmt.outs.index(value), truth, out)
        return False

    def comparison(self, stmt: ir.Stmt, row: Row, out: list[AffineGuard]) -> bool:
        a, b = (self.form(x) for x in stmt.args)
        if a is None or b is None:
            return False
        op, left, right, constant = COMPARISONS[row]
        form = weighted_sum([(a.within_type(), left), (b.within_type(), right), (Affine((), constant), 1)])
        out.append(AffineGuard(form, op))
        return True

    def short_circuit(self, stmt: ir.Stmt, k: int, truth: bool, out: list[AffineGuard]) -> bool:
        """`and`, `or` as the reader writes them: an `if` one of whose regions yields a constant."""
        for taken, region in ((True, stmt.regions[1]), (False, stmt.regions[0])):
            other = self.resolve(region.results[k])
            if other.stmt is None or other.stmt.row is not control.CONST or bool(other.stmt.attr) == truth:
                continue
            chosen = stmt.regions[0 if taken else 1].results[k]
            parts = [self.condition(stmt.args[0], taken, out), self.condition(chosen, truth, out)]
            return all(parts)
        return False

    # -- control flow --

    def branch(self, stmt: ir.Stmt) -> None:
        condition = self.resolve(stmt.args[0])
        earlier = self.branches.setdefault(condition, [])
        for k, region in enumerate(stmt.regions):
            # an adjoint asks the primal's condition again: there, what that branch handed out is what it computed
            handed = {o: r for s in earlier for o, r in zip(s.outs, s.regions[k].results, strict=True)}
            outside = {o: self.alias[o] for o in handed if o in self.alias}
            self.alias.update(handed)
            guards: list[AffineGuard] = []
            certain = self.condition(condition, k == 0, guards)
            if certain and k == 0 and not self.loops:
                self.decisions.append((stmt, tuple(guards)))
            self.guarded(region, guards, certain)
            for out in handed:
                del self.alias[out]
            self.alias.update(outside)  # an `if` inside an `if` on one condition
        earlier.append(stmt)
        for out, a, b in zip(stmt.outs, stmt.regions[0].results, stmt.regions[1].results, strict=True):
            left, right = self.form(a), self.form(b)
            if is_int(out.type):
                self.bounded[out] = computed(control.IF, (self.interval(a), self.interval(b)), limits_of(out.type))
            if left is not None and right is not None and left == right:
                left, right = left.within_type(), right.within_type()
                self.forms[out] = Affine(left.terms, left.constant, (*left.needs, *right.needs))

    def loop(self, stmt: ir.Stmt) -> None:
        body = stmt.regions[0]
        for out, init, param, result in control.carried(stmt):
            if result is param:
                self.alias[param] = self.alias[out] = init
        start, stop, step = (self.form(a) for a in stmt.args[:3])
        if start is None or stop is None or step is None or step.terms:
            self.guarded(body, (), certain=False)
            return
        if step.constant == 0:
            self.guarded(body, (_NEVER,), certain=True)
            return
        start, stop, by = start.within_type(), stop.within_type(), step.constant
        turn = ("loop", self.turns)
        self.turns += 1
        self.forms[body.params[0]] = weighted_sum([(start, 1), (form_of(*turn), by)])
        sign = 1 if by > 0 else -1
        inside = weighted_sum([(stop, sign), (start, -sign), (form_of(*turn), -abs(by)), (Affine((), -1), 1)])
        self.guarded(body, (AffineGuard(inside),), certain=not stmt.attr.breaks, loop=turn)

    def each(self, stmt: ir.Stmt) -> None:
        """Every index of a tile: a loop of constant turns per axis."""
        (region,), outer = stmt.regions, self.loops
        guards = []
        for param, n in zip(region.params, stmt.attr.shape, strict=False):
            turn = ("loop", self.turns)
            self.turns += 1
            self.forms[param] = form_of(*turn)
            guards.append(AffineGuard(weighted_sum([(form_of(*turn), -1), (Affine((), n - 1), 1)])))
            self.loops = (*self.loops, turn)
        self.guarded(region, guards, certain=True)
        self.loops = outer

    def call(self, stmt: ir.Stmt) -> None:
        body = stmt.regions[0]
        self.alias.update(zip(body.params, stmt.args, strict=True))
        self.region(body)
        self.alias.update(zip(stmt.outs, body.results, strict=False))

    def access(self, stmt: ir.Stmt) -> None:
        root, seen = self.root(stmt.args[0]), stmt.args[0].type
        assert isinstance(seen, Array)
        indices, wraps = [], []
        for value in stmt.args[1 : 1 + seen.ndim]:
            value = self.resolve(value)
            form, wrap = self.wrapped.get(value) or (self.forms.get(value), None)
            indices.append(None if form is None else form.within_type())
            wraps.append(wrap)
        places = tuple(self.interval(v) for v in stmt.args[1 : 1 + seen.ndim])
        how = stmt.row.effect, tuple(indices), tuple(wraps), *self.around, stmt.where, places
        self.found.append(Access(stmt, root, self.params[root], *how))

    def component(self, stmt: ir.Stmt) -> None:
        """A component of a vector or matrix, whose index counts from either end."""
        shape = ir.type_as(stmt.args[0], Composite).shape
        indices = stmt.args[1:] if stmt.row is vectors.EXTRACT_AT else stmt.args[1:-1]
        places = [
            computed(memory.WRAP, (self.interval(i), Bounded((n, n))), limits_of(i.type))
            for i, n in zip(indices, shape, strict=False)
        ]
        how = stmt.row.effect, (), (), *self.around, stmt.where, tuple(places)
        self.components.append(Access(stmt, stmt.args[0], -1, *how))


def component_axes(value: ir.Value) -> tuple[int, ...]:
    """The axes of a vector or matrix, or of the elements of an array."""
    type = value.type.dtype if isinstance(value.type, Array) else value.type
    return type.shape if isinstance(type, Composite) else ()


@once_for_each
def _read(function: ir.Function) -> _AccessReader:
    return _AccessReader(function)


def accesses_of(function: ir.Function) -> tuple[Access, ...]:
    """Every load, store, atomic and accumulation, in program order, through `components` too."""
    return tuple(_read(function).found)


def components_of(function: ir.Function) -> tuple[Access, ...]:
    """Every use of a component of a vector or matrix at an index that is known only at run time."""
    return tuple(_read(function).components)


def decisions(function: ir.Function) -> tuple[tuple[ir.Stmt, tuple[AffineGuard, ...]], ...]:
    """Every `if` outside loops whose condition is affine, with the guards that are all it takes."""
    return tuple(_read(function).decisions)


def accesses_by_array(function: ir.Function) -> dict[str, Grouped]:
    """The accesses to each array parameter that is touched at all."""
    out: dict[str, Grouped] = {}
    used = ir.used(function.body)
    for a in accesses_of(function):
        group = out.setdefault(a.name, Grouped())
        if a.effect is Effect.ACCUMULATES:
            group.accumulates.append(a)
        if a.effect is not Effect.READS:
            group.writes.append(a)
        returned = a.effect is not Effect.READS and not used.isdisjoint(a.stmt.outs)  # what an atomic returns, it read
        if a.effect is Effect.READS or returned or a.stmt.row in (memory.ATOMIC_EXCH, memory.ATOMIC_CAS):
            group.reads.append(a)
    return out


def relevant_scalars(function: ir.Function) -> tuple[str, ...]:
    """The integer parameters that an index or a guard depends on, in order of the parameters: a launch's cache key."""
    used = set()
    for a in (*accesses_of(function), *components_of(function)):
        places = [form for place in a.places for form in forms_in(place)]  # of what is proven to stay inside
        for form in (*a.indices, *a.wraps, *places, *[g.form for g in a.guards]):
            if form is not None:
                used.update(symbol[1] for symbol in symbols_in(form) if symbol[0] == "param")
    return tuple(p.name for p in function.params if p.name in used)
