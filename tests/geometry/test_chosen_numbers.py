"""Numbers of meshes and grids that a kernel takes from arrays: each thread its own."""

import gc

import numpy as np
import pytest
from geometry.meshes import distances, sphere

import workbench as wb
from tests.support.backends import BACKENDS
from workbench.launches import handles


@wb.kernel
def distance(meshes: wb.array[wb.uint64], x: wb.array[wb.vec3], y: wb.array[float], hit: wb.array[float]):
    i = wb.tid()
    mesh = meshes[i]
    y[i] = -1.0
    if mesh != wb.uint64(0):
        q = wb.mesh_query_point(mesh, x[i], 100.0)
        if q.result:
            p = wb.mesh_eval_position(mesh, q.face, q.u, q.v)
            y[i] = wb.length(x[i] - p)
    hit[i] = wb.mesh_query_ray(mesh, wb.vec3(0.0, 0.0, 9.0), wb.vec3(0.0, 0.0, -1.0), 100.0).t


def several():
    made = []
    for n, size in ((3, 1.0), (8, 2.0), (5, 0.5)):
        points, faces = sphere(n)
        made.append((points * np.float32(size), faces))
    return made


def mesh_of(points, faces, **options):
    return wb.Mesh(wb.array(points, dtype=wb.vec3, **options), wb.array(faces.ravel(), dtype=int))


@wb.kernel
def found(things: wb.array[wb.uint64], n: wb.array[int]):
    i = wb.tid()
    for _j in wb.hash_grid_query(things[i], wb.vec3(), 1.0):
        n[i] += 1


def test_a_number_of_nothing_is_refused_and_not_found_empty(backend):
    points = wb.zeros(2, dtype=wb.vec3)
    grid, gone, unbuilt = (wb.HashGrid(2, 2, 2) for _ in range(3))
    grid.build(points, 1.0)
    gone.build(points, 1.0)
    mesh, n = mesh_of(*sphere(3)), wb.zeros(2, dtype=int)
    wb.launch(found, 2, [wb.array([grid.id, 0], dtype=wb.uint64), n])
    assert n.list() == [2, 0]
    numbers = [gone.id, unbuilt.id, mesh.id, 1, 2**63, grid.id + 100]
    del gone
    gc.collect()
    for number in numbers:
        with pytest.raises(wb.BoundsError, match=r"(?s)thread 1 takes a .* of no HashGrid.*things\[i\].*\[handle\]"):
            wb.launch(found, 2, [wb.array([grid.id, number], dtype=wb.uint64), n])
            wb.synchronize()  # when a GPU tells


