"""A cloth of triangles, with the strain of each and the angle at each inner edge, falls on a ball."""

import numpy as np
import warp as wp

Real = wp.float32
Vec = wp.types.vector(3, Real)
Mat = wp.types.matrix((2, 2), Real)
SIDE, STEPS, DT = 5, 12, 0.01
COUNT = SIDE * SIDE
WARP_GRADIENT = "same"

rng = np.random.default_rng(6)
rows, cols = np.divmod(np.arange(COUNT), SIDE)
REST = np.stack([cols / (SIDE - 1), rows / (SIDE - 1)], axis=1)
PARAMETERS = {
    "position": np.concatenate([REST[:, :1], 0.3 + 0.03 * rng.normal(size=(COUNT, 1)), REST[:, 1:]], axis=1),
    "velocity": 0.2 * rng.normal(size=(COUNT, 3)),
    "young": np.array([40.0, 25.0]),
    "bending": np.array([0.05]),
}


def mesh():
    """Triangles, and for each inner edge its two ends and the two corners that face it."""
    corners = [
        (r * SIDE + c, r * SIDE + c + 1, (r + 1) * SIDE + c, (r + 1) * SIDE + c + 1)
        for r in range(SIDE - 1)
        for c in range(SIDE - 1)
    ]
    faces = [f for a, b, c, d in corners for f in ((a, b, c), (b, d, c))]
    sides: dict = {}
    for f in faces:
        for k in range(3):
            sides.setdefault(frozenset((f[k], f[(k + 1) % 3])), []).append(f[(k + 2) % 3])
    hinges = [(*sorted(edge), *facing) for edge, facing in sides.items() if len(facing) == 2]
    inverse = [np.linalg.inv(np.stack([REST[b] - REST[a], REST[c] - REST[a]], axis=1)) for a, b, c in faces]
    return np.array(faces, np.int32), np.array(hinges, np.int32), np.array(inverse)


FACES, HINGES, INVERSE = mesh()


@wp.kernel
def stretch(
    x: wp.array(dtype=Vec),
    faces: wp.array2d(dtype=int),
    inverse: wp.array(dtype=Mat),
    young: wp.array(dtype=Real),
    force: wp.array(dtype=Vec),
):
    """St. Venant-Kirchhoff: first strains, then the force on each corner."""
    t = wp.tid()
    i = faces[t, 0]
    j = faces[t, 1]
    k = faces[t, 2]
    e1 = x[j] - x[i]
    e2 = x[k] - x[i]
    m = inverse[t]
    f1 = e1 * m[0, 0] + e2 * m[1, 0]
    f2 = e1 * m[0, 1] + e2 * m[1, 1]
    g11 = (wp.dot(f1, f1) - Real(1.0)) * Real(0.5)
    g22 = (wp.dot(f2, f2) - Real(1.0)) * Real(0.5)
    g12 = wp.dot(f1, f2) * Real(0.5)
    area = Real(0.5) / wp.abs(wp.determinant(m))
    trace = (g11 + g22) * young[1]
    p1 = f1 * (Real(2.0) * young[0] * g11 + trace) + f2 * (Real(2.0) * young[0] * g12)
    p2 = f1 * (Real(2.0) * young[0] * g12) + f2 * (Real(2.0) * young[0] * g22 + trace)
    fj = (p1 * m[0, 0] + p2 * m[0, 1]) * area
    fk = (p1 * m[1, 0] + p2 * m[1, 1]) * area
    wp.atomic_sub(force, j, fj)
    wp.atomic_sub(force, k, fk)
    wp.atomic_add(force, i, fj + fk)


@wp.kernel
def bend(
    x: wp.array(dtype=Vec), hinges: wp.array2d(dtype=int), stiffness: wp.array(dtype=Real), force: wp.array(dtype=Vec)
):
    h = wp.tid()
    a = hinges[h, 0]
    b = hinges[h, 1]
    c = hinges[h, 2]
    d = hinges[h, 3]
    edge = x[b] - x[a]
    n1 = wp.cross(x[c] - x[a], edge)
    n2 = wp.cross(edge, x[d] - x[a])
    length = wp.length(edge)
    l1 = wp.dot(n1, n1)
    l2 = wp.dot(n2, n2)
    u1 = n1 / wp.sqrt(l1)
    u2 = n2 / wp.sqrt(l2)
    angle = wp.atan2(wp.dot(wp.cross(u1, u2), edge / length), wp.dot(u1, u2))
    g1 = n1 * (length / l1)
    g2 = n2 * (length / l2)
    w = stiffness[0] * angle
    s1 = wp.dot(x[c] - x[b], edge) / (length * length)
    s2 = wp.dot(x[d] - x[b], edge) / (length * length)
    t1 = wp.dot(x[c] - x[a], edge) / (length * length)
    t2 = wp.dot(x[d] - x[a], edge) / (length * length)
    wp.atomic_add(force, c, g1 * w)
    wp.atomic_add(force, d, g2 * w)
    wp.atomic_add(force, a, (g1 * s1 + g2 * s2) * w)
    wp.atomic_sub(force, b, (g1 * t1 + g2 * t2) * w)


@wp.kernel
def advance(
    x: wp.array(dtype=Vec),
    v: wp.array(dtype=Vec),
    force: wp.array(dtype=Vec),
    x_next: wp.array(dtype=Vec),
    v_next: wp.array(dtype=Vec),
):
    i = wp.tid()
    centre = Vec(Real(0.5), Real(0.0), Real(0.5))
    away = x[i] - centre
    deep = wp.max(Real(0.3) - wp.length(away), Real(0.0))
    ball = wp.normalize(away) * (deep * deep * Real(5000.0))
    gravity = Vec(Real(0.0), Real(-9.81), Real(0.0))
    new = v[i] + (force[i] + ball + gravity * Real(0.1) - v[i] * Real(0.05)) * Real(DT / 0.1)
    v_next[i] = new
    x_next[i] = x[i] + new * Real(DT)


@wp.kernel
def height(x: wp.array(dtype=Vec), loss: wp.array(dtype=Real)):
    i = wp.tid()
    wp.atomic_add(loss, 0, x[i][1] * x[i][1] + Real(0.1) * x[i][0])


def simulate(values):
    types = {"position": Vec, "velocity": Vec}
    arrays = {name: wp.array(a, dtype=types.get(name, Real), requires_grad=True) for name, a in values.items()}
    faces, hinges = wp.array(FACES, dtype=int), wp.array(HINGES, dtype=int)
    inverse = wp.array(INVERSE, dtype=Mat)
    loss = wp.zeros(1, dtype=Real, requires_grad=True)
    x, v = arrays["position"], arrays["velocity"]
    with wp.Tape() as tape:
        for _ in range(STEPS):
            force, x_next, v_next = (wp.zeros(COUNT, dtype=Vec, requires_grad=True) for _ in range(3))
            wp.launch(stretch, dim=len(FACES), inputs=[x, faces, inverse, arrays["young"]], outputs=[force])
            wp.launch(bend, dim=len(HINGES), inputs=[x, hinges, arrays["bending"]], outputs=[force])
            wp.launch(advance, dim=COUNT, inputs=[x, v, force], outputs=[x_next, v_next])
            x, v = x_next, v_next
        wp.launch(height, dim=COUNT, inputs=[x], outputs=[loss])
    return tape, loss, arrays
