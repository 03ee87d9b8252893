"""Smaller programs with the same meaning, to the last bit.

`rewrite` copies a function while it merges equal pure statements, folds integer constants and takes components out of
what they were just put into; with `forward` it also gives a load the value that the same thread stored before it.
`prune` then drops what nobody needs: results, carried values, pushes without pops. Floating point is never
reassociated, and `x * 0` stays (x may be infinite).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ..ir import Builder, Function, Region, Stmt, Value, root, walk
from ..ops import control as c
from ..ops import memory as mem
from ..ops.row import ROWS, Effect
from ..types import Scalar, bool_


def primal(function: Function) -> Function:
    """What the reader wrote, tidied: run once on every kernel."""
    return prune(rewrite(function))


def adjoint(function: Function, groups: tuple[frozenset[str], ...] = ()) -> Function:
    """Keep what a gradient needs. `groups`: array parameters that share memory at this launch."""
    return prune(rewrite(prune(function, groups)), groups)


def forward(function: Function, groups: tuple[frozenset[str], ...] = ()) -> Function:
    """The same function, where a load that follows the thread's own store takes the stored value.

    `groups`: array parameters that share memory at this launch.
    """
    return prune(rewrite(function, groups))


def rewrite(function: Function, groups: tuple[frozenset[str], ...] | None = None) -> Function:
    return _written(_Rewrite(groups), function)


def _written(anew: _Rewrite, function: Function) -> Function:
    body = anew.function(function)
    return Function(
        function.name, body, function.rank, function.where, function.source, function.first_line, function.file
    )


def assume(function: Function, taken: Collection[Stmt]) -> Function:
    """The same function where these `if`s are known to take their first branch."""
    return _pruned(_written(_Rewrite(None, frozenset(taken)), function))


def merged(function: Function, same: tuple[tuple[str, str], ...]) -> Function:
    """The same function with the same parameters, where all that (name, other) says of `other` is said of `name`."""
    return _pruned(_written(_Rewrite(None, same={other: name for name, other in same}), function))


UNROLLED = 2500  # statements that a loop may become


def unrolled(function: Function) -> Function:
    """The same function with short loops of known turns written out; the function itself where there are none."""
    if not any(s.row is c.FOR and _trips(s, s.args) for s in walk(function.body)):
        return function
    return _pruned(_written(_Rewrite(None, unroll=True), function))


def _pruned(function: Function) -> Function:
    """Pruned once more, where nobody knows any longer which arrays share memory: any two may."""
    return prune(function, (frozenset(p.name for p in function.arrays),))


def _trips(stmt: Stmt, args: tuple[Value, ...]) -> range | None:
    """The turns of a loop that may be written out."""
    if stmt.row is not c.FOR or (stmt.attr is not None and stmt.attr.breaks):
        return None
    numbers = [_number(a) for a in args[:3]]
    if not all(isinstance(n, int) for n in numbers) or not numbers[2]:
        return None
    turns = range(*numbers)  # type: ignore[arg-type]
    return turns if len(turns) * _size(stmt.regions[0]) <= UNROLLED else None


def _size(region: Region) -> int:
    """Statements of a region with its loops written out."""
    total = 0
    for s in region.body:
        turns = _trips(s, s.args)
        large = max((getattr(v.type, "size", 1) for v in (*s.args, *s.outs)), default=1)
        own = 1 if large <= 16 else large // 4  # compilers take long over large matrices, component by component
        total += own + (1 if turns is None else len(turns)) * sum(_size(r) for r in s.regions)
    return total


def flat(function: Function) -> Function:
    """The same function with fewer branches, for compilers that vectorise: conditions that cost little are worked out
    whether or not they are asked, and an `if` that is all of another one becomes one with it."""
    if not any(s.row is c.IF and (_chained(s) or _nested(s)) for s in walk(function.body)):
        return function
    return _written(_Flat(None), function)


# ---- rewriting


@dataclass
class _Scope:
    """What is known at one point: equal expressions, and memory cells whose contents are a known value."""

    values: dict[Value, Value] = field(default_factory=dict)
    pure: dict[tuple, Stmt] = field(default_factory=dict)
    cells: dict[tuple, Value] = field(default_factory=dict)

    def inner(self) -> _Scope:
        return _Scope(dict(self.values), dict(self.pure), dict(self.cells))


class _Rewrite:
    def __init__(
        self, groups: tuple[frozenset[str], ...] | None, taken: frozenset[Stmt] = frozenset(), unroll: bool = False,
        same: dict[str, str] | None = None,
    ):  # fmt: skip
        self.groups, self.taken, self.unroll, self.same = groups, taken, unroll, same or {}
        self.room = UNROLLED  # for loops that get their bounds from a counter written out: no `_size` has seen those
        self.builder = Builder()

    def function(self, function: Function) -> Region:
        scope = _Scope()
        for p in function.params:
            scope.values[p] = Value(p.type, p.name, p.where)
            self.builder.region.params.append(scope.values[p])
        named = {p.name: scope.values[p] for p in function.params}
        scope.values.update({p: named[self.same[p.name]] for p in function.params if p.name in self.same})
        with self.builder.open():
            self.region(function.body, scope)
        return self.builder.region

    def region(self, region: Region, scope: _Scope) -> None:
        builder = self.builder
        before = builder.where, builder.of
        for stmt in region.body:
            builder.role, builder.where = stmt.role, stmt.where
            builder.of = stmt.of or stmt if stmt.role != "primal" else stmt.of
            self.stmt(stmt, scope)
        builder.where, builder.of = before

    def stmt(self, stmt: Stmt, scope: _Scope) -> None:
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
        made = self.builder.append(stmt.row, args, [o.type for o in stmt.outs], attr=stmt.attr)
        for old, new in zip(stmt.outs, made.outs, strict=True):
            new.name = old.name
            scope.values[old] = new
        if pure:
            scope.pure[key] = made
        elif self.groups is not None:
            self.remember(made, scope)

    def known(self, stmt: Stmt, args: tuple[Value, ...], scope: _Scope, key: tuple) -> Value | None:
        """A value that already exists and equals this statement's result."""
        if stmt.row is mem.LOAD and self.groups is not None:
            return scope.cells.get(_cell(args[0], args[1:]))
        if stmt.row.effect is not Effect.PURE:
            return None
        same = scope.pure.get(key)
        if same is not None:
            return same.outs[0]
        rule = _FOLD.get(stmt.row.name)
        if rule is not None:
            return rule(self, stmt, args)
        return self.constant(stmt, args)

    def constant(self, stmt: Stmt, args: tuple[Value, ...]) -> Value | None:
        """Integer arithmetic on constants."""
        out = stmt.outs[0].type if stmt.outs else None
        if not args or not isinstance(out, Scalar) or out.kind not in "iub":
            return None
        numbers = []
        for a in args:
            number = _number(a)
            if not isinstance(a.type, Scalar) or a.type.kind not in "iub" or number is None:
                return None
            numbers.append(a.type(number))
        value = stmt.row.compute(*numbers, attr=stmt.attr)
        return self.builder.append(c.CONST, (), (out,), attr=value.item()).outs[0]

    def remember(self, stmt: Stmt, scope: _Scope) -> None:
        """After a write, only the cell just written is known; a read makes its cell known."""
        if stmt.row is mem.LOAD:
            scope.cells[_cell(stmt.args[0], stmt.args[1:])] = stmt.outs[0]
        elif stmt.row is mem.STORE or stmt.row is mem.ACCUMULATE or stmt.row in mem.ATOMICS:
            indices = stmt.args[1 : 1 + stmt.args[0].type.ndim]  # type: ignore[attr-defined]
            self.forget(root(stmt.args[0]).name, scope, _cell(stmt.args[0], indices))
            if stmt.row is mem.STORE:
                scope.cells[_cell(stmt.args[0], indices)] = stmt.args[-1]

    def forget(self, name: str, scope: _Scope, written: tuple | None = None) -> None:
        shared = next((g for g in self.groups or () if name in g), None)
        group = shared or frozenset((name,))
        for cell in list(scope.cells):  # in shared memory two indices may be one cell: a group of one overlaps itself
            if cell[0] in group and (shared or not _apart(cell, written)):
                del scope.cells[cell]

    def regions(self, stmt: Stmt, args: tuple[Value, ...], scope: _Scope) -> None:
        known = True if stmt in self.taken else _number(args[0]) if stmt.row is c.IF else None
        if isinstance(known, bool | int):
            taken = stmt.regions[0 if known else 1]
            self.region(taken, scope)
            scope.values.update(zip(stmt.outs, (scope.values[r] for r in taken.results), strict=True))
            return
        turns = self.turns(stmt, args) if self.unroll else None
        if turns is not None:
            self.write_out(stmt, args, turns, scope)
            return
        written = {root(s.args[0]).name for r in stmt.regions for s in walk(r) if s.row in _WRITES}
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
            made.append(new)
        self.builder.role, self.builder.where, self.builder.of = role, where, of
        again = self.builder.append(stmt.row, args, [o.type for o in stmt.outs], tuple(made), attr=stmt.attr)
        for old, new_out in zip(stmt.outs, again.outs, strict=True):
            new_out.name = old.name
            scope.values[old] = new_out
        for name in written:
            self.forget(name, scope)

    def turns(self, stmt: Stmt, args: tuple[Value, ...]) -> range | None:
        turns = _trips(stmt, args)
        if turns is None or _trips(stmt, stmt.args) is not None:
            return turns
        size = len(turns) * _size(stmt.regions[0])
        if size > self.room:
            return None
        self.room -= size
        return turns

    def write_out(self, stmt: Stmt, args: tuple[Value, ...], turns: range, scope: _Scope) -> None:
        """The turns of a loop one after the other."""
        (region,) = stmt.regions
        counter, *params = region.params
        carried = args[3:]
        for turn in turns:
            scope.values[counter] = self.builder.append(c.CONST, (), (counter.type,), attr=turn).outs[0]
            scope.values.update(zip(params, carried, strict=True))
            self.region(region, scope)
            carried = tuple(scope.values[r] for r in region.results)
        scope.values.update(zip(stmt.outs, carried, strict=True))


