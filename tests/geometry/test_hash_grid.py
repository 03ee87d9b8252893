"""Hash grids: each point that may be near comes once, and gradients do not know that there is a grid."""

import gc

import numpy as np
import pytest

import workbench as wb


@wb.kernel
def near(grid: wb.uint64, x: wb.array[wb.vec3], r: float, out: wb.array2d[int]):
    i = wb.tid()
    for j in wb.hash_grid_query(grid, x[i], r):
        if wb.length(x[i] - x[j]) <= r:
            out[i, j] += 1


@wb.kernel
def near_by_while(grid: wb.uint64, x: wb.array[wb.vec3], r: float, out: wb.array2d[int]):
    k = wb.tid()
    i = wb.hash_grid_point_id(grid, k)
    query = wb.hash_grid_query(grid, x[i], r)
    j = 0
    while wb.hash_grid_query_next(query, j):
        if wb.length(x[i] - x[j]) > r:
            continue
        out[i, j] += 1


def distances(x):
    x = x.astype(np.float64)
    return np.linalg.norm(x[:, None] - x[None], axis=2)


CLOUDS = {
    "small": lambda rng: rng.uniform(-2, 2, (200, 3)),
    "negative": lambda rng: rng.uniform(-30, -29, (100, 3)),
    "flat": lambda rng: rng.uniform(-2, 2, (200, 3)) * [1, 1, 0],
    "on the edges of cells": lambda rng: rng.integers(-4, 4, (200, 3)) * 0.5,
    "all in one place": lambda rng: np.full((50, 3), 0.25),
    "far apart": lambda rng: rng.choice([-3e20, -7.0, 0.0, 1e10], (30, 3)),
    "one": lambda rng: np.zeros((1, 3)),
}


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("size", [(8, 8, 8), (1, 1, 1), (2, 5, 3), (64, 1, 2)])
@pytest.mark.parametrize("r, width", [(0.5, 0.5), (0.5, 0.1), (5.0, 0.5), (0.1, 3.0)])
def test_the_neighbours_are_those_of_all_pairs_each_once(cloud, size, r, width):
    points = CLOUDS[cloud](np.random.default_rng(0)).astype(np.float32)
    n = len(points)
    grid = wb.HashGrid(*size)
    x = wb.array(points, dtype=wb.vec3)
    grid.build(x, width)
    expected = distances(points) <= np.float32(r)
    for kernel in (near, near_by_while):
        out = wb.zeros((n, n), dtype=int)
        wb.launch(kernel, n, [grid.id, x, r, out])
        np.testing.assert_array_equal(out.numpy(), expected)


def test_points_that_are_no_numbers_are_near_nothing_and_disturb_nobody():
    points = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    points[7, 1], points[9] = np.nan, np.inf
    grid, x, out = wb.HashGrid(4, 4, 4), wb.array(points, dtype=wb.vec3), wb.zeros((50, 50), dtype=int)
    grid.build(x, 0.5)
    wb.launch(near, 50, [grid.id, x, 0.5, out])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out.numpy(), distances(points) <= 0.5)


def test_loops_over_queries_break_nest_and_go_through_funcs():
    @wb.func
    def around(grid: wb.uint64, p: wb.vec3):
        return wb.hash_grid_query(grid, p, 1.0)

    @wb.func
    def total(query: wb.HashGridQuery):
        n = 0
        for _j in query:
            n += 1
        return n

    @wb.kernel
    def kernel(grid: wb.uint64, x: wb.array[wb.vec3], out: wb.array2d[int]):
        i = wb.tid()
        query = around(grid, x[i])
        out[i, 0] = total(query)
        first = -1
        for j in query:  # `total` got the query as it was: a value
            first = j
            break
        out[i, 1] = first
        pairs = 0
        for j in wb.hash_grid_query(grid, x[i], 1.0):
            for k in wb.hash_grid_query(grid, x[j], 1.0):
                if k == i:
                    continue
                pairs += 1
        out[i, 2] = pairs

    x = wb.array(np.repeat([[0.5, 0.5, 0.5], [4.5, 0.5, 0.5]], [3, 2], axis=0), dtype=wb.vec3)
    grid, out = wb.HashGrid(8, 8, 8), wb.zeros((5, 3), dtype=int)
    grid.build(x, 1.0)
    wb.launch(kernel, 5, [grid.id, x, out])
    assert out.numpy().tolist() == [[3, 0, 6], [3, 0, 6], [3, 0, 6], [2, 3, 2], [2, 3, 2]]


