"""Two tapes, chained by the position alone: the velocity's adjoint is forgotten."""

import numpy as np

import workbench as wb

N = 8


@wb.kernel
def advance(x: wb.array[float], v: wb.array[float], g: wb.array[float], x1: wb.array[float], v1: wb.array[float]):
    i = wb.tid()
    v1[i] = v[i] + 0.1 * g[0]
    x1[i] = x[i] + 0.1 * v[i]


@wb.kernel
def far(x: wb.array[float], v: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, x[i] * x[i] + v[i] * v[i])


def main():
    g = wb.array([-9.8], requires_grad=True)
    x0, v0 = wb.array(np.linspace(0, 1, N, dtype=np.float32)), wb.ones(N)
    x1, v1 = wb.zeros(N, requires_grad=True), wb.zeros(N, requires_grad=True)
    loss = wb.zeros(1)
    with wb.Tape() as first:
        wb.launch(advance, dim=N, inputs=[x0, v0, g], outputs=[x1, v1])
    with wb.Tape() as second:
        wb.launch(far, dim=N, inputs=[x1, v1], outputs=[loss])
    second.backward(loss)
    first.backward(grads={x1: x1.grad})
    return second
