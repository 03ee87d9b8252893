"""Matrices: products, parts, determinant and inverse of small ones; the inverse of a singular matrix is not finite."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from .. import ir
from ..ir import kind, type_as
from ..row import Operand, refuse
from ..types import Matrix, Scalar, Type, Vector, float16, matrix, vector
from .composite import (
    curved,
    floating,
    linear_tangent,
    multilinear,
    numbers,
    one_type,
    passed,
    plain,
    scalars_agree,
    wants,
)
from .row import ROWS, row
from .scalar import ABS, EVEN, MAX, MIN, NEG, TIMES, same_type
from .vectors import CONSTRUCT, EXTRACT, narrowed, sum_of_products, total, widened


def _grid(m: list, cols: int) -> list[list]:
    return [m[k : k + cols] for k in range(0, len(m), cols)]


TRANSPOSE = multilinear(
    "transpose",
    1,
    expand=lambda m, types, out: [x for j in range(types[0].cols) for x in m[j :: types[0].cols]],
    adjoint=lambda g, y, m: (TRANSPOSE(g),),
    linear=True,
    type=one_type("transpose", Matrix, "a matrix", lambda t: matrix((t.cols, t.rows), t.scalar)),
)


def _shape_error(a: Type, b: Type, instead: str = "") -> TypeError:
    return refuse(f"`*`: the shapes of {a} and {b} do not fit", slug="shape", instead=instead)


def _matvec_type(m: Type, v: Type) -> Type:
    m, v = wants("*", m, Matrix, "a matrix"), wants("*", v, Vector, "a vector")
    scalars_agree("*", m, v)
    if m.cols != v.length:
        raise _shape_error(m, v, "transpose(m) * v" if m.rows == v.length else "")
    return vector(m.rows, m.scalar)


MATVEC = multilinear(
    "matvec",
    2,
    type=numbers("*", _matvec_type),
    expand=lambda m, v, types, out: [sum_of_products(r, v) for r in _grid(m, types[0].cols)],
    adjoint=lambda g, y, m, v: (passed(OUTER, 0)(g, v), passed(MATVEC, 1)(TRANSPOSE(m), g)),
)


def _matmul_type(a: Type, b: Type) -> Type:
    a, b = wants("*", a, Matrix, "a matrix"), wants("*", b, Matrix, "a matrix")
    scalars_agree("*", a, b)
    if a.cols != b.rows:
        raise _shape_error(a, b)
    return matrix((a.rows, b.cols), a.scalar)


def _matmul(a, b, types, out):
    rows, other = _grid(a, types[0].cols), _grid(b, types[1].cols)
    return [sum_of_products(r, [o[j] for o in other]) for r in rows for j in range(types[1].cols)]


def _fused_matmul(stmt: ir.Stmt) -> ir.Stmt | None:
    """Fused derivative rule of U V^T of one singular value decomposition: a rotation that is smooth where U is not."""
    left, right = (a.stmt for a in stmt.args)
    if left is None or right is None or left.row is not ROWS["part"] or right.row is not TRANSPOSE:
        return None
    other, whole = right.args[0].stmt, left.args[0].stmt
    if other is None or other.row is not left.row or other.args != left.args or whole is None:
        return None
    n = type_as(stmt.outs[0], Matrix).rows
    if not whole.row.name.startswith("svd") or (left.attr[0], other.attr[0]) != (0, n * n + n):
        return None
    return ir.Stmt(ROWS["nearest_rotation"], whole.args, stmt.outs)


MATMUL = multilinear(
    "matmul",
    2,
    fused=_fused_matmul,
    type=numbers("*", _matmul_type),
    expand=_matmul,
    adjoint=lambda g, y, a, b: (passed(MATMUL, 0)(g, TRANSPOSE(b)), passed(MATMUL, 1)(TRANSPOSE(a), g)),
)


def _outer_type(a: Type, b: Type) -> Type:
    a, b = wants("outer", a, Vector, "two vectors"), wants("outer", b, Vector, "two vectors")
    scalars_agree("outer", a, b)
    return matrix((a.length, b.length), a.scalar)


OUTER = multilinear(
    "outer",
    2,
    type=numbers("outer", _outer_type),
    expand=lambda a, b, types, out: [x * y for x in a for y in b],
    adjoint=lambda g, y, a, b: (passed(MATVEC, 0)(g, b), passed(MATVEC, 0)(TRANSPOSE(g), a)),
)


def square(name: str, result: Callable[[Matrix], Type], sizes: tuple[int, ...] = ()) -> Callable[..., Type]:
    def rule(*types: Type) -> Type:
        t = wants(name, same_type(name, types), Matrix, "a matrix")
        if t.rows != t.cols or (sizes and t.rows not in sizes):
            what = f"of size {', '.join(map(str, sizes))}" if sizes else "square"
            raise refuse(f"`{name}` takes a matrix that is {what}, not {t}", slug="shape")
        return result(t)

    return rule


TRACE = multilinear(
    "trace",
    1,
    type=numbers("trace", square("trace", lambda t: t.scalar)),
    expand=lambda m, types, out: total(m[:: types[0].cols + 1]),
    adjoint=lambda g, y, m: (
        DIAG(CONSTRUCT(*[g] * type_as(m, Matrix).rows, attr=vector(type_as(m, Matrix).rows, kind(g)))),
    ),
)
GET_DIAG = multilinear(
    "get_diag",
    1,
    type=square("get_diag", lambda t: vector(t.rows, t.scalar)),
    expand=lambda m, types, out: list(m[:: types[0].cols + 1]),
    adjoint=lambda g, y, m: (DIAG(g),),
)
DIAG = multilinear(
    "diag",
    1,
    type=one_type("diag", Vector, "a vector", lambda t: matrix((t.length, t.length), t.scalar)),
    expand=lambda v, types, out: [v[i] if i == j else 0 for i in range(len(v)) for j in range(len(v))],
    adjoint=lambda g, y, v: (GET_DIAG(g),),
)


def _skew_type(v: Type) -> Type:
    if not isinstance(v, Vector) or v.length != 3:
        raise refuse(f"`skew` takes a vector of length 3, not {v}", slug="operand-type")
    return matrix((3, 3), v.scalar)


SKEW = multilinear(
    "skew",
    1,
    type=numbers("skew", _skew_type),
    expand=lambda v, types=None, out=None: [0, -v[2], v[1], v[2], 0, -v[0], -v[1], v[0], 0],
    adjoint=lambda g, y, v: (AXIAL(g),),
)
AXIAL = multilinear(
    "axial",
    1,
    type=square("axial", lambda t: vector(3, t.scalar), (3,)),
    adjoint=lambda g, y, m: (SKEW(g),),
    expand=lambda m, types, out: [m[7] - m[5], m[2] - m[6], m[3] - m[1]],
)


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


def _even(m: list, n: int, t: Scalar) -> tuple[list[list], list]:
    """The rows, each times a power of two such that products of n components neither overflow nor vanish; those powers.

    Components of float16 go to float32 instead: then there are none.
    """
    if t is float16:
        return _grid(widened(m, t), n), []
    powers, rows, near = [], _grid(m, n), (int(np.finfo(t.numpy).maxexp) - 6) // n - 1
    for r in rows:
        size = total(ABS(plain(x)) for x in r)  # to choose the largest costs more than all the rest
        powers.append(EVEN(size, attr=near))
    return [[x * by for x in r] for r, by in zip(rows, powers, strict=True)], powers


def _adjugate(rows: list[list]) -> list[list]:
    """The cofactors, by row and column."""
    n = len(rows)
    dets = [[_det(_minor(rows, i, j)) for j in range(n)] for i in range(n)]
    return [[d if (i + j) % 2 == 0 else -d for j, d in enumerate(row)] for i, row in enumerate(dets)]


def _unscaled(x: Operand, powers: list, t: Scalar) -> Any:
    """x, made of products of one component of each scaled row, in the scale of the unscaled components.

    Divided by the largest power, then by the smallest, and so on inwards: so no intermediate overflows or underflows
    where the result does not.
    """
    left = list(powers)
    while left:
        largest = reduce(MAX, left)
        x = x * (t.numpy.type(1) / largest)
        if len(left) > 1:
            smallest = reduce(MIN, left)
            x = x * (t.numpy.type(1) / smallest)
        left = _without_ends(left)
    return x


def _without_ends(powers: list) -> list:
    """At most two numbers between the largest and the smallest of at most four."""
    if len(powers) < 3:
        return []
    a, b, *rest = powers
    low, high = MIN(a, b), MAX(a, b)
    if len(rest) == 1:
        return [MAX(low, MIN(high, rest[0]))]
    other_low, other_high = MIN(*rest), MAX(*rest)
    return [MAX(low, other_low), MIN(high, other_high)]


def _cofactors(m, types, out):
    rows, powers = _even(m, out.rows, out.scalar)
    found = _adjugate(rows)
    if not powers:
        return narrowed([x for r in found for x in r], out.scalar)
    others = [powers[:i] + powers[i + 1 :] for i in range(out.rows)]
    return [_unscaled(x, by, out.scalar) for r, by in zip(found, others, strict=True) for x in r]


def _determinant(m, types, out):
    rows, powers = _even(m, types[0].rows, out)
    return _unscaled(_det(rows), powers, out) if powers else narrowed([_det(rows)], out)[0]


def _inverse(m, types, out):
    n = out.rows
    rows, powers = _even(m, n, out.scalar)
    cof = _adjugate(rows)
    det = total(x * c for x, c in zip(rows[0], cof[0], strict=True))
    made = [cof[j][i] / det for i in range(n) for j in range(n)]
    return [x * powers[k % n] for k, x in enumerate(made)] if powers else narrowed(made, out.scalar)


def _flat_inverse(t, y):
    return NEG(passed(MATMUL, 0)(passed(MATMUL, 1)(y, t), y))


_SIZES = (2, 3, 4)
COFACTORS = curved(
    "cofactors",
    type=floating("cofactors", square("cofactors", lambda t: t, _SIZES)),
    expand=_cofactors,
    adjoint=lambda g, y, m: (ROWS["d_cofactors"](m, g),),
    exact=True,
)
DETERMINANT = row(
    "determinant",
    type=floating("determinant", square("determinant", lambda t: t.scalar, _SIZES)),
    expand=_determinant,
    adjoint=lambda g, y, m: (TIMES(g, COFACTORS(m)),),
    exact=True,
    tangent=lambda ts, y, m: ROWS["dot_both"](ts[0], COFACTORS(m)),
)
INVERSE = row(
    "inverse",
    type=floating("inverse", square("inverse", lambda t: t, _SIZES)),
    expand=_inverse,
    adjoint=lambda g, y, m: (_flat_inverse(g, TRANSPOSE(y)),),
    exact=True,
    cost=8,
    tangent=lambda ts, y, m: _flat_inverse(ts[0], y),
)


def _rows_type(*types: Type) -> Type:
    v = wants("matrix_from_rows", same_type("matrix_from_rows", types), Vector, "vectors")
    return matrix((len(types), v.length), v.scalar)


MATRIX_FROM_ROWS = row(
    "matrix_from_rows",
    type=_rows_type,
    expand=lambda *rows, types, out: [x for r in rows for x in r],
    adjoint=lambda g, y, *rows: tuple(EXTRACT(g, attr=(i,)) for i in range(len(rows))),
    tangent=linear_tangent("matrix_from_rows"),
    exact=True,
)
