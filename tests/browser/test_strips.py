"""A folded loop in a page: thin columns that show where values and adjoints turn NaN, a scale with numbers, names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import workbench as wb

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
TURNS = 80


@wb.kernel
def push_the_particles(x: wb.array(dtype=float), v: wb.array(dtype=float)):
    i = wb.tid()
    v[i] = v[i] + 0.1 * wb.sin(x[i])


@wb.kernel
def move(x: wb.array(dtype=float), v: wb.array(dtype=float)):
    i = wb.tid()
    x[i] = x[i] + 0.1 * v[i] + 0.001 * wb.sqrt(1.5 - x[i])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x leaves the domain of sqrt on the way, so values are NaN from there on, and adjoints before."""
    x = wb.array([0.1, 0.2, 0.9], dtype=float, requires_grad=True, name="x")
    v = wb.zeros(3, dtype=float, requires_grad=True, name="v")
    loss = wb.zeros(3, dtype=float, requires_grad=True, name="loss")
    with wb.Tape() as tape:
        for _ in range(TURNS):
            with tape.scope("step"):
                wb.launch(push_the_particles, dim=3, inputs=[x, v])
                wb.launch(move, dim=3, inputs=[x, v])
        wb.launch(push_the_particles, dim=3, inputs=[v, loss])
    tape.backward(grads={loss: wb.ones_like(loss)})
    return tape.to_html(tmp_path_factory.mktemp("strips") / "nan.html", cells=[], threads=[])


@pytest.mark.parametrize("wide", [1024, 1440])
def test_a_folded_loop_shows_where_it_turns_nan_and_says_so(browser: Browser, path: Path, wide: int) -> None:
    page = browser.new_page(viewport={"width": wide, "height": 900})
    page.goto(path.as_uri())
    page.wait_for_selector(".wb-found")
    page.get_by_role("button", name="fold every scope and loop").click()
    page.wait_for_selector(".strip.bar.nan", state="attached")
    heads = page.locator(".wb-lanes text.mono").all_text_contents()
    assert f"step ×{TURNS}" in heads
    black = [mark.bounding_box() for mark in page.locator(".strip.block.nan").all()]
    known = [mark.bounding_box() for mark in page.locator(".strip.block:not(.nan)").all()]
    assert len(black) == 2 and known, "x and v turn NaN on the way, and begin well"
    assert all(box["width"] > 20 for box in black) and any(k["x"] < b["x"] for k in known for b in black)
    ticks = page.locator(".wb-scale text").all_text_contents()
    assert len(ticks) >= 3 and len(set(ticks)) == len(ticks)
    cells = page.locator(".cell").evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
    assert any("adjoint: NaN first in #" in said and "values: NaN written by #" in said for said in cells)
    page.get_by_role("button", name="unfold the outermost folds").click()
    for _ in range(2):
        page.get_by_role("button", name="show the whole tape").click()
        texts = page.locator(".wb-lanes text.mono").all_text_contents()
        assert texts and not [text for text in texts if text.startswith("#")]
        steps = [text for text in texts if re.fullmatch(r"(step )?\d+(–\d+)?", text)]
        assert len(steps) > 4, "the unit is a step of the loop"
        page.get_by_role("button", name="zoom in").click()
    for _ in range(4):
        page.get_by_role("button", name="zoom in").click()
    page.locator(".event.fold").first.click(force=True)
    texts = page.locator(".wb-lanes text.mono").all_text_contents()
    assert any("#" in text and text.startswith("push") for text in texts)
    page.close()
