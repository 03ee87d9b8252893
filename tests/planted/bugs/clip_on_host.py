"""Velocities are clipped with NumPy in every step of a time loop."""

import numpy as np

import workbench as wb

N, STEPS, DT = 8, 20, 0.05


@wb.kernel
def push(x: wb.array[float], v: wb.array[float], stiffness: wb.array[float]):
    i = wb.tid()
    v[i] = v[i] - 0.05 * stiffness[0] * x[i]


@wb.kernel
def drift(x: wb.array[float], v: wb.array[float]):
    i = wb.tid()
    x[i] = x[i] + 0.05 * v[i]


@wb.kernel
def distance(x: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, x[wb.tid()] * x[wb.tid()])


def main():
    stiffness = wb.array([4.0], requires_grad=True)
    x, v, loss = wb.array(np.linspace(1, 2, N, dtype=np.float32)), wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(STEPS):
            wb.launch(push, dim=N, inputs=[x, v, stiffness])
            v.assign(np.clip(v.numpy(), -5.0, 5.0))
            wb.launch(drift, dim=N, inputs=[x, v])
        wb.launch(distance, dim=N, inputs=[x], outputs=[loss])
    tape.backward(loss)
    return tape
