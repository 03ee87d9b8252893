"""A hand-written derivative that is right, and a kernel with a kink: gradcheck has nothing against them."""

import numpy as np

import workbench as wb


@wb.func
def potential(d: float):
    return 3.0 * d * d + wb.exp(-d)


@wb.func_grad(potential)
def potential_grad(d: float, adj_ret: float):
    wb.adjoint[d] += adj_ret * (6.0 * d - wb.exp(-d))


@wb.kernel
def bonds(x: wb.array[float], e: wb.array[float]):
    i = wb.tid()
    e[i] = potential(x[i + 1] - x[i]) + 0.1 * wb.abs(x[i])


def main():
    x, e = wb.array(np.linspace(0.5, 4, 9, dtype=np.float32) ** 1.1, requires_grad=True), wb.zeros(8)
    return wb.gradcheck(bonds, dim=8, inputs=[x], outputs=[e])
