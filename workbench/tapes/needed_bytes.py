"""Needed bytes: what adjoints will read is kept before an event overwrites it.

Bytes that others overwrite cannot always be kept; such changes are noted, or found by checksums of exposed memory, and
`NeededBytes.verify` refuses the walk.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

from ..arrays.allocation import Allocation, caller_where
from ..arrays.array import array, span_of
from ..arrays.interval_index import Intervals
from ..arrays.span import Span
from ..errors import GradientError, Where
from .event_log import EventLog
from .events import Event, KeptBytes, Need, checksum_of, clock, stamp_of
from .kinds import FOREIGN
from .naming import TapeNames

START = "the start of the tape, to run the program again"


class MemoryNotes:
    """All that a tape knows of one memory; iterating gives the needs of its bytes that are not kept yet.

    They enter an index once a write comes near: a new row of a history is far. `count` of them, `last` the span of the
    one that was appended last; `recent` None: there never was one.

    watched   True if the tape is told of changes. begun: if an event has written it. cut: if a cut made it, which is a
              leaf once it is given requires_grad.
    followed  True if an event on an active path has touched it: a change between two events is a conflict then.
    left      span -> checksum of what such events left, once it is exposed.
    changed   what somebody else has written since: a dict of spans, once there are any.
    met       with keep="all": how many events there were when it was met or exposed, and its checksum if exposed.
    """

    count = 0
    last: Span | None = None
    watched = begun = cut = followed = False
    left: Any = MappingProxyType({})
    changed: Any = ()
    met: tuple[int, int | None] | None = None
    _index: Intervals[Need] | None = None
    recent: list[Need] | None = None  # not in the index yet; of the first `_measured` the hull is part of [_low, _high)
    _measured, _low, _high = 0, 1 << 62, 0

    def __iter__(self) -> Iterator[Need]:
        return chain(self._index or (), self.recent or ())

    def meeting(self, span: Span) -> list[Need]:
        """The needs that share a byte with `span`, or may share one."""
        new = self.recent or []
        for need in new[self._measured :]:
            low, high = need.span.hull()
            self._low, self._high = min(self._low, low), max(self._high, high)
        self._measured = len(new)
        low, high = span.hull()
        if high <= self._low or self._high <= low:
            return []
        self._index = self._index or Intervals()
        for need in new:
            self._index.enter(need, *need.span.hull())
        new.clear()
        self._measured = 0
        return [need for need in self._index.meeting(low, high) if need.span.overlaps(span) is not False]

    def drop(self, met: Iterable[Need]) -> None:
        """Remove needs that `meeting` has found."""
        for need in met:
            assert self._index is not None
            self._index.remove(need)
            self.count -= 1
        self.last = None


_NOTHING = MemoryNotes()


class NeededBytes:
    """Bytes that the adjoints of a tape will read, and the changes that have spoilt some.

    memories   what is known of each memory. followed: ids of arrays of floats on them
               that a launch with an adjoint has touched.
    exposed    True if any of them is exposed. guarded: if there is anything in `left` or `changed` to compare with.
    pending    launches whose needs are not entered in `memories` yet, and `marked` the memories in which they are.
    touched    the spans of each memory in the first `indexed` events.
    conflicts  reasons to refuse the walk. failure: the launch that broke off.
    walked     True once a backward has been: what others overwrite is kept from then on instead of refused.
    """

    def __init__(self, keep: str, log: EventLog, names: TapeNames, alone: Sequence[weakref.ref[Any]]) -> None:
        self.keeps_all = keep == "all"
        self.log, self.names, self._alone = log, names, alone
        self.clear()

    def clear(self) -> None:
        """Forget all needs and conflicts."""
        self.memories: dict[Allocation, MemoryNotes] = {}
        self.followed: dict[int, None] = {}
        self.pending: list[Event] = []
        self.marked: set[Allocation] = set()
        self.touched: dict[Allocation, dict[Span, None]] = {}
        self.indexed = 0
        self.exposed = self.guarded = False
        self.conflicts: list[tuple[Need, str, Where | None] | GradientError] = []
        self.failure: tuple[Event, BaseException] | None = None
        self.walked = False

    def of(self, a: Allocation) -> MemoryNotes:
        """The notes of a memory, to be read."""
        return self.memories.get(a, _NOTHING)

    def has_changed(self, span: Span) -> bool:
        """True if somebody else has written any of these bytes since the tape touched them, or may have."""
        return any(s.overlaps(span) is not False for s in self.of(span.allocation).changed)

    def notes(self, a: Allocation, watch: bool = True) -> MemoryNotes:
        """The notes of a memory, to be added to; with `watch` the tape is told of its changes from now on."""
        known = self.memories.get(a)
        if known is not None and (known.watched or not watch):
            return known
        if known is None:
            known = self.memories[a] = MemoryNotes()
        if watch:
            known.watched, self.exposed = True, self.exposed or a.exposed
            for ref in a.watchers:
                if ref() is not None:
                    a.watch(self._alone[0]())  # pyright: ignore[reportArgumentType]  it is alive
                    break
            else:
                a.watchers = self._alone
        return known

    def need(self, span: Span, event: Event, position: int) -> None:
        """Note that the adjoint of this event will read these bytes of its argument at `position`."""
        known = self.notes(span.allocation)
        if known.last is span:
            return
        need = Need(span, event, position)
        if span.allocation.exposed:
            need.checksum, need.stamp = checksum_of(span), stamp_of(span.allocation)
        if known.recent is None:
            known.recent = []
        known.recent.append(need)
        known.last = span
        known.count += 1

    def settle(self, a: Allocation | None = None) -> None:
        """Enter the needs of launches so far, which are not before somebody asks; with `a` if any is in this memory."""
        if a is not None and a not in self.marked:
            return
        pending, self.pending = self.pending, []
        self.marked.clear()
        for event in pending:
            for k, box in event.reverse.needs.items() if event.reverse is not None else ():
                self.need(span_of(event.command.flat[k], box), event, k)

    def watch_again(self) -> None:
        """Restore needs, checksums and watching of a tape that was made from saved events."""
        for number, event in enumerate(self.log.events):
            self.pending = [event]
            self.settle()
            for span in event.writes:
                needs = self.notes(span.allocation, watch=False)
                needs.drop([n for n in needs.meeting(span) if span.contains(n.span)])
            if event.reverse is not None:
                for k in event.reverse.extremal:
                    self.need(event.command.flat[k].span, event, k)
            self.remember_left(event)
            for span in (*event.reads, *event.writes) if self.keeps_all else ():
                notes = self.notes(span.allocation)
                notes.met = notes.met or (number, None)

    def follow(self, a: Allocation) -> MemoryNotes:
        """From now on a change of this memory between two events is a conflict."""
        known = self.notes(a)
        known.followed = True
        return known

    def remember_left(self, event: Event) -> None:
        """Checksum the exposed memory that an event read or wrote: unrecorded changes until the next are conflicts."""
        for span in event.writes:
            known = self.follow(span.allocation)
            if span.allocation.exposed:
                met = [s for s in known.left if s.overlaps(span) is not False]
                kept = {s: sum for s, sum in known.left.items() if s not in met}
                known.left = kept | {s: checksum_of(s) for s in (*met, span) if s is span or not span.contains(s)}
                self.guarded = True
        for span in event.reads:  # a leaf that changes between two readings is two leaves
            if span.allocation not in self.log.active:
                continue
            known = self.follow(span.allocation)
            if span.allocation.exposed and span not in known.left:
                self.note_left(span)

    def note_left(self, span: Span) -> None:
        """Checksum exposed bytes that an event left."""
        known = self.follow(span.allocation)
        known.left = {**known.left, span: checksum_of(span)}
        self.guarded = True

    def check_left(self, event: Event) -> None:
        """Note a conflict where this event touches bytes that changed, unrecorded, since an earlier one did."""
        for span in (*event.reads, *event.writes):
            known = self.memories.get(span.allocation)
            if known is None or not (known.changed or known.left):
                continue
            for old in [s for s in known.changed if s.overlaps(span) is not False]:
                plain = event.command is None and not event.kind.calls_back
                if not (plain and span in event.writes and span.contains(old)):
                    self.conflicts.append(self._unrecorded(old, event))
                del known.changed[old]
            for old in [s for s in known.left if s is span or s.overlaps(span) is not False]:
                if known.left[old] != checksum_of(old):
                    del known.left[old]
                    self.conflicts.append(self._unrecorded(old, event))

    def _unrecorded(self, span: Span, event: Event) -> GradientError:
        found = ((p.name, a) for p, a in event.arguments if getattr(a, "allocation", None) is span.allocation)
        name = next((self.names.called(a, parameter) for parameter, a in found), "")
        when = f"between two events of this tape, before {event.label!r} met it, and the tape could not see how."
        text = f"{name or str(span.allocation)!r} was changed {when}"
        why = "What was computed before does not flow through that change, so the gradient would be wrong."
        instead = "wb.copy(a, b), a.assign(b), a.fill_(value) or a kernel; tape.record_func(...) behind foreign code"
        return GradientError(text, slug="overwritten", where=event.where, why=why, instead=instead)

    # ---- before bytes are overwritten

    def keep_start(self, event: Event, a: array, span: Span) -> None:
        """Keep the contents of memory before the tape's first write to it, if the program has read them.

        No adjoint needs them; the program can then be run again, to look at what was not kept. Bytes that
        `keep_before` will copy, and memory that is all zeros, are left out.
        """
        memory = span.allocation
        if self.keeps_all or memory.blank == memory.version or not span.nbytes:
            return
        if id(a) not in self.log.arrays and all(s.overlaps(span) is False for s in event.reads):
            return
        self.settle(memory)
        if not self.of(memory).meeting(span):
            event.kept = (*event.kept, KeptBytes(span, span.copy_out(), said=START))

    def keep_before(self, event: Event) -> None:
        """Copy bytes that this event is about to overwrite, where an adjoint will read them (all, with keep="all")."""
        self.settle()
        for span in (*event.reads, *event.writes) if self.keeps_all else ():  # `replay` needs how they began
            a = span.allocation
            known = self.notes(a)
            if known.met is None:
                known.met = len(self.log.events), checksum_of(a.span()) if a.exposed else None
        for span in event.writes:
            needs = self.of(span.allocation)
            if needs.count or self.keeps_all:
                self.keep(span, event, needs)

    def keep(self, span: Span, event: Event, needs: MemoryNotes) -> None:
        """Copy bytes that a write to this span will destroy, if needed, and drop the needs that this satisfies."""
        self.settle(span.allocation)
        hit = needs.meeting(span)
        if not hit and not self.keeps_all:
            return
        for need in hit:
            if not need.verify():
                self.conflicts.append((need, need.culprit(), None))
        # A checksum speaks for all of its span: when a part is overwritten, all is kept and needs no checksum more.
        partly = {n: n.span for n in hit if n.checksum is not None and not span.contains(n.span)}
        wholes = dict.fromkeys(partly.values())
        for whole in [*wholes, *([] if any(w.contains(span) for w in wholes) else [span])]:
            event.kept = (*event.kept, KeptBytes(whole, whole.copy_out(), hit))
        if hit:
            needs.drop([*partly, *(n for n in hit if span.contains(n.span))])

    # ---- what the tape does not record

    def foreign_write(self, span: Span, what: str, where: Where | None) -> None:
        """Called before bytes change that the tape does not record: note the conflict, or keep them.

        They are kept with keep="all", and once a backward has been: an optimizer may then change the parameters, and
        the tape can still be walked and looked at.
        """
        a = span.allocation
        self.settle(a)
        known = self.of(a)
        hit = known.meeting(span) if known.count else ()
        if self.keeps_all or (self.walked and hit):
            event = Event(next(clock), FOREIGN, what, where or caller_where(), (), (span,))
            self.keep(span, event, known)
            self.log.events.append(event)
        elif hit:
            where = where or caller_where()
            self.conflicts += [(need, what, where) for need in hit]
            known.drop(hit)  # once is enough to refuse the walk
        if known.followed and (not known.cut or self.log.follows(a)):
            known.changed = known.changed or {}
            known.changed[span] = None
            self.guarded = True

    def exposing(self, allocation: Allocation) -> None:
        """Called when the address of memory leaves our hands: take checksums, by which later changes are found."""
        self.settle()
        events, known, self.exposed = self.log.events, self.of(allocation), True
        if known.met is not None:
            known.met = len(events), checksum_of(allocation.span())
        for need in known:
            need.checksum = checksum_of(need.span)
        if known.followed:
            for event in events[self.indexed :]:
                for span in (*event.writes, *event.reads):
                    self.touched.setdefault(span.allocation, {})[span] = None
            self.indexed = len(events)
            known.left = {span: checksum_of(span) for span in self.touched.get(allocation, ())}
            self.guarded = True

    def spoil(self, event: Event) -> None:
        """A replay of a capture ran the events up to this one again, not those behind it: refuse to walk the tape."""
        if any(isinstance(c, GradientError) and c.slug == "replayed" for c in self.conflicts):
            return
        error = GradientError(
            f"this tape went on after a capture of its first events, and a replay ran them ({event.label!r} and on)"
            " again.",
            slug="replayed",
            where=event.where,
            why="What was recorded behind them still belongs to the run before.",
            instead="tape.reset() before recording outside the capture",
        )
        self.conflicts.append(error)

    def verify(self) -> None:
        """Raise GradientError if a needed value was overwritten, or a launch broke off."""
        if self.failure is not None:
            event, error = self.failure
            text = f"{event.label!r} broke off while this tape recorded it: {error}"
            why = "What it had written by then is not known."
            instead = "with wb.Tape() as tape:   around all of it, once more"
            raise GradientError(text, slug="failed-launch", where=event.where, why=why, instead=instead) from error
        for known in self.memories.values() if self.exposed else ():
            for need in known:
                if need.checksum is not None and not need.verify():
                    self.conflicts.append((need, need.culprit(), None))
                    need.checksum = None
        if self.conflicts:
            first = self.conflicts[0]
            if isinstance(first, GradientError):
                raise first
            need, what, where = first
            instead = "tape.backward(...)   before that change, or wb.clone(a) as the argument of the launch"
            if where:
                what = f"{what} at {where}: {where.text.strip()}"
                instead = 'wb.Tape(keep="all"), or the change inside the tape or after backward()'
            name, event = self.names.called(need.array, need.name), need.event
            text = f"{name!r} was changed by {what}, after {event.label!r} had read it."
            why = f"The adjoint of {event.label!r} needs the value it read, and that is gone."
            raise GradientError(text, slug="overwritten", where=event.where, why=why, instead=instead)
