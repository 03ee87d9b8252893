"""Kernels over tiles of vectors, matrices, quaternions and structs: from x to y, a block at a time, all in float64."""

from __future__ import annotations

import workbench as wb

F, V2, V3, M22 = wb.float64, wb.vec2d, wb.vec3d, wb.mat22d
Q = wb.quatd
KERNELS: dict[str, wb.Kernel] = {}
FORMS: dict[str, tuple] = {}  # of a kernel: type and shape of x, type and shape of y


def case(*form):
    def enter(function):
        KERNELS[function.__name__] = made = wb.kernel(function)
        FORMS[function.__name__] = form
        return made

    return enter


@wb.struct
class Body:
    at: V3
    mass: F


@wb.func
def pull(a: V3, b: V3):
    d = b - a
    return d / (wb.dot(d, d) + F(0.5))


@wb.func
def heavier(a: Body, b: Body):
    out = Body()
    out.at = a.at * b.mass + b.at
    out.mass = a.mass + b.mass * b.at[1]
    return out


@case(V3, (9, 7), V3, (8, 8))
def vectors_in_memory(x: wb.array2d[V3], y: wb.array2d[V3]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 4), offset=(i * 4 + 2, j * 4))
    u = wb.tile_load(x[i], shape=4, offset=2)
    wb.tile_atomic_add(y, t * 2.0 - wb.tile_broadcast(u, shape=(4, 4)), offset=(i * 4, j * 4))
    wb.tile_atomic_add(y, wb.tile_transpose(t), offset=(i * 4 + 2, j * 4))


@case(V3, (9, 7), V3, (8, 8))
def vectors_mapped(x: wb.array2d[V3], y: wb.array2d[V3]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(3, 4), offset=(i * 4, j * 3))
    p = x[i, j]
    a = wb.tile_map(pull, t, p)
    n = wb.tile_map(wb.dot, a, t)
    b = wb.tile_map(lambda v, s: v * s + wb.cross(v, p), a, n)
    wb.tile_store(y, a * n - b / F(3.0) + t * p[0], offset=(i * 4, j * 4))


@case(V3, (9, 7), V3, (8, 8))
def vector_elements(x: wb.array2d[V3], y: wb.array2d[V3]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 4), offset=(i * 4, j * 3))
    for k in range(1, 4):
        t[k, 0] = wb.cross(t[k - 1, 0], t[0, k]) + t[k, k]
        t[k, -1] += t[k, 1] * t[k, 2][0]
        t[k, 1][2] = t[k, 0].x * F(0.5)
        t[k, 2].y += t[k, 0][1]
        if t[k, 2][0] > F(0.1):
            t[k, 2] *= F(1.5)
    t[3] = t[2]
    t[0:2, 1:3] = t[1:3, 0:2] * 2.0
    wb.tile_scatter_add(t, 1, j, x[1, 1], x[0, 1][0] > F(0.0))
    wb.tile_assign(t, wb.tile_view(t * 3.0, offset=(i, 1), shape=(2, 2)), offset=(1, j))
    wb.tile_store(y, -t, offset=(i * 4, j * 4))


@case(V3, (9, 7), V3, (8, 8))
def vector_sums(x: wb.array2d[V3], y: wb.array2d[V3]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 5), offset=(i * 4, j * 2))
    s, rows, cols = wb.tile_sum(t), wb.tile_sum(t, axis=1), wb.tile_sum(t, axis=0)
    y[i * 4, j * 4] = wb.untile(s) * wb.tile_dot(t, t)[0] + wb.cross(cols[4], rows[1])
    y[i * 4, j * 4 + 1] = wb.tile_reduce(pull, t)[0]
    wb.tile_store(y[i * 4 + 1], wb.tile_reduce(pull, t, axis=1), offset=j * 4)
    wb.tile_axpy(x[i, 0][1], rows, rows)
    wb.tile_store(y[i * 4 + 2], wb.tile_scan_inclusive(rows), offset=j * 4)


