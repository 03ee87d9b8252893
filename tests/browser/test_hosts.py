"""The view where it is used: JupyterLab with its file browser open, Notebook 7, marimo, a bare host."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lab import JupyterLab, eventually, marimo, of_notebook_7, opened, reached, write_notebook
from test_inspector import apart, box, in_sight
from test_page import Opened, axe_script

from tests.viz.test_film import springs
from workbench.viz.live.view import reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
SAMPLES = Path(__file__).resolve().parents[1] / "support" / "view_samples.py"
CELLS = [
    'import workbench as wb, view_samples as samples\ntape, arrays = samples.springs()\nx = arrays["positions"]',
    "view = tape.explore()\nview",
]
SIZES = [((1440, 900), 1.0), ((1024, 768), 1.0), ((1440, 900), 1.5)]


def walked(page: Opened) -> None:
    """Open, step, ledger, one summand in the microscope, back: and each time what came is in sight."""
    page.page.locator(".wb-lanes .event").first.wait_for(timeout=120_000)
    page.cell(2).click()
    page.says(".wb-scope .wb-head", "inside #2 forces")
    in_sight(page, ".wb-dock", ".wb-scope tr.now", ".wb-scope tr.now td.wb-hot", ".wb-scope thead th.wb-hot")
    assert apart(box(page.page.locator(".wb-dock")), box(page.page.locator(".wb-main")))
    assert page.cursor() == "reverse 3/5"
    page.press("ArrowLeft", "ArrowLeft")
    assert page.cursor() == "reverse 5/5"
    page.tab("ledger")
    page.element("7, 0")
    page.says(".wb-sum", "positions.grad[7, 0]")
    in_sight(page, ".wb-dock", ".wb-ledger .wb-head", ".wb-rows li:first-child")
    page.page.locator("button.wb-row").nth(1).click()
    page.says(".wb-scope .wb-head", "#0 forces, thread 6")
    assert page.page.locator(".wb-scope tr.now .wb-source").inner_text() == "16 d = xi - x[i + 1]"
    in_sight(page, ".wb-dock", ".wb-scope tr.now td.wb-hot", ".wb-back")
    page.page.locator(".wb-back").click()
    page.says(".wb-rows .now", "#0 forces thread 6")


def in_notebook(browser: Browser, server: JupyterLab, size: tuple[int, int], zoom: float, picture: Path) -> None:
    shutil.copy(SAMPLES, server.files / SAMPLES.name)
    write_notebook(server.files / "inspector.ipynb", CELLS)
    with opened(browser, server, "inspector.ipynb", size=size, zoom=zoom) as notebook:
        notebook.run_all()
        assert notebook.errors() == []
        page = Opened(notebook.page)
        walked(page)
        notebook.page.screenshot(path=str(picture))
        notebook.page.evaluate(axe_script())
        found = notebook.page.evaluate("axe.run(document.querySelector('.wb-view'))")
        assert [(v["id"], [n["html"] for n in v["nodes"]]) for v in found["violations"]] == []
        assert notebook.ours() == []


@pytest.mark.parametrize("size, zoom", SIZES, ids=["1440", "1024", "1440 at 150 %"])
def test_in_a_lab_with_its_file_browser_open(lab, browser, artefacts, size, zoom):
    in_notebook(browser, lab, size, zoom, artefacts / f"lab-{size[0]}-{zoom}.png")


def test_in_notebook_7(notebook7, browser, artefacts):
    in_notebook(browser, notebook7, (1440, 900), 1.0, artefacts / "notebook7.png")


def test_a_plain_page_of_notebook_7_complains_too(notebook7, browser):
    write_notebook(notebook7.files / "plain.ipynb", ["import ipywidgets\nipywidgets.IntSlider()"])
    with opened(browser, notebook7, "plain.ipynb") as notebook:
        notebook.run_all()
        notebook.page.locator(".widget-slider").first.wait_for(timeout=60_000)
        eventually(lambda: notebook.complaints, timeout=20)
        assert all(map(of_notebook_7, notebook.complaints)), "or the exception made for it can go"


MARIMO = """\
import marimo
app = marimo.App()

@app.cell
def _():
    import workbench as wb, view_samples as samples
    tape, arrays = samples.springs()
    return (tape,)

@app.cell
def _(tape):
    tape.explore()
    return

if __name__ == "__main__":
    app.run()
