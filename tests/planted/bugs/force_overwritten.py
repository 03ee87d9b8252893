"""The second force stores where it should add: the first is gone before anybody has read it."""

import numpy as np

import workbench as wb

N, STEPS = 8, 6


@wb.kernel
def pull(x: wb.array[float], k: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    f[i] = -k[0] * x[i]


@wb.kernel
def wind(v: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    f[i] = 0.5 * (3.0 - v[i])


@wb.kernel
def integrate(x: wb.array[float], v: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    v[i] = v[i] + 0.1 * f[i]
    x[i] = x[i] + 0.1 * v[i]


@wb.kernel
def height(x: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, x[wb.tid()] * x[wb.tid()])


class Simulation:
    def __init__(self):
        self.k = wb.array([2.0], requires_grad=True)
        self.x = wb.array(np.linspace(1, 2, N, dtype=np.float32), requires_grad=True)
        self.v, self.f, self.loss = wb.zeros(N), wb.zeros(N), wb.zeros(1)

    def step(self):
        wb.launch(pull, dim=N, inputs=[self.x, self.k], outputs=[self.f])
        wb.launch(wind, dim=N, inputs=[self.v], outputs=[self.f])
        wb.launch(integrate, dim=N, inputs=[self.x, self.v, self.f])


def main():
    sim = Simulation()
    with wb.Tape() as tape:
        for _ in range(STEPS):
            sim.step()
        wb.launch(height, dim=N, inputs=[sim.x], outputs=[sim.loss])
    tape.backward(sim.loss)
    return tape
