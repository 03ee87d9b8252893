"""Branches, loops and early exits of the source as structured IR.

An exit is data: `$stop` (skip the rest of this block), `$go` (the innermost loop goes on), `$return`, `$value`. They
are names like the user's, Python bools while they are certain, and merge like the user's names where branches meet. So
`break`, `continue` and `return` anywhere need no rule of their own in the IR.
Where one branch certainly leaves, the rest of the block is read into the other one, which keeps the IR plain.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...errors import KernelError, Where
from .. import ir, ops
from ..ops import Row, control, memory
from ..types import Scalar, is_int, scalar_of
from . import refused_syntax, tile_sharing
from .assigned_names import assigned_first, has_break, leaves_always, read_after
from .base import Meaning, ReaderBase
from .chosen_arrays import Wider, among_itself, array_choice, arrays, options_in, union
from .conditions import Guarded
from .cuts import as_carried, movable
from .handles import query_loop, with_plain_test
from .joins import Join, maybe_unbound, resolved, same_array, same_constant
from .liveness import replaced
from .lower_bounds import static_int
from .scope import FRESH, State, StructParts, Unusable, describe, is_array, is_literal, leaves, local_keys, rebuild
from .static_loops import static_loop
from .tile_sharing import cell_name, has_shown, is_tile_cell


class ControlFlowReader(ReaderBase):
    """Mixin of `Reader`: branches, loops and early exits."""

    # ---- blocks

    def block(self, body: list[ast.stmt]) -> None:
        """Read statements in order; the rest after an exit goes where it can be reached."""
        for k, stmt in enumerate(body):
            rest = body[k + 1 :]
            if isinstance(stmt, ast.If) and rest and (leaves_always(stmt.body) or leaves_always(stmt.orelse)):
                with self.at(stmt):
                    self.visit_If(stmt, rest)
                return
            self.visit(stmt)
            stop = self.state.names["$stop"]
            if stop is True:
                return
            if stop is not False:  # the rest is for the paths that have not left
                if rest:
                    self.branch(stmt, stop, partial(self.stopped, stop), partial(self.resume, rest))
                return

    def stopped(self, stop: ir.Value) -> None:
        """The path on which `stop` holds: an exit that is the same value is certain here."""
        if self.state.names["$return"] is stop:
            self.state.names.update({"$stop": True, "$go": False, "$return": True})

    def resume(self, rest: list[ast.stmt]) -> None:
        """The rest of a block, on the path where nothing has left it."""
        self.state.names.update(FRESH)
        self.block(rest)

    def visit_If(self, node: ast.If, rest: Sequence[ast.stmt] = ()) -> None:
        condition = self.condition(node.test)
        then, other = node.body, node.orelse
        if leaves_always(then):
            other = [*other, *rest]
        elif rest:
            then = [*then, *rest]
        self.branch(node, condition, lambda: self.block(then), lambda: self.block(other))

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.condition(node.test)
        return self.branch(node, condition, lambda: self.visit(node.body), lambda: self.visit(node.orelse))

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        return self.chain(node, isinstance(node.op, ast.And), [lambda v=v: self.condition(v) for v in node.values])

    def chain(self, node: ast.expr, conjunction: bool, parts: list[Callable[[], Any]]) -> Any:
        """`and` / `or` of conditions: each is evaluated only where the ones before it leave the answer open."""
        first, rest = parts[0](), parts[1:]
        if not rest:
            return first
        if isinstance(first, bool):
            return self.chain(node, conjunction, rest) if first is conjunction else first
        if conjunction:
            return self.branch(node, first, lambda: self.chain(node, True, rest), lambda: False)
        return self.branch(node, first, lambda: True, lambda: self.chain(node, False, rest))

    # ---- where branches meet

    def branch(self, node: ast.AST | None, condition: ir.Value | bool, then: Callable, other: Callable) -> Any:
        """An `if`: both sides are read from the present state; afterwards the state is the merged one."""
        if isinstance(condition, bool):
            return then() if condition else other()
        before, ends = self.state, []
        for truth, side in ((True, then), (False, other)):
            region, self.state = ir.Region(), before.copy()
            with self.builder.inside(region), self.facts.assuming(condition, truth), self.supposing(condition, truth):
                result = side()
            ends.append((region, self.state, result))
        return self.merge(node, condition, ends)

    def merge(self, node: ast.AST | None, condition: ir.Value, ends: list[tuple[ir.Region, State, Any]]) -> Any:
        """Close an `if`: one result per leaf that differs; names that cannot be joined become unusable."""
        tile_sharing.part_ways(self, node, ends)
        join = Join(self, node, ends[0][0], ends[1][0])
        (_, a, x), (_, b, y) = ends
        names = {name: join.name(name, a.names, b.names) for name in {**a.names, **b.names}}
        cells = {key: join.tree(cell_name(key), a.cells[key], b.cells[key]) for key in a.cells if key in b.cells}
        for key in {key for tree in (*names.values(), x, y) for key in local_keys(tree)} - cells.keys():
            cells[key] = join.cell(key, a.cells, b.cells)
        result = join.result(x, y)
        regions = (join.then, join.other)
        self.state = State(names, cells)
        if not join.pairs and not any(region.body for region in regions):
            return result
        join.then.results = tuple(a for a, _ in join.pairs)
        join.other.results = tuple(b for _, b in join.pairs)
        with self.at(node):
            stmt = self.builder.append(control.IF, (condition,), [p[0].type for p in join.pairs], regions)
        self.merges += 1
        for out, place, pair in zip(stmt.outs, join.places, join.pairs, strict=True):
            out.name, place.becomes = place.name, out
            tile_sharing.note_merge(self, self.merges, out, *pair)
        self.state = State({k: resolved(v) for k, v in names.items()}, {k: resolved(v) for k, v in cells.items()})
        return resolved(result)

    # ---- exits

    def visit_Return(self, node: ast.Return) -> None:
        value = None if node.value is None else self.visit(node.value)
        value = self.checked(value, node.value) if node.value and isinstance(value, Guarded) else value
        if value is not None and self.frame.caller is None:
            text = "a kernel returns nothing"
            why = "Its results are what it writes into arrays."
            instead = "out[i] = ..., then: return"
            raise KernelError(text, slug="kernel-return", where=self.where(node), why=why, instead=instead)
        names = self.state.names
        names["$value"] = None if value is None else self.returning(value)
        names.update({"$stop": True, "$go": False, "$return": True})

    def returning(self, value: Meaning) -> Any:
        """The value of `return`: a literal takes the declared type, else stays open for other paths to decide."""
        wanted = self.frame.fn.__annotations__.get("return")
        if is_literal(value) and isinstance(wanted, Scalar | type):
            with suppress(TypeError):
                return self.typed(value, scalar_of(wanted))
        return value

    def visit_Break(self, node: ast.Break) -> None:
        self.state.names.update({"$stop": True, "$go": False})

    def visit_Continue(self, node: ast.Continue) -> None:
        self.state.names["$stop"] = True

    # ---- loops

    def visit_For(self, node: ast.For) -> None:
        if node.orelse:
            raise refused_syntax.refuse("ForElse", self.where(node.orelse[0]))
        if static_loop(self, node):
            return
        if not isinstance(node.target, ast.Name):
            raise refused_syntax.refuse("ForIter", self.where(node.target))
        if query_loop(self, node):
            return
        start, stop, step = self.range_bounds(node.iter)
        bounds = [b for b in map(static_int, (start, stop, step)) if b is not None]
        trips = len(range(*bounds)) if len(bounds) == 3 and bounds[2] != 0 else None
        self.widening(lambda wider: self.read_for(node, (start, stop, step), trips, wider))

    def read_for(self, node: ast.For, bounds: tuple[ir.Value, ...], trips: int | None, wider: dict[str, Any]) -> None:
        assert isinstance(node.target, ast.Name)
        start, stop, step = bounds
        loop = OpenLoop(self, node, {node.target.id}, wider, runs=bool(trips))
        index = ir.Value(start.type, node.target.id, self.where(node.target))
        with self.builder.inside(loop.body), self.facts.assuming(None, True):
            self.bound_index(index, start, stop, step)
            self.state.names[node.target.id] = index
            self.block(node.body)
            loop.close()
        loop.body.params = [index, *[slot.param for slot in loop.slots]]
        loop.write(control.FOR, (start, stop, step), (loop.body,), trips)

    def bound_index(self, index: ir.Value, start: ir.Value, stop: ir.Value, step: ir.Value) -> None:
        by, low, end = static_int(step), self.facts.lower(start), self.facts.lower(stop)
        if by is not None and by > 0 and low is not None:
            self.facts.set(index, low)
        if by is not None and by < 0 and end is not None:
            self.facts.set(index, end + 1)

    def range_bounds(self, node: ast.expr) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Start, stop and step of `range(...)`, or of the range that `reversed(range(...))` runs over."""
        if not (isinstance(node, ast.Call) and self.python_object(node.func) is reversed and len(node.args) == 1):
            return self.plain_range(node)
        start, stop, step = self.plain_range(node.args[0])
        with self.at(node):
            fixed = [n for n in map(static_int, (start, stop, step)) if n is not None]
            if len(fixed) == 3 and fixed[2]:
                back = range(*fixed)[::-1]
                a, b, c = (self.typed(n, start.type) for n in (back.start, back.stop, back.step))
                return a, b, c
            if static_int(step) == 1:
                one = self.typed(1, start.type)
                return ops.binary("-", stop, one), ops.binary("-", start, one), self.typed(-1, start.type)
            turns = ops.convert(start.type, memory.TRIPS(start, stop, step))
            first = ops.binary("-", start, step)
            return ops.binary("+", first, ops.binary("*", turns, step)), first, ops.unary("-", step)

    def plain_range(self, node: ast.expr) -> tuple[ir.Value, ir.Value, ir.Value]:
        if not (isinstance(node, ast.Call) and self.python_object(node.func) is range):
            raise refused_syntax.refuse("ForIter", self.where(node))
        if node.keywords or not 1 <= len(node.args) <= 3:
            raise KernelError("range() takes one to three integers", slug="for-range", where=self.where(node))
        given = [self.visit(a) for a in node.args]
        types = [g.type for g in given if isinstance(g, ir.Value)]
        type = types[0] if types else None
        values = [self.typed(g, type) if type else self.value(g) for g in given]
        for v, arg in zip(values, node.args, strict=True):
            if not is_int(v.type) or v.type != values[0].type:
                text = "the bounds of a range are integers of one type"
                why = f"This one is {v.type}" + ("" if v is values[0] else f", the first is {values[0].type}") + "."
                raise KernelError(text, slug="range-type", where=self.where(arg), why=why, instead="range(int(n))")
        number = values[0].type
        start, stop = (self.typed(0, number), values[0]) if len(values) == 1 else values[:2]
        return start, stop, values[2] if len(values) == 3 else self.typed(1, number)

    def visit_While(self, node: ast.While) -> None:
        if node.orelse:
            raise refused_syntax.refuse("WhileElse", self.where(node.orelse[0]))
        node = with_plain_test(self, node)
        self.widening(lambda wider: self.read_while(node, wider))

    def widening(self, read: Callable[[dict[str, Any]], None]) -> None:
        """Read a loop; again as long as it turns out that a name is one array or another from turn to turn."""
        wider: dict[str, Any] = {}
        state, changes = self.state, len(self.changes)
        self.widened.append(wider)
        try:
            while True:
                try:
                    return read(wider)
                except Wider as found:
                    if found.known is not wider:
                        raise
                    wider[found.name] = found.pattern
                    self.state = state
                    del self.changes[changes:]
        finally:
            self.widened.pop()

    def read_while(self, node: ast.While, wider: dict[str, Any]) -> None:
        loop = OpenLoop(self, node, set(), wider)
        go, assumed = self.loop_test(node, loop)
        if go is False:
            self.state = loop.before
            return
        loop.runs = loop.endless = go is True
        with self.builder.inside(loop.body), self.facts.assuming(None, True):
            for value, low in assumed:
                self.facts.set(value, low)
            self.block(node.body)
            loop.close()
        loop.body.params = [slot.param for slot in loop.slots]
        loop.test.params = [slot.test for slot in loop.slots]
        loop.write(control.WHILE, (), (loop.test, loop.body), None)

    def loop_test(self, node: ast.While, loop: OpenLoop) -> tuple[Any, list[tuple[ir.Value, int]]]:
        """Read the condition into its own region; facts about its parameters hold for those of the body."""
        body, self.state = self.state, loop.entered([slot.test for slot in loop.slots])
        before, low = self.state.copy(), []
        with self.builder.inside(loop.test):
            go = self.condition(node.test)
            if self.changed(before):
                text = "the condition of `while` changes a variable"
                why = "A random number drawn there would advance its state."
                instead = "while True: ..., with a `break`"
                raise KernelError(text, slug="while-condition", where=self.where(node.test), why=why, instead=instead)
            with self.facts.assuming(go, True):
                for slot in loop.slots:
                    known = self.facts.known(slot.test) if is_int(slot.test.type) else None
                    if known is not None:
                        low.append((slot.param, known))
            loop.test.results = (self.value(go),)
        self.state = body
        return go, low

    def changed(self, before: State) -> bool:
        """True if a name or a local array has another value than in `before`."""
        now = self.state
        return any(_differ(before.names.get(k), v) for k, v in now.names.items()) or any(
            before.cells.get(k) is not v for k, v in now.cells.items()
        )


