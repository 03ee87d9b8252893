"""Tiles of vectors, matrices, quaternions and structs: one tile of numbers for each component, under one name.

So IR, passes and emitters know tiles of numbers alone. `each_of` is `each` over elements of any type: inside, the
components of an element are put together, and what it gives is taken apart again. Operators between tiles, and parts
of tiles (`t[i:j] = ...`), go by component.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

from .. import ir, ops
from ..ir import constant
from ..ops import control, memory, scalar, tiles, vectors
from ..ops.signatures import CHANGED, SHOWING, TILES, TileBuiltin
from ..row import Row
from ..types import Composite, Scalar, Struct, Tile, TileOf, Type, int32, is_float, is_int, scalar_of, tile_type
from .base import Meaning, ReaderBase, reads
from .cuts import extent, narrowed
from .lower_bounds import static_int
from .scope import (
    AnyTileValue,
    ArrayView,
    Choice,
    Fields,
    LocalPart,
    StructParts,
    TileValue,
    describe,
    is_literal,
    leaves,
    rebuild,
)
from .tile_sharing import has_shown, present_tiles, put_in_place, refuse_shared, shared

LARGEST = 1 << 20  # bytes of one tile
Write = Callable[[list[ir.Value], list[Any]], Any]  # what an `each` does, from the indices and the elements there


def is_tile(x: Meaning) -> TypeGuard[AnyTileValue]:
    """True for a tile of numbers, and for one of composites or structs."""
    return isinstance(getattr(x, "type", None), (Tile, TileOf))


def number_of(type: Tile | TileOf) -> Scalar | Composite | Struct:
    """The element type of a tile: a scalar, a composite or a struct."""
    return type.dtype if isinstance(type, TileOf) else type.scalar


# ---- types


def tile_dims(reader: ReaderBase, shape: Meaning, node: ast.AST) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, tuple) else (shape,)
    found = [n for n in map(static_int, sizes) if n is not None and n > 0]
    if not sizes or len(found) < len(sizes):
        text = "the shape of a tile is made of constants from 1 on"
        why = "It is a part of its type."
        raise reader.error(text, "tile-shape", node, why, "shape=(16, 16), or names of constants")
    return tuple(found)


def type_of_tile(reader: ReaderBase, dims: tuple[int, ...], dtype: Meaning, node: ast.AST) -> Tile | TileOf:
    try:
        made = tile_type(dims, dtype if isinstance(dtype, (Composite, Struct)) else scalar_of(dtype))
    except TypeError as e:
        if hasattr(e, "slug"):
            raise
        raise reader.error(str(e), "tile-type", node, "", "the numbers of it in a struct of their own") from None
    size = sum(t.itemsize for t in flat(made))
    if size > LARGEST:
        why = f"A tile lives near the processor: {LARGEST:,} bytes are the most."
        raise reader.error(f"{made} takes {size:,} bytes", "tile-size", node, why, "smaller tiles, in a loop")
    return made


def dtype_of(reader: ReaderBase, x: Meaning) -> Any:
    """The type of a number, vector or struct that is to be an element."""
    return x.type if isinstance(x, StructParts) else reader.value(x).type


# ---- elements


def numbers_of(reader: ReaderBase, x: Meaning) -> list[ir.Value]:
    """The scalar components of an element, in the order of the tiles that hold them."""
    if isinstance(x, StructParts):
        return [n for part in x.fields.values() for n in numbers_of(reader, part)]
    return vectors.components(reader.value(x))


def composed(dtype: Type, parts: Iterator[ir.Value]) -> Any:
    """The element of type `dtype` made of its scalar components."""
    if isinstance(dtype, Struct):
        return StructParts(dtype, {name: composed(t, parts) for name, t in dtype.fields})
    if isinstance(dtype, Composite):
        return ops.construct(dtype, *[next(parts) for _ in range(dtype.size)])
    return next(parts)


def as_tile(type: Type, parts: Iterator[ir.Value]) -> Any:
    """A tile (a Record if composite) made of the tiles of its components."""
    if isinstance(type, TileOf):
        return StructParts(type, {name: as_tile(t, parts) for name, t in type.fields})
    return next(parts)


def regrouped(dtype: Scalar | Composite | Struct, parts: Sequence[ir.Value]) -> Any:
    """Tiles of one shape as one tile of `dtype`, or of `dtype` over their scalar."""
    first = ir.type_as(parts[0], Tile)
    if isinstance(dtype, (Scalar, Composite)):
        dtype = dtype.over(first.scalar)
    return as_tile(tile_type(first.dims, dtype), iter(parts))


def per_part(x: AnyTileValue, do: Callable[[ir.Value], ir.Value]) -> Any:
    """The tile with `do` applied to the tile of each component."""
    if not isinstance(x, StructParts):
        return do(x)
    return regrouped(x.type.dtype, [do(part) for part in leaves(x)])


def any_tile(reader: ReaderBase, x: Meaning, node: ast.AST) -> AnyTileValue:
    return x if is_tile(x) and isinstance(x, StructParts) else tile_value(reader, x, node)


def tile_value(reader: ReaderBase, x: Meaning, node: ast.AST) -> TileValue:
    if isinstance(x, StructParts) and is_tile(x):
        raise reader.error(f"this takes a tile of numbers, not {x.type}", "tile-operand", node, "", "tile_map(f, t)")
    v = reader.value(x)
    if not is_tile(v) or isinstance(v, StructParts):
        raise reader.error(f"{describe(v)} is no tile", "tile-operand", node, "", "wb.tile_load(a, shape=...)")
    return v


def filled_to(reader: ReaderBase, dims: tuple[int, ...], number: ir.Value) -> ir.Value:
    type = Tile(dims, ir.type_as(number, Scalar))
    if number.stmt is not None and number.stmt.row is control.CONST:
        return constant(type, number.stmt.attr)
    return reader.builder.emit(tiles.FILL, number, attr=type)


def filled_with(reader: ReaderBase, dims: tuple[int, ...], x: Meaning, node: ast.AST) -> Any:
    """A tile with one element everywhere."""
    type = type_of_tile(reader, dims, dtype_of(reader, x), node)
    return as_tile(type, iter([filled_to(reader, dims, n) for n in numbers_of(reader, x)]))


def tile_of_one(reader: ReaderBase, number: Meaning) -> Any:
    """A tile of one element, as Warp gives the result of a reduction."""
    return filled_with(reader, (1,), number, reader.frame.source.tree)


def element_at(reader: ReaderBase, t: AnyTileValue, indices: Sequence[ir.Value]) -> Any:
    got = iter([reader.builder.emit(tiles.GET, part, *indices) for part in leaves(t)])
    return composed(number_of(t.type), got)


def with_element(
    reader: ReaderBase, t: AnyTileValue, indices: Sequence[ir.Value], x: Meaning, row: Row = tiles.SET
) -> Any:
    """The tile with an element replaced."""
    x = reader.typed(x, number_of(t.type)) if isinstance(t, ir.Value) else x
    if dtype_of(reader, x) != number_of(t.type):
        raise reader.error(f"{describe(x)} cannot go into {t.type}", "store-type", None, "", f"{number_of(t.type)}")
    numbers = zip(leaves(t), numbers_of(reader, x), strict=True)
    return rebuild(t, iter([reader.builder.emit(row, part, *indices, n) for part, n in numbers]))


# ---- every element


def each_element(
    reader: ReaderBase, shape: tuple[int, ...], given: Sequence[ir.Value], write: Write, order: int = 0
) -> tuple[ir.Value, ...]:
    """Emit an `each` whose body is `write(indices, elements)`; returns its result tiles."""
    region = ir.Region([ir.Value(int32, name) for name, _ in zip("ijklmn", shape, strict=False)])
    elements = [ir.Value(ir.numeric(v).scalar) for v in given]
    with reader.builder.inside(region):
        results = write(list(region.params), elements)
    region.params += elements
    region.results = tuple(results or ())
    types = [Tile(shape, ir.type_as(r, Scalar)) for r in region.results]
    stmt = reader.builder.append(control.EACH, tuple(given), types, (region,), control.Each(shape, order))
    return stmt.outs


def each_of(
    reader: ReaderBase, shape: tuple[int, ...], given: Sequence[Any], write: Write, node: ast.AST, order: int = 0
) -> Any:
    """Emit an `each` over tiles of any element type; returns the tile of the results of `write(indices, elements)`.

    A part of `given` that is no tile serves every element.
    """
    sources, open = [], []
    for g in given:
        tiled = is_tile(g)
        parts = list(leaves(g)) if tiled else [n for v in leaves(g) if is_float(v.type) for n in numbers_of(reader, v)]
        open.append((g, tiled))
        sources += parts if tiled else [filled_to(reader, shape, n) for n in parts]
    found: list[Any] = []

    def inner(i: list[ir.Value], parts: list[ir.Value]) -> list[ir.Value]:
        rest = iter(parts)
        elements = [composed(number_of(g.type), rest) if tiled else served(g, rest) for g, tiled in open]
        result = write(i, elements)
        if result is None:
            return []
        found.append(dtype_of(reader, result))
        return numbers_of(reader, result)

    outs = each_element(reader, shape, sources, inner, order)
    return as_tile(type_of_tile(reader, shape, found[0], node), iter(outs)) if found else None


def served(g: Meaning, parts: Iterator[ir.Value]) -> Any:
    new = [composed(v.type, parts) if is_float(v.type) else v for v in leaves(g)]
    return rebuild(g, iter(new))


# ---- memory


def offsets_of(reader: ReaderBase, offset: Meaning, rank: int, node: ast.AST) -> list[ir.Value]:
    given = offset if isinstance(offset, tuple) else (offset,) + (0,) * (rank - 1) if offset is not None else ()
    given = given or (0,) * rank
    if len(given) != rank:
        raise reader.error(f"an offset of {len(given)} numbers, {rank} axes", "rank", node, "", "offset=(i, j)")
    out = []
    for o in given:
        v = reader.value(o)
        if not is_int(v.type):
            raise reader.error(f"an offset is an integer, not {v.type}", "index-type", node, "", "int(...)")
        if (static_int(v) or 0) < 0:
            raise reader.error("an offset is not negative", "tile-offset", node, "It does not count from the end.")
        out.append(v if v.type is int32 else reader.builder.emit(scalar.CAST, v, attr=int32))
    return out


def tiled_array(reader: ReaderBase, a: Meaning, node: ast.AST) -> ArrayView | Fields:
    if isinstance(a, Choice):
        text = f"a tile of one array or another: {ast.unparse(node)}"
        why = "The threads of a block would have to agree on it."
        raise reader.error(text, "array-choice", node, why, "the load or store on each branch")
    if not isinstance(a, (ArrayView, Fields)) or a.type.ndim == 0:
        raise reader.error(f"{describe(a)} is not an array", "not-an-array", node, "", "tile_load(a, ...)")
    return a


def within_array(reader: ReaderBase, a: ArrayView | Fields, at: list[ir.Value], before: list[int]) -> ir.Value:
    """The condition that index `at` is in the array: below its extents, and not negative on the axes `before`."""
    view, emit = a if isinstance(a, ArrayView) else a.first, reader.builder.emit
    held = [emit(scalar.LT, i, extent(reader, view, axis)) for axis, i in enumerate(at)]
    held += [emit(scalar.GE, at[axis], constant(int32, 0)) for axis in before]
    return functools.reduce(lambda a, b: emit(scalar.LOGICAL_AND, a, b), held)


def places_from(offsets: list[ir.Value], i: list[ir.Value]) -> list[ir.Value]:
    return [k if static_int(o) == 0 else ops.binary("+", o, k) for o, k in zip(offsets, i, strict=True)]


def either(
    reader: ReaderBase, condition: ir.Value, write: Callable[[], Any], other: Callable[[Any], Any] | None = None
) -> Any:
    """Emit a branch; returns the results of `write` where the condition holds, else `other` of them, or zeros."""
    then, otherwise = ir.Region(), ir.Region()
    with reader.builder.inside(then):
        made = write()
    then.results = tuple(leaves(made))
    with reader.builder.inside(otherwise):
        otherwise.results = tuple(leaves(other(made)) if other else [reader.zero(v.type) for v in then.results])
    types = [v.type for v in then.results]
    stmt = reader.builder.append(control.IF, (condition,), types, (then, otherwise))
    return rebuild(made, iter(stmt.outs))


def indexed(
    reader: ReaderBase, shape: tuple[int, ...], indices: Meaning, axis: Meaning, node: ast.AST
) -> tuple[list, int | None]:
    """([tile of the indices along one axis, broadcast to the shape], that axis); ([], None) without indices."""
    if indices is None:
        return [], None
    k, places = static_int(axis), tile_value(reader, indices, node)
    if k is None or not 0 <= k < len(shape) or places.type != Tile((shape[k],), int32):
        text = f"indices of {places.type} along axis {axis} of a tile of shape {shape}"
        raise reader.error(text, "tile-shape", node, "There is one int32 for each place along a constant axis.")
    wide = Tile(tuple(shape[k] if d == k else 1 for d in range(len(shape))), int32)
    column = reader.builder.emit(tiles.RESHAPE, places, attr=wide)
    return [reader.builder.emit(tiles.BROADCAST, column, attr=Tile(shape, int32))], k


def each_in_array(
    reader: ReaderBase,
    node: ast.AST,
    a: Meaning,
    shape: tuple[int, ...],
    given: list[Any],
    write: Callable[..., Any],
    offset: Meaning = None,
    bounds_check: Meaning = True,
    indices: Meaning = None,
    axis: Meaning = 0,
) -> Any:
    """Emit `write(array, place, elements)` for every element of a tile that lies in an array."""
    a = tiled_array(reader, a, node)
    if len(shape) != a.type.ndim:
        raise reader.error(f"a tile of {len(shape)} axes and {a.type}", "rank", node, "", "as many axes as the array")
    offsets = offsets_of(reader, offset, len(shape), node)
    more, along = indexed(reader, shape, indices, axis, node)
    before = [k for k, o in enumerate(offsets) if k == along or not reader.facts.non_negative(o)]

    def element(i: list[ir.Value], parts: list[Any]) -> Any:
        at = places_from(offsets, i)
        if along is not None:
            at[along] = places_from([offsets[along]], [parts[-1]])[0]
        if bounds_check is False:
            return write(a, at, parts)
        return either(reader, within_array(reader, a, at, before), lambda: write(a, at, parts))

    return each_of(reader, shape, [*given, *more], element, node, 1 if along is not None and given else 0)


@reads(TILES["tile_load"], TILES["tile_load_indexed"])
def read_tile_load(reader: ReaderBase, node: ast.Call, a: Meaning, shape: Meaning, **where: Meaning) -> Any:
    dims = tile_dims(reader, shape, node)
    type_of_tile(reader, dims, tiled_array(reader, a, node).type.dtype, node)
    load = lambda found, at, parts: reader.loaded(narrowed(reader, found, at))  # noqa: E731
    return each_in_array(reader, node, a, dims, [], load, **where)


@reads(TILES["tile_store"], TILES["tile_store_indexed"], row=memory.STORE)
@reads(TILES["tile_atomic_add"], TILES["tile_atomic_add_indexed"], row=memory.ATOMIC_ADD)
def read_tile_store(
    reader: ReaderBase, node: ast.Call, a: Meaning, t: Meaning, row: Row = memory.STORE, **where: Meaning
) -> None:
    found, v = tiled_array(reader, a, node), any_tile(reader, t, node)
    if number_of(v.type) != found.type.dtype:
        text, instead = f"{v.type} cannot go into {found.type}", f"tile_astype(t, dtype={found.type.dtype})"
        raise reader.error(text, "store-type", node, "", instead)
    if isinstance(found, Fields) and row is not memory.STORE:
        raise reader.error("structs are not added", "operand-type", node, "", "an array for each field")

    def write(found: ArrayView | Fields, at: list[ir.Value], parts: list[Any]) -> None:
        place = narrowed(reader, found, at)
        if isinstance(place, Fields):
            reader.write(place, parts[0], node)
        else:
            reader.builder.emit(row, place.root, *place.prefix, parts[0])

    each_in_array(reader, node, a, v.type.dims, [v], write, **where)


def flat(type: Type) -> list[Tile]:
    """The types of the tiles of numbers that make up a tile type."""
    return [t for _, f in type.fields for t in flat(f)] if isinstance(type, TileOf) else [ir.type_as(type, Tile)]


def reshaped(reader: ReaderBase, v: ir.Value, dims: tuple[int, ...]) -> ir.Value:
    return reader.builder.emit(tiles.RESHAPE, v, attr=Tile(dims, ir.numeric(v).scalar))


# ---- changes in place


def tile_argument(name: str, position: int, node: ast.Call) -> ast.expr:
    named = [k.value for k in node.keywords if k.arg == name]
    return named[0] if named else node.args[position]


def rebind_tiles(reader: ReaderBase, builtin: str, node: ast.Call, *values: AnyTileValue) -> None:
    """Bind the names of the arguments that a call changes to their new values."""
    for (k, name), value in zip(CHANGED[builtin], values, strict=True):
        target = tile_argument(name, k, node)
        place = shown_place(reader, target) or reader.place(target)
        old = any_tile(reader, place.load(), target)
        refuse_shared(reader, old, target)
        if value.type != old.type:
            raise reader.error(f"{value.type} cannot go into {old.type}", "store-type", node)
        renamed(value, old)
        place.store(value)


def shown_place(reader: ReaderBase, target: ast.expr) -> LocalPart | None:
    """The place that `tile_transpose(t)` and other views show, for a call that changes it; None without a name."""
    callee = reader.python_object(target.func) if isinstance(target, ast.Call) else None
    if not isinstance(callee, TileBuiltin) or callee.__name__ not in SHOWING:
        return None
    place = shared(reader, reader.visit(target))
    if not has_shown(place):
        return None
    return LocalPart(lambda: present_tiles(reader, place), lambda v: put_in_place(reader, place, v))


def renamed(new: Meaning, old: Meaning) -> None:
    """Give the parts of a new tile the names of the old one's."""
    for part, before in zip(leaves(new), leaves(old), strict=True):
        part.name = part.name or before.name


# ---- parts and operators: `t[i:j] = ...`, `a + b`


def with_part(
    reader: ReaderBase, whole: AnyTileValue, part: AnyTileValue, offsets: list[ir.Value], node: ast.AST
) -> Any:
    refuse_beyond(reader, whole.type, part.type, offsets, node)
    pairs = zip(leaves(whole), leaves(part), strict=True)
    return rebuild(whole, iter([reader.builder.emit(tiles.ASSIGN, v, *offsets, p) for v, p in pairs]))


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
    x, y = (filled_to(reader, type.dims, v) if isinstance(v.type, Scalar) else v for v in (x, y))
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
        text = "a slice of a tile has constant ends and step 1"
        raise reader.error(text, "slice", node, "", "tile_view(t, offset=..., shape=...)")
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
