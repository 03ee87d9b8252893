"""What a watch leaves for later: while the program runs, Warp's bytes are noted; the twins follow when somebody asks.

Of a call that ran before with the same arguments it is known which buffers it reads and writes. So all that its twin
needs is what the host had changed before it and what it left. `Later.follow` is what `Watch.event` does at once for
other calls, on those bytes; in the end both have done the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from warp._src import context

from ...arrays.array import array
from ...errors import WorkbenchError
from ...tapes.tape import Tape
from .events import Step
from .memory import LITTLE, Region, Untranslated
from .programs import said

if TYPE_CHECKING:
    from .passes import Pass

Act = Callable[[], Any]
Noted = tuple[Region, bytes | np.ndarray]
MOST_BYTES = 1 << 28  # noted before the twins follow
MOST_CALLS = 1 << 15


@dataclass(frozen=True)
class Place:
    """Where a frame was when it called: what events want of a frame."""

    f_code: Any
    f_lasti: int


@dataclass(eq=False)
class Later:
    """A call of Warp that the twins have not followed.

    regions  the buffers it touches; `host`: those that the host had changed before, and to what; `after`: what it left.
    ours     what the twins do.
    entries  what the open tape of Warp's has recorded of it.
    """

    kind: str
    label: str
    regions: list[Region]
    ours: Act
    place: Place
    kernel: Any = None
    twins: tuple[Any, ...] = ()
    tape: Any = None
    entries: list[Any] = field(default_factory=list)
    host: list[Noted] = field(default_factory=list)
    after: list[Noted] = field(default_factory=list)


class Follows:
    """The part of a `Watch` that postpones calls and follows them."""

    pending: list[Act]
    noted_bytes: int
    twins_of_pending: dict[int, Any]
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
        self: Any, call: Later, written: list[Region] | None, theirs: Callable[[], Any],
        follow: Callable[[Later], None],
    ) -> Any:  # fmt: skip
        """Run a call of Warp's and note what its twin needs to follow. Returns what Warp's call returns.

        `written`: the buffers that it may write; None where that is to be seen.
        """
        call.tape = tape = context.runtime.tape
        before = 0 if tape is None else len(tape.launches)
        call.host = [(region, region.note()) for region in moved_on(call.regions)]
        self.inside = True
        try:
            result = theirs()
        except BaseException:
            call.ours, call.kind = nothing, "host"
            raise
        finally:
            self.inside = False
            if call.kind != "host":
                call.after = noted(list(moved_on(call.regions)) if written is None else written)
            if tape is not None:
                call.entries = tape.launches[before:]
            self.postpone(lambda: follow(call), call.twins, sum([len(n) for _, n in call.host + call.after]))
        return result

    def postpone(self: Any, act: Act, twins: Any = (), size: int = 0) -> None:
        """Leave something for later: at the latest when much has been noted."""
        self.pending.append(act)
        self.noted_bytes += size
        for twin in twins:
            self.twins_of_pending[id(twin)] = twin
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
            self.twin(step, list(call.twins), call.regions, call.ours, call.place)
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


def moved_on(regions: list[Region]) -> Iterator[Region]:
    """Those that have other bytes than at the last event. The common case is written out: it is asked all the time."""
    for region in regions:
        latest = region.latest
        if not (type(latest) is bytes and region.live.tobytes() == latest) and region.moved_on():
            yield region


def noted(regions: list[Region]) -> list[Noted]:
    """What Warp has left in these buffers."""
    found: list[Noted] = []
    for region in regions:
        if region.size <= LITTLE:
            region.latest = latest = region.live.tobytes()
            found.append((region, latest))
        else:
            found.append((region, region.note()))
    return found


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


def repeated(command: Any, place: Any, regions: list[Region]) -> Repeated:
    """A launch of ours with these buffers, to be repeated."""
    written = {command.flat[k].allocation for k, _ in command.plan.writes}
    twins = tuple(a for a in command.flat if isinstance(a, array))
    return Repeated(command, place, twins, regions, [r for r in regions if r.allocation in written])
