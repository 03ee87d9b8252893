"""The notebooks run from top to bottom, and what is stored of them is fit to be read without running them."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import warnings
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
START, TOUR = ROOT / "notebooks" / "00_tour_start.ipynb", ROOT / "notebooks" / "01_tour_all.ipynb"
WITH_A_LESSON = [path for path in NOTEBOOKS if path.stem >= "10"]
HAS_TORCH = importlib.util.find_spec("torch") is not None
WITH_ENGINES = {"31_mujoco"}  # run where the extra is; what is stored of them is looked at everywhere
TO_RUN = [pytest.param(p, marks=pytest.mark.needs_engines if p.stem in WITH_ENGINES else ()) for p in NOTEBOOKS]
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def executed(path: Path, monkeypatch: pytest.MonkeyPatch) -> NotebookNode:
    """A fresh run in a kernel of its own. Raises CellExecutionError where a cell fails."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    notebook = read(path)
    place = {"metadata": {"path": str(path.parent)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the client's own event loop and sockets are no concern of ours
        NotebookClient(notebook, timeout=300, store_widget_state=False, resources=place).execute()
    return notebook


def said(cell: NotebookNode) -> str:
    """What a cell prints and what it evaluates to, as text."""
    parts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.get("outputs", [])]
    return "".join(parts)


def code_after(notebook: NotebookNode, heading: str) -> list[NotebookNode]:
    start = next(k for k, cell in enumerate(notebook.cells) if cell.source.startswith(heading))
    return [cell for cell in notebook.cells[start:] if cell.cell_type == "code"]


def outputs(path: Path) -> list[NotebookNode]:
    return [output for cell in read(path).cells for output in cell.get("outputs", [])]


def test_there_is_a_tour_and_the_course_is_numbered_without_gaps_or_twins() -> None:
    assert NOTEBOOKS[:2] == [START, TOUR]
    assert [path.stem.partition("_")[0] for path in NOTEBOOKS] == [f"{k:02}" for k in range(len(NOTEBOOKS))]
    for path in NOTEBOOKS[2:]:
        assert read(path).cells[0].source.startswith(f"# {int(path.stem[:2])}. ")


def test_the_readme_opens_the_first_half_which_has_a_gradient_in_fifteen_cells_and_looks_at_it_live() -> None:
    assert f"jupyter lab notebooks/{START.name}\n" in (ROOT / "README.md").read_text("utf-8")
    cells = read(START).cells
    assert len(cells) <= 15
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    assert code.index("tape.backward(loss)") < code.index("tape.film(") < code.index("short.explore()")
    text = "".join(map(said, cells))
    assert "gradients agree with differences" in text
    before, after = map(float, re.findall(r"loss ([\d.e-]+) before, ([\d.e-]+) after", text)[0])
    assert after < 1e-4 < before


@pytest.mark.slow
@pytest.mark.parametrize("path", TO_RUN, ids=lambda path: path.stem)
def test_a_notebook_runs_without_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = executed(path, monkeypatch)
    if path == TOUR:
        says_again_what_is_stored(fresh)


def says_again_what_is_stored(fresh: NotebookNode) -> None:
    """The traps and the refusals of the tour: exact numbers and messages, the same on every machine."""
    pairs = list(zip(code_after(fresh, "## 6."), code_after(read(TOUR), "## 6."), strict=True))
    assert len(pairs) > 8
    for new, old in pairs:
        if HAS_TORCH or "import torch" not in new.source:
            assert said(new) == said(old), new.source


def test_the_tour_shows_the_right_numbers_for_the_five_traps() -> None:
    text = "\n".join(map(said, code_after(read(TOUR), "## 6.")))
    assert "tensor([2., 4., 6.])" in text and "in-place operation of torch" in text
    assert "array([ 4.,  8., 12.]" in text
    assert "[1. 1. 1.]\n[1. 1. 1.]\n[1. 1. 1.]\n" in text
    assert "array([[10.,  5.,  9.]]" in text
    assert "array([  4.,  32., 108.]" in text


def test_the_tour_opens_with_the_demo_live_and_then_the_seeding_panel() -> None:
    code = [cell for cell in read(TOUR).cells if cell.cell_type == "code"]
    assert code[1].source == "demo = wb.demo()\ndemo.explore()" and ".seeds(" in code[2].source
    for cell in code[1:3]:  # what stands there without a kernel
        (page,) = [output["data"]["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]
        assert "<img" in page
    assert "NaN born in #38 burn, thread 5" in "".join(
        output["data"].get("text/plain", "") for output in code[1].outputs if "data" in output
    )


def test_the_descent_of_the_tour_reaches_its_target() -> None:
    (text,) = [said(cell) for cell in read(TOUR).cells if "before," in said(cell) and "rounds" in said(cell)]
    first, last = map(float, re.findall(r"\d[\d.e-]*(?= before| after)", text))
    assert last < 1e-3 < first


@each_notebook
def test_a_stored_notebook_holds_outputs_and_no_live_widget(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata
    assert [kind for o in outputs(path) for kind in o.get("data", {}) if "widget" in kind] == []
    assert [cell.source for cell in notebook.cells if cell.cell_type == "code" and cell.execution_count is None] == []


@pytest.mark.parametrize("path", WITH_A_LESSON, ids=lambda path: path.stem)
def test_the_first_screen_shows_what_is_to_be_seen(path: Path) -> None:
    """The figure of the cell tagged `lesson`, and the lesson in words, before any code."""
    first, *others = read(path).cells
    assert [c.cell_type for c in others if "lesson" in c.metadata.get("tags", [])] == ["code"]
    (shown,) = re.findall(r"!\[[^\]]+\]\(attachment:([^)]+)\)", first.source)
    assert base64.b64decode(first.attachments[shown]["image/png"]).startswith(b"\x89PNG"), "run .ci/notebooks"


@each_notebook
def test_a_stored_notebook_is_small_and_names_no_machine(path: Path) -> None:
    text = path.read_text("utf-8")
    large = {TOUR.stem, "31_mujoco"}  # a live view of 59 launches; the picture of an engine's step with 225 allocations
    assert len(text) < (700_000 if path.stem in large else 500_000)
    assert "ipykernel_" not in text and "site-packages" not in text
    assert re.findall(r"0x[0-9a-f]{8,}", json.dumps([said(cell) for cell in read(path).cells])) == []


def test_the_picture_of_the_readme_is_the_one_of_the_tour() -> None:
    shown = next(cell for cell in read(TOUR).cells if cell.source.endswith("\npicture"))
    pages = "".join(output.get("data", {}).get("text/html", "") for output in shown.outputs)
    images = re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", pages)
    picture = TOUR.with_name("tape.svg")
    assert base64.b64decode(images[0]) == picture.read_bytes(), "run .ci/notebooks notebooks/01_tour_all.ipynb"
    assert f"](notebooks/{picture.name})" in (ROOT / "README.md").read_text("utf-8")
