"""Lanes of one kind as one row of the static picture: the envelope of all of them, and one sign for what they share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ..data.envelope import Bars, Envelope, envelope_text, envelopes
from ..data.lanes import Lane
from ..data.marks import KEPT_DX, SIGNS, SLOT, Strip, strip_marks, touch_place, value_marks
from ..data.text import clean, touch_text
from .layout import LEFT, Column, Layout
from .marks import Scene


def envelope_rows(scene: Scene, layout: Layout) -> None:
    """Draw values and adjoints of every family as envelopes between the events drawn one by one."""
    places = _moments(layout)
    edges = np.repeat([moment for moment, _, _ in places], 2)
    for lane in {lane.track.id: lane for lane in layout.folded.values()}.values():
        key, tall, name = lane.track.id, lane.track_height, clean(lane.track.names[0].name)
        found = _between(layout.version_bars[key], edges)
        y = lane.value_top + tall / 2
        _boxes(scene, places, value_marks(found, tall), y, tall, f"{key}-value", [f"value of {name}"] * len(places))
        for bars, shift, most, twin in layout.passes(key, tall):
            found, y = _between(bars, edges), lane.adjoint_top + tall / 2 + shift
            marks = [Strip(mark.look + twin, *mark[1:]) for mark in strip_marks(found, layout.scale)]
            whose = "the other: " if twin else ""
            titles = [
                f"{whose}adjoint of {name}: {envelope_text(found.at(k), layout.moment)}" for k in range(len(places))
            ]
            _boxes(scene, places, marks, y, most, f"{key}-adjoint{twin}", titles)


def _between(bars: Bars, edges: np.ndarray) -> Envelope:
    """The envelope at each of these moments, each of which is there twice."""
    return Envelope(*(column[::2] for column in envelopes(bars, edges)))


def _boxes(
    scene: Scene,
    places: Sequence[tuple[int, float, float]],
    marks: Sequence[Strip],
    y: float,
    most: float,
    key: str,
    titles: Sequence[str],
) -> None:
    for n, mark in enumerate(marks):
        x0, x1, tall = places[mark.first][1], places[mark.last - 1][2], min(mark.thick, most)
        title = ", ".join(dict.fromkeys(titles[mark.first : mark.last]))
        scene.add("rect", f"{key}-{n}", f"strip {mark.look}", x0, y - tall / 2, max(x1 - x0, 1), tall, title=title)


def _moments(layout: Layout) -> list[tuple[int, float, float]]:
    """(moment, x0, x1) of each gap between the events that are drawn."""
    stops = [(column.position, column.position + 1, column.x, column.x) for column in layout.columns]
    stops += [(group.first, group.last, group.x0, group.x1) for group in layout.groups]
    end = len(layout.trace.events)
    stops = [(0, 0, LEFT, LEFT), *sorted(stops), (end, end, layout.right, layout.right)]
    return [(before[1], before[3], after[2]) for before, after in pairwise(stops)]


def signs(scene: Scene, layout: Layout, column: Column) -> None:
    """Draw an event's accesses to members of families: one sign of each kind per row."""
    seen: dict[tuple[str, str], list[str]] = {}
    rows: dict[str, Lane] = {}
    for touch in column.event.touches:
        lane = layout.folded.get(touch.allocation)
        if lane is not None:
            rows[lane.track.id] = lane
            seen.setdefault((lane.track.id, touch.how), []).append(touch_text(touch))
    for (row, how), texts in seen.items():
        sign, (middle, r) = SIGNS[how], touch_place(rows[row], column.event.touches[0])
        x, r = column.x + sign.dx, r + sign.more
        title = "\n".join([clean(column.event.heading), *texts[:12]])
        scene.add(sign.shape, f"{how}-{column.position}-{row}", how, x - r, middle - r, 2 * r, 2 * r, title=title)
    kept = {layout.folded[one.allocation].track.id for one in column.event.kept if one.allocation in layout.folded}
    for lane in {lane.track.id: lane for lane in layout.folded.values() if lane.track.id in kept}.values():
        x, y = column.x + KEPT_DX - SLOT, lane.value_top + lane.track_height / 2
        path = f"M{x:.1f} {y - 5:.1f}v10M{x - 3.2:.1f} {y + 1.4:.1f}L{x:.1f} {y + 5:.1f}L{x + 3.2:.1f} {y + 1.4:.1f}"
        key = f"kept-{column.position}-{lane.track.id}"
        scene.add("path", key, "kept", x, y, path=path, title="kept for the reverse pass")
