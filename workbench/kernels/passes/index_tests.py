"""The indices of a kernel alone: a program that tells for many threads at once whether one of them may leave its array.

An inspector before an executor (Saltz, Mirchandaney and Crowley, 1991): what it finds to be inside needs no tests, so
that C compilers vectorise both. It works out what the indices are made of, and has no other effect than a note. Of
arrays with the same index it asks the smallest alone, and indices from the end are noted too: those who run the threads
it notes something of test each index for itself. So it is where an adjoint looks in branches for the slopes that zeros
may hide, as at a root of 0: it tells whether there is such a place, and elsewhere nobody looks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import reduce

from ..ir import Builder, Function, Region, Stmt, Value, root, type_as, walk
from ..ops import control as c, memory as mem, scalar
from ..ops.row import ROWS, calls_library
from ..row import Effect
from ..types import Array, int32
from .named import named_pass
from .prune import prune
from .simplify import assume, rewrite

_TESTED = (mem.LOAD, mem.STORE, mem.ACCUMULATE, *mem.ATOMICS)
MAY_LEAVE = c.Convention("An index may leave its array, or slopes may be hidden.", "bounds")


@named_pass("test indices")
def index_tests(function: Function, tested: Collection[Stmt]) -> tuple[Function, Function] | None:
    """A program that notes where an index of these accesses may leave its array; it reads arrays that nothing changes.

    The second is what threads that it notes nothing of run. None where there is nothing to test, the kernel has loops,
    or its indices need more than straight statements, or a load that is itself tested.
    """
    if any(s.row in (c.FOR, c.WHILE) for s in walk(function.body)):
        return None
    changed = {root(s.args[0]) for s in walk(function.body) if s.row.writes}
    builder = Builder(Region(list(function.params)))
    known, left = set(function.params), set(tested)
    extents: dict[Value, dict[tuple[Value, int], None]] = {}  # of each index: the arrays and axes that it is used for
    for s in function.body.body:
        if s in left:
            indices = s.args[1 : 1 + type_as(s.args[0], Array).ndim] if s.row in _TESTED else ()
            if not indices or not known.issuperset(s.args[:1] + indices) or any(i.type != int32 for i in indices):
                return None
            left.remove(s)
            for axis, i in enumerate(indices):
                given = i.stmt.args[0] if i.stmt is not None and i.stmt.row is mem.WRAP else i
                extents.setdefault(given, {})[s.args[0], axis] = None
        elif known.issuperset(s.args) and (
            root(s.args[0]) not in changed
            if s.row is mem.LOAD
            else s.row.effect is Effect.PURE and not s.regions and not calls_library(s)
        ):
            builder.region.body.append(s)
            known.update(s.outs)
    free, zeros = _without_branches(function, builder.region.body)
    if left or not (tested or zeros):
        return None
    with builder.open():
        least = {i: reduce(ROWS["min"], [builder.emit(mem.SHAPE, a, attr=k) for a, k in e]) for i, e in extents.items()}
        signs = [sign for i, n in least.items() for sign in (i, n - 1 - i)]
        holds = [reduce(ROWS["bit_or"], signs) >= 0] if signs else []
        for claim in holds + [ROWS["logical_not"](v) for v in zeros]:  # joined by `and` they are not vectorised
            builder.emit(c.ASSERT, claim, attr=MAY_LEAVE)
    return prune(rewrite(function.with_body(builder.region))), free


def _without_branches(function: Function, known: list[Stmt]) -> tuple[Function, list[Value]]:
    """The function for threads at no singular place, and what tells of one: if this takes all branches away."""
    zeros = [s for s in known if s.row is scalar.EQ and s.of is not None and s.of.row.singular is not None]
    if zeros and any(s.regions for s in function.body.body):
        body = [replace(s, row=c.CONST, args=(), attr=False) if s in zeros else s for s in function.body.body]
        free = assume(function.with_body(Region(list(function.params), body)), ())
        if not any(s.regions for s in free.body.body):
            return free, [s.outs[0] for s in zeros]
    return function, []
