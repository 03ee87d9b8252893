"""The ledger as it is shown: its rows, as a table, as bars and as plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.grouping import grouped
from ...display import aligned, html_table
from ...errors import Where
from ..data.marks import LIGHT
from ..data.text import clean, json_number, plain

LISTED, LAST = 200, 20  # rows of a table, of these the last ones
DRAWN = 60  # bars of a picture


@dataclass(frozen=True)
class Contribution:
    """One signed contribution.

    position: of the event in `tape.events`, -1 for a seed. thread: None where the row is of no single thread.
    name: of the memory it came through, as the user calls it. count: how many contributions the row joins.
    """

    position: int
    kind: str
    heading: str
    thread: tuple[int, ...] | None
    where: Where | None
    name: str
    value: float
    running: float = 0.0
    count: int = 1


@dataclass(frozen=True)
class Ledger:
    """The contributions to one gradient cell. `rows` are in reverse pass order: later launches first, threads in order.

    `total` is their sum in float64, `published` the number that the reverse pass came to, `rounding` the difference.
    """

    array: str
    index: tuple[Any, ...]
    rows: tuple[Contribution, ...]
    total: float
    published: float | None
    rounding: float

    @property
    def title(self) -> str:
        inside = ", ".join(str(i) for i in self.index)
        return f"d {clean(self.array)}[{inside}]" if self.index else f"d {clean(self.array)}"

    def to_json(self) -> dict[str, Any]:
        """Plain data; NaN and infinities as text. Of very many rows the first, the last and the largest, by place.

        sums    of the rows of each launch and line: of all, of those above 0 and of those below.
        """
        many = len(self.rows)
        largest = sorted(range(many), key=lambda k: -abs(self.rows[k].value))[:LISTED]
        shown = sorted({*range(min(many, LISTED)), *range(max(many - LAST, 0), many), *largest})
        rows = [{**plain(self.rows[k]), "place": k} for k in shown]
        return {**plain(replace(self, rows=())), "rows": rows, "sums": self._sums(), "count": many}

    def _sums(self) -> list[dict[str, Any]]:
        made = []
        for some in grouped(((row.position, row.heading, row.where), row) for row in self.rows).values():
            values = [row.value for row in some]
            sums = {"value": values, "plus": [v for v in values if v > 0], "minus": [v for v in values if v < 0]}
            both = {name: json_number(sum(part)) for name, part in sums.items()}
            made.append({**plain(some[0]), "count": sum(row.count for row in some), **both})
        return made

    def table(self) -> list[tuple[str, ...]]:
        """The rows as texts, below a head: who, thread, through, value, running sum, line."""
        out = [("launch", "thread", "through", "value", "sum", "line")]
        for row in self.listed():
            thread = "" if row.thread is None else ", ".join(map(str, row.thread))
            thread = thread or (f"{row.count} contributions" if row.count > 1 else "")
            numbers = f"{row.value:+.6g}", f"{row.running:.6g}"
            line = "" if row.where is None else f"{row.where.line}: {clean(row.where.text.strip())}"
            out.append((clean(row.heading), thread, clean(row.name), *numbers, line))
        out.append(("rounding", "", "", f"{self.rounding:+.3g}", f"{self.published:.6g}", ""))
        return out

    def listed(self) -> list[Contribution]:
        """The rows to display: all, or the first and the last with one for those between."""
        rows = list(self.rows)
        if len(rows) <= LISTED:
            return rows
        first, between, last = rows[: LISTED - LAST], rows[LISTED - LAST : -LAST], rows[-LAST:]
        value = float(np.sum([row.value for row in between]))
        count = sum(row.count for row in between)
        text = f"… {len(between)} rows"
        return [*first, Contribution(-2, "rows", text, None, None, "", value, between[-1].running, count), *last]

    def __repr__(self) -> str:
        rows = self.listed()
        span = max((abs(row.value) for row in rows if math.isfinite(row.value)), default=0.0)
        bars = ["", *(bar_of(row.value, span) for row in rows), ""]
        lines = [(*cells[:5], bar, cells[5]) for cells, bar in zip(self.table(), bars, strict=True)]
        title = f"{self.title} = {self.published:.8g}, {len(self.rows)} rows"
        return "\n".join([title, *aligned(lines, right=(3, 4))])

    def _repr_html_(self) -> str:
        head, *rows = self.table()
        top = ";vertical-align:top"
        return html_table(f"{self.title} = {self.published:.8g}", head, rows, style=top, head_style=top, heads=False)

    def bars(self, most: int = DRAWN) -> list[tuple[str, float]]:
        """(label, value) for a picture: the largest rows in their order, the others as one."""
        rows = list(self.rows)
        largest = sorted(range(len(rows)), key=lambda k: -abs(rows[k].value))[: most - 1]
        kept = set(largest if len(rows) > most else range(len(rows)))
        out = [(label_of(row), row.value) for k, row in enumerate(rows) if k in kept]
        rest = [row.value for k, row in enumerate(rows) if k not in kept]
        return [*out, (f"{len(rest)} smaller rows", float(sum(rest)))] if rest else out

    def plot(self) -> Any:
        """A waterfall of the contributions, as a matplotlib Figure: each bar starts where the one before it ended."""
        from ..picture.chart import Chart

        bars = [*self.bars(), ("rounding", self.rounding)]
        figure = Chart(figsize=(7.0, 1.2 + 0.24 * (len(bars) + 1)), layout="constrained")
        axes, start = figure.add_subplot(), 0.0
        for k, (_, value) in enumerate(bars):
            value = value if math.isfinite(value) else 0.0
            colour, hatch = (LIGHT["plus"], "") if value >= 0 else (LIGHT["minus"], "//")
            axes.barh(k, value, left=start, height=0.7, color=colour, hatch=hatch)
            axes.plot([start + value] * 2, [k - 0.35, k + 1.35], color=LIGHT["muted"], linewidth=0.8)
            start += value
        axes.barh(len(bars), start, height=0.7, color=LIGHT["hot"])
        labels = [f"{text}  {value:+.4g}".replace("$", r"\$") for text, value in bars]
        axes.set_yticks(range(len(bars) + 1), [*labels, f"{self.title} = {self.published:.6g}".replace("$", r"\$")])
        axes.axvline(0.0, color=LIGHT["ink"], linewidth=0.8)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.set_xlabel("running sum of the contributions, in the order of the reverse pass", fontsize=8)
        return figure


def label_of(row: Contribution) -> str:
    thread = "" if row.thread is None else f" thread {', '.join(map(str, row.thread))}"
    joined = f" ({row.count})" if row.count > 1 else ""
    return clean(f"{row.heading}{thread}{joined}" + (f"  {row.name}" if row.name else ""))


def bar_of(value: float, span: float) -> str:
    """A text bar of thirteen columns, zero in the middle."""
    if not math.isfinite(value) or not span:
        return f"{value!s:^13}"[:13]
    n = round(6 * abs(value) / span)
    return f"{'█' * n if value < 0 else '':>6}│{'█' * n if value > 0 else '':<6}"
