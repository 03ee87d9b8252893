"""Widgets whose scripts anywidget finds too late, as on a busy machine: they hear the kernel all the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lab import JupyterLab
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
SAMPLES = Path(__file__).resolve().parents[1] / "support" / "view_samples.py"
CELLS = [
    'import workbench as wb, view_samples as samples\ntape, arrays = samples.springs()\nx = arrays["positions"]',
    "view = tape.explore()\nview",
    "panel = tape.seeds(x)\npanel",
    'asked = wb.viz.predict("One and one?", ["1", "2"], right="2", because="One and one.")\nasked',
]
AT_ONCE = """() => {
    window.patient = AbortSignal.timeout;
    AbortSignal.timeout = () => { const c = new AbortController(); queueMicrotask(() => c.abort()); return c.signal; };
}"""


def test_widgets_that_were_given_up_live_all_the_same(lab: JupyterLab, browser: Browser) -> None:
    from lab import eventually, of_late_loading, opened, write_notebook

    shutil.copy(SAMPLES, lab.files / SAMPLES.name)
    write_notebook(lab.files / "late.ipynb", CELLS)
    with opened(browser, lab, "late.ipynb") as notebook:
        page = notebook.page
        page.evaluate(AT_ONCE)
        try:
            notebook.run_all()
            assert notebook.errors() == []
            notebook.wait_text("positions before #0 forces")
            view = page.locator(".wb-view").first
            with lab.kernel_of("late.ipynb") as kernel:
                kernel.value("setattr(view, 'cursor', 2)")
                view.get_by_text("3 of 5 reversed", exact=True).wait_for()
                view.get_by_role("button", name="undo").first.click()
                eventually(lambda: kernel.value("view.cursor"), lambda cursor: cursor == 3)
                view.get_by_text("2 of 5 reversed", exact=True).wait_for()
                view.locator(".wb-verdict, .wb-note").first.wait_for(state="attached")
                page.get_by_role("application", name="element of positions").click()
                kernel.value("setattr(panel.picker, 'picked', [1, 1])")
                said = page.locator(".wb-pick output")
                eventually(said.inner_text, lambda text: text.startswith("positions[1, 1] = "))
            page.locator(".wb-quiz").get_by_text("2", exact=True).click()
            notebook.wait_text("Right. One and one.")
        finally:
            page.evaluate("() => { AbortSignal.timeout = window.patient; }")
        assert any(map(of_late_loading, notebook.complaints)), "or the exception made for it can go"
        assert notebook.ours() == []
