"""A cloth that is folded onto itself, by XPBD: stretch with compliance, self-contacts that a tree of boxes finds."""

import numpy as np
import warp as wp

Real = wp.float32
Vec = wp.types.vector(3, Real)
ROWS, COLUMNS, STEPS, ROUNDS = 6, 10, 2, 2
DT, THICK = 1.0 / 60.0, 0.16
COUNT = ROWS * COLUMNS
WARP_GRADIENT = "same"


def folded():
    """A sheet whose second half lies over the first, closer than it is thick."""
    i, j = np.meshgrid(np.arange(ROWS), np.arange(COLUMNS), indexing="ij")
    half = (COLUMNS - 1) / 2
    x = 0.2 * (half - np.abs(j - half))
    y = np.where(j > half, 0.12, 0.0) + 0.01 * np.sin(1.3 * i + 0.7 * j)
    z = 0.2 * i + 0.02 * np.cos(2.1 * j) + np.where(j > half, 0.05, 0.0)
    return np.stack([x, y, z], -1).reshape(-1, 3)


def edges():
    """Pairs of particles along the sheet, across it and over its diagonals."""
    k = np.arange(COUNT).reshape(ROWS, COLUMNS)
    pairs = [(k[:, :-1], k[:, 1:]), (k[:-1], k[1:]), (k[:-1, :-1], k[1:, 1:])]
    return np.concatenate([np.stack([a.ravel(), b.ravel()], -1) for a, b in pairs])


EDGES = edges()
rng = np.random.default_rng(21)
PARAMETERS = {
    "position": folded(),
    "velocity": 0.5 * rng.normal(size=(COUNT, 3)),
    "compliance": np.array([2.0e-4]),
    "mass": rng.uniform(0.5, 1.5, COUNT),
    "friction": np.array([0.3]),
}


@wp.func
def single(v: Vec):
    """As the tree has it, in float32."""
    return wp.vec3(wp.float32(v[0]), wp.float32(v[1]), wp.float32(v[2]))


