"""The live view as a page of its own, over file://: no kernel, no network, everything that it promises."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab import eventually

import workbench as wb
from tests.support import view_samples as samples

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser
SECRET = "<img src=x onerror=document.title='pwned'>"


@dataclass
class Opened:
    """A page, and what it complained about or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)

    def cell(self, event: int, lane: int = -1) -> Locator:
        return self.page.locator(f".cell[data-key='{event}:{lane}']")

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def says(self, selector: str, text: str) -> None:
        self.page.locator(selector, has_text=text).first.wait_for(timeout=60_000)

    def look_at(self, name: str) -> None:
        choice = self.page.get_by_label("array", exact=True)
        value = (
            choice.locator("option").filter(has_text=re.compile(rf"^{re.escape(name)}\s")).first.get_attribute("value")
        )
        choice.select_option(value)
        self.says(".wb-heats .wb-head", name)

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name).click()

    def element(self, text: str) -> None:
        self.page.get_by_label("index of the element").fill(text)
        self.page.keyboard.press("Enter")

    def marks(self) -> int:
        return self.count(".wb-lanes *")

    def cursor(self) -> str:
        return self.page.locator(".cursortext").text_content() or ""

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    tape, arrays = samples.springs()
    made = {"folder": folder, "tape": tape, "arrays": arrays}
    x = arrays["positions"]
    made["springs"] = tape.to_html(folder / "springs.html", cells=[(x, (7, 0)), (x, (0, 1))], threads=[(2, 7), (4, 3)])
    loop, more = samples.springs(steps=40)
    made["loop"], made["loop_tape"] = loop.to_html(folder / "loop.html"), (loop, more)
    made["ill"] = samples.ill()[0].to_html(folder / "ill.html")
    made["long"] = samples.line_of(150).to_html(folder / "long.html")
    made["forgotten"] = samples.forgotten()[0].to_html(folder / "forgotten.html")
    x = wb.array([1.0, 2.0], dtype=float, requires_grad=True, name=SECRET)
    y = wb.zeros(2, dtype=float, requires_grad=True, name="</script><b>bold</b>")
    with wb.Tape() as hostile, hostile.scope(SECRET):
        wb.launch(samples.root, dim=2, inputs=[x], outputs=[y])
    hostile.backward(grads={y: wb.ones_like(y)})
    made["hostile"] = hostile.to_html(folder / "hostile.html")
    return made


@pytest.fixture(scope="module")
def crowd(pages: dict[str, Any]) -> Path:
    """Only for the tests that need it: the page of a long tape takes its time."""
    many, _ = samples.crowd(10_000, 200)
    return many.to_html(pages["folder"] / "crowd.html", cells=[], threads=[])


@pytest.fixture
def show(browser: Browser, pages: dict[str, Any], request: pytest.FixtureRequest) -> Iterator[Any]:
    contexts = []

    def opened(name: str, dark: bool = False, wide: int = 1280, motion: str = "reduce") -> Opened:
        context = browser.new_context(
            viewport={"width": wide, "height": 1100}, color_scheme="dark" if dark else "light", reduced_motion=motion
        )
        contexts.append(context)
        one = Opened(context.new_page())
        one.page.on("console", lambda m: one.complaints.append(m.text) if m.type == "error" else None)
        one.page.on("pageerror", lambda e: one.complaints.append(str(e)))
        one.page.on("request", lambda r: one.asked.append(r.url))
        one.page.goto((pages[name] if name in pages else request.getfixturevalue(name)).as_uri())
        one.page.wait_for_selector(".wb-lanes .cell, .wb-error", state="attached", timeout=120_000)
        return one

    yield opened
    for context in contexts:
        context.close()


# --- the picture


def test_the_page_asks_for_nothing_but_itself_and_complains_of_nothing(show, pages):
    page = show("springs")
    page.look_at("positions")
    assert page.asked == [pages["springs"].as_uri()]
    assert page.complaints == []