# ---- fewer branches

EAGER = 16  # statements that are worked out in vain
_EAGER = {
    *(ROWS[name] for name in "add sub mul neg lt le gt ge eq ne logical_and logical_or logical_not".split()),
    c.CONST, c.TID, c.DIM, mem.SHAPE,
}  # fmt: skip


class _Flat(_Rewrite):
    def regions(self, stmt: Stmt, args: tuple[Value, ...], scope: _Scope) -> None:
        chained = _chained(stmt) if stmt.row is c.IF else None
        inner = _nested(stmt) if stmt.row is c.IF else None
        role = self.builder.role
        if chained is not None:
            region, name = chained
            self.region(region, scope)
            self.builder.role = role
            parts = [args[0], scope.values[region.results[0]]]
            scope.values[stmt.outs[0]] = self.builder.append(ROWS[name], parts, [bool_]).outs[0]
        elif inner is not None:
            then = stmt.regions[0]
            self.region(Region(body=then.body[:-1]), scope)
            self.builder.role = role
            both = self.builder.append(ROWS["logical_and"], [args[0], scope.values[inner.args[0]]], [bool_]).outs[0]
            self.regions(inner, (both,), scope)
            found = [scope.values[r] for r in then.results]
            scope.values.update(zip(stmt.outs, found, strict=True))
        else:
            super().regions(stmt, args, scope)


