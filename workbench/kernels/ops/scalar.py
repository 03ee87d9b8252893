"""Arithmetic, comparisons, casts, bits and elementary functions of scalars.

Meaning, C and derivative of each function stand side by side. All backends agree on the corners: integer arithmetic
wraps, division by zero and INT_MIN / -1 never trap (0 and INT_MIN), shifts use the low bits of their count, float to
integer saturates and NaN becomes 0. Of integers, `/` and `mod` round towards zero as in C, `//` and `%` down.
Kinks: abs has slope 0 at 0, min and max give a tie to the first operand, clamp passes to x on its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from .. import ir
from ..ir import kind, numeric
from ..row import Numeric, Operand, Row, Singular, refuse
from ..types import Composite, Scalar, Type, bool_, float64, is_float, is_int
from . import sines
from .c_text import c_abs, c_cast, c_div, c_floordiv, c_lshift, c_pymod, c_rshift, c_small
from .row import DOCS, ROWS, diagonal, plus, row, zero

# ---- type rules, of operators or functions that messages name


def same_type(name: str, types: tuple[Type, ...]) -> Numeric:
    """All of one value type; the message names the cast to write."""
    if not types:
        raise refuse(f"`{name}` takes at least one operand", slug="arguments")
    first, same = types[0], True
    for t in types:
        if not isinstance(t, (Scalar, Composite)):
            raise refuse(f"`{name}` takes numbers, not {t}", slug="operand-type")
        same = same and (t is first or t == first)
    if not same:
        scalars = [t for t in types if isinstance(t, Scalar)]
        if len(scalars) == len(types):
            wide = max(scalars, key=lambda t: (t.kind == "f", t.bits))
            hint = f"{wide}(...) around the operand that is not {wide}"
        else:
            hint = "operands of one type"
        raise refuse(
            f"`{name}` takes operands of one type, got {' and '.join(map(str, types))}: nothing is converted silently",
            slug="mixed-types",
            instead=hint,
        )
    return numeric(first)


def _numbers(name: str, *types: Type) -> Type:
    """Scalars or composites of one type, which is the result."""
    first = same_type(name, types)
    if first.scalar is bool_:
        raise refuse(f"`{name}` takes numbers, not {first}", slug="operand-type", instead="int(...)")
    return first


def _scalars(name: str, *types: Type) -> Type:
    first = _numbers(name, *types)
    if not isinstance(first, Scalar):
        raise refuse(f"`{name}` takes scalars, not {first}", slug="operand-type", instead="one call per component")
    return first


def floats(name: str, *types: Type, composite: bool = False) -> Type:
    first = same_type(name, types)
    if not is_float(first) or not (composite or isinstance(first, Scalar)):
        instead = f"{name}(float(...))" if is_int(first) else ""
        raise refuse(f"`{name}` takes floats, not {first}", slug="operand-type", instead=instead)
    return first


def _compared(name: str, *types: Type, ordered: bool = False) -> Type:
    first = same_type(name, types)
    if ordered and not isinstance(first, Scalar):
        instead = "a comparison per component"
        raise refuse(f"`{name}` orders scalars, not {first}", slug="operand-type", instead=instead)
    return bool_


def _bools(name: str, *types: Type) -> Type:
    for t in types:
        if t is not bool_:
            raise refuse(f"`{name}` takes bools, not {t}", slug="operand-type", instead="a comparison, as x != 0")
    return bool_


def _whole(name: str, *types: Type, bools: bool = True) -> Type:
    first = same_type(name, types)
    if not (is_int(first.scalar) or (bools and first.scalar is bool_)):
        raise refuse(f"`{name}` takes integers, not {first}", slug="operand-type", instead="int(...)")
    return first


def _shifted(name: str, a: Type, count: Type) -> Type:
    whole = all(isinstance(t, Scalar | Composite) and is_int(t.scalar) for t in (a, count))
    if not whole or (isinstance(count, Composite) and count != a):
        raise refuse(f"`{name}` takes integers, not {a} and {count}", slug="operand-type", instead="int(...)")
    return a


# ---- facts that rows share

# A call of C's math library; and the functions of it that are one instruction.
_LIBRARY: dict[str, Any] = {"library": True, "cost": 8}
_INSTRUCTION: dict[str, Any] = {"exact": True, "library": False}
_SINE: dict[str, Any] = {"library": (float64,), "cost": 8}


def _of_numbers(name: str, **facts: Any) -> Row:
    """A row of numbers or composites of one type, which is the result, component by component."""
    return row(name, type=partial(_numbers, facts.get("sign") or name), elementwise=True, **facts)


# ---- choices between values, by which kinks are written


def _comparison(name: str, sign: str, meaning: Callable[..., Any], whole: Row | None = None) -> Row:
    """Of scalars; `whole` takes over for composites, which have no order."""
    rule, c = partial(_compared, sign, ordered=whole is None), f"{{0}} {sign} {{1}}"
    return row(name, sign=sign, type=rule, meaning=meaning, c=c, whole=whole, facts="exact cheap vectorised")


def _logical(name: str, sign: str, meaning: np.ufunc, c: str) -> Row:
    return row(name, sign=sign, type=partial(_bools, sign.strip()), meaning=meaning, c=c, facts="exact cheap")


LT = _comparison("lt", "<", lambda a, b: a < b)
LE = _comparison("le", "<=", lambda a, b: a <= b)
GT = _comparison("gt", ">", lambda a, b: a > b)
GE = _comparison("ge", ">=", lambda a, b: a >= b)
LOGICAL_AND = _logical("logical_and", "and", np.logical_and, "{0} && {1}")
LOGICAL_OR = _logical("logical_or", "or", np.logical_or, "{0} || {1}")
LOGICAL_NOT = _logical("logical_not", "not ", np.logical_not, "!{0}")


def _all_equal(a, b, types, out):
    return reduce(LOGICAL_AND, map(EQ, a, b))


ALL_EQ = row("all_eq", type=partial(_compared, "=="), expand=_all_equal)
ALL_NE = row(
    "any_ne", type=partial(_compared, "!="), expand=lambda a, b, types, out: LOGICAL_NOT(_all_equal(a, b, types, out))
)
EQ = _comparison("eq", "==", lambda a, b: a == b, ALL_EQ)
NE = _comparison("ne", "!=", lambda a, b: a != b, ALL_NE)

# What a comparison is where it does not hold, and what it is with its operands exchanged.
NEGATED = {LT: GE, LE: GT, GT: LE, GE: LT, EQ: NE, NE: EQ}
SWAPPED = {LT: GT, LE: GE, GT: LT, GE: LE, EQ: EQ, NE: NE}


def _where_type(cond: Type, a: Type, b: Type) -> Type:
    if cond is not bool_:
        raise refuse(f"a condition of `where` is bool, not {cond}", slug="operand-type", instead="where(x != 0, a, b)")
    return same_type("where", (a, b))


WHERE = row(
    "where",
    type=_where_type,
    facts="elementwise linear exact cheap",
    meaning=lambda cond, a, b: np.where(cond, a, b),
    c="{0} ? {1} : {2}",
    adjoint=lambda g, y, cond, a, b: (None, WHERE(cond, g, zero(g)), WHERE(cond, zero(g), g)),
)


def _pick(name: str, sign: str, holds: np.ufunc) -> Row:
    def adjoint(g, out, a, b, x, y):
        return None, None, made(a, b, g, zero(g)), made(a, b, zero(g), g)

    made = row(
        name,
        facts="elementwise cheap",
        type=lambda a, b, x, y: (same_type(name, (a, b)), same_type(name, (x, y)))[1],
        meaning=lambda a, b, x, y: np.where(holds(a, b), x, y),
        c=f"{{0}} {sign} {{1}} ? {{2}} : {{3}}",
        adjoint=adjoint,
    )
    return made


PICK_LT = _pick("pick_lt", "<", np.less)
PICK_LE = _pick("pick_le", "<=", np.less_equal)
GATE = _of_numbers(
    "gate",
    exact=True,
    meaning=lambda g, d: np.where(g == 0, np.zeros_like(d), d),
    c="{0} == 0 ? 0 : {1}",
    adjoint=lambda h, y, g, d: (None, h),
    tangent=lambda ts, y, g, d: None if ts[1] is None else GATE(g, ts[1]),
)

# ---- arithmetic


def _sum(name: str, sign: str, meaning: Callable[..., Any], adjoint: Callable[..., Any], c: str) -> Row:
    facts = "linear exact cheap"
    return _of_numbers(name, sign=sign, meaning=meaning, c=c_small(c), facts=facts, adjoint=adjoint)


ADD = _sum("add", "+", lambda a, b: a + b, lambda g, y, a, b: (g, g), "{0} + {1}")
SUB = _sum("sub", "-", lambda a, b: a - b, lambda g, y, a, b: (g, NEG(g)), "{0} - {1}")
NEG = _sum("neg", "-", np.negative, lambda g, y, a: (NEG(g),), "-{0}")
POS = _of_numbers("pos", sign="+", meaning=lambda a: a, c="{0}", adjoint=lambda g, y, a: (g,), facts="linear exact")


def _fused_mul(stmt: ir.Stmt) -> ir.Stmt | None:
    """Fused derivative rule of x * sqrt(x): 3/2 sqrt(x). None if the root has a name, as its adjoint is shown."""
    for x, r in (stmt.args, stmt.args[::-1]):
        if r.stmt is not None and r.stmt.row is SQRT and r.stmt.args[0] is x and not r.name:
            return ir.Stmt(TIMES_ROOT, (x,), (r,))
    return None


MUL = _of_numbers(
    "mul",
    sign="*",
    meaning=lambda a, b: a * b,
    c=c_small("{0} * {1}"),
    adjoint=lambda g, y, a, b: (TIMES(g, b), TIMES(g, a)),
    facts="bilinear exact cheap",
    tangent=lambda ts, y, a, b: product_tangent(ts, a, b),
    fused=_fused_mul,
)


def _adjoint_times_root(g, r, x):
    return (TIMES(g, MUL(r, 1.5)),)


# the rule of x * r for the root r of x; no program has this row
TIMES_ROOT = Row(
    "times_root", type=MUL.type, elementwise=True, adjoint=_adjoint_times_root, tangent=diagonal(_adjoint_times_root)
)


def _quotient(a, b):
    """a / b: IEEE for floats; integers are rounded towards zero, and give 0 for a divisor of 0."""
    if a.dtype.kind == "f":
        return a / b
    safe = np.where(b == 0, np.ones_like(b), b)
    down = a // safe
    return np.where(b == 0, np.zeros_like(a), down + ((a % safe != 0) & ((a < 0) != (safe < 0))).astype(a.dtype))


DIV = _of_numbers(
    "div",
    sign="/",
    exact=True,
    cost=8,
    meaning=_quotient,
    c=c_div("{0} / {1}", "{0}", "{0} / {1}"),
    adjoint=lambda g, y, a, b: (h := OVER(g, b), NEG(TIMES(h, y))),
)

# ---- products by which adjoints and tangents pass a row: exactly 0 stays 0, whatever the other factor is


def _either(rule: Callable[..., Type]) -> Callable[..., Type]:
    """Type rule: operands of one type, or a composite and a scalar."""

    def made(g: Type, f: Type) -> Type:
        mixed = isinstance(g, Composite) != isinstance(f, Composite) and numeric(g).scalar == numeric(f).scalar
        return rule(g if isinstance(g, Composite) else f) if mixed else rule(g, f)

    return made


def _zero_or(product: Callable[..., Any], zero: Callable[..., Any]) -> Callable[..., Any]:
    def meaning(g, f):
        made = product(g, f)
        return np.where(zero(g, f), np.zeros_like(made), made)

    return meaning


def contracted(h: Operand, by: Operand, of: Operand) -> Any:
    """The adjoint h * by of operand `of`, summed over components where `of` is a scalar beside a composite."""
    whole = isinstance(kind(h), Composite) and not isinstance(kind(of), Composite)
    return ROWS["dot_0"](h, by) if whole else TIMES(h, by)


def _adjoint_product(h, y, g, f):
    return contracted(h, f, g), contracted(h, g, f)


def product_tangent(ts, a, b):
    """The tangent of a * b for scalars, composites by component, or a composite and a scalar."""
    return plus(*[None if t is None else MOVES(t, other) for t, other in zip(ts, (b, a), strict=True)])


def _tangent_over(ts, y, g, f):
    return plus(None if ts[0] is None else OVER(ts[0], f), None if ts[1] is None else NEG(MOVES(OVER(ts[1], f), y)))


TIMES = row(
    "times",
    type=_either(MUL.type),
    facts="elementwise bilinear exact cheap",
    c="{0} == 0 ? 0 : {0} * {1}",
    shown=MUL,
    meaning=_zero_or(lambda g, f: g * f, lambda g, f: g == 0),
    adjoint=_adjoint_product,
    tangent=lambda ts, y, g, f: product_tangent(ts, g, f),
)
MOVES = row(
    "moves",
    type=TIMES.type,
    facts="elementwise bilinear exact cheap",
    c="{0} == 0 || {1} == 0 ? 0 : {0} * {1}",
    shown=MUL,
    meaning=_zero_or(lambda t, f: t * f, lambda t, f: (t == 0) | (f == 0)),
    adjoint=_adjoint_product,
    tangent=TIMES.tangent,
)
OVER = row(
    "over",
    type=_either(partial(floats, "/", composite=True)),
    facts="elementwise exact",
    shown=DIV,
    c="{0} == 0 ? 0 : {0} / {1}",
    meaning=_zero_or(lambda g, f: g / f, lambda g, f: g == 0),
    adjoint=lambda h, y, g, f: (OVER(h, f), NEG(OVER(contracted(h, y, f), f))),
    tangent=_tangent_over,
    cost=8,
)


def _floordiv(a, b):
    """a // b: of floats as in CPython (float_floor_div in Objects/floatobject.c), to the last bit."""
    if a.dtype.kind != "f":
        return np.floor_divide(a, b)
    r = np.fmod(a, b)
    q = (a - r) / b
    q = np.where((r != 0) & ((b < 0) != (r < 0)), q - 1, q)
    n = np.floor(q)
    return np.where(b == 0, a / b, np.where(q == 0, np.copysign(0 * n, a / b), np.where(q - n > 0.5, n + 1, n)))


