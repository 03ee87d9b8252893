"""Implicit heat: conductivities of a rod from its temperatures, steps by conjugate gradients without a matrix."""

import numpy as np

import workbench as wb

F = wb.float64
N, STEPS, DT = 16, 5, 4.0
VALUES = 1.0 + 0.3 * np.sin(np.arange(N + 1.0))


@wb.kernel
def times(k: wb.array[F], x: wb.array[F], y: wb.array[F], z: wb.array[F], a: F, b: F):
    """z = a (1 + dt K) x + b y, with the ends of the rod held at 0."""
    i = wb.tid()
    flow = (k[i] + k[i + 1]) * x[i]
    if i > 0:
        flow -= k[i] * x[i - 1]
    if i + 1 < N:
        flow -= k[i + 1] * x[i + 1]
    z[i] = a * (x[i] + F(DT) * flow) + b * y[i]


@wb.kernel
def heat(b: wb.array[F]):
    i = wb.tid()
    if i == 3:
        b[i] = b[i] + F(1.0)


@wb.kernel
def far(x: wb.array[F], loss: wb.array[F]):
    i = wb.tid()
    wb.atomic_add(loss, 0, F(0.5) * x[i] * x[i] * F(i))


def simulate(values):
    k = wb.array(values, dtype=F, requires_grad=True)
    A = wb.optim.linear.LinearOperator((N, N), F, "cpu", lambda *given: wb.launch(times, N, [k, *given]))
    with wb.Tape(keep="all") as tape:
        b, loss = wb.zeros(N, dtype=F), wb.zeros(1, dtype=F)
        for _ in range(STEPS):
            wb.launch(heat, N, [], [b])
            x = wb.zeros(N, dtype=F)
            wb.optim.linear.cg(A, b, x)
            b = wb.clone(x)
        wb.launch(far, N, [b], [loss])
    return tape, loss, k


def check():
    tape, loss, k = simulate(VALUES)
    v, h = np.cos(np.arange(N + 1.0)), 1e-5
    sides = []
    for s in (h, -h):
        other, end, moved = simulate(VALUES + s * v)
        other.backward(end)
        sides.append(moved.grad.numpy())
    np.testing.assert_allclose(wb.hvp(tape, loss, {k: v})[k], (sides[0] - sides[1]) / (2 * h), rtol=1e-5, atol=1e-9)
