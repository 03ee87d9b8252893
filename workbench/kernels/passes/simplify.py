"""Smaller programs with the same meaning, to the last bit.

`rewrite` copies a function while it merges equal pure statements, folds integer constants and takes components out of
what they were just put into (value numbering over nested scopes: Briggs, Cooper and Simpson, 1997); with `forward` it
also gives a load the value that the same thread stored before it. Floating point is never reassociated, and `x * 0`
stays (x may be infinite).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..ir import Builder, Function, Region, Stmt, Value, constant, numeric, root, type_as, walk
from ..ops import control as c, memory as mem, parts, scalar, vectors
from ..row import Effect
from ..types import Array, Composite, Scalar, Type
from .named import named_pass
from .prune import prune


@named_pass("simplify")
def primal(function: Function) -> Function:
    """The kernel as it was read, simplified; run once on every kernel."""
    return prune(rewrite(function))


@named_pass("simplify adjoint")
def adjoint(function: Function, groups: tuple[frozenset[str], ...] = ()) -> Function:
    """The same function without what no gradient needs. `groups`: array parameters that share memory at this launch."""
    return prune(rewrite(prune(function, groups)), groups)


@named_pass("forward loads")
def forward(function: Function, groups: tuple[frozenset[str], ...] = ()) -> Function:
    """The same function, where a load that follows the thread's own store takes the stored value.

    `groups`: array parameters that share memory at this launch.
    """
    return prune(rewrite(function, groups))


def rewrite(function: Function, groups: tuple[frozenset[str], ...] | None = None) -> Function:
    """A copy, simplified but not pruned; loads take stored values where `groups` says which arrays share memory."""
    return Rewrite(groups).function(function)


@named_pass("assume branches")
def assume(function: Function, taken: Collection[Stmt]) -> Function:
    """The same function where these `if`s are known to take their first branch."""
    return _pruned(Rewrite(None, frozenset(taken)).function(function))


@named_pass("merge parameters")
def merged(function: Function, same: tuple[tuple[str, str], ...]) -> Function:
    """The same function with the same parameters; for each pair (name, other) it uses `name` in place of `other`."""
    return _pruned(Rewrite(None, same={other: name for name, other in same}).function(function))


UNROLLED = 2500  # statements that a loop may become


@named_pass("unroll")
def unrolled(function: Function) -> Function:
    """The same function with short loops of known turns written out; the function itself where there are none."""
    if not any(s.row is c.FOR and _trips(s, s.args) for s in walk(function.body)):
        return function
    return _pruned(Rewrite(None, unroll=True).function(function))


def _pruned(function: Function) -> Function:
    """Pruned on the assumption that any two arrays may share memory: the caller no longer knows which do."""
    return prune(function, (frozenset(p.name for p in function.arrays),))


def _trips(stmt: Stmt, args: tuple[Value, ...]) -> range | None:
    """The constant range of a loop small enough to unroll; None otherwise."""
    if stmt.row is not c.FOR or (stmt.attr is not None and stmt.attr.breaks):
        return None
    numbers = [n for a in args[:3] if isinstance(n := constant_of(a), int)]
    if len(numbers) < 3 or not numbers[2]:
        return None
    turns = range(*numbers)
    return turns if len(turns) * _size(stmt.regions[0]) <= UNROLLED else None


def _size(region: Region) -> int:
    """The number of statements of a region once unrolled, large matrices counted more."""
    total = 0
    for s in region.body:
        turns = _trips(s, s.args)
        large = max((getattr(v.type, "size", 1) for v in (*s.args, *s.outs)), default=1)
        own = 1 if large <= 16 else large // 4  # compilers take long over large matrices, component by component
        total += own + (1 if turns is None else len(turns)) * sum(_size(r) for r in s.regions)
    return total


# ---- rewriting


@dataclass
class ValueFacts:
    """Facts at one point (value numbering): available expressions, and memory cells with a known value.

    `found`: the keys of `pure` that a region has added; they go when it ends. Nobody asks for its `values` then.
    """

    values: dict[Value, Value] = field(default_factory=dict)
    pure: dict[tuple, Stmt] = field(default_factory=dict)
    cells: dict[tuple, Value] = field(default_factory=dict)
    found: list[tuple] = field(default_factory=list)

    def inner(self) -> ValueFacts:
        return ValueFacts(self.values, self.pure, dict(self.cells))

    def leave(self) -> None:
        for key in self.found:
            del self.pure[key]


class Rewrite:
    def __init__(
        self,
        groups: tuple[frozenset[str], ...] | None,
        taken: frozenset[Stmt] = frozenset(),
        unroll: bool = False,
        same: dict[str, str] | None = None,
    ):
        self.groups, self.taken, self.unroll, self.same = groups, taken, unroll, same or {}
        self.writes: dict[Stmt, frozenset[str]] = {}
        self.room = UNROLLED  # for loops that get their bounds from a counter written out: no `_size` has seen those
        self.builder = Builder()

    def begun(self, function: Function) -> ValueFacts:
        """The facts at the start of a function, whose parameters the copy has too."""
        scope = ValueFacts({p: p.copied() for p in function.params})
        self.builder.region.params += scope.values.values()
        return scope

    def function(self, function: Function) -> Function:
        """The rewritten copy of a function."""
        scope = self.begun(function)
        named = {p.name: scope.values[p] for p in function.params}
        scope.values.update({p: named[self.same[p.name]] for p in function.params if p.name in self.same})
        with self.builder.open():
            self.region(function.body, scope)
        self.builder.region.results = tuple([scope.values[v] for v in function.body.results])  # of a func's own adjoint
        return function.with_body(self.builder.region)

    def region(self, region: Region, scope: ValueFacts) -> None:
        builder = self.builder
        before = builder.where, builder.of
        for stmt in region.body:
            builder.role, builder.where = stmt.role, stmt.where
            builder.of = stmt.of or stmt if stmt.role != "primal" else stmt.of
            self.stmt(stmt, scope)
        builder.where, builder.of = before

    def stmt(self, stmt: Stmt, scope: ValueFacts) -> None:
        args = tuple([scope.values[a] for a in stmt.args])
        if stmt.regions:
            self.regions(stmt, args, scope)
            return
        pure = stmt.row.effect is Effect.PURE
        key = _key(stmt, args) if pure else ()
        known = self.known(stmt, args, scope, key)
        if known is not None:
            scope.values[stmt.outs[0]] = known
            return
        made = self.builder.repeat(stmt, args, scope.values)
        if pure:
            scope.pure[key] = made
            scope.found.append(key)
        elif self.groups is not None:
            self.remember(made, scope)

    def known(self, stmt: Stmt, args: tuple[Value, ...], scope: ValueFacts, key: tuple) -> Value | None:
        """An existing value equal to this statement's result (CSE, store forwarding, folding), or None."""
        if stmt.row is mem.LOAD and self.groups is not None:
            return scope.cells.get(_cell(args[0], args[1:]))
        if stmt.row.effect is not Effect.PURE:
            return None
        same = scope.pure.get(key)
        if same is not None:
            return same.outs[0]
        rule = _FOLD.get(stmt.row)
        return rule(self, stmt, args) if rule is not None else self.folded(stmt, args)

    def folded(self, stmt: Stmt, args: tuple[Value, ...]) -> Value | None:
        """Constant folding: of integers; in an adjoint also of floats that any compiler rounds alike. Else None."""
        out = stmt.outs[0].type if stmt.outs else None
        floats = stmt.role == "adjoint" and stmt.row.exact
        kinds = "iubf" if floats else "iub"
        if not args or not isinstance(out, Scalar) or out.kind not in kinds:
            return None
        numbers = []
        for a in args:
            number = constant_of(a)
            if not isinstance(a.type, Scalar) or a.type.kind not in kinds or number is None:
                return None
            numbers.append(a.type(number))
        value = stmt.row.compute(*numbers, attr=stmt.attr)
        return constant(out, value.item()) if math.isfinite(value) else None

    def remember(self, stmt: Stmt, scope: ValueFacts) -> None:
        """Update the known cells: a write forgets those that may alias; a store or load makes its cell known."""
        if stmt.row is mem.LOAD:
            scope.cells[_cell(stmt.args[0], stmt.args[1:])] = stmt.outs[0]
        elif stmt.row is mem.STORE or stmt.row is mem.ACCUMULATE or stmt.row in mem.ATOMICS:
            indices = stmt.args[1 : 1 + type_as(stmt.args[0], Array).ndim]
            self.forget(root(stmt.args[0]).name, scope, _cell(stmt.args[0], indices))
            if stmt.row is mem.STORE:
                scope.cells[_cell(stmt.args[0], indices)] = stmt.args[-1]

    def forget(self, name: str, scope: ValueFacts, written: tuple | None = None) -> None:
        shared = next((g for g in self.groups or () if name in g), None)
        group = shared or frozenset((name,))
        for cell in list(scope.cells):  # in shared memory two indices may be one cell: a group of one overlaps itself
            if cell[0] in group and (shared or not _apart(cell, written)):
                del scope.cells[cell]

    def regions(self, stmt: Stmt, args: tuple[Value, ...], scope: ValueFacts) -> None:
        known = True if stmt in self.taken else constant_of(args[0]) if stmt.row is c.IF else None
        if isinstance(known, bool | int):
            taken = stmt.regions[0 if known else 1]
            self.region(taken, scope)
            scope.values.update(zip(stmt.outs, (scope.values[r] for r in taken.results), strict=True))
            return
        turns = self.turns(stmt, args) if self.unroll else None
        if turns is not None:
            self.write_out(stmt, args, turns, scope)
            return
        written = self.written(stmt) if self.groups is not None else frozenset()
        if stmt.row is not c.IF:
            for name in written:
                self.forget(name, scope)
        role, where, of = self.builder.role, self.builder.where, self.builder.of
        made = []
        for region in stmt.regions:
            new, inner = Region(), scope.inner()
            for p in region.params:
                inner.values[p] = Value(p.type, p.name, p.where)
                new.params.append(inner.values[p])
            with self.builder.inside(new):
                self.region(region, inner)
            new.results = tuple(inner.values[r] for r in region.results)
            inner.leave()
            made.append(new)
        self.builder.role, self.builder.where, self.builder.of = role, where, of
        self.builder.repeat(stmt, args, scope.values, tuple(made))
        for name in written:
            self.forget(name, scope)

    def written(self, stmt: Stmt) -> frozenset[str]:
        """The arrays that the regions of a statement write to."""
        found = self.writes.get(stmt)
        if found is None:
            names = {root(s.args[0]).name for r in stmt.regions for s in r.body if s.row.writes}
            inner = [self.written(s) for r in stmt.regions for s in r.body if s.regions]
            found = self.writes[stmt] = frozenset(names).union(*inner)
        return found

    def turns(self, stmt: Stmt, args: tuple[Value, ...]) -> range | None:
        turns = _trips(stmt, args)
        if turns is None or _trips(stmt, stmt.args) is not None:
            return turns
        size = len(turns) * _size(stmt.regions[0])
        if size > self.room:
            return None
        self.room -= size
        return turns

    def write_out(self, stmt: Stmt, args: tuple[Value, ...], turns: range, scope: ValueFacts) -> None:
        """Unroll a loop: its turns one after the other."""
        (region,) = stmt.regions
        counter, *params = region.params
        carried = args[3:]
        for turn in turns:
            scope.values[counter] = constant(counter.type, turn)
            scope.values.update(zip(params, carried, strict=True))
            self.region(region, scope)
            carried = tuple(scope.values[r] for r in region.results)
        scope.values.update(zip(stmt.outs, carried, strict=True))


