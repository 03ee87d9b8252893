"""What happens to memory between a kernel and its adjoint: copies, fills, views, overwrites."""

import numpy as np
import warp as wp

from tests.interop.warp.declare import Outcome, agrees, wrong
from tests.interop.warp.shared import fresh, square, weighted_sum


@wp.kernel
def double(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = 2.0 * x[i]


@wp.kernel
def square_in_place(x: wp.array(dtype=float)):
    i = wp.tid()
    x[i] = x[i] * x[i]


@wp.kernel
def add_square(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] += x[i] * x[i]


@wp.kernel
def grown(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] + 0.1 * x[i] * x[i]


@wp.kernel
def diffused(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    n = x.shape[0]
    y[i] = x[i] + 0.2 * (x[(i + 1) % n] - 2.0 * x[i] + x[(i + n - 1) % n])


@wrong("overwritten memory", launch="square", x=[1.0, 2.0, 3.0])
def zeroed_before_backward(x):
    """x is needed by the adjoint of `square`, and is 0 by then."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
        x.zero_()
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def filled_after_last_use(x):
    """y is used by a sum alone, whose adjoint needs no value of y: filling it harms nobody."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
        y.fill_(7.0)
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("overwritten memory", launch="square", x=[1.0, 2.0, 3.0])
def copied_over_its_input(x):
    """The result of a kernel is copied over what it read."""
    x = wp.array(x, dtype=float, requires_grad=True)
    state, y, loss = fresh(), fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.copy(state, x)
        wp.launch(square, dim=3, inputs=[state], outputs=[y])
        wp.copy(state, y)
        wp.launch(weighted_sum, dim=3, inputs=[state], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 2.0, 3.0, 4.0])
def copied_with_offsets(x):
    """Two parts of x change places by `wp.copy` with offsets."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, z, loss = fresh(4), fresh(4), fresh(1)
    with wp.Tape() as tape:
        wp.copy(y, x, dest_offset=2, src_offset=0, count=2)
        wp.copy(y, x, dest_offset=0, src_offset=2, count=2)
        wp.launch(square, dim=4, inputs=[y], outputs=[z])
        wp.launch(weighted_sum, dim=4, inputs=[z], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def cloned_before_overwriting(x):
    """What the adjoint needs is cloned first; the clone is on the tape."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        kept = wp.clone(x)
        wp.launch(square, dim=3, inputs=[kept], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
        x.zero_()
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("overwritten memory", launch="square_in_place", x=[1.0, 2.0, 3.0])
def squared_in_place(x):
    """One kernel reads a cell, and writes its square into the same cell."""
    x = wp.array(x, dtype=float, requires_grad=True)
    state, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.copy(state, x)
        wp.launch(square_in_place, dim=3, inputs=[state])
        wp.launch(weighted_sum, dim=3, inputs=[state], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 2.0, 3.0], y=[0.5, 0.25, 1.0])
def added_in_place(x, y):
    """`y[i] += ...` is an atomic sum in Warp; the adjoint of a sum needs no former value."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = wp.array(y, dtype=float, requires_grad=True)
    loss = fresh(1)
    with wp.Tape() as tape:
        wp.launch(add_square, dim=3, inputs=[x], outputs=[y])
        wp.launch(add_square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x, "y": y})


@wrong("overwritten memory", launch="grown", x=[1.0, 0.5, -0.7])
def twenty_steps_in_two_buffers(x):
    """Two states change places for twenty steps; each step's adjoint needs a state that is gone."""
    x = wp.array(x, dtype=float, requires_grad=True)
    now, new, loss = fresh(), fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.copy(now, x)
        for _ in range(20):
            wp.launch(grown, dim=3, inputs=[now], outputs=[new])
            now, new = new, now
        wp.launch(weighted_sum, dim=3, inputs=[now], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 0.5, -0.7])
def linear_steps_in_two_buffers(x):
    """Diffusion in two buffers: the adjoint of a linear step needs no state, and Warp zeroes what it has used."""
    x = wp.array(x, dtype=float, requires_grad=True)
    now, new, loss = fresh(), fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.copy(now, x)
        for _ in range(20):
            wp.launch(diffused, dim=3, inputs=[now], outputs=[new])
            now, new = new, now
        wp.launch(weighted_sum, dim=3, inputs=[now], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 0.5, -0.7, 0.2, 0.9])
