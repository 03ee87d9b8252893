"""requires_grad was forgotten on the parameter."""

import workbench as wb


@wb.kernel
def spring(k: wb.array[float], x: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, 0.5 * k[0] * x[i] * x[i])


def main():
    k, x, loss = wb.array([2.0]), wb.array([1.0, 2.0, 3.0]), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(spring, dim=3, inputs=[k, x], outputs=[loss])
    tape.backward(loss)
    return tape
