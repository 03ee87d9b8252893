"""A question in JupyterLab, Notebook 7 and marimo: the cells below it wait, and one click on an answer shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lab import eventually, marimo, opened, reached, write_notebook

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser
ASK = """\
from workbench.viz import predict, seal
asked = predict("1+1?", ["1", "2"], seal("2", "One and one."))
asked"""
MARIMO = """\
import marimo
app = marimo.App()

@app.cell
def _():
    "it stands above"
    return

@app.cell
def _():
    %s
    return (asked,)

@app.cell
def _():
    str("the") + " sum is 2"
    return

if __name__ == "__main__":
    app.run()
"""


def answered(page: Page, above: Locator, below: Locator) -> None:
    """Below is veiled, above is not, and an answer lifts the veil."""
    page.locator(".wb-quiz").wait_for(timeout=60_000)
    below.wait_for(state="hidden")
    assert above.is_visible() and "One and one" not in page.locator(".wb-quiz").inner_text()
    page.locator(".wb-quiz").get_by_text("2", exact=True).click()
    below.wait_for(state="visible")
    page.get_by_text("Right. One and one.").wait_for()


@pytest.mark.parametrize("host", ["lab", "notebook7"])
def test_the_cells_below_a_question_are_veiled_in_jupyter(host, request, browser, artefacts):
    server = request.getfixturevalue(host)
    write_notebook(server.files / "quiz.ipynb", ["print('above')", ASK, "print('the', 'sum is 2')"])
    with opened(browser, server, "quiz.ipynb") as notebook:
        notebook.run_all()
        page = notebook.page
        page.screenshot(path=str(artefacts / f"quiz-{host}.png"))
        answered(page, page.locator(".jp-OutputArea-output", has_text="above").first, page.get_by_text("the sum is 2"))
        with server.kernel_of("quiz.ipynb") as kernel:
            assert eventually(lambda: kernel.value("asked.chosen")) == "2"
        assert notebook.errors() == []
        assert notebook.ours() == []


@pytest.mark.parametrize("mode", ["run", "edit"])
def test_the_cells_below_a_question_are_veiled_in_marimo(mode, tmp_path, browser, artefacts):
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    try:
        page = context.new_page()
        with marimo(tmp_path, MARIMO % ASK.replace("\n", "\n    "), mode) as address:
            eventually(lambda: reached(page, address), bool, 60)
            answered(page, page.get_by_text("'it stands above'").first, page.get_by_text("'the sum is 2'"))
            page.screenshot(path=str(artefacts / f"quiz-marimo-{mode}.png"))
    finally:
        context.close()