def _pymod(a, b):
    if a.dtype.kind != "f":
        return np.remainder(a, b)
    r = np.fmod(a, b)
    return np.where(r == 0, np.copysign(r, b), np.where((b < 0) != (r < 0), r + b, r))


def _adjoint_mod(g, y, a, b):
    """a - n b with a whole number n, constant between the jumps."""
    return g, NEG(TIMES(g, RINT(DIV(SUB(a, y), b)))) if is_float(kind(a)) else None


FLOORDIV = row("floordiv", sign="//", type=partial(_scalars, "//"), meaning=_floordiv, vectorised=True, c=c_floordiv)
PYMOD = row(
    "pymod", sign="%", type=partial(_scalars, "%"), meaning=_pymod, vectorised=True, c=c_pymod, adjoint=_adjoint_mod
)
MOD = _of_numbers("mod", meaning=np.fmod, adjoint=_adjoint_mod, c=c_div("{0} % {1}", "0", "fmod{f}({0}, {1})"))


# ---- slopes without a bound


def _unbounded(met: Callable[..., Any], name: str, at: str, instead: str) -> Singular:
    """Of a row whose slope has no bound where its arguments are so; `at` in words."""
    return Singular(lambda g, y, *args: met(*args), f"the slope of `{name}` at {at} has no bound", instead)


