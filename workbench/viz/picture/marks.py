"""A picture as a list of marks: plain data that SVG, tests and a live view share.

Every mark has a stable id, a class (its look) and a box. There are no tooltips: an image shows none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict, Unpack

from ..data.text import text_width


@dataclass(frozen=True, slots=True)
class Mark:
    """One thing to draw. A label's (x, y) is its anchor on the baseline; `box()` gives the area it covers."""

    kind: str
    id: str
    cls: str
    x: float = 0.0
    y: float = 0.0
    w: float = 0.0
    h: float = 0.0
    text: str = ""
    path: str = ""
    size: float = 0.0
    radius: float = 0.0
    opacity: float = 1.0
    anchor: str = "start"
    mono: bool = False
    turned: bool = False

    def box(self) -> tuple[float, float, float, float]:
        """(left, top, right, bottom)."""
        if self.kind != "label":
            return self.x, self.y, self.x + self.w, self.y + self.h
        wide = text_width(self.text, self.size, self.mono)
        if self.turned:
            return self.x - 0.78 * self.size, self.y - wide, self.x + 0.22 * self.size, self.y
        left = self.x - {"start": 0.0, "middle": wide / 2, "end": wide}[self.anchor]
        return left, self.y - 0.78 * self.size, left + wide, self.y + 0.22 * self.size


class LabelLook(TypedDict, total=False):
    """Fields of a mark besides its place, its text and the size of that."""

    path: str
    radius: float
    opacity: float
    anchor: str
    mono: bool
    turned: bool


class MarkLook(LabelLook, total=False):
    """All fields of a mark besides its place."""

    text: str
    size: float


@dataclass
class Scene:
    width: float
    height: float
    sentence: str
    marks: list[Mark] = field(default_factory=list)

    def add(self, kind: str, id: str, cls: str, *place: float, **rest: Unpack[MarkLook]) -> None:
        x, y, w, h = (round(value, 2) for value in (*place, 0.0, 0.0, 0.0, 0.0)[:4])
        self.marks.append(Mark(kind, id, cls, x, y, w, h, **rest))

    def label(self, id: str, cls: str, x: float, y: float, text: str, size: float, **rest: Unpack[LabelLook]) -> None:
        self.add("label", id, cls, x, y, text=text, size=size, **rest)

    def labels(self) -> list[Mark]:
        return [mark for mark in self.marks if mark.kind == "label" and mark.text]