def _key(stmt: Stmt, args: tuple[Value, ...]) -> tuple:
    attr = repr(stmt.attr) if stmt.row is c.CONST or not isinstance(stmt.attr, str | None) else stmt.attr
    return stmt.row, args, attr, *[o.type for o in stmt.outs]


def _cell(array: Value, indices: tuple[Value, ...]) -> tuple:
    view = array.stmt is not None
    known = [constant_of(i) for i in indices]
    key = tuple(id(i) if n is None else n for i, n in zip(indices, known, strict=True))
    return root(array).name, view, key, indices


def _apart(cell: tuple, written: tuple | None) -> bool:
    """True if two cells of one array are certainly different: some axis has two different constant indices."""
    if written is None or cell[:2] != written[:2]:
        return False
    pairs = [(constant_of(a), constant_of(b)) for a, b in zip(cell[3], written[3], strict=True)]
    return any(a is not None and b is not None and a != b for a, b in pairs)


def constant_of(value: Value) -> Any:
    """The Python number of a scalar constant; None for any other value."""
    if value.stmt is not None and value.stmt.row is c.CONST and isinstance(value.type, Scalar):
        return value.stmt.attr
    return None


def _is_nonzero(value: Value) -> bool:
    """True for a constant that is not 0."""
    return constant_of(value) not in (None, 0)


