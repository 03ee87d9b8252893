"""Programs that look like others of the other verdict."""
# ruff: noqa: UP018  `float(0.0)` declares a variable in Warp, `0.0` a constant

import numpy as np
import warp as wp

from tests.interop.warp.declare import Outcome, agrees, wrong
from tests.interop.warp.shared import fresh, square, weighted_sum


@wp.kernel
def descend(x: wp.array(dtype=float), g: wp.array(dtype=float), rate: float):
    i = wp.tid()
    x[i] = x[i] - rate * g[i]


@agrees(x=[1.0, 2.0, 3.0])
def optimizer_loop(x):
    """An optimizer's three steps: loss and gradients are zeroed, and x moves between them, outside the tape."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    for it in range(3):
        loss.zero_()
        tape = wp.Tape()
        with tape:
            wp.launch(square, dim=3, inputs=[x], outputs=[y])
            wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
        tape.backward(loss)
        if it < 2:
            wp.launch(descend, dim=3, inputs=[x, x.grad, 0.0])
            tape.zero()
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def step_before_backward_noop(x):
    """x is overwritten before the walk back, with the very values that it held."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    wp.launch(descend, dim=3, inputs=[x, y, 0.0])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("overwritten memory", launch="square", x=[1.0, 2.0, 3.0])
def step_before_backward(x):
    """x moves before the walk back."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    wp.launch(descend, dim=3, inputs=[x, y, 0.1])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def gather(x: wp.array(dtype=float), idx: wp.array(dtype=int), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[idx[i]] * 2.0


@wrong("host write", launch="gather", x=[1.0, 2.0, 3.0])
def index_overwritten(x):
    """Whole numbers can be what an adjoint needs: the index array is given other values."""
    x = wp.array(x, dtype=float, requires_grad=True)
    idx = wp.array(np.array([2, 0, 1]), dtype=int)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(gather, dim=3, inputs=[x, idx], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
        idx.assign(np.array([0, 1, 2], dtype=np.int32))
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def temporaries(x):
    """Arrays of a function that has returned; one of them without a gradient, which nothing depends on."""
    x = wp.array(x, dtype=float, requires_grad=True)
    loss = fresh(1)
    tape = wp.Tape()

    def step(a):
        t = wp.zeros(3, dtype=float, requires_grad=True)
        wp.launch(square, dim=3, inputs=[a], outputs=[t])
        u = wp.zeros(3, dtype=float)
        wp.launch(square, dim=3, inputs=[t], outputs=[u])
        return t

    with tape:
        a = x
        for k in range(3):
            a = step(a)
        wp.launch(weighted_sum, dim=3, inputs=[a], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def store_and_reload(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] * 3.0
    z = y[i] * y[i]
    y[i] = z * x[i]


@wrong("overwritten memory", launch="store_and_reload", x=[1.0, 2.0, 3.0])
def stored_and_reloaded(x):
    """A kernel stores a cell, reads it back, and stores it again."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(store_and_reload, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.func
def power(x: float, n: int):
    p = float(1.0)
    for k in range(n):
        p = p * x
    return p


