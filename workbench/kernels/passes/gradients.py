"""`grad` statements become the derivatives that they ask for: forward mode over their regions, one run per component.

Forward, since what comes out holds no stacks and no records: statements like all others, which the adjoint can walk
back again. Funcs differentiated in kernels have few arguments; equal statements of several runs are merged afterwards.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from ..ir import Builder, Function, Region, Stmt, Value, constant, used, walk
from ..ops import control as c, memory as mem
from ..ops.row import ROWS
from ..ops.vectors import components
from ..types import Array, Composite, int32, shadow_type
from .named import named_pass
from .tangent import Joint


@named_pass("gradients")
def expanded(function: Function) -> Function:
    """The function itself, with every `grad` statement replaced, also in adjoints of funcs.

    Raises KernelError where there is no derivative.
    """
    stmts = list(walk(function.body))
    own = [r for s in stmts if s.row is c.CALL for r in (s.attr.grad, s.attr.replay) if r is not None]
    for region in [function.body, *own]:
        if any(s.row is c.GRAD for s in walk(region)):
            _expand(region, {})
    return function


def _expand(region: Region, known: dict[Value, Value]) -> None:
    """In place: a region may be long, and nobody else has this function yet. `known`: what replaces a value."""
    old, region.body = region.body, []
    for stmt in old:
        stmt.args = tuple(known.get(a, a) for a in stmt.args)
        for inner in stmt.regions:
            _expand(inner, known)
        if stmt.row is not c.GRAD:
            region.body.append(stmt)
            continue
        builder = Builder(region)
        with builder.open(), builder.at(stmt.where):
            slope = _Slope(builder, stmt)
            for k, out in enumerate(stmt.outs):
                known[out] = slope.by(k)
                known[out].name = known[out].name or out.name
    region.results = tuple(known.get(r, r) for r in region.results)


class _Slope(Joint):
    """The region of one `grad` statement, run with a tangent of 1 in one component."""

    def __init__(self, builder: Builder, stmt: Stmt):
        region = stmt.regions[0]
        super().__init__(_stored(region), frozenset(["results", *(p.name for p in region.params)]), ())
        self.builder, self.region, self.values = builder, region, stmt.args

        stmts = list(walk(region))
        own = {v for s in stmts for v in (*s.outs, *(p for r in s.regions for p in r.params))}
        self.around: dict = {v: v for v in used(region) - own} | dict(zip(region.params, stmt.args, strict=True))

    def by(self, k: int) -> Value:
        """The derivative by one argument, of its type."""
        p, type = self.region.params[k], self.values[k].type
        wide = shadow_type(p.type)
        if not isinstance(type, Composite):
            return self.narrowed(self.along(p, constant(wide, 1)), type)
        cells = [*np.ndindex(*type.shape)]
        units = [constant(wide, tuple(float(here == at) for here in cells)) for at in cells]
        return ROWS["construct"](*[self.narrowed(self.along(p, unit), type.scalar) for unit in units], attr=type)

    def along(self, p: Value, direction: Value) -> Value:
        known = {**self.around, ("tangent", p): direction}
        self.replay(self.region, known, False)
        parts = [x for r in self.region.results for x in components(self.tangent_or_zero(r, known))]
        return reduce(ROWS["add"], parts)

    def replay_nothing(self, stmt: Stmt, known: dict, record: bool) -> None:
        """Repeat claims of the func in its derivative; other output is dropped."""
        if stmt.row is c.ASSERT:
            self.builder.repeat(stmt, [known[a] for a in stmt.args], known)


def _stored(region: Region) -> Function:
    """A function that stores the results of the region: for the questions which values vary, and which count."""
    builder = Builder(Region([*region.params], [*region.body]))
    with builder.open():
        for k, r in enumerate(region.results):
            array = Value(Array(r.type), "results")
            builder.region.params.append(array)
            builder.emit(mem.STORE, array, constant(int32, k), r)
    return Function("grad", builder.region)
