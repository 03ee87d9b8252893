"""The inputs are shuffled in their own NumPy memory before backward has read them."""

import numpy as np

import workbench as wb

N = 16


@wb.kernel
def model(w: wb.array[float], x: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, wb.exp(w[0] * x[i]))


def main():
    data = np.linspace(-1, 1, N, dtype=np.float32)
    x = wb.from_numpy(data)
    w, loss = wb.array([0.7], requires_grad=True), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(model, dim=N, inputs=[w, x], outputs=[loss])
    np.random.default_rng(0).shuffle(data)
    data += 0.01
    tape.backward(loss)
    return tape
