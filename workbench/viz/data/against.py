"""Two passes as one picture: what each shows, laid over each other, and where they part.

`compare` puts two tapes, two seeds of one tape, or an exact pass and one that is wrong on purpose on common columns and
lanes (`diagnose/against`). What only one of them has stays, and is said. Numbers come from both tapes and from walks
of both; nothing is computed here but which of them differ by more than rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ...arrays import allocation as memory
from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...arrays.grouping import grouped
from ...arrays.workspace import Workspace
from ...derivatives.pitfalls import Wrong
from ...diagnose.against import (
    TapeRun,
    aligned,
    causes,
    cell_text,
    first_difference,
    memories,
    numbers_of,
    run_of,
    unlike,
)
from ...diagnose.walk_step import EventAccess, accesses, numbers_of_memory, shadow_view
from ...errors import LaunchError
from ...kernels.types import Struct
from ...tapes.events import Event
from ...tapes.seeds import seeds_of
from ...tapes.tape import Tape
from .gather import Gather, Levels
from .headline import Said
from .lanes import Bar, VersionBlock
from .text import clean, level_text
from .trace import AdjointLevel, AllocationTrack, Seed, Trace, count

MUCH = 1 << 28  # bytes of adjoints that are held of one pass
Place = tuple[int | None, int | None]


@dataclass(frozen=True)
class Side:
    """One of the two passes: a tape, how it is walked and from which seeds, and what it is called."""

    tape: Tape
    walk: Callable[..., Any]
    seeds: Mapping[Allocation, Any]
    title: str
    wrong: Wrong | None = None
    brief: str = ""  # beside a number


@runtime_checkable
class ForeignPass(Protocol):
    """A pass recorded by somebody else: `retrace` replays, event by event, what it left."""

    tape: Tape
    seeds: Mapping[Allocation, Any]
    title: str
    brief: str

    def retrace(self, observe: Callable[..., Any], before: Callable[..., Any] | None = None) -> Any: ...


Against = Tape | Wrong | ForeignPass | Mapping[array, Any] | array | None  # what a pass is compared with


@dataclass(frozen=True)
class Parting:
    """A difference of both passes beyond rounding: in one memory, at one column.

    kind      `value` (just after the launch, or as it began: `found`), or `adjoint` (after the reverse step).
    position  the column; their count for the seeds.
    lo, hi    the bytes that were compared. `cell`: `v[3]`, first number that differs; `here` and `there`: what it is.
    count     how many numbers differ, `most` by how much at most. `index`: of the cell, the component last.
    other     the name of the other pass beside the exact one; "" for one of two passes like any other.
    """

    kind: str
    position: int
    allocation: str
    lo: int
    hi: int
    cell: str
    here: float
    there: float
    count: int
    most: float
    found: bool = False
    index: tuple[int, ...] = ()
    other: str = ""

    @property
    def numbers(self) -> str:
        """`-0.1008 instead of -0.1102`, or `exact 2, Warp 0`."""
        if np.isnan(self.here) and np.isnan(self.there):
            return "another struct"
        if self.other:
            return "exact {}, {other} {}".format(*distinct_digits(self.here, self.there), other=self.other)
        return " instead of ".join(distinct_digits(self.here, self.there))

    @property
    def text(self) -> str:
        """`adjoint of v[3]: -0.1008 instead of -0.1102`."""
        return f"{'adjoint of ' if self.kind == 'adjoint' else ''}{self.cell}: {self.numbers}"


@dataclass
class PassComparison:
    """Two passes over common columns and lanes.

    trace      this pass: its columns and those that only the other has. `other`: the adjoint side of the other.
    places     per column the event here and the event there, None where it is lacking.
    partings   every difference: values from left to right, then adjoints from right to left. `first`: the one that is
               flagged, None if the passes agree.
    said       the comparison in sentences, the first parting first.
    runs       what both programs read and wrote, if both ran again for it: until `verdict` has been asked.
    """

    here: Side
    there: Side
    trace: Trace
    other: Levels
    places: Sequence[Place]
    partings: list[Parting] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    runs: tuple[TapeRun, TapeRun] | None = None

    @property
    def first(self) -> Parting | None:
        """The difference that the picture flags: the first at a launch, else the first; None if there is none."""
        ends = len(self.places)
        return next((p for p in self.partings if p.position < ends), next(iter(self.partings), None))

    def beside(self, rows: Sequence[Said]) -> list[str]:
        """The sentences of `said`, without the first if one of these findings is the same difference."""
        first = self.first
        n = self.places[first.position][0] if first is not None and first.position < len(self.places) else None
        found = n is not None and any(row.slug == "parted" and row.position == n for row in rows)
        return self.said[1:] if found else self.said

    def differences(self, position: int) -> list[str]:
        """The differences at a column as texts: the first numbers of each memory, and the largest distance."""
        return self._texts.get(position, [])

    @cached_property
    def _texts(self) -> dict[int, list[str]]:
        rest = ", {0.count} differ, by {0.most:.3g} at most"
        texts = ((p.position, p.text + (rest.format(p) if p.count > 1 else "")) for p in self.partings)
        return grouped((position, clean(text)) for position, text in texts)

    def parts_bar(self, bar: Bar, others: Mapping[str, Sequence[Bar]]) -> bool:
        """True if an adjoint of this pass differs from the other's, whose bars are `others`, by lane."""
        end = bar.e1
        if end == len(self.places) or None not in self.places[end]:
            return any(p.lo < bar.hi and bar.lo < p.hi for p in self._at.get(("adjoint", bar.allocation, end), ()))
        same = others.get(bar.allocation, ())  # one has no such launch
        beside = [b for b in same if b.e0 < end <= b.e1 and b.lo < bar.hi and bar.lo < b.hi]
        return any(level_text(b.level) != level_text(bar.level) for b in beside if b.level is not None)

    def parts_block(self, block: VersionBlock) -> bool:
        """True if a version of this pass holds other values than the other's."""
        ends = range(block.e0, min(block.e1, len(self.places) - 1) + 1)
        near = (p for e in ends for p in self._at.get(("value", block.allocation, e), ()))
        over = (p for p in near if p.lo < block.hi and block.lo < p.hi)
        return any(not p.found if p.position == block.e0 else p.found or None in self.places[p.position] for p in over)

    @cached_property
    def _at(self) -> dict[tuple[str, str, int], list[Parting]]:
        """The differences by kind, lane and column."""
        return grouped(((p.kind, p.allocation, p.position), p) for p in self.partings)


