"""Local names for functions of the language, for tuples and for funcs: they do what the things themselves do."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

pytestmark = pytest.mark.usefixtures("backend")
F = wb.float64


@wb.func
def grow(x: wb.ref[F], by: F):
    x = x * by


@wb.kernel
def drawn(x: wb.array[F], y: wb.array[F], n: int):
    i = wb.tid()
    draw, state = wb.randf, wb.rand_init(7, i)
    s = F(0.0)
    for _ in range(n):
        s += F(draw(state)) * x[i]
    y[i] = s


@wb.kernel
def drawn_plainly(x: wb.array[F], y: wb.array[F], n: int):
    i = wb.tid()
    state = wb.rand_init(7, i)
    s = F(0.0)
    for _ in range(n):
        s += F(wb.randf(state)) * x[i]
    y[i] = s


@wb.kernel
def counted(x: wb.array[F], y: wb.array[F], n: int):
    i = wb.tid()
    turns = range
    s = F(0.0)
    for k in turns(n):
        s += F(k) * x[i]
    y[i] = s


@wb.kernel
def items(x: wb.array[F], y: wb.array[F], n: int):
    i = wb.tid()
    some = (F(1.0), x[i], F(3.0))
    s = F(0.0)
    for one in some:
        s += one * x[i]
    y[i] = s


@wb.kernel
def items_by_number(x: wb.array[F], y: wb.array[F], n: int):
    i = wb.tid()
    some = (F(1.0), x[i], F(3.0))
    s = F(0.0)
    for k in range(3):
        s += some[k] * x[i]
    y[i] = s


@wb.kernel
def known(x: wb.array[F], y: wb.array[F], n: int):
    i = wb.tid()
    value = wb.static
    s = F(0.0)
    for k in range(3):
        s += F(value(k * 2)) * x[i]
    y[i] = s


@wb.kernel
def grown(x: wb.array[F], y: wb.array[F], n: int):
    i = wb.tid()
    times, s = grow, F(1.0)
    for _ in range(n):
        times(s, x[i])
    y[i] = s


X = np.array([2.0, 0.5])


@pytest.mark.parametrize(
    ("kernel", "value", "slope"),
    [
        (counted, 6 * X, 6 + 0 * X),
        (items, 4 * X + X**2, 4 + 2 * X),
        (items_by_number, 4 * X + X**2, 4 + 2 * X),
        (known, 6 * X, 6 + 0 * X),
        (grown, X**4, 4 * X**3),
    ],
)
def test_a_local_name_does_what_it_stands_for(kernel, value, slope):
    x, y = wb.array(X, dtype=F, requires_grad=True), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, 2, [x, y, 4])
    np.testing.assert_allclose(y.numpy(), value)
    tape.backward(grads={y: wb.ones(2, dtype=F)})
    np.testing.assert_allclose(x.grad.numpy(), slope)


def test_each_turn_draws_another_number_under_a_local_name_too():
    x, y, want = wb.ones(3, dtype=F, requires_grad=True), wb.zeros(3, dtype=F), wb.zeros(3, dtype=F)
    wb.launch(drawn_plainly, 3, [x, want, 4])
    with wb.Tape() as tape:
        wb.launch(drawn, 3, [x, y, 4])
    np.testing.assert_array_equal(y.numpy(), want.numpy())
    tape.backward(grads={y: wb.ones(3, dtype=F)})
    np.testing.assert_allclose(x.grad.numpy(), want.numpy())


def test_the_thread_under_a_local_name():
    @wb.kernel
    def place(y: wb.array2d[int]):
        thread = wb.tid
        i, j = thread()
        y[i, j] = 10 * i + j

    y = wb.zeros((2, 3), dtype=int)
    wb.launch(place, (2, 3), [y])
    assert y.numpy().tolist() == [[0, 1, 2], [10, 11, 12]]
