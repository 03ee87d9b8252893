"""The reader: what it accepts means what Python means; seen by running the IR beside the plain function."""

from __future__ import annotations

import enum
import math
import types as python
import typing

import numpy as np
import pytest

from tests.support.ir_check import check
from workbench.errors import KernelError
from workbench.kernels import ir, types as T
from workbench.kernels.interpreter.run import run
from workbench.kernels.ops import BUILTINS, STATEFUL, memory
from workbench.kernels.reading import declare
from workbench.kernels.reading.declare import (
    adjoint,
    constant,
    func,
    func_grad,
    func_replay,
    printf,
    static,
    struct,
    tid,
)
from workbench.kernels.reading.reader import read

F = T.float64
f64 = T.Array(F)
f64_2 = T.Array(F, 2)
i32 = T.Array(T.int32)
vec2, vec3, mat22, quat = T.vector(2, F), T.vector(3, F), T.matrix((2, 2), F), T.quaternion(F)
vecs, mats = T.Array(vec3), T.Array(mat22)
sin, sqrt, dot, minimum = BUILTINS["sin"], BUILTINS["sqrt"], BUILTINS["dot"], BUILTINS["min"]
rand_init, randf = BUILTINS["rand_init"], STATEFUL["randf"]
atomic_add, atomic_max, atomic_cas = memory.ATOMIC_ADD, memory.ATOMIC_MAX, memory.ATOMIC_CAS
N, HALF = 3, 0.5
X = np.array([0.7, -1.3, 2.1, 0.4])


def zeros(shape, dtype=float):
    raise AssertionError("only read")


declare.LOCAL_ZEROS.add(zeros)


def function(fn, **generic) -> ir.Function:
    made = read(fn, generic_types=generic).function
    check(made)
    return made


def ran(fn, *args, dim=1):
    """The arguments after the kernel ran on copies of them."""
    own = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    dims = dim if isinstance(dim, tuple) else (dim,)
    run(function(fn), dims, own)
    return own


