"""Every rule of the table on numbers: no compiler is needed to know that a derivative is right."""

from __future__ import annotations

import ctypes
import itertools
import math
import subprocess
from typing import ClassVar

import numpy as np
import pytest

from tests.support.tile_cases import TILE_CASES
from workbench.errors import KernelError
from workbench.kernels import ir, types as T
from workbench.kernels.ops import (
    BUILTINS,
    NO_GRADIENT,
    PRELUDE,
    PYTHON,
    REFUSED,
    ROWS,
    STATEFUL,
    binary,
    compare,
    construct,
    convert,
    memory,
    prelude,
    scalar,
    unary,
    why_refused,
)
from workbench.kernels.row import Row, host, weak_type

S = T.float64
V2, V3, V4 = (T.vector(n, S) for n in (2, 3, 4))
M22, M33, M44 = (T.matrix((n, n), S) for n in (2, 3, 4))
M23, M32 = T.matrix((2, 3), S), T.matrix((3, 2), S)
Q = T.quaternion(S)
X = T.transformation(S)
I, B = T.int32, T.bool_
ANY = (S, V2, V3, V4, M22, M33, M23, Q, X)
COMPOSITES = ANY[1:]

# name -> [(argument types, attr, (low, high))]; a number in place of a type is that very argument
CASES: dict[str, list[tuple]] = {}


def case(names: str, *types, attr=None, domain=(-2.0, 2.0)):
    for name in names.split():
        CASES.setdefault(name, []).append((types, attr, domain))


for _t in ANY:
    case("add sub mul min max", _t, _t)
    case("div", _t, _t, domain=(0.3, 2.0))
    case("mod", _t, _t, domain=(0.7, 5.3))
    case("neg pos abs", _t)
    case("where", np.bool_(True), _t, _t)
    case("where", np.bool_(False), _t, _t)
    case("pick_lt pick_le", _t, _t, _t, _t)
    case("gate times moves", _t, _t)
    case("over", _t, _t, domain=(0.3, 2.0))
    case("lerp", _t, _t, S)
    case("cast", _t, attr=S)
for _t in COMPOSITES:
    case("dot dot_0 dot_1 dot_both", _t, _t)
    case("scale", _t, S)
    case("times moves", _t, S)
    case("times moves", S, _t)
    case("unscale over", _t, S, domain=(0.3, 2.0))
    _first = tuple(0 for _ in _t.shape)
    case("construct", *[S] * _t.size, attr=_t)
    case("extract", _t, attr=_first)
    case("extract", _t, attr=tuple(-1 for _ in _t.shape))
    case("insert", _t, S, attr=_first)
    for _i in (np.int32(1), np.int32(-1)):
        case("extract_at", _t, *[_i] * len(_t.shape))
        case("insert_at", _t, *[_i] * len(_t.shape), S)
for _m in (M22, M33, M23):
    case("transpose", _m)
    case("extract", _m, attr=(1,))
    case("extract_at", _m, np.int32(1))
    case("insert", _m, T.vector(_m.cols, S), attr=(1,))
    case("insert_at", _m, np.int32(-1), T.vector(_m.cols, S))
    case("matvec matvec_0 matvec_1 matvec_both", _m, T.vector(_m.cols, S))
case("sin cos atan sinh cosh tanh exp expm1 erf erfc degrees radians frac", S)
case("tan", S, domain=(-1.2, 1.2))
case("asin acos erfinv", S, domain=(-0.9, 0.9))
case("erfcinv", S, domain=(0.1, 1.9))
for _t in (S, V2, V3, V4):
    case("noise noise_gradient", np.uint32(7), _t)
    case("noise noise_gradient", np.uint32(7), _t, *[np.int32(3)] * _t.size)
case("log log2 log10 sqrt rsqrt cbrt log1p", S, domain=(0.2, 3.0))
case("cbrt", S, domain=(-3.0, -0.2))
case("pow", S, S, domain=(0.3, 2.0))
case("atan2 copysign", S, S)
case("pymod", S, S, domain=(0.7, 5.3))
case("clamp", S, S, S)
case("min_of max_of length length_sq normalize", V2)
case("min_of max_of length length_sq normalize", V4)
case("length length_sq normalize", Q)
case("cross cross_0 cross_1 cross_both", V3, V3)
case("across across_0", V3, V3)
case("across across_0", V2, V2)
case("across", Q, Q)
case("skew", V3)
case("axial", M33)
case("outer outer_0 outer_1 outer_both", V3, V3)
case("outer", V2, V3)
case("matmul matmul_0 matmul_1 matmul_both", M33, M33)
case("matmul", M23, M32)
for _m in (M22, M33, M44):
    case("trace get_diag determinant inverse cofactors", _m)
