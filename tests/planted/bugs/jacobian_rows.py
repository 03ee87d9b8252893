"""Rows of a Jacobian are kept as x.grad.numpy(): with a view of one buffer all rows become the last one."""

import numpy as np

import workbench as wb


@wb.kernel
def mix(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    s = 0.0
    for j in range(x.shape[0]):
        s += float(i + j + 1) * x[j] * x[j]
    y[i] = s


def main():
    x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(mix, dim=2, inputs=[x], outputs=[y])
    rows = []
    for i in range(2):
        tape.zero()
        seed = np.zeros(2, np.float32)
        seed[i] = 1.0
        tape.backward(grads={y: wb.array(seed)})
        rows.append(x.grad.numpy())
    want = np.array([[2.0 * (i + j + 1) * (j + 1) for j in range(3)] for i in range(2)])
    return tape, {"rows": (np.stack(rows), want)}
