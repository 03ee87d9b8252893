"""Names that show one tile: a change in place is seen by all of them, and the gradient is that of the program that ran.

Each kernel has a twin in NumPy, whose views share memory as those of Warp do.
"""

from __future__ import annotations

import ast

import numpy as np
import pytest

import workbench as wb
from workbench.kernels.reading.liveness import live_after

F = wb.float64
N = 4


@wb.func
def raised(t: wb.tile[F, 4, 4], k: int):
    t[k, 0] = t[k, 1] * t[k, 1]
    t += t * F(0.5)


@wb.func
def last_row(t: wb.tile[F, 4, 4]):
    return wb.tile_view(t, offset=(3, 0), shape=(1, 4))


@wb.func
def twice(p: wb.tile[F, 1, 4], t: wb.tile[F, 4, 4]):
    p += p * t[0, 0]
    t[3, 0] += p[0, 1]
    p[0, 2] = t[3, 0]


@wb.kernel
def written_through_views(x: wb.array2d[F], n: int, y: wb.array2d[F]):
    t = wb.tile_load(x, shape=(4, 4))
    v = wb.tile_view(t, offset=(1, 1), shape=(2, 2))
    v[0, 0] = t[0, 0] * v[1, 1]
    t[2, 2] = v[0, 0] * F(3.0)
    u = wb.tile_transpose(v)
    u[0, 1] += v[1, 1] * t[3, 3]
    w = wb.tile_reshape(t, shape=(2, 8))
    w[1, 0] = u[0, 1] * w[0, 1]
    row = t[2]
    row += row * t[0, 1]
    wb.tile_store(y, t + t[2, 0] * wb.tile_transpose(t))


def written_through_views_in_numpy(t, n):
    v = t[1:3, 1:3]
    v[0, 0] = t[0, 0] * v[1, 1]
    t[2, 2] = v[0, 0] * 3.0
    u = v.T
    u[0, 1] += v[1, 1] * t[3, 3]
    w = t.reshape(2, 8)
    w[1, 0] = u[0, 1] * w[0, 1]
    t[2] += t[2] * t[0, 1]
    return t + t[2, 0] * t.T


@wb.kernel
def written_in_loops(x: wb.array2d[F], n: int, y: wb.array2d[F]):
    t = wb.tile_load(x, shape=(4, 4))
    for k in range(n):
        v = wb.tile_view(t, offset=(k, 0), shape=(1, 4))
        for j in range(k):
            u = wb.tile_view(t, offset=(j, 0), shape=(1, 4))
            v += u * t[j, k]
            if v[0, 0] > F(0.0):
                v[0, 1] = v[0, 0] * u[0, 2]
        t[3, k] += v[0, 1]
    wb.tile_store(y, t)


def written_in_loops_in_numpy(t, n):
    for k in range(n):
        v = t[k : k + 1]
        for j in range(k):
            u = t[j : j + 1]
            v += u * t[j, k]
            if v[0, 0] > 0.0:
                v[0, 1] = v[0, 0] * u[0, 2]
        t[3, k] += v[0, 1]
    return t


@wb.kernel
def written_in_while(x: wb.array2d[F], n: int, y: wb.array2d[F]):
    t = wb.tile_load(x, shape=(4, 4))
    v = wb.tile_transpose(t)
    k = int(n * 0)
    while k < n and v[0, 0] < F(50.0):
        v[k, 0] = t[1, k] * t[0, 0]
        if t[0, k] > F(0.3):
            t[2, 2] *= v[2, 2] + F(0.5)
            if k == 2:
                break
        k += 1
    wb.tile_store(y, v + t)


def written_in_while_in_numpy(t, n):
    v, k = t.T, 0
    while k < n and v[0, 0] < 50.0:
        v[k, 0] = t[1, k] * t[0, 0]
        if t[0, k] > 0.3:
            t[2, 2] *= v[2, 2] + 0.5
            if k == 2:
                break
        k += 1
    return v + t


