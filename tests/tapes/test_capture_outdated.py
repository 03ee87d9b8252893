"""What a capture took from Python objects and options: a replay is refused where they are others by then."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

N = 4


@wb.kernel
def nearest(mesh: wb.uint64, out: wb.array[float]):
    found = wb.mesh_query_point(mesh, wb.vec3(0.0, 0.0, 0.0), 100.0)
    out[0] = wb.length(wb.mesh_eval_position(mesh, found.face, found.u, found.v))


@wb.kernel
def near(grid: wb.uint64, points: wb.array[wb.vec3], out: wb.array[float]):
    i = wb.tid()
    count = 0.0
    for j in wb.hash_grid_query(grid, points[i], 0.5):
        if wb.length(points[j] - points[i]) < 0.5:
            count += 1.0
    out[i] = count


def triangle():
    return wb.Mesh(wb.array(np.eye(3), dtype=wb.vec3), wb.array([0, 1, 2], dtype=int))


def cloud(n: int):
    return wb.array(np.random.default_rng(n).random((n, 3)), dtype=wb.vec3)


def built():
    grid = wb.HashGrid(4, 4, 4)
    grid.build(cloud(N), 0.5)
    return grid


def diagonal(*values: float):
    at = wb.array(np.arange(len(values)), dtype=int)
    return wb.sparse.bsr_from_triplets(len(values), len(values), at, at, wb.array(list(values)))


def other_points(mesh):
    mesh.points = wb.array(3 * np.eye(3), dtype=wb.vec3)
    mesh.refit()


def turned(A):
    wb.sparse.bsr_set_from_triplets(A, wb.array([0, 1]), wb.array([1, 0]), wb.array([1.0, 2.0]))


GEOMETRY = [
    (triangle, lambda m, y: wb.launch(nearest, 1, [m.id, y]), other_points),
    (built, lambda g, y: wb.launch(near, N, [g.id, cloud(N), y]), lambda g: g.build(cloud(N), 0.5)),
    (built, lambda g, y: wb.launch(near, N, [g.id, cloud(N), y]), lambda g: g.build(cloud(50), 0.5)),
]
MATRICES = [
    lambda A: wb.sparse.bsr_mv(A, wb.ones(2)),
    lambda A: wb.sparse.bsr_mm(A, A),
    wb.sparse.bsr_transposed,
    lambda A: wb.sparse.bsr_axpy(A),
    wb.sparse.bsr_get_diag,
    lambda A: A @ wb.ones(2),
]


@pytest.mark.parametrize("make, use, change", GEOMETRY)
@pytest.mark.parametrize("how", ["capture", "command"])
def test_a_mesh_or_grid_that_was_built_anew_is_seen_as_it_is_or_refused(make, use, change, how, monkeypatch):
    thing, y = make(), wb.zeros(N)
    if how == "capture":
        with wb.capture() as again:
            use(thing, y)
    else:
        made, launch = [], wb.launch
        monkeypatch.setattr(wb, "launch", lambda *a: made.append(launch(*a, record_cmd=True)))
        use(thing, y)
        monkeypatch.undo()
        (again,) = made
    again.launch()
    try:
        change(thing)
        again.launch()
    except wb.LaunchError as error:
        assert error.slug in ("capture", "handle")
        return
    fresh = wb.zeros(N)
    use(thing, fresh)
    np.testing.assert_array_equal(y.numpy(), fresh.numpy())


@pytest.mark.parametrize("use", MATRICES)
@pytest.mark.parametrize("change", [turned, lambda A: A.columns.assign([1, 0])])
def test_a_sparse_matrix_with_other_places_is_not_used_as_it_was(use, change):
    A = diagonal(1.0, 2.0)
    with wb.capture() as graph:
        use(A)
    graph.replay()
    change(A)
    with pytest.raises(wb.LaunchError, match="has changed its places or arrays"):
        graph.replay()


def test_products_in_a_capture_follow_the_blocks():
    A, into = diagonal(1.0, 2.0), diagonal(0.0, 0.0)
    with wb.capture() as graph:
        made = wb.sparse.bsr_mm(A, A)
        wb.sparse.bsr_mm(A, A, z=into)
    A.values.assign([5.0, 6.0])
    graph.replay()
    assert made.values.list() == into.values.list() == [25, 36]


def test_a_sum_in_place_is_not_replayed_on_what_it_was_first():
    A, B = diagonal(1.0, 2.0), diagonal(1.0, 2.0)
    with wb.capture() as graph:
        wb.sparse.bsr_axpy(A, B)
    with pytest.raises(wb.LaunchError, match="z = x"):
        graph.replay()


@pytest.mark.parametrize("option", ["check_bounds", "check_races", "race_guard", "deterministic"])
def test_what_is_promised_since_is_not_left_out_in_silence(option, monkeypatch):
    x = wb.ones(2)
    with wb.capture() as graph:
        x.fill_(2.0)
    monkeypatch.setattr(wb.config, option, not getattr(wb.config, option))
    with pytest.raises(wb.LaunchError, match=f"config.{option} has changed"):
        graph.replay()


def test_conditions_run_what_was_captured():
    x, on = wb.zeros(1), wb.array([1])
    with wb.capture() as more:
        x.assign(x + 1.0)
    wb.capture_if(on, on_true=more)
    assert x.list() == [2]


@pytest.mark.parametrize("how", ["assign", "numpy", "arrays"])
def test_places_that_were_written_by_hand_are_the_places(how):
    A, x = diagonal(1.0, 2.0), wb.array([1.0, 10.0])
    if how == "assign":
        A.columns.assign([1, 0])
    elif how == "numpy":
        A.columns.numpy()[...] = [1, 0]
    else:
        A = wb.sparse.bsr_zeros(2, 2, float)
        A.offsets, A.columns, A.values = wb.array([0, 1, 2]), wb.array([1, 0]), wb.array([1.0, 2.0])
    assert A.nnz == 2 and (A @ x).list() == [10, 2]
    assert (A @ A).columns.list() == [0, 1] and (A @ A).values.list() == [2, 2]
    A.columns.assign([1, 700])
    with pytest.raises(wb.LaunchError, match="are no places of 2 x 2 blocks"):
        wb.sparse.bsr_mv(A, x)
