"""The ends of a rod are set from their neighbours, cell by cell, from Python."""

import numpy as np

import workbench as wb

N, STEPS = 12, 10


@wb.kernel
def diffuse(u: wb.array[float], k: wb.array[float], out: wb.array[float]):
    i = wb.tid() + 1
    out[i] = u[i] + k[0] * (u[i - 1] - 2.0 * u[i] + u[i + 1])


@wb.kernel
def misfit(u: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, u[i] * u[i])


def forward(k):
    a = wb.array(np.sin(np.linspace(0.3, 2.0, N)).astype(np.float32))
    b, loss = wb.zeros(N), wb.zeros(1)
    for _ in range(STEPS):
        wb.launch(diffuse, dim=N - 2, inputs=[a, k], outputs=[b])
        b[0] = b[1]
        b[N - 1] = b[N - 2]
        a, b = b, a
    wb.launch(misfit, dim=N, inputs=[a], outputs=[loss])
    return loss


def main():
    k = wb.array([0.2], requires_grad=True)
    with wb.Tape() as tape:
        loss = forward(k)
    tape.backward(loss)
    return tape, {"k": (k, forward)}