def _at_zero(x):
    return EQ(x, 0.0)


def _on_the_circle(x):
    return EQ(ABS(x), 1.0)


_ANGLE = "wb.atan2(wb.length(wb.cross(a, b)), wb.dot(a, b)), the angle of two vectors; or its square, which is smooth"


def _adjoint_pow(g, y, x, p):
    """p x^(p - 1), for which p - 1 must not be rounded: else p y / x, while that is an ordinary number."""
    less, n = p - 1.0, p * y
    ordinary = LOGICAL_AND(GE(ABS(n), float(np.finfo(numeric(x).numpy).tiny)), LT(ABS(n), math.inf))
    rounded = LOGICAL_AND(NE(less + 1.0, p), ordinary)
    dx = WHERE(EQ(p, 0.0), zero(x), WHERE(rounded, n / x, p * POW(x, less)))
    flat = LOGICAL_AND(EQ(y, 0.0), GE(x, 0.0))
    return TIMES(g, dx), TIMES(g, WHERE(flat, zero(x), y * LOG(x)))


def _pow(x, p):
    """x ** p as in C: NumPy takes a square root for p = 0.5, which differs at minus infinity and minus zero.

    It divides for p = -1 where all have that exponent, and not where each has its own.
    """
    root = np.where(x == -np.inf, -x, np.sqrt(x) + 0)
    return np.where(p == 0.5, root, np.where(p == 2, x * x, np.where(p == -1, 1 / x, np.power(x, p))))


