"""Races found are the races there are: index patterns drawn at random, against counting which threads meet."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

F = wb.float64


pytestmark = pytest.mark.usefixtures("backend")


def leaf(values):
    return wb.array(np.asarray(values, float), dtype=F, requires_grad=True)


@wb.kernel
def lattice(x: wb.array2d(dtype=F), a: int, b: int, c: int, y: wb.array(dtype=F)):
    i, j = wb.tid()
    y[i * a + j * b + c] = x[i, j] * x[i, j]


@wb.kernel
def folded(x: wb.array(dtype=F), a: int, b: int, c: int, d: int, y: wb.array(dtype=F)):
    i = wb.tid()
    y[i * a + b] = y[i * c + d] * x[i]


@wb.kernel
def halved(x: wb.array(dtype=F), a: int, b: int, m: int, y: wb.array(dtype=F)):
    i = wb.tid()
    y[(i * a + b) % m] = x[i] * x[i]


def attempt(kernel, dim, *arrays):
    """The tape with a published gradient, or the slug of the refusal."""
    y = arrays[-1]
    try:
        with wb.Tape() as tape:
            wb.launch(kernel, dim=dim, inputs=arrays)
        tape.backward(grads={y: wb.ones_like(y, requires_grad=False)})
    except (wb.LaunchError, wb.GradientError) as error:
        return error.slug
    return tape


def test_stores_on_a_lattice_are_refused_exactly_where_two_coincide():
    rng, refused = np.random.default_rng(1), 0
    for _ in range(60):
        n, m = (int(v) for v in rng.integers(1, 5, 2))
        a, b = (int(v) for v in rng.integers(-4, 6, 2))
        cells = a * np.arange(n)[:, None] + b * np.arange(m)
        c = int(-cells.min())
        x, y = leaf(rng.normal(size=(n, m))), wb.zeros(int(np.ptp(cells)) + 1, dtype=F)
        got = attempt(lattice, (n, m), x, a, b, c, y)
        if len(np.unique(cells)) < cells.size:
            refused += 1
            assert got == "race", (n, m, a, b)
        else:
            assert not isinstance(got, str), (n, m, a, b, got)
            np.testing.assert_array_equal(x.grad.numpy(), 2 * x.numpy())
    assert 10 < refused < 50


def test_loads_and_stores_in_one_array_are_refused_exactly_where_two_threads_meet():
    rng, refused = np.random.default_rng(2), 0
    for _ in range(60):
        n = int(rng.integers(1, 6))
        a, b, c, d = (int(v) for v in rng.integers(0, 4, 4))
        writes, reads = a * np.arange(n) + b, c * np.arange(n) + d
        met = len(set(writes)) < n or any(writes[i] == reads[j] for i in range(n) for j in range(n) if i != j)
        x, start = leaf(rng.normal(size=n)), rng.normal(size=20)
        y = leaf(start)
        got = attempt(folded, n, x, a, b, c, d, y)
        if met:
            refused += 1
            assert got == "race", (n, a, b, c, d)
        else:
            assert not isinstance(got, str), (n, a, b, c, d, got)
            np.testing.assert_array_equal(x.grad.numpy(), start[reads])
            want = np.ones(20)
            want[writes] = 0
            np.add.at(want, reads, x.numpy())
            np.testing.assert_allclose(y.grad.numpy(), want, rtol=1e-15)
    assert 10 < refused < 55


def test_stores_modulo_a_number_are_refused_exactly_where_two_coincide():
    rng, refused = np.random.default_rng(3), 0
    for _ in range(40):
        n, a, b, m = (int(rng.integers(low, high)) for low, high in ((1, 7), (0, 5), (0, 9), (1, 9)))
        cells = (np.arange(n) * a + b) % m
        x, y = leaf(rng.normal(size=n)), wb.zeros(m, dtype=F)
        got = attempt(halved, n, x, a, b, m, y)
        if len(np.unique(cells)) < n:
            refused += 1
            assert got == "race", (n, a, b, m)
        else:
            assert not isinstance(got, str), (n, a, b, m, got)
            np.testing.assert_array_equal(x.grad.numpy(), 2 * x.numpy())
    assert 5 < refused < 38


def test_one_thread_may_store_where_it_likes():
    @wb.kernel
    def serial(x: wb.array(dtype=F), index: wb.array(dtype=int), y: wb.array(dtype=F)):
        for i in range(x.shape[0]):
            y[index[i]] = x[i] * x[i]

    x, y = leaf([0.7, -1.3, 2.1]), wb.zeros(3, dtype=F)
    assert not isinstance(attempt(serial, 1, x, wb.array([0, 1, 1], dtype=int), y), str)
    np.testing.assert_array_equal(x.grad.numpy(), [1.4, 0, 4.2])
