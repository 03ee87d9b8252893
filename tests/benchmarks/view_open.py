"""Seconds from `tape.explore()` in a cell of JupyterLab until its picture stands in the browser. By hand.

python tests/benchmarks/view_open.py [--launches 10000 100000]

A cell before it has built the tape and shown a tape of two launches: nothing is loaded or compiled for the first time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "browser"), str(TESTS.parent)]

import conftest  # noqa: E402
from lab import CHROMIUM_FLAGS, JupyterLab, opened, write_notebook  # noqa: E402

BEFORE = f"""
import sys, time
sys.path[:0] = [{str(TESTS.parent)!r}]
from tests.support import view_samples as samples
tape, arrays = samples.crowd({{launches}}, 200)
samples.crowd(2, 2)[0].explore()
"""
OPEN = """
begin, spent = time.time(), time.process_time()
view = tape.explore()
made, spent = time.time(), time.process_time() - spent
view
"""
NEXT = "() => { window.jupyterapp.commands.execute('notebook:run-cell-and-select-next'); }"
STANDS = """(k) => {
    const cell = document.querySelectorAll(".jp-CodeCell")[k];
    if (!cell?.querySelector(".wb-lanes .cell")) return 0;
    return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(Date.now()))));
}"""


def spent(lab: JupyterLab, session: Any) -> list[float]:
    """Seconds of the processor: of the server, and of the main thread of the page."""
    found = session.send("Performance.getMetrics")["metrics"]
    user, system = Path(f"/proc/{lab.process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()[11:13]
    page = next(m["value"] for m in found if m["name"] == "TaskDuration")
    return [(int(user) + int(system)) / os.sysconf("SC_CLK_TCK"), page]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, nargs="*", default=[10_000, 100_000])
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        lab = JupyterLab(Path(home))
        lab.start()
        browser = playwright.chromium.launch(executable_path=conftest.find_browser(), args=CHROMIUM_FLAGS)
        for launches in chosen.launches:
            name = f"open{launches}.ipynb"
            cells = [BEFORE.format(launches=launches), OPEN]
            write_notebook(lab.files / name, cells)
            with opened(browser, lab, name) as notebook, lab.kernel_of(name) as kernel:
                session = notebook.page.context.new_cdp_session(notebook.page)
                session.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})
                session.send("Performance.enable")
                before = after = [0.0] * 2
                stood = 0.0
                for k in range(2):
                    before = spent(lab, session)
                    notebook.page.evaluate(NEXT)
                    stood = notebook.page.wait_for_function(STANDS, arg=k, timeout=300_000, polling="raf").json_value()
                    after = spent(lab, session)
                    notebook.wait_idle()
                server_s, page_s = (b - a for a, b in zip(before, after, strict=True))
                begin, made, python = kernel.value("(begin, made, spent)")
                print(
                    f"{launches:,} launches: {made - begin:.2f} s of Python, the picture stands after"
                    f" {stood / 1000 - begin:.2f} s; processor: explore() {python:.2f} s, server {server_s:.2f} s,"
                    f" page {page_s:.2f} s",
                    flush=True,
                )
        browser.close()
        lab.stop()


if __name__ == "__main__":
    main()
