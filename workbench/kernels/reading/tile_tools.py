"""More of what tiles can do: random numbers, running extremes, Fourier transforms, stacks."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from .. import ir, ops
from ..ops import random, scalar, tile_algebra, tiles
from ..ops.signatures import TILES
from ..types import Composite, Struct, Tile, TileStack, Type, Vector, bool_, float32, int32, scalar_of, uint32
from . import tile_parts
from .base import Meaning, ReaderBase, reads
from .scope import AnyTileValue, StructParts, describe, leaves
from .tile_sharing import refuse_shared

# ---- random numbers


@reads(TILES["tile_randf"], draw=random.unit, type=float32)
@reads(TILES["tile_randi"], draw=random.whole, type=int32)
def read_tile_random(
    reader: ReaderBase,
    node: ast.Call,
    shape: Meaning,
    rng: Meaning,
    min: Meaning = None,
    max: Meaning = None,
    *,
    draw: Callable[..., Any],
    type: Type,
) -> ir.Value:
    """A number from the state of each element: these follow on the one after `rng`, as in Warp for a block of one."""
    state = reader.value(rng)
    if state.type is not uint32:
        raise reader.error(f"a random state is a uint32, not {state.type}", "operand-type", node, "", "rand_init(1)")
    dims = tile_parts.tile_dims(reader, shape, node)
    of_states = tile_parts.type_of_tile(reader, dims, uint32, node)
    states = reader.builder.emit(random.DRAWS, reader.builder.emit(random.PCG, state), attr=of_states)
    ends = [] if min is None else [reader.typed(min, type), reader.typed(max, type)]
    return tile_parts.each_of(reader, dims, [states, *ends], lambda i, parts: draw(*parts), node)


# ---- running extremes


@reads(TILES["tile_scan_max_inclusive"], which="max")
@reads(TILES["tile_scan_min_inclusive"], which="min")
def read_tile_scan_extreme(reader: ReaderBase, node: ast.Call, a: Meaning, which: str) -> ir.Value:
    v = tile_parts.tile_value(reader, a, node)
    dims = v.type.dims
    flat = tile_parts.reshaped(reader, v, (math.prod(dims),))
    best = reader.builder.emit(tile_algebra.BEST_SO_FAR, flat, attr=which)
    return tile_parts.reshaped(reader, reader.builder.emit(tile_algebra.TAKE, flat, best), dims)


# ---- Fourier transforms


@reads(TILES["tile_fft"], name="tile_fft", sign=-1)
@reads(TILES["tile_ifft"], name="tile_ifft", sign=1)
def read_tile_fft(reader: ReaderBase, node: ast.Call, inout: Meaning, name: str, sign: int) -> None:
    t = tile_parts.any_tile(reader, inout, node)
    pair = tile_parts.number_of(t.type)
    if not isinstance(pair, Vector) or pair.length != 2:
        text = f"`{name}` takes a tile of vec2, not {t.type}"
        raise reader.error(text, "tile-operand", node, "A component for the real and one for the imaginary part.")
    dims, parts = t.type.dims, list(leaves(t))
    rows, n = math.prod(dims[:-1]), dims[-1]
    type = Tile((2, rows, n), pair.scalar)
    both = reader.zero(type)
    for k, part in enumerate(parts):
        at = [reader.value(i) for i in (k, 0, 0)]
        both = reader.builder.emit(tiles.ASSIGN, both, *at, tile_parts.reshaped(reader, part, (1, rows, n)))
    made = reader.builder.emit(tile_algebra.DFT if n & (n - 1) else tile_algebra.FFT, both, attr=sign)
    row = Tile((1, rows, n), pair.scalar)
    views = [reader.builder.emit(tiles.VIEW, made, *[reader.value(i) for i in (k, 0, 0)], attr=row) for k in range(2)]
    whole = tile_parts.regrouped(pair, [tile_parts.reshaped(reader, v, dims) for v in views])
    tile_parts.rebind_tiles(reader, name, node, whole)


# ---- stacks


@reads(TILES["tile_stack"])
def read_tile_stack(reader: ReaderBase, node: ast.Call, capacity: Meaning, dtype: Meaning) -> StructParts:
    (size,) = tile_parts.tile_dims(reader, capacity, node)
    held = dtype if isinstance(dtype, (Composite, Struct)) else scalar_of(dtype)
    type = tile_parts.type_of_tile(reader, (size,), held, node)
    fields = (("values", type), ("count", int32))
    values = tile_parts.as_tile(type, iter([reader.zero(t) for t in tile_parts.flat(type)]))
    made = TileStack(f"tile_stack(dtype={held}, capacity={size})", fields)
    return StructParts(made, {"values": values, "count": reader.value(0)})


def stack_of(reader: ReaderBase, s: Meaning, node: ast.AST) -> tuple[AnyTileValue, ir.Value, StructParts]:
    if not isinstance(s, StructParts) or not isinstance(s.type, TileStack):
        raise reader.error(f"{describe(s)} is no stack", "tile-operand", node, "", "s = wb.tile_stack(16, dtype=int)")
    return s.fields["values"], s.fields["count"], s


def stacked(reader: ReaderBase, node: ast.Call, s: StructParts, values: AnyTileValue, count: ir.Value) -> None:
    """Bind the name of a stack to its new contents."""
    target = tile_parts.tile_argument("s", 0, node)
    if values is not s.fields["values"]:
        refuse_shared(reader, s.fields["values"], target)
        tile_parts.renamed(values, s.fields["values"])
    reader.place(target).store(StructParts(s.type, {"values": values, "count": count}))


@reads(TILES["tile_stack_push"])
def read_tile_stack_push(
    reader: ReaderBase, node: ast.Call, s: Meaning, value: Meaning, has_value: Meaning = True
) -> ir.Value:
    values, count, stack = stack_of(reader, s, node)
    held = ops.convert(bool_, reader.value(has_value))
    room = reader.builder.emit(scalar.LT, count, reader.value(values.type.dims[0]))
    condition = reader.builder.emit(scalar.LOGICAL_AND, held, room)

    def pushed() -> tuple[Any, ...]:
        new = tile_parts.with_element(reader, values, [count], value)
        return new, reader.builder.emit(scalar.ADD, count, reader.value(1)), count

    made, after, place = tile_parts.either(reader, condition, pushed, lambda _: (values, count, reader.value(-1)))
    stacked(reader, node, stack, made, after)
    return place


@reads(TILES["tile_stack_pop"])
def read_tile_stack_pop(reader: ReaderBase, node: ast.Call, s: Meaning) -> tuple[Any, ir.Value]:
    values, count, stack = stack_of(reader, s, node)

    def popped() -> tuple[Any, ...]:
        top = reader.builder.emit(scalar.SUB, count, reader.value(1))
        return tuple(tile_parts.numbers_of(reader, tile_parts.element_at(reader, values, [top]))), top, top

    def nothing(made: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([reader.zero(v.type) for v in made[0]]), reader.value(0), reader.value(-1)

    some = reader.builder.emit(scalar.LT, reader.value(0), count)
    parts, after, place = tile_parts.either(reader, some, popped, nothing)
    stacked(reader, node, stack, values, after)
    return tile_parts.composed(tile_parts.number_of(values.type), iter(parts)), place


@reads(TILES["tile_stack_clear"])
def read_tile_stack_clear(reader: ReaderBase, node: ast.Call, s: Meaning) -> None:
    values, _, stack = stack_of(reader, s, node)
    stacked(reader, node, stack, values, reader.value(0))


@reads(TILES["tile_stack_count"])
def read_tile_stack_count(reader: ReaderBase, node: ast.Call, s: Meaning) -> ir.Value:
    return stack_of(reader, s, node)[1]
