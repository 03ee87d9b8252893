"""Events whose result is not Warp's to the last bit: where, by how much, and what rounds otherwise.

Two right programs differ where a function of the C library is rounded in its own way, where a compiler rounds a product
and a sum at once, and where a sum is taken in another order. Which of these a kernel has stands in its text; what is
farther apart than they explain is said to be so.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...display import aligned, html_table
from ...kernels import ir
from ...kernels.ops.memory import ATOMIC_ADD, ATOMIC_SUB
from ...kernels.ops.scalar import ADD, MUL, SUB
from ...kernels.types import is_float
from .events import ForwardDifference, WarpStep
from .session import Session

FIELDS = ("event", "line", "array", "number", "here", "Warp", "ulps", "why")
FUNCTION = 8  # what such a function costs at least, beside the 1 of a sum
MOST = 3  # operations that are named


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
        return "\n".join(aligned([list(FIELDS), *(row.texts() for row in self)], rule="-"))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        title = "Results that differ from Warp's"
        html = html_table(title, list(FIELDS), [row.texts() for row in self]) if self else f"<p>{self!r}</p>"
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
