"""The film as a page, alone and above the lanes: played, scrubbed, picked from, dragged; every number is the tape's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from lab import eventually

import workbench as wb
from tests.viz.test_film import STEPS, springs, spun

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
INK = """([selector, ink]) => {
  const canvas = document.querySelector(selector), pen = canvas.getContext("2d");
  const look = getComputedStyle(canvas.closest(".wb-view")).getPropertyValue(`--wb-${ink}`).trim();
  const wanted = look.match(/[0-9a-f]{2}/gi).map((x) => parseInt(x, 16)), same = (n) => data[n + 3] > 250;
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let n = 0; n < data.length; n += 4) found += wanted.every((v, c) => Math.abs(data[n + c] - v) < 3) && same(n);
  return found;
}"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("films")
    tape, a, moments = springs("numpy", "all")
    x = a["x"]
    film = tape.film(x, lines=a["ends"], colour=a["rest"].grad)
    film.cursor = moments[4]
    found: dict[str, Any] = {"tape": tape, "a": a, "film": film, "moments": moments}
    found["alone"] = film.save(folder / "alone.html")
    found["asking"] = folder / "asking.html"
    found["asking"].write_text(film.page(what_if=True), "utf-8")
    found["explore"] = tape.to_html(
        folder / "explore.html", film={"points": x, "lines": a["ends"]}, cells=[(x, (3, 0))]
    )
    grid = wb.array(np.where(np.eye(12), np.nan, np.arange(144.0).reshape(12, 12)), dtype=float, requires_grad=True)
    out = wb.zeros((12, 12), dtype=float)
    with wb.Tape(keep="all") as plane:
        for _ in range(3):
            out.assign(grid)
            grid.assign(out)
    plane.backward(grads={grid: wb.ones((12, 12))})
    found["plane_film"] = plane.film(field=grid)
    found["plane"] = found["plane_film"].save(folder / "plane.html")
    solid = [wb.array(np.eye(3) + 0.1 * k, dtype=wb.vec3) for k in range(4)]
    with wb.Tape(keep="all") as deep:
        for k in range(3):
            solid[k + 1].assign(solid[k])
    found["solid"] = deep.film(solid).save(folder / "solid.html")
    state = wb.array(np.eye(3), dtype=wb.vec3, requires_grad=True)
    with wb.Tape(keep="all") as turned:
        for _ in range(3):
            state.assign(state)
    turned.backward(grads={state: wb.ones(3, dtype=wb.vec3)})
    found["deep_film"], found["deep"] = turned.film(state), folder / "deep.html"
    found["deep"].write_text(found["deep_film"].page(what_if=True), "utf-8")
    (tape, _), (other, _) = spun([]), spun([0.0, 0.0, 0.0, 0.25])
    found["two_film"] = tape.film(against=other)
    found["two"] = found["two_film"].save(folder / "two.html")
    return found


@pytest.fixture
def show(browser: Browser, made: dict[str, Any]) -> Iterator[Any]:
    contexts = []

    def opened(name: str, dark: bool = False, motion: str = "reduce", ask: Any = None, wide: int = 1280) -> Page:
        scheme = "dark" if dark else "light"
        context = browser.new_context(
            viewport={"width": wide, "height": 900}, color_scheme=scheme, reduced_motion=motion
        )
        contexts.append(context)
        page = context.new_page()
        page.complaints, page.asked = [], []
        page.on("console", lambda m: page.complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: page.complaints.append(str(e)))
        page.on("request", lambda r: page.asked.append(r.url))
        if ask is not None:
            page.expose_function("askKernel", ask)
            page.add_init_script(
                "globalThis.kernel = (asked) => globalThis.askKernel(asked).then(({ ok, buffers }) =>"
                " ({ ok, buffers: buffers.map((b) => new DataView(Uint8Array.from(b).buffer)) }));"
            )
        page.goto(made[name].as_uri())
        page.wait_for_selector(".wb-film .wb-when", timeout=60_000)
        eventually(lambda: page.inner_text(".wb-when"))
        return page

    yield opened
    for context in contexts:
        context.close()


def scrub(page: Page, k: int) -> None:
    page.locator(".wb-time").fill(str(k))


