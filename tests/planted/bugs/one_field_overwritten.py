"""A class-based simulation resets its velocity with fill_ in every step, after the forces were added to it."""

import numpy as np

import workbench as wb

N, STEPS = 10, 8


@wb.struct
class State:
    x: wb.array[float]
    v: wb.array[float]


@wb.kernel
def kick(s: State, k: wb.array[float]):
    i = wb.tid()
    s.v[i] = s.v[i] - 0.1 * k[0] * s.x[i]


@wb.kernel
def drift(s: State):
    i = wb.tid()
    s.x[i] = s.x[i] + 0.1 * s.v[i]


@wb.kernel
def energy(s: State, loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, s.x[i] * s.x[i])


class Solver:
    def __init__(self):
        self.k = wb.array([3.0], requires_grad=True)
        self.state = State()
        self.state.x = wb.array(np.linspace(1, 2, N, dtype=np.float32), requires_grad=True)
        self.state.v = wb.zeros(N)
        self.loss = wb.zeros(1)

    def run(self):
        for _ in range(STEPS):
            wb.launch(kick, dim=N, inputs=[self.state, self.k])
            self.state.v.fill_(0.0)
            wb.launch(drift, dim=N, inputs=[self.state])
        wb.launch(energy, dim=N, inputs=[self.state], outputs=[self.loss])


def main():
    solver = Solver()
    with wb.Tape() as tape:
        solver.run()
    tape.backward(solver.loss)
    return tape