def _differ(a: Meaning, b: Meaning) -> bool:
    """True if two bindings of a name have different values; flags of `Guarded` are ignored."""
    if isinstance(a, Guarded) and isinstance(b, Guarded):
        a, b = a.tree, b.tree
    one, two = list(leaves(a)), list(leaves(b))
    return a is not b and not (one and len(one) == len(two) and all(x is y for x, y in zip(one, two, strict=True)))


# ---- loops


@dataclass(eq=False)
class CarriedSlot:
    """A loop-carried leaf: its initial value, its parameter in body and test, its next value, its result."""

    init: ir.Value
    param: ir.Value
    test: ir.Value
    next: ir.Value
    out: ir.Value | None = None


def _slot(init: ir.Value, next: ir.Value | None = None) -> CarriedSlot:
    param, test = (ir.Value(init.type, init.name, init.where) for _ in range(2))
    return CarriedSlot(init, param, test, next or param)


class OpenLoop:
    """One loop while it is read: the names it carries, and their values in and after it."""

    def __init__(
        self, reader: ReaderBase, node: ast.For | ast.While, extra: set[str], wider: dict[str, Any], runs: bool = False
    ):
        self.reader, self.node, self.runs, self.endless = reader, node, runs, False
        self.wider = wider  # names that are carried as one array or another, as in these trees
        self.replaced = replaced(node)
        self.changes_tiles = tile_sharing.tiles_may_change(reader, node, self.replaced)
        self.where: Where = reader.where(node)
        self.before: State = reader.state
        reader.builder.epoch += 1
        self.rebound, self.updated = reader.stores(node)
        self.rebound |= extra
        self.body, self.test = ir.Region(), ir.Region()
        self.carried = list(self._carried())
        self.groups = {name: [_slot(v) for v in leaves(tree)] for name, tree in self.carried}
        self.slots = [slot for group in self.groups.values() for slot in group]
        self.trees = dict(self.carried)
        self.new: dict[str, tuple[Any, list[CarriedSlot]]] = {}
        self.unsure: set[str] = set()  # of these: names that have no value where the loop does not turn
        self.bounds: tuple[ir.Value, ...] = ()
        self.lost: dict[str, Any] = {}
        # Names of the turn before: had, tree, leaves.
        self.earlier: dict[str, tuple[CarriedSlot, Any, list[CarriedSlot]]] = {}
        reader.merges += 1
        self.merge = reader.merges
        for slot in self.slots:
            tile_sharing.note_merge(reader, self.merge, slot.param, slot.init)
        self.changes = len(reader.changes)
        reader.state = self.entered([slot.param for slot in self.slots])

    def _carried(self) -> Iterator[tuple[str, Any]]:
        for name, tree in self.before.names.items():
            if name not in self.rebound | self.updated or name.startswith("$"):
                continue
            if name in self.wider:
                tree = as_carried(self.reader, tree, self.wider[name])
            elif is_array(tree):  # writing to its elements leaves it what it is
                tree = movable(self.reader, tree) if name in self.rebound else None
            elif has_shown(tree):  # it goes on showing the same, unless it is rebound
                tree = tile_sharing.present_tiles(self.reader, tree) if name in self.replaced else None
            if any(True for _ in leaves(tree)) or (isinstance(tree, StructParts) and any(True for _ in arrays(tree))):
                yield name, tree
        for key, held in self.before.cells.items():
            if self.changes_tiles or not is_tile_cell(key):
                yield key, held

    def entered(self, params: list[ir.Value]) -> State:
        """The state at the start of a turn, its carried leaves replaced by `params`."""
        state, values = self.before.copy(), iter(params)
        for name, tree in self.before.names.items():
            if isinstance(tree, Guarded) and name in self.rebound | self.updated:
                state.names[name] = Unusable(tree.error)
            elif name in self.rebound and not isinstance(tree, Unusable) and not has_shown(tree):
                state.names[name] = Unusable(lambda at, name=name, tree=tree: self.changes_from(name, tree, at))
        for name, tree in self.carried:
            bindings(state, name)[name] = rebuild(tree, values)
        state.names.update(FRESH)
        state.names["$loop"] = self
        return state

    # ---- names that a turn may find assigned by a turn before

    def starts(self, name: str) -> bool:
        """True for a name that is assigned in the body, and nowhere before the loop."""
        return name in self.rebound and name not in self.before.names

    def with_earlier(self, name: str, x: Guarded) -> Guarded:
        """The value of a name: that of this turn if assigned in it, else the one at the end of the turn before."""
        if name not in self.earlier:
            had = _slot(self.reader.value(False))
            self.earlier[name] = had, x.tree, [_slot(v) for v in leaves(x.tree)]
        had, tree, slots = self.earlier[name]
        kept = rebuild(tree, iter([slot.param for slot in slots]))
        if not alike(tree, x.tree):
            raise loop_type(name, describe(x.tree), describe(tree), self.where)
        value = self.reader.branch(self.node, x.flag, lambda: x.tree, lambda: kept)
        return Guarded(x.error, self.reader.branch(self.node, x.flag, lambda: True, lambda: had.param), value, True)

    def hand_on(self, name: str) -> None:
        """At the end of a turn: carry a name, first assigned in the loop, into the next turn."""
        found = tile_sharing.present_tiles(self.reader, self.reader.state.names[name])
        had, _, slots = self.earlier[name]
        if isinstance(found, Unusable) and not isinstance(found, Guarded):
            raise found.error(None)
        end = self.with_earlier(name, found if isinstance(found, Guarded) else Guarded(self.unbound(name), True, found))
        had.next = self.reader.value(end.flag)
        for slot, value in zip(slots, leaves(end.tree), strict=True):
            slot.next = value

    def unbound(self, name: str) -> Callable[[Any], Exception]:
        return lambda at: maybe_unbound(name, self.where, at)

    # ---- the end of a turn

    def close(self) -> None:
        """At the end of the body: set the next value of each carried leaf, and the bindings after the loop."""
        for name in self.earlier:
            self.hand_on(name)
        end = self.reader.state
        go, returns = end.names["$go"], end.names["$return"]
        self.breaks, self.returns = go is not True, returns is not False
        self.go = self.reader.value(go) if self.breaks else None
        for name, tree in self.carried:
            after = tile_sharing.present_tiles(self.reader, bindings(end, name).get(name))
            conformed = as_carried(self.reader, after, tree) if name in self.wider else None
            after = movable(self.reader, after) if conformed is None else conformed
            if alike(tree, after):
                for slot, value in zip(self.groups[name], leaves(after), strict=True):
                    slot.next = value
            else:
                again = self.read_again(name, tree, end)
                if again or (self.read_later(name) and not self.runs):
                    self.widen(name, tree, after)
                self.retype(name, tree, after, again)
        self.slots = [slot for group in self.groups.values() for slot in group]
        self.slots += [slot for had, _, slots in self.earlier.values() for slot in (had, *slots)]
        for name, tree in end.names.items():
            if not name.startswith("$") and name not in self.trees and name not in self.earlier:
                self.bind_new(name, tile_sharing.shown_after(self.reader, self.before.names.get(name), tree, self.runs))
        tile_sharing.refuse_changed_cells(self.reader, self.before.cells, self.trees)
        if self.unsure and isinstance(self.node, ast.While):
            self.add("$turned", self.reader.value(True))
        if self.returns:
            self.add("$return", self.reader.value(returns))
            self.add("$value", self.reader.materialised(end.names.get("$value"), ""))

    def read_again(self, name: str, tree: Meaning, end: State) -> bool:
        """True if a turn may read the value of a carried name from the turn before."""
        if name in self.wider:  # as it has turned out already
            return True
        mine = {id(slot.param) for slot in self.groups[name]} | {id(slot.test) for slot in self.groups[name]}
        others = [v for key, other in end.names.items() if key != name for v in leaves(other)]
        if mine & {id(v) for v in (*ir.used(self.body), *ir.used(self.test), *others)}:
            return True
        return isinstance(tree, StructParts) and any(arrays(tree)) and not assigned_first(name, self.node.body)

    def read_later(self, name: str) -> bool:
        """True if a name is read after the loop, as far as the text tells."""
        text = self.reader.frame.source.tree
        return read_after(text, name, self.node) or any(name in wider for wider in self.reader.widened[:-1])

    def widen(self, name: str, old: Meaning, new: Meaning) -> None:
        """Raises Wider if the loop can carry a name as a choice among more arrays."""
        pattern = union(old, new)
        if pattern is None or local_keys(pattern) - self.before.cells.keys():
            return
        if name not in self.wider or options_in(pattern) > options_in(self.wider[name]):
            raise Wider(self.wider, name, pattern, array_choice(name, self.where, None))

    def changes_from(self, name: str, tree: Meaning, at: Where | None) -> KernelError:
        """The error where a turn reads a name that may be one array or another: `Wider`, or a refusal."""
        refusal = array_choice(name, self.where, at)
        return Wider(self.wider, name, among_itself(tree), refusal) if is_array(tree) else refusal

    def retype(self, name: str, old: Meaning, new: Meaning, again: bool) -> None:
        """A carried name ends a turn as another type or array: raise if it is read `again`, else stop carrying it."""
        error = new.error if isinstance(new, Unusable) else None
        if is_array(old) or is_array(new) or (isinstance(old, StructParts) and describe(old) == describe(new)):
            error = error or (lambda at: array_choice(name, self.where, at))
        error = error or (lambda at: loop_type(name, describe(old), describe(new), at or self.where))
        if again:
            raise error(None)
        del self.groups[name]
        if self.runs and not isinstance(new, Unusable):
            self.add(name, new)
        else:
            self.lost[name] = Unusable(error)

    def bind_new(self, name: str, tree: Meaning) -> None:
        """Bind a name first assigned in the body: usable after the loop only where the body has run."""
        old = self.before.names.get(name)
        if old is tree or (is_array(tree) and same_array(old, tree)):
            return
        left = is_array(old) and name in self.rebound and (isinstance(tree, Unusable) or not self.runs)
        if left and self.read_later(name):
            raise self.changes_from(name, old, None)
        if left:
            self.lost[name] = Unusable(lambda at: array_choice(name, self.where, at))
        elif isinstance(tree, Unusable):  # of a guarded name flag and value are values of the last turn
            self.lost[name] = Unusable(tree.error) if isinstance(tree, Guarded) else tree
        elif not self.reader.read_outside(name, self.node):
            self.lost[name] = Unusable(self.unbound(name))
        else:
            self.add(name, tree)
            self.unsure.update(() if self.runs else (name,))

    def turned(self) -> ir.Value:
        """The condition (bool value) that the loop made at least one turn."""
        if not self.bounds:
            (slot,) = self.new["$turned"][1]
            return slot.out or slot.init
        start, stop, step = self.bounds
        if (by := static_int(step)) is not None:
            return ops.compare("<" if by > 0 else ">", start, stop)
        return ops.compare(
            ">", ops.convert(start.type, memory.TRIPS(start, stop, step)), self.reader.typed(0, start.type)
        )

    def add(self, name: str, tree: Meaning) -> None:
        """Add a loop result that no turn reads: its initial value is a dummy."""
        self.new[name] = tree, [_slot(v, v) for v in leaves(tree)]
        for key in local_keys(tree) - self.before.cells.keys() - self.new.keys():
            self.add(key, self.reader.state.cells[key])

    # ---- after the loop

    def write(self, row: Row, bounds: tuple[ir.Value, ...], regions: tuple[ir.Region, ...], trips: int | None) -> None:
        """Append the loop statement and bind the names to its results."""
        added = [slot for _, slots in self.new.values() for slot in slots]
        self.bounds = bounds
        self.reader.merges += 1
        for slot in self.slots:
            tile_sharing.note_merge(self.reader, self.merge, slot.param, slot.next)
        if len(self.reader.changes) > self.changes:
            self.reader.made_in[self.merge] = {v for s in ir.walk(self.body) for v in s.outs}
            tile_sharing.recheck_shared(self.reader, self.changes)
        for slot in (*added, *[slot for had, _, slots in self.earlier.values() for slot in (had, *slots)]):
            slot.init = self.reader.zero(slot.next.type)
        self.prune(regions)
        kept = [slot for slot in [*self.slots, *added] if slot.out is None]
        shift = len(regions[-1].params) - len(self.slots)
        self.body.params = [*self.body.params[:shift], *[slot.param for slot in kept]]
        self.body.results = tuple(([self.go] if self.breaks else []) + [slot.next for slot in kept])  # type: ignore[list-item]
        if len(regions) == 2:
            self.test.params = [slot.test for slot in kept]
        loop = control.Loop(breaks=self.breaks, trips=trips)
        with self.reader.at(self.node):
            stmt = self.reader.builder.append(
                row, (*bounds, *[slot.init for slot in kept]), [slot.next.type for slot in kept], regions, loop
            )
        for slot, out in zip(kept, stmt.outs, strict=True):
            slot.out, out.name = out, slot.param.name
            first = slot.next if slot in added else slot.init
            tile_sharing.note_merge(self.reader, self.reader.merges, out, first, slot.next)
        self.leave()

    def prune(self, regions: tuple[ir.Region, ...]) -> None:
        """Drop loop-invariant carried leaves: their uses read the value from before the loop."""
        while True:
            same = [s for s in self.slots if s.out is None and s.next is s.param]
            if not same:
                return
            new = {id(v): s.init for s in same for v in (s.param, s.test)}
            for slot in same:
                slot.out = slot.init
            for region in regions:
                substitute(region, new)
            for slot in [*self.slots, *[s for _, slots in self.new.values() for s in slots]]:
                slot.next = new.get(id(slot.next), slot.next)
            if self.go is not None:
                self.go = new.get(id(self.go), self.go)

    def leave(self) -> None:
        """The state after the loop."""
        reader, state = self.reader, self.before.copy()
        reader.builder.epoch += 1
        groups = {name: (self.trees[name], group) for name, group in self.groups.items()} | self.new
        for name, (tree, slots) in groups.items():
            bindings(state, name)[name] = rebuild(tree, iter([slot.out or slot.init for slot in slots]))
        state.names.update(self.lost)
        for name, (had, tree, slots) in self.earlier.items():
            found = rebuild(tree, iter([slot.out or slot.init for slot in slots]))
            state.names[name] = Guarded(self.unbound(name), had.out or had.init, found, True)
        for name in self.unsure:
            state.names[name] = Guarded(self.unbound(name), self.turned(), state.names[name], True)
        state.names.pop("$turned", None)
        reader.state = state
        if self.endless and not has_break(self.node.body):
            if not self.returns:
                text = "this loop never ends"
                why = "`while True` without `break` or `return`."
                raise KernelError(text, slug="endless-loop", where=self.where, why=why, instead="if ...: break")
            state.names.update({"$stop": True, "$go": False, "$return": True})
        elif self.returns:
            left = state.names["$return"]
            state.names["$stop"], state.names["$go"] = left, ops.unary("not", left)