def rows(page: Page) -> list[list[float]]:
    """The numbers of the table, a row for each point."""
    if page.locator(".wb-film details").get_attribute("open") is None:
        page.locator(".wb-film summary").click()
        page.wait_for_selector(".wb-film tbody tr")  # it is filled when the page says that it is open, a moment later
    cells = page.locator(".wb-film tbody tr").all_inner_texts()
    return [
        [float(n.replace("−", "-")) for n in re.findall(r"−?\d+(?:\.\d+)?(?:e−?\d+)?", c.partition("\t")[2])]
        for c in cells
    ]


def spot(film: Any, k: int, i: int, page: Page) -> tuple[float, float]:
    """Where a point of a flat film is on the page."""
    box = page.locator(".wb-scene").bounding_box()
    assert box is not None
    (left, right), (low, high) = film.film_meta["points"]["box"]
    wide, tall, most = box["width"] - 2, box["height"] - 2, max(right - left, high - low)
    zoom = 0.86 * min(wide / max(right - left, most / 4), tall / max(high - low, most / 4))
    x, y = (float(v) for v in film.values("points")[k, i])
    return box["x"] + 1 + wide / 2 + (x - (left + right) / 2) * zoom, box["y"] + 1 + tall / 2 - (
        y - (low + high) / 2
    ) * zoom


# --- alone


def test_the_page_asks_for_nothing_but_itself_and_complains_of_nothing(show, made):
    for name in ("alone", "plane", "solid", "explore"):
        page = show(name)
        assert page.asked == [made[name].as_uri()] and page.complaints == []


def test_scrubbing_shows_the_numbers_of_each_frame(show, made):
    page, film = show("alone"), made["film"]
    assert page.inner_text(".wb-when") == film.reel.said(4)
    for k in (7, 2, STEPS, 0):
        scrub(page, k)
        assert page.inner_text(".wb-when") == film.reel.said(k)
        assert page.locator(".wb-when").get_attribute("data-moment") == str(made["moments"][k])
        expected = np.concatenate([film.values("points")[k], film.adjoints("points")[k]], axis=1)
        np.testing.assert_allclose(rows(page), expected, rtol=2e-5, atol=1e-9)
        assert page.locator(".wb-time").evaluate("(e) => Number(e.style.getPropertyValue('--wb-done'))") == k / STEPS
    assert f"{STEPS} steps in all" in page.inner_text(".wb-film > .wb-status")


def test_buttons_and_keys_go_from_frame_to_frame(show, made):
    page, film = show("alone"), made["film"]
    page.get_by_role("button", name="one frame on").click()
    assert page.inner_text(".wb-when") == film.reel.said(5)
    page.locator(".wb-scene").focus()
    for key, k in (("ArrowLeft", 4), ("End", STEPS), ("Home", 0)):
        page.keyboard.press(key)
        assert page.inner_text(".wb-when") == film.reel.said(k)


def test_the_film_plays_forward_without_adjoints_and_back_with_them(show, made):
    page = show("alone", motion="no-preference")
    scrub(page, 0)
    assert page.evaluate(INK, [".wb-scene", "hot"]) > 100
    page.get_by_role("button", name="play: the physics forward").click()
    at = "Number(document.querySelector('.wb-time').value)"
    forward = "document.querySelector('.wb-time').classList.contains('wb-forward')"
    eventually(lambda: page.evaluate(at) > 2)
    assert page.evaluate(forward) and page.evaluate(INK, [".wb-scene", "hot"]) == 0
    eventually(lambda: page.evaluate(at) >= STEPS - 1)
    eventually(lambda: not page.evaluate(forward))
    eventually(lambda: page.evaluate(at) < 6)
    page.get_by_role("button", name="play: the physics forward").wait_for(timeout=30_000)
    assert page.inner_text(".wb-when") == made["film"].reel.said(0)
    assert page.evaluate(INK, [".wb-scene", "hot"]) > 100 and page.complaints == []


