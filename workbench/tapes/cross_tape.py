"""Borders: leaves of a tape that another tape computed. The gradient stops there, which is warned about.

Memory remembers which recording wrote it last from something with `requires_grad` (`Allocation.origins`), until
somebody else writes it. A tape that meets such memory notes a border. After `backward` a border with an adjoint is
reported at once if the writer can no longer be walked; else when a `backward` of the writer is not seeded with that
adjoint, or when somebody reads the gradient of what the writer started from.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain

import numpy as np

from ..arrays.allocation import Allocation, GradientMemory, caller_where
from ..arrays.interval_index import SpanIndex, SpanSet
from ..arrays.read_values import checksum
from ..arrays.span import Span
from ..arrays.workspace import Workspace
from ..device import on_host
from ..errors import GradientError, Where
from ..kernels import ir
from ..kernels.analysis import activity
from ..kernels.types import Scalar
from ..launches.plan import Plan
from .event_log import EventLog
from .events import Event, clock
from .naming import TapeNames

SMALL = 1 << 20  # bytes of seeds that are compared
MOST = 64  # borders off active paths that are followed


class RecordingId:
    """Identity of a recording (a tape until it is reset), as other tapes refer to it.

    outer     the run of the tape inside which this one was entered.
    leaves    its leaves with `requires_grad`; `names` are theirs. wrote: ids of the memories that it wrote.
    seeded    id of a memory -> checksum of its seed in the last backward; `when` that was.
    waiting   borders of other tapes whose adjoint this one can be seeded with. lost: those it was not seeded with.
    chained   True if the last backward was seeded with any of them.
    over      True if nobody can walk its tape any more, although a recording of a jit function keeps that.
    """

    def __init__(self, border: Border):
        self.border = weakref.ref(border)
        self.outer: RecordingId | None = None
        self.leaves: list[weakref.ref[Allocation]] = []
        self.names: tuple[str, ...] = ()
        self.wrote: set[int] = set()
        self.seeded: dict[int, int] = {}
        self.when = 0
        self.waiting: list[ForeignLeaf] = []
        self.lost: list[ForeignLeaf] = []
        self.chained = self.over = False

    @property
    def alive(self) -> bool:
        """True if its tape exists and was not reset, so that it can be walked backwards."""
        border = self.border()
        return border is not None and border.run is self and not self.over

    def around(self, other: RecordingId | None) -> bool:
        """True if the other run is this one, or its tape was entered inside this one's."""
        while other is not None and other is not self:
            other = other.outer
        return other is self


