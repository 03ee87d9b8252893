"""Bodies under softened gravity, all pairs: the mean squared distance of the last positions to a target, differentiated
by the first positions, the first velocities and the masses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .hand import EXACT, INT, POINTER, SIZE, at, build, real_name, real_type
from .workload import Data, Launched, Size, Workload, beside, hand, imported, launched

DT, SOFT = 0.02, 0.01  # SOFT is added to the squared distance
WIDE = EXACT + " -mprefer-vector-width=512"  # gcc takes 256 bits where it is not told


def data(size: Size, dtype: Any) -> Data:
    """`x0`, `v0`, `target` (n, 3) and `m` (n,): a cloud of size 1 and mass 1 that turns round its third axis."""
    random = np.random.default_rng(7)
    x0 = random.uniform(-1.0, 1.0, (size.n, 3))
    v0 = np.cross([0.0, 0.0, 0.5], x0) + 0.1 * random.standard_normal((size.n, 3))
    made = {"x0": x0, "v0": v0, "m": random.uniform(0.5, 1.5, size.n) / size.n}
    made["target"] = random.uniform(-1.0, 1.0, (size.n, 3))
    return {name: values.astype(dtype) for name, values in made.items()}


class Hand:
    """The C contender, on vectors as three rows of n numbers; it keeps all positions, as the adjoint reads them."""

    def __init__(self, size: Size, data: Data, flags: str, threads: int) -> None:
        self.m, dtype, n = data["m"], data["m"].dtype, size.n
        self.v0, self.target = (data[name].T.copy() for name in ("v0", "target"))
        self.history = np.zeros((size.steps + 1, 3, n), dtype)
        self.history[0] = data["x0"].T
        self.v, self.f, self.gx, self.gv = (np.zeros((3, n), dtype) for _ in range(4))
        self.gm = np.zeros(n, dtype)
        library, real = build("nbody", real_name(dtype), flags), real_type(dtype)
        self.simulate, self.pull = library.nbody_forward, library.nbody_backward
        rest = [real, real, SIZE, INT, INT]
        self.simulate.argtypes, self.simulate.restype = [POINTER] * 5 + rest, real_type(np.float64)
        self.pull.argtypes, self.pull.restype = [POINTER] * 7 + rest, None
        self.rest = (DT, SOFT, n, size.steps, threads)
        self.inputs = tuple(map(at, (self.history, self.v0, self.v, self.m, self.target)))
        self.shadows = tuple(map(at, (self.history, self.m, self.target, self.f, self.gx, self.gv, self.gm)))
        self.value = math.nan

    def forward(self) -> None:
        self.value = self.simulate(*self.inputs, *self.rest)

    def both(self) -> None:
        self.forward()
        self.pull(*self.shadows, *self.rest)

    def loss(self) -> float:
        return self.value

    def gradients(self) -> Data:
        return {"x0": self.gx.T, "v0": self.gv.T, "m": self.gm}


class Bodies(Launched):
    """Warp and the workbench: positions and velocities of each step, in lists."""

    file = "kernels_nbody.py"

    def prepare(self, data: Data) -> None:
        n, vec3, steps = self.size.n, self.kernels.vec3, range(self.size.steps)
        self.x = [self.array(data["x0"], vec3), *(self.zeros(n, vec3) for _ in steps)]
        self.v = [self.array(data["v0"], vec3), *(self.zeros(n, vec3) for _ in steps)]
        self.m = self.array(data["m"])
        self.target = self.array(data["target"], vec3, requires_grad=False)
        self.leaves = {"x0": self.x[0], "v0": self.v[0], "m": self.m}

    def run(self) -> None:
        x, v, n = self.x, self.v, self.size.n
        for t in range(self.size.steps):
            self.launch(self.kernels.step, n, [x[t], v[t], self.m, DT, SOFT, n], [x[t + 1], v[t + 1]])
        self.launch(self.kernels.misfit, n, [x[-1], self.target, 1.0 / n], [self.result])


LEAVES = ("x0", "v0", "m")


class Jax:
    """One compiled `scan` over steps on whole matrices of pairs, which is how NumPy programs write it."""

    def __init__(self, jax: Any, size: Size, data: Data) -> None:
        self.jax, self.wide = jax, data["m"].dtype == np.float64
        loss = self.program(jax, size.steps)
        self.value, self.with_gradient = jax.jit(loss), jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))
        with jax.enable_x64(self.wide):
            self.inputs = [jax.numpy.asarray(data[name].T.copy()) for name in (*LEAVES, "target")]

    @staticmethod
    def program(jax: Any, steps: int) -> Any:
        def loss(x: Any, v: Any, m: Any, target: Any) -> Any:
            def step(state: Any, _: None) -> Any:
                x, v = state
                d = x[:, None, :] - x[:, :, None]
                r2 = (d * d).sum(0) + SOFT
                v = v + DT * (m / (r2 * jax.numpy.sqrt(r2)) * d).sum(2)
                return (x + DT * v, v), None

            (last, _), _ = jax.lax.scan(step, (x, v), None, length=steps)
            return ((last - target) ** 2).sum() / m.size

        return loss

    def forward(self) -> None:
        with self.jax.enable_x64(self.wide):
            self.result = self.value(*self.inputs).block_until_ready()

    def both(self) -> None:
        with self.jax.enable_x64(self.wide):
            self.result, self.pulled = self.jax.block_until_ready(self.with_gradient(*self.inputs))

    def loss(self) -> float:
        return float(self.result)

    def gradients(self) -> Data:
        return {name: np.asarray(pulled).T for name, pulled in zip(LEAVES, self.pulled, strict=True)}


class Torch:
    """Eager, operation by operation on whole matrices of pairs."""

    def __init__(self, torch: Any, size: Size, data: Data) -> None:
        self.torch, self.steps = torch, size.steps
        self.inputs = [torch.tensor(data[name].T.copy(), requires_grad=True) for name in LEAVES]
        self.target = torch.tensor(data["target"].T.copy())

    def run(self) -> Any:
        x, v, m = self.inputs
        for _ in range(self.steps):
            d = x[:, None, :] - x[:, :, None]
            r2 = (d * d).sum(0) + SOFT
            v = v + DT * (m / (r2 * r2.sqrt()) * d).sum(2)
            x = x + DT * v
        return ((x - self.target) ** 2).sum() / m.numel()

    def forward(self) -> None:
        with self.torch.no_grad():
            self.result = self.run()

    def both(self) -> None:
        for leaf in self.inputs:
            leaf.grad = None
        self.result = self.run()
        self.result.backward()

    def loss(self) -> float:
        return self.result.item()

    def gradients(self) -> Data:
        return {name: leaf.grad.cpu().numpy().T for name, leaf in zip(LEAVES, self.inputs, strict=True)}


WORKLOAD = Workload(
    "nbody",
    sizes={"S": Size(256, 32), "M": Size(1024, 8), "L": Size(4096, 1)},
    tiny=Size(21, 5),
    data=data,
    systems={
        **hand(Hand, {"c wide": {"flags": WIDE}}),
        **launched(Bodies),
        "JAX": imported("jax", Jax),
        "torch": imported("torch", Torch),
        "Taichi": beside("Nbody", "peer_taichi"),
    },
    elements=lambda size: size.n,
)
