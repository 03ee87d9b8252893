"""A rocket whose whole flight is one launch: the throttle of the last rocket reaches its limit and stays there."""

import workbench as wb

N, STEPS = 4, 40


@wb.kernel
def fly(gain: wb.array[float], goal: float, heights: wb.array2d[float]):
    i = wb.tid()
    v = 0.0
    for t in range(STEPS):
        error = goal * float(t) - heights[t, i]
        throttle = wb.clamp(gain[i] * error, -1.0, 1.0)
        v = v + 0.1 * (throttle - 0.05 * v)
        heights[t + 1, i] = heights[t, i] + 0.1 * v


@wb.kernel
def misfit(heights: wb.array2d[float], loss: wb.array[float]):
    t, i = wb.tid()
    d = heights[t, i] - 0.1 * float(t)
    wb.atomic_add(loss, 0, d * d)


def main():
    gain = wb.array([0.01, 0.05, 0.1, 2.0], requires_grad=True)
    heights, loss = wb.zeros((STEPS + 1, N)), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(fly, dim=N, inputs=[gain, 0.11], outputs=[heights])
        wb.launch(misfit, dim=(STEPS + 1, N), inputs=[heights], outputs=[loss])
    tape.backward(loss)
    return tape
