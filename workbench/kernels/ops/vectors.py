"""Vectors, and what all composites share: dot, scaling, making, taking apart.

Kinks: length and normalize have derivative 0 at the zero vector, which is said where an adjoint comes to it; at a tie
of components the first one counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from ..ir import kind, numeric
from ..row import Operand, Row, Singular, refuse
from ..types import Composite, Quat, Scalar, Type, Vector, float16, float32, is_int, uint32, vector
from .composite import (
    curved,
    floating,
    linear_tangent,
    multilinear,
    numbers,
    one_type,
    passed,
    passing,
    scalars_agree,
    wants,
)
from .row import ROWS, plus, row, zero
from .scalar import (
    ABS,
    CAST,
    DIV,
    EQ,
    GT,
    LOGICAL_OR,
    LT,
    MAX,
    MOVES,
    MUL,
    NE,
    OVER,
    SQRT,
    SUB,
    TIMES,
    WHERE,
    contracted,
    product_tangent,
    same_type,
)

# ---- sums over components


def total(values: Iterable[Any]) -> Any:
    """The sum, left to right."""
    return reduce(add, list(values))


def sum_of_products(a, b, types=None, out=None):
    return total(x * y for x, y in zip(a, b, strict=True))


DOT = multilinear(
    "dot",
    2,
    expand=sum_of_products,
    type=numbers("dot", one_type("dot", Composite, "two vectors or quaternions", lambda t: t.scalar)),
    adjoint=lambda g, y, a, b: (TIMES(g, b), TIMES(g, a)),
    bilinear=True,
)


def _scale_type(v: Type, s: Type) -> Type:
    scalars_agree("*", wants("*", v, Composite, "a vector, matrix or quaternion"), wants("*", s, Scalar, "a scalar"))
    return v


SCALE = row(
    "scale",
    type=numbers("*", _scale_type),
    facts="elementwise exact cheap bilinear",
    meaning=MUL.meaning,
    c=MUL.c,
    adjoint=lambda g, y, v, s: (TIMES(g, s), passed(DOT, 0)(g, v)),
    tangent=lambda ts, y, v, s: product_tangent(ts, v, s),
)
UNSCALE = row(
    "unscale",
    type=floating("/", _scale_type),
    facts="elementwise exact",
    meaning=DIV.meaning,
    c=DIV.c,
    adjoint=OVER.adjoint,
    tangent=OVER.tangent,
)


def _lerp_type(a: Type, b: Type, t: Type) -> Type:
    scalars_agree("lerp", same_type("lerp", (a, b)), wants("lerp", t, Scalar, "a scalar weight"))
    return a


def _tangent_lerp(ts, y, a, b, t):
    first = None if ts[0] is None else MOVES(ts[0], 1.0 - t)
    second = None if ts[1] is None else MOVES(ts[1], t)
    return plus(plus(first, second), None if ts[2] is None else MOVES(ts[2], SUB(b, a)))


LERP = row(
    "lerp",
    type=floating("lerp", _lerp_type),
    elementwise=True,
    c="{0} * (1 - {2}) + {1} * {2}",
    meaning=lambda a, b, t: a * (1 - t) + b * t,
    tangent=_tangent_lerp,
    adjoint=lambda g, y, a, b, t: (TIMES(g, 1.0 - t), TIMES(g, t), contracted(g, SUB(b, a), t)),
)

# ---- making and taking apart


def _construct_type(*types: Type, attr: Composite) -> Type:
    if len(types) != attr.size:
        raise refuse(f"{attr} takes {attr.size} components, got {len(types)}", slug="components")
    for t in types:
        if t != attr.scalar:
            raise refuse(f"{attr} is made of {attr.scalar}, not {t}", slug="mixed-types", instead=f"{attr.scalar}(...)")
    return attr


def _places(type: Composite) -> list[tuple[int, ...]]:
    return list(np.ndindex(*type.shape))


CONSTRUCT = row(
    "construct",
    type=_construct_type,
    facts="typed_by_attr linear exact moves cheap",
    expand=lambda *c, types, out, attr: list(c),
    adjoint=lambda g, y, *c, attr: tuple(EXTRACT(g, attr=i) for i in _places(attr)),
)


def static_index(type: Type, attr: int | tuple[int, ...]) -> tuple[int, ...]:
    """Indices made non-negative and checked against the shape."""
    shape = wants("[]", type, Composite, "a vector, matrix or quaternion").shape
    index = attr if isinstance(attr, tuple) else (attr,)
    if len(index) > len(shape) or not index:
        raise refuse(f"{type} takes {len(shape)} indices, got {len(index)}", slug="rank")
    for i, n in zip(index, shape, strict=False):
        if not -n <= i < n:
            raise refuse(f"index {i} is outside {type}, whose valid indices are 0 to {n - 1}", slug="component-index")
    return tuple(int(i) % n for i, n in zip(index, shape, strict=False))


def _part_type(type: Composite, count: int) -> Type:
    """The type of a composite after `count` indices: its scalar, or a row vector."""
    return type.scalar if count == len(type.shape) else vector(type.shape[-1], type.scalar)


def span(type: Composite, attr: int | tuple[int, ...]) -> tuple[int, int]:
    """(start, length) of a part among the flattened components."""
    index = static_index(type, attr)
    if len(index) == len(type.shape):
        return int(np.ravel_multi_index(index, type.shape)), 1
    return index[0] * type.shape[1], type.shape[1]


def _extract(v, types, out, attr):
    start, n = span(types[0], attr)
    return v[start : start + n] if isinstance(out, Composite) else v[start]


def _insert(v, s, types, out, attr):
    start, n = span(types[0], attr)
    return v[:start] + (list(s) if isinstance(types[1], Composite) else [s]) + v[start + n :]


def _with_part(v: Type, part: Type, s: Type) -> Type:
    """The type of a composite in which a part of this type is replaced by an `s`."""
    if s != part:
        raise refuse(f"a component of {v} is a {part}, not a {s}", slug="mixed-types", instead=f"{part}(...)")
    return v


EXTRACT = row(
    "extract",
    type=lambda v, attr: _part_type(v, len(static_index(v, attr))),
    facts="typed_by_attr linear exact moves cheap",
    expand=_extract,
    adjoint=lambda g, y, v, attr: (INSERT(zero(v), g, attr=attr),),
)
INSERT = row(
    "insert",
    type=lambda v, s, attr: _with_part(v, _part_type(v, len(static_index(v, attr))), s),
    facts="typed_by_attr linear exact moves cheap",
    expand=_insert,
    adjoint=lambda g, y, v, s, attr: (INSERT(g, zero(s), attr=attr), EXTRACT(g, attr=attr)),
)


def components(v: Operand) -> list[Any]:
    """The components of a composite, row by row; a number alone."""
    type = kind(v)
    return [EXTRACT(v, attr=at) for at in _places(type)] if isinstance(type, Composite) else [v]


def _runtime_indices(v: Type, indices: tuple[Type, ...]) -> Type:
    v = wants("[]", v, Composite, "a vector, matrix or quaternion")
    if len(indices) > len(v.shape):
        raise refuse(f"{v} takes {len(v.shape)} indices, got {len(indices)}", slug="rank")
    for i in indices:
        if not is_int(i):
            raise refuse(f"an index must be an integer, not {i}", slug="index-type", instead="int(...)")
    return _part_type(v, len(indices))


def _is_at(i: Operand, k: int, n: int, type: Type) -> Any:
    """True where the index names place k of n, counted from either end."""
    here = EQ(i, k)
    return here if numeric(type).scalar.kind == "u" else LOGICAL_OR(here, EQ(i, k - n))


def _check_host(i: Operand, n: int) -> None:
    if isinstance(i, (int, np.integer)) and not -n <= i < n:
        raise IndexError(f"index {i} is outside the {n} components of a value")


def _choose(parts: list, i: Operand, type: Type) -> list:
    """The part that index i names among lists of equal length; the first one where it names none."""
    _check_host(i, len(parts))
    out = parts[0]
    for k in range(1, len(parts)):
        hit = _is_at(i, k, len(parts), type)
        out = [WHERE(hit, new, old) for new, old in zip(parts[k], out, strict=True)]
    return out


def _extract_at(v, *indices, types, out):
    shape = types[0].shape
    parts = [[x] for x in v] if len(shape) == 1 else [v[r * shape[1] : (r + 1) * shape[1]] for r in range(shape[0])]
    part = _choose(parts, indices[0], types[1])
    if len(indices) == 2:
        part = _choose([[x] for x in part], indices[1], types[2])
    return part if isinstance(out, Composite) else part[0]


def _insert_at(v, *rest, types, out):
    shape, indices, s = types[0].shape, rest[:-1], rest[-1]
    for i, n in zip(indices, shape, strict=False):
        _check_host(i, n)
    made = []
    for flat, place in enumerate(_places(types[0])):
        new = s[place[1]] if isinstance(types[-1], Composite) else s
        for k in reversed(range(len(indices))):
            new = WHERE(_is_at(indices[k], place[k], shape[k], types[1 + k]), new, v[flat])
        made.append(new)
    return made


EXTRACT_AT = row(
    "extract_at",
    type=lambda v, *i: _runtime_indices(v, i),
    expand=_extract_at,
    adjoint=lambda g, y, v, *i: (INSERT_AT(zero(v), *i, g), *[None] * len(i)),
    tangent=linear_tangent("extract_at"),
    exact=True,
)
INSERT_AT = row(
    "insert_at",
    type=lambda v, *rest: _with_part(v, _runtime_indices(v, rest[:-1]), rest[-1]),
    expand=_insert_at,
    adjoint=lambda g, y, v, *r: (INSERT_AT(g, *r[:-1], zero(r[-1])), *[None] * (len(r) - 1), EXTRACT_AT(g, *r[:-1])),
    tangent=linear_tangent("insert_at"),
    exact=True,
)
AT_RUN_TIME = (EXTRACT_AT, INSERT_AT)


# ---- the smallest and largest component


def _arg(name: str, better: Row) -> Row:
    def expand(v, types=None, out=None):
        best, at = v[0], np.int32(0)
        for k in range(1, len(v)):
            hit = better(v[k], best)
            best, at = WHERE(hit, v[k], best), WHERE(hit, np.int32(k), at)
        return CAST(at, attr=uint32)

    return row(name, type=one_type(name, Vector, "a vector", lambda t: uint32), expand=expand)


ARGMIN, ARGMAX = _arg("argmin", LT), _arg("argmax", GT)


def _extreme(name: str, better: Row, arg: Row) -> Row:
    return row(
        name,
        type=one_type(name, Vector, "a vector", lambda t: t.scalar),
        expand=lambda v, types, out: reduce(lambda best, x: WHERE(better(x, best), x, best), v),
        adjoint=lambda g, y, v: (INSERT_AT(zero(v), arg(v), g),),
        tangent=lambda ts, y, v: EXTRACT_AT(ts[0], arg(v)),
        exact=True,
    )


MIN_OF = _extreme("min_of", LT, ARGMIN)
MAX_OF = _extreme("max_of", GT, ARGMAX)

# ---- geometry


def _cross_type(a: Type, b: Type) -> Type:
    for t in (a, b):
        if not isinstance(t, Vector) or t.length != 3:
            raise refuse(f"`cross` takes vectors of length 3, not {t}", slug="operand-type")
    return same_type("cross", (a, b))


def cross_product(a, b, types=None, out=None):
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


CROSS = multilinear(
    "cross",
    2,
    type=numbers("cross", _cross_type),
    expand=cross_product,
    adjoint=lambda g, y, a, b: (passed(CROSS, 1)(b, g), passed(CROSS, 0)(g, a)),
)


_RANGE = {32: (2.0**-50, 2.0**60, 2.0**80), 64: (2.0**-450, 2.0**500, 2.0**600)}


def _within(v: list, type: Scalar) -> tuple[list, Any]:
    """(v times a power of two such that its squares neither overflow nor underflow, the inverse factor or None)."""
    if type is float16:
        return v, None
    small, large, power = (type.numpy.type(x) for x in _RANGE[type.bits])
    most = reduce(MAX, (ABS(x) for x in v))
    one, over, under = type.numpy.type(1), GT(most, large), LT(most, small)
    by = WHERE(over, 1 / power, WHERE(under, power, one))
    return [x * by for x in v], WHERE(over, power, WHERE(under, 1 / power, one))


def widened(v: list, type: Scalar) -> list:
    """Components of float16 as float32, in which products of several neither overflow nor vanish."""
    return [CAST(x, attr=float32) for x in v] if type is float16 else v


def narrowed(v: list, type: Scalar) -> list:
    """Components of `widened` cast back to float16; unchanged for other types."""
    return [CAST(x, attr=float16) for x in v] if type is float16 else v


def _length(v, types, out):
    near, back = _within(widened(v, out), out)
    n = SQRT(sum_of_products(near, near))
    return narrowed([n if back is None else n * back], out)[0]


def _normalize(v, types, out):
    made = _normalized(widened(v, out.scalar), out.scalar)
    if isinstance(out, Quat):  # one of zeros turns nothing
        made[3] = WHERE(EQ(total([ABS(x) for x in v]), 0.0), 1.0, made[3])
    return narrowed(made, out.scalar)


def _normalized(v, scalar):
    near, _ = _within(v, scalar)
    n = SQRT(sum_of_products(near, near))
    some = NE(n, 0.0)
    return [WHERE(some, x / n, n) for x in near]


def _across(g, y, types=None, out=None):
    """(g · y y - y y · g) summed by pairs: nothing cancels where g is along an axis."""
    made: list = [None] * len(g)
    for i in range(len(g)):
        for j in range(i + 1, len(g)):
            turn = g[i] * y[j] - g[j] * y[i]
            for k, part in ((i, y[j] * turn), (j, -(y[i] * turn))):
                made[k] = part if made[k] is None else made[k] + part
    return [x if x is not None else g[0] * 0.0 for x in made]


def _adjoint_across(h, z, g, y):
    by_y = SUB(SUB(TIMES(2.0 * passed(DOT, 0)(h, g), y), TIMES(passed(DOT, 0)(h, y), g)), TIMES(h, DOT(g, y)))
    return passed(ACROSS, 0)(h, y), by_y


def _flat_normalize(g, y, v):
    """The Jacobian (1 - y y^T) / |v| is symmetric: adjoint and tangent in one."""
    n = LENGTH(v)
    return WHERE(EQ(n, 0.0), zero(g), OVER(passed(ACROSS, 0)(g, y), n))


def _direction(v, size):
    """v / |v|, zeros at zero: the derivative of the length of v."""
    unit = NORMALIZE(v)
    return WHERE(EQ(size, 0.0), zero(v), unit) if isinstance(kind(v), Quat) else unit


_LINEAR_TYPES = (Vector, Quat)
_SCALAR_OF = one_type("length_sq", _LINEAR_TYPES, "a vector or quaternion", lambda t: t.scalar)
LENGTH_SQ = row(
    "length_sq",
    type=numbers("length_sq", _SCALAR_OF),
    expand=lambda v, types, out: sum_of_products(v, v),
    adjoint=lambda g, y, v: (TIMES(g, v + v),),
    tangent=lambda ts, y, v: ROWS["dot_both"](ts[0], v + v),
    exact=True,
)
ACROSS = curved(
    "across",
    type=floating("across", one_type("across", _LINEAR_TYPES, "vectors or quaternions", lambda t: t)),
    expand=_across,
    adjoint=_adjoint_across,
    exact=True,
)
passing(ACROSS, 0)
LENGTH = row(
    "length",
    type=floating("length", LENGTH_SQ.type),
    expand=_length,
    exact=True,
    cost=8,
    adjoint=lambda g, y, v: (TIMES(g, _direction(v, y)),),
    singular=Singular(
        lambda g, y, v: EQ(y, 0.0),
        "the slope of `length` at a zero vector is a convention: 0",
        "wb.norm_pseudo_huber(v, eps), which is smooth, or wb.length_sq(v)",
    ),
    tangent=lambda ts, y, v: ROWS["dot_both"](ts[0], _direction(v, y)),
)
NORMALIZE = row(
    "normalize",
    expand=_normalize,
    type=floating("normalize", one_type("normalize", _LINEAR_TYPES, "a vector or quaternion", lambda t: t)),
    adjoint=lambda g, y, v: (_flat_normalize(g, y, v),),
    singular=Singular(
        lambda g, y, v: EQ(LENGTH(v), 0.0),
        "the slope of `normalize` at a zero vector is a convention: 0",
        "wb.smooth_normalize(v, eps), which is smooth, or a branch that keeps the zero vector out",
    ),
    exact=True,
    cost=8,
    tangent=lambda ts, y, v: _flat_normalize(ts[0], y, v),
)