def is_zero(value: Value) -> bool:
    attr = value.stmt.attr if value.stmt is not None and value.stmt.row is c.CONST else None
    return isinstance(attr, (int, float)) and attr == 0


def _other_than(neutral: Callable[[Value], bool], stmt: Stmt, args: tuple[Value, ...]) -> Value | None:
    """The operand beside a neutral one, if it has the type of the result."""
    for one, other in (args[::-1], args):
        if neutral(one) and other.type == stmt.outs[0].type:
            return other
    return None


def _fold_add(self: Rewrite, stmt: Stmt, args: tuple[Value, ...]) -> Value | None:
    """x + 0 in an adjoint is x: a structural zero, not a number of the user's."""
    structural = stmt.role == "adjoint" or numeric(stmt.outs[0]).scalar.kind in "iu"
    return (_other_than(is_zero, stmt, args) if structural else None) or self.folded(stmt, args)


def _fold_times(self: Rewrite, stmt: Stmt, args: tuple[Value, ...]) -> Value | None:
    """times(g, f) as a plain product, where f is certainly finite or g a nonzero constant."""
    g, f = args
    if _is_nonzero(g):
        if constant_of(g) == 1:
            return f
    elif not _finite(f) or (stmt.row is scalar.MOVES and constant_of(f) in (None, 0)):
        return self.folded(stmt, args)
    elif constant_of(f) == 1:
        return g
    if g.type == f.type:
        return self.builder.emit(scalar.MUL, g, f)
    return self.builder.emit(vectors.SCALE, *((f, g) if isinstance(g.type, Scalar) else (g, f)))


