"""A softplus by `where`: exp overflows on the side that is not taken, and 0 times infinity is not a number."""

import numpy as np

import workbench as wb


@wb.kernel
def softplus(z: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.where(z[i] > 20.0, z[i], wb.log(1.0 + wb.exp(z[i])))


@wb.kernel
def total(y: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, y[wb.tid()])


def main():
    values = np.array([-113.0, -3.0, 0.0, 2.0, 21.0, 113.0], dtype=np.float32)
    z, y, loss = wb.array(values, requires_grad=True), wb.zeros(6), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(softplus, dim=6, inputs=[z], outputs=[y])
        wb.launch(total, dim=6, inputs=[y], outputs=[loss])
    tape.backward(loss)
    want = 1.0 / (1.0 + np.exp(-values.astype(np.float64)))
    return tape, {"z": (z.grad.numpy(), want)}
