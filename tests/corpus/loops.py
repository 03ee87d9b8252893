"""Loops: what they carry, how they leave, how they nest."""

import workbench as wb

from . import floats, given, ints, program, vec3, zeros


@program(x=floats(4), y=zeros(4), reference=lambda x, y: {"y": x**5})
def static_product(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = F(1.0)
        for j in range(5):
            s = s * x[i]
        y[i] = s

    return k


@program(x=floats(4), n=ints(0, 1, 3, 6), y=zeros(4))
def dynamic_product(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        s = F(1.0)
        for j in range(n[i]):
            s = s * wb.sin(x[i] + s * F(j))
        y[i] = s

    return k


@program(x=floats(8), y=zeros(4), dim=4)
def ranges_of_any_bounds_and_step(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for j in range(i, 8):
            s = s * F(0.5) + x[j] * s
        for j in range(7, i, -2):
            s = s * x[j] + x[i]
        for j in range(1, 7, 3):
            s += s * x[j] * F(j)
        for j in range(5, 2):
            s = F(0.0)
        for j in range(-3, 0):
            s = s * F(0.5) - x[j + 3] * F(j)
        y[i] = s

    return k


@program(x=floats(5), y=zeros(1), dim=1)
def scan_of_a_carried_local(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        s = F(0.0)
        for j in range(x.shape[0]):
            s = s * s + x[j]
        y[0] = s

    return k


@program(x=floats(5), y=zeros(2), dim=1)
def two_carried_locals_that_swap(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        a = F(0.25)
        b = F(0.5)
        for j in range(x.shape[0]):
            a, b = b, a * x[j] + b * b
        y[0] = a
        y[1] = b

    return k


@program(x=floats(6), y=zeros(1), dim=1)
def previous_and_current(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        previous = F(1.0)
        total = F(0.0)
        for j in range(x.shape[0]):
            current = x[j] * previous
            total += current * previous
            previous = current
        y[0] = total * previous

    return k


@program(x=floats(3), y=zeros(3))
def nested_dynamic_loops(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for a in range(i + 1):
            t = s
            for b in range(a, i + 2):
                t = t * x[i] * F(0.5) + s * F(b)
            s = s * F(0.25) + wb.sin(t)
        y[i] = s

    return k


@program(x=floats(2), y=zeros(2))
def three_nested_loops_carrying_everything(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        p = F(1.0)
        for a in range(2):
            q = p * s
            for b in range(i + 2):
                p = wb.sin(p * F(0.5) + q)
                for c in range(b):
                    s = wb.sin(s * p) + q * F(0.25)
                    q = wb.cos(q * s)
                s = wb.sin(s + p * q)
            p = p + q * s * F(0.25)
        y[i] = s * p

    return k


@program(x=floats(4), y=zeros(4))
def while_with_a_counter(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        n = 0
        while n < i + 2:
            s = s * s * F(0.5) + x[i]
            n += 1
        y[i] = s

    return k


@program(x=floats(4, low=2.0, high=9.0), y=zeros(4))
def while_until_converged(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        r = x[i]
        while r * r - x[i] > F(0.05):
            r = F(0.5) * (r + x[i] / r)
        y[i] = r * x[i]

    return k


@program(x=given(0.7, 1.9, 3.3), y=zeros(3))
def while_with_data_dependent_trips_and_two_carried(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i]
        n = 0
        product = F(1.0)
        while a < F(20.0) and n < 9:
            product = product * a * F(0.5)
            a = a * a * F(0.5) + a
            n = n + 1
        y[i] = product * a + F(n) * x[i]

    return k


@program(x=given(0.7, 0.2, 1.4, 0.6), y=zeros(1), dim=1)
def break_on_data(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        s = F(1.0)
        for j in range(x.shape[0]):
            if x[j] > F(1.0):
                break
            s = s * x[j] + s * s
        y[0] = s

    return k


@program(x=given(0.7, 0.2, 1.4, 0.6, 1.7), y=zeros(1), dim=1)
def continue_on_data(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        s = F(1.0)
        for j in range(x.shape[0]):
            if x[j] > F(1.0):
                continue
            s = s * x[j] + s * s
        y[0] = s

    return k


@program(x=given(0.7, 0.2, 1.4, 0.6, 1.7, 0.9), y=zeros(2), dim=1)
def break_and_continue_inside_nested_ifs_in_nested_loops(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        s = F(1.0)
        t = F(0.5)
        for a in range(4):
            t = t * s
            for b in range(x.shape[0]):
                if x[b] > F(0.5):
                    if b == a:
                        s = s * F(0.75)
                        continue
                    if b > a + 2:
                        t = t + s * x[b]
                        break
                    s = s + x[b] * t
                else:
                    if a == 2:
                        break
                    t = t * x[b]
                s = s * F(0.875) + t * F(0.125)
            if a == 1:
                s = wb.sin(s)
                continue
            if s > F(40.0):
                break
            t = t + s * s * F(0.0625)
        y[0] = s
        y[1] = t

    return k


@program(x=given(0.7, 0.2, 1.4, 0.6), y=zeros(4))
def while_true_with_breaks(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        n = 0
        while True:
            n += 1
            s = s * F(1.25) + x[i] * x[i]
            if s > F(5.0):
                s = s * x[i]
                break
            if n % 2 == 0:
                continue
            s = s + wb.sin(s)
        y[i] = s

    return k


@program(x=given(0.7, 0.2, 1.4, 0.6), y=zeros(4))
def return_inside_a_loop_of_a_func(F):
    @wb.func
    def first(x: wb.array(dtype=F), limit: F):
        s = F(1.0)
        for j in range(x.shape[0]):
            s = s * x[j] + limit
            if s > limit * F(2.0):
                return s * x[j]
        return s * s

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = first(x, F(0.25) * F(i + 1)) * x[i]

    return k


@program(x=given(0.7, 0.2, 1.4, 0.6, 1.1), y=zeros(3), dim=3)
def return_inside_nested_loops_of_a_func(F):
    @wb.func
    def walk(x: wb.array(dtype=F), bound: F):
        s = F(0.5)
        for a in range(3):
            for b in range(x.shape[0]):
                s = s + x[b] * s * F(0.5)
                if s > bound:
                    return s * x[b]
                if b > a + 1:
                    break
            s = s * F(0.75)
        return s * s * F(0.25)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = walk(x, F(2 * i + 1)) + walk(x, F(100.0))

    return k


@program(x=given(0.7, 0.2, 1.4, 0.6), y=floats(4))
def return_inside_a_loop_of_the_kernel(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for j in range(5):
            s = s * s + x[j % 4]
            if s > F(3.0):
                y[i] = s * y[i]
                return
        y[i] = s

    return k


@program(x=given(0.7, 0.2, 1.4, 0.6, 1.7), y=zeros(2), dim=1)
def running_maximum_by_a_branch(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        best = x[0]
        where = 0
        for j in range(1, x.shape[0]):
            if x[j] > best:
                best = x[j]
                where = j
        y[0] = best * best
        y[1] = x[where] * best

    return k


@program(x=floats(4), y=zeros(1), dim=1)
def a_loop_whose_last_value_is_used(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        v = F(0.0)
        for j in range(x.shape[0]):
            v = x[j] * x[j]
        y[0] = v * v

    return k


@program(x=floats(4), y=zeros(1), dim=1)
def an_integer_carried_as_an_index(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        at = 0
        s = F(1.0)
        for j in range(6):
            s = s * x[at] + F(0.5)
            at = (at * 2 + 1) % 4
        y[0] = s

    return k


@program(x=floats(3), y=zeros(3))
def loops_in_branches_and_branches_in_loops(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        if i != 1:
            for j in range(i + 1):
                if s > F(1.0):
                    s = wb.sin(s) * x[j]
                else:
                    s = s * s + x[j]
        else:
            n = 0
            while s < F(8.0) and n < 10:
                s = s * F(1.5) + s * s
                n += 1
        y[i] = s * x[i]

    return k


@program(x=floats(3, of=vec3), y=zeros(3, of=vec3))
def a_carried_vector(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), y: wb.array(dtype=V)):
        i = wb.tid()
        v = x[i]
        w = V(F(0.5), F(0.25), F(1.0))
        for j in range(i + 2):
            v = wb.cross(v, w) + v * wb.dot(v, w) * F(0.25)
            w = w + v * F(0.125)
        y[i] = v

    return k


@program(x=floats(4), dt=floats(1, low=0.01, high=0.1), y=zeros(4))
def a_spring_stepped_in_time(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), dt: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        q = x[i]
        v = F(0.0)
        for step in range(20):
            a = -q - F(0.1) * v * wb.abs(v)
            v = v + a * dt[0]
            q = q + v * dt[0]
        y[i] = q * v

    return k


@program(x=floats(4), y=zeros(4))
def logistic_map(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i] * F(0.25)
        for j in range(8 + i):
            s = F(2.5) * s * (F(1.0) - s)
        y[i] = s

    return k


@program(x=floats(4), y=zeros(4))
def a_loop_that_never_runs(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i] * x[i]
        for j in range(i - 5):
            s = s * F(0.0)
        while s < F(0.0):
            s = s + x[i]
        y[i] = s

    return k


@program(x=floats(5), y=floats(5), dim=1)
def a_bound_that_changes_in_the_loop(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        n = 3
        s = F(1.0)
        for j in range(n):
            n = n + 1
            s = s * x[j] * F(n)
            j = j + 1
            s = s + y[j]
        y[0] = s

    return k


@program(x=floats(3), y=zeros(3))
def an_outer_value_used_only_inside(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = wb.exp(x[i])
        b = a * a
        s = F(0.0)
        for j in range(3):
            s += b * F(j)
            if j > 0:
                for m in range(j):
                    s = s + a * s * F(0.0625)
        y[i] = s

    return k


@program(x=floats(3), y=zeros(3))
def a_long_static_loop(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for j in range(100):
            s = s + F(0.01) * wb.sin(s)
        y[i] = s

    return k
