"""Memory read and written by one kernel: in place, scratch, scans, swaps, aliases, views."""

import numpy as np

import workbench as wb

from . import floats, ints, program, vec3, zeros


@program(x=floats(4), reference=lambda x: {"x": x * x})
def square_in_place(F):
    @wb.kernel
    def k(x: wb.array(dtype=F)):
        i = wb.tid()
        x[i] = x[i] * x[i]

    return k


@program(x=floats(4))
def square_in_place_twice_and_more(F):
    @wb.kernel
    def k(x: wb.array(dtype=F)):
        i = wb.tid()
        x[i] = x[i] * x[i]
        x[i] = wb.sin(x[i]) * x[i]
        a = x[i]
        x[i] += a * a
        x[i] *= x[i]
        x[i] -= a
        x[i] /= a + x[i] * x[i]

    return k


@program(x=floats(4), y=zeros(4))
def write_read_write(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] * F(2.0)
        a = y[i] * y[i]
        y[i] = a * x[i]
        y[i] = y[i] + a * y[i]

    return k


@program(x=floats(4), y=floats(4))
def read_accumulate_read(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = y[i]
        y[i] += x[i] * a
        b = y[i]
        y[i] += b * b * a
        y[i] -= x[i] * y[i]

    return k


@program(x=floats(6), dim=1)
def scan_inside_one_thread(F):
    @wb.kernel
    def k(x: wb.array(dtype=F)):
        for j in range(1, x.shape[0]):
            x[j] = x[j] * x[j - 1] + x[j - 1] * x[j - 1] * F(0.25)

    return k


@program(x=floats(6), dim=1)
def backward_scan_and_forward_scan(F):
    @wb.kernel
    def k(x: wb.array(dtype=F)):
        n = x.shape[0]
        for j in range(n - 2, -1, -1):
            x[j] = x[j] * x[j + 1]
        for j in range(1, n):
            x[j] = wb.sin(x[j - 1]) + x[j]

    return k


@program(x=floats(5), s=floats(1), y=zeros(5), dim=1)
def scratch_element_reused_in_a_dynamic_loop(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), s: wb.array(dtype=F), y: wb.array(dtype=F)):
        for j in range(x.shape[0]):
            s[0] = x[j] * x[j] + s[0] * F(0.5)
            y[j] = s[0] * wb.sin(s[0])

    return k


@program(x=floats(3), s=zeros(3), y=zeros(3))
def scratch_element_reused_in_nested_loops(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), s: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        for a in range(i + 2):
            s[i] = x[i] * F(a + 1)
            for b in range(3):
                s[i] = s[i] * s[i] * F(0.25) + x[i]
                if s[i] > F(2.0):
                    s[i] = wb.sin(s[i])
            y[i] = y[i] * s[i] + s[i]

    return k


@program(x=floats(3), s=floats(3), y=zeros(3))
def while_over_memory(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), s: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        while s[i] < F(6.0):
            s[i] = s[i] * F(1.25) + x[i] * s[i]
            y[i] = y[i] + s[i] * s[i]
        y[i] = y[i] * s[i]

    return k


@program(x=floats(4), y=floats(4))
def swap_through_memory(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i]
        x[i] = y[i] * y[i]
        y[i] = a * x[i]
        x[i], y[i] = y[i], x[i]

    return k


@program(x=floats(6), dim=1)
def bubble_sort(F):
    @wb.kernel
    def k(x: wb.array(dtype=F)):
        n = x.shape[0]
        for a in range(n):
            for b in range(n - 1 - a):
                if x[b] > x[b + 1]:
                    t = x[b]
                    x[b] = x[b + 1]
                    x[b + 1] = t
        for a in range(n):
            x[a] = x[a] * F(a + 1)

    return k


@program(x=floats(6), dim=1)
def fibonacci_in_memory(F):
    @wb.kernel
    def k(x: wb.array(dtype=F)):
        for j in range(2, x.shape[0]):
            x[j] = x[j - 1] * x[j - 2] + x[j]

    return k


