"""The data of the tape view: memory, not array objects, so two names of the same bytes are seen to be the same bytes.

Ranges are half-open byte intervals of one allocation. A level says what the shadow held *before* its event ran forward,
that is after the event's reverse step; an event lists only those that its reverse step changed, and the others carry
on from the event to its right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from ...tapes import kinds

FLAGS: tuple[str, ...] = ("nan", "inf", "died", "kept", "aliased", "cut", "parts", "here", "there")
KINDS = {name.rstrip("_"): kind for name, kind in kinds.KINDS.items()}
HOW = ("read", "write", "accumulate")
MIXED = -1.0  # in place of an L2 norm that is not known


class NameRange(NamedTuple):
    """One name of a piece of memory: bytes [lo, hi) of the allocation; `strided` if it skips bytes in between."""

    name: str
    lo: int
    hi: int
    strided: bool = False


class KeptRange(NamedTuple):
    """Bytes [lo, hi) that the tape saved before an event overwrote them, what that cost and why."""

    allocation: str
    lo: int
    hi: int
    nbytes: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TouchMark:
    """One access of an event to bytes [lo, hi) of an allocation, under the name the user passed."""

    allocation: str
    name: str
    lo: int
    hi: int
    how: str = "read"
    version_before: int = 0
    version_after: int | None = None
    strided: bool = False

    def __post_init__(self) -> None:
        if self.how not in HOW:
            raise ValueError(f"a touch is one of {HOW}, not {self.how!r}")
        if self.version_after is None:
            object.__setattr__(self, "version_after", self.version_before + (self.how != "read"))


@dataclass(frozen=True, slots=True)
class AdjointLevel:
    """The size of the adjoint of bytes [lo, hi) before an event ran forward; `contributions` is how many met there.

    `unknown`: it depends on an event whose adjoint is not known, and is drawn as none. `share`: the part of its numbers
    that is NaN or infinite, where any is.
    """

    allocation: str
    lo: int
    hi: int
    max_abs: float = 0.0
    l2: float = 0.0
    nan: bool = False
    inf: bool = False
    zero: bool = False
    contributions: int = 0
    unknown: bool = False
    share: float = 1.0

    @property
    def state(self) -> str:
        """`nan`, `inf`, `zero` or `value`, the worst first."""
        return "nan" if self.nan else "inf" if self.inf else "zero" if self.zero else "value"

    @property
    def parts(self) -> list[AdjointLevel]:
        """The levels that are drawn one over the other: the finite numbers, if only some are not; then all."""
        if not (self.nan or self.inf) or self.share >= 1:
            return [self]
        return [replace(self, nan=False, inf=False, zero=not self.max_abs, contributions=0), self]

    @property
    def mixed(self) -> bool:
        """True if this level is only a bound, because events that are not drawn changed parts of its bytes."""
        return self.l2 == MIXED


class ValueLevel(NamedTuple):
    """Bytes [lo, hi) of an allocation that are known to hold NaN or infinity before event `moment`, by a `share`."""

    allocation: str
    lo: int
    hi: int
    moment: int
    nan: bool = False
    inf: bool = False
    share: float = 1.0

    def at(self, moment: int) -> ValueLevel:
        """The same bytes before another event."""
        return self._replace(moment=moment)


class Seed(NamedTuple):
    """One seed of the reverse pass as text (`loss[0] = 1`), and the adjoint level it put after the last event."""

    text: str
    level: AdjointLevel | None = None


@dataclass(frozen=True)
class AllocationTrack:
    """One owner's buffer: every name of it with its bytes, and a text such as `float32 (32, 3)`.

    `itemsize`, if given, lets partial ranges be shown in elements instead of bytes.
    """

    id: str
    nbytes: int
    names: Sequence[NameRange]
    text: str = ""
    itemsize: int = 0

    @property
    def aliased(self) -> bool:
        return len(self.names) > 1

    def partial(self, lo: int, hi: int) -> bool:
        return lo > 0 or hi < self.nbytes

    def range_text(self, lo: int, hi: int) -> str:
        """`[0:96) B`, or `[0:24)` in elements where both ends are whole elements."""
        size = self.itemsize
        if size and lo % size == 0 and hi % size == 0:
            return f"[{lo // size}:{hi // size})"
        return f"[{lo}:{hi}) B"


@dataclass(frozen=True)
class EventColumn:
    """One event of the tape, of a kind in `KINDS` (`fill_` and `zero_` too).

    `arrows` are pairs (written touch, read touch), by position in `touches`, along which the adjoint flows back;
    None means from every written to every read touch. `scope` names the loop or block. `flags` adds what cannot
    be seen in the event itself: `died`, where an adjoint came in and exactly zero went out; `cut`, where a gradient is
    stopped on purpose; of two passes `parts`, where they first differ, `here`, `there`: what only one of them has.
    `count`: events of this kind and with these flags that it stands for."""

    id: str
    index: int
    kind: str
    label: str
    where: str = ""
    scope: str = ""
    touches: Sequence[TouchMark] = ()
    kept: Sequence[KeptRange] = ()
    adjoint: Sequence[AdjointLevel] = ()
    arrows: Sequence[tuple[int, int]] | None = None
    flags: Iterable[str] = field(default_factory=frozenset)
    count: int = 1

    def __post_init__(self) -> None:
        kind = self.kind.rstrip("_")
        if kind not in KINDS:
            raise ValueError(f"an event is one of {tuple(KINDS)}, not {self.kind!r}")
        arrows = self.arrows
        if arrows is None:
            read, written = ([n for n, t in enumerate(self.touches) if (t.how == "read") is r] for r in (True, False))
            arrows = [(w, r) for w in written for r in read]
        put = object.__setattr__
        put(self, "kind", kind)
        put(self, "touches", tuple(self.touches))
        put(self, "kept", tuple(self.kept))
        put(self, "adjoint", tuple(self.adjoint))
        put(self, "arrows", tuple(tuple(pair) for pair in arrows))
        put(self, "flags", frozenset(self.flags))

    @property
    def facts(self) -> kinds.Kind:
        """The kind of event that it draws."""
        return KINDS[self.kind]

    @property
    def heading(self) -> str:
        return f"#{self.index} {self.label}"

    @property
    def name(self) -> str:
        """The text of its box: the kernel before the number."""
        return f"{self.label} #{self.index}"

    def changed(self, **given: object) -> EventColumn:
        """A copy with other fields, which are not looked at. Cheaper than making it again."""
        made = object.__new__(EventColumn)
        made.__dict__.update(self.__dict__, **given)
        return made

    def reversed_to(self, adjoint: Sequence[AdjointLevel], died: bool) -> EventColumn:
        """A copy of this event with the levels that its reverse step left."""
        flags = frozenset((*self.flags, "died")) if died else self.flags
        made = self.changed(adjoint=tuple(adjoint), flags=flags)
        made.__dict__.pop("shown_flags", None)
        return made


@dataclass(frozen=True)
class Fold:
    """Events [first, last) under one name. kind: "scope" or "repeat"; `count` turns of a repeat, `parent` or -1.

    turns   of a repeat: the first event of each.
    """

    name: str
    first: int
    last: int
    kind: str
    count: int = 1
    parent: int = -1
    turns: Sequence[int] = ()


@dataclass(frozen=True)
class Trace:
    """Everything the tape view shows. `wrong`: its adjoints are wrong on purpose."""

    allocations: Sequence[AllocationTrack]
    events: Sequence[EventColumn]
    seeds: Sequence[Seed] = ()
    title: str = "tape"
    wrong: bool = False
    values: Sequence[ValueLevel] = ()
    said: str = ""  # the summary of the tape that this one is a part of
    folds: Sequence[Fold] = ()

    @cached_property
    def tally(self) -> dict[str, int]:
        """The number of its events with each flag."""
        return fold_flags(self.events)

    @cached_property
    def summary(self) -> str:
        """`5 launches · 4 allocations · 6 names`."""
        if self.said:
            return self.said
        parts = events_text(self.events)
        parts.append(count(len(self.allocations), "allocation", "allocations"))
        parts.append(count(sum(len(track.names) for track in self.allocations), "name", "names"))
        return " · ".join(parts)

    @property
    def seed_text(self) -> str:
        return ", ".join(seed.text for seed in self.seeds)


def count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}".replace(",", "\u202f")


def kinds_of(events: Iterable[EventColumn]) -> Iterable[tuple[EventColumn, int]]:
    """(event, count) pairs: one per kind of equal events where these are known, else one per event."""
    known = getattr(events, "kinds", None)
    return known() if known is not None else ((event, 1) for event in events)


def events_text(events: Sequence[EventColumn]) -> list[str]:
    """The number of events of each kind, in words; an empty tape has `0 launches`."""
    tally: Counter[str] = Counter()
    for event, number in kinds_of(events):
        tally[event.kind] += event.count * number
    return [count(tally[name], *kind.words) for name, kind in KINDS.items() if tally[name]] or ["0 launches"]


def join_levels(levels: Sequence[AdjointLevel]) -> AdjointLevel | None:
    """Several levels joined: the largest value, every flag; zero only if all are. None for no level."""
    if len(levels) < 2:
        return levels[0] if levels else None
    place = levels[0].allocation, min(level.lo for level in levels), max(level.hi for level in levels)
    most = max((level.max_abs for level in levels if not math.isnan(level.max_abs)), default=math.nan)
    l2 = MIXED if any(level.mixed for level in levels) else math.hypot(*(level.l2 for level in levels))
    flags = any(level.nan for level in levels), any(level.inf for level in levels), all(level.zero for level in levels)
    return AdjointLevel(*place, most, l2, *flags, max(level.contributions for level in levels))


def within_memory(event: EventColumn, keys: set[str]) -> EventColumn:
    """The event without its effects on other memory; itself, if there are none."""
    if all(touch.allocation in keys for touch in event.touches):
        return event
    touches = [touch for touch in event.touches if touch.allocation in keys]
    kept = [one for one in event.kept if one.allocation in keys]
    adjoint = [level for level in event.adjoint if level.allocation in keys]
    return replace(event, touches=touches, arrows=None, kept=kept, adjoint=adjoint)


def event_flags(event: EventColumn) -> frozenset[str]:
    """The event's own flags and those that follow from its marks: nan, inf, kept, aliased."""
    known = event.__dict__.get("shown_flags")  # every part of a picture asks
    if known is None:
        found = set(event.flags)
        found.update("nan" for level in event.adjoint if level.nan)
        found.update("inf" for level in event.adjoint if level.inf)
        if event.kept:
            found.add("kept")
        if _touches_twice(event.touches):
            found.add("aliased")
        known = event.__dict__["shown_flags"] = frozenset(found)
    return known


def _touches_twice(touches: Sequence[TouchMark]) -> bool:
    """True if two differently named accesses share bytes."""
    if len({(touch.allocation, touch.name) for touch in touches}) == len({touch.allocation for touch in touches}):
        return False
    pairs = ((a, b) for a, b in combinations(touches, 2) if a.allocation == b.allocation and a.name != b.name)
    return any(a.lo < b.hi and b.lo < a.hi for a, b in pairs)


def fold_flags(events: Iterable[EventColumn]) -> dict[str, int]:
    """The number of events with each flag: folded and hidden groups show it."""
    tally = dict.fromkeys(FLAGS, 0)
    for event, number in kinds_of(events):
        for flag in event_flags(event):
            tally[flag] = tally.get(flag, 0) + event.count * number
    return {flag: number for flag, number in tally.items() if number}
