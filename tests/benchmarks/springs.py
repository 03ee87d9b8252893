"""A net of springs that falls to the ground: the mean squared distance of its nodes to a point, by x0, v0 and rest.

N x N nodes of mass 1 at distance 1, springs along both axes and both diagonals, symplectic Euler, a drag, gravity, and
a ground that pushes with the square of the depth: a force with a kink makes float32 gradients differ by percents.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .hand import INT, POINTER, SIZE, at, build, real_name, real_type
from .workload import Data, Launched, Size, Workload, beside, hand, imported, launched


class Physics(NamedTuple):
    dt: float = 0.01
    stiffness: float = 400.0
    damping: float = 1.0
    drag: float = 0.999
    gravity: float = 1.0
    ground: float = 500.0


PHYSICS = Physics()


def target(size: Size) -> tuple[float, float]:
    """The point that all nodes are drawn to."""
    return 0.75 * size.n, 0.25 * size.n


def springs(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The two ends of every spring (int32), in the order in which loops over the grid make them: kind by kind."""
    node = np.arange(n * n, dtype=np.int32).reshape(n, n)
    a = [node[:, :-1], node[:-1], node[:-1, :-1], node[:-1, 1:]]
    b = [node[:, 1:], node[1:], node[1:, 1:], node[1:, :-1]]
    return np.concatenate([i.ravel() for i in a]), np.concatenate([j.ravel() for j in b])


def data(size: Size, dtype: Any) -> Data:
    """`x0`, `v0` (nodes, 2): a crooked grid on the ground, row by row; `rest` (springs,); `a`, `b`: their ends."""
    random, n = np.random.default_rng(11), size.n
    y, x = np.divmod(np.arange(n * n), n)
    x0 = np.stack([x, y], axis=1) + random.uniform(-0.05, 0.05, (n * n, 2))
    v0 = np.array([1.0, -1.0]) + random.uniform(-0.5, 0.5, (n * n, 2))
    a, b = springs(n)
    rest = np.where(np.arange(len(a)) < 2 * n * (n - 1), 1.0, math.sqrt(2.0)) * random.uniform(0.97, 1.03, len(a))
    return {"x0": x0.astype(dtype), "v0": v0.astype(dtype), "rest": rest.astype(dtype), "a": a, "b": b}


def incidence(a: np.ndarray, b: np.ndarray, nodes: int) -> dict[str, np.ndarray]:
    """Which springs meet in a node i: those that start there are entry[start[i]:middle[i]], the others follow."""
    from_here, to_here = np.bincount(a, minlength=nodes), np.bincount(b, minlength=nodes)
    start = np.concatenate([[0], np.cumsum(from_here + to_here)])
    ends = np.stack([a, b], axis=1).astype(np.int64)
    entry = np.argsort((2 * ends + [0, 1]).T.ravel(), kind="stable") % len(a)
    found = {"start": start, "middle": start[:-1] + from_here, "entry": entry}
    return {name: array.astype(np.int32) for name, array in found.items()}


INDICES, ARRAYS = ("a", "b", "start", "middle", "entry"), ("rest", "state", "pulls", "adjoint", "force", "rest_adjoint")


@cache
def net_type(real: Any) -> type[ctypes.Structure]:
    """`Net` of springs.c for a scalar type."""

    class Net(ctypes.Structure):
        _fields_ = [
            *((name, POINTER) for name in INDICES + ARRAYS),
            *((name, SIZE) for name in ("n", "springs", "steps")),
            *((name, real) for name in (*Physics._fields, "target_x", "target_y")),
            ("threads", INT),
        ]

    return Net