def _chained(stmt: Stmt) -> tuple[Region, str] | None:
    """Of `a and b` or `a or b`: the region that works out b, and the row that joins them."""
    if len(stmt.outs) != 1 or stmt.outs[0].type != bool_:
        return None
    then, otherwise = stmt.regions
    for region, other, value, name in ((then, otherwise, False, "logical_and"), (otherwise, then, True, "logical_or")):
        idle = all(s.row is c.CONST for s in other.body)
        if idle and _number(other.results[0]) is value and not _dear(region):
            return region, name
    return None


def _nested(stmt: Stmt) -> Stmt | None:
    """The `if` that is all of this one's first branch, beside conditions; else, both leave the same constants."""
    then, otherwise = stmt.regions
    inner = then.body[-1] if then.body else None
    if inner is None or inner.row is not c.IF or _chained(inner) or _dear(Region(body=then.body[:-1])):
        return None
    pairs = list(zip(then.results, otherwise.results, strict=True))
    for value, other in pairs:
        if value not in inner.outs or not _same(inner.regions[1].results[inner.outs.index(value)], other):
            return None
    idle = all(s.row is c.CONST for region in (otherwise, inner.regions[1]) for s in region.body)
    return inner if idle else None


def _same(value: Value, other: Value) -> bool:
    made, again = value.stmt, other.stmt
    if made is None or again is None or made.row is not c.CONST or again.row is not c.CONST:
        return False
    return value.type == other.type and repr(made.attr) == repr(again.attr)


