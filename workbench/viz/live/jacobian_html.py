"""Jacobian rows as HTML: the matrix so far as an image, one row as bars with what differences say, and as a table.

Colours are drawn over whatever ground the page has (the image has an alpha channel, the bars use the page's own
variables), so that one picture serves light and dark. Sign is told by colour and, in the bars, by direction.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..data.marks import COLOURS, LIGHT
from ..data.seed_runs import Difference, SeedRun, Seeds
from ..picture.svg import quoted

POSITIVE, NEGATIVE = (tuple(bytes.fromhex(COLOURS[name].light[1:])) for name in ("plus", "minus"))
UNKNOWN = (127, 127, 127, 40)
ILL = (*bytes.fromhex(LIGHT["sign"][1:]), 255)
TALL, WIDE = 96, 192  # pixels of the matrix
BARS = 64
ROWS = 200  # of a table


def image(width: int, height: int, rgba: np.ndarray) -> str:
    """Pixels of shape (height, width, 4) as a PNG in a data URI."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = np.concatenate([np.zeros((height, 1), np.uint8), rgba.reshape(height, width * 4)], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines.tobytes(), 6))
    return "data:image/png;base64," + base64.b64encode(data + chunk(b"IEND", b"")).decode("ascii")


def pixels(rows: dict[int, np.ndarray], count: int, width: int) -> tuple[np.ndarray, float]:
    """The matrix as pixels, each the largest of the numbers it stands for, and the largest of all."""
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
    finite = np.abs(best[np.isfinite(best)])
    most = float(finite.max(initial=0.0))
    made = np.zeros((tall, wide, 4), np.uint8)
    share = np.sqrt(np.clip(np.nan_to_num(np.abs(best)) / (most or 1.0), 0, 1))
    made[..., :3] = np.where(best[..., None] > 0, POSITIVE, NEGATIVE)
    made[..., 3] = np.where(best != 0, 40 + 215 * share, 0)
    made[~np.isfinite(best)] = ILL
    made[~known] = UNKNOWN
    return made, most


