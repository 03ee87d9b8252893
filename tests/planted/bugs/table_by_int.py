"""A field is looked up at the nearest node: int() cuts the derivative by the position."""

import numpy as np

import workbench as wb

N, STEPS = 6, 12


@wb.kernel
def force(x: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    node = float(int(x[i] * 10.0)) / 10.0
    f[i] = -2.0 * node


@wb.kernel
def move(x: wb.array[float], v: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    v[i] = v[i] + 0.1 * f[i]
    x[i] = x[i] + 0.1 * v[i]


@wb.kernel
def distance(x: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, x[wb.tid()] * x[wb.tid()])


def main():
    x = wb.array(np.linspace(1.0, 2.0, N, dtype=np.float32), requires_grad=True)
    v, f, loss = wb.zeros(N, requires_grad=True), wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(STEPS):
            wb.launch(force, dim=N, inputs=[x], outputs=[f])
            wb.launch(move, dim=N, inputs=[x, v, f])
        wb.launch(distance, dim=N, inputs=[x], outputs=[loss])
    tape.backward(loss)
    return tape
