"""Tiles in a kernel: what `tile_load`, `tile_map`, `tile_matmul` and the like mean, as rows, and as `each` of elements.

A tile is a value in the IR. What several names show, as parts or other forms of one tile, is said in `tile_sharing`.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import ir, ops
from ..ir import constant
from ..ops import control, scalar, tile_algebra, tiles
from ..ops.signatures import CHANGED, PER_PART, TILES, TileBuiltin
from ..row import Row, arity
from ..types import Composite, Tile, TileOf, bool_, float16, float32, int32, matrix, scalar_of, vector
from .base import READERS, Meaning, ReaderBase, reads
from .declare import Func
from .lower_bounds import static_int
from .overload_calls import overload
from .scope import StructParts, describe, is_literal, leaves, rebuild
from .tile_parts import (
    any_tile,
    as_tile,
    each_of,
    either,
    element_at,
    filled_with,
    flat,
    is_tile,
    number_of,
    numbers_of,
    offsets_of,
    per_part,
    rebind_tiles,
    refuse_beyond,
    reshaped,
    tile_binary,
    tile_dims,
    tile_of_one,
    tile_value,
    type_of_tile,
    with_element,
    with_part,
)
from .tile_sharing import has_tiles

_TEXTS = ("storage", "precision", "fill_mode")  # arguments that are words
_PLAIN = {"A": "a", "L": "factor", "U": "factor", "z": "y"}  # arguments as Warp names them
_IGNORED = ("storage", "precision", "aligned")  # how Warp does it, not what


def call_tile(reader: ReaderBase, builtin: TileBuiltin, node: ast.Call) -> Any:
    if builtin.__name__.endswith("_inplace") and "..." in builtin.arguments:
        return changed_element(reader, builtin.__name__, node)
    read = READERS[id(builtin)]
    names = [a.split("=")[0] for a in builtin.arguments.replace(", ...", "").split(", ") if a]
    if "..." in builtin.arguments or builtin.__name__ == "tile_arange":
        return read(reader, node)
    places = [*names, *(f"#{k}" for k in range(len(node.args)))]
    given = dict(zip(places, node.args, strict=False)) | {str(k.arg): k.value for k in node.keywords}
    allowed = {*names, *_IGNORED, *({"bounds_check"} if {"a", "offset"} <= {*names} else ())}
    needed = {a for a in builtin.arguments.split(", ") if a and "=" not in a}
    if not needed <= given.keys() <= allowed:
        text = f"`{builtin.__name__}` does not take these arguments"
        raise reader.error(text, "arguments", node, f"It is {builtin.__name__}({builtin.arguments}).")
    named = {n: tile_argument_value(reader, n, a) for n, a in given.items()}
    values = {_PLAIN.get(n, n): v for n, v in named.items() if n in names or n not in _IGNORED}
    whole = names[0] if builtin.__name__ in PER_PART else ""
    if not isinstance(values.get(whole), StructParts):
        return read(reader, node, **values)
    return per_part(any_tile(reader, values[whole], node), lambda p: read(reader, node, **{**values, whole: p}))


def tile_argument_value(reader: ReaderBase, name: str, node: ast.expr) -> Any:
    if name in _TEXTS and isinstance(node, ast.Constant):
        return node.value
    return node if isinstance(node, ast.Lambda) else reader.checked(reader.visit(node), node)


# ---- made from numbers


@reads(TILES["tile_zeros"], TILES["tile_empty"], number=0)
@reads(TILES["tile_ones"], number=1)
def read_tile_zeros(reader: ReaderBase, node: ast.Call, shape: Meaning, dtype: Meaning = float, *, number: int) -> Any:
    type = type_of_tile(reader, tile_dims(reader, shape, node), dtype, node)
    parts = [constant(t, bool(number) if t.scalar is bool_ else number) for t in flat(type)]
    return as_tile(type, iter(parts))


@reads(TILES["tile_full"], TILES["tile_from_thread"])
def read_tile_full(
    reader: ReaderBase, node: ast.Call, shape: Meaning, value: Meaning, dtype: Meaning = None, thread_idx: Meaning = 0
) -> Any:
    dims = tile_dims(reader, shape, node)
    if dtype is None or isinstance(value, StructParts):
        return filled_with(reader, dims, value if isinstance(value, StructParts) else reader.value(value), node)
    if isinstance(dtype, Composite):
        return filled_with(reader, dims, ops.construct(dtype, reader.typed(value, dtype.scalar)), node)
    number = reader.typed(value, scalar_of(dtype))
    if number.type is not scalar_of(dtype):
        number = ops.convert(scalar_of(dtype), number)
    return filled_with(reader, dims, number, node)


@reads(TILES["tile_arange"])
def read_tile_arange(reader: ReaderBase, node: ast.Call) -> ir.Value:
    named = {str(k.arg): reader.visit(k.value) for k in node.keywords if k.arg != "storage"}
    args = [reader.visit(a) for a in node.args]
    dtype = named.pop("dtype", None)
    read = (x if isinstance(x, (int, float)) else static_int(x) for x in args)
    ends = [e for e in read if e is not None]
    if named or not 1 <= len(args) <= 3 or len(ends) < len(args):
        text = "`tile_arange` takes one to three constants"
        why = "Its length is a part of its type."
        raise reader.error(text, "arguments", node, why, "tile_arange(0, 16, 2, dtype=float)")
    start, stop, step = (0, *ends, 1) if len(ends) == 1 else (*ends, 1)[:3]
    count = max(0, math.ceil((stop - start) / step)) if step else 0
    whole = all(isinstance(e, int) for e in ends)
    number = scalar_of(dtype if dtype is not None else int if whole else float)
    type = type_of_tile(reader, tile_dims(reader, count, node), number, node)
    index = reader.builder.emit(tiles.INDEX, attr=Tile((count,), int32))
    index = index if number is int32 else reader.builder.emit(scalar.CAST, index, attr=number)
    return tile_binary(reader, "+", constant(type, start), tile_binary(reader, "*", index, constant(type, step)))


@reads(TILES["tile"])
def read_tile(reader: ReaderBase, node: ast.Call, x: Meaning, preserve_type: Meaning = False) -> Any:
    v = x if isinstance(x, StructParts) else reader.value(x)
    if preserve_type or not isinstance(v.type, Composite):
        return tile_of_one(reader, v)
    dims = (*v.type.shape, 1)
    made = constant(Tile(dims, v.type.scalar), 0)
    for k, part in enumerate(numbers_of(reader, v)):
        at = (k,) if len(dims) == 2 else divmod(k, dims[1])
        made = reader.builder.emit(tiles.SET, made, *[reader.value(i) for i in (*at, 0)], part)
    return made


@reads(TILES["untile"])
def read_untile(reader: ReaderBase, node: ast.Call, a: Meaning) -> Any:
    """The value in a tile made by `tile(x)`: its one number, or the composite of its components."""
    v = any_tile(reader, a, node)
    dims = v.type.dims
    if math.prod(dims) == 1:
        return element_at(reader, v, [reader.value(0)] * len(dims))
    if isinstance(v, StructParts) or len(dims) not in (2, 3) or dims[-1] != 1:
        text = f"`untile` takes a tile of one element, or of the components of one, not {v.type}"
        raise reader.error(text, "tile-shape", node, "A block has one thread of the program.", "t[i]")
    number = v.type.scalar
    type = vector(dims[0], number) if len(dims) == 2 else matrix(dims[:2], number)
    at = [[reader.value(i) for i in (*index, 0)] for index in np.ndindex(*dims[:-1])]
    return ops.construct(type, *[reader.builder.emit(tiles.GET, v, *i) for i in at])


@reads(TILES["block_dim"])
def read_block_dim(reader: ReaderBase, node: ast.Call) -> int:
    return 1


# ---- parts and forms


@reads(TILES["tile_extract"])
def read_tile_extract(reader: ReaderBase, node: ast.Call) -> Any:
    t, *indices = (reader.visit(a) for a in node.args)
    v = any_tile(reader, t, node)
    if len(indices) != len(v.type.dims):
        raise reader.error(f"{v.type} takes {len(v.type.dims)} indices, got {len(indices)}", "rank", node)
    return element_at(reader, v, [reader.value(i) for i in indices])


@reads(TILES["tile_view"])
def read_tile_view(reader: ReaderBase, node: ast.Call, t: Meaning, offset: Meaning, shape: Meaning = None) -> ir.Value:
    v = tile_value(reader, t, node)
    rank = len(v.type.shape)
    given = offset if isinstance(offset, tuple) else (offset,)
    offsets = offsets_of(reader, (*given, *(0,) * (rank - len(given))), rank, node)
    dims = v.type.shape[len(given) :] if shape is None else tile_dims(reader, shape, node)
    whole = Tile((1,) * (rank - len(dims)) + dims, v.type.scalar)
    refuse_beyond(reader, v.type, whole, offsets, node)
    made = reader.builder.emit(tiles.VIEW, v, *offsets, attr=whole)
    return made if whole.dims == dims else reshaped(reader, made, dims)


@reads(TILES["tile_reshape"])
def read_tile_reshape(reader: ReaderBase, node: ast.Call, t: Meaning, shape: Meaning) -> ir.Value:
    v, sizes = tile_value(reader, t, node), [static_int(n) for n in (shape if isinstance(shape, tuple) else (shape,))]
    known = math.prod(n for n in sizes if n is not None and n > 0)
    dims = tuple(v.type.size // max(known, 1) if n == -1 else n for n in sizes)
    return reshaped(reader, v, tile_dims(reader, dims, node))


@reads(TILES["tile_squeeze"])
def read_tile_squeeze(reader: ReaderBase, node: ast.Call, t: Meaning, axis: Meaning = None) -> ir.Value:
    v = tile_value(reader, t, node)
    dims = v.type.dims
    given = axis if isinstance(axis, tuple) else (axis,)
    gone = [k for k, n in enumerate(dims) if n == 1] if axis is None else [static_int(k) for k in given]
    if any(k is None or not -len(dims) <= k < len(dims) or dims[k] != 1 for k in gone):
        raise reader.error(f"{v.type} has no such axis of one element", "tile-shape", node, "", "tile_squeeze(t)")
    kept = [n for k, n in enumerate(dims) if k not in gone and k - len(dims) not in gone]
    return reshaped(reader, v, tuple(kept) or (1,))


@reads(TILES["tile_broadcast"])
def read_tile_broadcast(reader: ReaderBase, node: ast.Call, a: Meaning, shape: Meaning) -> ir.Value:
    v = tile_value(reader, a, node)
    type = type_of_tile(reader, tile_dims(reader, shape, node), v.type.scalar, node)
    return reader.builder.emit(tiles.BROADCAST, v, attr=type)


@reads(TILES["tile_transpose"], row=tiles.TRANSPOSE)
@reads(TILES["tile_scan_inclusive"], row=tile_algebra.SCAN, attr=(True, False))
@reads(TILES["tile_scan_exclusive"], row=tile_algebra.SCAN, attr=(False, False))
def read_tile_row(reader: ReaderBase, node: ast.Call, a: Meaning, row: Row, attr: Any = None) -> ir.Value:
    return reader.builder.emit(row, tile_value(reader, a, node), attr=attr)


@reads(TILES["tile_astype"])
def read_tile_astype(reader: ReaderBase, node: ast.Call, t: Meaning, dtype: Meaning) -> ir.Value:
    v = tile_value(reader, t, node)
    return v if v.type.scalar is scalar_of(dtype) else reader.builder.emit(scalar.CAST, v, attr=scalar_of(dtype))


# ---- functions of elements, sums


@reads(TILES["tile_map"])
def read_tile_map(reader: ReaderBase, node: ast.Call) -> Any:
    callee, *given = [tile_argument_value(reader, "", a) for a in node.args] or [None]
    shapes = [v.type.dims for v in given if is_tile(v)]
    if node.keywords or not shapes:
        raise reader.error("`tile_map` takes a function and tiles", "arguments", node, "", "tile_map(f, t)")
    if any(s != shapes[0] for s in shapes):
        text = f"`tile_map` over tiles of shapes {shapes}"
        raise reader.error(text, "tile-shape", node, "", "tile_broadcast(t, shape)")
    first = next((v.type.scalar for v in given if is_tile(v) and isinstance(v.type, Tile)), None)
    values = [
        reader.typed(g, first) if first is not None and is_literal(g) else reader.materialised(g, "") for g in given
    ]
    return mapped_elements(reader, shapes[0], callee, values, node)


def mapped_elements(
    reader: ReaderBase, dims: tuple[int, ...], callee: Meaning, values: list[Any], node: ast.Call
) -> Any:
    """The tile of the results of `callee` per element; free variables of a lambda are the same for all."""
    outside = taken_from_outside(reader, callee) if isinstance(callee, ast.Lambda) else {}
    count = len(values)

    def element(i: list[ir.Value], parts: list[Any]) -> Any:
        with naming(reader, dict(zip(outside, parts[count:], strict=True))):
            return call_of_values(reader, callee, parts[:count], node)

    return each_of(reader, dims, [*values, *outside.values()], element, node)


def taken_from_outside(reader: ReaderBase, function: ast.Lambda) -> dict[str, Any]:
    own = {a.arg for a in function.args.args}
    names = {n.id for n in ast.walk(function.body) if isinstance(n, ast.Name)} - own
    known = {name: reader.state.names[name] for name in sorted(names & reader.state.names.keys())}
    return {n: v for n, v in known.items() if isinstance(v, (ir.Value, StructParts)) and not has_tiles(v)}


@contextmanager
def naming(reader: ReaderBase, names: dict[str, Any]) -> Iterator[None]:
    """Context: these names are bound to these values."""
    outer = reader.state.names
    reader.state.names = {**outer, **names}
    try:
        yield
    finally:
        reader.state.names = outer


def call_lambda(reader: ReaderBase, function: ast.Lambda, args: list[Any], node: ast.Call) -> Any:
    names = [a.arg for a in function.args.args]
    if len(names) != len(args) or function.args.vararg or function.args.kwonlyargs or function.args.kwarg:
        raise reader.error(f"the lambda gets {len(args)} values", "arguments", node, "", "as many plain names")
    with naming(reader, dict(zip(names, args, strict=True))):
        return reader.visit(function.body)


def call_of_values(reader: ReaderBase, callee: Meaning, args: list[Any], node: ast.Call) -> Any:
    """The result of a builtin, a func or a lambda on numbers, vectors or structs."""
    if isinstance(callee, ast.Lambda):
        made = call_lambda(reader, callee, args, node)
    elif isinstance(callee, Func):
        f: Func = overload(reader, callee, args, {}, node)
        made = reader.call_bound(f, reader.bound(f.fn, args, {}, node), node)
    elif (isinstance(callee, Row) and arity(callee) in (None, len(args))) or callee in ops.BUILTINS.values():
        assert callable(callee)
        made = callee(*args)
    else:
        text = f"{describe(callee)} is no function of numbers"
        raise reader.error(text, "not-a-func", node, "", "a builtin, or @wb.func above it")
    made = reader.checked(made, node)
    if not isinstance(made, StructParts) and not (reader.valued(made) and not is_tile(made)):
        raise reader.error(f"the function gives {describe(made)}", "tile-operand", node, "", "a number or vector")
    return made


@reads(TILES["tile_sum"])
def read_tile_sum(reader: ReaderBase, node: ast.Call, a: Meaning, axis: Meaning = None) -> ir.Value:
    v = tile_value(reader, a, node)
    if axis is None:
        return tile_of_one(reader, reader.builder.emit(tiles.TOTAL, v))
    return reader.builder.emit(tiles.SUM_AXIS, v, attr=axis_of(reader, axis, v.type, node))


def best(reader: ReaderBase, t: Meaning, which: str, node: ast.AST) -> tuple[ir.Value, ir.Value]:
    v = tile_value(reader, t, node)
    flat = reshaped(reader, v, (v.type.size,))
    return flat, reader.builder.emit(tile_algebra.BEST, flat, attr=which)


@reads(TILES["tile_min"], which="min")
@reads(TILES["tile_max"], which="max")
def read_tile_extreme(reader: ReaderBase, node: ast.Call, a: Meaning, which: str) -> ir.Value:
    return tile_of_one(reader, reader.builder.emit(tiles.GET, *best(reader, a, which, node)))


@reads(TILES["tile_argmin"], which="min")
@reads(TILES["tile_argmax"], which="max")
def read_tile_place(reader: ReaderBase, node: ast.Call, a: Meaning, which: str) -> ir.Value:
    return tile_of_one(reader, best(reader, a, which, node)[1])


@reads(TILES["tile_dot"])
def read_tile_dot(reader: ReaderBase, node: ast.Call, a: Meaning, b: Meaning) -> ir.Value:
    x, y = any_tile(reader, a, node), any_tile(reader, b, node)
    if x.type != y.type:
        raise reader.error(f"`tile_dot` of {x.type} and {y.type}", "tile-shape", node, "", "tiles of one type")
    pairs = zip(leaves(x), leaves(y), strict=True)
    totals = [reader.builder.emit(tiles.TOTAL, reader.builder.emit(scalar.MUL, p, q)) for p, q in pairs]
    return tile_of_one(reader, functools.reduce(lambda p, q: reader.builder.emit(scalar.ADD, p, q), totals))


@reads(TILES["tile_reduce"])
def read_tile_reduce(reader: ReaderBase, node: ast.Call, op: Meaning, a: Meaning, axis: Meaning = None) -> Any:
    v = any_tile(reader, a, node)
    dims = v.type.dims
    if axis is None:
        v, count = per_part(v, lambda p: reshaped(reader, p, (math.prod(dims),))), math.prod(dims)
        got = lambda place: element_at(reader, v, [place])  # noqa: E731
        apply = lambda x, y: call_of_values(reader, op, [x, y], node)  # noqa: E731
    else:
        k = axis_of(reader, axis, v.type, node)
        rest, count = tiles.without(dims, k), dims[k]

        def got(place: ir.Value) -> Any:
            offset = [place if d == k else reader.value(0) for d in range(len(dims))]
            row = tuple(1 if d == k else n for d, n in enumerate(dims))

            def part(p: ir.Value) -> ir.Value:
                view = reader.builder.emit(tiles.VIEW, p, *offset, attr=Tile(row, ir.numeric(p).scalar))
                return reshaped(reader, view, rest)

            return per_part(v, part)

        def apply(x: Meaning, y: Meaning) -> Any:
            return mapped_elements(reader, rest, op, [x, y], node)

    first = got(reader.value(0))
    carried = [ir.Value(p.type, "reduced") for p in leaves(first)]
    body = ir.Region([ir.Value(int32, "k"), *carried])
    with reader.builder.inside(body):
        made = apply(rebuild(first, iter(carried)), got(body.params[0]))
    if made.type != first.type:
        raise reader.error(f"the function gives {made.type} from {first.type}", "tile-operand", node)
    body.results = tuple(leaves(made))
    bounds = [reader.value(n) for n in (1, count, 1)]
    loop = control.Loop(trips=max(count - 1, 0))
    types = [p.type for p in carried]
    outs = reader.builder.append(control.FOR, (*bounds, *leaves(first)), types, (body,), loop).outs
    result = rebuild(first, iter(outs))
    return tile_of_one(reader, result) if axis is None else result


def axis_of(reader: ReaderBase, axis: Meaning, type: Tile | TileOf, node: ast.AST) -> int:
    k, rank = static_int(axis), len(type.dims)
    if k is None or not -rank <= k < rank:
        raise reader.error(f"{type} has no axis {axis}", "tile-shape", node, "", "axis=0")
    return k % rank


# ---- matrices


@reads(TILES["tile_matmul"])
def read_tile_matmul(
    reader: ReaderBase,
    node: ast.Call,
    a: Meaning,
    b: Meaning,
    out: Meaning = None,
    alpha: Meaning = 1.0,
    beta: Meaning = 1.0,
) -> ir.Value | None:
    x, y = tile_value(reader, a, node), tile_value(reader, b, node)
    for v in (x, y):
        tiles.floats_of("tile_matmul", v.type, 2)
    into = None if out is None else tile_value(reader, out, node)
    given = x.type.scalar if into is None else into.type.scalar
    number = float32 if given is float16 else given  # sums of float16 are added up in float32
    cast = lambda v, to: v if v.type.scalar is to else reader.builder.emit(scalar.CAST, v, attr=to)  # noqa: E731
    x, y = cast(x, number), cast(y, number)
    if alpha != 1.0:
        x = tile_binary(reader, "*", x, reader.typed(alpha, number))
    if into is None or beta == 0.0:  # then nothing of `out` is read, as in BLAS
        base = constant(Tile((x.type.dims[0], y.type.dims[1]), number), 0)
    else:
        base = cast(into, number)
        base = base if beta == 1.0 else tile_binary(reader, "*", base, reader.typed(beta, number))
    made = cast(reader.builder.emit(tiles.MATMUL, base, x, y, attr=0), given)
    return made if into is None else rebind_tiles(reader, "tile_matmul", node, made)


@reads(TILES["tile_diag_add"])
def read_tile_diag_add(reader: ReaderBase, node: ast.Call, a: Meaning, d: Meaning) -> ir.Value:
    matrix = tile_value(reader, a, node)
    return tile_binary(reader, "+", matrix, reader.builder.emit(tile_algebra.DIAG, reader.value(d)))


def is_lower(reader: ReaderBase, fill_mode: Meaning, node: ast.AST) -> bool:
    if fill_mode not in ("lower", "upper"):
        raise reader.error(f"fill_mode is 'lower' or 'upper', not {fill_mode!r}", "arguments", node)
    return fill_mode == "lower"


def transposed(reader: ReaderBase, v: ir.Value) -> ir.Value:
    return reader.builder.emit(tiles.TRANSPOSE, v)


@reads(TILES["tile_cholesky"])
def read_tile_cholesky(reader: ReaderBase, node: ast.Call, a: Meaning, fill_mode: Meaning = "lower") -> ir.Value:
    v = tile_value(reader, a, node)
    if is_lower(reader, fill_mode, node):
        return reader.builder.emit(tile_algebra.CHOLESKY, v)
    return transposed(reader, reader.builder.emit(tile_algebra.CHOLESKY, transposed(reader, v)))


def solved(reader: ReaderBase, node: ast.AST, a: Meaning, y: Meaning, *steps: tuple[bool, str]) -> ir.Value:
    """The tile after triangular solves in turn; each step is (transposed, which triangle)."""
    matrix, right = tile_value(reader, a, node), tile_value(reader, y, node)
    dims = right.type.dims
    made = reshaped(reader, right, (*dims, 1)) if len(dims) == 1 else right
    for turned, side in steps:
        factor = transposed(reader, matrix) if turned else matrix
        made = reader.builder.emit(tile_algebra.SOLVE, factor, made, attr=side)
    return reshaped(reader, made, dims) if len(dims) == 1 else made


@reads(TILES["tile_cholesky_solve"])
def read_tile_cholesky_solve(
    reader: ReaderBase, node: ast.Call, factor: Meaning, y: Meaning, fill_mode: Meaning = "lower"
) -> ir.Value:
    turned = not is_lower(reader, fill_mode, node)
    return solved(reader, node, factor, y, (turned, "lower"), (not turned, "upper"))


@reads(TILES["tile_lower_solve"], side="lower")
@reads(TILES["tile_upper_solve"], side="upper")
def read_tile_solve(reader: ReaderBase, node: ast.Call, factor: Meaning, y: Meaning, side: str) -> ir.Value:
    return solved(reader, node, factor, y, (False, side))


@reads(TILES["tile_cholesky_inplace"], of="tile_cholesky")
@reads(TILES["tile_cholesky_solve_inplace"], of="tile_cholesky_solve")
@reads(TILES["tile_lower_solve_inplace"], of="tile_lower_solve")
@reads(TILES["tile_upper_solve_inplace"], of="tile_upper_solve")
def read_tile_inplace(reader: ReaderBase, node: ast.Call, of: str, **given: Meaning) -> None:
    """The result of another builtin, under the name of the tile that becomes it."""
    rebind_tiles(reader, f"{of}_inplace", node, READERS[id(TILES[of])](reader, node, **given))


def changed_tiles(callee: Meaning, node: ast.Call) -> list[ast.expr]:
    """The arguments that a call changes in place."""
    if not isinstance(callee, TileBuiltin):
        return []
    found = []
    for k, name in CHANGED.get(callee.__name__, ()):
        found += [*node.args[k : k + 1], *(w.value for w in node.keywords if w.arg == name)]
    return found


@reads(TILES["tile_assign"])
def read_tile_assign(reader: ReaderBase, node: ast.Call, dst: Meaning, src: Meaning, offset: Meaning = None) -> None:
    v, p = any_tile(reader, dst, node), any_tile(reader, src, node)
    if number_of(v.type) != number_of(p.type):
        raise reader.error(f"{p.type} cannot go into {v.type}", "store-type", node, "", "tile_astype(t, dtype=...)")
    made = with_part(reader, v, p, offsets_of(reader, offset, len(v.type.dims), node), node)
    rebind_tiles(reader, "tile_assign", node, made)


@reads(TILES["tile_axpy"])
def read_tile_axpy(reader: ReaderBase, node: ast.Call, alpha: Meaning, src: Meaning, dest: Meaning) -> None:
    x, y = any_tile(reader, src, node), any_tile(reader, dest, node)
    number = ir.numeric(next(leaves(x))).scalar
    step = tile_binary(reader, "*", x, reader.typed(alpha, number))
    rebind_tiles(reader, "tile_axpy", node, tile_binary(reader, "+", y, step))


@reads(TILES["tile_sort"])
def read_tile_sort(reader: ReaderBase, node: ast.Call, keys: Meaning, values: Meaning) -> None:
    k, v = tile_value(reader, keys, node), any_tile(reader, values, node)
    order = reader.builder.emit(tile_algebra.ORDER, k)
    if k.type.dims != v.type.dims:
        raise reader.error(f"{k.type} does not sort {v.type}", "tile-shape", node, "", "tiles of one shape")
    take = lambda p: reader.builder.emit(tile_algebra.TAKE, p, order)  # noqa: E731
    rebind_tiles(reader, "tile_sort", node, take(k), per_part(v, take))


@reads(TILES["tile_scatter_add"], builtin="tile_scatter_add", row=tiles.ADD_AT)
@reads(TILES["tile_scatter_masked"], builtin="tile_scatter_masked", row=tiles.SET)
def read_tile_scatter(reader: ReaderBase, node: ast.Call, builtin: str, row: Row) -> None:
    named = {str(k.arg): reader.visit(k.value) for k in node.keywords}
    t, *rest = [reader.visit(a) for a in node.args]
    v = any_tile(reader, t, node)
    rank = len(v.type.dims)
    rest += [named[n] for n in ("value", "has_value") if n in named]
    if len(rest) not in (rank + 1, rank + 2, rank + 3):
        raise reader.error(f"`{builtin}` takes {rank} indices, a value and a bool", "arguments", node)
    number, places = rest[rank], [reader.value(i) for i in rest[:rank]]
    held = rest[rank + 1] if len(rest) > rank + 1 else True
    condition = constant(bool_, held) if isinstance(held, bool) else ops.convert(bool_, reader.value(held))
    made = either(reader, condition, lambda: with_element(reader, v, places, number, row), lambda _: v)
    rebind_tiles(reader, builtin, node, made)


def changed_element(reader: ReaderBase, builtin: str, node: ast.Call) -> None:
    t, *rest = [reader.visit(a) for a in (*node.args, *(k.value for k in node.keywords))]
    v, (*places, x) = any_tile(reader, t, node), rest
    at = [reader.value(i) for i in places]
    sign = ops.ROWS[builtin.removeprefix("tile_").removesuffix("_inplace")].sign
    made = ops.binary(sign, *reader.operands(sign, element_at(reader, v, at), x))
    rebind_tiles(reader, builtin, node, with_element(reader, v, at, made))
