"""Ordinary programs: every output has memory of its own, and Warp is right."""

from typing import Any

import numpy as np
import warp as wp

from tests.interop.warp.declare import Outcome, agrees
from tests.interop.warp.shared import square, weighted_sum


@wp.kernel
def wave(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = wp.sin(x[i]) * wp.exp(0.5 * x[i])


@agrees(x=[1.0, 2.0, 3.0])
def chain(x):
    """Two kernels in a row and a sum: nothing is written twice."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = wp.zeros(3, dtype=float, requires_grad=True)
    z = wp.zeros(3, dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(wave, dim=3, inputs=[x], outputs=[y])
        wp.launch(square, dim=3, inputs=[y], outputs=[z])
        wp.launch(weighted_sum, dim=3, inputs=[z], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def rotate_and_scale(v: wp.array(dtype=wp.vec3), m: wp.array(dtype=wp.mat33), out: wp.array(dtype=float)):
    i = wp.tid()
    w = m[0] * v[i]
    out[i] = wp.dot(w, w) + wp.length(wp.cross(w, v[i]))


@agrees(v=[[1.0, 0.5, -0.3], [0.2, 2.0, 0.7]], m=[[[1.0, 0.3, 0.0], [0.1, 1.2, 0.4], [0.5, 0.0, 0.9]]])
def vectors_and_matrices(v, m):
    """Vector algebra in one kernel."""
    v = wp.array(v, dtype=wp.vec3, requires_grad=True)
    m = wp.array(m, dtype=wp.mat33, requires_grad=True)
    out = wp.zeros(2, dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(rotate_and_scale, dim=2, inputs=[v, m], outputs=[out])
        wp.launch(weighted_sum, dim=2, inputs=[out], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"v": v, "m": m})


@wp.kernel
def turn(q: wp.array(dtype=wp.quat), p: wp.array(dtype=wp.vec3), out: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    out[i] = wp.quat_rotate(wp.normalize(q[i]), p[i])


@wp.kernel
def height(p: wp.array(dtype=wp.vec3), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = p[i][2] + 2.0 * p[i][0] * p[i][1]


@agrees(q=[[0.1, 0.4, -0.2, 0.9]], p=[[1.0, 2.0, 3.0]])
def quaternions(q, p):
    """A point turned by a quaternion that is brought to length one first."""
    q = wp.array(q, dtype=wp.quat, requires_grad=True)
    p = wp.array(p, dtype=wp.vec3, requires_grad=True)
    turned = wp.zeros(1, dtype=wp.vec3, requires_grad=True)
    out = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(turn, dim=1, inputs=[q, p], outputs=[turned])
        wp.launch(height, dim=1, inputs=[turned], outputs=[out])
    tape.backward(out)
    return Outcome(out, {"q": q, "p": p})


@wp.kernel
def spring_forces(x: wp.array(dtype=float), ends: wp.array2d(dtype=int), force: wp.array(dtype=float)):
    s = wp.tid()
    a = ends[s, 0]
    b = ends[s, 1]
    pull = (x[b] - x[a]) * (x[b] - x[a])
    wp.atomic_add(force, a, pull)
    wp.atomic_sub(force, b, pull)


@agrees(x=[0.0, 1.0, 2.5, 3.0])
def springs(x):
    """Gathers by an index array, scatters by atomics."""
    x = wp.array(x, dtype=float, requires_grad=True)
    ends = wp.array(np.array([[0, 1], [1, 2], [2, 3], [0, 3]]), dtype=int)
    force = wp.zeros(4, dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(spring_forces, dim=4, inputs=[x, ends], outputs=[force])
        wp.launch(weighted_sum, dim=4, inputs=[force], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def cubed(x: wp.array(dtype=Any), y: wp.array(dtype=Any)):
    i = wp.tid()
    y[i] = x[i] * x[i] * x[i]


@agrees(x=[1.0, -2.0, 0.5])
def generic_kernel(x):
    """A kernel whose types are left to the launch."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = wp.zeros(3, dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(cubed, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


def polynomial(power: int, shape: Any):
    """A kernel made by a factory: it closes over a number and a func."""

    @wp.kernel
    def powers(x: wp.array(dtype=float), y: wp.array(dtype=float)):
        i = wp.tid()
        p = x[i]
        for _ in range(wp.static(power - 1)):
            p = p * shape(x[i])
        y[i] = p

    return powers


@wp.func
def shifted(x: float):
    return x + 1.0


@wp.func
def halved(x: float):
    return 0.5 * x


@agrees(x=[1.0, -2.0, 0.5])
def factories_and_closures(x):
    """Two kernels of one factory, with other constants and other funcs; their loops are unrolled."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = wp.zeros(3, dtype=float, requires_grad=True)
    z = wp.zeros(3, dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(polynomial(3, shifted), dim=3, inputs=[x], outputs=[y])
        wp.launch(polynomial(2, halved), dim=3, inputs=[y], outputs=[z])
        wp.launch(weighted_sum, dim=3, inputs=[z], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def blurred(image: wp.array2d(dtype=float), out: wp.array2d(dtype=float)):
    i, j = wp.tid()
    rows = image.shape[0]
    columns = image.shape[1]
    total = image[i, j] * image[i, j]
    if i > 0:
        total += image[i - 1, j]
    if i < rows - 1:
        total += 0.5 * image[i + 1, j]
    if j < columns - 1:
        total += image[i, j] * image[i, j + 1]
    out[i, j] = total


@wp.kernel
def energy(image: wp.array2d(dtype=float), loss: wp.array(dtype=float)):
    i, j = wp.tid()
    wp.atomic_add(loss, 0, image[i, j] * image[i, j] * float(i + 2 * j + 1))


@agrees(image=[[1.0, 2.0, 0.5], [-1.0, 0.3, 0.7]])
def stencil(image):
    """A stencil on two dimensions, launched with a tuple."""
    image = wp.array(image, dtype=float, requires_grad=True)
    out = wp.zeros((2, 3), dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(blurred, dim=(2, 3), inputs=[image], outputs=[out])
        wp.launch(energy, dim=out.shape, inputs=[out], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"image": image})


@wp.kernel
def pushed(
    v: wp.array(dtype=float),
    x: wp.array(dtype=float),
    dt: float,
    k: float,
    v_new: wp.array(dtype=float),
    x_new: wp.array(dtype=float),
):
    i = wp.tid()
    v_new[i] = v[i] - dt * k * wp.sin(x[i])
    x_new[i] = x[i] + dt * v_new[i]


@agrees(x0=[0.3, 1.2], v0=[0.0, -0.5])
def states_of_their_own(x0, v0):
    """Twenty steps of a pendulum, with an array for each moment."""
    x = [wp.array(x0, dtype=float, requires_grad=True)] + [
        wp.zeros(2, dtype=float, requires_grad=True) for _ in range(20)
    ]
    v = [wp.array(v0, dtype=float, requires_grad=True)] + [
        wp.zeros(2, dtype=float, requires_grad=True) for _ in range(20)
    ]
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        for t in range(20):
            wp.launch(pushed, dim=2, inputs=[v[t], x[t], 0.1, 4.0], outputs=[v[t + 1], x[t + 1]])
        wp.launch(weighted_sum, dim=2, inputs=[x[20]], outputs=[loss])
    tape.backward(loss)
    x0, v0 = x[0], v[0]
    return Outcome(loss, {"x0": x0, "v0": v0})


@wp.kernel
def step_and_count(x: wp.array(dtype=float), y: wp.array(dtype=float), loss: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] + 0.1 * wp.cos(x[i])
    wp.atomic_add(loss, 0, x[i] * x[i])


@agrees(x0=[0.3, 1.2])
def loss_over_steps(x0):
    """Every step adds to one loss; sums need no former value."""
    x0 = wp.array(x0, dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        x = x0
        for _ in range(5):
            y = wp.zeros_like(x)
            wp.launch(step_and_count, dim=2, inputs=[x], outputs=[y, loss])
            x = y
    tape.backward(loss)
    return Outcome(loss, {"x0": x0})


@wp.kernel
def drawn(seed: int, noise: wp.array(dtype=float)):
    i = wp.tid()
    state = wp.rand_init(seed, i)
    noise[i] = float(wp.randi(state, 0, 7))


@wp.kernel
def scaled_by(x: wp.array(dtype=float), noise: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = noise[i] * x[i] * x[i]


@agrees(x=[1.0, 0.5, -0.7])
def random_draws(x):
    """Whole numbers drawn in one kernel scale another's values; draws depend on no input."""
    x = wp.array(x, dtype=float, requires_grad=True)
    noise = wp.zeros(3, dtype=float)
    y = wp.zeros(3, dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(drawn, dim=3, inputs=[42], outputs=[noise])
        wp.launch(scaled_by, dim=3, inputs=[x, noise], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def tile_energy(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    t = wp.tile_load(x, shape=4, offset=4 * i)
    s = wp.tile_sum(t * t)
    wp.tile_store(out, s, offset=i)


@agrees(x=[1.0, -2.0, 0.5, 3.0, 0.1, 0.2, 0.3, 0.4])
def tiles(x):
    """Blocks of four cells, loaded as tiles and summed."""
    x = wp.array(x, dtype=float, requires_grad=True)
    out = wp.zeros(2, dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch_tiled(tile_energy, dim=[2], inputs=[x], outputs=[out], block_dim=32)
        wp.launch(weighted_sum, dim=2, inputs=[out], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.func
def bump(a: float, b: float):
    return a * b + wp.sin(a)


@agrees(x=[1.0, 0.5, -0.7], y=[2.0, 0.1, 0.3])
def mapped(x, y):
    """`wp.map` of a func over two arrays."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = wp.array(y, dtype=float, requires_grad=True)
    z = wp.zeros(3, dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.map(bump, x, y, out=z)
        wp.launch(weighted_sum, dim=3, inputs=[z], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x, "y": y})


@agrees(x=[1.0, 0.5, -0.7], y=[2.0, 0.1, 0.3])
def mapped_lambda(x, y):
    """`wp.map` of a lambda, whose text Warp takes out of the file."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = wp.array(y, dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        z = wp.map(lambda a, b: a * b + wp.sin(a), x, y)
        wp.launch(weighted_sum, dim=3, inputs=[z], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x, "y": y})


@agrees(x=[3.0, 1.0, 2.0])
def sorted_order(x):
    """The order comes from `radix_sort_pairs` on other arrays; values are gathered by it."""
    order = wp.array(np.array([2, 0, 1, 0, 0, 0]), dtype=int)
    keys = wp.array(np.array([3, 1, 2, 0, 0, 0]), dtype=int)
    x = wp.array(x, dtype=float, requires_grad=True)
    y = wp.zeros(3, dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    wp.utils.radix_sort_pairs(keys, order, 3)
    with wp.Tape() as tape:
        wp.launch(gathered, dim=3, inputs=[x, order], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def gathered(x: wp.array(dtype=float), order: wp.array(dtype=int), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[order[i]] * x[order[i]]
