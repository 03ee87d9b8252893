"""Pages for everyone: axe-core finds nothing, and nothing is cut: two sizes, 100 % and 150 % zoom, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import axe_playwright_python
import pytest
from lab import eventually

import workbench as wb
from tests.support import ten_bugs, view_samples as samples

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
RULES = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
    .map((one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160))])"""
CUT = """() => {
    const out = [], wide = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth > wide) out.push(["the page scrolls sideways"]);
    for (const one of document.querySelectorAll(".wb-view :is(button, .wb-head, p, span, td)")) {
        const box = one.getBoundingClientRect();
        if (!box.width || !one.checkVisibility()) continue;
        if (box.left < 0 || box.right > wide + 1) out.push([one.className || one.tagName, box.left, box.right]);
        const hides = getComputedStyle(one).overflowX === "hidden";
        if (hides && one.scrollWidth > one.clientWidth + 1) out.push([one.className, "cut"]);
    }
    const plot = document.querySelector(".wb-plot").getBoundingClientRect();
    for (const one of document.querySelectorAll(".wb-lanes text")) {
        const box = one.getBoundingClientRect();
        const out_of_it = box.left < plot.left - 1 || box.right > plot.right + 1;
        if (box.width && out_of_it) out.push([one.textContent, box.left, box.right]);
    }
    return out;
}"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("access")
    short, arrays = samples.springs()
    wrong = short.backward(arrays["loss"], pitfall=wb.pitfalls.alias)
    long, bug = ten_bugs.missing_dt()
    return {
        "wrong": short.to_html(folder / "wrong.html", against=wrong),
        "parted": long.to_html(folder / "parted.html", cells=[], threads=[], against=bug.other),
        "nan": ten_bugs.nan()[0].to_html(folder / "nan.html", cells=[], threads=[]),
    }


@pytest.fixture
def seen(browser: Browser, files: dict[str, Path]) -> Iterator[Any]:
    contexts = []

    def show(name: str, size: tuple[int, int], zoom: float, scheme: Any) -> Page:
        context = browser.new_context(
            viewport={"width": round(size[0] / zoom), "height": round(size[1] / zoom)},
            device_scale_factor=zoom,
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.goto(files[name].as_uri())
        page.wait_for_selector(".wb-verdict[aria-busy=false]", state="attached")
        page.wait_for_selector(".wb-lanes .cell", state="attached")
        return page

    yield show
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", ["wrong", "parted", "nan"])
@pytest.mark.parametrize(
    ("size", "zoom"), [((1440, 900), 1.0), ((1440, 900), 1.5), ((1024, 768), 1.0), ((1024, 768), 1.5)]
)
def test_nothing_is_cut_and_axe_finds_nothing(seen, name, size, zoom):
    rules = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
    for scheme in ("light", "dark"):
        page = seen(name, size, zoom, scheme)
        assert page.evaluate(CUT) == []
        if name != "wrong":
            page.locator(".wb-found").click()
            page.locator("tr.now").wait_for()
            eventually(lambda page=page: page.evaluate(CUT), lambda cut: cut == [], 60)
        if (size[0] == 1440) == (zoom == 1.0):
            page.evaluate(rules)
            assert page.evaluate(RULES) == [], scheme


@pytest.mark.parametrize("name", ["nan", "parted"])
def test_a_long_tape_on_paper_is_short_and_whole(seen, name):
    page = seen(name, (1280, 900), 1.0, "light")
    page.emulate_media(media="print")
    table = page.locator(".wb-table table")
    eventually(table.is_visible, bool, 60)
    for shown in (".wb-found", ".wb-findings .wb-finding", ".wb-heats figure", ".wb-legend"):
        assert page.locator(shown).first.is_visible(), shown
    assert not page.locator(".wb-ledger").is_visible(), "nothing was chosen, and nobody can choose on paper"
    text = table.inner_text()
    assert "f[0…199] ×200" in text and "f[7] " not in text
    high = page.evaluate("document.documentElement.scrollHeight")
    assert high < 3 * 1123, "three pages of A4"
    lanes = page.locator(".wb-lanes .rule").count()
    assert lanes == page.evaluate("document.querySelectorAll('.wb-lanes .chip:not(.stack)').length") + 1
    page.emulate_media(media="screen")
