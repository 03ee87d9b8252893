"""Balls in a box: pairs that overlap push each other by atomics, the floor pushes back, friction slows what slides."""

import numpy as np
import warp as wp

Real = wp.float32
Vec = wp.types.vector(2, Real)
STEPS, COUNT, DT, RADIUS = 30, 9, 0.01, 0.11
WARP_GRADIENT = "same"

rng = np.random.default_rng(1)
grid = np.stack(np.meshgrid(np.arange(3), np.arange(3)), -1).reshape(-1, 2)
PARAMETERS = {
    "position": 0.25 + 0.2 * grid + 0.02 * rng.normal(size=(COUNT, 2)),
    "velocity": rng.normal(size=(COUNT, 2)),
    "mass": 1.0 + 0.3 * rng.random(COUNT),
}


@wp.struct
class Material:
    stiffness: Real
    damping: Real
    friction: Real


@wp.func
def push(depth: Real, stiffness: Real):
    """A force that grows smoothly from nothing where bodies touch."""
    inside = wp.max(depth, Real(0.0))
    return stiffness * inside * inside * Real(40.0)


@wp.func
def smooth_sign(v: Real):
    return v / wp.sqrt(v * v + Real(0.01))


@wp.kernel
def clear(force: wp.array(dtype=Vec)):
    i = wp.tid()
    force[i] = Vec()


@wp.kernel
def pairs(
    x: wp.array(dtype=Vec),
    v: wp.array(dtype=Vec),
    material: Material,
    touched: wp.array(dtype=int),
    force: wp.array(dtype=Vec),
):
    i, j = wp.tid()
    if i < j:
        d = x[i] - x[j]
        gap = wp.length(d)
        depth = Real(2.0 * RADIUS) - gap
        if depth > Real(0.0):
            n = d / gap
            closing = wp.dot(v[i] - v[j], n)
            f = n * (push(depth, material.stiffness) - material.damping * closing * depth)
            wp.atomic_add(force, i, f)
            wp.atomic_sub(force, j, f)
            wp.atomic_add(touched, 0, 1)


@wp.kernel
def walls(x: wp.array(dtype=Vec), v: wp.array(dtype=Vec), material: Material, force: wp.array(dtype=Vec)):
    i = wp.tid()
    p = x[i]
    floor = push(Real(RADIUS) - p[1], material.stiffness)
    left = push(Real(RADIUS) - p[0], material.stiffness)
    right = push(p[0] - Real(1.0 - RADIUS), material.stiffness)
    slide = -material.friction * floor * smooth_sign(v[i][0])
    wp.atomic_add(force, i, Vec(left - right + slide, floor))


@wp.kernel
def advance(
    x: wp.array(dtype=Vec),
    v: wp.array(dtype=Vec),
    force: wp.array(dtype=Vec),
    mass: wp.array(dtype=Real),
    dt: Real,
    x_next: wp.array(dtype=Vec),
    v_next: wp.array(dtype=Vec),
):
    i = wp.tid()
    gravity = Vec(Real(0.0), Real(-9.81))
    new = v[i] + (force[i] / mass[i] + gravity) * dt
    v_next[i] = new
    x_next[i] = x[i] + new * dt


@wp.kernel
def measure(x: wp.array(dtype=Vec), v: wp.array(dtype=Vec), mass: wp.array(dtype=Real), loss: wp.array(dtype=Real)):
    i = wp.tid()
    far = x[i] - Vec(Real(0.5), Real(0.2))
    wp.atomic_add(loss, 0, wp.dot(far, far) + Real(0.01) * mass[i] * wp.dot(v[i], v[i]))


def simulate(values):
    given = dict(requires_grad=True)
    start = wp.array(values["position"], dtype=Vec, **given)
    speed = wp.array(values["velocity"], dtype=Vec, **given)
    mass = wp.array(values["mass"], dtype=Real, **given)
    loss = wp.zeros(1, dtype=Real, requires_grad=True)
    touched = wp.zeros(1, dtype=int)
    material = Material()
    material.stiffness, material.damping, material.friction = 60.0, 2.0, 0.3
    x, v = start, speed
    tape = wp.Tape()
    with tape:
        for _ in range(STEPS):
            force = wp.zeros(COUNT, dtype=Vec, requires_grad=True)
            x_next, v_next = (wp.zeros(COUNT, dtype=Vec, requires_grad=True) for _ in range(2))
            wp.launch(clear, dim=COUNT, inputs=[force])
            wp.launch(pairs, dim=(COUNT, COUNT), inputs=[x, v, material, touched, force])
            wp.launch(walls, dim=COUNT, inputs=[x, v, material, force])
            wp.launch(advance, dim=COUNT, inputs=[x, v, force, mass, DT], outputs=[x_next, v_next])
            x, v = x_next, v_next
        wp.launch(measure, dim=COUNT, inputs=[x, v, mass, loss])
    assert int(touched.numpy()[0]) > 0
    return tape, loss, {"position": start, "velocity": speed, "mass": mass}
