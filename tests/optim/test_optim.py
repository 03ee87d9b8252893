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
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"momentum": 0.5, "dampening": 0.3},
    ],
)
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
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(D, b), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("solve", SOLVERS, ids=lambda f: f.__name__)
def test_the_answer_may_lie_in_the_right_side_or_in_the_matrix(solve):
    """A method that begins anew reads both again."""
    D, b = matrix(5), RANDOM.normal(size=5)
    want = np.linalg.solve(D, b)
    how = {} if solve is linear.bicgstab else {"restart": 1}
    for more in ({}, how):
        x = wb.array(b, dtype=wb.float64)
        solve(wb.array(D, dtype=wb.float64), x, x, tol=1e-12, maxiter=200, **more)
        np.testing.assert_allclose(x.numpy(), want, rtol=1e-8)
        A = wb.array(D, dtype=wb.float64)
        solve(A, wb.array(b, dtype=wb.float64), A[2], tol=1e-12, maxiter=200, **more)
        np.testing.assert_allclose(A[2].numpy(), want, rtol=1e-8)


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


@pytest.mark.parametrize("solver", [*SOLVERS, linear.lu])
@pytest.mark.parametrize("shape", [(2, 2), (4, 4), (3, 2), (2, 3), (1,), (4,)])
def test_matrices_of_other_shapes_are_refused(solver, shape):
    b, square, other = wb.ones(3), wb.array(np.eye(3, dtype=np.float32)), wb.ones(shape)
    with pytest.raises(wb.LaunchError, match=r"A has the shape .*b has 3 numbers(.|\n)*\(3, 3\)(.|\n)*\[linear\]"):
        solver(other, b, wb.zeros(3))
    with pytest.raises(wb.LaunchError, match=r"M has the shape"):
        solver(square, b, wb.zeros(3), M=other)
    with pytest.raises(wb.LaunchError, match=r"A has the shape \(2, 2\)"):
        solver(sparse.bsr_identity(2, float), b, wb.zeros(3))


def test_an_adjoint_that_does_not_converge_is_refused():
    D = np.diag([1.0, 10.0, 100.0, 1000.0])
    A, b = wb.array(D, dtype=wb.float64), wb.array([1.0, 0.0, 0.0, 0.0], dtype=wb.float64, requires_grad=True)
    with wb.Tape() as tape:
        x = wb.zeros(4, dtype=wb.float64)
        linear.cg(A, b, x, tol=1e-10, maxiter=2)
    with pytest.raises(wb.GradientError, match=r"did not converge(.|\n)*linear.cg\(A, b(.|\n)*\[linear\]"):
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


def blocks_of(D, size=2):
    n = len(D) // size
    at = [wb.array(k, dtype=int) for k in np.divmod(np.arange(n * n), n)]
    values = D.reshape(n, size, n, size).transpose(0, 2, 1, 3).reshape(-1, size, size)
    return sparse.bsr_from_triplets(n, n, *at, wb.array(values, dtype=wb.types.matrix((size, size), wb.float64)))


