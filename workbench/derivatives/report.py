"""The result of a gradient check: rows that print as a table, in a terminal and in a notebook."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

import numpy as np

from ..display import aligned
from ..errors import GradientError, Where


@dataclass
class GradcheckRow:
    """One input of one launch (or of the whole), with the largest difference between adjoint and finite differences.

    `compared` derivatives were compared, `skipped` could not be measured. `worst`: index of the largest error, with the
    two values; None where only directions were compared.
    """

    launch: str
    where: Where | None
    input: str
    compared: int = 0
    skipped: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    largest: float = 0.0  # of the derivatives themselves
    worst: tuple[int, ...] | None = None
    adjoint: float = 0.0
    measured: float = 0.0
    wrong: bool = False
    not_finite: int = 0
    point: str = ""  # where the largest error is, in words
    cause: str = ""  # which func_grad it is
    fix: str = ""
    note: str = ""  # what its adjoint met where there is no derivative
    kink: str = ""  # the first element that is at a kink
    left: int = 0  # elements that no comparison of their own was made of, where a direction did not tell

    @property
    def verdict(self) -> str:
        """WRONG, or `not finite` (the adjoint gives inf or NaN somewhere and differences cannot say that it is wrong),
        or `not measurable` (nothing could be compared); else `ok`, with the number of elements not measured."""
        if self.wrong:
            return "WRONG"
        if self.not_finite:
            return f"{self.not_finite} not finite"
        if not self.compared:
            return "not measurable"
        return f"ok, {self.skipped} not measurable" if self.skipped else "ok"

    def add(self, got: float, want: float, wrong: bool, index: tuple[int, ...] | None, point: str = "") -> None:
        """Add one comparison. Values not finite on both sides are wrong."""
        error = abs(got - want)
        first = not self.compared
        self.compared += 1
        self.largest = max(self.largest, abs(got), abs(want))
        if wrong > self.wrong or (wrong == self.wrong and (first or error > self.max_abs)):
            self.worst, self.adjoint, self.measured, self.point = index, got, want, point
        self.wrong = self.wrong or wrong
        self.max_abs = max(self.max_abs, error) if np.isfinite(error) else float("inf")
        scale = max(abs(got), abs(want))
        self.max_rel = max(self.max_rel, error / scale if scale and np.isfinite(error) else float(wrong))


@dataclass
class Report:
    """The result of `gradcheck`. Prints as a table, also in a notebook.

    True if every row was compared and agrees: false where one is wrong, has a gradient that is not finite, or could not
    be measured at all. Single elements that could not be measured (at a kink, say) are counted in `skipped`.
    """

    rows: list[GradcheckRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sampled: str = ""  # what was left out

    HEAD = ("launch", "input", "compared", "skipped", "max abs", "max rel", "worst", "adjoint", "differences", "")

    def __bool__(self) -> bool:
        return bool(self.rows) and all(r.verdict.startswith("ok") for r in self.rows)

    @property
    def wrong(self) -> list[GradcheckRow]:
        """The rows that disagree."""
        return [r for r in self.rows if r.wrong]

    def _cells(self) -> list[tuple[str, ...]]:
        cells = []
        for r in self.rows:
            sizes = str(r.compared), str(r.skipped), f"{r.max_abs:.2e}", f"{r.max_rel:.2e}"
            worst = "" if r.worst is None else str(r.worst), f"{r.adjoint:.8g}", f"{r.measured:.8g}"
            cells.append((r.launch, r.input, *sizes, *worst, r.verdict))
        return cells

    @property
    def summary(self) -> str:
        """One line: how many gradients agree with differences, the worst of the others, and what was left out."""
        agree = sum(r.verdict.startswith("ok") for r in self.rows)
        text = f"{agree} of {len(self.rows)} gradients agree with differences"
        if self.wrong:
            worst = max(self.wrong, key=lambda r: r.max_rel)
            text += f"; {len(self.wrong)} WRONG, the worst in {worst.launch}, input {worst.input}"
        elif rest := len(self.rows) - agree:
            text += f"; {rest} could not be compared"
        return f"{text}{self.sampled}."

    def __str__(self) -> str:
        return "\n".join([self.summary, *aligned([self.HEAD, *self._cells()]), *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(h)}</th>" if h else "<td></td>" for h in self.HEAD)
        bad = ' style="color:#C0189B;font-weight:bold"'  # of what is wrong, as in all pictures: viz/data/marks.py
        body = "".join(
            f"<tr{bad if r.wrong else ''}>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells) + "</tr>"
            for r, cells in zip(self.rows, self._cells(), strict=True)
        )
        first, *notes = [f"<p>{html.escape(text)}</p>" for text in (self.summary, *self.notes)]
        return f"{first}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{''.join(notes)}"


def refuse_vacuous(report: Report) -> None:
    compared = sum(r.compared for r in report.rows)
    if compared and any(r.largest > 0 or r.wrong for r in report.rows):
        return
    if not report.rows:
        why = "No launch has a float that depends on a float: there is no gradient."
    elif not compared or any(r.skipped for r in report.rows):
        why = "No derivative but zeros could be measured: the inputs lie on kinks, or the differences are noise."
    else:
        why = "Every derivative is zero, by the adjoint and by differences: a broken adjoint would look the same."
    text = "gradcheck has checked nothing."
    instead = "wb.gradcheck(f, inputs=[x])   with the arrays to differentiate by among the inputs"
    raise GradientError(text, slug="gradcheck-vacuous", why="\n".join([why, str(report)]), instead=instead)
