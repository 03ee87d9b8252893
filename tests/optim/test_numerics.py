"""Functions of whole arrays: values beside NumPy and SciPy; first and second derivatives beside differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.ndimage

import workbench as wb
from tests.support.backends import BACKENDS

F = wb.float64
N = wb.numerics
RNG = np.random.default_rng(3)
LINE, TABLE, CUBE = RNG.normal(size=7), RNG.normal(size=(3, 5)), RNG.normal(size=(2, 4, 3))
PAIRS, MATRICES = RNG.normal(size=(3, 5, 2)), RNG.normal(size=(2, 3, 3)) + 3 * np.eye(3)
PLACES = RNG.uniform(0.1, 1.9, size=(6, 3))
EVEN, WEIGHTS = RNG.normal(size=(4, 5, 2)), RNG.normal(size=400)


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


def real(pairs):
    return pairs[..., 0] + 1j * pairs[..., 1]


def pairs(z):
    return np.stack((z.real, z.imag), -1)


def moved(at, n):
    return np.clip(at, 0, n - 1)


CASES = {  # name: (the function, NumPy's, inputs)
    "scan": (N.scan, np.cumsum, LINE),
    "scan, exclusive": (lambda a: N.scan(a, False), lambda a: np.cumsum(a) - a, LINE),
    "scan, axis": (lambda a: N.scan(a, axis=1), lambda a: np.cumsum(a, 1), CUBE),
    "scan, axis, exclusive": (lambda a: N.scan(a, False, 0), lambda a: np.cumsum(a, 0) - a, TABLE),
    "sort": (N.sort, np.sort, LINE),
    "sort, axis": (lambda a: N.sort(a, 0), lambda a: np.sort(a, 0), CUBE),
    "sum": (N.reduce, lambda a: np.sum(a, keepdims=True).reshape(1), TABLE),
    "sum, axis": (lambda a: N.reduce(a, axis=1), lambda a: a.sum(1), CUBE),
    "mean": (lambda a: N.reduce(a, "mean"), lambda a: a.mean(keepdims=True).reshape(1), TABLE),
    "mean, axis": (lambda a: N.reduce(a, "mean", -1), lambda a: a.mean(-1), CUBE),
    "min": (lambda a: N.reduce(a, "min"), lambda a: a.min(keepdims=True).reshape(1), TABLE),
    "max, axis": (lambda a: N.reduce(a, "max", 0), lambda a: a.max(0), CUBE),
    "fft": (N.fft, lambda z: pairs(scipy.fft.fft(real(z))), PAIRS),
    "fft, axis": (lambda z: N.fft(z, 0), lambda z: pairs(scipy.fft.fft(real(z), axis=0)), PAIRS),
    "ifft": (N.ifft, lambda z: pairs(scipy.fft.ifft(real(z))), PAIRS),
    "rfft, odd": (N.rfft, lambda a: pairs(scipy.fft.rfft(a)), TABLE),
    "rfft, even": (lambda a: N.rfft(a, 1), lambda a: pairs(scipy.fft.rfft(a, axis=1)), CUBE),
    "irfft, even": (N.irfft, lambda z: scipy.fft.irfft(real(z), 8), PAIRS),
    "irfft, odd": (lambda z: N.irfft(z, 7, 0), lambda z: scipy.fft.irfft(real(z), 7, 0), EVEN),
    "solve": (N.solve, lambda A, b: np.linalg.solve(A, b[..., None])[..., 0], MATRICES, TABLE[:2, :3]),
    "solve, several": (N.solve, np.linalg.solve, MATRICES, CUBE[:, :3, :2]),
    "inverse": (N.inverse, np.linalg.inv, MATRICES),
    "cholesky": (N.cholesky, lambda A: np.linalg.cholesky((A + A.swapaxes(1, 2)) / 2), MATRICES),
    "interpolate, 1": (N.interpolate, lambda v, x: scipy.ndimage.map_coordinates(v, [x], order=1), LINE, PLACES[:, 0]),
    "interpolate, 3": (
        N.interpolate,
        lambda v, x: scipy.ndimage.map_coordinates(v, x.T, order=1),
        CUBE,
        PLACES * [0.5, 1, 1],
    ),
    "interpolate, cubic": (lambda v, x: N.interpolate(v, x, 3), None, TABLE, PLACES[:, :2]),
}


def leaves(values):
    return [wb.array(v, dtype=F, requires_grad=True) for v in values]


@wb.kernel
def cubes(y: wb.array[F], w: wb.array[F], loss: wb.array[F]):
    i = wb.tid()
    wb.atomic_add(loss, 0, w[i] * y[i] * y[i] * (F(1.0) + y[i]))


def recorded(f, given, keep="all"):
    with wb.Tape(keep=keep) as tape:
        y = f(*given)
        loss = wb.zeros(1, dtype=F)
        wb.launch(cubes, y.size, [y.flatten(), wb.array(WEIGHTS, dtype=F)], [loss])
    return tape, y, loss


def gradient(f, values, keep="needed"):
    given = leaves(values)
    tape, y, loss = recorded(f, given, keep)
    tape.backward(loss)
    return y, loss.numpy()[0], [x.grad.numpy() for x in given]


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    f, theirs, *values = CASES[name]
    y, _, grads = gradient(f, values)
    if theirs is not None:
        np.testing.assert_allclose(y.numpy(), theirs(*values), rtol=1e-12, atol=1e-13)
    for k, g in enumerate(grads):
        for i in np.ndindex(values[k].shape):
            found = []
            for step in (1e-5, -1e-5):
                other = [v.copy() for v in values]
                other[k][i] += step
                found.append(recorded(f, leaves(other), "needed")[2].numpy()[0])
            np.testing.assert_allclose(g[i], (found[0] - found[1]) / 2e-5, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("name", CASES)
def test_tangents_second_derivatives_and_replays(name):
    f, _, *values = CASES[name]
    given, along = leaves(values), [RNG.normal(size=v.shape) for v in values]
    tape, y, loss = recorded(f, given)
    _, _, grads = gradient(f, values)
    found = wb.jvp(tape, dict(zip(given, along, strict=True)))[loss]
    np.testing.assert_allclose(found, [sum(np.sum(g * v) for g, v in zip(grads, along, strict=True))], rtol=1e-9)
    ends = [gradient(f, [v + h * d for v, d in zip(values, along, strict=True)])[2] for h in (1e-5, -1e-5)]
    products = wb.hvp(tape, loss, dict(zip(given, along, strict=True)))
    for x, a, b in zip(given, *ends, strict=True):
        np.testing.assert_allclose(
            products[x], (a - b) / 2e-5, rtol=1e-5, atol=1e-5 * np.abs(a - b).max() / 2e-5 + 1e-8
        )
    other = [v * 1.1 for v in values]
    again = tape.replay(dict(zip(given, other, strict=True)))
    np.testing.assert_allclose(again[loss], [gradient(f, other)[1]], rtol=1e-10)


def test_a_penalty_on_a_gradient_through_them_has_the_gradient_of_differences():
    def run(v):
        x = wb.array(v, dtype=F, requires_grad=True)
        with wb.Tape() as outer:
            _, _, loss = inner = recorded(lambda x: N.irfft(N.rfft(N.scan(x) * N.sort(x)), n=7), [x])
            inner[0].backward(loss)
            total = N.reduce(x.grad * x.grad)
        return outer, total, x

    outer, total, x = run(LINE)
    with pytest.warns(UserWarning, match="was added to what backward"):
        outer.backward(total)
    start = x.grad.numpy() - gradient(lambda x: N.irfft(N.rfft(N.scan(x) * N.sort(x)), n=7), [LINE])[2][0]
    found = [(run(LINE + h)[1].numpy()[0] - run(LINE - h)[1].numpy()[0]) / 2e-5 for h in 1e-5 * np.eye(7)]
    np.testing.assert_allclose(start, found, rtol=1e-5, atol=1e-6 * np.abs(found).max())


def test_float32_vectors_empty_and_odd_arguments():
    x = wb.array([3.0, 1.0, 2.0])
    for y in (N.sort(x), N.scan(x), N.fft(x.reshape((1, 3))[:, :2].contiguous()), N.rfft(x), N.reduce(x, "mean")):
        assert y.dtype is wb.float32
    v = wb.array(np.arange(12.0).reshape(2, 2, 3), dtype=wb.vec3)
    np.testing.assert_array_equal(N.scan(v, axis=0).numpy(), np.cumsum(v.numpy(), 0))
    np.testing.assert_array_equal(N.reduce(v, axis=1).numpy(), v.numpy().sum(1))
    places = wb.array([[0.5, 0.5], [9.0, -3.0]], dtype=wb.vec2)
    np.testing.assert_allclose(N.interpolate(v, places).numpy(), [[4.5, 5.5, 6.5], [6, 7, 8]])
    assert N.reduce(wb.array([3, 1, 2]), "max").list() == [3] and N.sort(wb.array([3, 1, 2])).list() == [1, 2, 3]
    assert N.sort(wb.array([2.0, np.nan, 1.0])).list()[:2] == [1.0, 2.0]
    assert N.scan(wb.ones((2, 600)), axis=1).numpy()[1, -1] == 600.0
    refused = {
        "numerics": (
            lambda: N.sort(v),
            lambda: N.reduce([1.0]),
            lambda: N.solve([[1.0]], x),
            lambda: N.irfft(np.zeros((3, 2))),
            lambda: N.rfft(wb.zeros(0)),
            lambda: N.cholesky(wb.ones((1, 1), dtype=wb.float16)),
            lambda: N.inverse(wb.ones((1, 1), dtype=wb.vec2)),
            lambda: N.reduce(x, "median"),
            lambda: N.fft(x),
            lambda: N.rfft(wb.array([1, 2])),
            lambda: N.irfft(wb.zeros((3, 2)), n=7),
            lambda: N.solve(wb.zeros((2, 2)), wb.zeros(2)),
            lambda: N.solve(wb.zeros((2, 2)), wb.zeros(3)),
            lambda: N.inverse(x),
            lambda: N.cholesky(wb.array([[1.0, 2.0], [2.0, 1.0]])),
            lambda: N.interpolate(x, wb.zeros((3, 2))),
            lambda: N.interpolate(x, x, 2),
            lambda: N.lower_bound(v, x),
            lambda: N.scan([1.0]),
        ),
        "axis": (lambda: N.sort(x, 1), lambda: N.reduce(x, axis=-2), lambda: N.rfft(x, 3)),
        "int-division": (lambda: N.reduce(wb.array([1, 2]), "mean"),),
    }
    for slug, calls in refused.items():
        for call in calls:
            with pytest.raises(wb.LaunchError) as error:
                call()
            assert error.value.slug == slug
            assert slug == "int-division" or "test_numerics.py" in str(error.value)


@pytest.mark.parametrize("f", [N.cholesky, N.inverse, lambda A: N.solve(A, wb.array([1.0, 2.0])), N.fft])
def test_tangents_keep_the_type_of_the_numbers(backend, f):
    x = wb.array([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
    along = np.array([[1.0, 0.5], [0.2, -1.0]], np.float32)
    with wb.Tape() as tape:
        loss = N.reduce(f(x) * f(x))
    tape.backward(loss)
    np.testing.assert_allclose(wb.jvp(tape, {x: along})[loss], np.sum(x.grad.numpy() * along), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [wb.vec2d, wb.vec3d])
def test_the_nearest_image_and_its_gradient(dtype):
    n = dtype.shape[0]
    d, box = RNG.uniform(-9, 9, size=(20, n)), np.array([4.0, 0.0, 2.5])[:n]
    x, sides = (
        wb.array(d, dtype=dtype, requires_grad=True),
        wb.array(np.tile(box, (20, 1)), dtype=dtype, requires_grad=True),
    )
    with wb.Tape() as tape:
        y = wb.map(_image, x, sides)
    turns = np.where(box > 0, np.round(d / np.where(box > 0, box, 1)), 0)
    np.testing.assert_allclose(y.numpy(), d - turns * box, atol=1e-14)
    seed = RNG.normal(size=(20, n))
    tape.backward(grads={y: wb.array(seed, dtype=dtype)})
    np.testing.assert_allclose(x.grad.numpy(), seed)
    np.testing.assert_allclose(sides.grad.numpy(), -turns * seed, atol=1e-15)


@wb.func
def _image(d: Any, box: Any):
    return wb.minimum_image(d, box)
