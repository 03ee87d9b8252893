"""An iteration that has not arrived, and a sum where a mean was meant, are mentioned."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.diagnosed import leaf, line_with, total

pytestmark = pytest.mark.usefixtures("backend")
N = 12


@wb.kernel
def jacobi(p: wb.array[float], b: wb.array[float], out: wb.array[float]):
    i = wb.tid() + 1
    out[i] = (p[i - 1] + p[i + 1] - b[i]) / 2.2


@wb.kernel
def towards_root(x: wb.array[float], a: wb.array[float]):
    i = wb.tid()
    x[i] = 0.9 * x[i] + 0.1 * a[i] / x[i]


@wb.kernel
def solve_heat(u: wb.array[float], dt: float, out: wb.array[float]):
    i = wb.tid() + 1
    out[i] = u[i] + dt * (u[i - 1] - 2.0 * u[i] + u[i + 1]) * u[i]


def solve(turns):
    b = leaf(*np.sin(np.arange(N)))
    p0, p1, loss = wb.zeros(N), wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(turns):
            wb.launch(jacobi, dim=N - 2, inputs=[p0, b], outputs=[p1])  # a sweep
            p0, p1 = p1, p0
        wb.launch(total, dim=N, inputs=[p0], outputs=[loss])
    tape.backward(loss)
    return tape.diagnose()


def roots(turns):
    a, x, loss = leaf(2.0, 3.0, 5.0), wb.full(3, 8.0), wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(turns):
            wb.launch(towards_root, dim=3, inputs=[x, a])  # a turn
        wb.launch(total, dim=3, inputs=[x], outputs=[loss])
    tape.backward(loss)
    return tape.diagnose()


def test_sweeps_that_are_too_few_are_mentioned():
    (found,) = solve(5).named("unsettled")
    assert found.severity == "info" and found.line == line_with(solve, "a sweep") and "5 launches" in found.sentence
    assert solve(80).named("unsettled") == []


def test_a_fixed_point_in_place_that_is_not_reached_is_mentioned():
    (found,) = roots(8).named("unsettled")
    assert found.line == line_with(roots, "a turn") and "%" in found.sentence and found.arrays == ("x",)
    assert roots(120).named("unsettled") == []


def test_a_time_loop_does_not_iterate_towards_anything():
    u, out, loss = leaf(*np.linspace(1.0, 3.0, N) ** 4), wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(6):
            wb.launch(solve_heat, dim=N - 2, inputs=[u, 0.004], outputs=[out])
            u, out = out, u
        wb.launch(total, dim=N, inputs=[u], outputs=[loss])
    tape.backward(loss)
    assert tape.diagnose().named("unsettled") == []


@wb.kernel
def solve_speed(x: wb.array[float], v: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    out[i] = v[i] - 0.1 * x[i] * wb.abs(x[i])


@wb.kernel
def drift(x: wb.array[float], v: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    out[i] = x[i] + 0.1 * v[i]


def test_a_solve_whose_inputs_move_on_is_a_time_loop():
    xs, vs, loss = [leaf(*np.linspace(1.0, 2.0, N))], [wb.zeros(N)], wb.zeros(1)
    with wb.Tape() as tape:
        for k in range(8):
            xs.append(wb.zeros(N))
            vs.append(wb.zeros(N))
            wb.launch(solve_speed, dim=N, inputs=[xs[k], vs[k]], outputs=[vs[k + 1]])
            wb.launch(drift, dim=N, inputs=[xs[k], vs[k + 1]], outputs=[xs[k + 1]])
            wb.launch(total, dim=N, inputs=[vs[k + 1]], outputs=[loss])
    tape.backward(loss)
    assert tape.diagnose().named("unsettled") == []


@wb.kernel
def errors(w: wb.array[float], x: wb.array[float], e: wb.array[float]):
    i = wb.tid()
    e[i] = (w[0] * x[i] - 1.0) * (w[0] * x[i] - 1.0)


def seeded(one):
    w, x, e = leaf(0.5), wb.array(np.arange(8, dtype=np.float32)), wb.zeros(8)
    with wb.Tape() as tape:
        wb.launch(errors, dim=8, inputs=[w, x], outputs=[e])
    assert e.numpy().mean() > 0
    tape.backward(grads={e: wb.full(8, one)})
    return tape.diagnose().named("sum-not-mean")


def test_ones_as_a_seed_of_something_whose_mean_is_taken_are_mentioned():
    (found,) = seeded(1.0)
    assert found.severity == "info" and "8 ones" in found.sentence and found.arrays == ("e",)
    assert seeded(0.125) == []


def test_ones_as_a_seed_of_a_sum_are_ordinary():
    w, x, squares = leaf(0.5), wb.array(np.arange(8, dtype=np.float32)), wb.zeros(8)
    with wb.Tape() as tape:
        wb.launch(errors, dim=8, inputs=[w, x], outputs=[squares])
    tape.backward(grads={squares: wb.ones(8)})
    assert tape.diagnose().named("sum-not-mean") == []
