"""A real JupyterLab and a real Chromium for tests: start, open a notebook, run it, look at it from outside.

The kernel is read through a second client on its connection file: no extra cell and no race with the page.
Nothing here sleeps for a fixed time; `eventually` asks until the answer is right or time is up.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import nbformat
from jupyter_client.blocking.client import BlockingKernelClient
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Route

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
LIGHT, DARK = "JupyterLab Light", "JupyterLab Dark"
LOOPBACK = ("http://127.0.0.1", "ws://127.0.0.1", "http://localhost", "data:", "blob:", "file:", "about:")
FLAGS = [
    "--allow-root",
    "--no-browser",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.port_retries=0",
    "--IdentityProvider.token=",
    "--ServerApp.password=",
    "--ServerApp.disable_check_xsrf=True",
    "--ServerApp.terminals_enabled=False",
]
APPS = {  # the module that starts it, its own flags, and where a notebook is opened
    "jupyterlab": (
        ["--LabApp.expose_app_in_browser=True", "--LabApp.news_url=", "--LabApp.extension_manager=readonly"],
        "lab/tree/{name}?reset",
    ),
    "notebook": (["--JupyterNotebookApp.expose_app_in_browser=True"], "notebooks/{name}"),
}
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}
T = TypeVar("T")


def of_notebook_7(complaint: str) -> bool:
    """Notebook 7.6 says this of every page, whatever is on it: its settings registry, in notebook_core, signals a
    plug-in before it has loaded the schema. `test_a_plain_page_of_notebook_7_complains_too` shows it without us."""
    return "(reading 'schema')" in complaint and "/notebook_core." in complaint


def of_late_loading(complaint: str) -> bool:
    """anywidget 0.11 says this of a page that was busy for 2 s; `test_late_page.py` shows that nothing is lost."""
    return "[anywidget] Failed to initialize model." in complaint


def eventually(ask: Callable[[], T], right: Callable[[T], bool] = bool, timeout: float = 120.0) -> T:
    """Ask again until the answer is right; an AssertionError with the last answer when time is up."""
    end = time.monotonic() + timeout
    while not right(answer := ask()):
        assert time.monotonic() < end, f"not within {timeout} s; the last answer was {answer!r}"
        time.sleep(0.05)
    return answer


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_notebook(path: Path, cells: list[str]) -> None:
    """A notebook of code cells, without outputs."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.write_text(nbformat.writes(notebook), "utf-8")


class JupyterLab:
    """One server in a home of its own. `files` is the folder it serves; `app` one of `APPS`."""

    def __init__(self, home: Path, app: str = "jupyterlab") -> None:
        self.app, (self.flags, self.address) = app, APPS[app]
        self.home, self.files, self.runtime = home, home / "files", home / "runtime"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # Without proxies: a proxy from the environment would be asked for the loopback address.
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self.log = home / "server.log"
        self.spare: Page | None = None  # a page without a notebook: loading one takes ten times what opening one takes

    def environment(self) -> dict[str, str]:
        folders = {
            "HOME": self.home,
            "JUPYTER_CONFIG_DIR": self.home / "config",
            "JUPYTER_DATA_DIR": self.home / "data",
            "JUPYTER_RUNTIME_DIR": self.runtime,
            "JUPYTERLAB_SETTINGS_DIR": self.home / "settings",
            "JUPYTERLAB_WORKSPACES_DIR": self.home / "workspaces",
            "IPYTHONDIR": self.home / "ipython",
        }
        for folder in folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return {**os.environ, **{name: str(folder) for name, folder in folders.items()}, "PYTHONPATH": path}

    def start(self) -> None:
        environment = self.environment()
        self.files.mkdir(exist_ok=True)
        for name, values in SETTINGS.items():
            file = self.home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values), "utf-8")
        place = [f"--ServerApp.port={self.port}", f"--ServerApp.root_dir={self.files}"]
        command = [sys.executable, "-m", self.app, *FLAGS, *self.flags, *place]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        eventually(self.is_up, timeout=180)

    def is_up(self) -> bool:
        assert self.process.poll() is None, f"JupyterLab ended:\n{self.log.read_text('utf-8')}"
        try:
            return bool(self.api("status"))
        except OSError:
            return False

    def api(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(f"{self.url}/api/{path}", method=method)
        with self.opener.open(request, timeout=60) as reply:
            text = reply.read()
        return json.loads(text) if text else None

    def end_kernels(self, name: str) -> None:
        """Kernels outlive the pages of their notebooks, and each holds some hundred MB."""
        for session in self.api("sessions"):
            if session["path"] == name:
                self.api(f"sessions/{session['id']}", "DELETE")

    def stop(self) -> None:
        self.process.terminate()  # it ends its kernels
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)

    @contextmanager
    def kernel_of(self, name: str) -> Iterator[KernelProbe]:
        """A second client of the kernel that runs the notebook `name`."""
        (session,) = [s for s in self.api("sessions") if s["path"] == name]
        client = BlockingKernelClient(connection_file=str(self.runtime / f"kernel-{session['kernel']['id']}.json"))
        client.load_connection_file()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=180)
            yield KernelProbe(client)
        finally:
            client.stop_channels()


