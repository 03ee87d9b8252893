"""System identification: the stiffness, damping and drive of a pendulum from noisy angles, with their covariance."""

import numpy as np

import workbench as wb

F = wb.float64
VALUES = np.array([3.0, 0.1, 0.5])  # the first guess of stiffness, damping, drive
TRUE = np.array([4.0, 0.2, 0.8])
SAMPLES, STEP, NOISE = 24, 0.25, 0.01


@wb.kernel
def rates(p: wb.array[F], x: wb.array[F], v: wb.array[F], t: F, dx: wb.array[F], dv: wb.array[F]):
    i = wb.tid()
    dx[i] = v[i]
    dv[i] = -p[0] * wb.sin(x[i]) - p[1] * v[i] + p[2] * wb.cos(t)


@wb.kernel
def residual(x: wb.array[F], data: wb.array[F], k: int, r: wb.array[F]):
    r[k] = x[0] - data[k]


@wb.kernel
def square(r: wb.array[F], loss: wb.array[F]):
    i = wb.tid()
    wb.atomic_add(loss, 0, r[i] * r[i])


def follow(p, data):
    """The differences of a swing from the data."""

    def f(t, x, v):
        dx, dv = wb.zeros(1, dtype=F), wb.zeros(1, dtype=F)
        wb.launch(rates, 1, [p, x, v, t], [dx, dv])
        return dx, dv

    x, v, r = wb.full(1, 1.0, dtype=F), wb.zeros(1, dtype=F), wb.zeros(SAMPLES, dtype=F)
    for k in range(SAMPLES):
        for half in range(2):
            wb.rk4(f, STEP * (k + half / 2), STEP / 2, x, v)
        wb.launch(residual, 1, [x, data, k], [r])
    return r


def simulate(values):
    p = wb.array(values, dtype=F, requires_grad=True)
    data = wb.array(MEASURED, dtype=F)
    with wb.Tape() as tape:
        r, loss = follow(p, data), wb.zeros(1, dtype=F)
        wb.launch(square, SAMPLES, [r], [loss])
    return tape, loss, p, r


MEASURED = np.zeros(SAMPLES)
MEASURED = simulate(TRUE)[3].numpy() + NOISE * np.random.default_rng(1).normal(size=SAMPLES)


def fit(values, rounds=8):
    """Gauss and Newton's method. Returns the parameters and their covariance."""
    for _ in range(rounds):
        tape, _, p, r = simulate(values)
        values = values - np.linalg.lstsq(wb.jacobian(tape, r, p), r.numpy(), rcond=None)[0]
    tape, _, p, r = simulate(values)
    return values, wb.covariance(tape, r, p)


def check():
    found, spread = fit(VALUES)
    deviations = np.sqrt(np.diag(spread.matrix))
    assert spread.rank == 3 and 0.5 * NOISE < spread.deviation < 2 * NOISE
    assert (np.abs(found - TRUE) < 4 * deviations).all() and (deviations < 0.05).all()
