"""Optimizers take the steps of their definitions, and solvers solve, with the gradient of the solution."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench import sparse
from workbench.optim import linear

RANDOM = np.random.default_rng(3)
SOLVERS = [linear.cg, linear.cr, linear.bicgstab, linear.gmres]


def adam_steps(x, grads, lr, b1, b2, eps):
    m = v = np.zeros_like(x)
    for t, g in enumerate(grads, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        x = x - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
    return x


@pytest.mark.parametrize("dtype", [wb.float32, wb.float64, wb.vec3, wb.mat22d, wb.float16], ids=str)
def test_adam_takes_the_steps_of_its_definition(dtype):
    x0, grads = RANDOM.normal(size=(4, *dtype.shape)), RANDOM.normal(size=(3, 4, *dtype.shape))
    x = wb.array(x0, dtype=dtype)
    optimizer = wb.optim.Adam([x], lr=0.1, betas=(0.8, 0.95))
    for g in grads:
        optimizer.step([wb.array(g, dtype=dtype)])
    assert optimizer.t == 3
    bound = {16: 5e-3, 32: 1e-5, 64: 1e-14}[dtype.scalar.bits]
    np.testing.assert_allclose(x.numpy(), adam_steps(x0, grads, 0.1, 0.8, 0.95, 1e-8), rtol=bound, atol=bound)
    optimizer.reset_internal_state()
    assert optimizer.t == 0


@pytest.mark.needs_warp
@pytest.mark.parametrize("how", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
                                 {"momentum": 0.5, "dampening": 0.3}])  # fmt: skip
def test_sgd_takes_the_steps_of_warp_s(how):
    import warp as wp
    import warp.optim

    x0, grads = RANDOM.normal(size=5), RANDOM.normal(size=(3, 5))
    ours, theirs = wb.array(x0, dtype=float), wp.array(x0, dtype=float, device="cpu")
    mine, other = wb.optim.SGD([ours], lr=0.1, **how), warp.optim.SGD([theirs], lr=0.1, **how)
    for g in grads:
        mine.step([wb.array(g, dtype=float)])
        other.step([wp.array(g, dtype=float, device="cpu")])
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)


def test_a_training_step_is_captured_with_its_optimizer():
    x, loss = wb.array([3.0, -2.0], requires_grad=True), wb.zeros(1, requires_grad=True)
    optimizer, tape = wb.optim.Adam([x], lr=0.1), wb.Tape()
    y = wb.array([3.0, -2.0])
    with wb.capture() as graph:
        tape.reset()
        with tape:
            wb.utils.array_inner(x, x, out=loss)
        tape.backward(loss)
        optimizer.step([x.grad])
        tape.zero()
    twin = wb.optim.Adam([y], lr=0.1)
    twin.step([wb.array(2 * y.numpy())])
    for _ in range(5):
        graph.replay()
        twin.step([wb.array(2 * y.numpy())])
    assert optimizer.t == 6
    np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-6)


def test_gradients_that_do_not_fit_are_refused():
    x = wb.ones(3)
    with pytest.raises(wb.LaunchError, match=r"\[optimizer\]"):
        wb.optim.Adam().step([x])
    with pytest.raises(wb.LaunchError, match=r"shape \(2,\)(.|\n)*\[optimizer\]"):
        wb.optim.SGD([x]).step([wb.ones(2)])
    with pytest.raises(wb.LaunchError, match=r"\[dtype\]"):
        wb.optim.Adam([wb.zeros(2, dtype=int)])


def matrix(n, symmetric=True):
    made = RANDOM.normal(size=(n, n)) * 0.3
    return made @ made.T + n * np.eye(n) if symmetric else made + 2 * np.eye(n)


@pytest.mark.parametrize("solve", SOLVERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", ["dense", "sparse", "preconditioned", "blocks"])
def test_solutions_are_those_of_numpy(solve, kind):
    n, D = 12, matrix(12)
    A = wb.array(D, dtype=wb.float64)
    if kind != "dense":
        size = 2 if kind == "blocks" else 1
        at = np.divmod(np.arange((n // size) ** 2), n // size)
        blocks = D.reshape(n // size, size, n // size, size).transpose(0, 2, 1, 3).reshape(-1, size, size)
        values = wb.array(blocks if size > 1 else blocks.reshape(-1), dtype=wb.mat22d if size > 1 else wb.float64)
        A = sparse.bsr_from_triplets(
            n // size, n // size, wb.array(at[0], dtype=int), wb.array(at[1], dtype=int), values
        )
    M = linear.preconditioner(A) if kind == "preconditioned" else None
    b = RANDOM.normal(size=n)
    x = wb.zeros(n, dtype=wb.float64)
    turns, residual, wanted = solve(A, wb.array(b, dtype=wb.float64), x, tol=1e-10, maxiter=50, M=M)
    assert 0 < turns <= 50 and residual <= wanted <= 1.0001e-10 * np.linalg.norm(b)
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(D, b), rtol=1e-8)


@pytest.mark.parametrize("solve", SOLVERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_gradient_of_a_solution_by_its_matrix_and_right_side(solve, kind):
    n = 6
    D, b = matrix(n), RANDOM.normal(size=n)
    at = [wb.array(k, dtype=int) for k in np.divmod(np.arange(n * n), n)]
    values = wb.array(D if kind == "dense" else D.reshape(-1), dtype=wb.float64, requires_grad=True)
    rhs, seed = wb.array(b, dtype=wb.float64, requires_grad=True), RANDOM.normal(size=n)
    with wb.Tape() as tape:
        A = values if kind == "dense" else sparse.bsr_from_triplets(n, n, *at, values)
        x = wb.zeros(n, dtype=wb.float64)
        scaled = 2.0 * rhs
        solve(A, scaled, x, tol=1e-12, maxiter=60)
        y = 3.0 * x
    tape.backward(grads={y: wb.array(seed, dtype=wb.float64)})
    adjoint = np.linalg.solve(D.T, 3 * seed)
    np.testing.assert_allclose(rhs.grad.numpy(), 2 * adjoint, rtol=1e-8)
    want = -np.outer(adjoint, np.linalg.solve(D, 2 * b))
    np.testing.assert_allclose(values.grad.numpy().reshape(n, n), want, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("solve", [linear.bicgstab, linear.gmres], ids=lambda f: f.__name__)
def test_systems_that_are_not_symmetric(solve):
    D, b = matrix(9, symmetric=False), RANDOM.normal(size=9)
    x, seed = wb.zeros(9, dtype=wb.float64), RANDOM.normal(size=9)
    rhs = wb.array(b, dtype=wb.float64, requires_grad=True)
    with wb.Tape() as tape:
        solve(wb.array(D, dtype=wb.float64), rhs, x, tol=1e-11, maxiter=90)
    tape.backward(grads={x: wb.array(seed, dtype=wb.float64)})
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(D, b), rtol=1e-7)
    np.testing.assert_allclose(rhs.grad.numpy(), np.linalg.solve(D.T, seed), rtol=1e-7)


def test_an_operator_of_functions_has_no_adjoint():
    def product(x, y, z, alpha, beta):
        z.assign(alpha * x.numpy() + beta * y.numpy())

    A, b = linear.LinearOperator((3, 3), wb.float32, "cpu", product), wb.ones(3, requires_grad=True)
    with wb.Tape(), pytest.raises(wb.GradientError, match=r"LinearOperator(.|\n)*\[linear\]"):
        linear.cg(A, b, wb.zeros(3))


def test_what_is_overwritten_after_a_solve_does_not_change_its_gradient():
    D, b, seed = matrix(5), RANDOM.normal(size=5), RANDOM.normal(size=5)
    A, rhs = wb.array(D, dtype=wb.float64, requires_grad=True), wb.array(b, dtype=wb.float64, requires_grad=True)
    with wb.Tape() as tape:
        B, x = wb.clone(A), wb.clone(rhs)
        linear.cg(B, x, x, tol=1e-13, maxiter=40)  # the right side is overwritten by the solution
        y = wb.clone(x)
        B.fill_(7.0)
        x.fill_(5.0)
    tape.backward(grads={y: wb.array(seed, dtype=wb.float64)})
    adjoint = np.linalg.solve(D.T, seed)
    np.testing.assert_allclose(rhs.grad.numpy(), adjoint, rtol=1e-9)
    np.testing.assert_allclose(A.grad.numpy(), -np.outer(adjoint, np.linalg.solve(D, b)), rtol=1e-8)


def test_an_adjoint_that_does_not_converge_is_refused():
    D = np.diag([1.0, 10.0, 100.0, 1000.0])
    A, b = wb.array(D, dtype=wb.float64), wb.array([1.0, 0.0, 0.0, 0.0], dtype=wb.float64, requires_grad=True)
    with wb.Tape() as tape:
        x = wb.zeros(4, dtype=wb.float64)
        linear.cg(A, b, x, tol=1e-10, maxiter=2)
    with pytest.raises(wb.GradientError, match=r"did not converge(.|\n)*\[linear\]"):
        tape.backward(grads={x: wb.ones(4, dtype=wb.float64)})


def test_the_gradient_of_an_iterate_that_is_no_solution_is_refused():
    A = wb.array(np.diag([1.0, 10.0, 100.0, 1000.0]), dtype=wb.float64)
    b = wb.array([1.0, 1.0, 1.0, 1.0], dtype=wb.float64, requires_grad=True)
    with wb.Tape() as tape:
        x = wb.zeros(4, dtype=wb.float64)
        linear.cg(A, b, x, tol=1e-10, maxiter=2)
    seed = wb.array([1.0, 0.0, 0.0, 0.0], dtype=wb.float64)  # of an eigenvector: its own solve takes one turn
    with pytest.raises(wb.GradientError, match=r"the solve of (.|\n)*did not converge(.|\n)*\[linear\]"):
        tape.backward(grads={x: seed})


@pytest.mark.parametrize(("dtype", "how"), [(wb.float64, {"atol": 1e-8}), (wb.float64, {}), (wb.float32, {})])
@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e20])
def test_the_gradient_of_a_solve_is_linear_in_its_seed(dtype, how, size):
    A, seed = matrix(4), np.array([1.0, -0.5, 0.25, 2.0])
    b = wb.array(np.ones(4), dtype=dtype, requires_grad=True)
    with wb.Tape() as tape:
        x = wb.zeros(4, dtype=dtype)
        linear.cg(wb.array(A, dtype=dtype), b, x, maxiter=40, **how)
    tape.backward(grads={x: wb.array(seed * size, dtype=dtype)})
    np.testing.assert_allclose(b.grad.numpy() / size, np.linalg.solve(A.T, seed), rtol=1e-4, atol=1e-6)
