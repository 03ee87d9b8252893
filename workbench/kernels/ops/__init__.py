"""The operations of the kernel language: the table of rows, and the builtins and operators that users write.

`BUILTINS` holds what a user calls by name: rows, or functions that choose a row by the types of their operands. All of
them work on IR values (while a kernel is read) and on host numbers. `STATEFUL` functions also return the state that
the reader binds to the user's name; `REFUSED` says why a name of NVIDIA Warp is not in the language.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import ir
from ..types import (
    Composite,
    Matrix,
    Quat,
    Scalar,
    Type,
    Vector,
    bool_,
    float32,
    is_int,
    matrix,
    quaternion,
    scalar_of,
)
from . import control, linear, memory, random, scalar
from .examples import documented
from .linear import CONSTRUCT, DOT, MATMUL, MATVEC, QUAT_MUL, SCALE, TRANSPOSE, UNSCALE
from .random import STATEFUL
from .row import NO_GRADIENT, OPERATORS, ROWS, Effect, Row, kind, literal, refuse, row, stop
from .scalar import CAST, PRELUDES, prelude, with_scalar

__all__ = [
    "BUILTINS", "NO_GRADIENT", "PRELUDE", "PRELUDES", "PYTHON", "REFUSED", "ROWS", "STATEFUL", "Effect", "Row",
    "binary", "compare", "construct", "control", "convert", "linear", "memory", "prelude", "random", "refuse", "row",
    "scalar", "unary", "why_refused",
]  # fmt: skip

PRELUDE = "".join(PRELUDES.values())

# ---- operators


def multiply(a: Any, b: Any) -> Any:
    """a * b: scalars, scalar and composite, matrix * vector, vector * matrix (v^T m), matrix * matrix, quaternions."""
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
    if isinstance(ta, Vector) and isinstance(tb, Matrix):
        return MATVEC(TRANSPOSE(b), a)
    hint = "quat_rotate(q, v)" if isinstance(ta, Quat) else "cw_mul(a, b) for components, dot(a, b) for their sum"
    raise stop((a, b), f"`*` between {ta} and {tb} has no one meaning", slug="product", instead=hint)


def divide(a: Any, b: Any) -> Any:
    """a / b: floats, or a composite divided by a scalar."""
    ta, tb = kind(a), kind(b)
    if isinstance(ta, Composite) and isinstance(tb, Scalar):
        return UNSCALE(a, b)
    if isinstance(tb, Composite):
        hint = "cw_div(a, b)" if isinstance(ta, Composite) else ""
        raise stop((a, b), f"`/` between {ta} and {tb} has no one meaning", slug="quotient", instead=hint)
    return scalar.DIV(a, b)


def power(a: Any, b: Any) -> Any:
    """a ** b: floats; an integer exponent is converted to the type of the base."""
    ta, tb = kind(a), kind(b)
    if isinstance(ta, Scalar) and ta.kind == "f" and is_int(tb):
        b = CAST(b, attr=ta)
    return scalar.POW(a, b)


def matrix_multiply(a: Any, b: Any) -> Any:
    """a @ b: matrices, matrix and vector."""
    if not (isinstance(kind(a), Matrix) or isinstance(kind(b), Matrix)):
        raise stop((a, b), f"`@` multiplies matrices, not {kind(a)} and {kind(b)}", slug="product", instead="dot(a, b)")
    return multiply(a, b)


OPERATORS.update(mul=multiply, div=divide)

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": scalar.ADD, "-": scalar.SUB, "*": multiply, "/": divide, "//": scalar.FLOORDIV, "%": scalar.PYMOD,
    "**": power, "@": matrix_multiply, "<<": scalar.LSHIFT, ">>": scalar.RSHIFT, "&": scalar.BIT_AND,
    "|": scalar.BIT_OR, "^": scalar.BIT_XOR,
}  # fmt: skip
_COMPARE: dict[str, Row] = {
    "<": scalar.LT, "<=": scalar.LE, ">": scalar.GT, ">=": scalar.GE, "==": scalar.EQ, "!=": scalar.NE,
}  # fmt: skip


def binary(op: str, a: Any, b: Any) -> Any:
    """What the Python operator `op` means between two values."""
    return _BINARY[op](a, b)


def compare(op: str, a: Any, b: Any) -> Any:
    """What the Python comparison `op` means between two values: a bool (of composites: all components equal)."""
    return _COMPARE[op](a, b)


def unary(op: str, a: Any) -> Any:
    """What `-a`, `+a`, `~a` and `not a` mean."""
    if op == "not":
        return scalar.LOGICAL_NOT(truth(a))
    return {"-": scalar.NEG, "+": scalar.POS, "~": scalar.INVERT}[op](a)


# ---- conversions and constructors


def truth(x: Any) -> Any:
    """bool(x: scalar) -> bool: is x not zero."""
    return convert(bool_, x)


def negation(x: Any) -> Any:
    """unot(x: scalar) -> bool: is x zero."""
    return unary("not", x)


def convert(type: Any, x: Any) -> Any:
    """type(x): a scalar of another type, or the same composite over another scalar type."""
    type = scalar_of(type)
    if isinstance(x, (bool, int, float)) and not isinstance(x, np.generic):
        x = np.float64(x) if isinstance(x, float) else np.int64(x) if abs(x) < 2**63 else np.uint64(x)
    return x if kind(x) == type else CAST(x, attr=type)


def _constant(type: Type, value: Any) -> Any:
    """A constant in the kernel being read, else on the host."""
    try:
        ir.current()
    except RuntimeError:
        return type(value) if isinstance(type, Scalar) else type(*np.ravel(value))  # type: ignore[operator]
    return literal(type, value)


def construct(type: Composite, *args: Any) -> Any:
    """type(...): zeros, one scalar for all components, all components, another composite of that shape, or vec3, w."""
    kinds = [kind(a) for a in args]
    if not args:
        return _constant(type, 0)
    if len(args) == 1 and isinstance(kinds[0], Composite):
        return _copied(type, args[0], kinds[0])
    if len(args) == 1:
        return CONSTRUCT(*args * type.size, attr=type)
    if isinstance(type, Quat) and len(args) == 2 and isinstance(kinds[0], Vector):
        return CONSTRUCT(*[linear.EXTRACT(args[0], attr=(i,)) for i in range(kinds[0].length)], args[1], attr=type)
    if isinstance(type, Matrix) and all(isinstance(k, Vector) for k in kinds):
        raise stop(args, f"{type} from vectors may mean rows or columns", slug="matrix-from-vectors",
                   instead="matrix_from_rows(...) or matrix_from_cols(...)")  # fmt: skip
    return CONSTRUCT(*args, attr=type)


def _copied(type: Composite, value: Any, source: Composite) -> Any:
    if with_scalar(source, type.scalar) != type:
        raise stop((value,), f"{source} cannot become {type}", slug="shape")
    return convert(type.scalar, value) if source != type else value


def static_number(x: Any) -> int:
    """The value of a number that must be known when the kernel is read."""
    if not isinstance(x, ir.Value):
        return int(x)
    if x.stmt is None or x.stmt.row is not control.CONST:
        raise stop(
            (x,), "this number must be a constant", slug="static", instead="a literal, or a constant outside the kernel"
        )
    return int(x.stmt.attr)


def identity(n: Any, dtype: Any = float32) -> Any:
    """identity(n: constant int, dtype: scalar type = float32) -> n by n unit matrix."""
    size = static_number(n)
    return _constant(matrix((size, size), scalar_of(dtype)), np.eye(size))


def quat_identity(dtype: Any = float32) -> Any:
    """quat_identity(dtype = float32) -> the quaternion (0, 0, 0, 1), which turns nothing."""
    return _constant(quaternion(scalar_of(dtype)), (0, 0, 0, 1))


# ---- functions that choose a row


def _folded(two: Row, one: Row) -> Callable[..., Any]:
    def function(*args: Any) -> Any:
        if len(args) == 1:
            return one(args[0])
        out = args[0]
        for a in args[1:]:
            out = two(out, a)
        return out

    function.__name__ = two.name
    function.__doc__ = f"{two.doc} Of one vector: {one.doc}"
    return function


def where(cond: Any, a: Any, b: Any) -> Any:
    """where(cond: bool, a: T, b: T) -> T: a where cond holds, else b. Both sides are computed; 0 * inf never counts."""
    return scalar.WHERE(truth(cond), a, b)


def dot(a: Any, b: Any) -> Any:
    """dot(a: V, b: V) -> scalar, V vector or quaternion: the sum of the products of components."""
    if isinstance(kind(a), Matrix):
        raise stop((a, b), f"`dot` takes vectors, not {kind(a)}", slug="operand-type", instead="ddot(a, b)")
    return DOT(a, b)


def ddot(a: Any, b: Any) -> Any:
    """ddot(a: matrix, b: matrix) -> scalar: the sum of the products of all components."""
    if not isinstance(kind(a), Matrix):
        raise stop((a, b), f"`ddot` takes matrices, not {kind(a)}", slug="operand-type", instead="dot(a, b)")
    return DOT(a, b)


def _componentwise(name: str, made_by: Row) -> Callable[[Any, Any], Any]:
    def function(a: Any, b: Any) -> Any:
        if not isinstance(kind(a), Composite):
            raise stop((a, b), f"`{name}` takes vectors or matrices, not {kind(a)}", slug="operand-type")
        return made_by(a, b)

    function.__name__ = name
    function.__doc__ = f"{name}(a: V, b: V) -> V: component by component."
    return function


def matrix_from_cols(*columns: Any) -> Any:
    """matrix_from_cols(*vectors) -> matrix whose columns they are."""
    return TRANSPOSE(linear.MATRIX_FROM_ROWS(*columns))


def norm_l1(v: Any) -> Any:
    """norm_l1(v: vector) -> scalar: the sum of the absolute components."""
    return DOT(scalar.ABS(v), _constant(kind(v), 1))


def quat_rpy(roll: Any, pitch: Any, yaw: Any) -> Any:
    """quat_rpy(roll: F, pitch: F, yaw: F) -> quaternion: turn about x by roll, then y by pitch, then z by yaw."""
    (sr, cr), (sp, cp), (sy, cy) = [(scalar.SIN(0.5 * a), scalar.COS(0.5 * a)) for a in (roll, pitch, yaw)]
    x = sr * cp * cy - cr * sp * sy
    y = cr * sp * cy + sr * cp * sy
    z = cr * cp * sy - sr * sp * cy
    return CONSTRUCT(x, y, z, cr * cp * cy + sr * sp * sy, attr=quaternion(kind(roll).scalar))  # type: ignore[attr-defined]


_NAMED = (
    "add sub neg floordiv mod clamp abs sign step nonzero sin cos tan asin acos atan atan2 sinh cosh tanh exp log log2 "
    "log10 log1p expm1 sqrt rsqrt cbrt floor ceil trunc round rint frac isfinite isnan isinf degrees radians erf erfc "
    "copysign lerp invert lshift rshift bit_and bit_or bit_xor argmin argmax cross length length_sq normalize "
    "transpose determinant inverse trace diag get_diag outer skew matrix_from_rows quat_from_axis_angle quat_rotate "
    "quat_rotate_inv quat_inverse quat_to_matrix"
).split()

BUILTINS: dict[str, Callable[..., Any]] = {
    **{name: ROWS[name] for name in _NAMED},
    "mul": multiply, "div": divide, "pow": power, "pos": scalar.POS, "where": where, "dot": dot, "ddot": ddot,
    "min": _folded(scalar.MIN, linear.MIN_OF), "max": _folded(scalar.MAX, linear.MAX_OF),
    "cw_mul": _componentwise("cw_mul", scalar.MUL), "cw_div": _componentwise("cw_div", scalar.DIV),
    "smoothstep": scalar.smoothstep, "identity": identity, "quat_identity": quat_identity, "quat_rpy": quat_rpy,
    "matrix_from_cols": matrix_from_cols, "norm_l1": norm_l1, "norm_l2": linear.LENGTH, "rand_init": random.rand_init,
    "unot": negation,
}  # fmt: skip

# Python's own functions, and those of `math`, as kernels use them
PYTHON: dict[Any, Callable[..., Any]] = {
    **{getattr(builtins, n): BUILTINS[n] for n in ("abs", "min", "max", "round", "pow")},
    float: lambda x: convert(float, x), int: lambda x: convert(int, x), bool: truth,
    **{getattr(math, n): f for n, f in BUILTINS.items() if hasattr(math, n)},
    math.fabs: BUILTINS["abs"], math.fmod: BUILTINS["mod"],
}  # fmt: skip

for _name, _made in (BUILTINS | STATEFUL).items():
    if not isinstance(_made, Row):  # rows have done so themselves
        _made.__doc__ = documented(_made.__doc__, _name)

# ---- Warp's names that are not in the language

_OUTSIDE = "are not in the language"
_REASONS = {
    f"Meshes, volumes, hash grids, trees and textures {_OUTSIDE}: use arrays.":
        "mesh_ volume_ hash_grid_ bvh_ texture_ Mesh Volume HashGrid Bvh Texture2D Texture3D MarchingCubes",
    f"Tiles {_OUTSIDE}: write one thread per element.": "tile tile_ untile",
    f"Spatial vectors and transforms {_OUTSIDE}: use vec3 and quat.":
        "spatial_ transform transform_ transformation transformf transformd transformh",
    f"Decompositions {_OUTSIDE}: their derivative is singular where values meet.": "svd2 svd3 qr3 eig3",
    f"Noise functions {_OUTSIDE}: compute the field outside and pass it as an array.": "noise pnoise curlnoise",
    "Not built yet: only randf, randi, randu and randn are.": "poisson sample_",
    "Not built yet; quat_from_axis_angle, quat_rpy, quat_rotate and quat_to_matrix are.":
        "quat_slerp quat_from_matrix quat_to_axis_angle quat_to_rpy quat_between_vectors quat_twist quat_twist_angle",
    "The order of its arguments (cond, if_false, if_true) misled; write where(cond, if_true, if_false).": "select",
    f"Function values, assertions on the device and linear-algebra helpers {_OUTSIDE}.":
        "reversed lower_bound closest_point_edge_edge dense_gemm dense_chol dense_subs dense_solve mlp expect_eq "
        "expect_neq expect_near",
    "Not built yet.": "norm_huber norm_pseudo_huber smooth_normalize erfinv erfcinv cast",
    "`with wb.capture() as graph:` records a block of launches, `graph.replay()` repeats it.":
        "capture_begin capture_end capture_while capture_if Graph",
    "Not built yet.  ": "autograd optim sparse fem render sim indexedarray fabricarray func_native "
        "from_paddle to_paddle",
    "`from_dlpack` of the other library takes an array as it is.": "to_dlpack",
    "wb.interop.jax.function(kernel, dim=n) makes a kernel a function of JAX.": "jax_experimental",
}  # fmt: skip
REFUSED: dict[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}


def why_refused(name: str) -> str | None:
    """Why a name of Warp is not in the language; None for names that Warp does not have or that are in it."""
    if name in BUILTINS or name in STATEFUL:
        return None
    families = (reason for known, reason in REFUSED.items() if known.endswith("_") and name.startswith(known))
    return REFUSED.get(name) or next(families, None)
