"""Milliseconds of the browser's main thread per frame of the live view, and until its first picture stands. By hand.

python tests/benchmarks/view_frames.py [--launches 10000 100000] [--rounds 20]

Pages of `to_html` in a headless Chromium of 1440 x 900. Per action: `task` is all that the main thread did for a frame
(script, style, layout, paint), as processor time; `frame` is the time from one animation frame to the next, which is
16.7 ms at least. Wanted at 10,000 launches: no frame over 50 ms.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from playwright.sync_api import sync_playwright

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "browser"), str(TESTS.parent)]

import conftest  # noqa: E402
from lab import CHROMIUM_FLAGS  # noqa: E402

from tests.support import view_samples as samples  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

ACT = """([name, k]) => {
    const picture = document.querySelector(".wb-lanes"), box = picture.getBoundingClientRect();
    const at = { clientX: box.left + box.width * 0.6, clientY: box.top + 150, bubbles: true, cancelable: true };
    const wheel = (more) => picture.dispatchEvent(new WheelEvent("wheel", { ...at, ...more }));
    const press = (name) => document.querySelector(`button[aria-label="${name}"]`)?.click();
    const acts = {
        pan: () => wheel({ deltaX: k % 20 < 10 ? 40 : -40 }),
        "zoom in": () => wheel({ deltaY: -1, ctrlKey: true }),
        "zoom out": () => wheel({ deltaY: 1, ctrlKey: true }),
        step: () => picture.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true })),
        scroll: () => { document.querySelector(".wb-plot").scrollTop += k % 20 < 10 ? 30 : -30; },
        hover: () => picture.dispatchEvent(new PointerEvent("pointermove", { ...at, clientX: box.left + 500 + k * 7 })),
        unfold: () => press("unfold the outermost folds"),
    };
    return new Promise((done) => requestAnimationFrame((begin) => {
        acts[name]();
        requestAnimationFrame((end) => requestAnimationFrame(() => done(end - begin)));
    }));
}"""
ROUTE = [  # what is done, and how many times as often as there are rounds
    ("pan", 1),
    ("unfold", 0),
    ("pan", 1),
    ("zoom in", 1),
    ("pan", 1),
    ("zoom in", 1),
    ("pan", 1),
    ("step", 1),
    ("hover", 1),
    ("scroll", 1),
    ("zoom out", 2),
]


def spent(session: Any) -> float:
    return 1000 * next(
        m["value"] for m in session.send("Performance.getMetrics")["metrics"] if m["name"] == "TaskDuration"
    )


def frames(page: Page, session: Any, name: str, rounds: int) -> None:
    took, between = [], []
    for k in range(rounds):
        before = spent(session)
        between.append(page.evaluate(ACT, [name, k]))
        took.append(spent(session) - before)
    print(
        f"    {name:9} task {np.median(took):5.1f} median {max(took):5.1f} most,"
        f" frame {np.median(between):5.1f} median {max(between):5.1f} most",
        flush=True,
    )


def looked_at(browser: Any, name: str, path: Path, rounds: int) -> None:
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    session = page.context.new_cdp_session(page)
    session.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})
    session.send("Performance.enable")
    page.goto(path.as_uri(), wait_until="commit")
    page.wait_for_selector(".wb-lanes .cell", state="attached", timeout=300_000)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    stood = page.evaluate("performance.now()")
    size = path.stat().st_size / 1e6
    print(f"{name}: {size:.2f} MB, the picture stands after {stood:.0f} ms, task {spent(session):.0f} ms", flush=True)
    for act, many in ROUTE:
        frames(page, session, act, many * rounds or 1)
    page.context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, nargs="*", default=[10_000])
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=conftest.find_browser(), args=CHROMIUM_FLAGS)
        for launches in chosen.launches:
            tapes = {"crowd of 200 arrays": lambda n=launches: samples.crowd(n, 200)[0]}
            if launches <= 10_000:
                tapes["springs"] = lambda n=launches: samples.springs(n // 3)[0]
            for name, tape in tapes.items():
                path = tape().to_html(Path(folder) / "page.html")
                looked_at(browser, f"{name}, {launches:,} launches", path, chosen.rounds)
        browser.close()


if __name__ == "__main__":
    main()
