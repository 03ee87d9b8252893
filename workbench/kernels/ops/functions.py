"""The builtins that users call by name: rows, or functions that choose a row by the types of their operands.

So do Python's operators between values of a kernel: `ir.Value` gets them here.
"""

from __future__ import annotations

import builtins
import math
import re
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from .. import ir
from ..ir import Components, constant, kind
from ..row import Operand, Row, type_of, weak_type
from ..types import Composite, Matrix, Quat, Scalar, Small, Transform, Type, Vector, is_float, is_int
from . import matrices, memory, random, scalar, vectors
from .bits import BIT_COUNT, cast
from .conversions import convert, here, identity, quat_identity, truth
from .decompositions import DECOMPOSITIONS
from .examples import paragraphs
from .matrices import INVERSE, MATMUL, MATVEC, TRANSPOSE
from .noise import NOISES
from .quaternions import QUAT_MUL
from .rotations import ROTATIONS
from .row import ROWS, overload, row, stop
from .samples import STATEFUL
from .scalar import CAST, EXP, LE, SQRT, TIMES, WHERE, floats
from .signatures import describe
from .transforms import TRANSFORMS, transform_multiply
from .vectors import CONSTRUCT, DOT, LENGTH, LENGTH_SQ, SCALE, UNSCALE

# reason -> names of Warp; what to write -> the names that other libraries have for it
_REASONS, _ELSEWHERE = paragraphs("warp_refused.txt"), paragraphs("other_names.txt")
REFUSED: dict[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}


def multiply(a: Operand, b: Operand) -> Any:
    """mul(a: T, b: T) -> T: a * b of scalars, scalar and composite, matrix and vector, matrices, quaternions."""
    ta, tb = kind(a), kind(b)
    if isinstance(ta, Scalar) and isinstance(tb, Scalar):
        return scalar.MUL(a, b)
    if isinstance(tb, Scalar):
        return SCALE(a, b)
    if isinstance(ta, Scalar):
        return SCALE(b, a)
    if isinstance(ta, Matrix):
        return MATMUL(a, b) if isinstance(tb, Matrix) else MATVEC(a, b)
    if isinstance(ta, Quat) and isinstance(tb, Quat):
        return QUAT_MUL(a, b)
    if isinstance(ta, Transform) and isinstance(tb, Transform):
        return transform_multiply(a, b)
    if isinstance(ta, Vector) and isinstance(tb, Matrix):
        return MATVEC(TRANSPOSE(b), a)
    known = {Quat: "quat_rotate(q, v)", Transform: "transform_point(t, x)"}
    hint = known.get(type(ta)) or "cw_mul(a, b) for components, dot(a, b) for their sum"
    raise stop((a, b), f"`*` between {ta} and {tb} has no one meaning", slug="product", instead=hint)


def divide(a: Operand, b: Operand) -> Any:
    """div(a: T, b: T) -> T: a / b of floats, of a composite and a scalar, or of a scalar and each component."""
    ta, tb = kind(a), kind(b)
    if isinstance(ta, Composite) and isinstance(tb, Scalar):
        return UNSCALE(a, b)
    if isinstance(tb, Composite) and isinstance(ta, Scalar):
        return scalar.DIV(CONSTRUCT(*[a] * tb.size, attr=tb), b)
    if isinstance(tb, Composite):
        hint = "cw_div(a, b)" if isinstance(ta, Composite) else ""
        raise stop((a, b), f"`/` between {ta} and {tb} has no one meaning", slug="quotient", instead=hint)
    return scalar.DIV(a, b)


def power(a: Operand, b: Operand) -> Any:
    """pow(a: F, b: F) -> F: a ** b; an integer exponent is converted to the type of the base."""
    ta, tb = kind(a), kind(b)
    if isinstance(ta, Scalar) and ta.kind == "f" and is_int(tb):
        b = CAST(b, attr=ta)
    return scalar.POW(a, b)


