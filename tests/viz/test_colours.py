"""One meaning for each colour: the table of meanings, seen by everybody, and that pictures take no other colour."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from workbench.viz.data.marks import COLOURS, DARK, FAINT, LIGHT, scale_marks
from workbench.viz.live.view import style

SIDE_BY_SIDE = (  # what may be seen at once in one picture, and is told apart by colour
    ("value", "hot", "twin", "bad", "odd", "cursor"),  # lanes
    ("plus", "minus", "bad", "cursor"),  # the cells of a heat-map
    ("plus", "minus", "twin"),  # the bars of a row
)
VIZ = Path(wb.__file__).parent / "viz"
APART = 20.0  # distance in CIELAB: a just noticeable difference is about 2.3
GROUNDS = ((LIGHT, ("#ffffff",)), (DARK, ("#0d1117", "#111111")))  # the last one: JupyterLab Dark
# Deuteranopia in linear RGB: Machado, Oliveira, Fernandes, "A Physiologically-based Model for Simulation of Color
# Vision Deficiency", IEEE TVCG 15(6), 2009, severity 1.0.
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
)
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]])


def linear(colour: str) -> np.ndarray:
    v = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """WCAG 2 contrast ratio."""
    low, high = sorted(float(XYZ[1] @ linear(one)) for one in (a, b))
    return (high + 0.05) / (low + 0.05)


def distance(a: str, b: str, seen: np.ndarray) -> float:
    """Distance in CIELAB (D65, CIE 1976) after a matrix on linear RGB."""

    def lab(colour: str) -> np.ndarray:
        t = XYZ @ np.clip(seen @ linear(colour), 0, 1) / (0.95047, 1.0, 1.08883)
        x, y, z = np.where(t > 216 / 24389, np.cbrt(t), (24389 / 27 * t + 16) / 116)
        return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])

    return float(np.linalg.norm(lab(a) - lab(b)))


def mixed(colour: str, ground: str, share: float) -> str:
    pairs = zip(bytes.fromhex(colour[1:]), bytes.fromhex(ground[1:]), strict=True)
    return "#" + bytes(round(share * c + (1 - share) * g) for c, g in pairs).hex()


@pytest.mark.parametrize(("palette", "grounds"), GROUNDS)
def test_colours_stand_out_from_the_ground(palette: dict[str, str], grounds: tuple[str, ...]) -> None:
    for ground in grounds:
        for name in (*COLOURS, "absent"):
            assert contrast(palette[name], ground) >= 3.0, name
        assert contrast(mixed(palette["hot"], ground, FAINT), ground) >= 3.0
        for name in ("ink", "muted", "hottext", "note"):
            assert contrast(palette[name], ground) >= 4.5, name
    assert contrast(palette["sign"], palette["ill"]) >= 3.0


@pytest.mark.parametrize("palette", [LIGHT, DARK])
@pytest.mark.parametrize("seen", [np.eye(3), DEUTERANOPIA], ids=["everybody", "deuteranopes"])
def test_meanings_side_by_side_are_told_apart(palette: dict[str, str], seen: np.ndarray) -> None:
    for group in SIDE_BY_SIDE:
        for a, b in itertools.combinations(group, 2):
            assert distance(palette[a], palette[b], seen) >= APART, (a, b)
    assert distance("#d55e00", "#cf222e", DEUTERANOPIA) < APART  # adjoints and cursor as they once were


def test_a_colour_has_one_meaning_and_a_meaning_has_shapes_too() -> None:
    for shades in ([c.light for c in COLOURS.values()], [c.dark for c in COLOURS.values()]):
        assert len({shade.lower() for shade in shades}) == len(COLOURS)
    assert all(colour.says and colour.shapes for colour in COLOURS.values())


def test_no_picture_or_panel_has_a_colour_of_its_own() -> None:
    known = {shade.lower() for palette in (LIGHT, DARK) for shade in palette.values()} | {
        "#fff",
        "#000",
        "#888888",
        "#888",
    }
    for path in (*VIZ.rglob("*.py"), *VIZ.rglob("*.js")):
        if path.name != "marks.py":
            found = {c.lower() for c in re.findall(r"#(?:[0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b", path.read_text())}
            assert found <= known, (path.name, found - known)
    css = style("../picture/marks.css", "view.css", "seeds.css")
    rules = re.sub(r"--wb-[\w-]+:[^;]*;", "", css)
    assert not re.findall(r"(?<![\w&-])#[0-9a-fA-F]{6}\b", re.sub(r"var\([^()]*\)", "", rules))
    asked = set(re.findall(r"var\(--wb-([a-z]+)", css + "".join(p.read_text() for p in VIZ.rglob("*.js"))))
    assert asked <= {*re.findall(r"--wb-([a-z]+):", css)}, "a colour that no theme has"


def test_a_colour_bar_has_numbers_on_both_sides_of_zero() -> None:
    assert scale_marks(-4.0, 2.0) == [(0.0, -4.0), (0.25, -1.0), (0.5, 0.0), (0.75, 1.0), (1.0, 4.0)]
    assert scale_marks(0.0, 4.0) == [(0.0, 0.0), (0.5, 1.0), (1.0, 4.0)]
    assert scale_marks(-4.0, -1.0) == [(0.0, -4.0), (0.5, -1.0), (1.0, 0.0)]
    assert scale_marks(0.0, 0.0) == [(0.0, 0.0), (0.5, 0.0), (1.0, 0.0)]


def test_a_report_of_a_wrong_gradient_has_the_colour_of_what_is_wrong() -> None:
    text = (VIZ.parent / "derivatives" / "report.py").read_text()
    assert re.findall(r"#[0-9a-fA-F]{6}\b", text) == [COLOURS["bad"].light]
