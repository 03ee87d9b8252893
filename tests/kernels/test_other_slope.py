"""The adjoint with the other slope: another number at a tie, the same everywhere else."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.kernels.interpreter.run import run
from workbench.kernels.ir import Role
from workbench.kernels.passes import adjoint, other_slope

BOTH = frozenset("xy")


@wb.kernel
def least(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.min(2.0 * x[i], x[i])


@wb.kernel
def most(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.max(2.0 * x[i], x[i])


@wb.kernel
def apart(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.abs(wb.abs(x[i]) - wb.abs(x[i]) + x[i])


@wb.kernel
def between(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.clamp(x[i], -1.0, 0.0)


@wb.kernel
def smooth(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    if x[i] < 0.0:
        y[i] = wb.sin(x[i])
    else:
        y[i] = 3.0 * x[i]


def slopes(function, x: list[float]) -> list[float]:
    held = {None: np.array(x, np.float32), Role.SHADOW: np.ones(len(x), np.float32)}
    given = {p: np.array(held[None] if p.role is None else np.zeros(len(x), np.float32)) for p in function.params}
    for p in function.params:
        if p.role is Role.SHADOW and p.belongs_to == "y":
            given[p] = held[Role.SHADOW]
    run(function, (len(x),), list(given.values()))
    (found,) = [v for p, v in given.items() if p.role is Role.SHADOW and p.belongs_to == "x"]
    return found.tolist()


@pytest.mark.parametrize(
    ("kernel", "ours", "others"),
    [
        (least, [2.0, 2.0, 1.0], [2.0, 1.0, 1.0]),
        (most, [1.0, 2.0, 2.0], [1.0, 1.0, 2.0]),
        (apart, [-1.0, 0.0, 1.0], [-1.0, 1.0, 1.0]),
        (between, [1.0, 1.0, 0.0], [1.0, 0.0, 0.0]),
    ],
)
def test_only_ties_have_another_slope(kernel, ours, others):
    made = adjoint.adjoint(kernel.program().function, BOTH).function
    x = [-0.5, 0.0, 0.5]
    assert slopes(made, x) == ours
    assert slopes(other_slope.other_slope(made), x) == others


def test_a_branch_of_the_program_is_left_alone():
    made = adjoint.adjoint(smooth.program().function, BOTH).function
    assert other_slope.other_slope(made) is made