@dataclass
class KernelProbe:
    client: BlockingKernelClient

    def value(self, expression: str, timeout: float = 120.0) -> Any:
        """The value of an expression in the kernel, which must have a literal as its repr."""
        message = self.client.execute("", silent=True, store_history=False, user_expressions={"value": expression})
        while True:
            reply = self.client.get_shell_msg(timeout=timeout)
            if reply["parent_header"].get("msg_id") == message:
                break
        found = reply["content"]["user_expressions"]["value"]
        assert found["status"] == "ok", f"{expression}: {found.get('ename')}: {found.get('evalue')}"
        return ast.literal_eval(found["data"]["text/plain"])


@dataclass
class NotebookPage:
    """A notebook that is open in the browser, with what its page complained about and asked for."""

    page: Page
    lab: JupyterLab
    name: str
    complaints: list[str] = field(default_factory=list)
    off_site: list[str] = field(default_factory=list)

    def open(self, kernel: bool = True) -> None:
        self.page.route("**/*", self.guard)
        self.page.on("console", self.hear)
        self.page.on("pageerror", self.hear_error)
        if self.page.url == "about:blank":
            self.page.goto(f"{self.lab.url}/{self.lab.address.format(name=self.name)}", wait_until="commit")
            self.page.wait_for_function("window.jupyterapp !== undefined", timeout=180_000)
            self.page.evaluate("async () => { await window.jupyterapp.restored; }")
        else:
            self.page.evaluate(OPEN, self.name)
        self.page.wait_for_function(f"({PANEL})({json.dumps(self.name)}) !== undefined", timeout=180_000)
        if not kernel:
            return
        self.page.evaluate(
            f"""async (name) => {{
                const panel = ({PANEL})(name);
                await panel.context.ready;
                await panel.revealed;
                await panel.sessionContext.ready;
                window.jupyterapp.shell.activateById(panel.id);
            }}""",
            self.name,
        )
        self.wait_idle()

    def guard(self, route: Route) -> None:
        """Nothing may leave this machine: what tries is stopped and remembered."""
        if route.request.url.startswith(LOOPBACK):
            route.continue_()
        else:
            self.off_site.append(route.request.url)
            route.abort()

    def hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(f"{message.text} ({message.location.get('url', '')})")

    def hear_error(self, error: Error) -> None:
        self.complaints.append(error.stack or str(error))

    def leave(self) -> bool:
        """Close the notebook; whether another one can be opened on this page."""
        self.page.unroute_all()
        self.page.remove_listener("console", self.hear)
        self.page.remove_listener("pageerror", self.hear_error)
        return self.page.evaluate(LEAVE)

    def ours(self) -> list[str]:
        """The complaints that are not the host's own."""
        return [text for text in self.complaints if not of_notebook_7(text) and not of_late_loading(text)]

    def status(self) -> str:
        return self.page.evaluate(f"name => ({PANEL})(name).sessionContext.session?.kernel?.status", self.name)

    def wait_idle(self, timeout: float = 180.0) -> None:
        eventually(self.status, lambda status: status == "idle", timeout)

    def wait_text(self, text: str, timeout: float = 120.0) -> None:
        """Wait for this very text; an AssertionError with what the views say and how the kernel is if it does not."""
        try:
            self.page.get_by_text(text, exact=True).first.wait_for(timeout=1000 * timeout)
        except Error as error:
            views = [view.inner_text() for view in self.page.locator(".wb-view").all()]
            raise AssertionError(f"no {text!r}; kernel {self.status()}, {self.complaints}, {views}") from error

    def run_all(self, timeout: float = 300.0) -> None:
        """Run every cell and wait until the last one is done or one has failed."""
        # The promise is not returned: a long cell would block every other call to the page.
        self.page.evaluate(
            """() => {
                window.ranAll = undefined;
                window.jupyterapp.commands.execute('notebook:run-all-cells').then(
                    () => { window.ranAll = 'done'; }, (error) => { window.ranAll = `failed: ${error}`; });
            }"""
        )
        ended = eventually(lambda: self.page.evaluate("window.ranAll ?? ''"), bool, timeout)
        assert ended == "done", ended
        self.wait_idle()

    def cells(self) -> list[dict[str, Any]]:
        """The notebook's cells with their outputs, as the page holds them."""
        return self.page.evaluate(f"name => ({PANEL})(name).content.model.toJSON().cells", self.name)

    def errors(self) -> list[str]:
        """What the cells raised, except where a cell is tagged as one that shows an error."""
        cells = [c for c in self.cells() if "raises-exception" not in c.get("metadata", {}).get("tags", [])]
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        return [f"{o['ename']}: {o['evalue']}" for o in outputs if o["output_type"] == "error"]

    def save(self) -> None:
        self.page.evaluate(f"async name => {{ await ({PANEL})(name).context.save(); }}", self.name)

    def theme(self, name: str) -> None:
        self.page.evaluate(
            "async theme => { await window.jupyterapp.commands.execute('apputils:change-theme', {theme}); }", name
        )
        self.page.wait_for_selector(f"body[data-jp-theme-name='{name}']", state="attached")
        # The splash covers the page while the style sheet loads, and fades out.
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")

    def screenshots(self, folder: Path, stem: str) -> list[Path]:
        """The page in the light and in the dark theme; for people, nothing compares pixels."""
        files = []
        for theme, suffix in ((DARK, "dark"), (LIGHT, "light")):
            self.theme(theme)
            files.append(folder / f"{stem}-{suffix}.png")
            self.page.screenshot(path=str(files[-1]))
        return files


