"""Components of large vectors and matrices at indices known at run time: numbers, and gradients by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.kernels.emit.components import CHOSEN

F = wb.float64
N = 3

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def of_matrix(m: wb.array(dtype=Any), at: wb.array2d(dtype=Any), y: wb.array(dtype=F)):
    i = wb.tid()
    a, b, c, d = at[i, 0], at[i, 1], at[i, 2], at[i, 3]
    v = m[i]
    row = v[a]
    v[b, c] = row[c] * v[a, d]
    v[b, d] += v[b, c] * v[b, c]
    v[c] = 3.0 * row + v[b]
    y[i] = v[b, c] * v[c, d] + v[c, a] + row[d]
    m[i] = v


@wb.kernel
def of_vector(m: wb.array(dtype=Any), at: wb.array2d(dtype=Any), y: wb.array(dtype=F)):
    i = wb.tid()
    a, b, c, d = at[i, 0], at[i, 1], at[i, 2], at[i, 3]
    v = m[i]
    v[b] = v[a] * v[c]
    v[d] += v[b] * v[b]
    y[i] = v[d] * v[a] + v[b]
    m[i] = v


def matrix(v, a, b, c, d):
    row = v[a].copy()
    v[b, c] = row[c] * v[a, d]
    v[b, d] += v[b, c] * v[b, c]
    v[c] = 3.0 * row + v[b]
    return v[b, c] * v[c, d] + v[c, a] + row[d]


def vector(v, a, b, c, d):
    v[b] = v[a] * v[c]
    v[d] += v[b] * v[b]
    return v[d] * v[a] + v[b]


def total(model, values, at, seed, kept):
    """The program's result, seeded; what it leaves in memory counts too."""
    values = values.copy()
    y = np.array([model(v, *row) for v, row in zip(values, at, strict=True)])
    return y, values, float(y @ seed + (values * kept).sum())


@pytest.mark.parametrize("shape", [(6, 6), (7, 6), (5, 9), (CHOSEN,), (CHOSEN + 1,), (64,)], ids=str)
@pytest.mark.parametrize("kind", [wb.int32, wb.uint32], ids=str)
def test_what_is_chosen_at_run_time_is_read_written_and_differentiated(shape, kind):
    dtype = wb.types.matrix(shape, F) if len(shape) == 2 else wb.types.vector(shape[0], F)
    kernel, model = (of_matrix, matrix) if len(shape) == 2 else (of_vector, vector)
    rng = np.random.default_rng(4)
    low = 0 if kind is wb.uint32 else -min(shape)
    at = rng.integers(low, min(shape), (N, 4))
    values, kept, seed = rng.normal(size=(N, *shape)), rng.normal(size=(N, *shape)), rng.normal(size=N)
    m = wb.array(values, dtype=dtype, requires_grad=True)
    held, y = wb.clone(m, requires_grad=False), wb.zeros(N, dtype=F)
    with wb.Tape() as tape:
        wb.copy(held, m)
        wb.launch(kernel, N, [held, wb.array(at.astype(kind.numpy), dtype=kind)], [y])
    want, left, _ = total(model, values, at, seed, kept)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-13)
    np.testing.assert_allclose(held.numpy(), left, rtol=1e-13)
    tape.backward(grads={y: wb.array(seed), held: wb.array(kept, dtype=dtype)})
    slopes = differences(lambda values: total(model, values, at, seed, kept)[2], values)
    np.testing.assert_allclose(m.grad.numpy(), slopes, rtol=1e-6, atol=1e-6)


def differences(loss, values):
    found = np.zeros_like(values)
    for k in np.ndindex(values.shape):
        step = np.zeros_like(values)
        step[k] = 1e-6
        found[k] = (loss(values + step) - loss(values - step)) / 2e-6
    return found


@wb.func
def first(u: Any) -> F:
    return u[0] if wb.static(len(u.shape) == 1) else u[0, 0]


@wb.kernel
def by_component(v: wb.array(dtype=Any), w: wb.array(dtype=Any), y: wb.array(dtype=Any), less: wb.array(dtype=F)):
    i = wb.tid()
    a, b = v[i], w[i]
    u = wb.cw_mul(a, b) + 2.0 * a - b / less[0]
    u = wb.max(u, -a) + wb.min(a, wb.abs(b)) + wb.cw_div(a, b)
    if first(u) > 0.0:
        u = a * less[0] - u
    y[i] = wb.where(less[i] > 2.0, u, b)


@pytest.mark.parametrize("shape", [(6, 6), (7, 6), (CHOSEN,), (CHOSEN + 1,)], ids=str)
def test_arithmetic_of_components_is_that_of_numpy(shape):
    dtype = wb.types.matrix(shape, F) if len(shape) == 2 else wb.types.vector(shape[0], F)
    rng = np.random.default_rng(6)
    values, others = rng.normal(size=(N, *shape)), rng.uniform(0.5, 2.0, (N, *shape)) * rng.choice([-1, 1], (N, *shape))
    seed, less = rng.normal(size=(N, *shape)), np.array([3.0, 1.0, 4.0])

    def result(a, b):
        u = a * b + 2.0 * a - b / less[0]
        u = np.maximum(u, -a) + np.minimum(a, np.abs(b)) + a / b
        for k in range(N):
            first = u[k, 0, 0] if len(shape) == 2 else u[k, 0]
            u[k] = a[k] * less[0] - u[k] if first > 0 else u[k]
            u[k] = u[k] if less[k] > 2.0 else b[k]
        return u

    v, w = (wb.array(a, dtype=dtype, requires_grad=True) for a in (values, others))
    y, dy = wb.zeros(N, dtype=dtype), wb.array(seed, dtype=dtype)
    with wb.Tape() as tape:
        wb.launch(by_component, N, [v, w, y, wb.array(less)])
    tape.backward(grads={y: dy})
    np.testing.assert_allclose(y.numpy(), result(values, others), rtol=1e-13, atol=1e-15)
    by_v = differences(lambda a: float((seed * result(a, others)).sum()), values)
    by_w = differences(lambda b: float((seed * result(values, b)).sum()), others)
    np.testing.assert_allclose(v.grad.numpy(), by_v, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(w.grad.numpy(), by_w, rtol=1e-6, atol=1e-6)
