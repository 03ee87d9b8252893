"""Integrators: order, energy and gradients beside closed forms and differences; the memory of long loops."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import workbench as wb
from tests.support.backends import BACKENDS

F = wb.float64


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


@wb.kernel
def pull(x: wb.array(dtype=F), k: wb.array(dtype=F), t: F, a: wb.array(dtype=F)):
    i = wb.tid()
    a[i] = -k[0] * wb.sin(x[i]) + F(0.3) * wb.cos(t)


@wb.kernel
def spring(x: wb.array(dtype=F), w2: wb.array(dtype=F), a: wb.array(dtype=F)):
    i = wb.tid()
    a[i] = -w2[0] * x[i]


@wb.kernel
def energy(x: wb.array(dtype=F), v: wb.array(dtype=F), e: wb.array(dtype=F)):
    i = wb.tid()
    wb.atomic_add(e, 0, F(0.5) * (v[i] * v[i] + x[i] * x[i]))


def driven(k):
    """The acceleration of a driven pendulum."""

    def acceleration(t, x):
        a = wb.zeros_like(x, requires_grad=False)
        wb.launch(pull, x.size, [x, k, t], [a])
        return a

    return acceleration


def linear(w2):
    def acceleration(t, x):
        a = wb.zeros_like(x, requires_grad=False)
        wb.launch(spring, x.size, [x, w2], [a])
        return a

    return acceleration


def rates_of(acceleration):
    return lambda t, x, v: (v, acceleration(t, x))


def steps_of(method, acceleration, dt):
    """The step of a method for `integrate`."""
    second = method in (wb.symplectic_euler, wb.velocity_verlet)
    f = acceleration if second else rates_of(acceleration)
    return lambda k, x, v: method(f, k * dt, dt, x, v)


METHODS = {wb.symplectic_euler: 1, wb.velocity_verlet: 2, wb.rk4: 4, wb.implicit_midpoint: 2}
NAMES = {m: m.__name__ for m in METHODS}
each_method = pytest.mark.parametrize("method", METHODS, ids=NAMES.get)
X0, V0, K = np.array([0.4, -1.2]), np.array([0.3, 0.8]), 1.7


def leaf(values):
    return wb.array(np.array(values, float), dtype=F, requires_grad=True)


def end(method, dt, steps, x0=X0, v0=V0, k=K):
    """Positions and velocities of the driven pendulums, with the tape and its leaves."""
    start, speed, stiff = leaf(x0), leaf(v0), leaf([k])
    with wb.Tape() as tape:
        x, v = wb.clone(start), wb.clone(speed)
        wb.integrate(steps_of(method, driven(stiff), dt), [x, v], steps, progress=False)
    return x, v, tape, (start, speed, stiff)


def exact(time):
    def f(t, y):
        return np.concatenate([y[2:], -K * np.sin(y[:2]) + 0.3 * np.cos(t)])

    return solve_ivp(f, (0, time), np.concatenate([X0, V0]), method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]


@each_method
def test_the_error_falls_by_the_order_of_the_method(method):
    true = exact(1.6)
    errors = []
    for steps in (12, 24) if method is wb.implicit_midpoint else (16, 32, 64):
        x, v, _, _ = end(method, 1.6 / steps, steps)
        errors.append(np.abs(np.concatenate([x.numpy(), v.numpy()]) - true).max())
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    np.testing.assert_allclose(orders, METHODS[method], atol=0.15)


@each_method
def test_gradients_are_those_of_differences(method):
    x, v, tape, leaves = end(method, 0.15, 7)
    seed = np.array([0.7, -1.1])
    tape.backward(grads={x: seed, v: seed[::-1].copy()})

    def value(x0, v0, k):
        x, v, _, _ = end(method, 0.15, 7, x0, v0, k)
        return float(x.numpy() @ seed + v.numpy() @ seed[::-1])

    h = 1e-6
    for n, leaf_ in enumerate(leaves):
        for i in range(leaf_.size):
            at = [X0.copy(), V0.copy(), K]
            moved = []
            for s in (h, -h):
                here = [np.array(a, float) for a in at]
                here[n].reshape(-1)[i] += s
                moved.append(value(here[0], here[1], float(here[2])))
            np.testing.assert_allclose(leaf_.grad.numpy()[i], (moved[0] - moved[1]) / (2 * h), rtol=2e-8, atol=1e-9)


def matrix_of(method, w2, h):
    """The exact map of one step of the harmonic oscillator."""
    a = np.array([[0.0, 1.0], [-w2, 0.0]])
    one = np.eye(2)
    if method is wb.symplectic_euler:
        return np.array([[1.0, h], [0.0, 1.0]]) @ np.array([[1.0, 0.0], [-h * w2, 1.0]])
    if method is wb.velocity_verlet:
        kick = np.array([[1.0, 0.0], [-h * w2 / 2, 1.0]])
        return kick @ np.array([[1.0, h], [0.0, 1.0]]) @ kick
    if method is wb.rk4:
        z = h * a
        return one + z + z @ z / 2 + z @ z @ z / 6 + z @ z @ z @ z / 24
    return np.linalg.solve(one - h / 2 * a, one + h / 2 * a)


@each_method
def test_oscillators_and_their_gradients_are_powers_of_a_matrix(method):
    w2, h, n = 2.3, 0.2, 12
    start, speed = leaf([1.0]), leaf([-0.5])
    w = wb.array([w2], dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        x, v = wb.clone(start), wb.clone(speed)
        wb.integrate(steps_of(method, linear(w), h), [x, v], n, progress=False)
    power = np.linalg.matrix_power(matrix_of(method, w2, h), n)
    np.testing.assert_allclose([x.numpy()[0], v.numpy()[0]], power @ [1.0, -0.5], rtol=1e-12)
    tape.backward(x)
    np.testing.assert_allclose([start.grad.numpy()[0], speed.grad.numpy()[0]], power[0], rtol=1e-11, atol=1e-13)
    e = 1e-6
    up, down = (np.linalg.matrix_power(matrix_of(method, w2 + s, h), n) @ [1.0, -0.5] for s in (e, -e))
    np.testing.assert_allclose(w.grad.numpy()[0], (up - down)[0] / (2 * e), rtol=1e-7)


def drift(method, h, steps):
    """The largest relative change of the energy of an oscillator, seen at every step."""
    x, v, w = leaf([1.0]), wb.zeros(1, dtype=F), wb.ones(1, dtype=F)
    seen = []
    step = steps_of(method, linear(w), h)

    def watched(k, x, v):
        step(k, x, v)
        e = wb.zeros(1, dtype=F)
        wb.launch(energy, 1, [x, v], [e])
        seen.append(e.numpy()[0])

    wb.integrate(watched, [x, v], steps, progress=False)
    return np.abs(np.array(seen) / 0.5 - 1), seen


def test_symplectic_methods_keep_the_energy_and_rk4_loses_it_slowly():
    for method, bound in ((wb.symplectic_euler, 0.06), (wb.velocity_verlet, 0.003)):
        changes, _ = drift(method, 0.1, 300)
        assert 0.3 * bound < changes.max() < bound
        np.testing.assert_allclose(changes[-64:].max(), changes[:64].max(), rtol=0.01)  # a period: no trend
    assert drift(wb.implicit_midpoint, 0.1, 40)[0].max() < 1e-12
    _, seen = drift(wb.rk4, 0.1, 200)
    np.testing.assert_allclose(1 - seen[-1] / 0.5, 200 * 0.1**6 / 72, rtol=0.05)  # |R(ih)|^2 = 1 - h^6/72 + ...


def test_stiff_decay_is_damped():
    x = wb.ones(1, dtype=F)
    for k in range(3):
        wb.implicit_midpoint(lambda t, x: x * -1000.0, 0.5 * k, 0.5, x)
    np.testing.assert_allclose(x.numpy(), [(-249 / 251) ** 3], rtol=1e-12)


# ---- what a right-hand side may return


def test_a_right_hand_side_may_return_the_state_or_one_buffer_again_and_again():
    buffers = []

    def swapped(t, x, v):
        return v, x

    def reused(t, x):
        if not buffers:  # made at the first call, written again by the others
            buffers.append(wb.zeros(1, dtype=F))
        wb.copy(buffers[0], x)
        return buffers[0]

    h, z = 0.3, np.array([[0.0, 0.3], [0.3, 0.0]])
    want = np.eye(2) + z + z @ z / 2 + z @ z @ z / 6 + z @ z @ z @ z / 24
    start, speed = leaf([2.0]), leaf([1.0])
    with wb.Tape() as tape:
        x, v = wb.clone(start), wb.clone(speed)
        wb.rk4(swapped, 0.0, h, x, v)
    np.testing.assert_allclose([x.numpy()[0], v.numpy()[0]], want @ [2.0, 1.0], rtol=1e-14)
    tape.backward(x)
    np.testing.assert_allclose([start.grad.numpy()[0], speed.grad.numpy()[0]], want[0], rtol=1e-14)
    grow = 1 + h + h**2 / 2 + h**3 / 6 + h**4 / 24
    y = leaf([1.0])
    with wb.Tape() as tape:
        x = wb.clone(y)
        wb.rk4(reused, 0.0, h, x)
    tape.backward(x)
    np.testing.assert_allclose([x.numpy()[0], y.grad.numpy()[0]], [grow, grow], rtol=1e-14)


@pytest.mark.parametrize("dtype", [wb.float32, wb.vec3, wb.vec2d])
def test_states_of_vectors_and_of_several_axes(dtype):
    inner = getattr(dtype, "shape", ())
    values = np.linspace(0.5, 1.5, 6 * int(np.prod(inner, initial=1))).reshape(2, 3, *inner)
    for method, factor in ((wb.rk4, 1 - 0.2 + 0.02 - 0.2**3 / 6 + 0.2**4 / 24), (wb.implicit_midpoint, 0.9 / 1.1)):
        start = wb.array(values, dtype=dtype, requires_grad=True)
        with wb.Tape() as tape:
            x = wb.clone(start)
            method(lambda t, x: x * -1.0, 0.0, 0.2, x)
        tape.backward(grads={x: wb.ones_like(x, requires_grad=False)})
        np.testing.assert_allclose(x.numpy(), factor * values, rtol=1e-6)
        np.testing.assert_allclose(start.grad.numpy(), factor, rtol=1e-6)


def test_states_that_lie_apart_in_memory_are_advanced_in_place():
    both = wb.array(np.array([[1.0, 5.0], [2.0, 6.0]]), dtype=F)
    x, v = both[:, 0], both[:, 1]
    wb.velocity_verlet(lambda t, x: x * 0.0, 0.0, 0.1, x, v)
    np.testing.assert_allclose(both.numpy(), [[1.5, 5.0], [2.6, 6.0]])


def test_what_does_not_fit_is_refused_with_the_line():
    x, v = wb.ones(2, dtype=F), wb.ones(2, dtype=F)
    for f in (lambda t, x, v: v, lambda t, x, v: (v, wb.ones(3, dtype=F)), lambda t, x, v: (v, wb.ones(2)), print):
        with pytest.raises(wb.LaunchError, match="A derivative by time is like its state") as refused:
            wb.rk4(f, 0.0, 0.1, x, v)
        assert refused.value.slug == "integrate" and "test_integrate.py" in str(refused.value)
    with pytest.raises(wb.LaunchError, match="an array of int32"):
        wb.rk4(lambda t, x: x, 0.0, 0.1, wb.zeros(2, dtype=int))
    with pytest.raises(wb.LaunchError, match="whole number from 1"):
        wb.integrate(lambda k, x: None, x, 0)
    with pytest.raises(wb.LaunchError, match="share memory"):
        wb.integrate(lambda k, x, y: None, [x, x[:1]], 200)


# ---- loops


@pytest.mark.parametrize("method", [wb.velocity_verlet, wb.implicit_midpoint], ids=NAMES.get)
@pytest.mark.parametrize("budget", [None, 2])
def test_a_loop_that_keeps_few_copies_has_the_gradient_of_the_plain_one(method, budget):
    def run(looped):
        start, k = leaf(X0), leaf([K])
        step = steps_of(method, driven(k), 0.1)
        with wb.Tape() as tape:
            x, v = wb.clone(start), wb.zeros(2, dtype=F)
            if looped:
                wb.integrate(step, [x, v], 6, budget, progress=False)
            else:
                for n in range(6):
                    step(n, x, v)
        tape.backward(grads={x: wb.ones(2, dtype=F)})
        assert [e.kind for e in tape.events].count("loop") == (looped and budget is not None)
        return start.grad.numpy(), k.grad.numpy()

    for mine, plain in zip(run(True), run(False), strict=True):
        np.testing.assert_array_equal(mine, plain)
        assert plain.all()


def test_longer_loops_checkpoint_by_themselves():
    def run(steps, plainly):
        start, w = leaf(X0), leaf([K])
        step = steps_of(wb.symplectic_euler, linear(w), 0.02)
        with wb.Tape() as tape:
            x, v = wb.clone(start), wb.zeros(2, dtype=F)
            if plainly:
                for n in range(steps):
                    step(n, x, v)
            else:
                wb.integrate(step, [x, v], steps, progress=False)
        tape.backward(grads={x: wb.ones(2, dtype=F)})
        return tape, start.grad.numpy(), w.grad.numpy()

    tape, *mine = run(160, False)
    assert [e.kind for e in tape.events] == ["copy", "loop"]
    for a, b in zip(mine, run(160, True)[1:], strict=True):
        np.testing.assert_array_equal(a, b)


@wb.kernel
def swing(x: wb.array(dtype=F), v: wb.array(dtype=F), k: wb.array(dtype=F)):
    i = wb.tid()
    v[i] = v[i] - F(0.001) * k[i] * wb.sin(x[i])
    x[i] = x[i] + F(0.001) * v[i]


@pytest.mark.needs_cc
@pytest.mark.parametrize("backend", ["c"], indirect=True)  # it is about bytes: 20,000 launches
def test_twenty_thousand_steps_in_the_memory_of_a_hundred_and_fifty(backend):
    n, steps = 100, 20_000
    start, k = leaf(np.linspace(0, 1, n)), leaf(np.ones(n))
    with wb.Tape() as tape:
        x, v = wb.clone(start), wb.zeros(n, dtype=F)
        wb.integrate(lambda t, x, v: wb.launch(swing, n, [x, v, k]), [x, v], steps, progress=False)
    (loop,) = [e.loop for e in tape.events if e.kind == "loop"]
    assert 0 < loop.nbytes <= 150 * 2 * n * 8
    assert sum(data.nbytes for e in tape.events for data in e.kept) <= 2 * n * 8
    assert tape.memory().total <= 156 * 2 * n * 8


def test_without_a_tape_the_loop_just_runs(capfd):
    x = wb.ones(1, dtype=F)
    wb.integrate(lambda k, x: wb.rk4(lambda t, x: x * -1.0, 0.0, 0.01, x), x, 200, budget=3, progress=False)
    np.testing.assert_allclose(x.numpy(), np.exp(-2.0), rtol=1e-9)
    assert capfd.readouterr() == ("", "")
