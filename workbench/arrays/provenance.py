"""Provenance of host values: which memory was read, where, and when.

A `HostRead` is one reading while tapes record; the `sources` of a value are the readings that it was computed from.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..errors import Where
from .allocation import caller_where, recorders
from .span import Span

MOST = 16  # sources that a value remembers


@dataclass(frozen=True)
class HostRead:
    """A reading of memory: its bytes, the line, and the number of events of each open tape at that time."""

    span: Span
    name: Any = field(compare=False)  # or the array, whose name is looked for when a message needs it: that takes long
    moment: int
    where: Where | None = field(compare=False)
    tapes: tuple[tuple[weakref.ref, int], ...] = field(compare=False)

    @property
    def label(self) -> str:
        return getattr(self.name, "label", self.name)

    def at(self, tape: object) -> int | None:
        """The number of events that this tape had at the reading; None if it was not open."""
        return next((at for ref, at in self.tapes if ref() is tape), None)


def source_of(span: Span, name: object) -> HostRead | None:
    """A `HostRead` for reading these bytes, of an array or with a name, now; None if no tape records."""
    open_tapes = recorders()
    if not open_tapes:
        return None
    tapes = tuple((weakref.ref(tape), len(tape.events)) for tape in open_tapes)
    return HostRead(span, name, tapes[-1][1], caller_where(), tapes)


def united(groups: Iterable[tuple[HostRead, ...]], most: int | None = MOST) -> tuple[HostRead, ...]:
    """The distinct sources in order, at most `most`; None: all."""
    return tuple(dict.fromkeys(s for group in groups for s in group))[:most]
