"""Softened gravity of a few bodies, all pairs in a loop, states in a list."""

import numpy as np

import workbench as wb

N, STEPS = 9, 15


@wb.kernel
def kick(x: wb.array[wb.vec3], m: wb.array[float], v: wb.array[wb.vec3], out: wb.array[wb.vec3]):
    i = wb.tid()
    a = wb.vec3(0.0, 0.0, 0.0)
    for j in range(x.shape[0]):
        d = x[j] - x[i]
        r2 = wb.dot(d, d) + 0.01
        a += m[j] * d / (r2 * wb.sqrt(r2))
    out[i] = v[i] + 0.01 * a


@wb.kernel
def drift(x: wb.array[wb.vec3], v: wb.array[wb.vec3], out: wb.array[wb.vec3]):
    i = wb.tid()
    out[i] = x[i] + 0.01 * v[i]


@wb.kernel
def inertia(x: wb.array[wb.vec3], m: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, m[i] * wb.dot(x[i], x[i]))


def main():
    rng = np.random.default_rng(8)
    xs = [wb.array(rng.normal(size=(N, 3)).astype(np.float32), dtype=wb.vec3, requires_grad=True)]
    vs = [wb.zeros(N, dtype=wb.vec3)]
    m, loss = wb.ones(N, requires_grad=True), wb.zeros(1)
    with wb.Tape() as tape:
        for t in range(STEPS):
            vs.append(wb.zeros(N, dtype=wb.vec3))
            xs.append(wb.zeros(N, dtype=wb.vec3))
            wb.launch(kick, dim=N, inputs=[xs[t], m, vs[t]], outputs=[vs[t + 1]])
            wb.launch(drift, dim=N, inputs=[xs[t], vs[t + 1]], outputs=[xs[t + 1]])
        wb.launch(inertia, dim=N, inputs=[xs[-1], m], outputs=[loss])
    tape.backward(loss)
    return tape