@wp.kernel
def powers(x: wp.array(dtype=float), n: int, y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = power(x[i], n)


@wrong("dynamic loop in the kernel", launch="powers", x=[1.0, 2.0, 3.0])
def loop_in_func(x):
    """The dynamic loop stands in a func that the kernel calls."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(powers, dim=3, inputs=[x, 4], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def cond_sum(x: wp.array(dtype=float), n: int, y: wp.array(dtype=float)):
    i = wp.tid()
    s = float(0.0)
    for k in range(n):
        if x[k] > 1.5:
            s += x[k] * x[i]
        else:
            s -= x[k]
    y[i] = s


@agrees(x=[1.0, 2.0, 3.0])
def conditional_sums(x):
    """Sums in both branches of a dynamic loop."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(cond_sum, dim=3, inputs=[x, 3], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def biggest(x: wp.array(dtype=float), m: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_max(m, 0, x[i] * x[i])


@agrees(x=[1.0, -4.0, 3.0])
def atomic_maximum(x):
    """The largest of all, by `atomic_max`, without a tie."""
    x = wp.array(x, dtype=float, requires_grad=True)
    m = fresh(1)
    with wp.Tape() as tape:
        wp.launch(biggest, dim=3, inputs=[x], outputs=[m])
    tape.backward(m)
    return Outcome(m, {"x": x})


@wp.kernel
def pend(q: wp.array(dtype=float), w: wp.array(dtype=float), q1: wp.array(dtype=float), w1: wp.array(dtype=float)):
    i = wp.tid()
    a = -9.8 * wp.sin(q[i]) + 3.0 * wp.cos(2.0 * q[i]) * w[i]
    w1[i] = w[i] + 0.01 * a
    q1[i] = q[i] + 0.01 * w1[i]


@agrees(x=[1.0, 3.1, 0.2])
def long_chaotic(x):
    """Three hundred steps that amplify rounding: differences of the last places are no mistake."""
    x = wp.array(x, dtype=float, requires_grad=True)
    q = [x] + [fresh() for _ in range(300)]
    w = [fresh() for _ in range(301)]
    loss = fresh(1)
    with wp.Tape() as tape:
        for t in range(300):
            wp.launch(pend, dim=3, inputs=[q[t], w[t]], outputs=[q[t + 1], w[t + 1]])
        wp.launch(weighted_sum, dim=3, inputs=[q[300]], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def soft(x: wp.array(dtype=float), z: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(z, 0, wp.exp(x[i] - 3.0))


@wp.kernel
def soft2(x: wp.array(dtype=float), z: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = wp.exp(x[i] - 3.0) / z[0]


@agrees(x=[1.0, 2.0, 3.0])
def softmax(x):
    """A sum by atomics that every thread then divides by."""
    x = wp.array(x, dtype=float, requires_grad=True)
    z, y, loss = fresh(1), fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(soft, dim=3, inputs=[x], outputs=[z])
        wp.launch(soft2, dim=3, inputs=[x, z], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def retained(x):
    """Two passes with `tape.zero()` between; the array between the kernels keeps its gradient."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = wp.zeros(3, dtype=float, requires_grad=True, retain_grad=True)
    loss = fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    tape.zero()
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("leaked seed", launch="cond_sum", x=[1.0, 2.0, 3.0])
def retained_and_reused(x):
    """An array with `retain_grad` is written twice: its gradient is not cleared between."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = wp.zeros(3, dtype=float, requires_grad=True, retain_grad=True)
    loss = fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
        wp.launch(cond_sum, dim=3, inputs=[x, 3], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("overwritten memory", launch="square", x=[1.0, 2.0, 3.0, 4.0])
def partly_overwritten(x):
    """One cell of x is filled before the walk back."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(4), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=4, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=4, inputs=[y], outputs=[loss])
        x[1:2].fill_(9.0)
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("not on the tape", launch="square", x=[1.0, 2.0, 3.0])
def filled_output_between(x):
    """`fill_` takes the place of what a kernel wrote, and is not on Warp's tape."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        y.fill_(2.0)
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
        wp.launch(weighted_sum, dim=3, inputs=[x], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("not on the tape", launch="weighted_sum", x=[1.0, 2.0, 3.0])
def accumulated_scratch(x):
    """Scratch memory is zeroed for each of two sums by `zero_`, which is not on Warp's tape."""
    x = wp.array(x, dtype=float, requires_grad=True)
    s, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        for k in range(2):
            s.zero_()
            wp.launch(addsq, dim=3, inputs=[x], outputs=[s])
            wp.launch(weighted_sum, dim=3, inputs=[s], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def addsq(x: wp.array(dtype=float), s: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(s, (i + 1) % 3, x[i] * x[i])


@agrees(x=[1.0, 2.0, 3.0])
def adjoint_of_user_grad(x):
    """Two passes with seeds put in by hand; x.grad is their sum, as is meant."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = fresh()
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
    y.grad.fill_(1.0)
    tape.backward()
    y.grad.fill_(2.0)
    tape.backward()
    return Outcome([(y, 3.0)], {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def strided(x):
    """`wp.copy` into every other cell."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(6), fresh(1)
    with wp.Tape() as tape:
        wp.copy(y[::2], x)
        wp.launch(weighted_sum, dim=6, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 2.0, 3.0])
def y_used_twice(x):
    """A state that two losses read."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, z, loss = fresh(), fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(square, dim=3, inputs=[y], outputs=[z])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
        wp.launch(weighted_sum, dim=3, inputs=[z], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})
