"""The live view in a real JupyterLab: both ways between page and kernel, beside running cells, at size."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab import DARK, LIGHT, KernelProbe, eventually, opened, write_notebook

if TYPE_CHECKING:
    from lab import JupyterLab, NotebookPage

pytestmark = pytest.mark.browser

SAMPLES = Path(__file__).resolve().parents[1] / "support" / "view_samples.py"
CELLS = [
    """\
import threading, time, numpy as np
import workbench as wb, view_samples as samples
from workbench.arrays import allocation
tape, arrays = samples.springs()
x = arrays["positions"]
grads = x.grad.numpy().copy()""",
    "view = tape.explore()\nview",
]


class Explored:
    """A notebook with one live view, and its kernel."""

    def __init__(self, notebook: NotebookPage, kernel: KernelProbe):
        self.notebook, self.kernel, self.page = notebook, kernel, notebook.page

    def cell(self, event: int, lane: int = -1) -> Any:
        return self.page.locator(f".cell[data-key='{event}:{lane}']").first

    def says(self, selector: str, text: str, timeout: float = 120_000) -> None:
        self.page.locator(selector, has_text=text).first.wait_for(timeout=timeout)

    def kernel_says(self, expression: str, right: Any) -> None:
        eventually(lambda: self.kernel.value(expression), lambda found: found == right, 60)

    def do(self, statement: str) -> None:
        """Run a statement in the kernel, in no cell."""
        self.kernel.value(f"exec({statement!r})")

    def reset(self) -> None:
        self.do("view.launch = -1; view.thread = []; view.array = -1; view.element = []; view.cursor = 0")
        # all of it must have reached the page: what a test chooses before that would be taken back
        shown = "[document.querySelector('.cursortext').textContent, document.querySelector('.wb-dock select').value]"
        eventually(lambda: self.page.evaluate(shown), lambda found: found == ["reverse 5/5", "-1"], 60)

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name).click()

    def look_at(self, number: int) -> None:
        self.page.get_by_label("array", exact=True).select_option(str(number))

    def run_cell(self, text: str) -> None:
        """Start a new cell at the end; it may take its time."""
        self.page.evaluate(
            """([name, text]) => {
                const panel = Array.from(window.jupyterapp.shell.widgets("main")).find((w) => w.context?.path === name);
                const session = panel.sessionContext.session;
                window.cellDone = false;
                const asked = session.kernel.requestExecute({ code: text, stop_on_error: false });
                asked.done.then(() => { window.cellDone = true; });
            }""",
            [self.notebook.name, text],
        )

    def cell_done(self) -> bool:
        return self.page.evaluate("window.cellDone")


def start(lab: JupyterLab, browser: Any, name: str, cells: list[str]) -> Iterator[Explored]:
    shutil.copy(SAMPLES, lab.files / SAMPLES.name)
    write_notebook(lab.files / name, cells)
    with opened(browser, lab, name) as notebook:
        notebook.run_all()
        assert notebook.errors() == []
        notebook.page.wait_for_selector(".wb-lanes .event", timeout=120_000)
        with lab.kernel_of(name) as kernel:
            yield Explored(notebook, kernel)


@pytest.fixture(scope="module")
def live(lab: JupyterLab, browser: Any) -> Iterator[Explored]:
    yield from start(lab, browser, "explore.ipynb", CELLS)


@pytest.fixture
def view(live: Explored) -> Explored:
    live.reset()
    return live


def test_the_view_draws_in_a_notebook_and_says_that_it_is_ready(view):
    view.kernel_says("view.ready", True)
    assert view.page.locator(".event").count() == 5
    assert view.notebook.ours() == [] and view.notebook.off_site == []


def test_a_click_reaches_the_kernel(view):
    view.cell(2).click()
    view.kernel_says("(view.cursor, view.launch, view.thread)", (2, 2, [0]))
    view.page.locator("[data-name='velocities']").click()
    view.kernel_says("view.arrays[view.array].span == arrays['velocities'].span", True)


def test_the_kernel_moves_the_page(view):
    view.do("view.step(3); view.select(x, (7, 0)); view.look_into(2, 7)")
    eventually(lambda: view.page.locator(".cursortext").text_content(), lambda text: text == "reverse 2/5", 60)
    view.says(".wb-scope .wb-head", "inside #2 forces, thread 7")
    view.tab("ledger")
    view.says(".wb-ledger .wb-head", "positions[7, 0]")


def test_arrow_keys_work_although_the_notebook_is_in_command_mode(view):
    view.cell(0).focus()
    view.page.keyboard.press("ArrowRight")
    view.page.keyboard.press("ArrowRight")
    assert view.page.evaluate("document.activeElement.dataset.key") == "2:-1"
    view.page.keyboard.press("Enter")
    view.kernel_says("view.cursor", 2)
    view.page.keyboard.press("[")
    view.kernel_says("view.cursor", 1)
    view.page.keyboard.press("x")  # in command mode the notebook would cut the cell
    assert len(view.notebook.cells()) == len(CELLS)
    view.page.keyboard.press("Escape")
    assert not view.page.evaluate("document.activeElement.closest('.wb-lanes') !== null")


@pytest.mark.parametrize("blank", [".wb-bar", ".wb-legend", ".wb-dock", ".wb-stage"])
def test_wherever_one_clicks_in_the_view_keys_are_its_own(view, blank):
    view.page.locator(blank).last.click(position={"x": 3, "y": 3})
    assert view.page.evaluate("document.activeElement.closest('.wb-view') !== null")
    for key in ("x", "c", "d", "d", "f", "."):  # some would cut or delete the cell
        view.page.keyboard.press(key)
    assert len(view.notebook.cells()) == len(CELLS)
    assert view.page.locator(".wb-view").count() > 0


def test_heat_maps_and_ledger_follow_the_cursor(view):
    view.look_at(0)
    view.says(".wb-heats .wb-head", "positions before #0 forces")
    view.page.get_by_label("index of the element").fill("7, 0")
    view.page.keyboard.press("Enter")
    view.says(".wb-sum", "positions.grad[7, 0]")
    said = float(view.page.locator(".wb-sum").inner_text().split("=")[1].replace("−", "-"))
    assert said == pytest.approx(view.kernel.value("float(grads[7, 0])"), rel=1e-5)
    view.page.get_by_role("button", name="undo one step of the reverse pass").click()
    view.says(".wb-sum", "before #1 integrate")
    view.tab("values")
    view.says(".wb-heats .wb-head", "before #1 integrate")


def test_the_microscope_steps_through_any_thread(view):
    view.cell(2).click()
    view.says(".wb-scope .wb-head", "thread 0")
    view.page.get_by_label("thread, such as").fill("9")
    view.page.keyboard.press("Enter")
    view.says(".wb-scope .wb-head", "thread 9")
    slider = view.page.locator(".wb-scope input[type=range]")
    slider.focus()
    view.page.keyboard.press("Home")
    view.says(".wb-scope .wb-head", "forward step 1 of")
    view.page.keyboard.press("ArrowRight")
    view.says(".wb-scope .wb-head", "forward step 2 of")


def test_what_cannot_be_answered_is_said_in_the_view(view):
    view.do("view.answer = lambda content: 1 / 0")
    try:
        view.look_at(0)
        view.says(".wb-note", "division by zero")
    finally:
        view.do("del view.answer")
    assert view.notebook.ours() == []


def test_beside_a_running_cell_the_view_waits_and_harms_nothing(view):
    view.look_at(0)
    view.says(".wb-heats .wb-head", "before #0 forces")
    view.run_cell(
        "with wb.Tape() as other:\n"
        "    for k in range(60):\n"
        "        wb.launch(samples.double, dim=3, inputs=[wb.ones(3, dtype=float)])\n"
        "        before = x.numpy().copy(); time.sleep(0.05)\n"
        "        assert np.array_equal(before, x.numpy())\n"
        "survived = len(other.events)"
    )
    view.page.get_by_role("button", name="undo one step of the reverse pass").click()
    eventually(lambda: view.page.locator(".cursortext").text_content(), lambda text: text == "reverse 4/5")
    eventually(view.cell_done)
    view.says(".wb-heats .wb-head", "before #1 integrate")
    view.kernel_says("survived", 60)
    view.kernel_says("np.array_equal(x.grad.numpy(), grads)", True)
    view.kernel_says("len(tape.events)", 5)


def test_while_memory_is_in_use_the_view_says_busy_and_then_answers(view):
    view.look_at(0)
    view.says(".wb-heats .wb-head", "before #0 forces")
    view.do("view.answers = type(view.answers)()")  # what it was told before would need no memory
    view.do(
        "held, gate = threading.Event(), threading.Event()\n"
        "def hold():\n    with allocation.LOCK:\n        held.set(); gate.wait(120)\n"
        "holder = threading.Thread(target=hold); holder.start(); held.wait()"
    )
    view.page.get_by_role("button", name="undo one step of the reverse pass").click()
    view.says(".wb-status", "busy: recording")
    view.do("gate.set(); holder.join()")
    view.says(".wb-heats .wb-head", "before #1 integrate")


def test_other_seeds_are_drawn_when_the_kernel_sets_them(view):
    bar = "[...document.querySelectorAll('.bar.value')].map((n) => n.getAttribute('height')).join()"
    before = view.page.evaluate(bar)
    view.do("view.set_seeds({x: wb.array(np.full((12, 3), 1e-5, np.float32), dtype=wb.vec3)}, text='a small one')")
    try:
        view.says(".wb-seed", "a small one")
        assert view.page.evaluate(bar) != before
    finally:
        view.do("view.set_seeds(None)")
    view.says(".wb-seed", "loss")
    assert view.page.evaluate(bar) == before


def test_both_themes_are_followed_live(view, artefacts):
    view.do("view.select(x, (7, 0)); view.look_into(2, 7); view.step(2)")
    view.says(".wb-scope .wb-head", "thread 7")
    view.tab("ledger")
    view.says(".wb-sum", "before #2")
    ground = "getComputedStyle(document.querySelector('.wb-view')).getPropertyValue('--wb-tint')"
    seen = {}
    for theme, name in ((DARK, "dark"), (LIGHT, "light")):
        view.notebook.theme(theme)
        seen[name] = view.page.evaluate(ground)
        view.page.screenshot(path=str(artefacts / f"explore-{name}.png"))
    assert seen["dark"] != seen["light"]


def test_two_views_of_one_tape_are_independent(lab, browser):
    cells = [*CELLS, "second = tape.explore()\nsecond"]
    for two in start(lab, browser, "two.ipynb", cells):
        eventually(lambda: two.kernel.value("view.ready and second.ready"))
        two.do("second.step(2)")
        seen = two.page.locator(".cursortext")
        eventually(lambda: sorted(seen.all_text_contents()), lambda texts: texts == ["reverse 3/5", "reverse 5/5"], 60)


def test_a_saved_notebook_keeps_a_picture_for_readers_without_widgets(view):
    view.notebook.save()
    still, live = (output["data"] for output in view.notebook.cells()[1]["outputs"])
    assert "data:image/svg+xml;base64," in "".join(still["text/html"])
    assert "application/vnd.jupyter.widget-view+json" in live and not live["text/html"]


LAUNCHES = 30_000  # more than it waits for all findings of, and than it folds one by one
LONG = f"""\
import time, view_samples as samples
tape, xs = samples.crowd({LAUNCHES}, 200)
began = time.perf_counter()
view = tape.explore()
took = []
view.observe(lambda change: took.append(time.perf_counter() - began), "ready")"""


def test_a_long_tape_opens_and_steps_in_few_marks(lab, browser):
    for long in start(lab, browser, "long.ipynb", [LONG, "view"]):
        (took,) = eventually(lambda: long.kernel.value("took"))
        sys.stderr.write(f"{LAUNCHES} launches opened in {took:.2f} s\n")
        eventually(lambda: long.page.locator(".wb-seed").inner_text(), lambda text: "seed" in text)
        long.look_at(0)
        long.says(".wb-heats .wb-head", "before #0 step")
        times = long.page.evaluate(
            """async () => {
                const view = document.querySelector(".wb-view"), times = [];
                const head = view.querySelector(".wb-heats .wb-head");
                for (let k = 0; k < 11; k++) {
                    const before = head.textContent, start = performance.now();
                    view.querySelector("[aria-label='undo one step of the reverse pass']").click();
                    while (head.textContent === before) await new Promise((done) => setTimeout(done, 2));
                    times.push(performance.now() - start);
                }
                return times.sort((a, b) => a - b);
            }"""
        )
        sys.stderr.write(f"a step to the new heat-map takes {times[5]:.0f} ms\n")
        assert long.page.locator(".wb-lanes *").count() < 2000
