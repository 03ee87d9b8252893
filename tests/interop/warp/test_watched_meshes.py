"""Meshes and trees of boxes of a watched program: twins find what Warp's find, and gradients go to their points."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from geometry.meshes import closest_weights, sphere

import workbench as wb

pytestmark = [pytest.mark.needs_warp, pytest.mark.needs_cc]
KERNELS = "watched_meshes"
POINTS, FACES = sphere(6)
X = np.random.default_rng(1).normal(size=(12, 3)).astype(np.float32) * np.float32(1.5)
SEED = np.linspace(-1.0, 2.0, len(X)).astype(np.float32)


def mesh_of(k: Any, points: np.ndarray = POINTS, grad: bool = True) -> Any:
    given = k.wp.array(points, dtype=k.wp.vec3, requires_grad=grad)
    return k.wp.Mesh(given, k.wp.array(FACES.ravel(), dtype=int))


def vectors(k: Any, values: np.ndarray) -> Any:
    return k.wp.array(values, dtype=k.wp.vec3, requires_grad=True)


def floats(k: Any, n: int = len(X)) -> Any:
    return k.wp.zeros(n, dtype=float, requires_grad=True)


def nearest(points: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The vector from the closest point of the surface to each x, in float64."""
    corners = points.astype(np.float64)[FACES]
    ways = np.array([[p - closest_weights(*c, p) @ c for c in corners] for p in x])
    return ways[np.arange(len(x)), (ways**2).sum(-1).argmin(1)]


def squares(points: np.ndarray, x: np.ndarray) -> float:
    return float(SEED[: len(x)] @ (nearest(points, x) ** 2).sum(-1))


def slope(f: Callable[[np.ndarray], float], at: np.ndarray, seed: int = 0) -> tuple[np.ndarray, float]:
    """A direction, and the central difference of f along it."""
    way = np.random.default_rng(seed).normal(size=at.shape)
    a = at.astype(np.float64)
    return way, (f(a + 1e-6 * way) - f(a - 1e-6 * way)) / 2e-6


def no_opaque(seen: Any) -> None:
    assert not [(s.label, s.reason) for s in seen.steps if s.kind == "opaque" or s.reason]


@pytest.mark.parametrize("inside", [True, False])
def test_the_closest_points_are_warps_and_gradients_go_to_the_points_of_the_mesh(k: Any, inside: bool) -> None:
    wp, x, y = k.wp, vectors(k, X), floats(k)
    mesh = None if inside else mesh_of(k)
    with wb.interop.warp.watch() as seen:
        mesh = mesh or mesh_of(k)
        with wp.Tape() as tape:
            wp.launch(k.plain_distances, len(X), [mesh.id, x], [y])
        tape.backward(grads={y: wp.array(SEED, dtype=float)})
    no_opaque(seen)
    assert not [s for s in seen.steps if s.difference is not None and s.difference.share > 1e-5]
    np.testing.assert_allclose(y.numpy(), (nearest(POINTS, X) ** 2).sum(-1), rtol=1e-4, atol=1e-6)
    seen.backward(grads={y: SEED})
    for a, at, f in ((x, X, lambda v: squares(POINTS, v)), (mesh.points, POINTS, lambda v: squares(v, X))):
        way, found = slope(f, at)
        assert (seen.gradients[a] * way).sum() == pytest.approx(found, rel=1e-4)
    (wrong,) = seen.compare().wrong  # Warp has no adjoint there
    assert seen.compare()["x"].verdict == "agrees" and wrong.array != "y" and not np.any(wrong.theirs)
    assert wrong.cause.startswith("adjoint of mesh queries: Warp's adjoint of ") and "plain_distances" in wrong.launch


def test_signs_and_faces_are_warps(k: Any) -> None:
    wp, x, y, mesh = k.wp, vectors(k, X), floats(k), mesh_of(k)
    face = wp.zeros(len(X), dtype=int)
    with wb.interop.warp.watch(check="forward") as seen:
        wp.launch(k.distances, len(X), [mesh.id, x, y, face])
    no_opaque(seen)
    assert len(set(face.numpy())) > 5 and (y.numpy() < 0).any() and (y.numpy() > 0).any()
    (step,) = seen.steps  # of faces that share an edge another may be taken
    assert step.difference is None or step.difference.share < 1e-5 or (step.chosen and not step.doubtful)


