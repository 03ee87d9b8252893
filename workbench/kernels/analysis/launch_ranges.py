"""Where a launch touches memory: affine forms of indices, and what they prove on the host before anything runs.

The one idea: an index is an integer combination of thread indices, loop turns and numbers that the launch knows. A
loop variable is `start + step * turn`, so that a loop is one more variable and one more guard. Hulls come from
intervals (never too small); whatever is *refused* or called a race is a concrete thread, verified by evaluation.
Machine arithmetic wraps around: a form is the machine's value only where its `needs` hold, and they are checked.
A function must not change after the first question about it: its accesses are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ...errors import BoundsError, Where
from .. import ir
from ..ops.row import Effect
from ..types import Array, Composite, Scalar, Type, is_int

Symbol = tuple  # ('tid', k) ('loop', id): variables; ('dim', k) ('param', n) ('shape', n, k) ('host', row, *forms);
#                 ('scaled', symbol, form): a variable times a number that the launch knows
Box = tuple[tuple[int, int], ...]
Point = dict[Symbol, int]

EMPTY: Box = ()  # the launch touches nothing
_FAR = 1 << 66  # no turn of a loop gets there


@dataclass(frozen=True)
class Affine:
    """sum(coefficient * symbol) + constant, equal to the machine's value where every need (form, lo, hi) holds.

    `limits` is the range of the machine type as long as nobody has asked for `settled`, None when it can not overflow.
    """

    terms: tuple[tuple[Symbol, int], ...] = ()
    constant: int = 0
    needs: tuple[tuple[Affine, int, int], ...] = field(default=(), compare=False)
    limits: tuple[int, int] | None = field(default=None, compare=False)

    @property
    def host(self) -> bool:
        """Known to the launch: no thread index, no loop turn."""
        return all(s[0] not in ("tid", "loop", "scaled") for s, _ in self.terms)

    def settled(self) -> Affine:
        """The same, with the need that it fits its machine type."""
        if self.limits is None:
            return self
        lo, hi = self.limits
        if not self.terms and lo <= self.constant <= hi:
            return Affine((), self.constant, self.needs)
        core = Affine(self.terms, self.constant)
        return Affine(self.terms, self.constant, (*self.needs, (core, lo, hi)))


@dataclass(frozen=True)
class Guard:
    """An affine condition: `form` >= 0 (op "ge"), == 0 ("eq") or != 0 ("ne")."""

    form: Affine
    op: str = "ge"


@dataclass(frozen=True, eq=False)
class Access:
    """One statement that touches memory.

    `array` is the root parameter, `param` its position, `indices` one form per axis (component axes last; None: not
    affine), `wraps` the extent that a negative index counts back from (None: the index is never negative).
    `guards` hold whenever it runs; `certain`: and whenever they hold, it runs. `loops` are the enclosing turns.
    """

    stmt: ir.Stmt
    array: ir.Value
    param: int
    effect: Effect
    indices: tuple[Affine | None, ...]
    wraps: tuple[Affine | None, ...]
    guards: tuple[Guard, ...]
    certain: bool
    loops: tuple[Symbol, ...]
    where: Where | None

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


# ---- reading the forms ----


def _limits(type: Type) -> tuple[int, int]:
    assert isinstance(type, Scalar)
    if type.kind == "i":
        return -(1 << (type.bits - 1)), (1 << (type.bits - 1)) - 1
    return 0, (1 << type.bits) - 1


def _sum(parts: Sequence[tuple[Affine, int]], limits: tuple[int, int] | None = None) -> Affine:
    """sum(factor * form)."""
    terms: dict[Symbol, int] = {}
    constant, needs = 0, {}
    for form, factor in parts:
        constant += factor * form.constant
        needs.update(dict.fromkeys(form.needs))
        for symbol, c in form.terms:
            terms[symbol] = terms.get(symbol, 0) + factor * c
    kept = tuple(sorted(((s, c) for s, c in terms.items() if c), key=repr))
    return Affine(kept, constant, tuple(needs), limits)


def _symbol(*symbol: Any) -> Affine:
    return Affine(((symbol, 1),))


def _product(a: Affine, b: Affine, limits: tuple[int, int]) -> Affine | None:
    """a * b where one of them is known to the launch."""
    if b.terms and not a.terms:
        a, b = b, a
    if not b.terms:
        return _sum([(a, b.constant), (Affine((), 0, b.needs), 1)], limits)
    if not b.host:
        a, b = b, a
    if not b.host:
        return None
    b = b.settled()
    bare = Affine(b.terms, b.constant)
    parts = [(bare, a.constant), (Affine((), 0, (*a.needs, *b.needs)), 1)]
    for symbol, c in a.terms:
        if symbol[0] in ("tid", "loop", "scaled"):
            parts.append((_symbol("scaled", symbol, bare), c))
        else:
            parts.append((_symbol("host", "mul", _symbol(*symbol), bare), c))
    return _sum(parts, limits)


def _trips(start: int, stop: int, step: int) -> int:
    return 0 if step == 0 else max(0, -((start - stop) // step))


_HOST: dict[str, Callable[..., int]] = {
    "mul": lambda a, b: a * b, "floordiv": lambda a, b: a // b, "pymod": lambda a, b: a % b,
    "min": min, "max": max, "trips": _trips,
}  # fmt: skip

# comparison -> (op, factor of the left side, factor of the right side, constant); its negation
_COMPARE = {
    "lt": ("ge", -1, 1, -1), "le": ("ge", -1, 1, 0), "gt": ("ge", 1, -1, -1), "ge": ("ge", 1, -1, 0),
    "eq": ("eq", 1, -1, 0), "ne": ("ne", 1, -1, 0),
}  # fmt: skip
_NOT = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
_NEVER = Guard(Affine((), -1))
_MEMORY = (Effect.READS, Effect.WRITES, Effect.ACCUMULATES)


class _Reader:
    """Walks a function once; knows the form of every integer value in sight and the guards around the statement."""

    def __init__(self, function: ir.Function):
        self.found: list[Access] = []
        self.decisions: list[tuple[ir.Stmt, tuple[Guard, ...]]] = []  # an `if` outside loops, and all it takes
        self.forms: dict[ir.Value, Affine] = {}
        self.wrapped: dict[ir.Value, tuple[Affine, Affine]] = {}
        self.alias: dict[ir.Value, ir.Value] = {}
        self.guards: tuple[Guard, ...] = ()  # one object per region, so that a launch works out each box once
        self.loops: tuple[Symbol, ...] = ()
        self.branches: dict[ir.Value, list[ir.Stmt]] = {}
        self.certain = True
        self.turns = 0
        self.params = {p: i for i, p in enumerate(function.params)}
        for p in function.params:
            if is_int(p.type):
                self.forms[p] = _symbol("param", p.name)
        self.region(function.body)

    def resolve(self, value: ir.Value) -> ir.Value:
        while value in self.alias:
            value = self.alias[value]
        return value

    def form(self, value: ir.Value) -> Affine | None:
        return self.forms.get(self.resolve(value))

    def root(self, value: ir.Value) -> ir.Value:
        value = self.resolve(value)
        while value.stmt is not None and value.stmt.row.name == "components":
            value = self.resolve(value.stmt.args[0])
        return value

    def region(self, region: ir.Region) -> None:
        for stmt in region.body:
            self.statement(stmt)

    def guarded(self, region: ir.Region, guards: Sequence[Guard], certain: bool, loop: Symbol | None = None) -> None:
        """Read a region that runs only where `guards` hold; `certain`: it runs wherever they do."""
        outer = self.guards, self.certain, self.loops
        self.guards = (*self.guards, *guards) if guards else self.guards
        self.certain = self.certain and certain
        self.loops = (*self.loops, loop) if loop else self.loops
        self.region(region)
        self.guards, self.certain, self.loops = outer

    def statement(self, stmt: ir.Stmt) -> None:
        name = stmt.row.name
        if name == "if":
            self.branch(stmt)
        elif name == "for":
            self.loop(stmt)
        elif name == "call":
            self.call(stmt)
        elif stmt.regions:
            for region in stmt.regions:
                self.guarded(region, (), certain=False)
        elif stmt.row.effect in _MEMORY:
            self.access(stmt)
        elif len(stmt.outs) == 1 and is_int(stmt.outs[0].type):
            self.integer(stmt, stmt.outs[0])

    # -- values --

    def integer(self, stmt: ir.Stmt, out: ir.Value) -> None:
        name = stmt.row.name
        if name == "wrap":
            index, extent = (self.form(a) for a in stmt.args)
            if index is not None and extent is not None and extent.host:
                self.wrapped[out] = index.settled(), extent.settled()
            return
        form = self.leaf(stmt, name) or self.arithmetic(stmt, name, out)
        if form is not None:
            self.forms[out] = form

    def leaf(self, stmt: ir.Stmt, name: str) -> Affine | None:
        if name == "const":
            return Affine((), int(stmt.attr))
        if name in ("tid", "dim"):
            return _symbol(name, getattr(stmt.attr, "axis", stmt.attr))
        if name != "shape":
            return None
        root = self.root(stmt.args[0])
        assert isinstance(root.type, Array)
        if stmt.attr >= root.type.ndim:
            return Affine((), _component_axes(root)[stmt.attr - root.type.ndim])
        return _symbol("shape", root.name, stmt.attr)

    def arithmetic(self, stmt: ir.Stmt, name: str, out: ir.Value) -> Affine | None:
        args = [form for a in stmt.args if (form := self.form(a)) is not None]
        if not args or len(args) < len(stmt.args):
            return None
        a, limits = args[0], _limits(out.type)
        if name in ("add", "sub"):
            return _sum([(a, 1), (args[1], 1 if name == "add" else -1)], limits)
        if name == "neg":
            return _sum([(a, -1)], limits)
        if name == "mul":
            return _product(a, args[1], limits)
        if name == "cast":
            return self.cast(a, stmt.args[0].type, out.type)
        if name in _HOST and all(x.host for x in args):
            return self.on_host(name, [x.settled() for x in args], limits)
        if name == "trips" and not args[2].terms and abs(args[2].constant) == 1:
            turns = _sum([(args[1].settled(), args[2].constant), (args[0].settled(), -args[2].constant)])
            return Affine(turns.terms, turns.constant, (*turns.needs, (turns, 0, limits[1])))
        return None

    def on_host(self, name: str, args: list[Affine], limits: tuple[int, int]) -> Affine:
        needs = tuple(n for a in args for n in a.needs)
        made = _symbol("host", name, *[Affine(a.terms, a.constant) for a in args])
        return Affine(made.terms, 0, needs, limits)

    def cast(self, form: Affine, old: Type, new: Type) -> Affine:
        # reducing modulo 2^bits commutes with + - *, so only a widening asks for the exact value before it
        lo, hi = _limits(new)
        if new.bits > old.bits:
            form = form.settled()
        source = _limits(old)
        exact = form.limits is None and lo <= source[0] and source[1] <= hi
        return Affine(form.terms, form.constant, form.needs, None if exact else (lo, hi))

    # -- conditions --

    def condition(self, value: ir.Value, truth: bool, out: list[Guard]) -> bool:
        """Append what follows from `value == truth`; True where that is all it takes."""
        value = self.resolve(value)
        stmt = value.stmt
        if stmt is None:
            return False
        name = stmt.row.name
        if name == "const":
            if bool(stmt.attr) != truth:
                out.append(_NEVER)
            return True
        if name in _COMPARE:
            return self.comparison(stmt, name if truth else _NOT[name], out)
        if name == "logical_not":
            return self.condition(stmt.args[0], not truth, out)
        if name == ("logical_and" if truth else "logical_or"):
            parts = [self.condition(a, truth, out) for a in stmt.args]
            return all(parts)
        if name == "if":
            return self.short_circuit(stmt, stmt.outs.index(value), truth, out)
        return False

    def comparison(self, stmt: ir.Stmt, name: str, out: list[Guard]) -> bool:
        a, b = (self.form(x) for x in stmt.args)
        if a is None or b is None:
            return False
        op, left, right, constant = _COMPARE[name]
        out.append(Guard(_sum([(a.settled(), left), (b.settled(), right), (Affine((), constant), 1)]), op))
        return True

    def short_circuit(self, stmt: ir.Stmt, k: int, truth: bool, out: list[Guard]) -> bool:
        """`and`, `or` as the reader writes them: an `if` one of whose regions yields a constant."""
        for taken, region in ((True, stmt.regions[1]), (False, stmt.regions[0])):
            other = self.resolve(region.results[k])
            if other.stmt is None or other.stmt.row.name != "const" or bool(other.stmt.attr) == truth:
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
            guards: list[Guard] = []
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
            if left is not None and right is not None and left == right:
                left, right = left.settled(), right.settled()
                self.forms[out] = Affine(left.terms, left.constant, (*left.needs, *right.needs))

    def loop(self, stmt: ir.Stmt) -> None:
        body = stmt.regions[0]
        results = body.results[1:] if stmt.attr.breaks else body.results
        for out, param, init, result in zip(stmt.outs[-len(results):] if results else (), body.params[1:],
                                            stmt.args[3:], results, strict=True):  # fmt: skip
            if result is param:
                self.alias[param] = self.alias[out] = init
        start, stop, step = (self.form(a) for a in stmt.args[:3])
        if start is None or stop is None or step is None or step.terms:
            self.guarded(body, (), certain=False)
            return
        if step.constant == 0:
            self.guarded(body, (_NEVER,), certain=True)
            return
        start, stop, by = start.settled(), stop.settled(), step.constant
        turn = ("loop", self.turns)
        self.turns += 1
        self.forms[body.params[0]] = _sum([(start, 1), (_symbol(*turn), by)])
        sign = 1 if by > 0 else -1
        inside = _sum([(stop, sign), (start, -sign), (_symbol(*turn), -abs(by)), (Affine((), -1), 1)])
        self.guarded(body, (Guard(inside),), certain=not stmt.attr.breaks, loop=turn)

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
            indices.append(None if form is None else form.settled())
            wraps.append(wrap)
        self.found.append(Access(stmt, root, self.params[root], stmt.row.effect, tuple(indices), tuple(wraps),
                                 self.guards, self.certain, self.loops, stmt.where))  # fmt: skip


def _component_axes(array: ir.Value) -> tuple[int, ...]:
    assert isinstance(array.type, Array)
    return array.type.dtype.shape if isinstance(array.type.dtype, Composite) else ()


_kept: WeakKeyDictionary[ir.Function, _Reader] = WeakKeyDictionary()


def _read(function: ir.Function) -> _Reader:
    found = _kept.get(function)
    if found is None:
        found = _kept[function] = _Reader(function)
    return found


def accesses(function: ir.Function) -> tuple[Access, ...]:
    """Every load, store, atomic and accumulation, in program order, through `components` too."""
    return tuple(_read(function).found)


def boxes(function: ir.Function) -> dict[str, Grouped]:
    """The accesses to each array parameter that is touched at all."""
    out: dict[str, Grouped] = {}
    used = {v for s in ir.walk(function.body) for v in (*s.args, *(r for region in s.regions for r in region.results))}
    for a in accesses(function):
        group = out.setdefault(a.name, Grouped())
        if a.effect is Effect.ACCUMULATES:
            group.accumulates.append(a)
        if a.effect is not Effect.READS:
            group.writes.append(a)
        returned = a.effect is not Effect.READS and not used.isdisjoint(a.stmt.outs)  # what an atomic returns, it read
        if a.effect is Effect.READS or returned or a.stmt.row.name in ("atomic_exch", "atomic_cas"):
            group.reads.append(a)
    return out


def _symbols(form: Affine) -> Iterator[Symbol]:
    stack: list[Any] = [form, *[need[0] for need in form.needs]]
    while stack:
        item = stack.pop()
        if isinstance(item, Affine):
            stack.extend(symbol for symbol, _ in item.terms)
        elif isinstance(item, tuple):
            yield item
            if item[0] in ("host", "scaled"):
                stack.extend(item[1:])


def relevant_scalars(function: ir.Function) -> tuple[str, ...]:
    """The integer parameters that an index or a guard depends on, in order of the parameters: a launch's cache key."""
    used = set()
    for a in accesses(function):
        for form in (*a.indices, *a.wraps, *[g.form for g in a.guards]):
            if form is not None:
                used.update(symbol[1] for symbol in _symbols(form) if symbol[0] == "param")
    return tuple(p.name for p in function.params if p.name in used)


