"""Writes by the host under a tape: copy, clone, assign, fill_, zero_ and slices, each with its exact adjoint."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.squares import ONE, F, X, cube, empty, leaf, seed, square

pytestmark = pytest.mark.usefixtures("backend")


def run(kernel, x, y, **kw):
    wb.launch(kernel, dim=len(x), inputs=[x], outputs=[y], **kw)


def test_the_adjoint_of_a_copy_is_a_copy_back():
    x, y, z, w = leaf(), empty(), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, y)
        wb.copy(z, y)
        run(cube, z, w)
    tape.backward(grads={w: seed(1, 2, 3, 4)})
    np.testing.assert_allclose(x.grad.numpy(), np.array([1, 2, 3, 4]) * 6 * X**5, rtol=1e-14)


def test_copies_of_parts_carry_the_gradients_of_parts():
    x, y, w = leaf(), wb.zeros(6, dtype=F), wb.zeros(6, dtype=F)
    with wb.Tape() as tape:
        wb.copy(y, x, dest_offset=3, src_offset=1, count=2)
        wb.copy(y, x, dest_offset=0, src_offset=2, count=1)
        wb.launch(square, dim=6, inputs=[y], outputs=[w])
    tape.backward(grads={w: seed(1, 2, 3, 4, 5, 6)})
    np.testing.assert_allclose(x.grad.numpy(), [0, 4 * 2 * X[1], (5 + 1) * 2 * X[2], 0], rtol=1e-15)


def test_a_clone_passes_its_gradient_on():
    x, w = leaf(), empty()
    with wb.Tape() as tape:
        y = wb.clone(x)
        run(cube, y, w)
    tape.backward(grads={w: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 3 * X**2, rtol=1e-15)


def test_the_array_operators_of_assignment_between_arrays_are_differentiated():
    x, h, y = leaf(), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, h)
        h[0:2] = x[2:4]
        h[3:4].assign(h[0:1])
        run(cube, h, y)
    tape.backward(grads={y: seed(1, 2, 3, 4)})
    h0, h1, h2 = X[2], X[3], X[2] ** 2
    want = [0, 0, 1 * 3 * h0**2 + 4 * 3 * h0**2 + 3 * 3 * h2**2 * 2 * X[2], 2 * 3 * h1**2]
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-14)


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (lambda h: h[0:1].fill_(5.0), 5.0),
        (lambda h: h[0:1].zero_(), 0.0),
        (lambda h: h[0:1].assign([5.0]), 5.0),
        (lambda h: h.__setitem__(slice(0, 1), 5.0), 5.0),
        (lambda h: h.__setitem__(0, 5.0), 5.0),
    ],
)
def test_what_the_host_overwrites_has_no_gradient_before(write, value):
    x, h, y = leaf(), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, h)
        write(h)
        run(cube, h, y)
    assert h.numpy()[0] == value
    tape.backward(grads={y: seed(*ONE)})
    want = 6 * X**5
    want[0] = 0
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-14)


def test_writes_to_every_second_element_clear_only_those():
    x, h, y = leaf(), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, h)
        h[::2] = 3.0
        run(cube, h, y)
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), [0, 6 * X[1] ** 5, 0, 6 * X[3] ** 5], rtol=1e-14)


def test_assigning_to_an_untouched_array_starts_a_leaf():
    x, y = leaf(), empty()
    with wb.Tape() as tape:
        x.assign(2 * X)
        run(square, x, y)
    assert len(tape) == 1
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_array_equal(x.grad.numpy(), 4 * X)
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_array_equal(x.grad.numpy(), 8 * X)


def test_assigning_to_an_array_that_was_read_ends_its_gradient_there():
    x, y, z = leaf(), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, y)
        x.assign(2 * X)
        run(cube, x, z)
    tape.backward(grads={y: seed(*ONE), z: seed(*ONE)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X)
    np.testing.assert_array_equal(x.numpy(), 2 * X)


def test_a_write_to_a_gradient_under_the_tape_is_not_an_event():
    x, y = leaf(), empty()
    with wb.Tape() as tape:
        run(square, x, y)
        x.grad.fill_(7.0)
        x.grad.zero_()
    assert len(tape) == 1
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X)


def test_a_copy_between_overlapping_slices_reads_before_it_writes():
    """(NumPy's own `a[0:5:2] = a[0:3]` does not.)"""
    for write in (
        lambda a: a[0:5:2].assign(a[0:3]),
        lambda a: wb.copy(a[0:5:2], a[0:3]),
        lambda a: a.__setitem__(slice(0, 5, 2), a[0:3]),
    ):
        a = leaf([1, 2, 3, 4, 5])
        with wb.Tape() as tape:
            write(a)
        assert a.numpy().tolist() == [1, 2, 2, 4, 3]
        tape.backward(grads={a[0:5:2]: seed(1, 10, 100)})
        assert a.grad.numpy().tolist() == [1, 10, 100, 0, 0]
    a = leaf([1, 2, 3, 4, 5])
    a[0:5:2].assign(a.numpy()[0:3])
    assert a.numpy().tolist() == [1, 2, 2, 4, 3]


@pytest.mark.parametrize("again", [False, True])
def test_a_mark_that_comes_after_a_copy_is_refused(again):
    x, y, z = wb.array(X, dtype=F), empty(), empty()
    with wb.Tape() as tape:
        wb.copy(y, x)
        x.requires_grad = again
        run(square, y, z)
    x.requires_grad = True
    with pytest.raises(wb.GradientError) as found:
        tape.backward(grads={z: seed(*ONE)})
    assert found.value.slug == "late-grad"


def one_number(n: int, **kw):
    """An array of one element, and an array of n names for it."""
    one = wb.zeros(1, dtype=F, **kw)
    return one, wb.array(ptr=one.ptr, shape=n, dtype=F, strides=(0,))


def test_a_copy_from_several_names_of_one_number_adds_up_their_gradients():
    x, names = one_number(3, requires_grad=True)
    x.fill_(2.0)
    h, y = empty(3), empty(3)
    with wb.Tape() as tape:
        wb.copy(h, names)
        run(square, h, y)
    tape.backward(grads={y: seed(1, 10, 100)})
    assert x.grad.numpy().tolist() == [444]


def test_seeds_for_several_names_of_one_number_add_up():
    x, (y, names) = leaf([2.0]), one_number(3)
    with wb.Tape() as tape:
        run(square, x, y)
    tape.backward(grads={names: seed(1, 10, 100)})
    assert x.grad.numpy().tolist() == [444]


def test_a_copy_to_several_names_of_one_number_is_refused():
    x, (y, names) = leaf([2.0, 3.0, 4.0]), one_number(3)
    with pytest.raises(wb.GradientError) as found, wb.Tape():
        wb.copy(names, x)
    assert found.value.slug == "race" and y.numpy().tolist() == [0]


@wb.kernel
def squares(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


def test_numbers_of_memory_that_was_filled_since_are_constants():
    x, y, z = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3, requires_grad=True), wb.zeros(3)
    with wb.Tape() as tape:
        wb.launch(squares, 3, [x], [y])
        y.fill_(2.0)
        z.assign(3.0 * np.sin(y.numpy()))
        wb.launch(squares, 3, [z], [y])
    tape.backward(grads={y: np.ones(3)})
    assert x.grad.list() == [0.0] * 3


# ---- what a method of NumPy writes by out=

COLUMN = np.ones((4, 1))
METHODS = {
    "sum": ((1,), lambda v, out: v.sum(keepdims=True, out=out)),
    "prod": ((1,), lambda v, out: v.prod(keepdims=True, out=out)),
    "mean": ((1,), lambda v, out: v.mean(keepdims=True, out=out)),
    "std": ((1,), lambda v, out: v.std(keepdims=True, out=out)),
    "var": ((1,), lambda v, out: v.var(keepdims=True, out=out)),
    "max": ((1,), lambda v, out: v.max(keepdims=True, out=out)),
    "min": ((1,), lambda v, out: v.min(keepdims=True, out=out)),
    "dot": ((1, 1), lambda v, out: v.reshape(1, 4).dot(COLUMN, out=out)),
    "trace": ((4,), lambda v, out: v.reshape(1, 1, 4).trace(out=out)),
    "take": ((2,), lambda v, out: v.take([1, 2], out=out)),
    "cumsum": ((4,), lambda v, out: v.cumsum(out=out)),
    "cumprod": ((4,), lambda v, out: v.cumprod(out=out)),
    "clip": ((4,), lambda v, out: v.clip(0.0, 9.0, out=out)),
    "round": ((4,), lambda v, out: v.round(12, out=out)),
}


@pytest.mark.host_memory("False")
@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_of_numpy_writes_by_out_carries_where_it_came_from(name, buffered):
    shape, method = METHODS[name]
    x, y = leaf(), empty()
    z, loss = wb.zeros(shape, dtype=F), empty(int(np.prod(shape)))
    with wb.Tape() as tape:
        wb.launch(square, 4, [x], [y])
        out = np.zeros(shape) if buffered else z.numpy()
        assert method(y.numpy(), out) is out
        if buffered:
            z.assign(out)
        wb.launch(square, loss.size, [z.flatten()], [loss])
    np.testing.assert_array_equal(z.numpy(), method(y.numpy(), np.zeros(shape)))
    with pytest.raises(wb.GradientError) as error:
        tape.backward(grads={loss: np.ones(loss.size)})
    assert error.value.slug == "host-values" and "y" in str(error.value)
