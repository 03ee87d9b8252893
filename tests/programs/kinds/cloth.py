"""Cloth: a sheet of springs held at two corners falls; the throw of its points is the parameter."""

import numpy as np

import workbench as wb

F, V = wb.float64, wb.vec3d
N, STEPS, DT = 6, 200, 0.01
VALUES = 0.2 * np.random.default_rng(2).normal(size=(N * N, 3))
TARGET = wb.vec3d(2.5, -1.0, 1.0)


@wb.func
def pull(a: V, b: V, rest: F):
    d = b - a
    return F(200.0) * (wb.length(d) - rest) * wb.normalize(d)


@wb.kernel
def forces(x: wb.array[V], f: wb.array[V]):
    i, j = wb.tid()
    k = i * N + j
    total = V(F(0.0), F(-2.0), F(0.0))
    for di in range(-1, 2):
        for dj in range(-1, 2):
            a, b = i + di, j + dj
            if (di != 0 or dj != 0) and a >= 0 and a < N and b >= 0 and b < N:
                total += pull(x[k], x[a * N + b], wb.sqrt(F(di * di + dj * dj)))
    f[k] = total
    if i == 0 and (j == 0 or j == N - 1):
        f[k] = V(F(0.0), F(0.0), F(0.0))


@wb.kernel
def hold(v: wb.array[V]):
    v[wb.tid() * (N - 1)] = V(F(0.0), F(0.0), F(0.0))


@wb.kernel
def miss(x: wb.array[V], loss: wb.array[F]):
    d = x[N * N - 1] - TARGET
    loss[0] = wb.dot(d, d)


def acceleration(t, x):
    f = wb.zeros(N * N, dtype=V)
    wb.launch(forces, (N, N), [x], [f])
    return f


def simulate(values):
    throw = wb.array(values, dtype=V, requires_grad=True)
    i, j = np.divmod(np.arange(N * N), N)
    with wb.Tape() as tape:
        x, v = wb.array(np.stack([j, 0 * i, i], 1), dtype=V), wb.clone(throw)
        wb.launch(hold, 2, [], [v])
        wb.integrate(lambda k, x, v: wb.symplectic_euler(acceleration, DT * k, DT, x, v), [x, v], STEPS)
        loss = wb.zeros(1, dtype=F)
        wb.launch(miss, 1, [x], [loss])
    return tape, loss, throw, x


def check():
    tape, loss, throw, x = simulate(VALUES)
    tape.backward(loss)
    assert [e.kind for e in tape.events].count("loop") == 1  # 200 steps: the loop is one event
    np.testing.assert_array_equal(x.numpy()[[0, N - 1]], [[0, 0, 0], [N - 1, 0, 0]])
    assert throw.grad.numpy()[1].any() and not throw.grad.numpy()[0].any()
