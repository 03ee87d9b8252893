"""From a tape to a `Trace`: what was touched, kept and aliased, and how large the adjoint of a real walk was."""

from __future__ import annotations

import gc
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite, sqrt
from typing import Any, NamedTuple

import numpy as np

from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...arrays.grouping import grouped
from ...arrays.span import Span
from ...arrays.workspace import Workspace
from ...derivatives.pitfalls import Wrong
from ...device import on_host
from ...diagnose.walk_step import positions
from ...display import ProgressBar
from ...errors import GradientError, KernelError
from ...kernels import ir
from ...kernels.types import Scalar, is_float
from ...tapes.events import Event, KeptBytes
from ...tapes.reverse import Observer, past_opaque
from ...tapes.tape import Tape
from .event_kinds import UniqueEvents
from .loops import folds
from .snapshot import Retrace, SeedBytes, present
from .trace import AdjointLevel, AllocationTrack, EventColumn, KeptRange, NameRange, Seed, TouchMark, Trace, ValueLevel

PART = 1 << 16  # numbers that are made float64 at once


@contextmanager
def no_collector() -> Iterator[None]:
    """Context without garbage collection, which takes half the time when a long tape makes millions of objects."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def gather(tape: Tape, wrong: Wrong | None = None) -> Trace:
    """The trace of a tape as it stands, or of a walk that is wrong on purpose.

    Reads memory under the lock; changes nothing.
    """
    if wrong is None:
        return Gather(tape).trace()
    return replace(Gather(tape, wrong.retrace, wrong.seeds).trace(), title=wrong.title, wrong=True)


class Levels(NamedTuple):
    """The result of a walk: per event the levels after its reversal, the seeds, events that died, non-finite values."""

    events: list[list[AdjointLevel]]
    seeds: list[Seed]
    died: list[int]
    values: Sequence[ValueLevel] = ()


def with_levels(trace: Trace, found: Levels) -> Trace:
    """The trace of `Gather.structure` together with the levels of a walk."""
    died = set(found.died)
    events = [event.reversed_to(found.events[n], n in died) for n, event in enumerate(trace.events)]
    return replace(trace, events=events, seeds=found.seeds, values=found.values)


def _range(span: Span) -> tuple[int, int, bool]:
    low, high = span.hull()
    return low, high, not span.dense


class Gather:
    """A tape read for its trace, by default with the walk from the last seeds.

    watch   is called after each reverse step of the walk, with the event and the workspace.
    """

    def __init__(
        self, tape: Tape, retrace: Retrace | None = None, seeds: SeedBytes | None = None, watch: Observer | None = None
    ):
        self.tape, self.watch = tape, watch
        self.opaque = any(event.kind.opaque for event in tape.events)
        self.retrace: Retrace = retrace or tape.retrace
        self.seeds: SeedBytes = tape.last_seeds if seeds is None else seeds
        self.names: dict[Allocation, dict[tuple[int, int, bool], str]] = {}
        self.measured: dict[Event, list[AdjointLevel]] = {}
        self.carried: set[Span] = set()
        self.came = False
        self.died: set[Event] = set()
        self.scopes: list[str] = []
        self.reasons: dict[tuple, str] = {}
        self.bar: ProgressBar | None = None
        self.beyond: Container[Event] = ()  # what the walk passes by
        self.border: Event | None = None  # the first of these to the left of the others
        self.places: dict[Any, str] = {}
        for a in tape.arrays.values():
            self.name(a.span, tape.names.given(a))

    def trace(self) -> Trace:
        with ProgressBar(len(self.tape.events), "walk") as self.bar:
            found = self.levels()
        return with_levels(self.structure(), found)

    def levels(self) -> Levels:
        """The `Levels` of one walk; empty where it cannot be repeated."""
        events = self.tape.events
        seeds = self.walk() if self.seeds and not any(event.kind.calls_back for event in events) else []
        died = [n for n, event in enumerate(events) if event in self.died]
        return Levels([self.measured.get(event, []) for event in events], seeds, died, non_finite_values(self.tape))

    def structure(self) -> Trace:
        """The trace without any adjoint: no walk, so it costs little even for a long tape."""
        events = self.columns()
        return Trace([self.track(a) for a in self.names], events, folds=folds(self.tape))

    def columns(self) -> UniqueEvents:
        """All columns, without adjoints; what equal events have in common is made once."""
        tape, known, firsts = self.tape, {}, []
        self.scopes = scopes(tape)
        which = np.empty(len(tape.events), np.int64)
        for n, event in enumerate(tape.events):
            which[n] = known.setdefault(self.likeness(event, self.scopes[n]), len(firsts))
            if which[n] == len(firsts):
                firsts.append(self.column(n, event))
        return UniqueEvents(firsts, which, [f"L{event.id}" for event in tape.events])

    def likeness(self, event: Event, scope: str) -> tuple:
        """A key: events with equal keys have the same column, up to versions."""
        kept = tuple([(k.span, self.reason(k)) for k in event.kept]) if event.kept else ()
        place, command = event.place, event.command
        at = (id(place[0]), place[1]) if type(place) is tuple else place
        same = event.kind, event.label, scope, at, kept
        if command is None:
            return *same, tuple(event.reads), tuple(event.writes), *map(id, (event.loop, *event.arrays))
        places, plan = command.places, command.plan
        if command.declared:
            return *same, tuple(event.reads), tuple(event.writes), id(plan), *map(id, places)
        return *same, id(plan), *[id(places[k]) for k in plan.program.array_positions]

    def reason(self, kept: KeptBytes) -> str:
        """`reason_of`, cached for bytes that the same adjoints read."""
        key = kept.said, *[(need.event.label, id(need.array), need.name) for need in kept.needs]
        if key not in self.reasons:
            self.reasons[key] = self.tape.names.reason_of(kept)
        return self.reasons[key]

    def name(self, span: Span, name: str) -> None:
        if span.nbytes:
            known = self.names.setdefault(span.allocation, {})
            key = _range(span)
            if not known.get(key):
                known[key] = name
            elif name and name not in known[key].split(", "):
                known[key] += f", {name}"

    def track(self, a: Allocation) -> AllocationTrack:
        names = []
        for (low, high, strided), text in self.names[a].items():
            names += [NameRange(name or f"{a}", low, high, strided) for name in text.split(", ")]
        scalar = self.tape.scalars.get(a)
        itemsize = scalar.itemsize if isinstance(scalar, Scalar) else 0
        text = next((f"{x.dtype} {x.shape}" for x in self.tape.arrays.values() if x.allocation is a), "")
        return AllocationTrack(str(a), a.nbytes, names, text, itemsize)

    def touches(self, event: Event) -> Iterator[TouchMark]:
        """The access marks of an event, reads first. Versions are counted for all events together later."""
        accumulated = event.command.plan.accumulates_only if event.command is not None else frozenset()
        labels = self.labels(event)
        for how, spans in (("read", event.reads), ("write", event.writes)):
            for k, span in enumerate(spans):
                if span.nbytes:
                    position, name = labels[how][k]
                    kind = "accumulate" if how == "write" and position in accumulated else how
                    low, high, strided = _range(span)
                    yield TouchMark(str(span.allocation), name, low, high, kind, strided=strided)

    def labels(self, event: Event) -> dict[str, list[tuple[int, str]]]:
        if event.command is None:
            arrays, n = list(event.arrays), len(event.writes)
            if not arrays:  # bytes that others changed, by no array of ours
                return {"read": [], "write": [(-1, self.any_name(span.allocation)) for span in event.writes]}
            if event.kind.opaque:
                by_span = {a.span: self.label(a, "") for a in reversed(arrays)}
                both = {"read": event.reads, "write": event.writes}
                return {how: [(-1, by_span[span]) for span in spans] for how, spans in both.items()}
            both = {"write": arrays[:n], "read": arrays if event.loop is not None else arrays[n:]}
            return {how: [(-1, self.label(a, "")) for a in found] for how, found in both.items()}
        places, leaves = event.command.places, event.command.program.leaves
        at = {how: positions(event, f"{how}s") for how in ("read", "write")}
        return {how: [(k, self.label(places[k], leaves[k].name)) for k in found] for how, found in at.items()}

    def label(self, a: array, parameter: str) -> str:
        name = self.tape.names.of(a, parameter)
        self.name(a.span, name)
        return name

    def column(self, n: int, event: Event) -> EventColumn:
        spans = [(k.span, self.reason(k)) for k in event.kept]
        kept = [KeptRange(str(s.allocation), *s.hull(), s.nbytes, reason) for s, reason in spans]
        if event.place not in self.places:
            self.places[event.place] = str(event.where or "")
        kind = event.kind.drawn or event.kind.name
        where = ": ".join(filter(None, (self.places[event.place], event.said)))
        said = f"L{event.id}", n, kind, event.label, where, self.scopes[n]
        program = None if event.command is None else event.command.program
        cuts = event.kind.cuts if program is None else program.once(_detaches, program.function)
        flags = ["cut"] if cuts else []  # a gradient is stopped on purpose
        return EventColumn(*said, touches=list(self.touches(event)), kept=kept, flags=flags)

    # ---- the walk

    def walk(self) -> list[Seed]:
        """Walk again with the last seeds, and record the size of the adjoint after each step."""
        seeds = []
        for a, data in self.seeds.items():
            level = self.level(a, Span(a, 0, (a.nbytes,), (1,), 1), data)
            seeds.append(Seed(f"{self.any_name(a)}: |seed| = {level.l2:.3g}", level))
        if self.seeds is self.tape.last_seeds and self.tape.within is not None:
            inside = [n for n, event in enumerate(self.tape.events) if event in self.tape.within]
            self.beyond = set(self.tape.events) - self.tape.within
            self.border = self.tape.events[inside[0] - 1] if inside and inside[0] else None
        try:
            self.retrace(self.observe, self.before, **({"step": past_opaque} if self.opaque else {}))
        except (GradientError, KernelError):
            if self.seeds is not self.tape.last_seeds:
                raise
            self.measured.clear()  # the tape is shown without adjoints; its findings say what was refused
            self.died.clear()
            return []
        return seeds

    def any_name(self, a: Allocation) -> str:
        return next((n for n in self.names.get(a, {}).values() if n), str(a))

    def before(self, event: Event, space: Workspace) -> None:
        """Before an event is reversed: record if an adjoint comes in, and which spans it reads already have one."""
        if event in self.beyond:
            return

        def arrived(span: Span) -> bool:
            a = span.allocation
            return a in space and self.level(a, span, space[a].data).max_abs != 0

        self.came, self.carried = any(map(arrived, event.writes)), set(filter(arrived, event.reads))

    def observe(self, event: Event, space: Workspace) -> None:
        if self.watch is not None:
            self.watch(event, space)
        if event in self.beyond:
            if event is self.border:  # the walk has come to where it ends
                self.measured[event] = [AdjointLevel(str(a), 0, a.nbytes, unknown=True) for a in space]
            return
        levels = []
        spans = [s for s in dict.fromkeys((*event.reads, *event.writes)) if s.allocation in space and s.nbytes]
        for span in spans:
            a = span.allocation
            meeting = event.reads.count(span) + (span in self.carried and span not in event.writes)
            level = self.level(a, span, space[a].data)
            if self.opaque and level.nan:  # so `past_opaque` marks what may depend on such an event
                level = AdjointLevel(level.allocation, level.lo, level.hi, unknown=True)
            if event.kind.cuts and span in event.writes:  # a leaf begins here: before, nothing depends on it
                level = AdjointLevel(level.allocation, level.lo, level.hi, zero=True)
            meeting = 0 if event.kind.cuts else meeting
            levels.append(replace(level, contributions=meeting if meeting > 1 and not level.zero else 0))
        self.measured[event] = levels
        if self.bar is not None:
            self.bar.update()
        given = [level for level, span in zip(levels, spans, strict=True) if span in event.reads]
        if self.came and given and all(level.zero for level in given) and not event.kind.cuts:
            self.died.add(event)

    def level(self, a: Allocation, span: Span, data: np.ndarray) -> AdjointLevel:
        scalar = self.tape.scalars.get(a)
        low, high, _ = _range(span)
        if not isinstance(scalar, Scalar):
            return AdjointLevel(str(a), low, high)
        k = a.grad_scale or 1
        dtype = np.dtype(np.float32) if scalar.bits == 16 else scalar.numpy
        values = on_host(data)[low * k : high * k].view(dtype)
        most, squares, nans, infs = 0.0, 0.0, 0, 0
        for start in range(0, len(values), PART):
            part = values[start : start + PART].astype(np.float64)
            here = float(np.abs(part).max())
            if not isfinite(here):
                nans, infs = nans + int(np.isnan(part).sum()), infs + int(np.isinf(part).sum())
                part = part[np.isfinite(part)]
                here = float(np.abs(part).max(initial=0.0))
            most, squares = max(most, here), squares + float(np.square(part).sum())
        bad = nans + infs
        share = bad / len(values) if bad else 1.0
        return AdjointLevel(str(a), low, high, most, sqrt(squares), nans > 0, infs > 0, most == bad == 0, share=share)


def _detaches(function: ir.Function) -> bool:
    return any(s.row.cut for s in ir.walk(function.body))


def scopes(tape: Tape) -> list[str]:
    """Per event the name of the innermost scope around it, or ""."""
    found = [""] * len(tape.events)
    for scope in tape.scopes:  # inner ones open later
        last = len(found) if scope.last is None else scope.last
        found[scope.first : last] = [scope.name] * (last - scope.first)
    return found


# ---- what is not finite

_Part = tuple[Allocation, int, int, int, np.ndarray]  # memory, its bytes, a moment, and the numbers there


def non_finite_values(tape: Tape) -> list[ValueLevel]:
    """The ranges known to hold NaN or infinity, each with the moment before which they did."""
    found = []
    for a, low, high, moment, numbers in _parts(tape):
        if not np.isfinite(numbers).all():
            nan, inf = np.isnan(numbers), np.isinf(numbers)
            share = float((nan | inf).mean())
            found.append(ValueLevel(str(a), low, high, moment, bool(nan.any()), bool(inf.any()), share))
    return found


def _parts(tape: Tape) -> Iterator[_Part]:
    dtypes = _dtypes(tape)
    for n, event in enumerate(tape.events):
        for kept in event.kept:
            dtype = dtypes.get(kept.span.allocation)
            if dtype is not None:
                data = np.ascontiguousarray(on_host(kept.data)).view(np.uint8).reshape(-1)
                if data.size and data.size % dtype.itemsize == 0:
                    yield kept.span.allocation, *kept.span.hull(), n, data.view(dtype)
    for a, dtype in dtypes.items():
        data, known, _ = present(tape, a)
        size = len(data) // dtype.itemsize * dtype.itemsize
        if size and known.all():
            yield a, 0, size, len(tape.events), data[:size].view(dtype)


def _dtypes(tape: Tape) -> dict[Allocation, np.dtype]:
    """The dtype of each memory that holds floats only."""
    types = ((x.allocation, x.dtype) for x in tape.arrays.values())
    found = grouped((a, getattr(dtype, "scalar", None) if is_float(dtype) else None) for a, dtype in types)
    return {a: np.dtype(first.numpy) for a, (first, *more) in found.items() if first is not None and {*more} <= {first}}
