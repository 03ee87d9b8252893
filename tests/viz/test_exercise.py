"""`exercise`: what is right has all points, what is wrong is told by its kind, and the answer by nothing."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

import workbench as wb
from workbench.viz import exercise, solution

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
HINT = "Which way does a stretched spring pull?"


@wb.kernel
def right(x: wb.array[float], v: wb.array[float], k: float, f: wb.array[float]):
    i = wb.tid()
    f[i] = -k * x[i] - 0.5 * v[i]


@wb.kernel
def other_sign(x: wb.array[float], v: wb.array[float], k: float, f: wb.array[float]):
    i = wb.tid()
    f[i] = k * x[i] + 0.5 * v[i]


@wb.kernel
def twice(x: wb.array[float], v: wb.array[float], k: float, f: wb.array[float]):
    i = wb.tid()
    f[i] = -2.0 * k * x[i] - 1.0 * v[i]


@wb.kernel
def not_the_first(x: wb.array[float], v: wb.array[float], k: float, f: wb.array[float]):
    i = wb.tid()
    if i > 0:
        f[i] = -k * x[i] - 0.5 * v[i]


@wb.kernel
def divides(x: wb.array[float], v: wb.array[float], k: float, f: wb.array[float]):
    i = wb.tid()
    f[i] = (-k * x[i] - 0.5 * v[i]) * (x[i] - 0.25) / (x[i] - 0.25)


@wb.kernel
def no_drag(x: wb.array[float], v: wb.array[float], k: float, f: wb.array[float]):
    i = wb.tid()
    f[i] = -k * x[i]


@wb.kernel
def without_slope(x: wb.array[float], v: wb.array[float], k: float, f: wb.array[float]):
    i = wb.tid()
    f[i] = -k * wb.detach(x[i]) - 0.5 * v[i]


def arrays():
    x = wb.array(np.arange(1, 9) / 4, dtype=float, requires_grad=True)
    v = wb.array(np.cos(np.arange(8.0)), dtype=float, requires_grad=True)
    return 8, [x, v, 3.0], [wb.zeros(8, dtype=float)]


@pytest.fixture
def sealed(backend: str) -> str:
    return solution(right, *arrays(), hint=HINT)


def test_what_is_right_has_all_points_and_leaves_the_arrays_alone(sealed: str, capsys):
    dim, inputs, outputs = given = arrays()
    assert exercise(right, *given, sealed, points=3) == 3
    assert capsys.readouterr().out == "Values and gradient are right.\n"
    assert not outputs[0].numpy().any() and not inputs[0].grad.numpy().any()


@pytest.mark.parametrize(
    "kernel, said",
    [
        (other_sign, "Output 0 is right but for its sign."),
        (twice, "Output 0 is right but for one factor throughout."),
        (not_the_first, "Output 0 is right but at [0]."),
        (divides, "Output 0 is not finite at 0."),
        (no_drag, "Output 0 is wrong nearly everywhere."),
    ],
)
def test_a_wrong_value_has_no_point_and_is_told_by_its_kind(kernel, said: str, sealed: str, capsys):
    assert exercise(kernel, *arrays(), sealed, points=3) == 0
    assert capsys.readouterr().out == f"{said} {HINT}\n"


def test_a_right_value_with_a_wrong_gradient_has_half_of_the_points(sealed: str, capsys):
    assert exercise(without_slope, *arrays(), sealed, points=3) == 1.5
    assert capsys.readouterr().out.startswith(
        "The values are right, the gradient by input 0 is wrong nearly everywhere."
    )


def test_an_unwritten_output_is_wrong(sealed: str, capsys):
    @wb.kernel
    def nothing(x: wb.array[float], v: wb.array[float], k: float, f: wb.array[float]):
        i = wb.tid()
        f[i] = 0.0 * x[i]

    assert exercise(nothing, *arrays(), sealed) == 0
    assert "wrong nearly everywhere" in capsys.readouterr().out


def test_arrays_of_other_sizes_or_without_gradient_are_told(sealed: str, capsys):
    """One number is compared with none of eight, though NumPy would spread it."""
    dim, inputs, _ = arrays()
    assert exercise(right, 1, inputs, [wb.zeros(1, dtype=float)], sealed) == 0
    assert "Output 0 is of 1 numbers, not 8." in capsys.readouterr().out
    bare = [wb.array(inputs[0].numpy()), *inputs[1:]]
    assert exercise(right, dim, bare, [wb.zeros(8, dtype=float)], sealed, points=2) == 1
    assert "the gradient by input 0 is of 0 numbers, not 8." in capsys.readouterr().out


def test_the_text_gives_neither_numbers_nor_hint_away_and_other_text_is_refused(sealed: str):
    dim, inputs, outputs = arrays()
    assert HINT not in sealed and "spring" not in sealed and sealed.isascii()
    values = -3.0 * inputs[0].numpy() - 0.5 * inputs[1].numpy()
    assert not any(f"{v:.2f}" in sealed for v in values)
    with pytest.raises(ValueError, match="what is right is given as"):
        exercise(right, dim, inputs, outputs, "three")


def test_the_points_are_what_a_cell_ends_with(sealed: str):
    """nbgrader reads them in the `text/plain` of the last output, as one number."""
    got = exercise(right, *arrays(), sealed, points=2)
    assert json.loads(repr(got)) == 2


SOLVED = {
    "components-turn-kernel": """@wb.kernel