def bindings(state: State, name: str) -> dict[str, Any]:
    return state.cells if name.startswith("[]") else state.names


def alike(a: Meaning, b: Meaning) -> bool:
    """True for trees of the same structure, types and arrays, as a loop can carry them."""
    if isinstance(a, ir.Value):
        return isinstance(b, ir.Value) and a.type == b.type
    if isinstance(a, StructParts):
        return (
            isinstance(b, StructParts) and a.type == b.type and all(alike(a.fields[k], b.fields[k]) for k in a.fields)
        )
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(alike, a, b))
    return a is b or same_array(a, b, _same_kind)


def _same_kind(a: Meaning, b: Meaning) -> bool:
    """True for places that differ in IR values only."""
    return a.type == b.type if isinstance(a, ir.Value) and isinstance(b, ir.Value) else same_constant(a, b)


def substitute(region: ir.Region, new: dict[int, ir.Value]) -> None:
    """Replace values by others, by id, wherever a region reads them."""
    region.results = tuple(new.get(id(v), v) for v in region.results)
    for stmt in region.body:
        stmt.args = tuple(new.get(id(v), v) for v in stmt.args)
        for inner in stmt.regions:
            substitute(inner, new)


def loop_type(name: str, before: str, after: str, at: Where) -> KernelError:
    text = f"`{name}` changes type inside the loop: {before} before it, {after} after one turn"
    why = "A value that a loop carries keeps one type."
    return KernelError(text, slug="loop-type", where=at, why=why, instead=f"{name} = {after}(...), before the loop")
