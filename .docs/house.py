"""The map of the package, drawn from its imports: `write` makes `_made/house.svg`, which the page "Inside" holds.

A box is a room (a folder at the root of the package), its row one above the highest room that it imports. A line is an
import that does not follow from others: of `viz -> tapes -> arrays` the two short ways are drawn, not the long one.
"""

from __future__ import annotations

import functools
import sys
from html import escape
from pathlib import Path
from textwrap import wrap

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests import structure

HERE = Path(__file__).resolve().parent
WIDE, HIGH, GAP, RISE = 236, 70, 22, 32
ACROSS = 3
# Rooms in words short enough for a box.
WORDS = {
    "kernels": "Python in; typed program, adjoint and machine code out",
    "arrays": "memory, its names, its gradients",
    "launches": "one launch: arguments, plan, run",
    "tapes": "recordings of events, and walks over them",
    "derivatives": "Jacobians, checks, sweeps, mistakes on purpose",
    "diagnose": "findings about a tape, each with its line",
    "viz": "the static picture and the live view",
    "geometry": "hash grids, trees of boxes, meshes",
    "sparse": "matrices of blocks",
    "optim": "optimizers, solvers, roots",
    "interop": "torch, JAX, DLPack, Warp",
    "warp": "Warp's names, and its programs watched",
}


@functools.cache
def below() -> dict[str, set[str]]:
    """By room the rooms that it imports, itself and the files at the root left out."""
    found: dict[str, set[str]] = {name: set() for name in WORDS}
    for module, others in structure.arrows(typing=False).items():
        for other in others:
            a, b = structure.room(module), structure.room(other)
            if a != b and a in found and b in found:
                found[a].add(b)
    return found


@functools.cache
def reach(room: str) -> frozenset[str]:
    """All rooms that a room stands on. Raises RecursionError where imports of rooms go in a circle."""
    return frozenset(below()[room]).union(*(reach(other) for other in below()[room]))


def level(room: str) -> int:
    return 1 + max((level(other) for other in below()[room]), default=-1)


def lines() -> list[tuple[str, str]]:
    """The imports that follow from no other."""
    return [(a, b) for a, to in below().items() for b in sorted(to) if not any(b in reach(other) for other in to - {b})]


def places() -> dict[str, tuple[float, float]]:
    """Left and top of each box: rows of at most ACROSS boxes, the highest room on top."""
    rows: list[list[str]] = []
    for height in range(max(map(level, WORDS)), -1, -1):
        names = [name for name in WORDS if level(name) == height]
        rows += [names[k : k + ACROSS] for k in range(0, len(names), ACROSS)]
    found = {}
    for k, row in enumerate(rows):
        left = (ACROSS - len(row)) * (WIDE + GAP) / 2
        found |= {name: (left + j * (WIDE + GAP), 10 + k * (HIGH + RISE)) for j, name in enumerate(row)}
    return found


def box(room: str, x: float, y: float) -> str:
    said = "".join(
        f'<text x="{x + 12:g}" y="{y + 42 + 16 * k:g}">{escape(line)}</text>'
        for k, line in enumerate(wrap(WORDS[room], 30))
    )
    return (
        f'<a href="#workbench-{room}"><rect x="{x:g}" y="{y:g}" width="{WIDE}" height="{HIGH}" rx="6"/>'
        f'<text class="room" x="{x + 12:g}" y="{y + 22:g}">{room}</text>'
        f'<text class="count" x="{x + WIDE - 12:g}" y="{y + 22:g}">{structure.lines(room):,} lines</text>{said}</a>'
    )


def draw() -> str:
    at = places()
    height = max(y for _, y in at.values()) + HIGH + 10
    ways = []
    for a, b in lines():
        (x1, y1), (x2, y2) = at[a], at[b]
        x1, y1, x2 = x1 + WIDE / 2, y1 + HIGH, x2 + WIDE / 2
        bend = (y2 - y1) / 2
        ways.append(f'<path d="M{x1:g} {y1:g} C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}"/>')
    boxes = "".join(box(name, *place) for name, place in at.items())
    width = ACROSS * (WIDE + GAP) - GAP
    return (
        f'<svg class="house" xmlns="http://www.w3.org/2000/svg" viewBox="-2 0 {width + 4} {height:g}">'
        f"<title>The rooms of the package; lines are imports, from above to below</title>{''.join(ways)}{boxes}</svg>"
    )


def write() -> None:
    (HERE / "_made").mkdir(exist_ok=True)
    (HERE / "_made" / "house.svg").write_text(draw(), "utf-8")
