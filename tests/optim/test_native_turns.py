"""Solves whose product is nothing but launches: its launches become one list of native calls, all turns of `cg` one."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.optim import linear, operators

N = 37
RANDOM = np.random.default_rng(5)
numbers = wb.array(dtype=Any)


@wb.kernel
def chain(c: numbers, x: numbers, y: numbers, z: numbers, alpha: Any, beta: Any):
    """z = alpha A x + beta y, of springs c between neighbours, and 1 on the diagonal."""
    i = wb.tid()
    total = x[i]
    if i > 0:
        total += c[i - 1] * (x[i] - x[i - 1])
    if i + 1 < x.shape[0]:
        total += c[i] * (x[i] - x[i + 1])
    z[i] = alpha * total + beta * y[i]


@wb.kernel
def scaled(s: wb.array[wb.float64], x: wb.array[wb.float64], y: wb.array[wb.float64]):
    i = wb.tid()
    y[i] = s[0] * x[i]


def matrix(c: np.ndarray) -> np.ndarray:
    inner = c[: N - 1]
    made = np.eye(N) - np.diag(inner, 1) - np.diag(inner, -1)
    return made + np.diag(np.r_[inner, 0] + np.r_[0, inner])


class Springs:
    """An operator of launches that counts how often its product is asked for."""

    def __init__(self, c: wb.array):
        self.c, self.calls = c, 0
        self.A = linear.LinearOperator((N, N), c.dtype, "cpu", self.product, transposed=self.product)

    def product(self, x: Any, y: Any, z: Any, alpha: float, beta: float) -> None:
        self.calls += 1
        wb.launch(chain, N, [self.c, x, y, z, alpha, beta])


def springs(dtype: Any, **options: Any) -> tuple[Springs, wb.array, np.ndarray]:
    c = wb.array(RANDOM.uniform(0.5, 2.0, N), dtype=dtype, **options)
    b = RANDOM.normal(size=N)
    return Springs(c), wb.array(b, dtype=dtype, **options), np.linalg.solve(matrix(c.numpy().astype(float)), b)


SOLVES = [pytest.param(getattr(linear, name), id=name) for name in ("cg", "cr", "bicgstab")]
# the stand-in for CuPy makes no array of NumPy's, as the turns of gmres do
SOLVES.append(pytest.param(linear.gmres, id="gmres", marks=pytest.mark.host_memory))


@pytest.mark.parametrize("dtype", [wb.float32, wb.float64], ids=str)
@pytest.mark.parametrize("restart", [None, 7])
@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("solve", SOLVES)
def test_native_turns_are_those_of_python(solve, near, restart, dtype, backend):
    s, b, want = springs(dtype)
    M = linear.preconditioner(wb.array(matrix(s.c.numpy()), dtype=dtype)) if near else None
    tol = 1e-10 if dtype is wb.float64 else 1e-5
    guess = RANDOM.normal(size=N)
    x, y = (wb.array(guess, dtype=dtype) for _ in range(2))
    turns, residual, wanted = solve(s.A, b, x, tol=tol, M=M, restart=restart)
    calls = s.calls
    told: list[tuple] = []
    again = solve(s.A, b, y, tol=tol, M=M, restart=restart, callback=lambda *t: told.append(t), check_every=1)
    assert residual <= wanted and told
    assert abs(turns - again[0]) <= 1 and wanted == pytest.approx(again[2], rel=1e-5)
    np.testing.assert_allclose(x.numpy(), want, rtol=0, atol=30 * tol)
    np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=0, atol=30 * tol)
    assert calls == 1 or backend != "c"


def test_vectors_and_their_scalars_are_one_system(backend):
    s, b, want = springs(wb.float64)
    x = wb.zeros(N, dtype=wb.float64)
    assert linear.cg(s.A, b, x, tol=1e-12, maxiter=3)[0] == 3
    assert linear.cg(s.A, b, x, tol=1e-12)[0] > 3
    np.testing.assert_allclose(x.numpy(), want, atol=1e-10)
    assert linear.cg(s.A, wb.zeros(N, dtype=wb.float64), x.zero_())[0] == 0


def test_every_solve_sees_present_contents_and_present_arrays(backend):
    s, b, _ = springs(wb.float64)
    solver = linear.cg(s.A, b, wb.zeros(N, dtype=wb.float64), tol=1e-12, run=False)
    with wb.capture() as graph:
        solver()
    for change in (lambda c: s.c.assign(c), lambda c: setattr(s, "c", wb.array(c, dtype=wb.float64))):
        c = RANDOM.uniform(0.5, 2.0, N)
        change(c)
        want = np.linalg.solve(matrix(c), b.numpy())
        for run in (solver, graph.replay):
            solver.operands[2].zero_()
            run()
            np.testing.assert_allclose(solver.operands[2].numpy(), want, atol=1e-10)


@pytest.mark.parametrize("how", ["numpy", pytest.param("view", marks=pytest.mark.host_memory), "memory", "capture"])
def test_a_product_that_is_more_than_its_launches_is_made_by_python(how, backend):
    s, b, want = springs(wb.float64)
    half, between = wb.array([0.5], dtype=wb.float64), wb.zeros(N, dtype=wb.float64)
    seen = between.numpy()

    def product(x: Any, y: Any, z: Any, alpha: float, beta: float) -> None:
        target = wb.zeros(N, dtype=wb.float64) if how == "memory" else between
        if how == "numpy":
            target.assign(0.5 * x.numpy())
        else:
            wb.launch(scaled, N, [half, x, target])
        if how == "capture":
            with wb.capture():
                target.assign(target)
        if how == "view":
            seen[:] *= 2.0  # the launches alone are half of the operator
        else:
            wb.launch(scaled, N, [wb.array([2.0], dtype=wb.float64), target, target])
        wb.launch(chain, N, [s.c, target, y, z, alpha, beta])

    x = wb.zeros(N, dtype=wb.float64)
    linear.cg(linear.LinearOperator((N, N), wb.float64, "cpu", product), b, x, tol=1e-12)
    np.testing.assert_allclose(x.numpy(), want, atol=1e-10)


def test_a_capture_of_another_thread_is_left_alone(backend):
    s, b, want = springs(wb.float64)
    x, y = wb.zeros(N, dtype=wb.float64), wb.zeros(1, dtype=wb.float64)

    def solve() -> None:
        linear.cg(s.A, b, x, tol=1e-12)

    with wb.capture() as graph:
        y.fill_(1.0)
        other = threading.Thread(target=solve)
        other.start()
        other.join()
        y.fill_(2.0)
    assert len(graph.graph) == 2
    np.testing.assert_allclose(x.numpy(), want, atol=1e-10)


def test_an_index_outside_of_its_array_is_told(backend):
    @wb.kernel
    def beyond(n: int, x: wb.array[wb.float64], z: wb.array[wb.float64]):
        i = wb.tid()
        z[i] = x[i + n]

    far = [0]

    def product(x: Any, y: Any, z: Any, alpha: float, beta: float) -> None:
        wb.launch(beyond, 3, [far[0], x, z])

    A, b = linear.LinearOperator((3, 3), wb.float64, "cpu", product), wb.ones(3, dtype=wb.float64)
    assert linear.cg(A, b, wb.zeros(3, dtype=wb.float64))[0] == 1
    far[0] = 1
    with pytest.raises(wb.BoundsError, match="beyond"):
        linear.cg(A, b, wb.zeros(3, dtype=wb.float64))


@pytest.mark.parametrize("transposed", [True, False])
def test_gradients_and_their_products_are_those_of_differences(transposed, backend):
    s, b, _ = springs(wb.float64, requires_grad=True)
    if not transposed:
        s.A = linear.LinearOperator((N, N), wb.float64, "cpu", s.product)
    c0, b0, h = s.c.numpy().copy(), b.numpy().copy(), 1e-5
    along = RANDOM.normal(size=N)

    def slope(c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = np.linalg.solve(matrix(c), b0)
        back = np.linalg.solve(matrix(c), 2 * x)
        by_c = np.r_[-np.diff(back) * np.diff(x), 0.0]
        return by_c, back

    with wb.Tape(keep="all") as tape:
        x = wb.zeros(N, dtype=wb.float64)
        linear.cg(s.A, b, x, tol=1e-13)
        loss = wb.utils.array_inner(x, x, out=wb.zeros(1, dtype=wb.float64))
    tape.backward(loss)
    by_c, by_b = slope(c0)
    np.testing.assert_allclose(s.c.grad.numpy(), by_c, atol=1e-9)
    np.testing.assert_allclose(b.grad.numpy(), by_b, atol=1e-9)
    product = wb.hvp(tape, loss, {s.c: along})[s.c]
    want = (slope(c0 + h * along)[0] - slope(c0 - h * along)[0]) / (2 * h)
    np.testing.assert_allclose(product, want, atol=1e-6 * abs(want).max())


def test_a_replay_under_a_tape_differentiates_what_it_has_solved(backend):
    s, b, _ = springs(wb.float64, requires_grad=True)
    x, loss, first = wb.zeros(N, dtype=wb.float64), wb.zeros(1, dtype=wb.float64), s.c
    with wb.capture() as graph, wb.Tape() as tape:
        linear.cg(s.A, b, x, tol=1e-13)
        wb.utils.array_inner(x, x, out=loss.zero_())
        tape.backward(loss)
    for change in (lambda c: first.assign(c), lambda c: setattr(s, "c", wb.array(c, dtype=wb.float64))):
        change(RANDOM.uniform(0.5, 2.0, N))
        b.grad.zero_()
        first.grad.zero_()
        if s.c is not first and backend != "c":
            with pytest.raises(wb.GradientError, match="has changed since"):
                graph.replay()
            return
        graph.replay()
        # the launches of the capture, whatever `matvec` would launch now
        A = matrix(first.numpy())
        want = np.linalg.solve(A, b.numpy())
        turned = np.linalg.solve(A, 2.0 * want)
        np.testing.assert_allclose(x.numpy(), want, atol=1e-10)
        np.testing.assert_allclose(b.grad.numpy(), turned, atol=1e-9)
        np.testing.assert_allclose(first.grad.numpy()[:-1], np.diff(turned) * -np.diff(want), atol=1e-9)


@pytest.mark.parametrize("kind", ["scatter", "only z", "where not 0", "scratch"])
def test_products_that_ask_for_one_array_as_y_and_z_are_what_they_were(kind, backend):
    """They do not do what `matvec` promises for another y, or write their x: no native call takes y apart."""

    @wb.kernel
    def scatter(x: numbers, z: numbers):
        i = wb.tid()
        wb.atomic_add(z, i, 2.0 * x[i])

    @wb.kernel
    def only(x: numbers, z: numbers, alpha: Any, beta: Any):
        i = wb.tid()
        z[i] = alpha * 2.0 * x[i] + beta * z[i]

    @wb.kernel
    def sparing(x: numbers, y: numbers, z: numbers, alpha: Any, beta: Any):
        i = wb.tid()
        if x[i] != 0.0:
            z[i] = alpha * 2.0 * x[i] + beta * y[i]

    @wb.kernel
    def scratch(x: numbers, y: numbers, z: numbers, alpha: Any, beta: Any):
        i = wb.tid()
        x[i] = 2.0 * x[i]
        z[i] = alpha * x[i] + beta * y[i]

    def product(x: Any, y: Any, z: Any, alpha: float, beta: float) -> None:
        args = {"scatter": [x, z], "only z": [x, z, alpha, beta]}.get(kind, [x, y, z, alpha, beta])
        name = {"scatter": scatter, "only z": only, "where not 0": sparing, "scratch": scratch}[kind]
        wb.launch(name, 4, args)

    A = linear.LinearOperator((4, 4), wb.float64, "cpu", product, transposed=product)
    b = wb.array([1.0, 0.0, 3.0, 0.0], dtype=wb.float64, requires_grad=kind == "only z")
    x = wb.array([1.0, 1.0, 0.0, 1.0], dtype=wb.float64)
    with wb.Tape() as tape:
        linear.cg(A, b, x, tol=1e-12)
    np.testing.assert_allclose(x.numpy(), [0.5, 0.0, 1.5, 0.0], atol=1e-11)
    if kind == "only z":
        tape.backward(grads={x: wb.array([1.0, 2.0, 3.0, 4.0], dtype=wb.float64)})
        np.testing.assert_allclose(b.grad.numpy(), [0.5, 1.0, 1.5, 2.0], atol=1e-11)


@pytest.mark.parametrize("how", ["symmetric", "transposed", "walked"])
def test_an_operator_that_is_another_one_by_the_time_of_the_walk_has_no_wrong_gradient(how, backend):
    s, b, _ = springs(wb.float64, requires_grad=True)
    turned = {"symmetric": s.product, "transposed": lambda *a: s.product(*a), "walked": None}[how]
    A = linear.LinearOperator((N, N), wb.float64, "cpu", s.product, transposed=turned)
    first, x = s.c, wb.zeros(N, dtype=wb.float64)
    want = np.linalg.solve(matrix(first.numpy()), np.ones(N))
    with wb.Tape() as tape:
        linear.cg(A, b, x, tol=1e-13)
    s.c = wb.array(RANDOM.uniform(3.0, 4.0, N), dtype=wb.float64)
    if how == "symmetric" and backend == "c":  # its launches are known
        tape.backward(grads={x: wb.ones(N, dtype=wb.float64)})
        np.testing.assert_allclose(b.grad.numpy(), want, atol=1e-10)
        return
    with pytest.raises(wb.GradientError, match=r"LinearOperator (that has changed|whose `transposed` is not)"):
        tape.backward(grads={x: wb.ones(N, dtype=wb.float64)})
    s.c = first
    tape.backward(grads={x: wb.ones(N, dtype=wb.float64)})
    np.testing.assert_allclose(b.grad.numpy(), want, atol=1e-10)


def test_memory_that_a_product_leaves_its_numbers_in_does_not_spoil_an_adjoint(backend):
    s, b, want = springs(wb.float64, requires_grad=True)
    half = wb.array([0.5], dtype=wb.float64)
    between = wb.zeros(N, dtype=wb.float64)

    def product(x: Any, y: Any, z: Any, alpha: float, beta: float) -> None:
        wb.launch(scaled, N, [half, x, between])
        wb.launch(chain, N, [s.c, between, y, z, 2.0 * alpha, beta])

    A = linear.LinearOperator((N, N), wb.float64, "cpu", product)
    with wb.Tape() as tape:
        x = wb.zeros(N, dtype=wb.float64)
        linear.cg(A, b, x, tol=1e-13)
    np.testing.assert_allclose(x.numpy(), want, atol=1e-10)
    try:
        tape.backward(grads={x: wb.ones(N, dtype=wb.float64)})
    except wb.GradientError:
        return
    back = np.linalg.solve(matrix(s.c.numpy()), np.ones(N))
    np.testing.assert_allclose(b.grad.numpy(), back, atol=1e-10)
    np.testing.assert_allclose(s.c.grad.numpy(), np.r_[-np.diff(back) * np.diff(want), 0.0], atol=1e-9)


def test_what_has_not_converged_has_no_gradient(backend):
    s, b, _ = springs(wb.float64, requires_grad=True)
    x = wb.zeros(N, dtype=wb.float64)
    with wb.Tape() as tape:
        turns, residual, wanted = linear.cg(s.A, b, x, tol=1e-12, maxiter=2)
    assert turns == 2 and residual > wanted
    with pytest.raises(wb.GradientError, match="did not converge"):
        tape.backward(grads={x: wb.ones(N, dtype=wb.float64)})
    s.c.assign(np.full(N, np.nan))
    assert not linear.cg(s.A, b, x)[1] < np.inf


def test_generic_vectors_have_no_pattern():
    b = wb.zeros(4096, dtype=wb.float64)
    v = operators.generic(b)
    assert abs(v).max() <= 1 and abs(v.mean()) < 0.05 and len(set(v)) == 4096
    assert abs(np.corrcoef(v, operators.generic(b, 1779033703))[0, 1]) < 0.1
