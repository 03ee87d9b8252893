"""The names of tiles that users write. The reader (`reading.tiles`) knows what each means: shapes are part of types."""

from __future__ import annotations

import re
from typing import Any

from ...errors import KernelError
from ..types import AnyTile, Tile, TileOf, Type, scalar_of, tile_type
from .signatures import signature

# name: (its arguments, what it is)
_DOCS = {
    "tile_zeros": ("shape, dtype=float", "A tile of zeros."),
    "tile_ones": ("shape, dtype=float", "A tile of ones."),
    "tile_empty": ("shape, dtype=float", "As `tile_zeros`: nothing is left undefined."),
    "tile_full": ("shape, value, dtype=None", "A tile with one number everywhere."),
    "tile_arange": ("start, stop, step, dtype=None", "start, start + step, ... below stop; the ends are constants."),
    "tile_from_thread": ("shape, value, thread_idx=0", "`tile_full`: a block has one thread of the program."),
    "tile_load": ("a, shape, offset=0", "The part of an array that begins at `offset`; zeros outside of the array."),
    "tile_store": ("a, t, offset=0", "Write a tile to an array; what lies beyond its end is left out."),
    "tile_atomic_add": ("a, t, offset=0", "Add a tile to an array, atomically; what lies beyond its end is left out."),
    "tile_load_indexed": ("a, indices, shape, offset=0, axis=0", "As `tile_load`, these indices added along one axis."),
    "tile_store_indexed": ("a, indices, t, offset=0, axis=0", "As `tile_store`, these indices added along one axis."),
    "tile_atomic_add_indexed": ("a, indices, t, offset=0, axis=0", "As `tile_atomic_add`, with these indices."),
    "tile_randf": ("shape, rng, min=None, max=None", "Floats in [0, 1) or [min, max); `rng` stays as it is."),
    "tile_randi": ("shape, rng, min=None, max=None", "Integers, any or in [min, max); `rng` stays as it is."),
    "tile": ("x, preserve_type=False", "A tile of one number, of the components of a vector, or of one vector."),
    "untile": ("a", "What `tile` was given: the element of a tile of one, or the components along all axes."),
    "tile_extract": ("a, i, ...", "a[i, ...]: one element."),
    "tile_view": ("t, offset, shape=None", "The part of a tile that begins at `offset`, in its memory."),
    "tile_assign": ("dst, src, offset=0", "Replace a part of the tile `dst`, in place."),
    "tile_squeeze": ("t, axis=None", "The tile without axes of one element."),
    "tile_reshape": ("t, shape", "The same elements in another shape; one extent may be -1."),
    "tile_broadcast": ("a, shape", "The tile repeated to a shape, as NumPy broadcasts."),
    "tile_transpose": ("a", "Rows and columns exchanged."),
    "tile_astype": ("t, dtype", "The tile over another scalar type."),
    "tile_map": ("op, t, ...", "op of every element: op is a builtin or a func of numbers; a number serves all."),
    "tile_sum": ("a, axis=None", "The sum of all elements, a tile of one; or the sums along an axis."),
    "tile_min": ("a", "The smallest element, a tile of one; a tie gives its gradient to the first."),
    "tile_max": ("a", "The largest element, a tile of one; a tie gives its gradient to the first."),
    "tile_argmin": ("a", "The place of the smallest element, a tile of one; the first of several."),
    "tile_argmax": ("a", "The place of the largest element, a tile of one; the first of several."),
    "tile_reduce": ("op, a, axis=None", "op(op(a[0], a[1]), a[2]) and so on, a tile of one; or along an axis."),
    "tile_dot": ("a, b", "The sum of the products of the elements, a tile of one."),
    "tile_axpy": ("alpha, src, dest", "dest += alpha * src, in place."),
    "tile_scan_inclusive": ("a", "The sum of all elements up to each."),
    "tile_scan_exclusive": ("a", "The sum of all elements before each."),
    "tile_scan_max_inclusive": ("a", "The largest of all elements up to each; a tie gives its gradient to the first."),
    "tile_scan_min_inclusive": ("a", "The smallest of all elements up to each; a tie gives its gradient to the first."),
    "tile_sort": ("keys, values", "Sort both by `keys`, in place; equal keys keep their order."),
    "tile_matmul": ("a, b, out=None, alpha=1.0, beta=1.0", "alpha * a @ b; with `out`: beta * out + that, in place."),
    "tile_fft": ("inout", "sum over j of t[j] exp(-2 pi i j k / n) along the last axis of a tile of vec2, in place."),
    "tile_ifft": ("inout", "The same with exp(2 pi i j k / n); nothing is divided by n."),
    "tile_diag_add": ("a, d", "a with d added to its diagonal."),
    "tile_cholesky": ("A, fill_mode='lower'", "The lower L with L L^T = A; `upper`: its transpose."),
    "tile_cholesky_inplace": ("A, fill_mode='lower'", "`A` becomes its factor."),
    "tile_cholesky_solve": ("L, y, fill_mode='lower'", "x with L L^T x = y."),
    "tile_cholesky_solve_inplace": ("L, y, fill_mode='lower'", "`y` becomes x with L L^T x = y."),
    "tile_lower_solve": ("L, y", "x with L x = y, of which the lower triangle of L counts."),
    "tile_lower_solve_inplace": ("L, y", "`y` becomes x with L x = y."),
    "tile_upper_solve": ("U, z", "x with U x = z, of which the upper triangle of U counts."),
    "tile_upper_solve_inplace": ("U, z", "`z` becomes x with U x = z."),
    "tile_scatter_add": ("a, i, ..., value, has_value=True", "a[i, ...] += value where `has_value`."),
    "tile_scatter_masked": ("a, i, ..., value, has_value=True", "a[i, ...] = value where `has_value`."),
    "tile_add_inplace": ("a, i, ..., value", "a[i, ...] += value."),
    "tile_sub_inplace": ("a, i, ..., value", "a[i, ...] -= value."),
    "tile_bit_and_inplace": ("a, i, ..., value", "a[i, ...] &= value."),
    "tile_bit_or_inplace": ("a, i, ..., value", "The bits of value are set in a[i, ...]."),
    "tile_bit_xor_inplace": ("a, i, ..., value", "a[i, ...] ^= value."),
    "tile_stack": ("capacity, dtype", "An empty stack of at most `capacity` values of `dtype`."),
    "tile_stack_push": ("s, value, has_value=True", "Put `value` on top; its place, or -1 without room or value."),
    "tile_stack_pop": ("s", "(value, place) of what was on top; zeros and -1 where the stack is empty."),
    "tile_stack_clear": ("s", "Take everything off."),
    "tile_stack_count": ("s", "How many values there are."),
    "block_dim": ("", "1: the threads of a block share out its tiles, and the program is that of one of them."),
}


class TileBuiltin:
    """A function of the kernel language over tiles. Raises KernelError where it is called on the host."""

    def __init__(self, name: str, arguments: str, what: str):
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"{name}({arguments}): {what} In kernels only."
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


TILES = {name: (TileName if name == "tile" else TileBuiltin)(name, *texts) for name, texts in _DOCS.items()}
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
