"""A Jacobi solve that has converged."""

import workbench as wb

N = 12


@wb.kernel
def jacobi(p: wb.array[float], b: wb.array[float], out: wb.array[float]):
    i = wb.tid() + 1
    out[i] = (p[i - 1] + p[i + 1] - b[i]) / 2.5


@wb.kernel
def source(q: wb.array[float], b: wb.array[float]):
    i = wb.tid()
    b[i] = q[0] * wb.sin(0.5 * float(i))


@wb.kernel
def norm(p: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, p[wb.tid()] * p[wb.tid()])


def main():
    q = wb.array([0.3], requires_grad=True)
    b, p0, p1, loss = wb.zeros(N), wb.zeros(N), wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(source, dim=N, inputs=[q], outputs=[b])
        for _ in range(40):
            wb.launch(jacobi, dim=N - 2, inputs=[p0, b], outputs=[p1])
            p0, p1 = p1, p0
        wb.launch(norm, dim=N, inputs=[p0], outputs=[loss])
    tape.backward(loss)
    return tape
