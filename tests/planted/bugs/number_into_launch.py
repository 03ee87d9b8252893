"""The energy of a step is read as a Python number and handed to the next launch."""

import numpy as np

import workbench as wb

N = 16


@wb.kernel
def kinetic(v: wb.array[float], e: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(e, 0, 0.5 * v[i] * v[i])


@wb.kernel
def thermostat(v: wb.array[float], e: float, out: wb.array[float]):
    i = wb.tid()
    out[i] = v[i] * wb.sqrt(3.0 / e)


@wb.kernel
def momentum(v: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, v[wb.tid()] * float(wb.tid()))


def forward(v):
    e, out, loss = wb.zeros(1), wb.zeros(N), wb.zeros(1)
    wb.launch(kinetic, dim=N, inputs=[v], outputs=[e])
    wb.launch(thermostat, dim=N, inputs=[v, float(e[0])], outputs=[out])
    wb.launch(momentum, dim=N, inputs=[out], outputs=[loss])
    return loss


def main():
    v = wb.array(np.random.default_rng(1).normal(size=N).astype(np.float32), requires_grad=True)
    with wb.Tape() as tape:
        loss = forward(v)
    tape.backward(loss)
    return tape, {"v": (v, forward)}
