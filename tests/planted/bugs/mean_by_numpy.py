"""A mean is taken by NumPy and subtracted in a kernel that reads it from an array."""

import numpy as np

import workbench as wb

N = 32


@wb.kernel
def heights(a: wb.array[float], h: wb.array[float]):
    i = wb.tid()
    h[i] = wb.sin(a[0] * float(i)) + a[1]


@wb.kernel
def deviation(h: wb.array[float], mean: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    d = h[i] - mean[0]
    wb.atomic_add(loss, 0, d * d)


def main():
    a = wb.array([0.3, 1.0], requires_grad=True)
    h, mean, loss = wb.zeros(N), wb.zeros(1), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(heights, dim=N, inputs=[a], outputs=[h])
        mean.fill_(np.mean(h.numpy()))
        wb.launch(deviation, dim=N, inputs=[h, mean], outputs=[loss])
    tape.backward(loss)
    return tape
