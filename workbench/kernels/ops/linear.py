"""Vectors, matrices, quaternions: each written once, as components in and components out.

The interpreter, the emitter and the derivative all run the same `expand`; inside it functions are rows, so that they
go where their operand goes. Adjoint rules stay on whole values. A row whose derivative is not again one of these rows
gets its tangent by running `expand` on dual numbers (row `d_<name>`). Quaternions are (x, y, z, w).
Kinks: length and normalize have derivative 0 at the zero vector; the inverse of a singular matrix is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..types import (
    Composite,
    Matrix,
    Quat,
    Scalar,
    Type,
    Vector,
    is_float,
    is_int,
    matrix,
    quaternion,
    uint32,
    vector,
)  # fmt: skip
from .row import NO_GRADIENT, ROWS, Row, kind, like, refuse, row, zero
from .scalar import (  # fmt: skip
    ADD,
    CAST,
    COS,
    DIV,
    EQ,
    GT,
    LOGICAL_OR,
    LT,
    MUL,
    NE,
    NEG,
    SIN,
    SQRT,
    SUB,
    WHERE,
    same_type,
)

# ---- type rules


def _wants(name: str, type: Type, classes: Any, what: str) -> Any:
    if not isinstance(type, classes):
        raise refuse(f"`{name}` takes {what}, not {type}", slug="operand-type")
    return type


def _scalars_agree(name: str, a: Any, b: Any) -> None:
    if a.scalar != b.scalar:
        wide = max(a.scalar, b.scalar, key=lambda s: (s.kind == "f", s.bits))
        raise refuse(f"`{name}` takes operands over one scalar type, got {a} and {b}", slug="mixed-types",
                     instead=f"{wide}(...) around one of them")  # fmt: skip


def _shape_error(name: str, a: Type, b: Type, instead: str = "") -> TypeError:
    return refuse(f"`{name}`: the shapes of {a} and {b} do not fit", slug="shape", instead=instead)


def _rule(name: str, classes: Any, what: str, result: Callable[[Any], Type]) -> Callable[..., Type]:
    """Operands of one composite type among `classes`; `result` makes the type of the value."""

    def rule(*types: Type) -> Type:
        for t in types:
            _wants(name, t, classes, what)
        return result(same_type(name, types))

    return rule


def _floating(name: str, rule: Callable[..., Type]) -> Callable[..., Type]:
    def checked(*types: Type) -> Type:
        for t in types:
            if isinstance(t, (Scalar, Composite)) and not is_float(t):
                raise refuse(f"`{name}` takes floats, not {t}", slug="operand-type", instead="float(...)")
        return rule(*types)

    return checked


# ---- derivatives shared by rows


def inner(a: Any, b: Any) -> Any:
    """Sum of the products of all components; of scalars their product."""
    return DOT(a, b) if isinstance(kind(a), Composite) else MUL(a, b)


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else ADD(a, b)


def _linear_tangent(name: str) -> Callable[..., Any]:
    """A linear function of its arguments together is its own tangent."""

    def tangent(ts, y, *args, **attr):
        if all(t is None for t in ts):
            return None
        full = [zero(a) if t is None and is_float(kind(a)) else a if t is None else t
                for t, a in zip(ts, args, strict=True)]  # fmt: skip
        return ROWS[name](*full, **attr)

    return tangent


def _bilinear_tangent(name: str) -> Callable[..., Any]:
    def tangent(ts, y, a, b):
        first = None if ts[0] is None else ROWS[name](ts[0], b)
        return _plus(first, None if ts[1] is None else ROWS[name](a, ts[1]))

    return tangent


@dataclass
class Dual:
    """A component and its tangent."""

    value: Any
    tangent: Any

    def apply_row(self, row: Row, args: tuple, attr: Any) -> Any:
        duals = [a if isinstance(a, Dual) else Dual(a, None) for a in args]
        extra = {"attr": attr} if row.typed_by_attr else {}
        y = row(*[d.value for d in duals], **extra)
        if row.tangent is None:
            return Dual(y, None)
        known = [d.tangent for d in duals]
        if all(t is None for t in known):
            return Dual(y, None)
        return Dual(y, row.tangent(known, y, *[d.value for d in duals], **extra))

    def __add__(self, other):
        return ADD(self, other)

    def __radd__(self, other):
        return ADD(other, self)

    def __sub__(self, other):
        return SUB(self, other)

    def __rsub__(self, other):
        return SUB(other, self)

    def __mul__(self, other):
        return MUL(self, other)

    def __rmul__(self, other):
        return MUL(other, self)

    def __truediv__(self, other):
        return DIV(self, other)

    def __rtruediv__(self, other):
        return DIV(other, self)

    def __neg__(self):
        return NEG(self)


def _dual_tangent(name: str) -> Callable[..., Any]:
    """Tangent by row `d_<name>`, which runs `expand` of the row on dual numbers."""

    def tangent(ts, y, *args):
        if all(t is None for t in ts):
            return None
        full = [zero(a) if t is None else t for t, a in zip(ts, args, strict=True)]
        return ROWS[f"d_{name}"](*args, *full)

    return tangent


def _paired(value: Any, tangent: Any) -> Any:
    if isinstance(value, list):
        return [Dual(v, t) for v, t in zip(value, tangent, strict=True)]
    return Dual(value, tangent)


def _dual_row(of: Row) -> Row:
    def rule(*types: Type) -> Type:
        return of.type(*types[: len(types) // 2])

    def expand(*operands, types, out):
        assert of.expand is not None
        n = len(operands) // 2
        pairs = [_paired(v, t) for v, t in zip(operands[:n], operands[n:], strict=True)]
        made = of.expand(*pairs, types=types[:n], out=out)
        parts = made if isinstance(made, list) else [made]
        tangents = [p.tangent for p in parts]
        return tangents if isinstance(made, list) else tangents[0]

    return row(f"d_{of.name}", type=rule, expand=expand, adjoint=NO_GRADIENT,
               doc=f"Derivative of {of.name} in the direction given by the second half of the arguments.")  # fmt: skip


def _curved(name: str, **fields: Any) -> Row:
    """A row that is no linear or bilinear form: its tangent comes from dual numbers."""
    made = row(name, tangent=_dual_tangent(name), **fields)
    _dual_row(made)
    return made


def _multilinear(name: str, operands: int, **fields: Any) -> Row:
    """Linear in its one operand, or in each of its two."""
    tangent = (_linear_tangent if operands == 1 else _bilinear_tangent)(name)
    return row(name, tangent=tangent, exact=True, **fields)


# ---- sums over components


def total(values: Any) -> Any:
    """The sum, left to right."""
    values = list(values)
    out = values[0]
    for v in values[1:]:
        out = out + v
    return out


def _dot(a, b, types=None, out=None):
    return total(x * y for x, y in zip(a, b, strict=True))


DOT = _multilinear(
    "dot", 2, type=_rule("dot", Composite, "two vectors or quaternions", lambda t: t.scalar), expand=_dot,
    adjoint=lambda g, y, a, b: (SCALE(b, g), SCALE(a, g)), bilinear=True,
    doc="dot(a: V, b: V) -> scalar, V vector or quaternion: sum of the products of components.",
)  # fmt: skip


def _scale_type(v: Type, s: Type) -> Type:
    _wants("*", v, Composite, "a vector, matrix or quaternion")
    _wants("*", s, Scalar, "a scalar")
    _scalars_agree("*", v, s)
    return v


SCALE = _multilinear(
    "scale", 2, type=_scale_type, elementwise=True, meaning=MUL.meaning, c=MUL.c, cheap=True, bilinear=True,
    adjoint=lambda g, y, v, s: (SCALE(g, s), DOT(g, v)), doc="Every component of v times the scalar s.",
)  # fmt: skip


def _adjoint_unscale(g, y, v, s):
    return UNSCALE(g, s), -(DOT(g, y) / s)


def _tangent_unscale(ts, y, v, s):
    first = None if ts[0] is None else UNSCALE(ts[0], s)
    return _plus(first, None if ts[1] is None else SCALE(y, -(ts[1] / s)))


UNSCALE = row(
    "unscale", type=_floating("/", _scale_type), elementwise=True, meaning=DIV.meaning, c=DIV.c, unbounded=True,
    exact=True, adjoint=_adjoint_unscale, tangent=_tangent_unscale, doc="Every component of v divided by the scalar s.",
)  # fmt: skip


def _lerp_type(a: Type, b: Type, t: Type) -> Type:
    same_type("lerp", (a, b))
    _wants("lerp", t, Scalar, "a scalar weight")
    _scalars_agree("lerp", a, t)
    return a


def scaled(v: Any, s: Any) -> Any:
    """v * s for a scalar or composite v."""
    return SCALE(v, s) if isinstance(kind(v), Composite) else MUL(v, s)


def _tangent_lerp(ts, y, a, b, t):
    first = None if ts[0] is None else scaled(ts[0], 1.0 - t)
    second = None if ts[1] is None else scaled(ts[1], t)
    return _plus(_plus(first, second), None if ts[2] is None else scaled(SUB(b, a), ts[2]))


LERP = row(
    "lerp", type=_floating("lerp", _lerp_type), elementwise=True, c="{0} * (1 - {2}) + {1} * {2}",
    meaning=lambda a, b, t: a * (1 - t) + b * t, tangent=_tangent_lerp,
    adjoint=lambda g, y, a, b, t: (scaled(g, 1.0 - t), scaled(g, t), inner(g, SUB(b, a))),
    doc="lerp(a: T, b: T, t: scalar) -> T: a (1 - t) + b t.",
)  # fmt: skip

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
    "construct", type=_construct_type, typed_by_attr=True, expand=lambda *c, types, out, attr: list(c),
    adjoint=lambda g, y, *c, attr: tuple(EXTRACT(g, attr=i) for i in _places(attr)),
    tangent=_linear_tangent("construct"), linear=True, exact=True, moves=True, cheap=True,
    doc="The composite `attr` of these components, row by row.",
)  # fmt: skip


def static_index(type: Type, attr: Any) -> tuple[int, ...]:
    """Indices made non-negative and checked against the shape."""
    _wants("[]", type, Composite, "a vector, matrix or quaternion")
    index = attr if isinstance(attr, tuple) else (attr,)
    if len(index) > len(type.shape) or not index:  # type: ignore[attr-defined]
        raise refuse(f"{type} takes {len(type.shape)} indices, got {len(index)}", slug="rank")  # type: ignore[attr-defined]
    for i, n in zip(index, type.shape, strict=False):  # type: ignore[attr-defined]
        if not -n <= i < n:
            raise refuse(f"index {i} is outside {type}, whose valid indices are 0 to {n - 1}", slug="component-index")
    return tuple(int(i) % n for i, n in zip(index, type.shape, strict=False))  # type: ignore[attr-defined]


def _part_type(type: Composite, count: int) -> Type:
    """What `count` indices leave of a composite."""
    return type.scalar if count == len(type.shape) else vector(type.shape[-1], type.scalar)


def _span(type: Composite, attr: Any) -> tuple[int, int]:
    """Where a part lies among the components: start and length."""
    index = static_index(type, attr)
    if len(index) == len(type.shape):
        return int(np.ravel_multi_index(index, type.shape)), 1
    return index[0] * type.shape[1], type.shape[1]


def _extract(v, types, out, attr):
    start, n = _span(types[0], attr)
    return v[start : start + n] if isinstance(out, Composite) else v[start]


def _insert(v, s, types, out, attr):
    start, n = _span(types[0], attr)
    return v[:start] + (list(s) if isinstance(types[1], Composite) else [s]) + v[start + n :]


def _insert_type(v: Type, s: Type, attr: Any) -> Type:
    part = _part_type(v, len(static_index(v, attr)))  # type: ignore[arg-type]
    if s != part:
        raise refuse(f"a component of {v} is a {part}, not a {s}", slug="mixed-types", instead=f"{part}(...)")
    return v


EXTRACT = row(
    "extract", type=lambda v, attr: _part_type(v, len(static_index(v, attr))), typed_by_attr=True, expand=_extract,
    adjoint=lambda g, y, v, attr: (INSERT(zero(v), g, attr=attr),), tangent=_linear_tangent("extract"),
    linear=True, exact=True, moves=True, cheap=True,
    doc="Component `attr` (indices known when compiled); one index into a matrix gives that row as a vector.",
)  # fmt: skip
INSERT = row(
    "insert", type=_insert_type, typed_by_attr=True, expand=_insert, tangent=_linear_tangent("insert"),
    adjoint=lambda g, y, v, s, attr: (INSERT(g, zero(s), attr=attr), EXTRACT(g, attr=attr)),
    linear=True, exact=True, moves=True, cheap=True, doc="The composite with component `attr` replaced.",
)  # fmt: skip


def _runtime_indices(v: Type, indices: tuple[Type, ...]) -> Type:
    _wants("[]", v, Composite, "a vector, matrix or quaternion")
    if len(indices) > len(v.shape):  # type: ignore[attr-defined]
        raise refuse(f"{v} takes {len(v.shape)} indices, got {len(indices)}", slug="rank")  # type: ignore[attr-defined]
    for i in indices:
        if not is_int(i):
            raise refuse(f"an index must be an integer, not {i}", slug="index-type", instead="int(...)")
    return _part_type(v, len(indices))  # type: ignore[arg-type]


def _is_at(i: Any, k: int, n: int, type: Type) -> Any:
    """Does the index name place k of n, counted from either end."""
    here = EQ(i, k)
    return here if type.scalar.kind == "u" else LOGICAL_OR(here, EQ(i, k - n))  # type: ignore[attr-defined]


def _check_host(i: Any, n: int) -> None:
    if isinstance(i, (int, np.integer)) and not -n <= i < n:
        raise IndexError(f"index {i} is outside the {n} components of a value")


def _choose(parts: list, i: Any, type: Type) -> list:
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


def _insert_at_type(v: Type, *rest: Type) -> Type:
    part = _runtime_indices(v, rest[:-1])
    if rest[-1] != part:
        raise refuse(f"a component of {v} is a {part}, not a {rest[-1]}", slug="mixed-types", instead=f"{part}(...)")
    return v


def _adjoint_extract_at(g, y, v, *i):
    return INSERT_AT(zero(v), *i, g), *[None] * len(i)


def _adjoint_insert_at(g, y, v, *rest):
    i, s = rest[:-1], rest[-1]
    return INSERT_AT(g, *i, zero(s)), *[None] * len(i), EXTRACT_AT(g, *i)


EXTRACT_AT = row(
    "extract_at", type=lambda v, *i: _runtime_indices(v, i), expand=_extract_at, adjoint=_adjoint_extract_at,
    tangent=_linear_tangent("extract_at"), exact=True,
    doc="extract_at(v, *i): the component that run-time indices name; negative ones count from the end.",
)  # fmt: skip
INSERT_AT = row(
    "insert_at", type=_insert_at_type, expand=_insert_at, adjoint=_adjoint_insert_at,
    tangent=_linear_tangent("insert_at"), exact=True,
    doc="insert_at(v, *i, s): v with the component at run-time indices replaced.",
)  # fmt: skip


# ---- the smallest and largest component


def _arg(better: Row) -> Callable[..., Any]:
    def expand(v, types=None, out=None):
        best, at = v[0], np.int32(0)
        for k in range(1, len(v)):
            hit = better(v[k], best)
            best, at = WHERE(hit, v[k], best), WHERE(hit, np.int32(k), at)
        return CAST(at, attr=uint32)

    return expand


def _best(better: Row) -> Callable[..., Any]:
    def expand(v, types=None, out=None):
        best = v[0]
        for x in v[1:]:
            best = WHERE(better(x, best), x, best)
        return best

    return expand


ARGMIN = row("argmin", type=_rule("argmin", Vector, "a vector", lambda t: uint32), expand=_arg(LT),
             doc="argmin(v: vector) -> uint32: place of the first smallest component.")  # fmt: skip
ARGMAX = row("argmax", type=_rule("argmax", Vector, "a vector", lambda t: uint32), expand=_arg(GT),
             doc="argmax(v: vector) -> uint32: place of the first largest component.")  # fmt: skip


def _extreme(name: str, better: Row, arg: Row) -> Row:
    return row(
        name, type=_rule(name, Vector, "a vector", lambda t: t.scalar), expand=_best(better),
        adjoint=lambda g, y, v: (INSERT_AT(zero(v), arg(v), g),),
        tangent=lambda ts, y, v: None if ts[0] is None else EXTRACT_AT(ts[0], arg(v)),
        exact=True, doc=f"{name}(v: vector) -> scalar; at a tie the gradient goes to the first such component.",
    )  # fmt: skip


MIN_OF = _extreme("min_of", LT, ARGMIN)
MAX_OF = _extreme("max_of", GT, ARGMAX)

# ---- geometry


def _cross_type(a: Type, b: Type) -> Type:
    for t in (a, b):
        if not isinstance(t, Vector) or t.length != 3:
            raise refuse(f"`cross` takes vectors of length 3, not {t}", slug="operand-type")
    return same_type("cross", (a, b))


def _cross(a, b, types=None, out=None):
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


CROSS = _multilinear("cross", 2, type=_cross_type, expand=_cross, adjoint=lambda g, y, a, b: (CROSS(b, g), CROSS(g, a)),
                     doc="cross(a: vec3, b: vec3) -> vec3.")  # fmt: skip


def _nonzero_length(v: Any) -> tuple[Any, Any]:
    """Is there a length (a NaN counts), and a length that may be divided by."""
    n = LENGTH(v)
    some = NE(n, 0.0)
    return some, WHERE(some, n, like(n, kind(n), 1))


def _adjoint_length(g, y, v):
    some = NE(y, 0.0)  # else 0 / inf: that is 0, and so is every derivative of it
    return (SCALE(UNSCALE(v, WHERE(some, y, like(y, kind(y), math.inf))), g),)


def _tangent_length(ts, y, v):
    return None if ts[0] is None else DOT(ts[0], _adjoint_length(like(y, kind(y), 1), y, v)[0])


def _flat_normalize(g, y, v):
    """The Jacobian (1 - y y^T) / |v| is symmetric: adjoint and tangent in one."""
    some, n = _nonzero_length(v)
    return WHERE(some, UNSCALE(SUB(g, SCALE(y, DOT(g, y))), n), zero(g))


def _normalize(v, types, out):
    n = SQRT(_dot(v, v))
    some = NE(n, 0.0)
    return [WHERE(some, x / n, n) for x in v]


_LINEAR_TYPES = (Vector, Quat)
LENGTH_SQ = row("length_sq", type=_rule("length_sq", _LINEAR_TYPES, "a vector or quaternion", lambda t: t.scalar),
                expand=lambda v, types, out: _dot(v, v), adjoint=lambda g, y, v: (SCALE(v + v, g),),
                tangent=lambda ts, y, v: None if ts[0] is None else 2.0 * DOT(ts[0], v),
                exact=True, doc="length_sq(v: V) -> scalar: sum of squares.")  # fmt: skip
LENGTH = row("length", type=_floating("length", LENGTH_SQ.type),
             expand=lambda v, types, out: SQRT(_dot(v, v)), adjoint=_adjoint_length, tangent=_tangent_length,
             unbounded=True, exact=True, cost=8,
             doc="length(v: V) -> scalar; derivative 0 at the zero vector.")  # fmt: skip
NORMALIZE = row(
    "normalize", type=_floating("normalize", _rule("normalize", _LINEAR_TYPES, "a vector or quaternion", lambda t: t)),
    expand=_normalize, adjoint=lambda g, y, v: (_flat_normalize(g, y, v),), unbounded=True, exact=True, cost=8,
    tangent=lambda ts, y, v: None if ts[0] is None else _flat_normalize(ts[0], y, v),
    doc="normalize(v: V) -> V: v / length(v); zero, with derivative 0, at the zero vector.",
)  # fmt: skip

# ---- matrices


def _grid(m: list, cols: int) -> list[list]:
    return [m[k : k + cols] for k in range(0, len(m), cols)]


def _transpose(m, types, out):
    rows = _grid(m, types[0].cols)
    return [r[j] for j in range(types[0].cols) for r in rows]


TRANSPOSE = _multilinear(
    "transpose", 1, expand=_transpose, adjoint=lambda g, y, m: (TRANSPOSE(g),), linear=True,
    doc="transpose(m: matrix) -> matrix.",
    type=_rule("transpose", Matrix, "a matrix", lambda t: matrix((t.cols, t.rows), t.scalar)),
)  # fmt: skip


def _matvec_type(m: Type, v: Type) -> Type:
    _wants("*", m, Matrix, "a matrix")
    _wants("*", v, Vector, "a vector")
    _scalars_agree("*", m, v)
    if m.cols != v.length:  # type: ignore[attr-defined]
        raise _shape_error("*", m, v, "transpose(m) * v" if m.rows == v.length else "")  # type: ignore[attr-defined]
    return vector(m.rows, m.scalar)  # type: ignore[attr-defined]


MATVEC = _multilinear(
    "matvec", 2, type=_matvec_type, doc="matrix * vector",
    expand=lambda m, v, types, out: [_dot(r, v) for r in _grid(m, types[0].cols)],
    adjoint=lambda g, y, m, v: (OUTER(g, v), MATVEC(TRANSPOSE(m), g)),
)  # fmt: skip


def _matmul_type(a: Type, b: Type) -> Type:
    _wants("*", a, Matrix, "a matrix")
    _wants("*", b, Matrix, "a matrix")
    _scalars_agree("*", a, b)
    if a.cols != b.rows:  # type: ignore[attr-defined]
        raise _shape_error("*", a, b)
    return matrix((a.rows, b.cols), a.scalar)  # type: ignore[attr-defined]


def _matmul(a, b, types, out):
    rows, other = _grid(a, types[0].cols), _grid(b, types[1].cols)
    return [_dot(r, [o[j] for o in other]) for r in rows for j in range(types[1].cols)]


MATMUL = _multilinear(
    "matmul", 2, type=_matmul_type, expand=_matmul, doc="matrix * matrix",
    adjoint=lambda g, y, a, b: (MATMUL(g, TRANSPOSE(b)), MATMUL(TRANSPOSE(a), g)),
)  # fmt: skip


def _outer_type(a: Type, b: Type) -> Type:
    _wants("outer", a, Vector, "two vectors")
    _wants("outer", b, Vector, "two vectors")
    _scalars_agree("outer", a, b)
    return matrix((a.length, b.length), a.scalar)  # type: ignore[attr-defined]


OUTER = _multilinear(
    "outer", 2, type=_outer_type, expand=lambda a, b, types, out: [x * y for x in a for y in b],
    adjoint=lambda g, y, a, b: (MATVEC(g, b), MATVEC(TRANSPOSE(g), a)),
    doc="outer(a: vector, b: vector) -> matrix a b^T.",
)  # fmt: skip


def _square(name: str, result: Callable[[Matrix], Type], sizes: tuple[int, ...] = ()) -> Callable[..., Type]:
    def rule(*types: Type) -> Type:
        t = _wants(name, same_type(name, types), Matrix, "a matrix")
        if t.rows != t.cols or (sizes and t.rows not in sizes):
            what = f"of size {', '.join(map(str, sizes))}" if sizes else "square"
            raise refuse(f"`{name}` takes a matrix that is {what}, not {t}", slug="shape")
        return result(t)

    return rule


TRACE = _multilinear(
    "trace", 1, type=_square("trace", lambda t: t.scalar), doc="trace(m: square matrix) -> scalar.",
    expand=lambda m, types, out: total(m[:: types[0].cols + 1]),
    adjoint=lambda g, y, m: (SCALE(like(m, kind(m), np.eye(kind(m).rows)), g),),  # type: ignore[attr-defined]
)  # fmt: skip
GET_DIAG = _multilinear(
    "get_diag", 1, type=_square("get_diag", lambda t: vector(t.rows, t.scalar)),
    expand=lambda m, types, out: list(m[:: types[0].cols + 1]), adjoint=lambda g, y, m: (DIAG(g),),
    doc="get_diag(m: square matrix) -> vector of the diagonal.",
)  # fmt: skip
DIAG = _multilinear(
    "diag", 1, type=_rule("diag", Vector, "a vector", lambda t: matrix((t.length, t.length), t.scalar)),
    expand=lambda v, types, out: [v[i] if i == j else 0 for i in range(len(v)) for j in range(len(v))],
    adjoint=lambda g, y, v: (GET_DIAG(g),), doc="diag(v: vector) -> square matrix with v on the diagonal.",
)  # fmt: skip


def _skew_type(v: Type) -> Type:
    if not isinstance(v, Vector) or v.length != 3:
        raise refuse(f"`skew` takes a vector of length 3, not {v}", slug="operand-type")
    return matrix((3, 3), v.scalar)


def _skew(v, types=None, out=None):
    return [0, -v[2], v[1], v[2], 0, -v[0], -v[1], v[0], 0]


SKEW = _multilinear("skew", 1, type=_skew_type, expand=_skew, adjoint=lambda g, y, v: (AXIAL(g),),
                    doc="skew(v: vec3) -> mat33 with skew(v) * u == cross(v, u).")  # fmt: skip
AXIAL = _multilinear(
    "axial", 1, type=_square("axial", lambda t: vector(3, t.scalar), (3,)), adjoint=lambda g, y, m: (SKEW(g),),
    expand=lambda m, types, out: [m[7] - m[5], m[2] - m[6], m[3] - m[1]],
    doc="The vector of the antisymmetric part, times 2: the transpose of `skew`.",
)  # fmt: skip


def _minor(rows: list[list], i: int, j: int) -> list[list]:
    return [r[:j] + r[j + 1 :] for k, r in enumerate(rows) if k != i]


def _det(rows: list[list]) -> Any:
    if len(rows) == 1:
        return rows[0][0]
    if len(rows) == 2:
        return rows[0][0] * rows[1][1] - rows[0][1] * rows[1][0]
    out = rows[0][0] * _det(_minor(rows, 0, 0))
    for j in range(1, len(rows)):
        term = rows[0][j] * _det(_minor(rows, 0, j))
        out = out + term if j % 2 == 0 else out - term
    return out


def _cofactors(m, types=None, out=None):
    n = int(len(m) ** 0.5)
    rows = _grid(m, n)
    dets = [(i + j, _det(_minor(rows, i, j))) for i in range(n) for j in range(n)]
    return [d if k % 2 == 0 else -d for k, d in dets]


def _inverse(m, types, out):
    n = types[0].rows
    cof = _cofactors(m)
    det = total(m[j] * cof[j] for j in range(n))
    return [cof[j * n + i] / det for i in range(n) for j in range(n)]


def _flat_inverse(t, y):
    return NEG(MATMUL(MATMUL(y, t), y))


_SIZES = (2, 3, 4)
COFACTORS = _curved(
    "cofactors", type=_floating("cofactors", _square("cofactors", lambda t: t, _SIZES)), expand=_cofactors,
    adjoint=lambda g, y, m: (ROWS["d_cofactors"](m, g),), exact=True,
    doc="The matrix of cofactors: the derivative of the determinant. Its Jacobian, a Hessian, is symmetric.",
)  # fmt: skip
DETERMINANT = row(
    "determinant", type=_floating("determinant", _square("determinant", lambda t: t.scalar, _SIZES)),
    expand=lambda m, types, out: _det(_grid(m, types[0].cols)),
    adjoint=lambda g, y, m: (SCALE(COFACTORS(m), g),), exact=True,
    tangent=lambda ts, y, m: None if ts[0] is None else DOT(COFACTORS(m), ts[0]),
    doc="determinant(m: 2x2, 3x3 or 4x4 float matrix) -> scalar.",
)  # fmt: skip
INVERSE = row(
    "inverse", type=_floating("inverse", _square("inverse", lambda t: t, _SIZES)), expand=_inverse, unbounded=True,
    adjoint=lambda g, y, m: (_flat_inverse(g, TRANSPOSE(y)),), exact=True, cost=8,
    tangent=lambda ts, y, m: None if ts[0] is None else _flat_inverse(ts[0], y),
    doc="inverse(m: 2x2, 3x3 or 4x4 float matrix) -> matrix; not finite where m is singular.",
)  # fmt: skip


def _rows_type(*types: Type) -> Type:
    v = _wants("matrix_from_rows", same_type("matrix_from_rows", types), Vector, "vectors")
    return matrix((len(types), v.length), v.scalar)


MATRIX_FROM_ROWS = row(
    "matrix_from_rows", type=_rows_type, expand=lambda *rows, types, out: [x for r in rows for x in r],
    adjoint=lambda g, y, *rows: tuple(EXTRACT(g, attr=(i,)) for i in range(len(rows))),
    tangent=_linear_tangent("matrix_from_rows"), exact=True, doc="matrix_from_rows(*vectors) -> matrix.",
)  # fmt: skip

# ---- quaternions


def _quats(name: str, result: Callable[[Quat], Type]) -> Callable[..., Type]:
    return _rule(name, Quat, "a quaternion", result)


def _quat_mul(a, b, types=None, out=None):
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    return [
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    ]


QUAT_MUL = _multilinear(
    "quat_mul", 2, type=_quats("*", lambda t: t), expand=_quat_mul, doc="quaternion * quaternion",
    adjoint=lambda g, y, a, b: (QUAT_MUL(g, QUAT_INVERSE(b)), QUAT_MUL(QUAT_INVERSE(a), g)),
)  # fmt: skip
QUAT_INVERSE = _multilinear(
    "quat_inverse", 1, type=_quats("quat_inverse", lambda t: t), adjoint=lambda g, y, q: (QUAT_INVERSE(g),),
    expand=lambda q, types, out: [-q[0], -q[1], -q[2], q[3]],
    doc="quat_inverse(q) -> quaternion: the conjugate, which is the inverse of a unit quaternion.",
)  # fmt: skip


def _rotate_type(name: str) -> Callable[..., Type]:
    def rule(q: Type, v: Type) -> Type:
        _wants(name, q, Quat, "a quaternion and a vec3")
        if not isinstance(v, Vector) or v.length != 3:
            raise refuse(f"`{name}` takes a quaternion and a vec3, not {v}", slug="operand-type")
        _scalars_agree(name, q, v)
        return v

    return rule


def _rotate(q, v, sign: int = 1) -> list:
    """(2 w^2 - 1) v + 2 w u x v + 2 u (u . v) with q = (u, w); sign -1: by the conjugate."""
    u, w = q[:3], q[3]
    plain, along, turned = 2.0 * w * w - 1.0, 2.0 * _dot(u, v), _cross(u, v)
    turn = 2.0 * w if sign > 0 else -2.0 * w
    return [v[i] * plain + turned[i] * turn + u[i] * along for i in range(3)]


def _parts(q: Any) -> tuple[Any, Any]:
    """Imaginary vector and real part of a whole quaternion."""
    scalar = kind(q).scalar  # type: ignore[attr-defined]
    u = CONSTRUCT(*[EXTRACT(q, attr=(i,)) for i in range(3)], attr=vector(3, scalar))
    return u, EXTRACT(q, attr=(3,))


def _quat(u: Any, w: Any) -> Any:
    return CONSTRUCT(*[EXTRACT(u, attr=(i,)) for i in range(3)], w, attr=quaternion(kind(w)))


def _adjoint_rotate(g: Any, q: Any, v: Any, sign: float) -> Any:
    u, w = _parts(q)
    turn = CROSS(v, g)
    dw = 4.0 * w * DOT(v, g) + sign * 2.0 * DOT(u, turn)
    du = ADD(SCALE(turn, sign * 2.0 * w), SCALE(ADD(SCALE(g, DOT(u, v)), SCALE(v, DOT(u, g))), 2.0))
    return _quat(du, dw)


QUAT_ROTATE = _curved(
    "quat_rotate", type=_rotate_type("quat_rotate"), expand=lambda q, v, types, out: _rotate(q, v),
    adjoint=lambda g, y, q, v: (_adjoint_rotate(g, q, v, 1.0), QUAT_ROTATE_INV(q, g)), exact=True,
    doc="quat_rotate(q: quaternion, v: vec3) -> vec3: v turned by q, which should have length 1.",
)  # fmt: skip
QUAT_ROTATE_INV = _curved(
    "quat_rotate_inv", type=_rotate_type("quat_rotate_inv"), expand=lambda q, v, types, out: _rotate(q, v, -1),
    adjoint=lambda g, y, q, v: (_adjoint_rotate(g, q, v, -1.0), QUAT_ROTATE(q, g)), exact=True,
    doc="quat_rotate_inv(q: quaternion, v: vec3) -> vec3: v turned back by q, which should have length 1.",
)  # fmt: skip


def _quat_matrix(q, types, out):
    x, y, z, w = q
    plain = 2.0 * w * w - 1.0
    two = [2.0 * x, 2.0 * y, 2.0 * z]
    return [
        plain + two[0] * x, two[0] * y - two[2] * w, two[0] * z + two[1] * w,
        two[0] * y + two[2] * w, plain + two[1] * y, two[1] * z - two[0] * w,
        two[0] * z - two[1] * w, two[1] * z + two[0] * w, plain + two[2] * z,
    ]  # fmt: skip


def _adjoint_quat_matrix(g, y, q):
    u, w = _parts(q)
    axial = AXIAL(g)
    du = ADD(SCALE(axial, 2.0 * w), SCALE(MATVEC(ADD(g, TRANSPOSE(g)), u), 2.0))
    return (_quat(du, 4.0 * w * TRACE(g) + 2.0 * DOT(u, axial)),)


QUAT_TO_MATRIX = _curved(
    "quat_to_matrix", type=_quats("quat_to_matrix", lambda t: matrix((3, 3), t.scalar)), expand=_quat_matrix,
    adjoint=_adjoint_quat_matrix, exact=True,
    doc="quat_to_matrix(q: unit quaternion) -> mat33 that turns as quat_rotate does.",
)  # fmt: skip


def _axis_angle_type(axis: Type, angle: Type) -> Type:
    if not isinstance(axis, Vector) or axis.length != 3 or not isinstance(angle, Scalar):
        raise refuse(f"`quat_from_axis_angle` takes a vec3 and a scalar, not {axis} and {angle}", slug="operand-type")
    _scalars_agree("quat_from_axis_angle", axis, angle)
    return quaternion(axis.scalar)


def _axis_angle(axis, angle, types, out):
    s = SIN(0.5 * angle)
    return [axis[0] * s, axis[1] * s, axis[2] * s, COS(0.5 * angle)]


def _adjoint_axis_angle(g, y, axis, angle):
    u, w = _parts(g)
    s, c = SIN(0.5 * angle), COS(0.5 * angle)
    return SCALE(u, s), 0.5 * (DOT(u, axis) * c - w * s)


QUAT_FROM_AXIS_ANGLE = _curved(
    "quat_from_axis_angle", type=_floating("quat_from_axis_angle", _axis_angle_type), expand=_axis_angle,
    adjoint=_adjoint_axis_angle,
    doc="quat_from_axis_angle(axis: unit vec3, angle: radians) -> quaternion.",
)  # fmt: skip
