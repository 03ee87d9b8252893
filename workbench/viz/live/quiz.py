"""`predict`: a question with a few answers, to be clicked before the cells below are read.

The answer is told by the kernel when it is asked for: a lesson gives it sealed, and what a notebook stores of it is a
folded picture. In JupyterLab, Notebook 7 and marimo the cells below are veiled until there is an answer, or a skip.

`exercise`: a kernel that the reader wrote, checked by values and gradient. What is right is data and no code: the
arrays after the author's own kernel, and its gradient, as text. Points are what nbgrader takes for such: a cell whose
metadata say `grade` earns the number that it ends with.
"""

from __future__ import annotations

import base64
import json
import sys
import zlib
from collections.abc import Sequence
from html import escape
from textwrap import wrap
from typing import Any

import numpy as np
import traitlets

from ...arrays.array import array, clone
from ...kernels.types import is_float
from ...launches.launch import launch
from ...tapes.tape import Tape
from ..data.marks import DARK, LIGHT
from ..picture.svg import data_uri
from .view import Saved, Widget, module, style

LINE, SIZE = 96, 13.0  # characters of a line of the folded answer; of its text
LOOSE = 1e-4  # of the largest number, by which exercises may be off


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


# ---- exercise


def solution(kernel: Any, dim: Any, inputs: Sequence[Any], outputs: Sequence[Any], hint: str = "") -> str:
    """The result and the gradient of the author's kernel with these arguments, and a hint for who errs: for `exercise`.

    It is text that nobody reads by accident.

    >>> x, y = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2)
    >>> @wb.kernel
    ... def twice(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = 2.0 * x[i]
    >>> right = wb.viz.solution(twice, 2, [x], [y], hint="Look at the factor.")
    """
    return packed([_found(kernel, dim, inputs, outputs), hint])


def exercise(
    kernel: Any, dim: Any, inputs: Sequence[Any], outputs: Sequence[Any], right: str, points: float = 1.0
) -> float:
    """Check a kernel, and say what kind of mistake it has without the right numbers. Arrays stay as they are.

    inputs   arrays and numbers; gradients are compared for arrays with `requires_grad`.
    outputs  arrays, as they are before the launch.
    right    `solution(...)` of the author's kernel and the same arguments.

    Returns the points: all for values and gradient, half for values alone. Raises ValueError for another `right`, and
    what a launch of the kernel raises.

    >>> x, y = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2)
    >>> @wb.kernel
    ... def square(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = x[i] * x[i]
    >>> wb.viz.exercise(square, 2, [x], [y], wb.viz.solution(square, 2, [x], [y]), points=2)
    Values and gradient are right.
    2
    """
    known, hint = opened(right, "wb.viz.solution(kernel, dim, inputs, outputs)")
    found = _found(kernel, dim, inputs, outputs)
    for name, want in known.items():  # outputs first
        if kind := _difference(np.array(found.get(name, ()), float), np.array(want, float)):
            by_gradient = name.startswith("the gradient")
            said = f"The values are right, {name} is {kind}." if by_gradient else f"{name.capitalize()} is {kind}."
            sys.stdout.write(f"{said} {hint}".strip() + "\n")
            return points / 2 if by_gradient else 0.0
    sys.stdout.write("Values and gradient are right.\n")
    return points


def _found(kernel: Any, dim: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> dict[str, list[float]]:
    """A kernel's outputs from copies of all arrays, and gradients of a sum that weighs no two elements alike."""
    given, made = ([clone(a) if isinstance(a, array) else a for a in arrays] for arrays in (inputs, outputs))
    with Tape() as tape:
        launch(kernel, dim, given, made)
    floats: list[Any] = [a for a in made if is_float(a.dtype)]
    tape.backward(grads={a: np.cos(1.0 + np.arange(a.numpy().size)).reshape(a.numpy().shape) for a in floats})
    found = {f"output {k}": a for k, a in enumerate(made)}
    asked = {k: a for k, a in enumerate(given) if isinstance(a, array) and a.requires_grad}
    found |= {f"the gradient by input {k}": a.grad for k, a in asked.items()}
    return {name: np.ravel(a.numpy()).tolist() for name, a in found.items()}


def _difference(got: np.ndarray, want: np.ndarray) -> str:
    """The kind of the difference, without the numbers; "" where there is none."""
    if got.size != want.size:
        return f"of {got.size} numbers, not {want.size}"
    wrong = np.flatnonzero(~(np.abs(got - want) <= LOOSE * np.abs(want).max(initial=1e-30)))
    if not len(wrong):
        return ""
    if not np.isfinite(got).all():
        return f"not finite at {np.flatnonzero(~np.isfinite(got))[0]}"
    factor = got @ want / max(want @ want, 1e-30)
    if factor and np.allclose(got, factor * want, atol=LOOSE * np.abs(got).max()):
        return "right but for its sign" if abs(factor + 1.0) < LOOSE else "right but for one factor throughout"
    return f"right but at {wrong.tolist()}" if 2 * len(wrong) <= len(want) else "wrong nearly everywhere"
