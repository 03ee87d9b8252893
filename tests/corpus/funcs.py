"""Funcs, structs, closures, constants, static, both annotation styles."""

import workbench as wb

from . import floats, ints, program, vec3, zeros

GAIN = wb.constant(1.5)
TURNS = 3


@program(x=floats(3), z=floats(3), y=zeros(3))
def funcs_calling_funcs(F):
    @wb.func
    def inner(a: F, b: F) -> F:
        return a * b + wb.sin(a)

    @wb.func
    def outer(a: F, b: F):
        c = inner(a, b)
        return inner(c, a), c * b

    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        p, q = outer(x[i], z[i])
        r, s = outer(q, p)
        y[i] = p * q + r * s * F(0.125)

    return k


@program(x=floats(3), y=zeros(3))
def a_func_that_changes_its_argument(F):
    @wb.func
    def twice(a: F):
        a = a * a
        a += F(1.0)
        return a

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i]
        b = twice(a)
        y[i] = a * b

    return k


@program(x=floats(3), y=zeros(3))
def a_func_that_writes_memory(F):
    @wb.func
    def put(a: wb.array(dtype=F), i: int, v: F):
        a[i] = a[i] * v + v
        return a[i] * v

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = put(y, i, x[i])
        s = s * put(y, i, s)
        y[i] = y[i] * s

    return k


@program(x=floats(3), y=zeros(3))
def closures_constants_and_static(F):
    slope = 2.0
    powers = 4

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = F(slope) * x[i] + F(GAIN)
        for j in range(powers):
            s = s * x[i] * F(wb.static(0.25 * TURNS))
        for j in range(wb.static(TURNS - 1)):
            s = s + F(j) * s
        y[i] = s

    return k


@program(x=floats(3), y=zeros(3, 2), n=ints(1, 2, 0))
def subscript_annotations(F):
    V = wb.types.vector(2, F)

    @wb.kernel
    def k(x: wb.array[F], y: wb.array2d[F], n: wb.array[int]):
        i, j = wb.tid()
        y[i, j] = x[n[i]] * x[i] * F(j + 1)

    return lambda p: wb.launch(k, dim=(3, 2), inputs=[p.x, p.y, p.n])


@program(x=floats(3), z=floats(3, of=vec3), y=zeros(3))
def a_struct_of_arrays_and_numbers(F):
    V = wb.types.vector(3, F)

    @wb.struct
    class Inner:
        gain: F
        shift: V

    @wb.struct
    class Data:
        x: wb.array(dtype=F)
        z: wb.array(dtype=V)
        inner: Inner
        n: int

    @wb.kernel
    def k(d: Data, y: wb.array(dtype=F)):
        i = wb.tid()
        s = d.x[i]
        for j in range(d.n):
            s = s * d.inner.gain + wb.dot(d.z[i], d.inner.shift)
        d.x[i] = s * s
        y[i] = s * d.x[i]

    def run(p):
        d = Data()
        d.x, d.z, d.n = p.x, p.z, 3
        d.inner.gain = 0.75
        d.inner.shift = V(0.5, -0.25, 1.0)
        wb.launch(k, dim=3, inputs=[d, p.y])

    return run


@program(x=floats(3), y=zeros(3))
def a_struct_whose_array_is_also_an_argument(F):
    @wb.struct
    class Data:
        a: wb.array(dtype=F)
        b: wb.array(dtype=F)

    @wb.kernel
    def k(d: Data, x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        d.a[i] = x[i] * d.b[i]
        y[i] = x[i] * d.b[i]
        d.b[i] = y[i] + x[i]

    def run(p):
        d = Data()
        d.a = d.b = p.x
        wb.launch(k, dim=3, inputs=[d, p.x, p.y])

    return run


@program(x=floats(3), y=zeros(3))
def local_structs(F):
    V = wb.types.vector(3, F)

    @wb.struct
    class Pair:
        a: F
        v: V

    @wb.struct
    class Both:
        p: Pair
        q: Pair

    @wb.func
    def grow(p: Pair, s: F):
        p.a = p.a * s
        p.v = p.v * s + V(p.a)
        return p

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        b = Both()
        b.p.a = x[i]
        b.p.v = V(x[i], F(1.0), x[i] * x[i])
        b.q = grow(b.p, x[i])
        c = b
        for j in range(3):
            b.p = grow(b.q, F(0.5))
            b.q.v[1] = b.p.a * x[i]
            b.q.a += b.p.v.x
        y[i] = b.q.a * b.p.v[1] + wb.length(b.q.v) + c.p.a

    return k


@program(m=floats(3), q=floats(3, of=vec3), y=zeros(3))
def an_array_of_structs(F):
    V = wb.types.vector(3, F)

    @wb.struct
    class Body:
        m: F
        q: V

    @wb.kernel
    def fill(m: wb.array(dtype=F), q: wb.array(dtype=V), b: wb.array(dtype=Body)):
        i = wb.tid()
        b[i].m = m[i] * m[i]
        b[i].q = q[i] * m[i]

    @wb.kernel
    def use(b: wb.array(dtype=Body), y: wb.array(dtype=F)):
        i = wb.tid()
        body = b[i]
        body.m = body.m * body.q.x
        body.q[1] = body.m
        b[i] = body
        b[i].q.z += b[i].m
        y[i] = wb.dot(b[i].q, body.q) * b[(i + 1) % 1 + i].m

    def run(p):
        b = wb.zeros(3, dtype=Body, requires_grad=True)
        wb.launch(fill, dim=3, inputs=[p.m, p.q, b])
        wb.launch(use, dim=3, inputs=[b, p.y])

    return run


@program(x=floats(3), y=zeros(3))
def default_and_named_things(F):
    one = F(1.0)
    weights = wb.types.vector(3, F)(0.5, 0.25, 0.125)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        w = weights
        y[i] = x[i] * w[0] + one * x[i] * x[i] * w[2] + w[1]

    return k


@program(x=floats(4), y=zeros(4))
def assert_free_printf(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] * x[i]
        if x[i] > F(100.0):
            wb.printf("%d %f\n", i, x[i])

    return k
