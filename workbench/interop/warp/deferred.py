"""Deferred calls: while the program runs only Warp's bytes are copied; the twins catch up when somebody reads the tape.

For a call that ran before with the same arguments, the buffers it reads and writes are known. So its twin needs only
the host's changes before it and the bytes that it left. `Deferring.follow` does on these snapshots what `Watch.event`
does at once for other calls; the result is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from warp._src import context

from ...arrays.array import array
from ...errors import WorkbenchError
from ...tapes.tape import Tape
from .changed_bytes import EachBuffer, PackedBuffers
from .events import WarpStep
from .memory import Noted, TwinBuffer, Untranslated
from .programs import said

if TYPE_CHECKING:
    from .passes import WarpBackward

Act = Callable[[], Any]
MOST_BYTES = 1 << 28  # noted before the twins follow
MOST_CALLS = 1 << 15


@dataclass(frozen=True)
class CallSite:
    """A call site: the part of a frame that events need."""

    f_code: Any
    f_lasti: int


@dataclass(eq=False, slots=True)
class DeferredCall:
    """A deferred call of Warp, which the twins have not yet replayed.

    regions  the buffers it touches; `host`: snapshots of those that the host changed before; `after`: of its results.
    ours     what the twins do; a `Repeated` if the launch ran before.
    entries  what Warp's open tape has recorded of it.
    """

    kind: str
    label: str
    regions: list[TwinBuffer]
    ours: Act | Repeated
    place: CallSite
    kernel: Any = None
    twins: tuple[Any, ...] = ()
    tape: Any = None
    entries: Sequence[Any] = ()
    host: Sequence[tuple[TwinBuffer, Noted]] = ()
    after: Iterable[tuple[TwinBuffer, Noted]] = ()


class Deferring:
    """The mixin of `Watch` that defers calls and replays them."""

    pending: list[Act | DeferredCall]
    places: dict[tuple[int, int], CallSite]
    noted_bytes: int
    twins_of_pending: dict[int, tuple[array, ...]]
    _tape: Tape
    _steps: list[WarpStep]
    _passes: list[WarpBackward]

    @property
    def tape(self) -> Tape:
        """Our tape, caught up with the program."""
        self.catch_up()
        return self._tape

    @property
    def steps(self) -> list[WarpStep]:
        """The steps so far, one per call, caught up with the program."""
        self.catch_up()
        return self._steps

    @property
    def passes(self) -> list[WarpBackward]:
        """Warp's backwards so far, each with its rows, caught up with the program."""
        self.catch_up()
        return self._passes

    def postponed(
        self: Any,
        call: DeferredCall,
        look: EachBuffer | PackedBuffers,
        theirs: Callable[[], Any],
        follow: Callable[[DeferredCall], None] | None = None,
    ) -> Any:
        """Run a call of Warp's and take the snapshots that its deferred replay needs. Returns what Warp's call returns.

        `look` takes the snapshots; `follow` replaces `Deferring.follow` if given.
        """
        call.tape = tape = context.runtime.tape
        before, size = 0 if tape is None else len(tape.launches), 0
        if moved := look.moved_on():
            call.host = [(region, region.note()) for region in moved]
            size = sum([region.size for region in moved])
        self.inside = True
        try:
            result = theirs()
        except BaseException:
            call.ours, call.kind = no_twin, "host"
            raise
        finally:
            self.inside = False
            if call.kind != "host":
                call.after, more = look.noted()
                size += more
            if tape is not None:
                call.entries = tape.launches[before:]
            self.postpone(call if follow is None else partial(follow, call), call.twins, size)
        return result

    def place_of(self, frame: Any) -> CallSite:
        """The call site of a frame, as a hashable `CallSite` (one object per site)."""
        key = id(frame.f_code), frame.f_lasti
        if key not in self.places:
            self.places[key] = CallSite(frame.f_code, frame.f_lasti)
        return self.places[key]

    def postpone(self: Any, act: Act | DeferredCall, twins: tuple[array, ...] = (), size: int = 0) -> None:
        """Defer an action. Everything deferred runs at once when the snapshots exceed MOST_BYTES or MOST_CALLS."""
        self.pending.append(act)
        self.noted_bytes += size
        self.twins_of_pending[id(twins)] = twins
        if self.noted_bytes > MOST_BYTES or len(self.pending) > MOST_CALLS:
            self.catch_up()

    def catch_up(self: Any) -> None:
        """Run all deferred actions, in order."""
        if not self.pending:
            return
        pending, self.pending = self.pending, []
        self.noted_bytes = 0
        self.twins_of_pending = {}
        inside, self.inside = self.inside, True
        try:
            for act in pending:
                if type(act) is DeferredCall:
                    self.follow(act)
                else:
                    act()
        finally:
            self.inside = inside

    def reached(self: Any, call: DeferredCall) -> str:
        """Record the host writes before a call, then make its result snapshots current. Returns why not, or ""."""
        reason = ""
        try:
            self.host_writes(call.regions, call.place)
        except (Untranslated, WorkbenchError) as error:
            reason = said(error)
        for region, noted in call.after if call.ours is not no_twin else ():
            region.back_to(noted)
        return reason

    def follow(self: Any, call: DeferredCall) -> None:
        """Replay one deferred call on the twins, at Warp's bytes from before and after it."""
        with AsOfCall(call):
            reason = self.reached(call)
            if call.ours is no_twin:
                return
            step = self.step(call.kind, call.label, call.tape, call.entries, call.kernel, reason)
            ours = call.ours
            if isinstance(ours, Repeated):
                ours = partial(ours.command.launch, True, call.place)
            self.twin(step, list(call.twins), call.regions, ours, call.place)
            self.steps.append(step)
            self.note_entries(call.tape, call.entries, step)


class AsOfCall:
    """A context in which the buffers' current bytes are those before a deferred call; on exit the live ones again."""

    def __init__(self, call: DeferredCall):
        self.call = call

    def __enter__(self) -> None:
        for region in self.call.regions:
            region.theirs = region.seen
        for region, noted in self.call.host:
            region.back_to(noted)

    def __exit__(self, *exc: object) -> None:
        for region, noted in (*self.call.host, *self.call.after):
            if region.latest is noted:
                region.latest = None
        for region in self.call.regions:
            region.theirs = region.live


def no_twin() -> None:
    """The replay of a call that raised in Warp: it does nothing."""


@dataclass(eq=False)
class Repeated:
    """A compiled launch of ours, ready to run again: its arrays, their buffers, and those that it writes."""

    command: Any
    place: Any
    twins: tuple[array, ...]
    regions: list[TwinBuffer]
    written: list[TwinBuffer]
    look: EachBuffer


def repeated(command: Any, place: Any, regions: list[TwinBuffer]) -> Repeated:
    """A `Repeated` of our launch `command` on these buffers."""
    memory = {command.flat[k].allocation for k, _ in command.plan.writes}
    twins, written = (
        tuple(a for a in command.flat if isinstance(a, array)),
        [r for r in regions if r.allocation in memory],
    )
    return Repeated(command, place, twins, regions, written, EachBuffer(regions, written))
