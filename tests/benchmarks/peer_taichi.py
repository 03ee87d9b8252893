"""The four workloads as Taichi users write them: one history of fields with gradients, kernels, `ti.ad.Tape`.

Taichi has one runtime a process. It is started once, and never again: that would take the fields of every system away.
So types are written out, and fields live until the process ends. Fast math stays on, as users have it.

No `from __future__ import annotations`: Taichi reads what its kernels are annotated with.
"""

import ctypes
import io
import os
import warnings
from contextlib import redirect_stdout
from functools import cache
from typing import Any

import numpy as np

from . import mpm, nbody, springs, wave
from .hand import THREADS
from .workload import Data, Size

# No word on stdout, and none to the server that is asked for news.
os.environ.update(ENABLE_TAICHI_HEADER_PRINT="0", TI_SKIP_VERSION_CHECK="ON", TI_LOG_LEVEL="error")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it asks for the locale as Python 3.15 no longer will
    import taichi as ti


@cache
def started() -> None:
    mathematics, before = ctypes.CDLL("libm.so.6"), ctypes.create_string_buffer(64)
    mathematics.fegetenv(before)
    with redirect_stdout(io.StringIO()):  # it says on which arch, whatever the level of its log
        ti.init(arch=ti.cpu, cpu_max_num_threads=THREADS, offline_cache=False, log_level=ti.ERROR)
    mathematics.fesetenv(before)  # it makes this thread flush subnormals: of everybody else too


class Fields:
    """A workload in Taichi: `prepare(data)` makes fields, `run` calls kernels and ends in `self.result`.

    A subclass names in `leaves` what its gradients are read of: a field, or one of which the first step is the leaf.
    """

    def __init__(self, size: Size, data: Data) -> None:
        started()
        self.n, self.steps = size.n, size.steps
        self.real = ti.f64 if next(iter(data.values())).dtype == np.float64 else ti.f32
        self.differentiated: list[Any] = []
        self.sums: list[Any] = []
        self.leaves: dict[str, tuple[Any, Any]] = {}
        self.result = self.field(())
        self.prepare(data)

    def prepare(self, data: Data) -> None:
        raise NotImplementedError

    def run(self) -> None:
        raise NotImplementedError

    def field(self, shape: Any, of: tuple[int, ...] = ()) -> Any:
        """Scalars, vectors or matrices (`of` their shape), with a gradient."""
        made = self.shaped(shape, of, needs_grad=True)
        self.differentiated.append(made)
        return made

    def shaped(self, shape: Any, of: tuple[int, ...], needs_grad: bool) -> Any:
        make = (ti.field, ti.Vector.field, ti.Matrix.field)[len(of)]
        return make(*of, dtype=self.real, shape=shape, needs_grad=needs_grad)

    def history(self, first: np.ndarray, of: tuple[int, ...] = ()) -> Any:
        """A field with the steps along its first axis, and `first` at step 0."""
        made = self.field((self.steps + 1, *first.shape[: first.ndim - len(of)]), of)
        whole = np.zeros((self.steps + 1, *first.shape), first.dtype)
        whole[0] = first
        made.from_numpy(whole)
        return made

    def constant(self, values: np.ndarray, of: tuple[int, ...] = ()) -> Any:
        made = self.shaped(values.shape[: values.ndim - len(of)], of, needs_grad=False)
        made.from_numpy(values)
        return made

    def clear(self) -> None:
        """What a run adds to."""
        for field in (self.result, *self.sums):
            field.fill(0)

    def forward(self) -> None:
        self.clear()
        self.run()
        ti.sync()

    def both(self) -> None:
        self.clear()
        for field in self.differentiated:
            field.grad.fill(0)
        with ti.ad.Tape(self.result, clear_gradients=False):  # it would clear those of every other system too
            self.run()
        ti.sync()

    def loss(self) -> float:
        return self.result[None]

    def gradients(self) -> Data:
        return {name: field.grad.to_numpy()[part] for name, (field, part) in self.leaves.items()}


