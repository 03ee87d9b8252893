"""axe-core on every page of the built docs, light and dark; views in frames have tests of their own.

What it finds is printed, and the exit status is 1 then.

    python -m sphinx -q -W .docs build
    python -m tests.docs_access build
"""

from __future__ import annotations

import sys
from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Page, sync_playwright

from tests.conftest import find_browser

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
VIOLATIONS = """async () => (await axe.run(document, { resultTypes: ["violations"], iframes: false })).violations
    .map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 160)} (${one.nodes.length} of them)`)"""
OTHERS = ("search.html", "genindex.html", "py-modindex.html")  # the theme's own, without a text of ours


def found(page: Page, file: Path) -> list[str]:
    page.goto(file.as_uri())
    page.evaluate(AXE)
    return page.evaluate(VIOLATIONS)


def main(root: Path) -> int:
    files = [f for f in sorted(root.rglob("*.html")) if f.name not in OTHERS and not {"_static", "live"} & {*f.parts}]
    wrong = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme)
            for file in files:
                for text in found(page, file):
                    print(f"{file.relative_to(root)}, {scheme}: {text}", flush=True)
                    wrong += 1
        browser.close()
    print(f"{len(files)} pages, light and dark: axe-core finds {wrong}")
    return int(wrong > 0 or not files)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
