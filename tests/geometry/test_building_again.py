"""Meshes, trees and grids that are fitted or built again: in captures, between replays, under tapes, for commands."""

import gc
from typing import Any

import numpy as np
import pytest
from geometry.meshes import distances, soup, sphere

import workbench as wb


@wb.kernel
def distance(mesh: wb.uint64, x: wb.array[wb.vec3], out: wb.array[float]):
    i = wb.tid()
    q = wb.mesh_query_point_no_sign(mesh, x[i], 1000.0)
    out[i] = wb.length(x[i] - wb.mesh_eval_position(mesh, q.face, q.u, q.v))


@wb.kernel
def move(points: wb.array[wb.vec3], by: wb.array[wb.vec3]):
    i = wb.tid()
    points[i] = points[i] + by[i]


@wb.kernel
def count(grid: wb.uint64, x: wb.array[Any], r: Any, out: wb.array[int]):
    i = wb.tid()
    n = 0
    for j in wb.hash_grid_query(grid, x[i], r):
        if wb.length(x[i] - x[j]) < r:
            n += 1
    out[i] = n


def mesh_of(points, faces, **options):
    return wb.Mesh(wb.array(points, dtype=wb.vec3, **options), wb.array(faces.ravel(), dtype=int))


def nearest(points, faces, x):
    return [distances(points, faces, p).min() for p in x]


def pairs(points, r):
    return (np.linalg.norm(points[:, None] - points[None], axis=2) < r).sum(axis=1)


@pytest.fixture
def crowd():
    """A soup, other places for its points, and where to ask."""
    points, faces = soup(40, 0)
    rng = np.random.default_rng(0)
    return points, faces, rng.normal(size=points.shape).astype(np.float32), rng.normal(size=(20, 3)).astype(np.float32)


def test_a_capture_fits_the_mesh_at_each_replay_also_for_what_stands_before_the_fit(crowd):
    points, faces, by, x = crowd
    mesh, given = mesh_of(points, faces), wb.array(x, dtype=wb.vec3)
    steps = wb.array(by, dtype=wb.vec3)
    before, after = wb.zeros(20), wb.zeros(20)
    with wb.capture() as graph:
        wb.launch(distance, 20, [mesh.id, given, before])
        wb.launch(move, len(points), [mesh.points, steps])
        mesh.refit()
        wb.launch(distance, 20, [mesh.id, given, after])
    at = points + by
    for _ in range(2):
        graph.replay()
        np.testing.assert_allclose(before.numpy(), nearest(at, faces, x), rtol=1e-4, atol=1e-5)
        at = at + by
        np.testing.assert_allclose(after.numpy(), nearest(at, faces, x), rtol=1e-4, atol=1e-5)
    mesh.points.assign(points)
    mesh.rebuild()  # outside: the graph has it all the same
    graph.replay()
    np.testing.assert_allclose(before.numpy(), nearest(points, faces, x), rtol=1e-4, atol=1e-5)
    with pytest.raises(wb.LaunchError, match=r"other points for a Mesh that a capture(.|\n)*points.assign"):
        mesh.points = wb.zeros(len(points), dtype=wb.vec3)
    del graph
    gc.collect()
    mesh.points = wb.array(points, dtype=wb.vec3)


