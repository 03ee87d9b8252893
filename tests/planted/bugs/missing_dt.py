"""One of two integrators forgets dt: the tapes of both are compared."""

import numpy as np

import workbench as wb

N, STEPS = 6, 5


@wb.kernel
def accelerate(v: wb.array[float], x: wb.array[float], dt: float):
    i = wb.tid()
    v[i] = v[i] - dt * 4.0 * x[i]


@wb.kernel
def move(x: wb.array[float], v: wb.array[float], dt: float):
    i = wb.tid()
    x[i] = x[i] + dt * v[i]


@wb.kernel
def move_wrong(x: wb.array[float], v: wb.array[float], dt: float):
    i = wb.tid()
    x[i] = x[i] + v[i]


@wb.kernel
def energy(x: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, x[wb.tid()] * x[wb.tid()])


def simulate(mover):
    x = wb.array(np.linspace(0.5, 1.0, N, dtype=np.float32), requires_grad=True)
    v, loss = wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(STEPS):
            wb.launch(accelerate, dim=N, inputs=[v, x, 0.05])
            wb.launch(mover, dim=N, inputs=[x, v, 0.05])
        wb.launch(energy, dim=N, inputs=[x], outputs=[loss])
    tape.backward(loss)
    return tape


def main():
    return simulate(move_wrong), simulate(move)
