"""One array or another: chosen by a condition, handed on by funcs and structs, from turn to turn of a loop."""

import workbench as wb

from . import floats, ints, program, vec3, zeros


@program(x=floats(4), z=floats(4), n=ints(4, 0, 1, 1, 0), y=zeros(4))
def one_array_or_another(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x if n[i] == 0 else z
        y[i] = a[i] * a[i] + x[i] * z[i]

    return k


@program(x=floats(4), z=floats(4), w=floats(4), y=zeros(4))
def one_of_three_arrays_read_stored_and_added_to(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = w
        if i == 0:
            a = x
        elif i == 1:
            a = z
        y[i] = wb.sin(a[i])
        a[i] = a[i] * x[i]
        a[i] += y[i] * a[i]
        a[i] *= z[i]
        wb.atomic_add(a, i, w[i] * F(0.5))
        y[i] += a[-1 - (3 - i)] * F(0.25)

    return k


@program(x=floats(3, 4), z=floats(4), y=zeros(3))
def a_row_of_one_array_or_all_of_another(F):
    @wb.kernel
    def k(x: wb.array2d(dtype=F), z: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        row = x[2 - i]
        if i == 1:
            row = z
        elif i == 2:
            row = z[1:3]
        s = F(0.0)
        for j in range(row.shape[0]):
            s += row[j] * row[-1]
        y[i] = s

    return k


@program(x=floats(2, of=vec3), z=floats(2, of=vec3), y=zeros(2))
def components_of_one_array_or_another(F):
    @wb.kernel
    def k(x: wb.array(dtype=vec3(F)), z: wb.array(dtype=vec3(F)), y: wb.array(dtype=F)):
        i = wb.tid()
        a = z if i == 1 else x
        a[i].x = a[i].y * a[i].z
        a[i].y += a[i].x * F(3.0)
        a[i][2] *= a[i][0]
        wb.atomic_sub(a, i, z[i] * F(0.5))
        y[i] = wb.dot(a[i], z[i])

    return k


@program(x=floats(4), z=floats(4), y=zeros(4))
def array_fields_of_a_new_struct_on_some_paths(F):
    @wb.struct
    class Part:
        weight: F
        values: wb.array(dtype=F)
        others: wb.array(dtype=F)

    @wb.func
    def part(i: int, x: wb.array(dtype=F), z: wb.array(dtype=F)):
        p = Part()
        p.weight = F(2.0)
        if i == 0:
            p.values = x
        elif i == 1:
            p.values = z
            p.others = x
        return p

    @wb.func
    def weigh(p: Part, i: int):
        s = p.weight
        if i == 0:
            s += p.values[i] * p.values[i]
        if i == 1:
            s += p.values[i] * p.others[i]
        if p.values:
            s *= p.values[i]
        return s + F(p.others.shape[0])

    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = weigh(part(i, x, z), i) * x[i]

    return k


@program(x=floats(3), z=floats(3), n=ints(3, 0, 2, 3), y=zeros(3))
def arrays_that_change_places_in_a_loop(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x
        b = z
        for _ in range(n[i]):
            b[i] = wb.sin(a[i]) + b[i] * F(0.5)
            a, b = b, a
        y[i] = a[i] * a[i] + b[i]

    return k


@program(x=floats(3), z=floats(3), n=ints(3, 0, 1, 2), y=zeros(3))
def an_array_found_by_a_loop(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x
        j = 0
        while j < 3:
            if j == n[i]:
                a = z
                break
            j += 1
            y[i] += a[i] * F(2.0)
        y[i] += a[i] * a[i]

    return k


@program(x=floats(3), z=floats(3), n=ints(3, 1, 2, 3), y=zeros(3))
def an_array_field_that_a_loop_changes(F):
    @wb.struct
    class Pair:
        one: wb.array(dtype=F)
        other: wb.array(dtype=F)

    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        p = Pair()
        p.one = x
        s = F(0.0)
        for _ in range(n[i]):
            s = s * F(0.5) + p.one[i] * p.one[i]
            p.other = p.one
            p.one = z
        y[i] = s * p.other[i]

    return k


@program(x=floats(4), y=zeros(4))
def an_array_of_the_kernel_or_one_of_the_thread(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        own = wb.zeros(shape=4, dtype=F)
        own[i] = x[i] * F(3.0)
        a = own if i % 2 == 0 else y
        a[i] += x[i] * x[i]
        a[i] *= F(2.0)
        y[i] += wb.sin(own[i]) + a[i]

    return k


@program(x=floats(4), z=floats(4), y=zeros(4))
def the_first_of_two_arrays_that_a_func_finds(F):
    @wb.func
    def larger(a: wb.array(dtype=F), b: wb.array(dtype=F), i: int):
        if a[i] > b[i]:
            return a
        return b

    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = larger(x, z, i)
        y[i] = a[i] * a[(i + 1) % 4]

    return k


@program(x=floats(3, 2, low=-1.0, high=1.0), z=floats(2), y=zeros(3))
def a_row_that_a_func_finds_in_a_loop_or_another_array(F):
    @wb.func
    def pick(x: wb.array2d(dtype=F), z: wb.array(dtype=F), n: int):
        for j in range(n):
            if x[j, 0] < F(0.0):
                return x[j]
        return z

    @wb.kernel
    def k(x: wb.array2d(dtype=F), z: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        row = pick(x, z, i)
        y[i] = row[0] * row[1]

    return k
