"""Random meshes, boxes and points, some faces degenerate, of three sizes: queries find what looking at all finds."""

import numpy as np
import pytest
from geometry.meshes import closest_weights, soup, sphere
from geometry.test_gradients_of_meshes import differences

import workbench as wb

SIZES = [1e-6, 1.0, 1e6]


@wb.kernel
def ask_points(mesh: wb.uint64, x: wb.array[wb.vec3], reach: float, at: wb.array2d[wb.vec3], face: wb.array2d[int]):
    i = wb.tid()
    q = wb.mesh_query_point_no_sign(mesh, x[i], reach)
    p = wb.mesh_query_point(mesh, x[i], reach)
    n = wb.mesh_query_point_sign_normal(mesh, x[i], reach)
    f = wb.mesh_query_furthest_point_no_sign(mesh, x[i], 0.0)
    for k in range(4):
        face[i, k] = -1
    if q.result:
        at[i, 0], face[i, 0] = wb.mesh_eval_position(mesh, q.face, q.u, q.v), q.face
    if p.result:
        at[i, 1], face[i, 1] = wb.mesh_eval_position(mesh, p.face, p.u, p.v), p.face
    if n.result:
        at[i, 2], face[i, 2] = wb.mesh_eval_position(mesh, n.face, n.u, n.v), n.face
    if f.result:
        at[i, 3], face[i, 3] = wb.mesh_eval_position(mesh, f.face, f.u, f.v), f.face


@wb.kernel
def ask_rays(
    mesh: wb.uint64,
    start: wb.array[wb.vec3],
    dir: wb.array[wb.vec3],
    reach: float,
    t: wb.array[float],
    found: wb.array2d[int],
):
    i = wb.tid()
    q = wb.mesh_query_ray(mesh, start[i], dir[i], reach)
    t[i] = q.t
    found[i, 0] = wb.where(q.result, q.face, -1)
    found[i, 1] = wb.where(wb.mesh_query_ray_anyhit(mesh, start[i], dir[i], reach), 1, 0)
    found[i, 2] = wb.mesh_query_ray_count_intersections(mesh, start[i], dir[i])


@wb.kernel
def ask_boxes(
    mesh: wb.uint64, bvh: wb.uint64, x: wb.array[wb.vec3], y: wb.array[wb.vec3], r: float, hits: wb.array3d[int]
):
    i = wb.tid()
    for f in wb.mesh_query_aabb(mesh, x[i], y[i]):
        hits[i, f, 0] += 1
    for f in wb.mesh_query_sphere(mesh, x[i], r):
        hits[i, f, 1] += 1
    for k in wb.bvh_query_aabb(bvh, x[i], y[i]):
        hits[i, k, 2] += 1
    for k in wb.bvh_query_sphere(bvh, x[i], r):
        hits[i, k, 3] += 1
    for k in wb.bvh_query_ray(bvh, x[i], y[i] - x[i]):
        hits[i, k, 4] += 1


def corners_distance(tri, p):
    """Distances of points (n, 3) to triangles (m, 3, 3), (n, m), and to their furthest corner."""
    p = p[:, None]
    a, b, c = tri[:, 0], tri[:, 1], tri[:, 2]
    best = np.full((len(p), len(tri)), np.inf)
    for x, y in ((a, b), (a, c), (b, c)):
        d = y - x
        size = (d**2).sum(-1)
        t = np.clip(((p - x) * d).sum(-1) / np.where(size > 0, size, 1), 0, 1)
        best = np.minimum(best, np.linalg.norm(x + t[..., None] * d - p, axis=-1))
    n = np.cross(b - a, c - a)
    nn = (n**2).sum(-1)
    flat = nn > 1e-14 * ((b - a) ** 2).sum(-1) * ((c - a) ** 2).sum(-1)
    safe = np.where(flat, nn, 1)
    v = (np.cross(p - a, c - a) * n).sum(-1) / safe
    w = (np.cross(b - a, p - a) * n).sum(-1) / safe
    inside = flat & (v >= 0) & (w >= 0) & (v + w <= 1)
    best = np.where(inside, np.abs(((p - a) * n).sum(-1)) / np.sqrt(safe), best)
    return best, np.linalg.norm(tri - p[:, :, None], axis=-1).max(-1)


