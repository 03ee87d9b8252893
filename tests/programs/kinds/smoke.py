"""Smoke: a density carried by a flow without divergence, made so by Fourier transforms; the first flow is sought."""

import numpy as np

import workbench as wb

F = wb.float64
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
def carried(u: wb.array[F, 2], v: wb.array[F, 2], a: wb.array[F, 2], new: wb.array[F, 2]):
    """The value at where it came from, between the four points around; the box repeats."""
    i, j = wb.tid()
    x, y = F(i) - F(DT) * u[i, j], F(j) - F(DT) * v[i, j]
    k, m = int(wb.floor(x)), int(wb.floor(y))
    s, t = x - F(k), y - F(m)
    k, m = (k + N) % N, (m + N) % N
    left = (F(1.0) - t) * a[k, m] + t * a[k, (m + 1) % N]
    right = (F(1.0) - t) * a[(k + 1) % N, m] + t * a[(k + 1) % N, (m + 1) % N]
    new[i, j] = (F(1.0) - s) * left + s * right


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
            new = [wb.zeros((N, N), dtype=F) for _ in range(3)]
            for a, b in zip((u, v, d), new, strict=True):
                wb.launch(carried, (N, N), [u, v, a], [b])
            u, v, d = new
        wb.launch(miss, (N, N), [d], [loss])
    return tape, loss, flow


def check():
    u, v = (a.numpy() for a in projected(*(wb.array(a, dtype=F) for a in VALUES)))
    k = np.fft.fftfreq(N, 1 / N)
    k[N // 2] = 0.0
    divergence = k[:, None] * np.fft.fft2(u) + k * np.fft.fft2(v)
    assert np.abs(divergence).max() < 1e-12
