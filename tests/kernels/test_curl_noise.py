"""`curlnoise` has no divergence, and is the curl of what it says."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb


@wb.kernel
def flow2(x: wb.array[wb.vec2d], v: wb.array[wb.vec2d]):
    i = wb.tid()
    v[i] = wb.curlnoise(wb.uint32(7), x[i])


@wb.kernel
def flow3(x: wb.array[wb.vec3d], v: wb.array[wb.vec3d]):
    i = wb.tid()
    v[i] = wb.curlnoise(wb.uint32(7), x[i], 3, wb.float64(1.9), wb.float64(0.4))


@wb.kernel
def height(x: wb.array[wb.vec2d], h: wb.array[wb.float64]):
    i = wb.tid()
    h[i] = wb.noise(wb.uint32(7), x[i])


def at(kernel: wb.Kernel, points: np.ndarray, out: object) -> np.ndarray:
    n = points.shape[1]
    made = wb.zeros(len(points), dtype=out)
    wb.launch(kernel, len(points), [wb.array(points, dtype=wb.types.vector(n, wb.float64)), made])
    return made.numpy()


def slopes(kernel: wb.Kernel, points: np.ndarray, out: object, step: float = 1e-5) -> list[np.ndarray]:
    """By axis the derivative of what a kernel makes of points."""
    moves = step * np.eye(points.shape[1])
    return [(at(kernel, points + m, out) - at(kernel, points - m, out)) / (2 * step) for m in moves]


@pytest.mark.parametrize("kernel, n", [(flow2, 2), (flow3, 3)])
def test_the_field_has_no_divergence(kernel, n, backend):
    points = np.random.default_rng(1).uniform(-4.0, 4.0, (200, n))
    out = wb.types.vector(n, wb.float64)
    by = slopes(kernel, points, out)
    divergence = sum(by[k][:, k] for k in range(n))
    assert np.abs(divergence).max() < 1e-6 * np.abs(by).max()
    assert (np.abs(at(kernel, points, out)).max(0) > 0.1).all(), "each component is there"


def test_in_the_plane_it_is_the_slope_of_noise_turned_to_the_left(backend):
    points = np.random.default_rng(2).uniform(-4.0, 4.0, (200, 2))
    by_x, by_y = slopes(height, points, wb.float64)
    np.testing.assert_allclose(at(flow2, points, wb.vec2d), np.stack([-by_y, by_x], 1), rtol=1e-6, atol=1e-7)