def _c_pow(types, x, p):
    """Exponents that are known: compilers would do some of them in another way where they vectorise."""
    f, low = ("", "-1.7976931348623157e+308") if types[0].bits == 64 else ("f", "-3.4028235e+38f")
    root = "{x} < " + low + " ? -{x} : sqrt{f}({x}) + 0"
    known = {"1.0": "{x}", "2.0": "{x} * {x}", "(-1.0": "1 / {x}", "0.5": root}
    text = known.get(p.removesuffix(")").removesuffix("f"), "wb_pow{f}({x}, {p})")
    return text.format(x=x, p=p, f=f)


POW = row(
    "pow",
    type=partial(floats, "pow"),
    meaning=_pow,
    vectorised=True,
    c=_c_pow,
    adjoint=_adjoint_pow,
    singular=_unbounded(
        lambda x, p: LOGICAL_AND(EQ(x, 0.0), LOGICAL_AND(GT(p, 0.0), LT(p, 1.0))), "pow", "0", "wb.pow(x + eps, p)"
    ),
    **_LIBRARY,
)


def _share(pick: Row, a: Operand, b: Operand, g: Operand) -> tuple[Any, Any]:
    """The adjoints of a first and a second operand, which is g for the second where `pick` holds of a and b."""
    return pick(a, b, zero(g), g), pick(a, b, g, zero(g))


