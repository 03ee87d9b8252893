"""Captures: the launches, host writes and reverse walks of a block, kept as one list of calls and replayed.

The one idea: a replay repeats what changed memory, on the same memory and with the same numbers, and nothing else. So
it sees new contents of arrays, and not a new value of a Python variable. What a launch or `backward` decides from
layouts and numbers was decided at the capture; what they decide from contents is looked at again or refused.
On the CPU native calls in a row are one call of the generated runtime.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from itertools import groupby
from types import TracebackType
from typing import Any, Self

from . import calls, memory
from .errors import LaunchError
from .events import checksum_of, clock
from .kernels import compile_c


class Graph:
    """What a capture recorded: `replay()` does it again."""

    def __init__(self, notes: calls.Notes):
        self._notes = notes
        self._segments = _segments(notes.steps)
        self._written = [(a, tuple(spans.items())) for a, spans in notes.written.items()]
        self._refs = [weakref.ref(tape) for tape in notes.tapes]
        self._own = {id(ref) for ref in self._refs}
        self._fixed = [(a, name, a.version, _seen(a)) for a, name in notes.fixed.items()]

    def __repr__(self) -> str:
        return f"<graph of {len(self)} calls>"

    def __len__(self) -> int:
        """How many calls a replay makes."""
        return len(self._notes.steps)

    def replay(self) -> None:
        """Do again what was captured, on the present contents of memory.

        Raises LaunchError [capture] under an open tape, or if indices changed on which the absence of races rests;
        BoundsError or GradientError where a launch fails.
        """
        with memory.LOCK:
            self._check()
            for tape in self._notes.tapes:
                tape.muted = True
            try:
                self._announce()
                for run in self._segments:
                    run()
            finally:
                for tape in self._notes.tapes:
                    tape.muted = False
            for grad, tape in self._notes.published.items():
                grad.version += 1
                grad.mark_published()
                grad.publisher = next(clock), weakref.ref(tape)
            for look in self._notes.checks:
                look()

    launch = replay

    def _check(self) -> None:
        if memory.recorder() is not None:
            raise LaunchError(
                "replay() under an open tape.", slug="capture", why="The tape would not see the launches in it.",
                instead="the tape and its backward() inside the capture",
            )  # fmt: skip
        calls.refuse("replay()")
        for a, name, version, seen in self._fixed:
            if a.version != version or seen != _seen(a):
                raise LaunchError(
                    f"Kernel {name!r}: an array of indices has changed since the capture.", slug="capture",
                    why="Whether two threads of it meet was looked at once, and may be different now.",
                    instead="wb.capture() again",
                )  # fmt: skip

    def _announce(self) -> None:
        """Tell who watches, except the tapes that were captured too."""
        own = self._own
        for a, spans in self._written:
            watchers = a.watchers
            if a.is_gradient or not (not watchers or (len(watchers) == 1 and id(watchers[0]) in own)):
                for span, what in spans:
                    a.about_to_write(span, what)
            else:
                a.version += 1


def _segments(steps: list[Any]) -> list[Callable[[], None]]:
    """Native calls in a row become one."""
    found: list[Callable[[], None]] = []
    for native, group in groupby(steps, lambda step: isinstance(step, calls.Call)):
        if native:
            row = list(group)
            found.append(_native((calls.Call * len(row))(*row)))
        else:
            found += group
    return found


def _native(row: ctypes.Array) -> Callable[[], None]:
    replay, at, n = compile_c.replay(), ctypes.addressof(row), len(row)

    def run(row: ctypes.Array = row) -> None:
        replay(at, n)

    return run


def _seen(a: memory.Allocation) -> int | None:
    return checksum_of(a.span()) if a.exposed else None


class Capture:
    """`with wb.capture() as graph:` runs the block and notes what it does to memory; `graph.replay()` does it again.

    In it: launches, `zero_`, `fill_`, `assign`, `copy`, new arrays, a tape with its `backward(loss)` or
    `backward(grads=...)`, and `tape.zero()`. Values cannot be read before the block ends. Leaves accumulate with every
    replay, as they would if the block ran again: zero them inside to start anew. Raises LaunchError [capture].
    """

    def __init__(self) -> None:
        self._notes: calls.Notes | None = None
        self.graph: Graph | None = None

    def __enter__(self) -> Self:
        if memory.recorder() is not None:
            raise LaunchError(
                "a capture under an open tape.", slug="capture", why="A replay is no event of a tape.",
                instead="with wb.capture() as graph:\n        with wb.Tape() as tape:",
            )  # fmt: skip
        self._notes = calls.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        calls.stop()
        notes, self._notes = self._notes, None
        if kind is None and notes is not None:
            _check_fixed(notes)
            self.graph = Graph(notes)

    def replay(self) -> None:
        """Do again what the block did. Raises LaunchError [capture], and what a launch raises."""
        if self.graph is None:
            raise LaunchError("replay() of a capture that is not complete.", slug="capture", instead="after the block")
        self.graph.replay()

    launch = replay


def _check_fixed(notes: calls.Notes) -> None:
    for a, name in notes.fixed.items():
        if a in notes.written:
            raise LaunchError(
                f"Kernel {name!r}: its indices are computed inside the capture.", slug="capture",
                why="Whether two of its threads meet has to be looked at each time, and a replay does not.",
                instead="the indices before the capture, or wb.config.race_guard = False",
            )  # fmt: skip


def capture() -> Capture:
    """Record a block of launches, with its backward pass, so that it can be replayed at the speed of its kernels."""
    return Capture()


class ScopedCapture(Capture):
    """`capture` under Warp's name and arguments: the result is in `.graph`, for `capture_launch`."""

    def __init__(self, device: Any = None, **rest: Any):
        super().__init__()


def capture_launch(graph: Graph) -> None:
    """`graph.replay()`, under Warp's name."""
    graph.replay()