def test_grounds_have_the_colour_of_the_page(show):
    """Shapes without a colour of their own are black in SVG: behind heads and strips nobody could read."""
    page = show("springs")
    fills = page.evaluate(
        """() => [...document.querySelectorAll('.wb-lanes .headground, .wb-lanes .stripground, .wb-lanes .veil')]
            .map((e) => getComputedStyle(e).fill)"""
    )
    ground = page.evaluate("() => getComputedStyle(document.querySelector('.wb-keys')).backgroundColor")
    assert fills and set(fills) == {ground}


def test_a_lane_has_every_name_of_its_memory(show):
    page = show("springs")
    chips = page.page.locator("[data-name]").evaluate_all("nodes => nodes.map(n => [n.dataset.lane, n.dataset.name])")
    lanes = {}
    for lane, name in chips:
        lanes.setdefault(lane, set()).add(name)
    assert {"positions", "state[0]"} in lanes.values()
    assert page.count(".chip.shared") == 2
    page.says(".wb-lanes text", "one memory, two names")


def test_reads_writes_and_accumulations_have_signs_of_their_own(show, pages):
    page = show("springs")
    touches = [t for e in wb.viz.gather(pages["tape"]).events for t in e.touches]
    for how, selector in (("read", "circle.read"), ("write", "rect.write"), ("accumulate", "path.accumulate")):
        assert page.count(f".wb-lanes {selector}") == sum(t.how == how for t in touches) > 0
    assert page.count(".wb-lanes .kept") == sum(len(e.kept) for e in pages["tape"].events) > 0


def test_where_contributions_meet_their_number_is_shown(show):
    page = show("springs")
    assert {"+2"} <= set(page.page.locator(".meettext").all_text_contents())
    assert page.count(".arrow") > 4


def test_hovering_gives_numbers(show, pages):
    page = show("springs")
    page.cell(2, 0).hover()
    tip = page.text(".wb-tip")
    level = next(e for e in wb.viz.gather(pages["tape"]).events if e.index == 2).adjoint[0]
    assert f"{level.max_abs:.3g}" in tip and "read positions v1" in tip and "2 contributions meet" in tip
    page.cell(1).hover()
    assert "adjoint of forces reads positions" in page.text(".wb-tip")


# --- the cursor


def test_a_step_moves_the_cursor_and_what_is_not_yet_reversed_is_faint(show):
    page = show("springs")
    assert page.cursor() == "reverse 5/5" and page.count(".bar.later") == 0
    page.get_by_role("button", name="start of the reverse pass").click()
    assert page.cursor() == "reverse 0/5"
    faint = page.count(".bar.later")
    assert faint > 5
    page.get_by_role("button", name="one step of the reverse pass", exact=True).click()
    assert page.cursor() == "reverse 1/5" and page.count(".bar.later") < faint
    page.get_by_role("button", name="undo one step").click()
    assert page.cursor() == "reverse 0/5"


def test_playing_walks_the_whole_pass(show):
    page = show("springs", motion="no-preference")
    page.get_by_role("button", name="play").click()
    assert "5/5" not in page.cursor()
    eventually(page.cursor, lambda text: text == "reverse 5/5", 60)
    page.says("button", "play")


# --- heat-maps


def test_heat_maps_show_value_and_adjoint_of_the_moment(show, pages):
    page = show("springs")
    tape, x = pages["tape"], pages["arrays"]["positions"]
    page.look_at("positions")
    page.says(".wb-heats .wb-head", "before #0 forces")
    values, adjoints = page.page.locator("canvas.wb-heat").all()
    values.focus()
    page.press("ArrowRight", "ArrowRight")
    reads = page.page.locator(".wb-readout")
    assert reads.nth(0).inner_text() == f"positions[2, 0] = {float(pages['arrays']['start'][2, 0]):g}"
    adjoints.focus()
    page.press("ArrowRight", "ArrowDown")
    said = float(reads.nth(1).inner_text().split(" = ")[1].replace("−", "-"))
    assert said == pytest.approx(float(x.grad.numpy()[1, 1]), rel=1e-4)
    page.cell(2).click()
    page.tab("values")
    page.says(".wb-heats .wb-head", "before #2 forces")
    values.focus()
    page.press("ArrowLeft", "ArrowRight")
    was = wb.viz.live.view.TapeMoments(tape).value(x, 2)[0]
    said = float(reads.nth(0).inner_text().split(" = ")[1].replace("−", "-"))
    assert said == pytest.approx(float(was[2, 0]), rel=1e-4)


