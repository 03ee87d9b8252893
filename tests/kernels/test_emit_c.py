"""The text of kernels, judged by what it computes: every control and memory row through the machine's C compiler."""

import collections
import ctypes
import inspect
import re
import struct

import numpy as np
import pytest

from workbench.errors import KernelError, Where
from workbench.kernels import ir
from workbench.kernels.compile import c_compiler, c_library, nvrtc
from workbench.kernels.emit import c as emit_c, cuda as emit_cuda
from workbench.kernels.emit.c_names import c_name
from workbench.kernels.emit.signature import (
    BOUNDS,
    STACK_FULL,
    STATUS_WORDS,
    Signature,
    Variant,
    access_table,
    to_check,
)
from workbench.kernels.ops import control, memory, scalar, vectors  # noqa: F401
from workbench.kernels.ops.control import Loop, Tid
from workbench.kernels.ops.row import ROWS as R
from workbench.kernels.types import (
    SCALARS,
    Array,
    Stack,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    matrix,
    quaternion,
    uint8,
    uint32,
    vector,
)

pytestmark = pytest.mark.needs_cc
vec3 = vector(3, float32)


class Making:
    """A function under construction: parameters by keyword, rows by name."""

    def __init__(self, rank=1, **params):
        self.function = ir.Function("made", ir.Region(), rank=rank)
        self.function.body.params[:] = [ir.Value(t, n) for n, t in params.items()]
        self.b = ir.Builder(self.function.body)

    def __enter__(self):
        self._open = self.b.open()
        self._open.__enter__()
        return self, *self.function.params

    def __exit__(self, *error):
        self._open.__exit__(*error)

    def __getattr__(self, name):
        return lambda *args, **keys: self.b.emit(R[name], *args, **keys)

    def tid(self, axis=0, name="i"):
        return self.b.emit(R["tid"], attr=Tid(axis), name=name)

    def const(self, type, value):
        return self.b.append(R["const"], (), (type,), attr=value).outs[0]

    def region(self, write, *types, names=()):
        names = (*names, *[""] * (len(types) - len(names)))
        region = ir.Region([ir.Value(t, n) for t, n in zip(types, names, strict=True)])
        with self.b.inside(region):
            results = write(*region.params)
        region.results = () if results is None else results if isinstance(results, tuple) else (results,)
        return region

    def branch(self, cond, then, other=lambda: None, types=()):
        return self.b.append(R["if"], (cond,), types, (self.region(then), self.region(other))).outs

    def loop(self, start, stop, step, init, body, breaks=False):
        types = [v.type for v in init]
        region = self.region(body, int32, *types)
        return self.b.append(R["for"], (start, stop, step, *init), types, (region,), attr=Loop(breaks)).outs


def packed(function, dims, args, status=None):
    """Arguments as a launch packs them; arrays of composites have the component axes last."""
    values = []
    for p, a in zip(function.params, args, strict=True):
        if isinstance(p.type, Array):
            n = p.type.ndim
            values += [a.ctypes.data, *a.shape[:n], *a.strides[:n]]
        else:
            values += np.ravel(a).tolist()
    address = 0 if status is None else status.ctypes.data
    return Signature(function).pack(dims, values, address)


def run(function, dims, *args, variant=None, threads=1):
    variant = variant if variant is not None else Variant()
    compiled = c_library.load(emit_c.text(function, variant), "made")
    status = np.zeros(STATUS_WORDS, np.int64)
    compiled(packed(function, dims, args, status), 0, dims[0], threads)
    return status


def everywhere(function):
    """All arrays contiguous."""
    return Variant(contiguous=frozenset(p.name for p in function.arrays))


VARIANTS = {
    "strided": lambda f: Variant(),
    "contiguous": everywhere,
    "restrict": lambda f: Variant(contiguous=everywhere(f).contiguous, restrict=True, index32=True),
    "checked": lambda f: Variant(checked=to_check(f, ())),
}


# ---- straight lines


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("type", [float32, float64])
def test_a_saxpy_gives_what_numpy_gives(type, variant):
    with Making(a=type, x=Array(type), y=Array(type)) as (k, a, x, y):
        i = k.tid()
        k.store(y, i, a * k.load(x, i) + k.load(y, i))
    x, y = np.linspace(-1, 2, 37).astype(type.numpy), np.linspace(3, 5, 37).astype(type.numpy)
    expected = type(1.7) * x + y
    run(k.function, (37,), 1.7, x, y, variant=VARIANTS[variant](k.function))
    np.testing.assert_array_equal(y, expected)


