"""How the walk back is asked for: seeds, several passes, several tapes, launches without a tape."""

import numpy as np
import warp as wp

from tests.interop.warp.declare import Outcome, agrees, wrong
from tests.interop.warp.shared import fresh, square, weighted_sum


@wp.kernel
def scattered(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(y, i, x[i] * x[i])
    wp.atomic_add(y, (i + 1) % 3, x[i])


@agrees(x=[1.0, 2.0, 3.0])
def seeds_as_grads(x):
    """`backward(grads=...)`: the product of the Jacobian with a row."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = fresh()
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
    tape.backward(grads={y: wp.array(np.array([1.0, -2.0, 0.5]), dtype=float)})
    return Outcome([(y, [1.0, -2.0, 0.5])], {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def seeds_in_grad(x):
    """Seeds put into `y.grad` by hand, and `backward()` without arguments."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = fresh()
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
    y.grad = wp.array(np.array([1.0, -2.0, 0.5]), dtype=float)
    tape.backward()
    return Outcome([(y, [1.0, -2.0, 0.5])], {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def zero_between_passes(x):
    """Three passes over one tape; `tape.zero()` and a seed for each. The gradient left is that of the last."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, z = fresh(), fresh()
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(scattered, dim=3, inputs=[y], outputs=[z])
    for row in np.eye(3):
        tape.zero()
        tape.backward(grads={z: wp.array(row, dtype=float)})
    return Outcome([(z, [0.0, 0.0, 1.0])], {"x": x})


@wrong("leaked seed", launch="scattered", x=[1.0, 2.0, 3.0])
def passes_without_zero(x):
    """Only `x.grad` is zeroed between passes: seeds of the first still stand in the gradient of y."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, z = fresh(), fresh()
    with wp.Tape() as tape:
        wp.launch(scattered, dim=3, inputs=[x], outputs=[y])
        wp.launch(scattered, dim=3, inputs=[x], outputs=[z])
    tape.backward(grads={y: wp.array(np.array([1.0, 1.0, 1.0]), dtype=float)})
    x.grad.zero_()
    tape.backward(grads={z: wp.array(np.array([1.0, 0.0, 0.0]), dtype=float)})
    return Outcome([(z, [1.0, 0.0, 0.0])], {"x": x})


@wrong("leaked seed", launch="weighted_sum", seen="agrees", x=[1.0, 2.0, 3.0])
def gradients_of_the_step_before(x):
    """An optimizer's second step over a tape recorded anew; nobody has zeroed `x.grad`."""
    x = wp.array(x, dtype=float, requires_grad=True)
    for _ in range(2):
        y, loss = fresh(), fresh(1)
        with wp.Tape() as tape:
            wp.launch(square, dim=3, inputs=[x], outputs=[y])
            wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
        tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def recorded_again_after_reset(x):
    """`tape.reset()` forgets launches and zeroes gradients before the program is recorded again."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    tape = wp.Tape()
    for _ in range(3):
        tape.reset()
        loss.zero_()
        with tape:
            wp.launch(square, dim=3, inputs=[x], outputs=[y])
            wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
        tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def two_tapes_in_a_row(x):
    """The gradient that the second tape leaves in `y.grad` is the seed of the first."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as first:
        wp.launch(scattered, dim=3, inputs=[x], outputs=[y])
    with wp.Tape() as second:
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    second.backward(loss)
    first.backward()
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def adjoint_launch_by_hand(x):
    """No tape: the adjoint of one launch, with gradients of its own."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = fresh()
    seed = wp.array(np.array([1.0, -2.0, 0.5]), dtype=float)
    wp.launch(square, dim=3, inputs=[x], outputs=[y])
    wp.launch(square, dim=3, inputs=[x], outputs=[y], adj_inputs=[x.grad], adj_outputs=[seed], adjoint=True)
    return Outcome([(y, [1.0, -2.0, 0.5])], {"x": x})


@wrong("not on the tape", launch="square", x=[1.0, 2.0, 3.0])
def recorded_launch(x):
    """A launch made with `record_cmd` and started under the tape is not on the tape."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    command = wp.launch(square, dim=3, inputs=[x], outputs=[y], record_cmd=True)
    with wp.Tape() as tape:
        command.launch()
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def halve(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = 0.5 * x[i] + 0.1 * x[i] * x[i]


@wp.kernel
def count_down(left: wp.array(dtype=int)):
    left[0] = left[0] - 1


@wrong("overwritten memory", launch="halve", x=[1.0, 2.0, 3.0])
def capture_while(x):
    """`wp.capture_while` runs its body on a CPU as often as needed; every turn overwrites the state."""
    x = wp.array(x, dtype=float, requires_grad=True)
    now, new, loss = fresh(), fresh(), fresh(1)
    left = wp.array(np.array([3]), dtype=int)

    def turn():
        wp.launch(halve, dim=3, inputs=[now], outputs=[new])
        wp.copy(now, new)
        wp.launch(count_down, dim=1, inputs=[left])

    with wp.Tape() as tape:
        wp.copy(now, x)
        wp.capture_while(left, turn)
        wp.launch(weighted_sum, dim=3, inputs=[now], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def capture_if(x):
    """`wp.capture_if` runs the branch that the condition asks for, on the tape like any other launch."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    yes = wp.array(np.array([1]), dtype=int)
    with wp.Tape() as tape:
        wp.capture_if(
            yes,
            lambda: wp.launch(halve, dim=3, inputs=[x], outputs=[y]),
            lambda: wp.launch(square, dim=3, inputs=[x], outputs=[y]),
        )
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("not on the tape", x=[1.0, 2.0, 3.0])
def sum_by_utils(x):
    """`wp.utils.array_sum` leaves nothing on the tape."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.utils.array_sum(y, out=loss)
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("not on the tape", x=[1.0, 2.0, 3.0])
def scan_by_utils(x):
    """`wp.utils.array_scan` leaves nothing on the tape."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, z, loss = fresh(), fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.utils.array_scan(y, z, inclusive=True)
        wp.launch(weighted_sum, dim=3, inputs=[z], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("not on the tape", launch="square", seen="no row", x=[1.0, 2.0, 3.0])
def started_before_the_tape(x):
    """The first launch runs before the tape begins: no adjoint of it is ever run."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    wp.launch(square, dim=3, inputs=[x], outputs=[y])
    with wp.Tape() as tape:
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def gradients_that_add_up(x):
    """Two losses of one state, two passes, no zero between: what adds up in `x.grad` is the gradient of their sum."""
    x = wp.array(x, dtype=float, requires_grad=True)
    a, b = fresh(1), fresh(1)
    with wp.Tape() as first:
        wp.launch(weighted_sum, dim=3, inputs=[x], outputs=[a])
    first.backward(a)
    y = fresh()
    with wp.Tape() as second:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[b])
    second.backward(b)
    return Outcome([(a, 1.0), (b, 1.0)], {"x": x})


@agrees(seen="unverified", x=[1.0, 2.0, 3.0])
def function_on_the_tape(x):
    """`record_func` with an adjoint that is right, for a step that NumPy took."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        y.assign(np.sin(x.numpy()))

        def back():
            x.grad.assign(x.grad.numpy() + np.cos(x.numpy()) * y.grad.numpy())
            y.grad.zero_()

        tape.record_func(back, [x, y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})
