"""A long run of a fluid in shallow water, walked back in segments: each starts from a saved state and is run again.

Only the states at the heads of the segments are kept; a segment is recorded when its turn to be walked comes.
"""

import numpy as np
import warp as wp

Real = wp.float32
N, STEPS, SEGMENT, DT = 10, 23, 6, 0.05
DEPTH = wp.constant(1.0)
WARP_GRADIENT = "same"

rng = np.random.default_rng(23)
y, x = np.mgrid[0:N, 0:N] * 2 * np.pi / N
PARAMETERS = {
    "height": 0.1 * np.exp(-((x - 3) ** 2) - (y - 3) ** 2) + 0.01 * rng.normal(size=(N, N)),
    "u": 0.1 * np.sin(y) + 0.02 * rng.normal(size=(N, N)),
    "v": 0.1 * np.cos(x) + 0.02 * rng.normal(size=(N, N)),
    "bottom": 0.05 * np.sin(x + y) + 0.01 * rng.normal(size=(N, N)),
    "drag": np.array([0.3]),
}
STATE = ("height", "u", "v")


@wp.func
def cyclic(i: int):
    k = i % N
    if k < 0:
        k = k + N
    return k


@wp.func
def value(f: wp.array2d(dtype=Real), i: int, j: int):
    return f[cyclic(i), cyclic(j)]


@wp.func
def upwind(f: wp.array2d(dtype=Real), speed: Real, i: int, j: int, di: int, dj: int):
    """The derivative of a field along one axis, taken from where the flow comes."""
    slope = value(f, i, j) - value(f, i - di, j - dj)
    if speed < Real(0.0):
        slope = value(f, i + di, j + dj) - value(f, i, j)
    return slope * Real(N) * Real(0.25)


@wp.kernel
def accelerate(
    h: wp.array2d(dtype=Real),
    u: wp.array2d(dtype=Real),
    v: wp.array2d(dtype=Real),
    bottom: wp.array2d(dtype=Real),
    drag: wp.array(dtype=Real),
    u_next: wp.array2d(dtype=Real),
    v_next: wp.array2d(dtype=Real),
):
    """Advection, the slope of the surface, and a drag that grows with the speed."""
    i, j = wp.tid()
    a, b = u[i, j], v[i, j]
    surface_x = value(h, i, j + 1) - value(h, i, j - 1) + value(bottom, i, j + 1) - value(bottom, i, j - 1)
    surface_y = value(h, i + 1, j) - value(h, i - 1, j) + value(bottom, i + 1, j) - value(bottom, i - 1, j)
    rub = drag[0] * wp.sqrt(a * a + b * b + Real(1.0e-4))
    push_u = a * upwind(u, a, i, j, 0, 1) + b * upwind(u, b, i, j, 1, 0) + surface_x + rub * a
    push_v = a * upwind(v, a, i, j, 0, 1) + b * upwind(v, b, i, j, 1, 0) + surface_y + rub * b
    u_next[i, j] = a - Real(DT) * push_u
    v_next[i, j] = b - Real(DT) * push_v


@wp.kernel
def flow(
    h: wp.array2d(dtype=Real), u: wp.array2d(dtype=Real), v: wp.array2d(dtype=Real), h_next: wp.array2d(dtype=Real)
):
    """Water is neither made nor lost: what leaves through the sides of a cell enters the next."""
    i, j = wp.tid()
    change = Real(0.0)
    for side in range(4):
        di = wp.where(side == 0, 1, wp.where(side == 1, -1, 0))
        dj = wp.where(side == 2, 1, wp.where(side == 3, -1, 0))
        through = (u[i, j] + value(u, i + di, j + dj)) * Real(dj) + (v[i, j] + value(v, i + di, j + dj)) * Real(di)
        deep = (h[i, j] + value(h, i + di, j + dj)) * Real(0.5) + Real(DEPTH)
        change += through * deep
    h_next[i, j] = h[i, j] - Real(DT) * change


