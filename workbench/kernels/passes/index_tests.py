"""What seldom happens in a kernel, alone: a program that tells for many threads at once whether it does in one of them.

An inspector before an executor (Saltz, Mirchandaney and Crowley, 1991): what it finds to be inside needs no tests, so
that C compilers vectorise both. It works out what the indices are made of, and has no other effect than a note. Of
arrays with the same index it asks the smallest alone, and indices from the end are noted too: those who run the threads
it notes something of test each index for itself. So it is for places without a derivative, as 0 of a root, where an
adjoint looks in branches for what its zeros may hide: other threads do without them.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass
from functools import reduce

from ..ir import Builder, Function, Region, Stmt, Value, root, type_as, walk
from ..ops import control as c, memory as mem, scalar
from ..ops.row import ROWS, calls_library
from ..row import Effect
from ..types import Array, int32
from .named import named_pass
from .prune import prune
from .simplify import assume, constant_of, rewrite

_TESTED = (mem.LOAD, mem.STORE, mem.ACCUMULATE, *mem.ATOMICS)
MAY_LEAVE = c.Convention("An index may leave its array, or a slope is a convention.", "bounds")


@dataclass(frozen=True)
class Tested:
    """A program that `tests` threads and has no other effect than a note, and one for those that it notes nothing of."""

    tests: Function
    free: Function


@named_pass("test indices")
def index_tests(function: Function, tested: Collection[Stmt]) -> Tested | None:
    """Notes where an index of these accesses may leave its array, and where a derivative is missing if branches ask.

    It reads arrays that nothing changes. None where there is nothing to test, the kernel has loops, or its indices need
    more than straight statements, or a load that is itself tested.
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
    free, seldom = _regular(function, known)
    if left or not (tested or seldom):
        return None
    with builder.open():
        least = {i: reduce(ROWS["min"], [builder.emit(mem.SHAPE, a, attr=k) for a, k in e]) for i, e in extents.items()}
        signs = [sign for i, n in least.items() for sign in (i, n - 1 - i)]
        inside = [reduce(ROWS["bit_or"], signs) >= 0] if signs else []
        for holds in inside + [ROWS["logical_not"](v) for v in seldom]:
            builder.emit(c.ASSERT, holds, attr=MAY_LEAVE)
    return Tested(prune(rewrite(function.with_body(builder.region))), free)


def _regular(function: Function, known: Container[Value]) -> tuple[Function, list[Value]]:
    """The function for threads with a derivative everywhere, if that takes its branches away; what is false for them."""
    claims = [s.args[0].stmt for s in function.body.body if s.row is c.ASSERT and isinstance(s.attr, c.Convention)]
    denied = [s.args[0] for s in claims if s is not None and s.row is scalar.LOGICAL_NOT]
    seldom = [v for value in denied for v in _without(value, known)]
    free = assume(function, (), seldom)
    if any(s.regions for s in free.body.body) or not any(s.regions for s in function.body.body):
        return function, []
    return free, list(dict.fromkeys(seldom))


def _without(value: Value, known: Container[Value]) -> list[Value]:
    """Known values without which this one is false; none if it may be true all the same."""
    stmt = value.stmt
    if value in known or stmt is None:
        return [value] if value in known else []
    if stmt.row is scalar.LOGICAL_AND:
        return _without(stmt.args[0], known) or _without(stmt.args[1], known)
    if stmt.row is scalar.LOGICAL_OR:
        one, other = (_without(a, known) for a in stmt.args)
        return one + other if one and other else []
    otherwise = stmt.regions[1].results[stmt.outs.index(value)] if stmt.row is c.IF else None
    return _without(stmt.args[0], known) if otherwise is not None and constant_of(otherwise) is False else []
