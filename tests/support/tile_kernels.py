"""Kernels over tiles, one for each thing that tiles can do: from x (9 x 7) to y (8 x 8), a block at a time."""

from __future__ import annotations

from typing import Any

import workbench as wb

F = wb.float64
N = wb.constant(4)
KERNELS: dict[str, wb.Kernel] = {}


def case(function):
    KERNELS[function.__name__] = wb.kernel(function)
    return KERNELS[function.__name__]


@wb.func
def bent(a: F, b: F):
    if a > b:
        return wb.sin(a) * b
    total = a
    for _ in range(3):
        total = total * b + wb.cos(total)
    return total


@wb.func
def smooth_max(a: F, b: F):
    return wb.log(wb.exp(a) + wb.exp(b))


@case
def load_and_store(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 4), offset=(i * 4 + 2, j * 4))
    wb.tile_store(y, t * t, offset=(i * 4, j * 4))


@case
def beyond_the_end(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(5, 5), offset=(i * 5, j * 5))
    wb.tile_atomic_add(y, t * 2.0 + 1.0, offset=(i * 5, j * 5))


@case
def rows_of_arrays(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_load(x[i], shape=3, offset=j * 3)
    wb.tile_store(y[i], t * t * t, offset=j * 3)


@case
def in_place_in_memory(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    wb.tile_store(y, wb.tile_load(x, shape=(4, 4)), offset=(i * 4, j * 4))
    for k in range(2):
        t = wb.tile_load(y, shape=(4, 4), offset=(i * 4, j * 4))
        wb.tile_store(y, t * t + 0.25 * t, offset=(i * 4, j * 4))
        y[i * 4 + k, j * 4] = y[i * 4 + k, j * 4 + 1] * F(1.5)


@case
def operators(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    a = wb.tile_load(x, shape=(4, 4), offset=(i * 4, j * 3))
    b = wb.tile_load(x, shape=(4, 4), offset=(i, j))
    s = x[i, j]
    c = -(a * b - a / (b * b + 2.0)) + s * a - b * 0.5 + a / (s * s + F(1.0))
    c += a
    c -= 3.0 * b
    c *= a
    wb.tile_store(y, c, offset=(i * 4, j * 4))


@case
def maps(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    a = wb.tile_load(x, shape=(4, 4), offset=(i * 4, j * 3))
    b = wb.tile_map(wb.sin, a)
    c = wb.tile_map(bent, a, b)
    d = wb.tile_map(wb.max, c, x[i, j])
    wb.tile_store(y, d + wb.tile_map(smooth_max, b, c), offset=(i * 4, j * 4))


@case
def elements(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 4), offset=(i * 4, j * 3))
    total = t[0, 0]
    for k in range(1, 4):
        t[k, 0] = t[k - 1, 0] * t[0, k] + t[k, k]
        t[k, -1] += total * t[k, 1]
        if t[k, 2] > F(0.1):
            t[k, 2] = wb.sin(t[k, 0])
            total += wb.tile_extract(t, k, 2)
    t[wb.int32(total * F(0.0)), 3] *= total
    wb.tile_store(y, t, offset=(i * 4, j * 4))


@case
def sums(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 5), offset=(i * 4, j * 2))
    s = wb.tile_sum(t * t)
    rows = wb.tile_sum(t, axis=1)
    cols = wb.tile_sum(t, axis=0)
    y[i * 4, j * 4] = s[0] * wb.untile(wb.tile_sum(rows * rows)) + cols[4]
    wb.tile_store(y[i * 4 + 1], rows * rows[0], offset=j * 4)
    wb.tile_atomic_add(y[i * 4 + 2], wb.tile_dot(cols, cols), offset=j * 4)


@case
def forms(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 3), offset=(i * 4, j * 3))
    turned = wb.tile_transpose(t * t)
    flat = wb.tile_reshape(turned, shape=(2, -1))
    row = wb.tile_view(flat, offset=(1, 2), shape=(1, 4))
    wide = wb.tile_broadcast(row, shape=(4, 4))
    column = wb.tile_reshape(wb.tile_squeeze(row), shape=(4, 1))
    out = wide * wb.tile_broadcast(column, shape=(4, 4))
    wb.tile_assign(out, wb.tile_view(t, offset=(i, 1), shape=(2, 2)) * 3.0, offset=(1, j))
    wb.tile_store(y, out, offset=(i * 4, j * 4))


@case
def products(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    out = wb.tile_zeros(shape=(4, 4), dtype=F)
    for k in range(2):
        a = wb.tile_load(x, shape=(4, 3), offset=(i * 4, k * 3))
        b = wb.tile_load(x, shape=(3, 4), offset=(k * 3, j * 3))
        wb.tile_matmul(a, b, out)
    wb.tile_matmul(out, wb.tile_matmul(out, out, alpha=0.5), out, alpha=0.1, beta=2.0)
    wb.tile_store(y, out, offset=(i * 4, j * 4))


@case
def extremes(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 3), offset=(i * 4, j * 3))
    low, high = wb.tile_min(t), wb.tile_max(t * t)
    at = wb.tile_argmin(t)
    y[i * 4, j * 4] = low[0] * high[0] + F(at[0] + wb.tile_argmax(t)[0])
    y[i * 4, j * 4 + 1] = wb.tile_reduce(smooth_max, t)[0] + wb.tile_reduce(wb.add, t)[0]


@case
def orders(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    keys = wb.tile_load(x[i], shape=4)
    values = wb.tile_load(x[j + 2], shape=4, offset=2) * 2.0
    wb.tile_sort(keys, values)
    wb.tile_store(y[i], wb.tile_scan_inclusive(values * keys) - wb.tile_scan_exclusive(keys), offset=j * 4)


@case
def factors(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 4), offset=(i * 4, j * 3))
    a = wb.tile_diag_add(wb.tile_matmul(t, wb.tile_transpose(t)), wb.tile_ones(shape=4, dtype=F) * 3.0)
    low = wb.tile_cholesky(a)
    up = wb.tile_cholesky(a, fill_mode="upper")
    s = wb.tile_cholesky_solve(low, wb.tile_load(x[i], shape=4))
    m = wb.tile_lower_solve(low, t)
    wb.tile_upper_solve_inplace(up, m)
    for k in range(4):
        m[k, k] += s[k]
    wb.tile_store(y, m + wb.tile_cholesky_solve(up, t, fill_mode="upper"), offset=(i * 4, j * 4))


@case
def by_index(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    rows = wb.tile_arange(0, 8, 2, dtype=int)
    t = wb.tile_load_indexed(x, indices=rows, shape=(4, 3), offset=(0, j * 3), axis=0)
    twice = wb.tile_zeros(shape=4, dtype=int)
    twice[2] = 1
    u = wb.tile_load_indexed(x, indices=twice, shape=(4, 3), offset=(0, 1), axis=0)
    wb.tile_atomic_add_indexed(y, indices=twice, t=t * u, offset=(0, j * 4 + i), axis=0)


@case
def stored_twice(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    places = wb.tile_zeros(shape=4, dtype=int) + i * 4
    places[1] = i * 4 + 1
    t = wb.tile_load(x, shape=(4, 3), offset=(i, j))
    wb.tile_store_indexed(y, indices=places, t=t * t, offset=(0, j * 4), axis=0)


@case
def branches(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 4), offset=(i * 4, j * 3))
    u = wb.tile_full(shape=(4, 4), value=x[i, j])
    k = 0
    while k < 3:
        if x[k, i] > F(0.0):
            t, u = u, t * u
        else:
            t[k, k] = u[k, j]
        k += 1
        if u[0, 0] > F(3.0):
            break
    wb.tile_axpy(x[0, 0], t, u)
    wb.tile_scatter_add(u, 1, j, x[1, 1], x[0, 1] > F(0.0))
    wb.tile_scatter_masked(u, 2, j, x[1, 2], True)
    wb.tile_store(y, u, offset=(i * 4, j * 4))


@case
def types(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 4), offset=(i * 4, j * 3))
    bits = (wb.tile_arange(0, 4, 1) << 2 | wb.tile_full(shape=4, value=3)) ^ 5
    row = wb.tile_astype(bits & 7, dtype=F)
    whole = wb.tile_broadcast(row, shape=(4, 4)) * t
    one = wb.tile(x[i, j])
    wb.tile_store(
        y, whole + wb.tile_from_thread(shape=(4, 4), value=wb.untile(one), thread_idx=0), offset=(i * 4, j * 4)
    )


@case
def running_extremes(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 3), offset=(i * 4, j * 3))
    wb.tile_store(y, wb.tile_scan_max_inclusive(t) * t - wb.tile_scan_min_inclusive(t), offset=(i * 4, j * 4))


