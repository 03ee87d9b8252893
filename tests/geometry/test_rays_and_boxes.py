"""What rays hit, and what overlaps boxes, balls and rays: as looking at everything finds it."""

import numpy as np
import pytest
from geometry.meshes import distances, ray_hit, soup, sphere

import workbench as wb
from tests.support.backends import BACKENDS


@wb.kernel
def rays(
    mesh: wb.uint64,
    start: wb.array[wb.vec3],
    dir: wb.array[wb.vec3],
    far: float,
    hit: wb.array[bool],
    out: wb.array2d[float],
    normal: wb.array[wb.vec3],
    any: wb.array[bool],
    count: wb.array[int],
):
    i = wb.tid()
    q = wb.mesh_query_ray(mesh, start[i], dir[i], far)
    hit[i] = q.result
    out[i, 0] = float(q.face)
    out[i, 1] = q.t
    out[i, 2] = q.u
    out[i, 3] = q.v
    out[i, 4] = q.sign
    normal[i] = q.normal
    any[i] = wb.mesh_query_ray_anyhit(mesh, start[i], dir[i], far)
    count[i] = wb.mesh_query_ray_count_intersections(mesh, start[i], dir[i])


def mesh_of(points, faces, **options):
    return wb.Mesh(wb.array(points, dtype=wb.vec3), wb.array(np.ravel(faces), dtype=int), **options)


def cast(mesh, start, dir, far=1e6):
    n = len(start)
    out, normal = wb.zeros((n, 5)), wb.zeros(n, dtype=wb.vec3)
    hit, any_, count = wb.zeros(n, dtype=bool), wb.zeros(n, dtype=bool), wb.zeros(n, dtype=int)
    start, dir = wb.array(start, dtype=wb.vec3), wb.array(dir, dtype=wb.vec3)
    wb.launch(rays, n, [mesh.id, start, dir, far, hit, out, normal, any_, count])
    return hit.numpy(), out.numpy(), normal.numpy(), any_.numpy(), count.numpy()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("points, faces", [sphere(6), soup(40, 2)], ids=["sphere", "soup"])
