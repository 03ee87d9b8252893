"""Tiles in a kernel: what `tile_load`, `tile_map`, `tile_matmul` and the like mean, as rows, and as `each` of elements.

A tile is a value in the IR. What several names show, as parts or other forms of one tile, is said in `tile_sharing`.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import ir, ops
from ..ir import constant
from ..ops import control, scalar, tile_algebra, tiles
from ..ops.tile_names import CHANGED, PER_PART, SHOWING, TileBuiltin
from ..row import Row, arity
from ..types import Composite, Scalar, Tile, bool_, float16, float32, int32, matrix, scalar_of, vector
from .declare import Func
from .lower_bounds import static_int
from .scope import LocalPart, StructParts, describe, is_literal, leaves, rebuild
from .tile_parts import flat, is_tile, number_of
from .tile_sharing import has_shown, has_tiles
from .tile_tools import MoreTiles

_TEXTS = ("storage", "precision", "fill_mode")  # arguments that are words
_PLAIN = {"A": "a", "L": "low", "U": "up", "z": "y"}  # arguments as Warp names them
_IGNORED = ("storage", "precision", "aligned")  # how Warp does it, not what


class Tiles(MoreTiles):
    """Mixin of `Reader`: calls of `ops.tile_names`, and operators between tiles."""

    def call_tile(self, builtin: TileBuiltin, node: ast.Call) -> Any:
        if builtin.__name__.endswith("_inplace") and "..." in builtin.arguments:
            return self.changed_element(builtin.__name__, node)
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
                f"`{builtin.__name__}` does not take these arguments",
                "arguments",
                node,
                f"It is {builtin.__name__}({builtin.arguments}).",
                "",
            )
        named = {n: (a, self.tile_argument_value(n, a)) for n, a in given.items()}
        for name in _IGNORED:
            if name not in names:
                named.pop(name, None)
        values = {_PLAIN.get(n, n): v for n, (_, v) in named.items()}
        whole = PER_PART.get(builtin.__name__, "")
        if not isinstance(values.get(whole), StructParts):
            return method(node, **values)
        return self.per_part(self.any_tile(values[whole], node), lambda p: method(node, **{**values, whole: p}))

    def tile_argument_value(self, name: str, node: ast.expr) -> Any:
        if name in _TEXTS and isinstance(node, ast.Constant):
            return node.value
        return node if isinstance(node, ast.Lambda) else self.checked(self.visit(node), node)

    # ---- made from numbers

    def read_tile_zeros(self, node: ast.Call, shape: Any, dtype: Any = float, number: Any = 0) -> Any:
        type = self.tile_type(self.tile_dims(shape, node), dtype, node)
        parts = [constant(t, bool(number) if t.scalar is bool_ else number) for t in flat(type)]
        return self.as_tile(type, iter(parts))

    read_tile_empty = read_tile_zeros

    def read_tile_ones(self, node: ast.Call, shape: Any, dtype: Any = float) -> Any:
        return self.read_tile_zeros(node, shape, dtype, 1)

    def read_tile_full(self, node: ast.Call, shape: Any, value: Any, dtype: Any = None) -> Any:
        dims = self.tile_dims(shape, node)
        if dtype is None or isinstance(value, StructParts):
            return self.filled_with(dims, value if isinstance(value, StructParts) else self.value(value), node)
        if isinstance(dtype, Composite):
            return self.filled_with(dims, ops.construct(dtype, self.typed(value, dtype.scalar)), node)
        number = self.typed(value, scalar_of(dtype))
        if number.type is not scalar_of(dtype):
            number = ops.convert(scalar_of(dtype), number)
        return self.filled_with(dims, number, node)

    def read_tile_from_thread(self, node: ast.Call, shape: Any, value: Any, thread_idx: Any = 0) -> Any:
        return self.read_tile_full(node, shape, value)

    def read_tile_arange(self, node: ast.Call) -> ir.Value:
        named = {str(k.arg): self.visit(k.value) for k in node.keywords if k.arg != "storage"}
        args = [self.visit(a) for a in node.args]
        dtype = named.pop("dtype", None)
        ends = [x if isinstance(x, (int, float)) else static_int(x) for x in args]
        if named or not 1 <= len(ends) <= 3 or any(e is None for e in ends):
            raise self.error(
                "`tile_arange` takes one to three constants",
                "arguments",
                node,
                "Its length is a part of its type.",
                "tile_arange(0, 16, 2, dtype=float)",
            )
        start, stop, step = (0, *ends, 1) if len(ends) == 1 else (*ends, 1)[:3]
        count = max(0, math.ceil((stop - start) / step)) if step else 0  # type: ignore[operator]
        whole = all(isinstance(e, int) for e in ends)
        number = scalar_of(dtype if dtype is not None else int if whole else float)
        type = self.tile_type(self.tile_dims(count, node), number, node)
        index = self.builder.emit(tiles.INDEX, attr=Tile((count,), int32))
        index = index if number is int32 else self.builder.emit(scalar.CAST, index, attr=number)
        return self.tile_binary("+", constant(type, start), self.tile_binary("*", index, constant(type, step)))

    def read_tile(self, node: ast.Call, x: Any, preserve_type: Any = False) -> Any:
        v = x if isinstance(x, StructParts) else self.value(x)
        if preserve_type or not isinstance(v.type, Composite):
            return self.one(v)
        dims = (*v.type.shape, 1)
        made = constant(Tile(dims, v.type.scalar), 0)
        for k, part in enumerate(self.numbers(v)):
            at = (k,) if len(dims) == 2 else divmod(k, dims[1])
            made = self.builder.emit(tiles.SET, made, *[self.value(i) for i in (*at, 0)], part)
        return made

    def read_untile(self, node: ast.Call, a: Any) -> Any:
        """The value in a tile made by `tile(x)`: its one number, or the composite of its components."""
        v = self.any_tile(a, node)
        dims = v.type.dims
        if math.prod(dims) == 1:
            return self.element_at(v, [self.value(0)] * len(dims))
        if isinstance(v, StructParts) or len(dims) not in (2, 3) or dims[-1] != 1:
            raise self.error(
                f"`untile` takes a tile of one element, or of the components of one, not {v.type}",
                "tile-shape",
                node,
                "A block has one thread of the program.",
                "t[i]",
            )
        number = v.type.scalar  # type: ignore[attr-defined]
        type = vector(dims[0], number) if len(dims) == 2 else matrix(dims[:2], number)
        at = [[self.value(i) for i in (*index, 0)] for index in np.ndindex(*dims[:-1])]
        return ops.construct(type, *[self.builder.emit(tiles.GET, v, *i) for i in at])

    def read_block_dim(self, node: ast.Call) -> int:
        return 1

    # ---- parts and forms

    def read_tile_extract(self, node: ast.Call) -> Any:
        t, *indices = (self.visit(a) for a in node.args)
        v = self.any_tile(t, node)
        if len(indices) != len(v.type.dims):
            raise self.error(f"{v.type} takes {len(v.type.dims)} indices, got {len(indices)}", "rank", node, "", "")
        return self.element_at(v, [self.value(i) for i in indices])

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
        """Raise KernelError if a part cannot fit; unknown offsets count as 0, and are checked when it runs."""
        for n, m, o in zip(type.dims, part.dims, offsets, strict=False):
            if m > n or (static_int(o) or 0) + m > n:
                raise self.error(
                    f"a part of shape {part.dims} from {static_int(o)} on does not fit into {type}",
                    "tile-shape",
                    node,
                    "",
                    "a smaller shape or offset",
                )

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

    def read_tile_map(self, node: ast.Call) -> Any:
        callee, *given = [self.tile_argument_value("", a) for a in node.args] or [None]
        shapes = [v.type.dims for v in given if is_tile(v)]
        if node.keywords or not shapes:
            raise self.error("`tile_map` takes a function and tiles", "arguments", node, "", "tile_map(f, t)")
        if any(s != shapes[0] for s in shapes):
            raise self.error(
                f"`tile_map` over tiles of shapes {shapes}", "tile-shape", node, "", "tile_broadcast(t, shape)"
            )
        first = next((v.type.scalar for v in given if is_tile(v) and isinstance(v.type, Tile)), None)
        values = [
            self.typed(g, first) if first is not None and is_literal(g) else self.materialised(g, "") for g in given
        ]
        return self.mapped_elements(shapes[0], callee, values, node)

    def mapped_elements(self, dims: tuple[int, ...], callee: Any, values: list[Any], node: ast.Call) -> Any:
        """The tile of the results of `callee` per element; free variables of a lambda are the same for all."""
        outside = self.taken_from_outside(callee) if isinstance(callee, ast.Lambda) else {}
        count = len(values)

        def element(i: list[ir.Value], parts: list[Any]) -> Any:
            with self.naming(dict(zip(outside, parts[count:], strict=True))):
                return self.call_of_values(callee, parts[:count], node)

        return self.each_of(dims, [*values, *outside.values()], element, node)

    def taken_from_outside(self, function: ast.Lambda) -> dict[str, Any]:
        own = {a.arg for a in function.args.args}
        names = {n.id for n in ast.walk(function.body) if isinstance(n, ast.Name)} - own
        known = {name: self.state.names[name] for name in sorted(names & self.state.names.keys())}
        return {n: v for n, v in known.items() if isinstance(v, (ir.Value, StructParts)) and not has_tiles(v)}

    @contextmanager
    def naming(self, names: dict[str, Any]) -> Iterator[None]:
        """Context: these names are bound to these values."""
        outer = self.state.names
        self.state.names = {**outer, **names}
        try:
            yield
        finally:
            self.state.names = outer

    def call_lambda(self, function: ast.Lambda, args: list[Any], node: ast.Call) -> Any:
        names = [a.arg for a in function.args.args]
        if len(names) != len(args) or function.args.vararg or function.args.kwonlyargs or function.args.kwarg:
            raise self.error(f"the lambda gets {len(args)} values", "arguments", node, "", "as many plain names")
        with self.naming(dict(zip(names, args, strict=True))):
            return self.visit(function.body)

    def call_of_values(self, callee: Any, args: list[Any], node: ast.Call) -> Any:
        """The result of a builtin, a func or a lambda on numbers, vectors or structs."""
        if isinstance(callee, ast.Lambda):
            made = self.call_lambda(callee, args, node)
        elif isinstance(callee, Func):
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
        if not isinstance(made, StructParts) and not (self.valued(made) and not is_tile(made)):
            raise self.error(f"the function gives {describe(made)}", "tile-operand", node, "", "a number or vector")
        return made

    def read_tile_sum(self, node: ast.Call, a: Any, axis: Any = None) -> ir.Value:
        v = self.tile_value(a, node)
        if axis is None:
            return self.one(self.builder.emit(tiles.TOTAL, v))
        return self.builder.emit(tiles.SUM_AXIS, v, attr=self.axis(axis, v.type, node))

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
        x, y = self.any_tile(a, node), self.any_tile(b, node)
        if x.type != y.type:
            raise self.error(f"`tile_dot` of {x.type} and {y.type}", "tile-shape", node, "", "tiles of one type")
        pairs = zip(leaves(x), leaves(y), strict=True)
        totals = [self.builder.emit(tiles.TOTAL, self.builder.emit(scalar.MUL, p, q)) for p, q in pairs]
        return self.one(functools.reduce(lambda p, q: self.builder.emit(scalar.ADD, p, q), totals))

    def read_tile_reduce(self, node: ast.Call, op: Any, a: Any, axis: Any = None) -> Any:
        v = self.any_tile(a, node)
        dims = v.type.dims
        if axis is None:
            v, count = self.per_part(v, lambda p: self.reshaped(p, (math.prod(dims),))), math.prod(dims)
            got = lambda place: self.element_at(v, [place])  # noqa: E731
            apply = lambda x, y: self.call_of_values(op, [x, y], node)  # noqa: E731
        else:
            k = self.axis(axis, v.type, node)
            rest, count = tiles.without(dims, k), dims[k]

            def got(place: ir.Value) -> Any:
                offset = [place if d == k else self.value(0) for d in range(len(dims))]
                row = tuple(1 if d == k else n for d, n in enumerate(dims))

                def part(p: ir.Value) -> ir.Value:
                    view = self.builder.emit(tiles.VIEW, p, *offset, attr=Tile(row, p.type.scalar))  # type: ignore[attr-defined]
                    return self.reshaped(view, rest)

                return self.per_part(v, part)

            def apply(x: Any, y: Any) -> Any:
                return self.mapped_elements(rest, op, [x, y], node)

        first = got(self.value(0))
        carried = [ir.Value(p.type, "reduced") for p in leaves(first)]
        body = ir.Region([ir.Value(int32, "k"), *carried])
        with self.builder.inside(body):
            made = apply(rebuild(first, iter(carried)), got(body.params[0]))
        if made.type != first.type:
            raise self.error(f"the function gives {made.type} from {first.type}", "tile-operand", node, "", "")
        body.results = tuple(leaves(made))
        bounds = [self.value(n) for n in (1, count, 1)]
        loop = control.Loop(trips=max(count - 1, 0))
        types = [p.type for p in carried]
        outs = self.builder.append(control.FOR, (*bounds, *leaves(first)), types, (body,), loop).outs
        result = rebuild(first, iter(outs))
        return self.one(result) if axis is None else result

    def axis(self, axis: Any, type: Any, node: ast.AST) -> int:
        k, rank = static_int(axis), len(type.dims)
        if k is None or not -rank <= k < rank:
            raise self.error(f"{type} has no axis {axis}", "tile-shape", node, "", "axis=0")
        return k % rank

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
        given = x.type.scalar if into is None else into.type.scalar  # type: ignore[attr-defined]
        number = float32 if given is float16 else given  # sums of float16 are added up in float32
        cast = lambda v, to: v if v.type.scalar is to else self.builder.emit(scalar.CAST, v, attr=to)  # noqa: E731
        x, y = cast(x, number), cast(y, number)
        if alpha != 1.0:
            x = self.tile_binary("*", x, self.typed(alpha, number))
        if into is None or beta == 0.0:  # then nothing of `out` is read, as in BLAS
            base = constant(Tile((x.type.dims[0], y.type.dims[1]), number), 0)
        else:
            base = cast(into, number)
            base = base if beta == 1.0 else self.tile_binary("*", base, self.typed(beta, number))
        made = cast(self.builder.emit(tiles.MATMUL, base, x, y, attr=0), given)
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
        """The tile after triangular solves in turn; each step is (transposed, which triangle)."""
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
        """The arguments that a call changes in place."""
        if not isinstance(callee, TileBuiltin):
            return []
        found = []
        for k, name in CHANGED.get(callee.__name__, ()):
            found += [*node.args[k : k + 1], *(w.value for w in node.keywords if w.arg == name)]
        return found

    def rebind_tiles(self, builtin: str, node: ast.Call, *values: Any) -> None:
        """Bind the names of the arguments that a call changes to their new values."""
        for (k, name), value in zip(CHANGED[builtin], values, strict=True):
            target = self.tile_argument(name, k, node)
            place = self.shown_place(target) or self.place(target)
            old = self.any_tile(place.load(), target)
            self.refuse_shared(old, target)
            if value.type != old.type:
                raise self.error(f"{value.type} cannot go into {old.type}", "store-type", node, "", "")
            self.renamed(value, old)
            place.store(value)

    def shown_place(self, target: ast.expr) -> LocalPart | None:
        """The place that `tile_transpose(t)` and other views show, for a call that changes it; None without a name."""
        callee = self.python_object(target.func) if isinstance(target, ast.Call) else None
        if not isinstance(callee, TileBuiltin) or callee.__name__ not in SHOWING:
            return None
        place = self.shared(self.visit(target))
        return LocalPart(lambda: self.resolved(place), lambda v: self.put(place, v)) if has_shown(place) else None

    def renamed(self, new: Any, old: Any) -> None:
        """Give the parts of a new tile the names of the old one's."""
        for part, before in zip(leaves(new), leaves(old), strict=True):
            part.name = part.name or before.name

    def read_tile_assign(self, node: ast.Call, dst: Any, src: Any, offset: Any = None) -> None:
        v, p = self.any_tile(dst, node), self.any_tile(src, node)
        if number_of(v.type) != number_of(p.type):
            raise self.error(f"{p.type} cannot go into {v.type}", "store-type", node, "", "tile_astype(t, dtype=...)")
        self.rebind_tiles("tile_assign", node, self.with_part(v, p, self.offsets(offset, len(v.type.dims), node), node))

    def with_part(self, whole: Any, part: Any, offsets: list[ir.Value], node: ast.AST) -> Any:
        self.refuse_beyond(whole.type, part.type, offsets, node)
        pairs = zip(leaves(whole), leaves(part), strict=True)
        return rebuild(whole, iter([self.builder.emit(tiles.ASSIGN, v, *offsets, p) for v, p in pairs]))

    def read_tile_axpy(self, node: ast.Call, alpha: Any, src: Any, dest: Any) -> None:
        x, y = self.any_tile(src, node), self.any_tile(dest, node)
        number = next(leaves(x)).type.scalar  # type: ignore[attr-defined]
        step = self.tile_binary("*", x, self.typed(alpha, number))
        self.rebind_tiles("tile_axpy", node, self.tile_binary("+", y, step))

    def read_tile_sort(self, node: ast.Call, keys: Any, values: Any) -> None:
        k, v = self.tile_value(keys, node), self.any_tile(values, node)
        order = self.builder.emit(tile_algebra.ORDER, k)
        if k.type.dims != v.type.dims:  # type: ignore[attr-defined]
            raise self.error(f"{k.type} does not sort {v.type}", "tile-shape", node, "", "tiles of one shape")
        take = lambda p: self.builder.emit(tile_algebra.TAKE, p, order)  # noqa: E731
        self.rebind_tiles("tile_sort", node, take(k), self.per_part(v, take))

    def scattered(self, builtin: str, row: Row, node: ast.Call) -> None:
        named = {str(k.arg): self.visit(k.value) for k in node.keywords}
        t, *rest = [self.visit(a) for a in node.args]
        v = self.any_tile(t, node)
        rank = len(v.type.dims)
        rest += [named[n] for n in ("value", "has_value") if n in named]
        if len(rest) not in (rank + 1, rank + 2, rank + 3):
            raise self.error(f"`{builtin}` takes {rank} indices, a value and a bool", "arguments", node, "", "")
        number, places = rest[rank], [self.value(i) for i in rest[:rank]]
        held = rest[rank + 1] if len(rest) > rank + 1 else True
        then, other = ir.Region(), ir.Region(results=tuple(leaves(v)))
        with self.builder.inside(then):
            then.results = tuple(leaves(self.with_element(v, places, number, row)))
        condition = constant(bool_, held) if isinstance(held, bool) else ops.convert(bool_, self.value(held))
        types = [p.type for p in leaves(v)]
        made = self.builder.append(control.IF, (condition,), types, (then, other)).outs
        self.rebind_tiles(builtin, node, rebuild(v, iter(made)))

    def read_tile_scatter_add(self, node: ast.Call) -> None:
        self.scattered("tile_scatter_add", tiles.ADD_AT, node)

    def changed_element(self, builtin: str, node: ast.Call) -> None:
        t, *rest = [self.visit(a) for a in (*node.args, *(k.value for k in node.keywords))]
        v, (*places, x) = self.any_tile(t, node), rest
        at = [self.value(i) for i in places]
        sign = ops.ROWS[builtin.removeprefix("tile_").removesuffix("_inplace")].sign
        made = ops.binary(sign, *self.operands(sign, self.element_at(v, at), x))
        self.rebind_tiles(builtin, node, self.with_element(v, at, made))

    def read_tile_scatter_masked(self, node: ast.Call) -> None:
        self.scattered("tile_scatter_masked", tiles.SET, node)

    # ---- operators and elements

    def tile_binary(self, sign: str, a: Any, b: Any) -> Any:
        """An operator between tiles of one shape, or a tile and one value."""
        if is_tile(a) and is_tile(b) and a.type.dims != b.type.dims:
            raise self.odd_operands(sign, a, b)
        if isinstance(a, StructParts) or isinstance(b, StructParts):
            return self.composite_binary(sign, a, b)
        whole = a if is_tile(a) else b
        type = whole.type
        x, y = (self.typed(v, type.scalar) for v in (a, b))
        if any(isinstance(v.type, Composite) and not isinstance(v.type, Tile) for v in (x, y)):
            return self.composite_binary(sign, x, y)
        x, y = (self.filled(Tile(type.dims, v.type), v) if isinstance(v.type, Scalar) else v for v in (x, y))
        row = _OPERATORS.get(sign)
        if row is None:
            raise self.error(f"tiles have no operator `{sign}`", "tile-operand", None, "", "tile_map(f, a, b)")
        if x.type.scalar != y.type.scalar:
            raise self.odd_operands(sign, x, y)
        if row in _BITS:
            shape = x.type.dims
            return self.each(shape, [x, y], lambda i, parts: (row(*parts),))[0]
        return self.builder.emit(row, x, y)

    def odd_operands(self, sign: str, a: Any, b: Any) -> Exception:
        slug = "mixed-types" if a.type.dims == b.type.dims else "tile-shape"
        instead = "tile_astype(t, dtype=...)" if slug == "mixed-types" else "tile_broadcast(t, shape=...)"
        why = "Tiles of one shape and type, or a number."
        return self.error(f"`{sign}` between {a.type} and {b.type}", slug, None, why, instead)

    def composite_binary(self, sign: str, a: Any, b: Any) -> Any:
        """`tile_binary` where a side has composite elements: by component where that is equivalent."""
        if sign in "+-" and is_tile(a) and is_tile(b) and a.type == b.type:
            pairs = zip(leaves(a), leaves(b), strict=True)
            return rebuild(a, iter([self.tile_binary(sign, x, y) for x, y in pairs]))
        whole, number = (a, b) if isinstance(a, StructParts) and is_tile(a) else (b, a)
        plain = is_literal(number) or isinstance(getattr(number, "type", None), (Scalar, Tile))
        if plain and isinstance(whole, StructParts) and (sign == "*" or (sign == "/" and whole is a)):
            turn = (
                (lambda p: self.tile_binary(sign, p, number))
                if whole is a
                else (lambda p: self.tile_binary(sign, number, p))
            )
            return self.per_part(whole, turn)
        shape, node = (a if is_tile(a) else b).type.dims, self.frame.source.tree
        given = [x if isinstance(x, StructParts) or is_literal(x) else self.value(x) for x in (a, b)]
        apply = lambda i, parts: ops.binary(sign, *self.operands(sign, *parts))  # noqa: E731
        return self.each_of(shape, given, apply, node)

    def negated(self, t: Any) -> Any:
        return self.per_part(t, lambda p: ops.unary("-", p))

    def tile_attribute(self, type: Any, name: str) -> Any:
        return number_of(type) if name == "dtype" else type.dims if name == "shape" else math.prod(type.dims)

    def tile_picked(self, dims: tuple[int, ...], nodes: list[ast.expr]) -> list[Any]:
        """Per axis the index of one element (IR value), or the range of a slice."""
        if len(nodes) > len(dims):
            raise self.error(f"a tile of {len(dims)} axes takes no {len(nodes)} indices", "rank", nodes[-1], "", "")
        out: list[Any] = []
        for node, n in zip(nodes, dims, strict=False):
            if isinstance(node, ast.Slice):
                out.append(self.sliced(node, n))
                continue
            i = self.index(node)
            k = static_int(i)
            if k is not None and not -n <= k < n:
                raise self.error(f"element {k} is outside the {n} there are", "component-range", node, "", f"{n - 1}")
            out.append(i if k is None else self.value(k % n))
        return out + [range(n) for n in dims[len(nodes) :]]

    def sliced(self, node: ast.Slice, n: int) -> range:
        ends = [None if e is None else static_int(self.visit(e)) for e in (node.lower, node.upper, node.step)]
        known = all(e is None or k is not None for e, k in zip((node.lower, node.upper, node.step), ends, strict=True))
        found = range(n)[slice(*ends)] if known and ends[2] in (None, 1) else range(0)
        if not found:
            raise self.error(
                "a slice of a tile has constant ends and step 1",
                "slice",
                node,
                "",
                "tile_view(t, offset=..., shape=...)",
            )
        return found

    def part_picked(self, dims: tuple[int, ...], picked: list[Any]) -> tuple[list[Any], tuple, tuple]:
        """(offsets of a part, its shape with every axis, its shape without the axes that an index picks)."""
        offsets = [
            self.value(p.start) if isinstance(p, range) else self.counted(p, n)
            for p, n in zip(picked, dims, strict=True)
        ]
        whole = tuple(len(p) if isinstance(p, range) else 1 for p in picked)
        return offsets, whole, tuple(len(p) for p in picked if isinstance(p, range))

    def counted(self, i: ir.Value, n: int) -> ir.Value:
        """An index with a negative one wrapped (counted from the end), as int32."""
        i = i if i.type is int32 else self.builder.emit(scalar.CAST, i, attr=int32)
        if static_int(i) is not None or self.facts.non_negative(i):
            return i
        below = self.builder.emit(scalar.LT, i, self.value(0))
        return self.builder.emit(scalar.WHERE, below, self.builder.emit(scalar.ADD, i, self.value(n)), i)

    def tile_read(self, t: Any, nodes: list[ast.expr]) -> Any:
        """The value of `t[...]`: an element, or a part."""
        picked = self.tile_picked(t.type.dims, nodes)
        if not any(isinstance(p, range) for p in picked):
            return self.element_at(t, picked)
        offsets, whole, dims = self.part_picked(t.type.dims, picked)

        def part(p: ir.Value) -> ir.Value:
            made = self.builder.emit(tiles.VIEW, p, *offsets, attr=Tile(whole, p.type.scalar))  # type: ignore[attr-defined]
            return made if whole == dims else self.reshaped(made, dims)

        return self.per_part(t, part)

    def tile_slot(self, base: Any, nodes: list[ast.expr], node: ast.expr) -> tuple[Any, Any]:
        """(load, store) functions of an element or a part of a local tile."""
        picked = self.tile_picked(base.load().type.dims, nodes)

        def replaced(whole: Any, v: Any) -> Any:
            if not any(isinstance(p, range) for p in picked):
                return self.with_element(whole, picked, v)
            offsets, shape, dims = self.part_picked(whole.type.dims, picked)
            part = v if is_tile(v) else self.filled_with(dims, self.typed(v, number_of(whole.type)), node)
            if part.type.dims != dims or number_of(part.type) != number_of(whole.type):
                raise self.error(f"{describe(v)} cannot go into {dims} of {whole.type}", "store-type", node, "", "")
            return self.with_part(whole, self.per_part(part, lambda p: self.reshaped(p, shape)), offsets, node)

        def store(v: Any) -> None:
            whole = base.load()
            self.refuse_shared(whole, node)
            made = replaced(whole, v)
            self.renamed(made, whole)
            base.store(made)

        return lambda: self.tile_read(base.load(), nodes), store


_BITS = (scalar.BIT_AND, scalar.BIT_OR, scalar.BIT_XOR, scalar.LSHIFT, scalar.RSHIFT, scalar.FLOORDIV, scalar.PYMOD)
_OPERATORS = {
    "+": scalar.ADD,
    "-": scalar.SUB,
    "*": scalar.MUL,
    "/": scalar.DIV,
    "//": scalar.FLOORDIV,
    "%": scalar.PYMOD,
    "&": scalar.BIT_AND,
    "|": scalar.BIT_OR,
    "^": scalar.BIT_XOR,
    "<<": scalar.LSHIFT,
    ">>": scalar.RSHIFT,
}