def test_strides_may_be_negative_zero_and_transposed():
    with Making(2, x=Array(float32, 2), y=Array(float32, 1), z=Array(float32, 2)) as (k, x, y, z):
        i, j = k.tid(0, "i"), k.tid(1, "j")
        k.store(z, i, j, k.load(x, i, j) * k.load(y, j))
    x = np.arange(12, dtype=np.float32).reshape(4, 3).T[:, ::-1]
    y = np.broadcast_to(np.float32(3), (4,))
    z = np.zeros((3, 4), np.float32)
    run(k.function, (3, 4), x, y, z)
    np.testing.assert_array_equal(z, x * y)


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_each_axis_of_the_grid_is_its_own_index(rank):
    with Making(rank, z=Array(int32, rank)) as (k, z):
        tids = [k.tid(axis, "ijkl"[axis]) for axis in range(rank)]
        total = tids[0]
        for axis in range(1, rank):
            total = total * k.dim(attr=Tid(axis)) + tids[axis]
        k.store(z, *tids, total)
    dims = (3, 4, 2, 5)[:rank]
    z = np.full(dims, -1, np.int32)
    run(k.function, dims, z)
    np.testing.assert_array_equal(z.ravel(), np.arange(z.size))


@pytest.mark.sampled
@pytest.mark.parametrize("type", [s for s in SCALARS], ids=str)
def test_every_scalar_type_passes_through_memory_and_arguments(type):
    with Making(s=type, x=Array(type), y=Array(type), z=Array(type)) as (k, s, x, y, z):
        i = k.tid()
        k.store(y, i, k.load(x, i))
        k.store(z, i, s)
    x = np.array([0, 1, 1, 0, 1]).astype(type.numpy)
    y, z = np.zeros_like(x), np.zeros_like(x)
    run(k.function, (5,), 1, x, y, z)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(z, np.ones(5, type.numpy))


EXTREMES = {
    "float32": [0.1, -0.0, float("inf"), float("-inf"), 1e-45, 3.4028235e38, 16777217.0],
    "float64": [0.1, -0.0, float("inf"), 5e-324, 1.7976931348623157e308],
    "float16": [0.1, -0.0, 65504.0, 6e-8, float("inf")],
    "int32": [-(2**31), 2**31 - 1, -1],
    "int64": [-(2**63), 2**63 - 1],
    "int8": [-128, 127],
    "int16": [-(2**15)],
    "uint8": [255],
    "uint16": [65535],
    "uint32": [2**32 - 1],
    "uint64": [2**64 - 1],
    "bool": [True, False],
}


@pytest.mark.sampled
@pytest.mark.parametrize("type", [s for s in SCALARS], ids=str)
def test_constants_arrive_bit_by_bit(type):
    values = EXTREMES[type.name]
    with Making(z=Array(type)) as (k, z):
        for n, value in enumerate(values):
            k.store(z, k.const(int32, n), k.const(type, value))
    z = np.zeros(len(values), type.numpy)
    run(k.function, (1,), z)
    assert z.tobytes() == np.array(values).astype(type.numpy).tobytes()


def test_a_nan_constant_is_a_nan():
    with Making(z=Array(float32), y=Array(float64)) as (k, z, y):
        k.store(z, k.tid(), k.const(float32, float("nan")))
        k.store(y, k.tid(), k.const(float64, float("nan")))
    z, y = np.zeros(1, np.float32), np.zeros(1)
    run(k.function, (1,), z, y)
    assert np.isnan(z[0]) and np.isnan(y[0])


def test_float16_rounds_after_every_operation():
    with Making(x=Array(float16), y=Array(float16), z=Array(float16)) as (k, x, y, z):
        i = k.tid()
        a, b = k.load(x, i), k.load(y, i)
        k.store(z, i, a * b + a)
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(500).astype(np.float16) for _ in "xy")
    z = np.zeros_like(x)
    run(k.function, (500,), x, y, z)
    np.testing.assert_array_equal(z, x * y + x)


@pytest.mark.parametrize("type", [int8, uint8, int32, uint32], ids=str)
def test_integer_arithmetic_wraps(type):
    with Making(x=Array(type), y=Array(type), z=Array(type)) as (k, x, y, z):
        i = k.tid()
        k.store(z, i, k.load(x, i) * k.load(y, i) - k.load(x, i))
    rng = np.random.default_rng(2)
    info = np.iinfo(type.numpy)
    x, y = (rng.integers(info.min, info.max, 100, type.numpy, endpoint=True) for _ in "xy")
    z = np.zeros_like(x)
    run(k.function, (100,), x, y, z)
    np.testing.assert_array_equal(z, x * y - x)


