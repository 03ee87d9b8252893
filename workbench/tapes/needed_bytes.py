"""Needed bytes: what adjoints will read is kept before an event overwrites it.

Bytes that others overwrite cannot always be kept; such changes are noted, or found by checksums of exposed memory, and
`NeededBytes.verify` refuses the walk.
"""

from __future__ import annotations

import weakref
from typing import Any

from ..arrays.allocation import Allocation, caller_where
from ..arrays.array import array, span_of
from ..arrays.span import Span
from ..errors import GradientError, Where
from .event_log import EventLog
from .events import Event, KeptBytes, Need, Needs, checksum_of, clock, stamp_of
from .kinds import FOREIGN
from .naming import TapeNames

START = "the start of the tape, to run the program again"


class NeededBytes:
    """Bytes that the adjoints of a tape will read, and the changes that have spoilt some.

    needs      of each memory, those not kept yet.
    left       touched on active paths: span -> checksum, once exposed. changed: written since by somebody else.
    guarded    True if there is anything in these two to compare with.
    met        with keep="all", every memory: how many events there were when it was met or exposed, and its checksum
               if exposed.
    begun      memories written by an event. cut: those made by a cut, a leaf if it is given requires_grad.
    conflicts  reasons to refuse the walk. failure: the launch that broke off.
    walked     True once a backward has been: what others overwrite is kept from then on instead of refused.
    """

    def __init__(self, keep: str, log: EventLog, names: TapeNames, tape: weakref.ref[Any]) -> None:
        self.keeps_all = keep == "all"
        self.log, self.names, self._tape = log, names, tape
        self.clear()

    def clear(self) -> None:
        """Forget all needs and conflicts."""
        self.needs: dict[Allocation, Needs] = {}
        self.left: dict[Allocation, dict[Span, int]] = {}
        self.changed: dict[Allocation, dict[Span, None]] = {}
        self.guarded = False
        self.met: dict[Allocation, tuple[int, int | None]] = {}
        self.begun: dict[Allocation, None] = {}
        self.cut: dict[Allocation, None] = {}
        self.conflicts: list[tuple[Need, str, Where | None] | GradientError] = []
        self.failure: tuple[Event, BaseException] | None = None
        self.walked = False

    def _watch(self, a: Allocation) -> None:
        tape = self._tape()
        assert tape is not None
        a.watch(tape)

    def need(self, span: Span, event: Event, position: int) -> None:
        """Note that the adjoint of this event will read these bytes of its argument at `position`."""
        a = span.allocation
        known = self.needs.get(a)
        if known is None:
            known = self.needs[a] = Needs()
            if a not in self.left:
                self._watch(a)
        elif known.last is span:
            return
        need = Need(span, event, position)
        if a.exposed:
            need.checksum, need.stamp = checksum_of(span), stamp_of(a)
        known.append(need)

    def watch_again(self) -> None:
        """Restore needs, checksums and watching of a tape that was made from saved events."""
        for number, event in enumerate(self.log.events):
            if event.reverse is not None:
                for k, box in event.reverse.needs:
                    self.need(span_of(event.command.flat[k], box), event, k)
            for span in event.writes:
                if needs := self.needs.get(span.allocation):
                    needs.drop([n for n in needs.meeting(span) if span.contains(n.span)])
            if event.reverse is not None:
                for k in event.reverse.extremal:
                    self.need(event.command.flat[k].span, event, k)
            self.remember_left(event)
            for span in (*event.reads, *event.writes) if self.keeps_all else ():
                self.met.setdefault(span.allocation, (number, None))
                self._watch(span.allocation)

    def follow_left(self, a: Allocation) -> None:
        """From now on a change of this memory between two events is a conflict."""
        if a not in self.left:
            self.left[a] = {}
            self._watch(a)

    def remember_left(self, event: Event) -> None:
        """Checksum the exposed memory that an event read or wrote: unrecorded changes until the next are conflicts."""
        known, active = self.left, self.log.active
        for span in event.writes:
            a = span.allocation
            left = known.get(a)
            if left is None:
                left = known[a] = {}
                if a not in self.needs:
                    self._watch(a)
            if a.exposed:
                for old in [s for s in left if s.overlaps(span) is not False]:
                    del left[old]
                    if not span.contains(old):
                        left[old] = checksum_of(old)
                left[span] = checksum_of(span)
                self.guarded = True
        for span in event.reads:  # a leaf that changes between two readings is two leaves
            a = span.allocation
            if a not in active:
                continue
            self.follow_left(a)
            if a.exposed and span not in known[a]:
                known[a][span] = checksum_of(span)
                self.guarded = True

    def check_left(self, event: Event) -> None:
        """Note a conflict where this event touches bytes that changed, unrecorded, since an earlier one did."""
        for span in dict.fromkeys((*event.reads, *event.writes)):
            for old in [s for s in self.changed.get(span.allocation, ()) if s.overlaps(span) is not False]:
                plain = event.command is None and not event.kind.calls_back
                if not (plain and span in event.writes and span.contains(old)):
                    self.conflicts.append(self._unrecorded(old, event))
                del self.changed[span.allocation][old]
            left = self.left.get(span.allocation)
            for old in [s for s in left if s.overlaps(span) is not False] if left else ():
                if left and left[old] != checksum_of(old):
                    del left[old]
                    self.conflicts.append(self._unrecorded(old, event))

    def _unrecorded(self, span: Span, event: Event) -> GradientError:
        found = ((p.name, a) for p, a in event.arguments if getattr(a, "allocation", None) is span.allocation)
        name = next((self.names.called(a, parameter) for parameter, a in found), "")
        return GradientError(
            f"{name or str(span.allocation)!r} was changed between two events of this tape, before {event.label!r}"
            " met it, and the tape could not see how.",
            slug="overwritten",
            where=event.where,
            why="What was computed before does not flow through that change, so the gradient would be wrong.",
            instead="wb.copy(a, b), a.assign(b), a.fill_(value) or a kernel; tape.record_func(...) behind foreign code",
        )

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
        needs = self.needs.get(memory)
        if not (needs and needs.meeting(span)):
            event.kept = (*event.kept, KeptBytes(span, span.copy_out(), said=START))

    def keep_before(self, event: Event) -> None:
        """Copy bytes that this event is about to overwrite, where an adjoint will read them (all, with keep="all")."""
        if self.keeps_all:
            self._watch_all(event)
        for span in event.writes:
            needs = self.needs.get(span.allocation)
            if needs or self.keeps_all:
                self.keep(span, event, needs)

    def _watch_all(self, event: Event) -> None:
        """Watch every memory that the tape touches, also off active paths: `replay` needs its initial contents."""
        for span in (*event.reads, *event.writes):
            a = span.allocation
            if a not in self.met:
                self.met[a] = len(self.log.events), checksum_of(a.span()) if a.exposed else None
                self._watch(a)

    def keep(self, span: Span, event: Event, needs: Needs | None) -> None:
        """Copy bytes that a write to this span will destroy, if needed, and drop the needs that this satisfies."""
        hit = needs.meeting(span) if needs else []
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
        if needs and hit:
            needs.drop([*partly, *(n for n in hit if span.contains(n.span))])

    # ---- what the tape does not record

    def foreign_write(self, span: Span, what: str, where: Where | None) -> None:
        """Called before bytes change that the tape does not record: note the conflict, or keep them.

        They are kept with keep="all", and once a backward has been: an optimizer may then change the parameters, and
        the tape can still be walked and looked at.
        """
        a = span.allocation
        needs = self.needs.get(a)
        if self.keeps_all or (self.walked and needs and needs.meeting(span)):
            event = Event(next(clock), FOREIGN, what, where or caller_where(), (), (span,))
            self.keep(span, event, needs)
            self.log.events.append(event)
            needs = None
        if needs and (hit := needs.meeting(span)):
            where = where or caller_where()
            self.conflicts += [(need, what, where) for need in hit]
            needs.drop(hit)  # once is enough to refuse the walk
        if a in self.left and (a not in self.cut or self.log.follows(a)):
            self.changed.setdefault(a, {})[span] = None
            self.guarded = True

    def exposing(self, allocation: Allocation) -> None:
        """Called when the address of memory leaves our hands: take checksums, by which later changes are found."""
        events = self.log.events
        if allocation in self.met:
            self.met[allocation] = len(events), checksum_of(allocation.span())
        for need in self.needs.get(allocation, ()):
            need.checksum = checksum_of(need.span)
        if (left := self.left.get(allocation)) is not None:
            touched = (span for event in events for span in (*event.writes, *event.reads))
            spans = (span for span in touched if span.allocation is allocation)
            left.update((span, checksum_of(span)) for span in dict.fromkeys(spans))
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
        for needs in self.needs.values():
            for need in needs:
                if need.checksum is not None and not need.verify():
                    self.conflicts.append((need, need.culprit(), None))
                    need.checksum = None
        if self.conflicts:
            first = self.conflicts[0]
            if isinstance(first, GradientError):
                raise first
            need, what, where = first
            line = f" at {where}: {where.text.strip()}" if where else ""
            name = self.names.called(need.array, need.name)
            raise GradientError(
                f"{name!r} was changed by {what}{line}, after {need.event.label!r} had read it.",
                slug="overwritten",
                where=need.event.where,
                why=f"The adjoint of {need.event.label!r} needs the value it read, and that is gone.",
                instead='wb.Tape(keep="all"), or the change inside the tape or after backward()'
                if where
                else "tape.backward(...)   before that change, or wb.clone(a) as the argument of the launch",
            )
