"""What `numpy()` of a gradient gives keeps its numbers; what is written into it is not lost."""

from __future__ import annotations

import ctypes
import warnings

import numpy as np
import pytest

import workbench as wb
from tests.support.squares import ONE, F, N, X, empty, leaf, seed, square, times

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def mix(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    if i != 1:
        y[i] = x[i] * x[0]


@wb.kernel
def double(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] + x[i]


def recorded(kernel=square, **marks):
    x, y = leaf(), empty(**marks)
    with wb.Tape() as tape:
        wb.launch(kernel, N, [x], [y])
    return tape, x, y


def zero_tape(tape, x):
    tape.zero()


def zero_array(tape, x):
    x.grad.zero_()


def zero_none(tape, x):
    x.grad = None


def zero_view(tape, x):
    x.grad.numpy()[:] = 0


@pytest.mark.parametrize("take", [lambda g: g.numpy(), np.asarray, lambda g: g.numpy()[::2], lambda g: g[1:].numpy()])
@pytest.mark.parametrize("zero", [zero_tape, zero_array, zero_none])
def test_kept_rows_of_a_jacobian_keep_their_numbers(zero, take):
    tape, x, y = recorded(mix)
    rows, want = [], []
    for i in range(N):
        zero(tape, x)
        tape.backward(grads={y: seed(*np.eye(N)[i])})
        rows.append(take(x.grad))
        want.append(take(x.grad).copy())
    np.testing.assert_array_equal(np.stack(rows), np.stack(want))
    full = np.diag(np.where(np.arange(N) == 1, 0, X[0])) + np.outer(np.where(np.arange(N) == 1, 0, X), np.eye(N)[0])
    np.testing.assert_allclose(np.stack(rows), np.stack([take(wb.array(r)) for r in full]))


def test_leaves_that_pile_up_leave_kept_rows_alone():
    tape, x, y = recorded()
    rows = []
    for _ in range(3):
        tape.backward(grads={y: seed(*ONE)})
        rows.append(x.grad.numpy())
    np.testing.assert_allclose(rows, np.outer([1, 2, 3], 2 * X))


@pytest.mark.host_memory
def test_what_is_written_before_anything_was_published_is_a_seed():
    tape, x, y = recorded(requires_grad=True)
    y.grad.numpy()[:] = 1
    tape.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * X)
    for k in (2, 3):  # and later on, when it holds what was published
        tape.zero()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y.grad.numpy()[:] = k
        tape.backward()
        np.testing.assert_allclose(x.grad.numpy(), 2 * k * X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y.grad.numpy()[1] = 5
        tape.backward()
        np.testing.assert_allclose(x.grad.numpy(), 2 * k * X + [0, 10 * X[1], 0, 0])


@pytest.mark.host_memory
def test_an_array_taken_before_anything_was_published_is_the_memory():
    tape, x, y = recorded()
    g = x.grad.numpy()
    for k in (1, 2):
        tape.backward(grads={y: seed(*ONE)})
        np.testing.assert_allclose(g, 2 * X)
        kept = x.grad.numpy()
        g[:] = 0
        np.testing.assert_allclose(kept, 2 * X)
    g[:] = 100
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 2 * X + 100)


def launched(x):
    wb.launch(double, N, [x.grad], [y := empty()])
    return y.numpy() / 2


READS = [
    lambda x: x.grad.numpy(),
    lambda x: np.array(x.grad.list()),
    lambda x: wb.clone(x.grad).numpy(),
    lambda x: np.array([x.grad[i] for i in range(N)]),
    launched,
    lambda x: (empty().assign(x.grad)).numpy(),
    lambda x: x.grad[:].numpy(),
]


@pytest.mark.parametrize("reads", READS)
@pytest.mark.host_memory
def test_what_is_written_into_it_is_in_the_gradient(reads):
    tape, x, y = recorded()
    tape.backward(grads={y: seed(*ONE)})
    x.grad.numpy()[1] = 7.0
    want = 2 * X
    want[1] = 7.0
    np.testing.assert_allclose(reads(x), want)
    x.grad.numpy()[:] *= 0.5
    np.testing.assert_allclose(reads(x), want / 2)
    zero_view(tape, x)
    np.testing.assert_array_equal(reads(x), 0)
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(reads(x), 2 * X)


@pytest.mark.parametrize("reads", READS)
@pytest.mark.host_memory
def test_an_array_that_is_kept_writes_through_until_the_next_backward(reads):
    tape, x, y = recorded()
    tape.backward(grads={y: seed(*ONE)})
    kept, want = x.grad.numpy(), 2 * X
    for k in range(N):
        kept[k] = want[k] = 10.0 + k
        np.testing.assert_allclose(reads(x), want)
        assert np.shares_memory(kept, x.grad.numpy())
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(reads(x), want + 2 * X)
    np.testing.assert_array_equal(kept, want)


