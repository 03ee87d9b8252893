"""A jelly thrown at a wall, by the material point method: the mean squared distance of its particles to a target.

MLS-MPM (Hu et al., SIGGRAPH 2018) with quadratic B-splines on the unit square, n x n cells; density 1, fixed corotated
elasticity, gravity, and walls three cells thick to which everything sticks. There are four particles a cell and the
step falls with the cells, so that all sizes have one Courant number (0.5). Differentiated by the velocity at which each
particle starts and by each one's stiffness.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from .hand import POINTER, SIZE, at, build, real_name
from .workload import Data, Launched, Size, Workload, beside, hand, imported, launched

TARGET = (0.625, 0.375)
GRAVITY, EPSILON, BORDER, ELASTIC = 9.8, 1e-10, 3, 75.0


def cells(size: Size) -> int:
    """Cells along a side: the body, half as many cells wide as it has particles, fills a third of the square."""
    return 3 * math.isqrt(size.n) // 2


def step_length(size: Size) -> float:
    return 0.0361328125 / cells(size)


def data(size: Size, dtype: Any) -> Data:
    """`v` (particles, 2), `e` (particles,): what is differentiated by; `x` (particles, 2): where the particles start.

    A square above the floor, in rows, a little out of order; it flies down, spins and stretches. Stiffness is in units
    of 100, which makes both gradients of one size.
    """
    random = np.random.default_rng(11)
    side, n = math.isqrt(size.n), cells(size)
    places = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), axis=-1).reshape(-1, 2)
    x = (places / 2 + random.uniform(0.05, 0.45, (size.n, 2)) + [n / 3, BORDER + 1]) / n
    v = [1, -2] + (x - x.mean(axis=0)) @ np.array([[8, 9], [-7, -8]]) + random.normal(0, 0.1, (size.n, 2))
    e = random.uniform(0.5, 1.5, size.n)
    return {name: np.ascontiguousarray(a, dtype) for name, a in (("v", v), ("e", e), ("x", x))}


class Mpm(ctypes.Structure):
    """What mpm.c calls Mpm."""

    _fields_ = [
        *((name, POINTER) for name in ("state", "grid", "own", "back", "rows", "adjoint", "e", "d_e")),
        *(("loss", ctypes.c_double), ("target", 2 * ctypes.c_double), ("dt", ctypes.c_double)),
        *((name, SIZE) for name in ("particles", "n", "steps", "threads")),
    ]


class Hand:
    """The C contender. A particle's state is 12 numbers: x, v, the affine velocity and the deformation gradient."""

    def __init__(self, size: Size, data: Data, flags: str, threads: int) -> None:
        dtype, n = data["x"].dtype, cells(size)
        self.arrays = {
            "state": np.zeros((size.steps + 1, size.n, 12), dtype),
            "grid": np.zeros((size.steps, n, n, 4), dtype),
            "own": np.zeros((threads, n, n, 4), dtype),
            "back": np.zeros((n, n, 4), dtype),
            "rows": np.zeros((threads, 2), np.intp),
            "adjoint": np.zeros((size.n, 12), dtype),
            "e": data["e"],
            "d_e": np.zeros(size.n, dtype),
        }
        first = self.arrays["state"][0]
        first[:, :2], first[:, 2:4], first[:, 8:] = data["x"], data["v"], (1, 0, 0, 1)
        self.given = Mpm(particles=size.n, n=n, steps=size.steps, threads=threads, dt=step_length(size), target=TARGET)
        for name, array in self.arrays.items():
            setattr(self.given, name, at(array))
        library = build("mpm", real_name(dtype), flags)
        self.calls = library.mpm_forward, library.mpm_backward
        for call in self.calls:
            call.argtypes, call.restype = [ctypes.POINTER(Mpm)], None

    def forward(self) -> None:
        self.calls[0](self.given)

    def both(self) -> None:
        self.forward()
        self.calls[1](self.given)

    def loss(self) -> float:
        return self.given.loss

    def gradients(self) -> Data:
        return {"v": self.arrays["adjoint"][:, 2:4], "e": self.arrays["d_e"]}