def shapes(size, seed):
    """A closed surface, a soup with degenerate and doubled faces, one sliver, and nothing but a point."""
    points, faces = soup(60, seed)
    faces = faces.copy()
    faces[5, 2] = faces[5, 1]  # an edge
    faces[6] = faces[6, 0]  # a point
    faces[7] = faces[8]  # twice the same
    points[faces[9, 2]] = (points[faces[9, 0]] + points[faces[9, 1]]) / 2  # on a line
    sliver = np.float32([[0, 0, 0], [1, 0, 0], [2, 1e-5, 0]])
    made = [sphere(7), (points, faces), (sliver, np.int32([[0, 1, 2]])), (np.zeros((1, 3)), np.int32([[0, 0, 0]]))]
    return [((np.asarray(p) * size).astype(np.float32), f) for p, f in made]


def places(points, faces, rng, size):
    """Around, far away, on points, on edges, in the middle of faces, a little beside these."""
    tri = points[faces]
    some = tri[rng.integers(0, len(tri), 12)]
    return np.concatenate(
        [
            rng.normal(size=(30, 3)) * size,
            rng.normal(size=(6, 3)) * size * 1e3,
            points[rng.integers(0, len(points), 8)],
            some[:, :2].mean(1),
            some.mean(1),
            some.mean(1) + rng.normal(size=(12, 3)) * size * 1e-3,
        ]
    ).astype(np.float32)


def mesh_of(points, faces, **options):
    return wb.Mesh(wb.array(points, dtype=wb.vec3, **options), wb.array(faces.ravel(), dtype=int))


@pytest.mark.parametrize("size", SIZES)
def test_closest_and_furthest_points(size):
    rng = np.random.default_rng(1)
    for points, faces in shapes(size, 1):
        x, mesh = places(points, faces, rng, size), mesh_of(points, faces)
        for reach in (1e5 * size, 0.3 * size, 0.0):
            at, face = wb.zeros((len(x), 4), dtype=wb.vec3), wb.zeros((len(x), 4), dtype=int)
            wb.launch(ask_points, len(x), [mesh.id, wb.array(x, dtype=wb.vec3), reach, at, face])
            near, far = corners_distance(points.astype(float)[faces], x.astype(float))
            d = np.linalg.norm(at.numpy() - x[:, None].astype(float), axis=-1)
            slack = 2e-6 * (size + abs(x).max(-1))  # float32 of the numbers themselves
            for k in range(3):
                missed = face.numpy()[:, k] < 0
                assert ((near.min(1) >= reach - slack) | ~missed).all()
                assert ((near.min(1) <= reach + slack) | missed).all()
                assert (abs(d[:, k] - near.min(1)) <= slack + 1e-4 * near.min(1))[~missed].all()
            found = face.numpy()[:, 3] >= 0
            assert (found | (far.max(1) <= slack)).all()
            assert (abs(d[:, 3] - far.max(1)) <= slack + 1e-5 * far.max(1))[found].all()


def crossings(tri, start, dir, margin):
    """t of rays and triangles (n, m), nan where they do not meet within a margin of the barycentric numbers."""
    a, e, f = tri[:, 0], tri[:, 1] - tri[:, 0], tri[:, 2] - tri[:, 0]
    h = np.cross(dir[:, None], f)
    det = (e * h).sum(-1)
    size = np.linalg.norm(e, axis=-1) * np.linalg.norm(f, axis=-1) * np.linalg.norm(dir, axis=-1)[:, None]
    ok = abs(det) > 1e-4 * size
    safe = np.where(ok, det, 1)
    s = start[:, None] - a
    u = (s * h).sum(-1) / safe
    q = np.cross(s, e)
    v = (dir[:, None] * q).sum(-1) / safe
    t = (f * q).sum(-1) / safe
    inside = ok & (u >= margin) & (v >= margin) & (u + v <= 1 - margin)
    return np.where(inside, t, np.nan), ok


