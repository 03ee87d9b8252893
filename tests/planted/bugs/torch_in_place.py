"""A torch tensor is scaled in place between forward and backward."""

import torch

import workbench as wb


@wb.kernel
def cube(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i] * x[i]


@wb.kernel
def total(y: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, y[wb.tid()])


def main():
    t = torch.linspace(1.0, 2.0, 5, requires_grad=True)
    x, y, loss = wb.from_torch(t), wb.zeros(5), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(cube, dim=5, inputs=[x], outputs=[y])
        wb.launch(total, dim=5, inputs=[y], outputs=[loss])
    with torch.no_grad():
        t *= 10.0
    tape.backward(loss)
    return tape
