"""Threads that add to the same cells, cut among workers: right sums, repeated bit for bit, in one order on request."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

pytestmark = pytest.mark.needs_cc
N, CELLS = 20_000, 50


@pytest.fixture(autouse=True)
def defaults():
    yield
    wb.config.reset()


@wb.kernel
def spread(
    x: wb.array(dtype=wb.vec2), w: wb.array(dtype=float), index: wb.array(dtype=int), y: wb.array(dtype=wb.vec2),
    total: wb.array(dtype=float),
):  # fmt: skip
    i = wb.tid()
    v = x[i] * wb.sin(w[i]) + wb.vec2(w[i] * w[i], 1.0)
    wb.atomic_add(y, index[i], v)
    wb.atomic_add(total, 0, wb.dot(v, v))
    wb.atomic_sub(y, index[N - 1 - i], x[i])


def run(threads, deterministic=False):
    wb.config.threads, wb.config.deterministic = threads, deterministic
    rng = np.random.default_rng(3)
    x = wb.array(rng.uniform(-1, 1, (N, 2)).astype(np.float32), dtype=wb.vec2, requires_grad=True)
    w = wb.array(rng.uniform(0, 1, N).astype(np.float32), requires_grad=True)
    index = wb.array(rng.integers(0, CELLS, N).astype(np.int32), dtype=int)
    y = wb.array(np.ones((CELLS, 2), np.float32), dtype=wb.vec2)
    total = wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(spread, N, inputs=[x, w, index, y, total])
    seed = wb.array(rng.uniform(-1, 1, (CELLS, 2)).astype(np.float32), dtype=wb.vec2)
    tape.backward(grads={y: seed, total: wb.ones(1)})
    shared = tape.launches[0].command.plan.forward.shares
    return shared, [a.numpy().copy() for a in (y, total, x.grad, w.grad)]


def wanted():
    rng = np.random.default_rng(3)
    x, w = rng.uniform(-1, 1, (N, 2)).astype(np.float32), rng.uniform(0, 1, N).astype(np.float32)
    index = rng.integers(0, CELLS, N)
    v = x * np.sin(w.astype(float))[:, None] + np.stack([w.astype(float) ** 2, np.ones(N)], 1)
    y = np.ones((CELLS, 2))
    np.add.at(y, index, v)
    np.subtract.at(y, index[::-1], x)
    return y, (v * v).sum()


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_sums_of_many_threads_into_few_cells(threads):
    shared, (y, total, dx, dw) = run(threads)
    assert (shared is not None) == (threads > 1)
    want, loss = wanted()
    np.testing.assert_allclose(y, want, rtol=2e-4, atol=2e-3)
    np.testing.assert_allclose(total, loss, rtol=1e-4)
    _, (_, _, dx1, dw1) = run(1)
    np.testing.assert_allclose(dx, dx1, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dw, dw1, rtol=1e-4, atol=1e-4)


def test_a_run_is_repeated_bit_for_bit():
    first, again = run(3)[1], run(3)[1]
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_launch_that_is_interrupted_leaves_nothing_to_the_next(monkeypatch):
    """Control-C between a worker's sums and their merging."""
    from workbench import calls

    want = run(3)[1]

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(calls, "merge", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(3)
    for a, b in zip(want, run(3)[1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_deterministic_is_one_order_for_any_number_of_workers():
    one = run(1, deterministic=True)
    for threads in (2, 5):
        shared, found = run(threads, deterministic=True)
        assert shared is None
        for a, b in zip(one[1], found, strict=True):
            np.testing.assert_array_equal(a, b)


def test_without_sums_the_number_of_workers_changes_nothing():
    @wb.kernel
    def waves(x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = wb.sin(x[i]) * wb.exp(-x[i] * x[i])

    found = []
    for threads in (1, 2, 5):
        wb.config.threads = threads
        x = wb.array(np.linspace(-2, 2, 100_000, dtype=np.float32), requires_grad=True)
        y = wb.zeros(100_000)
        with wb.Tape() as tape:
            wb.launch(waves, 100_000, inputs=[x, y])
        tape.backward(grads={y: wb.ones(100_000)})
        assert tape.launches[0].command.plan.forward.workers == threads
        found.append((y.numpy().copy(), x.grad.numpy().copy()))
    for y, g in found[1:]:
        np.testing.assert_array_equal(y, found[0][0])
        np.testing.assert_array_equal(g, found[0][1])


def test_a_time_loop_in_place_keeps_one_copy_a_step():
    @wb.kernel
    def bend(x: wb.array(dtype=float)):
        i = wb.tid()
        x[i] = x[i] + 0.1 * wb.sin(x[i])

    x = wb.array(np.linspace(0, 1, 1000, dtype=np.float32), requires_grad=True)
    with wb.Tape() as tape:
        for _ in range(20):
            wb.launch(bend, 1000, inputs=[x])
    kept = sum(k.span.nbytes for event in tape.events for k in event.kept)
    assert kept == 20 * x.nbytes
    seed = wb.ones(1000)
    tape.backward(grads={x: seed})
    at, slope = np.linspace(0, 1, 1000), np.ones(1000)
    for _ in range(20):
        slope, at = slope * (1 + 0.1 * np.cos(at)), at + 0.1 * np.sin(at)
    np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-5)
