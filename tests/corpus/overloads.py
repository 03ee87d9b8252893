"""Overloads of funcs, open types, functions as arguments, parameters that are the caller's variables."""

from collections.abc import Callable
from typing import Any

import workbench as wb

from . import floats, program, vec2, vec3, zeros


@program(x=floats(3), v=floats(3, of=vec3), y=zeros(3))
def one_name_for_numbers_vectors_and_more_arguments(F):
    @wb.func
    def size(a: F):
        return a * a * F(0.5)

    @wb.func
    def size(a: wb.types.vector(length=Any, dtype=wb.Float)):  # noqa: F811
        return wb.dot(a, a)

    @wb.func
    def size(a: F, by: F):  # noqa: F811
        return size(a) * by

    @wb.kernel
    def k(x: wb.array(dtype=F), v: wb.array(dtype=wb.vec3 if F is wb.float32 else wb.vec3d), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = size(x[i]) + size(v[i]) + size(by=x[i], a=size(v[i]))

    return k


@program(x=floats(3), v=floats(3, of=vec2), y=zeros(3))
def a_func_of_open_types(F):
    @wb.func
    def bent(a: wb.Float):
        return a * a * a

    @wb.func
    def bent(a: Any):  # noqa: F811
        return a * a.dtype(0.25) + type(a)(a.dtype(0.5))

    @wb.kernel
    def k(x: wb.array(dtype=wb.Float), v: wb.array(dtype=wb.types.vector(length=2, dtype=F)), y: wb.array(dtype=F)):
        i = wb.tid()
        b = bent(v[i])
        y[i] = bent(x[i]) * b[0] * b[1]

    return wb.overload(k, {"x": wb.array(dtype=F)})


@program(x=floats(3), y=zeros(3))
def functions_as_arguments(F):
    def power(n: int):
        @wb.func
        def p(a: F):
            s = F(1.0)
            for _ in range(n):
                s = s * a
            return s

        return p

    cube = power(3)

    @wb.func
    def twice(f: Callable, g: wb.Function, a: F):
        return f(g(a)) + g(f(a))

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = twice(cube, wb.sin, x[i]) * twice(wb.static(power(2)), wb.exp, F(0.25) * x[i])

    return k


@program(x=floats(3), y=zeros(3))
def parameters_that_are_the_callers_variables(F):
    @wb.func
    def grow(a: wb.ref[F], n: wb.ref[int], by: F):
        if n > 2:
            a = a * by
            return
        n += 1
        a = a * a + by

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i] * F(0.5)
        n = wb.int32(0)
        for j in range(4):
            grow(a, n, x[i] + F(j) * F(0.125))
        y[i] = a * F(n)

    return k


@program(x=floats(3), v=floats(3, of=vec3), y=zeros(3))
def derivatives_in_a_kernel(F):
    @wb.func
    def energy(p: wb.types.vector(length=3, dtype=F), k: F, n: int):
        s = F(0.0)
        for j in range(n):
            s += k * wb.dot(p, p) * F(j + 1)
            if s > F(4.0):
                s = wb.sqrt(s)
        return s, wb.sin(k) * p

    @wb.kernel
    def kern(x: wb.array(dtype=F), v: wb.array(dtype=wb.types.vector(length=3, dtype=F)), y: wb.array(dtype=F)):
        i = wb.tid()
        by_p, by_k, none = wb.grad(energy)(v[i], x[i], 3)
        y[i] = wb.dot(by_p, v[i]) * by_k + F(none) + wb.grad(wb.exp)(x[i])

    return kern


@program(x=floats(3), y=zeros(3))
def derivatives_of_derivatives(F):
    @wb.func
    def f(a: F, table: wb.array(dtype=F)):
        return a * a * a * table[0]

    @wb.func
    def slope(a: F, table: wb.array(dtype=F)):
        by_a, _ = wb.grad(f)(a, table)
        return by_a * a

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        curvature, _ = wb.grad(slope)(x[i], x)
        y[i] = curvature

    return k
