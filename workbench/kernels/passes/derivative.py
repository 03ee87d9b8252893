"""Common base of adjoint, tangent and the count of ties: a replay with activity information.

Parameters of the kernel get companions (`ir.Companion`): a shadow or a tangent for each active one, and for each array
under atomic_min or atomic_max what it held after the launch, and among how many contributors a cell is shared.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..analysis import activity
from ..ir import Function, Role, Stmt, Value, companion, numeric, root, walk
from ..ops import control as c, memory as mem
from ..ops.row import ROWS
from ..row import Singular
from ..types import Array, Type, is_float, shadow_type
from . import simplify
from .replay import Groups, Key, Replay
from .sides import Sides

EXTREMES = (mem.ATOMIC_MIN, mem.ATOMIC_MAX)


@dataclass(frozen=True)
class Derived:
    """An adjoint, a tangent or a count of ties, and what it asks of the tape.

    `needs`: array parameters whose contents at the launch the replay reads. `private`: those it also writes, to be
    lent as copies. `ordered`: the result of an atomic is reused, so threads must run one after the other, in order.
    `extremal`: arrays under atomic_min or atomic_max. Parameters of `function`: the kernel's, a companion (`ir.Role`)
    for each active one, and two for each extremal one: what it held after the launch, and the ties of each cell, among
    how many contributors its derivative is shared.
    """

    function: Function
    active: frozenset[str]
    needs: frozenset[str]
    private: frozenset[str]
    ordered: bool = False
    extremal: tuple[str, ...] = ()


class Derivative(Replay):
    """`active`: names of the parameters with a derivative. `varied`: as `analysis.activity` says.

    `extremal`: the active arrays under atomic_min or atomic_max alone; `mixed`: those used otherwise too.
    """

    claims = 0  # about places without a derivative, so far

    def __init__(self, primal: Function, active: frozenset[str], groups: Groups = ()):
        super().__init__(primal, groups)
        self.active = active
        stmts = list(self.repeated(primal.body))
        self.varied = activity.varied(primal, active, stmts)
        self.mixed: frozenset[str] = frozenset()
        self.extremal = self._extremal()
        self.companions: dict[tuple[Role, str], Value] = {}
        self.sides = Sides([*walk(primal.body)])

    def _extremal(self) -> tuple[str, ...]:
        """The extremes with a derivative. Of an array that a kernel uses otherwise too they have none: `mixed`."""
        stmts = [s for s in walk(self.primal.body) if s.args and isinstance(s.args[0].type, Array)]
        found = {root(s.args[0]).name: s for s in stmts if s.row in EXTREMES and self.is_active(s.args[0])}
        for s in stmts:
            name = root(s.args[0]).name
            shared = [n for n in found if n in self.group(name)]
            if not shared or s.row in (mem.COMPONENTS, mem.SHAPE):
                continue
            if s.row is not found[shared[0]].row or name != shared[0] or s in self.reused:
                self.mixed |= self.group(name)
        return tuple(p.name for p in self.primal.params if p.name in found and p.name not in self.mixed)

    def derived(self, written: Function) -> Derived:
        """A program that is written, simplified, with its needs of the tape."""
        made = simplify.adjoint(written, self.groups)
        needs, private = self.asks(made)
        needs |= frozenset(self.extremal)
        return Derived(made, self.active, needs, private, bool(self.reused), self.extremal)

    def without_derivative(self, stmt: Stmt) -> c.NoDerivative | None:
        """The error of an atomic on an active array that has no derivative; None if it has one."""
        name, row = root(stmt.args[0]).name, stmt.row
        if not self.is_active(stmt.args[0]):
            return None
        if row in (mem.ATOMIC_EXCH, mem.ATOMIC_CAS):
            text, slug, why = f"`{row.name}` on an array whose gradient is asked for has no derivative.", "gradient", ""
            instead = "atomic_add, or a kernel in which one thread visits the elements in a loop"
        elif row not in EXTREMES or name not in self.mixed:
            return None
        elif stmt in self.reused:
            used = "returns what the cell held before, and that value is used: it cannot be differentiated."
            text, slug = f"`{row.name}` on {name!r} {used}", "mixed"
            why = "What a thread finds in the cell depends on which threads came before it."
            instead = "the atomic alone, and a second kernel that reads its result"
        else:
            beside = "and another use of the same memory in one kernel cannot be differentiated."
            text, slug = f"`{row.name}` on {name!r} {beside}", "mixed"
            why = "Who wins depends on what happened between the two."
            instead = "two kernels: one with the atomic alone"
        return c.NoDerivative(text, f"atomic-{slug}", why, instead, always=True)

    def parameters(self, *roles: Role) -> dict[Key, Value]:
        """The kernel's parameters; a companion of each of `roles` for each active one; two for each extremal one."""
        known = super().parameters()
        for role in roles:
            for p in self.primal.params:
                if p.name in self.active:
                    type = shadow_type(p.type) if isinstance(p.type, Array) else Array(shadow_type(p.type), 1)
                    self._accompany(role, p, type)
        for p in self.primal.params:
            if p.name in self.extremal:
                self._accompany(Role.AFTER, p, p.type)
                self._accompany(Role.TIES, p, shadow_type(p.type))
        return known

    def _accompany(self, role: Role, p: Value, type: Type) -> None:
        self.companions[role, p.name] = companion(self.builder.region.params, role, p.name, type, p.where)

    def beside(self, role: Role, array: Value) -> Value:
        """The companion of an array value of the primal; of an array of components, the components of it."""
        if array.stmt is None:
            return self.companions[role, array.name]
        return self.builder.emit(mem.COMPONENTS, self.beside(role, array.stmt.args[0]))

    def is_active(self, array: Value) -> bool:
        return root(array).name in self.active

    def assert_inactive(self, stmt: Stmt) -> None:
        value = stmt.args[-1]
        assert value not in self.varied, f"an active value is stored into inactive {root(stmt.args[0]).name}"

    def widened(self, value: Value) -> Value:
        """Derivative rules compute in the type of the derivative."""
        if is_float(value.type) and shadow_type(value.type) != value.type:
            wide = shadow_type(value.type)
            return ROWS["cast"](value, attr=numeric(wide).scalar)
        return value

    def narrowed(self, value: Value | None, type: Type) -> Value:
        """A derivative (None: 0) in the type of the value, as a func_grad takes it; of float16 it is float32."""
        if value is None:
            return self.zero(type)
        return value if value.type == type else ROWS["cast"](value, attr=numeric(type).scalar)

    def rule(self, stmt: Stmt) -> Stmt:
        """The statement whose derivative rule is used: this one, or what its row puts in its place."""
        stmt = (stmt.row.fused(stmt) if stmt.row.fused is not None else None) or stmt
        row = self.sides.rule(stmt)
        return stmt if row is stmt.row else Stmt(row, stmt.args, stmt.outs, attr=stmt.attr)

    def claim(self, singular: Singular, met: Value, sure: bool = True) -> None:
        """Emit the claim that this does not hold: a derivative comes to where a row has none."""
        said = singular.text, "singular", "A number made up would be wrong.", singular.instead
        self.claims += 1
        note = c.Convention(*said, number=self.claims, sure=sure)
        claim = c.NoDerivative(*said, always=True) if singular.refused else note
        self.builder.emit(c.ASSERT, ROWS["logical_not"](met), attr=claim)

    def share(self, stmt: Stmt, known: dict, g: Value) -> Value:
        """Of an extreme: what is for those whose value the cell held after the launch, in equal shares."""
        indices = self.indices(stmt, known)
        final = self.builder.emit(mem.LOAD, self.beside(Role.AFTER, stmt.args[0]), *indices)
        ties = self.builder.emit(mem.LOAD, self.beside(Role.TIES, stmt.args[0]), *indices)
        hit = ROWS["eq"](known[stmt.args[-1]], final)
        return ROWS["where"](hit, ROWS["div"](g, ties), self.zero(g.type))