def matrix_multiply(a: Operand, b: Operand) -> Any:
    """a @ b: matrices, matrix and vector."""
    if not (isinstance(kind(a), Matrix) or isinstance(kind(b), Matrix)):
        raise stop((a, b), f"`@` multiplies matrices, not {kind(a)} and {kind(b)}", slug="product", instead="dot(a, b)")
    return multiply(a, b)


_BITS = (scalar.LSHIFT, scalar.RSHIFT, scalar.BIT_AND, scalar.BIT_OR, scalar.BIT_XOR)
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    **{row.sign: row for row in (scalar.ADD, scalar.SUB, scalar.FLOORDIV, scalar.PYMOD, *_BITS)},
    "*": multiply,
    "/": divide,
    "**": power,
    "@": matrix_multiply,
}
_COMPARE = {row.sign: row for row in (scalar.LT, scalar.LE, scalar.GT, scalar.GE, scalar.EQ, scalar.NE)}


def binary(op: str, a: Operand, b: Operand) -> Any:
    """The value of `a op b` for a Python operator."""
    return _BINARY[op](a, b)


def compare(op: str, a: Operand, b: Operand) -> Any:
    """The value of the Python comparison `a op b`: a bool (of composites: all components equal)."""
    return _COMPARE[op](a, b)


def unary(op: str, a: Operand) -> Any:
    """The value of `-a`, `+a`, `~a` or `not a`."""
    if op == "not":
        return scalar.LOGICAL_NOT(truth(a))
    return {"-": scalar.NEG, "+": scalar.POS, "~": scalar.INVERT}[op](a)


# ---- of IR values


def _constant(type: Type, value: Components) -> ir.Value:
    """A constant beside a value of `type`: a Python number takes its scalar type, so that `2.0 * v` scales a vector."""
    if isinstance(value, (np.generic, np.ndarray)):
        return constant(type_of(value), value)
    return constant(weak_type(value, [type]), value)


def _operator(name: str) -> Callable[..., Any]:
    function = {"mul": multiply, "div": divide}.get(name, ROWS[name])

    def operator(*operands: ir.Value | Components) -> Any:
        type = next(o.type for o in operands if isinstance(o, ir.Value))
        return function(*[o if isinstance(o, ir.Value) else _constant(type, o) for o in operands])

    return operator


overload(ir.Value, _operator)


_HALF_ROOT_PI = 0.5 * math.sqrt(math.pi)

# ---- inverses of the error functions, in float64 whatever the type: a start near the result, then Newton and Halley


def _start(q: float) -> float:
    """y with erfc(y) near q, for 0 < q <= 1/2: by the first term of its asymptotic series."""
    log = -math.log(q)
    return math.sqrt(log - 0.5 * math.log(math.pi * max(log, 0.8)))


def _tail(q: float) -> float:
    """y with erfc(y) = q, for 0 < q <= 1/2: steps in the logarithm, in which erfc is nearly a parabola."""
    y = _start(q)
    for _ in range(5):
        value = math.erfc(y)
        if value > 0.0:
            y += math.log(value / q) * value * _HALF_ROOT_PI * math.exp(y * y)
    return y


def _middle(x: float) -> float:
    """y with erf(y) = x, for |x| <= 1/2."""
    y = x * _HALF_ROOT_PI
    for _ in range(4):
        step = (math.erf(y) - x) * _HALF_ROOT_PI * math.exp(y * y)
        y -= step / (1.0 + y * step)
    return y


def erfinv_of(x: float) -> float:
    if abs(x) <= 0.5:
        return _middle(x)
    if abs(x) < 1.0:
        return math.copysign(_tail(1.0 - abs(x)), x)
    return math.copysign(math.inf, x) if abs(x) == 1.0 else math.nan


def erfcinv_of(x: float) -> float:
    if 0.5 <= x <= 1.5:
        return _middle(1.0 - x)
    if 0.0 < x < 2.0:
        return _tail(x) if x < 1.0 else -_tail(2.0 - x)
    return math.inf if x == 0.0 else -math.inf if x == 2.0 else math.nan


