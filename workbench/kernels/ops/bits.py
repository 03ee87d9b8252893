"""Bits of numbers: the count of set bits, and the same bits as another type."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..ir import kind
from ..row import NO_GRADIENT, Operand, refuse
from ..types import SCALARS, Composite, Scalar, Type, int32, is_int, scalar_of
from .c_text import helper
from .row import row, stop


def _count_type(type: Type) -> Type:
    if not is_int(type):
        raise refuse(f"`bit_count` takes integers, not {type}", slug="operand-type", instead="int(...)")
    return int32


def _unsigned(x: np.integer) -> Any:
    return np.asarray(x).view(f"uint{x.dtype.itemsize * 8}")[()]


BIT_COUNT = row(
    "bit_count",
    type=_count_type,
    meaning=lambda x: int(_unsigned(x)).bit_count(),
    exact=True,
    c=lambda types, x: f"wb_bit_count((uint{types[0].bits}_t){x})",
)


for _a, _b in itertools.permutations([s for s in SCALARS if s.kind in "fiu" and s.bits > 16], 2):
    if _a.bits == _b.bits:
        _union = f"union {{ {_a.c} from; {_b.c} to; }} u; u.from = x; return u.to;"
        helper(f"wb_bits_{_a.name}_{_b.name}", f"{_b.c} wb_bits_{_a.name}_{_b.name}({_a.c} x) {{ {_union} }}")


def _cast_type(source: Type, attr: Scalar) -> Type:
    if not isinstance(source, Scalar) or source.kind == "b" or attr.kind == "b":
        raise refuse(f"`cast` takes a number, not {source}", slug="operand-type")
    if source.bits != attr.bits or source.bits < 32:
        what = "of 32 or 64 bits, as many as the type has"
        raise refuse(f"`cast` takes a number {what}, not {source} as {attr}", slug="cast", instead=f"{attr}(...)")
    return attr


SAME_BITS = row(
    "same_bits",
    type=_cast_type,
    facts="typed_by_attr exact",
    adjoint=NO_GRADIENT,
    meaning=lambda x, attr: np.asarray(x).view(attr.numpy)[()],
    vectorised=True,
    c=lambda types, x, attr: x if types[0] is attr else f"wb_bits_{types[0].name}_{attr.name}({x})",
)


def cast(x: Operand, dtype: object) -> Any:
    """cast(x: number, dtype) -> number of type dtype with the same bits, of 32 or 64.

    No gradient passes to another type.

    `wb.int32(x)` and the like convert the value instead.
    """
    if isinstance(kind(x), Composite):
        raise stop((x,), f"`cast` takes a number, not {kind(x)}", slug="operand-type")
    return x if kind(x) == scalar_of(dtype) else SAME_BITS(x, attr=scalar_of(dtype))
