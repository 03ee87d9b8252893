"""The wave equation in three buffers that take turns."""

import numpy as np

import workbench as wb

N, STEPS = 24, 30


@wb.kernel
def step(p: wb.array2d[float], old: wb.array2d[float], c: wb.array[float], new: wb.array2d[float]):
    i, j = wb.tid()
    if i > 0 and j > 0 and i < 23 and j < 23:
        lap = p[i - 1, j] + p[i + 1, j] + p[i, j - 1] + p[i, j + 1] - 4.0 * p[i, j]
        new[i, j] = 2.0 * p[i, j] - old[i, j] + c[0] * lap


@wb.kernel
def misfit(p: wb.array2d[float], loss: wb.array[float]):
    i, j = wb.tid()
    wb.atomic_add(loss, 0, p[i, j] * p[i, j])


def main():
    c = wb.array([0.2], requires_grad=True)
    bump = np.zeros((N, N), np.float32)
    bump[8:12, 9:14] = 1.0
    a = wb.array(bump, requires_grad=True)
    b, new, loss = wb.clone(a), wb.zeros((N, N)), wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(STEPS):
            wb.launch(step, dim=(N, N), inputs=[b, a, c], outputs=[new])
            a, b, new = b, new, a
        wb.launch(misfit, dim=(N, N), inputs=[b], outputs=[loss])
    tape.backward(loss)
    return tape
