"""Pairs of edges and triangles, and numbers drawn in loops, beside searches by brute force and what Warp gives."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb


@wb.kernel
def nearest(x: wb.array2d(dtype=wb.vec3d), y: wb.array(dtype=wb.vec3d)):
    i = wb.tid()
    y[i] = wb.closest_point_edge_edge(x[i, 0], x[i, 1], x[i, 2], x[i, 3], wb.float64(1e-12))


def edges(n: int) -> np.ndarray:
    random = np.random.default_rng(1)
    x = random.normal(size=(n, 4, 3))
    x[: n // 4, 3] = x[: n // 4, 2]  # the second one is a point
    x[n // 4 : n // 2, 1] = x[n // 4 : n // 2, 0]  # the first one
    x[n // 4 : n // 4 + 2, 3] = x[n // 4 : n // 4 + 2, 2]  # both
    return x


def test_the_closest_points_of_edges_are_closest():
    x = edges(64)
    y = wb.zeros(64, dtype=wb.vec3d)
    wb.launch(nearest, 64, [wb.array(x, dtype=wb.vec3d), y])
    s, t, distance = y.numpy().T
    grid = np.linspace(0, 1, 201)
    one = x[:, None, 0] + grid[None, :, None] * (x[:, 1] - x[:, 0])[:, None]
    two = x[:, None, 2] + grid[None, :, None] * (x[:, 3] - x[:, 2])[:, None]
    brute = np.linalg.norm(one[:, :, None] - two[:, None, :], axis=-1).min(axis=(1, 2))
    assert ((s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)).all()
    assert (distance <= brute + 1e-12).all() and (brute - distance < 0.05).all()


def test_the_distance_of_edges_has_its_derivative():
    x, y = wb.array(edges(8), dtype=wb.vec3d, requires_grad=True), wb.zeros(8, dtype=wb.vec3d)
    assert wb.gradcheck(nearest, 8, [x], [y])


@wb.kernel
def meeting(x: wb.array2d(dtype=wb.vec3), y: wb.array(dtype=int)):
    i = wb.tid()
    y[i] = wb.intersect_tri_tri(x[i, 0], x[i, 1], x[i, 2], x[i, 3], x[i, 4], x[i, 5])


def crosses(tri: np.ndarray, p: np.ndarray, q: np.ndarray) -> bool:
    """Does the edge from p to q go through the triangle."""
    a, e, f = tri[0], tri[1] - tri[0], tri[2] - tri[0]
    u, v, t = np.linalg.solve(np.array([e, f, p - q]).T, p - a)
    return bool(u >= 0 and v >= 0 and u + v <= 1 and 0 <= t <= 1)


def test_triangles_meet_where_an_edge_of_one_goes_through_the_other():
    x = np.random.default_rng(2).normal(size=(300, 6, 3)).astype(np.float32)
    y = wb.zeros(300, dtype=int)
    wb.launch(meeting, 300, [wb.array(x, dtype=wb.vec3), y])
    wanted = [any(crosses(a, b[k], b[k - 1]) for a, b in ((t[:3], t[3:]), (t[3:], t[:3])) for k in range(3)) for t in x]
    assert y.numpy().astype(bool).tolist() == wanted and 50 < sum(wanted) < 250


@pytest.mark.parametrize(
    "second, meet",
    [
        ([[1, 1, 0], [5, 1, 0], [1, 5, 0]], 1),
        ([[0.5, 0.5, 0], [0.6, 0.5, 0], [0.5, 0.6, 0]], 1),
        ([[3, 3, 0], [5, 3, 0], [3, 5, 0]], 0),
        ([[0, 0, 1], [2, 0, 1], [0, 2, 1]], 0),
        ([[4, 0, 0], [5, 0, 1], [5, 0, -1]], 1),
        ([[-1, -1, 0], [-1, -2, 0], [-2, -1, 0]], 0),
    ],
)
def test_triangles_in_one_plane_or_that_touch(second, meet):
    y = wb.zeros(1, dtype=int)
    x = np.array([[[0, 0, 0], [4, 0, 0], [0, 4, 0], *second]], np.float32)
    wb.launch(meeting, 1, [wb.array(x, dtype=wb.vec3), y])
    assert y.list() == [meet]


@wb.kernel
def counted(rate: float, n: wb.array(dtype=wb.uint32)):
    i = wb.tid()
    state = wb.rand_init(3, i)
    n[i] = wb.poisson(state, rate)


@pytest.mark.needs_cc
@pytest.mark.parametrize("rate", [0.0, 0.7, 9.5, 10.0, 30.0, 3000.0])
def test_numbers_of_events_have_their_mean_and_variance(rate):
    n = wb.zeros(20000, dtype=wb.uint32)
    wb.launch(counted, 20000, [rate, n])
    found = n.numpy().astype(float)
    assert abs(found.mean() - rate) <= 5 * np.sqrt(max(rate, 0) / 20000)
    assert abs(found.var() - rate) <= 5 * rate * np.sqrt((2 + 1 / max(rate, 1e-9)) / 20000)
