"""A puff of smoke carried by a flow on a periodic grid; the pressure by Jacobi's iteration, in one loop in place."""

import numpy as np
import warp as wp

Real = wp.float32
N, STEPS, SWEEPS, DT = 12, 4, 10, 0.4
WARP_GRADIENT = "same"

rng = np.random.default_rng(2)
y, x = np.mgrid[0:N, 0:N] * 2 * np.pi / N
PARAMETERS = {
    "u": np.sin(y) + 0.1 * rng.normal(size=(N, N)),
    "v": np.cos(x) + 0.1 * rng.normal(size=(N, N)),
    "smoke": np.exp(-((x - 3) ** 2) - (y - 2) ** 2),
}
size = wp.constant(N)


@wp.func
def around(i: int):
    return (i + size) % size


@wp.func
def at(field: wp.array2d(dtype=Real), i: int, j: int):
    return field[around(i), around(j)]


@wp.func
def between(field: wp.array2d(dtype=Real), a: Real, b: Real):
    """The field at a place between cells."""
    i = int(wp.floor(a))
    j = int(wp.floor(b))
    s = a - Real(i)
    t = b - Real(j)
    near = at(field, i, j) * (Real(1.0) - t) + at(field, i, j + 1) * t
    far = at(field, i + 1, j) * (Real(1.0) - t) + at(field, i + 1, j + 1) * t
    return near * (Real(1.0) - s) + far * s


@wp.kernel
def advect(
    field: wp.array2d(dtype=Real),
    u: wp.array2d(dtype=Real),
    v: wp.array2d(dtype=Real),
    dt: Real,
    out: wp.array2d(dtype=Real),
):
    i, j = wp.tid()
    out[i, j] = between(field, Real(i) - dt * v[i, j], Real(j) - dt * u[i, j])


@wp.kernel
def diverge(u: wp.array2d(dtype=Real), v: wp.array2d(dtype=Real), out: wp.array2d(dtype=Real)):
    i, j = wp.tid()
    out[i, j] = Real(0.5) * (at(u, i, j + 1) - at(u, i, j - 1) + at(v, i + 1, j) - at(v, i - 1, j))


@wp.kernel
def jacobi(p: wp.array2d(dtype=Real), div: wp.array2d(dtype=Real), out: wp.array2d(dtype=Real)):
    i, j = wp.tid()
    around_it = at(p, i + 1, j) + at(p, i - 1, j) + at(p, i, j + 1) + at(p, i, j - 1)
    out[i, j] = (around_it - div[i, j]) * Real(0.25)


@wp.kernel
def project(
    u: wp.array2d(dtype=Real),
    v: wp.array2d(dtype=Real),
    p: wp.array2d(dtype=Real),
    u_out: wp.array2d(dtype=Real),
    v_out: wp.array2d(dtype=Real),
):
    i, j = wp.tid()
    u_out[i, j] = u[i, j] - Real(0.5) * (at(p, i, j + 1) - at(p, i, j - 1))
    v_out[i, j] = v[i, j] - Real(0.5) * (at(p, i + 1, j) - at(p, i - 1, j))


@wp.kernel
def compare(smoke: wp.array2d(dtype=Real), loss: wp.array(dtype=Real)):
    i, j = wp.tid()
    wanted = wp.where(i > 4 and i < 9, Real(0.5), Real(0.0))
    d = smoke[i, j] - wanted
    wp.atomic_add(loss, 0, d * d)


def field():
    return wp.zeros((N, N), dtype=Real, requires_grad=True)


def step(u, v, smoke):
    moved = [field(), field(), field()]
    for before, after in zip((u, v, smoke), moved):
        wp.launch(advect, dim=(N, N), inputs=[before, u, v, DT], outputs=[after])
    u, v, smoke = moved
    div, pressure = field(), field()
    wp.launch(diverge, dim=(N, N), inputs=[u, v], outputs=[div])
    for _ in range(SWEEPS):
        better = field()
        wp.launch(jacobi, dim=(N, N), inputs=[pressure, div], outputs=[better])
        pressure = better
    u_out, v_out = field(), field()
    wp.launch(project, dim=(N, N), inputs=[u, v, pressure], outputs=[u_out, v_out])
    return u_out, v_out, smoke


def simulate(values):
    arrays = {name: wp.array(a, dtype=Real, requires_grad=True) for name, a in values.items()}
    loss = wp.zeros(1, dtype=Real, requires_grad=True)
    with wp.Tape() as tape:
        u, v, smoke = arrays["u"], arrays["v"], arrays["smoke"]
        for _ in range(STEPS):
            u, v, smoke = step(u, v, smoke)
        wp.launch(compare, dim=(N, N), inputs=[smoke], outputs=[loss])
    return tape, loss, arrays
