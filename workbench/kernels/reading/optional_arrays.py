"""Arrays that a launch leaves out: None for an argument, or for a field of a struct.

A kernel is read anew for what a launch leaves out (`MissingArrays`), so that `if a:` and `a is None` are decided while
it is read, and what lies on the other side is no part of the program. An array left out is no parameter; its extents
are 0. What touches one of its elements nevertheless is a claim that fails (`ops.control.Claim`), where it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import KernelError
from .. import ir
from ..ops import control, memory
from ..row import Row
from ..types import Array, Type, bool_

SLUG = "array-left-out"


class MissingArrays(NamedTuple):
    """Paths of the arrays that a launch left out, and of those among the asked ones that have no elements."""

    absent: frozenset[str] = frozenset()
    empty: frozenset[str] = frozenset()


NONE = MissingArrays()


class AbsenceBuilder(ir.Builder):
    """Writes statements; of one that touches an array that was left out, the claim that this does not happen."""

    def __init__(self) -> None:
        super().__init__()
        self.absent: dict[ir.Value, control.Claim] = {}  # and what is said where an element of one is touched
        self.branch = object()  # the innermost one that is being read
        self.unassigned: dict[ir.Value, set[object]] = {}  # fields of structs; in which branches those were made
        self.epoch = 0  # grows with every write, and where loops begin and end
        self.writes: dict[ir.Value, int] = {}  # to each array
        self.epochs: dict[ir.Stmt, int] = {}  # of loads
        self.own_epochs: dict[ir.Stmt, int] = {}  # the same by the lines above that write to this array by this name

    def append(
        self,
        row: Row,
        args: tuple[ir.Value, ...] | list[ir.Value],
        types: tuple[Type, ...] | list[Type],
        regions: tuple[ir.Region, ...] = (),
        attr: object = None,
        name: str = "",
    ) -> ir.Stmt:
        if row is control.CALL:
            self.check_handed_over(args)
        elif self.absent and args and isinstance(args[0].type, Array) and ir.root(args[0]) in self.absent:
            if row is memory.SHAPE:
                row, args, attr = control.CONST, (), 0
            elif row is memory.COMPONENTS:  # another name for what is not there: no statement of the program
                with self.inside(ir.Region()):
                    return super().append(row, args, types, regions, attr, name)
            else:
                row, args, attr = self.touched(ir.root(args[0]), types)
        stmt = super().append(row, args, types, regions, attr, name)
        if row is memory.LOAD:
            self.epochs[stmt] = self.epoch
            self.own_epochs[stmt] = self.writes.get(ir.root(stmt.args[0]), 0)
        elif row.writes or row is control.CALL:
            self.epoch += 1
            for a in args:
                if isinstance(a.type, Array):
                    self.writes[ir.root(a)] = self.epoch
        return stmt

    def check_handed_over(self, args: Sequence[ir.Value]) -> None:
        """Raise KernelError if a missing array is passed to a func with an adjoint of its own."""
        gone = [a for a in args if a in self.absent]
        if gone:
            given = "no array was assigned" if gone[0] in self.unassigned else "the launch gave None"
            text = f"{gone[0].name!r}, for which {given}, is handed to a func with an adjoint of its own"
            why = "Its func_grad wants an array."
            instead = f"if {gone[0].name}: ..."
            raise KernelError(text, slug=self.absent[gone[0]].slug, where=self.where, why=why, instead=instead)

    def touched(self, array: ir.Value, types: tuple[Type, ...] | list[Type]) -> tuple[Any, tuple, Any]:
        """The claim, and after it the row that makes a zero where a value was to be loaded.

        Raises KernelError for a field that is certainly not assigned where its struct was made.
        """
        claim = self.absent[array]
        if self.branch in self.unassigned.get(array, ()):
            text = "this array field was never assigned"
            raise KernelError(text, slug=claim.slug, where=self.where, why=claim.why, instead=claim.instead)
        never = super().append(control.CONST, (), (bool_,), attr=False).outs
        if not types:
            return control.ASSERT, never, claim
        super().append(control.ASSERT, never, (), attr=claim)
        scalar = ir.numeric(types[0]).scalar
        return control.CONST, (), 0.0 if scalar.kind == "f" else False if scalar.kind == "b" else 0


def not_given(name: str) -> control.Claim:
    """The claim that fails where an array is touched that the launch left out."""
    field = "A field of a struct is None until it is assigned: it must be assigned before the launch."
    text, why = f"{name!r} is touched, for which the launch gave None.", "There is no array to read or write."
    instead = f"if {name}: ..., around this line, or an array for {name!r}"
    return control.Claim(text, SLUG, field if "." in name else why, instead, always=True)


def certain(function: ir.Function) -> ir.Stmt | None:
    """The first statement that certainly runs and touches an array that was left out."""
    found = (s for s in function.body.body if s.row is control.ASSERT and s.attr.slug == SLUG)
    return next(found, None)
