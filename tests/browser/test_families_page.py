"""Lanes that fold into one row, and how much of the lanes is in sight, on pages over file://."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import view_samples as samples

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
STEPS = 24


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    tape, _ = samples.chain(STEPS)
    path = tape.to_html(tmp_path_factory.mktemp("families") / "list.html", cells=[], threads=[])
    found = browser.new_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    said: list[str] = []
    found.on("pageerror", lambda error: said.append(str(error)))
    found.goto(path.as_uri())
    found.wait_for_selector(".wb-lanes .bar, .wb-lanes .band", state="attached", timeout=60_000)
    yield found
    assert said == []
    found.close()


def names(page: Page) -> list[str]:
    return [text for text in page.locator(".wb-lanes text.mono").all_text_contents() if "[" in text or text.isalpha()]


def places(page: Page) -> Any:
    """Of every name and mark in the lanes where it is."""
    return page.evaluate("""() => [...document.querySelectorAll(".wb-lanes .chip, .wb-lanes .bar, .wb-lanes .block")]
        .map((one) => { const b = one.getBoundingClientRect(); return [one.className.baseVal, b.top, b.bottom]; })""")


def chip(page: Page) -> Any:
    return page.locator(".wb-lanes .chip.stack").last


def test_a_list_is_one_row_until_it_is_opened_and_then_each_array_has_its_lane(page: Page) -> None:
    assert sum("u[" in name for name in names(page)) == 1
    assert any(f"u[0…{STEPS}] ×{STEPS + 1}" in name for name in names(page))
    before = sorted(places(page))
    chip(page).click()
    page.locator(".wb-lanes text.mono", has_text="u[1]").first.wait_for()
    opened = [name for name in names(page) if name.startswith("u[")]
    assert opened[:3] == ["u[0]", "u[1]", "u[2]"]
    for cls, top, bottom in places(page):  # what lies on a lane moved with it
        assert bottom - top < 100 and top > 0, cls
    chip(page).click()
    assert sorted(places(page)) == before


def test_marks_of_an_opened_lane_lie_beside_its_name(page: Page) -> None:
    chip(page).click()
    found = page.evaluate("""() => {
        const all = [...document.querySelectorAll(".wb-lanes text.mono")];
        const name = all.find((one) => one.textContent === "u[0]");
        const lane = name.getBoundingClientRect();
        return [...document.querySelectorAll(".wb-lanes .block")].map((one) => one.getBoundingClientRect())
            .filter((box) => Math.abs(box.top - lane.top) < 20).length;
    }""")
    assert found >= 1
    chip(page).click()


def test_a_shut_list_never_says_zero_where_an_array_of_it_is_not(page: Page) -> None:
    labels = [one.get_attribute("aria-label") or "" for one in page.locator(".wb-lanes .cell").all()]
    family = [label for label in labels if label.startswith("u[0")]
    assert family and not any("adjoint: 0 exactly" in label for label in family)
    assert any(" to " in label for label in family), family


def test_the_keyboard_reaches_and_opens_a_family_and_search_finds_what_is_in_it(page: Page) -> None:
    label = ""
    page.locator(".wb-lanes .cell[tabindex='0']").focus()
    for _ in range(6):
        page.keyboard.press("ArrowDown")
        label = page.evaluate("document.activeElement.getAttribute('aria-label')") or ""
        if label.startswith("u[0…"):
            break
    assert label.startswith("u[0…")
    page.keyboard.press("Enter")
    page.locator(".wb-lanes text.mono", has_text="u[0]").first.wait_for()
    chip(page).click()
    page.get_by_role("searchbox").fill("u[20]")
    page.keyboard.press("Enter")
    page.locator(".wb-lanes text.mono", has_text="u[20]").first.wait_for()
    name = page.locator(".wb-lanes text.mono", has_text="u[20]").first.bounding_box()
    plot = page.locator(".wb-plot").bounding_box()
    assert name and plot and plot["y"] < name["y"] < plot["y"] + plot["height"]
    page.get_by_role("searchbox").fill("")


@pytest.mark.parametrize("tall", [600, 900])
def test_the_lane_in_which_the_gradient_starts_is_in_sight_and_the_head_stays(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, tall: int
) -> None:
    tape = samples.parts(24, low=1.5)
    path = tape.to_html(tmp_path_factory.mktemp("seed") / "parts.html", cells=[], threads=[])
    found = browser.new_page(viewport={"width": 1024, "height": tall}, reduced_motion="reduce")
    found.goto(path.as_uri())
    name = found.locator(".wb-lanes text.mono", has_text="loss").first
    name.wait_for(timeout=60_000)
    plot, seed = found.locator(".wb-plot").bounding_box(), name.bounding_box()
    assert plot and seed and plot["y"] < seed["y"] and seed["y"] + seed["height"] < plot["y"] + plot["height"]
    head = found.locator(".wb-lanes .event").first.bounding_box()
    found.locator(".wb-plot").evaluate("plot => { plot.scrollTop = 0; }")
    found.locator(".wb-lanes text.mono", has_text="first").first.wait_for()
    assert found.locator(".wb-lanes .event").first.bounding_box() == head
    found.close()


def test_heat_maps_use_their_room_also_of_a_view_that_came_onto_the_page_later(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tape, _ = samples.chain(4)
    path = tape.to_html(tmp_path_factory.mktemp("heat") / "heat.html", cells=[], threads=[])
    text = path.read_text("utf-8").replace("<main id=", '<main style="display:none" id=')
    path.write_text(text, "utf-8")
    found = browser.new_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    found.goto(path.as_uri())
    found.wait_for_selector(".wb-heat", state="attached", timeout=60_000)
    found.wait_for_function("document.querySelector('.wb-heat').width > 0 && document.querySelector('.wb-ramp')")
    found.evaluate("document.getElementById('view').style.display = ''")
    found.wait_for_function("document.querySelector('.wb-heat').clientWidth >= 240")
    found.set_viewport_size({"width": 700, "height": 900})
    found.wait_for_function(
        "document.querySelector('.wb-heat').getBoundingClientRect().right <= document.querySelector('.wb-heats')"
        ".getBoundingClientRect().right + 1"
    )
    found.close()


@pytest.mark.parametrize("wide", [1000, 1200, 1440])
def test_names_and_notes_of_a_lane_stay_inside_it(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, wide: int
) -> None:
    tape, _ = samples.springs()
    path = tape.to_html(tmp_path_factory.mktemp("names") / "springs.html", cells=[], threads=[])
    found = browser.new_page(viewport={"width": wide, "height": 900}, reduced_motion="reduce")
    found.goto(path.as_uri())
    found.wait_for_selector(".wb-lanes .chip", timeout=60_000)
    boxes = found.locator(".wb-lanes :is(.chip, .note, .faint)").evaluate_all(
        "all => all.map((one) => { const b = one.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })"
    )
    over = [
        (a, b)
        for k, a in enumerate(boxes)
        for b in boxes[k + 1 :]
        if a[0] < b[2] - 1 and b[0] < a[2] - 1 and a[1] < b[3] - 1 and b[1] < a[3] - 1
    ]
    assert over == []
    heads = found.locator(".wb-lanes .event").evaluate_all("all => all.map((one) => one.getBBox().height)")
    widths = found.locator(".wb-lanes .event").evaluate_all("all => all.map((one) => one.getBBox().width)")
    assert all(tall == 26 or across <= 22 for tall, across in zip(heads, widths, strict=True)), "no tall wide boxes"
    found.close()