case("diag", V3)
case("part", X, attr=(3, Q))
case("part", M23, attr=(1, V3))
case("place", V3, attr=(2, X))
case("place", Q, attr=(0, M23))
case("join", V3, Q, attr=X)
case("join", S, V3, S, S, attr=M23)
case("matrix_from_rows", V3, V3)
case("quat_mul quat_mul_0 quat_mul_1 quat_mul_both", Q, Q)
case("quat_inverse quat_to_matrix", Q)
case("quat_rotate quat_rotate_inv quat_rotate_1 quat_rotate_inv_1", Q, V3)
case("quat_from_axis_angle", V3, S)
case("svd2_factors nearest_rotation", M22)
case("lower", M33)
case("apart together", M33, M33, V3)
case("apart together", M22, M22, V2)
case("svd3_factors qr3_factors eig3_factors nearest_rotation", M33)

for _names, _types, _more in TILE_CASES:
    case(_names, *_types, **_more)

FLAT = [(name, *c) for name, cases in CASES.items() for c in cases]


def label(c) -> str:
    return f"{c[0]}-{'-'.join(map(str, c[1]))}-{c[2]}"


def drawn(c, seed: int) -> list:
    """Arguments of a case, at random."""
    random = np.random.default_rng(seed)
    return [host(t, random.uniform(*c[3], getattr(t, "shape", ()))) if isinstance(t, T.Type) else t for t in c[1]]


def rule_keywords(c) -> dict:
    return {"attr": c[2]} if ROWS[c[0]].typed_by_attr else {}


def result_type(c) -> T.Type:
    types = [t if isinstance(t, T.Type) else getattr(t, "type", None) or T.scalar_of(t.dtype) for t in c[1]]
    return ROWS[c[0]].type(*types, **rule_keywords(c))


def value(c, args):
    return ROWS[c[0]].compute(*args, attr=c[2])


def moved(arg, component: int, by: float):
    flat = np.array(arg, np.float64)
    flat.reshape(-1)[component] += by
    return host(T.float64 if flat.ndim == 0 else arg.type, flat)


def floats(args) -> list[int]:
    return [i for i, a in enumerate(args) if np.asarray(a).dtype.kind == "f"]


def numeric(c, args, g, i) -> np.ndarray:
    """Gradient of sum(g * y) by argument i, by central differences."""
    out, h = np.zeros(np.size(args[i])), 1e-6
    for k in range(out.size):
        up, down = ([*args[:i], moved(args[i], k, s * h), *args[i + 1 :]] for s in (1, -1))
        out[k] = np.sum(np.asarray(g) * (np.asarray(value(c, up)) - np.asarray(value(c, down)))) / (2 * h)
    return out


def test_every_row_with_a_derivative_has_a_case():
    from workbench.kernels.ops import control, memory, quaternions, random, row  # noqa: F401

    wanted = {r.name for r in ROWS.values() if callable(r.adjoint)}
    assert wanted - set(CASES) == set()
    assert all(ROWS[name].tangent is not None for name in CASES)