@case(V3, (9, 7), V3, (8, 8))
def vectors_sorted(x: wb.array2d[V3], y: wb.array2d[V3]):
    i, j = wb.tid()
    v = wb.tile_load(x[i], shape=4, offset=j)
    keys = wb.tile_map(wb.length, v)
    wb.tile_sort(keys, v)
    wb.tile_store(y[i], v * keys, offset=j * 4)
    rows = wb.tile_arange(0, 8, 2, dtype=int)
    t = wb.tile_load_indexed(x, indices=rows, shape=(4, 3), offset=(0, j * 3), axis=0)
    wb.tile_atomic_add_indexed(y, indices=rows // 2 + 2, t=t, offset=(0, j * 4 + i), axis=0)


@case(V3, (9, 7), V3, (8, 8))
def vectors_of_threads(x: wb.array2d[V3], y: wb.array2d[V3]):
    i, j = wb.tid()
    plain, whole = wb.tile(x[i, j]), wb.tile(x[i, j + 1], preserve_type=True)
    y[i, j] = wb.untile(plain * plain) + wb.untile(whole) * wb.tile_extract(plain, 1, 0)
    t = wb.tile_full(shape=(2, 2), value=x[j, i]) + wb.tile_ones(shape=(2, 2), dtype=V3)
    wb.tile_store(y, t + wb.tile_zeros(shape=(2, 2), dtype=V3), offset=(2 + 2 * i, 2 * j))


@case(M22, (6, 6), V2, (6, 6))
def matrices(x: wb.array2d[M22], y: wb.array2d[V2]):
    i, j = wb.tid()
    a = wb.tile_load(x, shape=(2, 3), offset=(2 * i, 3 * j))
    v = wb.tile_map(lambda m: wb.vec2d(m[0, 1], m[1, 0]), wb.tile_load(x, shape=(2, 3), offset=(i, j)))
    a[0, 1] = a[1, 0] * a[0, 2]
    a[1, 1][0, 1] = F(2.0) * v[0, 0][1]
    wb.tile_store(y, a * v + wb.tile_map(wb.mul, wb.tile_map(wb.transpose, a), v), offset=(3 * i, 3 * j))


@case(Q, (6, 6), V3, (6, 6))
def quaternions(x: wb.array2d[Q], y: wb.array2d[V3]):
    i, j = wb.tid()
    q = wb.tile_map(wb.normalize, wb.tile_load(x, shape=(2, 3), offset=(2 * i, 3 * j)))
    r = wb.tile_map(wb.mul, q, wb.tile_reshape(q, shape=(2, 3)))
    v = wb.tile_full(shape=(2, 3), value=wb.vec3d(x[i, j][0], x[j, i][1], F(0.5)))
    wb.tile_store(y, wb.tile_map(wb.quat_rotate, r, v), offset=(3 * i, 3 * j))


@case(V3, (9, 7), V3, (8, 8))
def structs(x: wb.array2d[V3], y: wb.array2d[V3]):
    i, j = wb.tid()
    first = Body()
    first.at = x[i, j]
    first.mass = F(0.3)
    t = wb.tile_full(shape=(4,), value=first)
    for k in range(4):
        b = t[k]
        b.at = wb.cross(b.at, x[k, j])
        b.mass = b.mass * x[k, i][2] + F(k)
        t[k] = b
    t[3] = t[1]
    last = wb.tile_reduce(heavier, t)[0]
    y[i * 4, j * 4] = last.at * last.mass
    both = wb.tile_map(heavier, t, first)
    for k in range(4):
        y[i * 4 + 1, j * 4 + k] = both[k].at + wb.vec3d(both[k].mass)


@case(V3, (9, 7), V3, (8, 8))
def vector_branches(x: wb.array2d[V3], y: wb.array2d[V3]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(4, 4), offset=(i * 4, j * 3))
    u = wb.tile_full(shape=(4, 4), value=x[i, j])
    k = 0
    while k < 3:
        if x[k, i][0] > F(0.0):
            t, u = u, t + u * F(0.3)
        else:
            t[k, k] = u[k, j]
        k += 1
        if u[0, 0][0] > F(2.0):
            break
    wb.tile_store(y, u - t, offset=(i * 4, j * 4))


@case(V2, (6, 8), V2, (6, 8))
def fourier(x: wb.array2d[V2], y: wb.array2d[V2]):
    i, j = wb.tid()
    t = wb.tile_load(x, shape=(3, 4), offset=(3 * i, 4 * j))
    u = wb.tile_load(x, shape=(2, 3), offset=(i, j))
    wb.tile_fft(t)
    t[0, 1] *= x[i, j][0]
    t = wb.tile_map(lambda a: wb.cw_mul(a, a), t)
    wb.tile_ifft(t)
    wb.tile_fft(u)
    u = wb.tile_map(lambda a: wb.vec2d(a[1], a[0] * a[0]), u)
    wb.tile_ifft(u)
    wb.tile_store(y, t, offset=(3 * i, 4 * j))
    wb.tile_atomic_add(y, u, offset=(3 * i, 4 * j))


@case(V3, (9, 7), V3, (8, 8))
def stacks_of_structs(x: wb.array2d[V3], y: wb.array2d[V3]):
    i, j = wb.tid()
    s = wb.tile_stack(capacity=4, dtype=Body)
    for k in range(6):
        b = Body()
        b.at = x[k, i] * x[i, k][0]
        b.mass = x[k, j][1]
        wb.tile_stack_push(s, b, x[j, k][2] > F(-0.5))
    top, place = wb.tile_stack_pop(s)
    low, _ = wb.tile_stack_pop(s)
    y[i * 4, j * 4] = top.at * low.mass + low.at * F(place + wb.tile_stack_count(s))
