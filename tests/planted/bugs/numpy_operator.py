"""Weights in a NumPy array times a state of the workbench: NumPy takes the operator over."""

import numpy as np

import workbench as wb

WEIGHTS = np.array([1.0, 0.5, 0.25, 0.125], dtype=np.float32)


@wb.kernel
def square(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def total(y: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, y[wb.tid()])


def forward(x):
    y, loss = wb.zeros(4), wb.zeros(1)
    wb.launch(square, dim=4, inputs=[x], outputs=[y])
    weighted = WEIGHTS * y
    wb.launch(total, dim=4, inputs=[wb.array(weighted)], outputs=[loss])
    return loss


def main():
    x = wb.array([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    with wb.Tape() as tape:
        loss = forward(x)
    tape.backward(loss)
    return tape, {"x": (x, forward)}