def distinct_digits(here: float, there: float) -> tuple[str, str]:
    """Both numbers, with as many digits as it takes to tell them apart, four at least."""
    for digits in (4, 6, 9, 17):
        one, two = (f"{x:.{digits}g}" for x in (here, there))
        if one != two:
            break
    return one, two


# ---- who is compared


def side_of(tape: Tape, other: Against = None) -> Side:
    """The `Side` for an `against=` argument: another tape, a wrong pass, or this tape with other seeds.

    other  None for the last backward of `tape`; a tape; a `Wrong`; a `ForeignPass` pass; seeds {array: seed}, or an
           array of one element as `backward` takes it. Raises LaunchError [against] for anything else, GradientError
           for seeds that do not fit.
    """
    if other is None or other is tape:
        return Side(tape, tape.retrace, tape.last_seeds, "exact")
    if isinstance(other, Wrong):
        return Side(other.tape, other.retrace, other.seeds, other.title, other)
    if isinstance(other, Tape):
        other.names.guess()
        return Side(other, other.retrace, other.last_seeds, "the other tape")
    if isinstance(other, ForeignPass):
        return Side(other.tape, other.retrace, other.seeds, other.title, brief=other.brief)
    if isinstance(other, Mapping | array):
        with memory.LOCK, memory.unrecorded():
            loss = isinstance(other, array)
            space = seeds_of(tape, other if loss else None, None if loss else dict(other))
            seeds = {a: shadow.data.copy() for a, shadow in space.items()}
        return Side(tape, lambda observe, before: tape.retrace(observe, before, seeds), seeds, "other seeds")
    text = f"against= takes a tape, a pass that is wrong on purpose, or seeds, not a {type(other).__name__}."
    raise LaunchError(text, slug="against", instead="tape.show(against=other_tape), or against={y: seed}")


def compare(tape: Tape, wrong: Wrong | None, against: Against) -> PassComparison:
    """The `PassComparison` of two passes; if one of them is wrong on purpose, the exact one is the outline."""
    here, there = side_of(tape, wrong), side_of(tape, against)
    if there.wrong is not None and here.wrong is None:
        here, there = there, here
    if here.wrong is None:
        known = {"other seeds": "last seeds", "the other tape": "this tape", "exact": "this tape"}
        here = replace(here, title=known.get(there.title, "the exact gradient"))
    with memory.LOCK, memory.unrecorded():
        return _Comparing(here, there).made()