@wb.kernel
def changed_by_funcs(x: wb.array2d[F], n: int, y: wb.array2d[F]):
    t = wb.tile_load(x, shape=(4, 4))
    v = wb.tile_view(t, offset=(1, 0), shape=(1, 4))
    for k in range(n):
        raised(t, k)
        twice(v, t)
    last = last_row(t)
    last[0, 0] = v[0, 0] * v[0, 1]
    twice(t[0:1], t)
    wb.tile_store(y, t)


def changed_by_funcs_in_numpy(t, n):
    def two(p):
        p += p * t[0, 0]
        t[3, 0] += p[0, 1]
        p[0, 2] = t[3, 0]

    v = t[1:2]
    for k in range(n):
        t[k, 0] = t[k, 1] * t[k, 1]
        t += t * 0.5
        two(v)
    t[3, 0] = v[0, 0] * v[0, 1]
    two(t[0:1])
    return t


@wb.kernel
def copies_are_their_own(x: wb.array2d[F], n: int, y: wb.array2d[F]):
    t = wb.tile_load(x, shape=(4, 4))
    u = t
    for k in range(n):
        u[k, 0] = t[k, 1] * F(2.0)
        t[k, 1] += u[0, 0]
        w = u
        w[0, 0] += F(1.0)
        t, u = u, t
        u[1, 1] = t[0, 0] * w[0, 0]
    wb.tile_store(y, t * u + u)


def copies_are_their_own_in_numpy(t, n):
    u = t.copy()
    for k in range(n):
        u[k, 0] = t[k, 1] * 2.0
        t[k, 1] += u[0, 0]
        w = u.copy()
        w[0, 0] += 1.0
        t, u = u, t
        u[1, 1] = t[0, 0] * w[0, 0]
    return t * u + u


@wb.kernel
def solved_in_views(x: wb.array2d[F], n: int, y: wb.array2d[F]):
    m = wb.tile_load(x, shape=(4, 4))
    low = wb.tile_diag_add(m, wb.tile_full(shape=4, value=F(5.0)))
    t = wb.tile_load(x, shape=(4, 4))
    for k in range(n):
        half = wb.tile_view(t, offset=(0, k), shape=(4, 1))
        wb.tile_lower_solve_inplace(low, half)
        wb.tile_upper_solve_inplace(wb.tile_transpose(low), half)
        wb.tile_matmul(low, half, wb.tile_view(t, offset=(0, 3), shape=(4, 1)), alpha=0.25)
        wb.tile_lower_solve_inplace(low, wb.tile_transpose(t))
        wb.tile_assign(t, wb.tile_full(shape=(1, 2), value=half[1, 0]), offset=(2, 2))
    wb.tile_store(y, t)


def solved_in_views_in_numpy(t, n):
    low = np.tril(t + 5.0 * np.eye(N))
    full = t + 5.0 * np.eye(N)
    for k in range(n):
        half = t[:, k : k + 1]
        half[:] = np.linalg.solve(low, half)
        half[:] = np.linalg.solve(np.triu(full.T), half)
        t[:, 3:4] += 0.25 * full @ half
        t[:] = np.linalg.solve(low, t.T).T
        t[2:3, 2:4] = half[1, 0]
    return t


@wb.kernel
def only_read_before(x: wb.array2d[F], n: int, y: wb.array2d[F]):
    t = wb.tile_load(x, shape=(4, 4))
    v = wb.tile_view(t, offset=(0, 0), shape=(2, 2))
    if n > 1:
        v = wb.tile_view(t, offset=(1, 1), shape=(2, 2)) * F(2.0)
    s = v[0, 0]
    t[0, 0] = s * s
    t[1, 1] += s
    wb.tile_store(y, t)


def only_read_before_in_numpy(t, n):
    s = t[1, 1] * 2.0 if n > 1 else t[0, 0]
    t[0, 0] = s * s
    t[1, 1] += s
    return t


