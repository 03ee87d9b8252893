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


def _fft_block(types, type, out, t, attr):
    _, rows, n = type.dims
    return f"WB_FFT({type.scalar.c}, {rows}, {n}, {out}.c, {attr})"


def _dft_block(types, type, out, t, attr):
    _, rows, n = type.dims
    return f"WB_DFT({type.scalar.c}, {rows}, {n}, {out}.c, {t}.c, {attr})"


FFT = row(
    "tile_fft",
    type=_type,
    typed_by_attr=True,
    meaning=_transformed,
    linear=True,
    onto=0,
    cost=64,
    adjoint=lambda g, y, t, attr: (FFT(g, attr=-attr),),
    block=_fft_block,
    doc="sum over j of t[j] exp(`attr` 2 pi i j k / n), for n a power of 2.",
)
DFT = row(
    "tile_dft",
    type=_type,
    typed_by_attr=True,
    meaning=_transformed,
    linear=True,
    cost=256,
    adjoint=lambda g, y, t, attr: (DFT(g, attr=-attr),),
    block=_dft_block,
    doc="The same for any n.",
)


def transform(tile: Tile) -> Row:
    """The row for tiles of this length."""
    n = tile.dims[-1]
    return DFT if n & (n - 1) else FFT
