"""Atomics without a derivative on arrays that no gradient is asked for: all others are exact, and asking is refused."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS
from tests.support.emulated import Machine, run_cuda_texts

F = wb.float64


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    return Machine(tmp_path_factory.mktemp("emulated"))


@pytest.fixture(params=[*BACKENDS, pytest.param("cuda text", marks=pytest.mark.needs_cc)], autouse=True)
def backend(request, monkeypatch):
    text = request.param == "cuda text"
    monkeypatch.setattr(wb.config, "backend", "c" if text else request.param)
    if text:
        run_cuda_texts(request.getfixturevalue("machine"), monkeypatch)


@wb.kernel
def swap(x: wb.array[F], y: wb.array[F], m: wb.array[F]):
    i = wb.tid()
    y[i] = x[i] * x[i] * x[i]
    wb.atomic_exch(m, i, x[i])


@wb.kernel
def swap_taken(x: wb.array[F], y: wb.array[F], m: wb.array[F]):
    i = wb.tid()
    old = wb.atomic_exch(m, i, x[i])
    y[i] = x[i] * x[i] * x[i] + wb.where(old < 0.0, F(1.0), F(0.0))


@wb.kernel
def compare_and_swap(x: wb.array[F], y: wb.array[F], m: wb.array[F]):
    i = wb.tid()
    tries = 0
    while True:
        now = m[i]
        tries += 1
        if wb.atomic_cas(m, i, now, wb.max(now, x[i])) == now:
            break
    y[i] = x[i] * x[i] * x[i] * F(tries)


@wb.kernel
def least_and_most(x: wb.array[F], y: wb.array[F], m: wb.array[F]):
    i = wb.tid()
    wb.atomic_min(m, i, x[i])
    wb.atomic_max(m, i, x[i] - 1.0)
    y[i] = x[i] * x[i] * x[i]


@wb.kernel
def read_and_least(x: wb.array[F], y: wb.array[F], m: wb.array[F]):
    i = wb.tid()
    y[i] = x[i] * x[i] * x[i] + m[i] * m[i]
    if x[i] < m[i]:
        wb.atomic_min(m, i, x[i])


@wb.kernel
def vectors(x: wb.array[F], y: wb.array[F], m: wb.array[F], v: wb.array[wb.vec2d]):
    i = wb.tid()
    y[i] = x[i] * x[i] * x[i]
    wb.atomic_max(v, i, wb.vec2d(x[i], 0.0))
    wb.atomic_min(v, i, wb.vec2d(2.0 * x[i], 0.0))


KERNELS = [swap, swap_taken, compare_and_swap, least_and_most, read_and_least]
X, M = np.array([0.5, -2.0, 3.0]), np.array([0.25, 7.0, -1.0])


def recorded(kernel):
    x, y = wb.array(X, dtype=F, requires_grad=True), wb.zeros(3, dtype=F)
    m = wb.array(M, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(kernel, dim=3, inputs=[x, y, m])
    return tape, x, y, m


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.key)
@pytest.mark.host_memory("swap_taken", "compare_and_swap")
def test_what_does_not_go_through_the_atomic_is_exact(kernel):
    tape, x, y, m = recorded(kernel)
    tape.backward(grads={y: wb.ones(3, dtype=F)})
    np.testing.assert_allclose(x.grad.numpy(), 3 * X * X, rtol=1e-15)
    np.testing.assert_allclose(m.grad.numpy(), 2 * M if kernel is read_and_least else 0 * M, rtol=1e-15)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.key)
@pytest.mark.parametrize("where", range(3))
@pytest.mark.host_memory("swap_taken", "compare_and_swap")
def test_a_gradient_through_the_atomic_is_refused_with_its_line(kernel, where):
    tape, x, y, m = recorded(kernel)
    seed = np.zeros(3)
    seed[where] = 1e-300
    reached = kernel is not read_and_least or X[where] < M[where]
    if not reached:
        tape.backward(grads={m: wb.array(seed, dtype=F)})  # this thread left the cell alone
        assert m.grad.numpy().tolist() == seed.tolist() and not x.grad.numpy().any()
        return
    with pytest.raises(wb.GradientError, match=r"wb\.atomic_(.|\n)*\[atomic-(gradient|mixed)\]"):
        tape.backward(grads={m: wb.array(seed, dtype=F)})
    assert x.grad is None or not x.grad.numpy().any()


def test_a_nan_that_arrives_is_refused():
    tape, _, _, m = recorded(swap)
    with pytest.raises(wb.GradientError, match="atomic-gradient"):
        tape.backward(grads={m: wb.array([np.nan, 0.0, 0.0], dtype=F)})


def test_what_is_overwritten_later_asks_for_nothing():
    x, y = wb.array(X, dtype=F, requires_grad=True), wb.zeros(3, dtype=F)
    m = wb.zeros(3, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(swap, dim=3, inputs=[x, y, m])
        m.zero_()
        wb.launch(swap_again, dim=3, inputs=[m, y])
    tape.backward(grads={y: wb.ones(3, dtype=F)})
    np.testing.assert_allclose(x.grad.numpy(), 3 * X * X)


@wb.kernel
def swap_again(m: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = y[i] + m[i]


def test_a_use_of_what_was_swapped_in_is_refused():
    x, y = wb.array(X, dtype=F, requires_grad=True), wb.zeros(3, dtype=F)
    m = wb.zeros(3, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(swap, dim=3, inputs=[x, y, m])
        wb.launch(swap_again, dim=3, inputs=[m, y])
    with pytest.raises(wb.GradientError, match="atomic-gradient"):
        tape.backward(grads={y: wb.ones(3, dtype=F)})


@pytest.mark.host_memory
def test_the_value_that_an_exchange_returns_has_no_derivative():
    @wb.kernel
    def hand(x: wb.array[F], y: wb.array[F], m: wb.array[F]):
        i = wb.tid()
        y[i] = x[i] * wb.atomic_exch(m, i, x[i])

    tape, _, y, _ = recorded(hand)
    with pytest.raises(wb.GradientError, match="atomic-gradient"):
        tape.backward(grads={y: wb.ones(3, dtype=F)})


def test_extremes_of_vectors_beside_others():
    x, y, m = wb.array(X, dtype=F, requires_grad=True), wb.zeros(3, dtype=F), wb.zeros(3, dtype=F)
    v = wb.zeros(3, dtype=wb.vec2d)
    with wb.Tape() as tape:
        wb.launch(vectors, dim=3, inputs=[x, y, m, v])
    tape.backward(grads={y: wb.ones(3, dtype=F)})
    np.testing.assert_allclose(x.grad.numpy(), 3 * X * X)
    with pytest.raises(wb.GradientError, match="atomic-mixed"):
        tape.backward(grads={v: wb.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]], dtype=wb.vec2d)})


def test_a_large_stencil_beside_an_exchange():
    """Large launches divide their adjoint: the part that adds up per cell, and the rest with its claims."""

    @wb.kernel
    def smooth(x: wb.array2d[float], y: wb.array2d[float], m: wb.array2d[float]):
        i, j = wb.tid()
        y[i + 1, j + 1] = x[i, j + 1] * x[i + 2, j + 1] + x[i + 1, j] * x[i + 1, j + 2]
        wb.atomic_exch(m, i, j, x[i + 1, j + 1])

    n = 8 if wb.config.backend == "numpy" else 300
    x = wb.array(np.random.default_rng(1).normal(size=(n, n)).astype(np.float32), requires_grad=True)
    y, m = wb.zeros((n, n)), wb.zeros((n, n))
    with wb.Tape() as tape:
        wb.launch(smooth, dim=(n - 2, n - 2), inputs=[x, y, m])
    tape.backward(grads={y: wb.ones((n, n))})
    a = x.numpy()
    want = np.zeros_like(a)
    want[:-2, 1:-1] += a[2:, 1:-1]
    want[2:, 1:-1] += a[:-2, 1:-1]
    want[1:-1, :-2] += a[1:-1, 2:]
    want[1:-1, 2:] += a[1:-1, :-2]
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-6, atol=1e-6)
    seed = np.zeros((n, n), np.float32)
    seed[n - 3, n - 3] = 1.0
    with pytest.raises(wb.GradientError, match="atomic-gradient"):
        tape.backward(grads={m: wb.array(seed)})
    seed = np.zeros((n, n), np.float32)
    seed[n - 1, n - 1] = 1.0  # no thread came there
    tape.backward(grads={m: wb.array(seed)})
