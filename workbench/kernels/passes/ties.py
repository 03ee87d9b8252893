"""Counts, for atomic_min and atomic_max, among how many contributors the adjoint of each cell is shared."""

from __future__ import annotations

from ..ir import Function, Role, Stmt, constant, root, type_as
from ..ops import memory as mem
from ..ops.row import ROWS
from ..types import Array
from .derivative import Derivative, Derived
from .named import named_pass
from .replay import Groups


@named_pass("ties")
def ties(function: Function, active: frozenset[str], groups: Groups = ()) -> Derived:
    """A program whose threads add one to the ties of each cell of which they gave the extreme.

    `active`: the names of the parameters of `function` with a derivative; they have no companions here.
    """
    return _Ties(function, active, groups).build()


class _Ties(Derivative):
    """The forward sweep alone."""

    own_replays = walks_back = False

    def build(self) -> Derived:
        known = self.parameters()
        with self.builder.open():
            self.builder.role = "replay"
            self.replay(self.primal.body, known, False)
        return self.derived(self.named("ties"))

    def replay_atomic(self, stmt: Stmt, known: dict, record: bool) -> None:
        if root(stmt.args[0]).name not in self.extremal:
            super().replay_atomic(stmt, known, record)
            return
        indices = self.indices(stmt, known)
        final = self.builder.emit(mem.LOAD, self.beside(Role.AFTER, stmt.args[0]), *indices)
        hit = ROWS["eq"](known[stmt.args[-1]], final)
        ties = self.beside(Role.TIES, stmt.args[0])
        dtype = type_as(ties, Array).dtype
        share = ROWS["where"](hit, constant(dtype, 1), constant(dtype, 0))
        self.builder.emit(mem.ACCUMULATE, ties, *indices, share)