@case
def reduced_along_axes(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_reshape(wb.tile_load(x, shape=(4, 6), offset=(i * 4, j)), shape=(2, 3, 4))
    a, b, c = wb.tile_reduce(smooth_max, t, axis=0), wb.tile_reduce(wb.mul, t, axis=1), wb.tile_sum(t, axis=-1)
    d = wb.tile_reduce(lambda p, q: p * x[i, j] + wb.sin(q), t, axis=2)
    wb.tile_store(y, wb.tile_transpose(a)[:, 0:3] * a[2, 3], offset=(i * 4, j * 4))
    wb.tile_store(y, b * b, offset=(i * 4, j * 4))
    y[i * 4 + 2, j * 4 + 3] = wb.tile_sum(c * d)[0]


@case
def parts_by_slices(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 4), offset=(i * 4, j * 3))
    u = t * 1.0
    u[0] = t[1] * t[-1]
    u[1:3, 1] = t[2, 0:2] * 2.0
    u[i + 2] += t[j]
    u[3, :2] = x[i, j]
    t[:, 3] = u[0] * t[0, 0]
    wb.tile_store(y, u + t, offset=(i * 4, j * 4))
    y[i * 4, j * 4] = wb.tile_sum(t[:, 0] * t[1:, 2:][i, j])[0] * F(t.shape[0] + t.size)