class Interior(NamedTuple):
    """Threads [lo, hi) per axis that take the first branch of all of `taken`. `whole`: the others change nothing."""

    taken: frozenset[ir.Stmt]
    box: Box
    whole: bool


_QUIET = (Effect.PURE, Effect.READS)


def interior(
    function: ir.Function, dims: Sequence[int], scalars: Mapping, shapes: Mapping, numbers: set[str]
) -> Interior | None:
    """A box of threads in which the first branch of some `if`s is always taken: most of the grid.

    Only integer parameters in `numbers` may decide. None where there is nothing to gain.
    """
    launch = _Launch(dims, scalars, shapes)
    every = {("tid", k): (0, d - 1) for k, d in enumerate(dims)}
    box, taken, alone = dict(every), [], {}
    for stmt, guards in _read(function).decisions:
        inside, here = dict(box), dict(every)
        for guard in guards:
            used = {s[1] for s in _symbols(guard.form) if s[0] == "param"}
            line = launch.line(guard.form)
            if guard.op != "ge" or line is None or not used <= numbers or not _exact(guard.form, launch, every):
                break
            if not (_cut(line, inside) and _cut(line, here)):
                break
        else:
            if _volume(inside) * 2 > _volume(every):
                box = inside
                taken.append(stmt)
                alone[stmt] = here
    if not taken:
        return None
    doing = [s for s in taken if alone[s] == box]  # all that happens in these happens in the box, and nowhere else
    there = {s for stmt in doing for s in ir.walk(stmt.regions[0]) if s.row.effect not in _QUIET}
    whole = all(s in there for s in ir.walk(function.body) if s.row.effect not in _QUIET)
    return Interior(frozenset(taken), tuple((lo, hi + 1) for lo, hi in box.values()), whole)


