"""Roots and fixed points: values, gradients and Hessians beside closed forms and differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


@pytest.fixture(params=[wb.float32, wb.float64], ids=["float32", "float64"])
def scalar(request):
    return request.param


def kernels(F):
    @wb.kernel
    def powers(x: wb.array(dtype=F), p: wb.array(dtype=F), r: wb.array(dtype=F)):
        i = wb.tid()
        j = (i + 1) % x.shape[0]
        r[i] = x[i] * x[i] * x[i] + F(0.25) * x[j] - p[i]

    @wb.kernel
    def cosine(x: wb.array(dtype=F), p: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = wb.cos(p[i] * x[i])

    @wb.kernel
    def loss(x: wb.array(dtype=F), out: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_add(out, 0, x[i] * x[i] * F(i + 1))

    return powers, cosine, loss


KERNELS = {F: kernels(F) for F in (wb.float32, wb.float64)}
P = np.array([1.5, -0.75, 3.0])


def residual_of(F):
    def residual(x, p):
        r = wb.zeros(3, dtype=F)
        wb.launch(KERNELS[F][0], 3, [x, p, r])
        return r

    return residual


def solution(p):
    """By Newton's method in NumPy."""
    x = np.ones(3)
    for _ in range(60):
        r = x**3 + 0.25 * np.roll(x, -1) - p
        x = x - np.linalg.solve(np.diag(3 * x * x) + 0.25 * np.roll(np.eye(3), 1, 1), r)
    return x


def value(p):
    return float(np.sum(solution(p) ** 2 * np.array([1.0, 2.0, 3.0])))


def recorded(F, keep="needed"):
    p = wb.array(P, dtype=F, requires_grad=True)
    out = wb.zeros(1, dtype=F)
    with wb.Tape(keep=keep) as tape:
        x = wb.root(residual_of(F), wb.ones(3, dtype=F), p)
        wb.launch(KERNELS[F][2], 3, [x, out])
    return tape, p, x, out


def slope(h=1e-5):
    return np.array([(value(P + h * e) - value(P - h * e)) / (2 * h) for e in np.eye(3)])


def test_the_root_and_its_gradient(scalar):
    tape, p, x, out = recorded(scalar)
    close = 2e-5 if scalar == wb.float32 else 1e-12
    np.testing.assert_allclose(x.numpy(), solution(P), rtol=close)
    tape.backward(out)
    np.testing.assert_allclose(p.grad.numpy(), slope(), rtol=max(close, 1e-8))
    assert x.requires_grad is False and len(tape.events) == 6


def test_second_derivatives_are_those_of_the_solution(scalar):
    tape, p, _, out = recorded(scalar, "all")
    h = 1e-4
    eye = np.eye(3)
    wanted = [
        [
            (value(P + h * (a + b)) - value(P + h * (a - b)) - value(P - h * (a - b)) + value(P - h * (a + b)))
            / (4 * h * h)
            for b in eye
        ]
        for a in eye
    ]
    found = wb.hessian(tape, out, p)
    np.testing.assert_allclose(found, wanted, rtol=1e-3 if scalar == wb.float32 else 1e-5, atol=1e-5)
    v = np.array([0.3, -0.2, 1.0], p.numpy().dtype)
    np.testing.assert_allclose(wb.jvp(tape, {p: v})[out], slope() @ v, rtol=1e-4)


def test_without_a_tape_it_is_the_solution_alone(scalar):
    p = wb.array(P, dtype=scalar)
    x = wb.root(residual_of(scalar), wb.zeros(3, dtype=scalar) if scalar == wb.float64 else wb.ones(3), p)
    np.testing.assert_allclose(x.numpy(), solution(P), rtol=2e-5)


def test_a_fixed_point(scalar):
    """x = cos(p x): dx/dp = -x sin(p x) / (1 + p sin(p x))."""

    def step(x, p):
        y = wb.zeros(3, dtype=scalar)
        wb.launch(KERNELS[scalar][1], 3, [x, p, y])
        return y

    p = wb.array([0.5, 1.0, 1.3], dtype=scalar, requires_grad=True)
    with wb.Tape() as tape:
        x = wb.fixed_point(step, wb.full(3, 0.7, dtype=scalar), p)
    at, q = x.numpy().astype(np.float64), p.numpy().astype(np.float64)
    np.testing.assert_allclose(np.cos(q * at), at, atol=1e-6)
    tape.backward(grads={x: wb.ones(3, dtype=scalar)})
    np.testing.assert_allclose(p.grad.numpy(), -at * np.sin(q * at) / (1 + q * np.sin(q * at)), rtol=1e-5)


