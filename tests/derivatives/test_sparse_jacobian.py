"""Sparse Jacobians: the dense one, from as many walks as there are colours; wrong patterns are refused."""

from __future__ import annotations

import importlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import workbench as wb
from workbench.derivatives import sparsity as pattern

F = wb.float64
N = 12
products = importlib.import_module("workbench.derivatives.jacobian")


pytestmark = pytest.mark.usefixtures("backend")


@pytest.fixture
def walks(monkeypatch):
    """How many walks a Jacobian takes."""
    count, plain = [], products._line
    monkeypatch.setattr(products, "_line", lambda *given: count.append(1) or plain(*given))
    return count


@wb.kernel
def diffuse(u: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    n = u.shape[0]
    s = u[i] * u[i]
    if i > 0:
        s += wb.sin(u[i - 1]) * u[i]
    if i < n - 1:
        s += F(2.0) * u[i + 1]
    y[i] = s


@wb.kernel
def heat(u: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
    i, j = wb.tid()
    if i > 0 and j > 0 and i < u.shape[0] - 1 and j < u.shape[1] - 1:
        y[i, j] = u[i - 1, j] * u[i + 1, j] + u[i, j - 1] * u[i, j + 1] * u[i, j]


@wb.kernel
def springs(x: wb.array(dtype=wb.vec2d), ends: wb.array2d(dtype=int), f: wb.array(dtype=wb.vec2d)):
    s = wb.tid()
    a = ends[s, 0]
    b = ends[s, 1]
    d = x[b] - x[a]
    pull = (wb.length(d) - F(1.0)) * wb.normalize(d)
    wb.atomic_add(f, a, pull)
    wb.atomic_sub(f, b, pull)


@wb.kernel
def square_in_place(x: wb.array(dtype=F)):
    i = wb.tid()
    x[i] = x[i] * x[i]


@wb.kernel
def total(x: wb.array(dtype=F), s: wb.array(dtype=F)):
    wb.atomic_add(s, 0, x[wb.tid()])


def leaf(values, dtype=F):
    return wb.array(np.asarray(values, float), dtype=dtype, requires_grad=True)


def banded():
    u, y = leaf(np.linspace(0.2, 1.4, N)), wb.zeros(N, dtype=F)
    with wb.Tape() as tape:
        wb.launch(diffuse, dim=N, inputs=[u], outputs=[y])
    return tape, y, u


def banded_twice():
    tape, y, u = banded()
    z = wb.zeros(N, dtype=F)
    with wb.Tape() as tape:
        wb.launch(diffuse, dim=N, inputs=[u], outputs=[y])
        wb.launch(square_in_place, dim=N, inputs=[y])
        wb.launch(diffuse, dim=N, inputs=[y], outputs=[z])
    return tape, z, u


def stencil():
    u, y = leaf(np.linspace(0.2, 1.4, 30).reshape(6, 5)), wb.zeros((6, 5), dtype=F)
    with wb.Tape() as tape:
        wb.launch(heat, dim=(6, 5), inputs=[u], outputs=[y])
    return tape, y, u


def net():
    rng = np.random.default_rng(3)
    x, f = leaf(rng.normal(size=(8, 2)), wb.vec2d), wb.zeros(8, dtype=wb.vec2d)
    ends = wb.array(np.array([[k, k + 1] for k in range(7)]), dtype=int)
    with wb.Tape() as tape:
        wb.launch(springs, dim=7, inputs=[x, ends, f])
    return tape, f, x


def halves():
    """Each half of the output depends on its half of the input, through views and copies."""
    x, y, w = leaf(np.linspace(0.5, 1.5, N)), wb.zeros(N, dtype=F), wb.zeros(N, dtype=F)
    with wb.Tape() as tape:
        wb.copy(w[: N // 2], x[N // 2 :])
        wb.copy(w[N // 2 :], x[: N // 2])
        wb.launch(square_in_place, dim=N, inputs=[w])
        wb.launch(diffuse, dim=N // 2, inputs=[w[: N // 2]], outputs=[y[: N // 2]])
        wb.launch(diffuse, dim=N // 2, inputs=[w[N // 2 :]], outputs=[y[N // 2 :]])
    return tape, y, x


TAPES = {
    "band of three": (banded, 3),
    "two bands and a square": (banded_twice, 5),
    "stencil": (stencil, None),
    "net of vectors": (net, None),
    "halves": (halves, 3),
}


@pytest.mark.sampled
@pytest.mark.parametrize("mode", [None, "rows", "columns"])
@pytest.mark.parametrize("case", TAPES)
def test_a_sparse_jacobian_is_the_dense_one_to_the_last_bit(walks, case, mode):
    make, colours = TAPES[case]
    tape, y, x = make()
    dense = wb.jacobian(tape, y, x, mode or "rows")
    dense = dense.reshape(y.size * y.dtype.size, -1)
    walks.clear()
    found = wb.jacobian(tape, y, x, mode, sparse=True)
    assert colours is None or len(walks) == colours
    assert len(walks) < min(dense.shape)
    close = np.testing.assert_array_equal if mode else np.testing.assert_allclose
    close(found.toarray(), dense, **({} if mode else {"rtol": 1e-13, "atol": 1e-13}))
    assert found.nnz < dense.size and np.count_nonzero(dense)


@pytest.mark.parametrize("case", TAPES)
def test_the_pattern_holds_every_entry_that_is_not_zero(case):
    tape, y, x = TAPES[case][0]()
    dense = wb.jacobian(tape, y, x).reshape(y.size * y.dtype.size, -1)
    held, certain = pattern.find(tape, y, x)
    assert certain
    for row, line in zip(dense, held, strict=True):
        assert set(np.flatnonzero(row)) <= set(pattern.members(line))


def test_a_pattern_of_ones_own_is_used_and_checked(walks):
    tape, y, u = banded()
    dense = wb.jacobian(tape, y, u)
    walks.clear()
    found = wb.jacobian(tape, y, u, sparse=True, pattern=dense)
    assert len(walks) == 4  # one of them in a random direction
    np.testing.assert_allclose(found.toarray(), dense, rtol=1e-14)
    with pytest.raises(wb.GradientError, match="leaves out entries"):
        wb.jacobian(tape, y, u, sparse=True, pattern=np.eye(N))
    with pytest.raises(wb.GradientError, match="shape"):
        wb.jacobian(tape, y, u, sparse=True, pattern=np.eye(N + 1))


def test_a_pattern_that_leaves_out_one_entry_is_found_out():
    tape, y, u = banded()
    full = wb.jacobian(tape, y, u) != 0
    for place in np.argwhere(full):
        less = full.copy()
        less[tuple(place)] = False
        with pytest.raises(wb.GradientError, match=r"\[pattern\]"):
            wb.jacobian(tape, y, u, sparse=True, pattern=less)


def test_a_sum_has_one_dense_row():
    x, s = leaf(np.arange(1.0, 6.0)), wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        wb.launch(square_in_place, dim=5, inputs=[x])
        wb.launch(total, dim=5, inputs=[x], outputs=[s])
    assert wb.jacobian(tape, s, x, sparse=True).toarray().tolist() == [[2.0, 4.0, 6.0, 8.0, 10.0]]


def test_launches_too_long_to_follow_are_refused(monkeypatch):
    monkeypatch.setattr(pattern, "STATEMENTS", 10)
    tape, y, u = banded()
    with pytest.raises(wb.GradientError, match=r"\[pattern\]"):
        wb.jacobian(tape, y, u, sparse=True)


def test_what_is_not_sparse_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(pattern, "BLOCKS", N - 1)
    tape, y, u = banded()
    with pytest.raises(wb.GradientError, match="not sparse"):
        wb.jacobian(tape, y, u, sparse=True)


def test_sets_of_numbers_are_sets(monkeypatch):
    monkeypatch.setattr(pattern, "BLOCK", 8)
    one, other = {0, 7, 8, 31, 1000}, {7, 9, 1001}
    both = pattern.joined(pattern.line(one), pattern.line(other))
    assert pattern.members(both) == sorted(one | other)
    assert pattern.members(pattern.line(one)) == sorted(one)
    assert pattern.crosses(pattern.line(one), pattern.line(other))
    assert not pattern.crosses(pattern.line(one), pattern.line({6, 9, 1001}))
    assert [pattern.members(c) for c in pattern.transposed([pattern.line({1}), {}, pattern.line({1, 2})], 3)] == [
        [],
        [0, 2],
        [2],
    ]


def test_colours_cross_nowhere():
    rng = np.random.default_rng(0)
    sets = [set(rng.integers(0, 2000, size=rng.integers(0, 30)).tolist()) for _ in range(40)]
    groups = pattern.colour([pattern.line(s) for s in sets])
    assert sorted(k for g in groups for k in g) == [k for k, s in enumerate(sets) if s]
    assert len(groups) < len(sets)
    for g in groups:
        assert len(set().union(*[sets[k] for k in g])) == sum(len(sets[k]) for k in g)


@pytest.mark.slow
@pytest.mark.host_memory
def test_workers_may_share_the_colours():
    tape, y, u = banded_twice()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        found = wb.jacobian(tape, y, u, sparse=True, executor=executor)
    np.testing.assert_array_equal(found.toarray(), wb.jacobian(tape, y, u, sparse=True).toarray())


# ---- what the pattern must not miss


def same(tape, y, x):
    for mode in ("rows", "columns"):
        dense = wb.jacobian(tape, y, x, mode)
        assert dense.any()
        np.testing.assert_array_equal(wb.jacobian(tape, y, x, mode, sparse=True).toarray(), dense.reshape(y.size, -1))


@wb.kernel
def square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def queue(x: wb.array(dtype=F), s: wb.array(dtype=F), y: wb.array(dtype=F)):
    old = wb.atomic_add(s, 0, x[0])
    y[0] = old * old


def test_what_an_atomic_returns_depends_on_what_was_there():
    x, s, y = leaf([3.0, 2.0, 5.0]), wb.zeros(1, dtype=F), wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        wb.launch(square, dim=1, inputs=[x[1:2]], outputs=[s])
        wb.launch(queue, dim=1, inputs=[x, s], outputs=[y])
    same(tape, y, x)


def test_every_name_of_one_number_has_its_column():
    base, y = leaf([2.0]), wb.zeros(3, dtype=F)
    thrice = wb.array(ptr=base.ptr, dtype=F, shape=(3,), strides=(0,))
    with wb.Tape() as tape:
        wb.launch(square, dim=3, inputs=[thrice], outputs=[y])
    same(tape, y, thrice)


@wb.kernel
def pick(x: wb.array(dtype=F), p: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    n = x.shape[0]
    k = int(wb.floor(wb.exp(p[i]) * F(1.0e7))) % n
    y[i] = x[k] * x[k]


def picked(n=50):
    x, p, y = leaf(np.arange(1.0, n + 1)), wb.array(np.linspace(0.01, 0.9, n), dtype=F), wb.zeros(n, dtype=F)
    with wb.Tape() as tape:
        wb.launch(pick, dim=n, inputs=[x, p], outputs=[y])
    return tape, y, x


def test_a_pattern_that_rounding_decides_about_is_checked(backend, monkeypatch):
    """The interpreter may go another way than compiled code; here it is made to."""
    tape, y, x = picked()
    found, certain = pattern.find(tape, y, x)
    assert certain == (backend == "numpy")
    same(tape, y, x)
    monkeypatch.setattr(pattern, "find", lambda *_: ([found[-1], *found[:-1]], certain))
    if backend == "c":
        with pytest.raises(wb.GradientError, match="Rounding decides"):
            wb.jacobian(tape, y, x, sparse=True)


def test_a_bare_infinity_or_nan_is_no_wrong_pattern():
    x, y = leaf([0.0, 1.0, 4.0, np.nan]), wb.zeros(4, dtype=F)

    @wb.kernel
    def roots(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = wb.sqrt(x[i])

    with wb.Tape() as tape:
        wb.launch(roots, dim=4, inputs=[x], outputs=[y])
    with pytest.warns(UserWarning, match="slope of `sqrt` at 0"):
        found = wb.jacobian(tape, y, x, sparse=True, pattern=np.eye(4)).toarray()
    np.testing.assert_array_equal(found.diagonal(), [np.inf, 0.5, 0.25, np.nan])


def test_the_check_knows_how_coarsely_a_program_computes():
    x, y = leaf(np.linspace(0.1, 1.0, 40)), wb.zeros(1, dtype=F)

    @wb.kernel
    def rough(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        wb.atomic_add(y, 0, F(wb.sin(wb.float32(x[wb.tid()])) * 0.1))

    with wb.Tape() as tape:
        wb.launch(rough, dim=40, inputs=[x], outputs=[y])
    found = wb.jacobian(tape, y, x, sparse=True, pattern=np.ones((1, 40)))
    np.testing.assert_allclose(found.toarray()[0], 0.1 * np.cos(np.linspace(0.1, 1.0, 40)), rtol=1e-5)


@wb.kernel
def scattered(x: wb.array(dtype=F), at: wb.array(dtype=int), y: wb.array(dtype=F)):
    i = wb.tid()
    y[at[i]] = x[i] * x[i]


@pytest.mark.parametrize("workers", [False, True])
def test_a_race_is_refused_whoever_computes(workers):
    x, at, y = leaf(np.arange(1.0, 5.0)), wb.array([0, 1, 1, 3], dtype=int), wb.zeros(4, dtype=F)
    with wb.Tape() as tape:
        wb.launch(scattered, dim=4, inputs=[x, at], outputs=[y])
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor,
        pytest.raises(wb.GradientError, match=r"\[race\]"),
    ):
        wb.jacobian(tape, y, x, sparse=True, executor=executor if workers else None)


@wb.kernel
def cancels(x: wb.array(dtype=wb.float64), y: wb.array(dtype=wb.float64)):
    i = wb.tid()
    a, b = 0.1 * x[2 * i] + 0.7 * x[2 * i + 1], 3.0 * x[2 * i]
    y[i] = (a + b) * (a + b) - a * a - 2.0 * a * b - b * b  # 0, up to rounding


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_entries_that_are_rounding_alone_are_no_wrong_pattern(mode):
    x, y = wb.array(np.linspace(0.3, 1.7, 8), dtype=wb.float64, requires_grad=True), wb.zeros(4, dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch(cancels, 4, [x], [y])
    whole = np.kron(np.eye(4), np.ones(2))
    found = wb.jacobian(tape, y, x, mode, sparse=True, pattern=whole).toarray()
    assert 0 < abs(found).max() < 1e-13
    np.testing.assert_array_equal(found, wb.jacobian(tape, y, x, mode))


@wb.kernel
def of_vectors(x: wb.array(dtype=wb.vec4d), y: wb.array(dtype=wb.vec4d)):
    i = wb.tid()
    y[i][3] = x[i][1] * x[i][2]
    y[i][0] += x[i][3]


@wb.kernel
def of_square_matrices(x: wb.array(dtype=wb.mat33d), y: wb.array(dtype=wb.mat33d)):
    i = wb.tid()
    y[i][2, 0] = x[i][1, 2] * x[i][2, 1]
    y[i][0, 1] += x[i][2, 2]


MAT23 = wb.types.matrix((2, 3), F)


@wb.kernel
def of_long_matrices(x: wb.array(dtype=MAT23), y: wb.array(dtype=MAT23)):
    i = wb.tid()
    y[i][1, 0] = x[i][1, 2] * x[i][0, 1]
    y[i][0, 2] += x[i][1, 1]


@wb.kernel
def of_rows(x: wb.array(dtype=wb.mat33d), y: wb.array(dtype=wb.mat33d)):
    i = wb.tid()
    y[i][2] = x[i][1]


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [(of_vectors, wb.vec4d), (of_square_matrices, wb.mat33d), (of_long_matrices, MAT23), (of_rows, wb.mat33d)],
)
@pytest.mark.parametrize("step", [1, -2])
def test_components_have_rows_and_columns_of_their_own(kernel, dtype, step):
    x = leaf(np.arange(1.0, 1.0 + 4 * dtype.size).reshape(4, *dtype.shape), dtype)
    y = wb.zeros(4, dtype=dtype)
    with wb.Tape() as tape:
        wb.launch(kernel, 2, [x[::step], y[::-step]])
    dense = wb.jacobian(tape, y, x).reshape(4 * dtype.size, -1)
    found = wb.jacobian(tape, y, x, sparse=True)
    np.testing.assert_array_equal(found.toarray(), dense)
    assert found.nnz < dense.size and np.count_nonzero(dense) >= 4
