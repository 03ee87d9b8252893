"""A rule about derivatives that end at a statement: a cast to whole numbers, a rounding or a comparison.

It needs no dead leaf: the adjoint that arrives at what the kernel writes is not zero, what it was computed from lies on
an active path, and between the two stands a statement whose derivative is zero everywhere (`cuts_of`). Each value
carries the reads whose derivative reaches it, and the statements through which others reach it without one. What is
rounded and then subtracted from what it was made of, as the place of a particle in its cell, has its derivative still;
so has a choice between values that have one. Addresses, and bounds and conditions of loops carry nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..kernels import ir
from ..kernels.ir import is_value
from ..kernels.ops import control, memory, scalar, vectors
from ..kernels.row import Effect
from ..kernels.types import bool_, is_float
from .finding import Finding
from .walk_record import RuleInput
from .walk_step import WalkStep
from .zero_adjoint import ZeroedAt, flat

Read = tuple  # (array parameter, *indices): two reads of one element are one
Token = ir.Stmt | str  # where a derivative ends; or the name of an integer array, if that happened in another launch
Reads = frozenset[Read]
Pending = dict[Token, Reads]

_TESTS = (scalar.ISNAN, scalar.ISINF, scalar.ISFINITE)
_STEPS = (scalar.SIGN, scalar.STEP, scalar.NONZERO)
_NO_READS: Reads = frozenset()


@dataclass(frozen=True)
class CutWrite:
    """A write to `into` that depends on `sources` through `stmt` alone, so that it has no derivative there.

    `stmt` is None where whole numbers are read from `via`. `alive`: the value that is written has a derivative by
    something else. `decides`: it is a constant, and the cut decides whether it is written. `sources`, and `others`, by
    which anything that is written there has a derivative, are array parameters.
    """

    stmt: ir.Stmt | None
    via: str
    sources: frozenset[str]
    into: str
    others: frozenset[str]
    alive: bool
    decides: bool

    @property
    def compares(self) -> bool:
        """True if the statement without a derivative is a decision, not a rounding."""
        return self.stmt is not None and compares(self.stmt)


def cuts_of(function: ir.Function, active: frozenset[str]) -> list[CutWrite]:
    """The cuts of a kernel whose parameters in `active` have gradients, in the order of its statements."""
    reader = _CutReader(function, active)
    found: dict[CutWrite, None] = {}
    for into, live in reader.written.items():
        decided = {t: r for t, r in reader.decided.get(into, {}).items() if not r & live}  # else: a branch of several
        stored = reader.stored.get(into, {})
        for token, reads in {**decided, **stored}.items():
            stmt = token if isinstance(token, ir.Stmt) else None
            beside = (token, into) not in reader.alone if token in stored else bool(live)
            via, sources, others = "" if stmt else str(token), _parameters(reads), _parameters(live)
            found.setdefault(CutWrite(stmt, via, sources, into, others, beside, token not in stored))
    return list(found)


def dead_end(function: ir.Function, sources: frozenset[str]) -> ZeroedAt | None:
    """The end of the paths from `sources` if nothing that is written has a derivative by them; None if it has."""
    reader = _CutReader(function, sources, meant=True)
    tokens = (t for found in (*reader.stored.values(), *reader.decided.values()) for t in found)
    ends = [t for t in tokens if isinstance(t, ir.Stmt)]
    if any(reader.written.values()) or not ends:
        return None
    return flat(next((s for s in ends if s.outs[0].type != bool_), ends[0]))


def _parameters(reads: Reads) -> frozenset[str]:
    return frozenset(r[0] for r in reads)


class _CutReader:
    """`meant`: a `wb.detach` is a cut too."""

    def __init__(self, function: ir.Function, active: frozenset[str], meant: bool = False):
        self.active, self.meant = active, meant
        self.live: dict[ir.Value, Reads] = {
            p: frozenset({(p.name,)}) for p in function.params if p.name in active and is_value(p.type)
        }
        self.pending: dict[ir.Value, Pending] = {}
        self.written: dict[str, Reads] = {}  # by array, what has a derivative of what is written to it
        self.stored: dict[str, Pending] = {}  # what is written to it and has none
        self.decided: dict[str, Pending] = {}  # what decides whether something without a derivative is written
        self.alone: set[tuple[Token, str]] = set()  # of `stored`, where all of a value has none
        self.control: list[Pending] = []
        size = -1
        while size != self._size():  # loops carry values back to their start
            size = self._size()
            self._region(function.body)

    def _size(self) -> int:
        return sum(map(len, self.live.values())) + sum(1 + len(r) for p in self.pending.values() for r in p.values())

    def _live(self, values: Iterable[ir.Value]) -> Reads:
        return frozenset().union(*(self.live.get(v, _NO_READS) for v in values))

    def _pending(self, values: Iterable[ir.Value]) -> Pending:
        found: Pending = {}
        for v in values:
            _merge(found, self.pending.get(v, {}))
        return found

    def _put(self, out: ir.Value, live: Reads, pending: Pending) -> None:
        if live:
            self.live[out] = self.live.get(out, _NO_READS) | live
        if pending:
            _merge(self.pending.setdefault(out, {}), pending)

    def _region(self, region: ir.Region) -> None:
        for stmt in region.body:
            self._statement(stmt)

    def _statement(self, stmt: ir.Stmt) -> None:
        row = stmt.row
        if row is control.IF:
            self._branch(stmt)
        elif row in (control.FOR, control.WHILE):
            self._loop(stmt)
        elif row is control.CALL:  # a func with a gradient of its own: whoever writes one means what it says
            for out in stmt.outs:
                self._put(out, self._live(stmt.args) if is_float(out.type) else _NO_READS, {})
        elif row is memory.LOAD:
            self._load(stmt)
        elif row.effect in (Effect.WRITES, Effect.ACCUMULATES):
            self._write(stmt)
        elif row is scalar.WHERE:
            self._choose(stmt.outs[0], stmt.args[1:], self.pending.get(stmt.args[0], {}))
        elif row.effect is Effect.PURE and stmt.outs and (self.meant or not row.cut):
            self._pure(stmt)

    def _load(self, stmt: ir.Stmt) -> None:
        name, out = ir.root(stmt.args[0]).name, stmt.outs[0]
        if is_float(out.type):
            if name in self.active:
                self._put(out, frozenset({(name, *stmt.args[1:])}), {})
        elif out.type != bool_:
            self._put(out, _NO_READS, {name: _NO_READS})

    def _pure(self, stmt: ir.Stmt) -> None:
        live, pending = self._live(stmt.args), self._pending(stmt.args)
        for out in stmt.outs:
            passes = is_float(out.type) and stmt.row.adjoint is not None
            if live and not passes and stmt.row not in _TESTS and stmt.row is not memory.WRAP:
                pending = {**pending, stmt: live}
            own, left = live if passes else _NO_READS, pending
            if own and stmt.row not in (vectors.CONSTRUCT, scalar.CAST):  # else it depends on them differentiably too
                added = stmt.row is scalar.ADD  # to which a rounded part stays cut
                left = {t: r for t, r in pending.items() if not r & own or (added and not compares(t))}
            self._put(out, own, left)

    def _choose(self, out: ir.Value, sides: Iterable[ir.Value], decided: Pending) -> None:
        """The reads and cuts of a choice: its condition is a cut only if neither value has a derivative."""
        sides = tuple(sides)
        live, pending = self._live(sides), self._pending(sides)
        if not live and not _same(*sides):
            _merge(pending, decided)
        self._put(out, live, pending)

    def _branch(self, stmt: ir.Stmt) -> None:
        decided = self.pending.get(stmt.args[0], {})
        self.control.append(decided)
        for region in stmt.regions:
            self._region(region)
        self.control.pop()
        for out, *sides in zip(stmt.outs, *(r.results for r in stmt.regions), strict=True):
            self._choose(out, sides, decided)

    def _loop(self, stmt: ir.Stmt) -> None:
        rows = control.carried(stmt)
        for _, first, param, result in rows:
            self._put(param, self._live((first, result)), self._pending((first, result)))
        if stmt.row is control.WHILE:
            for row, param in zip(rows, stmt.regions[0].params, strict=True):
                self._put(param, self._live((row.param,)), self._pending((row.param,)))
            self._region(stmt.regions[0])
        self._region(stmt.regions[-1])
        for out, first, _, result in rows:
            self._put(out, self._live((first, result)), self._pending((first, result)))

    def _write(self, stmt: ir.Stmt) -> None:
        value, name = stmt.args[-1], ir.root(stmt.args[0]).name
        live, pending = self._live((value,)), self._pending((value,))
        self.written[name] = self.written.get(name, _NO_READS) | live
        _merge(self.stored.setdefault(name, {}), pending)
        self.alone.update((token, name) for token in (() if live else pending))
        for decided in () if live else self.control:
            _merge(self.decided.setdefault(name, {}), decided)


def compares(token: Token) -> bool:
    """True for a statement that decides between two values, False for one that rounds."""
    return isinstance(token, ir.Stmt) and (token.outs[0].type == bool_ or token.row in _STEPS)


def _merge(into: Pending, other: Pending) -> None:
    for token, reads in other.items():
        into[token] = into.get(token, _NO_READS) | reads


def _same(a: ir.Value, b: ir.Value) -> bool:
    constants = all(v.stmt is not None and v.stmt.row is control.CONST for v in (a, b))
    return a is b or (constants and a.stmt.attr == b.stmt.attr)  # type: ignore[union-attr]


@dataclass(frozen=True)
class _Origin:
    """The cut through which an integer array lost its derivative: the launch, the statement, the source arrays."""

    step: WalkStep
    cut: CutWrite
    sources: dict[Allocation, str]


def cut_derivatives(case: RuleInput) -> Iterator[Finding]:
    """Finds floats that are used later and depend on an active array only through a statement without a derivative."""
    whole: dict[Allocation, _Origin] = {}
    told: set = set()
    makers: dict[Allocation, set] = {}  # the lines that wrote each memory
    for step in case.trail.steps:
        if step.event.command is None:
            continue
        for cut in _cuts(case, step):
            found = _origin(case, step, cut, whole)
            if found is None:
                continue
            target = _array(step, cut.into).allocation
            if not is_float(_array(step, cut.into).dtype):
                whole[target] = found
            elif any(size > 0 for x, size in step.came.items() if x.span.allocation is target):
                others = makers.get(target, set()) - {(step.event.label, step.event.line)}
                soft = cut.compares and (cut.alive or (cut.decides and (bool(others) or target.asked)))
                finding = _cut_finding(step, cut, found, case, soft)
                if (finding.where, finding.arrays) not in told:
                    told.add((finding.where, finding.arrays))
                    yield finding
        for x in step.accesses:
            if x.writes:
                makers.setdefault(x.span.allocation, set()).add((step.event.label, step.event.line))


def _cuts(case: RuleInput, step: WalkStep) -> list[CutWrite]:
    command = step.event.command
    program = command.program
    places = {*program.array_positions, *command.declared}
    active = frozenset(program.leaves[k].name for k in places if command.places[k].allocation in case.tape.active)
    return program.once(cuts_of, command.plan.forward.function, active)


def _origin(case: RuleInput, step: WalkStep, cut: CutWrite, whole: dict[Allocation, _Origin]) -> _Origin | None:
    """The cut that ended a derivative; None if the integers that are read depend on no active array."""
    if cut.stmt is not None:
        return _Origin(step, cut, {_array(step, n).allocation: _name(case, step, n) for n in sorted(cut.sources)})
    found = whole.get(_array(step, cut.via).allocation)
    others = {_array(step, n).allocation for n in cut.others}
    return None if found is None or others & set(found.sources) else found


def _array(step: WalkStep, parameter: str) -> array:
    return next(a for leaf, a in step.event.arguments if leaf.name == parameter)


def _name(case: RuleInput, step: WalkStep, parameter: str) -> str:
    return case.tape.names.of(_array(step, parameter), parameter)


def _cut_finding(step: WalkStep, cut: CutWrite, found: _Origin, case: RuleInput, soft: bool) -> Finding:
    assert found.cut.stmt is not None
    death = flat(found.cut.stmt)
    sources, into = tuple(found.sources.values()), _name(case, step, cut.into)
    text = (
        f"what {into} takes from {' and '.join(sources)} by this line has no derivative, because {death.reason}: the"
        f" gradient that arrives at {into} does not reach {' and '.join(sources)} through it."
    )
    severity, where = "info" if soft else "warning", death.where or step.event.where
    return found.step.finding("cut", severity, text, death.fix, (into, *sources), where)
