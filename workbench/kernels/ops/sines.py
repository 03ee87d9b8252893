"""Sine and cosine of float32, worked out in float64 without a branch: compilers vectorise them, in any loop.

NumPy and C do the same operations, so they give the same bits, in every lane; they are correctly rounded but for one
in 1,800 arguments, and 0.502 units in the last place away at most. The angle is taken in half turns, modulo 2: x / pi
by a product with those bits of 1 / pi that count for the size of x (Payne and Hanek, "Radian reduction for
trigonometric functions", SIGNUM 1983), in three parts, of which the first two give exact products with a float32 (Cody
and Waite, Software Manual for the Elementary Functions, 1980). The polynomial has the least greatest relative error,
2^-33, up to 0.57 half turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ..types import float64
from .c_text import helper

ONE_OVER_PI, PLACES = 0x517CC1B727220A94FE13ABE8FA9A6EE06DB14ACC9E21C820FF28B1D5EF5DE2B0, 256  # the integer / 2^256
STARTS = (51, 77, 103)  # from 2^so much on, float32 numbers take later bits of 1 / pi
SERIES = (
    3.1415926532498055,
    -5.16771271093252,
    2.550161704272365,
    -0.5992351885933689,
    0.08197722827772956,
    -0.006918119734287166,
)
WHOLE = 1.5 * 2.0**52  # added to a number, it leaves its nearest whole number in the last bits


def _parts(start: int | None) -> tuple[float, float, float]:
    """Three numbers of 29, 29 and 53 bits: 1 / pi for numbers of at least 2^start, without what gives multiples of 2.

    The last bit of such a float32 number counts 2^(start - 23), so a bit of 1 / pi that counts 2^(24 - start) or more
    does.
    """
    top = -1 if start is None else 24 - start
    rest, found = ONE_OVER_PI % (1 << (PLACES + top)), []
    for bits in (29, 29, 53):
        top -= bits
        part = rest >> (PLACES + top) << (PLACES + top)
        found.append(float(part) * 2.0**-PLACES)
        rest -= part
    return found[0], found[1], found[2]


Floats: TypeAlias = "np.ndarray | np.floating"
PARTS = [_parts(start) for start in (None, *STARTS)]


def _chosen(a: np.ndarray | float) -> list[Any]:
    """The parts of 1 / pi for the size of a."""
    if not isinstance(a, np.ndarray):
        return list(PARTS[sum(bool(a >= 2.0**start) for start in STARTS)])
    chosen = list(PARTS[0])
    for start, later in zip(STARTS, PARTS[1:], strict=True):
        chosen = [np.where(a >= 2.0**start, new, old) for new, old in zip(later, chosen, strict=True)]
    return chosen


def _of(x: np.ndarray | float, shift: float) -> Any:
    """sin(x + shift * pi) of float64."""
    first, second, third = (x * part for part in _chosen(abs(x)))
    whole = ((first + shift) + second) + WHOLE - WHOLE
    w = ((first - (whole - shift)) + second) + third
    z, total = w * w, SERIES[-1]
    for c in SERIES[-2::-1]:
        total = c + z * total
    return w * total * (1.0 - 2.0 * (whole % 2.0))


def _wide(x: Floats) -> Any:
    return x.astype(np.float64) if isinstance(x, np.ndarray) else float(x)


def sine(x: Floats) -> Any:
    """sin(x) of NumPy numbers, or arrays of them: of float64 NumPy's own."""
    if x.dtype == np.float64:
        return np.sin(x)
    return x.dtype.type(np.float32(_of(_wide(x), 0.0)))


def cosine(x: Floats) -> Any:
    """cos(x) of NumPy numbers, or arrays of them: of float64 NumPy's own."""
    if x.dtype == np.float64:
        return np.cos(x)
    return x.dtype.type(np.float32(_of(abs(_wide(x)), 0.5)))


# ---- the same in C


def _c(name: str, given: str, shift: str) -> str:
    lines = [f"double c{k} = {part.hex()};" for k, part in enumerate(PARTS[0])]
    for start, parts in zip(STARTS, PARTS[1:], strict=True):
        rare = f"__builtin_expect(a >= 0x1p{start}, 0)"
        lines += [f"c{k} = {rare} ? {part.hex()} : c{k};" for k, part in enumerate(parts)]
    first, whole = ("p0", f"(n.d - {WHOLE!r})") if not shift else (f"(p0 + {shift})", f"((n.d - {WHOLE!r}) - {shift})")
    series = repr(SERIES[-1])
    for c in SERIES[-2::-1]:
        series = f"({c!r} + z * {series})"
    return (
        f"float {name}(float x) {{ union {{ double d; uint64_t u; }} n, r;\n"
        f"    double b = x, a = fabs(b);\n    {' '.join(lines)}\n"
        f"    double p0 = {given} * c0, p1 = {given} * c1, p2 = {given} * c2;\n"
        f"    n.d = ({first} + p1) + {WHOLE!r};\n    double w = ((p0 - {whole}) + p1) + p2, z = w * w;\n"
        f"    r.d = w * {series};\n    r.u ^= n.u << 63;\n    return (float)r.d;\n}}"
    )


helper("wb_sinf", _c("wb_sinf", "b", ""))
helper("wb_cosf", _c("wb_cosf", "a", "0.5"))


def c_call(name: str) -> Callable[..., str]:
    """The text of a row: of float64 that of C's math library."""
    return lambda types, x: f"{name}({x})" if types[0] is float64 else f"wb_{name}f({x})"
