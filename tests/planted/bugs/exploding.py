"""The state stays between 0 and 1, the adjoint doubles in every step."""

import itertools

import numpy as np

import workbench as wb

N, STEPS = 16, 24


@wb.kernel
def logistic(x: wb.array[float], r: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = r[0] * x[i] * (1.0 - x[i])


@wb.kernel
def average(x: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, 1e-6 * x[wb.tid()])


def main():
    r = wb.array([3.99], requires_grad=True)
    x = wb.array(np.linspace(0.11, 0.87, N, dtype=np.float32), requires_grad=True)
    states, loss = [x] + [wb.zeros(N) for _ in range(STEPS)], wb.zeros(1)
    with wb.Tape() as tape:
        for a, b in itertools.pairwise(states):
            wb.launch(logistic, dim=N, inputs=[a, r], outputs=[b])
        wb.launch(average, dim=N, inputs=[states[-1]], outputs=[loss])
    tape.backward(loss)
    return tape