@case
def random_tiles(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    rng = wb.rand_init(7, i * 2 + j)
    a = wb.tile_astype(wb.tile_randf(shape=(4, 4), rng=rng), dtype=F)
    b = wb.tile_astype(wb.tile_randi(shape=(4, 4), rng=rng, min=-3, max=4), dtype=F)
    c = wb.tile_astype(wb.tile_randf(shape=(4, 4), rng=rng, min=-1.0, max=2.0), dtype=F)
    wb.tile_store(y, (a + b + c) * wb.tile_load(x, shape=(4, 4), offset=(i, j)), offset=(i * 4, j * 4))


@wb.func
def any_square(t: wb.tile(dtype=Any, shape=Any), a: Any):
    return t * t + a


@wb.func
def fixed(t: wb.tile[F, 4, 4], u: wb.tile(dtype=F, shape=(4,))):
    return t * wb.tile_broadcast(u, shape=(4, 4))


@case
def funcs_of_tiles(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_load(a=x, shape=(4, 4), offset=(i * 4, j * 3), storage="shared", bounds_check=False, aligned=False)
    u = fixed(any_square(t, x[i, j]), any_square(t[1], F(0.5)))
    wb.tile_add_inplace(u, 1, j, t[0, 0])
    wb.tile_sub_inplace(u, i, 2, t[0, 1] * u[0, 0])
    wb.tile_store(y, u, offset=(i * 4, j * 4), bounds_check=True)


@case
def stacks(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    s = wb.tile_stack(capacity=5, dtype=F)
    for k in range(7):
        place = wb.tile_stack_push(s, x[k, i] * x[i, k - 1], x[k, j] > F(-0.4))
        if place == 2:
            above, _ = wb.tile_stack_pop(s)
            wb.tile_stack_push(s, above * above + x[0, k], True)
    k = 0
    total = F(1.0)
    while wb.tile_stack_count(s) > 0:
        value, slot = wb.tile_stack_pop(s)
        total = total * value + F(slot)
        y[i * 4 + k % 4, j * 4] = total
        k += 1
    wb.tile_stack_clear(s)
    gone, slot = wb.tile_stack_pop(s)
    y[i * 4 + 1, j * 4 + 1] = gone + F(slot) * total


@wb.func
def raised(t: wb.tile(dtype=Any, shape=Any), u: wb.tile(dtype=Any, shape=Any)):
    t += t * u
    u[1, 0] = t[0, 1] * F(0.5)


@case
def shared(x: wb.array2d[F], y: wb.array2d[F]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 4), offset=(i * 4, j * 3))
    v = wb.tile_view(t, offset=(0, 1), shape=(2, 2))
    for k in range(3):
        w = wb.tile_view(t, offset=(k, 0), shape=(2, 2))
        raised(w, v)
        if v[0, 0] > F(0.0):
            r = wb.tile_transpose(v)
            r[1, 0] += w[0, 0] * t[3, k]
        t[k, 3] *= v[1, 1] + F(0.5)
    row = t[2]
    row += t[0]
    wb.tile_store(y, t + wb.tile_transpose(t), offset=(i * 4, j * 4))
