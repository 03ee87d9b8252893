"""What lies between two walks back, and places without a derivative on the way."""

import numpy as np
import warp as wp

from tests.interop.warp.declare import Outcome, agrees, wrong
from tests.interop.warp.shared import fresh, square, weighted_sum


@wp.kernel
def drag(v: wp.array(dtype=wp.vec3), f: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    f[i] = -2.0 * wp.length(v[i]) * wp.normalize(v[i])


@wp.kernel
def roots_above_zero(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = wp.where(x[i] > 0.0, wp.sqrt(x[i]), 2.0 * x[i])


@wp.kernel
def lengths(v: wp.array(dtype=wp.vec3), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = wp.length(v[i])


def walked(x):
    """The gradient of the sum of squares of x is left in x.grad."""
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return loss


def by_kernel(kernel, x, dtype):
    """One launch from x to as many elements, walked back from ones."""
    name = kernel.adj.args[0].label
    x = wp.array(x, dtype=dtype, requires_grad=True)
    y = wp.zeros_like(x)
    with wp.Tape() as tape:
        wp.launch(kernel, dim=len(x), inputs=[x], outputs=[y])
    ones = np.ones_like(y.numpy())
    tape.backward(grads={y: wp.array(ones, dtype=dtype)})
    return Outcome([(y, ones)], {name: x})


@wrong("leaked seed", launch="square", x=[1.0, 2.0, 3.0])
def cloned_with_its_gradient(x):
    """`wp.clone` brings the gradient along that a walk has left, and the next walk adds to it."""
    before = wp.array(x, dtype=float, requires_grad=True)
    walked(before)
    x = wp.clone(before)
    return Outcome(walked(x), {"x": x})


@wrong("leaked seed", launch="square", x=[1.0, 2.0, 3.0])
def copied_with_its_gradient(x):
    """So does `wp.copy`."""
    before = wp.array(x, dtype=float, requires_grad=True)
    walked(before)
    x = fresh()
    wp.copy(x, before)
    return Outcome(walked(x), {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def cloned_and_cleared(x):
    """With a zero behind the copy."""
    before = wp.array(x, dtype=float, requires_grad=True)
    walked(before)
    x = wp.clone(before)
    x.grad.zero_()
    return Outcome(walked(x), {"x": x})


@wrong("leaked seed", launch="square", x=[1.0, 2.0, 3.0])
def grad_of_torch_set_to_none(x):
    """`tensor.grad = None` clears nothing of Warp's: the next walk adds to what the one before has left."""
    import torch

    tensor = torch.tensor(x, requires_grad=True)
    x = wp.from_torch(tensor)
    walked(x)
    tensor.grad = None
    return Outcome(walked(x), {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def grad_of_torch_cleared(x):
    """With a zero beside it."""
    import torch

    tensor = torch.tensor(x, requires_grad=True)
    x = wp.from_torch(tensor)
    walked(x)
    tensor.grad = None
    x.grad.zero_()
    return Outcome(walked(x), {"x": x})


@wrong("used-up seed", launch="square", x=[1.0, 2.0, 3.0])
def seed_put_again(x):
    """One array is `y.grad` in two walks: the first has set it to 0."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, seed = fresh(), wp.array(np.array([1.0, -2.0, 0.5]), dtype=float)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
    for _ in range(2):
        x.grad.zero_()
        y.grad = seed
        tape.backward()
    return Outcome([(y, [1.0, -2.0, 0.5])], {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def seed_filled_again(x):
    """The same with a seed that is filled for each walk."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = fresh()
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
    for _ in range(2):
        x.grad.zero_()
        y.grad.assign(np.array([1.0, -2.0, 0.5], np.float32))
        tape.backward()
    return Outcome([(y, [1.0, -2.0, 0.5])], {"x": x})


@wrong("missing requires_grad", seen="meant", x=[1.0, 2.0, 3.0])
def cut_by_a_clone(x):
    """A clone with requires_grad=False is a constant: that is said in Warp's manual, and meant."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
        kept = wp.clone(x, requires_grad=False)
        wp.launch(weighted_sum, dim=3, inputs=[kept], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("adjoint of the kernel", launch="drag", v=[[0.0, 0.0, 0.0], [1.0, 2.0, 2.0]])
def drag_at_rest(v):
    """-2 |v| times the direction of v is -2 v, also at rest, where the direction has no slope."""
    return by_kernel(drag, v, wp.vec3)


@agrees(exact={"v": [[0.0, 0.0, 0.0], [1 / 3, 2 / 3, 2 / 3]]}, v=[[0.0, 0.0, 0.0], [1.0, 2.0, 2.0]])
def length_at_rest(v):
    """The length of a zero vector has no slope: 0 by convention, in Warp too."""
    v = wp.array(v, dtype=wp.vec3, requires_grad=True)
    y = fresh(2)
    with wp.Tape() as tape:
        wp.launch(lengths, dim=2, inputs=[v], outputs=[y])
    tape.backward(grads={y: wp.array(np.ones(2), dtype=float)})
    return Outcome([(y, [1.0, 1.0])], {"v": v})


@wrong("adjoint of the kernel", launch="roots_above_zero", x=[-1.0, 4.0, -2.0])
def root_that_is_left_out(x):
    """`wp.where` takes the other side, and the root of a negative number makes the gradient NaN."""
    return by_kernel(roots_above_zero, x, float)
