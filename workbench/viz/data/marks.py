"""The look of everything on the lanes: class, colour, height, thickness, sign and text. The drawer only adds x.

`columns` lays these marks down in tables, from which the static picture (`picture/tracks`) and the live view
(`live/*.js`) draw. y is measured from the top of a row (`rows`); `DRAWING`: the distances that both keep from events.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import eq, itemgetter
from typing import NamedTuple

from ...arrays.interval_index import Intervals
from .envelope import Envelope, Scale
from .lanes import Bar, Flows, Lane, VersionBlock, runs
from .trace import AdjointLevel, EventColumn, KeptRange, NameRange, TouchMark

MOMENT = 3.0  # between an event and the versions and adjoints beside it
SLOT = 9.0  # between two signs that would cover each other
THIN, THICK, ZERO = 2.5, 14.0, 5.0
TURNS = 24  # of a loop, from which the adjoint is drawn as a curve over them
CURVE = 1.6  # how much higher than thick the adjoint of many events is drawn, as a curve
ILL = 4.0  # the least thickness of what is black because some of it is NaN
FAINT, FULL = 0.88, 0.95  # opacities of bars: a faint one still stands out from the ground
STATES = ("value", "zero", "nan", "inf", "nan")  # by the numbers of `envelope`: the last one is NaN and Inf
ARROWS = {"value": "arrow", "zero": "arrow dead", "nan": "arrow ill", "inf": "arrow ill", "cut": "arrow cut"}
LOOKS = tuple(dict.fromkeys(ARROWS.values()))
CROWD = 3  # arrows of an event from which they are thinner
WEDGE = 280.0  # width of the scale in the legend


class Colour(NamedTuple):
    """The meaning of one colour in every picture and panel, with its shades on light and dark, and its shapes."""

    light: str
    dark: str
    says: str
    shapes: str


COLOURS = {  # after Okabe and Ito, darker or lighter where the ground asks for it; `shapes` say the same without one
    "value": Colour("#0072B2", "#3FA2E0", "values: versions, reads, writes, kept bytes", "band, circle, square, arrow"),
    "hot": Colour("#D55E00", "#E8762C", "adjoints", "rounded track, curved arrow"),
    "twin": Colour("#3D454E", "#5F6871", "the other of two: a run, or differences", "second track, outline, tick"),
    "plus": Colour("#007A59", "#009E73", "a number above 0", "upwards, to the right"),
    "minus": Colour("#CC79A7", "#E6A6C8", "a number below 0", "downwards, to the left, with a dash"),
    "bad": Colour("#C0189B", "#FF7AE4", "something is wrong: NaN, Inf, findings, errors", "cross on black, triangle"),
    "odd": Colour("#5A1EE0", "#8A54FF", "this of two where they differ, or what is wrong on purpose", "tag, stripes"),
    "cursor": Colour("#15191E", "#FFFFFF", "what is chosen: a moment, a cell, a row", "line, frame"),
}
_GROUND = {  # what has no meaning of its own: grounds, lines and texts
    "ground": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "muted": ("#59636e", "#9198a1"),
    "line": ("#d0d7de", "#30363d"),
    "box": ("#f6f8fa", "#161b22"),
    "blank": ("#ffffff", "#161b22"),
    "tint": ("#d8e5f7", "#17304f"),
    "hottext": ("#a04d00", "#f0a25c"),
    "now": ("#fff1e5", "#3a2412"),
    "note": ("#0550ae", "#58a6ff"),
    "shared": ("#ddf4ff", "#0c2d4d"),
    "stripe": ("#54aeff", "#2f81c7"),
    "ill": ("#000000", "#000000"),
    "sign": ("#ff7ae4", "#ff7ae4"),
    "oddtext": ("#5A1EE0", "#C4A5FF"),
    "absent": ("#838b95", "#7d8590"),
}
LIGHT = {name: pair[0] for name, pair in _GROUND.items()} | {name: one.light for name, one in COLOURS.items()}
DARK = {name: pair[1] for name, pair in _GROUND.items()} | {name: one.dark for name, one in COLOURS.items()}
THEMES = {"light": LIGHT, "dark": DARK}


def scale_marks(least: float, most: float) -> list[tuple[float, float]]:
    """The numbers beside a colour bar, as (place from 0 to 1, number): colours grow with the root of the size.

    `least`, `most`: of the finite numbers shown. A side without numbers is left out."""
    size = max(abs(least), abs(most))
    first = -1 if least < 0 else 0
    last = 1 if most > 0 or first == 0 else 0
    shades = [k / 2 for k in range(2 * first, 2 * last + 1)]
    return [((s - first) / (last - first), math.copysign(size * s * s, s) if s else 0.0) for s in shades]


class Sign(NamedTuple):
    """The sign of one way to access memory: its shape, how far right of the event, and what it adds to the radius."""

    shape: str
    dx: float
    more: float


SIGNS = {
    "read": Sign("circle", -7.0, 0.0),
    "write": Sign("square", 13.0, 0.0),
    "accumulate": Sign("diamond", 13.0, 1.0),
}
KEPT_DX, MEET_DX = -8.0, -10.0
ARROW_FROM, ARROW_TO, BEND_MOST, BEND, BEND_END = 6.0, -1.0, 40.0, 0.31, 0.57
CUT = 0.6  # of the way that an arrow goes where a gradient is stopped on purpose
ILL_DX, ILL_ROOM = 10.0, 34.0  # of the sign of NaN in a version: from its end, and the least width of the version
LABEL_FIRST, LABEL, LABEL_ROOM = 9.0, 21.0, 26.0  # indents of the text of a version, and what it leaves free
PASSES = ((-4.0, 6.0, ""), (4.0, 6.0, " twin"))  # strips of this pass and of another: from the middle, at most, look
DRAWING = {
    "moment": MOMENT,
    "slot": SLOT,
    "kept": KEPT_DX,
    "meet": MEET_DX,
    "arrow": [ARROW_FROM, ARROW_TO],
    "bend": [BEND_MOST, BEND, BEND_END],
    "cut": CUT,
    "label": [LABEL_FIRST, LABEL, LABEL_ROOM],
    "signs": [[how, *sign] for how, sign in SIGNS.items()],
    "thick": [THIN, THICK, ZERO, ILL],
    "curve": CURVE,
    "turns": TURNS,
    "wedge": WEDGE,
    "ill": [ILL_DX, ILL_ROOM],
    "passes": PASSES,
}

LEGEND = {sign: sign for sign in (*SIGNS, "kept")}
LEGEND |= {"zero": "exactly 0", "nan": "NaN", "inf": "Inf", "absent": "no adjoint", "cut": "cut"}
LEGEND |= {"scale": "|adjoint|", "band": "many: smallest to largest"}


OUTLINE = 3.0  # by which the outline of the other pass is thicker than its adjoint
TAG, TAG_SIZE = 14.0, 10.0  # height of the tag where two passes part, and of its text


class BlockMark(NamedTuple):
    """A version: its box on the value track, and True if that is high enough for its number."""

    y: float
    tall: float
    radius: float
    labelled: bool


class BarMark(NamedTuple):
    """An adjoint: `thick` around the middle `y`; `sign`: the radius of the sign of NaN and Inf."""

    y: float
    thick: float
    opacity: float = FULL
    sign: float = 0.0


class Meet(NamedTuple):
    """The number of contributions that meet in an adjoint; 0 where its text would be too low."""

    y: float
    radius: float
    met: int
    size: float


class Arrow(NamedTuple):
    """From the adjoint of what an event wrote, at y0, to that of what it read, at y1; `look` of `LOOKS`."""

    look: int
    y0: float
    y1: float
    size: float


# ---- versions and accesses


def block_mark(lane: Lane, lo: int, hi: int) -> BlockMark:
    y, tall = lane.value_span(lo, hi)
    tall = max(tall - 1, 1.5) if len(lane.cuts) > 2 else tall
    return BlockMark(y, tall, min(4, tall / 3), tall >= 11)


def touch_place(lane: Lane, touch: TouchMark | NameRange) -> tuple[float, float]:
    """(y, radius) of the sign of an access, before its shape adds to it."""
    y, tall = lane.value_span(touch.lo, touch.hi)
    return y + tall / 2, min(4.0, max(tall / 2 - 1.5, 2.0))


def kept_place(lane: Lane, kept: KeptRange | NameRange) -> tuple[float, float]:
    """(y, half height) of the sign of kept bytes."""
    y, tall = lane.value_span(kept.lo, kept.hi)
    return y + tall / 2, min(5.0, max(tall / 2 - 1.5, 2.5))


def slots_of(lanes: Mapping[str, Lane], event: EventColumn) -> tuple[dict[int, int], dict[int, int]]:
    """By touch and by kept bytes, the slots to the left that each sign of an event moves, so that none overlap."""
    taken: dict[str, list[tuple[float, float, float]]] = {}
    reads, kepts = {}, {}
    for n, touch in enumerate(event.touches):
        if touch.how == "read" and touch.allocation in lanes:
            middle, r = touch_place(lanes[touch.allocation], touch)
            reads[n] = _free(SIGNS["read"].dx, middle - r - 1, middle + r + 1, taken.setdefault(touch.allocation, []))
    for n, kept in enumerate(event.kept):
        if kept.allocation in lanes:
            middle, h = kept_place(lanes[kept.allocation], kept)
            kepts[n] = _free(KEPT_DX, middle - h, middle + h, taken.setdefault(kept.allocation, []))
    return reads, kepts


def _free(start: float, top: float, bottom: float, taken: list[tuple[float, float, float]]) -> int:
    """The first slot left of `start` where no earlier sign is in the way."""
    x, slot = start, 0
    while any(abs(x - tx) < SLOT and top < tb and ty < bottom for tx, ty, tb in taken):
        x, slot = x - SLOT, slot + 1
    taken.append((x, top, bottom))
    return slot


# ---- adjoints


def thickness(level: AdjointLevel, scale: Scale) -> float:
    """2.5 to 14: log10 of the largest adjoint on the scale of the tape."""
    if level.state != "value":
        return THICK if level.state in ("nan", "inf") else ZERO
    return thick(level.max_abs, scale)


def ill_thick(share: float, tall: float) -> float:
    """The thickness of the black where a share of the numbers is NaN or infinite."""
    return max(share * tall, min(ILL, tall))


def thick(size: float, scale: Scale) -> float:
    return THIN + (THICK - THIN) * scale.part(size)


def bar_mark(lane: Lane, bar: Bar, level: AdjointLevel, scale: Scale) -> BarMark:
    y, tall = lane.adjoint_span(bar.lo, bar.hi)
    state, full = level.state, thickness(level, scale)
    thin = min(full, max(tall - 2, 2.0))
    if state in ("nan", "inf"):
        thin = max(thin, min(6.0, tall))
        return BarMark(y + tall / 2, ill_thick(level.share, thin), FULL, min(4.0, thin / 2 - 1))
    faint = round(FAINT + (FULL - FAINT) * (full - THIN) / (THICK - THIN), 2) if state == "value" else FULL
    return BarMark(y + tall / 2, thin, faint)


class Strip(NamedTuple):
    """A part of a strip: stretches [first, last) that look the same."""

    look: str
    first: int
    last: int
    thick: float


def strip_marks(found: Envelope, scale: Scale) -> list[Strip]:
    """The strips for many events: per stretch a light band as thick as its largest adjoint, and in it a full one.

    The full one is as thick as its smallest, or the sign of exact zeros if any is; black where anything is NaN or
    infinite.
    """
    return _strips(zip(*(_strip(found.at(k), scale) for k in range(len(found.most))), strict=True))


def value_marks(found: Envelope, tall: float) -> list[Strip]:
    """The strips for values: plain versions, and over them black as thick as the share that is NaN or infinite."""
    each = [found.at(k) for k in range(len(found.most))]
    plain = [("", 0.0) if one.state == "absent" else ("block", tall) for one in each]
    ill = [(f"block {one.state}", ill_thick(float(one.share), tall)) if one.share else ("", 0.0) for one in each]
    return _strips((plain, ill))


def _strips(layers: Iterable[Sequence[tuple[str, float]]]) -> list[Strip]:
    """The strips of layers that have a look and a thickness at each stretch."""
    parts = (part for layer in layers for part in runs(layer, 0, len(layer), eq))
    return [Strip(look, first, last, wide) for first, last, (look, wide) in parts if look]


def _strip(one: Envelope, scale: Scale) -> tuple[tuple[str, float], tuple[str, float]]:
    state, nothing = one.state, ("", 0.0)
    if state in ("nan", "inf"):
        band = ("band", round(thick(float(one.most), scale), 2)) if one.value else nothing
        return band, (f"bar {state}", round(ill_thick(float(one.share), THICK), 2))
    if state == "absent":
        return nothing, nothing
    band = ("band", round(thick(float(one.most), scale), 2)) if state == "value" else nothing
    if one.zero:
        return band, ("bar zero", ZERO)
    return band, ("bar value", round(thick(float(one.least), scale), 2))


def odd(parts: bool, wrong: bool) -> str:
    """The class suffix of a mark that differs from the other pass, or of a wrong pass; "" for none."""
    return " parted wrong" if wrong and parts else " parted" if parts else ""


class LaneBlocks:
    """The blocks of one lane, indexed by bytes and events. Those of one range follow each other in time."""

    def __init__(self, blocks: Sequence[VersionBlock]):
        self.ranges: Intervals[tuple[int, int]] = Intervals()
        self.on: dict[tuple[int, int], list[tuple[int, VersionBlock]]] = {}
        for n, block in enumerate(blocks):
            ends = block.lo, block.hi
            self.ranges.enter(ends, *ends)
            self.on.setdefault(ends, []).append((n, block))

    def meeting(self, bar: Bar) -> Iterator[tuple[int, VersionBlock]]:
        """Yields (number, block) for blocks that share bytes and time with a bar."""
        for ends in self.ranges.meeting(bar.lo, bar.hi):
            found = self.on[ends]
            for k in range(bisect_right(found, bar.e0, key=lambda one: one[1].e1), len(found)):
                if found[k][1].e0 >= bar.e1:
                    break
                yield found[k]


def absent_marks(lane: Lane, bar: Bar, blocks: LaneBlocks) -> Iterator[tuple[VersionBlock, BarMark]]:
    """Yields (piece, mark) for values that were read but have no adjoint below.

    Below no value nothing is missing.
    """
    for _, block in sorted(blocks.meeting(bar), key=itemgetter(0)):
        e0, e1 = max(block.e0, bar.e0), min(block.e1, bar.e1)
        lo, hi = max(block.lo, bar.lo), min(block.hi, bar.hi)
        if e0 >= e1:
            continue
        y, tall = lane.adjoint_span(lo, hi)
        if tall >= 4 or lo == bar.lo:
            piece = VersionBlock(block.allocation, lo, hi, block.version, e0, e1)
            yield piece, BarMark(y + tall / 2, 3.0)


def meet_mark(lane: Lane, level: AdjointLevel) -> Meet:
    y, tall = lane.adjoint_span(level.lo, level.hi)
    met, roomy = level.contributions, tall >= 11.5
    return Meet(y + tall / 2, 8.0 if roomy else 3.0, met if roomy and met < 100 else 0, 10.0 if met < 10 else 7.5)


def arrows_of(
    lanes: Mapping[str, Lane], event: EventColumn, position: int, flows: Flows, scale: Scale
) -> Iterator[tuple[int, int, Arrow]]:
    """Yields (written touch, read touch, arrow) where an adjoint came in and something could receive it.

    Within one memory at one range the bar itself carries on, so there is no arrow. Of a cut: on the way there.
    """
    crowd = 0.65 if len(event.arrows or ()) > CROWD else 1.0
    for w, r in event.arrows or ():
        after, before = flows[position, w].after, flows[position, r].before
        cut = event.facts.cuts
        if not cut and (after is None or before is None or after.state == "zero"):
            continue
        written, read = event.touches[w], event.touches[r]
        source, target = lanes.get(written.allocation), lanes.get(read.allocation)
        if source is None or target is None:
            continue
        if written.allocation == read.allocation and (written.lo, written.hi) == (read.lo, read.hi):
            continue
        y0, y1 = adjoint_middle(source, written), adjoint_middle(target, read)
        if cut or before is None:
            yield w, r, Arrow(LOOKS.index(ARROWS["cut"]), y0, y1, 1.8)
            continue
        size = 1.4 + 0.14 * thickness(before, scale) if before.state == "value" else 1.8
        yield w, r, Arrow(LOOKS.index(ARROWS[before.state]), y0, y1, round(size * crowd, 2))


def adjoint_middle(lane: Lane, touch: TouchMark) -> float:
    y, tall = lane.adjoint_span(touch.lo, touch.hi)
    return y + tall / 2