def _finite(value: Value) -> bool:
    """True for a finite constant, and for a cast of an integer to a float of more than 16 bits."""
    made = value.stmt
    if made is None:
        return False
    if made.row is scalar.CAST:
        return isinstance(made.attr, Scalar) and made.attr.bits > 16 and numeric(made.args[0]).scalar.kind in "iub"
    return made.row is c.CONST and all(math.isfinite(x) for x in np.ravel(made.attr))


def _fold_over(self: Rewrite, stmt: Stmt, args: tuple[Value, ...]) -> Value | None:
    plain = args[0].type == args[1].type and any(map(_is_nonzero, args))
    return self.builder.emit(scalar.DIV, *args) if plain else None


def _fold_both(self: Rewrite, stmt: Stmt, args: tuple[Value, ...]) -> Value | None:
    """Fold `and` with a constant."""
    for known, other in (args, args[::-1]):
        if constant_of(known) is not None:
            return other if constant_of(known) else known
    return None


def _fold_where(self: Rewrite, stmt: Stmt, args: tuple[Value, ...]) -> Value | None:
    known = constant_of(args[0])
    if known is not None:
        return args[1 if known else 2]
    return args[1] if args[1] is args[2] else None


def _fold_extract(self: Rewrite, stmt: Stmt, args: tuple[Value, ...]) -> Value | None:
    """Fold a part of a composite just constructed, inserted into or joined; None if not possible."""
    whole, place, out = args[0], stmt.attr, stmt.outs[0].type
    while (source := whole.stmt) is not None and source.row is vectors.INSERT:
        replaced = source.attr
        common = min(len(place), len(replaced))
        if place[:common] != replaced[:common]:
            whole = source.args[0]
        elif len(place) < len(replaced):  # only some of this row was replaced
            break
        else:
            whole, place = source.args[1], place[common:]
            if not place:
                return whole
    if source is not None and source.row is vectors.CONSTRUCT:
        start, length = vectors.span(type_as(whole, Composite), place)
        found = source.args[start : start + length]
        return found[0] if isinstance(out, Scalar) else self.builder.emit(source.row, *found, attr=out)
    if source is not None and source.row is parts.JOIN:
        start, length = vectors.span(type_as(whole, Composite), place)
        return _joined_part(self, source, start, out) if length == 1 else None
    if source is not None and is_zero(whole):
        return constant(out, source.attr)
    return None if whole is args[0] else self.builder.emit(stmt.row, whole, attr=place)


def _joined_part(self: Rewrite, join: Stmt, start: int, out: Type) -> Value | None:
    """The components from `start` on of what was just joined, as `out`; None if they come of several operands."""
    for operand in join.args:
        size = numeric(operand).size
        if start >= size:
            start -= size
            continue
        if operand.type == out:
            return operand if start == 0 else None
        if start + numeric(out).size > size or not isinstance(operand.type, Composite):
            return None
        if isinstance(out, Scalar):
            return self.builder.emit(vectors.EXTRACT, operand, attr=parts.component(operand.type, start))
        return self.builder.emit(parts.PART, operand, attr=(start, out))
    return None


def _fold_part(self: Rewrite, stmt: Stmt, args: tuple[Value, ...]) -> Value | None:
    """Fold a part of a composite just joined; None if not possible."""
    source, (start, out) = args[0].stmt, stmt.attr
    return _joined_part(self, source, start, out) if source is not None and source.row is parts.JOIN else None


_FOLD = {
    c.CONST: lambda self, stmt, args: None,
    mem.COMPONENTS: lambda self, stmt, args: None,
    mem.SHAPE: lambda self, stmt, args: None,
    scalar.ADD: _fold_add,
    scalar.MUL: lambda self, stmt, args: (
        _other_than(lambda v: constant_of(v) == 1, stmt, args) or self.folded(stmt, args)
    ),
    scalar.WHERE: _fold_where,
    scalar.TIMES: _fold_times,
    scalar.MOVES: _fold_times,
    scalar.OVER: _fold_over,
    scalar.GATE: lambda self, stmt, args: args[1] if _is_nonzero(args[0]) else None,
    scalar.LOGICAL_AND: _fold_both,
    vectors.EXTRACT: _fold_extract,
    parts.PART: _fold_part,
}
