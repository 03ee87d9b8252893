"""A parameter that every thread of every step reads, and numbers of about one size, in a page of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import workbench as wb

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
STEPS, COUNT = 120, 100


@wb.kernel
def spring(x: wb.array[float], v: wb.array[float], k: wb.array[float], dt: float):
    i = wb.tid()
    v[i] = v[i] - dt * k[0] * x[i]
    x[i] = x[i] + dt * v[i]


@wb.kernel
def total(x: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, x[i])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[wb.Tape, wb.array, Path]:
    x = wb.array(np.linspace(0.0347, 0.035, COUNT), dtype=float, requires_grad=True, name="x")
    v = wb.zeros(COUNT, dtype=float, requires_grad=True, name="v")
    k = wb.array([4.0], dtype=float, requires_grad=True, name="k")
    loss = wb.zeros(1, dtype=float, requires_grad=True, name="loss")
    with wb.Tape() as tape:
        for _ in range(STEPS):
            wb.launch(spring, COUNT, [x, v, k, 0.05])
        wb.launch(total, COUNT, [x, loss])
    tape.backward(loss)
    path = tape.to_html(tmp_path_factory.mktemp("sums") / "sums.html", cells=[(k, (0,))], threads=[])
    return tape, k, path


@pytest.fixture
def page(browser: Browser, made: tuple[wb.Tape, wb.array, Path]) -> Iterator[Page]:
    found = browser.new_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    found.goto(made[2].as_uri())
    found.wait_for_selector(".wb-verdict[aria-busy=false]")
    yield found
    found.close()


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def test_the_ledger_of_a_shared_parameter_sums_per_line_step_and_launch(page: Page, made) -> None:
    tape, k, path = made
    rows = tape.ledger(k, 0, at="start").rows
    plus, minus = (sum(row.value for row in rows if row.value * sign > 0) for sign in (1, -1))
    assert len(rows) > 10_000 and plus > 0 > minus, "they cancel"
    assert path.stat().st_size < 8_000_000
    page.locator("[data-name='k']").first.click()
    page.get_by_label("index of the element").fill("0")
    page.keyboard.press("Enter")
    page.get_by_role("tab", name="ledger").click()
    order = page.get_by_label("order of the contributions")
    order.wait_for()
    said = page.locator(".wb-cancels").inner_text()
    assert f"{len(rows)} contributions" in said
    shown = [number(part) for part in said.splitlines()[0].split(": ")[1].split(" and ")]
    assert shown == pytest.approx([plus, minus], rel=1e-4)
    listed = page.locator(".wb-rows button.wb-row .wb-number")
    assert [number(text) for text in listed.all_inner_texts()] == pytest.approx([plus + minus], rel=1e-4), "one line"
    for by, many in (("per step", STEPS), ("per launch", STEPS)):
        order.select_option(by)
        sums = [number(text) for text in listed.all_inner_texts()]
        assert many - 2 <= len(sums) <= many and sum(sums) == pytest.approx(plus + minus, rel=1e-3)
        assert [abs(s) for s in sums] == sorted((abs(s) for s in sums), reverse=True)
    order.select_option("per step")
    step = {row.position: 0.0 for row in rows}
    for row in rows:
        step[row.position] += row.value
    most = max(step, key=lambda n: abs(step[n]))
    first = page.locator(".wb-rows button.wb-row").first
    assert f"step {most} " in first.inner_text()
    order.select_option("by size")
    sizes = [abs(number(text)) for text in listed.all_inner_texts()]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == pytest.approx(max(abs(r.value) for r in rows), rel=1e-4)


def test_colours_fit_numbers_of_about_one_size_and_say_how_they_grow(page: Page) -> None:
    page.get_by_label("array", exact=True).select_option(label="x  float32 (100)")
    scale = page.locator(".wb-heats figure").first.locator(".wb-colours")
    assert scale.locator(".wb-tickmark").all_inner_texts() == ["0.0347", "0.03485", "0.035"]
    assert scale.locator(".wb-growth").inner_text() == "linear"
    colours = page.locator("canvas.wb-heat").first.evaluate(
        """(canvas) => { const pen = canvas.getContext("2d"), at = (x, y) => [...pen.getImageData(x, y, 1, 1).data];
            return [at(4, 4), at(4, canvas.height - 8)]; }"""
    )
    assert abs(colours[0][0] - colours[1][0]) > 60, "the least and a large one are told apart"
    page.get_by_label("array", exact=True).select_option(label="loss  float32 (1)")
    page.locator(".wb-heats .wb-head", has_text="loss").wait_for()
    assert page.locator(".wb-heats figure").nth(1).locator(".wb-growth").inner_text() == "√"
