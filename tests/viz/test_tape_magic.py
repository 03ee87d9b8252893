"""`%%tape` in a real shell of IPython: what the cell computes, what is bound, what is shown, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import workbench as wb
from tests.support.backends import BACKENDS
from workbench.tapes.tape import Tape

KERNELS = """\
@wb.kernel
def swing(x: wb.array[wb.vec2], v: wb.array[wb.vec2]):
    i = wb.tid()
    v[i] = v[i] - 0.2 * wb.length(x[i]) * x[i]
    x[i] = x[i] + 0.2 * v[i]

@wb.kernel
def far(x: wb.array[wb.vec2], loss: wb.array[float]):
    loss[0] += wb.dot(x[wb.tid()], x[wb.tid()])

def fall(x, v, loss, steps=8):
    for _ in range(steps):
        wb.launch(swing, 2, [x, v])
    wb.launch(far, 2, [x, loss])
    return loss
"""
BODY = """
START = [[1.0, 0.0], [0.5, 1.5]]
x = wb.array(START, dtype=wb.vec2, requires_grad=True)
v, loss = wb.zeros(2, dtype=wb.vec2), wb.zeros(1)
fall(x, v, loss)
"""


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(colors="nocolor")
    shell.run_cell("%load_ext workbench\nimport workbench as wb, numpy as np")
    shell.run_cell(KERNELS)
    yield shell
    InteractiveShell.clear_instance()


def failed(shell: InteractiveShell, cell: str) -> tuple[str, str]:
    """The error of a cell, and the traceback that is shown of it."""
    with capture_output() as shown:
        outcome = shell.run_cell(cell)
    assert outcome.error_in_exec is not None
    return str(outcome.error_in_exec), shown.stdout


def loss_by_hand(start: np.ndarray) -> float:
    x, v = start.astype(np.float64), np.zeros((2, 2))
    for _ in range(8):
        v = v - 0.2 * np.linalg.norm(x, axis=1)[:, None] * x
        x = x + 0.2 * v
    return float((x**2).sum())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cell_is_recorded_and_its_gradient_is_that_of_differences(shell: Any, backend: str) -> None:
    wb.config.backend = backend
    outcome = shell.run_cell(f"%%tape swinging --seed loss\n{BODY}")
    names = shell.user_ns
    assert isinstance(names["swinging"], Tape) and "tape" not in names
    assert [event.label for event in names["swinging"].launches] == ["swing"] * 8 + ["far"]
    start = np.array(names["START"])
    assert outcome.result is names["loss"] and names["loss"].item() == pytest.approx(loss_by_hand(start), rel=1e-5)
    for index in np.ndindex(2, 2):
        step = np.zeros((2, 2))
        step[index] = 1e-6
        slope = (loss_by_hand(start + step) - loss_by_hand(start - step)) / 2e-6
        assert names["x"].grad.numpy()[index] == pytest.approx(slope, rel=1e-4, abs=1e-4)


def test_a_cell_that_runs_twice_leaves_the_gradient_of_one_run(shell: Any) -> None:
    shell.run_cell("x = wb.array([[1.0, 0.0], [0.5, 1.5]], dtype=wb.vec2, requires_grad=True)")
    cell = "%%tape --seed loss --keep all\ny, v, loss = wb.clone(x), wb.zeros(2, dtype=wb.vec2), wb.zeros(1)\n"
    found = []
    for _ in range(2):
        shell.run_cell(f"{cell}fall(y, v, loss);")
        found.append(shell.user_ns["x"].grad.numpy().copy())
    assert np.abs(found[0]).max() > 0.01 and np.array_equal(*found)
    assert shell.user_ns["tape"].keep == "all"


def test_the_cell_can_use_its_tape_and_without_a_seed_there_is_no_gradient(shell: Any) -> None:
    body = BODY.replace("fall(x, v, loss)", 'with steps.scope("fall"):\n    fall(x, v, loss)')
    shell.run_cell(f"%%tape steps\n{body}")
    assert [block.name for block in shell.user_ns["steps"].scopes] == ["fall"]
    assert not shell.user_ns["steps"].last_seeds and not shell.user_ns["x"].grad.numpy().any()


@pytest.mark.parametrize("view, mark", [("film", "wb-still"), ("explore", "wb-still"), ("show", "wb-tape-view")])
def test_what_is_asked_for_is_shown_with_the_names_of_the_notebook(shell: Any, view: str, mark: str) -> None:
    with capture_output() as shown:
        shell.run_cell(f"%%tape --seed loss --{view}\n{BODY};")
    texts = "".join(output.data.get("text/html", "") + output.data.get("text/plain", "") for output in shown.outputs)
    assert mark in texts
    assert ("points x (2) · arrows −adjoint of x" if view == "film" else "loss") in texts


def test_a_cell_that_raises_shows_its_line_and_nothing_else(shell: Any) -> None:
    shell.run_cell("x = wb.ones(2, dtype=wb.vec2, requires_grad=True)")
    cell = "%%tape --seed loss --film\n\nv, loss = wb.zeros(2, dtype=wb.vec2), wb.zeros(1)\nfall(x, v, loss)\n1 / 0"
    error, traceback = failed(shell, cell)
    assert error == "division by zero" and "line 5" in traceback and "----> 5 1 / 0" in traceback
    assert "tape_magic.py" not in traceback and "film" not in traceback.replace("--film", "")
    assert len(shell.user_ns["tape"].launches) == 9 and not shell.user_ns["x"].grad.numpy().any()
    with wb.Tape() as after:  # the tape of the cell is closed
        wb.zeros(1).fill_(1.0)
    assert len(after.events) == 1
    error, traceback = failed(shell, "%%tape\nwb.launch(swing, 2, [x])")
    assert "takes 2 arguments, got 1" in error and "----> 2 wb.launch" in traceback


@pytest.mark.parametrize(
    "line, said",
    [
        ("--flim", "unrecognized arguments: --flim"),
        ("--film --show", "not allowed with argument --film"),
        ("one two", "unrecognized arguments: two"),
        ("a-b", "'a-b' is no name of a variable"),
        ("--keep none", "invalid choice: 'none'"),
        ("--seed", "expected one argument"),
        ("--seed 'loss", "No closing quotation"),
        ("--seed nowhere", "there is no nowhere in the notebook"),
        ("--seed wb.inf", "wb.inf is a float, no array"),
    ],
)
def test_a_line_that_it_does_not_take_is_refused_with_one_that_it_does(shell: Any, line: str, said: str) -> None:
    error, traceback = failed(shell, f"%%tape {line}\ny = 3")
    assert said in error and "Write instead:   %%tape tape --seed loss --explore\n[tape-magic]" in error
    assert "argparse.py" not in traceback and ("y" in shell.user_ns) == ("--seed " in line and "'" not in line)


def test_a_seed_of_many_numbers_is_refused_as_by_backward(shell: Any) -> None:
    assert "grads=" in failed(shell, f"%%tape --seed v\n{BODY}")[0]


def test_a_tape_in_a_tape_is_refused(shell: Any) -> None:
    error, _ = failed(shell, "%%tape\n%%tape inner\ny = 3")
    assert "another tape is open" in error and "[nested-tape]" in error and "inner" not in shell.user_ns
    assert shell.run_cell(f"%%tape outer --seed loss\nwith wb.Tape() as inner:\n    z = wb.zeros(1)\n{BODY}").success
    assert np.abs(shell.user_ns["x"].grad.numpy()).max() > 0.01


def test_the_loader_of_the_extension_is_for_ipython_alone() -> None:
    assert callable(wb.load_ipython_extension) and "load_ipython_extension" not in dir(wb)
