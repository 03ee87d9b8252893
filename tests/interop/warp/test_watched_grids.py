"""Hash grids of a watched program: twins are built where Warp builds, and each launch finds what Warp's found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb

pytestmark = [pytest.mark.needs_warp, pytest.mark.needs_cc]
RADIUS = 1.0
POINTS = np.array([[0, 0, 0], [0.5, 0.25, 0], [0, 0.75, 0.5], [3, 3, 3], [3, 3.5, 2.75], [-1.0, 4.0, 2.0]], np.float32)


def meant(p: np.ndarray) -> np.ndarray:
    apart = ((p[:, None] - p[None]) ** 2).sum(-1)
    return np.where(apart < RADIUS**2, apart**2, 0.0).sum(1)


def launched(k: Any, grid: Any, x: Any, y: Any) -> None:
    k.wp.launch(k.near, len(POINTS), [grid.id, x, RADIUS, y])


def test_each_launch_finds_the_points_of_the_last_build(k: Any) -> None:
    wp = k.wp
    x, moved = (wp.array(p, dtype=wp.vec3, requires_grad=True) for p in (POINTS, POINTS[::-1] * 0.9))
    first, second = (wp.zeros(len(POINTS), dtype=float, requires_grad=True) for _ in range(2))
    grid = wp.HashGrid(8, 8, 8)
    with wb.interop.warp.watch() as seen:
        grid.build(x, RADIUS)
        launched(k, grid, x, first)
        grid.build(moved, RADIUS)
        launched(k, grid, moved, second)
    assert not [step.reason for step in seen.steps if step.kind == "opaque" or step.reason]
    assert [step.label for step in seen.steps].count("HashGrid.build") == 2
    seeds = np.array([1.0, -2.0, 0.5, 3.0, 0.25, 1.0], np.float32)
    seen.backward(grads={first: seeds, second: 2 * seeds})
    for a, points, seed in ((x, POINTS, seeds), (moved, POINTS[::-1] * 0.9, 2 * seeds)):
        p = points.astype(np.float64)
        exact = [seed @ (meant(p + h) - meant(p - h)) / 2e-6 for h in 1e-6 * np.eye(p.size).reshape(-1, *p.shape)]
        assert np.abs(exact).max() > 1
        np.testing.assert_allclose(seen.gradients[a].ravel(), exact, rtol=1e-5, atol=1e-5)


def test_a_grid_that_was_built_before_the_watch_has_no_twin(k: Any) -> None:
    wp = k.wp
    x = wp.array(POINTS, dtype=wp.vec3, requires_grad=True)
    y = wp.zeros(len(POINTS), dtype=float, requires_grad=True)
    grid = wp.HashGrid(8, 8, 8)
    grid.build(x, RADIUS)
    with wb.interop.warp.watch() as seen:
        launched(k, grid, x, y)
    assert [step.kind for step in seen.steps] == ["opaque"]
    assert "HashGrid" in seen.steps[0].reason
    with pytest.raises(wb.GradientError, match="near"):
        seen.backward(grads={y: np.ones(len(POINTS), np.float32)})