def test_rays_hit_what_they_hit_in_warp(k: Any) -> None:
    wp, x, t = k.wp, vectors(k, 3 * X), floats(k)
    way = wp.array(-X + 0.1, dtype=wp.vec3, requires_grad=True)
    face, mesh = wp.zeros(len(X), dtype=int), mesh_of(k)
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(k.rays, len(X), [mesh.id, x, way], [t, face])
        tape.backward(grads={t: wp.array(SEED, dtype=float)})
    no_opaque(seen)
    assert (t.numpy() > 0).all() and {r.array: r.verdict for r in seen.compare()}["x"] == "agrees"
    assert [r.cause.partition(":")[0] for r in seen.compare().wrong] == ["adjoint of mesh queries"]
    assert not [s for s in seen.steps if s.difference is not None and s.difference.share > 1e-5]


def test_a_refit_moves_what_later_launches_find_and_each_has_its_own_gradient(k: Any) -> None:
    wp, x, first, second = k.wp, vectors(k, X), floats(k), floats(k)
    by = vectors(k, np.full_like(POINTS, 0.25))
    mesh, start = mesh_of(k, np.zeros_like(POINTS)), vectors(k, POINTS)
    with wb.interop.warp.watch() as seen:
        wp.copy(mesh.points, start)
        mesh.refit()
        wp.launch(k.plain_distances, len(X), [mesh.id, x, first])
        wp.launch(k.moved, len(POINTS), [start, by, mesh.points])
        mesh.refit()
        wp.launch(k.plain_distances, len(X), [mesh.id, x, second])
    no_opaque(seen)
    assert [s.label for s in seen.steps].count("Mesh.refit") == 1  # the first is before its twin is made
    seen.backward(grads={first: SEED, second: -2 * SEED})
    moved = POINTS * 1.25
    way, found = slope(lambda v: squares(v, X) - 2 * squares(1.25 * v, X), POINTS)
    assert (seen.gradients[start] * way).sum() == pytest.approx(found, rel=1e-4)
    way, found = slope(lambda v: -2 * squares(POINTS * (1 + v), X), np.full_like(POINTS, 0.25))
    assert (seen.gradients[by] * way).sum() == pytest.approx(found, rel=1e-4)
    way, found = slope(lambda v: squares(POINTS, v) - 2 * squares(moved, v), X)
    assert (seen.gradients[x] * way).sum() == pytest.approx(found, rel=1e-4)


def test_points_that_are_exchanged_are_the_leaves(k: Any) -> None:
    wp, x, y, mesh = k.wp, vectors(k, X), floats(k), mesh_of(k)
    other = vectors(k, POINTS * 0.5)
    with wb.interop.warp.watch() as seen:
        wp.launch(k.plain_distances, len(X), [mesh.id, x, y])
        mesh.points = other
        wp.launch(k.plain_distances, len(X), [mesh.id, x, y])
    no_opaque(seen)
    seen.backward(grads={y: SEED})
    way, found = slope(lambda v: squares(v, X), POINTS * 0.5)
    assert (seen.gradients[other] * way).sum() == pytest.approx(found, rel=1e-4)


def test_a_number_in_a_struct_is_followed(k: Any) -> None:
    wp, x, y, mesh = k.wp, vectors(k, X), floats(k), mesh_of(k)
    scene = k.Scene()
    scene.mesh, scene.scale = mesh.id, 3.0
    with wb.interop.warp.watch() as seen:
        wp.launch(k.in_scene, len(X), [scene, x, y])
    no_opaque(seen)
    seen.backward(grads={y: SEED})
    way, found = slope(lambda v: 3 * squares(v, X), POINTS)
    assert (seen.gradients[mesh.points] * way).sum() == pytest.approx(found, rel=1e-4)


def test_numbers_in_an_array_find_their_meshes_and_no_gradient_by_their_points_is_made_up(k: Any) -> None:
    wp, x, y = k.wp, vectors(k, X), floats(k)
    meshes = [mesh_of(k, POINTS * size, grad=False) for size in (1.0, 0.5)]
    numbers = wp.array([m.id for m in meshes], dtype=wp.uint64)
    with wb.interop.warp.watch() as seen:
        wp.launch(k.chosen, len(X), [numbers, x, y])
    no_opaque(seen)
    assert not [s for s in seen.steps if s.difference is not None and s.difference.share > 1e-5]
    seen.backward(grads={y: SEED})
    whole, half = nearest(POINTS, X), nearest(POINTS * 0.5, X)
    meant = 2 * SEED[:, None] * np.where(np.arange(len(X))[:, None] % 2, half, whole)
    np.testing.assert_allclose(seen.gradients[x], meant, rtol=1e-3, atol=1e-4)
    with pytest.raises(wb.GradientError):
        seen.gradients[meshes[0].points]


