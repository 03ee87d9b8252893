"""Products of 64 x 64 tiles beside NumPy's, on one thread: microseconds for one, the best of several rounds.

OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python tests/benchmarks/tile_matmul.py [--turns 2000] [--rounds 9]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import workbench as wb

N = wb.constant(64)


@wb.kernel
def products(a: wb.array2d[float], b: wb.array2d[float], c: wb.array2d[float], turns: int):
    x = wb.tile_load(a, shape=(N, N))
    y = wb.tile_load(b, shape=(N, N))
    out = wb.tile_zeros(shape=(N, N), dtype=float)
    for _ in range(turns):
        wb.tile_matmul(x, y, out)
    wb.tile_store(c, out)


def best(run: Callable[[], object], rounds: int, turns: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e6 * min(times) / turns


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    wb.config.backend, wb.config.threads = "c", 1
    A, B = np.random.default_rng(0).normal(0.0, 0.01, (2, 64, 64)).astype(np.float32)
    out = np.zeros_like(A)
    a, b, c = wb.array(A), wb.array(B), wb.zeros((64, 64))

    def by_numpy() -> None:
        for _ in range(given.turns):
            np.matmul(A, B, out=out)

    def by_tiles() -> None:
        wb.launch_tiled(products, dim=1, inputs=[a, b, c, given.turns])

    by_tiles()
    for name, run in (("numpy", by_numpy), ("tiles", by_tiles)):
        print(f"{name:6} {best(run, given.rounds, given.turns):8.2f} us")


if __name__ == "__main__":
    main()
