"""Six sweeps of Jacobi where sixty were needed: the pressure is far from solved."""

import numpy as np

import workbench as wb

N = 64


@wb.kernel
def jacobi(p: wb.array[float], b: wb.array[float], out: wb.array[float]):
    i = wb.tid() + 1
    out[i] = 0.5 * (p[i - 1] + p[i + 1] - b[i])


@wb.kernel
def source(q: wb.array[float], b: wb.array[float]):
    i = wb.tid()
    b[i] = q[0] * wb.sin(0.1 * float(i))


@wb.kernel
def norm(p: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, p[wb.tid()] * p[wb.tid()])


def main():
    q = wb.array([0.3], requires_grad=True)
    b, loss = wb.zeros(N), wb.zeros(1)
    p0, p1 = wb.zeros(N), wb.zeros(N)
    with wb.Tape() as tape:
        wb.launch(source, dim=N, inputs=[q], outputs=[b])
        for _ in range(6):
            wb.launch(jacobi, dim=N - 2, inputs=[p0, b], outputs=[p1])
            p0, p1 = p1, p0
        wb.launch(norm, dim=N, inputs=[p0], outputs=[loss])
    print(f"norm of the pressure after {len(tape.launches) - 2} sweeps: {np.sqrt(loss.numpy()[0]):.3f}")
    tape.backward(loss)
    return tape
