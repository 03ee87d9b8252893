"""Smoke: a density carried by a flow without divergence, made so by Fourier transforms; the first flow is sought."""

import numpy as np

import workbench as wb

F, V = wb.float64, wb.vec2d
N, STEPS, DT = 12, 6, 0.8
VALUES = 0.3 * np.random.default_rng(5).normal(size=(2, N, N))
BALL = np.exp(-((np.arange(N)[:, None] - 4.0) ** 2 + (np.arange(N) - 5.0) ** 2) / 4)


@wb.kernel
def project(kx: wb.array[F, 3], ky: wb.array[F, 3], new_x: wb.array[F, 3], new_y: wb.array[F, 3]):
    """Take off what is along the wave vector, the gradient of a pressure."""
    i, j = wb.tid()
    a, b = F(i), F(j)
    if 2 * i > N:
        a -= F(N)
    if 2 * i == N:
        a = F(0.0)  # of this frequency no real function has a slope
    if 2 * j == N:
        b = F(0.0)
    square = a * a + b * b
    for c in range(2):
        along = F(0.0)
        if square > F(0.0):
            along = (a * kx[i, j, c] + b * ky[i, j, c]) / square
        new_x[i, j, c] = kx[i, j, c] - a * along
        new_y[i, j, c] = ky[i, j, c] - b * along


@wb.kernel
def back(u: wb.array[F, 2], v: wb.array[F, 2], places: wb.array[V]):
    i, j = wb.tid()
    places[i * N + j] = V(F(i) - F(DT) * u[i, j], F(j) - F(DT) * v[i, j])


@wb.kernel
def miss(d: wb.array[F, 2], loss: wb.array[F]):
    i, j = wb.tid()
    wb.atomic_add(loss, 0, d[i, j] * d[i, j] * (F(1.0) + F(i)) * F(j))


def projected(u, v):
    waves = [wb.numerics.fft(wb.numerics.rfft(a), axis=0) for a in (u, v)]
    new = [wb.zeros(waves[0].shape, dtype=F) for _ in range(2)]
    wb.launch(project, new[0].shape[:2], waves, new)
    return [wb.numerics.irfft(wb.numerics.ifft(a, axis=0), n=N) for a in new]


def simulate(values):
    flow = wb.array(values, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        u, v, d, loss = flow[0], flow[1], wb.array(BALL, dtype=F), wb.zeros(1, dtype=F)
        for _ in range(STEPS):
            u, v = projected(u, v)
            places = wb.zeros(N * N, dtype=V)
            wb.launch(back, (N, N), [u, v], [places])
            u, v, d = (wb.numerics.interpolate(a, places, order=3).reshape((N, N)) for a in (u, v, d))
        wb.launch(miss, (N, N), [d], [loss])
    return tape, loss, flow


def check():
    u, v = (a.numpy() for a in projected(*(wb.array(a, dtype=F) for a in VALUES)))
    k = np.fft.fftfreq(N, 1 / N)
    k[N // 2] = 0.0
    divergence = k[:, None] * np.fft.fft2(u) + k * np.fft.fft2(v)
    assert np.abs(divergence).max() < 1e-12
