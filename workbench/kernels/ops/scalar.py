"""Arithmetic, comparisons, casts, bits and elementary functions of scalars.

Meaning, C and derivative of each function stand side by side. All backends agree on the corners: integer arithmetic
wraps, division by zero and INT_MIN / -1 never trap (0 and INT_MIN), shifts use the low bits of their count, float to
integer saturates and NaN becomes 0. Integers divide with `//`; `%` follows Python, `mod` follows C.
Kinks: abs has slope 0 at 0, min and max give a tie to the first operand, clamp passes to x on its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import ir
from ..types import (
    SCALARS,
    Composite,
    Matrix,
    Scalar,
    Type,
    Vector,
    bool_,
    float32,
    float64,
    is_float,
    is_int,
    matrix,
    quaternion,
    vector,
)  # fmt: skip
from .row import ROWS, Row, diagonal, kind, refuse, row, zero

# ---- type rules


def _shown(types: tuple[Type, ...]) -> str:
    return " and ".join(str(t) for t in types)


def same_type(name: str, types: tuple[Type, ...]) -> Type:
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
        raise refuse(f"`{name}` takes operands of one type, got {_shown(types)}: nothing is converted silently",
                     slug="mixed-types", instead=hint)  # fmt: skip
    return first


def _not_bool(name: str, type: Type) -> Type:
    if isinstance(type, (Scalar, Composite)) and type.scalar is bool_:
        raise refuse(f"`{name}` takes numbers, not {type}", slug="operand-type", instead="int(...)")
    return type


def _rule_numbers(name: str) -> Callable[..., Type]:
    """Scalars or composites of one type, which is the result."""
    return lambda *types: _not_bool(name, same_type(name, types))


def _rule_scalars(name: str) -> Callable[..., Type]:
    def rule(*types: Type) -> Type:
        first = same_type(name, types)
        if not isinstance(first, Scalar):
            raise refuse(f"`{name}` takes scalars, not {first}", slug="operand-type", instead="one call per component")
        return _not_bool(name, first)

    return rule


def _rule_floats(name: str, composite: bool = False) -> Callable[..., Type]:
    def rule(*types: Type) -> Type:
        first = same_type(name, types)
        if not is_float(first) or not (composite or isinstance(first, Scalar)):
            instead = f"{name}(float(...))" if is_int(first) else ""
            raise refuse(f"`{name}` takes floats, not {first}", slug="operand-type", instead=instead)
        return first

    return rule


def _rule_compare(name: str, ordered: bool) -> Callable[..., Type]:
    def rule(*types: Type) -> Type:
        first = same_type(name, types)
        if ordered and not isinstance(first, Scalar):
            raise refuse(
                f"`{name}` orders scalars, not {first}", slug="operand-type", instead="a comparison per component"
            )
        return bool_

    return rule


def _rule_bools(name: str) -> Callable[..., Type]:
    def rule(*types: Type) -> Type:
        for t in types:
            if t is not bool_:
                raise refuse(f"`{name}` takes bools, not {t}", slug="operand-type", instead="a comparison, as x != 0")
        return bool_

    return rule


def _rule_bits(name: str, bools: bool = True) -> Callable[..., Type]:
    def rule(*types: Type) -> Type:
        first = same_type(name, types)
        if not (is_int(first) or (bools and first is bool_)):
            raise refuse(f"`{name}` takes integers, not {first}", slug="operand-type", instead="int(...)")
        return first

    return rule


def _rule_shift(name: str) -> Callable[..., Type]:
    def rule(a: Type, count: Type) -> Type:
        if not (is_int(a) and is_int(count)):
            raise refuse(f"`{name}` takes integers, not {a} and {count}", slug="operand-type", instead="int(...)")
        return a

    return rule


# ---- C text

PRELUDES: dict[str, str] = {}


def helper(name: str, text: str) -> None:
    """Enter a C function; `WB_FN` is defined by the emitter: static inline, or __device__ too."""
    PRELUDES[name] = f"WB_FN {text}\n"


def prelude(text: str) -> str:
    """The helper functions that `text` calls, in the order in which they may stand."""
    return "".join(code for name, code in PRELUDES.items() if f"{name}(" in text)


def _conversions() -> None:
    for source, suffix in ((float32, "f"), (float64, "")):
        for t in SCALARS:
            if t.kind not in "iu":
                continue
            top = 2 ** (t.bits - (t.kind == "i"))
            low = (
                f"x < -{float(top)!r}{suffix} ? ({t.c})({-top + 1}LL - 1)" if t.kind == "i" else f"x <= 0.0{suffix} ? 0"
            )
            high = f"x >= {float(top)!r}{suffix} ? ({t.c}){top - 1}{'ULL' if t.kind == 'u' else 'LL'}"
            name = f"wb_{t.name}_from_{source.name}"
            helper(name, f"{t.c} {name}({source.c} x) {{ return x != x ? 0 : {low} : {high} : ({t.c})x; }}")


def _float_division() -> None:
    for c, f in (("float", "f"), ("double", "")):
        helper(
            f"wb_pymod{f}",
            f"{c} wb_pymod{f}({c} a, {c} b) {{ {c} r = fmod{f}(a, b); "
            f"return r == 0 ? copysign{f}(r, b) : (b < 0) != (r < 0) ? r + b : r; }}",
        )
        helper(
            f"wb_floordiv{f}",
            f"{c} wb_floordiv{f}({c} a, {c} b) {{ if (b == 0) return a / b; {c} r = fmod{f}(a, b), q = (a - r) / b; "
            f"if (r != 0 && (b < 0) != (r < 0)) q -= 1; {c} n = floor{f}(q); if (q - n > ({c})0.5) n += 1; "
            f"return q == 0 ? copysign{f}(({c})0, a / b) : n; }}",
        )


_conversions()
_float_division()


def _c_small(template: str) -> Callable[..., str]:
    """C computes small integers as int: bring the result back."""

    def c(types, *texts):
        text = template.format(*texts)
        return f"({types[0].c})({text})" if types[0].kind in "iu" and types[0].bits < 32 else text

    return c


def _c_div(quotient: str, at_minus_one: str, float_c: str) -> Callable[..., str]:
    """Integer division without traps: 0 for a zero divisor; -1 apart, as INT_MIN / -1 does not fit."""

    def c(types, a, b):
        t = types[0]
        if t.kind == "f":
            return float_c.format(a, b, f="" if t.bits == 64 else "f")
        body = quotient.format(a, b)
        if t.kind == "i":
            negated = f"({t.c})(0u - (u{t.c}){a})" if t.bits <= 32 else f"({t.c})(0ull - (u{t.c}){a})"
            body = f"{b} == -1 ? {at_minus_one.format(negated)} : {body}"
        return f"({t.c})({b} == 0 ? 0 : {body})"

    return c


def _c_floordiv(types, a, b):
    floor = "{0} / {1}" if types[0].kind == "u" else "{0} / {1} - ({0} % {1} != 0 && ({0} < 0) != ({1} < 0))"
    return _c_div(floor, "{0}", "wb_floordiv{f}({0}, {1})")(types, a, b)


def _c_pymod(types, a, b):
    mod = "{0} % {1}" if types[0].kind == "u" else "{0} % {1} + ({0} % {1} != 0 && ({0} < 0) != ({1} < 0) ? {1} : 0)"
    return _c_div(mod, "0", "wb_pymod{f}({0}, {1})")(types, a, b)


def _c_cast(types, x, attr):
    source, target = types[0], attr
    if source is target:
        return x
    if target.kind == "b":
        return f"({x} != 0)"
    if source.kind == "f" and target.kind in "iu":
        return f"wb_{target.name}_from_{'float64' if source.bits == 64 else 'float32'}({x})"
    return f"({target.c}){x}"


def _c_lshift(types, a, n):
    t = types[0]
    wide = "uint64_t" if t.bits == 64 else "uint32_t"
    return f"({t.c})(({wide}){a} << ({n} & {t.bits - 1}))"


def _c_rshift(types, a, n):
    return f"({types[0].c})({a} >> ({n} & {types[0].bits - 1}))"


def _c_abs(types, x):
    t = types[0]
    if t.kind == "f":
        return f"fabs{'' if t.bits == 64 else 'f'}({x})"
    return x if t.kind == "u" else f"({t.c})({x} < 0 ? -{x} : {x})"


# One instruction, rounded alike everywhere.
_SIMPLE: dict[str, Any] = {"exact": True, "cheap": True, "eager": True}
# A call of C's math library; and the functions of it that are one instruction.
_LIBRARY: dict[str, Any] = {"library": True, "cost": 8}
_INSTRUCTION: dict[str, Any] = {"exact": True, "library": False}

# ---- choices between values, by which kinks are written

LT = row("lt", sign="<", type=_rule_compare("<", True), meaning=lambda a, b: a < b, c="{0} < {1}", **_SIMPLE)
LE = row("le", sign="<=", type=_rule_compare("<=", True), meaning=lambda a, b: a <= b, c="{0} <= {1}", **_SIMPLE)
GT = row("gt", sign=">", type=_rule_compare(">", True), meaning=lambda a, b: a > b, c="{0} > {1}", **_SIMPLE)
GE = row("ge", sign=">=", type=_rule_compare(">=", True), meaning=lambda a, b: a >= b, c="{0} >= {1}", **_SIMPLE)
LOGICAL_AND = row("logical_and", sign="and", type=_rule_bools("and"), meaning=lambda a, b: bool(a) and bool(b),
                  c="{0} && {1}", **_SIMPLE)  # fmt: skip
LOGICAL_OR = row("logical_or", sign="or", type=_rule_bools("or"), meaning=lambda a, b: bool(a) or bool(b),
                 c="{0} || {1}", **_SIMPLE)  # fmt: skip
LOGICAL_NOT = row("logical_not", sign="not ", type=_rule_bools("not"), meaning=lambda a: not a, c="!{0}", **_SIMPLE)


def _all_equal(a, b, types, out):
    total = None
    for x, y in zip(a, b, strict=True):
        total = EQ(x, y) if total is None else LOGICAL_AND(total, EQ(x, y))
    return total


ALL_EQ = row("all_eq", type=_rule_compare("==", False), expand=_all_equal, doc="Are all components equal.")
ALL_NE = row("any_ne", type=_rule_compare("!=", False), doc="Does any component differ.",
             expand=lambda a, b, types, out: LOGICAL_NOT(_all_equal(a, b, types, out)))  # fmt: skip
EQ = row("eq", sign="==", type=_rule_compare("==", False), meaning=lambda a, b: a == b, c="{0} == {1}",
         whole=ALL_EQ, **_SIMPLE)  # fmt: skip
NE = row("ne", sign="!=", type=_rule_compare("!=", False), meaning=lambda a, b: a != b, c="{0} != {1}",
         whole=ALL_NE, **_SIMPLE)  # fmt: skip

# What a comparison is where it does not hold, and what it is with its operands exchanged.
NEGATED = {LT: GE, LE: GT, GT: LE, GE: LT, EQ: NE, NE: EQ}
SWAPPED = {LT: GT, LE: GE, GT: LT, GE: LE, EQ: EQ, NE: NE}


def _where_type(cond: Type, a: Type, b: Type) -> Type:
    if cond is not bool_:
        raise refuse(
            f"the condition of `where` is a bool, not {cond}", slug="operand-type", instead="where(x != 0, a, b)"
        )
    return same_type("where", (a, b))


WHERE = row(
    "where", type=_where_type, elementwise=True, linear=True, exact=True, cheap=True,
    meaning=lambda cond, a, b: a if cond else b, c="{0} ? {1} : {2}",
    adjoint=lambda g, y, cond, a, b: (None, WHERE(cond, g, zero(g)), WHERE(cond, zero(g), g)),
    doc="where(cond: bool, a: T, b: T) -> T: a where cond holds, else b. Both sides are computed.",
)  # fmt: skip
PICK_LT = row(
    "pick_lt", elementwise=True, cheap=True,
    type=lambda a, b, x, y: (same_type("pick_lt", (a, b)), same_type("pick_lt", (x, y)))[1],
    meaning=lambda a, b, x, y: np.where(a < b, x, y), c="{0} < {1} ? {2} : {3}",
    adjoint=lambda g, out, a, b, x, y: (None, None, PICK_LT(a, b, g, zero(g)), PICK_LT(a, b, zero(g), g)),
    doc="x where a < b, else y, component by component.",
)  # fmt: skip
GATE = row(
    "gate", type=_rule_numbers("gate"), elementwise=True, exact=True,
    meaning=lambda g, d: np.where(g == 0, np.zeros_like(d), d), c="{0} == 0 ? 0 : {1}",
    adjoint=lambda h, y, g, d: (None, h), tangent=lambda ts, y, g, d: None if ts[1] is None else GATE(g, ts[1]),
    doc="d, a product of g, but 0 where g is 0: an infinite partial derivative counts for nothing where nothing comes"
        " in. By d its derivative is 1 also there: the product changes with g wherever the other factor is finite.",
)  # fmt: skip

# ---- arithmetic

ADD = row("add", type=_rule_numbers("+"), elementwise=True, meaning=lambda a, b: a + b, c=_c_small("{0} + {1}"),
          adjoint=lambda g, y, a, b: (g, g), linear=True, sign="+", **_SIMPLE,
          doc="add(a: T, b: T) -> T; whole numbers wrap.")  # fmt: skip
SUB = row("sub", type=_rule_numbers("-"), elementwise=True, meaning=lambda a, b: a - b, c=_c_small("{0} - {1}"),
          adjoint=lambda g, y, a, b: (g, NEG(g)), linear=True, sign="-", **_SIMPLE,
          doc="sub(a: T, b: T) -> T; whole numbers wrap.")  # fmt: skip
NEG = row("neg", type=_rule_numbers("-"), elementwise=True, meaning=np.negative, c=_c_small("-{0}"),
          adjoint=lambda g, y, a: (NEG(g),), linear=True, sign="-", **_SIMPLE, doc="neg(a: T) -> T: -a.")  # fmt: skip
POS = row("pos", type=_rule_numbers("+"), elementwise=True, meaning=lambda a: a, c="{0}",
          adjoint=lambda g, y, a: (g,), linear=True, exact=True, doc="pos(a: T) -> T: a.")  # fmt: skip


def _fused_mul(stmt: ir.Stmt) -> ir.Stmt | None:
    """Of x * sqrt(x): 3/2 sqrt(x). A root with a name has its own adjoint, which people look at."""
    for x, r in (stmt.args, stmt.args[::-1]):
        if r.stmt is not None and r.stmt.row is SQRT and r.stmt.args[0] is x and not r.name:
            return ir.Stmt(TIMES_ROOT, (x,), (r,))
    return None


MUL = row("mul", type=_rule_numbers("*"), elementwise=True, meaning=lambda a, b: a * b, c=_c_small("{0} * {1}"),
          adjoint=lambda g, y, a, b: (MUL(g, b), MUL(g, a)), bilinear=True, sign="*", **_SIMPLE,
          fused=_fused_mul, doc="Product of two scalars; of two composites component by component.")  # fmt: skip


def _adjoint_times_root(g, r, x):
    return (MUL(g, MUL(r, 1.5)),)


# the rule of x * r for the root r of x; no program has this row
TIMES_ROOT = Row("times_root", type=MUL.type, elementwise=True, unbounded=True, adjoint=_adjoint_times_root,
                 tangent=diagonal(_adjoint_times_root))  # fmt: skip


def _div_type(*types: Type) -> Type:
    if is_int(types[0]):
        raise refuse("`/` divides floats, and these are integers", slug="int-division",
                     instead="a // b (rounds down), or float(a) / float(b)")  # fmt: skip
    return _rule_floats("/", composite=True)(*types)


DIV = row("div", type=_div_type, elementwise=True, unbounded=True, exact=True, cost=8, sign="/",
          meaning=lambda a, b: a / b, c="{0} / {1}",
          adjoint=lambda g, y, a, b: (DIV(g, b), NEG(DIV(MUL(g, y), b))),
          doc="Quotient of two floats; of two composites component by component. Integers divide with //.")  # fmt: skip


def _floordiv(a, b):
    """Of floats as CPython has it (float_floor_div in Objects/floatobject.c), to the last bit."""
    if a.dtype.kind != "f":
        return np.floor_divide(a, b)
    if b == 0:
        return a / b
    r = np.fmod(a, b)
    q = (a - r) / b
    if r != 0 and (b < 0) != (r < 0):
        q -= 1
    n = np.floor(q)
    return np.copysign(0 * n, a / b) if q == 0 else n + 1 if q - n > 0.5 else n


def _pymod(a, b):
    if a.dtype.kind != "f":
        return np.remainder(a, b)
    r = np.fmod(a, b)
    return np.copysign(r, b) if r == 0 else r + b if (b < 0) != (r < 0) else r


def _adjoint_mod(g, y, a, b):
    """a - n b with a whole number n, constant between the jumps."""
    return g, NEG(MUL(g, RINT(DIV(SUB(a, y), b)))) if is_float(kind(a)) else None


FLOORDIV = row("floordiv", sign="//", type=_rule_scalars("//"), meaning=_floordiv, c=_c_floordiv,
               doc="floordiv(a, b): rounds down, as in Python; 0 for an integer divided by 0.")  # fmt: skip
PYMOD = row("pymod", sign="%", type=_rule_scalars("%"), meaning=_pymod, c=_c_pymod, adjoint=_adjoint_mod,
            doc="a % b: has the sign of b, as in Python; 0 for an integer modulo 0.")  # fmt: skip
MOD = row("mod", type=_rule_numbers("mod"), elementwise=True, meaning=np.fmod, adjoint=_adjoint_mod,
          c=_c_div("{0} % {1}", "0", "fmod{f}({0}, {1})"),
          doc="mod(a: T, b: T) -> T, component by component: has the sign of a, as in C.")  # fmt: skip


def _adjoint_pow(g, y, x, p):
    dx = WHERE(EQ(p, 0.0), zero(g), p * POW(x, p - 1.0))
    flat = LOGICAL_AND(EQ(x, 0.0), GT(p, 0.0))
    return g * dx, g * WHERE(flat, zero(g), y * LOG(x))


def _pow(x, p):
    """NumPy takes p = 0.5 for a square root, which C's pow is not at minus infinity."""
    return -x if p == 0.5 and x == -np.inf else np.power(x, p)