def test_what_is_not_known_any_more_is_said_to_be_not_kept(show):
    page = show("forgotten")
    page.look_at("h")
    page.cell(1).click()
    page.tab("values")
    page.says(".wb-note", "not kept")
    page.page.locator("canvas.wb-heat").first.focus()
    page.press("ArrowRight")
    assert "not kept" in page.text(".wb-readout")


# --- ledger


def test_the_ledger_of_a_cell_sums_to_its_gradient_and_leads_to_its_launches(show, pages):
    page = show("springs")
    x = pages["arrays"]["positions"]
    page.look_at("positions")
    page.element("7, 0")
    page.says(".wb-sum", "= positions.grad[7, 0]")
    said = float(page.text(".wb-sum").split("=")[1].replace("−", "-"))
    assert said == pytest.approx(float(x.grad.numpy()[7, 0]), rel=1e-5)
    rows = page.page.locator("button.wb-row")
    ledger = pages["tape"].ledger(x, (7, 0), at="start")
    assert rows.count() == len(ledger.rows)
    numbers = [float(t.replace("−", "-")) for t in page.page.locator(".wb-rows .wb-number").all_inner_texts()]
    assert numbers == pytest.approx([row.value for row in ledger.rows], rel=1e-4)
    at = next(k for k, row in enumerate(ledger.rows) if row.position == 1)
    rows.nth(at).click()
    assert page.cursor() == "reverse 4/5"
    page.page.locator(".wb-back", has_text="positions[7, 0]").click()
    page.says(".wb-ledger .wb-head", "positions[7, 0]")


def test_a_cell_of_the_heat_map_opens_its_ledger(show):
    page = show("springs")
    page.look_at("positions")
    canvas = page.page.locator("canvas.wb-heat").nth(1)
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 7.5 / 12, "y": box["height"] / 6})
    page.says(".wb-ledger .wb-head", "adjoint of positions[7, 0]")
    assert page.get_by_label("index of the element").input_value() == "7, 0"


def test_a_ledger_that_the_page_does_not_have_says_how_to_get_it(show):
    page = show("springs")
    page.look_at("positions")
    page.element("5, 2")
    page.says(".wb-ledger .wb-error", "to_html(path, cells=")


def test_an_index_that_fits_nothing_is_refused_where_it_is_typed(show):
    page = show("springs")
    page.look_at("positions")
    page.element("99")
    assert page.get_by_label("index of the element").get_attribute("aria-invalid") == "true"
    page.says(".wb-status", "2 numbers below (12, 3)")


# --- microscope


def open_thread(page: Opened, launch: int, thread: str) -> None:
    page.cell(launch).click()
    page.get_by_label("thread, such as").fill(thread)
    page.press("Enter")
    page.says(".wb-scope .wb-head", f"thread {thread}")


def test_the_microscope_goes_down_and_back_up(show, pages):
    page = show("springs")
    open_thread(page, 2, "7")
    scope = pages["tape"].microscope(2, 7)
    slider = page.page.locator(".wb-scope input[type=range]")
    assert int(slider.get_attribute("max")) == len(scope.steps) - 1
    slider.focus()
    page.press("Home")
    assert "forward step 1 of" in page.text(".wb-scope .wb-head")
    assert page.count(".wb-scope tr.later") > 3 and "i = wb.tid()" in page.text(".wb-scope tr.now")
    page.press("ArrowRight", "ArrowRight")
    assert "xi = x[i]" in page.text(".wb-scope tr.now") or "d = " in page.text(".wb-scope tr.now")
    adjoints = page.page.locator(".wb-scope td.wb-hot")
    assert not any(adjoints.all_inner_texts())
    page.press("End")
    assert "reverse step" in page.text(".wb-scope .wb-head") and any(adjoints.all_inner_texts())
    last = scope.steps[-1]
    shown = page.text(".wb-scope tr.now td.wb-hot")
    assert float(shown.strip("()").split(",")[0].replace("−", "-")) == pytest.approx(last.adjoint[0], rel=1e-2)


