"""A refusal shows the user's line and the message, and none of our files between them: in scripts, IPython, pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = f"{ROOT / 'workbench'}/"
REFUSED = {
    "launch": "wb.launch(scale, dim=2, inputs=[x, 1.0])",
    "kernel": "wb.launch(odd, dim=2, inputs=[x])",
    "tape": "tape.backward(x)",
}
PROGRAM = """\
import workbench as wb

@wb.kernel
def scale(x: wb.array[float]):
    x[wb.tid()] = 2.0

@wb.kernel
def odd(x: wb.array[float]):
    x[wb.tid()] = [1.0]

x = wb.zeros(2, requires_grad=True)
tape = wb.Tape()
{line}
"""


def printed(command: list[str], folder: Path, **variables: str) -> str:
    inherited = {n: v for n, v in os.environ.items() if not n.startswith("PYTEST")}
    environment = {**inherited, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder), "NO_COLOR": "1", **variables}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=300, env=environment
    )
    return re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)


def check(text: str, line: str, slug: str = r"\[[\w-]+\]") -> None:
    assert line in text, text
    assert re.search(slug, text[text.index(line) :]), text
    assert OURS not in text and "workbench/launches" not in text and "hidden" not in text, text


@pytest.mark.parametrize("name", REFUSED)
def test_a_script_shows_the_line_and_the_message(name: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(line=REFUSED[name]))
    check(printed(["program.py"], tmp_path), REFUSED[name])


@pytest.mark.parametrize("name, line", [("launch", REFUSED["launch"]), ("kernel", "x[wb.tid()] = [1.0]")])
@pytest.mark.parametrize("how", ["cell", "run"])
def test_ipython_shows_the_line_and_the_message(name: str, line: str, how: str, tmp_path: Path) -> None:
    program = PROGRAM.format(line=REFUSED[name])
    (tmp_path / "program.py").write_text(program)
    cell = "import workbench\n%run program.py\n" if how == "run" else program
    (tmp_path / "cells.ipy").write_text(f"get_ipython().run_cell({cell!r})\n")
    start = "from IPython import start_ipython; start_ipython(['--simple-prompt', '--quick', 'cells.ipy'])"
    check(printed(["-c", start], tmp_path), line)


@pytest.mark.parametrize("name", ["launch", "kernel"])
def test_pytest_shows_the_line_and_the_message(name: str, tmp_path: Path) -> None:
    program = PROGRAM.format(line=f"def test_it():\n    {REFUSED[name]}")
    (tmp_path / "test_program.py").write_text(program)
    plugin = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "workbench.interop.pytest", "--noconftest"]
    check(printed([*plugin, "test_program.py"], tmp_path), REFUSED[name])


def test_all_frames_are_shown_on_demand(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(line=REFUSED["launch"]))
    assert OURS in printed(["program.py"], tmp_path, WORKBENCH_FULL_TRACEBACK="1")
    asked = f"wb.config.full_traceback = True\n{REFUSED['launch']}"
    (tmp_path / "program.py").write_text(PROGRAM.format(line=asked))
    assert OURS in printed(["program.py"], tmp_path)


def test_an_error_that_is_no_refusal_keeps_its_frames(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(line="wb.sin('text')"))
    assert OURS in printed(["program.py"], tmp_path)


def test_a_step_of_the_user_s_inside_of_ours_is_where_it_ends(tmp_path: Path) -> None:
    line = (
        "def half(x):\n    return wb.zeros(3, dtype='no such type')\n"
        "with tape:\n    y = wb.map(wb.sin, x)\n    tape.record_func(lambda: half(x), [x, y])\n"
        "tape.backward(grads={y: wb.ones(2)})"
    )
    (tmp_path / "program.py").write_text(PROGRAM.format(line=line))
    text = printed(["program.py"], tmp_path)
    lines = [entry for entry in text.splitlines() if entry.startswith("  File")]
    assert lines[-1].endswith("in half") and any("workbench" in entry for entry in lines)