@pytest.mark.needs_cc
def test_a_number_of_nothing_finds_nothing_where_no_index_is_tested():
    wb.config.backend = "c"
    grid = wb.HashGrid(4, 4, 4)
    grid.build(wb.zeros(3, dtype=wb.vec3), 1.0)
    things, n = wb.array(np.array([grid.id, grid.id + 1000, 0], np.uint64)), wb.zeros(3, dtype=int)
    wb.launch(found, 3, [things, n], check_bounds=False)
    assert n.list() == [3, 0, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_thread_asks_the_mesh_it_chooses(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    shapes = several()
    meshes = [mesh_of(*shape) for shape in shapes]
    rng = np.random.default_rng(0)
    which = rng.integers(0, 4, 30)
    numbers = [*(m.id for m in meshes), 0]
    x = rng.normal(size=(30, 3)).astype(np.float32)
    y, hit = wb.zeros(30), wb.zeros(30)
    ids = wb.array([numbers[k] for k in which], dtype=wb.uint64)
    given = wb.array(x, dtype=wb.vec3, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(distance, 30, [ids, given, y, hit])
    tape.backward(grads={y: wb.ones(30)})
    for i, k in enumerate(which):
        if k == 3:
            assert y.numpy()[i] == -1 and hit.numpy()[i] == 0 and not given.grad.numpy()[i].any()
            continue
        every = distances(*shapes[k], x[i])
        assert y.numpy()[i] == pytest.approx(every.min(), rel=1e-4, abs=1e-6)
        assert hit.numpy()[i] == pytest.approx(9 - [1, 2, 0.5][k], rel=1e-5)
        assert np.linalg.norm(given.grad.numpy()[i]) == pytest.approx(1, rel=1e-4)


def test_they_follow_a_refit_and_forget_what_is_gone():
    (points, faces), *_ = several()
    a, b = mesh_of(points, faces), mesh_of(points * 2, faces)
    ids, x = wb.array([a.id, b.id], dtype=wb.uint64), wb.array([[0, 0, 5]] * 2, dtype=wb.vec3)
    y, hit = wb.zeros(2), wb.zeros(2)
    wb.launch(distance, 2, [ids, x, y, hit])
    np.testing.assert_allclose(y.numpy(), [4, 3], rtol=1e-5)
    b.points.assign(points * 3)
    b.refit()
    wb.launch(distance, 2, [ids, x, y, hit])
    np.testing.assert_allclose(y.numpy(), [4, 2], rtol=1e-5)
    del a
    gc.collect()
    with pytest.raises(wb.BoundsError, match="thread 0 takes a number"):
        wb.launch(distance, 2, [ids, x, y, hit])
    ids = wb.array([0, b.id], dtype=wb.uint64)
    wb.launch(distance, 2, [ids, x, y, hit])
    np.testing.assert_allclose(y.numpy(), [-1, 2], rtol=1e-5)


def test_a_gradient_by_points_of_a_mesh_that_is_chosen_is_refused_not_lost():
    points, faces = sphere(3)
    mesh = mesh_of(points, faces, requires_grad=True)
    x, y, hit = wb.ones(1, dtype=wb.vec3, requires_grad=True), wb.zeros(1), wb.zeros(1)
    arguments = [wb.array([mesh.id], dtype=wb.uint64), x, y, hit]
    wb.launch(distance, 1, arguments)
    with wb.Tape(), pytest.raises(wb.LaunchError, match=r"'every Mesh'(.|\n)*points(.|\n)*to have a gradient"):
        wb.launch(distance, 1, arguments)
    mesh.points.requires_grad = False
    with wb.Tape() as tape:
        moved = wb.clone(x)
        wb.launch(follow, len(points), [moved, mesh.points])  # now they depend on x
        mesh.refit()
        with pytest.raises(wb.LaunchError, match="to have a gradient"):
            wb.launch(distance, 1, arguments)
    del tape


@wb.kernel
def follow(x: wb.array[wb.vec3], points: wb.array[wb.vec3]):
    i = wb.tid()
    points[i] = points[i] + x[0]


def test_grids_and_trees_are_chosen_too_and_writing_into_one_is_refused():
    @wb.kernel
    def count(grids: wb.array[wb.uint64], bvhs: wb.array[wb.uint64], out: wb.array2d[int]):
        i = wb.tid()
        for _j in wb.hash_grid_query(grids[i], wb.vec3(), 0.5):
            out[i, 0] += 1
        for _j in wb.bvh_query_sphere(bvhs[i], wb.vec3(), 0.5):
            out[i, 1] += 1

    grids, bvhs = [wb.HashGrid(4, 4, 4) for _ in range(3)], []
    for n, grid in enumerate(grids):
        grid.build(wb.zeros(n + 1, dtype=wb.vec3), 1.0 + n)
        bvhs.append(wb.Bvh(wb.zeros(2 * n, dtype=wb.vec3), wb.ones(2 * n, dtype=wb.vec3)))
    out = wb.zeros((3, 2), dtype=int)
    ids = [wb.array([thing.id for thing in things], dtype=wb.uint64) for things in (grids, bvhs)]
    wb.launch(count, 3, [*ids, out])
    assert out.numpy().tolist() == [[1, 0], [2, 2], [3, 4]]

    @wb.kernel
    def write(meshes: wb.array[wb.uint64]):
        mesh = wb.mesh_get(meshes[0])
        mesh.points[0] = wb.vec3()

    with pytest.raises(wb.KernelError, match=r"writes into a Mesh that the kernel chooses(.|\n)*mesh.points\[0\]"):
        write.ir  # noqa: B018


def test_a_grid_that_goes_during_a_launch_leaves_the_rows_of_the_others(monkeypatch):
    @wb.kernel
    def count(grids: wb.array[wb.uint64], out: wb.array[int]):
        i = wb.tid()
        for _j in wb.hash_grid_query(grids[i], wb.vec3(), 0.5):
            out[i] += 1

    grids = [wb.HashGrid(4, 4, 4) for _ in range(3)]
    for n, grid in enumerate(grids):
        grid.build(wb.zeros(3 - n, dtype=wb.vec3), 1.0)
    ids, out = wb.array([grid.id for grid in grids[1:]], dtype=wb.uint64), wb.zeros(2, dtype=int)
    together = handles._together

    def and_one_goes(kind, field, *more):
        made = together(kind, field, *more)
        if field == "numbers":
            grids[0] = None
        return made

    del grid
    monkeypatch.setattr(handles, "_together", and_one_goes)
    wb.launch(count, 2, [ids, out])
    assert grids[0] is None and out.list() == [2, 1]


@pytest.mark.parametrize("width", [0.05, 0.3, 1.7])
def test_each_thread_finds_the_neighbours_of_its_own_grid(width, backend):
    """Far from the origin, at cells that float32 cannot tell apart: as by parameter, and as by all pairs."""

    @wb.kernel
    def by_number(grids: wb.array[wb.uint64], x: wb.array2d[wb.vec3], r: float, n: wb.array2d[int]):
        e, i = wb.tid()
        for j in wb.hash_grid_query(grids[e], x[e, i], r):
            if wb.length(x[e, i] - x[e, j]) < r:
                n[e, i] += 1

    @wb.kernel
    def by_parameter(grid: wb.uint64, x: wb.array[wb.vec3], r: float, n: wb.array[int]):
        i = wb.tid()
        for j in wb.hash_grid_query(grid, x[i], r):
            if wb.length(x[i] - x[j]) < r:
                n[i] += 1

    rng = np.random.default_rng(3)
    points = rng.uniform(-1, 1, (4, 30, 3)) * [[[3 * width]]] + 10.0 * np.arange(4)[:, None, None]
    x = wb.array(points.astype(np.float32), dtype=wb.vec3)
    grids = [wb.HashGrid(16, 8, 4) for _ in range(4)]
    for k, grid in enumerate(grids):
        grid.build(x[k], width * (k + 1))
    ids = wb.array([grid.id for grid in grids], dtype=wb.uint64)
    n, other = wb.zeros((4, 30), dtype=int), wb.zeros((4, 30), dtype=int)
    wb.launch(by_number, (4, 30), [ids, x, width, n])
    for k, grid in enumerate(grids):
        wb.launch(by_parameter, 30, [grid.id, x[k], width, other[k]])
    near = np.linalg.norm(x.numpy()[:, :, None] - x.numpy()[:, None], axis=-1) < np.float32(width)
    np.testing.assert_array_equal(n.numpy(), near.sum(-1))
    np.testing.assert_array_equal(other.numpy(), n.numpy())
