"""Adjoints that are wrong on purpose, one historical mistake each: for `pitfalls`, and for nothing else.

Each is the exact construction with one thing left out. They run in the interpreter alone, and no launch ever uses
them: whoever wants one asks for it by name.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..kernels import ir
from ..kernels.ir import Region, Stmt, Value, walk
from ..kernels.ops import control as c, memory as mem, vectors
from ..kernels.passes import simplify
from ..kernels.passes.adjoint import Adjoint, Reverse, adjoint as exact
from ..kernels.reading.reader import Reader
from ..kernels.row import Row
from ..kernels.types import is_float

if TYPE_CHECKING:
    from ..kernels.analysis.launch_form import Groups
    from ..kernels.program import Program

Mistake = Callable[["Program", frozenset[str], "Groups"], Reverse]

SHADOW = ir.Role.SHADOW

# passes its argument on, and no gradient back; not among the rows of the language
DETACH = Row("detach", type=lambda t: t, elementwise=True, meaning=lambda x: x, c="{0}")
PEEK = Row("peek", type=lambda stack: stack.dtype, meaning=lambda stack: stack[-1])


def components(program: Program, active: frozenset[str], groups: Groups) -> Reverse:
    """The adjoint in which a value written into a component of a vector gets no gradient."""
    made = simplify.rewrite(program.function)
    for region in _regions(made.body):
        body = []
        for stmt in region.body:
            if stmt.row in (vectors.INSERT, vectors.INSERT_AT) and is_float(stmt.args[-1].type):
                cut = _detached(stmt.args[-1], stmt)
                body.append(cut)
                stmt.args = (*stmt.args[:-1], cut.outs[0])
            body.append(stmt)
        region.body[:] = body
    return exact(made, active, groups)


def _regions(region: Region) -> list[Region]:
    return [region, *(inner for stmt in walk(region) for inner in stmt.regions)]


def _detached(value: Value, stmt: Stmt) -> Stmt:
    out = Value(value.type, value.name, stmt.where)
    made = Stmt(DETACH, (value,), (out,), where=stmt.where)
    out.stmt = made
    return made


class _AliasReader(Reader):
    """A reader that takes `b = a` for a copy that no gradient passes."""

    def right_side(self, node: ast.expr, target: ast.expr) -> Any:
        value = super().right_side(node, target)
        if isinstance(node, ast.Name) and isinstance(value, ir.Value) and is_float(value.type):
            return self.builder.emit(DETACH, value, name=value.name)
        return value


def alias(program: Program, active: frozenset[str], groups: Groups) -> Reverse:
    """The adjoint in which a second name for a local (`b = a`) takes the gradient from the first."""
    kernel = program.kernel
    if kernel is None:  # of the library: it has no text, in which a variable could have two names
        return exact(program.function, active, groups)
    reading = _AliasReader().kernel(kernel.func, kernel.__name__, kernel.types)
    return exact(simplify.primal(reading.function), active, groups)


def loops(program: Program, active: frozenset[str], groups: Groups) -> Reverse:
    """The adjoint in which every turn of a loop sees the values of the last turn."""
    made = exact(program.function, active, groups)
    copy = simplify.rewrite(made.function)
    for stmt in walk(copy.body):
        if stmt.row is c.POP:
            stmt.row = PEEK
    return replace(made, function=copy)


def outputs(program: Program, active: frozenset[str], groups: Groups) -> Reverse:
    """The adjoint in which a store does not clear the gradient of what it overwrote: the next backward gets it too."""
    made = Adjoint(simplify.rewrite(program.function), active, groups).reversed()
    for region in _regions(made.function.body):
        region.body[:] = [s for s in region.body if s.row is not mem.STORE or ir.root(s.args[0]).role is not SHADOW]
    return made