@pytest.mark.parametrize("c", FLAT, ids=label)
def test_the_adjoint_rule_is_the_derivative_of_the_meaning(c):
    for seed in range(4):
        args = drawn(c, seed)
        y = value(c, args)
        g = host(result_type(c), np.random.default_rng(seed + 50).uniform(-1, 1, np.shape(y)))
        grads = ROWS[c[0]].adjoint(g, y, *args, **rule_keywords(c))
        assert len(grads) == len(args)
        for i, a in enumerate(args):
            if i not in floats(args):
                assert grads[i] is None
                continue
            exact = np.zeros(np.size(a)) if grads[i] is None else np.ravel(grads[i])
            np.testing.assert_allclose(exact, numeric(c, args, g, i), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("c", FLAT, ids=label)
def test_the_tangent_rule_is_the_transpose_of_the_adjoint_rule(c):
    args = drawn(c, 7)
    y = value(c, args)
    random = np.random.default_rng(8)
    g = host(result_type(c), random.uniform(-1, 1, np.shape(y)))
    full = [
        host(a.type if np.ndim(a) else T.float64, random.uniform(-1, 1, np.shape(a))) if i in floats(args) else None
        for i, a in enumerate(args)
    ]
    grads = ROWS[c[0]].adjoint(g, y, *args, **rule_keywords(c))
    for kept in [set(floats(args)), *({i} for i in floats(args))]:
        ts = [t if i in kept else None for i, t in enumerate(full)]
        t = ROWS[c[0]].tangent(ts, y, *args, **rule_keywords(c))
        forward = 0.0 if t is None else np.sum(np.asarray(g) * np.asarray(t))
        reverse = sum(
            np.sum(np.asarray(d) * np.asarray(t))
            for d, t in zip(grads, ts, strict=True)
            if d is not None and t is not None
        )
        np.testing.assert_allclose(forward, reverse, rtol=1e-9, atol=1e-12)


def written(rule, args: list) -> tuple[ir.Region, list[ir.Value], object]:
    """`rule(*values)` written as IR, with one parameter for every number or composite of `args`."""
    builder = ir.Builder()
    kinds = [a.type if isinstance(a, T.Small) else T.scalar_of(a.dtype) for a in args]
    params = [ir.Value(t) for t in kinds]
    with builder.open():
        return builder.region, params, rule(*params)


def evaluated(region: ir.Region, params: list, args: list, result: ir.Value):
    known = dict(zip(params, args, strict=True))
    for stmt in region.body:
        (out,) = stmt.outs
        if stmt.row.name == "const":
            parts = np.broadcast_to(np.reshape(stmt.attr, -1), (out.type.size,))
            known[out] = host(out.type, parts.reshape(out.type.shape))
        else:
            known[out] = stmt.row.compute(*[known[a] for a in stmt.args], attr=stmt.attr)
    return known[result]


@pytest.mark.parametrize("c", FLAT, ids=label)
def test_a_rule_writes_the_ir_that_computes_the_same(c):
    args = drawn(c, 3)
    y = value(c, args)
    g = host(result_type(c), np.random.default_rng(5).uniform(-1, 1, np.shape(y)))
    keywords, adjoint, tangent = rule_keywords(c), ROWS[c[0]].adjoint, ROWS[c[0]].tangent
    given = [g, y, *args]
    for i, direct in enumerate(adjoint(g, y, *args, **keywords)):
        region, params, made = written(lambda *v: adjoint(*v, **keywords), given)
        assert (direct is None) == (made[i] is None)
        if direct is not None:
            assert made[i].type == params[2 + i].type
            np.testing.assert_array_equal(evaluated(region, params, given, made[i]), direct)
    ts = [a if i in floats(args) else None for i, a in enumerate(args)]
    region, params, made = written(
        lambda y, *v: tangent([v[i] if t is not None else None for i, t in enumerate(ts)], y, *v, **keywords), given[1:]
    )
    direct = tangent(ts, y, *args, **keywords)
    if direct is not None:
        assert made.type == result_type(c)
        np.testing.assert_array_equal(evaluated(region, params, given[1:], made), direct)


# ---- facts by which passes choose


@pytest.mark.parametrize("c", [c for c in FLAT if ROWS[c[0]].linear or ROWS[c[0]].bilinear], ids=label)
def test_a_partial_derivative_of_a_linear_row_does_not_depend_on_what_it_is_linear_in(c):
    row, args, other = ROWS[c[0]], drawn(c, 1), drawn(c, 2)
    y = value(c, args)
    g = host(result_type(c), np.random.default_rng(3).uniform(-1, 1, np.shape(y)))
    for i in floats(args):
        elsewhere = [*args[:i], other[i], *args[i + 1 :]] if row.bilinear else other
        one, two = (row.adjoint(g, y, *a, **rule_keywords(c))[i] for a in (args, elsewhere))
        np.testing.assert_array_equal(one, two)


def test_a_row_s_facts_agree_with_each_other():
    for r in ROWS.values():
        assert not (r.linear and r.bilinear), r
        assert r.exact or not r.moves, r
        assert (r.update is None) == (r is not memory.ACCUMULATE and r not in memory.ATOMICS), r
        assert not r.adds or r.update in (scalar.ADD, scalar.SUB), r


# ---- kinks and limits


def slopes(name: str, *args, g=1.0, attr=None) -> list:
    args = tuple(np.float64(a) if isinstance(a, (int, float)) else a for a in args)
    y = ROWS[name].compute(*args, attr=attr)
    with np.errstate(all="ignore"):
        return [None if d is None else np.asarray(d).tolist() for d in ROWS[name].adjoint(np.float64(g), y, *args)]


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("abs", (0.0,), [0.0]),
        ("abs", (-0.0,), [0.0]),
        ("min", (1.0, 1.0), [1.0, 0.0]),
        ("max", (1.0, 1.0), [1.0, 0.0]),
        ("clamp", (0.0, 0.0, 1.0), [1.0, 0.0, 0.0]),
        ("clamp", (1.0, 0.0, 1.0), [1.0, 0.0, 0.0]),
        ("clamp", (-1.0, 0.0, 1.0), [0.0, 1.0, 0.0]),
        ("clamp", (2.0, 0.0, 1.0), [0.0, 0.0, 1.0]),
        ("clamp", (0.5, 1.0, 0.0), [0.0, 0.0, 1.0]),
        ("clamp", (0.0, 2.0, 1.0), [0.0, 0.0, 1.0]),
        ("sqrt", (0.0,), [math.inf]),
        ("cbrt", (0.0,), [math.inf]),
        ("log", (0.0,), [math.inf]),
        ("acos", (1.0,), [-math.inf]),
        ("asin", (1.0,), [math.inf]),
        ("pow", (0.0, 0.0), [0.0, -math.inf]),
        ("pow", (0.0, 1.0), [1.0, 0.0]),
        ("pow", (0.0, 2.0), [0.0, 0.0]),
        ("pow", (0.0, 0.5), [math.inf, 0.0]),
        ("pow", (-2.0, 3.0), [12.0, math.nan]),
        ("length", (V3(0, 0, 0),), [[0.0, 0.0, 0.0]]),
        ("min_of", (V3(2, 1, 1),), [[0.0, 1.0, 0.0]]),
        ("max_of", (V3(2, 2, 1),), [[1.0, 0.0, 0.0]]),
    ],
)
def test_kinks_and_limits_follow_the_table(name, args, expected):
    for got, wanted in zip(slopes(name, *args), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_normalize_has_derivative_zero_at_the_zero_vector_and_keeps_nan():
    v = V3(0, 0, 0)
    y = ROWS["normalize"](v)
    np.testing.assert_array_equal(y, 0)
    np.testing.assert_array_equal(ROWS["normalize"].adjoint(V3(1, 2, 3), y, v)[0], 0)
    assert np.isnan(ROWS["normalize"](V3(np.nan, 0, 0))).all()


# ---- whole numbers


def test_floor_division_and_modulo_follow_python():
    for t in (T.int8, T.int16, T.int32, T.int64):
        for a in (-7, -6, 7, 0, 5):
            for b in (-3, -1, 2, 3):
                assert binary("//", t(a), t(b)) == a // b
                assert binary("%", t(a), t(b)) == a % b
                assert BUILTINS["mod"](t(a), t(b)) == int(math.fmod(a, b))
    for a in (-7.5, 7.5, 0.0, 6.0, -0.7):
        for b in (-2.5, 2.5, 0.3):
            assert binary("//", T.float64(a), T.float64(b)) == a // b
            assert binary("%", T.float64(a), T.float64(b)) == a % b


def test_integer_division_never_traps():
    low = T.int32(-(2**31))
    for op in ("//", "%"):
        assert binary(op, T.int32(7), T.int32(0)) == 0
    assert binary("//", low, T.int32(-1)) == low
    assert binary("%", low, T.int32(-1)) == 0


def test_integers_wrap():
    assert binary("+", T.int32(2**31 - 1), T.int32(1)) == -(2**31)
    assert binary("*", T.uint8(200), T.uint8(2)) == 144
    assert binary("*", T.uint8(200), T.uint8(2)).dtype == np.uint8


def test_shifts_count_modulo_the_width():
    assert binary("<<", T.int32(1), T.int32(33)) == 2
    assert binary(">>", T.int32(-8), T.int32(1)) == -4
    assert binary(">>", T.uint32(2**31), T.int32(31)) == 1
    assert binary("<<", T.int8(1), T.int32(7)) == -128


def test_bits_and_truth():
    assert binary("&", T.int32(12), T.int32(10)) == 8
    assert binary("^", T.uint32(12), T.uint32(10)) == 6
    assert unary("~", T.int32(0)) == -1
    assert unary("not", T.int32(0)) and not unary("not", T.float32(0.5))


@pytest.mark.parametrize("source", [T.float32, T.float64, T.float16])
def test_float_to_integer_saturates_and_nan_is_zero(source):
    for t in (T.int8, T.int16, T.int32, T.int64, T.uint8, T.uint16, T.uint32, T.uint64):
        top, low = 2 ** (t.bits - (t.kind == "i")) - 1, -(2 ** (t.bits - 1)) if t.kind == "i" else 0
        assert convert(t, source(np.inf)) == top
        assert convert(t, source(-np.inf)) == low
        assert convert(t, source(np.nan)) == 0
        assert convert(t, source(100.9)) == 100
        assert convert(t, source(-0.9)) == 0


def test_casts_of_literals_keep_the_exact_number_and_integers_wrap():
    assert convert(T.float64, 0.1) == 0.1
    assert convert(T.int8, T.int32(300)) == 44
    assert convert(T.uint32, T.int32(-1)) == 2**32 - 1
    assert convert(T.bool_, T.float32(np.nan))
    assert ROWS["cast"](T.vector(3, float)(1, 2, 3), attr=T.float64).type == V3


def test_rounding_functions():
    f = {n: ROWS[n] for n in ("round", "rint", "trunc", "frac", "floor", "ceil")}
    assert [f["round"](T.float64(x)) for x in (0.5, -0.5, 2.5, 0.49999999999999994)] == [1, -1, 3, 0]
    assert [f["rint"](T.float64(x)) for x in (0.5, 1.5, -2.5)] == [0, 2, -2]
    assert f["frac"](T.float64(-1.25)) == -0.25
    assert PYTHON[round](T.float32(2.5)) == 3


def test_python_numbers_take_the_type_beside_them():
    assert binary("*", 2.0, T.float64(3)).dtype == np.float64
    assert (2.0 * V3(1, 2, 3)).dtype == np.float64
    assert BUILTINS["sin"](1.0).dtype == np.float32


# ---- the C text

INTS = (T.int8, T.int16, T.int32, T.int64, T.uint8, T.uint16, T.uint32, T.uint64)
REALS = (T.float32, T.float64)
C_CASES = [
    *itertools.product(
        "add sub mul div min max floordiv pymod mod lt ge eq pick_lt pick_le clamp".split(), INTS + REALS
    ),
    *itertools.product(["bit_and", "bit_or", "bit_xor", "invert", "lshift", "rshift"], INTS),
    *itertools.product(["neg", "abs", "sign", "step", "nonzero"], INTS + REALS),
    *itertools.product(
        [
            "round",
            "rint",
            "trunc",
            "floor",
            "ceil",
            "frac",
            "sqrt",
            "isnan",
            "isinf",
            "isfinite",
            "copysign",
            "gate",
            "lerp",
            "degrees",
            "radians",
        ],
        REALS,
    ),
]
CLOSE_CASES = [
    *itertools.product("sin cos tan asin acos atan sinh cosh tanh exp log log2 log10 log1p expm1".split(), REALS),
    *itertools.product("cbrt erf erfc rsqrt pow atan2".split(), REALS),
]
ARITY = {
    "pick_lt": 4,
    "pick_le": 4,
    "clamp": 3,
    "lerp": 3,
    "pow": 2,
    "atan2": 2,
    "div": 2,
    "copysign": 2,
    "gate": 2,
    **dict.fromkeys("add sub mul min max floordiv pymod mod lt ge eq bit_and bit_or bit_xor lshift rshift".split(), 2),
}


def samples(t: T.Scalar, count: int) -> list[np.ndarray]:
    """Every combination of telling numbers for two operands; random ones beyond."""
    if t.kind == "f":
        some = [0.0, -0.0, 0.5, -0.5, 1.0, -1.5, 2.5, -7.3, 1e9, np.inf, -np.inf, np.nan, 0.1]
    else:
        low, top = (-(2 ** (t.bits - 1)), 2 ** (t.bits - 1) - 1) if t.kind == "i" else (0, 2**t.bits - 1)
        some = [low, low + 1, top, top - 1, 0, 1, 2, 3, 7] + ([-1, -2, -3, -7] if t.kind == "i" else [])
    pairs = np.array(list(itertools.product(some, some)), t.numpy)
    random = np.random.default_rng(0)
    return [pairs[:, k] if k < 2 else random.permutation(pairs[:, 0]) for k in range(count)]


def c_text(row: Row, types: list, out: T.Scalar, attr=None) -> str:
    texts = [f"a{k}[i]" for k in range(len(types))]
    if callable(row.c):
        return row.c(types, *texts, **({"attr": attr} if row.typed_by_attr else {}))
    return row.c.format(*texts, T=out.c, f="f" if T.float32 in (*types, out) else "")


def compiled(tmp_path, jobs: list) -> ctypes.CDLL:
    """One C function for each (row, types, out, attr)."""
    head = "#include <math.h>\n#include <stdint.h>\n#include <stdbool.h>\n#define WB_FN static inline\n"
    head += "#define wb_pow pow\n#define wb_powf powf\n#define WB_INT(x) (x)\n" + PRELUDE
    parts = [head]
    for n, (row, types, out, attr) in enumerate(jobs):
        params = "".join(f"const {t.c} *a{k}, " for k, t in enumerate(types))
        body = f"y[i] = {c_text(row, types, out, attr)};"
        parts.append(f"void f{n}({params}{out.c} *y, int n) {{ for (int i = 0; i < n; i++) {body} }}")
    (tmp_path / "rows.c").write_text("\n".join(parts))
    flags = ["-O2", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC", "-o", "rows.so"]
    subprocess.run(["cc", *flags, "rows.c", "-lm"], cwd=tmp_path, check=True)
    return ctypes.CDLL(str(tmp_path / "rows.so"))


def computed(library: ctypes.CDLL, n: int, args: list[np.ndarray], out: T.Scalar) -> np.ndarray:
    y = np.zeros(len(args[0]), out.numpy)
    arrays = [np.ascontiguousarray(a) for a in (*args, y)]
    library[f"f{n}"](*[ctypes.c_void_p(a.ctypes.data) for a in arrays], ctypes.c_int(len(y)))
    return arrays[-1]


@pytest.mark.slow
@pytest.mark.needs_cc
def test_the_c_text_of_a_row_computes_its_meaning(tmp_path):
    jobs = [
        (ROWS[n], [t] * ARITY.get(n, 1), ROWS[n].type(*[t] * ARITY.get(n, 1)), None) for n, t in C_CASES + CLOSE_CASES
    ]
    jobs += [(ROWS["cast"], [a], b, b) for a in INTS + REALS for b in (*INTS, *REALS, T.bool_)]
    jobs += [(ROWS["even"], [t], t, places) for t in REALS if t.bits > 16 for places in (-3, 40)]
    library, wrong = compiled(tmp_path, jobs), []
    for n, (row, types, out, attr) in enumerate(jobs):
        args = samples(types[0], len(types))
        got = computed(library, n, args, out)
        wanted = np.array([row.compute(*x, attr=attr) for x in zip(*args, strict=True)], out.numpy)
        exact = n < len(C_CASES) or row.name in ("cast", "even")
        tolerance = 0 if exact else 4 * np.finfo(out.numpy).eps
        same = np.isclose(got.astype(float), wanted.astype(float), rtol=tolerance, atol=0, equal_nan=True)
        if exact:
            same &= (got == wanted) | (wanted != wanted)
        wrong += [(row.name, types, [x[k] for x in args], got[k], wanted[k]) for k in np.flatnonzero(~same)[:1]]
    assert wrong == []


class Text:
    """A scalar in C: what a linear row is applied to when it writes C, a line for each operation."""

    lines: ClassVar[list[str]] = []

    def __init__(self, text: str, type: T.Scalar):
        self.text, self.type = text, type

    def apply_row(self, row: Row, args: tuple, attr) -> Text:
        beside = [a.type for a in args if isinstance(a, Text)]
        known = [a if isinstance(a, Text) else constant(a, weak_type(a, beside)) for a in args]
        types = [k.type for k in known]
        extra = {"attr": attr} if row.typed_by_attr else {}
        out, texts = row.type(*types, **extra), [k.text for k in known]
        text = row.c(types, *texts, **extra) if callable(row.c) else row.c.format(*texts, T=out.c, f="")
        self.lines.append(f"{out.c} v{len(self.lines)} = {text};")
        return Text(f"v{len(self.lines) - 1}", out)


def constant(x, type: T.Scalar) -> Text:
    type = T.scalar_of(x.dtype) if isinstance(x, np.generic) else type
    return Text(f"(({type.c}){x})", type)


for _method, _name in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div"}.items():
    setattr(Text, f"__{_method}__", lambda a, b, r=ROWS[_name]: a.apply_row(r, (a, b), None))
    setattr(Text, f"__r{_method}__", lambda a, b, r=ROWS[_name]: a.apply_row(r, (b, a), None))
Text.__neg__ = lambda a: a.apply_row(ROWS["neg"], (a,), None)


def linear_function(n: int, row: Row, args: list, attr) -> str:
    """A C function of flat doubles that runs `expand` of a row."""
    types = [a.type if isinstance(a, T.Small) else T.scalar_of(a.dtype) for a in args]
    extra = {"attr": attr} if row.typed_by_attr else {}
    out, operands, at = row.type(*types, **extra), [], 0
    for t in types:
        parts = [Text(f"({t.scalar.c})x[{at + k}]", t.scalar) for k in range(t.size)]
        operands.append(parts if isinstance(t, T.Composite) else parts[0])
        at += t.size
    Text.lines.clear()
    made = row.expand(*operands, types=types, out=out, **extra)
    lines = [f"y[{k}] = {getattr(p, 'text', p)};" for k, p in enumerate(made if isinstance(made, list) else [made])]
    return f"void f{n}(const double *x, double *y) {{ {' '.join([*Text.lines, *lines])} }}"


@pytest.mark.slow
@pytest.mark.needs_cc
def test_the_c_text_of_a_linear_row_computes_its_meaning(tmp_path):
    jobs = [(ROWS[c[0]], drawn(c, 2), c[2]) for c in FLAT if ROWS[c[0]].expand is not None]
    jobs += [(ROWS[f"d_{row.name}"], [*a, *a], None) for row, a, _ in jobs if f"d_{row.name}" in ROWS]
    jobs += [
        (ROWS[n], drawn((n, (V4,) * k, None, (-1, 1)), 0), None) for n, k in (("argmin", 1), ("argmax", 1), ("eq", 2))
    ]
    jobs = [(row.whole or row, args, attr) for row, args, attr in jobs]
    source = "\n".join(linear_function(n, *job) for n, job in enumerate(jobs))
    head = "#include <math.h>\n#include <stdint.h>\n#include <stdbool.h>\n#define WB_FN static inline\n"
    head += "#define WB_INT(x) (x)\n" + prelude(source)
    (tmp_path / "linear.c").write_text(head + source)
    flags = ["-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o", "linear.so"]
    subprocess.run(["cc", *flags, "linear.c", "-lm"], cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "linear.so"))
    for n, (row, args, attr) in enumerate(jobs):
        wanted = np.ravel(row.compute(*args, attr=attr)).astype(float)
        x, y = np.concatenate([np.ravel(a).astype(float) for a in args]), np.full(wanted.size, np.nan)
        library[f"f{n}"](ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data))
        np.testing.assert_allclose(y, wanted, rtol=1e-14, atol=0, err_msg=row.name)


