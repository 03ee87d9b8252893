"""Fixtures: one JupyterLab and one Chromium a session, a page for each notebook that a test opens."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lab import JupyterLab, NotebookPage
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterLab]:
    """A running JupyterLab in a home of its own; put notebooks into `lab.files`."""
    from lab import JupyterLab

    server = JupyterLab(tmp_path_factory.mktemp("lab"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def notebook7(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterLab]:
    """A running Notebook 7, used like `lab`."""
    from lab import JupyterLab

    server = JupyterLab(tmp_path_factory.mktemp("notebook7"), "notebook")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    from lab import CHROMIUM_FLAGS
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        yield running
        running.close()


@pytest.fixture
def open_notebook(lab: JupyterLab, browser: Browser) -> Iterator[Callable[[str], NotebookPage]]:
    """`open_notebook("name.ipynb")` opens a file of `lab.files`; the page closes after the test."""
    from lab import opened

    with ExitStack() as stack:
        yield lambda name: stack.enter_context(opened(browser, lab, name))


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: WORKBENCH_ARTEFACTS, or a temporary folder."""
    named = os.environ.get("WORKBENCH_ARTEFACTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("artefacts")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
