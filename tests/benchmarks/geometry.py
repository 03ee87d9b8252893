"""Meshes and hash grids, Warp and workbench in one run: building, queries, and their gradients.

    python tests/benchmarks/geometry.py [--rounds 9] [--threads 1]

A bumpy sphere of 100,000 triangles, 100,000 queries near its surface and 100,000 around it; 50,000 points of an SPH
density, about 30 neighbours each. Warp runs on one thread; so does the workbench unless `--threads` says more.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from peers import load, peers
from rounds import heading, interleaved, table

N, POINTS, H = 100_000, 50_000, 0.05


def sphere(n: int = 224) -> tuple[np.ndarray, np.ndarray]:
    u, v = np.meshgrid(np.linspace(0, 2 * np.pi, n + 1)[:-1], np.linspace(0.01, np.pi - 0.01, n), indexing="ij")
    r = 1 + 0.1 * np.sin(5 * u) * np.sin(7 * v)
    points = np.stack([r * np.cos(u) * np.sin(v), r * np.sin(u) * np.sin(v), r * np.cos(v)], -1).reshape(-1, 3)
    i, j = np.meshgrid(np.arange(n), np.arange(n - 1), indexing="ij")
    a, b = i * n + j, ((i + 1) % n) * n + j
    faces = np.stack([np.stack([a, a + 1, b], -1), np.stack([a + 1, b + 1, b], -1)], -2)
    return points.astype(np.float32), faces.reshape(-1).astype(np.int32)


class Side:
    """What one of the two does."""

    def __init__(self, api: Any) -> None:
        self.api, self.kernels = api, load(api, "kernels_geometry.py")
        rng = np.random.default_rng(0)
        points, faces = sphere()
        self.points = api.array(points, dtype=api.vec3, device="cpu", requires_grad=True)
        self.faces = api.array(faces, dtype=api.int32, device="cpu")
        self.mesh = api.Mesh(self.points, self.faces)
        near = points[rng.integers(0, len(points), N)] + rng.normal(size=(N, 3)) * 0.02
        self.near, self.around, self.cloud = (
            api.array(a.astype(np.float32), dtype=api.vec3, device="cpu", requires_grad=True)
            for a in (near, rng.uniform(-1.5, 1.5, (N, 3)), rng.uniform(size=(POINTS, 3)))
        )
        self.out = api.zeros(N, dtype=float, device="cpu", requires_grad=True)
        self.seed = api.ones(N, dtype=float, device="cpu")
        self.grid = api.HashGrid(20, 20, 20, device="cpu")
        self.grid.build(self.cloud, H)
        self.taped = {name: self.recorded(name) for name in ("closest", "density")}

    def launch(self, name: str, x: Any) -> None:
        grid = name == "density"
        inputs = [self.grid.id, self.cloud, H] if grid else [self.mesh.id, x]
        dim = POINTS if grid else N
        self.api.launch(getattr(self.kernels, name), dim=dim, inputs=inputs, outputs=[self.out], device="cpu")

    def recorded(self, name: str) -> Any:
        with self.api.Tape() as tape:
            self.launch(name, self.near)
        return tape

    def backward(self, name: str) -> None:
        self.taped[name].zero()
        self.taped[name].backward(grads={self.out: self.seed})

    def jobs(self) -> dict[str, Callable[[], Any]]:
        return {
            "build a mesh": lambda: self.api.Mesh(self.points, self.faces),
            "refit it": self.mesh.refit,
            "closest points, near": lambda: self.launch("closest", self.near),
            "closest points, around": lambda: self.launch("closest", self.around),
            "closest points with sign, near": lambda: self.launch("signed", self.near),
            "rays": lambda: self.launch("cast", self.around),
            "faces in boxes": lambda: self.launch("boxes", self.near),
            "backward of closest points, near": lambda: self.backward("closest"),
            "build a hash grid": lambda: self.grid.build(self.cloud, H),
            "SPH density": lambda: self.launch("density", None),
            "backward of it": lambda: self.backward("density"),
        }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--threads", type=int, default=1)
    given = options.parse_args()
    apis = peers()
    apis["workbench"].config.threads = given.threads
    print(heading("Meshes and hash grids"))
    sides = {name: Side(api) for name, api in apis.items()}
    for name in ("closest", "signed", "cast", "boxes", "density"):
        found = []
        for side in sides.values():
            side.launch(name, side.around)
            found.append(side.out.numpy().copy())
        for other in found[1:]:
            np.testing.assert_allclose(other, found[0], rtol=2e-3, atol=2e-5, err_msg=name)
    for job in next(iter(sides.values())).jobs():
        times = interleaved({name: side.jobs()[job] for name, side in sides.items()}, given.rounds, 1, warm_up=1)
        print(f"\n{job}\n\n{table(times, next(iter(sides)), 1e3, 'ms')}")


if __name__ == "__main__":
    main()