def test_names_of_the_user_never_collide_with_c():
    with Making(**{"float": Array(float32), "sin": float32, "int": float32, "s.x": float32}) as (k, a, b, c, d):
        i = k.tid(name="for")
        e = k.sin(b, name="exp")
        e = k.exp(e, name="exp")
        k.store(a, i, k.add(k.add(e, c, name="args"), d, name="status"))
    out = np.zeros(2, np.float32)
    run(k.function, (2,), out, 0.5, 1.0, 2.0)
    np.testing.assert_allclose(out, np.exp(np.sin(0.5)) + 3.0, rtol=1e-6)


@pytest.mark.parametrize("names", [("x", "x_shape", "dim"), ("dim", "x_shape", "x"), ("x_n0", "x", "begin")])
def test_names_of_parameters_never_collide_with_fields(names):
    parameters = {name: Array(float32) for name in names}
    with Making(1, **parameters) as (k, *arrays):
        for n, a in enumerate(arrays):
            k.store(a, k.tid(name="x_strides"), k.const(float32, n))
    made = [np.full(3, 9, np.float32) for _ in names]
    run(k.function, (3,), *made)
    assert [m.tolist() for m in made] == [[n] * 3 for n in range(3)]


@pytest.mark.parametrize("name", ["exp", "main", "for", "wb_fail", "2d-step", "malloc"])
def test_a_kernel_may_be_named_like_anything(name):
    with Making(z=Array(float32)) as (k, z):
        i = k.tid()
        k.store(z, i, k.exp(k.load(z, i)))
    k.function.name = name
    entry = c_name(name)
    z = np.zeros(3, np.float32)
    c_library.load(emit_c.text(k.function), entry)(packed(k.function, (3,), [z]), 0, 3)
    assert z.tolist() == [1, 1, 1]


def test_the_users_line_stands_once_before_its_statements():
    with Making(x=Array(float32)) as (k, x):
        with k.b.at(Where("cell", 7, text="x[i] = x[i] * 2.0 /* twice */")):
            i = k.tid()
            k.store(x, i, k.load(x, i) * 2.0)
    text = emit_c.text(k.function)
    assert text.count("/* 7: x[i] = x[i] * 2.0") == 1
    x = np.ones(3, np.float32)
    run(k.function, (3,), x)
    np.testing.assert_array_equal(x, 2)


# ---- composites


def test_elementwise_rows_map_over_components_and_scalars_serve_all():
    with Making(x=Array(vec3), c=bool_, z=Array(vec3)) as (k, x, c, z):
        i = k.tid()
        v = k.load(x, i)
        k.store(z, i, k.where(c, v + v, v))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    z = np.zeros_like(x)
    run(k.function, (4,), x, True, z)
    np.testing.assert_array_equal(z, x + x)


OPERANDS = {
    "v": vec3,
    "m": matrix((3, 3), float32),
    "u": matrix((2, 2), float32),
    "q": quaternion(float32),
    "s": float32,
    "i": int32,
    "n": uint32,
}
SHAPES = "v m q u vv mv mm sv vs qq qv vm vi mi mii vvs qqs viv vis miis mmv nv ns".split()


