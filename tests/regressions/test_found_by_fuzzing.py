"""Every program that once gave a wrong gradient in silence, or crashed, cut down to a few lines."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.errors import GradientError, KernelError

F = wb.float64


pytestmark = pytest.mark.usefixtures("backend")


def made(values, requires_grad=True, dtype=F):
    return wb.array(np.array(values, dtype=float), dtype=dtype, requires_grad=requires_grad)


def ones(a):
    return wb.array(np.ones(a.shape), dtype=F)


def backward(tape, *outputs):
    tape.backward(grads={y: ones(y) for y in outputs})


@wb.kernel
def square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def double_then_square(x: wb.array(dtype=F), y: wb.array(dtype=F), z: wb.array(dtype=F)):
    i = wb.tid()
    x[i] = x[i] * F(2.0)
    z[i] = y[i] * y[i]


def test_a_load_through_another_name_sees_the_store_when_the_adjoint_replays_it():
    x, z = made([1.0, 2.0]), made([0.0, 0.0])
    with wb.Tape() as tape:
        wb.launch(double_then_square, 2, inputs=[x, x, z])
    backward(tape, z)
    assert x.grad.numpy().tolist() == [8.0, 16.0]


@wb.func
def stepped(y: wb.array(dtype=F), x: wb.array(dtype=F)):
    y[0] = y[0] * F(0.5) + x[0] * x[0]
    return y[0]


@wb.kernel
def stores_in_condition(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    n = 0
    while stepped(y, x) > F(-5.0) and n < 3:
        n += 1


def test_a_while_condition_that_writes_memory_with_gradients_is_refused():
    x, y = made([1.5]), made([1.0])
    with wb.Tape(), pytest.raises(KernelError) as refusal:
        wb.launch(stores_in_condition, 1, inputs=[x, y])
    assert refusal.value.slug == "while-effect"


@wb.kernel
def running_sum(c: wb.array(dtype=F), x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    old = wb.atomic_add(c, 0, x[i])
    y[i] = old * old


def test_what_a_float_atomic_returned_is_differentiated_for_one_thread_and_refused_for_several():
    c, x, y = made([0.5]), made([1.0, 2.0]), made([0.0, 0.0])
    with wb.Tape() as tape:
        wb.launch(running_sum, 1, inputs=[c, x, y])
    backward(tape, y)
    assert c.grad.numpy().tolist() == [1.0]
    with wb.Tape(), pytest.raises(GradientError) as refusal:
        wb.launch(running_sum, 2, inputs=[c, x, y])
    assert refusal.value.slug == "atomic-order"


@wb.kernel
def slots_in_a_loop(n: wb.array(dtype=int), x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    for j in range(2):
        slot = wb.atomic_add(n, 0, 1)
        y[slot] = x[i] * x[i] * F(j + 1)


@pytest.mark.host_memory
def test_slots_taken_in_a_loop_are_the_same_for_every_thread_of_the_reverse_pass():
    n, x, y = wb.zeros(1, dtype=int), made([1.0, 2.0, 3.0]), made([0.0] * 6)
    with wb.Tape() as tape:
        wb.launch(slots_in_a_loop, 3, inputs=[n, x, y])
    tape.backward(grads={y: made([1.0, 10.0, 100.0, 1e3, 1e4, 1e5], False)})
    assert x.grad.numpy().tolist() == [42.0, 8400.0, 1260000.0]


@wb.kernel
def named_like_a_shadow(x: wb.array(dtype=F), d_x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i] * d_x[i]


def test_a_parameter_with_the_name_of_a_shadow_is_not_confused_with_it():
    x, d, y = made([1.0, 2.0]), made([4.0, 0.0, 5.0]), made([0.0, 0.0])
    with wb.Tape() as tape:
        wb.launch(named_like_a_shadow, 2, inputs=[x, d[0:3:2], y])
    tape.backward(grads={y: made([1.0, 10.0], False)})
    assert x.grad.numpy().tolist() == [8.0, 200.0]
    assert d.grad.numpy().tolist() == [1.0, 0.0, 40.0]


@wb.kernel
def only_named_so(d_t: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = d_t[i] * d_t[i]


def test_a_parameter_called_d_something_is_a_parameter_like_any_other():
    x, y = made([1.0, 2.0]), made([0.0, 0.0])
    with wb.Tape() as tape:
        wb.launch(only_named_so, 2, inputs=[x, y])
    backward(tape, y)
    assert x.grad.numpy().tolist() == [2.0, 4.0]


@wb.kernel
def to_cells(x: wb.array(dtype=F), cell: wb.array(dtype=int)):
    i = wb.tid()
    cell[i] = int(x[i])


@wb.kernel
def gather(x: wb.array(dtype=F), cell: wb.array(dtype=int), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[cell[i]] * x[i]


def test_a_launch_that_only_makes_integers_is_not_taken_for_one_recorded_too_early():
    x, y, cell = made([1.0, 2.0, 0.0]), made([0.0] * 3), wb.zeros(3, dtype=int)
    with wb.Tape() as tape:
        wb.launch(to_cells, 3, inputs=[x, cell])
        wb.launch(gather, 3, inputs=[x, cell, y])
    backward(tape, y)
    assert x.grad.numpy().tolist() == [2.0, 1.0, 3.0]


def test_an_array_written_before_it_got_requires_grad_is_refused():
    w, x, y = made([1.0], False), made([1.0], False), made([0.0], False)
    with wb.Tape() as tape:
        wb.launch(square, 1, inputs=[w, x])
        x.requires_grad = True
        wb.launch(square, 1, inputs=[x, y])
    with pytest.raises(GradientError) as refusal:
        backward(tape, y)
    assert refusal.value.slug == "late-grad"


@wb.kernel
def to_and_fro(a: wb.array(dtype=F), b: wb.array(dtype=F)):
    i = wb.tid()
    a[i] = b[i]
    b[i] = b[i] * F(3.0)


def test_an_array_that_only_retains_its_gradient_is_followed_too():
    a, b = made([0.0], False), made([2.0], False)
    b.retain_grad = True
    with wb.Tape() as tape:
        wb.launch(to_and_fro, 1, inputs=[a, b])
    backward(tape, a, b)
    assert b.grad.numpy().tolist() == [1.0]


def test_assigning_from_an_array_with_a_gradient_is_an_event_and_starts_no_leaf():
    x, y = made([1.0, 2.0]), made([0.0, 0.0])
    with wb.Tape() as tape:
        y[0:2] = x
        wb.launch(square, 2, inputs=[y, y])
    backward(tape, y)
    assert x.grad.numpy().tolist() == [2.0, 4.0]


def test_a_tape_goes_on_from_the_gradient_that_a_later_tape_published_in_place():
    x, y = made([1.0, 2.0]), made([0.0, 0.0])
    with wb.Tape() as first:
        wb.launch(square, 2, inputs=[x, y])
    with wb.Tape() as second:
        wb.launch(square, 2, inputs=[y, y])
    backward(second, y)
    first.backward()
    assert x.grad.numpy().tolist() == [4.0, 32.0]


def test_backward_without_any_seed_is_refused():
    x, y = made([1.0]), made([0.0])
    with wb.Tape() as tape:
        wb.launch(square, 1, inputs=[x, y])
    with pytest.raises(GradientError) as refusal:
        tape.backward()
    assert refusal.value.slug == "no-seed"


@wb.kernel
def same_condition_twice(x: wb.array(dtype=F), n: int):
    f = F(0.5)
    if n % 2 == 0:
        f = x[0] * f
        if n % 2 == 0:
            f = x[1] * f
        x[0] = f
    if n % 2 == 0:
        x[1] = f * x[1]


def test_an_if_inside_an_if_on_the_same_condition_can_be_planned():
    x = made([2.0, 3.0])
    with wb.Tape() as tape:
        wb.launch(same_condition_twice, 1, inputs=[x, 2])
    backward(tape, x)
    assert x.grad.numpy().tolist() == [1.5 + 4.5, 1.0 + 6.0]


@wb.kernel
def old_value_of_another_cell(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    old = wb.atomic_add(x, 2, F(1.5))
    y[0] = old * old + x[0]


def test_the_cell_whose_old_value_an_atomic_returned_is_kept_for_the_reverse_pass():
    x, y = made([1.0, 2.0, 3.0]), made([0.0])
    with wb.Tape() as tape:
        wb.launch(old_value_of_another_cell, 1, inputs=[x, y])
    backward(tape, y)
    assert x.grad.numpy().tolist() == [1.0, 0.0, 6.0]


@wb.kernel
def only_old_values(c: wb.array(dtype=F), y: wb.array(dtype=F)):
    old = wb.atomic_add(c, 0, F(1.0))
    y[0] = old * old


def test_what_an_atomic_returned_carries_activity():
    c, y = made([3.0]), made([0.0], False)
    with wb.Tape() as tape:
        wb.launch(only_old_values, 1, inputs=[c, y])
    backward(tape, y)
    assert c.grad.numpy().tolist() == [6.0]


@wb.kernel
def one_cell_by_two_indices(x: wb.array(dtype=F), a: wb.array(dtype=F), y: wb.array(dtype=F)):
    x[0] = a[0]
    x[1] = a[1]
    y[0] = x[0] * x[0]


@pytest.mark.host_memory
def test_in_an_array_that_overlaps_itself_two_indices_may_be_one_cell():
    x = wb.from_numpy(np.lib.stride_tricks.as_strided(np.zeros(1), (3,), (0,)), dtype=F, requires_grad=True)
    a, y = made([2.0, 3.0]), made([0.0])
    with wb.Tape() as tape:
        wb.launch(one_cell_by_two_indices, 1, inputs=[x, a, y])
    backward(tape, y)
    assert a.grad.numpy().tolist() == [0.0, 6.0]


@wb.struct
class Halves:
    a: wb.float16
    b: wb.float16


@wb.kernel
def product(p: wb.array(dtype=Halves), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = float(p[i].a * p[i].b)


def test_float16_in_an_array_of_structs_has_no_room_for_its_gradient_and_is_refused():
    p, y = wb.zeros(2, dtype=Halves, requires_grad=True), wb.zeros(2, dtype=float)
    with wb.Tape(), pytest.raises(GradientError) as refusal:
        wb.launch(product, 2, inputs=[p, y])
    assert refusal.value.slug == "struct-float16"


@pytest.mark.host_memory
def test_numbers_that_do_not_lie_at_multiples_of_their_size_get_no_gradient():
    records = np.zeros(3, dtype=np.dtype([("n", "i4"), ("q", "f8")]))
    x, y = wb.from_numpy(records["q"], dtype=F, requires_grad=True), made([0.0] * 3)
    with wb.Tape(), pytest.raises(GradientError) as refusal:
        wb.launch(square, 3, inputs=[x, y])
    assert refusal.value.slug == "unaligned"
