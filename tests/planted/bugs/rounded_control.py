"""Controls are rounded to what a motor can do, with wb.round, inside a rollout."""

import numpy as np

import workbench as wb

STEPS = 10


@wb.kernel
def quantise(u: wb.array[float], command: wb.array[float]):
    i = wb.tid()
    command[i] = wb.round(u[i] * 4.0) / 4.0


@wb.kernel
def roll(command: wb.array[float], k: int, state: wb.array[float]):
    state[k + 1] = 0.9 * state[k] + 0.1 * command[k]


@wb.kernel
def target(state: wb.array[float], u: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    d = state[i + 1] - 1.0
    wb.atomic_add(loss, 0, d * d + 0.01 * u[i] * u[i])


def main():
    u = wb.array(np.linspace(-1, 1, STEPS, dtype=np.float32), requires_grad=True)
    command, state, loss = wb.zeros(STEPS), wb.zeros(STEPS + 1), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(quantise, dim=STEPS, inputs=[u], outputs=[command])
        for k in range(STEPS):
            wb.launch(roll, dim=1, inputs=[command, k], outputs=[state])
        wb.launch(target, dim=STEPS, inputs=[state, u], outputs=[loss])
    tape.backward(loss)
    return tape