def test_it_is_refused_where_it_would_be_wrong(scalar):
    tape, p, _, out = recorded(scalar, "all")
    for again in (lambda: tape.replay({p: P + 1}), lambda: tape.trust(out, p)):
        with pytest.raises(wb.GradientError, match="a tape with a root cannot run again on other inputs"):
            again()
    np.testing.assert_array_equal(tape.replay()[out].numpy(), out.numpy())
    assert not [f for f in tape.diagnose(loss=out) if f.severity != "info" or f.slug == "detached"]


@wb.kernel
def nowhere(x: wb.array[float], p: wb.array[float], r: wb.array[float]):
    r[0] = x[0] * x[0] + p[0]


@wb.kernel
def square(x: wb.array[float], p: wb.array[float], r: wb.array[float]):
    r[0] = (x[0] - p[0]) * (x[0] - p[0])


def of(kernel, shape=1):
    def residual(x, p):
        r = wb.zeros(shape)
        wb.launch(kernel, 1, [x, p, r])
        return r

    return residual


def test_it_says_what_is_wrong():
    p = wb.array([1.0], requires_grad=True)
    with pytest.raises(wb.GradientError, match=r"did not converge in 20 iterations: the residual is") as refusal:
        wb.root(of(nowhere), wb.ones(1), p, maxiter=20)
    assert refusal.value.slug == "not-converged" and "wb.root(of(nowhere)" in str(refusal.value)
    with wb.Tape(), pytest.raises(wb.GradientError, match="singular at the solution"):
        wb.root(of(square), wb.ones(1), p)
    with pytest.raises(wb.LaunchError, match="the residual is float32 of shape"):
        wb.root(of(nowhere, 2), wb.ones(1), p)
    with pytest.raises(wb.LaunchError, match="as guess"):
        wb.root(of(nowhere), wb.ones(1, dtype=int), p)
    with pytest.raises(wb.LaunchError, match="takes a function"):
        wb.root(3, wb.ones(1), p)
    with pytest.raises(wb.LaunchError, match="3000 unknowns"):
        wb.root(of(nowhere), wb.ones(3000), p)


def test_an_implicit_step_in_a_time_loop():
    """Implicit midpoint of x' = -k x: x1 = x0 (1 - k h / 2) / (1 + k h / 2), and its derivative by k after 20 steps."""
    h = 0.1

    @wb.kernel
    def midpoint(x1: wb.array[wb.float64], x0: wb.array[wb.float64], k: wb.array[wb.float64], r: wb.array[wb.float64]):
        r[0] = x1[0] - x0[0] + k[0] * wb.float64(0.05) * (x0[0] + x1[0])

    def residual(x1, x0, k):
        r = wb.zeros(1, dtype=wb.float64)
        wb.launch(midpoint, 1, [x1, x0, k, r])
        return r

    k = wb.array([2.0], dtype=wb.float64, requires_grad=True)
    with wb.Tape(keep="all") as tape:
        x = wb.ones(1, dtype=wb.float64)
        for _ in range(20):
            x = wb.root(residual, wb.clone(x), x, k)

    def closed(q):
        return ((1 - q * h / 2) / (1 + q * h / 2)) ** 20

    tape.backward(x)
    np.testing.assert_allclose(x.numpy(), closed(2.0), rtol=1e-12)
    np.testing.assert_allclose(k.grad.numpy(), (closed(2 + 1e-6) - closed(2 - 1e-6)) / 2e-6, rtol=1e-7)
    second = (closed(2 + 1e-4) - 2 * closed(2.0) + closed(2 - 1e-4)) / 1e-8
    np.testing.assert_allclose(wb.hessian(tape, x, k), [[second]], rtol=1e-5)


