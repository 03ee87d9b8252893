"""Attempts to get a wrong gradient past the tape from outside the kernels: threads, redefinitions, exceptions, reuse.

Each is exact by a closed form, or refused.
"""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import workbench as wb

F = wb.float64
V = np.array([1.0, 2.0, 3.0])


pytestmark = pytest.mark.usefixtures("backend")


def leaf(values=V, requires_grad=True):
    return wb.array(np.array(values, float), dtype=F, requires_grad=requires_grad)


def zeros(n=3):
    return wb.zeros(n, dtype=F)


def backward(tape, *outputs):
    tape.backward(grads={y: wb.ones_like(y, requires_grad=False) for y in outputs})


@wb.kernel
def square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def cube(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i] * x[i]


def test_tapes_of_several_threads_do_not_meet():
    found = {}

    def work(k: int):
        x, y, z = leaf(V * k), zeros(), zeros()
        for _ in range(25):
            with wb.Tape() as tape:
                wb.launch(square, 3, [x, y])
                wb.launch(cube, 3, [y, z])
                wb.launch(square, 3, [z, y])
            tape.zero()
            backward(tape, y)
            exact = np.allclose(x.grad.numpy(), 12 * (V * k) ** 11, rtol=1e-12, atol=0)
            found.setdefault(k, []).append(len(tape) == 3 and exact)

    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2, 3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {k: [True] * 25 for k in (1, 2, 3)}


def test_a_write_by_another_thread_is_a_write_behind_the_tape():
    x, y, z = leaf(), zeros(), zeros()
    with wb.Tape() as tape:
        wb.launch(square, 3, [x, y])
        other = threading.Thread(target=lambda: wb.launch(square, 3, [leaf([5, 6, 7], False), x]))
        other.start()
        other.join()
        wb.launch(cube, 3, [x, z])
    assert len(tape.launches) == 2
    with pytest.raises(wb.GradientError, match="overwritten"):
        backward(tape, y, z)


FACTOR = wb.constant(F(2.0))


@wb.func
def power(v: F):
    return v * v


@wb.kernel
def scaled(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = power(x[i]) * FACTOR


def test_a_func_and_a_constant_redefined_between_launches_are_those_of_each_launch(monkeypatch):
    x, y, z = leaf(), zeros(), zeros()

    @wb.func
    def third(v: F):
        return v * v * v

    with wb.Tape() as tape:
        wb.launch(scaled, 3, [x, y])
        monkeypatch.setitem(globals(), "FACTOR", wb.constant(F(7.0)))
        monkeypatch.setitem(globals(), "power", third)
        wb.launch(scaled, 3, [x, z])
    monkeypatch.setitem(globals(), "FACTOR", wb.constant(F(100.0)))
    np.testing.assert_array_equal(z.numpy(), 7 * V**3)
    backward(tape, y, z)
    np.testing.assert_allclose(x.grad.numpy(), 4 * V + 21 * V * V, rtol=1e-15)


@wb.struct
class Body:
    mass: F
    weights: wb.vec3d
    x: wb.array(dtype=F)


@wb.kernel
def energy(b: Body, q: wb.vec3d, y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = b.x[i] * b.x[i] * b.mass * b.weights[i] * q[i]


def test_a_struct_and_a_vector_changed_after_the_launch_change_nothing():
    x, other, y = leaf(), leaf([9, 9, 9]), zeros()
    body, q = Body(mass=2.0, weights=wb.vec3d(1.0, 2.0, 3.0), x=x), wb.vec3d(1.0, 1.0, 2.0)
    with wb.Tape() as tape:
        wb.launch(energy, 3, [body, q, y])
    body.mass, body.x, q[1] = 50.0, other, 40.0
    body.weights[0] = 33.0
    body.weights = wb.vec3d(0.0, 0.0, 0.0)
    backward(tape, y)
    assert x.grad.numpy().tolist() == [4, 16, 72] and not other.grad.numpy().any()


def test_an_exception_between_launches_leaves_what_was_recorded():
    x, y, z, tape = leaf(), zeros(), zeros(), wb.Tape()
    with pytest.raises(ValueError), tape, tape.scope("step"):
        wb.launch(square, 3, [x, y])
        raise ValueError
    wb.launch(cube, 3, [x, z])  # no longer recorded
    assert len(tape) == 1 and [(s.first, s.last) for s in tape.scopes] == [(0, 1)]
    backward(tape, y)
    np.testing.assert_array_equal(x.grad.numpy(), 2 * V)


@pytest.mark.slow
def test_memory_freed_and_used_again_under_a_tape_is_other_memory():
    x, y = leaf(), zeros()
    with wb.Tape() as tape:
        for _ in range(5):
            passing = zeros()
            wb.launch(square, 3, [x, passing])
            wb.launch(cube, 3, [passing, y])
            del passing
            gc.collect()
    backward(tape, y)
    np.testing.assert_allclose(x.grad.numpy(), 6 * V**5, rtol=1e-15)


def test_seeds_on_overlapping_views_of_every_shape_add_up():
    x, y = leaf([1, 2, 3, 4]), zeros(4)
    with wb.Tape() as tape:
        wb.launch(square, 4, [x, y])
    whole = wb.array(np.full((2, 2), 1000.0), dtype=F)
    tape.backward(
        grads={y[0:3]: leaf([1, 1, 1]), y[1:4]: leaf([10, 10, 10]), y[::2]: leaf([100, 100]), y.reshape((2, 2)): whole}
    )
    assert x.grad.numpy().tolist() == [2 * 1101, 4 * 1011, 6 * 1111, 8 * 1010]


@wb.kernel
def largest(x: wb.array(dtype=F), m: wb.array(dtype=F)):
    wb.atomic_max(m, 0, x[wb.tid()])


def test_a_maximum_tied_in_two_launches_shares_its_share():
    x, m = leaf([2, 2, 1]), leaf([2])
    with wb.Tape() as tape:
        wb.launch(largest, 3, [x, m])
        wb.launch(largest, 3, [x, m])
    backward(tape, m)
    np.testing.assert_allclose(x.grad.numpy(), [1 / 3 + 1 / 9, 1 / 3 + 1 / 9, 0], rtol=1e-15)
    np.testing.assert_allclose(m.grad.numpy(), [1 / 9], rtol=1e-15)


def test_a_command_launched_before_and_after_a_write_reads_what_was_there():
    x, y, z = leaf(), zeros(), zeros()
    first, second = (wb.launch(square, 3, [x, out], record_cmd=True) for out in (y, z))
    with wb.Tape() as tape:
        first.launch()
        x.fill_(5.0)
        second.launch()
    backward(tape, y, z)
    assert z.numpy().tolist() == [25] * 3 and x.grad.numpy().tolist() == [2, 4, 6]
