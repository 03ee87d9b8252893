"""Whole orbits in one launch, with contact forces, a running minimum, a Horner scheme and a Newton iteration."""

import numpy as np

import workbench as wb

N, STEPS = 6, 60


@wb.kernel
def orbit(x0: wb.array[wb.vec2], v0: wb.array[wb.vec2], k: wb.array[float], end: wb.array[wb.vec2]):
    i = wb.tid()
    x, v = x0[i], v0[i]
    closest = wb.length(x)
    for t in range(STEPS):
        r = wb.length(x)
        closest = wb.min(closest, r)
        push = k[0] * wb.max(0.3 - r, 0.0)
        v = v + 0.02 * (push - 1.0) * x
        x = x + 0.02 * v
    end[i] = x + 0.1 * wb.vec2(closest, 0.0)


@wb.kernel
def drag(end: wb.array[wb.vec2], c: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    s = wb.length(end[i])
    root = s
    for n in range(9):
        root = 0.5 * (root + s / root)
    value = 0.0
    for n in range(c.shape[0]):
        value = value * root + c[n]
    wb.atomic_add(loss, 0, value)


def main():
    rng = np.random.default_rng(3)
    x0 = wb.array(rng.normal(size=(N, 2)).astype(np.float32), dtype=wb.vec2, requires_grad=True)
    v0 = wb.array(rng.normal(size=(N, 2)).astype(np.float32), dtype=wb.vec2)
    k, end, loss = wb.array([5.0], requires_grad=True), wb.zeros(N, dtype=wb.vec2), wb.zeros(1)
    c = wb.array(rng.normal(size=10).astype(np.float32), requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(orbit, dim=N, inputs=[x0, v0, k], outputs=[end])
        wb.launch(drag, dim=N, inputs=[end, c], outputs=[loss])
    tape.backward(loss)
    return tape
