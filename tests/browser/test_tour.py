"""The tour in a real JupyterLab, and how a refused kernel looks in a cell."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lab import JupyterLab, NotebookPage

pytestmark = pytest.mark.browser

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
START, TOUR = "00_tour_start.ipynb", "01_tour_all.ipynb"
REFUSED = """\
import workbench as wb

@wb.kernel
def lossy(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = 3.0 + x[i] * i

x = wb.zeros(3, dtype=float)
wb.launch(lossy, dim=3, inputs=[x, x])
"""


def test_the_first_half_of_the_tour_plays_its_film_and_steps_through_its_tape(
    lab: JupyterLab, open_notebook: Callable[[str], NotebookPage], artefacts: Path
) -> None:
    shutil.copy(NOTEBOOKS / START, lab.files)
    notebook = open_notebook(START)
    notebook.run_all(timeout=300)
    assert notebook.errors() == []
    page = notebook.page
    assert page.locator(".wb-film").count() >= 2
    view = page.locator(".wb-view").filter(has_text="6 launches · ").last
    view.locator(".wb-lanes").scroll_into_view_if_needed()
    assert view.get_by_text("7 of 7 reversed", exact=True).is_visible()
    view.get_by_role("button", name="undo").first.click()
    view.get_by_text("6 of 7 reversed", exact=True).wait_for()
    page.screenshot(path=str(artefacts / "tour-start.png"))
    assert notebook.off_site == [] and notebook.ours() == []


def test_the_tour_runs_from_top_to_bottom_and_everything_in_it_is_seen(
    lab: JupyterLab, open_notebook: Callable[[str], NotebookPage], artefacts: Path
) -> None:
    from lab import DARK, LIGHT

    # A copy: running the tour must leave the original alone.
    shutil.copytree(NOTEBOOKS, lab.files, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
    notebook = open_notebook(TOUR)
    notebook.run_all(timeout=300)
    assert notebook.errors() == []

    page = notebook.page
    pictures = page.locator("img[alt*='tape' i]:visible")
    assert pictures.count() == 2
    picture = pictures.first
    listing = page.locator("th", has_text="adjoint (~ replayed)").first
    folded = page.locator("summary", has_text="lines that every kernel shares").first
    for theme in (DARK, LIGHT):
        notebook.theme(theme)
        for name, what in (("adjoint", listing), ("c", folded), ("picture", picture)):
            what.scroll_into_view_if_needed()
            assert what.is_visible()
            page.screenshot(path=str(artefacts / f"tour-{name}-{theme.split()[-1].lower()}.png"))
    assert picture.evaluate("image => image.complete && image.naturalWidth") > 400
    assert "5 launches" in (picture.get_attribute("alt") or "")

    header = page.get_by_text("typedef __INT8_TYPE__").first
    assert not header.is_visible()
    folded.click()
    assert header.is_visible()
    output = picture.locator("xpath=ancestor::*[contains(@class, 'jp-OutputArea-child')][1]")
    output.get_by_text("The same as a table").click()
    assert output.get_by_text("one memory").first.is_visible()

    demo = page.locator(".wb-view").first
    demo.scroll_into_view_if_needed()
    assert demo.get_by_text("59 of 59 reversed", exact=True).is_visible()
    page.screenshot(path=str(artefacts / "tour-demo.png"))
    page.locator(".wb-seeds .wb-rowname:visible", has_text="height[0]").first.wait_for()

    view = page.locator(".wb-view").filter(has_text="5 launches · ").last
    live = view.locator(".wb-lanes")
    for theme in (DARK, LIGHT):
        notebook.theme(theme)
        live.scroll_into_view_if_needed()
        assert live.is_visible()
        page.screenshot(path=str(artefacts / f"tour-live-{theme.split()[-1].lower()}.png"))
    notebook.wait_text("rest before #0 spring")  # no later cell has spoilt its values
    reversed_so_far = view.get_by_text("5 of 5 reversed", exact=True)
    assert reversed_so_far.is_visible()
    view.get_by_role("button", name="undo").first.click()
    view.get_by_text("4 of 5 reversed", exact=True).wait_for()

    assert notebook.off_site == []
    assert notebook.ours() == []


def test_a_refused_kernel_shows_its_line_with_a_caret_and_not_the_reader_s_insides(
    lab: JupyterLab, open_notebook: Callable[[str], NotebookPage], artefacts: Path
) -> None:
    from lab import write_notebook

    write_notebook(lab.files / "refused.ipynb", [REFUSED])
    notebook = open_notebook("refused.ipynb")
    notebook.run_all()
    shown = notebook.page.locator(".jp-OutputArea-output", has_text="KernelError").inner_text()
    lines = [line.rstrip() for line in shown.splitlines()]
    caret = next(k for k, line in enumerate(lines) if line.strip() == "^")
    assert lines[caret - 1].strip() == "y[i] = 3.0 + x[i] * i"
    assert lines[caret].index("^") == lines[caret - 1].index("x[i]")
    assert "In[1], line 6" in lines[caret - 2].replace("Cell ", "")
    assert "KernelError: `*` takes operands of one type" in shown and "[mixed-types]" in shown
    assert "ops/row.py" not in shown
    notebook.screenshots(artefacts, "refused")
