"""Number types: every integer and float width, casts between them, bit operations, numbers as arguments."""

import numpy as np

import workbench as wb

from . import ALL, floats, given, program, vec3, zeros

INTEGERS = [wb.int8, wb.int16, wb.int32, wb.int64, wb.uint8, wb.uint16, wb.uint32, wb.uint64]


def integers(T):
    def make(F):
        @wb.kernel
        def k(n: wb.array(dtype=T), x: wb.array(dtype=F), y: wb.array(dtype=F), m: wb.array(dtype=T)):
            i = wb.tid()
            a = n[i] * T(3) + T(1)
            b = a // T(2) + a % T(5) - (a >> T(1))
            c = ((a & T(12)) | (b ^ T(3))) << T(1)
            m[i] = c + wb.min(a, b) + wb.max(a, n[i])
            y[i] = x[i] * x[i] * F(c) + x[i] * F(m[i])
            for j in range(n[i]):
                y[i] = y[i] * F(0.5)

        return k

    make.__name__ = f"integers_{T}"
    n = np.array([0, 1, 3, 2])

    def reference(n, x, y, m):
        a = n * 3 + 1
        b = a // 2 + a % 5 - (a >> 1)
        c = ((a & 12) | (b ^ 3)) << 1
        m = c + np.minimum(a, b) + np.maximum(a, n)
        return {"m": m, "y": (x * x * c + x * m) * 0.5**n}

    program(n=given(*n, of=T), x=floats(4), y=zeros(4), m=zeros(4, of=T), reference=reference)(make)


for _T in INTEGERS:
    integers(_T)


@program(x=floats(4), y=zeros(4), dtypes=ALL)
def float16_values_in_a_loop(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for j in range(3):
            s = s * F(0.5) + x[i] * s * F(0.25)
        y[i] = wb.sin(s) * x[i]

    return k


@program(x=floats(3, of=vec3), y=zeros(3), dtypes=ALL)
def float16_vectors(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), y: wb.array(dtype=F)):
        i = wb.tid()
        v = x[i]
        v[1] = v.x * v.z
        y[i] = wb.dot(v, x[i]) * F(0.25)
        wb.atomic_add(y, i, wb.length(v))

    return k


@program(x=floats(4), h=zeros(4, of=wb.float64), y=zeros(4))
def casts_between_floats(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), h: wb.array(dtype=wb.float64), y: wb.array(dtype=F)):
        i = wb.tid()
        d = wb.float64(x[i])
        h[i] = d * d * wb.float64(0.1)
        y[i] = F(h[i]) * F(wb.float64(x[i]) * wb.float64(2.0))

    return k


@program(x=floats(4, low=1.0, high=4.0), y=zeros(4))
def casts_to_integers_have_no_derivative(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        n = int(x[i])
        s = x[i]
        for j in range(n):
            s = s * x[i]
        y[i] = s + F(n) * x[i] + F(wb.int64(x[i] * F(2.0))) * x[i]

    return k


@program(x=floats(4), y=zeros(4))
def numbers_and_vectors_as_arguments(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F), a: F, n: int, v: V, on: wb.bool):
        i = wb.tid()
        s = x[i] * a
        for j in range(n):
            s = s * x[i] + v[j % 3]
        y[i] = s if on else F(0.0)

    return lambda p: wb.launch(k, dim=4, inputs=[p.x, p.y, 0.75, 4, V(0.5, 0.25, 1.0), True])


@program(x=floats(4), y=zeros(4))
def bit_operations_choose_the_path(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        bits = wb.uint32(i * 2654435 + 12345)
        bits ^= bits << wb.uint32(13)
        bits ^= bits >> wb.uint32(17)
        bits ^= bits << wb.uint32(5)
        s = x[i]
        if (bits & wb.uint32(1)) == wb.uint32(1):
            s = s * s
        if (~i & 1) == 1:
            s = s * wb.sin(s)
        y[i] = s

    return k


@program(x=floats(4), n=given(1, 2, 3, 4, of=wb.int64), y=zeros(4))
def mixed_widths_of_integers(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=wb.int64), y: wb.array(dtype=F)):
        i = wb.tid()
        total = wb.int64(0)
        for j in range(n[i]):
            total += wb.int64(j) * n[i]
        y[i] = x[i] ** F(2.0) * F(total) + x[int(n[i]) - 1] * x[i]

    return k
