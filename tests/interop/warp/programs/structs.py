"""Structs, components of vectors and fixed arrays."""

import warp as wp

from tests.interop.warp.declare import Outcome, agrees, wrong
from tests.interop.warp.shared import fresh, weighted_sum


@wp.struct
class State:
    x: wp.array(dtype=float)
    v: wp.array(dtype=float)
    dt: float


@wp.struct
class World:
    state: State
    gain: wp.array(dtype=float)


@wp.struct
class Particle:
    at: wp.vec3
    mass: float


@wp.kernel
def advance(now: State, then: State):
    i = wp.tid()
    then.v[i] = now.v[i] - now.dt * wp.sin(now.x[i])
    then.x[i] = now.x[i] + now.dt * then.v[i]


@wp.kernel
def read_state(s: State, y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = s.x[i] * s.x[i]


@wp.kernel
def gained(w: World, y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = w.gain[i] * w.state.x[i] * w.state.x[i] + w.state.v[i]


def empty_state(n: int):
    s = State()
    s.x, s.v, s.dt = fresh(n), fresh(n), 0.1
    return s


@agrees(x=[0.3, 1.0], v=[0.2, -0.1])
def states_in_structs(x, v):
    """Five steps from struct to struct, all arrays with gradients."""
    x = wp.array(x, dtype=float, requires_grad=True)
    v = wp.array(v, dtype=float, requires_grad=True)
    states = [empty_state(2) for _ in range(6)]
    states[0].x, states[0].v = x, v
    loss = fresh(1)
    with wp.Tape() as tape:
        for t in range(5):
            wp.launch(advance, dim=2, inputs=[states[t]], outputs=[states[t + 1]])
        wp.launch(weighted_sum, dim=2, inputs=[states[5].x], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x, "v": v})


@wp.kernel
def into_state(x: wp.array(dtype=float), s: State):
    i = wp.tid()
    s.x[i] = 2.0 * x[i]


@wrong("missing requires_grad in a struct", launch="read_state", x=[1.0, 2.0, 3.0])
def struct_without_requires_grad(x):
    """The array inside the struct between two kernels has no gradient: the way back ends there."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    s = State()
    s.x, s.v = wp.zeros(3, dtype=float), fresh()
    with wp.Tape() as tape:
        wp.launch(into_state, dim=3, inputs=[x], outputs=[s])
        wp.launch(read_state, dim=3, inputs=[s], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@agrees(x=[0.3, 1.0], gain=[2.0, 0.5])
def nested_structs(x, gain):
    """A struct in a struct."""
    x = wp.array(x, dtype=float, requires_grad=True)
    gain = wp.array(gain, dtype=float, requires_grad=True)
    world = World()
    world.state, world.gain = empty_state(2), gain
    world.state.x = x
    y, loss = fresh(2), fresh(1)
    with wp.Tape() as tape:
        wp.launch(gained, dim=2, inputs=[world], outputs=[y])
        wp.launch(weighted_sum, dim=2, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x, "gain": gain})


@wp.kernel
def placed(x: wp.array(dtype=float), p: wp.array(dtype=Particle)):
    i = wp.tid()
    made = Particle()
    made.at = wp.vec3(x[i], 2.0 * x[i], x[i] * x[i])
    made.mass = x[i]
    p[i] = made


@wp.kernel
def momentum(p: wp.array(dtype=Particle), y: wp.array(dtype=float)):
    i = wp.tid()
    q = p[i]
    y[i] = q.mass * wp.dot(q.at, q.at)


@agrees(x=[0.3, 1.0, -2.0])
def array_of_structs(x):
    """Structs as elements of an array, written by one kernel and read by the next."""
    x = wp.array(x, dtype=float, requires_grad=True)
    p = wp.zeros(3, dtype=Particle, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(placed, dim=3, inputs=[x], outputs=[p])
        wp.launch(momentum, dim=3, inputs=[p], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def one_component_again(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    v = wp.vec3(x[i], 1.0, 1.0)
    v[0] = v[0] * v[0]
    v[1] = v[0] * x[i]
    v[0] = v[1] * v[0]
    y[i] = v[0] + v[1]


@wrong("component write", launch="one_component_again", x=[1.5, 2.0, 0.5])
def component_written_again(x):
    """A component of a local vector is read, then written: its former value is gone when the adjoint needs it."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(one_component_again, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def components_once(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    v = wp.vec3()
    v[0] = x[i]
    v[1] = x[i] * x[i]
    v[2] = v[0] * v[1]
    y[i] = v[2] + v[1]


@agrees(x=[1.5, 2.0, 0.5])
def components_written_once(x):
    """Each component of a local vector is written once, before it is read."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(components_once, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def table_of_powers(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    t = wp.zeros(shape=4, dtype=float)
    t[0] = x[i]
    for k in range(1, 4):
        t[k] = t[k - 1] * x[i]
    y[i] = t[3]


@wrong("component write", launch="table_of_powers", x=[1.5, 2.0, 0.5])
def fixed_array(x):
    """A fixed array in a kernel: what is read back from a cell has lost its way to what was written there."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(table_of_powers, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def field_again(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    p = Particle()
    p.mass = x[i]
    p.mass = p.mass * p.mass
    p.mass = p.mass * x[i]
    y[i] = p.mass


@agrees(x=[1.5, 2.0, 0.5])
def field_written_again(x):
    """A field of a local struct is read, then written: Warp gives it a new variable each time."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(field_again, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})