@pytest.mark.parametrize("how", ["refit", "rebuild"])
def test_a_tree_in_a_capture_is_that_of_the_boxes_at_each_replay(how):
    @wb.kernel
    def mark(bvh: wb.uint64, out: wb.array[int]):
        for i in wb.bvh_query_aabb(bvh, wb.vec3(-0.3, -0.3, -0.3), wb.vec3(0.3, 0.3, 0.3)):
            out[i] = out[i] + 1

    rng = np.random.default_rng(1)
    places = rng.uniform(-1, 1, (5, 200, 3)).astype(np.float32)
    lowers, uppers = wb.array(places[0], dtype=wb.vec3), wb.array(places[0] + np.float32(0.2), dtype=wb.vec3)
    source, out, bvh = wb.array(places[0], dtype=wb.vec3), wb.zeros(200, dtype=int), wb.Bvh(lowers, uppers)
    with wb.capture() as graph:
        out.zero_()
        wb.copy(lowers, source)
        wb.launch(add, 200, [source, 0.2, uppers])
        getattr(bvh, how)()
        wb.launch(mark, 1, [bvh.id, out])
    for at in places[1:]:
        source.assign(at)
        graph.replay()
        wanted = (at <= 0.3).all(1) & (at + np.float32(0.2) >= -0.3).all(1)
        np.testing.assert_array_equal(out.numpy(), wanted)
        bvh.rebuild()


@wb.kernel
def add(x: wb.array[wb.vec3], size: float, out: wb.array[wb.vec3]):
    out[wb.tid()] = x[wb.tid()] + wb.vec3(size, size, size)


@pytest.mark.parametrize("dtype", [wb.float16, wb.float32, wb.float64], ids=str)
@pytest.mark.parametrize("first", [True, False])
def test_a_grid_built_in_a_capture_sorts_the_points_of_each_replay(dtype, first):
    vec = wb.types.vector(3, dtype)
    rng = np.random.default_rng(2)
    places = (rng.integers(-64, 64, (4, 60, 3)) / 64).astype(np.float16)
    x, source, out = wb.zeros(60, dtype=vec), wb.array(places[0], dtype=vec), wb.zeros(60, dtype=int)
    grid = wb.HashGrid(5, 6, 7, dtype=dtype)
    if not first:
        grid.build(x, 0.5)
    with wb.capture() as graph:
        wb.copy(x, source)
        grid.build(x, 0.5)
        wb.launch(count, 60, [grid.id, x, dtype(0.5), out])
    for at in places:
        source.assign(at.astype(x.numpy().dtype))
        graph.replay()
        np.testing.assert_array_equal(out.numpy(), pairs(at.astype(float), 0.5))
    with pytest.raises(wb.LaunchError, match=r"a size that changes, from 60 to 59(.|\n)*\[capture\]"):
        grid.build(x[:59], 0.5)
    with pytest.raises(wb.LaunchError, match=r"cells of another width(.|\n)*\[capture\]"):
        grid.build(x, 0.25)


def test_a_grid_that_a_capture_only_builds_keeps_its_memory():
    x, grid = wb.array(np.eye(3), dtype=wb.vec3), wb.HashGrid(2, 2, 2)
    with wb.capture() as graph:
        grid.build(x, 0.5)
    for changed in (lambda: grid.build(wb.zeros(4, dtype=wb.vec3), 0.5), lambda: grid.build(x, 0.25)):
        with pytest.raises(wb.LaunchError, match=r"\[capture\]"):
            changed()
    graph.replay()


def test_a_capture_of_a_grid_that_is_built_only_later_says_so():
    x, out, grid = wb.zeros(3, dtype=wb.vec3), wb.zeros(3, dtype=int), wb.HashGrid(2, 2, 2)
    with wb.capture(), pytest.raises(wb.LaunchError, match=r"not built before this capture(.|\n)*grid.build"):
        wb.launch(count, 3, [grid.id, x, 0.5, out])


@wb.struct
class Cutoff:
    radius: float


@wb.kernel
def counted_within(grid: wb.uint64, x: wb.array[wb.vec3], cutoff: Cutoff, out: wb.array[int]):
    i = wb.tid()
    for _ in wb.hash_grid_query(grid, x[i], cutoff.radius):
        out[i] += 1


