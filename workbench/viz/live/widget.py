"""What every widget of ours is: one of anywidget's whose page hears the kernel also where it was loaded late."""

from __future__ import annotations

import uuid
from typing import Any

import anywidget
import traitlets


class Widget(anywidget.AnyWidget):
    """comm_id  the name of its connection, by which the page finds its own model: see `late.js`."""

    comm_id = traitlets.Unicode("").tag(sync=True)

    def __init__(self, **values: Any):
        own = uuid.uuid4().hex
        super().__init__(model_id=own, comm_id=own, **values)
