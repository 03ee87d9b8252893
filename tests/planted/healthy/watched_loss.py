"""Values are read and printed while the tape records, and nothing is written back."""

import numpy as np

import workbench as wb

N, STEPS = 8, 12


@wb.kernel
def cool(u: wb.array[float], k: wb.array[float], dt: float, out: wb.array[float]):
    i = wb.tid()
    out[i] = u[i] - dt * k[0] * u[i]


@wb.kernel
def total(u: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, u[wb.tid()])


def main():
    k = wb.array([0.5], requires_grad=True)
    states = [wb.array(np.linspace(1, 2, N, dtype=np.float32))]
    loss, dt, lines = wb.zeros(1), 0.1, []
    with wb.Tape() as tape:
        for t in range(STEPS):
            states.append(wb.zeros(N))
            wb.launch(cool, dim=N, inputs=[states[t], k, dt], outputs=[states[t + 1]])
            largest = float(np.max(states[t + 1].numpy()))
            lines.append(f"step {t}: largest {largest:.3f}, first {states[t + 1][0]:.3f}")
        wb.launch(total, dim=N, inputs=[states[-1]], outputs=[loss])
        lines.append(f"loss {loss.numpy()[0]:.4f}")
    print("\n".join(lines))
    tape.backward(loss)
    return tape