def slices_of_one_array(x):
    """Kernels on two slices; the gradient of a slice lies in the gradient of the whole."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(5), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=2, inputs=[x[0:2]], outputs=[y[3:5]])
        wp.launch(double, dim=3, inputs=[x[2:5]], outputs=[y[0:3]])
        wp.launch(weighted_sum, dim=5, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[[1.0, 0.5], [-0.7, 0.2], [2.0, 0.1]])
def reshaped(x):
    """A matrix as a row of cells; strides and gradients go with the view."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = wp.zeros((3, 2), dtype=float, requires_grad=True), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=6, inputs=[x.flatten()], outputs=[y.reshape(6)])
        wp.launch(weighted_sum, dim=6, inputs=[y.flatten()], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("alias", launch="weighted_sum", x=[1.0, 2.0, 3.0])
def second_array_on_the_same_memory(x):
    """A kernel writes y; the next one reads the memory of y through an array that has a gradient of its own."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    other = wp.array(ptr=y.ptr, shape=(3,), dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[other], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("alias", launch="square", x=[1.0, 2.0, 3.0])
def input_read_through_a_second_array(x):
    """The only kernel that reads x takes its memory as an array that has a gradient of its own."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, copied, loss = fresh(), fresh(), fresh(1)
    other = wp.array(ptr=x.ptr, shape=(3,), dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.copy(copied, x)
        wp.launch(square, dim=3, inputs=[other], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("overwritten memory", launch="square_in_place", x=[1.0, 2.0, 3.0])
def copied_and_overwritten_on_the_first_of_two_tapes(x):
    """A copy of x is squared where it lies; the loss is on another tape, which starts from what the first has made."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    first, second = wp.Tape(), wp.Tape()
    with first:
        wp.launch(square, dim=3, inputs=[y], outputs=[fresh()])
        wp.copy(y, x)
        wp.launch(square_in_place, dim=3, inputs=[y])
    with second:
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    second.backward(loss)
    first.backward()
    return Outcome(loss, {"x": x})


@wrong("host write", launch="square", x=[1.0, 2.0, 3.0])
def assigned_by_the_host(x):
    """The host gives x its next values before the walk back."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    x.assign(np.array([10.0, 10.0, 10.0]))
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("host write", launch="square", x=[1.0, 2.0, 3.0])
def written_through_numpy(x):
    """On a CPU `x.numpy()` is the memory of x itself."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
        x.numpy()[:] *= 10.0
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("host write", launch="square", exact={"x": [2.0, 8.0, 18.0]}, x=[1.0, 2.0, 3.0])
def scaled_by_torch(x):
    """A PyTorch tensor lends its memory, and is scaled in place before the walk back."""
    import torch

    tensor = torch.tensor(x)
    x = wp.from_torch(tensor, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tensor.mul_(10.0)
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(exact={"x": [2.0, 8.0, 18.0]}, x=[1.0, 2.0, 3.0])
def lent_by_torch(x):
    """A PyTorch tensor lends its memory, and is left alone."""
    import torch

    x = wp.from_torch(torch.tensor(x), requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def looked_up(table: wp.indexedarray(dtype=float), weights: wp.array(dtype=float)):
    i = wp.tid()
    weights[i] = table[i]


@wp.kernel
def product(x: wp.array(dtype=float), weights: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = weights[i] * x[i] * x[i]


@agrees(x=[1.0, 2.0, 3.0])
def indexed_array(x):
    """Constants are looked up through an indexed array before the tape begins (Warp's walk back cannot pass one)."""
    x = wp.array(x, dtype=float, requires_grad=True)
    table = wp.array(np.array([5.0, 6.0, 7.0, 8.0]), dtype=float)
    chosen = wp.indexedarray1d(table, [wp.array(np.array([2, 0, 3]), dtype=int)])
    weights, y, loss = wp.zeros(3, dtype=float), fresh(), fresh(1)
    wp.launch(looked_up, dim=3, inputs=[chosen], outputs=[weights])
    with wp.Tape() as tape:
        wp.launch(product, dim=3, inputs=[x, weights], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("race", launch="all_to_one", seen="unverified", x=[1.0, 2.0, 3.0])
def several_writers(x):
    """Every thread writes cell 0 and the last stays; Warp pays out the gradient to another."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = fresh(1)
    with wp.Tape() as tape:
        wp.launch(all_to_one, dim=3, inputs=[x], outputs=[y])
    tape.backward(y)
    return Outcome(y, {"x": x})


@wp.kernel
def all_to_one(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[0] = x[i] * x[i]


@wrong("missing requires_grad", launch="weighted_sum", x=[1.0, 2.0, 3.0])
def step_without_requires_grad(x):
    """The array between two kernels has no gradient: the way back ends there without a word."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = wp.zeros(3, dtype=float), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.func
def counted(count: wp.array(dtype=float)):
    wp.atomic_add(count, 0, 1.0)


@wp.kernel
def squared_and_counted(x: wp.array(dtype=float), count: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    counted(count)
    y[i] = x[i] * x[i]


@wp.kernel
def divided(x: wp.array(dtype=float), count: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] / count[0]


def counted_twice(kernel, x):
    """The same count is made twice, and the first is used."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, z, loss = wp.zeros_like(x), wp.zeros_like(x), wp.zeros(3, dtype=float, requires_grad=True)
    count = wp.zeros(1, dtype=float)
    with wp.Tape() as tape:
        wp.launch(kernel, dim=3, inputs=[x, count], outputs=[y])
        wp.launch(divided, dim=3, inputs=[y, count], outputs=[z])
        count.zero_()
        wp.launch(kernel, dim=3, inputs=[z, count], outputs=[loss])
    tape.backward(grads={loss: wp.array(np.ones(3), dtype=float)})
    return Outcome(loss, {"x": x})


@wrong("overwritten memory", launch="divided", x=[1.0, 2.0, 3.0])
def count_in_a_func(x):
    """Warp's adjoint of a kernel calls its funcs again, which count again: 3 becomes 6 before it is divided by."""
    return counted_twice(squared_and_counted, x)
