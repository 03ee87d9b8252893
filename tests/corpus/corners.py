"""Corners: negative and narrow indices, views, custom adjoints, odd spellings."""

import math

import numpy as np

import workbench as wb

from . import floats, given, ints, mat33, program, vec3, vec4, zeros


@program(x=floats(1), y=floats(1), reference=lambda x, y: {"y": y + 4 * x * x})
def threads_that_never_ask_who_they_are(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        y[0] += x[0] * x[0]

    return lambda p: wb.launch(k, dim=4, inputs=[p.x, p.y])


@program(x=floats(4), y=zeros(4))
def a_launch_of_no_threads_between_others(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] * x[i] + y[i]

    def run(p):
        for dim in (4, 0, 2, 0, 4):
            wb.launch(k, dim=dim, inputs=[p.x, p.y])

    return run


@program(x=floats(4), n=ints(-1, -4, 2, -2), y=zeros(4))
def negative_indices_read_and_written(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        y[-1 - i] = x[n[i]] * x[-1] + x[i - 4]
        y[-1 - i] *= y[3 - i]

    return k


@program(x=floats(4), n=ints(-1, -4, 2, -2), dim=1)
def negative_indices_in_place_in_a_loop(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=int)):
        for j in range(6):
            x[n[j % 4]] = x[n[(j + 1) % 4]] * x[-1] + F(0.25)
            x[-2] = x[-2] * x[j - 6 if j > 1 else j]

    return k


def an_index_type(T):
    def make(F):
        @wb.kernel
        def k(x: wb.array(dtype=F), n: wb.array(dtype=T), y: wb.array(dtype=F)):
            i = wb.tid()
            j = n[i]
            s = x[j] * x[n[j]]
            for m in range(j):
                s = s * x[m]
            y[i] = s

        return k

    make.__name__ = f"indices_of_{T}"
    program(x=floats(4), n=given(3, 1, 0, 2, of=T), y=zeros(4))(make)


for _T in (wb.int8, wb.int16, wb.int64, wb.uint8, wb.uint16, wb.uint32, wb.uint64):
    an_index_type(_T)


@program(x=floats(6, 6), y=zeros(3, 2))
def a_strided_block_in_place_in_a_loop(F):
    @wb.kernel
    def k(x: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
        i, j = wb.tid()
        for r in range(i + j + 1):
            x[i, j] = x[i, j] * x[i, j] * F(0.5) + F(0.25)
            y[i, j] += x[i, j] * F(r + 1)

    return lambda p: wb.launch(k, dim=(3, 2), inputs=[p.x[::2, 1::3], p.y])


@program(x=floats(2, 3, 4), y=zeros(3, 2))
def a_permuted_view_of_three_axes(F):
    @wb.kernel
    def k(x: wb.array3d(dtype=F), y: wb.array2d(dtype=F)):
        i, j = wb.tid()
        s = F(0.5)
        for l in range(x.shape[2]):
            s = s * x[i, j, l] + x[i, j, -1]
        y[i, j] = s

    return lambda p: wb.launch(k, dim=(3, 2), inputs=[p.x[:, :, 1:].transpose((1, 0, 2)), p.y])


@program(x=floats(3), y=zeros(3))
def custom_adjoints(F):
    @wb.func
    def f(a: F, b: F):
        return a * a * b

    @wb.func_grad(f)
    def adj_f(a: F, b: F, adj: F):
        wb.adjoint[a] += F(2.0) * a * b * adj
        wb.adjoint[b] += a * a * adj

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for j in range(3):
            s = f(s, x[i]) * F(0.5) + s
        y[i] = s

    return k


@program(x=floats(3), y=zeros(3))
def odd_spellings(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = b = x[i]
        c: F = a * b
        (d, e) = (c, a)
        a = abs(d) + min(a, e) + max(b, c) + pow(a, F(2.0))
        b = math.sin(a) + math.sqrt(b)
        if True:
            b = b * a
        pass
        y[i] = -(-a) * +b  # noqa: B002

    return k


@program(x=floats(3), y=zeros(3))
def a_ternary_guards_an_index(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        right = x[i + 1] if i + 1 < x.shape[0] else x[0]
        left = x[i - 1] if i > 0 else F(0.5)
        y[i] = right * left * x[i]

    return k


@program(x=floats(2, of=mat33), n=ints(2, 1), y=zeros(2, of=mat33))
def rows_of_a_matrix_at_run_time(F):
    M = wb.types.matrix((3, 3), F)

    @wb.kernel
    def k(x: wb.array(dtype=M), n: wb.array(dtype=int), y: wb.array(dtype=M)):
        i = wb.tid()
        m = x[i]
        for j in range(3):
            r = m[(j + n[i]) % 3]
            m[j] = r * m[0, j] + m[n[i]]
        y[i] = m

    return k


@program(x=floats(2, of=vec4), y=zeros(2, of=vec4))
def slices_updated(F):
    V = wb.types.vector(4, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), y: wb.array(dtype=V)):
        i = wb.tid()
        v = x[i]
        v[0:2] += v[2:4]
        v[1:3] *= v[0]
        v[2:4] -= v[0:2] * F(0.5)
        y[i] = v

    return k


@program(x=floats(2, of=mat33), y=zeros(2))
def slices_of_a_matrix(F):
    M = wb.types.matrix((3, 3), F)

    @wb.kernel
    def k(x: wb.array(dtype=M), y: wb.array(dtype=F)):
        i = wb.tid()
        m = x[i]
        a = m[0:2, 1:3]
        c = m[:, 1]
        m[1, :] = c * m[0, 0]
        m[0:2, 0] = m[1:3, 2]
        y[i] = wb.determinant(a) * wb.dot(c, m[1]) + wb.trace(m @ m)

    return k


@program(x=floats(2, of=vec3), h=zeros(2, of=wb.vec3d), y=zeros(2, of=vec3))
def casts_of_vectors(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), h: wb.array(dtype=wb.vec3d), y: wb.array(dtype=V)):
        i = wb.tid()
        d = wb.vec3d(x[i])
        h[i] = d * wb.dot(d, d)
        y[i] = V(h[i]) * x[i][0]

    return k


@program(x=floats(3), y=zeros(3))
def a_struct_handed_to_funcs_with_its_arrays(F):
    @wb.struct
    class Grid:
        u: wb.array(dtype=F)
        v: wb.array(dtype=F)
        h: F

    @wb.func
    def relax(g: Grid, i: int):
        g.u[i] = g.u[i] + g.h * (g.v[i] - g.u[i]) * g.u[i]
        g.h = g.h * F(2.0)
        return g.u[i] * g.h

    @wb.kernel
    def k(g: Grid, y: wb.array(dtype=F)):
        i = wb.tid()
        s = F(0.0)
        for j in range(3):
            s += relax(g, i)
        y[i] = s * g.h + relax(g, i)

    def run(p):
        g = Grid()
        g.u, g.v, g.h = p.x, p.y, 0.25
        z = wb.zeros(3, dtype=F, requires_grad=True)
        wb.launch(k, dim=3, inputs=[g, z])
        wb.copy(p.y, z)

    return run


@program(x=floats(4), y=zeros(4))
def host_numbers_that_change_between_launches(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F), n: int, h: F):
        i = wb.tid()
        for j in range(n):
            y[i] = y[i] * h + x[(i + n) % 4] * y[i] + x[i]

    def run(p):
        for n, h in ((1, 0.5), (3, 0.25), (0, 9.0), (2, -0.75)):
            wb.launch(k, dim=4, inputs=[p.x, p.y, n, h])

    return run


@program(x=floats(3), y=zeros(3))
def constants_written_over_active_values(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i] * x[i]
        y[i] = s
        s = F(2.0)
        for j in range(4):
            s = s * x[i]
            if j == i:
                s = F(1.5)
                y[i] = F(0.25)
            y[i] = y[i] * s + s

    return k


@program(x=floats(4), y=zeros(4))
def a_gradient_free_detour_through_integers(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        at = int(wb.floor(x[i] * F(1.999))) % 4
        s = x[at] * x[i]
        while at < 9:
            at = at + 1 + int(s)
            s = s * F(0.75) + x[at % 4]
        y[i] = s * F(at)

    return k


@program(x=floats(3), y=zeros(3))
def generic_funcs(F):
    from typing import Any

    @wb.func
    def twice(a: Any):
        return a + a

    @wb.func
    def mix(a: Any, b: Any):
        return twice(a) * b

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = mix(x[i], twice(x[i])) + F(twice(i))

    return k


@program(x=floats(3), y=zeros(3))
def loops_in_loops_of_funcs_with_shared_memory(F):
    @wb.func
    def inner(x: wb.array(dtype=F), i: int, n: int):
        for j in range(n):
            x[i] = x[i] * F(0.75) + x[i] * x[i] * F(0.125)
            if x[i] > F(3.0):
                break
        return x[i]

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        n = 0
        while n < 3:
            a = inner(x, i, n + 1)
            b = inner(x, i, 2)
            y[i] = y[i] * a + b
            if y[i] < F(0.75):
                n += 1
                continue
            n += 2
            x[i] = x[i] + a * b

    return k


@program(x=floats(3), y=floats(3))
def select_by_comparison_of_memory(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        hi = wb.max(x[i], y[i])
        lo = wb.min(x[i], y[i])
        x[i] = wb.where(hi * lo > F(1.0), hi * hi, lo)
        y[i] = hi - lo * x[i] if x[i] != lo else hi * lo

    return k


@program(x=floats(4, low=-2.0, high=2.0), y=zeros(4), dtypes=(wb.float32, wb.float64))
def float32_literals_and_doubles(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = 0.5
        b = 3
        y[i] = x[i] * F(a) + F(b) * x[i] * x[i] + F(a * 2.0 + 0.25) * wb.abs(x[i]) + F(wb.float64(0.1))

    return k


@program(
    x=floats(5),
    y=zeros(5),
    w=floats(3),
    reference=lambda x, y, w: {"y": np.convolve(np.pad(x, 1, mode="wrap"), w[::-1], mode="valid") ** 2},
)
def a_convolution_with_shared_weights(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F), w: wb.array(dtype=F)):
        i = wb.tid()
        s = F(0.0)
        for j in range(w.shape[0]):
            s += w[j] * x[(i + j + 4) % 5]
        y[i] = s * s

    return k


@program(x=floats(3, 3), z=floats(3, 3), y=zeros(3, 3))
def a_matrix_product_by_atomics(F):
    @wb.kernel
    def k(x: wb.array2d(dtype=F), z: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
        i, j, l = wb.tid()
        wb.atomic_add(y, i, j, x[i, l] * z[l, j])

    return lambda p: wb.launch(k, dim=(3, 3, 3), inputs=[p.x, p.z, p.y])


@program(x=given(0.7, 1.3, 1.6, 0.2), y=zeros(4))
def effects_inside_conditions(F):
    @wb.func
    def pull(x: wb.array(dtype=F), i: int, v: F):
        x[i] = x[i] * v + F(0.125)
        return x[i]

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        if x[i] > F(1.0) and pull(x, i, F(0.5)) > F(0.5):
            y[i] = x[i] * x[i]
        if x[i] > F(1.0) or pull(x, i, F(1.5)) > F(0.5):
            y[i] += x[i]
        y[i] += pull(x, i, x[i]) if x[i] < F(0.875) else x[i] * F(3.0)
        if F(0.0) < x[i] < pull(x, i, F(0.875)):
            y[i] *= x[i]
        for j in range(2):
            if j == 1 and pull(x, i, F(1.25)) > F(0.25) and x[i] > F(0.25):
                y[i] += pull(x, i, F(0.75)) * x[i]

    return k


@program(x=given(0.7, 1.3, 1.6, 0.2), y=zeros(4))
def effects_in_the_order_of_an_expression(F):
    @wb.func
    def pull(x: wb.array(dtype=F), i: int, v: F):
        x[i] = x[i] * v + F(0.125)
        return x[i]

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] + pull(x, i, F(0.5)) * x[i] - pull(x, i, x[i])
        a, b = x[i], pull(x, i, F(2.0))
        y[i] *= a * b * x[i]

    return k
