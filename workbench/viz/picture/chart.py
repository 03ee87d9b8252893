"""A matplotlib figure that a notebook shows by itself, whether or not `pyplot` has been set up there.

It is made without `pyplot`, whose global state no callback of a widget may touch.
"""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class Chart(Figure):
    """A `Figure` with a picture of its own."""

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        self.savefig(data, format="png", dpi=120)
        return data.getvalue()
