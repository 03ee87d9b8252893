"""What launches are given: structs, vectors and lists that the host changes, seeds, builtins without an adjoint."""
# ruff: noqa: UP018  `float(0.0)` declares a variable in Warp, `0.0` a constant

import numpy as np
import warp as wp

from tests.interop.warp.declare import Outcome, agrees, wrong
from tests.interop.warp.shared import fresh, square, weighted_sum


@wp.struct
class Spring:
    stiffness: float
    x: wp.array(dtype=float)


@wp.struct
class Body:
    q: wp.array(dtype=float)
    v: wp.array(dtype=float)


@wp.struct
class Point:
    p: wp.vec3
    m: float


@wp.kernel
def square_and_cost(x: wp.array(dtype=float), y: wp.array(dtype=float), cost: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] * x[i]
    wp.atomic_add(cost, 0, wp.exp(x[i]))


@wp.kernel
def pulled(s: Spring, y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = s.stiffness * s.x[i] * s.x[i]


@wp.kernel
def moved(a: Body, b: Body, dt: float):
    i = wp.tid()
    v = a.v[i] - dt * wp.sin(a.q[i])
    b.v[i] = v
    b.q[i] = a.q[i] + dt * v


@wp.kernel
def reached(a: Body, out: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(out, 0, float(i + 1) * a.q[i] * a.q[i])


@wp.kernel
def scaled(x: wp.array(dtype=float), k: float, y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = k * x[i] * x[i]


@wp.kernel
def along(x: wp.array(dtype=wp.vec3), g: wp.vec3, y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = wp.dot(x[i], g) * wp.dot(x[i], x[i])


@wp.kernel
def gathered(x: wp.array(dtype=float), n: int, y: wp.array(dtype=float)):
    i = wp.tid()
    v = wp.vec3()
    for k in range(n):
        v[k] = x[k] * x[i]
    y[i] = wp.dot(v, v)


@wp.kernel
def placed(x: wp.array(dtype=float), p: wp.array(dtype=Point)):
    i = wp.tid()
    made = Point()
    made.m = x[i]
    made.p = wp.vec3(x[i] * x[i], 1.0, x[i])
    p[i] = made


@wp.kernel
def pushed(p: wp.array(dtype=Point), dt: float):
    i = wp.tid()
    p[i].p = p[i].p + p[i].p * (dt * p[i].m)


@wp.kernel
def measured(p: wp.array(dtype=Point), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = p[i].m * wp.dot(p[i].p, p[i].p)


@wp.kernel
def largest_times(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    t = wp.tile_load(x, shape=4, offset=4 * i)
    wp.tile_store(y, wp.tile_max(t) * wp.tile_sum(t), offset=i)


@wp.func
def next_place(count: wp.array(dtype=int), places: wp.array(dtype=int), i: int):
    k = wp.atomic_add(count, 0, 1)
    places[i] = k
    return k


@wp.func_replay(next_place)
def noted_place(count: wp.array(dtype=int), places: wp.array(dtype=int), i: int):
    return places[i]


@wp.kernel
def compacted(
    x: wp.array(dtype=float), count: wp.array(dtype=int), places: wp.array(dtype=int), y: wp.array(dtype=float)
):
    i = wp.tid()
    if x[i] > 0.0:
        k = next_place(count, places, i)
        y[k] = x[i] * x[i] * x[i]


def body(q, v):
    made = Body()
    made.q, made.v = q, v
    return made


@wrong("host write", launch="pulled", x=[1.0, 2.0, -0.5])
def number_in_a_struct_changed(x):
    """One struct for all launches, with another number each time: Warp's tape has the struct, which has the last."""
    x = wp.array(x, dtype=float, requires_grad=True)
    spring, loss = Spring(), fresh(1)
    spring.x = x
    with wp.Tape() as tape:
        for n in range(3):
            y = fresh()
            spring.stiffness = 1.0 + n
            wp.launch(pulled, dim=3, inputs=[spring], outputs=[y])
            wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("host write", launch="moved", x=[0.3, 1.0], v=[0.2, -0.1])
def arrays_in_structs_change_places(x, v):
    """Two structs exchange their arrays after each step; Warp's tape has the structs as they are in the end."""
    x, v = (wp.array(a, dtype=float, requires_grad=True) for a in (x, v))
    a, b, loss = body(x, v), body(fresh(2), fresh(2)), fresh(1)
    with wp.Tape() as tape:
        for _ in range(2):
            wp.launch(moved, dim=2, inputs=[a, b, 0.4])
            a.q, b.q = b.q, a.q
            a.v, b.v = b.v, a.v
        wp.launch(reached, dim=2, inputs=[a], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x, "v": v})


@wrong("host write", launch="moved", x=[0.3, 1.0], v=[0.2, -0.1])
def arrays_in_structs_replaced(x, v):
    """A struct gets new arrays for each step. The first ones are in no argument any more when Warp walks back."""
    x, v = (wp.array(a, dtype=float, requires_grad=True) for a in (x, v))
    a, b, loss, kept = body(x, v), Body(), fresh(1), []
    with wp.Tape() as tape:
        for _ in range(3):
            b.q, b.v = fresh(2), fresh(2)
            kept += [b.q, b.v]
            wp.launch(moved, dim=2, inputs=[a, b, 0.4])
            a.q, a.v = b.q, b.v
        wp.launch(reached, dim=2, inputs=[a], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x, "v": v})


@agrees(x=[1.0, 2.0, -0.5])
def number_in_a_struct_that_nobody_needs(x):
    """The number changes behind the last launch that uses it, and back again before the walk."""
    x = wp.array(x, dtype=float, requires_grad=True)
    spring, y, loss = Spring(), fresh(), fresh(1)
    spring.x, spring.stiffness = x, 2.0
    with wp.Tape() as tape:
        wp.launch(pulled, dim=3, inputs=[spring], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    spring.stiffness = 3.0
    spring.stiffness = 2.0
    tape.backward(loss)
    spring.stiffness = 4.0
    return Outcome(loss, {"x": x})


@wrong("host write", launch="scaled", x=[1.0, 2.0, -0.5])
def list_of_arguments_changed(x):
    """One list of inputs, of which a number changes from launch to launch: Warp's tape has the list."""
    x = wp.array(x, dtype=float, requires_grad=True)
    loss, given = fresh(1), [x, 1.0]
    with wp.Tape() as tape:
        for n in range(3):
            y = fresh()
            given[1] = 1.0 + n
            wp.launch(scaled, dim=3, inputs=given, outputs=[y])
            wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("host write", launch="along", x=[[1.0, 2.0, 3.0]])
def vector_changed(x):
    """A vector among the arguments gets another component: vectors of Warp can be changed."""
    x = wp.array(x, dtype=wp.vec3, requires_grad=True)
    y, z, loss, g = fresh(1), fresh(1), fresh(1), wp.vec3(1.0, 0.0, 0.0)
    with wp.Tape() as tape:
        wp.launch(along, dim=1, inputs=[x, g], outputs=[y])
        g[1] = 5.0
        wp.launch(along, dim=1, inputs=[x, g], outputs=[z])
        wp.launch(weighted_sum, dim=1, inputs=[y], outputs=[loss])
        wp.launch(weighted_sum, dim=1, inputs=[z], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("dynamic loop in the kernel", launch="gathered", x=[1.5, 0.7, -0.5])
def vector_filled_in_a_loop(x):
    """Components that turns of a dynamic loop write, and a product behind it: Warp's adjoint takes them for 0."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(gathered, dim=3, inputs=[x, 3], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("overwritten memory", launch="pushed", x=[1.0, 2.0, -0.5])
def field_moved_in_place(x):
    """A field of the structs in an array is moved in place, by its own old value."""
    x = wp.array(x, dtype=float, requires_grad=True)
    p, y, loss = wp.zeros(3, dtype=Point, requires_grad=True), fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(placed, dim=3, inputs=[x], outputs=[p])
        wp.launch(pushed, dim=3, inputs=[p, 0.3])
        wp.launch(measured, dim=3, inputs=[p], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("no adjoint", launch="largest_times", x=[1.0, -2.0, 0.5, 3.0, 0.1, 0.2, 0.3, 0.4])
def largest_of_a_tile(x):
    """`tile_max` has no adjoint in Warp, and says nothing of it."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(2), fresh(1)
    with wp.Tape() as tape:
        wp.launch_tiled(largest_times, dim=[2], inputs=[x], outputs=[y], block_dim=32)
        wp.launch(weighted_sum, dim=2, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.5, 0.7, -0.5, 2.0])
def places_by_a_counter(x):
    """Threads take their place from a counter, and note it for the way back: `func_replay` as it is meant."""
    x = wp.array(x, dtype=float, requires_grad=True)
    count, places, y, loss = wp.zeros(1, dtype=int), wp.zeros(4, dtype=int), fresh(4), fresh(1)
    with wp.Tape() as tape:
        wp.launch(compacted, dim=4, inputs=[x, count, places], outputs=[y])
        wp.launch(weighted_sum, dim=4, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wrong("not on the tape", launch="array_inner", x=[1.0, 2.0, -0.5])
def seed_in_a_result_that_is_not_recorded(x):
    """The seed stands in the gradient of what `array_inner` has summed, which Warp's tape has not heard."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.utils.array_inner(y, x, out=loss)
    loss.grad.fill_(1.0)
    tape.backward()
    return Outcome(loss, {"x": x})


@agrees(seen="unverified", x=[1.0, 2.0, -0.5])
def seed_of_another_tape_beside_a_loss(x):
    """What a later tape left in `y.grad` is a seed beside `loss=`: both are meant here, which nobody can know."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, cost, loss = fresh(), fresh(1), fresh(1)
    first, second = wp.Tape(), wp.Tape()
    with first:
        wp.launch(square_and_cost, dim=3, inputs=[x], outputs=[y, cost])
    with second:
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    second.backward(loss)
    first.backward(cost)
    return Outcome([(cost, 1.0), (loss, 1.0)], {"x": x})


@agrees(seen="unverified", x=[1.0, 2.0, -0.5])
def launches_repeated_without_the_tape(x):
    """The launches run once more, for another x, without a tape: Warp's walk back then reads what they have left."""
    given = np.array(x)
    x = wp.array(0.5 * given, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)

    def forward():
        loss.zero_()
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])

    with wp.Tape() as tape:
        forward()
    x.assign(given)
    forward()
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def blended(x: wp.array(dtype=float), n: int):
    i = wp.tid()
    x[i] = 0.5 * (x[i] + x[(i + 1) % n]) * x[i]


@wrong("race", launch="blended", seen="unverified", x=[1.0, 2.0, -0.5])
def neighbours_in_place(x):
    """Each thread reads its neighbour's cell, which that one overwrites: before, or after, nobody promises."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.copy(y, x)
        wp.launch(blended, dim=3, inputs=[y, 3])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[1.0, 2.0, -0.5])
def seeds_for_a_result_and_for_an_input(x):
    """`grads=` names x too: its seed takes the place of what its gradient held, and is added to."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = fresh()
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
    seed = wp.array([1.0, 2.0, 3.0], dtype=float)
    for _ in range(2):
        tape.backward(grads={y: seed, x: seed})
    return Outcome([(y, [1.0, 2.0, 3.0]), (x, [1.0, 2.0, 3.0])], {"x": x})


@wrong("not on the tape", launch="square", x=[1.0, 2.0, -0.5])
def seed_in_a_result_behind_the_tape(x):
    """The last launch runs when the tape is closed, and the seed stands in the gradient of its result."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, z = fresh(), fresh()
    with wp.Tape() as tape:
        wp.launch(scaled, dim=3, inputs=[x, 2.0], outputs=[y])
    wp.launch(square, dim=3, inputs=[y], outputs=[z])
    z.grad.fill_(1.0)
    tape.backward()
    return Outcome(z, {"x": x})
