"""The film in a real JupyterLab: drawn, scrubbed, with the program running again in the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

import pytest
from lab import eventually, opened, write_notebook

from tests.viz.test_tape_magic import KERNELS as SWING

if TYPE_CHECKING:
    from lab import JupyterLab

pytestmark = pytest.mark.browser
KERNELS = f"import numpy as np\nimport workbench as wb\n\n{SWING}"
START = """\
x = wb.array([[1.0, 0.0], [0.5, 1.5]], dtype=wb.vec2, requires_grad=True)
v, loss = wb.zeros(2, dtype=wb.vec2), wb.zeros(1)
"""
FALL = """\
for _ in range(8):
    wb.launch(swing, 2, [x, v])
wb.launch(far, 2, [x, loss])
"""
RECORD = f'{KERNELS}{START}with wb.Tape(keep="all") as tape:\n{indent(FALL, "    ")}tape.backward(loss)'


@pytest.fixture(scope="module")
def lab_page(lab: JupyterLab, browser: Any) -> Iterator[Any]:
    write_notebook(lab.files / "film.ipynb", [RECORD, "film = tape.film(x)\nfilm"])
    with opened(browser, lab, "film.ipynb") as notebook:
        notebook.run_all()
        assert notebook.errors() == []
        notebook.page.wait_for_selector(".wb-film .wb-when", timeout=120_000)
        with lab.kernel_of("film.ipynb") as kernel:
            yield notebook, kernel


def test_the_slider_moves_the_cursor_of_the_kernel_and_the_kernel_the_slider(lab_page):
    notebook, kernel = lab_page
    notebook.page.locator(".wb-time").fill("3")
    eventually(lambda: kernel.value("film.cursor == film.moments[3]"), timeout=20)
    kernel.value("exec('film.cursor = film.moments[6]')")
    eventually(lambda: notebook.page.inner_text(".wb-when") == kernel.value("film.reel.said(6)"), timeout=20)
    notebook.page.locator(".wb-scene").focus()
    notebook.page.keyboard.press("ArrowLeft")
    eventually(lambda: kernel.value("film.cursor == film.moments[5]"), timeout=20)


def test_a_number_that_is_moved_runs_the_program_again_in_the_kernel(lab_page):
    notebook, kernel = lab_page
    page = notebook.page
    page.locator(".wb-scene").focus()
    page.keyboard.press("]")
    assert "x[0]" in page.locator(".wb-callout").inner_text()
    page.get_by_label("index of the number").fill("0, 1")
    page.keyboard.press("Tab")
    page.get_by_label("change of the number").fill("10")
    eventually(lambda: "gradient says" in page.inner_text(".wb-said"), timeout=60)
    said = page.locator(".wb-said").evaluate("(e) => ({ ...e.dataset })")
    moved = "{x: np.float32([[1.0, 0.15], [0.5, 1.5]])}"
    assert float(said["loss"]) == pytest.approx(kernel.value(f"float(tape.replay({moved})[loss].numpy()[0])"), rel=1e-6)
    slope = kernel.value("float(tape.adjoint(x, at=tape.events[0])[0, 1])")
    assert float(said["predicted"]) == pytest.approx(float(said["before"]) + 0.15 * slope, rel=1e-6)
    assert notebook.ours() == [] and notebook.off_site == []


def test_a_cell_is_recorded_walked_and_shown_by_one_line(lab: JupyterLab, browser: Any) -> None:
    cell = f"%%tape swinging --seed loss --keep all --film\n{START}{FALL}print('fallen')"
    write_notebook(lab.files / "magic.ipynb", ["%load_ext workbench", KERNELS, cell])
    with opened(browser, lab, "magic.ipynb") as notebook:
        notebook.run_all()
        assert notebook.errors() == []
        notebook.page.wait_for_selector(".wb-film .wb-when", timeout=120_000)
        eventually(lambda: "points x (2) · arrows −adjoint of x" in notebook.page.inner_text(".wb-caption"))
        with lab.kernel_of("magic.ipynb") as kernel:
            gradient = kernel.value("x.grad.numpy().tolist()")
            assert gradient == kernel.value("swinging.adjoint(x, at=swinging.events[0]).tolist()")
            assert any(any(row) for row in gradient) and kernel.value("len(swinging.launches)") == 9
        assert notebook.page.get_by_text("fallen", exact=True).count() == 1
        assert notebook.ours() == [] and notebook.off_site == []


def test_keys_pull_the_seed_of_the_stage_and_the_lanes_follow(lab: JupyterLab, browser: Any, artefacts: Path) -> None:
    write_notebook(lab.files / "seed.ipynb", [RECORD, "view = tape.explore(film=x)\nview"])
    with opened(browser, lab, "seed.ipynb") as notebook:
        notebook.run_all()
        assert notebook.errors() == []
        page = notebook.page
        page.wait_for_selector(".wb-film .wb-when", timeout=120_000)
        with lab.kernel_of("seed.ipynb") as kernel:
            page.locator(".wb-scene").focus()
            for key in ("End", "]", "Shift+ArrowRight", "Shift+ArrowRight"):
                page.keyboard.press(key)
            unit = kernel.value("view.film_meta['arrows']['scale']") / 64
            eventually(lambda: f"that of the film {-16 * unit:+.3g} x[0, 0]" in page.inner_text(".wb-film .wb-status"))
            seed = kernel.value("float(view.what_if.seeds[x.allocation].view('float32')[0])")
            assert seed == pytest.approx(-16 * unit, rel=1e-6)
            eventually(lambda: "x[0, 0]" in page.inner_text(".wb-seed"))
            page.screenshot(path=str(artefacts / "film_seed_lab.png"))
            page.keyboard.press("Escape")
            eventually(lambda: kernel.value("view.what_if.seeds is None"), timeout=20)
            eventually(lambda: "x[0, 0]" not in page.inner_text(".wb-film .wb-status"))
        assert notebook.ours() == [] and notebook.off_site == []
