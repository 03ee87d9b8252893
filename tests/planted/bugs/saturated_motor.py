"""A motor saturates in step 12 and stays so: its later commands have no gradient."""

import numpy as np

import workbench as wb

STEPS = 30


@wb.kernel
def control(gain: wb.array[float], angle: wb.array[float], k: int, torque: wb.array[float]):
    i = wb.tid()
    torque[k * 2 + i] = wb.clamp(gain[i] * angle[k * 2 + i], -1.0, 1.0)


@wb.kernel
def swing(angle: wb.array[float], torque: wb.array[float], k: int):
    i = wb.tid()
    growth = 1.02 + 0.06 * float(i)
    angle[(k + 1) * 2 + i] = growth * angle[k * 2 + i] + 0.01 * torque[k * 2 + i]


@wb.kernel
def upright(angle: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, 1e-3 * angle[i] * angle[i])


def main():
    gain = wb.array([-1.0, -1.5], requires_grad=True)
    start = np.zeros(2 * (STEPS + 1), np.float32)
    start[:2] = [0.2, 0.3]
    angle, torque, loss = wb.array(start), wb.zeros(2 * STEPS), wb.zeros(1)
    with wb.Tape() as tape:
        for k in range(STEPS):
            wb.launch(control, dim=2, inputs=[gain, angle, k], outputs=[torque])
            wb.launch(swing, dim=2, inputs=[angle, torque, k])
        wb.launch(upright, dim=2 * (STEPS + 1), inputs=[angle], outputs=[loss])
    tape.backward(loss)
    return tape