class ForeignLeaf:
    """Parts of one memory that `run` wrote and another tape reads as a leaf, with the adjoint that has arrived there.

    open      {part: mask of its numbers whose adjoint `run` was not yet seeded with}; without parts that are done.
    said      True if it was warned about.
    known     False if there is no adjoint, as no gradient was asked for.
    marked    True if it has a `.grad` to seed `run` with.
    walked    where the walk was.
    """

    def __init__(self, a: Allocation, run: RecordingId, known: bool, marked: bool):
        self.allocation, self.run, self.known, self.marked = a, run, known, known and marked
        self.open: dict[Span, np.ndarray] = {}
        self.spans: SpanIndex[Span] = SpanIndex()
        self.said, self.name = False, ""
        self.where: Where | None = None  # it was read first
        self.walked = caller_where()

    def add(self, span: Span, adjoint: np.ndarray | None) -> None:
        self.spans.put(span, span)
        if adjoint is not None:
            self.open[span] = adjoint != 0

    def replaced_by(self, newer: ForeignLeaf) -> None:
        """Remove the parts that a newer walk has found again."""
        for span in [s for s in newer.spans if s in self.spans] if newer.name == self.name else ():
            self.spans.remove(span)
            self.open.pop(span, None)

    def same(self, other: ForeignLeaf) -> bool:
        """True for the same parts under the same name."""
        return self.name == other.name and set(self.spans) == set(other.spans)

    @property
    def stops(self) -> bool:
        """True if the gradient has stopped here, so far."""
        return bool(self.open) or not self.known

    @property
    def is_value(self) -> bool:
        """True if the tape that wrote it goes on to read the gradient: then its own walk takes it further."""
        border, grad = self.run.border(), self.allocation.grad
        events = () if border is None else border.log.events
        return any(span.allocation is grad for e in events if e.inner is None for span in e.reads)

    @property
    def told(self) -> str:
        source = ", ".join(self.run.names) or "arrays with requires_grad"
        return f"{self.name} was written by an earlier tape from {source}; this gradient stops there"

    @property
    def ways_out(self) -> str:
        name = self.name
        first = "" if self.marked else f"{name}.requires_grad = True before the earlier tape, then "
        first += "" if self.run.alive else "keep the earlier tape, then "
        return (
            f"one tape around both; or {first}earlier.backward(grads={{{name}: {name}.grad}}) behind this backward();"
            f" or wb.detach({name}) if it is meant"
        )

    def refuse_loss(self, written: SpanSet) -> None:
        """Raise GradientError [not-handed-on] if a walk is to replace what waits in `.grad`."""
        parts = [self.allocation.gradient_span(s) for s in self.open if written.touch(s)]
        if any(part.words().any() for part in parts):
            text = f"this backward() would replace {self.name}.grad, which has not been handed on to an earlier tape."
            why = f"The backward() at {self.walked} left it there. Gradients of what a tape wrote do not add up."
            instead = f"earlier.backward(grads={{{self.name}: {self.name}.grad}}) first; or {self.name}.grad.zero_()"
            raise GradientError(text, slug="not-handed-on", where=caller_where(), why=why, instead=instead)

    def seeded_with(self, seeds: Workspace) -> None:
        """Clear `open` where the seeds of a backward of the writer are not zero."""
        if self.allocation in seeds:
            left = {s: mask & (_numbers(seeds, s, self.run.border()) == 0) for s, mask in self.open.items()}
            self.open = {s: mask for s, mask in left.items() if mask.any()}

    def warn(self, more: str = "") -> None:
        """Warn once that the gradient stops here, unless it was handed on."""
        if self.stops and not self.said and not self.is_value:
            self.said = True
            warn(f"{self.told}.{more} Ways out: {self.ways_out}.")


def waiting(grad: GradientMemory) -> list[ForeignLeaf]:
    """The borders for which a gradient waits to be handed on to a tape that can still be walked."""
    return [b for ref in grad.borders if (b := ref()) is not None and b.open and b.run.alive]


