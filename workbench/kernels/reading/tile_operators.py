"""Operators between tiles, and parts of tiles: `a + b`, `t[i]`, `t[i:j] = ...`."""

from __future__ import annotations

import ast
import math
from typing import Any

from .. import ir, ops
from ..ops import scalar, tiles
from ..types import Composite, Scalar, Tile, TileOf, int32
from .base import Meaning, ReaderBase
from .lower_bounds import static_int
from .scope import AnyTileValue, LocalPart, StructParts, describe, is_literal, leaves, rebuild
from .tile_parts import (
    each_element,
    each_of,
    element_at,
    filled,
    filled_with,
    is_tile,
    number_of,
    per_part,
    renamed,
    reshaped,
    with_element,
)
from .tile_sharing import refuse_shared


def with_part(
    reader: ReaderBase, whole: AnyTileValue, part: AnyTileValue, offsets: list[ir.Value], node: ast.AST
) -> Any:
    refuse_beyond(reader, whole.type, part.type, offsets, node)
    pairs = zip(leaves(whole), leaves(part), strict=True)
    return rebuild(whole, iter([reader.builder.emit(tiles.ASSIGN, v, *offsets, p) for v, p in pairs]))


# ---- operators and elements


def tile_binary(reader: ReaderBase, sign: str, a: Meaning, b: Meaning) -> Any:
    """An operator between tiles of one shape, or a tile and one value."""
    if is_tile(a) and is_tile(b) and a.type.dims != b.type.dims:
        raise odd_operands(reader, sign, a, b)
    if isinstance(a, StructParts) or isinstance(b, StructParts):
        return composite_binary(reader, sign, a, b)
    type = next(ir.type_as(v, Tile) for v in (a, b) if is_tile(v))
    x, y = (reader.typed(v, type.scalar) for v in (a, b))
    if any(isinstance(v.type, Composite) and not isinstance(v.type, Tile) for v in (x, y)):
        return composite_binary(reader, sign, x, y)
    x, y = (filled(reader, Tile(type.dims, v.type), v) if isinstance(v.type, Scalar) else v for v in (x, y))
    assert is_tile(x) and is_tile(y) and isinstance(x, ir.Value) and isinstance(y, ir.Value)
    row = _OPERATORS.get(sign)
    if row is None:
        raise reader.error(f"tiles have no operator `{sign}`", "tile-operand", None, "", "tile_map(f, a, b)")
    if x.type.scalar != y.type.scalar:
        raise odd_operands(reader, sign, x, y)
    if row in _BITS:
        shape = x.type.dims
        return each_element(reader, shape, [x, y], lambda i, parts: (row(*parts),))[0]
    return reader.builder.emit(row, x, y)


def odd_operands(reader: ReaderBase, sign: str, a: AnyTileValue, b: AnyTileValue) -> Exception:
    slug = "mixed-types" if a.type.dims == b.type.dims else "tile-shape"
    instead = "tile_astype(t, dtype=...)" if slug == "mixed-types" else "tile_broadcast(t, shape=...)"
    why = "Tiles of one shape and type, or a number."
    return reader.error(f"`{sign}` between {a.type} and {b.type}", slug, None, why, instead)


def composite_binary(reader: ReaderBase, sign: str, a: Meaning, b: Meaning) -> Any:
    """`tile_binary` where a side has composite elements: by component where that is equivalent."""
    if sign in "+-" and is_tile(a) and is_tile(b) and a.type == b.type:
        pairs = zip(leaves(a), leaves(b), strict=True)
        return rebuild(a, iter([tile_binary(reader, sign, x, y) for x, y in pairs]))
    whole, number = (a, b) if is_tile(a) and isinstance(a, StructParts) else (b, a)
    plain = is_literal(number) or isinstance(getattr(number, "type", None), (Scalar, Tile))
    if plain and is_tile(whole) and isinstance(whole, StructParts) and (sign == "*" or (sign == "/" and whole is a)):
        return per_part(whole, lambda p: tile_binary(reader, sign, *((p, number) if whole is a else (number, p))))
    shape, node = next(v.type.dims for v in (a, b) if is_tile(v)), reader.frame.source.tree
    given = [x if isinstance(x, StructParts) or is_literal(x) else reader.value(x) for x in (a, b)]
    apply = lambda i, parts: ops.binary(sign, *reader.operands(sign, *parts))  # noqa: E731
    return each_of(reader, shape, given, apply, node)


def negated(t: AnyTileValue) -> Any:
    return per_part(t, lambda p: ops.unary("-", p))


def tile_attribute(type: Tile | TileOf, name: str) -> Any:
    return number_of(type) if name == "dtype" else type.dims if name == "shape" else math.prod(type.dims)