_NOTHING, _ENDLESS = "0.0 / 0.0", "1.0 / 0.0"
_ERFINV = (
    "({T})(fabs((double){0}) <= 0.5 ? wb_erf_middle((double){0}) : fabs((double){0}) < 1 ? "
    "copysign(wb_erf_tail(1 - fabs((double){0})), (double){0}) : "
    f"fabs((double){{0}}) == 1 ? copysign({_ENDLESS}, (double){{0}}) : {_NOTHING})"
)
_ERFCINV = (
    "({T})((double){0} >= 0.5 && (double){0} <= 1.5 ? wb_erf_middle(1 - (double){0}) : "
    "(double){0} > 0 && (double){0} < 1 ? wb_erf_tail((double){0}) : "
    "(double){0} >= 1 && (double){0} < 2 ? -wb_erf_tail(2 - (double){0}) : "
    f"(double){{0}} == 0 ? {_ENDLESS} : (double){{0}} == 2 ? -{_ENDLESS} : {_NOTHING})"
)


def _row(name: str, value: Callable[[float], float], c: str, sign: float) -> Any:
    return row(
        name,
        type=partial(floats, name),
        meaning=lambda x: type(x)(value(float(x))),
        c=c,
        library=True,
        cost=64,
        adjoint=lambda g, y, x: (TIMES(g * (sign * _HALF_ROOT_PI), EXP(y * y)),),
    )


ERFINV = _row("erfinv", erfinv_of, _ERFINV, 1.0)
ERFCINV = _row("erfcinv", erfcinv_of, _ERFCINV, -1.0)


def negation(x: Operand) -> Any:
    """unot(x: scalar) -> bool: is x zero."""
    return unary("not", x)


def _folded(two: Row, one: Row) -> Callable[..., Any]:
    def function(*args: Operand) -> Any:
        if not args:
            raise TypeError
        if len(args) == 1:
            return one(args[0])
        out = args[0]
        for a in args[1:]:
            out = two(out, a)
        return out

    function.__doc__ = two.doc.replace("b: T)", "*more: T)", 1) + f" Of one vector: {one.doc}"
    return function


def where(cond: Operand, a: Operand, b: Operand) -> Any:
    """where(cond: bool, a: T, b: T) -> T: a where cond holds, else b. Both sides are computed; 0 * inf never counts."""
    return WHERE(truth(cond), a, b)


_meant: dict[int, Any] = {}
_meant_arrays: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()


def mean(x: object) -> Any:
    """Mark a host value that `detach` returns, by identity, as cut from its source on purpose. Returns it."""
    if isinstance(x, np.ndarray):
        _meant_arrays[id(x)] = x
    else:
        while len(_meant) >= 1024:
            del _meant[next(iter(_meant))]
        _meant[id(x)] = x
    return x


def is_meant(x: object) -> bool:
    """True if `detach` returned this very object."""
    known: Any = _meant_arrays if isinstance(x, np.ndarray) else _meant
    return known.get(id(x)) is x


def detach(x: object) -> Any:
    """detach(x: T) -> T: the value of x; no gradient passes, and that is meant.

    In a kernel of a number, vector, matrix or quaternion: this use of it is a constant to every gradient. On the host
    of an array: a copy in new memory, made by an event of the tape that is drawn as a cut; it has no `requires_grad`,
    and may be given it to start a leaf there. Of a declared scalar: its value. Of a NumPy array, a number or a vector:
    a plain copy, without any notion of where it came from. Of a list or tuple: of each item. Of a torch tensor:
    `x.detach()`.
    """
    if isinstance(x, ir.Value):
        return scalar.DETACH(x) if is_float(x.type) else x
    if isinstance(x, (list, tuple)):
        return type(x)(detach(item) for item in x)
    own = getattr(type(x), "detach", None)
    if own is not None:
        return own(x)
    if isinstance(x, np.ndarray):
        return x if isinstance(x, Small) else mean(np.array(x))
    if type(x) is float:
        return mean(x * 1.0)  # another object: who knows where the first was read does not know this one
    if isinstance(x, (bool, int, float, np.generic)):
        return x
    text = f"`detach` takes a value or an array, not {type(x).__name__}: detach each array or number in it"
    raise stop((x,), text, slug="operand-type")