POW = row("pow", type=_rule_floats("pow"), meaning=_pow, c="pow{f}({0}, {1})", adjoint=_adjoint_pow,
          unbounded=True, **_LIBRARY,
          doc="pow(x: F, p: F) -> F, F float. By p it has a derivative where x > 0 (0 at x = 0 < p).")  # fmt: skip

MIN = row(
    "min", type=_rule_numbers("min"), elementwise=True, exact=True, cheap=True,
    meaning=lambda a, b: np.where(b < a, b, a), c="{1} < {0} ? {1} : {0}",
    adjoint=lambda g, y, a, b: (PICK_LT(b, a, zero(g), g), PICK_LT(b, a, g, zero(g))),
    doc="min(a: T, b: T) -> T, component by component. At a tie the gradient goes to a.",
)  # fmt: skip
MAX = row(
    "max", type=_rule_numbers("max"), elementwise=True, exact=True, cheap=True,
    meaning=lambda a, b: np.where(a < b, b, a), c="{0} < {1} ? {1} : {0}",
    adjoint=lambda g, y, a, b: (PICK_LT(a, b, zero(g), g), PICK_LT(a, b, g, zero(g))),
    doc="max(a: T, b: T) -> T, component by component. At a tie the gradient goes to a.",
)  # fmt: skip


