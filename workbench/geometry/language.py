"""The names of the kernel language as users have them: `wb.sqrt` in a func of this folder is the same as in theirs."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ..arrays.array import array
from ..arrays.creation import zeros
from ..kernels.ops import BUILTINS, STATEFUL, TILES
from ..kernels.reading.library import Library, library
from ..kernels.types import AnyScalar, Array, float32, int32, names, uint32

wb = SimpleNamespace(
    **names(), **BUILTINS, **STATEFUL, uint32=uint32, zeros=zeros, array=array, Scalar=AnyScalar, tile=TILES["tile"]
)
INTS, FLOATS, POINTS = Array(int32), Array(float32), Array(wb.vec3)


def fields(**types: Any) -> tuple[tuple[str, Any], ...]:
    """The fields of a struct, in order."""
    return tuple(types.items())


def in_names(**fields: str) -> Callable[[Library], Library]:
    """Decorator: a query also in Warp's older form, with names behind its arguments that get fields of the result.

    `fields`: the field of each name. The call then gives `result`, and leaves the names as they are where it is False.
    """
    types = {"face": "int", "normal": "wb.vec3"}

    def make(query: Library) -> Library:
        name, given = query.__name__, query.signature.parameters
        required = [p for p, one in given.items() if one.default is one.empty]
        defaults = [f"{p}={one.default!r}" for p, one in given.items() if one.default is not one.empty]
        lines = [
            f"def {name}_in_names({', '.join([*required, *fields, *defaults])}):",
            f"    q = {name}({', '.join(given)})",
            "    if q.result:",
            f"        {', '.join(fields)} = {', '.join(f'q.{field}' for field in fields.values())}",
            f"    return q.result, {', '.join(fields)}",
        ]
        path, text = f"<{name} with names>", "".join(f"{line}\n" for line in lines)
        linecache.cache[path] = len(text), None, text.splitlines(True), path
        space = {**query.fn.__globals__, name: query}
        exec(compile(text, path, "exec"), space)
        made = space[f"{name}_in_names"]
        made.__annotations__ = {**query.fn.__annotations__, **{n: types.get(n, "float") for n in fields}}
        query.other = library(*fields)(made)
        return query

    return make
