"""Tapes that follow a track: each launch is compared with the next step of what was recorded before, and runs.

A tape becomes a `Followed` when it is entered and tracks are known. It has none of the attributes in which a tape notes
what it recorded: whoever asks for one of them gets the events unfolded first, from the arguments that were kept, as
recording would have noted them. The same happens at whatever is not the next step: another launch, write or line,
memory that another tape watches or wrote, numbers that the host read, a gradient asked for or memory exposed since.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any

from ..arrays import allocation as memory
from ..arrays import capture_log
from ..arrays.allocation import Allocation
from ..arrays.array import array, pack_values, span_of, spans_of
from ..arrays.loans import lent
from ..arrays.span import Span
from ..arrays.workspace import Workspace
from ..config import config
from ..errors import Where
from ..kernels.compile import steps
from ..launches import seen as launches_seen
from ..launches.launch import Command
from . import overwrites, publish, tracks
from .ask import ask
from .events import Event, Kept, checksum_of, clock
from .tape import Tape
from .tracks import Step, Track

LATE = (
    "events", "arrays", "names", "guessed", "wholes", "settled", "active", "needs", "written", "touched", "begun",
    "scalars", "stored", "first", "stamps", "tallied", "bits", "left", "changed", "guarded", "met", "constants",
)  # fmt: skip


def begin(tape: Tape) -> None:
    """Let an empty tape that has just been entered follow the track that it takes, if it takes one."""
    alone = memory.recorders() == [tape] and capture_log.opened is None and not tape.run.outer and not tape.muted
    if alone and tape.__class__ is Tape and not tape.events and tape.keep == "needed":
        tape.following = launches_seen.ahead = Following(tape)
        tape.__class__ = Followed


def _never(*given: Any) -> bool:
    return False


class Following:
    """How far a tape has come along a track, and what it has met there.

    args, ids  of each step: the flat arguments, vectors as bytes, and when it was.
    starts     step -> copies of what it overwrote.
    later      (span, what, where, stamp, copy of the bytes or None) of what others wrote after the reverse pass.
    told       the spans in `later`.
    unread     memory -> which of the needs of adjoints there others have not overwritten since.
    quick      called with `fast` and the arguments of a launch: does what `step` does, or answers False.
    left       exposed memory: span -> checksum, of what was touched on active paths.
    """

    __slots__ = (
        "tape", "own", "thread", "track", "args", "ids", "starts", "left", "late", "open", "quick",
        "fast", "later", "unread", "told",
    )  # fmt: skip

    def __init__(self, tape: Tape):
        self.tape = self.own = weakref.ref(tape)
        self.thread, self.open = get_ident(), True
        self.track: Track | None = None
        self.args: list[tuple] = []
        self.ids: list[int] = []
        self.starts: dict[int, list[Kept]] = {}
        self.left: dict[Allocation, dict[Span, int]] = {}
        self.late = {name: vars(tape).pop(name) for name in LATE}

        self.later: list[tuple] = []
        self.told: set[Span] = set()
        self.unread: dict[Allocation, list[tuple]] = {}
        self.quick: Any = _never
        self.fast: Any = None

    @property
    def at(self) -> int:
        """How many steps it has taken."""
        return len(self.args)

    # ---- going on

    def step(self, kernel: Any, dim: Any, args: tuple, device: Any, depth: int = 2) -> bool:
        """Launch, if that is the next step. Called by `launch`, whose caller is so many frames from here."""
        if get_ident() != self.thread:
            return False
        with memory.LOCK:
            found = self._next(lambda step: step.takes(kernel, dim, args, device))
            frame: Any = sys._getframe(depth)
            if found is None or found[0].place != (frame.f_code, frame.f_lasti) or not self._clear_ahead(*found):
                return self._stop()
            step, flat = found
            packed = _packed(step.seen, flat)
            self._enter(step, flat)
            number = next(clock)
            try:
                step.seen.plan.forward.direct(packed, 0, step.seen.plan.form.dims[0])
            except BaseException as failure:
                tape = self.tape()
                tape.after_failure(self._broken(step, flat, number), failure)  # type: ignore[union-attr]
                raise
            self._done(step, flat, number)
            return True

    def clear(self, dst: array, perform: Callable[[], None], where: Where | None) -> bool:
        """`dst.zero_()`, if that is the next step."""
        if get_ident() != self.thread:
            return False
        found = self._next(lambda step: step.clears(dst, where))
        if found is None or not self._clear_ahead(*found):
            return self._stop()
        step, _ = found
        self._enter(step, (dst,))
        number = next(clock)
        perform()
        self._done(step, (dst,), number)
        return True

    def _next(self, fits: Callable[[Step], tuple | None]) -> tuple[Step, tuple] | None:
        """The next step and its flat arguments, if it fits and nothing else has happened."""
        track = self.track
        if track is None:
            track = self.track = next((t for t in tracks.known if fits(t.first) is not None and t.current()), None)
        if track is None or self.at == len(track.steps):
            return None
        step, tape = track.steps[self.at], self.tape()
        if lent or capture_log.opened is not None or config.check_races or not config.remember_launches:
            return None
        if tape is None or memory.recorder() is not tape:
            return None
        if track.counts != (memory.asks, memory.shown):
            if not track.current():
                return None
            self.fast, self.quick = None, _never  # which compares with the counts of before
        if tape.numbers.any or tape.conflicts or tape.failure is not None or tape.muted:
            return None
        flat = fits(step)
        return None if flat is None else (step, flat)

    def _clear_ahead(self, step: Step, args: tuple) -> bool:
        """False if other tapes have to do with this memory, or others may have changed it."""
        for k, _ in step.reads:
            if args[k].allocation.origins:
                return False
        for k, box, covered in step.writes:
            a = args[k].allocation
            if a.origins and not (covered and _within(a.origins.spans, span_of(args[k], box))):
                return False
            for ref in a.watchers:
                if ref is not self.own and ref() is not None:
                    return False
        return not self.left or self._unchanged(step, args)

    def _unchanged(self, step: Step, args: tuple) -> bool:
        for k, box in (*step.reads, *[(k, box) for k, box, _ in step.writes]):
            span = span_of(args[k], box)
            for old, checksum in self.left.get(span.allocation, {}).items():
                if old.overlaps(span) is not False and checksum != checksum_of(old):
                    return False
        return True

    def _enter(self, step: Step, args: tuple) -> None:
        """What is done before a step: it has to be watched and copied now, whatever else is noted later."""
        tape = self.tape()
        for k in step.watched:
            args[k].allocation.watch(tape)
        for k, box in step.starts:
            a, span = args[k].allocation, span_of(args[k], box)
            if a.blank != a.version:
                self.starts.setdefault(self.at, []).append(Kept(span, span.copy_out(), said=overwrites.START))
        for k, _, _ in step.writes:
            a = args[k].allocation
            a.origins = None
            a.version += 1

    def _done(self, step: Step, args: tuple, number: int) -> None:
        for k, box in step.sums:
            span = span_of(args[k], box)
            self.left.setdefault(span.allocation, {})[span] = checksum_of(span)
        self.args.append(args)
        self.ids.append(number)
        if self.fast is None:
            self._hasten()

    def _hasten(self) -> None:
        """Let compiled code take the steps from here on, if it is there."""
        self.fast, quick, track, tape = (), steps.ready(), self.track, self.tape()
        if quick is None or track is None or tape is None:
            return
        for_all = (
            self.thread, memory.tapes_of_threads.stack, id(tape), lent, vars(capture_log), vars(config), vars(memory),
            *track.counts, tape.numbers,
        )  # fmt: skip
        lock = memory.LOCK
        rest = (clock, lock.acquire, lock.release, for_all, False)
        self.fast = (track.native, self.args, self.ids, self.own, track.last_run(), *rest)
        self.quick = quick[0]

    def _stop(self) -> bool:
        """Follow no further. Always False."""
        self.quick = _never
        if launches_seen.ahead is self:
            launches_seen.ahead = launches_seen.idle
        if self.track is not None:
            tracks.missed(self.track)
        self.unfold()
        return False

    # ---- the end of the tape

    @property
    def whole(self) -> bool:
        """Has the track been followed to its end."""
        return self.track is not None and self.at == len(self.track.steps)

    def close(self) -> bool:
        """Note what a tape notes when it closes, at the end of the track. False if it must unfold instead."""
        with memory.LOCK:
            if launches_seen.ahead is self:
                launches_seen.ahead = launches_seen.idle
            tape, track = self.tape(), self.track
            if tape is None or track is None or not self.whole:
                self.unfold()
                return False
            tape.entered.pop()
            run = tape.run
            run.wrote.update(track.wrote)
            for span, live in track.origins:
                span.allocation.note_origin(span, run, live)
            run.leaves, run.names = track.kept_leaves, track.kept_names
            self.open, track.missed, track.last_run = False, 0, weakref.ref(run)
            self.quick, self.fast = _never, ()
            return True

    # ---- the reverse pass

    def may_walk(self) -> bool:
        """Is all that a `backward` looks at as it was when the track was made."""
        if self.open or self.track is None or not config.remember_launches:
            return False
        if publish.ports and any(exposed for _, (*_, exposed) in self.track.marks):
            return False
        tape, opened = self.tape(), capture_log.opened is not None
        odd = tape is None or tape.borders or tape.conflicts or tape.failure or opened or self.later
        return not odd and self.track.current()

    def put_off(self, span: Span, what: str, where: Where | None) -> bool:
        """Note what others are about to write, and copy what adjoints would read. False before the first `backward`."""
        tape, track = self.tape(), self.track
        if tape is None or track is None or self.open or not tape.walked:
            return False
        a = span.allocation
        needs = self.unread.get(a)
        if needs is None:
            needs = track.needs.get(a.id, [])
        read = [n for n in needs if self._needed(n).overlaps(span) is not False]
        if read:
            self.unread[a] = [n for n in needs if n not in read or not span.contains(self._needed(n))]
            self.later.append((span, what, where or memory.caller_where(), next(clock), span.copy_out()))
        elif span not in self.told:
            self.later.append((span, what, where, 0, None))
        self.told.add(span)
        return True

    def _needed(self, need: tuple[int, int, Any]) -> Span:
        number, k, box = need
        return span_of(self.args[number][k], box)

    def walk(self, seeds: Workspace) -> Any:
        """The list of calls for these seeds; None if it begins elsewhere."""
        walk = self.track.walk  # type: ignore[union-attr]
        return walk if not seeds.places and walk.signature[2] == [a.id for a in seeds] else None

    def memories(self) -> list[Allocation]:
        """All memory that was met."""
        steps = self.track.steps[: self.at] if self.track is not None else []
        return [args[k].allocation for step, args in zip(steps, self.args, strict=True) for k in step.first]

    # ---- unfolding

    def drop(self) -> None:
        """Forget all that was followed."""
        tape = self.tape()
        if tape is not None and tape.following is self:
            tape.__class__, tape.following = Tape, None
            vars(tape).update(self.late)
            if launches_seen.ahead is self:
                launches_seen.ahead = launches_seen.idle

    def unfold(self) -> None:
        """Make the tape what recording would have made it."""
        tape, track = self.tape(), self.track
        with memory.LOCK:
            if tape is None or tape.following is not self:
                return
            self.drop()
            if track is None or not self.at:
                return
            for number in range(self.at):
                self._note(tape, track.steps[number], self.args[number], self.ids[number], number)
            for a, sums in self.left.items():
                tape.left.setdefault(a, {}).update(sums)
                tape.guarded = True
            if not self.open:
                tape.settled = len(tape.events)
                tape.constants.follow(tape)
                tape.names.update((id(self.args[n][k]), name) for n, k, name in track.names)
                tracks.missed(track)
            for written in self.later:
                _note_foreign(tape, *written)

    def _broken(self, step: Step, args: tuple, number: int) -> Event:
        """The event of a launch that broke off."""
        tape = self.tape()
        assert tape is not None
        self.unfold()
        event = self._note(tape, step, args, number, self.at)
        tape.events.pop()
        return event

    def _note(self, tape: Tape, step: Step, args: tuple, id: int, number: int) -> Event:
        """Note one step as `Recording.before_launch` and `after_launch`, or `host_event`, do."""
        event = _event(step, args, id)
        for k in step.active:
            tape.active[args[k].allocation] = None
        for k, kind in step.types:
            tape.scalars.setdefault(args[k].allocation, kind)
        if step.reverse is not None:
            event.reverse = step.reverse
            for k, box in step.reverse.needs:
                overwrites.need(tape, span_of(args[k], box), event, k)
        for k, _, _ in step.writes:
            tape.begun[args[k].allocation] = None
        for k, _ in step.serials:
            tape.arrays[id_of(args[k])] = args[k]
        if number in self.starts:
            event.kept = tuple(self.starts[number])
        tape.events.append(event)
        active = step.seen is None and args[0].allocation in tape.active
        if step.reverse is not None or active:
            met = [s.allocation for s in event.writes]
            met += [s.allocation for s in event.reads if s.allocation in tape.active]
            for a in met:
                if a not in tape.left:
                    tape.left[a] = {}
                    if a not in tape.needs:
                        a.watch(tape)
        return event


id_of = id


def _within(origins: Any, span: Span) -> bool:
    return all(part is span or span.contains(part) for part, _ in origins)


def _event(step: Step, args: tuple, id: int) -> Event:
    seen = step.seen
    if seen is None:
        return Event(id, "zero_", "zero_", step.place, (), (args[0].span,), arrays=args)
    plan, flat = seen.plan, _numbers_taken(seen, args)
    command = Command(plan.program, plan, flat, seen, bool(seen.free))
    reads, writes = spans_of(flat, plan.reads), spans_of(flat, plan.writes)
    return Event(id, "launch", step.name, step.place, reads, writes, command)


def _numbers_taken(seen: Any, args: tuple) -> list:
    """The flat arguments as a kernel gets them, from those that a step has kept."""
    flat = [*args]
    for k, _, number in seen.numbers:
        flat[k] = number
    for free in seen.free:
        flat[free.position] = free.value(args[free.position])
    return flat


def _packed(seen: Any, args: tuple) -> bytes:
    """The block of arguments of a launch."""
    run = seen.plan.forward
    if seen.free:
        return run.packed(pack_values(_numbers_taken(seen, args)))
    if seen.packed is None:
        seen.packed = run.packed(seen.values)
    return seen.packed


def _note_foreign(tape: Tape, span: Span, what: str, where: Where | None, stamp: int, data: Any) -> None:
    """What `Recording.foreign_write` does after a backward."""
    a = span.allocation
    if data is not None:
        event, hit = Event(stamp, "foreign", what, where, (), (span,)), tape.needs[a].meeting(span)
        event.kept = (Kept(span, data, hit),)
        tape.needs[a] = tape.needs[a].without([n for n in hit if span.contains(n.span)])
        tape.events.append(event)
    if a in tape.left:
        tape.changed.setdefault(a, {})[span] = None
        tape.guarded = True


class Followed(Tape):
    """A tape while it follows a track: a `Tape` that makes its events when somebody asks for them."""

    following: Any

    def __getattr__(self, name: str) -> Any:
        following = vars(self).get("following")
        if following is None or name not in LATE:
            raise AttributeError(f"'Tape' object has no attribute {name!r}", name=name, obj=self)
        following.unfold()
        return getattr(self, name)

    def host_event(
        self, kind: str, dst: array, src: array | None, value: Any, perform: Callable[[], None], where: Where | None,
        sources: tuple = (),
    ) -> None:  # fmt: skip
        """As of all tapes, but `zero_` may be the next step."""
        following = self.following
        if kind == "zero_" and not sources and following.clear(dst, perform, where):
            return
        following.unfold()
        Tape.host_event(self, kind, dst, src, value, perform, where, sources)

    def foreign_write(self, span: Span, what: str, where: Where | None) -> None:
        """Called before bytes change that this tape does not record."""
        if not self.following.put_off(span, what, where):
            self.following.unfold()
            Tape.foreign_write(self, span, what, where)

    def has_touched(self, span: Span) -> bool:
        """Has an event of this tape read or written one of these bytes."""
        following = self.following
        if following.whole:
            args = following.args[-1]
            if any(span_of(args[k], box) == span for k, box, _ in following.track.steps[-1].writes):
                return True
        return Tape.has_touched(self, span)

    def scalar_of(self, a: Allocation) -> Any:
        """The scalar type of memory on an active path; None of other memory."""
        following = self.following
        return following.track.scalars.get(a.id) if following.whole else Tape.scalar_of(self, a)

    def is_active(self, a: Allocation) -> bool:
        """Does this memory depend on something with `requires_grad`."""
        following = self.following
        return a.id in following.track.active if following.whole else Tape.is_active(self, a)

    def write(self, number: int, k: int) -> tuple[Span, Any]:
        """What an event wrote k-th, and the plan of the launch that it was; None for other events."""
        following = self.following
        if not following.whole:
            return Tape.write(self, number, k)
        step = following.track.steps[number]
        position, box, _ = step.writes[k]
        return span_of(following.args[number][position], box), None if step.seen is None else step.seen.plan

    def arguments(self) -> list:
        """The flat arguments of all events; vectors may be bytes."""
        return self.following.args if self.following.whole else Tape.arguments(self)

    def last_stamp(self) -> int:
        """When the last event was recorded."""
        return self.following.ids[-1] if self.following.ids else Tape.last_stamp(self)

    def memories(self) -> list[Allocation]:
        """The memory of all arrays that this tape has met."""
        return self.following.memories()

    def __reduce__(self) -> Any:
        """What `pickle` makes of a tape."""
        self.following.unfold()
        return ask("reduced", self)


Followed.__name__ = Followed.__qualname__ = "Tape"
