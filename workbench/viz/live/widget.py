"""The base class of our widgets: an anywidget whose page hears the kernel even if it loads late."""

from __future__ import annotations

import uuid
from typing import Any

import anywidget
import traitlets


class Widget(anywidget.AnyWidget):
    """comm_id  the name of its connection, by which the page finds its own model: see `late_messages.js`."""

    comm_id = traitlets.Unicode("").tag(sync=True)

    def __init__(self, **values: Any):
        own = uuid.uuid4().hex
        super().__init__(model_id=own, comm_id=own, **values)
