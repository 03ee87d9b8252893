"""A whole package of others on the workbench alone: a step of MuJoCo Warp and its gradient, beside MuJoCo itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.mark.slow
@pytest.mark.needs_cc
@pytest.mark.needs_engines
def test_steps_of_mujoco_warp_and_their_gradient_are_those_of_mujoco():
    root = str(Path(__file__).resolve().parents[1])
    ended = subprocess.run(
        [sys.executable, "-m", "tests.coverage.mujoco_step", "--steps", "2"],
        cwd=root,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": root},
        timeout=580,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["warp"] == []
    np.testing.assert_allclose(found["ends"], found["mujoco"], rtol=1e-6)
    np.testing.assert_allclose(found["gradients"], found["differences"], rtol=1e-4)
