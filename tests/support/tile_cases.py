"""Rows over tiles with arguments for `test_ops`: (names, argument types, keywords of `case`)."""

from __future__ import annotations

import itertools

import numpy as np

from workbench.kernels import types as T

TILE_CASES: list[tuple[str, tuple, dict]] = []
S = T.float64


def case(names: str, *types, **more) -> None:
    TILE_CASES.append((names, types, more))


T3, T23, T32, T33, T1 = (T.Tile(d, S) for d in ((3,), (2, 3), (3, 2), (3, 3), (1, 1)))
O, P = np.int32(1), T.Tile((3,), T.int32)(np.array([2, 0, 2]))
for _t in (T3, T23):
    case("add sub mul min max times over", _t, _t, domain=(0.3, 2.0))
    case("neg abs tile_total", _t)
    case("tile_fill", S, attr=_t)
case("tile_get", T23, O, np.int32(-1))
case("tile_set tile_add_at", T23, O, np.int32(2), S)
case("tile_sum_axis", T23, attr=0)
case("tile_sum_axis", T23, attr=1)
case("tile_reshape", T23, attr=T.Tile((6,), S))
case("tile_broadcast", T.Tile((2, 1), S), attr=T.Tile((2, 2, 3), S))
case("tile_transpose", T23)
case("tile_view", T23, np.int32(0), O, attr=T.Tile((2, 2), S))
case("tile_assign", T23, O, np.int32(0), T.Tile((1, 2), S))
for _side in (0, 1, 2):
    case("tile_matmul", T33, T32, T23, attr=_side)
for _part in ("lower", "upper", "half"):
    case("tile_part", T33, attr=_part)
case("tile_solve", T33, T32, attr="lower", domain=(0.5, 1.5))
case("tile_solve", T33, T32, attr="upper", domain=(0.5, 1.5))
case("tile_diag", T3)
case("tile_diagonal", T33)
case("tile_cholesky", T1, domain=(0.5, 2.0))
for _scan in itertools.product((True, False), (True, False)):
    case("tile_scan", T23, attr=_scan)
case("tile_take", T3, P)
case("tile_put", T3, P, T3)
for _sign in (-1, 1):
    case("tile_fft", T.Tile((2, 2, 4), S), attr=_sign)
    case("tile_dft", T.Tile((2, 2, 3), S), attr=_sign)
