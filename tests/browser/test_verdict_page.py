"""The strip on a page: it names the planted bug without being asked, and one click shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import workbench as wb
from tests.support import ten_bugs, view_samples as samples
from tests.support.trust_programs import staircase

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def opened(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder, contexts = tmp_path_factory.mktemp("verdicts"), []

    def show(name: str, tape: Any, **choices: Any) -> Page:
        path: Path = tape.to_html(folder / f"{name}.html", **choices)
        context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
        contexts.append(context)
        page = context.new_page()
        page.goto(path.as_uri())
        page.wait_for_selector(".wb-verdict[aria-busy=false]", state="attached")
        return page

    yield show
    for context in contexts:
        context.close()


def in_sight(page: Page, selector: str) -> bool:
    """Is the middle of an element inside the window and inside the lanes that it is scrolled in."""
    return page.locator(selector).first.evaluate("""node => {
        const box = node.getBoundingClientRect(), plot = node.closest(".wb-plot")?.getBoundingClientRect();
        const y = box.top + box.height / 2, low = Math.max(plot?.top ?? 0, 0);
        return y >= low && y <= Math.min(plot?.bottom ?? innerHeight, innerHeight) && box.right > 0;
    }""")


def test_the_strip_says_how_far_the_gradient_is_good_and_leads_to_what_ends_it(opened):
    x, out = wb.array([0.55], requires_grad=True), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(staircase, 1, [x], [out])
    tape.backward(out)
    page = opened("followed", tape)
    told = page.locator(".wb-trust button")
    told.wait_for()
    assert told.inner_text().startswith("exact; good for steps up to 0.04")
    assert "a decision falls otherwise in line" in told.inner_text()
    told.click()
    assert page.locator(".event.current").get_attribute("data-a") == "0"
    page.locator("tr.now").wait_for()
    assert "time of impact" in page.locator(".wb-cause").inner_text()


@pytest.mark.parametrize("name", list(ten_bugs.BUGS))
def test_the_strip_names_the_bug_and_one_click_shows_it(opened, name):
    tape, bug = ten_bugs.BUGS[name]()
    page = opened(name, tape, cells=[], threads=[], **({"against": bug.other} if bug.other is not None else {}))
    first = page.locator(".wb-found, .wb-chip").first  # what is only good to know is no alarm
    strip = first.inner_text()
    for words in (bug.launch, f"line {bug.line}", bug.says, *bug.arrays):
        assert words in strip
    first.click()
    number = bug.launch.split()[0][1:]
    assert page.locator(".event.current").get_attribute("data-a") == number, "unfolded and chosen"
    assert page.locator(".event.current").get_attribute("data-b") == str(int(number) + 1)
    assert page.locator("rect.marked").count() > 0
    for seen in (".wb-plot", ".event.current", "rect.marked"):
        assert in_sight(page, seen), seen
    page.locator("tr.now").wait_for()
    assert bug.launch in page.locator(".wb-scope .wb-head").inner_text()
    said = page.locator(".wb-scope input[type=range]").get_attribute("aria-valuetext")
    assert f"line {bug.statement}:" in str(said)
    assert in_sight(page, "tr.now"), "the microscope stands beside the lanes"
    if bug.thread is not None:
        assert f"thread {bug.thread}" in page.locator(".wb-scope .wb-head").inner_text()


def test_further_findings_stand_beside_the_first_and_unfold(opened):
    page = opened("overwritten-again", ten_bugs.BUGS["overwritten"]()[0], cells=[], threads=[])
    assert page.locator(".wb-chip").all_inner_texts() == ["• not-on-path #1"], "what is ordinary waits in the list"
    every = page.locator(".wb-all")
    assert every.get_attribute("aria-expanded") == "false" and not page.locator(".wb-findings").is_visible()
    every.click()
    assert page.locator(".wb-finding").count() == 3
    assert "Fix:" in page.locator(".wb-finding").first.inner_text()
    page.locator(".wb-chip").first.click()
    assert page.locator(".event.current").get_attribute("data-a") == "1"
    page.emulate_media(media="print")
    page.locator(".wb-all").evaluate("node => node.click()")
    assert page.locator(".wb-findings").is_visible(), "print unfolds everything"


def test_where_nothing_is_wrong_the_strip_is_quiet(opened):
    x, y = wb.array([2.0, 5.0], requires_grad=True), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(samples.root, dim=2, inputs=[x], outputs=[y])
    tape.backward(grads={y: wb.ones(2)})
    page = opened("quiet", tape)
    assert page.locator(".wb-verdict").inner_text() == "no problem found; adjoints from 0.5 to 1"
    assert "quiet" in str(page.locator(".wb-verdict").get_attribute("class"))


def test_names_in_the_strip_are_text(opened):
    x = wb.array([0.5, 2.0], dtype=float, requires_grad=True, name="<img src=x onerror=document.title='pwned'>")
    y = wb.zeros(2, name="</script><b>bold</b>")
    with wb.Tape() as tape:
        wb.launch(samples.root, dim=2, inputs=[x], outputs=[y])
    tape.backward(grads={y: wb.ones(2)})
    page = opened("hostile", tape)
    assert "</script><b>bold</b>" in page.locator(".wb-found").inner_text()
    assert page.locator(".wb-verdict b, .wb-verdict img").count() == 0 and not re.search("pwned", page.title())


def test_a_pass_that_is_wrong_on_purpose_has_its_warning_and_no_strip(opened):
    tape, arrays = samples.springs()
    wrong = tape.backward(arrays["loss"], pitfall=wb.pitfalls.alias)
    page = opened("wrong", tape, wrong=wrong)
    assert not page.locator(".wb-verdict").is_visible() and page.locator(".wb-warning").is_visible()
