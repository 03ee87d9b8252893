"""Launches wide enough for several workers give the gradients of narrow ones.

The contents of a wide launch are a short pattern repeated, so that its gradient is the pattern's, repeated; sums that
every thread adds to are as many times larger. In float64, so that the order of sums does not matter much.
"""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

pytestmark = [pytest.mark.needs_cc, pytest.mark.filterwarnings("ignore:.*overw:UserWarning")]
PERIOD, TIMES = 8, 5000
D = wb.float64


@wb.kernel
def dynamic_loops(x: wb.array(dtype=D), n: wb.array(dtype=int), y: wb.array(dtype=D)):
    i = wb.tid()
    s = x[i]
    for a in range(n[i]):
        t = s
        for b in range(a + 1):
            t = wb.sin(t * x[i]) + s
        s = s * D(0.5) + t * t * D(0.25)
        if s > D(2.0):
            break
    y[i] = s


@wb.kernel
def in_place_loops(x: wb.array(dtype=D), n: wb.array(dtype=int), y: wb.array(dtype=D)):
    i = wb.tid()
    for a in range(n[i]):
        x[i] = x[i] * x[i] * D(0.5) + D(0.25)
        y[i] += x[i] * D(a + 1)
    y[i] = y[i] * x[i]


@wb.kernel
def neighbours(x: wb.array(dtype=D), n: wb.array(dtype=int), y: wb.array(dtype=D)):
    i = wb.tid()
    m = x.shape[0]
    y[i] = x[i] * x[(i + 1) % m] + wb.sin(x[(i + m - 1) % m]) * D(n[i])


@wb.kernel
def neighbours_by_branches(x: wb.array(dtype=D), n: wb.array(dtype=int), y: wb.array(dtype=D)):
    i = wb.tid()
    m = x.shape[0]
    left = x[i - 1] if i > 0 else x[m - 1]
    right = x[i + 1] if i < m - 1 else x[0]
    y[i] = (left - x[i]) * right * x[i] + left


@wb.kernel
def scattered(x: wb.array(dtype=D), n: wb.array(dtype=int), y: wb.array(dtype=D)):
    i = wb.tid()
    j = (i + n[i] * 3) % x.shape[0]
    wb.atomic_add(y, j, x[i] * x[i])
    y[i] -= x[j] * x[i]


@wb.kernel
def whiles(x: wb.array(dtype=D), n: wb.array(dtype=int), y: wb.array(dtype=D)):
    i = wb.tid()
    r = x[i] * D(n[i] + 1)
    while r * r - x[i] > D(0.01):
        r = D(0.5) * (r + x[i] / r)
        y[i] += r
    y[i] *= r


def gradients(kernel, times: int, backend: str):
    rng = np.random.default_rng(1)
    wb.config.backend, wb.config.threads = backend, 4
    data, seed = rng.uniform(0.5, 1.5, (2, PERIOD))
    x = wb.array(np.tile(data, times), dtype=D, requires_grad=True)
    n = wb.array(np.tile(np.arange(PERIOD) % 5, times), dtype=wb.int32)
    y = wb.zeros(PERIOD * times, dtype=D, requires_grad=True)
    tape = wb.Tape()
    with tape:
        wb.launch(kernel, dim=PERIOD * times, inputs=[x, n, y])
        wb.launch(kernel, dim=PERIOD * times, inputs=[x, n, y])
    values = x.numpy().copy(), y.numpy().copy()
    tape.backward(grads={y: wb.array(np.tile(seed, times), dtype=D)})
    return [*values, x.grad.numpy()]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "kernel",
    [dynamic_loops, in_place_loops, neighbours, neighbours_by_branches, scattered, whiles],
    ids=lambda k: k.key,
)
def test_a_wide_launch_repeats_a_narrow_one(kernel):
    # three periods for the narrow one: neighbours must not meet themselves
    wide, narrow = gradients(kernel, TIMES, "c"), gradients(kernel, 3, "numpy")
    for w, n in zip(wide, narrow, strict=True):
        np.testing.assert_allclose(w, np.tile(n.reshape(3, PERIOD)[1], TIMES), rtol=1e-12, atol=1e-12)


@wb.kernel
def summed(x: wb.array(dtype=D), w: wb.array(dtype=D), total: wb.array(dtype=D)):
    i = wb.tid()
    for j in range(3):
        wb.atomic_add(total, (i + j) % 2, x[i] * w[j] * w[0])


def test_sums_over_all_threads_and_shared_weights():
    rng = np.random.default_rng(2)
    data, w = rng.uniform(0.5, 1.5, PERIOD * TIMES), rng.uniform(0.5, 1.5, 3)
    wb.config.backend, wb.config.threads = "c", 4
    x = wb.array(data, dtype=D, requires_grad=True)
    weights = wb.array(w, dtype=D, requires_grad=True)
    total = wb.zeros(2, dtype=D, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(summed, dim=x.size, inputs=[x, weights, total])
    tape.backward(grads={total: wb.array([1.0, 3.0], dtype=D)})
    seed = np.array([1.0, 3.0])[(np.arange(x.size)[:, None] + np.arange(3)) % 2]  # of thread i, turn j
    np.testing.assert_allclose(x.grad.numpy(), w[0] * (seed @ w), rtol=1e-12)
    by_turn = data @ seed
    want = by_turn * w[0]
    want[0] += by_turn @ w
    np.testing.assert_allclose(weights.grad.numpy(), want, rtol=1e-10)
    np.testing.assert_allclose(
        total.numpy()[0], sum((data * w[j] * w[0])[(np.arange(x.size) + j) % 2 == 0].sum() for j in range(3))
    )
