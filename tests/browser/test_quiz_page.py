"""The veil of a question: the cells below it are hidden until there is an answer, and only where there are cells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.viz.live.view import module, style

pytestmark = pytest.mark.browser
STATE = {"question": "What is 1 + 1?", "answers": ["1", "2"], "chosen": None, "skipped": False, "told": {}}
PAGE = """<!doctype html><title>veil</title><style>%s</style>
<div class="%s" id="above"><div><p>above</p></div></div><div class="%s"><div><div id="here"></div></div></div>
<div class="%s" id="below"><div><p>below</p></div></div><div class="%s"><div><p id="last">last</p></div></div>
<script type="module">
%s
const heard = {}, state = %s;
const model = { get: (k) => state[k], set: (k, v) => { state[k] = v; },
  on: (k, f) => { (heard[k] ??= []).push(f); }, off() {},
  save_changes() { state.told = { right: "2", because: "One and one." }; for (const f of heard["change:told"]) f(); } };
const left = new AbortController();
window.leave = () => left.abort();
quiz(model, document.getElementById("here"), left.signal);
</script>"""


@pytest.fixture
def asked(browser: Any, tmp_path: Path) -> Iterator[Any]:
    contexts = []

    def show(cell: str, **state: Any) -> Any:
        script = module("elements.js", "late_messages.js", "quiz.js").replace("export default", "const widget =")
        script = script.replace("export ", "")
        path = tmp_path / "veil.html"
        path.write_text(PAGE % (style("quiz.css"), cell, cell, cell, cell, script, json.dumps(STATE | state)), "utf-8")
        contexts.append(browser.new_context(viewport={"width": 900, "height": 500}))
        page = contexts[-1].new_page()
        page.goto(path.as_uri())
        page.locator(".wb-quiz").wait_for()
        return page

    yield show
    for context in contexts:
        context.close()


@pytest.mark.parametrize(
    ("press", "says"), [("2", "Right. One and one."), ("1", "No: 2. One and one."), ("skip", "2.")]
)
def test_the_cells_below_are_veiled_until_there_is_an_answer_or_none_is_wanted(asked, press, says):
    page = asked("jp-Cell")
    page.locator("#below p").wait_for(state="hidden")
    assert page.locator("#last").is_hidden() and page.locator("#above p").is_visible()
    assert (
        "One and one" not in page.locator(".wb-quiz").inner_text() and "veiled" in page.locator(".wb-quiz").inner_text()
    )
    page.get_by_text(press, exact=True).click()
    page.locator("#below p").wait_for(state="visible")
    assert page.locator("#last").is_visible() and says in page.locator(".wb-said").inner_text()
    assert "veiled" not in page.locator(".wb-quiz").inner_text()


def test_nothing_is_veiled_elsewhere_after_an_answer_or_when_the_question_has_gone(asked):
    assert asked("other").locator("#last").is_visible()
    assert asked("jp-Cell", chosen="2", told={"right": "2", "because": ""}).locator("#last").is_visible()
    page = asked("jp-Cell")
    page.locator("#last").wait_for(state="hidden")
    page.evaluate("leave()")
    page.locator("#last").wait_for(state="visible")
