"""A ring of springs as a class, with forces that are cleared at the right place."""

import numpy as np

import workbench as wb

N, STEPS = 16, 25


@wb.kernel
def pull(x: wb.array[wb.vec2], rest: wb.array[float], f: wb.array[wb.vec2]):
    i = wb.tid()
    j = (i + 1) % 16
    d = x[j] - x[i]
    length = wb.length(d)
    s = 30.0 * (length - rest[i]) * d / length
    wb.atomic_add(f, i, s)
    wb.atomic_sub(f, j, s)


@wb.kernel
def integrate(x: wb.array[wb.vec2], v: wb.array[wb.vec2], f: wb.array[wb.vec2], dt: float):
    i = wb.tid()
    v[i] = v[i] * 0.999 + dt * f[i]
    x[i] = x[i] + dt * v[i]


@wb.kernel
def middle(x: wb.array[wb.vec2], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, wb.dot(x[i], x[i]) / 16.0)


class Ring:
    def __init__(self):
        angle = np.linspace(0, 2 * np.pi, N, endpoint=False)
        place = np.stack([np.cos(angle), 1.3 * np.sin(angle)], 1).astype(np.float32)
        self.x = wb.array(place, dtype=wb.vec2, requires_grad=True)
        self.v = wb.zeros(N, dtype=wb.vec2)
        self.f = wb.zeros(N, dtype=wb.vec2)
        self.rest = wb.full(N, 0.35, requires_grad=True)
        self.loss = wb.zeros(1)

    def step(self):
        self.f.zero_()
        wb.launch(pull, dim=N, inputs=[self.x, self.rest], outputs=[self.f])
        wb.launch(integrate, dim=N, inputs=[self.x, self.v, self.f, 0.02])


def main():
    ring = Ring()
    with wb.Tape() as tape:
        for _ in range(STEPS):
            ring.step()
        wb.launch(middle, dim=N, inputs=[ring.x], outputs=[ring.loss])
    tape.backward(ring.loss)
    return tape
