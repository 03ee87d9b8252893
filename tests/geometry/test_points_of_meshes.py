"""Closest and furthest points of meshes: what looking at every face finds, with the sign of the side."""

import numpy as np
import pytest
from geometry.meshes import closest_weights, distances, soup, sphere

import workbench as wb
from tests.support.backends import BACKENDS


@wb.kernel
def closest(mesh: wb.uint64, x: wb.array[wb.vec3], reach: float, face: wb.array[int], at: wb.array[wb.vec3]):
    i = wb.tid()
    q = wb.mesh_query_point_no_sign(mesh, x[i], reach)
    face[i] = -1
    if q.result:
        face[i] = q.face
        at[i] = wb.mesh_eval_position(mesh, q.face, q.u, q.v)


@wb.kernel
def furthest(mesh: wb.uint64, x: wb.array[wb.vec3], least: float, face: wb.array[int], at: wb.array[wb.vec3]):
    i = wb.tid()
    q = wb.mesh_query_furthest_point_no_sign(mesh, x[i], least)
    face[i] = -1
    if q.result:
        face[i] = q.face
        at[i] = wb.mesh_eval_position(mesh, q.face, q.u, q.v)


@wb.kernel
def signs(mesh: wb.uint64, x: wb.array[wb.vec3], out: wb.array2d[float]):
    i = wb.tid()
    out[i, 0] = wb.mesh_query_point(mesh, x[i], 10.0).sign
    out[i, 1] = wb.mesh_query_point_sign_normal(mesh, x[i], 10.0).sign
    out[i, 2] = wb.mesh_query_point_sign_winding_number(mesh, x[i], 10.0).sign
    out[i, 3] = wb.mesh_query_point_sign_parity(mesh, x[i], 10.0, 3).sign
    out[i, 4] = wb.mesh_query_point_no_sign(mesh, x[i], 10.0).sign


def mesh_of(points, faces, **options):
    points = np.asarray(points, np.float32)
    return wb.Mesh(wb.array(points, dtype=wb.vec3), wb.array(np.ravel(faces), dtype=int), **options)


def asked(kernel, mesh, x, reach):
    n = len(x)
    face, at = wb.zeros(n, dtype=int), wb.zeros(n, dtype=wb.vec3)
    wb.launch(kernel, n, [mesh.id, wb.array(x, dtype=wb.vec3), reach, face, at])
    return face.numpy(), at.numpy()


