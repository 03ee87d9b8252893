"""Tiles in a kernel: what `tile_load`, `tile_map`, `tile_matmul` and the like mean, as rows, and as `each` of elements.

A tile is a value, so `b = a` makes no alias, and a part taken by `tile_view` is a value of its own. In NVIDIA Warp
these share memory, so changing one in place is refused here where it would show there in the other.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import ir, ops
from ..ops import control, memory, scalar, tile_algebra, tiles
from ..ops.row import Row, arity, constant
from ..ops.tile_names import CHANGED, TileBuiltin
from ..types import Composite, Scalar, Tile, bool_, int32, is_int, scalar_of
from .declare import Func
from .lower_bounds import static_int
from .scope import View, describe
from .tile_sharing import Sharing

LARGEST = 1 << 20  # bytes of one tile
_TEXTS = ("storage", "precision", "fill_mode")  # arguments that are words
_PLAIN = {"A": "a", "L": "low", "U": "up", "z": "y"}  # arguments as Warp names them
_IGNORED = ("storage", "precision", "aligned")  # how Warp does it, not what


class Tiles(Sharing):
    """Part of the reader: calls of `ops.tile_names`, and operators between tiles."""

    def call_tile(self, builtin: TileBuiltin, node: ast.Call) -> Any:
        method = getattr(self, f"read_{builtin.__name__}")
        names = [a.split("=")[0] for a in builtin.arguments.replace(", ...", "").split(", ") if a]
        if "..." in builtin.arguments or builtin.__name__ == "tile_arange":
            return method(node)
        given: dict[str, ast.expr] = {}
        for k, arg in enumerate(node.args):
            given[names[k] if k < len(names) else f"#{k}"] = arg
        for keyword in node.keywords:
            given[str(keyword.arg)] = keyword.value
        allowed = {*names, *_IGNORED, *({"bounds_check"} if {"a", "offset"} <= {*names} else ())}
        needed = [a for a in builtin.arguments.split(", ") if a and "=" not in a]
        odd = [n for n in given if n not in allowed]
        if odd or any(n not in given for n in needed):
            raise self.error(
                f"`{builtin.__name__}` does not take these arguments", "arguments", node,
                f"It is {builtin.__name__}({builtin.arguments}).", "",
            )  # fmt: skip
        named = {n: (a, self.word(a) if n in _TEXTS else self.checked(self.visit(a), a)) for n, a in given.items()}
        for name in _IGNORED:
            if name not in names:
                named.pop(name, None)
        return method(node, **{_PLAIN.get(n, n): v for n, (_, v) in named.items()})

    def word(self, node: ast.expr) -> Any:
        return node.value if isinstance(node, ast.Constant) else self.visit(node)

    # ---- shapes, offsets, types

    def tile_dims(self, shape: Any, node: ast.AST) -> tuple[int, ...]:
        sizes = shape if isinstance(shape, tuple) else (shape,)
        found = [static_int(n) for n in sizes]
        if not found or any(n is None or n < 1 for n in found):
            raise self.error(
                "the shape of a tile is made of constants from 1 on", "tile-shape", node,
                "It is a part of its type.", "shape=(16, 16), or names of constants",
            )  # fmt: skip
        return tuple(found)  # type: ignore[arg-type]

    def tile_type(self, dims: tuple[int, ...], dtype: Any, node: ast.AST) -> Tile:
        if isinstance(dtype, Composite):
            raise self.error(
                f"tiles of {dtype} are not built yet", "tile-type", node, "A tile holds numbers.",
                "one more axis for the components",
            )  # fmt: skip
        made = Tile(dims, scalar_of(dtype))
        if made.itemsize > LARGEST:
            raise self.error(
                f"{made} takes {made.itemsize:,} bytes", "tile-size", node,
                f"A tile lives near the processor: {LARGEST:,} bytes are the most.", "smaller tiles, in a loop",
            )  # fmt: skip
        return made

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

    def tile_value(self, x: Any, node: ast.AST) -> ir.Value:
        v = self.value(x)
        if not isinstance(v.type, Tile):
            raise self.error(f"{describe(v)} is no tile", "tile-operand", node, "", "wb.tile_load(a, shape=...)")
        return v

    def filled(self, type: Tile, number: ir.Value) -> ir.Value:
        if number.stmt is not None and number.stmt.row is control.CONST:
            return constant(type, number.stmt.attr)
        return self.builder.emit(tiles.FILL, number, attr=type)

    def one(self, number: ir.Value) -> ir.Value:
        """A tile of one element, as Warp gives the result of a reduction."""
        return self.filled(Tile((1,), number.type), number)  # type: ignore[arg-type]

    # ---- made from numbers

    def read_tile_zeros(self, node: ast.Call, shape: Any, dtype: Any = float, number: Any = 0) -> ir.Value:
        type = self.tile_type(self.tile_dims(shape, node), dtype, node)
        return constant(type, bool(number) if type.scalar is bool_ else number)

    read_tile_empty = read_tile_zeros

    def read_tile_ones(self, node: ast.Call, shape: Any, dtype: Any = float) -> ir.Value:
        return self.read_tile_zeros(node, shape, dtype, 1)

    def read_tile_full(self, node: ast.Call, shape: Any, value: Any, dtype: Any = None) -> ir.Value:
        number = self.typed(value, scalar_of(dtype)) if dtype is not None else self.value(value)
        if dtype is not None and number.type is not scalar_of(dtype):
            number = ops.convert(scalar_of(dtype), number)
        type = self.tile_type(self.tile_dims(shape, node), number.type, node)
        return self.filled(type, number)

    def read_tile_from_thread(self, node: ast.Call, shape: Any, value: Any, thread_idx: Any = 0) -> ir.Value:
        return self.read_tile_full(node, shape, value)

    def read_tile_arange(self, node: ast.Call) -> ir.Value:
        named = {str(k.arg): self.visit(k.value) for k in node.keywords if k.arg != "storage"}
        args = [self.visit(a) for a in node.args]
        dtype = named.pop("dtype", None)
        ends = [x if isinstance(x, (int, float)) else static_int(x) for x in args]
        if named or not 1 <= len(ends) <= 3 or any(e is None for e in ends):
            raise self.error(
                "`tile_arange` takes one to three constants", "arguments", node, "Its length is a part of its type.",
                "tile_arange(0, 16, 2, dtype=float)",
            )  # fmt: skip
        start, stop, step = (0, *ends, 1) if len(ends) == 1 else (*ends, 1)[:3]
        count = max(0, math.ceil((stop - start) / step)) if step else 0  # type: ignore[operator]
        whole = all(isinstance(e, int) for e in ends)
        number = scalar_of(dtype if dtype is not None else int if whole else float)
        type = self.tile_type(self.tile_dims(count, node), number, node)
        index = self.builder.emit(tiles.INDEX, attr=Tile((count,), int32))
        index = index if number is int32 else self.builder.emit(scalar.CAST, index, attr=number)
        return self.tile_binary("+", constant(type, start), self.tile_binary("*", index, constant(type, step)))

    def read_tile(self, node: ast.Call, x: Any) -> ir.Value:
        v = self.value(x)
        if not isinstance(v.type, Composite):
            return self.one(v)
        dims = (*v.type.shape, 1)
        made = constant(Tile(dims, v.type.scalar), 0)
        for k in range(v.type.size):
            at = (k,) if len(dims) == 2 else divmod(k, dims[1])
            part = self.component(v, at)
            made = self.builder.emit(tiles.SET, made, *[self.value(i) for i in (*at, 0)], part)
        return made

    def read_untile(self, node: ast.Call, a: Any) -> ir.Value:
        v = self.tile_value(a, node)
        if v.type.size != 1:  # type: ignore[attr-defined]
            raise self.error(
                f"`untile` takes a tile of one element, not {v.type}", "tile-shape", node,
                "A block has one thread of the program.", "t[i]",
            )  # fmt: skip
        return self.builder.emit(tiles.GET, v, *[self.value(0)] * len(v.type.shape))  # type: ignore[attr-defined]

    def read_block_dim(self, node: ast.Call) -> int:
        return 1

    # ---- memory

    def array_view(self, a: Any, node: ast.AST) -> View:
        if not isinstance(a, View) or a.type.ndim == 0:
            raise self.error(f"{describe(a)} is not an array of numbers", "not-an-array", node, "", "tile_load(a, ...)")
        self.tile_type((1,), a.type.dtype, node)
        return a

    def each(
        self, shape: tuple[int, ...], given: Sequence[ir.Value], write: Callable[[list[ir.Value], list[ir.Value]], Any],
        bounds: bool = False, order: int = 0,
    ) -> tuple[ir.Value, ...]:  # fmt: skip
        """`write(indices, elements)` for every index; it returns the results."""
        region = ir.Region([ir.Value(int32, name) for name, _ in zip("ijklmn", shape, strict=False)])
        elements = [ir.Value(v.type.scalar) for v in given]  # type: ignore[attr-defined]
        with self.builder.inside(region):
            results = write(list(region.params), elements)
        region.params += elements
        region.results = tuple(results or ())
        types = [Tile(shape, r.type) for r in region.results]  # type: ignore[arg-type]
        stmt = self.builder.append(control.EACH, tuple(given), types, (region,), control.Each(shape, bounds, order))
        return stmt.outs

    def within_array(self, view: View, at: list[ir.Value]) -> ir.Value | None:
        """The condition that an element is in the array, as the tile may end beyond it."""
        held = None
        for axis, i in enumerate(at):
            one = self.builder.emit(scalar.LT, i, self.extent(view, axis))
            held = one if held is None else self.builder.emit(scalar.LOGICAL_AND, held, one)
        return held

    def places(self, offsets: list[ir.Value], i: list[ir.Value]) -> list[ir.Value]:
        return [k if static_int(o) == 0 else ops.binary("+", o, k) for o, k in zip(offsets, i, strict=True)]

    def guarded(self, view: View, at: list[ir.Value], checked: bool, write: Callable[[], ir.Value | None]) -> Any:
        """What is done where the element exists; a load gives 0 elsewhere."""
        if not checked:
            return write()
        held = self.within_array(view, at)
        then, other = ir.Region(), ir.Region()
        with self.builder.inside(then):
            made = write()
        if made is not None:
            then.results = (made,)
            with self.builder.inside(other):
                other.results = (self.zero(made.type),)
        types = [made.type] if made is not None else []
        stmt = self.builder.append(control.IF, (held,), types, (then, other))  # type: ignore[arg-type]
        return stmt.outs[0] if made is not None else None

    def indexed(
        self, view: View, shape: tuple[int, ...], indices: Any, axis: Any, node: ast.AST
    ) -> tuple[list[ir.Value], int | None]:
        """The tile of the indices along one axis, broadcast to the shape; and that axis."""
        if indices is None:
            return [], None
        k, places = static_int(axis), self.tile_value(indices, node)
        if k is None or not 0 <= k < len(shape) or places.type != Tile((shape[k],), int32):
            raise self.error(
                f"indices of {places.type} along axis {axis} of a tile of shape {shape}", "tile-shape", node,
                "There is one int32 for each place along a constant axis.", "",
            )  # fmt: skip
        wide = Tile(tuple(shape[k] if d == k else 1 for d in range(len(shape))), int32)
        column = self.builder.emit(tiles.RESHAPE, places, attr=wide)
        return [self.builder.emit(tiles.BROADCAST, column, attr=Tile(shape, int32))], k

    def touched(
        self, node: ast.AST, a: Any, shape: tuple[int, ...], offset: Any, checked: Any, given: list[ir.Value],
        indices: Any, axis: Any, write: Callable[..., ir.Value | None],
    ) -> tuple[ir.Value, ...]:  # fmt: skip
        """`write(place, element)` for every element of a tile that lies in an array."""
        view = self.array_view(a, node)
        if len(shape) != view.type.ndim:
            raise self.error(
                f"a tile of {len(shape)} axes and {view.type}", "rank", node, "", "as many axes as the array"
            )
        offsets = self.offsets(offset, len(shape), node)
        more, along = self.indexed(view, shape, indices, axis, node)

        def element(i: list[ir.Value], parts: list[ir.Value]) -> tuple[ir.Value, ...]:
            at = self.places(offsets, i)
            if along is not None:
                at[along] = parts[-1]
            made = self.guarded(view, at, checked is not False, lambda: write(view, at, parts))
            return () if made is None else (made,)

        order = 1 if along is not None and given else 0
        return self.each(shape, [*given, *more], element, checked is not False and along is None, order)

    def load_element(self, view: View, at: list[ir.Value], parts: list[ir.Value]) -> ir.Value:
        return self.builder.emit(memory.LOAD, view.root, *self.spot(view, at))

    def writer(self, row: Row) -> Callable[..., None]:
        def write(view: View, at: list[ir.Value], parts: list[ir.Value]) -> None:
            self.builder.emit(row, view.root, *self.spot(view, at), parts[0])

        return write

    def read_tile_load(
        self, node: ast.Call, a: Any, shape: Any, offset: Any = None, bounds_check: Any = True, indices: Any = None,
        axis: Any = 0,
    ) -> ir.Value:  # fmt: skip
        view, dims = self.array_view(a, node), self.tile_dims(shape, node)
        self.tile_type(dims, view.type.dtype, node)
        return self.touched(node, a, dims, offset, bounds_check, [], indices, axis, self.load_element)[0]

    def read_tile_store(
        self, node: ast.Call, a: Any, t: Any, offset: Any = None, bounds_check: Any = True, indices: Any = None,
        axis: Any = 0, row: Row = memory.STORE,
    ) -> None:  # fmt: skip
        view, v = self.array_view(a, node), self.tile_value(t, node)
        if v.type.scalar != view.type.dtype:  # type: ignore[attr-defined]
            raise self.error(f"{v.type} cannot go into {view.type}", "store-type", node, "",
                             f"tile_astype(t, dtype={view.type.dtype})")  # fmt: skip
        dims = v.type.dims  # type: ignore[attr-defined]
        self.touched(node, a, dims, offset, bounds_check, [v], indices, axis, self.writer(row))

    def read_tile_atomic_add(self, node: ast.Call, a: Any, t: Any, **more: Any) -> None:
        self.read_tile_store(node, a, t, row=memory.ATOMIC_ADD, **more)

    read_tile_load_indexed = read_tile_load
    read_tile_store_indexed = read_tile_store
    read_tile_atomic_add_indexed = read_tile_atomic_add

    # ---- parts and forms

    def read_tile_extract(self, node: ast.Call) -> ir.Value:
        t, *indices = (self.visit(a) for a in node.args)
        return self.builder.emit(tiles.GET, self.tile_value(t, node), *map(self.value, indices))

    def read_tile_view(self, node: ast.Call, t: Any, offset: Any, shape: Any = None) -> ir.Value:
        v = self.tile_value(t, node)
        rank = len(v.type.shape)  # type: ignore[attr-defined]
        given = offset if isinstance(offset, tuple) else (offset,)
        offsets = self.offsets((*given, *(0,) * (rank - len(given))), rank, node)
        dims = v.type.shape[len(given) :] if shape is None else self.tile_dims(shape, node)  # type: ignore[attr-defined]
        whole = Tile((1,) * (rank - len(dims)) + dims, v.type.scalar)  # type: ignore[attr-defined]
        self.refuse_beyond(v.type, whole, offsets, node)  # type: ignore[arg-type]
        made = self.builder.emit(tiles.VIEW, v, *offsets, attr=whole)
        return made if whole.dims == dims else self.reshaped(made, dims)

    def refuse_beyond(self, type: Tile, part: Tile, offsets: list[ir.Value], node: ast.AST) -> None:
        """A part at constant offsets lies inside; at others this is seen when it runs."""
        for n, m, o in zip(type.dims, part.dims, offsets, strict=False):
            if m > n or (static_int(o) or 0) + m > n:
                raise self.error(
                    f"a part of shape {part.dims} from {static_int(o)} on does not fit into {type}", "tile-shape", node,
                    "", "a smaller shape or offset",
                )  # fmt: skip

    def reshaped(self, v: ir.Value, dims: tuple[int, ...]) -> ir.Value:
        return self.builder.emit(tiles.RESHAPE, v, attr=Tile(dims, v.type.scalar))  # type: ignore[attr-defined]

    def read_tile_reshape(self, node: ast.Call, t: Any, shape: Any) -> ir.Value:
        v, sizes = self.tile_value(t, node), [static_int(n) for n in (shape if isinstance(shape, tuple) else (shape,))]
        known = math.prod(n for n in sizes if n is not None and n > 0)
        dims = tuple(v.type.size // max(known, 1) if n == -1 else n for n in sizes)  # type: ignore[attr-defined]
        return self.reshaped(v, self.tile_dims(dims, node))

    def read_tile_squeeze(self, node: ast.Call, t: Any, axis: Any = None) -> ir.Value:
        v = self.tile_value(t, node)
        dims = v.type.dims  # type: ignore[attr-defined]
        given = axis if isinstance(axis, tuple) else (axis,)
        gone = [k for k, n in enumerate(dims) if n == 1] if axis is None else [static_int(k) for k in given]
        if any(k is None or not -len(dims) <= k < len(dims) or dims[k] != 1 for k in gone):
            raise self.error(f"{v.type} has no such axis of one element", "tile-shape", node, "", "tile_squeeze(t)")
        kept = [n for k, n in enumerate(dims) if k not in gone and k - len(dims) not in gone]
        return self.reshaped(v, tuple(kept) or (1,))

    def read_tile_broadcast(self, node: ast.Call, a: Any, shape: Any) -> ir.Value:
        v = self.tile_value(a, node)
        type = self.tile_type(self.tile_dims(shape, node), v.type.scalar, node)  # type: ignore[attr-defined]
        return self.builder.emit(tiles.BROADCAST, v, attr=type)

    def read_tile_transpose(self, node: ast.Call, a: Any) -> ir.Value:
        return self.builder.emit(tiles.TRANSPOSE, self.tile_value(a, node))

    def read_tile_astype(self, node: ast.Call, t: Any, dtype: Any) -> ir.Value:
        v = self.tile_value(t, node)
        return v if v.type.scalar is scalar_of(dtype) else self.builder.emit(scalar.CAST, v, attr=scalar_of(dtype))  # type: ignore[attr-defined]

    # ---- functions of elements, sums

    def read_tile_map(self, node: ast.Call) -> ir.Value:
        callee, *given = [self.visit(a) for a in node.args] or [None]
        if node.keywords or not given:
            raise self.error("`tile_map` takes a function and tiles", "arguments", node, "", "tile_map(f, t)")
        shapes = [v.type.dims for v in given if isinstance(getattr(v, "type", None), Tile)]
        if not shapes or any(s != shapes[0] for s in shapes):
            raise self.error(
                f"`tile_map` over tiles of shapes {shapes}", "tile-shape", node, "", "tile_broadcast(t, shape)"
            )
        first = next(v.type.scalar for v in given if isinstance(getattr(v, "type", None), Tile))
        values = []
        for g in given:
            v = g if isinstance(getattr(g, "type", None), Tile) else self.typed(g, first)
            if not isinstance(v.type, (Tile, Scalar)):
                raise self.error(f"`tile_map` takes tiles and numbers, not {v.type}", "tile-operand", node, "", "")
            values.append(v if isinstance(v.type, Tile) else self.filled(Tile(shapes[0], v.type), v))

        def element(i: list[ir.Value], parts: list[ir.Value]) -> tuple[ir.Value]:
            return (self.call_of_values(callee, parts, node),)

        (made,) = self.each(shapes[0], values, element)
        return made

    def call_of_values(self, callee: Any, args: list[ir.Value], node: ast.Call) -> ir.Value:
        """A builtin or a func of numbers."""
        if isinstance(callee, Func):
            callee = self.overload(callee, args, {}, node)
            try:
                bound = inspect.signature(callee.fn).bind(*args)
            except TypeError as e:
                raise self.error(f"`{callee.key}`: {e}", "arguments", node, "", "") from None
            if callee.custom and not any(frame.fn in (callee.grad, callee.replay) for frame in self.frames):
                made = self.call_custom(callee, dict(bound.arguments), node)
            else:
                made = self.inlined(callee.fn, dict(bound.arguments), node)
        elif (isinstance(callee, Row) and arity(callee) in (None, len(args))) or callee in ops.BUILTINS.values():
            made = callee(*args)
        else:
            raise self.error(
                f"{describe(callee)} is no function of numbers",
                "not-a-func",
                node,
                "",
                "a builtin, or @wb.func above it",
            )
        made = self.checked(made, node)
        if not isinstance(made, ir.Value) or not isinstance(made.type, Scalar):
            raise self.error(f"the function gives {describe(made)}, not a number", "tile-operand", node, "", "")
        return made

    def read_tile_sum(self, node: ast.Call, a: Any, axis: Any = None) -> ir.Value:
        v = self.tile_value(a, node)
        if axis is None:
            return self.one(self.builder.emit(tiles.TOTAL, v))
        k, rank = static_int(axis), len(v.type.shape)  # type: ignore[attr-defined]
        if k is None or not -rank <= k < rank:
            raise self.error(f"{v.type} has no axis {axis}", "tile-shape", node, "", "axis=0")
        return self.builder.emit(tiles.SUM_AXIS, v, attr=k % rank)

    def best(self, t: Any, which: str, node: ast.AST) -> tuple[ir.Value, ir.Value]:
        v = self.tile_value(t, node)
        flat = self.reshaped(v, (v.type.size,))  # type: ignore[attr-defined]
        return flat, self.builder.emit(tile_algebra.BEST, flat, attr=which)

    def read_tile_min(self, node: ast.Call, a: Any, which: str = "min") -> ir.Value:
        return self.one(self.builder.emit(tiles.GET, *self.best(a, which, node)))

    def read_tile_max(self, node: ast.Call, a: Any) -> ir.Value:
        return self.read_tile_min(node, a, "max")

    def read_tile_argmin(self, node: ast.Call, a: Any, which: str = "min") -> ir.Value:
        return self.one(self.best(a, which, node)[1])

    def read_tile_argmax(self, node: ast.Call, a: Any) -> ir.Value:
        return self.read_tile_argmin(node, a, "max")

    def read_tile_dot(self, node: ast.Call, a: Any, b: Any) -> ir.Value:
        product = self.tile_binary("*", self.tile_value(a, node), self.tile_value(b, node))
        return self.one(self.builder.emit(tiles.TOTAL, product))

    def read_tile_reduce(self, node: ast.Call, op: Any, a: Any) -> ir.Value:
        v = self.tile_value(a, node)
        size = v.type.size  # type: ignore[attr-defined]
        flat = self.reshaped(v, (size,))
        first = self.builder.emit(tiles.GET, flat, self.value(0))
        body = ir.Region([ir.Value(int32, "k"), ir.Value(first.type, "reduced")])
        with self.builder.inside(body):
            made = self.call_of_values(op, [body.params[1], self.builder.emit(tiles.GET, flat, body.params[0])], node)
        if made.type != first.type:
            raise self.error(f"the function gives {made.type} from {first.type}", "tile-operand", node, "", "")
        body.results = (made,)
        bounds = [self.value(n) for n in (1, size, 1)]
        loop = control.Loop(trips=max(size - 1, 0))
        return self.one(self.builder.append(control.FOR, (*bounds, first), (first.type,), (body,), loop).outs[0])

    def read_tile_scan_inclusive(self, node: ast.Call, a: Any) -> ir.Value:
        return self.builder.emit(tile_algebra.SCAN, self.tile_value(a, node), attr=(True, False))

    def read_tile_scan_exclusive(self, node: ast.Call, a: Any) -> ir.Value:
        return self.builder.emit(tile_algebra.SCAN, self.tile_value(a, node), attr=(False, False))

    # ---- matrices

    def read_tile_matmul(
        self, node: ast.Call, a: Any, b: Any, out: Any = None, alpha: Any = 1.0, beta: Any = 1.0
    ) -> ir.Value | None:
        x, y = self.tile_value(a, node), self.tile_value(b, node)
        for v in (x, y):
            tiles.floats_of("tile_matmul", v.type, 2)
        into = None if out is None else self.tile_value(out, node)
        number = x.type.scalar if into is None else into.type.scalar  # type: ignore[attr-defined]
        x, y = (v if v.type.scalar is number else self.builder.emit(scalar.CAST, v, attr=number) for v in (x, y))  # type: ignore[attr-defined]
        if alpha != 1.0:
            x = self.tile_binary("*", x, self.typed(alpha, number))
        if into is None:
            base = constant(Tile((x.type.dims[0], y.type.dims[1]), number), 0)  # type: ignore[attr-defined]
        else:
            base = into if beta == 1.0 else self.tile_binary("*", into, self.typed(beta, number))
        made = self.builder.emit(tiles.MATMUL, base, x, y, attr=0)
        return made if into is None else self.rebind_tiles("tile_matmul", node, made)

    def read_tile_diag_add(self, node: ast.Call, a: Any, d: Any) -> ir.Value:
        return self.tile_binary("+", self.tile_value(a, node), self.builder.emit(tile_algebra.DIAG, self.value(d)))

    def lower(self, fill_mode: Any, node: ast.AST) -> bool:
        if fill_mode not in ("lower", "upper"):
            raise self.error(f"fill_mode is 'lower' or 'upper', not {fill_mode!r}", "arguments", node, "", "")
        return fill_mode == "lower"

    def transposed(self, v: ir.Value) -> ir.Value:
        return self.builder.emit(tiles.TRANSPOSE, v)

    def read_tile_cholesky(self, node: ast.Call, a: Any, fill_mode: Any = "lower") -> ir.Value:
        v = self.tile_value(a, node)
        if self.lower(fill_mode, node):
            return self.builder.emit(tile_algebra.CHOLESKY, v)
        return self.transposed(self.builder.emit(tile_algebra.CHOLESKY, self.transposed(v)))

    def read_tile_cholesky_inplace(self, node: ast.Call, a: Any, fill_mode: Any = "lower") -> None:
        self.rebind_tiles("tile_cholesky_inplace", node, self.read_tile_cholesky(node, a, fill_mode))

    def solved(self, node: ast.AST, a: Any, y: Any, *steps: tuple[bool, str]) -> ir.Value:
        """Triangular solves one after the other: (with the transpose, which triangle)."""
        matrix, right = self.tile_value(a, node), self.tile_value(y, node)
        dims = right.type.dims  # type: ignore[attr-defined]
        made = self.reshaped(right, (*dims, 1)) if len(dims) == 1 else right
        for turned, side in steps:
            factor = self.transposed(matrix) if turned else matrix
            made = self.builder.emit(tile_algebra.SOLVE, factor, made, attr=side)
        return self.reshaped(made, dims) if len(dims) == 1 else made

    def read_tile_cholesky_solve(self, node: ast.Call, low: Any, y: Any, fill_mode: Any = "lower") -> ir.Value:
        turned = not self.lower(fill_mode, node)
        return self.solved(node, low, y, (turned, "lower"), (not turned, "upper"))

    def read_tile_cholesky_solve_inplace(self, node: ast.Call, low: Any, y: Any, fill_mode: Any = "lower") -> None:
        self.rebind_tiles("tile_cholesky_solve_inplace", node, self.read_tile_cholesky_solve(node, low, y, fill_mode))

    def read_tile_lower_solve(self, node: ast.Call, low: Any, y: Any) -> ir.Value:
        return self.solved(node, low, y, (False, "lower"))

    def read_tile_upper_solve(self, node: ast.Call, up: Any, y: Any) -> ir.Value:
        return self.solved(node, up, y, (False, "upper"))

    def read_tile_lower_solve_inplace(self, node: ast.Call, low: Any, y: Any) -> None:
        self.rebind_tiles("tile_lower_solve_inplace", node, self.read_tile_lower_solve(node, low, y))

    def read_tile_upper_solve_inplace(self, node: ast.Call, up: Any, y: Any) -> None:
        self.rebind_tiles("tile_upper_solve_inplace", node, self.read_tile_upper_solve(node, up, y))

    # ---- changes in place

    def tile_argument(self, name: str, position: int, node: ast.Call) -> ast.expr:
        named = [k.value for k in node.keywords if k.arg == name]
        return named[0] if named else node.args[position]

    def changed_tiles(self, callee: Any, node: ast.Call) -> list[ast.expr]:
        """Which arguments a call changes in place."""
        if not isinstance(callee, TileBuiltin):
            return []
        found = []
        for k, name in CHANGED.get(callee.__name__, ()):
            found += [*node.args[k : k + 1], *(w.value for w in node.keywords if w.arg == name)]
        return found

    def rebind_tiles(self, builtin: str, node: ast.Call, *values: ir.Value) -> None:
        """Bind the names of the arguments that a call changes to their new values."""
        for (k, name), value in zip(CHANGED[builtin], values, strict=True):
            target = self.tile_argument(name, k, node)
            place = self.place(target)
            old = self.value(place.load())
            self.refuse_shared(old, target)
            if value.type != old.type:
                raise self.error(f"{value.type} cannot go into {old.type}", "store-type", node, "", "")
            value.name = value.name or old.name
            place.store(value)

    def read_tile_assign(self, node: ast.Call, dst: Any, src: Any, offset: Any = None) -> None:
        v, p = self.tile_value(dst, node), self.tile_value(src, node)
        offsets = self.offsets(offset, len(v.type.shape), node)  # type: ignore[attr-defined]
        self.refuse_beyond(v.type, p.type, offsets, node)  # type: ignore[arg-type]
        self.rebind_tiles("tile_assign", node, self.builder.emit(tiles.ASSIGN, v, *offsets, p))

    def read_tile_axpy(self, node: ast.Call, alpha: Any, src: Any, dest: Any) -> None:
        x, y = self.tile_value(src, node), self.tile_value(dest, node)
        step = self.tile_binary("*", x, self.typed(alpha, x.type.scalar))  # type: ignore[attr-defined]
        self.rebind_tiles("tile_axpy", node, self.tile_binary("+", y, step))

    def read_tile_sort(self, node: ast.Call, keys: Any, values: Any) -> None:
        k, v = self.tile_value(keys, node), self.tile_value(values, node)
        order = self.builder.emit(tile_algebra.ORDER, k)
        if k.type.dims != v.type.dims:  # type: ignore[attr-defined]
            raise self.error(f"{k.type} does not sort {v.type}", "tile-shape", node, "", "tiles of one shape")
        self.rebind_tiles("tile_sort", node, *[self.builder.emit(tile_algebra.TAKE, x, order) for x in (k, v)])

    def scattered(self, builtin: str, row: Row, node: ast.Call) -> None:
        named = {str(k.arg): self.visit(k.value) for k in node.keywords}
        t, *rest = [self.visit(a) for a in node.args]
        v = self.tile_value(t, node)
        rank = len(v.type.shape)  # type: ignore[attr-defined]
        rest += [named[n] for n in ("value", "has_value") if n in named]
        if len(rest) not in (rank + 1, rank + 2, rank + 3):
            raise self.error(f"`{builtin}` takes {rank} indices, a value and a bool", "arguments", node, "", "")
        number = self.typed(rest[rank], v.type.scalar)  # type: ignore[attr-defined]
        held = rest[rank + 1] if len(rest) > rank + 1 else True
        then, other = ir.Region(), ir.Region(results=(v,))
        with self.builder.inside(then):
            then.results = (self.builder.emit(row, v, *map(self.value, rest[:rank]), number),)
        condition = constant(bool_, held) if isinstance(held, bool) else ops.convert(bool_, self.value(held))
        made = self.builder.append(control.IF, (condition,), (v.type,), (then, other)).outs[0]
        self.rebind_tiles(builtin, node, made)

    def read_tile_scatter_add(self, node: ast.Call) -> None:
        self.scattered("tile_scatter_add", tiles.ADD_AT, node)

    def read_tile_scatter_masked(self, node: ast.Call) -> None:
        self.scattered("tile_scatter_masked", tiles.SET, node)

    # ---- operators and elements

    def tile_binary(self, sign: str, a: Any, b: Any) -> ir.Value:
        """An operator between tiles of one shape, or a tile and a number."""
        whole = a if isinstance(getattr(a, "type", None), Tile) else b
        type = whole.type
        x, y = (self.typed(v, type.scalar) for v in (a, b))
        x, y = (self.filled(Tile(type.dims, v.type), v) if isinstance(v.type, Scalar) else v for v in (x, y))
        if not isinstance(x.type, Tile) or not isinstance(y.type, Tile) or x.type.dims != y.type.dims:
            raise self.error(
                f"`{sign}` between {x.type} and {y.type}", "tile-shape", None, "Tiles of one shape, or a number.",
                "tile_broadcast(t, shape=...)",
            )  # fmt: skip
        row = _OPERATORS.get(sign)
        if row is None:
            raise self.error(f"tiles have no operator `{sign}`", "tile-operand", None, "", "tile_map(f, a, b)")
        if row in _BITS:
            shape = x.type.dims
            return self.each(shape, [x, y], lambda i, parts: (row(*parts),))[0]
        return self.builder.emit(row, x, y)

    def tile_picked(self, type: Tile, nodes: list[ast.expr]) -> list[ir.Value]:
        if len(nodes) != len(type.dims):
            raise self.error(f"{type} takes {len(type.dims)} indices, got {len(nodes)}", "rank", nodes[-1], "",
                             "tile_view(t, offset=..., shape=...)")  # fmt: skip
        out = []
        for node, n in zip(nodes, type.dims, strict=True):
            if isinstance(node, ast.Slice):
                raise self.error("a tile is not sliced", "slice", node, "", "tile_view(t, offset=..., shape=...)")
            i = self.index(node)
            k = static_int(i)
            if k is not None and not -n <= k < n:
                raise self.error(f"element {k} is outside the {n} there are", "component-range", node, "", f"{n - 1}")
            out.append(i if k is None else self.value(k % n))
        return out


_BITS = (scalar.BIT_AND, scalar.BIT_OR, scalar.BIT_XOR, scalar.LSHIFT, scalar.RSHIFT, scalar.FLOORDIV, scalar.PYMOD)
_OPERATORS = {
    "+": scalar.ADD, "-": scalar.SUB, "*": scalar.MUL, "/": scalar.DIV, "//": scalar.FLOORDIV, "%": scalar.PYMOD,
    "&": scalar.BIT_AND, "|": scalar.BIT_OR, "^": scalar.BIT_XOR, "<<": scalar.LSHIFT, ">>": scalar.RSHIFT,
}  # fmt: skip
