"""Sparse Jacobians: the dense one, from as many walks as there are colours; wrong patterns are refused."""

from __future__ import annotations

import importlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import workbench as wb
from workbench import pattern

F = wb.float64
N = 12
products = importlib.import_module("workbench.products")


@pytest.fixture(autouse=True, params=["numpy", pytest.param("c", marks=pytest.mark.needs_cc)])
def backend(request):
    wb.config.backend = request.param
    yield request.param
    wb.config.reset()


@pytest.fixture
def walks(monkeypatch):
    """How many walks a Jacobian takes."""
    count = []
    for name in ("_row", "_column"):
        plain = getattr(products, name)
        monkeypatch.setattr(products, name, lambda *given, plain=plain: count.append(1) or plain(*given))
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
    "band of three": (banded, 3), "two bands and a square": (banded_twice, 5), "stencil": (stencil, None),
    "net of vectors": (net, None), "halves": (halves, 3),
}  # fmt: skip


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
    held = pattern.find(tape, y, x)
    for row, bits in zip(dense, held, strict=True):
        assert set(np.flatnonzero(row)) <= set(pattern.members(bits))


def test_a_pattern_of_ones_own_is_used_and_checked(walks):
    tape, y, u = banded()
    dense = wb.jacobian(tape, y, u)
    walks.clear()
    found = wb.jacobian(tape, y, u, sparse=True, pattern=dense)
    assert len(walks) == 3
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


def test_colours_cross_nowhere():
    rng = np.random.default_rng(0)
    lines = [int(n) for n in rng.integers(0, 1 << 20, size=40)]
    groups = pattern.colour(lines)
    assert sorted(k for g in groups for k in g) == [k for k, bits in enumerate(lines) if bits]
    for g in groups:
        assert sum(lines[k].bit_count() for k in g) == sum(1 << 0 for _ in pattern.members(sum(lines[k] for k in g)))


def test_workers_may_share_the_colours():
    tape, y, u = banded_twice()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        found = wb.jacobian(tape, y, u, sparse=True, executor=executor)
    np.testing.assert_array_equal(found.toarray(), wb.jacobian(tape, y, u, sparse=True).toarray())
