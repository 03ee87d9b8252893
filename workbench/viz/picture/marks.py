"""A picture as a list of marks: plain data that SVG, tests and a live view share.

Every mark has a stable id, a class (its look) and a box. There are no tooltips: an image shows none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict, Unpack


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


class LabelLook(TypedDict, total=False):
    """The fields of a label besides its place, its text and the size of that."""

    anchor: str
    mono: bool
    turned: bool


class MarkLook(LabelLook, total=False):
    """The fields of a mark besides its place."""

    text: str
    path: str
    size: float
    radius: float
    opacity: float


@dataclass
class Scene:
    width: float
    height: float
    sentence: str
    marks: list[Mark] = field(default_factory=list)

    def add(self, kind: str, id: str, cls: str, *place: float, **look: Unpack[MarkLook]) -> None:
        x, y, w, h = (round(value, 2) for value in (*place, 0.0, 0.0, 0.0, 0.0)[:4])
        self.marks.append(Mark(kind, id, cls, x, y, w, h, **look))

    def label(self, id: str, cls: str, x: float, y: float, text: str, size: float, **look: Unpack[LabelLook]) -> None:
        self.add("label", id, cls, x, y, text=text, size=size, **look)
