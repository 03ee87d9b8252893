"""The picture as a list of marks: plain data that SVG, tests and a live view share.

Every mark has a stable id, a class (its look), a box and a tooltip. Invariants: the order is the drawing order,
the same trace gives the same marks, and no two labels overlap: a label that has no room is shortened or left
to its tooltip.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..data.text import BADGES, bytes_text, clean, fit, level_text, sentence, text_width, touch_text
from ..data.trace import AdjointLevel, EventColumn, NameRange, TouchMark, Trace, event_flags, events_text, fold_flags
from .layout import (
    GAP_WIDTH,
    LEFT,
    MARGIN,
    MARK_BUDGET,
    NAME_BUDGET,
    PITCH_MAX,
    Bar,
    Block,
    Column,
    Lane,
    Layout,
    arrange,
    place_columns,
    shown_events,
)

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
WORST, BEST = 3.0, -6.0


@dataclass(frozen=True, slots=True)
class Mark:
    """One thing to draw. A label's (x, y) is its anchor on the baseline; `box()` gives the area it covers."""

    kind: str
    id: str
    cls: str
    x: float = 0.0
    y: float = 0.0
    w: float = 0.0
    h: float = 0.0
    text: str = ""
    title: str = ""
    path: str = ""
    size: float = 0.0
    radius: float = 0.0
    opacity: float = 1.0
    anchor: str = "start"
    mono: bool = False
    turned: bool = False

    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom."""
        if self.kind != "label":
            return self.x, self.y, self.x + self.w, self.y + self.h
        wide = text_width(self.text, self.size, self.mono)
        if self.turned:
            return self.x - 0.78 * self.size, self.y - wide, self.x + 0.22 * self.size, self.y
        left = self.x - {"start": 0.0, "middle": wide / 2, "end": wide}[self.anchor]
        return left, self.y - 0.78 * self.size, left + wide, self.y + 0.22 * self.size


@dataclass
class Scene:
    width: float
    height: float
    sentence: str
    marks: list[Mark] = field(default_factory=list)

    def add(self, kind: str, id: str, cls: str, *place: float, **rest: object) -> None:
        self.marks.append(Mark(kind, id, cls, *(round(value, 2) for value in place), **rest))  # type: ignore[arg-type]

    def label(self, id: str, cls: str, x: float, y: float, text: str, size: float, **rest: object) -> None:
        self.add("label", id, cls, x, y, text=text, size=size, **rest)

    def labels(self) -> list[Mark]:
        return [mark for mark in self.marks if mark.kind == "label" and mark.text]


def draw(trace: Trace, budget: int = MARK_BUDGET) -> Scene:
    """The whole picture."""
    shown = shown_events(trace, budget)
    widest = max((text_width(clean(event.heading), 12, True) for _, event in shown), default=0.0)
    pitch = place_columns(trace, shown, widest)[2]
    turned = pitch < 84 and widest + 16 > pitch
    scoped = any(event.scope for _, event in shown)
    boxes = 44 + 16 * scoped + 12 * (scoped and trace.cursor is not None)
    tall = min(widest, PITCH_MAX) + 16 if turned else 26
    flagged = any(event_flags(event) & BADGES.keys() for event in trace.events)
    layout = arrange(trace, shown, widest, boxes + tall + (28 if flagged else 14))
    scene = Scene(layout.width, layout.bottom + 46, sentence(trace))
    _title(scene, layout)
    _header(scene, layout, boxes, tall, turned)
    _lanes(scene, layout)
    _values(scene, layout)
    _adjoints(scene, layout)
    _touches(scene, layout)
    _gap(scene, layout, boxes)
    _cursor(scene, layout, boxes, tall)
    _legend(scene, layout)
    return scene


def _title(scene: Scene, layout: Layout) -> None:
    trace, right = layout.trace, layout.right
    scene.add("rect", "ground", "ground", 0, 0, scene.width, scene.height, radius=8)
    title = fit(clean(trace.title), 360, 15)
    scene.label("title", "title", MARGIN, 26, title, 15, title=clean(trace.title))
    x = MARGIN + text_width(title, 15) + 4 * sum(c.isupper() for c in title) + 12  # bold capitals are wide
    scene.label("summary", "muted", x, 26, fit(trace.summary, right - x, 12), 12, title=scene.sentence)
    if trace.seeds:
        seed = "seed  " + clean(trace.seed_text)
        room = right - x - text_width(trace.summary, 12) - 24
        scene.label("seed", "muted", right, 26, fit(seed, room, 12), 12, anchor="end", title=seed)


def _header(scene: Scene, layout: Layout, top: float, tall: float, turned: bool) -> None:
    _scopes(scene, layout, 52)
    for column in layout.columns:
        _event_box(scene, layout, column, top, tall, turned)
    if not layout.columns:
        scene.label("empty", "muted", LEFT, top + 18, "no events recorded", 12)


def _event_box(scene: Scene, layout: Layout, column: Column, top: float, tall: float, turned: bool) -> None:
    event, key = column.event, column.position
    heading, title = clean(event.heading), event_title(event)
    if turned:
        text, wide = fit(heading, tall - 14, 12, True), 20.0
    else:
        text = fit(heading, layout.pitch - 22, 12, True)
        wide = max(text_width(text, 12, True) + 14, min(84.0, layout.pitch - 10))
    x = column.x
    scene.add("path", f"guide-{key}", "guide", path=f"M{x:.1f} {top + tall:.1f}V{layout.bottom:.1f}")
    look = "event" if event.kind == "launch" else "event other"
    look += " current" if key == layout.trace.cursor else ""
    scene.add("rect", f"event-{key}", look, x - wide / 2, top, wide, tall, radius=6, title=title)
    if turned:
        scene.label(f"event-{key}-label", "name", x + 4, top + tall - 7, text, 12, mono=True, turned=True, title=title)
    else:
        scene.label(f"event-{key}-label", "name", x, top + 17, text, 12, mono=True, anchor="middle", title=title)
    _badge(scene, f"flag-{key}", _badges(event), x, top + tall + 16, layout.pitch - 6)


def _badges(event: EventColumn) -> list[str]:
    flags = event_flags(event)
    return [word for flag, word in BADGES.items() if flag in flags]


def _badge(scene: Scene, key: str, words: Sequence[str], x: float, y: float, room: float, title: str = "") -> None:
    """The flags of an event below its box; only the first letter where there is no room for the word."""
    if not words:
        return
    text = " · ".join(words)
    short = text if text_width(text, 9.5) + 12 <= room else "".join(word[0] for word in words)
    wide = text_width(short, 9.5) + 12
    title = title or f"adjoint: {', '.join(words)}"
    scene.add("rect", key, "badge", x - wide / 2, y - 11, wide, 14, radius=7, title=title)
    scene.label(f"{key}-label", "badgetext", x, y - 0.5, short, 9.5, anchor="middle", title=title)


def _scopes(scene: Scene, layout: Layout, y: float) -> None:
    """A bracket over neighbouring events of one loop or block."""
    columns, start = layout.columns, 0
    for n in range(1, len(columns) + 1):
        same = n < len(columns) and columns[n].event.scope == columns[start].event.scope
        if same and columns[n].position == columns[n - 1].position + 1:
            continue
        scope = clean(columns[start].event.scope)
        if scope:
            x0, x1 = columns[start].x - 0.42 * layout.pitch, columns[n - 1].x + 0.42 * layout.pitch
            path = f"M{x0:.1f} {y + 4:.1f}V{y - 1:.1f}H{x1:.1f}V{y + 4:.1f}"
            scene.add("path", f"scope-{columns[start].position}", "scope", path=path, title=scope)
            text = fit(scope, x1 - x0, 10)
            scene.label(f"scope-{start}-label", "muted", (x0 + x1) / 2, y - 5, text, 10, anchor="middle", title=scope)
        start = n


def event_title(event: EventColumn) -> str:
    """The tooltip of an event: kind, place, and every access in words."""
    place = f" at {clean(event.where)}" if event.where else ""
    lines = [f"{clean(event.heading)} ({event.kind}){place}"]
    lines += [touch_text(touch) for touch in event.touches]
    lines += [f"kept {kept.nbytes:,} B: {clean(kept.reason)}" for kept in event.kept]
    return "\n".join(lines)


def _lanes(scene: Scene, layout: Layout) -> None:
    for n, (key, lane) in enumerate(layout.lanes.items()):
        scene.add("path", f"rule-{n}", "rule", path=f"M0 {lane.top:.1f}H{layout.width:.1f}")
        _chips(scene, lane)
        value, adjoint = lane.value_top + lane.value_height / 2, lane.adjoint_top + lane.adjoint_height / 2
        scene.label(f"value-{key}", "muted", 256, value + 3.5, "value", 10, anchor="end")
        scene.label(f"adjoint-{key}", "hot", 256, adjoint + 3.5, "adjoint", 10, anchor="end")
        _extents(scene, lane)
    if layout.hidden_lanes:
        noun = "allocation" if layout.hidden_lanes == 1 else "allocations"
        text = f"… {layout.hidden_lanes} more {noun}, in the table"
        scene.label("more-lanes", "muted", MARGIN, layout.bottom + 12, text, 11)
    scene.add("path", "rule-end", "rule", path=f"M0 {layout.bottom:.1f}H{layout.width:.1f}")


def _chips(scene: Scene, lane: Lane) -> None:
    track, edge = lane.track, 216.0
    x, y = MARGIN, lane.top + 12
    rest = len(track.names) - NAME_BUDGET
    texts = [(_name_text(lane, name), _name_title(lane, name)) for name in track.names[:NAME_BUDGET]]
    if rest > 0:
        texts.append((f"+{rest} names", ", ".join(clean(name.name) for name in track.names[NAME_BUDGET:])))
    for n, (text, title) in enumerate(texts):
        text = fit(text, edge - MARGIN - 18, 11.5, True)
        wide = text_width(text, 11.5, True) + 18
        if x > MARGIN and x + wide > edge:
            x, y = MARGIN, y + 24
        key = f"name-{track.id}-{n}"
        scene.add("rect", key, "chip shared" if track.aliased else "chip", x, y, wide, 20, radius=10, title=title)
        if track.aliased:
            scene.add("rect", f"{key}-ground", "chipground", x + 3, y + 3, wide - 6, 14, radius=7, title=title)
        scene.label(f"{key}-label", "name", x + wide / 2, y + 14, text, 11.5, mono=True, anchor="middle", title=title)
        x += wide + 6
    _note(scene, lane, y + 36)


def _note(scene: Scene, lane: Lane, y: float) -> None:
    track, x = lane.track, MARGIN
    what = " · ".join(part for part in (clean(track.text), bytes_text(track.nbytes)) if part)
    if track.aliased:
        number = len(track.names)
        word = NUMBERS[number] if number < len(NUMBERS) else str(number)
        note = f"one memory, {word} names"
        scene.label(f"note-{track.id}", "note", x, y, note, 11, title=f"{note}: {what}")
        return
    scene.label(f"note-{track.id}", "faint", x + 2, y, fit(what, 194, 10), 10, title=what)


def _name_text(lane: Lane, name: NameRange) -> str:
    text = clean(name.name)
    if lane.track.partial(name.lo, name.hi):
        extent = lane.track.range_text(name.lo, name.hi)
        room = 180 - text_width(" " + extent, 11.5, True)
        text = f"{fit(text, room, 11.5, True)} {extent}"
    return text


def _name_title(lane: Lane, name: NameRange) -> str:
    strided = ", strided: it skips bytes in between" if name.strided else ""
    return f"{clean(name.name)}: bytes [{name.lo}:{name.hi}) of {lane.track.nbytes}{strided}"


def _extents(scene: Scene, lane: Lane) -> None:
    """A thin bar beside the value track for every name that covers only a part of the memory."""
    parts = [name for name in lane.track.names if lane.track.partial(name.lo, name.hi) or name.strided]
    for n, name in enumerate(parts[:4]):
        y, tall = lane.value_span(name.lo, name.hi)
        look = "extent strided" if name.strided else "extent"
        title = _name_title(lane, name)
        scene.add(
            "rect",
            f"extent-{lane.track.id}-{n}",
            look,
            LEFT - 7 - 4 * n,
            y + 0.5,
            2.5,
            max(tall - 1, 1.5),
            radius=1,
            title=title,
        )


def _values(scene: Scene, layout: Layout) -> None:
    moments = [column.x for column in layout.columns]
    for n, block in enumerate(layout.blocks):
        after = bisect_right(moments, block.x0)
        reach = min([block.x1, *moments[after : after + 1]])
        _block(scene, layout.lanes[block.allocation], block, reach, f"block-{block.allocation}-{n}")


def _block(scene: Scene, lane: Lane, block: Block, reach: float, key: str) -> None:
    """One version. Its label has room up to `reach`, where the next event has its signs."""
    y, tall = lane.value_span(block.lo, block.hi)
    tall = max(tall - 1, 1.5) if len(lane.cuts) > 2 else tall
    version, wide = block.version, block.x1 - block.x0
    text = f"v≤{version.number}" if version.mixed else f"v{version.number}"
    origin = f", written by {clean(version.event.heading)}" if version.event else ", from before the tape"
    where = lane.track.range_text(block.lo, block.hi)
    if version.mixed:
        origin = ": not drawn events wrote parts of it, the last one " + origin.removeprefix(", ")
    title = f"{text} of {where}{origin}{', strided' if version.strided else ''}"
    look = "block strided" if version.strided else "block"
    round_ = min(4, tall / 3)
    scene.add("rect", key, look, block.x0, y, wide, tall, radius=round_, title=title)
    scene.add("rect", f"{key}-start", "blockstart", block.x0, y, min(4, wide), tall, radius=1, title=title)
    indent = 21 if version.event else 9
    if tall >= 11 and reach - block.x0 - indent - 26 >= text_width(text, 10, True):
        scene.label(f"{key}-label", "name", block.x0 + indent, y + tall / 2 + 3.6, text, 10, mono=True, title=title)


def thickness(level: AdjointLevel) -> float:
    """2.5 to 14: log10 of the largest adjoint, clamped to 1e-6 .. 1e3, so that two pictures compare."""
    if level.state != "value":
        return 14.0 if level.state in ("nan", "inf") else 5.0
    size = math.log10(level.max_abs) if level.max_abs > 0 else BEST
    return 2.5 + 11.5 * (min(max(size, BEST), WORST) - BEST) / (WORST - BEST)


def _adjoints(scene: Scene, layout: Layout) -> None:
    meets: dict[tuple[str, int, int, float], Bar] = {}
    blocks: dict[str, list[Block]] = {key: [] for key in layout.lanes}
    for block in layout.blocks:
        blocks[block.allocation].append(block)
    for n, bar in enumerate(layout.bars):
        key, level = f"bar-{bar.allocation}-{n}", bar.level
        if level is None:
            _absent(scene, layout.lanes[bar.allocation], bar, blocks[bar.allocation], key)
            continue
        _bar(scene, layout, bar, level, key)
        if bar.event and level.contributions > 1 and not (layout.gap and bar.x1 == layout.gap.x0):
            meets.setdefault((bar.allocation, level.lo, level.hi, bar.x1), bar)
    _arrows(scene, layout)
    for n, ((allocation, lo, hi, x), bar) in enumerate(meets.items()):
        met = bar.level.contributions if bar.level else 0
        _meet(scene, layout.lanes[allocation], lo, hi, x - 7, met, f"meet-{allocation}-{n}")


def _bar(scene: Scene, layout: Layout, bar: Bar, level: AdjointLevel, key: str) -> None:
    lane = layout.lanes[bar.allocation]
    y, tall = lane.adjoint_span(bar.lo, bar.hi)
    middle, wide = y + tall / 2, bar.x1 - bar.x0
    where = lane.track.range_text(bar.lo, bar.hi)
    state = level.state
    thick = min(thickness(level), max(tall - 2, 2.0))
    if state in ("nan", "inf"):
        thick = max(thick, min(6.0, tall))
    title = f"adjoint of {where}: {level_text(level)}"
    if level.mixed:
        title += ", changed in parts by events that are not drawn"
    elif state == "value":
        title += f" (max), {level.l2:.3g} (L2)"
    if bar.event:
        title += f", after the reverse step of {clean(bar.event.heading)}"
    faint = round(0.5 + 0.045 * (thickness(level) - 4), 2) if state == "value" else 1.0
    scene.add(
        "rect",
        key,
        f"bar {state}",
        bar.x0,
        middle - thick / 2,
        wide,
        thick,
        radius=thick / 2,
        title=title,
        opacity=min(max(faint, 0.45), 0.95),
    )
    if state in ("nan", "inf"):
        _glyph(scene, f"{key}-sign", state, bar.x0 + wide / 2, middle, min(4.0, thick / 2 - 1), title)


def _absent(scene: Scene, lane: Lane, bar: Bar, blocks: Sequence[Block], key: str) -> None:
    """No adjoint below a value that somebody used; below no value nothing is missing."""
    for n, block in enumerate(blocks):
        x0, x1 = max(block.x0, bar.x0), min(block.x1, bar.x1)
        lo, hi = max(block.lo, bar.lo), min(block.hi, bar.hi)
        if x0 >= x1 or lo >= hi:
            continue
        y, tall = lane.adjoint_span(lo, hi)
        if tall >= 4 or lo == bar.lo:
            title = f"no adjoint of {lane.track.range_text(lo, hi)}"
            scene.add("rect", f"{key}-{n}", "absent", x0, y + tall / 2 - 1.5, x1 - x0, 3, title=title)


def _glyph(scene: Scene, key: str, state: str, x: float, y: float, r: float, title: str) -> None:
    """The magenta cross of NaN, the I of Inf."""
    if state == "nan":
        path = f"M{x - r:.1f} {y - r:.1f}L{x + r:.1f} {y + r:.1f}M{x - r:.1f} {y + r:.1f}L{x + r:.1f} {y - r:.1f}"
    else:
        path = f"M{x - 3:.1f} {y - r:.1f}h6M{x:.1f} {y - r:.1f}v{2 * r:.1f}M{x - 3:.1f} {y + r:.1f}h6"
    scene.add("path", key, f"sign {state}", path=path, title=title)


def _arrows(scene: Scene, layout: Layout) -> None:
    for place, column in enumerate(layout.columns):
        for w, r in column.event.arrows or ():
            _arrow(scene, layout, place, column, w, r)


def _arrow(scene: Scene, layout: Layout, place: int, column: Column, w: int, r: int) -> None:
    """From what the event wrote to what it read, if an adjoint came in and something was there to receive it.

    Within one memory at one range the bar itself carries on, so there is no arrow."""
    written, read = column.event.touches[w], column.event.touches[r]
    source, target = layout.lanes.get(written.allocation), layout.lanes.get(read.allocation)
    after, before = layout.flows[place, w].after, layout.flows[place, r].before
    if source is None or target is None or after is None or before is None or after.state == "zero":
        return
    if written.allocation == read.allocation and (written.lo, written.hi) == (read.lo, read.hi):
        return
    wy, ry = (
        top + tall / 2
        for top, tall in (source.adjoint_span(written.lo, written.hi), target.adjoint_span(read.lo, read.hi))
    )
    x0, x1, bend = column.x + 6, column.x - 1, min(40.0, 0.31 * layout.pitch)
    path = f"M{x0:.1f} {wy:.1f}C{x0 - bend:.1f} {wy:.1f} {x1 + 0.57 * bend:.1f} {ry:.1f} {x1:.1f} {ry:.1f}"
    title = (
        f"{clean(column.event.heading)}: from the adjoint of {clean(written.name)} ({level_text(after)}) "
        f"to {clean(read.name)} ({level_text(before)})"
    )
    look = {"value": "arrow", "zero": "arrow dead"}.get(before.state, "arrow ill")
    size = 1.4 + 0.14 * thickness(before) if before.state == "value" else 1.8
    crowd = 0.65 if len(column.event.arrows or ()) > 3 else 1.0
    scene.add("path", f"arrow-{column.position}-{w}-{r}", look, path=path, title=title, size=round(size * crowd, 2))


def _meet(scene: Scene, lane: Lane, lo: int, hi: int, x: float, met: int, key: str) -> None:
    y, tall = lane.adjoint_span(lo, hi)
    middle, text = y + tall / 2, f"+{met}"
    title = f"{met} contributions meet in the adjoint of {lane.track.range_text(lo, hi)}"
    r = 8.0 if tall >= 11.5 else 3.0
    scene.add("circle", key, "meet", x - r, middle - r, 2 * r, 2 * r, title=title)
    size = 10.0 if len(text) < 3 else 7.5
    if r > 3 and len(text) < 4:
        scene.label(f"{key}-label", "meettext", x, middle + 3.5, text, size, anchor="middle", title=title)


def _touches(scene: Scene, layout: Layout) -> None:
    for column in layout.columns:
        taken: dict[str, list[tuple[float, float, float]]] = {}
        for n, touch in enumerate(column.event.touches):
            if touch.allocation in layout.lanes and touch.how == "read":
                _read(scene, layout, column, n, touch, taken.setdefault(touch.allocation, []))
        for n, touch in enumerate(column.event.touches):
            if touch.allocation in layout.lanes and touch.how != "read":
                _written(scene, layout, column, n, touch)
        _kept(scene, layout, column, taken)


def _mark_title(touch: TouchMark, lane: Lane, event: EventColumn) -> str:
    return f"{clean(event.heading)}: {touch_text(touch)}, bytes [{touch.lo}:{touch.hi}) of {lane.track.nbytes}"


def _free(x: float, top: float, bottom: float, taken: list[tuple[float, float, float]], room: float) -> float:
    """The first place left of x where no earlier mark of this event is in the way, as far as the column reaches."""
    least = x - room
    while x - 9 >= least and any(abs(x - tx) < 9 and top < tb and ty < bottom for tx, ty, tb in taken):
        x -= 9
    taken.append((x, top, bottom))
    return x


def _read(
    scene: Scene, layout: Layout, column: Column, n: int, touch: TouchMark, taken: list[tuple[float, float, float]]
) -> None:
    lane = layout.lanes[touch.allocation]
    y, tall = lane.value_span(touch.lo, touch.hi)
    r, middle = min(4.0, max(tall / 2 - 1.5, 2.0)), y + tall / 2
    x = _free(column.x - 7, middle - r - 1, middle + r + 1, taken, layout.pitch / 2 - 12)
    scene.add(
        "circle",
        f"read-{column.position}-{n}",
        "read",
        x - r,
        middle - r,
        2 * r,
        2 * r,
        title=_mark_title(touch, lane, column.event),
    )


def _written(scene: Scene, layout: Layout, column: Column, n: int, touch: TouchMark) -> None:
    lane = layout.lanes[touch.allocation]
    y, tall = lane.value_span(touch.lo, touch.hi)
    r, middle, x = min(4.0, max(tall / 2 - 1.5, 2.0)), y + tall / 2, column.x + 13
    kind = "square" if touch.how == "write" else "diamond"
    r = r + 1 if kind == "diamond" else r
    scene.add(
        kind,
        f"{touch.how}-{column.position}-{n}",
        touch.how,
        x - r,
        middle - r,
        2 * r,
        2 * r,
        title=_mark_title(touch, lane, column.event),
    )


def _kept(scene: Scene, layout: Layout, column: Column, taken: dict[str, list[tuple[float, float, float]]]) -> None:
    for n, kept in enumerate(column.event.kept):
        lane = layout.lanes.get(kept.allocation)
        if lane is None:
            continue
        y, tall = lane.value_span(kept.lo, kept.hi)
        h, middle = min(5.0, max(tall / 2 - 1.5, 2.5)), y + tall / 2
        x = _free(column.x - 8, middle - h, middle + h, taken.setdefault(kept.allocation, []), layout.pitch / 2 - 8)
        path = (
            f"M{x:.1f} {middle - h:.1f}V{middle + h:.1f}M{x - 3.2:.1f} {middle + h - 3.6:.1f}"
            f"L{x:.1f} {middle + h:.1f}L{x + 3.2:.1f} {middle + h - 3.6:.1f}"
        )
        reason = f": {clean(kept.reason)}" if kept.reason else ""
        title = f"kept for the reverse pass, {bytes_text(kept.nbytes)}{reason}"
        scene.add("path", f"kept-{column.position}-{n}", "kept", x, middle, path=path, title=title)


def _gap(scene: Scene, layout: Layout, top: float) -> None:
    gap = layout.gap
    if gap is None:
        return
    kinds = events_text(gap.events)
    noun = kinds[0].split(" ", 1)[-1] if len(kinds) == 1 else "events"
    text = f"… {len(gap.events)} more {noun}"
    tally = fold_flags(gap.events)
    title = f"{', '.join(kinds)} not drawn; the table has them" + "".join(f"\n{key}: {n}" for key, n in tally.items())
    x0, x1 = gap.x0 + 3, gap.x1 - 3
    scene.add("rect", "gap", "gap", x0, layout.top, x1 - x0, layout.bottom - layout.top, title=title)
    path = f"M{x0:.1f} {layout.top:.1f}V{layout.bottom:.1f}M{x1:.1f} {layout.top:.1f}V{layout.bottom:.1f}"
    scene.add("path", "gap-edges", "gapedge", path=path)
    middle = (gap.x0 + gap.x1) / 2
    scene.add("rect", "gap-box", "event other", gap.x0 + 6, top, GAP_WIDTH - 12, 26, radius=6, title=title)
    scene.label("gap-label", "muted", middle, top + 17, fit(text, GAP_WIDTH - 20, 12), 12, anchor="middle", title=title)
    words = [f"{word} ×{tally[flag]}" for flag, word in BADGES.items() if flag in tally]
    _badge(scene, "gap-flag", words, middle, top + 44, GAP_WIDTH, title)


def _cursor(scene: Scene, layout: Layout, top: float, tall: float) -> None:
    total, cursor, gap = len(layout.trace.events), layout.trace.cursor, layout.gap
    if cursor is None or not 0 <= cursor < total:
        return
    shown = [column.x for column in layout.columns if column.position == cursor]
    x = shown[0] if shown else (gap.x0 + gap.x1) / 2 if gap else LEFT
    text = f"reverse {total - cursor}/{total}"
    wide = text_width(text, 9.5) + 12
    scene.add("path", "cursor", "cursor", path=f"M{x:.1f} {top + tall:.1f}V{layout.bottom:.1f}", title=text)
    scene.add("rect", "cursor-box", "cursorbox", x - wide / 2, top - 13, wide, 14, radius=7, title=text)
    scene.label("cursor-label", "cursortext", x, top - 2.5, text, 9.5, anchor="middle", title=text)


def _legend(scene: Scene, layout: Layout) -> None:
    """One line that names every sign."""
    y, x = layout.bottom + 29, MARGIN + 4
    for key, text in (
        ("read", "read"),
        ("write", "write"),
        ("accumulate", "accumulate"),
        ("kept", "kept"),
        ("value", "1e-6 … 1e3"),
        ("zero", "exactly 0"),
        ("nan", "NaN"),
        ("inf", "Inf"),
        ("absent", "no adjoint"),
    ):
        x = _legend_sign(scene, key, x, y)
        scene.label(f"legend-{key}-label", "faint", x, y + 3.5, text, 10)
        x += text_width(text, 10) + 18


def _legend_sign(scene: Scene, key: str, x: float, y: float) -> float:
    name = f"legend-{key}"
    if key == "kept":
        path = f"M{x} {y - 5}V{y + 5}M{x - 3.2} {y + 1.4}L{x} {y + 5}L{x + 3.2} {y + 1.4}"
        scene.add("path", name, "kept", path=path)
    elif key in ("read", "write", "accumulate"):
        kind = {"read": "circle", "write": "square", "accumulate": "diamond"}[key]
        r = 5 if key == "accumulate" else 4
        scene.add(kind, name, key, x - r, y - r, 2 * r, 2 * r)
    elif key == "value":
        path = f"M{x} {y - 1}L{x + 34} {y - 6}V{y + 6}L{x} {y + 1}Z"
        scene.add("path", name, "wedge", path=path)
    elif key == "absent":
        scene.add("rect", name, "absent", x, y - 1.5, 28, 3)
    else:
        tall = 5 if key == "zero" else 10
        scene.add("rect", name, f"bar {key}", x, y - tall / 2, 28, tall, radius=tall / 2)
        if key != "zero":
            _glyph(scene, f"{name}-sign", key, x + 14, y, 3.5, "")
    return x + (10 if key in ("read", "write", "accumulate", "kept") else 40 if key == "value" else 34)
