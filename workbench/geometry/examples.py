"""The examples of queries: some lines of a kernel each, in scenes that are told once here."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence

from ..kernels.reading.library import Library

Described = Callable[[Library], Library]


def mesh_of(faces: str = "0, 1, 2", more: str = "") -> tuple[str, ...]:
    """The lines that make a mesh of these faces from three points."""
    points = "points = wb.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=wb.vec3)"
    return points, f"mesh = wb.Mesh(points, wb.array([{faces}], dtype=int){more})"


FACE, TWO_FACES, TWICE = mesh_of(), mesh_of("0, 1, 2, 0, 0, 0"), mesh_of("0, 1, 2, 0, 1, 2")
POINT_AND_FACE = mesh_of("0, 0, 0, 0, 1, 2")
MOVING, WINDING = mesh_of(more=", velocities=points"), mesh_of(more=", support_winding_number=True")
BOXES = (
    "lowers = wb.array([[0, 0, 0], [2, 2, 2], [4, 0, 0]], dtype=wb.vec3)",
    "bvh = wb.Bvh(lowers, lowers + wb.vec3(1.0, 1.0, 1.0))",
)
GROUPS = (
    "corners, groups = wb.zeros(4, dtype=wb.vec3), wb.array([7, 3, 7, 5], dtype=int)",
    "bvh = wb.Bvh(corners, corners, groups=groups)",
)
GRID = "grid = wb.HashGrid(8, 8, 8)", "grid.build(wb.array([[3, 0, 0], [0, 0, 0]], dtype=wb.vec3), 1.0)"


def example(*lines: str, gives: Sequence[object], scene: Sequence[str] = FACE) -> Described:
    """Decorator: the docstring ends with a launch of these lines, which read a scene and let `out` be what it gives."""
    name = re.findall(r"\w+", scene[-1])[0]
    of = "wb.vec3" if isinstance(gives[0], list) else type(gives[0]).__name__
    tiled, more = ("_tiled", ", block_dim=64") if "wb.tile_" in lines[0] else ("", "")
    run = f"out = wb.zeros({len(gives)}, dtype={of})", f"wb.launch{tiled}(look, 1, [{name}.id, out]{more})"
    text = [
        ">>> @wb.kernel",
        f"... def look({name}: wb.uint64, out: wb.array[{of}]):",
        *(f"...     {line}" for line in lines),
        *(f">>> {line}" for line in (*scene, *run, "out.numpy().tolist()")),
        str(gives),
    ]

    def add(query: Library) -> Library:
        query.__doc__ = "\n".join([inspect.cleandoc(query.__doc__ or ""), "", *text, ""])
        return query

    return add


def valued(expression: str, gives: Sequence[object], scene: Sequence[str] = FACE) -> Described:
    """`example` that writes the value of an expression."""
    return example(f"out[0] = {expression}", gives=gives, scene=scene)


def marked(query: str, gives: Sequence[object], scene: Sequence[str]) -> Described:
    """`example` that marks all that a query finds."""
    return example(f"for k in {query}:", "    out[k] = 1", gives=gives, scene=scene)


def marked_by_tiles(query: str, next_: str, gives: Sequence[object], scene: Sequence[str]) -> Described:
    """`example` that marks all that a query by blocks finds, of which `next_` gives the next."""
    loop = "while wb.tile_query_valid(query):", f"    k = wb.untile(wb.{next_}(query))"
    return example(f"query = {query}", *loop, "    if k >= 0:", "        out[k] = 1", gives=gives, scene=scene)


def counted(query: str, more: str, gives: Sequence[object], scene: Sequence[str]) -> Described:
    """`example` that counts, in a `while` loop, how often this function says that there is more of a query."""
    return example(f"query = {query}", "k = int(0)", f"while {more}:", "    out[0] += 1", gives=gives, scene=scene)