@ti.data_oriented
class Wave(Fields):
    def prepare(self, data: Data) -> None:
        self.u = self.history(data["p0"])
        self.target = self.constant(data["target"])
        self.rows = self.field(self.n)  # one float32 sum over a million cells would be wrong in its fourth digit
        self.sums = [self.rows]
        self.leaves = {"p0": (self.u, 0)}

    def run(self) -> None:
        for t in range(self.steps):
            self.step(t, max(t - 1, 0))
        self.misfit()
        self.total()

    @ti.kernel
    def step(self, t: int, before: int):
        for i in range(1, self.n - 1):
            for j in range(1, self.n - 1):
                u = self.u[t, i, j]
                lap = self.u[t, i - 1, j] + self.u[t, i + 1, j] + self.u[t, i, j - 1] + self.u[t, i, j + 1] - 4 * u
                self.u[t + 1, i, j] = 2 * u - self.u[before, i, j] + self.real(wave.C) * lap

    @ti.kernel
    def misfit(self):
        for i in range(self.n):
            for j in range(self.n):
                self.rows[i] += (self.u[self.steps, i, j] - self.target[i, j]) ** 2

    @ti.kernel
    def total(self):
        for i in self.rows:
            self.result[None] += self.rows[i] / self.n**2


@ti.data_oriented
class Springs(Fields):
    def prepare(self, data: Data) -> None:
        self.x, self.v = (self.history(data[name], (2,)) for name in ("x0", "v0"))
        self.f = self.field((self.steps, len(data["x0"])), (2,))
        self.rows = self.field(self.n)
        self.sums = [self.f, self.rows]
        self.rest = self.field(data["rest"].shape)
        self.rest.from_numpy(data["rest"])
        self.a, self.b = (ti.field(ti.i32, data[name].shape) for name in ("a", "b"))
        for field, name in ((self.a, "a"), (self.b, "b")):
            field.from_numpy(data[name])
        self.p, self.target = springs.PHYSICS, springs.target(Size(self.n, self.steps))
        self.leaves = {"x0": (self.x, 0), "v0": (self.v, 0), "rest": (self.rest, ...)}

    def run(self) -> None:
        for t in range(self.steps):
            self.pull(t)
            self.move(t)
        self.distances()
        self.total()

    @ti.kernel
    def pull(self, t: int):
        for s in self.rest:
            i, j = self.a[s], self.b[s]
            d = self.x[t, j] - self.x[t, i]
            length = d.norm()
            u = d / length
            speed = (self.v[t, j] - self.v[t, i]).dot(u)
            g = (self.p.stiffness * (length - self.rest[s]) + self.p.damping * speed) * u
            self.f[t, i] += g
            self.f[t, j] -= g

    @ti.kernel
    def move(self, t: int):
        for i in range(self.n**2):
            depth = ti.min(self.x[t, i][1], 0)
            force = self.f[t, i] + ti.Vector([0, self.p.ground * depth**2 - self.p.gravity])
            v = self.real(self.p.drag) * (self.v[t, i] + self.real(self.p.dt) * force)
            self.v[t + 1, i] = v
            self.x[t + 1, i] = self.x[t, i] + self.real(self.p.dt) * v

    @ti.kernel
    def distances(self):
        for i in range(self.n**2):
            d = self.x[self.steps, i] - ti.Vector([self.real(self.target[0]), self.real(self.target[1])])
            self.rows[i // self.n] += d.norm_sqr()

    @ti.kernel
    def total(self):
        for i in self.rows:
            self.result[None] += self.rows[i] / self.n**2


@ti.data_oriented
class Mpm(Fields):
    def prepare(self, data: Data) -> None:
        size = Size(self.n, self.steps)
        self.cells, self.dt = mpm.cells(size), mpm.step_length(size)
        still = np.zeros((self.n, 2, 2), data["x"].dtype)
        self.x, self.v = (self.history(data[name], (2,)) for name in ("x", "v"))
        self.c, self.f = (self.history(first, (2, 2)) for first in (still, still + np.eye(2, dtype=still.dtype)))
        self.e = self.field(self.n)
        self.e.from_numpy(data["e"])
        grids = self.steps, self.cells, self.cells
        self.momentum, self.velocity, self.mass = self.field(grids, (2,)), self.field(grids, (2,)), self.field(grids)
        self.sums = [self.momentum, self.mass]
        self.inside = mpm.BORDER, self.cells - mpm.BORDER
        self.leaves = {"v": (self.v, 0), "e": (self.e, ...)}

    def run(self) -> None:
        for t in range(self.steps):
            self.p2g(t)
            self.grid_op(t)
            self.g2p(t)
        self.distance()

    @ti.func
    def stress(self, f, e):
        cosine, sine = f[0, 0] + f[1, 1], f[1, 0] - f[0, 1]
        r = ti.sqrt(cosine**2 + sine**2)
        rotation = ti.Matrix([[cosine, -sine], [sine, cosine]]) / r
        j = f.determinant()
        pressure = j * (j - 1)
        return mpm.ELASTIC * e * ((f - rotation) @ f.transpose() + ti.Matrix([[pressure, 0], [0, pressure]]))

    @ti.kernel
    def p2g(self, t: int):
        for p in range(self.n):
            base = ti.cast(self.x[t, p] * self.cells - 0.5, int)
            fx = self.x[t, p] * self.cells - base
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            scale = self.real(4 * self.dt * self.cells**2)
            affine = self.c[t, p] - scale * self.stress(self.f[t, p], self.e[p])
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = (ti.Vector([i, j]) - fx) / self.cells
                weight = w[i][0] * w[j][1]
                self.momentum[t, base[0] + i, base[1] + j] += weight * (self.v[t, p] + affine @ offset)
                self.mass[t, base[0] + i, base[1] + j] += weight

    @ti.kernel
    def grid_op(self, t: int):
        for i, j in ti.ndrange(self.inside, self.inside):
            mass = self.mass[t, i, j] + self.real(mpm.EPSILON)
            self.velocity[t, i, j] = self.momentum[t, i, j] / mass - ti.Vector([0, self.real(mpm.GRAVITY * self.dt)])

    @ti.kernel
    def g2p(self, t: int):
        for p in range(self.n):
            base = ti.cast(self.x[t, p] * self.cells - 0.5, int)
            fx = self.x[t, p] * self.cells - base
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            v = ti.Vector.zero(self.real, 2)
            c = ti.Matrix.zero(self.real, 2, 2)
            for i, j in ti.static(ti.ndrange(3, 3)):
                g = w[i][0] * w[j][1] * self.velocity[t, base[0] + i, base[1] + j]
                v += g
                c += 4 * self.cells * g.outer_product(ti.Vector([i, j]) - fx)
            self.x[t + 1, p] = self.x[t, p] + self.real(self.dt) * v
            self.v[t + 1, p] = v
            self.c[t + 1, p] = c
            self.f[t + 1, p] = self.f[t, p] + self.real(self.dt) * (c @ self.f[t, p])

    @ti.kernel
    def distance(self):
        for p in range(self.n):
            d = self.x[self.steps, p] - ti.Vector([self.real(mpm.TARGET[0]), self.real(mpm.TARGET[1])])
            self.result[None] += d.norm_sqr() / self.n


@ti.data_oriented
class Nbody(Fields):
    def prepare(self, data: Data) -> None:
        self.x, self.v = (self.history(data[name], (3,)) for name in ("x0", "v0"))
        self.a = self.field((self.steps, self.n), (3,))
        self.sums = [self.a]
        self.m = self.field(self.n)
        self.m.from_numpy(data["m"])
        self.target = self.constant(data["target"], (3,))
        self.leaves = {"x0": (self.x, 0), "v0": (self.v, 0), "m": (self.m, ...)}

    def run(self) -> None:
        for t in range(self.steps):
            self.pull(t)
            self.move(t)
        self.misfit()

    @ti.kernel
    def pull(self, t: int):
        # Into a field: a local sum that is read after its loop is within the language, but its gradient is wrong.
        for i in range(self.n):
            for j in range(self.n):
                d = self.x[t, j] - self.x[t, i]
                r2 = d.norm_sqr() + self.real(nbody.SOFT)
                self.a[t, i] += self.m[j] / (r2 * ti.sqrt(r2)) * d

    @ti.kernel
    def move(self, t: int):
        for i in range(self.n):
            v = self.v[t, i] + self.real(nbody.DT) * self.a[t, i]
            self.v[t + 1, i] = v
            self.x[t + 1, i] = self.x[t, i] + self.real(nbody.DT) * v

    @ti.kernel
    def misfit(self):
        for i in self.target:
            self.result[None] += (self.x[self.steps, i] - self.target[i]).norm_sqr() / self.n
