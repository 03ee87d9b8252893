"""BDF2 and steps chosen by the error: orders, values beside SciPy and diffrax, gradients beside the exact solution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import RK45, solve_ivp

import workbench as wb
from tests.support.backends import BACKENDS

F = wb.float64
X0, K = np.array([0.4, -1.2]), 1.7


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


@wb.kernel
def pull(x: wb.array[F], v: wb.array[F], k: wb.array[F], t: F, dx: wb.array[F], dv: wb.array[F]):
    i = wb.tid()
    dx[i] = v[i]
    dv[i] = -k[0] * wb.sin(x[i]) + F(0.3) * wb.cos(t)


def pendulum(k):
    def rates(t, x, v):
        dx, dv = wb.zeros(x.shape, dtype=F), wb.zeros(x.shape, dtype=F)
        wb.launch(pull, x.size, [x, v, k, t], [dx, dv])
        return dx, dv

    return rates


def numbers(t, y, k=K):
    return np.concatenate([y[2:], -k * np.sin(y[:2]) + 0.3 * np.cos(t)])


def exact(end, x0=X0, k=K):
    start = np.concatenate([x0, np.zeros(2)])
    return solve_ivp(numbers, (0, end), start, "DOP853", args=(k,), rtol=1e-13, atol=1e-13).y[:, -1]


def leaf(values):
    return wb.array(np.array(values, float), dtype=F, requires_grad=True)


def by_bdf2(steps, end, x0=X0, k=K):
    start, stiff = leaf(x0), leaf([k])
    with wb.Tape(keep="all") as tape:
        x, v = wb.clone(start), wb.zeros(2, dtype=F)
        old = [wb.zeros(2, dtype=F), wb.zeros(2, dtype=F)]
        f, dt = pendulum(stiff), end / steps
        wb.integrate(lambda n, *s: wb.bdf2(f, n * dt, dt, *s, first=n == 0), [x, v, *old], steps, progress=False)
    return x, v, tape, (start, stiff)


def by_rk45(x0=X0, k=K, rtol=1e-10, end=2.0, keep="all"):
    start, stiff = leaf(x0), leaf([k])
    with wb.Tape(keep=keep) as tape:
        x, v = wb.clone(start), wb.zeros(2, dtype=F)
        times = wb.rk45(pendulum(stiff), 0.0, end, x, v, rtol=rtol, atol=rtol)
    return x, v, tape, (start, stiff), times


def differences(value, x0=X0, k=K, h=1e-6):
    """The gradient of value(x0, k) by both."""
    sides = [[value(x0 + s * h * e, k) for s in (1, -1)] for e in np.eye(2)]
    sides.append([value(x0, k + s * h) for s in (1, -1)])
    return np.array([(a - b) / (2 * h) for a, b in sides])


def test_the_error_of_bdf2_falls_by_the_square_of_the_step():
    true = exact(1.6)
    errors = []
    for steps in (32, 64):
        x, v, _, _ = by_bdf2(steps, 1.6)
        errors.append(np.abs(np.concatenate([x.numpy(), v.numpy()]) - true).max())
    np.testing.assert_allclose(np.log2(errors[0] / errors[1]), 2, atol=0.15)


def test_steps_of_bdf2_are_those_of_the_recursion_and_so_is_the_gradient():
    rate, dt, n = 1000.0, 0.5, 4
    a = leaf([rate])
    with wb.Tape() as tape:
        x, old = wb.ones(1, dtype=F), wb.zeros(1, dtype=F)
        for k in range(n):
            wb.bdf2(lambda t, x: x * a * -1.0, dt * k, dt, x, old, first=k == 0)
    tape.backward(x)

    def recursion(rate):
        before, now = 1.0, 1.0 / (1.0 + dt * rate)
        for _ in range(n - 1):
            before, now = now, (4 * now - before) / (3 + 2 * dt * rate)
        return now

    np.testing.assert_allclose(x.numpy(), [recursion(rate)], rtol=1e-9)
    np.testing.assert_allclose(a.grad.numpy(), [(recursion(1000.01) - recursion(999.99)) / 0.02], rtol=1e-6)
    assert abs(x.numpy()[0]) < 1e-6  # damped


def test_gradients_and_hessians_of_bdf2_are_those_of_differences():
    x, _, tape, (start, stiff) = by_bdf2(6, 0.9)
    tape.backward(x[:1])
    mine = np.append(start.grad.numpy(), stiff.grad.numpy())
    value = lambda x0, k: by_bdf2(6, 0.9, x0, k)[0].numpy()[0]  # noqa: E731
    np.testing.assert_allclose(mine, differences(value), rtol=1e-7, atol=1e-9)
    second = wb.hvp(tape, x[:1], {stiff: np.ones(1)})[stiff]
    h = 1e-3
    np.testing.assert_allclose(second, [(value(X0, K + h) - 2 * value(X0, K) + value(X0, K - h)) / h**2], rtol=1e-4)


def test_chosen_steps_are_those_of_scipy_and_keep_the_tolerance():
    for rtol in (1e-4, 1e-8):
        x, v, _, _, times = by_rk45(rtol=rtol, end=6.0)
        start = np.concatenate([X0, np.zeros(2)])
        theirs = solve_ivp(numbers, (0, 6.0), start, "RK45", args=(K,), rtol=rtol, atol=rtol)
        mine = np.concatenate([x.numpy(), v.numpy()])
        np.testing.assert_allclose(mine, theirs.y[:, -1], rtol=1e-12)
        np.testing.assert_allclose(times, theirs.t, rtol=1e-9)
        assert np.abs(mine - exact(6.0)).max() < 100 * rtol


def test_the_gradient_through_chosen_steps_is_that_of_the_solution():
    x, _, tape, (start, stiff), _ = by_rk45()
    tape.backward(x[:1])
    value = lambda x0, k: exact(2.0, x0, k)[0]  # noqa: E731
    np.testing.assert_allclose(
        np.append(start.grad.numpy(), stiff.grad.numpy()), differences(value, h=1e-5), rtol=1e-7, atol=1e-10
    )
    h = 1e-3
    second = (value(X0, K + h) - 2 * value(X0, K) + value(X0, K - h)) / h**2
    np.testing.assert_allclose(wb.hvp(tape, x[:1], {stiff: np.ones(1)})[stiff], [second], rtol=1e-4)


def stepped(times, y, k):
    """The steps of the pair at these times, by NumPy."""
    for t, h in zip(times, np.diff(times), strict=False):
        slopes = []
        for when, weights in zip((*RK45.C, 1.0), (*RK45.A, RK45.B), strict=True):
            at = y + h * sum((w * s for w, s in zip(weights, slopes, strict=False)), np.zeros(4))
            slopes.append(numbers(t + when * h, at, k))
        y = at
    return y


def test_the_gradient_is_exactly_that_of_the_steps_that_were_taken():
    x, _, tape, (start, stiff), times = by_rk45(rtol=1e-3)
    tape.backward(x[:1])
    value = lambda x0, k: stepped(times, np.concatenate([x0, np.zeros(2)]), k)[0]  # noqa: E731
    np.testing.assert_allclose(value(X0, K), x.numpy()[0], rtol=1e-14)
    np.testing.assert_allclose(
        np.append(start.grad.numpy(), stiff.grad.numpy()), differences(value), rtol=1e-8, atol=1e-10
    )


@wb.func
def _decay(x: wb.vec3, t: float):
    return -2.0 * t * x


def test_states_of_vectors_in_float32():
    start = wb.array(np.array([[1.0, 2.0, -1.0]]), dtype=wb.vec3, requires_grad=True)
    with wb.Tape() as tape:
        x = wb.clone(start)
        wb.rk45(lambda t, x: wb.map(_decay, x, t), 0.0, 1.0, x, rtol=1e-5)
    tape.backward(grads={x: wb.ones_like(x, requires_grad=False)})
    np.testing.assert_allclose(x.numpy(), np.exp(-1) * start.numpy(), rtol=1e-5)
    np.testing.assert_allclose(start.grad.numpy(), np.exp(-1), rtol=1e-5)


def test_many_chosen_steps_are_one_event_with_the_same_gradient():
    start = leaf([1.0])
    with wb.Tape() as tape:
        x = wb.clone(start)
        times = wb.rk45(lambda t, x: x * -1.0, 0.0, 2.0, x, rtol=1e-13, atol=1e-13)
    assert 151 < len(times) < 400 and [e.kind for e in tape.events if e.kind == "loop"]
    tape.backward(x)
    np.testing.assert_allclose([x.numpy()[0], start.grad.numpy()[0]], np.exp(-2.0), rtol=1e-12)


def test_what_cannot_be_integrated_is_refused():
    x = wb.ones(1, dtype=F)
    with pytest.raises(wb.LaunchError, match="The error stays too large") as refused:
        wb.rk45(lambda t, x: x * x, 0.0, 2.0, x, rtol=1e-6, atol=1e-6)  # 1 / (1 - t)
    assert refused.value.slug == "integrate" and x.list() == [1.0]
    with pytest.raises(wb.LaunchError, match="odd number"):
        wb.bdf2(lambda t, x: x, 0.0, 0.1, x)


@pytest.mark.parametrize("start, rate", [(np.nan, 1.0), (np.inf, 1.0), (1.0, np.nan), (1.0, np.inf)])
def test_what_is_not_finite_is_refused_in_no_time(start, rate):
    x = wb.full(1, start, dtype=F)
    with pytest.raises(wb.LaunchError, match=r"state or its rates are not finite(.|\n)*\[integrate\]"):
        wb.rk45(lambda t, x: x * rate, 0.0, 2.0, x)


@pytest.mark.parametrize(
    "times, tolerances", [((0.0, np.nan), {}), ((0.0, np.inf), {}), ((np.nan, 1.0), {}), ((0.0, 1.0), {"rtol": np.nan})]
)
def test_times_and_tolerances_are_finite(times, tolerances):
    x = wb.ones(1, dtype=F)
    with pytest.raises(wb.LaunchError, match=r"these are finite numbers(.|\n)*\[integrate\]"):
        wb.rk45(lambda t, x: x, *times, x, **tolerances)


def test_steps_go_backwards_too_and_nowhere():
    x = wb.ones(1, dtype=F)
    assert wb.rk45(lambda t, x: x, 1.0, 1.0, x) == [1.0, 1.0] and x.list() == [1.0]
    times = wb.rk45(lambda t, x: x, 1.0, 0.0, x, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(x.numpy(), [np.exp(-1.0)], rtol=1e-8)
    assert times[-1] == 0.0 and (np.diff(times) < 0).all()


def test_beside_diffrax():
    diffrax, jax = pytest.importorskip("diffrax"), pytest.importorskip("jax")
    with jax.enable_x64():
        import jax.numpy as jnp

        def f(t, y, k):
            return jnp.concatenate([y[2:], -k * jnp.sin(y[:2]) + 0.3 * jnp.cos(t)])

        def end(y, k):
            how = diffrax.PIDController(rtol=1e-10, atol=1e-10)
            term, solver = diffrax.ODETerm(f), diffrax.Dopri5()
            solved = diffrax.diffeqsolve(term, solver, 0.0, 2.0, 0.01, y, k, stepsize_controller=how, max_steps=4096)
            return solved.ys[-1][0]

        start = jnp.concatenate([X0, jnp.zeros(2)])
        value, (dy, dk) = jax.value_and_grad(end, (0, 1))(start, K)
        x, _, tape, (x0, stiff), _ = by_rk45()
        tape.backward(x[:1])
        np.testing.assert_allclose(x.numpy()[0], float(value), rtol=1e-9)
        np.testing.assert_allclose(x0.grad.numpy(), np.asarray(dy)[:2], rtol=1e-7)
        np.testing.assert_allclose(stiff.grad.numpy()[0], float(dk), rtol=1e-7)
