"""Decisions: if/elif/else, ternaries, where, and/or/not, chained comparisons, early return."""

import workbench as wb

from . import floats, given, ints, program, zeros


@program(x=given(0.25, 0.75, 1.25, 1.75, 2.25), y=zeros(5))
def if_elif_else(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i]
        if a < F(0.5):
            b = a * a
        elif a < F(1.0):
            b = wb.sin(a)
        elif a < F(1.5):
            b = F(1.0) / a
            b = b * b
        else:
            b = a * a * a
        y[i] = b * a

    return k


@program(x=given(0.25, 0.75, 1.25, 1.75), z=floats(4), y=zeros(4))
def nested_ifs_that_change_locals(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i]
        b = z[i]
        if a > F(0.5):
            a = a * b
            if a > F(1.0):
                b = b * a + b
            else:
                b = wb.exp(b)
                a += b
            a = a * b
        y[i] = a * b + x[i]

    return k


@program(x=given(-1.5, -0.5, 0.5, 1.5), y=zeros(4))
def ternaries(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i] * x[i] if x[i] > F(0.0) else -x[i]
        y[i] = a * x[i] if a > F(1.0) else (wb.sin(a) if a < F(0.375) else wb.cos(a))

    return k


@program(x=given(-1.5, -0.5, 0.5, 1.5, 2.5), n=ints(0, 1, 2, 3, 4), y=zeros(5))
def and_or_not_and_chained_comparisons(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i]
        s = a
        if a > F(0.0) and n[i] > 2:
            s = s * a
        if F(-1.0) < a < F(1.0) or n[i] == 4:
            s = s * s
        if not (a > F(0.0) or n[i] == 0):
            s = s + a * a * a
        if 1 <= n[i] <= 3 and not n[i] == 2:
            s = s * wb.sin(a)
        y[i] = s

    return k


@program(x=floats(4), y=zeros(4))
def and_guards_an_index(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        if i > 0 and x[i - 1] > F(0.5):
            s = s * x[i - 1]
        if i < x.shape[0] - 1:
            s = s * x[i + 1] + s
        y[i] = s

    return k


@program(x=given(-1.0, 0.5, 1.5, -2.0), y=zeros(4))
def early_return_of_a_kernel(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        if x[i] < F(0.0):
            return
        y[i] = x[i] * x[i]
        if x[i] > F(1.0):
            return
        y[i] = y[i] * x[i]

    return k


@program(x=given(-1.0, 0.5, 1.5, 3.0), y=zeros(4))
def func_with_several_returns(F):
    @wb.func
    def f(a: F):
        if a < F(0.0):
            return a * a
        if a < F(1.0):
            b = wb.sin(a)
            return b * a
        elif a < F(2.0):
            return wb.exp(a)
        return a / (F(1.0) + a)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = f(x[i]) * f(f(x[i]))

    return k


@program(x=given(0.5, 0.5, 1.5), z=given(0.5, 1.0, 0.75), y=zeros(3))
def where_of_both_sides(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = wb.where(x[i] > F(1.0), x[i] * z[i], z[i] * z[i] * x[i])

    return k


@program(x=floats(3), flag=given(True, False, True, of=wb.types.bool_), y=zeros(3))
def an_array_of_bools(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), flag: wb.array(dtype=wb.bool), y: wb.array(dtype=F)):
        i = wb.tid()
        on = flag[i]
        if on:
            y[i] = x[i] * x[i]
        else:
            y[i] = wb.sin(x[i])
        off = not on
        y[i] = y[i] * F(2.0) if off else y[i] * x[i]

    return k


@program(x=given(0.25, 0.75, 1.25), y=zeros(3))
def a_condition_kept_while_its_operand_changes(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i]
        big = a > F(0.5)
        a = a * F(0.25)
        if big:
            a = a * a
        y[i] = a * x[i]

    return k


@program(x=given(0.25, 0.75, 1.25), y=floats(3))
def stores_on_some_paths(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        if x[i] > F(0.5):
            y[i] = x[i] * y[i]
        if x[i] > F(1.0):
            y[i] = y[i] * y[i]

    return k
