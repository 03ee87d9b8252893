"""All that lies on the rows of the static picture: names, versions, adjoints, accesses, and strips of many events.

Rows, heights and marks are those of the tables that the live view draws from (`data/columns`); added are x, by the
window, and the tooltips. A lane inside a family has no marks of its own: the row has the envelope of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ...arrays.grouping import grouped
from ..data import marks
from ..data.columns import PREFIXES, AdjointSide, Columns, records
from ..data.envelope import Bars, Envelope, Scale, envelopes, stretches, version_bars
from ..data.lanes import Bar, VersionBlock
from ..data.marks import LOOKS, STATES, Strip, odd, strip_marks, value_marks
from ..data.rows import INDENT, LINE, PictureRow
from ..data.text import clean, text_width
from ..data.trace import AllocationTrack
from .svg import Scene
from .window import LANE_BUDGET, LEFT, MARGIN, TimeColumn, TimeWindow

THIN = 1.5  # width of a thin column in a strip at least
HALF = 0.5  # of a version, from which its number is written on black
Ends = tuple[float, float]
Gaps = Sequence[tuple[int, float, float]]  # as `TimeWindow.gaps`
Sides = tuple[AdjointSide, AdjointSide | None, Scale]  # of this pass, and of the other; of both
_Part = TypeVar("_Part", Bar, VersionBlock)


@dataclass(eq=False, slots=True)
class PlacedRow:
    """A row and its y. Two of them are equal if they are the same."""

    row: PictureRow
    top: float

    @property
    def track(self) -> AllocationTrack:
        return self.row.lane.track

    @property
    def family(self) -> bool:
        return bool(self.row.members)

    @property
    def tall(self) -> float:
        """The height of each of its tracks."""
        return self.row.lane.track_height

    @property
    def value(self) -> float:
        """The middle of the value track."""
        return self.top + self.row.lane.value_top + self.tall / 2

    @property
    def adjoint(self) -> float:
        """The middle of the adjoint track."""
        return self.top + self.row.lane.adjoint_top + self.tall / 2

    @property
    def bottom(self) -> float:
        return self.top + self.row.sizes[0].height


class Tracks:
    """Draws on the rows of these columns from `top` on; `other`: the adjoint of the other pass of `columns.against`.

    again   what ends the ids of marks that an earlier row of launches has too: it goes on here.
    """

    def __init__(
        self, scene: Scene, columns: Columns, sides: Sides, windows: Sequence[TimeWindow], number: int, top: float
    ):
        self.scene, self.columns, self.window, self.top = scene, columns, windows[number], top
        self.again = f"-{number}" if number else ""
        self.side, self.other, self.scale = sides
        self.trace, self.against = columns.trace, columns.against
        self.tables = records(columns.meta["tables"], columns.data) | records(self.side.meta["tables"], self.side.data)
        rows = [row for row in columns.placed if row.inside < 0]
        self.rows: list[PlacedRow] = []
        for row in self._shown(rows, windows):
            self.rows.append(PlacedRow(row, self.bottom))
        self.of = {lane: one for one in self.rows for lane in (one.row.members or (one.row.number,))}
        self.hidden = len(columns.lanes) - len(self.of)

    def _shown(self, rows: list[PictureRow], windows: Sequence[TimeWindow]) -> list[PictureRow]:
        """All rows, or, if they are too many, the first ones that a shown event touches."""
        if len(rows) <= LANE_BUDGET:
            return rows
        shown = [c for window in windows for c in window.columns if not c.many or c.fold is not None]
        touches = [touch for c in shown for event in self.trace.events[c.a : c.b] for touch in event.touches]
        touched = {self.columns.lanes[touch.allocation] for touch in touches}
        return [row for row in rows if touched & {row.number, *row.members}][:LANE_BUDGET]

    @property
    def bottom(self) -> float:
        return self.rows[-1].bottom if self.rows else self.top

    def row_of(self, allocation: str) -> PlacedRow | None:
        """The row of a memory: its lane, or its family; None if it is not drawn."""
        return self.of.get(self.columns.lanes.get(allocation, -1))

    # ---- names

    def names(self) -> None:
        for n, one in enumerate(self.rows):
            self.scene.add("path", f"rule-{n}{self.again}", "rule", path=f"M0 {one.top:.1f}H{self.scene.width:.1f}")
            self._labels(one)
            key = f"{one.track.id}{self.again}"
            self.scene.label(f"value-{key}", "muted", 256, one.value + 3.5, "value", 10, anchor="end")
            self.scene.label(f"adjoint-{key}", "hot", 256, one.adjoint + 3.5, "adjoint", 10, anchor="end")
        if self.hidden:
            text = f"… {self.hidden} more {'allocation' if self.hidden == 1 else 'allocations'}, in the table"
            self.scene.label(f"more-lanes{self.again}", "muted", MARGIN, self.bottom + 12, text, 11)
        self.scene.add("path", f"rule-end{self.again}", "rule", path=f"M0 {self.bottom:.1f}H{self.scene.width:.1f}")

    def _labels(self, one: PlacedRow) -> None:
        scene, track, size, y = self.scene, one.track, one.row.sizes[0], one.top + 12
        for n, label in enumerate(size.labels):
            x, y, wide = label.x + MARGIN - INDENT, one.top + 12 + LINE * label.line, label.wide
            key, look = f"name-{track.id}-{n}{self.again}", "chip shared" if track.aliased else "chip"
            scene.add("rect", key, look, x, y, wide, 20, radius=10)
            if track.aliased:
                scene.add("rect", f"{key}-ground", "chipground", x + 3, y + 3, wide - 6, 14, radius=7)
            place = x + wide / 2, y + 14, label.text, 11.5
            scene.label(f"{key}-label", "name", *place, mono=True, anchor="middle")
        note = size.note
        scene.label(f"note-{track.id}{self.again}", note.look, MARGIN, y + 36, note.text, note.size)

    # ---- versions

    @cached_property
    def ill(self) -> dict[int, tuple[int, float]]:
        """By number the versions with a known NaN or infinity: their states, and the shares of their numbers."""
        return {row.block: (row.state, row.share) for row in self.tables["values"]}

    def _spans(self, table: Sequence[Any]) -> Iterator[tuple[int, Any, PlacedRow, Ends]]:
        """Yields (number, mark, row, (x0, x1)) of what lasts from an event to another and is in sight."""
        for n, mark in enumerate(table):
            one, ends = self.of.get(mark.lane), self.window.stretch(mark.e0, mark.e1)
            if one is not None and not one.family and ends is not None:
                yield n, mark, one, ends

    def values(self) -> None:
        """Draw the versions. A label has room up to the next event, which has its signs there."""
        for n, block, one, (x0, x1) in self._spans(self.tables["blocks"]):
            scene, y, tall = self.scene, one.top + block.y, block.tall
            key, (state, share) = f"block-{one.track.id}-{n}{self.again}", self.ill.get(n, (0, 0.0))
            look = "block strided" if block.strided else "block"
            look += odd(block.parts, False)
            scene.add("rect", key, look, x0, y, x1 - x0, tall, radius=block.radius)
            if state:
                black = marks.ill_thick(share, tall)
                box = x0, y + tall - black, x1 - x0, black
                scene.add("rect", f"{key}-ill", f"block {STATES[state]}", *box, radius=block.radius)
            early = block.e0 < self.window.first
            if not (early and self.again):
                scene.add("rect", f"{key}-start", "blockstart", x0, y, min(4, x1 - x0), tall, radius=1)
            text = f"{PREFIXES[block.mixed]}{block.version}"
            indent = marks.LABEL_FIRST if early else marks.LABEL
            after = self.window.columns[self.window.number(block.e0) + 1 :][:1]
            reach = min([x1, *(c.x0 if c.many else c.x - marks.LABEL_ROOM for c in after)])
            if block.labelled and reach - x0 - indent >= text_width(text, 10, True):
                place, look = (x0 + indent, y + tall / 2 + 3.6, text, 10), "illtext" if share > HALF else "name"
                scene.label(f"{key}-label", look, *place, mono=True)
            if state and x1 - x0 > marks.ILL_ROOM:
                place = x1 - marks.ILL_DX, y + tall / 2, min(4.0, tall / 2 - 1)
                glyph(scene, f"{key}-sign", STATES[state], *place)

    # ---- adjoints

    def adjoints(self) -> None:
        for n, bar, one, (x0, x1) in self._spans(self.tables["bars"]):
            key, state, y = f"bar-{one.track.id}-{n}{self.again}", STATES[bar.state], one.top + bar.y
            look, box = f"bar {state}{odd(bar.parts, self.trace.wrong)}", (x0, y - bar.thick / 2, x1 - x0, bar.thick)
            self.scene.add("rect", key, look, *box, radius=bar.thick / 2, opacity=round(bar.opacity, 2))
            if bar.sign:
                glyph(self.scene, f"{key}-sign", state, (x0 + x1) / 2, y, bar.sign)
        for n, gone, one, (x0, x1) in self._spans(self.tables["absent"]):
            box = x0, one.top + gone.y - gone.thick / 2, x1 - x0, gone.thick
            self.scene.add("rect", f"absent-{one.track.id}-{n}{self.again}", "absent", *box)
        self._arrows()
        self._meets()

    def _arrows(self) -> None:
        seen = set()
        for k, arrow in enumerate(self.tables["arrows"]):
            source, target = self.of.get(arrow.source), self.of.get(arrow.target)
            column = self.window.alone(arrow.event)
            if source is None or target is None or column is None:
                continue
            rows = arrow.event, source.top, target.top
            if source.family or target.family:  # one for all members, and none within
                if rows in seen or source is target:
                    continue
                seen.add(rows)
            y0, y1 = (one.adjoint if one.family else one.top + y for one, y in ((source, arrow.y0), (target, arrow.y1)))
            self._arrow(column, k, (y0, y1))

    def _arrow(self, column: TimeColumn, k: int, ends: tuple[float, float]) -> None:
        arrow, (w, r) = self.tables["arrows"][k], self.side.sources["arrows"][k]
        look = LOOKS[arrow.look]
        y0, y1 = ends[0], ends[1] if look != "arrow cut" else ends[0] + marks.CUT * (ends[1] - ends[0])
        x0, x1 = column.x + marks.ARROW_FROM, column.x + marks.ARROW_TO
        bend = min(marks.BEND_MOST, marks.BEND * self.window.pitch)
        far = x1 + marks.BEND_END * bend
        path = f"M{x0:.1f} {y0:.1f}C{x0 - bend:.1f} {y0:.1f} {far:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
        self.scene.add("path", f"arrow-{arrow.event}-{w}-{r}", look, path=path, size=arrow.size)

    def _meets(self) -> None:
        for n, meet in enumerate(self.tables["meets"]):
            one, column = self.of.get(meet.lane), self.window.alone(meet.event)
            if one is None or one.family or column is None:
                continue
            key, x, y, r = f"meet-{one.track.id}-{n}", column.x + marks.MEET_DX, one.top + meet.y, meet.radius
            self.scene.add("circle", key, "meet", x - r, y - r, 2 * r, 2 * r)
            if meet.met:
                place = x, y + 3.5, f"+{meet.met}", meet.size
                self.scene.label(f"{key}-label", "meettext", *place, anchor="middle")

    def outlines(self) -> None:
        """Draw the adjoints of the other pass around those of this one."""
        if self.other is None:
            return
        bars = records(self.other.meta["tables"], self.other.data)["bars"]
        for n, bar, one, (x0, x1) in self._spans(bars):
            thick = bar.thick + marks.OUTLINE
            look, box = f"outline {STATES[bar.state]}", (x0, one.top + bar.y - thick / 2, x1 - x0, thick)
            self.scene.add("rect", f"outline-{one.track.id}-{n}{self.again}", look, *box, radius=thick / 2)

    # ---- accesses

    def touches(self) -> None:
        for column in self.window.ones:
            event = self.trace.events[column.a]
            first = self.tables["events"][column.a].touches
            self._family_signs(column)
            for n in sorted(range(len(event.touches)), key=lambda n: event.touches[n].how != "read"):
                touch, spoken = event.touches[n], self.tables["touches"][first + n]
                one, spot = self.row_of(touch.allocation), self.tables["spots"][spoken.range]
                if one is not None and not one.family:
                    dx = marks.SLOT * min(spoken.slot, int((self.window.pitch / 2 - 12) / marks.SLOT))
                    place = column.x - dx, one.top + spot.y, spot.radius
                    self._sign(f"{touch.how}-{column.a}-{n}", touch.how, *place)
            self._kept(column)

    def _sign(self, key: str, how: str, x: float, y: float, r: float) -> None:
        sign = marks.SIGNS[how]
        x, r = x + sign.dx, r + sign.more
        self.scene.add(sign.shape, key, how, x - r, y - r, 2 * r, 2 * r)

    def _family_signs(self, column: TimeColumn) -> None:
        """Draw an event's accesses to members of families: one sign of each kind per row."""
        touches = self.trace.events[column.a].touches
        for one, how in dict.fromkeys((self.row_of(touch.allocation), touch.how) for touch in touches):
            if one is not None and one.family:
                self._sign(f"{how}-{column.a}-{one.track.id}", how, column.x, one.value, 4.0)

    def _kept(self, column: TimeColumn) -> None:
        event, first = self.trace.events[column.a], self.tables["events"][column.a].kept
        known = [kept for kept in event.kept if kept.allocation in self.columns.lanes]
        seen = set()
        for n, kept in enumerate(known):
            one, row = self.row_of(kept.allocation), self.tables["kept"][first + n]
            if one is None or (one.family and one in seen):
                continue
            seen.add(one)
            spot = self.tables["spots"][row.range]
            y, h = (one.value, 5.0) if one.family else (one.top + spot.y, spot.half)
            slot = 1 if one.family else min(row.slot, int((self.window.pitch / 2 - 8) / marks.SLOT))
            key = f"kept-{column.a}-{one.track.id if one.family else n}"
            x = column.x + marks.KEPT_DX - marks.SLOT * slot
            left, right, low = x - 3.2, x + 3.2, y + h  # an arrow down into the tape
            head = f"M{left:.1f} {low - 3.6:.1f}L{x:.1f} {low:.1f}L{right:.1f} {low - 3.6:.1f}"
            self.scene.add("path", key, "kept", x, y, path=f"M{x:.1f} {y - h:.1f}V{low:.1f}{head}")

    # ---- families and many events, as envelopes

    def _by_row(self, found: Iterable[_Part]) -> dict[PlacedRow, list[_Part]]:
        parts = grouped((self.row_of(part.allocation), part) for part in found)
        return {one: parts.get(one, []) for one in self.rows}

    @cached_property
    def version_bars(self) -> dict[PlacedRow, Bars]:
        ill = {id(self.columns.order[n]): ill for n, ill in self.ill.items()}
        found = self._by_row(self.columns.order)
        return {one: version_bars(some, [ill.get(id(b), (0, 0.0)) for b in some]) for one, some in found.items()}

    @cached_property
    def passes(self) -> list[tuple[dict[PlacedRow, Bars], float, float, str]]:
        """The passes drawn as strips: each with its offset from the middle, largest thickness and look."""
        looks = ((0.0, np.inf, ""),) if self.other is None else marks.PASSES
        sides = zip((self.side, self.other), looks, strict=False)
        rows = [(self._by_row(side.found.bars), look) for side, look in sides if side is not None]
        return [({one: Bars.of(bars) for one, bars in found.items()}, *look) for found, look in rows]

    def families(self) -> None:
        """Draw values and adjoints of every family as envelopes between the columns."""
        gaps = list(self.window.gaps())
        edges = np.repeat([moment for moment, _, _ in gaps], 2)
        for one in self.rows:
            if not one.family:
                continue
            key = f"{one.track.id}{self.again}"
            found = _between(self.version_bars[one], edges)
            self._boxes(gaps, value_marks(found, one.tall), (one.value, one.tall), f"{key}-value")
            for bars, shift, most, twin in self.passes:
                found = _between(bars[one], edges)
                strips = [Strip(mark.look + twin, *mark[1:]) for mark in strip_marks(found, self.scale)]
                place = one.adjoint + shift, min(most, one.tall)
                self._boxes(gaps, strips, place, f"{key}-adjoint{twin}")

    def _boxes(self, gaps: Gaps, strips: Sequence[Strip], place: Ends, key: str) -> None:
        y, most = place
        for n, mark in enumerate(strips):
            x0, x1, tall = gaps[mark.first][1], gaps[mark.last - 1][2], min(mark.thick, most)
            box = x0, y - tall / 2, max(x1 - x0, 1), tall
            self.scene.add("rect", f"{key}-{n}", f"strip {mark.look}", *box)

    def strips(self, group: TimeColumn, key: str) -> None:
        """Draw many events on every row as a strip of thin columns, as thick as what is inside."""
        left, wide = group.x0 + 3, group.x1 - group.x0 - 6
        edges, turns = self._edges(group, int(wide / THIN))
        x = left + wide * (edges - group.a) / (group.b - group.a)
        rise = marks.CURVE if turns and self.other is None else 0.0
        for one in self.rows:
            bars, name = self.version_bars[one], f"{key}-{one.track.id}"
            strips = value_marks(envelopes(bars, edges), one.tall)
            self._drawn(strips, x, (one.value, one.tall), f"{name}-value")
            for rows, shift, most, twin in self.passes:
                strips = strip_marks(envelopes(rows[one], edges), self.scale)
                place = one.adjoint + (one.tall / 2 if rise else shift), min(most, one.tall) * (rise or 1)
                self._drawn(strips, x, place, f"{name}-adjoint{twin}", twin, rise)

    def _edges(self, group: TimeColumn, room: int) -> tuple[np.ndarray, bool]:
        """The edges of the thin columns that have room, and whether they are those of the turns of a loop."""
        turns = np.array([*group.fold.turns, group.b] if group.fold is not None else [])
        if any(event.count != 1 for event in self.trace.events[group.a : group.b]):  # some stand for others
            return stretches(group.a, group.b, 1), False
        if len(turns) <= marks.TURNS:
            return stretches(group.a, group.b, room), False
        return turns[stretches(0, len(turns) - 1, room)], True

    def _drawn(
        self, strips: Sequence[Strip], x: np.ndarray, place: Ends, key: str, twin: str = "", rise: float = 0.0
    ) -> None:
        """Draw one path for all parts that look the same, and the cross of NaN where it has room.

        place   (middle, most height); of a curve, `rise` times as high as thick, the line that it stands on.
        """
        paths: dict[str, str] = {}
        crosses = ""
        y, tall = place
        for mark in strips:
            left, wide = x[mark.first], max(x[mark.last] - x[mark.first], 1) + (0.4 if rise else 0)
            t = min(mark.thick * (rise or 1), tall)
            middle = y - t / 2 if rise else y
            part = f"M{left:.1f} {middle - t / 2:.1f}h{wide:.1f}v{t:.1f}h{-wide:.1f}z"
            paths[mark.look] = paths.get(mark.look, "") + part
            if mark.look.endswith(" nan") and wide > 9:
                crosses += cross(left + wide / 2, middle, min(t / 2 - 1.5, 4))
        for n, (look, path) in enumerate(paths.items()):
            self.scene.add("path", f"{key}-{n}", f"strip {look}{twin}", path=path)
        if crosses:
            self.scene.add("path", f"{key}-sign", "strip sign nan", path=crosses)

    # ---- where two passes part

    def parted(self) -> None:
        """Draw a line below differences inside of many events, or in lanes that share a row."""
        parts = self.against.partings if self.against is not None else ()
        met = ((p, self.row_of(p.allocation), self.window.column(p.position)) for p in parts)
        inside = ((p, one, c) for p, one, c in met if one is not None and c is not None and (one.family or c.many))
        for (a, one, kind), found in grouped(((c.a, one, p.kind), p.position) for p, one, c in inside).items():
            column, first, last = self.window.columns[self.window.number(a)], min(found), max(found)
            y = (one.value if kind == "value" else one.adjoint) + one.tall / 2 - 1
            x0, x1 = (column.x0, column.x1) if not column.many else (self.window.x(first), self.window.x(last))
            box = x0, y, max(x1 - x0, 2.0), 3.0
            self.scene.add("rect", f"parted-{column.a}-{one.track.id}-{kind}", "partedline", *box)

    def tag(self) -> None:
        """Draw the first numbers that differ, on the row and at the launch where they do."""
        first = self.against.first if self.against is not None else None
        one = self.row_of(first.allocation) if first is not None else None
        if first is None or one is None or self.window.column(first.position) is None:
            return
        x, text = self.window.x(first.position), clean(f"{first.cell}: {first.numbers}")
        wide, y = text_width(text, marks.TAG_SIZE) + 14, one.bottom - marks.TAG
        left = max(min(max(x - wide / 2, LEFT), self.scene.width - wide - 4), 4)
        start = one.value if first.kind == "value" else one.adjoint
        self.scene.add("path", "parts", "pointer", path=f"M{x:.1f} {start:.1f}V{y:.1f}")
        self.scene.add("rect", "parts-tag", "tag", left, y, wide, marks.TAG, radius=marks.TAG / 2)
        place = left + wide / 2, y + marks.TAG - 3.6, text, marks.TAG_SIZE
        self.scene.label("parts-tag-label", "tagtext", *place, anchor="middle")


def _between(bars: Bars, edges: np.ndarray) -> Envelope:
    """The envelope at each of these moments, each of which is there twice."""
    return Envelope(*(column[::2] for column in envelopes(bars, edges)))


def glyph(scene: Scene, key: str, state: str, x: float, y: float, r: float) -> None:
    """Draw the magenta cross of NaN, or the I of Inf."""
    bars = f"M{x - 3:.1f} {y - r:.1f}h6M{x:.1f} {y - r:.1f}v{2 * r:.1f}M{x - 3:.1f} {y + r:.1f}h6"
    scene.add("path", key, f"sign {state}", path=cross(x, y, r) if state == "nan" else bars)


def cross(x: float, y: float, r: float) -> str:
    return f"M{x - r:.1f} {y - r:.1f}l{2 * r:.1f} {2 * r:.1f}m{-2 * r:.1f} 0l{2 * r:.1f} {-2 * r:.1f}"