@wb.kernel
def stacks_keep_their_count(x: wb.array2d[F], n: int, y: wb.array2d[F]):
    t = wb.tile_load(x, shape=(4, 4))
    stack = wb.tile_stack(capacity=3, dtype=F)
    for k in range(n + 1):
        wb.tile_stack_push(stack, t[k, 0] * t[0, k], t[k, 1] > F(-2.0))
    while wb.tile_stack_count(stack) > 0:
        value, place = wb.tile_stack_pop(stack)
        t[place, 2] += value * F(place + 1)
    wb.tile_store(y, t)


def stacks_keep_their_count_in_numpy(t, n):
    stack = [t[k, 0] * t[0, k] for k in range(n + 1)][:3]
    while stack:
        value = stack.pop()
        t[len(stack), 2] += value * (len(stack) + 1)
    return t


@wb.kernel
def read_by_both_sides(x: wb.array2d[F], n: int, y: wb.array2d[F]):
    a = wb.tile_load(x, shape=(4, 4))
    p = a * F(0.5)
    if a[0, 0] > F(0.3) * F(n) - F(0.5):
        a[2, 1] = p[0, 1] * p[2, 2]
    else:
        a[1, 2] += p[1, 1] * p[0, 3]
    wb.tile_store(y, a + p * p)


def read_by_both_sides_in_numpy(a, n):
    p = a * 0.5
    if a[0, 0] > 0.3 * n - 0.5:
        a[2, 1] = p[0, 1] * p[2, 2]
    else:
        a[1, 2] += p[1, 1] * p[0, 3]
    return a + p * p


TWINS = [
    (k, globals()[f"{k.key}_in_numpy"])
    for k in (
        written_through_views,
        written_in_loops,
        written_in_while,
        changed_by_funcs,
        copies_are_their_own,
        solved_in_views,
        only_read_before,
        stacks_keep_their_count,
        read_by_both_sides,
    )
]
VALUES = np.random.default_rng(3).uniform(-1.0, 1.0, (N, N))
SEED = np.random.default_rng(4).uniform(-1.0, 1.0, (N, N))


def run(kernel, values, n):
    x, y = wb.array(values, dtype=F, requires_grad=True), wb.zeros((N, N), dtype=F)
    with wb.Tape() as tape:
        wb.launch_tiled(kernel, dim=1, inputs=[x, n], outputs=[y], block_dim=32)
    tape.backward(grads={y: wb.array(SEED, dtype=F)})
    return y.numpy().copy(), x.grad.numpy().copy()


@pytest.mark.needs_cc
@pytest.mark.parametrize("backend", ["numpy", "c"])
@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize(("kernel", "twin"), TWINS, ids=lambda k: getattr(k, "key", ""))
def test_what_several_names_show_is_changed_for_all_of_them(kernel, twin, n, backend):
    wb.config.backend = backend
    found, gradient = run(kernel, VALUES, n)
    np.testing.assert_allclose(found, twin(VALUES.copy(), n), rtol=1e-12, atol=1e-13)
    want = np.zeros_like(VALUES)
    for at in np.ndindex(VALUES.shape):
        step = np.zeros_like(VALUES)
        step[at] = 1e-6
        want[at] = ((twin(VALUES + step, n) - twin(VALUES - step, n)) * SEED).sum() / 2e-6
    np.testing.assert_allclose(gradient, want, rtol=1e-6, atol=1e-7)


def test_whether_a_tile_is_read_later_is_found_in_one_pass_over_nested_loops():
    """Three looks at each loop were 3 ** 16 in the innermost of these."""
    depth = 16
    lines = ["def f(n):", "    t = n", *[f"{'    ' * k}for i{k} in range(n):" for k in range(1, depth)]]
    inside = "    " * depth
    for after, live in (("g(t)", True), ("t = n", False)):
        text = ast.parse("\n".join([*lines, f"{inside}t = n", f"{inside}u = n", f"    {after}"])).body[0]
        node = next(n for n in ast.walk(text) if isinstance(n, ast.Assign) and n.targets[0].id == "u")
        assert live_after(text, node, "t") is live