def test_a_point_under_the_pointer_and_one_that_is_picked_tell_value_and_adjoint(show, made):
    page, film = show("alone"), made["film"]
    x, y = spot(film, 4, 3, page)
    page.mouse.move(x + 2, y + 1)
    said = page.inner_text(".wb-callout")
    numbers = [float(n.replace("−", "-")) for n in re.findall(r"−?\d+(?:\.\d+)?(?=[,)])", said)]
    assert said.splitlines()[0].startswith(f"{film.reel.tracks['points'].name}[3]  (")
    np.testing.assert_allclose(numbers, [*film.values("points")[4, 3], *film.adjoints("points")[4, 3]], rtol=1e-3)
    page.mouse.click(x, y)
    page.mouse.move(5, 5)
    assert "[3]" in page.inner_text(".wb-picked") and page.inner_text(".wb-callout").startswith(said.splitlines()[0])
    page.locator(".wb-scene").focus()
    page.keyboard.press("]")
    assert "[4]" in page.inner_text(".wb-picked")


def test_a_line_that_is_picked_tells_its_length_its_colour_and_its_ends(show, made):
    page, film = show("alone"), made["film"]
    a, b = (np.array(spot(film, 4, i, page)) for i in (3, 4))
    page.mouse.click(*(a + 0.4 * (b - a)))
    said = page.inner_text(".wb-picked").splitlines()
    first = next(k for k, text in enumerate(said) if text.startswith("line 3  length "))
    x = film.values("points")[4]
    assert float(said[first].rpartition(" ")[2]) == pytest.approx(np.linalg.norm(x[4] - x[3]), rel=1e-3)
    assert said[first + 1].startswith("adjoint of ")
    colour = float(said[first + 1].rpartition(" ")[2].replace("−", "-"))
    assert colour == pytest.approx(film.reel.colours[4, 3], rel=1e-2)
    assert "[3]  (" in said[first + 2] and any("[4]  (" in text for text in said[first + 3 :])
    page.mouse.click(*spot(film, 4, 3, page))
    assert "line" not in page.inner_text(".wb-picked")


def test_nan_is_a_hole_with_a_rim_and_a_cell_tells_its_numbers(show, made):
    page = show("plane")
    assert page.locator(".wb-plane").count() == 2
    assert page.evaluate(INK, [".wb-plane", "bad"]) > 200
    assert "12 cells of" in page.inner_text(".wb-film > .wb-status")
    box = page.locator(".wb-plane").first.bounding_box()
    size = min(box["width"] - 2, box["height"] - 2) / 12
    left = box["x"] + 1 + (box["width"] - 2 - 12 * size) / 2
    page.mouse.click(left + 7.5 * size, box["y"] + 1 + 2.5 * size)
    assert "[2, 7]  31" in page.inner_text(".wb-picked") and "adjoint 1" in page.inner_text(".wb-picked")
    page.mouse.click(left + 5.5 * size, box["y"] + 1 + 5.5 * size)
    assert "[5, 5]  NaN" in page.inner_text(".wb-picked")


def test_three_axes_turn_and_zoom(show):
    page = show("solid")
    image = "document.querySelector('.wb-scene').toDataURL()"
    first, box = page.evaluate(image), page.locator(".wb-scene").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 140, box["y"] + 60, steps=4)
    page.mouse.up()
    turned = page.evaluate(image)
    page.get_by_role("button", name="zoom in").click()
    assert len({first, turned, page.evaluate(image)}) == 3 and page.complaints == []


# --- two runs


def test_play_stops_where_two_runs_part_and_goes_on_from_there(show, made):
    page, film = show("two", motion="no-preference"), made["two_film"]
    frame, said = film.parted
    assert said in page.inner_text(".wb-remarks")
    scrub(page, 0)
    play = page.get_by_role("button", name="play: the physics forward")
    play.click()
    eventually(lambda: "here the two runs part" in page.inner_text(".wb-film > .wb-status"))
    assert said in page.inner_text(".wb-film > .wb-status") and page.inner_text(".wb-when") == film.reel.said(frame)
    play.click()
    eventually(lambda: int(page.locator(".wb-time").input_value()) > frame)
    assert page.complaints == []


def test_a_point_tells_its_numbers_in_both_runs_and_the_ghost_is_drawn(show, made, artefacts):
    page, film = show("two"), made["two_film"]
    scrub(page, 8)
    page.screenshot(path=str(artefacts / "film_two.png"))
    page.locator(".wb-scene").focus()
    for _ in range(4):
        page.keyboard.press("]")
    told = page.inner_text(".wb-picked").replace("−", "-")
    numbers = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?(?=[,)])", told)]
    expected = [film.values("points")[8, 3], film.ghost("points")[8, 3], film.adjoints("points")[8, 3]]
    np.testing.assert_allclose(numbers, np.concatenate(expected), rtol=1e-3, atol=1e-6)
    image = "document.querySelector('.wb-scene').toDataURL()"
    both = page.evaluate(image)
    page.evaluate("document.querySelector('.wb-scene').focus()")
    scrub(page, 2)
    assert page.evaluate(image) != both and page.complaints == []


