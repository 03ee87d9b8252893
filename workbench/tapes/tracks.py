"""Tracks: what a tape recorded, for tapes that record the same again.

Once a reverse pass has run as a list of calls (`walks_seen`), what its tape recorded is a track: kernel by kernel, the
serial numbers of the arrays, what became active, what was overwritten, and the line. A tape that begins with the first
launch of a track follows it (`followed.Followed`): each launch is compared with the next step and run, and nothing more
is noted than its arguments. Numbers and vectors may be others each time, unless an index depends on them. Whatever else
happens, or is asked of that tape, unfolds the events first. No track keeps an array alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any

from ..arrays import allocation as memory
from ..arrays.allocation import Allocation
from ..arrays.array import array, span_of
from ..arrays.span import Span
from ..config import config
from ..launches.seen import described, flat_of
from .events import Event
from .overwrites import START

if TYPE_CHECKING:
    from .walks_seen import Prepared


class Step:
    """One event of a track: a launch, or arrays cleared by `zero_` (`seen` is None). Positions are those of arguments.

    place     (code, its instruction) of a launch, the `Where` of a clearing.
    active    what becomes active: (position, or None for what only adds a type, scalar type or None).
    first     arrays whose memory is met for the first time; `watched`: those of them that the tape is told about.
    starts    (position, box) of what must be copied before, unless it is known to be all zeros.
    sole      the positions of `writes` whose memory the whole track writes in one way only, whole.
    sums      (position, box) of what lies in exposed memory: behind the step its checksum is taken.
    """

    __slots__ = (
        "seen", "kernel", "name", "grid", "device", "place", "count", "serials", "reverse", "active", "types", "reads",
        "writes", "first", "watched", "starts", "sums", "sole",
    )  # fmt: skip

    def __init__(self, event: Event, flat: Sequence[Any]):
        command = event.command
        self.seen: Any = None if command is None else command.seen
        self.kernel: Any = None if command is None else command.program.kernel
        self.name, self.reverse = event.label, event.reverse
        self.place: Any = event.place
        self.grid = None if self.seen is None else self.seen.grid
        self.device = None if self.seen is None else self.seen.device
        self.count = len(flat) if command is None else len(command.program.params)
        self.serials = tuple([(k, a.serial) for k, a in enumerate(flat) if isinstance(a, array)])
        plan = None if command is None else command.plan
        self.reads: tuple[tuple[int, Any], ...] = () if plan is None else plan.reads
        covered = frozenset({0}) if plan is None else plan.covered
        writes = ((0, None),) if plan is None else plan.writes
        self.writes = tuple([(k, box, k in covered) for k, box in writes])
        self.active: tuple[int, ...] = ()
        self.types: tuple[tuple[int, Any], ...] = ()
        self.first: tuple[int, ...] = ()
        self.watched: tuple[int, ...] = ()
        self.starts: tuple[tuple[int, Any], ...] = ()
        self.sums: tuple[tuple[int, Any], ...] = ()
        self.sole: frozenset[int] = frozenset()

    def clears(self, dst: array, where: Any) -> tuple | None:
        """The arrays of `dst.zero_()` in this line, if that is this step."""
        return (dst,) if self.seen is None and dst.serial == self.serials[0][1] and where == self.place else None

    def native(self) -> tuple | None:
        """The step as `steps.c` takes it; None where it does more than that knows."""
        if self.seen is None or self.sums:
            return None
        flat = tuple([n for pair in self.serials for n in pair])
        writes = tuple([n for k, _, _ in self.writes for n in (k, int(k in self.sole))])
        starts, reads = tuple([k for k, _ in self.starts]), tuple([k for k, _ in self.reads])
        return described(self.kernel, self.seen, self.place, flat, writes, self.watched, starts, reads)

    def takes(self, kernel: Any, dim: Any, args: tuple, device: Any) -> tuple | None:
        """The flat arguments of a launch that is this step, numbers as they are now; None if it is another."""
        seen = self.seen
        if seen is None or kernel is not self.kernel or len(args) != self.count or device is not self.device:
            return None
        if seen.switches != config.switches or not kernel.reads(seen.plan.program):
            return None
        try:
            if self.grid != (dim if dim.__class__ is int else tuple(map(index, dim))):
                return None
            flat = flat_of(seen.plan.program, args)
            if any(flat[k].serial != serial for k, serial in self.serials) or not seen.fits(flat):
                return None
        except (TypeError, AttributeError):
            return None
        return _with_numbers(flat, seen.free) if seen.free else flat


def _with_numbers(flat: tuple, free: tuple) -> tuple | None:
    """These arguments, of which none changes any more. None for numbers that must be looked at."""
    now = [*flat]
    for f in free:
        now[f.position] = f.kept(flat[f.position])
    return None if any(now[f.position] is None for f in free) else tuple(now)


class Track:
    """Steps in order, and what holds when all have been followed.

    marks     of all memory that is met: (weak reference, is a gradient asked for, of what, is it exposed).
    counts    those of `memory` when the marks were last compared.
    missed    how often in a row it was begun and not followed to its end, or unfolded then.
    needs     number of a memory -> (step, position, box) of what adjoints read there.
    last_run  a weak reference to the `Run` of the tape that followed it last.
    names     (step, position, what the user called the array).
    origins   (span that keeps no memory alive, live) of what was written last, in the order in which it is noted.
    """

    def __init__(self, walk: Prepared, tape: Any):
        self.walk, self.steps, self.missed = walk, [], 0
        self.kept_leaves, self.kept_names, self.wrote = tape.run.leaves, tape.run.names, set(tape.run.wrote)
        self.scalars = {a.id: kind for a, kind in tape.scalars.items()}
        self.active = {a.id for a in tape.active}
        self.marks: list[tuple] = []
        self.counts = (memory.asks, memory.shown)
        self.names: list[tuple[int, int, str]] = []
        self.needs: dict[int, list[tuple[int, int, Any]]] = {}
        self.last_run: Any = lambda: None
        self.origins: list[tuple[Span, bool]] = []

    @property
    def first(self) -> Step:
        return self.steps[0]

    @cached_property
    def native(self) -> tuple:
        """The steps for `steps.c`."""
        return tuple([step.native() for step in self.steps])

    def current(self) -> bool:
        """Do the marks hold. Looks at them only when some memory was exposed or asked for."""
        counts = memory.asks, memory.shown
        if self.counts != counts:
            if any((a := ref()) is None or marks != marks_of(a) for ref, marks in self.marks):
                return False
            self.counts = counts
        return True


def marks_of(a: Allocation) -> tuple:
    """What launches and walks ask of a memory, beside what it holds."""
    return a.asked, not a.required.spans, bool(a.retained.spans), a.exposed


known: list[Track] = []
MOST = 4  # tracks, and how often in a row one may be missed


def note(walk: Prepared, tape: Any) -> None:
    """Make a track of what a tape recorded, whose walk has just run as a list of calls: once, and when it was lost."""
    if walk.tracks < MOST and not any(track.walk is walk for track in known):
        walk.tracks += 1
        track = track_of(walk, tape)
        if track is not None:
            known[:] = [*known[1 - MOST :], track]


def missed(track: Track) -> None:
    """Note that a tape did not follow a track to the end, or was asked for its events."""
    track.missed += 1
    if track.missed > MOST and track in known:
        known.remove(track)


def forget() -> None:
    """Forget all tracks."""
    known.clear()


def track_of(walk: Prepared, tape: Any) -> Track | None:
    """The track of a tape whose walk has just run as a list of calls; None where one cannot be followed."""
    if not _plain(tape) or not all(map(_followable, tape.events)):
        return None
    track, made = Track(walk, tape), _Made(tape)
    for number, event in enumerate(tape.events):
        step = made.step(number, event)
        if step is None:
            return None
        track.steps.append(step)
    if made.active.keys() != tape.active.keys() or made.scalars != tape.scalars:
        return None
    track.marks = [(weakref.ref(a), marks_of(a)) for a in made.met]
    for i, (number, k) in made.place.items():
        if i in tape.names and i not in tape.guessed:
            track.names.append((number, k, tape.names[i]))
    track.origins = _origins(tape)
    for number, event in enumerate(tape.events):
        for k, box in event.reverse.needs if event.reverse is not None else ():
            track.needs.setdefault(event.command.flat[k].allocation.id, []).append((number, k, box))
    for step, event in zip(track.steps, tape.events, strict=True):
        alone = [len(made.spans[span.allocation]) == 1 for span in event.writes]
        step.sole = frozenset(k for (k, _, covered), one in zip(step.writes, alone, strict=True) if covered and one)
    return track


def _plain(tape: Any) -> bool:
    odd = tape.keep != "needed" or tape.apart or tape.muted or tape.around is not None or tape.run.outer is not None
    noted = tape.conflicts or tape.failure or tape.cut or tape.crossings or tape.borders or tape.suspects
    return not (odd or noted or tape.scopes or tape.entered or any(e.command for e in tape.constants.events))


def _followable(event: Event) -> bool:
    """True for what a follower can do: a launch seen before that is one native call, and `zero_`."""
    command = event.command
    if (command is None) is isinstance(event.place, tuple):
        return False
    if any(kept.said != START or kept.needs for kept in event.kept):
        return False
    if command is None:
        dst = event.arrays[0]
        return event.kind == "zero_" and not (event.sources or dst.allocation.is_gradient) and dst.span.dense
    if command.seen is None or command.held or command.declared:
        return False
    arrays = [a for a in command.flat if isinstance(a, array)]
    back = event.reverse
    odd = back is not None and (back.extremal or back.races is not None)
    return not (odd or command.plan.forward.direct is None or any(a.allocation.is_gradient for a in arrays))


class _Made:
    """The events of a tape gone through once more, for what each of them adds to the others."""

    def __init__(self, tape: Any):
        self.tape, self.ref = tape, weakref.ref(tape)
        self.active: dict[Allocation, None] = {}
        self.scalars: dict[Allocation, Any] = {}
        self.begun: set[Allocation] = set()
        self.met: dict[Allocation, None] = {}
        self.place: dict[int, tuple[int, int]] = {}  # id of an array -> the step and position where it came first
        self.spans: dict[Allocation, set[Span]] = {}  # that were written
        self.left: dict[Allocation, set[Span]] = {}  # exposed memory of which there are checksums

    def step(self, number: int, event: Event) -> Step | None:
        command = event.command
        flat = event.arrays if command is None else command.flat
        step = Step(event, flat)
        if command is not None and not self._activate(step, command.plan, flat, event.reverse):
            return None
        first = {flat[k].allocation: k for k, _ in step.serials if flat[k].allocation not in self.met}
        step.first = tuple(first.values())
        step.watched = tuple([k for a, k in first.items() if self.ref in a.watchers])
        self.met.update(dict.fromkeys(first))
        step.starts = tuple(self._starts(step, event, flat))
        for k, _ in step.serials:
            self.place.setdefault(id(flat[k]), (number, k))
        for span in event.writes:
            self.spans.setdefault(span.allocation, set()).add(span)
        return step if self._sums(step, event, flat) else None

    def _sums(self, step: Step, event: Event, flat: Sequence[Any]) -> bool:
        """Of which exposed memory a recording takes checksums behind this event. False if it does more than that."""
        if event.reverse is not None and any(flat[k].allocation.exposed for k, _ in event.reverse.needs):
            return False
        written = [(k, box) for k, box, _ in step.writes if flat[k].allocation.exposed]
        if any(flat[k].allocation in self.left for k, _ in written):
            return False
        if event.command is None:
            return not (written and flat[0].allocation in self.active)
        read = [(k, box) for k, box in step.reads if flat[k].allocation.exposed and flat[k].allocation in self.active]
        for k, box in (*written, *read) if event.reverse is not None else ():
            span, a = span_of(flat[k], box), flat[k].allocation
            if span not in self.left.setdefault(a, set()):
                self.left[a].add(span)
                step.sums += ((k, box),)
        return True

    def _activate(self, step: Step, plan: Any, flat: Sequence[Any], back: Any) -> bool:
        """Work out what becomes active as a recording does. False if the tape found something else."""
        asked = {k for k in plan.floats if flat[k].allocation.asked or flat[k].allocation in self.active}
        following = not plan.float_reads.isdisjoint(asked)
        mask = sorted(asked | (plan.float_writes if following else set()))
        grown = {flat[k].allocation for k in mask}
        mask = [k for k in plan.floats if flat[k].allocation in grown]
        found = None if plan.float_writes.isdisjoint(mask) else plan.reverses.get(tuple(mask))
        return found is back and self._mark(step, plan, flat, mask)

    def _mark(self, step: Step, plan: Any, flat: Sequence[Any], mask: Sequence[int]) -> bool:
        step.active = tuple([k for k in mask if flat[k].allocation not in self.active])
        self.active.update(dict.fromkeys([flat[k].allocation for k in mask]))
        step.types = tuple([(k, plan.floats[k]) for k in mask if flat[k].allocation not in self.scalars])
        for k in mask:
            if self.scalars.setdefault(flat[k].allocation, plan.floats[k]) is not plan.floats[k]:
                return False
        return True

    def _starts(self, step: Step, event: Event, flat: Sequence[Any]) -> list[tuple[int, Any]]:
        """What a recording copies before this event, as the first that writes it."""
        found = []
        for k, box, _ in step.writes:
            a, span = flat[k], span_of(flat[k], box)
            if a.allocation in self.begun:
                continue
            self.begun.add(a.allocation)
            read = id(a) in self.place or any(s.overlaps(span) is not False for s in event.reads)
            if read and span.nbytes:
                found.append((k, box))
        return found


def _origins(tape: Any) -> list[tuple[Span, bool]]:
    """What `borders.settle` notes when the tape closes."""
    last: dict[Span, bool] = {}
    for event in reversed(tape.events):
        back = event.reverse
        for n, span in enumerate(event.writes):
            if span not in last:
                last[span] = back is not None and bool(back.live[n]) and event not in tape.constants
    return [(span.weak(), live) for span, live in reversed(last.items())] if any(last.values()) else []
