"""Ping-pong buffers: the loss reads the one that the last step has not written."""

import numpy as np

import workbench as wb

N = 16


@wb.kernel
def smooth(u: wb.array[float], k: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    left = wb.max(i - 1, 0)
    right = wb.min(i + 1, 15)
    out[i] = u[i] + k[0] * (u[left] - 2.0 * u[i] + u[right])


@wb.kernel
def misfit(u: wb.array[float], target: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, (u[i] - target[i]) * (u[i] - target[i]))


def main():
    k = wb.array([0.2], requires_grad=True)
    start = wb.array(np.cos(np.arange(N)).astype(np.float32))
    states = [wb.zeros(N) for _ in range(6)]
    target, loss = wb.ones(N), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(smooth, dim=N, inputs=[start, k], outputs=[states[0]])
        for t in range(1, 5):
            wb.launch(smooth, dim=N, inputs=[states[t - 1], k], outputs=[states[t]])
        wb.launch(misfit, dim=N, inputs=[states[5], target], outputs=[loss])
    tape.backward(loss)
    return tape