MIN = _of_numbers(
    "min",
    facts="exact cheap",
    meaning=lambda a, b: np.where(b < a, b, a),
    c="{1} < {0} ? {1} : {0}",
    adjoint=lambda g, y, a, b: _share(PICK_LT, b, a, g),
)
MAX = _of_numbers(
    "max",
    facts="exact cheap",
    meaning=lambda a, b: np.where(a < b, b, a),
    c="{0} < {1} ? {1} : {0}",
    adjoint=lambda g, y, a, b: _share(PICK_LT, a, b, g),
)


def _adjoint_clamp(low: Row = PICK_LT, high: Row = PICK_LT) -> Callable[..., Any]:
    """The bound hi wins where the bounds are crossed; on a bound the gradient is x's, or of `PICK_LE` the bound's."""

    def adjoint(g, y, x, lo, hi):
        def chosen(over, under, inside):
            return PICK_LT(hi, lo, over, high(hi, x, over, low(x, lo, under, inside)))

        o = zero(g)
        return chosen(o, o, g), chosen(o, g, o), chosen(g, o, o)

    return adjoint


CLAMP = row(
    "clamp",
    type=partial(_scalars, "clamp"),
    adjoint=_adjoint_clamp(),
    exact=True,
    meaning=lambda x, lo, hi: np.where((hi < lo) | (hi < x), hi, np.where(x < lo, lo, x)),
    vectorised=True,
    c="({2} < {1} || {2} < {0}) ? {2} : {0} < {1} ? {1} : {0}",
)
ABS = _of_numbers(
    "abs",
    meaning=np.abs,
    c=c_abs,
    facts="exact cheap",
    adjoint=lambda g, y, x: (PICK_LT(x, zero(x), NEG(g), PICK_LT(zero(x), x, g, zero(g))),),
)
SIGN = _of_numbers("sign", meaning=lambda x: np.where(x < 0, -1, 1), exact=True, c="({T})({0} < 0 ? -1 : 1)")


def _indicator(name: str, sign: str, meaning: Callable[..., Any]) -> Row:
    doc = f"{name}(x: T) -> T: 1 where x {sign} 0, else 0."
    facts: dict[str, Any] = {"vectorised": True, "exact": True, "doc": doc}
    return row(name, type=partial(_scalars, name), meaning=meaning, c=f"({{T}})({{0}} {sign} 0)", **facts)


STEP = _indicator("step", "<", lambda x: x < 0)
NONZERO = _indicator("nonzero", "!=", lambda x: x != 0)

DETACH = row(
    "detach",
    type=partial(floats, "detach", composite=True),
    meaning=lambda x: x,
    c="{0}",
    facts="cut elementwise exact moves cheap",
    cost=0,
)

# ---- casts


def _cast_type(source: Type, attr: Scalar) -> Type:
    if not isinstance(source, (Scalar, Composite)):
        raise refuse(f"{source} cannot be converted to {attr}", slug="cast")
    return source.over(attr)


def _saturated(x, attr: Scalar):
    """Float to integer: towards zero, held at the ends of the range, NaN to 0."""
    top = 2 ** (attr.bits - (attr.kind == "i"))
    low = -top if attr.kind == "i" else 0
    x = np.asarray(x)
    inside = np.where((x > low) & (x < top), x, 0).astype(attr.numpy)
    return np.where(x >= top, attr.numpy.type(top - 1), np.where(x <= low, attr.numpy.type(low), inside))


def _cast(x, attr: Scalar):
    x = np.asarray(x)
    return _saturated(x, attr) if x.dtype.kind == "f" and attr.kind in "iu" else x.astype(attr.numpy)


CAST = row(
    "cast",
    type=_cast_type,
    facts="typed_by_attr elementwise linear cheap",
    meaning=_cast,
    c=c_cast,
    adjoint=lambda g, y, x, attr: (
        CAST(g, attr=numeric(x).scalar) if is_float(kind(x)) and attr.kind == "f" else None,
    ),
    tangent=lambda ts, y, x, attr: CAST(ts[0], attr=attr) if attr.kind == "f" else None,
)