def _adjoint_clamp(g, y, x, lo, hi):
    """The bound hi wins where the bounds are crossed; on a bound the gradient is x's."""
    o = zero(g)
    over = LOGICAL_OR(LT(hi, lo), LT(hi, x))
    under = LT(x, lo)
    return WHERE(over, o, WHERE(under, o, g)), WHERE(over, o, WHERE(under, g, o)), WHERE(over, g, o)


CLAMP = row(
    "clamp", type=_rule_scalars("clamp"), adjoint=_adjoint_clamp, exact=True,
    meaning=lambda x, lo, hi: hi if hi < lo or hi < x else lo if x < lo else x,
    c="({2} < {1} || {2} < {0}) ? {2} : {0} < {1} ? {1} : {0}",
    doc="clamp(x: T, lo: T, hi: T) -> T: min(max(lo, x), hi). On a bound the gradient goes to x.",
)  # fmt: skip
ABS = row(
    "abs", type=_rule_numbers("abs"), elementwise=True, meaning=np.abs, c=_c_abs, exact=True, cheap=True,
    adjoint=lambda g, y, x: (PICK_LT(x, zero(x), NEG(g), PICK_LT(zero(x), x, g, zero(g))),),
    doc="abs(x: T) -> T, component by component. Slope 0 at 0.",
)  # fmt: skip
SIGN = row("sign", type=_rule_numbers("sign"), elementwise=True, meaning=lambda x: np.where(x < 0, -1, 1),
           exact=True, c="({T})({0} < 0 ? -1 : 1)",
           doc="sign(x: T) -> T: -1 where x < 0, else 1, at 0 too.")  # fmt: skip
