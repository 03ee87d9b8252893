"""What is printed on A4 has every launch and nothing beyond the right margin: live view, still picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab import eventually

from tests.support import view_samples
from workbench.viz.picture.window import PAGE

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
A4 = {"width": 794, "height": 1123}
ROWS = """() => [...document.querySelectorAll(".wb-plot svg.wb-lanes")].map((svg) => ({
    heads: [...svg.querySelectorAll(".event")].map((n) => [Number(n.dataset.a), Number(n.dataset.b)]),
    said: [...svg.querySelectorAll("text")].map((n) => n.textContent).filter((text) => text.startsWith("row ")),
    chips: [...svg.querySelectorAll(".chip")].map((n) => n.dataset.name),
    right: svg.getBoundingClientRect().right,
}))"""


@pytest.fixture
def paper(browser: Browser, tmp_path: Path) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")

    def opened(write: Any) -> Any:
        page, file = context.new_page(), tmp_path / "page.html"
        write(file)
        page.goto(file.as_uri())
        return page

    yield opened
    context.close()


@pytest.mark.parametrize(("steps", "rows"), [(2, 1), (9, 4), (200, 1)])
def test_a_printed_view_has_every_launch_in_rows_as_wide_as_the_page(paper, steps, rows, artefacts):
    tape = view_samples.springs(steps)[0]
    page = paper(tape.to_html)
    page.wait_for_selector(".wb-verdict[aria-busy=false]", state="attached")
    page.set_viewport_size(A4)
    page.emulate_media(media="print")
    on_paper = lambda some: len(some) == rows and all(row["right"] <= A4["width"] for row in some)
    found = eventually(lambda: page.evaluate(ROWS), on_paper, 60)
    page.screenshot(path=str(artefacts / f"paper-{steps}.png"), full_page=True)
    heads = [head for row in found for head in row["heads"]]
    assert heads[0][0] == 0 and heads[-1][1] == len(tape.events)
    assert all(before[1] == one[0] for before, one in pairwise(heads)), "each launch once"
    assert all(b - a == 1 for a, b in heads) or steps == 200
    assert all(row["chips"] == found[0]["chips"] for row in found)
    for k, row in enumerate(found):
        (a, _), (_, b) = row["heads"][0], row["heads"][-1]
        on = ", goes on below" if k + 1 < rows else ""
        assert row["said"] == [f"row {k + 1} of {rows}: #{a} to #{b - 1}{on}"] * (rows > 1)
    fills = page.evaluate(
        """() => [...document.querySelectorAll("[fill^='url(#']")].map((n) => n.getAttribute("fill"))"""
    )
    assert fills and all(page.locator(fill[4:-1]).count() == 1 for fill in set(fills)), "hatches are there, once"
    table = page.locator(".wb-table tbody tr").count()
    assert table == len(heads), "the table has what is drawn"
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1440, "height": 900})
    (screen,) = eventually(lambda: page.evaluate(ROWS), lambda some: len(some) == 1 and some[0]["right"] > 800, 60)
    assert screen["said"] == []


@pytest.mark.parametrize("steps", [2, 9])
def test_a_printed_still_picture_is_as_wide_as_the_page(paper, steps):
    tape = view_samples.springs(steps)[0]
    page = paper(tape.show().save)
    page.set_viewport_size(A4)
    page.emulate_media(media="print")
    box = page.locator("img").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= A4["width"]
    assert box["width"] >= 0.8 * page.locator("img").evaluate("image => image.naturalWidth"), "texts stay readable"
    assert page.evaluate("document.documentElement.scrollWidth") <= A4["width"]
    svg = tape.show().svg
    assert max(map(float, re.findall(r'<svg [^>]*?width="([\d.]+)"', svg))) <= PAGE
    assert all(f'id="event-{n}"' in svg for n in range(len(tape.events))), "every launch is in one of the rows"
