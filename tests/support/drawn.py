"""What a drawn picture covers: the labels of a scene, and the area of a mark."""

from __future__ import annotations

from workbench.viz.data.text import text_width
from workbench.viz.picture.svg import Mark, Scene


def labels_of(scene: Scene) -> list[Mark]:
    return [mark for mark in scene.marks if mark.kind == "label" and mark.text]


def box_of(mark: Mark) -> tuple[float, float, float, float]:
    """(left, top, right, bottom)."""
    if mark.kind != "label":
        return mark.x, mark.y, mark.x + mark.w, mark.y + mark.h
    wide = text_width(mark.text, mark.size, mark.mono)
    if mark.turned:
        return mark.x - 0.78 * mark.size, mark.y - wide, mark.x + 0.22 * mark.size, mark.y
    left = mark.x - {"start": 0.0, "middle": wide / 2, "end": wide}[mark.anchor]
    return left, mark.y - 0.78 * mark.size, left + wide, mark.y + 0.22 * mark.size