@pytest.mark.parametrize("solve", SOLVERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("check_every", [0, 3])
def test_a_solve_in_a_capture_is_made_again_by_each_replay(solve, check_every):
    D = matrix(6)
    A, b, x = blocks_of(D), wb.zeros(6, dtype=wb.float64), wb.zeros(6, dtype=wb.float64)
    y = wb.zeros(6, dtype=wb.float64)
    with wb.ScopedCapture() as scope:
        M = linear.preconditioner(A, "block_jacobi_direct")
        x.zero_()
        said = solve(A, b, x, M=M, check_every=check_every)
        wb.copy(y, x)
    for turn in range(1, 3):
        A.values.assign(blocks_of(turn * D).values)
        b.assign(RANDOM.normal(size=6))
        wb.capture_launch(scope.graph)
        np.testing.assert_allclose(y.numpy(), np.linalg.solve(turn * D, b.numpy()), rtol=1e-8)
        if check_every == 0:
            turns, residual, wanted = (a.item() for a in said)
            assert turns > 0 and residual <= wanted


def test_a_tape_sees_what_a_replayed_solve_writes():
    A, b = wb.array(matrix(3), dtype=wb.float64), wb.ones(3, dtype=wb.float64)
    x = wb.zeros(3, dtype=wb.float64, requires_grad=True)
    with wb.capture() as graph:
        linear.cg(A, b, x)
    with wb.Tape() as tape:
        y = x * x
    b.fill_(5.0)
    graph.replay()
    with pytest.raises(wb.GradientError, match=r"cg\(\)"):
        tape.backward(grads={y: wb.ones(3, dtype=wb.float64)})


@pytest.mark.parametrize(
    "kind", ["diag", "diag_abs", "block_jacobi_direct", "block_jacobi_sequential", "block_jacobi_tile"]
)
def test_a_preconditioner_is_the_inverse_of_the_blocks_on_the_diagonal(kind):
    D = matrix(6, symmetric=False)
    D[2:4] = 0.0  # a block without an inverse stays as it is
    D[0, 0] = -3.0
    A, r = blocks_of(D), RANDOM.normal(size=6)
    M, z = linear.preconditioner(A, kind), wb.zeros(6, dtype=wb.float64)
    M.matvec(wb.array(r, dtype=wb.float64), z, z, 1.0, 0.0)
    want = np.zeros((6, 6))
    if kind.startswith("block"):
        for k in (0, 2, 4):
            want[k : k + 2, k : k + 2] = np.eye(2) if k == 2 else np.linalg.inv(D[k : k + 2, k : k + 2])
    else:
        d = np.diagonal(D)
        want = np.diag(1 / np.where(d == 0, 1, np.abs(d) if kind == "diag_abs" else d))
    np.testing.assert_allclose(z.numpy(), want @ r, rtol=1e-12)
    with pytest.raises(wb.LaunchError, match=r"\[linear\]"):
        linear.preconditioner(wb.array(D, dtype=wb.float64), "block_jacobi_tile")
    with pytest.raises(wb.LaunchError, match=r"\[linear\]"):
        linear.preconditioner(A, "jacobi")


@pytest.mark.parametrize("solve", SOLVERS, ids=lambda f: f.__name__)
def test_a_callback_is_told_the_first_turn_some_between_and_the_last(solve):
    A, b, x = wb.array(matrix(20), dtype=wb.float64), wb.ones(20, dtype=wb.float64), wb.zeros(20, dtype=wb.float64)
    seen = []
    turns, residual, wanted = solve(
        A, b, x, callback=lambda *said: seen.append(said), check_every=3, use_cuda_graph=True
    )
    assert [s[0] for s in seen] == [*range(0, turns, 3), turns] and seen[-1][2] == wanted >= residual


@wb.kernel
def note(turn: wb.array[int], residual: wb.array[wb.float64], wanted: wb.array[wb.float64]):
    turn[0] = turn[0] + 100


def test_without_checks_on_the_host_the_callback_is_a_kernel():
    A, b, x = wb.array(matrix(4), dtype=wb.float64), wb.ones(4, dtype=wb.float64), wb.zeros(4, dtype=wb.float64)
    turns, residual, wanted = linear.cg(A, b, x, callback=note, check_every=0)
    assert turns.item() > 100 and residual.item() <= wanted.item()


@pytest.mark.parametrize("name", ["cg", "cr", "bicgstab", "gmres"])
def test_a_solver_is_called_again_with_other_operands(name):
    D, b = matrix(5), RANDOM.normal(size=(2, 5))
    rhs, x = [wb.array(v, dtype=wb.float64) for v in b], [wb.zeros(5, dtype=wb.float64) for _ in range(2)]
    solver = getattr(linear, name)(wb.array(D, dtype=wb.float64), rhs[0], x[0], run=False)
    assert isinstance(solver, getattr(linear, {"bicgstab": "BiCGSTAB"}.get(name, name.upper())))
    solver()
    solver(b=rhs[1], x=x[1])
    for got, want in zip(x, b, strict=True):
        np.testing.assert_allclose(got.numpy(), np.linalg.solve(D, want), rtol=1e-8)


def test_a_solve_is_one_event_and_a_copy():
    b = wb.array([1.0, 2.0], requires_grad=True)
    with wb.Tape() as tape:
        linear.cg(wb.array(np.eye(2)), wb.array([1.0, 2.0], dtype=wb.float64), wb.zeros(2, dtype=wb.float64))
        linear.cg(wb.array([2.0, 4.0]), b, wb.zeros(2))
    assert [e.kind for e in tape.events] == 2 * ["op", "copy"]


@pytest.mark.parametrize("solve", [linear.cg, linear.cr], ids=lambda f: f.__name__)
def test_a_solve_that_begins_anew_now_and_then(solve):
    D, b = matrix(12), RANDOM.normal(size=12)
    A, rhs, x = wb.array(D, dtype=wb.float64), wb.array(b, dtype=wb.float64), wb.zeros(12, dtype=wb.float64)
    turns, *_ = solve(A, rhs, x, restart=2, maxiter=300)
    once, *_ = solve(A, rhs, wb.zeros(12, dtype=wb.float64), maxiter=300)
    assert turns > once
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(D, b), rtol=1e-8)
    with pytest.raises(wb.LaunchError, match=r"restart=0(.|\n)*\[linear\]"):
        solve(A, rhs, x, restart=0)