def test_a_value_of_a_thread_that_was_not_kept_is_said_to_be_so(show):
    page = show("forgotten")
    open_thread(page, 1, "0")
    page.says(".wb-scope .wb-lines", 'wb.Tape(keep="all")')
    slider = page.page.locator(".wb-scope input[type=range]")
    slider.focus()
    page.press("End")
    values = page.page.locator(".wb-scope td.wb-value")
    assert [text.split("\n")[0].strip("↰") for text in values.all_inner_texts()] == ["0", "not kept", "not kept"]
    assert "h = not kept" in slider.get_attribute("aria-valuetext").replace("x[0]", "h")
    assert page.text(".wb-scope tr.now td.wb-hot") == "4"


def test_loops_of_a_thread_have_a_box_for_the_turn(show):
    page = show("springs")
    open_thread(page, 4, "3")
    turn = page.get_by_label("turn of loop 1")
    assert turn.get_attribute("max") == "2"
    turn.fill("2")
    page.press("Enter")
    eventually(lambda: page.get_by_label("turn of loop 1").input_value(), lambda text: text == "2", 60)
    assert page.count(".wb-scope tr.now") == 1


def test_two_names_of_one_local_are_one_value(show):
    page = show("springs")
    open_thread(page, 4, "3")
    page.says(".wb-scope .wb-shared", "= whole")


def test_a_value_leads_to_the_step_that_made_it(show):
    page = show("springs")
    open_thread(page, 2, "7")
    jump = page.page.locator(".wb-value button").first
    made = jump.get_attribute("aria-label").split()[-1]
    jump.click()
    assert "forward step" in page.text(".wb-scope .wb-head") and made
    assert "pull = " in page.text(".wb-scope tr.now")


# --- long tapes


def test_a_time_loop_is_one_bar_and_unfolds(show):
    page = show("loop")
    assert page.count(".event") == 2 and page.count(".event.fold") == 1
    page.says(".wb-lanes text", "step ×40")
    page.page.locator(".event.fold").click(force=True)
    page.says(".wb-status", "step ×40 unfolded")
    assert page.count(".event.fold") > 8
    page.says(".scopetext", "step ×40")
    page.page.locator(".scopetext").first.click()
    assert page.count(".event") == 2


def test_flags_survive_the_fold(show):
    page = show("ill")
    assert page.count(".event") == 3
    badges = page.page.locator(".badgetext").all_text_contents()
    assert any("Inf" in text or "NaN" in text or text in "IN" for text in badges)
    assert page.count(".bar.inf, .bar.nan") > 0
    page.get_by_role("button", name="unfold the outermost folds").click()
    assert page.count(".badge") > 0


def test_ten_thousand_launches_open_at_once_and_hold_few_marks_at_any_zoom(show):
    page = show("crowd")
    opened = page.evaluate("performance.getEntriesByType('navigation')[0].duration")
    assert opened < 4000
    page.get_by_role("button", name="unfold the outermost folds").click()
    page.get_by_role("button", name="show the whole tape").click()
    seen = [page.marks()]
    for _ in range(12):
        page.get_by_role("button", name="zoom in").click()
        seen.append(page.marks())
    assert max(seen) < 2000 and min(seen) > 20
    assert page.count(".event.group") == 0
    page.page.locator(".wb-plot").evaluate("node => { node.scrollTop = 6000; }")
    page.page.wait_for_timeout(100)
    assert page.marks() < 2000 and page.count(".chip") > 2


def test_a_long_tape_has_its_adjoints_in_the_page_too(show):
    page = show("crowd")
    assert "seed" in page.text(".wb-seed") and page.count(".bar") > 0