# ---- how


class _Comparing:
    def __init__(self, here: Side, there: Side):
        self.here, self.there = here, there
        self.pairs = aligned(here.tape, there.tape)
        self.partner = {str(b): a for b, a in memories(here.tape, there.tape, self.pairs).items()}
        self.places = _merged(self.pairs, len(here.tape.events), len(there.tape.events))
        self.column = {n: k for k, (n, _) in enumerate(self.places) if n is not None}
        self.notes: list[str] = []
        self.runs: tuple[TapeRun, TapeRun] | None = None

    def made(self) -> PassComparison:
        held: dict[Event, list[tuple[EventAccess, np.ndarray | None]]] = {}
        room = MUCH

        def hold(event: Event, space: Workspace) -> None:
            nonlocal room
            if room >= 0:
                found = ((x, shadow_view(space, x)) for x in _once(accesses(self.there.tape, event)))
                held[event] = [(x, None if g is None else g.copy()) for x, g in found]
                room -= sum(g.nbytes for _, g in held[event] if g is not None)

        adjoints: list[Parting] = []
        events = self.there.tape.events
        twin = {self.here.tape.events[n]: (n, events[m]) for n, m in self.pairs}

        def look(event: Event, space: Workspace) -> None:
            n, other = twin.get(event, (-1, None))
            if other in held:
                adjoints.extend(self._adjoints(self.column[n], event, space, held[other]))

        theirs = Gather(self.there.tape, self.there.walk, self.there.seeds, hold).trace()
        ours = Gather(self.here.tape, self.here.walk, self.here.seeds, look).trace()
        if room < 0:
            self.notes.append("Some adjoints were not compared: the passes hold too much memory.")
        for side, trace in ((self.here, ours), (self.there, theirs)):
            if not trace.seeds:
                text = f"There is no adjoint of {side.title}: it has no backward() that can be walked again."
                self.notes.append(text)
        walked = bool(ours.seeds and theirs.seeds)
        values, reasons = self._values()
        trace, other = self._laid(ours, theirs)
        seeds = self._seeds(trace) if walked else []
        partings = [*values, *seeds, *(adjoints if walked else [])]
        made = PassComparison(self.here, self.there, trace, other, self.places, partings, runs=self.runs)
        if made.first is not None and made.first.position < len(self.places):
            events = list(made.trace.events)  # a flag, which survives folding, where the passes first differ
            one = events[made.first.position]
            events[made.first.position] = replace(one, flags={*one.flags, "parts"})
            made.trace = replace(made.trace, events=events)
        made.said = self._sentences(made, reasons, walked)
        return made

    # ---- numbers

    def _adjoints(self, position: int, event: Event, space: Workspace, theirs: Iterable[Any]) -> Iterable[Parting]:
        """Yields the differences of adjoints after a reverse step, for each memory that both events touched."""
        known = grouped((self.partner.get(str(x.span.allocation)), (x, g)) for x, g in theirs)
        for x in _once(accesses(self.here.tape, event)):
            rest = known.get(x.span.allocation)
            if not rest:
                continue
            y, g = rest.pop(0)
            if not unlike(x, y):
                yield from self._partings("adjoint", position, x, shadow_view(space, x), g)

    def _partings(
        self, kind: str, position: int, x: EventAccess, a: np.ndarray | None, b: np.ndarray | None, found: bool = False
    ) -> Iterable[Parting]:
        there = a if a is not None else b
        if there is None or not there.size:
            return
        a, b = (np.zeros_like(there) if g is None else g for g in (a, b))
        a, b = (g.reshape(*x.span.shape, -1) for g in (a, b))
        one = first_difference(a, b)
        if one is None:
            return
        struct = isinstance(x.array.dtype, Struct)  # its bytes are no numbers
        here, there, most = (np.nan,) * 3 if struct else (one.here, one.there, one.most)
        cell = cell_text(x.name, one.index, 1 if struct else a.shape[-1])
        place, numbers = (str(x.span.allocation), *x.span.hull()), (here, there, one.count, most)
        yield Parting(kind, position, *place, cell, *numbers, found, one.index, self.there.brief)

    def _values(self) -> tuple[list[Parting], list[str]]:
        """(differences of values in program order, the reasons at the first such launch: arguments, grid, kernel)."""
        if self.here.tape is self.there.tape:
            return [], []
        one, two = self.runs = run_of(self.here.tape), run_of(self.there.tape)
        if one.why or two.why:
            self.notes.append(f"Values were not compared: {one.why or two.why}.")
            return [], []
        parts: list[Parting] = []
        differ: set[Allocation] = set()
        reasons: list[str] = []
        for n, m in self.pairs:
            new = list(self._values_of(n, m, one, two, differ))
            if new and not parts:
                reasons = list(dict.fromkeys(causes(n, m, one, two)))
            parts += new
        return parts, reasons

    def _values_of(self, n: int, m: int, one: TapeRun, two: TapeRun, differ: set[Allocation]) -> Iterable[Parting]:
        """Yields the values that events n and m wrote differently, and read differently if nobody wrote them so."""
        ours, theirs = one.accesses[n], two.accesses[m]
        for k, writes in enumerate((False, True)):
            a, b = ([x for x in found if x.writes == writes] for found in (ours, theirs))
            for x, y, v, w in zip(a, b, one.values[n][k], two.values[m][k], strict=False):
                if unlike(x, y) or (not writes and x.span.allocation in differ):
                    continue
                at = self.column[n] if writes else self._lacking(self.column[n], x.span.allocation)
                found = not writes and at == self.column[n]
                new = list(self._partings("value", at, x, numbers_of(x, v), numbers_of(y, w), found))
                if new:
                    differ.add(x.span.allocation)
                yield from new

    def _lacking(self, position: int, a: Allocation) -> int:
        """The column of a write, lacking in one pass, that explains other values in this memory; else `position`."""
        for k in range(position - 1, -1, -1):
            n, m = self.places[k]
            ours = self.here.tape.events[n].writes if n is not None and m is None else ()
            theirs = self.there.tape.events[m].writes if m is not None and n is None else ()
            if any(w.allocation is a for w in ours) or any(self.partner.get(str(w.allocation)) is a for w in theirs):
                return k
        return position

    def _seeds(self, trace: Trace) -> list[Parting]:
        """The differences of the seeds, one per memory at most."""
        found = []
        theirs = {self.partner.get(str(a)): (a, data) for a, data in self.there.seeds.items()}
        for a in dict.fromkeys((*self.here.seeds, *(a for a in theirs if a is not None))):
            g = numbers_of_memory(self.here.tape, a, self.here.seeds.get(a))
            h = numbers_of_memory(self.there.tape, *theirs.get(a, (a, None)))
            if g is None and h is None:
                continue
            g, h = (np.zeros_like(h) if g is None else g), (np.zeros_like(g) if h is None else h)
            one = first_difference(g, h) if len(g) == len(h) else None
            if one is not None:
                name = next(t.names[0].name for t in trace.allocations if t.id == str(a))
                numbers = one.here, one.there, one.count, one.most
                place = len(self.places), str(a), 0, a.nbytes, f"{name}[{one.index[0]}]"
                found.append(Parting("adjoint", *place, *numbers, other=self.there.brief))
        return found

    # ---- one trace for both

    def _laid(self, ours: Trace, theirs: Trace) -> tuple[Trace, Levels]:
        """The columns and lanes of both, with this pass's adjoints, and the other's adjoints on the same ones."""
        met = set(map(str, self.partner.values())) if self.here.tape is not self.there.tape else None
        tracks = [
            t if met is None or t.id in met else replace(t, text=f"only here, {t.text}") for t in ours.allocations
        ]
        lanes = {t.id: t for t in tracks}
        moved: dict[str, AllocationTrack] = {}
        extra = []
        for track in theirs.allocations:
            mine = self.partner.get(track.id)
            if str(mine) in lanes:
                moved[track.id] = lanes[str(mine)]
                continue
            text = f"only in the other, {track.text}"
            extra.append(replace(track, id=f"there {track.id}", text=text))
            moved[track.id] = extra[-1]
        sizes = {t.id: (t.itemsize, moved[t.id]) for t in theirs.allocations}
        events, levels = [], []
        for n, m in self.places:
            mine, other = (None if k is None else t.events[k] for k, t in ((n, ours), (m, theirs)))
            column = mine or other
            assert column is not None
            if mine is None:  # it touches no memory here
                column = replace(column, touches=(), kept=(), adjoint=(), arrows=(), flags=())
            flags = {"here"} if other is None else {"there"} if mine is None else set()
            events.append(replace(column, flags={*column.flags, *flags}))
            levels.append([] if other is None else [_moved(level, sizes) for level in other.adjoint])
        seeds = [Seed(s.text, None if s.level is None else _moved(s.level, sizes)) for s in theirs.seeds]
        died = [k for k, (_, m) in enumerate(self.places) if m is not None and "died" in theirs.events[m].flags]
        wrong = self.here.wrong
        title = wrong.title if wrong else f"{self.here.title} against {self.there.title}"
        at = {**self.column, len(ours.events): len(self.places)}
        values = [v.at(at[v.moment]) for v in ours.values]
        folds = [
            replace(f, first=at[f.first], last=at[f.last - 1] + 1, turns=[at[t] for t in f.turns]) for f in ours.folds
        ]
        made = Trace([*tracks, *extra], events, ours.seeds, title, wrong is not None, values, folds=folds)
        return made, Levels(levels, seeds, died)

    # ---- words

    def _agreed(self, walked: bool) -> str:
        """The sentence for passes without a difference. `walked`: adjoints were compared."""
        valued = self.here.tape is self.there.tape or (self.runs is not None and not any(r.why for r in self.runs))
        if not valued and not walked:
            return "Neither values nor adjoints could be compared."
        what = "Both passes" if valued and walked else f"The {'values' if valued else 'adjoints'} of both passes"
        return f"{what} agree but for rounding."

    def _sentences(self, made: PassComparison, reasons: Sequence[str], walked: bool) -> list[str]:
        first, ends = made.first, len(self.places)
        said = [self._agreed(walked) if first is None else self._first(made, first, reasons)]
        seeds = [p for p in made.partings if p.position == ends and p is not first]
        if seeds:
            said.append(f"The seeds differ: {seeds[0].cell} is {seeds[0].numbers}.")
        for flag, where in (("here", "in this pass"), ("there", "in the other")):
            lacking = [e.heading for e in made.trace.events if flag in e.flags]
            if lacking:
                names = ", ".join(lacking[:4]) + (", …" if len(lacking) > 4 else "")
                said.append(f"{count(len(lacking), 'launch', 'launches')} only {where}: {names}.")
        for sign, where in (("only here, ", "in this pass"), ("only in the other, ", "in the other")):
            names = [t.names[0].name for t in made.trace.allocations if t.text.startswith(sign)]
            if names:
                said.append(f"Memory only {where}: {', '.join(names[:6])}{', …' if len(names) > 6 else ''}.")
        return [*said, *self.notes]

    def _first(self, made: PassComparison, first: Parting, reasons: Sequence[str]) -> str:
        if first.position == len(self.places):
            where = "in their seeds"
        else:
            event = made.trace.events[first.position]
            where = f"at {event.heading}" + (f" ({event.where})" if event.where else "")
        more = first.count - 1
        rest = f", and {count(more, 'more number', 'more numbers')}" if more else ""
        why = f"; {', '.join(reasons)}" if reasons else ""
        began = ", before it ran" if first.found else ""
        if first.position < len(self.places) and None in (place := self.places[first.position]):
            where += f", which only {'the other' if place[0] is None else 'this pass'} has"
        same = "Values are the same; adjoints part" if first.kind == "adjoint" else "They part"
        return f"{same} first {where}, {first.text}{began}{rest}{why}."


def _merged(pairs: Sequence[tuple[int, int]], ours: int, theirs: int) -> list[Place]:
    """The aligned columns of both, in order; unmatched ones of this pass come before those of the other."""
    places: list[Place] = []
    i = j = 0
    for n, m in [*pairs, (ours, theirs)]:
        places += [(k, None) for k in range(i, n)] + [(None, k) for k in range(j, m)]
        if n < ours:
            places.append((n, m))
        i, j = n + 1, m + 1
    return places


def _once(found: Iterable[EventAccess]) -> list[EventAccess]:
    """Each range once."""
    return list({x.span: x for x in reversed(list(found))}.values())[::-1]


def _moved(level: AdjointLevel, sizes: Mapping[str, tuple[int, AllocationTrack]]) -> AdjointLevel:
    """A level of the other pass moved to the corresponding lane, scaled if elements have another size."""
    itemsize, lane = sizes[level.allocation]
    lo, hi = level.lo, level.hi
    if itemsize and lane.itemsize and itemsize != lane.itemsize:
        lo, hi = lo * lane.itemsize // itemsize, hi * lane.itemsize // itemsize
    return replace(level, allocation=lane.id, lo=min(lo, lane.nbytes), hi=min(hi, lane.nbytes))