# ---- derivatives


@wb.kernel
def density(grid: wb.uint64, x: wb.array[wb.vec3], m: wb.array[float], h: float, rho: wb.array[float]):
    i = wb.tid()
    total = 0.0
    for j in wb.hash_grid_query(grid, x[i], h):
        d = x[i] - x[j]
        q = h * h - wb.dot(d, d)
        if q > 0.0:
            total += m[j] * q * q * q
    rho[i] = total


@wb.kernel
def move(x: wb.array[wb.vec3], rho: wb.array[float], y: wb.array[wb.vec3]):
    i = wb.tid()
    y[i] = x[i] + 0.05 * rho[i] * wb.vec3(1.0, -0.5, x[i][0])


@wb.kernel
def add_up(rho: wb.array[float], w: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, w[i] * rho[i])


def density_and_gradients(x, m, h, w):
    """In float64, of all pairs: what `density` gives, and the gradients of `sum(w * rho)` by x and m."""
    d = x[:, None] - x[None]
    q = np.maximum(h * h - (d**2).sum(2), 0)
    slope = (w[:, None] * m[None] + w[None] * m[:, None]) * -6 * q**2
    return q**3 @ m, (slope[:, :, None] * d).sum(1), w @ q**3


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_the_gradient_of_a_density_is_that_of_all_pairs(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    rng = np.random.default_rng(1)
    n, h = 60, 0.6
    points, masses, weights = rng.uniform(-1, 1, (n, 3)), rng.uniform(1, 2, n), rng.normal(size=n)
    x = wb.array(points, dtype=wb.vec3, requires_grad=True)
    m, w = wb.array(masses, dtype=float, requires_grad=True), wb.array(weights, dtype=float)
    grid, rho, loss = wb.HashGrid(4, 4, 4), wb.zeros(n), wb.zeros(1)
    grid.build(x, h)
    with wb.Tape() as tape:
        wb.launch(density, n, [grid.id, x, m, h, rho])
        wb.launch(add_up, n, [rho, w, loss])
    tape.backward(loss)
    value, by_x, by_m = density_and_gradients(points, masses, h, weights)
    np.testing.assert_allclose(rho.numpy(), value, rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), by_x, atol=1e-5 * abs(by_x).max())
    np.testing.assert_allclose(m.grad.numpy(), by_m, atol=1e-5 * abs(by_m).max())


def test_a_grid_built_again_under_a_tape_leaves_earlier_launches_their_neighbours():
    rng = np.random.default_rng(2)
    n, h = 80, 0.6
    points = rng.uniform(-1, 1, (n, 3))
    grads = []
    for size, radius in ((4, h), (1, 50.0)):  # the second grid has all points in one cell
        x = wb.array(points, dtype=wb.vec3, requires_grad=True)
        m, w = wb.ones(n), wb.array(rng.normal(size=n) * 0 + np.arange(n) % 7, dtype=float)
        grid, loss = wb.HashGrid(size, size, size), wb.zeros(1)
        with wb.Tape() as tape:
            state = x
            for _ in range(3):
                rho, after = wb.zeros(n), wb.zeros(n, dtype=wb.vec3)
                grid.build(state, radius)
                wb.launch(density, n, [grid.id, state, m, h, rho])
                wb.launch(move, n, [state, rho], [after])
                state = after
            wb.launch(add_up, n, [rho, w, loss])
        assert len(tape.launches) == 7 + 3 * 2  # a build is two
        tape.backward(loss)
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(grads[0], grads[1], atol=2e-5 * abs(grads[1]).max())


def test_positions_changed_in_place_under_a_tape_with_a_new_grid_each_step():
    @wb.kernel
    def shift(x: wb.array[wb.vec3], rho: wb.array[float]):
        i = wb.tid()
        x[i] = x[i] + 0.05 * rho[i] * wb.vec3(1.0, -0.5, 0.25)

    n, h = 40, 0.6
    points = np.random.default_rng(3).uniform(-1, 1, (n, 3))
    grads = []
    for size, radius in ((4, h), (1, 50.0)):
        x = wb.array(points, dtype=wb.vec3, requires_grad=True)
        grid, loss, w = wb.HashGrid(size, size, size), wb.zeros(1), wb.ones(n)
        with wb.Tape() as tape:
            for _ in range(3):
                rho = wb.zeros(n)
                grid.build(x, radius)
                wb.launch(density, n, [grid.id, x, w, h, rho])
                wb.launch(shift, n, [x, rho])
            wb.launch(add_up, n, [rho, w, loss])
        tape.backward(loss)
        grads.append(x.grad.numpy())
    assert abs(grads[1]).max() > 0
    np.testing.assert_allclose(grads[0], grads[1], atol=2e-5 * abs(grads[1]).max())


