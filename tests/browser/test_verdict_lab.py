"""The strip in a real JupyterLab: filled without being asked, one click to the cause, a second run with all values."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab import eventually, opened, write_notebook

if TYPE_CHECKING:
    from lab import JupyterLab

pytestmark = pytest.mark.browser
TESTS = Path(__file__).resolve().parents[1]
CELLS = [
    "import time, ten_bugs\ntape, bug = ten_bugs.nan()\nview = tape.explore()\nview",
    "time.sleep(4)  # the view of the cell before is on the page, and the kernel is not free",
]


@pytest.fixture(scope="module")
def lab_view(lab: JupyterLab, browser: Any) -> Iterator[Any]:
    for name in ("ten_bugs.py", "diagnosed.py"):
        shutil.copy(TESTS / name, lab.files / name)
    write_notebook(lab.files / "verdict.ipynb", CELLS)
    with opened(browser, lab, "verdict.ipynb") as notebook:
        notebook.run_all()
        assert notebook.errors() == []
        with lab.kernel_of("verdict.ipynb") as kernel:
            yield notebook, kernel


def test_the_strip_is_filled_although_nobody_asked_and_one_click_shows_the_cause(lab_view):
    notebook, kernel = lab_view
    page = notebook.page
    page.locator(".wb-found", has_text="NaN born in").wait_for(timeout=60_000)
    launch, thread, line = kernel.value("(int(bug.launch.split()[0][1:]), bug.thread, bug.line)")
    assert f"#{launch} narrow, thread {thread}, line {line}: sqrt(-" in page.locator(".wb-found").inner_text()
    page.locator(".wb-found").click()
    eventually(
        lambda: kernel.value("(view.launch, view.thread, view.cursor)"), lambda v: v == (launch, [thread], launch + 1)
    )
    page.locator("tr.now").wait_for()
    assert f"line {line}:" in str(page.locator(".wb-scope input[type=range]").get_attribute("aria-valuetext"))
    assert page.locator("rect.marked").count() == 1
    assert notebook.complaints == [] and notebook.off_site == []


def test_what_was_not_kept_comes_with_a_second_run(lab_view):
    notebook, kernel = lab_view
    page = notebook.page
    again = page.get_by_role("button", name="run again with everything kept")
    again.wait_for(timeout=60_000)
    again.click()
    again.wait_for(state="detached", timeout=60_000)
    page.locator(".wb-verdict", has_text="every value at every moment is known").wait_for()
    assert kernel.value("view._kept is not None")
