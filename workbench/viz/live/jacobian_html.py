"""Jacobian rows as HTML: the matrix so far as an image, one row as bars with what differences say, and as a table.

Colours are those of `marks`: an image for each theme, of which the page shows one; bars and texts use the page's own
variables. Sign is told by colour, in the matrix by a dash and in the bars by direction. No two labels overlap.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.image import imsave

from ...display import html_table
from ..data.film import largest
from ..data.marks import THEMES, scale_marks
from ..data.seed_runs import SeedRun, Seeds
from ..data.snapshot import full_shape
from ..data.text import fit, text_width
from ..picture.svg import data_uri, quoted

UNKNOWN = (127, 127, 127, 40)
DASH = 8  # pixels of a cell from which a number below 0 has a dash
LABEL, NAME = 11.0, 13.0  # size of the text of an axis, and the room that a line of it takes
LONGEST = 110.0  # room for the longest label
TALL, WIDE = 96, 192  # pixels of the matrix
BARS = 64
ROWS = 200  # of a table


def image(rgba: np.ndarray) -> str:
    """Pixels of shape (height, width, 4) as a PNG in a data URI."""
    data = io.BytesIO()
    imsave(data, rgba, format="png")
    return data_uri(data.getvalue())


def cells(rows: dict[int, np.ndarray], count: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(the matrix reduced to cells, each the number largest in size; mask of the known rows)."""
    tall, wide = min(count, TALL), min(width, WIDE)
    edges = np.unique(np.linspace(0, width, wide + 1).astype(int))
    best = np.zeros((tall, wide))
    known = np.zeros(tall, bool)
    for k, row in rows.items():
        at = k * tall // count
        known[at] = True
        sizes = np.where(np.isfinite(row), np.abs(row), np.inf)
        for column, (lo, hi) in enumerate(pairwise(edges)):
            value = row[lo + int(np.argmax(sizes[lo:hi]))]
            if not abs(value) <= abs(best[at, column]):
                best[at, column] = value
    return best, known