class Hand:
    """The C contender. Its incidence list is made beforehand, by hand: who must find one pays for finding it."""

    def __init__(self, size: Size, data: Data, flags: str, threads: int) -> None:
        nodes, count, dtype = len(data["x0"]), len(data["a"]), data["x0"].dtype
        make = lambda *shape: np.zeros(shape, dtype)  # noqa: E731
        self.arrays = {name: data[name] for name in ("a", "b", "rest")} | incidence(data["a"], data["b"], nodes)
        self.arrays |= {"state": make(size.steps + 1, 4, nodes), "pulls": make(count, 4), "force": make(2, nodes)}
        self.arrays |= {"adjoint": make(4, nodes), "rest_adjoint": make(count)}
        self.arrays["state"][0] = np.concatenate([data["x0"], data["v0"]], axis=1).T
        library, real = build("springs", real_name(dtype), flags), real_type(dtype)
        numbers = {"n": nodes, "springs": count, "steps": size.steps, "threads": threads, **PHYSICS._asdict()}
        numbers |= zip(("target_x", "target_y"), target(size), strict=True)
        self.net = net_type(real)(**{name: at(array) for name, array in self.arrays.items()}, **numbers)
        self.call = {"forward": library.forward, "both": library.both}
        for function in self.call.values():
            function.argtypes, function.restype = [POINTER], real
        self.value = math.nan

    def forward(self) -> None:
        self.value = self.call["forward"](ctypes.byref(self.net))

    def both(self) -> None:
        self.value = self.call["both"](ctypes.byref(self.net))

    def loss(self) -> float:
        return self.value

    def gradients(self) -> Data:
        adjoint = self.arrays["adjoint"]
        return {"x0": adjoint[:2].T, "v0": adjoint[2:].T, "rest": self.arrays["rest_adjoint"]}