def _dear(region: Region) -> bool:
    """Would it cost something to run these statements where nobody asked, or mean something."""
    stmts = list(walk(region))
    for s in stmts:
        if s.row is c.IF:
            if not _chained(s):
                return True
        elif s.row not in _EAGER or not all(isinstance(o.type, Scalar) for o in s.outs):
            return True
    return len(stmts) > EAGER


_WRITES = (mem.STORE, mem.LOG_STORE, mem.ACCUMULATE, *mem.ATOMICS)


def _key(stmt: Stmt, args: tuple[Value, ...]) -> tuple:
    attr = repr(stmt.attr) if stmt.row is c.CONST or not isinstance(stmt.attr, str | None) else stmt.attr
    return stmt.row, args, attr, *[o.type for o in stmt.outs]


def _cell(array: Value, indices: tuple[Value, ...]) -> tuple:
    view = array.stmt is not None
    return root(array).name, view, tuple(_number(i) if _number(i) is not None else id(i) for i in indices), indices


def _apart(cell: tuple, written: tuple | None) -> bool:
    """Are two cells of one array surely different: some axis has two different constant indices."""
    if written is None or cell[:2] != written[:2]:
        return False
    pairs = zip(cell[3], written[3], strict=True)
    return any(_number(a) is not None and _number(b) is not None and _number(a) != _number(b) for a, b in pairs)


def _number(value: Value):
    """The Python number behind a scalar constant, else None."""
    if value.stmt is not None and value.stmt.row is c.CONST and isinstance(value.type, Scalar):
        return value.stmt.attr
    return None


def _is_zero(value: Value) -> bool:
    return value.stmt is not None and value.stmt.row is c.CONST and isinstance(value.stmt.attr, (int, float)) and (
        value.stmt.attr == 0
    )  # fmt: skip


def _fold_add(self: _Rewrite, stmt: Stmt, args: tuple[Value, ...]) -> Value | None:
    """x + 0 in an adjoint is x: a structural zero, not a number of the user's."""
    if stmt.role == "adjoint" or stmt.outs[0].type.scalar.kind in "iu":  # type: ignore[attr-defined]
        if _is_zero(args[1]) and args[0].type == stmt.outs[0].type:
            return args[0]
        if _is_zero(args[0]) and args[1].type == stmt.outs[0].type:
            return args[1]
    return self.constant(stmt, args)