@wp.func
def along_the_sheet(a: int, b: int):
    """Are two particles neighbours of the grid."""
    rows = wp.abs(a // COLUMNS - b // COLUMNS)
    columns = wp.abs(a % COLUMNS - b % COLUMNS)
    return wp.max(rows, columns) <= 1


@wp.kernel
def boxes(x: wp.array(dtype=Vec), lowers: wp.array(dtype=wp.vec3), uppers: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    p, r = single(x[i]), wp.float32(THICK)
    lowers[i] = p - wp.vec3(r, r, r)
    uppers[i] = p + wp.vec3(r, r, r)


@wp.kernel
def lengths(x: wp.array(dtype=Vec), edges: wp.array2d(dtype=int), rest: wp.array(dtype=Real)):
    e = wp.tid()
    rest[e] = wp.length(x[edges[e, 0]] - x[edges[e, 1]]) * Real(0.97)


@wp.kernel
def predict(x: wp.array(dtype=Vec), v: wp.array(dtype=Vec), out: wp.array(dtype=Vec)):
    i = wp.tid()
    fall = Vec(Real(0.0), Real(-9.81), Real(0.0))
    out[i] = x[i] + (v[i] + fall * Real(DT)) * Real(DT)


@wp.kernel
def stretch(
    x: wp.array(dtype=Vec),
    mass: wp.array(dtype=Real),
    edges: wp.array2d(dtype=int),
    rest: wp.array(dtype=Real),
    compliance: wp.array(dtype=Real),
    before: wp.array(dtype=Real),
    multiplier: wp.array(dtype=Real),
    delta: wp.array(dtype=Vec),
):
    e = wp.tid()
    i, j = edges[e, 0], edges[e, 1]
    d = x[i] - x[j]
    length = wp.length(d)
    wi, wj = Real(1.0) / mass[i], Real(1.0) / mass[j]
    alpha = compliance[0] / Real(DT * DT)
    change = -(length - rest[e] + alpha * before[e]) / (wi + wj + alpha)
    multiplier[e] = before[e] + change
    n = d / length
    wp.atomic_add(delta, i, n * (change * wi * Real(0.25)))
    wp.atomic_sub(delta, j, n * (change * wj * Real(0.25)))


@wp.kernel
def contacts(
    tree: wp.uint64,
    x: wp.array(dtype=Vec),
    old: wp.array(dtype=Vec),
    mass: wp.array(dtype=Real),
    friction: wp.array(dtype=Real),
    delta: wp.array(dtype=Vec),
):
    i = wp.tid()
    at = x[i]
    low, high = single(at), single(at)
    total = Vec()
    wi = Real(1.0) / mass[i]
    query = wp.bvh_query_aabb(tree, low, high)
    j = wp.int32(0)
    while wp.bvh_query_next(query, j):
        if along_the_sheet(i, j):
            continue
        d = at - x[j]
        length = wp.length(d)
        overlap = Real(THICK) - length
        if overlap > Real(0.0) and length > Real(1.0e-6):
            n = d / length
            share = wi / (wi + Real(1.0) / mass[j])
            push = overlap * overlap / Real(THICK)
            slide = (at - old[i]) - (x[j] - old[j])
            slide = slide - n * wp.dot(slide, n)
            total += (n * push - slide * (friction[0] * push / Real(THICK))) * share
    wp.atomic_add(delta, i, total * Real(0.5))


@wp.kernel
def correct(x: wp.array(dtype=Vec), delta: wp.array(dtype=Vec), out: wp.array(dtype=Vec)):
    i = wp.tid()
    fixed = i < 2
    if fixed:
        out[i] = x[i]
    else:
        out[i] = x[i] + delta[i]


@wp.kernel
def finish(x: wp.array(dtype=Vec), old: wp.array(dtype=Vec), v: wp.array(dtype=Vec)):
    i = wp.tid()
    v[i] = (x[i] - old[i]) / Real(DT)


@wp.kernel
def measure(x: wp.array(dtype=Vec), v: wp.array(dtype=Vec), loss: wp.array(dtype=Real)):
    i = wp.tid()
    away = x[i] - Vec(Real(0.5), Real(0.1), Real(0.5))
    wp.atomic_add(loss, 0, wp.dot(away, away) + Real(0.05) * wp.dot(v[i], v[i]))


KEPT = []  # what was recorded names trees by number


class Cloth:
    def __init__(self, values):
        types = {"compliance": Real, "mass": Real, "friction": Real}
        self.arrays = {n: wp.array(a, dtype=types.get(n, Vec), requires_grad=True) for n, a in values.items()}
        self.edges = wp.array(EDGES, dtype=int)
        self.lowers, self.uppers = wp.zeros(COUNT, dtype=wp.vec3), wp.zeros(COUNT, dtype=wp.vec3)
        self.find_boxes(self.arrays["position"])
        self.bvh = wp.Bvh(self.lowers, self.uppers)
        KEPT.append(self.bvh)

    def real(self, count, dtype=Vec):
        return wp.zeros(count, dtype=dtype, requires_grad=True)

    def find_boxes(self, x):
        wp.launch(boxes, dim=COUNT, inputs=[x], outputs=[self.lowers, self.uppers])

    def step(self, x, v, rest):
        given = self.arrays
        guess = self.real(COUNT)
        wp.launch(predict, dim=COUNT, inputs=[x, v], outputs=[guess])
        self.find_boxes(guess)
        self.bvh.refit()
        multiplier = self.real(len(EDGES), Real)
        for _ in range(ROUNDS):
            after, delta, better = self.real(len(EDGES), Real), self.real(COUNT), self.real(COUNT)
            wp.launch(
                stretch,
                dim=len(EDGES),
                inputs=[guess, given["mass"], self.edges, rest, given["compliance"], multiplier],
                outputs=[after, delta],
            )
            inputs = [self.bvh.id, guess, x, given["mass"], given["friction"]]
            wp.launch(contacts, dim=COUNT, inputs=inputs, outputs=[delta])
            wp.launch(correct, dim=COUNT, inputs=[guess, delta], outputs=[better])
            guess, multiplier = better, after
        speed = self.real(COUNT)
        wp.launch(finish, dim=COUNT, inputs=[guess, x], outputs=[speed])
        return guess, speed


def simulate(values):
    cloth = Cloth(values)
    loss, rest = cloth.real(1, Real), cloth.real(len(EDGES), Real)
    with wp.Tape() as tape:
        x, v = cloth.arrays["position"], cloth.arrays["velocity"]
        wp.launch(lengths, dim=len(EDGES), inputs=[x, cloth.edges], outputs=[rest])
        for _ in range(STEPS):
            x, v = cloth.step(x, v, rest)
        wp.launch(measure, dim=COUNT, inputs=[x, v], outputs=[loss])
    return tape, loss, cloth.arrays
