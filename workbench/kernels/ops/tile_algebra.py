"""Rows over tiles of more than one step: triangular systems, Cholesky factors, scans, orders, Fourier transforms.

Their adjoints are made of the same rows (the adjoint of a factor by forward and back substitution: Murray,
Differentiation of the Cholesky decomposition, 2016), so they have derivatives of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import type_as
from ..row import Operand, Row, refuse
from ..types import Tile, Type, float16, int32
from .c_text import c_turns
from .composite import moved_by_some, nothing_of_zero
from .row import like, row, zero
from .scalar import ADD, NEG, SUB
from .tiles import MATMUL, TRANSPOSE, floats_of, tile_of

# ---- parts of a square matrix


def _square(name: str, t: Type) -> Tile:
    found = floats_of(name, t, 2)
    if found.dims[0] != found.dims[1]:
        raise refuse(f"`{name}` takes a square tile, not {found}", slug="tile-shape")
    if found.scalar is float16:
        text = f"`{name}` takes float32 or float64, not {found}"
        raise refuse(text, slug="operand-type", instead="tile_astype(t, dtype=wb.float32)")
    return found


_PARTS = {"lower": "{r} >= {c}", "upper": "{r} <= {c}", "half": "{r} >= {c}"}


def _part(t: np.ndarray, attr: str) -> np.ndarray:
    made = np.triu(t) if attr == "upper" else np.tril(t)
    return made - np.diag(np.diag(t)) / 2 if attr == "half" else made


def _part_block(types, type, out, t, attr):
    n = type.dims[1]
    r, c = f"wb_k / {n}", f"wb_k % {n}"
    value = f"{t}.c[wb_k]" if attr != "half" else f"({r} == {c} ? {t}.c[wb_k] / 2 : {t}.c[wb_k])"
    return f"WB_TILE(wb_k, {type.size}) {out}.c[wb_k] = {_PARTS[attr].format(r=r, c=c)} ? {value} : 0;"


PART = row(
    "tile_part",
    type=lambda t, attr: _square("tile_part", t),
    facts="typed_by_attr linear exact",
    meaning=_part,
    adjoint=lambda g, y, t, attr: (PART(g, attr=attr),),
    block=_part_block,
)


def _diag_type(d: Type) -> Type:
    t = tile_of("tile_diag_add", d, 1)
    return Tile(t.dims * 2, t.scalar)


def _diagonal_type(t: Type) -> Type:
    found = tile_of("tile_diagonal", t, 2)
    return Tile((min(found.dims),), found.scalar)


DIAG = row(
    "tile_diag",
    type=_diag_type,
    meaning=np.diag,
    facts="linear exact moves",
    adjoint=lambda g, y, d: (DIAGONAL(g),),
    block=lambda types, type, out, d: (
        f"WB_TILE(wb_k, {type.size}) {out}.c[wb_k] = wb_k % {type.dims[0] + 1} == 0 ? {d}.c[wb_k / {type.dims[0]}] : 0;"
    ),
)
DIAGONAL = row(
    "tile_diagonal",
    type=_diagonal_type,
    meaning=np.diagonal,
    facts="linear exact moves",
    adjoint=lambda g, y, t: (DIAG(g),),
    block=lambda types, type, out, t: (
        f"WB_TILE(wb_k, {type.size}) {out}.c[wb_k] = {t}.c[wb_k * {types[0].dims[1] + 1}];"
    ),
)

# ---- triangular systems and factors


def _solve_type(a: Type, y: Type, attr: str) -> Type:
    name = "tile_lower_solve"
    found, right = _square(name, a), floats_of(name, y, 2)
    if right.dims[0] != found.dims[0] or right.scalar != found.scalar:
        raise refuse(f"`{name}` of {found} takes no {right}", slug="tile-shape", instead="shapes (n, n) and (n, m)")
    return right


def _solve(a: np.ndarray, y: np.ndarray, attr: str) -> np.ndarray:
    x, n = np.array(y), len(a)
    for i in range(n) if attr == "lower" else reversed(range(n)):
        for j in range(i) if attr == "lower" else range(i + 1, n):
            x[i] = x[i] - a[i, j] * x[j]
        x[i] = x[i] / a[i, i]
    return x


def _solve_block(types, type, out, a, y, attr):
    n, m = type.dims
    return f"WB_SOLVE({type.scalar.c}, {n}, {m}, {out}.c, {a}.c, {int(attr == 'upper')})"


def _other(attr: str) -> str:
    return "upper" if attr == "lower" else "lower"


def _product(a: Operand, b: Operand) -> Any:
    left, right = type_as(a, Tile), type_as(b, Tile)
    return MATMUL(like(a, Tile((left.dims[0], right.dims[1]), left.scalar)), a, b, attr=0)


def _adjoint_solve(g, x, a, y, attr):
    d = SOLVE(TRANSPOSE(a), g, attr=_other(attr))
    return NEG(PART(MATMUL(zero(a), d, TRANSPOSE(x), attr=1), attr=attr)), d


def _tangent_solve(ts, x, a, y, attr):
    total = ts[1]
    if ts[0] is not None:
        moved = NEG(_product(PART(ts[0], attr=attr), x))
        total = moved if total is None else ADD(total, moved)
    return None if total is None else SOLVE(a, total, attr=attr)


SOLVE = row(
    "tile_solve",
    type=_solve_type,
    typed_by_attr=True,
    meaning=_solve,
    onto=1,
    cost=16,
    adjoint=nothing_of_zero(_adjoint_solve),
    tangent=moved_by_some(_tangent_solve),
    block=_solve_block,
)


def _cholesky(a: np.ndarray) -> np.ndarray:
    made, n = np.tril(a), len(a)
    for j in range(n):
        for i in range(j, n):
            for k in range(j):
                made[i, j] = made[i, j] - made[i, k] * made[j, k]
            made[i, j] = np.sqrt(made[i, j]) if i == j else made[i, j] / made[j, j]
    return made


def _adjoint_cholesky(g, low, a):
    inner = PART(MATMUL(zero(a), TRANSPOSE(low), PART(g, attr="lower"), attr=2), attr="half")
    left = SOLVE(TRANSPOSE(low), inner, attr="upper")
    s = TRANSPOSE(SOLVE(TRANSPOSE(low), TRANSPOSE(left), attr="upper"))
    return (PART(ADD(s, TRANSPOSE(PART(SUB(s, DIAG(DIAGONAL(s))), attr="upper"))), attr="lower"),)


def _tangent_cholesky(ts, low, a):
    if ts[0] is None:
        return None
    half = PART(ts[0], attr="half")
    whole = ADD(half, TRANSPOSE(half))
    inner = SOLVE(low, TRANSPOSE(SOLVE(low, whole, attr="lower")), attr="lower")
    return _product(low, PART(inner, attr="half"))


CHOLESKY = row(
    "tile_cholesky",
    type=lambda a: _square("tile_cholesky", a),
    meaning=_cholesky,
    onto=0,
    cost=64,
    adjoint=nothing_of_zero(_adjoint_cholesky),
    tangent=moved_by_some(_tangent_cholesky),
    block=lambda types, type, out, a: f"WB_CHOLESKY({type.scalar.c}, {type.dims[0]}, {out}.c)",
)

# ---- sums so far


def _scan(t: np.ndarray, attr: tuple[bool, bool]) -> np.ndarray:
    inclusive, backward = attr
    flat = np.ravel(t)[::-1] if backward else np.ravel(t)
    made, total = np.empty_like(flat), flat.dtype.type(0)
    for k, x in enumerate(flat):
        made[k] = total
        total = total + x
        made[k] = total if inclusive else made[k]
    return np.reshape(made[::-1] if backward else made, t.shape)


def _scan_block(types, type, out, t, attr):
    inclusive, backward = attr
    step = f"wb_s += {t}.c[wb_k]; {out}.c[wb_k] = wb_s;"
    if not inclusive:
        step = f"{type.scalar.c} wb_x = {t}.c[wb_k]; {out}.c[wb_k] = wb_s; wb_s += wb_x;"
    return f"WB_ONE {{ {type.scalar.c} wb_s = 0; for ({c_turns('wb_k', type.size, backward)}) {{ {step} }} }}"


SCAN = row(
    "tile_scan",
    type=lambda t, attr: tile_of("tile_scan_inclusive", t),
    facts="typed_by_attr linear",
    meaning=_scan,
    block=_scan_block,
    adjoint=lambda g, y, t, attr: (SCAN(g, attr=(attr[0], not attr[1])),),
)

# ---- orders

_BETTER = {"min": "<", "max": ">"}


def _best_type(t: Type, attr: str) -> Type:
    tile_of(f"tile_arg{attr}", t)
    return int32


BEST = row(
    "tile_best",
    type=_best_type,
    facts="typed_by_attr exact",
    meaning=lambda t, attr: _best_so_far(np.ravel(t), attr)[-1],
    block=lambda types, type, out, t, attr: (
        f"for (int32_t wb_k = 1; wb_k < {types[0].size}; ++wb_k)"
        f" if ({t}.c[wb_k] {_BETTER[attr]} {t}.c[{out}]) {out} = wb_k;"
    ),
)


def _best_so_far(t: np.ndarray, attr: str) -> np.ndarray:
    made, best = np.empty(t.shape, np.int32), 0
    for k in range(t.size):
        best = k if (t[k] < t[best] if attr == "min" else t[k] > t[best]) else best
        made[k] = best
    return made


BEST_SO_FAR = row(
    "tile_best_so_far",
    type=lambda t, attr: Tile(tile_of(f"tile_scan_{attr}_inclusive", t, 1).dims, int32),
    facts="typed_by_attr exact",
    meaning=_best_so_far,
    block=lambda types, type, out, t, attr: (
        f"WB_ONE {{ int32_t wb_s = 0; for (int32_t wb_k = 0; wb_k < {type.size};"
        f" ++wb_k) {{ if ({t}.c[wb_k] {_BETTER[attr]} {t}.c[wb_s]) wb_s = wb_k; {out}.c[wb_k] = wb_s; }} }}"
    ),
)


def _order_block(types, type, out, t):
    n = type.size
    return (
        f"WB_TILE(wb_k, {n}) {{ int32_t wb_s = 0; for (int32_t wb_j = 0; wb_j < {n}; ++wb_j)"
        f" wb_s += WB_LESS({t}.c[wb_j], {t}.c[wb_k]) || (!WB_LESS({t}.c[wb_k], {t}.c[wb_j]) && wb_j < wb_k);"
        f" {out}.c[wb_s] = wb_k; }}"
    )


ORDER = row(
    "tile_order",
    type=lambda t: Tile(tile_of("tile_sort", t, 1).dims, int32),
    exact=True,
    meaning=lambda t: np.argsort(t, kind="stable"),
    block=_order_block,
)


def _take_type(t: Type, places: Type) -> Type:
    found = tile_of("tile_sort", places, 1)
    if found.scalar is not int32:
        raise refuse(f"places are int32, not {places}", slug="index-type")
    return Tile(found.dims, tile_of("tile_sort", t, 1).scalar)


def _put(t: np.ndarray, places: np.ndarray, v: np.ndarray) -> np.ndarray:
    made = np.array(t)
    np.add.at(made, places, v)
    return made


TAKE = row(
    "tile_take",
    type=_take_type,
    meaning=lambda t, places: np.asarray(t)[np.asarray(places)],
    facts="linear exact moves",
    adjoint=lambda g, y, t, places: (PUT(zero(t), places, g), None),
    block=lambda types, type, out, t, places: f"WB_TILE(wb_k, {type.size}) {out}.c[wb_k] = {t}.c[{places}.c[wb_k]];",
)
PUT = row(
    "tile_put",
    type=lambda t, places, v: tile_of("tile_sort", t, 1),
    meaning=_put,
    linear=True,
    onto=0,
    adjoint=lambda g, y, t, places, v: (g, None, TAKE(g, places)),
    block=lambda types, type, out, t, places, v: (
        f"WB_ONE for (int32_t wb_k = 0; wb_k < {types[2].size}; ++wb_k) {out}.c[{places}.c[wb_k]] += {v}.c[wb_k];"
    ),
)

# ---- discrete Fourier transforms along the last axis of a tile (2, rows, n): real parts, then imaginary ones
# Nothing is divided by n. The matrix of a transform is symmetric, so its adjoint is the one of the other sign. Lengths
# that are powers of 2 go by halves in place (Cooley and Tukey, 1965), others term by term.


def _pair_type(t: Type, attr: int) -> Type:
    found = floats_of("tile_fft", t, 3)
    if found.dims[0] != 2 or found.scalar is float16:
        raise refuse(f"`tile_fft` takes tiles of vec2 or vec2d, not {found}", slug="tile-operand")
    return found


def _transformed(t: np.ndarray, attr: int) -> np.ndarray:
    values = np.asarray(t[0] + 1j * t[1])
    made = np.fft.fft(values) if attr < 0 else np.fft.ifft(values, norm="forward")
    return np.stack([made.real, made.imag]).astype(t.dtype)


def _transform(name: str, onto: int | None, cost: int) -> Row:
    def block(types, type, out, t, attr):
        _, rows, n = type.dims
        read = f"{out}.c" if onto == 0 else f"{out}.c, {t}.c"
        return f"WB_{name.upper()}({type.scalar.c}, {rows}, {n}, {read}, {attr})"

    made = row(
        f"tile_{name}",
        type=_pair_type,
        facts="typed_by_attr linear",
        meaning=_transformed,
        onto=onto,
        cost=cost,
        adjoint=lambda g, y, t, attr: (made(g, attr=-attr),),
        block=block,
    )
    return made


FFT = _transform("fft", 0, 64)
DFT = _transform("dft", None, 256)
