"""The interpreter: control flow, memory, bounds. Rows with arithmetic are made here, so that only `run` is tested."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import workbench as wb
from tests.support.ir_check import check
from workbench.errors import BoundsError, Where
from workbench.kernels import ir
from workbench.kernels.interpreter.run import run
from workbench.kernels.ops import control, matrices, memory, scalar, vectors
from workbench.kernels.row import Row, type_of
from workbench.kernels.types import (
    Array,
    Stack,
    bool_,
    float16,
    float32,
    int8,
    int32,
    int64,
    matrix,
    quaternion,
    vector,
)

ADD = Row("add", type=lambda a, b: a, meaning=lambda a, b: a + b)
MUL = Row("mul", type=lambda a, b: a, meaning=lambda a, b: a * b)
DIV = Row("div", type=lambda a, b: a, meaning=lambda a, b: a / b)
LT = Row("lt", type=lambda a, b: bool_, meaning=lambda a, b: a < b)
DOT = Row("dot", type=lambda a, b: a.scalar, expand=lambda a, b, types, out: a[0] * b[0] + a[1] * b[1] + a[2] * b[2])
TWICE = Row("twice", type=lambda a: a, expand=lambda a, types, out: [x + x for x in a])
HALVES = Row("halves", type=lambda a: (a, a), meaning=lambda a: (a // 2, a - a // 2))


class Kernel:
    """A function under construction and the builder that writes it."""

    def __init__(self, **params):
        self.params = [ir.Value(t, name) for name, t in params.items()]
        self.function = ir.Function("k", ir.Region(self.params))
        self.b = ir.Builder(self.function.body)

    def __call__(self, row, *args, attr=None, name=""):
        return self.b.emit(row, *args, attr=attr, name=name)

    def const(self, value, type=int32):
        return self.b.append(control.CONST, (), (type,), attr=value).outs[0]

    def tid(self, axis=0):
        return self(control.TID, attr=control.Tid(axis))

    def region(self, *params):
        return ir.Region([ir.Value(t) for t in params])

    def loop(self, bounds, init, body, breaks=False):
        """for: `body(i, *carried)` returns the results."""
        region = self.region(int32, *[v.type for v in init])
        with self.b.inside(region):
            region.results = tuple(body(*region.params))
        bounds = [b if isinstance(b, ir.Value) else self.const(b) for b in bounds]
        types = [v.type for v in init]
        return self.b.append(control.FOR, [*bounds, *init], types, (region,), control.Loop(breaks)).outs

    def loop_while(self, init, test, body, breaks=False):
        regions = []
        for make in (test, body):
            region = self.region(*[v.type for v in init])
            with self.b.inside(region):
                region.results = tuple(make(*region.params))
            regions.append(region)
        types = [v.type for v in init]
        return self.b.append(control.WHILE, init, types, tuple(regions), control.Loop(breaks)).outs

    def branch(self, condition, then, other):
        regions = []
        for make in (then, other):
            region = ir.Region()
            with self.b.inside(region):
                region.results = tuple(make())
            regions.append(region)
        types = [v.type for v in regions[0].results]
        return self.b.append(control.IF, (condition,), types, tuple(regions)).outs

    def run(self, dims, *args, **options):
        check(self.function)
        run(self.function, dims, list(args), **options)


def one_to_one(ndim=1, dtype=float32):
    k = Kernel(x=Array(dtype, ndim), y=Array(dtype, ndim))
    return k, *k.params


def test_every_thread_of_a_grid_runs_and_sees_its_index():
    k = Kernel(y=Array(int32, 2))
    (y,) = k.params
    i, j = k.tid(0), k.tid(1)
    k(memory.STORE, y, i, j, k(ADD, k(MUL, i, k.const(10)), j))
    out = np.zeros((2, 3), np.int32)
    k.run((2, 3), out)
    assert out.tolist() == [[0, 1, 2], [10, 11, 12]]


def test_threads_run_in_c_order():
    k, x, y = one_to_one()
    seen = []
    k.tid()
    k.run((2, 2), np.zeros(1, "f"), np.zeros(1, "f"), trace=lambda thread, stmt, values: seen.append(thread))
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_an_empty_grid_runs_nothing():
    k, x, y = one_to_one()
    k(memory.STORE, y, k.tid(), k.const(1.0, float32))
    out = np.zeros(3, "f")
    k.run((0,), out, out)
    assert not out.any()


def test_stores_go_through_strided_views():
    k, x, y = one_to_one()
    i = k.tid()
    k(memory.STORE, y, i, k(memory.LOAD, x, i))
    table = np.zeros((3, 2), "f")
    k.run((3,), np.arange(3, dtype="f"), table[::-1, 1])
    assert table.tolist() == [[0, 2], [0, 1], [0, 0]]


def test_value_parameters_and_dim_and_shape():
    k = Kernel(y=Array(int32), n=int32, v=vector(3, float32))
    y, n, v = k.params
    k(memory.STORE, y, k.const(0), n)
    k(memory.STORE, y, k.const(1), k(control.DIM, attr=control.Tid(1)))
    k(memory.STORE, y, k.const(2), k(memory.SHAPE, y, attr=0))
    out = np.zeros(5, np.int32)
    k.run((1, 4), out, 7, (1, 2, 3))
    assert out[:3].tolist() == [7, 4, 5]


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_a_dim_beyond_the_grid_is_one(axis):
    k = Kernel(y=Array(int32))
    k(memory.STORE, k.params[0], k.tid(axis), k(control.DIM, attr=control.Tid(axis)))
    out = np.zeros(1, np.int32)
    k.run((1,), out)
    assert out[0] == 1


def test_arithmetic_stays_in_its_type_and_wraps_in_silence():
    k = Kernel(y=Array(int8), z=Array(float16), w=Array(float32))
    y, z, w = k.params
    i = k.tid()
    k(memory.STORE, y, i, k(ADD, k.const(127, int8), k.const(1, int8)))
    k(memory.STORE, z, i, k(ADD, k.const(2048.0, float16), k.const(1.0, float16)))
    k(memory.STORE, w, i, k(DIV, k.const(1.0, float32), k.const(0.0, float32)))
    out = np.zeros(1, np.int8), np.zeros(1, np.float16), np.zeros(1, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        k.run((1,), *out)
    assert [o[0] for o in out] == [-128, 2048.0, np.inf]


def test_a_row_with_several_results():
    k = Kernel(y=Array(int32))
    a, b = k(HALVES, k.const(7))
    k(memory.STORE, k.params[0], k.const(0), a)
    k(memory.STORE, k.params[0], k.const(1), b)
    out = np.zeros(2, np.int32)
    k.run((1,), out)
    assert out.tolist() == [3, 4]


def test_composites_are_loaded_by_value_and_linear_rows_expand():
    vec = vector(3, float32)
    k = Kernel(x=Array(vec), s=Array(float32))
    x, s = k.params
    i = k.tid()
    v = k(memory.LOAD, x, i)
    k(memory.STORE, x, i, k(TWICE, v))
    k(memory.STORE, s, i, k(DOT, v, v))  # the value from before the store
    points, dots = np.array([[1, 2, 3], [0, 1, 0]], "f"), np.zeros(2, "f")
    k.run((2,), points, dots)
    assert points.tolist() == [[2, 4, 6], [0, 2, 0]]
    assert dots.tolist() == [14, 1]


def test_a_quaternion_keeps_its_type():
    seen = []

    def expand(a, types, out):
        seen.extend([*types, out])
        return a

    quat = quaternion(float32)
    k = Kernel(q=Array(quat))
    i = k.tid()
    k(memory.STORE, k.params[0], i, k(Row("same", type=lambda a: a, expand=expand), k(memory.LOAD, k.params[0], i)))
    k.run((1,), np.ones((1, 4), "f"))
    assert seen == [quat, quat]


def test_a_constant_of_a_composite_is_one_number_or_all_components():
    mat = matrix((2, 2), float32)
    k = Kernel(m=Array(mat))
    k(memory.STORE, k.params[0], k.const(0), k.const(3.0, mat))
    k(memory.STORE, k.params[0], k.const(1), k.const((1.0, 2.0, 3.0, 4.0), mat))
    out = np.zeros((2, 2, 2), "f")
    k.run((1,), out)
    assert out.tolist() == [[[3, 3], [3, 3]], [[1, 2], [3, 4]]]


def test_components_are_the_same_memory():
    k = Kernel(x=Array(vector(3, float32)))
    flat = k(memory.COMPONENTS, k.params[0])
    k(memory.STORE, flat, k.tid(), k.const(1), k.const(5.0, float32))
    out = np.zeros((2, 3), "f")
    k.run((2,), out)
    assert out.tolist() == [[0, 5, 0], [0, 5, 0]]


# --- bounds


@pytest.mark.parametrize("bad", [4, -1])
def test_an_index_outside_names_line_array_thread_index_and_shape(bad):
    k, x, y = one_to_one()
    i = k(ADD, k.tid(), k.const(bad))
    k.b.where = Where("cell.py", 12, text="    a = x[i + 4]")
    k(memory.LOAD, x, i)
    with pytest.raises(BoundsError) as e:
        k.run((1,), np.zeros(4, "f"), np.zeros(4, "f"))
    assert e.value.slug == "bounds" and e.value.where.line == 12
    assert f"thread 0 uses x[{bad}] at line 12, outside shape (4,)" in str(e.value)
    assert "cell.py:12: a = x[i + 4]" in str(e.value)


@pytest.mark.parametrize("row", [memory.STORE, memory.LOG_STORE, memory.ACCUMULATE, *memory.ATOMICS])
def test_every_access_is_checked(row):
    of = int32 if row.name in ("atomic_and", "atomic_or", "atomic_xor") else float32
    k = Kernel(x=Array(of, 2))
    values = [k.const(1, of)] * (2 if row is memory.ATOMIC_CAS else 1)
    k(row, k.params[0], k.tid(0), k.tid(1), *values)
    with pytest.raises(BoundsError, match=r"thread \(0, 3\) uses x\[0, 3\], outside shape \(2, 3\)"):
        k.run((2, 4), np.zeros((2, 3), of.numpy))


def test_an_array_that_was_not_given_has_no_elements():
    k, x, y = one_to_one()
    k(memory.LOAD, x, k.tid())
    with pytest.raises(BoundsError, match=r"outside shape \(0,\)"):
        k.run((1,), None, np.zeros(1, "f"))


@pytest.mark.parametrize("bad", [3, -4])
def test_a_component_outside_is_an_error(bad):
    k = Kernel(v=vector(3, float32))
    k(vectors.EXTRACT_AT, k.params[0], k.const(bad))
    with pytest.raises(BoundsError, match=rf"v\[{bad}\], outside shape \(3,\)"):
        k.run((1,), (1, 2, 3))


@pytest.mark.parametrize(("index", "expected"), [((1,), [[1, 2], [7, 7], [5, 6]]), ((-1, 0), [[1, 2], [3, 4], [7, 6]])])
def test_components_at_run_time_indices(index, expected):
    mat = matrix((3, 2), float32)
    part = float32 if len(index) == 2 else vector(2, float32)
    k = Kernel(x=Array(mat), y=Array(part), s=part)
    x, y, s = k.params
    zero, places = k.const(0), [k.const(i) for i in index]
    old = k(memory.LOAD, x, zero)
    k(memory.STORE, x, zero, k(vectors.INSERT_AT, old, *places, s))
    k(memory.STORE, y, zero, k(vectors.EXTRACT_AT, old, *places))  # `old` is still what it was
    m, out = np.arange(1, 7, dtype="f").reshape(1, 3, 2), np.zeros((1, *part.shape), "f")
    k.run((1,), m, out, np.full(part.shape, 7, "f"))
    assert m[0].tolist() == expected
    assert out[0].tolist() == np.arange(1, 7).reshape(3, 2)[index].tolist()


VEC, MAT = vector(3, float32)(0.5, -2, 3), matrix((2, 2), float32)(1, 2, 3, 5)
QUAT = quaternion(float32)(0.5, 0.5, -0.5, 0.5)
CASES = [
    (scalar.WHERE, np.True_, VEC, VEC),
    (scalar.EQ, VEC, VEC),
    (scalar.NE, VEC, VEC),
    (scalar.ABS, VEC),
    (scalar.FLOORDIV, np.int32(-7), np.int32(2)),
    (scalar.FLOORDIV, np.int32(1), np.int32(0)),
    (scalar.POW, np.float32(2), np.float32(0.5)),
    (scalar.LSHIFT, np.int32(1), np.int32(33)),
    (scalar.MIN, VEC, VEC),
    (vectors.LENGTH, VEC),
    (vectors.NORMALIZE, VEC),
    (vectors.NORMALIZE, QUAT),
    (matrices.DETERMINANT, MAT),
    (matrices.INVERSE, MAT),
    (vectors.ARGMIN, VEC),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].name)
def test_a_statement_means_what_its_row_computes(case):
    row, *args = case
    types = [type_of(a) for a in args]
    k = Kernel(**{f"a{n}": t for n, t in enumerate(types)})
    y = k(row, *k.params)
    seen = []
    k.run((1,), *args, trace=lambda thread, stmt, values: seen.append(values[y]))
    expected = row.compute(*args, types=types)
    assert np.array_equal(seen[-1], expected) and seen[-1].dtype == y.type.numpy


def test_a_cast_takes_its_type_from_the_attribute():
    k = Kernel(y=Array(int8), x=float32)
    k(memory.STORE, k.params[0], k.const(0), k(scalar.CAST, k.params[1], attr=int8))
    out = np.zeros(1, np.int8)
    k.run((1,), out, 300.0)
    assert out[0] == 127


def test_an_array_of_another_dtype_or_rank_is_refused():
    k, x, y = one_to_one()
    for wrong in (np.zeros(3), np.zeros((3, 1), "f")):
        with pytest.raises(ValueError, match="x: array"):
            k.run((1,), wrong, np.zeros(3, "f"))


# --- atomics


def update(row, start, *values, dtype=float32):
    """Apply an atomic to one cell from one thread: (old value returned, new contents)."""
    k = Kernel(x=Array(dtype), old=Array(dtype))
    x, old = k.params
    zero = k.const(0)
    result = k(row, x, zero, *[k.const(v, dtype) for v in values])
    if result is not None:
        k(memory.STORE, old, zero, result)
    cell, before = np.array([start], dtype.numpy), np.zeros(1, dtype.numpy)
    k.run((1,), cell, before)
    return before[0], cell[0]


@pytest.mark.parametrize(
    ("row", "values", "after"),
    [
        (memory.ATOMIC_ADD, (2.0,), 7.0),
        (memory.ATOMIC_SUB, (2.0,), 3.0),
        (memory.ATOMIC_MIN, (2.0,), 2.0),
        (memory.ATOMIC_MIN, (9.0,), 5.0),
        (memory.ATOMIC_MAX, (9.0,), 9.0),
        (memory.ATOMIC_MAX, (2.0,), 5.0),
        (memory.ATOMIC_EXCH, (2.0,), 2.0),
        (memory.ATOMIC_CAS, (5.0, 1.0), 1.0),
        (memory.ATOMIC_CAS, (4.0, 1.0), 5.0),
    ],
)
def test_an_atomic_changes_the_cell_and_returns_the_old_value(row, values, after):
    assert update(row, 5.0, *values) == (5.0, after)


def test_accumulate_adds_from_every_thread():
    k, x, y = one_to_one()
    k(memory.ACCUMULATE, y, k.const(0), k(memory.LOAD, x, k.tid()))
    total = np.ones(1, "f")
    k.run((4,), np.arange(4, dtype="f"), total)
    assert total[0] == 7


def test_accumulate_leaves_its_operand_alone():
    k, x, y = one_to_one()
    v = k(memory.LOAD, x, k.tid())
    for _ in range(2):
        k(memory.ACCUMULATE, y, k.tid(), v)
    total = np.full(1, 10, "f")
    k.run((1,), np.ones(1, "f"), total)
    assert total[0] == 12


def test_atomics_on_vectors_work_per_component():
    vec = vector(2, float32)
    k = Kernel(x=Array(vec))
    k(memory.ATOMIC_MAX, k.params[0], k.const(0), k.const((0.0, 9.0), vec))
    out = np.array([[1, 2]], "f")
    k.run((1,), out)
    assert out.tolist() == [[1, 9]]


# --- control flow


def sum_of(bounds, int_type=int32):
    """`s = 100*s + i` over a range, from s = 0: tells the turns apart."""
    k = Kernel(y=Array(int64), a=int32, b=int32, c=int32)
    y, *limits = k.params
    to64 = Row("cast", type=lambda a, attr: attr, meaning=lambda a, attr: attr(a), typed_by_attr=True)
    (s,) = k.loop(
        limits, [k.const(0, int64)], lambda i, s: [k(ADD, k(MUL, s, k.const(100, int64)), k(to64, i, attr=int64))]
    )
    k(memory.STORE, y, k.const(0), s)
    out = np.zeros(1, np.int64)
    k.run((1,), out, *bounds)
    return out[0]


@pytest.mark.parametrize("bounds", [(1, 4, 1), (0, 5, 2), (5, 0, -2), (3, 3, 1), (4, 1, 1), (1, 4, -1), (2, 3, 7)])
def test_a_loop_turns_as_pythons_range(bounds):
    expected = 0
    for i in range(*bounds):
        expected = 100 * expected + i
    assert sum_of(bounds) == expected


def test_a_step_of_zero_makes_no_turn():
    assert sum_of((0, 5, 0)) == 0


def test_carried_values_swap_at_once():
    k = Kernel(y=Array(int32))
    a, b = k.loop((0, 3, 1), [k.const(1), k.const(2)], lambda i, a, b: [b, a])
    k(memory.STORE, k.params[0], k.const(0), a)
    k(memory.STORE, k.params[0], k.const(1), b)
    out = np.zeros(2, np.int32)
    k.run((1,), out)
    assert out.tolist() == [2, 1]


def test_nested_loops_with_breaks():
    """for i in range(4): for j in range(10): s += 1; if not j < i: break"""
    k = Kernel(y=Array(int32))

    def inner(j, s, i):
        return [k(LT, j, i), k(ADD, s, k.const(1))]

    def outer(i, s):
        return k.loop((0, 10, 1), [s], lambda j, s: inner(j, s, i), breaks=True)

    (s,) = k.loop((0, 4, 1), [k.const(0)], outer)
    k(memory.STORE, k.params[0], k.const(0), s)
    out = np.zeros(1, np.int32)
    k.run((1,), out)
    expected = 0
    for i in range(4):
        for j in range(10):
            expected += 1
            if not j < i:
                break
    assert out[0] == expected == 10


def test_the_turn_that_breaks_still_hands_on_its_values():
    k = Kernel(y=Array(int32))
    (s,) = k.loop((0, 10, 1), [k.const(0)], lambda i, s: [k.const(False, bool_), k(ADD, s, k.const(5))], breaks=True)
    k(memory.STORE, k.params[0], k.const(0), s)
    out = np.zeros(1, np.int32)
    k.run((1,), out)
    assert out[0] == 5


def test_while_tests_before_each_turn_and_keeps_values_per_thread():
    k = Kernel(y=Array(int32))
    i = k.tid()
    (n,) = k.loop_while([i], lambda n: [k(LT, n, k.const(3))], lambda n: [k(ADD, n, k.const(2))])
    k(memory.STORE, k.params[0], i, n)
    out = np.zeros(5, np.int32)
    k.run((5,), out)
    assert out.tolist() == [4, 3, 4, 3, 4]


def test_while_leaves_when_the_body_says_so():
    k = Kernel(y=Array(int32))
    (n,) = k.loop_while(
        [k.const(0)],
        lambda n: [k.const(True, bool_)],
        lambda n: [k(LT, n, k.const(6)), k(ADD, n, k.const(1))],
        breaks=True,
    )
    k(memory.STORE, k.params[0], k.const(0), n)
    out = np.zeros(1, np.int32)
    k.run((1,), out)
    assert out[0] == 7


def test_if_takes_one_branch_and_hands_out_its_results():
    k, x, y = one_to_one(dtype=int32)
    i = k.tid()
    inside = k(LT, i, k.const(2))
    (r,) = k.branch(inside, lambda: [k(memory.LOAD, x, i)], lambda: [k.const(-1)])  # the load is out of range at 2
    k(memory.STORE, y, i, r)
    out = np.zeros(4, np.int32)
    k.run((4,), np.array([5, 6], np.int32), out)
    assert out.tolist() == [5, 6, -1, -1]


def test_a_called_func_is_its_body():
    k, x, y = one_to_one()
    i = k.tid()
    region = ir.Region([ir.Value(x.type, "a"), ir.Value(int32, "j")])
    with k.b.inside(region):
        region.results = (k(memory.LOAD, *region.params),)
    (r,) = k.b.append(control.CALL, (x, i), (float32,), (region,)).outs
    k(memory.STORE, y, i, r)
    out = np.zeros(2, "f")
    k.run((2,), np.array([3, 4], "f"), out)
    assert out.tolist() == [3, 4]


# --- stacks, logs, printing


def test_a_stack_gives_back_in_reverse():
    k = Kernel(y=Array(int32))
    type = Stack(int32)
    stack = k(control.STACK, attr=type)
    k.loop((0, 3, 1), [], lambda i: [k(control.PUSH, stack, i)][:0])
    k.loop((0, 3, 1), [], lambda i: [k(memory.STORE, k.params[0], i, k(control.POP, stack))][:0])
    out = np.zeros(3, np.int32)
    k.run((2,), out)
    assert out.tolist() == [2, 1, 0]


def test_popping_an_empty_stack_and_filling_a_full_one_are_internal_errors():
    k = Kernel()
    k(control.POP, k(control.STACK, attr=Stack(int32)))
    with pytest.raises(RuntimeError, match="empty stack"):
        k.run((1,))
    k = Kernel()
    stack = k(control.STACK, attr=Stack(int32, 1))
    for _ in range(2):
        k(control.PUSH, stack, k.const(1))
    with pytest.raises(RuntimeError, match="capacity 1"):
        k.run((1,))


def test_rollback_puts_back_what_was_there_at_the_mark():
    k, x, y = one_to_one()
    zero = k.const(0)
    k(memory.LOG_STORE, x, zero, k.const(2.0, float32))
    mark = k(memory.MARK)
    for value in (3.0, 4.0):
        k(memory.LOG_STORE, x, zero, k.const(value, float32))
    k(memory.STORE, y, zero, k(memory.LOAD, x, zero))
    k(memory.ROLLBACK, mark)
    cell, seen = np.ones(1, "f"), np.zeros(1, "f")
    k.run((1,), cell, seen)
    assert (cell[0], seen[0]) == (2, 4)


def test_printf_writes_as_c_does(capsys):
    k = Kernel()
    k(control.PRINTF, k.tid(), k.const(1.5, float32), attr=("%lld: %.2f 100%%\n", ("i", "x")))
    k.run((2,))
    assert capsys.readouterr().out == "0: 1.50 100%\n1: 1.50 100%\n"


# --- trace


def test_a_trace_sees_every_statement_and_every_value():
    k = Kernel(y=Array(int32))
    seen = []

    def body(i, s):
        made.append(k(ADD, s, i))
        return made

    made: list = []
    k.loop((0, 3, 1), [k.const(10)], body)

    def trace(thread, stmt, values):
        if stmt.row is ADD:
            seen.append((thread, int(values[stmt.args[1]]), int(values[stmt.outs[0]])))

    k.run((1,), np.zeros(1, np.int32), trace=trace)
    assert seen == [((0,), 0, 10), ((0,), 1, 11), ((0,), 2, 13)]


@wb.kernel
def taken_in_turn(x: wb.array(dtype=float), total: wb.array(dtype=float), before: wb.array(dtype=float)):
    i = wb.tid()
    before[i] = wb.atomic_add(total, i // 3, x[i])


def test_lanes_that_change_one_cell_and_read_what_was_there_take_turns():
    wb.config.backend = "numpy"
    x = np.arange(1.0, 301.0, dtype=np.float32)
    total, before = wb.zeros(100), wb.zeros(300)
    wb.launch(taken_in_turn, 300, inputs=[wb.array(x), total, before])
    sums = x.reshape(100, 3).cumsum(1)
    assert total.numpy().tolist() == sums[:, 2].tolist()
    assert before.numpy().reshape(100, 3).tolist() == np.c_[np.zeros(100), sums[:, :2]].tolist()
