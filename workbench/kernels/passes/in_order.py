"""All threads of a launch as the turns of loops in one thread: what a launch means where threads run one by one."""

from __future__ import annotations

from ..ir import Function, Region, Stmt, Value, constant
from ..ops import control as c
from ..types import int32
from .named import named_pass
from .simplify import Rewrite, ValueFacts


@named_pass("threads in order", always=True)
def in_order(function: Function, dims: tuple[int, ...], backwards: bool = False) -> Function:
    """The program for one thread that does what the threads of the grid `dims` do, each after the one before.

    backwards   from the last thread to the first.
    """
    return _InOrder(dims, backwards).function(function)


class _InOrder(Rewrite):
    def __init__(self, dims: tuple[int, ...], backwards: bool):
        super().__init__(None)
        self.dims, self.backwards = dims, backwards
        self.thread: list[Value] = []

    def function(self, function: Function) -> Function:
        scope = ValueFacts()
        for p in function.params:
            scope.values[p] = p.copied()
            self.builder.region.params.append(scope.values[p])
        with self.builder.open():
            self.loops(function.body, scope, self.dims)
        return function.with_body(self.builder.region, rank=1)

    def loops(self, body: Region, scope: ValueFacts, dims: tuple[int, ...]) -> None:
        """A loop for each of these axes, and the thread inside."""
        if not dims:
            self.region(body, scope)
            return
        n, *rest = dims
        turns = (n - 1, -1, -1) if self.backwards else (0, n, 1)
        bounds = [constant(int32, k) for k in turns]
        region, counter = Region(), Value(int32, f"thread_{len(self.thread)}")
        region.params.append(counter)
        self.thread.append(counter)
        with self.builder.inside(region):
            self.loops(body, scope, tuple(rest))
        self.builder.append(c.FOR, tuple(bounds), (), (region,), attr=c.Loop(trips=n))

    def stmt(self, stmt: Stmt, scope: ValueFacts) -> None:
        if stmt.row is c.TID:
            scope.values[stmt.outs[0]] = self.thread[stmt.attr.axis]
        elif stmt.row is c.DIM:
            scope.values[stmt.outs[0]] = constant(int32, self.dims[stmt.attr.axis])
        else:
            super().stmt(stmt, scope)