PANEL = """(name) => Array.from(window.jupyterapp.shell.widgets('main'))
    .find((widget) => widget.context && widget.sessionContext && widget.context.path === name)"""
OPEN = "async path => { await window.jupyterapp.commands.execute('docmanager:open', {path, factory: 'Notebook'}); }"
LEAVE = """() => {
    const before = document.body.dataset.jpThemeName, dialog = document.querySelector('.jp-Dialog');
    for (const widget of Array.from(window.jupyterapp.shell.widgets('main'))) widget.dispose();
    return !dialog && before === 'JupyterLab Light';
}"""


@contextmanager
def opened(
    browser: Browser,
    lab: JupyterLab,
    name: str,
    kernel: bool = True,
    size: tuple[int, int] = (1400, 1000),
    zoom: float = 1.0,
) -> Iterator[NotebookPage]:
    """A notebook of the lab's folder, in the page that the last one left or in one of a fresh browser profile.

    kernel=False: where none will ever run it. size: of the window in pixels of the screen, of which `zoom` stand for
    one of the page.
    """
    wide, high = (round(pixels / zoom) for pixels in size)
    page, lab.spare = (lab.spare, None) if zoom == 1.0 else (None, lab.spare)
    if page is None:
        context = browser.new_context(device_scale_factor=zoom, reduced_motion="reduce")
        page = context.new_page()
    keep = False
    try:
        page.set_viewport_size({"width": wide, "height": high})
        notebook = NotebookPage(page, lab, name)
        notebook.open(kernel)
        yield notebook
        keep = lab.app == "jupyterlab" and zoom == 1.0 and lab.spare is None and notebook.leave()
    finally:
        if keep:
            lab.spare = page
        else:
            page.context.close()
        lab.end_kernels(name)


@contextmanager
def marimo(folder: Path, text: str, mode: str = "run") -> Iterator[str]:
    """The address of a marimo notebook that runs in `folder`, as an app or (`edit`) with its cells."""
    (folder / "cells.py").write_text(text, "utf-8")
    (folder / "pyproject.toml").write_text("[tool.marimo.runtime]\nauto_instantiate = true\n", "utf-8")  # cells run
    port = free_port()
    command = [sys.executable, "-m", "marimo", mode, "cells.py", "--headless", "--no-token", f"--port={port}"]
    paths = os.pathsep.join([str(ROOT), str(folder)])
    environment = {**os.environ, "PYTHONPATH": paths, "HOME": str(folder), "MARIMO_SKIP_UPDATE_CHECK": "1"}
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(60)


def reached(page: Page, address: str) -> bool:
    """Does something answer at this address? The page is there then."""
    try:
        page.goto(address)
    except Error:  # it has not started yet
        return False
    return True