@pytest.mark.parametrize(
    "launch",
    [
        lambda g, x, out: wb.launch(count, 3, [g, x, 0.5, out], record_cmd=True),
        lambda g, x, out: wb.launch(counted_within, 3, [g, x, Cutoff(), out]),
    ],
    ids=["recorded", "struct"],
)
def test_what_may_change_before_a_replay_does_not_wait_for_a_grid(launch):
    x, out, grid = wb.zeros(3, dtype=wb.vec3), wb.zeros(3, dtype=int), wb.HashGrid(2, 2, 2)
    with wb.ScopedCapture(), pytest.raises(wb.LaunchError, match=r"not built before this capture(.|\n)*grid.build"):
        launch(grid.id, x, out)


@wb.kernel
def nearer(grid: wb.uint64, x: wb.array[wb.vec3], by: wb.vec3, out: wb.array[wb.vec3]):
    i = wb.hash_grid_point_id(grid, wb.tid())
    total = wb.vec3(0.0, 0.0, 0.0)
    for j in wb.hash_grid_query(grid, x[i], 0.5):
        total += x[j] - x[i]
    out[i] = total + by


def step_by_step(steps, points, by, turns):
    """The same launches outside of any capture."""
    x, f = wb.array(points[0], dtype=wb.vec3), wb.zeros(len(points[0]), dtype=wb.vec3)
    for at in turns:
        grid = wb.HashGrid(4, 4, 4)
        if points[at] is not None:
            x.assign(points[at])
        grid.build(x, 0.5)
        for _ in range(steps):
            wb.launch(nearer, len(x), [grid.id, x, by], [f])
            wb.launch(moved, len(x), [f, 0.125, x])
    return x.numpy(), f.numpy()


@wb.kernel
def moved(f: wb.array[wb.vec3], dt: float, x: wb.array[wb.vec3]):
    x[wb.tid()] += dt * f[wb.tid()]


def test_a_block_with_a_grid_that_is_built_later_runs_on_the_grid_of_each_replay():
    rng = np.random.default_rng(8)
    points = [rng.uniform(-1, 1, (40, 3)).astype(np.float32) for _ in range(2)]
    x, f, grid = wb.array(points[0], dtype=wb.vec3), wb.zeros(40, dtype=wb.vec3), wb.HashGrid(4, 4, 4)
    by = wb.vec3(0.5, 0.0, 0.0)
    with wb.ScopedCapture() as scope:
        for _ in range(3):
            wb.launch(nearer, 40, [grid.id, x, by], [f])
            wb.launch(moved, 40, [f, 0.125, x])
    by[0] = 9.0  # the value at the capture counts
    np.testing.assert_array_equal(x.numpy(), points[0])
    with pytest.raises(wb.LaunchError, match="never built"):
        scope.graph.replay()
    for k, at in enumerate([0, 1]):
        x.assign(points[at])
        grid.build(x, 0.5)
        wb.capture_launch(scope.graph)
        moves, force = step_by_step(3, points, wb.vec3(0.5, 0.0, 0.0), [0, 1][: k + 1])
        np.testing.assert_array_equal(x.numpy(), moves)
        np.testing.assert_array_equal(f.numpy(), force)


def test_a_replay_on_a_grid_built_later_is_seen_by_a_tape_of_its_memory():
    x, f, grid = wb.ones(4, dtype=wb.vec3, requires_grad=True), wb.zeros(4, dtype=wb.vec3), wb.HashGrid(4, 4, 4)
    y, by = wb.zeros(4, dtype=wb.vec3), wb.vec3(1.0, 0.0, 0.0)
    with wb.ScopedCapture() as scope:
        wb.launch(nearer, 4, [grid.id, x, by], [f])
        wb.launch(moved, 4, [f, 0.125, x])
    grid.build(x, 0.5)
    with wb.Tape() as tape:
        wb.launch(squares, 4, [x, y])
    scope.graph.replay()
    with pytest.raises(wb.GradientError):
        tape.backward(grads={y: wb.ones(4, dtype=wb.vec3)})


@wb.kernel
def squares(x: wb.array[wb.vec3], y: wb.array[wb.vec3]):
    y[wb.tid()] = wb.cw_mul(x[wb.tid()], x[wb.tid()])


