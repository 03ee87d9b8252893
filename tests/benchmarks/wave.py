"""The initial pulse of a wave: the mean squared distance of the last field to a target, differentiated by the first."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .hand import INT, POINTER, SIZE, at, build, real_name, real_type
from .workload import Data, Launched, Size, Workload, beside, hand, imported, launched

C = 0.2


def data(size: Size, dtype: Any) -> Data:
    """`p0` (n, n): the field at rest that a simulation starts from; `target` (n, n). The boundary is held at zero."""
    random = np.random.default_rng(7)
    fields = {name: np.zeros((size.n, size.n), dtype) for name in ("p0", "target")}
    for field in fields.values():
        field[1:-1, 1:-1] = random.standard_normal((size.n - 2, size.n - 2))
    return fields


class Hand:
    """The C contender. The history is written, as by everybody; the shadows are three planes that take turns."""

    def __init__(self, size: Size, data: Data, flags: str, threads: int, fused: bool = False) -> None:
        self.p0, self.target = data["p0"], data["target"]
        n, dtype = size.n, self.p0.dtype
        self.history = np.zeros((size.steps, n, n), dtype)
        self.planes, self.grad = np.zeros((3, n, n), dtype), np.zeros((n, n), dtype)
        library, real = build("wave", real_name(dtype), flags), real_type(dtype)
        self.simulate, self.pull = library.wave_forward, library.wave_fused if fused else library.wave_backward
        rest = [real, SIZE, SIZE, INT, INT]
        self.simulate.argtypes, self.simulate.restype = [POINTER] * 3 + rest, real_type(np.float64)
        self.pull.argtypes, self.pull.restype = [POINTER] * 4 + rest, None
        self.rest = (C, n, n, size.steps, threads)
        self.inputs = at(self.p0), at(self.target), at(self.history)
        self.shadows = at(self.history[-1]), at(self.target), at(self.planes), at(self.grad)
        self.value = math.nan

    def forward(self) -> None:
        self.value = self.simulate(*self.inputs, *self.rest)

    def both(self) -> None:
        self.forward()
        self.pull(*self.shadows, *self.rest)

    def loss(self) -> float:
        return self.value

    def gradients(self) -> Data:
        return {"p0": self.grad}


class Fields(Launched):
    """Warp and the workbench: a field a step, in a list."""

    file = "kernels_wave.py"

    def prepare(self, data: Data) -> None:
        shape = data["p0"].shape
        first = self.array(data["p0"])
        self.target = self.array(data["target"], requires_grad=False)
        self.fields = [first, first, *(self.zeros(shape) for _ in range(self.size.steps))]
        self.leaves = {"p0": first}

    def run(self) -> None:
        u, n = self.fields, self.size.n
        for t in range(self.size.steps):
            self.launch(self.kernels.wave, (n, n), [u[t + 1], u[t]], [u[t + 2], C, n, n])
        self.launch(self.kernels.misfit, n, [u[-1], self.target, 1.0 / n**2, n], [self.result])


class Jax:
    """One compiled `scan`; its forward keeps no history, as nobody asks for it there."""

    def __init__(self, jax: Any, size: Size, data: Data) -> None:
        self.jax, self.wide = jax, data["p0"].dtype == np.float64
        loss = self.program(jax, size.steps)
        self.value, self.with_gradient = jax.jit(loss), jax.jit(jax.value_and_grad(loss))
        with jax.enable_x64(self.wide):
            self.inputs = jax.numpy.asarray(data["p0"]), jax.numpy.asarray(data["target"])

    @staticmethod
    def program(jax: Any, steps: int) -> Any:
        def step(state: Any, _: None) -> Any:
            up, u = state
            inner = u[1:-1, 1:-1]
            lap = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner
            return (u, jax.numpy.pad(2 * inner - up[1:-1, 1:-1] + C * lap, 1)), None

        def loss(p0: Any, target: Any) -> Any:
            (_, last), _ = jax.lax.scan(step, (p0, p0), None, length=steps)
            return jax.numpy.mean((last - target) ** 2)

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
        return {"p0": np.asarray(self.gradient)}


class Torch:
    """Eager, operation by operation, as most people use it."""

    def __init__(self, torch: Any, size: Size, data: Data) -> None:
        self.torch, self.steps = torch, size.steps
        self.p0 = torch.tensor(data["p0"], requires_grad=True)
        self.target = torch.tensor(data["target"])

    def run(self) -> Any:
        up = u = self.p0
        for _ in range(self.steps):
            inner = u[1:-1, 1:-1]
            lap = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner
            new = 2 * inner - up[1:-1, 1:-1] + C * lap
            up, u = u, self.torch.nn.functional.pad(new, (1, 1, 1, 1))
        return ((u - self.target) ** 2).mean()

    def forward(self) -> None:
        with self.torch.no_grad():
            self.result = self.run()

    def both(self) -> None:
        self.p0.grad = None
        self.result = self.run()
        self.result.backward()

    def loss(self) -> float:
        return self.result.item()

    def gradients(self) -> Data:
        return {"p0": self.p0.grad.cpu().numpy()}


WORKLOAD = Workload(
    "wave",
    sizes={"S": Size(64, 256), "M": Size(256, 256), "L": Size(1024, 32), "X": Size(2048, 8)},
    tiny=Size(12, 9),
    data=data,
    systems={
        **hand(Hand, {"c fused": {"fused": True}}),
        **launched(Fields),
        "JAX": imported("jax", Jax),
        "torch": imported("torch", Torch),
        "Taichi": beside("Wave", "peer_taichi"),
        "Dr.Jit": beside("Wave", "peer_drjit"),
    },
    elements=lambda size: size.n**2,
)