def pixels(best: np.ndarray, known: np.ndarray, cell: tuple[int, int], palette: dict[str, str]) -> np.ndarray:
    """The cells, each (down, across) pixels large, in a theme's colours: shape (rows, columns, 4), uint8."""
    most, (down, across) = largest(best), cell
    made = np.zeros((*best.shape, 4), np.uint8)
    share = np.sqrt(np.clip(np.nan_to_num(np.abs(best)) / (most or 1.0), 0, 1))
    made[..., :3] = np.where(best[..., None] > 0, _rgb(palette["plus"]), _rgb(palette["minus"]))
    made[..., 3] = np.where(best != 0, 255 * share, 0)
    made[~np.isfinite(best)] = (*_rgb(palette["ill"]), 255)
    made[~known] = UNKNOWN
    made = made.repeat(down, 0).repeat(across, 1)
    ill, below = ~np.isfinite(best) & known[:, None], (best < 0) & known[:, None]
    for row, column in np.argwhere(ill):
        k = np.arange(max(down, across))
        y, x = row * down + k * down // len(k), column * across + k * across // len(k)
        made[y, x] = made[y, (2 * column + 1) * across - 1 - x] = (*_rgb(palette["sign"]), 255)
    if min(down, across) >= DASH:
        for row, column in np.argwhere(below):
            x = column * across
            made[row * down + down // 2, x + 3 * across // 10 : x + 7 * across // 10] = (*_rgb(palette["cursor"]), 255)
    return made


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def matrix(seeds: Seeds, current: int | None = None) -> str:
    """The HTML of the Jacobian so far."""
    count, width = seeds.count, seeds.width
    best, known = cells(seeds.rows, count, width)
    (tall, wide), most = best.shape, largest(best)
    down, across = max(2, min(20, 280 // tall)), max(3, min(28, 620 // wide))
    high, broad = down * tall, across * wide
    alt = (
        f"Jacobian of {seeds.output} by {', '.join(seeds.inputs)}: {len(seeds.rows)} of {count} rows,"
        f" {width} columns, largest entry {most:.3g}"
    )
    columns = "".join(
        f'<span style="flex:{math.prod(full_shape(a))} 0 0" title="{quoted(n)}">{quoted(n)}</span>'
        for n, a in seeds.inputs.items()
    )
    mark = ""
    if current is not None:
        top, one = current * tall // count * high / tall, high / tall
        mark = f'<i class="wb-row" style="top:{top:.1f}px;height:{one:.1f}px"></i>'
    images = "".join(
        f'<img alt="{quoted(alt)}" class="wb-{theme}" width="{broad}" height="{high}"'
        f' src="{image(pixels(best, known, (down, across), palette))}">'
        for theme, palette in THEMES.items()
    )
    names, room = _row_labels(seeds, high)
    finite = best[np.isfinite(best)]
    signs = (-most if (finite < 0).any() else 0.0, most if (finite > 0).any() else 0.0)
    return (
        f'<div class="wb-matrix" style="padding-left:{room + 8:.0f}px">'
        f'<div class="wb-columns" style="width:{broad}px" aria-hidden="true">{columns}</div>'
        f'<div class="wb-frame" style="width:{broad}px;height:{high}px">{names}{images}{mark}</div>'
        f"{colour_bar(*signs) if most else ''}"
        f'<div class="wb-caption">{len(seeds.rows)} of {count} rows · <b class="wb-unknown">■</b> not yet</div></div>'
    )


def _row_labels(seeds: Seeds, high: int) -> tuple[str, float]:
    """(the row names beside the matrix, as many as fit; the width that they need)."""
    count = seeds.count
    every = max(math.ceil(count * NAME / high), 1)
    texts = {k: fit(seeds.name_of(k), LONGEST, LABEL, True) for k in range(0, count, every)}
    labels = "".join(
        f'<span class="wb-rowname" style="top:{(k + 0.5) * high / count - NAME / 2:.1f}px" aria-hidden="true"'
        f' title="{quoted(seeds.name_of(k))}">{quoted(text)}</span>'
        for k, text in texts.items()
    )
    return labels, max(text_width(text, LABEL, True) for text in texts.values())


def colour_bar(least: float, most: float) -> str:
    """The HTML legend of the colours between two numbers, as `colourBar` of heat.js."""
    marks = scale_marks(least, most)
    inks = ["var(--wb-minus)"] * (least < 0) + ["var(--wb-blank)"] + ["var(--wb-plus)"] * (most > 0 or least >= 0)
    ticks = "".join(f'<span class="wb-tickmark" style="left:{100 * at:g}%">{v:.2g}</span>' for at, v in marks)
    said = quoted("colours: " + ", ".join(f"{v:.2g}" for _, v in marks))
    return (
        f'<div class="wb-colours" role="img" aria-label="{said}"><span class="wb-ramp"'
        f' style="background:linear-gradient(to right,{",".join(inks)})"></span>{ticks}</div>'
    )


def bars(seeds: Seeds, run: SeedRun, measured: np.ndarray | None, other: SeedRun | None = None) -> str:
    """The HTML of one gradient as bars, another beside it in outline, differences as ticks."""
    row, theirs = run.row, other.row if other is not None else None
    shown = _chosen(row, theirs)
    most = largest(np.concatenate([one[shown] for one in (row, theirs, measured) if one is not None])) or 1.0
    step = min(40.0, 620 / max(len(shown), 1))
    wide, half = max(260.0, step * len(shown)) + 58, 62.0

    def y(value: float) -> float:
        return half + 10 - half * max(-1.0, min(1.0, value / most))

    ticks = (most, 10.0), (0.0, half + 10), (-most, 2 * half + 10)
    parts = [f'<path class="wb-zero" d="M50 {half + 10:.1f}H{wide - 4:.1f}"/>']
    parts += [f'<text class="wb-scale" x="46" y="{at + 4:.1f}">{v:.3g}</text>' for v, at in ticks]
    for n, k in enumerate(shown):
        left = 54 + n * step
        parts.append(_bar(left, step, y, row[k], "wb-bar", f"{seeds.column_name(k)} = {row[k]:.6g}"))
        if other is not None and theirs is not None:
            text = f"{other.label}: {seeds.column_name(k)} = {theirs[k]:.6g}"
            parts.append(_bar(left, step, y, theirs[k], "wb-other", text))
        if measured is not None and math.isfinite(measured[k]):
            line = f"M{left + step * 0.02:.1f} {y(float(measured[k])):.1f}h{step * 0.96:.1f}"
            text = f"differences: {measured[k]:.6g}"
            parts.append(f'<path class="wb-tick" d="{line}"><title>{text}</title></path>')
    names, room = _bar_names([seeds.column_name(k) for k in shown], step, 2 * half + 16)
    alt = quoted(f"gradient of {run.label}: {len(row)} components, largest {np.nanmax(np.abs(row), initial=0.0):.3g}")
    less = f'<div class="wb-caption">the {len(shown)} largest of {len(row)}</div>' if len(shown) < len(row) else ""
    return (
        f'<svg class="wb-bars" role="img" aria-label="{alt}" width="{wide:.0f}" height="{2 * half + 20 + room:.0f}">'
        f"{''.join(parts)}{names}</svg>{less}"
    )


def _bar_names(names: Sequence[str], step: float, y: float) -> tuple[str, float]:
    """(the names below the bars, as many as fit, upright where wide; the height that they need)."""
    wide = max(text_width(name, LABEL, True) for name in names)
    if wide + 6 <= step:
        return "".join(_bar_name(name, 54 + (n + 0.5) * step, y + 10) for n, name in enumerate(names)), NAME
    every, room = math.ceil(NAME / step), min(wide, LONGEST)
    texts = [fit(name, room, LABEL, True) for name in names]
    some = range(0, len(names), every)
    return "".join(_bar_name(texts[n], 54 + (n + 0.5) * step + 4, y, True) for n in some), room + 4


def _bar_name(name: str, x: float, y: float, turned: bool = False) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})" style="text-anchor:end"' if turned else ""
    return f'<text class="wb-name" x="{x:.1f}" y="{y:.1f}"{turn}>{quoted(name)}</text>'


def _chosen(row: np.ndarray, other: np.ndarray | None) -> list[int]:
    """The columns to draw: all, or those with the largest numbers."""
    if len(row) <= BARS:
        return list(range(len(row)))
    size = np.abs(row)
    if other is not None:
        np.maximum(size, np.abs(other), out=size)
    size[np.isnan(size)] = np.inf
    return sorted(np.argsort(-size, kind="stable")[:BARS].tolist())  # of those that are as large as the least the first


def _bar(left: float, step: float, y: Callable[[float], float], value: float, cls: str, text: str) -> str:
    inset = 0.14 if cls == "wb-bar" else 0.04
    x, wide = left + step * inset, step * (1 - 2 * inset)
    if value == 0:
        return f'<path class="wb-none" d="M{x:.1f} {y(0):.1f}h{wide:.1f}"><title>{quoted(text)}</title></path>'
    top, end, look = *sorted((y(0), y(value))), f"{cls} {'plus' if value > 0 else 'minus'}"
    if not math.isfinite(value):
        top, end, look = y(0) - 6, y(0) + 6, "wb-ill"
    box = f'x="{x:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{max(end - top, 1):.1f}"'
    return f'<rect class="{look}" {box}><title>{quoted(text)}</title></rect>'


def rows_table(seeds: Seeds, run: SeedRun, measured: np.ndarray | None, pinned: SeedRun | None = None) -> str:
    """The HTML table of the same numbers."""
    row = run.row
    head = ["component", "gradient"]
    other = None if pinned is None else pinned.row
    if pinned is not None:
        head += [f"pinned: {pinned.label}", "difference"]
    if measured is not None:
        head += ["differences", "relative error"]
    body = []
    for k in range(min(len(row), ROWS)):
        cells: list[Any] = [seeds.column_name(k), f"{row[k]:.9g}"]
        if other is not None:
            cells += [f"{other[k]:.9g}", f"{row[k] - other[k]:.3g}"]
        if measured is not None:
            cells += [f"{measured[k]:.9g}", _error(row[k], measured[k])]
        body.append(cells)
    more = f"<p>{len(row) - ROWS} more components</p>" if len(row) > ROWS else ""
    return html_table(f"gradient of {run.label}", head, body, heads=False) + more


def _error(got: float, want: float) -> str:
    scale = max(abs(got), abs(want))
    return "" if not math.isfinite(want) else f"{abs(got - want) / scale:.1e}" if scale else "0"
