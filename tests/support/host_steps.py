"""Programs with a step of the host in the middle: `x -> y = x * x -> step -> z -> w = z * z`, in two precisions."""

from __future__ import annotations

import numpy as np

import workbench as wb

X = [1.5, 2.0, -0.7]


@wb.kernel
def square32(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def square64(x: wb.array[wb.float64], y: wb.array[wb.float64]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def times32(a: float, x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = a * x[i]


@wb.kernel
def times64(a: wb.float64, x: wb.array[wb.float64], y: wb.array[wb.float64]):
    i = wb.tid()
    y[i] = a * x[i]


@wb.struct
class Spring32:
    k: float
    rest: float


@wb.struct
class Spring64:
    k: wb.float64
    rest: wb.float64


@wb.kernel
def pull32(s: Spring32, x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = s.k * (x[i] - s.rest)


@wb.kernel
def pull64(s: Spring64, x: wb.array[wb.float64], y: wb.array[wb.float64]):
    i = wb.tid()
    y[i] = s.k * (x[i] - s.rest)


class Kind:
    """One precision: its kernels, its types and a few arrays."""

    def __init__(self, bits: int):
        self.dtype = wb.float32 if bits == 32 else wb.float64
        self.np = np.float32 if bits == 32 else np.float64
        self.square, self.times, self.pull, self.spring = (
            (square32, times32, pull32, Spring32) if bits == 32 else (square64, times64, pull64, Spring64)
        )

    def new(self, n: int = 3):
        return wb.zeros(n, dtype=self.dtype)

    def ones(self, n: int = 3):
        return wb.ones(n, dtype=self.dtype)

    def squared(self, x):
        y = self.new(len(x))
        wb.launch(self.square, dim=len(x), inputs=[x], outputs=[y])
        return y

    def scaled(self, a, x):
        y = self.new(len(x))
        wb.launch(self.times, dim=len(x), inputs=[a, x], outputs=[y])
        return y


def run(kind: Kind, step, values, tape=None):
    x = wb.array(np.array(values, kind.np), requires_grad=True)
    if tape is None:
        return x, kind.squared(step(kind, kind.squared(x)))
    with tape:
        w = kind.squared(step(kind, kind.squared(x)))
    return x, w


def differences(kind: Kind, step) -> np.ndarray:
    """Central differences of the sum of w by x, the whole program run again."""
    h, found = 1e-2 if kind.dtype is wb.float32 else 1e-5, []
    for k in range(len(X)):
        ends = []
        for sign in (1, -1):
            values = list(X)
            values[k] += sign * h
            ends.append(run(kind, step, values)[1].numpy().astype(float).sum())
        found.append((ends[0] - ends[1]) / (2 * h))
    return np.array(found)


def check(kind: Kind, step) -> np.ndarray:
    tape = wb.Tape()
    x, w = run(kind, step, X, tape)
    tape.backward(grads={w: wb.ones(len(w), dtype=kind.dtype)})
    want = differences(kind, step)
    assert np.abs(want).max() > 0.1
    tolerance = 2e-2 if kind.dtype is wb.float32 else 1e-6
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=tolerance, atol=tolerance)
    return x.grad.numpy()