STEP = row("step", type=_rule_scalars("step"), meaning=lambda x: x < 0, c="({T})({0} < 0)", exact=True,
           doc="step(x: T) -> T: 1 where x < 0, else 0.")  # fmt: skip
NONZERO = row("nonzero", type=_rule_scalars("nonzero"), meaning=lambda x: x != 0, c="({T})({0} != 0)",
              exact=True, doc="nonzero(x: T) -> T: 1 where x != 0, else 0.")  # fmt: skip

DETACH = row("detach", type=_rule_floats("detach", composite=True), meaning=lambda x: x, c="{0}", cut=True,
             elementwise=True, exact=True, moves=True, cheap=True, cost=0,
             doc="The value; no gradient passes, and that is meant.")  # fmt: skip

# ---- casts


def with_scalar(type: Composite, scalar: Scalar) -> Composite:
    """The same shape over another scalar."""
    if isinstance(type, Vector):
        return vector(type.length, scalar)
    if isinstance(type, Matrix):
        return matrix((type.rows, type.cols), scalar)
    return quaternion(scalar)


def _cast_type(source: Type, attr: Scalar) -> Type:
    if isinstance(source, Composite):
        return with_scalar(source, attr)
    if not isinstance(source, Scalar):
        raise refuse(f"{source} cannot be converted to {attr}", slug="cast")
    return attr


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


