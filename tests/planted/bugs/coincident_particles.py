"""Two particles at one place: the distance has no derivative there, and the force divides by it."""

import numpy as np

import workbench as wb

N = 5


@wb.kernel
def repel(x: wb.array[wb.vec3], e: wb.array[float]):
    i, j = wb.tid()
    if i < j:
        d = wb.length(x[i] - x[j])
        wb.atomic_add(e, i, 1.0 / d)


@wb.kernel
def total(e: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, e[wb.tid()])


def main():
    start = np.random.default_rng(7).normal(size=(N, 3)).astype(np.float32)
    start[3] = start[1]
    x = wb.array(start, dtype=wb.vec3, requires_grad=True)
    e, loss = wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(repel, dim=(N, N), inputs=[x], outputs=[e])
        wb.launch(total, dim=N, inputs=[e], outputs=[loss])
    tape.backward(loss)
    return tape
