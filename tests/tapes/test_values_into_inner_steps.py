"""Values that were read from memory on an active path, where no launch of the same tape takes them: arguments of custom
ops, numbers in launches of an inner tape, seeds of its backward, and what an inner tape or a function of ours gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS

F, X = wb.float64, np.array([1.1, 2.2, 3.3])
Step = Callable[[wb.array, wb.array], Any]


@wb.kernel
def square(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def cubes(x: wb.array[F], out: wb.array[F]):
    i = wb.tid()
    wb.atomic_add(out, 0, x[i] * x[i] * x[i])


@wb.kernel
def scale(x: wb.array[F], c: F, y: wb.array[F]):
    i = wb.tid()
    y[i] = c * x[i]


@wb.kernel
def energy(x: wb.array[F], p: wb.array[F], c: F, e: wb.array[F]):
    i = wb.tid()
    wb.atomic_add(e, 0, F(0.5) * c * x[i] * x[i] - p[i] * x[i])


@wb.custom_op
def times(x: Any, k: Any) -> Any:
    return x * np.asarray(k)


@times.vjp
def times_vjp(x: Any, k: Any, y: Any, adj: Any) -> Any:
    return adj * np.asarray(k)


@times.jvp
def times_jvp(x: Any, k: Any, y: Any, along: Any) -> Any:
    return along * np.asarray(k)


def scaled(x: wb.array, c: Any) -> wb.array:
    y = wb.zeros(3, dtype=F)
    wb.launch(scale, 3, [x, c, y])
    return y


def lowest(p: wb.array, c: Any) -> wb.array:
    """p / c, as a minimum."""

    def objective(x: wb.array, p: wb.array) -> wb.array:
        e = wb.zeros(1, dtype=F)
        wb.launch(energy, 3, [x, p, c, e])
        return e

    return wb.minimize(objective, wb.ones(3, dtype=F), p)


def slope(x: wb.array, c: Any) -> wb.array:
    """(c - 1) x, as the gradient that an inner tape publishes."""
    y = wb.clone(x, requires_grad=True)
    with wb.Tape(keep="all") as inner:
        e = wb.zeros(1, dtype=F)
        wb.launch(energy, 3, [y, wb.detach(x), c, e])
    inner.backward(e)
    return y.grad


def seeded(x: wb.array, seed: Any) -> wb.array:
    """2 x times the seed."""
    y = wb.clone(x, requires_grad=True)
    with wb.Tape(keep="all") as inner:
        z = y * y
    inner.backward(grads={z: seed})
    return y.grad


def walked(x: wb.array) -> tuple[wb.array, wb.Tape, wb.array]:
    """(a copy of x, an inner tape that was walked, the sum of its cubes)."""
    y, e = wb.clone(x, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as inner:
        wb.launch(cubes, 3, [y, e])
    inner.backward(e)
    return y, inner, e


def total(x: wb.array) -> wb.array:
    e = wb.zeros(1, dtype=F)
    wb.launch(cubes, 3, [x, e])
    return e


def gradient(step: Step, forward: bool = False) -> np.ndarray:
    """The gradient by x of the sum of cubes of step(x, q), with q = x * x. `forward`: by `jvp`."""
    x, out, q = wb.array(X, dtype=F, requires_grad=True), wb.zeros(1, dtype=F), wb.zeros(3, dtype=F)
    with wb.Tape() as tape:
        wb.launch(square, 3, [x], [q])
        made = step(x, q)
        z = made if isinstance(made, wb.array) else wb.array(made, dtype=F)
        wb.launch(cubes, 3, [z, out])
    if forward:
        return np.array([wb.jvp(tape, {x: unit})[out][0] for unit in np.eye(3)])
    tape.backward(out)
    assert x.grad is not None
    return x.grad.numpy()


def differences(right: Callable[[Any], Any]) -> np.ndarray:
    moves = 1e-6 * np.eye(3)
    return np.array([((right(X + m) ** 3).sum() - (right(X - m) ** 3).sum()) / 2e-6 for m in moves])


REFUSED: dict[str, Step] = {
    "a number into an op": lambda x, q: times(x, q[1]),
    "arithmetic into an op": lambda x, q: times(x, q[1] * 2),
    "a float into an op": lambda x, q: times(x, float(q[1])),
    "values into an op": lambda x, q: times(x, q.numpy()),
    "a list into an op": lambda x, q: times(x, [q[0], q[1], q[2]]),
    "a number into a minimum": lambda x, q: lowest(x, q[1]),
    "a float into a minimum": lambda x, q: lowest(x, float(q[1])),
    "a number into an inner tape": lambda x, q: slope(x, q[1]),
    "arithmetic into an inner tape": lambda x, q: slope(x, q[1] * 2),
    "arithmetic into a seed": lambda x, q: seeded(x, q.numpy() * 2),
    "a number of an inner tape": lambda x, q: scaled(x, walked(x)[2][0]),
    "a float of an inner tape": lambda x, q: scaled(x, float(walked(x)[2].numpy()[0])),
    "an adjoint of an inner tape": lambda x, q: (lambda y, t, e: t.adjoint(y))(*walked(x)),
    "a Hessian of an inner tape": lambda x, q: (lambda y, t, e: wb.hessian(t, e, y).sum(0))(*walked(x)),
    "value_and_grad of an array": lambda x, q: wb.value_and_grad(total)(x)[1],
    "value_and_grad of values": lambda x, q: wb.value_and_grad(total)(q.numpy() * 2)[1],
    "the value of value_and_grad": lambda x, q: scaled(x, wb.value_and_grad(total)(x)[0]),
    "smoothed": lambda x, q: wb.smoothed(total, sigma=1e-9, samples=2, order="first")(q.numpy())[1],
}


@pytest.mark.host_memory
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("step", REFUSED.values(), ids=REFUSED.keys())
def test_what_left_the_tape_is_refused_where_its_adjoint_would_be_lost(step: Step, backend: str):
    wb.config.backend = backend
    with pytest.raises(wb.GradientError) as refused:
        gradient(step)
    assert refused.value.slug in ("host-values", "nested-tape", "inner-backward")


@pytest.mark.host_memory
@pytest.mark.parametrize("name", ["a number into an op", "a number into an inner tape", "an adjoint of an inner tape"])
def test_forward_mode_refuses_it_as_well(name: str):
    with pytest.raises(wb.GradientError):
        gradient(REFUSED[name], forward=True)


EXACT: dict[str, tuple[Step, Callable[[Any], Any]]] = {
    "a constant into an op": (lambda x, q: times(x, 3.0), lambda x: 3 * x),
    "values as seeds": (lambda x, q: seeded(x, q.numpy()), lambda x: 2 * x**3),
    "a list as seeds": (lambda x, q: seeded(x, [q[0], q[1], q[2]]), lambda x: 2 * x**3),
    "an array as seeds": (lambda x, q: seeded(x, q), lambda x: 2 * x**3),
    "what is meant, into an op": (lambda x, q: times(x, wb.detach(q[1])), lambda x: X[1] ** 2 * x),
    "what is meant, into a launch": (lambda x, q: scaled(x, wb.detach(q[1])), lambda x: X[1] ** 2 * x),
    "what is meant, into an inner tape": (lambda x, q: slope(x, wb.detach(q[1])), lambda x: X[1] ** 2 * x - X),
}


@pytest.mark.host_memory("values as seeds")  # on a device it is not seen that they are a copy: refused
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", EXACT)
def test_what_the_tape_can_follow_or_is_meant_is_exact(name: str, backend: str):
    wb.config.backend = backend
    step, right = EXACT[name]
    np.testing.assert_allclose(gradient(step), differences(right), rtol=1e-6)


def test_an_element_that_is_meant_stays_so_in_a_launch_of_the_same_form():
    """The launch cache takes numbers of NumPy by a way of its own."""
    for step, right in (EXACT["what is meant, into a launch"],) * 3:
        np.testing.assert_allclose(gradient(step), differences(right), rtol=1e-6)
