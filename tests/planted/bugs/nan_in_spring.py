"""One spring of many gets a negative number under its root in step 18."""

import numpy as np

import workbench as wb

N, STEPS = 24, 30


@wb.kernel
def springs(x: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    d = x[i + 1] - x[i]
    stretch = wb.sqrt(d - 0.5)
    wb.atomic_add(f, i, 2.0 * stretch)
    wb.atomic_sub(f, i + 1, 2.0 * stretch)


@wb.kernel
def integrate(x: wb.array[float], v: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    v[i] = v[i] + 0.01 * f[i]
    x[i] = x[i] + 0.01 * v[i]
    f[i] = 0.0


@wb.kernel
def span(x: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, x[wb.tid()] * x[wb.tid()])


def main():
    start = np.arange(N, dtype=np.float32)
    speed = np.zeros(N, np.float32)
    speed[10] = 2.7
    x, v, f = wb.array(start, requires_grad=True), wb.array(speed), wb.zeros(N)
    loss = wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(STEPS):
            wb.launch(springs, dim=N - 1, inputs=[x], outputs=[f])
            wb.launch(integrate, dim=N, inputs=[x, v, f])
        wb.launch(span, dim=N, inputs=[x], outputs=[loss])
    tape.backward(loss)
    return tape
