"""Conditions without branches: fewer `if`s where that is free of danger, the same values everywhere."""

import itertools
import linecache

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


def nest(a: str, outer: str, inner: str, kind: str) -> wb.Kernel:
    """`if outer: (if inner: ... else: ...) else: ...` of constants; every branch gives another one or the same."""
    lines = {
        "both": ["if O:", "    if I:", "        a = 3.0", "    else:", "        a = 2.0"],
        "inner only": ["if O:", "    if I:", "        a = 3.0"],
        "as outside": ["if O:", "    if I:", "        a = 3.0", "    else:", f"        a = {a}"],
        "else": ["if O:", "    if I:", "        a = 3.0", "else:", "    a = 5.0"],
        "else as inside": ["a = 5.0", "if O:", "    if I:", "        a = 3.0", "else:", "    a = 5.0"],
        "before": ["if O:", "    a = 4.0", "    if I:", "        a = 3.0"],
        "two": [
            "b = 1.0",
            "if O:",
            "    if I:",
            "        a, b = 3.0, 2.0",
            "    else:",
            "        b = 7.0",
            "a = a + b",
        ],
    }[kind]
    body = [f"a = {a}", *(line.replace("O", outer).replace("I", inner) for line in lines), "y[i, j] = a"]
    head = "import workbench as wb\ndef k(x: wb.array2d(dtype=float), y: wb.array2d(dtype=float), n: int, m: int):\n"
    text = head + "".join(f"    {line}\n" for line in ["i, j = wb.tid()", "v = x[i, j] * 4.0 - 1.0", *body])
    file = f"<nest {a} {outer} {inner} {kind}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), scope := {})
    return wb.Kernel(func=scope["k"])


CONDITIONS = ("v > 0.0", "i > 1 and v > 0.0", "i > 1 or v > 0.0", "not v > 0.0")
INNER = ("v > 1.0", "v > 1.0 or j == 2", "j > 0 and v > 1.0")
KINDS = ("both", "inner only", "as outside", "else", "else as inside", "before", "two")


@pytest.mark.parametrize("kind", KINDS)
def test_every_nest_of_two_conditions_computes_what_it_did(kind):
    shape = (6, 9)
    x = np.random.default_rng(3).random(shape).astype(np.float32)
    for a, outer, inner in itertools.product(("0.0", "5.0"), CONDITIONS, INNER):
        function = nest(a, outer, inner, kind).program().function
        assert np.array_equal(values(fewer_branches(function), shape), values(function, shape)), (a, outer, inner)


def test_the_values_of_a_nest_are_those_of_numpy():
    v = np.random.default_rng(3).random((6, 9)).astype(np.float32) * 4 - 1
    function = fewer_branches(nest("0.0", "v > 0.0", "v > 1.0", "both").program().function)
    assert np.array_equal(values(function, (6, 9)), np.where(v > 0, np.where(v > 1, 3, 2), 0))
