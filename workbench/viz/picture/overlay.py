"""The extras of a picture of two passes: legend, sentences, the other's outline, the tag at the first difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap

from ..data.lanes import Lane
from ..data.marks import TAG, TAG_SIZE, odd, outline_mark, tag_top
from ..data.text import clean, fit, level_text, text_width
from .layout import LEFT, MARGIN, Layout
from .marks import Scene

LINE = 17.0


def two_passes(scene: Scene, layout: Layout, lines: Sequence[str], top: float = 0) -> None:
    """Draw the legend of both passes below the title (and `top` more), then the sentences about them."""
    made = layout.against
    assert made is not None
    x, y = MARGIN, 48.0 + top
    look = f"bar{odd(True, layout.trace.wrong)}"
    signs = (("here", look, f"{made.here.title}, where it differs"), ("there", "outline", made.there.title))
    for key, cls, text in signs:
        scene.add("rect", f"pass-{key}", cls, x, y - 9, 26, 9, radius=4)
        text = fit(clean(text), layout.right - x - 32, 12)
        scene.label(f"pass-{key}-label", "name", x + 32, y, text, 12)
        x += 32 + text_width(text, 12) + 18
    for n, text in enumerate(lines):
        scene.label(f"said-{n}", "said", MARGIN, y + 20 + LINE * n, text, 12)


def wrapped(said: Sequence[str], room: float) -> list[str]:
    """Sentences wrapped to lines of this width, each from a new line."""
    return [part for text in said for part in wrap(clean(text), max(int(room / text_width("0", 12)), 20))]


def said_height(lines: Sequence[str]) -> float:
    """The height that the legend and these lines need below the title."""
    return 28 + LINE * len(lines)


def outlines(scene: Scene, layout: Layout) -> None:
    """Draw the adjoints of the other pass around those of this one."""
    for n, bar in enumerate(bar for bars in layout.others.values() for bar in bars):
        lane = layout.lanes.get(bar.allocation)
        if bar.level is None or lane is None:
            continue
        mark = outline_mark(lane, bar, bar.level, layout.scale)
        title = f"the other: adjoint of {lane.track.range_text(bar.lo, bar.hi)}: {level_text(bar.level)}"
        place = bar.x0, mark.y - mark.thick / 2, bar.x1 - bar.x0, mark.thick
        look = f"outline {mark.state}"
        scene.add("rect", f"outline-{bar.allocation}-{n}", look, *place, radius=mark.thick / 2, title=title)


def folded(scene: Scene, layout: Layout) -> None:
    """Draw a line below differences inside a group of events, or in lanes that share a row."""
    for g in layout.groups:
        _lines(scene, layout, (g.first, g.last), layout.places, lambda n, g=g: (g.x(n), g.x(n)))
    half = layout.pitch / 2
    for c in layout.columns:
        _lines(scene, layout, (c.position, c.position + 1), layout.folded, lambda n, c=c: (c.x - half, c.x + half))


def _lines(
    scene: Scene,
    layout: Layout,
    events: tuple[int, int],
    rows: Mapping[str, Lane],
    place: Callable[[int], tuple[float, float]],
) -> None:
    """Draw the lines for these events; `rows`: the row of every memory; `place`: the (x0, x1) of an event."""
    ends: dict[tuple[str, str], list[int]] = {}
    for p in layout.against.partings if layout.against is not None else ():
        if events[0] <= p.position < events[1] and p.allocation in rows:
            ends.setdefault((rows[p.allocation].track.id, p.kind), []).append(p.position)
    for (key, kind), found in ends.items():
        lane, first, last = layout.lanes[key], min(found), max(found)
        top = (lane.value_top if kind == "value" else lane.adjoint_top) + lane.track_height - 1
        title = f"{kind}s differ in {len(set(found))} of the events from #{first} to #{last}"
        x = place(first)[0]
        box = x, top, max(place(last)[1] - x, 2.0), 3.0
        scene.add("rect", f"parted-{events[0]}-{key}-{kind}", "partedline", *box, title=title)


def tag(scene: Scene, layout: Layout) -> None:
    """The first numbers that differ, on the lane and at the launch where they do."""
    first = layout.against.first if layout.against is not None else None
    lane = layout.places.get(first.allocation) if first is not None else None
    if first is None or lane is None:
        return
    x = layout.place(first.position)
    text, title = clean(f"{first.cell}: {first.numbers}"), clean(first.text)
    wide, y = text_width(text, TAG_SIZE) + 14, tag_top(lane)
    left = max(min(max(x - wide / 2, LEFT), layout.width - wide - 4), 4)
    start = (lane.value_top if first.kind == "value" else lane.adjoint_top) + lane.track_height / 2
    scene.add("path", "parts", "pointer", path=f"M{x:.1f} {start:.1f}V{y:.1f}", title=title)
    scene.add("rect", "parts-tag", "tag", left, y, wide, TAG, radius=TAG / 2, title=title)
    scene.label(
        "parts-tag-label", "tagtext", left + wide / 2, y + TAG - 3.6, text, TAG_SIZE, anchor="middle", title=title
    )
