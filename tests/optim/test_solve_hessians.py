"""Second derivatives of linear solves, beside differences of gradients and the closed form."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS

F = wb.float64
L = wb.optim.linear
P, RIGHT = np.array([0.3, -0.4, 0.7]), np.array([1.0, -2.0, 0.5])


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)
    return request.param


@wb.kernel
def stiffness(p: wb.array[F], skew: F, A: wb.array[F, 2]):
    i, j = wb.tid()
    A[i, j] = p[i] * p[j] * (F(1.0) + skew * p[i]) + wb.where(i == j, F(3.0) + wb.sin(p[i]), F(0.0))


@wb.kernel
def diagonal(p: wb.array[F], d: wb.array[F]):
    i = wb.tid()
    d[i] = F(3.0) + wb.sin(p[i])


@wb.kernel
def load(p: wb.array[F], b: wb.array[F]):
    i = wb.tid()
    b[i] = wb.exp(p[i]) - F(2.0) * p[0]


@wb.kernel
def times(p: wb.array[F], skew: F, x: wb.array[F], y: wb.array[F], z: wb.array[F], a: F, b: F):
    i = wb.tid()
    total = (F(3.0) + wb.sin(p[i])) * x[i]
    for j in range(x.shape[0]):
        total += p[i] * p[j] * (F(1.0) + skew * p[i]) * x[j]
    z[i] = a * total + b * y[i]


@wb.kernel
def cubes(x: wb.array[F], loss: wb.array[F]):
    i = wb.tid()
    wb.atomic_add(loss, 0, x[i] * x[i] * (F(1.0) + x[i]))


def made(kernel, shape, *given):
    out = wb.zeros(shape, dtype=F)
    wb.launch(kernel, shape, [*given], [out])
    return out


def sparse(p, skew):
    rows, columns = (wb.array(k, dtype=int) for k in np.indices((3, 3)).reshape(2, 9))
    A = wb.sparse.bsr_from_triplets(3, 3, rows, columns, wb.ones(9, dtype=F))
    wb.copy(A.values, made(stiffness, (3, 3), p, skew).flatten())
    return A


def by_products(p, skew):
    return L.LinearOperator((3, 3), F, p.device, lambda *given: wb.launch(times, 3, [p, skew, *given]))


MATRICES = {
    "dense": lambda p, skew: made(stiffness, (3, 3), p, skew),
    "diagonal": lambda p, _: made(diagonal, 3, p),
    "sparse": sparse,
    "products": by_products,
}


def run(matrix, solve, values, keep="all", twice=False):
    p = wb.array(values, dtype=F, requires_grad=True)
    with wb.Tape(keep=keep) as tape:
        A = MATRICES[matrix](p, 0.0 if solve is L.cg else 0.7)
        b, loss = made(load, 3, p), wb.zeros(1, dtype=F)
        for _ in range(1 + twice):
            x = wb.zeros(3, dtype=F)
            solve(A, b, x)
            b = x
        wb.launch(cubes, 3, [b], [loss])
    return tape, p, loss


def gradient(*given, **more):
    tape, p, loss = run(*given, **more, keep="needed")
    tape.backward(loss)
    return p.grad.numpy()


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("solve", [L.cg, L.bicgstab, L.gmres, L.lu], ids=lambda s: s.__name__)
@pytest.mark.parametrize("matrix", MATRICES)
def test_products_with_the_hessian_are_those_of_differences(matrix, solve, twice, backend):
    if backend == "cuda" and (solve in (L.gmres, L.lu) or matrix == "products"):
        pytest.skip("lu is for the CPU, and the stand-in for CuPy makes no array of NumPy's, as the others do")
    if matrix == "products" and solve is L.lu:
        pytest.skip("no factors without entries")
    tape, p, loss = run(matrix, solve, P, twice=twice)
    ends = [gradient(matrix, solve, P + h * RIGHT, twice=twice) for h in (1e-5, -1e-5)]
    np.testing.assert_allclose(wb.hvp(tape, loss, {p: RIGHT})[p], (ends[0] - ends[1]) / 2e-5, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(wb.jvp(tape, {p: RIGHT})[loss], [gradient(matrix, solve, P, twice=twice) @ RIGHT])
    whole = wb.hessian(tape, loss, p)
    np.testing.assert_allclose(whole, whole.T, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(whole @ RIGHT, wb.hvp(tape, loss, {p: RIGHT})[p], rtol=1e-9)


def test_of_a_product_that_reads_what_has_changed_since_it_is_refused():
    tape, p, loss = run("products", L.cg, P)
    wb.hvp(tape, loss, {p: RIGHT})
    with wb.Tape(keep="all") as tape:
        q = wb.clone(p)
        b, x, loss = made(load, 3, p), wb.zeros(3, dtype=F), wb.zeros(1, dtype=F)
        L.cg(by_products(q, 0.0), b, x)
        q.zero_()
        wb.launch(cubes, 3, [x], [loss])
    tape.backward(loss)
    np.testing.assert_allclose(p.grad.numpy(), gradient("products", L.cg, P), rtol=1e-9)
    with pytest.raises(wb.GradientError, match="changed since"):
        wb.hvp(tape, loss, {p: RIGHT})
