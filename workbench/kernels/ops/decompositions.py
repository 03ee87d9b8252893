"""Singular values, eigenvalues, orthogonal factors of small matrices, with exact derivatives where values are apart.

Each row gives its factors one behind the other in one vector; the builtin takes them apart. Where two values meet their
vectors have no derivative: an adjoint that comes to them there is refused, a tangent is NaN, never a number made up.
What depends on the values alone, and the rotation U V^T, have one (`polar`). Vectors times a value of exactly 0 count
as unused, as any adjoint of 0 does: U diag(sigma) V^T of a matrix with two singular values 0 does not get the
derivative of the matrix through them.
Derivatives: Giles, An extended collection of matrix derivative results, 2008,
with 1 / (b² - a²) split into 1 / (b - a) and 1 / (b + a), of which each is as far from zero as the values allow.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from ..ir import kind, numeric, type_as
from ..row import Operand, Row, Singular, refuse
from ..types import Matrix, Scalar, Type, float32, float64, scalar_of, vector
from .c_text import c_parts, of_floats
from .composite import floating, moved_by_some, multilinear, nothing_of_zero
from .matrices import AXIAL, DETERMINANT, DIAG, GET_DIAG, INVERSE, MATMUL, MATVEC, OUTER, SKEW, TRACE, TRANSPOSE, square
from .parts import JOIN, PART
from .row import like, plus, row, stop
from .scalar import (
    ABS,
    ADD,
    COPYSIGN,
    EQ,
    ISFINITE,
    LE,
    LOGICAL_AND,
    LOGICAL_NOT,
    LT,
    MAX,
    MUL,
    NE,
    NEG,
    OVER,
    SQRT,
    SUB,
    WHERE,
)
from .vectors import CONSTRUCT, DOT, EXTRACT, SCALE, cross_product, sum_of_products

SWEEPS = 6


def _factors_type(name: str, size: int, count: int, m: Type) -> Type:
    """Of a matrix of this size over float32 or float64; the factors are `count` numbers."""
    if not isinstance(m, Matrix) or m.shape != (size, size) or m.scalar not in (float32, float64):
        raise refuse(f"`{name}` takes a {size}x{size} matrix of float32 or float64, not {m}", slug="operand-type")
    return vector(count, m.scalar)


def _columns(m: list, n: int) -> list[list]:
    return [[m[n * i + j] for i in range(n)] for j in range(n)]


def _rotated(a: list, b: list, c: Operand, s: Operand) -> tuple[list, list]:
    return [c * x - s * y for x, y in zip(a, b, strict=True)], [s * x + c * y for x, y in zip(a, b, strict=True)]


def _tiny(scalar: Scalar) -> float:
    """Below it squares vanish."""
    return 16.0 * math.sqrt(np.finfo(scalar.numpy).tiny)


def _angle(off: Operand, difference: Operand, scalar: Scalar) -> tuple[Any, Any, Any]:
    """Tangent, cosine and sine of the small angle whose turn makes `off` zero beside a difference of diagonals."""
    root = SQRT(difference * difference + 4.0 * (off * off))
    t = 2.0 * off / (difference + COPYSIGN(root, difference))
    t = WHERE(LE(ABS(off), _tiny(scalar)), off * 0.0, t)
    c = 1.0 / SQRT(t * t + 1.0)
    return t, c, t * c


# ---- the factors


def _scaled(m: list) -> tuple[list, Any]:
    """m over its largest component, and that, so that no square overflows or vanishes; 1 for a matrix of zeros."""
    most = reduce(MAX, (ABS(x) for x in m))
    most = WHERE(EQ(most, 0.0), most + 1.0, most)
    return [x / most for x in m], most


def _eig3(m, scalar):
    """Eigenvectors and eigenvalues by cyclic Jacobi rotations (Jacobi, 1846)."""
    m, size = _scaled(m)
    a = [[0.5 * (m[3 * i + j] + m[3 * j + i]) for j in range(3)] for i in range(3)]
    q = [[1.0 if i == j else 0.0 for i in range(3)] for j in range(3)]
    for _ in range(SWEEPS):
        for i, j in ((0, 1), (0, 2), (1, 2)):
            k = 3 - i - j
            off = a[i][j]
            t, c, s = _angle(off, a[j][j] - a[i][i], scalar)
            a[i][i], a[j][j] = a[i][i] - t * off, a[j][j] + t * off
            a[i][k], a[j][k] = c * a[i][k] - s * a[j][k], s * a[i][k] + c * a[j][k]
            a[k][i], a[k][j] = a[i][k], a[j][k]
            a[i][j] = a[j][i] = off * 0.0
            q[i], q[j] = _rotated(q[i], q[j], c, s)
    return [q[j][i] for i in range(3) for j in range(3)] + [a[i][i] * size for i in range(3)]


def _hestenes(columns: list, v: list, sweeps: int, scalar: Scalar) -> None:
    """One-sided Jacobi: rotate pairs of columns until they are orthogonal (Hestenes, 1958); v rotates along."""
    for _ in range(sweeps):
        for i, j in itertools.combinations(range(len(columns)), 2):
            a, b = columns[i], columns[j]
            _, c, s = _angle(sum_of_products(a, b), sum_of_products(b, b) - sum_of_products(a, a), scalar)
            columns[i], columns[j] = _rotated(a, b, c, s)
            v[i], v[j] = _rotated(v[i], v[j], c, s)


def _ordered(columns: list, v: list) -> None:
    """The longest column first; of two that change places one is negated, so that v stays a rotation."""
    for i, j in ((0, 1), (0, 2), (1, 2))[: len(columns) * (len(columns) - 1) // 2]:
        swap = LT(sum_of_products(columns[i], columns[i]), sum_of_products(columns[j], columns[j]))
        for pair in (columns, v):
            a, b = pair[i], pair[j]
            pair[i] = [WHERE(swap, y, x) for x, y in zip(a, b, strict=True)]
            pair[j] = [WHERE(swap, -x, y) for x, y in zip(a, b, strict=True)]


def _direction(a: list, other: list) -> tuple[list, Any]:
    """The normalized column (`other` where its length is 0), and the length."""
    size = SQRT(sum_of_products(a, a))
    some = NE(size, 0.0)
    return [WHERE(some, x / size, y) for x, y in zip(a, other, strict=True)], size


def _across(a: list) -> list:
    """A unit vector orthogonal to a unit vector."""
    flat = LT(ABS(a[0]), 0.6)
    made = [WHERE(flat, a[0] * 0.0, a[2]), WHERE(flat, a[2], a[0] * 0.0), WHERE(flat, -a[1], -a[0])]
    size = SQRT(sum_of_products(made, made))
    return [x / size for x in made]


def _less(b: list, a: list) -> list:
    """b without its part along the unit vector a (one Gram-Schmidt step)."""
    along = sum_of_products(a, b)
    return [y - x * along for x, y in zip(a, b, strict=True)]


def _svd3(m, scalar):
    m, size = _scaled(m)
    columns, v = _columns(m, 3), [[1.0 if i == j else 0.0 for i in range(3)] for j in range(3)]
    _hestenes(columns, v, SWEEPS, scalar)
    _ordered(columns, v)
    first, s0 = _direction(columns[0], [1.0, 0.0, 0.0])
    second, s1 = _direction(_less(columns[1], first), _across(first))
    third = cross_product(first, second)
    values = [s0 * size, s1 * size, sum_of_products(third, columns[2]) * size]
    u = [first, second, third]
    return [u[j][i] for i in range(3) for j in range(3)] + values + [v[j][i] for i in range(3) for j in range(3)]


def _svd2(m, types, out):
    m, size = _scaled(m)
    columns, v = _columns(m, 2), [[1.0, 0.0], [0.0, 1.0]]
    _hestenes(columns, v, 2, out.scalar)
    _ordered(columns, v)
    (x, y), s0 = _direction(columns[0], [1.0, 0.0])
    height = x * columns[1][1] - y * columns[1][0]
    flip = LT(height, 0.0)
    second = [WHERE(flip, y, -y), WHERE(flip, -x, x)]
    values = [s0 * size, ABS(height) * size]
    return [x, second[0], y, second[1], *values, v[0][0], v[1][0], v[0][1], v[1][1]]


def _qr3(m, types, out):
    """Gram-Schmidt with reorthogonalization: columns are orthogonal to the last bits."""
    m, size = _scaled(m)
    a, b, c = _columns(m, 3)
    first, _ = _direction(a, [1.0, 0.0, 0.0])
    second, _ = _direction(_less(_less(b, first), first), _across(first))
    third = cross_product(first, second)
    q = [first, second, third]
    r = [
        sum_of_products(q[i], col) * size if i <= j else size * 0.0 for i in range(3) for j, col in enumerate((a, b, c))
    ]
    return [q[j][i] for i in range(3) for j in range(3)] + r


# ---- the same as C with loops


for _scalar, _suffix in ((float32, "f"), (float64, "")):
    for _name, _text in c_parts(__file__, "decompositions.c").items():
        _text = _text.rstrip().replace("SWEEPS", str(SWEEPS)).replace("TINY", f"(T){_tiny(_scalar)!r}")
        of_floats(_name, _text, _scalar.c, _suffix)

# ---- derivatives


def _gap(name: str, sign: int) -> Row:
    """p_ij / (s_j - s_i), or over the sum: 0 on the diagonal. Where these meet it is 0 if w_ij is 0, else NaN."""

    def rule(p: Type, w: Type, s: Type) -> Type:
        if not isinstance(p, Matrix) or w != p or s != vector(p.rows, p.scalar) or p.rows != p.cols:
            raise refuse(f"`{name}` takes two square matrices and a vector, not {p}, {w} and {s}", slug="operand-type")
        return p

    def expand(p, w, s, types, out):
        n, made = len(s), []
        most = reduce(MAX, (ABS(x) for x in s))
        near = most * (8.0 * float(np.finfo(out.scalar.numpy).eps))
        for i, j in itertools.product(range(n), repeat=2):
            between = s[j] + s[i] if sign > 0 else s[j] - s[i]
            meet = LE(ABS(between), near)
            nothing = EQ(w[n * i + j], 0.0)
            flat = between * 0.0
            where = WHERE(nothing, flat, flat / flat)
            made.append(p[n * i + j] * 0.0 if i == j else WHERE(meet, where, p[n * i + j] / between))
        return made

    def adjoint(g, y, p, w, s):
        itself = (APART, TOGETHER)[sign > 0]
        h = itself(MUL(g, y), w, s)
        ones = like(s, kind(s), 1)
        down, across = MATVEC(TRANSPOSE(h), ones), MATVEC(h, ones)
        return itself(g, w, s), None, NEG(ADD(down, across)) if sign > 0 else SUB(across, down)

    def tangent(ts, y, p, w, s):
        itself = (APART, TOGETHER)[sign > 0]
        first = None if ts[0] is None else itself(ts[0], w, s)
        if ts[2] is None:
            return first
        wide = OUTER(like(s, kind(s), 1), ts[2])
        gap = (_both if sign > 0 else _twist)(wide)
        return plus(first, NEG(itself(MUL(y, gap), w, s)))

    return row(name, type=rule, expand=expand, adjoint=nothing_of_zero(adjoint), tangent=moved_by_some(tangent))


APART, TOGETHER = _gap("apart", -1), _gap("together", 1)


LOWER = multilinear(
    "lower",
    1,
    type=square("qr3", lambda t: t),
    adjoint=lambda g, y, m: (LOWER(g),),
    expand=lambda m, types, out: [x if k // out.cols > k % out.cols else 0 for k, x in enumerate(m)],
)


def _pair(m: Operand) -> Any:
    """|m| + |m|^T: the combined size of the elements ij and ji."""
    return _both(ABS(m))


def _twist(m: Operand) -> Any:
    return SUB(m, TRANSPOSE(m))


def _both(m: Operand) -> Any:
    return ADD(m, TRANSPOSE(m))


def _factors(y: Operand, m: Operand, shapes: str) -> list[Any]:
    """The factors out of one vector: M a matrix like m, v a vector of its rows."""
    type = type_as(m, Matrix)
    found, start = [], 0
    for shape in shapes:
        part = type if shape == "M" else vector(type.rows, type.scalar)
        found.append(PART(y, attr=(start, part)))
        start += part.size
    return found


def _about(left: Operand, m: Operand, right: Operand) -> Any:
    """left m right^T."""
    return MATMUL(MATMUL(left, m), TRANSPOSE(right))


def _adjoint_svd(g, y, m):
    u, s, v = _factors(y, m, "MvM")
    du, ds, dv = _factors(g, m, "MvM")
    a, b = MATMUL(TRANSPOSE(u), du), MATMUL(TRANSPOSE(v), dv)
    size, left, right = ADD(_pair(a), _pair(b)), _twist(a), _twist(b)
    inner = ADD(APART(ADD(left, right) * 0.5, size, s), TOGETHER(SUB(left, right) * 0.5, size, s))
    return (_about(u, ADD(inner, DIAG(ds)), v),)


def _tangent_svd(ts, y, m):
    u, s, v = _factors(y, m, "MvM")
    p = MATMUL(MATMUL(TRANSPOSE(u), ts[0]), v)
    even, odd = APART(_both(p) * 0.5, _pair(p), s), TOGETHER(_twist(p) * 0.5, _pair(p), s)
    return JOIN(MATMUL(u, ADD(even, odd)), GET_DIAG(p), MATMUL(v, SUB(even, odd)), attr=kind(y))


def _bend(r: Operand, m: Operand) -> Any:
    """The matrix W = tr(P) - P of m = r P, of which the turn of r is W^-1 axial(r^T dm); of a mat22 tr(P), a scalar."""
    p = MATMUL(TRANSPOSE(r), m)
    if type_as(m, Matrix).rows == 2:
        return TRACE(p)
    return SUB(SCALE(like(p, kind(p), np.eye(3)), TRACE(p)), p)


def _turned(r: Operand, m: Operand, g: Operand) -> Any:
    """r times the antisymmetric X with X P + P X = r^T g - g^T r, m = r P: symmetric, adjoint and tangent in one."""
    w, q = _bend(r, m), MATMUL(TRANSPOSE(r), g)
    if type_as(m, Matrix).rows == 2:
        x = OVER(SUB(EXTRACT(q, attr=(1, 0)), EXTRACT(q, attr=(0, 1))), w)
        return MATMUL(r, CONSTRUCT(like(x, kind(x)), NEG(x), x, like(x, kind(x)), attr=kind(m)))
    return MATMUL(r, SKEW(MATVEC(INVERSE(w), AXIAL(q))))


def _no_turn(r: Operand, m: Operand) -> Any:
    """True where two stretches are opposite or 0, to rounding: then the nearest rotation jumps."""
    w, size = _bend(r, m), DOT(ABS(m), like(m, kind(m), np.ones(numeric(m).shape)))
    near = 8.0 * float(np.finfo(numeric(m).scalar.numpy).eps) * size
    return LE(ABS(w), near) if type_as(m, Matrix).rows == 2 else LE(ABS(DETERMINANT(w)), near * size * size)


def _adjoint_eig(g, y, m):
    (q, d), (dq, dd) = _factors(y, m, "Mv"), _factors(g, m, "Mv")
    p = MATMUL(TRANSPOSE(q), dq)
    return (_about(q, ADD(APART(_twist(p) * 0.5, _pair(p), d), DIAG(dd)), q),)


row(
    "nearest_rotation",
    type=floating("nearest_rotation", square("nearest_rotation", lambda t: t, (2, 3))),
    meaning=lambda m: svd_rotation(m),
    adjoint=nothing_of_zero(lambda g, y, m: (_turned(y, m, g),)),
    tangent=moved_by_some(lambda ts, y, m: _turned(y, m, ts[0])),
    singular=Singular(
        lambda g, y, m: _no_turn(y, m),
        "the nearest rotation of a matrix of which two stretches are 0, or opposite, has no derivative: it jumps",
        "a matrix of positive determinant",
        refused=True,
    ),
)


def _tangent_eig(ts, y, m):
    q, d = _factors(y, m, "Mv")
    p = MATMUL(MATMUL(TRANSPOSE(q), _both(ts[0]) * 0.5), q)
    return JOIN(MATMUL(q, APART(p, _pair(p), d)), GET_DIAG(p), attr=kind(y))


def _adjoint_qr(g, y, m):
    (q, r), (dq, dr) = _factors(y, m, "MM"), _factors(g, m, "MM")
    inner = SUB(MATMUL(r, TRANSPOSE(dr)), MATMUL(TRANSPOSE(dq), q))
    return (MATMUL(ADD(dq, MATMUL(q, ADD(_both(LOWER(inner)), DIAG(GET_DIAG(inner))))), TRANSPOSE(INVERSE(r))),)


def _tangent_qr(ts, y, m):
    q, r = _factors(y, m, "MM")
    x = MATMUL(MATMUL(TRANSPOSE(q), ts[0]), INVERSE(r))
    turn = _twist(LOWER(x))
    return JOIN(MATMUL(q, turn), MATMUL(SUB(x, turn), r), attr=kind(y))


def _factor_row(
    name: str, size: int, count: int, adjoint: Callable[..., Any], tangent: Callable[..., Any], **how: Any
) -> Row:
    return row(
        f"{name}_factors",
        type=floating(name, partial(_factors_type, name, size, count)),
        adjoint=nothing_of_zero(adjoint),
        tangent=moved_by_some(tangent),
        cost=256,
        singular=_singular(name, adjoint),
        **how,
    )


_MEETING = "the vectors of `{}` have no derivative where two values meet, and the gradient goes through them"
_SINGULAR = "the factors of `qr3` of a singular matrix have no derivative, and the gradient goes through them"
_INSTEAD = {
    "svd": "r, p = wb.polar(m), the rotation U V^T and the stretch V diag(sigma) V^T, which are smooth; or sigma alone",
    "qr3": "a matrix of full rank; r, p = wb.polar(m) for a rotation that is smooth",
    "eig": "the eigenvalues alone, or functions of the matrix itself, as wb.trace, wb.determinant, wb.ddot(m, m)",
}


def _singular(name: str, adjoint: Callable[..., Any]) -> Singular:
    """Of factors: refused where their adjoint is not finite, though what it comes from is."""

    def met(g: Operand, y: Operand, m: Operand) -> Any:
        (made,) = adjoint(g, y, m)
        return LOGICAL_AND(LOGICAL_NOT(ISFINITE(made)), LOGICAL_AND(ISFINITE(g), ISFINITE(y)))

    text = _SINGULAR if name == "qr3" else _MEETING.format(name)
    return Singular(met, text, _INSTEAD[name[:3]], refused=True)


def _by_loops(values: Callable[..., list], name: str) -> dict[str, Any]:
    """Arguments of a row computed by a C function with loops: components written out compile for seconds."""
    return {"meaning": lambda m: values(list(np.ravel(m)), scalar_of(m.dtype)), "fills": f"wb_{name}"}


SVD2 = _factor_row("svd2", 2, 10, _adjoint_svd, _tangent_svd, expand=_svd2)
SVD3 = _factor_row("svd3", 3, 21, _adjoint_svd, _tangent_svd, **_by_loops(_svd3, "svd3"))
QR3 = _factor_row("qr3", 3, 18, _adjoint_qr, _tangent_qr, expand=_qr3)
EIG3 = _factor_row("eig3", 3, 12, _adjoint_eig, _tangent_eig, **_by_loops(_eig3, "eig3"))


# ---- what users call


def svd2(m: Operand) -> tuple[Any, ...]:
    """svd2(m: mat22) -> (U: mat22, sigma: vec2, V: mat22) with m = U diag(sigma) V^T; sigma falls, none negative.

    V is a rotation. In a kernel also svd2(m, U, sigma, V), which assigns them. Where singular values meet, or one is
    zero, a derivative that comes through U or V is refused; through sigma alone, or through U * transpose(V), it is
    exact (see polar).
    """
    return tuple(_factors(SVD2(m), m, "MvM"))


def svd3(m: Operand) -> tuple[Any, ...]:
    """svd3(m: mat33) -> (U: mat33, sigma: vec3, V: mat33) with m = U diag(sigma) V^T.

    U and V are rotations; sigma falls in size, and its last component has the sign of the determinant. In a kernel also
    svd3(m, U, sigma, V), which assigns them. Where sizes meet, as for the identity, a derivative that comes through U
    or V is refused; through sigma alone, or through U * transpose(V), it is exact (see polar). Vectors multiplied by a
    value of exactly 0 count as unused there.
    """
    return tuple(_factors(SVD3(m), m, "MvM"))


def svd_rotation(m: Operand) -> Any:
    """U V^T of the singular value decomposition of a mat22 or mat33."""
    u, _, v = (svd2 if type_as(m, Matrix).rows == 2 else svd3)(m)
    return MATMUL(u, TRANSPOSE(v))


def polar(m: Operand) -> tuple[Any, Any]:
    """polar(m: mat22 or mat33) -> (R, P), matrices with m = R P: the nearest rotation, and the symmetric stretch.

    R of a mat33 is a rotation, whose stretch has a negative value if the determinant is negative; of a mat22 it is then
    a reflection. In a kernel also polar(m, R, P), which assigns them. Derivatives are exact also where stretches are
    equal, as at rest; where two of them are 0, or opposite, R jumps, and a derivative through it is refused.
    """
    t = kind(m)
    if not isinstance(t, Matrix) or t.shape not in ((2, 2), (3, 3)):
        raise stop((m,), f"`polar` takes a mat22 or mat33, not {t}", slug="operand-type")
    r = svd_rotation(m)
    p = MATMUL(TRANSPOSE(r), m)
    return r, SCALE(_both(p), 0.5)


def qr3(m: Operand) -> tuple[Any, ...]:
    """qr3(m: mat33) -> (Q: mat33, R: mat33) with m = Q R, Q a rotation and R zero below its diagonal.

    The last diagonal element of R has the sign of the determinant, the others none. In a kernel also qr3(m, Q, R),
    which assigns them. Of a singular matrix the derivative is refused.
    """
    return tuple(_factors(QR3(m), m, "MM"))


def eig3(m: Operand) -> tuple[Any, ...]:
    """eig3(m: mat33) -> (Q: mat33, d: vec3): eigenvectors, the columns of Q, and eigenvalues, in no order.

    They are those of the symmetric matrix (m + m^T) / 2 = Q diag(d) Q^T; Q is a rotation. In a kernel also
    eig3(m, Q, d), which assigns them. Where eigenvalues meet a derivative that comes through Q is refused; one through
    d alone is exact. Vectors multiplied by a value of exactly 0 count as unused there.
    """
    return tuple(_factors(EIG3(m), m, "Mv"))


DECOMPOSITIONS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (svd2, svd3, polar, qr3, eig3)}
