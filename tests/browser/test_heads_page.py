"""What stands above the lanes, on a page: heads of launches stay in the plot, a folded loop has the room of its strip,
a finding is not hidden, and the cursor stands where the finding is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab import eventually

import workbench as wb
from tests.support import ten_bugs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
BOXES = """selector => [...document.querySelectorAll(selector)].map((one) => {
    const box = one.getBoundingClientRect(); return [box.left, box.right, box.top, box.bottom]; })"""


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    tape, _ = ten_bugs.nan()
    path = tape.to_html(tmp_path_factory.mktemp("heads") / "nan.html", cells=[], threads=[])
    found = browser.new_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    found.goto(path.as_uri())
    found.wait_for_selector(".wb-verdict[aria-busy=false]")
    yield found
    found.close()


def heads(page: Page) -> list[list[float]]:
    return page.evaluate(
        BOXES, ".wb-lanes .event, .wb-lanes .foldedge, .wb-lanes .badge, .wb-lanes text.mono, .wb-lanes .finding"
    )


def names_end(page: Page) -> float:
    """Where the column of the names of the lanes, with `value` and `adjoint` behind them, ends."""
    return max(box[1] for box in page.evaluate(BOXES, ".wb-lanes text.hot"))


def test_a_loop_of_many_launches_has_the_room_that_its_strip_needs(page: Page) -> None:
    page.get_by_role("button", name="fold every scope and loop").click()
    widths = page.locator(".wb-lanes .cell[data-key$=':-1']").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect().width)"
    )
    fold, *single = widths
    assert len(widths) == 3 and fold >= 2.5 * max(single), widths
    texts = page.locator(".wb-lanes text.mono").all_text_contents()
    assert "energy #400" in texts and "misfit #401" in texts, "the others keep their names"
    strips = page.evaluate(BOXES, ".wb-lanes .strip.block")
    assert max(box[1] - box[0] for box in strips) > 250, "more than a pixel for each of 200 turns"


def test_no_head_stands_over_the_names_of_the_lanes_wherever_the_picture_is_scrolled_to(page: Page) -> None:
    page.get_by_role("button", name="unfold the outermost folds").click()
    for _ in range(5):
        page.get_by_role("button", name="zoom in").click()
    picture = page.locator(".wb-lanes").bounding_box()
    assert picture
    cut = 0
    for _ in range(12):  # a pan by parts of a column
        page.mouse.move(picture["x"] + 450, picture["y"] + 300)
        page.mouse.down()
        page.mouse.move(picture["x"] + 417, picture["y"] + 300, steps=3)
        page.mouse.up()
        page.mouse.move(5, 5)
        plot = names_end(page)
        boxes = page.evaluate(BOXES, ".wb-lanes .event")
        above = [b for b in heads(page) if b[3] <= max(box[3] for box in boxes) + 20]
        assert len(boxes) > 3 and all(box[0] >= plot - 1 for box in above), (plot, above)
        assert all(box[1] <= picture["x"] + picture["width"] for box in above)
        line = page.evaluate(BOXES, ".wb-lanes .cursor:not([visibility=hidden])")
        assert all(box[0] >= plot - 1 for box in line), "nor does the cursor"
        wide = [b[1] - b[0] for b in page.evaluate(BOXES, ".wb-lanes .cell[data-key$=':-1']")]
        cut += wide[0] < 0.8 * max(wide)
    assert cut, "some column was cut at the left edge"
    page.get_by_role("button", name="fold every scope and loop").click()


def test_the_cursor_stands_where_the_finding_is_and_the_values_show_it(page: Page) -> None:
    page.locator(".wb-found").click()
    current = page.locator(".event.current")
    assert current.get_attribute("data-a") == "12"
    head, line = current.bounding_box(), page.locator(".wb-lanes .cursor").bounding_box()
    assert head and line
    middle = head["x"] + head["width"] / 2
    assert middle < line["x"] < head["x"] + head["width"], "behind the launch, not before it"
    page.get_by_role("tab", name="values").click()
    page.locator(".wb-heats .wb-head", has_text="f[6] after #12 narrow").wait_for()
    assert "1 NaN" in page.locator(".wb-heats figcaption").first.inner_text()
    page.get_by_role("button", name="undo one step of the reverse pass").click()
    page.locator(".wb-heats .wb-head", has_text="f[6] before #14 narrow").wait_for()


def test_a_map_that_comes_while_another_panel_is_open_has_its_room(page: Page) -> None:
    page.locator(".wb-found").click()
    page.get_by_role("tab", name="values").click()
    eventually(lambda: page.locator(".wb-heat").first.evaluate("map => map.clientWidth"), lambda wide: wide > 400, 60)


def test_the_sign_of_a_finding_is_not_hidden_by_the_cursor(browser: Browser, tmp_path_factory: Any) -> None:
    tape, _ = ten_bugs.exploding()
    path = tape.to_html(tmp_path_factory.mktemp("heads") / "exploding.html", cells=[], threads=[])
    found = browser.new_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    found.goto(path.as_uri())
    found.locator(".wb-found").click()
    (cursor,) = found.evaluate(BOXES, ".wb-lanes .cursorbox")
    signs = found.evaluate(BOXES, ".wb-lanes .finding")
    assert signs and all(cursor[1] <= s[0] + 1 or s[1] <= cursor[0] + 1 for s in signs), (cursor, signs)
    found.close()


@wb.kernel
def integrate_the_left_front_wheel_of_the_body(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = y[i] + x[i]


@wb.kernel
def integrate_the_right_front_wheel_of_the_body(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = y[i] + x[i]


def test_names_much_alike_show_what_they_differ_in_and_are_whole_in_the_tip_and_to_copy(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, artefacts: Path
) -> None:
    names = ["state.body.mass_left_front_wheel_hub", "state.body.mass_right_front_wheel_hub"]
    left, right = (wb.array([1.0, 2.0], dtype=float, requires_grad=True, name=name) for name in names)
    with wb.Tape() as tape:
        for k in range(6):
            kernel = (integrate_the_left_front_wheel_of_the_body, integrate_the_right_front_wheel_of_the_body)[k % 2]
            wb.launch(kernel, dim=2, inputs=[left], outputs=[right])
    tape.backward(grads={right: wb.ones_like(right)})
    path = tape.to_html(tmp_path_factory.mktemp("alike") / "alike.html", cells=[], threads=[])
    page = browser.new_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    page.goto(path.as_uri())
    page.wait_for_selector(".wb-verdict[aria-busy=false]")
    page.screenshot(path=str(artefacts / "alike.png"))
    chips = [text for text in page.locator(".wb-lanes text.mono").all_text_contents() if text.startswith("state")]
    assert ["left" in text for text in chips] == [True, False] and "right" in chips[1], chips
    heads = [text for text in page.locator(".wb-lanes text.mono").all_text_contents() if text[-2:-1] == "#"]
    assert len(heads) == 6 and all(("left", "right")[k % 2] in text for k, text in enumerate(heads)), heads
    assert all("…" in text for text in chips) and not any("wheel_of_the" in text for text in heads), "they are cut"
    for n, name in enumerate(names):
        chip = page.locator(f".chip[data-name='{name}']")
        chip.hover()
        assert name in page.locator(".wb-tip").inner_text()
        chip.click()
        head = page.locator(".wb-panel:not([hidden]) .wb-head")
        eventually(head.inner_text, lambda text, name=name: name in text, 60)
        head.evaluate("node => getSelection().selectAllChildren(node)")
        assert name in page.evaluate("String(getSelection())"), "what is selected can be copied"
    page.close()
