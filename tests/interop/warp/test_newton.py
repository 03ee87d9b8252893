"""Exact gradients of Newton's solvers, of which no line is changed, beside differences and Warp's own gradients.

Warp compiles the solvers for some minutes on the first run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb

pytestmark = [pytest.mark.needs_engines, pytest.mark.needs_cc, pytest.mark.slow]
TOLERANCE = {  # from central differences of the float32 simulation, relative; the step in units of the given array
    "spring cage, semi-implicit": (1e-4, 1e-2, 1.0),
    "cloth, semi-implicit": (3e-4, 3e-3, 1.0),
    "cloth, XPBD": (3e-3, 1e-2, 1.0),
}


@pytest.fixture(scope="module")
def scenes() -> Any:
    import warp

    warp.config.quiet = True
    warp.set_device("cpu")
    import newton_scenes

    return newton_scenes


@pytest.fixture(scope="module")
def watched(scenes: Any) -> Any:
    """Of a scene by name: its run, the seed of its results, what was seen, the exact gradient, Warp's own."""
    import warp as wp

    known: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in known:
            run = scenes.SCENES[name]()
            given = run.given(run)
            seed = np.random.default_rng(3).standard_normal(run.out(run).numpy().shape).astype(np.float32)
            with wb.interop.warp.watch() as seen:
                with wp.Tape() as tape:
                    run.simulate()
                out = run.out(run)  # not before: some solvers put another array into the state
                tape.backward(grads={out: wp.array(seed, dtype=out.dtype, device="cpu")})
            own = given.grad.numpy().copy()
            seen.backward(grads={out: seed})
            known[name] = run, seed, seen, np.array(seen.gradients[given], np.float64), own
        return known[name]

    return of


@pytest.mark.parametrize("name", TOLERANCE)
def test_nothing_on_the_way_is_opaque(name: str, watched: Any) -> None:
    seen = watched(name)[2]
    assert len(seen.steps) > 20
    assert not [(step.label, step.reason) for step in seen.steps if step.kind == "opaque" or step.reason]


@pytest.mark.parametrize("name", TOLERANCE)
def test_the_gradient_is_that_of_differences(name: str, watched: Any, scenes: Any) -> None:
    _, seed, _, exact, _ = watched(name)
    tolerance, step, scale = TOLERANCE[name]
    rng = np.random.default_rng(5)
    for _ in range(3):
        way = scale * rng.standard_normal(exact.shape)
        ends = []
        for sign in (step, -step):
            run = scenes.SCENES[name]()
            given = run.given(run)
            given.assign((given.numpy() + sign * way).astype(np.float32))
            run.simulate()
            ends.append(float((run.out(run).numpy().astype(np.float64) * seed).sum()))
        found = (ends[0] - ends[1]) / (2 * step)
        assert abs(found - (exact * way).sum()) < tolerance * np.linalg.norm(exact) * np.linalg.norm(way)


@pytest.mark.parametrize("name", TOLERANCE)
def test_warps_own_gradient_agrees_and_is_not_accused(name: str, watched: Any) -> None:
    _, _, seen, exact, own = watched(name)
    assert abs(exact).max() > 0
    np.testing.assert_allclose(own, exact, rtol=1e-4, atol=1e-5 * abs(exact).max())
    verdicts = [row.verdict for row in seen.compare().rows]
    assert "agrees" in verdicts and not {"wrong", "unverified"} & set(verdicts)


def test_particles_that_start_with_one_velocity_stand_at_a_kink_and_nobody_is_accused(watched: Any) -> None:
    _, _, seen, _, _ = watched("soft body at rest, semi-implicit")
    rows = {row.array.rpartition(".")[2]: row for row in seen.compare() if row.verdict not in ("agrees", "not asked")}
    assert list(rows) == ["particle_qd"]
    assert rows["particle_qd"].verdict == "unverified" and rows["particle_qd"].cause.startswith("kink: `min` in line ")
