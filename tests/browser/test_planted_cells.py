"""Programs pasted into cells: the first screen says what, where, why and what to do, and one click leads to the cause.

The cells run in an IPython of their own; their views are written as pages, and three of them opened in a real Lab.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab import ROOT, eventually, opened, write_notebook

from tests.support.planted_cells import BUGS, HEALTHY, Planted

if TYPE_CHECKING:
    from lab import JupyterLab
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser
PAGES = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from tests.support.planted_cells import BUGS, HEALTHY
for name, planted in (BUGS | HEALTHY).items():
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    program, shown = planted.cells
    call = shown.replace(".explore(", f".to_html({sys.argv[1] + '/' + name + '.html'!r}, ")
    for cell in (program, call):
        shell.run_cell(cell, store_history=True).raise_error()
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("planted")
    run = [sys.executable, "-c", PAGES, str(folder)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def shown(browser: Browser, pages: Path) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")

    def show(name: str) -> Page:
        page = context.new_page()
        page.goto((pages / f"{name}.html").as_uri())
        page.wait_for_selector(".wb-verdict[aria-busy=false]", state="attached")
        return page

    yield show
    context.close()


def in_sight(found: Locator) -> bool:
    """True if all of it is in the window."""
    return found.evaluate("n => { const b = n.getBoundingClientRect(); return b.top >= 0 && b.bottom <= innerHeight; }")


def first_screen(page: Page, planted: Planted) -> None:
    """What, where, why and what to do."""
    strip = page.locator(".wb-verdict")
    assert in_sight(strip)
    head = strip.locator(".wb-chip" if planted.calm else ".wb-found").first.inner_text()
    assert all(words in head for words in planted.says), head
    if planted.calm:  # nothing is wrong: the way out comes with a click
        assert strip.inner_text().startswith("no problem found")
        return
    cause = page.locator(".wb-cause")
    lines = cause.locator("code").first.inner_text().split("\n")
    assert any(line.startswith("In[1]:") and line.endswith(f": {planted.line}") for line in lines), lines
    assert planted.way_out in cause.inner_text()
    assert cause.locator(".wb-mended").all_inner_texts() == ([planted.mended] if planted.mended else [])


@pytest.mark.parametrize("name", list(BUGS))
def test_the_first_screen_says_all_and_one_click_leads_to_the_cause(shown, name):
    planted = BUGS[name]
    page = shown(name)
    first_screen(page, planted)
    before = page.evaluate("scrollY")
    page.locator(".wb-chip" if planted.calm else ".wb-found").first.click()
    assert planted.way_out in page.locator(".wb-cause").inner_text()
    if planted.launch < 0:
        assert page.evaluate("scrollY") == before and page.locator(".event.current").count() == 1
        return
    assert page.locator(".event.current").get_attribute("data-a") == str(planted.launch)
    assert page.locator("rect.marked").count() > 0
    if planted.statement:
        page.locator("tr.now").wait_for()
        head = page.locator(".wb-scope .wb-head").inner_text()
        assert f"inside #{planted.launch} " in head and f"thread {planted.thread} " in head
        assert planted.statement in "".join(page.locator("tr.now .wb-source, tr.lit .wb-source").all_inner_texts())
        assert in_sight(page.locator("tr.now"))


@pytest.mark.parametrize("name", ["sqrt", "one_of_eight", "overwritten", "alias"])
def test_the_memory_of_the_finding_stands_on_top_and_its_launch_in_the_window(shown, name):
    planted = BUGS[name]
    page = shown(name)
    assert page.locator("rect.marked").count() > 0
    tops = page.locator(".chip").evaluate_all("all => all.map((n) => n.getBoundingClientRect().top)")
    marked = page.locator("rect.marked").first.evaluate("n => n.getBoundingClientRect().top")
    assert abs(min(tops) - marked) < 40, "the first row is the marked one"
    assert page.locator(f".event[data-a='{planted.launch}'][data-b='{planted.launch + 1}']").count() == 1
    assert (
        page.locator(".wb-moment").inner_text().split(" of ")[0] == page.locator(".wb-moment").inner_text().split()[2]
    )


def test_the_mended_line_is_copied(shown):
    page = shown("sqrt")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="copy the mended line").click()
    page.locator(".wb-status", has_text="copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == BUGS["sqrt"].mended


def test_one_bad_number_of_eight_is_a_share_of_its_lane(shown):
    page = shown("one_of_eight")
    tall = "n => Number(n.getAttribute('height'))"
    assert page.locator("rect.block.nan").first.evaluate(tall) < 5, "of 14"
    assert page.locator("rect.bar.nan").first.evaluate(tall) < 5
    assert page.locator("rect.bar.value").count() > 0, "the adjoints of the other seven flow"
    page.get_by_role("button", name="fold every scope and loop").click()
    strips = page.locator("path.strip.bar.nan").all()
    assert strips and all(f"v{t}" not in one.get_attribute("d") for one in strips for t in (13, 14))


@pytest.mark.parametrize("name", list(HEALTHY))
def test_a_healthy_program_raises_no_alarm(shown, name):
    page = shown(name)
    assert page.locator(".wb-verdict").inner_text().startswith("no problem found")
    assert page.locator(".wb-verdict.quiet").count() == 1 and page.locator("rect.marked, .finding").count() == 0
    assert page.locator(".wb-cause").inner_text() == "" and not page.locator(".wb-findings").is_visible()


def test_names_are_those_of_objects_not_keys_of_dictionaries(shown):
    names = shown("bodies").locator(".chip").evaluate_all("all => all.map((n) => n.dataset.name)")
    assert "body.mass" in names and not any("'" in name for name in names)


# ---- in a real Lab


@pytest.mark.parametrize("name", ["sqrt", "piled", "missing_zero"])
def test_in_a_real_lab_the_first_screen_says_the_same(lab: JupyterLab, browser: Browser, artefacts: Path, name):
    write_notebook(lab.files / f"planted_{name}.ipynb", list(BUGS[name].cells))
    with opened(browser, lab, f"planted_{name}.ipynb", size=(1440, 900)) as notebook:
        notebook.run_all()
        page = notebook.page
        page.locator(".wb-verdict[aria-busy=false]").wait_for(timeout=60_000)
        page.locator(".wb-view").evaluate("node => node.scrollIntoView({ block: 'start' })")
        first_screen(page, BUGS[name])
        page.screenshot(path=str(artefacts / f"planted-{name}.png"))
        page.locator(".wb-found, .wb-chip").first.click()
        if BUGS[name].thread:
            eventually(page.locator(".wb-scope .wb-head").inner_text, lambda text: f"#{BUGS[name].launch} " in text, 60)
        assert in_sight(page.locator(".wb-verdict")) and notebook.ours() == []
