"""A trace as columns of numbers: what the live view is sent, whether by a kernel or inside a page of its own.

Texts come once, in one list, and all that there is per event or per mark as float32 columns in one run of bytes, from
which the page draws at any zoom. Adjoints travel apart, because they change with the seed and take a walk. A range is
(lane, lo, hi, strided), bytes half-open; a moment is the position of an event, -1 the start of the tape.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import starmap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...arrays.grouping import grouped
from ...display import bytes_text
from . import marks
from .envelope import Scale, ill_blocks, scale_of, state_of
from .event_kinds import UniqueEvents, Versions, spread, versions_at_once
from .gather import Levels
from .lanes import Adjoints, Bar, VersionBlock, cut_memory, lanes_of, pieces, versions_of
from .rows import LINE, NAMES, OPEN, PictureRow, picture_rows
from .text import BADGES, apart, clean, level_text, sentence
from .trace import FLAGS, HOW, AdjointLevel, EventColumn, Fold, NameRange, Trace, event_flags

if TYPE_CHECKING:
    from .against import PassComparison

TABLES = {
    "events": ("label", "kind", "where", "flags", "touches", "kept", "scope", "grid"),
    "touches": ("range", "name", "how", "before", "after", "slot"),
    "kept": ("range", "text", "slot"),
    "spots": ("first", "last", "y", "radius", "half"),  # of each range: its pieces, and where its signs stand
    "blocks": ("lane", "strided", "y", "tall", "radius", "mixed", "version", "labelled", "e0", "e1", "parts"),
}
LEVELS = {
    "bars": tuple("lane first last state y thick opacity sign max l2 met e0 e1 parts share".split()),
    "absent": ("lane", "y", "thick", "e0", "e1"),
    "meets": ("lane", "event", "y", "radius", "met", "size"),
    "arrows": ("event", "source", "target", "look", "y0", "y1", "size"),
    "flags": ("event", "bits"),
    "values": ("block", "state", "share"),  # versions in which a NaN or an infinity is known
}
# the columns that are not of integers
FLOATS = frozenset("y tall radius half thick opacity sign max l2 y0 y1 size share".split())
SAID = [level_text(AdjointLevel("", 0, 0, zero=k == 1, nan=k in (2, 4), inf=k > 2)) for k in range(len(marks.STATES))]
BITS = {flag: 1 << n for n, flag in enumerate(FLAGS)}
PREFIXES = ("v", "v≤")  # of the number of a version, and of one that is only a bound
LARGEST = float(np.finfo(np.float32).max)
PIECES = 64  # of a lane, from which it is cut evenly
TOUCHES = 40  # of an event, from which its arrows are left out
Rows = dict[str, Any]  # by table, row after row


class Texts:
    """An intern table: texts and ranges by number, each stored once."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.ranges: dict[tuple[int, int, int, bool], int] = {}

    def text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def range(self, lane: int, lo: int, hi: int, strided: bool = False) -> int:
        return self.ranges.setdefault((lane, lo, hi, strided), len(self.ranges))


def packed(names: Mapping[str, tuple[str, ...]], rows: Rows) -> tuple[dict[str, Any], bytes]:
    """(the place of each table, all tables as float32 bytes, column by column)."""
    tables, parts, at = {}, [], 0
    for table, fields in names.items():
        columns = np.array(rows[table], np.float32).reshape(-1, len(fields)).T
        tables[table] = {"at": at, "rows": columns.shape[1], "fields": fields}
        parts.append(np.ascontiguousarray(columns))
        at += columns.size
    return tables, b"".join(part.tobytes() for part in parts)


def records(places: Mapping[str, Any], data: bytes) -> dict[str, list[Any]]:
    """The rows of each packed table, as tuples with the names of its columns."""
    numbers, found = np.frombuffer(data, np.float32), {}
    for table, place in places.items():
        at, fields = place["at"], place["fields"]
        columns = numbers[at : at + place["rows"] * len(fields)].reshape(len(fields), -1)
        lists = [(c if field in FLOATS else c.astype(int)).tolist() for c, field in zip(columns, fields, strict=True)]
        found[table] = list(starmap(namedtuple(table, fields), zip(*lists, strict=True)))
    return found