"""


def test_in_marimo(tmp_path, browser, artefacts):
    shutil.copy(SAMPLES, tmp_path / SAMPLES.name)
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    try:
        page = Opened(context.new_page())
        with marimo(tmp_path, MARIMO) as address:
            eventually(lambda: reached(page.page, address), bool, 60)
            walked(page)
            page.page.screenshot(path=str(artefacts / "marimo.png"))
    finally:
        context.close()


# --- the film

FILM = [
    "from tests.viz.test_film import springs\ntape, a, moments = springs('numpy', 'all')",
    "film = tape.film(a['x'], lines=a['ends'])\nfilm",
]


def played(page: Page, cursor: Callable[[], int] | None, folder: Path) -> None:
    """Open, go to a frame, pick a point, play; `cursor`: that of the kernel, if one can be asked."""
    page.locator(".wb-film .wb-when").wait_for(timeout=120_000)
    moment = page.locator(".wb-when")
    page.locator(".wb-time").fill("1")
    eventually(lambda: page.locator(".wb-time").get_attribute("aria-valuetext") == moment.inner_text())
    here = int(eventually(lambda: moment.get_attribute("data-moment")))
    if cursor is not None:
        eventually(cursor, lambda n: n == here, 60)
    page.locator(".wb-scene").focus()
    page.keyboard.press("]")
    eventually(lambda: "adjoint (" in page.locator(".wb-picked").inner_text())
    page.get_by_label("change of the number").fill("10")
    eventually(lambda: "gradient says" in page.locator(".wb-said").inner_text(), timeout=60)
    page.get_by_role("button", name="show the recorded run again").click()
    page.get_by_role("button", name="play: the physics forward").click()
    eventually(lambda: int(page.locator(".wb-time").input_value()) > 1)
    page.screenshot(path=str(folder))


def test_the_film_in_notebook_7(notebook7, browser, artefacts):
    write_notebook(notebook7.files / "film.ipynb", FILM)
    with opened(browser, notebook7, "film.ipynb") as notebook:
        notebook.run_all()
        assert notebook.errors() == []
        with notebook7.kernel_of("film.ipynb") as kernel:
            played(notebook.page, lambda: kernel.value("film.cursor"), artefacts / "film_notebook7.png")
        assert notebook.ours() == [] and notebook.off_site == []


def test_the_film_in_marimo(tmp_path, browser, artefacts):
    text = MARIMO.replace("import workbench as wb, view_samples as samples", FILM[0].splitlines()[0])
    text = text.replace("tape, arrays = samples.springs()", FILM[0].splitlines()[1]).replace("(tape,)", "a, tape")
    text = text.replace("def _(tape)", "def _(a, tape)").replace("tape.explore()", "tape.film(a['x'], lines=a['ends'])")
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    try:
        page = context.new_page()
        with marimo(tmp_path, text) as address:
            eventually(lambda: reached(page, address), bool, 60)
            played(page, None, artefacts / "film_marimo.png")
    finally:
        context.close()


# --- a bare host of anywidget's contract, as the renderer of VS Code: no Jupyter, no eval, the widget in a shadow root

BARE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>bare</title>
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; script-src 'nonce-wb' blob:; style-src 'unsafe-inline'">
<body><main><h1>bare</h1><div id="host"></div></main>
<script type="application/json" id="given">GIVEN</script>
<script type="module" nonce="wb">
const { esm, css, state, bytes } = JSON.parse(document.getElementById("given").textContent), listeners = {};
const view = (bytes) => new DataView(Uint8Array.from(bytes).buffer);
for (const [name, text] of Object.entries(bytes)) state[name] = view([...atob(text)].map((c) => c.charCodeAt(0)));
const tell = (name, ...given) => [...(listeners[name] ?? [])].forEach((act) => act(...given));
const model = {
  get: (name) => state[name],
  set(name, value) {
    const was = state[name];
    state[name] = value;
    if (was !== value) tell(`change:${name}`);
  },
  save_changes: () => globalThis.told(JSON.stringify({ cursor: state.cursor })),
  on: (name, act) => (listeners[name] ??= new Set()).add(act),
  off: (name, act) => listeners[name]?.delete(act),
  send: (content) => asked(content).then(({ buffers, ...said }) => tell("msg:custom", said, buffers.map(view))),
};
const root = document.getElementById("host").attachShadow({ mode: "open" });
const el = document.createElement("div"), look = document.createElement("style");
look.textContent = css;
root.append(look, el);
try { new Function("1")(); globalThis.evaluates = true; } catch { globalThis.evaluates = false; }
const { default: widget } = await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })));
const made = typeof widget === "function" ? await widget() : widget, ends = new AbortController();
await made.initialize?.({ model, signal: ends.signal });
await made.render({ model, el, signal: ends.signal });
globalThis.leave = () => {
  ends.abort();
  return Object.values(listeners).reduce((n, some) => n + some.size, 0);
};
</script></body></html>"""


@pytest.mark.parametrize("kind", ["film", "explore"])
def test_a_host_without_jupyter_and_eval_plays_the_film_in_a_shadow_root(tmp_path, browser, artefacts, kind):
    tape, a, moments = springs("numpy", "all")
    shown = tape.film(a["x"]) if kind == "film" else tape.explore(film=a["x"])
    answer = shown.what_if.answer if kind == "film" else shown.answer
    state = {name: getattr(shown, name) for name in shown.keys if not name.startswith("_") and name != "layout"}
    blobs = {
        name: b64encode(state.pop(name)).decode() for name in [*state] if isinstance(state[name], bytes | memoryview)
    }
    given = json.dumps({"esm": shown._esm, "css": shown._css, "state": state, "bytes": blobs}).replace("</", "<\\/")
    path = tmp_path / "bare.html"
    path.write_text(BARE.replace("GIVEN", given), "utf-8")
    context, cursors = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce"), []
    try:
        page = context.new_page()
        complaints, asked = [], []
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.on("request", lambda r: asked.append(r.url))

        def answered(content: dict) -> dict:
            message, buffers = reply(answer, content)
            return {**message, "buffers": [list(one) for one in buffers]}

        page.expose_function("asked", answered)
        page.expose_function("told", lambda text: cursors.append(json.loads(text)["cursor"]))
        page.goto(path.as_uri())
        played(page, None, artefacts / f"bare_{kind}.png")
        page.get_by_role("button", name="pause the film").click()
        page.locator(".wb-scene").focus()
        for key in ("End", "Shift+ArrowUp"):
            page.keyboard.press(key)
        eventually(lambda: "that of the film" in page.inner_text(".wb-film > .wb-status"))
        page.keyboard.press("Escape")
        eventually(lambda: "that of the film" not in page.inner_text(".wb-film > .wb-status"))
        assert moments[1] in cursors and cursors[-1] == moments[-1]
        assert page.evaluate("globalThis.evaluates") is False and complaints == []
        assert {url.partition(":")[0] for url in asked} <= {"file", "blob", "data"}
        assert page.evaluate("leave()") == 0, "of a widget that is gone nothing listens"
    finally:
        context.close()
