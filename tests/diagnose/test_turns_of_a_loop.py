"""The loop of one kernel as a time loop: growth of adjoints and bounds that are never left, with line and turn."""

from __future__ import annotations

import re

import numpy as np
import pytest

import workbench as wb
from tests.support.diagnosed import leaf, line_of, total

pytestmark = pytest.mark.usefixtures("backend")
N = 4


@wb.kernel
def chaos(x: wb.array[float], r: float, turns: int, y: wb.array[float]):
    i = wb.tid()
    z = x[i]
    for k in range(2, turns + 2):
        z = r * z * (1.0 - z)
    y[i] = z


@wb.kernel
def chaos_while(x: wb.array[float], r: float, turns: int, y: wb.array[float]):
    i = wb.tid()
    z, left = x[i], turns
    while left > 0:
        z = r * z * (1.0 - z)
        left -= 1
    y[i] = z


@wb.kernel
def chaos_of_rows(x: wb.array[float], r: float, turns: int, y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i]
    for k in range(turns):
        y[i] = r * y[i] * (1.0 - y[i])


@wb.kernel
def chaos_in_steps(x: wb.array[float], r: float, turns: int, y: wb.array[float]):
    i = wb.tid()
    z = x[i]
    for k in range(turns):
        for _ in range(3):
            z = 0.5 * z + 0.5 * z
        z = r * z * (1.0 - z)
    y[i] = z


def gone(kernel, r, turns, by=1.0):
    x, y = leaf(0.31, 0.46, 0.57, 0.72), wb.zeros(N)
    with wb.Tape() as tape:
        wb.launch(kernel, dim=N, inputs=[x, r, turns], outputs=[y])
    tape.backward(grads={y: wb.array(np.full(N, by, np.float32))})
    return tape.diagnose().named("growing")


@pytest.mark.parametrize("by", [1e-9, 1e9])
@pytest.mark.parametrize(
    ("kernel", "line"),
    [(chaos, "for k"), (chaos_while, "while left"), (chaos_of_rows, "for k"), (chaos_in_steps, "for k")],
)
def test_chaos_in_a_loop_is_told_with_its_line_and_its_turns(kernel, line, by):
    (found,) = gone(kernel, 3.99, 16, by)
    assert found.severity == "warning" and found.line == line_of(kernel, line)
    first, last = map(int, re.search(r"from turn (\d+) of 16 to turn (\d+)", found.sentence).groups())
    assert last <= 2 and 14 <= first <= 16
    assert 1.5 < float(re.search(r"by a factor of ([\d.]+) a turn;", found.sentence)[1]) < 3


@pytest.mark.parametrize("kernel", [chaos, chaos_while, chaos_of_rows, chaos_in_steps])
def test_a_loop_that_settles_down_has_no_such_finding(kernel):
    assert gone(kernel, 2.5, 40, 1e6) == []


@wb.kernel
def unstable(x: wb.array[float], dt: float, turns: int, y: wb.array[float]):
    i = wb.tid()
    p, v = x[i], 0.0
    for k in range(turns):
        a = -100.0 * p
        p = p + dt * v
        v = v + dt * a
    y[i] = p


def test_a_time_step_that_is_too_long_is_told_and_a_short_one_is_not():
    (found,) = gone(unstable, 0.2, 30)
    assert found.line == line_of(unstable, "for k")
    assert gone(unstable, 0.001, 300) == []


@wb.kernel
def sums(x: wb.array[float], by: float, turns: int, y: wb.array[float]):
    i = wb.tid()
    s, power = 0.0, 1.0
    for k in range(turns):
        s = s + x[k % 4] * power
        power = power * by
    y[i] = s


def test_sums_and_series_have_no_such_finding():
    assert gone(sums, 0.9, 200) == []
    assert gone(sums, 1.2, 12) == []


# ---- bounds


@wb.kernel
def pushed(f: wb.array[float], turns: int, y: wb.array[float]):
    i = wb.tid()
    v, s = 0.0, 0.0
    for k in range(turns):
        v = wb.clamp(v + 0.1 * f[i], -1.0, 1.0)
        s = s + v
    y[i] = s


@wb.kernel
def pushed_rows(f: wb.array[float], turns: int, y: wb.array[float]):
    i = wb.tid()
    for k in range(turns):
        w = y[i] + 0.1 * f[i]
        y[i] = wb.min(w, 1.0)


@wb.kernel
def controlled(f: wb.array[float], turns: int, y: wb.array[float]):
    i = wb.tid()
    v, s = 0.2, 0.0
    for k in range(turns):
        u = wb.clamp(3.0 * v, -1.0, 1.0)
        v = v + 0.1 * u * f[i]
        s = s + u
    y[i] = s + v


@wb.kernel
def dried(f: wb.array[float], turns: int, y: wb.array[float]):
    i = wb.tid()
    h, s = 1.0, 0.0
    for k in range(turns):
        h = wb.clamp(h - 0.1 * f[i], 0.0, 2.0)
        s = s + h
    y[i] = s


@wb.kernel
def taken_in_turn(f: wb.array[float], turns: int, y: wb.array[float]):
    i = wb.tid()
    s = 0.0
    for k in range(turns):
        s = s + wb.clamp(f[i] * float(k), -1.0, 1.0)
    y[i] = s


@wb.kernel
def landing(f: wb.array[float], turns: int, y: wb.array[float]):
    i = wb.tid()
    p, v = 1.0, 0.0
    for k in range(turns):
        v = v - 0.02 * f[i] + 0.5 * wb.max(0.2 - p, 0.0)
        p = p + 0.1 * v
    y[i] = p


def pushes(kernel, *forces):
    f, y, loss = leaf(*forces), wb.zeros(len(forces)), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(kernel, dim=len(forces), inputs=[f, 20], outputs=[y])
        wb.launch(total, dim=len(forces), inputs=[y], outputs=[loss])
    tape.backward(loss)
    return tape.diagnose()


@pytest.mark.parametrize(("kernel", "line"), [(pushed, "wb.clamp"), (pushed_rows, "wb.min"), (controlled, "wb.clamp")])
def test_a_bound_that_one_thread_reaches_and_never_leaves_is_told_with_its_turn(kernel, line):
    (found,) = pushes(kernel, 0.1, 0.2, 1.0, 0.3).problems
    assert found.slug == "saturated" and found.line == line_of(kernel, line) and found.thread == 2
    turn = int(re.search(r"from turn (\d+) of 20 ", found.sentence)[1])
    assert turn == (3 if kernel is controlled else 10), found


def test_bounds_that_are_not_reached_or_follow_the_data_have_no_finding():
    assert pushes(pushed, 0.1, 0.2, 0.4, 0.3).named("saturated") == []
    assert pushes(taken_in_turn, 0.1, 0.2, 1.0, 0.3).named("saturated") == []
    assert pushes(landing, 0.1, 0.2, 1.0, 0.3).named("saturated") == []


def test_a_bound_of_zero_in_a_loop_is_good_to_know():
    (found,) = pushes(dried, 0.1, 0.2, 1.0, 0.3).named("saturated")
    assert found.severity == "info" and found.line == line_of(dried, "wb.clamp") and found.thread == 2
