"""A scatter becomes a gather: the adjoint of a stencil without atomics, in parallel.

The adjoint of `u[i - 1, j]` adds to `d_u[i - 1, j]`: threads meet. Where every such index is a thread index plus a
constant, and a contribution is cheap to compute, each cell works out anew what the threads around it contribute
(`pull`), before the rest of the adjoint clears what they read: then each address has one writer. (The gather form of
adjoint stencils: Hückelheim et al., ICPP 2019, arXiv:1907.02818.) To store dear contributions, and add them up in a
second function, took as long as sums in shares or longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..analysis.accesses import Access, accesses_of
from ..ir import Builder, Function, Region, Role, Stmt, Value, companion, constant, root, type_as, walk
from ..ops import control as c, memory as mem
from ..ops.row import ROWS, plus
from ..row import Effect
from ..types import Array, int32, is_float
from . import simplify
from .named import named_pass
from .singular import in_branch

Offset = tuple[int, ...]


@dataclass(frozen=True)
class PullAdjoint:
    """`pull` adds to each cell what the threads around it contribute; `rest` is the adjoint without that.

    `pull` runs first, with one thread per cell, up to `high` beyond the launch grid. `grid` are its last parameters:
    the extents of the launch grid.
    """

    pull: Function
    rest: Function
    grid: tuple[str, ...]
    targets: tuple[str, ...]
    high: Offset


@named_pass("stencil pull")
def pull(function: Function, targets: frozenset[str], alike: frozenset[str] = frozenset()) -> PullAdjoint | None:
    """The adjoint in two, or None: if a contribution is costly, or reads memory the adjoint has changed.

    `alike`: other arrays of the targets' shape, whose accumulations come along where they have the same form.
    """
    for names in (targets | _added_only(function, alike), targets):
        made = _prepared(function, names)
        found = made.pull() if made is not None else None
        if found is not None:
            return found
    return None


def _added_only(function: Function, names: frozenset[str]) -> frozenset[str]:
    """Those of the arrays that are only added to."""
    others = {a.name for a in accesses_of(function) if a.stmt.row is not mem.ACCUMULATE}
    added = {a.name for a in accesses_of(function) if a.stmt.row is mem.ACCUMULATE and _offset(a) is not None}
    return names & added - others


@named_pass("stencil store")
def storing(function: Function, names: frozenset[str]) -> Function:
    """A `pull` that stores to the targets in `names`, which hold no adjoint yet, instead of adding to them."""
    copy = simplify.rewrite(function)
    for stmt in walk(copy.body):
        if stmt.row is mem.ACCUMULATE and stmt.args[0].name in names:
            stmt.row = mem.STORE
    return copy


def _prepared(function: Function, targets: frozenset[str]) -> _Scatter | None:
    if not targets or any(type_as(p, Array).ndim != function.rank for p in function.arrays if p.name in targets):
        return None
    accesses = [a for a in accesses_of(function) if a.name in targets]
    places: dict[Stmt, Offset] = {}
    for access in accesses:
        offset = _offset(access)
        if access.stmt.row is not mem.ACCUMULATE or offset is None:
            return None
        places[access.stmt] = offset
    return _Scatter(function, tuple(sorted(targets)), places) if places else None


def _offset(access: Access) -> Offset | None:
    """The constants c where the indices are tid + c, axis by axis; None for any other form."""
    out = []
    for axis, form in enumerate(access.indices):
        if form is None or form.terms != ((("tid", axis), 1),) or access.wraps[axis] is not None:
            return None
        out.append(form.constant)
    return tuple(out)


class _InALoop(Exception):
    """An accumulation inside a loop."""


@dataclass
class _Scatter:
    function: Function
    targets: tuple[str, ...]
    places: dict[Stmt, Offset]
    builder: Builder = field(default_factory=Builder)

    def lifted(self) -> tuple[Function, list[tuple[str, Offset, Value]], Offset] | None:
        """(copy without the accumulations, those as (target, offset, value), the greatest offset per axis)."""
        copy, self.places = self.copied()
        self.builder.region = copy.body
        try:
            pending = self.lift(copy.body)
        except _InALoop:
            return None
        offsets = list(self.places.values())
        high = tuple(max(max(o[k] for o in offsets), 0) for k in range(copy.rank))
        return copy, pending, high

    def copied(self) -> tuple[Function, dict[Stmt, Offset]]:
        """A mutable copy of the function, and the offsets of its accumulations, matched by their order."""
        old = [s for s in walk(self.function.body) if s in self.places]
        copy = simplify.rewrite(self.function)
        new = [s for s in walk(copy.body) if s.row is mem.ACCUMULATE and s.args[0].name in self.targets]
        assert len(old) == len(new)
        return copy, {n: self.places[o] for o, n in zip(old, new, strict=True)}

    def lift(self, region: Region) -> list[tuple[str, Offset, Value]]:
        """Take the accumulations out of a region; what a branch would have added becomes a result of it, or zero."""
        pending: list[tuple[str, Offset, Value]] = []
        kept = []
        for stmt in region.body:
            if stmt in self.places:
                pending.append((stmt.args[0].name, self.places[stmt], stmt.args[-1]))
                continue
            kept.append(stmt)
            if stmt.row is c.IF:
                for side in (0, 1):
                    pending += self.out_of(stmt, side, self.lift(stmt.regions[side]))
            elif any(s in self.places for r in stmt.regions for s in walk(r)):
                raise _InALoop
        region.body[:] = kept
        return pending

    def out_of(self, stmt: Stmt, side: int, inner: list[tuple[str, Offset, Value]]) -> list[tuple[str, Offset, Value]]:
        found: dict[Value, Value] = {}
        for _, _, g in inner:
            if g in found:
                continue
            with self.builder.open(), self.builder.inside(stmt.regions[1 - side]):
                other = constant(g.type, 0)
            out = found[g] = Value(g.type, g.name, g.where, stmt)
            stmt.outs = (*stmt.outs, out)
            stmt.regions[side].results = (*stmt.regions[side].results, g)
            stmt.regions[1 - side].results = (*stmt.regions[1 - side].results, other)
        return [(name, offset, found[g]) for name, offset, g in inner]

    def pull(self) -> PullAdjoint | None:
        found = self.lifted()
        if found is None:
            return None
        copy, pending, high = found
        offsets = sorted({o for _, o, _ in pending})
        needs = {at: _needed(copy, [g for _, o, g in pending if o == at]) for at in offsets}
        if not _cheap(needs) or not _untouched(copy, set().union(*needs.values()), self.targets):
            return None
        self.builder = Builder()
        self.builder.role = "adjoint"
        known = {p: p.copied() for p in copy.params}
        every = self.builder.region.params
        every += known.values()
        grid = [companion(every, Role.EXTENT, "", int32, name=f"launch.dim{k}") for k in range(copy.rank)]
        totals: dict[str, Value] = {}
        with self.builder.open():
            cell = [self.builder.emit(c.TID, attr=c.Tid(k)) for k in range(copy.rank)]
            for offset in offsets:
                wanted = [(name, g) for name, o, g in pending if o == offset]
                at = _At(copy.body, known, needs[offset], wanted, self.builder)
                for name, value in at.contributions(cell, grid, offset, high).items():
                    totals[name] = plus(totals.get(name), value)
            for name, total in totals.items():
                array = next(p for p in every if p.name == name)
                self.builder.emit(mem.ACCUMULATE, array, *cell, total)
        f = self.function
        made = f.with_body(self.builder.region, f"{f.name}_pull", copy.rank)
        copy.name = f"{f.name}_rest"
        names = tuple(g.name for g in grid)
        return PullAdjoint(simplify.adjoint(made), simplify.adjoint(copy), names, tuple(totals), high)


PULLED = 128  # floats worked out anew per cell: beyond, sums in shares are cheaper


def _needed(copy: Function, values: list[Value]) -> set[Value]:
    """All that `values` are computed from, values that a loop carries among them."""
    found: set[Value] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if value in found or value in copy.params:
            continue
        found.add(value)
        stmt = value.stmt
        if stmt is None:
            continue
        stack += stmt.args
        if stmt.row is c.IF:
            k = stmt.outs.index(value)
            stack += [r.results[k] for r in stmt.regions]
    return found


def _cheap(needs: dict[Offset, set[Value]]) -> bool:
    """True if working out anew what each cell needs of the threads around it takes little.

    What is dear may be needed of one of those threads only: so it is worked out as often as before.
    """
    every = [v for needed in needs.values() for v in needed]
    if any(v.stmt is None or (v.stmt.regions and v.stmt.row is not c.IF) for v in every):
        return False  # a loop
    dear = [v for v in every if v.stmt is not None and not v.stmt.row.cheap]
    if any(v.stmt is not None and v.stmt.row.effect is not Effect.PURE for v in dear):
        return False
    return len(dear) == len(set(dear)) and sum(is_float(v.type) for v in every) <= PULLED


def _untouched(copy: Function, needed: set[Value], targets: tuple[str, ...]) -> bool:
    """True if nothing that is computed anew reads memory that the thread has written before."""
    written = set(targets)
    for stmt in walk(copy.body):
        if stmt.row is mem.LOAD:
            if stmt.outs[0] in needed and root(stmt.args[0]).name in written:
                return False
        elif stmt.row.effect is not Effect.PURE and stmt.args and isinstance(stmt.args[0].type, Array):
            written.add(root(stmt.args[0]).name)
    return True


@dataclass
class _At:
    """The contribution of the thread `offset` away to this cell: the slice of `body` behind `wanted`."""

    body: Region
    known: dict[Value, Value]
    needed: set[Value]
    wanted: list[tuple[str, Value]]
    builder: Builder

    def contributions(self, cell: list[Value], grid: list[Value], offset: Offset, high: Offset) -> dict[str, Value]:
        """Per target; zero where there is no such thread."""
        self.grid = grid
        self.thread = [x if o == 0 else ROWS["sub"](x, constant(int32, o)) for x, o in zip(cell, offset, strict=True)]
        there = None
        for k, (q, o) in enumerate(zip(self.thread, offset, strict=True)):
            tests = [ROWS["ge"](q, constant(int32, 0))] if o > 0 else []
            tests += [ROWS["lt"](q, grid[k])] if o < high[k] else []
            for test in tests:
                there = test if there is None else ROWS["logical_and"](there, test)
        if there is None:
            return self.sums()
        sums: dict[str, Value] = {}

        def write() -> Iterable[Value]:
            sums.update(self.sums())
            return sums.values()

        made = in_branch(self.builder, there, write)
        return dict(zip(sums, made, strict=True))

    def sums(self) -> dict[str, Value]:
        known = dict(self.known)
        self.region(self.body, known)
        found: dict[str, Value] = {}
        for name, g in self.wanted:
            found[name] = plus(found.get(name), known[g])
        return found

    def region(self, region: Region, known: dict[Value, Value]) -> None:
        for stmt in region.body:
            outs = [o for o in stmt.outs if o in self.needed]
            if not outs:
                continue
            if stmt.row is c.TID or stmt.row is c.DIM:
                known[outs[0]] = (self.thread if stmt.row is c.TID else self.grid)[stmt.attr.axis]
                continue
            regions = tuple(self.copy(r, [stmt.outs.index(o) for o in outs], known) for r in stmt.regions)
            args = [known[a] for a in stmt.args]
            made = self.builder.append(stmt.row, args, [o.type for o in outs], regions, attr=stmt.attr)
            known.update(zip(outs, made.outs, strict=True))

    def copy(self, region: Region, kept: list[int], known: dict[Value, Value]) -> Region:
        new, inner = Region(), dict(known)
        with self.builder.inside(new):
            self.region(region, inner)
        new.results = tuple(inner[region.results[k]] for k in kept)
        return new
