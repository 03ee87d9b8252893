"""The errors of N samples are seeded with ones although the objective printed is their mean."""

import numpy as np

import workbench as wb

N = 32


@wb.kernel
def errors(w: wb.array[float], x: wb.array[float], t: wb.array[float], e: wb.array[float]):
    i = wb.tid()
    d = w[0] * x[i] - t[i]
    e[i] = d * d


def main():
    rng = np.random.default_rng(3)
    x = rng.normal(size=N).astype(np.float32)
    w, e = wb.array([0.5], requires_grad=True), wb.zeros(N)
    with wb.Tape() as tape:
        wb.launch(errors, dim=N, inputs=[w, wb.array(x), wb.array(2.0 * x)], outputs=[e])
    print(f"mean error {np.mean(e.numpy()):.3f}")
    tape.backward(grads={e: wb.ones(N)})
    return tape