def _adjoint_cast(g, y, x, attr):
    return (CAST(g, attr=kind(x).scalar) if is_float(kind(x)) and attr.kind == "f" else None,)  # type: ignore[attr-defined]


CAST = row(
    "cast", type=_cast_type, typed_by_attr=True, elementwise=True, meaning=_cast, c=_c_cast, adjoint=_adjoint_cast,
    tangent=lambda ts, y, x, attr: None if ts[0] is None or attr.kind != "f" else CAST(ts[0], attr=attr),
    linear=True, cheap=True,
    doc="Conversion to the scalar type `attr`, also of every component of a vector or matrix.",
)  # fmt: skip

# ---- bits

BIT_AND = row("bit_and", sign="&", type=_rule_bits("&"), meaning=lambda a, b: a & b, c="({T})({0} & {1})",
              doc="bit_and(a: I, b: I) -> I, I integer or bool: a & b.")  # fmt: skip
BIT_OR = row("bit_or", sign="|", type=_rule_bits("|"), meaning=lambda a, b: a | b, c="({T})({0} | {1})",
              doc="bit_or(a: I, b: I) -> I, I integer or bool: a | b.")  # fmt: skip
BIT_XOR = row("bit_xor", sign="^", type=_rule_bits("^"), meaning=lambda a, b: a ^ b, c="({T})({0} ^ {1})",
              doc="bit_xor(a: I, b: I) -> I, I integer or bool: a ^ b.")  # fmt: skip