@wb.kernel
def stretch(
    k: wb.array[wb.float64],
    x: wb.array[wb.float64],
    y: wb.array[wb.float64],
    z: wb.array[wb.float64],
    alpha: wb.float64,
    beta: wb.float64,
):
    i = wb.tid()
    z[i] = alpha * k[i] * x[i] + beta * y[i]


def stretched(k, transposed=None):
    """A diagonal matrix as a launch."""

    def product(x, y, z, alpha, beta):
        wb.launch(stretch, k.size, [k, x, y, z, alpha, beta])

    return linear.LinearOperator((k.size, k.size), wb.float64, k.device, product, transposed=transposed)


@pytest.mark.parametrize("solve", SOLVERS, ids=lambda f: f.__name__)
def test_the_gradient_by_what_the_launches_of_an_operator_read(solve):
    k0, b0, seed = np.array([2.0, 3.0, 5.0]), np.array([1.0, -2.0, 4.0]), np.array([1.0, 0.5, -3.0])
    k, b = (wb.array(v, dtype=wb.float64, requires_grad=True) for v in (k0, b0))
    A, x = stretched(k), wb.zeros(3, dtype=wb.float64)
    with wb.Tape() as tape:
        solve(A, b, x, tol=1e-12)
        y = 3.0 * x
    tape.backward(grads={y: wb.array(seed, dtype=wb.float64)})
    np.testing.assert_allclose(x.numpy(), b0 / k0, rtol=1e-11)
    np.testing.assert_allclose(b.grad.numpy(), 3 * seed / k0, rtol=1e-10)
    np.testing.assert_allclose(k.grad.numpy(), -3 * seed * b0 / k0**2, rtol=1e-10)
    moved = wb.jvp(tape, {k: np.array([1.0, 0.0, 2.0]), b: np.array([0.0, 1.0, 1.0])})[y]
    np.testing.assert_allclose(moved, 3 * (np.array([0, 1, 1]) - np.array([1, 0, 2]) * b0 / k0) / k0, rtol=1e-10)
    assert A.scalar_type == wb.float64 and A.batch_count == 1


@wb.kernel
def chain(
    c: wb.array[wb.float64],
    x: wb.array[wb.float64],
    y: wb.array[wb.float64],
    z: wb.array[wb.float64],
    alpha: wb.float64,
    beta: wb.float64,
):
    """z = alpha A x + beta y, of a matrix with 4 on the diagonal, c[0] above and c[1] below it."""
    i = wb.tid()
    total = 4.0 * x[i]
    if i + 1 < x.shape[0]:
        total += c[0] * x[i + 1]
    if i > 0:
        total += c[1] * x[i - 1]
    z[i] = alpha * total + beta * y[i]


@pytest.mark.parametrize("solve", [linear.bicgstab, linear.gmres], ids=lambda f: f.__name__)
def test_an_operator_of_launches_that_is_not_symmetric_has_the_gradient_of_its_matrix(solve):
    n, c0 = 8, np.array([0.7, -1.1])
    b0, seed = RANDOM.normal(size=(2, n))
    c, b = (wb.array(v, dtype=wb.float64, requires_grad=True) for v in (c0, b0))

    def product(x, y, z, alpha, beta):
        wb.launch(chain, n, [c, x, y, z, alpha, beta])

    with wb.Tape() as tape:
        x = wb.zeros(n, dtype=wb.float64)
        solve(linear.LinearOperator((n, n), wb.float64, "cpu", product), b, x, tol=1e-13)
    tape.backward(grads={x: wb.array(seed, dtype=wb.float64)})
    D = 4 * np.eye(n) + c0[0] * np.eye(n, k=1) + c0[1] * np.eye(n, k=-1)
    left, right = np.linalg.solve(D.T, seed), np.linalg.solve(D, b0)
    np.testing.assert_allclose(b.grad.numpy(), left, rtol=1e-9)
    np.testing.assert_allclose(c.grad.numpy(), [-left[:-1] @ right[1:], -left[1:] @ right[:-1]], rtol=1e-9)