# --- what if


def test_dragging_a_point_runs_the_program_again_beside_the_prediction(show, made):
    film, asked = made["film"], []

    def answer(content: dict) -> dict:
        asked.append(content)
        found, blobs = film.what_if.answer(content)
        return {"ok": found, "buffers": [list(blob) for blob in blobs]}

    page = show("asking", ask=answer)
    scrub(page, 0)
    x, y = spot(film, 0, 2, page)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 30, y - 40, steps=3)
    page.mouse.up()
    eventually(lambda: page.inner_text(".wb-said") and asked[-1]["frame"] == -1)  # to ask the page lets it ask us
    (_, n, dx), (_, _, dy) = asked[-1]["changes"]
    assert n == 4 and dx > 0 and dy > 0
    start = made["a"]["x0"].numpy().copy()
    start[2] += np.float32([dx, dy])
    again = made["tape"].replay({made["a"]["x0"]: start})
    loss = pytest.approx(float(again[made["a"]["loss"]].numpy()[0]), rel=1e-6)
    words = page.locator(".wb-said")
    said = eventually(lambda: words.evaluate("(e) => ({ ...e.dataset })"), lambda said: float(said["loss"]) == loss)
    slope = made["tape"].adjoint(made["a"]["x0"], at=made["tape"].events[0])[2].astype(float)
    assert float(said["predicted"]) == pytest.approx(float(said["before"]) + slope @ [dx, dy], rel=1e-6)
    scrub(page, STEPS)
    ends = again[made["a"]["x"]].numpy()
    eventually(lambda: np.array(rows(page))[:, :2], lambda shown: np.allclose(shown, ends, rtol=2e-5))
    assert page.evaluate(INK, [".wb-scene", "hot"]) > 30, "the prediction is dashed"
    page.get_by_role("button", name="show the recorded run again").click()
    np.testing.assert_allclose(np.array(rows(page))[:, :2], film.values("points")[-1], rtol=2e-5)


def test_a_slider_moves_a_number_and_draws_the_loss(show, made):
    film = made["film"]
    rest = next(k for k, one in enumerate(film.what_if.inputs) if one.a is made["a"]["rest"])

    def answer(content: dict) -> dict:
        found, blobs = film.what_if.answer(content)
        return {"ok": found, "buffers": [list(blob) for blob in blobs]}

    page = show("asking", ask=answer)
    page.get_by_label("input to change").select_option(str(rest))
    page.get_by_label("index of the number").fill("3")
    page.keyboard.press("Tab")
    page.get_by_label("change of the number").fill("25")
    eventually(lambda: "0.8 → 1" in page.inner_text(".wb-whatif .wb-figures"))
    page.get_by_label("change of the number").fill("-25")
    eventually(lambda: "0.8 → 0.6" in page.inner_text(".wb-whatif .wb-figures"))
    assert page.locator(".wb-losschart circle").count() == 3
    curve = page.locator(".wb-curve img")
    eventually(lambda: curve.evaluate("(e) => e.naturalWidth"), lambda wide: wide > 500)
    assert curve.get_attribute("alt") == made["tape"].trust(made["a"]["loss"]).sentence
    assert "gradient says" in page.inner_text(".wb-said") and page.complaints == []


# --- another seed


def seeded(made: dict[str, Any], more: np.ndarray) -> np.ndarray:
    """The adjoints before the first step by the loss and these weights of the end, of another tape."""
    tape, a, moments = springs("numpy", "all")
    tape.zero()
    tape.backward(grads={a["loss"]: wb.ones(1), a["x"]: wb.array(more, dtype=wb.vec2)})
    return tape.adjoint(a["x"], at=tape.events[moments[0]])


def asking(made: dict[str, Any], asked: list[dict], film: str = "film") -> Any:
    def answer(content: dict) -> dict:
        if "curve" not in content:  # that is asked unasked
            asked.append(content)
        found, blobs = made[film].what_if.answer(content)
        return {"ok": found, "buffers": [list(blob) for blob in blobs]}

    return answer