def _exact(form: Affine, launch: _Launch, box: dict[Symbol, tuple[int, int]]) -> bool:
    """Is the form the machine's value in all of the box."""
    for core, lo, hi in form.needs:
        line = launch.line(core)
        if line is None or any(v not in box for v in line.terms):
            return False
        a, b = line.hull(box)
        if a < lo or b > hi:
            return False
    return True


def _cut(line: _Line, box: dict[Symbol, tuple[int, int]]) -> bool:
    """Cut the box to where line >= 0. False where that is no box, or empty."""
    if not line.terms:
        return line.constant >= 0
    if len(line.terms) > 1:
        return False
    ((v, c),) = line.terms.items()
    if v not in box:
        return False
    lo, hi = box[v]
    box[v] = (max(lo, -(line.constant // c)), hi) if c > 0 else (lo, min(hi, line.constant // -c))
    return box[v][0] <= box[v][1]


def _volume(box: dict[Symbol, tuple[int, int]]) -> int:
    return math.prod(hi - lo + 1 for lo, hi in box.values())


# ---- one launch ----


class _Unknown(Exception):
    """A number the launch did not give, or that it has no value (n // 0)."""


@dataclass
class _Line:
    """An affine form with the launch's numbers put in: only variables are left."""

    terms: dict[Symbol, int]
    constant: int

    def at(self, point: Point) -> int:
        return self.constant + sum(c * point[v] for v, c in self.terms.items())

    def hull(self, box: dict[Symbol, tuple[int, int]]) -> tuple[int, int]:
        lo = hi = self.constant
        for v, c in self.terms.items():
            a, b = box[v]
            lo += c * (a if c > 0 else b)
            hi += c * (b if c > 0 else a)
        return lo, hi


class _Launch:
    """The numbers of one launch, and forms evaluated with them."""

    def __init__(self, dims: Sequence[int], scalars: Mapping | None, shapes: Mapping | None):
        self.dims, self.scalars, self.shapes = tuple(int(d) for d in dims), scalars or {}, shapes or {}
        self.lines: dict[int, tuple[Affine, _Line | None]] = {}
        self.boxes: dict[int, tuple[dict[Symbol, tuple[int, int]], bool]] = {}

    def number(self, symbol: Symbol) -> int:
        kind = symbol[0]
        try:
            if kind == "dim":
                return self.dims[symbol[1]] if symbol[1] < len(self.dims) else 1
            if kind == "param":
                return int(self.scalars[symbol[1]])
            if kind == "shape":
                return int(self.shapes[symbol[1]][symbol[2]])
            return _HOST[symbol[1]](*[self.constant(f) for f in symbol[2:]])
        except (KeyError, IndexError, ZeroDivisionError):
            raise _Unknown from None

    def constant(self, form: Affine) -> int:
        return form.constant + sum(c * self.number(s) for s, c in form.terms)

    def line(self, form: Affine) -> _Line | None:
        """None where a number is missing."""
        kept = self.lines.get(id(form))
        if kept is None:
            kept = self.lines[id(form)] = form, self._line(form)
        return kept[1]

    def _line(self, form: Affine) -> _Line | None:
        terms: dict[Symbol, int] = {}
        constant = form.constant
        try:
            for symbol, c in form.terms:
                while symbol[0] == "scaled":
                    c *= self.constant(symbol[2])
                    symbol = symbol[1]
                if symbol[0] == "tid" or symbol[0] == "loop":
                    terms[symbol] = terms.get(symbol, 0) + c
                else:
                    constant += c * self.number(symbol)
        except _Unknown:
            return None
        return _Line({v: c for v, c in terms.items() if c}, constant)

    def extent(self, access: Access, axis: int) -> int | None:
        shape = self.shapes.get(access.name)
        if shape is None:
            return None
        return (*shape, *_component_axes(access.array))[axis]

    def wrap(self, access: Access, axis: int) -> int | None:
        """What a negative index counts back from; None: nothing is added."""
        form = access.wraps[axis]
        return None if form is None else self.constant(form)


class _Hull:
    """One access in one launch: the interval of each variable, tightened by the guards, and forms over it."""

    def __init__(self, access: Access, launch: _Launch):
        self.access, self.launch = access, launch
        kept = launch.boxes.get(id(access.guards))
        if kept is None:
            self.intervals()
            kept = launch.boxes[id(access.guards)] = self.box, self.empty
        self.box, self.empty = kept

    def intervals(self) -> None:
        access, launch = self.access, self.launch
        self.box: dict[Symbol, tuple[int, int]] = {("tid", k): (0, d - 1) for k, d in enumerate(launch.dims)}
        for k in range(len(launch.dims), 8):
            self.box["tid", k] = (0, 0)
        for turn in access.loops:
            self.box[turn] = (0, _FAR)
        self.empty = any(d <= 0 for d in launch.dims)
        for _ in range(2 if len(access.guards) > 1 and access.loops else 1):
            for guard in access.guards:
                if self.empty:
                    return
                self.tighten(guard)

    def tighten(self, guard: Guard) -> None:
        line = self.launch.line(guard.form)
        if line is None or not self.fits(guard.form):
            return
        if guard.op == "ne":
            self.exclude(line)
            return
        self.bound(line)
        if guard.op == "eq":
            self.bound(_Line({v: -c for v, c in line.terms.items()}, -line.constant))

    def bound(self, line: _Line) -> None:
        """line >= 0: each variable against the most that the others can give."""
        _, most = line.hull(self.box)
        if most < 0:
            self.empty = True
            return
        for v, c in line.terms.items():
            lo, hi = self.box[v]
            rest = most - c * (hi if c > 0 else lo)
            if c > 0:
                self.box[v] = max(lo, -(rest // c)), hi
            else:
                self.box[v] = lo, min(hi, rest // -c)
            if self.box[v][0] > self.box[v][1]:
                self.empty = True

    def exclude(self, line: _Line) -> None:
        """line != 0 moves the end of an interval where it lies on it."""
        if not line.terms:
            self.empty = self.empty or line.constant == 0
        if len(line.terms) != 1:
            return
        ((v, c),) = line.terms.items()
        if line.constant % c:
            return
        lo, hi = self.box[v]
        hole = -line.constant // c
        lo, hi = (lo + 1 if lo == hole else lo), (hi - 1 if hi == hole else hi)
        self.box[v] = lo, hi
        self.empty = self.empty or lo > hi

    def fits(self, form: Affine) -> bool:
        """Is the form the machine's value in every thread."""
        for core, lo, hi in form.needs:
            line = self.launch.line(core)
            if line is None:
                return False
            a, b = line.hull(self.box)
            if a < lo or b > hi:
                return False
        return True

    def line(self, axis: int) -> _Line | None:
        form = self.access.indices[axis]
        return None if form is None else self.launch.line(form)

    def range(self, axis: int) -> tuple[int, int] | None:
        """The hull of the raw index (before a negative one is wrapped); None where it is not known."""
        form = self.access.indices[axis]
        if form is None or not self.fits(form):
            return None
        line = self.launch.line(form)
        if line is None:
            return None
        lo, hi = line.hull(self.box)
        if self.access.loops:
            lo = max(lo, -self.extreme(line, -1)[0])
            hi = min(hi, self.extreme(line, 1)[0])
        return lo, hi

    def extreme(self, line: _Line, sign: int) -> tuple[int, Point]:
        """The most of sign * line, where a loop's last turn is put in as a form of outer variables; and a thread."""
        terms = {v: sign * c for v, c in line.terms.items()}
        constant = sign * line.constant
        last: dict[Symbol, tuple[_Line, int]] = {}
        for turn in reversed(self.access.loops):
            end = self.end(turn)
            c = terms.get(turn, 0)
            if end is None or c <= 0 or c % end[1]:
                continue
            del terms[turn]
            last[turn] = end
            for v, e in end[0].terms.items():
                terms[v] = terms.get(v, 0) + c // end[1] * e
            constant += c // end[1] * end[0].constant
        point = {v: (hi if terms.get(v, 0) > 0 else lo) for v, (lo, hi) in self.box.items()}
        for turn in self.access.loops:
            if turn in last:
                point[turn] = last[turn][0].at(point) // last[turn][1]
        return constant + sum(c * point[v] for v, c in terms.items()), point

    def end(self, turn: Symbol) -> tuple[_Line, int] | None:
        """(form, step): step * turn <= form, from the guard that the loop made."""
        for guard in self.access.guards:
            line = self.launch.line(guard.form) if turn in (s for s, _ in guard.form.terms) else None
            if line is not None and turn in line.terms:  # the loop's own guard is the first one to name its turn
                if line.terms[turn] >= 0 or not self.fits(guard.form):
                    return None
                rest = {v: c for v, c in line.terms.items() if v != turn}
                return _Line(rest, line.constant), -line.terms[turn]
        return None

    def touched(self, axis: int) -> tuple[int, int] | None:
        """The hull of the index after wrapping; None where only the whole axis is known."""
        raw = self.range(axis)
        if raw is None or self.access.wraps[axis] is None or raw[0] >= 0:
            return raw
        try:
            n = self.launch.wrap(self.access, axis) or 0
        except _Unknown:
            return None
        return (raw[0] + n, raw[1] + n) if raw[1] < 0 else None

    def runs(self, point: Point) -> bool:
        """Does the thread (with these turns of its loops) get there: exact, by evaluation."""
        if any(not 0 <= point["tid", k] < d for k, d in enumerate(self.launch.dims)):
            return False
        if any(point[turn] < 0 for turn in self.access.loops):
            return False
        return all(self.holds(guard, point) for guard in self.access.guards)

    def holds(self, guard: Guard, point: Point) -> bool:
        line = self.launch.line(guard.form)
        if line is None or not self.true_form(guard.form, point):
            return False
        value = line.at(point)
        return value >= 0 if guard.op == "ge" else (value == 0) == (guard.op == "eq")

    def true_form(self, form: Affine, point: Point) -> bool:
        for core, lo, hi in form.needs:
            line = self.launch.line(core)
            if line is None or not lo <= line.at(point) <= hi:
                return False
        return True

    def index(self, axis: int, point: Point) -> int | None:
        """The raw index in this thread."""
        form = self.access.indices[axis]
        if form is None or not self.true_form(form, point):
            return None
        line = self.launch.line(form)
        return None if line is None else line.at(point)

    def thread(self, point: Point) -> tuple[int, ...]:
        return tuple(point["tid", k] for k in range(len(self.launch.dims)))


def box(access: Access, dims: Sequence[int], scalars: Mapping | None, shapes: Mapping | None) -> Box | None:
    """The inclusive range (lo, hi) of every axis of the array that the launch touches, never too small.

    Component axes are left out. An axis whose index is not affine is whole. `EMPTY` where nothing is touched, None
    where not even the shape is known. Indices out of range are clipped: those are `check`'s.
    """
    launch = _Launch(dims, scalars, shapes)
    hull = _Hull(access, launch)
    if hull.empty:
        return EMPTY
    if access.name not in launch.shapes:
        return None
    out = []
    for axis, n in enumerate(launch.shapes[access.name]):
        lo, hi = hull.touched(axis) or (0, n - 1)
        lo, hi = max(lo, 0), min(hi, n - 1)
        if lo > hi:
            return EMPTY
        out.append((lo, hi))
    return tuple(out)


def check(
    function: ir.Function, dims: Sequence[int], scalars: Mapping | None, shapes: Mapping | None,
    names: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Raise BoundsError [bounds] for the first access that certainly runs and certainly leaves its array.

    `shapes` maps array parameters to their extents, `names` to what the message calls them.
    """
    launch = _Launch(dims, scalars, shapes)
    seen = set()
    for access in accesses(function):
        key = access.param, access.indices, access.wraps, access.guards
        if not access.certain or access.name not in launch.shapes or key in seen:
            continue
        seen.add(key)
        hull = _Hull(access, launch)
        if hull.empty:
            continue
        for axis in range(len(access.indices)):
            point = _outside(hull, axis)
            if point is not None:
                raise _refusal(function, hull, axis, point, (names or {}).get(access.name, access.name))


def _outside(hull: _Hull, axis: int) -> Point | None:
    """A thread that runs and whose index leaves the axis."""
    form = hull.access.indices[axis]
    n = hull.launch.extent(hull.access, axis)
    line = None if form is None else hull.launch.line(form)
    if line is None or n is None:
        return None
    try:
        back = hull.launch.wrap(hull.access, axis) or 0
    except _Unknown:
        return None
    lo, hi = line.hull(hull.box)
    for sign, beyond, limit in ((1, hi >= n, n), (-1, lo < -back, back + 1)):
        for point in (*_corners(hull, line, sign), *_nearest(hull, line, sign, limit)) if beyond else ():
            index = hull.index(axis, point)
            if index is None or not hull.runs(point):
                continue
            if not 0 <= (index + back if index < 0 else index) < n:
                return point
    return None


def _corners(hull: _Hull, line: _Line, sign: int) -> Iterator[Point]:
    yield hull.extreme(line, sign)[1]
    for other in (0, 1):  # variables that the index does not name: their first value, then their last
        point = {}
        for v, (lo, hi) in hull.box.items():
            c = sign * line.terms.get(v, 0)
            point[v] = hi if c > 0 or (c == 0 and other) else lo
        yield point


def _nearest(hull: _Hull, line: _Line, sign: int, limit: int) -> Iterator[Point]:
    """Where sign * index first reaches `limit`: further out it may not fit its machine type."""
    for start in _corners(hull, line, -sign):
        yield start
        for v, c in line.terms.items():
            steps = -((sign * line.at(start) - limit) // abs(c))
            lo, hi = hull.box[v]
            moved = start[v] + (steps if sign * c > 0 else -steps)
            if lo <= moved <= hi:
                yield {**start, v: moved}


def _refusal(function: ir.Function, hull: _Hull, axis: int, point: Point, name: str) -> BoundsError:
    access, thread = hull.access, hull.thread(point)
    shape = tuple(int(n) for n in hull.launch.shapes[access.name])
    verb = {Effect.READS: "reads", Effect.WRITES: "writes"}.get(access.effect, "adds to")
    index = hull.index(axis, point)
    n = hull.launch.extent(access, axis)
    who = thread[0] if len(thread) == 1 else thread
    return BoundsError(
        f"Kernel {function.name!r} {verb} array {name!r} outside its shape {shape}:"
        f" thread {who} uses index {index} on axis {axis}, which has {n} elements.",
        why=f"The launch has dim={hull.launch.dims[0] if len(thread) == 1 else hull.launch.dims}.",
        where=access.where, instead=f"if <index> < {name}.shape[{axis}]: ...   or a smaller dim", slug="bounds",
    )  # fmt: skip


# ---- threads against threads ----


def private(
    function: ir.Function, name: str, dims: Sequence[int], scalars: Mapping | None = None,
    shapes: Mapping | None = None,
) -> bool:  # fmt: skip
    """Is every address of array parameter `name` used by at most one thread of this launch.

    Then a plain `+=` is as good as an atomic one. Only the accesses through this parameter are looked at: that no
    other one shares its memory, and that its elements do not overlap, is for the launch to know. False: not proven.
    """
    launch = _Launch(dims, scalars, shapes)
    hulls = [h for h in (_Hull(a, launch) for a in accesses(function) if a.name == name) if not h.empty]
    axes = {("tid", k) for k in range(len(launch.dims))}
    spread = {v: _union([h.box[v] for h in hulls]) for v in axes} if hulls else {}
    open_ = {v for v, (lo, hi) in spread.items() if hi > lo}
    positions = list(range(min((len(h.access.indices) for h in hulls), default=0)))
    while open_:
        # equal addresses imply equal indices at each position, hence equal thread indices that one tells apart
        told = set().union(*[_told(hulls, p, open_, spread) for p in positions], set())
        if not told:
            return False
        open_ -= told
    return True


def _union(ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return min(lo for lo, _ in ranges), max(hi for _, hi in ranges)


def _told(hulls: list[_Hull], axis: int, open_: set[Symbol], spread: dict[Symbol, tuple[int, int]]) -> set[Symbol]:
    """The thread axes that the index at this position tells apart, as digits in a mixed radix, given the others."""
    first: dict[Symbol, int] | None = None
    rests = []
    for hull in hulls:
        raw, touched = hull.range(axis), hull.touched(axis)
        if raw is None or touched is None:
            return set()
        line = hull.line(axis)
        assert line is not None  # it has a range
        factors = {v: c for v, c in line.terms.items() if v in spread}
        if first is not None and factors != first:
            return set()
        first = factors
        rest = _Line({v: c for v, c in line.terms.items() if v not in spread}, line.constant + touched[0] - raw[0])
        rests.append(rest.hull(hull.box))
    lo, hi = _union(rests)
    digits, width = [], hi - lo
    for v, c in sorted((first or {}).items(), key=lambda term: abs(term[1])):
        if v in open_:
            digits.append((v, abs(c) > width))
            width += abs(c) * (spread[v][1] - spread[v][0])
    told = set()
    for v, larger in reversed(digits):  # a digit is told apart once all larger ones are
        if not larger:
            break
        told.add(v)
    return told


class Race(NamedTuple):
    """Two statements that store to one element of a parameter, each with its thread."""

    stmt: ir.Stmt
    thread: tuple[int, ...]
    other: tuple[int, ...]
    other_stmt: ir.Stmt
    element: tuple[int, ...]


def write_race(
    function: ir.Function, dims: Sequence[int], scalars: Mapping | None = None, shapes: Mapping | None = None
) -> Race | None:
    """Two threads that certainly store to one address of one parameter; None: none was found."""
    launch = _Launch(dims, scalars, shapes)
    stores = [a for a in accesses(function) if a.stmt.row.name == "store" and a.certain and None not in a.indices]
    hulls = [h for h in (_Hull(a, launch) for a in stores) if not h.empty]
    for k, one in enumerate(hulls):
        for other in hulls[k:]:
            if one.access.param == other.access.param and len(one.access.indices) == len(other.access.indices):
                met = _meeting(one, other)
                if met is not None:
                    thread, there, element = met
                    return Race(one.access.stmt, thread, there, other.access.stmt, element)
    return None


def _meeting(one: _Hull, other: _Hull) -> tuple[tuple[int, ...], ...] | None:
    """Two threads at one address, and that: a few likely pairs, each verified."""
    lines = [[line for k in range(len(h.access.indices)) if (line := h.line(k))] for h in (one, other)]
    if any(len(part) < len(one.access.indices) for part in lines):
        return None
    shared = [v for v in one.box if v in other.box and one.box[v][1] > one.box[v][0]]
    for step in _steps(lines[0], lines[1], shared):
        a = {v: (hi if step.get(v, 0) < 0 else lo) for v, (lo, hi) in one.box.items()}
        b = {v: a.get(v, lo) + step.get(v, 0) for v, (lo, _) in other.box.items()}
        if one.thread(a) == other.thread(b) or not (one.runs(a) and other.runs(b)):
            continue
        element = _address(one, a)
        if element is not None and element == _address(other, b):
            return one.thread(a), other.thread(b), element
    return None


def _steps(one: list[_Line], other: list[_Line], variables: list[Symbol]) -> Iterator[Point]:
    """Ways from one thread to another that may keep the address: along one variable, or two that cancel."""
    gaps = [a.constant - b.constant for a, b in zip(one, other, strict=True)]
    for v in variables:
        factors = [line.terms.get(v, 0) for line in other]
        p = next((p for p, c in enumerate(factors) if c), None)
        if p is None:
            yield {v: 1}
        elif gaps[p] and gaps[p] % factors[p] == 0:
            yield {v: gaps[p] // factors[p]}
    for v, w in combinations(variables, 2):
        p = next((p for p, line in enumerate(other) if line.terms.get(v) and line.terms.get(w)), None)
        if p is not None:
            c, d = other[p].terms[v], other[p].terms[w]
            g = math.gcd(c, d)
            yield {v: d // g, w: -c // g}
            yield {v: -d // g, w: c // g}


def _address(hull: _Hull, point: Point) -> tuple[int, ...] | None:
    """The indices after wrapping; None where one is not certain or out of range."""
    out = []
    for axis in range(len(hull.access.indices)):
        index, n = hull.index(axis, point), hull.launch.extent(hull.access, axis)
        try:
            back = hull.launch.wrap(hull.access, axis) or 0
        except _Unknown:
            return None
        if index is None:
            return None
        index = index + back if index < 0 else index
        if index < 0 or (n is not None and index >= n):
            return None
        out.append(index)
    return tuple(out)
