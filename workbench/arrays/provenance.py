"""Provenance of host values: which memory was read, where, and when.

A `HostRead` is one reading while tapes record; the `sources` of a value are the readings that it was computed from.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..errors import Where
from .allocation import caller_where, recorders
from .span import Span

MOST = 16  # sources that a value remembers


@dataclass(frozen=True)
class HostRead:
    """A reading of memory: its bytes, their name, the line, and the number of events of each open tape at that time."""

    span: Span
    label: str
    moment: int
    where: Where | None = field(compare=False)
    tapes: tuple[tuple[weakref.ref, int], ...] = field(compare=False)

    def at(self, tape: object) -> int | None:
        """The number of events that this tape had at the reading; None if it was not open."""
        return next((at for ref, at in self.tapes if ref() is tape), None)


def source_of(span: Span, label: str) -> HostRead | None:
    """A `HostRead` for reading these bytes now; None if no tape records."""
    open_tapes = recorders()
    if not open_tapes:
        return None
    tapes = tuple((weakref.ref(tape), len(tape.events)) for tape in open_tapes)
    return HostRead(span, label, tapes[-1][1], caller_where(), tapes)


def united(groups: Iterable[tuple[HostRead, ...]]) -> tuple[HostRead, ...]:
    """The distinct sources in order, at most `MOST`."""
    return tuple(dict.fromkeys(s for group in groups for s in group))[:MOST]