# ---- types


def refused(f, *types, open_builder=True) -> KernelError:
    with ir.Builder().open(), pytest.raises(KernelError) as e:
        f(*[ir.Value(t) for t in types])
    return e.value


def test_mixed_types_are_refused_with_the_cast_to_write():
    text = str(refused(lambda a, b: a + b, T.float32, T.float64))
    assert "float32 and float64" in text and "float64(...)" in text and "[mixed-types]" in text
    assert "cw_mul" in str(refused(lambda a, b: a * b, V3, V3))
    assert "[component-index]" in str(refused(lambda v: ROWS["extract"](v, attr=(3,)), V3))
    assert "[shape]" in str(refused(lambda m, v: m * v, M23, V2))


def test_an_operator_has_a_meaning_or_is_refused_by_a_kernel_error():
    kinds = [*ANY, I, B]
    for op, a, b in itertools.product("+ - * / // % ** << >> & | ^ @".split(), kinds, kinds):
        with ir.Builder().open():
            try:
                made = binary(op, ir.Value(a), ir.Value(b))
            except KernelError as e:
                assert "[" in str(e), (op, a, b)
            else:
                assert isinstance(made, ir.Value)


def test_composites_compare_as_a_whole():
    assert compare("==", V3(1, 2, 3), V3(1, 2, 3)) and not compare("==", V3(1, 2, 3), V3(1, 2, 4))
    assert compare("!=", V3(1, 2, 3), V3(1, 2, 4))
    with ir.Builder().open():
        assert compare("==", ir.Value(V3), ir.Value(V3)).type is B


