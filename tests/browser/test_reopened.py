"""A notebook with a live view, saved and opened again: the picture stands where the live view was."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from lab import ROOT, JupyterLab, eventually, opened, write_notebook
from nbconvert import HTMLExporter
from nbformat.sign import NotebookNotary

if TYPE_CHECKING:
    from lab import NotebookPage

pytestmark = pytest.mark.browser
SAMPLES = Path(__file__).resolve().parents[1] / "support" / "view_samples.py"
CELLS = [
    "import workbench as wb, view_samples as samples\ntape, arrays = samples.springs()",
    "print('before')\nview = tape.explore()\ndisplay(view)\nprint('after')",
    "long, _ = samples.crowd(6000, 40)\nlong.explore()",
]
SHOWN = """() => [...document.querySelectorAll('.jp-OutputArea-child')].map((child) => ({
    live: child.querySelector('.wb-view') !== null,
    picture: child.querySelector('.wb-still img')?.naturalWidth ?? 0,
    high: child.getBoundingClientRect().height,
    text: child.innerText,
}))"""
WITHOUT_NOTEBOOK = pytest.mark.skipif(not importlib.util.find_spec("notebook"), reason="Notebook 7 is not installed")


@pytest.fixture(scope="module", params=["jupyterlab", pytest.param("notebook", marks=WITHOUT_NOTEBOOK)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterLab]:
    if request.param == "jupyterlab":
        yield request.getfixturevalue("lab")
        return
    started = JupyterLab(tmp_path_factory.mktemp("notebook"), request.param)
    started.start()
    yield started
    started.stop()


def outputs(notebook: NotebookPage) -> list[dict[str, Any]]:
    return [one for one in notebook.page.evaluate(SHOWN) if one["high"] > 0]


def ours(notebook: NotebookPage) -> list[str]:
    """Without what the hosts say themselves: ipywidgets complains of any widget without a kernel."""
    return [text for text in notebook.ours() if "widget model not found" not in text]


def let_go(server: JupyterLab) -> None:
    for session in server.api("sessions"):
        server.api(f"sessions/{session['id']}", "DELETE")


def test_a_saved_view_is_a_picture_until_it_lives(server: JupyterLab, browser: Any) -> None:
    shutil.copy(SAMPLES, server.files / SAMPLES.name)
    write_notebook(server.files / "saved.ipynb", CELLS)
    lives = [False, True, False, True]
    with opened(browser, server, "saved.ipynb") as notebook:
        notebook.run_all()
        assert notebook.errors() == []
        seeds = notebook.page.locator(".wb-seed")
        eventually(seeds.all_inner_texts, lambda texts: len(texts) == 2 and all("seed" in text for text in texts))
        assert [one["live"] for one in outputs(notebook)] == lives  # the pictures are there, and hidden
        assert notebook.page.locator(".wb-still").count() == 2
        notebook.save()
        assert ours(notebook) == [] and notebook.off_site == []
    stored = json.loads((server.files / "saved.ipynb").read_text("utf-8"))
    assert all(len(json.dumps(cell["outputs"])) < 300_000 for cell in stored["cells"])
    let_go(server)
    with opened(browser, server, "saved.ipynb") as notebook:  # with another kernel, which knows nothing of it
        eventually(lambda: [one["picture"] > 500 for one in outputs(notebook)], lambda found: found == lives)
        assert not any(word in notebook.page.inner_text("body") for word in ("not found", "Loading widget"))
        assert ours(notebook) == []
        notebook.run_all()
        eventually(lambda: [one["live"] for one in outputs(notebook)], lambda found: found == lives)
    let_go(server)
    stored["metadata"]["kernelspec"] = {"name": "gone", "display_name": "gone", "language": "cobol"}
    notary = NotebookNotary(data_dir=str(server.home / "data"))  # opened as trusted, so that a widget is looked for
    (server.files / "alone.ipynb").write_text(json.dumps(stored), "utf-8")
    notary.sign(nbformat.from_dict(stored))
    with opened(browser, server, "alone.ipynb", kernel=False) as notebook:
        eventually(lambda: [one["picture"] > 500 for one in outputs(notebook)], lambda found: found == lives)
        assert not any(word in notebook.page.inner_text("body") for word in ("not found", "Loading widget"))
        assert ours(notebook) == []


BOXES = "[...document.querySelectorAll('.wb-tape-view img')].map((one) => one.getBoundingClientRect().toJSON())"


def beside_each_other(boxes: list[dict[str, float]], wide: int) -> bool:
    if len(boxes) != 2:
        return False
    left, right = boxes
    return left["y"] == right["y"] and left["right"] <= right["x"] and right["right"] <= wide and left["width"] > 200


def test_tape_views_beside_each_other_are_beside_each_other(lab: JupyterLab, browser: Any) -> None:
    shutil.copy(SAMPLES, lab.files / SAMPLES.name)
    write_notebook(lab.files / "beside.ipynb", [CELLS[0], "tape.show().beside(tape.show())"])
    with opened(browser, lab, "beside.ipynb") as notebook:
        for wide in (1440, 1024):
            notebook.page.set_viewport_size({"width": wide, "height": 900})
            if wide == 1440:
                notebook.run_all()
            fits = functools.partial(beside_each_other, wide=wide)
            eventually(lambda: notebook.page.evaluate(BOXES), fits)  # JupyterLab moves its cells for a while


FILMED = [
    "from tests.viz.test_film import springs\ntape, a, moments = springs('numpy', 'all')",
    "film = tape.film(a['x'], lines=a['ends'])\nfilm",
    "[film.reel.said(3), film.adjoints('points')[3, 2].tolist()]",
]


def plays(page: Any, said: list[str]) -> None:
    """The film without a kernel: its slider goes to a frame, a point tells its numbers of then, and it plays."""
    frame = page.frame_locator("iframe.wb-played")
    frame.locator(".wb-time").fill("3")
    eventually(lambda: frame.locator(".wb-when").inner_text() == said[0])
    frame.locator(".wb-scene").focus()
    for _ in range(3):
        page.keyboard.press("]")
    eventually(lambda: f"adjoint ({said[1]}, {said[2]})" in frame.locator(".wb-picked").inner_text().replace("−", "-"))
    frame.get_by_role("button", name="first frame").click()
    frame.get_by_role("button", name="play: the physics forward").click()
    eventually(lambda: float(frame.locator(".wb-time").input_value()) > 1)
    assert "without a kernel" in frame.locator(".wb-whatif").inner_text()


def test_a_saved_film_plays_without_a_kernel(lab: JupyterLab, browser: Any, artefacts: Path) -> None:
    write_notebook(lab.files / "film_saved.ipynb", FILMED)
    with opened(browser, lab, "film_saved.ipynb") as notebook:
        notebook.run_all()
        assert notebook.errors() == []
        notebook.page.wait_for_selector(".wb-film .wb-when", timeout=120_000)
        with lab.kernel_of("film_saved.ipynb") as kernel:
            said = [kernel.value("film.reel.said(3)")]
            said += kernel.value("[f'{v:.4g}' for v in film.adjoints('points')[3, 2].tolist()]")
        eventually(lambda: not notebook.page.locator(".wb-still iframe").is_visible())  # hidden while the widget lives
        notebook.save()
    stored = json.loads((lab.files / "film_saved.ipynb").read_text("utf-8"))
    assert 50_000 < len(json.dumps(stored["cells"][1]["outputs"])) < 300_000
    stored["metadata"]["kernelspec"] = {"name": "gone", "display_name": "gone", "language": "cobol"}
    (lab.files / "film_alone.ipynb").write_text(json.dumps(stored), "utf-8")
    NotebookNotary(data_dir=str(lab.home / "data")).sign(nbformat.from_dict(stored))
    with opened(browser, lab, "film_alone.ipynb", kernel=False) as notebook:
        notebook.page.locator("iframe.wb-played").scroll_into_view_if_needed()
        plays(notebook.page, said)
        assert not notebook.page.locator(".wb-poster").is_visible() and ours(notebook) == [] == notebook.off_site
        notebook.page.screenshot(path=str(artefacts / "film_reopened.png"))
    page = browser.new_page()
    page.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    html, _ = HTMLExporter().from_filename(str(lab.files / "film_alone.ipynb"))
    (lab.files / "film.html").write_text(html, "utf-8")
    page.goto((lab.files / "film.html").as_uri())
    page.locator("iframe.wb-played").scroll_into_view_if_needed()
    plays(page, said)
    page.close()


CONVERTED = [
    "import workbench as wb, view_samples as samples\ntape, arrays = samples.springs()",
    "wb.viz.predict('1 + 1?', ['1', '2'], '2')",
    "tape.seeds(arrays['loss'])",
    "tape.explore()",
]


def test_a_notebook_made_html_with_its_widgets_state_shows_still_pictures(browser: Any, tmp_path: Path) -> None:
    shutil.copy(SAMPLES, tmp_path / SAMPLES.name)
    write_notebook(tmp_path / "stock.ipynb", CONVERTED)
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = [sys.executable, "-m", "nbconvert", "--execute", "--to", "html", "stock.ipynb"]
    subprocess.run(run, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, check=True, timeout=300)
    text = (tmp_path / "stock.html").read_text("utf-8")
    assert "application/vnd.jupyter.widget-state+json" in text
    page = browser.new_page()
    page.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    page.goto((tmp_path / "stock.html").as_uri())
    stills = page.locator(".wb-still")
    assert stills.count() == 3
    assert all(one.bounding_box()["height"] > 40 for one in stills.all())
    page.close()


FOLDED = "the answer, as a picture"  # of a question


@pytest.mark.parametrize("kind", ["html", "slides"])
@pytest.mark.parametrize(("stem", "least"), [("04_several_outputs", 1), ("19_film", 2)])
def test_a_lesson_converted_as_jupyter_does_has_its_pictures_without_a_script(
    stem: str, least: int, kind: str, browser: Any, tmp_path: Path
) -> None:
    """As a printer, a mail program or a reader without scripts shows it: every picture is there and has a size."""
    shutil.copy(ROOT / "notebooks" / f"{stem}.ipynb", tmp_path)
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = [sys.executable, "-m", "nbconvert", "--execute", "--to", kind, f"{stem}.ipynb"]
    subprocess.run(run, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, check=True, timeout=300)
    (made,) = tmp_path.glob("*.html")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    page.goto(made.as_uri())
    shown = [one.bounding_box() for one in page.locator("img").all() if one.get_attribute("alt") != FOLDED]
    assert len(shown) >= least and all(box and box["height"] > 40 and box["width"] > 200 for box in shown)
    context.close()