INVERT = row("invert", sign="~", type=_rule_bits("~", bools=False), meaning=np.invert, c="({T})~{0}",
             doc="invert(a: I) -> I: ~a.")  # fmt: skip
LSHIFT = row("lshift", sign="<<", type=_rule_shift("<<"), c=_c_lshift,
             meaning=lambda a, n: a << a.dtype.type(int(n) & (a.dtype.itemsize * 8 - 1)),
             doc="a << n: n counts modulo the width of a.")  # fmt: skip
RSHIFT = row("rshift", sign=">>", type=_rule_shift(">>"), c=_c_rshift,
             meaning=lambda a, n: a >> a.dtype.type(int(n) & (a.dtype.itemsize * 8 - 1)),
             doc="a >> n: n counts modulo the width of a; keeps the sign.")  # fmt: skip

# ---- elementary functions of floats


def _function(name: str, meaning: Any, adjoint: Any = None, c: str = "", doc: str = "", **facts: Any) -> Row:
    """A function of one float; without `c`, one of C's math library by that name."""
    facts = facts if c else {**_LIBRARY, **facts}
    return row(name, type=_rule_floats(name), meaning=meaning, adjoint=adjoint, c=c or name + "{f}({0})",
               doc=doc or f"{name}(x: F) -> F, F float.", **facts)  # fmt: skip


