"""Contact with time of impact: a ball is thrown at a floor and rises again; where it is, by how it was thrown."""

import numpy as np

import workbench as wb

F = wb.float64
STEPS, DT, KEPT = 60, 0.03, 0.8
VALUES = np.array([1.0, 0.7, 0.4])  # height, speed across, speed up


@wb.func
def height(t: F, y: F, v: F):
    return y + t * (v - F(4.905) * t)


@wb.kernel
def step(s: wb.array[F]):
    x, y, u, v = s[0], s[1], s[2], s[3]
    t, hit = wb.first_root(height, F(0.0), F(DT), (y, v))
    if hit:
        rest = F(DT) - t
        v = -F(KEPT) * (v - F(9.81) * t)
        y = height(rest, F(0.0), v)
        v -= F(9.81) * rest
    else:
        y = height(F(DT), y, v)
        v -= F(9.81) * F(DT)
    s[0] = x + F(DT) * u
    s[1] = y
    s[2] = u
    s[3] = v


@wb.kernel
def thrown(p: wb.array[F], s: wb.array[F]):
    for k in range(3):
        s[k + 1] = p[k]


@wb.kernel
def place(s: wb.array[F], loss: wb.array[F]):
    loss[0] = s[0] * s[1] + s[3]


def simulate(values):
    p = wb.array(values, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        s, loss = wb.zeros(4, dtype=F), wb.zeros(1, dtype=F)
        wb.launch(thrown, 1, [p], [s])
        wb.integrate(lambda k, s: wb.launch(step, 1, [], [s]), s, STEPS)
        wb.launch(place, 1, [s], [loss])
    return tape, loss, p, s


def exact(values):
    """The same by the times of all impacts, in closed form."""
    y, u, v = values
    left, g = STEPS * DT, 9.81
    while (t := (v + np.sqrt(v * v + 2 * g * y)) / g) < left:
        y, v, left = 0.0, KEPT * (g * t - v), left - t
    return u * STEPS * DT * (y + v * left - g * left**2 / 2) + v - g * left


def check():
    np.testing.assert_allclose(simulate(VALUES)[1].numpy(), [exact(VALUES)], rtol=1e-10)
