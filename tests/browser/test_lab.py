"""Notebooks in a real JupyterLab, driven through a real browser."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lab import JupyterLab, NotebookPage

pytestmark = pytest.mark.browser


def test_a_notebook_runs_in_jupyterlab_and_its_output_appears(
    lab: JupyterLab, open_notebook: Callable[[str], NotebookPage], artefacts: Path
) -> None:
    from lab import write_notebook

    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><rect width="40" height="40" fill="red"/></svg>'
    )
    source = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
    shown = f'from IPython.display import HTML\nHTML(\'<img alt="a red square" src="{source}">\')'
    write_notebook(lab.files / "plain.ipynb", ["x = 6 * 7", "print('the answer is', x)", shown])
    notebook = open_notebook("plain.ipynb")
    notebook.run_all()
    assert notebook.page.get_by_text("the answer is 42").is_visible()
    assert notebook.page.get_by_alt_text("a red square").is_visible()
    assert notebook.errors() == []
    with lab.kernel_of("plain.ipynb") as kernel:
        assert kernel.value("x + 1") == 43
    assert notebook.off_site == []
    assert notebook.ours() == []
    assert all(file.stat().st_size > 5_000 for file in notebook.screenshots(artefacts, "plain"))


def test_an_error_in_a_cell_is_seen(lab: JupyterLab, open_notebook: Callable[[str], NotebookPage]) -> None:
    from lab import write_notebook

    write_notebook(lab.files / "wrong.ipynb", ["1 / 0", "never = 1"])
    notebook = open_notebook("wrong.ipynb")
    notebook.run_all()
    assert notebook.errors() == ["ZeroDivisionError: division by zero"]


def test_a_request_to_another_machine_is_stopped_and_remembered(
    lab: JupyterLab, open_notebook: Callable[[str], NotebookPage]
) -> None:
    from lab import write_notebook

    write_notebook(lab.files / "curious.ipynb", ["1"])
    notebook = open_notebook("curious.ipynb")
    answer = notebook.page.evaluate("fetch('https://example.invalid/x.js').then(() => 'came', () => 'stopped')")
    assert answer == "stopped"
    assert notebook.off_site == ["https://example.invalid/x.js"]
