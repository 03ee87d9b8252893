"""More of what tiles can do: random numbers, running extremes, Fourier transforms, stacks."""

from __future__ import annotations

import ast
import math
from typing import Any

from .. import ir, ops
from ..ops import control, random, scalar, tile_algebra, tile_fourier, tiles
from ..types import Composite, Struct, Tile, TileStack, Vector, bool_, int32, scalar_of, uint32
from .scope import StructParts, describe, leaves
from .tile_parts import TileParts, flat, number_of


class MoreTiles(TileParts):
    """Mixin of `Reader`: calls of the tile builtins of this module."""

    # ---- random numbers

    def drawn(self, node: ast.Call, shape: Any, rng: Any) -> ir.Value:
        """The states behind the elements: those that follow on the one after `rng`, as in Warp for a block of one."""
        state = self.value(rng)
        if state.type is not uint32:
            raise self.error(f"a random state is a uint32, not {state.type}", "operand-type", node, "", "rand_init(1)")
        type = self.tile_type(self.tile_dims(shape, node), uint32, node)
        return self.builder.emit(random.DRAWS, self.builder.emit(random.PCG, state), attr=type)

    def read_tile_randf(self, node: ast.Call, shape: Any, rng: Any, min: Any = None, max: Any = None) -> ir.Value:
        states = self.drawn(node, shape, rng)
        ends = [] if min is None else [self.typed(min, scalar_of(float)), self.typed(max, scalar_of(float))]
        return self.each_of(states.type.dims, [states, *ends], lambda i, parts: random.unit(*parts), node)  # type: ignore[attr-defined]

    def read_tile_randi(self, node: ast.Call, shape: Any, rng: Any, min: Any = None, max: Any = None) -> ir.Value:
        states = self.drawn(node, shape, rng)
        ends = [] if min is None else [self.typed(min, int32), self.typed(max, int32)]
        return self.each_of(states.type.dims, [states, *ends], lambda i, parts: random.whole(*parts), node)  # type: ignore[attr-defined]

    # ---- running extremes

    def read_tile_scan_max_inclusive(self, node: ast.Call, a: Any, which: str = "max") -> ir.Value:
        v = self.tile_value(a, node)
        dims = v.type.dims  # type: ignore[attr-defined]
        flat = self.reshaped(v, (math.prod(dims),))
        best = self.builder.emit(tile_algebra.BEST_SO_FAR, flat, attr=which)
        return self.reshaped(self.builder.emit(tile_algebra.TAKE, flat, best), dims)

    def read_tile_scan_min_inclusive(self, node: ast.Call, a: Any) -> ir.Value:
        return self.read_tile_scan_max_inclusive(node, a, "min")

    # ---- Fourier transforms

    def read_tile_fft(self, node: ast.Call, inout: Any, name: str = "tile_fft", sign: int = -1) -> None:
        t = self.any_tile(inout, node)
        pair = number_of(t.type)
        if not isinstance(pair, Vector) or pair.length != 2:
            raise self.error(
                f"`{name}` takes a tile of vec2, not {t.type}",
                "tile-operand",
                node,
                "A component for the real and one for the imaginary part.",
                "",
            )
        dims, parts = t.type.dims, list(leaves(t))
        rows, n = math.prod(dims[:-1]), dims[-1]
        both = self.zero(Tile((2, rows, n), pair.scalar))
        for k, part in enumerate(parts):
            at = [self.value(i) for i in (k, 0, 0)]
            both = self.builder.emit(tiles.ASSIGN, both, *at, self.reshaped(part, (1, rows, n)))
        made = self.builder.emit(tile_fourier.transform(both.type), both, attr=sign)  # type: ignore[arg-type]
        row = Tile((1, rows, n), pair.scalar)
        views = [self.builder.emit(tiles.VIEW, made, *[self.value(i) for i in (k, 0, 0)], attr=row) for k in range(2)]
        self.rebind_tiles(name, node, self.regrouped(pair, [self.reshaped(v, dims) for v in views]))

    def read_tile_ifft(self, node: ast.Call, inout: Any) -> None:
        self.read_tile_fft(node, inout, "tile_ifft", 1)

    # ---- stacks

    def read_tile_stack(self, node: ast.Call, capacity: Any, dtype: Any) -> StructParts:
        (size,) = self.tile_dims(capacity, node)
        held = dtype if isinstance(dtype, (Composite, Struct)) else scalar_of(dtype)
        type = self.tile_type((size,), held, node)
        fields = (("values", type), ("count", int32))
        values = self.as_tile(type, iter([self.zero(t) for t in flat(type)]))
        made = TileStack(f"tile_stack(dtype={held}, capacity={size})", fields)  # type: ignore[arg-type]
        return StructParts(made, {"values": values, "count": self.value(0)})

    def stack_of(self, s: Any, node: ast.AST) -> tuple[Any, ir.Value]:
        if not isinstance(s, StructParts) or not isinstance(s.type, TileStack):
            raise self.error(f"{describe(s)} is no stack", "tile-operand", node, "", "s = wb.tile_stack(16, dtype=int)")
        return s.fields["values"], s.fields["count"]

    def stacked(self, name: str, node: ast.Call, s: StructParts, values: Any, count: ir.Value) -> None:
        """Bind the name of a stack to its new contents."""
        target = self.tile_argument("s", 0, node)
        if values is not s.fields["values"]:
            self.refuse_shared(s.fields["values"], target)
            self.renamed(values, s.fields["values"])
        self.place(target).store(StructParts(s.type, {"values": values, "count": count}))

    def read_tile_stack_push(self, node: ast.Call, s: Any, value: Any, has_value: Any = True) -> ir.Value:
        values, count = self.stack_of(s, node)
        held = ops.convert(bool_, self.value(has_value))
        room = self.builder.emit(scalar.LT, count, self.value(values.type.dims[0]))
        condition = self.builder.emit(scalar.LOGICAL_AND, held, room)
        then, other = ir.Region(), ir.Region()
        with self.builder.inside(then):
            new = self.with_element(values, [count], value)
            then.results = (*leaves(new), self.builder.emit(scalar.ADD, count, self.value(1)), count)
        with self.builder.inside(other):
            other.results = (*leaves(values), count, self.value(-1))
        types = [v.type for v in then.results]
        *parts, after, place = self.builder.append(control.IF, (condition,), types, (then, other)).outs
        self.stacked("tile_stack_push", node, s, self.as_tile(values.type, iter(parts)), after)
        return place

    def read_tile_stack_pop(self, node: ast.Call, s: Any) -> tuple[Any, ir.Value]:
        values, count = self.stack_of(s, node)
        held = number_of(values.type)
        then, other = ir.Region(), ir.Region()
        with self.builder.inside(then):
            top = self.builder.emit(scalar.SUB, count, self.value(1))
            then.results = (*self.numbers(self.element_at(values, [top])), top, top)
        with self.builder.inside(other):
            zeros = [self.zero(v.type) for v in then.results[:-2]]
            other.results = (*zeros, self.value(0), self.value(-1))
        types = [v.type for v in then.results]
        some = self.builder.emit(scalar.LT, self.value(0), count)
        *parts, after, place = self.builder.append(control.IF, (some,), types, (then, other)).outs
        self.stacked("tile_stack_pop", node, s, values, after)
        return self.composed(held, iter(parts)), place

    def read_tile_stack_clear(self, node: ast.Call, s: Any) -> None:
        values, _ = self.stack_of(s, node)
        self.stacked("tile_stack_clear", node, s, values, self.value(0))

    def read_tile_stack_count(self, node: ast.Call, s: Any) -> ir.Value:
        return self.stack_of(s, node)[1]