def test_products_choose_their_row_by_type():
    m, v = M23(1, 2, 3, 4, 5, 6), V3(1, 0, 2)
    np.testing.assert_array_equal(binary("*", m, v), np.array(m) @ np.array(v))
    np.testing.assert_array_equal(binary("@", m, ROWS["transpose"](m)), np.array(m) @ np.array(m).T)
    np.testing.assert_array_equal(binary("*", V2(1, 2), m), np.array([1, 2]) @ np.array(m))
    np.testing.assert_array_equal(binary("/", v, S(2)), [0.5, 0, 1])
    np.testing.assert_array_equal(binary("*", Q(1, 0, 0, 0), Q(0, 1, 0, 0)), [0, 0, 1, 0])
    assert binary("**", S(-2), T.int32(3)) == -8


def test_constructors():
    np.testing.assert_array_equal(construct(V3), [0, 0, 0])
    np.testing.assert_array_equal(construct(V3, S(2)), [2, 2, 2])
    np.testing.assert_array_equal(construct(Q, V3(1, 2, 3), S(4)), [1, 2, 3, 4])
    assert construct(V3, T.vector(3, float)(1, 2, 3)).type == V3
    np.testing.assert_array_equal(BUILTINS["identity"](2), np.eye(2))
    with ir.Builder().open():
        assert construct(V3).type == V3 and BUILTINS["identity"](3, T.float64).type == M33