def test_a_step_of_the_cursor_changes_few_marks_of_a_long_tape(show):
    page = show("crowd")
    page.get_by_role("button", name="unfold the outermost folds").click()
    changed = page.evaluate(
        """async () => {
            const button = document.querySelector("[aria-label='undo one step of the reverse pass']"), counts = [];
            let count = 0;
            const seen = new MutationObserver((all) => (count += all.length));
            seen.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
            for (let k = 0; k < 20; k++) {
                count = 0;
                button.click();
                await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
                counts.push(count);
            }
            return counts;
        }"""
    )
    assert 0 < max(changed) < 500, changed


def test_the_minimap_moves_the_window(show):
    page = show("crowd")
    page.get_by_role("button", name="unfold the outermost folds").click()
    for _ in range(9):
        page.get_by_role("button", name="zoom in").click()
    before = page.page.locator(".event").first.get_attribute("data-a")
    box = page.page.locator(".wb-map").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + 10)
    after = page.page.locator(".event").first.get_attribute("data-a")
    assert int(after) > 8000 and after != before


def test_the_wheel_zooms_only_with_a_key_and_dragging_pans(show):
    page = show("loop")
    page.get_by_role("button", name="unfold the outermost folds").click()
    page.get_by_role("button", name="show the whole tape").click()
    whole = page.count(".event")
    box = page.page.locator(".wb-lanes").bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 150)
    page.mouse.wheel(0, 120)
    assert page.count(".event") == whole
    page.keyboard.down("Control")
    for _ in range(11):
        page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    eventually(lambda: page.count(".event"), lambda count: count < whole, 60)
    first = page.page.locator(".event").first.get_attribute("data-a")
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 150, steps=6)
    page.mouse.up()
    assert page.page.locator(".event").first.get_attribute("data-a") != first


# --- finding things


def test_search_finds_launches_and_memory_and_goes_there(show):
    page = show("loop")
    box = page.get_by_label("search launches")
    box.fill("energy")
    page.says(".wb-status", "1 match")
    assert page.count(".event.found") == 1
    box.fill("veloc")
    assert page.count(".chip.found") == 1
    box.fill("integrate")
    page.says(".wb-status", "40 matches")
    page.press("Enter", "Enter")
    page.says(".wb-status", "2 of 40")
    assert page.cell(4).count() + page.cell(5).count() > 0


def test_findings_lead_to_their_place(show):
    page = show("springs")
    page.says(".wb-verdict", "no problem found")
    page.says(".wb-chip", "positions, state[0] share memory, which is written in #1 integrate, line")
    assert page.count(".wb-lanes [data-finding]") == 0, "nothing is wrong there"
    page.get_by_role("button", name="2 notes").click()
    page.page.locator(".wb-finding button").first.click()
    assert page.cursor() == "reverse 3/5"
    page.tab("values")
    page.says(".wb-heats .wb-head", "after #1 integrate")
    assert page.page.locator(".event.current").get_attribute("data-a") == "1"


def test_the_table_has_the_same_rows(show, pages):
    page = show("springs")
    page.says("summary", "The same as a table")
    page.page.locator(".wb-table summary").click()
    page.says(".wb-table tbody th", "#0 forces")
    heads = page.page.locator(".wb-table tbody th").all_inner_texts()
    assert heads == [e.heading for e in wb.viz.gather(pages["tape"]).events]
    row = page.page.locator(".wb-table tbody tr").nth(1).inner_text()
    assert "state[0] v0→v1" in row and "adjoint of forces reads positions" in row and "aliased" in row


# --- for everyone


def test_the_keyboard_reaches_everything(show):
    page = show("springs")
    page.cell(0).focus()
    assert page.count(".cell[tabindex='0']") == 1
    page.press("ArrowRight", "ArrowRight")
    key = "document.activeElement.dataset.key"
    assert page.evaluate(key) == "2:-1"
    page.press("Enter")
    assert page.cursor() == "reverse 3/5"
    page.says(".wb-scope .wb-head", "#2 forces")
    assert page.evaluate(key) == "2:-1" and page.cell(2).get_attribute("aria-pressed") == "true"
    page.press("[")
    assert page.cursor() == "reverse 4/5"
    page.press("]", "]")
    assert page.cursor() == "reverse 2/5"
    page.press("ArrowDown", "Enter")
    page.says(".wb-heats .wb-head", "positions")
    page.press("End")
    assert page.evaluate(key).startswith("4:")
    page.press("Home", "ArrowUp")
    assert page.evaluate(key) == "0:-1"
    assert "#0 forces" in page.text(".wb-status")
    page.press("/")
    assert page.evaluate("document.activeElement.type") == "search"