def turn(a: wb.array2d[float], out: wb.array[wb.vec3]):
    i = wb.tid()
    tmp = wb.vec3()
    tmp[0] = -a[i, 1]
    tmp[1] = a[i, 0]
    tmp[2] = a[i, 2]
    out[i] = tmp
""",
    "loops-decay-kernel": """@wb.kernel
def decay(x: wb.array[float], k: wb.array[float], turns: int, y: wb.array[float]):
    i = wb.tid()
    s = x[i]
    for _ in range(turns):
        s -= 0.1 * k[i] * s * s * s
    y[i] = s
""",
}


def handed_in(path: Path, folder: Path, solved: bool) -> None:
    """A student's notebook, run: the imports of this one and its exercise, solved or as it stands there."""
    notebook = nbformat.read(path, as_version=4)
    kept = [c for c in notebook.cells if "exercise" in c.metadata.get("tags", []) or c.source.startswith("import")]
    for cell in kept if solved else ():
        cell.source = SOLVED.get(cell.metadata.get("nbgrader", {}).get("grade_id"), cell.source)
    notebook.cells = kept
    NotebookClient(notebook, timeout=120, record_timing=False).execute()
    nbformat.write(notebook, folder / path.name)


@pytest.mark.slow
def test_the_exercises_of_the_course_can_be_solved_and_a_folder_of_them_has_marks(tmp_path: Path):
    names = [path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if '"grade_id"' in path.read_text("utf-8")]
    assert [path.stem for path in names] == ["05_components", "08_loops"]
    for folder, solved in (("ada", True), ("ben", False)):
        (tmp_path / folder).mkdir()
        for path in names:
            handed_in(path, tmp_path / folder, solved)
    command = [sys.executable, str(NOTEBOOKS / "marks.py"), str(tmp_path)]
    table = subprocess.run([*command, "--csv"], capture_output=True, text=True, check=True).stdout
    assert table.splitlines()[1:] == [
        "ada/05_components.ipynb,components-turn,2.0,2.0",
        "ada/08_loops.ipynb,loops-decay,2.0,2.0",
        "ben/05_components.ipynb,components-turn,0.0,2.0",
        "ben/08_loops.ipynb,loops-decay,0.0,2.0",
    ]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.endswith("4 of 8\n")


CELL = {"cell_type": "code", "source": "", "metadata": {"nbgrader": {"grade": True, "grade_id": "g", "points": 2}}}
RESULT = {"output_type": "execute_result", "data": {"text/plain": ["1.5"]}}


@pytest.mark.parametrize(
    "cell, points",
    [
        ({"execution_count": 1, "outputs": [RESULT]}, 1.5),
        ({"execution_count": 1, "outputs": [{"output_type": "stream", "name": "stdout", "text": "3"}]}, 2.0),
        ({"execution_count": 1, "outputs": [{"output_type": "stream", "name": "stderr", "text": ""}, RESULT]}, 0.0),
        ({"execution_count": 1, "outputs": [RESULT, {"output_type": "error"}]}, 0.0),
        ({"execution_count": 1, "outputs": [{**RESULT, "data": {"text/plain": "9"}}]}, 2.0),
        ({"execution_count": 1, "outputs": [{**RESULT, "data": {"text/plain": "a"}}]}, 2.0),
        ({"execution_count": None, "outputs": [RESULT]}, 0.0),
    ],
)
def test_a_stored_output_earns_what_nbgrader_gives_for_it(cell, points: float, tmp_path: Path):
    (tmp_path / "one.ipynb").write_text(json.dumps({"cells": [{**CELL, **cell}]}), "utf-8")
    assert list(runpy.run_path(str(NOTEBOOKS / "marks.py"))["marks"](tmp_path)) == [("one.ipynb", "g", points, 2.0)]
