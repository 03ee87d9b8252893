"""The fate of every result: the history of the floats that a tape computed, from the write to the first read.

One idea: a write on an active path is a `Result` until somebody reads one of its bytes; another write that certainly
covers all of it wipes it. Only writes whose bytes the indices decide count as certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..arrays.allocation import Allocation
from ..arrays.array import span_of
from ..arrays.interval_index import SpanIndex
from ..arrays.span import Span
from ..kernels.analysis.accesses import accesses_by_array
from ..kernels.ops import memory
from ..tapes.kinds import COPY
from .rule import RuleInput
from .walk_step import EventAccess, WalkStep, positions

Site = tuple  # (label, line, which of its writes)


@dataclass(eq=False)
class Result:
    """A write of floats on an active path, unread so far."""

    step: WalkStep
    access: EventAccess
    site: Site


@dataclass(eq=False)
class Alike:
    """Results on one span by launches of one plan (or by none): a read or overwrite ends them together."""

    span: Span
    results: list[Result] = field(default_factory=list)


class Pending:
    """The results that are unread so far."""

    def __init__(self) -> None:
        self.groups: dict[tuple, Alike] = {}
        self.on: dict[Allocation, SpanIndex[tuple]] = {}

    def put(self, result: Result) -> None:
        span, command = result.access.span, result.step.event.command
        key = span, None if command is None else command.plan
        if key not in self.groups:
            self.groups[key] = Alike(span)
            self.on.setdefault(span.allocation, SpanIndex()).put(key, span)
        self.groups[key].results.append(result)

    def near(self, span: Span) -> list[tuple[tuple, Alike]]:
        """The (key, group) pairs that may share a byte with `span`."""
        return [(k, self.groups[k]) for k in self.on[span.allocation].met(span)] if span.allocation in self.on else []

    def drop(self, key: tuple) -> list[Result]:
        """Remove a group. Returns its results."""
        group = self.groups.pop(key)
        self.on[group.span.allocation].remove(key)
        return group.results


@dataclass
class History:
    """The fate of a tape's results. `wiped`: (result, step that overwrote it unread). `left`: results never read.

    `reads`: how many results of each site were read. `first_write`, `last_read`: by memory; `first_reads`: by
    span. `writes`: all spans that were written.
    """

    wiped: list[tuple[Result, WalkStep]] = field(default_factory=list)
    left: list[Result] = field(default_factory=list)
    reads: dict[Site, int] = field(default_factory=dict)
    sites: dict[Site, list[Result]] = field(default_factory=dict)
    first_reads: dict[Span, tuple[WalkStep, EventAccess]] = field(default_factory=dict)
    writes: dict[Allocation, set[Span]] = field(default_factory=dict)
    first_write: dict[Allocation, tuple[int, WalkStep, EventAccess]] = field(default_factory=dict)
    last_read: dict[Allocation, tuple[int, WalkStep, EventAccess]] = field(default_factory=dict)

    def written(self, span: Span) -> bool:
        """True if one of these bytes was written, or may have been."""
        spans = self.writes.get(span.allocation, ())
        return span in spans or any(s.overlaps(span) is not False for s in spans)


def history_of(case: RuleInput) -> History:
    """The history of all floats of a tape."""
    found = History()
    pending = Pending()
    for n, step in enumerate(case.trail.steps):
        if not step.event.kind.own:
            continue
        _reads(n, step, pending, found)
        writes = [x for x in step.accesses if x.writes and x.span.nbytes]
        covering = list(_covering(step, writes)) if any(pending.near(x.span) for x in writes) else []
        for k, x in enumerate(writes):
            a = x.span.allocation
            found.first_write.setdefault(a, (n, step, x))
            found.writes.setdefault(a, set()).add(x.span)
            _wipe(step, k, x, covering, pending, found)
            if _matters(case, step, x):
                result = Result(step, x, (step.event.label, step.event.line, k))
                found.sites.setdefault(result.site, []).append(result)
                pending.put(result)
    left = [r for group in pending.groups.values() for r in group.results]
    found.left = sorted(left, key=lambda r: case.trail.order[r.step.event])
    return found


def _reads(n: int, step: WalkStep, pending: Pending, found: History) -> None:
    for x in step.accesses:
        if (x.writes and not step.event.kind.calls_back) or not x.span.nbytes:
            continue
        a = x.span.allocation
        found.first_reads.setdefault(x.span, (step, x))
        found.last_read[a] = n, step, x
        for key, _ in pending.near(x.span):
            for r in pending.drop(key):
                found.reads[r.site] = found.reads.get(r.site, 0) + 1


def _wipe(step: WalkStep, k: int, x: EventAccess, covering: list[Span], pending: Pending, found: History) -> None:
    if not x.plain:
        return
    for key, group in pending.near(x.span):
        if _again(group.results[0], step, k, x) or any(s.contains(group.span) for s in covering):
            own = [r for r in group.results if r.step is step]
            found.wiped += [(r, step) for r in pending.drop(key) if r.step is not step]
            for r in own:
                pending.put(r)


def _matters(case: RuleInput, step: WalkStep, x: EventAccess) -> bool:
    event = step.event
    active = event.reverse is not None if event.command is not None else event.kind is COPY and event.followed
    return active and x.scalar is not None and x.span.allocation in case.tape.active


def _covering(step: WalkStep, writes: list[EventAccess]) -> Iterator[Span]:
    """The spans that an event certainly stores to, every byte of them."""
    command = step.event.command
    if command is None:
        yield from (x.span for x in writes if x.plain)
        return
    yield from (span_of(command.flat[k], box) for k, box in command.plan.stores)


def _again(result: Result, step: WalkStep, k: int, x: EventAccess) -> bool:
    """True if the same launch on the same memory stores to exactly the same elements again."""
    first, second = result.step.event.command, step.event.command
    if first is None or second is None or first.plan is not second.plan or x.span != result.access.span:
        return False
    name = second.program.leaves[positions(step.event, "writes")[k]].name
    touches = accesses_by_array(second.plan.forward.function)[name].writes
    return all(t.stmt.row is memory.STORE and t.certain and None not in t.indices for t in touches)
