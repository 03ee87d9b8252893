"""Steps of the host with an adjoint of their own on a tape: `record_func`."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb


@wb.kernel
def square(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


def sines(x: wb.array, y: wb.array, tape: wb.Tape) -> None:
    y.numpy()[:] = np.sin(x.numpy())

    def pull_back():
        x.grad.numpy()[:] += np.cos(x.numpy()) * y.grad.numpy()
        y.grad.zero_()

    tape.record_func(pull_back, [x, y])


@pytest.mark.host_memory
def test_record_func_has_live_adjoints_without_requires_grad(backend):
    x, m, z = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3), wb.zeros(3)
    whole, tape = wb.zeros(6), wb.Tape()
    y = whole[1:4]
    with tape:
        wb.launch(square, 3, [x], [m])
        sines(m, y, tape)
        wb.launch(square, 3, [y], [z])
    for _ in range(2):
        x.grad.zero_()
        tape.backward(grads={z: wb.ones(3)})
        v = np.array([1.0, 2.0, 3.0])
        np.testing.assert_allclose(x.grad.numpy(), 2 * np.sin(v * v) * np.cos(v * v) * 2 * v, rtol=1e-5)
        assert m.grad is None and y.grad is None and not y.retain_grad


def test_record_func_that_fails_leaves_the_marks_as_they_were():
    x, y, tape = wb.array([1.0], requires_grad=True), wb.zeros(1), wb.Tape()

    def fails():
        assert y.grad is not None
        raise RuntimeError("a solver")

    with tape:
        tape.record_func(fails, [x, y])
    with pytest.raises(RuntimeError, match="a solver"):
        tape.backward(grads={y: wb.ones(1)})
    assert y.grad is None and not x.grad.numpy().any()


@pytest.mark.host_memory
def test_record_func_takes_arrays_of_whole_numbers(backend):
    n, y, x = wb.array([2, 3]), wb.zeros(2), wb.array([5.0, 7.0], requires_grad=True)
    with wb.Tape() as tape:
        y.numpy()[:] = x.numpy() * n.numpy()

        def pull_back():
            assert n.grad is None
            x.grad.numpy()[:] += n.numpy() * y.grad.numpy()
            y.grad.zero_()

        tape.record_func(pull_back, [n, x, y])
    tape.backward(grads={y: wb.ones(2)})
    np.testing.assert_array_equal(x.grad.numpy(), [2, 3])


@pytest.mark.host_memory
def test_record_func_inside_value_and_grad(backend):
    def loss(x):
        y = wb.zeros(3, dtype=x.dtype)
        sines(x, y, f.tape)
        return wb.utils.array_inner(y, y, out=wb.zeros(1, dtype=x.dtype))

    f, v = wb.value_and_grad(loss), np.array([0.5, 1.0, 2.0])
    value, gradient = f(v)
    np.testing.assert_allclose([value, *gradient], [np.sum(np.sin(v) ** 2), *(2 * np.sin(v) * np.cos(v))], rtol=1e-6)


def test_record_func_in_a_capture_asks_for_the_step():
    x, tape = wb.ones(1, requires_grad=True), wb.Tape()
    with pytest.raises(wb.LaunchError, match=r"a step that is over inside wb.capture(.|\n)*forward=step"):
        with wb.capture(), tape:
            tape.record_func(lambda: None, [x])