@wb.kernel
def stiffen(k: wb.array[wb.float64], x: wb.array[wb.float64]):
    i = wb.tid()
    k[i] = k[i] + 0.1 * x[i] * x[i]


def test_an_operator_that_changes_in_place_from_step_to_step():
    k0, b0 = np.array([2.0, 3.0, 5.0]), np.array([1.0, -2.0, 4.0])
    k, b = (wb.array(v, dtype=wb.float64, requires_grad=True) for v in (k0, b0))
    stiff = wb.clone(k)
    with wb.Tape() as tape:
        wb.copy(stiff, k)
        x = wb.clone(b)
        for _ in range(3):
            y = wb.zeros(3, dtype=wb.float64)
            linear.cg(stretched(stiff), x, y, tol=1e-13)
            wb.launch(stiffen, 3, [stiff, y])
            x = y
    tape.backward(grads={x: wb.ones(3, dtype=wb.float64)})

    def ends(k, b):
        x = b
        for _ in range(3):
            x = x / k
            k = k + 0.1 * x * x
        return x.sum()

    for a, at in ((k, 0), (b, 1)):
        for i in range(3):
            shifts = [np.array([k0, b0]) for _ in range(2)]
            shifts[0][at, i] += 1e-6
            shifts[1][at, i] -= 1e-6
            slope = (ends(*shifts[0]) - ends(*shifts[1])) / 2e-6
            np.testing.assert_allclose(a.grad.numpy()[i], slope, rtol=1e-6)


def test_an_operator_that_is_not_what_it_was_is_refused():
    k = wb.array([2.0, 3.0], dtype=wb.float64)
    b = wb.ones(2, dtype=wb.float64, requires_grad=True)
    with wb.Tape() as tape:
        x = wb.zeros(2, dtype=wb.float64)
        linear.cg(stretched(k), b, x)
    k.fill_(7.0)
    with pytest.raises(wb.GradientError, match=r"was changed by fill_(.|\n)*\[overwritten\]"):
        tape.backward(grads={x: wb.ones(2, dtype=wb.float64)})


def test_a_transpose_that_is_none_is_refused():
    k, other = (wb.array(v, dtype=wb.float64) for v in ([2.0, 3.0], [2.0, 4.0]))
    A = stretched(k, transposed=stretched(other).matvec)
    b = wb.ones(2, dtype=wb.float64, requires_grad=True)
    with wb.Tape(), pytest.raises(wb.GradientError, match=r"is not its transpose(.|\n)*\[linear\]"):
        linear.cg(A, b, wb.zeros(2, dtype=wb.float64))


@pytest.mark.parametrize("kind", ["dense", "sparse", "blocks"])
@pytest.mark.parametrize("dtype", [wb.float32, wb.float64], ids=str)
def test_factors_solve_and_are_kept_for_other_right_sides(kind, dtype):
    D = matrix(6, symmetric=False)

    def laid(entries):
        """As the values of the matrix lie."""
        if kind == "blocks":
            return entries.reshape(3, 2, 3, 2).transpose(0, 2, 1, 3).reshape(-1, 2, 2)
        return entries if kind == "dense" else entries.reshape(-1)

    block = wb.types.matrix((2, 2), dtype) if kind == "blocks" else dtype
    values, n = wb.array(laid(D), dtype=block, requires_grad=True), 3 if kind == "blocks" else 6
    at = [wb.array(k, dtype=int) for k in np.divmod(np.arange(n * n), n)]
    b, seed = [wb.array(v, dtype=dtype, requires_grad=True) for v in RANDOM.normal(size=(2, 6))], RANDOM.normal(size=6)
    with wb.Tape() as tape:
        x = [wb.zeros(6, dtype=dtype) for _ in b]
        A = values if kind == "dense" else sparse.bsr_from_triplets(n, n, *at, values)
        solver = linear.lu(A, b[0], x[0], run=False)
        solver()
        kept = solver._factored
        solver(b=b[1], x=x[1])
        assert solver._factored is kept
        y = 2.0 * x[0] + x[1]
    tape.backward(grads={y: wb.array(seed, dtype=dtype)})
    assert solver._factored is kept
    exact = [np.linalg.solve(D, one.numpy().astype(float)) for one in b]
    left = np.linalg.solve(D.T, seed)
    close = {"rtol": 1e-11, "atol": 1e-12} if dtype == wb.float64 else {"rtol": 1e-4, "atol": 1e-5}
    for got, want in zip(x, exact, strict=True):
        np.testing.assert_allclose(got.numpy(), want, **close)
    np.testing.assert_allclose(b[0].grad.numpy(), 2 * left, **close)
    slopes = -np.outer(2 * left, exact[0]) - np.outer(left, exact[1])
    np.testing.assert_allclose(values.grad.numpy(), laid(slopes), **close)
    again = linear.lu(wb.array(2 * D, dtype=dtype), b[0], x[0])
    assert again[1] <= again[2]
    np.testing.assert_allclose(x[0].numpy(), exact[0] / 2, **close)