def _fold_mul(self: _Rewrite, stmt: Stmt, args: tuple[Value, ...]) -> Value | None:
    if _number(args[1]) == 1 and args[0].type == stmt.outs[0].type:
        return args[0]
    if _number(args[0]) == 1 and args[1].type == stmt.outs[0].type:
        return args[1]
    return self.constant(stmt, args)


def _fold_where(self: _Rewrite, stmt: Stmt, args: tuple[Value, ...]) -> Value | None:
    return args[1] if args[1] is args[2] else None


def _fold_extract(self: _Rewrite, stmt: Stmt, args: tuple[Value, ...]) -> Value | None:
    """The component of what was just constructed or inserted."""
    source = args[0].stmt
    if source is None:
        return None
    if source.row.name == "construct" and source.args[1:]:
        shape, flat = args[0].type.shape, 0  # type: ignore[attr-defined]
        for i, n in zip(stmt.attr, shape, strict=True):
            flat = flat * n + i
        return source.args[flat]
    if source.row.name == "insert":
        if source.attr == stmt.attr:
            return source.args[1]
        copy = Stmt(stmt.row, (source.args[0],), stmt.outs, attr=stmt.attr)
        deeper = _fold_extract(self, copy, copy.args)
        return deeper if deeper is not None else self.builder.emit(stmt.row, source.args[0], attr=stmt.attr)
    if _is_zero(args[0]):
        return self.builder.append(c.CONST, (), (stmt.outs[0].type,), attr=0).outs[0]
    return None


_FOLD = {
    "const": lambda self, stmt, args: None,
    "components": lambda self, stmt, args: None,
    "shape": lambda self, stmt, args: None,
    "add": _fold_add,
    "mul": _fold_mul,
    "where": _fold_where,
    "extract": _fold_extract,
}


# ---- pruning


def prune(function: Function, groups: tuple[frozenset[str], ...] = ()) -> Function:
    """Drop, in place, what has no effect and no reader. `groups`: array parameters that share memory."""
    live = _Live(function, groups)
    live.run()
    _sweep(function.body, live)
    return function