@wp.kernel
def measure(h: wp.array2d(dtype=Real), u: wp.array2d(dtype=Real), loss: wp.array(dtype=Real)):
    i, j = wp.tid()
    wanted = Real(0.05) * wp.sin(Real(i) * Real(0.6))
    miss = h[i, j] - wanted
    wp.atomic_add(loss, 0, miss * miss + Real(0.1) * u[i, j] * u[i, j])


def field():
    return wp.zeros((N, N), dtype=Real, requires_grad=True)


class Rollout:
    """The whole run. `backward` is what a tape's would be, in the memory of one segment."""

    def __init__(self, arrays):
        self.arrays = arrays
        self.lengths = [min(SEGMENT, STEPS - first) for first in range(0, STEPS, SEGMENT)]
        self.states = [[field() for _ in STATE] for _ in range(SEGMENT + 1)]  # of one segment, used again for each
        self.saved = [[wp.zeros((N, N), dtype=Real) for _ in STATE] for _ in self.lengths]
        self.seeds = [wp.zeros((N, N), dtype=Real) for _ in STATE]
        self.loss = wp.zeros(1, dtype=Real, requires_grad=True)
        self.taped = 0

    def step(self, k):
        (h, u, v), (h_next, u_next, v_next) = self.states[k], self.states[k + 1]
        inputs = [h, u, v, self.arrays["bottom"], self.arrays["drag"]]
        wp.launch(accelerate, dim=(N, N), inputs=inputs, outputs=[u_next, v_next])
        wp.launch(flow, dim=(N, N), inputs=[h, u_next, v_next], outputs=[h_next])

    def forward(self):
        for name, first in zip(STATE, self.states[0]):
            wp.copy(first, self.arrays[name])
        for segment, length in enumerate(self.lengths):
            for kept, first in zip(self.saved[segment], self.states[0]):
                wp.copy(kept, first)
            for k in range(length):
                self.step(k)
            if segment < len(self.lengths) - 1:
                for first, last in zip(self.states[0], self.states[length]):
                    wp.copy(first, last)
        last = self.states[self.lengths[-1]]
        self.loss.zero_()
        wp.launch(measure, dim=(N, N), inputs=[last[0], last[1]], outputs=[self.loss])

    def backward(self, loss):
        """From the last segment to the first; the adjoint of its first state is the seed of the one before."""
        total = {name: wp.zeros_like(self.arrays[name]) for name in ("bottom", "drag")}
        for segment in reversed(range(len(self.lengths))):
            length = self.lengths[segment]
            for kept, first in zip(self.saved[segment], self.states[0]):
                wp.copy(first, kept)
            with wp.Tape() as tape:
                for k in range(length):
                    self.step(k)
                if segment == len(self.lengths) - 1:
                    self.loss.zero_()
                    wp.launch(measure, dim=(N, N), inputs=self.states[length][:2], outputs=[self.loss])
            self.taped = max(self.taped, length)
            if segment == len(self.lengths) - 1:
                tape.backward(loss)
            else:
                tape.backward(grads=dict(zip(self.states[length], self.seeds)))
            for seed, first in zip(self.seeds, self.states[0]):
                wp.copy(seed, first.grad)
            for name, a in total.items():
                wp.launch(add, dim=a.size, inputs=[self.arrays[name].grad.flatten()], outputs=[a.flatten()])
            tape.zero()
        for name, a in (*zip(STATE, self.seeds), *total.items()):
            wp.copy(self.arrays[name].grad, a)


@wp.kernel
def add(a: wp.array(dtype=Real), out: wp.array(dtype=Real)):
    i = wp.tid()
    out[i] = out[i] + a[i]


def simulate(values):
    arrays = {name: wp.array(a, dtype=Real, requires_grad=True) for name, a in values.items()}
    run = Rollout(arrays)
    run.forward()
    return run, run.loss, arrays
