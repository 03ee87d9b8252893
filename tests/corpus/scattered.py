"""Many threads and few cells: gathers, scatters, atomics; grids of one to four axes; random numbers."""

import numpy as np

import workbench as wb

from . import ALL, floats, given, ints, program, vec3, zeros


@program(x=floats(5), n=ints(0, 3, 3, 1), y=zeros(4), dim=4, reference=lambda x, n, y: {"y": x[n] ** 2 * x[:4]})
def gather_by_integers(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[n[i]] * x[n[i]] * x[i]

    return k


@program(x=floats(4), n=ints(2, 0, 3, 1), y=zeros(5))
def scatter_by_integers(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        y[n[i]] = x[i] * x[n[i]]

    return k


@program(x=floats(5), n=ints(0, 1, 1, 0, 2), y=floats(3), dim=5)
def atomic_add_to_few_cells(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_add(y, n[i], x[i] * x[i])
        wb.atomic_sub(y, 0, wb.sin(x[i]))

    return k


@program(x=floats(4), y=zeros(2), dim=4)
def atomics_in_loops(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for j in range(i + 1):
            s = s * s * F(0.5) + x[j]
            wb.atomic_add(y, j % 2, s * x[i])
            y[1] += s
            if s > F(2.0):
                y[0] -= s * s
                break

    return k


@program(x=floats(3, of=vec3), y=zeros(1, of=vec3), s=zeros(3), dim=3)
def atomics_on_vectors_and_components(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), y: wb.array(dtype=V), s: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_add(y, 0, x[i] * x[i].x)
        y[0] -= x[i]
        y[0][1] += x[i].y * x[i].z
        s[i] = wb.length(x[i])

    return k


@program(x=floats(5), y=given(1.0), dim=5, reference=lambda x, y: {"y": np.array([min(1.0, (x * x).min())])})
def atomic_min_of_squares(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_min(y, 0, x[i] * x[i])

    return k


@program(x=floats(6), n=ints(0, 1, 0, 1, 2, 2), y=given(1.0, 0.0, 9.0), dim=6)
def atomic_max_of_groups(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_max(y, n[i], wb.sin(x[i]) * F(2.0))

    return k


@program(x=floats(4), count=ints(0), y=zeros(4), dim=4)
def a_slot_taken_from_a_counter(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), count: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        slot = wb.atomic_add(count, 0, 1)
        y[slot] = x[i] * x[i]

    return k


@program(x=floats(3), y=floats(1), z=zeros(3), dim=1)
def the_old_value_of_an_atomic_in_one_thread(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F), z: wb.array(dtype=F)):
        for j in range(3):
            old = wb.atomic_add(y, 0, x[j] * x[j])
            z[j] = old * x[j]

    return k


@program(x=floats(3), n=ints(0, 0, 5), y=zeros(3), dim=3)
def integer_atomics(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_max(n, 0, i)
        wb.atomic_min(n, 2, i)
        wb.atomic_cas(n, 1, 0, 7)
        y[i] = x[i] * x[i]

    return k


@program(x=floats(3), n=ints(4, 5, 6), y=zeros(3), dim=3)
def exchange_of_an_own_cell(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        old = wb.atomic_exch(n, i, i)
        seen = wb.atomic_cas(n, i, i, 9)
        y[i] = x[i] * F(old) + x[i] * x[i] * F(seen + n[i])

    return k


@program(x=floats(3, 4), y=zeros(3, 4), dim=(3, 4), dtypes=ALL)
def a_grid_of_two_axes(F):
    @wb.kernel
    def k(x: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
        i, j = wb.tid()
        y[i, j] = x[i, j] * x[(i + 1) % 3, j] + x[i, (j + 1) % 4] * F(i - j)

    return k


@program(x=floats(2, 3, 2), y=zeros(2, 3, 2), dim=(2, 3, 2))
def a_grid_of_three_axes(F):
    @wb.kernel
    def k(x: wb.array3d(dtype=F), y: wb.array(dtype=F, ndim=3)):
        i, j, l = wb.tid()
        y[i, j, l] = x[i, j, l] * x[1 - i, 2 - j, l]
        y[i, j, l] *= y[i, j, l] * F(l + 1)

    return k


@program(x=floats(2, 2, 3, 2), y=zeros(2, 2, 3, 2), dim=(2, 2, 3, 2))
def a_grid_of_four_axes(F):
    @wb.kernel
    def k(x: wb.array4d(dtype=F), y: wb.array4d(dtype=F)):
        i, j, l, m = wb.tid()
        s = x[i, j, l, m]
        if l > 0:
            s = s * x[i, j, l - 1, m]
        y[i, j, l, m] = s * F(m + 1) + x[1 - i, j, l, 1 - m] * s

    return k


@program(x=floats(4, 5), y=zeros(4, 5), dim=(4, 5))
def a_stencil(F):
    @wb.kernel
    def k(x: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
        i, j = wb.tid()
        n = x.shape[0]
        m = x.shape[1]
        if i == 0 or j == 0 or i == n - 1 or j == m - 1:
            y[i, j] = x[i, j] * x[i, j]
        else:
            lap = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1] - F(4.0) * x[i, j]
            y[i, j] = x[i, j] + F(0.2) * lap * x[i, j]

    return k


@program(x=floats(3, 4), y=zeros(3))
def rows_reduced_by_a_loop(F):
    @wb.kernel
    def k(x: wb.array2d(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = F(0.0)
        for j in range(x.shape[1]):
            s += x[i, j] * x[i, -1]
        y[i] = wb.sqrt(s) + x[-1, -2] * x[i, 0]

    return k


@program(x=floats(6), start=ints(0, 2, 2, 6), y=zeros(3), dim=3)
def segments_of_a_ragged_array(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), start: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        s = F(0.5)
        for j in range(start[i], start[i + 1]):
            s += x[j] * x[j]
        y[i] = wb.sqrt(s)

    return k


@program(x=floats(4), y=zeros(4))
def random_numbers_are_replayed(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        state = wb.rand_init(42, i)
        s = x[i]
        for j in range(i + 2):
            s = s * F(wb.randf(state)) + x[i] * F(wb.randf(state, -1.0, 1.0))
            if wb.randi(state, 0, 3) == 1:
                s = s * s
        y[i] = s * F(wb.randf(state))

    return k


@program(x=floats(4), y=zeros(4), loose=1e7)
def normal_random_numbers_are_replayed(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        state = wb.rand_init(42, i)
        s = x[i]
        for j in range(3):
            s = s + F(wb.randn(state)) * s * F(0.125)
        y[i] = s * s

    return k


@program(x=floats(4), y=zeros(4))
def a_random_walk_of_random_length(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        state = wb.rand_init(7 + i)
        s = x[i]
        while True:
            r = wb.randf(state)
            if r > 0.75:
                break
            s = s * x[i] * F(0.5) + F(r) * s
        y[i] = s

    return k


@program(x=floats(5), y=zeros(5), total=zeros(1))
def a_chain_of_launches_to_a_loss(F):
    @wb.kernel
    def square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] * x[i]

    @wb.kernel
    def add(y: wb.array(dtype=F), total: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_add(total, 0, y[i] * y[i])

    @wb.kernel
    def scale(y: wb.array(dtype=F), total: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = y[i] / total[0]

    def run(p):
        wb.launch(square, dim=5, inputs=[p.x, p.y])
        wb.launch(add, dim=5, inputs=[p.y, p.total])
        wb.launch(scale, dim=5, inputs=[p.y, p.total])
        wb.launch(add, dim=5, inputs=[p.y, p.total])

    return run


@program(x=floats(2, of=vec3), y=zeros(2), dim=2)
def spring_forces_between_particles(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def forces(x: wb.array(dtype=V), f: wb.array(dtype=V)):
        i = wb.tid()
        for j in range(x.shape[0]):
            if j != i:
                d = x[j] - x[i]
                r = wb.length(d)
                wb.atomic_add(f, i, d * ((r - F(0.5)) / r))

    @wb.kernel
    def step(x: wb.array(dtype=V), v: wb.array(dtype=V), f: wb.array(dtype=V), y: wb.array(dtype=F)):
        i = wb.tid()
        v[i] = v[i] + f[i] * F(0.1)
        x[i] = x[i] + v[i] * F(0.1)
        f[i] = V()
        y[i] = wb.dot(v[i], v[i]) + wb.length(x[i])

    def run(p):
        v = wb.zeros(2, dtype=V, requires_grad=True)
        f = wb.zeros(2, dtype=V, requires_grad=True)
        for _ in range(4):
            wb.launch(forces, dim=2, inputs=[p.x, f])
            wb.launch(step, dim=2, inputs=[p.x, v, f, p.y])

    return run
