"""A net of springs under gravity, each step implicit: blocks from triplets, a sparse sum, conjugate gradients."""

import numpy as np
import warp as wp
import warp.optim.linear
import warp.sparse

Real = wp.float32
Vec = wp.types.vector(3, Real)
Mat = wp.types.matrix((3, 3), Real)
SIDE, STEPS, DT = 5, 4, 0.05
COUNT = SIDE * SIDE
WARP_GRADIENT = "wrong"  # its solvers leave nothing on the tape: what was solved for has no derivative
ROUNDING = 3e-5

rng = np.random.default_rng(31)
rows, cols = np.divmod(np.arange(COUNT), SIDE)
PARAMETERS = {
    "position": np.stack([cols / 4.0, np.zeros(COUNT), rows / 4.0], axis=1) + 0.02 * rng.normal(size=(COUNT, 3)),
    "velocity": 0.3 * rng.normal(size=(COUNT, 3)),
    "mass": 0.2 + 0.1 * rng.random(COUNT),
    "stiffness": np.array([60.0, 15.0, 0.4]),  # along threads, across them, and against speed
}


def springs():
    """Pairs of knots: neighbours first, then across the squares."""
    at = np.arange(COUNT).reshape(SIDE, SIDE)
    near = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
    far = [(at[:-1, :-1], at[1:, 1:]), (at[:-1, 1:], at[1:, :-1])]
    pairs = [np.stack([a.ravel(), b.ravel()], 1) for a, b in near + far]
    kind = np.repeat([0, 0, 1, 1], [len(p) for p in pairs])
    return np.concatenate(pairs), kind


EDGES, KIND = springs()


@wp.func
def gravity():
    return Vec(Real(0.0), Real(-9.81), Real(0.0))


@wp.func
def is_held(i: int):
    return i == 0 or i == SIDE - 1


@wp.func
def rest_length(kind: int):
    if kind == 0:
        return Real(0.25)
    return Real(0.25) * wp.sqrt(Real(2.0))


@wp.func
def spring_block(d: Vec, rest: Real, k: Real):
    """The derivative of a spring's pull by the place of its end; what a push would make unstable is left out."""
    size = wp.length(d)
    n = d / size
    along = wp.outer(n, n)
    across = wp.max(Real(1.0) - rest / size, Real(0.0))
    return (along + (wp.identity(n=3, dtype=Real) - along) * across) * k


@wp.kernel
def external(mass: wp.array(dtype=Real), force: wp.array(dtype=Vec)):
    i = wp.tid()
    force[i] = gravity() * mass[i]


@wp.kernel
def pull(
    x: wp.array(dtype=Vec),
    v: wp.array(dtype=Vec),
    edges: wp.array2d(dtype=int),
    kind: wp.array(dtype=int),
    stiffness: wp.array(dtype=Real),
    force: wp.array(dtype=Vec),
):
    e = wp.tid()
    i, j = edges[e, 0], edges[e, 1]
    d = x[j] - x[i]
    size = wp.length(d)
    n = d / size
    f = n * (stiffness[kind[e]] * (size - rest_length(kind[e])) + stiffness[2] * wp.dot(n, v[j] - v[i]))
    wp.atomic_add(force, i, f)
    wp.atomic_sub(force, j, f)


@wp.kernel
def blocks(
    x: wp.array(dtype=Vec),
    edges: wp.array2d(dtype=int),
    kind: wp.array(dtype=int),
    stiffness: wp.array(dtype=Real),
    rows: wp.array(dtype=int),
    columns: wp.array(dtype=int),
    values: wp.array(dtype=Mat),
):
    """Four blocks for each spring: two of its ends, two between them."""
    e = wp.tid()
    i, j = edges[e, 0], edges[e, 1]
    K = spring_block(x[j] - x[i], rest_length(kind[e]), stiffness[kind[e]])
    for a in range(2):
        for b in range(2):
            k = 4 * e + 2 * a + b
            rows[k] = edges[e, a]
            columns[k] = edges[e, b]
            if a == b:
                values[k] = K
            else:
                values[k] = -K


