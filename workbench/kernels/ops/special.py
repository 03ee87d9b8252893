"""Inverses of the error functions, in float64 whatever the type: a start near the result, then Newton and Halley."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from .row import row
from .scalar import EXP, TIMES, floats

_HALF_ROOT_PI = 0.5 * math.sqrt(math.pi)


def _start(q: float) -> float:
    """y with erfc(y) near q, for 0 < q <= 1/2: by the first term of its asymptotic series."""
    log = -math.log(q)
    return math.sqrt(log - 0.5 * math.log(math.pi * max(log, 0.8)))


def _tail(q: float) -> float:
    """y with erfc(y) = q, for 0 < q <= 1/2: steps in the logarithm, in which erfc is nearly a parabola."""
    y = _start(q)
    for _ in range(5):
        value = math.erfc(y)
        if value > 0.0:
            y += math.log(value / q) * value * _HALF_ROOT_PI * math.exp(y * y)
    return y


def _middle(x: float) -> float:
    """y with erf(y) = x, for |x| <= 1/2."""
    y = x * _HALF_ROOT_PI
    for _ in range(4):
        step = (math.erf(y) - x) * _HALF_ROOT_PI * math.exp(y * y)
        y -= step / (1.0 + y * step)
    return y


def erfinv_of(x: float) -> float:
    if abs(x) <= 0.5:
        return _middle(x)
    if abs(x) < 1.0:
        return math.copysign(_tail(1.0 - abs(x)), x)
    return math.copysign(math.inf, x) if abs(x) == 1.0 else math.nan


def erfcinv_of(x: float) -> float:
    if 0.5 <= x <= 1.5:
        return _middle(1.0 - x)
    if 0.0 < x < 2.0:
        return _tail(x) if x < 1.0 else -_tail(2.0 - x)
    return math.inf if x == 0.0 else -math.inf if x == 2.0 else math.nan


_NOTHING, _ENDLESS = "0.0 / 0.0", "1.0 / 0.0"
_ERFINV = (
    "({T})(fabs((double){0}) <= 0.5 ? wb_erf_middle((double){0}) : fabs((double){0}) < 1 ? "
    "copysign(wb_erf_tail(1 - fabs((double){0})), (double){0}) : "
    f"fabs((double){{0}}) == 1 ? copysign({_ENDLESS}, (double){{0}}) : {_NOTHING})"
)
_ERFCINV = (
    "({T})((double){0} >= 0.5 && (double){0} <= 1.5 ? wb_erf_middle(1 - (double){0}) : "
    "(double){0} > 0 && (double){0} < 1 ? wb_erf_tail((double){0}) : "
    "(double){0} >= 1 && (double){0} < 2 ? -wb_erf_tail(2 - (double){0}) : "
    f"(double){{0}} == 0 ? {_ENDLESS} : (double){{0}} == 2 ? -{_ENDLESS} : {_NOTHING})"
)


def _row(name: str, value: Callable[[float], float], c: str, sign: float) -> Any:
    return row(
        name,
        type=partial(floats, name),
        meaning=lambda x: type(x)(value(float(x))),
        c=c,
        library=True,
        cost=64,
        adjoint=lambda g, y, x: (TIMES(g * (sign * _HALF_ROOT_PI), EXP(y * y)),),
    )


ERFINV = _row("erfinv", erfinv_of, _ERFINV, 1.0)
ERFCINV = _row("erfcinv", erfcinv_of, _ERFCINV, -1.0)
