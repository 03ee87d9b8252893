"""A matplotlib figure that a notebook shows by itself, whether or not `pyplot` has been set up there.

It is made without `pyplot`, whose global state no callback of a widget may touch.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from ...display import png


class Chart(Figure):
    """A `Figure` with a picture of its own."""

    def _repr_png_(self) -> bytes:
        return png(self)