@wp.kernel
def inertia(mass: wp.array(dtype=Real), out: wp.array(dtype=Mat)):
    """Held knots are heavy."""
    i = wp.tid()
    m = mass[i]
    if is_held(i):
        m = m * Real(1.0e3)
    out[i] = wp.diag(Vec(m, m, m))


@wp.kernel
def impulse(force: wp.array(dtype=Vec), out: wp.array(dtype=Vec)):
    i = wp.tid()
    out[i] = force[i] * Real(DT)
    if is_held(i):
        out[i] = Vec(Real(0.0), Real(0.0), Real(0.0))


@wp.kernel
def advance(
    x: wp.array(dtype=Vec),
    v: wp.array(dtype=Vec),
    change: wp.array(dtype=Vec),
    x_next: wp.array(dtype=Vec),
    v_next: wp.array(dtype=Vec),
):
    i = wp.tid()
    faster = v[i] + change[i]
    x_next[i] = x[i] + faster * Real(DT)
    v_next[i] = faster


@wp.kernel
def measure(x: wp.array(dtype=Vec), v: wp.array(dtype=Vec), mass: wp.array(dtype=Real), loss: wp.array(dtype=Real)):
    i = wp.tid()
    wp.atomic_add(loss, 0, wp.dot(x[i], x[i]) + Real(0.05) * mass[i] * wp.length_sq(v[i]))


def vectors():
    return wp.zeros(COUNT, dtype=Vec, requires_grad=True)


def step(x, v, arrays, net):
    edges, kind = net
    n, h = len(EDGES), DT
    force, right, change = vectors(), vectors(), vectors()
    wp.launch(external, dim=COUNT, inputs=[arrays["mass"]], outputs=[force])
    wp.launch(pull, dim=n, inputs=[x, v, edges, kind, arrays["stiffness"]], outputs=[force])
    wp.launch(impulse, dim=COUNT, inputs=[force], outputs=[right])

    row, column = wp.zeros(4 * n, dtype=int), wp.zeros(4 * n, dtype=int)
    values = wp.zeros(4 * n, dtype=Mat, requires_grad=True)
    wp.launch(blocks, dim=n, inputs=[x, edges, kind, arrays["stiffness"]], outputs=[row, column, values])
    stiff = wp.sparse.bsr_from_triplets(COUNT, COUNT, row, column, values)
    heavy = wp.zeros(COUNT, dtype=Mat, requires_grad=True)
    wp.launch(inertia, dim=COUNT, inputs=[arrays["mass"]], outputs=[heavy])
    system = wp.sparse.bsr_axpy(stiff, wp.sparse.bsr_diag(heavy), alpha=h * h)
    wp.sparse.bsr_mv(stiff, v, right, alpha=-h * h, beta=1.0)

    M = wp.optim.linear.preconditioner(system, "diag")
    _, error, wanted = wp.optim.linear.cg(system, right, change, maxiter=200, M=M, check_every=5)
    assert error <= wanted, (error, wanted)
    x_next, v_next = vectors(), vectors()
    wp.launch(advance, dim=COUNT, inputs=[x, v, change], outputs=[x_next, v_next])
    return x_next, v_next


def simulate(values):
    types = {"position": Vec, "velocity": Vec}
    arrays = {name: wp.array(a, dtype=types.get(name, Real), requires_grad=True) for name, a in values.items()}
    net = wp.array(EDGES, dtype=int), wp.array(KIND, dtype=int)
    loss = wp.zeros(1, dtype=Real, requires_grad=True)
    x, v = arrays["position"], arrays["velocity"]
    with wp.Tape() as tape:
        for _ in range(STEPS):
            x, v = step(x, v, arrays, net)
        wp.launch(measure, dim=COUNT, inputs=[x, v, arrays["mass"]], outputs=[loss])
    return tape, loss, arrays
