"""Gradients through queries of meshes, by points, rays and the points of the mesh, against float64 differences."""

import numpy as np
import pytest
from geometry.meshes import closest_weights, ray_hit, soup, sphere

import workbench as wb
from tests.support.backends import BACKENDS
from tests.support.emulated import Machine, run_cuda_texts
from workbench.kernels.ir import walk


@wb.kernel
def to_surface(mesh: wb.uint64, x: wb.array[wb.vec3], w: wb.array[wb.vec4], face: wb.array[int], loss: wb.array[float]):
    i = wb.tid()
    q = wb.mesh_query_point_no_sign(mesh, x[i], 100.0)
    if q.result:
        face[i] = q.face
        p = wb.mesh_eval_position(mesh, q.face, q.u, q.v)
        wb.atomic_add(loss, 0, w[i][0] * q.u + w[i][1] * q.v + w[i][2] * wb.length(x[i] - p) + w[i][3] * p[1])


@wb.kernel
def signed(mesh: wb.uint64, x: wb.array[wb.vec3], w: wb.array[wb.vec4], face: wb.array[int], loss: wb.array[float]):
    i = wb.tid()
    q = wb.mesh_query_point_sign_normal(mesh, x[i], 100.0)
    face[i] = q.face
    p = wb.mesh_eval_position(mesh, q.face, q.u, q.v)
    wb.atomic_add(loss, 0, w[i][0] * q.u + w[i][1] * q.v + w[i][2] * wb.length(x[i] - p) + w[i][3] * p[1])


@wb.kernel
def along_ray(
    mesh: wb.uint64,
    start: wb.array[wb.vec3],
    dir: wb.array[wb.vec3],
    w: wb.array[wb.vec4],
    face: wb.array[int],
    loss: wb.array[float],
):
    i = wb.tid()
    q = wb.mesh_query_ray(mesh, start[i], dir[i], 100.0)
    face[i] = -1
    if q.result:
        face[i] = q.face
        n = wb.dot(q.normal, wb.vec3(1.0, 2.0, 3.0))
        wb.atomic_add(loss, 0, w[i][0] * q.u + w[i][1] * q.v + w[i][2] * q.t + w[i][3] * n)


def surface_value(corners, x, w):
    weights = closest_weights(*corners, x)
    p = weights @ corners
    return w @ [weights[0], weights[1], np.linalg.norm(x - p), p[1]]


def ray_value(corners, start, dir, w):
    t, weights = ray_hit(*corners, start, dir)
    n = np.cross(corners[1] - corners[0], corners[2] - corners[0])
    return w @ [weights[0], weights[1], t, n @ [1, 2, 3] / np.linalg.norm(n)]


def differences(f, x, h=1e-6):
    """The gradient of f by all numbers of x, float64."""
    out = np.zeros(x.shape)
    for k in np.ndindex(x.shape):
        d = np.zeros(x.shape)
        d[k] = h
        out[k] = (f(x + d) - f(x - d)) / (2 * h)
    return out


def expected(value, points, faces, found, *inputs):
    """Gradients by the points of the mesh, and by each input but the weights, which come last."""
    by_points, by_inputs = np.zeros(points.shape), [np.zeros(a.shape) for a in inputs[:-1]]
    for k, f in enumerate(found):
        if f < 0:
            continue
        here = [a[k].astype(float) for a in inputs]
        corners = points[faces[f]].astype(float)
        np.add.at(by_points, faces[f], differences(lambda c, here=here: value(c, *here), corners))
        for j, slot in enumerate(by_inputs):
            slot[k] = differences(
                lambda a, j=j, here=here, corners=corners: value(corners, *here[:j], a, *here[j + 1 :]), here[j]
            )
    return [by_points, *by_inputs]


def check(kernel, value, points, faces, *inputs):
    n = len(inputs[0])
    mesh = wb.Mesh(wb.array(points, dtype=wb.vec3, requires_grad=True), wb.array(faces.ravel(), dtype=int))
    given = [wb.array(a, dtype=wb.vec3, requires_grad=True) for a in inputs[:-1]]
    face, loss = wb.zeros(n, dtype=int), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(kernel, n, [mesh.id, *given, wb.array(inputs[-1], dtype=wb.vec4), face, loss])
    tape.backward(loss)
    found = face.numpy()
    wanted = expected(value, points, faces, found, *inputs)
    for got, want in zip([mesh.points, *given], wanted, strict=True):
        assert abs(want).max() > 0
        np.testing.assert_allclose(got.grad.numpy(), want, rtol=2e-3, atol=2e-3 * abs(want).max() ** 0.5)
    return found


