"""The axis of the live view counts the steps of the user's loop: folded, unfolded, zoomed, chosen, played."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
from lab import eventually

import workbench as wb

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
STEPS, BAD = 200, 130


@wb.kernel
def pull(x: wb.array[float], f: wb.array[float], c: float):
    i = wb.tid()
    f[i] = wb.sqrt(c - x[i])


@wb.kernel
def drift(x: wb.array[float], f: wb.array[float], dt: float):
    i = wb.tid()
    x[i] = x[i] + dt * f[i]


@wb.kernel
def observe(x: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, x[i])


def simulation(bad: int = STEPS + 1, keep: float = 1.0) -> wb.Tape:
    x = wb.array(np.linspace(0.1, 1, 8), dtype=float, requires_grad=True, name="x")
    f = wb.zeros(8, dtype=float, requires_grad=True, name="f")
    loss = wb.zeros(1, dtype=float, requires_grad=True, name="loss")
    with wb.Tape() as tape:
        for k in range(STEPS):
            wb.launch(pull, 8, [x, f, 3.7 if k < bad else 0.5])
            wb.launch(drift, 8, [x, f, 0.005])
            if k % 20 == 0:
                wb.launch(observe, 8, [x, loss])
        wb.launch(observe, 8, [x, loss])
    tape.backward(loss)
    return tape


@wb.kernel
def squash(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = 0.5 * wb.tanh(x[i])


def vanishing() -> wb.Tape:
    """The adjoint halves 140 times on its way back: below 1e-40 at the first step."""
    a = [wb.full(4, 0.01, dtype=float, requires_grad=True, name=f"a[{k}]") for k in range(141)]
    with wb.Tape() as tape:
        for k in range(140):
            wb.launch(squash, 4, [a[k], a[k + 1]])
    tape.backward(grads={a[-1]: wb.ones_like(a[-1])})
    return tape


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("axis")
    made = {"well": simulation(), "nan": simulation(BAD), "small": vanishing()}
    return {name: tape.to_html(folder / f"{name}.html", cells=[], threads=[]) for name, tape in made.items()}


@pytest.fixture
def show(browser: Browser, paths: dict[str, Path]) -> Iterator[Callable[..., Page]]:
    shown = []

    def opened(
        name: str, wide: int = 1440, high: int = 900, motion: Literal["reduce", "no-preference"] = "reduce"
    ) -> Page:
        page = browser.new_page(viewport={"width": wide, "height": high}, reduced_motion=motion)
        shown.append(page)
        page.goto(paths[name].as_uri())
        page.wait_for_selector(".wb-verdict[aria-busy=false]")
        return page

    yield opened
    for page in shown:
        page.close()


def click(page: Page, name: str, times: int = 1) -> None:
    for _ in range(times):
        page.get_by_role("button", name=name).click()


def heads(page: Page) -> list[str]:
    return page.locator(".wb-lanes text.mono[transform], .wb-lanes text.mono[y]").all_text_contents()


SIZES = [(1440, 900), (1024, 768)]


@pytest.mark.parametrize(("wide", "high"), SIZES)
def test_a_loop_with_an_occasional_launch_is_its_steps(show: Callable[..., Page], wide: int, high: int) -> None:
    page = show("well", wide, high)
    assert "pull, drift (+observe in 10) ×200" in heads(page)
    ticks = page.locator(".wb-lanes text.tick").all_text_contents()
    assert len(ticks) > 2 and all(int(tick) < STEPS for tick in ticks)
    click(page, "unfold the outermost folds")
    click(page, "show the whole tape")
    for _ in range(7):
        turned = page.locator(".wb-lanes text.mono[transform]").all_text_contents()
        assert not [text for text in turned if "…" in text], "upright and cut"
        steps = [text for text in heads(page) if re.fullmatch(r"(step )?\d+(–\d+)?", text)]
        assert steps and not [text for text in heads(page) if re.match(r"#|pull, drift.* #", text)], heads(page)
        click(page, "zoom in")


def test_the_adjoint_is_a_curve_over_the_steps(show: Callable[..., Page]) -> None:
    """As high as the largest adjoint of a step, on a scale of logarithms: it falls where the adjoint vanishes."""
    page = show("small")
    click(page, "fold every scope and loop")
    tops: list[float] = []
    for lane in page.locator(".wb-lanes path.strip.band").all():
        box = lane.bounding_box()
        assert box is not None
        tops.append(box["height"])
    assert tops and max(tops) > 15, "higher than a bar is thick"
    said = " ".join(page.locator(".wb-verdict").all_inner_texts())
    assert re.search(r"vanish|underflow|dies|small", said), said


def test_the_onset_of_nan_is_seen_in_the_fold(show: Callable[..., Page]) -> None:
    page = show("nan")
    assert "step 130" in page.locator(".wb-lanes text.scopetext").all_text_contents()[-1]
    click(page, "fold every scope and loop")
    ground = page.locator(".wb-lanes .strip.block:not(.nan)").first.bounding_box()
    black = [one.bounding_box() for one in page.locator(".wb-lanes .strip.block.nan").all()]
    assert ground is not None and black
    assert min(box["x"] - ground["x"] for box in black if box) / ground["width"] == pytest.approx(BAD / STEPS, abs=0.02)


def test_a_range_of_steps_gives_a_table(show: Callable[..., Page]) -> None:
    page = show("well")
    strip = page.locator(".wb-lanes .stripground").first.bounding_box()
    assert strip is not None
    y = strip["y"] + 10
    page.mouse.move(strip["x"] + 0.25 * strip["width"], y)
    assert re.search(r"step (49|50),", page.locator(".wb-tip").inner_text())
    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(strip["x"] + 0.3 * strip["width"], y, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    rows = page.locator(".wb-table tbody th").all_inner_texts()
    assert 10 <= len(rows) <= 13 and rows[0] in ("step 49", "step 50") and rows[-1] in ("step 59", "step 60")
    assert "chosen" in page.locator(".wb-table caption").inner_text()
    assert page.locator(".wb-lanes .range").count() == 1
    page.keyboard.press("Escape")
    page.locator(".wb-lanes .cell").first.focus()
    page.keyboard.press("Escape")
    assert page.locator(".wb-lanes .range").count() == 0


def test_keys_of_perfetto_pan_and_zoom(show: Callable[..., Page]) -> None:
    page = show("well")
    click(page, "unfold the outermost folds")
    click(page, "show the whole tape")
    page.locator(".wb-lanes .cell[tabindex='0']").focus()
    frame = page.locator(".wb-frame")
    seen: list[dict[str, float]] = []
    for key in ("", "w", "d", "a", "s"):
        if key:
            page.keyboard.press(key)
        seen.append(frame.evaluate("(e) => ({ x: parseFloat(e.style.left), w: parseFloat(e.style.width) })"))
    whole, inner, right, left, out = seen
    assert inner["w"] < 0.6 * whole["w"] and out["w"] > 1.5 * inner["w"]
    assert right["x"] > inner["x"] and left["x"] < right["x"]


def test_playing_walks_the_steps_inside_a_fold(show: Callable[..., Page]) -> None:
    page = show("well", motion="no-preference")
    said: set[str] = set()

    def walked() -> int:
        said.add(page.locator(".wb-moment").inner_text())
        return len(said)

    click(page, "play the reverse pass")
    eventually(walked, lambda many: many > 8, 60)
    moments = [int(text.split()[0]) for text in said if text[0].isdigit()]
    assert max(moments) < 2 * STEPS + 11, "still inside the fold"
