"""Calls of Warp whose twins run later: while the program runs only Warp's bytes are copied.

For a call that ran before with the same arguments, the buffers it reads and writes are known. So its twin needs only
the host's changes before it and the bytes that it left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...arrays.array import array
from .changed_bytes import EachBuffer
from .memory import Snapshot, TwinBuffer


@dataclass(frozen=True)
class CallSite:
    """A call site: the part of a frame that events need."""

    f_code: Any
    f_lasti: int


@dataclass(eq=False)
class Repeated:
    """A compiled launch of ours, ready to run again: its arrays, their buffers, and those that it writes."""

    command: Any
    place: Any
    twins: tuple[array, ...]
    regions: list[TwinBuffer]
    written: list[TwinBuffer]
    look: EachBuffer


@dataclass(eq=False, slots=True)
class WarpCall:
    """A call of Warp, whose twin runs right after it or later.

    regions  the buffers it touches; `host`: snapshots of those that the host changed before; `after`: of its results.
    ours     what the twins do; a `Repeated` if the launch ran before.
    tape     Warp's open tape; `entries`: what that has recorded of the call.
    """

    kind: str
    label: str
    regions: list[TwinBuffer]
    ours: Callable[[], Any] | Repeated
    place: Any
    kernel: Any = None
    twins: tuple[Any, ...] = ()
    tape: Any = None
    entries: Sequence[Any] = ()
    host: Sequence[tuple[TwinBuffer, Snapshot]] = ()
    after: Iterable[tuple[TwinBuffer, Snapshot]] = ()
    follow: Callable[[WarpCall], None] | None = None  # replays it

    def __call__(self) -> None:
        assert self.follow is not None
        self.follow(self)


class AsOfCall:
    """A context in which the buffers' current bytes are those before a deferred call; on exit the live ones again."""

    def __init__(self, call: WarpCall):
        self.call = call

    def __enter__(self) -> None:
        for region in self.call.regions:
            region.theirs = region.seen
        for region, snapshot in self.call.host:
            region.back_to(snapshot)

    def __exit__(self, *exc: object) -> None:
        for region, snapshot in (*self.call.host, *self.call.after):
            if region.latest is snapshot:
                region.latest = None
        for region in self.call.regions:
            region.theirs = region.live


def no_twin() -> None:
    """The replay of a call that raised in Warp: it does nothing."""


def repeated(command: Any, place: Any, regions: list[TwinBuffer]) -> Repeated:
    """A `Repeated` of our launch `command` on these buffers."""
    memory = {command.flat[k].allocation for k, _ in command.plan.writes}
    twins = tuple(a for a in command.flat if isinstance(a, array))
    written = [r for r in regions if r.allocation in memory]
    return Repeated(command, place, twins, regions, written, EachBuffer(regions, written))
