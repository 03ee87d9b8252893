"""Particles to a grid and back: int() gives the cell, the weights carry the derivative."""

import numpy as np

import workbench as wb

N, CELLS, STEPS = 32, 16, 4


@wb.kernel
def to_grid(x: wb.array[float], v: wb.array[float], m: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    base = int(x[i] * 16.0 - 0.5)
    f = x[i] * 16.0 - float(base)
    wb.atomic_add(m, base, 1.5 - f)
    wb.atomic_add(m, base + 1, f - 0.5)
    wb.atomic_add(p, base, (1.5 - f) * v[i])
    wb.atomic_add(p, base + 1, (f - 0.5) * v[i])


@wb.kernel
def to_particles(m: wb.array[float], p: wb.array[float], x: wb.array[float], v: wb.array[float]):
    i = wb.tid()
    base = int(x[i] * 16.0 - 0.5)
    f = x[i] * 16.0 - float(base)
    u = (1.5 - f) * p[base] / (m[base] + 1e-6) + (f - 0.5) * p[base + 1] / (m[base + 1] + 1e-6)
    v[i] = u
    x[i] = x[i] + 0.01 * u


@wb.kernel
def centre(x: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, (x[wb.tid()] - 0.7) * (x[wb.tid()] - 0.7))


def main():
    rng = np.random.default_rng(4)
    x = wb.array(rng.uniform(0.2, 0.7, N).astype(np.float32), requires_grad=True)
    v = wb.array(rng.normal(0.3, 0.1, N).astype(np.float32), requires_grad=True)
    m, p, loss = wb.zeros(CELLS), wb.zeros(CELLS), wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(STEPS):
            m.zero_()
            p.zero_()
            wb.launch(to_grid, dim=N, inputs=[x, v], outputs=[m, p])
            wb.launch(to_particles, dim=N, inputs=[m, p, x, v])
        wb.launch(centre, dim=N, inputs=[x], outputs=[loss])
    tape.backward(loss)
    return tape
