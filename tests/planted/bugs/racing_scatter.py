"""Particles store their mass into cells instead of adding it."""

import numpy as np

import workbench as wb

N, CELLS = 64, 8


@wb.kernel
def deposit(x: wb.array[float], m: wb.array[float], grid: wb.array[float]):
    i = wb.tid()
    cell = int(x[i] * 8.0)
    grid[cell] = m[i]


@wb.kernel
def unevenness(grid: wb.array[float], loss: wb.array[float]):
    d = grid[wb.tid()] - 8.0
    wb.atomic_add(loss, 0, d * d)


def main():
    rng = np.random.default_rng(5)
    x = wb.array(rng.uniform(0, 1, N).astype(np.float32))
    m = wb.ones(N, requires_grad=True)
    grid, loss = wb.zeros(CELLS), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(deposit, dim=N, inputs=[x, m], outputs=[grid])
        wb.launch(unevenness, dim=CELLS, inputs=[grid], outputs=[loss])
    tape.backward(loss)
    return tape
