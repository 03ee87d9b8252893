"""`launch(..., adjoint=True)`: the adjoint of one launch without a tape, exact or refused."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.launches import thresholds

F = wb.float64
X = np.array([0.7, -1.3, 2.1])
ONES = np.ones(3)


pytestmark = pytest.mark.usefixtures("backend")


def made(values, dtype=F, **kw):
    return wb.array(np.asarray(values, float).astype(dtype.numpy), dtype=dtype, **kw)


@wb.kernel
def product(x: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i] * w[0]


@wb.kernel
def add_square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] += x[i] * x[i]


@wb.kernel
def square_in_place(x: wb.array(dtype=F)):
    i = wb.tid()
    x[i] = x[i] * x[i]


def pull(kernel, inputs, outputs, adj_inputs, adj_outputs, dim=3):
    wb.launch(kernel, dim, inputs, outputs, adjoint=True, adj_inputs=adj_inputs, adj_outputs=adj_outputs)


def test_the_inputs_accumulate_and_the_seed_is_used_up():
    x, w, y, dx, dw, dy = made(X), made([3.0]), made([0] * 3), made(ONES), made([0.0]), made([1, 2, 3])
    pull(product, [x, w], [y], [dx, dw], [dy])
    np.testing.assert_allclose(dx.numpy(), 1 + 6 * X * [1, 2, 3], rtol=1e-15)
    np.testing.assert_allclose(dw.numpy(), (X * X * [1, 2, 3]).sum(), rtol=1e-15)
    assert dy.numpy().tolist() == [0, 0, 0] and y.numpy().tolist() == [0, 0, 0] and x.numpy().tolist() == X.tolist()


@pytest.mark.host_memory
def test_it_leaves_no_trace_in_what_a_tape_records_of_the_same_kernel():
    @wb.kernel
    def whole(x: wb.array(dtype=F), n: wb.array(dtype=int)):
        i = wb.tid()
        n[i] = int(x[i])

    x, n, y = made(X, requires_grad=True), wb.zeros(3, dtype=int), made([0] * 3)
    pull(whole, [x], [n], [made([0] * 3)], [None])
    with wb.Tape() as tape:
        wb.launch(whole, 3, [x], [n])
        x.numpy()[0] = 5.0  # what the tape started from is gone there, though no active path had read it
        wb.launch(add_square, 3, [x], [y])
    assert tape.launches[0].reverse is None
    tape.backward(grads={y: made(ONES)})
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy() * [0, 1, 1])


def test_without_an_adjoint_the_grad_of_an_argument_is_taken_and_others_are_left_out():
    x, w, y = made(X, requires_grad=True), made([3.0]), made([0] * 3, requires_grad=True)
    y.grad.fill_(1.0)
    pull(product, [x, w], [y], [None, None], [None])
    np.testing.assert_allclose(x.grad.numpy(), 6 * X, rtol=1e-15)
    assert w.grad is None and not y.grad.numpy().any()


def test_what_is_accumulated_keeps_its_seed_and_a_second_call_adds():
    x, y, dx, dy = made(X), made([0] * 3), made([0] * 3), made(ONES)
    for k in (1, 2):
        pull(add_square, [x], [y], [dx], [dy])
        np.testing.assert_allclose(dx.numpy(), 2 * k * X, rtol=1e-15)
    assert dy.numpy().tolist() == [1, 1, 1]


def test_strided_views_and_float16():
    @wb.kernel
    def square(x: wb.array(dtype=wb.float16), y: wb.array(dtype=wb.float16)):
        i = wb.tid()
        y[i] = x[i] * x[i]

    x, y = made([1, 0, 2, 0, 3, 0], wb.float16), made([0] * 3, wb.float16)
    dx, dy = made([0] * 6, wb.float32), made([1, 10, 100], wb.float32)
    pull(square, [x[::2]], [y], [dx[::2]], [dy])
    assert dx.numpy().tolist() == [2, 0, 40, 0, 600, 0]


@pytest.mark.slow
def test_a_wide_launch_agrees_with_the_tape():
    n = 40_000
    x, w, y = made(np.linspace(-1, 1, n), requires_grad=True), made([2.0], requires_grad=True), wb.zeros(n, dtype=F)
    with wb.Tape() as tape:
        wb.launch(product, n, [x, w], [y])
    tape.backward(grads={y: wb.ones(n, dtype=F)})
    dx, dw = wb.zeros(n, dtype=F), wb.zeros(1, dtype=F)
    pull(product, [x, w], [y], [dx, dw], [wb.ones(n, dtype=F)], n)
    np.testing.assert_array_equal(dx.numpy(), x.grad.numpy())
    np.testing.assert_allclose(dw.numpy(), w.grad.numpy(), rtol=1e-12)


def refused(slug: str, *words: str):
    return pytest.raises((wb.GradientError, wb.LaunchError), match="(.|\n)*".join((*words, rf"\[{slug}\]")))


def test_what_only_a_tape_can_do_is_refused():
    x, y, one = made(X), made([0] * 3), made(ONES)
    with refused("adjoint-launch", "overwrites 'x'"):
        pull(square_in_place, [x], [], [made(ONES)], [])
    with refused("adjoint-launch", "share memory"):
        pull(product, [x, x[0:1]], [y], [made(ONES), made([0.0])], [one])
    with refused("adjoint-launch", "adjoints share memory"):
        pull(add_square, [x], [y], [one], [one])
    with refused("adjoint-count", "2 arguments"):
        pull(add_square, [x], [y], [one], [])
    with refused("adjoint-count", "no argument has an adjoint"):
        pull(add_square, [x], [y], [None], [None])
    for wrong in (made([1, 2]), made(ONES, wb.float32), ONES):
        with refused("adjoint-argument", "'x'"):
            pull(add_square, [x], [y], [wrong], [one])
    with refused("launch-keyword", "record_cmd"):
        wb.launch(add_square, 3, [x], [y], adjoint=True, adj_inputs=[one], adj_outputs=[one], record_cmd=True)
    assert one.numpy().tolist() == [1, 1, 1] and not y.numpy().any()


def test_a_race_is_refused_and_nothing_is_written():
    @wb.kernel
    def scatter(x: wb.array(dtype=F), index: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        y[index[i]] = x[i] * x[i]

    dx = made([0] * 3)
    with refused("race", "'y'"):
        pull(scatter, [made(X), wb.array([0, 1, 0], dtype=int)], [made([0] * 3)], [dx, None], [made(ONES)])
    assert not dx.numpy().any()


@wb.kernel
def stencil(x: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
    i, j = wb.tid()
    if i > 0 and j > 0 and i < x.shape[0] - 1 and j < x.shape[1] - 1:
        y[i, j] = x[i - 1, j] * x[i + 1, j] + x[i, j - 1] * x[i, j]


@pytest.mark.sampled
@pytest.mark.parametrize("way", ["whole", "pull"])
def test_a_large_stencil_has_all_its_contributions(monkeypatch, way):
    monkeypatch.setattr(thresholds, "PARALLEL_FROM", 1 if way != "whole" else 1 << 40)
    monkeypatch.setattr(thresholds, "PULL_FROM", 1 if way != "whole" else 1 << 40)
    stencil.program().plans.clear()
    rng = np.random.default_rng(4)
    values, seed = rng.normal(size=(11, 9)), rng.normal(size=(11, 9))
    x, y, dx, dy = made(values), made(np.zeros((11, 9))), made(np.zeros((11, 9))), made(seed)
    pull(stencil, [x], [y], [dx], [dy], dim=(11, 9))
    s = np.zeros_like(seed)
    s[1:-1, 1:-1] = seed[1:-1, 1:-1]
    want = np.zeros_like(values)
    want[:-2] += s[1:-1] * values[2:]
    want[2:] += s[1:-1] * values[:-2]
    want[:, :-1] += s[:, 1:] * values[:, 1:]
    want[:, 1:] += s[:, 1:] * values[:, :-1]
    np.testing.assert_allclose(dx.numpy(), want, rtol=1e-12, atol=1e-12)
    stencil.program().plans.clear()


@wb.struct
class Inner:
    w: wb.array[wb.float64]


@wb.struct
class Outer:
    x: wb.array[wb.float64]
    inner: Inner
    k: wb.float64


@wb.struct
class Mass:
    m: wb.float64
    at: wb.vec2d
    n: int


@wb.kernel
def of_fields(s: Outer, masses: wb.array(dtype=Mass), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = s.k * s.x[i] * s.inner.w[i] + masses[i].m * masses[i].at[1]


def test_adjoints_of_fields_are_the_same_fields_of_an_instance_or_of_an_array_of_structs():
    w, scale, seed = np.array([2.0, 3.0, 5.0]), 7.0, np.array([1.0, 10.0, 100.0])
    s = Outer(x=made(X), inner=Inner(w=made(w)), k=scale)
    adjoint = Outer(x=made(ONES), inner=Inner(w=made(0 * ONES)), k=0.0)
    masses, found = wb.zeros(3, dtype=Mass), wb.zeros(3, dtype=Mass)
    values = np.zeros(3, Mass.numpy)
    values["m"], values["at"] = w, np.outer(X, [1, 2])
    masses.assign(values)
    pull(of_fields, [s, masses], [made(0 * ONES)], [adjoint, found], [made(seed)])
    np.testing.assert_allclose(adjoint.x.numpy(), 1 + seed * scale * w)
    np.testing.assert_allclose(adjoint.inner.w.numpy(), seed * scale * X)
    np.testing.assert_allclose(found.numpy()["m"], seed * 2 * X)
    np.testing.assert_allclose(found.numpy()["at"], np.outer(seed * w, [0, 1]))
    assert not found.numpy()["n"].any()
