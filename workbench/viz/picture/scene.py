"""Draws a trace: the lanes with values and adjoints, the events above them, the title and the legend.

Invariants: the order is the drawing order, the same trace gives the same marks, and no two labels overlap: a label that
has no room is shortened or left to its tooltip.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ...tables import bytes_text
from ..data.against import PassComparison
from ..data.envelope import BOTH, INF, NAN
from ..data.lanes import Bar, Lane, VersionBlock
from ..data.marks import (
    ARROW_FROM,
    ARROW_TO,
    BEND,
    BEND_END,
    BEND_MOST,
    ILL_ROOM,
    KEPT_DX,
    LABEL,
    LABEL_FIRST,
    LABEL_ROOM,
    LEGEND,
    MEET_DX,
    MOMENT,
    SIGNS,
    SLOT,
    STATES,
    THICK,
    THIN,
    WEDGE,
    Arrow,
    LaneBlocks,
    absent_marks,
    arrows_of,
    bar_mark,
    block_mark,
    chips,
    ill_sign,
    kept_place,
    meet_mark,
    name_title,
    note,
    odd,
    slots_of,
    touch_place,
    version_text,
)
from ..data.text import BADGES, ODD, clean, fit, fit_middle, level_text, sentence, text_width, touch_text
from ..data.trace import AdjointLevel, EventColumn, TouchMark, Trace, event_flags, fold_flags
from .families import envelope_rows, signs
from .groups import group_title, groups
from .layout import (
    LEFT,
    MARGIN,
    MARK_BUDGET,
    PITCH_MAX,
    Column,
    Layout,
    PlacedBar,
    PlacedBlock,
    arrange,
    place_columns,
    shown_events,
)
from .marks import Scene
from .overlay import folded, outlines, said_height, tag, two_passes, wrapped

STRIP, BOLD = 18.0, 0.9  # of a line of the strip: its height, and what bold letters leave of its room


def draw(
    trace: Trace,
    budget: int = MARK_BUDGET,
    against: PassComparison | None = None,
    strip: Sequence[tuple[str, str]] = (),
    said: Sequence[str] | None = None,
) -> Scene:
    """The whole picture; `against`: with the other pass over it, whose columns `trace` must have.

    `strip`: lines above it, each with its severity; `said`: sentences about both passes, by default all there are.
    """
    shown = shown_events(trace, budget)
    widest = max((text_width(clean(event.name), 12, True) for _, event in shown), default=0.0)
    _, _, pitch, right = place_columns(trace, shown, widest)
    turned = pitch < 84 and widest + 16 > pitch
    scoped = any(event.scope for _, event in shown)
    strip = [(severity, line) for severity, text in strip for line in wrapped([text], BOLD * (right - MARGIN - 20))]
    lines = [] if against is None else wrapped(against.said if said is None else said, right - MARGIN)
    verdict = STRIP * len(strip) + 12 if strip else 0
    above = verdict + (0 if against is None else said_height(lines))
    boxes = above + 44 + 16 * scoped + 12 * (scoped and trace.cursor is not None)
    tall = min(widest, PITCH_MAX) + 16 if turned else 26
    flagged = any(event_flags(event) & BADGES.keys() for event in trace.events)
    layout = arrange(trace, shown, widest, boxes + tall + (28 if flagged else 14), against=against)
    scene = Scene(layout.width, layout.bottom + 76, sentence(trace))
    _title(scene, layout)
    _strip(scene, layout, strip)
    if against is not None:
        two_passes(scene, layout, lines, verdict)
    _scopes(scene, layout, above + 52)
    _header(scene, layout, boxes, tall, turned)
    _lanes(scene, layout)
    _values(scene, layout)
    _adjoints(scene, layout)
    envelope_rows(scene, layout)
    outlines(scene, layout)
    _touches(scene, layout)
    groups(scene, layout, boxes)
    folded(scene, layout)
    tag(scene, layout)
    for n, group in enumerate(layout.groups):
        tally, middle = fold_flags(group.events), (group.x0 + group.x1) / 2
        words = [f"{word} ×{tally[flag]}" for flag, word in BADGES.items() if flag in tally]
        _badge(scene, f"gap{n or ''}-flag", words, middle, boxes + 44, group.x1 - group.x0, group_title(group))
    _cursor(scene, layout, boxes, tall)
    _legend(scene, layout)
    return scene


def _title(scene: Scene, layout: Layout) -> None:
    trace, right = layout.trace, layout.right
    scene.add("rect", "ground", "ground", 0, 0, scene.width, scene.height, radius=8)
    title = fit(clean(trace.title), 360, 15)
    scene.label("title", "title wrong" if trace.wrong else "title", MARGIN, 26, title, 15, title=clean(trace.title))
    x = MARGIN + text_width(title, 15) + 4 * sum(c.isupper() for c in title) + 12  # bold capitals are wide
    scene.label("summary", "muted", x, 26, fit(trace.summary, right - x, 12), 12, title=scene.sentence)
    if trace.seeds:
        seed = "seed  " + clean(trace.seed_text)
        room = right - x - text_width(trace.summary, 12) - 24
        scene.label("seed", "muted", right, 26, fit(seed, room, 12), 12, anchor="end", title=seed)


def _strip(scene: Scene, layout: Layout, strip: Sequence[tuple[str, str]]) -> None:
    wide = layout.right - MARGIN
    if strip:
        scene.add("rect", "verdict", f"verdict {strip[0][0]}", MARGIN, 38, wide, STRIP * len(strip) + 4, radius=6)
    for n, (severity, text) in enumerate(strip):
        look = "muted" if severity == "quiet" else f"name found-{severity}"
        scene.label(f"verdict-{n}", look, MARGIN + 10, 54 + STRIP * n, fit(text, wide - 20, 12), 12, title=text)


def _header(scene: Scene, layout: Layout, top: float, tall: float, turned: bool) -> None:
    for column in layout.columns:
        _event_box(scene, layout, column, top, tall, turned)
    if not layout.columns and not layout.groups:
        scene.label("empty", "muted", LEFT, top + 18, "no events recorded", 12)


def _event_box(scene: Scene, layout: Layout, column: Column, top: float, tall: float, turned: bool) -> None:
    event, key = column.event, column.position
    name, title = clean(event.name), event_title(event)
    if turned:
        text, wide = fit_middle(name, tall - 14, 12, True), 20.0
    else:
        text = fit_middle(name, layout.pitch - 22, 12, True)
        wide = max(text_width(text, 12, True) + 14, min(84.0, layout.pitch - 10))
    x = column.x
    scene.add("path", f"guide-{key}", "guide", path=f"M{x:.1f} {top + tall:.1f}V{layout.bottom:.1f}")
    look = "event lacking" if "there" in event.flags else "event" if event.facts.step == "launch" else "event other"
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
    """Draw the flags of an event below its box; only the first letter where there is no room for the word."""
    if not words:
        return
    text = " · ".join(words)
    short = text if text_width(text, 9.5) + 12 <= room else "".join(word[0] for word in words)
    wide = text_width(short, 9.5) + 12
    title = title or f"adjoint: {', '.join(words)}"
    of_two = {word.split(" ×")[0] for word in words} <= {BADGES[flag] for flag in ODD}
    scene.add("rect", key, "badge odd" if of_two else "badge", x - wide / 2, y - 11, wide, 14, radius=7, title=title)
    scene.label(f"{key}-label", "badgetext", x, y - 0.5, short, 9.5, anchor="middle", title=title)


def _scopes(scene: Scene, layout: Layout, y: float) -> None:
    """Draw a bracket over neighbouring events of one loop or block."""
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
        value, adjoint = lane.value_top + lane.track_height / 2, lane.adjoint_top + lane.track_height / 2
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
    for n, (text, title, _) in enumerate(chips(lane)):
        wide = text_width(text, 11.5, True) + 18
        if x > MARGIN and x + wide > edge:
            x, y = MARGIN, y + 24
        key = f"name-{track.id}-{n}"
        scene.add("rect", key, "chip shared" if track.aliased else "chip", x, y, wide, 20, radius=10, title=title)
        if track.aliased:
            scene.add("rect", f"{key}-ground", "chipground", x + 3, y + 3, wide - 6, 14, radius=7, title=title)
        scene.label(f"{key}-label", "name", x + wide / 2, y + 14, text, 11.5, mono=True, anchor="middle", title=title)
        x += wide + 6
    said = note(lane)
    indent = MARGIN if track.aliased else MARGIN + 2
    scene.label(f"note-{track.id}", said.look, indent, y + 36, said.text, said.size, title=said.title)


def _extents(scene: Scene, lane: Lane) -> None:
    """Draw a thin bar beside the value track for every name that covers only a part of the memory."""
    parts = [name for name in lane.track.names if lane.track.partial(name.lo, name.hi) or name.strided]
    for n, name in enumerate(parts[:4]):
        y, tall = lane.value_span(name.lo, name.hi)
        look = "extent strided" if name.strided else "extent"
        title = name_title(lane, name)
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
    moments = sorted([column.x for column in layout.columns] + [group.x0 + LABEL_ROOM for group in layout.groups])
    for n, block in enumerate(layout.blocks):
        after = bisect_right(moments, block.x0)
        reach = min([block.x1, *moments[after : after + 1]])
        _block(scene, layout, layout.lanes[block.allocation], block, reach, f"block-{block.allocation}-{n}")


def _block(scene: Scene, layout: Layout, lane: Lane, block: PlacedBlock, reach: float, key: str) -> None:
    """Draw one version. Its label has room up to `reach`, where the next event has its signs."""
    mark, wide = block_mark(lane, block), block.x1 - block.x0
    title = _block_title(layout, lane, block)
    parts = layout.against is not None and layout.against.parts_block(block)
    look = mark.look + odd(parts, False)
    scene.add("rect", key, look, block.x0, mark.y, wide, mark.tall, radius=mark.radius, title=title)
    scene.add("rect", f"{key}-start", "blockstart", block.x0, mark.y, min(4, wide), mark.tall, radius=1, title=title)
    indent = LABEL if block.e0 >= 0 else LABEL_FIRST
    if mark.text and reach - block.x0 - indent - LABEL_ROOM >= text_width(mark.text, 10, True):
        y = mark.y + mark.tall / 2 + 3.6
        look = "illtext" if block.state else "name"
        scene.label(f"{key}-label", look, block.x0 + indent, y, mark.text, 10, mono=True, title=title)
    if block.state and wide > ILL_ROOM:
        _glyph(scene, f"{key}-sign", STATES[block.state], *ill_sign(mark, block.x1), title)


def _block_title(layout: Layout, lane: Lane, block: VersionBlock) -> str:
    version = block.version
    heading = clean(layout.trace.events[block.e0].heading) if block.e0 >= 0 else ""
    origin = f", written by {heading}" if heading else ", from before the tape"
    if version.mixed:
        origin = ": not drawn events wrote parts of it, the last one " + origin.removeprefix(", ")
    where = lane.track.range_text(block.lo, block.hi)
    ill = {NAN: ", has NaN", INF: ", has Inf", BOTH: ", has NaN and Inf"}.get(block.state, "")
    return f"{version_text(block)} of {where}{origin}{ill}{', strided' if version.strided else ''}"


def _adjoints(scene: Scene, layout: Layout) -> None:
    meets: dict[tuple[str, int, int, float], AdjointLevel] = {}
    placed: dict[str, list[PlacedBlock]] = {key: [] for key in layout.lanes}
    for block in layout.blocks:
        placed[block.allocation].append(block)
    blocks = {key: LaneBlocks(found) for key, found in placed.items()}
    shown = {column.position for column in layout.columns}
    for n, bar in enumerate(layout.bars):
        key, level = f"bar-{bar.allocation}-{n}", bar.level
        if level is None:
            _absent(scene, layout.lanes[bar.allocation], bar, placed[bar.allocation], blocks[bar.allocation], key)
            continue
        _bar(scene, layout, bar, level, key)
        if bar.given and level.contributions > 1 and bar.e1 in shown:
            meets.setdefault((bar.allocation, level.lo, level.hi, bar.x1), level)
    _arrows(scene, layout)
    for n, ((allocation, _, _, x), level) in enumerate(meets.items()):
        _meet(scene, layout.lanes[allocation], level, x + MOMENT + MEET_DX, f"meet-{allocation}-{n}")


def _bar(scene: Scene, layout: Layout, bar: PlacedBar, level: AdjointLevel, key: str) -> None:
    lane = layout.lanes[bar.allocation]
    mark, wide = bar_mark(lane, bar, level, layout.scale), bar.x1 - bar.x0
    title = _bar_title(layout, lane, bar, level)
    parts = layout.trace.wrong if layout.against is None else layout.against.parts_bar(bar, layout.others)
    look = mark.look + odd(parts, layout.trace.wrong)
    scene.add(
        "rect",
        key,
        look,
        bar.x0,
        mark.y - mark.thick / 2,
        wide,
        mark.thick,
        radius=mark.thick / 2,
        title=title,
        opacity=mark.opacity,
    )
    if mark.sign:
        _glyph(scene, f"{key}-sign", mark.state, bar.x0 + wide / 2, mark.y, mark.sign, title)


def _bar_title(layout: Layout, lane: Lane, bar: Bar, level: AdjointLevel) -> str:
    title = f"adjoint of {lane.track.range_text(bar.lo, bar.hi)}: {level_text(level)}"
    if level.mixed:
        title += ", changed in parts by events that are not drawn"
    elif level.state == "value":
        title += f" (max), {level.l2:.3g} (L2)"
    if bar.given:
        title += f", after the reverse step of {clean(layout.trace.events[bar.e1].heading)}"
    return title


def _absent(
    scene: Scene, lane: Lane, bar: PlacedBar, placed: Sequence[PlacedBlock], blocks: LaneBlocks, key: str
) -> None:
    for n, piece, mark in absent_marks(lane, bar, blocks):
        x0, x1 = max(placed[n].x0, bar.x0), min(placed[n].x1, bar.x1)
        if x0 < x1:
            title = f"no adjoint of {lane.track.range_text(piece.lo, piece.hi)}"
            scene.add("rect", f"{key}-{n}", mark.look, x0, mark.y - mark.thick / 2, x1 - x0, mark.thick, title=title)


def _glyph(scene: Scene, key: str, state: str, x: float, y: float, r: float, title: str) -> None:
    """Draw the magenta cross of NaN, or the I of Inf."""
    if state == "nan":
        path = f"M{x - r:.1f} {y - r:.1f}L{x + r:.1f} {y + r:.1f}M{x - r:.1f} {y + r:.1f}L{x + r:.1f} {y - r:.1f}"
    else:
        path = f"M{x - 3:.1f} {y - r:.1f}h6M{x:.1f} {y - r:.1f}v{2 * r:.1f}M{x - 3:.1f} {y + r:.1f}h6"
    scene.add("path", key, f"sign {state}", path=path, title=title)


def _arrows(scene: Scene, layout: Layout) -> None:
    for column in layout.columns:
        seen = set()
        for w, r, arrow in arrows_of(layout.places, column.event, column.position, layout.flows, layout.scale):
            rows = tuple(layout.places[column.event.touches[n].allocation].top for n in (w, r))
            inside = column.event.touches[w].allocation in layout.folded and rows[0] == rows[1]
            if not inside and (rows not in seen or not layout.folded):
                _arrow(scene, layout, column, w, r, arrow)
            seen.add(rows)


def _arrow(scene: Scene, layout: Layout, column: Column, w: int, r: int, arrow: Arrow) -> None:
    x0, x1, bend = column.x + ARROW_FROM, column.x + ARROW_TO, min(BEND_MOST, BEND * layout.pitch)
    path = (
        f"M{x0:.1f} {arrow.y0:.1f}C{x0 - bend:.1f} {arrow.y0:.1f}"
        f" {x1 + BEND_END * bend:.1f} {arrow.y1:.1f} {x1:.1f} {arrow.y1:.1f}"
    )
    event, place = column.event, column.position
    stopped = "cut on purpose, " if event.facts.cuts else ""
    title = (
        f"{clean(event.heading)}: {stopped}from the adjoint of {clean(event.touches[w].name)}"
        f" ({level_text(layout.flows[place, w].after)}) to {clean(event.touches[r].name)}"
        f" ({level_text(layout.flows[place, r].before)})"
    )
    scene.add("path", f"arrow-{place}-{w}-{r}", arrow.look, path=path, title=title, size=arrow.size)


def _meet(scene: Scene, lane: Lane, level: AdjointLevel, x: float, key: str) -> None:
    meet, r = meet_mark(lane, level), meet_mark(lane, level).radius
    where = lane.track.range_text(level.lo, level.hi)
    title = f"{level.contributions} contributions meet in the adjoint of {where}"
    scene.add("circle", key, "meet", x - r, meet.y - r, 2 * r, 2 * r, title=title)
    if meet.text:
        scene.label(f"{key}-label", "meettext", x, meet.y + 3.5, meet.text, meet.size, anchor="middle", title=title)


def _touches(scene: Scene, layout: Layout) -> None:
    for column in layout.columns:
        reads, kepts = slots_of(layout.lanes, column.event)
        signs(scene, layout, column)
        order = sorted(range(len(column.event.touches)), key=lambda n: column.event.touches[n].how != "read")
        for n in order:
            touch = column.event.touches[n]
            if touch.allocation in layout.lanes:
                slot = min(reads.get(n, 0), int((layout.pitch / 2 - 12) / SLOT))
                _touch(scene, layout.lanes[touch.allocation], column, n, touch, slot)
        for n, slot in kepts.items():
            _kept(scene, layout, column, n, min(slot, int((layout.pitch / 2 - 8) / SLOT)))


def _mark_title(touch: TouchMark, lane: Lane, event: EventColumn) -> str:
    return f"{clean(event.heading)}: {touch_text(touch)}, bytes [{touch.lo}:{touch.hi}) of {lane.track.nbytes}"


def _touch(scene: Scene, lane: Lane, column: Column, n: int, touch: TouchMark, slot: int) -> None:
    sign, (middle, r) = SIGNS[touch.how], touch_place(lane, touch)
    x, r = column.x + sign.dx - SLOT * slot, r + sign.more
    key, title = f"{touch.how}-{column.position}-{n}", _mark_title(touch, lane, column.event)
    scene.add(sign.shape, key, touch.how, x - r, middle - r, 2 * r, 2 * r, title=title)


def _kept(scene: Scene, layout: Layout, column: Column, n: int, slot: int) -> None:
    kept = column.event.kept[n]
    middle, h = kept_place(layout.lanes[kept.allocation], kept)
    x = column.x + KEPT_DX - SLOT * slot
    path = (
        f"M{x:.1f} {middle - h:.1f}V{middle + h:.1f}M{x - 3.2:.1f} {middle + h - 3.6:.1f}"
        f"L{x:.1f} {middle + h:.1f}L{x + 3.2:.1f} {middle + h - 3.6:.1f}"
    )
    reason = f": {clean(kept.reason)}" if kept.reason else ""
    title = f"kept for the reverse pass, {bytes_text(kept.nbytes, 1000)}{reason}"
    scene.add("path", f"kept-{column.position}-{n}", "kept", x, middle, path=path, title=title)


def _cursor(scene: Scene, layout: Layout, top: float, tall: float) -> None:
    total, cursor = len(layout.trace.events), layout.trace.cursor
    if cursor is None or not 0 <= cursor < total:
        return
    x = layout.place(cursor)
    text = f"reverse {total - cursor}/{total}"
    wide = text_width(text, 9.5) + 12
    scene.add("path", "cursor", "cursor", path=f"M{x:.1f} {top + tall:.1f}V{layout.bottom:.1f}", title=text)
    scene.add("rect", "cursor-box", "cursorbox", x - wide / 2, top - 13, wide, 14, radius=7, title=text)
    scene.label("cursor-label", "cursortext", x, top - 2.5, text, 9.5, anchor="middle", title=text)


def _legend(scene: Scene, layout: Layout) -> None:
    """Draw a line that names every sign, and the scale of thickness with its numbers."""
    y, x = layout.bottom + 29, MARGIN + 4
    for key, text in LEGEND.items():
        if key not in ("scale", "band"):
            x = _legend_text(scene, key, text, _legend_sign(scene, key, x, y), y)
    x, y = MARGIN + 4, y + 24
    scene.label("legend-scale-label", "faint", x, y + 3.5, LEGEND["scale"], 10)
    x += text_width(LEGEND["scale"], 10) + 14
    scene.add("path", "legend-scale", "wedge", path=_wedge(x, y))
    for n, (tick, text) in enumerate(zip(layout.scale.ticks, layout.scale.texts, strict=True)):
        at = x + WEDGE * layout.scale.part(tick)
        scene.label(f"legend-scale-{n}", "faint", at, y + 17, text, 9, anchor="middle")
    x += WEDGE + 34
    scene.add("rect", "legend-band", "band", x, y - 6, 28, 12)
    scene.add("rect", "legend-band-core", "bar value", x, y - 2, 28, 4)
    _legend_text(scene, "band", LEGEND["band"], x + 34, y)


def _wedge(x: float, y: float) -> str:
    """Draw the scale's wedge: at each place as thick as an adjoint of that size."""
    return f"M{x} {y - THIN / 2}L{x + WEDGE} {y - THICK / 2}V{y + THICK / 2}L{x} {y + THIN / 2}Z"