def dot(a: Operand, b: Operand) -> Any:
    """dot(a: V, b: V) -> scalar, V vector or quaternion: the sum of the products of components."""
    if isinstance(kind(a), Matrix):
        raise stop((a, b), f"`dot` takes vectors, not {kind(a)}", slug="operand-type", instead="ddot(a, b)")
    return DOT(a, b)


def ddot(a: Operand, b: Operand) -> Any:
    """ddot(a: matrix, b: matrix) -> scalar: the sum of the products of all components."""
    if not isinstance(kind(a), Matrix):
        raise stop((a, b), f"`ddot` takes matrices, not {kind(a)}", slug="operand-type", instead="dot(a, b)")
    return DOT(a, b)


def _componentwise(name: str, made_by: Row) -> Callable[[Any, Any], Any]:
    def function(a: Operand, b: Operand) -> Any:
        if not isinstance(kind(a), Composite):
            raise stop((a, b), f"`{name}` takes vectors or matrices, not {kind(a)}", slug="operand-type")
        return made_by(a, b)

    function.__doc__ = f"{name}(a: V, b: V) -> V: component by component."
    return function


def matrix_from_cols(*columns: Operand) -> Any:
    """matrix_from_cols(*vectors) -> matrix whose columns they are."""
    return TRANSPOSE(matrices.MATRIX_FROM_ROWS(*columns))


def norm_l1(v: Operand) -> Any:
    """norm_l1(v: vector) -> scalar: the sum of the absolute components."""
    return DOT(scalar.ABS(v), here(kind(v), 1))


def _needs_vector(name: str, v: Operand) -> None:
    if not isinstance(kind(v), (Vector, Quat)):
        raise stop((v,), f"`{name}` takes a vector, not {kind(v)}", slug="operand-type")


def norm_huber(v: Operand, delta: Operand = 1.0) -> Any:
    """norm_huber(v: vector, delta: scalar = 1) -> scalar: |v|² / 2 up to delta, then delta (|v| - delta / 2)."""
    _needs_vector("norm_huber", v)
    square = LENGTH_SQ(v)
    return WHERE(LE(square, delta * delta), 0.5 * square, (LENGTH(v) - 0.5 * delta) * delta)


def norm_pseudo_huber(v: Operand, delta: Operand = 1.0) -> Any:
    """norm_pseudo_huber(v: vector, delta: scalar = 1) -> scalar: delta sqrt(1 + |v|² / delta²), which is smooth."""
    _needs_vector("norm_pseudo_huber", v)
    return delta * SQRT(1.0 + LENGTH_SQ(v) / (delta * delta))


def smooth_normalize(v: Operand, delta: Operand = 1.0) -> Any:
    """smooth_normalize(v: vector, delta: scalar = 1) -> vector: v / norm_pseudo_huber(v, delta)."""
    return UNSCALE(v, norm_pseudo_huber(v, delta))


def div_approx(a: Operand, b: Operand) -> Any:
    """div_approx(a, b) -> a / b: the exact quotient, on every backend."""
    return divide(a, b)


def inverse_approx(m: Operand) -> Any:
    """inverse_approx(m: matrix) -> inverse(m): the exact one, on every backend."""
    return INVERSE(m)


_NAMED = (
    "add sub neg floordiv mod clamp abs sign step nonzero sin cos tan asin acos atan atan2 sinh cosh tanh exp log log2 "
    "log10 log1p expm1 sqrt rsqrt cbrt floor ceil trunc round rint frac isfinite isnan isinf degrees radians erf erfc "
    "copysign lerp invert lshift rshift bit_and bit_or bit_xor argmin argmax cross length length_sq normalize "
    "transpose determinant inverse trace diag get_diag outer skew matrix_from_rows quat_from_axis_angle quat_rotate "
    "quat_rotate_inv quat_inverse quat_to_matrix"
).split()

