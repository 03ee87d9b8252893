"""A training loop as the tutorials write it: a fresh tape, backward, a step, zero."""

import numpy as np

import workbench as wb

N = 32


@wb.kernel
def model(w: wb.array[float], x: wb.array[float], t: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    d = w[0] * x[i] + w[1] - t[i]
    wb.atomic_add(loss, 0, d * d / 32.0)


def main():
    data = np.linspace(-1, 1, N, dtype=np.float32)
    w = wb.array([0.0, 0.0], requires_grad=True, name="w")
    x, t = wb.array(data), wb.array(3.0 * data + 1.0)
    history = []
    for _ in range(20):
        loss = wb.zeros(1)
        with wb.Tape() as tape:
            wb.launch(model, dim=N, inputs=[w, x, t], outputs=[loss])
        w.grad.zero_()
        tape.backward(loss)
        history.append(float(loss[0]))
        w.assign(w.numpy() - 0.2 * w.grad.numpy())
    assert history[-1] < 0.3 * history[0]
    return tape
