"""A question in a real JupyterLab: the cells below it wait, and one click on an answer shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lab import JupyterLab, NotebookPage

pytestmark = pytest.mark.browser


def test_the_cells_below_a_question_are_veiled_in_jupyterlab(
    lab: JupyterLab, open_notebook: Callable[[str], NotebookPage]
) -> None:
    from lab import eventually, write_notebook

    ask = (
        'from workbench.viz import predict, seal\nasked = predict("1+1?", ["1", "2"], seal("2", "One and one."))\nasked'
    )
    write_notebook(lab.files / "quiz.ipynb", ["print('above')", ask, "print('the', 'sum is 2')"])
    notebook = open_notebook("quiz.ipynb")
    notebook.run_all()
    page = notebook.page
    page.locator(".wb-quiz").wait_for()
    below, above = page.get_by_text("the sum is 2"), page.locator(".jp-OutputArea-output", has_text="above").first
    below.wait_for(state="hidden")
    assert above.is_visible() and "One and one" not in page.locator(".wb-quiz").inner_text()
    page.locator(".wb-quiz").get_by_text("2", exact=True).click()
    below.wait_for(state="visible")
    page.get_by_text("Right. One and one.").wait_for()
    with lab.kernel_of("quiz.ipynb") as kernel:
        assert eventually(lambda: kernel.value("asked.chosen")) == "2"
    assert notebook.errors() == [] and notebook.complaints == []
