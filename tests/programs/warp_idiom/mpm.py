"""The material point method in two dimensions (MLS-MPM): particles scatter to a grid by atomics and gather from it."""

import numpy as np
import warp as wp

Real = wp.float32
Vec = wp.types.vector(2, Real)
Mat = wp.types.matrix((2, 2), Real)
CELLS, STEPS, COUNT, DT = 16, 8, 36, 4.0e-3
WARP_GRADIENT = "same"

rng = np.random.default_rng(4)
PARAMETERS = {
    "x": 0.35 + 0.2 * rng.random((COUNT, 2)),
    "v": np.tile([1.0, -2.0], (COUNT, 1)) + 0.1 * rng.normal(size=(COUNT, 2)),
    "stiffness": np.array([300.0]),
}
WIDTH = wp.constant(float(CELLS))


@wp.func
def weight(f: Real, k: int):
    w = Real(0.0)
    if k == 0:
        w = Real(0.5) * (Real(1.5) - f) * (Real(1.5) - f)
    elif k == 1:
        w = Real(0.75) - (f - Real(1.0)) * (f - Real(1.0))
    else:
        w = Real(0.5) * (f - Real(0.5)) * (f - Real(0.5))
    return w


@wp.func
def corner(p: Real):
    return int(p * Real(WIDTH) - Real(0.5))


@wp.kernel
def scatter(
    x: wp.array(dtype=Vec),
    v: wp.array(dtype=Vec),
    C: wp.array(dtype=Mat),
    F: wp.array(dtype=Mat),
    stiffness: wp.array(dtype=Real),
    F_next: wp.array(dtype=Mat),
    momentum: wp.array2d(dtype=Vec),
    mass: wp.array2d(dtype=Real),
):
    p = wp.tid()
    one = wp.identity(n=2, dtype=Real)
    deformed = (one + C[p] * Real(DT)) * F[p]
    F_next[p] = deformed
    J = wp.determinant(deformed)
    stress = (deformed * wp.transpose(deformed) - one) * stiffness[0] + one * (stiffness[0] * wp.log(J))
    affine = C[p] - stress * Real(DT * 4.0 * WIDTH * WIDTH * 2.0e-3)
    bi = corner(x[p][0])
    bj = corner(x[p][1])
    fx = x[p][0] * Real(WIDTH) - Real(bi)
    fy = x[p][1] * Real(WIDTH) - Real(bj)
    for a in range(3):
        for b in range(3):
            d = Vec((Real(a) - fx) / Real(WIDTH), (Real(b) - fy) / Real(WIDTH))
            w = weight(fx, a) * weight(fy, b)
            wp.atomic_add(momentum, bi + a, bj + b, (v[p] + affine * d) * w)
            wp.atomic_add(mass, bi + a, bj + b, w)


@wp.kernel
def on_grid(momentum: wp.array2d(dtype=Vec), mass: wp.array2d(dtype=Real), velocity: wp.array2d(dtype=Vec)):
    i, j = wp.tid()
    m = mass[i, j]
    v = Vec()
    if m > Real(1.0e-9):
        v = momentum[i, j] / m
        v = v + Vec(Real(0.0), Real(-9.81 * DT))
    if j < 3:
        v = Vec(v[0], wp.max(v[1], Real(0.0)))
    velocity[i, j] = v


@wp.kernel
def gather(
    x: wp.array(dtype=Vec),
    velocity: wp.array2d(dtype=Vec),
    x_next: wp.array(dtype=Vec),
    v_next: wp.array(dtype=Vec),
    C_next: wp.array(dtype=Mat),
):
    p = wp.tid()
    bi = corner(x[p][0])
    bj = corner(x[p][1])
    fx = x[p][0] * Real(WIDTH) - Real(bi)
    fy = x[p][1] * Real(WIDTH) - Real(bj)
    v = Vec()
    C = Mat()
    for a in range(3):
        for b in range(3):
            d = Vec(Real(a) - fx, Real(b) - fy)
            g = velocity[bi + a, bj + b] * (weight(fx, a) * weight(fy, b))
            v += g
            C += wp.outer(g, d) * Real(4.0 * WIDTH)
    v_next[p] = v
    C_next[p] = C
    x_next[p] = x[p] + v * Real(DT)


@wp.kernel
def centre(x: wp.array(dtype=Vec), loss: wp.array(dtype=Real)):
    p = wp.tid()
    d = x[p] - Vec(Real(0.6), Real(0.4))
    wp.atomic_add(loss, 0, wp.dot(d, d) / Real(36.0))


def simulate(values):
    types = {"x": Vec, "v": Vec, "stiffness": Real}
    arrays = {name: wp.array(a, dtype=types[name], requires_grad=True) for name, a in values.items()}
    loss = wp.zeros(1, dtype=Real, requires_grad=True)
    x, v = arrays["x"], arrays["v"]
    C = wp.zeros(COUNT, dtype=Mat, requires_grad=True)
    F = wp.array(np.tile(np.eye(2), (COUNT, 1, 1)), dtype=Mat, requires_grad=True)
    with wp.Tape() as tape:
        for _ in range(STEPS):
            momentum, velocity = (wp.zeros((CELLS, CELLS), dtype=Vec, requires_grad=True) for _ in range(2))
            mass = wp.zeros((CELLS, CELLS), dtype=Real, requires_grad=True)
            x_next, v_next = (wp.zeros(COUNT, dtype=Vec, requires_grad=True) for _ in range(2))
            F_next, C_next = (wp.zeros(COUNT, dtype=Mat, requires_grad=True) for _ in range(2))
            inputs = [x, v, C, F, arrays["stiffness"]]
            wp.launch(scatter, dim=COUNT, inputs=inputs, outputs=[F_next, momentum, mass])
            wp.launch(on_grid, dim=(CELLS, CELLS), inputs=[momentum, mass], outputs=[velocity])
            wp.launch(gather, dim=COUNT, inputs=[x, velocity], outputs=[x_next, v_next, C_next])
            x, v, C, F = x_next, v_next, C_next, F_next
        wp.launch(centre, dim=COUNT, inputs=[x], outputs=[loss])
    return tape, loss, arrays
