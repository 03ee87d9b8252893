"""The tangent of a kernel, IR -> IR: forward mode, from the same rows and with the same needs as the adjoint.

The program repeats what the thread did, as `adjoint` does (`replay`), and carries a tangent beside every value that has
one; stores, loads and atomics act on the memory of tangents (Griewank & Walther, Evaluating Derivatives, 2nd ed. 2008,
section 3.1). So wherever the tape can walk backwards it can also walk forwards: both read the same bytes.
It is the exact transpose of the adjoint: same active paths, exact zeros stay zeros, ties of extremes are shared.
One thing differs: a func with an adjoint of its own is differentiated itself, which is what finds a wrong func_grad.
"""

from __future__ import annotations

from functools import reduce

from ...errors import KernelError
from ..analysis import activity
from ..ir import Function, Region, Role, Stmt, Value, constant, enter, walk, with_types
from ..ops import control as c, memory as mem
from ..ops.composite import all_zero
from ..ops.row import ROWS, like, plus
from ..ops.scalar import ABS, BENT, MUL
from ..ops.vectors import LENGTH, NORMALIZE, components
from ..row import NO_GRADIENT, Effect, Row
from ..types import Array, Composite, Scalar, int32, shadow_type
from . import simplify
from .derivative import EXTREMES, Derivative, Derived
from .named import named_pass
from .prune import prune
from .replay import Groups
from .singular import LIMITS


@named_pass("tangent")
def tangent(function: Function, active: frozenset[str], groups: Groups = ()) -> Derived:
    """The tangent of `function` for the parameters named in `active`; `groups` as for the adjoint.

    Raises KernelError where an operation on an active path has no derivative.
    """
    return _Tangent(simplify.forward(function, groups), active, groups).build_tangent()


