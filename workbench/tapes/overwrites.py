"""Overwritten values: bytes that adjoints will read are kept before an event overwrites them.

Bytes that others overwrite cannot be kept; such changes are noted, or found by checksums of exposed memory, and
`verify` refuses the walk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..arrays.array import array, span_of
from ..arrays.span import Span
from ..errors import GradientError
from .events import Event, KeptBytes, Need, Needs, checksum_of, stamp_of
from .naming import called
from .touched_bytes import refuse_bits

if TYPE_CHECKING:
    from .recording import Recording


def need(tape: Recording, span: Span, event: Event, position: int) -> None:
    """Note that the adjoint of this event will read these bytes of its argument at `position`."""
    a = span.allocation
    known = tape.needs.get(a)
    if known is None:
        known = tape.needs[a] = Needs()
        if a not in tape.left:
            a.watch(tape)
    elif known and known[-1].span is span:
        return
    need = Need(span, event, position)
    if a.exposed:
        need.checksum, need.stamp = checksum_of(span), stamp_of(a)
    known.append(need)


def watch_again(tape: Recording) -> None:
    """Restore needs, checksums and watching of a tape that was made from saved events."""
    for number, event in enumerate(tape.events):
        if event.reverse is not None:
            for k, box in event.reverse.needs:
                need(tape, span_of(event.command.flat[k], box), event, k)
        for span in event.writes:
            if needs := tape.needs.get(span.allocation):
                tape.needs[span.allocation] = needs.without([n for n in needs.meeting(span) if span.contains(n.span)])
        if event.reverse is not None:
            for k in event.reverse.extremal:
                need(tape, event.command.flat[k].span, event, k)
        remember_left(tape, event)
        for span in (*event.reads, *event.writes) if tape.keep == "all" else ():
            tape.met.setdefault(span.allocation, (number, None))
            span.allocation.watch(tape)


def remember_left(tape: Recording, event: Event) -> None:
    """Checksum the exposed memory that an event read or wrote: unrecorded changes until the next are conflicts."""
    known = tape.left
    for span in event.writes:
        a = span.allocation
        left = known.get(a)
        if left is None:
            left = known[a] = {}
            if a not in tape.needs:
                a.watch(tape)
        if a.exposed:
            for old in [s for s in left if s.overlaps(span) is not False]:
                del left[old]
                if not span.contains(old):
                    left[old] = checksum_of(old)
            left[span] = checksum_of(span)
            tape.guarded = True
    for span in event.reads:  # a leaf that changes between two readings is two leaves
        a = span.allocation
        left = known.get(a)
        if left is None and a in tape.active:
            left = known[a] = {}
            a.watch(tape)
        if a.exposed and a in tape.active and span not in left:  # type: ignore[operator]
            left[span] = checksum_of(span)  # type: ignore[index]
            tape.guarded = True


def check_left(tape: Recording, event: Event) -> None:
    """Note a conflict where this event touches bytes that changed, unrecorded, since an earlier one touched them."""
    for span in dict.fromkeys((*event.reads, *event.writes)):
        for old in [s for s in tape.changed.get(span.allocation, ()) if s.overlaps(span) is not False]:
            anew = event.command is None and not event.kind.calls_back and span in event.writes and span.contains(old)
            if not anew:
                tape.conflicts.append(_unrecorded(tape, old, event))
            del tape.changed[span.allocation][old]
        left = tape.left.get(span.allocation)
        for old in [s for s in left if s.overlaps(span) is not False] if left else ():
            if left and left[old] != checksum_of(old):
                del left[old]
                tape.conflicts.append(_unrecorded(tape, old, event))


def _unrecorded(tape: Recording, span: Span, event: Event) -> GradientError:
    found = ((p.name, a) for p, a in event.arguments if getattr(a, "allocation", None) is span.allocation)
    name = next((called(tape, a, parameter) for parameter, a in found), "")
    return GradientError(
        f"{name or str(span.allocation)!r} was changed between two events of this tape, before {event.label!r}"
        " met it, and the tape could not see how.",
        slug="overwritten",
        where=event.where,
        why="What was computed before does not flow through that change, so the gradient would be wrong.",
        instead="wb.copy(a, b), a.assign(b), a.fill_(value) or a kernel; tape.record_func(...) behind foreign code",
    )


START = "the start of the tape, to run the program again"


def keep_start(tape: Recording, event: Event, a: array, span: Span) -> None:
    """Keep the contents of memory before the tape's first write to it, if the program has read them.

    No adjoint needs them; the program can then be run again, to look at what was not kept. Bytes that `keep_before`
    will copy, and memory that is all zeros, are left out.
    """
    memory = span.allocation
    if tape.keep == "all" or memory.blank == memory.version or not span.nbytes:
        return
    if id(a) not in tape.arrays and all(s.overlaps(span) is False for s in event.reads):
        return
    needs = tape.needs.get(memory)
    if not (needs and needs.meeting(span)):
        event.kept = (*event.kept, KeptBytes(span, span.copy_out(), said=START))


def keep_before(tape: Recording, event: Event) -> None:
    """Copy the bytes that this event is about to overwrite, where an adjoint will read them (all, with keep="all")."""
    if tape.keep == "all":
        _watch_all(tape, event)
    for span in event.writes:
        needs = tape.needs.get(span.allocation)
        if needs or tape.keep == "all":
            keep(tape, span, event, needs)


def _watch_all(tape: Recording, event: Event) -> None:
    """Watch every memory that the tape touches, also off active paths: `replay` needs its initial contents."""
    for span in (*event.reads, *event.writes):
        a = span.allocation
        if a not in tape.met:
            tape.met[a] = len(tape.events), checksum_of(a.span()) if a.exposed else None
            a.watch(tape)


def keep(tape: Recording, span: Span, event: Event, needs: Needs | None) -> None:
    """Copy bytes that a write to this span is about to destroy, if needed, and drop the needs that this satisfies."""
    hit = needs.meeting(span) if needs else []
    if not hit and tape.keep != "all":
        return
    for need in hit:
        if not need.verify():
            tape.conflicts.append((need, need.culprit(), None))
    # A checksum speaks for all of its span: when a part is overwritten, all is kept and needs no checksum more.
    partly = {n: n.span for n in hit if n.checksum is not None and not span.contains(n.span)}
    wholes = dict.fromkeys(partly.values())
    for whole in [*wholes, *([] if any(w.contains(span) for w in wholes) else [span])]:
        event.kept = (*event.kept, KeptBytes(whole, whole.copy_out(), hit))
    if needs and hit:
        tape.needs[span.allocation] = needs.without([*partly, *(n for n in hit if span.contains(n.span))])


def verify(tape: Recording) -> None:
    """Raise GradientError if a needed value was overwritten, a launch broke off, or the types of memory conflict."""
    refuse_bits(tape)
    verify_needs(tape)


def verify_needs(tape: Recording) -> None:
    """Raise GradientError if a needed value was overwritten, or a launch broke off."""
    if tape.failure is not None:
        event, error = tape.failure
        raise GradientError(
            f"{event.label!r} broke off while this tape recorded it: {error}",
            slug="failed-launch",
            where=event.where,
            why="What it had written by then is not known.",
            instead="with wb.Tape() as tape:   around all of it, once more",
        ) from error
    for needs in tape.needs.values():
        for need in needs:
            if need.checksum is not None and not need.verify():
                tape.conflicts.append((need, need.culprit(), None))
                need.checksum = None
    if tape.conflicts:
        first = tape.conflicts[0]
        if isinstance(first, GradientError):
            raise first
        need, what, where = first
        line = f" at {where}: {where.text.strip()}" if where else ""
        name = called(tape, need.array, need.name)
        raise GradientError(
            f"{name!r} was changed by {what}{line}, after {need.event.label!r} had read it.",
            slug="overwritten",
            where=need.event.where,
            why=f"The adjoint of {need.event.label!r} needs the value it read, and that is gone.",
            instead='wb.Tape(keep="all"), or the change inside the tape or after backward()'
            if where
            else "tape.backward(...)   before that change, or wb.clone(a) as the argument of the launch",
        )