def _round(x):
    t = np.trunc(x)
    return t + np.copysign(x * 0 + 1, x) if abs(x - t) >= 0.5 else t


def _of_python(f: Callable[[float], float]) -> Callable[[Any], Any]:
    return lambda x: type(x)(f(float(x)))


SIN = _function("sin", np.sin, lambda g, y, x: (g * COS(x),))
COS = _function("cos", np.cos, lambda g, y, x: (-(g * SIN(x)),))
TAN = _function("tan", np.tan, lambda g, y, x: (g * (1.0 + y * y),))
ASIN = _function("asin", np.arcsin, lambda g, y, x: (g / SQRT((1.0 - x) * (1.0 + x)),), unbounded=True)
ACOS = _function("acos", np.arccos, lambda g, y, x: (-(g / SQRT((1.0 - x) * (1.0 + x))),), unbounded=True)
ATAN = _function("atan", np.arctan, lambda g, y, x: (g / (1.0 + x * x),))
SINH = _function("sinh", np.sinh, lambda g, y, x: (g * COSH(x),))
COSH = _function("cosh", np.cosh, lambda g, y, x: (g * SINH(x),))
TANH = _function("tanh", np.tanh, lambda g, y, x: (g * (1.0 - y * y),))
EXP = _function("exp", np.exp, lambda g, y, x: (g * y,))
LOG = _function("log", np.log, lambda g, y, x: (g / x,), unbounded=True, doc="log(x: F) -> F: natural logarithm.")
LOG2 = _function("log2", np.log2, lambda g, y, x: (g / (x * math.log(2.0)),), unbounded=True)
LOG10 = _function("log10", np.log10, lambda g, y, x: (g / (x * math.log(10.0)),), unbounded=True)
LOG1P = _function("log1p", np.log1p, lambda g, y, x: (g / (1.0 + x),), unbounded=True)
EXPM1 = _function("expm1", np.expm1, lambda g, y, x: (g * (y + 1.0),))


def _fused_sqrt(stmt: ir.Stmt) -> ir.Stmt | None:
    """Of sqrt(a * a) that of |a|, of sqrt(dot(v, v)) that of a length: they have a derivative at zero."""
    square = stmt.args[0].stmt
    if square is None or not square.args:
        return None
    twice = square.args[0] is square.args[-1]
    if square.row is MUL and twice:
        return ir.Stmt(ABS, square.args[:1], stmt.outs)
    if square.row is ROWS["length_sq"] or (square.row is ROWS["dot"] and twice):
        return ir.Stmt(ROWS["length"], square.args[:1], stmt.outs)
    return None


