"""Two layers with a ReLU: many units are off for many samples, as they should be."""

import numpy as np

import workbench as wb

N, H = 20, 6


@wb.kernel
def hidden(x: wb.array[float], w: wb.array2d[float], h: wb.array2d[float]):
    i, j = wb.tid()
    h[i, j] = wb.max(w[0, j] * x[i] + w[1, j], 0.0)


@wb.kernel
def output(h: wb.array2d[float], w: wb.array[float], t: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    y = 0.0
    for j in range(h.shape[1]):
        y += w[j] * h[i, j]
    wb.atomic_add(loss, 0, (y - t[i]) * (y - t[i]) / float(h.shape[0]))


def main():
    rng = np.random.default_rng(6)
    x = np.linspace(-1, 1, N, dtype=np.float32)
    w1 = wb.array(rng.normal(size=(2, H)).astype(np.float32), requires_grad=True)
    w2 = wb.array(rng.normal(size=H).astype(np.float32), requires_grad=True)
    h, loss = wb.zeros((N, H)), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(hidden, dim=(N, H), inputs=[wb.array(x), w1], outputs=[h])
        wb.launch(output, dim=N, inputs=[h, w2, wb.array(np.abs(x))], outputs=[loss])
    tape.backward(loss)
    return tape
