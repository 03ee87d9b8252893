"""What a watch leaves for later: while the program runs, Warp's bytes are noted; the twins follow when somebody asks.

Of a call that ran before with the same arguments it is known which buffers it reads and writes. So all that its twin
needs is what the host had changed before it and what it left. `Later.follow` is what `Watch.event` does at once for
other calls, on those bytes; in the end both have done the same.
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
from .events import Step
from .looks import Apart, Together
from .memory import Noted, Region, Untranslated
from .programs import said

if TYPE_CHECKING:
    from .passes import Pass

Act = Callable[[], Any]
MOST_BYTES = 1 << 28  # noted before the twins follow
MOST_CALLS = 1 << 15


@dataclass(frozen=True)
class Place:
    """Where a frame was when it called: what events want of a frame."""

    f_code: Any
    f_lasti: int


@dataclass(eq=False, slots=True)
class Later:
    """A call of Warp that the twins have not followed.

    regions  the buffers it touches; `host`: those that the host had changed before, and to what; `after`: what it left.
    ours     what the twins do; a launch that they have made before.
    entries  what the open tape of Warp's has recorded of it.
    """

    kind: str
    label: str
    regions: list[Region]
    ours: Act | Repeated
    place: Place
    kernel: Any = None
    twins: tuple[Any, ...] = ()
    tape: Any = None
    entries: Sequence[Any] = ()
    host: Sequence[tuple[Region, Noted]] = ()
    after: Iterable[tuple[Region, Noted]] = ()


class Follows:
    """The part of a `Watch` that postpones calls and follows them."""

    pending: list[Act | Later]
    places: dict[tuple[int, int], Place]
    noted_bytes: int
    twins_of_pending: dict[int, tuple[array, ...]]
    _tape: Tape
    _steps: list[Step]
    _passes: list[Pass]

    @property
    def tape(self) -> Tape:
        """Our tape, of all that has happened."""
        self.catch_up()
        return self._tape

    @property
    def steps(self) -> list[Step]:
        """What has happened, a step for each call."""
        self.catch_up()
        return self._steps

    @property
    def passes(self) -> list[Pass]:
        """The backwards of Warp's, each with its rows."""
        self.catch_up()
        return self._passes

    def postponed(
        self: Any, call: Later, look: Apart | Together, theirs: Callable[[], Any],
        follow: Callable[[Later], None] | None = None,
    ) -> Any:  # fmt: skip
        """Run a call of Warp's and note what its twin needs to follow. Returns what Warp's call returns.

        `look`: at the buffers of the call; `follow`: where it is more than `Follows.follow`.
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
            call.ours, call.kind = nothing, "host"
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

    def place_of(self, frame: Any) -> Place:
        """Where a frame is now."""
        key = id(frame.f_code), frame.f_lasti
        if key not in self.places:
            self.places[key] = Place(frame.f_code, frame.f_lasti)
        return self.places[key]

    def postpone(self: Any, act: Act | Later, twins: tuple[array, ...] = (), size: int = 0) -> None:
        """Leave something for later: at the latest when much has been noted."""
        self.pending.append(act)
        self.noted_bytes += size
        self.twins_of_pending[id(twins)] = twins
        if self.noted_bytes > MOST_BYTES or len(self.pending) > MOST_CALLS:
            self.catch_up()

    def catch_up(self: Any) -> None:
        """Let the twins follow all that has happened."""
        if not self.pending:
            return
        pending, self.pending = self.pending, []
        self.noted_bytes = 0
        self.twins_of_pending = {}
        inside, self.inside = self.inside, True
        try:
            for act in pending:
                if type(act) is Later:
                    self.follow(act)
                else:
                    act()
        finally:
            self.inside = inside

    def reached(self: Any, call: Later) -> str:
        """Do what the host did before a call; then what the call left counts. Returns why that could not be done."""
        reason = ""
        try:
            self.host_writes(call.regions, call.place)
        except (Untranslated, WorkbenchError) as error:
            reason = said(error)
        for region, noted in call.after if call.ours is not nothing else ():
            region.back_to(noted)
        return reason

    def follow(self: Any, call: Later) -> None:
        """The twins of one call, on what Warp's bytes were before and behind it."""
        with Then(call):
            reason = self.reached(call)
            if call.ours is nothing:
                return
            step = self.step(call.kind, call.label, call.tape, call.entries, call.kernel, reason)
            ours = call.ours
            if isinstance(ours, Repeated):
                ours = partial(ours.command.launch, True, call.place)
            self.twin(step, list(call.twins), call.regions, ours, call.place)
            self.steps.append(step)
            self.note_entries(call.tape, call.entries, step)


class Then:
    """The bytes that count are those of before a call, as the twins have them; in the end those of now again."""

    def __init__(self, call: Later):
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


def nothing() -> None:
    """The twin of a call that Warp has refused."""


@dataclass(eq=False)
class Repeated:
    """A launch of ours, ready to be repeated from its line: its arrays, their buffers, and those that it writes."""

    command: Any
    place: Any
    twins: tuple[array, ...]
    regions: list[Region]
    written: list[Region]
    look: Apart


def repeated(command: Any, place: Any, regions: list[Region]) -> Repeated:
    """A launch of ours with these buffers, to be repeated."""
    memory = {command.flat[k].allocation for k, _ in command.plan.writes}
    twins, written = (
        tuple(a for a in command.flat if isinstance(a, array)),
        [r for r in regions if r.allocation in memory],
    )
    return Repeated(command, place, twins, regions, written, Apart(regions, written))