def test_a_minimum_is_a_root_of_a_gradient():
    """The minimum of cosh(x - p) + x²/10 by p: its derivative is cosh(x - p) / (cosh(x - p) + 1/5)."""

    @wb.kernel
    def energy(x: wb.array[wb.float64], p: wb.array[wb.float64], e: wb.array[wb.float64]):
        i = wb.tid()
        wb.atomic_add(e, 0, wb.cosh(x[i] - p[i]) + wb.float64(0.1) * x[i] * x[i])

    def slope(x, p):
        start, e = wb.zeros(3, dtype=wb.float64, requires_grad=True), wb.zeros(1, dtype=wb.float64)
        wb.copy(start, x)
        with wb.Tape(keep="all") as inner:
            wb.launch(energy, 3, [start, p], [e])
        inner.backward(e)
        return start.grad

    p = wb.array([1.0, 2.0, 3.0], dtype=wb.float64, requires_grad=True)
    with wb.Tape() as tape:
        x = wb.root(slope, wb.ones(3, dtype=wb.float64), p)
    tape.zero()  # the inner tapes have published their gradients by p
    tape.backward(grads={x: np.ones(3)})
    c = np.cosh(x.numpy() - p.numpy())
    np.testing.assert_allclose(p.grad.numpy(), c / (c + 0.2), rtol=1e-9)


@wb.kernel
def valley(x: wb.array[Any], p: wb.array[Any], e: wb.array[Any]):
    i = wb.tid()
    wb.atomic_add(e, 0, wb.cosh(x[i] - p[i]) + x[i] * x[i] * x[i] * x[i] + x.dtype(0.1) * p[0] * x[i] * x[(i + 1) % 3])


def lowest(scalar):
    def objective(x, p):
        e = wb.zeros(1, dtype=scalar)
        wb.launch(valley, 3, [x, p], [e])
        return e

    return objective


def minimum(scalar, start):
    """The sum of the squares of the minimum of `valley`: (tape, p, x, loss)."""
    p, loss = wb.array(start, dtype=scalar, requires_grad=True), wb.zeros(1, dtype=scalar)
    with wb.Tape(keep="all") as tape:
        x = wb.minimize(lowest(scalar), wb.zeros(3, dtype=scalar), p)
        wb.utils.array_inner(x, x, out=loss)
    return tape, p, x, loss


def test_a_minimum_and_its_derivatives(scalar):
    tape, p, x, loss = minimum(scalar, P)
    at, q = x.numpy().astype(np.float64), P
    slope = np.sinh(at - q) + 4 * at**3 + 0.1 * q[0] * (np.roll(at, 1) + np.roll(at, -1))
    np.testing.assert_allclose(slope, 0, atol=1e-9 if scalar is wb.float64 else 1e-5)
    curvature = np.diag(np.cosh(at - q) + 12 * at**2) + 0.1 * q[0] * (1 - np.eye(3))
    mixed = -np.diag(np.cosh(at - q))
    mixed[:, 0] += 0.1 * (np.roll(at, 1) + np.roll(at, -1))
    exact = -np.linalg.solve(curvature, mixed)
    close = {"rtol": 1e-7} if scalar is wb.float64 else {"rtol": 2e-4, "atol": 1e-5}
    np.testing.assert_allclose(wb.jvp(tape, {p: P})[x], exact @ P, **close)
    hessian = wb.hessian(tape, loss, p)
    tape.backward(loss)
    np.testing.assert_allclose(p.grad.numpy(), 2 * at @ exact, **close)
    if scalar is wb.float64:
        moved = []
        for k in range(3):
            there = [minimum(scalar, P + s * 1e-5 * np.eye(3)[k]) for s in (1, -1)]
            for t, _, _, end in there:
                t.backward(end)
            moved.append((there[0][1].grad.numpy() - there[1][1].grad.numpy()) / 2e-5)
        np.testing.assert_allclose(hessian, moved, rtol=1e-5, atol=1e-7)


def test_a_minimum_touches_no_gradient_and_is_a_solution_without_a_tape():
    p = wb.array(P, dtype=wb.float64, requires_grad=True)
    x = wb.minimize(lowest(wb.float64), wb.zeros(3, dtype=wb.float64), p)
    np.testing.assert_allclose(x.numpy(), minimum(wb.float64, P)[2].numpy(), atol=1e-9)
    with wb.Tape():
        wb.minimize(lowest(wb.float64), wb.zeros(3, dtype=wb.float64), p)
    assert not p.grad.numpy().any()