def tip(film: Any, i: int, page: Page) -> tuple[float, float]:
    """Where the arrow of a point ends at the last frame."""
    (x, y), (ax, ay) = spot(film, STEPS, i, page), -film.adjoints("points")[-1, i] / film.film_meta["arrows"]["scale"]
    return x + 64 * float(ax), y - 64 * float(ay)


@pytest.mark.parametrize("dark", [False, True])
def test_an_arrow_that_is_pulled_is_another_seed_and_all_arrows_are_its(show, made, artefacts, dark: bool):
    film, asked = made["film"], []
    page = show("asking", dark, ask=asking(made, asked))
    scrub(page, STEPS)
    i = int(np.linalg.norm(film.adjoints("points")[-1], axis=1).argmax())
    x, y = tip(film, i, page)
    page.mouse.move(x, y)
    assert page.locator(".wb-scene").evaluate("(e) => e.style.cursor") == "grab"
    page.mouse.down()
    page.mouse.move(x - 30, y - 45, steps=3)
    assert asked == [], "it is asked once, when the arrow is let go"
    page.mouse.up()
    eventually(lambda: "that of the film" in page.inner_text(".wb-film > .wb-status"))
    ((first, bx), (second, by)) = asked[-1]["pulls"]
    unit = film.film_meta["arrows"]["scale"] / 64
    assert (first, second) == (2 * i, 2 * i + 1) and len(asked) == 1
    np.testing.assert_allclose([bx, by], [30 * unit, -45 * unit], rtol=1e-6)
    more = np.zeros((film.values("points").shape[1], 2), np.float32)
    more[i] = bx, by
    shown = np.array(rows(page))[:, 2:]
    np.testing.assert_allclose(shown, film.adjoints("points")[-1] + more, rtol=2e-5, atol=1e-6)
    page.screenshot(path=str(artefacts / f"film_seed_{'dark' if dark else 'light'}.png"))
    scrub(page, 0)
    expected = seeded(made, more)
    np.testing.assert_allclose(np.array(rows(page))[:, 2:], expected, rtol=2e-5, atol=1e-6)
    assert np.abs(expected - film.adjoints("points")[0]).max() > 1e-2
    page.mouse.dblclick(*spot(film, 0, 1, page))
    eventually(lambda: "that of the film" not in page.inner_text(".wb-film > .wb-status"))
    np.testing.assert_allclose(np.array(rows(page))[:, 2:], film.adjoints("points")[0], rtol=2e-5, atol=1e-9)
    assert page.complaints == []


def test_keys_pull_an_arrow_and_escape_puts_the_seed_back(show, made):
    film, asked = made["film"], []
    page = show("asking", ask=asking(made, asked))
    status = page.locator(".wb-film > .wb-status")
    page.locator(".wb-scene").focus()
    page.keyboard.press("Shift+ArrowUp")
    assert "The seed stays: the arrows are the seed at the last frame" in status.inner_text()
    page.keyboard.press("End")
    page.keyboard.press("Shift+ArrowUp")
    assert "no point is picked" in status.inner_text() and asked == []
    page.keyboard.press("]")
    page.keyboard.press("Shift+ArrowUp")
    page.keyboard.press("Shift+ArrowUp")
    up = -16 * film.film_meta["arrows"]["scale"] / 64
    eventually(lambda: asked[-1]["pulls"], lambda pulls: pulls[1] == [1, pytest.approx(up)] and abs(pulls[0][1]) < 1e-9)
    eventually(lambda: rows(page)[0][3], lambda y: y == pytest.approx(film.adjoints("points")[-1, 0, 1] + up, rel=1e-4))
    page.keyboard.press("Escape")
    eventually(lambda: rows(page)[0][3], lambda y: y == pytest.approx(film.adjoints("points")[-1, 0, 1], rel=2e-5))
    assert asked[-1]["pulls"] == [] and page.complaints == []


def test_shift_pulls_an_arrow_out_of_a_point_that_has_none(show, made):
    asked: list[dict] = []
    page = show("asking", ask=asking(made, asked))
    scrub(page, STEPS)
    x, y = spot(made["film"], STEPS, 2, page)
    page.keyboard.down("Shift")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 20, y, steps=2)
    page.mouse.up()
    page.keyboard.up("Shift")
    eventually(lambda: asked and [n for n, _ in asked[-1]["pulls"]] == [4, 5])