def _legend_text(scene: Scene, key: str, text: str, x: float, y: float) -> float:
    scene.label(f"legend-{key}-label", "faint", x, y + 3.5, text, 10)
    return x + text_width(text, 10) + 14


def _legend_sign(scene: Scene, key: str, x: float, y: float) -> float:
    name = f"legend-{key}"
    if key == "kept":
        path = f"M{x} {y - 5}V{y + 5}M{x - 3.2} {y + 1.4}L{x} {y + 5}L{x + 3.2} {y + 1.4}"
        scene.add("path", name, "kept", path=path)
    elif key in ("read", "write", "accumulate"):
        kind = {"read": "circle", "write": "square", "accumulate": "diamond"}[key]
        r = 5 if key == "accumulate" else 4
        scene.add(kind, name, key, x - r, y - r, 2 * r, 2 * r)
    elif key == "cut":
        scene.add("path", name, "arrow cut", path=f"M{x} {y}H{x + 26}", size=1.8)
    elif key == "absent":
        scene.add("rect", name, "absent", x, y - 1.5, 28, 3)
    else:
        tall = 5 if key == "zero" else 10
        scene.add("rect", name, f"bar {key}", x, y - tall / 2, 28, tall, radius=tall / 2)
        if key != "zero":
            _glyph(scene, f"{name}-sign", key, x + 14, y, 3.5, "")
    return x + (10 if key in ("read", "write", "accumulate", "kept") else 34)
