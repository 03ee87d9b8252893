"""A matplotlib figure that a notebook shows by itself, whether or not `pyplot` has been set up there; Jacobians in it.

It is made without `pyplot`, whose global state no callback of a widget may touch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ...display import png


class Chart(Figure):
    """A `Figure` with a picture of its own."""

    def _repr_png_(self) -> bytes:
        return png(self)


def jacobian_chart(
    jacobians: dict[tuple[int, int], np.ndarray],
    labels: tuple[list[str], list[str]],
    colorbar: bool,
    apart: bool,
    title: str | None,
    colormap: str,
    log_scale: bool,
) -> Chart:
    """Images of (rows, columns, components of a column) by (input, output), a row for each output.

    Colours are symmetric about 0 and common to all, unless `apart`; on a logarithmic scale they show sizes.
    """
    flat = {k: _matrix(a, log_scale) for k, a in jacobians.items()}
    columns, rows = sorted({i for i, _ in flat}), sorted({j for _, j in flat})
    figure = Chart(figsize=(1.5 + 2.5 * len(columns), 1 + 2.5 * len(rows)), layout="constrained")
    axes: Any = figure.subplots(len(rows), len(columns), squeeze=False)
    common = _scale(list(flat.values()), log_scale)
    for r, j in enumerate(rows):
        for c, i in enumerate(columns):
            ax = axes[r][c]
            ax.set_xlabel(labels[0][i])
            ax.set_ylabel(labels[1][j])
            if (i, j) not in flat:
                ax.set_axis_off()
                continue
            norm = _scale([flat[i, j]], log_scale) if apart else common
            image = ax.imshow(flat[i, j], cmap=colormap, norm=norm, aspect="auto", interpolation="nearest")
            ax.set_facecolor("0.6")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            ax.yaxis.set_major_locator(MaxNLocator(integer=True))
            if colorbar and apart:
                figure.colorbar(image, ax=ax)
            elif colorbar and (r, c) == (0, 0):
                figure.colorbar(image, ax=axes)
    if title is not None:
        figure.suptitle(title)
    return figure


def _matrix(a: np.ndarray, log_scale: bool) -> np.ndarray:
    flat = a.reshape(len(a), -1).astype(np.float64)
    if log_scale:
        flat = np.abs(flat)
        flat[flat == 0] = np.nan
    return flat


def _scale(parts: list[np.ndarray], log_scale: bool) -> Normalize:
    values = np.concatenate([p[np.isfinite(p)] for p in parts])
    if log_scale:
        ends = (values.min(initial=1.0), values.max(initial=1.0) * (1 + 1e-12)) if len(values) else (1, 10)
        return LogNorm(*ends)
    most = float(np.abs(values).max(initial=0.0)) or 1.0
    return Normalize(-most, most)
