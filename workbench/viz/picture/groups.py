"""Many events in one column of the static picture: a strip of thin columns on each lane, as thick as what is inside."""

from __future__ import annotations

from collections.abc import Sequence

from ..data.envelope import BOTH, INF, NAN, Bars, Envelope, envelope_text, envelopes, stretches
from ..data.lanes import Lane
from ..data.marks import Strip, strip_marks, value_marks
from ..data.text import clean, fit_middle
from ..data.trace import events_text, fold_flags
from .layout import ColumnGroup, Layout
from .marks import Scene

THIN = 1.5  # width of a thin column at least


def groups(scene: Scene, layout: Layout, top: float) -> None:
    """Draw the groups of events that are not drawn one by one, each with its name in a box at `top`."""
    for n, group in enumerate(layout.groups):
        key = f"gap{n or ''}"
        x0, x1, title = group.x0 + 3, group.x1 - 3, group_title(group)
        scene.add("rect", key, "gap", x0, layout.top, x1 - x0, layout.bottom - layout.top, title=title)
        path = f"M{x0:.1f} {layout.top:.1f}V{layout.bottom:.1f}M{x1:.1f} {layout.top:.1f}V{layout.bottom:.1f}"
        scene.add("path", f"{key}-edges", "gapedge", path=path)
        for lane in layout.lanes.values():
            _strips(scene, layout, group, lane, f"{key}-{lane.track.id}")
        wide = group.x1 - group.x0 - 12
        look = "event" if group.fold else "event other"
        scene.add("rect", f"{key}-box", look, group.x0 + 6, top, wide, 26, radius=6, title=title)
        text, middle = fit_middle(clean(group.name), wide - 8, 12, True), (x0 + x1) / 2
        scene.label(f"{key}-label", "name", middle, top + 17, text, 12, mono=True, anchor="middle", title=title)


def group_title(group: ColumnGroup) -> str:
    """The tooltip of many events: their name, how many of each kind, and their flags."""
    kinds = ", ".join(events_text(group.events))
    flags = "".join(f"\n{key}: {number}" for key, number in fold_flags(group.events).items())
    return f"{clean(group.name)}, {group.within}: {kinds}, in the table one by one{flags}"


def _strips(scene: Scene, layout: Layout, group: ColumnGroup, lane: Lane, key: str) -> None:
    x, wide = group.x0 + 3, group.x1 - group.x0 - 6
    edges = stretches(group.first, group.last, group.columns(int(wide / THIN)))
    whole = stretches(group.first, group.last, 1)
    tall, step, half = lane.track_height, wide / (len(edges) - 1), lane.track_height / 2
    bars = layout.version_bars[lane.track.id]
    marks, place = value_marks(envelopes(bars, edges), tall), (x, step, lane.value_top + half, tall)
    _drawn(scene, marks, place, f"{key}-value", _value_title(layout, bars, group))
    for bars, shift, most, twin in layout.passes(lane.track.id, tall):
        said = envelopes(bars, whole).at(0)
        title = f"{'the other' if twin else 'adjoint'}: {_text(layout, said, group)}"
        place = x, step, lane.adjoint_top + half + shift, most
        _drawn(scene, strip_marks(envelopes(bars, edges), layout.scale), place, f"{key}-adjoint{twin}", title, twin)


def _drawn(
    scene: Scene, marks: Sequence[Strip], place: tuple[float, float, float, float], key: str, title: str, twin: str = ""
) -> None:
    """Draw one path for all parts that look the same, and the cross of NaN where it has room."""
    paths: dict[str, str] = {}
    crosses = ""
    x, step, y, tall = place
    for mark in marks:
        left, wide, t = x + step * mark.first, max(step * (mark.last - mark.first), 1), min(mark.thick, tall)
        part = f"M{left:.1f} {y - t / 2:.1f}h{wide:.1f}v{t:.1f}h{-wide:.1f}z"
        paths[mark.look] = paths.get(mark.look, "") + part
        if mark.look.endswith(" nan") and wide > 9:
            r, middle = min(t / 2 - 1.5, 4), left + wide / 2
            crosses += f"M{middle - r:.1f} {y - r:.1f}l{2 * r} {2 * r}m{-2 * r} 0l{2 * r} {-2 * r}"
    for n, (look, path) in enumerate(paths.items()):
        scene.add("path", f"{key}-{n}", f"strip {look}{twin}", path=path, title=title)
    if crosses:
        scene.add("path", f"{key}-sign", "strip sign nan", path=crosses, title=title)


def _value_title(layout: Layout, bars: Bars, group: ColumnGroup) -> str:
    ill = (bars.state >= NAN) & (bars.e1 >= group.first) & (bars.e0 < group.last)
    if not ill.any():
        return "values"
    states, since = set(bars.state[ill].tolist()), int(bars.e0[ill].min())
    names = [name for name, these in (("NaN", {NAN, BOTH}), ("Inf", {INF, BOTH})) if states & these]
    return f"values: {' and '.join(names)} {f'written by {layout.moment(since)}' if since >= 0 else 'from the start'}"


def _text(layout: Layout, said: Envelope, group: ColumnGroup) -> str:
    return envelope_text(said, layout.moment, group.within)


def group_texts(layout: Layout, group: ColumnGroup) -> tuple[str, ...]:
    """The adjoint of each memory inside, in words: what the table says of many events."""
    found = []
    for key, bars in layout.group_bars.items():
        said = envelopes(bars, stretches(group.first, group.last, 1)).at(0)
        if said.state != "absent":
            track = layout.lanes[key].track
            found.append(f"{clean(track.names[0].name if track.names else key)} {_text(layout, said, group)}")
    return tuple(found)
