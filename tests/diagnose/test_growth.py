"""An adjoint that grows as an exponential, while the state does not, is found whatever its size."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import workbench as wb
from tests.support.diagnosed import leaf, line_with, total
from workbench.diagnose.series import Series

pytestmark = pytest.mark.usefixtures("backend")
N = 4


@wb.kernel
def logistic(x: wb.array[float], r: float, y: wb.array[float]):
    i = wb.tid()
    y[i] = r * x[i] * (1.0 - x[i])


@wb.kernel
def scaled_total(x: wb.array[float], by: float, loss: wb.array[float]):
    wb.atomic_add(loss, 0, by * x[wb.tid()])


def iterate(steps, r, by, calm=0):
    states, loss = [leaf(0.31, 0.46, 0.57, 0.72), *(wb.zeros(N) for _ in range(steps))], wb.zeros(1)
    with wb.Tape() as tape:
        for k, (a, b) in enumerate(itertools.pairwise(states)):
            wb.launch(logistic, dim=N, inputs=[a, r if k < steps - calm else 1.0], outputs=[b])  # one step
        wb.launch(scaled_total, dim=N, inputs=[states[-1], by], outputs=[loss])
    tape.backward(loss)
    return tape.diagnose().named("growing")


@pytest.mark.parametrize("by", [1e-12, 1.0, 1e6])
def test_chaos_is_told_whatever_the_size_of_the_seed(by):
    (found,) = iterate(14, 3.99, by)
    assert found.severity == "warning" and found.line == line_with(iterate, "one step")
    rate = float(re.search(r"by a factor of ([\d.]+) a step;", found.sentence)[1])
    assert 1.5 < rate < 3 and "what they compute grows by no factor at all" in found.sentence


def test_the_launch_where_the_growth_begins_is_named():
    (found,) = iterate(22, 3.99, 1.0, calm=6)
    number = int(re.match(r"#(\d+) ", found.launch)[1])
    assert 14 <= number <= 17, found


def test_an_iteration_that_settles_down_has_no_such_finding():
    assert iterate(30, 2.5, 1e6) == []


@wb.kernel
def spring(x: wb.array[float], v: wb.array[float], x2: wb.array[float], v2: wb.array[float], dt: float):
    i = wb.tid()
    w = v[i] - dt * (4.0 * x[i] + x[i] * x[i] * x[i])
    v2[i] = w
    x2[i] = x[i] + dt * w


def swing(steps, dt, each):
    xs, vs = [leaf(0.31, 0.46, 0.57, 0.72)], [leaf(0.0, 0.1, 0.2, 0.3)]
    xs += [wb.zeros(N) for _ in range(steps)]
    vs += [wb.zeros(N) for _ in range(steps)]
    loss = wb.zeros(1)
    with wb.Tape() as tape:
        for k in range(steps):
            wb.launch(spring, dim=N, inputs=[xs[k], vs[k]], outputs=[xs[k + 1], vs[k + 1], dt])
            if each:
                wb.launch(total, dim=N, inputs=[xs[k + 1]], outputs=[loss])
        wb.launch(total, dim=N, inputs=[xs[-1]], outputs=[loss])
    tape.backward(loss)
    return tape.diagnose()


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize(("steps", "dt"), [(12, 0.1), (200, 0.01), (100, 0.05)])
def test_springs_and_sums_of_many_losses_have_no_such_finding(steps, dt, each):
    assert swing(steps, dt, each).problems == []


@wb.kernel
def fall(x: wb.array[float], v: wb.array[float], x2: wb.array[float], v2: wb.array[float], dt: float):
    i = wb.tid()
    v2[i] = v[i] - dt * 9.81
    x2[i] = x[i] + dt * v[i] * wb.abs(v[i])


def test_free_flight_has_no_such_finding():
    n = 60
    xs, vs, loss = [wb.zeros(N) for _ in range(n + 1)], [leaf(1.0, 2.0, 3.0, 4.0)], wb.zeros(1)
    vs += [wb.zeros(N) for _ in range(n)]
    with wb.Tape() as tape:
        for k in range(n):
            wb.launch(fall, dim=N, inputs=[xs[k], vs[k]], outputs=[xs[k + 1], vs[k + 1], 0.01])
        wb.launch(total, dim=N, inputs=[xs[-1]], outputs=[loss])
    tape.backward(loss)
    assert np.isfinite(vs[0].grad.numpy()).all() and tape.diagnose().problems == []


@pytest.mark.parametrize(("grows", "explodes"), [(lambda k: 2.0**k, True), (lambda k: (k + 1.0) ** 2.5, False)])
def test_a_power_of_the_number_of_steps_is_no_exponential(grows, explodes):
    assert Series(grows(np.arange(16)), [1.0] * 16).explodes == explodes


# ---- a loss that does not change along its own gradient


@wb.kernel
def tanhs(x: wb.array[float], out: wb.array[float]):
    z = x[0]
    for _ in range(8):
        z = wb.tanh(6.0 * z)
    out[0] = z


@wb.kernel
def above(x: wb.array[float], floor: float, out: wb.array[float]):
    d = x[0] - 1.0
    out[0] = floor + d * d


def lone(kernel, start, *numbers):
    x, loss = leaf(start), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(kernel, dim=1, inputs=[x, *numbers], outputs=[loss])
    return tape, x, loss


def test_a_loss_that_does_not_change_along_its_own_gradient():
    tape, x, loss = lone(tanhs, 0.8)
    for found in (tape.diagnose(loss=loss), tape.backward(loss) or tape.diagnose()):
        (one,) = found
        assert (one.slug, one.severity, one.thread) == ("unmoved", "warning", (0,))
        assert "wb.tanh(6.0 * z)" in one.where.text and "2.5e-30" in one.sentence
    for step in (0.1, -0.1):
        assert tape.replay({x: np.float32([0.8 + step])})[loss].numpy()[0] == loss.numpy()[0]


@pytest.mark.parametrize("start", [1 + 2**-22, 1 - 2**-20, 1.0001, 1e-9, 0.5])
def test_near_a_minimum_it_does_change(start):
    tape, x, loss = lone(above, start, 3.0)
    tape.backward(loss)
    assert x.grad.numpy()[0] and not tape.diagnose().problems