def test_folds_open_and_close_by_keyboard(show):
    page = show("loop")
    page.cell(0).focus()
    page.press(".")
    assert page.count(".event") > 2
    page.press(",")
    eventually(lambda: page.count(".event"), lambda count: count == 2, 60)
    page.press("+", "-", "f")
    assert page.count(".event") == 2
    page.press(".", "w", "w")
    near = page.page.locator(".event").first.get_attribute("data-a")
    page.press("d")
    assert page.page.locator(".event").first.get_attribute("data-a") != near
    page.press("a", "s", "f")
    assert page.page.locator(".event").first.get_attribute("data-a") == "0"


def test_what_pads_the_last_row_of_a_long_line_is_no_zero(show):
    page = show("long")
    page.says(".wb-heats figcaption", "value: 1 … 150")
    assert "exactly 0" not in page.text(".wb-heats")


def test_escape_gives_the_keyboard_back(show):
    page = show("springs")
    page.cell(0).focus()
    page.press("Escape")
    assert page.evaluate("document.activeElement === document.body")


def test_every_focusable_thing_keeps_its_keys_from_the_notebook(show):
    page = show("springs")
    page.look_at("positions")
    page.element("7, 0")
    page.cell(2).click()
    page.says(".wb-scope .wb-head", "inside")
    bare = page.evaluate(
        """() => [...document.querySelectorAll(".wb-view button, .wb-view input, .wb-view select, .wb-view summary, "
            + ".wb-view [tabindex]")].filter((n) => n.dataset.lmSuppressShortcuts !== "true").map((n) => n.outerHTML)"""
    )
    assert bare == []


def axe_script() -> str:
    found = importlib.util.find_spec("axe_playwright_python")
    assert found is not None and found.origin, "pip install axe-playwright-python"
    return (Path(found.origin).parent / "axe.min.js").read_text("utf-8")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(show, dark, artefacts):
    page = show("springs", dark)
    page.look_at("positions")
    page.element("7, 0")
    page.says(".wb-sum", "positions.grad")
    page.cell(2).click()
    page.says(".wb-scope .wb-head", "inside")
    page.screenshot(path=str(artefacts / f"view-{'dark' if dark else 'light'}.png"), full_page=True)
    page.page.locator("details").evaluate_all("all => all.forEach((one) => one.setAttribute('open', ''))")
    page.mouse.move(2, 2)
    page.evaluate(axe_script())
    found = page.evaluate("axe.run(document)")
    assert [(v["id"], [n["html"] for n in v["nodes"]]) for v in found["violations"]] == []
    assert len(found["passes"]) > 15


def test_the_page_is_dark_where_the_reader_s_screen_is(show):
    ground = "getComputedStyle(document.querySelector('.wb-view')).backgroundColor"
    assert show("springs").evaluate(ground) == "rgb(255, 255, 255)"
    assert show("springs", dark=True).evaluate(ground) == "rgb(13, 17, 23)"


def test_names_are_text_whatever_they_say(show):
    page = show("hostile")
    assert page.title() == "tape" and page.count(".wb-view img, .wb-view b:not(.wb-what b)") == 0
    names = page.page.locator("[data-name]").evaluate_all("nodes => nodes.map(n => n.dataset.name)")
    assert SECRET in names and "</script><b>bold</b>" in names
    page.page.locator(".wb-table summary").click()
    assert page.complaints == []


def test_a_narrow_page_still_shows_everything(show):
    page = show("springs", wide=560)
    assert page.count(".event") == 5
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_page_for_a_thread_that_does_not_exist_is_refused(pages, tmp_path):
    with pytest.raises(wb.errors.LaunchError, match="no thread"):
        pages["tape"].to_html(tmp_path / "x.html", threads=[(2, 99)])