def matrix(seeds: Seeds, current: int | None = None) -> str:
    """The Jacobian so far."""
    count, width = seeds.count, seeds.width
    made, most = pixels(seeds.rows, count, width)
    tall, wide = made.shape[:2]
    high, broad = max(2, min(20, 280 // tall)) * tall, max(3, min(28, 620 // wide)) * wide
    alt = (
        f"Jacobian of {seeds.output} by {', '.join(seeds.inputs)}: {len(seeds.rows)} of {count} rows,"
        f" {width} columns, largest entry {most:.3g}"
    )
    columns = "".join(
        f'<span style="flex:{int(np.prod(v))} 0 0" title="{quoted(n)}">{quoted(n)}</span>' for n, v in _sizes(seeds)
    )
    mark = ""
    if current is not None:
        top, one = current * tall // count * high / tall, high / tall
        mark = f'<i class="wb-row" style="top:{top:.1f}px;height:{one:.1f}px"></i>'
    return (
        f'<div class="wb-matrix"><div class="wb-columns" style="width:{broad}px" aria-hidden="true">{columns}</div>'
        f'<div class="wb-frame" style="width:{broad}px;height:{high}px"><img alt="{quoted(alt)}"'
        f' src="{image(wide, tall, made)}" width="{broad}" height="{high}">{mark}</div>'
        f'<div class="wb-caption">{len(seeds.rows)} of {count} rows · largest {most:.3g} ·'
        f' <b class="wb-plus">■</b> positive <b class="wb-minus">■</b> negative'
        f' <b class="wb-unknown">■</b> not yet</div></div>'
    )


def _sizes(seeds: Seeds) -> list[tuple[str, tuple[int, ...]]]:
    return [(n, (*a.shape, *getattr(a.dtype, "shape", ()))) for n, a in seeds.inputs.items()]


def bars(seeds: Seeds, run: SeedRun, measured: np.ndarray | None, other: SeedRun | None = None) -> str:
    """One gradient as bars, another beside it in outline, differences as ticks."""
    row = run.row
    shown = _chosen(row, other.row if other is not None else None)
    series = [row[shown]] + ([other.row[shown]] if other is not None else [])
    series += [measured[shown]] if measured is not None else []
    finite = [abs(v) for s in series for v in s if math.isfinite(v)]
    most = max(finite, default=0.0) or 1.0
    step = min(40.0, 620 / max(len(shown), 1))
    wide, half = max(260.0, step * len(shown)) + 58, 62.0

    def y(value: float) -> float:
        return half + 10 - half * max(-1.0, min(1.0, value / most))

    parts = [_axis(wide, half, most)]
    for n, k in enumerate(shown):
        left = 54 + n * step
        parts.append(_bar(left, step, y, row[k], "wb-bar", f"{seeds.column_name(k)} = {row[k]:.6g}"))
        if other is not None:
            text = f"{other.label}: {seeds.column_name(k)} = {other.row[k]:.6g}"
            parts.append(_bar(left, step, y, other.row[k], "wb-other", text))
        if measured is not None and math.isfinite(measured[k]):
            at = y(float(measured[k]))
            parts.append(f'<path class="wb-tick" d="M{left + step * 0.02:.1f} {at:.1f}h{step * 0.96:.1f}"><title>'
                         f"differences: {measured[k]:.6g}</title></path>")  # fmt: skip
        if step >= 26:
            name = quoted(seeds.column_name(k))
            parts.append(f'<text class="wb-name" x="{left + step / 2:.1f}" y="{2 * half + 27:.1f}">{name}</text>')
    alt = quoted(f"gradient of {run.label}: {len(row)} components, largest {np.nanmax(np.abs(row), initial=0.0):.3g}")
    less = f'<div class="wb-caption">the {len(shown)} largest of {len(row)}</div>' if len(shown) < len(row) else ""
    return (
        f'<svg class="wb-bars" role="img" aria-label="{alt}" width="{wide:.0f}" height="{2 * half + 34:.0f}">'
        f"{''.join(parts)}</svg>{less}"
    )


def _chosen(row: np.ndarray, other: np.ndarray | None) -> list[int]:
    """The columns to draw: all, or those with the largest numbers."""
    if len(row) <= BARS:
        return list(range(len(row)))
    size = np.abs(row) if other is None else np.maximum(np.abs(row), np.abs(other))
    return sorted(int(k) for k in np.argsort(-np.nan_to_num(size, nan=np.inf), kind="stable")[:BARS])


def _axis(wide: float, half: float, most: float) -> str:
    lines = [(most, 10.0), (0.0, half + 10), (-most, 2 * half + 10)]
    texts = "".join(f'<text class="wb-scale" x="46" y="{y + 4:.1f}">{v:.3g}</text>' for v, y in lines)
    return f'<path class="wb-zero" d="M50 {half + 10:.1f}H{wide - 4:.1f}"/>{texts}'


def _bar(left: float, step: float, y: Callable[[float], float], value: float, cls: str, text: str) -> str:
    inset = 0.14 if cls == "wb-bar" else 0.04
    x, wide = left + step * inset, step * (1 - 2 * inset)
    if not math.isfinite(value):
        return f'<rect class="wb-ill" x="{x:.1f}" y="{y(0) - 6:.1f}" width="{wide:.1f}" height="12"><title>{quoted(text)}</title></rect>'  # noqa: E501
    if value == 0:
        return f'<path class="wb-none" d="M{x:.1f} {y(0):.1f}h{wide:.1f}"><title>{quoted(text)}</title></path>'
    top, end = sorted((y(0), y(value)))
    sign = "plus" if value > 0 else "minus"
    return (
        f'<rect class="{cls} {sign}" x="{x:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{max(end - top, 1):.1f}">'
        f"<title>{quoted(text)}</title></rect>"
    )


def rows_table(seeds: Seeds, run: SeedRun, measured: np.ndarray | None, difference: Difference | None = None) -> str:
    """The same numbers as a table."""
    row = run.row
    head = ["component", "gradient"]
    other = difference.one.row if difference is not None else None
    if other is not None:
        head += [f"pinned: {difference.one.label}", "difference"]  # type: ignore[union-attr]
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
    return _table(f"gradient of {run.label}", head, body) + more


def levels_table(difference: Difference) -> str:
    """How large the adjoints were at each step under two seeds, the most different first."""
    body = [[p.heading, p.names, f"{p.one:.4g}", f"{p.other:.4g}"] for p in difference.levels[:ROWS]]
    head = ["launch", "memory", f"pinned: {difference.one.label}", difference.other.label]
    return _table("largest adjoint before each launch", head, body)


def _error(got: float, want: float) -> str:
    scale = max(abs(got), abs(want))
    return "" if not math.isfinite(want) else f"{abs(got - want) / scale:.1e}" if scale else "0"


def _table(caption: str, head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    columns = "".join(f'<th scope="col">{quoted(h)}</th>' for h in head)
    lines = "".join("<tr>" + "".join(f"<td>{quoted(c)}</td>" for c in line) + "</tr>" for line in body)
    return (
        f'<table class="wb-table"><caption>{quoted(caption)}</caption><thead><tr>{columns}</tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )
