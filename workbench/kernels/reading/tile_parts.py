"""Tiles of vectors, matrices, quaternions and structs: one tile of numbers for each component, under one name.

So IR, passes and emitters know tiles of numbers alone. `each_of` is `each` over elements of any type: inside, the
components of an element are put together, and what it gives is taken apart again.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import ir, ops
from ..ir import constant
from ..ops import control, memory, scalar, tiles
from ..row import Row
from ..types import Composite, Scalar, Struct, Tile, TileOf, Type, int32, is_float, is_int, scalar_of, tile_type
from .lower_bounds import static_int
from .scope import ArrayView, Choice, Fields, StructParts, describe, leaves, rebuild
from .tile_sharing import Sharing

LARGEST = 1 << 20  # bytes of one tile


def is_tile(x: Any) -> bool:
    """True for a tile of numbers, and for one of composites or structs."""
    return isinstance(getattr(x, "type", None), (Tile, TileOf))


def number_of(type: Any) -> Any:
    """The element type of a tile: a scalar, a composite or a struct."""
    return type.dtype if isinstance(type, TileOf) else type.scalar


class TileParts(Sharing):
    """Mixin of `Reader`: tiles of any element type, element by element and part by part."""

    # ---- types

    def tile_dims(self, shape: Any, node: ast.AST) -> tuple[int, ...]:
        sizes = shape if isinstance(shape, tuple) else (shape,)
        found = [static_int(n) for n in sizes]
        if not found or any(n is None or n < 1 for n in found):
            raise self.error(
                "the shape of a tile is made of constants from 1 on",
                "tile-shape",
                node,
                "It is a part of its type.",
                "shape=(16, 16), or names of constants",
            )
        return tuple(found)  # type: ignore[arg-type]

    def tile_type(self, dims: tuple[int, ...], dtype: Any, node: ast.AST) -> Tile | TileOf:
        try:
            made = tile_type(dims, dtype if isinstance(dtype, (Composite, Struct)) else scalar_of(dtype))
        except TypeError as e:
            if hasattr(e, "slug"):
                raise
            raise self.error(str(e), "tile-type", node, "", "the numbers of it in a struct of their own") from None
        size = sum(t.itemsize for t in flat(made))
        if size > LARGEST:
            raise self.error(
                f"{made} takes {size:,} bytes",
                "tile-size",
                node,
                f"A tile lives near the processor: {LARGEST:,} bytes are the most.",
                "smaller tiles, in a loop",
            )
        return made

    def dtype_of(self, x: Any) -> Any:
        """The type of a number, vector or struct that is to be an element."""
        return x.type if isinstance(x, StructParts) else self.value(x).type

    # ---- elements

    def numbers(self, x: Any) -> list[ir.Value]:
        """The scalar components of an element, in the order of the tiles that hold them."""
        if isinstance(x, StructParts):
            return [n for part in x.fields.values() for n in self.numbers(part)]
        v = self.value(x)
        return [self.component(v, at) for at in ir_indices(v.type)] if isinstance(v.type, Composite) else [v]

    def composed(self, dtype: Any, parts: Iterator[ir.Value]) -> Any:
        """The element of type `dtype` made of its scalar components."""
        if isinstance(dtype, Struct):
            return StructParts(dtype, {name: self.composed(t, parts) for name, t in dtype.fields})
        if isinstance(dtype, Composite):
            return ops.construct(dtype, *[next(parts) for _ in range(dtype.size)])
        return next(parts)

    def as_tile(self, type: Tile | TileOf, parts: Iterator[ir.Value]) -> Any:
        """A tile (a Record if composite) made of the tiles of its components."""
        if isinstance(type, TileOf):
            return StructParts(type, {name: self.as_tile(t, parts) for name, t in type.fields})  # type: ignore[arg-type]
        return next(parts)

    def regrouped(self, dtype: Any, parts: Sequence[ir.Value]) -> Any:
        """Tiles of one shape as one tile of `dtype`, or of `dtype` over their scalar."""
        first: Any = parts[0].type
        if isinstance(dtype, (Scalar, Composite)):
            dtype = dtype.over(first.scalar)
        return self.as_tile(tile_type(first.dims, dtype), iter(parts))

    def per_part(self, x: Any, do: Callable[[ir.Value], ir.Value]) -> Any:
        """The tile with `do` applied to the tile of each component."""
        if not isinstance(x, StructParts):
            return do(x)
        return self.regrouped(x.type.dtype, [do(part) for part in leaves(x)])  # type: ignore[attr-defined]

    def any_tile(self, x: Any, node: ast.AST) -> Any:
        return x if isinstance(x, StructParts) and is_tile(x) else self.tile_value(x, node)

    def tile_value(self, x: Any, node: ast.AST) -> ir.Value:
        if isinstance(x, StructParts) and is_tile(x):
            raise self.error(f"this takes a tile of numbers, not {x.type}", "tile-operand", node, "", "tile_map(f, t)")
        v = self.value(x)
        if not isinstance(v.type, Tile):
            raise self.error(f"{describe(v)} is no tile", "tile-operand", node, "", "wb.tile_load(a, shape=...)")
        return v

    def filled(self, type: Tile, number: ir.Value) -> ir.Value:
        if number.stmt is not None and number.stmt.row is control.CONST:
            return constant(type, number.stmt.attr)
        return self.builder.emit(tiles.FILL, number, attr=type)

    def filled_with(self, dims: tuple[int, ...], x: Any, node: ast.AST) -> Any:
        """A tile with one element everywhere."""
        type = self.tile_type(dims, self.dtype_of(x), node)
        return self.as_tile(type, iter([self.filled(Tile(dims, n.type), n) for n in self.numbers(x)]))  # type: ignore[arg-type]

    def one(self, number: Any) -> Any:
        """A tile of one element, as Warp gives the result of a reduction."""
        return self.filled_with((1,), number, self.frame.source.tree)

    def element_at(self, t: Any, indices: Sequence[ir.Value]) -> Any:
        got = iter([self.builder.emit(tiles.GET, part, *indices) for part in leaves(t)])
        return self.composed(number_of(t.type), got)

    def with_element(self, t: Any, indices: Sequence[ir.Value], x: Any, row: Row = tiles.SET) -> Any:
        """The tile with an element replaced."""
        x = self.typed(x, number_of(t.type)) if isinstance(t, ir.Value) else x
        if self.dtype_of(x) != number_of(t.type):
            raise self.error(f"{describe(x)} cannot go into {t.type}", "store-type", None, "", f"{number_of(t.type)}")
        numbers = zip(leaves(t), self.numbers(x), strict=True)
        return rebuild(t, iter([self.builder.emit(row, part, *indices, n) for part, n in numbers]))

    # ---- every element

    def each(
        self,
        shape: tuple[int, ...],
        given: Sequence[ir.Value],
        write: Callable[[list[ir.Value], list[ir.Value]], Any],
        bounds: bool = False,
        order: int = 0,
    ) -> tuple[ir.Value, ...]:
        """Emit an `each` whose body is `write(indices, elements)`; returns its result tiles."""
        region = ir.Region([ir.Value(int32, name) for name, _ in zip("ijklmn", shape, strict=False)])
        elements = [ir.Value(v.type.scalar) for v in given]  # type: ignore[attr-defined]
        with self.builder.inside(region):
            results = write(list(region.params), elements)
        region.params += elements
        region.results = tuple(results or ())
        types = [Tile(shape, r.type) for r in region.results]  # type: ignore[arg-type]
        stmt = self.builder.append(control.EACH, tuple(given), types, (region,), control.Each(shape, bounds, order))
        return stmt.outs

    def each_of(
        self,
        shape: tuple[int, ...],
        given: Sequence[Any],
        write: Callable[[list[ir.Value], list[Any]], Any],
        node: ast.AST,
        bounds: bool = False,
        order: int = 0,
    ) -> Any:
        """Emit an `each` over tiles of any element type; returns the tile of the results of `write(indices, elements)`.

        A part of `given` that is no tile serves every element.
        """
        sources, open = [], []
        for g in given:
            tiled = is_tile(g)
            parts = list(leaves(g)) if tiled else [n for v in leaves(g) if is_float(v.type) for n in self.numbers(v)]
            open.append((g, tiled))
            sources += parts if tiled else [self.filled(Tile(shape, n.type), n) for n in parts]  # type: ignore[arg-type]
        found: list[Any] = []

        def inner(i: list[ir.Value], parts: list[ir.Value]) -> list[ir.Value]:
            rest = iter(parts)
            elements = [self.composed(number_of(g.type), rest) if tiled else self.served(g, rest) for g, tiled in open]
            result = write(i, elements)
            if result is None:
                return []
            found.append(self.dtype_of(result))
            return self.numbers(result)

        outs = self.each(shape, sources, inner, bounds, order)
        return self.as_tile(self.tile_type(shape, found[0], node), iter(outs)) if found else None

    def served(self, g: Any, parts: Iterator[ir.Value]) -> Any:
        new = [self.composed(v.type, parts) if is_float(v.type) else v for v in leaves(g)]
        return rebuild(g, iter(new))

    # ---- memory

    def offsets(self, offset: Any, rank: int, node: ast.AST) -> list[ir.Value]:
        given = offset if isinstance(offset, tuple) else (offset,) + (0,) * (rank - 1) if offset is not None else ()
        given = given or (0,) * rank
        if len(given) != rank:
            raise self.error(f"an offset of {len(given)} numbers, {rank} axes", "rank", node, "", "offset=(i, j)")
        out = []
        for o in given:
            v = self.value(o)
            if not is_int(v.type):
                raise self.error(f"an offset is an integer, not {v.type}", "index-type", node, "", "int(...)")
            if (static_int(v) or 0) < 0:
                raise self.error(
                    "an offset is not negative", "tile-offset", node, "It does not count from the end.", ""
                )
            out.append(v if v.type is int32 else self.builder.emit(scalar.CAST, v, attr=int32))
        return out

    def tiled_array(self, a: Any, node: ast.AST) -> ArrayView | Fields:
        if isinstance(a, Choice):
            raise self.error(
                f"a tile of one array or another: {ast.unparse(node)}",
                "array-choice",
                node,
                "The threads of a block would have to agree on it.",
                "the load or store on each branch",
            )
        if not isinstance(a, (ArrayView, Fields)) or a.type.ndim == 0:
            raise self.error(f"{describe(a)} is not an array", "not-an-array", node, "", "tile_load(a, ...)")
        return a

    def within_array(self, a: ArrayView | Fields, at: list[ir.Value], before: list[int]) -> ir.Value:
        """The condition that index `at` is in the array: below its extents, and not negative on the axes `before`."""
        view, emit = a if isinstance(a, ArrayView) else a.first, self.builder.emit
        held = [emit(scalar.LT, i, self.extent(view, axis)) for axis, i in enumerate(at)]
        held += [emit(scalar.GE, at[axis], constant(int32, 0)) for axis in before]
        return functools.reduce(lambda a, b: emit(scalar.LOGICAL_AND, a, b), held)

    def places(self, offsets: list[ir.Value], i: list[ir.Value]) -> list[ir.Value]:
        return [k if static_int(o) == 0 else ops.binary("+", o, k) for o, k in zip(offsets, i, strict=True)]

    def guarded(
        self, a: ArrayView | Fields, at: list[ir.Value], checked: bool, before: list[int], write: Callable[[], Any]
    ) -> Any:
        """The result of `write` where the element is in the array, 0 elsewhere; no branch unless `checked`."""
        if not checked:
            return write()
        held = self.within_array(a, at, before)
        then, other = ir.Region(), ir.Region()
        with self.builder.inside(then):
            made = write()
        then.results = tuple(leaves(made))
        with self.builder.inside(other):
            other.results = tuple(self.zero(v.type) for v in then.results)
        types = [v.type for v in then.results]
        stmt = self.builder.append(control.IF, (held,), types, (then, other))  # type: ignore[arg-type]
        return rebuild(made, iter(stmt.outs))

    def indexed(self, shape: tuple[int, ...], indices: Any, axis: Any, node: ast.AST) -> tuple[list, int | None]:
        """([tile of the indices along one axis, broadcast to the shape], that axis); ([], None) without indices."""
        if indices is None:
            return [], None
        k, places = static_int(axis), self.tile_value(indices, node)
        if k is None or not 0 <= k < len(shape) or places.type != Tile((shape[k],), int32):
            raise self.error(
                f"indices of {places.type} along axis {axis} of a tile of shape {shape}",
                "tile-shape",
                node,
                "There is one int32 for each place along a constant axis.",
                "",
            )
        wide = Tile(tuple(shape[k] if d == k else 1 for d in range(len(shape))), int32)
        column = self.builder.emit(tiles.RESHAPE, places, attr=wide)
        return [self.builder.emit(tiles.BROADCAST, column, attr=Tile(shape, int32))], k

    def touched(
        self,
        node: ast.AST,
        a: Any,
        shape: tuple[int, ...],
        offset: Any,
        checked: Any,
        given: list[Any],
        indices: Any,
        axis: Any,
        write: Callable[..., Any],
    ) -> Any:
        """Emit `write(array, place, elements)` for every element of a tile that lies in an array."""
        a = self.tiled_array(a, node)
        if len(shape) != a.type.ndim:
            raise self.error(f"a tile of {len(shape)} axes and {a.type}", "rank", node, "", "as many axes as the array")
        offsets = self.offsets(offset, len(shape), node)
        more, along = self.indexed(shape, indices, axis, node)
        before = [k for k, o in enumerate(offsets) if k == along or not self.facts.non_negative(o)]

        def element(i: list[ir.Value], parts: list[Any]) -> Any:
            at = self.places(offsets, i)
            if along is not None:
                at[along] = self.places([offsets[along]], [parts[-1]])[0]
            return self.guarded(a, at, checked is not False, before, lambda: write(a, at, parts))

        order = 1 if along is not None and given else 0
        return self.each_of(shape, [*given, *more], element, node, checked is not False and not before, order)

    def read_tile_load(
        self,
        node: ast.Call,
        a: Any,
        shape: Any,
        offset: Any = None,
        bounds_check: Any = True,
        indices: Any = None,
        axis: Any = 0,
    ) -> Any:
        dims = self.tile_dims(shape, node)
        self.tile_type(dims, self.tiled_array(a, node).type.dtype, node)
        load = lambda found, at, parts: self.loaded(self.narrowed(found, at))  # noqa: E731
        return self.touched(node, a, dims, offset, bounds_check, [], indices, axis, load)

    def read_tile_store(
        self,
        node: ast.Call,
        a: Any,
        t: Any,
        offset: Any = None,
        bounds_check: Any = True,
        indices: Any = None,
        axis: Any = 0,
        row: Row = memory.STORE,
    ) -> None:
        found, v = self.tiled_array(a, node), self.any_tile(t, node)
        if number_of(v.type) != found.type.dtype:
            raise self.error(
                f"{v.type} cannot go into {found.type}",
                "store-type",
                node,
                "",
                f"tile_astype(t, dtype={found.type.dtype})",
            )
        if isinstance(found, Fields) and row is not memory.STORE:
            raise self.error("structs are not added", "operand-type", node, "", "an array for each field")
        write = lambda found, at, parts: self.put_at(self.narrowed(found, at), parts[0], row, node)  # noqa: E731
        self.touched(node, a, v.type.dims, offset, bounds_check, [v], indices, axis, write)

    def put_at(self, place: ArrayView | Fields, x: Any, row: Row, node: ast.Call) -> None:
        if isinstance(place, Fields):
            self.write(place, x, node)
        else:
            self.builder.emit(row, place.root, *place.prefix, x)

    def read_tile_atomic_add(self, node: ast.Call, a: Any, t: Any, **more: Any) -> None:
        self.read_tile_store(node, a, t, row=memory.ATOMIC_ADD, **more)

    read_tile_load_indexed = read_tile_load
    read_tile_store_indexed = read_tile_store
    read_tile_atomic_add_indexed = read_tile_atomic_add


def flat(type: Any) -> list[Tile]:
    """The types of the tiles of numbers that make up a tile type."""
    return [t for _, f in type.fields for t in flat(f)] if isinstance(type, TileOf) else [type]


def ir_indices(type: Type) -> list[tuple[int, ...]]:
    """The indices of the components of a composite, row by row: (k,) or (row, column)."""
    shape = type.shape  # type: ignore[attr-defined]
    return (
        [(k,) for k in range(shape[0])]
        if len(shape) == 1
        else [(r, c) for r in range(shape[0]) for c in range(shape[1])]
    )