@pytest.mark.host_memory
def test_what_others_write_at_the_address_of_a_gradient_is_read():
    tape, x, y = recorded()
    tape.backward(grads={y: seed(*ONE)})
    kept = x.grad.numpy()
    (ctypes.c_double * N).from_address(x.grad.ptr)[1] = 9.0
    np.testing.assert_allclose(x.grad.numpy(), [2 * X[0], 9.0, *2 * X[2:]])
    np.testing.assert_allclose(kept, 2 * X)


@pytest.mark.host_memory
def test_a_tape_that_has_read_a_gradient_is_told_of_what_is_written_into_it():
    tape, x, y = recorded()
    tape.backward(grads={y: seed(*ONE)})
    kept, h, z = x.grad.numpy(), leaf(), empty()
    with wb.Tape() as other:
        wb.launch(times, N, [h, x.grad], [z])
        kept[1] = 50.0
        wb.launch(times, N, [h, x.grad], [z])
    np.testing.assert_allclose(z.numpy(), X * [2 * X[0], 50.0, *2 * X[2:]])
    with pytest.raises(wb.GradientError, match=r"was changed by a write through numpy\(\)") as found:
        other.backward(grads={z: seed(*ONE)})
    assert found.value.slug == "overwritten"


@pytest.mark.host_memory
def test_what_is_written_through_two_names_meets():
    tape, x, y = recorded()
    tape.backward(grads={y: seed(*ONE)})
    a, b = x.grad.numpy(), x.grad[2:].numpy()
    a[0], b[1] = 5.0, 6.0
    assert x.grad[0] == 5.0 and x.grad[3] == 6.0 and np.shares_memory(a, b)
    x.grad.fill_(1.0)
    assert x.grad.numpy().tolist() == [1] * N and a[0] == 5.0


@pytest.mark.host_memory
def test_writing_to_an_array_from_before_the_last_backward_is_told():
    tape, x, y = recorded(requires_grad=True)
    tape.backward(grads={y: seed(*ONE)})
    old = x.grad.numpy()
    tape.backward(grads={y: seed(*ONE)})
    old[:] = 0
    with pytest.warns(UserWarning, match=r"x.grad.numpy\(\) gave before the last backward\(\) was written to"):
        tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 6 * X)


@pytest.mark.host_memory
def test_a_seed_in_an_array_from_before_the_last_backward_is_refused():
    tape, x, y = recorded(requires_grad=True)
    tape.backward(grads={y: seed(*ONE)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = y.grad.numpy()
    old[:] = 1
    tape.backward()
    old[:] = 2
    with pytest.raises(wb.GradientError) as found:
        tape.backward()
    assert found.value.slug == "old-view"
    np.testing.assert_allclose(x.grad.numpy(), 4 * X)


def test_replays_leave_kept_rows_alone():
    x, y, s = leaf(), empty(), seed(*ONE)
    with wb.capture() as graph:
        tape = wb.Tape()
        with tape:
            wb.launch(square, N, [x], [y])
        tape.zero()
        tape.backward(grads={y: s})
    rows = []
    for k in range(3):
        x.assign(X + k)
        graph.replay()
        rows.append(x.grad.numpy())
    np.testing.assert_allclose(rows, [2 * (X + k) for k in range(3)])


@pytest.mark.host_memory
def test_a_kept_array_is_a_plain_copy_once_a_part_of_the_gradient_is_filled():
    tape, x, y = recorded()
    tape.backward(grads={y: seed(*ONE)})
    kept, before = x.grad.numpy(), x.grad.list()
    kept[0] = 5.0
    x.grad[1:2].fill_(7.0)
    kept[2] = 9.0
    assert x.grad.list() == [5.0, 7.0, *before[2:]]


@pytest.mark.host_memory
def test_a_callback_reads_and_writes_the_live_adjoint():
    x, y = leaf(), empty(requires_grad=True)
    with wb.Tape() as tape:
        y.assign(X * 3)

        def pull_back():
            x.grad.numpy()[:] += 3 * y.grad.numpy()
            y.grad.numpy()[:] = 0

        tape.record_func(pull_back, [x, y])
    for _ in range(3):
        tape.backward(grads={y: seed(*ONE)})
        np.testing.assert_allclose(x.grad.numpy(), 3)


@pytest.mark.host_memory
def test_writing_into_a_kept_array_answers_what_a_tape_has_to_say_about_the_gradient():
    tape, x, y = recorded()
    tape.backward(grads={y: seed(*np.zeros(N))})
    kept = x[:2].grad.numpy()
    x.allocation.grad_notes[x[2:].span] = "x was overwritten"
    kept[0] = 1.0
    assert x.grad[0] == 1.0
    kept[0] = 0.0
    assert x.grad[0] == 0.0
    np.testing.assert_array_equal(x.grad.numpy(), 0)  # and no warning


@pytest.mark.host_memory
def test_a_gradient_takes_what_is_written_when_its_array_is_gone():
    tape, x, y = recorded()
    tape.backward(grads={y: seed(*ONE)})
    gradient = x.grad
    kept = gradient.numpy()
    del tape, x, y
    kept[1] = 5.0
    assert gradient[1] == 5.0
    gradient.fill_(2.0)
    assert gradient.numpy().tolist() == [2.0] * N