@pytest.mark.parametrize("size", SIZES)
def test_rays(size):
    rng = np.random.default_rng(2)
    for points, faces in shapes(size, 2):
        x = places(points, faces, rng, size)
        target = places(points, faces, rng, size)[rng.permutation(len(x))]
        along = points[faces[:, 1]] - points[faces[:, 0]]
        start = np.concatenate([x, points[faces[:, 0]] - along])  # and along edges
        dir = np.concatenate([target - x, along])
        dir[::5] = np.eye(3)[rng.integers(0, 3, len(dir[::5]))] * size  # along axes, where boxes have sides
        keep = (abs(dir).max(1) > 0) & np.isfinite(dir).all(1)
        start, dir = start[keep].astype(np.float32), dir[keep].astype(np.float32)
        t, found = wb.zeros(len(start)), wb.zeros((len(start), 3), dtype=int)
        mesh = mesh_of(points, faces)
        arrays = [wb.array(a, dtype=wb.vec3) for a in (start, dir)]
        wb.launch(ask_rays, len(start), [mesh.id, *arrays, 1e30, t, found])
        exact = [a.astype(float) for a in (points[faces], start, dir)]
        (sure, steep), (loose, _) = crossings(*exact, 1e-3), crossings(*exact, -1e-3)
        size_of = (abs(start).max(1) + size) / np.linalg.norm(dir.astype(float), axis=1)
        slack = 1e-5 * size_of  # of t
        face, got = found.numpy()[:, 0], t.numpy().astype(float)
        hit = np.where(np.isnan(sure) | (sure < slack[:, None]), np.inf, sure).min(1)
        rows = np.arange(len(face))
        some = (face >= 0) & steep[rows, face]  # others run nearly along their face
        assert (got <= hit + 1e-2 * abs(hit) + slack)[face >= 0].all()
        assert (abs(loose[rows, face] - got) <= 1e-2 * abs(got) + 10 * slack)[some].all()
        assert ((found.numpy()[:, 1] == 1) == (face >= 0)).all()
        assert (found.numpy()[:, 2] >= (np.nan_to_num(sure, nan=-1) > slack[:, None]).sum(1)).all()
        assert ((found.numpy()[:, 2] > 0) == (face >= 0)).all()


@pytest.mark.parametrize("size", SIZES)
def test_boxes_balls_and_rays_on_boxes(size):
    rng = np.random.default_rng(3)
    for points, faces in shapes(size, 3):
        n, r = len(faces), np.float32(0.4 * size)
        x = places(points, faces, rng, size)
        y = (x + abs(rng.normal(size=x.shape)) * size * 0.4).astype(np.float32)
        y[:5] = x[:5]  # boxes without extent
        x[6:8], y[6:8] = y[6:8].copy(), x[6:8].copy()  # and from right to left: nothing, or what both ends touch
        lows, highs = points[faces].min(1), points[faces].max(1)
        mesh = mesh_of(points, faces)
        bvh = wb.Bvh(wb.array(lows, dtype=wb.vec3), wb.array(highs, dtype=wb.vec3))
        hits = wb.zeros((len(x), n, 5), dtype=int)
        arrays = [wb.array(a, dtype=wb.vec3) for a in (x, y)]
        wb.launch(ask_boxes, len(x), [mesh.id, bvh.id, *arrays, float(r), hits])
        got = hits.numpy()
        assert got.max() <= 1
        box = ((lows[None] <= y[:, None]) & (highs[None] >= x[:, None])).all(-1)
        np.testing.assert_array_equal(got[..., 0], box)
        np.testing.assert_array_equal(got[..., 2], box)
        ball = corners_distance(points.astype(float)[faces], x.astype(float))[0]
        away = np.maximum(np.maximum(lows - x[:, None].astype(float), x[:, None] - highs.astype(float)), 0)
        slack = 1e-5 * (size + abs(x).max(1))[:, None]
        for k, d in ((1, ball), (3, np.linalg.norm(away, axis=-1))):
            assert ((got[..., k] == 1) | (d > r - slack)).all() and ((got[..., k] == 0) | (d < r + slack)).all()


