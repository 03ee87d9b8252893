"""The exact gradient of a step of MuJoCo Warp, of which no line is changed.

MuJoCo's `mjd_transitionFD` (float64, in C) is one truth, central differences of the step itself (float32) the other.
Warp compiles the step for some minutes on the first run. All models, with times: `mujoco_steps.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_engines, pytest.mark.needs_cc, pytest.mark.slow]
TOLERANCE = {  # from transitionFD, and from differences of the float32 step, which are noise below that
    "double pendulum": (1e-6, 1e-4),
    "cartpole": (1e-6, 1e-4),
    "hopper in the air": (1e-5, 1e-3),
    "limits": (5e-6, 1e-4),
    "connect": (1e-5, 5e-4),
    "chain, CG": (1e-6, 1e-4),
    "ball in the air": (5e-6, 1e-4),
    "ball joints": (1e-5, 1e-3),
}
MORE = {  # from transitionFD, of models with many joints, or whose start is at a place where a kernel skips work
    "40 links, sparse": 5e-4,  # the state is 1.6e-4 off in float32, and the Jacobian 1.3e-4
    "six balls, sparse": 5e-6,
    "wrapping cylinders": 5e-6,
    "cloth at rest": 1e-6,
}
BOXES = {"box on the ground, pyramidal": 1e-4, "box on the ground, elliptic": 5e-5}  # from transitionFD


@pytest.fixture(scope="module")
def steps() -> Any:
    import mujoco_steps
    import warp

    warp.config.quiet = True
    warp.set_device("cpu")
    return mujoco_steps


@pytest.fixture(scope="module")
def watched(steps: Any) -> Any:
    """Of a model by name: MuJoCo's model and data, what was seen of one step, MuJoCo Warp's data, the Jacobian."""
    known: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in known:
            made, data = steps.start(steps.models()[name])
            seen, d = steps.watched(made, data)
            known[name] = made, data, seen, d, steps.exact(made, data.qpos, seen, d)
        return known[name]

    return of


@pytest.mark.parametrize("name", TOLERANCE)
def test_nothing_on_the_way_is_opaque_and_the_results_are_those_of_the_step(name: str, watched: Any) -> None:
    seen = watched(name)[2]
    assert len(seen.steps) > 50
    assert not [(step.label, step.reason) for step in seen.steps if step.kind == "opaque" or step.reason]
    apart = [step.difference for step in seen.steps if step.difference is not None]
    assert all(d.share < 1e-5 for d in apart), apart  # rounding: of ball joints some results are left after cancelling


@pytest.mark.parametrize("name", TOLERANCE)
def test_the_jacobians_are_those_of_transition_fd(name: str, watched: Any, steps: Any) -> None:
    made, data, _, _, found = watched(name)
    assert found.A.shape == (2 * made.nv, 2 * made.nv) and found.B.shape == (2 * made.nv, made.nu)
    right = steps.truth(made, data)
    assert abs(right.A - np.eye(2 * made.nv)).max() > 1e-3
    assert steps.error(found, right) < TOLERANCE[name][0]


@pytest.mark.parametrize("name", TOLERANCE)
def test_the_jacobians_are_those_of_differences_of_the_step_itself(name: str, watched: Any, steps: Any) -> None:
    made, data, _, _, found = watched(name)
    assert min(steps.error(found, steps.differences(made, data, h)) for h in (1e-2, 3e-3)) < TOLERANCE[name][1]


@pytest.mark.parametrize("name", MORE)
def test_large_and_resting_models_have_the_jacobians_of_transition_fd(name: str, watched: Any, steps: Any) -> None:
    made, data, seen, _, found = watched(name)
    assert not [(step.label, step.reason) for step in seen.steps if step.kind == "opaque" or step.reason]
    assert steps.error(found, steps.truth(made, data)) < MORE[name]


@pytest.mark.parametrize("name", BOXES)
def test_what_a_contact_is_off_is_what_float32_makes_of_its_distance(name: str, watched: Any, steps: Any) -> None:
    # The distances are differences of two lengths of 0.1 m, and the impedance changes within 1 mm of them.
    made, data, seen, d, found = watched(name)
    assert not [step for step in seen.steps if step.kind == "opaque" or step.reason]
    assert steps.error(found, steps.truth(made, data)) < BOXES[name]
    assert steps.error(found, steps.truth(made, steps.at_distances_of(made, data, d))) < 1e-5


def test_a_solver_that_goes_on_has_the_derivative_of_one_that_has_converged(steps: Any) -> None:
    made, data = steps.start(steps.models()["hopper on the ground, pyramidal"])
    far, near = (
        steps.error(steps.exact(made, data.qpos, *steps.watched(made, data, tolerance=t)), steps.truth(made, data))
        for t in (None, 0.0)
    )
    assert far < 1e-4 and near < 5e-6


def test_each_world_has_its_own_jacobian(steps: Any) -> None:
    import mujoco

    made, data = steps.start(steps.models()["double pendulum"])
    states = [mujoco.MjData(made) for _ in range(3)]
    for k, state in enumerate(states):
        state.qpos[:], state.qvel[:], state.ctrl[:] = data.qpos + 0.1 * k, (1 + k) * data.qvel, -k
    seen, d = steps.watched_worlds(made, states)
    assert not seen.opaque_steps
    for world, state in enumerate(states):
        assert steps.error(steps.exact(made, state.qpos, seen, d, world), steps.truth(made, state)) < 1e-6
