"""The strip in a real JupyterLab: filled without being asked, one click to the cause, a second run with all values; at
both sizes, both zooms and in both themes; and what it says while a long cell runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from lab import DARK, LIGHT, eventually, opened, write_notebook

if TYPE_CHECKING:
    from lab import JupyterLab

pytestmark = pytest.mark.browser
CELLS = [
    "import time\nfrom tests.support import ten_bugs\ntape, bug = ten_bugs.nan()\nview = tape.explore()\nview",
    "time.sleep(4)  # the view of the cell before is on the page, and the kernel is not free",
]


@pytest.fixture(scope="module")
def lab_view(lab: JupyterLab, browser: Any) -> Iterator[Any]:
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
    assert notebook.ours() == [] and notebook.off_site == []


def test_what_was_not_kept_comes_with_a_second_run(lab_view):
    notebook, kernel = lab_view
    page = notebook.page
    again = page.get_by_role("button", name="run again with everything kept")
    again.wait_for(timeout=60_000)
    again.click()
    again.wait_for(state="detached", timeout=60_000)
    page.locator(".wb-verdict", has_text="every value at every moment is known").wait_for()
    assert kernel.value("view._kept is not None")


# ---- other bugs, other sizes

NAMES = ["race", "alias", "custom_rule"]
BUGS = [
    f"from tests.support import ten_bugs\ntape, bug = ten_bugs.{name}()\n{name} = tape.explore(), bug\n{name}[0]"
    for name in NAMES
]
SIZES = [(1440, 900, 1.0, LIGHT), (1024, 768, 1.0, DARK), (1440, 900, 1.5, DARK), (1024, 768, 1.5, LIGHT)]
SEEN = """node => {
    if (!node.isConnected) return "just drawn anew";
    const box = node.getBoundingClientRect(), x = box.left + Math.min(box.width / 2, 20), y = box.top + box.height / 2;
    for (let at = node.parentElement; at !== document.body; at = at.parentElement) {
        const { top, bottom, left, right } = at.getBoundingClientRect();
        const inside = y >= top && y <= bottom && x >= left && x <= right;
        if (getComputedStyle(at).overflowY !== "visible" && bottom > top && !inside) return at.className || at.tagName;
    }
    return x >= 0 && y >= 0 && x <= innerWidth && y <= innerHeight ? "" : "out of the window";
}"""


@pytest.fixture(scope="module")
def three_views(lab: JupyterLab, browser: Any) -> Iterator[Any]:
    write_notebook(lab.files / "bugs.ipynb", BUGS)
    with opened(browser, lab, "bugs.ipynb", size=(1440, 900)) as notebook:
        notebook.run_all()
        assert notebook.errors() == []
        with lab.kernel_of("bugs.ipynb") as kernel:
            yield notebook, kernel


@pytest.mark.parametrize("size", SIZES, ids=["1440", "1024 dark", "1440 at 150 % dark", "1024 at 150 %"])
@pytest.mark.parametrize("name", NAMES)
def test_the_strip_names_launch_and_line_and_one_click_shows_them(three_views, artefacts, name, size):
    notebook, kernel = three_views
    wide, tall, zoom, theme = size
    page, view = notebook.page, notebook.page.locator(".wb-view").nth(NAMES.index(name))
    page.set_viewport_size({"width": round(wide / zoom), "height": round(tall / zoom)})
    if page.locator(f"body[data-jp-theme-name='{theme}']").count() == 0:
        notebook.theme(theme)
    kernel.value(f"exec('{name}[0].cursor = 0; {name}[0].launch = -1; {name}[0].thread = []')")
    found = view.locator(".wb-found, .wb-chip").first
    found.wait_for(timeout=60_000)
    launch, line, arrays, says, thread, statement = kernel.value(
        f"tuple(getattr({name}[1], k) for k in ('launch', 'line', 'arrays', 'says', 'thread', 'statement'))"
    )
    assert all(words in found.inner_text() for words in (launch, f"line {line}", says, *arrays))
    found.click()
    number = int(launch.split()[0][1:])
    eventually(lambda: kernel.value(f"{name}[0].launch"), lambda found: found == number, 60)
    view.locator(".wb-scope .wb-head", has_text=launch).wait_for()
    view.locator("tr.now").wait_for()
    assert f"line {statement}:" in str(view.locator(".wb-scope input[type=range]").get_attribute("aria-valuetext"))
    if thread is not None:
        assert kernel.value(f"{name}[0].thread") == [thread]
    assert view.locator(".event.current").get_attribute("data-a") == str(number)
    for seen in (".event.current", "rect.marked", "tr.now", ".wb-scope .wb-head"):
        eventually(lambda seen=seen: (seen, view.locator(seen).first.evaluate(SEEN)), lambda found: not found[1], 60)
    page.screenshot(path=str(artefacts / f"lab-{name}-{wide}-{zoom}.png"))
    assert notebook.ours() == []


def test_while_a_long_cell_runs_the_view_says_so_and_answers_by_itself(three_views):
    notebook, kernel = three_views
    notebook.page.evaluate(
        """name => {
            const panel = Array.from(window.jupyterapp.shell.widgets("main")).find((w) => w.context?.path === name);
            panel.sessionContext.session.kernel.requestExecute({ code: "import time; time.sleep(6)" });
        }""",
        "bugs.ipynb",
    )
    view = notebook.page.locator(".wb-view").nth(NAMES.index("custom_rule"))
    eventually(notebook.status, lambda status: status == "busy", 60)
    view.get_by_role("button", name="run again with everything kept").click()
    view.locator(".wb-status", has_text="busy: a cell is running").wait_for(timeout=20_000)
    assert view.get_by_role("button", name="running again").is_disabled()
    view.locator(".wb-verdict", has_text="every value at every moment is known").wait_for(timeout=60_000)
    eventually(view.locator(".wb-status").inner_text, lambda text: "busy" not in text, 60)
    assert kernel.value("custom_rule[0]._kept is not None") and notebook.ours() == []
