"""Rows over tiles: making them, single elements, parts, sums, products of matrices.

A tile is a value like any other: to change an element is to make a new tile (`tile_set`), and the emitter does that in
place where nobody asks for the old one. Rows that work element by element are those of `scalar`, and `each` of
`control` is for everything else that knows no order, loads and stores among it. `block` writes the C of a row:
`WB_TILE` is a loop over elements, which the threads of a block share; what is filled so is complete when it ends.
Sums have one order, whatever the number of threads: sixteen of them side by side, added up at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import kind, numeric, type_as
from ..row import refuse
from ..types import Tile, Type, is_float, is_int
from .row import row, zero

SIDES = 16  # sums that are taken side by side


def tile_of(name: str, type: Type, rank: int | None = None) -> Tile:
    """The type if it is a tile, of so many axes. Raises the error of a type rule."""
    if not isinstance(type, Tile):
        raise refuse(f"`{name}` takes a tile, not {type}", slug="tile-operand", instead="tile_load(a, shape=...)")
    if rank is not None and len(type.dims) != rank:
        axes = f"{rank} ax{'i' if rank == 1 else 'e'}s"
        text = f"`{name}` takes a tile with {axes}, not {type}"
        raise refuse(text, slug="tile-shape", instead="tile_reshape(t, shape)")
    return type


def floats_of(name: str, type: Type, rank: int | None = None) -> Tile:
    found = tile_of(name, type, rank)
    if not is_float(found):
        raise refuse(f"`{name}` takes floats, not {found}", slug="operand-type", instead="tile_astype(t, dtype=float)")
    return found


def _indices(name: str, t: Tile, indices: tuple[Type, ...]) -> None:
    if len(indices) != len(t.dims):
        raise refuse(f"`{t}` takes {len(t.dims)} indices, got {len(indices)}", slug="rank")
    for i in indices:
        if not is_int(i):
            raise refuse(f"an index is an integer, not {i}", slug="index-type", instead="int(...)")


def _at(dims: tuple[int, ...], texts: tuple[str, ...]) -> str:
    """The place of an element; a negative index counts from the end."""
    linear = ""
    for n, i in zip(dims, texts, strict=True):
        i = i if i.isidentifier() or i.isdigit() else f"({i})"
        one = i if i.isdigit() else f"({i} + ({i} < 0 ? {n} : 0))"
        linear = f"({linear} * {n} + {one})" if linear else one
    return linear


# ---- made from nothing

FILL = row(
    "tile_fill",
    type=lambda s, attr: attr,
    facts="typed_by_attr exact linear",
    meaning=lambda s, attr: np.full(attr.dims, s),
    adjoint=lambda g, y, s, attr: (TOTAL(g),),
    block=lambda types, type, out, s, attr: f"WB_TILE(wb_k, {type.size}) {out}.c[wb_k] = {s};",
)
INDEX = row(
    "tile_index",
    type=lambda attr: attr,
    facts="typed_by_attr exact",
    meaning=lambda attr: np.arange(attr.size).reshape(attr.dims),
    block=lambda types, type, out, attr: f"WB_TILE(wb_k, {type.size}) {out}.c[wb_k] = wb_k;",
)

# ---- single elements


def _get_type(t: Type, *indices: Type) -> Type:
    made = tile_of("tile_extract", t)
    _indices("tile_extract", made, indices)
    return made.scalar


def _set_type(t: Type, *rest: Type) -> Type:
    made = tile_of("tile_assign", t)
    _indices("t[...] = v", made, rest[:-1])
    if rest[-1] != made.scalar:
        text = f"a value of type {rest[-1]} cannot go into {made}"
        raise refuse(text, slug="store-type", instead=f"{made.scalar}(...)")
    return made


def _set(t: np.ndarray, *rest: np.generic) -> np.ndarray:
    made = np.array(t)
    made[tuple(map(int, rest[:-1]))] = rest[-1]
    return made


def _add_at(t: np.ndarray, *rest: np.generic) -> np.ndarray:
    made = np.array(t)
    made[tuple(map(int, rest[:-1]))] += rest[-1]
    return made


GET = row(
    "tile_get",
    type=_get_type,
    meaning=lambda t, *i: t[tuple(map(int, i))],
    adjoint=lambda g, y, t, *i: (ADD_AT(zero(t), *i, g), *[None] * len(i)),
    facts="linear exact moves",
    block=lambda types, type, out, t, *i: f"{out} = {t}.c[{_at(types[0].dims, i)}];",
)
SET = row(
    "tile_set",
    type=_set_type,
    meaning=_set,
    adjoint=lambda g, y, t, *r: (SET(g, *r[:-1], zero(r[-1])), *[None] * (len(r) - 1), GET(g, *r[:-1])),
    facts="linear exact moves",
    onto=0,
    block=lambda types, type, out, t, *r: f"WB_ONE {out}.c[{_at(type.dims, r[:-1])}] = {r[-1]};",
)
ADD_AT = row(
    "tile_add_at",
    type=_set_type,
    meaning=_add_at,
    linear=True,
    onto=0,
    adjoint=lambda g, y, t, *rest: (g, *[None] * (len(rest) - 1), GET(g, *rest[:-1])),
    block=lambda types, type, out, t, *r: f"WB_ONE {out}.c[{_at(type.dims, r[:-1])}] += {r[-1]};",
)

# ---- sums


def _total(t: np.ndarray) -> Any:
    flat = np.ravel(t)
    rows = np.zeros((-(-flat.size // SIDES), SIDES), flat.dtype)
    rows.reshape(-1)[: flat.size] = flat
    parts = np.zeros(SIDES, flat.dtype)
    for one in rows:
        parts = parts + one
    while len(parts) > 1:
        parts = parts[: len(parts) // 2] + parts[len(parts) // 2 :]
    return parts[0]


def _numbers(name: str) -> Callable[..., Type]:
    def rule(t: Type) -> Type:
        made = tile_of(name, t).scalar
        if made.kind == "b":
            raise refuse(f"`{name}` takes numbers, not {t}", slug="operand-type", instead="tile_astype(t, dtype=int)")
        return made

    return rule


TOTAL = row(
    "tile_total",
    type=_numbers("tile_sum"),
    meaning=_total,
    adjoint=lambda g, y, t: (FILL(g, attr=kind(t)),),
    linear=True,
    block=lambda types, type, out, t: f"WB_TOTAL({type.c}, {out}, {t}.c, {types[0].size})",
)


def without(dims: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return dims[:axis] + dims[axis + 1 :] or (1,)


def _axis_type(t: Type, attr: int) -> Type:
    made = tile_of("tile_sum", t)
    return Tile(without(made.dims, attr), made.scalar)


def _sum_axis(t: np.ndarray, attr: int) -> np.ndarray:
    total = np.zeros(t.shape[:attr] + t.shape[attr + 1 :], t.dtype)
    for k in range(t.shape[attr]):
        total = total + np.take(t, k, attr)
    return np.reshape(total, without(t.shape, attr))


def _sum_axis_block(types, type, out, t, attr):
    dims = types[0].dims
    inner, n = math.prod(dims[attr + 1 :]), dims[attr]
    start = f"wb_k / {inner} * {inner * n} + wb_k % {inner}"
    return (
        f"WB_TILE(wb_k, {type.size}) {{ {type.scalar.c} wb_s = 0; for (int32_t wb_j = 0; wb_j < {n}; ++wb_j)"
        f" wb_s += {t}.c[{start} + wb_j * {inner}]; {out}.c[wb_k] = wb_s; }}"
    )


def _adjoint_sum_axis(g, y, t, attr):
    dims = type_as(t, Tile).dims
    kept = Tile((*dims[:attr], 1, *dims[attr + 1 :]), numeric(g).scalar)
    return (BROADCAST(RESHAPE(g, attr=kept), attr=Tile(dims, kept.scalar)),)


SUM_AXIS = row(
    "tile_sum_axis",
    type=_axis_type,
    facts="typed_by_attr linear",
    meaning=_sum_axis,
    adjoint=_adjoint_sum_axis,
    block=_sum_axis_block,
)

# ---- the same numbers in another form


def _reshape_type(t: Type, attr: Tile) -> Type:
    size = tile_of("tile_reshape", t).size
    if size != attr.size:
        raise refuse(f"{t} has {size} elements, {attr.dims} has {attr.size}", slug="tile-shape")
    return attr


RESHAPE = row(
    "tile_reshape",
    type=_reshape_type,
    facts="typed_by_attr linear exact moves",
    onto=0,
    meaning=lambda t, attr: np.reshape(t, attr.dims),
    adjoint=lambda g, y, t, attr: (RESHAPE(g, attr=type_as(t, Tile).over(numeric(g).scalar)),),
    block=lambda types, type, out, t, attr: "",
)


def _broadcast_type(t: Type, attr: Tile) -> Type:
    dims = tile_of("tile_broadcast", t).dims
    wide = (1,) * (len(attr.dims) - len(dims)) + dims
    if len(wide) != len(attr.dims) or any(a not in (1, b) for a, b in zip(wide, attr.dims, strict=True)):
        instead = "a shape whose last axes are those of the tile, or 1"
        raise refuse(f"{t} does not broadcast to {attr.dims}", slug="tile-shape", instead=instead)
    return attr


def _broadcast_block(types, type, out, t, attr):
    dims = types[0].dims
    wide = (1,) * (len(type.dims) - len(dims)) + dims
    terms, step, from_ = [], 1, 1
    for a, b in reversed(list(zip(wide, type.dims, strict=True))):
        if a > 1:
            terms.append(f"wb_k / {step} % {b} * {from_}")
        step, from_ = step * b, from_ * a
    return f"WB_TILE(wb_k, {type.size}) {out}.c[wb_k] = {t}.c[{' + '.join(terms) or '0'}];"


def _adjoint_broadcast(g, y, t, attr):
    dims = type_as(t, Tile).dims
    wide = (1,) * (len(attr.dims) - len(dims)) + dims
    for axis in reversed(range(len(wide))):
        if wide[axis] == 1 and attr.dims[axis] != 1:
            shape = type_as(g, Tile).dims
            kept = Tile((*shape[:axis], 1, *shape[axis + 1 :]), numeric(g).scalar)
            g = RESHAPE(SUM_AXIS(g, attr=axis), attr=kept)
    return (RESHAPE(g, attr=Tile(dims, numeric(g).scalar)),)


BROADCAST = row(
    "tile_broadcast",
    type=_broadcast_type,
    facts="typed_by_attr linear exact moves",
    meaning=lambda t, attr: np.broadcast_to(t, attr.dims),
    adjoint=_adjoint_broadcast,
    block=_broadcast_block,
)


def _transpose_type(t: Type) -> Type:
    made = tile_of("tile_transpose", t, 2)
    return Tile(made.dims[::-1], made.scalar)


def _transpose_block(types, type, out, t):
    n, m = type.dims
    return f"WB_TILE(wb_k, {n * m}) {out}.c[wb_k] = {t}.c[wb_k % {m} * {n} + wb_k / {m}];"


TRANSPOSE = row(
    "tile_transpose",
    type=_transpose_type,
    meaning=np.transpose,
    facts="linear exact moves",
    adjoint=lambda g, y, t: (TRANSPOSE(g),),
    block=_transpose_block,
)

# ---- parts


def _part_block(whole: Tile, part: Tile, offsets: tuple[str, ...]) -> str:
    """The place in the whole of element k of a part; nothing is outside, as the offsets are held inside."""
    terms, step, from_ = [], 1, 1
    for n, m, o in reversed(list(zip(whole.dims, part.dims, offsets, strict=True))):
        terms.append(f"((int32_t)({o}) + wb_k / {step} % {m}) * {from_}")
        step, from_ = step * m, from_ * n
    return " + ".join(terms)


def _slices(offsets: tuple, dims: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(int(o), int(o) + n) for o, n in zip(offsets, dims, strict=True))


def _fits(whole: Tile, part: Tile, offsets: tuple[Type, ...]) -> Tile:
    _indices("offset", whole, offsets)
    if len(part.dims) != len(whole.dims) or any(m > n for m, n in zip(part.dims, whole.dims, strict=True)):
        raise refuse(f"a part of shape {part.dims} does not fit into {whole}", slug="tile-shape")
    return part


def _assign_type(t: Type, *rest: Type) -> Type:
    made, part = tile_of("tile_assign", t), tile_of("tile_assign", rest[-1])
    _fits(made, part, rest[:-1])
    if part.scalar != made.scalar:
        raise refuse(f"{part} cannot go into {made}", slug="store-type", instead=f"tile_astype(t, dtype={made.scalar})")
    return made


def _assign(t, *rest):
    made = np.array(t)
    made[_slices(rest[:-1], rest[-1].shape)] = rest[-1]
    return made


def _adjoint_assign(g, y, t, *rest):
    o, part = rest[:-1], rest[-1]
    type = type_as(part, Tile).over(numeric(g).scalar)
    return ASSIGN(g, *o, zero(part)), *[None] * len(o), VIEW(g, *o, attr=type)


VIEW = row(
    "tile_view",
    type=lambda t, *offsets, attr: _fits(tile_of("tile_view", t), attr, offsets),
    facts="typed_by_attr linear exact moves",
    meaning=lambda t, *offsets, attr: t[_slices(offsets, attr.dims)],
    adjoint=lambda g, y, t, *o, attr: (ASSIGN(zero(t), *o, g), *[None] * len(o)),
    block=lambda types, type, out, t, *o, attr: (
        f"WB_TILE(wb_k, {type.size}) {out}.c[wb_k] = {t}.c[{_part_block(types[0], type, o)}];"
    ),
)
ASSIGN = row(
    "tile_assign",
    type=_assign_type,
    meaning=_assign,
    adjoint=_adjoint_assign,
    facts="linear exact moves",
    onto=0,
    block=lambda types, type, out, t, *r: (
        f"WB_TILE(wb_k, {types[-1].size}) {out}.c[{_part_block(type, types[-1], r[:-1])}] = {r[-1]}.c[wb_k];"
    ),
)

# Rows whose operands after the first are indices of it, which may lie outside.
INDEXED = (GET, SET, ADD_AT, VIEW, ASSIGN)

# ---- products of matrices


def _matmul_type(c: Type, a: Type, b: Type, attr: int) -> Type:
    out, left, right = (floats_of("tile_matmul", t, 2) for t in (c, a, b))
    if left.dims[1] != right.dims[0] or out.dims != (left.dims[0], right.dims[1]):
        text = f"`tile_matmul` of {left.dims} and {right.dims} gives no tile of {out.dims}"
        raise refuse(text, slug="tile-shape", instead="shapes (n, k), (k, m) and (n, m)")
    if not left.scalar == right.scalar == out.scalar:
        text = f"`tile_matmul` takes one scalar type, got {left}, {right} and {out}"
        raise refuse(text, slug="mixed-types", instead="tile_astype(t, dtype=...)")
    return out


def _matmul(c, a, b, attr):
    made = np.array(c)
    for k in range(a.shape[1]):
        x, y = a[:, k : k + 1], b[k : k + 1]
        part = x * y
        part = np.where((x if attr == 1 else y) == 0, np.zeros_like(part), part) if attr else part
        made = made + part
    return made


def _matmul_block(types, type, out, c, a, b, attr):
    n, m, k = *type.dims, types[1].dims[1]
    name = "WB_MATMUL" if not attr else "WB_MATMUL_ADJOINT"
    return f"{name}({type.scalar.c}, {n}, {m}, {k}, {out}.c, {a}.c, {b}.c{f', {attr}' if attr else ''})"


def _tangent_matmul(ts, y, c, a, b, attr):
    total = ts[0]
    if ts[1] is not None:
        total = MATMUL(zero(y) if total is None else total, ts[1], b, attr=1)
    if ts[2] is not None:
        total = MATMUL(zero(y) if total is None else total, a, ts[2], attr=2)
    return total


MATMUL = row(
    "tile_matmul",
    type=_matmul_type,
    facts="typed_by_attr bilinear",
    meaning=_matmul,
    adjoint=lambda g, y, c, a, b, attr: (
        g,
        MATMUL(zero(a), g, TRANSPOSE(b), attr=1),
        MATMUL(zero(b), TRANSPOSE(a), g, attr=2),
    ),
    onto=0,
    tangent=_tangent_matmul,
    cost=64,
    block=_matmul_block,
)