@wb.kernel
def saddle(x: wb.array[float], p: wb.array[float], e: wb.array[float]):
    e[0] = p[0] * x[0] * x[0] - x[1] * x[1] * x[1] * x[1]


@wb.kernel
def gutter(x: wb.array[float], p: wb.array[float], e: wb.array[float]):
    e[0] = p[0] * (x[0] - x[1]) * (x[0] - x[1])


@wb.kernel
def slide(x: wb.array[float], p: wb.array[float], e: wb.array[float]):
    e[0] = p[0] * x[0]


def test_what_is_no_minimum_is_refused():
    p = wb.array([1.0], requires_grad=True)
    for kernel in (saddle, gutter):
        with pytest.raises(wb.GradientError, match="no minimum") as refused:
            wb.minimize(of(kernel), wb.zeros(2), p)
        assert refused.value.slug == "not-a-minimum"
    with pytest.raises(wb.GradientError, match=r"minimize\(\) did not converge") as refused:
        wb.minimize(of(slide), wb.zeros(1), p)
    assert refused.value.slug == "not-converged"


def test_what_the_objective_reads_with_a_gradient_is_an_argument():
    p = wb.array([1.0], requires_grad=True)
    with pytest.raises(wb.GradientError, match="reads p, which has a gradient") as refused:
        wb.minimize(lambda x: of(square)(x, p), wb.ones(1))
    assert refused.value.slug == "unused-argument"
    assert p.grad is None or not p.grad.numpy().any()


@wb.kernel
def pulled(x: wb.array[wb.vec2d], p: wb.array[wb.vec2d], e: wb.array[wb.float64]):
    i = wb.tid()
    d = x[i] - p[i]
    wb.atomic_add(e, 0, wb.cosh(d[0]) + d[1] * d[1] + 0.5 * x[i][0] * x[i][0] * x[i][1])


@wb.kernel
def pull_of(x: wb.array[wb.vec2d], p: wb.array[wb.vec2d], r: wb.array[wb.vec2d]):
    i = wb.tid()
    d = x[i] - p[i]
    r[i] = wb.vec2d(wb.sinh(d[0]) + x[i][0] * x[i][1], 2.0 * d[1] + 0.5 * x[i][0] * x[i][0])


def test_unknowns_may_be_vectors():
    """The minimum of an energy and the root of its gradient, by the same parameters: one gradient."""

    def objective(x, p):
        e = wb.zeros(1, dtype=wb.float64)
        wb.launch(pulled, 3, [x, p], [e])
        return e

    def residual(x, p):
        r = wb.zeros(3, dtype=wb.vec2d)
        wb.launch(pull_of, 3, [x, p], [r])
        return r

    places, found = np.linspace(0.2, 0.9, 6).reshape(3, 2), []
    for solve, function in ((wb.minimize, objective), (wb.root, residual)):
        p = wb.array(places, dtype=wb.vec2d, requires_grad=True)
        with wb.Tape() as tape:
            x = solve(function, wb.zeros(3, dtype=wb.vec2d), p)
        tape.backward(grads={x: wb.array(np.arange(6.0).reshape(3, 2), dtype=wb.vec2d)})
        assert x.shape == (3,) and x.dtype == wb.vec2d
        found.append((x.numpy(), p.grad.numpy()))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-9)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-7)
    for k, (x, q) in enumerate(zip(found[0][0], places, strict=True)):
        d = x - q
        curvature = np.array([[np.cosh(d[0]) + x[1], x[0]], [x[0], 2.0]])
        exact = np.linalg.solve(curvature, np.array([2.0 * k, 2.0 * k + 1])) * [np.cosh(d[0]), 2.0]
        np.testing.assert_allclose(found[0][1][k], exact, rtol=1e-7)
    with pytest.raises(wb.LaunchError, match="float32 or float64"):
        wb.root(residual, wb.zeros(3, dtype=wb.float16), wb.zeros(3))


