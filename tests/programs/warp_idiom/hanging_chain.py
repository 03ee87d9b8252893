"""A chain of masses, each step implicit: the system is assembled as a sparse matrix and solved by conjugate gradients.

The solve is written out, with products of the sparse matrix, so that every turn of it is on the tape.
"""

import numpy as np
import warp as wp

Real = wp.float32
COUNT, STEPS, TURNS, DT = 10, 3, 12, 0.1
WARP_GRADIENT = "same"
ROUNDING = 1e-4

rng = np.random.default_rng(12)
PARAMETERS = {
    "height": np.linspace(1.0, 0.0, COUNT) + 0.05 * rng.normal(size=COUNT),
    "speed": 0.2 * rng.normal(size=COUNT),
    "spring": np.array([20.0]),
}
PLACES = np.array([(i, j) for i in range(COUNT) for j in range(COUNT) if abs(i - j) <= 1])
OFFSETS = np.searchsorted(PLACES[:, 0], np.arange(COUNT + 1))


@wp.kernel
def assemble(
    rows: wp.array(dtype=int), columns: wp.array(dtype=int), spring: wp.array(dtype=Real), values: wp.array(dtype=Real)
):
    """1 + dt^2 K, K the matrix of springs between neighbours, the first held."""
    k = wp.tid()
    h = Real(DT * DT) * spring[0]
    if rows[k] == columns[k]:
        ends = Real(2.0)
        if rows[k] == COUNT - 1:
            ends = Real(1.0)
        values[k] = Real(1.0) + h * ends
    else:
        values[k] = -h


@wp.kernel
def right_side(
    x: wp.array(dtype=Real), v: wp.array(dtype=Real), spring: wp.array(dtype=Real), out: wp.array(dtype=Real)
):
    i = wp.tid()
    before = Real(1.1)
    if i > 0:
        before = x[i - 1]
    f = spring[0] * (before - x[i] - Real(0.1))
    if i < COUNT - 1:
        f = f + spring[0] * (x[i + 1] - x[i] + Real(0.1))
    out[i] = v[i] + Real(DT) * (f - Real(1.0))


@wp.kernel
def product(
    offsets: wp.array(dtype=int),
    columns: wp.array(dtype=int),
    values: wp.array(dtype=Real),
    x: wp.array(dtype=Real),
    out: wp.array(dtype=Real),
):
    i = wp.tid()
    for k in range(offsets[i], offsets[i + 1]):
        wp.atomic_add(out, i, values[k] * x[columns[k]])


@wp.kernel
def inner(a: wp.array(dtype=Real), b: wp.array(dtype=Real), out: wp.array(dtype=Real)):
    i = wp.tid()
    wp.atomic_add(out, 0, a[i] * b[i])


@wp.kernel
def along(
    x: wp.array(dtype=Real),
    p: wp.array(dtype=Real),
    top: wp.array(dtype=Real),
    bottom: wp.array(dtype=Real),
    sign: Real,
    out: wp.array(dtype=Real),
):
    """out = x + sign * (top / bottom) * p."""
    i = wp.tid()
    out[i] = x[i] + sign * p[i] * top[0] / bottom[0]


@wp.kernel
def forward(x: wp.array(dtype=Real), v: wp.array(dtype=Real), out: wp.array(dtype=Real)):
    i = wp.tid()
    out[i] = x[i] + Real(DT) * v[i]


@wp.kernel
def measure(x: wp.array(dtype=Real), v: wp.array(dtype=Real), loss: wp.array(dtype=Real)):
    i = wp.tid()
    wp.atomic_add(loss, 0, x[i] * x[i] + Real(0.1) * v[i] * v[i])


def new(n=COUNT):
    return wp.zeros(n, dtype=Real, requires_grad=True)


def dot(a, b):
    out = new(1)
    wp.launch(inner, dim=COUNT, inputs=[a, b], outputs=[out])
    return out


def combine(x, p, top, bottom, sign):
    out = new()
    wp.launch(along, dim=COUNT, inputs=[x, p, top, bottom, sign], outputs=[out])
    return out


def solve(offsets, columns, values, b):
    x, r, p = new(), b, b
    size = dot(r, r)
    for _ in range(TURNS // 3):
        ap = new()
        wp.launch(product, dim=COUNT, inputs=[offsets, columns, values, p], outputs=[ap])
        curvature = dot(p, ap)
        x = combine(x, p, size, curvature, 1.0)
        r = combine(r, ap, size, curvature, -1.0)
        smaller = dot(r, r)
        p = combine(r, p, smaller, size, 1.0)
        size = smaller
    return x


def simulate(values):
    arrays = {name: wp.array(a, dtype=Real, requires_grad=True) for name, a in values.items()}
    rows, columns, offsets = (wp.array(a, dtype=int) for a in (PLACES[:, 0], PLACES[:, 1], OFFSETS))
    loss = wp.zeros(1, dtype=Real, requires_grad=True)
    x, v = arrays["height"], arrays["speed"]
    with wp.Tape() as tape:
        entries = new(len(PLACES))
        wp.launch(assemble, dim=len(PLACES), inputs=[rows, columns, arrays["spring"]], outputs=[entries])
        for _ in range(STEPS):
            b, x_next = new(), new()
            wp.launch(right_side, dim=COUNT, inputs=[x, v, arrays["spring"]], outputs=[b])
            v = solve(offsets, columns, entries, b)
            wp.launch(forward, dim=COUNT, inputs=[x, v], outputs=[x_next])
            x = x_next
        wp.launch(measure, dim=COUNT, inputs=[x, v], outputs=[loss])
    return tape, loss, arrays
