"""The verdict on Warp's gradients: rows by array, and what counts as the same number."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ...display import aligned, html_table
from ...kernels import ir
from ...kernels.ops.memory import ATOMIC_ADD, ATOMIC_SUB
from ...kernels.ops.scalar import ADD, MUL, SUB
from ...kernels.types import is_float
from .session import ForwardDifference, Session, WarpStep

Verdict = Literal["agrees", "wrong", "unverified", "not asked", "meant"]
_NUMBER = re.compile(r"\d+")
FIELDS = ("array", "verdict", "difference", "launch", "line", "cause", "remedy")
SLACK = 64  # units in the last place that a gradient may differ by without more ado
NOISY = 100  # times the measured effect of rounding
ROUNDED = 32  # times the effect of moving all that is summed by a rounding
SMALL = 1e-3  # of the largest number: what that effect may excuse, a greater difference is "unverified" then
SLIGHT = 5e-3  # of each number: a difference that is no wrong method for certain
CLOSE = 0.1  # of the largest number: a greater difference never agrees
COLUMNS = ("event", "line", "array", "number", "here", "Warp", "ulps", "why")
FUNCTION = 8  # what such a function costs at least, beside the 1 of a sum
MOST = 3  # operations that are named


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


# ---- events whose result is not Warp's to the last bit: where, by how much, and what rounds otherwise
# Two right programs differ where a function of the C library is rounded in its own way, where a compiler rounds a
# product and a sum at once, and where a sum is taken in another order. Which of these a kernel has stands in its text;
# what is farther apart than they explain is said to be so.


@dataclass(frozen=True, eq=False)
class Differing:
    """One event whose result differs: its largest difference, and the operations that may explain it.

    array       the name of the memory, `number` counts its floats.
    difference  what was found there.
    why         the operations that may round otherwise, with their lines.
    """

    step: WarpStep
    array: str
    difference: ForwardDifference
    why: str

    def texts(self) -> list[str]:
        """The fields as a table shows them."""
        d, where = self.difference, self.step.where
        line = "" if where is None else str(where)
        numbers = [str(d.number), f"{d.ours:.9g}", f"{d.theirs:.9g}", f"{d.ulps:.3g}"]
        return [repr(self.step), line, self.array, *numbers, self.why]


class Differences(list[Differing]):
    """Rows, which print as a table, the farthest first."""

    def __init__(self, session: Session):
        rows = [_row(session, step, step.difference) for step in session.steps if step.difference is not None]
        super().__init__(sorted(rows, key=lambda row: -row.difference.ulps))

    def __repr__(self) -> str:
        if not self:
            return "every result has the same bits as Warp's"
        return "\n".join(aligned([list(COLUMNS), *(row.texts() for row in self)], rule="-"))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        title = "Results that differ from Warp's"
        html = html_table(title, list(COLUMNS), [row.texts() for row in self]) if self else f"<p>{self!r}</p>"
        return {"text/plain": repr(self), "text/html": html}


def _row(session: Session, step: WarpStep, found: ForwardDifference) -> Differing:
    event = step.event
    known = [] if event is None else session.tape.arrays.values()
    arrays = [a for a in known if a.allocation is found.region.allocation]
    return Differing(step, session.tape.names.of(arrays[0]) if arrays else "", found, why(step, found))


def why(step: WarpStep, found: ForwardDifference) -> str:
    """The operations of a kernel that Warp may round otherwise, as a sentence; says so if the difference is farther."""
    command = None if step.event is None else step.event.command
    if command is None:
        return "no launch: its memory holds something else"
    body = command.plan.forward.function.body
    library = dict.fromkeys(f"`{s.row.name}`{_line(s)}" for s in ir.walk(body) if _is_of_the_library(s))
    sums = dict.fromkeys(f"`{s.row.name}`{_line(s)}" for s in ir.walk(body) if s.row in (ATOMIC_ADD, ATOMIC_SUB))
    products = {s.outs[0] for s in ir.walk(body) if s.row is MUL}
    sums_up = (s for s in ir.walk(body) if s.row in (ADD, SUB) and is_float(s.outs[0].type))
    fused = dict.fromkeys(_line(s) for s in sums_up if not products.isdisjoint(s.args))
    reasons = []
    if any(leaf.name.endswith(".starts") for leaf in command.program.leaves):
        reasons.append("a hash grid: which cells a query visits is decided in float64 here, which tells at their edges")
    if library:
        reasons.append(f"{_some(library)}: each C library rounds it in its own way")
    if sums:
        reasons.append(f"{_some(sums)}: the order of the sum")
    if fused:
        reasons.append(f"a product and a sum{_some(fused)}: a compiler may round them at once")
    if found.far:
        return "; ".join(["farther apart than rounding goes, if nothing cancels", *reasons])
    return "; ".join(reasons) or "no operation of the kernel rounds otherwise"


def _some(texts: dict[str, None]) -> str:
    named = list(texts)
    return ", ".join(named[:MOST]) + (f" and {len(named) - MOST} more" if len(named) > MOST else "")


def _line(s: ir.Stmt) -> str:
    return f" in line {s.where.line}" if s.where is not None else ""


def _is_of_the_library(s: ir.Stmt) -> bool:
    """True for a float result that NumPy, C and Warp may round differently (a library function)."""
    if not s.outs or s.regions or s.row.exact or s.row.cost < FUNCTION:
        return False
    return ir.is_value(s.outs[0].type) and is_float(s.outs[0].type)
