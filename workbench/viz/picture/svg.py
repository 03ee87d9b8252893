"""A picture as a list of marks, and these as SVG text: XML that needs no fonts, no scripts and no page around it.

Marks are plain data. Each has a stable id, a class (its look) and a box. No tooltips: an image shows none.

Colours are written out per class (no CSS variables), so that programs other than browsers draw them too. The
theme `auto` holds both sets and lets `prefers-color-scheme` choose: an embedded image cannot see the page's CSS.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TypedDict, Unpack

from ..data.marks import DARK, LIGHT
from ..data.text import clean_lines


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


THEMES = ("auto", "light", "dark")
SANS = "system-ui,-apple-system,'Segoe UI',sans-serif"
MONO = "ui-monospace,Menlo,'DejaVu Sans Mono',monospace"
MARKS = Path(__file__).with_name("marks.css").read_text("utf-8")  # which the live view has too
RULES = Path(__file__).with_name("still.css").read_text("utf-8")  # of this picture alone
DEFS = "".join(map(str.strip, Path(__file__).with_name("defs.svg").read_text("utf-8").splitlines()))
TIPS = {"ill": "illtip", "cut": "stop"}


def render(scene: Scene, theme: str = "auto", ids: bool = True) -> str:
    """The scene as one SVG document. `theme` is `auto`, `light` or `dark`; another name is a ValueError.

    ids=False leaves out the ids, which nobody needs in an `<img>`.
    """
    marks = scene.marks if ids else [replace(mark, id="") for mark in scene.marks]
    wide, tall = number(scene.width), number(scene.height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="wb-tape" role="img" aria-label="{quoted(scene.sentence)}" '
        f'width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}">'
    )
    body = [head, f"<style>{style(theme)}</style>", f"<defs>{DEFS}</defs>", *map(_mark, marks), "</svg>"]
    return "\n".join(body)


def data_uri(image: str | bytes) -> str:
    """SVG text, or the bytes of a PNG, as the address of an image."""
    kind, data = ("png", image) if isinstance(image, bytes) else ("svg+xml", image.encode("utf-8"))
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"


def style(theme: str) -> str:
    """The colours of one theme, or of both with `prefers-color-scheme` between them."""
    if theme not in THEMES:
        raise ValueError(f"a theme is one of {THEMES}, not {theme!r}")
    rules = _coloured(DARK if theme == "dark" else LIGHT)
    fonts = f".label{{font-family:{SANS}}} .mono{{font-family:{MONO};font-weight:500}}"
    if theme == "auto":
        rules += "@media (prefers-color-scheme:dark){" + _coloured(DARK) + "}"
    return fonts + rules


def _coloured(palette: Mapping[str, str]) -> str:
    marks = RULES + re.sub(r" (?={)|/\*.*?\*/|\.wb-view |\.wb-lanes ", "", MARKS)
    return re.sub(r"var\(--wb-(\w+)\)", lambda m: palette[m[1]], marks)


def quoted(text: object) -> str:
    """Text made safe for XML, inside quotes too."""
    return escape(clean_lines(text), quote=True)


def number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _mark(mark: Mark) -> str:
    draw = {"rect": _rect, "circle": _circle, "square": _rect, "diamond": _diamond, "path": _path, "label": _label}
    return draw[mark.kind](mark) if mark.kind in draw else mark.path


def _open(tag: str, mark: Mark, **attributes: object) -> str:
    faint = {"opacity": number(mark.opacity)} if mark.opacity < 1 else {}
    cls = f"label {mark.cls}{' mono' if mark.mono else ''}" if mark.kind == "label" else mark.cls
    pairs = {**({"id": mark.id} if mark.id else {}), "class": cls, **attributes, **faint}
    return f"<{tag} " + " ".join(f'{key.replace("_", "-")}="{quoted(value)}"' for key, value in pairs.items())


def _rect(mark: Mark) -> str:
    round_ = {"rx": number(mark.radius)} if mark.radius else {}
    place = {"x": number(mark.x), "y": number(mark.y), "width": number(mark.w), "height": number(mark.h)}
    return _open("rect", mark, **place, **round_) + "/>"


def _circle(mark: Mark) -> str:
    r = mark.w / 2
    return _open("circle", mark, cx=number(mark.x + r), cy=number(mark.y + r), r=number(r)) + "/>"


def _diamond(mark: Mark) -> str:
    r, back = number(mark.w / 2), number(-mark.w / 2)
    points = f"M{number(mark.x + mark.w / 2)} {number(mark.y)}l{r} {r}l{back} {r}l{back} {back}z"
    return _open("path", mark, d=points) + "/>"


def _path(mark: Mark) -> str:
    more: dict[str, object] = {"stroke_width": number(mark.size)} if mark.size else {}
    if mark.cls.startswith("arrow"):
        more["marker_end"] = f"url(#wb-{TIPS.get(mark.cls.split()[-1], 'tip')})"
    return _open("path", mark, d=mark.path, **more) + "/>"


def _label(mark: Mark) -> str:
    place: dict[str, object] = {"x": number(mark.x), "y": number(mark.y), "font_size": number(mark.size)}
    if mark.anchor != "start":
        place["text_anchor"] = mark.anchor
    if mark.turned:
        place["transform"] = f"rotate(-90 {number(mark.x)} {number(mark.y)})"
    return _open("text", mark, **place) + f' xml:space="preserve">{quoted(mark.text)}</text>'
