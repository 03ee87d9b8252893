"""Time of a step against elements, a panel for each workload. Greys and hues of middle lightness on nothing: the
picture reads on white and on black paper."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from .report import Row

INK = "#7d7d7d"
# By system, as (colour, line, marker): one hue a family; the first words of a name find its family.
STYLES = {
    "workbench graph": ("#e0452f", "-", "o"),
    "workbench": ("#e0452f", "--", "o"),
    "Warp graph": ("#3f82d6", "-", "s"),
    "Warp": ("#3f82d6", "--", "s"),
    "JAX": ("#a87400", "-", "^"),
    "torch": ("#a05fc8", "-", "v"),
    "Taichi": ("#15908a", "-", "D"),
    "Dr.Jit": ("#c8508c", "-", "P"),
    "c fast": (INK, "--", "x"),
    "c 1 thread": (INK, ":", "x"),
    "c fused": (INK, "-.", "x"),
    "c": (INK, "-", "x"),
}
OTHER = ("#2f9150", "-", "*")


def style(system: str) -> dict[str, Any]:
    colour, line, marker = STYLES.get(system, OTHER)
    width = 2.4 if system in ("c", "workbench", "workbench graph") else 1.3
    inside = colour if line == "-" else "none"
    return dict(color=colour, linestyle=line, marker=marker, linewidth=width, markersize=5.5, markerfacecolor=inside)


def draw(rows: Sequence[Row], path: Path) -> None:
    names = list(dict.fromkeys(row.workload for row in rows))
    figure = Figure(figsize=(5.2 * min(2, len(names)) + 1.8, 3.6 * ((len(names) + 1) // 2)), layout="constrained")
    panels = figure.subplots((len(names) + 1) // 2, min(2, len(names)), squeeze=False).ravel()
    for panel, name in zip(panels, names):
        fill(panel, name, [row for row in rows if row.workload == name])
    for panel in panels[len(names) :]:
        panel.remove()
    lines = {line.get_label(): line for panel in panels[: len(names)] for line in panel.get_lines()}
    figure.legend(
        lines.values(), lines.keys(), loc="outside right center", frameon=False, labelcolor=INK, handlelength=4
    )
    figure.savefig(path, dpi=110, transparent=True)


def fill(panel: Any, name: str, rows: list[Row]) -> None:
    for system in dict.fromkeys(system for row in rows for system in row.both):
        points = [(r.elements, 1e3 * statistics.median(r.both[system]) / r.steps) for r in rows if system in r.both]
        panel.plot(*zip(*points), label=system, **style(system))
    panel.set(xscale="log", yscale="log", xlabel="elements", ylabel="forward and backward, ms a step")
    panel.minorticks_off()
    sizes = sorted({row.elements for row in rows})
    panel.set_xticks(sizes, [f"{size:,}" if size < 1e6 else f"{size / 1e6:.3g} M" for size in sizes])
    panel.set_title(name, color=INK, loc="left", fontweight="bold")
    panel.xaxis.label.set_color(INK)
    panel.yaxis.label.set_color(INK)
    panel.tick_params(which="both", colors=INK)
    panel.spines[:].set_color(INK)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(color=INK, alpha=0.25, linewidth=0.6)
