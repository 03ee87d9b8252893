"""A torch operation stands between two kernels, outside torch's own function wrapper."""

import numpy as np
import torch

import workbench as wb


@wb.kernel
def layer(x: wb.array[float], w: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = w[0] * x[i] + w[1]


@wb.kernel
def squared(y: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, y[wb.tid()] * y[wb.tid()])


def main():
    w = wb.array([1.5, -0.25], requires_grad=True)
    x, y, loss = wb.array(np.linspace(-1, 1, 8, dtype=np.float32)), wb.zeros(8), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(layer, dim=8, inputs=[x, w], outputs=[y])
        hidden = wb.from_torch(torch.tanh(wb.to_torch(y)))
        wb.launch(squared, dim=8, inputs=[hidden], outputs=[loss])
    tape.backward(loss)
    return tape
