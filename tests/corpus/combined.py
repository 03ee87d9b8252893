"""Features met together: loops with memory, exits and aliases; structs in loops; components at run-time indices."""

import numpy as np

import workbench as wb

from . import ALL, floats, given, ints, mat22, mat33, program, quat, vec2, vec3, zeros


@program(x=given(0.7, 0.2, 1.4, 0.6), y=zeros(1), dim=1)
def while_whose_condition_guards_an_index(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        j = 0
        s = F(1.0)
        while j < x.shape[0] and x[j] < F(1.0):
            s = s * x[j] + s
            j += 1
        y[0] = s * x[j]

    return k


@program(x=given(0.7, 0.2, 1.4, 0.6), dim=1)
def in_place_loop_with_break_and_continue(F):
    @wb.kernel
    def k(x: wb.array(dtype=F)):
        for r in range(3):
            for j in range(x.shape[0]):
                if x[j] > F(2.0):
                    x[j] = x[j] * F(0.5)
                    if r == 1:
                        break
                    continue
                x[j] = x[j] * x[(j + 1) % 4] + x[j]
                if x[j] < F(0.25) and r > 0:
                    break
            x[0] = x[0] + x[3] * x[1]
            if x[0] > F(4.0):
                break

    return k


@program(x=floats(4), y=zeros(4))
def a_func_that_leaves_a_loop_after_writing_memory(F):
    @wb.func
    def push(x: wb.array(dtype=F), y: wb.array(dtype=F), i: int):
        for j in range(6):
            y[i] = y[i] * F(0.5) + x[j % 4] * x[i]
            if y[i] > F(1.5):
                y[i] = y[i] * x[i]
                return y[i] * F(j + 1)
        return y[i]

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = push(x, y, i)
        y[i] = y[i] * a
        b = push(x, y, i)
        y[i] = y[i] + a * b

    return k


@program(x=given(0.7, 0.2, 1.4, 0.6), y=zeros(4))
def a_return_inside_a_while_inside_a_for(F):
    @wb.func
    def f(x: wb.array(dtype=F), a: F):
        s = a
        for j in range(x.shape[0]):
            n = 0
            while n < 4:
                n += 1
                if n == 2:
                    continue
                s = s + wb.sin(s * x[j])
                if s > F(3.0):
                    return s * s + F(n) * a
                if n == 3 and j == 1:
                    break
            s = s * F(0.5)
        return s

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = F(0.0)
        for r in range(2):
            s = s + f(x, x[i] + F(r)) * x[i]
        y[i] = s

    return k


@program(x=floats(4), y=zeros(4))
def local_arrays_made_in_a_loop(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        total = F(0.0)
        for r in range(i + 1):
            s = wb.zeros(shape=3, dtype=F)
            for j in range(3):
                s[j] = x[(i + j) % 4] + total
            s[r % 3] = s[r % 3] * s[(r + 1) % 3]
            total = total + s[0] * s[1] * F(0.25) + s[2]
        y[i] = total

    return k


@program(x=floats(5), y=zeros(1), dim=1)
def the_loop_variable_after_the_loop(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        s = F(1.0)
        j = 0
        for j in range(5):
            s = s * x[j]
            if s > F(1.0):
                break
        y[0] = s * x[j] * F(j + 1)

    return k


@program(x=floats(4), y=zeros(2), dim=1)
def a_flag_carried_by_a_loop(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        found = False
        at = -1
        s = F(0.0)
        for j in range(4):
            if x[j] > F(1.0) and not found:
                found = True
                at = j
            if found:
                s = s * x[j] + x[at]
            else:
                s = s + x[j] * x[j]
        y[0] = s
        y[1] = x[at] * s if found else s

    return k


@program(x=floats(6), dim=1)
def selection_sort_with_swaps(F):
    @wb.kernel
    def k(x: wb.array(dtype=F)):
        for a in range(6):
            best = a
            for b in range(a + 1, 6):
                if x[b] < x[best]:
                    best = b
            x[a], x[best] = x[best], x[a]
            x[a] = x[a] * F(a + 1)

    return k


@program(x=floats(4), y=floats(4), dim=1)
def an_atomic_then_a_read_in_one_thread(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        for j in range(4):
            wb.atomic_add(y, j % 2, x[j] * x[j])
            x[j] = y[j % 2] * x[j]
            y[j % 2] -= x[j] * F(0.25)
            wb.atomic_sub(x, (j + 1) % 4, y[1] * F(0.125))

    return k


@program(x=floats(2, of=vec3), n=ints(2, 0), y=zeros(2, of=vec3))
def a_whole_vector_read_after_a_component_was_written(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), n: wb.array(dtype=int), y: wb.array(dtype=V)):
        i = wb.tid()
        for j in range(4):
            x[i][(n[i] + j) % 3] = x[i][j % 3] * x[i].y
            v = x[i]
            v[n[i]] += v.x
            y[i] = y[i] * F(0.5) + v * v[1]
            x[i] = v * F(0.75)
            x[i].z += y[i].x

    return k


@program(x=floats(2, of=mat33), n=ints(2, 0), y=zeros(2, of=mat33))
def matrix_components_at_run_time_indices_in_loops(F):
    M = wb.types.matrix((3, 3), F)

    @wb.kernel
    def k(x: wb.array(dtype=M), n: wb.array(dtype=int), y: wb.array(dtype=M)):
        i = wb.tid()
        m = x[i]
        for a in range(3):
            for b in range(3):
                m[a, b] = m[b, a] * m[(a + n[i]) % 3, b] * F(0.5) + F(0.25)
                m[a, n[i]] += m[a, b] * F(0.125)
            y[i][a, n[i]] = m[a, a]
            y[i][n[i], a] *= m[a, 0]
        y[i] = y[i] + m

    return k


@program(x=floats(2, of=quat), w=floats(2, of=vec3), y=zeros(2, of=quat))
def a_quaternion_integrated_in_time(F):
    Q = wb.types.quaternion(F)
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=Q), w: wb.array(dtype=V), y: wb.array(dtype=Q)):
        i = wb.tid()
        q = wb.normalize(x[i])
        for j in range(4):
            turn = Q(w[i][0], w[i][1], w[i][2], F(0.0))
            q = wb.normalize(q + turn * q * F(0.05))
            q.w = q.w * F(1.01)
        y[i] = q

    return k


@program(x=floats(8), y=zeros(4), dim=4)
def a_reversed_view(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] * x[i + 4]
        x[i] = y[i] * x[i]

    return lambda p: wb.launch(k, dim=4, inputs=[p.x[::-1], p.y])


@program(x=floats(6), y=zeros(2))
def the_same_kernel_with_and_without_overlap(F):
    @wb.kernel
    def k(a: wb.array(dtype=F), b: wb.array(dtype=F), n: int):
        for j in range(n):
            b[j] = a[j] * b[j]
            a[j] = a[j] + b[j]

    def run(p):
        wb.launch(k, dim=1, inputs=[p.x[0:3], p.x[3:6], 3])
        wb.launch(k, dim=1, inputs=[p.x[0:4], p.x[2:6], 4])
        wb.launch(k, dim=1, inputs=[p.x, p.x, 6])
        wb.launch(k, dim=1, inputs=[p.x[0:2], p.y, 2])

    return run


@program(x=floats(6))
def overlapping_views_in_loops_with_atomics(F):
    @wb.kernel
    def k(a: wb.array(dtype=F), b: wb.array(dtype=F)):
        for r in range(2):
            for j in range(4):
                s = a[j] * b[j]
                wb.atomic_add(b, j, s)
                a[3 - j] += b[j] * F(0.125)
                if a[j] > F(6.0):
                    break

    return lambda p: wb.launch(k, dim=1, inputs=[p.x[0:4], p.x[1:5]])


@program(x=floats(4, 3), dim=1)
def rows_written_through_two_names(F):
    @wb.func
    def mix(a: wb.array(dtype=F), b: wb.array(dtype=F)):
        for j in range(3):
            a[j] = a[j] * b[2 - j]
            b[j] = b[j] + a[j]

    @wb.kernel
    def k(x: wb.array2d(dtype=F)):
        for r in range(4):
            mix(x[r], x[(r * 2) % 4])

    return k


@program(m=floats(3), y=zeros(3), dim=1)
def an_array_of_structs_changed_in_a_loop(F):
    V = wb.types.vector(2, F)

    @wb.struct
    class Inner:
        w: F

    @wb.struct
    class Node:
        m: F
        q: V
        inner: Inner

    @wb.kernel
    def k(m: wb.array(dtype=F), b: wb.array(dtype=Node), y: wb.array(dtype=F)):
        for j in range(3):
            n = Node()
            n.m = m[j]
            n.q = V(m[j] * m[j], F(j))
            n.inner.w = F(0.5)
            b[j] = n
        for r in range(5):
            j = r % 3
            n = b[j]
            n.m = n.m * b[(j + 1) % 3].m
            n.q[r % 2] += n.m * n.q.x
            n.inner.w = n.inner.w * n.q[0]
            b[(j + 2) % 3] = n
            b[j].q.y *= n.inner.w
            b[j].inner.w += n.m
        for j in range(3):
            y[j] = b[j].m + b[j].q.x * b[j].q.y * b[j].inner.w

    def run(p):
        b = wb.zeros(3, dtype=Node, requires_grad=True)
        wb.launch(k, dim=1, inputs=[p.m, b, p.y])

    return run


@program(x=floats(3), y=zeros(3))
def a_struct_carried_by_a_loop(F):
    V = wb.types.vector(2, F)

    @wb.struct
    class State:
        q: F
        v: V
        n: int

    @wb.func
    def step(s: State, h: F):
        out = State()
        out.q = s.q + s.v.x * h
        out.v = V(s.v.x - s.q * h, s.v.y * s.q)
        out.n = s.n + 1
        if out.n > 3:
            return s
        return out

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = State()
        s.q = x[i]
        s.v = V(x[i] * x[i], F(1.0))
        for j in range(5):
            s = step(s, F(0.25))
            if i == 1:
                s.v.y += s.q
        y[i] = s.q * s.v.x + s.v.y * F(s.n)

    return k


@program(x=floats(5), reference=lambda x: {"x": np.array([x[0], x[0], x[1], x[2] ** 2, x[4] ** 2])})
def a_copy_that_shifts_an_array(F):
    @wb.kernel
    def square(x: wb.array(dtype=F), first: int):
        i = wb.tid()
        x[i + first] = x[i + first] * x[i + first]

    def run(p):
        old = wb.clone(p.x)
        wb.copy(p.x, old, dest_offset=1, src_offset=0, count=3)
        wb.launch(square, dim=2, inputs=[p.x, 3])

    return run


@program(x=floats(3, 4), y=floats(3, 4))
def assignments_through_the_host(F):
    @wb.kernel
    def k(x: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
        i, j = wb.tid()
        y[i, j] = x[i, j] * y[i, j]

    def run(p):
        wb.launch(k, dim=(3, 4), inputs=[p.x, p.y])
        p.x.assign(p.y)
        p.y[1].zero_()
        wb.launch(k, dim=(3, 4), inputs=[p.y, p.x])
        p.x[:, 2].assign(p.y[:, 1])
        wb.launch(k, dim=(3, 4), inputs=[p.x, p.y])

    return run


@program(x=floats(3, 4), y=zeros(3))
def rows_in_place_by_two_dimensional_loops(F):
    @wb.kernel
    def k(x: wb.array2d(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        for r in range(2):
            for j in range(1, x.shape[1]):
                x[i, j] = x[i, j] * x[i, j - 1] + F(r)
            x[i, 0] = x[i, -1]
            if x[i, 0] > F(3.0):
                x[i, 0] = F(1.0) / x[i, 0]
        y[i] = x[i, 2] * x[i, 0]

    return k


@program(x=floats(3), y=zeros(3))
def memory_updates_of_every_kind(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] += x[i]
        y[i] *= x[i] + y[i]
        y[i] /= x[i] + F(1.0)
        y[i] **= F(2.0)
        y[i] -= x[i] * y[i]
        y[i] %= F(7.0)
        y[i] *= y[i]

    return k


@program(x=floats(4), y=given(3.0, 0.5, 0.0), n=ints(0, 1, 2, 2), dim=4)
def atomic_extremes_in_loops_and_branches(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F), n: wb.array(dtype=int)):
        i = wb.tid()
        for j in range(i + 1):
            if j != 1:
                wb.atomic_max(y, n[i], x[i] * x[j] * F(1.5))

    return k


@program(x=floats(4), a=given(5.0), b=given(-5.0), y=zeros(1), dim=4)
def extremes_that_feed_a_loss(F):
    @wb.kernel
    def range_of(x: wb.array(dtype=F), a: wb.array(dtype=F), b: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_min(a, 0, x[i] * x[i])
        wb.atomic_max(b, 0, wb.sin(x[i]))

    @wb.kernel
    def loss(x: wb.array(dtype=F), a: wb.array(dtype=F), b: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_add(y, 0, x[i] * a[0] + b[0] * b[0])

    def run(p):
        for _ in range(2):
            wb.launch(range_of, dim=4, inputs=[p.x, p.a, p.b])
            wb.launch(loss, dim=4, inputs=[p.x, p.a, p.b, p.y])

    return run


@program(x=floats(3), y=zeros(3))
def funcs_in_conditions(F):
    @wb.func
    def size(a: F):
        if a > F(1.0):
            return a * F(2.0)
        return a * a

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        if (size(s) > F(0.5) and size(s * s) < F(4.0)) or i == 2:
            s = s * size(s)
        while size(s) < F(6.0):
            s = s * F(1.5) + size(s)
        y[i] = s if size(x[i]) > F(1.0) else size(s)

    return k


@program(x=floats(2), y=zeros(2))
def a_very_long_dynamic_loop(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for j in range(1000 * (i + 1)):
            s = s + F(0.001) * wb.sin(s + x[i])
        y[i] = s

    return k


@program(x=floats(4), s=zeros(4), dtypes=ALL)
def float16_memory_in_place(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), s: wb.array(dtype=F)):
        i = wb.tid()
        for j in range(3):
            x[i] = x[i] * x[i] * F(0.5)
            s[i] += x[i] + s[i] * F(0.25)

    return k


@program(x=floats(4), index=given([0, 2], [3, 1], [1, 1], of=lambda F: wb.types.vector(2, wb.int32)), y=zeros(3), dim=3)
def integer_vectors_as_indices(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), index: wb.array(dtype=wb.vec2i), y: wb.array(dtype=F)):
        i = wb.tid()
        e = index[i]
        d = x[e[0]] * x[e.y]
        wb.atomic_add(y, e[1], d)
        wb.atomic_sub(y, e.x % 3, d * d)

    return k


@program(x=floats(3), y=zeros(3))
def equal_names_in_funcs_and_loops(F):
    @wb.func
    def f(s: F, i: int):
        for j in range(2):
            s = s * F(i + j + 1)
            i = i + 1
        return s

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for j in range(3):
            s = f(s, j) * F(0.125) + s * x[i]
            t = s
            s = f(t, i) * F(0.125)
        y[i] = s

    return k


@program(x=floats(3), y=zeros(3))
def a_variable_first_bound_inside_a_loop(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for j in range(3):
            t = s * x[i]
            if j == 1:
                u = t * t
                t = u + F(1.0)
            s = t * F(0.5) + s
        y[i] = s

    return k


@program(x=floats(4), y=zeros(4), n=ints(3, 0, 2, 5))
def ranges_with_steps_from_data(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F), n: wb.array(dtype=int)):
        i = wb.tid()
        s = x[i]
        for j in range(n[i], -4, -1 - n[0]):
            s = s * x[(j + 8) % 4] + F(j) * F(0.25)
        for j in range(0, 9, n[i] + 1):
            s = wb.sin(s) + x[j % 4]
        y[i] = s

    return k


@program(x=floats(3), z=floats(3), y=zeros(3))
def an_active_loop_inside_an_inactive_branch_of_data(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        n = 0
        limit = z[i] * F(4.0)
        a = F(0.0)
        while a < limit:
            a = a + F(0.5)
            n += 1
        s = x[i]
        for j in range(n):
            s = s * x[i] * F(0.75) + z[i]
        y[i] = s + a

    return k


@program(x=floats(3, of=vec2), m=floats(3, of=mat22), y=zeros(3))
def a_newton_iteration_in_two_unknowns(F):
    V = wb.types.vector(2, F)
    M = wb.types.matrix((2, 2), F)

    @wb.kernel
    def k(x: wb.array(dtype=V), m: wb.array(dtype=M), y: wb.array(dtype=F)):
        i = wb.tid()
        v = V(F(1.0), F(1.5))
        n = 0
        while n < 6:
            r = V(v[0] * v[0] + v[1] - x[i][0] - F(2.0), v[1] * v[1] * v[1] - v[0] * m[i][0, 1] * F(0.1) - F(3.0))
            J = M(F(2.0) * v[0], F(1.0), -m[i][0, 1] * F(0.1), F(3.0) * v[1] * v[1])
            v = v - wb.inverse(J) * r
            n += 1
            if wb.length(r) < F(1.0e-3):
                break
        y[i] = v[0] * v[1] + wb.trace(m[i])

    return k


@program(x=floats(4, 4), y=zeros(4, 4), dim=(4, 4))
def a_heat_equation_in_ping_pong(F):
    @wb.kernel
    def step(a: wb.array2d(dtype=F), b: wb.array2d(dtype=F)):
        i, j = wb.tid()
        if 0 < i < 3 and 0 < j < 3:
            c = a[i, j]
            b[i, j] = c + F(0.1) * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1] - F(4.0) * c) * c
        else:
            b[i, j] = F(0.5) * a[i, j]

    def run(p):
        a, b = p.x, p.y
        for _ in range(4):
            wb.launch(step, dim=(4, 4), inputs=[a, b])
            a, b = b, a

    return run
