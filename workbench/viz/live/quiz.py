"""`predict`: a question with a few answers, to be clicked before the cells below are read.

The answer is told by the kernel when it is asked for: a lesson gives it sealed, and what a notebook stores of it is a
folded picture. In JupyterLab, Notebook 7 and marimo the cells below are veiled until there is an answer, or a skip.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from html import escape
from textwrap import wrap

import traitlets

from ..data.marks import DARK, LIGHT
from ..picture.svg import data_uri
from .saved import Saved
from .view import module, style
from .widget import Widget

LINE, SIZE = 96, 13.0  # characters of a line of the folded answer; of its text


def seal(right: str, because: str = "") -> str:
    """The answer and its reason encoded as text that nobody reads by accident: the third argument of `predict`.

    >>> wb.viz.predict("1 + 1?", ["1", "2"], wb.viz.seal("2")).chosen is None
    True
    """
    return packed([right, because])


def packed(values: list) -> str:
    """Plain data as text that nobody reads by accident."""
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(values).encode("utf-8"), 9)).decode("ascii")


def opened(sealed: str, instead: str) -> list:
    """Two values that were `packed`. Raises ValueError, which says what should have been given instead."""
    try:
        right, beside = json.loads(zlib.decompress(base64.urlsafe_b64decode(sealed)))
        return [right, beside]
    except (ValueError, TypeError, zlib.error):  # of characters that are no base64: a ValueError
        raise ValueError(f"what is right is given as {instead}; not {sealed!r}") from None


class Prediction(Saved, Widget):
    """The question as buttons; `chosen`: the given answer, None until then; `skipped`: True if there will be none.

    told   what the page is told once there is an answer, or the question is skipped: `right`, `because`.
    """

    _esm = module("elements.js", "late_messages.js", "quiz.js")
    _css = style("quiz.css")
    question = traitlets.Unicode().tag(sync=True)
    answers = traitlets.List(traitlets.Unicode()).tag(sync=True)
    chosen = traitlets.Unicode(None, allow_none=True).tag(sync=True)
    skipped = traitlets.Bool(False).tag(sync=True)
    told = traitlets.Dict().tag(sync=True)

    def __init__(self, question: str, answers: Sequence[str], right: str, because: str = ""):
        if right not in answers:
            right, because = opened(right, "one of the answers, or wb.viz.seal(right, because)")
        if right not in answers:
            raise ValueError(f"the right answer is not among {list(answers)}")
        self._answer = {"right": right, "because": because}
        super().__init__(question=question, answers=list(answers))
        self.observe(lambda _: self.set_trait("told", self._answer), ["chosen", "skipped"])

    def choose(self, answer: str) -> None:
        """Give an answer. Raises ValueError if it is none of this question's."""
        if answer not in self.answers:
            raise ValueError(f"{answer!r} is none of {list(self.answers)}")
        self.chosen = answer

    def skip(self) -> None:
        """Skip the question: the right answer is shown."""
        self.skipped = True

    def __repr__(self) -> str:
        return f"{self.question} ({' / '.join(self.answers)})"

    def still(self) -> tuple[str, str]:
        """A picture of the question, its answer folded away from the text of a notebook."""
        items = "".join(f"<li>{escape(a)}</li>" for a in self.answers)
        picture = f'<img alt="the answer, as a picture" src="{data_uri(_picture(**self._answer))}">'
        folded = f"<details><summary>The answer</summary>{picture}</details>"
        return repr(self), f"<p><b>{escape(self.question)}</b></p><ul>{items}</ul>{folded}"


def _picture(right: str, because: str) -> str:
    """The answer as SVG text."""
    lines = [f"{right}.", *wrap(because, LINE)]
    texts = "".join(f'<text x="8" y="{20 + 20 * n}">{escape(line)}</text>' for n, line in enumerate(lines))
    look = f"text{{font:{SIZE}px system-ui,sans-serif;fill:{LIGHT['ink']}}}"
    dark = f"@media (prefers-color-scheme:dark){{text{{fill:{DARK['ink']}}}}}"
    wide, tall = 8 + 7.4 * max(map(len, lines)), 10 + 20 * len(lines)
    size = f'width="{wide:.0f}" height="{tall}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{look}{dark}</style>{texts}</svg>'


def predict(question: str, answers: Sequence[str], right: str, because: str = "") -> Prediction:
    """Ask a question. The cells below it are veiled until there is an answer, where the page has cells.

    right   one of `answers`, or `seal(right, because)`, which does not give it away in the cell that asks.
    because is said once there is an answer. Raises ValueError if the right answer is not among the answers.
    """
    return Prediction(question, answers, right, because)
