"""A scatter becomes a map and a gather: the adjoint of a stencil without atomics, in parallel.

The adjoint of `u[i - 1, j]` adds to `d_u[i - 1, j]`: threads meet. Where every such index is a thread index plus a
constant, each thread can store its contribution in a `part` of its own instead, and a second function adds up, for
each cell, the parts of the threads around it. Both have one writer per address. Parts have a rim of zeros, so the
sum needs no tests at the border. (The gather form of adjoint stencils: Hückelheim et al., ICPP 2019, arXiv:1907.02818.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import ranges, simplify
from .ir import Builder, Function, Region, Stmt, Value, walk
from .ops import control as c
from .ops import memory as mem
from .ops.row import ROWS
from .types import Array, int32

Offset = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """One value of every thread, added to array `target` at each of `offsets` from the thread's own cell."""

    name: str
    target: str
    type: Array
    offsets: tuple[Offset, ...]


@dataclass(frozen=True)
class Split:
    """`map` stores parts, `gather` adds them up. The rim of a part is `rim` cells wide on both sides of each axis.

    `gather` has one thread per cell; cells that can get something reach `high` beyond the launch grid.
    """

    map: Function
    gather: Function
    parts: tuple[Part, ...]
    targets: tuple[str, ...]
    low: Offset
    high: Offset

    @property
    def rim(self) -> Offset:
        return tuple(h - low for low, h in zip(self.low, self.high, strict=True))


def split(function: Function, targets: frozenset[str]) -> Split | None:
    """Split the accumulations into `targets` off an adjoint, or None where one of them has another form."""
    if not targets or any(p.type.ndim != function.rank for p in function.arrays if p.name in targets):  # type: ignore[attr-defined]
        return None
    accesses = [a for a in ranges.accesses(function) if a.name in targets]
    places: dict[Stmt, Offset] = {}
    for access in accesses:
        offset = _offset(access)
        if access.stmt.row is not mem.ACCUMULATE or offset is None:
            return None
        places[access.stmt] = offset
    if not places:
        return None
    return _Split(function, tuple(sorted(targets)), places).build()


def _offset(access: ranges.Access) -> Offset | None:
    """The constants c where the indices are tid + c, axis by axis; None for any other form."""
    out = []
    for axis, form in enumerate(access.indices):
        if form is None or form.terms != ((("tid", axis), 1),) or access.wraps[axis] is not None:
            return None
        out.append(form.constant)
    return tuple(out)


class _Unsplittable(Exception):
    """An accumulation inside a loop."""


@dataclass
class _Split:
    function: Function
    targets: tuple[str, ...]
    places: dict[Stmt, Offset]
    builder: Builder = field(default_factory=Builder)

    def build(self) -> Split | None:
        copy, self.places = self.copied()
        self.builder.region = copy.body
        try:
            pending = self.lift(copy.body)
        except _Unsplittable:
            return None
        offsets = list(self.places.values())
        low = tuple(min(min(o[k] for o in offsets), 0) for k in range(copy.rank))
        high = tuple(max(max(o[k] for o in offsets), 0) for k in range(copy.rank))
        parts, values = self.grouped(pending)
        with self.builder.open():
            self.builder.role = "adjoint"
            self.store(copy, parts, values, tuple(h - n for n, h in zip(low, high, strict=True)))
        copy.name = f"{self.function.name}_map"
        gather = self.gather(parts, low, high)
        return Split(simplify.adjoint(copy), gather, tuple(parts), self.targets, low, high)

    def copied(self) -> tuple[Function, dict[Stmt, Offset]]:
        """A copy to change, with the same accumulations found again by their order."""
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
                raise _Unsplittable
        region.body[:] = kept
        return pending

    def out_of(self, stmt: Stmt, side: int, inner: list[tuple[str, Offset, Value]]) -> list[tuple[str, Offset, Value]]:
        found: dict[Value, Value] = {}
        for _, _, g in inner:
            if g in found:
                continue
            with self.builder.inside(stmt.regions[1 - side]):
                other = self.builder.append(c.CONST, (), (g.type,), attr=0).outs[0]
            out = found[g] = Value(g.type, g.name, g.where, stmt)
            stmt.outs = (*stmt.outs, out)
            stmt.regions[side].results = (*stmt.regions[side].results, g)
            stmt.regions[1 - side].results = (*stmt.regions[1 - side].results, other)
        return [(name, offset, found[g]) for name, offset, g in inner]

    def grouped(self, pending: list[tuple[str, Offset, Value]]) -> tuple[list[Part], list[Value]]:
        """One part per value; values that go to the same cells are added first."""
        cells: dict[tuple[str, Value], list[Offset]] = {}
        for name, offset, g in pending:
            cells.setdefault((name, g), []).append(offset)
        sums: dict[tuple[str, tuple[Offset, ...]], list[Value]] = {}
        for (name, g), offsets in cells.items():
            sums.setdefault((name, tuple(sorted(offsets))), []).append(g)
        parts, values = [], []
        for k, ((name, offsets), gs) in enumerate(sums.items()):
            total = gs[0]
            with self.builder.open():
                for g in gs[1:]:
                    total = ROWS["add"](total, g)
            parts.append(Part(f"part_{k}", name, Array(total.type, len(offsets[0])), offsets))
            values.append(total)
        return parts, values

    def tids(self, rank: int) -> list[Value]:
        return [self.builder.append(c.TID, (), (int32,), attr=c.Tid(k)).outs[0] for k in range(rank)]

    def number(self, value: int) -> Value:
        return self.builder.append(c.CONST, (), (int32,), attr=value).outs[0]

    def store(self, copy: Function, parts: list[Part], values: list[Value], rim: Offset) -> None:
        tids = self.tids(copy.rank)
        places = [ROWS["add"](t, self.number(r)) for t, r in zip(tids, rim, strict=True)]
        for part, value in zip(parts, values, strict=True):
            param = Value(part.type, part.name)
            copy.body.params.append(param)
            self.builder.emit(mem.STORE, param, *places, value)

    def gather(self, parts: list[Part], low: Offset, high: Offset) -> Function:
        """Per cell: the array's own value plus the parts of the threads around it."""
        self.builder = Builder()
        self.builder.role = "adjoint"
        params = self.builder.region.params
        rank = len(low)
        arrays = {p.name: Value(p.type, p.name) for p in self.function.params if p.name in self.targets}
        inputs = [Value(part.type, part.name) for part in parts]
        params += [*(arrays[t] for t in self.targets), *inputs]
        with self.builder.open():
            cell = self.tids(rank)
            for target in self.targets:
                total = None
                for part, value in zip(parts, inputs, strict=True):
                    for offset in part.offsets if part.target == target else ():
                        at = [ROWS["add"](x, self.number(h - n - o))
                              for x, o, n, h in zip(cell, offset, low, high, strict=True)]  # fmt: skip
                        term = self.builder.emit(mem.LOAD, value, *at)
                        total = term if total is None else ROWS["add"](total, term)
                if total is not None:
                    self.builder.emit(mem.ACCUMULATE, arrays[target], *cell, total)
        f = self.function
        return Function(f"{f.name}_gather", self.builder.region, rank, f.where, f.source, f.first_line, f.file)
