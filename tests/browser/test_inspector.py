"""The inspector beside the picture: in sight at every size, one line to each summand, keys, play, tips, paper."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab import eventually
from test_page import Opened, axe_script

import workbench as wb
from tests.support import view_samples as samples

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

pytestmark = pytest.mark.browser
LAYOUTS = [(1440, 900, 1.0, False), (1024, 768, 1.0, True), (1440, 900, 1.5, True), (1024, 768, 1.5, False)]
NAMES = ["1440", "1024 dark", "1440 at 150 % dark", "1024 at 150 %"]
at_every_size = pytest.mark.parametrize("layout", LAYOUTS, ids=NAMES)
TURNS = 100


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("inspector")
    tape, arrays = samples.springs()
    x = arrays["positions"]
    rows = tape.ledger(x, (7, 0), at="start").rows
    threads = [(row.position, row.thread) for row in rows] + [(2, 7), (4, 3)]
    found = {
        "springs": wb.viz.to_html(tape, folder / "springs.html", cells=[(x, (7, 0))], threads=threads),
        "rows": rows,
    }
    x = wb.array([9.0, 0.01], dtype=float, requires_grad=True, name="x")
    y = wb.zeros(2, dtype=float, requires_grad=True, name="y")
    with wb.Tape() as loop:
        wb.launch(samples.shrink, dim=2, inputs=[x], outputs=[y])
    loop.backward(grads={y: wb.ones_like(y)})
    found["loop"] = wb.viz.to_html(loop, folder / "loop.html", threads=[(0, 0), (0, 1)])
    found["long"] = wb.viz.to_html(samples.springs(steps=60, n=3)[0], folder / "long.html", cells=[], threads=[])
    return found


Show = Callable[..., Opened]


@pytest.fixture
def show(browser: Browser, made: dict[str, Path]) -> Iterator[Show]:
    contexts = []

    def opened(name: str, layout: tuple[int, int, float, bool] = LAYOUTS[0], **more: Any) -> Opened:
        wide, tall, zoom, dark = layout
        context = browser.new_context(
            viewport={"width": round(wide / zoom), "height": round(tall / zoom)},
            device_scale_factor=zoom,
            color_scheme="dark" if dark else "light",
            **{"reduced_motion": "reduce", **more},
        )
        contexts.append(context)
        one = Opened(context.new_page())
        one.page.on("console", lambda m: one.complaints.append(m.text) if m.type == "error" else None)
        one.page.on("pageerror", lambda e: one.complaints.append(str(e)))
        one.page.goto(made[name].as_uri())
        one.page.wait_for_selector(".wb-lanes .cell, .wb-error", state="attached", timeout=60_000)
        return one

    yield opened
    for context in contexts:
        context.close()


def box(where: Locator) -> tuple[float, float, float, float]:
    found = where.bounding_box()
    assert found is not None, where
    return found["x"], found["y"], found["x"] + found["width"], found["y"] + found["height"]


def in_sight(page: Opened, *selectors: str) -> None:
    """All of it lies in the window, and in whatever scrolls around it."""
    seen = page.page.viewport_size
    assert seen is not None

    def outside() -> dict[str, Any]:
        found = {}
        for selector in selectors:
            for each in page.page.locator(selector).all():
                x0, y0, x1, y1 = box(each)
                cut = each.evaluate(
                    """(node) => {
                        const own = node.getBoundingClientRect();
                        for (let at = node.parentElement; at; at = at.parentElement) {
                            const s = getComputedStyle(at), r = at.getBoundingClientRect();
                            if (s.overflowY === "visible" || at.matches("html, body")) continue;
                            if (own.bottom > r.bottom + 1 || own.top < r.top - 1 || own.right > r.right + 1)
                                return at.className;
                        }
                        return "";
                    }"""
                )
                if cut or x0 < -1 or y0 < -1 or x1 > seen["width"] + 1 or y1 > seen["height"] + 1:
                    found[selector] = (x0, y0, x1, y1, cut)
        return found

    eventually(outside, lambda found: not found, 60)


def apart(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[2] <= other[0] + 1 or other[2] <= one[0] + 1 or one[3] <= other[1] + 1 or other[3] <= one[1] + 1


def open_ledger(page: Opened) -> None:
    page.look_at("positions")
    page.element("7, 0")
    page.says(".wb-sum", "positions.grad[7, 0]")


# --- one screen


@at_every_size
def test_what_a_click_changes_is_in_sight(show, layout):
    page = show("springs", layout)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    chip = page.page.locator("[data-name]").last
    name = chip.get_attribute("data-name")
    chip.click()
    page.says(".wb-heats .wb-head", name)
    in_sight(page, ".wb-dock", ".wb-heats .wb-head", ".wb-heats canvas", ".wb-heats figcaption")
    open_ledger(page)
    in_sight(page, ".wb-dock", ".wb-ledger .wb-head", ".wb-rows li:first-child")
    page.cell(2).click()
    page.says(".wb-scope .wb-head", "#2 forces")
    in_sight(page, ".wb-dock", ".wb-scope .wb-head", ".wb-scope tr.now", ".wb-scope tr.now td.wb-hot")
    in_sight(page, ".cell[data-key='2:-1']")
    assert apart(box(page.page.locator(".wb-dock")), box(page.page.locator(".wb-main")))
    assert page.complaints == []


@at_every_size
def test_the_adjoint_column_is_on_the_screen(show, layout):
    page = show("springs", layout)
    page.cell(2).click()
    page.says(".wb-scope .wb-head", "#2 forces")
    heads = [box(one) for one in page.page.locator(".wb-scope thead th:not(.wb-source)").all()]
    assert page.page.locator(".wb-scope thead th:not(.wb-source)").all_inner_texts() == [
        "name",
        "value",
        "adjoint",
        "note",
    ]
    assert all(a[2] <= b[0] + 1 and abs(a[1] - b[1]) < 2 for a, b in itertools.pairwise(heads))
    cells = [box(one) for one in page.page.locator(".wb-scope tr.now td:not(.wb-source)").all()]
    assert all(apart(a, b) for a, b in itertools.combinations(cells, 2))
    in_sight(page, ".wb-scope thead th.wb-hot", ".wb-scope tr.now td.wb-hot")
    lines = page.page.locator(".wb-scope td.wb-source:not(:empty)").all_inner_texts()
    assert len(set(lines)) == len(lines) and "16 d = xi - x[i + 1]" in lines
    page.says(".wb-scope tbody tr td.wb-hot", "(")


def test_a_tall_window_gives_the_microscope_room(show):
    page = show("springs")
    page.cell(2).click()
    page.says(".wb-scope .wb-head", "#2 forces")
    lines = page.page.locator(".wb-lines")
    assert lines.evaluate("node => node.scrollHeight <= node.clientHeight + 1")


@pytest.mark.parametrize("layout", [(530, 480, 1.0, False), (1024, 768, 1.5, False)], ids=["530", "1024 at 150 %"])
def test_a_small_window_gives_the_microscope_most_of_its_room(show, layout):
    page = show("springs", layout)
    page.cell(2).click()
    page.says(".wb-scope .wb-head", "#2 forces")
    lines = page.page.locator(".wb-lines").evaluate(
        "node => node.clientHeight / parseFloat(getComputedStyle(node.querySelector('table')).lineHeight)"
    )
    assert lines >= 11, "with the head of the table"
    controls = [box(page.page.locator(f".wb-scope .wb-choice {one}").last) for one in ("input[type=range]", "button")]
    assert all(apart(one, box(tab)) for one in controls for tab in page.page.locator("[role=tab]").all())
    in_sight(page, ".cell[data-key='2:-1']", ".wb-scope tr.now")


# --- the ledger


@at_every_size
def test_a_summand_opens_its_own_line_and_leads_back_to_the_list_as_it_was(show, made, layout):
    page = show("springs", layout)
    open_ledger(page)
    texts = page.page.locator(".wb-rows li").all_inner_texts()
    for k, row in enumerate(made["rows"]):
        page.page.locator("button.wb-row").nth(k).click()
        page.says(".wb-scope .wb-head", f"inside {row.heading}, thread {row.thread[0]} · reverse step")
        now = page.page.locator(".wb-scope tr.now")
        assert now.count() == 1
        assert now.locator(".wb-source").inner_text() == f"{row.where.line} {row.where.text.strip()}"
        shown = now.locator(".wb-hot").inner_text().strip("()").split(",")[0].replace("−", "-")
        assert float(shown) == pytest.approx(row.value, rel=5e-3)
        in_sight(page, ".wb-scope tr.now", ".wb-scope tr.now td.wb-hot", ".wb-back")
        assert page.evaluate("document.activeElement.className") == "wb-back"
        assert page.cursor() == f"reverse {5 - row.position}/5"
        page.press("Enter")
        page.says(".wb-ledger .wb-head", "positions[7, 0]")
        assert page.page.locator(".wb-rows li").all_inner_texts() == texts
        lit = page.page.locator(".wb-rows .now")
        assert lit.count() == 1 and lit.inner_text() == texts[k]
        assert page.cursor() == "reverse 5/5"
        in_sight(page, ".wb-rows .now", ".wb-ledger .wb-head")


def test_another_moment_gives_another_list(show):
    page = show("springs")
    open_ledger(page)
    page.page.locator("button.wb-row").nth(0).click()
    page.says(".wb-scope .wb-head", "#1 integrate")
    page.tab("ledger")
    page.says(".wb-sum", "positions.grad[7, 0]")
    page.get_by_role("button", name="undo one step").click()
    page.says(".wb-sum", "before #2 forces")


# --- loops


@at_every_size
def test_a_loop_of_a_hundred_turns_is_read_one_turn_at_a_time(show, layout):
    page = show("loop", layout)
    page.cell(0).click()
    page.says(".wb-scope .wb-loop", "for k in range(100):")
    assert page.count(".wb-scope tbody tr") < 10
    turn = page.get_by_label("turn of loop 1")
    assert turn.get_attribute("max") == str(TURNS - 1)
    turn.fill("57")
    page.press("Enter")
    eventually(lambda: page.get_by_label("turn of loop 1").input_value(), lambda text: text == "57", 60)
    page.get_by_role("button", name="on one turn").click()
    eventually(lambda: page.get_by_label("turn of loop 1").input_value(), lambda text: text == "58", 60)
    page.get_by_role("button", name="back one turn").click()
    eventually(lambda: page.get_by_label("turn of loop 1").input_value(), lambda text: text == "57", 60)
    in_sight(page, ".wb-scope tr.now", ".wb-scope tr.now td.wb-hot", ".wb-dock")


def test_the_first_turn_that_is_not_finite_is_one_click_away(show):
    page = show("loop")
    page.cell(0).click()
    page.get_by_label("thread, such as").fill("0")
    page.press("Enter")
    page.says(".wb-scope .wb-head", "thread 0")
    assert page.page.get_by_role("button", name="where a NaN").count() == 0
    page.get_by_label("thread, such as").fill("1")
    page.press("Enter")
    page.says(".wb-scope .wb-head", "thread 1")
    leap = page.get_by_role("button", name="where a NaN")
    turn = int(leap.inner_text().split()[-1])
    leap.click()
    assert page.get_by_label("turn of loop 1").input_value() == str(turn)
    values = page.page.locator(".wb-scope .wb-loop ~ tr .wb-value")
    assert "NaN" in values.all_inner_texts()[0]
    page.get_by_role("button", name="back one turn").click()
    assert not any("NaN" in text for text in values.all_inner_texts()[:2]) and turn > 3


# --- play and keys


def test_play_takes_twenty_seconds_at_most(show):
    page = show("long", reduced_motion="no-preference")
    page.page.clock.install()
    page.get_by_role("button", name="unfold the outermost folds").click()
    assert page.count(".event.fold") + page.count(".event.group") + page.count(".event") > 8
    page.get_by_role("button", name="play").click()
    page.page.clock.run_for(6_000)
    early = page.cursor()
    assert early not in ("reverse 0/181", "reverse 181/181")
    page.page.clock.run_for(14_000)
    eventually(page.cursor, lambda text: text.split()[1].split("/")[0] == text.split("/")[1], 60)
    assert page.get_by_role("button", name="play the reverse pass").count() == 1


def test_a_short_show_keeps_its_pace_and_stops_where_the_reader_takes_over(show):
    page = show("springs", reduced_motion="no-preference")
    page.page.clock.install()
    page.get_by_role("button", name="play").click()
    page.page.clock.run_for(1_400)
    assert page.cursor() == "reverse 2/5"
    page.get_by_role("button", name="undo one step").click()
    page.page.clock.run_for(3_000)
    assert page.cursor() == "reverse 1/5"


def test_arrows_step_the_reverse_pass(show):
    page = show("springs")
    page.cell(0).focus()
    page.press("End")
    assert page.cursor() == "reverse 0/5"
    for k in range(1, 6):
        page.press("ArrowLeft")
        assert page.cursor() == f"reverse {k}/5"
        assert page.evaluate("document.activeElement.dataset.key") == f"{5 - k}:-1"
    page.press("ArrowLeft")
    assert page.cursor() == "reverse 5/5"
    page.press("ArrowRight")
    assert page.cursor() == "reverse 4/5"
    page.get_by_role("button", name="undo one step").click()
    page.press("ArrowLeft")  # from a button too
    assert page.cursor() == "reverse 4/5"
    page.get_by_label("search launches").click()
    page.press("ArrowLeft", "?")
    assert page.cursor() == "reverse 4/5" and page.get_by_label("search launches").input_value() == "?"


@at_every_size
def test_a_question_mark_lists_the_keys(show, layout):
    page = show("springs", layout)
    hint = page.get_by_role("button", name="show the keys")
    assert hint.is_visible()
    page.cell(0).focus()
    page.press("?")
    keys = page.page.get_by_role("dialog", name="keys")
    keys.wait_for()
    in_sight(page, ".wb-keys", ".wb-keys button")
    assert "step the reverse pass" in keys.inner_text()
    page.press("Escape")
    assert not keys.is_visible() and page.evaluate("document.activeElement.dataset.key") == "0:-1"
    hint.click()
    assert keys.is_visible()


def test_left_and_right_step_the_thread_on_its_statements(show):
    page = show("springs")
    page.cell(2).click()
    page.says(".wb-scope .wb-head", "reverse step 7 of 7")
    page.page.locator(".wb-lines").focus()
    page.press("ArrowLeft")
    page.says(".wb-scope .wb-head", "reverse step 6 of 7")
    assert page.cursor() == "reverse 3/5"


# --- tips


@at_every_size
def test_a_tip_stands_beside_what_it_describes(show, layout):
    page = show("springs", layout)
    seen = page.page.viewport_size
    tip = page.page.locator(".wb-tip")
    keys = page.page.locator(".cell").evaluate_all("all => all.map((one) => one.dataset.key)")
    assert len(keys) >= 10
    for key in keys:
        cell = page.page.locator(f".cell[data-key='{key}']")
        x0, y0, x1, y1 = box(cell)
        page.mouse.move((x0 + x1) / 2, (y0 + y1) / 2)
        eventually(tip.is_visible, bool, 60)
        here = box(tip)
        assert apart(here, box(cell)), key
        assert here[0] >= -1 and here[1] >= -1 and here[2] <= seen["width"] + 1 and here[3] <= seen["height"] + 1, key
        assert tip.evaluate("node => node.scrollHeight <= node.clientHeight + 1"), key


# --- paper


@pytest.mark.parametrize("wide", [1440, 760])
def test_on_paper_everything_lies_open_and_nothing_is_cut(show, wide, artefacts):
    page = show("springs", (wide, 900, 1.0, False))
    open_ledger(page)
    page.page.locator("button.wb-row").nth(1).click()
    page.says(".wb-scope .wb-head", "#0 forces")
    page.page.set_viewport_size({"width": 720, "height": 1000})
    page.page.emulate_media(media="print")
    for selector in (
        ".wb-heats .wb-head",
        ".wb-rows",
        ".wb-sum",
        ".wb-scope table",
        ".wb-findings .wb-finding",
        ".wb-table table",
    ):
        eventually(page.page.locator(selector).first.is_visible, bool, 60)
    cut = """() => [...document.querySelectorAll(".wb-view, .wb-view *")].filter((n) => {
        const r = n.getBoundingClientRect(), s = getComputedStyle(n);
        if (!r.width || n.closest("svg") && n.tagName !== "svg") return false;
        const hidden = s.overflowX !== "visible" || s.overflowY !== "visible";
        const more = n.scrollHeight > n.clientHeight + 2 || n.scrollWidth > n.clientWidth + 2;
        return r.right > innerWidth + 1 || (hidden && n.tagName !== "svg" && more);
    }).map((n) => n.className || n.tagName)"""
    eventually(lambda: page.evaluate(cut), lambda found: found == [])
    page.screenshot(path=str(artefacts / f"paper-{wide}.png"), full_page=True)
    assert page.count(".wb-lanes [data-name='loss']") == 1
    assert len(page.page.pdf(format="A4")) > 10_000
    page.page.emulate_media(media="screen")
    assert page.page.locator(".wb-ledger").is_hidden() and page.page.locator(".wb-table table").is_hidden()


# --- for everyone


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_in_any_tab(show, dark):
    page = show("springs", (1024, 768, 1.0, dark))
    page.evaluate(axe_script())
    open_ledger(page)
    page.page.locator("button.wb-row").nth(1).click()
    page.says(".wb-scope .wb-head", "#0 forces")
    page.mouse.move(2, 2)
    for name in ("microscope", "ledger", "values", "keys"):
        if name == "keys":
            page.get_by_role("button", name="show the keys").click()
        else:
            page.tab(name)
        found = page.evaluate("axe.run(document.querySelector('.wb-view'))")
        assert [(v["id"], [n["html"] for n in v["nodes"]]) for v in found["violations"]] == [], name


def test_tabs_are_walked_by_arrows(show):
    page = show("springs")
    page.get_by_role("tab", name="values").focus()
    page.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "ledger"
    assert page.page.locator(".wb-ledger").is_visible() and page.page.locator(".wb-heats").is_hidden()
    assert page.cursor() == "reverse 5/5"
