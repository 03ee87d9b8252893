"""A long run cut into two tapes, each seeded with what the later one found."""

import numpy as np

import workbench as wb

N = 8


@wb.kernel
def advance(x: wb.array[float], v: wb.array[float], g: wb.array[float], x1: wb.array[float], v1: wb.array[float]):
    i = wb.tid()
    v1[i] = v[i] - 0.1 * g[0] * x[i]
    x1[i] = x[i] + 0.1 * v1[i]


@wb.kernel
def far(x: wb.array[float], v: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, x[i] * x[i] + v[i] * v[i])


def main():
    g = wb.array([9.8], requires_grad=True)
    x0, v0 = wb.array(np.linspace(0, 1, N, dtype=np.float32)), wb.ones(N)
    x1, v1 = wb.zeros(N, requires_grad=True), wb.zeros(N, requires_grad=True)
    x2, v2, loss = wb.zeros(N), wb.zeros(N), wb.zeros(1)
    with wb.Tape() as first:
        wb.launch(advance, dim=N, inputs=[x0, v0, g], outputs=[x1, v1])
    with wb.Tape() as second:
        wb.launch(advance, dim=N, inputs=[x1, v1, g], outputs=[x2, v2])
        wb.launch(far, dim=N, inputs=[x2, v2], outputs=[loss])
    second.backward(loss)
    first.backward(grads={x1: x1.grad, v1: v1.grad})
    return first