def agrees(fn, *args, dim=1):
    """The kernel gives what Python gives."""
    got = ran(fn, *args, dim=dim)
    own = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    for k in range(dim):
        around = {**fn.__globals__, "tid": lambda k=k: k}
        python.FunctionType(fn.__code__, around, fn.__name__, fn.__defaults__, fn.__closure__)(*own)
    for a, b in zip(got, own, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


def rows(f: ir.Function) -> list[str]:
    return [s.row.name for s in ir.walk(f.body)]


# ---- control flow


def early_return(x: f64, y: f64):
    i = tid()
    if x[i] < F(0.0):
        y[i] = F(-1.0)
        return
    y[i] = x[i] * x[i]


def partial_exits(x: f64, y: f64, n: int):
    i = tid()
    s = F(0.0)
    for j in range(n):
        if x[j] > F(0.5):
            if x[j] > F(2.0):
                break
            s += x[j]
        elif x[j] < F(-1.0):
            s -= F(10.0)
            continue
        s += F(1.0)
    y[i] = s


def nested_loops(x: f64, y: f64, n: int):
    s = F(0.0)
    for i in range(n):
        for j in range(i, n):
            if j == 2:
                continue
            if i > 2:
                break
            s = s + x[i] * x[j]
        s *= F(0.5)
    y[0] = s


def while_walk(x: f64, y: f64, n: int):
    j = 0
    s = F(1.0)
    while j < n and x[j] > F(-2.0):
        s = s * x[j]
        j += 1
    y[0] = s
    y[1] = F(j)


def while_true(x: f64, y: f64):
    j = 0
    while True:
        j += 1
        last = x[j]
        if last > F(2.0) or j == 3:
            break
    y[0] = last
    y[1] = F(j)


def return_in_loops(x: f64, y: f64, n: int):
    for i in range(n):
        k = 0
        while k < n:
            if x[i] * x[k] < F(-1.0):
                y[0] = F(i)
                y[1] = F(k)
                return
            k += 1
    y[2] = F(1.0)


def backwards(x: f64, y: f64):
    s = F(0.0)
    for j in range(3, -1, -1):
        s = s * F(0.5) + x[j]
    y[0] = s
    y[1] = F(j)


def no_turns(x: f64, y: f64, n: int):
    s = x[0]
    for j in range(n, 0):
        s = F(0.0)
    y[0] = s


def fibonacci(x: f64, y: f64, n: int):
    a, b = x[0], x[1]
    for j in range(n):
        a, b = b, a + b
    y[0] = a
    y[1] = b


def conditions(x: f64, y: f64):
    i = tid()
    a = x[i]
    hot = a > F(0.5) and sqrt(a) > F(1.0)
    cold = not hot and (a < F(0.0) or a == F(0.4))
    y[i] = F(1.0) if hot else (F(2.0) if cold else F(3.0))
    if F(0.0) < a < F(1.0) < F(2.0):
        y[i] += F(10.0)


def after_both_leave(x: f64, y: f64):
    i = tid()
    if x[i] > F(0.0):
        y[i] = F(1.0)
        return
    else:
        y[i] = F(2.0)
        return


def bound_twice(x: f64, y: f64, n: int):
    i = tid()
    t = 0
    for j in range(n):
        t = j
        u = x[j]
        y[i] += u * F(t)
    for j in range(n):
        u = x[j] * F(2.0)
        y[i] += u


def last_value(x: f64, y: f64):
    for j in range(4):
        t = x[j]
        if j == 1:
            continue
        y[1] += t
    y[0] = t


@pytest.mark.parametrize("fn", [early_return, conditions, after_both_leave], ids=lambda f: f.__name__)
def test_branches_and_early_returns_mean_what_python_means(fn):
    agrees(fn, X, np.zeros(4), dim=4)


@pytest.mark.parametrize("fn", [while_true, backwards, last_value], ids=lambda f: f.__name__)
def test_loops_mean_what_python_means(fn):
    agrees(fn, X, np.zeros(4))


@pytest.mark.parametrize(
    "fn",
    [partial_exits, nested_loops, while_walk, return_in_loops, no_turns, fibonacci, bound_twice],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("n", [0, 1, 4])
def test_loops_of_run_time_length_mean_what_python_means(fn, n):
    agrees(fn, X, np.zeros(4), n)


def test_a_constant_trip_count_is_noted():
    loops = [s.attr.trips for s in ir.walk(function(backwards).body) if s.row.name == "for"]
    assert loops == [4]


def test_a_value_that_no_turn_changes_is_not_carried():
    (loop,) = [s for s in ir.walk(function(no_turns).body) if s.row.name == "for"]
    assert len(loop.args) == 4

    def k(x: f64, y: f64, n: int):
        v = vec2(x[0], x[1])
        for j in range(n):
            y[j] = v[0]
            if n > 100:
                v = v

    (loop,) = [s for s in ir.walk(function(k).body) if s.row.name == "for"]
    assert len(loop.args) == 3


# ---- arrays


def negative(x: f64, y: f64):
    y[-1] = x[-2]
    j = -1
    y[0] = x[j]
    for k in range(-2, 0):
        y[1] += x[k]


def augmented(x: f64, y: f64):
    i = tid()
    y[i] += x[i]
    y[i] -= F(0.25)
    y[i] *= F(3.0)
    y[i] /= x[i]


def test_negative_indices_count_from_the_end():
    agrees(negative, X, np.zeros(4))


def test_augmented_elements_mean_what_python_means():
    agrees(augmented, X, np.ones(4), dim=4)
    assert rows(function(augmented)).count("atomic_add") == 1


def test_an_index_that_cannot_be_negative_is_not_wrapped():
    def k(x: f64, y: f64, n: int):
        i = tid()
        y[i] = x[i] + x[i + 1] + x[0] + x[i // 2] + x[minimum(i, 3)] + x[(i * 2) % 4]
        for j in range(1, n):
            y[j] = x[j - 1]

    assert "wrap" not in rows(function(k))


def test_a_guard_makes_a_stencil_index_certain():
    def k(u: f64_2, v: f64_2):
        i, j = tid()
        if i > 0 and 1 <= j:
            v[i, j] = u[i - 1, j] + u[i, j - 1]
        if i == 0 or j < 1:
            return
        v[i, j] += u[i - 1, j - 1]

    made = function(k)
    assert "wrap" not in rows(made)
    assert made.rank == 2


def test_an_index_that_may_be_negative_is_wrapped():
    def k(x: f64, y: f64, n: int):
        i = tid()
        y[i] = x[i - 1] + x[n]
        if i > 0:
            y[i] = x[i - 2]

    assert rows(function(k)).count("wrap") == 3


def test_rows_of_arrays_are_views():
    def k(x: f64_2, y: f64_2):
        i = tid()
        row, out = x[i], y[i]
        for j in range(len(row)):
            out[j] = row[-1 - j] * F(x.shape[0]) + x[i][j]
        y[i][0] += F(len(y.shape))

    x = np.arange(6.0).reshape(2, 3)
    _, y = ran(k, x, np.zeros((2, 3)), dim=2)
    expected = x[:, ::-1] * 2 + x
    expected[:, 0] += 2
    np.testing.assert_array_equal(y, expected)


def test_the_same_array_from_both_branches_is_no_choice():
    def k(x: f64, y: f64):
        i = tid()
        a = x
        if i > 0:
            a = x
        y[i] = a[i]

    agrees(k, X, np.zeros(4), dim=4)


# ---- components


def test_components_of_locals_are_replaced_by_value():
    def k(x: f64, out: vecs, m_out: mats):
        v = vec3(x[0], 2.0, 3.0)
        w = v
        v[0] = F(5.0)
        v.y += w.x
        for j in range(3):
            v[j] *= F(2.0)
        w[1:3] = v[0:2]
        m = mat22(1.0, 2.0, 3.0, 4.0)
        m[0, 1] = x[1]
        m[1] = m[0]
        m[1, 0] += m[0][1]
        out[0], out[1] = v, w
        m_out[0] = m

    _, out, m = ran(k, X, np.zeros((2, 3)), np.zeros((1, 2, 2)))
    np.testing.assert_allclose(out, [[10.0, 5.4, 6.0], [0.7, 10.0, 5.4]])
    np.testing.assert_allclose(m[0], [[1.0, -1.3], [-0.3, -1.3]])


def test_components_of_array_elements_are_memory():
    def k(v: vecs, m: mats):
        i = tid()
        v[i][0] = v[i].y
        v[i].z += F(2.0)
        v[i].z *= F(3.0)
        v[i][1] -= v[i][0]
        m[i][0, 1] = F(7.0)
        m[i][1] = vec2(8.0, 9.0)
        atomic_add(v, i, vec3(1.0))
        v[i, 2] += F(100.0)

    v, m = ran(k, np.array([[1.0, 2.0, 3.0]]), np.zeros((1, 2, 2)))
    np.testing.assert_array_equal(v, [[3.0, 1.0, 116.0]])
    np.testing.assert_array_equal(m, [[[0.0, 7.0], [8.0, 9.0]]])


def test_quaternions_have_components():
    def k(y: f64):
        q = quat()
        q.w = F(1.0)
        q[0] = q.w + F(1.0)
        y[0] = q.x + q[3]

    assert ran(k, np.zeros(1))[0][0] == 3.0


def test_a_local_array_is_shared_by_its_names():
    def k(x: f64, y: f64):
        i = tid()
        t = zeros(shape=4, dtype=F)
        t[0] = x[i]
        s = t
        for j in range(3):
            s[j + 1] = t[j] * x[i]
        y[i] = t[3] + s[1]

    _, y = ran(k, X, np.zeros(4), dim=4)
    np.testing.assert_allclose(y, X**4 + X**2)


# ---- structs


@struct
class Inner:
    a: F
    b: F


@struct
class Outer:
    inner: Inner
    x: f64
    c: F


@struct
class Ball:
    q: vec3
    m: F


def test_structs_are_their_fields():
    def k(s: Outer, y: f64):
        i = tid()
        t = s
        t.inner.a = s.x[i] * s.c
        t.inner.b = t.inner.a + s.inner.a
        if s.x[i] > F(0.0):
            t.inner.a *= F(2.0)
        for j in range(2):
            t.inner.b += t.inner.a
        t.x[i] += F(1.0)
        y[i] = t.inner.a + t.inner.b + s.inner.a

    made = function(k)
    assert [p.name for p in made.params] == ["s.inner.a", "s.inner.b", "s.x", "s.c", "y"]
    _, _, x, _, y = (own := [10.0, 0.0, X.copy(), 3.0, np.zeros(4)])
    run(made, (4,), own)
    a0 = 3 * X
    a = np.where(X > 0, 2 * a0, a0)
    np.testing.assert_allclose(y, a + (a0 + 10 + 2 * a) + 10)
    np.testing.assert_allclose(x, X + 1)


@func
def ball(q: vec3, m: F):
    b = Ball(q=q)
    b.m = m
    return b


def test_arrays_of_structs_are_arrays_of_fields():
    def k(p: T.Array(Ball), r: T.Array(Ball)):
        i = tid()
        r[i].q = p[i].q * p[i].m
        s = p[i]
        s.m = s.m * s.m + p[i].q[0]
        r[i].m += s.m
        r[i].q[1] = F(9.0)
        r[i + 1] = s
        r[i + 2] = ball(s.q, s.q.z)

    made = function(k)
    assert [p.name for p in made.params] == ["p.q", "p.m", "r.q", "r.m"]
    q, m = np.zeros((3, 3)), np.zeros(3)
    run(made, (1,), [np.array([[1.0, 2.0, 3.0]]), np.array([2.0]), q, m])
    np.testing.assert_array_equal(q, [[2.0, 9.0, 6.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(m, [5.0, 5.0, 3.0])


def test_struct_instances_convert_what_they_are_given():
    b = Ball(q=(1, 2, 3))
    assert b.q.dtype == np.float64 and list(b.q) == [1.0, 2.0, 3.0] and b.m == 0.0
    b.m = 2
    assert type(b.m) is np.float64
    o = Outer()
    assert o.x is None
    o.inner.a = 3
    assert o.inner.a == 3.0 and Outer().inner.a == 0.0
    with pytest.raises(AttributeError, match="Ball has no field 'mass'; it has q, m"):
        b.mass = 1.0
    with pytest.raises(TypeError, match=r"Ball\.q takes a vec3d"):
        b.q = (1.0, 2.0)


# ---- funcs


@func
def first_above(x: f64, n: int, limit: F = 1.0):
    for j in range(n):
        if x[j] > limit:
            return x[j] * x[j]
    return F(0.0)


@func
def twice(a: typing.Any):
    return a * F(2.0)


@func
def moments(a: F, b: F):
    return a * b, a + b


@func
def fill(r: f64, a: F):
    r[0] = a
    r[1] = a * a


def test_funcs_are_read_into_the_kernel():
    def k(x: f64, y: f64, t: f64_2):
        p, q = moments(b=x[0], a=x[1])
        y[0] = first_above(x, 4) + first_above(x, 2, limit=F(0.5)) + first_above(x, 4, 100.0)
        y[1] = p * q + dot(twice(vec2(p, q)), vec2(1.0, 0.0)) + twice(q)
        row = t[1]
        fill(row, x[0])

    _, y, t = ran(k, X, np.zeros(2), np.zeros((2, 2)))
    p, q = X[0] * X[1], X[0] + X[1]
    np.testing.assert_allclose(y, [2.1**2 + 0.49, p * q + 2 * p + 2 * q])
    np.testing.assert_allclose(t, [[0, 0], [0.7, 0.49]])


def test_a_place_in_a_func_keeps_the_call_site():
    def k(x: f64, y: f64):
        y[0] = first_above(x, 4)

    made = function(k)
    inner = [s.where for s in ir.walk(made.body) if s.where.function == "first_above"]
    assert inner and all(w.caller.function == "k" for w in inner)
    assert all(w.caller.text.strip() == "y[0] = first_above(x, 4)" for w in inner)


def test_random_numbers_rebind_their_state():
    def k(y: T.Array(T.float32)):
        state = rand_init(42, 7)
        for j in range(3):
            y[j] = randf(state)

    (y,) = ran(k, np.zeros(3, np.float32))
    assert len(set(y.tolist())) == 3 and (0 <= y).all() and (y < 1).all()


def test_atomics_return_the_old_value():
    def k(x: f64, y: f64, n: i32):
        i = tid()
        slot = atomic_add(n, 0, 1)
        y[slot] = x[i]
        atomic_max(y, 4, x[i])
        atomic_cas(n, 1, 0, i + 5)

    _, y, n = ran(k, X, np.zeros(5), np.zeros(2, np.int32), dim=4)
    np.testing.assert_array_equal(y, [*X, 2.1])
    assert n.tolist() == [4, 5]


# ---- constants, casts, annotations


def test_python_numbers_are_constants_and_casts_of_them_are_exact():
    tenth = 0.1

    def k(y: f64, z: T.Array(T.float32)):
        y[0] = F(tenth)
        y[1] = F(1.0 / 3.0)
        y[2] = F(static(N + HALF))
        y[3] = F(int(3.9)) + F(float(N))
        z[0] = tenth

    y, z = ran(k, np.zeros(4), np.zeros(1, np.float32))
    assert y.tolist() == [0.1, 1 / 3, 3.5, 6.0]
    assert z[0] == np.float32(0.1)


def test_a_vector_outside_is_a_constant():
    up = T.vector(3, F)(0.0, 0.0, 1.0)

    def k(v: vecs):
        v[0] = up * F(2.0)

    np.testing.assert_array_equal(ran(k, np.zeros((1, 3)))[0], [[0, 0, 2]])


def test_branches_on_python_constants_are_taken_when_read():
    def k(y: f64):
        if N > 2:
            t = F(1.0)
        else:
            t = vec3()
        y[0] = t

    assert "if" not in rows(function(k))


def test_declared_types_and_chained_assignment():
    def k(y: f64):
        a = b = F(2.0)
        c: F = 0.1
        a += c
        y[0], y[1] = a, b

    assert ran(k, np.zeros(2))[0].tolist() == [2.1, 2.0]


def test_string_annotations_see_the_closure():
    kind = T.Array(T.vector(2, F))

    def k(v: kind, n: "int", w: "T.Array(F, 2)"):
        v[0] = vec2(F(n), F(kind_length))

    kind_length = 2
    made = read(k, generic_types={"v": kind}).function
    assert [str(p.type) for p in made.params] == ["array(dtype=vec2d)", "int32", "array2d(dtype=float64)"]


def test_values_carry_the_users_names_and_lines():
    def k(x: f64, y: f64):
        i = tid()
        speed = x[i] * x[i]
        y[i] = speed

    made = function(k)
    named = {s.outs[0].name: s.where for s in ir.walk(made.body) if s.outs and s.outs[0].name}
    assert set(named) == {"i", "speed"}
    assert named["speed"].text.strip() == "speed = x[i] * x[i]"
    assert named["speed"].text[named["speed"].col : named["speed"].end_col] == "x[i] * x[i]"


def test_code_without_a_file_is_read_through_linecache():
    import linecache

    text = "def k(y: f64):\n    y[0] = F(1.5)\n"
    linecache.cache["<cell 1>"] = (len(text), None, text.splitlines(True), "<cell 1>")
    space = {"f64": f64, "F": F}
    exec(compile(text, "<cell 1>", "exec"), space)
    made = function(space["k"])
    assert ran(space["k"], np.zeros(1))[0][0] == 1.5
    assert made.body.body[-1].where.file == "<cell 1>" and made.body.body[-1].where.line == 2


def test_a_reading_knows_when_a_python_name_changed():
    scale = 2.0

    def k(y: f64):
        y[0] = F(scale)

    reading = read(k)
    assert reading.lookups.current()
    scale = 3.0
    assert not reading.lookups.current()


def test_printf_keeps_its_format():
    def k(x: f64):
        i = tid()
        printf("%d %f\n", i, x[i])

    (stmt,) = [s for s in ir.walk(function(k).body) if s.row.name == "printf"]
    assert stmt.attr == ("%d %f\n", ("i", "x[i]"))


def test_constant_returns_its_value_and_refuses_objects():
    assert constant(3) == 3
    with pytest.raises(TypeError, match="a constant is a number"):
        constant([1, 2])


# ---- adjoints of the user


@func
def safe_root(a: F, x: f64, k: int):
    return sqrt(a) * x[k]


@func_grad(safe_root)
def safe_root_grad(a: F, x: f64, k: int, adj_ret: F):
    if a > F(0.0):
        adjoint[a] += adj_ret * x[k] / (F(2.0) * sqrt(a))
    adjoint[x][k] += sqrt(a) * adj_ret


@func_replay(safe_root)
def safe_root_replay(a: F, x: f64, k: int):
    return sqrt(a) * x[k]


def test_a_func_with_its_own_adjoint_stays_a_call():
    def k(x: f64, y: f64):
        i = tid()
        y[i] = safe_root(x[i] * x[i], x, 2)

    made = function(k)
    (call,) = [s for s in made.body.body if s.row.name == "call"]
    assert [str(v.type) for v in call.args] == ["float64", "array(dtype=float64)", "int32"]
    custom = call.attr
    assert (custom.arrays, custom.values, custom.outs) == ((1,), (0,), (0,))
    assert [str(p.type) for p in custom.grad.params[3:]] == ["array(dtype=float64)", "float64"]
    assert [str(v.type) for v in custom.grad.results] == ["float64"]
    assert "accumulate" in [s.row.name for s in ir.walk(custom.grad)]
    assert [str(v.type) for v in custom.replay.results] == ["float64"]
    _, y = ran(k, X, np.zeros(4), dim=4)
    np.testing.assert_allclose(y, np.abs(X) * 2.1)


def test_an_adjoint_that_forgets_an_argument_is_refused():
    @func
    def product(a: F, b: F):
        return a * b

    @func_grad(product)
    def product_grad(a: F, b: F, adj_ret: F):
        adjoint[a] += b * adj_ret

    def k(x: f64, y: f64):
        y[0] = product(x[0], x[1])

    with pytest.raises(KernelError, match=r"never adds to adjoint\[b\]"):
        read(k)


class Mode(enum.IntEnum):
    FAST = 2


@func
def heaviest(p: T.Array(Ball), n: int):
    m = p[0].m
    for k in range(1, n):
        m = max(m, p[k].m)
    return m


def test_python_builtins_enums_and_struct_arrays_in_funcs():
    def k(p: T.Array(Ball), y: f64):
        i = tid()
        y[i] = heaviest(p, len(p)) + abs(F(-1.0)) + F(int(2.7)) + F(Mode.FAST) + F(math.pi)
        atomic_add(p[i].m, F(1.0))
        atomic_add(p[i].q.x, F(2.0))
        atomic_max(p[i].q, 1, F(5.0)) if i < 0 else 0.0

    with pytest.raises(KernelError, match="does nothing"):
        read(k)

    def k(p: T.Array(Ball), y: f64):
        i = tid()
        y[i] = heaviest(p, len(p)) + abs(F(-1.0)) + F(int(2.7)) + F(Mode.FAST) + F(math.pi)
        atomic_add(p[i].m, F(1.0))
        atomic_add(p[i].q.x, F(2.0))

    q, m, y = ran(k, np.zeros((3, 3)), np.array([1.0, 5.0, 2.0]), np.zeros(1))
    assert y[0] == pytest.approx(5 + 1 + 2 + 2 + np.pi)
    assert m.tolist() == [2.0, 5.0, 2.0] and q[0].tolist() == [2.0, 0.0, 0.0]


def test_an_array_field_of_a_local_struct_is_the_same_array():
    def k(x: f64, y: f64):
        i = tid()
        s = Outer()
        s.x = y
        s.c = x[i]
        if i > 0:
            s.c *= F(2.0)
        s.x[i] = s.c

    agreed = ran(k, X, np.zeros(4), dim=4)[1]
    np.testing.assert_allclose(agreed, [X[0], *(2 * X[1:])])


def test_an_array_field_that_was_never_assigned_is_refused():
    def k(y: f64):
        s = Outer()
        y[0] = s.x[0]

    with pytest.raises(KernelError, match="never assigned"):
        read(k)
