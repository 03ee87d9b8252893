"""Many small programs at once: `wb.vmap` beside a loop over the rows, and beside `jax.vmap`, in one run.

    python -m tests.benchmarks.vmap [--rows 256] [--cells 64] [--steps 20] [--rounds 9]

A program is a rollout of `steps` steps of a sine-Gordon chain of `cells` cells in float32, and the squared end state;
measured is its value and its gradient by the start of every row and by one shared stiffness.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np

import workbench as wb

from .rounds import heading, interleaved, ratio

DT = 0.05


@wb.kernel
def step(x: wb.array[float], v: wb.array[float], k: wb.array[float], y: wb.array[float], w: wb.array[float]):
    i = wb.tid()
    n = x.shape[0]
    left, right = x[wb.max(i - 1, 0)], x[wb.min(i + 1, n - 1)]
    w[i] = v[i] + 0.05 * (k[0] * (left - 2.0 * x[i] + right) - wb.sin(x[i]))
    y[i] = x[i] + 0.05 * w[i]


@wb.kernel
def energy(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(out, 0, x[i] * x[i])


def rollout(x: wb.array, k: wb.array, steps: int) -> wb.array:
    v, out = wb.zeros_like(x), wb.zeros(1)
    for _ in range(steps):
        y, w = wb.empty_like(x), wb.empty_like(x)
        wb.launch(step, x.size, [x, v, k, y, w])
        x, v = y, w
    wb.launch(energy, x.size, [x, out])
    return out


def ours(rows: int, steps: int, starts: np.ndarray, mapped: bool, jit: bool = False) -> Any:
    def loss(xs: wb.array, k: wb.array) -> wb.array:
        if mapped:
            found = wb.vmap(lambda x, k: rollout(x, k, steps), in_axes=(0, None))(xs, k).flatten()
        else:
            found = wb.zeros(rows)
            for b in range(rows):
                wb.copy(found, rollout(xs[b], k, steps), dest_offset=b)
        return wb.utils.array_sum(found, out=wb.zeros(1))

    made = wb.value_and_grad(loss, argnums=(0, 1), jit=jit)
    return lambda: made(starts, np.ones(1, np.float32))


def theirs(steps: int, starts: np.ndarray) -> Any:
    import jax
    import jax.numpy as jnp

    def one(x: Any, k: Any) -> Any:
        def turn(state: Any, _: Any) -> Any:
            x, v = state
            left, right = jnp.concatenate([x[:1], x[:-1]]), jnp.concatenate([x[1:], x[-1:]])
            w = v + DT * (k * (left - 2.0 * x + right) - jnp.sin(x))
            return (x + DT * w, w), None

        (x, _), _ = jax.lax.scan(turn, (x, jnp.zeros_like(x)), None, steps)
        return jnp.sum(x * x)

    def loss(xs: Any, k: Any) -> Any:
        return jnp.sum(jax.vmap(one, (0, None))(xs, k))

    made = jax.jit(jax.value_and_grad(loss, (0, 1)))
    xs, k = jnp.asarray(starts), jnp.float32(1.0)
    return lambda: jax.block_until_ready(made(xs, k))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in {"rows": 256, "cells": 64, "steps": 20, "rounds": 9}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    starts = np.random.default_rng(0).uniform(-1, 1, (given.rows, given.cells)).astype(np.float32)
    runs = {
        "vmap": ours(given.rows, given.steps, starts, True),
        "vmap, jit": ours(given.rows, given.steps, starts, True, jit=True),
        "a loop": ours(given.rows, given.steps, starts, False),
        "jax.vmap, jit": theirs(given.steps, starts),
    }
    want = runs["a loop"]()
    for name, run in runs.items():
        value, (d_x, d_k) = run()
        assert np.isclose(value, want[0], 1e-4) and np.allclose(d_k, want[1][1], 1e-3), name
        assert np.allclose(d_x, want[1][0], 1e-3, 1e-4), name
    times = interleaved(runs, given.rounds, 1, warm_up=3)
    print(heading(f"{given.rows} rollouts of {given.steps} steps of {given.cells} cells, value and gradient"))
    print("| what | ms | a loop / it |\n|---|---|---|")
    for name, found in times.items():
        print(f"| {name} | {1e3 * statistics.median(found):.2f} | {ratio(times['a loop'], found):.1f} |")


if __name__ == "__main__":
    main()
