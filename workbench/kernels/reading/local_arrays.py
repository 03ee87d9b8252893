"""Arrays made inside a kernel: `zeros(shape=(2, 3), dtype=vec3)`.

The elements of one are the components of a vector, or the rows of a matrix, of which stores replace parts; all names of
it share that. Which element is meant is found as for slices (`cuts`). Of structs there is an array for each field.
"""

from __future__ import annotations

import ast
import math
from typing import Any

from .. import ir, ops
from ..ops import vectors
from ..types import Array, Composite, Scalar, Stack, Struct, Tile, Vector, matrix, scalar_of, vector
from .base import Meaning, ReaderBase
from .lower_bounds import static_int
from .scope import Fields, Local, SlicedAxis, Turn

MOST = 1024  # numbers in one array: compilers are slow with larger values


def call_zeros(reader: ReaderBase, node: ast.Call) -> Local | Fields:
    named = reader.named(node, ("shape", "dtype"))
    if len(node.args) > 2 or set(named) & set(("shape", "dtype")[: len(node.args)]):
        raise reader.error("zeros() takes a shape and a dtype", "arguments", node, "", "zeros(shape=4, dtype=float)")
    shape = reader.visit(node.args[0]) if node.args else named.get("shape")
    dtype = reader.visit(node.args[1]) if len(node.args) > 1 else named.get("dtype", float)
    sizes = [static_int(n) for n in (shape if isinstance(shape, tuple) else (shape,))]
    if not 1 <= len(sizes) <= 4 or any(n is None or n < 1 for n in sizes):
        text = "an array made in a kernel has one to four axes of constant length"
        why = "It lives in the thread's registers."
        raise reader.error(text, "local-array", node, why, "zeros(shape=(2, 3), dtype=float)")
    return local_zeros(reader, dtype, sizes, node)  # type: ignore[arg-type]


def local_zeros(reader: ReaderBase, dtype: Meaning, shape: list[int], node: ast.Call) -> Local | Fields:
    if isinstance(dtype, Struct):
        return Fields(Array(dtype, len(shape)), {f: local_zeros(reader, t, shape, node) for f, t in dtype.fields})
    if isinstance(dtype, Array | Stack | Tile):
        text = f"an array made in a kernel holds numbers, vectors and structs of those, not {dtype}"
        why = "It lives in the thread's registers."
        raise reader.error(text, "local-array", node, why, "an argument array with one more axis")
    type: Any = dtype if isinstance(dtype, Composite) else scalar_of(dtype)
    size = math.prod(shape) * type.size
    if size > MOST:
        text = f"an array made in a kernel has at most {MOST} numbers, this one {size}"
        instead = "an argument array with one more axis, for each thread a row"
        raise reader.error(text, "local-array", node, "It lives in the thread's registers.", instead)
    steps = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    safe = math.inf if len(shape) == 1 and type.size == 1 else 0
    turns = [Turn(step, n, max(n, safe)) for n, step in zip(shape, steps, strict=True)]
    key, count = f"[]{reader.serial()}", math.prod(shape)
    whole = type.scalar is type
    reader.state.cells[key] = reader.zero(vector(count, type) if whole else matrix((count, type.size), type.scalar))
    return Local(key, type, SlicedAxis(0, tuple(turns)))


def local_value(reader: ReaderBase, local: Local) -> ir.Value:
    """An element."""
    found = reader.component(reader.state.cells[local.key], (place(local),))
    if isinstance(local.dtype, Scalar | Vector):
        return found
    return ops.construct(local.dtype, *vectors.components(found))


def store_local(reader: ReaderBase, local: Local, value: Meaning) -> None:
    v, type = reader.value(value), local.dtype
    if not isinstance(type, Scalar | Vector):
        v = ops.construct(vector(type.size, type.scalar), *vectors.components(v))
    reader.state.cells[local.key] = reader.inserted(reader.state.cells[local.key], (place(local),), v)


def place(local: Local) -> int | ir.Value:
    """The flat index of a single element."""
    k = static_int(local.cut.start)
    return local.cut.start if k is None else k
