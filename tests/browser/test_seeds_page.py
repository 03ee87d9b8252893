"""The seeding panel in a real JupyterLab: keyboard, rows, stop, what if; and how it looks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lab import JupyterLab, KernelProbe, NotebookPage

pytestmark = pytest.mark.browser

PROGRAM = """\
import numpy as np
import workbench as wb

@wb.kernel
def spread(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = wb.sin(x[i]) * 2.0 + x[(i + 1) % 12] * x[i]

@wb.kernel
def energy(y: wb.array(dtype=float), total: wb.array(dtype=float)):
    i = wb.tid()
    wb.atomic_add(total, 0, y[i] * y[i])

x = wb.array(np.linspace(-1.5, 2.0, 12), dtype=float, requires_grad=True)
y, total = wb.zeros(12), wb.zeros(1)
with wb.Tape(keep="all") as tape:
    wb.launch(spread, 12, inputs=[x], outputs=[y])
    wb.launch(energy, 12, inputs=[y], outputs=[total])
"""
ROWS = "sorted(panel.engine.rows)"


@pytest.fixture
def shown(
    lab: JupyterLab, open_notebook: Callable[[str], NotebookPage], request: pytest.FixtureRequest
) -> NotebookPage:
    """A notebook whose last cell shows the panel."""
    from lab import write_notebook

    name = f"{request.node.name[:60]}.ipynb"
    write_notebook(lab.files / name, [PROGRAM, "panel = tape.seeds(y)\npanel"])
    notebook = open_notebook(name)
    notebook.run_all()
    assert notebook.errors() == []
    notebook.page.locator(".wb-pick canvas").wait_for()
    return notebook


@pytest.fixture
def kernel(lab: JupyterLab, shown: NotebookPage):
    from lab import eventually

    with lab.kernel_of(shown.name) as probe:
        eventually(lambda: probe.value("panel.picker.ready"))
        yield probe


def test_an_element_is_chosen_by_keyboard_alone(shown: NotebookPage, kernel: KernelProbe, artefacts: Path) -> None:
    from lab import eventually

    picker = shown.page.get_by_role("application", name="element of y")
    picker.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowRight"):
        shown.page.keyboard.press(key)
    eventually(lambda: kernel.value("panel.run.label"), lambda label: label == "y[2]")
    shown.page.keyboard.press("End")
    eventually(lambda: kernel.value("panel.run.label"), lambda label: label == "y[11]")
    said = shown.page.locator(".wb-pick output")
    eventually(said.inner_text, lambda text: text.startswith("y[11] = "))
    eventually(lambda: shown.page.get_by_text("Seeding y (12) · seed: y[11]").count())
    box = picker.bounding_box()
    assert box is not None
    picker.click(position={"x": 5.5 * box["width"] / 12, "y": box["height"] / 2})
    eventually(lambda: kernel.value("panel.run.label"), lambda label: label == "y[5]")
    assert shown.off_site == [] and shown.ours() == []
    shown.page.locator(".wb-seeds:visible").first.scroll_into_view_if_needed()
    shown.screenshots(artefacts, "seeds")


def test_arrows_move_the_sliders_though_jupyterlab_binds_them(shown: NotebookPage, kernel: KernelProbe) -> None:
    from lab import eventually

    handle = shown.page.locator(".wb-seeds").get_by_role("slider", name="element", exact=True)
    handle.focus()
    shown.page.keyboard.press("ArrowRight")
    shown.page.keyboard.press("ArrowRight")
    eventually(lambda: kernel.value("panel.run.label"), lambda label: label == "y[2]")
    bare = shown.page.evaluate(
        """() => Array.from(document.querySelectorAll('.wb-seeds')).flatMap(root => Array.from(
            root.querySelectorAll('input, button, select, summary, [tabindex]')))
            .filter(e => !e.closest('.wb-still') && !e.hasAttribute('data-lm-suppress-shortcuts'))
            .map(e => e.outerHTML)"""
    )
    assert bare == []
    shown.page.keyboard.press("Escape")
    assert shown.page.evaluate("document.activeElement?.closest('.wb-seeds') === null")


def test_next_fills_a_row_and_fill_all_of_them(shown: NotebookPage, kernel: KernelProbe, artefacts: Path) -> None:
    from lab import eventually

    shown.page.get_by_role("button", name="Next element").click()
    eventually(lambda: kernel.value(ROWS), lambda rows: rows == [0, 1])
    eventually(lambda: shown.page.get_by_alt_text("2 of 12 rows").count())
    shown.page.get_by_role("button", name="Fill all rows").click()
    eventually(lambda: kernel.value(ROWS), lambda rows: rows == list(range(12)))
    eventually(lambda: shown.page.get_by_alt_text("12 of 12 rows").count())
    shown.page.get_by_label("finite differences").check()
    eventually(lambda: shown.page.locator(".wb-seeds .wb-tick").count(), lambda n: n == 12)
    shown.page.get_by_role("button", name="Pin to compare").click()
    shown.page.get_by_role("button", name="ones", exact=True).click()
    eventually(lambda: shown.page.locator(".wb-seeds .wb-other").count(), lambda n: n > 0)
    assert (
        kernel.value("bool(np.array_equal([panel.engine.rows[k] for k in range(12)], wb.jacobian(tape, y, x)))") is True
    )
    assert kernel.value("not x.grad.numpy().any()") is True
    assert [o for cell in shown.cells() for o in cell["outputs"] if o["output_type"] == "stream"] == []
    assert shown.ours() == []
    shown.page.locator(".wb-matrix:visible").first.scroll_into_view_if_needed()
    shown.screenshots(artefacts, "seeds-filled")


def test_filling_stops_when_told_to(shown: NotebookPage, kernel: KernelProbe) -> None:
    from lab import eventually

    assert kernel.value("globals().__setitem__('gate', __import__('threading').Event())") is None
    waits = "lambda *a, f=panel.engine.run, **k: (len(panel.engine.rows) > 3 and gate.wait(120), f(*a, **k))[1]"
    assert kernel.value(f"panel.engine.__setattr__('run', {waits})") is None
    shown.page.get_by_role("button", name="Fill all rows").click()
    eventually(lambda: kernel.value(ROWS), lambda rows: len(rows) > 1)
    shown.page.get_by_role("button", name="Stop", exact=True).click()
    eventually(lambda: kernel.value("panel._halt.is_set()"))
    assert kernel.value("gate.set()") is None
    eventually(lambda: kernel.value("panel.working"), lambda working: not working)
    assert 1 < len(kernel.value(ROWS)) < 12
    eventually(lambda: shown.page.get_by_text("rows: stopped").count())


def test_the_slider_of_an_input_changes_the_row(shown: NotebookPage, kernel: KernelProbe) -> None:
    from lab import eventually

    before = kernel.value("float(panel.run.row[0])")
    handle = shown.page.locator(".wb-seeds").get_by_role("slider", name="value", exact=True)
    handle.focus()
    for _ in range(3):
        shown.page.keyboard.press("ArrowUp")
    eventually(lambda: kernel.value("float(panel.run.row[0])"), lambda now: now != before)
    assert kernel.value("float(panel.engine.values['x'][0])") > -1.5
    assert kernel.value("float(x.numpy()[0])") == -1.5
    eventually(lambda: shown.page.get_by_text("inputs changed").count())


def test_while_a_cell_records_the_panel_says_busy_and_answers_afterwards(
    shown: NotebookPage, kernel: KernelProbe
) -> None:
    from lab import eventually

    lock = "(wb.arrays.allocation.LOCK.acquire(), gate.wait(120), wb.arrays.allocation.LOCK.release())"
    hold = f"__import__('threading').Thread(target=lambda: {lock}).start()"
    assert kernel.value("globals().__setitem__('gate', __import__('threading').Event())") is None
    shown.page.get_by_role("button", name="Next element").click()
    eventually(lambda: kernel.value(ROWS), lambda rows: rows == [0, 1])
    assert kernel.value(hold) is None
    shown.page.get_by_role("button", name="½‖y‖²").click()
    eventually(lambda: shown.page.get_by_text("busy: recording").count())
    assert kernel.value("gate.set()") is None
    eventually(lambda: kernel.value("panel.run.label"), lambda label: label == "½‖y‖²")
    eventually(lambda: shown.page.get_by_text("busy: recording").count(), lambda n: n == 0)