def test_a_ray_hits_what_is_first_of_all_faces(points, faces, backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    rng = np.random.default_rng(0)
    n = 150 if backend == "c" else 15
    start, dir = rng.normal(size=(n, 3)).astype(np.float32), rng.normal(size=(n, 3)).astype(np.float32)
    dir[: n // 5, rng.integers(0, 3)] = 0.0
    hit, out, normal, any_, count = cast(mesh_of(points, faces), start, dir)
    corners = points[faces].astype(float)
    clear = 0
    for k in range(n):
        met = [(f, m) for f, c in enumerate(corners) if (m := ray_hit(*c, start[k], dir[k])) is not None]
        if any(abs(m[1]).min() < 1e-4 or abs(m[0]) < 1e-4 for _, m in met if m[1].min() > -1e-4):
            continue  # at an edge or at the start: either may be right in float32
        met = sorted([(m[0], f, m[1]) for f, m in met if m[1].min() > 0 and m[0] > 0])
        clear += 1
        assert hit[k] == any_[k] == bool(met) and count[k] == len(met)
        if not met:
            assert not out[k].any() and not normal[k].any()
            continue
        t, f, weights = met[0]
        cross = np.cross(corners[f][1] - corners[f][0], corners[f][2] - corners[f][0])
        assert out[k, 0] == f and out[k, 1] == pytest.approx(t, rel=1e-4, abs=1e-6)
        np.testing.assert_allclose(out[k, 2:4], weights[:2], atol=1e-3)
        np.testing.assert_allclose(normal[k], cross / np.linalg.norm(cross), atol=1e-5)
        assert out[k, 4] == -np.sign(cross @ dir[k])
    assert clear > n / 2


def test_no_ray_slips_through_edges_and_corners_of_a_closed_mesh():
    points, faces = sphere(16)
    corners = points[faces]
    targets = np.concatenate([points, *(corners[:, [0, 1, 2]] + corners[:, [1, 2, 0]])[:, :3].swapaxes(0, 1) / 2])
    rng = np.random.default_rng(0)
    weights = rng.uniform(size=(len(targets), 1)).astype(np.float32)
    for start in (np.zeros(3, np.float32), np.float32([0.2, -0.1, 0.3])):
        starts = np.broadcast_to(start, targets.shape)
        for dir in (targets - starts, (targets - starts) * weights):
            hit, out, _, any_, count = cast(mesh_of(points, faces), starts, dir)
            assert hit.all() and any_.all() and (count > 0).all()
            assert (out[:, 4] == -1).all()


def test_rays_along_axes_through_a_grid_of_squares_hit_the_plane():
    n = 9
    xx, yy = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    points = np.stack([xx, yy, 0 * xx], -1).reshape(-1, 3)
    a = (np.arange(n - 1)[:, None] * n + np.arange(n - 1)).ravel()
    faces = np.concatenate([np.stack([a, a + n, a + 1], -1), np.stack([a + 1, a + n, a + n + 1], -1)])
    start = np.concatenate([points, points + [0, 0.5, 0], points + [0.25, 0.25, 0]]) + [0, 0, 3]
    on = (start[:, :2] <= n - 1).all(1)
    hit, out, *_ = cast(mesh_of(points, faces), start, np.tile([0.0, 0.0, -1.0], (len(start), 1)))
    np.testing.assert_array_equal(hit, on)
    np.testing.assert_allclose(out[on, 1], 3.0, rtol=1e-6)
    hit, *_ = cast(mesh_of(points, faces), points + [-20, 0.3, 0], np.tile([1.0, 0.0, 0.0], (len(points), 1)))
    assert not hit.any()  # in the plane of the faces


def test_a_ray_ends_at_its_limit_and_sees_nothing_behind():
    mesh = mesh_of([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
    start = [[0.2, 0.2, 2.0]] * 4
    dir = [[0, 0, -1], [0, 0, -4], [0, 0, 1], [0, 0, -1.0]]
    assert cast(mesh, start, dir, 1.5)[0].tolist() == [False, True, False, False]
    assert cast(mesh, start, dir, 1.5)[3].tolist() == [False, True, False, False]
    assert cast(mesh, start, dir, 2.0)[0].tolist() == [False, True, False, False]  # before the limit, not at it
    assert cast(mesh, start, dir, 2.001)[0].tolist() == [True, True, False, True]
    assert cast(mesh, [[0, 0, 0]], [[0, 0, 0]])[0].tolist() == [False]  # no direction
    assert cast(mesh_of(np.zeros((1, 3)), []), start, dir)[4].tolist() == [0, 0, 0, 0]


# ---- boxes


@wb.kernel
def overlapping(bvh: wb.uint64, kind: int, a: wb.array[wb.vec3], b: wb.array[wb.vec3], r: float, out: wb.array2d[int]):
    i = wb.tid()
    if kind == 0:
        for k in wb.bvh_query_aabb(bvh, a[i], b[i]):
            out[i, k] += 1
    elif kind == 1:
        for k in wb.bvh_query_ray(bvh, a[i], b[i]):
            out[i, k] += 1
    elif kind == 2:
        for k in wb.bvh_query_sphere(bvh, a[i], r):
            out[i, k] += 1
    else:
        query = wb.bvh_query_capsule(bvh, a[i], b[i], r)
        k = -1
        while wb.bvh_query_next(query, k, 2.0):
            out[i, k] += 1


def expected_boxes(kind, low, high, a, b, r):
    """Which boxes a query gives, in float64."""
    low, high, a, b = (np.asarray(x, float)[None] if x.ndim == 1 else np.asarray(x, float) for x in (low, high, a, b))
    if kind == 0:
        return (low <= b).all(1) & (high >= a).all(1)
    if kind == 2:
        return (np.maximum(np.maximum(low - a, a - high), 0) ** 2).sum(1) <= r * r
    grow, far = (r, 2.0) if kind == 3 else (0.0, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.stack([low - grow - a, high + grow - a]) / b
    t0, t1 = np.nanmin(t, 0).max(1), np.nanmax(t, 0).min(1)
    return (t1 >= np.maximum(t0, 0)) & (t0 <= far)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [0, 1, 5, 64, 200])
@pytest.mark.parametrize("kind", range(4))
def test_a_query_of_a_tree_gives_all_that_overlap_each_once(kind, n, backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    rng = np.random.default_rng(n)
    low = rng.uniform(-2, 2, (n, 3)).astype(np.float32)
    high = (low + rng.uniform(0, 0.7, (n, 3))).astype(np.float32)
    m = 40 if backend == "c" else 4
    a, b = rng.uniform(-2, 2, (m, 3)).astype(np.float32), rng.normal(size=(m, 3)).astype(np.float32)
    b = a + abs(b) if kind == 0 else b
    bvh = wb.Bvh(wb.array(low, dtype=wb.vec3), wb.array(high, dtype=wb.vec3), leaf_size=1 + n % 4)
    out = wb.zeros((m, max(n, 1)), dtype=int)
    arrays = [wb.array(x, dtype=wb.vec3) for x in (a, b)]
    wb.launch(overlapping, m, [bvh.id, kind, *arrays, 0.4, out])
    for k in range(m):
        np.testing.assert_array_equal(out.numpy()[k, :n], expected_boxes(kind, low, high, a[k], b[k], 0.4))


def test_touching_is_overlapping():
    bvh = wb.Bvh(wb.zeros(1, dtype=wb.vec3), wb.ones(1, dtype=wb.vec3))
    for kind, a, b in [(0, [1, 1, 1], [2, 2, 2]), (1, [1, 0, -3], [0, 0, 1]), (2, [1.5, 0.5, 0.5], [0, 0, 0])]:
        out = wb.zeros((1, 1), dtype=int)
        arrays = [wb.array([x], dtype=wb.vec3) for x in (a, b)]
        wb.launch(overlapping, 1, [bvh.id, kind, *arrays, 0.5, out])
        assert out.numpy().tolist() == [[1]], kind


def test_a_tree_is_fitted_or_built_again_to_boxes_that_moved():
    rng = np.random.default_rng(0)
    low = rng.uniform(-2, 2, (50, 3)).astype(np.float32)
    lowers, uppers = wb.array(low, dtype=wb.vec3), wb.array(low + np.float32(0.3), dtype=wb.vec3)
    bvh = wb.Bvh(lowers, uppers)
    a, b = wb.array(low[:5], dtype=wb.vec3), wb.array(low[:5] + 1, dtype=wb.vec3)
    for again in (bvh.refit, bvh.rebuild):
        moved = rng.uniform(-2, 2, (50, 3)).astype(np.float32)
        lowers.assign(moved)
        uppers.assign(moved + np.float32(0.3))
        again()
        out = wb.zeros((5, 50), dtype=int)
        wb.launch(overlapping, 5, [bvh.id, 0, a, b, 0.0, out])
        for k in range(5):
            expected = expected_boxes(0, moved, moved + np.float32(0.3), low[k], low[k] + 1, 0)
            np.testing.assert_array_equal(out.numpy()[k], expected)


@wb.kernel
def faces_near(mesh: wb.uint64, x: wb.array[wb.vec3], r: float, boxes: wb.array2d[int], balls: wb.array2d[int]):
    i = wb.tid()
    size = wb.vec3(r, r, r)
    face = 0
    query = wb.mesh_query_aabb(mesh, x[i] - size, x[i] + size)
    while wb.mesh_query_aabb_next(query, face):
        boxes[i, face] += 1
    for f in wb.mesh_query_sphere(mesh, x[i], r):
        balls[i, f] += 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_queries_of_a_mesh_give_the_faces_that_overlap(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    points, faces = soup(30, 7)
    x = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    boxes, balls = wb.zeros((12, 30), dtype=int), wb.zeros((12, 30), dtype=int)
    mesh = mesh_of(points, faces)
    wb.launch(faces_near, 12, [mesh.id, wb.array(x, dtype=wb.vec3), 0.5, boxes, balls])
    corners = points[faces]
    for k in range(12):
        expected = expected_boxes(0, corners.min(1), corners.max(1), x[k] - np.float32(0.5), x[k] + np.float32(0.5), 0)
        np.testing.assert_array_equal(boxes.numpy()[k], expected)
        np.testing.assert_array_equal(balls.numpy()[k], distances(points, faces, x[k]) <= 0.5)


@wb.kernel
def of_a_group(bvh: wb.uint64, mesh: wb.uint64, group: wb.array[int], out: wb.array2d[int], hit: wb.array[int]):
    i = wb.tid()
    root = wb.bvh_get_group_root(bvh, group[i])
    k = 0
    n = 0
    query = wb.bvh_query_aabb(bvh, wb.vec3(-9.0, -9.0, -9.0), wb.vec3(0.5, 9.0, 9.0), root)
    while n < 100 and wb.bvh_query_next(query, k):
        out[i, k] += 1
        n += 1
    at = wb.mesh_get_group_root(mesh, group[i])
    q = wb.mesh_query_ray(mesh, wb.vec3(0.2, 0.2, 90.0), wb.vec3(0.0, 0.0, -1.0), 1e3, at)
    hit[i] = wb.where(q.result, q.face, -1)
    layers = wb.mesh_query_ray_count_intersections(mesh, wb.vec3(0.2, 0.2, 90.0), wb.vec3(0.0, 0.0, -1.0), at)
    out[i, 70] = layers


def test_a_query_of_a_group_finds_that_alone():
    rng = np.random.default_rng(0)
    low = rng.uniform(-1, 1, (70, 3)).astype(np.float32)
    groups = rng.choice([-5, 0, 3, 2**30], 70).astype(np.int32)
    corners, ints = wb.array(low, dtype=wb.vec3), wb.array(groups, dtype=int)
    points = np.float32([[0, 0, 0], [1, 0, 0], [0, 1, 0]])[None] + np.arange(70)[:, None, None] * np.float32([0, 0, 1])
    faces = wb.array(np.arange(210), dtype=int)
    for size in (1, 4):
        bvh = wb.Bvh(corners, corners, groups=ints, leaf_size=size)
        mesh = wb.Mesh(wb.array(points.reshape(-1, 3), dtype=wb.vec3), faces, groups=ints, bvh_leaf_size=size)
        asked = [-5, 0, 3, 2**30, 7]
        out, hit = wb.zeros((5, 71), dtype=int), wb.zeros(5, dtype=int)
        wb.launch(of_a_group, 5, [bvh.id, mesh.id, wb.array(asked, dtype=int), out, hit])
        for k, group in enumerate(asked):
            own = groups == group
            np.testing.assert_array_equal(out.numpy()[k, :70], own & (low[:, 0] <= 0.5))
            assert hit.numpy()[k] == max(np.flatnonzero(own), default=-1) and out.numpy()[k, 70] == own.sum()
    with pytest.raises(wb.LaunchError, match="70 groups for 3 items"):
        wb.Bvh(wb.zeros(3, dtype=wb.vec3), wb.zeros(3, dtype=wb.vec3), groups=ints)


def test_groups_that_nobody_asks_for_cost_a_kernel_nothing():
    assert not [p.name for p in rays.program().function.params if "spans" in p.name or "ranks" in p.name]


def test_trees_that_cannot_be_are_refused():
    corners = wb.zeros(3, dtype=wb.vec3)
    with pytest.raises(wb.LaunchError, match="array of vec3 as uppers"):
        wb.Bvh(corners, wb.zeros(3))
    with pytest.raises(wb.LaunchError, match="3 lower and 2 upper corners"):
        wb.Bvh(corners, wb.zeros(2, dtype=wb.vec3))
    with pytest.raises(AttributeError, match="no 'lower'"):
        wb.Bvh(corners, corners).lower  # noqa: B018
