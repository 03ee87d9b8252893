"""Drag is computed into an array that nobody reads."""

import numpy as np

import workbench as wb

N, STEPS = 8, 10


@wb.kernel
def gravity(x: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    f[i] = -1.5 * x[i]


@wb.kernel
def drag(v: wb.array[float], c: wb.array[float], fd: wb.array[float]):
    i = wb.tid()
    fd[i] = -c[0] * v[i] * wb.abs(v[i])


@wb.kernel
def integrate(x: wb.array[float], v: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    v[i] = v[i] + 0.1 * f[i]
    x[i] = x[i] + 0.1 * v[i]


@wb.kernel
def height(x: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, x[wb.tid()] * x[wb.tid()])


def main():
    c = wb.array([0.3], requires_grad=True)
    x = wb.array(np.linspace(1, 2, N, dtype=np.float32), requires_grad=True)
    v, f, fd, loss = wb.ones(N), wb.zeros(N), wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(STEPS):
            wb.launch(gravity, dim=N, inputs=[x], outputs=[f])
            wb.launch(drag, dim=N, inputs=[v, c], outputs=[fd])
            wb.launch(integrate, dim=N, inputs=[x, v, f])
        wb.launch(height, dim=N, inputs=[x], outputs=[loss])
    tape.backward(loss)
    return tape
