"""Conditions without branches: fewer `if`s where that is free of danger, the same values everywhere."""

import numpy as np
import pytest

import workbench as wb
from workbench.kernels.interpreter import run
from workbench.kernels.ir import walk
from workbench.kernels.ops import control
from workbench.kernels.passes.fewer_branches import fewer_branches


@wb.kernel
def border(x: wb.array2d(dtype=float), y: wb.array2d(dtype=float), n: int, m: int):
    i, j = wb.tid()
    if i > 0 and i < n - 1 and j > 0 and j < m - 1:
        if (i + j) % 2 == 0 or i == j:
            y[i, j] = x[i - 1, j] + x[i, j + 1]


@wb.kernel
def either(x: wb.array2d(dtype=float), y: wb.array2d(dtype=float), n: int, m: int):
    i, j = wb.tid()
    kept = 0.0
    if i < 2 or j < 2 or i + j == n:
        if not (i == 1 and j == m - 1):
            kept = x[i, j] * 2.0
    y[i, j] = kept


@wb.kernel
def apart(x: wb.array2d(dtype=float), y: wb.array2d(dtype=float), n: int, m: int):
    i, j = wb.tid()
    kept = 1.0
    if i > 1 and j > 1:
        kept = 2.0
        if i < n - 2:
            kept = x[i, j]
    else:
        kept = -x[i, j]
    y[i, j] = kept


@wb.kernel
def guarded(x: wb.array2d(dtype=float), y: wb.array2d(dtype=float), n: int, m: int):
    i, j = wb.tid()
    if i > 0 and x[i - 1, j] > 0.5:
        y[i, j] = 1.0
    if i > 0 and n // i > 2:
        y[i, j] += 1.0


def branches(function) -> int:
    return sum(s.row is control.IF for s in walk(function.body))


def values(function, shape) -> np.ndarray:
    x = np.random.default_rng(3).random(shape).astype(np.float32)
    y = np.full(shape, 7, np.float32)
    run.run(function, shape, [x, y, np.int32(shape[0]), np.int32(shape[1])])
    return y


@pytest.mark.parametrize(("kernel", "left"), [(border, 2), (either, 1), (apart, 2), (guarded, 4)])
def test_a_condition_becomes_one_test_unless_it_reads_or_may_fail(kernel, left):
    function = kernel.program().function
    flat = fewer_branches(function)
    assert branches(flat) == left <= branches(function)
    for shape in ((1, 1), (2, 5), (6, 6)):
        assert np.array_equal(values(flat, shape), values(function, shape))


def test_nothing_is_copied_where_nothing_is_gained():
    function = guarded.program().function
    assert fewer_branches(function) is function


@wb.kernel
def notes(x: wb.array2d(dtype=float), y: wb.array2d(dtype=float), n: int, m: int):
    i, j = wb.tid()
    v = x[i, j]
    if v > 0.5:
        low = v < 0.75
    else:
        y[i, j] = 5.0
        low = False
    if low:
        y[i, j] = v


def test_what_the_other_branch_stores_stays():
    function = notes.program().function
    assert np.array_equal(values(fewer_branches(function), (6, 9)), values(function, (6, 9)))
