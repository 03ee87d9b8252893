"""A reward of one for every particle in the goal: no derivative by where it is."""

import numpy as np

import workbench as wb

N = 16


@wb.kernel
def throw(v: wb.array[wb.vec2], x: wb.array[wb.vec2]):
    i = wb.tid()
    x[i] = v[i] * 0.5 + wb.vec2(0.0, -1.0) * 0.125


@wb.kernel
def score(x: wb.array[wb.vec2], loss: wb.array[float]):
    i = wb.tid()
    d = wb.length(x[i] - wb.vec2(1.0, 0.0))
    hit = wb.where(d < 0.8, 1.0, 0.0)
    wb.atomic_sub(loss, 0, hit)
    wb.atomic_add(loss, 0, 0.001 * wb.dot(x[i], x[i]))


def main():
    rng = np.random.default_rng(2)
    v = wb.array(rng.normal(1.0, 0.5, (N, 2)).astype(np.float32), dtype=wb.vec2, requires_grad=True)
    x, loss = wb.zeros(N, dtype=wb.vec2), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(throw, dim=N, inputs=[v], outputs=[x])
        wb.launch(score, dim=N, inputs=[x], outputs=[loss])
    tape.backward(loss)
    return tape