# ---- bits


def _places(a, n):
    """The shift count modulo the bits of `a`, as processors take it."""
    return np.asarray(n).astype(a.dtype) & a.dtype.type(a.dtype.itemsize * 8 - 1)


def _bits(name: str, sign: str, meaning: Callable[..., Any]) -> Row:
    return row(
        name, sign=sign, type=partial(_whole, sign), elementwise=True, meaning=meaning, c=f"({{T}})({{0}} {sign} {{1}})"
    )


BIT_AND = _bits("bit_and", "&", lambda a, b: a & b)
BIT_OR = _bits("bit_or", "|", lambda a, b: a | b)
BIT_XOR = _bits("bit_xor", "^", lambda a, b: a ^ b)
INVERT = row(
    "invert", sign="~", type=partial(_whole, "~", bools=False), elementwise=True, meaning=np.invert, c="({T})~{0}"
)


def _shift(name: str, sign: str, c: Callable[..., str], meaning: Callable[..., Any]) -> Row:
    return row(name, sign=sign, type=partial(_shifted, sign), elementwise=True, c=c, meaning=meaning)


LSHIFT = _shift("lshift", "<<", c_lshift, lambda a, n: a << _places(a, n))
RSHIFT = _shift("rshift", ">>", c_rshift, lambda a, n: a >> _places(a, n))

# ---- elementary functions of floats


def _function(
    name: str,
    meaning: Callable[..., Any],
    adjoint: Callable[..., Any] | None = None,
    c: str | Callable[..., str] = "",
    **facts: Any,
) -> Row:
    """A function of one float; without `c`, one of C's math library by that name."""
    facts = {"vectorised": True, **(facts if c else {**_LIBRARY, **facts})}
    return row(
        name,
        type=partial(floats, name),
        meaning=meaning,
        adjoint=adjoint,
        c=c or name + "{f}({0})",
        doc=DOCS.get(name, f"{name}(x: F) -> F."),
        **facts,
    )


def _round(x):
    t = np.trunc(x)
    return np.where(abs(x - t) >= 0.5, t + np.copysign(x * 0 + 1, x), t)


def _of_python(f: Callable[[float], float]) -> Callable[[Any], Any]:
    return lambda x: type(x)(f(float(x)))


def _slope_on_the_circle(g, x):
    """g / sqrt(1 - x²); 0 outside [-1, 1], where the value is that of the nearest end."""
    return WHERE(GT(ABS(x), 1.0), zero(x), OVER(g, SQRT((1.0 - x) * (1.0 + x))))


def _adjoint_atan(g, y, x):
    """g / (1 + x²), by 1 / x where x is large: its square may overflow."""
    far = GT(ABS(x), 1.0)
    r = WHERE(far, 1.0 / x, x)
    q = OVER(g, 1.0 + r * r)
    return (WHERE(far, TIMES(TIMES(q, r), r), q),)


def _adjoint_tanh(g, y, x):
    """By cosh: 1 - y² is all rounding where y is near 1."""
    c = COSH(x)
    return (OVER(OVER(g, c), c),)


def _bell(x):
    """exp(-x²), x split in a part whose square is exact and a small one: else the rounding of x² counts x² times."""
    x = CLAMP(x, -40.0, 40.0)
    near = RINT(x * 16.0) * 0.0625
    return EXP(-(near * near)) * EXP((near - x) * (near + x))


_CLAMPED = "{name}{{f}}({{0}} > 1 ? 1 : {{0}} < -1 ? -1 : {{0}})"