def warn(text: str) -> None:
    """Issue a warning at the user's line."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and (frame.f_globals.get("__name__") or "").partition(".")[0] == "workbench":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


def read_before(events: Iterable[Event], written: Mapping, made: Container) -> dict[Allocation, dict[Span, bool]]:
    """The bytes that events read, or write in part, before one of them writes them whole: True if none has been.

    Those that were `written` before, {memory: spans}, and memory that was `made` are left out.
    """
    covered: dict[Allocation, SpanSet] = defaultdict(SpanSet)
    found: dict[Allocation, dict[Span, bool]] = defaultdict(dict)
    for span in chain.from_iterable(written.values()):
        covered[span.allocation].add(span)
    for event in events:
        plan = None if event.command is None else event.command.plan
        whole = [s for k, s in enumerate(event.writes) if plan is None or plan.writes[k][0] in plan.covered]
        for span in (*event.reads, *(s for s in event.writes if s not in whole)):
            a = span.allocation
            if a not in made and not any(s.contains(span) for s in covered[a].near(span)):
                found[a].setdefault(span, not covered[a].touch(span))
        for span in whole:
            covered[span.allocation].add(span)
    return found


class Border:
    """Memory that a tape reads and others wrote. Steps of a checkpointed loop share the border of the tape around it.

    run         identity of the present recording.
    met         (span, writer's run) in each memory: what other tapes wrote, met by this one.
    crossings   those at which the last backward stopped.
    """

    def __init__(self, log: EventLog, names: TapeNames) -> None:
        self.log, self.names = log, names
        self.clear()

    def clear(self) -> None:
        """Start a new run."""
        self.run = RecordingId(self)
        self.met: dict[Allocation, dict[tuple[Span, RecordingId], None]] = {}
        self.crossings: list[ForeignLeaf] = []
        self._constants = Constants(self.log.events)
        self._noted = 0  # so many events are in `met` and in the origins of memory

    def all_met(self) -> Iterator[tuple[Span, RecordingId]]:
        """All (span, writer's run) that other tapes wrote and this one read."""
        return (met for found in self.met.values() for met in found)

    def end(self) -> None:
        """Treat the tape as gone, though a recording of a jit function keeps it."""
        self.run.over, self.run.waiting, self.crossings = True, [], []

    # ---- what is noted while tapes record

    def meet(self, read: Span) -> None:
        """Note parts that other tapes wrote in the bytes that this tape is about to read."""
        for span, run in read.allocation.origins.met(read) if read.allocation.origins else ():
            self.crossed(span, run)

    def crossed(self, span: Span, run: RecordingId) -> None:
        """Note that another tape, during `run`, wrote bytes that this one meets."""
        if run is not self.run:
            self.met.setdefault(span.allocation, {})[span, run] = None

    def update(self) -> None:
        """Update `Allocation.origins` to the last event of the tape. Cheap if up to date."""
        log, run = self.log, self.run
        events, self._noted = log.events[self._noted :], len(log.events)
        if not events or not log.active:
            return
        last: dict[Span, bool] = {}
        self._constants.follow()
        constants = self._constants.events
        for event in reversed(events):
            back = event.reverse
            for span, live in self._written(event) if back is None else zip(event.writes, back.live, strict=True):
                if span not in last:
                    last[span] = live and event not in constants
        run.wrote.update([span.allocation.id for span in last])
        if not any(last.values()):
            return
        for span, live in reversed(last.items()):
            span.allocation.note_origin(span, run, live)
        leaves = [a for a in log.active if a.id not in run.wrote and a.required]
        run.leaves = [weakref.ref(a) for a in leaves]
        named = leaves or [a for a in log.active if a.required]
        run.names = tuple(self.names.of_memory(a) for a in named[:3])

    def _written(self, event: Event) -> Iterable[tuple[Span, bool]]:
        """(span, True if it depends on something with a gradient) for the writes of an event without an adjoint.

        () if that is unknown.
        """
        if not event.kind.passes:
            return ()
        source, active = event.source, self.log.active
        follows = event.loop is not None or event.op is not None
        live_copy = follows or (source is not None and source.allocation in active)
        return [(span, live_copy and span.allocation in active) for span in event.writes]

    # ---- what is said after a walk

    def note_seeds(self, seeds: Workspace) -> None:
        """Note the seeds of a backward of this tape, and resolve the borders that wait for them."""
        self.run.when = next(clock)
        self.run.seeded = {a.id: checksum(on_host(s.data)) for a, s in seeds.items() if len(s.data) <= SMALL}
        self.run.chained = any(b.allocation in seeds for b in self.run.waiting)
        for border in self.run.waiting:
            border.seeded_with(seeds)

    def report(self, found: list[ForeignLeaf], blind: bool) -> None:
        """After a walk: refuse [nested-tape] or warn of borders. `blind`: no seed lies on an active path."""
        lost = [b for b in found if not (b.marked and b.run.alive)]
        for b in lost:
            inside = b.run.around(self.run)
            if inside or self.run.around(b.run):
                which = "around this one" if inside else "inside this one"
                text = (
                    f"{b.name} was written by a tape {which}; a tape records nothing while another is open inside it,"
                    " so this gradient stops there."
                )
                why = f"It was computed from {', '.join(b.run.names)}."
                raise GradientError(text, slug="nested-tape", where=b.where, why=why, instead=b.ways_out)
        values = {a for e in self.log.events if e.inner is not None for a in e.inner.gradients}
        for b in self.run.waiting:
            b.said |= b.allocation in values  # this walk has taken it further
            b.warn(f" This backward() has set {b.name}.grad to zero without being seeded with it.")
        self.run.lost = [b for b in self.run.waiting if b.stops and b.allocation not in values]
        self.run.waiting = []
        self.crossings = found
        if not found and blind:
            warn(
                "what backward() is seeded with depends on nothing that has requires_grad: every gradient is zero."
                " tape.diagnose() says where the way to it ends."
            )
        for b in lost:
            b.warn()

    def queue(self) -> None:
        """After gradients are published: let the borders at which they stopped wait for a backward of the writers."""
        for b in self.crossings:
            if b.marked and b.run.alive:
                for w in b.run.waiting:
                    w.replaced_by(b)
                b.run.waiting = [w for w in b.run.waiting if w.spans] + [b]
                grad = b.allocation.gradient()
                grad.borders = [r for r in grad.borders if (w := r()) is not None and w.open] + [weakref.ref(b)]
                for ref in b.run.leaves:
                    if (leaf := ref()) is not None and leaf is not b.allocation:
                        leaf.awaited = [*leaf.awaited, b]


class CrossTapeSearch:
    """Search for borders that an adjoint would have reached, had their memory been on an active path.

    `watched`: {event on an active path: borders that it also depends on}. `ends`: {border: spans off active paths
    that depend on it after the last event}. `reached`: borders found.
    """

    def __init__(self, border: Border, seeds: Workspace):
        self.border, self.log = border, border.log
        self.reached: set[tuple[Span, RecordingId]] = set()
        self.watched: dict[Event, list[tuple[Span, RecordingId]]] = {}
        unmarked = [met for met in border.all_met() if not met[0].allocation.required.touch(met[0])]
        self.ends: dict[tuple[Span, RecordingId], SpanIndex[Span]] = {}
        for met in unmarked[:MOST]:
            self.ends[met] = SpanIndex()
            self.ends[met].put(met[0], met[0])
        if self.ends:
            for event in self.log.events:
                self._follow(event)
        for met, spans in self.ends.items():
            if any(_any(seeds, span, border) for span in spans):
                self.reached.add(met)

    def _follow(self, event: Event) -> None:
        for border, spans in self.ends.items():
            if not spans:
                continue
            new = list(self._passed_on(event, border, spans))
            for written in event.writes:
                for s in spans.near(written):
                    if written.contains(s):
                        spans.remove(s)
            for s in new:
                spans.put(s, s)

    def _passed_on(self, event: Event, border: tuple[Span, RecordingId], spans: SpanIndex[Span]) -> Iterator[Span]:
        """Yield spans off active paths that depend on `spans` after an event; joins of an active path are `watched`."""
        if event.command is None:
            read = event.op.ins if event.op is not None else [event.source]
            if any(a is not None and a.allocation not in self.log.active and spans.met(a.span) for a in read):
                if event.arrays[0].allocation in self.log.active:
                    self.watched.setdefault(event, []).append(border)
                else:
                    yield from event.writes
            return
        plan, shadows = event.command.plan, () if event.reverse is None else event.reverse.shadows
        for (k, _), read in zip(plan.reads, event.reads, strict=False):
            if k in plan.floats and k not in shadows and spans.met(read):
                carried = _carried(plan, k)
                if not carried.isdisjoint(shadows):
                    self.watched.setdefault(event, []).append(border)
                written = zip(plan.writes, event.writes, strict=True)
                yield from (span for (j, _), span in written if j in carried and j not in shadows)

    @property
    def before(self) -> Callable[[Event, Workspace], None] | None:
        """The function that the walk must call before each event; None if nothing is watched."""
        return self._look if self.watched else None

    def _look(self, event: Event, space: Workspace) -> None:
        for border in self.watched.get(event, ()):
            if border not in self.reached and any(_any(space, span, self.border) for span in event.writes):
                self.reached.add(border)

    def found(self, space: Workspace) -> list[ForeignLeaf]:
        """The unseeded borders that an adjoint reached, or would have reached, had a gradient been asked for."""
        made: dict[tuple, ForeignLeaf] = {}
        seeded: dict[tuple[Allocation, RecordingId], bool] = {}
        for span, run in self.border.all_met():
            a = span.allocation
            adjoint = _numbers(space, span, self.border) if a in space else None
            there = adjoint is not None and bool((adjoint != 0).any())
            if not there and (span, run) not in self.reached:
                continue
            if (a, run) not in seeded:
                # True if the last backward of `run` was seeded with this adjoint, as where a loss adds up over tapes
                known = run.seeded.get(a.id) if run.when < next((e.id for e in self.log.events), 0) else None
                small = known is not None and len(space[a].data) <= SMALL
                seeded[a, run] = small and known == checksum(on_host(space[a].data))
            if not (there and seeded[a, run]):
                marked = a.required.touch(span)
                border = made.setdefault((a, run, there, marked), ForeignLeaf(a, run, there, marked))
                border.add(span, adjoint if there else None)
        borders = list(made.values())
        if borders:
            self.border.names.note(sys._getframe(1))
            self.border.names.guess()
            self._named(borders)
        return borders

    def _named(self, borders: list[ForeignLeaf]) -> None:
        """Set the name of each border, and `where` to the line of the first event that reads it."""
        names = self.border.names
        for b in borders:
            wholes = names.wholes.get(b.allocation, {}).items() if len(b.spans) > 1 else ()
            name = next((label for span, (label, _) in wholes if all(map(span.contains, b.spans))), "")
            b.name = name or names.of_memory(b.allocation, next(iter(b.spans)))
            read = ((e, s) for e in self.log.events for s in e.reads if s.allocation is b.allocation)
            b.where = next((e.where for e, s in read if b.spans.met(s)), None)


def _any(space: Workspace, span: Span, border: Border) -> bool:
    """True if the adjoint of these bytes has a number other than zero."""
    return span.allocation in space and bool((_numbers(space, span, border) != 0).any())


@lru_cache(256)
def _carried(plan: Plan, k: int) -> frozenset[int]:
    """Positions of the arguments to which a kernel writes values with a derivative by argument `k`."""
    function, leaves = plan.forward.function, plan.program.leaves
    varied = activity.varied(function, frozenset({leaves[k].name}), list(ir.walk(function.body)))
    stores = [s for s in ir.walk(function.body) if s.row.writes and s.args[-1] in varied]
    names = {ir.root(s.args[0]).name for s in stores}
    return frozenset(j for j in plan.float_writes if leaves[j].name in names)


def _numbers(space: Workspace, span: Span, border: Border | None) -> np.ndarray:
    """A NumPy copy of the adjoint of a span, in its float type (uint8 for structs)."""
    a = span.allocation
    scalar = border.log.scalars.get(a) if border is not None else None
    k = a.grad_scale or 1
    dtype = (np.dtype(np.float32) if scalar.bits == 16 else scalar.numpy) if isinstance(scalar, Scalar) else np.uint8
    if span.itemsize * k % np.dtype(dtype).itemsize:
        dtype = np.uint8
    return on_host(space[a].view(span, dtype)).copy()


# ---- constant writes on active paths
# A kernel between arrays on an active path has an adjoint, whatever they hold. Its results depend on nothing with a
# gradient if all that it read was overwritten with numbers before. Only what is certain counts as constant.


class Constants:
    """State after each event of a tape: `spans` hold constants, `live` may depend on something with a gradient."""

    def __init__(self, all_events: list[Event]) -> None:
        self.all_events, self.done = all_events, 0
        self.spans: dict[Allocation, dict[Span, None]] = {}
        self.live: dict[Allocation, dict[Span, None]] = {}
        self.events: set[Event] = set()

    def follow(self) -> None:
        """Update to the last event of the tape."""
        events = self.all_events[self.done :]
        if not self.spans and not any(e.kind.from_host for e in self.all_events):
            return
        self.done = len(self.all_events)
        for event in events:
            constant = self._is_constant(event)
            if constant:
                self.events.add(event)
            for span in event.writes:
                if not constant:
                    for old in [s for s in self.spans.get(span.allocation, ()) if s.overlaps(span) is not False]:
                        del self.spans[span.allocation][old]
                    self.live.setdefault(span.allocation, {})[span] = None
                elif event.command is None:
                    for known in (self.live, self.spans):
                        for old in [s for s in known.get(span.allocation, ()) if span.contains(s)]:
                            del known[span.allocation][old]
                    self.spans.setdefault(span.allocation, {})[span] = None

    def _is_constant(self, event: Event) -> bool:
        if event.command is None:
            if event.kind.step != "write":
                return False
            return not event.sources if event.source is None else self._all_constant(event.reads)
        back = event.reverse
        if back is None or event.command.declared or not self.spans:
            return False
        plan, read, others = event.command.plan, [], []
        for (k, _), span in zip(plan.reads, event.reads, strict=False):
            if k in plan.floats:
                (read if k in back.shadows else others).append(span)
        return bool(read) and self._all_constant(read) and not any(map(self._may_live, (*others, *event.writes)))

    def _all_constant(self, read: list[Span] | tuple[Span, ...]) -> bool:
        return all(any(s.contains(span) for s in self.spans.get(span.allocation, ())) for span in read)

    def _may_live(self, span: Span) -> bool:
        """True if these bytes may depend on something with a gradient."""
        a = span.allocation
        if any(s.contains(span) for s in self.spans.get(a, ())):
            return False
        before = a.required.touch(span) or bool(a.origins and a.origins.met(span))
        return before or any(s.overlaps(span) is not False for s in self.live.get(a, ()))