class _Live:
    """Marks backwards from the statements with an effect."""

    def __init__(self, function: Function, groups: tuple[frozenset[str], ...] = ()):
        self.groups = groups
        self.values: set[Value] = set()
        self.stmts: set[Stmt] = set()
        self.work: list[Value] = []
        self.function = function
        self.owner: dict[Value, tuple[Stmt, int]] = {}  # region parameter -> its loop and position
        self.parents: dict[Stmt, Stmt] = {}
        self.pushes: dict[Value, list[Stmt]] = {}
        self.private: dict[str, list[Stmt]] = {}
        self.undo: list[Stmt] = []
        self._index(function.body, None)

    def _index(self, region: Region, parent: Stmt | None) -> None:
        for stmt in region.body:
            if parent is not None:
                self.parents[stmt] = parent
            if stmt.row in (c.PUSH, c.POP):
                self.pushes.setdefault(stmt.args[0], []).append(stmt)
            if stmt.role == "replay" and stmt.row in (mem.STORE, mem.LOG_STORE):
                self.private.setdefault(root(stmt.args[0]).name, []).append(stmt)
            if stmt.row in (mem.MARK, mem.ROLLBACK):
                self.undo.append(stmt)
            for r in stmt.regions:
                for j, p in enumerate(r.params):
                    self.owner[p] = (stmt, j)
                self._index(r, stmt)

    def run(self) -> None:
        for stmt in walk(self.function.body):
            if stmt.row in _ROOTS and not (stmt.role == "replay" and stmt.row in (mem.STORE, mem.LOG_STORE)):
                self.keep(stmt)
        while self.work:
            self.visit(self.work.pop())

    def need(self, value: Value) -> None:
        if value not in self.values:
            self.values.add(value)
            self.work.append(value)

    def keep(self, stmt: Stmt) -> None:
        """This statement happens: so do its arguments, and the control flow that leads to it."""
        if stmt in self.stmts:
            return
        self.stmts.add(stmt)
        if not stmt.regions:
            for a in stmt.args:
                self.need(a)
            self.reads(stmt)
        elif stmt.row is c.IF:
            self.need(stmt.args[0])
        elif stmt.row in (c.FOR, c.WHILE):
            for a in stmt.args[:3] if stmt.row is c.FOR else ():
                self.need(a)
            if stmt.row is c.WHILE:
                self.need(stmt.regions[0].results[0])
            if stmt.attr.breaks:
                self.need(stmt.regions[-1].results[0])
        elif stmt.row is c.CALL:
            for r in (*stmt.args, *stmt.regions[0].results):
                self.need(r)
        else:
            for a in stmt.args:
                self.need(a)
        parent = self.parents.get(stmt)
        if parent is not None and parent not in self.stmts:
            self.keep(parent)

    def reads(self, stmt: Stmt) -> None:
        """A live read of private memory needs the writes before it; a live pop needs its pushes."""
        if stmt.row is mem.LOAD:
            name = root(stmt.args[0]).name
            if name in self.private or any(name in g and not g.isdisjoint(self.private) for g in self.groups):
                for other in [*(s for group in self.private.values() for s in group), *self.undo]:
                    self.keep(other)
        elif stmt.row is c.POP:
            for other in self.pushes[stmt.args[0]]:
                self.keep(other)

    def visit(self, value: Value) -> None:
        if value.stmt is not None:
            stmt = value.stmt
            if stmt not in self.stmts:
                self.keep(stmt)
            if stmt.regions:
                self.result(stmt, stmt.outs.index(value))
        elif value in self.owner:
            stmt, j = self.owner[value]
            self.keep(stmt)
            k = j - 1 if stmt.row is c.FOR else j
            if stmt.row is c.CALL:
                self.need(stmt.args[j])
            elif k >= 0:
                self.result(stmt, k)

    def result(self, stmt: Stmt, k: int) -> None:
        """Result k of a statement with regions is needed: so are the results of its regions and what it starts from."""
        if stmt.row is c.IF or stmt.row is c.CALL:
            for r in stmt.regions:
                self.need(r.results[k])
            return
        body, fixed = stmt.regions[-1], 3 if stmt.row is c.FOR else 0
        self.need(stmt.args[fixed + k])
        self.need(body.results[k + stmt.attr.breaks])
        self.need(body.params[k + (stmt.row is c.FOR)])
        if stmt.row is c.WHILE:
            self.need(stmt.regions[0].params[k])
        self.need(stmt.outs[k])


_ROOTS = {mem.STORE, mem.LOG_STORE, mem.ACCUMULATE, *mem.ATOMICS, c.PRINTF}


def _sweep(region: Region, live: _Live) -> None:
    region.body[:] = [s for s in region.body if s in live.stmts]
    for stmt in region.body:
        if stmt.row in (c.FOR, c.WHILE, c.IF):
            _sweep_results(stmt, live)
        for r in stmt.regions:
            _sweep(r, live)


def _sweep_results(stmt: Stmt, live: _Live) -> None:
    kept = [k for k, out in enumerate(stmt.outs) if out in live.values]
    if stmt.row is c.IF:
        for r in stmt.regions:
            r.results = tuple(r.results[k] for k in kept)
    else:
        fixed, skip = (3, 1) if stmt.row is c.FOR else (0, 0)
        body = stmt.regions[-1]
        b = int(stmt.attr.breaks)
        stmt.args = (*stmt.args[:fixed], *(stmt.args[fixed + k] for k in kept))
        body.results = (*body.results[:b], *(body.results[b + k] for k in kept))
        body.params[:] = [*body.params[:skip], *(body.params[skip + k] for k in kept)]
        if stmt.row is c.WHILE:
            stmt.regions[0].params[:] = [stmt.regions[0].params[k] for k in kept]
    stmt.outs = tuple(stmt.outs[k] for k in kept)