BUILTINS: dict[str, Callable[..., Any]] = {
    **{name: ROWS[name] for name in _NAMED},
    "mul": multiply,
    "div": divide,
    "pow": power,
    "pos": scalar.POS,
    **{f.__name__: f for f in (where, dot, ddot, detach)},
    "min": _folded(scalar.MIN, vectors.MIN_OF),
    "max": _folded(scalar.MAX, vectors.MAX_OF),
    "cw_mul": _componentwise("cw_mul", scalar.MUL),
    "cw_div": _componentwise("cw_div", scalar.DIV),
    **{f.__name__: f for f in (scalar.smoothstep, identity, quat_identity, matrix_from_cols, norm_l1)},
    "norm_l2": LENGTH,
    "rand_init": random.rand_init,
    "unot": negation,
    **ROTATIONS,
    **TRANSFORMS,
    **{f.__name__: f for f in (norm_huber, norm_pseudo_huber, smooth_normalize, div_approx, inverse_approx)},
    **DECOMPOSITIONS,
    **NOISES,
    "cast": cast,
    **{row.name: row for row in (BIT_COUNT, ERFINV, ERFCINV)},
}

# Builtins that assign results to some of their arguments: how many there are then, and which; the first is read.
STORING: dict[str, dict[int, tuple[int, ...]]] = {
    "transform_set_translation": {2: (0,)},
    "transform_set_rotation": {2: (0,)},
    "quat_to_axis_angle": {3: (1, 2)},
    "svd2": {4: (1, 2, 3)},
    "svd3": {4: (1, 2, 3)},
    "polar": {3: (1, 2)},
    "qr3": {3: (1, 2)},
    "eig3": {3: (1, 2)},
}

ATOMICS: dict[str, Row] = {row.name: row for row in memory.ATOMICS}

# Python's own functions, and those of `math`, as kernels use them
PYTHON: dict[Any, Callable[..., Any]] = {
    **{getattr(builtins, n): BUILTINS[n] for n in ("abs", "min", "max", "round", "pow")},
    float: lambda x: convert(float, x),
    int: lambda x: convert(int, x),
    bool: truth,
    **{getattr(math, n): f for n, f in BUILTINS.items() if hasattr(math, n)},
    math.fabs: BUILTINS["abs"],
    math.fmod: BUILTINS["mod"],
}

for _name, _made in (BUILTINS | STATEFUL | ATOMICS).items():
    if isinstance(_made, Row):
        describe(_made, _made.name, _made.doc)
    else:
        describe(_made, _name, _made.__doc__ or "")


def why_refused(name: str) -> str | None:
    """The reason why a name of Warp is not in the language; None for names that are, or that Warp lacks."""
    if name in BUILTINS or name in STATEFUL:
        return None
    families = (reason for known, reason in REFUSED.items() if known.endswith("_") and name.startswith(known))
    return REFUSED.get(name) or next(families, None)


def instead_of(name: str, known: Iterable[str], module: str = "wb") -> str:
    """The replacement for an unknown `wb.` name: its counterpart, else the closest spelling, else ""."""
    import difflib

    close = difflib.get_close_matches(name, known, n=1) or difflib.get_close_matches(name.lower(), known, n=1)
    if size := re.fullmatch(r"vec(\d+)([fdhi]?)", name):
        return f"wb.types.vector({size[1]}, {_SCALARS[size[2]]})"
    if size := re.fullmatch(r"mat(\d)(\d)([fdh]?)", name):
        return f"wb.types.matrix(({size[1]}, {size[2]}), {_SCALARS[size[3]]})"
    meant = next((line for line, names in _ELSEWHERE.items() if name in names.split()), None)
    return meant or (f"{module}.{close[0]}" if close else "")


_SCALARS = {"": "float", "f": "float", "d": "wb.float64", "h": "wb.float16", "i": "int"}