@wb.kernel
def along_a_line(x: wb.array[Any], p: wb.array[Any], r: wb.array[Any]):
    t = x.dtype(0.3) * x[0] + x.dtype(0.7) * x[1] - p[0]
    r[0] = x.dtype(0.3) * t
    r[1] = x.dtype(0.7) * t


def test_a_minimum_under_a_tape_in_a_capture_is_a_root_of_its_gradient(scalar):
    @wb.kernel
    def energy(x: wb.array[Any], p: wb.array[Any], e: wb.array[Any]):
        e[0] = wb.cosh(x[0] - p[0] * p[0])

    @wb.kernel
    def slope(x: wb.array[Any], p: wb.array[Any], r: wb.array[Any]):
        r[0] = wb.sinh(x[0] - p[0] * p[0])

    def of(kernel):
        def function(x, p):
            made = wb.zeros(1, dtype=scalar)
            wb.launch(kernel, 1, [x, p, made])
            return made

        return function

    p, guess = wb.array([1.1], dtype=scalar, requires_grad=True), wb.ones(1, dtype=scalar)
    with pytest.raises(wb.LaunchError, match=r"(?s)minimize\(\) under a tape.*wb.root"), wb.capture(), wb.Tape():
        wb.minimize(of(energy), guess, p)
    with wb.capture() as graph, wb.Tape() as tape:
        x = wb.root(of(slope), guess, p)
        tape.backward(x)
    p.assign([0.7])
    p.grad.zero_()
    graph.replay()
    np.testing.assert_allclose([x.item(), p.grad.item()], [0.49, 1.4], rtol=1e-5)


@pytest.mark.parametrize("start", [[0.0, 0.0], [0.1, 0.9], [5.0, 3.1]])
def test_one_of_many_roots_has_no_gradient_though_rounding_makes_its_matrix_regular(scalar, start):
    p = wb.array([1.1], dtype=scalar, requires_grad=True)

    def residual(x, p):
        r = wb.zeros(2, dtype=scalar)
        wb.launch(along_a_line, 1, [x, p, r])
        return r

    with wb.Tape(), pytest.raises(wb.GradientError) as refused:
        wb.root(residual, wb.array(start, dtype=scalar), p)
    assert refused.value.slug == "singular"


def test_a_gutter_of_minima_is_refused_wherever_one_starts(scalar):
    @wb.kernel
    def gutter(x: wb.array[Any], p: wb.array[Any], e: wb.array[Any]):
        t = x.dtype(0.3) * x[0] + x.dtype(0.7) * x[1] - p[0]
        e[0] = t * t

    def objective(x, p):
        e = wb.zeros(1, dtype=scalar)
        wb.launch(gutter, 1, [x, p], [e])
        return e

    p = wb.array([1.1], dtype=scalar, requires_grad=True)
    for start in np.random.default_rng(1).normal(size=(8, 2)):
        with pytest.raises(wb.GradientError) as refused:
            wb.minimize(objective, wb.array(start, dtype=scalar), p)
        assert refused.value.slug == "not-a-minimum"


@wb.kernel
def logarithm(x: wb.array[wb.float64], r: wb.array[wb.float64]):
    r[0] = wb.log(x[0]) + wb.float64(1.0)


@wb.kernel
def square_root(x: wb.array[wb.float64], r: wb.array[wb.float64]):
    r[0] = wb.sqrt(x[0]) + x[0] - wb.float64(1.0)


@pytest.mark.parametrize("start", [-1.0, 0.0, np.nan, np.inf])
@pytest.mark.parametrize("kernel", [logarithm, square_root], ids=lambda kernel: kernel.key)
def test_where_nothing_is_finite_no_root_is_looked_for(kernel, start):
    def residual(x):
        r = wb.zeros(1, dtype=wb.float64)
        wb.launch(kernel, 1, [x, r])
        return r

    with pytest.raises(wb.GradientError, match=r"in 0 iterations(.|\n)*not finite(.|\n)*\[not-converged\]"):
        wb.root(residual, wb.array([start], dtype=wb.float64))
    want = np.exp(-1.0) if kernel is logarithm else ((np.sqrt(5.0) - 1.0) / 2.0) ** 2
    assert wb.root(residual, wb.array([0.5], dtype=wb.float64)).list() == [pytest.approx(want)]