class Particles(Launched):
    """Warp and the workbench: particles and grid of every step in lists."""

    file = "kernels_mpm.py"

    def prepare(self, data: Data) -> None:
        size, n, kernels = self.size, cells(self.size), self.kernels
        vec2, mat22 = kernels.vec2, kernels.mat22
        upright = np.tile(np.eye(2, dtype=data["x"].dtype), (size.n, 1, 1))
        self.e = self.array(data["e"])
        self.x, self.v = [self.array(data["x"], vec2)], [self.array(data["v"], vec2)]
        self.c, self.f = [self.zeros(size.n, mat22)], [self.array(upright, mat22)]
        for history, dtype in ((self.x, vec2), (self.v, vec2), (self.c, mat22), (self.f, mat22)):
            history += [self.zeros(size.n, dtype) for _ in range(size.steps)]
        self.momentum, self.velocity = ([self.zeros((n, n), vec2) for _ in range(size.steps)] for _ in range(2))
        self.mass = [self.zeros((n, n)) for _ in range(size.steps)]
        self.target = vec2(*TARGET)
        self.leaves = {"v": self.v[0], "e": self.e}

    def run(self) -> None:
        n, dt = cells(self.size), step_length(self.size)
        p2g, grid_op, g2p = self.kernels.p2g, self.kernels.grid_op, self.kernels.g2p
        x, v, c, f = self.x, self.v, self.c, self.f
        for t in range(self.size.steps):
            momentum, mass, velocity = self.momentum[t], self.mass[t], self.velocity[t]
            momentum.zero_()
            mass.zero_()
            self.launch(p2g, self.size.n, [x[t], v[t], c[t], f[t], self.e], [momentum, mass, dt])
            self.launch(grid_op, (n, n), [momentum, mass], [velocity, dt])
            self.launch(g2p, self.size.n, [x[t], f[t], velocity], [x[t + 1], v[t + 1], c[t + 1], f[t + 1], dt])
        self.launch(self.kernels.distance, self.size.n, [x[-1], self.target], [self.result])


def mask(n: int) -> np.ndarray:
    """(n * n, 1): 1 for the cells in which things move, 0 in the walls."""
    inside = np.zeros((n, n))
    inside[BORDER:-BORDER, BORDER:-BORDER] = 1
    return inside.reshape(-1, 1)


def one_step(xp: Any, n: int, dt: float, scatter: Any) -> Any:
    """The step in whole arrays, for jax.numpy and torch alike: `scatter(values, index, count)` adds rows up.

    Nodes are axis 1 (nine of them), in the order i, j; the grid is flat, n * n rows.
    """
    around = [(i, j) for i in range(3) for j in range(3)]

    def whole(a: Any) -> Any:
        return a.astype("int32") if hasattr(a, "astype") else a.detach().long()

    def weights(t: Any) -> list[Any]:
        return [0.5 * (1.5 - t) ** 2, 0.75 - (t - 1) ** 2, 0.5 * (t - 0.5) ** 2]

    def stress(f: Any, e: Any) -> Any:
        a, b = f[:, 0, 0] + f[:, 1, 1], f[:, 1, 0] - f[:, 0, 1]
        r = xp.sqrt(a * a + b * b)
        cosine, sine = a / r, b / r
        rotation = xp.stack([xp.stack([cosine, -sine], -1), xp.stack([sine, cosine], -1)], -2)
        j = f[:, 0, 0] * f[:, 1, 1] - f[:, 0, 1] * f[:, 1, 0]
        pressure = (j * (j - 1))[:, None, None] * xp.eye(2, dtype=f.dtype)
        return (ELASTIC * e)[:, None, None] * ((f - rotation) @ f.swapaxes(1, 2) + pressure)

    def step(x: Any, v: Any, c: Any, f: Any, e: Any, inside: Any) -> tuple[Any, Any, Any, Any]:
        at = x * n
        base = whole(at - 0.5)
        wx, wy = (weights(at[:, k] - base[:, k]) for k in (0, 1))
        w = xp.stack([wx[i] * wy[j] for i, j in around], 1)[:, :, None]
        offset = xp.stack([xp.stack([base[:, 0] + i, base[:, 1] + j], 1) - at for i, j in around], 1)
        index = xp.stack([(base[:, 0] + i) * n + base[:, 1] + j for i, j in around], 1)
        affine = c - 4 * dt * n * n * stress(f, e)
        momentum = w * (v[:, None] + offset / n @ affine.swapaxes(1, 2))
        rows = xp.concatenate([momentum, w], 2).reshape(-1, 3)
        grid = scatter(rows, index.reshape(-1), n * n)
        mass = grid[:, 2] + EPSILON
        velocity = inside * xp.stack([grid[:, 0] / mass, grid[:, 1] / mass - GRAVITY * dt], 1)
        near = w * velocity[index]
        v = near.sum(1)
        c = 4 * n * (near.swapaxes(1, 2) @ offset)
        return x + dt * v, v, c, f + dt * (c @ f)

    return step


