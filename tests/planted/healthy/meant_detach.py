"""A moving average as a target: its gradient is stopped on purpose."""

import numpy as np

import workbench as wb

N = 12


@wb.kernel
def predict(w: wb.array[float], x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.sin(w[0] * x[i]) + w[1]


@wb.kernel
def towards(y: wb.array[float], target: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    d = y[i] - 0.9 * target[i]
    wb.atomic_add(loss, 0, d * d)


def main():
    w = wb.array([1.1, 0.2], requires_grad=True)
    x, y, loss = wb.array(np.linspace(0, 2, N, dtype=np.float32)), wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(predict, dim=N, inputs=[w, x], outputs=[y])
        target = wb.detach(y)
        wb.launch(towards, dim=N, inputs=[y, target], outputs=[loss])
    tape.backward(loss)
    data = np.linspace(0, 2, N)
    y0 = np.sin(1.1 * data) + 0.2
    d = 0.1 * y0
    want = np.array([np.sum(2 * d * np.cos(1.1 * data) * data), np.sum(2 * d)])
    return tape, {"w": (w.grad.numpy(), want)}