class AdjointSide(NamedTuple):
    """The adjoint side of the columns: `meta` and `data` as they travel, and where they come from.

    found    the walk. `sources`: by table what each of its rows was made of.
    """

    meta: dict[str, Any]
    data: bytes
    found: Adjoints
    sources: dict[str, list[Any]]


class Columns:
    """The columns of one trace. `meta` is plain data for JSON, `data` the bytes of all tables one after the other."""

    def __init__(
        self,
        trace: Trace,
        folds: Sequence[Fold] = (),
        grids: Sequence[int] = (),
        against: PassComparison | None = None,
        sight: Collection[int] | None = None,
    ):
        """`grids`: per event the caller's number of its thread grid; -1 for none.

        against: two passes, of which `trace` is. `sight`: the only events with accesses, for a picture of a part.
        """
        self.against, self.sight = against, sight
        self.trace, self.names, self.grids = trace, Texts(), grids
        self.lanes = {track.id: n for n, track in enumerate(trace.allocations)}
        events = trace.events.firsts if isinstance(trace.events, UniqueEvents) else trace.events
        self.cuts = cut_memory(trace, events, PIECES)
        if sight is not None:  # memory in very many pieces is cut where it matters
            alone = cut_memory(trace, [event for n, event in enumerate(events) if n in sight])
            self.cuts = {key: ends if {*alone[key]} <= {*ends} else alone[key] for key, ends in self.cuts.items()}
        self.rows = lanes_of(trace, events, self.cuts)
        self.placed = picture_rows(self.rows)
        self.slots: dict[tuple[Any, ...], tuple[dict[int, int], dict[int, int]]] = {}
        rows: Rows = {table: [] for table in TABLES}
        for n, event in enumerate(events):
            self._event(event, rows)
            if sight is None or n in sight:
                self._accesses(event, rows)
        for number, lo, hi, _ in self.names.ranges:
            lane, place = self.rows[trace.allocations[number].id], NameRange("", lo, hi)
            signs = *marks.touch_place(lane, place), marks.kept_place(lane, place)[1]
            rows["spots"] += (*pieces(lane.cuts, lo, hi), *signs)
        if isinstance(trace.events, UniqueEvents):
            self._spread(trace.events, rows)
            rows["blocks"] = self._versions(versions_at_once(trace.events, self.cuts))
        else:
            rows["blocks"] = self._versions(Versions.of(self.order, self.lanes))
        tables, self.data = packed(TABLES, rows)
        self.meta: dict[str, Any] = {
            "title": clean(trace.title),
            "wrong": trace.wrong,
            "summary": trace.summary,
            "sentence": sentence(trace),
            "count": len(trace.events),
            "tables": tables,
            "flags": BITS,
            "how": HOW,
            "lanes": self._lanes(),
            "texts": [clean(text) for text in self.names.texts],
            "apart": {self.names.text(label): span for label, span in apart({e.label for e in events}).items()},
            "ranges": [list(r) for r in self.names.ranges],
            "folds": [[clean(f.name), f.first, f.last, f.kind, f.count, f.parent, [*f.turns]] for f in folds],
            "drawing": {**marks.DRAWING, "names": NAMES, "open": OPEN, "line": LINE},
            "badges": BADGES,
            "states": marks.STATES,
            "rows": [_row(row) for row in self.placed],
            "looks": marks.LOOKS,
            "legend": marks.LEGEND,
            "prefixes": PREFIXES,
        }

    def _event(self, event: EventColumn, rows: Rows) -> None:
        text, flags = self.names.text, 0
        for flag in event_flags(event):
            flags |= BITS.get(flag, 0)
        position = len(rows["events"]) // len(TABLES["events"])
        said = [text(one) for one in (event.label, event.kind, event.where)]
        begins = [len(rows[name]) // len(TABLES[name]) for name in ("touches", "kept")]
        grid = self.grids[position] if self.grids else -1
        rows["events"] += (*said, flags, *begins, text(event.scope), grid)

    def _accesses(self, event: EventColumn, rows: Rows) -> None:
        text, ranges, lanes = self.names.text, self.names.range, self.lanes
        reads, kepts = self._slots(event)
        for n, touch in enumerate(event.touches):
            place = ranges(lanes[touch.allocation], touch.lo, touch.hi, touch.strided)
            versions = touch.version_before, touch.version_after or 0
            rows["touches"] += (place, text(touch.name), HOW.index(touch.how), *versions, reads.get(n, 0))
        for n, kept in enumerate(event.kept):
            if kept.allocation in lanes:
                said = f"{bytes_text(kept.nbytes, 1000)}: {kept.reason}"
                rows["kept"] += (ranges(lanes[kept.allocation], kept.lo, kept.hi), text(said), kepts[n])

    def _spread(self, events: UniqueEvents, rows: Rows) -> None:
        """Expand the rows of the first events of each kind to all events."""
        held = {name: np.array(rows[name], float).reshape(-1, len(fields)) for name, fields in TABLES.items()}
        told, which, end = held["events"], events.which, len(held["events"])
        found = told[which]
        for column, name in ((4, "touches"), (5, "kept")):
            counts = np.diff(np.r_[told[:, column], len(held[name])]).astype(np.int64) if end else np.zeros(0, np.int64)
            found[:, column], at = spread(counts, which)
            rows[name] = held[name][at]
        if self.grids:
            found[:, 7] = self.grids
        rows["events"] = found
        rows["touches"][:, 3] = events.accesses.before
        rows["touches"][:, 4] = events.accesses.before + events.accesses.wrote

    def _versions(self, versions: Versions) -> np.ndarray:
        """The table of versions. A box is computed once for equal bytes."""
        kinds, which = np.unique(np.stack([versions.lane, versions.lo, versions.hi], 1), axis=0, return_inverse=True)
        lanes = list(self.rows.values())
        boxes = [marks.block_mark(lanes[lane], lo, hi) for lane, lo, hi in kinds.tolist()]
        y, tall, radius, labelled = np.array(boxes, float).reshape(-1, 4)[which.reshape(-1)].T
        parts = np.zeros(len(y))
        if self.against is not None:
            parts = np.array([self.against.parts_block(block) for block in self.order], float)
        table = versions.lane, versions.strided, y, tall, radius, versions.mixed, versions.number, labelled
        return np.stack([*table, versions.e0, versions.e1, parts], 1)

    @cached_property
    def order(self) -> list[VersionBlock]:
        """All versions, in the order of their table."""
        return versions_of(self.trace, self.cuts)

    @cached_property
    def blocks(self) -> dict[str, marks.LaneBlocks]:
        """The versions of each memory."""
        found = grouped((block.allocation, block) for block in self.order)
        return {key: marks.LaneBlocks(found.get(key, ())) for key in self.lanes}

    def _slots(self, event: EventColumn) -> tuple[dict[int, int], dict[int, int]]:
        """`slots_of`, cached for events that touch the same bytes."""
        if not event.kept and sum(touch.how == "read" for touch in event.touches) < 2:
            return {}, {}  # a sign alone stays where it is
        touches = tuple([(touch.allocation, touch.lo, touch.hi, touch.how) for touch in event.touches])
        key = touches, tuple([(kept.allocation, kept.lo, kept.hi) for kept in event.kept])
        if key not in self.slots:
            self.slots[key] = marks.slots_of(self.rows, event)
        return self.slots[key]

    def _lanes(self) -> list[dict[str, Any]]:
        return [
            {
                "id": clean(track.id),
                "nbytes": track.nbytes,
                "itemsize": track.itemsize,
                "text": clean(track.text),
                "names": [[clean(name.name), name.lo, name.hi, bool(name.strided)] for name in track.names],
                "pieces": len(lane.cuts) - 1,
            }
            for track, lane in zip(self.trace.allocations, self.rows.values(), strict=True)
        ]

    # ---- the adjoint side

    def side(self, levels: Levels, scale: Scale | None = None, second: bool = False) -> AdjointSide:
        """The adjoint side of one walk. `scale`: of thickness; by default the one that fits these levels.

        second: these are those of the other pass.
        """
        scale = scale_of_levels(levels) if scale is None else scale
        if isinstance(self.trace.events, UniqueEvents):  # from now on each of them is asked for again and again
            self.trace = replace(self.trace, events=tuple(self.trace.events))
        events = self.trace.events
        asked = range(len(events)) if self.sight is None else self.sight
        watched = {n for n in asked if len(events[n].touches) <= TOUCHES}
        found = Adjoints(self.trace, self.cuts, levels.events, levels.seeds, watched)
        rows: Rows = {table: [] for table in LEVELS}
        sources: dict[str, list[Any]] = {"bars": [], "absent": [], "arrows": []}
        self._bars(found, rows, sources, scale, None if second else self._parting())
        for n in sorted(watched):
            for w, r, arrow in marks.arrows_of(self.rows, events[n], n, found.flows, scale):
                source, target = (self.lanes[events[n].touches[k].allocation] for k in (w, r))
                rows["arrows"] += (n, source, target, *arrow)
                sources["arrows"].append((w, r))
        for n, some in enumerate(levels.events):
            if bits := BITS["nan"] * any(x.nan for x in some) | BITS["inf"] * any(x.inf for x in some):
                rows["flags"] += (n, bits)
        for block, ill in ill_blocks(self.order, levels.values).items():
            rows["values"] += (block, *ill)
        for n in levels.died:
            rows["flags"] += (n, BITS["died"])
        tables, data = packed(LEVELS, rows)
        text = ", ".join(clean(seed.text) for seed in levels.seeds)
        ticks = [[text, scale.part(tick)] for text, tick in zip(scale.texts, scale.ticks, strict=True)]
        said = {"low": scale.low, "high": scale.high, "ticks": ticks}
        return AdjointSide({"tables": tables, "seed": text, "said": SAID, "scale": said}, data, found, sources)

    def _parting(self) -> Callable[[Bar], bool]:
        """A predicate: True for bars that differ from the other pass; without one, True for all if this is wrong."""
        if self.against is None:
            return lambda _: self.trace.wrong
        made = self.against
        bars = Adjoints(self.trace, self.cuts, made.other.events, made.other.seeds, ()).bars
        others = grouped((bar.allocation, bar) for bar in bars)
        return lambda bar: made.parts_bar(bar, others)

    def _bars(
        self, found: Adjoints, rows: Rows, sources: Rows, scale: Scale, parts: Callable[[Bar], bool] | None
    ) -> None:
        meets = set()
        for bar in found.bars:
            lane, number, level = self.rows[bar.allocation], self.lanes[bar.allocation], bar.level
            if level is None:
                for piece, mark in marks.absent_marks(lane, bar, self.blocks[bar.allocation]):
                    rows["absent"] += (number, mark.y, mark.thick, piece.e0, piece.e1)
                    sources["absent"].append(piece)
                continue
            last = bar.e0, bar.e1, parts is not None and parts(bar)
            for part in level.parts:
                sources["bars"].append(bar)
                sizes = _held(part.max_abs), _held(part.l2), part.contributions
                mark = state_of(part), *marks.bar_mark(lane, bar, part, scale)
                rows["bars"] += (number, *pieces(lane.cuts, bar.lo, bar.hi), *mark, *sizes, *last, part.share)
            place = bar.allocation, level.lo, level.hi, bar.e1
            if bar.given and level.contributions > 1 and place not in meets:
                meets.add(place)
                rows["meets"] += (number, bar.e1, *marks.meet_mark(lane, level))


def _row(row: PictureRow) -> dict[str, Any]:
    """A row for the page; of its sizes those that are not as in a wider picture."""
    lane, sizes = row.lane, row.sizes
    new = [size if not n or size != sizes[n - 1] else None for n, size in enumerate(sizes)]
    return {
        "k": row.number,
        "inside": row.inside,
        "members": list(row.members),
        "names": [[name, *([title] if row.members else [])] for name, title in row.names],
        "value": lane.value_top,
        "adjoint": lane.adjoint_top,
        "tall": lane.track_height,
        "sizes": [size and [size.height, [list(one) for one in size.labels], list(size.note)] for size in new],
    }


def _held(value: float) -> float:
    """Sizes as finite float32: those too large become the largest."""
    return min(value, LARGEST) if math.isfinite(value) else value


def scale_of_levels(*sides: Levels) -> Scale:
    """One scale of thickness for all these levels, so that they can be compared."""
    found = [level for side in sides for some in side.events for level in some]
    found += [seed.level for side in sides for seed in side.seeds if seed.level is not None]
    return scale_of(level.max_abs for level in found)


def levels_of(trace: Trace) -> Levels:
    """The adjoint side of a whole trace."""
    died = [n for n, event in enumerate(trace.events) if "died" in event.flags]
    return Levels([list(event.adjoint) for event in trace.events], list(trace.seeds), died, trace.values)