class _Tangent(Derivative):
    """Tangents live in `known` under the key ("tangent", primal value), so regions scope them like values."""

    repeats = "replay"  # the role of repeated statements
    adds = mem.ACCUMULATE
    walks_back = False

    def __init__(self, primal: Function, active: frozenset[str], groups: Groups):
        super().__init__(primal, active, groups)
        self.useful = activity.useful(primal, active)

    def build_tangent(self) -> Derived:
        self.write()
        return self.derived(self.named("tangent"))

    def write(self) -> None:
        known = self.parameters(Role.TANGENT)
        with self.builder.open():
            self.builder.role = "tangent"
            for p in self.primal.params:
                if p.name in self.active and not isinstance(p.type, Array):
                    memory = self.beside(Role.TANGENT, p)
                    known["tangent", p] = self.builder.emit(mem.LOAD, memory, constant(int32, 0))
            self.builder.role = self.repeats
            self.replay(self.primal.body, known, False)

    # ---- small pieces

    def tangent_of(self, value: Value, known: dict) -> Value | None:
        return known.get(("tangent", value))

    def tangent_or_zero(self, value: Value, known: dict) -> Value:
        found = self.tangent_of(value, known)
        return self.zero(shadow_type(value.type)) if found is None else found

    def tangent_at(self, stmt: Stmt, known: dict) -> list[Value]:
        """The tangent's memory and the indices of an access."""
        return [self.beside(Role.TANGENT, stmt.args[0]), *self.indices(stmt, known)]

    # ---- statements

    def replay_value(self, stmt: Stmt, known: dict, record: bool) -> None:
        super().replay_value(stmt, known, record)
        moved = [o for o in stmt.outs if o in self.varied]
        if not moved:
            return
        self.builder.role = "tangent"
        if stmt.row is mem.LOAD:
            known["tangent", moved[0]] = self.builder.emit(mem.LOAD, *self.tangent_at(stmt, known))
        elif stmt.row.effect is Effect.PURE:
            made = self.derive(stmt, known)
            if made is not None:
                made.name = made.name or (f"t_{moved[0].name}" if moved[0].name else "")
                known["tangent", moved[0]] = made
        self.builder.role = self.repeats

    def derive(self, stmt: Stmt, known: dict) -> Value | None:
        """The row's tangent rule: all operands at once where it is linear, else one by one."""
        if stmt.row.adjoint is NO_GRADIENT:
            self.refuse_underivable(stmt)
            return None
        stmt = self.rule(stmt)
        row = stmt.row
        ts = [self.tangent_of(a, known) for a in stmt.args]
        if row.tangent is None or not any(ts):
            return None
        y, *operands = (self.widened(known[v]) for v in (*stmt.outs, *stmt.args))
        extra = row.extra(with_types(stmt.attr, shadow_type))
        if row.linear:
            return self.moved(row, ts, (y, *operands), extra)
        total = None
        for j, t in enumerate(ts):
            total = plus(total, None if t is None else self.part(row, stmt, j, t, (y, *operands), extra))
        if row.singular is not None and not row.singular.refused:
            rest = reduce(ROWS["logical_and"], [all_zero(t) for t in ts if t is not None])
            met = row.singular.met(None, y, *operands)
            self.claim(row.singular, ROWS["logical_and"](met, ROWS["logical_not"](rest)), self.sure_of(row))
            if row not in (LENGTH, NORMALIZE, BENT) and any(a.stmt and a.stmt.row is not mem.LOAD for a in stmt.args):
                self.claim(row.singular, ROWS["logical_and"](met, rest), sure=False)  # as of a sum of squares
        return total

    def sure_of(self, row: Row) -> bool:
        """True if a tangent that comes to this row where it has no derivative is said unasked."""
        return row in LIMITS

    def part(self, row: Row, stmt: Stmt, j: int, t: Value, values: tuple, extra: dict) -> Value | None:
        """The contribution of operand j, or None: exactly 0, not 0 * inf, where its tangent or its partial is 0."""
        alone: list[Value | None] = [None] * len(stmt.args)
        d = self.moved(row, [*alone[:j], t, *alone[j + 1 :]], values, extra)
        if d is None or row.bilinear or t.type != d.type or not (row.elementwise or isinstance(t.type, Scalar)):
            return d
        slope = self.moved(row, [*alone[:j], like(t, t.type, 1), *alone[j + 1 :]], values, extra)
        return ROWS["gate"](slope, d)

    def moved(self, row: Row, ts: list, values: tuple, extra: dict) -> Value | None:
        assert row.tangent is not None
        return row.tangent(ts, *values, **extra)

    def refuse_underivable(self, stmt: Stmt) -> None:
        if self.useful.isdisjoint(stmt.outs):
            return
        text = f"`{stmt.row.name}` has no derivative, and its result reaches an array whose tangent is asked for."
        why = "A wrong or zero tangent would be silent; so this is refused."
        instead = "a differentiable expression, or keep the value out of arrays that need a gradient"
        raise KernelError(text, slug="no-derivative", where=stmt.where, why=why, instead=instead)

    def replay_store(self, stmt: Stmt, known: dict, record: bool) -> None:
        self.repeat_store(stmt, known)
        if not self.is_active(stmt.args[0]):
            self.assert_inactive(stmt)
            return
        self.builder.role = "tangent"
        self.builder.emit(mem.STORE, *self.tangent_at(stmt, known), self.tangent_or_zero(stmt.args[-1], known))
        self.builder.role = self.repeats

    def replay_atomic(self, stmt: Stmt, known: dict, record: bool) -> None:
        told = self.tangent_before(stmt, known)
        self.repeat_atomic(stmt, known)
        if not self.is_active(stmt.args[0]):
            self.assert_inactive(stmt)
            return
        if (refusal := self.without_derivative(stmt)) is not None:
            raise KernelError(
                refusal.text, slug=refusal.slug, where=stmt.where, why=refusal.why, instead=refusal.instead
            )
        self.builder.role = "tangent"
        if told is not None:
            known["tangent", stmt.outs[0]] = told
        t = self.tangent_of(stmt.args[-1], known)
        if t is not None:
            if stmt.row in EXTREMES:
                t = self.share(stmt, known, t)
            t = ROWS["neg"](t) if stmt.row is mem.ATOMIC_SUB else t
            self.builder.emit(self.adds, *self.tangent_at(stmt, known), t)
        self.builder.role = self.repeats

    def tangent_before(self, stmt: Stmt, known: dict) -> Value | None:
        """The tangent of the old value that an atomic returns; None if that is unused or the array inactive."""
        if stmt not in self.reused or not self.is_active(stmt.args[0]):
            return None
        self.builder.role = "tangent"
        found = self.builder.emit(mem.LOAD, *self.tangent_at(stmt, known))
        self.builder.role = self.repeats
        return found

    def repeat_store(self, stmt: Stmt, known: dict) -> None:
        super().replay_store(stmt, known, False)

    def repeat_atomic(self, stmt: Stmt, known: dict) -> None:
        super().replay_atomic(stmt, known, False)

    # ---- control flow carries both

    def replay_each(self, stmt: Stmt, known: dict, record: bool) -> None:
        elements = zip(stmt.regions[0].params[len(stmt.attr.shape) :], stmt.args, strict=True)
        moved = [k for k, o in enumerate(stmt.outs) if o in self.varied]
        more: list[tuple[object, Value]] = [
            (("tangent", p), self.tangent_or_zero(a, known)) for p, a in elements if a in self.varied
        ]

        def write(region: Region, scope: dict) -> list[Value]:
            self.replay(region, scope, False)
            tangents = [self.tangent_or_zero(region.results[k], scope) for k in moved]
            return [*(scope[r] for r in region.results), *tangents]

        self.leave(stmt, moved, self.each(stmt, known, more, write).outs, known)

    def replay_flow(self, stmt: Stmt, known: dict, record: bool) -> None:
        """A branch, or a loop, which starts from the tangents too."""
        moved = [k for k, o in enumerate(stmt.outs) if o in self.varied]
        args = [known[a] for a in stmt.args]
        if stmt.row is not c.IF:
            args += [self.tangent_or_zero(x.init, known) for x in c.carried(stmt) if x.out in self.varied]
        regions = tuple(self.both(stmt, region, moved, known) for region in stmt.regions)
        types = [o.type for o in stmt.outs] + [shadow_type(stmt.outs[k].type) for k in moved]
        made = self.builder.append(stmt.row, args, types, regions, attr=stmt.attr)
        self.leave(stmt, moved, made.outs, known)

    replay_if = replay_loop = replay_flow

    def both(self, stmt: Stmt, region: Region, moved: list[int], known: dict) -> Region:
        """A region of a branch or loop with tangents of the values `moved`: as parameters of a loop, and as results.

        The test of a `while` has no such results.
        """
        loops, first = stmt.row is not c.IF, int(stmt.row is c.FOR)
        moving = [region.params[first + k] for k in moved] if loops else []
        tangents = {("tangent", p): Value(shadow_type(p.type), f"t_{p.name}", p.where) for p in moving}
        new, scope = self.builder.like(region, known | tangents, lambda r, inner: self.replay(r, inner, False))
        new.params += tangents.values()
        if not loops or region is stmt.regions[-1]:
            skip = int(loops and stmt.attr.breaks)
            with self.builder.inside(new):
                new.results += tuple([self.tangent_or_zero(region.results[skip + k], scope) for k in moved])
        return new

    def leave(self, stmt: Stmt, moved: list[int], outs: tuple[Value, ...], known: dict) -> None:
        """Bind `outs`, the results of a statement with regions and then their tangents, in `known`."""
        enter(known, stmt.outs, outs)
        for k, made in zip(moved, outs[len(stmt.outs) :], strict=True):
            made.name = f"t_{stmt.outs[k].name}" if stmt.outs[k].name else ""
            known["tangent", stmt.outs[k]] = made

    def replay_call(self, stmt: Stmt, known: dict, record: bool) -> None:
        """The func itself, whatever adjoint or replay it brings."""
        region = stmt.regions[0]
        known.update(zip(region.params, self.operands(stmt, known), strict=True))
        for p, a in zip(region.params, stmt.args, strict=True):
            known["tangent", p] = self.tangent_of(a, known)
        self.replay(region, known, False)
        for out, result in zip(stmt.outs, region.results, strict=True):
            known[out] = known[result]
            known["tangent", out] = self.tangent_of(result, known)


