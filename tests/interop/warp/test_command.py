"""`python -m workbench.watch` and `pytest --workbench-watch`: programs without a change, and what is said of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_warp
ROOT = Path(__file__).resolve().parents[3]
KERNEL = """import sys
import warp as wp

wp.config.optimization_level = 0


@wp.kernel
def square(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] * x[i]


def gradient(zeroed):
    x = wp.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True)
    y = wp.zeros(3, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        if zeroed:
            x.zero_()
    tape.backward(grads={y: wp.ones(3, dtype=float)})
    return x.grad.numpy()
"""
SCRIPT = f"""{KERNEL}
if __name__ == "__main__":
    print("gradient", gradient("zero" in sys.argv).tolist(), sys.argv[1:])
    sys.exit(5 if "five" in sys.argv else None)
"""
TESTS = f"""{KERNEL}

def test_of_a_right_gradient():
    assert gradient(False).tolist() == [2.0, 4.0, 6.0]

def test_of_a_wrong_gradient():
    assert gradient(True).size == 3

def test_that_fails_by_itself():
    assert gradient(True).tolist() == [2.0, 4.0, 6.0]

def test_without_warp():
    pass
"""


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=500
    )


def test_a_script_is_watched_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "falls.py").write_text(SCRIPT)
    wrong = python(tmp_path, "-m", "workbench.watch", "falls.py", "zero", "--html")
    assert wrong.returncode == 1, wrong.stderr
    assert "gradient [0.0, 0.0, 0.0] ['zero', '--html']" in wrong.stdout  # options behind the script are the script's
    table = next(line for line in wrong.stdout.splitlines() if line.startswith("x "))
    assert "wrong" in table and "overwritten memory: " in table and "falls.py:17" in table and "#1 zero_" in table
    page = (tmp_path / "falls.watch.html").read_text("utf-8")
    assert "overwritten memory: " in page and "square" in page

    right = python(tmp_path, "-m", "workbench.watch", "--html", "page.html", "falls.py", "five")
    assert right.returncode == 5 and "agrees" in right.stdout and "wrong" not in right.stdout
    assert (tmp_path / "page.html").is_file()

    missing = python(tmp_path, "-m", "workbench.watch", "nowhere.py")
    assert missing.returncode == 2 and "nowhere.py" in missing.stderr


class Seen:
    """What `report` asks of a watch: two gradients of which one has no meaning, and a page that fails."""

    tape = type("Tape", (), {"events": [0]})

    def compare(self) -> object:
        from workbench.warp.watch.compare import VerdictRow, VerdictTable

        return VerdictTable(
            [VerdictRow("x", "agrees"), VerdictRow("scratch", "not asked"), VerdictRow("swap", "not asked")]
        )

    def summary(self) -> str:
        return "7 events"

    def to_html(self, path: Path) -> Path:
        raise IndexError("list index out of range")


def test_the_report_counts_what_was_not_asked_and_outlives_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    from workbench.watch import report

    report(Seen(), Path("page.html"))
    out, err = capsys.readouterr()
    assert "7 events" in out and "agrees" in out and "scratch" not in out
    assert "2 more are not asked: launches overwrite these arrays" in out
    assert err == "page.html: not written, IndexError: list index out of range\n"


def test_tests_fail_where_a_gradient_is_not_exact(tmp_path: Path) -> None:
    (tmp_path / "test_falls.py").write_text(TESTS)
    plugin = ("-m", "pytest", "-q", "-p", "workbench.interop.pytest", "-p", "no:cacheprovider", "test_falls.py")
    alone = python(tmp_path, *plugin)
    assert "1 failed, 3 passed" in alone.stdout, alone.stdout
    seen = python(tmp_path, *plugin, "--workbench-watch")
    assert "2 failed, 2 passed" in seen.stdout, seen.stdout
    assert "FAILED test_falls.py::test_of_a_wrong_gradient - Failed: a gra" in seen.stdout
    assert "a gradient of Warp's is not exact:" in seen.stdout
    assert "overwritten memory: " in seen.stdout and "test_falls.py:17" in seen.stdout
    assert "test_that_fails_by_itself - assert" in seen.stdout


def test_the_plugin_is_registered_once_however_it_is_asked_for(tmp_path: Path) -> None:
    """An installed package offers it to every run; `-p` names it again."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        ((name, module),) = tomllib.load(file)["project"]["entry-points"]["pytest11"].items()
    offered = tmp_path / "offered-1.0.dist-info"
    offered.mkdir()
    (offered / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1.0\n")
    (offered / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
    (tmp_path / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    seen = python(tmp_path, "-m", "pytest", "-q", "-p", module, "-p", "no:cacheprovider", "--workbench-watch")
    assert seen.returncode == 0, seen.stdout + seen.stderr