# ---- numbers


def test_a_number_in_a_struct_and_one_of_an_empty_grid():
    @wb.struct
    class Model:
        grid: wb.uint64
        x: wb.array(dtype=wb.vec3)

    @wb.kernel
    def kernel(model: Model, grid: wb.uint64, out: wb.array[int]):
        i = wb.tid()
        for _j in wb.hash_grid_query(model.grid, model.x[i], 0.5):
            out[i] += 1
        for _j in wb.hash_grid_query(grid, model.x[i], 0.5):
            out[i] += 100

    x, grid, out = wb.zeros(3, dtype=wb.vec3), wb.HashGrid(4, 4, 4), wb.zeros(3, dtype=int)
    grid.build(x, 1.0)
    model = Model(x=x)
    model.grid = grid.id
    wb.launch(kernel, 3, [model, 0, out])
    assert out.numpy().tolist() == [3, 3, 3]


def test_numbers_that_stand_for_nothing_are_refused():
    x, out = wb.zeros(2, dtype=wb.vec3), wb.zeros((2, 2), dtype=int)
    grid = wb.HashGrid(2, 2, 2)
    gone = grid.id
    with pytest.raises(wb.LaunchError, match=r"argument 'grid'(.|\n)*never built(.|\n)*grid.build(.|\n)*\[handle\]"):
        wb.launch(near, 2, [gone, x, 1.0, out])
    grid.build(x, 1.0)
    wb.launch(near, 2, [gone, x, 1.0, out])
    del grid
    gc.collect()
    with pytest.raises(wb.LaunchError, match=r"argument 'grid'(.|\n)*no HashGrid(.|\n)*gone(.|\n)*\[handle\]"):
        wb.launch(near, 2, [gone, x, 1.0, out])
    for number in (1, 12345):
        with pytest.raises(wb.LaunchError, match=rf"\b{number} is the number of no HashGrid"):
            wb.launch(near, 2, [number, x, 1.0, out])
    before = out.numpy().copy()
    wb.launch(near, 2, [0, x, 1.0, out])
    np.testing.assert_array_equal(out.numpy(), before)  # 0 is the number of an empty one


def test_what_is_no_number_is_refused_at_its_line():
    @wb.kernel
    def typed(grid: int, x: wb.array[wb.vec3], out: wb.array[int]):
        i = wb.tid()
        for _j in wb.hash_grid_query(grid, x[i], 0.5):
            out[i] += 1

    with pytest.raises(wb.KernelError, match=r"given by its number, a uint64, not by int32(.|\n)*\[handle\]"):
        typed.ir  # noqa: B018


def test_builds_that_cannot_be_are_refused():
    grid = wb.HashGrid(2, 2, 2)
    with pytest.raises(wb.LaunchError, match="array of vec3 as points"):
        grid.build(wb.zeros(3), 1.0)
    with pytest.raises(wb.LaunchError, match="cells of width 0"):
        grid.build(wb.zeros(3, dtype=wb.vec3), 0.0)
    with pytest.raises(wb.LaunchError, match="2 groups for 3 points"):
        grid.build(wb.zeros(3, dtype=wb.vec3), 1.0, groups=wb.zeros(2, dtype=int))
    with pytest.raises(wb.LaunchError, match="array of vec3d as points"):
        wb.HashGrid(2, 2, 2, dtype=wb.float64).build(wb.zeros(3, dtype=wb.vec3), 1.0)
    with pytest.raises(wb.LaunchError, match="at least one cell"):
        wb.HashGrid(0, 1, 1)


def test_what_happens_inside_has_its_place_at_the_line_of_the_user():
    places = {(s.where.function, s.where.text.strip()) for s in wb.kernels.ir.walk(near.program().function.body)}
    assert all(function == "near" for function, _ in places)
    assert "for j in wb.hash_grid_query(grid, x[i], r):" in {text for _, text in places}