FLAT = [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
MESHES = {
    "sphere": sphere(8),
    "soup": soup(60),
    "large triangles": soup(9, 1, 3.0),
    "one": (FLAT, [[0, 1, 2]]),
    "the same five times": (FLAT, [[0, 1, 2]] * 5),
    "without area": ([[0, 0, 0], [1, 0, 0], [2, 0, 0], [1, 0, 0]], [[0, 1, 2], [3, 1, 0], [0, 2, 1], [1, 1, 1]]),
    "slivers": ([[0, 0, 0], [1, 0, 0], [0.5, 1e-6, 0], [0.5, 0, 1e-4]], [[0, 1, 2], [0, 1, 3]]),
    "far from 0": (sphere(5)[0] * 0.1 + np.float32([100, -50, 20]), sphere(5)[1]),
}


def points_around(points, faces, n=60):
    """Points near and far, and the corners and middles of edges and faces themselves."""
    rng = np.random.default_rng(3)
    corners = np.asarray(points, np.float32)[np.asarray(faces)]
    middle, size = corners.mean((0, 1)), np.ptp(corners.reshape(-1, 3), axis=0).max()
    own = [corners[:, 0], corners.mean(1), (corners[:, 0] + corners[:, 1]) / 2]
    clouds = [middle + rng.normal(size=(n, 3)) * size * s for s in (0.2, 1, 10)]
    return np.concatenate([*(o[:10] for o in own), *clouds]).astype(np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MESHES)
def test_the_closest_point_is_that_of_all_faces(name, backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    points, faces = (np.asarray(a) for a in MESHES[name])
    x = points_around(points, faces)[:: 3 if backend == "c" else 15]
    face, at = asked(closest, mesh_of(points, faces), x, 1e6)
    scale = float(abs(points).max())
    for k, p in enumerate(x):
        every = distances(points, faces, p)
        found = np.linalg.norm(at[k] - p.astype(float))
        assert found == pytest.approx(every.min(), rel=1e-5, abs=3e-6 * scale)
        assert every[face[k]] == pytest.approx(every.min(), rel=1e-5, abs=3e-6 * scale)
    assert (asked(closest, mesh_of(points, faces), x + np.float32(1000), 1.0)[0] == -1).all()


@pytest.mark.parametrize("size", [1, 2, 7])
def test_any_number_of_faces_in_a_leaf_gives_the_same(size):
    points, faces = soup(50, 4)
    x = points_around(points, faces)
    for n in (1, 2, 3, 5, 17, 33, 50):
        several = asked(closest, mesh_of(points, faces[:n], bvh_leaf_size=size), x, 1e6)[1]
        one = asked(closest, mesh_of(points, faces[:n], bvh_leaf_size=64), x, 1e6)[1]
        np.testing.assert_allclose(*(np.linalg.norm(a - x, axis=1) for a in (several, one)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sphere", "soup", "one", "without area"])
def test_the_furthest_point_is_that_of_all_faces(name):
    points, faces = (np.asarray(a, dtype) for a, dtype in zip(MESHES[name], (np.float32, int), strict=True))
    x = points_around(points, faces)
    face, at = asked(furthest, mesh_of(points, faces), x, 0.0)
    every = np.linalg.norm(points[faces][None].astype(float) - x[:, None, None], axis=3).max(2)
    np.testing.assert_allclose(np.linalg.norm(at - x, axis=1), every.max(1), rtol=1e-5)
    np.testing.assert_allclose(every[np.arange(len(x)), face], every.max(1), rtol=1e-5)
    assert (asked(furthest, mesh_of(points, faces), x, 1e4)[0] == -1).all()


def test_only_what_is_closer_than_the_limit_is_found():
    mesh = mesh_of(*MESHES["one"])
    x = np.float32([[0.25, 0.25, 2.0]])
    assert asked(closest, mesh, x, 2.0)[0].tolist() == [-1]
    assert asked(closest, mesh, x, 2.0001)[0].tolist() == [0]


def test_a_mesh_without_faces_and_the_number_0_find_nothing():
    x = np.zeros((2, 3), np.float32)
    for number in (mesh_of(np.zeros((0, 3)), []), mesh_of(np.zeros((5, 3)), [])):
        assert asked(closest, number, x, 1e6)[0].tolist() == [-1, -1]
        assert asked(furthest, number, x, 0.0)[0].tolist() == [-1, -1]
    face, at = wb.zeros(2, dtype=int), wb.zeros(2, dtype=wb.vec3)
    wb.launch(closest, 2, [0, wb.zeros(2, dtype=wb.vec3), 1.0, face, at])
    assert face.numpy().tolist() == [-1, -1]


def test_points_and_faces_that_are_no_numbers_hide_nothing():
    points, faces = soup(20, 5)
    points[7] = np.nan
    x = points_around(soup(20, 5)[0], faces)
    face, _ = asked(closest, mesh_of(points, faces), x, 1e6)
    rest = [f for f in range(20) if 7 not in faces[f]]
    for k in range(0, len(x), 10):
        every = distances(points, faces[rest], x[k])
        assert distances(points, faces[[face[k]]], x[k])[0] == pytest.approx(every.min(), rel=1e-5, abs=1e-6)
    assert asked(closest, mesh_of(*soup(20, 5)), np.full((1, 3), np.nan, np.float32), 1e6)[0].tolist() == [-1]


# ---- inside or outside


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_signs_tell_inside_from_outside_of_a_closed_mesh(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    points, faces = sphere(8)
    mesh = mesh_of(points, faces, support_winding_number=True)
    rng = np.random.default_rng(0)
    n = 300 if backend == "c" else 8
    on = points[faces[rng.integers(0, len(faces), n)]]
    on = np.einsum("nk,nkj->nj", rng.dirichlet([1, 1, 1], n), on)
    x = np.concatenate([0.9 * on, 1.1 * on])
    out = wb.zeros((2 * n, 5))
    wb.launch(signs, 2 * n, [mesh.id, wb.array(x, dtype=wb.vec3), out])
    expected = np.repeat([-1.0, 1.0], n)[:, None].repeat(4, 1)
    np.testing.assert_array_equal(out.numpy()[:, :4], expected)
    assert not out.numpy()[:, 4].any()


def test_the_normal_s_sign_is_right_where_edges_and_corners_are_closest():
    # Around a corner where the normal of the closest single face may point to the wrong side.
    points = np.float32([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 8]])
    faces = [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]]
    rng = np.random.default_rng(1)
    x = rng.uniform(-0.5, 1.0, (400, 3)) * [1, 1, 8]
    inside = (x > 0).all(1) & (x[:, 0] + x[:, 1] + x[:, 2] / 8 < 1)
    mesh = mesh_of(points, faces, support_winding_number=True)
    out = wb.zeros((400, 5))
    wb.launch(signs, 400, [mesh.id, wb.array(x, dtype=wb.vec3), out])
    assert inside.sum() > 10
    for k in range(4):
        np.testing.assert_array_equal(out.numpy()[:, k] < 0, inside)


def test_winding_numbers_close_holes_and_are_asked_for_when_a_mesh_is_made():
    points, faces = sphere(16, 0.0)
    holed = faces[np.arange(len(faces)) % 9 != 0]
    x = np.concatenate([points * 0.7, points * 1.4])
    out = wb.zeros((len(x), 5))
    arguments = [wb.array(x, dtype=wb.vec3), out]
    mesh = mesh_of(points, holed, support_winding_number=True)
    wb.launch(signs, len(x), [mesh.id, *arguments])
    np.testing.assert_array_equal(out.numpy()[:, 2], np.repeat([-1.0, 1.0], len(points)))
    mesh = mesh_of(points, holed)
    with pytest.raises(wb.LaunchError, match=r"not built for winding numbers(.|\n)*support_winding_number=True"):
        wb.launch(signs, len(x), [mesh.id, *arguments])


# ---- the older form, parts, and errors


def test_results_go_into_names_as_in_older_programs():
    @wb.kernel
    def kernel(mesh: wb.uint64, p: wb.vec3, out: wb.array[float]):
        inside = 0.0
        face = 0
        u = 0.0
        v = 0.0
        if wb.mesh_query_point(mesh, p, 10.0, inside, face, u, v):
            out[0] = inside
            out[1] = float(face)
            out[2] = u
            out[3] = v
        if wb.mesh_query_point_sign_normal(mesh, p, 10.0, inside, face, u, v):
            out[4] = u
        if wb.mesh_query_point_no_sign(mesh, p, 10.0, face, u, v):
            out[5] = v

    out = wb.zeros(6)
    mesh = mesh_of(FLAT, [[0, 1, 2]])
    wb.launch(kernel, 1, [mesh.id, wb.vec3(0.25, 0.5, 1.0), out])
    np.testing.assert_allclose(out.numpy(), [1, 0, 0.25, 0.25, 0.25, 0.25], rtol=1e-6)

    @wb.kernel
    def wrong(mesh: wb.uint64, p: wb.vec3, out: wb.array[float]):
        if wb.mesh_query_point_no_sign(mesh, p, 10.0, 0, out[0], out[1]):
            out[2] = 1.0

    with pytest.raises(wb.KernelError, match=r"gives something back here(.|\n)*name of a local"):
        wrong.ir  # noqa: B018


def test_refit_follows_the_points_and_a_new_array_of_points_is_taken():
    points, faces = sphere(6)
    mesh = mesh_of(points, faces)
    x = points_around(points, faces)
    mesh.points.assign(points + np.float32([5, 0, 0]))
    mesh.refit()
    expected = asked(closest, mesh_of(points + np.float32([5, 0, 0]), faces), x, 1e6)[1]
    np.testing.assert_allclose(asked(closest, mesh, x, 1e6)[1], expected, atol=1e-5)
    mesh.points = wb.array(points - np.float32([5, 0, 0]), dtype=wb.vec3)
    expected = asked(closest, mesh_of(points - np.float32([5, 0, 0]), faces), x, 1e6)[1]
    np.testing.assert_allclose(asked(closest, mesh, x, 1e6)[1], expected, atol=1e-5)


def test_meshes_that_cannot_be_are_refused():
    points, indices = wb.zeros(3, dtype=wb.vec3), wb.array([0, 1, 2], dtype=int)
    for bad, text in [
        ((wb.zeros(3), indices), "array of vec3 as points"),
        ((points, wb.zeros(3)), "array of int32 as indices"),
        ((points, wb.array([0, 1], dtype=int)), "Mesh of 2 indices"),
        ((points, wb.array([0, 1, 3], dtype=int)), "names point 3 of 3"),
        ((points, wb.array([0, -1, 2], dtype=int)), "names point -1 of 3"),
    ]:
        with pytest.raises(wb.LaunchError, match=text):
            wb.Mesh(*bad)
    mesh = wb.Mesh(points, indices)
    with pytest.raises(wb.LaunchError, match="2 points for a Mesh of 3"):
        mesh.points = wb.zeros(2, dtype=wb.vec3)
    with wb.capture(), pytest.raises(wb.LaunchError, match=r"built inside wb.capture\(\)"):
        mesh.rebuild()

    @wb.kernel
    def speed(mesh: wb.uint64, out: wb.array[wb.vec3]):
        out[0] = wb.mesh_eval_velocity(mesh, 0, 0.5, 0.5)

    with pytest.raises(wb.LaunchError, match=r"no velocities(.|\n)*\[velocities\]"):
        wb.launch(speed, 1, [mesh.id, wb.zeros(1, dtype=wb.vec3)])
    grid = wb.HashGrid(1, 1, 1)
    with pytest.raises(wb.LaunchError, match=r"takes a Mesh, got the number of a HashGrid"):
        wb.launch(speed, 1, [grid.id, wb.zeros(1, dtype=wb.vec3)])


def test_the_reference_of_these_tests_is_right():
    a, b, c = np.eye(3)
    np.testing.assert_allclose(closest_weights(a, b, c, [1, 1, 1]), [1 / 3] * 3)
    np.testing.assert_allclose(closest_weights(a, b, c, [9, 0, 0]), [1, 0, 0])
    np.testing.assert_allclose(closest_weights(a, b, c, [2, 2, -9]), [0.5, 0.5, 0])


def test_names_that_get_results_stay_as_they_are_where_there_is_none():
    @wb.kernel
    def miss(mesh: wb.uint64, out: wb.array[float]):
        t, u, v, sign, normal, face = 7.0, 7.0, 7.0, 7.0, wb.vec3(7.0, 7.0, 7.0), 7
        up = wb.vec3(0.0, 0.0, 1.0)
        if not wb.mesh_query_ray(mesh, up, up, 9.0, t, u, v, sign, normal, face):
            out[0] = t + u + v + sign + normal[0] + float(face)
        if not wb.mesh_query_point_no_sign(mesh, up, 0.5, face, u, v):
            out[1] = u + v + float(face)

    mesh = wb.Mesh(wb.array(np.eye(3) - np.eye(3)[2], dtype=wb.vec3), wb.array([0, 1, 2], dtype=int))
    out = wb.zeros(2)
    wb.launch(miss, 1, [mesh.id, out])
    assert out.numpy().tolist() == [42, 21]