SIN = _function("sin", sines.sine, lambda g, y, x: (TIMES(g, COS(x)),), sines.c_call("sin"), **_SINE)
COS = _function("cos", sines.cosine, lambda g, y, x: (NEG(TIMES(g, SIN(x))),), sines.c_call("cos"), **_SINE)
TAN = _function("tan", np.tan, lambda g, y, x: (TIMES(g, 1.0 + y * y),))
ASIN = _function(
    "asin",
    lambda x: np.arcsin(np.clip(x, -1, 1)),
    lambda g, y, x: (_slope_on_the_circle(g, x),),
    _CLAMPED.format(name="asin"),
    singular=_unbounded(_on_the_circle, "asin", "1 or -1", "wb.atan2(y, x), the angle of a point, of both coordinates"),
    **_LIBRARY,
)
ACOS = _function(
    "acos",
    lambda x: np.arccos(np.clip(x, -1, 1)),
    lambda g, y, x: (NEG(_slope_on_the_circle(g, x)),),
    _CLAMPED.format(name="acos"),
    singular=_unbounded(_on_the_circle, "acos", "1 or -1", _ANGLE),
    **_LIBRARY,
)
ATAN = _function("atan", np.arctan, _adjoint_atan)
SINH = _function("sinh", np.sinh, lambda g, y, x: (TIMES(g, COSH(x)),))
COSH = _function("cosh", np.cosh, lambda g, y, x: (TIMES(g, SINH(x)),))
TANH = _function("tanh", np.tanh, _adjoint_tanh)
EXP = _function("exp", np.exp, lambda g, y, x: (TIMES(g, y),))
LOG = _function("log", np.log, lambda g, y, x: (OVER(g, x),))
LOG2 = _function("log2", np.log2, lambda g, y, x: (OVER(g * (1 / math.log(2.0)), x),))
LOG10 = _function("log10", np.log10, lambda g, y, x: (OVER(g * (1 / math.log(10.0)), x),))
LOG1P = _function("log1p", np.log1p, lambda g, y, x: (OVER(g, 1.0 + x),))
EXPM1 = _function("expm1", np.expm1, lambda g, y, x: (TIMES(g, EXP(x)),))


def _fused_sqrt(stmt: ir.Stmt) -> ir.Stmt | None:
    """Fused derivative rule: sqrt(a * a) as |a|, sqrt(dot(v, v)) as length(v), which have one at zero."""
    square = stmt.args[0].stmt
    if square is None or not square.args:
        return None
    twice = square.args[0] is square.args[-1]
    if square.row is MUL and twice:
        return ir.Stmt(ABS, square.args[:1], stmt.outs)
    if square.row is ROWS["length_sq"] or (square.row is ROWS["dot"] and twice):
        return ir.Stmt(ROWS["length"], square.args[:1], stmt.outs)
    return None


SQRT = _function(
    "sqrt",
    np.sqrt,
    lambda g, y, x: (OVER(g * 0.5, y),),
    fused=_fused_sqrt,
    singular=_unbounded(_at_zero, "sqrt", "0", "wb.sqrt(x + eps); of squares wb.norm_pseudo_huber(v, eps)"),
    **_INSTRUCTION,
)
RSQRT = _function("rsqrt", lambda x: 1 / np.sqrt(x), lambda g, y, x: (OVER(TIMES(g * -0.5, y), x),), "1 / sqrt{f}({0})")
CBRT = _function(
    "cbrt",
    np.cbrt,
    lambda g, y, x: (OVER(g, 3.0 * (y * y)),),
    singular=_unbounded(_at_zero, "cbrt", "0", "a branch that keeps 0 out"),
)
ERF = _function(
    "erf", _of_python(math.erf), lambda g, y, x: (TIMES(g * (2.0 / math.sqrt(math.pi)), _bell(x)),), vectorised=False
)
ERFC = _function(
    "erfc", _of_python(math.erfc), lambda g, y, x: (TIMES(g * (-2.0 / math.sqrt(math.pi)), _bell(x)),), vectorised=False
)


def _times_constant(name: str, factor: float) -> Row:
    meaning, c = lambda x: x * x.dtype.type(factor), f"{{0}} * ({{T}}){factor!r}"
    return _function(name, meaning, lambda g, y, x: (g * factor,), c)


DEGREES = _times_constant("degrees", 180 / math.pi)
RADIANS = _times_constant("radians", math.pi / 180)
FLOOR = _function("floor", np.floor, **_INSTRUCTION)
CEIL = _function("ceil", np.ceil, **_INSTRUCTION)
TRUNC = _function("trunc", np.trunc, **_INSTRUCTION)
ROUND = _function("round", _round)
RINT = row(
    "rint", type=partial(floats, "rint", composite=True), elementwise=True, meaning=np.rint, c="rint{f}({0})", cost=8
)
FRAC = _function("frac", lambda x: x - np.trunc(x), lambda g, y, x: (g,), "{0} - trunc{f}({0})")


def _test(name: str, meaning: Callable[..., Any], c: str, every: bool) -> Row:
    """A predicate row of a number; of a composite it holds for `every` component, or for any."""
    joined = LOGICAL_AND if every else LOGICAL_OR

    def rule(x: Type) -> Type:
        floats(name, x, composite=True)
        return bool_

    whole = row(f"{name}_of", type=rule, expand=lambda parts, types, out: reduce(joined, [one(x) for x in parts]))
    one = row(name, type=rule, meaning=meaning, c=c, whole=whole)
    return one