def _takes(row, count):
    """Is this row written over `count` operands."""
    if row.name.startswith("d_"):
        return count % 2 == 0 and _takes(R[row.name[2:]], count // 2)
    kinds = [p for p in inspect.signature(row.expand).parameters.values() if p.name not in ("types", "out", "attr")]
    return any(p.kind is p.VAR_POSITIONAL for p in kinds) or len(kinds) == count


def _linear_rows():
    for name in sorted(n for n, row in R.items() if row.expand is not None and not row.typed_by_attr):
        for shape in SHAPES:
            types = tuple(OPERANDS[c] for c in shape) * (2 if name.startswith("d_") else 1)
            if not _takes(R[name], len(types)) or (name.endswith("_at") and "i" not in shape):
                continue
            try:
                yield name, types, R[name].type(*types)
            except (TypeError, AssertionError, AttributeError, IndexError):
                continue


def test_every_linear_row_has_operands_that_its_type_rule_takes():
    """A type rule that refuses what it should take would drop its row, or one of its forms, below."""
    forms = collections.Counter(name for name, _, _ in _linear_rows())
    every = {n for n, row in R.items() if row.expand is not None and not row.typed_by_attr}
    assert every - forms.keys() == set() and forms.total() == 113, forms


@pytest.mark.sampled
@pytest.mark.parametrize("name, types, out", list(_linear_rows()), ids=lambda x: str(x)[:40])
def test_a_linear_row_in_c_is_its_meaning_on_the_host(name, types, out):
    with Making(**{f"x{n}": t for n, t in enumerate(types)}, z=Array(out)) as (k, *args, z):
        k.store(z, k.tid(), getattr(k, name)(*args))
    rng = np.random.default_rng(3)
    host = [
        t(1) if t in (int32, uint32) else np.float32(1.5) if t is float32 else t(*rng.uniform(0.5, 2, t.size))
        for t in types
    ]
    z = np.zeros((1, *out.shape), out.scalar.numpy)
    run(k.function, (1,), *host, z)
    expected = np.asarray(R[name].compute(*host, types=list(types)))
    np.testing.assert_allclose(z[0], expected, rtol=2e-6, atol=1e-6)


def test_constant_composites_come_from_one_number_or_from_all():
    with Making(z=Array(vec3)) as (k, z):
        k.store(z, k.const(int32, 0), k.const(vec3, 2.5))
        k.store(z, k.const(int32, 1), k.const(vec3, (1.0, -2.0, 3.0)))
    z = np.zeros((2, 3), np.float32)
    run(k.function, (1,), z)
    np.testing.assert_array_equal(z, [[2.5, 2.5, 2.5], [1, -2, 3]])


@pytest.mark.parametrize("variant", VARIANTS)
def test_components_of_an_array_of_matrices_are_its_memory(variant):
    mat = matrix((2, 3), float32)
    with Making(x=Array(mat)) as (k, x):
        i = k.tid()
        c = k.components(x)
        assert c.type == Array(float32, 3)
        cols = k.shape(c, attr=2)
        k.accumulate(c, i, k.const(int32, 1), cols - 1, k.const(float32, 10.0))
    x = np.zeros((4, 2, 3), np.float32)
    run(k.function, (4,), x, variant=VARIANTS[variant](k.function))
    expected = np.zeros_like(x)
    expected[:, 1, 2] = 10
    np.testing.assert_array_equal(x, expected)


# ---- control flow


def test_if_gives_the_results_of_the_branch_taken():
    with Making(x=Array(float32), z=Array(float32)) as (k, x, z):
        i = k.tid()
        v = k.load(x, i)
        (r,) = k.branch(v > 0.0, lambda: v * 2.0, lambda: -v, [float32])
        k.store(z, i, r)
    x = np.array([-3, 0, 4], np.float32)
    z = np.zeros_like(x)
    run(k.function, (3,), x, z)
    np.testing.assert_array_equal(z, [3, 0, 8])


@pytest.mark.parametrize("step", [1, -1, 2, -3, 0, None])
def test_for_makes_the_turns_that_range_makes(step):
    with Making(n=int32, m=int32, s=int32, z=Array(int32)) as (k, n, m, s, z):
        stride = s if step is None else k.const(int32, step)
        total, count = k.loop(n, m, stride, [k.const(int32, 0), k.const(int32, 0)], lambda i, t, c: (t * 31 + i, c + 1))
        k.store(z, k.const(int32, 0), total)
        k.store(z, k.const(int32, 1), count)
    for start, stop in [(0, 5), (5, 0), (2, 2), (-7, 8), (2147483640, 2147483647), (-2147483641, -2147483648)]:
        for used in [step] if step is not None else [1, -2, 7, 0, 2**31 - 1]:
            total = count = 0
            for i in range(start, stop, used) if used else ():
                total, count = (total * 31 + i + 2**31) % 2**32 - 2**31, count + 1
            z = np.zeros(2, np.int32)
            run(k.function, (1,), start, stop, used, z)
            assert z.tolist() == [total, count], (start, stop, used)


def test_carried_values_swap_at_once():
    with Making(n=int32, z=Array(float32)) as (k, n, z):
        zero, one = k.const(int32, 0), k.const(int32, 1)
        a, b, c = k.loop(zero, n, one, [k.const(float32, v) for v in (1.0, 2.0, 3.0)], lambda i, a, b, c: (b, c, a))
        for at, v in enumerate((a, b, c)):
            k.store(z, k.const(int32, at), v)
    for n, expected in [(0, [1, 2, 3]), (1, [2, 3, 1]), (2, [3, 1, 2]), (3, [1, 2, 3])]:
        z = np.zeros(3, np.float32)
        run(k.function, (1,), n, z)
        assert z.tolist() == expected


def test_break_leaves_a_for_after_its_turn():
    with Making(x=Array(float32), z=Array(float32)) as (k, x, z):

        def body(i, total):
            v = k.load(x, i)
            return v > 0.0, total + v

        n, zero, one = k.shape(x, attr=0), k.const(int32, 0), k.const(int32, 1)
        (total,) = k.loop(zero, n, one, [k.const(float32, 0.0)], body, breaks=True)
        k.store(z, zero, total)
    z = np.zeros(1, np.float32)
    run(k.function, (1,), np.array([1, 2, -5, 100], np.float32), z)
    assert z[0] == -2


def test_break_may_hang_on_a_carried_flag():
    with Making(z=Array(int32)) as (k, z):
        zero, ten, one = (k.const(int32, v) for v in (0, 10, 1))
        flag, count = k.loop(
            zero, ten, one, [k.const(bool_, True), zero], lambda i, f, c: (f, c < 3, c + 1), breaks=True
        )
        k.store(z, zero, count)
    z = np.zeros(1, np.int32)
    run(k.function, (1,), z)
    assert z[0] == 5


@pytest.mark.parametrize("breaks", [False, True])
def test_while_tests_first_and_carries(breaks):
    with Making(z=Array(int32)) as (k, z):
        i = k.tid()
        test = k.region(lambda n, c: n > 1, int32, int32)

        def turn(n, c):
            (half,) = k.branch(
                k.eq(k.bit_and(n, k.const(int32, 1)), k.const(int32, 0)),
                lambda: k.floordiv(n, k.const(int32, 2)),
                lambda: n * 3 + 1,
                [int32],
            )
            return (c < 4, half, c + 1) if breaks else (half, c + 1)

        body = k.region(turn, int32, int32)
        start = k.b.append(R["while"], (i, k.const(int32, 0)), [int32, int32], (test, body), attr=Loop(breaks)).outs
        k.store(z, i, start[1])
    z = np.zeros(10, np.int32)
    run(k.function, (10,), z)
    collatz = np.array([0, 0, 1, 7, 2, 5, 8, 16, 3, 19])
    np.testing.assert_array_equal(z, np.minimum(collatz, 5) if breaks else collatz)


def test_call_runs_its_region_on_its_arguments():
    with Making(x=Array(float32), z=Array(float32)) as (k, x, z):

        def inside(a, v):
            k.accumulate(a, k.const(int32, 0), v)
            return v * v

        i = k.tid()
        v = k.load(x, i)
        region = k.region(inside, Array(float32), float32)
        (r,) = k.b.append(R["call"], (z, v), [float32], (region,)).outs
        k.store(x, i, r)
    x, z = np.array([1, 2, 3], np.float32), np.zeros(1, np.float32)
    run(k.function, (3,), x, z)
    assert x.tolist() == [1, 4, 9] and z[0] == 6


def test_wrap_and_trips_are_rows_like_any_other():
    with Making(z=Array(int32)) as (k, z):
        n = k.shape(z, attr=0)
        i = k.tid()
        k.store(z, k.wrap(-(i + 1), n), k.trips(k.const(int32, 0), i, k.const(int32, 2)))
    z = np.zeros(5, np.int32)
    run(k.function, (5,), z)
    assert z[::-1].tolist() == [len(range(0, i, 2)) for i in range(5)]


# ---- memory


UPDATES = {
    "atomic_add": lambda old, v: old + v,
    "atomic_sub": lambda old, v: old - v,
    "atomic_min": min,
    "atomic_max": max,
    "atomic_exch": lambda old, v: v,
}


@pytest.mark.sampled
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("type", [int8, int32, uint32, int64, float16, float32, float64], ids=str)
@pytest.mark.parametrize("name", UPDATES)
def test_an_atomic_updates_the_cell_and_gives_the_old_value(name, type, shared):
    with Making(x=Array(type), v=Array(type), z=Array(type)) as (k, x, v, z):
        i = k.tid()
        k.store(z, i, getattr(k, name)(x, k.const(int32, 0), k.load(v, i)))
    v = np.array([5, 2, 9, 4]).astype(type.numpy)
    x, z = np.array([6]).astype(type.numpy), np.zeros_like(v)
    run(k.function, (4,), x, v, z, variant=Variant(atomic=frozenset("x" if shared else "")))
    cell, olds = type(6), []
    for each in v:
        olds.append(cell)
        with np.errstate(all="ignore"):
            cell = type.numpy.type(UPDATES[name](cell, each))
    assert x[0] == cell and z.tolist() == olds


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("type", [int32, float64], ids=str)
def test_compare_and_swap_writes_where_the_cell_is_as_expected(type, shared):
    with Making(x=Array(type), z=Array(type)) as (k, x, z):
        i = k.tid()
        new = k.cast(i + 10, attr=type)
        k.store(z, i, k.atomic_cas(x, i, k.const(type, 3), new))
    x = np.array([3, 4, 3]).astype(type.numpy)
    z = np.zeros_like(x)
    run(k.function, (3,), x, z, variant=Variant(atomic=frozenset("x" if shared else "")))
    assert x.tolist() == [10, 4, 12] and z.tolist() == [3, 4, 3]


@pytest.mark.parametrize("shared", [False, True])
def test_accumulate_and_atomics_take_vectors(shared):
    with Making(x=Array(vec3), v=Array(vec3), z=Array(vec3)) as (k, x, v, z):
        i, zero = k.tid(), k.const(int32, 0)
        k.accumulate(x, zero, k.load(v, i))
        k.store(z, i, k.atomic_add(x, zero, k.load(v, i)))
    v = np.arange(6, dtype=np.float32).reshape(2, 3)
    x, z = np.zeros((1, 3), np.float32), np.zeros((2, 3), np.float32)
    run(k.function, (2,), x, v, z, variant=Variant(atomic=frozenset("x" if shared else "")))
    np.testing.assert_array_equal(x[0], 2 * v.sum(0))
    np.testing.assert_array_equal(z, [v[0], 2 * v[0] + v[1]])


@pytest.mark.parametrize("type", [float32, float64, int32, int64, float16], ids=str)
def test_accumulation_from_several_threads_loses_nothing(type):
    with Making(2, z=Array(type)) as (k, z):
        k.tid(0, "i")
        k.accumulate(z, k.const(int32, 0), k.const(type, 1))
        k.atomic_max(z, k.const(int32, 1), k.cast(k.tid(0), attr=type))
    dims = (1000, 2 if type is float16 else 500)
    z = np.zeros(2, type.numpy)
    for _ in range(3):
        z[:] = 0
        run(k.function, dims, z, variant=Variant(atomic=frozenset("z")), threads=4)
        assert z.tolist() == [dims[0] * dims[1], 999]


def test_plain_memory_sees_no_atomic_instructions():
    with Making(z=Array(float32)) as (k, z):
        k.accumulate(z, k.tid(), k.const(float32, 1.0))
    assert "__atomic_compare" not in emit_c.text(k.function)
    assert "atomicAdd" not in emit_cuda.text(k.function)
    assert "atomicAdd" in emit_cuda.text(k.function, Variant(atomic=frozenset("z")))


def test_small_integers_have_no_atomics_on_a_gpu():
    with Making(z=Array(int8)) as (k, z):
        k.atomic_add(z, k.tid(), k.const(int8, 1))
    with pytest.raises(KernelError, match="atomic-type"):
        emit_cuda.text(k.function, Variant(atomic=frozenset("z")))


# ---- bounds


def _out_of_bounds():
    with Making(2, x=Array(float32, 2), n=Array(int32), z=Array(float32, 2)) as (k, x, n, z):
        i, j = k.tid(0, "i"), k.tid(1, "j")
        with k.b.at(Where("cell", 3, text="at = n[i]")):
            at = k.load(n, i)
        with k.b.at(Where("cell", 4, text="v = x[at, j]")):
            v = k.load(x, at, j)
        k.store(z, i, j, v + 1.0)
    return k.function


@pytest.mark.parametrize("bad", [-1, 3, 2**30, -(2**31)])
def test_an_index_outside_is_recorded_and_ends_the_work(bad):
    function = _out_of_bounds()
    x, z = np.ones((3, 4), np.float32), np.zeros((2, 4), np.float32)
    status = run(function, (2, 4), x, np.array([0, bad], np.int32), z, variant=Variant(checked=to_check(function, ())))
    code, access, thread, count = status[:4].tolist()
    assert (code, thread, count) == (BOUNDS, 4, 2)
    assert status[4:6].tolist() == [bad, 0] and status[10:12].tolist() == [3, 4]
    place = access_table(function)[access]
    assert (place.array, place.row, place.where.line) == ("x", "load", 4)
    np.testing.assert_array_equal(z, [[2] * 4, [0] * 4])


def test_checked_indices_inside_record_nothing():
    x, z = np.ones((3, 4), np.float32), np.zeros((2, 4), np.float32)
    function = _out_of_bounds()
    status = run(function, (2, 4), x, np.array([0, 2], np.int32), z, variant=Variant(checked=to_check(function, ())))
    assert not status.any() and (z == 2).all()


def test_every_kind_of_write_is_checked():
    with Making(x=Array(vec3)) as (k, x):
        i = k.tid()
        v = k.const(vec3, 1.0)
        k.store(x, i, v)
        k.accumulate(x, i, v)
        k.atomic_add(x, i, v)
        k.accumulate(k.components(x), k.const(int32, 0), i, k.const(float32, 1.0))
    memory = np.zeros((6, 3), np.float32)
    status = run(k.function, (4,), memory[1:4], variant=Variant(checked=to_check(k.function, ())))
    assert status[0] == BOUNDS and status[2] == 3
    assert not memory[0].any() and not memory[4:].any()
    assert memory[1].tolist() == [4, 4, 4]


# ---- stacks and the log of a replay


def _reverse(capacity, n_type=int32):
    """z[i] = sum of k * 10**(position popped), so that order matters."""
    with Making(n=n_type, z=Array(float64), w=Array(float64)) as (k, n, z, w):
        i, zero, one = k.tid(), k.const(int32, 0), k.const(int32, 1)
        one_more = n + i
        first = k.stack(attr=Stack(int32, capacity))
        second = k.stack(attr=Stack(vector(3, float64), capacity))

        def fill(j):
            k.push(first, j * j)
            k.push(second, R["cast"](k.const(vector(3, float32), 1.5), attr=float64))

        k.loop(zero, one_more, one, [], fill)

        def drain(j, total, check):
            v = k.pop(second)
            return total * 2.0 + k.cast(k.pop(first), attr=float64), check + k.dot(v, v)

        start = k.const(float64, 0.0)
        total, check = k.loop(one_more - 1, k.const(int32, -1), k.const(int32, -1), [start, start], drain)
        k.store(z, i, total)
        k.store(w, i, check)
    return k.function


@pytest.mark.parametrize("capacity", [None, 100])
@pytest.mark.parametrize("threads", [1, 3])
def test_stacks_give_back_in_reverse(capacity, threads):
    n = 7 if capacity else 3000
    z, w = np.zeros(6), np.zeros(6)
    status = run(_reverse(capacity), (6,), n, z, w, threads=threads)
    expected = []
    for i in range(6):
        total = 0.0
        for j in reversed(range(n + i)):
            total = total * 2.0 + j * j
        expected.append(total)
    assert not status.any()
    np.testing.assert_allclose(z, expected)
    np.testing.assert_allclose(w, [(n + i) * 6.75 for i in range(6)])


def test_a_full_stack_is_reported():
    z, w = np.zeros(1), np.zeros(1)
    status = run(_reverse(4), (1,), 10, z, w)
    assert status[0] == STACK_FULL
    assert access_table(_reverse(4))[status[1]].row == "push"


def test_a_rollback_puts_back_what_logged_stores_overwrote():
    with Making(x=Array(vec3), s=Array(int8), z=Array(float32)) as (k, x, s, z):
        i, zero = k.tid(), k.const(int32, 0)
        outer = k.mark()
        k.log_store(x, i, k.const(vec3, 7.0))
        k.log_store(s, i, k.const(int8, 9))
        inner = k.mark()
        k.log_store(x, i, k.const(vec3, 8.0))
        k.rollback(inner)
        k.store(z, i, k.load(k.components(x), i, zero))
        k.rollback(outer)
    x, s, z = np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(4, dtype=np.int8), np.zeros(4, np.float32)
    expected = x.copy(), s.copy()
    status = run(k.function, (4,), x, s, z)
    assert not status.any() and z.tolist() == [7] * 4
    np.testing.assert_array_equal(x, expected[0])
    np.testing.assert_array_equal(s, expected[1])


# ---- printing


def test_printf_prints_each_value_by_its_conversion(capfd):
    with Making(x=Array(vec3), n=int64) as (k, x, n):
        i = k.tid()
        k.printf(i, n, k.load(x, i), attr=('%d "q" %5d%% [%g %.2f %g] /* no */\n', ("i", "n", "x")))
    run(k.function, (2,), np.arange(6, dtype=np.float32).reshape(2, 3), 2**40)
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == (
        '0 "q" 1099511627776% [0 1.00 2] /* no */\n1 "q" 1099511627776% [3 4.00 5] /* no */\n'
    )


# ---- the same text for a GPU


def _every_update():
    types = (int32, uint32, int64, float16, float32, float64)
    with Making(2, **{f"x{n}": Array(t, 2) for n, t in enumerate(types)}) as (k, *arrays):
        i, j = k.tid(0, "i"), k.tid(1, "j")
        for x in arrays:
            v = k.load(x, i, j)
            for name in UPDATES:
                v = getattr(k, name)(x, i, j, v)
            k.accumulate(x, i, j, k.atomic_cas(x, i, j, v, v))
    return k.function


def _log():
    with Making(x=Array(vec3), h=Array(vector(3, float16)), a=vector(3, float16)) as (k, x, h, a):
        i = k.tid()
        mark = k.mark()
        k.log_store(x, i, k.const(vec3, float("nan")))
        k.store(h, i, a + k.load(h, i))
        k.rollback(mark)
        k.printf(i, attr=("%d\n", ("i",)))
    return k.function


DEVICE = {
    "bounds": _out_of_bounds,
    "stack": lambda: _reverse(None),
    "array stack": lambda: _reverse(9),
    "updates": _every_update,
    "log": _log,
}


@pytest.mark.sampled
@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("variant", ["plain", "fast", "checked"])
@pytest.mark.parametrize("name", DEVICE)
def test_the_text_for_a_gpu_compiles(name, variant, arch):
    function = DEVICE[name]()
    names = everywhere(function).contiguous
    variant = {
        "plain": Variant(atomic=names),
        "fast": Variant(contiguous=names, restrict=True, index32=True),
        "checked": Variant(checked=to_check(function, ()), atomic=names),
    }[variant]
    assert b"made" in nvrtc.to_cubin(emit_cuda.text(function, variant), arch)


# ---- what a compiler can vectorise


def _wave():
    grid = Array(float32, 2)
    with Making(2, u=grid, v=grid, w=grid, c=float32) as (k, u, v, w, c):
        i, j = k.tid(0, "i"), k.tid(1, "j")
        n, m = k.shape(u, attr=0), k.shape(u, attr=1)
        inside = k.logical_and(k.logical_and(i > 0, i < n - 1), k.logical_and(j > 0, j < m - 1))

        def step():
            here = k.load(u, i, j)
            around = k.load(u, i + 1, j) + k.load(u, i - 1, j) + k.load(u, i, j + 1) + k.load(u, i, j - 1)
            k.store(w, i, j, 2.0 * here - k.load(v, i, j) + c * (around - 4.0 * here))

        k.branch(inside, step)
    return k.function


@pytest.mark.parametrize("restrict", [False, True])
def test_a_stencil_is_a_loop_along_the_last_axis_over_neighbouring_elements(restrict):
    function, n = _wave(), 64
    u, v = (np.random.default_rng(4).random((n, n), np.float32) for _ in "uv")
    w, expected = np.zeros_like(u), np.zeros_like(u)
    variant = Variant(contiguous=frozenset("uvw"), restrict=restrict)
    run(function, (n, n), u, v, w, 0.1, variant=variant)
    here, around = u[1:-1, 1:-1], u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    expected[1:-1, 1:-1] = 2 * here - v[1:-1, 1:-1] + np.float32(0.1) * (around - 4 * here)
    np.testing.assert_array_equal(w, expected)
    cells = emit_c.text(function, variant).partition("made_cells(")[2].partition("void made(")[0]
    head, *loops = re.split(r"^ *for \(", cells, flags=re.M)
    assert [re.match(r"int32_t (\w+) =", loop)[1] for loop in loops] == ["i", "j"]
    inner = loops[-1]
    assert re.findall(r"\b[uvw]\[.*?\]", inner) == [
        "u[i * u_n1 + j]",
        "u[((int64_t)i+1) * u_n1 + j]",
        "u[((int64_t)i-1) * u_n1 + j]",
        "u[i * u_n1 + ((int64_t)j+1)]",
        "u[i * u_n1 + ((int64_t)j-1)]",
        "v[i * v_n1 + j]",
        "w[i * w_n1 + j]",
    ]
    assert not set("/%") & set(inner) and "WB_AT" not in inner, "divisions and strides of the run stand outside"
    assert head.count("*restrict ") == (3 if restrict else 0)


# ---- the block of arguments


def test_the_block_has_the_layout_that_c_gives_it():
    types = {"x": Array(float32, 2), "h": float16, "v": vec3, "b": bool_, "m": matrix((3, 3), float64), "u": uint8}
    with Making(2, **types) as (k, *_):
        k.tid()
    signature = Signature(k.function)
    values = [4096, 5, 6, 24, 4, 1.5, 1.0, 2.0, 3.0, True, *range(9), 200]
    block = signature.pack((7, 8), values, 11, 12, 13)
    assert signature.count == len(values) and len(block) == signature.size
    expected = struct.pack("=4q", 7, 8, 1, 1) + struct.pack("=5q", 4096, 5, 6, 24, 4)
    expected += struct.pack("=e6x3f4x?7x9dB7x", *values[5:]) + struct.pack("=3q", 11, 12, 13)
    assert block == expected
    text = emit_c.text(k.function) + "int64_t size_of_block(void) { return sizeof(made_args); }\n"
    library = ctypes.CDLL(str(c_compiler.build(text)))
    library.size_of_block.restype = ctypes.c_int64
    assert library.size_of_block() == signature.size
