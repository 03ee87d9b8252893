"""MuJoCo Warp with the workbench in place of Warp: steps of a double pendulum, and their gradient.

    python -m tests.coverage.mujoco_step [--steps N]

Warp is not imported. Prints a JSON dict: the positions after the steps here and in MuJoCo itself (float64), and the
derivatives of a weighted sum of them by the first positions and velocities: by one reverse pass here, and by central
differences of MuJoCo's own steps. Without contacts and constraints; its solver is CG.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from typing import Any

import numpy as np

from .program_run import Aliases

MODEL = """<mujoco>
  <option timestep="0.005" integrator="Euler" solver="CG"><flag contact="disable" constraint="disable"/></option>
  <worldbody>
    <body pos="0 0 1"><joint type="hinge" axis="0 1 0" damping="0.05"/>
      <geom type="capsule" size="0.03" fromto="0 0 0 0 0 -0.4"/>
      <body pos="0 0 -0.4"><joint type="hinge" axis="0 1 0"/>
        <geom type="capsule" size="0.03" fromto="0 0 0 0 0 -0.4"/>
      </body>
    </body>
  </worldbody>
</mujoco>"""
PLACES, SPEEDS, WEIGHTS = np.array([1.0, 0.5]), np.array([0.3, -0.7]), np.array([1.0, -2.0])
STEP = 1e-6  # of the differences


def in_mujoco(model: Any, places: np.ndarray, speeds: np.ndarray, steps: int) -> np.ndarray:
    """The positions after these steps of MuJoCo itself."""
    import mujoco

    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = places, speeds
    for _ in range(steps):
        mujoco.mj_step(model, data)
    return data.qpos.copy()


def differences(model: Any, steps: int) -> list[list[float]]:
    """Of the weighted positions, by the first positions and velocities."""
    found: list[list[float]] = [[], []]
    for which in (0, 1):
        for k in range(2):
            ends = []
            for sign in (1, -1):
                start = [PLACES.copy(), SPEEDS.copy()]
                start[which][k] += sign * STEP
                ends.append(float(in_mujoco(model, *start, steps) @ WEIGHTS))
            found[which].append((ends[0] - ends[1]) / (2 * STEP))
    return found


def in_the_workbench(model: Any, steps: int) -> tuple[list[float], list[list[float]]]:
    """The positions after these steps of MuJoCo Warp, and the gradients of the weighted ones."""
    import mujoco

    wb = importlib.import_module("workbench")
    sys.modules["warp"] = wb
    sys.meta_path.insert(0, Aliases())
    wb.config.all_adjoints = True  # MuJoCo Warp switches them off
    mjw = importlib.import_module("mujoco_warp")
    start = mujoco.MjData(model)
    start.qpos[:], start.qvel[:] = PLACES, SPEEDS
    mujoco.mj_forward(model, start)
    on_device, data = mjw.put_model(model), mjw.put_data(model, start)
    places = wb.array(PLACES[None], dtype=float, requires_grad=True)
    speeds = wb.array(SPEEDS[None], dtype=float, requires_grad=True)
    ends = wb.zeros_like(places)
    with wb.Tape() as tape:
        wb.copy(data.qpos, places)
        wb.copy(data.qvel, speeds)
        for _ in range(steps):
            mjw.step(on_device, data)
        wb.copy(ends, data.qpos)
    tape.backward(grads={ends: wb.array(WEIGHTS[None], dtype=float)})
    return ends.numpy()[0].tolist(), [places.grad.numpy()[0].tolist(), speeds.grad.numpy()[0].tolist()]


def main() -> None:
    import mujoco

    parser = argparse.ArgumentParser(prog="python -m tests.coverage.mujoco_step")
    parser.add_argument("--steps", type=int, default=2)
    steps = parser.parse_args().steps
    model = mujoco.MjModel.from_xml_string(MODEL)
    ends, gradients = in_the_workbench(model, steps)
    theirs = in_mujoco(model, PLACES, SPEEDS, steps).tolist()
    found = {"ends": ends, "mujoco": theirs, "gradients": gradients, "differences": differences(model, steps)}
    print(json.dumps(found | {"warp": [n for n in sys.modules if n.startswith("warp._src")]}))


if __name__ == "__main__":
    main()