ISNAN = _test("isnan", np.isnan, "{0} != {0}", False)
ISINF = _test("isinf", np.isinf, "(!({0} - {0} == 0) && {0} == {0})", False)
ISFINITE = _test("isfinite", np.isfinite, "({0} - {0} == 0)", True)


def _adjoint_atan2(g, out, y, x):
    """x and -y over x² + y², whose squares may overflow or vanish: the larger of the two is taken out of them."""
    ax, ay = ABS(x), ABS(y)
    far = MAX(ax, ay)
    r = MIN(ay, ax) / far  # of equal ones each takes its first operand: the one and the other
    down = 1.0 + r * r
    flat = EQ(far, math.inf)
    dy, dx = (WHERE(flat, zero(x), a / far / down) for a in (x, y))
    return OVER(TIMES(g, dy), far), NEG(OVER(TIMES(g, dx), far))


ATAN2 = row(
    "atan2",
    type=partial(floats, "atan2"),
    meaning=np.arctan2,
    c="atan2{f}({0}, {1})",
    adjoint=_adjoint_atan2,
    singular=_unbounded(
        lambda y, x: LOGICAL_AND(EQ(y, 0.0), EQ(x, 0.0)), "atan2", "(0, 0)", "a branch that keeps the origin out"
    ),
    **_LIBRARY,
)


def _unit(x):
    return COPYSIGN(zero(x) + 1.0, x)


COPYSIGN = row(
    "copysign",
    type=partial(floats, "copysign"),
    meaning=np.copysign,
    c="copysign{f}({0}, {1})",
    exact=True,
    adjoint=lambda g, y, a, b: (TIMES(g, _unit(a) * _unit(b)), None),
    cost=8,
)


# ---- rules for the side of a tie that a kernel keeps to (`passes.sides`)


def _beside(of: Row, adjoint: Callable[..., Any], singular: Singular | None = None) -> Row:
    """A row with another rule where its operands are equal; no program has it."""
    tangent = diagonal(adjoint)
    return Row(of.name, type=of.type, elementwise=of.elementwise, adjoint=adjoint, tangent=tangent, singular=singular)


OTHER_SIDE = {  # a tie of min and max goes to the second operand; of clamp to the bounds for which that is True
    (MIN, True): _beside(MIN, lambda g, y, a, b: _share(PICK_LE, b, a, g)),
    (MAX, True): _beside(MAX, lambda g, y, a, b: _share(PICK_LE, a, b, g)),
    (CLAMP, True, False): _beside(CLAMP, _adjoint_clamp(low=PICK_LE)),
    (CLAMP, False, True): _beside(CLAMP, _adjoint_clamp(high=PICK_LE)),
    (CLAMP, True, True): _beside(CLAMP, _adjoint_clamp(PICK_LE, PICK_LE)),
}
ABOVE = _beside(ABS, lambda g, y, x: (PICK_LT(x, zero(x), NEG(g), g),))
BELOW = _beside(ABS, lambda g, y, x: (PICK_LT(zero(x), x, g, NEG(g)),))
SIGNED = _beside(ABS, lambda g, y, x: (TIMES(g, _unit(x)),))
JUMPING, BENT = (
    _beside(ABS, ABS.adjoint, Singular(lambda g, y, x: EQ(x, zero(x)), f"the {text}", instead))
    for text, instead in (
        ("slope of `abs` at 0 jumps, as does a sign", "the number for abs(x) * sign(x)"),
        ("second slope of `abs` at 0 is a convention: 0", "x for abs(x) in an even function, as x * x"),
    )
)


# ---- powers of two, by which rows scale without a rounding


def _even(x: np.floating | np.ndarray, attr: int) -> Any:
    info = np.finfo(x.dtype)
    e = np.where(x == 0, info.minexp - 1, np.maximum(np.frexp(x)[1] - 1, info.minexp - 1))
    e = np.where(np.isfinite(x), e, info.maxexp)
    return np.ldexp(x.dtype.type(1), np.clip(attr - e, info.minexp, -info.minexp).astype(np.int32))


EVEN = row(
    "even",
    type=lambda x, attr: floats("even", x),
    facts="typed_by_attr exact cheap",
    meaning=_even,
    vectorised=True,
    c=lambda types, x, attr: f"wb_even{'' if types[0].bits == 64 else 'f'}({x}, {attr})",
)


def smoothstep(lo, hi, x):
    """smoothstep(lo: F, hi: F, x: F) -> F: 0 below lo, 1 above hi, a cubic with flat ends between."""
    t = CLAMP((x - lo) / (hi - lo), 0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)
