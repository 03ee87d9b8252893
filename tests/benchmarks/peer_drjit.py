"""Three of the workloads as Dr.Jit users write them: flat arrays, a loop over steps in Python, one `dr.eval` a step.

All pairs of bodies are not its kind of program. It needs an LLVM library of version 15 or later, found by itself or
through DRJIT_LIBLLVM_PATH. Its forward keeps no history, as nobody asks for it there.
"""

from __future__ import annotations

from typing import Any

import drjit as dr
import numpy as np
from drjit.llvm import ad

from . import mpm, springs, wave
from .hand import THREADS
from .workload import Data, Size

if not dr.has_backend(dr.JitBackend.LLVM):
    raise ImportError("Dr.Jit finds no LLVM library")


class Arrays:
    """A workload in Dr.Jit: `prepare(data)` makes arrays, `run` returns the loss."""

    def __init__(self, size: Size, data: Data) -> None:
        dr.set_thread_count(THREADS)
        wide = next(iter(data.values())).dtype == np.float64
        self.real = ad.Float64 if wide else ad.Float32
        self.vec2, self.mat22 = (ad.Array2f64, ad.Matrix2f64) if wide else (ad.Array2f, ad.Matrix2f)
        self.size = size
        self.leaves: dict[str, Any] = {}
        self.prepare(data)
        for leaf in self.leaves.values():
            dr.enable_grad(leaf)

    def prepare(self, data: Data) -> None:
        raise NotImplementedError

    def run(self) -> Any:
        raise NotImplementedError

    def vectors(self, values: np.ndarray) -> Any:
        """From (count, 2) to two rows."""
        return self.vec2(*map(self.real, values.T.copy()))

    def forward(self) -> None:
        with dr.suspend_grad():
            self.result = self.run()
        dr.eval(self.result)
        dr.sync_thread()

    def both(self) -> None:
        for leaf in self.leaves.values():
            dr.clear_grad(leaf)
        self.result = self.run()
        dr.backward(self.result)
        dr.eval(self.result, [dr.grad(leaf) for leaf in self.leaves.values()])
        dr.sync_thread()

    def loss(self) -> float:
        return float(self.result[0])

    def gradients(self) -> Data:
        return {name: dr.grad(leaf).numpy().T for name, leaf in self.leaves.items()}


class Wave(Arrays):
    def prepare(self, data: Data) -> None:
        n = self.size.n
        self.p0, self.target = (self.real(data[name].ravel()) for name in ("p0", "target"))
        self.index = dr.arange(ad.UInt32, n * n)
        i, j = self.index // n, self.index % n
        self.inside = (i > 0) & (i < n - 1) & (j > 0) & (j < n - 1)
        dr.eval(self.index, self.inside)
        self.leaves = {"p0": self.p0}

    def run(self) -> Any:
        up = u = self.p0
        for _ in range(self.size.steps):
            around = (self.index - self.size.n, self.index + self.size.n, self.index - 1, self.index + 1)
            lap = sum(dr.gather(self.real, u, at, self.inside) for at in around) - 4 * u
            up, u = u, dr.select(self.inside, 2 * u - up + wave.C * lap, 0)
            dr.eval(u)
        return dr.mean(dr.square(u - self.target))

    def gradients(self) -> Data:
        return {name: g.reshape(self.size.n, self.size.n) for name, g in super().gradients().items()}


class Springs(Arrays):
    def prepare(self, data: Data) -> None:
        self.x0, self.v0 = (self.vectors(data[name]) for name in ("x0", "v0"))
        self.rest = self.real(data["rest"])
        self.a, self.b = (ad.UInt32(data[name]) for name in ("a", "b"))
        self.target = self.vec2(*springs.target(self.size))
        self.leaves = {"x0": self.x0, "v0": self.v0, "rest": self.rest}

    def run(self) -> Any:
        x, v, a, b, p = self.x0, self.v0, self.a, self.b, springs.PHYSICS
        for _ in range(self.size.steps):
            d = dr.gather(self.vec2, x, b) - dr.gather(self.vec2, x, a)
            length = dr.norm(d)
            u = d / length
            speed = dr.dot(dr.gather(self.vec2, v, b) - dr.gather(self.vec2, v, a), u)
            g = (p.stiffness * (length - self.rest) + p.damping * speed) * u
            f = dr.zeros(self.vec2, dr.width(x))
            dr.scatter_add(f, g, a)
            dr.scatter_add(f, -g, b)
            depth = dr.select(x.y < 0, x.y, 0)  # LLVM 15 stops the process at `dr.minimum`
            v = p.drag * (v + p.dt * (f + self.vec2(0, p.ground * dr.square(depth) - p.gravity)))
            x = x + p.dt * v
            dr.eval(x, v)
        return dr.mean(dr.squared_norm(x - self.target))


