"""Molecular dynamics: atoms of Lennard and Jones in a box that repeats; their places by the size of an atom."""

import numpy as np

import workbench as wb

F, V = wb.float64, wb.vec2d
N, SIDE, DT, STEPS = 16, 5.0, 0.004, 60
VALUES = np.array([0.95, 1.1])  # size and depth
PLACES = 1.25 * np.stack(np.divmod(np.arange(N), 4), 1) + 0.6
SPEEDS = 0.3 * np.random.default_rng(4).normal(size=(N, 2))


@wb.func
def between(d: V, p: wb.array[F]):
    """The energy of two atoms, and the force on the first: -dE/dd."""
    square = wb.dot(d, d)
    s6 = wb.pow(p[0] * p[0] / square, F(3.0))
    return F(4.0) * p[1] * (s6 * s6 - s6), F(24.0) * p[1] * (F(2.0) * s6 * s6 - s6) / square * d


@wb.kernel
def forces(x: wb.array[V], p: wb.array[F], f: wb.array[V], energy: wb.array[F]):
    i = wb.tid()
    total = V(F(0.0), F(0.0))
    for j in range(N):
        if j != i:
            e, force = between(wb.minimum_image(x[i] - x[j], V(F(SIDE), F(SIDE))), p)
            total += force
            wb.atomic_add(energy, 0, F(0.5) * e)
    f[i] = total


@wb.kernel
def kinetic(v: wb.array[V], e: wb.array[F]):
    i = wb.tid()
    wb.atomic_add(e, 0, F(0.5) * wb.dot(v[i], v[i]))


@wb.kernel
def spread(x: wb.array[V], loss: wb.array[F]):
    i = wb.tid()
    wb.atomic_add(loss, 0, wb.dot(x[i], x[i]) * F(i))


def simulate(values, steps=STEPS):
    p = wb.array(values, dtype=F, requires_grad=True)

    def acceleration(t, x, energy=None):
        f = wb.zeros(N, dtype=V)
        wb.launch(forces, N, [x, p], [f, wb.zeros(1, dtype=F) if energy is None else energy])
        return f

    with wb.Tape() as tape:
        x, v, loss = wb.array(PLACES, dtype=V), wb.array(SPEEDS, dtype=V), wb.zeros(1, dtype=F)
        wb.integrate(lambda k, x, v: wb.velocity_verlet(acceleration, DT * k, DT, x, v), [x, v], steps)
        wb.launch(spread, N, [x], [loss])
    energy = wb.zeros(1, dtype=F)
    acceleration(0.0, x, energy)
    wb.launch(kinetic, N, [v], [energy])
    return tape, loss, p, energy.numpy()[0]


def check():
    begin, end = simulate(VALUES, 1)[3], simulate(VALUES)[3]
    assert abs(end - begin) < 1e-3 * abs(begin)
