"""Loops that all threads run alike, taken for a block of threads at once: the same numbers, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.kernels.emit import blocks, c as emit_c
from workbench.kernels.emit.signature import Variant
from workbench.kernels.ir import walk
from workbench.kernels.passes import simplify

pytestmark = pytest.mark.needs_cc
F = wb.float64


@pytest.fixture(autouse=True)
def one_thread():
    wb.config.threads = 1


@wb.kernel
def gravity(x: wb.array(dtype=wb.vec3d), m: wb.array(dtype=F), a: wb.array(dtype=wb.vec3d), n: int, soft: F):
    i = wb.tid()
    p = x[i]
    total = wb.vec3d()
    for j in range(n):
        d = x[j] - p
        r2 = wb.dot(d, d) + soft
        total += (m[j] / (r2 * wb.sqrt(r2))) * d
    a[i] = total * m[i]


@wb.kernel
def two_loops(x: wb.array(dtype=F), y: wb.array(dtype=F), n: int):
    i = wb.tid()
    low = F(1.0)
    for j in range(0, n, 2):
        low = low * F(0.5) + wb.abs(x[i] - x[j])
    high = low * F(2.0)
    for j in range(n - 1, -1, -1):
        high = high + low * x[j] * wb.float64(j)
    y[i] = high - low


@wb.kernel
def table(x: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array2d(dtype=F)):
    i, j = wb.tid()
    s = F(0.0)
    for k in range(x.shape[0]):
        s += x[k] * w[k] * wb.float64(i + 2 * j)
    y[i, j] = s + w[j]


@wb.kernel
def loop_first(x: wb.array(dtype=F), y: wb.array(dtype=F), n: int, m: int):
    i = wb.tid()
    s = x[i]
    for _ in range(m):
        t = s
        for b in range(n):
            t = t + wb.abs(x[b] - x[i])
        s = t * F(0.25) + s
    y[i] = s


@wb.kernel
def loop_between(x: wb.array(dtype=F), y: wb.array(dtype=F), n: int, m: int):
    i = wb.tid()
    s = x[i]
    for _ in range(m):
        low = s * F(0.5)
        t = low * x[i]
        for b in range(n):
            t = t + x[b] * low
        s = t * F(0.25) + low
    y[i] = s


@wb.kernel
def loop_last(x: wb.array(dtype=F), y: wb.array(dtype=F), n: int, m: int):
    i = wb.tid()
    s, before = x[i], F(1.0)
    for _ in range(m):
        low = s * F(0.5) + before
        for b in range(n):
            s = s + x[b] * low
        before = low
    y[i] = s + before


@wb.kernel
def loop_alone(x: wb.array(dtype=F), y: wb.array(dtype=F), n: int, m: int):
    i = wb.tid()
    s, before = x[i], F(1.0)
    for _ in range(m):
        t = F(0.0)
        for b in range(n):
            t = t + x[b] * s
        s, before = before, t
    y[i] = s - before


KERNELS = {
    "gravity": (gravity, lambda n: n, lambda n: (n,)),
    "two_loops": (two_loops, lambda n: n, lambda n: (n,)),
    "table": (table, lambda n: (3, n), lambda n: (3, n)),
} | {k.key: (k, lambda n: n, lambda n: (n,)) for k in (loop_first, loop_between, loop_last, loop_alone)}


def gradients(name: str, n: int, backend: str) -> list[np.ndarray]:
    wb.config.backend = backend
    kernel, dim, shape = KERNELS[name]
    rng = np.random.default_rng(n)
    x = rng.uniform(-1, 1, (n, 3) if name == "gravity" else n)
    m = rng.uniform(0.5, 1, n)
    vec = wb.vec3d if name == "gravity" else F
    x, m = wb.array(x, dtype=vec, requires_grad=True), wb.array(m, dtype=F, requires_grad=True)
    y = wb.zeros(shape(n), dtype=vec, requires_grad=True)
    numbers = {"gravity": [n, 0.1], "two_loops": [n], "table": []}.get(name, [n, 3])
    arrays = [x, m, y] if name in ("gravity", "table") else [x, y]
    with wb.Tape() as tape:
        wb.launch(kernel, dim(n), inputs=[*arrays, *numbers])
    seed = wb.array(rng.uniform(-1, 1, y.numpy().shape), dtype=vec)
    tape.backward(grads={y: seed})
    return [a.numpy().copy() for a in (y, x.grad, m.grad) if a is not None]


@pytest.mark.sampled
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("n", [1, 2, 7, 63, 64, 65, 130, 200])
def test_a_block_of_threads_computes_what_each_thread_would(name, n):
    want, got = gradients(name, n, "numpy"), gradients(name, n, "c")
    np.testing.assert_array_equal(want[0], got[0])
    for a, b in zip(want[1:], got[1:], strict=True):  # sums into shared cells are formed pairwise
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * np.abs(a).max())


def form(kernel, active=()):
    program = kernel.program()
    function = program.reverse(frozenset(active), ()).function if active else program.function
    return blocks.lanes(function, Variant(restrict=True))[1], function


@pytest.mark.parametrize(
    ("kernel", "active"),
    [
        (gravity, ()),
        (gravity, ("x", "m", "a")),
        (two_loops, ()),
        (table, ("x", "w", "y")),
        (loop_first, ()),
        (loop_between, ()),
        (loop_last, ()),
        (loop_alone, ()),
    ],
)
def test_these_take_the_form_in_blocks(kernel, active):
    found, function = form(kernel, active)
    assert found is not None and "lane" in emit_c.text(function, Variant(restrict=True))
    assert (
        blocks.lanes(function, Variant())[1] is None
        and blocks.lanes(function, Variant(restrict=True, checked=frozenset({0})))[1] is None
    )


@wb.kernel
def own_bounds(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    s = F(0.0)
    for j in range(i):
        s += x[j]
    y[i] = s


@wb.kernel
def breaks(x: wb.array(dtype=F), y: wb.array(dtype=F), n: int):
    i = wb.tid()
    s = F(0.0)
    for j in range(n):
        s += x[j]
        if s > x[i]:
            break
    y[i] = s


@wb.kernel
def stores(x: wb.array(dtype=F), y: wb.array2d(dtype=F), n: int):
    i = wb.tid()
    for j in range(n):
        y[i, j] = x[i] * x[j]


@wb.kernel
def in_place(x: wb.array(dtype=F), n: int):
    i = wb.tid()
    s = F(0.0)
    for j in range(n):
        s += x[j]
    x[i] = s


@wb.kernel
def calls(x: wb.array(dtype=F), y: wb.array(dtype=F), n: int):
    i = wb.tid()
    s = F(0.0)
    for j in range(n):
        s += wb.sin(x[j] * x[i])
    y[i] = s


@wb.kernel
def old_value(x: wb.array(dtype=F), y: wb.array(dtype=F), n: int):
    i = wb.tid()
    s = F(0.0)
    for j in range(n):
        s += x[j] * x[i]
    y[i] = wb.atomic_add(x, 0, s)


@pytest.mark.parametrize("kernel", [own_bounds, breaks, stores, in_place, calls, old_value])
def test_these_do_not(kernel):
    assert form(kernel)[0] is None


@wb.kernel
def added_then_stored(x: wb.array(dtype=F), y: wb.array(dtype=F), n: int):
    i = wb.tid()
    s = F(0.0)
    for j in range(n):
        s += x[j] * x[i]
    k = 2 * i
    y[k] += s
    y[k] = F(5.0)


def test_what_is_added_does_not_come_behind_a_store_that_follows_it():
    wb.config.backend = "c"
    x, y = wb.array(np.ones(70), dtype=F), wb.zeros(140, dtype=F)
    wb.launch(added_then_stored, 70, inputs=[x, y, 5])
    assert y.list() == [5.0, 0.0] * 70


@wb.kernel
def by_rows(x: wb.array2d(dtype=F), y: wb.array(dtype=F), m: int):
    i = wb.tid()
    s = F(0.0)
    for j in range(m):
        s += x[i, j] * x[i, j]
    y[i] = s


def test_a_thread_that_walks_along_its_own_row_stays_alone():
    assert form(by_rows)[0] is None and form(by_rows, ("x", "y"))[0] is None


@wb.kernel
def triangles(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    s = x[i]
    for a in range(40):
        for b in range(a):
            for c in range(b):
                s = s * F(0.999) + F(c) * x[i]
    y[i] = s


def test_loops_whose_bounds_are_counters_written_out_stay_within_the_limit():
    function = triangles.program().function
    assert len(list(walk(simplify.unrolled(function).body))) < 3 * simplify.UNROLLED


M = wb.types.matrix((6, 6), F)


@wb.kernel
def many_adds(x: wb.array(dtype=F), idx: wb.array(dtype=int), a: wb.array(dtype=M)):
    i = wb.tid()
    m = M()
    m[0, 0] = x[i] * x[i] * F(3.0) + x[i] * F(2.0) * x[i] + x[i] * x[i] * x[i]
    for j in range(20):
        a[idx[i] + j] += m


def test_a_block_does_not_keep_more_than_fits_nearby():
    function = simplify.unrolled(many_adds.program().function)
    assert blocks.lanes(function, Variant(restrict=True))[1] is None


@wb.kernel
def count(x: wb.array(dtype=wb.float32), c: wb.array(dtype=wb.int64), n: int):
    wb.tid()
    s = wb.float32(0.0)
    for _ in range(n):
        s += x[0] * x[0]
    c[0] += wb.int64(s)


def test_the_last_block_of_the_largest_grid_ends_where_the_grid_does():
    wb.config.backend = "c"
    x, c = wb.array(np.ones(1, np.float32), dtype=wb.float32), wb.zeros(1, dtype=wb.int64)
    wb.launch(count, 2**31 - 1, inputs=[x, c, 1])
    assert form(count)[0] is not None and c.list() == [2**31 - 1]


@wb.kernel
def meet(x: wb.array(dtype=wb.float32), idx: wb.array(dtype=int), y: wb.array(dtype=wb.float32), z: wb.array(dtype=F)):
    i = wb.tid()
    a = wb.float32(0.0)
    for _ in range(5000):
        a = a * 0.5 + x[i] * 0.001
    if x[i] > -0.5:
        y[idx[i]] += a
    z[0] += wb.float64(a)


@pytest.mark.slow
def test_threads_that_meet_in_a_cell_are_no_vector():
    assert form(meet)[0] is not None
    data, idx = np.linspace(-1, 1, 301).astype(np.float32), np.arange(301, dtype=np.int32) % 7
    found = {}
    for backend in ("numpy", "c"):
        wb.config.backend = backend
        y, z = wb.zeros(7, dtype=wb.float32), wb.zeros(1, dtype=F)
        wb.launch(meet, 301, inputs=[wb.array(data), wb.array(idx, dtype=int), y, z])
        found[backend] = y.numpy(), z.numpy()
    for one, other in zip(*found.values(), strict=True):
        assert np.allclose(one, other, rtol=1e-5)


@wb.kernel
def poles(x: wb.array(dtype=F), m: wb.array(dtype=F), k: wb.array(dtype=F), y: wb.array(dtype=F), n: int):
    i = wb.tid()
    c = k[i]
    total = F(0.0)
    for j in range(n):
        total += m[j] / (x[j] + c)
    y[i] = total


@wb.kernel
def continued(x: wb.array(dtype=F), m: wb.array(dtype=F), k: wb.array(dtype=F), y: wb.array(dtype=F), n: int):
    i = wb.tid()
    c = k[i]
    total = F(1.0)
    for j in range(n):
        total = m[j] / (x[j] + c) + total / (x[j] + c)
    y[i] = total


def at_poles(kernel, n: int, poles_at: slice, backend: str) -> list[np.ndarray]:
    """Gradients of `kernel`, where some threads are at a pole and have an adjoint of 0."""
    wb.config.backend = backend
    rng = np.random.default_rng(n)
    x, m, k, seed = (rng.uniform(0.5, 1, n) for _ in range(4))
    x[n // 2] = k[poles_at] = seed[poles_at] = 0
    arrays = [wb.array(a, dtype=F, requires_grad=True) for a in (x, m, k)]
    y = wb.zeros(n, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(kernel, n, inputs=[*arrays, y, n])
    tape.backward(grads={y: wb.array(seed, dtype=F)})
    return [a.grad.numpy().copy() for a in arrays]


@pytest.mark.parametrize("poles_at", [slice(0), slice(3, 4), slice(None, None, 2), slice(None)])
@pytest.mark.parametrize("n", [5, 130, 300])
@pytest.mark.parametrize("kernel", [poles, continued])
def test_an_adjoint_of_zero_stays_zero_at_an_infinite_slope_in_sums_of_a_turn(kernel, n, poles_at):
    for want, got in zip(at_poles(kernel, n, poles_at, "numpy"), at_poles(kernel, n, poles_at, "c"), strict=True):
        assert np.isfinite(want).all()
        np.testing.assert_allclose(got, want, rtol=1e-12)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    assert got.tobytes() == want.tobytes()  # each thread adds up its own k in its own order


@pytest.mark.parametrize(("kernel", "again"), [(gravity, True), (poles, True), (continued, False)])
def test_a_turn_is_taken_again_where_its_sums_tell_of_it(kernel, again):
    """What is carried but not added up, as the factor of a recurrence, may be lost to the sums."""
    active = [p for p in kernel.program().floats if p != "soft"]
    assert ("[!now]" in emit_c.text(form(kernel, active)[1], Variant(restrict=True))) is again


@wb.kernel
def sum_and_own(x: wb.array(dtype=F), k: wb.array(dtype=int), y: wb.array(dtype=F), total: wb.array(dtype=F), n: int):
    i = wb.tid()
    s = F(0.0)
    for j in range(n):
        s += x[j] * x[i]
    y[i] = s
    wb.atomic_add(total, 0, s)


@wb.kernel
def sum_and_others(
    x: wb.array(dtype=F), k: wb.array(dtype=int), y: wb.array(dtype=F), total: wb.array(dtype=F), n: int
):
    i = wb.tid()
    s = F(0.0)
    for j in range(n):
        s += x[j] * x[i]
    y[k[i]] = s
    wb.atomic_add(total, 0, s)


@pytest.mark.parametrize(("kernel", "apart"), [(sum_and_own, True), (sum_and_others, False)])
def test_threads_are_summed_in_any_order_only_where_each_writes_to_cells_of_its_own(kernel, apart):
    found, function = form(kernel)
    assert found is not None and ("omp simd" in emit_c.text(function, Variant(restrict=True))) == apart
