"""The adjoint before what nobody needs is taken out, with the adjoint of every statement findable: the microscope.

`working` marks, in that adjoint, the moment at which the reverse sweep reaches each statement of the primal. Running it
in the interpreter and looking at every marker shows values and adjoints statement by statement.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import KernelError
from ..ir import Function, Region, Role, Stmt, Value, constant, root, walk
from ..ops import control as c, memory as mem
from ..types import int32
from . import simplify
from .adjoint import Adjoint
from .named import named_pass
from .replay import Groups


@dataclass(frozen=True)
class Moment:
    """The reverse sweep reaches `stmt`. `adjoints`: of its results, then complete (None: no derivative reaches it); of
    a store, the adjoint that it consumed. `values`: its results as they were replayed. `turns`: the turn of every
    reversed loop around it, outer first.
    """

    stmt: Stmt
    adjoints: tuple[Value | None, ...]
    values: tuple[Value | None, ...]
    turns: tuple[Value, ...]


@dataclass(frozen=True)
class Working:
    """`primal`: the statements that the adjoint was made from. `function`: that adjoint, every statement left in.

    `moments`: a marker statement of `function` -> what is seen when it runs, in the order of the reverse sweep.
    `turns`: a marker statement of either, at the start of every region of every loop -> (the loop, the region).
    """

    primal: Function
    function: Function | None
    moments: dict[Stmt, Moment]
    turns: dict[Stmt, tuple[Stmt, Region]]


@named_pass("unpruned adjoint")
def working(function: Function, active: frozenset[str] | None, groups: Groups = ()) -> Working:
    """The adjoint of a kernel as `adjoint` makes it, before what nobody needs is taken out.

    Loads stay loads, so that every read is seen; what `adjoint` refuses without knowing what a load gives is made from
    the form that knows. active=None: without the adjoint.
    """
    if active is None:
        primal = simplify.rewrite(function)
        return Working(primal, None, {}, loops(primal))
    try:
        return _Working(simplify.rewrite(function), active, groups).working()
    except KernelError:
        return _Working(simplify.forward(function, groups), active, groups).working()


class _Working(Adjoint):
    def __init__(self, primal: Function, active: frozenset[str], groups: Groups):
        super().__init__(primal, active, groups)
        self.moments: dict[Stmt, Moment] = {}
        self.turns: list[Value] = []

    def working(self) -> Working:
        made = self.written_out()
        return Working(self.primal, made, self.moments, {**loops(self.primal), **loops(made)})

    def reverse(self, region: Region, known: dict, adjoints: dict) -> None:
        for stmt in reversed(region.body):
            held = tuple(adjoints.get(o) for o in stmt.outs)
            single = Region([], [stmt])
            before, depth = len(self.builder.region.body), len(self.turns)
            with self.builder.at(stmt.where, stmt):
                if stmt.row not in mem.CHANGES:
                    self.mark(stmt, held, known)
            super().reverse(single, known, adjoints)
            del self.turns[depth:]
            if stmt.row in mem.CHANGES:
                made = [s for s in self.builder.region.body[before:] if s.row is mem.LOAD]
                loads = [s for s in made if root(s.args[0]).role is Role.SHADOW]
                with self.builder.at(stmt.where, stmt):
                    self.mark(stmt, (loads[0].outs[0],) if loads else (None,), known)

    def mark(self, stmt: Stmt, adjoints: tuple[Value | None, ...], known: dict) -> None:
        marker = constant(int32, 0).stmt
        assert marker is not None  # a constant is a statement
        values = tuple(known.get(o) for o in stmt.outs)
        self.moments[marker] = Moment(stmt, adjoints, values, tuple(self.turns))

    def reenter(self, stmt: Stmt, known: dict, turn: Value) -> dict:
        self.turns.append(turn)
        return super().reenter(stmt, known, turn)


def loops(function: Function) -> dict[Stmt, tuple[Stmt, Region]]:
    """A marker at the start of every region of every loop, put in: marker -> (the loop, the region)."""
    found = {}
    for stmt in list(walk(function.body)):
        for region in stmt.regions if stmt.row in (c.FOR, c.WHILE) else ():
            out = Value(int32)
            marker = Stmt(c.CONST, (), (out,), attr=0, where=stmt.where)
            out.stmt = marker
            region.body.insert(0, marker)
            found[marker] = stmt, region
    return found
