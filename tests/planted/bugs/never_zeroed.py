"""A training loop that never zeroes the gradient: it piles up from iteration to iteration."""

import numpy as np

import workbench as wb

N = 16


@wb.kernel
def model(w: wb.array[float], x: wb.array[float], t: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    d = w[0] * x[i] + w[1] - t[i]
    wb.atomic_add(loss, 0, d * d / 16.0)


@wb.kernel
def descend(w: wb.array[float], g: wb.array[float]):
    w[wb.tid()] = w[wb.tid()] - 0.05 * g[wb.tid()]


def main():
    data = np.linspace(-1, 1, N, dtype=np.float32)
    w = wb.array([0.0, 0.0], requires_grad=True)
    x, t = wb.array(data), wb.array(3.0 * data + 1.0)
    for _ in range(5):
        loss = wb.zeros(1)
        with wb.Tape() as tape:
            wb.launch(model, dim=N, inputs=[w, x, t], outputs=[loss])
        tape.backward(loss)
        wb.launch(descend, dim=2, inputs=[w, w.grad])
    return tape
