"""Cholesky factors and solves of 64 x 64 tiles beside NumPy's, on one thread: microseconds for one, best of rounds.

OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m tests.benchmarks.tile_algebra [--turns 500] [--rounds 7]
"""

from __future__ import annotations

import argparse

import numpy as np

import workbench as wb

from .tile_matmul import best

N = wb.constant(64)


@wb.kernel
def factors(a: wb.array2d[float], c: wb.array2d[float], turns: int):
    x = wb.tile_load(a, shape=(N, N))
    out = wb.tile_zeros(shape=(N, N), dtype=float)
    for _ in range(turns):
        x[0, 0] += 0.001
        out = wb.tile_cholesky(x)
    wb.tile_store(c, out)


@wb.kernel
def solves(low: wb.array2d[float], b: wb.array2d[float], c: wb.array2d[float], turns: int):
    x = wb.tile_load(low, shape=(N, N))
    y = wb.tile_load(b, shape=(N, N))
    for _ in range(turns):
        wb.tile_lower_solve_inplace(x, y)
    wb.tile_store(c, y)


@wb.kernel
def transforms(b: wb.array2d[wb.vec2], c: wb.array2d[wb.vec2], turns: int):
    y = wb.tile_load(b, shape=(1, 1024))
    for _ in range(turns):
        wb.tile_fft(y)
        y *= 0.03125
    wb.tile_store(c, y)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    wb.config.backend, wb.config.threads = "c", 1
    rng = np.random.default_rng(0)
    R = rng.normal(0.0, 1.0, (64, 64)).astype(np.float32)
    A = R @ R.T + 64.0 * np.eye(64, dtype=np.float32)
    L, Z = np.linalg.cholesky(A) / 8.0, rng.normal(size=1024) + 1j * rng.normal(size=1024)
    Z = Z.astype(np.complex64)
    a, low, b, c = wb.array(A), wb.array(L.astype(np.float32)), wb.array(R), wb.zeros((64, 64))
    z, w = wb.array(np.stack([Z.real, Z.imag], -1)[None], dtype=wb.vec2), wb.zeros((1, 1024), dtype=wb.vec2)
    pairs = {
        "cholesky": (lambda: np.linalg.cholesky(A), factors, [a, c]),
        "solve": (lambda: np.linalg.solve(L, R), solves, [low, b, c]),
        "fft 1024": (lambda: np.fft.fft(Z), transforms, [z, w]),
    }
    for name, (by_numpy, kernel, arrays) in pairs.items():
        wb.launch_tiled(kernel, dim=1, inputs=[*arrays, 1])

        def numpy_turns(by_numpy=by_numpy) -> None:
            for _ in range(given.turns):
                by_numpy()

        def tile_turns(kernel=kernel, arrays=arrays) -> None:
            wb.launch_tiled(kernel, dim=1, inputs=[*arrays, given.turns])

        ours, theirs = (best(run, given.rounds, given.turns) for run in (tile_turns, numpy_turns))
        print(f"{name:10} tiles {ours:8.2f} us   numpy {theirs:8.2f} us")


if __name__ == "__main__":
    main()
