"""Forces are cleared after they were computed, just before they are used."""

import numpy as np

import workbench as wb

N, STEPS = 8, 6


@wb.kernel
def springs(x: wb.array[float], rest: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    s = 4.0 * (x[i + 1] - x[i] - rest[i])
    wb.atomic_add(f, i, s)
    wb.atomic_sub(f, i + 1, s)


@wb.kernel
def integrate(x: wb.array[float], v: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    v[i] = v[i] + 0.1 * f[i]
    x[i] = x[i] + 0.1 * v[i]


@wb.kernel
def size(x: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, x[wb.tid()] * x[wb.tid()])


def main():
    rest = wb.full(N - 1, 0.8, requires_grad=True)
    x, v, f = wb.array(np.arange(N, dtype=np.float32), requires_grad=True), wb.zeros(N), wb.zeros(N)
    loss = wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(STEPS):
            wb.launch(springs, dim=N - 1, inputs=[x, rest], outputs=[f])
            f.zero_()
            wb.launch(integrate, dim=N, inputs=[x, v, f])
        wb.launch(size, dim=N, inputs=[x], outputs=[loss])
    tape.backward(loss)
    return tape