class Jax:
    """One compiled `scan`; its forward keeps no history, as nobody asks for it there."""

    def __init__(self, jax: Any, size: Size, data: Data) -> None:
        self.jax, self.wide = jax, data["x"].dtype == np.float64
        with jax.enable_x64(self.wide):
            self.given = {name: jax.numpy.asarray(a) for name, a in data.items()}
            loss = self.program(jax, cells(size), step_length(size), size.steps)
            self.value, self.with_gradient = jax.jit(loss), jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))

    @staticmethod
    def program(jax: Any, n: int, dt: float, steps: int) -> Any:
        def scatter(values: Any, index: Any, count: int) -> Any:
            return jax.numpy.zeros((count, values.shape[-1]), values.dtype).at[index].add(values)

        step, target = one_step(jax.numpy, n, dt, scatter), np.array(TARGET)

        def loss(v: Any, e: Any, x: Any) -> Any:
            inside = jax.numpy.asarray(mask(n), x.dtype)
            c = jax.numpy.zeros((len(x), 2, 2), x.dtype)
            start = x, v, c, c + jax.numpy.eye(2, dtype=x.dtype)
            last, _ = jax.lax.scan(lambda state, _: (step(*state, e, inside), None), start, None, length=steps)
            return ((last[0] - target.astype(x.dtype)) ** 2).sum(1).mean()

        return loss

    def forward(self) -> None:
        with self.jax.enable_x64(self.wide):
            self.result = self.value(**self.given).block_until_ready()

    def both(self) -> None:
        with self.jax.enable_x64(self.wide):
            given = self.given["v"], self.given["e"], self.given["x"]
            self.result, self.gradient = self.jax.block_until_ready(self.with_gradient(*given))

    def loss(self) -> float:
        return float(self.result)

    def gradients(self) -> Data:
        return dict(zip(("v", "e"), map(np.asarray, self.gradient)))


class Torch:
    """Eager, operation by operation, as most people use it."""

    def __init__(self, torch: Any, size: Size, data: Data) -> None:
        self.torch, self.steps = torch, size.steps
        self.v, self.e = (torch.tensor(data[name], requires_grad=True) for name in ("v", "e"))
        self.x = torch.tensor(data["x"])
        self.inside = torch.tensor(mask(cells(size)), dtype=self.x.dtype)
        self.target = torch.tensor(TARGET, dtype=self.x.dtype)
        self.step = one_step(torch, cells(size), step_length(size), self.scatter)

    @staticmethod
    def scatter(values: Any, index: Any, count: int) -> Any:
        return values.new_zeros((count, values.shape[-1])).index_add(0, index, values)

    def run(self) -> Any:
        c = self.x.new_zeros((len(self.x), 2, 2))
        state = self.x, self.v, c, c + self.torch.eye(2, dtype=self.x.dtype)
        for _ in range(self.steps):
            state = self.step(*state, self.e, self.inside)
        return ((state[0] - self.target) ** 2).sum(1).mean()

    def forward(self) -> None:
        with self.torch.no_grad():
            self.result = self.run()

    def both(self) -> None:
        self.v.grad = self.e.grad = None
        self.result = self.run()
        self.result.backward()

    def loss(self) -> float:
        return float(self.result.detach())

    def gradients(self) -> Data:
        return {"v": self.v.grad.cpu().numpy(), "e": self.e.grad.cpu().numpy()}


WORKLOAD = Workload(
    "mpm",
    sizes={"S": Size(6400, 128), "M": Size(102400, 16)},
    tiny=Size(256, 16),
    data=data,
    systems={
        **hand(Hand),
        **launched(Particles),
        "JAX": imported("jax", Jax),
        "torch": imported("torch", Torch),
        "Taichi": beside("Mpm", "peer_taichi"),
        "Dr.Jit": beside("Mpm", "peer_drjit"),
    },
    elements=lambda size: size.n,
)