def test_a_tape_in_a_capture_takes_no_grid_that_is_built_later():
    x, f, grid = wb.ones(4, dtype=wb.vec3, requires_grad=True), wb.zeros(4, dtype=wb.vec3), wb.HashGrid(4, 4, 4)
    by = wb.vec3(0.0, 0.0, 0.0)
    with wb.ScopedCapture(), wb.Tape(), pytest.raises(wb.LaunchError, match=r"not built before this capture"):
        wb.launch(nearer, 4, [grid.id, x, by], [f])
    with wb.ScopedCapture():
        wb.launch(nearer, 4, [grid.id, x, by], [f])
        with pytest.raises(wb.LaunchError, match=r"\[capture\]"), wb.Tape():
            wb.launch(moved, 4, [f, 0.125, x])


def test_queries_of_one_group_of_points_find_those_alone():
    @wb.kernel
    def near(grid: wb.uint64, x: wb.array[wb.vec3], group: wb.array[int], out: wb.array2d[int]):
        i = wb.tid()
        for j in wb.hash_grid_query(grid, x[i], 0.5, group[i]):
            out[i, j] += 1

    rng = np.random.default_rng(3)
    points, groups = rng.uniform(-1, 1, (50, 3)), rng.choice([-(2**31), -1, 0, 7, 2**31 - 1], 50)
    x, given = wb.array(points, dtype=wb.vec3), wb.array(groups, dtype=int)
    grid, out = wb.HashGrid(4, 4, 4), wb.zeros((50, 50), dtype=int)
    grid.build(x, 0.5, groups=given)
    wb.launch(near, 50, [grid.id, x, given, out])
    same = groups[:, None] == groups[None]
    close = np.linalg.norm(points[:, None] - points[None], axis=2) < 0.5
    assert not out.numpy()[~same].any() and (out.numpy()[same & close] == 1).all()
    wb.launch(near, 50, [grid.id, x, wb.full(50, 99, dtype=int), out.zero_()])
    assert not out.numpy().any()


