"""What the reader takes beside plain expressions: literals beside values, integer division, arrays that are tested."""

import enum

import workbench as wb

from . import floats, given, ints, program, vec2, vec3, zeros

HALF, TWO, MANY = 0.5, wb.constant(2), 3
Kind = enum.IntEnum("Kind", "ROUND FLAT LONG")


@program(x=given(-0.75, 0.25, 0.75, 1.5), v=floats(4, of=vec3), y=zeros(4))
def literals_take_the_type_beside_them(F):
    V = vec3(F)

    @wb.func
    def clipped(a: F):
        if a < 0:
            return 0
        return a

    @wb.func
    def bent(a: F, k: F):
        return (1 if a > 1 else a) * k + wb.max(0, a) + clipped(a)

    @wb.kernel
    def k(x: wb.array(dtype=F), v: wb.array(dtype=V), y: wb.array(dtype=F)):
        i = wb.tid()
        a = 2 * x[i] - HALF
        w = V(a, 1, TWO) * 3 + v[i] / 2 - 0.25 * v[i]
        if -1 <= a < 2:
            a = a**2 + wb.clamp(x[i], -0.5, 0.5) * wb.lerp(x[i], w[1], 0.25)
        y[i] = wb.where(x[i] > 0, a, 1.0) + bent(x[i], MANY) + 1 / (2 + x[i] * x[i]) + w[0] * w[2] + 2 ** x[i]
        y[i] *= 2
        y[i] += 1

    return k


@program(x=floats(6), n=ints(7, -7, 6, 1, 0, 3), y=zeros(6))
def integers_are_divided_as_in_c(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=wb.int32), y: wb.array(dtype=F)):
        i = wb.tid()
        half = n[i] / 2
        half += 5 / (n[i] - 1) - (-n[i]) / 3
        y[i] = x[i / 2] * x[i] * F(half)

    return k


@program(x=floats(4), n=given(3, 200, 7, 255, of=wb.uint8), m=given(1, -(2**40), 5, 2**40, of=wb.int64), y=zeros(4))
def literals_beside_integers_of_any_size(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=wb.uint8), m: wb.array(dtype=wb.int64), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i]
        if (n[i] & 0x84) == 0 and m[i] > -5 and n[i] != Kind.LONG:
            a *= 2
        if m[i] >= 0x100 or 3 == n[i]:
            a += x[i] * x[i]
        y[i] = a * F(wb.min(n[i], 7)) + F(n[i] % 4 + (n[i] >> 1)) * a

    return k


@program(x=floats(4), n=ints(1, 2, 3, 4), y=zeros(4))
def claims_that_hold(F):
    @wb.func
    def rooted(a: F):
        assert a > 0, "positive"
        wb.expect_near(a, a * 1.0001, 0.01)
        return wb.sqrt(a)

    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=wb.int32), y: wb.array(dtype=F)):
        i = wb.tid()
        wb.expect_eq(n[i], i + 1)
        for j in range(n[i]):
            assert j < 4
            y[i] += rooted(x[i]) * x[j]
            if j > 2:
                wb.expect_neq(x[i], 0)

    return k


@program(x=floats(6), n=ints(1, -1, 2, 0, 3, -2), m=ints(0, 1, 2, 2, 1, 0), y=zeros(6))
def names_assigned_under_the_condition_they_are_read_under(F):
    V = vec2(F)

    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=wb.int32), m: wb.array(dtype=wb.int32), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i]
        up, low = n[i] > 0, a < 1
        if up:
            z = a * a
            b = n[i]
        elif low:
            z = wb.sin(a)
        else:
            w = a
        if up or low:
            y[i] += z
        if up and m[i] > 0:
            y[i] += z * F(b) * a
        if not up:
            if low:
                z *= 2
            else:
                y[i] += w * w * w
        if m[i] == 1 or m[i] == 2:
            q = V(a, z if up or low else 1)
        for j in range(3):
            if m[i] == 2:
                y[i] += q[0] * q[1]
        if m[i] == 0:
            t = a
        elif m[i] == 1:
            t = a * a
        elif m[i] == 2:
            t = 3 * a
        y[i] += t
        while low and m[i] < 2:  # while a name is assigned on some paths only
            m[i] += 1
            y[i] += x[i] * x[i]

    return k


@program(x=floats(4), y=zeros(4))
def names_where_the_other_path_leaves(F):
    @wb.func
    def chosen(a: F, j: wb.int32):
        if j == 0:
            b = a * a
        elif j > 2:
            return a
        else:
            b = wb.cos(a)
        return b * a

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        for j in range(4):
            if x[i] * F(j + 1) > 4:
                continue
            else:
                c = chosen(x[i], j)
            y[i] += c * x[i]
        for j in range(2):
            d = x[i] * F(j + 1)
        while True:
            e = d * x[i]
            if not e < -1:
                break
        y[i] += e

    return k


@program(x=floats(5), n=ints(0, 1, 2, 3, 5), y=zeros(5))
def loops_backwards_and_spread_arguments(F):
    V = vec2(F)

    @wb.func
    def area(a: F, b: F):
        return a * b + a

    @wb.func
    def pair(a: F):
        return a, a * a

    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=wb.int32), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for j in reversed(range(n[i])):
            s = s * x[j] + F(j)
        for j in reversed(range(1, 4)):
            s = s * x[j] - x[i]
        for j in reversed(range(1, 2 * n[i], 2)):
            s = wb.sin(s) + F(j) * x[i]
        for j in reversed(range(4, n[i] - 2, -3)):
            s = wb.cos(s) * x[j] + F(j)
        v = V(s, x[i])
        y[i] = area(*v) + area(*pair(x[i])) + wb.max(*v)

    return k
