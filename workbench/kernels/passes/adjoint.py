"""The adjoint of a kernel, IR -> IR: replay what the thread did, then walk its statements backwards.

Reverse sweep: every row's adjoint rule, last statement first; a read adds to a shadow, a store takes from it what it
overwrote (Griewank & Walther, Evaluating Derivatives, 2nd ed. 2008, sections 3.2 and 4.3). A reversed loop enters its
turns again, last first, replays one and reverses it; adjoints of outer values are carried through regions, so there is
no mutable state but memory. Everything built here is then pruned: what no gradient needs is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...errors import KernelError
from ..ir import Function, Region, Role, Stmt, Value, constant, root, walk
from ..ops import control as c, memory as mem, tiles
from ..ops.composite import all_zero
from ..ops.row import ROWS, plus
from ..row import NO_GRADIENT
from ..types import Array, Tile, int32, shadow_type
from . import simplify, singular
from .derivative import EXTREMES, Derivative, Derived
from .named import named_pass
from .replay import Groups
from .ties import ties


@dataclass(frozen=True)
class Reverse(Derived):
    """An adjoint, with shadows beside the active parameters.

    `returned`: the atomic whose result carries a derivative; that is exact for one thread only. `count`: adds up the
    threads' part of the ties.
    """

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


@named_pass("adjoint")
def adjoint(function: Function, active: frozenset[str], groups: Groups = ()) -> Reverse:
    """The adjoint of `function` for the parameters named in `active`.

    `groups` are sets of array parameters that share memory at this launch; all others are taken as disjoint.
    Raises KernelError where an operation on an active path has no derivative.
    """
    forwarded = simplify.forward(function, groups)
    reverse = Adjoint(forwarded, active, groups).reversed()
    if not reverse.extremal:
        return reverse
    count = ties(forwarded, active, groups)
    needs, private = reverse.needs | count.needs, reverse.private | count.private
    return replace(reverse, needs=needs, private=private, count=count.function)


class Adjoint(Derivative):
    """Builder of an adjoint. `known`: primal value -> its replay; `adjoints`: primal value -> its adjoint so far."""

    def reversed(self) -> Reverse:
        """The simplified adjoint, with its needs of the tape."""
        returned = next((s for s in self.reused if s.row.adds and s.outs[0] in self.varied), None)
        return Reverse(**vars(self.derived(self.written_out())), returned=returned)

    def written_out(self) -> Function:
        """The adjoint with every statement left in."""
        known = self.parameters(Role.SHADOW)
        body = self.builder.region
        self.slopes = singular.LoopSlopes(self.builder, self.active)
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
                if p.stmt is None and (Role.SHADOW, p.name) in self.companions:
                    self.builder.emit(mem.ACCUMULATE, self.shadow(p), constant(int32, 0), g)
        body.body[:0] = [v.stmt for v in self.stacks.values() if v.stmt]
        return self.named("adjoint")

    # ---- small pieces

    def shadow(self, primal: Value) -> Value:
        return self.beside(Role.SHADOW, primal)

    def add(self, adjoints: dict, value: Value, g: Value | None) -> None:
        """Add a contribution g (None: nothing) to the adjoint of a primal value, if this is varied."""
        if g is not None and value in self.varied:
            adjoints[value] = plus(adjoints.get(value), g)

    # ---- values

    def reverse(self, region: Region, known: dict, adjoints: dict) -> None:
        for stmt in reversed(region.body):
            with self.builder.at(stmt.where, stmt):
                if stmt.row in _CONSUMING and not self.is_active(stmt.args[0]):
                    self.assert_inactive(stmt)
                else:
                    getattr(self, _REVERSE.get(stmt.row, "reverse_value"))(stmt, known, adjoints)

    def reverse_value(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        if not stmt.outs or stmt.outs[0] not in adjoints:
            return
        g = adjoints.pop(stmt.outs[0])
        if stmt.row.adjoint is NO_GRADIENT:
            text = f"`{stmt.row.name}` has no derivative, and its result reaches an array whose gradient is asked for."
            why = "A wrong or zero gradient would be silent; so this is refused."
            instead = "a differentiable expression, or keep the value out of arrays that need a gradient"
            raise KernelError(text, slug="no-derivative", where=stmt.where, why=why, instead=instead)
        if stmt.row.adjoint is None:
            return
        stmt = self.rule(stmt)
        row = stmt.row
        operands = [self.widened(known[a]) for a in stmt.args]
        y = self.widened(known[stmt.outs[0]])
        grads = row.adjoint(g, y, *operands, **row.extra(stmt.attr))
        sure = True
        if row in singular.LIMITS:
            root, v = known[stmt.outs[0]], known[stmt.args[0]]
            limit, sure = singular.slope_beside_zero(self.builder, row, g, root, v, grads[0])
            grads = (limit,)
        if row.singular is not None:
            self.claim_singular(stmt, g, row.singular.met(g, y, *operands), known, sure)
        for a, d in zip(stmt.args, grads, strict=True):
            self.add(adjoints, a, d)

    def claim_singular(self, stmt: Stmt, g: Value, met: Value, known: dict, sure: bool) -> None:
        """Claim that no adjoint arrives where there is no derivative, nor one that is 0 at that very place only."""
        singular_at, both = stmt.row.singular, ROWS["logical_and"]
        assert singular_at is not None
        if not sure:
            return self.claim(singular_at, met)
        arrives, nothing = both(met, ROWS["logical_not"](all_zero(g))), both(met, all_zero(g))
        surely, unsure = (None, None) if singular_at.refused else self.hidden(stmt, g, nothing, known)
        self.claim(singular_at, ROWS["logical_or"](arrives, surely) if surely else arrives)
        if unsure:
            self.claim(singular_at, unsure, sure=False)

    def hidden(self, stmt: Stmt, g: Value, here: Value, known: dict) -> list:
        """The tests for a hidden slope `here`, sure and not; in a branch beside loops, or if C calls its library."""
        y, args = known[stmt.outs[0]], [known[a] for a in stmt.args]
        found: list[Value | None] = []

        def write() -> list:
            found[:] = singular.hidden_slopes(self.slopes, stmt.row, g, y, args)
            return found

        if not self.slopes.loops and not any(s.row.library for s in walk(self.primal.body)):
            return [f and ROWS["logical_and"](here, f) for f in write()]
        made = singular.in_branch(self.builder, here, write)
        return [f and made.pop(0) for f in found]

    # ---- memory

    def reverse_nothing(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        """Nothing flows through this statement."""

    def reverse_load(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        g = adjoints.pop(stmt.outs[0], None)
        if g is not None:
            self.builder.emit(mem.ACCUMULATE, self.shadow(stmt.args[0]), *self.indices(stmt, known), g)

    def reverse_store(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        """A store consumes the adjoint of what it overwrote: read it, and clear it."""
        shadow, indices = self.shadow(stmt.args[0]), self.indices(stmt, known)
        g = self.builder.emit(mem.LOAD, shadow, *indices)
        self.builder.emit(mem.STORE, shadow, *indices, self.zero(g.type))
        self.add(adjoints, stmt.args[-1], g)

    def reverse_atomic_add(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        shadow, indices = self.shadow(stmt.args[0]), self.indices(stmt, known)
        if stmt.args[-1] in self.varied:
            g = self.builder.emit(mem.LOAD, shadow, *indices)
            self.add(adjoints, stmt.args[-1], ROWS["neg"](g) if stmt.row is mem.ATOMIC_SUB else g)
        old = adjoints.pop(stmt.outs[0], None)
        if old is not None:
            self.builder.emit(mem.ACCUMULATE, shadow, *indices, old)

    def reverse_atomic_extreme(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        """The adjoint goes to those whose value the cell held after the launch, in equal shares."""
        if root(stmt.args[0]).name in self.mixed:
            self.reverse_exchange(stmt, known, adjoints)
            return
        g = self.builder.emit(mem.LOAD, self.shadow(stmt.args[0]), *self.indices(stmt, known))
        self.add(adjoints, stmt.args[-1], self.share(stmt, known, g))

    def reverse_exchange(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        """Emit claims that no adjoint arrives, neither for the cell nor for the returned old value."""
        claim, old = self.without_derivative(stmt), adjoints.pop(stmt.outs[0], None)
        if claim is None:
            return
        g = self.builder.emit(mem.LOAD, self.shadow(stmt.args[0]), *self.indices(stmt, known))
        for adjoint in (g, *([] if old is None else [old])):
            self.builder.emit(c.ASSERT, ROWS["eq"](adjoint, self.zero(adjoint.type)), attr=claim)

    # ---- control flow

    def has_effect(self, stmt: Stmt) -> bool:
        """True if reversing this statement touches a shadow even if no result of it has an adjoint."""
        return any(s.row.writes and self.is_active(s.args[0]) for r in stmt.regions for s in walk(r))

    def reverse_if(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        gs = [adjoints.pop(o, None) for o in stmt.outs]
        if not any(gs) and not self.has_effect(stmt):
            return
        regions, found = [], []
        read = dict.fromkeys(t for r in stmt.regions for t in self.gathered(r))  # a tile that both sides read: once
        carried = {t: adjoints.pop(t, None) or self.zero(shadow_type(t.type)) for t in read}
        for region in stmt.regions:
            new, inner = Region(), dict(carried)
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

    # ---- funcs with an adjoint of their own

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
        env.update(zip(custom.grad.params, [*self.operands(stmt, known), *shadows, *seeds], strict=True))
        self.inline(custom.grad, env)
        for k, result in zip(custom.values, custom.grad.results, strict=True):
            found = env[result]
            assert found is not None
            self.add(adjoints, stmt.args[k], self.widened(found))

    def refuse_overwritten(self, stmt: Stmt, grad: Region) -> None:
        """Raise KernelError if a func_grad reads memory that the kernel overwrites: it runs after the kernel."""
        for s in walk(grad):
            array = root(s.args[0]) if s.row is mem.LOAD else None
            if array is not None and array.companion is None and self.group(array.name) & self.written:
                name = array.name
                text = f"the func_grad of `{stmt.attr.func.key}` reads {name!r}, which this kernel also writes."
                why = "It would read what was written later."
                instead = "the value as an argument of the func"
                raise KernelError(text, slug="grad-reads-written", where=s.where, why=why, instead=instead)

    def reverse_replayed(self, stmt: Stmt, known: dict, adjoints: dict, gs: list) -> None:
        region = self.again(stmt)
        if region is stmt.attr.replay and self.has_effect(stmt):
            text = f"`{stmt.attr.func.key}` writes to arrays with gradients; func_replay does not tell their adjoint."
            raise KernelError(text, slug="replay-effect", where=stmt.where, instead="a func_grad for it too")
        for result, g in zip(region.results, gs, strict=True):
            self.add(adjoints, result, g)
        self.reverse(region, known, adjoints)
        for p, a in zip(region.params, stmt.args, strict=True):
            self.add(adjoints, a, adjoints.pop(p, None))

    def inline(self, region: Region, env: dict) -> None:
        """Inline a region's statements, effects included; those on an array without a shadow are dropped."""
        for stmt in region.body:
            args = [env[a] for a in stmt.args]
            if None in args:
                env.update((o, None if isinstance(o.type, Array) else self.zero(o.type)) for o in stmt.outs)
                continue
            inner = tuple([self.builder.like(r, env, self.inline)[0] for r in stmt.regions])
            with self.builder.at(stmt.where, self.builder.of):
                made = self.builder.append(stmt.row, args, [o.type for o in stmt.outs], inner, stmt.attr)
            env.update(zip(stmt.outs, made.outs, strict=True))

    # ---- tiles

    def reverse_get(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        """Add the adjoint of an element to that of its tile in place, without a tile of zeros per element."""
        g = adjoints.pop(stmt.outs[0], None)
        tile = stmt.args[0]
        if g is None or tile not in self.varied:
            return
        total = adjoints.get(tile)
        if total is None:
            total = self.zero(shadow_type(tile.type))
        adjoints[tile] = ROWS["tile_add_at"](total, *[known[i] for i in stmt.args[1:]], g)

    def reverse_each(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        """Element by element: the adjoint of an `each` is an `each`; what all elements share gets the sum."""
        pairs = zip(stmt.outs, stmt.regions[0].results, strict=True)
        gs = [(r, g) for o, r in pairs if (g := adjoints.pop(o, None)) is not None]
        if not gs and not self.has_effect(stmt):
            return
        due: list[Value] = []

        def write(region: Region, scope: dict) -> list[Value]:
            role, self.builder.role, self.quiet = self.builder.role, "replay", True
            self.replay(region, scope, True)
            self.builder.role, self.quiet = role, False
            inner: dict[Value, Value] = {}
            for k, (r, _) in enumerate(gs):
                self.add(inner, r, scope["g", k])
            self.reverse(region, scope, inner)
            elements = dict(zip(region.params[len(stmt.attr.shape) :], stmt.args, strict=True))
            due.extend(elements.get(v, v) for v in inner)
            return list(inner.values())

        back = replace(stmt.attr, order=-stmt.attr.order)
        made = self.each(stmt, known, [(("g", k), g) for k, (_, g) in enumerate(gs)], write, back)
        for v, out in zip(due, made.outs, strict=True):
            self.add(adjoints, v, out if isinstance(v.type, Tile) else ROWS["tile_total"](out))

    def gathered(self, body: Region) -> list[Value]:
        """Outer tiles whose elements a body reads: their adjoints are carried through it, not made anew per turn."""
        found = dict.fromkeys(s.args[0] for s in walk(body) if s.row is tiles.GET and s.args[0] in self.varied)
        inside = {o for s in walk(body) for o in s.outs} | {p for s in walk(body) for r in s.regions for p in r.params}
        return [t for t in found if t not in inside and t not in body.params]

    # ---- loops

    def reverse_loop(self, stmt: Stmt, known: dict, adjoints: dict) -> None:
        """Turn by turn, last first: pop what the turn started from, replay it, reverse it."""
        gs = [adjoints.pop(o, None) for o in stmt.outs]
        if not any(gs) and not self.has_effect(stmt):
            return
        self.refuse_effect_in_test(stmt)
        body = stmt.regions[-1]
        carried = [(g, x) for g, x in zip(gs, c.carried(stmt), strict=True) if x.param in self.varied]
        new = Region([Value(int32, "turn")])
        new.params += [Value(shadow_type(x.param.type), f"d_{x.param.name}") for _, x in carried]
        init = [g if g is not None else self.zero(shadow_type(x.param.type)) for g, x in carried]
        inner: dict[Value, Value] = {}
        outer = self.gathered(body)
        sums = [Value(shadow_type(v.type), f"d_{v.name}") for v in outer]
        inner.update(zip(outer, sums, strict=True))
        with self.builder.inside(new):
            scope = self.reenter(stmt, known, new.params[0])
            for _, x in carried:
                self.slopes.begin(scope[x.param], x.result)
            self.slopes.loops.update((p, new) for p in new.params[1:] if not isinstance(p.type, Tile))
            mark = scope.get((stmt, "mark"))
            self.builder.role = "replay"
            self.replay(body, scope, True)
            self.builder.role = "adjoint"
            for (_, x), g in zip(carried, new.params[1:], strict=True):
                self.add(inner, x.result, g)
            self.reverse(body, scope, inner)
            if mark is not None:
                self.builder.emit(mem.ROLLBACK, mark)
            after = [inner.pop(x.param, None) or self.zero(shadow_type(x.param.type)) for _, x in carried]
            after += [inner[v] for v in outer]
            others = [v for v in inner if v not in outer]
            more = [Value(shadow_type(v.type), f"d_{v.name}") for v in others]
            after += [ROWS["add"](s, inner[v]) for s, v in zip(more, others, strict=True)]
            outer, sums = [*outer, *others], [*sums, *more]
        new.params += sums
        new.results = tuple(after)
        init += [self.zero(s.type) for s in sums]
        last = ROWS["sub"](known[(stmt, "trips")], constant(int32, 1))
        bounds = [last, constant(int32, -1), constant(int32, -1)]
        types = [v.type for v in init]
        loop = c.Loop(breaks=False, trips=None if stmt.attr.breaks else stmt.attr.trips)
        made = self.builder.append(c.FOR, [*bounds, *init], types, (new,), attr=loop)
        for v, out in zip([*(x.init for _, x in carried), *outer], made.outs, strict=True):
            self.add(adjoints, v, out)
        self.slopes.close(made, self.builder.region)

    def refuse_effect_in_test(self, stmt: Stmt) -> None:
        """Raise KernelError if the condition of a `while` writes to active memory, as only bodies are reversed."""
        for s in walk(stmt.regions[0]) if stmt.row is c.WHILE else ():
            if s.row.writes and self.is_active(s.args[0]):
                text = f"the condition of `while` writes to {root(s.args[0]).name!r}, whose gradient is asked for."
                why = "The reverse pass repeats the body of a loop only."
                instead = "while True: ..., with the write in the body and a `break`"
                raise KernelError(text, slug="while-effect", where=s.where, why=why, instead=instead)


_CONSUMING = (mem.STORE, mem.ATOMIC_ADD, mem.ATOMIC_SUB, *EXTREMES)  # rows that read the adjoint of a cell
_REVERSE = {
    c.IF: "reverse_if",
    c.FOR: "reverse_loop",
    c.WHILE: "reverse_loop",
    c.CALL: "reverse_call",
    c.EACH: "reverse_each",
    tiles.GET: "reverse_get",
    c.PRINTF: "reverse_nothing",
    c.ASSERT: "reverse_nothing",
    mem.LOAD: "reverse_load",
    mem.STORE: "reverse_store",
    mem.ATOMIC_ADD: "reverse_atomic_add",
    mem.ATOMIC_SUB: "reverse_atomic_add",
    **dict.fromkeys(EXTREMES, "reverse_atomic_extreme"),
    mem.ATOMIC_EXCH: "reverse_exchange",
    mem.ATOMIC_CAS: "reverse_exchange",
}
