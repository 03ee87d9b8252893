"""The still picture of a live view in a saved notebook without a kernel, in an output of its own.

Of one output a page shows the widget, or "model not found" where its kernel is gone, and nothing else. So the picture
is an output before that of the widget, and its style sheet hides it as soon as the widget has any element.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

SIZE = 280_000  # bytes that a still picture adds to a notebook
MOST = 1 << 25  # bytes of answers that are remembered
STILL = "wb-still"
_CHILD, _WIDGET = ".jp-OutputArea-child", ">.jp-OutputArea-output:not([data-mime-type])>:not(script)"
_PICTURE = f"{_CHILD}:has(>*>.{STILL})"
STYLE = f"{_PICTURE}+{_CHILD}:not(:has({_WIDGET})),{_PICTURE}:has(+{_CHILD}{_WIDGET}){{display:none}}"


class Answers:
    """A bounded cache of answers to the page, which stay valid when the arrays have been reused since."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[Any, list[bytes]]] = {}
        self.size = 0
        self.seeds: Any = None

    def key(self, asked: Mapping[str, Any], seeds: object, exactly: bool = False) -> str:
        """The cache key of a question, `exactly` with its id or without.

        With other seeds than those of the last one, the cache is cleared.
        """
        if seeds is not self.seeds:
            self.known, self.size, self.seeds = {}, 0, seeds
        named = {name: value for name, value in asked.items() if exactly or name != "id"}
        return json.dumps(named, sort_keys=True, default=str)

    def put(self, key: str, found: tuple[Any, list[bytes]]) -> None:
        self.known[key] = found
        self.size += sum(map(len, found[1])) + 500
        while self.size > MOST:
            self.size -= sum(map(len, self.known.pop(next(iter(self.known)))[1])) + 500


class Widget(anywidget.AnyWidget):
    """comm_id  the name of its connection, by which the page finds its own model: see `late_messages.js`."""

    comm_id = traitlets.Unicode("").tag(sync=True)

    def __init__(self, **values: Any):
        own = uuid.uuid4().hex
        super().__init__(model_id=own, comm_id=own, **values)


class Saved:
    """A widget that is displayed with its still picture before it. `still()` gives that as text and HTML."""

    _shown: Any = None

    def still(self) -> tuple[str, str]:
        raise NotImplementedError

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self._shown = display(self._still_output(), raw=True, display_id=True)
        data, metadata = self._live_output() or ({}, {})
        display({**data, "text/plain": "", "text/html": ""}, metadata=metadata, raw=True)

    def _repr_mimebundle_(self, **choices: object) -> Any:
        """The widget, and in the same bundle its still picture, for whoever asks for one bundle."""
        found = self._live_output(**choices)
        if found is None:
            return None
        data, metadata = found
        text, html = self.still()
        return {**data, "text/plain": text, "text/html": html}, metadata

    def _live_output(self, **choices: object) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The data and metadata that the widget displays; None if it has none."""
        found = super()._repr_mimebundle_(**choices)  # type: ignore[misc]  # of the widget class that follows
        return found if found is None or isinstance(found, tuple) else (found, {})

    def _still_output(self) -> dict[str, str]:
        text, html = self.still()
        return {"text/plain": text, "text/html": f'<div class="{STILL}"><style>{STYLE}</style>{html}</div>'}

    def refresh_still(self) -> None:
        """Draw the still picture again where it is displayed."""
        if self._shown is not None:
            self._shown.update(self._still_output(), raw=True)
