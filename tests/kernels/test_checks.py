"""`assert`, `expect_*` and `print` in kernels: what fails says its line and thread; gradients do not know of them."""

import ctypes

import numpy as np
import pytest

import workbench as wb
from tests.support.diagnosed import line_of

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def rooted(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    assert x[i] >= 0.0, "no root"
    y[i] = wb.sqrt(x[i])


@wb.kernel
def matched(n: wb.array[int], v: wb.array[wb.vec2], x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    wb.expect_neq(n[i], 3)
    wb.expect_eq(v[i], wb.vec2(1.0, 2.0))
    if n[i] > 0:
        wb.expect_near(x[i], 2, 0.5)
    wb.expect_near(v[i] * 2, wb.vec2(2.0, 4.0))
    y[i] = x[i] * x[i]


@wb.kernel
def told(x: wb.array[float], m: wb.mat22, v: wb.vec3, n: wb.uint8):
    i = wb.tid()
    print("at", i, x[i], "100%", v, n > wb.uint8(3))  # noqa: T201
    wb.print(m)


@pytest.mark.host_memory
def test_an_assertion_is_looked_at_with_check_bounds(monkeypatch):
    monkeypatch.setattr(wb.config, "check_bounds", True)
    x, y = wb.array([1.0, 4.0, -1.0]), wb.zeros(3)
    with pytest.raises(wb.LaunchError, match=r"no root(.|\n)*\[assert\]") as e:
        wb.launch(rooted, 3, [x], [y])
    assert "thread 2" in str(e.value) and e.value.where.line == line_of(rooted, "no root")
    wb.launch(rooted, 2, [x], [y])
    assert y.list()[:2] == [1, 2]


@pytest.mark.needs_cc
@pytest.mark.parametrize("bounds", [False, "affine"])
def test_an_assertion_costs_nothing_without_checks(bounds, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", "c")
    monkeypatch.setattr(wb.config, "check_bounds", bounds)
    y = wb.zeros(2)
    wb.launch(rooted, 2, [wb.array([-1.0, 4.0])], [y])
    assert np.isnan(y.numpy()[0]) and y.numpy()[1] == 2.0
    assert "wb_fail(" not in str(rooted.c)


CASES = {
    "expect_neq(n[i], 3)": ([1, 3], [[1, 2]] * 2, [2, 2]),
    "expect_eq(v[i]": ([1, 1], [[1, 2], [1, 3]], [2, 2]),
    "expect_near(x[i], 2, 0.5)": ([1, 1], [[1, 2]] * 2, [2, np.nan]),
}


@pytest.mark.parametrize("line", CASES)
def test_an_expectation_is_always_looked_at(line):
    n, v, x = CASES[line]
    y = wb.zeros(2)
    with pytest.raises(wb.LaunchError, match="thread 1: values that were to") as e:
        wb.launch(matched, 2, [wb.array(n), wb.array(v, dtype=wb.vec2), wb.array(x, dtype=float)], [y])
    assert e.value.slug == "expect" and e.value.where.line == line_of(matched, line)


def test_gradients_and_captures_pass_by_claims():
    n, v, y = wb.array([0, 1]), wb.array([[1, 2]] * 2, dtype=wb.vec2), wb.zeros(2)
    x = wb.array([5.0, 2.25], requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(matched, 2, [n, v, x], [y])
    tape.backward(grads={y: wb.ones(2)})
    assert x.grad.list() == [10.0, 4.5]
    with wb.capture() as graph:
        wb.launch(matched, 2, [n, v, x], [y])
    x.assign([1.0, 7.0])
    with pytest.raises(wb.LaunchError, match="expect"):
        graph.replay()


def test_print_prints(capfd):
    wb.launch(told, 1, [wb.array([0.5]), wb.mat22(1, 2, 3, 4), wb.vec3(1, 2.5, 3), 7])
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == "at 0 0.5 100% 1 2.5 3 1\n1 2\n3 4\n"
