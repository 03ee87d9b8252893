"""A lesson: one spring, its gradient by hand and by the tape, each step of it looked at, and a mistake found."""

import numpy as np

import workbench as wb

F = wb.float64
VALUES = np.array([2.0, 0.3])  # stiffness, where it is let go


@wb.kernel
def step(k: wb.array[F], x: wb.array[F], v: wb.array[F]):
    v[0] = v[0] - F(0.1) * k[0] * x[0]
    x[0] = x[0] + F(0.1) * v[0]


@wb.kernel
def begin(p: wb.array[F], x: wb.array[F]):
    x[0] = p[1]


@wb.kernel
def measure(x: wb.array[F], loss: wb.array[F]):
    loss[0] = x[0] * x[0]


def simulate(values, keep="needed"):
    p = wb.array(values, dtype=F, requires_grad=True)
    with wb.Tape(keep=keep) as tape:
        x, v, loss = wb.zeros(1, dtype=F), wb.zeros(1, dtype=F), wb.zeros(1, dtype=F)
        wb.launch(begin, 1, [p], [x])
        for _ in range(10):
            wb.launch(step, 1, [p], [x, v])
        wb.launch(measure, 1, [x], [loss])
    return tape, loss, p


def by_hand(values):
    """The gradient by the chain rule, forwards: how x and v change with both parameters."""
    k, x, v = values[0], values[1], 0.0
    dx, dv = np.array([0.0, 1.0]), np.zeros(2)
    for _ in range(10):
        dv = dv - 0.1 * (np.array([x, 0.0]) + k * dx)
        v = v - 0.1 * k * x
        dx, x = dx + 0.1 * dv, x + 0.1 * v
    return 2 * x * dx


def check():
    tape, loss, p = simulate(VALUES)
    tape.backward(loss)
    np.testing.assert_allclose(p.grad.numpy(), by_hand(VALUES), rtol=1e-12)
    rows = tape.ledger(p, 0).rows  # each step adds its part to the gradient by the stiffness
    np.testing.assert_allclose(sum(r.value for r in rows), p.grad.numpy()[0], rtol=1e-12)
    assert "step" in tape.show().text and not [f for f in tape.diagnose() if f.severity == "error"]
    tape.backward(loss)  # the mistake: gradients add up until they are cleared
    np.testing.assert_allclose(p.grad.numpy(), 2 * by_hand(VALUES), rtol=1e-12)
