"""A hundred steps of MuJoCo Warp's double pendulum: a loss, its exact gradient, seconds and memory.

    python tests/interop/warp/hundred_steps.py [--steps 100]

The loss is half the squared distance of the last state `(qpos, qvel)` from a given one, its gradient that by the first
state and by the torque of every step. The truth: central differences of the same loss by MuJoCo itself (C, float64).
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import mujoco
import mujoco_warp
import numpy as np
import warp as wp
from mujoco_models import models, start

import workbench as wb

AIM = np.array([0.2, -0.1, 0.5, -0.4])
SIZE = 1e-5  # of differences in float64: their error is of its square


def torques(steps: int) -> np.ndarray:
    """One for each step."""
    return np.sin(0.3 * np.arange(steps)).astype(np.float32)[:, None]


def drive(made: Any, data: Any, given: Any, steps: int) -> Any:
    """MuJoCo Warp's data after the steps."""
    m, d = mujoco_warp.put_model(made), mujoco_warp.put_data(made, data)
    for k in range(steps):
        wp.copy(d.ctrl, given, src_offset=k, count=1)
        mujoco_warp.step(m, d)
    return d


def loss_of_mujoco(made: Any, x: np.ndarray) -> float:
    """The loss by MuJoCo's own steps; `x`: qpos, qvel and the torques in a row."""
    data = mujoco.MjData(made)
    data.qpos[:], data.qvel[:] = x[:2], x[2:4]
    for torque in x[4:]:
        data.ctrl[:] = torque
        mujoco.mj_step(made, data)
    return 0.5 * float(((np.concatenate([data.qpos, data.qvel]) - AIM) ** 2).sum())


def slopes(f: Callable[[np.ndarray], float], x: np.ndarray) -> np.ndarray:
    """Central differences of f."""
    return np.array([(f(x + SIZE * row) - f(x - SIZE * row)) / (2 * SIZE) for row in np.eye(len(x))])


class Clock:
    """Seconds of this process since it was made: those of the wall, and those of a processor."""

    def __init__(self) -> None:
        self.wall, self.busy = time.perf_counter(), time.process_time()

    def __str__(self) -> str:
        return f"{time.perf_counter() - self.wall:.2f} s ({time.process_time() - self.busy:.2f} s of a processor)"


def megabytes() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    asked = argparse.ArgumentParser(description="figures of many steps of MuJoCo Warp, watched")
    asked.add_argument("--steps", type=int, default=100)
    steps = asked.parse_args().steps
    wp.config.quiet = True
    wp.set_device("cpu")
    made, data = start(models()["double pendulum"])
    given = wp.array(torques(steps), dtype=float, device="cpu")
    with wb.interop.warp.watch(check=None):
        drive(made, data, given, 3)  # all is compiled
    before, clock = megabytes(), Clock()
    drive(made, data, given, steps)
    plain, after, clock = str(clock), megabytes(), Clock()
    with wb.interop.warp.watch(check=None) as seen:
        d = drive(made, data, given, steps)
    watched, kept = str(clock), megabytes()
    last = np.concatenate([d.qpos.numpy()[0], d.qvel.numpy()[0]]).astype(np.float64)
    apart = (last - AIM).astype(np.float32)
    clock = Clock()
    seen.backward(grads={d.qpos: apart[None, :2], d.qvel: apart[None, 2:]})
    walk, end = str(clock), megabytes()
    found = np.concatenate([np.ravel(seen.gradients[a]) for a in (d.qpos, d.qvel, given)]).astype(np.float64)
    x = np.concatenate([data.qpos, data.qvel, torques(steps).ravel()]).astype(np.float64)
    right = slopes(lambda moved: loss_of_mujoco(made, moved), x)
    print(f"{steps} steps: {len(seen.steps)} events, {len(seen.opaque_steps)} opaque")
    print(f"loss {0.5 * (apart.astype(np.float64) ** 2).sum():.7f}, by MuJoCo {loss_of_mujoco(made, x):.7f}")
    print(f"plain {plain}, watched {watched}, gradient of {len(found)} numbers {walk}")
    print(f"memory: plain +{after - before:.0f} MB, watched +{kept - after:.0f} MB, gradient +{end - kept:.0f} MB")
    print(f"error {abs(found - right).max() / abs(right).max():.1e} of the largest, {abs(right).max():.3g}")


if __name__ == "__main__":
    main()