def tile_picked(reader: ReaderBase, dims: tuple[int, ...], nodes: list[ast.expr]) -> list[Any]:
    """Per axis the index of one element (IR value), or the range of a slice."""
    if len(nodes) > len(dims):
        raise reader.error(f"a tile of {len(dims)} axes takes no {len(nodes)} indices", "rank", nodes[-1])
    out: list[Any] = []
    for node, n in zip(nodes, dims, strict=False):
        if isinstance(node, ast.Slice):
            out.append(sliced(reader, node, n))
            continue
        i = reader.index(node)
        k = static_int(i)
        if k is not None and not -n <= k < n:
            raise reader.error(f"element {k} is outside the {n} there are", "component-range", node, "", f"{n - 1}")
        out.append(i if k is None else reader.value(k % n))
    return out + [range(n) for n in dims[len(nodes) :]]


def sliced(reader: ReaderBase, node: ast.Slice, n: int) -> range:
    ends = [None if e is None else static_int(reader.visit(e)) for e in (node.lower, node.upper, node.step)]
    known = all(e is None or k is not None for e, k in zip((node.lower, node.upper, node.step), ends, strict=True))
    found = range(n)[slice(*ends)] if known and ends[2] in (None, 1) else range(0)
    if not found:
        raise reader.error(
            "a slice of a tile has constant ends and step 1", "slice", node, "", "tile_view(t, offset=..., shape=...)"
        )
    return found


def part_picked(reader: ReaderBase, dims: tuple[int, ...], picked: list[Any]) -> tuple[list[Any], tuple, tuple]:
    """(offsets of a part, its shape with every axis, its shape without the axes that an index picks)."""
    offsets = [
        reader.value(p.start) if isinstance(p, range) else counted(reader, p, n)
        for p, n in zip(picked, dims, strict=True)
    ]
    whole = tuple(len(p) if isinstance(p, range) else 1 for p in picked)
    return offsets, whole, tuple(len(p) for p in picked if isinstance(p, range))


def counted(reader: ReaderBase, i: ir.Value, n: int) -> ir.Value:
    """An index with a negative one wrapped (counted from the end), as int32."""
    i = i if i.type is int32 else reader.builder.emit(scalar.CAST, i, attr=int32)
    if static_int(i) is not None or reader.facts.non_negative(i):
        return i
    below = reader.builder.emit(scalar.LT, i, reader.value(0))
    return reader.builder.emit(scalar.WHERE, below, reader.builder.emit(scalar.ADD, i, reader.value(n)), i)


def tile_read(reader: ReaderBase, t: AnyTileValue, nodes: list[ast.expr]) -> Any:
    """The value of `t[...]`: an element, or a part."""
    picked = tile_picked(reader, t.type.dims, nodes)
    if not any(isinstance(p, range) for p in picked):
        return element_at(reader, t, picked)
    offsets, whole, dims = part_picked(reader, t.type.dims, picked)

    def part(p: ir.Value) -> ir.Value:
        made = reader.builder.emit(tiles.VIEW, p, *offsets, attr=Tile(whole, ir.numeric(p).scalar))
        return made if whole == dims else reshaped(reader, made, dims)

    return per_part(t, part)


def tile_slot(reader: ReaderBase, base: LocalPart, nodes: list[ast.expr], node: ast.expr) -> tuple[Any, Any]:
    """(load, store) functions of an element or a part of a local tile."""
    picked = tile_picked(reader, base.load().type.dims, nodes)

    def replaced(whole: AnyTileValue, v: Meaning) -> Any:
        if not any(isinstance(p, range) for p in picked):
            return with_element(reader, whole, picked, v)
        offsets, shape, dims = part_picked(reader, whole.type.dims, picked)
        part = v if is_tile(v) else filled_with(reader, dims, reader.typed(v, number_of(whole.type)), node)
        if part.type.dims != dims or number_of(part.type) != number_of(whole.type):
            raise reader.error(f"{describe(v)} cannot go into {dims} of {whole.type}", "store-type", node)
        return with_part(reader, whole, per_part(part, lambda p: reshaped(reader, p, shape)), offsets, node)

    def store(v: Meaning) -> None:
        whole = base.load()
        refuse_shared(reader, whole, node)
        made = replaced(whole, v)
        renamed(made, whole)
        base.store(made)

    return lambda: tile_read(reader, base.load(), nodes), store


def refuse_beyond(
    reader: ReaderBase, type: Tile | TileOf, part: Tile | TileOf, offsets: list[ir.Value], node: ast.AST
) -> None:
    """Raise KernelError if a part cannot fit; unknown offsets count as 0, and are checked when it runs."""
    for n, m, o in zip(type.dims, part.dims, offsets, strict=False):
        if m > n or (static_int(o) or 0) + m > n:
            text = f"a part of shape {part.dims} from {static_int(o)} on does not fit into {type}"
            raise reader.error(text, "tile-shape", node, "", "a smaller shape or offset")


_BITS = (scalar.BIT_AND, scalar.BIT_OR, scalar.BIT_XOR, scalar.LSHIFT, scalar.RSHIFT, scalar.FLOORDIV, scalar.PYMOD)
_OPERATORS = {row.sign: row for row in (scalar.ADD, scalar.SUB, scalar.MUL, scalar.DIV, *_BITS)}