@wb.kernel
def everything(
    mesh: wb.uint64, x: wb.array[wb.vec3], w: wb.array[wb.vec4], which: wb.array2d[int], loss: wb.array[float]
):
    i = wb.tid()
    c = w[i]
    far = wb.mesh_query_furthest_point_no_sign(mesh, x[i], 0.0)
    which[i, 0] = far.face
    away = wb.mesh_eval_position(mesh, far.face, far.u, far.v)
    q = wb.mesh_query_point_sign_winding_number(mesh, x[i], 100.0)
    which[i, 1] = q.face
    at = wb.mesh_eval_position(mesh, q.face, q.u, q.v)
    side, face, u, v = 0.0, 0, 0.0, 0.0
    parity = wb.mesh_query_point_sign_parity(mesh, x[i], 100.0, side, face, u, v)
    which[i, 2] = face
    total = c[0] * wb.length(x[i] - away) + c[1] * q.sign * wb.length(x[i] - at)
    if parity:
        total += side * (c[2] * u + c[3] * v * v)
    for f in wb.mesh_query_sphere(mesh, x[i], 0.5):
        total += 0.1 * wb.dot(wb.mesh_eval_face_normal(mesh, f), x[i])
    wb.atomic_add(loss, 0, total)


def windings(tri, p):
    a, b, c = (tri[None, :, k] - p[:, None] for k in range(3))
    r, s, t = (np.linalg.norm(v, axis=-1) for v in (a, b, c))
    below = r * s * t + (a * b).sum(-1) * t + (b * c).sum(-1) * r + (c * a).sum(-1) * s
    return np.arctan2((a * np.cross(b, c)).sum(-1), below).sum(1) / (2 * np.pi)


def test_gradients_of_the_other_queries_by_points_and_by_the_mesh():
    rng = np.random.default_rng(4)
    points, faces = sphere(5)
    x = (points[faces].mean(1)[:20] * rng.uniform(0.6, 1.4, (20, 1)) + rng.normal(size=(20, 3)) * 0.05).astype(
        np.float32
    )
    w = rng.normal(size=(20, 4)).astype(np.float32)
    mesh = wb.Mesh(
        wb.array(points, dtype=wb.vec3, requires_grad=True),
        wb.array(faces.ravel(), dtype=int),
        support_winding_number=True,
    )
    given, which, loss = wb.array(x, dtype=wb.vec3, requires_grad=True), wb.zeros((20, 3), dtype=int), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(everything, 20, [mesh.id, given, wb.array(w, dtype=wb.vec4), which, loss])
    tape.backward(loss)
    found = which.numpy()
    sides = np.where(windings(points.astype(float)[faces], x.astype(float)) > 0.5, -1, 1)
    assert set(sides) == {-1, 1}
    balls = [np.flatnonzero(d <= 0.5) for d in corners_distance(points.astype(float)[faces], x.astype(float))[0]]
    corner = [
        faces[f[0]][np.linalg.norm(points[faces[f[0]]] - p, axis=1).argmax()] for f, p in zip(found, x, strict=True)
    ]

    def value(points, x):
        total = 0.0
        for i in range(20):
            weights = closest_weights(*points[faces[found[i, 1]]], x[i])
            at = weights @ points[faces[found[i, 1]]]
            u, v, _ = closest_weights(*points[faces[found[i, 2]]], x[i])
            total += w[i, 0] * np.linalg.norm(x[i] - points[corner[i]]) + w[i, 1] * sides[i] * np.linalg.norm(x[i] - at)
            total += sides[i] * (w[i, 2] * u + w[i, 3] * v * v)
            for f in balls[i]:
                a, b, c = points[faces[f]]
                n = np.cross(b - a, c - a)
                total += 0.1 * n @ x[i] / np.linalg.norm(n)
        return total

    p, at = points.astype(float), x.astype(float)
    assert loss.numpy()[0] == pytest.approx(value(p, at), rel=1e-4)
    for got, want in (
        (mesh.points, differences(lambda p: value(p, at), p)),
        (given, differences(lambda a: value(p, a), at)),
    ):
        np.testing.assert_allclose(got.grad.numpy(), want, rtol=2e-3, atol=2e-3 * abs(want).max())