def test_a_component_index_out_of_range_is_an_error_on_the_host():
    assert ROWS["extract_at"](V3(1, 2, 3), np.int32(-1)) == 3
    for i in (3, -4):
        with pytest.raises(IndexError):
            ROWS["extract_at"](V3(1, 2, 3), np.int32(i))
        with pytest.raises(IndexError):
            ROWS["insert_at"](V3(1, 2, 3), np.int32(i), S(0))


def test_quaternions_turn_vectors():
    q = ROWS["quat_from_axis_angle"](V3(0, 0, 1), S(math.pi / 2))
    np.testing.assert_allclose(ROWS["quat_rotate"](q, V3(1, 0, 0)), [0, 1, 0], atol=1e-15)
    r = ROWS["normalize"](Q(0.1, -0.4, 0.3, 0.8))
    v = V3(0.3, -1.0, 2.0)
    turned = ROWS["quat_rotate"](r, v)
    np.testing.assert_allclose(np.array(ROWS["quat_to_matrix"](r)) @ np.array(v), turned, rtol=1e-14)
    np.testing.assert_allclose(ROWS["quat_rotate_inv"](r, turned), v, rtol=1e-14)
    pure = Q(*v, 0.0)
    np.testing.assert_allclose(binary("*", binary("*", r, pure), ROWS["quat_inverse"](r))[:3], turned, rtol=1e-14)
    yaw = BUILTINS["quat_rpy"](S(0), S(0), S(math.pi / 2))
    np.testing.assert_allclose(yaw, q, atol=1e-15)


