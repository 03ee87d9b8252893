"""Discrete Fourier transforms along the last axis of a tile (2, rows, n): real parts, then imaginary ones.

Nothing is divided by n. The matrix of a transform is symmetric, so its adjoint is the one of the other sign. Lengths
that are powers of 2 go by halves in place (Cooley and Tukey, 1965), others term by term.
"""

from __future__ import annotations

import numpy as np

from ..row import Row, refuse
from ..types import Tile, Type, float16
from .row import row
from .tiles import floats_of


def _type(t: Type, attr: int) -> Type:
    found = floats_of("tile_fft", t, 3)
    if found.dims[0] != 2 or found.scalar is float16:
        raise refuse(f"`tile_fft` takes tiles of vec2 or vec2d, not {found}", slug="tile-operand")
    return found


def _transformed(t: np.ndarray, attr: int) -> np.ndarray:
    values = np.asarray(t[0] + 1j * t[1])
    made = np.fft.fft(values) if attr < 0 else np.fft.ifft(values, norm="forward")
    return np.stack([made.real, made.imag]).astype(t.dtype)


def _transform(name: str, doc: str, onto: int | None, cost: int) -> Row:
    def block(types, type, out, t, attr):
        _, rows, n = type.dims
        read = f"{out}.c" if onto == 0 else f"{out}.c, {t}.c"
        return f"WB_{name.upper()}({type.scalar.c}, {rows}, {n}, {read}, {attr})"

    made = row(
        f"tile_{name}",
        type=_type,
        facts="typed_by_attr linear",
        meaning=_transformed,
        onto=onto,
        cost=cost,
        adjoint=lambda g, y, t, attr: (made(g, attr=-attr),),
        block=block,
        doc=doc,
    )
    return made


FFT = _transform("fft", "sum over j of t[j] exp(`attr` 2 pi i j k / n), for n a power of 2.", 0, 64)
DFT = _transform("dft", "The same for any n.", None, 256)


def transform(tile: Tile) -> Row:
    """The row for tiles of this length."""
    n = tile.dims[-1]
    return DFT if n & (n - 1) else FFT
