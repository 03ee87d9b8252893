"""The names of tiles that users write. The reader (`reading.tiles`) knows what each means: shapes are part of types."""

from __future__ import annotations

import re
from typing import Any

from ...errors import KernelError
from ..types import AnyTile, Tile, TileOf, Type, scalar_of, tile_type
from .examples import paragraphs
from .signatures import signature


class TileBuiltin:
    """A function of the kernel language over tiles. Raises KernelError where it is called on the host."""

    def __init__(self, head: str, what: str):
        """`head`: as `tile_ones(shape, dtype=float)`."""
        name, _, arguments = head.removesuffix(")").partition("(")
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"{head}: {what} In kernels only."
        self.arguments = arguments
        self.__signature__ = signature("(" + re.sub(r"(\w+), \.\.\.", r"*\1", arguments) + ")")

    def __repr__(self) -> str:
        return f"<builtin {self.__name__}>"

    def __call__(self, *args: object, **named: object) -> object:
        text = f"`{self.__name__}` belongs into a kernel"
        instead = "@wb.kernel above the function that calls it, and wb.launch_tiled(...)"
        raise KernelError(text, slug="kernel-only", why="A tile lives in a block of a launch.", instead=instead)


class TileName(TileBuiltin):
    """`tile`: also what parameters of funcs are annotated with: `tile(dtype=float, shape=(4, 4))`, `tile[float, 4]`."""

    def __call__(self, *args: object, **named: object) -> object:
        if "dtype" not in named:
            return super().__call__(*args, **named)
        shape = named.get("shape", Any)
        return annotated(named["dtype"], shape if shape is Any or isinstance(shape, (tuple, list)) else (shape,))

    def __getitem__(self, given: object) -> AnyTile | Tile | TileOf:
        dtype, *shape = given if isinstance(given, tuple) else (given,)
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = list(shape[0])
        return annotated(dtype, tuple(shape) if shape else Any)


def annotated(dtype: object, shape: object) -> AnyTile | Tile | TileOf:
    """The type that an annotation means: of one shape and type, or a pattern."""
    if dtype is Any or not isinstance(shape, (tuple, list)):
        known = dtype if dtype is Any or isinstance(dtype, Type) else scalar_of(dtype)
        return AnyTile(known, tuple(shape) if isinstance(shape, (tuple, list)) else None)
    return tile_type(tuple(int(n) for n in shape), dtype)


_MADE = [
    (TileName if head.startswith("tile(") else TileBuiltin)(head, w) for head, w in paragraphs("tiles.txt").items()
]
TILES = {made.__name__: made for made in _MADE}
# What is done to each component of vectors on its own, of the tile that comes first.
_FORMS = "view reshape squeeze broadcast transpose astype sum scan_inclusive scan_exclusive"
PER_PART = frozenset(f"tile_{name}" for name in _FORMS.split())
# What gives a part or another form of a tile, in its memory.
SHOWING = ("tile_view", "tile_reshape", "tile_squeeze", "tile_broadcast", "tile_transpose")
# Which arguments a call changes in place: (position, name).
CHANGED = {
    "tile_assign": ((0, "dst"),),
    "tile_axpy": ((2, "dest"),),
    "tile_sort": ((0, "keys"), (1, "values")),
    "tile_matmul": ((2, "out"),),
    "tile_cholesky_inplace": ((0, "A"),),
    "tile_cholesky_solve_inplace": ((1, "y"),),
    "tile_lower_solve_inplace": ((1, "y"),),
    "tile_upper_solve_inplace": ((1, "z"),),
    "tile_scatter_add": ((0, "a"),),
    "tile_scatter_masked": ((0, "a"),),
    "tile_fft": ((0, "inout"),),
    "tile_ifft": ((0, "inout"),),
    "tile_stack_push": ((0, "s"),),
    "tile_stack_pop": ((0, "s"),),
    "tile_stack_clear": ((0, "s"),),
    **{f"tile_{sign}_inplace": ((0, "a"),) for sign in ("add", "sub", "bit_and", "bit_or", "bit_xor")},
}
