"""The result of the microscope: the steps of one thread, as a table and as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...display import aligned, html_table
from ...errors import Where
from ..data.text import clean, plain

TURNS = 3  # of a loop, at its start and at its end, that a table shows
Number = bool | int | float | str | tuple[Any, ...]  # a vector or matrix as tuples; a text: it is not known


@dataclass(frozen=True)
class StatementStep:
    """One statement on the way down (phase "forward") or its adjoint on the way back ("reverse").

    name: of the local, or of the memory cell (`x[2]`). value: a number, or tuples of numbers for vectors and matrices;
    "not kept" where it rests on memory that was overwritten and not kept.
    adjoint: of that value, complete; None on the way down, and where no derivative reaches it. depth: of calls.
    iteration: the turn, from 0, of every loop around it, outer first; loops: which these are, as places in
    `Microscope.loops`. produced_by: the step that made the value; on
    the way back the step on the way down. aliases: all other names of this one value.
    """

    phase: str
    where: Where | None
    name: str
    value: Number
    adjoint: Number | None = None
    depth: int = 0
    iteration: tuple[int, ...] = ()
    produced_by: int | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""
    loops: tuple[int, ...] = ()


@dataclass(frozen=True)
class Microscope:
    """One thread of the launch at `event` (its position in `tape.events`). `note`: what is missing, with the reason.

    loops: the source line of every loop of the kernel.
    """

    event: int
    heading: str
    thread: tuple[int, ...]
    steps: tuple[StatementStep, ...]
    note: str = ""
    loops: tuple[Where | None, ...] = ()

    def find(self, name: str, iteration: tuple[int, ...] | None = None, phase: str = "forward") -> list[StatementStep]:
        """The steps of a name or of an alias of it, in the order they ran."""
        found = (s for s in self.steps if s.phase == phase and name in (s.name, *s.aliases))
        return [s for s in found if iteration is None or s.iteration == iteration]

    def to_json(self) -> dict[str, Any]:
        """Plain data; NaN and infinities as text."""
        return plain(self)

    @property
    def title(self) -> str:
        return clean(f"{self.heading}, thread {', '.join(map(str, self.thread))}")

    def table(self) -> list[tuple[str, ...]]:
        """The steps as texts, below a head; of a long loop the first and last turns, and the first with a NaN."""
        out = [("", "line", "name", "value", "adjoint", "turn", "")]
        last: dict[int, int] = {}
        ill: dict[int, int] = {}
        for s in self.steps:
            for loop, turn in zip(s.loops, s.iteration, strict=True):
                last[loop] = max(last.get(loop, 0), turn)
                if any(word in shown(s.value) for word in ("nan", "inf")):
                    ill.setdefault(loop, turn)
        hidden = 0
        for s in self.steps:
            turns = list(zip(s.loops, s.iteration, strict=True))
            if any(TURNS <= turn <= last[loop] - TURNS and turn != ill.get(loop) for loop, turn in turns):
                hidden += 1
                continue
            if hidden:
                out.append(("", "", f"… {hidden} more steps, in the turns between", "", "", "", ""))
            hidden = 0
            line = "" if s.where is None else f"{s.where.line}: {'  ' * s.depth}{clean(s.where.text.strip())}"
            names, way = clean(" = ".join([s.name, *s.aliases])), "↓" if s.phase == "forward" else "↑"
            numbers = shown(s.value), "" if s.adjoint is None else shown(s.adjoint)
            out.append((way, line, names, *numbers, ", ".join(map(str, s.iteration)), clean(s.note)))
        return out

    def __repr__(self) -> str:
        return "\n".join([self.title, *aligned(self.table()), *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        head, *rows = self.table()
        look = ";vertical-align:top;white-space:pre"
        return html_table(self.title, head, rows, style=look, head_style=look, heads=False, note=self.note)


def held(value: np.ndarray | np.generic | Number) -> Any:
    """A number of the interpreter as a Python one; tuples for vectors and matrices."""
    if isinstance(value, np.ndarray):
        return tuple(held(v) for v in value) if value.ndim else value.item()
    return value.item() if isinstance(value, np.generic) else value


def shown(value: Number | None) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(shown(v) for v in value)})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