class Evaluated(dr.CustomOp):
    """A state as it is, whose gradient is evaluated on its way back.

    What particles keep for themselves meets no gather, which would do that: the kernels of each step would compute
    those of all later steps again.
    """

    def eval(self, state: Any) -> Any:
        return state

    def backward(self) -> None:
        gradient = self.grad_out()
        dr.eval(gradient)
        self.set_grad_in("state", gradient)


class Mpm(Arrays):
    def prepare(self, data: Data) -> None:
        self.x0, self.v0, self.e = self.vectors(data["x"]), self.vectors(data["v"]), self.real(data["e"])
        self.cells, self.dt = mpm.cells(self.size), mpm.step_length(self.size)
        at = dr.arange(ad.UInt32, self.cells**2)
        ends = mpm.BORDER, self.cells - mpm.BORDER
        i, j = at // self.cells, at % self.cells
        self.inside = (i >= ends[0]) & (i < ends[1]) & (j >= ends[0]) & (j < ends[1])
        dr.eval(self.inside)
        self.leaves = {"v": self.v0, "e": self.e}

    def run(self) -> Any:
        state = self.x0, self.v0, dr.zeros(self.mat22, self.size.n), dr.identity(self.mat22, self.size.n), self.e
        for _ in range(self.size.steps):
            state = self.step(*state)
            dr.eval(state)
            state = dr.custom(Evaluated, state)
        return dr.mean(dr.squared_norm(state[0] - self.vec2(*mpm.TARGET)))

    def stress(self, f: Any, e: Any) -> Any:
        cosine, sine = f[0, 0] + f[1, 1], f[1, 0] - f[0, 1]
        r = dr.sqrt(cosine * cosine + sine * sine)
        rotation = self.mat22(cosine / r, -sine / r, sine / r, cosine / r)
        j = dr.det(f)
        pressure = j * (j - 1)
        return mpm.ELASTIC * e * ((f - rotation) @ f.T + self.mat22(pressure, 0, 0, pressure))

    def near(self, x: Any) -> list[tuple[Any, Any, Any]]:
        """Of each of the nine nodes round a particle: where it is in the grid, its weight, and its offset in cells."""
        base = ad.Array2i(x * self.cells - 0.5)
        t = x * self.cells - self.vec2(base)
        w = [0.5 * dr.square(1.5 - t), 0.75 - dr.square(t - 1), 0.5 * dr.square(t - 0.5)]
        return [
            (ad.UInt32((base.x + i) * self.cells + base.y + j), w[i].x * w[j].y, self.vec2(i, j) - t)
            for i in range(3)
            for j in range(3)
        ]

    def step(self, x: Any, v: Any, c: Any, f: Any, e: Any) -> tuple[Any, ...]:
        nodes, dt, n = self.near(x), self.dt, self.cells
        affine = c - 4 * dt * n * n * self.stress(f, e)
        momentum, mass = dr.zeros(self.vec2, n * n), dr.zeros(self.real, n * n)
        for at, w, offset in nodes:
            dr.scatter_add(momentum, w * (v + affine @ (offset / n)), at)
            dr.scatter_add(mass, w, at)
        moving = momentum / (mass + mpm.EPSILON) - self.vec2(0, mpm.GRAVITY * dt)
        velocity = dr.select(self.inside, moving, 0)
        dr.eval(velocity)
        v, c = self.vec2(0), self.mat22(0)
        for at, w, offset in nodes:
            g = w * dr.gather(self.vec2, velocity, at)
            v += g
            c += 4 * n * self.mat22(g.x * offset.x, g.x * offset.y, g.y * offset.x, g.y * offset.y)
        return x + dt * v, v, c, f + dt * (c @ f), e
