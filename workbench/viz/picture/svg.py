"""Marks -> SVG text: valid XML that needs no fonts, no scripts and no page around it.

Colours are written out per class (no CSS variables), so that programs other than browsers draw them too. The
theme `auto` holds both sets and lets `prefers-color-scheme` choose: an embedded image cannot see the page's CSS.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from pathlib import Path

from ..data.marks import DARK, LIGHT
from ..data.text import clean_lines
from .marks import Mark, Scene

THEMES = ("auto", "light", "dark")
SANS = "system-ui,-apple-system,'Segoe UI',sans-serif"
MONO = "ui-monospace,Menlo,'DejaVu Sans Mono',monospace"
MARKS = Path(__file__).with_name("marks.css").read_text("utf-8")  # which the live view has too
RULES = """
.ground{fill:var(--wb-ground)} .label{fill:var(--wb-ink)} .title{font-weight:600} .muted{fill:var(--wb-muted)}
.chip.shared{fill:url(#wb-shared)} .chipground{fill:var(--wb-ground);opacity:.86} .block.strided{fill:url(#wb-strided)}
.absent{fill:url(#wb-absent)} .bar.parted.wrong{fill:url(#wb-wrong)}
.strip.block,.strip.block.nan,.strip.block.inf{stroke:none}
.title.wrong{fill:var(--wb-oddtext);font-weight:600}
.gap{fill:var(--wb-box);opacity:.92} .gapedge{fill:none;stroke:var(--wb-muted);stroke-dasharray:3 3}
"""
DEFS = (
    '<pattern id="wb-shared" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="sharedground" width="7" height="7"/><rect class="sharedstripe" width="2" height="7"/></pattern>'
    '<pattern id="wb-strided" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<rect class="stridedground" width="6" height="6"/><path class="stridedline" d="M0 6L6 0"/></pattern>'
    '<pattern id="wb-wrong" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="wrongground" width="6" height="6"/><rect class="wrongstripe" width="4" height="6"/></pattern>'
    '<pattern id="wb-absent" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path class="absentline" d="M0 6L6 0"/></pattern>'
    '<marker id="wb-stop" viewBox="0 0 8 12" refX="6" refY="6" markerWidth="8" markerHeight="12" '
    'markerUnits="userSpaceOnUse" orient="auto"><path class="stop" d="M2 0V12M6 0V12"/></marker>'
) + "".join(
    f'<marker id="wb-{tip}" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="9" markerHeight="9" '
    f'markerUnits="userSpaceOnUse" orient="auto"><path class="{tip}" d="M0 0.5L8 4L0 7.5z"/></marker>'
    for tip in ("tip", "illtip")
)
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


def data_uri(svg: str) -> str:
    """SVG text as the address of an image."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode("utf-8")).decode("ascii")


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
    return draw[mark.kind](mark)


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
