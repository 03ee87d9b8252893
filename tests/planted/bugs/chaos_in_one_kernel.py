"""The whole time loop lies in one kernel: the angles stay between 0 and 1, the adjoint doubles with every turn."""

import numpy as np

import workbench as wb

N, STEPS = 16, 30


@wb.kernel
def simulate(x: wb.array[float], r: wb.array[float], steps: int, end: wb.array[float]):
    i = wb.tid()
    z = x[i]
    for t in range(steps):
        push = r[0] * z
        z = push * (1.0 - z)
    end[i] = z


@wb.kernel
def average(x: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, 1e-6 * x[wb.tid()])


def main():
    r = wb.array([3.99], requires_grad=True)
    x = wb.array(np.linspace(0.11, 0.87, N, dtype=np.float32), requires_grad=True)
    end, loss = wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(simulate, dim=N, inputs=[x, r, STEPS], outputs=[end])
        wb.launch(average, dim=N, inputs=[end], outputs=[loss])
    tape.backward(loss)
    return tape