@named_pass("joint tangent")
def joint(function: Function, active: frozenset[str], groups: Groups = ()) -> Function:
    """The kernel itself, side effects and all, and its tangent in one: an ordinary program, to differentiate again.

    Parameters: the kernel's, then a tangent for each active one. Raises KernelError where `tangent` does, and for what
    has a rule only as a whole: extremes by atomics, and funcs with an adjoint of their own.
    """
    return Joint(_squared(simplify.forward(function, groups), groups), active, groups).build_joint()


def _squared(function: Function, groups: Groups) -> Function:
    """The same function, a copy that is ours, with x * x for abs(x) * abs(x): it has a second derivative at 0 too."""
    for s in walk(function.body):
        size = s.args[0].stmt if s.row is MUL and s.args[0] is s.args[1] else None
        if size is not None and size.row is ABS:
            s.args = size.args * 2
    return prune(function, groups)


class Joint(_Tangent):
    repeats = "primal"
    adds = mem.ATOMIC_ADD

    def sure_of(self, row: Row) -> bool:
        """True as the slope of that slope is not known, and would look like any other."""
        return True

    def rule(self, stmt: Stmt) -> Stmt:
        """The same; the second slope of `abs` at 0 is said to be a convention, where the kernel keeps to no side."""
        stmt = super().rule(stmt)
        return Stmt(BENT, stmt.args, stmt.outs) if stmt.row is ABS else stmt

    def build_joint(self) -> Function:
        for s in walk(self.primal.body):
            extreme = s.row in EXTREMES and self.is_active(s.args[0])
            if extreme or (s.row is c.CALL and s.attr.grad is not None):
                text = f"`{s.attr.func.key if s.row is c.CALL else s.row.name}` has no second derivative."
                why = "Its gradient is given by a rule, not by a program."
                instead = "hvp of a program without it"
                raise KernelError(text, slug="second-derivative", where=s.where, why=why, instead=instead)
        self.write()
        made = simplify.primal(self.named("joint"))
        for p in made.params:
            p.companion = None  # of this program they are parameters like all others
        return made

    def moved(self, row: Row, ts: list, values: tuple, extra: dict) -> Value | None:
        """A tangent that is a row without a derivative is written out, component by component."""
        made = super().moved(row, ts, values, extra)
        derived = made.stmt if made is not None else None
        if derived is None or derived.row.adjoint is not NO_GRADIENT or derived.row.expand is None:
            return made
        args = [components(a) if isinstance(a.type, Composite) else a for a in derived.args]
        out = derived.outs[0].type
        parts = derived.row.expand(*args, types=[a.type for a in derived.args], out=out)
        if not isinstance(out, Composite):
            return parts
        whole = [p if isinstance(p, Value) else constant(out.scalar, float(p)) for p in parts]
        return ROWS["construct"](*whole, attr=out)

    def repeat_store(self, stmt: Stmt, known: dict) -> None:
        self.builder.emit(mem.STORE, *self.operands(stmt, known))

    def repeat_atomic(self, stmt: Stmt, known: dict) -> None:
        made = self.builder.append(stmt.row, self.operands(stmt, known), [o.type for o in stmt.outs])
        known[stmt.outs[0]] = made.outs[0]