class Nodes(Launched):
    """Warp and the workbench: positions and velocities of every step in lists; the forces are cleared.

    Nothing but a sum is made of the forces, so the workbench needs none of them again and one buffer serves all steps,
    as in C. Warp takes the gradient of a buffer for that of every step, so that there each step has its own.
    """

    file = "kernels_springs.py"

    def prepare(self, data: Data) -> None:
        nodes, steps, vec2 = len(data["x0"]), self.size.steps, self.kernels.vec2
        self.a, self.b = (self.array(data[name], self.api.int32, False) for name in ("a", "b"))
        self.rest = self.array(data["rest"])
        self.x, self.v = (
            [self.array(data[name], vec2), *(self.zeros(nodes, vec2) for _ in range(steps))] for name in ("x0", "v0")
        )
        forces = [self.zeros(nodes, vec2) for _ in range(steps if self.api.__name__ == "warp" else 1)]
        self.f = forces * (steps // len(forces))
        self.rows = self.zeros(self.size.n)
        self.target = vec2(*target(self.size))
        self.leaves = {"x0": self.x[0], "v0": self.v[0], "rest": self.rest}

    def run(self) -> None:
        k, (dt, stiffness, damping, *others) = self.kernels, PHYSICS
        nodes, count = self.x[0].size, self.rest.size
        for t, f in enumerate(self.f):
            x, v = self.x[t], self.v[t]
            f.zero_()
            self.launch(k.pull, count, [x, v, self.a, self.b, self.rest, stiffness, damping], [f])
            self.launch(k.move, nodes, [x, v, f, dt, *others], [self.x[t + 1], self.v[t + 1]])
        self.rows.zero_()
        self.launch(k.distances, nodes, [self.x[-1], self.target, 1.0 / nodes, self.size.n], [self.rows])
        self.launch(k.total, self.size.n, [self.rows], [self.result])


class Jax:
    """One compiled `scan`; its forward keeps no history, as nobody asks for it there."""

    def __init__(self, jax: Any, size: Size, data: Data) -> None:
        self.jax, self.wide = jax, data["x0"].dtype == np.float64
        with jax.enable_x64(self.wide):
            self.inputs = tuple(jax.numpy.asarray(data[name]) for name in ("x0", "v0", "rest"))
            ends = tuple(jax.numpy.asarray(data[name]) for name in ("a", "b"))
            self.target = jax.numpy.asarray(target(size), self.inputs[0].dtype)
        loss = self.program(size.steps, *ends)
        self.value, self.with_gradient = jax.jit(loss), jax.jit(jax.value_and_grad(loss, (0, 1, 2)))

    def program(self, steps: int, a: Any, b: Any) -> Any:
        jnp, p = self.jax.numpy, PHYSICS

        def step(rest: Any, x: Any, v: Any) -> Any:
            d = x[b] - x[a]
            length = jnp.sqrt((d * d).sum(1))
            u = d / length[:, None]
            size = p.stiffness * (length - rest) + p.damping * ((v[b] - v[a]) * u).sum(1)
            g = size[:, None] * u
            f = jnp.zeros_like(x).at[a].add(g).at[b].add(-g)
            f = f.at[:, 1].add(p.ground * jnp.minimum(x[:, 1], 0.0) ** 2 - p.gravity)
            v = p.drag * (v + p.dt * f)
            return x + p.dt * v, v

        def loss(x: Any, v: Any, rest: Any) -> Any:
            (x, v), _ = self.jax.lax.scan(lambda state, _: (step(rest, *state), None), (x, v), None, length=steps)
            return ((x - self.target) ** 2).sum(1).mean()

        return loss

    def forward(self) -> None:
        with self.jax.enable_x64(self.wide):
            self.result = self.value(*self.inputs).block_until_ready()

    def both(self) -> None:
        with self.jax.enable_x64(self.wide):
            self.result, self.gradient = self.jax.block_until_ready(self.with_gradient(*self.inputs))

    def loss(self) -> float:
        return float(self.result)

    def gradients(self) -> Data:
        return {name: np.asarray(g) for name, g in zip(("x0", "v0", "rest"), self.gradient, strict=True)}


class Torch:
    """Eager, operation by operation, as most people use it."""

    def __init__(self, torch: Any, size: Size, data: Data) -> None:
        self.torch, self.steps = torch, size.steps
        self.inputs = {name: torch.tensor(data[name], requires_grad=True) for name in ("x0", "v0", "rest")}
        self.a, self.b = (torch.tensor(data[name]) for name in ("a", "b"))
        self.target = torch.tensor(target(size), dtype=self.inputs["x0"].dtype)
        self.down = torch.tensor([0.0, 1.0], dtype=self.inputs["x0"].dtype)

    def run(self) -> Any:
        (x, v, rest), (a, b), p = self.inputs.values(), (self.a, self.b), PHYSICS
        for _ in range(self.steps):
            d = x[b] - x[a]
            length = (d * d).sum(1).sqrt()
            u = d / length[:, None]
            size = p.stiffness * (length - rest) + p.damping * ((v[b] - v[a]) * u).sum(1)
            g = size[:, None] * u
            f = self.torch.zeros_like(x).index_add(0, a, g).index_add(0, b, g, alpha=-1)
            upwards = p.ground * x[:, 1].clamp(max=0.0) ** 2 - p.gravity
            v = p.drag * (v + p.dt * (f + upwards[:, None] * self.down))
            x = x + p.dt * v
        return ((x - self.target) ** 2).sum(1).mean()

    def forward(self) -> None:
        with self.torch.no_grad():
            self.result = self.run()

    def both(self) -> None:
        for leaf in self.inputs.values():
            leaf.grad = None
        self.result = self.run()
        self.result.backward()

    def loss(self) -> float:
        return self.result.item()

    def gradients(self) -> Data:
        return {name: leaf.grad.cpu().numpy() for name, leaf in self.inputs.items()}


WORKLOAD = Workload(
    "springs",
    sizes={"S": Size(32, 256), "M": Size(128, 64), "L": Size(512, 8)},
    tiny=Size(6, 12),
    data=data,
    systems={
        **hand(Hand),
        **launched(Nodes),
        "JAX": imported("jax", Jax),
        "torch": imported("torch", Torch),
        "Taichi": beside("Springs", "peer_taichi"),
        "Dr.Jit": beside("Springs", "peer_drjit"),
    },
    elements=lambda size: size.n**2,
)
