"""The adjoint of a stencil that pulls equals the one that scatters, and both are the derivative.

`PULL_FROM` decides at which size an adjoint pulls; here it is lowered so that small grids do so too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.kernels.passes import stencil_adjoint
from workbench.launches import thresholds

F = wb.float64
NEVER = 1 << 40
pytestmark = pytest.mark.needs_cc


@pytest.fixture(autouse=True)
def compiled():
    wb.config.backend = "c"


# --- stencils: each kernel takes inputs, then one output


@wb.kernel
def line(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    if i > 0 and i < x.shape[0] - 1:
        y[i] = x[i - 1] * x[i] * x[i + 1]


@wb.kernel
def ahead(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i + 3] + x[i + 1]


@wb.kernel
def behind(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    if i >= 2:
        y[i] = x[i - 2] * x[i] * x[i]
    else:
        y[i] = x[i] * x[i + 1]


@wb.kernel
def plus(u: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
    i, j = wb.tid()
    if i > 0 and j > 0 and i < u.shape[0] - 1 and j < u.shape[1] - 1:
        lap = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - F(4.0) * u[i, j]
        y[i, j] = lap * u[i, j]


@wb.kernel
def walls(u: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
    i, j = wb.tid()
    n = u.shape[0]
    m = u.shape[1]
    s = u[i, j] * u[i, j]
    if i > 0:
        s += u[i - 1, j] * u[i, j]
    if i < n - 1:
        s += F(2.0) * u[i + 1, j]
    if j > 0:
        s += F(3.0) * u[i, j - 1] * u[i, j - 1]
    if j < m - 1:
        s += F(4.0) * u[i, j + 1] * u[i, j]
    y[i, j] = s


@wb.kernel
def inside(u: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
    i, j = wb.tid()
    if i < u.shape[0] - 1 and j < u.shape[1] - 2:
        y[i, j] = u[i, j] * u[i + 1, j + 2]


@wb.kernel
def two(u: wb.array2d(dtype=F), v: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
    i, j = wb.tid()
    if i > 0 and j > 0:
        y[i, j] = u[i - 1, j] * v[i, j - 1] + u[i, j] * v[i - 1, j - 1] * v[i, j]


@wb.kernel
def staggered(u: wb.array2d(dtype=F), v: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
    i, j = wb.tid()
    div = (u[i + 1, j] - u[i, j]) + (v[i, j + 1] - v[i, j])
    y[i, j] = div * div


@wb.kernel
def cube(u: wb.array3d(dtype=F), y: wb.array3d(dtype=F)):
    i, j, k = wb.tid()
    if i > 0 and j > 0 and k > 0 and i < u.shape[0] - 1 and j < u.shape[1] - 1 and k < u.shape[2] - 1:
        s = u[i - 1, j, k] + u[i + 1, j, k] + u[i, j - 1, k] + u[i, j + 1, k] + u[i, j, k - 1] + u[i, j, k + 1]
        y[i, j, k] = s * u[i, j, k]


@wb.kernel
def curl(v: wb.array2d(dtype=wb.vec3d), y: wb.array2d(dtype=F)):
    i, j = wb.tid()
    if i > 0 and j > 0:
        y[i, j] = wb.dot(wb.cross(v[i, j], v[i - 1, j]), v[i, j - 1])


@wb.kernel
def springs(x: wb.array(dtype=wb.vec3d), f: wb.array(dtype=wb.vec3d)):
    i = wb.tid()
    total = wb.vec3d(F(0.0), F(0.0), F(0.0))
    if i > 0:
        d = x[i - 1] - x[i]
        total += d * wb.length(d)
    if i < x.shape[0] - 1:
        d = x[i + 1] - x[i]
        total += d * wb.length(d)
    f[i] = total


@wb.kernel
def chosen(u: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
    i, j = wb.tid()
    if i < u.shape[0] - 1 and i > 0:
        a = u[i, j]
        if a > F(0.0):
            y[i, j] = a * (a - u[i - 1, j])
        else:
            y[i, j] = a * (u[i + 1, j] - a)


CASES = {
    "line": (line, (9,), [(9,)], (9,)),
    "line of four": (line, (4,), [(4,)], (4,)),
    "grid smaller than the array": (ahead, (5,), [(11,)], (5,)),
    "reads up to the end": (ahead, (8,), [(11,)], (8,)),
    "behind": (behind, (8,), [(8,)], (8,)),
    "plus": (plus, (6, 5), [(6, 5)], (6, 5)),
    "plus, long": (plus, (3, 17), [(3, 17)], (3, 17)),
    "plus on part of the array": (plus, (4, 3), [(6, 5)], (6, 5)),
    "walls on all sides": (walls, (4, 7), [(4, 7)], (4, 7)),
    "walls of one row": (walls, (1, 7), [(1, 7)], (1, 7)),
    "grid larger than the array": (inside, (9, 8), [(6, 5)], (6, 5)),
    "two arrays": (two, (5, 6), [(5, 6), (5, 6)], (5, 6)),
    "two arrays of different shape": (two, (4, 5), [(5, 6), (4, 7)], (4, 5)),
    "staggered": (staggered, (4, 5), [(5, 5), (4, 6)], (4, 5)),
    "cube": (cube, (4, 5, 6), [(4, 5, 6)], (4, 5, 6)),
    "curl": (curl, (4, 5), [(4, 5, 3)], (4, 5)),
    "springs": (springs, (7,), [(7, 3)], (7, 3)),
    "upwind": (chosen, (6, 4), [(6, 4)], (6, 4)),
}


def arrays(kernel, values, out):
    types = [p.type.dtype for p in kernel.program().function.arrays]
    made = [wb.array(v, dtype=t, requires_grad=True) for v, t in zip(values, types, strict=False)]
    return made, wb.array(np.zeros(out), dtype=types[-1])


@pytest.fixture
def way(monkeypatch):
    """Adjoints pull however much is to be worked out anew."""
    monkeypatch.setattr(stencil_adjoint, "PULLED", 1 << 20)


def sizes(monkeypatch, limit):
    """From this many threads on launches are split and cut among workers."""
    monkeypatch.setattr(thresholds, "PARALLEL_FROM", limit)
    monkeypatch.setattr(thresholds, "PULL_FROM", limit)


def forget(kernel) -> None:
    """Its next launch is planned anew: the sizes or the ways are others now."""
    kernel.program().plans.clear()
    kernel.launches = None


def is_split(tape) -> bool:
    return tape.launches[0].reverse.pull is not None


def backward(monkeypatch, kernel, dim, values, out, seed, split: bool, threads: int = 1):
    """The gradients of the inputs, with the adjoint split or whole."""
    sizes(monkeypatch, 1 if split else NEVER)
    wb.config.threads = threads
    forget(kernel)
    xs, y = arrays(kernel, values, out)
    with wb.Tape() as tape:
        wb.launch(kernel, dim=dim, inputs=xs, outputs=[y])
    found = []
    for factor in (3.0, 0.0, 1.0):  # what a walk leaves in its parts must not reach the next one
        for x in xs:
            x.grad.zero_()
        tape.backward(grads={y: wb.array(seed * factor, dtype=y.dtype)})
        found.append([x.grad.numpy().copy() for x in xs])
    assert not any(g.any() for g in found[1])
    for once, thrice in zip(found[2], found[0], strict=True):
        near = 1e-6 if once.dtype == np.float32 else 1e-14
        np.testing.assert_allclose(thrice, 3 * once, rtol=near, atol=near)
    return tape, found[2]


def slopes(kernel, dim, values, out, seed):
    """Central differences of <seed, y> by every input element."""
    wb.config.threads = 1

    def loss() -> float:
        xs, y = arrays(kernel, values, out)
        wb.launch(kernel, dim=dim, inputs=xs, outputs=[y])
        return float((y.numpy() * seed).sum())

    made, h = [], 1e-5
    for v in values:
        g = np.zeros_like(v)
        for at in np.ndindex(v.shape):
            keep = v[at]
            v[at] = keep + h
            up = loss()
            v[at] = keep - h
            g[at] = (up - loss()) / (2 * h)
            v[at] = keep
        made.append(g)
    return made


SCATTERED = {"behind", "springs", "upwind"}  # dear contributions go to several cells


def numbers(case):
    kernel, dim, shapes, out = CASES[case]
    rng = np.random.default_rng(len(case))
    return kernel, dim, [rng.normal(size=s) for s in shapes], out, rng.normal(size=out)


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_a_split_adjoint_is_the_whole_one_and_the_derivative(monkeypatch, way, case):
    kernel, dim, values, out, seed = numbers(case)
    _, whole = backward(monkeypatch, kernel, dim, values, out, seed, False)
    tape, split = backward(monkeypatch, kernel, dim, values, out, seed, True)
    alike = len({v.shape for v in values}) == 1
    assert is_split(tape) or not alike or case in SCATTERED, "this stencil is expected to pull"
    _, shared = backward(monkeypatch, kernel, dim, values, out, seed, True, threads=3)
    for w, s, t, d in zip(whole, split, shared, slopes(kernel, dim, values, out, seed), strict=True):
        np.testing.assert_allclose(s, w, rtol=1e-13, atol=1e-13)
        np.testing.assert_array_equal(t, s)
        np.testing.assert_allclose(w, d, rtol=1e-6, atol=1e-7)


def test_single_precision_agrees_to_rounding(monkeypatch, way):
    @wb.kernel
    def heat(u: wb.array2d(dtype=float), y: wb.array2d(dtype=float)):
        i, j = wb.tid()
        if i > 0 and j > 0 and i < u.shape[0] - 1 and j < u.shape[1] - 1:
            y[i, j] = u[i, j] + 0.1 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - 4.0 * u[i, j])

    rng, size = np.random.default_rng(5), (33, 29)
    u, seed = rng.normal(size=size).astype(np.float32), rng.normal(size=size).astype(np.float32)
    _, (whole,) = backward(monkeypatch, heat, size, [u], size, seed, False)
    tape, (split,) = backward(monkeypatch, heat, size, [u], size, seed, True, threads=2)
    assert is_split(tape) and split.dtype == np.float32
    pull = tape.launches[0].reverse.pull
    assert all(made.box for made in pull.made.values())  # most cells without tests
    np.testing.assert_allclose(split, whole, rtol=1e-6, atol=1e-6)
    s = np.zeros((35, 31))
    s[2:-2, 2:-2] = seed[1:-1, 1:-1]
    want = s + 0.1 * (np.roll(s, 1, 0) + np.roll(s, -1, 0) + np.roll(s, 1, 1) + np.roll(s, -1, 1) - 4 * s)
    np.testing.assert_allclose(split, want[1:-1, 1:-1], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_views_without_contiguous_rows_are_split_exactly(monkeypatch, way):
    rng = np.random.default_rng(7)
    big, seed = rng.normal(size=(8, 9)), rng.normal(size=(6, 7))
    found = []
    for limit in (1, NEVER):
        sizes(monkeypatch, limit)
        forget(walls)
        x, y = wb.array(big, dtype=F, requires_grad=True), wb.zeros((7, 6), dtype=F)
        with wb.Tape() as tape:
            wb.launch(walls, dim=(6, 7), inputs=[x[1:-1, 1:-1]], outputs=[y.T])
        tape.backward(grads={y: wb.array(seed.T.copy(), dtype=F)})
        found.append(x.grad.numpy().copy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-13, atol=1e-13)
    assert not found[0][0].any() and not found[0][:, -1].any() and found[0][1:-1, 1:-1].all()


@pytest.mark.slow
def test_steps_of_a_simulation_through_two_buffers(monkeypatch, way):
    """A hundred steps of a nonlinear stencil, forwards and back, split and whole."""

    @wb.kernel
    def step(u: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
        i, j = wb.tid()
        n = u.shape[0]
        m = u.shape[1]
        v = u[i, j]
        if i > 0 and j > 0 and i < n - 1 and j < m - 1:
            v += F(0.1) * wb.sin(u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - F(4.0) * u[i, j])
        y[i, j] = v

    start, found = np.random.default_rng(3).normal(size=(8, 6)), []
    for limit in (1, NEVER):
        sizes(monkeypatch, limit)
        forget(step)
        u = wb.array(start, dtype=F, requires_grad=True)
        a, b = wb.clone(u), wb.zeros((8, 6), dtype=F)
        with wb.Tape() as tape:
            wb.copy(a, u)
            for _ in range(50):
                wb.launch(step, dim=(8, 6), inputs=[a], outputs=[b])
                wb.launch(step, dim=(8, 6), inputs=[b], outputs=[a])
        tape.backward(grads={a: wb.ones((8, 6), dtype=F)})
        found.append(u.grad.numpy().copy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-11, atol=1e-13)


@wb.kernel
def swing(u: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    if i > 0 and i < u.shape[0] - 1:
        y[i] = 0.3 * (u[i - 1] + u[i + 1]) - wb.sin(u[i]) * wb.exp(u[i])


@wb.kernel
def swing_of_both(u: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    if i > 0 and i < u.shape[0] - 1:
        y[i] = wb.sin(u[i - 1] * u[i + 1])


@wb.kernel
def numbered(u: wb.array(dtype=F), y: wb.array(dtype=F), count: wb.array(dtype=int)):
    i = wb.tid()
    if i > 0 and i < u.shape[0] - 1:
        y[i] = u[i - 1] + F(wb.atomic_add(count, i, 1)) * u[i] + u[i + 1]


@pytest.mark.parametrize(("kernel", "pulled"), [(swing, True), (swing_of_both, False)])
def test_what_is_dear_at_the_own_cell_alone_is_worked_out_in_a_pull(monkeypatch, kernel, pulled):
    rng = np.random.default_rng(8)
    values, seed = [rng.normal(size=37)], rng.normal(size=37)
    _, (whole,) = backward(monkeypatch, kernel, 37, values, 37, seed, False)
    tape, (found,) = backward(monkeypatch, kernel, 37, values, 37, seed, True)
    _, (shared,) = backward(monkeypatch, kernel, 37, values, 37, seed, True, threads=3)
    assert (tape.launches[0].reverse.pull is not None) is (pulled and tape.launches[0].command.plan.form.backend == "c")
    np.testing.assert_allclose(found, whole, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(shared, found)
    np.testing.assert_allclose(found, slopes(kernel, 37, values, 37, seed)[0], rtol=1e-6, atol=1e-7)


def test_what_an_atomic_returned_is_not_asked_for_again(monkeypatch):
    sizes(monkeypatch, 1)
    x, y, count = wb.array(np.arange(9.0), dtype=F, requires_grad=True), wb.zeros(9, dtype=F), wb.full(9, 2, dtype=int)
    with wb.Tape() as tape:
        wb.launch(numbered, 9, [x, y, count])
    tape.backward(grads={y: wb.ones(9, dtype=F)})
    inner = np.r_[0.0, np.ones(7), 0.0]
    expected = 2 * inner + np.r_[inner[1:], 0.0] + np.r_[0.0, inner[:-1]]
    np.testing.assert_array_equal(x.grad.numpy(), expected)
    np.testing.assert_array_equal(count.numpy(), 2 + inner)


# --- forms that are not split


@wb.kernel
def window(x: wb.array(dtype=F), y: wb.array(dtype=F), w: int):
    i = wb.tid()
    s = F(0.0)
    for k in range(w):
        s += x[i + k] * x[i + k]
    y[i] = s


@wb.kernel
def ring(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    n = x.shape[0]
    y[i] = x[(i + 1) % n] * x[(i + n - 1) % n]


@wb.kernel
def last(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[-1]


@wb.kernel
def behind_the_end(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i - 1] * x[i - 1] * x[i]


@wb.kernel
def indirect(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i // 2] * x[2 * i]


@wb.kernel
def turned(u: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
    i, j = wb.tid()
    y[i, j] = u[j, i] * u[i, j]


@wb.kernel
def column(u: wb.array2d(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = u[i, 0] * u[0, i]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kernel", "dim", "shape", "out", "more"),
    [
        (window, 6, (9,), (6,), [4]),
        (ring, 7, (7,), (7,), []),
        (last, 7, (7,), (7,), []),
        (behind_the_end, 7, (7,), (7,), []),
        (indirect, 4, (8,), (4,), []),
        (turned, (5, 5), (5, 5), (5, 5), []),
        (column, 5, (5, 5), (5,), []),
    ],
)
def test_other_forms_are_left_whole_and_exact(monkeypatch, kernel, dim, shape, out, more):
    sizes(monkeypatch, 1)
    wb.config.threads = 3
    forget(kernel)
    rng = np.random.default_rng(2)
    values, seed = rng.normal(size=shape), rng.normal(size=out)

    def forward(v):
        x, y = wb.array(v, dtype=F, requires_grad=True), wb.zeros(out, dtype=F)
        wb.launch(kernel, dim=dim, inputs=[x, y, *more])
        return x, y

    with wb.Tape() as tape:
        x, y = forward(values)
    assert not is_split(tape)
    tape.backward(grads={y: wb.array(seed, dtype=F)})
    for at in np.ndindex(shape):
        up, down = values.copy(), values.copy()
        up[at] += 1e-5
        down[at] -= 1e-5
        slope = ((forward(up)[1].numpy() - forward(down)[1].numpy()) * seed).sum() / 2e-5
        np.testing.assert_allclose(x.grad.numpy()[at], slope, rtol=1e-6, atol=1e-8)


# --- whole time loops: shadows that nobody asks for are stored to, not cleared first, and given up when done


@wb.kernel
def wave(u: wb.array2d(dtype=F), before: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
    i, j = wb.tid()
    if i > 0 and j > 0 and i < u.shape[0] - 1 and j < u.shape[1] - 1:
        lap = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - F(4.0) * u[i, j]
        y[i, j] = F(2.0) * u[i, j] - before[i, j] + F(0.1) * lap


def wave_gradients(start, rows: bool, asked: bool, steps: int = 5):
    """The gradient of a wave kept in one array or in many, by its start; two of its fields are seeded."""
    n, m = start.shape
    if rows:
        kept = wb.zeros((steps + 2, n, m), dtype=F, requires_grad=asked)
        u = [kept[t] for t in range(steps + 2)]
    else:
        u = [wb.zeros((n, m), dtype=F, requires_grad=asked) for _ in range(steps + 2)]
    x = wb.array(start, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        for t in (0, 1):
            wb.copy(u[t], x)
        for t in range(steps):
            wb.launch(wave, dim=(n, m), inputs=[u[t + 1], u[t]], outputs=[u[t + 2]])
    found = []
    for _ in range(2):
        x.grad.zero_()
        tape.backward(grads={u[-1]: wb.array(start[::-1].copy(), dtype=F), u[3]: wb.ones((n, m), dtype=F)})
        found.append(x.grad.numpy().copy())
    np.testing.assert_array_equal(found[0], found[1])
    return found[0]


@pytest.mark.sampled
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_a_time_loop_has_the_same_gradient_however_its_shadows_are_kept(monkeypatch, way, rows, asked):
    start = np.random.default_rng(1).normal(size=(24, 19))
    sizes(monkeypatch, NEVER)
    whole = wave_gradients(start, False, True)
    sizes(monkeypatch, 1)
    forget(wave)
    np.testing.assert_allclose(wave_gradients(start, rows, asked), whole, rtol=1e-12, atol=1e-12)
    forget(wave)


@pytest.mark.slow
def test_the_wave_gradient_is_its_derivative(monkeypatch):
    sizes(monkeypatch, 1)
    start = np.random.default_rng(1).normal(size=(9, 8))
    gradient, v = wave_gradients(start, False, False), np.random.default_rng(2).normal(size=(9, 8))

    def loss(s):  # linear in s: the seeds come from `start` all the while
        u = [s, s]
        for _ in range(5):
            y = np.zeros_like(s)
            lap = u[-1][:-2, 1:-1] + u[-1][2:, 1:-1] + u[-1][1:-1, :-2] + u[-1][1:-1, 2:] - 4 * u[-1][1:-1, 1:-1]
            y[1:-1, 1:-1] = 2 * u[-1][1:-1, 1:-1] - u[-2][1:-1, 1:-1] + 0.1 * lap
            u.append(y)
        return (u[-1] * start[::-1]).sum() + u[3].sum()

    np.testing.assert_allclose((gradient * v).sum(), loss(v), rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0, 1])
def test_one_array_given_twice_is_one_array(monkeypatch, way, offset):
    """offset=1: two views that overlap without being the same."""
    rng = np.random.default_rng(5)
    start, seed = rng.normal(size=(13, 11)), wb.array(rng.normal(size=(12, 11)), dtype=F)
    found = []
    for limit in (1, NEVER):
        sizes(monkeypatch, limit)
        forget(walls_of_two)
        u, y = wb.array(start, dtype=F, requires_grad=True), wb.zeros((12, 11), dtype=F)
        with wb.Tape() as tape:
            wb.launch(walls_of_two, dim=(12, 11), inputs=[u[:12], u[offset : 12 + offset]], outputs=[y])
        tape.backward(grads={y: seed})
        back = tape.launches[0].reverse
        assert (back.pull is not None) == (limit == 1 and offset == 0)
        found.append(u.grad.numpy().copy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-12)
    assert found[0].any()


@wb.kernel
def walls_of_two(u: wb.array2d(dtype=F), w: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
    i, j = wb.tid()
    v = w[i, j] * F(2.0)
    if i > 0 and j > 0 and i < 11 and j < 10:
        v += u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] * F(3.0) + w[i, j + 1]
    y[i, j] = v


@wb.kernel
def doubled(
    u: wb.array(dtype=F), v: wb.array(dtype=F), a: wb.array(dtype=F), b: wb.array(dtype=F), y: wb.array(dtype=F)
):
    i = wb.tid()
    u[i] = v[i] * F(5.0)
    y[i] = v[i] * v[i] * a[i] * b[i]


def test_what_is_written_under_two_names_stays_so_where_another_array_is_given_twice():
    u, a, y = (wb.array(np.array(v), dtype=F, requires_grad=True) for v in ([2.0, 3.0], [1.0, 1.0], [0.0, 0.0]))
    with wb.Tape() as tape:
        wb.launch(doubled, 2, inputs=[u, u, a, a, y])
    tape.backward(grads={y: wb.ones(2, dtype=F)})
    assert y.numpy().tolist() == [100.0, 225.0]
    assert u.grad.numpy().tolist() == [100.0, 150.0] and a.grad.numpy().tolist() == [200.0, 450.0]


@wb.kernel
def counted(k: wb.array(dtype=int), again: wb.array(dtype=int), x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    if i > 0:
        k[i] = again[i] + 3
        y[i] = x[i] * x[i] * F(again[i])


def test_a_border_left_out_keeps_what_is_written_under_two_names(monkeypatch):
    sizes(monkeypatch, 1)
    forget(counted)
    k, x, y = wb.zeros(40, dtype=int), wb.array(np.full(40, 2.0), dtype=F, requires_grad=True), wb.zeros(40, dtype=F)
    with wb.Tape() as tape:
        wb.launch(counted, 40, inputs=[k, k, x, y])
    tape.backward(grads={y: wb.ones(40, dtype=F)})
    assert tape.launches[0].reverse.executable.box
    assert x.grad.numpy().tolist() == [0.0] + 39 * [12.0]


@wb.kernel
def scaled_neighbours(u: wb.array2d(dtype=Any), y: wb.array2d(dtype=Any), a: Any, b: Any):
    i, j = wb.tid()
    if i > 0 and j > 0 and i < u.shape[0] - 1 and j < u.shape[1] - 1:
        y[i, j] = a * u[i - 1, j] + b * u[i, j + 1] + a * (u[i, j] - u[i + 1, j])


@pytest.mark.parametrize("dtype", [wb.float32, wb.float64])
@pytest.mark.parametrize("a", [0.3, 0.0, -0.0, np.inf, -np.inf, np.nan])
def test_numbers_of_the_launch_that_are_not_finite_leave_adjoints_of_zero_zero(a, dtype, monkeypatch):
    """The box has a body of its own for numbers that are finite and not 0."""
    monkeypatch.setattr(thresholds, "PULL_FROM", 0)
    seed = np.random.default_rng(3).normal(size=(9, 40)).astype(dtype.numpy)
    seed[2:7, 10:20], seed[2:7, 12:16] = 0.0, -0.0
    seed[4, 30:32] = np.finfo(dtype.numpy).smallest_subnormal * np.array([1, -1])
    found = []
    for backend in ("c", "numpy"):
        wb.config.backend = backend
        u = wb.array(np.ones((9, 40)), dtype=dtype, requires_grad=True)
        y = wb.zeros((9, 40), dtype=dtype)
        with wb.Tape() as tape:
            wb.launch(scaled_neighbours, (9, 40), [u, y, dtype(a), dtype(-0.2)])
        with np.errstate(invalid="ignore"):
            tape.backward(grads={y: wb.array(seed, dtype=dtype)})
        found.append(u.grad.numpy())
    eps = np.finfo(dtype.numpy).eps
    np.testing.assert_allclose(*found, rtol=8 * eps, atol=8 * eps)  # sums in another order
    for g in found:
        assert not g[3:6, 11:19].any() and not np.signbit(g[3:6, 11:19]).any()
        assert np.isfinite(g).all() == bool(np.isfinite(a))


@wb.kernel
def step(v: wb.array(dtype=wb.vec2), f: wb.array(dtype=wb.vec2), dt: float, drag: float, out: wb.array(dtype=wb.vec2)):
    i = wb.tid()
    w = drag * (v[i] + dt * f[i])
    out[i] = w * w[0]


@pytest.mark.parametrize("dt", [0.3, 0.0, np.inf, np.nan])
@pytest.mark.parametrize("drag", [0.7, -0.0, -np.inf])
def test_every_number_of_the_launch_must_be_finite_for_products_without_tests(dt, drag):
    rng = np.random.default_rng(4)
    v, f, seed = (rng.normal(size=(50, 2)).astype(np.float32) for _ in range(3))
    v[::3], f[::3], seed[::5], seed[1::5] = 0.0, -0.0, 0.0, -0.0
    seed[2::5] = np.finfo(np.float32).smallest_subnormal
    found = []
    for backend in ("c", "numpy"):
        wb.config.backend = backend
        x, y = (wb.array(a, dtype=wb.vec2, requires_grad=True) for a in (v, f))
        out = wb.zeros(50, dtype=wb.vec2)
        with wb.Tape() as tape:
            wb.launch(step, 50, [x, y, dt, drag, out])
        with np.errstate(invalid="ignore", over="ignore"):
            tape.backward(grads={out: wb.array(seed, dtype=wb.vec2)})
        found.append(np.stack([x.grad.numpy(), y.grad.numpy()]))
    np.testing.assert_array_equal(*found)
    assert not found[0][:, ::5].any() and not found[0][:, 1::5].any(), "adjoints of zero stay zero"