def queries(points, faces, n, seed=0):
    """Points around a mesh whose closest points lie in faces, on edges and in corners."""
    rng = np.random.default_rng(seed)
    x = (points[faces].mean(1)[rng.integers(0, len(faces), n)] * rng.uniform(0.7, 1.6, (n, 1))).astype(np.float32)
    return x + rng.normal(size=(n, 3)).astype(np.float32) * np.float32(0.05), rng.normal(size=(n, 4)).astype(np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kernel", [to_surface, signed], ids=["no sign", "sign"])
def test_closest_points_have_exact_gradients(kernel, backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    points, faces = sphere(5)
    check(kernel, surface_value, points, faces, *queries(points, faces, 60 if backend == "c" else 6))


def test_every_part_of_a_triangle_has_its_own_gradient():
    points, faces = np.float32([[0, 0, 0], [2, 0.1, 0], [0.3, 1.5, 0.2]]), np.int32([[0, 1, 2]])
    rng = np.random.default_rng(0)
    weights = rng.dirichlet([0.6] * 3, 200) * 3 - 1  # inside, beyond each edge, beyond each corner
    x = (weights @ points + rng.normal(size=(200, 3)) * [0, 0, 1]).astype(np.float32)
    parts = {tuple(closest_weights(*points, p) > 1e-9) for p in x}
    assert len(parts) == 7
    check(to_surface, surface_value, points, faces, x, rng.normal(size=(200, 4)).astype(np.float32))


def ray_inputs(n, seed=0):
    rng = np.random.default_rng(seed)
    start = rng.normal(size=(n, 3)).astype(np.float32) * 3
    target = rng.normal(size=(n, 3)).astype(np.float32) * np.float32(0.4)
    return (
        start,
        (target - start) * rng.uniform(0.3, 2, (n, 1)).astype(np.float32),
        rng.normal(size=(n, 4)).astype(np.float32),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_hits_of_rays_have_exact_gradients(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    points, faces = sphere(5)
    found = check(along_ray, ray_value, points, faces, *ray_inputs(60 if backend == "c" else 6))
    assert (found >= 0).sum() > len(found) / 2


@pytest.mark.needs_cxx
def test_the_cuda_text_computes_the_same(tmp_path, monkeypatch):
    texts = run_cuda_texts(Machine(tmp_path), monkeypatch)
    monkeypatch.setattr(wb.config, "backend", "c")
    points, faces = sphere(4)
    check(to_surface, surface_value, points, faces, *queries(points, faces, 20))
    check(along_ray, ray_value, points, faces, *ray_inputs(20))
    assert len(texts) >= 4


@pytest.mark.needs_nvrtc
def test_the_cuda_texts_compile():
    for kernel in (signed, along_ray):
        assert len(kernel.resources) == 2


def test_the_search_is_not_walked_backwards():
    """An adjoint searches once more to know the face; nothing of that goes on a stack or is reversed."""
    program = to_surface.program()
    written = [s.row.name for s in walk(program.reverse(program.floats).function.body)]
    assert written.count("while") == [s.row.name for s in walk(program.function.body)].count("while")
    assert not {"push", "pop"} & {*written}


@wb.kernel
def swell(points: wb.array[wb.vec3], by: wb.array[float]):
    i = wb.tid()
    points[i] = points[i] * (1.0 + by[0])


def test_a_mesh_fitted_again_under_a_tape_leaves_earlier_launches_their_tree():
    points, faces = sphere(4)
    x, w = queries(points, faces, 8)
    w[:] = [0, 0, 1, 0]
    by = wb.array([0.25], requires_grad=True)
    mesh = wb.Mesh(wb.array(points, dtype=wb.vec3, requires_grad=True), wb.array(faces.ravel(), dtype=int))
    given, weights = wb.array(x, dtype=wb.vec3, requires_grad=True), wb.array(w, dtype=wb.vec4)
    found = [wb.zeros(8, dtype=int) for _ in range(3)]
    loss = wb.zeros(1)
    with wb.Tape() as tape:
        for face in found:
            wb.launch(to_surface, 8, [mesh.id, given, weights, face, loss])
            wb.launch(swell, len(points), [mesh.points, by])
            mesh.refit()
    tape.backward(loss)

    def total(b, p, at):
        return sum(
            surface_value((p * (1 + b[0]) ** k)[faces[f]], at[i], w[i].astype(float))
            for k, face in enumerate(found)
            for i, f in enumerate(face.numpy())
        )

    b, p, at = np.array([0.25]), points.astype(float), x.astype(float)
    assert loss.numpy()[0] == pytest.approx(total(b, p, at), rel=1e-5)
    np.testing.assert_allclose(by.grad.numpy(), differences(lambda b: total(b, p, at), b), rtol=1e-3)
    np.testing.assert_allclose(given.grad.numpy(), differences(lambda at: total(b, p, at), at), rtol=1e-3, atol=2e-3)
    leaf = differences(lambda p: total(b, p, at), p)
    for _ in range(2):  # a second walk finds the same
        np.testing.assert_allclose(mesh.points.grad.numpy(), leaf, rtol=1e-3, atol=2e-3)
        tape.zero()
        tape.backward(loss)


def test_velocities_and_normals_have_gradients():
    @wb.kernel
    def kernel(mesh: wb.uint64, p: wb.array[wb.vec3], out: wb.array[float]):
        q = wb.mesh_query_point(mesh, p[0], 10.0)
        v = wb.mesh_eval_velocity(mesh, q.face, q.u, q.v)
        wb.atomic_add(out, 0, wb.dot(v, wb.mesh_eval_face_normal(mesh, q.face)))

    points, faces = soup(1, 3)
    speeds = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    p = points.mean(0, keepdims=True) + np.float32(0.1)
    arrays = [wb.array(a, dtype=wb.vec3, requires_grad=True) for a in (points, speeds, p)]
    mesh, out = wb.Mesh(arrays[0], wb.array(faces.ravel(), dtype=int), velocities=arrays[1]), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(kernel, 1, [mesh.id, arrays[2], out])
    tape.backward(out)

    def value(corners, speeds, p):
        n = np.cross(corners[1] - corners[0], corners[2] - corners[0])
        return closest_weights(*corners, p[0]) @ speeds @ n / np.linalg.norm(n)

    now = [a.astype(float) for a in (points, speeds, p)]
    for j, a in enumerate(arrays):
        want = differences(lambda b, j=j: value(*now[:j], b, *now[j + 1 :]), now[j])
        np.testing.assert_allclose(a.grad.numpy(), want, rtol=1e-3, atol=1e-4)
