"""The gradient is read before this iteration's backward: the step uses the one of the last iteration, or zeros."""

import workbench as wb


@wb.kernel
def bowl(w: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, (w[i] - 2.0) * (w[i] - 2.0))


def main():
    w = wb.array([0.0, 1.0, 5.0], requires_grad=True)
    for _ in range(3):
        loss = wb.zeros(1)
        with wb.Tape() as tape:
            wb.launch(bowl, dim=3, inputs=[w], outputs=[loss])
        step = 0.1 * w.grad.numpy()
        tape.backward(loss)
        w.assign(w.numpy() - step)
        tape.zero()
    return tape
