"""A new tape in every step: only the last step is differentiated."""

import numpy as np

import workbench as wb

N, STEPS = 8, 5


@wb.kernel
def step(x: wb.array[float], k: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] + 0.1 * k[0] * wb.sin(x[i])


@wb.kernel
def energy(x: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, x[wb.tid()] * x[wb.tid()])


def main():
    k = wb.array([1.2], requires_grad=True)
    states = [wb.array(np.linspace(0.1, 1.0, N, dtype=np.float32), requires_grad=True)]
    loss = wb.zeros(1)
    for _ in range(STEPS):
        tape = wb.Tape()
        states.append(wb.zeros(N, requires_grad=True))
        with tape:
            wb.launch(step, dim=N, inputs=[states[-2], k], outputs=[states[-1]])
    with tape:
        wb.launch(energy, dim=N, inputs=[states[-1]], outputs=[loss])
    tape.backward(loss)
    return tape
