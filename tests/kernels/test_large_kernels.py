"""Kernels of many lines, of very long lines, and nested deeply: right, and compiled in a time that one waits for."""

from __future__ import annotations

import gc
import linecache
import os
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest

import workbench as wb
from workbench.errors import KernelError
from workbench.kernels.compile import c_compiler

X = np.linspace(0.1, 0.8, 8)
F = wb.float64


def kernel(lines: list[str], name: str):
    head = "@wb.kernel\ndef k(x: wb.array(dtype=F), y: wb.array(dtype=F)):\n    i = wb.tid()\n"
    text = head + "".join(f"    {line}\n" for line in lines)
    file = f"<large {name}>"
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    space = {"wb": wb, "F": F, "__name__": "large"}
    exec(compile(text, file, "exec"), space)
    return space["k"]


def run(made):
    x, y = wb.array(X, dtype=F, requires_grad=True), wb.zeros(len(X), dtype=F)
    with wb.Tape() as tape:
        wb.launch(made, dim=len(X), inputs=[x, y])
    tape.backward(grads={y: wb.ones(len(X), dtype=F)})
    return y.numpy(), x.grad.numpy()


def test_reading_the_names_of_the_workbench_looks_for_no_other_spelling(monkeypatch):
    monkeypatch.setattr(wb, "_instead_of", lambda *asked: pytest.fail(f"looked for {asked[0]}"))
    assert kernel(["y[i] = wb.sin(x[i]) + wb.float64(2.0) * wb.pi"], "names").program()


def test_a_sum_of_1200_terms_in_one_line(backend):
    limit = sys.getrecursionlimit()
    values, gradient = run(kernel(["y[i] = " + " + ".join(f"x[i] * F({k})" for k in range(1200))], "sum"))
    np.testing.assert_allclose(values, X * sum(range(1200)), rtol=1e-12)
    np.testing.assert_allclose(gradient, sum(range(1200)), rtol=1e-12)
    assert sys.getrecursionlimit() == limit


def test_an_index_of_1200_terms(backend):
    values, _ = run(kernel(["y[i] = x[(" + " + ".join(["i"] * 1201) + ") % 8]"], "index"))
    np.testing.assert_array_equal(values, X)


def test_calls_in_calls(backend):
    values, gradient = run(kernel(["y[i] = " + "wb.sin(" * 150 + "x[i]" + ")" * 150], "calls"))
    expected, slope = X, np.ones(8)
    for _ in range(150):
        slope, expected = slope * np.cos(expected), np.sin(expected)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    np.testing.assert_allclose(gradient, slope, rtol=1e-10)


def branches(count: int):
    lines = [f"{'el' * (k > 0)}if x[i] < F({(k + 1) / count}):\n        y[i] = x[i] * F({k})" for k in range(count)]
    return kernel(lines, f"branches {count}")


@pytest.mark.slow
def test_every_stage_of_260_branches_in_each_other_can_be_looked_at():
    made = branches(260)
    for stage in (made.ir, made.adjoint, made.c, made.cuda):
        assert "259" in str(stage)


@pytest.mark.parametrize("count", [pytest.param(60), pytest.param(150, marks=pytest.mark.slow)])
def test_branches_in_branches(backend, count):
    values, gradient = run(branches(count))
    taken = np.array([next(k for k in range(count) if x < (k + 1) / count) for x in X], float)
    np.testing.assert_allclose(values, X * taken)
    np.testing.assert_allclose(gradient, taken)


def long(count: int) -> tuple[list[str], np.ndarray]:
    """Lines that use each other, memory, branches and vectors; and the derivative of the last value."""
    lines, a, b, da, db = ["a = x[i]", "b = F(1.0)"], X.copy(), np.ones(8), np.ones(8), np.zeros(8)
    for k in range(count // 4):
        lines += [f"a = a * F(0.9) + b * F(0.1) + x[(i + {k % 8}) % 8] * F(0.0)", "b = wb.sin(a) + b * F(0.5)"]
        lines += ["if a > F(1.2):\n        a = a * F(0.5)", "a = wb.vector(a, b, dtype=F)[0] + F(0.01)"]
        a, da = a * 0.9 + b * 0.1, da * 0.9 + db * 0.1
        b, db = np.sin(a) + b * 0.5, np.cos(a) * da + db * 0.5
        a, da = np.where(a > 1.2, a * 0.5, a) + 0.01, np.where(a > 1.2, da * 0.5, da)
    return [*lines, "y[i] = a + b"], da + db


@contextmanager
def uncollected():
    """No garbage is collected in between, which would look at all that other tests have left."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.slow
def test_the_time_of_a_kernel_grows_with_its_lines_and_no_faster(backend, tmp_path):
    wb.config.cache_dir = tmp_path
    spent = []
    for count in (100, 500, 2000):  # the first of a process imports and finds the compiler
        lines, slope = long(count)
        with uncollected():
            started = time.process_time()  # of this process: the compiler runs in others
            _, gradient = run(kernel(lines, str(count)))
            spent.append(time.process_time() - started)
        np.testing.assert_allclose(gradient, slope, rtol=1e-9)
    assert spent[2] < 3 * 4 * spent[1]  # what is quadratic takes 16 times as long


@pytest.mark.needs_cc
def test_a_large_text_is_compiled_without_waiting_for_its_optimisation(monkeypatch, tmp_path):
    monkeypatch.setattr(c_compiler, "LARGE", 10)
    monkeypatch.setattr(c_compiler, "PATIENCE_S", 1e-3)
    wb.config.backend, wb.config.cache_dir = "c", tmp_path
    values, gradient = run(kernel(["y[i] = x[i] * x[i]"], "hasty"))
    np.testing.assert_allclose(values, X * X)
    np.testing.assert_allclose(gradient, 2 * X)


@pytest.mark.needs_cc
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="a POSIX shell stands in for the compiler")
def test_a_compiler_that_takes_too_long_ends_with_all_its_processes(monkeypatch, tmp_path):
    """Else the one that was given up takes a processor from the one that is waited for, for minutes."""
    script, late = tmp_path / "gcc", tmp_path / "late"
    real = c_compiler.compiler().command[0]
    script.write_text(f'#!/bin/sh\ncase "$*" in *-O1*) (sleep 0.5; touch {late}) & wait;; esac\nexec {real} "$@"\n')
    script.chmod(0o700)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setattr(c_compiler, "compiler", c_compiler.compiler.__wrapped__)
    monkeypatch.setattr(c_compiler, "LARGE", 0)
    monkeypatch.setattr(c_compiler, "PATIENCE_S", 0.1)
    wb.config.cache_dir = tmp_path / "cache"
    assert c_compiler.build("int f(void) { return 1; }\n").exists()
    time.sleep(0.8)
    assert not late.exists()


def test_only_what_may_be_done_in_time_is_optimised(monkeypatch):
    """Of tens of thousands of lines, an attempt would be waiting for nothing."""
    monkeypatch.setattr(c_compiler, "LARGE", 2)
    monkeypatch.setattr(c_compiler, "HUGE", 4)
    flags = [[level for level, _ in c_compiler._levels("\n" * lines)] for lines in (2, 4, 5)]
    assert flags == [[()], [("-O1",), ("-O0",)], [("-O0",)]]


def test_what_is_nested_too_deeply_says_so(monkeypatch):
    from workbench.kernels import recursion

    monkeypatch.setattr(recursion, "CALLS", 0)
    made = kernel(["y[i] = " + " + ".join(["x[i]"] * 900)], "deep")
    with pytest.raises(KernelError, match="nested too deeply") as found:
        made.program()
    assert found.value.where.line == 4