SQRT = _function("sqrt", np.sqrt, lambda g, y, x: (g * 0.5 / y,), unbounded=True, fused=_fused_sqrt, **_INSTRUCTION)
RSQRT = _function("rsqrt", lambda x: 1 / np.sqrt(x), lambda g, y, x: (g * -0.5 * y / x,), "1 / sqrt{f}({0})",
                  "rsqrt(x: F) -> F: 1 / sqrt(x).", unbounded=True)  # fmt: skip
CBRT = _function("cbrt", np.cbrt, lambda g, y, x: (g / (3.0 * (y * y)),), unbounded=True)
ERF = _function("erf", _of_python(math.erf), lambda g, y, x: (g * (2.0 / math.sqrt(math.pi)) * EXP(-(x * x)),))
ERFC = _function("erfc", _of_python(math.erfc), lambda g, y, x: (g * (-2.0 / math.sqrt(math.pi)) * EXP(-(x * x)),))
DEGREES = _function("degrees", lambda x: x * type(x)(180 / math.pi), lambda g, y, x: (g * (180 / math.pi),),
                    "{0} * ({T})57.29577951308232", "degrees(x: F) -> F: radians to degrees.")  # fmt: skip
RADIANS = _function("radians", lambda x: x * type(x)(math.pi / 180), lambda g, y, x: (g * (math.pi / 180),),
                    "{0} * ({T})0.017453292519943295", "radians(x: F) -> F: degrees to radians.")  # fmt: skip
FLOOR = _function("floor", np.floor, **_INSTRUCTION)
CEIL = _function("ceil", np.ceil, **_INSTRUCTION)
TRUNC = _function("trunc", np.trunc, **_INSTRUCTION)
ROUND = _function("round", _round, doc="round(x: F) -> F: to the nearest whole number, halves away from zero, as in C.")
RINT = row("rint", type=_rule_floats("rint", composite=True), elementwise=True, meaning=np.rint, c="rint{f}({0})",
           cost=8,
           doc="rint(x: F) -> F, component by component: to the nearest whole number, halves to even.")  # fmt: skip
FRAC = _function("frac", lambda x: x - np.trunc(x), lambda g, y, x: (g,), "{0} - trunc{f}({0})",
                 "frac(x: F) -> F: x - trunc(x).")  # fmt: skip


def _rule_test(name: str) -> Callable[..., Type]:
    return lambda x: (_rule_floats(name)(x), bool_)[1]


ISNAN = row("isnan", type=_rule_test("isnan"), meaning=np.isnan, c="{0} != {0}", doc="isnan(x: F) -> bool.")
ISINF = row("isinf", type=_rule_test("isinf"), meaning=np.isinf, c="(!({0} - {0} == 0) && {0} == {0})",
            doc="isinf(x: F) -> bool.")  # fmt: skip
ISFINITE = row("isfinite", type=_rule_test("isfinite"), meaning=np.isfinite, c="({0} - {0} == 0)",
               doc="isfinite(x: F) -> bool.")  # fmt: skip


def _adjoint_atan2(g, out, y, x):
    d = x * x + y * y
    return g * x / d, -(g * y / d)


ATAN2 = row("atan2", type=_rule_floats("atan2"), meaning=np.arctan2, c="atan2{f}({0}, {1})", adjoint=_adjoint_atan2,
            unbounded=True, **_LIBRARY, doc="atan2(y: F, x: F) -> F: angle of the point (x, y).")  # fmt: skip
COPYSIGN = row("copysign", type=_rule_floats("copysign"), meaning=np.copysign, c="copysign{f}({0}, {1})", exact=True,
               adjoint=lambda g, y, a, b: (WHERE(EQ(a, y), g, -g), None), cost=8,
               doc="copysign(a: F, b: F) -> F: |a| with the sign of b.")  # fmt: skip


def smoothstep(lo, hi, x):
    """smoothstep(lo: F, hi: F, x: F) -> F: 0 below lo, 1 above hi, a cubic with flat ends between."""
    t = CLAMP((x - lo) / (hi - lo), 0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)