def test_numbers_in_an_array_of_meshes_whose_points_want_a_gradient_are_opaque(k: Any, tmp_path: Path) -> None:
    wp, x, y = k.wp, vectors(k, X), floats(k)
    meshes = [mesh_of(k), mesh_of(k, POINTS * 0.5)]
    numbers = wp.array([m.id for m in meshes], dtype=wp.uint64)
    with wb.interop.warp.watch() as seen:
        wp.launch(k.chosen, len(X), [numbers, x, y])
    (opaque,) = [s for s in seen.steps if s.kind == "opaque"]
    assert "points" in opaque.reason
    with pytest.raises(wb.GradientError, match="chosen"):
        seen.backward(grads={y: SEED})
    assert seen.to_html(tmp_path / "opaque.html").stat().st_size > 10_000


def test_a_mesh_fitted_anew_before_backward_is_named(k: Any) -> None:
    wp, x, y = k.wp, vectors(k, X), floats(k)
    mesh = mesh_of(k)
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(k.plain_distances, len(X), [mesh.id, x], [y])
        mesh.points.assign(POINTS[::-1] * np.float32(0.25))
        mesh.refit()
        tape.backward(grads={y: wp.array(SEED, dtype=float)})
    row = seen.compare()["x"]
    assert row.verdict == "wrong" and row.cause.startswith(("overwritten memory: ", "host write: ")), row.texts()
    assert "mesh" in row.cause or "points" in row.cause


def test_boxes_are_found_and_followed_through_a_refit(k: Any) -> None:
    wp, rng = k.wp, np.random.default_rng(2)
    middles = rng.uniform(-1, 1, (20, 3)).astype(np.float32)
    lowers, uppers = vectors(k, middles - 0.1), vectors(k, middles + 0.1)
    at, x, y, z = vectors(k, middles), vectors(k, X / 2), floats(k), floats(k)
    bvh = wp.Bvh(lowers, uppers)
    with wb.interop.warp.watch() as seen:
        wp.launch(k.near_boxes, len(X), [bvh.id, x, at, y])
        lowers.assign(middles - 0.3)
        uppers.assign(middles + 0.3)
        bvh.refit()
        wp.launch(k.near_boxes, len(X), [bvh.id, x, at, z])
    no_opaque(seen)
    assert not [s for s in seen.steps if s.difference is not None and s.difference.share > 1e-5]
    assert (y.numpy() != z.numpy()).any()
    seen.backward(grads={y: SEED, z: SEED})
    apart = (X / 2)[:, None].astype(np.float64) - middles[None]
    near = sum((np.abs(apart) <= 0.4 + r).all(-1).astype(float) for r in (0.1, 0.3))
    np.testing.assert_allclose(
        seen.gradients[x], 2 * SEED[:, None] * (near[..., None] * apart).sum(1), rtol=1e-4, atol=1e-5
    )


def test_an_order_of_boxes_that_is_another_is_said_and_accuses_nobody(k: Any) -> None:
    wp, rng = k.wp, np.random.default_rng(2)
    middles = rng.uniform(-1, 1, (20, 3)).astype(np.float32)
    bvh = wp.Bvh(vectors(k, middles - 0.1), vectors(k, middles + 0.1))
    at, x = vectors(k, middles), vectors(k, X)
    out = wp.zeros(len(X), dtype=wp.vec3, requires_grad=True)
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(k.first_boxes, len(X), [bvh.id, x, at], [out])
        tape.backward(grads={out: wp.array(np.ones_like(X), dtype=wp.vec3)})
    row = seen.compare()["at"]
    assert row.verdict == "unverified" and "another order" in row.cause, row.texts()


def test_of_faces_that_are_as_close_another_may_be_taken_and_nobody_is_accused(k: Any) -> None:
    wp, rng = k.wp, np.random.default_rng(4)
    corners = np.repeat(POINTS[rng.integers(0, len(POINTS), 30)], 1, 0) * np.float32(2.0)  # nearest to a corner of many
    x, y = vectors(k, corners), floats(k, len(corners))
    face, mesh = wp.zeros(len(corners), dtype=int), mesh_of(k, grad=False)
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(k.distances, len(corners), [mesh.id, x, y, face])
        tape.backward(grads={y: wp.array(np.ones(len(corners), np.float32), dtype=float)})
    no_opaque(seen)
    row = seen.compare()["x"]
    assert row.verdict in ("agrees", "unverified"), row.texts()
    if row.verdict == "unverified":
        assert row.cause.startswith("kink: ")
