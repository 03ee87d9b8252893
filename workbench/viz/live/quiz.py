"""`predict`: a question with a few answers, to be clicked before the cell below is run.

Where no widget can live (GitHub, a saved notebook, an untrusted one) the question stands there as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import ipywidgets


class Prediction(ipywidgets.VBox):
    """The question as buttons; `chosen` is the answer given, None until then."""

    def __init__(self, question: str, answers: Sequence[str], right: str, because: str = ""):
        if right not in answers:
            raise ValueError(f"the right answer {right!r} is not among {list(answers)}")
        self.question, self.answers, self.right, self.because = question, tuple(answers), right, because
        self.chosen: str | None = None
        self._said = ipywidgets.HTML()
        self._buttons = [ipywidgets.Button(description=a, layout={"width": "auto"}) for a in answers]
        for button in self._buttons:
            button.on_click(lambda clicked: self.choose(clicked.description))
        super().__init__([ipywidgets.HTML(f"<b>{escape(question)}</b>"), ipywidgets.HBox(self._buttons), self._said])

    def choose(self, answer: str) -> None:
        """Answer. The buttons show which one it was, and what is right."""
        self.chosen = answer
        for button in self._buttons:
            button.button_style = (
                "success" if button.description == self.right else "danger" if button.description == answer else ""
            )
        word = "Right." if answer == self.right else f"No: {self.right}."
        self._said.value = f'<span role="status">{escape(f"{word} {self.because}".strip())}</span>'

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle: Any = super()._repr_mimebundle_(**options)
        items = "".join(f"<li>{escape(a)}</li>" for a in self.answers)
        page = f"<p><b>{escape(self.question)}</b></p><ul>{items}</ul><p>The cells below tell.</p>"
        (bundle[0] if isinstance(bundle, tuple) else bundle)["text/html"] = page
        return bundle


def predict(question: str, answers: Sequence[str], right: str, because: str = "") -> Prediction:
    """Ask a question. `right` is one of `answers`; `because` is said once there is an answer. Raises ValueError."""
    return Prediction(question, answers, right, because)
