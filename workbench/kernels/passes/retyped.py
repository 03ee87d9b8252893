"""Copies of a function, statement by statement, in which values have other types: what `to_float64` and `batch` do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..ir import Builder, Function, Region, Stmt, Value
from ..ops import control as c
from ..types import Type


class Retyped:
    """One copy. `known`: what stands for a value of the original in it."""

    def __init__(self) -> None:
        self.builder = Builder()

    def function(self, function: Function, rank: int = 0) -> Function:
        """The copy of a function, over a grid of so many axes if it is another number."""
        with self.builder.open():
            return function.with_body(self.region(function.body, {}), rank=rank)

    def region(self, region: Region, known: dict[Value, Value]) -> Region:
        new = Region()
        for p in region.params:  # a call's region may have arrays of the outside among its own
            if p not in known:
                known[p] = Value(self.type_of(p), p.name, p.where, None, p.companion)
            new.params.append(known[p])
        with self.builder.inside(new):
            for stmt in region.body:
                with self.builder.at(stmt.where, stmt.of):
                    self.stmt(stmt, known)
        new.results = tuple(known[r] for r in region.results)
        return new

    def stmt(self, stmt: Stmt, known: dict[Value, Value]) -> None:
        args, attr = [known[a] for a in stmt.args], self.attr_of(stmt.attr)
        if not stmt.regions:
            outs = self.plain(stmt, args, attr)
        else:
            if stmt.row is c.CALL:
                self.bind(stmt.regions[0].params, stmt.args)
                attr = self.custom(stmt, attr, known)
            regions = tuple(self.region(r, known) for r in stmt.regions)
            outs = self.builder.append(stmt.row, args, [self.type_of(o) for o in stmt.outs], regions, attr).outs
        for old, new in zip(stmt.outs, outs, strict=True):
            known[old] = new
            new.name = new.name or old.name

    def custom(self, stmt: Stmt, attr: Any, known: dict[Value, Value]) -> Any:
        """The adjoint and the replay that a func brings: over its arguments, then shadows of its arrays."""
        own = {n: r for n in ("grad", "replay") if (r := getattr(attr, n, None)) is not None}
        for region in own.values():
            self.bind(region.params, [*stmt.args, *(stmt.args[k] for k in attr.arrays)])
        return replace(attr, **{n: self.region(r, dict(known)) for n, r in own.items()}) if own else attr

    # ---- what is another

    def type_of(self, value: Value) -> Type:
        """The type of a parameter, or of a result of a statement with regions, in the copy."""
        return value.type

    def attr_of(self, attr: Any) -> Any:
        """The attribute of a statement in the copy."""
        return attr

    def plain(self, stmt: Stmt, args: list[Value], attr: Any) -> Sequence[Value]:
        """Write a statement without regions. Returns its results."""
        raise NotImplementedError

    def bind(self, params: Sequence[Value], args: Sequence[Value]) -> None:
        """Called before a region whose first parameters stand for these values of the original."""