@program(x=floats(5), y=zeros(5))
def the_same_array_as_two_arguments(F):
    @wb.kernel
    def k(a: wb.array(dtype=F), b: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        b[i] = a[i] * a[i]
        y[i] = a[i] * b[i]
        a[i] = y[i] * b[i]

    return lambda p: wb.launch(k, dim=5, inputs=[p.x, p.x, p.y])


@program(x=floats(5))
def one_array_in_and_out(F):
    @wb.kernel
    def k(a: wb.array(dtype=F), b: wb.array(dtype=F)):
        i = wb.tid()
        b[i] = wb.sin(a[i]) * a[i]

    return lambda p: wb.launch(k, dim=5, inputs=[p.x], outputs=[p.x])


@program(x=floats(8))
def overlapping_views_in_one_thread(F):
    @wb.kernel
    def k(a: wb.array(dtype=F), b: wb.array(dtype=F)):
        for j in range(a.shape[0]):
            b[j] = a[j] * b[j]
            a[j] = a[j] + b[j] * b[j] * F(0.25)

    return lambda p: wb.launch(k, dim=1, inputs=[p.x[0:6], p.x[2:8]])


@program(x=floats(8))
def disjoint_views_of_one_array(F):
    @wb.kernel
    def k(a: wb.array(dtype=F), b: wb.array(dtype=F)):
        i = wb.tid()
        b[i] = a[i] * b[i] + a[i]

    def run(p):
        wb.launch(k, dim=4, inputs=[p.x[0:4], p.x[4:8]])
        wb.launch(k, dim=4, inputs=[p.x[0:8:2], p.x[1:8:2]])

    return run


@program(x=floats(8), y=zeros(3))
def a_view_with_a_step_read_and_written(F):
    @wb.kernel
    def k(a: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a[i] = a[i] * a[i]
        y[i] = a[i] * F(3.0)

    return lambda p: wb.launch(k, dim=3, inputs=[p.x[1:8:3], p.y])


@program(x=floats(3, 4), y=zeros(4, 3))
def a_transposed_view_as_argument(F):
    @wb.kernel
    def k(a: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
        i, j = wb.tid()
        y[i, j] = a[i, j] * a[i, j] * F(i + 1)
        a[i, j] = y[i, j] * a[i, j]

    return lambda p: wb.launch(k, dim=(4, 3), inputs=[p.x.transpose(), p.y])


@program(x=floats(4, 3), y=zeros(4))
def columns_of_a_matrix_as_vectors(F):
    @wb.kernel
    def k(a: wb.array(dtype=F), b: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = a[i] * b[i]
        a[i] = b[i] * b[i]

    return lambda p: wb.launch(k, dim=4, inputs=[p.x[:, 0], p.x[:, 2], p.y])


@program(x=floats(3, 4), y=zeros(12))
def reshaped_and_flattened(F):
    @wb.kernel
    def k(a: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = a[i] * a[(i + 1) % 12]

    @wb.kernel
    def square(a: wb.array2d(dtype=F)):
        i, j = wb.tid()
        a[i, j] = a[i, j] * a[i, j]

    def run(p):
        wb.launch(k, dim=12, inputs=[p.x.flatten(), p.y])
        wb.launch(square, dim=(4, 3), inputs=[p.y.reshape((4, 3))])

    return run


@program(x=floats(4, 3), y=zeros(4))
def a_row_of_an_array_inside_a_kernel(F):
    @wb.func
    def total(r: wb.array(dtype=F)):
        s = F(0.0)
        for j in range(r.shape[0]):
            s += r[j] * r[j]
            r[j] = r[j] * s
        return s

    @wb.kernel
    def k(x: wb.array2d(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        row = x[i]
        y[i] = total(row) * row[1] + total(x[i])

    return k


@program(x=floats(3), u=zeros(6, 3), dim=3)
def a_trajectory_row_by_row(F):
    @wb.kernel
    def start(x: wb.array(dtype=F), u: wb.array2d(dtype=F)):
        i = wb.tid()
        u[0, i] = x[i]

    @wb.kernel
    def step(u: wb.array2d(dtype=F), t: int):
        i = wb.tid()
        u[t + 1, i] = u[t, i] + F(0.1) * wb.sin(u[t, i]) * u[t, (i + 1) % 3]

    def run(p):
        wb.launch(start, dim=3, inputs=[p.x, p.u])
        for t in range(5):
            wb.launch(step, dim=3, inputs=[p.u, t])

    return run


@program(x=floats(6), z=zeros(6))
def ping_pong_between_two_buffers(F):
    @wb.kernel
    def k(a: wb.array(dtype=F), b: wb.array(dtype=F)):
        i = wb.tid()
        n = a.shape[0]
        left = a[(i + n - 1) % n]
        b[i] = a[i] + F(0.2) * (left - a[i]) * a[(i + 1) % n]

    def run(p):
        a, b = p.x, p.z
        for _ in range(5):
            wb.launch(k, dim=6, inputs=[a, b])
            a, b = b, a

    return run


@program(x=floats(5), y=floats(5))
def copy_fill_and_zero_between_launches(F):
    @wb.kernel
    def k(a: wb.array(dtype=F), b: wb.array(dtype=F)):
        i = wb.tid()
        b[i] += a[i] * a[i] * b[i]

    def run(p):
        wb.launch(k, dim=5, inputs=[p.x, p.y])
        wb.copy(p.x, p.y)
        wb.launch(k, dim=5, inputs=[p.x, p.y])
        p.x.zero_()
        wb.launch(k, dim=5, inputs=[p.y, p.x])
        p.y.fill_(0.5)
        wb.launch(k, dim=5, inputs=[p.x, p.y])
        wb.launch(k, dim=5, inputs=[p.y, p.x])

    return run


@program(x=floats(4), order=ints(2, 0, 3, 1, 2), y=zeros(4), dim=1)
def memory_addressed_by_data_in_a_loop(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), order: wb.array(dtype=int), y: wb.array(dtype=F)):
        for j in range(order.shape[0]):
            a = order[j]
            x[a] = x[a] * x[(a + 1) % 4] + F(0.5)
            y[a] = y[a] + x[a] * x[a]

    return k


@program(x=floats(4), n=ints(0, 0, 0, 0), y=zeros(4), dim=1)
def integers_computed_in_memory(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        for j in range(4):
            n[j] = (j * 3 + 1) % 4
            n[j] = n[n[j]] + j
            y[j] = x[n[j] % 4] * x[j]

    return k


@program(x=floats(3), n=ints(1, 2, 3), y=zeros(3))
def an_integer_overwritten_after_it_was_used(F):
    @wb.kernel
    def power(x: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        s = F(1.0)
        for j in range(n[i]):
            s = s * x[i]
        n[i] = n[i] + 2
        y[i] += s

    def run(p):
        for _ in range(3):
            wb.launch(power, dim=3, inputs=[p.x, p.n, p.y])

    return run


@program(x=floats(3, of=vec3))
def vectors_in_place(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=V)):
        i = wb.tid()
        x[i] = wb.cross(x[i], V(F(1.0), F(0.5), F(0.25))) * wb.length(x[i])
        x[i][1] = x[i][0] * x[i][2]
        x[i] += x[i] * x[i].y
        x[i].z *= x[i].y

    return k


@program(x=floats(6), y=zeros(3), dim=3)
def threads_with_a_row_of_scratch_each(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = 2 * i
        x[a] = x[a] * x[a + 1]
        for j in range(3):
            x[a + 1] = x[a + 1] * x[a] + F(0.25)
            x[a] = x[a + 1] * F(0.5)
        y[i] = x[a] * x[a + 1]

    return k


@program(x=floats(4), y=zeros(4), reference=lambda x, y: {"y": np.full(4, 3.0)})
def an_array_overwritten_by_constants(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] * x[i]
        y[i] = F(3.0)

    return k


@program(x=floats(4), y=zeros(4))
def a_local_array(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = wb.zeros(shape=4, dtype=F)
        for j in range(4):
            s[j] = x[(i + j) % 4] * F(j + 1)
        for j in range(1, 4):
            s[j] = s[j] * s[j - 1]
        y[i] = s[3] + s[i] * s[0]

    return k