def test_factors_want_entries_and_a_singular_matrix_has_no_derivative():
    k = wb.array([2.0, 3.0], dtype=wb.float64)
    with pytest.raises(wb.LaunchError, match=r"no entries(.|\n)*\[linear\]"):
        linear.lu(stretched(k), k, k)


@pytest.mark.parametrize("solve", [*SOLVERS, linear.lu], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", ["dense", "sparse", "diagonal"])
def test_a_solve_is_replayed_and_has_tangents(solve, kind):
    n = 5
    D = np.diag(RANDOM.uniform(1, 2, n)) if kind == "diagonal" else matrix(n)
    entries = np.diag(D) if kind == "diagonal" else D.reshape(-1) if kind == "sparse" else D
    at = [wb.array(k, dtype=int) for k in np.divmod(np.arange(n * n), n)]
    values = wb.array(entries, dtype=wb.float64, requires_grad=True)
    b = wb.array(RANDOM.normal(size=n), dtype=wb.float64, requires_grad=True)
    with wb.Tape(keep="all") as tape:
        A = sparse.bsr_from_triplets(n, n, *at, values) if kind == "sparse" else values
        x = wb.zeros(n, dtype=wb.float64)
        solve(A, b, x, tol=1e-13)
        y = x * x
    change, moved = RANDOM.normal(size=entries.shape), RANDOM.normal(size=n)
    if kind != "diagonal" and solve in (linear.cg, linear.cr):
        square = change.reshape(n, n)
        change = (square + square.T).reshape(entries.shape)
    dD = np.diag(change) if kind == "diagonal" else change.reshape(n, n)
    solution = np.linalg.solve(D, b.numpy())
    tangent = wb.jvp(tape, {values: change, b: moved})[y]
    np.testing.assert_allclose(tangent, 2 * solution * np.linalg.solve(D, moved - dD @ solution), rtol=1e-8)
    again = tape.replay({values: entries + 0.1 * change, b: b.numpy() + moved})
    new = np.linalg.solve(D + 0.1 * dD, b.numpy() + moved)
    np.testing.assert_allclose(again[y].numpy(), new * new, rtol=1e-8)


def test_a_diagonal_of_vectors_is_one_of_their_numbers():
    d, b = RANDOM.uniform(1, 2, (2, 3)), RANDOM.normal(size=(2, 3))
    made = dict(dtype=wb.vec3d, requires_grad=True)
    diagonal, rhs, x = wb.array(d, **made), wb.array(b, **made), wb.zeros(2, dtype=wb.vec3d)
    with wb.Tape() as tape:
        linear.cg(diagonal, rhs, x)
    tape.backward(grads={x: wb.ones(2, dtype=wb.vec3d)})
    np.testing.assert_allclose(x.numpy(), b / d, rtol=1e-10)
    np.testing.assert_allclose(rhs.grad.numpy(), 1 / d, rtol=1e-10)
    np.testing.assert_allclose(diagonal.grad.numpy(), -b / d**2, rtol=1e-10)


def test_parameters_of_several_types_keep_the_state_that_fits():
    start = [RANDOM.normal(size=3), RANDOM.normal(size=(2, 3)), RANDOM.normal(size=(2, 2, 2))]
    types = [wb.float32, wb.vec3d, wb.mat22]
    x = [wb.array(a, dtype=t) for a, t in zip(start, types, strict=True)]
    g = [wb.array(np.ones_like(a), dtype=t) for a, t in zip(start, types, strict=True)]
    for optimizer in (wb.optim.Adam(x, lr=0.1), wb.optim.SGD(x, lr=0.1, momentum=0.9)):
        optimizer.step(g)
        optimizer.set_params(x[:2])
        optimizer.step(g[:2])
        assert optimizer.t == 2
        before = [a.numpy().copy() for a in x[:2]]
        optimizer.reset_internal_state()
        optimizer.step(g[:2])
        for old, a in zip(before, x[:2], strict=True):
            np.testing.assert_allclose(old - a.numpy(), 0.1, rtol=1e-5)
