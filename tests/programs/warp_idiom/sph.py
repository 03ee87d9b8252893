"""Smoothed particles in two layers: densities and forces over the neighbours that a hash grid finds."""

import numpy as np
import warp as wp

Real = wp.float32
Vec = wp.types.vector(3, Real)
COUNT, STEPS, REACH, DT = 48, 3, 0.35, 4.0e-3
WARP_GRADIENT = "same"

rng = np.random.default_rng(10)
lattice = np.stack(np.meshgrid(np.arange(4), np.arange(4), np.arange(3)), -1).reshape(-1, 3)
PARAMETERS = {
    "position": 0.2 * lattice + 0.02 * rng.normal(size=(COUNT, 3)),
    "velocity": 0.3 * rng.normal(size=(COUNT, 3)),
    "viscosity": np.array([0.4]),
}


@wp.func
def near(p: Vec):
    """The place as the grid has it, in float32."""
    return wp.vec3(float(p[0]), float(p[1]), float(p[2]))


@wp.func
def kernel_of(d: Vec):
    q = Real(REACH * REACH) - wp.dot(d, d)
    w = Real(0.0)
    if q > Real(0.0):
        w = q * q * q * Real(900.0)
    return w


@wp.kernel
def places(x: wp.array(dtype=Vec), out: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    out[i] = near(x[i])


@wp.kernel
def densities(grid: wp.uint64, x: wp.array(dtype=Vec), where: wp.array(dtype=wp.vec3), rho: wp.array(dtype=Real)):
    i = wp.tid()
    total = Real(0.0)
    for j in wp.hash_grid_query(grid, where[i], float(REACH)):
        total += kernel_of(x[i] - x[j])
    rho[i] = total


@wp.kernel
def forces(
    grid: wp.uint64,
    x: wp.array(dtype=Vec),
    v: wp.array(dtype=Vec),
    where: wp.array(dtype=wp.vec3),
    rho: wp.array(dtype=Real),
    viscosity: wp.array(dtype=Real),
    out: wp.array(dtype=Vec),
):
    i = wp.tid()
    total = Vec(Real(0.0), Real(-9.81), Real(0.0))
    for j in wp.hash_grid_query(grid, where[i], float(REACH)):
        if j != i:
            d = x[i] - x[j]
            w = kernel_of(d)
            pressure = (rho[i] + rho[j]) * Real(0.5)
            total += d * (pressure * w / rho[j]) + (v[j] - v[i]) * (viscosity[0] * w / rho[j])
    out[i] = total


@wp.kernel
def advance(
    x: wp.array(dtype=Vec),
    v: wp.array(dtype=Vec),
    a: wp.array(dtype=Vec),
    x_next: wp.array(dtype=Vec),
    v_next: wp.array(dtype=Vec),
):
    i = wp.tid()
    new = v[i] + a[i] * Real(DT)
    v_next[i] = new
    x_next[i] = x[i] + new * Real(DT)


@wp.kernel
def measure(x: wp.array(dtype=Vec), v: wp.array(dtype=Vec), rho: wp.array(dtype=Real), loss: wp.array(dtype=Real)):
    i = wp.tid()
    wp.atomic_add(loss, 0, wp.dot(v[i], v[i]) + x[i][1] * rho[i] * Real(0.1))


GRIDS = []  # kept: what was recorded names them by number


def simulate(values):
    types = {"viscosity": Real}
    arrays = {name: wp.array(a, dtype=types.get(name, Vec), requires_grad=True) for name, a in values.items()}
    loss = wp.zeros(1, dtype=Real, requires_grad=True)
    grid = wp.HashGrid(8, 8, 8)
    GRIDS.append(grid)
    x, v = arrays["position"], arrays["velocity"]
    where = wp.zeros(COUNT, dtype=wp.vec3)
    wp.launch(places, dim=COUNT, inputs=[x], outputs=[where])
    grid.build(where, REACH)
    with wp.Tape() as tape:
        for _ in range(STEPS):
            rho = wp.zeros(COUNT, dtype=Real, requires_grad=True)
            a, x_next, v_next = (wp.zeros(COUNT, dtype=Vec, requires_grad=True) for _ in range(3))
            wp.launch(densities, dim=COUNT, inputs=[grid.id, x, where], outputs=[rho])
            wp.launch(forces, dim=COUNT, inputs=[grid.id, x, v, where, rho, arrays["viscosity"]], outputs=[a])
            wp.launch(advance, dim=COUNT, inputs=[x, v, a], outputs=[x_next, v_next])
            x, v = x_next, v_next
        wp.launch(measure, dim=COUNT, inputs=[x, v, rho], outputs=[loss])
    return tape, loss, arrays