def test_an_arrow_of_three_axes_is_pulled_in_the_plane_of_the_canvas(show, made):
    asked: list[dict] = []
    page = show("deep", ask=asking(made, asked, "deep_film"))
    page.locator(".wb-scene").focus()
    for key in ("End", "]", "Shift+ArrowRight", "Shift+ArrowUp", "Shift+ArrowUp"):
        page.keyboard.press(key)
    (yaw, pitch), pixel = (0.6, 0.4), made["deep_film"].film_meta["arrows"]["scale"] / 64
    right = np.array([np.cos(yaw), 0.0, np.sin(yaw)])
    up = np.array([np.sin(pitch) * np.sin(yaw), np.cos(pitch), -np.sin(pitch) * np.cos(yaw)])
    wanted = -pixel * (8 * right + 16 * up)  # an arrow is minus an adjoint
    eventually(lambda: [by for _, by in asked[-1]["pulls"]], lambda by: np.allclose(by, wanted, rtol=1e-6))
    expected = 1 + np.pad(wanted[None], ((0, 2), (0, 0)))
    for k in (3, 0):
        scrub(page, k)
        eventually(lambda: np.array(rows(page))[:, 3:], lambda shown: np.allclose(shown, expected, rtol=2e-5))
    assert page.complaints == []


def test_without_a_kernel_the_page_says_so(show):
    said = show("alone").inner_text(".wb-whatif")
    assert "without a kernel cannot run the program again" in said
    assert "No other seed: a page without a kernel cannot walk back again." in said


# --- above the lanes


def test_one_cursor_for_the_stage_and_the_lanes(show, made):
    page = show("explore")
    scrub(page, 5)
    assert (
        page.locator(".cursortext").text_content()
        == f"reverse {len(made['tape'].events) - made['moments'][5]}/{len(made['tape'].events)}"
    )
    page.get_by_role("button", name="one step of the reverse pass", exact=True).click()
    assert page.inner_text(".wb-when") == made["film"].reel.said(4)
    page.get_by_role("button", name="start of the reverse pass: only the seed").click()
    assert page.inner_text(".wb-when") == made["film"].reel.said(STEPS)


def test_a_point_of_the_stage_opens_its_ledger_and_a_cell_of_a_lane_lights_it_up(show, made):
    page = show("explore")
    scrub(page, STEPS)
    x, y = spot(made["film"], STEPS, 3, page)
    page.mouse.click(x, y)
    page.get_by_role("tab", name="ledger", selected=True).wait_for()
    assert page.get_by_label("index of the element").input_value() == "3, 0"
    page.get_by_label("index of the element").fill("5, 1")
    page.keyboard.press("Enter")
    eventually(lambda: "[5]" in page.inner_text(".wb-picked"))
    assert page.complaints == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["alone", "plane", "explore"])
def test_nobody_is_locked_out(show, artefacts, name: str, dark: bool):
    axe_playwright_python = pytest.importorskip("axe_playwright_python")
    page = show(name, dark)
    page.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8"))
    page.screenshot(path=str(artefacts / f"film_{name}_{'dark' if dark else 'light'}.png"))
    found = page.evaluate(
        "async () => (await axe.run()).violations.map((v) => [v.id, v.nodes.map((n) => n.html.slice(0, 160))])"
    )
    assert found == []


@pytest.mark.parametrize("wide", [1440, 1024, 700])
def test_nothing_is_wider_than_the_page(show, wide: int):
    page = show("alone", wide=wide)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_where_motion_is_not_wanted_play_stops_at_few_frames(show):
    page = show("alone")
    scrub(page, 0)
    page.evaluate(
        "globalThis.seen = new Set(); new MutationObserver(() => seen.add(document.querySelector('.wb-time').value))"
        ".observe(document.querySelector('.wb-when'), { childList: true, characterData: true, subtree: true })"
    )
    page.get_by_role("button", name="play: the physics forward").click()
    page.wait_for_timeout(2600)
    page.get_by_role("button", name="pause the film").click()
    assert page.evaluate("seen.size") <= 4
