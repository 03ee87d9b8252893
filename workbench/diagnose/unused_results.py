"""Rules about results that nobody uses: overwritten or wiped unread, computed into the wrong buffer, or left over.

A program that is right reads what it computes. A write on an active path is a `Result` until somebody reads one of its
bytes; another write that certainly covers all of it wipes it. What the host may have seen (memory that was ever shown
to NumPy) counts as read; the last of a series whose others were read is ordinary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ..arrays.allocation import Allocation
from ..arrays.array import span_of
from ..arrays.grouping import grouped
from ..arrays.interval_index import SpanIndex
from ..arrays.span import Span
from ..device import on_host
from ..kernels.analysis.accesses import accesses_by_array
from ..kernels.ops import memory
from ..tapes.kinds import COPY
from .finding import Finding
from .walk_record import RuleInput
from .walk_step import EventAccess, WalkStep, positions

Site = tuple  # (label, line, which of its writes)


@dataclass(eq=False)
class Result:
    """A write of floats on an active path, unread so far."""

    step: WalkStep
    access: EventAccess
    site: Site


class Pending:
    """The results that are unread so far, by span and plan of their launch: a read or overwrite ends them together."""

    def __init__(self) -> None:
        self.groups: dict[tuple, list[Result]] = {}
        self.on: dict[Allocation, SpanIndex[tuple]] = {}

    def put(self, result: Result) -> None:
        span, command = result.access.span, result.step.event.command
        key = span, None if command is None else command.plan
        if key not in self.groups:
            self.groups[key] = []
            self.on.setdefault(span.allocation, SpanIndex()).put(key, span)
        self.groups[key].append(result)

    def near(self, span: Span) -> list[tuple]:
        """The keys of the groups that may share a byte with `span`."""
        return list(self.on[span.allocation].met(span)) if span.allocation in self.on else []

    def drop(self, key: tuple) -> list[Result]:
        """Remove a group. Returns its results."""
        self.on[key[0].allocation].remove(key)
        return self.groups.pop(key)


@dataclass
class History:
    """The fate of a tape's results. `wiped`: (result, step that overwrote it unread). `left`: results never read.

    `reads`: how many results of each site were read. `last_read`: by memory; `first_reads`: by span. `writes`: all
    spans that were written, by memory.
    """

    wiped: list[tuple[Result, WalkStep]] = field(default_factory=list)
    left: list[Result] = field(default_factory=list)
    reads: Counter[Site] = field(default_factory=Counter)
    sites: dict[Site, list[Result]] = field(default_factory=dict)
    first_reads: dict[Span, tuple[WalkStep, EventAccess]] = field(default_factory=dict)
    writes: dict[Allocation, set[Span]] = field(default_factory=dict)
    last_read: dict[Allocation, tuple[WalkStep, EventAccess]] = field(default_factory=dict)

    def written(self, span: Span) -> bool:
        """True if one of these bytes was written, or may have been."""
        spans = self.writes.get(span.allocation, ())
        return span in spans or any(s.overlaps(span) is not False for s in spans)


def history_of(case: RuleInput) -> History:
    """The history of all floats of a tape."""
    found = History()
    pending = Pending()
    for step in case.trail.steps:
        if not step.event.kind.own:
            continue
        _reads(step, pending, found)
        writes = [x for x in step.accesses if x.writes and x.span.nbytes]
        covering = list(_covering(step, writes)) if any(pending.near(x.span) for x in writes) else []
        for k, x in enumerate(writes):
            found.writes.setdefault(x.span.allocation, set()).add(x.span)
            _wipe(step, k, x, covering, pending, found)
            event = step.event
            active = event.reverse is not None if event.command is not None else event.kind is COPY and event.followed
            if active and x.scalar is not None and x.span.allocation in case.tape.active:
                result = Result(step, x, (step.event.label, step.event.line, k))
                found.sites.setdefault(result.site, []).append(result)
                pending.put(result)
    left = [r for group in pending.groups.values() for r in group]
    found.left = sorted(left, key=lambda r: case.trail.order[r.step.event])
    return found


def _reads(step: WalkStep, pending: Pending, found: History) -> None:
    for x in step.accesses:
        if (x.writes and not step.event.kind.calls_back) or not x.span.nbytes:
            continue
        found.first_reads.setdefault(x.span, (step, x))
        found.last_read[x.span.allocation] = step, x
        for key in pending.near(x.span):
            found.reads.update(r.site for r in pending.drop(key))


def _wipe(step: WalkStep, k: int, x: EventAccess, covering: list[Span], pending: Pending, found: History) -> None:
    if not x.plain:
        return
    for key in pending.near(x.span):
        if _again(pending.groups[key][0], step, k, x) or any(s.contains(key[0]) for s in covering):
            for r in pending.drop(key):
                if r.step is step:
                    pending.put(r)
                else:
                    found.wiped.append((r, step))


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


TWICE = 2


def unused_results(case: RuleInput) -> Iterator[Finding]:
    """Finds results lost unread, buffers read in place of another one, and leftovers."""
    history = history_of(case)
    seeded = set(case.trail.seeded)
    told: set[Site] = set()
    floats = [(s, x) for s, x in history.first_reads.values() if x.scalar is not None and s.event.command is not None]
    unwritten = [(step, x) for step, x in floats if not history.written(x.span)]
    for step, read in unwritten:
        twin = _twin(step, read, history, seeded)
        if twin is not None:
            told.add(twin.site)
            name, other = read.name, twin.access.name
            text = (
                f"{name} is read here, and nothing on this tape has written it, while {twin.step.title}"
                f" ({twin.step.event.where}) computed {other}, of the same shape and type: one is taken for the other."
            )
            fix = f"pass {other} here, or let {twin.step.event.label!r} write {name}"
            yield step.finding("unwritten-read", "warning", text, fix, (name, other))
    yield from _wiped(history, seeded, told)
    yield from _stale(history, seeded, told)
    yield from _unread_results(history, seeded, told)


# ---- overwritten or wiped before anybody read it


def _wiped(history: History, seeded: set[Allocation], told: set[Site]) -> Iterator[Finding]:
    for result, by in history.wiped:
        site = result.site
        if site in told or result.access.span.allocation.exposed or history.reads.get(site, 0) > 1:
            continue
        told.add(site)
        name, how, a = result.access.name, by.event.label, result.access.span.allocation
        again = site[:2] == (by.event.label, by.event.line)
        fixed = _fixed_input(by, history) if again else None
        never = a not in history.last_read and a not in seeded
        if (never or again) and _others_used(result, history, seeded):
            continue  # an output beside others, for somebody else or of which the last is meant
        if never and fixed is None:
            yield _nobodys(result, "warning" if result.access.array.size > 1 else "info")
            continue
        if by.event.kind.fills:
            text = (
                f"{name}.{how}() clears {name} here, before anybody read what {result.step.title} computed into it:"
                " nothing of that, and none of its gradient, is used."
            )
            fix = f"{how}() before the launches that compute {name}, or behind those that read it"
            yield by.finding("wiped", "warning", text, fix, (name,))
            continue
        names, fix = (name,), f"read {name} first, or use an array of its own for each result"
        text = f"{name} is overwritten here, and nobody read what {result.step.title}"
        text += f" ({result.step.event.where}) computed into it."
        if fixed:
            names, fix = (name, fixed.name), f"swap {fixed.name} and {name} behind each launch"
            text += f" Every launch of {how!r} on this line reads {fixed.name}, which nobody writes: the two"
            text += " buffers are never swapped."
        yield by.finding("overwritten-unread", "warning", text, fix, names)


def _others_used(result: Result, history: History, seeded: set[Allocation]) -> bool:
    """True if another output of the same launch is read or seeded."""
    others = (s for s in history.sites if s[:2] == result.site[:2] and s != result.site)
    used = (history.reads.get(s) or history.sites[s][-1].access.span.allocation in seeded for s in others)
    return any(used)


def _fixed_input(step: WalkStep, history: History) -> EventAccess | None:
    """The input that a repeated launch reads each time although nobody writes it: one of two unswapped buffers."""
    out = next(x for x in step.accesses if x.writes)
    never = (x for x in step.accesses if not x.writes and x.span.allocation not in history.writes)
    return next((x for x in never if _alike(x, out)), None)


# ---- a buffer read that nobody wrote


def _twin(step: WalkStep, read: EventAccess, history: History, seeded: set[Allocation]) -> Result | None:
    """A result that may have been meant at this read: another item of the same list, or an unread similar array."""
    a, earlier = read.span.allocation, []
    blank = not np.any(on_host(read.array.data))
    whole, at = _item(read.name)
    for site, results in history.sites.items():
        if whole and whole == _item(results[0].access.name)[0]:
            before = [r for r in results if r.step.event.id < step.event.id and _alike(read, r.access)]
            earlier += before if blank else []
            continue
        result = results[-1]
        free = not history.reads.get(site) and _only_read_here(result, seeded)
        meant = a in history.writes or a.asked
        if free and not meant and _alike(read, result.access) and (blank or _same_stem(read.name, result.access.name)):
            return result
    nearest = lambda r: (abs(_item(r.access.name)[1] - at), -r.step.event.id)  # noqa: E731  in the list, then the latest
    return min(earlier, key=nearest, default=None)


def _only_read_here(result: Result, seeded: set[Allocation]) -> bool:
    """True if only the tape can read it: it is not seeded, and no other library has its memory."""
    a = result.access.span.allocation
    return a not in seeded and not a.exposed


def _alike(x: EventAccess, y: EventAccess) -> bool:
    return x.array.shape == y.array.shape and x.array.dtype == y.array.dtype and x is not y


_ITEM = re.compile(r"^(.*)\[(-?\d+)\]$")
_WORD = re.compile(r"[A-Za-z]+")


def _item(name: str) -> tuple[str, int]:
    """(`x`, 3) for `x[3]`; ("", 0) for no item of a list."""
    found = _ITEM.match(name)
    return (found[1], int(found[2])) if found else ("", 0)


def _same_stem(a: str, b: str) -> bool:
    """True for names such as `f` and `f2`, `force` and `force_new`, `self.v` and `self.v_next`."""
    left, right = (_WORD.findall(name.rpartition(".")[2]) for name in (a, b))
    return bool(left and right and left[0] == right[0])


# ---- the last turn, and what is left over


def _stale(history: History, seeded: set[Allocation], told: set[Site]) -> Iterator[Finding]:
    """Finds a series whose last result is unread while the one before it is read after it."""
    lasts = (r for r in history.left if history.reads[r.site] >= TWICE and history.sites[r.site][-1] is r)
    for results in grouped((r.step.event, r) for r in lasts).values():
        outputs = [x for x in results[0].step.accesses if x.writes and x.scalar is not None]
        unread = [r for r in results if _only_read_here(r, seeded)]
        if len(unread) < len(outputs):
            continue
        for result in unread:
            reader = _read_instead(result, history)
            if reader is not None and result.site not in told:
                told.add(result.site)
                (step, access), other = reader, result.access.name
                text = (
                    f"{access.name} is read here, which holds the last turn but one of {result.step.event.label!r}: its"
                    f" last launch, {result.step.title}, wrote {other}, and nobody reads that."
                )
                fix = f"pass {other} here (two buffers were swapped once too often, or once too seldom)"
                yield step.finding("stale-buffer", "warning", text, fix, (access.name, other))
                break


def _read_instead(result: Result, history: History) -> tuple[WalkStep, EventAccess] | None:
    """The (step, access) that reads, after the last launch of a series, the result of the launch before; or None."""
    forerunner = history.sites[result.site][-2]
    found = history.last_read.get(forerunner.access.span.allocation)
    same = forerunner.access.span.allocation is result.access.span.allocation
    read = (x.span.allocation for x in result.step.accesses if not x.writes)
    if found is None or same or forerunner.access.span.allocation not in read:
        return None
    return found if found[0].event.id > result.step.event.id else None


def _unread_results(history: History, seeded: set[Allocation], told: set[Site]) -> Iterator[Finding]:
    """Finds sites of which no result was ever read: a warning for sums, else an info."""
    left = {r.site: r for r in history.left}
    for site, result in left.items():
        a = result.access.span.allocation
        if site in told or history.reads.get(site) or a in seeded or a.exposed:
            continue
        again = (x.span.overlaps(result.access.span) is not False for x in result.step.accesses if not x.writes)
        if _others_used(result, history, seeded) or any(again):  # the launch reads again what it wrote
            continue
        same = len({r.access.span for r in history.sites[site]}) == 1 < TWICE < len(history.sites[site])
        sums = same and not result.access.plain and result.access.array.size > 1
        yield _nobodys(result, "warning" if sums else "info")


def _nobodys(result: Result, severity: str) -> Finding:
    name = result.access.name
    text = f"{name} is computed here from what has a gradient, and nobody reads it: it is no part of what is seeded."
    fix = f"use {name}, seed it, or leave the launch out"
    return result.step.finding("unread", severity, text, fix, (name,))
