"""The verdict on Warp's gradients: rows by array, and what counts as the same number."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ...display import aligned, html_table
from .events import WarpStep

Verdict = Literal["agrees", "wrong", "unverified", "not asked", "meant"]
_NUMBER = re.compile(r"\d+")
FIELDS = ("array", "verdict", "difference", "launch", "line", "cause", "remedy")
SLACK = 64  # units in the last place that a gradient may differ by without more ado
NOISY = 100  # times the measured effect of rounding
ROUNDED = 32  # times the effect of moving all that is summed by a rounding
SMALL = 1e-3  # of the largest number: what that effect may excuse, a greater difference is "unverified" then
SLIGHT = 5e-3  # of each number: a difference that is no wrong method for certain
CLOSE = 0.1  # of the largest number: a greater difference never agrees


@dataclass(eq=False)
class VerdictRow:
    """The verdict on the gradient of one array in one backward of Warp's.

    array       the program's name for it.
    difference  the largest, as a share of the largest number in the gradient; NaN where nothing was compared.
    step        where Warp's buffers first leave the exact ones, going back; None where that is not known.
    backward    the number of the `wp.Tape.backward`; -1 of a launch with adjoint=True, which is `step` then.
    subject     the array of Warp, its twin and its gradients.
    theirs      Warp's gradient; `exact`: what it should be (with what it held before, where it adds up).
    """

    array: str
    verdict: Verdict
    difference: float = float("nan")
    step: WarpStep | None = None
    cause: str = ""
    remedy: str = ""
    backward: int = 0
    theirs: np.ndarray = field(default_factory=lambda: np.zeros(0))
    exact: np.ndarray | None = None
    subject: Any = None

    def becomes(self, verdict: Verdict, cause: str, remedy: str = "", step: WarpStep | None = None) -> bool:
        """Set the verdict and what is said of it. Returns True."""
        self.verdict, self.cause, self.remedy, self.step = verdict, cause, remedy, step
        return True

    @property
    def launch(self) -> str:
        """`#3 step`: the launch at which it first goes wrong."""
        return "" if self.step is None else repr(self.step)

    @property
    def line(self) -> str:
        """The file and line of that launch."""
        return "" if self.step is None or self.step.where is None else str(self.step.where)

    def texts(self) -> list[str]:
        """The fields as a table shows them."""
        difference = "" if np.isnan(self.difference) else f"{self.difference:.2g}"
        return [self.array, self.verdict, difference, self.launch, self.line, self.cause, self.remedy]


class VerdictTable(list[VerdictRow]):
    """Rows, which print as a table. Iterate over them, or ask `wrong`, `agrees`."""

    rows = property(list)

    def __getitem__(self, name: Any) -> Any:
        """The row with this number, or the last one of the array of this name."""
        if not isinstance(name, str):
            return super().__getitem__(name)
        found = [row for row in self if row.array == name]
        if not found:
            raise KeyError(f"{name!r}: there are rows for {', '.join(dict.fromkeys(r.array for r in self))}")
        return found[-1]

    @property
    def wrong(self) -> list[VerdictRow]:
        return [row for row in self if row.verdict == "wrong"]

    @property
    def agrees(self) -> bool:
        """True if no gradient is wrong or unverified."""
        return all(row.verdict in ("agrees", "not asked", "meant") for row in self)

    def _lines(self, rows: list[VerdictRow]) -> list[list[str]]:
        several = len({row.backward for row in self}) > 1
        head = [*(["backward"] if several else []), *FIELDS]
        return [head, *([*([_numbers(same)] if several else []), *same[0].texts()] for same in _alike(rows))]

    def __repr__(self) -> str:
        if not self:
            return "no backward of Warp's was seen: there is no gradient to compare"
        return "\n".join(aligned(self._lines(self), rule="-"))

    def html(self, asked: bool = False) -> str:
        """The table for notebooks and pages. asked=True: without the rows that are "not asked", which are counted."""
        if not self:
            return f"<p>{self!r}</p>"
        shown = [row for row in self if not asked or row.verdict != "not asked"]
        head, *rows = self._lines(shown)
        left = len(self) - len(shown)
        more = f"{left} more: launches overwrite them, so that their gradients have no one meaning"
        more = f"<p>{more}</p>" if left else ""
        return html_table("Gradients of Warp beside the exact ones", head, rows) + more

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self.html()}


def _alike(rows: list[VerdictRow]) -> list[list[VerdictRow]]:
    """Rows that say the same of one array in one backward after the other, as in the turns of a loop."""
    found: dict[tuple, list[VerdictRow]] = {}
    for row in rows:
        step = "" if row.step is None else row.step.label
        said = (row.array, row.verdict, step, row.line, _NUMBER.sub("#", row.cause), _NUMBER.sub("#", row.remedy))
        found.setdefault(said if row.backward >= 0 else (id(row),), []).append(row)
    return list(found.values())


def _numbers(rows: list[VerdictRow]) -> str:
    """The numbers of the backwards of some rows: `3`, or `0 to 59 (60)`."""
    first, last = rows[0].backward, rows[-1].backward
    return (str(first) if first >= 0 else "") if len(rows) == 1 else f"{first} to {last} ({len(rows)})"


@dataclass(frozen=True)
class Accuracy:
    """The distance of a gradient from the exact one. `fine`: rounding explains it; `close`: it may."""

    fine: bool
    close: bool
    difference: float


def accuracy(theirs: np.ndarray, exact: np.ndarray, noise: object, times: float = NOISY) -> Accuracy:
    """Compare two gradients number by number.

    `noise`: how far rounding has been seen to move each number, or None; `times` as much is allowed.
    """
    a, b = theirs.astype(np.float64), exact.reshape(theirs.shape).astype(np.float64)
    kind = theirs.dtype if theirs.dtype.kind == "f" else np.dtype(np.float32)
    eps = float(np.finfo(kind).eps)
    alike = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(all="ignore"):
        gap = np.where(alike, 0.0, np.where(finite, np.abs(a - b), np.inf))
    largest = lambda v: float(np.max(np.abs(v[np.isfinite(v)]), initial=0.0))  # noqa: E731
    size = largest(b) or largest(a)
    allowed = SLACK * eps * np.where(np.isfinite(b), np.abs(b), 0.0)
    if noise is not None:
        allowed = np.maximum(allowed, times * np.asarray(noise).reshape(b.shape))
    worst = float(np.max(gap, initial=0.0))
    share = worst / size if size else (0.0 if not worst else np.inf)
    return Accuracy(bool(np.all(gap <= allowed)), share < CLOSE, share)


def is_near(theirs: np.ndarray, exact: np.ndarray) -> bool:
    """True if two gradients surely agree: a fast test before `accuracy`, with half of its slack and no infinities."""
    with np.errstate(all="ignore"):
        allowed = SLACK / 2 * float(np.finfo(theirs.dtype if theirs.dtype.kind == "f" else np.float32).eps)
        return bool((np.abs(theirs - exact) <= allowed * np.abs(exact)).all())