@pytest.mark.parametrize("m", [M22, M33, M44])
def test_inverse_and_determinant_agree_with_numpy(m):
    x = m(*np.random.default_rng(1).uniform(-1, 1, m.size))
    np.testing.assert_allclose(ROWS["inverse"](x), np.linalg.inv(np.array(x)), rtol=1e-10)
    np.testing.assert_allclose(ROWS["determinant"](x), np.linalg.det(np.array(x)), rtol=1e-12)


# ---- random numbers


def pcg(s: int) -> int:
    word = (s * 747796405 + 2891336453) % 2**32
    word = ((word >> ((word >> 28) + 4)) ^ word) * 277803737 % 2**32
    return (word >> 22) ^ word


def test_random_numbers_repeat_and_follow_the_published_generator():
    for seed in (0, 1, 42, -5):
        state = BUILTINS["rand_init"](seed)
        assert state == pcg(seed % 2**32) and state.dtype == np.uint32
        assert BUILTINS["rand_init"](seed, 7) == pcg((seed + pcg(7)) % 2**32)
        after = pcg(int(state))
        unit, following = STATEFUL["randf"](state)
        assert following == after and unit == np.float32((after >> 8) / 2**24) and unit.dtype == np.float32
        assert STATEFUL["randi"](state)[0] == np.uint32(after).astype(np.int32)
        assert STATEFUL["randi"](state, T.int32(-3), T.int32(9))[0] == -3 + after % 12
        assert STATEFUL["randu"](state, T.uint32(3), T.uint32(9))[0] == 3 + after % 6
        second = pcg(after)
        a, b = (after >> 8) / 2**24, (second >> 8) / 2**24
        normal, last = STATEFUL["randn"](state)
        assert last == second
        np.testing.assert_allclose(normal, math.sqrt(-2 * math.log(a)) * math.cos(2 * math.pi * b), rtol=1e-5)


def test_names_of_warp_outside_the_language_have_a_reason():
    assert set(REFUSED) & (set(BUILTINS) | set(STATEFUL)) == set()
    assert why_refused("volume_sample_f") and why_refused("bfloat16")
    assert why_refused("sin") is None and why_refused("nonsense") is None


def test_every_builtin_says_what_it_takes():
    assert [n for n, f in BUILTINS.items() if f.__doc__ in (None, "", Row.__doc__)] == []


def test_no_gradient_is_another_thing_than_no_slope():
    assert ROWS["floor"].adjoint is None
    assert ROWS["d_cofactors"].adjoint is NO_GRADIENT