def test_a_tape_run_again_with_other_numbers_fits_the_mesh_to_them(crowd):
    points, faces, by, x = crowd
    mesh, steps = mesh_of(points, faces), wb.array(0 * by, dtype=wb.vec3, requires_grad=True)
    given, out = wb.array(x, dtype=wb.vec3), wb.zeros(20)
    with wb.Tape(keep="all") as tape:
        wb.launch(move, len(points), [mesh.points, steps])
        mesh.refit()
        wb.launch(distance, 20, [mesh.id, given, out])
    again = tape.replay({steps: 3 * by})
    np.testing.assert_allclose(again[out].numpy(), nearest(points + 3 * by, faces, x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out.numpy(), nearest(points, faces, x), rtol=1e-4, atol=1e-5)


def test_a_fit_between_forward_and_backward_leaves_the_tape_its_tree(crowd):
    points, faces, by, x = crowd
    mesh = mesh_of(points, faces)
    given, out = wb.array(x, dtype=wb.vec3, requires_grad=True), wb.zeros(20)
    with wb.Tape() as tape:
        wb.launch(distance, 20, [mesh.id, given, out])
    tape.backward(grads={out: wb.ones(20)})
    wanted = given.grad.numpy().copy()
    tape.zero()
    for at in (points, points + by):  # the tape keeps the points too
        mesh.points.assign(at)
        mesh.refit()
        tape.backward(grads={out: wb.ones(20)})
        np.testing.assert_array_equal(given.grad.numpy(), wanted)
        np.testing.assert_array_equal(mesh.points.numpy(), at)
        tape.zero()


def test_a_command_sees_the_mesh_as_it_was_fitted_last(crowd):
    points, faces, by, x = crowd
    mesh, given, out = mesh_of(points, faces), wb.array(x, dtype=wb.vec3), wb.zeros(20)
    command = wb.launch(distance, 20, [mesh.id, given, out], record_cmd=True)
    mesh.points.assign(points + by)
    mesh.refit()
    command.launch()
    np.testing.assert_allclose(out.numpy(), nearest(points + by, faces, x), rtol=1e-4, atol=1e-5)


def test_numbers_chosen_in_a_capture_allow_no_fit_there_nor_later():
    points, faces = sphere(3)
    mesh, out = mesh_of(points, faces), wb.zeros(1)

    @wb.kernel
    def chosen(ids: wb.array[wb.uint64], out: wb.array[float]):
        out[0] = wb.mesh_query_ray(ids[0], wb.vec3(0.0, 0.0, 9.0), wb.vec3(0.0, 0.0, -1.0), 100.0).t

    ids = wb.array([mesh.id], dtype=wb.uint64)
    with wb.capture(), pytest.raises(wb.LaunchError, match="fitted in this capture"):
        mesh.refit()
        wb.launch(chosen, 1, [ids, out])
    with wb.capture() as graph:
        wb.launch(chosen, 1, [ids, out])
    with pytest.raises(wb.LaunchError, match="a capture has chosen by a number"):
        mesh.refit()
    del graph
    gc.collect()
    mesh.points.assign(2 * points)
    mesh.refit()
    wb.launch(chosen, 1, [ids, out])
    assert out.numpy()[0] == pytest.approx(7, rel=1e-5)


def test_winding_numbers_follow_a_fit():
    @wb.kernel
    def side(mesh: wb.uint64, x: wb.array[wb.vec3], out: wb.array[float]):
        i = wb.tid()
        out[i] = wb.mesh_query_point_sign_winding_number(mesh, x[i], 100.0).sign

    points, faces = sphere(8, 0)
    mesh = wb.Mesh(wb.array(points, dtype=wb.vec3), wb.array(faces.ravel(), dtype=int), support_winding_number=True)
    x, out = wb.array([[1.5, 0, 0], [0, -0.5, 0], [0, 4, 0]], dtype=wb.vec3), wb.zeros(3)
    with wb.capture() as graph:
        mesh.refit()
        wb.launch(side, 3, [mesh.id, x, out])
    for size, wanted in ((1, [1, -1, 1]), (3, [-1, -1, 1]), (5, [-1, -1, -1])):
        mesh.points.assign(size * points)
        graph.replay()
        assert out.numpy().tolist() == wanted


@wb.kernel
def pull(mesh: wb.uint64, x: wb.array[wb.vec3], s: wb.array[float], y: wb.array[wb.vec3], points: wb.array[wb.vec3]):
    i = wb.tid()
    q = wb.mesh_query_point_no_sign(mesh, x[i], 1000.0)
    p = wb.mesh_eval_position(mesh, q.face, q.u, q.v)
    y[i] = x[i] + (p - x[i]) * s[0] * wb.length(p - x[i])


@wb.kernel
def norms(x: wb.array[wb.vec3], loss: wb.array[float]):
    wb.atomic_add(loss, 0, wb.dot(x[wb.tid()], x[wb.tid()]))


@pytest.mark.parametrize("fit_first", [True, False])
@pytest.mark.parametrize("budget", [None, 1, 3])
def test_a_checkpointed_loop_with_a_fit_in_each_step_has_the_same_gradient(crowd, fit_first, budget, reference={}):  # noqa: B006
    points, faces, by, x = crowd
    mesh, steps = mesh_of(points, faces, requires_grad=True), wb.array(0.4 * by, dtype=wb.vec3, requires_grad=True)
    given, s = wb.array(x, dtype=wb.vec3, requires_grad=True), wb.array([0.3], requires_grad=True)
    now, after, loss = wb.zeros(20, dtype=wb.vec3), wb.zeros(20, dtype=wb.vec3), wb.zeros(1)

    def step(k, now, after, at, *built):
        if fit_first:
            wb.launch(move, len(points), [at, steps])
            mesh.refit()
        wb.launch(pull, 20, [mesh.id, now, s, after, at])
        wb.copy(now, after)
        if not fit_first:
            wb.launch(move, len(points), [at, steps])
            mesh.refit()

    with wb.Tape() as tape:
        wb.copy(now, given)
        if budget is None:
            for k in range(5):
                step(k, now, after, mesh.points)
        else:
            wb.checkpoint(5, budget)(step)(now, after, mesh.points, *mesh.state)
        wb.launch(norms, 20, [now, loss])
    tape.backward(loss)
    gradients = [a.grad.numpy() for a in (given, s, steps)]
    assert all(abs(g).max() > 0 for g in gradients)
    for g, wanted in zip(gradients, reference.setdefault(fit_first, gradients), strict=True):
        np.testing.assert_array_equal(g, wanted)


def test_a_checkpointed_loop_without_the_state_of_a_grid_says_what_is_missing():
    x, grid = wb.zeros(3, dtype=wb.vec3), wb.HashGrid(2, 2, 2)

    def step(k, x):
        grid.build(x, 1.0)

    with wb.Tape(), pytest.raises(wb.LaunchError, match=r"grid.build\(x, 1.0\)(.|\n)*\*hashgrid.state"):
        wb.checkpoint(3, 1)(step)(x)


def test_two_tapes_share_a_mesh_that_is_fitted_between_them(crowd):
    points, faces, by, x = crowd
    mesh, given = mesh_of(points, faces), wb.array(x, dtype=wb.vec3, requires_grad=True)
    tapes, outs, alone = [], [], []
    for at in (points, points + by):
        mesh.points.assign(at)
        mesh.refit()
        out = wb.zeros(20)
        with wb.Tape() as tape:
            wb.launch(distance, 20, [mesh.id, given, out])
        tapes.append(tape)
        outs.append(out)
        tape.backward(grads={out: wb.ones(20)})
        alone.append(given.grad.numpy().copy())
        tape.zero()
    for k in (0, 1, 0):
        tapes[k].backward(grads={outs[k]: wb.ones(20)})
        np.testing.assert_array_equal(given.grad.numpy(), alone[k])
        tapes[k].zero()
    assert abs(alone[0] - alone[1]).max() > 0.1


def test_launches_of_a_build_have_their_place_at_the_line_of_the_user(crowd):
    points, faces, _, _ = crowd
    grid = wb.HashGrid(2, 2, 2)
    with wb.Tape() as tape:
        mesh = mesh_of(points, faces)
        mesh.refit()
        grid.build(mesh.points, 1.0)
    assert {e.where.text.strip() for e in tape.launches} == {
        "return wb.Mesh(wb.array(points, dtype=wb.vec3, **options), wb.array(faces.ravel(), dtype=int))",
        "mesh.refit()",
        "grid.build(mesh.points, 1.0)",
    }


def test_constructors_and_sizes_of_leaves_change_no_answer_and_wrong_ones_are_refused(crowd):
    points, faces, _, x = crowd
    given, indices = wb.array(points, dtype=wb.vec3), wb.array(faces.ravel(), dtype=int)
    for constructor, size in ((None, None), ("sah", 1), ("median", 3), ("LBVH", 64)):
        mesh, out = wb.Mesh(given, indices, bvh_constructor=constructor, bvh_leaf_size=size), wb.zeros(20)
        wb.launch(distance, 20, [mesh.id, wb.array(x, dtype=wb.vec3), out])
        np.testing.assert_allclose(out.numpy(), nearest(points, faces, x), rtol=1e-4, atol=1e-5)
    with pytest.raises(wb.LaunchError, match="a Mesh by 'octree'"):
        wb.Mesh(given, indices, bvh_constructor="octree")
    with pytest.raises(wb.LaunchError, match="a Bvh with 0 items of a leaf"):
        wb.Bvh(given, given, leaf_size=0)
