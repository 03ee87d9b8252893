"""A state is normalised with NumPy in the middle of the program: the gradient through it is lost."""

import numpy as np

import workbench as wb


@wb.kernel
def stretch(x: wb.array[float], k: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = k[0] * x[i] + 0.1 * x[i] * x[i]


@wb.kernel
def energy(y: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, 0.5 * y[i] * y[i] * float(i + 1))


def main():
    k = wb.array([1.5], requires_grad=True)
    x, y, loss = wb.array(np.linspace(0.5, 2.0, 16, dtype=np.float32)), wb.zeros(16), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(stretch, dim=16, inputs=[x, k], outputs=[y])
        norm = np.linalg.norm(y.numpy())
        y.assign(y.numpy() / norm)
        wb.launch(energy, dim=16, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return tape
