"""The live view of two passes as a page: outline, fill and tag are what both hold; one click goes where they part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench import pitfalls
from workbench.viz.data.against import compare

pytestmark = pytest.mark.browser
N = 4


@wb.kernel
def push(x: wb.array[float], k: float, v: wb.array[float]):
    i = wb.tid()
    a = x[i]
    b = a
    v[i] = v[i] - k * b


@wb.kernel
def move(v: wb.array[float], x: wb.array[float]):
    i = wb.tid()
    x[i] = x[i] + 0.1 * v[i]


def run(steps: int, odd: int = -1, skip: int = -1) -> tuple[wb.Tape, Any]:
    x, v = wb.array(np.linspace(0.5, 2, N), dtype=float, requires_grad=True), wb.zeros(N)
    with wb.Tape() as tape:
        for n in range(steps):
            wb.launch(push, dim=N, inputs=[x, 0.9 if n == odd else 1.0], outputs=[v])
            if n != skip:
                wb.launch(move, dim=N, inputs=[v], outputs=[x])
    tape.backward(grads={x: wb.ones(N)})
    return tape, x


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Open the page of a tape against another pass: the page and what it complained of."""
    contexts = []

    def show(tape: wb.Tape, against: Any, wide: int = 1440) -> tuple[Any, list[str]]:
        path = tape.to_html(tmp_path / "page.html", against=against)
        contexts.append(browser.new_context(viewport={"width": wide, "height": 900}, reduced_motion="reduce"))
        page, complaints = contexts[-1].new_page(), []
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.goto(path.as_uri())
        page.wait_for_selector(".wb-lanes .cell", state="attached")
        return page, complaints

    yield show
    for context in contexts:
        context.close()


def test_a_wrong_pass_is_striped_in_the_outline_of_the_exact_one_and_the_tag_says_both_numbers(opened):
    tape, x = run(3)
    wrong = tape.backward(grads={x: wb.ones(N)}, pitfall=pitfalls.alias)
    made = compare(tape, None, wrong)
    page, complaints = opened(tape, wrong)
    first = made.first
    assert first is not None
    exact = tape.adjoint(x, at=tape.events[first.position])
    text = page.locator(".wb-lanes .tagtext").text_content()
    assert text == f"{first.cell}: {first.here:.4g} instead of {exact[0]:.4g}" and first.position == 4
    assert page.locator(".wb-lanes rect.outline").count() > 3
    striped = page.locator(".wb-lanes .bar.parted.wrong")
    assert striped.count() > 0 and "wrong" in (striped.first.get_attribute("style") or "")
    assert page.locator(".wb-lanes .bar:not(.parted)").count() > 0  # up to there both agree
    assert "WRONG ON PURPOSE" in page.locator(".wb-bar").inner_text()
    assert made.said[0] in page.locator(".wb-against").inner_text()
    page.get_by_role("button", name="go to where both part").click()
    page.locator(".cursortext", has_text="reverse 2/6").wait_for()
    page.locator(".wb-heats .wb-head", has_text="before #4 push").wait_for()
    page.locator(".wb-table summary").click()
    row = page.locator(".wb-table tbody tr", has_text="#4 push")
    assert text.replace("x[0]", "adjoint of x[0]") in row.inner_text() and "parts" in row.inner_text()
    assert complaints == []


@pytest.mark.parametrize(("skip", "kind"), [(1, "there"), (-1, "")])
def test_runs_of_unequal_length_and_a_long_one_that_is_folded_still_show_where_they_part(opened, skip, kind):
    if kind:
        tape, other, numbers = run(3, skip=skip)[0], run(3)[0], [0, 1, 2, 3, 3, 4]
    else:
        tape, other, numbers = run(60, odd=40)[0], run(60)[0], []
    page, complaints = opened(tape, other, 1024)
    page.wait_for_selector(".wb-verdict[aria-busy=false]", state="attached")
    for button in page.get_by_role("button", name="fold every scope and loop").all():
        button.click()
    page.get_by_role("button", name="show the whole tape").click()
    assert page.locator(".wb-lanes .tagtext").count() == 1
    if kind:
        assert page.locator(".event.lacking").count() == 1
        heads = page.locator(".wb-lanes text.mono", has_text="#").all_text_contents()
        assert [f"#{n}" for n in numbers] == [next(w for w in text.split() if w[0] == "#") for text in heads]
        assert "only in the other: #3 move" in page.locator(".wb-against").inner_text()
    else:
        assert page.locator(".badge.odd").count() == 1 and page.locator(".partedline").count() >= 2
        found = page.locator(".wb-found", has_text="the runs part in #80 push")
        found.wait_for()
        assert not page.get_by_text("They part first at").is_visible(), "it is said once"
        found.click()
        page.locator(".event.current").wait_for(state="attached")
        page.get_by_role("tab", name="values").click()
        page.locator(".wb-heats .wb-head", has_text="v after #80 push").wait_for()
        assert "v[0]" in page.locator(".wb-lanes .tagtext").text_content()
    assert complaints == []
