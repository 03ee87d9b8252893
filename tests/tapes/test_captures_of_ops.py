"""Custom ops, solves and roots in captures and jit functions: each replay calls them again, rules and all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.optim import linear

F = wb.float64
STARTS = [np.array([0.5, -1.0, 2.0]), np.array([3.0, 1.0, 1.5]), np.array([-0.25, 0.75, 1.0])]
RANDOM = np.random.default_rng(3)
TURNED = RANDOM.normal(size=(3, 3))
D0 = 4 * np.eye(3) + 0.2 * (TURNED + TURNED.T)


@wb.custom_op
def sums(x, power):
    return np.cumsum(x) ** power


@sums.vjp
def sums_vjp(x, power, y, adj):
    return np.cumsum((adj * power * np.cumsum(x) ** (power - 1))[::-1])[::-1]


@wb.kernel
def stencil(
    c: wb.array[wb.float64],
    x: wb.array[wb.float64],
    y: wb.array[wb.float64],
    z: wb.array[wb.float64],
    alpha: wb.float64,
    beta: wb.float64,
):
    """z = alpha A x + beta y, of a matrix with c on the diagonal, and -1 above it."""
    i = wb.tid()
    total = (3.0 + c[i] * c[i]) * x[i]
    if i + 1 < x.shape[0]:
        total -= x[i + 1]
    z[i] = alpha * total + beta * y[i]


@wb.kernel
def cubes(x: wb.array[wb.float64], p: wb.array[wb.float64], r: wb.array[wb.float64]):
    i = wb.tid()
    r[i] = x[i] * x[i] * x[i] + x[i] - p[i]


def of_ops(x: wb.array) -> wb.array:
    return sums(2.0 * sums(x, 2), 3)


def of_entries(x: wb.array) -> wb.array:
    y = wb.zeros(3, dtype=F)
    linear.cg(wb.array(D0, dtype=F), x, y, tol=1e-14, M=linear.preconditioner(wb.array(D0, dtype=F)))
    direct = linear.lu if y.device.is_cpu else linear.cg
    direct(wb.array(D0, dtype=F), y * y, y, tol=1e-14)
    return y


def of_launches(x: wb.array) -> wb.array:
    y = wb.zeros(3, dtype=F)

    def product(*given: Any) -> None:
        wb.launch(stencil, 3, [x, *given])

    linear.bicgstab(linear.LinearOperator((3, 3), F, "cpu", product), wb.ones(3, dtype=F), y, tol=1e-14)
    return y


def residual(x: wb.array, p: wb.array) -> wb.array:
    r = wb.zeros(3, dtype=F)
    wb.launch(cubes, 3, [x, p, r])
    return r


def of_a_root(x: wb.array) -> wb.array:
    return wb.root(residual, wb.zeros(3, dtype=F), x * x)


def of_arrays(x: wb.array) -> wb.array:
    return wb.numerics.solve(wb.array(D0, dtype=F), wb.numerics.sort(x))


PROGRAMS = [of_ops, of_entries, of_launches, of_a_root]


def by_numpy(program: Callable, x: np.ndarray) -> np.ndarray:
    if program is of_ops:
        return np.cumsum(2 * np.cumsum(x) ** 2) ** 3
    if program is of_entries:
        return np.linalg.solve(D0, np.linalg.solve(D0, x) ** 2)
    if program is of_launches:
        return np.linalg.solve(np.diag(3 + x * x) - np.eye(3, k=1), np.ones(3))
    return np.array([next(r.real for r in np.roots([1, 0, 1, -p]) if abs(r.imag) < 1e-9) for p in x * x])


def loss_of(program: Callable, x: wb.array) -> wb.array:
    y = program(x)
    return wb.utils.array_inner(y, y, out=wb.zeros(1, dtype=F))


def wanted(program: Callable, x: np.ndarray) -> tuple[float, np.ndarray]:
    """The loss and its central differences."""

    def loss(v: np.ndarray) -> float:
        return float((by_numpy(program, v) ** 2).sum())

    h = 1e-5
    return loss(x), np.array([(loss(x + h * e) - loss(x - h * e)) / (2 * h) for e in np.eye(3)])


@pytest.mark.parametrize("scope", [wb.capture, wb.ScopedCapture])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_each_replay_of_a_capture_does_it_again_with_its_gradient(program, scope, backend):
    x, tape = wb.array(STARTS[0], dtype=F, requires_grad=True), wb.Tape()
    with scope() as made:
        tape.zero()
        with tape:
            loss = loss_of(program, x)
        tape.backward(loss)
    graph = made if scope is wb.capture else made.graph
    for start in (*STARTS, STARTS[0]):
        x.assign(start)
        graph.replay()
        value, slope = wanted(program, start)
        np.testing.assert_allclose(loss.numpy(), [value], rtol=1e-9)
        np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-6, atol=1e-6 * abs(slope).max())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_value_and_grad_replays_it(program):
    found = wb.value_and_grad(lambda x: loss_of(program, x), jit=True)
    for start in (*STARTS, *STARTS):
        value, slope = wanted(program, start)
        got, grad = found(wb.array(start, dtype=F))
        np.testing.assert_allclose(float(got), value, rtol=1e-9)
        np.testing.assert_allclose(np.asarray(grad), slope, rtol=1e-6, atol=1e-6 * abs(slope).max())
    assert found._run.replays >= 3


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_jit_function_without_a_tape_replays_it(program):
    run = wb.jit(program)
    for start in (*STARTS, *STARTS):
        np.testing.assert_allclose(run(wb.array(start, dtype=F)).numpy(), by_numpy(program, start), rtol=1e-9)
    assert run.replays >= 3


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_loops_and_sweeps_take_it(program):
    def step(k: int, x: wb.array) -> None:
        wb.copy(x, 0.1 * program(x) + x)

    def end(x: np.ndarray) -> float:
        for _ in range(3):
            x = 0.1 * by_numpy(program, x) + x
        return float((x * x).sum())

    start, h = np.array([0.3, -0.2, 0.5]), 1e-5
    slope = np.array([(end(start + h * e) - end(start - h * e)) / (2 * h) for e in np.eye(3)])
    for budget in (None, 2):
        first = wb.array(start, dtype=F, requires_grad=True)
        with wb.Tape() as tape:
            x = wb.clone(first)
            wb.integrate(step, x, 3, budget)
            loss = wb.utils.array_inner(x, x, out=wb.zeros(1, dtype=F))
        tape.backward(loss)
        np.testing.assert_allclose(loss.numpy(), [end(start)], rtol=1e-9)
        np.testing.assert_allclose(first.grad.numpy(), slope, rtol=1e-6)
    rows = wb.sweep(lambda v: program(wb.array(v, dtype=F)).numpy(), STARTS)
    np.testing.assert_allclose(rows, [by_numpy(program, v) for v in STARTS], rtol=1e-9)


def test_a_replay_uses_present_contents_of_what_an_op_reads_and_the_memory_of_its_results():
    x = wb.array(STARTS[0], dtype=F)
    with wb.capture() as graph:
        y = sums(x, 2)
        z = 3.0 * y
    held = z.ptr
    x.assign(STARTS[1])
    assert y.numpy()[0] == 0.25
    graph.replay()
    np.testing.assert_allclose(z.numpy(), 3 * np.cumsum(STARTS[1]) ** 2)
    assert z.ptr == held


def test_numerics_are_repeated():
    x, tape = wb.array(STARTS[0], dtype=F, requires_grad=True), wb.Tape()
    with wb.capture() as graph:
        tape.zero()
        with tape:
            y = of_arrays(x)
        tape.backward(grads={y: wb.ones(3, dtype=F)})
    for start in STARTS:
        x.assign(start)
        graph.replay()
        np.testing.assert_allclose(y.numpy(), np.linalg.solve(D0, np.sort(start)), rtol=1e-12)
        slope = np.empty(3)
        slope[np.argsort(start)] = np.linalg.solve(D0.T, np.ones(3))
        np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-12)


def test_what_a_replay_cannot_repeat_is_refused():
    x = wb.array(STARTS[0], dtype=F, requires_grad=True)

    @wb.custom_op
    def kept(v):
        return v[v > 0]

    with wb.capture() as graph:
        kept(x)
    x.assign(np.ones(3))
    with pytest.raises(wb.LaunchError, match="kept returned other shapes or types when it was called again"):
        graph.replay()

    @wb.custom_op
    def doubled(v):
        return 2.0 * v

    doubled.vjp(lambda v, y, adj: None if v[0] > 0 else 2.0 * adj)
    tape = wb.Tape()
    with wb.capture() as graph:
        with tape:
            y = doubled(x)
        tape.backward(grads={y: wb.ones(3, dtype=F)})
    x.assign(-np.ones(3))
    with pytest.raises(wb.GradientError, match="returned a gradient where it had returned None"):
        graph.replay()
    with pytest.raises(wb.LaunchError, match="check_every=0"), wb.capture(), wb.Tape():
        linear.cg(wb.array(D0, dtype=F), x, wb.zeros(3, dtype=F), check_every=0)


def test_a_solve_that_no_longer_converges_is_refused_in_the_replay():
    d, x = wb.array([1.0, 1.0, 1.0], dtype=F, requires_grad=True), wb.zeros(3, dtype=F)
    tape = wb.Tape()
    with wb.capture() as graph:
        with tape:
            linear.cg(d, wb.ones(3, dtype=F), x.zero_(), tol=1e-12, maxiter=1)
        tape.backward(grads={x: wb.ones(3, dtype=F)})
    np.testing.assert_allclose(d.grad.numpy(), -np.ones(3))
    d.assign([1.0, 5.0, 9.0])
    with pytest.raises(wb.GradientError, match="did not converge"):
        graph.replay()


def test_indices_that_an_op_finds_in_a_capture_are_refused_where_races_rest_on_them():
    order = wb.custom_op(lambda v: np.argsort(v).astype(np.int32))
    x, y = wb.array(STARTS[0], dtype=F, requires_grad=True), wb.zeros(3, dtype=F)

    @wb.kernel
    def pick(at: wb.array[int], x: wb.array[wb.float64], y: wb.array[wb.float64]):
        i = wb.tid()
        y[at[i]] = 2.0 * x[i]

    with pytest.raises(wb.LaunchError, match="indices"), wb.capture(), wb.Tape() as tape:
        wb.launch(pick, 3, [order(x), x, y])
        tape.backward(grads={y: wb.ones(3, dtype=F)})


def test_results_may_have_another_order_of_bytes():
    @wb.custom_op
    def doubled(x: np.ndarray) -> np.ndarray:
        return (2.0 * x).astype(">f4")

    @doubled.vjp
    def doubled_vjp(x: np.ndarray, y: np.ndarray, adj: np.ndarray) -> np.ndarray:
        return (2.0 * adj).astype(">f4")

    x = wb.array([1.0, 2.0], requires_grad=True)
    with wb.capture() as graph:
        with wb.Tape() as tape:
            y = doubled(x)
        tape.backward(grads={y: wb.ones(2)})
    x.assign([3.0, 4.0])
    x.grad.zero_()
    graph.replay()
    assert y.list() == [6.0, 8.0] and x.grad.list() == [2.0, 2.0]
