"""The view where it is used: JupyterLab with its file browser open, Notebook 7, marimo. Opening, ledger, microscope."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lab import JupyterLab, eventually, marimo, of_notebook_7, opened, reached, write_notebook
from test_inspector import apart, box, in_sight
from test_page import Opened, axe_script

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
SAMPLES = Path(__file__).resolve().parents[1] / "support" / "view_samples.py"
CELLS = [
    'import workbench as wb, view_samples as samples\ntape, arrays = samples.springs()\nx = arrays["positions"]',
    "view = tape.explore()\nview",
]
SIZES = [((1440, 900), 1.0), ((1024, 768), 1.0), ((1440, 900), 1.5)]


def walked(page: Opened) -> None:
    """Open, step, ledger, one summand in the microscope, back: and each time what came is in sight."""
    page.page.locator(".wb-lanes .event").first.wait_for(timeout=120_000)
    page.cell(2).click()
    page.says(".wb-scope .wb-head", "inside #2 forces")
    in_sight(page, ".wb-dock", ".wb-scope tr.now", ".wb-scope tr.now td.wb-hot", ".wb-scope thead th.wb-hot")
    assert apart(box(page.page.locator(".wb-dock")), box(page.page.locator(".wb-main")))
    assert page.cursor() == "reverse 3/5"
    page.press("ArrowLeft", "ArrowLeft")
    assert page.cursor() == "reverse 5/5"
    page.tab("ledger")
    page.element("7, 0")
    page.says(".wb-sum", "positions.grad[7, 0]")
    in_sight(page, ".wb-dock", ".wb-ledger .wb-head", ".wb-rows li:first-child")
    page.page.locator("button.wb-row").nth(1).click()
    page.says(".wb-scope .wb-head", "#0 forces, thread 6")
    assert page.page.locator(".wb-scope tr.now .wb-source").inner_text() == "16 d = xi - x[i + 1]"
    in_sight(page, ".wb-dock", ".wb-scope tr.now td.wb-hot", ".wb-back")
    page.page.locator(".wb-back").click()
    page.says(".wb-rows .now", "#0 forces thread 6")


def in_notebook(browser: Browser, server: JupyterLab, size: tuple[int, int], zoom: float, picture: Path) -> None:
    shutil.copy(SAMPLES, server.files / SAMPLES.name)
    write_notebook(server.files / "inspector.ipynb", CELLS)
    with opened(browser, server, "inspector.ipynb", size=size, zoom=zoom) as notebook:
        notebook.run_all()
        assert notebook.errors() == []
        page = Opened(notebook.page)
        walked(page)
        notebook.page.screenshot(path=str(picture))
        notebook.page.evaluate(axe_script())
        found = notebook.page.evaluate("axe.run(document.querySelector('.wb-view'))")
        assert [(v["id"], [n["html"] for n in v["nodes"]]) for v in found["violations"]] == []
        assert notebook.ours() == []


@pytest.mark.parametrize("size, zoom", SIZES, ids=["1440", "1024", "1440 at 150 %"])
def test_in_a_lab_with_its_file_browser_open(lab, browser, artefacts, size, zoom):
    in_notebook(browser, lab, size, zoom, artefacts / f"lab-{size[0]}-{zoom}.png")


def test_in_notebook_7(notebook7, browser, artefacts):
    in_notebook(browser, notebook7, (1440, 900), 1.0, artefacts / "notebook7.png")


def test_a_plain_page_of_notebook_7_complains_too(notebook7, browser):
    write_notebook(notebook7.files / "plain.ipynb", ["import ipywidgets\nipywidgets.IntSlider()"])
    with opened(browser, notebook7, "plain.ipynb") as notebook:
        notebook.run_all()
        notebook.page.locator(".widget-slider").first.wait_for(timeout=60_000)
        eventually(lambda: notebook.complaints, timeout=20)
        assert all(map(of_notebook_7, notebook.complaints)), "or the exception made for it can go"


MARIMO = """\
import marimo
app = marimo.App()

@app.cell
def _():
    import workbench as wb, view_samples as samples
    tape, arrays = samples.springs()
    return (tape,)

@app.cell
def _(tape):
    tape.explore()
    return

if __name__ == "__main__":
    app.run()
"""


def test_in_marimo(tmp_path, browser, artefacts):
    shutil.copy(SAMPLES, tmp_path / SAMPLES.name)
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    try:
        page = Opened(context.new_page())
        with marimo(tmp_path, MARIMO) as address:
            eventually(lambda: reached(page.page, address), bool, 60)
            walked(page)
            page.page.screenshot(path=str(artefacts / "marimo.png"))
    finally:
        context.close()


# --- the film

FILM = [
    "from tests.viz.test_film import springs\ntape, a, moments = springs('numpy', 'all')",
    "film = tape.film(a['x'], lines=a['ends'])\nfilm",
]


def played(page: Page, cursor: Callable[[], int] | None, folder: Path) -> None:
    """Open, go to a frame, pick a point, play; `cursor`: that of the kernel, if one can be asked."""
    page.locator(".wb-film .wb-when").wait_for(timeout=120_000)
    moment = page.locator(".wb-when")
    page.locator(".wb-time").fill("1")
    eventually(lambda: page.locator(".wb-time").get_attribute("aria-valuetext") == moment.inner_text())
    here = int(eventually(lambda: moment.get_attribute("data-moment")))
    if cursor is not None:
        eventually(cursor, lambda n: n == here, 30)
    page.locator(".wb-scene").focus()
    page.keyboard.press("]")
    eventually(lambda: "adjoint (" in page.locator(".wb-picked").inner_text())
    page.get_by_label("change of the number").fill("10")
    eventually(lambda: "gradient says" in page.locator(".wb-said").inner_text(), timeout=60)
    page.get_by_role("button", name="show the recorded run again").click()
    page.get_by_role("button", name="play: the physics forward").click()
    eventually(lambda: int(page.locator(".wb-time").input_value()) > 1)
    page.screenshot(path=str(folder))


def test_the_film_in_notebook_7(notebook7, browser, artefacts):
    write_notebook(notebook7.files / "film.ipynb", FILM)
    with opened(browser, notebook7, "film.ipynb") as notebook:
        notebook.run_all()
        assert notebook.errors() == []
        with notebook7.kernel_of("film.ipynb") as kernel:
            played(notebook.page, lambda: kernel.value("film.cursor"), artefacts / "film_notebook7.png")
        assert notebook.ours() == [] and notebook.off_site == []


def test_the_film_in_marimo(tmp_path, browser, artefacts):
    text = MARIMO.replace("import workbench as wb, view_samples as samples", FILM[0].splitlines()[0])
    text = text.replace("tape, arrays = samples.springs()", FILM[0].splitlines()[1]).replace("(tape,)", "a, tape")
    text = text.replace("def _(tape)", "def _(a, tape)").replace("tape.explore()", "tape.film(a['x'], lines=a['ends'])")
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    try:
        page = context.new_page()
        with marimo(tmp_path, text) as address:
            eventually(lambda: reached(page, address), bool, 60)
            played(page, None, artefacts / "film_marimo.png")
    finally:
        context.close()
